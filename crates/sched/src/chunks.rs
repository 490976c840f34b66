//! An array that grows in place: no element moves, and none is freed while the array lives.
//!
//! Chunk c has `BASE << c` elements, so counting leading zeros finds the chunk of an index. The table of
//! chunks is small enough to be inside its owner.

use manylane_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::alloc::{Layout, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;

/// Number of elements of the first chunk.
const BASE: u32 = if cfg!(loom) { 2 } else { 256 };
/// Maximum number of chunks.
const CHUNKS: usize = if cfg!(loom) { 3 } else { 20 };

/// Maximum number of elements: 2^28 - 256.
pub(crate) const CAPACITY: u32 = BASE * ((1 << CHUNKS) - 1);

/// An element of the array.
///
/// # Safety
/// On the real machine and in the simulator, zeroed memory is a valid value, that of an unused element. So
/// the system provides a chunk of millions of elements without any access to it.
pub(crate) unsafe trait Fresh {
    /// Returns the value of an unused element.
    #[cfg(loom)]
    fn fresh() -> Self;
}

/// The array. One thread, its owner, grows it; any thread that learned an index may read the element.
///
/// Each chunk's pointer is stored minus the number of its first element, so that adding an index gives the
/// element.
pub(crate) struct Chunks<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    /// Number of chunks that exist. Written by the owner.
    made: AtomicU32,
}

/// Returns the chunk of an index.
///
/// # Safety
/// The index is below [`CAPACITY`].
#[inline(always)]
unsafe fn chunk_of(index: u32) -> usize {
    // SAFETY: both are below 2^28: their sum does not overflow, and is not 0.
    let shifted = unsafe { NonZero::new_unchecked(index.unchecked_add(BASE)) };
    (shifted.ilog2() - BASE.ilog2()) as usize
}

/// Number of elements of a chunk.
fn length(chunk: usize) -> usize {
    (BASE as usize) << chunk
}

/// Number of elements before a chunk.
fn before(chunk: usize) -> usize {
    length(chunk) - BASE as usize
}

fn layout<T>(chunk: usize) -> Layout {
    Layout::array::<T>(length(chunk)).expect("a few gigabytes are below the address space")
}

impl<T: Fresh> Chunks<T> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            made: AtomicU32::new(0),
        }
    }

    /// Returns the element `index`.
    ///
    /// # Safety
    /// [`reach`](Self::reach) made it, and that happened before this call.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn at(&self, index: u32) -> &T {
        debug_assert!(index < CAPACITY);
        // SAFETY: the index is below the capacity, since it was made; so its chunk is one of the table.
        let chunk = unsafe { self.chunks.get_unchecked(chunk_of(index)) };
        // Relaxed: by contract the pointer's store happened before. It never changes again.
        let start = chunk.load(Ordering::Relaxed);
        // SAFETY: adding the index restores the subtracted number: this is an element of the chunk. Elements
        // are initialised, and the chunk lives as long as `self`.
        unsafe { &*start.wrapping_add(index as usize) }
    }

    /// Creates the element `index`. Only the owner may call this, with indices that ascend by one from 0.
    ///
    /// Returns `false` if there is no memory or the index is not below [`CAPACITY`].
    pub(crate) fn reach(&self, index: u32) -> bool {
        if index >= CAPACITY {
            return false;
        }
        // SAFETY: as just tested.
        let chunk = unsafe { chunk_of(index) };
        if index as usize != before(chunk) {
            return true; // the chunk came with its first element
        }
        let Some(start) = Self::make(chunk) else { return false };
        // Release: a thread that learns an index through a relaxed word finds the elements.
        self.chunks[chunk].store(start.as_ptr().wrapping_sub(before(chunk)), Ordering::Release);
        self.made.store(chunk as u32 + 1, Ordering::Relaxed);
        true
    }

    #[cfg(not(loom))]
    fn make(chunk: usize) -> Option<NonNull<T>> {
        // SAFETY: no `T` here has size 0. Zeros are valid: the contract of `Fresh`.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout::<T>(chunk)) }.cast())
    }

    #[cfg(loom)]
    fn make(chunk: usize) -> Option<NonNull<T>> {
        // SAFETY: no `T` here has size 0; each element is written.
        unsafe {
            let start = NonNull::new(std::alloc::alloc(layout::<T>(chunk)).cast::<T>())?;
            (0..length(chunk)).for_each(|index| start.add(index).write(T::fresh()));
            Some(start)
        }
    }
}

impl<T> Drop for Chunks<T> {
    fn drop(&mut self) {
        for chunk in 0..self.made.load(Ordering::Relaxed) as usize {
            let start = self.chunks[chunk].load(Ordering::Relaxed).wrapping_add(before(chunk));
            let elements = std::ptr::slice_from_raw_parts_mut(start, length(chunk));
            // SAFETY: exclusive access; `make` allocated it with this layout, and all elements are valid.
            unsafe {
                elements.drop_in_place();
                dealloc(start.cast(), layout::<T>(chunk));
            }
        }
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::cell::Cell;

    // SAFETY: a cell of zero is zeros.
    unsafe impl Fresh for Cell<u64> {}

    #[test]
    fn elements_keep_their_address_and_value_while_the_array_grows() {
        let array: Chunks<Cell<u64>> = Chunks::new();
        let mut cells = Vec::new();
        for index in 0..5000 {
            assert!(array.reach(index));
            // SAFETY: just made.
            let element = unsafe { array.at(index) };
            assert_eq!(element.get(), 0);
            element.set(u64::from(index) + 1);
            cells.push(std::ptr::from_ref(element));
        }
        for index in 0..5000 {
            // SAFETY: made above.
            let element = unsafe { array.at(index) };
            assert_eq!(
                (element.get(), std::ptr::from_ref(element)),
                (u64::from(index) + 1, cells[index as usize])
            );
        }
        assert!(!array.reach(CAPACITY));
    }

    #[test]
    fn indices_fill_the_chunks_without_a_gap() {
        let location = |index| {
            // SAFETY: those below are below the capacity.
            let chunk = unsafe { chunk_of(index) };
            (chunk, index as usize - before(chunk))
        };
        assert_eq!((location(0), location(255), location(256)), ((0, 0), (0, 255), (1, 0)));
        assert_eq!(
            (location(767), location(768), location(CAPACITY - 1)),
            ((1, 511), (2, 0), (19, (256 << 19) - 1))
        );
    }
}
