//! Budgets of this crate in line transfers on the virtual multiprocessor, and its locks in use there.
#![cfg(manylane_sim)]

use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU64, Ordering, OwnedU64};
use manylane_sync::{LaneId, LockClass, Mutex, PerLane, Published, Reader, Refs, RwLock, relax};

const CORES: [usize; 4] = [1, 8, 32, 96];

fn on<S>(cores: usize, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, body)
}

/// R-F2, R-C1: a lane's counts stay on its lines.
#[test]
fn adding_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(
            cores,
            || (PerLane::new((|_| OwnedU64::new(0)) as fn(LaneId) -> OwnedU64), AtomicU64::new(0)),
            |(lanes, arrived), worker| {
                lanes.own();
                arrived.fetch_add(1, Ordering::Relaxed);
                while arrived.load(Ordering::Relaxed) < worker.threads() as u64 {
                    relax(); // until the table has its final size and its lock is free
                }
                worker.measure(10, 1_000, |_| lanes.own().add(1));
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
        assert_eq!(report.operations, cores as u64 * 1_000);
    }
}

#[test]
fn reading_a_published_pointer_moves_no_line() {
    for cores in CORES {
        let report = on(
            cores,
            || Published::new(7u64),
            |published, worker| {
                let mut reader = Reader::new();
                worker.measure(10, 1_000, |_| {
                    assert_eq!(*published.load(&reader), 7);
                    reader.quiescent();
                });
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// The same read through a reader-writer lock: every reader writes the lock's line.
#[test]
fn reading_under_a_reader_writer_lock_moves_its_line_each_time() {
    static TABLE: LockClass = LockClass::new("table", 1);
    let report = on(
        32,
        || RwLock::new(&TABLE, 7u64),
        |lock, worker| worker.measure(10, 200, |_| assert_eq!(*lock.read(), 7)),
    );
    assert!(report.transfers_per_operation() > 1.0, "{report}");
}

#[test]
fn a_sole_holder_releases_without_moving_a_line() {
    let report = on(
        96,
        || (),
        |(), worker| {
            worker.measure(10, 200, |_| {
                let refs = Refs::new();
                assert!(refs.release());
            });
        },
    );
    assert_eq!(report.transfers.total(), 0, "{report}");
    assert_eq!(report.locked, 0, "{report}");
}

/// More threads than cores, so that holders are preempted and waiters sleep: mutual exclusion holds, and no
/// sleeper is forgotten.
#[test]
fn a_mutex_excludes_and_wakes_everybody_on_any_number_of_cores() {
    static TOTAL: LockClass = LockClass::new("total", 1);
    for (cores, threads) in [(1, 4), (2, 8), (8, 8), (96, 96)] {
        let sum = Mutex::new(&TOTAL, 0u64);
        let inside = AtomicU64::new(0);
        let report = Simulation::new(Topology::two_sockets_24x2()).cores(cores).threads(threads).run(
            || (),
            |(), worker| {
                worker.measure(0, 300, |_| {
                    let mut sum = sum.lock();
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "somebody else is inside");
                    *sum += 1;
                    inside.fetch_sub(1, Ordering::Relaxed);
                });
            },
        );
        assert_eq!(*sum.lock(), threads as u64 * 300, "{report}");
        assert!(cores == 1 || report.locks.iter().any(|l| l.class == "total"), "{report}");
    }
}

#[test]
fn a_reader_writer_lock_excludes_writers_on_any_number_of_cores() {
    static PAIR: LockClass = LockClass::new("pair", 1);
    for (cores, threads) in [(2, 8), (32, 32)] {
        let pair = RwLock::new(&PAIR, (0u64, 0u64));
        Simulation::new(Topology::two_sockets_24x2()).cores(cores).threads(threads).run(
            || (),
            |(), worker| {
                worker.measure(0, 200, |round| {
                    if (round + worker.number() as u64).is_multiple_of(8) {
                        let mut pair = pair.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    } else {
                        let pair = pair.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            },
        );
        assert_eq!(pair.read().0, threads as u64 * 200 / 8);
    }
}
