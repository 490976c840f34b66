//! Housekeeping frees the caches of ended threads. A program of its own, since threads of other tests would
//! take the numbers of the ended lanes.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_pool::{BytePool, Options, PooledBytes};
use std::sync::atomic::{AtomicBool, Ordering};

fn conserved(pool: BytePool) {
    let report = pool.report();
    let kept: u64 = report.lanes.iter().map(|lane| lane.cached + lane.surplus).sum();
    assert_eq!((report.used, report.allocated, report.cached), (0, kept, kept), "{report}");
}

/// One test, so that its parts do not run concurrently.
#[test]
fn what_an_ended_thread_cached_is_reclaimed_and_caches_in_use_are_left_alone() {
    let pool = BytePool::new("ended", 100).expect("valid");
    let fill = move |count| {
        let blocks: Vec<PooledBytes> = (0..count).map(|_| pool.alloc().expect("memory")).collect();
        drop(blocks);
    };
    let ended = || std::thread::spawn(move || fill(100)).join().expect("no assertion failed");
    ended();
    assert_eq!(pool.report().allocated, 100);
    assert_eq!(pool.reclaim(), 100, "all that the ended thread left");
    assert_eq!(pool.report().allocated, 0);
    ended(); // on the same lane again
    conserved(pool);
    assert_eq!(pool.report().lanes.len(), 2);
    assert_eq!(pool.reclaim(), 100);

    // Threads start and end, and use the objects that they find, while another thread reclaims.
    let pool = BytePool::with("handover", 64, Options::new().lane_bytes(64 << 10)).expect("valid");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pool.reclaim();
            }
        });
        for round in 0..300u64 {
            let threads = [1, 2, 3].map(|thread| {
                scope.spawn(move || {
                    let mark = (round << 8 | thread) as u8;
                    let mut blocks: Vec<PooledBytes> =
                        (0..200).map(|_| pool.alloc().expect("memory")).collect();
                    blocks.iter_mut().for_each(|block| {
                        block.fill(mark);
                    });
                    blocks.into_iter().for_each(|mut block| {
                        #[allow(unsafe_code)] // blocks are uninitialised memory
                        // SAFETY: filled above.
                        let bytes = unsafe { block.as_uninit()[0].assume_init() };
                        assert_eq!(bytes, mark, "it has one owner");
                    });
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    conserved(pool);
}
