//! `LaneSlots`: small slots of every lane, which one thread-local load and an addition find.

use crate::arena::{self, ArenaOffset};
use crate::atomic::{AtomicU64, OwnedU64};
use crate::lane::{self, LaneId};
use crate::per_lane::PerLane;
use std::alloc::Layout;
use std::fmt;

/// A type whose values may begin as zeroes and end without a drop, such as a number or an empty cache.
///
/// # Safety
/// On the real machine zeroed memory is a valid value, equal to that of `default()`; and overwriting a value
/// with zeroes instead of dropping it loses nothing.
pub unsafe trait ZeroInit: Default {}

// SAFETY: plain numbers, 0 by default.
unsafe impl ZeroInit for AtomicU64 {}
// SAFETY: as above.
unsafe impl ZeroInit for OwnedU64 {}
// SAFETY: an array of zeroes is an array of values that are all the default.
unsafe impl<T: ZeroInit> ZeroInit for [T; 1] {}
// SAFETY: as above.
unsafe impl<T: ZeroInit> ZeroInit for [T; 2] {}

/// A `T` for each lane, dense: the slots of one lane are adjacent in memory that no other lane writes.
///
/// In contrast to a [`PerLane`], the first use creates nothing, since every slot begins as zeroes
/// ([`ZeroInit`]), and slots are not padded, since all neighbours of a slot belong to the same lane. So a
/// slot is found without a table, and a counter takes 8 bytes a lane instead of 128.
///
/// # Protocol
/// 1. All lanes have their slots from the beginning. A thread that ends leaves its slots to the next thread
///    with the same lane.
/// 2. The slots are in the lanes' arenas (16 MiB of address space each). A `LaneSlots` for which the arenas
///    have no room, and a lane without an arena, use a `PerLane` instead, which is slower but otherwise the
///    same. The choice never changes for a lane of a `LaneSlots`. Models and simulations know only the
///    `PerLane`; the arenas have a model of their own (`tests/loom_arena.rs`).
/// 3. Dropping a `LaneSlots` zeroes the place of its slots and frees that place. It does not drop the values.
///
/// # Cost
/// `own`: a thread-local load, an addition, a test that always has the same outcome. Reading all: one miss
/// for each lane that wrote to the line since the last read; other counters of the lane share the line.
pub struct LaneSlots<T: ZeroInit> {
    offset: ArenaOffset,
    beside: PerLane<T>,
}

// SAFETY: `&T` goes to any thread, and a slot is used by one thread after another (Send).
unsafe impl<T: ZeroInit + Send + Sync> Sync for LaneSlots<T> {}
// SAFETY: as above.
unsafe impl<T: ZeroInit + Send> Send for LaneSlots<T> {}

impl<T: ZeroInit> LaneSlots<T> {
    crate::model::const_fn! {
        /// Creates slots of zeroes.
        pub fn new() -> Self { Self { offset: ArenaOffset::new(), beside: PerLane::new(|_| T::default()) } }
    }

    /// Returns the calling lane's slot.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn own(&self) -> &T {
        let slot = self.offset.own();
        if arena::is_there(slot) {
            // SAFETY: the place has room for a `T` and holds zeroes or what a `T` became; it lives as long as
            // `self`.
            return unsafe { &*slot.cast::<T>() };
        }
        self.own_beside()
    }

    /// The slow path of `own`: the thread has no lane yet, the slots have no place yet, or the slot is in
    /// `beside`. In models and simulations every call comes here.
    #[cfg_attr(not(any(loom, manylane_sim)), cold)]
    #[cfg_attr(not(any(loom, manylane_sim)), inline(never))]
    #[cfg_attr(manylane_sim, track_caller)]
    fn own_beside(&self) -> &T {
        if cfg!(not(any(loom, manylane_sim))) {
            lane::current();
            self.offset.assign(Layout::new::<T>());
            let slot = self.offset.own();
            if arena::is_there(slot) {
                // SAFETY: as in `own`.
                return unsafe { &*slot.cast::<T>() };
            }
        }
        self.beside.own()
    }

    /// True if `slot` is certainly the calling lane's. Takes two instructions, and loads only the lane's
    /// base. Always false for slots outside of the arenas.
    #[inline(always)]
    pub fn is_own(slot: &T) -> bool {
        arena::is_own(std::ptr::from_ref(slot).cast())
    }

    /// Returns the slot of `lane`. None means that the lane certainly never used it; a lane that never did
    /// may still have a slot of zeroes.
    #[inline]
    pub fn get(&self, lane: LaneId) -> Option<&T> {
        match self.offset.of(lane.index()) {
            // SAFETY: as in `own`.
            Some(slot) => Some(unsafe { slot.cast::<T>().as_ref() }),
            None => self.beside.get(lane),
        }
    }

    /// Iterates over the slots of all lanes that may have used theirs, in order of lane. May include a lane
    /// that never did, and may miss one that appears meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = (LaneId, &T)> {
        let bound = arena::lanes().max(self.beside.bound());
        (0..bound).filter_map(|index| {
            let lane = LaneId::new(index).ok()?;
            Some((lane, self.get(lane)?))
        })
    }
}

impl<T: ZeroInit> Default for LaneSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ZeroInit> Drop for LaneSlots<T> {
    fn drop(&mut self) {
        self.offset.release(Layout::new::<T>());
    }
}

impl<T: ZeroInit + fmt::Debug> fmt::Debug for LaneSlots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn sum(slots: &LaneSlots<OwnedU64>) -> u64 {
        slots.iter().map(|(_, slot)| slot.get()).sum()
    }

    #[test]
    fn slots_of_one_lane_stand_together_and_those_of_two_lanes_do_not() {
        let slots: [LaneSlots<OwnedU64>; 2] = Default::default();
        let addresses = || slots.each_ref().map(|s| std::ptr::from_ref(s.own()).addr());
        let here = addresses();
        let there = std::thread::scope(|scope| scope.spawn(addresses).join().expect("no assertion failed"));
        assert!(here[0].abs_diff(here[1]) < 16 << 20, "in one arena");
        for (here, there) in here.iter().zip(there) {
            assert!(here / 4096 != there / 4096, "on pages of their own: {here:x} {there:x}");
        }
        assert!(LaneSlots::is_own(slots[0].own()));
        assert!(std::thread::scope(|scope| {
            let slot = slots[0].own();
            scope.spawn(|| !LaneSlots::is_own(slot)).join().expect("no assertion failed")
        }));
        assert!(!LaneSlots::is_own(&OwnedU64::new(0)), "not in any arena");
    }

    #[test]
    fn readers_see_all_lanes_with_and_without_room_in_the_arenas() {
        const THREADS: u64 = 40;
        let with_room: LaneSlots<OwnedU64> = LaneSlots::new();
        let without =
            LaneSlots { offset: ArenaOffset::refused(), beside: PerLane::new(|_| OwnedU64::new(0)) };
        for slots in [&with_room, &without] {
            let all_added = Barrier::new(THREADS as usize);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        slots.own().add(1);
                        assert!((1..=THREADS).contains(&sum(slots)), "{}", sum(slots));
                        assert_eq!(slots.get(lane::current()).map(OwnedU64::get), Some(1));
                        all_added.wait();
                    });
                }
            });
            assert_eq!(sum(slots), THREADS);
            let lanes: Vec<_> = slots.iter().map(|(lane, _)| lane).collect();
            assert!(lanes.is_sorted(), "{lanes:?}");
        }
        assert!(!LaneSlots::is_own(without.own()));
    }

    #[test]
    fn memory_that_is_used_again_holds_nothing_of_its_last_owner() {
        for round in 1..200 {
            let slots: LaneSlots<[OwnedU64; 2]> = LaneSlots::new();
            std::thread::scope(|scope| {
                let lanes = [(); 4].map(|()| {
                    scope.spawn(|| {
                        let [left, right] = slots.own();
                        // A thread may inherit a lane from a thread of this round, which left as many of
                        // each.
                        assert_eq!(left.get(), right.get() * round);
                        left.add(round);
                        right.add(1);
                    })
                });
                // The test joins them one by one: ThreadSanitizer does not see how a scope waits.
                for lane in lanes {
                    lane.join().expect("no assertion failed");
                }
            });
            let all = |n: usize| slots.iter().map(|(_, slot)| slot[n].get()).sum::<u64>();
            assert_eq!((all(0), all(1)), (4 * round, 4));
        }
    }
}
