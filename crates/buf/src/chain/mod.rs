//! A chain: a queue of segments that reads as one run of bytes.
//!
//! This file has the chain itself and operations on whole segments; [`bytes`] adds bytes; [`compact`] adds
//! bytes that are to be kept; [`cut`] cuts and shares; [`read`] reads.
//!
//! Rules:
//! 1. `len` is the sum of the segments' lengths. No segment in a chain is empty.
//! 2. Two neighbours that are adjacent in one cluster become one segment: pieces that were split and meet
//!    again are one segment again.
//! 3. Fallible operations allocate first and change after, so a failure leaves the chain as it was (R-B6).

mod bytes;
mod compact;
mod cut;
mod read;

pub use bytes::Spare;

use crate::deque::Deque;
use crate::error::{Error, PushError};
use crate::segment::{ReadOnly, Segment};

/// A queue of segments: bytes that arrived in pieces and leave in pieces, never copied in between.
///
/// ```
/// # fn main() -> Result<(), manylane_buf::Error> {
/// use manylane_buf::Chain;
/// let mut chain = Chain::new();
/// chain.append(b"Host: example\r\n\r\nbody")?;
/// let body = chain.split_off(17)?;
/// chain.prepend(b"GET / HTTP/1.1\r\n")?;
/// assert_eq!((chain.len(), body.len()), (33, 4));
/// assert_eq!(chain, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n");
/// # Ok(()) }
/// ```
pub struct Chain {
    pub(crate) segments: Deque,
    len: usize,
}

impl Chain {
    /// Creates an empty chain. Allocates nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { segments: Deque::new(), len: 0 }
    }

    /// Returns the number of bytes. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the chain has no bytes. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of segments. O(1).
    #[inline]
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }

    /// Iterates over the segments in order; none is empty.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        let (first, second) = self.segments.as_slices();
        first.iter().chain(second)
    }

    /// Returns the first segment.
    #[inline]
    pub fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// Returns the last segment.
    #[inline]
    pub fn back(&self) -> Option<&Segment> {
        self.segments.back()
    }

    /// Appends a segment. Drops an empty one. O(1); allocates a ring block for the fifth, the seventeenth,
    /// ... segment.
    ///
    /// # Errors
    /// [`PushError`], with the segment, if there is no memory for the ring or the chain is full.
    #[inline]
    pub fn push_back(&mut self, segment: Segment) -> Result<(), PushError> {
        if let Err(error) = self.segments.reserve(1) {
            return Err(PushError { segment, error });
        }
        self.push_back_reserved(segment);
        Ok(())
    }

    /// Prepends a segment. As [`push_back`](Self::push_back).
    ///
    /// # Errors
    /// As [`push_back`](Self::push_back).
    #[inline]
    pub fn push_front(&mut self, segment: Segment) -> Result<(), PushError> {
        if let Err(error) = self.segments.reserve(1) {
            return Err(PushError { segment, error });
        }
        self.push_front_reserved(segment);
        Ok(())
    }

    /// Appends a segment for which the caller has reserved room.
    #[inline]
    pub(crate) fn push_back_reserved(&mut self, segment: Segment) {
        if segment.is_empty() {
            return;
        }
        self.len += segment.len();
        let segment = match self.segments.back_mut() {
            Some(back) => match back.join(segment) {
                Ok(()) => return,
                Err(segment) => segment,
            },
            None => segment,
        };
        self.segments.push_back(segment);
    }

    /// Prepends a segment for which the caller has reserved room.
    #[inline]
    pub(crate) fn push_front_reserved(&mut self, segment: Segment) {
        if segment.is_empty() {
            return;
        }
        self.len += segment.len();
        let segment = match self.segments.front_mut() {
            Some(front) => match front.join_front(segment) {
                Ok(()) => return,
                Err(segment) => segment,
            },
            None => segment,
        };
        self.segments.push_front(segment);
    }

    /// Removes the first segment.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        self.len -= segment.len();
        Some(segment)
    }

    /// Removes the last segment.
    #[inline]
    pub fn pop_back(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_back()?;
        self.len -= segment.len();
        Some(segment)
    }

    /// Moves all segments of `other` behind this chain; `other` is empty afterwards. O(segments of `other`)
    /// without copying bytes; O(1) if this chain is empty.
    ///
    /// # Errors
    /// If there is no memory for the ring or the chain would be too long; then both are unchanged.
    pub fn append_chain(&mut self, other: &mut Self) -> Result<(), Error> {
        if self.is_empty() {
            std::mem::swap(self, other);
            return Ok(());
        }
        self.segments.reserve(other.segment_count())?;
        self.append_chain_reserved(other);
        Ok(())
    }

    /// As [`append_chain`](Self::append_chain); the caller has reserved room for all segments of `other`.
    pub(crate) fn append_chain_reserved(&mut self, other: &mut Self) {
        while let Some(segment) = other.pop_front() {
            self.push_back_reserved(segment);
        }
    }

    /// Drops all segments, and frees the ring's memory.
    pub fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    /// Marks every cluster of the chain *zero on free* (R-B5); see [`Segment::zero_on_free`].
    ///
    /// # Errors
    /// [`ReadOnly`] if a segment is over foreign bytes that cannot be zeroed; the others are marked all the
    /// same.
    pub fn zero_on_free(&self) -> Result<(), ReadOnly> {
        let mut all = Ok(());
        for segment in self.segments() {
            if segment.zero_on_free().is_err() {
                all = Err(ReadOnly);
            }
        }
        all
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Segment> for Chain {
    /// Makes a chain of one segment. Allocates nothing.
    fn from(segment: Segment) -> Self {
        let mut chain = Self::new();
        chain.push_back_reserved(segment); // a few segments fit without a block
        chain
    }
}
