//! The algorithms: each has a module, and here a variant that names it.

use crate::balancer::Pick;
use crate::hash::HashFunction;
use crate::lane::Wants;
use crate::snapshot::{Members, Prepared};
use crate::spec::Index;
use crate::turns::Turns;
use crate::{by_key, ewma, first, leastconn, maglev, random, ring, roundrobin};
use manylane_sched::Time;

/// `balance`: how a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `roundrobin`: in turns by weight; weights may change at any time.
    RoundRobin,
    /// `static-rr`: in turns by weight; a weight may only be set to 0 and back.
    StaticRr,
    /// `leastconn`: the least loaded one.
    LeastConn,
    /// `first`: the one with the lowest id that has room.
    First,
    /// `random(draws)`: drawn by weight; of several draws the least loaded.
    Random {
        /// Draws, at least 1.
        draws: u32,
    },
    /// `source`, `uri`, `url_param`, `hdr`, `rdp-cookie`, `hash`: by a hash of the request's key.
    Hash(HashType),
    /// `ewma` (our own): of several draws the one with the least expected time.
    Ewma {
        /// Draws, at least 1; 2 is usual.
        draws: u32,
    },
    /// `maglev` (our own): by a hash of the request's key, in Maglev's table.
    Maglev(HashType),
}

/// What an algorithm is beside its pick; its module has it.
pub(crate) struct Row {
    /// Its name in a configuration, without what a key is.
    pub(crate) name: &'static str,
    /// Whether weights may change only to 0 and back: the table depends on them as a whole.
    pub(crate) is_static: bool,
    /// Whether servers may be added while it works.
    pub(crate) grows: bool,
    /// Whether a key alone says which server it is, as long as the servers stay.
    pub(crate) by_key: bool,
    /// What it needs on each lane.
    pub(crate) wants: fn(&Options) -> Wants,
    /// Makes one period of turns.
    pub(crate) turns: fn(&mut Members<'_>) -> Turns,
    /// Computes what else it follows.
    pub(crate) prepare: fn(&mut Members<'_>) -> Prepared,
}

impl Row {
    /// A row of one that has turns, needs nothing on lanes and takes any change.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_static: false,
            grows: true,
            by_key: false,
            wants: |_| Wants::default(),
            turns: Turns::smooth,
            prepare: |_| Prepared::Nothing,
        }
    }

    /// The same for one that has no turns.
    pub(crate) const fn without_turns(name: &'static str) -> Self {
        Self { turns: |_| Turns::Own(Box::default()), ..Self::new(name) }
    }
}

impl Algorithm {
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
        }
    }

    /// Chooses. The compiler sees which function is called, unlike with a pointer in [`Row`].
    #[inline]
    pub(crate) fn pick(&self, pick: &Pick<'_>) -> Result<Index, NoPick> {
        match *self {
            Self::RoundRobin | Self::StaticRr => roundrobin::pick(pick),
            Self::LeastConn => leastconn::pick(pick),
            Self::First => first::pick(pick),
            Self::Random { draws } => random::pick(pick, draws),
            Self::Ewma { draws } => ewma::pick(pick, draws),
            Self::Hash(kind) | Self::Maglev(kind) => by_key::pick(pick, kind),
        }
    }

    /// Its name in a configuration; `hash` for all by key but `maglev`, whatever the key is.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// Whether weights may change only to 0 and back: those whose table depends on them as a whole.
    pub fn is_static(&self) -> bool {
        self.row().is_static
    }

    /// Whether servers may be added while it works.
    pub fn grows(&self) -> bool {
        self.row().grows
    }

    /// Whether a key alone says which server it is, as long as the servers stay.
    pub fn goes_by_key(&self) -> bool {
        self.row().by_key
    }

    /// How keys are hashed; where none are, as usual.
    pub const fn hash_function(&self) -> HashFunction {
        match self {
            Self::Hash(kind) | Self::Maglev(kind) => kind.function,
            _ => HashType::MAP.function,
        }
    }
}

/// `hash-type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashType {
    /// How a hash finds its server. Maglev has its own way and ignores this.
    pub method: HashMethod,
    /// How a key is hashed.
    pub function: HashFunction,
    /// Whether the hash is mixed once more.
    pub avalanche: bool,
}

impl HashType {
    /// What holds where the configuration says nothing: by place in a table, `sdbm`.
    pub const MAP: Self = Self { method: HashMethod::Map, function: HashFunction::Sdbm, avalanche: false };
    /// What `hash-type consistent` means by itself: on the ring, `sdbm`, mixed.
    pub const CONSISTENT: Self =
        Self { method: HashMethod::Consistent, function: HashFunction::Sdbm, avalanche: true };
}

/// How a hash finds its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashMethod {
    /// Its remainder is a place in a table.
    Map,
    /// The server that is closest on a ring.
    Consistent,
}

/// `hash-preserve-affinity`: what happens to a request whose server is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// It waits in that server's queue.
    #[default]
    Always,
    /// It goes to the next server that has room.
    MaxConn,
    /// It goes to the next server whose queue has room.
    MaxQueue,
}

/// What belongs to a backend beside its servers and its algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `option allbackups`: all backup servers serve when no other does, not only the first.
    pub all_backups: bool,
    /// `hash-balance-factor`: the load that a server may have, in percent of the average; 0 for any. For
    /// consistent hashing and `random`.
    pub balance_factor: u32,
    /// `hash-preserve-affinity`
    pub affinity: Affinity,
    /// `fullconn`: the load of the backend at which servers with `minconn` have their whole `maxconn`; 0:
    /// always.
    pub fullconn: u32,
    /// Lanes that there are; 0 counts as 1.
    pub lanes: usize,
    /// How many of them queue together; 0 for as few as make up to [`QUEUE_LINES`](crate::QUEUE_LINES)
    /// lines, but at most [`LANES_PER_GROUP`](crate::LANES_PER_GROUP).
    pub lanes_per_group: usize,
    /// Where random numbers begin.
    pub seed: u64,
}

/// What a request is balanced by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key<'a> {
    /// It has none: it gets its turn.
    #[default]
    None,
    /// Bytes that are hashed.
    Bytes(&'a [u8]),
    /// A number that is its own hash (`source`, see [`source_key`](crate::key::source_key)); only `avalanche`
    /// mixes it.
    Number(u32),
}

/// What a pick is given.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The lane's time in this round.
    pub now: Time,
    /// What the request is balanced by.
    pub key: Key<'a>,
    /// The server that failed this request just now: it is picked only if there is no other.
    pub avoid: Option<Index>,
}

impl Input<'_> {
    /// A request without a key.
    pub const fn new(now: Time) -> Self {
        Self { now, key: Key::None, avoid: None }
    }
}

/// Why no server was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoPick {
    /// Each server that takes requests is at its limit: the request may wait in the backend's queue.
    AllFull,
    /// No server takes requests.
    NoneUsable,
}
