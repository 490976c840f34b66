//! The path through `owned_lock_two` that models cannot take, on virtual cores. Alone in its program, since
//! it lists all sockets.
#![cfg(manylane_sim)]

use manylane_local::{Kind, Socket, sockets};
use manylane_sim::{Simulation, Topology, Worker};
use std::collections::BTreeSet;
use std::sync::Mutex; // hands the ends out before anything is measured

/// `owned_lock_two` tries the second lock before it takes the long path, and the model checker does not
/// support trying a lock. This test closes both ends of a pair on two cores, at every distance in time: the
/// lock is free, or held by the other end, which may be gone when the lock is acquired.
#[test]
fn both_ends_close_at_every_distance_in_time_and_nothing_is_left() {
    for kind in [Kind::Stream, Kind::SeqPacket, Kind::Datagram] {
        let mut ways = BTreeSet::new();
        for distance in (0..1200).step_by(6) {
            let setup = || {
                let (a, b) = Socket::pair(kind);
                Mutex::new([Some(a), Some(b)])
            };
            let report =
                Simulation::new(Topology::two_sockets_24x2()).cores(2).run(setup, |ends, worker: &Worker| {
                    let mut end = ends.lock().expect("no worker panics")[worker.number()].take();
                    worker.measure(0, 1, |_| {
                        manylane_sim::work_ns(if worker.number() == 0 { distance } else { 600 });
                        drop(end.take());
                    });
                });
            assert_eq!(sockets(), [], "{kind:?}, {distance} ns\n{report}");
            ways.insert(report.locked);
        }
        println!("{kind:?}: locked instructions of both: {ways:?}");
        assert!(ways.len() > 1, "who finds the lock taken makes more of them: {ways:?}");
    }
}
