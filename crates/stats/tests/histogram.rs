//! The histogram against a sorted vector.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_stats::{Histogram, HistogramSnapshot};
use proptest::prelude::*;

/// Values of all magnitudes, small ones too.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let value = prop_oneof![0..100u64, any::<u64>(), (0..64u32, any::<u64>()).prop_map(|(s, v)| v >> s)];
    proptest::collection::vec(value, 1..300)
}

fn record<const BITS: u32>(values: &[u64]) -> HistogramSnapshot<BITS> {
    let histogram: Histogram<BITS> = Histogram::new("test");
    values.iter().for_each(|v| histogram.record(*v));
    histogram.read_cheap()
}

fn check_error<const BITS: u32>(values: &[u64], q: f64) {
    let snapshot = record::<BITS>(values);
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
    let exact = sorted[rank - 1];
    let found = snapshot.quantile(q).expect("not empty");
    let allowed = exact >> (BITS + 1);
    assert!(found.abs_diff(exact) <= allowed, "quantile {q} with {BITS} bits: {found}, exact {exact}");
    assert_eq!((snapshot.min(), snapshot.max()), (sorted.first().copied(), sorted.last().copied()));
    assert_eq!(snapshot.count(), sorted.len() as u64);
    let mean = sorted.iter().map(|v| *v as f64).sum::<f64>() / sorted.len() as f64;
    let error = (snapshot.mean().expect("not empty") - mean).abs();
    assert!(
        error <= mean / f64::from(1u32 << (BITS + 1)) + 1e-9,
        "mean with {BITS} bits is off by {error} of {mean}"
    );
}

/// Returns `usual` cases, or one in `share` of `PROPTEST_CASES`, which the long run sets.
fn cases(usual: u32, share: u32) -> ProptestConfig {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    ProptestConfig::with_cases(requested.map_or(usual, |requested| requested.div_ceil(share)))
}

proptest! {
    #![proptest_config(cases(64, 1))]

    #[test]
    fn every_quantile_is_within_the_stated_error(values in values(), q in 0.0..=1.0f64) {
        check_error::<1>(&values, q);
        check_error::<5>(&values, q);
    }

    #[test]
    fn merging_is_concatenation(left in values(), right in values()) {
        let mut merged = record::<5>(&left);
        merged.merge(&record(&right));
        let both: Vec<u64> = left.into_iter().chain(right).collect();
        prop_assert_eq!(merged, record(&both));
    }
}

proptest! {
    // Long cases: 56,000 buckets, or threads.
    #![proptest_config(cases(64, 40))]

    #[test]
    fn every_quantile_is_within_the_stated_error_of_ten_bits(values in values(), q in 0.0..=1.0f64) {
        check_error::<10>(&values, q);
    }

    #[test]
    fn lanes_are_merged_as_if_one_had_recorded_all(values in values()) {
        let histogram: Histogram = Histogram::new("test");
        std::thread::scope(|scope| {
            for part in values.chunks(values.len().div_ceil(3)) {
                let histogram = &histogram;
                scope.spawn(move || part.iter().for_each(|v| histogram.record(*v)));
            }
        });
        prop_assert_eq!(histogram.read_exact(), Ok(record(&values)));
    }
}

#[test]
fn a_snapshot_taken_while_lanes_record_never_has_a_value_beyond_its_extremes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let histogram: Histogram = Histogram::new("test");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Extremes move at each step.
            for n in 1.. {
                histogram.record(1 << 40 | n << 8);
                histogram.record((1 << 40) - (n << 8));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..2000 {
            let snapshot = histogram.read_cheap();
            if let (Some(min), Some(max)) = (snapshot.min(), snapshot.max()) {
                assert!(min <= max);
                let counted: u64 = snapshot.buckets().map(|(_, _, n)| n).sum();
                assert_eq!(counted, snapshot.count());
                for (low, high, _) in snapshot.buckets() {
                    assert!(high >= min && low <= max, "{low}..={high} is outside {min}..={max}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
