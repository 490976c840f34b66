//! A TLS connection of either role.

use crate::chain::{self, Verified};
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

/// Most bytes of incomplete messages that a connection keeps. A handshake message is limited to 64 KiB, which
/// leaves room for long certificate chains; records add headers and tags.
pub const MOST_UNREAD: usize = 80 << 10;

/// Most records of one incomplete message. rustls parses all of them again for each new record, so a message
/// in records of one byte each would cost the square of its length. With the smallest records of RFC 6066,
/// the largest hellos stay below this.
pub const MOST_RECORDS: usize = 256;

/// Largest content of a record, as TLS allows.
const RECORD: usize = 1 << 14;

/// Length of a record's header: type, version, length.
const HEADER: usize = 5;

/// A TLS connection without IO: [`receive`](Self::receive) takes bytes from the peer and appends bytes to
/// send. Buffers only incomplete records.
pub struct Connection {
    role: Role,
    /// Received bytes of incomplete messages.
    pub(crate) unread: Chain,
    /// Length of the whole records at the beginning of `unread` that rustls has seen. rustls may have
    /// decrypted them in place and relies on these bytes.
    pub(crate) seen: usize,
    /// Number of these records.
    records: usize,
    /// rustls took some bytes at the last call, so it may take more at the next.
    goes_on: bool,
    /// Number of calls of rustls with input.
    #[cfg(test)]
    pub(crate) looks: usize,
    /// The server name: on a server the one that the client asked for, on a client the one that it sent.
    name: Option<Box<str>>,
    /// The peer's first bytes.
    begin: [u8; 4],
    /// What was found in the peer's chain of certificates.
    verified: Verified,
    /// The certificate that this side has presented.
    shown: Option<Arc<CertifiedKey>>,
    /// Set if the context keeps secrets.
    secrets: Option<Box<Secrets>>,
    /// A client that has not sent its first message yet: the handshake starts without input.
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

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handshake needs bytes from the peer.
    Handshaking,
    /// Data can flow in both directions.
    Open,
    /// The peer has closed its side; this side may still send.
    PeerClosed,
}

/// Result of one call of rustls.
enum Step {
    /// Call again.
    Again,
    /// Needs more input.
    Blocked,
    /// Data may be sent.
    Open,
    /// The peer has closed its side.
    PeerClosed,
    Failed(Error),
}

/// What to send.
#[derive(Clone, Copy)]
enum Sent<'a> {
    Nothing,
    Data(&'a [u8]),
    CloseNotify,
}

impl Connection {
    /// Creates the server's side. `reader` belongs to the lane.
    ///
    /// # Errors
    /// rustls rejects the context.
    pub fn server(context: &ServerContext, reader: &Reader) -> Result<Self, Error> {
        let server = UnbufferedServerConnection::new(context.0.load(reader))?;
        let keeps_secrets = context.0.settings.common.keeps_secrets;
        Ok(Self::new(Role::Server(server), None, false, keeps_secrets))
    }

    /// Creates the client's side, for a server of this name. The name is sent if the context says so, and the
    /// certificate is checked against it. Call [`receive`](Self::receive) with an empty chain to get the
    /// first message.
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
            verified: Verified::default(),
            shown: None,
            secrets: keeps_secrets.then(Box::default),
            begins,
            handshaking: true,
            peer_closed: false,
            notified: false,
            failed: false,
        }
    }

    /// Takes all of `received`. Appends decrypted data to `plain`, and bytes for the peer to `out`; with an
    /// error, `out` has the alert.
    ///
    /// # Errors
    /// [`Error`]; the connection cannot be used after it.
    pub fn receive(
        &mut self,
        received: &mut Chain,
        plain: &mut Chain,
        out: &mut Chain,
    ) -> Result<Progress, Error> {
        if self.failed {
            received.clear();
            return Err(Error::Tls(rustls::Error::General("it has failed before".to_owned())));
        }
        if self.handshaking && self.begin[0] == 0 && received.len() >= self.begin.len() {
            self.begin = received.cursor().read_array().unwrap_or_default();
        }
        self.unread.append_compact(received)?; // otherwise reads of one byte would hold a cluster each
        while self.begins || (!self.peer_closed && self.is_readable()) {
            self.begins = false;
            let before = self.unread.len();
            self.read(plain, out)?;
            if self.unread.len() == before {
                break;
            }
        }
        if self.peer_closed {
            self.unread.clear(); // bytes after the end are ignored
            (self.seen, self.records) = (0, 0);
        }
        if self.unread.len() > MOST_UNREAD || self.records > MOST_RECORDS {
            self.failed = true;
            return Err(Error::Flood);
        }
        Ok(self.progress())
    }

    /// True if rustls can make progress with `unread`. Input that is not a record is passed on, so that
    /// rustls refuses it immediately.
    fn is_readable(&self) -> bool {
        let mut cursor = self.unread.cursor();
        if self.unread.is_empty() || cursor.advance(self.seen).is_err() {
            return false;
        }
        (self.goes_on && self.seen > 0) || whole(cursor.clone()) || (self.handshaking && !is_record(cursor))
    }

    /// Records that rustls was given whole records up to `end`, `records` of them for the first time, and
    /// consumed `taken` bytes.
    fn has_seen(&mut self, end: usize, records: usize, taken: usize) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.seen = end.saturating_sub(taken);
        self.goes_on = taken > 0;
        self.records = if taken > 0 || self.seen == 0 { 0 } else { self.records + records };
    }

    /// Calls rustls once with `unread`.
    fn read(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        scratch::with(|scratch| {
            // The usual case: the input is one segment that is not shared, and is decrypted in place.
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

    /// Encrypts all of `plain` and appends the records to `out`.
    ///
    /// # Errors
    /// [`Error`] if the handshake is not complete, this side has closed, or there is no memory.
    pub fn send(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        while !plain.is_empty() {
            scratch::with(|Scratch { input, output }| {
                // Small segments, such as a head and the start of a body, share a record.
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

    /// Appends a close_notify alert to `out`, once. Does nothing during the handshake or after a failure.
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
        // Rarely a copy: rustls relies on the bytes of a message that has begun.
        let mut unread = if self.seen > 0 { self.unread.to_vec() } else { Vec::new() };
        self.work(&mut unread, what, &mut Chain::new(), room, out).1
    }

    /// The secrets, if the context keeps them; complete after the handshake.
    pub fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_deref()
    }

    /// The state of the connection.
    pub fn progress(&self) -> Progress {
        match (self.peer_closed, self.handshaking) {
            (true, _) => Progress::PeerClosed,
            (_, true) => Progress::Handshaking,
            _ => Progress::Open,
        }
    }

    /// True for the server's side.
    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// True after an error: nothing can be sent or received.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The reason of a failure in OpenSSL's terms.
    pub fn reason(&self, error: &Error) -> Reason {
        Reason::of(error, &self.begin, self.negotiated().version())
    }

    /// The parameters that were negotiated.
    pub fn negotiated(&self) -> Negotiated<'_> {
        Negotiated::new(self.common(), self.name.as_deref(), self.shown.as_ref(), self.verified)
    }

    fn common(&self) -> &rustls::CommonState {
        match &self.role {
            Role::Server(server) => server,
            Role::Client(client) => client,
        }
    }

    /// Runs rustls on `bytes` until it needs more. Returns the number of bytes that it consumed.
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
                // rustls returns the alert for an error at the next call.
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
        // Taken now, before another connection's handshake replaces it.
        if was_handshaking && let Some(chosen) = choose::take_chosen() {
            self.name = chosen.name;
            self.shown = chosen.shown;
        }
        if was_handshaking && let Some(verified) = chain::take_verified() {
            self.verified = verified;
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

/// Handles one result of rustls: moves output to `plain` or `out`. Returns the number of bytes consumed.
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
            transmitting.done(); // the record is in `out`, which is sent before anything else
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
        Ok(_) => Step::Blocked, // input is missing, or both sides have closed; early data is not accepted
    };
    (discard, step)
}

/// Lets `make` write into `room`, of at least `size` bytes or as many as it asks for, and appends the result
/// to `out`.
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

/// The end of the whole records in `bytes` from `at` on, and their number.
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

/// True if the next bytes, as far as they have arrived, are the beginning of a TLS record.
fn is_record(mut cursor: Cursor<'_>) -> bool {
    let bytes = cursor
        .read_array::<1>()
        .map_or([22, 3], |[kind]| [kind, cursor.read_array().map_or(3, |[major]| major)]);
    (20..=23).contains(&bytes[0]) && bytes[1] == 3
}

/// True if the next record is complete.
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
