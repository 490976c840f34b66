//! R-B2, R-B4: line transfers of the known ways to share a cluster, each lane with its own cluster.
#![cfg(manylane_sim)]

use manylane_bench::designs::{Design, Leader, Ours, Proxy, Ring};
use manylane_sim::{Report, Simulation, Topology};
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::relax;

/// As in `sim_buf`.
const WARM_UP: u64 = 20;

/// Each lane shares its own cluster and drops the new handle. The lanes meet first, with their slots in all
/// pools made: a table that grows later would show as transfers.
fn on_own_clusters<D: Design>(cores: usize) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
        || AtomicU64::new(0),
        |arrived, worker| {
            let handle = D::alloc().expect("memory");
            drop(D::share(&handle).expect("memory"));
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < worker.threads() as u64 {
                relax();
            }
            worker.measure(WARM_UP, 300, |_| drop(D::share(&handle).expect("memory")));
        },
    )
}

#[test]
fn the_ring_has_all_lanes_fight_for_one_lock() {
    let (one, many) = (on_own_clusters::<Ring>(1), on_own_clusters::<Ring>(32));
    assert!(many.transfers_per_operation() > 1.0, "{many}");
    assert!(many.operations_per_second() < 2.0 * one.operations_per_second(), "{one}\n{many}");
}

#[test]
fn counts_let_lanes_share_their_own_clusters_apart() {
    for cores in [1, 8, 32, 96] {
        for report in [
            on_own_clusters::<Leader>(cores),
            on_own_clusters::<Proxy>(cores),
            on_own_clusters::<Ours>(cores),
        ] {
            assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        }
    }
}

#[test]
fn the_biased_count_needs_no_locked_instruction_and_no_node() {
    let speed = |report: Report| report.operations_per_second();
    let ours = speed(on_own_clusters::<Ours>(96));
    assert!(ours > 2.0 * speed(on_own_clusters::<Leader>(96)));
    assert!(ours > 2.0 * speed(on_own_clusters::<Proxy>(96)));
}
