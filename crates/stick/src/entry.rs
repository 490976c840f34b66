//! An entry of a table. Its data are read and changed without a lock.

use crate::key::value;
use crate::rate;
use crate::table::Table;
use manylane_expr::{DataType, Datum, EntryOperation, Outcome, Value};
use manylane_sync::atomic::{AtomicU64, Ordering};

/// A reference to an entry that is present: either it is held, or its user checks afterwards that it was
/// present.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'t> {
    pub(crate) table: &'t Table,
    pub(crate) at: u32,
}

/// Indices of the words that every entry has.
pub(crate) const STATE: usize = 0;
pub(crate) const DATE: usize = 1;
pub(crate) const LINK: usize = 2;

impl<'t> Entry<'t> {
    #[inline]
    pub(crate) fn word(&self, number: usize) -> &'t AtomicU64 {
        self.table.word(self.at, number)
    }

    /// The words of the key.
    pub(crate) fn key_words(&self) -> impl Iterator<Item = u64> + use<'t> {
        let (this, words) = (*self, self.table.layout.key_words);
        (0..words).map(move |n| this.word(crate::spec::HEADER + n).load(Ordering::Relaxed))
    }

    /// The key. Text and data are copied to `bytes`, as far as they fit.
    pub fn key<'b>(&self, bytes: &'b mut [u8]) -> Value<'b> {
        value(self.table.spec(), self.key_words(), bytes)
    }

    #[inline]
    pub(crate) fn words_of(&self, datum: Datum) -> Option<(&'t AtomicU64, usize, u32)> {
        let (first, period) = self.table.layout.find(datum.data, datum.index)?;
        Some((self.word(first), first, period))
    }

    /// The value of a number, or the events per period of a rate. `None` if the table does not keep `datum`.
    #[inline]
    pub fn get(&self, datum: impl Into<Datum>, now: u64) -> Option<u64> {
        let datum = datum.into();
        let (word, first, period) = self.words_of(datum)?;
        Some(if datum.data.is_rate() {
            self.rate(datum, (word, first, period), now)
        } else {
            let number = word.load(Ordering::Relaxed);
            match datum.data {
                DataType::BytesInCnt | DataType::BytesOutCnt => number,
                _ => number.min(u32::MAX.into()),
            }
        })
    }

    /// Returns the events of a rate, or the bytes of a byte rate.
    #[inline]
    fn rate(&self, datum: Datum, (word, first, period): (&AtomicU64, usize, u32), now: u64) -> u64 {
        let events = u64::from(rate::read(word, self.word(first + 1), period, now));
        let each = self.table.layout.bytes_each(datum.data);
        each.map_or(events, |bytes| events * u64::from(bytes.get()))
    }

    /// Adds `n` to a number, or `n` events or bytes to a rate, and returns the new value. `None` if the table
    /// does not keep it.
    #[inline]
    pub fn add(&self, datum: impl Into<Datum>, n: u64, now: u64) -> Option<u64> {
        let datum = datum.into();
        let (word, first, period) = self.words_of(datum)?;
        if n == 0 {
            return self.get(datum, now);
        }
        if datum.data.is_rate() {
            // As in HAProxy, what is counted at once is rounded up.
            let each = self.table.layout.bytes_each(datum.data);
            let n = each.map_or(n, |bytes| n.div_ceil(bytes.get().into()));
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            rate::add(word, self.word(first + 1), period, now, n, || {
                self.table.shard_of(self.at).inner.lock()
            });
            self.table.mark(self.at);
            return Some(self.rate(datum, (word, first, period), now));
        }
        let sum = word.fetch_add(n, Ordering::Relaxed).wrapping_add(n);
        self.table.mark(self.at);
        Some(sum)
    }

    /// Subtracts one from a number, not below 0.
    pub fn take_one(&self, data: DataType) {
        let Some((word, ..)) = self.words_of(data.into()) else { return };
        let mut count = word.load(Ordering::Relaxed);
        while count > 0 {
            match word.compare_exchange_weak(count, count - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => count = now,
            }
        }
    }

    /// Sets a number, or the events of a rate's last period: for a byte rate, as in HAProxy, its blocks of
    /// bytes. Returns false if the table does not keep it.
    pub fn set(&self, datum: impl Into<Datum>, to: u64, now: u64) -> bool {
        let datum = datum.into();
        let Some((word, first, _)) = self.words_of(datum) else { return false };
        if datum.data.is_rate() {
            let _guard = self.table.shard_of(self.at).inner.lock();
            rate::set(word, self.word(first + 1), now, u32::try_from(to).unwrap_or(u32::MAX));
        } else {
            word.store(to, Ordering::Relaxed);
        }
        self.table.mark(self.at);
        true
    }

    /// Reserves a turn of `cost` nanoseconds in one direction, and returns the time when it begins; the turn
    /// is due if that is not after `now`. All users of the entry take turns in the order of their
    /// reservations. Unreserved time is lost, except for the last `spare` nanoseconds. In a table without
    /// turns ([`Spec::turns`](crate::Spec::turns)), every turn begins now.
    pub fn reserve(&self, outgoing: bool, cost: u64, spare: u64, now: u64) -> u64 {
        let Some(turns) = self.table.layout.turns else { return now };
        let word = self.word(turns + usize::from(outgoing));
        let mut taken = word.load(Ordering::Relaxed);
        loop {
            let begins = taken.max(now.saturating_sub(spare));
            let ends = begins.saturating_add(cost);
            match word.compare_exchange_weak(taken, ends, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return begins,
                Err(actual) => taken = actual,
            }
        }
    }

    /// Returns `cost` nanoseconds of a turn that were not needed.
    pub fn give_back(&self, outgoing: bool, cost: u64) {
        if let Some(turns) = self.table.layout.turns {
            self.word(turns + usize::from(outgoing)).fetch_sub(cost, Ordering::Relaxed);
        }
    }

    /// Marks the entry as used: it stays for as long as a new one.
    #[inline]
    pub fn touch(&self, now: u64) {
        let date = now + self.table.spec().expire;
        let word = self.word(DATE);
        // Most lanes that count in an entry do so within the same millisecond.
        if word.load(Ordering::Relaxed) != date {
            word.store(date, Ordering::Relaxed);
        }
        self.table.mark(self.at);
    }

    /// Milliseconds until it expires; 0 if entries do not expire.
    pub fn expires_in(&self, now: u64) -> u64 {
        match self.table.spec().expire {
            0 => 0,
            _ => self.word(DATE).load(Ordering::Relaxed).saturating_sub(now),
        }
    }

    /// Moves the expiry date later, never earlier: the shard has filed the entry under its first date and
    /// does not look before that.
    pub fn set_expiry(&self, date: u64) {
        self.word(DATE).fetch_max(date, Ordering::Relaxed);
    }

    /// The entry's number in the table, valid for its life.
    pub fn number(&self) -> u32 {
        self.at
    }

    /// The number of holders.
    pub fn holders(&self) -> u32 {
        self.word(STATE).load(Ordering::Relaxed) as u32
    }

    /// General counter 0 or 1, and its rate: the named ones, or else the elements of the arrays.
    fn general(&self, number: u32) -> [Datum; 2] {
        match number {
            0 => [DataType::Gpc0, DataType::Gpc0Rate].map(|data| self.kept_as(data)),
            _ => [DataType::Gpc1, DataType::Gpc1Rate].map(|data| self.kept_as(data)),
        }
    }

    /// The datum that is kept for a named general counter or tag: itself, or else element 0 or 1 of the
    /// array.
    pub fn kept_as(&self, data: DataType) -> Datum {
        let (array, index) = match data {
            DataType::Gpc0 => (DataType::Gpc, 0),
            DataType::Gpc1 => (DataType::Gpc, 1),
            DataType::Gpc0Rate => (DataType::GpcRate, 0),
            DataType::Gpc1Rate => (DataType::GpcRate, 1),
            DataType::Gpt0 => (DataType::Gpt, 0),
            _ => return data.into(),
        };
        match self.table.layout.find(data, 0) {
            Some(_) => data.into(),
            None => Datum { data: array, index },
        }
    }

    /// Adds to general counter 0 or 1 and to its rate. Returns the counter's value, or the rate's if only
    /// that is kept; `None` if neither is.
    pub fn count_general(&self, number: u32, n: u64, now: u64) -> Option<u64> {
        self.count_both(self.general(number), n, now)
    }

    /// The same for an element of the arrays. As with HAProxy, the named counters are not elements.
    pub fn count_element(&self, index: u32, n: u64, now: u64) -> Option<u64> {
        let both = [DataType::Gpc, DataType::GpcRate].map(|data| Datum { data, index });
        self.count_both(both, n, now)
    }

    fn count_both(&self, [count, rate]: [Datum; 2], n: u64, now: u64) -> Option<u64> {
        let of_rate = self.add(rate, n, now);
        let of_count = self.add(count, n, now);
        if of_rate.or(of_count).is_some() {
            self.touch(now);
        }
        of_count.or(of_rate)
    }

    /// Sets a general counter to 0 and returns its old value. As with HAProxy, its rate stays.
    fn clear(&self, count: Datum, now: u64) -> Option<u64> {
        let was = self.get(count, now);
        if self.set(count, 0, now) {
            self.touch(now);
        }
        was
    }

    /// Answers `ask`; never with [`Outcome::NotTracked`] or [`Outcome::NoEntry`].
    pub fn ask(&self, ask: EntryOperation, now: u64) -> Outcome {
        let value = match ask {
            EntryOperation::Read(datum) => {
                let datum = if datum.index == 0 { self.kept_as(datum.data) } else { datum };
                self.get(datum, now)
            }
            // As with HAProxy: 0 if no counter is kept.
            EntryOperation::Increment(number) => Some(self.count_general(number, 1, now).unwrap_or_default()),
            EntryOperation::IncrementElement(index) => {
                Some(self.count_element(index, 1, now).unwrap_or_default())
            }
            EntryOperation::Clear(number) => self.clear(self.general(number)[0], now),
            EntryOperation::ClearElement(index) => self.clear(Datum { data: DataType::Gpc, index }, now),
            EntryOperation::CountConnection => {
                self.add(DataType::ConnRate, 1, now);
                let count = self.add(DataType::ConnCnt, 1, now);
                self.touch(now);
                Some(count.unwrap_or_default())
            }
            EntryOperation::Trackers => Some(self.holders().into()),
            EntryOperation::Expire => Some(self.expires_in(now)),
            EntryOperation::Idle => {
                let used = self.word(DATE).load(Ordering::Relaxed).saturating_sub(self.table.spec().expire);
                Some(now.saturating_sub(used))
            }
            EntryOperation::Exists => Some(1),
        };
        value.map_or(Outcome::NotKept, |number| Outcome::Number(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}
