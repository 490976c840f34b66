//! Turns: `roundrobin`, `static-rr`, and every algorithm by key for requests that have none.
//!
//! # How
//! The turns of one period stand in a table ([`sequence`](crate::sequence)). Each lane follows it from a
//! place of its own and keeps its position. So no lane writes what another reads.
//!
//! # How exact
//! Over one period of picks of a lane each server is picked as often as its weight says; with one lane these
//! are exactly HAProxy's turns. With several lanes the sum over lanes keeps the weights too: any run of `n`
//! picks of a lane gives a server its share of `n` up to what the order in the table is uneven (at most two
//! for equal weights), so `L` lanes together up to `L` times that, however many picks there were. Lanes begin
//! at places that are spread by the golden ratio, so that few requests on many lanes meet different servers
//! too.
//!
//! Cost: three loads and a store to the lane's own line.

use crate::algorithm::{NoPick, Row};
use crate::balancer::Pick;
use crate::lane::LaneState;
use crate::sequence;
use crate::snapshot::Members;
use crate::spec::Index;
use crate::turns::{KeptTurns, Turns};
use manylane_sync::lane;

pub(crate) const ROW: Row = Row::new("roundrobin");
pub(crate) const STATIC: Row = Row { is_static: true, turns: static_turns, ..Row::new("static-rr") };

/// Also of map-based hashing.
pub(crate) fn static_turns(members: &mut Members<'_>) -> Turns {
    Turns::Own(sequence::static_turns(members.weights).into())
}

/// Turns that are passed over at most, by far the most of which are of servers that take no part.
const MOST_PASSED: usize = 64;

/// Turns that are looked at for one with room before the words of bits are.
const TRIES: usize = 8;

/// The place where this lane begins, as a 32-bit fraction of the table.
fn beginning() -> u64 {
    // The first lane begins at the beginning: with one lane the first server is the first.
    (lane::current().index() as u64).wrapping_mul(0x9e37_79b9) & 0xffff_ffff
}

/// The position in a table of `len` turns, moved on by one. `turn` is the position in its lower half; in its
/// upper half the length of the table that it belongs to, since in another table it stands for the same
/// fraction.
#[inline]
fn next(state: &LaneState, len: usize) -> usize {
    let kept = state.turn.get();
    let (of, mut position) = (kept >> 32, kept & 0xffff_ffff);
    if of != len as u64 {
        position = match of {
            0 => (beginning() * len as u64) >> 32,
            _ => position * len as u64 / of, // the same fraction of the new table
        };
    }
    let after = if position + 1 == len as u64 { 0 } else { position + 1 };
    state.turn.set((len as u64) << 32 | after);
    position as usize
}

/// The next server in turn that is good, looking at up to [`TRIES`] turns; else any.
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

/// The same where turns are passed over.
#[inline(never)]
fn passing(pick: &Pick<'_>, kept: &KeptTurns) -> Option<usize> {
    let turn = |_| kept.at(next(pick.lane, kept.len()));
    (0..MOST_PASSED).filter_map(turn).take(TRIES).find(|&server| pick.is_good(server))
}
