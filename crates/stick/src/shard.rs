//! A part of a table: buckets that readers walk without the lock, and state behind the lock.

use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

static SHARDS: LockClass = LockClass::new("part of a stick table", 73);

/// State behind the shard's lock.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// Free entries.
    pub(crate) free: Vec<u32>,
    /// Entries by a date that is not later than their expiry.
    dates: BinaryHeap<Reverse<u64>>,
    /// Entries that were in `dates` when a clearing began to put them in order again.
    refiling: Vec<Reverse<u64>>,
}

/// Bits of the entry's number in `dates`; the rest is the date, in steps of [`STEP_MS`].
const NUMBER_BITS: u32 = 28;

/// Milliseconds of a step: 36 bits last for 130 years.
const STEP_MS: u64 = 64;

/// The entry's number in an element of `dates`.
fn number(filed: u64) -> u32 {
    (filed & ((1 << NUMBER_BITS) - 1)) as u32
}

impl Inner {
    /// Files an entry under a date in milliseconds.
    pub(crate) fn file(&mut self, date: u64, at: u32) {
        self.dates.push(Reverse(date.div_ceil(STEP_MS) << NUMBER_BITS | u64::from(at)));
    }

    /// Takes out the entry with the earliest date, if `is_due` returns true for the date.
    pub(crate) fn take_first(&mut self, is_due: impl Fn(u64) -> bool) -> Option<(u64, u32)> {
        let &Reverse(filed) = self.dates.peek()?;
        let date = (filed >> NUMBER_BITS) * STEP_MS;
        if !is_due(date) {
            return None;
        }
        self.dates.pop();
        Some((date, number(filed)))
    }

    /// Takes out every entry for which `keeps` returns false.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(u32) -> bool) {
        self.dates.retain(|Reverse(filed)| keeps(number(*filed)));
        self.refiling.retain(|Reverse(filed)| keeps(number(*filed)));
    }

    /// Moves all entries out of the order of dates; [`refile`](Self::refile) files them again. Until then
    /// they are in no order.
    pub(crate) fn begin_refiling(&mut self) {
        let all = std::mem::take(&mut self.dates).into_vec();
        if self.refiling.is_empty() {
            self.refiling = all;
        } else {
            self.refiling.extend(all);
        }
    }

    /// Files up to `most` entries again, without those for which `keeps` returns false. Returns true if there
    /// are more.
    pub(crate) fn refile(&mut self, most: usize, mut keeps: impl FnMut(u32) -> bool) -> bool {
        let start = self.refiling.len().saturating_sub(most);
        let slice = self.refiling.drain(start..);
        self.dates.extend(slice.filter(|Reverse(filed)| keeps(number(*filed))));
        !self.refiling.is_empty()
    }

    /// All entries, unordered.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.dates.iter().chain(&self.refiling).map(|Reverse(filed)| number(*filed)).collect()
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.dates.len() + self.refiling.len()
    }
}

/// A part of a table.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) inner: Mutex<Inner>,
    /// Odd while a chain changes. Written under the lock.
    version: AtomicU32,
    /// The first entry of each chain, or 0. Allocated with the first entry, and written under the lock.
    buckets: OnceLock<Box<[AtomicU32]>>,
}

impl Shard {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(&SHARDS, Inner::default()),
            version: AtomicU32::new(0),
            buckets: OnceLock::new(),
        }
    }

    /// The bucket of a hash; `None` if the shard never had an entry.
    #[inline]
    pub(crate) fn bucket(&self, hash: u32) -> Option<&AtomicU32> {
        let buckets = self.buckets.get()?;
        buckets.get(hash as usize & (buckets.len() - 1))
    }

    /// As [`bucket`](Self::bucket), but allocates `count` buckets, a power of two, if there are none. Call
    /// under the lock. `None` if there is no memory.
    pub(crate) fn bucket_or_made(&self, hash: u32, count: usize) -> Option<&AtomicU32> {
        if self.buckets.get().is_none() {
            manylane_pool::check_growth(count * size_of::<AtomicU32>()).ok()?;
            let mut made = Vec::new();
            made.try_reserve_exact(count).ok()?;
            made.extend((0..count).map(|_| AtomicU32::new(0)));
            let _ = self.buckets.set(made.into_boxed_slice()); // cannot fail under the lock
        }
        self.bucket(hash)
    }

    /// Runs `work`, which changes a chain. Call under the lock.
    pub(crate) fn changing<R>(&self, work: impl FnOnce() -> R) -> R {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release: pairs with the fence in `is_still`; a reader that sees a part of the change also sees the
        // odd version.
        manylane_sync::atomic::fence(Ordering::Release);
        let done = work();
        self.version.store(version.wrapping_add(2), Ordering::Release);
        done
    }

    /// The version for a reader to begin with; `None` while a chain changes.
    #[inline]
    pub(crate) fn version(&self) -> Option<u32> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// True if no chain has changed since `version`.
    #[inline]
    pub(crate) fn is_still(&self, version: u32) -> bool {
        manylane_sync::atomic::fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }
}
