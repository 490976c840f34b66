//! Allocators, called directly: none is installed globally, so that all can be measured in one run.
#![allow(unsafe_code)] // calling an allocator is unsafe by its trait

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A compared allocator.
pub trait Allocator: 'static {
    /// The name in tables.
    const NAME: &'static str;
    /// Its type.
    type Global: GlobalAlloc;
    /// The allocator, which has no state.
    const GLOBAL: Self::Global;
}

macro_rules! allocators {
    ($($(#[$doc:meta])* $name:ident, $label:literal, $global:ty, $value:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;
        impl Allocator for $name {
            const NAME: &'static str = $label;
            type Global = $global;
            const GLOBAL: Self::Global = $value;
        }
    )*};
}

#[cfg(feature = "allocators")]
allocators! {
    /// snmalloc.
    Snmalloc, "snmalloc", snmalloc_rs::SnMalloc, snmalloc_rs::SnMalloc;
    /// jemalloc.
    Jemalloc, "jemalloc", tikv_jemallocator::Jemalloc, tikv_jemallocator::Jemalloc;
}

allocators! {
    /// mimalloc.
    Mimalloc, "mimalloc", mimalloc::MiMalloc, mimalloc::MiMalloc;
    /// The system's `malloc`.
    Malloc, "system malloc", System, System;
}

/// `SIZE` bytes from an allocator, freed on drop on any thread.
#[derive(Debug)]
pub struct Block<A: Allocator, const SIZE: usize> {
    start: NonNull<u8>,
    from: PhantomData<A>,
}

// SAFETY: owns its memory, which any thread may use and free.
unsafe impl<A: Allocator, const SIZE: usize> Send for Block<A, SIZE> {}

impl<A: Allocator, const SIZE: usize> Block<A, SIZE> {
    const LAYOUT: Layout = match Layout::from_size_align(SIZE, 16) {
        Ok(layout) if SIZE > 0 => layout,
        _ => panic!("blocks have a size"),
    };

    /// Allocates.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "it allocates, and that is all it is for")]
    pub fn new() -> Self {
        // SAFETY: the layout has a size.
        let start = unsafe { A::GLOBAL.alloc(Self::LAYOUT) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(Self::LAYOUT) };
        Self { start, from: PhantomData }
    }

    /// Writes the first byte, as every user of a buffer does.
    #[inline(always)]
    pub fn touch(&mut self, value: u8) {
        // SAFETY: allocated with at least one byte, and ours.
        unsafe { self.start.as_ptr().write_volatile(value) };
    }
}

impl<A: Allocator, const SIZE: usize> Drop for Block<A, SIZE> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { A::GLOBAL.dealloc(self.start.as_ptr(), Self::LAYOUT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_are_distinct_and_writable<A: Allocator>() {
        let mut blocks: Vec<Block<A, 16384>> = (0..64).map(|_| Block::new()).collect();
        blocks.iter_mut().enumerate().for_each(|(i, block)| block.touch(i as u8));
        let mut starts: Vec<usize> = blocks.iter().map(|block| block.start.addr().get()).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 16384), "{}", A::NAME);
        std::thread::spawn(move || drop(blocks)).join().expect("freeing elsewhere is fine");
    }

    #[test]
    fn every_allocator_gives_memory_of_its_own() {
        #[cfg(feature = "allocators")]
        blocks_are_distinct_and_writable::<Snmalloc>();
        #[cfg(feature = "allocators")]
        blocks_are_distinct_and_writable::<Jemalloc>();
        blocks_are_distinct_and_writable::<Mimalloc>();
        blocks_are_distinct_and_writable::<Malloc>();
    }
}
