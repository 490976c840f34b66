#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod conn;
mod counts;
mod error;
mod event;
mod frame;
mod glitch;
mod head;
pub mod hpack;
mod limits;
mod scratch;
mod stream_id;
mod violation;

pub use conn::{Connection, KeyedHasher, PREFACE, Role, Sent, StreamHashBuilder, StreamMap};
pub use counts::Counts;
pub use error::{ConnectionError, Problem, Reason, SendError};
pub use event::Event;
pub use glitch::{Glitch, Glitches};
pub use head::{Request, Response, Scheme};
pub use limits::{
    CHEAP_BURST, CHEAP_PER_SECOND, Config, DATA_PART, DECODED_TIMES, DEFAULT_WINDOW, LATE_FRAMES,
    MAX_ANSWERS, MAX_CONTINUATIONS, MAX_LATE_FRAMES, MAX_OUTPUT, MAX_REMEMBERED, OUTPUT_ROOM, RESET_BURST,
    RESETS_PER_SECOND, UPDATES_EARNED,
};
pub use stream_id::StreamId;
pub use violation::{MAX_KEPT, Violation};
