//! Time of the lanes: each reads the clock once a round and passes the time on.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment: nanoseconds since the clock began, for about 584 years. The clock of real lanes begins at the
/// process's first read of it; tests pass any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the moment `nanoseconds` after the beginning of the clock.
    #[inline]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the moment `milliseconds` after the beginning of the clock; [`MAX`](Self::MAX) if that is out
    /// of range.
    #[inline]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// Returns the nanoseconds since the beginning of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time that passed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Reads the system's monotonic clock: about 25 ns.
    pub fn now() -> Self {
        static BEGIN: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let now = monotonic();
        // One more, so that no real moment is 0, which stands for "not known".
        Self(now.saturating_sub(*BEGIN.get_or_init(|| now)) + 1)
    }
}

/// Returns the nanoseconds of the system's monotonic clock. `Instant` does not give them, and subtracting two
/// of those takes 150 instructions, once a round.
fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists everywhere, and the system writes into a local variable.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    debug_assert_eq!(failed, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`MAX`](Self::MAX).
    #[inline]
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    #[inline]
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
