//! Slots of lanes as statistics and pools use them: every interleaving. Models keep them in a `PerLane`, so
//! this checks the interface: a lane's slot is its own, a reader sees each lane's slot complete, and none is
//! lost.
//!
//! The reading thread is spawned last (see `loom_per_lane`).
#![cfg(loom)]

use manylane_sync::atomic::OwnedU64;
use manylane_sync::{Arc, LaneSlots, model, thread};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_reader_sees_what_lanes_stored_and_nothing_else() {
    /// Numbers of executions in which the reader's sum was 0, 1, 2 and 3.
    static SEEN: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
    model(|| {
        let slots: Arc<LaneSlots<OwnedU64>> = Arc::new(LaneSlots::new());
        let writers = [1, 2].map(|n| {
            let slots = slots.clone();
            thread::spawn(move || slots.own().add(n))
        });
        let reader = {
            let slots = slots.clone();
            thread::spawn(move || {
                let sum: u64 = slots.iter().map(|(_, slot)| slot.get()).sum();
                SEEN[sum as usize].fetch_add(1, Ordering::Relaxed);
            })
        };
        for thread in writers.into_iter().chain([reader]) {
            thread.join().expect("no assertion failed");
        }
        assert_eq!(slots.iter().map(|(_, slot)| slot.get()).sum::<u64>(), 3);
    });
    assert!(SEEN.iter().all(|observed| observed.load(Ordering::Relaxed) > 0), "not all was tried: {SEEN:?}");
}
