//! Pools of untyped memory: buffers.

use crate::error::{AllocError, PoolError};
use crate::inner::{Hot, Inner};
use crate::options::Options;
use crate::report::PoolReport;
use manylane_stats::{CallSite, MemReport};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// A pool of byte blocks of one size. The value is a cheap handle: copies refer to the same pool, which lives
/// as long as the process.
///
/// ```
/// use manylane_pool::BytePool;
/// let buffers = BytePool::new("buffers", 16384)?;
/// let mut block = buffers.alloc()?;
/// block.fill(0)[..5].copy_from_slice(b"hello");
/// drop(block); // into this lane's cache
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct BytePool {
    inner: &'static Inner,
}

impl BytePool {
    /// Creates a pool called `name` of blocks of `size` bytes, aligned to 64.
    ///
    /// # Errors
    /// [`PoolError`] for 0 bytes, or more than [`MAX_OBJECT_BYTES`](crate::MAX_OBJECT_BYTES).
    pub fn new(name: &str, size: usize) -> Result<Self, PoolError> {
        Self::with(name, size, Options::new())
    }

    /// Creates a pool as [`new`](Self::new), with options.
    ///
    /// # Errors
    /// [`PoolError`] for a size or an option that is out of range.
    #[allow(clippy::needless_pass_by_value)] // options are built in the call
    pub fn with(name: &str, size: usize, options: Options) -> Result<Self, PoolError> {
        Ok(Self { inner: Inner::leak(name, size, options.align_or(64), &options)? })
    }

    /// Returns a block: the one freed last into the lane's cache, otherwise from the sources that the crate's
    /// page lists.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory, the limit is reached, or a test injected a failure.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(self) -> Result<PooledBytes, AllocError> {
        let (block, home) = self.inner.take()?;
        Ok(PooledBytes { block, home })
    }

    /// Returns a block to the calling lane's cache.
    ///
    /// # Safety
    /// `block` came from [`PooledBytes::into_raw`] of this pool, on any lane, and nothing uses it any more.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn free_raw(self, block: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { self.inner.give(block) };
    }

    /// Makes the owner of a raw block.
    ///
    /// # Safety
    /// `block` came from [`PooledBytes::into_raw`] of this pool and has no other owner.
    #[inline]
    pub unsafe fn from_raw(self, block: NonNull<u8>) -> PooledBytes {
        PooledBytes { block, home: self.inner.home() }
    }

    /// Returns the number of usable bytes of a block: the requested size, rounded up to the alignment.
    #[inline]
    pub fn block_size(self) -> usize {
        self.inner.options.layout.size()
    }

    /// Returns the pool's name.
    pub fn name(self) -> &'static str {
        self.inner.name
    }

    /// Returns the number of blocks that the calling lane allocated minus those that it freed: negative if it
    /// frees blocks of other lanes. Cost: a line of the lane's own.
    pub fn used_here(self) -> i64 {
        self.inner.used_here()
    }

    /// Returns the number of blocks in use on all lanes. Cost: a line of each lane.
    pub fn used(self) -> i64 {
        self.inner.used()
    }

    /// Reads the pool's numbers while the lanes go on.
    pub fn report(self) -> PoolReport {
        PoolReport::of(self.inner)
    }

    /// Returns the call sites that allocated from this pool (R-C3), most bytes first. Empty without the
    /// feature `call-sites`.
    pub fn call_sites(self) -> Vec<CallSite> {
        MemReport::call_sites(self.inner)
    }

    /// Returns free blocks to the allocator, and returns their number; see [`reclaim`](crate::reclaim).
    pub fn reclaim(self) -> usize {
        self.inner.reclaim()
    }

    /// For models only: frees the pool.
    ///
    /// # Safety
    /// Nothing uses the pool any more, and all blocks were freed.
    #[cfg(loom)]
    #[doc(hidden)]
    pub unsafe fn destroy(self) {
        // SAFETY: by contract.
        unsafe { self.inner.destroy() };
    }
}

impl fmt::Debug for BytePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BytePool({:?}, {} bytes)", self.name(), self.block_size())
    }
}

/// Owns a block of a [`BytePool`]. Dropping it returns the block to the cache of the dropping lane; nothing
/// can then reach the block through it (R-D3).
pub struct PooledBytes {
    block: NonNull<u8>,
    /// Part of the pool of the lane that allocated the block, most likely the lane that drops it.
    home: &'static Hot,
}

// SAFETY: it owns its block, as a box does, and any lane may free one.
unsafe impl Send for PooledBytes {}
// SAFETY: a shared reference gives access to the bytes only by raw pointer.
unsafe impl Sync for PooledBytes {}

impl PooledBytes {
    /// Returns the bytes, which hold whatever their last user left, or uninitialised memory.
    #[inline]
    pub fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let size = self.home.pool().options.layout.size();
        // SAFETY: `Resolved` refuses a size of 0. So a caller that accesses the first byte need not load the
        // size.
        unsafe { std::hint::assert_unchecked(size > 0) };
        // SAFETY: this value owns the block, which has this many bytes; `MaybeUninit` requires nothing of
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().cast(), size) }
    }

    /// Fills the block with `byte` and returns the bytes.
    pub fn fill(&mut self, byte: u8) -> &mut [u8] {
        let bytes = self.as_uninit();
        bytes.fill(MaybeUninit::new(byte));
        // SAFETY: all bytes were just written.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    /// Returns the address of the block.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr()
    }

    /// Gives up ownership. [`BytePool::free_raw`] or [`BytePool::from_raw`] takes the block, on any lane.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).block
    }
}

impl Drop for PooledBytes {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn drop(&mut self) {
        // SAFETY: the block came from this pool, this value owns it, and ends here.
        unsafe { self.home.give_home(self.block) };
    }
}

impl fmt::Debug for PooledBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBytes({:p} of {:?})", self.block, self.home.pool().name)
    }
}
