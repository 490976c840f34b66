//! Slots: numbers for tasks, so that a waker need not keep a task alive.
//!
//! A lane has a table of slots that only grows (rule 3 of the crate's page). What the owning lane needs for a wake-up is
//! 16 bytes in one array; what other lanes write is in another, a line each.

use crate::chunks::{Chunks, Fresh};
use crate::inbox::Node;
use crate::own::Own;
use crate::task::Header;
use manylane_sync::atomic::AtomicU32;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Bits of a generation: a slot has to be used 16 million times before a waker that was kept all the time would be
/// taken for a new one. It then causes one needless poll, which a future must bear anyway.
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

/// The lower bits of an entry's `word`; the generation is above them.
pub(crate) mod bits {
    /// In a run queue, or the heap. Excludes the free list.
    pub(crate) const QUEUED: u32 = 1;
    /// The class, in the next two bits.
    pub(crate) const CLASS_SHIFT: u32 = 1;
    /// Mask of the class.
    pub(crate) const CLASS: u32 = 3 << CLASS_SHIFT;
    /// Of class normal, and its header has a nice value other than 0.
    pub(crate) const NICED: u32 = 8;
    /// To be dropped when its poll returns.
    pub(crate) const ABORTED: u32 = 16;
    /// Where the generation begins.
    pub(crate) const GENERATION_SHIFT: u32 = 8;
}

/// What the owning lane knows of a slot. Four to a line.
#[repr(C, align(16))]
pub(crate) struct Entry {
    /// Null: nobody lives here.
    pub(crate) task: Own<*mut Header>,
    /// Generation and [`bits`].
    pub(crate) word: Own<u32>,
    /// The next in the run queue or the free list.
    pub(crate) next: Own<u32>,
}

impl Entry {
    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.word.get() >> bits::GENERATION_SHIFT
    }
}

/// What other lanes write of a slot: a line, so that lanes which wake different tasks do not share one.
#[repr(C, align(64))]
pub(crate) struct RemoteSlot {
    /// In the inbox while `pending` is set. First: a pointer to it is one to the slot.
    pub(crate) node: Node,
    /// 0, or a generation and [`PENDING`]: the node is in the inbox, or its pusher is about to put it there. Set and taken
    /// by swaps with acquire and release, so that what any waker did before is seen by the poll that follows.
    pub(crate) pending: AtomicU32,
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) by: crate::late::RemoteCaller,
}

/// Lowest bit of `pending`; the generation is above it.
pub(crate) const PENDING: u32 = 1;

// SAFETY: a null pointer and two zeros are zeros.
unsafe impl Fresh for Entry {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self { task: Own::new(std::ptr::null_mut()), word: Own::new(0), next: Own::new(0) }
    }
}

// SAFETY: null pointers and zeros are zeros. The slot's number is written before the slot is first used.
unsafe impl Fresh for RemoteSlot {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self { node: Node::new(0), pending: AtomicU32::new(0) }
    }
}

/// The table.
pub(crate) struct Slots {
    /// The owning lane's.
    pub(crate) entries: Chunks<Entry>,
    /// Written by all lanes.
    pub(crate) remotes: Chunks<RemoteSlot>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { entries: Chunks::new(), remotes: Chunks::new() }
    }

    /// Makes slot `slot`, the one after those that exist. `false`: no memory, or no number left.
    pub(crate) fn reach(&self, slot: u32) -> bool {
        if !self.remotes.reach(slot) || !self.entries.reach(slot) {
            return false;
        }
        // SAFETY: just made; nobody else knows the number yet.
        unsafe { self.remotes.at(slot) }.node.slot.set(slot);
        true
    }
}

const _: () = {
    assert!(cfg!(any(loom, manylane_sim)) || size_of::<Entry>() == 16);
    assert!(cfg!(any(loom, debug_assertions)) || size_of::<RemoteSlot>() == 64);
    assert!(std::mem::offset_of!(RemoteSlot, node) == 0);
};
