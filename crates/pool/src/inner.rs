//! What all pools have in common: lanes, each with a cache and a surplus, and the way of an object between
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
use manylane_sync::{Backoff, CachePadded, LaneCell, LaneId, LaneSlots, PerLane, ZeroInit};
use std::hint::cold_path;
use std::ptr::NonNull;

/// A pool. It lives as long as the process.
pub(crate) struct Inner {
    hot: LaneSlots<Hot>,
    pub(crate) name: &'static str,
    pub(crate) options: Resolved,
    lanes: PerLane<Lane, Box<dyn Fn(LaneId) -> Lane + Send + Sync>>,
    failures: [Failure; 3],
    /// Objects from the allocator, kept only where there is a limit (every lane writes it).
    reserved: CachePadded<AtomicUsize>,
    #[cfg(feature = "global-pools")]
    global: crate::global::Global,
}

/// All that the fast path touches of a lane's part: one line, and the pool on another. It begins as zeroes
/// and is complete when it has a pool; the rest is made then.
///
/// # Counts
/// An object that is put apart in the cache counts in `frees`, one that is taken from there in `allocs`, so
/// there is one exactly while they differ. Whatever else is freed or allocated counts in `more_frees` and
/// `more_allocs`. So an operation of a lane that takes and gives in turn stores one word, and no operation
/// waits for the word that the one before stored.
///
/// Key: `O` touched by the owning lane only, `S` stored by the owning lane, read by anyone,
/// `A` shared as its module says.
#[repr(C, align(64))]
pub(crate) struct Hot {
    allocs: AtomicU64,      // S
    frees: AtomicU64,       // S
    cache: LaneCell<Cache>, // O
    more_allocs: Tally,     // S
    more_frees: Tally,      // S
    /// On a line of its own: whoever frees an object on another lane looks here, while this lane goes on
    /// counting.
    pool: Aside, // S
}
#[cfg(not(any(loom, manylane_sim)))]
const _: () = assert!(size_of::<Hot>() == 128 && std::mem::offset_of!(Hot, pool) == 64);

/// Null until the part is complete.
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

// SAFETY: each of the fields is its default when its bytes are zero (no object, no stack, no pool), and none
// owns anything; pools are never dropped, save in models, which keep no slot as bytes.
unsafe impl ZeroInit for Hot {}

/// The rest of a lane's part of a pool. Key as above.
pub(crate) struct Lane {
    stack: Stack, // the cache's
    /// Objects got from the allocator.
    fresh: Tally, // S
    /// Objects given back to the allocator.
    evicted: Tally, // S
    /// Objects that came into the cache in batches.
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

/// What a lane remembers between two slow paths.
struct Notes {
    /// Where on the own surplus the oldest batch is.
    oldest: usize,
    /// The lane whose surplus had something last: lanes that free what we allocate go on doing so.
    source: Option<LaneId>,
    /// Misses for which the surpluses of other lanes are not searched, after a search in vain: so that a
    /// lane that allocates steadily pays the search once a batch.
    pause: usize,
    /// Why the last allocation failed.
    failure: Cause,
    /// Objects got from the allocator until the last [`trim`](Inner::trim).
    fresh: u64,
    /// Objects allocated until then.
    allocs: u64,
}

impl Inner {
    /// A pool that lives from now on.
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
            #[cfg(feature = "global-pools")]
            global: crate::global::Global::new(&options),
            options,
        }));
        report::register(inner);
        Ok(inner)
    }

    /// An object for the calling lane, and the lane's part; the memory is not initialised.
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
        // SAFETY: the object is ours, and whatever comes from the cache or `refill` was filled.
        unsafe {
            crate::poison::check(object.0, self.options.layout.size(), self.name);
        }
        Ok((object.0, hot))
    }

    /// Takes `object` back, into the calling lane's cache.
    ///
    /// # Safety
    /// It came from [`take`](Self::take) of this pool, on any lane, and nobody uses it any more.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn give(&'static self, object: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { self.home().keep(object) };
    }

    /// The calling lane's part, complete.
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
        // SAFETY: the slot is this lane's; nothing is called back.
        unsafe { hot.cache.with(|cache| cache.give_room(&lane.stack)) };
        hot.pool.0.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }

    /// The rest of the calling lane's part.
    pub(crate) fn lane(&'static self) -> &'static Lane {
        self.lanes.own()
    }

    /// Objects that the calling lane took, less those that it gave back.
    pub(crate) fn used_here(&'static self) -> i64 {
        self.hot.own().mem(1).live()
    }

    /// Objects in use.
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

    /// Why [`refill`](Self::refill) found nothing; counted.
    #[cold]
    fn failure(&'static self) -> AllocError {
        let lane = self.lane();
        // SAFETY: the slot is the calling lane's; nothing is called back.
        let cause = unsafe { lane.notes.with(|notes| notes.failure) };
        self.fail(lane, cause)
    }

    /// The cache is empty: an object from the own surplus, another lane's, a global list, the allocator. Else
    /// the reason is in the lane's notes. (A result would be a tag that the fast path has to make, too.)
    #[cold]
    #[inline(never)]
    fn refill(&'static self, hot: &'static Hot) -> Option<Object> {
        let hot = if hot.pool.0.load(Ordering::Relaxed).is_null() { self.home() } else { hot };
        let lane = self.lane();
        let mut batch = Batch::new();
        let object = if self.find_batch(lane, &mut batch, false) {
            Self::unpack(hot, lane, &batch)
        } else {
            match self.fresh(lane) {
                Ok(object) => object,
                // What others have on their surpluses is better than a failure.
                Err(_) if self.find_batch(lane, &mut batch, true) => Self::unpack(hot, lane, &batch),
                Err(cause) => {
                    // SAFETY: the slot is the calling lane's; nothing is called back.
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
        // SAFETY: the slot is the calling lane's; nothing is called back.
        let first = unsafe { hot.cache.with(|cache| cache.unpack(batch)) };
        first.expect("a batch has at least one object")
    }

    fn find_batch(&self, lane: &Lane, batch: &mut Batch, thorough: bool) -> bool {
        // SAFETY: the slot is the calling lane's; nothing is called back.
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

    /// A batch from another lane's surplus, or a global list.
    fn search(&self, batch: &mut Batch, source: &mut Option<LaneId>) -> bool {
        if let Some(lane) = source.and_then(|lane| self.lanes.get(lane))
            && lane.surplus.take(batch)
        {
            return true;
        }
        // Lanes above us first, so that not all lanes search the first ones.
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

    /// An object from the allocator.
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

    /// The cache is full: the coldest batch goes to the surplus; if that is full too, the coldest there goes
    /// to a global list or the allocator. At most one batch is moved and one freed.
    #[cold]
    #[inline(never)]
    fn overflow(&'static self, hot: &'static Hot, object: Object) {
        let lane = self.lane();
        let mut batch = Batch::new();
        // SAFETY: the slot is the calling lane's; nothing is called back.
        unsafe { hot.cache.with(|cache| cache.displace(object, self.options.batch, &mut batch)) };
        lane.spilled.add(batch.len() as u64);
        // SAFETY: as above.
        let put = unsafe { lane.notes.with(|notes| lane.surplus.put(&mut batch, &mut notes.oldest)) };
        match put {
            Put::Done => {}
            Put::Displaced | Put::Refused => self.surplus(lane, &batch),
        }
    }

    /// Objects that no lane has room for.
    fn surplus(&self, lane: &Lane, batch: &Batch) {
        #[cfg(feature = "global-pools")]
        if self.global.put(manylane_sync::lane::current(), batch) {
            return;
        }
        self.evict(lane, batch);
    }

    /// Gives objects back to the allocator.
    fn evict(&self, lane: &Lane, batch: &Batch) {
        for object in batch.iter() {
            // SAFETY: it came from `fresh` with this layout, and a free object belongs to whoever holds it.
            unsafe { std::alloc::dealloc(object.0.as_ptr(), self.options.layout) };
        }
        lane.evicted.add(batch.len() as u64);
        self.unreserve(batch.len());
    }

    /// Room for one more object below the limit, if there is one.
    fn reserve(&self) -> bool {
        let Some(limit) = self.options.limit else { return true };
        let mut backoff = Backoff::new();
        loop {
            // Relaxed: a count, which publishes nothing.
            let now = self.reserved.load(Ordering::Relaxed);
            if now >= limit {
                return false;
            }
            if self.reserved.compare_exchange(now, now + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return true;
            }
            backoff.wait();
        }
    }

    fn unreserve(&self, objects: usize) {
        if self.options.limit.is_some() {
            self.reserved.fetch_sub(objects, Ordering::Relaxed);
        }
    }

    /// Gives to the allocator what the calling lane's cache, the caches of lanes without a thread, all
    /// surpluses and the global lists hold; returns how many objects that were.
    pub(crate) fn reclaim(&'static self) -> usize {
        let (hot, lane) = (self.hot.own(), self.lane());
        let mut freed = 0;
        let mut evict = |batch: &Batch| {
            freed += batch.len();
            self.evict(lane, batch);
        };
        hot.empty_cache(lane, |batch| evict(&batch));
        let mut ended = Vec::new(); // given to the allocator later: threads that start wait meanwhile
        manylane_sync::lane::for_each_free(|id| {
            if let (Some(hot), Some(lane)) = (self.hot.get(id), self.lanes.get(id)) {
                hot.empty_cache(lane, |batch| ended.push(batch));
            }
        });
        ended.iter().for_each(&mut evict);
        for (_, from) in self.lanes.iter() {
            let mut batch = Batch::new();
            for _ in 0..self.options.surplus {
                // Counted, since the lane may go on filling it.
                if from.surplus.take(&mut batch) {
                    evict(&batch);
                }
            }
        }
        #[cfg(feature = "global-pools")]
        self.global.empty(evict);
        freed
    }

    /// Gives back to the allocator half of what lies on the calling lane's surplus, and moves the colder half
    /// of its cache there, where it is found again if it is needed before the next call. Nothing if the
    /// lane got an object from the allocator since the last call: then it needs more, not less.
    ///
    /// A half that is less than a batch goes to the allocator at once, as far as it was not used since the
    /// last call. It is little, but a few objects that a burst left behind lie on as many of the allocator's
    /// pages, and each keeps the whole page.
    pub(crate) fn trim(&'static self) {
        let hot = self.hot.own();
        // Relaxed: this lane stored it. Without it the lane has not used the pool.
        if hot.pool.0.load(Ordering::Relaxed).is_null() {
            return;
        }
        let (lane, size) = (self.lane(), self.options.batch);
        let (fresh, allocs) = (lane.fresh.get(), hot.mem(1).allocs);
        // SAFETY: the slot is the calling lane's; nothing is called back.
        let (calm, used) = unsafe {
            lane.notes.with(|notes| {
                let calm = std::mem::replace(&mut notes.fresh, fresh) == fresh;
                (calm, allocs - std::mem::replace(&mut notes.allocs, allocs))
            })
        };
        if !calm {
            return;
        }
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
    }

    /// Objects on global lists.
    pub(crate) fn on_global_lists(&self) -> usize {
        #[cfg(feature = "global-pools")]
        return self.global.magazines() * self.options.batch;
        #[cfg(not(feature = "global-pools"))]
        0
    }

    /// Each lane's numbers, read while the lanes go on.
    pub(crate) fn visit_lanes(&self, each: &mut dyn FnMut(LaneId, LaneNumbers)) {
        self.parts().for_each(|(id, hot, lane)| each(id, hot.numbers(self.options.layout.size(), lane)));
    }

    /// The parts of all lanes that used the pool, in order of lane.
    fn parts(&self) -> impl Iterator<Item = (LaneId, &Hot, &Lane)> {
        self.lanes.iter().filter_map(|(id, lane)| Some((id, self.hot.get(id)?, lane)))
    }

    /// For models only: frees the pool and all that is cached in it.
    ///
    /// # Safety
    /// Nobody uses the pool any more, and all objects were given back.
    #[cfg(loom)]
    pub(crate) unsafe fn destroy(&'static self) {
        let this = std::ptr::from_ref(self).cast_mut();
        for (_, hot, lane) in self.parts() {
            hot.empty_cache(lane, |batch| self.evict(lane, &batch));
        }
        self.reclaim();
        // SAFETY: it came from a box in `leak`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(this) });
    }
}

/// What the calling lane stored into a word that nobody else stores to. A plain load, which compilers compare
/// with in place; that is two instructions less for an alloc and a free than with atomic ones.
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
    /// The pool. Only of a part that is complete.
    #[inline]
    pub(crate) fn pool(&self) -> &'static Inner {
        #[cfg(any(loom, manylane_sim))]
        let pool = self.pool.0.load(Ordering::Relaxed);
        #[cfg(not(any(loom, manylane_sim)))]
        // SAFETY: stored once, when the part became complete, and whoever has an object is ordered after
        // that. A plain load is left out where only the size is asked for that is known not to be 0;
        // an atomic one is not.
        let pool = unsafe { self.pool.0.as_ptr().read() };
        // SAFETY: pools live for ever.
        unsafe { &*pool }
    }

    /// An object from the calling lane's cache, counted.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn pop(&self) -> Option<Object> {
        let frees = own(&self.frees);
        if own(&self.allocs) != frees {
            // One more: `frees` is. Release: rule 3 of `manylane_stats`, here and below.
            self.allocs.store(frees, Ordering::Release);
            // SAFETY: the slot is this lane's, and nothing is called back. There is an object apart: see
            // "Counts".
            return Some(unsafe { self.cache.with(|cache| cache.last()) });
        }
        cold_path();
        // SAFETY: as above.
        let object = unsafe { self.cache.with(Cache::pop) }?;
        self.more_allocs.add(1);
        Some(object)
    }

    /// Takes `object` back that was taken from this part, or into the calling lane's if that is another one.
    ///
    /// # Safety
    /// As for [`Inner::give`]; this is a complete part of the pool.
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

    /// Takes `object` back into the cache, and counts.
    ///
    /// # Safety
    /// As for [`Inner::give`]; this is the calling lane's part, complete.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn keep(&'static self, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        // SAFETY: nobody uses the object any more.
        unsafe {
            crate::poison::fill(object, self.pool().options.layout.size());
        }
        let object = Object(object);
        // SAFETY: the slot is this lane's, and nothing is called back, here and below.
        let is_back = unsafe { self.cache.with(|cache| cache.was_last(object)) };
        let frees = own(&self.frees);
        debug_assert!(!is_back || own(&self.allocs) == frees, "an object is not free twice");
        if is_back || own(&self.allocs) == frees {
            if !is_back {
                // SAFETY: as above. There is no object apart: see "Counts".
                unsafe { self.cache.with(|cache| cache.set_last(object)) };
            }
            self.frees.store(frees.wrapping_add(1), Ordering::Release);
            return;
        }
        cold_path();
        self.more_frees.add(1);
        // SAFETY: as above, but there is one.
        if !unsafe { self.cache.with(|cache| cache.push(object)) } {
            self.pool().overflow(self, object);
        }
    }

    /// Calls `each` with all that the cache holds, which counts as allocated and freed. `lane` is the rest of
    /// this part. The caller owns both: it is its lane's, or that of a lane that it visits as free.
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

    /// What was counted of objects of `size` bytes; frees are read before allocations (rule 3 of
    /// `manylane_stats`).
    fn mem(&self, size: usize) -> MemCounts {
        // Acquire: pairs with the release of whoever counted.
        let frees = self.more_frees.get().wrapping_add(self.frees.load(Ordering::Acquire));
        let allocs = self.more_allocs.get().wrapping_add(self.allocs.load(Ordering::Acquire));
        MemCounts::of_one_size(size, allocs, frees)
    }

    /// The lane's numbers, `lane` being the rest of its part.
    fn numbers(&self, size: usize, lane: &Lane) -> LaneNumbers {
        // What leaves is read before what comes, so that differences are rarely negative while the lane goes
        // on.
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

/// What a lane counted.
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
    /// Objects in the cache: what was freed into it and came in batches, less what was allocated from it and
    /// left in batches. Exact while the lane is at rest.
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
