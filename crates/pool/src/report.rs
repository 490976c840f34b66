//! All pools of the program and their numbers, in the shape of HAProxy's `show pools`.

use crate::inner::Inner;
use manylane_stats::MemReport;
use manylane_sync::LaneId;
#[cfg(not(any(loom, manylane_sim)))]
use manylane_sync::{LockClass, Mutex};
use std::fmt;

// Statics cannot hold loom's locks, and the memory of a simulation ends with it: nobody is listed there.
#[cfg(not(any(loom, manylane_sim)))]
static CLASS: LockClass = LockClass::new("pools", LockClass::REGISTRY);
#[cfg(not(any(loom, manylane_sim)))]
static POOLS: Mutex<Vec<&'static Inner>> = Mutex::new(&CLASS, Vec::new());

pub(crate) fn register(pool: &'static Inner) {
    #[cfg(not(any(loom, manylane_sim)))]
    POOLS.lock().push(pool);
    manylane_stats::register_mem(pool); // which lists nobody either on those machines
}

fn pools() -> Vec<&'static Inner> {
    #[cfg(not(any(loom, manylane_sim)))]
    return POOLS.lock().clone();
    #[cfg(any(loom, manylane_sim))]
    Vec::new()
}

/// The numbers of every pool, in order of name, read while the lanes go on.
pub fn report() -> Vec<PoolReport> {
    let mut all: Vec<_> = pools().into_iter().map(PoolReport::of).collect();
    all.sort_by_key(|pool| pool.name);
    all
}

/// Housekeeping, never done on the data path: gives free objects of all pools back to the allocator, and
/// returns how many bytes that were.
///
/// It reaches the calling lane's caches, those of lanes whose thread has ended, the surpluses of all lanes,
/// and the global lists. It does not reach the caches of lanes that have a thread, which no other thread may
/// touch: each lane calls this for itself. Threads that start or end wait while the caches of ended ones are
/// looked through.
pub fn reclaim() -> usize {
    pools().into_iter().map(|pool| pool.reclaim() * pool.options.layout.size()).sum()
}

/// Housekeeping of a lane, every few seconds, never on the data path: gives back to the allocator half of the
/// objects on the calling lane's surpluses, and takes half of its caches out of use, in each pool that asked
/// the allocator for nothing since the last call.
pub fn trim() {
    pools().into_iter().for_each(Inner::trim);
}

/// A pool's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The pool's name.
    pub name: &'static str,
    /// Bytes of an object, alignment included.
    pub size: usize,
    /// Objects taken from the allocator and not given back.
    pub allocated: u64,
    /// Of these, those in use.
    pub used: u64,
    /// Of these, those kept for later: in caches, on surpluses, on global lists.
    pub cached: u64,
    /// Of the cached ones, those on global lists (feature `global-pools`).
    pub global: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Most objects that the pool may have, if it is limited.
    pub limit: Option<usize>,
    /// The same by lane.
    pub lanes: Vec<PoolLane>,
}

/// A lane's part of a pool's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLane {
    /// The lane.
    pub lane: LaneId,
    /// Objects allocated here.
    pub allocs: u64,
    /// Objects freed here, wherever they were allocated.
    pub frees: u64,
    /// Objects in its cache.
    pub cached: u64,
    /// Objects on its surplus.
    pub surplus: u64,
    /// Allocations that failed here.
    pub failed: u64,
}

impl PoolReport {
    /// Reads while the lanes go on: exact while they are at rest; otherwise `used` is never negative (all
    /// frees are read before any allocation), and `cached` is what is left of `allocated`.
    pub(crate) fn of(pool: &'static Inner) -> Self {
        let used = MemReport::read_cheap(pool).sum.live().cast_unsigned();
        let (mut fresh, mut evicted, mut failed) = (0u64, 0u64, 0u64);
        let mut lanes = Vec::new();
        pool.visit_lanes(&mut |lane, numbers| {
            fresh += numbers.fresh;
            evicted += numbers.evicted;
            failed += numbers.failed;
            lanes.push(PoolLane {
                lane,
                allocs: numbers.mem.allocs,
                frees: numbers.mem.frees,
                cached: numbers.cached(),
                surplus: numbers.surplus,
                failed: numbers.failed,
            });
        });
        let allocated = fresh.saturating_sub(evicted).max(used);
        Self {
            name: pool.name,
            size: pool.options.layout.size(),
            allocated,
            used,
            cached: allocated - used,
            global: pool.on_global_lists() as u64,
            failed,
            limit: pool.options.limit,
            lanes,
        }
    }
}

/// A line for the pool and a line for each lane.
impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, size, allocated, used, cached, failed, .. } = self;
        let bytes = allocated * *size as u64;
        write!(
            f,
            "  - Pool {name} ({size} bytes) : {allocated} allocated ({bytes} bytes), {used} used \
             ({cached} cached), {failed} failures"
        )?;
        if let Some(limit) = self.limit {
            write!(f, ", limit {limit}")?;
        }
        writeln!(f)?;
        for lane in &self.lanes {
            writeln!(
                f,
                "      {:?}: {} allocs, {} frees, {} cached, {} surplus, {} failures",
                lane.lane, lane.allocs, lane.frees, lane.cached, lane.surplus, lane.failed
            )?;
        }
        Ok(())
    }
}
