//! The number that everything here is made of: one owner adds, anyone reads, nobody waits.

use manylane_sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, or a peak that its lane may forget: one lane writes, anyone reads.
///
/// It differs from [`OwnedU64`](manylane_sync::atomic::OwnedU64) in one thing: a reader that sees an
/// addition also sees whatever the owner saw before it (store with release, load with acquire). The
/// protocols of the crate's page (rules 3 and 4) stand on that. On x86 the code is the same; on ARM the store
/// is an `stlr`. On the real machine it is one word, and a word of zero bytes has nothing counted.
///
/// # Cost
/// `add`: a load, an addition, a store; no locked instruction. Two additions to the *same* number one right
/// after the other wait for the store to be forwarded to the load (4 to 5 cycles).
#[derive(Debug)]
#[repr(transparent)]
pub struct Tally(AtomicU64);

impl Tally {
    crate::const_fn! {
        /// Nothing counted yet.
        pub fn new() -> Self { Self(AtomicU64::new(0)) }
    }

    /// Adds `n`, wrapping at 2^64. Only the owning lane may call it: two lanes that add at the same time
    /// lose additions (and nothing worse).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, n: u64) {
        add(&self.0, n);
    }

    /// Has it be at least `value`: for a largest one, such as a peak. Only the owning lane may call it, and
    /// never [`add`](Self::add) to the same. The sum over lanes that a group reads is then an upper bound
    /// of the peak of all together; the largest over lanes a lower one.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn raise(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.set(value);
        }
    }

    /// Forgets a peak: the next [`raise`](Self::raise) begins anew. Only the owning lane may call it.
    pub fn forget(&self) {
        self.set(0);
    }

    /// The value, from any thread.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn get(&self) -> u64 {
        get(&self.0)
    }

    /// Replaces the value. For words of a slot that are not sums (a smallest, a largest, a set of bits).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, value: u64) {
        // Release: as in `add`.
        self.0.store(value, Ordering::Release);
    }
}

/// [`Tally::add`] on a bare word, as lanes keep it in a [`LaneSlots`](manylane_sync::LaneSlots).
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) fn add(word: &AtomicU64, n: u64) {
    let now = word.load(Ordering::Relaxed).wrapping_add(n);
    // Release: pairs with the acquire in `get` (rule 3).
    word.store(now, Ordering::Release);
}

/// [`Tally::get`] on a bare word.
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
