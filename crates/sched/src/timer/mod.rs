//! Timers: a wheel for each lane, and the futures on it.

mod sleep;
mod wheel;

pub use sleep::{Elapsed, Sleep};
pub(crate) use wheel::Wheel;

/// Timers that a round fires, or moves to a finer level of the wheel, at most: about 50 microseconds. What is
/// left is done in the next round, before anything else is fired.
pub const TIMERS_PER_ROUND: u32 = 1024;
