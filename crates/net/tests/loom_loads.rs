//! Loads and guards in all interleavings of two lanes.
#![cfg(loom)]

use manylane_net::{AcceptingLane, Balance, LaneGuard, load};
use manylane_sync::{LaneId, lane, model, thread};

/// One lane gives a connection to the other, which ends one of its own meanwhile. A third reader sees a load
/// between the certain and the possible ones, and in the end nothing is left.
#[test]
fn a_load_counts_what_is_there_and_comes_back_to_zero() {
    model(|| {
        let here = lane::current();
        let _presence = AcceptingLane::new();
        let own = LaneGuard::here();
        let other = thread::spawn(move || {
            // The lane that was read last is the only one that takes connections.
            let lane_guard = Balance::new([here]).lane_guard();
            assert_eq!(lane_guard.lane(), here);
            lane_guard
        });
        drop(own);
        assert!(load(here) <= 1);
        let lane_guard = other.join().unwrap();
        assert_eq!(load(here), 1);
        drop(lane_guard);
        assert_eq!(load(here), 0);
    });
}

/// A lane refuses a connection, so the lane that gave it takes it back, while the lane ends another one.
#[test]
fn a_lane_guard_that_is_taken_back_is_not_counted() {
    model(|| {
        let here = lane::current();
        let _presence = AcceptingLane::new();
        let own = LaneGuard::here();
        let other = thread::spawn(move || drop(Balance::new([here]).lane_guard()));
        assert!((1..=2).contains(&load(here)));
        drop(own);
        other.join().unwrap();
        assert_eq!(load(here), 0);
    });
}

/// Lanes come and go while others choose one.
#[test]
fn a_lane_that_is_not_present_gets_nothing() {
    model(|| {
        let here = lane::current();
        let absent = LaneId::new(7).unwrap();
        let other = thread::spawn(move || {
            let balance = Balance::new([here, absent]);
            let lane_guard = balance.lane_guard();
            assert_ne!(lane_guard.lane(), absent);
            lane_guard
        });
        let presence = AcceptingLane::new();
        drop(presence);
        drop(other.join().unwrap());
        assert_eq!(load(here), 0);
    });
}
