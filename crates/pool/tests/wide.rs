//! R-D5: the global lists' double-width compare-and-swap is a machine instruction.
#![cfg(all(feature = "global-pools", not(any(loom, manylane_sim))))]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use manylane_sync::atomic::AtomicU128;

/// The fallback of `portable-atomic` takes a lock: correct, but all lanes would wait for it.
#[test]
fn double_width_compare_and_swap_takes_no_lock_where_the_processor_has_one() {
    #[cfg(target_arch = "x86_64")]
    let has_one = std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(target_arch = "aarch64")]
    let has_one = true; // load and store exclusive of a pair
    assert_eq!(AtomicU128::is_lock_free(), has_one, "the processor has one: {has_one}");
}
