//! Simulated with up to 96 cores: the shipped variants scale, the replaced ones do not (issue 2, section 7).
#![cfg(manylane_sim)]

use manylane_bench::cases::{self, Case, Contender, Shape};
use manylane_bench::run::{Plan, Sample};
use std::collections::BTreeMap;
use std::time::Duration;

/// Cores of the curve; the topology has 48 cores, and 96 with their siblings.
const CORES: [usize; 7] = [1, 2, 4, 8, 24, 48, 96];

fn run(contender: &Contender, threads: usize) -> Sample {
    (contender.run)(&Plan { threads, time: Duration::from_micros(20), seed: 1 })
}

fn rate(contender: &Contender, threads: usize) -> f64 {
    run(contender, threads).operations_per_second
}

fn shapes_are_as_published(name: &str) {
    let case = cases::named(name).expect("the case exists");
    if case.after_is_linear {
        after_is_within_a_tenth_of_linear(case);
    }
    match case.shape {
        Shape::PeaksEarly => before_peaks_early_and_never_recovers(case),
        Shape::SlowerBy(factor) => before_stays_behind(case, factor),
    }
}

fn after_is_within_a_tenth_of_linear(case: &Case) {
    let alone = rate(case.after(), 1);
    for cores in [48, 96] {
        let linearity = rate(case.after(), cores) / (alone * cores as f64);
        assert!(
            (0.9..1.1).contains(&linearity),
            "{}: with {cores} simulated cores {} does {linearity:.3} of {cores} times one core",
            case.name,
            case.after().name
        );
    }
}

fn before_peaks_early_and_never_recovers(case: &Case) {
    let curve: BTreeMap<usize, f64> =
        CORES.iter().map(|&cores| (cores, rate(case.before(), cores))).collect();
    let (&peak, &most) = curve.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("seven points");
    assert!(peak <= 8, "{}: {} peaks with {peak} cores: {curve:?}", case.name, case.before().name);
    for cores in [24, 48, 96] {
        let left = curve[&cores] / most;
        assert!(left < 0.9, "{}: {cores} cores do {left:.2} of the peak with {peak}: {curve:?}", case.name);
    }
}

/// Checks that the loss per core is the same for all numbers of cores.
fn before_stays_behind(case: &Case, factor: f64) {
    let (one, two) = (rate(case.before(), 1), rate(case.before(), 2));
    assert!(two < one, "{}: two cores do {two:.0}, one does {one:.0}", case.name);
    let gains = [24, 48, 96].map(|cores| rate(case.after(), cores) / rate(case.before(), cores));
    for gain in gains {
        assert!(gain >= factor, "{}: after is {gains:.2?} times before, published was {factor}", case.name);
        assert!((gain / gains[0] - 1.0).abs() < 0.1, "{}: not the same factor: {gains:.2?}", case.name);
    }
}

/// R-F2.
#[test]
fn counter_scales_and_the_shared_one_does_not() {
    shapes_are_as_published("counter");
}

/// R-C1.
#[test]
fn memory_statistics_scale_and_the_unaligned_array_stays_behind() {
    shapes_are_as_published("memtype");
}

/// R-D2.
#[test]
fn lane_caches_scale_and_the_global_list_does_not() {
    shapes_are_as_published("pool");
}

/// R-B2.
#[test]
fn counted_clusters_scale_and_the_ring_does_not() {
    shapes_are_as_published("cluster");
}

/// R-E1.
#[test]
fn link_locks_scale_at_own_positions_and_the_mutex_does_not() {
    shapes_are_as_published("list");
}

#[test]
fn a_lock_per_object_scales_and_one_lock_does_not() {
    shapes_are_as_published("lock");
}

/// R-A2.
#[test]
fn local_sockets_scale_and_one_lock_for_all_connections_does_not() {
    shapes_are_as_published("unix1");
}

#[test]
fn published_pointers_scale_and_the_read_lock_does_not() {
    shapes_are_as_published("config");
}

#[test]
fn what_ships_moves_no_line_between_96_cores() {
    for case in cases::ALL.iter().filter(|case| case.after_is_linear) {
        let costs = run(case.after(), 96).costs.expect("the simulator counts");
        assert!(
            costs.transfers_per_operation < 0.001,
            "{}: {} transfers per operation, hottest {:?}",
            case.name,
            costs.transfers_per_operation,
            costs.hottest
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let case = cases::named("counter").expect("exists");
    let again = || run(case.before(), 8);
    let (one, two) = (again(), again());
    assert_eq!(one.operations_per_second, two.operations_per_second);
    assert_eq!(one.costs, two.costs);
}
