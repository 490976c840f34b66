//! `first`: the server with the lowest id that has room.
//!
//! Servers that take part are bits by rank of id; servers at their limit are bits too, set and cleared only when a limit is reached or
//! left ([`gate`](crate::gate)). So a pick among 500 servers looks at 8 words, and which servers are full is no line that
//! every request writes.
//!
//! Cost: a load of each word before the first with room, `servers / 64` at most.

use crate::gate::Bits;
use crate::snapshot::Snapshot;

/// The rank of the first server from rank `from` on that takes part, has room, and for which `good` holds.
#[inline]
pub(crate) fn pick(
    snapshot: &Snapshot,
    full: &Bits,
    from: usize,
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
            if good(rank) {
                return Some(rank);
            }
            bits &= bits - 1;
        }
    }
    None
}
