//! Which lanes have an arena, and what is where in all of them: the protocol of `arena`. Where memory comes
//! from, and whose arena is the caller's, is the business of the module above; so are atomics and lock, in
//! whose place the model puts its own.

use super::const_fn;
use super::machine::{AtomicPtr, AtomicUsize, Mutex};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Largest alignment of a place: a page.
const MAX_ALIGN: usize = 4096;

/// What an address has at least one of, if the thread has no arena or the object no place.
const INVALID: usize = 7;
/// In place of an offset: not asked for yet.
const UNASSIGNED: usize = 2;
/// In place of an offset: there was no room.
const NO_ROOM: usize = 4;
/// No sum of these, nor of one of these and a multiple of 8, is a multiple of 8.
const _: () = assert!(super::NO_ARENA & INVALID == 1);
const _: () = assert!(UNASSIGNED > 0 && UNASSIGNED < INVALID && NO_ROOM > 0 && NO_ROOM < INVALID);

/// Whether [`ArenaOffset::at`] gave a place: one test for base and offset, since valid ones are multiples of
/// 8.
#[inline(always)]
pub(crate) fn is_there(own: *mut u8) -> bool {
    own.addr() & INVALID == 0
}

/// The arenas of `LANES` lanes.
pub(super) struct Arenas<const LANES: usize> {
    /// By lane: null, or the arena, or [`NO_ARENA`](super::NO_ARENA). Written by the thread that has the
    /// number.
    bases: [AtomicPtr<u8>; LANES],
    /// Lanes that may have an arena are below.
    seen: AtomicUsize,
    free: Mutex<Free>,
}

impl<const LANES: usize> Arenas<LANES> {
    const_fn! {
        /// None yet: `bases` are null. Each has room for `bytes`.
        pub(super) fn new(bases: [AtomicPtr<u8>; LANES], bytes: usize) -> Self {
            Self { bases, seen: AtomicUsize::new(0), free: Mutex::new(Free::new(bytes)) }
        }
    }

    /// Where the arena of `lane` begins, or [`NO_ARENA`](super::NO_ARENA). The calling thread has just taken
    /// the number; the first with it makes the arena.
    pub(super) fn enter(&self, lane: usize, reserve: impl FnOnce() -> Option<NonNull<u8>>) -> *mut u8 {
        let arena = &self.bases[lane];
        // Relaxed: only threads with this number write it, one after the other, ordered by the handover of
        // the number.
        let mut base = arena.load(Ordering::Relaxed);
        if base.is_null() {
            base = reserve().map_or(std::ptr::without_provenance_mut(super::NO_ARENA), NonNull::as_ptr);
            arena.store(base, Ordering::Release);
            // Release: pairs with the acquire in `lanes`, so that whoever sees the number sees the arena.
            self.seen.fetch_max(lane + 1, Ordering::Release);
        }
        base
    }

    /// Lanes that may have an arena are below.
    pub(super) fn lanes(&self) -> usize {
        self.seen.load(Ordering::Acquire)
    }

    /// Where the arena of the lane with the number `lane` begins, if it has one.
    fn base_of(&self, lane: usize) -> Option<NonNull<u8>> {
        // Acquire: pairs with the release in `enter`.
        NonNull::new(self.bases.get(lane)?.load(Ordering::Acquire))
            .filter(|base| base.addr().get() != super::NO_ARENA)
    }

    /// See [`ArenaOffset::of`](super::ArenaOffset::of).
    pub(super) fn place_of(&self, place: &ArenaOffset, lane: usize) -> Option<NonNull<u8>> {
        // Acquire: rule 4.
        let offset = place.0.load(Ordering::Acquire);
        if offset & INVALID != 0 {
            return None;
        }
        // SAFETY: offsets are within the arena.
        self.base_of(lane).map(|base| unsafe { base.add(offset) })
    }

    /// See [`ArenaOffset::assign`](super::ArenaOffset::assign).
    pub(super) fn assign(&self, place: &ArenaOffset, layout: Layout) {
        if place.0.load(Ordering::Relaxed) != UNASSIGNED {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if place.0.load(Ordering::Relaxed) == UNASSIGNED {
            // Release: rule 4.
            place.0.store(free.take(layout).unwrap_or(NO_ROOM), Ordering::Release);
        }
    }

    /// See [`ArenaOffset::release`](super::ArenaOffset::release).
    pub(super) fn release(&self, place: &mut ArenaOffset, layout: Layout) {
        // Relaxed: nobody else has the place (rule 3).
        let offset = place.0.load(Ordering::Relaxed);
        place.0.store(UNASSIGNED, Ordering::Relaxed);
        if offset & INVALID != 0 {
            return;
        }
        for base in (0..self.lanes()).filter_map(|lane| self.base_of(lane)) {
            for at in (0..layout.size()).step_by(size_of::<AtomicUsize>()) {
                // SAFETY: rule 3: nobody else uses the place, which is within the arena and made of whole
                // words.
                let word = unsafe { &*base.add(offset + at).cast::<AtomicUsize>().as_ptr() };
                // A page that was only ever read is not there yet, and need not be.
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
        /// Nowhere yet.
        pub(super) fn new() -> Self { Self(AtomicUsize::new(UNASSIGNED)) }
    }

    /// The place in the arena that begins at `base`, the caller's own. Only if [`is_there`] says so.
    #[inline(always)]
    pub(super) fn at(&self, base: *mut u8) -> *mut u8 {
        // Acquire: rule 4.
        base.wrapping_byte_add(self.0.load(Ordering::Acquire))
    }

    /// As if there had been no room.
    #[cfg(all(test, not(loom)))]
    pub(super) const fn refused() -> Self {
        Self(AtomicUsize::new(NO_ROOM))
    }
}

/// Which offsets belong to nobody.
pub(super) struct Free {
    /// From here on all.
    from: usize,
    end: usize,
    /// Given back, by size and alignment: what is used a lot has few shapes.
    given_back: BTreeMap<(usize, usize), Vec<usize>>,
}

impl Free {
    pub(super) const fn new(end: usize) -> Self {
        Self { from: 0, end, given_back: BTreeMap::new() }
    }

    /// Size and alignment as they are handed out: whole words.
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
