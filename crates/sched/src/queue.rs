//! Run queues: four first-in first-out queues, linked through the slots, and a heap for tasks with a nice
//! value.
//!
//! # Position by tick and nice (R-F1)
//! The tick of a lane is the number of tasks that ever joined its normal queue. A task there need not
//! remember its own, since the number of tasks that left is that of the task at the head. A task with the
//! nice value n joins the heap with the key tick + n, and runs when the head of the queue has reached that
//! number: it overtakes -n tasks, or lets n later ones pass. No task starves, since the ticks go on.

use crate::own::Own;
use crate::slot::Entry;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ptr;

/// One queue. `pushed` and `popped` wrap; their difference is the length.
///
/// While `head` is null the queue is empty, and `tail` is stale.
#[repr(C, align(32))]
pub(crate) struct Fifo {
    head: Own<*const Entry>,
    tail: Own<*const Entry>,
    pushed: Own<u32>,
    popped: Own<u32>,
}

impl Fifo {
    pub(crate) fn new() -> Self {
        Self {
            head: Own::new(ptr::null()),
            tail: Own::new(ptr::null()),
            pushed: Own::new(0),
            popped: Own::new(0),
        }
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn len(&self) -> u32 {
        self.pushed.get().wrapping_sub(self.popped.get())
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    /// Returns the number of the next task to join.
    #[inline(always)]
    pub(crate) fn tick(&self) -> u32 {
        self.pushed.get()
    }

    /// Appends `entry`, which is in no queue.
    ///
    /// # Safety
    /// The entry lives as long as the queue.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn push(&self, entry: &Entry) {
        entry.next.set(ptr::null());
        if self.is_empty() {
            self.head.set(entry);
        } else {
            // SAFETY: the queue is not empty, so this is its last entry, which lives by contract.
            unsafe { &*self.tail.get() }.next.set(entry);
        }
        self.tail.set(entry);
        self.pushed.set(self.pushed.get().wrapping_add(1));
    }

    /// Removes the oldest entry.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn pop(&self) -> Option<&Entry> {
        // SAFETY: null, or in the queue, whose entries live as long as the queue by the contract of `push`.
        let entry = unsafe { self.head.get().as_ref() }?;
        self.head.set(entry.next.get());
        self.popped.set(self.popped.get().wrapping_add(1));
        Some(entry)
    }
}

/// The tasks of class normal whose nice value is not 0.
pub(crate) struct NicedQueue {
    heap: BinaryHeap<NicedTask>,
    joined: u32,
}

/// A key of the heap. Numbers wrap and are compared by their distance: all keys in the heap are within 2^28 +
/// 2048 of each other.
#[derive(PartialEq, Eq)]
struct NicedTask {
    key: u32,
    joined: u32,
    slot: u32,
}

fn before(left: u32, right: u32) -> Ordering {
    (left.wrapping_sub(right).cast_signed()).cmp(&0)
}

impl Ord for NicedTask {
    /// Orders the first to run as the largest: the lowest key, and among equal keys the one that joined
    /// first.
    fn cmp(&self, other: &Self) -> Ordering {
        before(other.key, self.key).then_with(|| before(other.joined, self.joined))
    }
}

impl PartialOrd for NicedTask {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl NicedQueue {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), joined: 0 }
    }

    pub(crate) fn push(&mut self, tick: u32, nice: i16, slot: u32) {
        self.heap.push(NicedTask { key: tick.wrapping_add_signed(nice.into()), joined: self.joined, slot });
        self.joined = self.joined.wrapping_add(1);
    }

    /// Removes the first task if it goes before the head of the queue, or if the queue is empty.
    pub(crate) fn pop(&mut self, queue: &Fifo) -> Option<u32> {
        let first = self.heap.peek()?;
        let due = queue.is_empty() || before(first.key, queue.popped.get()) != Ordering::Greater;
        due.then(|| self.heap.pop().map(|task| task.slot))?
    }

    pub(crate) fn len(&self) -> u32 {
        self.heap.len() as u32
    }
}
