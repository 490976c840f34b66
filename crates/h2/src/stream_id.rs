//! Stream identifiers.

use std::fmt;

/// Identifier of a stream: odd for streams that clients begin. Even ones, for pushes of servers, do not occur
/// here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u32);

impl StreamId {
    /// The connection as a whole.
    pub(crate) const CONNECTION: Self = Self(0);
    /// The largest identifier; a server's first GOAWAY carries it.
    pub(crate) const LAST: Self = Self((1 << 31) - 1);

    /// Creates an identifier; the reserved bit is dropped.
    #[inline]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number & 0x7fff_ffff)
    }

    /// Returns the number in frames.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn is_connection(self) -> bool {
        self.0 == 0
    }

    /// Returns whether clients begin streams with this identifier.
    #[inline]
    pub(crate) const fn is_of_client(self) -> bool {
        self.0 % 2 == 1
    }

    /// Returns the next identifier of the same side; `None` if there are no more.
    pub(crate) fn next(self) -> Option<Self> {
        (self.0 + 2 <= Self::LAST.0).then_some(Self(self.0 + 2))
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}
