//! Lane numbers: dense, one for each thread that uses lane state; a thread returns its number when it ends.
//!
//! A thread gets the lowest free number at its first use of per-lane state and keeps it until it ends; all
//! its thread-local destructors still run under the number. The next thread may get the same number, and
//! inherits the contents of the slots: counters go on counting, caches stay warm. A mutex orders the
//! handover, so the new owner sees all writes of the old one. Housekeeping that holds this mutex owns the
//! slots of all free numbers ([`for_each_free`]).
//!
//! Under `cfg(manylane_sim)` a virtual core's lane has the core's number.

use std::fmt;

/// Number of a lane: dense, and below [`MAX_LANES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u32);

/// Maximum number of lanes at the same time. Per-lane tables grow with the lanes that exist; this bound stops
/// a program that leaks threads from growing them without end.
pub const MAX_LANES: usize = 4096;

/// Error: a lane number that is not below [`MAX_LANES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOutOfRange(
    /// The requested number.
    pub usize,
);

impl fmt::Display for LaneOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {} is out of range: lanes are numbered from 0 to {}", self.0, MAX_LANES - 1)
    }
}

impl std::error::Error for LaneOutOfRange {}

impl LaneId {
    /// Returns the lane with the number `index`.
    ///
    /// # Errors
    /// [`LaneOutOfRange`] if `index` is not below [`MAX_LANES`].
    pub const fn new(index: usize) -> Result<Self, LaneOutOfRange> {
        if index < MAX_LANES { Ok(Self(index as u32)) } else { Err(LaneOutOfRange(index)) }
    }

    /// True if this is the calling thread's lane. Cheaper than a comparison with [`current`], since the
    /// thread takes no number.
    #[inline]
    pub fn is_current(self) -> bool {
        raw() == self.0
    }

    /// Returns the number as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Result of [`raw`] on a thread without a lane: larger than any table.
#[cfg_attr(manylane_sim, allow(dead_code))]
const NONE: u32 = u32::MAX;

/// Returns the lane of this thread. The first call on a thread takes a number.
///
/// Cost: one thread-local load.
///
/// # Panics
/// If [`MAX_LANES`] threads have a lane already.
#[inline]
pub fn current() -> LaneId {
    let number = raw();
    if number == NONE { LaneId(platform::take()) } else { LaneId(number) }
}

/// Returns the number of this thread's lane, or [`NONE`].
#[inline]
pub(crate) fn raw() -> u32 {
    platform::raw()
}

/// Returns the largest number of lanes that existed at the same time: only numbers below it can have slots.
pub fn highest() -> usize {
    platform::highest()
}

/// Calls `each` with every number that a thread returned and no thread took again. For housekeeping:
/// meanwhile no thread can take or return a number, so the slots of these lanes belong to the caller until
/// `each` returns (see [`LaneCell::with`](crate::LaneCell::with)). Slow; threads that start or end meanwhile
/// wait.
///
/// `each` must not take a lock, wait for a thread, or call this function again: the holder of that lock, or
/// that thread, may be about to take its first number, which is a deadlock.
///
/// Virtual cores and the threads of models return no numbers.
pub fn for_each_free(each: impl FnMut(LaneId)) {
    current(); // `each` may need this thread's number, and could not take one
    platform::for_each_free(each);
}

#[cfg(loom)]
pub(crate) use platform::restart;

/// Lanes of real threads. The simulator's build uses this, too, for the threads that set up a simulation:
/// their numbers start at [`OUTSIDE`], apart from those of the virtual cores.
#[cfg(not(loom))]
mod platform {
    use super::{LaneId, LaneOutOfRange, MAX_LANES, NONE};
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

    #[cfg(manylane_sim)]
    const OUTSIDE: u32 = 1024;
    #[cfg(not(manylane_sim))]
    const OUTSIDE: u32 = 0;

    pub(super) struct Numbers {
        next: u32,
        free: BinaryHeap<Reverse<u32>>,
    }

    static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers::starting_at(OUTSIDE));

    impl Numbers {
        pub(super) const fn starting_at(first: u32) -> Self {
            Self { next: first, free: BinaryHeap::new() }
        }

        /// Takes the lowest free number. The error is a sentence for the panic.
        pub(super) fn take(&mut self) -> Result<u32, String> {
            if let Some(Reverse(number)) = self.free.pop() {
                return Ok(number);
            }
            let number = self.next;
            if number as usize >= MAX_LANES {
                let error = LaneOutOfRange(number as usize);
                return Err(format!("{error}: {MAX_LANES} threads have a lane already; end some first"));
            }
            self.next = number + 1;
            Ok(number)
        }

        pub(super) fn give_back(&mut self, number: u32) {
            self.free.push(Reverse(number));
        }
    }

    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(NONE) };
    }

    #[inline]
    pub(super) fn raw() -> u32 {
        #[cfg(manylane_sim)]
        if let Some(core) = manylane_sim::current() {
            return core;
        }
        NUMBER.get()
    }

    /// The locked register of numbers.
    struct Register(MutexGuard<'static, Numbers>);

    impl Register {
        fn lock() -> Self {
            let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
            #[cfg(manylane_tsan)]
            ORDER.load(std::sync::atomic::Ordering::Acquire);
            Self(numbers)
        }
    }

    /// ThreadSanitizer does not see the order that std's mutex establishes for a thread that had to wait.
    /// This atomic shows that order; `scripts/tsan` sets the `cfg`.
    #[cfg(manylane_tsan)]
    static ORDER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    #[cfg(manylane_tsan)]
    impl Drop for Register {
        fn drop(&mut self) {
            ORDER.fetch_add(1, std::sync::atomic::Ordering::Release);
        }
    }

    #[cold]
    pub(super) fn take() -> u32 {
        let taken = Register::lock().0.take(); // unlocks before the panic, which would poison the lock
        let number = taken.unwrap_or_else(|sentence| panic!("{sentence}"));
        NUMBER.set(number);
        #[cfg(not(manylane_sim))]
        crate::arena::enter(LaneId(number));
        give_back_at_thread_end(number);
        number
    }

    pub(super) fn highest() -> usize {
        Register::lock().0.next as usize
    }

    pub(super) fn for_each_free(mut each: impl FnMut(LaneId)) {
        let register = Register::lock();
        register.0.free.iter().for_each(|Reverse(number)| each(LaneId(*number)));
    }

    /// Registers [`give_back`] with the system, which calls it when this thread ends.
    ///
    /// The mechanism is a pthread key, since its destructors run after those of Rust's thread-locals, which
    /// may still count or free on this lane. If the destructor of another key does so later, the thread takes
    /// a number again, and the system calls `give_back` once more.
    fn give_back_at_thread_end(number: u32) {
        static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
        let key = *KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: `key` is writable, and `give_back` has the signature of a destructor.
            let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) };
            assert_eq!(failed, 0, "the system has no thread-local key left for lane numbers");
            key
        });
        // The destructor runs only for values other than null, hence the addition.
        let value = std::ptr::without_provenance::<libc::c_void>(number as usize + 1);
        // SAFETY: the key was made above; the value is only ever read back as a number.
        let failed = unsafe { libc::pthread_setspecific(key, value) };
        assert_eq!(failed, 0, "the system has no memory for a lane number");
    }

    extern "C" fn give_back(value: *mut libc::c_void) {
        NUMBER.set(NONE);
        #[cfg(not(manylane_sim))]
        crate::arena::leave();
        Register::lock().0.give_back((value.addr() - 1) as u32);
    }
}

/// Lanes of the model checker's threads: numbered in the order of their first use. Threads return no numbers
/// within an execution.
#[cfg(loom)]
mod platform {
    use super::NONE;
    use std::cell::Cell;

    // std's thread-local: loom runs the threads of a model on one real thread, and several models in
    // parallel.
    std::thread_local! {
        static NEXT: Cell<u32> = const { Cell::new(0) };
    }

    loom::thread_local! {
        static NUMBER: Cell<u32> = Cell::new(NONE);
    }

    pub(super) fn raw() -> u32 {
        NUMBER.with(Cell::get)
    }

    pub(super) fn take() -> u32 {
        let number = NEXT.replace(NEXT.get() + 1);
        NUMBER.with(|n| n.set(number));
        number
    }

    pub(super) fn highest() -> usize {
        NEXT.get() as usize
    }

    pub(super) fn for_each_free(_: impl FnMut(super::LaneId)) {}

    pub(crate) fn restart() {
        NEXT.set(0);
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    #[test]
    fn numbers_of_live_threads_differ_and_are_given_back() {
        const THREADS: usize = 8;
        for _ in 0..50 {
            let barrier = Barrier::new(THREADS);
            let lanes: BTreeSet<LaneId> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|_| {
                        scope.spawn(|| {
                            let lane = current();
                            barrier.wait(); // all threads are alive here
                            assert_eq!(lane, current());
                            lane
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().expect("no assertion failed")).collect()
            });
            assert_eq!(lanes.len(), THREADS);
        }
        // 50 rounds of 8: without returned numbers there would be 400. Other tests run concurrently.
        assert!(highest() < 200, "{} lanes seen", highest());
    }

    #[test]
    fn a_number_is_free_from_the_end_of_its_thread_on_and_cannot_be_taken_while_it_is_visited() {
        let is_free = |lane| {
            let mut found = false;
            for_each_free(|free| found |= free == lane);
            found
        };
        assert!(!is_free(current()));
        // Threads of other tests may take the ended thread's number at once: repeat until the number is free.
        let ended = loop {
            let ended = std::thread::spawn(current).join().expect("no assertion failed");
            if is_free(ended) {
                break ended;
            }
        };
        let (tell, receiver) = std::sync::mpsc::channel();
        let mut starting = None;
        for_each_free(|free| {
            if free == ended {
                let tell = tell.clone();
                starting = Some(std::thread::spawn(move || {
                    tell.send(None).expect("the test listens");
                    tell.send(Some(current())).expect("the test listens");
                }));
                assert_eq!(receiver.recv(), Ok(None), "it runs");
                assert!(receiver.try_recv().is_err(), "and has no number");
            }
        });
        if let Some(starting) = starting {
            assert!(matches!(receiver.recv(), Ok(Some(_))));
            starting.join().expect("no assertion failed");
        }
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        let error = LaneId::new(MAX_LANES).expect_err("one too many");
        assert_eq!(error.to_string(), "lane 4096 is out of range: lanes are numbered from 0 to 4095");
        assert_eq!(LaneId::new(MAX_LANES - 1).map(LaneId::index), Ok(MAX_LANES - 1));
    }

    #[test]
    fn a_thread_beyond_the_last_lane_is_refused_and_gets_the_first_number_given_back() {
        let mut numbers = platform::Numbers::starting_at(0);
        for number in 0..MAX_LANES as u32 {
            assert_eq!(numbers.take(), Ok(number));
        }
        let sentence = "lane 4096 is out of range: lanes are numbered from 0 to 4095: 4096 threads have a \
            lane already; \
                        end some first";
        assert_eq!(numbers.take(), Err(sentence.to_owned()));
        numbers.give_back(700);
        numbers.give_back(7);
        assert_eq!(
            (numbers.take(), numbers.take(), numbers.take()),
            (Ok(7), Ok(700), Err(sentence.to_owned()))
        );
    }

    #[test]
    fn thread_local_destructors_still_run_on_the_lane() {
        struct AtEnd(std::sync::mpsc::Sender<LaneId>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                self.0.send(current()).expect("the test listens");
            }
        }
        thread_local! {
            static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
        }
        let (tell, receiver) = std::sync::mpsc::channel();
        let during = std::thread::spawn(move || {
            AT_END.set(Some(AtEnd(tell))); // registered before the thread takes the lane
            current()
        })
        .join()
        .expect("the thread ends well");
        assert_eq!(receiver.recv(), Ok(during));
    }
}
