//! Pools of values of one type.

use crate::error::{AllocError, PoolError};
use crate::inner::{Hot, Inner};
use crate::options::Options;
use crate::report::PoolReport;
use manylane_stats::{CallSite, MemReport};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, needs_drop};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A pool of values of type `T`, which has a size. A cheap handle: copies are the same pool, which lives as
/// long as the process.
///
/// ```
/// use manylane_pool::Pool;
/// let streams: Pool<[u64; 8]> = Pool::new("streams")?;
/// let mut stream = streams.alloc([0; 8])?;
/// stream[3] = 1;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// A type without a size is refused by the compiler:
/// ```compile_fail
/// let units = manylane_pool::Pool::<()>::new("units");
/// ```
pub struct Pool<T> {
    inner: &'static Inner,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Pool<T> {
    const HAS_SIZE: () = assert!(size_of::<T>() > 0, "values without a size need no pool");

    /// A pool called `name`.
    ///
    /// # Errors
    /// [`PoolError`] when values are larger than [`MAX_OBJECT_BYTES`](crate::MAX_OBJECT_BYTES).
    pub fn new(name: &str) -> Result<Self, PoolError> {
        Self::with(name, Options::new())
    }

    /// As [`new`](Self::new), with options. An alignment below that of the type has no effect.
    ///
    /// # Errors
    /// [`PoolError`] for a size or an option that no pool can have.
    #[allow(clippy::needless_pass_by_value)] // options are built in the call
    pub fn with(name: &str, options: Options) -> Result<Self, PoolError> {
        const { Self::HAS_SIZE };
        Ok(Self { inner: Inner::leak(name, size_of::<T>(), align_of::<T>(), &options)?, of: PhantomData })
    }

    /// An object that holds `value`, which is dropped if there is none.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory, the limit is reached, or a test injected it.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(self, value: T) -> Result<Pooled<T>, AllocError> {
        self.alloc_with(|| value)
    }

    /// [`alloc`](Self::alloc), with a value that is made when there is a place for it: so a large one may be
    /// made there, and need not be moved. If `make` panics, the place is lost.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); `make` is not called then.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc_with(self, make: impl FnOnce() -> T) -> Result<Pooled<T>, AllocError> {
        let (object, home) = self.inner.take()?;
        let object = object.cast::<T>();
        // SAFETY: the memory is ours, and large and aligned enough for a `T`.
        unsafe { object.write(make()) };
        Ok(Pooled { object, home, owns: PhantomData })
    }

    /// The owner of an object again.
    ///
    /// # Safety
    /// `object` came from [`Pooled::into_raw`] of this pool and has no other owner.
    #[inline]
    pub unsafe fn from_raw(self, object: NonNull<T>) -> Pooled<T> {
        Pooled { object, home: self.inner.home(), owns: PhantomData }
    }

    /// The pool's name.
    pub fn name(self) -> &'static str {
        self.inner.name
    }

    /// The pool's numbers, read while the lanes go on.
    pub fn report(self) -> PoolReport {
        PoolReport::of(self.inner)
    }

    /// Who allocated from it (R-C3), most bytes first. Empty without the feature `call-sites`.
    pub fn call_sites(self) -> Vec<CallSite> {
        MemReport::call_sites(self.inner)
    }

    /// Gives free objects back to the allocator and returns how many; see [`reclaim`](crate::reclaim).
    pub fn reclaim(self) -> usize {
        self.inner.reclaim()
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pool<T> {}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?}, {} bytes)", self.inner.name, self.inner.options.layout.size())
    }
}

/// Owns a value in a [`Pool`]. Dropped, its memory goes to the cache of the lane that drops it, and nobody
/// can reach it any more (R-D3).
pub struct Pooled<T> {
    object: NonNull<T>,
    /// The part of the lane that took the object, most likely the one that drops it.
    home: &'static Hot,
    owns: PhantomData<T>,
}

// SAFETY: it owns its value, as a box does, and any lane may give its memory back.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: a shared reference gives `&T` and nothing else.
unsafe impl<T: Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    /// Gives up ownership; [`Pool::from_raw`] takes it back, on any lane.
    #[inline]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }

    /// The value; its memory goes to the calling lane's cache.
    #[inline]
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is ours, and is not touched again.
        let value = unsafe { this.object.read() };
        // SAFETY: the memory came from this pool and is not used any more.
        unsafe { this.home.give_home(this.object.cast()) };
        value
    }

    /// The pool that it belongs to.
    #[inline]
    pub fn pool(&self) -> Pool<T> {
        Pool { inner: self.home.pool(), of: PhantomData }
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn drop(&mut self) {
        /// Gives the memory back, even if the value's own drop panics.
        struct Memory(NonNull<u8>, &'static Hot);
        impl Drop for Memory {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: it came from this pool, and the value in it is gone.
                unsafe { self.1.give_home(self.0) };
            }
        }
        let _memory = Memory(self.object.cast(), self.home);
        if needs_drop::<T>() {
            // SAFETY: the value is ours, and this is its end.
            unsafe { self.object.drop_in_place() };
        }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we own the value; it is initialised until we drop it.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we own the value; it is initialised until we drop it.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
