//! What peers share of a table: which entries have changed since they were asked for, and what an entry keeps
//! in the form in which it is told.
//!
//! # Protocol
//! 1. Whoever changes an entry writes its data first and marks the entry then, if it is not marked.
//! 2. The lane that tells peers takes all marks away, and reads the data of those entries afterwards.
//! 3. A fence of each side stands between the two: of a change that finds its entry marked, and of a taker
//!    that finds the mark, at least one sees what the other has written. So no change is lost.

use crate::entry::Entry;
use crate::rate;
use manylane_expr::{DataType, Datum};
use manylane_sync::atomic::{AtomicU64, Ordering, fence};

/// The entries of a table that have changed: a bit each, and a bit for each word of these.
#[derive(Debug)]
pub(crate) struct Changes {
    entries: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Changes {
    /// For entries of numbers below `most`.
    pub(crate) fn new(most: usize) -> Self {
        let words = most.div_ceil(64);
        Self { entries: zeros(words), words: zeros(words.div_ceil(64)) }
    }

    /// An entry has changed. Rule 1.
    pub(crate) fn mark(&self, at: u32) {
        fence(Ordering::SeqCst); // pairs with the one of `take`: rule 3
        let (word, bit) = (at as usize / 64, 1 << (at % 64));
        let Some(entries) = self.entries.get(word) else { return };
        if entries.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        // Acquire: pairs with the swap of `take`, before which the word's own bit was taken away.
        entries.fetch_or(bit, Ordering::AcqRel);
        let (of_word, bit) = (&self.words[word / 64], 1 << (word % 64));
        if of_word.load(Ordering::Relaxed) & bit == 0 {
            of_word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Takes all marks away: the numbers that had one, in ascending order. Rule 2.
    pub(crate) fn take(&self, mut work: impl FnMut(u32)) {
        for (group, words) in self.words.iter().enumerate() {
            if words.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut of_group = words.swap(0, Ordering::AcqRel);
            while of_group != 0 {
                let word = group * 64 + of_group.trailing_zeros() as usize;
                of_group &= of_group - 1;
                // Release: pairs with the change of `mark`, which finds the group's bit taken away.
                let mut entries = self.entries[word].swap(0, Ordering::AcqRel);
                while entries != 0 {
                    work(word as u32 * 64 + entries.trailing_zeros());
                    entries &= entries - 1;
                }
            }
        }
        fence(Ordering::SeqCst); // pairs with the one of `mark`: rule 3
    }
}

/// What an entry keeps in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A number.
    Number(u64),
    /// A rate.
    Rate(Period),
}

/// The period at work of a rate, and the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Milliseconds since it began.
    pub age: u32,
    /// Its events.
    pub events: u32,
    /// Those of the period before.
    pub before: u32,
}

impl Entry<'_> {
    /// What it keeps there. None where the table does not keep it.
    pub fn kept(&self, datum: impl Into<Datum>, now: u64) -> Option<Kept> {
        let datum = datum.into();
        let (word, first, _) = self.place(datum)?;
        Some(if datum.data.is_rate() {
            Kept::Rate(rate::period(word, self.word(first + 1), now))
        } else {
            Kept::Number(word.load(Ordering::Relaxed))
        })
    }

    /// What a peer says of it, which is not told to others again. Nothing happens where the table does not
    /// keep it, or keeps something else there.
    pub fn learn(&self, datum: impl Into<Datum>, kept: Kept, now: u64) {
        let datum = datum.into();
        let Some((word, first, period)) = self.place(datum) else { return };
        match kept {
            Kept::Number(number) if !datum.data.is_rate() => {
                // Peers tell of servers by their ids: the name that was stored here is another server's then.
                if word.swap(number, Ordering::Relaxed) != number
                    && datum.data == DataType::ServerId
                    && let Some((name, ..)) = self.place(DataType::ServerKey.into())
                {
                    name.store(0, Ordering::Relaxed);
                }
            }
            Kept::Rate(told) if datum.data.is_rate() => {
                let _guard = self.table.shard_of(self.at).inner.lock();
                rate::restore(word, self.word(first + 1), period, now, told);
            }
            Kept::Number(_) | Kept::Rate(_) => {}
        }
    }
}
