//! The cases of `VALIDATION.md`: one source, run by real threads or, with `--cfg manylane_sim`, by virtual
//! ones.

use manylane_sync::atomic::{AtomicU64, Ordering, OwnedU64};
use manylane_sync::{CachePadded, LockClass, Mutex, PerLane, RwLock};
use std::hint::black_box;

static LIST: LockClass = LockClass::new("validated list", 1);
static TABLE: LockClass = LockClass::new("validated table", 2);

/// Numbers of threads of each case; the others are compared with the first.
pub(crate) const THREADS: [usize; 4] = [1, 2, 8, 32];

/// A name, and a function for the operations per second on so many cores with so many threads.
pub(crate) type Case = (&'static str, fn(usize, usize) -> f64);

/// In the order of `VALIDATION.md`.
pub(crate) const CASES: [Case; 5] = [
    ("shared atomic counter", shared_counter),
    ("per-lane counters", per_lane_counters),
    ("falsely shared counters", falsely_shared_counters),
    ("mutex-protected list", mutex_list),
    ("read-locked rwlock", read_lock),
];

fn shared_counter(cores: usize, threads: usize) -> f64 {
    run(
        cores,
        threads,
        || AtomicU64::new(0),
        |counter, _| {
            counter.fetch_add(1, Ordering::Relaxed);
        },
    )
}

fn per_lane_counters(cores: usize, threads: usize) -> f64 {
    let counters = || PerLane::<OwnedU64>::new(|_| OwnedU64::new(0));
    run(cores, threads, counters, |counters, _| counters.own().add(1))
}

fn falsely_shared_counters(cores: usize, threads: usize) -> f64 {
    let counters = move || (0..threads).map(|_| OwnedU64::new(0)).collect::<Vec<_>>();
    run(cores, threads, counters, |counters, thread| counters[thread].add(1))
}

/// A queue in one piece, so that the simulator sees every access to it.
#[derive(Default)]
struct List {
    first: usize,
    len: usize,
    values: [u64; 6],
}

impl List {
    fn push(&mut self, value: u64) {
        self.values[(self.first + self.len) % 6] = value;
        self.len += 1;
    }
    fn pop(&mut self) -> u64 {
        let value = self.values[self.first];
        self.first = (self.first + 1) % 6;
        self.len -= 1;
        value
    }
}

fn mutex_list(cores: usize, threads: usize) -> f64 {
    run(
        cores,
        threads,
        || Mutex::new(&LIST, List::default()),
        |list, _| {
            let mut guard = list.lock();
            let list = &mut *guard;
            list.push(1);
            black_box(list.pop());
        },
    )
}

fn read_lock(cores: usize, threads: usize) -> f64 {
    run(
        cores,
        threads,
        || RwLock::new(&TABLE, 1_u64),
        |table, _| {
            black_box(*table.read());
        },
    )
}

/// Returns the operations per second of `threads` threads that call `operation` for a while, on the cores
/// that the process may use. Their shared data begins on a line, so that its layout in lines does not depend
/// on the build.
#[cfg(not(manylane_sim))]
fn run<S: Sync>(
    _cores: usize,
    threads: usize,
    set_up: impl Fn() -> S,
    operation: impl Fn(&S, usize) + Sync,
) -> f64 {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    let (state, ready, stop) =
        (CachePadded::new(set_up()), Barrier::new(threads + 1), AtomicBool::new(false));
    let waits_before = reported_waits();
    let workers: Vec<(u64, Instant, Instant)> = std::thread::scope(|scope| {
        let start = |thread| {
            let (state, ready, stop, operation) = (&state, &ready, &stop, &operation);
            move || {
                operation(state, thread);
                ready.wait();
                let (started, mut done) = (Instant::now(), 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    (0..64).for_each(|_| operation(state, thread));
                    done += 64;
                }
                (done, started, Instant::now())
            }
        };
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(start(thread))).collect();
        ready.wait();
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        workers.into_iter().map(|w| w.join().expect("no case panics")).collect()
    });
    // The main thread may run late, so the clock is that of the workers.
    let started = workers.iter().map(|w| w.1).min().expect("there is a thread");
    let ended = workers.iter().map(|w| w.2).max().expect("there is a thread");
    let done = workers.iter().map(|w| w.0).sum::<u64>();
    if let (Some((times, total)), Some((times_before, total_before))) = (reported_waits(), waits_before) {
        let (times, total) = (times - times_before, total - total_before);
        let least = workers.iter().map(|w| w.0).min().expect("there is a thread");
        let most = workers.iter().map(|w| w.0).max().expect("there is a thread");
        println!(
            "real: {threads} threads, {done} operations, {times} waits of {:.0} ns on average, fairness \
                {:.2}",
            total.as_nanos() as f64 / times.max(1) as f64,
            least as f64 / most as f64
        );
    }
    done as f64 / (ended - started).as_secs_f64()
}

/// Returns the waits for the list's lock so far, and their total time; nothing unless reports are wanted.
#[cfg(not(manylane_sim))]
fn reported_waits() -> Option<(u64, std::time::Duration)> {
    std::env::var_os("MANYLANE_REPORTS")?;
    let waits = manylane_sync::lock::contention();
    let list = waits.iter().find(|c| c.class == "validated list");
    Some(list.map_or((0, std::time::Duration::ZERO), |c| (c.times, c.total)))
}

/// Returns the virtual machine that models the one of `VALIDATION.md`, or one with another number of such
/// cores.
#[cfg(manylane_sim)]
fn machine(cores: usize) -> manylane_sim::Topology {
    use manylane_sim::Topology;

    let small = Topology::small_vm();
    if cores == small.cores() {
        return small;
    }
    Topology::new(1, 1, cores, 1, *small.costs()).expect("few cores")
}

/// The same on the virtual machine.
#[cfg(manylane_sim)]
fn run<S>(cores: usize, threads: usize, set_up: impl Fn() -> S, operation: impl Fn(&S, usize)) -> f64 {
    use manylane_sim::Simulation;

    const WARM_UP_NS: u64 = 100_000;
    const MEASURED_NS: u64 = 12_000_000; // four time slices of each core
    let report = Simulation::new(machine(cores)).threads(threads).run(
        || CachePadded::new(set_up()),
        |state, worker| {
            worker.measure_for(WARM_UP_NS, MEASURED_NS, |_| operation(state, worker.number()));
        },
    );
    if std::env::var_os("MANYLANE_REPORTS").is_some() {
        println!("{report}");
    }
    report.operations_per_second()
}
