//! A mutex with a class.

use super::LockClass;
use super::class::held;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A mutex around a value, of a [`LockClass`].
///
/// # Cost
/// Free: one compare-and-swap to take, one to release, as in `parking_lot`. Taken: a short spin with
/// back-off, then the thread parks; the wait is counted in the lane's slot of the class.
///
/// A panic of the holder does not poison the lock.
pub struct Mutex<T> {
    inner: raw::Inner<T>,
}

impl<T> Mutex<T> {
    crate::model::const_fn! {
        /// Creates a free lock around `value`.
        pub fn new(class: &'static LockClass, value: T) -> Self { Self { inner: raw::Inner::new(class,
            value) } }
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Panics
    /// In debug builds, if the call violates the order of ranks.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        held::check(self.class(), self.address());
        let guard = self.inner.lock();
        held::push(self.class(), self.address());
        MutexGuard { mutex: self, guard }
    }

    /// Takes the lock if it is free. Never waits, so the order of ranks does not matter.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock()?;
        held::push(self.class(), self.address());
        Some(MutexGuard { mutex: self, guard })
    }

    /// Returns the value; the exclusive borrow excludes all other accesses.
    #[cfg(not(loom))]
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Returns the class given to `new`.
    #[inline]
    pub fn class(&self) -> &'static LockClass {
        self.inner.class()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.class().name())
    }
}

/// Releases the lock when dropped.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: raw::Guard<'a, T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn deref(&self) -> &T {
        self.guard.value()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.value_mut()
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        held::pop(self.mutex.address()); // then the raw guard releases
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(loom)]
mod raw {
    use super::LockClass;

    pub(super) struct Inner<T>(&'static LockClass, loom::sync::Mutex<T>);
    pub(super) struct Guard<'a, T>(loom::sync::MutexGuard<'a, T>);

    impl<T> Inner<T> {
        pub(super) fn new(class: &'static LockClass, value: T) -> Self {
            Self(class, loom::sync::Mutex::new(value))
        }
        pub(super) fn class(&self) -> &'static LockClass {
            self.0
        }
        pub(super) fn lock(&self) -> Guard<'_, T> {
            Guard(self.1.lock().expect("no model goes on after a panic"))
        }
        pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.1.try_lock().ok().map(Guard)
        }
    }

    impl<T> Guard<'_, T> {
        pub(super) fn value(&self) -> &T {
            &self.0
        }
        pub(super) fn value_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

#[cfg(not(loom))]
mod raw {
    use super::LockClass;
    use crate::cell::UnsafeCell;
    use crate::lock::word::ClassedWord;
    use std::marker::PhantomData;

    /// Field order matters: the word stands directly before the value, so that both can be on one line.
    #[repr(C)]
    pub(super) struct Inner<T> {
        word: ClassedWord,
        value: UnsafeCell<T>,
    }

    // SAFETY: only a `Guard` gives access to `value`, and one thread at a time has one.
    unsafe impl<T: Send> Sync for Inner<T> {}
    // SAFETY: owns its value, and nothing else.
    unsafe impl<T: Send> Send for Inner<T> {}

    pub(super) struct Guard<'a, T> {
        inner: &'a Inner<T>,
        /// Keeps a guard on its thread: the debug list of held locks belongs to that thread.
        not_send: PhantomData<*const ()>,
    }

    // SAFETY: a shared guard gives `&T` and nothing else.
    unsafe impl<T: Sync> Sync for Guard<'_, T> {}

    impl<T> Inner<T> {
        #[inline]
        pub(super) const fn new(class: &'static LockClass, value: T) -> Self {
            Self { word: ClassedWord::new(class), value: UnsafeCell::new(value) }
        }

        #[inline]
        pub(super) fn class(&self) -> &'static LockClass {
            self.word.class
        }

        #[inline]
        #[cfg_attr(manylane_sim, track_caller)]
        pub(super) fn lock(&self) -> Guard<'_, T> {
            self.word.lock();
            Guard { inner: self, not_send: PhantomData }
        }

        #[inline]
        #[cfg_attr(manylane_sim, track_caller)]
        pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
            // A guard exists only if the lock was taken, since its drop releases the lock.
            self.word.word.take_free().then(|| Guard { inner: self, not_send: PhantomData })
        }

        #[inline]
        pub(super) fn get_mut(&mut self) -> &mut T {
            self.value.get_mut()
        }

        #[cfg(all(test, not(manylane_sim)))]
        pub(super) fn word(&self) -> &crate::lock::word::LockWord {
            &self.word.word
        }
    }

    impl<T> Guard<'_, T> {
        #[inline]
        #[cfg_attr(manylane_sim, track_caller)]
        pub(super) fn value(&self) -> &T {
            // SAFETY: the guard is the only way to the value.
            self.inner.value.with(|value| unsafe { &*value })
        }

        #[inline]
        #[cfg_attr(manylane_sim, track_caller)]
        pub(super) fn value_mut(&mut self) -> &mut T {
            // SAFETY: the guard is the only way to the value, and borrowed exclusively.
            self.inner.value.with_mut(|value| unsafe { &mut *value })
        }
    }

    impl<T> Drop for Guard<'_, T> {
        #[inline]
        #[cfg_attr(manylane_sim, track_caller)]
        fn drop(&mut self) {
            self.inner.word.unlock();
        }
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::lock::contention;
    use std::sync::mpsc;

    static OUTER: LockClass = LockClass::new("outer", 1);
    static INNER: LockClass = LockClass::new("inner", 2);
    static PEERS: LockClass = LockClass::new("peers", 3).ordered_by_address();

    #[test]
    fn counts_survive_many_threads() {
        const THREADS: u64 = 8;
        const EACH: u64 = 20_000;
        let total = Mutex::new(&OUTER, 0u64);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|_| *total.lock() += 1));
            }
        });
        assert_eq!(*total.lock(), THREADS * EACH);
    }

    #[test]
    fn a_try_that_fails_leaves_the_lock_with_its_holder() {
        let lock = Mutex::new(&OUTER, ());
        let held = lock.lock();
        let tries = || std::thread::scope(|scope| scope.spawn(|| lock.try_lock().is_some()).join());
        assert!(!tries().expect("no panic"), "it is taken");
        assert!(!tries().expect("no panic"), "and the first try has not released it");
        drop(held);
        assert!(tries().expect("no panic"), "now it is free");
    }

    #[test]
    fn a_wait_is_counted_and_a_free_lock_is_not() {
        static CLASS: LockClass = LockClass::new("counted", 1);
        let lock = Mutex::new(&CLASS, ());
        drop(lock.lock());
        assert!(contention().iter().all(|c| c.class != "counted"));
        let (started, has_started) = mpsc::channel();
        let guard = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                started.send(()).expect("the test listens");
                drop(lock.lock());
            });
            has_started.recv().expect("the thread starts");
            // `has_sleepers` tells when the other thread sleeps on the lock; the test needs no clock.
            while !lock.inner.word().has_sleepers() {
                std::thread::yield_now();
            }
            drop(guard);
        });
        let reported = contention();
        let counted = reported.iter().find(|c| c.class == "counted").expect("one wait");
        assert_eq!(counted.times, 1);
        assert!(counted.total >= counted.longest && !counted.longest.is_zero(), "{counted:?}");
    }

    #[test]
    fn a_free_lock_that_others_sleep_on_is_taken_without_counting_a_wait() {
        static CLASS: LockClass = LockClass::new("not counted", 1);
        let lock = Mutex::new(&CLASS, ());
        lock.inner.word().set_free_with_sleepers();
        drop(lock.lock());
        assert!(!lock.inner.word().has_sleepers(), "the release found that nobody sleeps");
        assert!(contention().iter().all(|c| c.class != "not counted"));
    }

    #[test]
    #[should_panic(expected = "a lock class has too high a rank: the highest is LockClass::REGISTRY")]
    fn a_rank_above_the_highest_is_refused() {
        let _ = LockClass::new("too high", u16::MAX);
    }

    #[test]
    fn a_registry_is_entered_under_a_leaf_and_slots_are_made_under_both() {
        static LEAF: LockClass = LockClass::new("a leaf", LockClass::LEAF);
        static REGISTRY: LockClass = LockClass::new("a registry", LockClass::REGISTRY);
        let (leaf, registry) = (Mutex::new(&LEAF, ()), Mutex::new(&REGISTRY, ()));
        let slots: crate::PerLane<u8> = crate::PerLane::new(|_| 5);
        let _leaf = leaf.lock();
        let _registry = registry.lock();
        assert_eq!(*slots.own(), 5);
    }

    #[test]
    fn ascending_ranks_and_addresses_are_allowed() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let peers = [Mutex::new(&PEERS, ()), Mutex::new(&PEERS, ())];
        let _outer = outer.lock();
        let _inner = inner.lock();
        let _low = peers[0].lock();
        let _high = peers[1].lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`outer` (rank 1) is taken while `inner` (rank 2) is held")]
    fn descending_ranks_panic_with_both_names() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`peers` are taken in descending order of address")]
    fn descending_addresses_of_one_class_panic() {
        let peers = [Mutex::new(&PEERS, ()), Mutex::new(&PEERS, ())];
        let _high = peers[1].lock();
        let _low = peers[0].lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`outer` (rank 1) is taken while `outer` (rank 1) is held")]
    fn two_locks_of_a_class_without_order_panic() {
        let locks = [Mutex::new(&OUTER, ()), Mutex::new(&OUTER, ())];
        let _first = locks[0].lock();
        let _second = locks[1].lock();
    }

    #[test]
    fn try_lock_never_waits_and_ignores_the_order() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let _inner = inner.lock();
        let held = outer.try_lock();
        assert!(held.is_some());
        assert!(outer.try_lock().is_none());
    }
}
