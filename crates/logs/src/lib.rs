#![doc = include_str!("../README.md")]
#![cfg(not(any(loom, manylane_sim)))] // needs sockets of manylane-io, which are not built there

mod clock;
mod datagrams;
mod descriptor;
mod lane;
mod line;
mod outbox;
mod ring;
mod ring_server;
mod sender;
mod target;

pub use lane::LaneLogs;
pub use line::{Facility, Format, Level, Line};
pub use outbox::{MOST_BYTES, MOST_LINES};
pub use ring::{MAX_RING, MIN_RING, RING_OVERHEAD, RING_PART, Ring, RingRead, RingReader};
pub use ring_server::RingServer;
pub use target::{
    BadTarget, Counts, Framing, MAX_LENGTH, MIN_LENGTH, Sample, Sink, Target, TargetSpec, Timeouts,
    lost_lines,
};
