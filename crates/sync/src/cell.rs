//! A cell whose accesses the model checker and the simulator see.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// `std::cell::UnsafeCell` with loom's closures in place of `get`.
///
/// A lock, a lane's ownership or a protocol of atomics must keep each `with_mut` apart from all concurrent
/// accesses. Under `cfg(loom)` the model checker verifies that; under `cfg(manylane_sim)` the simulator
/// charges the lines of the value to the core that touches them.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
}

#[cfg(not(loom))]
impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer. `f` may read through it as long as no thread writes.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.touch(false);
        f(self.0.get())
    }

    /// Calls `f` with a pointer. `f` may write through it as long as no other thread reads or writes.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.touch(true);
        f(self.0.get())
    }

    /// Returns the value; the exclusive borrow excludes all other accesses.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[cfg(not(manylane_sim))]
    #[inline(always)]
    fn touch(&self, _write: bool) {}

    #[cfg(manylane_sim)]
    #[track_caller]
    fn touch(&self, write: bool) {
        let access = if write { manylane_sim::Access::Store } else { manylane_sim::Access::Load };
        let address = self.0.get().cast::<u8>().addr();
        // SAFETY: the pointer comes from a live reference; only its metadata is read.
        let size = unsafe { size_of_val(&*self.0.get()) };
        manylane_sim::access(address, size, access, std::panic::Location::caller());
    }
}
