//! Chains and segments in transfer between lanes.

use crate::chain::Chain;
use crate::segment::Segment;
use std::fmt;

/// A chain that belongs to no lane. It can be sent, and opened or dropped on another lane.
///
/// Every segment in it holds a unit of its own (rules 5 to 7 of the count). Packing the only segment of a
/// cluster and opening it on another lane takes no locked instruction: the other lane becomes the owner.
///
/// ```
/// # fn main() -> Result<(), manylane_buf::Error> {
/// use manylane_buf::{Chain, Parcel};
/// let mut chain = Chain::new();
/// chain.append(b"hello")?;
/// let parcel = Parcel::from(chain);
/// let len = std::thread::spawn(move || Chain::from(parcel).len()).join().expect("no panic");
/// assert_eq!(len, 5);
/// # Ok(()) }
/// ```
pub struct Parcel(Chain);

// SAFETY: rule 1 of the count: a parcel holds only unit handles, each of which any lane may use and release.
// Nothing else in it belongs to a lane: ring blocks may be freed into any lane's cache.
unsafe impl Send for Parcel {}
// SAFETY: a shared parcel gives only two numbers, which do not change while it is shared.
unsafe impl Sync for Parcel {}

impl Parcel {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Opens the parcel on the calling lane. O(segments); cannot fail.
    #[inline]
    pub fn open(self) -> Chain {
        let mut chain = self.0;
        chain.segments.iter_mut().for_each(|segment| segment.unpack());
        chain
    }
}

impl From<Chain> for Parcel {
    /// O(segments); cannot fail.
    #[inline]
    fn from(mut chain: Chain) -> Self {
        chain.segments.iter_mut().for_each(|segment| segment.pack());
        Self(chain)
    }
}

impl From<Parcel> for Chain {
    #[inline]
    fn from(parcel: Parcel) -> Self {
        parcel.open()
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("len", &self.len()).finish()
    }
}

/// A segment that belongs to no lane: a [`Parcel`] of one, in 24 bytes. It can be sent, and opened or dropped
/// on another lane.
///
/// ```
/// # fn main() -> Result<(), manylane_buf::Error> {
/// use manylane_buf::{Cluster, PackedSegment};
/// let packed = PackedSegment::from(Cluster::with(b"hello")?.into_segment());
/// let len = std::thread::spawn(move || packed.open().len()).join().expect("no panic");
/// assert_eq!(len, 5);
/// # Ok(()) }
/// ```
pub struct PackedSegment(Segment);

// SAFETY: rule 1 of the count, as for a parcel.
unsafe impl Send for PackedSegment {}
// SAFETY: a shared value gives only a number, which does not change.
unsafe impl Sync for PackedSegment {}

#[cfg(not(any(loom, manylane_sim)))]
const _: () = assert!(size_of::<Option<PackedSegment>>() == 24);

impl PackedSegment {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Opens the segment on the calling lane. Cannot fail.
    #[inline]
    pub fn open(mut self) -> Segment {
        self.0.unpack();
        self.0
    }
}

impl From<Segment> for PackedSegment {
    #[inline]
    fn from(mut segment: Segment) -> Self {
        segment.pack();
        Self(segment)
    }
}

impl fmt::Debug for PackedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedSegment").field("len", &self.len()).finish()
    }
}
