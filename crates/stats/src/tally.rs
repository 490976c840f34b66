//! The basic number of this crate: one owner adds, any thread reads, no operation waits.

use manylane_sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, or a peak that its lane may forget: one lane writes, any thread reads.
///
/// In contrast to [`OwnedU64`](manylane_sync::atomic::OwnedU64), a reader that sees an addition also sees
/// everything that the owner saw before it (store with release, load with acquire). Rules 3 and 4 of the
/// crate's page rely on that. On x86 the code is the same; on ARM the store is an `stlr`. On the real machine
/// it is one word, and zero bytes are the initial value.
///
/// # Cost
/// `add`: a load, an addition, a store; no locked instruction. Of two consecutive additions to the *same*
/// number, the second waits until the store is forwarded to its load (4 to 5 cycles).
#[derive(Debug)]
#[repr(transparent)]
pub struct Tally(AtomicU64);

impl Tally {
    crate::const_fn! {
        /// Creates a number at 0.
        pub fn new() -> Self { Self(AtomicU64::new(0)) }
    }

    /// Adds `n`, wrapping at 2^64. Only the owning lane may call this: concurrent additions of two lanes get
    /// lost (and cause nothing worse).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        add(&self.0, n);
    }

    /// Raises the number to at least `value`, for a maximum such as a peak. Only the owning lane may call
    /// this, and must never [`add`](Self::add) to the same number. The sum over lanes that a group reads is
    /// then an upper bound of the common peak; the largest over lanes is a lower bound.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn raise(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.set(value);
        }
    }

    /// Forgets a peak: the next [`raise`](Self::raise) begins again. Only the owning lane may call this.
    pub fn forget(&self) {
        self.set(0);
    }

    /// Returns the value, on any thread.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn get(&self) -> u64 {
        get(&self.0)
    }

    /// Replaces the value. For words of a slot that are not sums (a minimum, a maximum, a set of bits).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, value: u64) {
        // Release: as in `add`.
        self.0.store(value, Ordering::Release);
    }
}

/// Implements [`Tally::add`] on a bare word, as lanes keep it in a [`LaneSlots`](manylane_sync::LaneSlots).
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) fn add(word: &AtomicU64, n: u64) {
    let now = word.load(Ordering::Relaxed).wrapping_add(n);
    // Release: pairs with the acquire in `get` (rule 3).
    word.store(now, Ordering::Release);
}

/// Implements [`Tally::get`] on a bare word.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) fn get(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the release in `add` (rule 3).
    word.load(Ordering::Acquire)
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}
