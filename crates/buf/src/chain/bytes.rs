//! Bytes into a chain: copied into room that nobody else looks at, else into new clusters.

use super::Chain;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::header::Header;
use crate::segment::{Claim, Segment};
use crate::store::{CLUSTER_SIZES, MAX_CLUSTER};
use std::fmt;
use std::mem::MaybeUninit;

/// Fewer bytes than this fill less than half of a large cluster, and lie in several small ones instead: a
/// copy leaves at most a small cluster nearly empty.
const SPARSE: usize = (size_of::<Header>() + MAX_CLUSTER) / 2;

/// The size of the next cluster for `n` bytes.
const fn size_for(n: usize) -> usize {
    if n < SPARSE { CLUSTER_SIZES[0] } else { MAX_CLUSTER }
}

/// How many clusters `n` bytes take.
const fn clusters_for(n: usize) -> usize {
    let rest = n % MAX_CLUSTER;
    n / MAX_CLUSTER + rest.div_ceil(size_for(rest))
}

impl Chain {
    /// Copies `bytes` behind the last: into the spare room of the last segment where the lane may write
    /// there, the rest into new clusters.
    ///
    /// # Errors
    /// When there is no memory; then nothing was added (R-B6).
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

    /// Copies `bytes` into new clusters behind the last segment, or does nothing.
    #[inline(never)]
    pub(super) fn append_clusters(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let number = clusters_for(bytes.len());
        self.segments.reserve(number)?;
        let mut added = Self::new();
        added.segments.reserve(number)?;
        while !bytes.is_empty() {
            let mut cluster = Cluster::alloc(size_for(bytes.len()))?;
            bytes = &bytes[cluster.put(bytes)..];
            added.push_back_reserved(cluster.into_segment());
        }
        self.append_chain_reserved(&mut added);
        Ok(())
    }

    /// Copies `parts`, one behind another, so that all of them lie in one segment: behind the last byte where
    /// the lane may write there and there is room for all, else in a new cluster of at least `size`
    /// bytes.
    ///
    /// # Errors
    /// When there is no memory, or `size` or the parts together are beyond [`MAX_CLUSTER`]; then nothing was
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

    /// Copies `bytes` before the first: into the room in front of the first segment when its cluster is the
    /// chain's alone, the rest into new clusters, which keep their unused room in front for the next
    /// call.
    ///
    /// # Errors
    /// When there is no memory; then nothing was added (R-B6).
    pub fn prepend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.segments.front().map_or(0, Segment::headroom).min(bytes.len());
        let mut rest = &bytes[..bytes.len() - room];
        let mut added = Self::new();
        if !rest.is_empty() {
            let clusters = rest.len().div_ceil(MAX_CLUSTER);
            self.segments.reserve(clusters)?;
            added.segments.reserve(clusters)?;
        }
        while !rest.is_empty() {
            let n = rest.len().min(MAX_CLUSTER);
            let class = CLUSTER_SIZES.into_iter().find(|&size| n <= size).unwrap_or(MAX_CLUSTER);
            let mut cluster = Cluster::with_headroom(class - n, n)?;
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

    /// Room of at least one byte behind the last, for a read to write into: the spare room of the last
    /// segment where the lane may write there and it has `least` bytes or more, else a new cluster of at
    /// least `size`. Until the room is filled or dropped nobody else gets it.
    ///
    /// # Errors
    /// When there is no memory, or `size` or `least` is beyond [`MAX_CLUSTER`].
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

    /// Makes the first `n` bytes contiguous, for parsers, and returns them. Nothing happens if they are
    /// already; else the missing bytes are copied behind the first segment where the lane may write
    /// there, or the `n` bytes into a new cluster.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end, [`Error::TooLong`] beyond [`MAX_CLUSTER`], [`Error::Alloc`]; the
    /// chain is then as it was.
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
        // Here 0 <= front < n <= len: there is a first segment, and a second, or `n` is 0 and the chain
        // empty.
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
                    self.push_front_reserved(front); // it came from there: there is room
                    return Err(error);
                }
            };
            cluster.put(&front);
            self.move_front(missing, |bytes| {
                cluster.put(bytes);
            });
            front = cluster.into_segment();
        }
        self.push_front_reserved(front);
        Ok(())
    }

    /// Hands the first `n` bytes to `take`, piece by piece, and drops them. There are so many.
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

/// Room behind a chain's last byte, from [`Chain::spare`]. Dropped without a commit it changes nothing; a new
/// cluster then goes back to the pool.
pub struct Spare<'a>(Room<'a>);

enum Room<'a> {
    /// Behind the last segment, claimed.
    Back { claim: Claim<'a>, len: &'a mut usize },
    /// In a new cluster, for whose segment there is room in the chain.
    Fresh { cluster: Cluster, chain: &'a mut Chain },
}

impl Spare<'_> {
    /// Has `write` write into the room. It returns the part that it has initialised, from the start on, the
    /// way `rustix::io::read` does with an uninitialised buffer; that part joins the chain. Returns its
    /// length.
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
    /// Those of `write`; then nothing was added.
    ///
    /// # Panics
    /// When the returned bytes are not from the start of the room.
    #[inline]
    pub fn fill<E>(
        self,
        write: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<&'b mut [u8], E>,
    ) -> Result<usize, E> {
        match self.0 {
            Room::Fresh { mut cluster, chain } => {
                let n = filled(cluster.spare_mut(), write)?;
                // SAFETY: `filled` returns how many bytes from the start on are initialised.
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

/// Runs `write` on `room`: how many bytes it has initialised, from the start on.
#[inline]
fn filled<E>(
    room: &mut [MaybeUninit<u8>],
    write: impl for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<&'b mut [u8], E>,
) -> Result<usize, E> {
    let (start, len) = (room.as_ptr().addr(), room.len());
    let written = write(room)?;
    // Only a part of the room can be at its address while it is borrowed; an empty slice may be anywhere.
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
