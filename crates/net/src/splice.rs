//! When bytes go from one socket to the other inside the kernel, instead of through the program's memory
//! (R-B7).
//!
//! A splice takes two calls for what a pipe holds, a copy two for what a cluster holds. It pays for long
//! bodies; for short ones the pipe and the change from one way to the other cost more than the copy. It is
//! possible where both ends are plain sockets: what is decrypted, compressed or looked at has to come into
//! memory, and what is there already goes out first.

use crate::connection::Connection;
use manylane_io::Stream;

/// Bytes from which on splicing is worth its pipe: four times what one read takes in.
pub const SPLICE_FROM: u64 = 64 << 10;

/// How much is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// So many bytes are left.
    Bytes(u64),
    /// All until the end of the stream, which was so many bytes so far: who sent much will send more.
    UntilEnd {
        /// Bytes so far.
        forwarded: u64,
    },
}

/// When to splice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplicePolicy {
    /// The least number of bytes to expect; `u64::MAX` never splices. Default [`SPLICE_FROM`].
    pub from: u64,
}

impl Default for SplicePolicy {
    fn default() -> Self {
        Self { from: SPLICE_FROM }
    }
}

impl SplicePolicy {
    /// The two streams to splice, if it can be done and is worth it. The caller knows that nobody has to see
    /// the bytes.
    pub fn streams<'a>(
        self,
        from: &'a Connection,
        to: &'a Connection,
        expected: Expected,
    ) -> Option<(&'a Stream, &'a Stream)> {
        let (Expected::Bytes(bytes) | Expected::UntilEnd { forwarded: bytes }) = expected;
        if bytes < self.from {
            return None;
        }
        from.stream().zip(to.stream())
    }
}
