//! A word that only its lane touches.

use manylane_sync::cell::UnsafeCell;

/// A value that only the owning lane reads and writes (rule 1 of the crate's page).
///
/// A `std::cell::Cell` whose accesses the model checker and the simulator see. It is not `Sync`; the code
/// that puts it into shared memory ([`Home`](crate::home::Home)) argues there why only one lane reaches it.
pub(crate) struct Own<T>(UnsafeCell<T>);

impl<T: Copy> Own<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self) -> T {
        // SAFETY: not `Sync`: no other thread touches it, and no reference to its inside ever leaves this
        // type.
        self.0.with(|value| unsafe { *value })
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: as in `get`.
        self.0.with_mut(|pointer| unsafe { *pointer = value });
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn replace(&self, value: T) -> T {
        let before = self.get();
        self.set(value);
        before
    }
}
