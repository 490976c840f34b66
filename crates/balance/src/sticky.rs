//! `sticky`: one server as long as it takes part, and then the one that has taken part for longest.
//!
//! A server that comes back is the last: it takes nothing from the one that serves meanwhile. The order is
//! kept from one snapshot to the next; a new configuration begins with its own.
//!
//! Cost: one load; with limits, one for each full server before the first with room.

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::snapshot::{Members, Prepared};
use crate::spec::Index;

pub(crate) const ROW: Row = Row { prepare, ..Row::without_turns("sticky", |_, _| Algorithm::Sticky) };

fn prepare(members: &mut Members<'_>) -> Prepared {
    let mut fresh: Vec<bool> = members.by_server.iter().map(|&weight| weight > 0).collect();
    let order = &mut members.kept.seniority;
    order.retain(|&index| fresh.get_mut(usize::from(index)).is_some_and(std::mem::take));
    order.extend(members.weights.iter().map(|&(index, _)| index).filter(|&index| fresh[usize::from(index)]));
    Prepared::Seniority(order.as_slice().into())
}

/// Returns the first server with room.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let Prepared::Seniority(order) = &pick.snapshot.prepared else { return pick.or_any(None) };
    match order.iter().find(|&&server| pick.is_good(usize::from(server))) {
        Some(&server) => Ok(Index(server)),
        None => pick.or_any(None),
    }
}
