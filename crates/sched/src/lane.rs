//! A lane from its owner's side: rounds, sleep, the main loop.

use crate::busy::{Found, PollSchedule};
use crate::class::{Class, RUNQUEUE_DEPTH};
use crate::error::{LaneTaken, SpawnError};
use crate::here::{Here, Remote};
use crate::home::{self, Home, Settings};
use crate::inbox::Node;
use crate::isolate;
use crate::kind::TaskKind;
use crate::late::LateWake;
use crate::poller::Poller;
use crate::slot::{Entry, RemoteSlot, bits};
use crate::task;
use crate::time::Time;
use crate::timer::TIMERS_PER_ROUND;
use crate::waker::TaskId;
use manylane_sync::LaneId;
use manylane_sync::atomic::Ordering;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

/// Configuration of a lane. [`Config::new`] or `default()` suits most lanes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    runqueue_depth: u32,
    low_latency: bool,
    busy_poll: Duration,
    outlives_panics: bool,
    clock: fn() -> Time,
    #[cfg_attr(not(all(debug_assertions, not(loom))), allow(dead_code))]
    // other builds record no late wake-ups
    on_late_wake: fn(LaneId, &LateWake),
}

/// Default report of a late wake-up.
fn print_late_wake(lane: LaneId, wake: &LateWake) {
    let _ = writeln!(io::stderr(), "{lane}: {wake}"); // the reader may have left
}

impl Config {
    /// Creates the default configuration.
    pub const fn new() -> Self {
        Self {
            runqueue_depth: RUNQUEUE_DEPTH,
            low_latency: false,
            busy_poll: Duration::ZERO,
            outlives_panics: false,
            clock: Time::now,
            on_late_wake: print_late_wake,
        }
    }

    /// Sets the function that [`Lane::run`] calls for each wake-up that came after the end of its task
    /// (R-F9), at the end of the round. Default: prints a line on standard error. Only debug builds call it;
    /// release builds only count such wake-ups.
    #[must_use]
    pub const fn on_late_wake(mut self, report: fn(LaneId, &LateWake)) -> Self {
        self.on_late_wake = report;
        self
    }

    /// Sets the maximum number of tasks that a round polls, heavy ones apart; 0 counts as 1. Default
    /// [`RUNQUEUE_DEPTH`] (R-F4).
    #[must_use]
    pub const fn runqueue_depth(mut self, tasks: u32) -> Self {
        self.runqueue_depth = if tasks == 0 { 1 } else { tasks };
        self
    }

    /// Turns low latency on: urgent tasks that become ready during a round run before the next task of
    /// another class, and at most one heavy task runs between two checks of the poller (R-F3). Costs
    /// throughput of the other classes. Default off.
    #[must_use]
    pub const fn low_latency(mut self, on: bool) -> Self {
        self.low_latency = on;
        self
    }

    /// Sets for how long an idle lane looks for work before it sleeps (`SO_BUSY_POLL` for a whole lane).
    /// Zero: it sleeps at once; [`Duration::MAX`]: it never sleeps. The lane then sees a message from another
    /// lane after tens of nanoseconds, and the sender needs no system call. But the lane uses a whole
    /// processor, and if there are more such lanes than processors each waits for the others' time slices.
    /// Default zero. [`Here::set_busy_poll`] changes it later.
    #[must_use]
    pub const fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Makes [`Lane::run`] and [`Lane::block_on`] go on after a panic of a task, which ends that task; only
    /// the panic hook reports it. Otherwise they panic, too. Costs a few instructions a round. Default off.
    #[must_use]
    pub const fn outlives_panics(mut self, on: bool) -> Self {
        self.outlives_panics = on;
        self
    }

    /// Sets the clock of [`Lane::run`] and of profiling. Default [`Time::now`].
    #[must_use]
    pub const fn clock(mut self, clock: fn() -> Time) -> Self {
        self.clock = clock;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// The scheduler of the thread that created it. See the crate's page.
pub struct Lane {
    pub(crate) home: &'static Home,
    pub(crate) poll_schedule: PollSchedule,
    not_send: PhantomData<*const ()>,
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number of polled tasks.
    pub polled: u32,
    /// Number of wake-ups and tasks from other lanes.
    pub arrived: u32,
    /// True if tasks are queued: the next round should follow without a sleep.
    pub more: bool,
    /// Time at which timers need the next round, if any is armed.
    pub next_timer: Option<Time>,
}

impl Lane {
    /// Makes the calling thread a lane.
    ///
    /// # Errors
    /// [`LaneTaken`] if the thread is a lane already.
    pub fn new(config: Config) -> Result<Self, LaneTaken> {
        let home = home::own();
        if home.local.open.get() {
            return Err(LaneTaken(home.lane()));
        }
        home.settings.set(Settings {
            depth: config.runqueue_depth,
            low_latency: config.low_latency,
            busy_poll: config.busy_poll,
            outlives_panics: config.outlives_panics,
            clock: config.clock,
            #[cfg(all(debug_assertions, not(loom)))]
            on_late_wake: config.on_late_wake,
        });
        home.local.stopping.set(false);
        home.local.busy.set(false);
        home.measure(false);
        home.local.now.set((config.clock)().as_nanos());
        home.wheel.restart();
        home.local.open.set(true);
        #[cfg(not(loom))]
        home.published.thread.store(crate::watchdog::this_thread(), Ordering::Relaxed);
        home::set_current(Some(home));
        isolate::enter(home);
        let lane = Self { home, poll_schedule: PollSchedule::new(), not_send: PhantomData };
        // Messages for an earlier owner wake no task, but the inbox must return their nodes.
        home.collect();
        Ok(lane)
    }

    /// Returns the lane's number.
    pub fn id(&self) -> LaneId {
        self.home.lane()
    }

    /// Returns the handle for tasks of this lane.
    #[inline]
    pub fn here(&self) -> Here {
        Here::new(self.home)
    }

    /// Returns the handle for other lanes.
    pub fn remote(&self) -> Remote {
        self.here().remote()
    }

    /// Runs one round at the time `now`, which must not be before that of the last round: messages of other
    /// lanes, timers, then tasks within the budget. Waits only while another lane is isolated
    /// ([`isolate`](crate::isolate)).
    ///
    /// # Panics
    /// If a task panics: with the same panic, after ending the task. The lane may go on.
    #[inline]
    pub fn round(&mut self, now: Time) -> Round {
        let home = self.home;
        isolate::safe_point(home);
        home.wakes(now);
        let took = now.since(Time::from_nanos(home.local.now.replace(now.as_nanos())));
        self.decide_profiling(took);
        let arrived = home.collect();
        home.wheel.advance(now);
        let mut budget = TIMERS_PER_ROUND;
        let mut fired = 0;
        while let Some(waker) = home.wheel.next_expired(&mut budget) {
            waker.wake();
            fired += 1;
        }
        let polled = home.run_queue();
        self.publish(fired, TIMERS_PER_ROUND - budget);
        let more = home.queued() > 0;
        home.local.busy.set(more);
        Round { polled, arrived, more, next_timer: home.wheel.next_event() }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn decide_profiling(&self, took: Duration) {
        let local = &self.home.local;
        let took = local.busy.get().then_some(took);
        self.home.measure(crate::profile::decide(local.profiling.get(), took));
    }

    #[cfg(loom)]
    fn decide_profiling(&self, _: Duration) {}

    /// Publishes the counters of the round.
    #[cfg(not(loom))]
    fn publish(&self, fired: u64, visited: u32) {
        let (local, published) = (&self.home.local, &self.home.published);
        published.counters.rounds.add(1);
        published.counters.timers.add(fired);
        published.counters.timers_moved.add(u64::from(visited) - fired);
        for class in Class::ALL {
            let niced = if class == Class::Normal { local.niced.get() } else { 0 };
            published.queued[class as usize].set(u64::from(local.fifos[class as usize].len() + niced));
        }
        published.live.set(self.home.live());
    }

    /// Loom models do not check these counters.
    #[cfg(loom)]
    fn publish(&self, _: u64, _: u32) {}

    /// Checks the poller, and sleeps there if the round left no work. Other lanes may isolate themselves
    /// meanwhile.
    ///
    /// With [`Config::busy_poll`] it looks for work before it sleeps, and need not check the poller each
    /// time.
    ///
    /// `poller` must be the one whose [`unparker`](Poller::unparker) this lane got by
    /// [`attach`](Self::attach).
    ///
    /// # Errors
    /// Those of the poller.
    pub fn park<P: Poller + ?Sized>(&mut self, poller: &mut P, round: &Round) -> io::Result<()> {
        let home = self.home;
        let busy_poll = home.settings.get().busy_poll;
        if !busy_poll.is_zero()
            && !round.more
            && !home.local.stopping.get()
            && self.find_work(poller, round, busy_poll)? == Found::Work
        {
            return Ok(());
        }
        // Checks first: this load is cheaper than an exchange that fails because a push came meanwhile.
        if round.more || home.local.stopping.get() || !home.inbox.is_empty() {
            return poller.poll(self.here(), Some(Duration::ZERO));
        }
        // Without a timer this does not read the clock, and the sleep counts from the start of the round.
        let mut now = self.here().now();
        let timeout = round.next_timer.map(|at| {
            now = (home.settings.get().clock)();
            at.since(now)
        });
        if timeout == Some(Duration::ZERO) || !home.inbox.fall_asleep() {
            return poller.poll(self.here(), Some(Duration::ZERO));
        }
        /// Ends the sleep, also if the poller panics.
        struct Awake<'a>(&'a Home);
        impl Drop for Awake<'_> {
            fn drop(&mut self) {
                self.0.inbox.wake_up();
                isolate::enter(self.0);
            }
        }
        #[cfg(not(loom))]
        home.published.counters.sleeps.add(1);
        home.falls_asleep(now);
        isolate::leave(home);
        let _awake = Awake(home);
        poller.poll(self.here(), timeout)
    }

    /// Registers `poller` as the place in which other lanes wake this one. [`run`](Self::run) calls this
    /// itself.
    pub fn attach<P: Poller + ?Sized>(&mut self, poller: &P) {
        let unparker = poller.unparker();
        let before = self.home.unpark.lock().replace(unparker);
        drop(before); // outside of the lock
    }

    /// Alternates rounds and checks of the poller, until [`Here::stop`] or [`Remote::stop`].
    ///
    /// # Errors
    /// Those of the poller.
    ///
    /// # Panics
    /// As [`round`](Self::round).
    pub fn run<P: Poller + ?Sized>(&mut self, poller: &mut P) -> io::Result<()> {
        self.attach(poller);
        let clock = self.home.settings.get().clock;
        while !self.home.local.stopping.get() {
            let Some(round) = self.round_of_run(clock()) else { continue };
            self.report_late_wakes();
            self.park(poller, &round)?;
        }
        self.home.local.stopping.set(false);
        Ok(())
    }

    /// Runs a round. Returns none if a task panicked and the lane outlives that.
    #[inline(always)]
    fn round_of_run(&mut self, now: Time) -> Option<Round> {
        if !self.home.settings.get().outlives_panics {
            return Some(self.round(now));
        }
        match catch_unwind(AssertUnwindSafe(|| self.round(now))) {
            Ok(round) => Some(round),
            Err(panic) => {
                // The panic's payload may panic when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
                None
            }
        }
    }

    /// Runs the lane until `future` is complete, and returns its output. Other tasks stay on the lane.
    ///
    /// # Errors
    /// Those of the poller; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if there is no memory for the task;
    /// [`Interrupted`](io::ErrorKind::Interrupted) if the lane is stopped first, or outlives a panic of
    /// `future`.
    ///
    /// # Panics
    /// As [`round`](Self::round).
    pub fn block_on<P, F>(&mut self, poller: &mut P, future: F) -> io::Result<F::Output>
    where
        P: Poller + ?Sized,
        F: Future + 'static,
    {
        static BLOCK_ON: TaskKind = TaskKind::new("block on");
        let output = Rc::new(Cell::new(None));
        let here = self.here();
        let slot = output.clone();
        /// Stops a lane that outlives a panic of the future, since nothing else would.
        struct Stops(Here, bool);
        impl Drop for Stops {
            fn drop(&mut self) {
                if self.1 && std::thread::panicking() {
                    self.0.stop();
                }
            }
        }
        let outlives = self.home.settings.get().outlives_panics;
        let task = here.spawn(&BLOCK_ON, Class::Normal, async move {
            let _stops = Stops(here, outlives);
            slot.set(Some(future.await));
            here.stop();
        });
        let task = task.map_err(|error: SpawnError| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        /// Aborts the task if another task panics; otherwise it would stop the lane at some later time.
        struct Abort(Here, TaskId);
        impl Drop for Abort {
            fn drop(&mut self) {
                self.0.abort(self.1);
            }
        }
        let abort = Abort(here, task);
        let outcome = self.run(poller);
        drop(abort);
        outcome?;
        output.take().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Interrupted, "the lane was stopped before the future was done")
        })
    }

    #[inline(always)]
    fn report_late_wakes(&mut self) {
        #[cfg(all(debug_assertions, not(loom)))]
        for wake in self.late_wakes() {
            (self.home.settings.get().on_late_wake)(self.id(), &wake);
        }
    }

    /// Returns the late wake-ups recorded since the last call: at most the last 16, in debug builds only
    /// (R-F9). For owners that make the rounds themselves; [`run`](Self::run) reports them.
    pub fn late_wakes(&mut self) -> Vec<LateWake> {
        #[cfg(all(debug_assertions, not(loom)))]
        // SAFETY: belongs to this lane, and the closure calls back into nothing.
        return unsafe { self.home.callers.with(crate::late::Callers::take) };
        #[cfg(not(all(debug_assertions, not(loom))))]
        Vec::new()
    }
}

impl Drop for Lane {
    /// Drops all tasks. From here on wake-ups of them are harmless, and the lane refuses tasks from others.
    fn drop(&mut self) {
        let home = self.home;
        home.local.open.set(false); // destructors of tasks cannot start new ones
        // Every task must go, even if destructors of others panic: the next owner of this home is another
        // thread.
        let mut panicked = None;
        let mut end = |task: &mut dyn FnMut()| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
                panicked.get_or_insert(panic);
            }
        };
        for slot in 0..home.local.fresh.get() {
            end(&mut || home.finish(home.entry(slot)));
        }
        for node in home.inbox.close() {
            // SAFETY: drained, so this lane owns it.
            if unsafe { node.as_ref() }.slot.get() >= Node::TASK {
                // SAFETY: the beginning of a task to which no other reference exists, and which was never
                // polled.
                end(&mut || unsafe { task::release(node.cast()) });
            } else {
                // SAFETY: the first field of a slot's remote part, which is never freed.
                let remote: &RemoteSlot = unsafe { node.cast::<RemoteSlot>().as_ref() };
                // As in `woken_from_afar`.
                remote.pending.swap(0, Ordering::AcqRel);
            }
        }
        self.empty_queues();
        home.local.current.set(std::ptr::null());
        self.publish(0, 0);
        let mut unparker = {
            let mut unpark = home.unpark.lock();
            #[cfg(not(loom))]
            home.published.thread.store(0, Ordering::Relaxed);
            unpark.take()
        };
        end(&mut || drop(unparker.take())); // outside of the lock
        home::set_current(None);
        home.published.state.store(isolate::ABSENT, Ordering::Release);
        if let Some(panic) = panicked
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Lane {
    /// Frees the slots that are still queued; none holds a task any more.
    fn empty_queues(&self) {
        let home = self.home;
        let vacate = |entry: &Entry| {
            entry.flags.set(entry.flags.get() & !bits::QUEUED);
            home.vacate(entry);
        };
        for fifo in &home.local.fifos {
            while let Some(entry) = fifo.pop() {
                vacate(entry);
            }
        }
        let first_niced = || {
            // SAFETY: belongs to this lane, and the closure calls back into nothing.
            unsafe { home.niced.with(|heap| heap.pop(&home.local.fifos[Class::Normal as usize])) }
        };
        while let Some(slot) = first_niced() {
            vacate(home.entry(slot));
        }
        home.local.niced.set(0);
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({})", self.id())
    }
}
