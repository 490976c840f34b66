//! Lock classes: the name, the rank and the wait counters that all locks of one kind share.

use crate::atomic::OwnedU64;
use crate::per_lane::PerLane;
use std::sync::Once;
#[cfg(not(loom))]
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::Duration;

/// A kind of lock.
///
/// Threads take locks in ascending order of rank: in debug builds a thread that holds a lock and takes
/// another of the same or a lower rank panics, with both names. A thread may hold several locks of one class
/// only if the class is [ordered by address](Self::ordered_by_address), and takes them in ascending order of
/// address.
///
/// ```
/// use manylane_sync::{LockClass, Mutex};
/// static NAMES: LockClass = LockClass::new("names", 10);
/// let names = Mutex::new(&NAMES, vec!["a"]);
/// names.lock().push("b");
/// ```
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    rank: u16,
    by_address: bool,
    #[cfg(not(loom))]
    waits: Waits,
}

impl LockClass {
    /// The rank of a lock under which a thread takes no other, registries apart.
    pub const LEAF: u16 = u16::MAX - 2;
    /// The highest public rank, for registries that objects enter at their first use, which may happen under
    /// a leaf. A thread takes no other lock under such a one.
    pub const REGISTRY: u16 = u16::MAX - 1;
    /// Rank of locks inside this crate, which a thread may take under any other.
    const INNERMOST: u16 = u16::MAX;

    /// Creates a class called `name`; threads take lower ranks first.
    ///
    /// # Panics
    /// If the rank is above [`REGISTRY`](Self::REGISTRY); for a static at compile time.
    pub const fn new(name: &'static str, rank: u16) -> Self {
        assert!(
            rank <= Self::REGISTRY,
            "a lock class has too high a rank: the highest is LockClass::REGISTRY"
        );
        Self::any(name, rank)
    }

    /// Creates a class for a lock inside this crate.
    pub(crate) const fn innermost(name: &'static str) -> Self {
        Self::any(name, Self::INNERMOST)
    }

    const fn any(name: &'static str, rank: u16) -> Self {
        Self {
            name,
            rank,
            by_address: false,
            #[cfg(not(loom))]
            waits: Waits { slots: PerLane::new(|_| Slot::new()), listed: Once::new() },
        }
    }

    /// Lets a thread hold several locks of this class, taken in ascending order of their addresses.
    #[must_use]
    pub const fn ordered_by_address(mut self) -> Self {
        self.by_address = true;
        self
    }

    /// Returns the name that reports show.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rank: threads take lower ranks first.
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// Counts a wait of `waited` for a lock of this class. For the slow path only.
    #[cfg(not(loom))]
    #[cold]
    pub(crate) fn count_wait(&'static self, waited: Duration) {
        // The innermost locks guard the slots that hold these counts.
        if self.rank != Self::INNERMOST {
            self.waits.count(self, waited);
        }
    }
}

#[derive(Debug)]
#[cfg_attr(loom, allow(dead_code))] // statics cannot hold loom's atomics, and models check no such counts
struct Waits {
    slots: PerLane<Slot>,
    listed: Once,
}

#[derive(Debug)]
#[cfg_attr(loom, allow(dead_code))]
struct Slot {
    times: OwnedU64,
    total_ns: OwnedU64,
    longest_ns: OwnedU64,
}

/// Every class whose locks ever made a thread wait.
#[cfg(not(loom))]
static LISTED: StdMutex<Vec<&'static LockClass>> = StdMutex::new(Vec::new());

#[cfg(not(loom))]
impl Waits {
    fn count(&self, class: &'static LockClass, waited: Duration) {
        self.listed.call_once(|| LISTED.lock().unwrap_or_else(PoisonError::into_inner).push(class));
        let ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let slot = self.slots.own();
        slot.times.add(1);
        slot.total_ns.add(ns);
        slot.longest_ns.set(slot.longest_ns.get().max(ns));
    }

    fn sum(&self, class: &LockClass) -> Contention {
        let mut sum =
            Contention { class: class.name, times: 0, total: Duration::ZERO, longest: Duration::ZERO };
        for (_, slot) in self.slots.iter() {
            sum.times += slot.times.get();
            sum.total += Duration::from_nanos(slot.total_ns.get());
            sum.longest = sum.longest.max(Duration::from_nanos(slot.longest_ns.get()));
        }
        sum
    }
}

#[cfg(not(loom))]
impl Slot {
    const fn new() -> Self {
        Self { times: OwnedU64::new(0), total_ns: OwnedU64::new(0), longest_ns: OwnedU64::new(0) }
    }
}

/// How much the locks of one class made threads wait since the program started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The class's name.
    pub class: &'static str,
    /// Number of times that a thread found a lock taken.
    pub times: u64,
    /// Time spent waiting, over all threads.
    pub total: Duration,
    /// The longest single wait.
    pub longest: Duration,
}

/// Returns the classes whose locks ever made a thread wait, in descending order of total time. Reads the
/// lanes' slots and stops no lane; may miss a wait that a lane is just counting.
pub fn contention() -> Vec<Contention> {
    #[cfg(not(loom))]
    {
        let classes = LISTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<_> = classes.into_iter().map(|class| class.waits.sum(class)).collect();
        all.sort_by_key(|c| std::cmp::Reverse(c.total));
        all
    }
    #[cfg(loom)]
    Vec::new()
}

/// The list of the locks that this thread holds, in debug builds. (Virtual cores and modelled threads share a
/// real thread, so their builds have no list.)
#[cfg(all(debug_assertions, not(any(loom, manylane_sim))))]
pub(super) mod held {
    use super::LockClass;
    use std::cell::RefCell;

    /// Maximum number of locks that a thread may hold: far more than any does. An array, not a `Vec`, since a
    /// process without memory takes locks, too.
    const MOST: usize = 32;

    type Held = [Option<(&'static LockClass, usize)>; MOST];

    thread_local! {
        static HELD: RefCell<Held> = const { RefCell::new([None; MOST]) };
    }

    /// Panics if taking the lock at `address` now violates the order.
    pub(in crate::lock) fn check(class: &'static LockClass, address: usize) {
        // A thread-local that is already destroyed holds no lock.
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            let Some(&(last, at)) = held.iter().flatten().max_by_key(|(c, a)| (c.rank, *a)) else { return };
            let same = std::ptr::eq(last, class);
            let in_order = class.rank > last.rank || (same && class.by_address && address > at);
            if in_order {
                return;
            }
            drop(held);
            if same && class.by_address {
                panic!(
                    "lock order violated: two locks of class `{}` are taken in descending order of address; \
                     take the lower address first",
                    class.name
                );
            }
            panic!(
                "lock order violated: `{}` (rank {}) is taken while `{}` (rank {}) is held; \
                 take the lower rank first",
                class.name, class.rank, last.name, last.rank
            );
        });
    }

    pub(in crate::lock) fn push(class: &'static LockClass, address: usize) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let free = held.iter_mut().find(|slot| slot.is_none());
            *free.expect("a thread holds more locks than `MOST`") = Some((class, address));
        });
    }

    pub(in crate::lock) fn pop(address: usize) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(slot) = held.iter_mut().find(|slot| slot.is_some_and(|(_, at)| at == address)) {
                *slot = None;
            }
        });
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, manylane_sim)))))]
pub(super) mod held {
    use super::LockClass;

    #[inline(always)]
    pub(in crate::lock) fn check(_: &'static LockClass, _: usize) {}
    #[inline(always)]
    pub(in crate::lock) fn push(_: &'static LockClass, _: usize) {}
    #[inline(always)]
    pub(in crate::lock) fn pop(_: usize) {}
}
