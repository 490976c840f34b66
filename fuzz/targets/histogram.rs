//! A histogram against the sorted values; the first byte is the quantile.
#![no_main]

use manylane_stats::Histogram;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&quantile, rest)) = data.split_first() else { return };
    // Values of all magnitudes: the first byte of each also gives the shift.
    let (words, _) = rest.as_chunks::<8>();
    let mut values: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w) >> (w[0] % 64)).collect();
    let histogram: Histogram<5> = Histogram::new("fuzz");
    values.iter().for_each(|value| histogram.record(*value));
    let snapshot = histogram.read_cheap();
    values.sort_unstable();
    assert_eq!(snapshot.count(), values.len() as u64);
    assert_eq!((snapshot.min(), snapshot.max()), (values.first().copied(), values.last().copied()));
    let q = f64::from(quantile) / 255.0;
    let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1));
    let exact = values.get(rank - 1).copied();
    let found = snapshot.quantile(q);
    assert_eq!(found.is_some(), exact.is_some());
    if let (Some(found), Some(exact)) = (found, exact) {
        assert!(found.abs_diff(exact) <= exact >> 6, "quantile {q}: {found}, exact {exact}");
    }
});
