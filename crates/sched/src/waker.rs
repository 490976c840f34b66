//! Wakers are numbers: lane, slot and generation in one word. Cloning one copies the word, dropping it does
//! nothing.

use crate::home;
use crate::late::CallerSite;
use crate::slot::{GENERATION_BITS, SLOT_BITS};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::without_provenance;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// The number of a task. After the end of the task it stays valid, but refers to no task.
///
/// Layout: lane in the upper 12 bits, slot in the next 28, generation in the lower 24.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId(u64);

impl TaskId {
    #[inline(always)]
    pub(crate) const fn new(lane: u32, slot: u32, generation: u32) -> Self {
        Self(
            (lane as u64) << (SLOT_BITS + GENERATION_BITS)
                | (slot as u64) << GENERATION_BITS
                | generation as u64,
        )
    }

    #[inline(always)]
    pub(crate) const fn lane_number(self) -> u32 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u32
    }

    #[inline(always)]
    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & ((1 << SLOT_BITS) - 1)
    }

    #[inline(always)]
    pub(crate) const fn generation(self) -> u32 {
        self.0 as u32 & ((1 << GENERATION_BITS) - 1)
    }

    /// Returns the slot if its number is below `slots` and the lane is that of `other`, whose slot and
    /// generation are 0.
    #[inline(always)]
    pub(crate) const fn slot_beside(self, other: Self, slots: u32) -> Option<u32> {
        let slot = (self.0 ^ other.0) >> GENERATION_BITS; // includes the lane's bits if the lanes differ
        if slot < slots as u64 { Some(slot as u32) } else { None }
    }

    /// Returns the id of the next task in the same slot. Generations wrap after 24 bits.
    #[inline(always)]
    pub(crate) const fn next_generation(self) -> Self {
        const MASK: u64 = (1 << GENERATION_BITS) - 1;
        Self(self.0 & !MASK | self.0.wrapping_add(1) & MASK)
    }

    /// Wakes the task, from any thread; does nothing if it has ended.
    ///
    /// Cost: on the task's lane a push on a local queue, without a locked instruction. From elsewhere a swap,
    /// and, unless the task is on its way already, a compare-and-swap on the lane's inbox; if the lane
    /// sleeps, the system call that wakes it.
    #[inline]
    #[cfg_attr(any(manylane_sim, debug_assertions), track_caller)]
    pub fn wake(self) {
        self.wake_by(CallerSite::here());
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn wake_by(self, site: CallerSite) {
        match home::here() {
            Some(home) if let Some(slot) = home.slot_of(self) => home.wake(slot, self, site),
            _ => self.wake_from_afar(site),
        }
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn wake_from_afar(self, site: CallerSite) {
        if let Some(home) = home::of(self.lane_number() as usize) {
            home.wake_from_afar(self.slot(), self.generation(), site);
        }
    }

    /// Returns a waker for the task. It owns nothing and need not even be dropped.
    #[inline]
    pub fn waker(self) -> Waker {
        // SAFETY: the functions of the table fulfil the contract of `RawWaker`: they work only on numbers
        // from `raw`, on any thread.
        unsafe { Waker::from_raw(self.raw()) }
    }

    /// Returns a waker to lend to a poll.
    #[inline(always)]
    pub(crate) fn lend(self) -> ManuallyDrop<Waker> {
        ManuallyDrop::new(self.waker())
    }

    #[inline(always)]
    fn raw(self) -> RawWaker {
        RawWaker::new(without_provenance(self.0 as usize), &VTABLE)
    }

    #[inline(always)]
    fn of_data(data: *const ()) -> Self {
        Self(data.addr() as u64)
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, ignore);

fn clone(data: *const ()) -> RawWaker {
    TaskId::of_data(data).raw()
}

fn wake(data: *const ()) {
    TaskId::of_data(data).wake_by(CallerSite::unknown());
}

fn ignore(_: *const ()) {}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}.{}.{}", self.lane_number(), self.slot(), self.generation())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_holds_lane_slot_and_generation_at_their_extremes() {
        for (lane, slot, generation) in
            [(0, 0, 0), (4095, (1 << 28) - 1, (1 << 24) - 1), (1, 2, 3), (4095, 0, 1)]
        {
            let id = TaskId::new(lane, slot, generation);
            assert_eq!((id.lane_number(), id.slot(), id.generation()), (lane, slot, generation));
            let waker = id.waker();
            assert!(waker.clone().will_wake(&waker));
            assert_eq!(TaskId::of_data(waker.data()), id);
        }
    }
}
