//! Slots: numbers for tasks, so that a waker need not keep a task alive.
//!
//! A lane has a table of slots that only grows (rule 3 of the crate's page). The words that the owning lane
//! needs for a wake-up take half a line in one array; the words that other lanes write take a line each in
//! another.

use crate::chunks::{Chunks, Fresh};
use crate::inbox::Node;
use crate::own::Own;
use crate::task::Header;
use crate::waker::TaskId;
use manylane_sync::atomic::AtomicU32;

/// No timer.
pub(crate) const NIL: u32 = u32::MAX;

/// Bits of a generation: a slot must be used 16 million times before a waker that was kept all the time
/// matches a new task. It then causes one needless poll, which a future must tolerate anyway.
pub(crate) const GENERATION_BITS: u32 = 24;
/// Bits of a slot's number.
pub(crate) const SLOT_BITS: u32 = 28;
/// Bits of a lane's number.
pub(crate) const LANE_BITS: u32 = 12;

const _: () = {
    assert!(LANE_BITS + SLOT_BITS + GENERATION_BITS == usize::BITS, "a waker's data is one word");
    assert!(manylane_sync::lane::MAX_LANES <= 1 << LANE_BITS);
    assert!(crate::chunks::CAPACITY <= 1 << SLOT_BITS);
};

/// Bits of an entry's `flags`.
pub(crate) mod bits {
    /// In a run queue, or the heap. Excludes the free list.
    pub(crate) const QUEUED: u32 = 1;
    /// Of class normal, with a nice value other than 0.
    pub(crate) const NICED: u32 = 2;
    /// To be dropped when its poll returns.
    pub(crate) const ABORTED: u32 = 4;
    /// A task lives in the slot.
    pub(crate) const LIVE: u32 = 8;
    /// A task lived in the slot. A waker that was kept for 2^24 generations must not queue the slot, which
    /// may be in the free list.
    pub(crate) const LEFT: u32 = 16;
    /// Position of the two bits of the class: a queue has 32 bytes, so the masked bits are the offset from
    /// the first queue to that of the class.
    pub(crate) const CLASS_SHIFT: u32 = 5;
    /// Mask of the class.
    pub(crate) const CLASS: u32 = 3 << CLASS_SHIFT;
    /// Position of the nice value, which extends to the end of the word.
    pub(crate) const NICE_SHIFT: u32 = 16;

    /// With any of these bits a wake-up takes the slow path.
    pub(crate) const PLAIN: u32 = QUEUED | NICED | LEFT;
    /// The same mask while the lane measures: every wake-up takes the slow path.
    pub(crate) const MEASURED: u32 = PLAIN | LIVE;
}

/// The owning lane's half of a slot. Two fit into a line.
///
/// Pointers link the queues: a number would need a look-up at each step.
#[repr(C, align(32))]
pub(crate) struct Entry {
    /// The task in the slot, or null.
    pub(crate) task: Own<*mut Header>,
    /// The next in the run queue or the free list.
    pub(crate) next: Own<*const Entry>,
    /// Id of the task that lives here, or of the next one.
    pub(crate) id: Own<TaskId>,
    /// See [`bits`].
    pub(crate) flags: Own<u32>,
}

/// The half of a slot that other lanes write: a line, so that lanes that wake different tasks share none.
#[repr(C, align(64))]
pub(crate) struct RemoteSlot {
    /// In the inbox while `pending` is set. First, so that a pointer to it is a pointer to the slot.
    pub(crate) node: Node,
    /// 0, or a generation and [`PENDING`]: the node is in the inbox, or its pusher is about to put it there.
    /// Swaps with acquire and release set and clear it, so the poll that follows sees the writes of all
    /// wakers.
    pub(crate) pending: AtomicU32,
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) by: crate::late::RemoteCaller,
}

/// Lowest bit of `pending`; the generation is above it.
pub(crate) const PENDING: u32 = 1;

// SAFETY: null pointers and zeros are zero bytes. The slot's number is written before the slot is first used.
unsafe impl Fresh for Entry {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self {
            task: Own::new(std::ptr::null_mut()),
            next: Own::new(std::ptr::null()),
            id: Own::new(TaskId::new(0, 0, 0)),
            flags: Own::new(0),
        }
    }
}

// SAFETY: null pointers and zeros are zero bytes. The slot's number is written before the slot is first used.
unsafe impl Fresh for RemoteSlot {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self { node: Node::new(0), pending: AtomicU32::new(0) }
    }
}

/// The table of slots.
pub(crate) struct Slots {
    /// Half of the owning lane.
    pub(crate) entries: Chunks<Entry>,
    /// Half that all lanes write.
    pub(crate) remotes: Chunks<RemoteSlot>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { entries: Chunks::new(), remotes: Chunks::new() }
    }

    /// Creates slot `slot`, the one after those that exist. None: no memory, or no number left.
    pub(crate) fn reach(&self, lane: u32, slot: u32) -> Option<&Entry> {
        if !self.remotes.reach(slot) || !self.entries.reach(slot) {
            return None;
        }
        // SAFETY: just created; no other thread knows the number yet.
        let (remote, entry) = unsafe { (self.remotes.at(slot), self.entries.at(slot)) };
        remote.node.slot.set(slot);
        entry.id.set(TaskId::new(lane, slot, 0));
        Some(entry)
    }
}

const _: () = {
    assert!(cfg!(any(loom, manylane_sim)) || size_of::<Entry>() == 32);
    assert!(cfg!(any(loom, debug_assertions)) || size_of::<RemoteSlot>() == 64);
    assert!(std::mem::offset_of!(RemoteSlot, node) == 0);
};
