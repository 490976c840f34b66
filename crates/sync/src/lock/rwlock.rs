//! A reader-writer lock with a class.

use super::LockClass;
use super::class::held;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A reader-writer lock around a value, of a [`LockClass`].
///
/// Every reader writes the line of the lock: with many cores that line is the bottleneck, however rare
/// writers are (`manylane-bench scale` shows it). For values that the data path reads, use
/// [`Published`](crate::Published).
pub struct RwLock<T> {
    class: &'static LockClass,
    inner: raw::Inner<T>,
}

impl<T> RwLock<T> {
    crate::model::const_fn! {
        /// Creates a free lock around `value`.
        pub fn new(class: &'static LockClass, value: T) -> Self { Self { class,
            inner: raw::Inner::new(value) } }
    }

    /// Waits until no writer holds or awaits the lock, then takes it in shared mode. A thread that holds the
    /// lock must not take it again.
    ///
    /// # Panics
    /// In debug builds, if the call violates the order of ranks.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        held::check(self.class, self.address());
        let guard = self.inner.read(self.class);
        held::push(self.class, self.address());
        RwLockReadGuard { lock: self, guard }
    }

    /// Waits until no thread holds the lock, then takes it in exclusive mode.
    ///
    /// # Panics
    /// In debug builds, if the call violates the order of ranks.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        held::check(self.class, self.address());
        let guard = self.inner.write(self.class);
        held::push(self.class, self.address());
        RwLockWriteGuard { lock: self, guard }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({:?})", self.class.name())
    }
}

/// Shares the lock until dropped.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    guard: raw::ReadGuard<'a, T>,
}

/// Holds the lock until dropped.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    guard: raw::WriteGuard<'a, T>,
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn deref(&self) -> &T {
        self.guard.value()
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn deref(&self) -> &T {
        self.guard.value()
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.value_mut()
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        held::pop(self.lock.address()); // then the raw guard releases
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        held::pop(self.lock.address()); // then the raw guard releases
    }
}

#[cfg(loom)]
mod raw {
    use super::LockClass;

    pub(super) struct Inner<T>(loom::sync::RwLock<T>);
    pub(super) struct ReadGuard<'a, T>(loom::sync::RwLockReadGuard<'a, T>);
    pub(super) struct WriteGuard<'a, T>(loom::sync::RwLockWriteGuard<'a, T>);

    impl<T> Inner<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }
        pub(super) fn read(&self, _: &'static LockClass) -> ReadGuard<'_, T> {
            ReadGuard(self.0.read().expect("no model goes on after a panic"))
        }
        pub(super) fn write(&self, _: &'static LockClass) -> WriteGuard<'_, T> {
            WriteGuard(self.0.write().expect("no model goes on after a panic"))
        }
    }

    impl<T> ReadGuard<'_, T> {
        pub(super) fn value(&self) -> &T {
            &self.0
        }
    }

    impl<T> WriteGuard<'_, T> {
        pub(super) fn value(&self) -> &T {
            &self.0
        }
        pub(super) fn value_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

#[cfg(not(any(loom, manylane_sim)))]
mod raw {
    use super::LockClass;
    use crate::cell::UnsafeCell;
    use parking_lot::RawRwLock;
    use parking_lot::lock_api::RawRwLock as Raw;
    use std::mem::ManuallyDrop;
    use std::time::Instant;

    /// Token that the raw lock returns when taken and expects at release.
    type Shared = <RawRwLock as Raw>::SharedGuard;
    type Exclusive = <RawRwLock as Raw>::ExclusiveGuard;

    pub(super) struct Inner<T> {
        raw: RawRwLock,
        value: UnsafeCell<T>,
    }

    // SAFETY: only guards give access to `value`: shared ones give `&T` (Sync), the exclusive one `&mut T`.
    unsafe impl<T: Send + Sync> Sync for Inner<T> {}
    // SAFETY: owns its value, and nothing else.
    unsafe impl<T: Send> Send for Inner<T> {}

    pub(super) struct ReadGuard<'a, T>(&'a Inner<T>, ManuallyDrop<Shared>);
    pub(super) struct WriteGuard<'a, T>(&'a Inner<T>, ManuallyDrop<Exclusive>);

    impl<T> Inner<T> {
        #[inline]
        pub(super) const fn new(value: T) -> Self {
            Self { raw: RawRwLock::INIT, value: UnsafeCell::new(value) }
        }

        #[inline]
        pub(super) fn read(&self, class: &'static LockClass) -> ReadGuard<'_, T> {
            let held = self.raw.try_lock_shared();
            let held = held.unwrap_or_else(|| waited(class, || self.raw.lock_shared()));
            ReadGuard(self, ManuallyDrop::new(held))
        }

        #[inline]
        pub(super) fn write(&self, class: &'static LockClass) -> WriteGuard<'_, T> {
            let held = self.raw.try_lock_exclusive();
            let held = held.unwrap_or_else(|| waited(class, || self.raw.lock_exclusive()));
            WriteGuard(self, ManuallyDrop::new(held))
        }

        /// True if a writer waits for the readers, one of which is the caller.
        #[cfg(test)]
        pub(super) fn is_awaited(&self) -> bool {
            let entered = self.raw.try_lock_shared().map(|held| ReadGuard(self, ManuallyDrop::new(held)));
            entered.is_none()
        }
    }

    #[cold]
    fn waited<G>(class: &'static LockClass, take: impl FnOnce() -> G) -> G {
        let started = Instant::now();
        let held = take();
        class.count_wait(started.elapsed());
        held
    }

    impl<T> ReadGuard<'_, T> {
        #[inline]
        pub(super) fn value(&self) -> &T {
            // SAFETY: while a shared guard exists there is no exclusive one.
            self.0.value.with(|value| unsafe { &*value })
        }
    }

    impl<T> WriteGuard<'_, T> {
        #[inline]
        pub(super) fn value(&self) -> &T {
            // SAFETY: the exclusive guard is the only way to the value.
            self.0.value.with(|value| unsafe { &*value })
        }

        #[inline]
        pub(super) fn value_mut(&mut self) -> &mut T {
            // SAFETY: the exclusive guard is the only way to the value, and borrowed exclusively.
            self.0.value.with_mut(|value| unsafe { &mut *value })
        }
    }

    impl<T> Drop for ReadGuard<'_, T> {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: this guard shares the lock, and is dropped once.
            unsafe { self.0.raw.unlock_shared(ManuallyDrop::take(&mut self.1)) };
        }
    }

    impl<T> Drop for WriteGuard<'_, T> {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: this guard holds the lock, and is dropped once.
            unsafe { self.0.raw.unlock_exclusive(ManuallyDrop::take(&mut self.1)) };
        }
    }
}

/// For virtual cores: readers count themselves in one word, a writer sets its top bit. A waiter spins with
/// back-off and then sleeps in the lock's queue.
#[cfg(manylane_sim)]
mod raw {
    use super::LockClass;
    use crate::atomic::{AtomicU32, Ordering};
    use crate::backoff::Backoff;
    use crate::cell::UnsafeCell;

    const WRITER: u32 = 1 << 31;

    pub(super) struct Inner<T> {
        state: AtomicU32,
        value: UnsafeCell<T>,
    }

    // SAFETY: only guards give access to `value`: shared ones give `&T` (Sync), the exclusive one `&mut T`.
    unsafe impl<T: Send + Sync> Sync for Inner<T> {}
    // SAFETY: owns its value, and nothing else.
    unsafe impl<T: Send> Send for Inner<T> {}

    pub(super) struct ReadGuard<'a, T>(&'a Inner<T>);
    pub(super) struct WriteGuard<'a, T>(&'a Inner<T>);

    impl<T> Inner<T> {
        pub(super) const fn new(value: T) -> Self {
            Self { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
        }

        #[track_caller]
        pub(super) fn read(&self, class: &'static LockClass) -> ReadGuard<'_, T> {
            self.take(class, |state| (state & WRITER == 0).then_some(state + 1));
            ReadGuard(self)
        }

        #[track_caller]
        pub(super) fn write(&self, class: &'static LockClass) -> WriteGuard<'_, T> {
            self.take(class, |state| (state == 0).then_some(WRITER));
            WriteGuard(self)
        }

        /// As in parking_lot: reads the word, then compares and swaps it, and repeats after a lost race.
        #[track_caller]
        fn take(&self, class: &'static LockClass, next: impl Fn(u32) -> Option<u32>) {
            let mut backoff = Backoff::new();
            let mut started = None;
            loop {
                let state = self.state.load(Ordering::Relaxed);
                if let Some(new) = next(state)
                    && self.state.compare_exchange(state, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    break;
                }
                started.get_or_insert_with(manylane_sim::now);
                if backoff.is_long() && manylane_sim::active() {
                    let key = (&raw const self.state).addr();
                    manylane_sim::park(key, || next(self.state.load(Ordering::Relaxed)).is_none());
                } else {
                    backoff.wait();
                }
            }
            if let Some(started) = started {
                let waited = manylane_sim::now() - started;
                manylane_sim::count_lock_wait(class.name(), waited);
                class.count_wait(waited);
            }
        }

        fn released(&self) {
            if manylane_sim::active() {
                let mut more = true;
                while more {
                    manylane_sim::unpark_one((&raw const self.state).addr(), |_, left| {
                        more = left;
                        false
                    });
                }
            }
        }
    }

    impl<T> ReadGuard<'_, T> {
        #[track_caller]
        pub(super) fn value(&self) -> &T {
            // SAFETY: while a shared guard exists there is no exclusive one.
            self.0.value.with(|value| unsafe { &*value })
        }
    }

    impl<T> WriteGuard<'_, T> {
        #[track_caller]
        pub(super) fn value(&self) -> &T {
            // SAFETY: the exclusive guard is the only way to the value.
            self.0.value.with(|value| unsafe { &*value })
        }

        #[track_caller]
        pub(super) fn value_mut(&mut self) -> &mut T {
            // SAFETY: the exclusive guard is the only way to the value, and borrowed exclusively.
            self.0.value.with_mut(|value| unsafe { &mut *value })
        }
    }

    impl<T> Drop for ReadGuard<'_, T> {
        #[track_caller]
        fn drop(&mut self) {
            // Release: the reads of this guard happen before the writes of the next writer.
            if self.0.state.fetch_sub(1, Ordering::Release) == 1 {
                self.0.released();
            }
        }
    }

    impl<T> Drop for WriteGuard<'_, T> {
        #[track_caller]
        fn drop(&mut self) {
            // Release: publishes this guard's writes to the acquire of the next holders.
            self.0.state.store(0, Ordering::Release);
            self.0.released();
        }
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::contention;

    static CLASS: LockClass = LockClass::new("table", 5);
    #[cfg(debug_assertions)]
    static EARLIER: LockClass = LockClass::new("earlier", 4);

    #[test]
    fn readers_share_and_writers_exclude() {
        let table = RwLock::new(&CLASS, (0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let mut both = table.write();
                        both.0 += 1;
                        both.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let both = table.read();
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(*table.read(), (20_000, 20_000));
    }

    #[test]
    fn a_wait_is_counted_with_its_class_and_a_free_lock_counts_nothing() {
        static CLASS: LockClass = LockClass::new("counted table", 6);
        let table = RwLock::new(&CLASS, ());
        let counted = || contention().into_iter().find(|c| c.class == "counted table");
        drop(table.write());
        let shared = table.read();
        assert_eq!(counted(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(table.write()));
            // A waiting writer keeps new readers out, so `is_awaited` shows that it waits; the test needs no
            // clock.
            while !table.inner.is_awaited() {
                std::thread::yield_now();
            }
            drop(shared);
        });
        let counted = counted().expect("one wait");
        assert_eq!(counted.times, 1);
        assert!(counted.total >= counted.longest && !counted.longest.is_zero(), "{counted:?}");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`earlier` (rank 4) is taken while `table` (rank 5) is held")]
    fn ranks_hold_for_shared_access_too() {
        let (table, earlier) = (RwLock::new(&CLASS, ()), RwLock::new(&EARLIER, ()));
        let _table = table.read();
        let _earlier = earlier.write();
    }
}
