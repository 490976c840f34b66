//! Slots appear while others read: every slot is complete when seen, none is lost when the table grows.
#![cfg(loom)]

use manylane_sync::atomic::OwnedU64;
use manylane_sync::{Arc, PerLane, model, thread};

#[test]
fn two_lanes_appear_while_a_third_sums() {
    model(|| {
        let lanes: Arc<PerLane<OwnedU64>> = Arc::new(PerLane::new(|_| OwnedU64::new(100)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let lanes = lanes.clone();
                thread::spawn(move || {
                    lanes.own().add(1);
                    lanes.own().get()
                })
            })
            .collect();
        for (_, slot) in lanes.iter() {
            assert!([100, 101].contains(&slot.get()), "a slot is seen complete");
        }
        for writer in writers {
            assert_eq!(writer.join().unwrap(), 101);
        }
        assert_eq!(lanes.iter().map(|(_, slot)| slot.get()).sum::<u64>(), 202);
    });
}

#[test]
fn a_lane_keeps_its_slot_when_another_makes_the_table_grow() {
    model(|| {
        let lanes: Arc<PerLane<OwnedU64>> = Arc::new(PerLane::new(|_| OwnedU64::new(0)));
        lanes.own().add(1);
        let other = {
            let lanes = lanes.clone();
            thread::spawn(move || lanes.own().add(10))
        };
        lanes.own().add(1);
        other.join().unwrap();
        assert_eq!(lanes.own().get(), 2);
        assert_eq!(lanes.iter().map(|(_, slot)| slot.get()).sum::<u64>(), 12);
    });
}
