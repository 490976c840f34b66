#![doc = include_str!("../README.md")]
#![cfg(not(any(loom, manylane_sim)))] // needs sockets of manylane-io, which are not built there

mod clock;
mod datagrams;
mod descriptor;
mod frames;
mod lane;
mod line;
mod message;
mod outbox;
mod ring;
mod ring_server;
mod sender;
mod stream_server;
mod target;
mod tls;

pub use frames::{Frame, Frames};
pub use lane::LaneLogs;
pub use line::{Facility, Format, Level, Line};
pub use message::{HostPolicy, Message};
pub use outbox::{MOST_BYTES, MOST_LINES};
pub use ring::{MAX_RING, MIN_RING, RING_OVERHEAD, RING_PART, Ring, RingRead, RingReader};
pub use ring_server::RingServer;
pub use target::{
    BadTarget, Counts, Framing, MAX_LENGTH, MIN_LENGTH, Sample, Sink, Target, TargetSpec, Timeouts,
    count_received, lost_lines, received_messages,
};
pub use tls::{LaneTls, TargetTls};
