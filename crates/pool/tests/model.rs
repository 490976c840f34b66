//! Pools against a model, and with load on several lanes.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // marks are written to raw memory

use manylane_pool::{BytePool, Options, PooledBytes};
use manylane_sync::{LockClass, Mutex};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Alloc(u8),
    /// Frees the n-th live block (modulo how many there are), here or on another lane.
    Free(usize, bool),
    FreeAll,
    Reclaim,
}

/// Builds without lists ignore `lists`.
fn options(lane_bytes: usize, lists: usize) -> Options {
    let options = Options::new().lane_bytes(lane_bytes);
    #[cfg(feature = "global-pools")]
    let options = options.global_lists(lists).global_bytes(64 << 10);
    let _ = lists;
    options
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40u8).prop_map(Step::Alloc),
        6 => (any::<usize>(), proptest::bool::weighted(0.1)).prop_map(|(n, there)| Step::Free(n, there)),
        1 => Just(Step::FreeAll),
        1 => Just(Step::Reclaim),
    ]
}

/// After each step live blocks are distinct and keep their contents, and all objects from the allocator are
/// either used or cached, in the sum and over the lanes.
fn check(pool: BytePool, live: &[(PooledBytes, u8)]) {
    let addresses: BTreeSet<_> = live.iter().map(|(block, _)| block.as_ptr()).collect();
    assert_eq!(addresses.len(), live.len());
    let report = pool.report();
    assert_eq!(report.used, live.len() as u64, "{report}");
    assert_eq!(report.allocated, report.used + report.cached);
    let kept: u64 = report.lanes.iter().map(|lane| lane.cached + lane.surplus).sum();
    assert_eq!(kept + report.global, report.cached, "{report}");
}

/// Returns `usual`, unless `PROPTEST_CASES` says otherwise.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn blocks_are_distinct_and_none_is_lost(
        steps in proptest::collection::vec(step(), 1..60),
        lane_bytes in prop_oneof![Just(0usize), Just(300), 0..20_000usize],
        lists in 0..3usize,
    ) {
        const SIZE: usize = 128;
        let pool = BytePool::with("model", SIZE, options(lane_bytes, lists)).expect("valid");
        let mut live: Vec<(PooledBytes, u8)> = Vec::new();
        let intact = |block: &mut PooledBytes, mark: u8| {
            // SAFETY: filled when it was allocated.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), SIZE) };
            assert!(bytes.iter().all(|byte| *byte == mark));
        };
        for (mark, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc(count) => for _ in 0..count {
                    let mut block = pool.alloc().expect("memory");
                    block.fill(mark as u8);
                    live.push((block, mark as u8));
                },
                Step::Free(n, there) if !live.is_empty() => {
                    let (mut block, mark) = live.swap_remove(n % live.len());
                    intact(&mut block, mark);
                    if there {
                        std::thread::spawn(move || drop(block)).join().expect("no assertion failed");
                    }
                }
                Step::Free(..) => {}
                Step::FreeAll => live.drain(..).for_each(|(mut block, mark)| intact(&mut block, mark)),
                Step::Reclaim => { pool.reclaim(); }
            }
            check(pool, &live);
        }
        live.clear();
        check(pool, &live);
    }
}

/// Blocks move between lanes through a shared bag. Each contains its owner's mark, so two owners of one block
/// would be detected; at the end every block from the allocator is accounted for.
#[test]
fn blocks_that_wander_between_lanes_have_one_owner_and_none_is_lost() {
    // Not std's lock: ThreadSanitizer sees the order of this one.
    static BAG: LockClass = LockClass::new("bag", LockClass::LEAF);
    const LANES: usize = 6;
    const STEPS: usize = 20_000;
    let cases = [(0, 0), (1024, 0), (16 << 10, 0), (1 << 20, 0), (0, 1), (1024, 1), (1024, 3)];
    for (round, (lane_bytes, lists)) in cases.into_iter().enumerate() {
        let pool = BytePool::with("wander", 64, options(lane_bytes, lists)).expect("valid");
        let bag: Mutex<Vec<(PooledBytes, u64)>> = Mutex::new(&BAG, Vec::new());
        std::thread::scope(|scope| {
            for lane in 0..LANES {
                let bag = &bag;
                scope.spawn(move || {
                    let mut random = (lane + round * LANES) as u64 + 1; // the seed: the same at each run
                    for step in 0..STEPS {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        if (random >> 33).is_multiple_of(2) {
                            let mark = (lane * STEPS + step) as u64;
                            let block = pool.alloc().expect("memory");
                            // SAFETY: the block has 64 bytes, aligned to 64, and belongs to this thread.
                            unsafe { block.as_ptr().cast::<u64>().write(mark) };
                            bag.lock().push((block, mark));
                        } else {
                            let taken = {
                                let mut bag = bag.lock();
                                let len = bag.len();
                                (len > 0).then(|| bag.swap_remove((random >> 40) as usize % len))
                            };
                            if let Some((block, mark)) = taken {
                                // SAFETY: written by the lane that allocated it.
                                assert_eq!(unsafe { block.as_ptr().cast::<u64>().read() }, mark);
                            }
                        }
                    }
                });
            }
        });
        let live = std::mem::take(&mut *bag.lock());
        let report = pool.report();
        assert_eq!(report.used, live.len() as u64, "{report}");
        drop(live);
        let report = pool.report();
        let kept: u64 = report.lanes.iter().map(|lane| lane.cached + lane.surplus).sum();
        assert_eq!((report.used, report.cached), (0, kept + report.global), "{report}");
        assert_eq!(report.allocated, report.cached, "{report}");
    }
}
