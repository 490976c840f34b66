//! A reference changes while a lane reads it: all interleavings.

#![cfg(loom)]

use manylane_expr::Reference;
use manylane_sync::{Arc, Reader, model, qsbr, thread};

/// Two writers and a reader: the reader sees complete lists only, and no change is lost.
#[test]
fn a_reader_sees_whole_lists_and_no_change_is_lost() {
    model(|| {
        let list = Arc::new(Reference::new(b"list", false, b"a\n").expect("a list of one entry is fine"));
        let writer = {
            let list = list.clone();
            thread::spawn(move || list.add_new(b"b", b"").expect("any text is a pattern"))
        };
        let before = {
            let reader = Reader::new();
            list.load(&reader).len()
        };
        list.add_new(b"c", b"").expect("any text is a pattern");
        writer.join().expect("it ends");
        let reader = Reader::new();
        assert!((1..=2).contains(&before), "{before}");
        assert_eq!(list.load(&reader).len(), 3);
        drop(reader);
        qsbr::reclaim();
    });
}

/// Rules on two lanes that both add a missing entry.
#[test]
fn what_two_add_at_once_stands_there_once() {
    for sets in [false, true] {
        model(move || {
            let list = Arc::new(Reference::new(b"list", true, b"").expect("an empty list is fine"));
            let add = move |list: &Reference, value: &[u8]| match sets {
                true => list.set(b"a", value).expect("any text is a pattern"),
                false => list.add_new(b"a", value).expect("any text is a pattern"),
            };
            let other = {
                let list = list.clone();
                thread::spawn(move || add(&list, b"1"))
            };
            add(&list, b"2");
            other.join().expect("it ends");
            assert_eq!(list.entries(None).len(), 1);
            qsbr::reclaim();
        });
    }
}
