//! Memory whose layout is the same in every run.
//!
//! This crate installs the global allocator of every program that links it. Outside of simulations it is the
//! system's. While a simulation sets up or a virtual thread runs, memory comes from the run's arena: a range
//! that starts on a page, filled in the order of the requests. So the same program puts the same objects on
//! the same lines in every run, in every process, whatever the system randomises.
//!
//! # Protocol
//! 1. One reserved range of addresses serves all runs of the process: a pointer into it is ours, any other is
//!    the system's.
//! 2. One run at a time has the arena (the lock in `simulation`). Only the thread of that run, which finds it
//!    in [`ARENA`], allocates from it or returns to it. Anything else that frees a pointer of ours leaks it.
//! 3. A run that ends with live objects leaves its part of the range as it is, for ever: some lazily made
//!    value of the standard library or the program may be among them. The next run starts behind it. Else the
//!    part is used again.
//! 4. The engine's own memory is the system's: it turns serving off ([`Outside`]) before it allocates.
//!
//! # Layout
//! As thread-caching allocators do: each thread has its own pages for each size class (multiples of 16 bytes
//! up to 1 KiB, then four classes a doubling up to 32 KiB), objects of a class lie side by side, and what a
//! thread frees it gets again first. The set-up is a thread of its own. So small objects that one thread
//! makes share lines, those of two threads do not.

use crate::machine;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reserved addresses: enough for every run of a process, and never backed by memory unless used.
const REGION: usize = 1 << 40;
/// Where to reserve, if the system lets us: then even absolute addresses repeat.
const WISHED: usize = 0x2000_0000_0000;
const PAGE: usize = 4096;
/// Memory is made usable in steps of this.
const STEP: usize = 16 << 20;

/// The reserved range's start; `usize::MAX` before there is one.
static REGION_START: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Where the next run's part begins. Written under rule 2.
static NEXT_PART: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The run's arena, on the thread that runs it.
    static ARENA: Cell<*mut Arena> = const { Cell::new(ptr::null_mut()) };
    /// Whether allocations are the program's (and not the engine's).
    static SERVING: Cell<bool> = const { Cell::new(false) };
    /// Which heap serves.
    static HEAP: Cell<usize> = const { Cell::new(0) };
}

/// Sizes up to this come from size classes; larger ones by the page.
const LARGEST_CLASS: usize = 32 << 10;
const FINE: usize = 1 << 10;
const SIZE_CLASSES: usize = FINE / 16 + 5 * 4;
/// 16, 32, ... 4096: alignments with classes of their own.
const ALIGNMENTS: usize = 9;
/// Powers of two, for what is larger than a class.
const LARGE: usize = 40;

/// One size class of one heap: freed objects, linked through their first word, then untouched ones.
#[derive(Clone, Copy)]
struct Class {
    free: *mut u8,
    next: usize,
    end: usize,
}

/// A run's memory.
pub(crate) struct Arena {
    start: usize,
    next: usize,
    usable: usize,
    live: usize,
    heaps: Vec<Vec<Class>>,
    large: [*mut u8; LARGE],
}

/// The set-up's heap; virtual thread `n` has heap `n + 1`.
pub(crate) const SETUP_HEAP: usize = 0;

impl Arena {
    /// Begins a run with `heaps` heaps. Rule 2: the caller has the lock of simulations, until
    /// [`end`](Self::end).
    pub(crate) fn begin(heaps: usize) -> Box<Self> {
        let mut region = REGION_START.load(Ordering::Relaxed);
        if region == usize::MAX {
            region = reserve();
            NEXT_PART.store(region, Ordering::Relaxed);
            REGION_START.store(region, Ordering::Release);
        }
        let start = NEXT_PART.load(Ordering::Relaxed);
        let mut arena = Box::new(Self {
            start,
            next: start,
            usable: start,
            live: 0,
            heaps: vec![
                vec![Class { free: ptr::null_mut(), next: 0, end: 0 }; ALIGNMENTS * SIZE_CLASSES];
                heaps
            ],
            large: [ptr::null_mut(); LARGE],
        });
        ARENA.set(&raw mut *arena);
        arena
    }

    /// Ends the run. Rule 3.
    pub(crate) fn end(self: Box<Self>) {
        ARENA.set(ptr::null_mut());
        if self.next == self.start {
            return;
        }
        if self.live > 0 {
            NEXT_PART.store(self.next.next_multiple_of(STEP), Ordering::Relaxed);
            return;
        }
        // Zeroes the memory for the next run, as if it were new.
        // SAFETY: rule 1: our own range, and no object lives in it.
        unsafe {
            libc::madvise(
                ptr::with_exposed_provenance_mut(self.start),
                self.usable - self.start,
                libc::MADV_DONTNEED,
            )
        };
    }

    /// `bytes` of pages, aligned to `align`; null when the range is used up.
    fn pages(&mut self, bytes: usize, align: usize) -> *mut u8 {
        let region_end = REGION_START.load(Ordering::Relaxed) + REGION;
        let start = self.next.next_multiple_of(align.max(PAGE));
        let Some(end) = bytes.checked_next_multiple_of(PAGE).and_then(|b| start.checked_add(b)) else {
            return ptr::null_mut();
        };
        if end > region_end {
            return ptr::null_mut();
        }
        if end > self.usable {
            let usable = end.next_multiple_of(STEP).min(region_end);
            // SAFETY: rule 1: our own range; nothing is taken away from anybody.
            let failed = unsafe {
                libc::mprotect(
                    ptr::with_exposed_provenance_mut(self.usable),
                    usable - self.usable,
                    libc::PROT_READ | libc::PROT_WRITE,
                )
            };
            if failed != 0 {
                return ptr::null_mut();
            }
            self.usable = usable;
        }
        self.next = end;
        ptr::with_exposed_provenance_mut(start)
    }

    fn allocate(&mut self, heap: usize, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else {
            return self.allocate_large(layout);
        };
        let size = class_size(class);
        let slot = &mut self.heaps[heap][class];
        if !slot.free.is_null() {
            let found = slot.free;
            // SAFETY: rule 2: a freed object of this class, whose first word links to the next one.
            slot.free = unsafe { found.cast::<*mut u8>().read() };
            self.live += 1;
            return found;
        }
        if slot.next == slot.end {
            let bytes = (size * 8).next_multiple_of(PAGE);
            let pages = self.pages(bytes, PAGE);
            if pages.is_null() {
                return pages;
            }
            let slot = &mut self.heaps[heap][class];
            slot.next = pages.addr();
            slot.end = slot.next + bytes / size * size;
        }
        let slot = &mut self.heaps[heap][class];
        let found = slot.next;
        slot.next += size;
        self.live += 1;
        ptr::with_exposed_provenance_mut(found)
    }

    fn allocate_large(&mut self, layout: Layout) -> *mut u8 {
        let list = large_list(layout);
        // Those with a larger alignment than a page are not used again.
        if layout.align() <= PAGE && !self.large[list].is_null() {
            let found = self.large[list];
            // SAFETY: as in `allocate`.
            self.large[list] = unsafe { found.cast::<*mut u8>().read() };
            self.live += 1;
            return found;
        }
        let found = self.pages(1 << list, layout.align());
        self.live += usize::from(!found.is_null());
        found
    }

    fn free(&mut self, heap: usize, object: *mut u8, layout: Layout) {
        self.live -= 1;
        let list = match class_of(layout) {
            Some(class) => &mut self.heaps[heap][class].free,
            None if layout.align() <= PAGE => &mut self.large[large_list(layout)],
            None => return,
        };
        // SAFETY: the object was just given up, is at least a word long and aligned to 16.
        unsafe { object.cast::<*mut u8>().write(*list) };
        *list = object;
    }

    fn has(&self, address: usize) -> bool {
        (self.start..self.next).contains(&address)
    }
}

/// The power of two that holds `layout`.
fn large_list(layout: Layout) -> usize {
    (layout.size().max(PAGE).next_power_of_two().trailing_zeros() as usize).min(LARGE - 1)
}

/// Index of the class for `layout`; `None` if it is too large for one.
fn class_of(layout: Layout) -> Option<usize> {
    let align = layout.align().max(16);
    if align > PAGE {
        return None;
    }
    let size = layout.size().max(16).next_multiple_of(align);
    let alignment = align.trailing_zeros() as usize - 4;
    let by_size = if size <= FINE {
        size.div_ceil(16) - 1
    } else if size <= LARGEST_CLASS {
        let doubling = (size - 1).ilog2() as usize; // 2^doubling < size <= 2^(doubling + 1)
        let quarter = (size - 1 - (1 << doubling)) >> (doubling - 2);
        FINE / 16 + (doubling - 10) * 4 + quarter
    } else {
        return None;
    };
    Some(alignment * SIZE_CLASSES + by_size)
}

/// Bytes of an object of `class`: the largest size that [`class_of`] maps to it, aligned.
fn class_size(class: usize) -> usize {
    let (alignment, by_size) = (class / SIZE_CLASSES, class % SIZE_CLASSES);
    let size = if by_size < FINE / 16 {
        (by_size + 1) * 16
    } else {
        let (doubling, quarter) = (10 + (by_size - FINE / 16) / 4, (by_size - FINE / 16) % 4);
        (1 << doubling) + ((quarter + 1) << (doubling - 2))
    };
    size.next_multiple_of(16 << alignment)
}

/// Addresses for all runs; nothing is usable yet.
fn reserve() -> usize {
    // SAFETY: a new private mapping; the address is a wish that the system may refuse, and it replaces
    // nothing.
    let start = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(WISHED),
            REGION,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert!(
        start != libc::MAP_FAILED,
        "the system refused {} GiB of addresses for the simulator's memory: raise the limit of virtual \
            memory (ulimit -v)",
        REGION >> 30
    );
    start.expose_provenance()
}

/// Whether memory is served from the arena from now on.
pub(crate) fn serve(on: bool) {
    SERVING.set(on);
}

/// Which heap serves: [`SETUP_HEAP`], or the running thread's number plus one.
pub(crate) fn set_heap(heap: usize) {
    HEAP.set(heap);
}

/// While it lives, memory is the system's: the engine is at work (rule 4).
pub(crate) struct Outside(bool);

impl Outside {
    #[inline]
    pub(crate) fn enter() -> Self {
        Self(SERVING.replace(false))
    }
}

impl Drop for Outside {
    #[inline]
    fn drop(&mut self) {
        SERVING.set(self.0);
    }
}

/// The system's allocator, and the arena while a simulation runs on this thread.
struct Allocator;

// Not in this crate's own unit tests of a simulated build: those link the crate a second time, through
// `sync`.
#[cfg_attr(not(all(test, manylane_sim)), global_allocator)]
static ALLOCATOR: Allocator = Allocator;

impl Allocator {
    /// Whether `address` is in the range of all runs (rule 1).
    #[inline]
    fn is_ours(address: usize) -> bool {
        let region = REGION_START.load(Ordering::Relaxed);
        address >= region && address - region < REGION
    }

    #[cold]
    fn allocate(layout: Layout) -> *mut u8 {
        machine::charge_allocation();
        let arena = ARENA.get();
        assert_serving(arena);
        // SAFETY: rule 2: the arena is set on this thread, which is in no other call of it.
        unsafe { (*arena).allocate(HEAP.get(), layout) }
    }

    #[cold]
    fn free(object: *mut u8, layout: Layout) {
        let arena = ARENA.get();
        // SAFETY: rule 2, as above.
        if arena.is_null() || !unsafe { (*arena).has(object.addr()) } {
            return; // rules 2 and 3: of an earlier run, or of another thread's
        }
        machine::charge_allocation();
        // SAFETY: rule 2; the object came from this arena with this layout.
        unsafe { (*arena).free(HEAP.get(), object, layout) };
    }
}

/// Allocators must not unwind: a broken invariant ends the process.
fn assert_serving(arena: *mut Arena) {
    if arena.is_null() {
        std::process::abort();
    }
}

// SAFETY: memory from the system is the system's affair; memory from the arena is handed out once until it is
// freed, is as large and aligned as its class, and stays mapped while anything lives in it (rule 3).
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if SERVING.get() {
            return Self::allocate(layout);
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if SERVING.get() {
            let object = Self::allocate(layout);
            if !object.is_null() {
                // SAFETY: just allocated with this size.
                unsafe { object.write_bytes(0, layout.size()) };
            }
            return object;
        }
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        if Self::is_ours(object.addr()) {
            return Self::free(object, layout);
        }
        // SAFETY: passed on: it came from the system.
        unsafe { System.dealloc(object, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !SERVING.get() && !Self::is_ours(object.addr()) {
            // SAFETY: passed on: it came from the system.
            return unsafe { System.realloc(object, layout, size) };
        }
        // SAFETY: by contract `size` is not 0 and does not overflow with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: by contract; both blocks are at least as long as what is copied, and differ.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                ptr::copy_nonoverlapping(object, new, layout.size().min(size));
                self.dealloc(object, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_chosen_for_and_waste_at_most_a_quarter() {
        for align in [1, 8, 16, 64, 128, 4096] {
            for size in (1..=LARGEST_CLASS).step_by(7) {
                let layout = Layout::from_size_align(size, align).unwrap();
                let Some(class) = class_of(layout) else { continue };
                let got = class_size(class);
                assert!(got >= size && got.is_multiple_of(align), "{size} aligned {align}: {got}");
                assert!(
                    got <= (size + size / 4).next_multiple_of(align.max(16)) + 16,
                    "{size} aligned {align}: {got}"
                );
            }
        }
        assert_eq!(class_of(Layout::from_size_align(LARGEST_CLASS + 1, 8).unwrap()), None);
    }
}
