//! What each lane knows and keeps for a backend: its turn, its own connections, a view of the others'.
//!
//! # Protocol
//! 1. A [`LaneState`] is written by its lane only. Others read its loads, for their views; everything else is
//!    read by nobody else.
//! 2. A lane's *view* of a server is its own load, exact, plus what the other lanes had when their line was
//!    last looked at. A lane looks at the loads of [`BLOCK`] servers of all lanes at most once a millisecond,
//!    in turns.
//!
//! A local view that is corrected by occasional samples is enough to join the shortest queue stably: S.
//! Vargaftik, I. Keslassy, A. Orda, *LSQ: Load Balancing in Large-Scale Heterogeneous Systems With Multiple
//! Dispatchers* (2020).

use manylane_sched::Time;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{Arc, CachePadded, PerLane, lane};
use std::fmt;

/// Servers whose loads are looked at together: those of one padded line.
pub(crate) const BLOCK: usize = 32;

/// How often a lane looks at the others' loads at most, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000;

/// A slot for each lane, made with what the backend needs.
pub(crate) type Lanes = PerLane<LaneState, Box<dyn Fn(manylane_sync::LaneId) -> LaneState + Send + Sync>>;

/// Numbers of a lane, one for each server, on lines of their own.
pub(crate) struct Numbers(Box<[CachePadded<[AtomicU32; BLOCK]>]>);

impl Numbers {
    pub(crate) fn new(len: usize) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| AtomicU32::new(0)));
        Self((0..len.div_ceil(BLOCK)).map(block).collect())
    }

    /// Relaxed: numbers to compare.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self, index: usize) -> u32 {
        self.0[index / BLOCK][index % BLOCK].load(Ordering::Relaxed)
    }

    /// The same; 0 where there is no such place.
    pub(crate) fn get_any(&self, index: usize) -> u32 {
        if index < self.blocks() * BLOCK { self.get(index) } else { 0 }
    }

    /// By the owner only.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, index: usize, value: u32) {
        self.0[index / BLOCK][index % BLOCK].store(value, Ordering::Relaxed);
    }

    fn blocks(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.blocks() * BLOCK).map(|n| self.get(n))).finish()
    }
}

/// The same, of 64 bits.
#[derive(Debug)]
pub(crate) struct Wide(Box<[CachePadded<[AtomicU64; 16]>]>);

impl Wide {
    pub(crate) fn new(len: usize, value: u64) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(value)));
        Self((0..len.div_ceil(16)).map(block).collect())
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0[index / 16][index % 16].load(Ordering::Relaxed)
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, index: usize, value: u64) {
        self.0[index / 16][index % 16].store(value, Ordering::Relaxed);
    }
}

/// One lane's part of a backend. Rule 1.
#[derive(Debug)]
pub(crate) struct LaneState {
    /// Connections and queued requests of this lane, by server.
    pub(crate) loads: Numbers,
    /// Their sum.
    pub(crate) total: OwnedU64,
    /// Position in the table of turns, and the length of the table that it is in: see `roundrobin`.
    pub(crate) turn: OwnedU64,
    /// When the lane adapted limits to the load last, in nanoseconds.
    pub(crate) adapted: OwnedU64,
    /// Until when `first` spreads: see there.
    pub(crate) crowded: OwnedU64,
    /// State of the lane's random numbers.
    random: OwnedU64,
    /// What algorithms by load need, else nothing.
    pub(crate) view: Option<View>,
    /// The tree of `leastconn`.
    pub(crate) least: Option<crate::leastconn::Winners>,
    /// The times of `ewma`.
    pub(crate) times: Option<crate::ewma::Times>,
}

/// What a lane knows of the other lanes' loads. Rule 2.
#[derive(Debug)]
pub(crate) struct View {
    others: Numbers,
    total: OwnedU64,
    looked: OwnedU64,
    next: OwnedU64,
}

impl View {
    /// Of who begins to look: what began `earlier` is known.
    fn new(servers: usize, earlier: &[Arc<Lanes>]) -> Self {
        let (others, mut total) = (Numbers::new(servers), 0_u64);
        for (_, lane) in earlier.iter().flat_map(|lanes| lanes.iter()) {
            for index in 0..servers.min(lane.loads.blocks() * BLOCK) {
                let load = lane.loads.get(index);
                others.set(index, others.get(index).wrapping_add(load));
                total += u64::from(load);
            }
        }
        Self { others, total: OwnedU64::new(total), looked: OwnedU64::new(0), next: OwnedU64::new(0) }
    }
}

impl LaneState {
    pub(crate) fn new(servers: usize, seed: u64, wants: Wants, earlier: &[Arc<Lanes>]) -> Self {
        Self {
            loads: Numbers::new(servers),
            total: OwnedU64::new(0),
            turn: OwnedU64::new(0),
            adapted: OwnedU64::new(0),
            crowded: OwnedU64::new(0),
            random: OwnedU64::new(
                seed ^ (lane::current().index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            view: wants.view.then(|| View::new(servers, earlier)),
            least: wants.least.then(|| crate::leastconn::Winners::new(servers)),
            times: wants.times.then(|| crate::ewma::Times::new(servers)),
        }
    }

    /// What the lane knows of the load of a server, all lanes together.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn seen(&self, index: usize) -> u32 {
        let others = self.view.as_ref().map_or(0, |view| view.others.get(index));
        self.loads.get(index).wrapping_add(others)
    }

    /// What it knows of the load of all servers together.
    pub(crate) fn seen_total(&self) -> u64 {
        self.total.get() + self.view.as_ref().map_or(0, |view| view.total.get())
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn begin(&self, index: usize) {
        self.loads.set(index, self.loads.get(index) + 1);
        self.total.add(1);
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn end(&self, index: usize) {
        debug_assert!(self.loads.get(index) > 0, "a request ends on the lane where it began, once");
        self.loads.set(index, self.loads.get(index).saturating_sub(1));
        self.total.sub(1);
    }

    /// Looks at a block of servers on all other lanes, and on all in what was `earlier`, if it is time to.
    /// Gives the servers that were looked at.
    ///
    /// Cost: a comparison; at most once a millisecond, one line for each other lane.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn look_around(
        &self,
        lanes: (&Lanes, &[Arc<Lanes>]),
        servers: usize,
        now: Time,
    ) -> Option<std::ops::Range<usize>> {
        let view = self.view.as_ref()?;
        if now.as_nanos().wrapping_sub(view.looked.get()) < LOOK_EVERY {
            return None;
        }
        view.looked.set(now.as_nanos());
        self.look(view, lanes, servers)
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn look(
        &self,
        view: &View,
        (lanes, earlier): (&Lanes, &[Arc<Lanes>]),
        servers: usize,
    ) -> Option<std::ops::Range<usize>> {
        let block = view.next.get() as usize;
        view.next.set(((block + 1) % self.loads.blocks().max(1)) as u64);
        let range = block * BLOCK..servers.min((block + 1) * BLOCK);
        if range.is_empty() {
            return None;
        }
        let own = lane::current();
        let mut sums = [0u32; BLOCK];
        for (_, other) in lanes.iter().filter(|(lane, _)| *lane != own) {
            for (sum, index) in sums.iter_mut().zip(range.clone()) {
                *sum = sum.wrapping_add(other.loads.get(index));
            }
        }
        // Of those before, the lane's own, too: it counts nobody there any more.
        for lane in earlier
            .iter()
            .flat_map(|lanes| lanes.iter())
            .map(|(_, lane)| lane)
            .filter(|lane| block < lane.loads.blocks())
        {
            for (sum, index) in sums.iter_mut().zip(range.clone()) {
                *sum = sum.wrapping_add(lane.loads.get(index));
            }
        }
        let mut total = view.total.get();
        for (sum, index) in sums.iter().zip(range.clone()) {
            total = total.wrapping_add(u64::from(*sum)).wrapping_sub(u64::from(view.others.get(index)));
            view.others.set(index, *sum);
        }
        view.total.set(total);
        Some(range)
    }

    /// A random number (splitmix64: G. Steele, D. Lea, C. Flood, *Fast Splittable Pseudorandom Number
    /// Generators*, 2014).
    #[inline]
    pub(crate) fn random(&self) -> u64 {
        self.random.add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number below `bound`.
    #[inline]
    pub(crate) fn below(&self, bound: usize) -> usize {
        ((u128::from(self.random()) * bound as u128) >> 64) as usize
    }
}

/// What an algorithm needs on each lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) view: bool,
    pub(crate) least: bool,
    pub(crate) times: bool,
}
