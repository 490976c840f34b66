//! `PerLane`: one slot for each lane. The table grows as lanes appear, and readers do not stop the writers.

use crate::atomic::{AtomicPtr, Ordering};
use crate::cell::UnsafeCell;
use crate::lane::{self, LaneId};
use crate::lock::{LockClass, Mutex};
use crossbeam_utils::CachePadded;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

static GROW: LockClass = LockClass::innermost("per-lane growth");

/// A `T` for each lane that used it, each on cache lines of its own (128 bytes, since cores prefetch lines in
/// pairs).
///
/// # Protocol
/// 1. The owning lane creates its slot, at its first [`own`](Self::own); the slot lives as long as the
///    `PerLane`. A thread that ends leaves its slot to the next thread with the same lane.
/// 2. `table` points to an array of slot pointers. A lane beyond its end replaces it with a larger copy. The
///    `PerLane` keeps the smaller tables until its end (together they are smaller than the last), so a reader
///    may finish on the table with which it began.
/// 3. Tables and slots change only under `growth`; a release store publishes them, an acquire load reads
///    them.
///
/// # Cost
/// `own`: three loads from lines that only a new lane writes. Reading all slots: one miss for each lane that
/// wrote since the last read.
pub struct PerLane<T, F = fn(LaneId) -> T> {
    table: AtomicPtr<Table<T>>,
    growth: Mutex<Vec<NonNull<Table<T>>>>,
    create: F,
    owns: PhantomData<T>,
}

/// Number of slots, then the array. All types share [`EMPTY`] as their table of length 0.
#[repr(C)]
struct Table<T> {
    len: usize,
    slots: [Slot<T>; 0],
}
type Slot<T> = AtomicPtr<CachePadded<T>>;

/// The empty table of any type: readers read only its length.
static EMPTY: Table<()> = Table { len: 0, slots: [] };

impl<T> Table<T> {
    fn empty() -> *mut Self {
        std::ptr::from_ref(&EMPTY).cast_mut().cast()
    }

    fn layout(len: usize) -> Layout {
        let (layout, _) = Layout::new::<Self>()
            .extend(Layout::array::<Slot<T>>(len).expect("a few thousand pointers fit"))
            .expect("a few thousand pointers fit");
        layout.pad_to_align()
    }

    /// # Safety
    /// `table` points to a live table.
    #[inline]
    unsafe fn slot<'a>(table: *mut Self, index: usize) -> Option<&'a Slot<T>> {
        // SAFETY: live by contract; the length never changes.
        if index >= unsafe { (*table).len } {
            return None;
        }
        // SAFETY: in bounds, and a table of this length was allocated with as many slots.
        Some(unsafe { &*(&raw const (*table).slots).cast::<Slot<T>>().add(index) })
    }

    /// Allocates a table of `len` slots that begins with those of `old`.
    ///
    /// # Safety
    /// `old` points to a live table, no longer than `len`, whose slots no thread writes meanwhile.
    unsafe fn grown(old: *mut Self, len: usize) -> NonNull<Self> {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size: it includes the length.
        let Some(new) = NonNull::new(unsafe { alloc(layout) }.cast::<Self>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: `new` was allocated for this; every slot is written before it is read.
        unsafe {
            (&raw mut (*new.as_ptr()).len).write(len);
            let slots = (&raw mut (*new.as_ptr()).slots).cast::<Slot<T>>();
            for index in 0..len {
                let copied =
                    Self::slot(old, index).map_or(std::ptr::null_mut(), |s| s.load(Ordering::Relaxed));
                slots.add(index).write(AtomicPtr::new(copied));
            }
        }
        new
    }

    /// # Safety
    /// `table` came from [`grown`](Self::grown), and no thread uses it any more.
    unsafe fn free(table: NonNull<Self>) {
        // SAFETY: by contract; loom's atomics need their destructor.
        unsafe {
            let len = (*table.as_ptr()).len;
            if std::mem::needs_drop::<Slot<T>>() {
                let slots = (&raw mut (*table.as_ptr()).slots).cast::<Slot<T>>();
                std::ptr::slice_from_raw_parts_mut(slots, len).drop_in_place();
            }
            dealloc(table.as_ptr().cast(), Self::layout(len));
        }
    }
}

// SAFETY: a `PerLane` owns its slots (Send), and hands out `&T` to any thread (Sync).
unsafe impl<T: Send, F: Send> Send for PerLane<T, F> {}
// SAFETY: as above; slots are created by one thread and dropped by another (Send); `create` runs on any.
unsafe impl<T: Send + Sync, F: Sync> Sync for PerLane<T, F> {}

impl<T, F> PerLane<T, F> {
    crate::model::const_fn! {
        /// Creates a `PerLane` without slots. `create` runs on each lane, at its first use, and makes its
        /// slot.
        pub fn new(create: F) -> Self {
            Self {
                table: AtomicPtr::new(std::ptr::from_ref(&EMPTY).cast_mut().cast()),
                growth: Mutex::new(&GROW, Vec::new()),
                create,
                owns: PhantomData,
            }
        }
    }

    /// Returns the slot of `lane`, if that lane ever used it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn get(&self, lane: LaneId) -> Option<&T> {
        self.at(lane.index())
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn at(&self, index: usize) -> Option<&T> {
        // Acquire: pairs with the release in `create_own`; publishes the table's slots.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: rule 2: the table lives as long as `self`. Acquire: as above, for the slot's contents.
        let slot = unsafe { Table::slot(table, index)? }.load(Ordering::Acquire);
        // SAFETY: rule 1: a slot lives as long as `self`.
        unsafe { slot.as_ref() }.map(|padded| &**padded)
    }

    /// Upper bound of the numbers of lanes that have a slot.
    pub(crate) fn bound(&self) -> usize {
        // SAFETY: rule 2. Acquire: as in `at`.
        unsafe { (*self.table.load(Ordering::Acquire)).len }
    }

    /// Iterates over all existing slots, in order of lane. May miss a lane that appears meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = (LaneId, &T)> {
        // Acquire: pairs with the release in `create_own`.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: rule 2.
        let len = unsafe { (*table).len };
        (0..len).filter_map(move |index| {
            // SAFETY: rules 1 and 2.
            let slot = unsafe { Table::slot(table, index)?.load(Ordering::Acquire).as_ref() };
            Some((LaneId::new(index).ok()?, &**slot?))
        })
    }
}

impl<T, F: Fn(LaneId) -> T> PerLane<T, F> {
    /// Returns the calling lane's slot.
    ///
    /// `create` may use other per-lane state. If it uses this `PerLane`, the innermost call makes the lane's
    /// slot, and the slots of the outer calls are dropped.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn own(&self) -> &T {
        // A thread without a lane has a number beyond every table.
        match self.at(lane::raw() as usize) {
            Some(slot) => slot,
            None => self.create_own(),
        }
    }

    #[cold]
    #[inline(never)]
    fn create_own(&self) -> &T {
        // A thread that takes its number only now may inherit the slot of an ended thread.
        let lane = lane::current();
        if let Some(inherited) = self.get(lane) {
            return inherited;
        }
        // Created before the lock is taken, since `create` may use other per-lane state.
        let slot = Box::into_raw(Box::new(CachePadded::new((self.create)(lane))));
        let mut retired = self.growth.lock();
        let mut table = self.table.load(Ordering::Relaxed);
        // SAFETY: rule 2; slots change only under the lock, which this thread holds.
        unsafe {
            if Table::slot(table, lane.index()).is_none() {
                let larger = Table::grown(table, (lane.index() + 1).next_power_of_two());
                if table != Table::empty() {
                    retired.push(NonNull::new_unchecked(table)); // never null: see `new`
                }
                table = larger.as_ptr();
                // Release: publishes the copied slots.
                self.table.store(table, Ordering::Release);
            }
            let entry = Table::slot(table, lane.index()).expect("the table was grown for it");
            let made_meanwhile = entry.load(Ordering::Relaxed);
            if made_meanwhile.is_null() {
                // Release: publishes the slot's contents.
                entry.store(slot, Ordering::Release);
                return &*slot;
            }
            // Only this lane creates its slot, so a nested call from `create` made this one, which is in use
            // already.
            drop(retired); // destructors may use other per-lane state
            drop(Box::from_raw(slot));
            &*made_meanwhile
        }
    }
}

impl<T, F> Drop for PerLane<T, F> {
    fn drop(&mut self) {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: exclusive access: this frees every slot and table once, and no reader is left.
        unsafe {
            let mut index = 0;
            while let Some(slot) = Table::slot(table, index) {
                let slot = slot.load(Ordering::Acquire);
                if !slot.is_null() {
                    drop(Box::from_raw(slot));
                }
                index += 1;
            }
            if table != Table::empty() {
                Table::free(NonNull::new_unchecked(table));
            }
            for retired in self.growth.lock().drain(..) {
                Table::free(retired);
            }
        }
    }
}

impl<T: fmt::Debug, F> fmt::Debug for PerLane<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A value inside a per-lane slot that only the owning lane touches, although readers share the slot.
#[derive(Debug, Default)]
pub struct LaneCell<T>(UnsafeCell<T>);

// SAFETY: the only access to the value is `with`, whose contract is that one thread at a time uses it; the
// handover between threads of the same lane is ordered (see `lane`).
unsafe impl<T: Send> Sync for LaneCell<T> {}

impl<T> LaneCell<T> {
    crate::model::const_fn! {
        /// Wraps `value`.
        pub fn new(value: T) -> Self { Self(UnsafeCell::new(value)) }
    }

    /// Calls `f` on the value.
    ///
    /// # Safety
    /// The calling thread's lane owns the slot that holds this cell (the slot came from [`PerLane::own`] on
    /// this thread), or the call is within [`lane::for_each_free`] for that lane. And no other call of `with`
    /// on this cell is active: `f` must not call it again.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: exclusive by contract.
        self.0.with_mut(|value| f(unsafe { &mut *value }))
    }
}

const _: () = {
    assert!(align_of::<CachePadded<u8>>() == 128 || !cfg!(target_arch = "x86_64"));
};

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::atomic::OwnedU64;
    use std::sync::Barrier;

    #[test]
    fn slots_are_sized_by_the_lanes_that_exist_and_padded() {
        let lanes: PerLane<OwnedU64> = PerLane::new(|_| OwnedU64::new(0));
        assert_eq!(lanes.iter().count(), 0);
        lanes.own().add(3);
        assert_eq!(lanes.iter().count(), 1);
        assert_eq!(std::ptr::from_ref(lanes.own()).addr() % 128, 0);
        assert_eq!(lanes.get(lane::current()).map(OwnedU64::get), Some(3));
    }

    #[test]
    fn readers_iterate_while_lanes_appear_and_nothing_is_lost() {
        const THREADS: u64 = 40;
        let lanes: PerLane<OwnedU64> = PerLane::new(|_| OwnedU64::new(0));
        let all_added = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    lanes.own().add(1);
                    let total: u64 = lanes.iter().map(|(_, n)| n.get()).sum();
                    assert!((1..=THREADS).contains(&total), "{total}");
                    all_added.wait();
                });
            }
        });
        assert_eq!(lanes.iter().map(|(_, n)| n.get()).sum::<u64>(), THREADS);
        assert_eq!(lanes.iter().count() as u64, THREADS);
    }

    #[test]
    fn a_slot_whose_making_uses_the_slot_is_one_slot() {
        use std::sync::{LazyLock, Weak, atomic};
        struct Counted(OwnedU64, Weak<()>);
        static MADE: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        static WITNESS: LazyLock<std::sync::Arc<()>> = LazyLock::new(std::sync::Arc::default);
        static LANES: PerLane<Counted> = PerLane::new(|_| {
            if MADE.fetch_add(1, atomic::Ordering::Relaxed) == 0 {
                LANES.own().0.add(7); // like an allocation counter whose slot is itself an allocation
            }
            Counted(OwnedU64::new(0), std::sync::Arc::downgrade(&WITNESS))
        });
        assert_eq!(LANES.own().0.get(), 7, "what was counted meanwhile is kept");
        assert_eq!(LANES.iter().count(), 1);
        assert_eq!(std::sync::Arc::weak_count(&WITNESS), 1, "and the slot that is not used is dropped");
        assert_eq!(LANES.own().1.strong_count(), 1);
    }

    #[test]
    fn every_slot_is_dropped_once() {
        use std::sync::Arc;
        let witness = Arc::new(());
        let lanes = PerLane::new({
            let witness = witness.clone();
            move |_| witness.clone()
        });
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| lanes.own());
            }
        });
        drop(lanes);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
