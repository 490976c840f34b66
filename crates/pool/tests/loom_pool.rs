//! Objects in transfer between lanes: every interleaving. Capacities are tiny under `cfg(loom)`: with room
//! for 16 objects a lane has a cache of 4, batches of 2, a surplus of 2.
#![cfg(loom)]
#![allow(unsafe_code)] // pools are freed at the end of each execution

use manylane_pool::{BytePool, Options};
use manylane_sync::{model, thread};

/// Runs `body` on a pool, and checks afterwards that every object is accounted for.
fn with_pool(options: Options, body: impl Fn(BytePool)) {
    let pool = BytePool::with("model", 64, options).expect("valid");
    body(pool);
    let report = pool.report();
    assert_eq!((report.used, report.allocated), (0, report.cached), "{report}");
    let kept: u64 = report.lanes.iter().map(|lane| lane.cached + lane.surplus).sum();
    assert_eq!(kept + report.global, report.cached, "{report}");
    // SAFETY: the threads of the model have ended, and nothing is in use.
    unsafe { pool.destroy() };
}

/// Allocates `count` objects and frees them; marks show if two lanes had the same one.
fn use_objects(pool: BytePool, count: usize, mark: u64) {
    let objects: Vec<_> = (0..count).map(|_| pool.alloc().expect("memory")).collect();
    for object in &objects {
        // SAFETY: this thread owns the 64 bytes.
        unsafe { object.as_ptr().cast::<u64>().write(mark) };
    }
    thread::yield_now();
    for object in objects {
        // SAFETY: written above.
        assert_eq!(unsafe { object.as_ptr().cast::<u64>().read() }, mark, "two lanes have the same object");
    }
}

/// A lane puts batches on its surplus and displaces old ones while another takes them.
#[test]
fn a_surplus_is_filled_and_emptied_at_the_same_time() {
    model(|| {
        with_pool(Options::new().lane_bytes(64 * 16), |pool| {
            let taker = thread::spawn(move || use_objects(pool, 2, 1));
            use_objects(pool, 9, 2); // cache of 4, then batches to the surplus of 2, then displacement
            taker.join().expect("no assertion failed");
        });
    });
}

/// Two lanes take from the surplus of a third concurrently, which is just putting the batch on it.
#[test]
fn two_lanes_take_from_one_surplus() {
    model(|| {
        with_pool(Options::new().lane_bytes(64 * 16), |pool| {
            let objects: Vec<_> = (0..5).map(|_| pool.alloc().expect("memory")).collect();
            let takers = [2, 3].map(|mark| thread::spawn(move || use_objects(pool, 1, mark)));
            drop(objects); // the fifth finds the cache full
            for taker in takers {
                taker.join().expect("no assertion failed");
            }
        });
    });
}

/// Housekeeping on one lane empties a surplus that its lane and a third use.
#[test]
fn a_surplus_is_reclaimed_while_it_is_used() {
    model(|| {
        with_pool(Options::new().lane_bytes(64 * 16), |pool| {
            let housekeeper = thread::spawn(move || pool.reclaim());
            use_objects(pool, 6, 1);
            use_objects(pool, 6, 2);
            housekeeper.join().expect("no assertion failed");
        });
    });
}

/// A limit is never exceeded.
#[test]
fn two_lanes_at_the_limit_never_exceed_it() {
    model(|| {
        with_pool(Options::new().lane_bytes(64 * 16).limit(1), |pool| {
            let other = thread::spawn(move || pool.alloc().ok().map(drop).is_some());
            let here = pool.alloc();
            assert!(pool.report().allocated <= 1);
            let there = other.join().expect("no assertion failed");
            assert!(here.is_ok() || there, "one of them gets it");
            drop(here);
        });
    });
}

/// The ABA case of the global lists: a list's first magazine is popped by one lane while another pops it,
/// uses the objects and pushes the same magazine again.
#[cfg(feature = "global-pools")]
#[test]
fn global_lists_keep_their_objects_when_the_first_magazine_goes_and_comes_back() {
    model(|| {
        // Almost no surplus: a cache of one object, batches of one; the whole surplus goes to the one list.
        let options = Options::new().lane_bytes(0).global_lists(1).global_bytes(64 * 3);
        with_pool(options, |pool| {
            use_objects(pool, 3, 1); // two magazines in the list
            let other = thread::spawn(move || use_objects(pool, 2, 2));
            use_objects(pool, 2, 3);
            other.join().expect("no assertion failed");
        });
    });
}
