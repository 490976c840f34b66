//! A cluster without other handles: memory to be filled.

use crate::error::Error;
use crate::header::{Header, Parts, Ref};
use crate::segment::Segment;
use crate::store::{CLUSTER_SIZES, class_of, store};
use manylane_pool::PooledBytes;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Pooled bytes with one owner, who fills them.
///
/// ```text
///   block from the lane's pool
///   +--------------------+---------------------------------------------+
///   | header, 128 bytes  | payload, 2048 or 16384 bytes, aligned to 64 |
///   +--------------------+----------------------+----------------------+
///                        | written, `len` bytes | spare                |
/// ```
///
/// The header is written when the cluster becomes a segment, since no other handle can exist before. So a
/// cluster that is dropped unfilled costs only what its pool costs: the block leaves the lane's cache and
/// returns, without a count and without a locked instruction.
///
/// ```
/// # fn main() -> Result<(), manylane_buf::Error> {
/// use manylane_buf::Cluster;
/// let mut cluster = Cluster::alloc(2048)?;
/// assert_eq!(cluster.put(b"hello"), 5);
/// assert_eq!(cluster.spare_len(), 2043);
/// let segment = cluster.into_segment();
/// assert_eq!(&*segment, b"hello");
/// # Ok(()) }
/// ```
pub struct Cluster {
    block: PooledBytes,
    capacity: u32,
    start: u32,
    end: u32,
}

impl Cluster {
    /// Allocates an empty cluster with room for at least `size` bytes: the smallest sufficient one of
    /// [`CLUSTER_SIZES`].
    ///
    /// # Errors
    /// [`Error::Alloc`]; [`Error::TooLong`] above [`MAX_CLUSTER`](crate::MAX_CLUSTER);
    /// [`Error::EmptyCluster`] for 0.
    #[inline(always)] // so that neither the value nor the result goes through memory
    pub fn alloc(size: usize) -> Result<Self, Error> {
        let class = class_of("a cluster", size)?;
        let block = store().clusters[usize::from(class)].alloc()?;
        debug_assert_eq!(block.as_ptr().addr() % align_of::<Header>(), 0, "the pool aligns its blocks");
        Ok(Self { block, capacity: CLUSTER_SIZES[usize::from(class)] as u32, start: 0, end: 0 })
    }

    /// Allocates a cluster that holds a copy of `bytes`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn with(bytes: &[u8]) -> Result<Self, Error> {
        let mut cluster = Self::alloc(bytes.len())?;
        cluster.put(bytes);
        Ok(cluster)
    }

    /// Allocates an empty cluster whose bytes will begin `headroom` bytes into the payload, so that a later
    /// prepend need not copy.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc) for `headroom + size`.
    pub fn with_headroom(headroom: usize, size: usize) -> Result<Self, Error> {
        let mut cluster = Self::alloc(headroom.saturating_add(size))?;
        cluster.start = headroom as u32;
        cluster.end = headroom as u32;
        Ok(cluster)
    }

    /// Returns the number of bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// True if nothing is written yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the number of bytes that can still be written.
    #[inline]
    pub fn spare_len(&self) -> usize {
        (self.capacity - self.end) as usize
    }

    /// Returns the size of its memory in bytes, header included.
    #[inline]
    pub fn memory(&self) -> usize {
        size_of::<Header>() + self.capacity as usize
    }

    #[inline]
    fn at(&self, offset: u32) -> NonNull<u8> {
        // SAFETY: the block is a header and a payload; offsets are in the payload, or one behind it.
        unsafe { NonNull::new_unchecked(self.block.as_ptr()).add(size_of::<Header>() + offset as usize) }
    }

    /// Returns the room behind the written bytes.
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the payload belongs to this value, since a `Cluster` is the only handle; `spare_len` bytes
        // follow `end`.
        unsafe { std::slice::from_raw_parts_mut(self.at(self.end).as_ptr().cast(), self.spare_len()) }
    }

    /// Adds the first `n` spare bytes to the written ones.
    ///
    /// # Safety
    /// The bytes are initialised.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub unsafe fn commit(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "commit of {n} bytes where {} were lent", self.spare_len());
        self.end += n as u32;
    }

    /// Copies as many of `bytes` as fit, and returns their number.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.spare_len());
        // SAFETY: the payload belongs to this value alone; `n` bytes fit.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(self.end).as_ptr(), n) };
        self.end += n as u32;
        n
    }

    /// Returns the written bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `put` or `commit` initialised them.
        unsafe { std::slice::from_raw_parts(self.at(self.start).as_ptr(), self.len()) }
    }

    /// Converts the cluster into a segment over the written bytes, which can be cloned, cut and sent. A chain
    /// can append to its spare room.
    #[inline]
    pub fn into_segment(self) -> Segment {
        let capacity = self.capacity as usize;
        let (start, len) = (self.start, self.end - self.start);
        let parts = Parts {
            data: self.at(0),
            capacity: self.capacity,
            filled: self.end,
            class: CLUSTER_SIZES.iter().position(|&size| size == capacity).expect("it is one of them") as u8,
            free_fn: 0,
            writable: true,
            argument: 0,
        };
        // SAFETY: the block came from the pool that its size names; the payload is part of it. `put` or
        // `commit` initialised the bytes of the view, and `filled` is their end.
        unsafe { Segment::over(Ref::new(self.block.into_raw(), parts), start, len) }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("len", &self.len()).field("spare", &self.spare_len()).finish()
    }
}
