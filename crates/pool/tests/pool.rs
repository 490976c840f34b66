//! Behaviour of pools on real threads.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // some tests are about raw ownership and use after free

use manylane_pool::{
    BytePool, Cause, MAX_OBJECT_BYTES, Options, Pool, PoolError, PooledBytes, inject, report, trim,
};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;

/// Bad input results in an error with a sentence.
#[test]
fn a_pool_that_cannot_be_is_refused_with_a_sentence() {
    let refused = |size, options| BytePool::with("bad", size, options).expect_err("refused").to_string();
    assert_eq!(
        refused(0, Options::new()),
        "pool `bad` cannot have objects of 0 bytes; give the size of an object"
    );
    assert_eq!(
        refused(MAX_OBJECT_BYTES + 1, Options::new()),
        "pool `bad` cannot have objects of 1073741825 bytes; the most is 1073741824"
    );
    assert_eq!(
        refused(usize::MAX, Options::new()),
        format!("pool `bad` cannot have objects of {} bytes; the most is 1073741824", usize::MAX)
    );
    for align in [0, 3, 8192] {
        assert_eq!(
            refused(10, Options::new().align(align)),
            format!("pool `bad` cannot align objects to {align} bytes; give a power of two up to 4096")
        );
    }
    assert_eq!(
        refused(10, Options::new().limit(0)),
        "pool `bad` cannot be limited to 0 objects; leave the limit out or raise it"
    );
    #[cfg(feature = "global-pools")]
    assert_eq!(
        refused(10, Options::new().global_lists(usize::MAX)),
        format!("pool `bad` cannot have {} global lists; the most is 4096, one for each lane", usize::MAX)
    );
    assert!(matches!(
        Pool::<[u8; MAX_OBJECT_BYTES + 1]>::new("bad"),
        Err(PoolError::TooLarge { size, .. }) if size == MAX_OBJECT_BYTES + 1
    ));
}

/// R-D1: a lane's next allocation is the object that it freed last, without the allocator.
#[test]
fn a_lane_gets_back_what_it_freed_last_first() {
    let pool = BytePool::new("lifo", 1000).expect("valid");
    let blocks: Vec<PooledBytes> = (0..10).map(|_| pool.alloc().expect("memory")).collect();
    let mut addresses: Vec<usize> = blocks.iter().map(|b| b.as_ptr().addr()).collect();
    assert!(addresses.iter().all(|a| a % 64 == 0), "aligned to 64");
    drop(blocks);
    let again: Vec<PooledBytes> = (0..10).map(|_| pool.alloc().expect("memory")).collect();
    addresses.reverse();
    assert_eq!(again.iter().map(|b| b.as_ptr().addr()).collect::<Vec<_>>(), addresses);
    assert_eq!(pool.report().allocated, 10);
}

/// R-D1: the lane keeps all of 64 buffers of 16 KiB that it frees at once.
#[test]
fn by_default_64_buffers_of_16_kib_are_recycled_without_the_allocator() {
    let pool = BytePool::new("64 buffers", 16384).expect("valid");
    for _ in 0..3 {
        let blocks: Vec<PooledBytes> = (0..64).map(|_| pool.alloc().expect("memory")).collect();
        drop(blocks);
        let report = pool.report();
        assert_eq!((report.allocated, report.used, report.cached), (64, 0, 64));
        assert_eq!(report.lanes[0].cached, 64, "in the cache itself");
    }
}

#[test]
fn a_lane_keeps_no_more_bytes_than_its_bound_and_gives_the_coldest_to_the_allocator() {
    let pool = BytePool::with("bound", 1024, Options::new().lane_bytes(64 << 10)).expect("valid");
    let blocks: Vec<PooledBytes> = (0..500).map(|_| pool.alloc().expect("memory")).collect();
    let last: BTreeSet<usize> = blocks[480..].iter().map(|b| b.as_ptr().addr()).collect();
    drop(blocks);
    let report = pool.report();
    assert_eq!(report.used, 0);
    assert!((33..=64).contains(&report.cached), "{report}");
    assert_eq!(report.lanes[0].cached + report.lanes[0].surplus, report.cached, "{report}");
    let warm: Vec<PooledBytes> = (0..20).map(|_| pool.alloc().expect("memory")).collect();
    assert_eq!(warm.iter().map(|b| b.as_ptr().addr()).collect::<BTreeSet<_>>(), last);
}

#[test]
fn a_pool_without_room_keeps_the_one_object_that_was_freed_last() {
    let pool = BytePool::with("no room", 4096, Options::new().lane_bytes(0)).expect("valid");
    for _ in 0..10 {
        let last = pool.alloc().expect("memory");
        let address = last.as_ptr();
        drop(pool.alloc().expect("memory"));
        drop(last);
        assert_eq!(pool.report().allocated, 1);
        assert_eq!(pool.alloc().expect("memory").as_ptr(), address);
    }
    assert_eq!(pool.reclaim(), 1);
}

/// Objects freed on one lane return to the allocating lane, which does not use the allocator again.
#[test]
fn what_one_lane_frees_another_recycles() {
    let pool = BytePool::with("across", 256, Options::new()).expect("valid");
    let (send, receive) = mpsc::sync_channel::<PooledBytes>(16);
    std::thread::scope(|scope| {
        let freeing = scope.spawn(move || receive.iter().map(drop).count());
        for _ in 0..200_000 {
            send.send(pool.alloc().expect("memory")).expect("the other lane listens");
        }
        drop(send);
        assert_eq!(freeing.join().expect("no assertion failed"), 200_000);
    });
    let report = pool.report();
    assert_eq!((report.used, report.failed), (0, 0));
    assert!(report.allocated < 6000, "a few thousand fill the caches and surpluses: {report}");
    // R-C2: a lane frees objects of another lane, and the sum is right.
    let allocs: Vec<u64> = report.lanes.iter().map(|l| l.allocs).collect();
    let frees: Vec<u64> = report.lanes.iter().map(|l| l.frees).collect();
    assert_ne!(allocs, frees);
    assert_eq!((allocs.iter().sum::<u64>(), frees.iter().sum::<u64>()), (200_000, 200_000));
}

/// Trimming frees unused objects, half by half, and nothing while the lane needs more.
#[test]
fn a_lane_that_trims_keeps_what_it_uses() {
    let pool = BytePool::with("trimmed", 4096, Options::new()).expect("valid");
    let burst = |count: usize| {
        let all: Vec<PooledBytes> = (0..count).map(|_| pool.alloc().expect("memory")).collect();
        assert_eq!(all.len(), count);
    };
    burst(1000);
    let kept = pool.report().allocated;
    assert!(kept >= 800, "{kept}: a cache and a surplus");
    trim(); // the burst came after the previous call
    assert_eq!(pool.report().allocated, kept);
    for _ in 0..12 {
        trim();
    }
    let left = pool.report().allocated;
    assert!(left <= 100, "{left} are left of {kept}");
    for _ in 0..100 {
        burst(20); // as often as it may use what is left
        trim();
    }
    let left = pool.report().allocated;
    assert!(left >= 20, "{left} are left of 20 that are in use");
    for _ in 0..12 {
        trim();
    }
    assert_eq!(pool.report().allocated, 1, "one object, since others would keep pages of the allocator");
    for more in 1..4 {
        burst(more * 200); // more than there are
        let kept = pool.report().allocated;
        trim();
        assert_eq!(pool.report().allocated, kept);
    }
}

/// R-C2: pools are memory types, too.
#[test]
fn a_pool_is_in_the_reports() {
    let pool = Pool::<[u64; 4]>::with("reported", Options::new().limit(3)).expect("valid");
    let kept = pool.alloc([1; 4]).expect("memory");
    drop(pool.alloc([2; 4]).expect("memory"));
    let text = report().into_iter().find(|p| p.name == "reported").expect("registered").to_string();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("  - Pool reported (32 bytes) : 2 allocated (64 bytes), 1 used (1 cached), 0 failures, limit 3")
    );
    let lane = lines.next().expect("one lane");
    assert!(lane.ends_with(": 2 allocs, 1 frees, 1 cached, 0 surplus, 0 failures"), "{lane}");
    let memory = manylane_stats::report_mem().into_iter().find(|m| m.name == "reported").expect("registered");
    assert_eq!((memory.sum.live(), memory.sum.live_bytes(), memory.sum.size_classes), (1, 32, 1 << 5));
    drop(kept);
}

#[test]
fn a_limit_holds_and_the_failure_says_so() {
    let pool = BytePool::with("limited", 100, Options::new().limit(2)).expect("valid");
    let (first, second) = (pool.alloc().expect("memory"), pool.alloc().expect("memory"));
    let error = pool.alloc().expect_err("the limit is reached");
    assert_eq!((error.cause(), error.pool()), (Cause::Limit, "limited"));
    assert_eq!(error.to_string(), "pool `limited`: its limit of objects is reached");
    drop(first);
    assert!(pool.alloc().is_ok());
    drop(second);
    assert_eq!((pool.report().failed, pool.report().limit), (1, Some(2)));
    assert_eq!(pool.reclaim(), 2);
    assert_eq!(pool.report().allocated, 0);
    let _more = (pool.alloc().expect("memory"), pool.alloc().expect("memory"));
}

#[test]
fn failures_are_injected_on_every_nth_call_of_this_thread_only() {
    let pool = BytePool::new("injected", 100).expect("valid");
    drop(pool.alloc().expect("memory")); // the cache has one: failures affect the fast path as well
    let outcomes = || (0..6).map(|_| pool.alloc().is_ok()).collect::<Vec<_>>();
    {
        let _guard = inject::every(3);
        assert_eq!(outcomes(), [true, true, false, true, true, false]);
        {
            let _within = inject::every(1);
            assert_eq!(pool.alloc().expect_err("injected").cause(), Cause::Injected);
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(pool.alloc().is_ok()));
            });
        }
        assert_eq!(outcomes(), [true, true, false, true, true, false]);
    }
    assert_eq!(outcomes(), [true; 6]);
    assert_eq!(pool.report().failed, 5);
}

#[test]
fn values_are_dropped_once_and_their_memory_returns_even_if_the_drop_panics() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static DROPS: AtomicU32 = AtomicU32::new(0);
    struct Counted(bool);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
            assert!(!self.0, "asked to panic");
        }
    }
    let pool = Pool::new("drops").expect("valid");
    drop(pool.alloc(Counted(false)).expect("memory"));
    assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    let inner = pool.alloc(Counted(false)).expect("memory").into_inner();
    assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    drop(inner);
    let raw = pool.alloc(Counted(false)).expect("memory").into_raw();
    // SAFETY: it comes from `into_raw` just above.
    drop(unsafe { pool.from_raw(raw) });
    assert_eq!(DROPS.load(Ordering::Relaxed), 3);
    let panics = pool.alloc(Counted(true)).expect("memory");
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panics)));
    assert!(outcome.is_err());
    assert_eq!(pool.report().used, 0);
    let _guard = inject::every(1);
    assert!(pool.alloc(Counted(false)).is_err());
    assert_eq!(DROPS.load(Ordering::Relaxed), 5, "a value that found no room is dropped");
}

#[test]
#[cfg(debug_assertions)]
fn a_write_after_free_is_reported_with_the_pools_name() {
    let pool = BytePool::new("poisoned", 100).expect("valid");
    let block = pool.alloc().expect("memory").into_raw();
    // SAFETY: it comes from `into_raw`.
    unsafe { pool.free_raw(block) };
    // SAFETY: a use after free on purpose; the pool keeps the memory, so the write itself is harmless.
    unsafe { block.add(17).write(7) };
    let panic = std::panic::catch_unwind(AssertUnwindSafe(|| drop(pool.alloc()))).expect_err("caught");
    let message = panic.downcast_ref::<String>().expect("a sentence");
    assert_eq!(
        message,
        "pool `poisoned`: byte 17 of a free object was written to (0x07): \
         something still used it after it was freed"
    );
}

/// A thread that ends leaves its cache to the next one of its lane; nothing is lost.
#[test]
fn objects_of_an_ended_thread_are_used_again() {
    let pool = BytePool::new("ended", 100).expect("valid");
    for _ in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(pool.alloc().expect("memory")));
        });
    }
    let report = pool.report();
    // Other tests' threads take lanes concurrently, so not every thread here gets the same one.
    assert!(report.allocated as usize <= report.lanes.len(), "{report}");
    assert_eq!(report.used, 0);
}

/// R-C3.
#[test]
#[cfg(feature = "call-sites")]
fn call_sites_of_a_pool_are_those_of_its_users() {
    let pool = Pool::<u64>::new("sites").expect("valid");
    let kept: Vec<_> = (0..3).map(|n| pool.alloc(n).expect("memory")).collect();
    let here = line!() - 1;
    drop(kept);
    let sites: Vec<_> = pool.call_sites();
    assert_eq!(sites.len(), 1, "{sites:?}");
    assert_eq!((sites[0].allocs, sites[0].bytes), (3, 24));
    assert_eq!(sites[0].location.map(|l| (l.file(), l.line())), Some((file!(), here)));
}
