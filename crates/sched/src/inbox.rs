//! The inbox of a lane: what other lanes write, and all that they write.
//!
//! A Treiber stack (R. K. Treiber, *Systems Programming: Coping with Parallelism*, 1986) that is emptied as a
//! whole, so that nodes cannot be confused with their successors at the same address. What is new is that the
//! state of the lane (sleeping, closed) is in the head itself.
//!
//! # Protocol
//! | head | meaning |
//! |---|---|
//! | null | empty, the lane is awake |
//! | [`SLEEPING`] | empty, and the lane sleeps or is about to: whoever pushes next must wake it |
//! | a node | the newest of a chain that ends in null |
//! | either, with the bit [`CLOSED`] | the lane has no owner: wake-ups are stacked, tasks are refused |
//!
//! 1. A node is in one inbox at a time. Whoever pushes owns it until the compare-and-swap, the lane from its
//!    swap on.
//! 2. Only the lane writes `SLEEPING`, and only in place of null: nothing is lost between its last look and
//!    its sleep.
//! 3. The push that replaces `SLEEPING` learns so from its own compare-and-swap and wakes the lane. There is
//!    exactly one such push for each sleep; no other push needs to. No fence and no second look are needed.
//!
//! 4. Each try of a push begins from the head that the last one found: whether the lane sleeps, or has ended,
//!    is never what it was before (R-F11: in this design who owns something is told by its lane's inbox, not
//!    by a mask of running threads).
//!
//! # Progress
//! A push repeats only when another push, or the lane, went first. The lane waits for nobody.
//!
//! # Cost
//! Push: one compare-and-swap on the head's line, more only when lanes collide. Empty check: a load. Drain:
//! one swap for all that has come (R-F7). The first try assumes an empty inbox instead of reading the head
//! first (R-E4).

use crate::own::Own;
use manylane_sync::atomic::{AtomicPtr, Ordering};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Backoff, fetch_to_write};
use std::ptr::{NonNull, null_mut, without_provenance_mut};

/// The lane's own bit: no node is at this address, since nodes are aligned to 8.
const SLEEPING: usize = 2;
const CLOSED: usize = 1;

/// A place in an inbox. It is the first field of what it stands for.
#[repr(C)]
pub(crate) struct Node {
    /// Rule 1.
    next: UnsafeCell<*mut Node>,
    /// The slot that it wakes, or [`Node::TASK`] and a class. Written before the node is ever pushed.
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

/// The head, which all lanes write. Alone on its lines (R-F6).
#[repr(C, align(128))]
pub(crate) struct Inbox {
    head: AtomicPtr<Node>,
}

/// The lane does not take tasks: it has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Whether a push has to be followed by waking the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pushed {
    Awake,
    Asleep,
}

impl Inbox {
    /// Closed and empty.
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(without_provenance_mut(CLOSED)) }
    }

    /// Pushes the wake-up of a slot, whether the lane has an owner or not.
    ///
    /// # Safety
    /// The caller owns `node` (rule 1), and it stays valid until it was drained.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn push_wake(&self, node: NonNull<Node>) -> Pushed {
        // SAFETY: by contract.
        match unsafe { self.push(node, false) } {
            Ok(pushed) => pushed,
            Err(Closed) => Pushed::Awake, // cannot be: wake-ups are never refused
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
        let mut seen = null_mut::<Node>();
        let mut collisions = 0;
        let mut backoff = Backoff::new();
        loop {
            let closed = seen.addr() & CLOSED;
            if only_open && closed != 0 {
                return Err(Closed);
            }
            let asleep = seen.addr() == SLEEPING;
            let below = if asleep { null_mut() } else { seen.map_addr(|address| address & !CLOSED) };
            // SAFETY: by contract, until the exchange below succeeds.
            unsafe { node.as_ref().set_next(below) };
            let new = node.as_ptr().map_addr(|address| address | closed);
            // Release: publishes the node, and all that its pusher did; pairs with the swap in `take`. An
            // earlier push's release reaches the lane too: this exchange continues its release
            // sequence.
            match self.head.compare_exchange(seen, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(if asleep { Pushed::Asleep } else { Pushed::Awake }),
                Err(now) => seen = now,
            }
            collisions += 1;
            if collisions > 1 {
                backoff.wait(); // the first failure only corrects the guess that the inbox is empty
            }
        }
    }

    /// Whether there is nothing to drain, and the lane is awake. Cheap; may miss what is just coming.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// The same for a lane that does nothing but look: what it finds it takes out at once, so the head's line
    /// is asked for as for a write. It then moves once, not twice.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_empty_to_drain(&self) -> bool {
        fetch_to_write(&raw const self.head);
        self.is_empty()
    }

    /// Takes everything out, oldest first. For the lane only. It is awake and open afterwards.
    pub(crate) fn drain(&self) -> Chain {
        self.take(null_mut())
    }

    /// Closes the inbox and takes everything out. For the lane only.
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
            // SAFETY: rule 1: the whole chain is ours since the swap.
            unsafe {
                newest = node.as_ref().next();
                node.as_ref().set_next(oldest);
            }
            oldest = node.as_ptr();
        }
        Chain(oldest)
    }

    /// Rule 2: announces that the lane is going to sleep. `false`: something has come; drain instead.
    pub(crate) fn fall_asleep(&self) -> bool {
        // Relaxed: nothing is published, and an empty inbox has nothing to tell.
        self.head
            .compare_exchange(
                null_mut(),
                without_provenance_mut(SLEEPING),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The lane is back from its sleep: pushes from here on need not wake it.
    pub(crate) fn wake_up(&self) {
        // Relaxed: as in `fall_asleep`. It fails when a push came, which replaced the mark.
        let _ = self.head.compare_exchange(
            without_provenance_mut(SLEEPING),
            null_mut(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

/// What was taken out of an inbox, oldest first.
pub(crate) struct Chain(*mut Node);

impl Iterator for Chain {
    type Item = NonNull<Node>;

    /// The next node. Its link is read before it is given out, so the caller may give it back at once.
    #[inline]
    fn next(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.0)?;
        // SAFETY: rule 1: ours since the swap, until it is given out here.
        self.0 = unsafe { node.as_ref().next() };
        Some(node)
    }
}

const _: () = assert!(align_of::<Node>() > SLEEPING | CLOSED);
