//! A reference count with the two verbs of the kernel: hold and release (R-A5).

use crate::atomic::{AtomicU32, Ordering, acquire_after_last};

/// How many references an object has.
///
/// # Protocol
/// 1. [`hold`](Self::hold) is legal only while the caller already has a valid reference, or a lock that keeps
///    one alive. It therefore needs no ordering.
/// 2. Each reference is released exactly once. The call that releases the last one returns `true`, and
///    everything that other holders did before their release happened before it returns: the caller frees.
///
/// # Cost
/// Holding: one locked add on the count's line. Release: one locked add; none when the caller is the only
/// holder (a plain load tells).
#[derive(Debug)]
pub struct Refs(AtomicU32);

impl Refs {
    /// Above this a count is taken for a leak of references: half of the range, so that racing holders
    /// cannot wrap it before one of them panics.
    pub const LIMIT: u32 = u32::MAX / 2;

    crate::model::const_fn! {
        /// A count of one: the creator's reference.
        pub fn new() -> Self { Self(AtomicU32::new(1)) }
    }

    /// Takes one more reference.
    ///
    /// # Panics
    /// When there is no reference to copy (the object is already free), or [`LIMIT`](Self::LIMIT) is reached.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn hold(&self) {
        // Relaxed: rule 1; the reference that the caller has keeps the object alive.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before == 0 || before > Self::LIMIT {
            hold_refused(before);
        }
    }

    /// Gives one reference back. `true`: it was the last, and the caller must free the object.
    ///
    /// # Panics
    /// When there was no reference left to release.
    #[inline]
    #[must_use = "the last release must free the object"]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release(&self) -> bool {
        // A sole holder needs no locked instruction: nobody else can hold or release.
        // Acquire: pairs with the release below of those that went before.
        if self.0.load(Ordering::Acquire) == 1 {
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        // Release: publishes what this holder did to whoever frees.
        match self.0.fetch_sub(1, Ordering::Release) {
            0 => released_too_often(),
            1 => {
                // Acquire: pairs with the releases of the other holders.
                acquire_after_last(&self.0);
                true
            }
            _ => false,
        }
    }

    /// True when the caller's reference is the only one, and stays so as long as the caller shares it
    /// with nobody.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // Acquire: pairs with the release in `release`; what others did to the object is visible.
        self.0.load(Ordering::Acquire) == 1
    }

    /// References at some recent moment; for reports.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Refs {
    fn default() -> Self {
        Self::new()
    }
}

#[cold]
#[inline(never)]
fn hold_refused(before: u32) -> ! {
    if before == 0 {
        panic!("reference held on an object that has none left: hold() needs a valid reference to copy");
    }
    panic!("{before} references on one object: some holder takes references and never releases them");
}

#[cold]
#[inline(never)]
fn released_too_often() -> ! {
    panic!("reference released too often: the object had none left");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn last_release_tells_the_caller_to_free() {
        let refs = Refs::new();
        refs.hold();
        assert!(!refs.is_sole());
        assert!(!refs.release());
        assert!(refs.is_sole());
        assert!(refs.release());
    }

    #[test]
    #[should_panic(expected = "reference released too often")]
    fn releasing_too_often_is_refused() {
        let refs = Refs::new();
        assert!(refs.release());
        let _ = refs.release();
    }

    #[test]
    #[should_panic(expected = "hold() needs a valid reference")]
    fn holding_a_freed_object_is_refused() {
        let refs = Refs::new();
        assert!(refs.release());
        refs.hold();
    }
}
