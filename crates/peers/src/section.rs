//! The tables that a process shares with its peers: what each peer was sent, and what it is sent next.
//!
//! # Protocol
//! 1. Each changed entry gets a number within its table, larger than all before. Each peer has a cursor for
//!    each table: the number up to which it was sent updates, and the number that it has acknowledged. A
//!    connection begins at the latter.
//! 2. Changes learned from a peer get no number: the process that counted sends them to every peer.
//! 3. A process that requests a resynchronisation gets all entries of all tables, including learned ones. It
//!    asks one peer after another, until one answers that it has everything itself, or until a time limit. A
//!    peer that was asked and sends no entries for that time is passed over, whatever else it sends.
//! 4. A process that replaces another waits for it first: the old process connects to the new one, which has
//!    the same name, and sends it everything.
//! 5. During a resynchronisation, a process keeps entries that it has changed itself and that the peer has
//!    not acknowledged: the peer may send an old value that it once learned from this process.

use crate::dictionary::Dictionary;
use crate::wire::{Definition, Message, MessageError, Update, put_kept, put_key, put_server};
use manylane_expr::{DataType, Datum, Type, Value};
use manylane_stick::{Data, DataValue, Entry, EntryGuard, MAX_KEY_BYTES, Table, with_key};
use manylane_sync::Arc;
use std::collections::{BTreeMap, HashMap};
use xxhash_rust::xxh64::xxh64;

/// Changed entries to visit for a peer in one call.
const MAX_VISITED: usize = 4096;

/// Milliseconds without output before a heartbeat is sent.
pub const HEARTBEAT: u64 = 3000;
/// Milliseconds without input after which a peer counts as gone, since it would have sent a heartbeat.
pub const SILENCE: u64 = 5000;
/// Most kept definitions of a peer's tables that are unknown here.
const MAX_UNKNOWN: usize = 64;
/// Milliseconds to wait for a resynchronisation, first by the old process and then by a peer.
const RESYNC: u64 = 5000;
/// Bytes after which [`Section::transmit`] returns, so that other tasks run.
const FILL: usize = 16_384;
/// Calls of [`Table::each`] for a resynchronisation in one call of [`Section::transmit`].
const MAX_READS: u32 = 16;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the protocol; it is sent an error.
    Message(MessageError),
    /// The peer reports that this process broke it.
    Blamed,
}

/// A table to share with peers.
#[derive(Clone, Debug)]
pub struct SharedTable {
    /// The table's name in the protocol.
    pub name: Box<str>,
    /// The table.
    pub table: Arc<Table>,
    /// `recv-only`: the table is not sent to peers.
    pub receives_only: bool,
    /// `write-to`: a table that also takes what peers send of this one.
    pub write_to: Option<Arc<Table>>,
}

/// A shared table and its changes.
#[derive(Debug)]
struct Shared {
    name: Box<str>,
    table: Arc<Table>,
    /// `recv-only`: the table is not sent to peers.
    receives_only: bool,
    /// `write-to`: a table that also takes what peers send of this one.
    write_to: Option<Arc<Table>>,
    /// Number of the last change.
    last: u64,
    /// Entries by change, for changes that some peer may not have acknowledged.
    changes: BTreeMap<u64, u32>,
    /// The last change of each entry.
    numbers: HashMap<u32, u64>,
}

/// Progress of a peer in a table. Rule 1.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    sent: u64,
    known: u64,
}

/// Progress of a resynchronisation that is being sent.
#[derive(Clone, Copy, Debug, Default)]
struct ResyncProgress {
    table: usize,
    next: u32,
}

/// A part of the keys: what a peer with `shard` is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 1 to `of`.
    pub number: u32,
    /// Parts in all.
    pub of: u32,
}

/// What is known of a peer at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSpec {
    /// The peer has this process's own name: it is the old process or the new one.
    pub is_local: bool,
    /// The peer gets these keys only; `None` for all.
    pub shard: Option<Shard>,
}

/// A table that the peer has defined.
#[derive(Debug)]
struct PeerTable {
    /// Without the name.
    definition: Definition<'static>,
    /// Index of the table here; `None` if it is unknown here. Then its updates are read for names of servers
    /// only: updates of other tables refer to them by number.
    own: Option<usize>,
    /// Number of the last update received.
    last: u32,
    /// Number of the last update that was acknowledged.
    acked: u32,
}

/// State of a connection.
#[derive(Debug)]
struct Session {
    /// For each table, whether it was defined to the peer.
    defined: Vec<bool>,
    /// The table of the next update to send.
    sends: Option<usize>,
    teaching: Option<ResyncProgress>,
    /// For each table, the last change when the resynchronisation began; acknowledged once the peer confirms.
    taught: Option<Vec<u64>>,
    /// The peer has confirmed that it got everything.
    has_taught: bool,
    owes_request: bool,
    owes_confirm: bool,
    theirs: Vec<PeerTable>,
    /// The table of the next update to receive; `None` if its updates are of no use here.
    receives: Option<usize>,
    /// Servers in updates that were sent.
    servers_sent: Dictionary,
    /// Servers in updates that were received.
    servers_received: Dictionary,
    heard: u64,
    said: u64,
}

/// Counters of a peer, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Heartbeats received.
    pub heartbeats_received: u64,
    /// Connections that began.
    pub connections: u64,
    /// Connections that ended because the peer broke the protocol.
    pub errors: u64,
    /// Times that the peer was silent for too long.
    pub silences: u64,
    /// Connections that were replaced by another one.
    pub collisions: u64,
}

/// A peer.
#[derive(Debug)]
struct Peer {
    spec: PeerSpec,
    cursors: Vec<Cursor>,
    session: Option<Session>,
    /// The peer was asked for a resynchronisation and did not have everything itself.
    lacks: bool,
    counts: Counts,
}

/// State of the resynchronisation of this process. Rules 3 and 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// Waits for the old process, or for its entries once they are requested, until this time in
    /// milliseconds.
    Local(u64),
    /// Waits for a peer, or for its entries once they are requested, until this time in milliseconds.
    Remote(u64),
    /// Complete, or no peer could send one.
    Finished,
}

/// Report on a table and a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// The table's name.
    pub name: Box<str>,
    /// This process's number for the table, starting at 1.
    pub local_id: u64,
    /// The peer's number for the table; 0 if the peer has not defined it.
    pub remote_id: u64,
    /// Data that the peer keeps, a bit for each kind.
    pub remote_data: u64,
    /// The last change that the peer has acknowledged.
    pub known: u32,
    /// The last change that the peer was sent.
    pub sent: u32,
    /// The last update received from the peer.
    pub received: u32,
    /// The last change.
    pub last: u32,
}

/// Report on a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// A connection exists.
    pub is_connected: bool,
    /// The peer is sending a resynchronisation.
    pub teaches: bool,
    /// Milliseconds until the next heartbeat.
    pub heartbeat: u64,
    /// The peer's counters.
    pub counts: Counts,
    /// The shared tables.
    pub tables: Vec<TableReport>,
}

/// The shared tables and the peers of a `peers` section.
#[derive(Debug)]
pub struct Section {
    tables: Vec<Shared>,
    peers: Vec<Peer>,
    resync: Resync,
    /// The peer that was asked for a resynchronisation.
    learns_from: Option<usize>,
    /// There were changes since the last [`tick`](Self::tick).
    has_changes: bool,
}

/// True if peers are sent these data: concurrent connections belong to each process.
fn is_sent(data: &&Data) -> bool {
    data.kind != DataType::ConnCur
}

/// True if `write-to` copies these data: those that nothing is added to, as in HAProxy.
fn is_copied(kind: DataType) -> bool {
    matches!(kind, DataType::ServerId | DataType::ServerKey | DataType::Gpt0 | DataType::Gpt)
}

/// Length of a key in a definition. For text it includes the terminating byte of HAProxy's memory.
fn key_bytes(table: &Table) -> u64 {
    let spec = table.spec();
    match spec.key {
        Type::Ipv6 => 16,
        Type::Str => spec.key_bytes as u64 + 1,
        Type::Bin => spec.key_bytes as u64,
        _ => 4,
    }
}

/// Holds the entry of a key; one that is made expires on `date`.
fn hold<'t>(table: &'t Table, key: Value<'_>, now: u64, date: u64) -> Option<EntryGuard<'t>> {
    with_key(table.spec(), key, |words| table.get_or_make_until(words, now, date)).flatten()
}

impl Shared {
    fn definition(&self, number: usize) -> Definition<'_> {
        let spec = self.table.spec();
        Definition {
            table: number as u64 + 1,
            name: self.name.as_bytes(),
            key: Some(spec.key),
            key_bytes: key_bytes(&self.table),
            expire: spec.expire,
            data: spec.data.iter().filter(is_sent).copied().collect(),
        }
    }

    /// Returns true if the key is in this part, by HAProxy's hash: XXH64 of the key in memory, seeded by that
    /// of the table's name.
    fn is_in(&self, entry: &Entry<'_>, shard: Option<Shard>) -> bool {
        let Some(Shard { number, of }) = shard else { return true };
        let mut bytes = [0; MAX_KEY_BYTES];
        let key = entry.key(&mut bytes);
        let mut body = Vec::new();
        let key: &[u8] = match key {
            Value::Str(text) | Value::Bin(text) => text,
            Value::Int(number) => {
                body.extend_from_slice(&(number as u32).to_ne_bytes());
                &body
            }
            address => {
                put_key(address, &mut body);
                &body
            }
        };
        xxh64(key, xxh64(self.name.as_bytes(), 0)) % u64::from(of) + 1 == u64::from(number)
    }

    fn put(&self, entry: &Entry<'_>, number: u32, servers: &mut Dictionary, now: u64, out: &mut Vec<u8>) {
        let mut bytes = [0; MAX_KEY_BYTES];
        let mut body = Vec::new();
        put_key(entry.key(&mut bytes), &mut body);
        for data in self.table.spec().data.iter().filter(is_sent) {
            for index in 0..data.count {
                match entry.kept(Datum { data: data.kind, index }, now) {
                    Some(DataValue::Number(key)) if data.kind == DataType::ServerKey => {
                        put_server(key, servers, &mut body);
                    }
                    Some(kept) => put_kept(kept, &mut body),
                    None => {}
                }
            }
        }
        let expire =
            (self.table.spec().expire > 0).then(|| u32::try_from(entry.expires_in(now)).unwrap_or(u32::MAX));
        Message::Update(Update { number: Some(number), expire, body: &body }).write(out);
    }

    /// Applies an update, unless its entry `is_ahead` of the peer. Does nothing if there is no room for the
    /// entry.
    fn learn(
        &self,
        definition: &Definition<'_>,
        update: &Update<'_>,
        servers: &mut Dictionary,
        is_ahead: impl Fn(u32) -> bool,
        now: u64,
    ) -> Result<(), MessageError> {
        let date = |table: &Table| {
            let expire = table.spec().expire;
            now + update.expire.map_or(expire, |left| expire.min(left.into()))
        };
        let (mut entry, mut copy) = (None, None);
        update.read(definition, servers, |key, value| match value {
            None => {
                entry = hold(&self.table, key, now, date(&self.table));
                entry = entry.take().filter(|entry| !is_ahead(entry.number()));
                let target = self.write_to.as_deref().filter(|_| entry.is_some());
                copy = target.and_then(|target| hold(target, key, now, date(target)));
            }
            Some((datum, kept)) => {
                let Some(entry) = &entry else { return };
                let theirs = definition.data.iter().find(|data| data.kind == datum.data);
                let own = self.table.spec().data.iter().find(|data| data.kind == datum.data);
                // A rate over another period is not comparable.
                let same = theirs.zip(own).is_some_and(|(theirs, own)| theirs.period == own.period);
                if same && datum.data != DataType::ConnCur {
                    entry.learn(datum, kept, now);
                }
                if let Some(copy) = copy.as_ref().filter(|_| is_copied(datum.data)) {
                    copy.learn(datum, kept, now);
                }
            }
        })?;
        for (entry, table) in [(entry, Some(&self.table)), (copy, self.write_to.as_ref())] {
            if let (Some(entry), Some(table)) = (entry, table)
                && table.spec().expire > 0
            {
                entry.set_expiry(date(table));
            }
        }
        Ok(())
    }

    /// Records changes. Returns true if there were any.
    fn collect(&mut self, known: u64) -> bool {
        let before = self.last;
        let Self { table, last, changes, numbers, .. } = self;
        table.take_changes(|entry| {
            *last += 1;
            if let Some(old) = numbers.insert(entry, *last) {
                changes.remove(&old);
            }
            changes.insert(*last, entry);
        });
        while let Some(first) = changes.first_entry()
            && *first.key() <= known
        {
            numbers.remove(&first.remove());
        }
        self.last > before
    }
}

impl Session {
    /// Makes this table the one of the next update.
    fn announce(&mut self, number: usize, shared: &Shared, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.defined[number], true) {
            Message::Define(shared.definition(number)).write(out);
        } else if self.sends != Some(number) {
            Message::Switch(number as u64 + 1).write(out);
        }
        self.sends = Some(number);
    }
}

impl Section {
    /// Creates a section. With `follows`, an old process exists, which sends its entries first.
    pub fn new(
        tables: impl IntoIterator<Item = SharedTable>,
        peers: impl IntoIterator<Item = PeerSpec>,
        follows: bool,
        now: u64,
    ) -> Self {
        let tables: Vec<Shared> = tables
            .into_iter()
            .map(|SharedTable { name, table, receives_only, write_to }| {
                table.share();
                let (changes, numbers) = Default::default();
                Shared { name, table, receives_only, write_to, last: 0, changes, numbers }
            })
            .collect();
        let peer = |spec| Peer {
            spec,
            cursors: vec![Cursor::default(); tables.len()],
            session: None,
            lacks: false,
            counts: Counts::default(),
        };
        let peers = peers.into_iter().map(peer).collect();
        let resync = if follows { Resync::Local(now + RESYNC) } else { Resync::Remote(now + RESYNC) };
        Self { tables, peers, resync, learns_from: None, has_changes: false }
    }

    /// State of the resynchronisation.
    pub fn resync(&self) -> Resync {
        self.resync
    }

    /// True if the peer is connected.
    pub fn is_connected(&self, peer: usize) -> bool {
        self.peers[peer].session.is_some()
    }

    /// Begins a connection with a peer; replaces an existing one.
    pub fn begin(&mut self, peer: usize, now: u64) {
        self.end(peer, now);
        let session = Session {
            defined: vec![false; self.tables.len()],
            sends: None,
            teaching: None,
            taught: None,
            has_taught: false,
            owes_request: false,
            owes_confirm: false,
            theirs: Vec::new(),
            receives: None,
            servers_sent: Dictionary::default(),
            servers_received: Dictionary::default(),
            heard: now,
            said: now,
        };
        let own = &mut self.peers[peer];
        own.counts.connections += 1;
        own.cursors.iter_mut().for_each(|cursor| cursor.sent = cursor.known);
        own.session = Some(session);
        self.tick(now);
    }

    /// Ends the connection with a peer.
    pub fn end(&mut self, peer: usize, now: u64) {
        self.peers[peer].session = None;
        if self.learns_from == Some(peer) {
            self.learns_from = None;
            self.wait_for_entries(now);
        }
    }

    /// Sets the time limit of the resynchronisation anew.
    fn wait_for_entries(&mut self, now: u64) {
        match &mut self.resync {
            Resync::Local(until) | Resync::Remote(until) => *until = now + RESYNC,
            Resync::Finished => {}
        }
    }

    /// The counters of a peer, to be changed by the caller.
    pub fn counts(&mut self, peer: usize) -> &mut Counts {
        &mut self.peers[peer].counts
    }

    /// Records changes of all tables.
    fn collect(&mut self) {
        let Self { tables, peers, has_changes, .. } = self;
        for (number, shared) in tables.iter_mut().enumerate() {
            let remote = peers.iter().filter(|peer| !peer.spec.is_local);
            let known = remote.map(|peer| peer.cursors[number].known).min().unwrap_or(u64::MAX);
            *has_changes |= shared.collect(known) && !shared.receives_only;
        }
    }

    /// Records changes of tables, and requests a resynchronisation if necessary. Call it periodically.
    /// Returns true if there is something new to [transmit](Self::transmit).
    pub fn tick(&mut self, now: u64) -> bool {
        self.collect();
        let any = std::mem::take(&mut self.has_changes);
        let asks = |peer: &Peer| peer.session.is_some() && !peer.lacks;
        let (is_local, until) = match self.resync {
            Resync::Local(until) => (true, until),
            Resync::Remote(until) => (false, until),
            Resync::Finished => return any,
        };
        if let Some(peer) = self.learns_from {
            if now < until {
                return any;
            }
            // It only sends heartbeats: another may know more.
            self.peers[peer].lacks = true;
            self.learns_from = None;
            self.wait_for_entries(now);
        }
        let found = self.peers.iter().position(|peer| peer.spec.is_local == is_local && asks(peer));
        match found {
            Some(peer) => {
                self.learns_from = Some(peer);
                self.wait_for_entries(now);
                if let Some(session) = &mut self.peers[peer].session {
                    session.owes_request = true;
                }
                return true;
            }
            None if now >= until && is_local => self.resync = Resync::Remote(now + RESYNC),
            None if now >= until => self.resync = Resync::Finished,
            None => {}
        }
        any
    }

    /// True if the peer was silent for too long.
    pub fn is_silent(&self, peer: usize, now: u64) -> bool {
        let session = self.peers[peer].session.as_ref();
        session.is_some_and(|session| now.saturating_sub(session.heard) >= SILENCE)
    }

    /// Processes bytes from a connected peer. Returns the number of bytes in complete messages, which are
    /// consumed.
    ///
    /// # Errors
    /// [`Fault`]: the connection cannot continue.
    pub fn receive(&mut self, peer: usize, bytes: &[u8], now: u64) -> Result<usize, Fault> {
        let mut used = 0;
        if self.learns_from == Some(peer) {
            self.collect(); // rule 5
        }
        while let Some((message, length)) = Message::read(&bytes[used..]).map_err(Fault::Message)? {
            used += length;
            self.handle(peer, message, now)?;
        }
        Ok(used)
    }

    fn handle(&mut self, peer: usize, message: Message<'_>, now: u64) -> Result<(), Fault> {
        let Self { tables, peers, resync, learns_from, .. } = self;
        let own = &mut peers[peer];
        let Some(session) = &mut own.session else { return Err(Fault::Blamed) };
        session.heard = now;
        match message {
            Message::ResyncRequest => {
                session.teaching = Some(ResyncProgress::default());
                let taught: Vec<u64> = tables.iter().map(|shared| shared.last).collect();
                let all = own.cursors.iter_mut().zip(&taught);
                all.for_each(|(cursor, last)| cursor.sent = *last);
                session.taught = Some(taught);
            }
            Message::ResyncFinished | Message::ResyncPartial => {
                session.owes_confirm = true;
                if *learns_from == Some(peer) {
                    *learns_from = None;
                    if message == Message::ResyncFinished {
                        *resync = Resync::Finished;
                    } else {
                        own.lacks = true;
                        *resync = Resync::Remote(now + RESYNC);
                    }
                }
            }
            Message::ResyncConfirm => {
                // Ignores a confirmation that is too early or that was not requested.
                if session.teaching.is_none()
                    && let Some(taught) = session.taught.take()
                {
                    session.has_taught = true;
                    let all = own.cursors.iter_mut().zip(taught);
                    all.for_each(|(cursor, last)| cursor.known = cursor.known.max(last));
                }
            }
            Message::Heartbeat => own.counts.heartbeats_received += 1,
            Message::ProtocolError | Message::SizeError => return Err(Fault::Blamed),
            Message::Define(definition) => session.define(tables, &definition),
            Message::Switch(table) => {
                session.receives = session.theirs.iter().position(|own| own.definition.table == table);
            }
            Message::Ack { table, update } => {
                let number = usize::try_from(table).ok().and_then(|table| table.checked_sub(1));
                if let Some(cursor) = number.and_then(|number| own.cursors.get_mut(number)) {
                    let behind = (cursor.sent as u32).wrapping_sub(update);
                    // A number beyond those that were sent is ignored.
                    if let Some(known) = cursor.sent.checked_sub(behind.into()) {
                        cursor.known = cursor.known.max(known);
                    }
                }
            }
            Message::Update(update) => {
                if *learns_from == Some(peer)
                    && let Resync::Local(until) | Resync::Remote(until) = resync
                {
                    *until = now + RESYNC;
                }
                let theirs = session.receives.and_then(|number| session.theirs.get_mut(number));
                let Some(PeerTable { definition, own: number, last, .. }) = theirs else { return Ok(()) };
                let servers = &mut session.servers_received;
                let Some(number) = *number else {
                    let _ = update.read(definition, servers, |_, _| {}); // its keys may be of an unknown type
                    return Ok(());
                };
                *last = update.number.unwrap_or(last.wrapping_add(1));
                let (shared, known) = (&tables[number], own.cursors[number].known);
                let is_ahead = |entry: u32| {
                    *learns_from == Some(peer)
                        && shared.numbers.get(&entry).is_some_and(|change| *change > known)
                };
                shared.learn(definition, &update, servers, is_ahead, now).map_err(Fault::Message)?;
            }
            Message::Unknown => {}
        }
        Ok(())
    }

    /// Appends the output for a connected peer, up to a limit for one call. Returns true if there is more.
    pub fn transmit(&mut self, peer: usize, now: u64, out: &mut Vec<u8>) -> bool {
        let Self { tables, peers, resync, .. } = self;
        let Peer { spec, cursors, session: Some(session), counts, .. } = &mut peers[peer] else {
            return false;
        };
        let shard = spec.shard;
        let begin = out.len();
        if std::mem::take(&mut session.owes_request) {
            Message::ResyncRequest.write(out);
        }
        if std::mem::take(&mut session.owes_confirm) {
            Message::ResyncConfirm.write(out);
        }
        for theirs in session.theirs.iter_mut().filter(|theirs| theirs.last != theirs.acked) {
            theirs.acked = theirs.last;
            Message::Ack { table: theirs.definition.table, update: theirs.last }.write(out);
        }
        let mut more = false;
        let mut reads = 0;
        while let Some(at) = session.teaching {
            let Some(shared) = tables.get(at.table) else {
                let done = *resync == Resync::Finished;
                if done { Message::ResyncFinished } else { Message::ResyncPartial }.write(out);
                session.teaching = None;
                break;
            };
            if out.len() - begin >= FILL || reads == MAX_READS {
                more = true;
                break;
            }
            reads += 1;
            let mut next = None;
            if !shared.receives_only {
                session.announce(at.table, shared, out);
                // The number must not acknowledge later changes before the peer has everything.
                let number = cursors[at.table].known as u32;
                let servers = &mut session.servers_sent;
                next = shared.table.each(at.next, now, |entry| {
                    if shared.is_in(entry, shard) {
                        shared.put(entry, number, servers, now, out);
                    }
                    out.len() - begin < FILL
                });
            }
            session.teaching = Some(match next {
                Some(next) => ResyncProgress { next, ..at },
                None => ResyncProgress { table: at.table + 1, next: 0 },
            });
        }
        for (number, shared) in tables.iter().enumerate().filter(|(_, shared)| !shared.receives_only) {
            let cursor = &mut cursors[number];
            // Removed entries write nothing, and there may be many after a long absence.
            for (visited, (change, entry)) in shared.changes.range(cursor.sent + 1..).enumerate() {
                if more || visited >= MAX_VISITED || out.len() - begin >= FILL {
                    more = true;
                    break;
                }
                let entry = shared.table.numbered(*entry, now);
                let entry = entry.filter(|entry| shared.is_in(entry, shard));
                match &entry {
                    Some(entry) => {
                        session.announce(number, shared, out);
                        shared.put(entry, *change as u32, &mut session.servers_sent, now, out);
                    }
                    // Nothing is left to acknowledge.
                    None if cursor.known == cursor.sent => cursor.known = *change,
                    None => {}
                }
                cursor.sent = *change;
            }
        }
        if out.len() == begin && now.saturating_sub(session.said) >= HEARTBEAT {
            Message::Heartbeat.write(out);
            counts.heartbeats_sent += 1;
        }
        if out.len() > begin {
            session.said = now;
        }
        more
    }

    /// True if a connected peer has requested a resynchronisation and has not confirmed it yet.
    fn is_teaching(&self, peer: usize) -> bool {
        self.peers[peer].session.as_ref().is_some_and(|session| session.taught.is_some())
    }

    /// Returns the progress of a resynchronisation that a connected peer has requested: a value that changes
    /// with each part that is sent, and when the peer confirms.
    pub fn taught(&self, peer: usize) -> impl PartialEq + use<> {
        let teaching = self.peers[peer].session.as_ref().and_then(|session| session.teaching);
        (self.is_teaching(peer), teaching.map(|at| (at.table, at.next)))
    }

    /// True if the peer has confirmed a resynchronisation on this connection. For a process that is replaced.
    pub fn has_taught(&self, peer: usize) -> bool {
        self.peers[peer].session.as_ref().is_some_and(|session| session.has_taught)
    }

    /// Reports on the peers, in their order.
    pub fn report(&self, now: u64) -> Vec<PeerReport> {
        let report = |(number, peer): (usize, &Peer)| {
            let session = peer.session.as_ref();
            let table = |(own, shared): (usize, &Shared)| {
                let theirs =
                    session.and_then(|session| session.theirs.iter().find(|theirs| theirs.own == Some(own)));
                let bits = |data: &[Data]| data.iter().fold(0, |bits, data| bits | 1 << data.kind as u64);
                TableReport {
                    name: shared.name.clone(),
                    local_id: own as u64 + 1,
                    remote_id: theirs.map_or(0, |theirs| theirs.definition.table),
                    remote_data: theirs.map_or(0, |theirs| bits(&theirs.definition.data)),
                    known: peer.cursors[own].known as u32,
                    sent: peer.cursors[own].sent as u32,
                    received: theirs.map_or(0, |theirs| theirs.last),
                    last: shared.last as u32,
                }
            };
            PeerReport {
                is_connected: session.is_some(),
                teaches: self.learns_from == Some(number),
                heartbeat: session.map_or(0, |session| (session.said + HEARTBEAT).saturating_sub(now)),
                counts: peer.counts,
                tables: self.tables.iter().enumerate().map(table).collect(),
            }
        };
        self.peers.iter().enumerate().map(report).collect()
    }
}

impl Session {
    /// Sets the table of the following updates. It is unknown here unless a table has the same name and the
    /// same type of key. Keeps at most [`MAX_UNKNOWN`] unknown tables, and only such with names of servers.
    fn define(&mut self, tables: &[Shared], announced: &Definition<'_>) {
        let is_like = |shared: &&Shared| {
            *shared.name.as_bytes() == *announced.name
                && Some(shared.table.spec().key) == announced.key
                && key_bytes(&shared.table) == announced.key_bytes
        };
        self.theirs.retain(|theirs| theirs.definition.table != announced.table);
        let own = tables.iter().position(|shared| is_like(&shared));
        // Each table here corresponds to one of the peer's at most, which bounds the state of a peer.
        self.theirs.retain(|theirs| own.is_none() || theirs.own != own);
        let is_useful = own.is_some()
            || announced.data.iter().any(|data| data.kind == DataType::ServerKey)
                && self.theirs.iter().filter(|theirs| theirs.own.is_none()).count() < MAX_UNKNOWN;
        self.receives = is_useful.then(|| {
            let definition = Definition { name: &[], data: announced.data.clone(), ..*announced };
            self.theirs.push(PeerTable { definition, own, last: 0, acked: 0 });
            self.theirs.len() - 1
        });
    }
}
