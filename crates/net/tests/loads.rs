//! The choice of the lane for a connection (rules of `loads.rs`).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

use manylane_local::{Kind, Name, Socket};
use manylane_net::{AcceptingLane, Balance, Incoming, LaneGuard, load};
use manylane_sync::{LaneId, lane};
use std::sync::mpsc;

/// Returns whether the next connection stays here, if this lane has `own` connections and another one
/// `others`.
fn stays(own: usize, others: usize) -> bool {
    let here = lane::current();
    let _presence = AcceptingLane::new();
    let (tell, receiver) = mpsc::channel::<LaneId>();
    let (done, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _presence = AcceptingLane::new();
            drop(AcceptingLane::new()); // of a generation that was replaced
            let _guards: Vec<_> = (0..others).map(|_| LaneGuard::here()).collect();
            tell.send(lane::current()).unwrap();
            let _ = over.recv(); // an error: nothing is ever sent
        });
        let other = receiver.recv().unwrap();
        let _guards: Vec<_> = (0..own).map(|_| LaneGuard::here()).collect();
        assert_eq!((load(here), load(other)), (own as u64, others as u64));
        let lane_guard = Balance::new([here, other]).lane_guard();
        let stays = lane_guard.lane() == here;
        assert_eq!(
            (load(here), load(other)),
            ((own + usize::from(stays)) as u64, (others + usize::from(!stays)) as u64)
        );
        drop((lane_guard, done));
        stays
    })
}

#[test]
fn a_connection_is_given_away_where_the_other_lane_has_clearly_less() {
    for (own, others, expected) in [
        (0, 0, true),
        (1, 0, false),
        (3, 3, true),
        (7, 6, false),
        (8, 7, true),
        (8, 6, false),
        (64, 56, true),
        (64, 55, false),
        (64, 80, true),
    ] {
        assert_eq!(stays(own, others), expected, "{own} here, {others} there");
    }
}

#[test]
fn a_connection_inside_of_the_process_stays_on_the_lane_that_connected() {
    let name = Name::new("loads-inside").unwrap();
    let listener = Socket::new(Kind::Stream);
    listener.bind(&name).unwrap();
    listener.listen(10).unwrap();
    let here = lane::current();
    let presence = AcceptingLane::new();
    let connect = || {
        let socket = Socket::new(Kind::Stream);
        socket.connect(&name).unwrap();
        (socket, Incoming::Local(listener.accept().unwrap()))
    };
    let (tell, receiver) = mpsc::channel();
    let (done, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _presence = AcceptingLane::new();
            tell.send((lane::current(), connect())).unwrap();
            let _ = over.recv(); // an error: nothing is ever sent
        });
        let (other, (_client, theirs)) = receiver.recv().unwrap();
        let (_client, ours) = connect();
        let balance = Balance::new([here, other]);
        // However many connections that lane has, and this one has none.
        let guards: Vec<_> = (0..20).map(|_| balance.guard_for(&theirs)).collect();
        assert!(guards.iter().all(|lane_guard| lane_guard.lane() == other));
        let guards_here: Vec<_> = (0..40).map(|_| balance.guard_for(&ours)).collect();
        assert!(guards_here.iter().all(|lane_guard| lane_guard.lane() == here));
        assert_eq!((load(here), load(other)), (40, 20));
        // A lane that is not among those that serve, and one that takes no connections any more.
        assert_eq!(Balance::new([here]).guard_for(&theirs).lane(), here);
        drop(presence);
        assert_eq!(Balance::new([here, other]).guard_for(&ours).lane(), here, "the own lane is always there");
        drop((guards, guards_here, done));
    });
}
