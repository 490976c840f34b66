//! Splicing: when bytes go from one socket to the other inside the kernel, instead of through the program's
//! memory (R-B7).
//!
//! A splice takes two calls for the contents of a pipe, a copy two for those of a cluster. It pays for long
//! bodies; for short ones, the pipe and the change of method cost more than the copy. It is possible if both
//! ends are plain sockets: bytes that are decrypted, compressed or examined must come into memory, and bytes
//! that are there already are sent first.

use crate::connection::Connection;
use manylane_io::Stream;

/// Number of bytes from which on splicing is worth its pipe: four times the size of one read.
pub const SPLICE_FROM: u64 = 64 << 10;

/// Number of bytes to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This many bytes are left.
    Bytes(u64),
    /// All bytes until the end of the stream. A stream that sent much is expected to send more.
    UntilEnd {
        /// Number of bytes forwarded so far.
        forwarded: u64,
    },
}

/// Policy for splicing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplicePolicy {
    /// Smallest number of bytes to expect; `u64::MAX` never splices. Default [`SPLICE_FROM`].
    pub from: u64,
}

impl Default for SplicePolicy {
    fn default() -> Self {
        Self { from: SPLICE_FROM }
    }
}

impl SplicePolicy {
    /// Returns the two streams to splice, if that is possible and worth it. The caller knows that no part of
    /// the program has to see the bytes.
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
