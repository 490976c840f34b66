//! Limit of events per second: `rate-limit sessions`.
//!
//! # Protocol
//! One word holds the time at which all admitted events would have happened if they had come evenly. Each
//! event moves the time on by its share of a second, by compare-and-swap. An event that would move it more
//! than a second ahead of now has to wait. So up to a second's worth of events may come at once, as in the
//! generic cell rate algorithm of ATM (ITU-T I.371).
//!
//! # Cost
//! One locked operation for each *connection* of a frontend that has such a limit; a load for others.

use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{CachePadded, update};
use std::time::Duration;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Limit of events per second.
#[derive(Debug)]
pub struct Rate {
    /// Events per second; 0 for no limit.
    most: AtomicU64,
    /// Nanoseconds since the caller's epoch.
    until: CachePadded<AtomicU64>,
}

impl Rate {
    /// Returns a limit of `most` events per second; 0 for no limit.
    pub fn new(most: u32) -> Self {
        Self { most: AtomicU64::new(most.into()), until: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Returns the events per second; 0 for no limit.
    #[inline]
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the limit of later events.
    pub fn set_most(&self, most: u32) {
        self.most.store(most.into(), Ordering::Relaxed);
    }

    /// Admits an event at `now`, the time since an epoch that is the same in all calls.
    ///
    /// # Errors
    /// Returns how long to wait before the next try.
    #[inline]
    pub fn enter(&self, now: Duration) -> Result<(), Duration> {
        let Some(share) = SECOND.checked_div(self.most.load(Ordering::Relaxed)) else { return Ok(()) };
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2);
        let moved = update(&*self.until, Ordering::Relaxed, Ordering::Relaxed, |until| {
            let next = until.max(now) + share;
            (next <= now + SECOND).then_some(next)
        });
        match moved {
            Ok(_) => Ok(()),
            Err(until) => Err(Duration::from_nanos((until + share).saturating_sub(now + SECOND).max(1))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_second_lets_in_so_many_and_then_one_at_a_time() {
        let rate = Rate::new(4);
        let at = |millis: u64| Duration::from_millis(10_000 + millis);
        for _ in 0..4 {
            assert_eq!(rate.enter(at(0)), Ok(()));
        }
        assert_eq!(rate.enter(at(0)), Err(Duration::from_millis(250)));
        assert_eq!(rate.enter(at(100)), Err(Duration::from_millis(150)));
        assert_eq!(rate.enter(at(250)), Ok(()));
        assert!(rate.enter(at(250)).is_err());
        assert_eq!(rate.enter(at(5000)), Ok(()));
        assert_eq!((rate.most(), Rate::new(0).most(), Rate::new(7).most()), (4, 0, 7));
        rate.set_most(0);
        assert_eq!(rate.enter(at(5000)), Ok(()), "no limit");
    }
}
