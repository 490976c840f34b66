//! Numbers of streams.

use std::fmt;

/// The number of a stream: odd for those that clients begin. Even ones, which servers would begin to push
/// something, do not exist here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u32);

impl StreamId {
    /// The connection as a whole.
    pub(crate) const CONNECTION: Self = Self(0);
    /// The last that there can be; of a client, the last is one of these two.
    pub(crate) const LAST: Self = Self((1 << 31) - 1);

    /// The reserved bit is dropped.
    #[inline]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number & 0x7fff_ffff)
    }

    /// As it stands in frames.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn is_connection(self) -> bool {
        self.0 == 0
    }

    /// Whether a client begins it.
    #[inline]
    pub(crate) const fn is_of_client(self) -> bool {
        self.0 % 2 == 1
    }

    /// That after it on the same side. None when there are no more.
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
