//! Failing allocations for tests.

use manylane_pool::inject;

/// While the guard lives, every `n`-th allocation of this thread fails, `n` from 1.
///
/// # Panics
/// When this build cannot inject failures: a test that relies on them would prove nothing.
pub(crate) fn every(n: usize) -> inject::Guard {
    const { assert!(inject::ENABLED, "needs debug assertions, or the feature `model`") };
    inject::every(n as u64)
}
