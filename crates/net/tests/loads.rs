//! Which lane gets a connection (rules of `loads.rs`).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

use manylane_net::{Balance, Presence, Seat, load};
use manylane_sync::{LaneId, lane};
use std::sync::mpsc;

/// Where the next connection goes when this lane has `own` and another one `others`; whether it stays here.
fn stays(own: usize, others: usize) -> bool {
    let here = lane::current();
    let _presence = Presence::new();
    let (tell, told) = mpsc::channel::<LaneId>();
    let (done, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _presence = Presence::new();
            drop(Presence::new()); // of a generation that was replaced
            let _seats: Vec<_> = (0..others).map(|_| Seat::here()).collect();
            tell.send(lane::current()).unwrap();
            let _ = over.recv(); // an error: nothing is ever sent
        });
        let other = told.recv().unwrap();
        let _seats: Vec<_> = (0..own).map(|_| Seat::here()).collect();
        assert_eq!((load(here), load(other)), (own as u64, others as u64));
        let seat = Balance::new([here, other]).seat();
        let stays = seat.lane() == here;
        assert_eq!(
            (load(here), load(other)),
            ((own + usize::from(stays)) as u64, (others + usize::from(!stays)) as u64)
        );
        drop((seat, done));
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
