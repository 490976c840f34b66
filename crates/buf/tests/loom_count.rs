//! The biased count, in every interleaving: who drops, sends and opens handles on one cluster at the same time
//! (R-B2, R-B3, R-B5). The bytes are foreign, so that the free function can tell how often and after whom it ran:
//! every look at the bytes reads a cell that the free function writes, and the model checker refuses a read that
//! is not ordered before that write.
#![allow(unsafe_code)] // foreign bytes are the point
#![cfg(loom)]

use manylane_buf::{Chain, External, FreeIndex, Parcel, Segment};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{model, thread};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering}; // counts that are no part of the model

const LEN: usize = 4;

#[repr(C)] // the bytes come first: a view of the first byte finds the rest
struct Foreign {
    bytes: [u8; LEN],
    looked: UnsafeCell<()>,
    freed: AtomicUsize,
    freed_zeroed: AtomicUsize,
}

/// Foreign bytes for one execution of a model; checked and dropped at its end.
struct Watch(NonNull<Foreign>);

unsafe fn free(data: NonNull<u8>, len: usize, argument: usize) {
    let foreign = std::ptr::with_exposed_provenance::<Foreign>(argument);
    // SAFETY: a `Watch` keeps it until the end of the execution.
    unsafe {
        assert_eq!((data.as_ptr().cast_const(), len), (foreign.cast::<u8>(), LEN));
        (*foreign).looked.with_mut(|_| ());
        (*foreign).freed.fetch_add(1, Ordering::Relaxed);
        if (0..LEN).all(|at| data.add(at).read() == 0) {
            (*foreign).freed_zeroed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Watch {
    fn new() -> (Self, Segment) {
        static INDEX: OnceLock<FreeIndex> = OnceLock::new();
        let index = *INDEX.get_or_init(|| FreeIndex::register("watched", free).expect("once"));
        let foreign = Box::into_raw(Box::new(Foreign {
            bytes: [1, 2, 3, 4],
            looked: UnsafeCell::new(()),
            freed: AtomicUsize::new(0),
            freed_zeroed: AtomicUsize::new(0),
        }));
        let argument = foreign.expose_provenance();
        let foreign = NonNull::new(foreign).expect("a box is never null");
        // SAFETY: the bytes live until the end of the execution; nobody else writes them.
        let segment = unsafe { External::from_raw(foreign.cast(), LEN, index, argument, true) };
        (Self(foreign), segment.expect("memory"))
    }

    /// Once, and zeroed if it should be. All threads were joined.
    fn check(self, zeroed: bool) {
        // SAFETY: made by `new`, and nobody has it any more.
        let foreign = unsafe { Box::from_raw(self.0.as_ptr()) };
        assert_eq!(foreign.freed.load(Ordering::Relaxed), 1, "freed exactly once");
        assert_eq!(foreign.freed_zeroed.load(Ordering::Relaxed) == 1, zeroed, "zeroed if marked");
    }
}

/// Looks at the bytes that a whole view of foreign bytes shows.
fn look(segment: &Segment) {
    let foreign = segment.as_ptr().cast::<Foreign>();
    // SAFETY: views in these models start at the first byte.
    unsafe { (*foreign).looked.with(|_| ()) };
    assert_eq!(segment[0], 1);
}

fn parcel(segment: Segment) -> Parcel {
    Chain::from(segment).into()
}

fn open(parcel: Parcel) -> Segment {
    parcel.open().pop_front().expect("one segment")
}

#[test]
fn owner_clones_and_drops_while_another_lane_drops() {
    model(|| {
        let (watch, segment) = Watch::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || look(&open(sent)));
        let copy = segment.clone();
        look(&segment);
        drop(segment);
        look(&copy);
        drop(copy);
        other.join().expect("no assertion failed");
        watch.check(false);
    });
}

#[test]
fn a_parcel_comes_back_while_its_owner_still_holds_on() {
    model(|| {
        let (watch, segment) = Watch::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || {
            let segment = open(sent);
            look(&segment);
            parcel(segment)
        });
        look(&segment);
        drop(segment); // the group may be gone when the parcel comes back
        let back = open(other.join().expect("no assertion failed"));
        look(&back);
        assert!(back.is_unique());
        drop(back);
        watch.check(false);
    });
}

#[test]
fn parcels_cross_in_both_directions() {
    model(|| {
        let (watch, here) = Watch::new();
        let there = parcel(here.clone());
        let (to_us, keep) = (parcel(here.clone()), here);
        let other = thread::spawn(move || {
            let segment = open(there);
            let copy = segment.clone();
            look(&copy);
            drop(segment);
            parcel(copy)
        });
        let again = open(to_us); // joins the group: `keep` is in it
        look(&again);
        drop(keep);
        let last = other.join().expect("no assertion failed");
        drop(again);
        drop(last); // without being opened
        watch.check(false);
    });
}

#[test]
fn two_other_lanes_and_the_owner_drop_at_the_same_time() {
    model(|| {
        let (watch, segment) = Watch::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let sent = parcel(segment.clone());
                thread::spawn(move || look(&open(sent)))
            })
            .collect();
        look(&segment);
        drop(segment);
        for other in others {
            other.join().expect("no assertion failed");
        }
        watch.check(false);
    });
}

#[test]
fn the_owner_role_moves_by_a_plain_load_while_another_lane_drops() {
    model(|| {
        let (watch, segment) = Watch::new();
        let first = parcel(segment.clone());
        let second = parcel(segment); // the last of the group: its unit goes along
        let other = thread::spawn(move || {
            let segment = open(first); // re-owns it if the other handle is gone already
            let copy = segment.clone();
            look(&segment);
            drop(segment);
            look(&copy);
        });
        let third = thread::spawn(move || {
            let segment = open(second);
            look(&segment);
            let copy = segment.clone();
            drop(copy);
            look(&segment);
        });
        other.join().expect("no assertion failed");
        third.join().expect("no assertion failed");
        watch.check(false);
    });
}

#[test]
fn racing_zero_marks_are_seen_by_whoever_frees() {
    model(|| {
        let (watch, segment) = Watch::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || {
            let segment = open(sent);
            look(&segment);
            segment.zero_on_free().expect("declared writable");
        });
        segment.zero_on_free().expect("declared writable");
        drop(segment);
        other.join().expect("no assertion failed");
        watch.check(true);
    });
}

#[test]
fn a_single_mark_is_never_lost() {
    model(|| {
        let (watch, segment) = Watch::new();
        let (marks, looks) = (parcel(segment.clone()), parcel(segment));
        let marker = thread::spawn(move || open(marks).zero_on_free().expect("declared writable"));
        let looker = thread::spawn(move || drop(open(looks)));
        marker.join().expect("no assertion failed");
        looker.join().expect("no assertion failed");
        watch.check(true);
    });
}

#[test]
fn a_sole_holder_writes_only_after_the_others_have_looked() {
    model(|| {
        let (watch, mut segment) = Watch::new();
        let sent = parcel(segment.clone());
        let other = thread::spawn(move || look(&open(sent)));
        let foreign = segment.as_ptr().cast::<Foreign>();
        if let Some(bytes) = segment.try_unique() {
            // SAFETY: the watch keeps it. The model refuses this write if a look is not ordered before it.
            unsafe { (*foreign).looked.with_mut(|_| ()) };
            bytes[1] = 9;
        }
        drop(segment);
        other.join().expect("no assertion failed");
        watch.check(false);
    });
}
