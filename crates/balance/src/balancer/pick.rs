//! One pick: the input of an algorithm, and what all algorithms use.

use super::core::Core;
use crate::algorithm::{Input, NoPick};
use crate::first;
use crate::lane::LaneState;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use std::ops::Range;

/// A request that needs a server.
pub(crate) struct Pick<'a> {
    pub(crate) core: &'a Core,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) lane: &'a LaneState,
    pub(crate) input: &'a Input<'a>,
    /// Server to avoid if there is another; `usize::MAX` if there is none to avoid.
    pub(crate) avoid: usize,
}

pub(super) fn pick(
    core: &Core,
    snapshot: &Snapshot,
    lane: &LaneState,
    input: &Input<'_>,
) -> Result<Index, NoPick> {
    if snapshot.members.is_empty() {
        return Err(NoPick::NoneUsable);
    }
    // With one server there is nothing to avoid.
    let avoid = input.avoid.map(Index::get).filter(|_| snapshot.members.len() > 1).unwrap_or(usize::MAX);
    core.algorithm.pick(&Pick { core, snapshot, lane, input, avoid })
}

impl Pick<'_> {
    /// Refreshes this lane's view of the loads on other lanes if it is due. Returns the servers whose loads
    /// were read.
    #[inline]
    pub(crate) fn refresh_view(&self) -> Option<Range<usize>> {
        let core = self.core;
        self.lane.refresh_view((&core.lanes, &core.earlier), core.servers.len(), self.input.now)
    }

    /// Returns whether the algorithm may choose the server.
    #[inline]
    pub(crate) fn is_good(&self, server: usize) -> bool {
        server != self.avoid && self.has_room(server)
    }

    /// Returns the server that the algorithm found; if it found none, the first with room from a random rank
    /// on.
    #[inline]
    pub(crate) fn or_any(&self, found: Option<usize>) -> Result<Index, NoPick> {
        match found {
            Some(server) => Ok(Index(server as u16)),
            None => self.by_rank(self.lane.below(self.core.servers.len()), 0),
        }
    }

    /// Returns the first server with room from rank `from` on after skipping `skip` with room; if there is
    /// none, any with room.
    pub(crate) fn by_rank(&self, from: usize, skip: usize) -> Result<Index, NoPick> {
        let (servers, full) = (&self.core.servers, &self.core.server_limits.full);
        let good = |rank: usize| self.is_good(servers.at_rank(rank).get());
        let found = first::find(self.snapshot, full, from, skip, good)
            .or_else(|| first::find(self.snapshot, full, 0, 0, good));
        if let Some(rank) = found {
            return Ok(servers.at_rank(rank));
        }
        // The server to avoid may be the only one left.
        match servers
            .index(self.avoid)
            .filter(|index| self.snapshot.weights[index.get()] > 0 && self.has_room(index.get()))
        {
            Some(index) => Ok(index),
            None => Err(NoPick::AllFull),
        }
    }

    #[inline]
    pub(crate) fn has_room(&self, server: usize) -> bool {
        if !self.snapshot.limited {
            return true;
        }
        let index = Index(server as u16);
        self.core.servers[index].spec.maxconn == 0 || self.core.server_limits.of(index).has_room()
    }

    /// Returns whether the server or its queue has room. Algorithms by load treat a queue with a `maxqueue`
    /// as room.
    #[inline]
    pub(crate) fn has_room_or_queue(&self, server: usize) -> bool {
        self.has_room(server)
            || self.core.servers[Index(server as u16)].spec.maxqueue != 0 && self.queue_has_room(server)
    }

    pub(crate) fn queue_has_room(&self, server: usize) -> bool {
        let index = Index(server as u16);
        let spec = &self.core.servers[index].spec;
        !self.snapshot.limited
            || spec.maxconn == 0
            || spec.maxqueue == 0
            || self.core.server_limits.of(index).count().waiting < spec.maxqueue
    }

    /// Returns the bound on the servers' loads (`hash-balance-factor`).
    pub(crate) fn bound(&self) -> Bound<'_> {
        let factor = u64::from(self.core.options.balance_factor);
        let slots = (factor != 0 && self.lane.view.is_some()).then(|| {
            self.refresh_view();
            (self.lane.known_total() + 1) * factor
        });
        Bound { snapshot: self.snapshot, lane: self.lane, slots }
    }
}

/// Bound on the servers' loads: see [`Pick::bound`].
pub(crate) struct Bound<'a> {
    snapshot: &'a Snapshot,
    lane: &'a LaneState,
    /// Number of requests that all servers together may have, in hundredths; `None` for no bound.
    slots: Option<u64>,
}

impl Bound<'_> {
    /// Returns whether the server may have one more request.
    pub(crate) fn allows(&self, server: usize) -> bool {
        let Some(slots) = self.slots else { return true };
        let share = u128::from(slots) * u128::from(self.snapshot.weights[server]);
        u128::from(self.lane.load(server)) * 100 * u128::from(self.snapshot.total) < share
    }
}
