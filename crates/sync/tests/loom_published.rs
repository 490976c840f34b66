//! Published pointers: a value is never freed while a lane can hold it, and is freed in the end.
#![cfg(loom)]
#![allow(unsafe_code)] // the witness of freeing

use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Arc, Published, Reader, model, qsbr, thread};

/// A value whose memory loom watches: it detects a read during or after the drop.
struct Watched {
    value: UnsafeCell<u32>,
}

// SAFETY: written only by its destructor; loom checks that no read is concurrent with it.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new(value: u32) -> Self {
        Self { value: UnsafeCell::new(value) }
    }
    fn read(&self) -> u32 {
        // SAFETY: the published reference is valid; loom checks just that.
        self.value.with(|value| unsafe { *value })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: no thread can reach the value any more, which loom checks.
        self.value.with_mut(|value| unsafe { *value = u32::MAX });
    }
}

#[test]
fn a_reader_that_never_announces_keeps_what_it_holds() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let reading = {
            let published = published.clone();
            thread::spawn(move || {
                let reader = Reader::new();
                let held = published.load(&reader);
                let first = held.read();
                assert!([1, 2].contains(&first));
                assert_eq!(held.read(), first);
            })
        };
        published.replace(Watched::new(2));
        qsbr::reclaim();
        reading.join().expect("no assertion failed");
        assert_eq!(qsbr::reclaim(), 0, "the reader is gone: nothing waits");
    });
}

#[test]
fn a_quiescent_reader_sees_the_new_value_once_the_old_one_may_go() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let reading = {
            let published = published.clone();
            thread::spawn(move || {
                let mut reader = Reader::new();
                let before = published.load(&reader).read();
                reader.quiescent();
                let after = published.load(&reader).read();
                assert!(before <= after && (1..=2).contains(&before) && (1..=2).contains(&after));
            })
        };
        published.replace(Watched::new(2));
        qsbr::reclaim();
        reading.join().expect("no assertion failed");
        assert_eq!(qsbr::reclaim(), 0);
    });
}

#[test]
fn a_sleeping_reader_holds_nothing_up_and_wakes_to_a_valid_value() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let reading = {
            let published = published.clone();
            thread::spawn(move || {
                let mut reader = Reader::new();
                reader.offline(thread::yield_now);
                assert!([1, 2].contains(&published.load(&reader).read()));
            })
        };
        published.replace(Watched::new(2));
        qsbr::reclaim();
        reading.join().expect("no assertion failed");
        assert_eq!(qsbr::reclaim(), 0);
    });
}

/// The reads of a lane before it went offline are over for a thread that sees it online again.
#[test]
fn a_reader_that_slept_and_woke_has_let_go_of_what_it_read_before() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let reading = {
            let published = published.clone();
            thread::spawn(move || {
                let mut reader = Reader::new();
                assert!([1, 2].contains(&published.load(&reader).read()));
                reader.offline(|| ());
                assert!([1, 2].contains(&published.load(&reader).read()));
            })
        };
        published.replace(Watched::new(2));
        qsbr::reclaim();
        reading.join().expect("no assertion failed");
        assert_eq!(qsbr::reclaim(), 0);
    });
}

/// One thread reclaims, another has replaced, and a lane comes online meanwhile.
#[test]
fn a_value_replaced_by_another_is_not_freed_under_a_new_reader() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let spawn = |body: fn(&Published<Watched>)| {
            let published = published.clone();
            thread::spawn(move || body(&published))
        };
        let threads = [
            spawn(|published| published.replace(Watched::new(2))),
            spawn(|_| {
                qsbr::reclaim();
            }),
            spawn(|published| assert!([1, 2].contains(&published.load(&Reader::new()).read()))),
        ];
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
        assert_eq!(qsbr::reclaim(), 0);
    });
}

#[test]
fn two_writers_free_each_value_once() {
    model(|| {
        let published = Arc::new(Published::new(Watched::new(1)));
        let other = {
            let published = published.clone();
            thread::spawn(move || {
                published.replace(Watched::new(2));
                qsbr::reclaim();
            })
        };
        let reader = Reader::new();
        assert!((1..=3).contains(&published.load(&reader).read()));
        published.replace(Watched::new(3));
        drop(reader);
        other.join().expect("no assertion failed");
        assert_eq!(qsbr::reclaim(), 0);
    });
}
