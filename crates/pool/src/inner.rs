//! What all pools have in common: lanes, each with a cache and a shelf, and the way of an object between them.

use crate::cache::Cache;
use crate::error::{AllocError, Cause, Failure, PoolError};
use crate::inject;
use crate::object::{BATCH, Batch, Object};
use crate::options::{Options, Resolved};
use crate::report;
use crate::shelf::{Put, Shelf};
use crate::wait::Waiters;
use manylane_stats::{CallSite, FixedMemSlot, MemCounts, MemSource, Tally};
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{Backoff, CachePadded, LaneCell, LaneId, PerLane};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// A pool. It lives as long as the process.
pub(crate) struct Inner {
    pub(crate) name: &'static str,
    pub(crate) options: Resolved,
    lanes: PerLane<Lane, Box<dyn Fn(LaneId) -> Lane + Send + Sync>>,
    failures: [Failure; 4],
    /// Objects from the allocator, kept only where there is a limit (every lane writes it).
    reserved: CachePadded<AtomicUsize>,
    #[cfg(feature = "global-pools")]
    global: crate::global::Global,
}

/// A lane's part of a pool.
///
/// Key: `O` touched by the owning lane only, `S` stored by the owning lane, summed by anyone,
/// `A` shared as its module says.
#[repr(C)]
pub(crate) struct Lane {
    // The first line is all that the fast path touches.
    cache: LaneCell<Cache>, // O
    mem: FixedMemSlot,      // S
    id: LaneId,             // fixed
    /// For who has an object and the lane that took it.
    pub(crate) pool: &'static Inner, // fixed

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
    notes: LaneCell<Notes>,                // O
    pub(crate) waiters: LaneCell<Waiters>, // O

    /// On lines of its own, since other lanes write it.
    shelf: Shelf, // A
}

/// What a lane remembers between two slow paths.
struct Notes {
    /// Where on the own shelf the oldest batch is.
    oldest: usize,
    /// The lane whose shelf had something last: lanes that free what we allocate go on doing so.
    giver: Option<LaneId>,
    /// Misses for which the shelves of other lanes are not searched, after a search in vain: so that a lane
    /// that allocates steadily pays the search once a batch.
    pause: usize,
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
        let pool: Arc<OnceLock<&'static Self>> = Arc::new(OnceLock::new());
        let lane = {
            let options = options.clone();
            let pool = Arc::clone(&pool);
            move |id| Lane::new(id, pool.get().expect("lanes come after their pool"), &options)
        };
        let inner: &'static Self = Box::leak(Box::new(Self {
            name,
            failures: [Cause::Memory, Cause::Limit, Cause::Injected, Cause::Waiters].map(failure),
            lanes: PerLane::new(Box::new(lane)),
            reserved: CachePadded::new(AtomicUsize::new(0)),
            #[cfg(feature = "global-pools")]
            global: crate::global::Global::new(&options),
            options,
        }));
        let first = pool.set(inner).is_ok();
        debug_assert!(first, "it is set here only");
        report::register(inner);
        Ok(inner)
    }

    /// An object for the calling lane; its memory is not initialised.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub(crate) fn take(&'static self) -> Result<NonNull<u8>, AllocError> {
        self.take_on(self.own())
    }

    /// [`take`](Self::take), where the caller has looked up `lane`, the calling lane's part.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub(crate) fn take_on(&'static self, lane: &'static Lane) -> Result<NonNull<u8>, AllocError> {
        if inject::hit() {
            return Err(self.fail(lane, Cause::Injected));
        }
        // SAFETY: the slot is this lane's, and `pop` calls nothing back.
        let object = match unsafe { lane.cache.with(Cache::pop) } {
            Some(object) => object,
            None => self.refill(lane)?,
        };
        lane.mem.alloc();
        #[cfg(debug_assertions)]
        // SAFETY: the object is ours, and whatever comes from the cache or `refill` was filled.
        unsafe {
            crate::poison::check(object.0, self.options.layout.size(), self.name);
        }
        Ok(object.0)
    }

    /// Takes `object` back, into the calling lane's cache.
    ///
    /// # Safety
    /// It came from [`take`](Self::take) of this pool, on any lane, and nobody uses it any more.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn give(&'static self, object: NonNull<u8>) {
        // SAFETY: as the caller vouches.
        unsafe { self.give_on(self.own(), object) };
    }

    /// [`give`](Self::give), with a guess which part is the calling lane's: that of the lane that took the object. A
    /// look at the lane's number is cheaper than the look-up.
    ///
    /// # Safety
    /// As for [`give`](Self::give); `home` is a part of this pool.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn give_home(&'static self, home: &'static Lane, object: NonNull<u8>) {
        let lane = if home.id.is_current() { home } else { self.own() };
        // SAFETY: as the caller vouches.
        unsafe { self.give_on(lane, object) };
    }

    /// # Safety
    /// As for [`give`](Self::give); `lane` is the calling lane's part.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn give_on(&'static self, lane: &'static Lane, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        // SAFETY: nobody uses the object any more.
        unsafe {
            crate::poison::fill(object, self.options.layout.size());
        }
        lane.mem.free();
        let object = Object(object);
        // SAFETY: the slot is this lane's, and `push` calls nothing back.
        if !unsafe { lane.cache.with(|cache| cache.push(object)) } {
            self.overflow(lane, object);
        }
    }

    /// The calling lane's part.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn own(&'static self) -> &'static Lane {
        self.lanes.own()
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

    /// The cache is empty: an object from the own shelf, another lane's, a global list, the allocator.
    #[cold]
    #[inline(never)]
    fn refill(&'static self, lane: &'static Lane) -> Result<Object, AllocError> {
        let mut batch = Batch::new();
        if self.find_batch(lane, &mut batch, false) {
            return Ok(self.unpack(lane, &batch));
        }
        match self.fresh(lane) {
            Ok(object) => Ok(object),
            // What others have on their shelves is better than a failure.
            Err(_) if self.find_batch(lane, &mut batch, true) => Ok(self.unpack(lane, &batch)),
            Err(cause) => Err(self.fail(lane, cause)),
        }
    }

    fn unpack(&self, lane: &Lane, batch: &Batch) -> Object {
        lane.taken.add(batch.len() as u64);
        // SAFETY: the slot is the calling lane's; nothing is called back.
        let first = unsafe { lane.cache.with(|cache| cache.unpack(batch)) };
        first.expect("a batch has at least one object")
    }

    fn find_batch(&self, lane: &Lane, batch: &mut Batch, thorough: bool) -> bool {
        // SAFETY: the slot is the calling lane's; nothing is called back.
        unsafe {
            lane.notes.with(|notes| {
                if lane.shelf.take_newest(batch, &mut notes.oldest) {
                    return true;
                }
                if notes.pause > 0 && !thorough {
                    notes.pause -= 1;
                    return false;
                }
                let found = self.search(batch, &mut notes.giver);
                notes.pause = if found { 0 } else { BATCH };
                found
            })
        }
    }

    /// A batch from another lane's shelf, or a global list.
    fn search(&self, batch: &mut Batch, giver: &mut Option<LaneId>) -> bool {
        if let Some(lane) = giver.and_then(|lane| self.lanes.get(lane))
            && lane.shelf.take(batch)
        {
            return true;
        }
        // Lanes above us first, so that not all lanes search the first ones.
        let own = manylane_sync::lane::current();
        let above = self.lanes.iter().skip_while(|(lane, _)| *lane <= own);
        let below = self.lanes.iter().take_while(|(lane, _)| *lane < own);
        *giver = above.chain(below).find(|(_, lane)| lane.shelf.take(batch)).map(|(lane, _)| lane);
        #[cfg(feature = "global-pools")]
        if giver.is_none() {
            return self.global.take(own, batch);
        }
        giver.is_some()
    }

    /// An object from the allocator.
    fn fresh(&self, lane: &Lane) -> Result<Object, Cause> {
        if !self.reserve() {
            return Err(Cause::Limit);
        }
        // SAFETY: the size is not 0: see `Resolved`.
        let Some(memory) = NonNull::new(unsafe { std::alloc::alloc(self.options.layout) }) else {
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

    /// The cache is full: the coldest batch goes to the shelf; if that is full too, the coldest there goes to a
    /// global list or the allocator. At most one batch is moved and one freed.
    #[cold]
    #[inline(never)]
    fn overflow(&self, lane: &Lane, object: Object) {
        let mut batch = Batch::new();
        // SAFETY: the slot is the calling lane's; nothing is called back.
        unsafe { lane.cache.with(|cache| cache.displace(object, self.options.batch, &mut batch)) };
        lane.spilled.add(batch.len() as u64);
        // SAFETY: as above.
        let put = unsafe { lane.notes.with(|notes| lane.shelf.put(&mut batch, &mut notes.oldest)) };
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

    /// Gives to the allocator what the calling lane's cache, the caches of lanes without a thread, all shelves and the
    /// global lists hold; returns how many objects that were.
    pub(crate) fn reclaim(&'static self) -> usize {
        let lane = self.own();
        let mut freed = 0;
        let mut evict = |batch: &Batch| {
            freed += batch.len();
            self.evict(lane, batch);
        };
        lane.empty_cache(|batch| evict(&batch));
        let mut ended = Vec::new(); // given to the allocator later: threads that start wait meanwhile
        manylane_sync::lane::for_each_free(|lane| {
            if let Some(lane) = self.lanes.get(lane) {
                lane.empty_cache(|batch| ended.push(batch));
            }
        });
        ended.iter().for_each(&mut evict);
        for (_, from) in self.lanes.iter() {
            let mut batch = Batch::new();
            for _ in 0..self.options.shelved {
                // Counted, since the lane may go on filling it.
                if from.shelf.take(&mut batch) {
                    evict(&batch);
                }
            }
        }
        #[cfg(feature = "global-pools")]
        self.global.empty(evict);
        freed
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
        self.lanes.iter().for_each(|(id, lane)| each(id, lane.numbers()));
    }

    /// For models only: frees the pool and all that is cached in it.
    ///
    /// # Safety
    /// Nobody uses the pool any more, and all objects were given back.
    #[cfg(loom)]
    pub(crate) unsafe fn destroy(&'static self) {
        let this = std::ptr::from_ref(self).cast_mut();
        for (_, lane) in self.lanes.iter() {
            lane.empty_cache(|batch| self.evict(lane, &batch));
        }
        self.reclaim();
        // SAFETY: it came from a box in `leak`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(this) });
    }
}

impl Lane {
    fn new(id: LaneId, pool: &'static Inner, options: &Resolved) -> Self {
        Self {
            id,
            pool,
            cache: LaneCell::new(Cache::new(options.cached)),
            mem: FixedMemSlot::new(options.layout.size()),
            fresh: Tally::new(),
            evicted: Tally::new(),
            taken: Tally::new(),
            spilled: Tally::new(),
            failed: Tally::new(),
            notes: LaneCell::new(Notes { oldest: 0, giver: None, pause: 0 }),
            waiters: LaneCell::new(Waiters::new()),
            shelf: Shelf::new(options.shelved, options.batch),
        }
    }

    /// Objects freed on this lane since the pool exists.
    pub(crate) fn frees(&self) -> u64 {
        self.mem.counts().frees
    }

    /// Calls `each` with all that the cache holds. The caller owns the slot: it is its lane's, or that of a lane that it
    /// visits as free.
    fn empty_cache(&self, mut each: impl FnMut(Batch)) {
        loop {
            let mut batch = Batch::new();
            // SAFETY: every caller owns the slot, as said above; nothing is called back.
            unsafe { self.cache.with(|cache| cache.spill(BATCH, &mut batch)) };
            if batch.len() == 0 {
                return;
            }
            self.spilled.add(batch.len() as u64);
            each(batch);
        }
    }

    fn numbers(&self) -> LaneNumbers {
        // What leaves is read before what comes, so that differences are rarely negative while the lane goes on.
        let (evicted, spilled) = (self.evicted.get(), self.spilled.get());
        let mem = self.mem.counts();
        LaneNumbers {
            evicted,
            spilled,
            mem,
            taken: self.taken.get(),
            fresh: self.fresh.get(),
            failed: self.failed.get(),
            shelved: self.shelf.len() as u64,
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
    pub(crate) shelved: u64,
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
        self.lanes.iter().for_each(|(id, lane)| each(id, lane.mem.counts()));
    }

    fn visit_sites(&self, each: &mut dyn FnMut(CallSite)) {
        self.lanes.iter().for_each(|(_, lane)| lane.mem.visit_sites(each));
    }
}
