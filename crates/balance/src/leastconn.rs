//! `leastconn`: the server with the least load for its weight.
//!
//! # How
//! Each lane keeps the keys of all servers in a tournament tree: each inner node names the winner below it,
//! so the root is the least loaded, and a load that changes costs one match a level. A key is the load,
//! weighted, and behind it a number that only grows: who was touched last comes last among equals, so servers
//! of equal load have turns.
//!
//! # How exact
//! With one lane: exact. With several, a lane compares its view (see [`lane`](crate::lane)): its own
//! connections exactly, the others' as of up to one millisecond ago for up to 32 servers, of up to `servers /
//! 32` milliseconds for more (as long as requests come at least once a millisecond; else as old as so many
//! requests).
//!
//! Cost: a pick reads the root; a load that changes plays `log2(servers)` matches, all in the lane's own
//! memory.

use crate::algorithm::{NoPick, Row};
use crate::balancer::Pick;
use crate::lane::{LaneState, Numbers, Wants, Wide};
use crate::snapshot::Snapshot;
use crate::spec::{Index, MAX_WEIGHT, WEIGHT_SCALE};
use manylane_sync::atomic::OwnedU64;

pub(crate) const ROW: Row = Row {
    wants: |_| Wants { view: true, least: true, ..Wants::default() },
    ..Row::without_turns("leastconn")
};

/// The least loaded one with room, or with room in its queue.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>) -> Result<Index, NoPick> {
    let (lane, snapshot) = (pick.lane, pick.snapshot);
    let least = lane.least.as_ref().expect("made with the lane for this algorithm");
    least.refresh(lane, snapshot);
    for server in pick.look_around().into_iter().flatten() {
        least.correct(server, lane.seen(server));
    }
    pick.or_any(least.least(|server| server != pick.avoid && pick.has_room_or_queue(server)))
}

/// A server that takes no part.
const OUT: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Winners {
    keys: Wide,
    /// Weights of the snapshot that the keys were made by.
    weights: Numbers,
    /// `nodes[1]` is the root, `nodes[n]` stands above `nodes[2n]` and `nodes[2n + 1]`; leaves begin at
    /// `leaves`, and are not stored.
    nodes: Numbers,
    leaves: usize,
    servers: usize,
    /// The snapshot that the keys were made by.
    version: OwnedU64,
    /// The next number among equals.
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

    /// The weighted load. A server without any is before all others, whatever its weight; one with some
    /// counts the request that it would get.
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

    /// The load of `index` changed.
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

    /// The view of `index` was renewed: plays it again if its key changes.
    #[inline]
    pub(crate) fn correct(&self, index: usize, load: u32) {
        let weight = self.weights.get(index);
        if weight != 0 && (self.keys.get(index) >> 32) as u32 != Self::score(load, weight) {
            self.update(index, load);
        }
    }

    /// Makes all keys anew when the servers' states or weights changed.
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
            let weight = snapshot.weights.get(index).copied().unwrap_or(0); // places for servers to come
            self.weights.set(index, weight);
            self.keys.set(index, self.key(state.seen(index), weight));
        }
        for node in (1..self.leaves).rev() {
            self.play(node);
        }
        self.version.set(snapshot.version);
    }

    /// The least loaded server for which `good` holds. The root is asked first, so it costs nothing when that
    /// is good; else all are compared.
    #[inline]
    pub(crate) fn least(&self, good: impl Fn(usize) -> bool) -> Option<usize> {
        let root = self.winner(1);
        if self.keys.get(root) != OUT && good(root) {
            return Some(root);
        }
        (0..self.servers).filter(|&n| self.keys.get(n) != OUT && good(n)).min_by_key(|&n| self.keys.get(n))
    }
}
