//! Snapshots: the servers that take part, with their weights. Each change makes a new one; picks read it
//! without a lock.

use crate::algorithm::Algorithm;
use crate::maglev::Maglev;
use crate::random::AliasTable;
use crate::ring::Ring;
use crate::servers::Servers;
use crate::spec::Index;
use crate::turns::{AllTurns, Turns};
use manylane_sync::Arc;

/// The servers that requests are balanced over at the moment. It is replaced as a whole and never changed.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with each replacement.
    pub(crate) version: u64,
    /// Effective weight by server, in sixteenths; 0 if the server takes no part.
    pub(crate) weights: Box<[u32]>,
    /// Sum of `weights`.
    pub(crate) total: u64,
    /// Servers that take part, in the order of the configuration.
    pub(crate) members: Box<[u16]>,
    /// One bit for each server that takes part, at the rank of its id.
    pub(crate) by_rank: Box<[u64]>,
    /// True if a server that takes part has a limit of requests.
    pub(crate) limited: bool,
    /// One period of turns, for algorithms that have turns.
    pub(crate) turns: Turns,
    /// Other data that the algorithm follows.
    pub(crate) prepared: Prepared,
}

/// Data that an algorithm has computed in advance.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// None besides the turns.
    Nothing,
    /// Alias table by weight, of `random` and `ewma`.
    AliasTable(AliasTable),
    /// The ring of consistent hashing.
    Ring(Arc<Ring>),
    /// Maglev's table.
    Maglev(Maglev),
    /// The servers of `sticky`, in the order in which they came to take part.
    Seniority(Box<[u16]>),
}

impl Snapshot {
    /// Builds a snapshot. `kept` holds the tables of all servers that earlier snapshots made.
    pub(crate) fn new(
        version: u64,
        servers: &Servers,
        algorithm: &Algorithm,
        all_backups: bool,
        kept: &mut Kept,
    ) -> Self {
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
        let total = weights.iter().map(|&weight| u64::from(weight)).sum();
        let row = algorithm.row();
        let mut of_row = Members { servers, by_server: &weights, weights: &pairs, total, kept };
        let (prepared, turns) = ((row.prepare)(&mut of_row), (row.turns)(&mut of_row));
        Self {
            version,
            total,
            limited: members.iter().any(|&index| servers[index].spec.maxconn != 0),
            members: members.iter().map(|index| index.0).collect(),
            weights: weights.into(),
            by_rank: by_rank.into(),
            turns,
            prepared,
        }
    }
}

/// Tables of all servers, whether they take part or not: snapshots share them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Ring for consistent hashing.
    pub(crate) ring: Option<Arc<Ring>>,
    /// Turns, if there are many.
    pub(crate) turns: Option<Arc<AllTurns>>,
    /// The servers of the last snapshot, in the order in which they came to take part.
    pub(crate) seniority: Vec<u16>,
}

/// Input from which an algorithm prepares itself.
pub(crate) struct Members<'a> {
    /// All servers.
    pub(crate) servers: &'a Servers,
    /// Effective weights by server; 0 for servers that take no part.
    pub(crate) by_server: &'a [u32],
    /// Servers that take part, with their weights.
    pub(crate) weights: &'a [(u16, u32)],
    /// Sum of `weights`.
    pub(crate) total: u64,
    pub(crate) kept: &'a mut Kept,
}

impl Members<'_> {
    /// Returns the servers that take part, each with its hash key and its weight.
    pub(crate) fn hashed(&self) -> impl Iterator<Item = (u16, u32, u32)> + Clone {
        self.weights
            .iter()
            .map(|&(index, weight)| (index, self.servers[Index(index)].spec.hash_key(), weight))
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::algorithm::HashType;
    use crate::spec::ServerSpec;
    use crate::state::Admin;

    /// A change among a thousand servers sorts nothing: the ring stays the same.
    #[test]
    fn a_change_within_full_weights_makes_no_ring() {
        let spec = |id| ServerSpec { weight: 10, ..ServerSpec::new(format!("s{id}"), id) };
        let servers = Servers::new((1..=1000).map(spec)).expect("names and ids differ");
        let mut all = Kept::default();
        let mut ring = || {
            let algorithm = Algorithm::Hash(HashType::CONSISTENT);
            match Snapshot::new(0, &servers, &algorithm, false, &mut all).prepared {
                Prepared::Ring(ring) => ring,
                _ => panic!("consistent hashing has a ring"),
            }
        };
        let set = |n: u16, own| {
            let state = &servers[Index(n)].state;
            state.set_standing(crate::state::Availability { own, ..state.standing() });
        };
        let weigh = |n: u16, weight| {
            let state = &servers[Index(n)].state;
            state.set_weight(weight);
            state.update_effective(std::time::Duration::ZERO, manylane_sched::Time::ZERO, true);
        };
        let before = ring();
        set(17, Admin::Maintenance);
        assert!(Arc::ptr_eq(&before, &ring()), "it is down");
        weigh(18, 3);
        assert!(Arc::ptr_eq(&before, &ring()), "it is lighter");
        weigh(18, 10);
        set(17, Admin::Ready);
        assert!(Arc::ptr_eq(&before, &ring()), "both are back");
        (0..997).for_each(|n| set(n, Admin::Maintenance));
        assert!(!Arc::ptr_eq(&before, &ring()), "three are left: a look-up would skip 333 points for one");
        set(0, Admin::Ready);
        assert!(Arc::ptr_eq(&before, &ring()), "four are there: the ring of all was kept");
        weigh(998, 11);
        assert!(!Arc::ptr_eq(&before, &ring()), "one is heavier than ever");
    }
}
