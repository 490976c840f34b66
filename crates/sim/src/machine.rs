//! The virtual multiprocessor: cores with clocks, threads on them, and lines that move between them.
//!
//! # Protocol
//! 1. At each shared access the core with the smallest (clock, number) runs; [`turn`] switches to it. So
//!    accesses take effect in the order of virtual time, and the run is a function of program and seed.
//! 2. A core is in `ready` exactly once if it has a thread to run and is not the current one; an idle core is
//!    not.
//! 3. The machine is borrowed for one step at a time, never across a switch of threads: a thread releases the
//!    borrow before it suspends, and borrows again when it resumes.
//! 4. While `atomic` is set (code under a queue's lock) there is no switch.

use crate::Access;
use crate::arena::Outside;
use crate::cost::{Costs, Picoseconds};
use crate::lines::{Cores, Journey, LineId, Lines, Posted};
use crate::topology::{Distance, Topology};
use corosensei::Yielder;
use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::panic::Location;
use std::ptr;
use std::time::Duration;

pub(crate) type Shared = RefCell<Machine>;

thread_local! {
    /// The machine whose virtual thread runs on this real thread; null outside of virtual threads.
    static ACTIVE: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The machine of the simulation on this real thread, from before the set-up until after the report.
    static RUN: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The running virtual thread.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    /// Private work that the clock does not include yet.
    static PRIVATE: Cell<Picoseconds> = const { Cell::new(0) };
    /// Cost of an allocation.
    static ALLOCATION: Cell<Picoseconds> = const { Cell::new(0) };
}

/// Sets the machine of this thread's simulation; `None` at its end.
pub(crate) fn set_run(machine: Option<&Shared>) {
    RUN.set(machine.map_or(ptr::null(), ptr::from_ref));
    ALLOCATION.set(machine.map_or(0, |m| m.borrow().costs.allocate));
}

/// Records which virtual thread runs now, or that none does.
pub(crate) fn set_active(machine: Option<(&Shared, usize)>) {
    ACTIVE.set(machine.map_or(ptr::null(), |(m, _)| ptr::from_ref(m)));
    THREAD.set(machine.map_or(0, |(_, thread)| thread as u32));
}

#[inline]
pub(crate) fn is_active() -> bool {
    !ACTIVE.get().is_null()
}

#[inline]
pub(crate) fn active_thread() -> Option<u32> {
    is_active().then(|| THREAD.get())
}

/// Returns the machine of the calling virtual thread.
#[inline]
pub(crate) fn active<'a>() -> Option<&'a Shared> {
    // SAFETY: `simulation` sets it while the machine lives, and clears it before the machine ends; only this
    // thread sees it.
    unsafe { ACTIVE.get().as_ref() }
}

/// Returns the machine of the simulation that this thread sets up or runs.
pub(crate) fn of_run<'a>() -> Option<&'a Shared> {
    // SAFETY: as in `active`.
    unsafe { RUN.get().as_ref() }
}

/// Adds private work to the running thread's clock.
#[inline]
pub(crate) fn charge(work: Picoseconds) {
    PRIVATE.set(PRIVATE.get().saturating_add(work));
}

/// Charges an allocation. The allocator calls this, so it must not allocate.
pub(crate) fn charge_allocation() {
    if is_active() {
        charge(ALLOCATION.get());
    }
}

/// Counts of one thread in the measured part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transfers: [u64; 4],
    pub(crate) cold: u64,
    pub(crate) parks: u64,
    pub(crate) locked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On a core or in its queue.
    Running,
    Parked {
        key: usize,
    },
    AtStart,
    Ended,
}

pub(crate) struct Thread {
    yielder: *const Yielder<(), ()>,
    core: usize,
    state: State,
    /// Earliest start, if its core is idle.
    ready_at: Picoseconds,
    /// Result passed by the last waker.
    wake_result: bool,
    measuring: bool,
    pub(crate) measured: bool,
    pub(crate) counts: Counts,
    pub(crate) finished: Picoseconds,
    pub(crate) operations: u64,
}

/// A line for which stores in the buffer wait.
struct Pending {
    line: LineId,
    /// When its request reaches the owner.
    at: Picoseconds,
    /// When the line arrives; known from `at` on.
    arrives: Option<Picoseconds>,
    stores: u32,
}

struct Core {
    clock: Picoseconds,
    running: Option<usize>,
    queue: VecDeque<usize>,
    slice_end: Picoseconds,
    pending: VecDeque<Pending>,
    last_store: usize,
    last_store_at: Picoseconds,
    random: u64,
}

/// Waits for locks of one class.
#[derive(Clone, Debug)]
pub(crate) struct LockWait {
    pub(crate) class: &'static str,
    pub(crate) times: u64,
    pub(crate) total: Picoseconds,
}

pub(crate) struct Label {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) name: &'static str,
}

pub(crate) struct Machine {
    pub(crate) topology: Topology,
    costs: Costs,
    cores: Vec<Core>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) lines: Lines,
    /// Keys of the cores that wait for their turn.
    ready: BinaryHeap<Reverse<u64>>,
    /// The core whose turn it is.
    core: usize,
    /// The smallest key in `ready`.
    limit: u64,
    sleepers: BTreeMap<usize, VecDeque<usize>>,
    atomic: bool,
    alive: usize,
    pub(crate) started: Picoseconds,
    pub(crate) locks: Vec<LockWait>,
    pub(crate) labels: Vec<Label>,
}

/// Packs (clock, number) into one word: 256 cores, and 72 million virtual milliseconds.
fn key(clock: Picoseconds, core: usize) -> u64 {
    clock << 8 | core as u64
}

impl Machine {
    pub(crate) fn new(topology: Topology, cores: usize, threads: usize, line_shift: u32, seed: u64) -> Self {
        let costs = *topology.costs();
        let mut machine = Self {
            costs,
            cores: (0..cores)
                .map(|core| Core {
                    clock: 0,
                    running: None,
                    queue: VecDeque::new(),
                    slice_end: 0,
                    pending: VecDeque::new(),
                    last_store: usize::MAX,
                    last_store_at: 0,
                    random: mix(seed ^ mix(core as u64)),
                })
                .collect(),
            threads: (0..threads)
                .map(|thread| Thread {
                    yielder: ptr::null(),
                    core: thread % cores,
                    state: State::AtStart,
                    ready_at: 0,
                    wake_result: false,
                    measuring: true,
                    measured: false,
                    counts: Counts::default(),
                    finished: 0,
                    operations: 0,
                })
                .collect(),
            topology,
            lines: Lines::new(line_shift),
            ready: BinaryHeap::new(),
            core: 0,
            limit: u64::MAX,
            sleepers: BTreeMap::new(),
            atomic: false,
            alive: threads,
            started: 0,
            locks: Vec::new(),
            labels: Vec::new(),
        };
        machine.start_all(0);
        machine
    }

    /// Starts every waiting thread on its core at time `at`, slightly apart.
    fn start_all(&mut self, at: Picoseconds) {
        self.ready.clear();
        for (thread, it) in self.threads.iter_mut().enumerate().filter(|(_, t)| t.state == State::AtStart) {
            it.state = State::Running;
            it.core = thread % self.cores.len();
            let core = &mut self.cores[it.core];
            if core.running.is_none() {
                core.running = Some(thread);
            } else {
                core.queue.push_back(thread);
            }
        }
        for core in 0..self.cores.len() {
            let skew = self.random(core) % self.costs.other_socket;
            let quantum = self.costs.quantum;
            let it = &mut self.cores[core];
            it.clock = at + skew;
            it.slice_end = it.clock + quantum;
            it.pending.clear();
            if it.running.is_some() {
                let key = key(it.clock, core);
                self.ready.push(Reverse(key));
            }
        }
    }

    fn random(&mut self, core: usize) -> u64 {
        let state = &mut self.cores[core].random;
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(*state)
    }

    /// Returns the current core.
    fn own(&mut self) -> &mut Core {
        &mut self.cores[self.core]
    }

    fn thread(&self) -> usize {
        self.cores[self.core].running.expect("code runs on a core only as its running thread")
    }

    // -- scheduling
    // ------------------------------------------------------------------------------------------

    /// Returns the thread to run next: that of the core that is furthest behind. `None`: all cores are idle.
    pub(crate) fn next_thread(&mut self) -> Option<usize> {
        let Reverse(next) = self.ready.pop()?;
        self.core = (next & 0xFF) as usize;
        self.limit = self.ready.peek().map_or(u64::MAX, |r| r.0);
        self.cores[self.core].running
    }

    fn make_core_ready(&mut self, core: usize) {
        let key = key(self.cores[core].clock, core);
        self.ready.push(Reverse(key));
        self.limit = self.limit.min(key);
    }

    /// Returns true if the running thread may go on; otherwise it must suspend, and its core waits for its
    /// turn.
    fn goes_on(&mut self) -> bool {
        let private = PRIVATE.take();
        let core = self.core;
        let it = self.own();
        it.clock += private;
        if self.atomic {
            return true;
        }
        let it = self.own();
        let preempted = it.clock >= it.slice_end && !it.queue.is_empty();
        if !preempted && key(self.cores[core].clock, core) < self.limit {
            return true;
        }
        if std::thread::panicking() {
            return true; // destructors of a panic run to the end; the simulation is over
        }
        if preempted {
            self.rotate();
        }
        self.make_core_ready(core);
        false
    }

    /// Moves the running thread to the end of its core's queue, which is not empty.
    fn rotate(&mut self) {
        let thread = self.thread();
        self.own().queue.push_back(thread);
        self.own().running = None;
        self.run_next(self.core);
    }

    /// Gives `core`, which runs nothing, the next thread: its own, or one that waits elsewhere. Returns true
    /// if there is one.
    fn run_next(&mut self, core: usize) -> bool {
        let own = self.cores[core].queue.pop_front();
        let Some(thread) = own.or_else(|| self.steal()) else { return false };
        let ready_at = self.threads[thread].ready_at;
        self.threads[thread].core = core;
        let (switch, quantum) = (self.costs.context_switch, self.costs.quantum);
        let it = &mut self.cores[core];
        it.clock = (it.clock + switch).max(ready_at);
        it.slice_end = it.clock + quantum;
        it.running = Some(thread);
        true
    }

    /// Takes a thread from the core with the longest queue.
    fn steal(&mut self) -> Option<usize> {
        let victim = self.cores.iter_mut().max_by_key(|core| core.queue.len())?;
        victim.queue.pop_front()
    }

    /// Stops the running thread; its core takes another one or becomes idle.
    fn leave(&mut self) {
        let core = self.core;
        self.own().running = None;
        if self.run_next(core) {
            self.make_core_ready(core);
        }
    }

    /// Makes `thread` runnable from `at` on, or `latency` later on an idle core.
    fn wake(&mut self, thread: usize, at: Picoseconds) {
        let latency = self.costs.wake_latency;
        self.threads[thread].state = State::Running;
        let home = self.threads[thread].core;
        let idle = |core: &Core| core.running.is_none();
        let core = if idle(&self.cores[home]) { Some(home) } else { self.cores.iter().position(idle) };
        let Some(core) = core else {
            self.threads[thread].ready_at = at;
            self.cores[home].queue.push_back(thread);
            return;
        };
        let quantum = self.costs.quantum;
        let it = &mut self.cores[core];
        it.clock = it.clock.max(at + latency);
        it.slice_end = it.clock + quantum;
        it.running = Some(thread);
        self.threads[thread].core = core;
        self.make_core_ready(core);
    }

    /// Ends the running thread, whose body has returned.
    pub(crate) fn ended(&mut self) {
        let thread = self.thread();
        self.own().clock += PRIVATE.take();
        let clock = self.own().clock;
        let it = &mut self.threads[thread];
        it.state = State::Ended;
        if it.measuring && !it.measured {
            it.finished = clock;
            it.operations = 1;
        }
        it.measuring = false;
        self.alive -= 1;
        self.leave();
        self.start_measuring_if_all_are_there();
    }

    fn start_measuring_if_all_are_there(&mut self) {
        let waiting = self.threads.iter().filter(|t| t.state == State::AtStart).count();
        if waiting == 0 || waiting != self.alive {
            return;
        }
        self.settle_all();
        let now = self.cores.iter().map(|core| core.clock).max().unwrap_or(0);
        self.started = now + self.costs.other_socket; // no core starts before this
        self.lines.reset_counts();
        self.locks.clear();
        for thread in &mut self.threads {
            thread.counts = Counts::default();
            thread.operations = 0;
            thread.measuring = thread.state == State::AtStart;
            thread.measured |= thread.measuring;
        }
        self.start_all(self.started);
        self.limit = self.ready.peek().map_or(u64::MAX, |r| r.0);
    }

    /// Describes what each thread waits for when none can run any more. `None`: every thread has ended.
    pub(crate) fn deadlock(&mut self) -> Option<String> {
        let mut waits = Vec::new();
        for thread in 0..self.threads.len() {
            match self.threads[thread].state {
                State::Parked { key } => {
                    let name = self.name_of(key).unwrap_or_else(|| "an unnamed lock".to_owned());
                    waits.push(format!("thread {thread} for {name}"));
                }
                State::AtStart => waits.push(format!("thread {thread} for the others to finish warming up")),
                State::Running | State::Ended => {}
            }
        }
        if waits.is_empty() {
            return None;
        }
        Some(format!(
            "deadlock on the virtual machine: no thread can run and {} wait: {}",
            waits.len(),
            waits.join(", ")
        ))
    }

    /// Returns the label at `address`, or otherwise where threads first contended for it.
    fn name_of(&mut self, address: usize) -> Option<String> {
        if let Some(label) =
            self.labels.iter().rev().find(|l| (l.address..l.address + l.bytes).contains(&address))
        {
            return Some(format!("`{}`", label.name));
        }
        let line = self.lines.find(address);
        self.lines.get(line).site.map(|site| format!("the lock taken at {}:{}", site.file(), site.line()))
    }

    // -- lines
    // -----------------------------------------------------------------------------------------------

    /// Returns the nearest holder of `line` other than the current core; `None`: memory.
    fn source(&mut self, line: LineId, core: usize) -> Option<(Distance, usize)> {
        let holders = self.lines.get(line).holders;
        holders.iter().filter(|&h| h != core).map(|h| (self.topology.distance(core, h), h)).min()
    }

    /// Returns the distance of the request of `core` for `line`: for a writer that to the farthest copy,
    /// which its holder must give up.
    fn reach(&mut self, line: LineId, core: usize, write: bool) -> Option<Distance> {
        let holders = self.lines.get(line).holders;
        if holders.is_empty() {
            return None;
        }
        if !write {
            return self.source(line, core).map(|(distance, _)| distance);
        }
        holders.iter().filter(|&h| h != core).map(|h| self.topology.distance(core, h)).max()
    }

    fn request_time(&self, latency: Picoseconds) -> Picoseconds {
        latency * self.costs.request_percent / 100
    }

    /// Returns a transfer's cost, varied by the seed.
    fn varied(&mut self, core: usize, latency: Picoseconds) -> Picoseconds {
        let span = latency / 8;
        latency - span / 2 + self.random(core) % (span + 1)
    }

    /// Decides when the line moves: the request of `core` for `line` has reached its holders, at `now`.
    ///
    /// A line in transit moves on only after it has arrived and the next request has reached its new holder,
    /// which uses it meanwhile. Requests are served in the order of arrival.
    fn decide(&mut self, line: LineId, core: usize, now: Picoseconds, write: bool) -> Journey {
        let reach = self.reach(line, core, write);
        let it = self.lines.get(line);
        let (in_transit, shared, goes_to) = (it.arrives > now, it.goes_shared, it.goes_to);
        let arrived = it.arrives;
        let distance = if in_transit { Some(self.topology.distance(core, goes_to)) } else { reach };
        let latency = self.topology.latency(distance);
        let request = self.request_time(latency);
        let leaves = match in_transit {
            false => now,
            true if shared && !write => arrived, // copies are made at the same time
            // Never longer than within a complex: a far owner gets no more time than a near one.
            true => arrived + request.min(self.request_time(self.costs.same_complex)),
        };
        let arrives = leaves + self.varied(core, latency - request);
        let it = self.lines.get(line);
        if write || !shared || distance.is_none() {
            it.arrives = arrives;
            it.goes_to = core;
            it.goes_shared = !write && distance.is_some();
        }
        Journey { leaves, arrives, distance }
    }

    /// Moves the line to `core`. Returns the time of arrival.
    fn travel(
        &mut self,
        line: LineId,
        core: usize,
        write: bool,
        journey: Journey,
        counted: Option<usize>,
        site: &'static Location<'static>,
    ) -> Picoseconds {
        let it = self.lines.get(line);
        if write {
            it.holders = Cores::only(core);
            it.owned = true;
        } else {
            it.owned = it.holders.is_empty(); // alone: exclusive
            it.holders.insert(core);
        }
        if let Some(thread) = counted {
            let counts = &mut self.threads[thread].counts;
            match journey.distance {
                None => counts.cold += 1,
                Some(distance) => {
                    counts.transfers[distance as usize] += 1;
                    it.transfers += 1;
                    it.site.get_or_insert(site);
                }
            }
        }
        // A locked instruction that has begun completes first.
        journey.arrives + it.locked_until.saturating_sub(journey.leaves)
    }

    /// Gives `line` to the posted stores whose turn has come by `now`.
    #[inline]
    fn settle(&mut self, line: LineId, now: Picoseconds) {
        if !self.lines.get(line).posted.is_empty() {
            self.settle_posted(line, now);
        }
    }

    fn settle_posted(&mut self, line: LineId, now: Picoseconds) {
        for index in 0..self.lines.get(line).posted.len() {
            let posted = self.lines.get(line).posted[index];
            if posted.at > now {
                break;
            }
            if posted.journey.is_some() {
                continue;
            }
            let journey = self.decide(line, posted.core, posted.at, true);
            self.lines.get(line).posted[index].journey = Some(journey);
            let pending = self.cores[posted.core].pending.iter_mut();
            for it in pending.filter(|p| p.line == line && p.arrives.is_none()) {
                it.arrives = Some(journey.arrives);
            }
        }
        while let Some(&posted) = self.lines.get(line).posted.first()
            && let Some(journey) = posted.journey
            && journey.leaves <= now
        {
            self.lines.get(line).posted.remove(0);
            self.travel(line, posted.core, true, journey, posted.thread, posted.site);
        }
    }

    fn settle_all(&mut self) {
        for line in 0..self.lines.count() {
            self.settle(line, Picoseconds::MAX);
        }
    }

    /// Removes the completed stores from the current core's buffer.
    fn retire(&mut self) {
        let now = self.own().clock;
        while let Some(first) = self.own().pending.front() {
            let (line, at) = (first.line, first.at);
            if at <= now {
                self.settle(line, now);
            }
            match self.own().pending.front() {
                Some(first) if first.arrives.is_some_and(|a| a <= now) => self.own().pending.pop_front(),
                _ => return,
            };
        }
    }

    /// Returns until when the current core must wait for progress of its oldest buffered store.
    fn wait_for_oldest_store(&mut self) -> Option<Picoseconds> {
        self.retire();
        self.own().pending.front().map(|first| first.arrives.unwrap_or(first.at))
    }

    /// Returns true if the current core's buffer has room for a store, on one more line if `new_line`.
    fn has_room(&mut self, new_line: bool) -> bool {
        let (stores, lines) = (self.costs.store_buffer, self.costs.fill_buffers);
        let pending = &self.own().pending;
        pending.iter().map(|p| p.stores).sum::<u32>() < stores && !(new_line && pending.len() >= lines)
    }

    /// Completes the access without a transfer if the core can, and charges it.
    fn hit(&mut self, line: LineId, address: usize, kind: Access) -> bool {
        let now = self.own().clock;
        let core = self.core;
        self.settle(line, now);
        let waits_for_line =
            !self.own().pending.is_empty() && self.own().pending.iter().any(|p| p.line == line);
        let state = self.lines.get(line);
        let (held, owned) = (state.holders.has(core), state.is_owned_by(core));
        match kind {
            Access::Load => {
                let forwarded = waits_for_line || {
                    let residence = self.costs.store_residence;
                    let it = self.own();
                    it.last_store == address && now <= it.last_store_at + residence
                };
                let hit = held || forwarded;
                if hit {
                    self.own().clock += self.costs.load;
                }
                hit
            }
            Access::Store => {
                let hit = owned || waits_for_line;
                if hit {
                    if let Some(newest) = self.own().pending.back_mut() {
                        newest.stores += 1;
                    }
                    self.stored(address);
                }
                hit
            }
            Access::Rmw => {
                if owned {
                    let done = now + self.costs.locked;
                    self.own().clock = done;
                    let state = self.lines.get(line);
                    state.locked_until = state.locked_until.max(done);
                }
                owned
            }
        }
    }

    fn stored(&mut self, address: usize) {
        let cost = self.costs.store;
        let it = self.own();
        it.clock += cost;
        it.last_store = address;
        it.last_store_at = it.clock;
    }

    fn counted(&self) -> Option<usize> {
        let thread = self.thread();
        self.threads[thread].measuring.then_some(thread)
    }

    /// Posts a store that misses: its request leaves, and the core goes on.
    fn post(&mut self, line: LineId, address: usize, site: &'static Location<'static>) {
        let core = self.core;
        let reach = self.reach(line, core, true);
        let at = self.own().clock + self.request_time(self.topology.latency(reach));
        let posted = Posted { at, core, thread: self.counted(), site, journey: None };
        let queue = &mut self.lines.get(line).posted;
        let index = queue.partition_point(|p| (p.at, p.core) <= (at, core));
        queue.insert(index, posted);
        self.own().pending.push_back(Pending { line, at, arrives: None, stores: 1 });
        self.stored(address);
    }

    /// Sends the request of a load or locked instruction that misses.
    fn request(&mut self, line: LineId, kind: Access) {
        let reach = self.reach(line, self.core, kind != Access::Load);
        let request = self.request_time(self.topology.latency(reach));
        self.own().clock += request;
    }

    /// Handles the arrival of the request: decides when the line leaves, and waits for that.
    fn queue_up(&mut self, line: LineId, kind: Access) -> Journey {
        let (core, now) = (self.core, self.own().clock);
        self.settle(line, now);
        let journey = self.decide(line, core, now, kind == Access::Rmw);
        self.own().clock = journey.leaves;
        journey
    }

    /// Moves the line to the current core, which goes on when it arrives.
    fn answer(&mut self, line: LineId, kind: Access, journey: Journey, site: &'static Location<'static>) {
        let (core, now) = (self.core, self.own().clock);
        self.settle(line, now);
        let counted = self.counted();
        let locked = kind == Access::Rmw;
        let arrived = self.travel(line, core, locked, journey, counted, site);
        self.own().clock = arrived + if locked { self.costs.locked } else { self.costs.load };
        if locked {
            let clock = self.own().clock;
            self.lines.get(line).locked_until = clock;
        }
    }

    fn count_locked(&mut self) {
        if let Some(thread) = self.counted() {
            self.threads[thread].counts.locked += 1;
        }
    }

    fn count_park(&mut self) {
        if let Some(thread) = self.counted() {
            self.threads[thread].counts.parks += 1;
        }
    }
}

/// The finaliser of splitmix64 (S. Vigna).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

// -- what a running thread does
// ------------------------------------------------------------------------------

type Borrow<'a> = RefMut<'a, Machine>;

/// Releases the core until the scheduler resumes this thread.
fn suspend<'a>(shared: &'a Shared, machine: Borrow<'a>) -> Borrow<'a> {
    let yielder = machine.threads[THREAD.get() as usize].yielder;
    drop(machine); // rule 3
    // SAFETY: this very thread set it in `started`; it lives further down on this thread's stack.
    unsafe { (*yielder).suspend(()) };
    shared.borrow_mut()
}

/// Returns when it is this thread's turn (rule 1).
#[inline]
fn turn<'a>(shared: &'a Shared, mut machine: Borrow<'a>) -> Borrow<'a> {
    if machine.goes_on() { machine } else { suspend(shared, machine) }
}

/// Registers a new virtual thread, as its first action.
pub(crate) fn started(shared: &Shared, thread: usize, yielder: &Yielder<(), ()>) {
    shared.borrow_mut().threads[thread].yielder = yielder;
}

/// Waits until `at`, while other threads run.
fn wait_until<'a>(shared: &'a Shared, mut machine: Borrow<'a>, at: Picoseconds) -> Borrow<'a> {
    let clock = machine.own().clock.max(at);
    machine.own().clock = clock;
    turn(shared, machine)
}

/// Drains the store buffer.
fn drain<'a>(shared: &'a Shared, mut machine: Borrow<'a>) -> Borrow<'a> {
    if machine.own().pending.is_empty() {
        return machine;
    }
    while let Some(at) = machine.wait_for_oldest_store() {
        machine = wait_until(shared, machine, at);
    }
    machine
}

pub(crate) fn access(
    shared: &Shared,
    address: usize,
    bytes: usize,
    kind: Access,
    site: &'static Location<'static>,
) {
    let _outside = Outside::enter();
    let mut machine = shared.borrow_mut();
    if kind == Access::Rmw {
        machine.count_locked();
    }
    let spanned = machine.lines.spanned(address, bytes);
    for (nth, start) in spanned.enumerate() {
        let first_byte = if nth == 0 { address } else { start };
        machine = access_line(shared, machine, first_byte, kind, site);
    }
}

#[inline]
fn access_line<'a>(
    shared: &'a Shared,
    machine: Borrow<'a>,
    address: usize,
    kind: Access,
    site: &'static Location<'static>,
) -> Borrow<'a> {
    let mut machine = turn(shared, machine);
    let line = machine.lines.find(address);
    if !machine.own().pending.is_empty() {
        machine = make_room(shared, machine, kind, line);
    }
    if machine.hit(line, address, kind) {
        return machine;
    }
    if kind == Access::Store {
        machine.post(line, address, site);
        return machine;
    }
    machine.request(line, kind);
    machine = turn(shared, machine);
    let journey = machine.queue_up(line, kind);
    machine = turn(shared, machine);
    machine.answer(line, kind, journey, site);
    machine
}

/// Makes room in the store buffer: a locked instruction waits for all stores, a store for a free entry.
#[cold]
fn make_room<'a>(shared: &'a Shared, mut machine: Borrow<'a>, kind: Access, line: LineId) -> Borrow<'a> {
    match kind {
        Access::Load => {
            machine.retire();
            machine
        }
        Access::Rmw => drain(shared, machine),
        Access::Store => loop {
            let Some(at) = machine.wait_for_oldest_store() else { return machine };
            let core = machine.core;
            let new_line = !machine.lines.get(line).is_owned_by(core)
                && machine.own().pending.iter().all(|p| p.line != line);
            if machine.has_room(new_line) {
                return machine;
            }
            machine = wait_until(shared, machine, at);
        },
    }
}

pub(crate) fn full_fence(shared: &Shared) {
    let _outside = Outside::enter();
    let machine = turn(shared, shared.borrow_mut());
    let mut machine = drain(shared, machine);
    machine.count_locked();
    let cost = machine.costs.fence;
    machine.own().clock += cost;
}

pub(crate) fn pause(shared: &Shared) {
    charge(shared.borrow().costs.pause);
}

pub(crate) fn charge_round(shared: &Shared) {
    charge(shared.borrow().costs.round);
}

pub(crate) fn yield_now(shared: &Shared) {
    let _outside = Outside::enter();
    charge(shared.borrow().costs.yield_call);
    let mut machine = turn(shared, shared.borrow_mut());
    if machine.own().queue.is_empty() || machine.atomic {
        return;
    }
    machine.rotate();
    let core = machine.core;
    machine.make_core_ready(core);
    drop(suspend(shared, machine));
}

pub(crate) fn now(shared: &Shared) -> Picoseconds {
    let machine = shared.borrow();
    machine.cores[machine.core].clock + PRIVATE.get()
}

/// Runs `f`, which may access memory, without a switch of threads (rule 4).
fn atomically<'a, R>(shared: &'a Shared, mut machine: Borrow<'a>, f: impl FnOnce() -> R) -> (Borrow<'a>, R) {
    struct Reset<'a>(&'a Shared);
    impl Drop for Reset<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().atomic = false;
        }
    }
    machine.atomic = true;
    drop(machine);
    let reset = Reset(shared);
    let result = f();
    drop(reset);
    (shared.borrow_mut(), result)
}

pub(crate) fn park(shared: &Shared, key: usize, validate: impl FnOnce() -> bool) -> bool {
    let _outside = Outside::enter();
    let machine = turn(shared, shared.borrow_mut());
    let (mut machine, sleeps) = atomically(shared, machine, validate);
    if !sleeps {
        return false;
    }
    machine.count_park();
    let thread = machine.thread();
    machine.sleepers.entry(key).or_default().push_back(thread);
    machine.threads[thread].state = State::Parked { key };
    let cost = machine.costs.sleep_call;
    machine.own().clock += cost + PRIVATE.take();
    machine.leave();
    let machine = suspend(shared, machine);
    machine.threads[thread].wake_result
}

pub(crate) fn unpark_one(shared: &Shared, key: usize, leave: impl FnOnce(bool, bool) -> bool) {
    let _outside = Outside::enter();
    let mut machine = turn(shared, shared.borrow_mut());
    let (woken, more) = match machine.sleepers.get_mut(&key) {
        Some(queue) => (queue.pop_front(), !queue.is_empty()),
        None => (None, false),
    };
    if !more {
        machine.sleepers.remove(&key);
    }
    let (mut machine, result) = atomically(shared, machine, || leave(woken.is_some(), more));
    if let Some(thread) = woken {
        let cost = machine.costs.wake_call;
        let it = machine.own();
        it.clock += cost + PRIVATE.take();
        let at = it.clock;
        machine.threads[thread].wake_result = result;
        machine.wake(thread, at);
    }
}

/// Waits until every thread has called this or ended; then measuring begins.
pub(crate) fn start_measuring(shared: &Shared) {
    let _outside = Outside::enter();
    let machine = turn(shared, shared.borrow_mut());
    let mut machine = drain(shared, machine);
    let thread = machine.thread();
    assert!(
        !machine.threads[thread].measured,
        "thread {thread} measures a second time: a body has one measured loop"
    );
    machine.threads[thread].state = State::AtStart;
    machine.leave();
    machine.start_measuring_if_all_are_there();
    drop(suspend(shared, machine));
}

/// Ends the running thread's measured part.
pub(crate) fn stop_measuring(shared: &Shared, operations: u64) {
    let _outside = Outside::enter();
    let machine = turn(shared, shared.borrow_mut());
    let mut machine = drain(shared, machine);
    let thread = machine.thread();
    let finished = machine.own().clock;
    let it = &mut machine.threads[thread];
    it.measuring = false;
    it.operations = operations;
    it.finished = finished;
}

pub(crate) fn count_lock_wait(shared: &Shared, class: &'static str, waited: Duration) {
    let _outside = Outside::enter();
    let mut machine = shared.borrow_mut();
    if machine.counted().is_none() {
        return;
    }
    let total = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000);
    match machine.locks.iter_mut().find(|l| l.class == class) {
        Some(lock) => {
            lock.times += 1;
            lock.total += total;
        }
        None => machine.locks.push(LockWait { class, times: 1, total }),
    }
}

pub(crate) fn label(shared: &Shared, address: usize, bytes: usize, name: &'static str) {
    let _outside = Outside::enter();
    shared.borrow_mut().labels.push(Label { address, bytes: bytes.max(1), name });
}
