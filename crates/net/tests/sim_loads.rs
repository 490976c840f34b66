//! The cost of choosing a lane, in cache-line transfers on the virtual multiprocessor. Figures are simulated.
#![cfg(manylane_sim)]
#![allow(clippy::unwrap_used)]

use manylane_net::{AcceptingLane, Balance};
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::{LaneId, lane, relax};

#[derive(Default)]
struct Meeting(AtomicU32);

impl Meeting {
    fn meet(&self, worker: &Worker) {
        self.0.fetch_add(1, Ordering::AcqRel);
        while (self.0.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
    }
}

/// Every lane takes and drops lane guards among `among`, again and again.
fn report(cores: usize, among: impl Fn(usize) -> Vec<usize> + Send + Sync + 'static) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
        Meeting::default,
        move |meeting, worker| {
            let _presence = AcceptingLane::new();
            let lanes = among(lane::current().index());
            let balance = Balance::new(lanes.into_iter().map(|index| LaneId::new(index).unwrap()));
            meeting.meet(worker);
            worker.measure(5, 200, |_| drop(balance.lane_guard()));
        },
    )
}

/// R-F5: a listener of one lane shares nothing.
#[test]
fn a_lane_guard_on_the_own_lane_moves_no_line() {
    for cores in [1, 8, 32, 96] {
        let report = report(cores, |own| vec![own]);
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// Two lanes are compared besides the own one, whose line other lanes have read: the cost does not grow with
/// the number of lanes.
#[test]
fn choosing_costs_a_few_lines_however_many_lanes_there_are() {
    for cores in [8, 32, 96] {
        let report = report(cores, move |_| (0..cores).collect());
        let each = report.transfers.total() as f64 / (cores * 200) as f64;
        assert!(each <= 6.0, "{cores} cores: {each} transfers a guard\n{report}");
    }
}
