//! A reader of a sequence latch has the words of one write, and never older ones than it had.
#![cfg(loom)]

use manylane_sync::{Arc, SeqLatch, model, thread};

#[test]
fn a_reader_has_the_words_of_one_write_while_there_are_three() {
    model(|| {
        let latch = Arc::new(SeqLatch::new([0, 0]));
        let writer = {
            let latch = latch.clone();
            thread::spawn(move || (1..=3).for_each(|n| latch.write([n, n])))
        };
        let [a, b] = latch.read();
        assert_eq!(a, b);
        let [c, d] = latch.read();
        assert!(c == d && a <= c);
        assert!(writer.join().is_ok());
        assert_eq!(latch.read(), [3, 3]);
    });
}
