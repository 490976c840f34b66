//! R-D2: live objects cross the size of the caches. With the list of its source, performance fell to an
//! eighth between 32 and 64 connections: from there on, each thread has more objects in use than its cache
//! keeps.
//!
//! Both variants keep [`CACHED`] objects in each lane. The one has them all in a cache, and behind it a list
//! for all lanes. The other, the pool that ships, has a quarter in its cache and the rest in its surplus,
//! which other lanes may take (rule 3 of the pool's README), and behind them the allocator. So beyond the
//! caches it moves lines, too: a lane that misses searches the surpluses of all others, a line each, at most
//! once in 32 misses, and uses the batches that it finds. How much each of the two moves was not measured.
//!
//! Beside each object is a microsecond of other work. An operation takes and returns half as many objects as
//! a lane keeps, or twice as many: two points of the source's curve, which has its fall between 32 and 64.

use super::Working;
use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_pool::{BytePool, Options, PooledBytes};
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{CachePadded, label};
use std::mem::MaybeUninit;

/// Objects that a lane keeps, in both variants.
const CACHED: usize = 32;
/// Bytes of an object.
const OBJECT: usize = 256;
/// Live objects within the caches, and beyond them.
const FEW: usize = 16;
const MANY: usize = 64;

pub(in crate::evidence) static WITHIN: Case = Case {
    name: "pool-within",
    operation: "take 16 objects of lanes that keep 32, return them",
    requirement: "R-D2",
    contenders: &[
        Contender::of::<Working<GlobalList<FEW>, 16_000>>(Role::Before),
        Contender::of::<Working<LaneCache<FEW>, 16_000>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

pub(in crate::evidence) static BEYOND: Case = Case {
    name: "pool-beyond",
    operation: "take 64 objects of lanes that keep 32, return them",
    requirement: "R-D2",
    contenders: &[
        Contender::of::<Working<GlobalList<MANY>, 64_000>>(Role::Before),
        Contender::of::<Working<LaneCache<MANY>, 64_000>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// Objects of an operation, as the cases are named.
#[cfg(not(manylane_sim))]
pub(in crate::evidence) fn live(case: &Case) -> usize {
    if case.name == WITHIN.name { FEW } else { MANY }
}

struct Object {
    /// Index of the next free object plus one; 0 ends the list.
    next: AtomicU32,
    uses: OwnedU64,
}

/// A list of free objects for all threads behind each thread's cache: a stack under compare-and-swap, whose
/// upper half counts changes. It retries without a pause, like the original.
struct GlobalList<const LIVE: usize> {
    head: CachePadded<AtomicU64>,
    objects: Box<[CachePadded<Object>]>,
}

impl<const LIVE: usize> GlobalList<LIVE> {
    fn pop(&self) -> Option<u32> {
        let mut found = self.head.load(Ordering::Acquire);
        loop {
            let index = (found as u32).checked_sub(1)?;
            let next = self.objects[index as usize].next.load(Ordering::Relaxed);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.head.compare_exchange_weak(found, tagged(found, next), order.0, order.1) {
                Ok(_) => return Some(index),
                Err(now) => found = now,
            }
        }
    }

    fn push(&self, index: u32) {
        let mut found = self.head.load(Ordering::Relaxed);
        loop {
            self.objects[index as usize].next.store(found as u32, Ordering::Relaxed);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            match self.head.compare_exchange_weak(found, tagged(found, index + 1), order.0, order.1) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    }
}

/// The head after `found`, with `first` as the start of the list and one more change.
fn tagged(found: u64, first: u32) -> u64 {
    ((found >> 32).wrapping_add(1) << 32) | u64::from(first)
}

impl<const LIVE: usize> Variant for GlobalList<LIVE> {
    const NAME: &'static str = "lane caches, one global list";
    type Own<'a> = Vec<u32>;

    fn new(threads: usize) -> Self {
        let objects = threads * (LIVE + CACHED);
        let object = || CachePadded::new(Object { next: AtomicU32::new(0), uses: OwnedU64::new(0) });
        let list = Self {
            head: CachePadded::new(AtomicU64::new(0)),
            objects: (0..objects).map(|_| object()).collect(),
        };
        label(&list.head, "head of the global list");
        label(&*list.objects, "pooled objects");
        (0..objects).for_each(|index| list.push(index as u32));
        list
    }

    fn enter(&self, _: usize) -> Vec<u32> {
        // The cache is full before the measurement, as ours is.
        (0..CACHED).map(|_| self.pop().expect("there are enough for all")).collect()
    }

    #[inline]
    fn operate(&self, cache: &mut Vec<u32>) {
        let taken: [u32; LIVE] = std::array::from_fn(|_| {
            let index = cache.pop().or_else(|| self.pop()).expect("there are enough for all");
            self.objects[index as usize].uses.add(1);
            index
        });
        for index in taken {
            if cache.len() < CACHED { cache.push(index) } else { self.push(index) }
        }
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let uses: u64 = self.objects.iter().map(|object| object.uses.get()).sum();
        if uses == operations * LIVE as u64 {
            return Ok(());
        }
        Err(format!("{operations} operations used {uses} objects: some were given to two threads at once"))
    }
}

/// `BytePool` with [`CACHED`] objects in its cache and surplus, and the allocator behind them.
struct LaneCache<const LIVE: usize>(BytePool);

impl<const LIVE: usize> Variant for LaneCache<LIVE> {
    const NAME: &'static str = "lane caches, no list";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        let options = Options::new().lane_bytes(CACHED * OBJECT);
        Self(BytePool::with("evidence objects", OBJECT, options).expect("256 is a size"))
    }

    fn enter(&self, _: usize) {
        self.operate(&mut ()); // fills the lane's cache
    }

    #[inline]
    fn operate(&self, (): &mut ()) {
        let taken: [PooledBytes; LIVE] = std::array::from_fn(|_| {
            let mut object = self.0.alloc().expect("there is memory for a few objects");
            object.as_uninit()[0] = MaybeUninit::new(1);
            object
        });
        drop(std::hint::black_box(taken));
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let report = self.0.report();
        self.0.reclaim(); // pools are never freed, but their objects are
        if report.used == 0 { Ok(()) } else { Err(format!("{} objects did not come back", report.used)) }
    }
}
