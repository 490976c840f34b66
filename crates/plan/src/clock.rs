//! Uptime of the process and the wall-clock time.

use manylane_expr::Timestamp;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the time since the first call. The first lane makes that call when it begins.
pub fn uptime() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Returns the wall-clock time.
#[inline]
pub fn now() -> Timestamp {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: wall.as_secs().cast_signed(), micros: wall.subsec_micros() }
}
