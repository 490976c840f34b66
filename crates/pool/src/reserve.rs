//! A memory reserve for allocations that must not fail.
//!
//! If the process's memory is bounded, the system refuses an allocation some day. A pool returns the error to
//! its caller, and one stream ends. A growing vector or a box cannot: the process would abort, and a single
//! client could cause that. So a reserve is kept for them.
//!
//! # Protocol
//! 1. [`keep`] allocates pieces and links them. They are small, so that `restore` finds room for them again
//!    between other allocations.
//! 2. When the system refuses an allocation that must not fail, [`Reserving`] returns all pieces to the
//!    allocator, marks memory as short and tries again.
//! 3. While memory is short, pools get no new objects ([`Cause::Memory`](crate::Cause::Memory)): the memory
//!    of the pieces is for the allocations that must not fail.
//! 4. [`restore`] returns the free objects of pools to the allocator and allocates pieces again. When all
//!    pieces are there, memory is no longer short. Housekeeping calls it.
//! 5. The holder of [`Turn`] owns the list of pieces. A thread whose allocation fails meanwhile waits for the
//!    memory that the holder returns.
//!
//! Without [`keep`] there is no reserve, and [`Reserving`] behaves as the allocator that it wraps.

use manylane_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;

/// Layout of a piece: as many bytes as the allocator takes from the system at once.
const PIECE: Layout = match Layout::from_size_align(64 << 10, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// List of the pieces; the first word of each is the address of the next.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(null_mut());

/// Number of pieces that the reserve should have; 0 if there is no reserve.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// 1 while a thread holds [`Turn`].
static TURN: AtomicUsize = AtomicUsize::new(0);

/// 1 while memory is short: the pieces were freed, and not all are allocated again.
static SHORT: AtomicUsize = AtomicUsize::new(0);

struct Piece {
    next: *mut Piece,
}

thread_local! {
    /// True while the calling thread makes an allocation that may fail.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// An allocator that falls back on the reserve of [`keep`] if the system refuses memory. For
/// `#[global_allocator]`.
#[derive(Debug)]
pub struct Reserving<A>(pub A);

impl<A: GlobalAlloc> Reserving<A> {
    /// Allocates. If the system has no memory, frees the reserve and tries once more.
    #[inline]
    fn twice(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        let memory = allocate();
        if memory.is_null() && self.release() { allocate() } else { memory }
    }

    /// Returns the pieces to the allocator. `false`: the allocation fails.
    #[cold]
    fn release(&self) -> bool {
        if WANTED.load(Ordering::Relaxed) == 0 || MAY_FAIL.get() {
            return false;
        }
        let _turn = Turn::take();
        SHORT.store(1, Ordering::Relaxed); // a hint: a thread that misses it allocates one object more
        let mut piece = PIECES.swap(null_mut(), Ordering::Relaxed);
        while !piece.is_null() {
            // SAFETY: rule 5: this thread owns the list.
            let next = unsafe { (*piece).next };
            // SAFETY: `take_pieces` allocated it with this layout.
            unsafe { self.0.dealloc(piece.cast(), PIECE) };
            piece = next;
        }
        true // if another thread just freed the pieces, that memory serves this allocation, too
    }
}

/// The right to use the list of pieces: a spinning lock, since a sleeping lock would need the allocator. A
/// thread holds it for some hundred allocations at most. The holder never needs it a second time, since
/// `take_pieces` makes allocations that may fail.
struct Turn;

impl Turn {
    fn take() -> Self {
        // Acquire: pairs with the release of the previous holder.
        while TURN.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take`.
        TURN.store(0, Ordering::Release);
    }
}

// SAFETY: each call passes to the wrapped allocator unchanged, once or twice; `dealloc` gets memory from that
// allocator.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserving<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        self.twice(|| unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by contract.
        unsafe { self.0.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        self.twice(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by contract; a failed call has left the old memory as it was.
        self.twice(|| unsafe { self.0.realloc(memory, layout, size) })
    }
}

/// Allocates memory, or returns null if memory is short.
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

/// Keeps a reserve of `bytes` from now on, for the life of the process, rounded up to pieces of 64 KiB.
/// Called once, if the process's memory is bounded and [`Reserving`] is its allocator. Returns `false` if
/// there is not enough memory.
pub fn keep(bytes: usize) -> bool {
    WANTED.store(bytes.div_ceil(PIECE.size()), Ordering::Relaxed);
    take_pieces()
}

/// Returns how many of `bytes` the system can provide now, in the pattern in which large tables grow: a third
/// of them in one piece, the rest in small ones. Frees all of it at once. Returns 0 while memory [is
/// short](is_short).
pub fn available(bytes: usize) -> usize {
    if is_short() {
        return 0;
    }
    MAY_FAIL.set(true);
    let large = bytes / 3;
    let small = (bytes - large).div_ceil(PIECE.size());
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut found = 0;
    if blocks.try_reserve_exact(small + 1).is_ok() {
        for size in std::iter::once(large).chain(std::iter::repeat_n(PIECE.size(), small)) {
            let mut block = Vec::new();
            if block.try_reserve_exact(size).is_ok() {
                found += size;
                blocks.push(std::hint::black_box(block)); // otherwise the compiler might drop the allocation
            } else if size < large {
                break;
            }
        }
    }
    MAY_FAIL.set(false);
    found.min(bytes)
}

/// True while memory is short: the reserve is in use.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) != 0
}

/// Frees the free objects of pools and allocates pieces again: a lane's housekeeping while memory [is
/// short](is_short).
#[cold]
pub fn restore() {
    crate::reclaim();
    take_pieces();
}

/// Allocates pieces until all are there and memory is no longer short, or until the system refuses one.
/// Returns true if all are there.
fn take_pieces() -> bool {
    let _turn = Turn::take();
    let mut first = PIECES.load(Ordering::Relaxed);
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
    PIECES.store(first, Ordering::Relaxed);
    if count >= wanted {
        SHORT.store(0, Ordering::Relaxed);
    }
    count >= wanted
}
