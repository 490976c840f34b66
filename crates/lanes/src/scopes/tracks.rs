//! Stick table entries that a session and its request track (`track-sc`).
//!
//! Entries that `tcp-request connection` and `tcp-request session` rules track are released when the session
//! ends, those of other rules when the stream ends. A counter that tracks an entry keeps it until then.

use manylane_expr::{DataType, EntryOperation, Outcome, StickTables, TableId, Value};
use manylane_plan::generation::StickTable;
use manylane_pool::{Pool, Pooled};
use manylane_sched::Time;
use manylane_stick::{Entry, MAX_KEY_BYTES, Table, with_key};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Limit of sticky counters: the largest `tune.stick-counters`.
pub(crate) const MAX_COUNTERS: usize = 15;

/// Returns the time in milliseconds, as stick tables count it.
pub fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// A lane's handles of its generation's stick tables.
#[derive(Debug)]
pub struct LaneTables(Box<[StickTable]>);

impl LaneTables {
    pub(crate) fn new(tables: &[StickTable]) -> Rc<Self> {
        Rc::new(Self(tables.into()))
    }

    /// Returns true if there are no tables.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all tables.
    pub fn all(&self) -> impl Iterator<Item = &Table> {
        self.0.iter().map(|table| &*table.table)
    }

    /// Returns a table with its configuration.
    pub fn named(&self, id: TableId) -> Option<&StickTable> {
        self.0.get(id.0 as usize)
    }

    /// Returns a table.
    pub fn get(&self, id: TableId) -> Option<&Table> {
        Some(&*self.named(id)?.table)
    }
}

/// Keeps an entry alive.
#[derive(Debug)]
pub struct HeldEntry {
    tables: Rc<LaneTables>,
    table: TableId,
    number: u32,
}

impl HeldEntry {
    /// Takes over the caller's hold of an entry: its table, and its number there.
    #[inline]
    pub fn new(tables: Rc<LaneTables>, table: TableId, number: u32) -> Self {
        Self { tables, table, number }
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        Some(self.tables.get(self.table)?.held(self.number))
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        if let Some(table) = self.tables.get(self.table) {
            table.release(self.number, millis(Time::now()));
        }
    }
}

/// A tracked entry. Counts as a current connection (`conn_cur`) until it is dropped.
#[derive(Debug)]
pub struct Tracked(pub HeldEntry);

impl Tracked {
    /// Returns the entry; `None` if the lane has no table with this id.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.0.entry()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if let Some(entry) = self.entry() {
            entry.take_one(DataType::ConnCur);
        }
    }
}

/// Tracked entries by counter.
#[derive(Debug, Default)]
pub struct TrackedSlots([Option<Tracked>; MAX_COUNTERS]);

manylane_sync::lazy_static! {
    static TRACKS: Pool<TrackedSlots> =
        Pool::new("tracked entries").expect("the size is a constant below the bound");
}

/// Entries that a session tracks.
#[derive(Debug, Default)]
pub enum SessionTracks {
    /// The session tracks none.
    #[default]
    None,
    /// For a session whose requests come one after another.
    Own(Pooled<TrackedSlots>),
    /// For a session with concurrent streams.
    Shared(Rc<Pooled<TrackedSlots>>),
}

impl SessionTracks {
    /// Returns true if the session tracks none.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    fn slots(&self) -> Option<&TrackedSlots> {
        match self {
            Self::None => None,
            Self::Own(slots) => Some(slots),
            Self::Shared(slots) => Some(slots),
        }
    }

    /// Makes the entries shareable by several streams.
    pub fn into_shared(self) -> Self {
        match self {
            Self::Own(slots) => Self::Shared(Rc::new(slots)),
            other => other,
        }
    }

    /// Returns a handle for another stream.
    pub fn share(&self) -> Self {
        match self {
            Self::Shared(slots) => Self::Shared(slots.clone()),
            _ => Self::None,
        }
    }

    /// Counts an event of the session, while no stream runs.
    pub fn count(&self, what: Countable, now: Time) {
        let now = millis(now);
        if let Some(TrackedSlots(slots)) = self.slots() {
            slots.iter().flatten().for_each(|tracked| tracked.count(what, now));
        }
    }
}

/// An event that tracked entries count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countable {
    /// A session was accepted.
    Session,
    /// A request arrived.
    Request,
    /// The client made an error.
    Error,
    /// A server failed to respond.
    Failure,
    /// Bytes from the client and to the client.
    Bytes {
        /// From the client.
        up: u64,
        /// To the client.
        down: u64,
    },
    /// Protocol glitches of the client.
    Glitches(u32),
}

impl Tracked {
    /// Counts what happened, at `now` in milliseconds.
    pub fn count(&self, what: Countable, now: u64) {
        let Some(entry) = self.entry() else { return };
        let both = |count: DataType, rate: DataType, n: u64| {
            let counted = entry.add(count, n, now).is_some();
            entry.add(rate, n, now).is_some() || counted
        };
        use DataType::*;
        let counted = match what {
            Countable::Session => both(SessCnt, SessRate, 1),
            Countable::Request => both(HttpReqCnt, HttpReqRate, 1),
            Countable::Error => both(HttpErrCnt, HttpErrRate, 1),
            Countable::Failure => both(HttpFailCnt, HttpFailRate, 1),
            Countable::Glitches(n) => both(GlitchCnt, GlitchRate, n.into()),
            Countable::Bytes { up, down } => {
                let counted = up > 0 && both(BytesInCnt, BytesInRate, up);
                down > 0 && both(BytesOutCnt, BytesOutRate, down) || counted
            }
        };
        if counted {
            entry.touch(now);
        }
    }
}

/// Entries that a session and its current stream track.
#[derive(Debug, Default)]
pub struct Tracks {
    /// True if anything is tracked. Streams without tracking read only this.
    any: Cell<bool>,
    session: RefCell<SessionTracks>,
    /// `None` for most streams.
    stream: RefCell<Option<Pooled<TrackedSlots>>>,
    of_stream: Cell<bool>,
}

impl Tracks {
    /// Releases the stream's entries.
    #[inline]
    pub(crate) fn end_stream(&self) {
        if self.of_stream.replace(false) {
            self.any.set(self.has_session());
            let slots = self.stream.take();
            drop(slots); // outside of the borrow
        }
    }

    /// Returns true if the session tracks an entry.
    pub(crate) fn has_session(&self) -> bool {
        !self.session.borrow().is_none()
    }

    /// Takes the session's entries out.
    #[inline]
    pub fn take_session(&self) -> SessionTracks {
        if !self.any.get() {
            return SessionTracks::None;
        }
        self.any.set(self.of_stream.get());
        self.session.take()
    }

    /// Gives the session its entries back.
    pub fn put_session(&self, session: SessionTracks) {
        self.any.set(self.of_stream.get() || !session.is_none());
        self.session.replace(session);
    }

    /// Calls `work` for each tracked entry.
    fn each(&self, work: impl FnMut(&Tracked)) {
        let (stream, session) = (self.stream.borrow(), self.session.borrow());
        let all = [stream.as_deref(), session.slots()].into_iter().flatten();
        all.flat_map(|TrackedSlots(slots)| slots.iter().flatten()).for_each(work);
    }

    /// Calls `work` with the entry of a counter.
    pub fn find<R>(&self, counter: u32, work: impl FnOnce(&Tracked) -> R) -> Option<R> {
        if !self.any.get() {
            return None;
        }
        let (stream, session) = (self.stream.borrow(), self.session.borrow());
        let mut all = [stream.as_deref(), session.slots()].into_iter().flatten();
        all.find_map(|TrackedSlots(slots)| slots.get(counter as usize)?.as_ref()).map(work)
    }

    /// Counts an event in all tracked entries.
    #[inline]
    pub(crate) fn count(&self, what: Countable, now: impl FnOnce() -> Time) {
        if self.any.get() {
            self.count_in(what, now());
        }
    }

    #[cold]
    fn count_in(&self, what: Countable, now: Time) {
        let now = millis(now);
        self.each(|tracked| tracked.count(what, now));
    }

    /// Tracks an entry with a counter of the session or the stream, and counts the connection in it. Does
    /// nothing if the allocation fails.
    pub fn track(&self, of_session: bool, counter: usize, tracked: Tracked, now: u64) {
        if let Some(entry) = tracked.entry() {
            for data in [DataType::ConnCur, DataType::ConnCnt, DataType::ConnRate] {
                entry.add(data, 1, now);
            }
            entry.touch(now);
        }
        let fill = |slots: &mut TrackedSlots| {
            if let Some(slot) = slots.0.get_mut(counter) {
                *slot = Some(tracked);
                self.any.set(true);
            }
        };
        if of_session {
            let mut session = self.session.borrow_mut();
            if session.is_none()
                && let Ok(slots) = TRACKS.alloc(TrackedSlots::default())
            {
                *session = SessionTracks::Own(slots);
            }
            if let SessionTracks::Own(slots) = &mut *session {
                fill(slots);
            }
            return;
        }
        let mut stream = self.stream.borrow_mut();
        if stream.is_none() {
            *stream = TRACKS.alloc(TrackedSlots::default()).ok();
        }
        if let Some(slots) = &mut *stream {
            self.of_stream.set(true);
            fill(slots);
        }
    }
}

/// Stick tables as expressions see them.
pub struct TableView<'a> {
    /// The lane's tables.
    pub tables: &'a LaneTables,
    /// Entries that the session and its request track.
    pub tracks: &'a Tracks,
    /// The time in milliseconds.
    pub now: u64,
}

impl StickTables for TableView<'_> {
    fn tracked(&self, counter: u32, table: Option<TableId>, ask: EntryOperation) -> Outcome {
        let outcome = self.tracks.find(counter, |tracked| {
            let entry = tracked.entry()?;
            match table.filter(|table| *table != tracked.0.table) {
                None => Some(entry.ask(ask, self.now)),
                Some(other) => {
                    let mut bytes = [0; MAX_KEY_BYTES];
                    Some(self.keyed(other, entry.key(&mut bytes), ask, false))
                }
            }
        });
        outcome.flatten().unwrap_or(Outcome::NotTracked)
    }

    fn keyed(&self, table: TableId, key: Value<'_>, ask: EntryOperation, makes: bool) -> Outcome {
        let Some(table) = self.tables.get(table) else { return Outcome::NoEntry };
        let outcome = with_key(table.spec(), key, |words| match (ask.changes(), makes) {
            (false, _) => table.peek(words, self.now, |entry| entry.ask(ask, self.now)),
            (true, false) => table.get(words, self.now).map(|entry| entry.ask(ask, self.now)),
            (true, true) => table.get_or_make(words, self.now).map(|entry| entry.ask(ask, self.now)),
        });
        outcome.flatten().unwrap_or(Outcome::NoEntry)
    }

    fn key_of<'b>(&self, counter: u32, bytes: &'b mut [u8]) -> Option<Value<'b>> {
        self.tracks.find(counter, |tracked| Some(tracked.entry()?.key(bytes)))?
    }

    fn entries(&self, table: TableId) -> (u32, u32) {
        let Some(table) = self.tables.get(table) else { return (0, 0) };
        let used = table.used();
        (used, table.spec().size.saturating_sub(used))
    }
}
