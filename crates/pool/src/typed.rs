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

/// A pool of values of type `T`, which is not zero-sized. The value is a cheap handle: copies refer to the
/// same pool, which lives as long as the process.
///
/// ```
/// use manylane_pool::Pool;
/// let streams: Pool<[u64; 8]> = Pool::new("streams")?;
/// let mut stream = streams.alloc([0; 8])?;
/// stream[3] = 1;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// The compiler refuses a zero-sized type:
/// ```compile_fail
/// let units = manylane_pool::Pool::<()>::new("units");
/// ```
pub struct Pool<T> {
    inner: &'static Inner,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Pool<T> {
    const HAS_SIZE: () = assert!(size_of::<T>() > 0, "values without a size need no pool");

    /// Creates a pool called `name`.
    ///
    /// # Errors
    /// [`PoolError`] if values are larger than [`MAX_OBJECT_BYTES`](crate::MAX_OBJECT_BYTES).
    pub fn new(name: &str) -> Result<Self, PoolError> {
        Self::with(name, Options::new())
    }

    /// Creates a pool as [`new`](Self::new), with options. An alignment below that of the type has no effect.
    ///
    /// # Errors
    /// [`PoolError`] for a size or an option that is out of range.
    #[allow(clippy::needless_pass_by_value)] // options are built in the call
    pub fn with(name: &str, options: Options) -> Result<Self, PoolError> {
        const { Self::HAS_SIZE };
        Ok(Self { inner: Inner::leak(name, size_of::<T>(), align_of::<T>(), &options)?, of: PhantomData })
    }

    /// Allocates an object that holds `value`. If there is none, `value` is dropped.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory, the limit is reached, or a test injected a failure.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(self, value: T) -> Result<Pooled<T>, AllocError> {
        self.alloc_with(|| value)
    }

    /// Allocates as [`alloc`](Self::alloc), and calls `make` once there is memory: a large value can be made
    /// in place, without a move. If `make` panics, the memory is lost.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); in that case `make` is not called.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc_with(self, make: impl FnOnce() -> T) -> Result<Pooled<T>, AllocError> {
        let (object, home) = self.inner.take()?;
        let object = object.cast::<T>();
        // SAFETY: this function owns the memory, which is large and aligned enough for a `T`.
        unsafe { object.write(make()) };
        Ok(Pooled { object, home, owns: PhantomData })
    }

    /// Makes the owner of a raw object.
    ///
    /// # Safety
    /// `object` came from [`Pooled::into_raw`] of this pool and has no other owner.
    #[inline]
    pub unsafe fn from_raw(self, object: NonNull<T>) -> Pooled<T> {
        Pooled { object, home: self.inner.home(), owns: PhantomData }
    }

    /// Returns the pool's name.
    pub fn name(self) -> &'static str {
        self.inner.name
    }

    /// Reads the pool's numbers while the lanes go on.
    pub fn report(self) -> PoolReport {
        PoolReport::of(self.inner)
    }

    /// Returns the call sites that allocated from this pool (R-C3), most bytes first. Empty without the
    /// feature `call-sites`.
    pub fn call_sites(self) -> Vec<CallSite> {
        MemReport::call_sites(self.inner)
    }

    /// Returns free objects to the allocator, and returns their number; see [`reclaim`](crate::reclaim).
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

/// Owns a value in a [`Pool`]. Dropping it returns the memory to the cache of the dropping lane; nothing can
/// then reach the memory through it (R-D3).
pub struct Pooled<T> {
    object: NonNull<T>,
    /// Part of the pool of the lane that allocated the object, most likely the lane that drops it.
    home: &'static Hot,
    owns: PhantomData<T>,
}

// SAFETY: it owns its value, as a box does, and any lane may free its memory.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: a shared reference gives `&T` and nothing else.
unsafe impl<T: Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    /// Gives up ownership; [`Pool::from_raw`] takes the object, on any lane.
    #[inline]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }

    /// Returns the value; its memory goes to the calling lane's cache.
    #[inline]
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: this value owns `T`, and does not touch it again.
        let value = unsafe { this.object.read() };
        // SAFETY: the memory came from this pool and is not used any more.
        unsafe { this.home.give_home(this.object.cast()) };
        value
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn drop(&mut self) {
        /// Frees the memory, even if the value's own drop panics.
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
            // SAFETY: this owns the value, and this is its end.
            unsafe { self.object.drop_in_place() };
        }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this owns the value, which is initialised until the drop.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this owns the value, which is initialised until the drop.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
