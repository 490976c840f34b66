//! Errors: no memory, a position outside, a size beyond a bound.

use manylane_pool::AllocError;
use std::fmt;

/// Why an operation on a cluster, a segment or a chain was refused. A refused operation leaves its input
/// unchanged (R-B6).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pool has no memory. Try later, or free something first.
    Alloc(AllocError),
    /// A position lies outside the data. The caller's arithmetic is wrong.
    OutOfRange(OutOfRange),
    /// A single piece would have more bytes than the largest cluster, or than an external segment can have.
    TooLong {
        /// The requested operation.
        operation: &'static str,
        /// The requested number of bytes.
        wanted: usize,
        /// Maximum number of bytes of one piece.
        limit: usize,
    },
    /// A chain would have more segments than [`MAX_SEGMENTS`](crate::MAX_SEGMENTS).
    TooManySegments {
        /// Maximum number of segments.
        limit: usize,
    },
    /// The caller requested a cluster of no bytes.
    EmptyCluster,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => error.fmt(f),
            Self::OutOfRange(error) => error.fmt(f),
            Self::TooLong { operation, wanted, limit } => write!(
                f,
                "{operation} of {wanted} bytes: one piece has at most {limit}; ask for less at a time"
            ),
            Self::TooManySegments { limit } => write!(
                f,
                "the chain would have more than {limit} segments; send or join some of it before adding more"
            ),
            Self::EmptyCluster => {
                f.write_str("a cluster of 0 bytes was requested; an empty chain needs no cluster")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Alloc(error) => Some(error),
            Self::OutOfRange(error) => Some(error),
            _ => None,
        }
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl From<OutOfRange> for Error {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Alloc(_) | Error::TooManySegments { .. } => std::io::ErrorKind::OutOfMemory,
            _ => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// A position beyond the end of a segment or chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    pub(crate) operation: &'static str,
    pub(crate) what: &'static str,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl OutOfRange {
    /// Checks that `at` is a position in, or just behind, a `what` of `len` bytes.
    #[inline]
    pub(crate) fn check(
        operation: &'static str,
        what: &'static str,
        at: usize,
        len: usize,
    ) -> Result<(), Self> {
        if at <= len { Ok(()) } else { Err(Self { operation, what, at, len }) }
    }

    /// Returns the requested position or number of bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the length of the data.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, what, at, len } = self;
        write!(f, "{operation} {at} of a {what} of {len} bytes: use a position from 0 to {len}")
    }
}

impl std::error::Error for OutOfRange {}

/// Error: a segment that did not fit into its chain, with the segment and the reason.
#[derive(Debug)]
pub struct PushError {
    /// The segment, unchanged.
    pub segment: crate::Segment,
    /// Reason of the refusal.
    pub error: Error,
}

impl PushError {
    /// Puts the segment back to the front of the chain from which the caller has just taken it, and returns
    /// the reason.
    #[cold]
    pub fn back_into(self, chain: &mut crate::Chain) -> Error {
        let back = chain.push_front(self.segment);
        debug_assert!(back.is_ok(), "it came from there, so there is room");
        self.error
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PushError {}

impl From<PushError> for Error {
    fn from(refused: PushError) -> Self {
        refused.error
    }
}
