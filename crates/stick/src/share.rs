//! What peers share of a table: the entries that have changed since the last query, and the form in which
//! entries are sent.
//!
//! # Protocol
//! 1. A change writes the entry's data first and then marks the entry, unless it is marked already.
//! 2. The lane that sends to peers takes all marks, and reads the data of those entries afterwards.
//! 3. Each side has a fence between its two steps. If a change finds its entry marked while the other side
//!    takes the mark, at least one of them sees what the other has written. So no change is lost.

use crate::entry::Entry;
use crate::rate;
use manylane_expr::{DataType, Datum};
use manylane_sync::atomic::{AtomicU64, Ordering, fence};

/// The changed entries of a table: a bit for each entry, and a bit for each word of these.
#[derive(Debug)]
pub(crate) struct Changes {
    entries: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Changes {
    /// Creates it for entries with numbers below `most`.
    pub(crate) fn new(most: usize) -> Self {
        let words = most.div_ceil(64);
        Self { entries: zeros(words), words: zeros(words.div_ceil(64)) }
    }

    /// Marks an entry as changed. Rule 1.
    pub(crate) fn mark(&self, at: u32) {
        fence(Ordering::SeqCst); // pairs with the fence in `take`: rule 3
        let (word, bit) = (at as usize / 64, 1 << (at % 64));
        let Some(entries) = self.entries.get(word) else { return };
        if entries.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        // Acquire: pairs with the swap in `take`, which comes after taking the word's bit.
        entries.fetch_or(bit, Ordering::AcqRel);
        let (of_word, bit) = (&self.words[word / 64], 1 << (word % 64));
        if of_word.load(Ordering::Relaxed) & bit == 0 {
            of_word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Takes all marks and runs `work` with their numbers, in ascending order. Rule 2.
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
        fence(Ordering::SeqCst); // pairs with the fence in `mark`: rule 3
    }
}

/// The value of a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataValue {
    /// A number.
    Number(u64),
    /// A rate.
    Rate(Period),
}

/// The current period of a rate, and the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Milliseconds since the current period began.
    pub age: u32,
    /// Events of the current period.
    pub events: u32,
    /// Events of the previous period.
    pub before: u32,
}

impl Entry<'_> {
    /// The value of a datum. `None` if the table does not keep it.
    pub fn kept(&self, datum: impl Into<Datum>, now: u64) -> Option<DataValue> {
        let datum = datum.into();
        let (word, first, _) = self.words_of(datum)?;
        Some(if datum.data.is_rate() {
            DataValue::Rate(rate::period(word, self.word(first + 1), now))
        } else {
            DataValue::Number(word.load(Ordering::Relaxed))
        })
    }

    /// Sets a value that a peer has sent; it is not sent to other peers again. Does nothing if the table
    /// keeps no such datum, or one of another type.
    pub fn learn(&self, datum: impl Into<Datum>, kept: DataValue, now: u64) {
        let datum = datum.into();
        let Some((word, first, period)) = self.words_of(datum) else { return };
        match kept {
            DataValue::Number(number) if !datum.data.is_rate() => {
                // Peers send the server's id: a stored name would be that of another server.
                if word.swap(number, Ordering::Relaxed) != number
                    && datum.data == DataType::ServerId
                    && let Some((name, ..)) = self.words_of(DataType::ServerKey.into())
                {
                    name.store(0, Ordering::Relaxed);
                }
            }
            DataValue::Rate(shown) if datum.data.is_rate() => {
                let _guard = self.table.shard_of(self.at).inner.lock();
                rate::restore(word, self.word(first + 1), period, now, shown);
            }
            DataValue::Number(_) | DataValue::Rate(_) => {}
        }
    }
}
