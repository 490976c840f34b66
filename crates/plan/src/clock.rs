//! The time of the wall clock.

use manylane_expr::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time of the wall clock.
#[inline]
pub fn now() -> Timestamp {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: wall.as_secs().cast_signed(), micros: wall.subsec_micros() }
}
