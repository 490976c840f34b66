//! The lock word: one byte, and a queue of sleeping threads outside of the lock.
//!
//! After the locks of WebKit (F. Pizlo, *Locking in WebKit*, 2016), as in `parking_lot`.
//!
//! # Protocol
//! 1. `LOCKED`: a thread holds the lock. The thread that changes the bit from clear to set holds the lock;
//!    only the holder clears the bit.
//! 2. `PARKED`: the queue may hold sleepers. A thread sets the bit only while `LOCKED` is set, before it
//!    sleeps, and joins the queue only if both bits are set at that moment (checked with the queue locked).
//! 3. A holder that finds `PARKED` releases the lock with the queue locked: it removes one sleeper, then
//!    stores the new state: `PARKED` if more threads sleep, and `LOCKED` if it hands the lock to the thread
//!    that it wakes.
//!
//! So no sleeper is forgotten: by rule 2 the holder sees its bit, by rule 3 the bit stays as long as the
//! queue has sleepers.
//!
//! # Progress
//! A running thread may take a free lock before the thread that was woken. Every `FAIR_EVERY`th contended
//! release of a thread hands the lock over instead, so each sleeper gets the lock in the end.

#[cfg(not(loom))]
use super::LockClass;
use crate::atomic::{AtomicU8, Ordering};
use crate::backoff::Backoff;

const FREE: u8 = 0;
const LOCKED: u8 = 1;
const PARKED: u8 = 2;

/// Period of handovers: after this many contended releases a thread gives the lock to the longest sleeper.
const FAIR_EVERY: u32 = 32;

/// Queues of sleeping threads, by address.
pub trait Parking {
    /// Sleeps in the queue of `key`, unless `validate`, called with the queue locked, returns false. Returns
    /// true if the waker handed the lock over.
    fn park(key: usize, validate: impl FnOnce() -> bool) -> bool;

    /// Removes the longest sleeper from the queue of `key`, calls `leave(removed one, more are left)` with
    /// the queue still locked, and wakes the sleeper with the result: true if the lock is handed over.
    fn unpark_one(key: usize, leave: impl FnOnce(bool, bool) -> bool);

    /// Counts contended releases of this thread. Returns true at every `FAIR_EVERY`th.
    fn turn_of_the_longest_sleeper() -> bool {
        use std::cell::Cell;
        thread_local! {
            static RELEASES: Cell<u32> = const { Cell::new(0) };
        }
        RELEASES.set(RELEASES.get().wrapping_add(1));
        RELEASES.get().is_multiple_of(FAIR_EVERY)
    }
}

/// The lock word: one byte of state.
#[derive(Debug)]
pub struct LockWord(AtomicU8);

impl LockWord {
    crate::model::const_fn! {
        /// A free lock.
        pub fn new() -> Self { Self(AtomicU8::new(FREE)) }
    }

    /// Takes the lock if it is free and no thread waits for it: the whole uncontended path.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn take_idle(&self) -> bool {
        // Acquire: pairs with the releases in `release_idle` and `release_queued`.
        self.0.compare_exchange_weak(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, even if other threads sleep.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn take_free(&self) -> bool {
        let state = self.0.load(Ordering::Relaxed);
        // Acquire: as in `take_idle`. Fails only if another thread took the lock meanwhile.
        state & LOCKED == 0
            && self.0.compare_exchange(state, state | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits until the caller holds the lock. Returns false if the lock was free and the caller did not wait.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn wait<P: Parking>(&self) -> bool {
        if self.take_free() {
            return false;
        }
        let mut backoff = Backoff::new();
        loop {
            let state = self.0.load(Ordering::Relaxed);
            // While other threads sleep, spinning seldom pays: the next holder is woken in order.
            if state & PARKED == 0 && !backoff.is_long() {
                backoff.wait();
            } else if self.announce(state) && P::park(self.key(), || self.is(LOCKED | PARKED)) {
                return true;
            }
            if self.take_free() {
                return true;
            }
        }
    }

    /// Sets `PARKED`. Returns false if the lock was freed meanwhile.
    #[cfg_attr(manylane_sim, track_caller)]
    fn announce(&self, state: u8) -> bool {
        let (order, unordered) = (Ordering::Relaxed, Ordering::Relaxed);
        state & LOCKED != 0
            && (state & PARKED != 0
                || self.0.compare_exchange(state, LOCKED | PARKED, order, unordered).is_ok())
    }

    /// Releases the lock if no thread sleeps: the whole uncontended path. Returns false if threads sleep.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release_idle(&self) -> bool {
        // Release: publishes the holder's writes to the acquire of the next holder.
        self.0.compare_exchange(LOCKED, FREE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock and wakes one sleeper.
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release_queued<P: Parking>(&self) {
        let fair = P::turn_of_the_longest_sleeper();
        P::unpark_one(self.key(), |removed, more| {
            let hand_over = removed && fair;
            let left = if more { PARKED } else { FREE } | if hand_over { LOCKED } else { FREE };
            // Release: as in `release_idle`. The lock of the queue orders a handover.
            self.0.store(left, Ordering::Release);
            hand_over
        });
    }

    #[cfg_attr(manylane_sim, track_caller)]
    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Sets the state that a release without handover leaves while more threads sleep.
    #[cfg(all(test, not(any(loom, manylane_sim))))]
    pub(super) fn set_free_with_sleepers(&self) {
        self.0.store(PARKED, Ordering::Relaxed);
    }

    #[cfg(all(test, not(any(loom, manylane_sim))))]
    pub(super) fn has_sleepers(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PARKED != 0
    }
}

impl Default for LockWord {
    fn default() -> Self {
        Self::new()
    }
}

/// A lock word and its class: all of a lock except its value. The slow paths are then not generic, and load
/// the class themselves.
#[cfg(not(loom))]
#[repr(C)] // the word comes last, beside the lock's value
pub(super) struct ClassedWord {
    pub(super) class: &'static LockClass,
    pub(super) word: LockWord,
}

#[cfg(not(loom))]
impl ClassedWord {
    #[inline]
    pub(super) const fn new(class: &'static LockClass) -> Self {
        Self { class, word: LockWord::new() }
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn lock(&self) {
        if !self.word.take_idle() {
            self.wait_and_count();
        }
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn unlock(&self) {
        if !self.word.release_idle() {
            self.word.release_and_wake();
        }
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn wait_and_count(&self) {
        #[cfg(manylane_sim)]
        if manylane_sim::active() {
            let started = manylane_sim::now();
            if self.word.wait::<simulated::Queues>() {
                let waited = manylane_sim::now() - started;
                manylane_sim::count_lock_wait(self.class.name(), waited);
                self.class.count_wait(waited);
            }
            return;
        }
        let started = std::time::Instant::now();
        if self.word.wait::<real::Queues>() {
            self.class.count_wait(started.elapsed());
        }
    }
}

#[cfg(not(loom))]
impl LockWord {
    #[cold]
    #[inline(never)]
    #[cfg_attr(manylane_sim, track_caller)]
    fn release_and_wake(&self) {
        #[cfg(manylane_sim)]
        if manylane_sim::active() {
            return self.release_queued::<simulated::Queues>();
        }
        self.release_queued::<real::Queues>();
    }
}

#[cfg(not(loom))]
mod real {
    use parking_lot_core::{DEFAULT_PARK_TOKEN, ParkResult, UnparkToken};

    const HANDED_OVER: UnparkToken = UnparkToken(1);
    const FREE_TO_TRY: UnparkToken = UnparkToken(0);

    /// The process-wide queues of `parking_lot_core`.
    pub(super) struct Queues;

    impl super::Parking for Queues {
        fn park(key: usize, validate: impl FnOnce() -> bool) -> bool {
            // SAFETY: the key is the address of a lock that the caller borrows, so no other object has it;
            // the closures neither panic nor call into the queues.
            let woken =
                unsafe { parking_lot_core::park(key, validate, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None) };
            matches!(woken, ParkResult::Unparked(HANDED_OVER))
        }

        fn unpark_one(key: usize, leave: impl FnOnce(bool, bool) -> bool) {
            // SAFETY: as above.
            unsafe {
                parking_lot_core::unpark_one(key, |result| {
                    if leave(result.unparked_threads != 0, result.have_more_threads) {
                        HANDED_OVER
                    } else {
                        FREE_TO_TRY
                    }
                });
            }
        }
    }
}

#[cfg(manylane_sim)]
mod simulated {
    /// The queues of the virtual machine.
    pub(super) struct Queues;

    impl super::Parking for Queues {
        fn park(key: usize, validate: impl FnOnce() -> bool) -> bool {
            manylane_sim::park(key, validate)
        }

        fn unpark_one(key: usize, leave: impl FnOnce(bool, bool) -> bool) {
            manylane_sim::unpark_one(key, leave);
        }

        /// Returns true as often as on the real machine. Virtual threads share a real thread, whose
        /// thread-local would mix them and outlive the run. So virtual time decides, which repeats between
        /// runs.
        fn turn_of_the_longest_sleeper() -> bool {
            let now = manylane_sim::now().as_nanos() as u64;
            let mixed = now.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            mixed.is_multiple_of(u64::from(super::FAIR_EVERY))
        }
    }
}
