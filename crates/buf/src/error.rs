//! What can go wrong: no memory, a position outside, a wish beyond a bound.

use manylane_pool::AllocError;
use std::fmt;

/// Why an operation on a cluster, a segment or a chain was refused. Whatever was refused left its input as
/// it was (R-B6).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pool has no memory. Try later, or give something back first.
    Alloc(AllocError),
    /// A position lies outside the data. The caller's arithmetic is wrong.
    OutOfRange(OutOfRange),
    /// More bytes in one piece than the largest cluster has, or an external segment can have.
    TooLong {
        /// What was asked for.
        operation: &'static str,
        /// Bytes asked for.
        wanted: usize,
        /// The most that one piece has.
        limit: usize,
    },
    /// A chain would get more segments than [`MAX_SEGMENTS`](crate::MAX_SEGMENTS).
    TooManySegments {
        /// The bound.
        limit: usize,
    },
    /// A cluster of no bytes was asked for.
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
                f.write_str("a cluster of 0 bytes was asked for; an empty chain needs no cluster")
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
    /// Checks that `at` is a position in, or just behind, `len` bytes of a `what`.
    #[inline]
    pub(crate) fn check(
        operation: &'static str,
        what: &'static str,
        at: usize,
        len: usize,
    ) -> Result<(), Self> {
        if at <= len { Ok(()) } else { Err(Self { operation, what, at, len }) }
    }

    /// The position or number of bytes that was asked for.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes that there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no bytes at all.
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

/// A segment that did not fit into its chain, given back with the reason.
#[derive(Debug)]
pub struct PushError {
    /// The segment, untouched.
    pub segment: crate::Segment,
    /// Why it was refused.
    pub error: Error,
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
