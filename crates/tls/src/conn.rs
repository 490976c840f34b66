//! One connection, of either role.

use crate::choose;
use crate::client::ClientContext;
use crate::error::Error;
use crate::keylog::Secrets;
use crate::negotiated::Negotiated;
use crate::openssl::Reason;
use crate::scratch::{self, LARGEST_RECORD, Scratch};
use crate::server::ServerContext;
use manylane_buf::{Chain, Cursor};
use manylane_sync::qsbr::Reader;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::fmt;
use std::sync::Arc;

/// Bytes of records that a connection keeps because they are no whole message yet. A handshake message has at
/// most 64 KiB, which TLS allows for chains of certificates; records have headers, and tags.
pub const MOST_UNREAD: usize = 80 << 10;

/// Records that a message may come in, of which the last is still to come. For each that comes rustls goes
/// through all of them again, so bytes of a message that come in records of one byte each would cost their
/// number squared. Peers with the smallest records that RFC 6066 knows have no more for the largest hellos.
pub const MOST_RECORDS: usize = 256;

/// Content of one record: the most that TLS allows.
const RECORD: usize = 1 << 14;

/// The header of a record: kind, version, length.
const HEADER: usize = 5;

/// A connection: feed it what the peer sent, take what there is to send. It holds no buffers but records of
/// which the rest is still to come.
pub struct Connection {
    role: Role,
    /// What came and is no whole message yet.
    pub(crate) unread: Chain,
    /// Bytes at the beginning of `unread` that are whole records which rustls has seen. It may have decrypted
    /// them in place, and counts on them.
    pub(crate) seen: usize,
    /// How many they are.
    records: usize,
    /// Some were taken at the last look, so another may take more.
    goes_on: bool,
    /// How often rustls was shown something.
    #[cfg(test)]
    pub(crate) looks: usize,
    /// The name that the peer asked for; of clients the name that was asked.
    name: Option<Box<str>>,
    /// What the peer's bytes began with.
    begin: [u8; 4],
    /// The certificate that this side has shown.
    shown: Option<Arc<CertifiedKey>>,
    /// Where its context keeps any.
    secrets: Option<Box<Secrets>>,
    /// The handshake may go on without bytes of the peer: it has not begun.
    begins: bool,
    handshaking: bool,
    peer_closed: bool,
    notified: bool,
    failed: bool,
}

enum Role {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of the peer are missing.
    Handshaking,
    /// Data goes to and fro.
    Open,
    /// The peer has said that it sends no more; this side may go on.
    PeerClosed,
}

/// What a look at the state of rustls leads to.
enum Step {
    /// Look again.
    Again,
    /// Nothing to do before more comes.
    Blocked,
    /// Data may be sent.
    Open,
    /// The peer has closed its side.
    PeerClosed,
    Failed(Error),
}

/// What is to be sent.
#[derive(Clone, Copy)]
enum Sent<'a> {
    Nothing,
    Data(&'a [u8]),
    CloseNotify,
}

impl Connection {
    /// The side that is connected to. `reader` is the lane's.
    ///
    /// # Errors
    /// The context is not one that rustls can work with.
    pub fn server(context: &ServerContext, reader: &Reader) -> Result<Self, Error> {
        let server = UnbufferedServerConnection::new(context.0.load(reader))?;
        let keeps_secrets = context.0.settings.common.keeps_secrets;
        Ok(Self::new(Role::Server(server), None, false, keeps_secrets))
    }

    /// The side that connects, to the server of that name, or the one that its certificate must be for. The
    /// first [`receive`](Self::receive), with nothing, makes the first message.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub fn client(
        context: &ClientContext,
        name: ServerName<'static>,
        reader: &Reader,
    ) -> Result<Self, Error> {
        let asked = match &name {
            ServerName::DnsName(name) if context.sends_name() => Some(name.as_ref().into()),
            _ => None,
        };
        let client = UnbufferedClientConnection::new(context.0.load(reader), name)?;
        Ok(Self::new(Role::Client(client), asked, true, context.0.settings.common.keeps_secrets))
    }

    fn new(role: Role, name: Option<Box<str>>, begins: bool, keeps_secrets: bool) -> Self {
        Self {
            role,
            unread: Chain::new(),
            seen: 0,
            records: 0,
            goes_on: false,
            #[cfg(test)]
            looks: 0,
            name,
            begin: [0; 4],
            shown: None,
            secrets: keeps_secrets.then(Box::default),
            begins,
            handshaking: true,
            peer_closed: false,
            notified: false,
            failed: false,
        }
    }

    /// Takes in all of `received`. What it says goes behind `plain`, and what is to be sent because of it
    /// behind `out`; with an error that is the alert that tells the peer.
    ///
    /// # Errors
    /// [`Error`]; the connection is of no more use then.
    pub fn receive(
        &mut self,
        received: &mut Chain,
        plain: &mut Chain,
        out: &mut Chain,
    ) -> Result<Progress, Error> {
        if self.handshaking && self.begin[0] == 0 && received.len() >= self.begin.len() {
            self.begin = received.cursor().read_array().unwrap_or_default();
        }
        self.unread.append_compact(received)?; // a byte for each read must not hold a cluster for each
        while self.begins || (!self.peer_closed && self.is_readable()) {
            self.begins = false;
            let before = self.unread.len();
            self.read(plain, out)?;
            if self.unread.len() == before {
                break;
            }
        }
        if self.peer_closed {
            self.unread.clear(); // nothing counts behind the end
            (self.seen, self.records) = (0, 0);
        }
        if self.unread.len() > MOST_UNREAD || self.records > MOST_RECORDS {
            self.failed = true;
            return Err(Error::Flood);
        }
        Ok(self.progress())
    }

    /// Whether rustls may find something in what is unread. What is no record is for it to refuse at once.
    fn is_readable(&self) -> bool {
        let mut cursor = self.unread.cursor();
        if self.unread.is_empty() || cursor.advance(self.seen).is_err() {
            return false;
        }
        (self.goes_on && self.seen > 0) || whole(cursor.clone()) || (self.handshaking && !is_record(cursor))
    }

    /// Rustls was shown whole records up to `end`, so many of them for the first time, and is through with
    /// `taken` bytes.
    fn has_seen(&mut self, end: usize, records: usize, taken: usize) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.seen = end.saturating_sub(taken);
        self.goes_on = taken > 0;
        self.records = if taken > 0 || self.seen == 0 { 0 } else { self.records + records };
    }

    /// Shows rustls what is unread, once.
    fn read(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        scratch::with(|scratch| {
            // The usual case: what came is one piece that nobody else looks at, and is decrypted where it is.
            if self.unread.segment_count() == 1
                && let Some(mut segment) = self.unread.pop_front()
            {
                if let Some(bytes) = segment.try_unique() {
                    let (end, records) = whole_records(bytes, self.seen);
                    let (taken, result) = self.work(bytes, Sent::Nothing, plain, &mut scratch.output, out);
                    let left = segment.len().saturating_sub(taken);
                    self.has_seen(end, records, taken);
                    segment.trim_front(taken).map_err(manylane_buf::Error::from)?;
                    if left > 0 {
                        self.unread.push_front(segment).map_err(|error| Error::Memory(error.into()))?;
                    }
                    return result;
                }
                self.unread.push_front(segment).map_err(|error| Error::Memory(error.into()))?;
            }
            let Scratch { input, output } = scratch;
            for segment in self.unread.segments() {
                input.extend_from_slice(segment.as_slice());
            }
            let (end, records) = whole_records(input, self.seen);
            let (taken, result) = self.work(input, Sent::Nothing, plain, output, out);
            let left = &input[taken.min(input.len())..];
            self.has_seen(end, records, taken);
            if self.seen > 0 {
                self.unread.clear();
                self.unread.append(left)?;
            } else {
                self.unread.trim_front(taken).map_err(manylane_buf::Error::from)?;
            }
            result
        })
    }

    /// Encrypts all of `plain`, behind `out`.
    ///
    /// # Errors
    /// [`Error`]: the handshake is not over, this side has said that it ends, or there is no memory.
    pub fn send(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        while !plain.is_empty() {
            scratch::with(|Scratch { input, output }| {
                // Small pieces, such as a head and the first of a body, go in one record.
                let (mut taken, mut from) = (0, None);
                for segment in plain.segments() {
                    let n = segment.len().min(RECORD - taken);
                    if taken == 0 && (n == RECORD || n == plain.len()) {
                        (taken, from) = (n, Some(segment));
                        break;
                    }
                    input.extend_from_slice(&segment.as_slice()[..n]);
                    taken += n;
                    if taken == RECORD {
                        break;
                    }
                }
                let data = from.map_or(&input[..], |segment| &segment.as_slice()[..taken]);
                self.put(Sent::Data(data), output, out)?;
                plain.trim_front(taken).map_err(|error| Error::Memory(error.into()))
            })?;
        }
        Ok(())
    }

    /// Says that this side sends no more, behind `out`; once.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn close_notify(&mut self, out: &mut Chain) -> Result<(), Error> {
        if self.notified || self.handshaking || self.failed {
            return Ok(());
        }
        self.notified = true;
        scratch::with(|scratch| self.put(Sent::CloseNotify, &mut scratch.output, out))
    }

    fn put(&mut self, what: Sent<'_>, room: &mut Vec<u8>, out: &mut Chain) -> Result<(), Error> {
        // Seldom: rustls counts on the bytes of a message that has begun.
        let mut unread = if self.seen > 0 { self.unread.to_vec() } else { Vec::new() };
        self.work(&mut unread, what, &mut Chain::new(), room, out).1
    }

    /// Its secrets, where its context keeps any; those of the handshake, when that is over.
    pub fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_deref()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        match (self.peer_closed, self.handshaking) {
            (true, _) => Progress::PeerClosed,
            (_, true) => Progress::Handshaking,
            _ => Progress::Open,
        }
    }

    /// Whether it is the side that is connected to.
    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Whether it has failed: nothing more can be sent or received.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Why it failed, as OpenSSL tells it.
    pub fn reason(&self, error: &Error) -> Reason {
        Reason::of(error, &self.begin, self.negotiated().version())
    }

    /// What was agreed on.
    pub fn negotiated(&self) -> Negotiated<'_> {
        Negotiated::new(self.common(), self.name.as_deref(), self.shown.as_ref())
    }

    fn common(&self) -> &rustls::CommonState {
        match &self.role {
            Role::Server(server) => server,
            Role::Client(client) => client,
        }
    }

    /// Has rustls work on `bytes` until it needs more. How many of them it is through with.
    fn work(
        &mut self,
        bytes: &mut [u8],
        mut sent: Sent<'_>,
        plain: &mut Chain,
        room: &mut Vec<u8>,
        out: &mut Chain,
    ) -> (usize, Result<(), Error>) {
        if self.failed {
            return (bytes.len(), Err(Error::Tls(rustls::Error::General("it has failed before".to_owned()))));
        }
        let (mut at, mut failed) = (0, None);
        let was_handshaking = self.handshaking;
        loop {
            if failed.is_some() && !self.common().wants_write() {
                break;
            }
            let bytes = &mut bytes[at..];
            let (taken, step) = match &mut self.role {
                Role::Server(server) => look(server.process_tls_records(bytes), &mut sent, plain, room, out),
                Role::Client(client) => look(client.process_tls_records(bytes), &mut sent, plain, room, out),
            };
            at += taken;
            match step {
                Step::Again => {}
                // The alert that rustls made of the error comes by looking again, before anything else.
                Step::Failed(error) if failed.is_none() => failed = Some(error),
                Step::Failed(_) => break,
                Step::PeerClosed => self.peer_closed = true,
                Step::Open => {
                    self.handshaking = false;
                    break;
                }
                Step::Blocked => break,
            }
        }
        // Taken at once, so that it is not another connection's later.
        if was_handshaking && let Some(chosen) = choose::take_chosen() {
            self.name = chosen.name;
            self.shown = chosen.shown;
        }
        if was_handshaking && let Some(secrets) = &mut self.secrets {
            secrets.take_told();
        }
        match failed {
            Some(error) => {
                self.failed = true;
                (at, Err(error))
            }
            None if !matches!(sent, Sent::Nothing) => {
                (at, Err(Error::Tls(rustls::Error::General("the connection takes no data".to_owned()))))
            }
            None => (at, Ok(())),
        }
    }
}

/// One look: what there is goes where it belongs. How many bytes are done with.
fn look<D>(
    status: UnbufferedStatus<'_, '_, D>,
    sent: &mut Sent<'_>,
    plain: &mut Chain,
    room: &mut Vec<u8>,
    out: &mut Chain,
) -> (usize, Step) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Step::Failed(Error::Tls(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Step::Again,
                Some(Err(error)) => break Step::Failed(Error::Tls(error)),
                Some(Ok(record)) => {
                    discard += record.discard;
                    if let Err(error) = plain.append(record.payload) {
                        break Step::Failed(Error::Memory(error));
                    }
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut encoding)) => {
            let made = into(room, out, LARGEST_RECORD, |room| match encoding.encode(room) {
                Ok(n) => Ok(n),
                Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                Err(EncodeError::AlreadyEncoded) => Ok(0),
            });
            made.map_or_else(Step::Failed, |()| Step::Again)
        }
        Ok(ConnectionState::TransmitTlsData(transmitting)) => {
            transmitting.done(); // it is in `out`, which goes first
            Step::Again
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let what = std::mem::replace(sent, Sent::Nothing);
            let encrypted = |encrypted| match encrypted {
                Ok(n) => Ok(n),
                Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                Err(EncryptError::EncryptExhausted) => Err(None),
            };
            let made = match what {
                Sent::Nothing => Ok(()),
                Sent::Data(data) => {
                    into(room, out, data.len() + 512, |room| encrypted(traffic.encrypt(data, room)))
                }
                Sent::CloseNotify => into(room, out, 512, |room| encrypted(traffic.queue_close_notify(room))),
            };
            made.map_or_else(Step::Failed, |()| Step::Open)
        }
        Ok(ConnectionState::PeerClosed) => Step::PeerClosed,
        Ok(_) => Step::Blocked, // bytes are missing, or both sides have closed; no early data is accepted
    };
    (discard, step)
}

/// Has `make` write into room of at least `size` bytes, or of as many as it asks for, and puts what it wrote
/// behind `out`.
fn into(
    room: &mut Vec<u8>,
    out: &mut Chain,
    size: usize,
    mut make: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    if room.len() < size {
        room.resize(size, 0);
    }
    loop {
        match make(room) {
            Ok(n) => return out.append(&room[..n]).map_err(Error::Memory),
            Err(Some(size)) if size > room.len() => room.resize(size, 0),
            Err(_) => return Err(Error::Tls(rustls::Error::EncryptError)),
        }
    }
}

/// Where the whole records end that stand in `bytes` from `at` on, and how many they are.
fn whole_records(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let mut records = 0;
    while let Some([_, _, _, high, low, rest @ ..]) = bytes.get(at..)
        && let length = usize::from(u16::from_be_bytes([*high, *low]))
        && rest.len() >= length
    {
        at += HEADER + length;
        records += 1;
    }
    (at, records)
}

/// Whether what is next begins as a record of TLS does, as far as it goes.
fn is_record(mut cursor: Cursor<'_>) -> bool {
    let bytes = cursor
        .read_array::<1>()
        .map_or([22, 3], |[kind]| [kind, cursor.read_array().map_or(3, |[major]| major)]);
    (20..=23).contains(&bytes[0]) && bytes[1] == 3
}

/// Whether it is a whole one.
fn whole(mut cursor: Cursor<'_>) -> bool {
    let Ok([_, _, _, high, low]) = cursor.read_array::<HEADER>() else { return false };
    cursor.remaining() >= usize::from(u16::from_be_bytes([high, low]))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if matches!(self.role, Role::Server(_)) { "server" } else { "client" };
        f.debug_struct("Connection").field("role", &role).field("progress", &self.progress()).finish()
    }
}
