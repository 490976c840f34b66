//! Pools of memory without a type: buffers.

use crate::error::{AllocError, PoolError};
use crate::inner::{Hot, Inner};
use crate::options::Options;
use crate::report::PoolReport;
use manylane_stats::{CallSite, MemReport};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// A pool of byte blocks of one size. A cheap handle: copies are the same pool, which lives as long as the
/// process.
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
    /// A pool called `name` of blocks of `size` bytes, aligned to 64.
    ///
    /// # Errors
    /// [`PoolError`] for 0 bytes, or more than [`MAX_OBJECT_BYTES`](crate::MAX_OBJECT_BYTES).
    pub fn new(name: &str, size: usize) -> Result<Self, PoolError> {
        Self::with(name, size, Options::new())
    }

    /// As [`new`](Self::new), with options.
    ///
    /// # Errors
    /// [`PoolError`] for a size or an option that no pool can have.
    #[allow(clippy::needless_pass_by_value)] // options are built in the call
    pub fn with(name: &str, size: usize, options: Options) -> Result<Self, PoolError> {
        Ok(Self { inner: Inner::leak(name, size, options.align_or(64), &options)? })
    }

    /// A block for the calling lane: its cache's latest, else as the crate's page says.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory, the limit is reached, or a test injected it.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(self) -> Result<PooledBytes, AllocError> {
        let (block, home) = self.inner.take()?;
        Ok(PooledBytes { block, home })
    }

    /// Gives a block back to the calling lane's cache.
    ///
    /// # Safety
    /// `block` came from [`PooledBytes::into_raw`] of this pool, on any lane, and nobody uses it any more.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn free_raw(self, block: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { self.inner.give(block) };
    }

    /// The owner of a block again.
    ///
    /// # Safety
    /// `block` came from [`PooledBytes::into_raw`] of this pool and has no other owner.
    #[inline]
    pub unsafe fn from_raw(self, block: NonNull<u8>) -> PooledBytes {
        PooledBytes { block, home: self.inner.home() }
    }

    /// Bytes of a block that may be used: the size asked for, rounded up to the alignment.
    #[inline]
    pub fn block_size(self) -> usize {
        self.inner.options.layout.size()
    }

    /// The pool's name.
    pub fn name(self) -> &'static str {
        self.inner.name
    }

    /// Blocks that the calling lane took, less those that it gave back: negative where it gives back what
    /// others took. Cost: a line of its own.
    pub fn used_here(self) -> i64 {
        self.inner.used_here()
    }

    /// Blocks in use, on all lanes. Cost: a line of each lane.
    pub fn used(self) -> i64 {
        self.inner.used()
    }

    /// The pool's numbers, read while the lanes go on.
    pub fn report(self) -> PoolReport {
        PoolReport::of(self.inner)
    }

    /// Who allocated from it (R-C3), most bytes first. Empty without the feature `call-sites`.
    pub fn call_sites(self) -> Vec<CallSite> {
        MemReport::call_sites(self.inner)
    }

    /// Gives free blocks back to the allocator and returns how many; see [`reclaim`](crate::reclaim).
    pub fn reclaim(self) -> usize {
        self.inner.reclaim()
    }

    /// For models only: frees the pool.
    ///
    /// # Safety
    /// Nobody uses the pool any more, and all blocks were given back.
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

/// Owns a block of a [`BytePool`]. Dropped, the block goes to the cache of the lane that drops it, and nobody
/// can reach it any more (R-D3).
pub struct PooledBytes {
    block: NonNull<u8>,
    /// The part of the lane that took the block, most likely the one that drops it.
    home: &'static Hot,
}

// SAFETY: it owns its block, as a box does, and any lane may give one back.
unsafe impl Send for PooledBytes {}
// SAFETY: a shared reference gives no access to the bytes other than by raw pointer.
unsafe impl Sync for PooledBytes {}

impl PooledBytes {
    /// The bytes, which hold whatever their last user left (or nothing that may be read).
    #[inline]
    pub fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let size = self.home.pool().options.layout.size();
        // SAFETY: `Resolved` refuses a size of 0. So whoever looks at the first byte needs not load the size.
        unsafe { std::hint::assert_unchecked(size > 0) };
        // SAFETY: the block is ours and has this many bytes; `MaybeUninit` needs nothing of them.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().cast(), size) }
    }

    /// Fills the block and gives the bytes.
    pub fn fill(&mut self, byte: u8) -> &mut [u8] {
        let bytes = self.as_uninit();
        bytes.fill(MaybeUninit::new(byte));
        // SAFETY: all were just written.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    /// Where the block begins.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr()
    }

    /// The pool that it belongs to.
    #[inline]
    pub fn pool(&self) -> BytePool {
        BytePool { inner: self.home.pool() }
    }

    /// Gives up ownership: the block goes back with [`BytePool::free_raw`] or [`BytePool::from_raw`], on any
    /// lane.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).block
    }
}

impl Drop for PooledBytes {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn drop(&mut self) {
        // SAFETY: the block came from this pool, we own it, and this is the end of us.
        unsafe { self.home.give_home(self.block) };
    }
}

impl fmt::Debug for PooledBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBytes({:p} of {:?})", self.block, self.home.pool().name)
    }
}
