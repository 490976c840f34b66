//! A word of a lane that no other lane touches.

use manylane_sync::cell::UnsafeCell;

/// A value that only the owning lane reads and writes (rule 1 of the crate's page).
///
/// `std::cell::Cell` that the model checker and the simulator see. It is not `Sync`; what puts it into shared
/// memory ([`Home`](crate::home::Home)) argues there why only one lane gets at it.
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
        // SAFETY: not `Sync`: nobody else touches it, and no reference to the inside is ever given out.
        self.0.with(|value| unsafe { *value })
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: as in `get`.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    #[inline(always)]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn replace(&self, value: T) -> T {
        let before = self.get();
        self.set(value);
        before
    }
}
