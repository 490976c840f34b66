//! The choice of the lane that serves a new connection: the least loaded of a few lanes.
//!
//! # Protocol
//! 1. A lane has one cache line with three numbers: connections that others gave it (`given`, which any lane
//!    adds to), connections that it gave itself, and connections that ended (`own`, `ended`, which only the
//!    lane stores). Its load is `given + own - ended`.
//! 2. The lane that gives a connection takes a [`LaneGuard`] first and sends it along. So connections in
//!    transit count, and a burst does not go to a lane that has not yet seen any of it.
//! 3. A lane guard is dropped on its lane, which stores `ended`; or elsewhere, because the lane did not take
//!    the connection, which decrements `given`.
//! 4. `ended` is read first. Each connection was given before it ended, so a load is never below zero, except
//!    for connections that are taken back meanwhile; a negative load counts as zero.
//! 5. Up to [`ALL_COMPARED`] lanes are all compared. Among more, two other lanes are drawn and compared with
//!    the own one: two choices keep the longest queue at O(log log n), and a third hardly helps
//!    (Mitzenmacher, *The power of two choices in randomized load balancing*, 2001).
//! 6. The accepting lane keeps a connection unless another lane's load is lower by more than an eighth of its
//!    own. Giving it away wakes the other lane, which costs as much as a short connection; with nearly equal
//!    loads, it would happen to every second one. A lane with fewer than [`SLACK`] connections gives to any
//!    lane that has less.
//! 7. The lane that connected serves a connection inside of the process, whatever the loads. That lane was
//!    chosen by load for the other end already, and between two lanes each request and each answer would wake
//!    the other lane.
//!
//! # Cost
//! A connection of the own lane: a store at its beginning and one at its end. Cache lines from other lanes:
//! one for each lane that is compared; for a connection that is given away, a locked addition to a line that
//! was just read.

#[cfg(not(any(loom, manylane_sim)))]
use crate::connection::Incoming;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{LaneId, PerLane, lane};
use std::cell::Cell;
use std::marker::PhantomData;

/// Largest number of lanes that are all compared: reading four lines costs less than waking a lane
/// needlessly.
pub const ALL_COMPARED: usize = 4;

/// A difference of less than this part of the own load is no reason to give a connection away (rule 6).
pub const SLACK: u64 = 8;

struct Load {
    /// Number of [`AcceptingLane`]s of the lane. Stored by the lane.
    present: AtomicU32,
    /// Stored by any lane.
    given: AtomicU64,
    /// Stored by the lane.
    own: OwnedU64,
    /// Stored by the lane.
    ended: OwnedU64,
}

impl Load {
    fn new() -> Self {
        Self {
            present: AtomicU32::new(0),
            given: AtomicU64::new(0),
            own: OwnedU64::new(0),
            ended: OwnedU64::new(0),
        }
    }

    #[cfg_attr(manylane_sim, track_caller)]
    fn get(&self) -> u64 {
        // Relaxed: the number is only compared, and nothing is read through it. Rule 4 is about the usual
        // case, not about memory order.
        let ended = self.ended.get();
        let begun = self.given.load(Ordering::Relaxed).wrapping_add(self.own.get());
        begun.wrapping_sub(ended).cast_signed().max(0).cast_unsigned()
    }
}

#[cfg(not(loom))]
static LOADS: PerLane<Load> = PerLane::new(|_| Load::new());
#[cfg(loom)]
manylane_sync::lazy_static! {
    static LOADS: PerLane<Load> = PerLane::new(|_| Load::new());
}

fn loads() -> &'static PerLane<Load> {
    &LOADS
}

/// Returns the number of connections of `lane`, including those in transit to it.
pub fn load(lane: LaneId) -> u64 {
    loads().get(lane).map_or(0, Load::get)
}

/// While this exists, the lane that made it takes connections from others. It stays on its thread. A lane may
/// have several.
#[derive(Debug)]
pub struct AcceptingLane(PhantomData<*const ()>);

impl AcceptingLane {
    /// Makes the calling lane take connections.
    pub fn new() -> Self {
        let own = loads().own();
        // only the lane itself writes it
        own.present.store(own.present.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self(PhantomData)
    }
}

impl Default for AcceptingLane {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for AcceptingLane {
    fn drop(&mut self) {
        let own = loads().own();
        own.present.store(own.present.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// Counts a connection on a lane as long as it exists. It moves with the connection.
#[derive(Debug)]
pub struct LaneGuard {
    lane: LaneId,
}

impl LaneGuard {
    /// Counts a connection on the calling lane.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn here() -> Self {
        let own = &loads().own().own;
        own.add(1);
        Self { lane: lane::current() }
    }

    /// Returns the lane that counts the connection.
    pub fn lane(&self) -> LaneId {
        self.lane
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        if self.lane.is_current() {
            loads().own().ended.add(1);
        } else if let Some(load) = loads().get(self.lane) {
            load.given.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Gives connections to lanes. Each accepting lane has its own.
#[derive(Debug)]
pub struct Balance {
    lanes: Box<[LaneId]>,
    /// State of the random draws (xorshift); never zero.
    random: Cell<u64>,
}

impl Balance {
    /// Creates a balance over `lanes`, each of which may be named once. Lanes that take no connections (see
    /// [`AcceptingLane`]) are skipped.
    pub fn new(lanes: impl IntoIterator<Item = LaneId>) -> Self {
        let lanes: Box<[LaneId]> = lanes.into_iter().collect();
        // Each lane draws differently, but the same in every run.
        let seed = (lane::current().index() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { lanes, random: Cell::new(seed | 1) }
    }

    /// Counts a connection on the least loaded of the compared lanes. That is the own lane if it is among the
    /// lanes and no other has clearly less (rule 6), or if no other lane is present.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn lane_guard(&self) -> LaneGuard {
        let here = lane::current();
        let mut own: Option<u64> = None;
        let mut best: Option<(u64, LaneId, &'static Load)> = None;
        let mut compare = |lane: LaneId| {
            if let Some(load) = loads().get(lane)
                && load.present.load(Ordering::Relaxed) > 0
            {
                let n = load.get();
                if lane == here {
                    own = Some(n);
                } else if best.is_none_or(|(least, ..)| n < least) {
                    best = Some((n, lane, load));
                }
            }
        };
        if self.lanes.len() <= ALL_COMPARED {
            // Among equals the first is chosen, so each search starts elsewhere.
            let (after, before) = self.lanes.split_at(self.draw(self.lanes.len()));
            before.iter().chain(after).for_each(|lane| compare(*lane));
        } else {
            let first = self.draw(self.lanes.len());
            let second = (first + 1 + self.draw(self.lanes.len() - 1)) % self.lanes.len();
            if self.lanes.contains(&here) {
                compare(here);
            }
            compare(self.lanes[first]);
            compare(self.lanes[second]);
        }
        match best {
            Some((n, lane, load)) if own.is_none_or(|own| n < own - own / SLACK) => {
                load.given.fetch_add(1, Ordering::Relaxed);
                LaneGuard { lane }
            }
            _ => LaneGuard::here(),
        }
    }

    /// Counts this connection on a lane. A connection inside of the process gets the lane that connected, if
    /// that is among the lanes (rule 7); others get theirs as by [`lane_guard`](Self::lane_guard).
    #[cfg(not(any(loom, manylane_sim)))]
    pub fn guard_for(&self, incoming: &Incoming) -> LaneGuard {
        let Incoming::Local(socket) = incoming else { return self.lane_guard() };
        let lane = socket.lane();
        if !self.lanes.contains(&lane) {
            return self.lane_guard();
        }
        if lane.is_current() {
            return LaneGuard::here();
        }
        match loads().get(lane) {
            Some(load) if load.present.load(Ordering::Relaxed) > 0 => {
                load.given.fetch_add(1, Ordering::Relaxed);
                LaneGuard { lane }
            }
            _ => self.lane_guard(),
        }
    }

    /// Draws a number below `bound`; 0 for 0.
    fn draw(&self, bound: usize) -> usize {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        ((u128::from(x) * bound as u128) >> 64) as usize // below the bound
    }
}
