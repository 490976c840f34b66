//! `leastconn`: the server with the least load for its weight.
//!
//! # How
//! Each lane keeps the keys of all servers in a tournament tree. An inner node names the winner below it, so
//! the root is the least loaded server, and a load that changes costs one match a level. A key is the
//! weighted load, followed by a number that only grows. Among equal loads the server that was updated last
//! comes last, so these servers take turns.
//!
//! # How exact
//! With one lane, it is exact. With several, a lane compares its view (see [`lane`](crate::lane)): its own
//! requests exactly, and the loads of other lanes as of at most 1 ms ago for up to 32 servers, and at most
//! `servers / 32` ms ago for more. If requests come less often than once a millisecond, the view is as old as
//! that number of requests.
//!
//! Cost: a pick reads the root. A load that changes plays `log2(servers)` matches, all in the lane's own
//! memory.

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::lane::{LaneNeeds, LaneState, Numbers, Wide};
use crate::snapshot::Snapshot;
use crate::spec::{Index, MAX_WEIGHT, WEIGHT_SCALE};
use manylane_sync::atomic::OwnedU64;

pub(crate) const ROW: Row = Row {
    wants: |_| LaneNeeds { view: true, least: true, ..LaneNeeds::default() },
    ..Row::without_turns("leastconn", |_, _| Algorithm::LeastConn)
};

/// Returns the least loaded server with room, or with room in its queue.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let (lane, snapshot) = (pick.lane, pick.snapshot);
    let least = lane.least.as_ref().expect("made with the lane for this algorithm");
    least.refresh(lane, snapshot);
    for server in pick.refresh_view().into_iter().flatten() {
        least.correct(server, lane.load(server));
    }
    pick.or_any(least.least(|server| server != pick.avoid && pick.has_room_or_queue(server)))
}

/// Key of a server that takes no part.
const OUT: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Winners {
    keys: Wide,
    /// Weights of the snapshot that the keys were computed from.
    weights: Numbers,
    /// `nodes[1]` is the root and `nodes[n]` the parent of `nodes[2n]` and `nodes[2n + 1]`. Leaves begin at
    /// `leaves` and are not stored.
    nodes: Numbers,
    leaves: usize,
    servers: usize,
    /// Version of the snapshot that the keys were computed from.
    version: OwnedU64,
    /// Number that the last update put behind a load.
    touched: OwnedU64,
}

impl Winners {
    pub(crate) fn new(servers: usize) -> Self {
        let leaves = servers.max(2).next_power_of_two();
        Self {
            keys: Wide::new(leaves, OUT),
            weights: Numbers::new(servers),
            nodes: Numbers::new(leaves),
            leaves,
            servers,
            version: OwnedU64::new(u64::MAX),
            touched: OwnedU64::new(0),
        }
    }

    /// Returns the weighted load. An idle server comes before all others, whatever its weight; for a loaded
    /// one, the request that it would get counts, too.
    #[inline]
    fn score(load: u32, weight: u32) -> u32 {
        if load == 0 {
            return 0;
        }
        let score =
            (u64::from(load) + 1) * u64::from(u32::from(MAX_WEIGHT) * WEIGHT_SCALE) / u64::from(weight);
        score.min(u64::from(u32::MAX - 1)) as u32
    }

    #[inline]
    fn key(&self, load: u32, weight: u32) -> u64 {
        if weight == 0 {
            return OUT;
        }
        self.touched.add(1);
        u64::from(Self::score(load, weight)) << 32 | self.touched.get() & u64::from(u32::MAX)
    }

    #[inline]
    fn winner(&self, node: usize) -> usize {
        if node >= self.leaves { node - self.leaves } else { self.nodes.get(node) as usize }
    }

    #[inline]
    fn play(&self, node: usize) {
        let (left, right) = (self.winner(2 * node), self.winner(2 * node + 1));
        let winner = if self.keys.get(right) < self.keys.get(left) { right } else { left };
        self.nodes.set(node, winner as u32);
    }

    /// Sets the load of server `index`.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn update(&self, index: usize, load: u32) {
        self.keys.set(index, self.key(load, self.weights.get(index)));
        let mut node = (self.leaves + index) / 2;
        while node > 0 {
            self.play(node);
            node /= 2;
        }
    }

    /// Sets the load of server `index` after the view was refreshed, if it changes the key.
    #[inline]
    pub(crate) fn correct(&self, index: usize, load: u32) {
        let weight = self.weights.get(index);
        if weight != 0 && (self.keys.get(index) >> 32) as u32 != Self::score(load, weight) {
            self.update(index, load);
        }
    }

    /// Recomputes all keys if the servers' states or weights changed.
    #[inline]
    pub(crate) fn refresh(&self, state: &LaneState, snapshot: &Snapshot) {
        if self.version.get() != snapshot.version {
            self.rebuild(state, snapshot);
        }
    }

    #[cold]
    #[inline(never)]
    fn rebuild(&self, state: &LaneState, snapshot: &Snapshot) {
        for index in 0..self.servers {
            let weight = snapshot.weights.get(index).copied().unwrap_or(0); // 0 for slots without a server
            self.weights.set(index, weight);
            self.keys.set(index, self.key(state.load(index), weight));
        }
        for node in (1..self.leaves).rev() {
            self.play(node);
        }
        self.version.set(snapshot.version);
    }

    /// Returns the least loaded server for which `good` returns true. If the root is good, this costs one
    /// call; else it compares all servers.
    #[inline]
    pub(crate) fn least(&self, good: impl Fn(usize) -> bool) -> Option<usize> {
        let root = self.winner(1);
        if self.keys.get(root) != OUT && good(root) {
            return Some(root);
        }
        (0..self.servers).filter(|&n| self.keys.get(n) != OUT && good(n)).min_by_key(|&n| self.keys.get(n))
    }
}
