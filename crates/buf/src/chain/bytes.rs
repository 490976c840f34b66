//! Adds bytes to a chain: copies them into spare room that no other handle sees, otherwise into new clusters.

use super::Chain;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::header::Header;
use crate::segment::{Claim, Segment};
use crate::store::{CLUSTER_SIZES, MAX_CLUSTER};
use std::fmt;
use std::mem::MaybeUninit;

/// Limit for small clusters: fewer bytes fill less than half of a large cluster, so they go into several
/// small ones. A copy then leaves at most one small cluster nearly empty.
const SPARSE: usize = (size_of::<Header>() + MAX_CLUSTER) / 2;

/// Size of the next cluster for `n` bytes.
const fn size_for(n: usize) -> usize {
    if n < SPARSE { CLUSTER_SIZES[0] } else { MAX_CLUSTER }
}

/// Number of clusters for `n` bytes.
const fn clusters_for(n: usize) -> usize {
    let rest = n % MAX_CLUSTER;
    n / MAX_CLUSTER + rest.div_ceil(size_for(rest))
}

impl Chain {
    /// Appends a copy of `bytes`: into the spare room of the last segment if the lane may write there, the
    /// rest into new clusters.
    ///
    /// # Errors
    /// If there is no memory; then nothing is added (R-B6).
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let taken = self.segments.back_mut().map_or(0, |back| back.append(bytes));
        let rest = &bytes[taken..];
        if !rest.is_empty()
            && let Err(error) = self.append_clusters(rest)
        {
            if let Some(back) = self.segments.back_mut() {
                back.take_back(taken);
            }
            return Err(error);
        }
        self.len += taken;
        Ok(())
    }

    /// Appends a copy of `bytes` in new clusters, or adds nothing.
    #[inline(never)]
    pub(super) fn append_clusters(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let number = clusters_for(bytes.len());
        self.segments.reserve(number)?;
        let mut added = Self::new();
        added.segments.reserve(number).inspect_err(|_| self.segments.free_unused())?;
        while !bytes.is_empty() {
            let mut cluster =
                Cluster::alloc(size_for(bytes.len())).inspect_err(|_| self.segments.free_unused())?;
            bytes = &bytes[cluster.put(bytes)..];
            added.push_back_reserved(cluster.into_segment());
        }
        self.append_chain_reserved(&mut added);
        Ok(())
    }

    /// Appends copies of `parts` in order, all in one segment: behind the last byte if the lane may write
    /// there and all parts fit, otherwise in a new cluster of at least `size` bytes.
    ///
    /// # Errors
    /// If there is no memory, or if `size` or the sum of the parts exceeds [`MAX_CLUSTER`]; then nothing is
    /// added (R-B6).
    pub fn append_together(&mut self, parts: &[&[u8]], size: usize) -> Result<(), Error> {
        let total = parts.iter().map(|part| part.len()).sum::<usize>();
        if let Some(back) = self.segments.back_mut()
            && back.spare() >= total
        {
            for part in parts {
                back.append(part);
            }
            self.len += total;
            return Ok(());
        }
        if total == 0 {
            return Ok(());
        }
        self.segments.reserve(1)?;
        let mut cluster = Cluster::alloc(size.max(total))?;
        for part in parts {
            cluster.put(part);
        }
        self.push_back_reserved(cluster.into_segment());
        Ok(())
    }

    /// Prepends a copy of `bytes`: into the room in front of the first segment if the chain is the only owner
    /// of that cluster, the rest into new clusters, which leave their unused room in front for the next call.
    ///
    /// # Errors
    /// If there is no memory; then nothing is added (R-B6).
    pub fn prepend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.segments.front().map_or(0, Segment::headroom).min(bytes.len());
        let mut rest = &bytes[..bytes.len() - room];
        let mut added = Self::new();
        if !rest.is_empty() {
            let clusters = rest.len().div_ceil(MAX_CLUSTER);
            self.segments.reserve(clusters)?;
            added.segments.reserve(clusters).inspect_err(|_| self.segments.free_unused())?;
        }
        while !rest.is_empty() {
            let n = rest.len().min(MAX_CLUSTER);
            let class = CLUSTER_SIZES.into_iter().find(|&size| n <= size).unwrap_or(MAX_CLUSTER);
            let mut cluster =
                Cluster::with_headroom(class - n, n).inspect_err(|_| self.segments.free_unused())?;
            let (before, last) = rest.split_at(rest.len() - n);
            cluster.put(last);
            added.push_front_reserved(cluster.into_segment());
            rest = before;
        }
        if let Some(front) = self.segments.front_mut() {
            self.len += front.prepend(&bytes[bytes.len() - room..]);
        }
        while let Some(segment) = added.pop_back() {
            self.push_front_reserved(segment);
        }
        Ok(())
    }

    /// Reserves at least one byte behind the last byte, for a read to write into: the spare room of the last
    /// segment if the lane may write there and it has at least `least` bytes, otherwise a new cluster of at
    /// least `size` bytes. No other handle gets the room until it is filled or dropped.
    ///
    /// # Errors
    /// If there is no memory, or if `size` or `least` exceeds [`MAX_CLUSTER`].
    #[inline]
    pub fn spare(&mut self, least: usize, size: usize) -> Result<Spare<'_>, Error> {
        let least = least.max(1);
        if self.segments.back_mut().is_some_and(|back| back.spare() >= least) {
            let claim = self.segments.back_mut().and_then(Segment::claim);
            let claim = claim.expect("there is room, as of just now");
            return Ok(Spare(Room::Back { claim, len: &mut self.len }));
        }
        self.segments.reserve(1)?;
        let cluster = Cluster::alloc(size.max(least))?;
        Ok(Spare(Room::Fresh { cluster, chain: self }))
    }

    /// Makes the first `n` bytes contiguous, for parsers, and returns them. Does nothing else if they are
    /// contiguous already. Otherwise copies the missing bytes behind the first segment if the lane may write
    /// there, or all `n` bytes into a new cluster. A cluster with a copy of bytes that are marked [zero on
    /// free](Segment::zero_on_free) is marked, too.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end, [`Error::TooLong`] beyond [`MAX_CLUSTER`], [`Error::Alloc`]; the
    /// chain is then unchanged.
    #[inline]
    pub fn pull_up(&mut self, n: usize) -> Result<&[u8], Error> {
        if self.segments.front().is_none_or(|front| front.len() < n) {
            self.pull_up_slowly(n)?;
        }
        Ok(self.segments.front().map_or(&[], |front| &front[..n]))
    }

    #[cold]
    fn pull_up_slowly(&mut self, n: usize) -> Result<(), Error> {
        crate::error::OutOfRange::check("pull up of", "chain", n, self.len())?;
        if n > MAX_CLUSTER {
            return Err(Error::TooLong { operation: "pull up", wanted: n, limit: MAX_CLUSTER });
        }
        // Here 0 <= front < n <= len: there is a first segment and a second one, or `n` is 0 and the chain
        // empty.
        let is_marked = self.is_zero_on_free_before(n);
        let Some(mut front) = self.pop_front() else { return Ok(()) };
        let missing = n - front.len();
        if front.spare() >= missing {
            self.move_front(missing, |bytes| {
                front.append(bytes);
            });
        } else {
            let mut cluster = match Cluster::alloc(n) {
                Ok(cluster) => cluster,
                Err(error) => {
                    self.push_front_reserved(front); // it came from there, so there is room
                    return Err(error);
                }
            };
            cluster.put(&front);
            self.move_front(missing, |bytes| {
                cluster.put(bytes);
            });
            front = cluster.into_segment();
        }
        if is_marked {
            let marked = front.zero_on_free();
            debug_assert!(marked.is_ok(), "it was writable just now");
        }
        self.push_front_reserved(front);
        Ok(())
    }

    /// True if a segment that has some of the first `n` bytes is marked *zero on free*.
    fn is_zero_on_free_before(&self, n: usize) -> bool {
        let mut left = n;
        self.segments().any(|segment| {
            let counts = left > 0;
            left = left.saturating_sub(segment.len());
            counts && segment.is_zero_on_free()
        })
    }

    /// Passes the first `n` bytes to `take`, piece by piece, and drops them. The chain has that many.
    fn move_front(&mut self, mut n: usize, mut take: impl FnMut(&[u8])) {
        while n > 0 {
            let front = self.segments.front_mut().expect("the caller has counted the bytes");
            let piece = n.min(front.len());
            take(&front[..piece]);
            self.skip(piece);
            n -= piece;
        }
    }
}

/// Room behind a chain's last byte, from [`Chain::spare`]. Dropping it without a commit changes nothing, and
/// returns a new cluster to its pool.
pub struct Spare<'a>(Room<'a>);

enum Room<'a> {
    /// Claimed room behind the last segment.
    Back { claim: Claim<'a>, len: &'a mut usize },
    /// Room in a new cluster, for whose segment the chain has reserved a place.
    Fresh { cluster: Cluster, chain: &'a mut Chain },
}

impl Spare<'_> {
    /// Calls `write` with the room. `write` returns the part that it initialised, from the start on, as
    /// `rustix::io::read` does with an uninitialised buffer. That part joins the chain, and this function
    /// returns its length.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use manylane_buf::Chain;
    /// let mut chain = Chain::new();
    /// let spare = chain.spare(1, 2048)?;
    /// let n = spare.fill(|room| Ok::<_, std::io::Error>(room[..5].write_copy_of_slice(b"hello")))?;
    /// assert_eq!(n, 5);
    /// assert_eq!(chain, b"hello");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of `write`; then nothing is added.
    ///
    /// # Panics
    /// If the returned bytes do not begin at the start of the room.
    #[inline]
    pub fn fill<E>(
        self,
        write: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<&'b mut [u8], E>,
    ) -> Result<usize, E> {
        match self.0 {
            Room::Fresh { mut cluster, chain } => {
                let n = filled(cluster.spare_mut(), write)?;
                // SAFETY: `filled` returns the number of bytes that are initialised, from the start on.
                unsafe { cluster.commit(n) };
                chain.push_back_reserved(cluster.into_segment()); // reserved in `spare`
                Ok(n)
            }
            Room::Back { mut claim, len } => {
                let n = filled(claim.bytes(), write)?;
                // SAFETY: as above.
                unsafe { claim.commit(n) };
                *len += n;
                Ok(n)
            }
        }
    }
}

impl fmt::Debug for Spare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fresh = matches!(self.0, Room::Fresh { .. });
        f.debug_struct("Spare").field("fresh", &fresh).finish_non_exhaustive()
    }
}

/// Calls `write` with `room`, and returns the number of bytes that it initialised, from the start on.
#[inline]
fn filled<E>(
    room: &mut [MaybeUninit<u8>],
    write: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<&'b mut [u8], E>,
) -> Result<usize, E> {
    let (start, len) = (room.as_ptr().addr(), room.len());
    let written = write(room)?;
    // While the room is borrowed, only a part of it can have its address; an empty slice may be anywhere.
    let n = written.len();
    assert!(
        n == 0 || (written.as_ptr().addr() == start && n <= len),
        "the bytes written must start where the room starts"
    );
    Ok(n)
}

impl std::io::Write for Chain {
    /// Appends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
