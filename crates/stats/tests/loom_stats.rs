//! The possible readings while lanes count: every interleaving.
#![cfg(loom)]

use manylane_stats::{Counter, Gauge, MemReport, MemType};
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, model, thread};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// R-F2: nothing torn, nothing lost, never more than was added.
#[test]
fn a_cheap_read_beside_additions_lies_between_before_and_after() {
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    model(|| {
        let counter = Arc::new(Counter::new("model"));
        let lane = {
            let counter = counter.clone();
            thread::spawn(move || {
                counter.add(1);
                counter.add(1 << 40);
            })
        };
        counter.add(4);
        let reading = {
            let counter = counter.clone();
            thread::spawn(move || {
                let observed = counter.read_cheap();
                assert!([4, 5, 5 + (1 << 40)].contains(&observed), "{observed}");
                observed
            })
        };
        lane.join().expect("no assertion failed");
        SEEN.lock().expect("no panic").insert(reading.join().expect("no assertion failed"));
        assert_eq!(counter.read_cheap(), 5 + (1 << 40));
        assert_eq!(counter.read_exact(), Ok(5 + (1 << 40)));
    });
    assert_eq!(SEEN.lock().expect("no panic").len(), 3, "every moment was tried");
}

/// Rule 3: a level of objects that one lane makes and another frees is never read as negative.
#[test]
fn a_gauge_that_one_lane_raises_and_another_lowers_is_never_negative() {
    static SEEN: Mutex<BTreeSet<i64>> = Mutex::new(BTreeSet::new());
    model(|| {
        let gauge = Arc::new(Gauge::new("model"));
        let handed_over = Arc::new(AtomicBool::new(false));
        gauge.add(0); // creates its slot, which would order more than the gauge promises
        let lowering = {
            let (gauge, handed_over) = (gauge.clone(), handed_over.clone());
            thread::spawn(move || {
                gauge.sub(0); // as above
                if handed_over.load(Ordering::Acquire) {
                    gauge.sub(1);
                }
            })
        };
        // Spawned last: loom does not move a reader that runs first to later moments.
        let reading = {
            let gauge = gauge.clone();
            thread::spawn(move || {
                let level = gauge.read_cheap();
                assert!((0..=1).contains(&level), "{level}");
                level
            })
        };
        gauge.add(1);
        handed_over.store(true, Ordering::Release);
        lowering.join().expect("no assertion failed");
        SEEN.lock().expect("no panic").insert(reading.join().expect("no assertion failed"));
    });
    assert_eq!(SEEN.lock().expect("no panic").len(), 2, "both levels were seen");
}

/// Rules 3 and 4: the same for a memory type's report; and an exact report shows a moment that existed.
#[test]
fn a_memory_report_never_has_more_frees_than_allocations() {
    static SEEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    model(|| {
        let memory: &'static MemType = Box::leak(Box::new(MemType::new("model")));
        let handed_over = Arc::new(AtomicBool::new(false));
        memory.own();
        let freeing = {
            let handed_over = handed_over.clone();
            thread::spawn(move || {
                memory.own(); // as above: the slot exists before
                if handed_over.load(Ordering::Acquire) {
                    memory.free(8);
                }
            })
        };
        let reading = thread::spawn(move || {
            let sum = MemReport::read_cheap(memory).sum;
            assert!(sum.live() >= 0 && sum.live_bytes() >= 0, "{sum:?}");
            (sum.allocs, sum.frees)
        });
        memory.alloc(8);
        handed_over.store(true, Ordering::Release);
        freeing.join().expect("no assertion failed");
        SEEN.lock().expect("no panic").insert(reading.join().expect("no assertion failed"));
    });
    let observed = SEEN.lock().expect("no panic");
    assert!(
        [(0, 0), (1, 0), (1, 1)].iter().all(|counts| observed.contains(counts)),
        "not all was tried: {observed:?}"
    );
}

/// Rule 4: two counters that one lane increments one after the other are never seen in the wrong order, or
/// further apart than they ever were.
#[test]
fn an_exact_read_shows_a_moment_that_existed() {
    model(|| {
        let gauge = Arc::new(Gauge::new("model"));
        let lane = {
            let gauge = gauge.clone();
            thread::spawn(move || {
                gauge.add(2);
                gauge.sub(1);
                gauge.add(2);
                gauge.sub(1);
            })
        };
        // Spawned last: loom does not move a reader that runs first to later moments.
        let reading = {
            let gauge = gauge.clone();
            thread::spawn(move || {
                // The level was 0, 2, 1, 3, 2 in this order; a cheap read could return 0 - 2.
                if let Ok(level) = gauge.read_exact() {
                    assert!((0..=3).contains(&level), "{level}");
                }
            })
        };
        lane.join().expect("no assertion failed");
        reading.join().expect("no assertion failed");
        assert_eq!(gauge.read_exact(), Ok(2));
    });
}
