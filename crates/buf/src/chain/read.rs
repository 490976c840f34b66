//! Reads a chain without changing it.

use super::Chain;
use crate::cursor::Cursor;
use std::fmt;
use std::io::IoSlice;

impl Chain {
    /// Returns a cursor at the start; the chain stays unchanged.
    #[inline]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// Points `vectors` at the bytes, in order, for one `writev`, and returns the number of vectors used:
    /// fewer than there are segments if `vectors` is shorter.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use manylane_buf::Chain;
    /// use std::io::{IoSlice, Write};
    /// let mut chain = Chain::new();
    /// chain.append(b"hello")?;
    /// let mut vectors = [IoSlice::new(&[]); 16];
    /// let n = chain.io_slices(&mut vectors);
    /// let mut out = Vec::new();
    /// let written = out.write_vectored(&vectors[..n])?;
    /// chain.trim_front(written)?;
    /// assert!(chain.is_empty() && out == b"hello");
    /// # Ok(()) }
    /// ```
    pub fn io_slices<'a>(&'a self, vectors: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for (vector, segment) in vectors.iter_mut().zip(self.segments()) {
            *vector = IoSlice::new(segment);
            n += 1;
        }
        n
    }

    /// True if the chain begins with `bytes`.
    pub fn starts_with(&self, bytes: &[u8]) -> bool {
        if self.len() < bytes.len() {
            return false;
        }
        let mut rest = bytes;
        for segment in self.segments() {
            let n = rest.len().min(segment.len());
            if segment[..n] != rest[..n] {
                return false;
            }
            rest = &rest[n..];
            if rest.is_empty() {
                break;
            }
        }
        true
    }

    /// Returns all bytes in one vector. Allocates and copies: for tests, logs and cold paths.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        for segment in self.segments() {
            all.extend_from_slice(segment);
        }
        all
    }
}

impl PartialEq<[u8]> for Chain {
    fn eq(&self, bytes: &[u8]) -> bool {
        self.len() == bytes.len() && self.starts_with(bytes)
    }
}

impl PartialEq<&[u8]> for Chain {
    fn eq(&self, bytes: &&[u8]) -> bool {
        *self == **bytes
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Chain {
    fn eq(&self, bytes: &[u8; N]) -> bool {
        *self == bytes[..]
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Chain {
    fn eq(&self, bytes: &&[u8; N]) -> bool {
        *self == bytes[..]
    }
}

impl PartialEq for Chain {
    /// Compares the bytes; the borders of the segments do not matter.
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (mut a, mut b) = (self.cursor(), other.cursor());
        loop {
            let n = a.chunk().len().min(b.chunk().len());
            if n == 0 {
                return true; // both end together
            }
            if a.chunk()[..n] != b.chunk()[..n] {
                return false;
            }
            a.skip_in_chunk(n);
            b.skip_in_chunk(n);
        }
    }
}

impl Eq for Chain {}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("len", &self.len()).field("segments", &self.segment_count()).finish()
    }
}
