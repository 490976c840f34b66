//! A lane's surplus: batches of free objects that any lane may take.
//!
//! # Protocol
//! Each slot is in one of three states:
//!
//! ```text
//!   EMPTY ---- owner: put --------> FULL
//!   FULL  ---- any lane: take ----> TAKING ---- the taker, after the copy -------> EMPTY
//!   FULL  ---- owner: displace ---> TAKING ---- the owner, with other objects ----> FULL
//! ```
//!
//! 1. The owner writes a slot's objects while the slot is EMPTY (only the owner leaves that state). The lane
//!    that moved the slot to TAKING reads them.
//! 2. EMPTY and FULL are stored with release and read with acquire: they publish the reads and the writes of
//!    the objects.
//!
//! There are no nodes, so nothing is freed, nothing is reused too early, and there is no ABA.
//!
//! # Progress
//! No operation waits: a taker that finds a slot TAKING goes to the next; an owner that finds no slot gets
//! `Refused`.
//!
//! # Cost
//! The states are on one line, each slot's pointers on 4 (of 64 bytes). A batch that goes to another lane
//! moves about ten lines for 32 objects.

use crate::object::{BATCH, Batch, Object};
use crate::options::MAX_SURPLUS;
use manylane_sync::CachePadded;
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::cell::UnsafeCell;
use std::mem::MaybeUninit;

const EMPTY: u32 = 0;
const FULL: u32 = 1;
const TAKING: u32 = 2;

pub(crate) struct Surplus {
    states: CachePadded<[AtomicU32; MAX_SURPLUS]>,
    slots: Box<[Slot]>,
    /// Number of objects in a full slot.
    batch: usize,
}

type Slot = CachePadded<UnsafeCell<[MaybeUninit<Object>; BATCH]>>;

// SAFETY: rule 1 keeps all accesses to a slot's cell apart; `Object`s may change threads.
unsafe impl Sync for Surplus {}

/// Outcome of putting a batch on the surplus.
pub(crate) enum Put {
    /// The batch is on the surplus.
    Done,
    /// The batch is on the surplus in place of the oldest one, which the argument now holds.
    Displaced,
    /// The lane has no surplus, or other lanes are just taking its batches.
    Refused,
}

impl Surplus {
    /// Creates a surplus for `slots` batches of `batch` objects.
    pub(crate) fn new(slots: usize, batch: usize) -> Self {
        debug_assert!(slots <= MAX_SURPLUS && batch <= BATCH);
        let slot = |_| CachePadded::new(UnsafeCell::new([MaybeUninit::uninit(); BATCH]));
        Self {
            states: CachePadded::new(std::array::from_fn(|_| AtomicU32::new(EMPTY))),
            slots: (0..slots).map(slot).collect(),
            batch,
        }
    }

    /// Puts the full `batch` on the surplus. Only the owner may call this. `next` is the owner's note of the
    /// index of the oldest batch.
    pub(crate) fn put(&self, batch: &mut Batch, next: &mut usize) -> Put {
        debug_assert_eq!(batch.len(), self.batch);
        let slots = self.slots.len();
        for index in (*next..slots).chain(0..*next) {
            // Acquire: rule 2: the last taker has read all objects.
            if self.states[index].load(Ordering::Acquire) == EMPTY {
                self.slots[index].with_mut(|slot| {
                    // SAFETY: rule 1: the slot is EMPTY, and the caller is the owner.
                    unsafe { (&mut *slot)[..self.batch].copy_from_slice(batch.raw()) }
                });
                // Release: rule 2: publishes the objects.
                self.states[index].store(FULL, Ordering::Release);
                *next = (index + 1) % slots;
                return Put::Done;
            }
        }
        let oldest = *next;
        if slots == 0 || !self.claim(oldest) {
            return Put::Refused;
        }
        let mut displaced = Batch::new();
        self.slots[oldest].with_mut(|slot| {
            // SAFETY: rule 1: this thread moved it to TAKING.
            let slot = unsafe { &mut *slot };
            displaced.fill(&slot[..self.batch]);
            slot[..self.batch].copy_from_slice(batch.raw());
        });
        // Release: rule 2.
        self.states[oldest].store(FULL, Ordering::Release);
        *next = (oldest + 1) % slots;
        *batch = displaced;
        Put::Displaced
    }

    /// Takes any batch.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        (0..self.slots.len()).any(|index| self.take_from(index, batch))
    }

    /// Takes the batch that the owner put last, whose objects are the warmest. `next` as for
    /// [`put`](Self::put).
    pub(crate) fn take_newest(&self, batch: &mut Batch, next: &mut usize) -> bool {
        let slots = self.slots.len();
        for index in (0..*next).rev().chain((*next..slots).rev()) {
            if self.take_from(index, batch) {
                *next = index;
                return true;
            }
        }
        false
    }

    /// Returns the number of objects on the surplus, for reports.
    pub(crate) fn len(&self) -> usize {
        let full = |state: &&AtomicU32| state.load(Ordering::Relaxed) == FULL;
        self.states.iter().filter(full).count() * self.batch
    }

    fn take_from(&self, index: usize, batch: &mut Batch) -> bool {
        // A plain load first: a slot that is not full then costs no exclusive access.
        if self.states[index].load(Ordering::Relaxed) != FULL || !self.claim(index) {
            return false;
        }
        self.slots[index].with(|slot| {
            // SAFETY: rule 1: this thread moved it to TAKING.
            batch.fill(unsafe { &(&*slot)[..self.batch] });
        });
        // Release: rule 2: the owner may write it again.
        self.states[index].store(EMPTY, Ordering::Release);
        true
    }

    fn claim(&self, index: usize) -> bool {
        // Acquire: rule 2: pairs with the release in `put`.
        self.states[index].compare_exchange(FULL, TAKING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
