//! Injected failures: every n-th allocation fails, so that tests reach the code that handles it (R-B6).
//!
//! Compiled in debug builds and with the feature `fault-injection`; elsewhere [`every`] does nothing, and
//! [`ENABLED`] is false. After the fault injection of FreeBSD's `kern_malloc.c`.

use std::marker::PhantomData;

/// True if this build can inject failures.
pub const ENABLED: bool = cfg!(any(debug_assertions, feature = "fault-injection"));

/// Makes every `n`-th allocation of the calling thread from any pool fail while the returned guard lives: the
/// `n`-th, the `2n`-th and so on, counted from here, even if the lane's cache has an object. 0 injects no
/// failures. A nested guard takes precedence until it is dropped.
///
/// ```
/// use manylane_pool::{BytePool, Cause, inject};
/// let pool = BytePool::new("example", 100)?;
/// if inject::ENABLED {
///     let _guard = inject::every(2);
///     assert!(pool.alloc().is_ok());
///     assert_eq!(pool.alloc().unwrap_err().cause(), Cause::Injected);
/// }
/// assert!(pool.alloc().is_ok());
/// # Ok::<_, manylane_pool::PoolError>(())
/// ```
#[must_use = "failures stop when the guard is dropped"]
pub fn every(n: u64) -> Guard {
    #[cfg(any(debug_assertions, feature = "fault-injection"))]
    return Guard { earlier: on::STATE.replace(on::State { every: n, calls: 0 }), not_send: PhantomData };
    #[cfg(not(any(debug_assertions, feature = "fault-injection")))]
    {
        let _ = n;
        Guard { not_send: PhantomData }
    }
}

/// Ends the failures that [`every`] started.
#[derive(Debug)]
pub struct Guard {
    #[cfg(any(debug_assertions, feature = "fault-injection"))]
    earlier: on::State,
    /// Keeps the guard on its thread, to which the failures belong.
    not_send: PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.not_send;
        #[cfg(any(debug_assertions, feature = "fault-injection"))]
        on::STATE.set(self.earlier);
    }
}

/// Counts a call. Returns true if the call has to fail.
#[inline(always)]
pub(crate) fn hit() -> bool {
    #[cfg(any(debug_assertions, feature = "fault-injection"))]
    return on::hit();
    #[cfg(not(any(debug_assertions, feature = "fault-injection")))]
    false
}

#[cfg(any(debug_assertions, feature = "fault-injection"))]
mod on {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug)]
    pub(super) struct State {
        /// Period of the failures; 0 injects none.
        pub(super) every: u64,
        pub(super) calls: u64,
    }

    thread_local! {
        pub(super) static STATE: Cell<State> = const { Cell::new(State { every: 0, calls: 0 }) };
    }

    #[inline]
    pub(super) fn hit() -> bool {
        let State { every, calls } = STATE.get();
        if every == 0 {
            return false;
        }
        STATE.set(State { every, calls: calls + 1 });
        (calls + 1).is_multiple_of(every)
    }
}
