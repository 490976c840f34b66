//! Memory left behind by the choice of a driver. Alone in its program, since it counts allocations of all
//! threads.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_io::DriverChoice;

#[test]
fn a_trial_of_io_uring_leaves_few_buffers_to_the_lane() {
    let (kind, _) = DriverChoice::Auto.settle();
    let clusters: u64 = manylane_pool::report()
        .iter()
        .filter(|pool| pool.name.starts_with("cluster"))
        .map(|pool| pool.allocated)
        .sum();
    assert!(clusters <= 8, "{clusters} clusters, {kind}");
}
