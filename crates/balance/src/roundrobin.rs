//! Turns: `roundrobin`, `static-rr`, and all algorithms by key for requests without a key.
//!
//! # How
//! A table holds the turns of one period ([`sequence`](crate::sequence)). Each lane follows it from a
//! starting point of its own and keeps its position, so no lane writes what another reads.
//!
//! # How exact
//! Over one period of a lane's picks, each server is picked exactly as often as its weight says; with one
//! lane, the turns are exactly HAProxy's. With several lanes, the sum keeps the weights, too. Any `n`
//! successive picks of a lane give a server its share of `n`, except for the unevenness of the table (at most
//! two turns with equal weights). So `L` lanes together are off by at most `L` times that, however many picks
//! there were. The starting points are spread by the golden ratio, so that a few requests on many lanes go to
//! different servers, too.
//!
//! Cost: three loads, and a store to the lane's own cache line.

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::lane::LaneState;
use crate::sequence;
use crate::snapshot::Members;
use crate::spec::Index;
use crate::turns::{KeptTurns, Turns};

pub(crate) const ROW: Row = Row::new("roundrobin", |_, _| Algorithm::RoundRobin);
pub(crate) const STATIC: Row =
    Row { is_static: true, turns: static_turns, ..Row::new("static-rr", |_, _| Algorithm::StaticRr) };

/// Computes the turns of `static-rr` and of map-based hashing.
pub(crate) fn static_turns(members: &mut Members<'_>) -> Turns {
    Turns::Own(sequence::static_turns(members.weights).into())
}

/// Largest number of turns that a pick passes over. By far the most of them belong to servers that take no
/// part: at most 63 of 64 turns on average.
const MOST_PASSED: usize = 1024;

/// Number of turns that a pick tries for a server with room, before it searches the words of bits.
const TRIES: usize = 8;

/// Returns the starting point of a lane, as a 32-bit fraction of the table.
fn beginning(state: &LaneState) -> u64 {
    // The first lane starts at the beginning, so the first request goes to the first server.
    u64::from(state.order).wrapping_mul(0x9e37_79b9) & 0xffff_ffff
}

/// Returns the position in a table of `len` turns, and advances it by one. The lower half of `turn` is the
/// position, the upper half the length of the table that it belongs to: in a table of another length, the
/// lane continues at the same fraction.
#[inline]
fn next(state: &LaneState, len: usize) -> usize {
    let kept = state.turn.get();
    let (of, mut position) = (kept >> 32, kept & 0xffff_ffff);
    if of != len as u64 {
        position = match of {
            0 => (beginning(state) * len as u64) >> 32,
            _ => position * len as u64 / of, // the same fraction of the new table
        };
    }
    let after = if position + 1 == len as u64 { 0 } else { position + 1 };
    state.turn.set((len as u64) << 32 | after);
    position as usize
}

/// Returns the next good server among up to [`TRIES`] turns; if there is none, any server with room.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let found = match &pick.snapshot.turns {
        Turns::Own(servers) if servers.is_empty() => None,
        Turns::Own(servers) => {
            let turn = |_| usize::from(servers[next(pick.lane, servers.len())]);
            (0..TRIES).map(turn).find(|&server| pick.is_good(server))
        }
        Turns::Kept(kept) => passing(pick, kept),
    };
    pick.or_any(found)
}

/// Returns the next good server where the table also has turns of servers that take no part.
#[inline(never)]
fn passing(pick: &Pick<'_>, kept: &KeptTurns) -> Option<usize> {
    let turn = |_| kept.at(next(pick.lane, kept.len()));
    (0..MOST_PASSED).filter_map(turn).take(TRIES).find(|&server| pick.is_good(server))
}
