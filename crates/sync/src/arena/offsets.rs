//! The protocol of `arena`: which lanes have an arena, and which object has which place. The parent module
//! provides the memory, the caller's own arena, the atomics and the lock; the model replaces these with its
//! own.

use super::const_fn;
use super::machine::{AtomicPtr, AtomicUsize, Mutex};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Largest alignment of a place: a page.
const MAX_ALIGN: usize = 4096;

/// Bits of an invalid address: at least one is set if the thread has no arena or the object no place.
const INVALID: usize = 7;
/// In place of an offset: no call of `assign` yet.
const UNASSIGNED: usize = 2;
/// In place of an offset: `assign` found no room.
const NO_ROOM: usize = 4;
/// The sum of a base and an offset is a multiple of 8 only if both are valid.
const _: () = assert!(super::NO_ARENA & INVALID == 1);
const _: () = assert!(UNASSIGNED > 0 && UNASSIGNED < INVALID && NO_ROOM > 0 && NO_ROOM < INVALID);

/// True if [`ArenaOffset::at`] returned a place. One test covers base and offset, since valid ones are
/// multiples of 8.
#[inline(always)]
pub(crate) fn is_there(own: *mut u8) -> bool {
    own.addr() & INVALID == 0
}

/// The arenas of `LANES` lanes.
pub(super) struct Arenas<const LANES: usize> {
    /// For each lane: null, its arena, or [`NO_ARENA`](super::NO_ARENA). Written by the thread that has the
    /// number.
    bases: [AtomicPtr<u8>; LANES],
    /// Upper bound of the numbers of lanes that have an arena.
    bound: AtomicUsize,
    free: Mutex<Free>,
}

impl<const LANES: usize> Arenas<LANES> {
    const_fn! {
        /// No arenas yet: `bases` are null. Each arena has `bytes` bytes.
        pub(super) fn new(bases: [AtomicPtr<u8>; LANES], bytes: usize) -> Self {
            Self { bases, bound: AtomicUsize::new(0), free: Mutex::new(Free::new(bytes)) }
        }
    }

    /// Returns the base of the arena of `lane`, or [`NO_ARENA`](super::NO_ARENA). The calling thread has just
    /// taken the number; the first thread with the number reserves the arena.
    pub(super) fn enter(&self, lane: usize, reserve: impl FnOnce() -> Option<NonNull<u8>>) -> *mut u8 {
        let arena = &self.bases[lane];
        // Relaxed: only threads with this number write the base, one after the other, and the handover of the
        // number orders them.
        let mut base = arena.load(Ordering::Relaxed);
        if base.is_null() {
            base = reserve().map_or(std::ptr::without_provenance_mut(super::NO_ARENA), NonNull::as_ptr);
            arena.store(base, Ordering::Release);
            // Release: pairs with the acquire in `lanes`: a thread that sees the number sees the arena.
            self.bound.fetch_max(lane + 1, Ordering::Release);
        }
        base
    }

    /// Upper bound of the numbers of lanes that have an arena.
    pub(super) fn lanes(&self) -> usize {
        self.bound.load(Ordering::Acquire)
    }

    /// Base of the arena of lane number `lane`, if that lane has one.
    fn base_of(&self, lane: usize) -> Option<NonNull<u8>> {
        // Acquire: pairs with the release in `enter`.
        NonNull::new(self.bases.get(lane)?.load(Ordering::Acquire))
            .filter(|base| base.addr().get() != super::NO_ARENA)
    }

    /// See [`ArenaOffset::of`](super::ArenaOffset::of).
    pub(super) fn address_of(&self, arena_offset: &ArenaOffset, lane: usize) -> Option<NonNull<u8>> {
        // Acquire: rule 4.
        let offset = arena_offset.0.load(Ordering::Acquire);
        if offset & INVALID != 0 {
            return None;
        }
        // SAFETY: offsets are within the arena.
        self.base_of(lane).map(|base| unsafe { base.add(offset) })
    }

    /// See [`ArenaOffset::assign`](super::ArenaOffset::assign).
    pub(super) fn assign(&self, offset: &ArenaOffset, layout: Layout) {
        if offset.0.load(Ordering::Relaxed) != UNASSIGNED {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if offset.0.load(Ordering::Relaxed) == UNASSIGNED {
            // Release: rule 4.
            offset.0.store(free.take(layout).unwrap_or(NO_ROOM), Ordering::Release);
        }
    }

    /// See [`ArenaOffset::release`](super::ArenaOffset::release).
    pub(super) fn release(&self, arena_offset: &mut ArenaOffset, layout: Layout) {
        // Relaxed: no other thread has the place (rule 3).
        let offset = arena_offset.0.load(Ordering::Relaxed);
        arena_offset.0.store(UNASSIGNED, Ordering::Relaxed);
        if offset & INVALID != 0 {
            return;
        }
        for base in (0..self.lanes()).filter_map(|lane| self.base_of(lane)) {
            for at in (0..layout.size()).step_by(size_of::<AtomicUsize>()) {
                // SAFETY: rule 3: no other thread uses the place, which is within the arena and consists of
                // whole words.
                let word = unsafe { &*base.add(offset + at).cast::<AtomicUsize>().as_ptr() };
                // Writes only where needed: the kernel has not allocated pages that were only read.
                if word.load(Ordering::Relaxed) != 0 {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).give(offset, layout);
    }
}

/// An offset that is the same in every arena.
#[derive(Debug)]
pub(super) struct ArenaOffset(AtomicUsize);

impl ArenaOffset {
    const_fn! {
        /// No place yet.
        pub(super) fn new() -> Self { Self(AtomicUsize::new(UNASSIGNED)) }
    }

    /// Address of the place in the arena at `base`, the caller's own. Valid only if [`is_there`] returns
    /// true.
    #[inline(always)]
    pub(super) fn at(&self, base: *mut u8) -> *mut u8 {
        // Acquire: rule 4.
        base.wrapping_byte_add(self.0.load(Ordering::Acquire))
    }

    /// An offset for which there was no room.
    #[cfg(all(test, not(loom)))]
    pub(super) const fn refused() -> Self {
        Self(AtomicUsize::new(NO_ROOM))
    }
}

/// Free list: the offsets that have no owner.
pub(super) struct Free {
    /// Start of the part that was never assigned; it ends at `end`.
    from: usize,
    end: usize,
    /// Returned places by size and alignment: the shapes in heavy use are few.
    given_back: BTreeMap<(usize, usize), Vec<usize>>,
}

impl Free {
    pub(super) const fn new(end: usize) -> Self {
        Self { from: 0, end, given_back: BTreeMap::new() }
    }

    /// Size and alignment of the place for `layout`: whole words.
    fn shape(layout: Layout) -> (usize, usize) {
        let align = layout.align().max(8);
        (layout.size().next_multiple_of(align), align)
    }

    pub(super) fn take(&mut self, layout: Layout) -> Option<usize> {
        let (size, align) = Self::shape(layout);
        if size == 0 || align > MAX_ALIGN {
            return None;
        }
        if let Some(offset) = self.given_back.get_mut(&(size, align)).and_then(Vec::pop) {
            return Some(offset);
        }
        let offset = self.from.next_multiple_of(align);
        let end = offset.checked_add(size).filter(|end| *end <= self.end)?;
        self.from = end;
        Some(offset)
    }

    pub(super) fn give(&mut self, offset: usize, layout: Layout) {
        self.given_back.entry(Self::shape(layout)).or_default().push(offset);
    }
}
