//! A TLS connection of either role.

use crate::chain::{self, Verified};
use crate::challenge;
use crate::choose;
use crate::client::{ClientContext, Hello};
use crate::error::Error;
use crate::hello::{CLIENT_HELLO, ClientHello, HANDSHAKE, ServerHello, accepted, server_hello};
use crate::keylog::Secrets;
use crate::negotiated::Negotiated;
use crate::openssl::Reason;
use crate::provider::{CommonSettings, SentRecords};
use crate::scratch::{self, LARGEST_RECORD, Scratch};
use crate::server::MOST_EARLY_DATA;
use crate::server::{Configs, ServerContext};
use manylane_buf::{Chain, Cursor};
use manylane_sync::qsbr::Reader;
use rustls::ContentType;
use rustls::client::{ClientConnectionData, EarlyDataError, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, ReadEarlyData, TransmitTlsData, UnbufferedStatus,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of incomplete messages that a connection keeps. A handshake message is limited to 64 KiB, which
/// leaves room for long certificate chains; records add headers and tags.
pub const MOST_UNREAD: usize = 80 << 10;

/// Most records of one incomplete message. rustls parses all of them again for each new record, so a message
/// in records of one byte each would cost the square of its length. With the smallest records of RFC 6066,
/// the largest hellos stay below this.
pub const MOST_RECORDS: usize = 256;

/// Length of a record's header: type, version, length.
const HEADER: usize = 5;

/// Most bytes of a record with a ServerHello up to its session: header, version, random value, and the
/// length and the bytes of the session.
const FIRST: usize = HEADER + 4 + 2 + 32 + 1 + 32;

/// Longest message of a handshake that rustls takes, without its header.
const LONGEST_MESSAGE: usize = 0xffff;

/// Types of records that no client begins with: change of cipher, alert, data. rustls ignores some alerts,
/// and the look at the hello does not.
const NO_HELLO: [u8; 3] = [20, 21, 23];

/// The header of the record with this message. All other messages of a client that are encrypted are longer.
const END_OF_EARLY_DATA: [u8; HEADER] = [23, 3, 3, 0, 4 + 1 + TAG as u8];

/// Length of the tag of each cipher of TLS 1.3.
const TAG: usize = 16;

/// Bytes that a record has beside its data, in TLS 1.3: the header, the type of its content, the tag.
const AROUND: usize = HEADER + 1 + TAG;

/// A record with the fatal alert `unexpected_message`.
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// A TLS connection without IO: [`receive`](Self::receive) takes bytes from the peer and appends bytes to
/// send. Buffers only incomplete records.
pub struct Connection {
    role: Role,
    /// Received bytes of incomplete messages.
    pub(crate) unread: Chain,
    /// Length of the whole records at the beginning of `unread` that rustls has seen. rustls may have
    /// decrypted them in place and relies on these bytes.
    pub(crate) fed: usize,
    /// Number of these records.
    records: usize,
    /// rustls took some bytes at the last call, so it may take more at the next.
    goes_on: bool,
    /// Number of calls of rustls with input.
    #[cfg(test)]
    pub(crate) calls: usize,
    /// The server name: on a server the one that the client asked for, on a client the one that it sent.
    name: Option<Box<str>>,
    /// The peer's first bytes.
    begin: [u8; 4],
    /// Bytes of the peer have come.
    has_heard: bool,
    /// The errors of the peer's chain of certificates.
    verified: Verified,
    /// The certificate that this side has presented.
    shown: Option<Arc<CertifiedKey>>,
    /// The records of data that it has sent.
    sent: SentRecords,
    /// Set if the context keeps secrets.
    secrets: Option<Box<Secrets>>,
    /// A server that needs the hello before rustls has it, until the whole hello has come: the configuration
    /// depends on the hello, or parts of it are kept.
    pending: Option<Arc<Configs>>,
    /// Most bytes to keep of a client's hello.
    hello_bytes: usize,
    /// What is kept of it.
    hello: Option<Arc<ClientHello>>,
    /// What is kept of the server's hello.
    answer: Option<ServerHello>,
    /// A client that has not sent its first message yet: the handshake starts without input.
    begins: bool,
    handshaking: bool,
    /// A server that has received early data.
    early: bool,
    /// A client that may send early data, or has sent some, until the handshake is complete.
    offer: Option<Box<Offer>>,
    /// What a server knows of challenges of ACME.
    challenge: ChallengeState,
    peer_closed: bool,
    notified: bool,
    failed: bool,
    /// The alert that this side has sent because of an error, if it was sent in clear.
    alert: Option<u8>,
}

/// Early data of a client.
///
/// rustls encrypts it between the hello and the response of the server, as long as the hello counts as not
/// sent. It does not tell whether the server has accepted the data, but it ends accepted data with a message,
/// [`END_OF_EARLY_DATA`].
#[derive(Default)]
struct Offer {
    /// What was to be sent so far. It is sent, or sent again, when the handshake is complete, as far as the
    /// server has not accepted it.
    data: Chain,
    /// Number of its bytes that were sent early: the server bounds them.
    sent: usize,
    /// No more early data can be sent: the server's bound is reached, or the server has answered.
    closed: bool,
    /// The server has accepted what was sent early.
    accepted: bool,
}

/// Whether a client hello asks for a challenge of ACME.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChallengeState {
    No,
    /// It has not come yet, and there are challenges.
    Perhaps,
    Yes,
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
    /// The handshake is not complete, but a server has received early data and can respond to it: the data
    /// may be a copy that somebody else sends. A client can send early data, of which somebody may make such
    /// copies.
    Early,
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
    /// Early data may be sent.
    Offers,
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
        let configs = context.0.load(reader);
        let server = UnbufferedServerConnection::new(configs.usual.clone())?;
        let common = &context.0.settings.common;
        let mut own = Self::new(Role::Server(server), None, false, common);
        own.hello_bytes = common.hello_bytes;
        if configs.own.is_some() || own.hello_bytes > 0 {
            own.pending = Some(configs);
        }
        if challenge::are_published() {
            own.challenge = ChallengeState::Perhaps;
        }
        Ok(own)
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
        hello: Hello,
        reader: &Reader,
    ) -> Result<Self, Error> {
        let sent_name = match &name {
            ServerName::DnsName(name) if context.sends_name() => Some(name.as_ref().into()),
            _ => None,
        };
        let configs = context.0.load(reader);
        let (config, offers) = configs.of(hello);
        let client = UnbufferedClientConnection::new(config, name)?;
        let mut own = Self::new(Role::Client(client), sent_name, true, &context.0.settings.common);
        own.offer = offers.then(Box::default);
        Ok(own)
    }

    fn new(role: Role, name: Option<Box<str>>, begins: bool, common: &CommonSettings) -> Self {
        Self {
            role,
            unread: Chain::new(),
            fed: 0,
            records: 0,
            goes_on: false,
            #[cfg(test)]
            calls: 0,
            name,
            begin: [0; 4],
            has_heard: false,
            verified: Verified::default(),
            shown: None,
            sent: SentRecords::new(common.records),
            secrets: common.keeps_secrets.then(Box::default),
            pending: None,
            hello_bytes: 0,
            hello: None,
            answer: None,
            begins,
            handshaking: true,
            early: false,
            offer: None,
            challenge: ChallengeState::No,
            peer_closed: false,
            notified: false,
            failed: false,
            alert: None,
        }
    }

    /// Takes all of `received`. Appends decrypted data to `plain`, and bytes for the peer to `out`; with an
    /// error of TLS, `out` has the alert.
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
        // Only handshakes with clients need this check: clients begin as many as they like. The configuration
        // bounds those with servers, and a health check that the check refuses would count against its
        // server.
        if self.progress() == Progress::Handshaking
            && matches!(self.role, Role::Server(_))
            && let Err(error) = manylane_pool::check_foreign()
        {
            self.failed = true;
            received.clear();
            return Err(Error::Memory(error.into()));
        }
        if self.handshaking && self.begin[0] == 0 && received.len() >= self.begin.len() {
            self.begin = received.cursor().read_array().unwrap_or_default();
        }
        if !received.is_empty() && !std::mem::replace(&mut self.has_heard, true) {
            let [first] = received.cursor().read_array().unwrap_or_default();
            if matches!(self.role, Role::Server(_)) && NO_HELLO.contains(&first) {
                self.failed = true;
                received.clear();
                out.append(&UNEXPECTED_MESSAGE)?;
                return Err(Error::Tls(rustls::Error::InappropriateMessage {
                    expect_types: vec![ContentType::Handshake],
                    got_type: ContentType::from(first),
                }));
            }
        }
        self.unread.append_compact(received)?; // otherwise reads of one byte would hold a cluster each
        if self.challenge == ChallengeState::Perhaps && self.is_readable() {
            self.challenge = ChallengeState::No;
            if let Some(config) = challenge::config_for(&self.unread) {
                self.role = Role::Server(UnbufferedServerConnection::new(config)?);
                (self.challenge, self.pending) = (ChallengeState::Yes, None);
            }
        }
        let waited = self.pending.is_some();
        self.select_configuration()?;
        if waited && self.pending.is_none() && self.hello_bytes > 0 {
            self.keep_hello();
        }
        while self.begins || (self.pending.is_none() && !self.peer_closed && self.is_readable()) {
            self.begins = false;
            let before = self.unread.len();
            self.read(plain, out)?;
            if self.unread.len() == before {
                break;
            }
        }
        self.unread.gather()?; // the start of a record would keep the large read that it is cut out of
        if !self.handshaking
            && let Some(offer) = self.offer.take()
        {
            let Offer { mut data, sent, accepted, .. } = *offer;
            data.trim_front(if accepted { sent } else { 0 }).map_err(manylane_buf::Error::from)?;
            self.send(&mut data, out)?;
        }
        if self.peer_closed {
            self.unread.clear(); // bytes after the end are ignored
            (self.fed, self.records) = (0, 0);
        }
        if self.unread.len() > MOST_UNREAD || self.records > MOST_RECORDS {
            self.failed = true;
            return Err(Error::Flood);
        }
        if self.challenge == ChallengeState::Yes && !self.handshaking {
            self.close_notify(out)?;
            self.failed = true;
            return Err(Error::Challenge);
        }
        Ok(self.progress())
    }

    /// Looks for the whole hello in `unread`, and begins anew with the configuration that it selects. rustls
    /// takes a configuration before it has the hello, so the hello is read twice: here, when it is whole, and
    /// by the connection with this configuration.
    fn select_configuration(&mut self) -> Result<(), Error> {
        let Some(configs) = &self.pending else { return Ok(()) };
        let (records, decided) = records_of_hello(self.unread.cursor());
        if !decided {
            self.records = records;
            return Ok(());
        }
        // Whatever is wrong with the bytes, the connection meets most of it, too, and sends the alert. What
        // it takes for a hello all the same gets no certificate (`Unlisted`).
        let own = configs.own.as_ref().and_then(|own| own.of(&accepted(&self.unread)?.client_hello()));
        if let Some(own) = own {
            self.role = Role::Server(UnbufferedServerConnection::new(own)?);
        }
        (self.pending, self.records) = (None, 0);
        Ok(())
    }

    /// Keeps parts of the hello at the beginning of `unread`. rustls has not seen these bytes: it would have
    /// moved those of a hello in several records.
    fn keep_hello(&mut self) {
        let (unread, most) = (&self.unread, self.hello_bytes);
        self.hello = scratch::with(|Scratch { input, .. }| {
            for segment in unread.segments() {
                input.extend_from_slice(segment.as_slice());
            }
            ClientHello::read(input, most).map(Arc::new)
        });
    }

    /// True if rustls can make progress with `unread`. Input that is not a record is passed on, so that
    /// rustls refuses it immediately.
    fn is_readable(&self) -> bool {
        let mut cursor = self.unread.cursor();
        if self.unread.is_empty() || cursor.advance(self.fed).is_err() {
            return false;
        }
        (self.goes_on && self.fed > 0) || whole(cursor.clone()) || (self.handshaking && !is_record(cursor))
    }

    /// Records that rustls was given whole records up to `end`, `records` of them for the first time, and
    /// consumed `taken` bytes.
    fn was_fed(&mut self, end: usize, records: usize, taken: usize) {
        #[cfg(test)]
        {
            self.calls += 1;
        }
        self.fed = end.saturating_sub(taken);
        self.goes_on = taken > 0;
        self.records = if taken > 0 || self.fed == 0 { 0 } else { self.records + records };
    }

    /// Calls rustls once with `unread`.
    fn read(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        scratch::with(|scratch| {
            // The usual case: the input is one segment that is not shared, and is decrypted in place.
            if self.unread.segment_count() == 1
                && let Some(mut segment) = self.unread.pop_front()
            {
                if let Some(bytes) = segment.try_unique() {
                    let (end, records) = whole_records(bytes, self.fed);
                    let (taken, result) = self.work(bytes, Sent::Nothing, plain, &mut scratch.output, out);
                    let left = segment.len().saturating_sub(taken);
                    self.was_fed(end, records, taken);
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
            let (end, records) = whole_records(input, self.fed);
            let (taken, result) = self.work(input, Sent::Nothing, plain, output, out);
            let left = &input[taken.min(input.len())..];
            self.was_fed(end, records, taken);
            if self.fed > 0 {
                self.unread.clear();
                self.unread.append(left)?;
            } else {
                self.unread.trim_front(taken).map_err(manylane_buf::Error::from)?;
            }
            result
        })
    }

    /// Tells the time, from any point on, before data is [sent](Self::send): after an idle time, records are
    /// small again.
    pub fn note_time(&mut self, now: Duration) {
        self.sent.begin(now);
    }

    /// Encrypts all of `plain` and appends the records to `out`.
    ///
    /// # Errors
    /// [`Error`] if the handshake is not complete and there is no early data, this side has closed, or there
    /// is no memory.
    pub fn send(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        if self.offer.is_some() && self.progress() == Progress::Early {
            return self.send_early(plain, out);
        }
        while !plain.is_empty() {
            scratch::with(|Scratch { input, output }| {
                // Small segments, such as a head and the start of a body, share a record.
                let (mut taken, mut from, most) = (0, None, self.sent.most());
                for segment in plain.segments() {
                    let n = segment.len().min(most - taken);
                    if taken == 0 && (n == most || n == plain.len()) {
                        (taken, from) = (n, Some(segment));
                        break;
                    }
                    input.extend_from_slice(&segment.as_slice()[..n]);
                    taken += n;
                    if taken == most {
                        break;
                    }
                }
                let data = from.map_or(&input[..], |segment| &segment.as_slice()[..taken]);
                self.put(Sent::Data(data), output, out)?;
                self.sent.add(taken);
                plain.trim_front(taken).map_err(|error| Error::Memory(error.into()))
            })?;
        }
        Ok(())
    }

    /// Sends as much of `plain` as early data as the server allows, up to [`MOST_EARLY_DATA`]: servers may
    /// announce more than they take. Keeps all of it.
    fn send_early(&mut self, plain: &mut Chain, out: &mut Chain) -> Result<(), Error> {
        while let Some(segment) = plain.pop_front() {
            for part in segment.as_slice().chunks(self.sent.most()) {
                let Some(offer) = self.offer.as_ref().filter(|offer| !offer.closed) else { break };
                let part = &part[..part.len().min(MOST_EARLY_DATA as usize - offer.sent)];
                let sent = scratch::with(|Scratch { output, .. }| self.put(Sent::Data(part), output, out));
                sent?;
                self.sent.add(part.len());
            }
            let Some(offer) = &mut self.offer else { break };
            offer.data.push_back(segment).map_err(|error| Error::Memory(error.into()))?;
        }
        Ok(())
    }

    /// Appends a close_notify alert to `out`, once. Does nothing during the handshake or after a failure.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn close_notify(&mut self, out: &mut Chain) -> Result<(), Error> {
        // A client's early data ends with the handshake, and cannot end before.
        if self.notified || self.failed || self.progress() == Progress::Handshaking || self.offer.is_some() {
            return Ok(());
        }
        self.notified = true;
        scratch::with(|scratch| self.put(Sent::CloseNotify, &mut scratch.output, out))
    }

    fn put(&mut self, what: Sent<'_>, room: &mut Vec<u8>, out: &mut Chain) -> Result<(), Error> {
        if self.progress() == Progress::Handshaking {
            return Err(Error::Tls(rustls::Error::HandshakeNotComplete));
        }
        // Rarely a copy: rustls relies on the bytes of a message that has begun.
        let mut unread = if self.fed > 0 { self.unread.to_vec() } else { Vec::new() };
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
            (_, true) if self.early => Progress::Early,
            (_, true) => Progress::Handshaking,
            _ => Progress::Open,
        }
    }

    /// True if the handshake is complete, also behind early data.
    pub fn is_complete(&self) -> bool {
        !self.handshaking
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
        Reason::of(error, &self.begin, self.negotiated().version(), self.alert)
    }

    /// The parameters that were negotiated.
    pub fn negotiated(&self) -> Negotiated<'_> {
        Negotiated {
            common: self.common(),
            name: self.name.as_deref(),
            shown: self.shown.as_ref(),
            verified: self.verified,
            hello: self.hello.as_ref(),
            answer: self.answer.as_ref(),
            early: self.early,
        }
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
        let sent_before = out.len();
        if was_handshaking && self.answer.is_none() && !self.is_server() {
            self.answer = server_hello(bytes);
        }
        loop {
            if failed.is_some() && !self.common().wants_write() {
                break;
            }
            let bytes = &mut bytes[at..];
            let (taken, step) = match &mut self.role {
                Role::Server(server) => match server.process_tls_records(bytes) {
                    UnbufferedStatus { discard, state: Ok(ConnectionState::ReadEarlyData(data)) } => {
                        self.early = true;
                        read_early(discard, data, plain)
                    }
                    status => read_status(status, &mut sent, plain, room, out),
                },
                Role::Client(client) => match (client.process_tls_records(bytes), &mut self.offer) {
                    (
                        UnbufferedStatus { discard, state: Ok(ConnectionState::TransmitTlsData(hello)) },
                        Some(offer),
                    ) if !offer.closed => (discard, offer.make(hello, &mut sent, room, out)),
                    (status, offer) => {
                        let before = out.len();
                        let step = read_status(status, &mut sent, plain, room, out);
                        if let Some(offer) = offer
                            && !offer.accepted
                        {
                            let mut made = out.cursor();
                            let _ = made.advance(before); // it is not longer now
                            offer.accepted = made.read_array() == Ok(END_OF_EARLY_DATA);
                        }
                        step
                    }
                },
            };
            at += taken;
            match step {
                Step::Again => {}
                Step::Offers => {
                    self.early = true;
                    break;
                }
                // rustls returns the alert for an error at the next call.
                Step::Failed(error) if failed.is_none() => failed = Some(error),
                Step::Failed(_) => break,
                Step::PeerClosed => self.peer_closed = true,
                Step::Open => {
                    // A server that accepts early data may send before the handshake is complete.
                    self.handshaking = self.common().is_handshaking();
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
        if was_handshaking && self.answer.is_none() && self.is_server() {
            let (mut hello, mut first) = (out.cursor(), [0; FIRST]);
            let _ = hello.advance(sent_before); // it is not longer now
            let first = &mut first[..FIRST.min(hello.remaining())];
            self.answer = hello.read_bytes(first).ok().and_then(|()| server_hello(first));
        }
        if was_handshaking && let Some(secrets) = &mut self.secrets {
            secrets.take_logged();
        }
        match failed {
            Some(error) => {
                self.failed = true;
                let mut last = out.cursor();
                self.alert = last
                    .advance(out.len().saturating_sub(UNEXPECTED_MESSAGE.len()))
                    .and_then(|()| last.read_array())
                    .ok()
                    .and_then(|record| match record {
                        [21, 3, _, 0, 2, 2, alert] => Some(alert),
                        _ => None,
                    });
                (at, Err(error))
            }
            None if !matches!(sent, Sent::Nothing) => {
                (at, Err(Error::Tls(rustls::Error::General("the connection takes no data".to_owned()))))
            }
            None => (at, Ok(())),
        }
    }
}

impl Offer {
    /// Sends early data, if rustls takes some; the hello counts as not sent as long as it does.
    fn make(
        &mut self,
        mut hello: TransmitTlsData<'_, ClientConnectionData>,
        sent: &mut Sent<'_>,
        room: &mut Vec<u8>,
        out: &mut Chain,
    ) -> Step {
        let Some(mut early) = hello.may_encrypt_early_data() else {
            self.closed = true;
            hello.done();
            return Step::Again;
        };
        if let Sent::Data(data) = *sent {
            let before = out.len();
            *sent = Sent::Nothing;
            let made = into(room, out, data.len() + 512, |room| match early.encrypt(data, room) {
                Ok(n) => Ok(n),
                Err(EarlyDataError::Encrypt(EncryptError::InsufficientSize(size))) => {
                    Err(Some(size.required_size))
                }
                Err(_) => Err(None),
            });
            if let Err(error) = made {
                return Step::Failed(error);
            }
            // rustls takes no more than the server allows, and tells only what it made.
            let taken = (out.len() - before).saturating_sub(AROUND);
            self.sent += taken;
            self.closed = taken < data.len() || self.sent >= MOST_EARLY_DATA as usize;
        }
        Step::Offers
    }
}

/// Moves early data to `plain`. Returns as [`read_status`] does.
fn read_early(
    mut discard: usize,
    mut data: ReadEarlyData<'_, '_, ServerConnectionData>,
    plain: &mut Chain,
) -> (usize, Step) {
    while let Some(record) = data.next_record() {
        let appended = match record {
            Ok(record) => {
                discard += record.discard;
                plain.append(record.payload).map_err(Error::Memory)
            }
            Err(error) => Err(Error::Tls(error)),
        };
        if let Err(error) = appended {
            return (discard, Step::Failed(error));
        }
    }
    (discard, Step::Again)
}

/// Handles one result of rustls: moves output to `plain` or `out`. Returns the number of bytes consumed.
fn read_status<D>(
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
        Ok(_) => Step::Blocked, // input is missing, or both sides have closed
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

/// The number of whole records at the beginning of a client's bytes, and true if the hello in them is whole,
/// or if the bytes cannot become one.
fn records_of_hello(mut cursor: Cursor<'_>) -> (usize, bool) {
    let (mut records, mut came, mut begin) = (0, 0, [0; 4]);
    while is_record(cursor.clone()) {
        let Ok([kind, _, _, high, low]) = cursor.read_array::<HEADER>() else { return (records, false) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || length == 0 {
            break; // rustls refuses an empty record, and says so by an alert
        }
        if cursor.remaining() < length {
            return (records, false);
        }
        let missing = &mut begin[came.min(4)..];
        let n = missing.len().min(length);
        // `remaining` was checked above, so this cannot fail.
        let _ = cursor.read_bytes(&mut missing[..n]).and_then(|()| cursor.advance(length - n));
        (records, came) = (records + 1, came + length);
        let [kind, lengths @ ..] = begin;
        let promised = lengths.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if came > 0 && kind != CLIENT_HELLO
            || came >= 4 && (promised > LONGEST_MESSAGE || came - 4 >= promised)
        {
            break;
        }
    }
    (records, true)
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
