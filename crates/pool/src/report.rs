//! All pools of the program with their numbers, in the format of HAProxy's `show pools`.

use crate::inner::Inner;
use manylane_stats::MemReport;
use manylane_sync::LaneId;
#[cfg(not(any(loom, manylane_sim)))]
use manylane_sync::{LockClass, Mutex};
use std::fmt;

// Statics cannot hold loom's locks, and the memory of a simulation ends with it: neither machine lists pools.
#[cfg(not(any(loom, manylane_sim)))]
static CLASS: LockClass = LockClass::new("pools", LockClass::REGISTRY);
#[cfg(not(any(loom, manylane_sim)))]
static POOLS: Mutex<Vec<&'static Inner>> = Mutex::new(&CLASS, Vec::new());

pub(crate) fn register(pool: &'static Inner) {
    #[cfg(not(any(loom, manylane_sim)))]
    POOLS.lock().push(pool);
    manylane_stats::register_mem(pool); // it lists no pools on those machines either
}

fn pools() -> Vec<&'static Inner> {
    #[cfg(not(any(loom, manylane_sim)))]
    return POOLS.lock().clone();
    #[cfg(any(loom, manylane_sim))]
    Vec::new()
}

/// Returns the numbers of every pool, in order of name, read while the lanes go on.
pub fn report() -> Vec<PoolReport> {
    let mut all: Vec<_> = pools().into_iter().map(PoolReport::of).collect();
    all.sort_by_key(|pool| pool.name);
    all
}

/// Returns the number of bytes of the objects in use, of all pools.
pub fn used_bytes() -> usize {
    report().iter().map(|pool| pool.size * pool.used as usize).sum()
}

/// Returns free objects of all pools to the allocator, and returns their number of bytes. For housekeeping,
/// never for the data path.
///
/// Frees the objects of the calling lane's caches, of the caches of lanes whose thread has ended, of the
/// surpluses of all lanes and of the global lists. The caches of lanes with a thread are out of reach, since
/// no other thread may touch them: each lane calls this for itself. Threads that start or end wait while this
/// function visits the caches of ended lanes.
pub fn reclaim() -> usize {
    pools().into_iter().map(|pool| pool.reclaim() * pool.options.layout.size()).sum()
}

/// Returns to the allocator half of the objects on the calling lane's surpluses, and moves half of its caches
/// there, in each pool that allocated nothing from the allocator since the last call. For a lane's
/// housekeeping, every few seconds, never for the data path. Returns the number of bytes that went to the
/// allocator.
pub fn trim() -> usize {
    pools().into_iter().map(|pool| pool.trim() * pool.options.layout.size()).sum()
}

/// Numbers of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The pool's name.
    pub name: &'static str,
    /// Bytes of an object, alignment padding included.
    pub size: usize,
    /// Objects allocated from the allocator and not returned to it.
    pub allocated: u64,
    /// Those of `allocated` that are in use.
    pub used: u64,
    /// Those of `allocated` that are free: in caches, on surpluses, on global lists.
    pub cached: u64,
    /// Those of `cached` that are on global lists (feature `global-pools`).
    pub global: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Maximum number of objects, if the pool is limited.
    pub limit: Option<usize>,
    /// The numbers of each lane.
    pub lanes: Vec<PoolLane>,
}

/// A lane's part of a pool's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLane {
    /// The lane.
    pub lane: LaneId,
    /// Objects allocated on this lane.
    pub allocs: u64,
    /// Objects freed on this lane, on whichever lane they were allocated.
    pub frees: u64,
    /// Objects in the lane's cache.
    pub cached: u64,
    /// Objects on the lane's surplus.
    pub surplus: u64,
    /// Allocations that failed on this lane.
    pub failed: u64,
}

impl PoolReport {
    /// Reads the numbers while the lanes go on. They are exact while the lanes are at rest; otherwise `used`
    /// is never negative (it reads all frees before any allocation), and `cached` is the rest of `allocated`.
    pub(crate) fn of(pool: &'static Inner) -> Self {
        let used = MemReport::read_cheap(pool).sum.live().cast_unsigned();
        let (mut fresh, mut evicted, mut failed) = (0u64, pool.evicted_beside(), 0u64);
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

/// Writes a line for the pool and a line for each lane.
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
