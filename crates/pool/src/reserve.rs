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
//! 5. Whoever works on the pieces holds [`Turn`]: who is refused meanwhile waits for what the other gives.
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

/// Somebody works on the pieces: 1.
static TURN: AtomicUsize = AtomicUsize::new(0);

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
    /// Allocates, and again when the system has no memory and a piece of the reserve was given back.
    #[inline]
    fn twice(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        let memory = allocate();
        if memory.is_null() && self.release() { allocate() } else { memory }
    }

    /// Gives the pieces to the allocator. `false`: the allocation fails.
    #[cold]
    fn release(&self) -> bool {
        if WANTED.load(Ordering::Relaxed) == 0 || MAY_FAIL.get() {
            return false;
        }
        let _turn = Turn::take();
        SHORT.store(1, Ordering::Relaxed); // a hint: who misses it takes one object more
        let mut piece = PIECES.swap(null_mut(), Ordering::Relaxed);
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

/// The right to work on the pieces. A spinning lock, since the allocator must not be asked for what a
/// sleeping one needs; it is held for some hundred allocations at most, by none that wants another turn:
/// `take_pieces` takes what may fail.
struct Turn;

impl Turn {
    fn take() -> Self {
        // Acquire: pairs with the release of who had it before.
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

// SAFETY: each call goes to the wrapped allocator as it is, once or twice; `dealloc` gets what that has
// given.
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

/// How many of `bytes` the system gives now, in the shape in which large tables grow: a third of them in one
/// piece, the rest in small ones. All of it goes back at once. Nothing while memory [is short](is_short).
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
                blocks.push(std::hint::black_box(block)); // else it might never be asked for
            } else if size < large {
                break;
            }
        }
    }
    MAY_FAIL.set(false);
    found.min(bytes)
}

/// Whether memory is short: what was kept is in use.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) != 0
}

/// Housekeeping of a lane while memory [is short](is_short): gives free objects back and takes pieces again.
#[cold]
pub fn restore() {
    crate::reclaim();
    take_pieces();
}

/// Takes pieces until all are there, and memory is not short any more, or the system refuses one. Whether all
/// are there.
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
