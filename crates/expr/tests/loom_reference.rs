//! A reference changes while a lane reads it, in every order that the machine allows.

#![cfg(loom)]

use manylane_expr::Reference;
use manylane_sync::{Arc, Reader, model, qsbr, thread};

/// Two writers and a reader: a reader sees whole lists only, and no change is lost.
#[test]
fn a_reader_sees_whole_lists_and_no_change_is_lost() {
    model(|| {
        let list = Arc::new(Reference::new(b"list", false, b"a\n").expect("a list of one entry is fine"));
        let writer = {
            let list = list.clone();
            thread::spawn(move || list.add(b"b", b"").expect("any text is a pattern"))
        };
        let before = {
            let reader = Reader::new();
            list.load(&reader).len()
        };
        list.add(b"c", b"").expect("any text is a pattern");
        writer.join().expect("it ends");
        let reader = Reader::new();
        assert!((1..=2).contains(&before), "{before}");
        assert_eq!(list.load(&reader).len(), 3);
        drop(reader);
        qsbr::reclaim();
    });
}
