//! The algorithms. Each has a module with its name, its [`Row`] and its pick.
//!
//! The enum stays although rows exist: it carries parameters, and its `match` lets the compiler inline the
//! picks.

use crate::balancer::Pick;
use crate::hash::HashFunction;
use crate::lane::LaneNeeds;
use crate::snapshot::{Members, Prepared};
use crate::spec::Index;
use crate::turns::Turns;
use crate::{by_key, ewma, first, leastconn, maglev, random, ring, roundrobin, sticky};
use manylane_sched::Time;

/// `balance`: how a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `roundrobin`: in turns by weight; weights may change at any time.
    RoundRobin,
    /// `static-rr`: in turns by weight; a weight may only be set to 0 and back.
    StaticRr,
    /// `leastconn`: the least loaded server.
    LeastConn,
    /// `first`: the server with the lowest id that has room.
    First,
    /// `random(draws)`: the least loaded of several servers drawn by weight.
    Random {
        /// Number of draws, at least 1.
        draws: u32,
    },
    /// `source`, `uri`, `url_param`, `hdr`, `rdp-cookie`, `hash`: by a hash of the request's key.
    Hash(HashType),
    /// `ewma` (our own): the server with the least expected time of several drawn ones.
    Ewma {
        /// Number of draws, at least 1; usually 2.
        draws: u32,
    },
    /// `sticky`: one server as long as it takes part.
    Sticky,
    /// `maglev` (our own): by a hash of the request's key, in Maglev's table.
    Maglev(HashType),
}

/// Description of an algorithm, except for its pick. It stands in the algorithm's module.
pub(crate) struct Row {
    /// The word of `balance` that chooses it.
    pub(crate) name: &'static str,
    /// Returns the algorithm with a number of draws and a type of hash, of which it takes what it needs.
    pub(crate) make: fn(u32, HashType) -> Algorithm,
    /// True if a weight may only be set to 0 and back, because the table depends on the weights as a whole.
    pub(crate) is_static: bool,
    /// True if servers may be added while the algorithm is in use.
    pub(crate) grows: bool,
    /// True if a key alone determines the server while the servers stay the same.
    pub(crate) by_key: bool,
    /// Returns the state that the algorithm needs on each lane.
    pub(crate) wants: fn(&Options) -> LaneNeeds,
    /// Computes one period of turns.
    pub(crate) turns: fn(&mut Members<'_>) -> Turns,
    /// Computes the other data that the algorithm follows.
    pub(crate) prepare: fn(&mut Members<'_>) -> Prepared,
}

impl Row {
    /// Creates the row of an algorithm that has turns, needs no state on lanes and takes any change.
    pub(crate) const fn new(name: &'static str, make: fn(u32, HashType) -> Algorithm) -> Self {
        Self {
            name,
            make,
            is_static: false,
            grows: true,
            by_key: false,
            wants: |_| LaneNeeds::default(),
            turns: Turns::smooth,
            prepare: |_| Prepared::Nothing,
        }
    }

    /// Creates the row of an algorithm that has no turns, and is otherwise as [`new`](Self::new) states.
    pub(crate) const fn without_turns(name: &'static str, make: fn(u32, HashType) -> Algorithm) -> Self {
        Self { turns: |_| Turns::Own(Box::default()), ..Self::new(name, make) }
    }
}

/// The rows of algorithms that a word of their own chooses.
static ROWS: [&Row; 8] = [
    &roundrobin::ROW,
    &roundrobin::STATIC,
    &leastconn::ROW,
    &first::ROW,
    &random::ROW,
    &ewma::ROW,
    &sticky::ROW,
    &maglev::ROW,
];

impl Algorithm {
    /// Returns the algorithm that the word `name` of `balance` chooses. `random` makes `draws`, and `kind`
    /// says how a hash leads to a server. A word without an algorithm of its own names the key of a hash.
    pub fn by_name(name: &str, draws: u32, kind: HashType) -> Self {
        let row = ROWS.iter().find(|row| row.name == name);
        row.map_or(Self::Hash(kind), |row| (row.make)(draws, kind))
    }

    pub(crate) fn row(&self) -> &'static Row {
        match self {
            Self::RoundRobin => &roundrobin::ROW,
            Self::StaticRr => &roundrobin::STATIC,
            Self::LeastConn => &leastconn::ROW,
            Self::First => &first::ROW,
            Self::Random { .. } => &random::ROW,
            Self::Ewma { .. } => &ewma::ROW,
            Self::Hash(HashType { method: HashMethod::Map, .. }) => &by_key::ROW,
            Self::Hash(HashType { method: HashMethod::Consistent, .. }) => &ring::ROW,
            Self::Maglev(_) => &maglev::ROW,
            Self::Sticky => &sticky::ROW,
        }
    }

    /// Chooses a server. A match lets the compiler see the called function; a pointer in [`Row`] would not.
    #[inline]
    pub(crate) fn pick(&self, pick: &Pick<'_>) -> Result<Index, NoPick> {
        match *self {
            Self::RoundRobin | Self::StaticRr => roundrobin::pick(pick),
            Self::LeastConn => leastconn::pick(pick),
            Self::First => first::pick(pick),
            Self::Random { draws } => random::pick(pick, draws),
            Self::Ewma { draws } => ewma::pick(pick, draws),
            Self::Hash(kind) | Self::Maglev(kind) => by_key::pick(pick, kind),
            Self::Sticky => sticky::pick(pick),
        }
    }

    /// Returns whether a weight may only be set to 0 and back, because the table depends on the weights as a
    /// whole.
    pub fn is_static(&self) -> bool {
        self.row().is_static
    }

    /// Returns whether servers may be added while it works.
    pub fn grows(&self) -> bool {
        self.row().grows
    }

    /// Returns whether a key alone determines the server while the servers stay the same.
    pub fn goes_by_key(&self) -> bool {
        self.row().by_key
    }

    /// Returns the hash function for keys; for an algorithm without keys, the default.
    pub const fn hash_function(&self) -> HashFunction {
        match self {
            Self::Hash(kind) | Self::Maglev(kind) => kind.function,
            _ => HashType::MAP.function,
        }
    }
}

/// Arguments of `hash-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashType {
    /// How a hash leads to a server. `maglev` ignores this field.
    pub method: HashMethod,
    /// Function that hashes a key.
    pub function: HashFunction,
    /// True if the hash is mixed once more.
    pub avalanche: bool,
}

impl HashType {
    /// The default: position in a table, `sdbm`, not mixed.
    pub const MAP: Self = Self { method: HashMethod::Map, function: HashFunction::Sdbm, avalanche: false };
    /// `hash-type consistent` without further arguments: on the ring, `sdbm`, mixed.
    pub const CONSISTENT: Self =
        Self { method: HashMethod::Consistent, function: HashFunction::Sdbm, avalanche: true };
}

/// How a hash leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashMethod {
    /// The remainder of the hash is a position in a table.
    Map,
    /// The server with the closest point on a ring.
    Consistent,
}

/// `hash-preserve-affinity`: what happens to a request whose server is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// The request waits in that server's queue.
    #[default]
    Always,
    /// The request goes to the next server that has room.
    MaxConn,
    /// The request goes to the next server whose queue has room.
    MaxQueue,
}

/// Options of a backend, besides its servers and its algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `option allbackups`: if no active server serves, all backups do, not only the first.
    pub all_backups: bool,
    /// `hash-balance-factor`: largest load of a server, in percent of the average; 0 for no bound. Used by
    /// consistent hashing and `random`.
    pub balance_factor: u32,
    /// `hash-preserve-affinity`
    pub affinity: Affinity,
    /// `fullconn`: load of the backend at which servers with a `minconn` have their whole `maxconn`; 0 gives
    /// it always.
    pub fullconn: u32,
    /// Number of lanes; 0 counts as 1.
    pub lanes: usize,
    /// Number of lanes that share a queue line. 0 for the smallest number that makes at most
    /// [`QUEUE_LINES`](crate::QUEUE_LINES) lines, but at most [`LANES_PER_GROUP`](crate::LANES_PER_GROUP).
    pub lanes_per_group: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Key that a request is balanced by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key<'a> {
    /// The request has no key and takes the next turn.
    #[default]
    None,
    /// Bytes to hash.
    Bytes(&'a [u8]),
    /// A number that is its own hash (`source`, see [`source_key`](crate::key::source_key)); only `avalanche`
    /// mixes it.
    Number(u32),
}

/// Input of a pick.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The lane's time in this round.
    pub now: Time,
    /// Key that the request is balanced by.
    pub key: Key<'a>,
    /// Server that just failed this request: it is picked only if there is no other.
    pub avoid: Option<Index>,
}

impl Input<'_> {
    /// Returns the input for a request without a key.
    pub const fn new(now: Time) -> Self {
        Self { now, key: Key::None, avoid: None }
    }
}

/// Reason why no server was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoPick {
    /// Each server that takes requests is at its limit: the request may wait in the backend's queue.
    AllFull,
    /// No server takes requests.
    NoneUsable,
}
