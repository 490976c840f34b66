//! R-D5: the global lists' double-width compare-and-swap is a machine instruction. `scripts/aarch64` runs
//! these tests on processors with and without LSE.
#![cfg(all(feature = "global-pools", not(any(loom, manylane_sim))))]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use manylane_pool::{BytePool, Options};
use manylane_sync::atomic::{AtomicU128, Ordering};

/// The fallback of `portable-atomic` takes a lock: correct, but all lanes would wait for it.
#[test]
fn double_width_compare_and_swap_takes_no_lock_where_the_processor_has_one() {
    #[cfg(target_arch = "x86_64")]
    let has_one = std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(target_arch = "aarch64")]
    let has_one = true; // load and store exclusive of a pair
    #[cfg(target_arch = "aarch64")]
    println!("LSE: {}", std::arch::is_aarch64_feature_detected!("lse"));
    assert_eq!(AtomicU128::is_lock_free(), has_one, "the processor has one: {has_one}");
}

/// Each thread counts in both halves: a change that is lost or torn leaves them different.
#[test]
fn both_halves_change_together_and_no_change_is_lost() {
    const THREADS: u64 = 4;
    const CHANGES: u64 = 5_000;
    let word = AtomicU128::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..CHANGES {
                    let mut found = word.load(Ordering::Relaxed);
                    loop {
                        let (high, low) = ((found >> 64) as u64, found as u64);
                        assert_eq!(high, low, "the halves are of two changes");
                        let next = u128::from(high + 1) << 64 | u128::from(low + 1);
                        match word.compare_exchange(found, next, Ordering::AcqRel, Ordering::Acquire) {
                            Ok(_) => break,
                            Err(now) => found = now,
                        }
                    }
                }
            });
        }
    });
    let sum = u128::from(THREADS * CHANGES);
    assert_eq!(word.load(Ordering::Relaxed), sum << 64 | sum);
}

/// Objects go through the global lists, whose heads are such words, and each has one owner.
#[test]
fn objects_of_the_global_lists_have_one_owner() {
    const LIVE: usize = 48;
    let options = Options::new().lane_bytes(8 * 64).global_lists(1).global_bytes(1 << 20);
    let pool = BytePool::with("wide", 64, options).expect("64 is a size");
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            scope.spawn(move || {
                for _ in 0..200 {
                    let mut taken: Vec<_> =
                        (0..LIVE).map(|_| pool.alloc().expect("there is memory")).collect();
                    let filled: Vec<&mut [u8]> = taken.iter_mut().map(|object| object.fill(thread)).collect();
                    let own = filled.iter().flat_map(|bytes| bytes.iter()).all(|&byte| byte == thread);
                    assert!(own, "another thread wrote to an object of this one");
                }
            });
        }
    });
    assert_eq!(pool.used(), 0);
}
