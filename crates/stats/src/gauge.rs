//! A level that rises and falls.

use crate::read::{self, StillCounting};
use crate::tally;
use manylane_sync::atomic::AtomicU64;
use manylane_sync::{LaneId, LaneSlots};

/// A named level: lanes add and subtract, and the level is the sum. A lane's own part may be negative if it
/// subtracts what another lane added.
///
/// # Cost
/// As [`Counter`](crate::Counter). Additions and subtractions are two numbers that only grow, since an exact
/// read needs that (rule 4).
#[derive(Debug)]
pub struct Gauge {
    name: &'static str,
    slots: LaneSlots<[AtomicU64; 2]>,
}

/// Index of the additions in a slot.
const UP: usize = 0;
/// Index of the subtractions in a slot.
const DOWN: usize = 1;

impl Gauge {
    crate::const_fn! {
        /// Creates a gauge at 0.
        pub fn new(name: &'static str) -> Self {
            Self { name, slots: LaneSlots::new() }
        }
    }

    /// Returns the name for reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Raises the level by `n` on the calling lane.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        tally::add(&self.slots.own()[UP], n);
    }

    /// Lowers the level by `n` on the calling lane.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn sub(&self, n: u64) {
        tally::add(&self.slots.own()[DOWN], n);
    }

    /// Returns the level while the lanes go on. If each `sub` follows its `add` (objects that are made and
    /// freed), the result is never negative: all subtractions are read before any addition (rule 3).
    pub fn read_cheap(&self) -> i64 {
        let sum_of = |part: usize| {
            self.slots.iter().fold(0u64, |sum, (_, slot)| sum.wrapping_add(tally::get(&slot[part])))
        };
        let down = sum_of(DOWN);
        sum_of(UP).wrapping_sub(down).cast_signed()
    }

    /// Returns the level of all lanes at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] if lanes kept counting at every attempt.
    pub fn read_exact(&self) -> Result<i64, StillCounting> {
        let slots = read::exact(|| self.parts().collect::<Vec<_>>())?;
        let level = slots.iter().fold(0u64, |sum, (_, up, down)| sum.wrapping_add(*up).wrapping_sub(*down));
        Ok(level.cast_signed())
    }

    /// Returns each lane's part, while the lanes go on. Omits lanes that neither added nor subtracted.
    pub fn lanes(&self) -> Vec<(LaneId, i64)> {
        self.parts().map(|(lane, up, down)| (lane, up.wrapping_sub(down).cast_signed())).collect()
    }

    /// Iterates over each lane's additions and subtractions.
    fn parts(&self) -> impl Iterator<Item = (LaneId, u64, u64)> {
        let parts = self.slots.iter().map(|(lane, slot)| {
            let down = tally::get(&slot[DOWN]); // first: rule 3
            (lane, tally::get(&slot[UP]), down)
        });
        parts.filter(|(_, up, down)| up | down != 0)
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_one_lane_adds_another_may_take_away() {
        static GAUGE: Gauge = Gauge::new("connections");
        GAUGE.add(5);
        std::thread::scope(|scope| {
            scope.spawn(|| GAUGE.sub(4));
        });
        assert_eq!(GAUGE.read_cheap(), 1);
        assert_eq!(GAUGE.read_exact(), Ok(1));
        let mut parts: Vec<i64> = GAUGE.lanes().into_iter().map(|(_, n)| n).collect();
        parts.sort_unstable();
        assert_eq!(parts, [-4, 5]);
    }

    #[test]
    fn a_cheap_read_of_objects_that_come_on_one_lane_and_go_on_another_is_never_negative() {
        let gauge = Gauge::new("objects");
        let (send, receive) = mpsc::sync_channel(4);
        std::thread::scope(|scope| {
            let gauge = &gauge;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    gauge.add(1);
                    send.send(()).expect("the other lane listens");
                }
            });
            let taker = scope.spawn(move || receive.iter().for_each(|()| gauge.sub(1)));
            while !taker.is_finished() {
                let level = gauge.read_cheap();
                assert!(level >= 0, "{level}");
            }
        });
        assert_eq!(gauge.read_exact(), Ok(0));
    }
}
