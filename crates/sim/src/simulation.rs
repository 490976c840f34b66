//! Running a program on the virtual machine: set-up, bodies, measured loops.

use crate::arena::{self, Arena, SETUP_HEAP};
use crate::machine::{self, Machine, Shared};
use crate::report::Report;
use crate::topology::Topology;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

/// Stack size of a virtual thread: enough for debug builds and for printing a panic; only used pages take
/// memory.
const STACK_BYTES: usize = 1 << 20;
/// Maximum number of virtual threads: lane numbers from there on belong to real threads.
const MAX_THREADS: usize = 1024;

/// Held during a simulation, since statics and the arena are shared.
static ONE: Mutex<()> = Mutex::new(());

/// A run to be started: machine, threads, seed.
///
/// ```
/// use manylane_sim::{Access, Simulation, Topology, access};
/// use std::panic::Location;
/// let report = Simulation::new(Topology::two_sockets_24x2()).threads(8).run(
///     || Box::new(0_u64),
///     |word, worker| {
///         let address = std::ptr::from_ref(&**word).addr();
///         worker.measure(100, 1_000, |_| access(address, 8, Access::Rmw, Location::caller()));
///     },
/// );
/// assert_eq!(report.operations, 8_000);
/// assert!(report.transfers_per_operation() > 0.1); // all of them fight for one line
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    topology: Topology,
    cores: Option<usize>,
    threads: Option<usize>,
    seed: u64,
    line_shift: u32,
}

impl Simulation {
    /// Creates a run on `topology`, with one thread on each of its cores, and seed 1.
    pub fn new(topology: Topology) -> Self {
        Self { topology, cores: None, threads: None, seed: 1, line_shift: 6 }
    }

    /// Uses the first `cores` cores only (see [`Topology`] for their order).
    ///
    /// # Panics
    /// If the topology has fewer cores, or for 0.
    #[must_use]
    pub fn cores(mut self, cores: usize) -> Self {
        let most = self.topology.cores();
        assert!(
            (1..=most).contains(&cores),
            "{cores} cores were asked for, but this machine ({}) has 1 to {most}: choose fewer or another \
                topology",
            self.topology
        );
        self.cores = Some(cores);
        self
    }

    /// Sets the number of threads: thread n runs on core n as long as there are cores; further threads share
    /// the cores, round robin.
    ///
    /// # Panics
    /// If it is not from 1 to 1024.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        assert!(
            (1..=MAX_THREADS).contains(&threads),
            "{threads} threads were asked for: a simulation runs 1 to {MAX_THREADS}"
        );
        self.threads = Some(threads);
        self
    }

    /// Sets the seed, which varies the starts of the cores, and transfers.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Counts pairs of lines (128 bytes) as one, which is the cost if the adjacent-line prefetcher always
    /// took both. A run that costs no more with this than without is padded well.
    #[must_use]
    pub fn pair_lines(mut self) -> Self {
        self.line_shift = 7;
        self
    }

    /// Runs `setup` outside of virtual time, then `body` on every virtual thread until all have ended.
    ///
    /// A body calls one of [`Worker`]'s measured loops, once. If none does, the whole of each body is
    /// measured as one operation.
    ///
    /// # Panics
    /// With the panic of a body. If no thread can run any more (a deadlock), with what each waits for. If
    /// called inside of a simulation.
    pub fn run<S>(&self, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
        assert!(
            machine::of_run().is_none(),
            "a simulation was started inside of another one: one runs at a time, finish the outer one first"
        );
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cores = self.cores.unwrap_or(self.topology.cores());
        let threads = self.threads.unwrap_or(cores);
        let used = cores.min(threads);
        let machine =
            RefCell::new(Machine::new(self.topology.clone(), used, threads, self.line_shift, self.seed));

        // Dropped in reverse order: coroutines, which borrow the state; the state, which lives in the arena;
        // the end.
        let _end = End(Some(Arena::begin(threads + 1)));
        machine::set_run(Some(&machine));
        arena::set_heap(SETUP_HEAP);
        arena::serve(true);
        let state = setup();
        arena::serve(false);
        let entry = |thread: usize| body(&state, &Worker { machine: &machine, thread, threads });
        let mut coroutines: Vec<_> =
            (0..threads).map(|thread| virtual_thread(&machine, thread, &entry)).collect();
        let outcome = catch_unwind(AssertUnwindSafe(|| run_all(&machine, &mut coroutines)));
        machine::set_active(None);
        arena::serve(false);
        let deadlock = machine.borrow_mut().deadlock();
        drop(coroutines); // unwinds coroutines that did not end
        arena::serve(false);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        if let Some(sentence) = deadlock {
            panic!("{sentence}");
        }
        let report = Report::new(&machine.borrow(), used, self.seed);
        drop(state);
        report
    }
}

type Thread = Coroutine<(), (), (), DefaultStack>;

fn virtual_thread(machine: &Shared, thread: usize, entry: &impl Fn(usize)) -> Thread {
    let stack =
        DefaultStack::new(STACK_BYTES).expect("the system has addresses for a stack of a virtual thread");
    let main = move |yielder: &Yielder<(), ()>, ()| {
        machine::started(machine, thread, yielder);
        arena::serve(true);
        entry(thread);
        arena::serve(false);
    };
    // SAFETY: `run` drops the coroutine before anything that `main` borrows.
    unsafe { Coroutine::with_stack_unchecked(stack, main) }
}

/// Resumes the thread on the core that is furthest behind, until none can run: rule 1 of `machine`.
fn run_all(machine: &Shared, coroutines: &mut [Thread]) {
    loop {
        let next = machine.borrow_mut().next_thread();
        let Some(thread) = next else { return };
        machine::set_active(Some((machine, thread)));
        arena::set_heap(thread + 1);
        let result = coroutines[thread].resume(());
        machine::set_active(None);
        if let CoroutineResult::Return(()) = result {
            machine.borrow_mut().ended();
        }
    }
}

/// Ends the arena, also after a panic.
struct End(Option<Box<Arena>>);

impl Drop for End {
    fn drop(&mut self) {
        arena::serve(false);
        machine::set_active(None);
        machine::set_run(None);
        if let Some(arena) = self.0.take() {
            arena.end();
        }
    }
}

/// Handle of a virtual thread for its body.
pub struct Worker<'a> {
    machine: &'a Shared,
    thread: usize,
    threads: usize,
}

impl std::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "virtual thread {} of {}", self.thread, self.threads)
    }
}

impl Worker<'_> {
    /// Returns this thread's number, from 0 on; also its lane.
    pub fn number(&self) -> usize {
        self.thread
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `operation` `warm_up` times, waits until all threads have done so, and counts `operations` more
    /// calls. The argument counts all calls from 0 on.
    ///
    /// For counts for each operation. For throughput use [`measure_for`](Self::measure_for): here a thread
    /// that is done leaves the others more room.
    ///
    /// # Panics
    /// If the thread has measured before.
    pub fn measure(&self, warm_up: u64, operations: u64, mut operation: impl FnMut(u64)) {
        for round in 0..warm_up {
            operation(round);
            machine::charge_round(self.machine);
        }
        machine::start_measuring(self.machine);
        for round in warm_up..warm_up + operations {
            operation(round);
            machine::charge_round(self.machine);
        }
        machine::stop_measuring(self.machine, operations);
    }

    /// Calls `operation` for `warm_up_ns` virtual nanoseconds, waits until all threads have done so, and
    /// counts the calls of the next `measured_ns`. The argument counts all calls from 0 on.
    ///
    /// # Panics
    /// If the thread has measured before.
    pub fn measure_for(&self, warm_up_ns: u64, measured_ns: u64, mut operation: impl FnMut(u64)) {
        let mut round = 0;
        let mut call_until = |deadline| {
            let before = round;
            while machine::now(self.machine) < deadline {
                operation(round);
                round += 1;
                machine::charge_round(self.machine);
            }
            round - before
        };
        call_until(machine::now(self.machine).saturating_add(warm_up_ns.saturating_mul(1_000)));
        machine::start_measuring(self.machine);
        let end = self.machine.borrow().started.saturating_add(measured_ns.saturating_mul(1_000));
        let operations = call_until(end);
        machine::stop_measuring(self.machine, operations);
    }
}
