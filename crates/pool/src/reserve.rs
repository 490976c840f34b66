//! Memory that is kept back for allocations that must not fail.
//!
//! Where the process's memory is bounded, the system refuses some one day. A pool tells its caller, whose
//! stream ends. A vector that grows, or a box, cannot: the process would abort, by the act of one client. So
//! a block is kept for them.
//!
//! # Protocol
//! 1. [`keep`] takes pieces from the allocator and links them. They are small, so that they are found again
//!    between what others hold.
//! 2. When the system refuses an allocation that must not fail, [`Reserving`] gives all pieces to the
//!    allocator, marks memory as short and tries again.
//! 3. While memory is short, pools get nothing new ([`Cause::Memory`](crate::Cause::Memory)): what the pieces
//!    brought is for the others.
//! 4. [`restore`] gives the free objects of pools back and takes pieces again. When all are there, memory is
//!    not short any more. Housekeeping calls it.
//! 5. Who works on the list takes it as a whole by a swap, so nobody follows a link of a piece that another
//!    has freed.
//!
//! Without [`keep`] nothing is kept, and [`Reserving`] is the allocator that it wraps.

use manylane_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;

/// Bytes of a piece: what the allocator takes of the system at once.
const PIECE: Layout = match Layout::from_size_align(64 << 10, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// The pieces, each with the address of the next in its first word.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(null_mut());

/// How many pieces there should be; 0 where none are kept.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// The pieces were given away and are not all there again: 1.
static SHORT: AtomicUsize = AtomicUsize::new(0);

struct Piece {
    next: *mut Piece,
}

thread_local! {
    /// The calling thread makes an allocation that may fail.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// An allocator that, refused by the system, falls back on what [`keep`] has kept. For `#[global_allocator]`.
#[derive(Debug)]
pub struct Reserving<A>(pub A);

impl<A: GlobalAlloc> Reserving<A> {
    /// Gives the pieces to the allocator. `false`: the allocation fails.
    #[cold]
    fn release(&self) -> bool {
        if WANTED.load(Ordering::Relaxed) == 0 || MAY_FAIL.get() {
            return false;
        }
        SHORT.store(1, Ordering::Relaxed); // a hint: who misses it takes one object more
        // Acquire: pairs with the release in `put`, behind which the links were written.
        let mut piece = PIECES.swap(null_mut(), Ordering::Acquire);
        while !piece.is_null() {
            // SAFETY: rule 5: the list is ours alone.
            let next = unsafe { (*piece).next };
            // SAFETY: `take_pieces` got it by this layout.
            unsafe { self.0.dealloc(piece.cast(), PIECE) };
            piece = next;
        }
        true // if another thread gave them away just now, there is something of them for this one, too
    }
}

// SAFETY: each call goes to the wrapped allocator as it is, once or twice; `dealloc` gets what that has
// given.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserving<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        let memory = unsafe { self.0.alloc(layout) };
        if memory.is_null() && self.release() {
            // SAFETY: by contract.
            return unsafe { self.0.alloc(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by contract.
        unsafe { self.0.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        let memory = unsafe { self.0.alloc_zeroed(layout) };
        if memory.is_null() && self.release() {
            // SAFETY: by contract.
            return unsafe { self.0.alloc_zeroed(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by contract.
        let larger = unsafe { self.0.realloc(memory, layout, size) };
        if larger.is_null() && self.release() {
            // SAFETY: by contract; a failed call has left the old memory as it was.
            return unsafe { self.0.realloc(memory, layout, size) };
        }
        larger
    }
}

/// Memory that may be refused; null then.
///
/// # Safety
/// As [`alloc`](std::alloc::alloc).
pub(crate) unsafe fn may_fail(layout: Layout) -> *mut u8 {
    if is_short() {
        return null_mut();
    }
    MAY_FAIL.set(true);
    // SAFETY: by contract.
    let memory = unsafe { std::alloc::alloc(layout) };
    MAY_FAIL.set(false);
    memory
}

/// Keeps so many bytes back from now on, for the life of the process, rounded to pieces of 64 KiB. To be
/// called once, where the process's memory is bounded and [`Reserving`] is its allocator. `false`: there are
/// not so many.
pub fn keep(bytes: usize) -> bool {
    WANTED.store(bytes.div_ceil(PIECE.size()), Ordering::Relaxed);
    take_pieces()
}

/// Whether memory is short: what was kept is in use.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) != 0
}

/// Housekeeping of a lane while memory [is short](is_short): gives free objects back and takes pieces again.
#[cold]
pub fn restore() {
    crate::reclaim();
    if take_pieces() {
        SHORT.store(0, Ordering::Relaxed);
    }
}

/// Takes pieces until all are there or the system refuses one. Whether all are there.
fn take_pieces() -> bool {
    // Acquire: as in `release`.
    let mut first = PIECES.swap(null_mut(), Ordering::Acquire);
    let mut count = 0;
    let mut piece = first;
    while !piece.is_null() {
        count += 1;
        // SAFETY: rule 5.
        piece = unsafe { (*piece).next };
    }
    let wanted = WANTED.load(Ordering::Relaxed);
    MAY_FAIL.set(true);
    while count < wanted {
        // SAFETY: the size is not 0.
        let piece: *mut Piece = unsafe { std::alloc::alloc(PIECE) }.cast();
        if piece.is_null() {
            break;
        }
        // SAFETY: it was just allocated, and is large and aligned enough.
        unsafe { piece.write(Piece { next: first }) };
        (first, count) = (piece, count + 1);
    }
    MAY_FAIL.set(false);
    put(first);
    count >= wanted
}

/// Links the list behind `first` into the pieces; what another lane has put there meanwhile goes behind it.
fn put(first: *mut Piece) {
    if first.is_null() {
        return;
    }
    let mut list = first;
    loop {
        // Release: pairs with the acquires above, for the links.
        if PIECES.compare_exchange(null_mut(), list, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        // Acquire: as in `release`.
        let others = PIECES.swap(null_mut(), Ordering::Acquire);
        let mut last = list;
        // SAFETY: rule 5: both lists are ours alone.
        while !unsafe { (*last).next }.is_null() {
            // SAFETY: as above.
            last = unsafe { (*last).next };
        }
        // SAFETY: as above.
        unsafe { (*last).next = others };
        list = first;
        manylane_sync::relax();
    }
}
