//! A counter that lanes increment and any thread reads (R-F2).

use crate::read::{self, StillCounting};
use crate::tally;
use manylane_sync::atomic::AtomicU64;
use manylane_sync::{LaneId, LaneSlots};

/// A named counter, summed over the lanes.
///
/// # Cost
/// `add`: a thread-local load, an addition and a test to find the lane's word, and a load-add-store on a line
/// that no other lane writes; 0 line transfers in steady state. Memory: 8 bytes a lane. Reading: one miss for
/// each lane that counted since the last read, here or in a neighbouring word.
///
/// ```
/// # #[cfg(not(loom))] {
/// use manylane_stats::Counter;
/// static REQUESTS: Counter = Counter::new("requests");
/// REQUESTS.add(1);
/// assert_eq!(REQUESTS.read_cheap(), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    slots: LaneSlots<AtomicU64>,
}

impl Counter {
    crate::const_fn! {
        /// Creates a counter at 0.
        pub fn new(name: &'static str) -> Self { Self { name, slots: LaneSlots::new() } }
    }

    /// Returns the name for reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds `n` on the calling lane, wrapping at 2^64.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        tally::add(self.slots.own(), n);
    }

    /// Returns the sum while the lanes go on: at least the additions that happened before the call, and at
    /// most those up to its return.
    pub fn read_cheap(&self) -> u64 {
        self.slots.iter().fold(0, |sum, (_, word)| sum.wrapping_add(tally::get(word)))
    }

    /// Returns the sum of all lanes at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] if lanes kept adding at every attempt.
    pub fn read_exact(&self) -> Result<u64, StillCounting> {
        let values = read::exact(|| self.lanes())?;
        Ok(values.iter().fold(0, |sum, (_, n)| sum.wrapping_add(*n)))
    }

    /// Returns the additions of each lane, while the lanes go on. Omits lanes without any.
    pub fn lanes(&self) -> Vec<(LaneId, u64)> {
        self.slots.iter().map(|(lane, word)| (lane, tally::get(word))).filter(|(_, n)| *n != 0).collect()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn lanes_add_up_and_are_seen_apart() {
        static COUNTER: Counter = Counter::new("test");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| COUNTER.add(3)));
            }
        });
        assert_eq!(COUNTER.read_cheap(), 24_000);
        assert_eq!(COUNTER.read_exact(), Ok(24_000));
        assert_eq!(COUNTER.lanes().iter().map(|(_, n)| n).sum::<u64>(), 24_000);
        assert_eq!(COUNTER.name(), "test");
    }

    #[test]
    fn a_cheap_read_lies_between_what_was_added_before_and_after_it() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let counter = Counter::new("test");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    counter.add(1);
                }
            });
            let mut last = 0;
            for _ in 0..10_000 {
                let now = counter.read_cheap();
                assert!(now >= last, "{now} < {last}");
                last = now;
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(counter.read_exact(), Ok(counter.read_cheap()));
    }
}
