//! Global lists of magazines: where the lanes' surplus may go before it goes to the allocator (R-D2).
//!
//! Treiber's stack (1986) with a counter beside the pointer against ABA, which is why the compare-and-swap is
//! a double-width one: `portable-atomic` chooses cmpxchg16b, CASP or LL/SC (R-D5).
//!
//! # Protocol
//! 1. A magazine is on one of two stacks of its list, `full` or `empty`, or belongs to the lane that popped
//!    it.
//! 2. Magazines are never freed while the pool lives and are always magazines. So the `next` of one that
//!    somebody else popped meanwhile may be read: it is an atomic, and the value is thrown away because the
//!    counter has moved on.
//! 3. Each push and each pop changes the counter. 2^64 changes within one loop of one lane do not happen.
//! 4. A push releases the magazine's contents, a pop acquires them.
//!
//! # Progress
//! Lock-free: whoever fails has lost to somebody who did not; it backs off (R-E2).
//!
//! # Cost
//! Two double-width compare-and-swaps to leave a batch and two to take it, on a line that all lanes of the
//! list share.

use crate::object::Batch;
use crate::options::Resolved;
use manylane_sync::atomic::{AtomicPtr, AtomicU128, AtomicUsize, Ordering};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Backoff, CachePadded, LaneId};
use std::ptr::NonNull;

pub(crate) struct Global {
    lists: Box<[CachePadded<List>]>,
    /// Magazines of a list at most.
    bound: usize,
}

struct List {
    full: Stack,
    empty: Stack,
    /// Magazines made for this list.
    made: AtomicUsize,
}

struct Magazine {
    next: AtomicPtr<Magazine>,
    /// Touched by whoever popped the magazine, or made it (rule 1).
    objects: UnsafeCell<Batch>,
}

// SAFETY: rule 1 keeps the accesses to a list's magazines apart; the objects in them may change lanes.
unsafe impl Sync for Global {}
// SAFETY: as above.
unsafe impl Send for Global {}

impl Global {
    pub(crate) fn new(options: &Resolved) -> Self {
        let list = |_| CachePadded::new(List::new());
        let lists: Box<[_]> = (0..options.global_lists).map(list).collect();
        Self { bound: options.global_batches.checked_div(lists.len()).unwrap_or(0), lists }
    }

    /// Keeps the objects of `batch`, if there is room on the list of `lane`.
    pub(crate) fn put(&self, lane: LaneId, batch: &Batch) -> bool {
        let Some(list) = lane.index().checked_rem(self.lists.len()).map(|index| &self.lists[index]) else {
            return false;
        };
        let Some(magazine) = list.empty.pop().or_else(|| list.make(self.bound)) else { return false };
        // SAFETY: rule 1: we popped or made it.
        unsafe { magazine.as_ref() }.objects.with_mut(|objects| {
            // SAFETY: as above.
            unsafe { (*objects).fill(batch.raw()) };
        });
        list.full.push(magazine);
        true
    }

    /// Takes a batch from the list of `lane`, or another.
    pub(crate) fn take(&self, lane: LaneId, batch: &mut Batch) -> bool {
        let count = self.lists.len();
        (0..count).any(|step| self.lists[(lane.index() + step) % count].take(batch))
    }

    /// Takes as much as there can be at one moment and calls `each` with it.
    pub(crate) fn empty(&self, mut each: impl FnMut(&Batch)) {
        let mut batch = Batch::new();
        for list in &self.lists {
            for _ in 0..self.bound {
                // Counted, since the lanes may go on filling it.
                if !list.take(&mut batch) {
                    break;
                }
                each(&batch);
            }
        }
    }

    /// Magazines with objects: exact at rest.
    pub(crate) fn magazines(&self) -> usize {
        self.lists.iter().map(|list| list.full.len(self.bound)).sum()
    }
}

impl List {
    fn new() -> Self {
        Self { full: Stack::new(), empty: Stack::new(), made: AtomicUsize::new(0) }
    }

    fn take(&self, batch: &mut Batch) -> bool {
        let Some(magazine) = self.full.pop() else { return false };
        // SAFETY: rule 1: we popped it.
        unsafe { magazine.as_ref() }.objects.with(|objects| {
            // SAFETY: as above.
            batch.fill(unsafe { (*objects).raw() });
        });
        self.empty.push(magazine);
        true
    }

    fn make(&self, bound: usize) -> Option<NonNull<Magazine>> {
        // Relaxed: a count, which publishes nothing.
        if self.made.load(Ordering::Relaxed) >= bound {
            return None;
        }
        if self.made.fetch_add(1, Ordering::Relaxed) >= bound {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let magazine =
            Magazine { next: AtomicPtr::new(std::ptr::null_mut()), objects: UnsafeCell::new(Batch::new()) };
        Some(NonNull::from(Box::leak(Box::new(magazine))))
    }
}

/// The address of the first magazine in the lower half, the counter in the upper.
struct Stack(AtomicU128);

#[derive(Clone, Copy)]
struct Top(u128);

impl Top {
    fn first(self) -> Option<NonNull<Magazine>> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.0 as usize))
    }

    /// What follows on `self` with `first` as first: rule 3.
    fn then(self, first: *mut Magazine) -> u128 {
        let counter = ((self.0 >> 64) as u64).wrapping_add(1);
        u128::from(counter) << 64 | first.expose_provenance() as u128
    }
}

impl Stack {
    fn new() -> Self {
        Self(AtomicU128::new(0))
    }

    /// Rule 1: the magazine is the caller's until here.
    fn push(&self, magazine: NonNull<Magazine>) {
        let mut backoff = Backoff::new();
        let mut top = Top(self.0.load(Ordering::Relaxed));
        loop {
            let next = top.first().map_or(std::ptr::null_mut(), NonNull::as_ptr);
            // SAFETY: rule 2: it is a magazine for ever.
            unsafe { magazine.as_ref() }.next.store(next, Ordering::Relaxed);
            // Release: rule 4: pairs with the acquire in `pop`; publishes the contents and `next`.
            match self.0.compare_exchange(
                top.0,
                top.then(magazine.as_ptr()),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = Top(now),
            }
            backoff.wait();
        }
    }

    fn pop(&self) -> Option<NonNull<Magazine>> {
        let mut backoff = Backoff::new();
        // Acquire: rule 4: pairs with the release in `push`.
        let mut top = Top(self.0.load(Ordering::Acquire));
        loop {
            let first = top.first()?;
            // SAFETY: rule 2: it is a magazine, even if it has left the stack meanwhile.
            let next = unsafe { first.as_ref() }.next.load(Ordering::Relaxed);
            match self.0.compare_exchange(top.0, top.then(next), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(first),
                Err(now) => top = Top(now),
            }
            backoff.wait();
        }
    }

    /// Length, at most `bound`. Exact at rest: the walk follows magazines that may just be moving.
    fn len(&self, bound: usize) -> usize {
        let mut next = Top(self.0.load(Ordering::Acquire)).first();
        let mut len = 0;
        while let Some(magazine) = next.filter(|_| len < bound) {
            len += 1;
            // SAFETY: rule 2.
            next = NonNull::new(unsafe { magazine.as_ref() }.next.load(Ordering::Acquire));
        }
        len
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        while let Some(magazine) = self.pop() {
            // SAFETY: nobody else uses the pool any more; it was leaked in `make`.
            drop(unsafe { Box::from_raw(magazine.as_ptr()) });
        }
    }
}
