//! Published pointers (quiescent-state-based reclamation): readers use one plain load, writers replace the
//! value and free the old one later.
//!
//! After P. McKenney and J. Slingwine, *Read-Copy Update* (1998), in the variant in which readers announce
//! quiescent moments, moments in which they hold no reference, once a round of their loop.
//!
//! # Protocol
//! 1. A lane that reads has one [`Reader`]. The reader is *online* from its creation on, except while the
//!    closure of [`offline`](Reader::offline) runs. References from [`Published::load`] borrow the reader.
//! 2. [`Reader::quiescent`] borrows the reader exclusively, so the lane holds no reference at that moment. It
//!    copies the number of the last replacement that it can see into the lane's slot (`epoch`). Offline is
//!    `epoch == 0`.
//! 3. [`Published::replace`] swaps the pointer, then takes the next number for the old value. Once every lane
//!    is offline or has copied that number, no reference to the old value is left, and [`reclaim`] frees it.
//!
//! # Progress
//! Readers never wait. An online lane that never announces a quiescent moment delays the freeing, never the
//! replacing. Lanes go offline before they sleep.
//!
//! # Cost
//! Load: one plain load. Quiescent: one load of a line that only replacements write, and a store to the
//! lane's own line after a replacement. Replace and reclaim: a lock; reclaim also one miss for each lane. Not
//! for the data path.

use crate::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use crate::lock::{LockClass, Mutex};
use crate::per_lane::PerLane;
use crossbeam_utils::CachePadded;
use std::fmt;
use std::marker::PhantomData;

static RETIRED: LockClass = LockClass::new("retired pointers", LockClass::REGISTRY);

struct Domain {
    /// Number of the last replacement; written by `replace` only.
    last: CachePadded<AtomicU64>,
    readers: PerLane<Slot>,
    retired: Mutex<Vec<Retired>>,
    /// Number of retired values. Written under the lock of `retired`, read without it as a hint.
    waiting: AtomicUsize,
}

struct Slot {
    /// 0: offline. Otherwise the last replacement known at the lane's latest quiescent moment. The lane
    /// writes it, `reclaim` reads it.
    epoch: AtomicU64,
    /// True if the lane has a `Reader`. Only the lane reads and writes it.
    taken: AtomicBool,
}

struct Retired {
    number: u64,
    value: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: values are `Send` (see `Published::replace`), and this pointer is the last one to the value once
// readers are done.
unsafe impl Send for Retired {}

impl Domain {
    crate::model::const_fn! {
        fn new() -> Self {
            Self {
                last: CachePadded::new(AtomicU64::new(1)),
                readers: PerLane::new(|_| Slot { epoch: AtomicU64::new(0), taken: AtomicBool::new(false) }),
                retired: Mutex::new(&RETIRED, Vec::new()),
                waiting: AtomicUsize::new(0),
            }
        }
    }
}

#[cfg(not(loom))]
static DOMAIN: Domain = Domain::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref DOMAIN: Domain = Domain::new();
}

/// A lane's permission to read published values. It stays on its thread.
#[derive(Debug)]
pub struct Reader {
    /// Copy of the slot's `epoch`, so that a comparison does not touch the slot.
    epoch: u64,
    not_send: PhantomData<*const ()>,
}

impl Reader {
    /// Creates the reader and puts the calling lane online.
    ///
    /// # Panics
    /// If the lane has a reader already: the announcements of one would free values that the other still
    /// holds.
    pub fn new() -> Self {
        let slot = DOMAIN.readers.own();
        assert!(
            !slot.taken.swap(true, Ordering::Relaxed),
            "{:?} has a Reader already: pass that one to the code that reads",
            crate::lane::current()
        );
        let mut reader = Self { epoch: 0, not_send: PhantomData };
        reader.go_online();
        reader
    }

    fn go_online(&mut self) {
        // Acquire: pairs with the release in `replace`; later loads do not return values replaced up to here.
        self.epoch = DOMAIN.last.load(Ordering::Acquire);
        // Release: `reclaim` may see this store and miss the earlier store of `offline`, or of the drop of an
        // earlier reader. The reads before those stores are over, too.
        DOMAIN.readers.own().epoch.store(self.epoch, Ordering::Release);
        // Orders the store before the loads of pointers that follow: pairs with the fence in `reclaim`.
        // Either `reclaim` sees this lane online, or this lane sees the new pointer.
        fence(Ordering::SeqCst);
    }

    /// Announces that this lane holds no published value now. The lane calls this once a round.
    #[inline]
    pub fn quiescent(&mut self) {
        // Acquire: pairs with the release in `replace`.
        let last = DOMAIN.last.load(Ordering::Acquire);
        if last != self.epoch {
            self.announce(last);
        }
    }

    #[cold]
    fn announce(&mut self, last: u64) {
        self.epoch = last;
        // Release: a `reclaim` that sees this store knows that the reads of older values are over.
        DOMAIN.readers.own().epoch.store(last, Ordering::Release);
    }

    /// Runs `sleep` with the lane offline: `reclaim` frees values replaced meanwhile without waiting for the
    /// lane.
    pub fn offline<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        struct BackOnline<'a>(&'a mut Reader);
        impl Drop for BackOnline<'_> {
            fn drop(&mut self) {
                self.0.go_online();
            }
        }
        // Release: a `reclaim` that sees this store knows that the reads of older values are over.
        DOMAIN.readers.own().epoch.store(0, Ordering::Release);
        let _back = BackOnline(self);
        sleep()
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let slot = DOMAIN.readers.own();
        slot.taken.store(false, Ordering::Relaxed);
        // Release: a `reclaim` that sees this store knows that the reads of older values are over.
        slot.epoch.store(0, Ordering::Release);
    }
}

/// A value that lanes read with a plain load and any thread may replace.
///
/// ```
/// use manylane_sync::{Published, Reader, qsbr};
/// let limits = Published::new(vec![10, 20]);
/// let mut reader = Reader::new(); // one for each lane
/// assert_eq!(limits.load(&reader)[1], 20);
/// limits.replace(vec![30, 40]);   // from any thread
/// assert_eq!(limits.load(&reader)[1], 40);
/// reader.quiescent();             // once a round
/// qsbr::reclaim();                // off the data path
/// ```
pub struct Published<T> {
    current: AtomicPtr<T>,
    owns: PhantomData<T>,
}

// SAFETY: owns its value, which it drops on any thread (Send) and shares between threads (Sync).
unsafe impl<T: Send + Sync> Send for Published<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`.
    pub fn new(value: T) -> Self {
        Self { current: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// Returns the current value. It stays valid until the reader announces a quiescent moment, which the
    /// borrow checker forbids while the reference lives.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn load<'a>(&'a self, _reader: &'a Reader) -> &'a T {
        // Acquire: pairs with the release in `replace`; publishes the value's contents.
        // SAFETY: never null; by rule 3 not freed while this lane is online and not quiescent.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Publishes `value` in place of the current one, which a later [`reclaim`] frees.
    pub fn replace(&self, value: T) {
        // AcqRel: publishes the new value; acquires the contents of the old one, to free them.
        let old = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        let mut retired = DOMAIN.retired.lock();
        // Release: a lane that reads this number in `quiescent` loads the new pointer from then on.
        let number = DOMAIN.last.fetch_add(1, Ordering::AcqRel) + 1;
        retired.push(Retired { number, value: old.cast(), free: free::<T> });
        DOMAIN.waiting.store(retired.len(), Ordering::Relaxed);
    }
}

/// # Safety
/// `value` came from a `Box<T>`, and this is the last use of it.
unsafe fn free<T>(value: *mut ()) {
    // SAFETY: by contract.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: exclusive: references from `load` borrow `self`.
        drop(unsafe { Box::from_raw(self.current.load(Ordering::Relaxed)) });
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}

/// Returns the number of replaced values that are not freed yet: a hint, for the cost of one load.
pub fn replaced() -> usize {
    DOMAIN.waiting.load(Ordering::Relaxed)
}

/// Frees the replaced values that no lane can hold any more. Returns the number of values that must still
/// wait.
///
/// Without values to free this costs a load. Otherwise it takes a lock and reads each lane's slot: for a
/// housekeeping task, not for the data path.
pub fn reclaim() -> usize {
    // All lanes call this now and then, mostly with nothing to free: then no lane should wait for another.
    // The next call frees values that are replaced at this moment.
    if DOMAIN.waiting.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let mut retired = DOMAIN.retired.lock();
    // Orders the swaps before the reads of the slots: pairs with the fence in `go_online`. Under the lock,
    // since other threads swapped their values before they pushed them under the lock.
    fence(Ordering::SeqCst);
    let oldest = DOMAIN
        .readers
        .iter()
        // Acquire: pairs with the releases in `go_online`, `announce`, `offline` and `drop`.
        .map(|(_, slot)| slot.epoch.load(Ordering::Acquire))
        .filter(|&epoch| epoch != 0)
        .min()
        .unwrap_or(u64::MAX);
    let (free, keep): (Vec<_>, Vec<_>) = retired.drain(..).partition(|r| r.number <= oldest);
    *retired = keep;
    let waiting = retired.len();
    DOMAIN.waiting.store(waiting, Ordering::Relaxed);
    drop(retired); // destructors may publish or reclaim
    for value in free {
        // SAFETY: rule 3: every online lane announced a quiescent moment after the swap.
        unsafe { (value.free)(value.value) };
    }
    waiting
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex as StdMutex, PoisonError, mpsc};

    /// All readers of the process share one domain, so the tests with readers take turns.
    static TURN: StdMutex<()> = StdMutex::new(());

    #[test]
    fn an_old_value_lives_until_every_online_lane_was_quiescent() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let published = Published::new(Arc::new(1));
        let witness = Arc::downgrade(published.load(&Reader::new()));
        let (tell, results) = mpsc::channel();
        let (ask, receiver) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let published = &published;
            scope.spawn(move || {
                let mut reader = Reader::new();
                let held = published.load(&reader);
                tell.send(**held).expect("the test listens");
                receiver.recv().expect("the test asks");
                assert_eq!(**held, 1, "still there");
                reader.quiescent();
                tell.send(**published.load(&reader)).expect("the test listens");
                receiver.recv().expect("the test asks");
            });
            assert_eq!(results.recv(), Ok(1));
            published.replace(Arc::new(2));
            assert_eq!(reclaim(), 1, "one value waits for the reader");
            assert!(witness.upgrade().is_some());
            ask.send(()).expect("the reader listens");
            assert_eq!(results.recv(), Ok(2));
            assert_eq!(reclaim(), 0);
            assert!(witness.upgrade().is_none());
            ask.send(()).expect("the reader listens");
        });
    }

    #[test]
    fn whoever_has_nothing_to_free_waits_for_nobody() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        while reclaim() > 0 {
            std::thread::yield_now(); // readers of other tests end without help
        }
        let _somebody = DOMAIN.retired.lock();
        assert_eq!(reclaim(), 0, "with the lock it would not come back");
    }

    #[test]
    fn a_sleeping_lane_holds_nothing_up() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let published = Published::new(1);
        let mut reader = Reader::new();
        reader.offline(|| {
            published.replace(2);
            assert_eq!(reclaim(), 0);
        });
        assert_eq!(*published.load(&reader), 2);
    }

    #[test]
    #[should_panic(expected = "has a Reader already: pass that one to the code that reads")]
    fn a_second_reader_on_a_lane_is_refused() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _first = Reader::new();
        let _second = Reader::new();
    }

    #[test]
    fn values_survive_readers_and_writers_at_full_speed() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        const REPLACEMENTS: u64 = 5_000;
        let published = Published::new((0u64, !0u64));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut reader = Reader::new();
                    let mut last = 0;
                    while last < REPLACEMENTS {
                        let pair = published.load(&reader);
                        assert_eq!(pair.0, !pair.1, "a value is whole, and not freed");
                        assert!(pair.0 >= last, "time goes forward");
                        last = pair.0;
                        reader.quiescent();
                    }
                });
            }
            scope.spawn(|| {
                for n in 1..=REPLACEMENTS {
                    published.replace((n, !n));
                    reclaim();
                }
            });
        });
        assert_eq!(reclaim(), 0);
    }
}
