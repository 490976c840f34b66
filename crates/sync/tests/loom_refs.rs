//! R-A5: the last release frees, after all other holders are done with the object.
#![cfg(loom)]
#![allow(unsafe_code)] // the counted object

use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Arc, Refs, model, thread};

struct Counted {
    refs: Refs,
    payload: UnsafeCell<Option<Box<u32>>>,
}

// SAFETY: shared reads while references exist, one exclusive access by the last releaser; loom checks it.
unsafe impl Sync for Counted {}
// SAFETY: as above.
unsafe impl Send for Counted {}

impl Counted {
    fn read(&self) -> u32 {
        // SAFETY: the caller has a reference.
        self.payload.with(|payload| unsafe { **(*payload).as_ref().expect("not freed while referenced") })
    }

    fn release(&self) -> bool {
        let last = self.refs.release();
        if last {
            // SAFETY: no other thread has a reference.
            self.payload.with_mut(|payload| unsafe { *payload = None });
        }
        last
    }
}

#[test]
fn exactly_one_of_three_frees_after_all_reads() {
    model(|| {
        let object = Arc::new(Counted { refs: Refs::new(), payload: UnsafeCell::new(Some(Box::new(7))) });
        let others: Vec<_> = (0..2)
            .map(|_| {
                object.refs.hold();
                let object = object.clone();
                thread::spawn(move || {
                    assert_eq!(object.read(), 7);
                    object.release()
                })
            })
            .collect();
        assert_eq!(object.read(), 7);
        let freed = u32::from(object.release())
            + others
                .into_iter()
                .map(|other| u32::from(other.join().expect("no assertion failed")))
                .sum::<u32>();
        assert_eq!(freed, 1);
    });
}

#[test]
fn a_holder_may_hold_for_another_while_others_release() {
    model(|| {
        let object = Arc::new(Counted { refs: Refs::new(), payload: UnsafeCell::new(Some(Box::new(7))) });
        object.refs.hold();
        let other = {
            let object = object.clone();
            thread::spawn(move || {
                object.refs.hold(); // legal: this thread has a reference
                assert!(!object.release(), "this thread still has the other one");
                assert_eq!(object.read(), 7);
                object.release()
            })
        };
        let ours = object.release();
        let theirs = other.join().expect("no assertion failed");
        assert!(ours != theirs, "exactly one of the two frees");
    });
}
