//! Lane memory: a run of zeroed memory for each lane, in which everything per lane has the same place.
//!
//! The shape is that of the per-CPU areas of kernels (FreeBSD's `pcpu(9)` and the zones behind `counter(9)`):
//! an object has one offset, and a lane's own part of it is at the lane's base plus that offset. So reaching
//! it takes one thread-local load and one addition: no table, no bound.
//!
//! # Protocol
//! 1. A lane's arena is reserved when a thread first takes the lane's number, and is kept for ever: the next
//!    thread with the number goes on with what is in it. A number whose arena could not be reserved never
//!    gets one.
//! 2. A place is a run of offsets that belongs to one object from [`ArenaOffset::assign`] to
//!    [`ArenaOffset::release`]. All bytes of a place that belongs to nobody are zero, in every arena. So an
//!    arena that appears needs no work.
//! 3. [`ArenaOffset::release`] needs exclusive access to the object, so no lane uses the place any more and
//!    the releasing thread may zero it everywhere.
//! 4. The offset is stored with release, after the lock of rule 2's list was held, and loaded with acquire:
//!    whoever uses a place sees the zeroes that its last owner left.
//!
//! The rules are kept in `places`, whose source the model checker runs on arenas of two words
//! (`tests/loom_arena.rs`).
//!
//! # Cost
//! [`ArenaOffset::own`]: a thread-local load, an addition, a test. Memory: pages that were written to.
//! Address space:
//! [`BYTES`] a lane. What finds no room here is kept beside (see [`LaneSlots`](crate::LaneSlots)), as
//! everything is on machines without `mmap`, in models and in simulations.

mod places;

use crate::lane::{LaneId, MAX_LANES};
use crate::model::const_fn;
use places::Arenas;
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

pub(crate) use places::is_there;

/// What `places` stands on. The model gives it the model checker's.
mod machine {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize};
}

/// Bytes of an arena: room for 2 million counters. Address space only; with all 4,096 lanes 64 GiB of it.
pub(crate) const BYTES: usize = 16 << 20;

/// In place of a base. With this one no address that a program can have is in the arena: only the last of all
/// are.
const NO_ARENA: usize = usize::MAX - BYTES + 2;

thread_local! {
    /// Where the arena of this thread's lane begins.
    static BASE: Cell<*mut u8> = const { Cell::new(std::ptr::without_provenance_mut(NO_ARENA)) };
}

static ARENAS: Arenas<MAX_LANES> =
    Arenas::new([const { machine::AtomicPtr::new(std::ptr::null_mut()) }; MAX_LANES], BYTES);

/// Gives the arena of `lane` to the calling thread, which has just taken the number.
pub(crate) fn enter(lane: LaneId) {
    BASE.set(ARENAS.enter(lane.index(), reserve));
}

/// The calling thread gives its number back.
pub(crate) fn leave() {
    BASE.set(std::ptr::without_provenance_mut(NO_ARENA));
}

/// Lanes that may have an arena are below.
pub(crate) fn lanes() -> usize {
    ARENAS.lanes()
}

/// Whether `address` is in the arena of the calling thread's lane.
#[inline(always)]
pub(crate) fn is_own(address: *const u8) -> bool {
    address.addr().wrapping_sub(BASE.get().addr()) < BYTES
}

/// Where something is in every arena of the process.
#[derive(Debug)]
pub(crate) struct ArenaOffset(places::ArenaOffset);

impl ArenaOffset {
    /// Nowhere yet.
    pub(crate) const fn new() -> Self {
        Self(places::ArenaOffset::new())
    }

    /// The place in the calling lane's arena. Only if [`is_there`] says so: not if the thread has none, or
    /// the place is not assigned. (Two functions, since an `Option` would be tested for null a second
    /// time.)
    #[inline(always)]
    pub(crate) fn own(&self) -> *mut u8 {
        self.0.at(BASE.get())
    }

    /// The place in the arena of the lane with the number `lane`, if both are there.
    pub(crate) fn of(&self, lane: usize) -> Option<NonNull<u8>> {
        ARENAS.place_of(&self.0, lane)
    }

    /// Finds room for something of `layout`, if nobody did yet. There may be none: then nobody asks again.
    pub(crate) fn assign(&self, layout: Layout) {
        ARENAS.assign(&self.0, layout);
    }

    /// Gives the room back. `layout` is that of [`assign`](Self::assign).
    pub(crate) fn release(&mut self, layout: Layout) {
        ARENAS.release(&mut self.0, layout);
    }
}

/// Address space for an arena. Pages come, as zeroes, when they are first written to.
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
    // Small pages: the arenas are dense, and 2 MiB for a lane that counts a little would be a waste. Advice
    // may fail.
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

// What pools keep hangs on the arenas, and LeakSanitizer looks for pointers in what was allocated, not in
// what was mapped. `scripts/fuzz` sets the name where it is linked.
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
    /// As if there had been no room.
    pub(crate) const fn refused() -> Self {
        Self(places::ArenaOffset::refused())
    }
}

#[cfg(test)]
mod tests {
    use super::places::Free;
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("valid")
    }

    #[test]
    fn places_are_aligned_apart_and_used_again_by_their_shape() {
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
