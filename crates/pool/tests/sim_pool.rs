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

/// A pool, and the place where its lanes meet before they measure.
struct Setup {
    pool: BytePool,
    met: AtomicU32,
}

impl Setup {
    fn new() -> Self {
        let pool = BytePool::new("buffers", 16384).expect("valid");
        Self { pool, met: AtomicU32::new(0) }
    }

    /// Returns when every lane has a slot, so that the table no longer grows.
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

/// 64 pointers in transfer from one lane to another.
struct Mailbox {
    full: AtomicBool,
    blocks: UnsafeCell<[Option<NonNull<u8>>; 64]>,
}

/// R-D2: pairs of lanes, one allocates, the other frees. Includes the transfer of 64 pointers through a
/// mailbox (9 lines, both ways).
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

/// Objects of a lane beyond the room of its cache and its surplus (64 and 192): 8 batches of 32.
#[cfg(feature = "global-pools")]
const BEYOND: usize = 256;

/// Each of `cores` lanes allocates 512 objects and frees them, again and again, so that half of them go
/// through the sources behind its surplus: other lanes' surpluses, and `lists` global lists, or with 0 the
/// allocator. Returns how many objects beyond cache and surplus all lanes turn over, in millions a second.
#[cfg(feature = "global-pools")]
fn beyond_the_surplus(cores: usize, lists: usize) -> f64 {
    let setup = || {
        let options = manylane_pool::Options::new().lane_bytes(256 * 64).global_lists(lists);
        let pool = BytePool::with("small buffers", 64, options).expect("valid");
        Setup { pool, met: AtomicU32::new(0) }
    };
    let report = on(cores, setup, |setup, worker| {
        setup.settle(worker);
        worker.measure(4, 6, |_| {
            let alloc = |_| setup.pool.alloc().expect("memory");
            drop((0..256 + BEYOND).map(alloc).collect::<Vec<PooledBytes>>());
        });
    });
    let objects = report.operations as f64 * BEYOND as f64;
    let each = report.transfers.total() as f64 / objects;
    let rate = objects / report.seconds() / 1e6;
    println!(
        "{cores} cores, global lists: {lists}: {each:.3} transfers an object, {rate:.1} M/s (simulated)"
    );
    assert!(each < 1.5, "travel is in batches: {each}\n{report}");
    let misses = report.cold_misses as f64 / objects;
    assert!(misses < 0.02, "objects and magazines are recycled, not new ones: {misses}\n{report}");
    rate
}

/// R-D2, R-D5: one list for all is slower on 96 cores than on 8; 16 lists are many times as fast there.
#[cfg(feature = "global-pools")]
#[test]
fn sixteen_global_lists_go_on_where_one_is_full() {
    let [few, many] = [8, 96].map(|cores| [0, 1, 16].map(|lists| beyond_the_surplus(cores, lists)));
    assert!(many[1] < few[1], "one list: {} M/s with 8 cores, {} with 96", few[1], many[1]);
    assert!(many[2] > few[2], "16 lists: {} M/s with 8 cores, {} with 96", few[2], many[2]);
    assert!(many[2] > 8.0 * many[1], "96 cores: {} M/s with 16 lists, {} with one", many[2], many[1]);
}

#[allow(unsafe_code)] // ownership goes through the mailbox as raw pointers
fn turn_over(pool: BytePool, blocks: *mut [Option<NonNull<u8>>; 64], allocates: bool) {
    // SAFETY: the mailbox's flag says that this lane now owns the blocks.
    for block in unsafe { &mut *blocks } {
        if allocates {
            *block = Some(pool.alloc().expect("memory").into_raw());
        } else if let Some(block) = block.take() {
            // SAFETY: `into_raw` of this pool, taken out of the mailbox once.
            unsafe { pool.free_raw(block) };
        }
    }
}
