//! Which lane serves the next connection: the least loaded one, of few that are looked at.
//!
//! # Protocol
//! 1. A lane has one line: connections that others gave it (`given`, added to by whoever gives), those that
//!    it gave itself and those that ended (`own`, `ended`, stored by the lane alone). Its load is `given +
//!    own - ended`.
//! 2. Whoever gives takes a [`LaneGuard`] first and sends it along. So what is on its way counts, and a burst
//!    does not go to one lane as long as that lane has not looked.
//! 3. A lane guard ends where it is dropped: on its lane by a store to `ended`; elsewhere, because the lane
//!    did not take the connection, by taking back what was given.
//! 4. `ended` is read first: each end was given before, so a load is never below zero but for what is taken
//!    back meanwhile, and that is read as zero.
//! 5. Up to [`LOOKED_AT_ALL`] lanes are all looked at. Among more, two others are drawn and compared with the
//!    own one: two choices keep the longest queue at O(log log n), and one more look hardly helps
//!    (Mitzenmacher, *The power of two choices in randomized load balancing*, 2001).
//! 6. Who accepts a connection keeps it unless another lane has less by more than an eighth of the own load.
//!    Handing one over wakes that lane, which costs as much as a short connection itself; of loads that are
//!    nearly equal it would be every second one. A lane with fewer than [`SLACK`] gives to whoever has less.
//! 7. A connection inside of the process is served by the lane that connected, whatever the loads: its other
//!    end was given to that lane by its load already, and between two lanes each request and each answer
//!    would wake the other one.
//!
//! # Cost
//! A connection for the own lane: a store at its beginning and one at its end. Lines that come from other
//! lanes: one for each lane that is looked at; for a connection that is given away, one locked addition to a
//! line that was just read.

#[cfg(not(any(loom, manylane_sim)))]
use crate::connection::Incoming;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{LaneId, PerLane, lane};
use std::cell::Cell;
use std::marker::PhantomData;

/// Up to so many lanes, all are compared: to look at four lines costs less than to wake a lane in vain.
pub const LOOKED_AT_ALL: usize = 4;

/// A difference of less than this part of the own load is no reason to give a connection away (rule 6).
pub const SLACK: u64 = 8;

struct Load {
    /// How often the lane says that it takes connections. Stored by the lane.
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
        // Relaxed: a number to compare, nothing is read through it (rule 4 is about what is usual, not about
        // memory).
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

/// Connections in the care of `lane`, those included that are on their way to it.
pub fn load(lane: LaneId) -> u64 {
    loads().get(lane).map_or(0, Load::get)
}

/// While this is there, the lane that made it takes connections from others. It stays on its thread; there
/// may be several.
#[derive(Debug)]
pub struct Presence(PhantomData<*const ()>);

impl Presence {
    /// The calling lane takes connections.
    pub fn new() -> Self {
        let own = loads().own();
        // only the lane itself writes it
        own.present.store(own.present.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self(PhantomData)
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let own = loads().own();
        own.present.store(own.present.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// A connection's place on a lane, counted as long as it is there. It goes where the connection goes.
#[derive(Debug)]
pub struct LaneGuard {
    lane: LaneId,
}

impl LaneGuard {
    /// A place on the calling lane.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn here() -> Self {
        let own = &loads().own().own;
        own.add(1);
        Self { lane: lane::current() }
    }

    /// Whose it is.
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

/// Gives connections to lanes. Each lane that accepts has its own.
#[derive(Debug)]
pub struct Balance {
    lanes: Box<[LaneId]>,
    /// State of the draws (xorshift); never zero.
    random: Cell<u64>,
}

impl Balance {
    /// Among `lanes`, each of which may be named once; those that take no connections (see [`Presence`]) are
    /// passed over.
    pub fn new(lanes: impl IntoIterator<Item = LaneId>) -> Self {
        let lanes: Box<[LaneId]> = lanes.into_iter().collect();
        // Lanes draw differently, each the same in every run.
        let seed = (lane::current().index() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { lanes, random: Cell::new(seed | 1) }
    }

    /// A place on the least loaded lane of those that are looked at; on the own one, if it is among the lanes
    /// and no other has clearly less (rule 6), or if no other is there.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn lane_guard(&self) -> LaneGuard {
        let here = lane::current();
        let mut own: Option<u64> = None;
        let mut best: Option<(u64, LaneId, &'static Load)> = None;
        let mut look = |lane: LaneId| {
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
        if self.lanes.len() <= LOOKED_AT_ALL {
            // The first of equals is chosen, so begin elsewhere each time.
            let (after, before) = self.lanes.split_at(self.draw(self.lanes.len()));
            before.iter().chain(after).for_each(|lane| look(*lane));
        } else {
            let first = self.draw(self.lanes.len());
            let second = (first + 1 + self.draw(self.lanes.len() - 1)) % self.lanes.len();
            if self.lanes.contains(&here) {
                look(here);
            }
            look(self.lanes[first]);
            look(self.lanes[second]);
        }
        match best {
            Some((n, lane, load)) if own.is_none_or(|own| n < own - own / SLACK) => {
                load.given.fetch_add(1, Ordering::Relaxed);
                LaneGuard { lane }
            }
            _ => LaneGuard::here(),
        }
    }

    /// A place for this connection: of one inside of the process on the lane that connected, if that is among
    /// the lanes (rule 7); else as [`lane_guard`](Self::lane_guard).
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

    /// A number below `bound`; 0 for 0.
    fn draw(&self, bound: usize) -> usize {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        ((u128::from(x) * bound as u128) >> 64) as usize // below the bound
    }
}
