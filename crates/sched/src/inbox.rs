//! The inbox of a lane: the only memory through which other lanes send it wake-ups and tasks.
//!
//! A Treiber stack (R. K. Treiber, *Systems Programming: Coping with Parallelism*, 1986) that the lane
//! empties as a whole, so that a node cannot be confused with its successor at the same address. In addition
//! the head contains the state of the lane (sleeping, closed).
//!
//! # Protocol
//! | head | meaning |
//! |---|---|
//! | null | empty, the lane is awake |
//! | [`SLEEPING`] | empty, and the lane sleeps or is about to: the next pusher must wake it |
//! | a node | the newest of a chain that ends in null |
//! | null or a node, with the bit [`CLOSED`] | no owner: wake-ups are stacked, tasks are refused |
//!
//! 1. A node is in one inbox at a time. The pusher owns it until the compare-and-swap, the lane from its swap
//!    on.
//! 2. Only the lane writes `SLEEPING`, and only in place of null: nothing is lost between its last check and
//!    its sleep.
//! 3. The push that replaces `SLEEPING` learns that from its own compare-and-swap, and wakes the lane. There
//!    is exactly one such push for each sleep, and no other push needs to wake the lane. Neither a fence nor
//!    a second check is needed.
//! 4. Each try of a push starts from the head that the last try found: it never relies on an earlier state of
//!    the lane (R-F11: in this design the inbox of a slot's lane shows the owner, not a mask of running
//!    threads).
//!
//! # Progress
//! A push repeats only if another push, or the lane, came first. The lane waits for no other thread.
//!
//! # Cost
//! Push: one compare-and-swap on the head's line, more only if lanes collide. Empty check: a load. Drain: one
//! swap for all nodes (R-F7). The first try assumes an empty inbox instead of reading the head first (R-E4).

use crate::own::Own;
use manylane_sync::atomic::{AtomicPtr, Ordering};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Backoff, fetch_to_write};
use std::ptr::{NonNull, null_mut, without_provenance_mut};

/// Mark of a sleeping lane: no node has this address, since nodes are aligned to 8.
const SLEEPING: usize = 2;
const CLOSED: usize = 1;

/// The link of an element in an inbox; the first field of a slot's remote part or of a new task.
#[repr(C)]
pub(crate) struct Node {
    /// Rule 1.
    next: UnsafeCell<*mut Node>,
    /// The slot to wake, or [`Node::TASK`] and a class. Written before the first push.
    pub(crate) slot: Own<u32>,
}

impl Node {
    /// Not a slot: the node is the beginning of a new task's memory. The lowest two bits are the task's
    /// class.
    pub(crate) const TASK: u32 = u32::MAX << 2;

    pub(crate) fn new(slot: u32) -> Self {
        Self { next: UnsafeCell::new(null_mut()), slot: Own::new(slot) }
    }

    /// # Safety
    /// The caller owns the node (rule 1).
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn next(&self) -> *mut Node {
        // SAFETY: by contract.
        self.next.with(|next| unsafe { *next })
    }

    /// # Safety
    /// The caller owns the node (rule 1).
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn set_next(&self, to: *mut Node) {
        // SAFETY: by contract.
        self.next.with_mut(|next| unsafe { *next = to });
    }
}

/// The head, which all lanes write. It has its lines for itself (R-F6).
#[repr(C, align(128))]
pub(crate) struct Inbox {
    head: AtomicPtr<Node>,
}

/// Error: the lane has no owner, so it refuses tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// State of the lane at a push: the pusher must wake a lane that was asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pushed {
    Awake,
    Asleep,
}

impl Inbox {
    /// Creates a closed, empty inbox.
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(without_provenance_mut(CLOSED)) }
    }

    /// Pushes the wake-up of a slot, even if the lane has no owner.
    ///
    /// # Safety
    /// The caller owns `node` (rule 1), which stays valid until it is drained.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn push_wake(&self, node: NonNull<Node>) -> Pushed {
        // SAFETY: by contract.
        match unsafe { self.push(node, false) } {
            Ok(pushed) => pushed,
            Err(Closed) => Pushed::Awake, // unreachable: wake-ups are never refused
        }
    }

    /// Pushes a new task, unless the lane has no owner.
    ///
    /// # Safety
    /// As [`push_wake`](Self::push_wake).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn push_task(&self, node: NonNull<Node>) -> Result<Pushed, Closed> {
        // SAFETY: by contract.
        unsafe { self.push(node, true) }
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn push(&self, node: NonNull<Node>, only_open: bool) -> Result<Pushed, Closed> {
        let mut head = null_mut::<Node>();
        let mut collisions = 0;
        let mut backoff = Backoff::new();
        loop {
            let closed = head.addr() & CLOSED;
            if only_open && closed != 0 {
                return Err(Closed);
            }
            let asleep = head.addr() == SLEEPING;
            let below = if asleep { null_mut() } else { head.map_addr(|address| address & !CLOSED) };
            // SAFETY: by contract, until the exchange below succeeds.
            unsafe { node.as_ref().set_next(below) };
            let new = node.as_ptr().map_addr(|address| address | closed);
            // Release: publishes the node and the pusher's writes; pairs with the swap in `take`. An earlier
            // push's release reaches the lane, too: this exchange continues its release sequence.
            match self.head.compare_exchange(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(if asleep { Pushed::Asleep } else { Pushed::Awake }),
                Err(now) => head = now,
            }
            collisions += 1;
            if collisions > 1 {
                backoff.wait(); // the first failure only corrects the guess that the inbox is empty
            }
        }
    }

    /// True if the inbox is empty and the lane awake. Cheap; may miss a push in progress.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// As [`is_empty`](Self::is_empty), for a lane that polls busily: it drains at once, so it fetches the
    /// head's line for writing. The line then moves once instead of twice.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_empty_to_drain(&self) -> bool {
        fetch_to_write(&raw const self.head);
        self.is_empty()
    }

    /// Removes all nodes, oldest first. For the lane only, which is awake and open afterwards.
    pub(crate) fn drain(&self) -> Chain {
        self.take(null_mut())
    }

    /// Closes the inbox and removes all nodes. For the lane only.
    pub(crate) fn close(&self) -> Chain {
        self.take(without_provenance_mut(CLOSED))
    }

    fn take(&self, leave: *mut Node) -> Chain {
        // Acquire: pairs with the release in `push`.
        let taken = self.head.swap(leave, Ordering::Acquire).map_addr(|address| address & !CLOSED);
        let mut newest = if taken.addr() == SLEEPING { null_mut() } else { taken };
        let mut oldest = null_mut();
        while let Some(node) = NonNull::new(newest) {
            fetch_to_write(node.as_ptr());
            // SAFETY: rule 1: since the swap the lane owns the whole chain.
            unsafe {
                newest = node.as_ref().next();
                node.as_ref().set_next(oldest);
            }
            oldest = node.as_ptr();
        }
        Chain(oldest)
    }

    /// Announces that the lane goes to sleep (rule 2). `false`: something has come; the lane must drain
    /// instead.
    pub(crate) fn fall_asleep(&self) -> bool {
        // Relaxed: it publishes nothing, and an empty inbox has nothing to acquire.
        self.head
            .compare_exchange(
                null_mut(),
                without_provenance_mut(SLEEPING),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Ends the sleep: from here on pushes need not wake the lane.
    pub(crate) fn wake_up(&self) {
        // Relaxed: as in `fall_asleep`. Fails if a push has replaced the mark.
        let _ = self.head.compare_exchange(
            without_provenance_mut(SLEEPING),
            null_mut(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

/// The nodes taken out of an inbox, oldest first.
pub(crate) struct Chain(*mut Node);

impl Iterator for Chain {
    type Item = NonNull<Node>;

    /// Returns the next node. Reads its link first, so the caller may return the node at once.
    #[inline]
    fn next(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.0)?;
        // SAFETY: rule 1: since the swap the lane owns it, until this call returns it.
        self.0 = unsafe { node.as_ref().next() };
        Some(node)
    }
}

const _: () = assert!(align_of::<Node>() > SLEEPING | CLOSED);
