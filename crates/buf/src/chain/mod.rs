//! A queue of segments that reads as one run of bytes.
//!
//! Files: this one has the chain itself and whole segments; [`bytes`] adds bytes; [`compact`] adds bytes that
//! are to be kept; [`cut`] cuts and shares; [`read`] looks.
//!
//! Rules:
//! 1. `len` is the sum of the segments' lengths. No segment in a chain is empty.
//! 2. Two neighbours that are adjacent in one cluster are one segment: what was split and comes together
//!    again is whole again.
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
    /// No bytes. Allocates nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { segments: Deque::new(), len: 0 }
    }

    /// Bytes. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Segments. O(1).
    #[inline]
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }

    /// The segments in order; none is empty.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        let (first, second) = self.segments.as_slices();
        first.iter().chain(second)
    }

    /// The first segment.
    #[inline]
    pub fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// The last segment.
    #[inline]
    pub fn back(&self) -> Option<&Segment> {
        self.segments.back()
    }

    /// Puts a segment behind all others. An empty one is dropped. O(1); allocates a ring block when the
    /// fifth, the seventeenth, ... segment comes.
    ///
    /// # Errors
    /// [`PushError`], with the segment, when there is no memory for the ring or the chain is full.
    #[inline]
    pub fn push_back(&mut self, segment: Segment) -> Result<(), PushError> {
        if let Err(error) = self.segments.reserve(1) {
            return Err(PushError { segment, error });
        }
        self.push_back_reserved(segment);
        Ok(())
    }

    /// Puts a segment before all others. As [`push_back`](Self::push_back).
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

    /// Room for it was reserved.
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

    /// Room for it was reserved.
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

    /// Takes the first segment out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        self.len -= segment.len();
        Some(segment)
    }

    /// Takes the last segment out.
    #[inline]
    pub fn pop_back(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_back()?;
        self.len -= segment.len();
        Some(segment)
    }

    /// Moves all of `other` behind this. `other` is empty afterwards. O(segments of `other`), nothing is
    /// copied; O(1) when this chain is empty.
    ///
    /// # Errors
    /// When there is no memory for the ring or the chain would be too long; then both are as they were.
    pub fn append_chain(&mut self, other: &mut Self) -> Result<(), Error> {
        if self.is_empty() {
            std::mem::swap(self, other);
            return Ok(());
        }
        self.segments.reserve(other.segment_count())?;
        self.append_chain_reserved(other);
        Ok(())
    }

    /// Room for all segments of `other` was reserved.
    pub(crate) fn append_chain_reserved(&mut self, other: &mut Self) {
        while let Some(segment) = other.pop_front() {
            self.push_back_reserved(segment);
        }
    }

    /// Drops all segments, and gives the ring's memory back.
    pub fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    /// Marks every cluster of the chain *zero on free* (R-B5); see [`Segment::zero_on_free`].
    ///
    /// # Errors
    /// [`ReadOnly`] when at least one segment is over foreign bytes that cannot be zeroed; the others are
    /// marked all the same.
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
    /// A chain of one segment. Allocates nothing.
    fn from(segment: Segment) -> Self {
        let mut chain = Self::new();
        chain.push_back_reserved(segment); // a few fit without a block
        chain
    }
}
