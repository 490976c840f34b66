//! `first`: the server with the lowest id that has room.
//!
//! Servers that take part are bits by rank of id; servers at their limit are bits too, set and cleared only
//! when a limit is reached or left ([`gate`](crate::gate)). So a pick among 500 servers looks at 8 words, and
//! which servers are full is no line that every request writes.
//!
//! Where lanes meet at the word of the first server with room, that word would be what each request of each
//! lane waits for: in the simulator 64 cores did a seventh of what one did. A lane that met others there
//! spreads for a millisecond: it takes the server with room that is as many places further as the lane's
//! number says, up to [`SPREAD`]. So with little load the first servers alone are used, and with much at most
//! so many more.
//!
//! Cost: a load of each word before the first with room, `servers / 64` at most.

use crate::algorithm::{NoPick, Row};
use crate::balancer::Pick;
use crate::gate::Bits;
use crate::snapshot::Snapshot;
use crate::spec::Index;

pub(crate) const ROW: Row = Row::without_turns("first");

/// Servers over which lanes spread that meet.
const SPREAD: usize = 64;

/// The first with room; in a crowd one behind it, by lane.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let spread = pick.lane.crowded.get() > pick.input.now.as_nanos();
    pick.by_rank(0, if spread { manylane_sync::lane::current().index() % SPREAD } else { 0 })
}

/// The rank of the first server from rank `from` on that takes part, has room, and for which `good` holds; of
/// the first `skip` with room nothing but their bits is looked at.
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
