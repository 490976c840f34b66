//! R-B1, R-B3, R-B5, R-B6: chains against plain vectors.

use crate::model::{Reached, run};
use proptest::prelude::*;

/// `usual` cases, unless `PROPTEST_CASES` says otherwise.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None,
        ..ProptestConfig::default() })]
    #[test]
    fn chains_behave_like_vectors(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        run(&data);
    }
}

/// The inputs of the property test reach the cases that it is for.
#[test]
fn random_operations_reach_refusals_foreign_bytes_and_zeroing() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let data: Vec<u8> = (0..60_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    let Reached { operations, refused, externals, zeroed } = run(&data);
    assert!(operations > 10_000, "{operations}");
    assert!(refused > 200, "{refused}");
    assert!(externals > 500, "{externals}");
    assert!(zeroed > 100, "{zeroed}");
}
