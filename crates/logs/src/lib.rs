#![doc = include_str!("../README.md")]

mod civil;
mod lane;
mod line;
mod outbox;
mod sender;
mod target;
mod zone;

pub use lane::LaneLogs;
pub use line::{Facility, Format, Level, Line};
pub use outbox::{MOST_BYTES, MOST_LINES};
pub use target::{BadTarget, Counts, Framing, MAX_LENGTH, MIN_LENGTH, Sample, Sink, Target, TargetSpec};
pub use zone::Zone;
