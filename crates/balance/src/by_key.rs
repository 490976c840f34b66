//! `source`, `uri`, `url_param`, `hdr`, `rdp-cookie`, `hash`: by a hash of the request's key.
//!
//! With `hash-type map-based`, whose row is here, the remainder of the hash is a position in the table of
//! turns. [`ring`](crate::ring) and [`maglev`](crate::maglev) map the hash differently. A request without a
//! key takes the next turn.

use crate::algorithm::{Affinity, Algorithm, HashType, Key, NoPick, Row};
use crate::balancer::Pick;
use crate::roundrobin;
use crate::snapshot::Prepared;
use crate::spec::Index;
use manylane_expr::hash;

pub(crate) const ROW: Row = Row {
    by_key: true,
    is_static: true,
    turns: roundrobin::static_turns,
    ..Row::new("hash", |_, kind| Algorithm::Hash(kind))
};

fn hash_of(kind: HashType, key: Key<'_>) -> Option<u32> {
    let hash = match key {
        Key::None => return None,
        Key::Bytes(bytes) => kind.function.hash(bytes),
        Key::Number(number) => number,
    };
    Some(if kind.avalanche { hash::avalanche(hash) } else { hash })
}

/// Returns the server of the key; for a request without a key, the next in turn.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>, kind: HashType) -> Result<Index, NoPick> {
    match hash_of(kind, pick.input.key) {
        Some(hash) => of_hash(pick, hash),
        None => roundrobin::pick(pick),
    }
}

/// Returns the server that the hash belongs to; another one only if loads are bounded, affinity is not kept,
/// or the server is to be avoided.
fn of_hash(pick: &Pick<'_>, hash: u32) -> Result<Index, NoPick> {
    let (snapshot, avoid) = (pick.snapshot, pick.avoid);
    let find = |good: &dyn Fn(usize) -> bool| match &snapshot.prepared {
        Prepared::Ring(ring) => ring.pick(&snapshot.weights, hash, good),
        Prepared::Maglev(maglev) => maglev.pick(hash, good),
        _ => {
            let turns = snapshot.turns.own();
            let index = hash as usize % turns.len();
            let (before, from) = turns.split_at(index);
            from.iter().chain(before).map(|&server| usize::from(server)).find(|&server| good(server))
        }
    };
    let bound = pick.bound();
    let best = match pick.core.options.affinity {
        Affinity::Always => find(&|server| server != avoid && bound.allows(server)),
        Affinity::MaxConn => find(&|server| bound.allows(server) && pick.is_good(server)),
        Affinity::MaxQueue => {
            find(&|server| server != avoid && bound.allows(server) && pick.queue_has_room(server))
        }
    };
    // All servers are busy: the request stays with its own server.
    let server = best.or_else(|| find(&|server| server != avoid)).ok_or(NoPick::NoneUsable)?;
    Ok(Index(server as u16))
}
