//! One pick: what algorithms choose by.

use super::core::Core;
use crate::algorithm::{Input, NoPick};
use crate::first;
use crate::lane::LaneState;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use std::ops::Range;

/// A request that a server is chosen for.
pub(crate) struct Pick<'a> {
    pub(crate) core: &'a Core,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) lane: &'a LaneState,
    pub(crate) input: &'a Input<'a>,
    /// The server that it is not to be if there is another; one that is none where there is nothing to avoid.
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
    /// Looks at loads on other lanes, if it is time to; those of which servers.
    #[inline]
    pub(crate) fn look_around(&self) -> Option<Range<usize>> {
        let core = self.core;
        self.lane.look_around((&core.lanes, &core.earlier), core.servers.len(), self.input.now)
    }

    /// Whether the server is to be chosen if it is the algorithm's.
    #[inline]
    pub(crate) fn is_good(&self, server: usize) -> bool {
        server != self.avoid && self.has_room(server)
    }

    /// Of what the algorithm found; where it found nothing, the first with room behind a random place.
    #[inline]
    pub(crate) fn or_any(&self, found: Option<usize>) -> Result<Index, NoPick> {
        match found {
            Some(server) => Ok(Index(server as u16)),
            None => self.by_rank(self.lane.below(self.core.servers.len()), 0),
        }
    }

    /// The first with room from a rank on, behind so many with room; else any.
    pub(crate) fn by_rank(&self, from: usize, skip: usize) -> Result<Index, NoPick> {
        let (servers, full) = (&self.core.servers, &self.core.gates.full);
        let good = |rank: usize| self.is_good(servers.at_rank(rank).get());
        let found = first::find(self.snapshot, full, from, skip, good)
            .or_else(|| first::find(self.snapshot, full, 0, 0, good));
        if let Some(rank) = found {
            return Ok(servers.at_rank(rank));
        }
        // Only the one to avoid may be left.
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
        self.core.servers[index].spec.maxconn == 0 || self.core.gates.of(index).has_room()
    }

    /// `maxqueue`: a queue that is limited on purpose counts as room, for algorithms by load.
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
            || self.core.gates.of(index).count().waiting < spec.maxqueue
    }

    /// `hash-balance-factor`: how many requests a server may have.
    pub(crate) fn bound(&self) -> Bound<'_> {
        let factor = u64::from(self.core.options.balance_factor);
        let slots = (factor != 0 && self.lane.view.is_some()).then(|| {
            self.look_around();
            (self.lane.seen_total() + 1) * factor
        });
        Bound { snapshot: self.snapshot, lane: self.lane, slots }
    }
}

/// See [`Pick::bound`].
pub(crate) struct Bound<'a> {
    snapshot: &'a Snapshot,
    lane: &'a LaneState,
    /// Requests that all may have together, in hundredths; `None`: any.
    slots: Option<u64>,
}

impl Bound<'_> {
    /// Whether the server may have one more.
    pub(crate) fn allows(&self, server: usize) -> bool {
        let Some(slots) = self.slots else { return true };
        let share = u128::from(slots) * u128::from(self.snapshot.weights[server]);
        u128::from(self.lane.seen(server)) * 100 * u128::from(self.snapshot.total) < share
    }
}
