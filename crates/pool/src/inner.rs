//! The common core of all pools: lanes, each with a cache and a surplus, and the paths of an object between
//! them.

use crate::cache::{Cache, Stack};
use crate::error::{AllocError, Cause, Failure, PoolError};
use crate::inject;
use crate::object::{BATCH, Batch, Object};
use crate::options::{Options, Resolved};
use crate::report;
use crate::surplus::{Put, Surplus};
use manylane_stats::{CallSite, MemCounts, MemSource, Tally};
use manylane_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use manylane_sync::{CachePadded, LaneCell, LaneId, LaneSlots, PerLane, ZeroInit, update};
use std::hint::cold_path;
use std::ptr::NonNull;

/// The core of a pool. It lives as long as the process.
pub(crate) struct Inner {
    hot: LaneSlots<Hot>,
    pub(crate) name: &'static str,
    pub(crate) options: Resolved,
    lanes: PerLane<Lane, Box<dyn Fn(LaneId) -> Lane + Send + Sync>>,
    failures: [Failure; 3],
    /// Number of objects from the allocator. Kept only if there is a limit, since every lane writes it.
    reserved: CachePadded<AtomicUsize>,
    /// Number of objects that [`reclaim`](Self::reclaim) returned on lanes without a part of this pool.
    evicted: AtomicU64,
    #[cfg(feature = "global-pools")]
    global: crate::global::Global,
}

/// All data of a lane's part that the fast path touches: one line, and the pool's address on another. A part
/// begins as zeroes. It is complete when it has the pool's address; the `Lane` is made at that moment.
///
/// # Counts
/// An object that is put apart in the cache counts in `frees`, an object that is taken from there in
/// `allocs`. So there is one apart exactly while the two differ. All other frees and allocations count in
/// `more_frees` and `more_allocs`. So an operation of a lane that allocates and frees in turn stores one
/// word, and no operation waits for the word that the previous one stored.
///
/// Key: `O` touched by the owning lane only, `S` stored by the owning lane and read by any thread, `A` shared
/// as its module says.
#[repr(C, align(64))]
pub(crate) struct Hot {
    allocs: AtomicU64,      // S
    frees: AtomicU64,       // S
    cache: LaneCell<Cache>, // O
    more_allocs: Tally,     // S
    more_frees: Tally,      // S
    /// On a line of its own: a thread that frees an object on another lane reads it while this lane goes on
    /// counting.
    pool: Aside, // S
}
#[cfg(not(any(loom, manylane_sim)))]
const _: () = assert!(size_of::<Hot>() == 128 && std::mem::offset_of!(Hot, pool) == 64);

/// Address of the pool; null until the part is complete.
#[repr(C, align(64))]
struct Aside(AtomicPtr<Inner>);

impl Default for Hot {
    fn default() -> Self {
        Self {
            allocs: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            cache: LaneCell::new(Cache::default()),
            more_allocs: Tally::new(),
            more_frees: Tally::new(),
            pool: Aside(AtomicPtr::new(std::ptr::null_mut())),
        }
    }
}

// SAFETY: each field is its default when its bytes are zero (no object, no stack, no pool), and none owns
// anything. Pools are never dropped, except in models, which keep no slot as bytes.
unsafe impl ZeroInit for Hot {}

/// The part of a lane beyond [`Hot`], which the slow path uses. Key as above.
pub(crate) struct Lane {
    stack: Stack, // that of the cache
    /// Objects allocated from the allocator.
    fresh: Tally, // S
    /// Objects returned to the allocator.
    evicted: Tally, // S
    /// Objects that entered the cache in batches.
    taken: Tally, // S
    /// Objects that left the cache in batches.
    spilled: Tally, // S
    /// Allocations that failed.
    failed: Tally, // S
    #[cfg(feature = "call-sites")]
    sites: manylane_stats::SiteTable, // S
    notes: LaneCell<Notes>, // O

    /// On lines of its own, since other lanes write it.
    surplus: Surplus, // A
}

/// State that a lane keeps between two slow paths.
struct Notes {
    /// Index of the oldest batch on the lane's own surplus.
    oldest: usize,
    /// The lane whose surplus had a batch last: a lane that frees this lane's objects goes on doing so.
    source: Option<LaneId>,
    /// Number of misses until the lane searches other lanes' surpluses again, after a search in vain. So a
    /// lane that allocates steadily pays for the search once a batch.
    pause: usize,
    /// Cause of the last failed allocation.
    failure: Cause,
    /// Value of [`Lane::fresh`] at the last [`trim`](Inner::trim).
    fresh: u64,
    /// Number of allocations at the last [`trim`](Inner::trim).
    allocs: u64,
}

impl Inner {
    /// Creates a pool, which lives from now on.
    pub(crate) fn leak(
        name: &str,
        size: usize,
        align: usize,
        options: &Options,
    ) -> Result<&'static Self, PoolError> {
        let options = options.resolve(name, size, align)?;
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let failure = |cause| Failure { pool: name, size: options.layout.size(), cause };
        let lane = {
            let options = options.clone();
            move |_| Lane::new(&options)
        };
        let inner: &'static Self = Box::leak(Box::new(Self {
            hot: LaneSlots::new(),
            name,
            failures: [Cause::Memory, Cause::Limit, Cause::Injected].map(failure),
            lanes: PerLane::new(Box::new(lane)),
            reserved: CachePadded::new(AtomicUsize::new(0)),
            evicted: AtomicU64::new(0),
            #[cfg(feature = "global-pools")]
            global: crate::global::Global::new(&options),
            options,
        }));
        report::register(inner);
        Ok(inner)
    }

    /// Returns an object for the calling lane, and the lane's part; the memory is not initialised.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub(crate) fn take(&'static self) -> Result<(NonNull<u8>, &'static Hot), AllocError> {
        let hot = self.hot.own();
        if inject::hit() {
            return Err(self.fail(self.lane(), Cause::Injected));
        }
        let object = match hot.pop() {
            Some(object) => object,
            None => match self.refill(hot) {
                Some(object) => object,
                None => return Err(self.failure()),
            },
        };
        #[cfg(feature = "call-sites")]
        self.lane().sites.record(std::panic::Location::caller(), self.options.layout.size());
        #[cfg(debug_assertions)]
        // SAFETY: this lane owns the object, and debug builds fill all objects in the cache and from
        // `refill`.
        unsafe {
            crate::poison::check(object.0, self.options.layout.size(), self.name);
        }
        Ok((object.0, hot))
    }

    /// Puts `object` into the calling lane's cache.
    ///
    /// # Safety
    /// It came from [`take`](Self::take) of this pool, on any lane, and nothing uses it any more.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn give(&'static self, object: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { self.home().keep(object) };
    }

    /// Returns the calling lane's part, complete.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn home(&'static self) -> &'static Hot {
        let hot = self.hot.own();
        // Relaxed: this lane stored it.
        if hot.pool.0.load(Ordering::Relaxed).is_null() {
            self.complete(hot);
        }
        hot
    }

    #[cold]
    #[inline(never)]
    fn complete(&'static self, hot: &'static Hot) {
        let lane = self.lanes.own();
        // SAFETY: the slot is this lane's, and the closure calls back into nothing.
        unsafe { hot.cache.with(|cache| cache.give_room(&lane.stack)) };
        hot.pool.0.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the part of the calling lane beyond [`Hot`].
    pub(crate) fn lane(&'static self) -> &'static Lane {
        self.lanes.own()
    }

    /// Returns the number of objects that the calling lane allocated minus those that it freed.
    pub(crate) fn used_here(&'static self) -> i64 {
        self.hot.own().mem(1).live()
    }

    /// Returns the number of objects in use.
    pub(crate) fn used(&self) -> i64 {
        self.parts().map(|(_, hot, _)| hot.mem(1).live()).sum()
    }

    /// Counts a failed allocation.
    #[cold]
    pub(crate) fn fail(&'static self, lane: &Lane, cause: Cause) -> AllocError {
        lane.failed.add(1);
        self.error(cause)
    }

    pub(crate) fn error(&'static self, cause: Cause) -> AllocError {
        let failure = self.failures.iter().find(|failure| failure.cause == cause);
        AllocError(failure.expect("there is one for each cause"))
    }

    /// Makes the error for an empty-handed [`refill`](Self::refill), and counts it if the lane has a part.
    #[cold]
    fn failure(&'static self) -> AllocError {
        if !self.hot.own().is_complete() {
            return self.error(Cause::Memory); // the part would take memory
        }
        let lane = self.lane();
        // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
        let cause = unsafe { lane.notes.with(|notes| notes.failure) };
        self.fail(lane, cause)
    }

    /// Finds an object when the cache is empty: on the lane's own surplus, another lane's, a global list, or
    /// from the allocator. If there is none, the cause is in the lane's notes. (A `Result` would be a tag
    /// that the fast path has to make, too.)
    ///
    /// A lane that has not used the pool gets nothing while memory is short: making its part is an allocation
    /// that cannot fail, and that takes more than most objects.
    #[cold]
    #[inline(never)]
    fn refill(&'static self, hot: &'static Hot) -> Option<Object> {
        let hot = match hot.is_complete() {
            true => hot,
            false if crate::check_memory().is_err() => return None,
            false => self.home(),
        };
        let lane = self.lane();
        let mut batch = Batch::new();
        let object = if self.find_batch(lane, &mut batch, false) {
            Self::unpack(hot, lane, &batch)
        } else {
            match self.fresh(lane) {
                Ok(object) => object,
                // Objects on other lanes' surpluses are better than a failure.
                Err(_) if self.find_batch(lane, &mut batch, true) => Self::unpack(hot, lane, &batch),
                Err(cause) => {
                    // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
                    unsafe { lane.notes.with(|notes| notes.failure = cause) };
                    return None;
                }
            }
        };
        hot.more_allocs.add(1);
        Some(object)
    }

    fn unpack(hot: &Hot, lane: &Lane, batch: &Batch) -> Object {
        lane.taken.add(batch.len() as u64);
        // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
        let first = unsafe { hot.cache.with(|cache| cache.unpack(batch)) };
        first.expect("a batch has at least one object")
    }

    fn find_batch(&self, lane: &Lane, batch: &mut Batch, thorough: bool) -> bool {
        // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
        unsafe {
            lane.notes.with(|notes| {
                if lane.surplus.take_newest(batch, &mut notes.oldest) {
                    return true;
                }
                if notes.pause > 0 && !thorough {
                    notes.pause -= 1;
                    return false;
                }
                let found = self.search(batch, &mut notes.source);
                notes.pause = if found { 0 } else { BATCH };
                found
            })
        }
    }

    /// Takes a batch from another lane's surplus, or from a global list.
    fn search(&self, batch: &mut Batch, source: &mut Option<LaneId>) -> bool {
        if let Some(lane) = source.and_then(|lane| self.lanes.get(lane))
            && lane.surplus.take(batch)
        {
            return true;
        }
        // Lanes with higher numbers first, so that not all lanes search the first ones.
        let own = manylane_sync::lane::current();
        let above = self.lanes.iter().skip_while(|(lane, _)| *lane <= own);
        let below = self.lanes.iter().take_while(|(lane, _)| *lane < own);
        *source = above.chain(below).find(|(_, lane)| lane.surplus.take(batch)).map(|(lane, _)| lane);
        #[cfg(feature = "global-pools")]
        if source.is_none() {
            return self.global.take(own, batch);
        }
        source.is_some()
    }

    /// Allocates an object from the allocator.
    fn fresh(&self, lane: &Lane) -> Result<Object, Cause> {
        if !self.reserve() {
            return Err(Cause::Limit);
        }
        #[cfg(not(any(loom, manylane_sim)))]
        use crate::reserve::may_fail;
        #[cfg(any(loom, manylane_sim))]
        use std::alloc::alloc as may_fail;
        // SAFETY: the size is not 0: see `Resolved`.
        let Some(memory) = NonNull::new(unsafe { may_fail(self.options.layout) }) else {
            self.unreserve(1);
            return Err(Cause::Memory);
        };
        lane.fresh.add(1);
        #[cfg(debug_assertions)]
        // SAFETY: just allocated.
        unsafe {
            crate::poison::fill(memory, self.options.layout.size());
        }
        Ok(Object(memory))
    }

    /// Makes room when the cache is full: moves the coldest batch to the surplus. If that is full, too, its
    /// oldest batch goes to a global list or the allocator. Moves at most one batch and frees at most one.
    #[cold]
    #[inline(never)]
    fn overflow(&'static self, hot: &'static Hot, object: Object) {
        let lane = self.lane();
        let mut batch = Batch::new();
        // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
        unsafe { hot.cache.with(|cache| cache.displace(object, self.options.batch, &mut batch)) };
        lane.spilled.add(batch.len() as u64);
        // SAFETY: as above.
        let put = unsafe { lane.notes.with(|notes| lane.surplus.put(&mut batch, &mut notes.oldest)) };
        match put {
            Put::Done => {}
            Put::Displaced | Put::Refused => self.surplus(lane, &batch),
        }
    }

    /// Stores a batch for which no lane has room on a global list, or returns it to the allocator.
    fn surplus(&self, lane: &Lane, batch: &Batch) {
        #[cfg(feature = "global-pools")]
        if self.global.put(manylane_sync::lane::current(), batch) {
            return;
        }
        self.evict(lane, batch);
    }

    /// Returns the objects of `batch` to the allocator, and counts them.
    fn evict(&self, lane: &Lane, batch: &Batch) {
        self.free(batch);
        lane.evicted.add(batch.len() as u64);
    }

    /// Returns the objects of `batch` to the allocator. The caller counts them.
    fn free(&self, batch: &Batch) {
        for object in batch.iter() {
            // SAFETY: it came from `fresh` with this layout, and a free object belongs to its holder.
            unsafe { std::alloc::dealloc(object.0.as_ptr(), self.options.layout) };
        }
        self.unreserve(batch.len());
    }

    /// Reserves one more object below the limit. Returns false if the limit is reached.
    fn reserve(&self) -> bool {
        let Some(limit) = self.options.limit else { return true };
        // Relaxed: a count, which publishes nothing.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        update(&*self.reserved, set, fetch, |now| (now < limit).then(|| now + 1)).is_ok()
    }

    fn unreserve(&self, objects: usize) {
        if self.options.limit.is_some() {
            self.reserved.fetch_sub(objects, Ordering::Relaxed);
        }
    }

    /// Returns to the allocator the objects of the calling lane's cache, of the caches of lanes without a
    /// thread, of all surpluses and of the global lists. Returns their number.
    ///
    /// Makes no part for a lane that has not used the pool: the call is to free memory, and may come when
    /// there is none.
    pub(crate) fn reclaim(&'static self) -> usize {
        let hot = self.hot.own();
        let lane = hot.is_complete().then(|| self.lane());
        let mut freed = 0;
        let mut evict = |batch: &Batch| {
            freed += batch.len();
            self.free(batch);
            match lane {
                Some(lane) => lane.evicted.add(batch.len() as u64),
                // Relaxed: a count, which publishes nothing.
                None => drop(self.evicted.fetch_add(batch.len() as u64, Ordering::Relaxed)),
            }
        };
        if let Some(lane) = lane {
            hot.empty_cache(lane, |batch| evict(&batch));
        }
        let mut ended = Vec::new(); // freed after the visit, in which threads that start must wait
        manylane_sync::lane::for_each_free(|id| {
            if let (Some(hot), Some(lane)) = (self.hot.get(id), self.lanes.get(id)) {
                hot.empty_cache(lane, |batch| ended.push(batch));
            }
        });
        ended.iter().for_each(&mut evict);
        for (_, from) in self.lanes.iter() {
            let mut batch = Batch::new();
            for _ in 0..self.options.surplus {
                // Bounded, since the lane may go on filling it.
                if from.surplus.take(&mut batch) {
                    evict(&batch);
                }
            }
        }
        #[cfg(feature = "global-pools")]
        self.global.empty(evict);
        freed
    }

    /// Returns to the allocator half of the objects on the calling lane's surplus, and moves the colder half
    /// of its cache to the surplus, where the lane finds it again if it needs it before the next call. Does
    /// nothing if the lane allocated an object from the allocator since the last call: then it needs more
    /// objects, not fewer.
    ///
    /// A half smaller than a batch goes to the allocator at once, except for the objects that were used since
    /// the last call. The amount is small, but a few objects that a burst left behind lie on as many of the
    /// allocator's pages, and each keeps a whole page in memory.
    ///
    /// Returns the number of objects that went to the allocator.
    pub(crate) fn trim(&'static self) -> usize {
        let hot = self.hot.own();
        if !hot.is_complete() {
            return 0;
        }
        let (lane, size) = (self.lane(), self.options.batch);
        let (fresh, allocs) = (lane.fresh.get(), hot.mem(1).allocs);
        // SAFETY: the slot is the calling lane's, and the closure calls back into nothing.
        let (calm, used) = unsafe {
            lane.notes.with(|notes| {
                let calm = std::mem::replace(&mut notes.fresh, fresh) == fresh;
                (calm, allocs - std::mem::replace(&mut notes.allocs, allocs))
            })
        };
        if !calm {
            return 0;
        }
        let before = lane.evicted.get();
        for _ in 0..(lane.surplus.len() / size).div_ceil(2) {
            let mut batch = Batch::new();
            if !lane.surplus.take(&mut batch) {
                break;
            }
            self.evict(lane, &batch);
        }
        // SAFETY: as above.
        let cached = unsafe { hot.cache.with(|cache| cache.len()) };
        if cached < 2 * size {
            let unused = cached.saturating_sub(usize::try_from(used).unwrap_or(usize::MAX));
            let mut batch = Batch::new();
            // SAFETY: as above.
            unsafe { hot.cache.with(|cache| cache.spill(unused.min(cached.div_ceil(2)), &mut batch)) };
            lane.spilled.add(batch.len() as u64);
            self.evict(lane, &batch);
        }
        for _ in 0..cached / 2 / size {
            let mut batch = Batch::new();
            // SAFETY: as above.
            unsafe { hot.cache.with(|cache| cache.spill(size, &mut batch)) };
            lane.spilled.add(batch.len() as u64);
            // SAFETY: as above.
            match unsafe { lane.notes.with(|notes| lane.surplus.put(&mut batch, &mut notes.oldest)) } {
                Put::Done => {}
                Put::Displaced | Put::Refused => self.surplus(lane, &batch),
            }
        }
        usize::try_from(lane.evicted.get() - before).unwrap_or(usize::MAX)
    }

    /// Returns the number of objects on global lists.
    pub(crate) fn on_global_lists(&self) -> usize {
        #[cfg(feature = "global-pools")]
        return self.global.magazines() * self.options.batch;
        #[cfg(not(feature = "global-pools"))]
        0
    }

    /// Returns the number of objects that went to the allocator and that no lane's numbers have.
    pub(crate) fn evicted_beside(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Calls `each` with each lane's numbers, read while the lanes go on.
    pub(crate) fn visit_lanes(&self, each: &mut dyn FnMut(LaneId, LaneNumbers)) {
        self.parts().for_each(|(id, hot, lane)| each(id, hot.numbers(self.options.layout.size(), lane)));
    }

    /// Iterates over the parts of all lanes that used the pool, in order of lane.
    fn parts(&self) -> impl Iterator<Item = (LaneId, &Hot, &Lane)> {
        self.lanes.iter().filter_map(|(id, lane)| Some((id, self.hot.get(id)?, lane)))
    }

    /// For models only: frees the pool and all objects cached in it.
    ///
    /// # Safety
    /// Nothing uses the pool any more, and all objects were freed.
    #[cfg(loom)]
    pub(crate) unsafe fn destroy(&'static self) {
        let this = std::ptr::from_ref(self).cast_mut();
        for (_, hot, lane) in self.parts() {
            hot.empty_cache(lane, |batch| self.evict(lane, &batch));
        }
        self.reclaim();
        // SAFETY: it came from a box in `leak`, and nothing uses it any more.
        drop(unsafe { Box::from_raw(this) });
    }
}

/// Returns the value of a word that only the calling lane stores. A plain load, which compilers fold into a
/// comparison; that saves two instructions for an allocation and a free compared with atomic loads.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
fn own(word: &AtomicU64) -> u64 {
    #[cfg(any(loom, manylane_sim))]
    return word.load(Ordering::Relaxed);
    #[cfg(not(any(loom, manylane_sim)))]
    // SAFETY: only this thread writes it.
    unsafe {
        word.as_ptr().read()
    }
}

impl Lane {
    fn new(options: &Resolved) -> Self {
        Self {
            stack: Stack::new(options.cached),
            fresh: Tally::new(),
            evicted: Tally::new(),
            taken: Tally::new(),
            spilled: Tally::new(),
            failed: Tally::new(),
            #[cfg(feature = "call-sites")]
            sites: manylane_stats::SiteTable::default(),
            notes: LaneCell::new(Notes {
                oldest: 0,
                source: None,
                pause: 0,
                failure: Cause::Memory,
                fresh: 0,
                allocs: 0,
            }),
            surplus: Surplus::new(options.surplus, options.batch),
        }
    }
}

impl Hot {
    /// True if the calling lane, whose part this is, has used the pool.
    fn is_complete(&self) -> bool {
        !self.pool.0.load(Ordering::Relaxed).is_null() // Relaxed: this lane stored it
    }

    /// Returns the pool. Legal only for a complete part.
    #[inline]
    pub(crate) fn pool(&self) -> &'static Inner {
        #[cfg(any(loom, manylane_sim))]
        let pool = self.pool.0.load(Ordering::Relaxed);
        #[cfg(not(any(loom, manylane_sim)))]
        // SAFETY: stored once, when the part became complete; the owner of an object is ordered after that.
        // Compilers drop a plain load if only the size's being non-zero matters; they keep an atomic one.
        let pool = unsafe { self.pool.0.as_ptr().read() };
        // SAFETY: pools live for ever.
        unsafe { &*pool }
    }

    /// Removes an object from the calling lane's cache, and counts it.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn pop(&self) -> Option<Object> {
        let frees = own(&self.frees);
        if own(&self.allocs) != frees {
            // One more: `frees` is that value. Release: rule 3 of `manylane_stats`, here and below.
            self.allocs.store(frees, Ordering::Release);
            // SAFETY: the slot is this lane's, and the closure calls back into nothing. There is an object
            // apart: see "Counts".
            return Some(unsafe { self.cache.with(|cache| cache.last()) });
        }
        cold_path();
        // SAFETY: as above.
        let object = unsafe { self.cache.with(Cache::pop) }?;
        self.more_allocs.add(1);
        Some(object)
    }

    /// Frees `object`, allocated from this part, into this part's cache, or into the calling lane's if that
    /// is another lane.
    ///
    /// # Safety
    /// As for [`Inner::give`]; `self` is a complete part of the pool.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn give_home(&'static self, object: NonNull<u8>) {
        if LaneSlots::is_own(self) {
            // SAFETY: by contract.
            return unsafe { self.keep(object) };
        }
        cold_path();
        // SAFETY: by contract.
        unsafe { self.pool().give(object) };
    }

    /// Puts `object` into the cache, and counts it.
    ///
    /// # Safety
    /// As for [`Inner::give`]; `self` is the calling lane's part, complete.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn keep(&'static self, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        // SAFETY: nothing uses the object any more.
        unsafe {
            crate::poison::fill(object, self.pool().options.layout.size());
        }
        let object = Object(object);
        // SAFETY: the slot is this lane's, and the closure calls back into nothing, here and below.
        let is_back = unsafe { self.cache.with(|cache| cache.was_last(object)) };
        let frees = own(&self.frees);
        debug_assert!(!is_back || own(&self.allocs) == frees, "an object is not free twice");
        if is_back || own(&self.allocs) == frees {
            if !is_back {
                // SAFETY: as above. No object is apart: see "Counts".
                unsafe { self.cache.with(|cache| cache.set_last(object)) };
            }
            self.frees.store(frees.wrapping_add(1), Ordering::Release);
            return;
        }
        cold_path();
        self.more_frees.add(1);
        // SAFETY: as above, with an object apart.
        if !unsafe { self.cache.with(|cache| cache.push(object)) } {
            self.pool().overflow(self, object);
        }
    }

    /// Empties the cache into `each`; the objects count as allocated and freed. `lane` is the other half of
    /// this part. The caller owns both: they are its lane's, or those of a free lane that it visits.
    fn empty_cache(&self, lane: &Lane, mut each: impl FnMut(Batch)) {
        loop {
            let mut batch = Batch::new();
            while batch.len() < BATCH
                && let Some(object) = self.pop()
            {
                batch.push(object);
            }
            if batch.len() == 0 {
                return;
            }
            self.more_frees.add(batch.len() as u64);
            lane.spilled.add(batch.len() as u64);
            each(batch);
        }
    }

    /// Returns the counts for objects of `size` bytes; reads frees before allocations (rule 3 of
    /// `manylane_stats`).
    fn mem(&self, size: usize) -> MemCounts {
        // Acquire: pairs with the release of the counting lane.
        let frees = self.more_frees.get().wrapping_add(self.frees.load(Ordering::Acquire));
        let allocs = self.more_allocs.get().wrapping_add(self.allocs.load(Ordering::Acquire));
        MemCounts::of_one_size(size, allocs, frees)
    }

    /// Returns the lane's numbers; `lane` is the other half of its part.
    fn numbers(&self, size: usize, lane: &Lane) -> LaneNumbers {
        // Reads outgoing counts before incoming ones, so that differences are rarely negative while the lane
        // goes on.
        let (evicted, spilled) = (lane.evicted.get(), lane.spilled.get());
        LaneNumbers {
            evicted,
            spilled,
            mem: self.mem(size),
            taken: lane.taken.get(),
            fresh: lane.fresh.get(),
            failed: lane.failed.get(),
            surplus: lane.surplus.len() as u64,
        }
    }
}

/// The counts of one lane.
pub(crate) struct LaneNumbers {
    pub(crate) mem: MemCounts,
    pub(crate) fresh: u64,
    pub(crate) evicted: u64,
    pub(crate) taken: u64,
    pub(crate) spilled: u64,
    pub(crate) failed: u64,
    pub(crate) surplus: u64,
}

impl LaneNumbers {
    /// Returns the number of objects in the cache: those freed into it or moved in by batches, minus those
    /// allocated from it or moved out by batches. Exact while the lane is at rest.
    pub(crate) fn cached(&self) -> u64 {
        let came = self.mem.frees + self.taken + self.fresh;
        came.saturating_sub(self.mem.allocs + self.spilled)
    }
}

impl MemSource for Inner {
    fn name(&self) -> &str {
        self.name
    }

    fn visit(&self, each: &mut dyn FnMut(LaneId, MemCounts)) {
        let size = self.options.layout.size();
        self.parts().for_each(|(id, hot, _)| each(id, hot.mem(size)));
    }

    fn visit_sites(&self, each: &mut dyn FnMut(CallSite)) {
        #[cfg(feature = "call-sites")]
        self.lanes.iter().for_each(|(_, lane)| lane.sites.visit(each));
        #[cfg(not(feature = "call-sites"))]
        let _ = each;
    }
}
