//! Memory whose layout is the same in every run.
//!
//! This crate installs the global allocator of every program that links it. Outside of simulations it is the
//! system's. During the set-up of a simulation, and while a virtual thread runs, memory comes from the run's
//! arena: a range that starts on a page, filled in the order of the requests. So the same program puts the
//! same objects on the same lines in every run, in every process, regardless of the system's randomisation.
//!
//! # Protocol
//! 1. One reserved range of addresses serves all runs of the process: a pointer into it belongs to an arena,
//!    any other to the system.
//! 2. One run at a time has the arena (the lock in `simulation`). Only the thread of that run, which finds it
//!    in [`ARENA`], allocates from it or frees into it. If any other code frees a pointer into the range, the
//!    memory is leaked.
//! 3. A run that ends with live objects leaves its part of the range unchanged for ever: some lazily created
//!    value of the standard library or the program may be among them. The next run starts behind it.
//!    Otherwise the next run uses the part again.
//! 4. The engine's own memory is the system's: the engine turns the arena off ([`Outside`]) before it
//!    allocates.
//!
//! # Layout
//! As in thread-caching allocators: each thread has its own pages for each size class (multiples of 16 bytes
//! up to 1 KiB, then four classes a doubling up to 32 KiB), objects of a class are adjacent, and a thread
//! allocates first the objects that it freed. The set-up is a thread of its own. So small objects of one
//! thread share lines, those of two threads do not.

use crate::machine;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of reserved addresses: enough for all runs of a process; only used ones get memory.
const REGION: usize = 1 << 40;
/// Preferred address of the range: if the system grants it, even absolute addresses repeat.
const WISHED: usize = 0x2000_0000_0000;
const PAGE: usize = 4096;
/// Step in which memory is made usable.
const STEP: usize = 16 << 20;

/// Start of the reserved range; `usize::MAX` before the reservation.
static REGION_START: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Start of the next run's part. Written under rule 2.
static NEXT_PART: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The run's arena, on the thread that executes the run.
    static ARENA: Cell<*mut Arena> = const { Cell::new(ptr::null_mut()) };
    /// True if allocations belong to the program, not to the engine.
    static SERVING: Cell<bool> = const { Cell::new(false) };
    /// The heap that serves.
    static HEAP: Cell<usize> = const { Cell::new(0) };
}

/// Largest size of the size classes; larger objects take whole pages.
const LARGEST_CLASS: usize = 32 << 10;
const FINE: usize = 1 << 10;
const SIZE_CLASSES: usize = FINE / 16 + 5 * 4;
/// Number of alignments with classes of their own: 16, 32, ... 4096.
const ALIGNMENTS: usize = 9;
/// Number of lists of larger objects, one for each power of two.
const LARGE: usize = 40;

/// One size class of one heap: freed objects, linked through their first word, then unused ones.
#[derive(Clone, Copy)]
struct Class {
    free: *mut u8,
    next: usize,
    end: usize,
}

/// Memory of a run.
pub(crate) struct Arena {
    start: usize,
    next: usize,
    usable: usize,
    live: usize,
    heaps: Vec<Vec<Class>>,
    large: [*mut u8; LARGE],
}

/// Heap of the set-up; virtual thread `n` has heap `n + 1`.
pub(crate) const SETUP_HEAP: usize = 0;

impl Arena {
    /// Begins a run with `heaps` heaps. Rule 2: the caller holds the lock of simulations, until
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

    /// Ends the run (rule 3).
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
        // SAFETY: rule 1: this crate's own range, and no object is in it.
        unsafe {
            libc::madvise(
                ptr::with_exposed_provenance_mut(self.start),
                self.usable - self.start,
                libc::MADV_DONTNEED,
            )
        };
    }

    /// Returns `bytes` of pages, aligned to `align`; null if the range is used up.
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
            // SAFETY: rule 1: this crate's own range; the call removes no access.
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
        // Objects with a larger alignment than a page are not reused.
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

/// Returns the list of the power of two that holds `layout`.
fn large_list(layout: Layout) -> usize {
    (layout.size().max(PAGE).next_power_of_two().trailing_zeros() as usize).min(LARGE - 1)
}

/// Returns the index of the class for `layout`; `None` if it is too large for one.
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

/// Returns the bytes of an object of `class`: the largest size that [`class_of`] maps to it, aligned.
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

/// Reserves the addresses for all runs, without making them usable.
fn reserve() -> usize {
    // SAFETY: a new private mapping; the system may ignore the address hint, and it replaces no mapping.
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

/// Turns the arena on or off for later allocations.
pub(crate) fn serve(on: bool) {
    SERVING.set(on);
}

/// Sets the heap that serves: [`SETUP_HEAP`], or the running thread's number plus one.
pub(crate) fn set_heap(heap: usize) {
    HEAP.set(heap);
}

/// Makes the system serve memory while it lives, for the engine (rule 4).
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

// Not in this crate's own unit tests of a simulated build: those link the crate twice, the second time
// through `sync`.
#[cfg_attr(not(all(test, manylane_sim)), global_allocator)]
static ALLOCATOR: Allocator = Allocator;

impl Allocator {
    /// True if `address` is in the range of all runs (rule 1).
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
            return; // rules 2 and 3: belongs to an earlier run, or to another thread's
        }
        machine::charge_allocation();
        // SAFETY: rule 2; the object came from this arena with this layout.
        unsafe { (*arena).free(HEAP.get(), object, layout) };
    }
}

/// Aborts the process on a broken invariant, since allocators must not unwind.
fn assert_serving(arena: *mut Arena) {
    if arena.is_null() {
        std::process::abort();
    }
}

// SAFETY: the system's allocator handles its own memory. Arena memory has one owner until it is freed, is as
// large and aligned as its class, and stays mapped while an object lives in it (rule 3).
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
