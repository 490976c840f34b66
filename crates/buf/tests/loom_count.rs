//! The biased count in every interleaving: threads concurrently drop, send and open handles on one cluster
//! (R-B2, R-B3, R-B5). The bytes are foreign, so that the free function can check how often and after which
//! thread it ran: every read of the bytes reads a cell that the free function writes, and the model checker
//! refuses a read that is not ordered before that write.
//!
//! Each model lists the outcomes that must occur at least once. The checker first runs the threads in the
//! order of their creation and tries other orders from there; it does not try a store of a later thread
//! before a load of an earlier one. So a thread that only reads is created last, or yields first.
#![allow(unsafe_code)] // the test is about foreign bytes
#![cfg(loom)]

use manylane_buf::{Chain, External, FreeIndex, Parcel, Segment};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{LaneId, lane, model, thread};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering}; // counts that are no part of the model
use std::sync::{Mutex, OnceLock};

const LEN: usize = 4;

#[repr(C)] // the bytes come first: a view of the first byte finds the rest
struct Foreign {
    bytes: [u8; LEN],
    is_read: UnsafeCell<()>,
    freed: AtomicUsize,
    freed_zeroed: AtomicUsize,
    freed_by: AtomicUsize,
}

/// Outcomes of the executions of one model.
struct Outcomes<T>(Mutex<BTreeSet<T>>);

impl<T: Ord + Debug> Outcomes<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    fn saw(&self, outcome: T) {
        self.0.lock().expect("no panic").insert(outcome);
    }

    /// Asserts that exactly these outcomes occurred.
    fn assert_all<const N: usize>(&self, expected: [T; N]) {
        assert_eq!(*self.0.lock().expect("no panic"), BTreeSet::from(expected), "what came out, what should");
    }
}

/// Foreign bytes for one execution of a model; checked and dropped at its end.
struct Observed(NonNull<Foreign>);

unsafe fn free(data: NonNull<u8>, len: usize, argument: usize) {
    let foreign = std::ptr::with_exposed_provenance::<Foreign>(argument);
    // SAFETY: an `Observed` keeps it until the end of the execution.
    unsafe {
        assert_eq!((data.as_ptr().cast_const(), len), (foreign.cast::<u8>(), LEN));
        (*foreign).is_read.with_mut(|_| ());
        (*foreign).freed.fetch_add(1, Ordering::Relaxed);
        (*foreign).freed_by.store(lane::current().index(), Ordering::Relaxed);
        if (0..LEN).all(|at| data.add(at).read() == 0) {
            (*foreign).freed_zeroed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Observed {
    fn new() -> (Self, Segment) {
        static INDEX: OnceLock<FreeIndex> = OnceLock::new();
        let index = *INDEX.get_or_init(|| FreeIndex::register("watched", free).expect("once"));
        let foreign = Box::into_raw(Box::new(Foreign {
            bytes: [1, 2, 3, 4],
            is_read: UnsafeCell::new(()),
            freed: AtomicUsize::new(0),
            freed_zeroed: AtomicUsize::new(0),
            freed_by: AtomicUsize::new(usize::MAX),
        }));
        let argument = foreign.expose_provenance();
        let foreign = NonNull::new(foreign).expect("a box is never null");
        // SAFETY: the bytes live until the end of the execution, and nothing else writes them.
        let segment = unsafe { External::from_raw(foreign.cast(), LEN, index, argument, true) };
        (Self(foreign), segment.expect("memory"))
    }

    /// Asserts that the bytes were freed once, zeroed if required, after all threads were joined. Returns the
    /// lane.
    fn check(self, zeroed: bool) -> LaneId {
        // SAFETY: made by `new`, and no other reference is left.
        let foreign = unsafe { Box::from_raw(self.0.as_ptr()) };
        assert_eq!(foreign.freed.load(Ordering::Relaxed), 1, "freed exactly once");
        assert_eq!(foreign.freed_zeroed.load(Ordering::Relaxed) == 1, zeroed, "zeroed if marked");
        LaneId::new(foreign.freed_by.load(Ordering::Relaxed)).expect("a lane freed it")
    }
}

/// Reads the bytes of a whole view of foreign bytes.
fn read(segment: &Segment) {
    let foreign = segment.as_ptr().cast::<Foreign>();
    // SAFETY: views in these models start at the first byte.
    unsafe { (*foreign).is_read.with(|_| ()) };
    assert_eq!(segment[0], 1);
}

fn parcel(segment: Segment) -> Parcel {
    Chain::from(segment).into()
}

fn open(parcel: Parcel) -> Segment {
    parcel.open().pop_front().expect("one segment")
}

/// Lanes that may have freed the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Main,
    Other,
    Third,
}

/// `here` is the main thread's lane, `other` that of the thread that returned it.
fn by(freed: LaneId, here: LaneId, other: LaneId) -> By {
    match freed {
        lane if lane == here => By::Main,
        lane if lane == other => By::Other,
        _ => By::Third,
    }
}

#[test]
fn owner_clones_and_drops_while_another_lane_drops() {
    static FREED: Outcomes<By> = Outcomes::new();
    model(|| {
        let here = lane::current();
        let (watch, segment) = Observed::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || {
            read(&open(sent));
            lane::current()
        });
        let copy = segment.clone();
        read(&segment);
        drop(segment);
        read(&copy);
        drop(copy);
        let other = other.join().expect("no assertion failed");
        FREED.saw(by(watch.check(false), here, other));
    });
    FREED.assert_all([By::Main, By::Other]);
}

#[test]
fn a_parcel_comes_back_while_its_owner_still_holds_on() {
    static SOLE: Outcomes<bool> = Outcomes::new();
    model(|| {
        let (watch, segment) = Observed::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || {
            let segment = open(sent);
            read(&segment);
            SOLE.saw(segment.is_unique());
            parcel(segment)
        });
        read(&segment);
        drop(segment); // the group may be gone when the parcel comes back
        let back = open(other.join().expect("no assertion failed"));
        read(&back);
        assert!(back.is_unique());
        drop(back);
        watch.check(false);
    });
    SOLE.assert_all([false, true]);
}

/// The last handle comes home in every execution; the order of the steps before differs.
#[test]
fn parcels_cross_in_both_directions() {
    model(|| {
        let here = lane::current();
        let (watch, keep) = Observed::new();
        let there = parcel(keep.clone());
        let to_us = parcel(keep.clone());
        let other = thread::spawn(move || {
            let segment = open(there);
            let copy = segment.clone();
            read(&copy);
            drop(segment);
            parcel(copy)
        });
        let again = open(to_us); // joins the group: `keep` is in it
        read(&again);
        drop(keep);
        let last = other.join().expect("no assertion failed");
        drop(again);
        drop(last); // without being opened
        assert_eq!(watch.check(false), here);
    });
}

#[test]
fn two_other_lanes_and_the_owner_drop_at_the_same_time() {
    static FREED: Outcomes<By> = Outcomes::new();
    model(|| {
        let here = lane::current();
        let (watch, segment) = Observed::new();
        let drops = |sent: Parcel| {
            thread::spawn(move || {
                read(&open(sent));
                lane::current()
            })
        };
        let (other, third) = (drops(parcel(segment.clone())), drops(parcel(segment.clone())));
        read(&segment);
        drop(segment);
        let other = other.join().expect("no assertion failed");
        third.join().expect("no assertion failed");
        FREED.saw(by(watch.check(false), here, other));
    });
    FREED.assert_all([By::Main, By::Other, By::Third]);
}

/// Both threads read and drop. The thread that goes first in the checker's first execution never finds itself
/// the only holder while the other has a handle. So there are two models: with `second_begins` the order is
/// reversed.
fn owner_role_moves(
    second_begins: bool,
    freed: &'static Outcomes<By>,
    later_is_sole: &'static Outcomes<bool>,
) {
    model(move || {
        let here = lane::current();
        let (watch, segment) = Observed::new();
        let first = parcel(segment.clone());
        let second = parcel(segment); // the last of the group: takes over its unit
        let other = thread::spawn(move || {
            if second_begins {
                thread::yield_now();
            }
            let segment = open(first); // re-owns it if the other handle is gone
            let sole = segment.is_unique();
            let copy = segment.clone();
            read(&segment);
            drop(segment);
            read(&copy);
            (lane::current(), sole)
        });
        let third = thread::spawn(move || {
            let segment = open(second);
            let sole = segment.is_unique();
            read(&segment);
            let copy = segment.clone();
            drop(copy);
            read(&segment);
            sole
        });
        let (other, first_sole) = other.join().expect("no assertion failed");
        let second_sole = third.join().expect("no assertion failed");
        later_is_sole.saw(if second_begins { first_sole } else { second_sole });
        freed.saw(by(watch.check(false), here, other));
    });
    freed.assert_all([By::Other, By::Third]);
    later_is_sole.assert_all([false, true]);
}

#[test]
fn the_owner_role_moves_by_a_plain_load_while_another_lane_drops() {
    static FREED: Outcomes<By> = Outcomes::new();
    static SOLE: Outcomes<bool> = Outcomes::new();
    owner_role_moves(false, &FREED, &SOLE);
}

#[test]
fn the_owner_role_moves_to_the_first_of_two_lanes_as_well() {
    static FREED: Outcomes<By> = Outcomes::new();
    static SOLE: Outcomes<bool> = Outcomes::new();
    owner_role_moves(true, &FREED, &SOLE);
}

#[test]
fn racing_zero_marks_are_seen_by_whoever_frees() {
    static FREED: Outcomes<By> = Outcomes::new();
    model(|| {
        let here = lane::current();
        let (watch, segment) = Observed::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || {
            let segment = open(sent);
            read(&segment);
            segment.zero_on_free().expect("declared writable");
            lane::current()
        });
        segment.zero_on_free().expect("declared writable");
        drop(segment);
        let other = other.join().expect("no assertion failed");
        FREED.saw(by(watch.check(true), here, other));
    });
    FREED.assert_all([By::Main, By::Other]);
}

#[test]
fn a_single_mark_is_never_lost() {
    static FREED: Outcomes<By> = Outcomes::new();
    model(|| {
        let here = lane::current();
        let (watch, segment) = Observed::new();
        let (marks, looks) = (parcel(segment.clone()), parcel(segment));
        let marker = thread::spawn(move || {
            open(marks).zero_on_free().expect("declared writable");
            lane::current()
        });
        let looker = thread::spawn(move || drop(open(looks)));
        let marker = marker.join().expect("no assertion failed");
        looker.join().expect("no assertion failed");
        FREED.saw(by(watch.check(true), here, marker));
    });
    FREED.assert_all([By::Other, By::Third]);
}

/// Writes if it is the only handle; returns true if it did.
fn write_if_sole(mut segment: Segment) -> bool {
    let foreign = segment.as_ptr().cast::<Foreign>();
    let Some(bytes) = segment.try_unique() else { return false };
    // SAFETY: the watch keeps it. The model refuses this write if a read is not ordered before it.
    unsafe { (*foreign).is_read.with_mut(|_| ()) };
    bytes[1] = 9;
    true
}

#[test]
fn a_sole_holder_writes_only_after_the_others_have_looked() {
    static WROTE: Outcomes<bool> = Outcomes::new();
    model(|| {
        let (watch, segment) = Observed::new();
        let (looks, writes) = (parcel(segment.clone()), parcel(segment));
        let looker = thread::spawn(move || read(&open(looks)));
        let writer = thread::spawn(move || write_if_sole(open(writes)));
        looker.join().expect("no assertion failed");
        WROTE.saw(writer.join().expect("no assertion failed"));
        watch.check(false);
    });
    WROTE.assert_all([false, true]);
}

/// The same for a handle of the group. The owner's thread is the first one here, so it yields to the other.
#[test]
fn an_owner_that_is_the_sole_holder_writes_only_after_the_others_have_looked() {
    static WROTE: Outcomes<bool> = Outcomes::new();
    model(|| {
        let (watch, segment) = Observed::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || read(&open(sent)));
        thread::yield_now();
        WROTE.saw(write_if_sole(segment));
        other.join().expect("no assertion failed");
        watch.check(false);
    });
    WROTE.assert_all([false, true]);
}
