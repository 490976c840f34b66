//! Budgets of buffers, in line transfers on the virtual multiprocessor (R-B2, R-B4).
#![cfg(manylane_sim)]

use manylane_buf::{Chain, Cluster, Parcel, Segment};
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::relax;
use std::sync::Mutex;

const CORES: [usize; 4] = [1, 8, 32, 96];
/// Every lane visits the pools' tables again, after the last lane has entered its slot there.
const WARM_UP: u64 = 20;

/// Returns when all lanes have called it.
fn all_arrived(arrived: &AtomicU64, worker: &Worker) {
    arrived.fetch_add(1, Ordering::Relaxed);
    while arrived.load(Ordering::Relaxed) < worker.threads() as u64 {
        relax();
    }
}

fn on<S>(cores: usize, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, body)
}

fn segment() -> Segment {
    Cluster::with(&[1; 64]).expect("memory").into_segment()
}

#[test]
fn taking_and_dropping_a_unique_cluster_moves_no_line() {
    for cores in CORES {
        let report = on(
            cores,
            || AtomicU64::new(0),
            |arrived, worker| {
                drop(segment());
                all_arrived(arrived, worker);
                worker.measure(WARM_UP, 200, |_| drop(Cluster::alloc(2048).expect("memory")));
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

#[test]
fn sharing_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(
            cores,
            || AtomicU64::new(0),
            |arrived, worker| {
                let segment = segment();
                all_arrived(arrived, worker);
                worker.measure(WARM_UP, 200, |_| drop(segment.clone()));
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

#[test]
fn filling_cutting_and_sending_out_a_chain_on_one_lane_moves_no_line() {
    for cores in CORES {
        let report = on(
            cores,
            || AtomicU64::new(0),
            |arrived, worker| {
                let mut chain = Chain::new();
                let mut work = || {
                    chain.append(&[7; 3000]).expect("memory");
                    let head = chain.split_to(100).expect("inside");
                    let copy = chain.copy_range(50..2000).expect("memory");
                    chain.pull_up(2500).expect("memory");
                    drop((head, copy));
                    chain.clear();
                };
                work(); // creates everything before the measurement
                drop(segment());
                all_arrived(arrived, worker);
                worker.measure(WARM_UP, 100, |_| work());
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// Handles on other lanes cost the owner nothing: its words are on a line of its own.
#[test]
fn the_owner_shares_without_a_transfer_while_others_hold_on() {
    for cores in [8, 96] {
        let report = on(
            cores,
            || (Mutex::new(Vec::<Parcel>::new()), AtomicU64::new(0)),
            |(held, arrived), worker| {
                let segment = segment();
                let parcel = Chain::from(segment.clone()).into(); // never opened
                // a real lock: nothing simulated happens under it
                held.lock().expect("no panic").push(parcel);
                all_arrived(arrived, worker);
                worker.measure(WARM_UP, 200, |_| drop(segment.clone()));
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// A cluster shared by all lanes costs a locked add on a contended line: at most two lines an operation
/// (clone and drop), for any number of cores.
#[test]
fn sharing_on_other_lanes_moves_one_line_for_each_locked_add() {
    for cores in [2, 32] {
        let report = on(
            cores,
            || {
                let segment = segment();
                // One more than there are lanes, so that no lane ever holds the only handle.
                let parcels: Vec<Parcel> = (0..=cores).map(|_| Chain::from(segment.clone()).into()).collect();
                Mutex::new(parcels)
            },
            |parcels, worker| {
                let mine = parcels.lock().expect("no panic").pop(); // a real lock, as above
                let mine = mine.expect("one for each").open();
                worker.measure(WARM_UP, 200, |_| drop(mine.front().expect("one").clone()));
            },
        );
        let transfers = report.transfers_per_operation();
        assert!((0.5..=2.01).contains(&transfers), "{cores} cores\n{report}");
    }
}
