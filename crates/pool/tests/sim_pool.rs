//! Budgets in line transfers, on the virtual multiprocessor.
#![cfg(manylane_sim)]

use manylane_pool::{BytePool, PooledBytes};
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{CachePadded, relax};
use std::ptr::NonNull;

const CORES: [usize; 4] = [1, 8, 32, 96];

fn on<S>(cores: usize, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, body)
}

/// A pool, and where its lanes meet before they measure.
struct Setup {
    pool: BytePool,
    met: AtomicU32,
}

impl Setup {
    fn new() -> Self {
        let pool = BytePool::new("buffers", 16384).expect("valid");
        Self { pool, met: AtomicU32::new(0) }
    }

    /// Returns when every lane has a slot, so that the table does not grow any more.
    fn settle(&self, worker: &Worker) {
        drop(self.pool.alloc().expect("memory"));
        self.met.fetch_add(1, Ordering::AcqRel);
        while (self.met.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
    }
}

/// R-D1.
#[test]
fn allocating_and_freeing_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(cores, Setup::new, |setup, worker| {
            setup.settle(worker);
            let pool = setup.pool;
            worker.measure(10, 500, |_| drop(pool.alloc().expect("memory")));
        });
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
        assert_eq!(report.operations, cores as u64 * 500);
    }
}

/// R-D1: bursts of 64 live blocks stay within the lane's cache.
#[test]
fn a_burst_of_64_blocks_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(cores, Setup::new, |setup, worker| {
            setup.settle(worker);
            let pool = setup.pool;
            worker.measure(2, 10, |_| {
                let blocks: Vec<PooledBytes> = (0..64).map(|_| pool.alloc().expect("memory")).collect();
                drop(blocks);
            });
        });
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// 64 pointers on their way from one lane to another.
struct Mailbox {
    full: AtomicBool,
    blocks: UnsafeCell<[Option<NonNull<u8>>; 64]>,
}

/// R-D2: pairs of lanes, one allocates, the other frees. The hand-over of 64 pointers through a mailbox (9 lines, both ways)
/// is counted as well.
#[test]
fn objects_freed_on_another_lane_travel_in_batches() {
    const ROUNDS: u64 = 60;
    for cores in [2, 8, 32, 96] {
        let mailbox = |_| {
            let blocks = UnsafeCell::new([None; 64]);
            CachePadded::new(Mailbox { full: AtomicBool::new(false), blocks })
        };
        let report = on(
            cores,
            || (Setup::new(), (0..cores / 2).map(mailbox).collect::<Vec<_>>()),
            |(setup, mailboxes), worker| {
                setup.settle(worker);
                let mailbox = &mailboxes[worker.number() / 2];
                let allocates = worker.number() % 2 == 0;
                worker.measure(20, ROUNDS, |_| {
                    while mailbox.full.load(Ordering::Acquire) == allocates {
                        relax();
                    }
                    mailbox.blocks.with_mut(|blocks| turn_over(setup.pool, blocks, allocates));
                    mailbox.full.store(allocates, Ordering::Release);
                });
            },
        );
        let objects = cores as u64 / 2 * ROUNDS * 64;
        let each = report.transfers.total() as f64 / objects as f64;
        println!("{cores} cores: {each:.3} transfers an object (simulated)");
        assert!(each < 1.0, "{cores} cores: {each}\n{report}");
        let misses = report.cold_misses as f64 / objects as f64;
        assert!(misses < 0.01, "the objects are recycled, not new ones: {misses}\n{report}");
    }
}

#[allow(unsafe_code)] // ownership goes through the mailbox as raw pointers
fn turn_over(pool: BytePool, blocks: *mut [Option<NonNull<u8>>; 64], allocates: bool) {
    // SAFETY: the mailbox's flag says that the blocks are ours now.
    for block in unsafe { &mut *blocks } {
        if allocates {
            *block = Some(pool.alloc().expect("memory").into_raw());
        } else if let Some(block) = block.take() {
            // SAFETY: `into_raw` of this pool, taken out of the mailbox once.
            unsafe { pool.free_raw(block) };
        }
    }
}
