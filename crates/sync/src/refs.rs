//! A reference count with the two verbs of the kernel: hold and release (R-A5).

use crate::atomic::{AtomicU32, Ordering, acquire_after_last};

/// A reference count.
///
/// # Protocol
/// 1. [`hold`](Self::hold) is legal only while the caller has a valid reference, or a lock that keeps one
///    alive. It therefore needs no ordering.
/// 2. Each holder releases its reference exactly once. The call that releases the last one returns `true`,
///    and sees everything that other holders did before their release: its caller frees the object.
///
/// # Cost
/// Holding: one locked add on the count's line. Releasing: one locked add; none if the caller is the only
/// holder, which a plain load shows.
#[derive(Debug)]
pub struct Refs(AtomicU32);

impl Refs {
    /// Largest plausible count; a larger one means leaked references. Half of the range, so that racing
    /// holders cannot wrap the count before one of them panics.
    pub const LIMIT: u32 = u32::MAX / 2;

    crate::model::const_fn! {
        /// Creates a count of one: the creator's reference.
        pub fn new() -> Self { Self(AtomicU32::new(1)) }
    }

    /// Adds one reference.
    ///
    /// # Panics
    /// If the count is zero (the object is already free), or above [`LIMIT`](Self::LIMIT).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn hold(&self) {
        // Relaxed: rule 1; the caller's reference keeps the object alive.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before == 0 || before > Self::LIMIT {
            hold_refused(before);
        }
    }

    /// Releases one reference. Returns `true` if it was the last: the caller must then free the object.
    ///
    /// # Panics
    /// If there is no reference to release.
    #[inline]
    #[must_use = "the last release must free the object"]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release(&self) -> bool {
        // A sole holder needs no locked instruction, since no other thread can hold or release.
        // Acquire: pairs with the release below, of earlier releases.
        if self.0.load(Ordering::Acquire) == 1 {
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        // Release: publishes this holder's writes to the thread that frees the object.
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

    /// True if the caller's reference is the only one. It stays so until the caller shares it.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // Acquire: pairs with the release in `release`; what other holders did to the object is visible.
        self.0.load(Ordering::Acquire) == 1
    }

    /// Returns the count at some recent moment, for reports.
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
