//! A few words that belong together, read without a lock while they change: a sequence latch (Linux calls it
//! `seqcount_latch`), a sequence lock with two copies, so that a reader does not wait for a writer that has
//! lost its processor.
//!
//! # Protocol
//! 1. Writers take turns, by a lock of their own or because there is one. A writer fills the copy that
//!    readers do not look at, then counts `writes` up, which makes it the one that they look at.
//! 2. A reader copies the words and takes them if `writes` has not moved meanwhile: the copy that it read is
//!    filled again at the second write from then at the earliest.
//!
//! # Cost
//! Read: a load a word and two of the count. Write: a store a word and one of the count. No locked
//! instruction.

use crate::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// `N` words of one moment.
///
/// ```
/// let since = manylane_sync::SeqLatch::new([10, 0]);
/// since.write([12, 1]); // by one thread at a time
/// assert_eq!(since.read(), [12, 1]);
/// ```
#[derive(Debug)]
pub struct SeqLatch<const N: usize> {
    /// How many writes there were; the last bit is the copy to read.
    writes: AtomicUsize,
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> SeqLatch<N> {
    /// With these words.
    pub fn new(words: [u64; N]) -> Self {
        let copy = || words.map(AtomicU64::new);
        Self { writes: AtomicUsize::new(0), copies: [copy(), copy()] }
    }

    /// The words of the last write. Tries again when there was one meanwhile.
    pub fn read(&self) -> [u64; N] {
        loop {
            // Acquire: pairs with the release at the end of `write`; the copy is whole.
            let writes = self.writes.load(Ordering::Acquire);
            let copy = &self.copies[writes % 2];
            let words = std::array::from_fn(|word| copy[word].load(Ordering::Relaxed));
            // Pairs with the fence in `write`: who has read a word of a later write sees the write before it.
            fence(Ordering::Acquire);
            if self.writes.load(Ordering::Relaxed) == writes {
                return words;
            }
            crate::relax();
        }
    }

    /// Replaces the words. One thread at a time (rule 1): of two at once the words may mix.
    pub fn write(&self, words: [u64; N]) {
        let writes = self.writes.load(Ordering::Relaxed);
        fence(Ordering::Release); // the write before this one is seen by who reads a word of this one
        for (place, word) in self.copies[(writes + 1) % 2].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // Release: publishes the copy.
        self.writes.store(writes.wrapping_add(1), Ordering::Release);
    }
}
