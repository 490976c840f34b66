//! A server as the configuration describes it.

use std::fmt;
use std::time::Duration;

/// Highest weight of a server.
pub const MAX_WEIGHT: u16 = 256;
/// Number of steps in one unit of weight, for slow start and percentages.
pub const WEIGHT_SCALE: u32 = 16;
/// Largest number of servers in a backend: tables hold their indexes in two bytes.
pub const MAX_SERVERS: usize = u16::MAX as usize;

/// Index of a server: its position in the backend's configuration, from 0. It stays the same for a
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub(crate) u16);

impl Index {
    /// Returns the index as a number.
    #[inline]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One server as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Name, unique in the backend.
    pub name: Box<str>,
    /// `id`: unique in the backend, from 1.
    pub id: u32,
    /// `weight`: 0 to [`MAX_WEIGHT`].
    pub weight: u16,
    /// `backup`
    pub backup: bool,
    /// `cookie`: the value that names the server.
    pub cookie: Option<Box<[u8]>>,
    /// `maxconn`; 0 for no limit.
    pub maxconn: u32,
    /// `minconn`; 0 for none.
    pub minconn: u32,
    /// `maxqueue`; 0 for no limit.
    pub maxqueue: u32,
    /// `slowstart`; zero for none.
    pub slowstart: Duration,
    /// `disabled`: in maintenance from the start.
    pub disabled: bool,
    /// True if its name has no address yet.
    pub unresolved: bool,
    /// True if the server was deleted. Its position is free and no request goes there. Its name, id and
    /// cookie no longer find it, but its id still has a rank.
    pub gone: bool,
    /// Number that represents the server on the ring of consistent hashing and in Maglev's table
    /// (`hash-key`); `None` for its id.
    pub hash_key: Option<u32>,
}

impl ServerSpec {
    /// Returns a server with the defaults of the configuration language: weight 1, no limits.
    pub fn new(name: impl Into<Box<str>>, id: u32) -> Self {
        Self {
            name: name.into(),
            id,
            weight: 1,
            backup: false,
            cookie: None,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            slowstart: Duration::ZERO,
            disabled: false,
            unresolved: false,
            gone: false,
            hash_key: None,
        }
    }

    /// Returns the number that represents the server in hashes.
    pub(crate) fn hash_key(&self) -> u32 {
        self.hash_key.unwrap_or(self.id)
    }
}

/// Reason why a backend cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There are more than [`MAX_SERVERS`] servers.
    TooMany(usize),
    /// Two servers have this name.
    SameName(Box<str>),
    /// Two servers have this id.
    SameId(u32),
    /// A server's weight is above [`MAX_WEIGHT`].
    Weight(Box<str>, u16),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(n) => {
                write!(
                    f,
                    "a backend has {n} servers, more than {MAX_SERVERS}: spread them over several backends"
                )
            }
            Self::SameName(name) => write!(f, "two servers are named `{name}`: give each a name of its own"),
            Self::SameId(id) => write!(f, "two servers have the id {id}: give each an id of its own"),
            Self::Weight(name, weight) => {
                write!(f, "server `{name}` has the weight {weight}: weights go from 0 to {MAX_WEIGHT}")
            }
        }
    }
}

impl std::error::Error for BuildError {}
