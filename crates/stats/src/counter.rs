//! A number that lanes add to and anyone reads (R-F2).

use crate::read::{self, StillCounting};
use crate::tally;
use manylane_sync::atomic::AtomicU64;
use manylane_sync::{LaneId, LaneSlots};

/// A named sum over the lanes.
///
/// # Cost
/// `add`: a thread-local load, an addition and a test to find the lane's word, and a load-add-store on a line
/// that no other lane writes; 0 line transfers in steady state. Memory: 8 bytes a lane. Reading: one miss per
/// lane that counted since, here or in a neighbouring word.
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
        /// A counter at 0.
        pub fn new(name: &'static str) -> Self { Self { name, slots: LaneSlots::new() } }
    }

    /// The name, as reports show it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds `n` on the calling lane, wrapping at 2^64.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        tally::add(self.slots.own(), n);
    }

    /// The sum, while the lanes go on: at least what was added before the call began (by whoever is
    /// ordered before it), at most what was added when it returns.
    pub fn read_cheap(&self) -> u64 {
        self.slots.iter().fold(0, |sum, (_, word)| sum.wrapping_add(tally::get(word)))
    }

    /// The sum that all lanes together had at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] when lanes kept adding at every attempt.
    pub fn read_exact(&self) -> Result<u64, StillCounting> {
        let values = read::exact(|| self.lanes())?;
        Ok(values.iter().fold(0, |sum, (_, n)| sum.wrapping_add(*n)))
    }

    /// What each lane added, while the lanes go on. Lanes that added nothing are left out.
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
