//! One pick: from the algorithm to its file.

use super::core::Core;
use crate::algorithm::{Affinity, Algorithm, HashType, Input, Key, NoPick};
use crate::lane::LaneState;
use crate::snapshot::{Prepared, Snapshot};
use crate::spec::Index;
use crate::{first, random, roundrobin};
use manylane_expr::hash;
use manylane_sched::Time;

/// Turns that are looked at for one with room before the words of bits are.
const TRIES: usize = 8;

/// Draws of `random` and `ewma` at most: more cost time and choose no better.
const MAX_DRAWS: u32 = 256;

pub(super) fn pick(
    core: &Core,
    snapshot: &Snapshot,
    lane: &LaneState,
    input: &Input<'_>,
) -> Result<Index, NoPick> {
    if snapshot.members.is_empty() {
        return Err(NoPick::NoneUsable);
    }
    let now = input.now;
    // With one server there is nothing to avoid.
    let avoid = input.avoid.map(Index::get).filter(|_| snapshot.members.len() > 1).unwrap_or(usize::MAX);
    let room = |server: usize| has_room(core, snapshot, server);
    let good = |server: usize| server != avoid && room(server);
    let looked = lane.look_around((&core.lanes, &core.earlier), core.servers.len(), now);
    let picked = match core.algorithm {
        Algorithm::RoundRobin | Algorithm::StaticRr => roundrobin::pick(lane, &snapshot.turns, TRIES, good),
        Algorithm::LeastConn => {
            let least = lane.least.as_ref().expect("made with the lane for this algorithm");
            least.refresh(lane, snapshot);
            for server in looked.into_iter().flatten() {
                least.correct(server, lane.seen(server));
            }
            least.least(|server| server != avoid && has_room_or_queue(core, snapshot, server))
        }
        Algorithm::First => None, // what follows is it
        Algorithm::Random { draws } => match &snapshot.prepared {
            Prepared::AliasTable(alias_table) => {
                let bound = Bound::new(core, snapshot, lane);
                let good = |server| good(server) && bound.allows(server);
                random::pick(lane, alias_table, draws.clamp(1, MAX_DRAWS), good, |a, b| {
                    let weighted =
                        |of: usize, by: usize| u64::from(lane.seen(of)) * u64::from(snapshot.weights[by]);
                    weighted(a, b) < weighted(b, a)
                })
            }
            _ => None,
        },
        Algorithm::Ewma { draws } => match (&snapshot.prepared, &lane.times) {
            (Prepared::AliasTable(alias_table), Some(times)) => {
                random::pick(lane, alias_table, draws.clamp(1, MAX_DRAWS), good, |a, b| {
                    times.expected(a, lane, snapshot, now) < times.expected(b, lane, snapshot, now)
                })
            }
            _ => None,
        },
        Algorithm::Hash(kind) | Algorithm::Maglev(kind) => match hash_of(kind, input.key) {
            Some(hash) => return by_hash(core, snapshot, lane, hash, avoid),
            None => roundrobin::pick(lane, &snapshot.turns, TRIES, good),
        },
    };
    match picked {
        Some(server) => Ok(Index(server as u16)),
        None => any(core, snapshot, lane, avoid, now),
    }
}

fn hash_of(kind: HashType, key: Key<'_>) -> Option<u32> {
    let hash = match key {
        Key::None => return None,
        Key::Bytes(bytes) => kind.function.hash(bytes),
        Key::Number(number) => number,
    };
    Some(if kind.avalanche { hash::avalanche(hash) } else { hash })
}

/// The server that the hash belongs to; another only where its load is bounded or affinity is not kept.
fn by_hash(
    core: &Core,
    snapshot: &Snapshot,
    lane: &LaneState,
    hash: u32,
    avoid: usize,
) -> Result<Index, NoPick> {
    let find = |good: &dyn Fn(usize) -> bool| match &snapshot.prepared {
        Prepared::Ring(ring) => ring.pick(&snapshot.weights, hash, good),
        Prepared::Maglev(maglev) => maglev.pick(hash, good),
        _ => {
            let turns = &snapshot.turns;
            let place = hash as usize % turns.len();
            let (before, from) = turns.split_at(place);
            from.iter().chain(before).map(|&server| usize::from(server)).find(|&server| good(server))
        }
    };
    let bound = Bound::new(core, snapshot, lane);
    let best = match core.options.affinity {
        Affinity::Always => find(&|server| server != avoid && bound.allows(server)),
        Affinity::MaxConn => {
            find(&|server| server != avoid && bound.allows(server) && has_room(core, snapshot, server))
        }
        Affinity::MaxQueue => {
            find(&|server| server != avoid && bound.allows(server) && queue_has_room(core, snapshot, server))
        }
    };
    // All are busy: it is its own server's.
    let server = best.or_else(|| find(&|server| server != avoid)).ok_or(NoPick::NoneUsable)?;
    Ok(Index(server as u16))
}

/// The first with room behind a random or the first place: for `first`, and for who met only full servers.
fn any(core: &Core, snapshot: &Snapshot, lane: &LaneState, avoid: usize, now: Time) -> Result<Index, NoPick> {
    let servers = &core.servers;
    let from = match core.algorithm {
        Algorithm::First => 0,
        _ => lane.below(servers.len()),
    };
    let full = &core.gates.full;
    let good = |rank: usize| {
        let index = servers.at_rank(rank);
        index.get() != avoid && has_room(core, snapshot, index.get())
    };
    let spread = core.algorithm == Algorithm::First && lane.crowded.get() > now.as_nanos();
    let skip = if spread { manylane_sync::lane::current().index() % first::SPREAD } else { 0 };
    let found =
        first::pick(snapshot, full, from, skip, good).or_else(|| first::pick(snapshot, full, 0, 0, good));
    if let Some(rank) = found {
        return Ok(servers.at_rank(rank));
    }
    // Only the one to avoid may be left.
    match servers
        .index(avoid)
        .filter(|index| snapshot.weights[index.get()] > 0 && has_room(core, snapshot, index.get()))
    {
        Some(index) => Ok(index),
        None => Err(NoPick::AllFull),
    }
}

#[inline]
fn has_room(core: &Core, snapshot: &Snapshot, server: usize) -> bool {
    if !snapshot.limited {
        return true;
    }
    let index = Index(server as u16);
    core.servers[index].spec.maxconn == 0 || core.gates.of(index).has_room()
}

/// `maxqueue`: a queue that is limited on purpose counts as room, for algorithms by load.
#[inline]
fn has_room_or_queue(core: &Core, snapshot: &Snapshot, server: usize) -> bool {
    has_room(core, snapshot, server)
        || core.servers[Index(server as u16)].spec.maxqueue != 0 && queue_has_room(core, snapshot, server)
}

fn queue_has_room(core: &Core, snapshot: &Snapshot, server: usize) -> bool {
    let index = Index(server as u16);
    let spec = &core.servers[index].spec;
    !snapshot.limited
        || spec.maxconn == 0
        || spec.maxqueue == 0
        || core.gates.of(index).count().waiting < spec.maxqueue
}

/// `hash-balance-factor`: how many requests a server may have.
struct Bound<'a> {
    snapshot: &'a Snapshot,
    lane: &'a LaneState,
    /// Requests that all may have together, in hundredths; `None`: any.
    slots: Option<u64>,
}

impl<'a> Bound<'a> {
    fn new(core: &Core, snapshot: &'a Snapshot, lane: &'a LaneState) -> Self {
        let factor = u64::from(core.options.balance_factor);
        let slots = (factor != 0 && lane.view.is_some()).then(|| (lane.seen_total() + 1) * factor);
        Self { snapshot, lane, slots }
    }

    /// Whether the server may have one more.
    fn allows(&self, server: usize) -> bool {
        let Some(slots) = self.slots else { return true };
        let share = u128::from(slots) * u128::from(self.snapshot.weights[server]);
        u128::from(self.lane.seen(server)) * 100 * u128::from(self.snapshot.total) < share
    }
}
