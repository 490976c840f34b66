//! A sequence latch (Linux: `seqcount_latch`): a few words that belong together, which readers copy without a
//! lock while a writer replaces them. It is a sequence lock with two copies, so that a reader does not wait
//! for a writer that has lost its processor.
//!
//! # Protocol
//! 1. Writers take turns, by a lock of their own or because there is only one. A writer fills the copy that
//!    readers do not read at the moment, then increments `writes`, which directs readers to that copy.
//! 2. A reader copies the words, and accepts them if `writes` has not changed meanwhile. The next write fills
//!    the other copy; only the one after it fills the copy that was read, and `writes` has changed by then.
//!
//! # Cost
//! Read: a load a word and two of the count. Write: a store a word and one of the count. No locked
//! instruction.

use crate::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// `N` words that one write stored together.
///
/// ```
/// let since = manylane_sync::SeqLatch::new([10, 0]);
/// since.write([12, 1]); // by one thread at a time
/// assert_eq!(since.read(), [12, 1]);
/// ```
#[derive(Debug)]
pub struct SeqLatch<const N: usize> {
    /// Number of writes; its lowest bit is the index of the copy to read.
    writes: AtomicUsize,
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> SeqLatch<N> {
    /// Creates a latch with these words.
    pub fn new(words: [u64; N]) -> Self {
        let copy = || words.map(AtomicU64::new);
        Self { writes: AtomicUsize::new(0), copies: [copy(), copy()] }
    }

    /// Returns the words of the last write. Retries if a write happened meanwhile.
    pub fn read(&self) -> [u64; N] {
        loop {
            // Acquire: pairs with the release at the end of `write`; the copy is whole.
            let writes = self.writes.load(Ordering::Acquire);
            let copy = &self.copies[writes % 2];
            let words = std::array::from_fn(|word| copy[word].load(Ordering::Relaxed));
            // Pairs with the fence in `write`: a reader that read a word of a later write sees that the count
            // moved.
            fence(Ordering::Acquire);
            if self.writes.load(Ordering::Relaxed) == writes {
                return words;
            }
            crate::relax();
        }
    }

    /// Replaces the words. Only one thread at a time may call this (rule 1): the words of concurrent writes
    /// may mix.
    pub fn write(&self, words: [u64; N]) {
        let writes = self.writes.load(Ordering::Relaxed);
        fence(Ordering::Release); // a reader that sees one of these words sees the count of the write before
        for (counter, word) in self.copies[(writes + 1) % 2].iter().zip(words) {
            counter.store(word, Ordering::Relaxed);
        }
        // Release: publishes the copy.
        self.writes.store(writes.wrapping_add(1), Ordering::Release);
    }
}
