//! Protocol versions.

use std::fmt;

/// Major and minor number of a message's version, one digit each (RFC 9110, 2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    major: u8,
    minor: u8,
}

impl Version {
    /// A request without a version; its response is a body and nothing else.
    pub const HTTP_09: Self = Self { major: 0, minor: 9 };
    /// HTTP/1.0: a connection ends after each response unless both sides agree otherwise.
    pub const HTTP_10: Self = Self { major: 1, minor: 0 };
    /// HTTP/1.1
    pub const HTTP_11: Self = Self { major: 1, minor: 1 };
    /// HTTP/2
    pub const HTTP_2: Self = Self { major: 2, minor: 0 };
    /// HTTP/3
    pub const HTTP_3: Self = Self { major: 3, minor: 0 };

    /// Creates any version.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }

    /// Returns the major number.
    pub const fn major(self) -> u8 {
        self.major
    }

    /// Returns the minor number.
    pub const fn minor(self) -> u8 {
        self.minor
    }

    /// Returns the version in a start line of HTTP/1: 1.1 for every version from 1.1 on, later majors
    /// included.
    pub fn h1_name(self) -> &'static [u8] {
        if self < Self::HTTP_11 { b"HTTP/1.0" } else { b"HTTP/1.1" }
    }
}

impl fmt::Display for Version {
    /// Writes `HTTP/1.1`, `HTTP/2.0` and so on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP/{}.{}", self.major, self.minor)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
