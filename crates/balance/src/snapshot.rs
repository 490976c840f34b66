//! Who takes part, and with what weight: made anew when something changes, read by picks without a lock.

use crate::algorithm::{Algorithm, HashMethod, HashType};
use crate::maglev::Maglev;
use crate::random::AliasTable;
use crate::ring::Ring;
use crate::sequence;
use crate::servers::Servers;
use crate::spec::Index;

/// The servers that requests are balanced over at the moment. Replaced as a whole, never changed.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with each replacement.
    pub(crate) version: u64,
    /// Weight in effect by server, in sixteenths; 0: takes no part.
    pub(crate) weights: Box<[u32]>,
    /// Their sum.
    pub(crate) total: u64,
    /// Those that take part, as configured.
    pub(crate) members: Box<[u16]>,
    /// Those that take part, a bit each by rank of id.
    pub(crate) by_rank: Box<[u64]>,
    /// Whether one of them has a limit of connections.
    pub(crate) limited: bool,
    /// One period of turns, for algorithms that have such.
    pub(crate) turns: Box<[u16]>,
    /// What else the algorithm follows.
    pub(crate) prepared: Prepared,
}

/// What an algorithm has computed in advance.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Nothing but the turns, or not even these.
    Nothing,
    /// AliasTable by weight: of `random` and `ewma`.
    AliasTable(AliasTable),
    /// The ring of consistent hashing.
    Ring(Ring),
    /// Maglev's table.
    Maglev(Maglev),
}

impl Snapshot {
    pub(crate) fn new(version: u64, servers: &Servers, algorithm: &Algorithm, all_backups: bool) -> Self {
        let usable = |backup| {
            servers
                .iter()
                .filter(move |(_, s)| s.spec.backup == backup && s.state.is_usable())
                .map(|(index, _)| index)
        };
        let mut members: Vec<Index> = usable(false).collect();
        if members.is_empty() {
            members = usable(true).take(if all_backups { usize::MAX } else { 1 }).collect();
        }
        let mut weights = vec![0; servers.len()];
        let mut by_rank = vec![0u64; servers.len().div_ceil(64)];
        for &index in &members {
            let server = &servers[index];
            weights[index.get()] = server.state.effective_weight();
            by_rank[usize::from(server.rank) / 64] |= 1 << (server.rank % 64);
        }
        let pairs: Vec<(u16, u32)> = members.iter().map(|&index| (index.0, weights[index.get()])).collect();
        let hash_key = |index: u16| {
            let spec = &servers[Index(index)].spec;
            spec.hash_key.unwrap_or(spec.id)
        };
        let hashed = pairs.iter().map(|&(index, weight)| (index, hash_key(index), weight));
        let prepared = match algorithm {
            Algorithm::Random { .. } | Algorithm::Ewma { .. } => {
                Prepared::AliasTable(AliasTable::new(&pairs))
            }
            Algorithm::Hash(HashType { method: HashMethod::Consistent, .. }) => {
                Prepared::Ring(Ring::new(hashed))
            }
            Algorithm::Maglev(_) => Prepared::Maglev(Maglev::new(&hashed.collect::<Vec<_>>())),
            _ => Prepared::Nothing,
        };
        let turns = match algorithm {
            Algorithm::LeastConn | Algorithm::First | Algorithm::Random { .. } | Algorithm::Ewma { .. } => {
                Vec::new()
            }
            _ if algorithm.is_static() => sequence::static_turns(&pairs),
            _ => sequence::smooth_turns(&pairs),
        };
        Self {
            version,
            total: weights.iter().map(|&w| u64::from(w)).sum(),
            limited: members.iter().any(|&index| servers[index].spec.maxconn != 0),
            members: members.iter().map(|index| index.0).collect(),
            weights: weights.into(),
            by_rank: by_rank.into(),
            turns: turns.into(),
            prepared,
        }
    }
}
