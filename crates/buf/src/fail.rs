//! Injected allocation failures for tests.

use manylane_pool::inject;

/// Makes every `n`-th allocation of this thread fail while the guard lives; `n` is at least 1.
///
/// # Panics
/// If this build cannot inject failures: a test that relies on them would prove nothing.
pub(crate) fn every(n: usize) -> inject::Guard {
    const { assert!(inject::ENABLED, "needs debug assertions, or the feature `model`") };
    inject::every(n as u64)
}
