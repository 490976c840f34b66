//! A memory reserve for allocations that must not fail.
//!
//! If the process's memory is bounded, the system refuses an allocation some day. A pool returns the error to
//! its caller, and one stream ends. A growing vector or a box cannot: the process would abort, and a single
//! client could cause that. So a reserve is kept for them.
//!
//! # Protocol
//! 1. [`keep`] allocates pieces and links them. They are small, so that `restore` finds room for them again
//!    between other allocations; one is large, for a table that doubles.
//! 2. When the system refuses an allocation that must not fail, [`Reserving`] returns all pieces to the
//!    allocator, marks memory as short and tries again.
//! 3. While memory is short, pools get no new objects ([`Cause::Memory`]): the memory
//!    of the pieces is for the allocations that must not fail. Code that allocates for clients outside
//!    a pool calls [`check_memory`](crate::check_memory) first: variables, captures, tables of HPACK.
//!    - What a client makes and nobody frees with it (entries of stick tables and maps) would take the last
//!      memory from those who come later. [`check_growth`](crate::check_growth) leaves [`SPARE`] to them,
//!      beside what each lane may let grow before it looks again.
//!    - Whatever else a task allocates for a client is counted while memory is short
//!      ([`taken_while_short`](crate::taken_while_short)). The task ends after the poll that took some, and
//!      returns it, so what exists already does not use up the pieces.
//! 4. [`restore`] returns the free objects of pools to the allocator and allocates pieces again. When all
//!    pieces are there, memory is no longer short. Housekeeping calls it.
//! 5. Libraries in C take their memory from the system's `malloc`, which the reserve does not serve. Before
//!    such a library works for a client, [`check_foreign`](crate::check_foreign) tries whether `malloc` has
//!    enough. [`check_block`](crate::check_block) does the same for one large block.
//! 6. The holder of `Turn` owns the list of pieces. Whoever tries what is left, and so takes it for a moment,
//!    has the turn, too. A thread whose allocation fails meanwhile waits for the memory that the holder
//!    returns.
//!
//! Without [`keep`] there is no reserve, and [`Reserving`] behaves as the allocator that it wraps.

use crate::error::{AllocError, Cause, Failure};
use manylane_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
#[cfg(target_env = "gnu")]
use std::ffi::c_int;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

/// Layout of a piece. With the allocator's own alignment, pieces that were allocated one after another are
/// one part of memory when they are freed, which serves a large table, too.
const PIECE: Layout = match Layout::from_size_align(64 << 10, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// Layout of the one large piece: pieces that were allocated among other objects do not become one part of
/// memory, and the largest tables of a lane double, too.
const LARGE: Layout = match Layout::from_size_align(2 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// Number of pieces that [`check_foreign`](crate::check_foreign) tries to get: one for the caller, the others
/// for lanes that begin a handshake at the same time.
const FOREIGN: usize = 4;

/// Number of bytes that [`check_growth`](crate::check_growth) leaves to the system beside the reserve.
const SPARE: usize = 8 << 20;

/// Number of bytes that a thread may let grow before it looks again whether [`SPARE`] is there.
const STEP: usize = 256 << 10;

/// The error of [`check_memory`](crate::check_memory).
pub(crate) const SHORTAGE: AllocError =
    AllocError(&Failure { pool: "reserve", size: PIECE.size(), cause: Cause::Memory });

/// List of the pieces; the first word of each is the address of the next.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(null_mut());

/// The large piece, or null.
static LARGE_PIECE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Number of pieces that the reserve should have; 0 if there is no reserve.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// 1 while a thread holds [`Turn`].
static TURN: AtomicUsize = AtomicUsize::new(0);

/// 1 while memory is short: the pieces were freed, and not all are allocated again.
static SHORT: AtomicUsize = AtomicUsize::new(0);

/// 1 from when [`SPARE`] was not there until [`recheck`].
static REFUSED: AtomicUsize = AtomicUsize::new(0);

struct Piece {
    next: *mut Piece,
}

thread_local! {
    /// True while the calling thread makes an allocation that may fail.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
    /// See [`taken_while_short`](crate::taken_while_short).
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    /// Number of bytes that may still grow by rule 3 before the thread looks again.
    static GROWTH_LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Variable of the environment that makes [`Reserving`] use the system's allocator.
pub const PLAIN: &CStr = c"MANYLANE_PLAIN_ALLOCATOR";

/// Variable of the environment, and its value, for all threads to share one arena of the system's allocator:
/// a thread cannot use what is free in that of another one.
pub const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// Which allocator the process uses: 0 until the first allocation, then [`WRAPPED`] or [`SYSTEM`].
static CHOICE: AtomicUsize = AtomicUsize::new(0);
const WRAPPED: usize = 1;
const SYSTEM: usize = 2;

/// An allocator that falls back on the reserve of [`keep`] if the system refuses memory. For
/// `#[global_allocator]`.
///
/// It uses `A`, or the system's allocator in a process whose environment has [`PLAIN`]. If memory is bounded,
/// the system's is the better one: an allocator that takes memory in large parts, for each thread, reaches
/// the bound while most of that is unused, and memory of the reserve may serve objects of its size only.
#[derive(Debug)]
pub struct Reserving<A>(pub A);

/// Returns whether the process uses the system's allocator.
#[inline]
pub fn is_plain() -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        0 => choose(),
        choice => choice == SYSTEM,
    }
}

/// Makes the choice. The first allocation comes before `main`, when there is one thread.
#[cold]
fn choose() -> bool {
    // SAFETY: the signature is that of the C standard.
    unsafe extern "C" {
        fn getenv(name: *const c_char) -> *const c_char;
    }
    // Not by `std::env`, which allocates.
    // SAFETY: the name ends with a zero, and nobody changes the environment meanwhile.
    let plain = !unsafe { getenv(PLAIN.as_ptr()) }.is_null();
    CHOICE.store(if plain { SYSTEM } else { WRAPPED }, Ordering::Relaxed);
    plain
}

/// Counts bytes of an allocation, or of a release where the number is negative, while memory is short.
#[inline]
fn count(bytes: isize) {
    if is_short() {
        TAKEN.set(TAKEN.get().wrapping_add(bytes));
    }
}

impl<A: GlobalAlloc> Reserving<A> {
    /// Allocates `more` bytes. If the system has no memory, frees the reserve and tries once more.
    #[inline]
    fn twice(&self, more: isize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        let mut memory = allocate();
        if memory.is_null() {
            memory = self.after_release(allocate);
        }
        if !memory.is_null() {
            count(more);
        }
        memory
    }

    /// Allocates again when nobody else has the turn, if there is a reserve and the allocation must not fail.
    /// If that fails, too, returns the pieces to the allocator first. The turn lasts as long as that:
    /// otherwise another thread might restore the pieces first.
    #[cold]
    fn after_release(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        if !is_kept() || MAY_FAIL.get() {
            return null_mut();
        }
        let _turn = Turn::take();
        let memory = allocate(); // a thread that tried what is left, or freed the pieces, had the turn
        if !memory.is_null() {
            return memory;
        }
        SHORT.store(1, Ordering::Relaxed); // a hint: a thread that misses it allocates one object more
        let taken = TAKEN.get(); // the pieces are nobody's growth
        let large = LARGE_PIECE.swap(null_mut(), Ordering::Relaxed);
        if !large.is_null() {
            // SAFETY: `take_pieces` allocated it with this layout, and by rule 6 this thread owns it.
            unsafe { self.dealloc(large, LARGE) };
        }
        let mut piece = PIECES.swap(null_mut(), Ordering::Relaxed);
        while !piece.is_null() {
            // SAFETY: rule 6: this thread owns the list.
            let next = unsafe { (*piece).next };
            // SAFETY: `take_pieces` allocated it with this layout.
            unsafe { self.dealloc(piece.cast(), PIECE) };
            piece = next;
        }
        TAKEN.set(taken);
        allocate()
    }
}

/// The right to use the list of pieces, and to take all memory for a moment: a spinning lock, as a sleeping
/// lock would need the allocator. A thread holds it for some hundred allocations, and [`available`] for those
/// that it was asked for. The holder never needs it a second time: it makes allocations that may fail, and
/// none from pools. No signal handler allocates.
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

// SAFETY: each call passes to the same one of two allocators unchanged, once or twice; `dealloc` gets memory
// from that allocator.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserving<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        self.twice(layout.size() as isize, || unsafe {
            if is_plain() { System.alloc(layout) } else { self.0.alloc(layout) }
        })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: by contract.
        unsafe { if is_plain() { System.dealloc(memory, layout) } else { self.0.dealloc(memory, layout) } }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        self.twice(layout.size() as isize, || unsafe {
            if is_plain() { System.alloc_zeroed(layout) } else { self.0.alloc_zeroed(layout) }
        })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by contract; a failed call has left the old memory as it was.
        self.twice(size as isize - layout.size() as isize, || unsafe {
            if is_plain() {
                System.realloc(memory, layout, size)
            } else {
                self.0.realloc(memory, layout, size)
            }
        })
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
    let mut memory = unsafe { std::alloc::alloc(layout) };
    if memory.is_null() && is_kept() {
        let _turn = Turn::take(); // as in `after_release`
        if !is_short() {
            // SAFETY: by contract.
            memory = unsafe { std::alloc::alloc(layout) };
        }
    }
    MAY_FAIL.set(false);
    memory
}

/// Keeps a reserve of `bytes` from now on, for the life of the process, rounded up to one piece of 2 MiB and
/// pieces of 64 KiB. Called once, if the system bounds the process's memory and [`Reserving`] is its
/// allocator. Returns `false` if there is not enough memory.
pub fn keep(bytes: usize) -> bool {
    WANTED.store(bytes.saturating_sub(LARGE.size()).div_ceil(PIECE.size()).max(1), Ordering::Relaxed);
    take_pieces()
}

/// Tries what is left: allocations of `attempt` leave the reserve alone, and count as nobody's growth.
/// Returns `None` while memory is short. `attempt` frees what it takes.
fn probe<T>(attempt: impl FnOnce() -> T) -> Option<T> {
    let _turn = Turn::take();
    if is_short() {
        return None;
    }
    let taken = TAKEN.get();
    MAY_FAIL.set(true);
    let found = attempt();
    MAY_FAIL.set(false);
    TAKEN.set(taken);
    Some(found)
}

/// Returns how many of `bytes` the system can provide now, in the pattern in which large tables grow: a third
/// of them in one piece, the rest in small ones. Frees all of it at once. Returns 0 while memory [is
/// short](is_short).
pub fn available(bytes: usize) -> usize {
    let large = bytes / 3;
    let small = (bytes - large).div_ceil(PIECE.size());
    let found = probe(|| {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let mut found = 0;
        if blocks.try_reserve_exact(small + 1).is_ok() {
            for size in std::iter::once(large).chain(std::iter::repeat_n(PIECE.size(), small)) {
                let mut block = Vec::new();
                if block.try_reserve_exact(size).is_ok() {
                    found += size;
                    // Otherwise the compiler might drop the allocation.
                    blocks.push(std::hint::black_box(block));
                } else if size < large {
                    break;
                }
            }
        }
        found
    });
    found.unwrap_or(0).min(bytes)
}

/// True while memory is short: the reserve is in use.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) != 0
}

/// True if there is a reserve: the process's memory is bounded.
pub fn is_kept() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// See [`taken_while_short`](crate::taken_while_short).
#[inline]
pub(crate) fn taken() -> isize {
    TAKEN.get()
}

/// See [`check_growth`](crate::check_growth).
#[inline]
pub(crate) fn check_growth(bytes: usize) -> Result<(), AllocError> {
    if !is_kept() {
        return Ok(());
    }
    let left = GROWTH_LEFT.get();
    let left = if !is_short() && left >= bytes { left } else { more_growth(bytes)? };
    GROWTH_LEFT.set(left - bytes);
    Ok(())
}

#[cold]
fn more_growth(bytes: usize) -> Result<usize, AllocError> {
    if REFUSED.load(Ordering::Relaxed) != 0 {
        return Err(SHORTAGE);
    }
    let grows = bytes.max(STEP);
    // Each lane may have looked, and not have used its step yet. Read before the turn, as it takes a lock.
    let others = STEP * manylane_sync::lane::highest();
    let most = grows.checked_add(SPARE + others).ok_or(SHORTAGE)?;
    if available(most) == most {
        return Ok(grows);
    }
    if grows == STEP {
        REFUSED.store(1, Ordering::Relaxed); // a hint: a thread that misses it looks for itself
    }
    Err(SHORTAGE)
}

/// Has [`check_growth`](crate::check_growth) look again after it has found too little: a lane's housekeeping.
/// Until then it refuses without looking, since a client could make it look for each of its keys.
pub fn recheck() {
    if REFUSED.load(Ordering::Relaxed) != 0 {
        REFUSED.store(0, Ordering::Relaxed);
    }
}

/// See [`check_block`](crate::check_block).
pub(crate) fn check_block(bytes: usize) -> Result<(), AllocError> {
    if !is_kept() {
        return Ok(());
    }
    let found = probe(|| {
        let mut block: Vec<u8> = Vec::new();
        let found = block.try_reserve_exact(bytes);
        drop(std::hint::black_box(block)); // otherwise the compiler might drop the allocation
        found.is_ok()
    });
    if found == Some(true) { Ok(()) } else { Err(SHORTAGE) }
}

/// See [`check_foreign`](crate::check_foreign).
#[inline]
pub(crate) fn check_foreign() -> Result<(), AllocError> {
    if is_kept() && (is_short() || !has_foreign()) { Err(SHORTAGE) } else { Ok(()) }
}

/// Returns whether `malloc` can provide [`FOREIGN`] pieces.
#[cold]
fn has_foreign() -> bool {
    let _turn = Turn::take(); // by rule 6
    // The compiler may drop an allocation whose memory is only compared with null.
    // SAFETY: the size is not 0.
    let allocate = |_: usize| std::hint::black_box(unsafe { System.alloc(PIECE) });
    let pieces: [*mut u8; FOREIGN] = std::array::from_fn(allocate);
    let all = pieces.iter().all(|piece| !piece.is_null());
    for piece in pieces.into_iter().filter(|piece| !piece.is_null()) {
        // SAFETY: it was just allocated with this layout.
        unsafe { System.dealloc(piece, PIECE) };
    }
    all
}

/// Has the system's allocator return free pages to the system, if the process uses that allocator. By itself
/// it keeps free pages below memory in use. Visits all free memory, so call it in a lane's housekeeping,
/// after [`trim`](crate::trim) has freed something.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    if is_plain() {
        // SAFETY: the signature is that of glibc.
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> c_int;
        }
        // SAFETY: it takes any number, and locks what it changes.
        unsafe { malloc_trim(0) };
    }
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
        // SAFETY: rule 6.
        piece = unsafe { (*piece).next };
    }
    let wanted = WANTED.load(Ordering::Relaxed);
    let taken = TAKEN.get();
    MAY_FAIL.set(true);
    if LARGE_PIECE.load(Ordering::Relaxed).is_null() {
        // SAFETY: the size is not 0.
        LARGE_PIECE.store(unsafe { std::alloc::alloc(LARGE) }, Ordering::Relaxed);
    }
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
    TAKEN.set(taken);
    PIECES.store(first, Ordering::Relaxed);
    let all = count >= wanted && !LARGE_PIECE.load(Ordering::Relaxed).is_null();
    if all {
        SHORT.store(0, Ordering::Relaxed);
    }
    all
}
