//! What a process and its peers have of their tables: who was told what, and what is told next.
//!
//! # Protocol
//! 1. Each entry that changes gets a number of its table, larger than all before. Each peer has a cursor a
//!    table: the number up to which it was told, and the one up to which it has said that it knows. A
//!    connection begins at the latter.
//! 2. What was learned of a peer gets no number: each peer is told by the one that counted.
//! 3. Whoever asks for it is told all entries of all tables, those that were learned, too. He asks one peer
//!    after another until one says that it lacks nothing itself, or for so long.
//! 4. A process that takes over from another waits for it first: the older one connects to the newer, whose
//!    name is its own, and tells it all.
//! 5. Who is told all keeps what it has changed itself and the peer does not know yet: what it is told of
//!    such an entry may be what the peer once learned of it.

use crate::wire::{Definition, Message, Update, Wrong, put_kept, put_key};
use manylane_expr::{DataType, Datum, Type};
use manylane_stick::{Data, Entry, MAX_KEY_BYTES, Table, with_key};
use manylane_sync::Arc;
use std::collections::{BTreeMap, HashMap};

/// Changed entries that are looked at for a peer in one go.
const LOOKED_AT_ONCE: usize = 4096;

/// Milliseconds of silence after which a heartbeat is sent.
pub const HEARTBEAT: u64 = 3000;
/// Milliseconds of silence after which a peer is taken for gone: it would have sent a heartbeat.
pub const SILENCE: u64 = 5000;
/// Milliseconds for which a process waits for the one before it, and then for a peer, to be told all.
const RESYNC: u64 = 5000;
/// Bytes after which [`Section::transmit`] lets others have their turn.
const FILL: usize = 16_384;
/// Numbers of entries that it looks at for somebody who is told all, in calls of [`Table::each`].
const LOOKS: u32 = 16;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the protocol; it is told so.
    Wrong(Wrong),
    /// The peer says that we did.
    Blamed,
}

/// A table that peers are to share.
#[derive(Clone, Debug)]
pub struct SharedTable {
    /// Its name among peers.
    pub name: Box<str>,
    /// The table.
    pub table: Arc<Table>,
    /// `recv-only`: peers are told nothing of it.
    pub receives_only: bool,
}

/// A table that peers share.
#[derive(Debug)]
struct Shared {
    name: Box<str>,
    table: Arc<Table>,
    /// `recv-only`: nobody is told of it.
    receives_only: bool,
    /// The number of the last change.
    last: u64,
    /// Changes that some peer may not know, each with the number of its entry.
    changes: BTreeMap<u64, u32>,
    /// The change of an entry.
    numbers: HashMap<u32, u64>,
}

/// How far a peer was told of a table. Rule 1.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    told: u64,
    known: u64,
}

/// Where a peer is that is told all.
#[derive(Clone, Copy, Debug, Default)]
struct Teaching {
    table: usize,
    next: u32,
}

/// A table of the peer.
#[derive(Debug)]
struct Theirs {
    /// Without its name.
    definition: Definition<'static>,
    /// The table here.
    own: usize,
    /// The number of the last update.
    last: u32,
    /// The last that was acknowledged.
    acked: u32,
}

/// What a connection has.
#[derive(Debug)]
struct Session {
    /// Tables that the peer knows the definition of.
    defined: Vec<bool>,
    /// The one that what is sent next is of.
    sends: Option<usize>,
    teaching: Option<Teaching>,
    /// For each table, the last change when the teaching began: known once that is confirmed.
    taught: Option<Vec<u64>>,
    /// The peer has confirmed that it was told all.
    has_taught: bool,
    owes_request: bool,
    owes_confirm: bool,
    theirs: Vec<Theirs>,
    /// The one that what comes next is of; none: one that is not known here.
    receives: Option<usize>,
    heard: u64,
    said: u64,
}

/// What has happened with a peer, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Heartbeats received.
    pub heartbeats_received: u64,
    /// Connections that began.
    pub connections: u64,
    /// Connections that ended since the peer broke the protocol.
    pub errors: u64,
    /// Times that it was silent for too long.
    pub silences: u64,
    /// Connections that gave way to another one.
    pub collisions: u64,
}

/// A peer.
#[derive(Debug)]
struct Peer {
    /// It is the process itself: the one before it, or after.
    is_local: bool,
    cursors: Vec<Cursor>,
    session: Option<Session>,
    /// It was asked for all that there is, and lacked something itself.
    lacks: bool,
    counts: Counts,
}

/// From whom the process learns what others have. Rules 3 and 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// From the process before it, until then.
    Local(u64),
    /// From a peer, until then.
    Remote(u64),
    /// It was told all, or there was nobody to tell it.
    Finished,
}

/// What a report says of a table and a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// The name.
    pub name: Box<str>,
    /// Our number of it; the first is 1.
    pub local_id: u64,
    /// The peer's; 0: it has told none.
    pub remote_id: u64,
    /// What the peer keeps of it, a bit a kind of data.
    pub remote_data: u64,
    /// The last change that the peer has acknowledged.
    pub known: u32,
    /// The last that it was told.
    pub told: u32,
    /// The last of its updates.
    pub received: u32,
    /// The last change.
    pub last: u32,
}

/// What a report says of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// A connection is there.
    pub is_connected: bool,
    /// We are being told all by it.
    pub teaches: bool,
    /// Milliseconds until it is sent a heartbeat.
    pub heartbeat: u64,
    /// What has happened.
    pub counts: Counts,
    /// Its tables.
    pub tables: Vec<TableReport>,
}

/// Tables and peers.
#[derive(Debug)]
pub struct Section {
    tables: Vec<Shared>,
    peers: Vec<Peer>,
    resync: Resync,
    /// Who was asked for all that there is.
    learns_from: Option<usize>,
    /// Something has changed since the last [`tick`](Self::tick).
    has_changes: bool,
}

/// Whether peers are told of it: connections are each process's own, and there are no names of servers.
fn is_told(data: &&Data) -> bool {
    !matches!(data.kind, DataType::ConnCur | DataType::ServerKey)
}

/// Bytes of a key as a definition has them: of text with the byte that ends it in HAProxy's memory.
fn key_bytes(table: &Table) -> u64 {
    let spec = table.spec();
    match spec.key {
        Type::Ipv6 => 16,
        Type::Str => spec.key_bytes as u64 + 1,
        Type::Bin => spec.key_bytes as u64,
        _ => 4,
    }
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
            data: spec.data.iter().filter(is_told).copied().collect(),
        }
    }

    fn put(&self, entry: &Entry<'_>, number: u32, now: u64, out: &mut Vec<u8>) {
        let mut bytes = [0; MAX_KEY_BYTES];
        let mut body = Vec::new();
        put_key(entry.key(&mut bytes), &mut body);
        for data in self.table.spec().data.iter().filter(is_told) {
            for index in 0..data.count {
                if let Some(kept) = entry.kept(Datum { data: data.kind, index }, now) {
                    put_kept(kept, &mut body);
                }
            }
        }
        let expire =
            (self.table.spec().expire > 0).then(|| u32::try_from(entry.expires_in(now)).unwrap_or(u32::MAX));
        Message::Update(Update { number: Some(number), expire, body: &body }).write(out);
    }

    /// Notes what has changed. Whether anything has.
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
    /// What is written next is of that table.
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
    /// Of tables, and of peers, of each of which it is said whether it is the process itself. `follows`:
    /// there is a process before it, which tells it what it has.
    pub fn new(
        tables: impl IntoIterator<Item = SharedTable>,
        peers: impl IntoIterator<Item = bool>,
        follows: bool,
        now: u64,
    ) -> Self {
        let tables: Vec<Shared> = tables
            .into_iter()
            .map(|SharedTable { name, table, receives_only }| {
                table.share();
                let (changes, numbers) = Default::default();
                Shared { name, table, receives_only, last: 0, changes, numbers }
            })
            .collect();
        let peer = |is_local| Peer {
            is_local,
            cursors: vec![Cursor::default(); tables.len()],
            session: None,
            lacks: false,
            counts: Counts::default(),
        };
        let peers = peers.into_iter().map(peer).collect();
        let resync = if follows { Resync::Local(now + RESYNC) } else { Resync::Remote(now + RESYNC) };
        Self { tables, peers, resync, learns_from: None, has_changes: false }
    }

    /// Where it is.
    pub fn resync(&self) -> Resync {
        self.resync
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self, peer: usize) -> bool {
        self.peers[peer].session.is_some()
    }

    /// A connection with a peer begins, in the place of one that is there.
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
            heard: now,
            said: now,
        };
        let own = &mut self.peers[peer];
        own.counts.connections += 1;
        own.cursors.iter_mut().for_each(|cursor| cursor.told = cursor.known);
        own.session = Some(session);
        self.tick(now);
    }

    /// The connection with a peer is over.
    pub fn end(&mut self, peer: usize, now: u64) {
        self.peers[peer].session = None;
        if self.learns_from == Some(peer) {
            self.learns_from = None;
            match &mut self.resync {
                Resync::Local(until) | Resync::Remote(until) => *until = now + RESYNC,
                Resync::Finished => {}
            }
        }
    }

    /// Something has happened with a peer.
    pub fn counts(&mut self, peer: usize) -> &mut Counts {
        &mut self.peers[peer].counts
    }

    /// Notes what has changed in tables.
    fn collect(&mut self) {
        let Self { tables, peers, has_changes, .. } = self;
        for (number, shared) in tables.iter_mut().enumerate() {
            let remote = peers.iter().filter(|peer| !peer.is_local);
            let known = remote.map(|peer| peer.cursors[number].known).min().unwrap_or(u64::MAX);
            *has_changes |= shared.collect(known) && !shared.receives_only;
        }
    }

    /// A moment has passed: notes what has changed in tables, and asks somebody for all that there is. To be
    /// called again and again. Whether there is something new to [transmit](Self::transmit).
    pub fn tick(&mut self, now: u64) -> bool {
        self.collect();
        let any = std::mem::take(&mut self.has_changes);
        let asks = |peer: &Peer| peer.session.is_some() && !peer.lacks;
        let (is_local, until) = match self.resync {
            Resync::Local(until) => (true, until),
            Resync::Remote(until) => (false, until),
            Resync::Finished => return any,
        };
        if self.learns_from.is_some() {
            return any;
        }
        let found = self.peers.iter().position(|peer| peer.is_local == is_local && asks(peer));
        match found {
            Some(peer) => {
                self.learns_from = Some(peer);
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

    /// Whether the peer is silent for too long.
    pub fn is_silent(&self, peer: usize, now: u64) -> bool {
        let session = self.peers[peer].session.as_ref();
        session.is_some_and(|session| now.saturating_sub(session.heard) >= SILENCE)
    }

    /// Bytes have come from a connected peer; so many of them were whole messages, and are done with.
    ///
    /// # Errors
    /// [`Fault`]: the connection is of no use any more.
    pub fn receive(&mut self, peer: usize, bytes: &[u8], now: u64) -> Result<usize, Fault> {
        let mut used = 0;
        if self.learns_from == Some(peer) {
            self.collect(); // rule 5
        }
        while let Some((message, length)) = Message::read(&bytes[used..]).map_err(Fault::Wrong)? {
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
                session.teaching = Some(Teaching::default());
                let taught: Vec<u64> = tables.iter().map(|shared| shared.last).collect();
                let all = own.cursors.iter_mut().zip(&taught);
                all.for_each(|(cursor, last)| cursor.told = *last);
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
                // One that comes too early, or that nobody waits for, confirms nothing.
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
                    let behind = (cursor.told as u32).wrapping_sub(update);
                    // What is ahead of what was told is nothing that was sent.
                    if let Some(known) = cursor.told.checked_sub(behind.into()) {
                        cursor.known = cursor.known.max(known);
                    }
                }
            }
            Message::Update(update) => {
                let theirs = session.receives.and_then(|number| session.theirs.get_mut(number));
                if let Some(theirs) = theirs {
                    theirs.last = update.number.unwrap_or(theirs.last.wrapping_add(1));
                    let shared = &tables[theirs.own];
                    let known = own.cursors[theirs.own].known;
                    let is_ahead = |entry: u32| {
                        *learns_from == Some(peer)
                            && shared.numbers.get(&entry).is_some_and(|change| *change > known)
                    };
                    learn(&shared.table, &theirs.definition, &update, is_ahead, now).map_err(Fault::Wrong)?;
                }
            }
            Message::Unknown => {}
        }
        Ok(())
    }

    /// Writes what a connected peer is to be told now, as far as it should be sent in one go. Whether there
    /// is more.
    pub fn transmit(&mut self, peer: usize, now: u64, out: &mut Vec<u8>) -> bool {
        let Self { tables, peers, resync, .. } = self;
        let Peer { cursors, session: Some(session), counts, .. } = &mut peers[peer] else { return false };
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
        let mut looks = 0;
        while let Some(at) = session.teaching {
            let Some(shared) = tables.get(at.table) else {
                let done = *resync == Resync::Finished;
                if done { Message::ResyncFinished } else { Message::ResyncPartial }.write(out);
                session.teaching = None;
                break;
            };
            if out.len() - begin >= FILL || looks == LOOKS {
                more = true;
                break;
            }
            looks += 1;
            let mut next = None;
            if !shared.receives_only {
                session.announce(at.table, shared, out);
                // Of what is acknowledged before all of it is there, nothing follows.
                let number = cursors[at.table].known as u32;
                next = shared.table.each(at.next, now, |entry| {
                    shared.put(entry, number, now, out);
                    out.len() - begin < FILL
                });
            }
            session.teaching = Some(match next {
                Some(next) => Teaching { next, ..at },
                None => Teaching { table: at.table + 1, next: 0 },
            });
        }
        for (number, shared) in tables.iter().enumerate().filter(|(_, shared)| !shared.receives_only) {
            let cursor = &mut cursors[number];
            // Entries that have gone write nothing, and are many after a long absence.
            for (seen, (change, entry)) in shared.changes.range(cursor.told + 1..).enumerate() {
                if more || seen >= LOOKED_AT_ONCE || out.len() - begin >= FILL {
                    more = true;
                    break;
                }
                if let Some(entry) = shared.table.numbered(*entry, now) {
                    session.announce(number, shared, out);
                    shared.put(&entry, *change as u32, now, out);
                }
                cursor.told = *change;
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

    /// Whether a connected peer has asked for all that there is, and has not confirmed yet that it has it.
    pub fn is_teaching(&self, peer: usize) -> bool {
        self.peers[peer].session.as_ref().is_some_and(|session| session.taught.is_some())
    }

    /// Whether it has confirmed that, on this connection. For the process that goes.
    pub fn has_taught(&self, peer: usize) -> bool {
        self.peers[peer].session.as_ref().is_some_and(|session| session.has_taught)
    }

    /// What reports say of the peers, in their order.
    pub fn report(&self, now: u64) -> Vec<PeerReport> {
        let report = |(number, peer): (usize, &Peer)| {
            let session = peer.session.as_ref();
            let table = |(own, shared): (usize, &Shared)| {
                let theirs =
                    session.and_then(|session| session.theirs.iter().find(|theirs| theirs.own == own));
                let bits = |data: &[Data]| data.iter().fold(0, |bits, data| bits | 1 << data.kind as u64);
                TableReport {
                    name: shared.name.clone(),
                    local_id: own as u64 + 1,
                    remote_id: theirs.map_or(0, |theirs| theirs.definition.table),
                    remote_data: theirs.map_or(0, |theirs| bits(&theirs.definition.data)),
                    known: peer.cursors[own].known as u32,
                    told: peer.cursors[own].told as u32,
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

    /// No peer is connected any more. For whoever goes on with it.
    pub fn disconnect(&mut self, now: u64) {
        (0..self.peers.len()).for_each(|peer| self.end(peer, now));
    }
}

impl Session {
    /// What follows is of this table of the peer. One whose keys are not those of the table of that name here
    /// is not known here.
    fn define(&mut self, tables: &[Shared], told: &Definition<'_>) {
        let is_like = |shared: &&Shared| {
            *shared.name.as_bytes() == *told.name
                && Some(shared.table.spec().key) == told.key
                && key_bytes(&shared.table) == told.key_bytes
        };
        self.theirs.retain(|theirs| theirs.definition.table != told.table);
        let own = tables.iter().position(|shared| is_like(&shared));
        // A table here is one of the peer's at most, which bounds what is kept of it.
        self.theirs.retain(|theirs| Some(theirs.own) != own);
        self.receives = own.map(|own| {
            let definition = Definition { name: &[], data: told.data.clone(), ..*told };
            self.theirs.push(Theirs { definition, own, last: 0, acked: 0 });
            self.theirs.len() - 1
        });
    }
}

/// Takes over an entry, unless it `is_ahead` of what the peer knows. Where there is no room for it nothing
/// happens.
fn learn(
    table: &Table,
    definition: &Definition<'_>,
    update: &Update<'_>,
    is_ahead: impl Fn(u32) -> bool,
    now: u64,
) -> Result<(), Wrong> {
    let spec = table.spec();
    let mut entry = None;
    update.read(definition, |key, told| match told {
        None => {
            entry = with_key(spec, key, |words| table.get_or_make(words, now)).flatten();
            entry = entry.take().filter(|entry| !is_ahead(entry.number()));
        }
        Some((datum, kept)) => {
            let Some(entry) = &entry else { return };
            let theirs = definition.data.iter().find(|data| data.kind == datum.data);
            let own = spec.data.iter().find(|data| data.kind == datum.data);
            // A rate over another period is another number.
            let same = theirs.zip(own).is_some_and(|(theirs, own)| theirs.period == own.period);
            if same && datum.data != DataType::ConnCur {
                entry.learn(datum, kept, now);
            }
        }
    })?;
    if let Some(entry) = entry
        && spec.expire > 0
    {
        let expire = update.expire.map_or(spec.expire, |expire| spec.expire.min(expire.into()));
        entry.set_expiry(now + expire);
    }
    Ok(())
}
