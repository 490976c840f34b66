//! A lane from its owner's side: rounds, sleep, the loop.

use crate::busy::{Found, Looks};
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
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

/// How a lane behaves. Start from [`Config::new`] or `default()`, which suit most.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    runqueue_depth: u32,
    low_latency: bool,
    busy_poll: Duration,
    outlives_panics: bool,
    clock: fn() -> Time,
    #[cfg_attr(not(all(debug_assertions, not(loom))), allow(dead_code))] // nothing is recorded there
    on_late_wake: fn(LaneId, &LateWake),
}

/// What a lane does with a late wake-up unless it is told otherwise.
fn print_late_wake(lane: LaneId, wake: &LateWake) {
    eprintln!("{lane}: {wake}");
}

impl Config {
    /// The defaults.
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

    /// What [`Lane::run`] does in debug builds with each wake-up that came after its task had ended (R-F9),
    /// at the end of the round in which it came. By default a line on the standard error output. Release
    /// builds count such wake-ups and record nothing.
    #[must_use]
    pub const fn on_late_wake(mut self, report: fn(LaneId, &LateWake)) -> Self {
        self.on_late_wake = report;
        self
    }

    /// Tasks that a round polls at most, heavy ones apart; 0 is taken as 1. Default [`RUNQUEUE_DEPTH`]
    /// (R-F4).
    #[must_use]
    pub const fn runqueue_depth(mut self, tasks: u32) -> Self {
        self.runqueue_depth = if tasks == 0 { 1 } else { tasks };
        self
    }

    /// Urgent tasks that become ready during a round run before the next task of another class, and never
    /// more than one heavy task runs between two looks at the poller (R-F3). Costs throughput of the
    /// other classes. Default off.
    #[must_use]
    pub const fn low_latency(mut self, on: bool) -> Self {
        self.low_latency = on;
        self
    }

    /// For how long a lane that has nothing to do looks for work before it sleeps (`SO_BUSY_POLL` of a whole
    /// lane): zero is not at all, [`Duration::MAX`] that it never sleeps. What another lane sends is then
    /// seen after tens of nanoseconds, and costs that lane no system call; but the lane takes a whole
    /// processor, and where there are more such lanes than processors each waits for the others'
    /// time slices. Default zero. [`Here::set_busy_poll`] changes it later.
    #[must_use]
    pub const fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Whether [`Lane::run`] and [`Lane::block_on`] go on when a task panics, which ends that task: what is
    /// told of it is for the panic hook to say. Else they panic with it. Costs a few instructions a
    /// round. Default off.
    #[must_use]
    pub const fn outlives_panics(mut self, on: bool) -> Self {
        self.outlives_panics = on;
        self
    }

    /// The clock of [`Lane::run`] and of profiling. Default [`Time::now`].
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

/// The scheduler of the thread that made it. See the crate's page.
pub struct Lane {
    pub(crate) home: &'static Home,
    pub(crate) looks: Looks,
    not_send: PhantomData<*const ()>,
}

/// What a round did, and what is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Tasks polled.
    pub polled: u32,
    /// Wake-ups and tasks that came from other lanes.
    pub arrived: u32,
    /// Whether tasks are queued: the next round should follow without a sleep.
    pub more: bool,
    /// When timers next need a round, if any is armed.
    pub next_timer: Option<Time>,
}

impl Lane {
    /// Makes the calling thread a lane.
    ///
    /// # Errors
    /// [`LaneTaken`] when the thread has one already.
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
        let lane = Self { home, looks: Looks::new(), not_send: PhantomData };
        // What came for an earlier owner wakes nobody, but its nodes must be got back.
        home.collect();
        Ok(lane)
    }

    /// The lane's number.
    pub fn id(&self) -> LaneId {
        self.home.lane()
    }

    /// The lane, for tasks.
    #[inline]
    pub fn here(&self) -> Here {
        Here::new(self.home)
    }

    /// The lane, for others.
    pub fn remote(&self) -> Remote {
        self.here().remote()
    }

    /// One round at the time `now`, which is not before that of the last round: what other lanes sent,
    /// timers, then tasks within the budget. Waits for nothing, except while another lane is isolated
    /// ([`isolate`](crate::isolate)).
    ///
    /// # Panics
    /// When a task panics: with its panic, after it has ended. The lane may go on.
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

    /// Puts the numbers of the round where others read them.
    #[cfg(not(loom))]
    fn publish(&self, fired: u64, looked_at: u32) {
        let (local, published) = (&self.home.local, &self.home.published);
        published.counters.rounds.add(1);
        published.counters.timers.add(fired);
        published.counters.timers_moved.add(u64::from(looked_at) - fired);
        for class in Class::ALL {
            let niced = if class == Class::Normal { local.niced.get() } else { 0 };
            published.queued[class as usize].set(u64::from(local.fifos[class as usize].len() + niced));
        }
        published.live.set(self.home.live());
    }

    /// No model is about these numbers.
    #[cfg(loom)]
    fn publish(&self, _: u64, _: u32) {}

    /// Looks at the poller, and sleeps there if the round left nothing to do. Other lanes may isolate
    /// themselves meanwhile.
    ///
    /// With [`Config::busy_poll`] it looks around before it sleeps, and need not look at the poller each
    /// time.
    ///
    /// `poller` is the one whose [`unparker`](Poller::unparker) this lane was given by
    /// [`attach`](Self::attach).
    ///
    /// # Errors
    /// What the poller says.
    pub fn park<P: Poller + ?Sized>(&mut self, poller: &mut P, round: &Round) -> io::Result<()> {
        let home = self.home;
        let busy_poll = home.settings.get().busy_poll;
        if !busy_poll.is_zero()
            && !round.more
            && !home.local.stopping.get()
            && self.look_around(poller, round, busy_poll)? == Found::Work
        {
            return Ok(());
        }
        // A look first costs a load, where a push that came meanwhile makes the exchange fail.
        if round.more || home.local.stopping.get() || !home.inbox.is_empty() {
            return poller.poll(self.here(), Some(Duration::ZERO));
        }
        // Without a timer the clock is not read, and the sleep is as if it began with the round.
        let mut now = self.here().now();
        let timeout = round.next_timer.map(|at| {
            now = (home.settings.get().clock)();
            at.since(now)
        });
        if timeout == Some(Duration::ZERO) || !home.inbox.fall_asleep() {
            return poller.poll(self.here(), Some(Duration::ZERO));
        }
        /// Wakes the lane up, whatever the poller does.
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

    /// Tells other lanes how to wake this one from its sleep in `poller`. [`run`](Self::run) does so by
    /// itself.
    pub fn attach<P: Poller + ?Sized>(&mut self, poller: &P) {
        let unparker = poller.unparker();
        let before = self.home.unpark.lock().replace(unparker);
        drop(before); // outside of the lock
    }

    /// Rounds and looks at the poller in turn, until [`Here::stop`] or [`Remote::stop`].
    ///
    /// # Errors
    /// What the poller says.
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

    /// A round; none where a task panicked, and the lane outlives that.
    #[inline(always)]
    fn round_of_run(&mut self, now: Time) -> Option<Round> {
        if !self.home.settings.get().outlives_panics {
            return Some(self.round(now));
        }
        match catch_unwind(AssertUnwindSafe(|| self.round(now))) {
            Ok(round) => Some(round),
            Err(panic) => {
                // What it was told with may panic when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
                None
            }
        }
    }

    /// Runs the lane until `future` is done, and gives its output. Other tasks that are left stay where they
    /// are.
    ///
    /// # Errors
    /// What the poller says. A lane that has no memory for the task says so as an error of the kind
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory); one that is stopped first, or outlives a panic of
    /// `future`, as [`Interrupted`](io::ErrorKind::Interrupted).
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
        let place = output.clone();
        /// Else nobody would stop the lane that outlives a panic of the future.
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
            place.set(Some(future.await));
            here.stop();
        });
        let task = task.map_err(|error: SpawnError| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        /// Else a panic of another task would leave it behind, to stop the lane some time.
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

    /// The late wake-ups that were recorded since the last call; the last 16 at most, in debug builds only
    /// (R-F9). For lanes whose owner makes the rounds: [`run`](Self::run) reports them itself.
    pub fn late_wakes(&mut self) -> Vec<LateWake> {
        #[cfg(all(debug_assertions, not(loom)))]
        // SAFETY: this lane's, and nothing is called back.
        return unsafe { self.home.callers.with(crate::late::Callers::take) };
        #[cfg(not(all(debug_assertions, not(loom))))]
        Vec::new()
    }
}

impl Drop for Lane {
    /// Drops all tasks. Wake-ups of them are harmless from here on, and tasks that others send are refused.
    fn drop(&mut self) {
        let home = self.home;
        home.local.open.set(false); // destructors of tasks cannot start new ones
        // Every task has to go, whatever the destructors of others do: the next owner of this home is another
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
            // SAFETY: drained: ours.
            if unsafe { node.as_ref() }.slot.get() >= Node::TASK {
                // SAFETY: the beginning of a task that nobody else knows, and that was never polled.
                end(&mut || unsafe { task::release(node.cast()) });
            } else {
                // SAFETY: the first field of a slot's remote part; those are never freed.
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
    /// Frees the slots that are still queued; nobody lives there any more.
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
            // SAFETY: this lane's, and nothing is called back.
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
