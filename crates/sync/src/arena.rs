//! Lane memory: each lane has an arena, a run of zeroed memory, in which per-lane objects have the same
//! offset.
//!
//! The design is that of the per-CPU areas of kernels (FreeBSD's `pcpu(9)` and the zones behind
//! `counter(9)`): an object has one offset, and the part of a lane is at the lane's base plus that offset.
//! Reaching that part takes one thread-local load and one addition, without a table or a bounds check.
//!
//! # Protocol
//! 1. The first thread that takes a lane's number reserves the lane's arena. The arena stays for ever: the
//!    next thread with the number finds its contents unchanged. If the reservation fails, the number never
//!    gets an arena.
//! 2. A place is a run of offsets. It belongs to one object from [`ArenaOffset::assign`] to
//!    [`ArenaOffset::release`]. All bytes of a place without an owner are zero in every arena, so a new arena
//!    needs no initialisation.
//! 3. [`ArenaOffset::release`] needs exclusive access to the object. No lane then uses the place any more,
//!    and the releasing thread may zero it in every arena.
//! 4. [`ArenaOffset::assign`] stores the offset with release, under the lock of the list of free places, and
//!    users load it with acquire. So the user of a place sees the zeroes that its last owner left.
//!
//! The module `offsets` implements these rules; the model checker runs its source on arenas of two words
//! (`tests/loom_arena.rs`).
//!
//! # Cost
//! [`ArenaOffset::own`]: a thread-local load, an addition, a test. Memory: the pages that were written to.
//! Address space: [`BYTES`] for each lane. An object that finds no room here is kept outside of the arenas
//! (see [`LaneSlots`](crate::LaneSlots)); so are all objects on machines without `mmap`, in models and in
//! simulations.

mod offsets;

use crate::lane::{LaneId, MAX_LANES};
use crate::model::const_fn;
use offsets::Arenas;
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

pub(crate) use offsets::is_there;

/// Primitives that `offsets` uses. The model has its own version of this module, with loom's types.
mod machine {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize};
}

/// Bytes of an arena: room for 2 million counters. It is address space only: 64 GiB for all 4,096 lanes.
pub(crate) const BYTES: usize = 16 << 20;

/// Base of a thread without an arena. An arena at this base would cover only the last addresses of the
/// address space, which no program can have.
const NO_ARENA: usize = usize::MAX - BYTES + 2;

thread_local! {
    /// Base of the arena of this thread's lane.
    static BASE: Cell<*mut u8> = const { Cell::new(std::ptr::without_provenance_mut(NO_ARENA)) };
}

static ARENAS: Arenas<MAX_LANES> =
    Arenas::new([const { machine::AtomicPtr::new(std::ptr::null_mut()) }; MAX_LANES], BYTES);

/// Makes the arena of `lane` that of the calling thread, which has just taken the number.
pub(crate) fn enter(lane: LaneId) {
    BASE.set(ARENAS.enter(lane.index(), reserve));
}

/// Takes the arena away from the calling thread, which returns its lane number.
pub(crate) fn leave() {
    BASE.set(std::ptr::without_provenance_mut(NO_ARENA));
}

/// Upper bound of the numbers of lanes that have an arena.
pub(crate) fn lanes() -> usize {
    ARENAS.lanes()
}

/// True if `address` is in the arena of the calling thread's lane.
#[inline(always)]
pub(crate) fn is_own(address: *const u8) -> bool {
    address.addr().wrapping_sub(BASE.get().addr()) < BYTES
}

/// Offset of an object, the same in every arena of the process.
#[derive(Debug)]
pub(crate) struct ArenaOffset(offsets::ArenaOffset);

impl ArenaOffset {
    /// No place yet.
    pub(crate) const fn new() -> Self {
        Self(offsets::ArenaOffset::new())
    }

    /// Address of the place in the calling lane's arena. Valid only if [`is_there`] returns true for it: the
    /// thread may have no arena, or the object no place. (Two functions, since the compiler would test an
    /// `Option` for null a second time.)
    #[inline(always)]
    pub(crate) fn own(&self) -> *mut u8 {
        self.0.at(BASE.get())
    }

    /// Address of the place in the arena of lane number `lane`, if the lane has an arena and the object a
    /// place.
    pub(crate) fn of(&self, lane: usize) -> Option<NonNull<u8>> {
        ARENAS.address_of(&self.0, lane)
    }

    /// Assigns a place for `layout`, unless the object has one. If there is no room, later calls do not
    /// search again.
    pub(crate) fn assign(&self, layout: Layout) {
        ARENAS.assign(&self.0, layout);
    }

    /// Returns the place to the free list. `layout` must be that of [`assign`](Self::assign).
    pub(crate) fn release(&mut self, layout: Layout) {
        ARENAS.release(&mut self.0, layout);
    }
}

/// Reserves address space for an arena. The kernel provides pages, zeroed, at the first write to each.
#[cfg(unix)]
fn reserve() -> Option<NonNull<u8>> {
    // SAFETY: a new mapping touches nothing that exists.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    // Small pages: the arenas are dense, and a lane with a few counters would waste 2 MiB. The kernel may
    // ignore the advice.
    #[cfg(target_os = "linux")]
    // SAFETY: the mapping was just made, and has this length.
    unsafe {
        libc::madvise(base, BYTES, libc::MADV_NOHUGEPAGE);
    }
    #[cfg(manylane_lsan)]
    // SAFETY: the mapping was just made, has this length, and stays.
    unsafe {
        __lsan_register_root_region(base, BYTES);
    }
    NonNull::new(base.cast())
}

// The caches of pools hang on the arenas, and LeakSanitizer looks for pointers in allocated memory, not in
// mapped memory. `scripts/fuzz` sets the `cfg` and links the symbol.
#[cfg(manylane_lsan)]
// SAFETY: this is the declaration of the sanitizer's own interface (`sanitizer/lsan_interface.h`).
unsafe extern "C" {
    fn __lsan_register_root_region(begin: *const libc::c_void, size: usize);
}

#[cfg(not(unix))]
fn reserve() -> Option<NonNull<u8>> {
    None
}

#[cfg(test)]
impl ArenaOffset {
    /// An offset for which there was no room.
    pub(crate) const fn refused() -> Self {
        Self(offsets::ArenaOffset::refused())
    }
}

#[cfg(test)]
mod tests {
    use super::offsets::Free;
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("valid")
    }

    #[test]
    fn offsets_are_aligned_apart_and_used_again_by_their_shape() {
        let mut free = Free::new(256);
        assert_eq!(free.take(layout(8, 8)), Some(0));
        assert_eq!(free.take(layout(64, 64)), Some(64));
        assert_eq!(free.take(layout(3, 1)), Some(128), "whole words");
        assert_eq!(free.take(layout(8, 8)), Some(136));
        free.give(64, layout(64, 64));
        free.give(128, layout(3, 1));
        assert_eq!(free.take(layout(8, 4)), Some(128));
        assert_eq!(free.take(layout(60, 64)), Some(64));
    }

    #[test]
    fn nothing_belongs_to_a_thread_without_an_arena() {
        std::thread::spawn(|| {
            // Programs that are linked to fixed addresses are at 4 MiB, and have their heap behind that.
            for address in [8, 0x40_0000, 0xff_fff8, usize::MAX / 2] {
                assert!(!is_own(std::ptr::without_provenance(address)), "{address:#x}");
            }
        })
        .join()
        .expect("no assertion failed");
    }

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_the_rest_usable() {
        let mut free = Free::new(256);
        assert_eq!(free.take(layout(257, 8)), None);
        assert_eq!(free.take(layout(8, 8192)), None, "no arena is aligned so");
        assert_eq!(free.take(layout(0, 8)), None, "nothing needs no place");
        assert_eq!(free.take(layout(256, 8)), Some(0));
        assert_eq!(free.take(layout(8, 8)), None);
    }
}
