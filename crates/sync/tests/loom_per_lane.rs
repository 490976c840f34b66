//! Slots appear while other threads read: every slot is complete when seen, and none is lost when the table
//! grows.
//!
//! The reading thread is spawned last. So loom runs it last in the first execution, and moves it to earlier
//! moments in the others because of the values that it then reads. Loom does not move a reader that runs
//! first to a later moment if a writer loads the word that it stores: loom compares the store only with the
//! latest access, which is the writer's own.
#![cfg(loom)]
#![allow(unsafe_code)] // slots that loom watches

use manylane_sync::atomic::OwnedU64;
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Arc, PerLane, lane, model, thread};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A slot that is written before it is published and never again. Loom reports a reader that is not ordered
/// after that.
struct Watched(UnsafeCell<u32>);

// SAFETY: only read once it is published; loom checks just that.
unsafe impl Sync for Watched {}

impl Watched {
    fn new() -> Self {
        let watched = Self(UnsafeCell::new(0));
        // SAFETY: no other thread has it yet.
        watched.0.with_mut(|value| unsafe { *value = 100 });
        watched
    }
    fn read(&self) -> u32 {
        // SAFETY: no thread writes it any more.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn a_slot_is_complete_when_it_is_seen() {
    /// Numbers of executions in which the reader saw 0, 1 and 2 slots.
    static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    model(|| {
        let lanes: Arc<PerLane<Watched>> = Arc::new(PerLane::new(|_| Watched::new()));
        let spawn = |body: fn(&PerLane<Watched>)| {
            let lanes = lanes.clone();
            thread::spawn(move || body(&lanes))
        };
        let threads = [
            spawn(|lanes| assert_eq!(lanes.own().read(), 100)),
            spawn(|lanes| assert_eq!(lanes.own().read(), 100)),
            spawn(|lanes| {
                let mut observed = 0;
                for (_, slot) in lanes.iter() {
                    assert_eq!(slot.read(), 100);
                    observed += 1;
                }
                SEEN[observed].fetch_add(1, Ordering::Relaxed);
            }),
        ];
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
        assert_eq!(lanes.iter().count(), 2);
    });
    assert!(SEEN.iter().all(|observed| observed.load(Ordering::Relaxed) > 0), "not all was tried: {SEEN:?}");
}

#[test]
fn a_lane_keeps_its_slot_when_another_makes_the_table_grow() {
    // Lanes take their numbers outside of the model, which does not see the order of their starts: so both
    // orders are accepted.
    for adds in [[&[10][..], &[1, 1]], [&[1, 1], &[10]]] {
        model(move || {
            let lanes: Arc<PerLane<OwnedU64>> = Arc::new(PerLane::new(|_| OwnedU64::new(0)));
            let threads = adds.map(|adds| {
                let lanes = lanes.clone();
                thread::spawn(move || {
                    adds.iter().for_each(|n| lanes.own().add(*n));
                    (lane::current().index(), lanes.own().get())
                })
            });
            let [(first, one), (second, other)] =
                threads.map(|thread| thread.join().expect("no assertion failed"));
            assert_eq!([one, other], adds.map(|adds| adds.iter().sum()));
            assert_ne!(first, second);
            assert_eq!(lanes.iter().map(|(_, slot)| slot.get()).sum::<u64>(), 12);
        });
    }
}
