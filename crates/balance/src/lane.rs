//! A lane's state for a backend: its turn, its own loads, and its view of other lanes' loads.
//!
//! # Protocol
//! 1. Only its own lane writes a [`LaneState`]. Other lanes read its loads for their views, and nothing else
//!    of it.
//! 2. A lane's *view* of a server is its own load, which is exact, plus the loads of the other lanes when it
//!    last read their lines. A lane reads the loads of [`BLOCK`] servers on all lanes at most once a
//!    millisecond, one block after another.
//!
//! A local view with occasional samples is enough to join the shortest queue stably: S. Vargaftik, I.
//! Keslassy, A. Orda, *LSQ: Load Balancing in Large-Scale Heterogeneous Systems With Multiple Dispatchers*
//! (2020).

use manylane_sched::Time;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{Arc, CachePadded, PerLane, lane};
use std::fmt;

/// Number of servers whose loads are read together: those on one padded cache line.
pub(crate) const BLOCK: usize = 32;

/// Shortest time, in nanoseconds, between two reads of other lanes' loads.
const VIEW_INTERVAL: u64 = 1_000_000;

/// A [`LaneState`] for each lane, made on first use for what the backend's algorithm needs.
pub(crate) type Lanes = PerLane<LaneState, Box<dyn Fn(manylane_sync::LaneId) -> LaneState + Send + Sync>>;

/// Numbers of a lane, one for each server, on cache lines of their own.
pub(crate) struct Numbers(Box<[CachePadded<[AtomicU32; BLOCK]>]>);

impl Numbers {
    pub(crate) fn new(len: usize) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| AtomicU32::new(0)));
        Self((0..len.div_ceil(BLOCK)).map(block).collect())
    }

    /// Returns the number of a server. Relaxed: the numbers are only compared.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self, index: usize) -> u32 {
        self.0[index / BLOCK][index % BLOCK].load(Ordering::Relaxed)
    }

    /// Returns the number of a server, or 0 if the table has no slot for it.
    pub(crate) fn get_any(&self, index: usize) -> u32 {
        if index < self.blocks() * BLOCK { self.get(index) } else { 0 }
    }

    /// Sets the number of a server. Only the owning lane calls this.
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

/// 64-bit numbers of a lane, one for each server, on cache lines of their own.
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

/// One lane's part of a backend (rule 1).
#[derive(Debug)]
pub(crate) struct LaneState {
    /// Requests of this lane on each server and in its queue.
    pub(crate) loads: Numbers,
    /// Sum of `loads`.
    pub(crate) total: OwnedU64,
    /// Number of lanes that used the backend before this one did.
    pub(crate) order: u32,
    /// Position in the table of turns, and the length of that table: see `roundrobin`.
    pub(crate) turn: OwnedU64,
    /// Time of the lane's last adaptation of limits to the load, in nanoseconds.
    pub(crate) adapted: OwnedU64,
    /// Time until which `first` spreads its picks, in nanoseconds: see `first`.
    pub(crate) crowded: OwnedU64,
    /// State of the lane's random number generator.
    random: OwnedU64,
    /// View for algorithms by load; `None` for other algorithms.
    pub(crate) view: Option<View>,
    /// Tournament tree of `leastconn`.
    pub(crate) least: Option<crate::leastconn::Winners>,
    /// Response times of `ewma`.
    pub(crate) times: Option<crate::ewma::Times>,
}

/// Loads of the other lanes, as a lane last saw them (rule 2).
#[derive(Debug)]
pub(crate) struct View {
    others: Numbers,
    total: OwnedU64,
    read_at: OwnedU64,
    next: OwnedU64,
}

impl View {
    /// Creates a view that contains the loads of `earlier` tables.
    fn new(servers: usize, earlier: &[Arc<Lanes>]) -> Self {
        let (others, mut total) = (Numbers::new(servers), 0_u64);
        for (_, lane) in earlier.iter().flat_map(|lanes| lanes.iter()) {
            for index in 0..servers.min(lane.loads.blocks() * BLOCK) {
                let load = lane.loads.get(index);
                others.set(index, others.get(index).wrapping_add(load));
                total += u64::from(load);
            }
        }
        Self { others, total: OwnedU64::new(total), read_at: OwnedU64::new(0), next: OwnedU64::new(0) }
    }
}

/// The finaliser of splitmix64.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl LaneState {
    pub(crate) fn new(
        servers: usize,
        order: u32,
        seed: u64,
        wants: LaneNeeds,
        earlier: &[Arc<Lanes>],
    ) -> Self {
        Self {
            loads: Numbers::new(servers),
            total: OwnedU64::new(0),
            order,
            turn: OwnedU64::new(0),
            adapted: OwnedU64::new(0),
            crowded: OwnedU64::new(0),
            // Mixed: lanes whose states are a few steps apart would draw the same numbers one after another.
            random: OwnedU64::new(mix(seed ^ mix(lane::current().index() as u64 + 1))),
            view: wants.view.then(|| View::new(servers, earlier)),
            least: wants.least.then(|| crate::leastconn::Winners::new(servers)),
            times: wants.times.then(|| crate::ewma::Times::new(servers)),
        }
    }

    /// Returns the load of a server on all lanes, as far as this lane knows it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn load(&self, index: usize) -> u32 {
        let others = self.view.as_ref().map_or(0, |view| view.others.get(index));
        self.loads.get(index).wrapping_add(others)
    }

    /// Returns the load of all servers on all lanes, as far as this lane knows it.
    pub(crate) fn known_total(&self) -> u64 {
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

    /// Reads the loads of one block of servers, on all other lanes and on all lanes of `earlier` tables, if
    /// it is due. Returns the servers whose loads it read.
    ///
    /// Cost: a comparison; at most once a millisecond, one cache line of each other lane.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn refresh_view(
        &self,
        lanes: (&Lanes, &[Arc<Lanes>]),
        servers: usize,
        now: Time,
    ) -> Option<std::ops::Range<usize>> {
        let view = self.view.as_ref()?;
        if now.as_nanos().wrapping_sub(view.read_at.get()) < VIEW_INTERVAL {
            return None;
        }
        view.read_at.set(now.as_nanos());
        self.read_others(view, lanes, servers)
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn read_others(
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
        // In earlier tables the lane's own loads count, too: it begins no more requests there.
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

    /// Returns a random number (splitmix64: G. Steele, D. Lea, C. Flood, *Fast Splittable Pseudorandom Number
    /// Generators*, 2014).
    #[inline]
    pub(crate) fn random(&self) -> u64 {
        self.random.add(0x9e37_79b9_7f4a_7c15);
        mix(self.random.get())
    }

    /// Returns a random number below `bound`.
    #[inline]
    pub(crate) fn below(&self, bound: usize) -> usize {
        ((u128::from(self.random()) * bound as u128) >> 64) as usize
    }
}

/// The state that an algorithm needs on each lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneNeeds {
    pub(crate) view: bool,
    pub(crate) least: bool,
    pub(crate) times: bool,
}
