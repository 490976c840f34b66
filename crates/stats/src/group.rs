//! Many counters in one slot.

use crate::read::{self, StillCounting};
use crate::tally::Tally;
use manylane_sync::{LaneId, PerLane};

/// A struct of [`Tally`]s; the macro [`counters!`](crate::counters) declares it and implements this trait.
pub trait Counters: Default + Send + Sync + 'static {
    /// Names of the fields, in order.
    const NAMES: &'static [&'static str];

    /// Calls `each` with every tally, in the order of [`NAMES`](Self::NAMES).
    fn visit(&self, each: &mut dyn FnMut(&Tally));
}

/// Declares a struct of counters for a [`CounterGroup`].
///
/// ```
/// manylane_stats::counters! {
///     /// What one server did.
///     pub struct Server {
///         /// Requests sent to it.
///         pub requests,
///         /// Bytes of their responses.
///         pub bytes_in,
///     }
/// }
/// use manylane_stats::{CounterGroup, Counters};
/// assert_eq!(Server::NAMES, ["requests", "bytes_in"]);
/// let server: CounterGroup<Server> = CounterGroup::new();
/// let own = server.own(); // one lookup for both
/// own.requests.add(1);
/// own.bytes_in.add(512);
/// assert_eq!(server.read_cheap(), [1, 512]);
/// assert_eq!(server.read_cheap_one(|s| &s.bytes_in), 512);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $crate::Tally,)+
        }

        impl $crate::Counters for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            fn visit(&self, each: &mut dyn FnMut(&$crate::Tally)) {
                $(each(&self.$field);)+
            }
        }
    };
}

/// A struct of counters for each lane, all in one slot: sixty counters take 512 bytes a lane instead of
/// 7,680, and one lookup serves several additions.
#[derive(Debug)]
pub struct CounterGroup<T> {
    slots: PerLane<T>,
}

impl<T: Counters> CounterGroup<T> {
    crate::const_fn! {
        /// Creates counters at 0.
        pub fn new() -> Self { Self { slots: PerLane::new(|_| T::default()) } }
    }

    /// Returns the calling lane's counters. Only that lane may add to them.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn own(&self) -> &T {
        self.slots.own()
    }

    /// Calls `work` with the calling lane's counters, if it has counted anything.
    pub fn if_own(&self, work: impl FnOnce(&T)) {
        if let Some(own) = self.slots.get(manylane_sync::lane::current()) {
            work(own);
        }
    }

    /// Returns the sums in order of [`Counters::NAMES`], while the lanes go on. Each has the bounds of
    /// [`Counter::read_cheap`](crate::Counter::read_cheap); different counters may be from different moments.
    pub fn read_cheap(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        self.read_cheap_into(&mut sums);
        sums
    }

    /// As [`read_cheap`](Self::read_cheap), but replaces the contents of `sums`. Allocates nothing if `sums`
    /// has had as many before: for repeated reads.
    pub fn read_cheap_into(&self, sums: &mut Vec<u64>) {
        sums.clear();
        sums.resize(T::NAMES.len(), 0);
        for (_, slot) in self.slots.iter() {
            let mut sums = sums.iter_mut();
            slot.visit(&mut |tally| {
                if let Some(sum) = sums.next() {
                    *sum = sum.wrapping_add(tally.get());
                }
            });
        }
    }

    /// Returns the sum of the counter that `pick` selects, while the lanes go on.
    pub fn read_cheap_one(&self, pick: impl Fn(&T) -> &Tally) -> u64 {
        self.slots.iter().fold(0, |sum, (_, slot)| sum.wrapping_add(pick(slot).get()))
    }

    /// Returns the sums of all lanes and all counters at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] if lanes kept adding at every attempt.
    pub fn read_exact(&self) -> Result<Vec<u64>, StillCounting> {
        Ok(Self::sum(&read::exact(|| self.lanes())?))
    }

    /// Returns each lane's counters, while the lanes go on.
    pub fn lanes(&self) -> Vec<(LaneId, Vec<u64>)> {
        let values = |slot: &T| {
            let mut values = Vec::with_capacity(T::NAMES.len());
            slot.visit(&mut |tally| values.push(tally.get()));
            values
        };
        self.slots.iter().map(|(lane, slot)| (lane, values(slot))).collect()
    }

    fn sum(lanes: &[(LaneId, Vec<u64>)]) -> Vec<u64> {
        let mut sums = vec![0u64; T::NAMES.len()];
        for (_, values) in lanes {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
        }
        sums
    }
}

impl<T: Counters> Default for CounterGroup<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    counters! {
        struct Pair { left, right }
    }

    #[test]
    fn a_group_sums_each_counter_over_the_lanes() {
        static GROUP: CounterGroup<Pair> = CounterGroup::new();
        std::thread::scope(|scope| {
            for n in 0..4 {
                scope.spawn(move || {
                    GROUP.own().left.add(1);
                    GROUP.own().right.add(n);
                });
            }
        });
        assert_eq!(GROUP.read_cheap(), [4, 6]);
        assert_eq!(GROUP.read_exact(), Ok(vec![4, 6]));
        let by_lane = GROUP.lanes();
        assert_eq!(by_lane.iter().map(|(_, values)| values[0]).sum::<u64>(), 4);
        assert_eq!(by_lane.iter().map(|(_, values)| values[1]).sum::<u64>(), 6);
    }

    #[test]
    fn an_exact_read_never_sees_between_two_counters_that_move_together() {
        // `right` follows `left`; at any moment left is equal or one ahead.
        use std::sync::atomic::{AtomicBool, Ordering};
        let group: CounterGroup<Pair> = CounterGroup::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10 {
                        group.own().left.add(1);
                        group.own().right.add(1);
                    }
                    std::thread::yield_now();
                }
            });
            for _ in 0..1000 {
                if let Ok([left, right]) = group.read_exact().as_deref() {
                    assert!(*left == *right || *left == *right + 1, "{left} {right}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
