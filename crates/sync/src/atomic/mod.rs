//! Atomics of the machine that this build runs on: the real one, the model checker or the simulator.
//!
//! The names and meanings are those of `std::sync::atomic`. `new` is `const` except under `cfg(loom)`.

#[cfg(not(any(loom, manylane_sim)))]
pub use portable_atomic::AtomicU128;
#[cfg(not(any(loom, manylane_sim)))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};

#[cfg(loom)]
mod wide_loom;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(loom)]
pub use wide_loom::AtomicU128;

#[cfg(manylane_sim)]
mod simulated;
#[cfg(manylane_sim)]
pub use simulated::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicU128, AtomicUsize, fence,
};

pub use std::sync::atomic::Ordering;

/// Acquire fence for the thread whose subtraction with release took `count` to zero: it then sees all writes
/// that other threads made before their subtractions.
///
/// Cost: none on x86, a barrier elsewhere.
#[inline(always)]
pub fn acquire_after_last(count: &AtomicU32) {
    // ThreadSanitizer does not understand fences. With `cfg(manylane_tsan)`, which `scripts/tsan` sets, a
    // load of the count takes the fence's place.
    if cfg!(manylane_tsan) {
        count.load(Ordering::Acquire);
    } else {
        fence(Ordering::Acquire);
    }
}

/// An unsigned 64-bit number that only its owner writes and any thread reads.
///
/// Adding is a plain load, add and store without a locked instruction: it costs about 1 ns, a `fetch_add` 6
/// ns. Any caller may add without a torn value or undefined behaviour, but the sum is *exact* only while one
/// thread at a time adds, as in a slot of a [`PerLane`](crate::PerLane).
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedU64(AtomicU64);

impl OwnedU64 {
    crate::model::const_fn! {
        /// A number with the value `value`.
        pub fn new(value: u64) -> Self { Self(AtomicU64::new(value)) }
    }

    /// Adds `n`, wrapping at 2^64. Only the owner may call this; concurrent calls lose increments.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`, wrapping. Only the owner may call this.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// Stores `value`. Only the owner may call this.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value. Any thread may call this; the value may lack an addition in progress.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for OwnedU64 {
    fn default() -> Self {
        Self::new(0)
    }
}
