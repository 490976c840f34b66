//! `first`: the server with the lowest id that has room.
//!
//! One bit for each server, at the rank of its id, says whether it takes part. Another says whether it is
//! full; it is written only when the server reaches or leaves its limit
//! ([`server_limit`](crate::server_limit)). So a pick among 500 servers reads 8 words, and the bits of full
//! servers are on no cache line that every request writes.
//!
//! With many lanes, the word of the first server with room would be a bottleneck: in the simulator, 64 cores
//! served a seventh of what one core did. So a lane that meets other lanes at that word spreads its picks for
//! a millisecond: it skips as many servers with room as the lane's number says, less than [`SPREAD`]. With
//! little load, only the first servers are used; with much load, at most that many more.
//!
//! Cost: one load of each word before the first server with room, at most `servers / 64`.

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::server_limit::Bits;
use crate::snapshot::Snapshot;
use crate::spec::Index;

pub(crate) const ROW: Row = Row::without_turns("first", |_, _| Algorithm::First);

/// Number of servers over which lanes spread that meet each other.
const SPREAD: usize = 64;

/// Returns the first server with room; while the lane spreads, a later one that depends on the lane.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let spread = pick.lane.crowded.get() > pick.input.now.as_nanos();
    pick.by_rank(0, if spread { manylane_sync::lane::current().index() % SPREAD } else { 0 })
}

/// Returns the rank of the first server, from rank `from` on, that takes part, has room, and for which `good`
/// returns true. It skips the first `skip` servers with room without calling `good`.
#[inline]
pub(crate) fn find(
    snapshot: &Snapshot,
    full: &Bits,
    from: usize,
    mut skip: usize,
    good: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut mask = !0u64 << (from % 64);
    for word in from / 64..snapshot.by_rank.len() {
        let mut bits = snapshot.by_rank[word] & mask;
        mask = !0;
        if bits != 0 && snapshot.limited {
            bits &= !full.word(word);
        }
        while bits != 0 {
            let rank = word * 64 + bits.trailing_zeros() as usize;
            if skip > 0 {
                skip -= 1;
            } else if good(rank) {
                return Some(rank);
            }
            bits &= bits - 1;
        }
    }
    None
}
