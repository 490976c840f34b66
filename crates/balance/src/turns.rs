//! Turns in a snapshot: a table of its own, or a table of all servers that snapshots share.
//!
//! A large table takes longer to make than a change of a server may take: 1.3 ms for 1,000 servers with
//! different weights. So a table of more than [`SMALL`] turns is made of all servers at their full weights,
//! and kept. A lane that follows it passes over the turns of servers that take no part; of a server with half
//! of its weight, every second turn takes part. So each server has exactly as many turns as its weight says,
//! as in a table of its own, but in another order.

use crate::sequence::smooth_turns;
use crate::snapshot::Members;
use crate::spec::WEIGHT_SCALE;
use manylane_sync::Arc;

/// Largest number of turns in a table that each change rebuilds: about 0.1 ms.
const SMALL: usize = 4096;

/// If less than one turn in this many takes part, the snapshot gets a table of its own: a pick has no time to
/// pass over so many turns.
const SPARSE: u64 = 64;

#[derive(Debug)]
pub(crate) enum Turns {
    Own(Box<[u16]>),
    Kept(KeptTurns),
}

/// Turns of all servers, and which of them take part.
#[derive(Debug)]
pub(crate) struct KeptTurns {
    all: Arc<AllTurns>,
    /// Number of turns that take part, by server.
    shares: Box<[u32]>,
}

/// Turns of all servers at their full weights.
#[derive(Debug)]
pub(crate) struct AllTurns {
    servers: Box<[u16]>,
    /// For each turn, the number of earlier turns of the same server.
    nth: Box<[u16]>,
    /// Number of turns by server.
    counts: Box<[u32]>,
    /// Full weights by server, in sixteenths.
    full: Box<[u32]>,
    /// Sum of `full`.
    total: u64,
}

impl AllTurns {
    /// Builds the table of all backups or of all active servers: the kind that takes part.
    fn new(members: &Members<'_>, backup: bool) -> Self {
        let mut full = vec![0; members.by_server.len()];
        for (index, server) in members.servers.iter() {
            if server.spec.backup == backup && !server.spec.gone {
                let weight = server.spec.weight.max(server.state.weight());
                full[index.get()] = u32::from(weight) * WEIGHT_SCALE;
            }
        }
        let pairs: Vec<(u16, u32)> = (0..).zip(full.iter().copied()).collect();
        let servers = smooth_turns(&pairs);
        let mut counts = vec![0; full.len()];
        let nth = |&server: &u16| {
            let count: &mut u32 = &mut counts[usize::from(server)];
            *count += 1;
            (*count - 1) as u16
        };
        let nth = servers.iter().map(nth).collect();
        let total = full.iter().map(|&weight| u64::from(weight)).sum();
        Self { servers: servers.into(), nth, counts: counts.into(), full: full.into(), total }
    }

    fn covers(&self, weights: &[u32]) -> bool {
        weights.iter().zip(&self.full).all(|(weight, full)| weight <= full)
    }
}

impl Turns {
    /// Computes evenly spaced turns: see [`smooth_turns`].
    pub(crate) fn smooth(members: &mut Members<'_>) -> Self {
        let kept = members.kept.turns.take().filter(|all| all.covers(members.by_server));
        let all = match (kept, members.weights.first()) {
            (Some(all), _) => all,
            (None, None) => return Self::Own(Box::default()),
            (None, Some(&(first, _))) => {
                let backup = members.servers[crate::spec::Index(first)].spec.backup;
                Arc::new(AllTurns::new(members, backup))
            }
        };
        members.kept.turns = Some(all.clone());
        if all.servers.len() <= SMALL || all.total > members.total.saturating_mul(SPARSE) {
            return Self::Own(smooth_turns(members.weights).into());
        }
        let share = |(server, &weight): (usize, &u32)| {
            let (count, full) = (u64::from(all.counts[server]), u64::from(all.full[server].max(1)));
            let share = (u64::from(weight) * count + full / 2) / full;
            share.max(weight.min(1).into()) as u32
        };
        let shares = members.by_server.iter().enumerate().map(share).collect();
        Self::Kept(KeptTurns { all, shares })
    }

    /// Returns the servers in turn if the table is the snapshot's own; else an empty slice.
    pub(crate) fn own(&self) -> &[u16] {
        match self {
            Self::Own(servers) => servers,
            Self::Kept(_) => &[],
        }
    }
}

impl KeptTurns {
    pub(crate) fn len(&self) -> usize {
        self.all.servers.len()
    }

    /// Returns the server whose turn that is; `None` if the turn takes no part.
    pub(crate) fn at(&self, position: usize) -> Option<usize> {
        let server = usize::from(self.all.servers[position]);
        let (share, count) = (u64::from(self.shares[server]), u64::from(self.all.counts[server]));
        let before = |nth: u64| nth * share / count; // number of the first `nth` turns that take part
        let nth = u64::from(self.all.nth[position]);
        (share == count || share != 0 && before(nth + 1) > before(nth)).then_some(server)
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::servers::Servers;
    use crate::snapshot::{Kept, Snapshot};
    use crate::spec::{Index, ServerSpec};
    use crate::state::{Admin, Availability};
    use manylane_sched::Time;
    use std::time::Duration;

    /// 250 servers with the weights 1 to 250: 31,375 turns.
    #[test]
    fn many_turns_are_made_once_and_shared_out_by_weight_whatever_changes() {
        let spec = |id| ServerSpec { weight: id as u16, ..ServerSpec::new(format!("s{id}"), id) };
        let servers = Servers::new((1..=250).map(spec)).expect("names and ids differ");
        let set = |n: u16, own| {
            let state = &servers[Index(n)].state;
            state.set_standing(Availability { own, ..state.standing() });
        };
        let weigh = |n: u16, weight| {
            let state = &servers[Index(n)].state;
            state.set_weight(weight);
            state.update_effective(Duration::ZERO, Time::ZERO, true);
        };
        let mut kept = Kept::default();
        let mut turns = || Snapshot::new(0, &servers, &Algorithm::RoundRobin, false, &mut kept).turns;
        let table = |turns: &Turns| match turns {
            Turns::Kept(kept) => Some(kept.all.clone()),
            Turns::Own(_) => None,
        };
        let first = table(&turns()).expect("they are many");
        set(249, Admin::Maintenance);
        weigh(99, 50);
        weigh(199, 1);
        let now = turns();
        assert!(Arc::ptr_eq(&first, &table(&now).expect("they are many")), "no table was made");
        let Turns::Kept(now) = now else { panic!("they are many") };
        let mut counts = [0; 250];
        let mut indexes = Vec::new();
        for position in 0..now.len() {
            if let Some(server) = now.at(position) {
                counts[server] += 1;
                if server == 99 {
                    indexes.push(position);
                }
            }
        }
        let expected: [u32; 250] = std::array::from_fn(|server| match server {
            249 => 0,
            99 => 50,
            199 => 1,
            server => server as u32 + 1,
        });
        assert_eq!(counts, expected);
        let widest = indexes.windows(2).map(|two| two[1] - two[0]).max();
        assert!(widest.is_some_and(|widest| widest < 2 * now.len() / 50), "{widest:?}");
        (20..250).for_each(|n| set(n, Admin::Maintenance));
        assert!(table(&turns()).is_none(), "20 of the lightest are left: nobody passes over the rest");
        (20..250).for_each(|n| set(n, Admin::Ready));
        assert!(Arc::ptr_eq(&first, &table(&turns()).expect("they are many")), "it was kept");
        weigh(0, 200);
        assert!(!Arc::ptr_eq(&first, &table(&turns()).expect("they are many")), "one is heavier than ever");
    }

    /// As with HAProxy and one thread, also while servers are down.
    #[test]
    fn few_turns_are_made_anew() {
        let spec = |id| ServerSpec { weight: id as u16, ..ServerSpec::new(format!("s{id}"), id) };
        let servers = Servers::new((1..=4).map(spec)).expect("names and ids differ");
        let state = &servers[Index(3)].state;
        state.set_standing(Availability { own: Admin::Maintenance, ..state.standing() });
        let turns = Snapshot::new(0, &servers, &Algorithm::RoundRobin, false, &mut Kept::default()).turns;
        assert_eq!(turns.own(), [2, 1, 2, 0, 2, 1]);
    }
}
