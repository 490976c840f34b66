//! Global lists of magazines, which take the lanes' surplus before the allocator does (R-D2).
//!
//! Treiber's stack (1986) with a counter beside the pointer against ABA. So the compare-and-swap is a
//! double-width one: `portable-atomic` chooses cmpxchg16b, CASP or LL/SC (R-D5).
//!
//! # Protocol
//! 1. A magazine is on one of the two stacks of its list, `full` or `empty`, or belongs to the lane that
//!    popped or made it.
//! 2. Magazines are never freed or reused for something else while the pool lives. So a thread may read the
//!    `next` of one that another thread popped meanwhile: the word is an atomic, and the thread discards the
//!    value since the counter has moved on.
//! 3. Each push and each pop changes the counter. 2^64 changes within one loop of one lane do not happen.
//! 4. A push releases the magazine's contents, a pop acquires them.
//!
//! # Progress
//! Lock-free: an operation fails only if another one succeeded; it backs off (R-E2).
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
    /// Maximum number of magazines of a list.
    bound: usize,
}

struct List {
    full: Stack,
    empty: Stack,
    /// Number of magazines made for this list.
    made: AtomicUsize,
}

struct Magazine {
    next: AtomicPtr<Magazine>,
    /// Accessed by the lane that popped or made the magazine (rule 1).
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

    /// Stores the objects of `batch` if the list of `lane` has room. Returns true if it did.
    pub(crate) fn put(&self, lane: LaneId, batch: &Batch) -> bool {
        let Some(list) = lane.index().checked_rem(self.lists.len()).map(|index| &self.lists[index]) else {
            return false;
        };
        let Some(magazine) = list.empty.pop().or_else(|| list.make(self.bound)) else { return false };
        // SAFETY: rule 1: this lane popped or made the magazine.
        unsafe { magazine.as_ref() }.objects.with_mut(|objects| {
            // SAFETY: as above.
            unsafe { (*objects).fill(batch.raw()) };
        });
        list.full.push(magazine);
        true
    }

    /// Takes a batch from the list of `lane`, or from another list.
    pub(crate) fn take(&self, lane: LaneId, batch: &mut Batch) -> bool {
        let count = self.lists.len();
        (0..count).any(|step| self.lists[(lane.index() + step) % count].take(batch))
    }

    /// Removes all batches that the lists can hold at one moment, and calls `each` with each of them.
    pub(crate) fn empty(&self, mut each: impl FnMut(&Batch)) {
        let mut batch = Batch::new();
        for list in &self.lists {
            for _ in 0..self.bound {
                // Bounded, since the lanes may go on filling the list.
                if !list.take(&mut batch) {
                    break;
                }
                each(&batch);
            }
        }
    }

    /// Returns the number of magazines with objects: exact while the lanes are at rest.
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
        // SAFETY: rule 1: this lane popped it.
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

/// Address of the first magazine in the lower half, the counter in the upper half.
struct Stack(AtomicU128);

#[derive(Clone, Copy)]
struct Top(u128);

impl Top {
    fn first(self) -> Option<NonNull<Magazine>> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.0 as usize))
    }

    /// Value that follows `self` with `first` as the first magazine: rule 3.
    fn then(self, first: *mut Magazine) -> u128 {
        let counter = ((self.0 >> 64) as u64).wrapping_add(1);
        u128::from(counter) << 64 | first.expose_provenance() as u128
    }
}

impl Stack {
    fn new() -> Self {
        Self(AtomicU128::new(0))
    }

    /// Pushes the magazine, which the caller owns until then (rule 1).
    fn push(&self, magazine: NonNull<Magazine>) {
        let mut backoff = Backoff::new();
        let mut top = Top(self.0.load(Ordering::Relaxed));
        loop {
            let next = top.first().map_or(std::ptr::null_mut(), NonNull::as_ptr);
            // SAFETY: rule 2: a magazine stays one for ever.
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

    /// Returns the length, at most `bound`. Exact at rest: the walk follows magazines that may be moving.
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
            // SAFETY: no lane uses the pool any more; `make` leaked the magazine.
            drop(unsafe { Box::from_raw(magazine.as_ptr()) });
        }
    }
}
