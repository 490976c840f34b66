//! A table: entries by key, in which all lanes count.
//!
//! See the README for the protocol; comments cite its rules.

use crate::entry::{DATE, Entry, LINK, STATE};
use crate::rate;
use crate::shard::{Inner, Shard};
use crate::share::Changes;
use crate::spec::{HEADER, Layout, Spec};
use manylane_expr::Datum;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::{CachePadded, LockClass, Mutex};
use std::hash::{BuildHasher, Hasher};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

static FREE: LockClass = LockClass::new("free entries of a stick table", LockClass::LEAF);

/// Words of a cache line.
const LINE: usize = 8;

/// A cache line of an entry. Entries do not share lines.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// Bit of an entry's state: it is present.
const LIVE: u64 = 1 << 63;
/// Added to the state for each life; the bits below count the holders.
const LIFE: u64 = 1 << 32;
/// The bits of the state that count the holders.
const HELD: u64 = LIFE - 1;

/// Free entries that a shard exchanges with the table at a time.
const BATCH: usize = 16;
/// Most shards: more than cores, so that two lanes rarely need the same one.
const MAX_SHARDS: usize = 256;
/// Entries for each shard.
const ENTRIES_A_SHARD: u32 = 1024;
/// Most entries of a chunk, which are allocated together.
const MAX_CHUNK: usize = 512;
/// Tries to walk a chain while it changes, before taking the lock.
const TRIES: u32 = if cfg!(loom) { 1 } else { 8 };
/// Steps in a chain after which a walk without the lock may have been misled (rule 4).
const MAX_STEPS: u32 = 1 << 12;
/// Limits of a full table's search: the entries that it drops, and those that it visits in all shards. A lane
/// waits for the search at each new key.
const MAX_PURGE: usize = 64;
const MAX_VISITED: usize = 64;
/// Shards that the search visits: the key's own, then others in turn.
const MAX_SHARDS_VISITED: u32 = 8;
/// Milliseconds before a full table searches again after it found nothing. A flood of new keys makes each
/// lane search a hundred times a second at most.
const NOTHING_FOR: u64 = 10;
/// Entries that a call of [`Table::each`] visits, including absent ones.
const MAX_WALKED: u32 = 1 << 12;
/// Bounds of the milliseconds after which an entry that was held at its expiry is checked again. Within these
/// it is the table's expiry, so that an entry held for long is not filed all the time.
const HELD_FOR: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// Entries that [`ShardClearing`] visits under the shard's lock at a time, twice each: some 100 us.
const CLEARED_AT_ONCE: usize = 1_000;

/// A table of entries by key, shared by all lanes.
#[derive(Debug)]
pub struct Table {
    spec: Spec,
    pub(crate) layout: Layout,
    /// Lines of an entry.
    lines: usize,
    /// A chunk has two to this power entries.
    chunk_bits: u32,
    chunks: Box<[OnceLock<Box<[Line]>>]>,
    shards: Box<[CachePadded<Shard>]>,
    /// Entries, including those that a lane is about to make; at most `spec.size`.
    used: CachePadded<AtomicU32>,
    /// When a full table may search again.
    nothing_until: AtomicU64,
    /// The shard that a full table searches next.
    turn: AtomicU32,
    /// The lowest number that was never used; the first is 1.
    fresh: AtomicU32,
    /// Free entries that no shard has.
    free: Mutex<Vec<u32>>,
    /// Entries to send to peers; set once there are peers.
    changes: OnceLock<Changes>,
    hasher: Hashes,
}

#[cfg(not(any(loom, manylane_sim)))]
type Hashes = std::hash::RandomState;
#[cfg(any(loom, manylane_sim))]
type Hashes = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// A hold on an entry: the entry stays until this is dropped.
#[derive(Debug)]
pub struct EntryGuard<'t> {
    entry: Entry<'t>,
}

impl<'t> std::ops::Deref for EntryGuard<'t> {
    type Target = Entry<'t>;

    fn deref(&self) -> &Entry<'t> {
        &self.entry
    }
}

impl EntryGuard<'_> {
    /// Converts to the entry's number, for [`Table::release`]. The entry stays held.
    pub fn into_number(self) -> u32 {
        ManuallyDrop::new(self).entry.at
    }
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        self.entry.table.let_go(self.entry.at);
    }
}

impl Table {
    /// Creates an empty table. Memory is allocated as entries need it.
    pub fn new(spec: Spec) -> Self {
        let layout = Layout::new(&spec);
        let size = spec.size.clamp(1, crate::MAX_SIZE);
        let shards = (size / ENTRIES_A_SHARD).next_power_of_two().min(MAX_SHARDS as u32) as usize;
        // Free entries of shards come on top of the used ones.
        let most = size as usize + shards * 2 * BATCH + 1;
        let chunk_bits = (most / 64).next_power_of_two().clamp(1, MAX_CHUNK).trailing_zeros();
        Self {
            lines: layout.words.div_ceil(LINE),
            layout,
            chunk_bits,
            chunks: (0..=most >> chunk_bits).map(|_| OnceLock::new()).collect(),
            shards: (0..shards).map(|_| CachePadded::new(Shard::new())).collect(),
            used: CachePadded::new(AtomicU32::new(0)),
            nothing_until: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            fresh: AtomicU32::new(1),
            free: Mutex::new(&FREE, Vec::new()),
            changes: OnceLock::new(),
            hasher: Hashes::default(),
            spec: Spec { size, ..spec },
        }
    }

    /// The specification that the table was made with.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of entries; some may have expired.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn word(&self, at: u32, number: usize) -> &AtomicU64 {
        let (chunk, within) = (at as usize >> self.chunk_bits, at as usize & ((1 << self.chunk_bits) - 1));
        let lines = self.chunks[chunk].get().expect("an entry's number is given with its chunk");
        &lines[within * self.lines + number / LINE].0[number % LINE]
    }

    fn entry(&self, at: u32) -> Entry<'_> {
        Entry { table: self, at }
    }

    #[inline]
    fn hash(&self, words: &[u64]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish() as u32
    }

    #[inline]
    fn shard(&self, hash: u32) -> &Shard {
        &self.shards[hash.rotate_left(8) as usize & (self.shards.len() - 1)]
    }

    /// The shard of an entry that is present.
    pub(crate) fn shard_of(&self, at: u32) -> &Shard {
        self.shard((self.word(at, LINK).load(Ordering::Relaxed) >> 32) as u32)
    }

    /// True if an entry is present. Its link and key can be read then.
    fn is_live(&self, at: u32) -> bool {
        // Acquire: pairs with the store in `begin_life`, which publishes the link.
        self.word(at, STATE).load(Ordering::Acquire) & LIVE != 0
    }

    /// True if an entry may be used: it is present, and held or not expired.
    #[inline]
    fn is_good(&self, at: u32, state: u64, now: u64) -> bool {
        state & LIVE != 0 && (state & HELD != 0 || !self.has_expired(at, now))
    }

    fn has_expired(&self, at: u32, now: u64) -> bool {
        self.spec.expire > 0 && self.word(at, DATE).load(Ordering::Relaxed) <= now
    }

    /// True if the entry has this key.
    #[inline]
    fn is_of(&self, at: u32, hash: u32, words: &[u64]) -> bool {
        (self.word(at, LINK).load(Ordering::Relaxed) >> 32) as u32 == hash
            && self.entry(at).key_words().eq(words.iter().copied())
    }

    /// Walks a chain, calls `take` with each usable entry of the key, and returns the first `Some`. `Err` if
    /// the chain has more than `most` entries, so the walk may have been misled.
    #[inline]
    fn walk_within<R>(
        &self,
        most: u32,
        shard: &Shard,
        hash: u32,
        words: &[u64],
        now: u64,
        mut take: impl FnMut(u32, u64) -> Option<R>,
    ) -> Result<Option<R>, ()> {
        let Some(bucket) = shard.bucket(hash) else { return Ok(None) };
        let mut at = bucket.load(Ordering::Acquire);
        for _ in 0..most {
            if at == 0 {
                return Ok(None);
            }
            let state = self.word(at, STATE).load(Ordering::Acquire);
            if self.is_of(at, hash, words)
                && self.is_good(at, state, now)
                && let Some(taken) = take(at, state)
            {
                return Ok(Some(taken));
            }
            at = self.word(at, LINK).load(Ordering::Acquire) as u32;
        }
        Err(())
    }

    /// As [`walk_within`](Self::walk_within), to the end of the chain. Call under the lock, where no walk is
    /// misled.
    fn walk<R>(
        &self,
        shard: &Shard,
        hash: u32,
        words: &[u64],
        now: u64,
        take: impl FnMut(u32, u64) -> Option<R>,
    ) -> Option<R> {
        self.walk_within(u32::MAX, shard, hash, words, now, take).ok().flatten()
    }

    #[inline]
    fn find<R>(
        &self,
        hash: u32,
        words: &[u64],
        now: u64,
        take: impl FnMut(u32, u64) -> Option<R>,
    ) -> Option<R> {
        self.find_within(MAX_STEPS, hash, words, now, take)
    }

    /// Rules 3 and 4: looks up a key without the lock, or with it if chains keep changing, or have more than
    /// `most` entries.
    #[inline]
    fn find_within<R>(
        &self,
        most: u32,
        hash: u32,
        words: &[u64],
        now: u64,
        mut take: impl FnMut(u32, u64) -> Option<R>,
    ) -> Option<R> {
        let shard = self.shard(hash);
        for _ in 0..TRIES {
            let Some(version) = shard.version() else {
                manylane_sync::relax();
                continue;
            };
            match self.walk_within(most, shard, hash, words, now, &mut take) {
                Ok(Some(found)) => return Some(found),
                Ok(None) if shard.is_still(version) => return None,
                Ok(None) | Err(()) => {}
            }
        }
        let _guard = shard.inner.lock();
        self.walk(shard, hash, words, now, &mut take)
    }

    /// Runs `read` on the entry of a key, if it is present. Writes nothing. `read` may run more than once.
    #[inline]
    pub fn peek<R>(&self, words: &[u64], now: u64, read: impl Fn(&Entry<'_>) -> R) -> Option<R> {
        let hash = self.hash(words);
        self.find(hash, words, now, |at, state| {
            let entry = self.entry(at);
            let result = read(&entry);
            manylane_sync::atomic::fence(Ordering::Acquire);
            let after = entry.word(STATE).load(Ordering::Relaxed);
            (after & !HELD == state & !HELD).then_some(result)
        })
    }

    /// Holds an entry whose state was `state`, whatever its key is. Retries without a back-off: at 96
    /// simulated cores the line of a hot key then moves 2.0 to 2.6 times as often as for additions; with a
    /// back-off, 4.05 times.
    #[inline]
    fn hold_any(&self, at: u32, mut state: u64, now: u64) -> Option<EntryGuard<'_>> {
        let word = self.word(at, STATE);
        while self.is_good(at, state, now) {
            // Acquire: pairs with the store in `begin_life`, which publishes the key.
            match word.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(EntryGuard { entry: self.entry(at) }),
                Err(actual) => state = actual,
            }
        }
        None
    }

    /// Holds an entry whose state was `state` and whose key should be `words`.
    #[inline]
    fn hold(&self, at: u32, state: u64, hash: u32, words: &[u64], now: u64) -> Option<EntryGuard<'_>> {
        let held = self.hold_any(at, state, now)?;
        // The entry may have begun another life since its key was compared.
        self.is_of(at, hash, words).then_some(held)
    }

    /// Holds the entry of a key, if it is present.
    pub fn get(&self, words: &[u64], now: u64) -> Option<EntryGuard<'_>> {
        let hash = self.hash(words);
        self.find(hash, words, now, |at, state| self.hold(at, state, hash, words, now))
    }

    /// Holds the entry of a key; makes it if necessary. `None` if the table is full and cannot drop an entry,
    /// or there is no memory.
    pub fn get_or_make(&self, words: &[u64], now: u64) -> Option<EntryGuard<'_>> {
        self.get_or_make_until(words, now, now + self.spec.expire)
    }

    /// As [`get_or_make`](Self::get_or_make); an entry that is made expires on `date`.
    pub fn get_or_make_until(&self, words: &[u64], now: u64, date: u64) -> Option<EntryGuard<'_>> {
        let hash = self.hash(words);
        match self.find(hash, words, now, |at, state| self.hold(at, state, hash, words, now)) {
            Some(held) => Some(held),
            None => self.make(hash, words, (now, date)),
        }
    }

    /// The entry with this number, which must be held.
    pub fn held(&self, number: u32) -> Entry<'_> {
        self.entry(number)
    }

    /// Ends a hold from [`EntryGuard::into_number`]. The entry then stays for as long as a new one.
    pub fn release(&self, number: u32, now: u64) {
        self.entry(number).touch(now);
        self.let_go(number);
    }

    fn let_go(&self, at: u32) {
        // Release: pairs with `end_life`; the counts are written before the memory begins another life.
        self.word(at, STATE).fetch_sub(1, Ordering::Release);
    }

    #[cold]
    fn make(&self, hash: u32, words: &[u64], (now, date): (u64, u64)) -> Option<EntryGuard<'_>> {
        if !self.reserve(hash, now) {
            return None;
        }
        let shard = self.shard(hash);
        let mut inner = shard.inner.lock();
        let made = self.make_in(shard, &mut inner, hash, words, (now, date));
        if !matches!(made, Some((_, true))) {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        made.map(|(held, _)| held)
    }

    /// The entry, and whether it is an additional one.
    fn make_in(
        &self,
        shard: &Shard,
        inner: &mut Inner,
        hash: u32,
        words: &[u64],
        (now, date): (u64, u64),
    ) -> Option<(EntryGuard<'_>, bool)> {
        let there = self.walk(shard, hash, words, now, |at, state| self.hold(at, state, hash, words, now));
        if let Some(held) = there {
            return Some((held, false)); // another lane was faster
        }
        // An expired entry of the key begins another life in its place.
        let old = self.walk(shard, hash, words, 0, |at, _| Some(at));
        if let Some(at) = old {
            if self.end_life(at) {
                self.begin_life(at, words, (now, date));
                return Some((EntryGuard { entry: self.entry(at) }, false));
            }
            // Another lane, whose clock is behind, holds the entry meanwhile: it lives on. It cannot end
            // before it is held here, since that needs the lock.
            let state = self.word(at, STATE).load(Ordering::Acquire);
            return self.hold(at, state, hash, words, 0).map(|held| (held, false));
        }
        let bucket = shard.bucket_or_made(hash, self.buckets())?;
        let at = self.take_free(inner)?;
        let first = bucket.load(Ordering::Relaxed);
        self.word(at, LINK).store(u64::from(hash) << 32 | u64::from(first), Ordering::Release);
        self.begin_life(at, words, (now, date));
        shard.changing(|| bucket.store(at, Ordering::Release));
        inner.file(date, at);
        Some((EntryGuard { entry: self.entry(at) }, true))
    }

    /// Buckets of a shard.
    fn buckets(&self) -> usize {
        (self.spec.size as usize / self.shards.len()).next_power_of_two()
    }

    /// Ends an entry's life, unless it is held. Rule 2.
    fn end_life(&self, at: u32) -> bool {
        let word = self.word(at, STATE);
        let state = word.load(Ordering::Relaxed);
        // Acquire: pairs with `let_go`.
        state & LIVE != 0
            && state & HELD == 0
            && word
                .compare_exchange(
                    state,
                    ((state & !LIVE) + LIFE) & !LIVE,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Begins a life, with one hold.
    fn begin_life(&self, at: u32, words: &[u64], (now, date): (u64, u64)) {
        // Release: pairs with the fence in `peek`; a reader that sees the new words also sees that the old
        // life is over.
        manylane_sync::atomic::fence(Ordering::Release);
        let entry = self.entry(at);
        for (n, word) in words.iter().enumerate() {
            entry.word(HEADER + n).store(*word, Ordering::Relaxed);
        }
        (HEADER + self.layout.key_words..self.layout.words)
            .for_each(|n| entry.word(n).store(0, Ordering::Relaxed));
        for data in self.spec.data.iter().filter(|data| data.kind.is_rate()) {
            for index in 0..data.count {
                if let Some((first, _)) = self.layout.find(data.kind, index) {
                    entry.word(first).store(rate::fresh(now), Ordering::Relaxed);
                    entry.word(first + 1).store(rate::fresh(now), Ordering::Relaxed);
                }
            }
        }
        entry.word(DATE).store(date, Ordering::Relaxed);
        let state = entry.word(STATE).load(Ordering::Relaxed);
        // Release: pairs with the acquire in `hold`; publishes the key.
        entry.word(STATE).store(((state + LIFE) & !LIVE & !HELD) | LIVE | 1, Ordering::Release);
    }

    /// Takes a free entry and allocates its memory if necessary.
    fn take_free(&self, inner: &mut Inner) -> Option<u32> {
        if let Some(at) = inner.free.pop() {
            return Some(at);
        }
        {
            let mut free = self.free.lock();
            let left = free.len().saturating_sub(BATCH);
            inner.free.extend(free.drain(left..));
        }
        if let Some(at) = inner.free.pop() {
            return Some(at);
        }
        let at = self.fresh.load(Ordering::Relaxed);
        let chunk = self.chunks.get(at as usize >> self.chunk_bits)?;
        if chunk.get().is_none() {
            let lines = self.lines << self.chunk_bits;
            // Beside the lines, each entry is filed by its date.
            let filed = size_of::<u64>() << self.chunk_bits;
            manylane_pool::check_growth(lines * size_of::<Line>() + filed).ok()?;
            let mut made = Vec::new();
            made.try_reserve_exact(lines).ok()?;
            made.extend((0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))));
            let _ = chunk.set(made.into_boxed_slice()); // fails if another shard was faster
        }
        match self.fresh.compare_exchange(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(at),
            Err(_) => self.take_free(inner), // another shard was faster
        }
    }

    fn give_free(&self, inner: &mut Inner, at: u32) {
        inner.free.push(at);
        if inner.free.len() > 2 * BATCH {
            let left = inner.free.len() - BATCH;
            self.free.lock().extend(inner.free.drain(left..));
        }
    }

    /// Makes room for one more entry. Rule 5.
    fn reserve(&self, hash: u32, now: u64) -> bool {
        loop {
            let used = self.used.load(Ordering::Relaxed);
            if used < self.spec.size {
                if self
                    .used
                    .compare_exchange_weak(used, used + 1, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
                {
                    return true;
                }
                continue;
            }
            if now < self.nothing_until.load(Ordering::Relaxed) {
                return false;
            }
            let most = ((self.spec.size >> 8) as usize + 1).min(MAX_PURGE);
            let mut left = MAX_VISITED;
            let purged = (0..MAX_SHARDS_VISITED).any(|n| {
                let shard = match n {
                    0 => self.shard(hash),
                    _ => {
                        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
                        &self.shards[turn & (self.shards.len() - 1)]
                    }
                };
                let visits = left.div_ceil(2); // the rest is for the other shards
                left -= visits;
                self.purge(shard, &mut shard.inner.lock(), now, (most, visits)) > 0
            });
            if !purged {
                self.nothing_until.store(now + NOTHING_FOR, Ordering::Relaxed);
                return false;
            }
        }
    }

    /// Drops up to `most` entries and visits up to `visits`: expired ones and, without `nopurge`, the least
    /// recently used ones. Returns the number of dropped entries.
    fn purge(&self, shard: &Shard, inner: &mut Inner, now: u64, (most, visits): (usize, usize)) -> usize {
        let mut gone = 0;
        for visited in 0..visits.min(inner.len() * 2) {
            if gone == most {
                break;
            }
            let has_come = |date: u64| self.spec.expire > 0 && date <= now;
            let Some((date, at)) = inner.take_first(|date| !self.spec.nopurge || has_come(date)) else {
                break;
            };
            if self.free_cleared(inner, at) {
                gone += 1;
                continue;
            }
            let due = self.word(at, DATE).load(Ordering::Relaxed);
            // The entry was used since it was filed, so others are older. If all were, any will do.
            if due > date && (self.spec.nopurge || visited < visits / 2) {
                inner.file(due, at);
            } else if self.remove(shard, inner, at) {
                gone += 1;
            } else {
                inner.file(due.max(date.max(now) + self.held_for()), at); // after those that can be dropped
            }
        }
        gone
    }

    /// Frees the memory of an entry that a clearing has ended and that has left the order of dates. Returns
    /// false if the entry is present.
    fn free_cleared(&self, inner: &mut Inner, at: u32) -> bool {
        let is_live = self.is_live(at);
        if !is_live {
            self.give_free(inner, at);
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        !is_live
    }

    /// Takes an entry out of its chain, unless it is held. It must have left the order of dates.
    fn remove(&self, shard: &Shard, inner: &mut Inner, at: u32) -> bool {
        if !self.end_life(at) {
            return false;
        }
        self.unlink(shard, at);
        self.give_free(inner, at);
        self.used.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn unlink(&self, shard: &Shard, at: u32) {
        let link = self.word(at, LINK).load(Ordering::Relaxed);
        let Some(bucket) = shard.bucket((link >> 32) as u32) else { return };
        shard.changing(|| {
            let mut before = bucket.load(Ordering::Relaxed);
            if before == at {
                return bucket.store(link as u32, Ordering::Release);
            }
            while before != 0 {
                let of_before = self.word(before, LINK).load(Ordering::Relaxed);
                if of_before as u32 == at {
                    let linked = of_before & !u64::from(u32::MAX) | u64::from(link as u32);
                    return self.word(before, LINK).store(linked, Ordering::Release);
                }
                before = of_before as u32;
            }
        });
    }

    /// Removes expired entries, from shard `next` on: visits up to `most` entries, and each shard at most
    /// once. Returns true if there may be more; `next` is the shard to continue with.
    pub fn sweep(&self, next: &mut usize, now: u64, most: usize) -> bool {
        if self.spec.expire == 0 {
            return false;
        }
        let mut left = most;
        for _ in 0..self.shards.len() {
            let shard = &self.shards[*next % self.shards.len()];
            if let Some(mut inner) = shard.inner.try_lock() {
                while left > 0
                    && let Some((_, at)) = inner.take_first(|date| date <= now)
                {
                    left -= 1;
                    if self.free_cleared(&mut inner, at) {
                        continue;
                    }
                    let due = self.word(at, DATE).load(Ordering::Relaxed);
                    if due > now {
                        inner.file(due, at);
                    } else if !self.remove(shard, &mut inner, at) {
                        inner.file(now + self.held_for(), at);
                    }
                }
            }
            if left == 0 {
                return true;
            }
            *next = (*next + 1) % self.shards.len();
        }
        false
    }

    fn held_for(&self) -> u64 {
        self.spec.expire.clamp(*HELD_FOR.start(), *HELD_FOR.end())
    }

    /// Removes the entry of a key. Returns false if it is held.
    pub fn clear_key(&self, words: &[u64]) -> bool {
        let hash = self.hash(words);
        let shard = self.shard(hash);
        let mut inner = shard.inner.lock();
        let found = self.walk(shard, hash, words, 0, |at, _| Some(at));
        found.is_none_or(|at| self.clear_filed(shard, &mut inner, at))
    }

    /// Removes the entry with this number. `None` if there is none, `Some(false)` if it is held.
    pub fn clear_number(&self, number: u32, now: u64) -> Option<bool> {
        if number == 0 {
            return None;
        }
        self.chunks.get(number as usize >> self.chunk_bits)?.get()?;
        loop {
            let shard = self.shard_of(number);
            let mut inner = shard.inner.lock();
            let state = self.word(number, STATE).load(Ordering::Acquire);
            if !self.is_good(number, state, now) {
                return None;
            }
            // It may have begun another life in another shard before the lock was taken.
            if std::ptr::eq(self.shard_of(number), shard) {
                return Some(self.clear_filed(shard, &mut inner, number));
            }
        }
    }

    /// Removes an entry that is filed in a shard. Returns false if it is held.
    fn clear_filed(&self, shard: &Shard, inner: &mut Inner, at: u32) -> bool {
        if !self.end_life(at) {
            return false;
        }
        self.unlink(shard, at);
        inner.retain(|filed| filed != at);
        self.give_free(inner, at);
        self.used.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Removes entries of each shard in turn, while lanes continue to use the table.
    pub fn clearing(&self) -> impl Iterator<Item = ShardClearing<'_>> {
        self.shards.iter().map(|shard| {
            let left = shard.inner.lock().numbers();
            ShardClearing { table: self, shard, left, phase: Phase::Ending { any: false } }
        })
    }

    /// Starts to record changed entries, for peers. It costs a bit for each entry.
    pub fn share(&self) {
        self.changes.get_or_init(|| Changes::new(self.chunks.len() << self.chunk_bits));
    }

    /// Runs `work` with the numbers of the entries that were used or changed since the last call, if the
    /// table is [shared](Self::share). Some of them may be gone. For one thread at a time.
    pub fn take_changes(&self, work: impl FnMut(u32)) {
        if let Some(changes) = self.changes.get() {
            changes.take(work);
        }
    }

    /// Records that an entry was used or changed.
    #[inline]
    pub(crate) fn mark(&self, at: u32) {
        if let Some(changes) = self.changes.get() {
            changes.mark(at);
        }
    }

    /// Holds the entry with this number, if it is present.
    pub fn numbered(&self, at: u32, now: u64) -> Option<EntryGuard<'_>> {
        let chunk = self.chunks.get(at as usize >> self.chunk_bits).filter(|_| at > 0)?;
        chunk.get()?;
        // Acquire: pairs with the store in `begin_life`.
        self.hold_any(at, self.word(at, STATE).load(Ordering::Acquire), now)
    }

    /// True if entries keep this datum.
    pub fn keeps(&self, datum: Datum) -> bool {
        self.layout.find(datum.data, datum.index).is_some()
    }

    /// Runs `work` on the entries from number `from` on, holding each, until `work` returns false or enough
    /// entries were visited. Returns the number to continue with, or `None` at the end.
    pub fn each(&self, from: u32, now: u64, mut work: impl FnMut(&Entry<'_>) -> bool) -> Option<u32> {
        let end = self.fresh.load(Ordering::Relaxed);
        let from = from.max(1);
        let stop = end.min(from.saturating_add(MAX_WALKED));
        for at in from..stop {
            if let Some(held) = self.numbered(at, now)
                && !work(&held)
            {
                return Some(at + 1);
            }
        }
        (stop < end).then_some(stop)
    }
}

/// Removes entries of a shard in slices, and releases its lock between them. Rule 8.
#[derive(Debug)]
pub struct ShardClearing<'t> {
    table: &'t Table,
    shard: &'t Shard,
    /// Entries of the shard at the beginning that were not visited yet.
    left: Vec<u32>,
    phase: Phase,
}

/// What a clearing does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It ends lives; `any` if it has ended one.
    Ending {
        any: bool,
    },
    /// It takes the entries whose lives have ended out of the order of dates, and frees their memory.
    Refiling,
    Done,
}

impl ShardClearing<'_> {
    /// Visits a slice, and removes the entries for which `is_one` returns true, unless they are held. Returns
    /// true if there are more.
    pub fn step(&mut self, mut is_one: impl FnMut(&Entry<'_>) -> bool) -> bool {
        if let Phase::Ending { any } = &mut self.phase {
            let Self { table, shard, left, .. } = self;
            let mut inner = shard.inner.lock();
            for at in left.drain(left.len().saturating_sub(CLEARED_AT_ONCE)..) {
                if table.is_live(at)
                    && std::ptr::eq(table.shard_of(at), *shard)
                    && is_one(&table.entry(at))
                    && table.end_life(at)
                {
                    table.unlink(shard, at);
                    *any = true;
                }
            }
            if left.is_empty() {
                self.phase = if *any { Phase::Refiling } else { Phase::Done };
                if self.phase == Phase::Refiling {
                    inner.begin_refiling();
                }
            }
            return self.phase != Phase::Done;
        }
        self.refile()
    }

    /// Visits a slice of the order of dates. Returns true if there are more.
    fn refile(&mut self) -> bool {
        let Self { table, shard, phase, .. } = self;
        if *phase != Phase::Refiling {
            return false;
        }
        let mut gone = [0; CLEARED_AT_ONCE];
        let mut count = 0;
        let mut inner = shard.inner.lock();
        // An entry in the order of dates that is not live was cleared, here or by another clearing.
        let more = inner.refile(CLEARED_AT_ONCE, |at| {
            let is_live = table.is_live(at);
            if !is_live {
                gone[count] = at;
                count += 1;
            }
            is_live
        });
        gone[..count].iter().for_each(|at| table.give_free(&mut inner, *at));
        drop(inner);
        table.used.fetch_sub(count as u32, Ordering::Relaxed); // last: a new entry finds free memory
        if !more {
            *phase = Phase::Done;
        }
        more
    }
}

impl Drop for ShardClearing<'_> {
    fn drop(&mut self) {
        if self.phase == (Phase::Ending { any: true }) {
            self.shard.inner.lock().begin_refiling();
            self.phase = Phase::Refiling;
        }
        while self.refile() {}
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use manylane_expr::{DataType, Type};

    fn table(size: u32) -> Table {
        let data = vec![crate::Data { kind: DataType::Gpc0, count: 1, period: 0 }];
        Table::new(Spec {
            key: Type::Int,
            key_bytes: 0,
            size,
            expire: 1000,
            nopurge: false,
            data,
            bytes_factor: std::num::NonZeroU32::MIN,
            turns: false,
        })
    }

    #[test]
    fn an_entry_in_a_chain_beyond_the_steps_of_a_walk_is_found() {
        let table = table(100);
        drop(table.get_or_make(&[7], 1));
        let hash = table.hash(&[7]);
        // No step is enough for any chain, so only the walk under the lock can find it.
        assert!(table.find_within(0, hash, &[7], 1, |at, _| Some(at)).is_some());
        assert_eq!(table.find_within(0, table.hash(&[8]), &[8], 1, |at, _| Some(at)), None);
    }

    #[test]
    fn entries_that_are_made_between_the_steps_of_clearings_stay_and_expire() {
        let table = table(3000); // two shards, more entries than a step visits
        for key in 0..2500 {
            drop(table.get_or_make(&[key], 1));
        }
        let (mut first, mut second): (Vec<_>, Vec<_>) =
            (table.clearing().collect(), table.clearing().collect());
        let mut key = 10_000;
        loop {
            let mut more = false;
            for clearing in first.iter_mut().chain(&mut second) {
                // Others use the table meanwhile, and one of their entries is cleared by its key.
                for _ in 0..10 {
                    drop(table.get_or_make(&[key], 2));
                    key += 1;
                }
                assert!(table.clear_key(&[key - 1]));
                more |= clearing.step(|entry| entry.key_words().next().is_some_and(|key| key < 10_000));
            }
            if !more {
                break;
            }
        }
        drop((first, second));
        let kept = (10_000..key).filter(|key| (key + 1) % 10 != 0).count();
        assert_eq!(table.used() as usize, kept);
        assert_eq!((0..key).filter(|key| table.get(&[*key], 3).is_some()).count(), kept);
        // All are in the order of dates, once each.
        let filed: usize = table.shards.iter().map(|shard| shard.inner.lock().len()).sum();
        assert_eq!(filed, kept);
        let mut next = 0;
        while table.sweep(&mut next, 1_000_000, 100) {}
        assert_eq!(table.used(), 0);
    }
}
