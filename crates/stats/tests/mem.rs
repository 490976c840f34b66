//! Memory types and their report (R-C1, R-C2, R-C3).
#![cfg(not(any(loom, manylane_sim)))]

use manylane_stats::{MemReport, MemType, report_mem};
use std::sync::mpsc;

/// R-C2: each lane apart, and the sum.
#[test]
fn a_report_shows_each_lane_and_the_sum() {
    static TYPE: MemType = MemType::new("report test");
    TYPE.alloc(100);
    TYPE.alloc(1000);
    std::thread::scope(|scope| {
        scope.spawn(|| TYPE.free(100));
    });
    let report = MemReport::read_exact(&TYPE).expect("nobody counts");
    assert_eq!(report, MemReport::read_cheap(&TYPE));
    assert_eq!(report.sum.live(), 1);
    assert_eq!(report.sum.live_bytes(), 1000);
    assert_eq!(report.sum.size_classes, 1 << 7 | 1 << 10);
    let mut live: Vec<i64> = report.lanes.iter().map(|(_, counts)| counts.live()).collect();
    live.sort_unstable();
    assert_eq!(live, [-1, 2], "the lane that only freed is below zero");
    let text = report.to_string();
    assert!(
        text.starts_with(
            "report test: in use 1 (1000 bytes), allocs 2 (1100 bytes), frees 1 (100 bytes), sizes 128 1024\n"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn a_type_is_in_the_report_from_its_first_use_and_once() {
    static USED: MemType = MemType::new("used");
    static UNUSED: MemType = MemType::new("unused");
    USED.alloc(1);
    std::thread::scope(|scope| {
        scope.spawn(|| USED.alloc(1));
    });
    let names: Vec<String> = report_mem().into_iter().map(|r| r.name).collect();
    assert_eq!(names.iter().filter(|n| *n == "used").count(), 1, "{names:?}");
    assert!(!names.iter().any(|n| n == "unused"), "{names:?} has {UNUSED:?}");
    assert!(names.is_sorted());
}

/// Counting is allowed anywhere, although the first use of a type takes a lock to register it.
#[test]
fn a_type_may_be_used_first_under_a_leaf_lock() {
    use manylane_sync::{LockClass, Mutex};
    static TYPE: MemType = MemType::new("leaf test");
    static LEAF: LockClass = LockClass::new("a leaf", LockClass::LEAF);
    let lock = Mutex::new(&LEAF, ());
    let _held = lock.lock();
    TYPE.alloc(1);
    assert_eq!(MemReport::read_cheap(&TYPE).sum.live(), 1);
}

/// R-C1: slots for the lanes that exist, each on lines of its own.
#[test]
fn slots_exist_for_lanes_that_counted_and_share_no_lines() {
    static TYPE: MemType = MemType::new("slots test");
    TYPE.alloc(1);
    let here = std::ptr::from_ref(TYPE.own()).addr();
    assert_eq!(MemReport::read_cheap(&TYPE).lanes.len(), 1);
    let there = std::thread::spawn(|| std::ptr::from_ref(TYPE.own()).addr()).join().expect("it ends");
    assert_eq!(MemReport::read_cheap(&TYPE).lanes.len(), 2);
    assert_eq!((here % 128, there % 128), (0, 0));
    assert_ne!(here, there);
}

#[test]
fn a_cheap_sum_never_has_more_frees_than_allocations() {
    static TYPE: MemType = MemType::new("handover test");
    let (send, receive) = mpsc::sync_channel(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for size in 0..20_000 {
                TYPE.alloc(size);
                send.send(size).expect("the other lane listens");
            }
        });
        let freeing = scope.spawn(move || receive.iter().for_each(|size| TYPE.free(size)));
        while !freeing.is_finished() {
            let sum = MemReport::read_cheap(&TYPE).sum;
            assert!(sum.live() >= 0 && sum.live_bytes() >= 0, "{sum:?}");
            if let Ok(exact) = MemReport::read_exact(&TYPE) {
                let sum = exact.sum;
                assert!(
                    (0..=7).contains(&sum.live()),
                    "at most 4 are under way and one held by each thread: {sum:?}"
                );
            }
        }
    });
    let end = MemReport::read_exact(&TYPE).expect("nobody counts");
    assert_eq!((end.sum.live(), end.sum.live_bytes(), end.sum.allocs), (0, 0, 20_000));
}

/// R-C3.
#[cfg(feature = "call-sites")]
#[test]
fn call_sites_tell_who_allocates_how_much_and_how_often() {
    static TYPE: MemType = MemType::new("sites test");
    let allocate = |times| (0..times).for_each(|_| TYPE.alloc(10));
    let here = line!() - 1;
    allocate(3);
    std::thread::scope(|scope| {
        scope.spawn(|| allocate(2));
    });
    TYPE.alloc(1);
    let sites = MemReport::call_sites(&TYPE);
    assert_eq!(sites.len(), 2, "{sites:?}");
    assert_eq!((sites[0].allocs, sites[0].bytes), (5, 50));
    assert_eq!(sites[0].location.map(|l| (l.file(), l.line())), Some((file!(), here)));
    assert!(sites[0].to_string().ends_with(": 5 allocations, 50 bytes"), "{}", sites[0]);
}
