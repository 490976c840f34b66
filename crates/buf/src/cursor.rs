//! A cursor reads the segments of a chain as one run of bytes.

use crate::chain::Chain;
use crate::error::OutOfRange;
use std::io::{self, BufRead, Read};

/// A position in a chain. Reading moves the position; it does not change the chain, and copies only the bytes
/// that the caller requests.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use manylane_buf::Chain;
/// let mut chain = Chain::new();
/// chain.append(b"\x00\x05hello, world")?;
/// let mut cursor = chain.cursor();
/// let len = u16::from_be_bytes(cursor.read_array()?);
/// let mut word = [0; 5];
/// cursor.read_bytes(&mut word)?;
/// assert_eq!((len, &word), (5, b"hello"));
/// assert_eq!(cursor.find(b' '), Some(1)); // from here on
/// assert_eq!(cursor.remaining(), 7);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cursor<'a> {
    chain: &'a Chain,
    /// The rest of segment number `index`; empty only at the end of the chain.
    chunk: &'a [u8],
    index: usize,
    position: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn new(chain: &'a Chain) -> Self {
        let chunk = chain.front().map_or(&[][..], |front| front.as_slice());
        Self { chain, chunk, index: 0, position: 0 }
    }

    /// Returns the number of bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.chain.len() - self.position
    }

    /// Returns the bytes up to the end of the segment; empty only at the end of the chain.
    #[inline]
    pub fn chunk(&self) -> &'a [u8] {
        self.chunk
    }

    /// Moves by `n`, which is at most the chunk's length.
    #[inline]
    pub(crate) fn skip_in_chunk(&mut self, n: usize) {
        self.chunk = &self.chunk[n..];
        self.position += n;
        if self.chunk.is_empty() {
            self.index += 1;
            // No segment is empty (rule 1 of the chain).
            self.chunk = self.chain.segments.get(self.index).map_or(&[][..], |next| next.as_slice());
        }
    }

    /// Moves by `n` bytes.
    ///
    /// # Errors
    /// [`OutOfRange`] if fewer are left; then the cursor does not move.
    #[inline]
    pub fn advance(&mut self, mut n: usize) -> Result<(), OutOfRange> {
        OutOfRange::check("advance by", "rest of a chain", n, self.remaining())?;
        while n > 0 {
            let step = n.min(self.chunk.len());
            self.skip_in_chunk(step);
            n -= step;
        }
        Ok(())
    }

    /// Returns the next byte without moving.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.chunk.first().copied()
    }

    /// Reads the next byte.
    ///
    /// # Errors
    /// [`OutOfRange`] at the end.
    #[inline]
    pub fn read_u8(&mut self) -> Result<u8, OutOfRange> {
        self.read_array::<1>().map(|[byte]| byte)
    }

    /// Reads the next four bytes, in network order.
    ///
    /// # Errors
    /// [`OutOfRange`] if fewer are left; then the cursor does not move.
    #[inline]
    pub fn read_u32(&mut self) -> Result<u32, OutOfRange> {
        self.read_array().map(u32::from_be_bytes)
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// As [`read_u32`](Self::read_u32).
    #[inline]
    pub fn read_array<const N: usize>(&mut self) -> Result<[u8; N], OutOfRange> {
        let mut array = [0; N];
        self.read_bytes(&mut array)?;
        Ok(array)
    }

    /// Fills `bytes` with the next bytes.
    ///
    /// # Errors
    /// As [`read_u32`](Self::read_u32).
    #[inline]
    pub fn read_bytes(&mut self, bytes: &mut [u8]) -> Result<(), OutOfRange> {
        OutOfRange::check("read of", "rest of a chain", bytes.len(), self.remaining())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = rest.len().min(self.chunk.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&self.chunk[..n]);
            self.skip_in_chunk(n);
            rest = later;
        }
        Ok(())
    }

    /// Returns the distance to the next `byte`, 0 if it is the next one, without moving.
    #[inline]
    pub fn find(&self, byte: u8) -> Option<usize> {
        let mut here = self.clone();
        loop {
            if here.chunk.is_empty() {
                return None;
            }
            if let Some(at) = memchr::memchr(byte, here.chunk) {
                return Some(here.position - self.position + at);
            }
            here.skip_in_chunk(here.chunk.len());
        }
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.remaining());
        self.read_bytes(&mut bytes[..n])?;
        Ok(n)
    }
}

impl BufRead for Cursor<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.chunk)
    }

    fn consume(&mut self, n: usize) {
        self.skip_in_chunk(n);
    }
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("position", &self.position)
            .field("remaining", &self.remaining())
            .finish()
    }
}
