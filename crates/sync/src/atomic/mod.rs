//! Atomics, on whichever machine this build runs: the real one, the model checker, the simulator.
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

/// For whoever has taken `count` to its end by a subtraction with release: what was done before the other
/// subtractions is visible from here on.
///
/// Cost: none on x86, a barrier elsewhere.
#[inline(always)]
pub fn acquire_after_last(count: &AtomicU32) {
    // ThreadSanitizer does not understand fences. Under its name, which `scripts/tsan` sets, the count is
    // loaded instead.
    if cfg!(manylane_tsan) {
        count.load(Ordering::Acquire);
    } else {
        fence(Ordering::Acquire);
    }
}

/// An unsigned 64-bit number that only its owner writes and anyone reads.
///
/// Adding is a plain load, add and store: no locked instruction, so it costs about 1 ns where a
/// `fetch_add` costs 6. That is sound (no tear, no undefined behaviour) for any caller, and *exact* only
/// while one thread at a time adds, which is what a slot of a [`PerLane`](crate::PerLane) gives.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedU64(AtomicU64);

impl OwnedU64 {
    crate::model::const_fn! {
        /// A number with the value `value`.
        pub fn new(value: u64) -> Self { Self(AtomicU64::new(value)) }
    }

    /// Adds `n`, wrapping at 2^64. Only the owner may call it, or increments get lost.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`, wrapping. Only the owner may call it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// Stores `value`. Only the owner may call it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value, from any thread; it may miss what the owner is just adding.
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
