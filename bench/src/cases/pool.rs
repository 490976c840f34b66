//! R-D2: the layer behind the threads' caches of free objects.
//!
//! Source: up to 2.3, HAProxy had one list of free objects for all threads behind small caches. Between 32
//! and 64 H2 connections on 64 cores, its performance fell to an eighth. The list was then removed for
//! allocators with thread caches, and replaced by an array of lists for others.
//!
//! An operation takes [`BURST`] objects, writes to each, and returns them: twice as many as the small cache
//! holds. The "before" objects have 128 bytes, of which a line is touched; ours are buffers of 16 KiB that
//! are touched in the same way.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_pool::{BytePool, PooledBytes};
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{CachePadded, label};
use std::mem::MaybeUninit;

pub(super) static CASE: Case = Case {
    name: "pool",
    operation: "take 8 buffers, touch them, give them back",
    requirement: "R-D2",
    contenders: &[
        Contender::of::<Lists<1>>(Role::Before),
        Contender::of::<Lists<16>>(Role::Other),
        Contender::of::<LaneCaches>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// Objects of an operation.
const BURST: usize = 8;

/// Free objects in a thread's cache in the "before" variants: half of an operation's.
const CACHED: usize = BURST / 2;

/// An object, with the free list's link in its first line, as in the original.
struct Object {
    /// Index of the next free object plus one; 0 ends the list.
    next: AtomicU32,
    uses: OwnedU64,
}

/// `SHARDS` lists of free objects for all threads. Each is a stack under compare-and-swap, whose upper half
/// counts changes against reuse (ABA). It retries without a pause, like the original.
struct Lists<const SHARDS: usize> {
    heads: Box<[CachePadded<AtomicU64>]>,
    objects: Box<[CachePadded<Object>]>,
}

impl<const SHARDS: usize> Lists<SHARDS> {
    fn pop(&self, shard: usize) -> Option<u32> {
        let head = &self.heads[shard];
        let mut current = head.load(Ordering::Acquire);
        loop {
            let index = (current as u32).checked_sub(1)?;
            let next = self.objects[index as usize].next.load(Ordering::Relaxed);
            match head.compare_exchange_weak(
                current,
                tagged(current, next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(now) => current = now,
            }
        }
    }

    fn push(&self, shard: usize, index: u32) {
        let head = &self.heads[shard];
        let mut current = head.load(Ordering::Relaxed);
        loop {
            self.objects[index as usize].next.store(current as u32, Ordering::Relaxed);
            match head.compare_exchange_weak(
                current,
                tagged(current, index + 1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => current = now,
            }
        }
    }
}

/// The head after `current`, with `first` as the start of the list and one more change.
fn tagged(current: u64, first: u32) -> u64 {
    ((current >> 32).wrapping_add(1) << 32) | u64::from(first)
}

/// A thread's cache, and the list behind it.
struct Cache {
    free: Vec<u32>,
    shard: usize,
}

impl<const SHARDS: usize> Variant for Lists<SHARDS> {
    const NAME: &'static str = if SHARDS == 1 { "one global list" } else { "16 global lists" };
    type Own<'a> = Cache;

    fn new(threads: usize) -> Self {
        // As many objects as can be in use, with full caches, so that no thread finds its list empty.
        let each = BURST + CACHED;
        let object = || CachePadded::new(Object { next: AtomicU32::new(0), uses: OwnedU64::new(0) });
        let lists = Self {
            heads: (0..SHARDS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            objects: (0..threads * each).map(|_| object()).collect(),
        };
        label(&*lists.heads, "heads of the global lists");
        label(&*lists.objects, "pooled objects");
        for index in 0..threads * each {
            lists.push(index / each % SHARDS, index as u32);
        }
        lists
    }

    fn enter(&self, thread: usize) -> Cache {
        Cache { free: Vec::with_capacity(CACHED), shard: thread % SHARDS }
    }

    #[inline]
    fn operate(&self, cache: &mut Cache) {
        let taken: [u32; BURST] = std::array::from_fn(|_| {
            let index = cache.free.pop().or_else(|| self.pop(cache.shard)).expect("there are enough for all");
            self.objects[index as usize].uses.add(1);
            index
        });
        for index in taken {
            if cache.free.len() < CACHED { cache.free.push(index) } else { self.push(cache.shard, index) }
        }
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let uses: u64 = self.objects.iter().map(|object| object.uses.get()).sum();
        if uses == operations * BURST as u64 {
            return Ok(());
        }
        Err(format!("{operations} operations used {uses} objects: some were given to two threads at once"))
    }
}

/// `BytePool`: a cache for each lane with the allocator behind it, and no shared list.
struct LaneCaches(BytePool);

impl Variant for LaneCaches {
    const NAME: &'static str = "lane caches, no list";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        Self(BytePool::new("bench buffers", 16 << 10).expect("16 KiB is a size"))
    }

    fn enter(&self, _: usize) {
        self.operate(&mut ()); // fills the lane's cache
    }

    #[inline]
    fn operate(&self, (): &mut ()) {
        let taken: [PooledBytes; BURST] = std::array::from_fn(|_| {
            let mut buffer = self.0.alloc().expect("there is memory for a few buffers");
            buffer.as_uninit()[0] = MaybeUninit::new(1);
            buffer
        });
        drop(std::hint::black_box(taken));
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let report = self.0.report();
        self.0.reclaim(); // pools are never freed, but their buffers are
        if report.used == 0 { Ok(()) } else { Err(format!("{} buffers did not come back", report.used)) }
    }
}
