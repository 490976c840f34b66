//! The memory of a lane's scheduler: one home for each lane number, created at first use, never freed.

use crate::class::Class;
use crate::error::{Cause, SpawnError};
use crate::inbox::{Closed, Inbox, Node, Pushed};
use crate::kind::TaskKind;
use crate::late::CallerSite;
use crate::own::Own;
use crate::poller::Unpark;
use crate::queue::{Fifo, NicedQueue};
use crate::report::Counters;
use crate::slot::{Entry, PENDING, RemoteSlot, Slots, bits};
use crate::task::{self, Header};
use crate::time::Time;
use crate::timer::Wheel;
use crate::waker::TaskId;
use manylane_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, OwnedU64};
use manylane_sync::{LaneCell, LaneId, LockClass, Mutex, PerLane};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::time::Duration;

static UNPARK: LockClass = LockClass::new("lane unparker", LockClass::LEAF);

/// All scheduler state of one lane. Parts that different lanes write are on different lines (R-F6); the
/// assertions at the end of this file enforce that.
///
/// Key: `O` the owning lane only, `R` written by other lanes, too, `P` written by the owner and read by any
/// thread, `I` hardly ever written after the start.
#[repr(C)]
pub(crate) struct Home {
    pub(crate) local: Local,                // O: lines 0 to 2
    pub(crate) inbox: Inbox,                // R: line 4 (and 5, which cores fetch with it)
    pub(crate) published: Published,        // P
    pub(crate) slots: Slots,                // I: tables of chunks; the elements have keys of their own
    pub(crate) niced: LaneCell<NicedQueue>, // O
    pub(crate) wheel: Wheel,                // O
    pub(crate) settings: Own<Settings>,     // O
    /// Wakes this lane from its sleep. The lock keeps the lane from ending while another thread wakes it.
    pub(crate) unpark: Mutex<Option<Arc<dyn Unpark>>>,
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) callers: LaneCell<crate::late::Callers>, // O
}

/// State that nearly every operation touches.
#[repr(C, align(128))]
pub(crate) struct Local {
    /// One run queue for each class.
    pub(crate) fifos: [Fifo; 4],
    /// Time of this round, in nanoseconds.
    pub(crate) now: Own<u64>,
    /// First of the free slots.
    pub(crate) free: Own<*const Entry>,
    /// The slot of the task that is being polled.
    pub(crate) current: Own<*const Entry>,
    /// The first slot that was never used.
    pub(crate) fresh: Own<u32>,
    /// Mask of the flags with which a wake-up takes the slow path.
    pub(crate) detour: Own<u32>,
    /// Number of tasks in the heap.
    pub(crate) niced: Own<u32>,
    /// Time at which measuring began last, in nanoseconds.
    pub(crate) measured_from: Own<u64>,
    pub(crate) lane: Own<u32>,
    /// The task id of this lane with slot 0 and generation 0, which no task has.
    pub(crate) first: Own<TaskId>,
    /// True if a `Lane` owns this home.
    pub(crate) open: Own<bool>,
    /// True if this round measures.
    pub(crate) profiling: Own<bool>,
    /// True once `run` was requested to return.
    pub(crate) stopping: Own<bool>,
    /// True if the last round ended without a sleep: then the time since it began is the lateness of this
    /// round.
    pub(crate) busy: Own<bool>,
}

/// State that other threads read.
#[repr(C, align(128))]
pub(crate) struct Published {
    /// Kind of the task that runs; null between tasks. Written before `run`.
    pub(crate) kind: AtomicPtr<TaskKind>,
    /// Number of polls so far: that of the running task.
    pub(crate) run: AtomicU64,
    /// State for isolation: see `isolate`.
    pub(crate) state: AtomicU32,
    /// Tasks in the run queues, by class, at the end of the last round.
    pub(crate) queued: [OwnedU64; 4],
    /// Number of tasks on this lane at the end of the last round.
    pub(crate) live: OwnedU64,
    /// Time at which the lane fell asleep, in nanoseconds; 0 while it is awake.
    pub(crate) asleep: AtomicU64,
    /// Counters of the lane.
    pub(crate) counters: Counters,
    /// Thread number of the lane, for the watchdog.
    #[cfg(not(loom))]
    pub(crate) thread: AtomicU32,
}

impl Published {
    /// Returns the kind of the running task; exact on the owner.
    pub(crate) fn running(&self) -> Option<&'static TaskKind> {
        // SAFETY: null, or from a reference that lives as long as the program.
        unsafe { self.kind.load(Ordering::Relaxed).as_ref() }
    }
}

/// Settings of the lane.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) depth: u32,
    pub(crate) low_latency: bool,
    pub(crate) busy_poll: Duration,
    pub(crate) outlives_panics: bool,
    pub(crate) clock: fn() -> Time,
    #[cfg(all(debug_assertions, not(loom)))]
    pub(crate) on_late_wake: fn(LaneId, &crate::LateWake),
}

// SAFETY: only a `Lane`, a `Here` or `here()` touches the parts marked `O`, and all of these stay on the
// thread with this lane's number (rule 1 of the crate's page). The handover of a number to a later thread is
// ordered (see `manylane_sync::lane`). All other parts are atomics and locks. Tasks may hold values that are
// not `Send`: the `Lane` that polls them drops them before its thread ends.
unsafe impl Sync for Home {}
// SAFETY: as above.
unsafe impl Send for Home {}

#[cfg(not(loom))]
pub(crate) static HOMES: PerLane<Home> = PerLane::new(Home::new);
#[cfg(loom)]
manylane_sync::lazy_static! {
    static HOMES: PerLane<Home> = PerLane::new(Home::new);
}

/// Iterates over all homes that exist.
pub(crate) fn all() -> impl Iterator<Item = (LaneId, &'static Home)> {
    let homes: &'static PerLane<Home> = &HOMES;
    homes.iter()
}

/// Returns the home of lane number `lane`, if it ever had one.
#[inline]
pub(crate) fn of(lane: usize) -> Option<&'static Home> {
    let homes: &'static PerLane<Home> = &HOMES;
    homes.get(LaneId::new(lane).ok()?)
}

/// Returns the calling thread's home, creating it if needed.
pub(crate) fn own() -> &'static Home {
    let homes: &'static PerLane<Home> = &HOMES;
    homes.own()
}

#[cfg(not(any(loom, manylane_sim)))]
mod current {
    use super::Home;
    use std::cell::Cell;

    thread_local! {
        static CURRENT: Cell<Option<&'static Home>> = const { Cell::new(None) };
    }

    /// Returns the calling thread's home, if it runs a lane. Costs one load.
    #[inline(always)]
    pub(crate) fn here() -> Option<&'static Home> {
        CURRENT.get()
    }

    pub(crate) fn set(home: Option<&'static Home>) {
        CURRENT.set(home);
    }
}

/// Virtual cores and modelled threads share a real thread; their number tells them apart.
#[cfg(any(loom, manylane_sim))]
mod current {
    use super::Home;

    pub(crate) fn here() -> Option<&'static Home> {
        super::of(manylane_sync::lane::current().index()).filter(|home| home.local.open.get())
    }

    pub(crate) fn set(_: Option<&'static Home>) {}
}

pub(crate) use current::{here, set as set_current};

impl Home {
    fn new(lane: LaneId) -> Self {
        Self {
            local: Local {
                fifos: std::array::from_fn(|_| Fifo::new()),
                now: Own::new(0),
                free: Own::new(null()),
                current: Own::new(null()),
                fresh: Own::new(0),
                detour: Own::new(bits::PLAIN),
                niced: Own::new(0),
                measured_from: Own::new(0),
                lane: Own::new(lane.index() as u32),
                first: Own::new(TaskId::new(lane.index() as u32, 0, 0)),
                open: Own::new(false),
                profiling: Own::new(false),
                stopping: Own::new(false),
                busy: Own::new(false),
            },
            inbox: Inbox::new(),
            published: Published {
                kind: AtomicPtr::new(null_mut()),
                run: AtomicU64::new(0),
                state: AtomicU32::new(crate::isolate::ABSENT),
                queued: std::array::from_fn(|_| OwnedU64::new(0)),
                live: OwnedU64::new(0),
                asleep: AtomicU64::new(0),
                counters: Counters::default(),
                #[cfg(not(loom))]
                thread: AtomicU32::new(0),
            },
            slots: Slots::new(),
            niced: LaneCell::new(NicedQueue::new()),
            wheel: Wheel::new(),
            settings: Own::new(Settings {
                depth: 1,
                low_latency: false,
                busy_poll: Duration::ZERO,
                outlives_panics: false,
                clock: Time::now,
                #[cfg(all(debug_assertions, not(loom)))]
                on_late_wake: |_, _| {},
            }),
            unpark: Mutex::new(&UNPARK, None),
            #[cfg(all(debug_assertions, not(loom)))]
            callers: LaneCell::new(crate::late::Callers::new()),
        }
    }

    #[inline(always)]
    pub(crate) fn lane(&self) -> LaneId {
        LaneId::new(self.local.lane.get() as usize).expect("it came from a lane")
    }

    /// Returns the entry of a slot that exists.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn entry(&self, slot: u32) -> &Entry {
        // SAFETY: slots come from wakers and queues of this lane, which contain only slots that exist, on
        // this thread.
        unsafe { self.slots.entries.at(slot) }
    }

    /// Returns the slot of `id` if it is a slot of this lane. One comparison checks the lane and that the
    /// slot exists.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn slot_of(&self, id: TaskId) -> Option<u32> {
        id.slot_beside(self.local.first.get(), self.local.fresh.get())
    }

    /// Returns the number of tasks on this lane.
    #[cfg_attr(loom, allow(dead_code))] // loom models do not check counters
    pub(crate) fn live(&self) -> u64 {
        let counters = &self.published.counters;
        counters.spawned.get() - counters.completed.get()
    }

    /// Notes that the lane sleeps, or polls busily, from `now` on.
    #[cfg(not(loom))]
    pub(crate) fn falls_asleep(&self, now: Time) {
        self.published.asleep.store(now.as_nanos(), Ordering::Release);
    }

    /// Begins a round: ends the sleep, if there was one.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn wakes(&self, now: Time) {
        let since = self.published.asleep.load(Ordering::Relaxed); // only this lane writes it
        if since != 0 {
            // In this order: a reader that sees the added time also sees that the sleep is over.
            self.published.asleep.store(0, Ordering::Relaxed);
            self.published.counters.slept.add(now.as_nanos().saturating_sub(since));
        }
    }

    /// Loom models do not check times.
    #[cfg(loom)]
    pub(crate) fn falls_asleep(&self, _: Time) {}

    #[cfg(loom)]
    pub(crate) fn wakes(&self, _: Time) {}

    /// Turns measuring of tasks on or off.
    #[inline(always)]
    pub(crate) fn measure(&self, on: bool) {
        if on && !self.local.profiling.get() {
            self.local.measured_from.set(self.local.now.get());
        }
        self.local.profiling.set(on);
        self.local.detour.set(if on { bits::MEASURED } else { bits::PLAIN });
    }

    // ---- Owner: tasks come and go ----

    /// Gives a new task a slot and queues it. On failure the task is dropped.
    #[inline(always)]
    pub(crate) fn adopt(&self, task: NonNull<Header>, class: Class) -> Result<TaskId, SpawnError> {
        // SAFETY: null, or one of this home's entries, which live as long as the home.
        let entry = match unsafe { self.local.free.get().as_ref() } {
            Some(entry) => {
                self.local.free.set(entry.next.get());
                entry
            }
            None => match self.fresh_slot() {
                Some(entry) => entry,
                None => {
                    // SAFETY: no other reference to the task exists.
                    unsafe { task::release(task) };
                    return Err(SpawnError(Cause::Slots));
                }
            },
        };
        entry.task.set(task.as_ptr());
        self.published.counters.spawned.add(1);
        self.enqueue(entry, (class as u32) << bits::CLASS_SHIFT | bits::LIVE);
        Ok(entry.id.get())
    }

    #[cold]
    #[inline(never)]
    fn fresh_slot(&self) -> Option<&Entry> {
        let slot = self.local.fresh.get();
        let entry = self.slots.reach(self.local.lane.get(), slot)?;
        self.local.fresh.set(slot + 1);
        Some(entry)
    }

    /// Ends the task in a slot: late wake-ups no longer find it, its future is dropped, and the slot is
    /// freed.
    #[inline(always)]
    pub(crate) fn finish(&self, entry: &Entry) {
        let Some(task) = NonNull::new(entry.task.replace(null_mut())) else { return };
        entry.id.set(entry.id.get().next_generation());
        entry.flags.set(entry.flags.get() & bits::QUEUED | bits::LEFT);
        self.published.counters.completed.add(1);
        /// Frees the slot even if the future's destructor panics. Not before the destructor has run, so that
        /// the slot keeps its number meanwhile.
        struct Vacate<'a>(&'a Home, &'a Entry);
        impl Drop for Vacate<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                // A slot that is still queued is freed when it leaves the queue.
                if self.1.flags.get() & bits::QUEUED == 0 {
                    self.0.vacate(self.1);
                }
            }
        }
        let _vacate = Vacate(self, entry);
        // SAFETY: removed from its entry above: nothing else can reach the task, and it is not being polled.
        unsafe { task::release(task) };
    }

    /// Puts an empty slot that is in no queue on the free list.
    #[inline(always)]
    pub(crate) fn vacate(&self, entry: &Entry) {
        entry.next.set(self.local.free.replace(entry));
    }

    // ---- Owner: wake-ups ----

    /// Queues a task with these flags, unless it is queued.
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn enqueue(&self, entry: &Entry, flags: u32) {
        // One test covers all uncommon cases. The slow paths are tail calls, so the fast path needs no stack.
        if flags & self.local.detour.get() != 0 {
            return self.enqueue_otherwise(entry, flags);
        }
        self.push(entry, flags);
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn push(&self, entry: &Entry, flags: u32) {
        entry.flags.set(flags | bits::QUEUED);
        let class = (flags & bits::CLASS) >> bits::CLASS_SHIFT;
        // SAFETY: entries live as long as the home.
        unsafe { self.local.fifos[class as usize].push(entry) };
    }

    #[cold]
    #[inline(never)]
    fn enqueue_otherwise(&self, entry: &Entry, flags: u32) {
        if flags & (bits::QUEUED | bits::LEFT) != 0 {
            return;
        }
        if self.local.profiling.get() {
            // SAFETY: null, or the task lives and belongs to this lane.
            if let Some(task) = unsafe { entry.task.get().as_ref() } {
                task.woken_at.set((self.settings.get().clock)().as_nanos());
            }
        }
        if flags & bits::NICED == 0 {
            return self.push(entry, flags);
        }
        entry.flags.set(flags | bits::QUEUED);
        let nice = (flags >> bits::NICE_SHIFT) as u16;
        let tick = self.local.fifos[Class::Normal as usize].tick();
        // SAFETY: belongs to this lane, and the closure calls back into nothing.
        unsafe { self.niced.with(|heap| heap.push(tick, nice.cast_signed(), entry.id.get().slot())) };
        self.local.niced.set(self.local.niced.get() + 1);
    }

    /// Wakes a task of the calling lane (R-F10: this is the whole fast path).
    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn wake(&self, slot: u32, id: TaskId, site: CallerSite) {
        let entry = self.entry(slot);
        #[cfg(all(debug_assertions, not(loom)))]
        self.note_caller(slot, self.caller(site));
        let _ = site;
        if entry.id.get() != id {
            return self.late(slot, id.generation(), entry);
        }
        self.enqueue(entry, entry.flags.get());
    }

    /// Wakes the tasks of a kind, and returns their number.
    #[cold]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn wake_kind(&self, kind: &'static TaskKind) -> usize {
        let mut woken = 0;
        for slot in 0..self.local.fresh.get() {
            let entry = self.entry(slot);
            // SAFETY: null, or the task lives and belongs to this lane.
            let lives = unsafe { entry.task.get().as_ref() };
            if lives.is_some_and(|task| std::ptr::eq(task.kind, kind)) {
                self.wake(slot, entry.id.get(), CallerSite::here());
                woken += 1;
            }
        }
        woken
    }

    /// Counts a wake-up that came after the end of its task (R-F9).
    #[cold]
    #[inline(never)]
    fn late(&self, slot: u32, generation: u32, entry: &Entry) {
        self.published.counters.late_wakes.add(1);
        #[cfg(all(debug_assertions, not(loom)))]
        {
            // SAFETY: null, or the task lives and belongs to this lane.
            let now = unsafe { entry.task.get().as_ref() }.map(|task| task.kind.name());
            // SAFETY: belongs to this lane, and the closure calls back into nothing.
            unsafe { self.callers.with(|callers| callers.late(slot, generation, now)) };
        }
        let _ = (slot, generation, entry);
    }

    #[cfg(all(debug_assertions, not(loom)))]
    fn caller(&self, site: CallerSite) -> crate::late::Caller {
        crate::late::Caller {
            lane: self.local.lane.get() as usize,
            task: self.published.running().map(TaskKind::name),
            location: site.location,
        }
    }

    #[cfg(all(debug_assertions, not(loom)))]
    fn note_caller(&self, slot: u32, caller: crate::late::Caller) {
        // SAFETY: belongs to this lane, and the closure calls back into nothing.
        unsafe { self.callers.with(|callers| callers.woken(slot, caller)) };
    }

    /// Takes in everything that other lanes have sent. Returns the number of nodes.
    #[inline]
    pub(crate) fn collect(&self) -> u32 {
        if self.inbox.is_empty() { 0 } else { self.collect_all() }
    }

    #[inline(never)]
    fn collect_all(&self) -> u32 {
        let (mut arrived, mut woken) = (0, 0);
        for node in self.inbox.drain() {
            // SAFETY: nodes stay valid until they are drained, and this lane now owns this one.
            let slot = unsafe { node.as_ref() }.slot.get();
            if slot >= Node::TASK {
                arrived += 1;
                // A failure is only counted: no caller waits for the result.
                if self.adopt(node.cast(), Class::from_bits(slot)).is_err() {
                    self.published.counters.refused.add(1);
                }
            } else {
                woken += 1;
                self.woken_from_afar(slot, node);
            }
        }
        // R-F7: one addition for all nodes.
        self.published.counters.arrived.add(u64::from(arrived));
        self.published.counters.woken_remotely.add(u64::from(woken));
        arrived + woken
    }

    fn woken_from_afar(&self, slot: u32, node: NonNull<Node>) {
        // SAFETY: a node with a slot's number is the first field of that slot's remote part, which is never
        // freed.
        let remote = unsafe { node.cast::<RemoteSlot>().as_ref() };
        // The node's link was read before. Acquire: pairs with the release in the swaps of all wakers since
        // the last reset, so the poll that follows sees their writes. Release: the next waker may write the
        // link.
        let pending = remote.pending.swap(0, Ordering::AcqRel);
        #[cfg(all(debug_assertions, not(loom)))]
        remote.by.take().for_each(|caller| self.note_caller(slot, caller));
        let entry = self.entry(slot);
        let generation = pending >> 1;
        if generation != entry.id.get().generation() {
            self.late(slot, generation, entry);
            // A late wake-up may have overwritten a valid one for the task that lives here now. So that task
            // is woken in any case; a future must tolerate that.
            if entry.task.get().is_null() {
                return;
            }
        }
        self.enqueue(entry, entry.flags.get());
    }

    /// Returns the number of queued tasks of all classes.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.local.fifos.iter().map(Fifo::len).sum::<u32>() + self.local.niced.get()
    }

    // ---- Others ----

    /// Wakes a task of this lane from another one.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn wake_from_afar(&self, slot: u32, generation: u32, site: CallerSite) {
        // SAFETY: the number comes from a waker, so the slot existed before the waker, and slots are never
        // freed.
        let remote = unsafe { self.slots.remotes.at(slot) };
        #[cfg(all(debug_assertions, not(loom)))]
        remote.by.set(manylane_sync::lane::current().index(), site);
        let _ = site;
        // Release: publishes the waker's writes to the poll that follows. Acquire: pairs with the release in
        // `woken_from_afar`: the lane has read the node's link.
        let before = remote.pending.swap(generation << 1 | PENDING, Ordering::AcqRel);
        if before != 0 {
            return; // the node is in the inbox, or on its way there
        }
        // Derived from the whole slot, since the lane converts it back into one.
        let node = NonNull::from(remote).cast::<Node>();
        // SAFETY: the thread that sets `pending` owns the node; slots are never freed.
        if unsafe { self.inbox.push_wake(node) } == Pushed::Asleep {
            self.unpark();
        }
    }

    /// Sends a new task from another lane to this one.
    ///
    /// # Safety
    /// No other reference to the task exists, and its contents may change lanes.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) unsafe fn send(&self, task: NonNull<Header>) -> Result<(), Closed> {
        // SAFETY: by contract; the task lives until this lane takes it in.
        if unsafe { self.inbox.push_task(task.cast()) }? == Pushed::Asleep {
            self.unpark();
        }
        Ok(())
    }

    /// Wakes the lane from its sleep: the most expensive operation, done once for each sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn unpark(&self) {
        // Called outside of the lock: the woken lane may take the processor of this thread, and threads that
        // wake the lane later would wait for both.
        let unpark = self.unpark.lock().clone();
        if let Some(unpark) = unpark {
            unpark.unpark();
        }
    }
}

#[cfg(not(any(loom, manylane_sim)))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Home, local) == 0);
    assert!(size_of::<Fifo>() == 32 && offset_of!(Local, fifos) == 0, "two queues to a line");
    assert!(size_of::<Local>() == 256, "the owner's words fill three lines");
    assert!(offset_of!(Home, inbox) == 256, "what other lanes write begins on the fifth");
    assert!(size_of::<Inbox>() == 128 && offset_of!(Home, published) == 384);
    assert!(align_of::<Home>() == 128 && offset_of!(Home, slots).is_multiple_of(128));
};

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::{Config, Lane, Time};
    use std::future::pending;

    static KIND: TaskKind = TaskKind::new("generations");

    /// Simulates 2^24 tasks in one slot: wakers of the last ones look like those of the next.
    #[test]
    fn a_waker_kept_for_all_generations_wakes_nobody_in_an_empty_slot() {
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        let here = lane.here();
        let ids: Vec<_> =
            (0..3).map(|_| here.spawn(&KIND, Class::Normal, async {}).expect("memory")).collect();
        lane.round(Time::ZERO);
        ids.iter().for_each(|id| id.next_generation().wake());
        std::thread::scope(|scope| {
            scope.spawn(|| ids.iter().for_each(|id| id.next_generation().wake()));
        });
        assert_eq!(lane.round(Time::ZERO).polled, 0);
        let mut slots: Vec<_> =
            (0..6).map(|_| here.spawn(&KIND, Class::Bulk, pending()).expect("memory").slot()).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3, 4, 5], "each has a slot of its own");
        assert_eq!(lane.round(Time::ZERO).polled, 6);
    }

    #[test]
    fn generations_begin_again_and_leave_the_slot_alone() {
        let last = TaskId::new(3, 5, (1 << 24) - 1);
        assert_eq!(last.next_generation(), TaskId::new(3, 5, 0));
        assert_eq!(TaskId::new(3, 5, 7).next_generation(), TaskId::new(3, 5, 8));
    }
}
