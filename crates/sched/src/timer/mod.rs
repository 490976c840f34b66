//! Timers: a wheel for each lane, and the futures that use it.

mod sleep;
mod wheel;

pub use sleep::{Elapsed, Sleep};
pub(crate) use wheel::Wheel;

/// Maximum number of timers that a round fires, or moves to a finer level of the wheel: about 50
/// microseconds. The next round does the rest before it fires others.
pub const TIMERS_PER_ROUND: u32 = 1024;
