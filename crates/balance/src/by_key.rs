//! `source`, `uri`, `url_param`, `hdr`, `rdp-cookie`, `hash`: by a hash of the request's key. With `hash-type
//! map-based`, whose row this is, its remainder is a place in the table of turns; [`ring`](crate::ring) and
//! [`maglev`](crate::maglev) find it otherwise. A request without a key has its turn.

use crate::algorithm::{Affinity, HashType, Key, NoPick, Row};
use crate::balancer::Pick;
use crate::roundrobin;
use crate::snapshot::Prepared;
use crate::spec::Index;
use manylane_expr::hash;

pub(crate) const ROW: Row =
    Row { by_key: true, is_static: true, turns: roundrobin::static_turns, ..Row::new("hash") };

fn hash_of(kind: HashType, key: Key<'_>) -> Option<u32> {
    let hash = match key {
        Key::None => return None,
        Key::Bytes(bytes) => kind.function.hash(bytes),
        Key::Number(number) => number,
    };
    Some(if kind.avalanche { hash::avalanche(hash) } else { hash })
}

/// The key's server, or the next in turn where there is no key.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>, kind: HashType) -> Result<Index, NoPick> {
    match hash_of(kind, pick.input.key) {
        Some(hash) => of_hash(pick, hash),
        None => roundrobin::pick(pick),
    }
}

/// The server that the hash belongs to; another only where its load is bounded or affinity is not kept.
fn of_hash(pick: &Pick<'_>, hash: u32) -> Result<Index, NoPick> {
    let (snapshot, avoid) = (pick.snapshot, pick.avoid);
    let find = |good: &dyn Fn(usize) -> bool| match &snapshot.prepared {
        Prepared::Ring(ring) => ring.pick(&snapshot.weights, hash, good),
        Prepared::Maglev(maglev) => maglev.pick(hash, good),
        _ => {
            let turns = snapshot.turns.own();
            let place = hash as usize % turns.len();
            let (before, from) = turns.split_at(place);
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
    // All are busy: it is its own server's.
    let server = best.or_else(|| find(&|server| server != avoid)).ok_or(NoPick::NoneUsable)?;
    Ok(Index(server as u16))
}
