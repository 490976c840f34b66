//! Input of an evaluation: borrowed parts of a session, a stream and the process.

use crate::clock::Zone;
use crate::eval_points::Direction;
use crate::format::LogInfo;
use crate::names::{ProxyId, ServerId, UserlistId};
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::table::StickTables;
use crate::variable::Scopes;
use manylane_buf::Chain;
use manylane_http::Head;
use manylane_sync::Reader;
use std::fmt;
use std::net::SocketAddr;

/// A point in wall clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// 0..1,000,000
    pub micros: u32,
}

/// Received bytes of one direction that are still buffered: the body of a message, or a TCP stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Data<'a> {
    /// The bytes; `None` before the first one.
    pub bytes: Option<&'a Chain>,
    /// True if no more bytes follow: the end was received, or the buffer is full.
    pub complete: bool,
    /// Length of the body that the message announces, if it does.
    pub announced: Option<u64>,
    /// True for the body of a message, without its head; false for all bytes of a TCP stream.
    pub is_body: bool,
}

impl Data<'_> {
    /// Number of buffered bytes.
    pub fn len(&self) -> usize {
        self.bytes.map_or(0, Chain::len)
    }

    /// True if no byte is buffered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A proxy for fetches.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyInfo<'a> {
    /// Its `id`, given or assigned.
    pub id: i64,
    /// Its name.
    pub name: &'a [u8],
    /// `default_backend`; empty if there is none.
    pub default_backend: &'a [u8],
}

/// Result of the TLS handshake of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsInfo<'a> {
    /// Protocol version, such as `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// Key size of the cipher in bits.
    pub key_bits: i64,
    /// Group of the key exchange.
    pub curve: Option<&'static str>,
    /// Protocol selected by ALPN.
    pub alpn: Option<&'a [u8]>,
    /// Server name in the client hello (SNI).
    pub name: Option<&'a [u8]>,
    /// True if the session was resumed.
    pub resumed: bool,
    /// True if early data was received and the handshake is not complete.
    pub early: bool,
    /// True if early data was received.
    pub early_received: bool,
    /// The peer's certificate in DER.
    pub certificate: Option<&'a [u8]>,
    /// The certificates that the peer sent behind it, in DER, one after the other.
    pub issuers: &'a [u8],
    /// The certificate that this side sent, in DER.
    pub shown: Option<&'a [u8]>,
    /// OpenSSL's error code of a failed handshake; 0 if it succeeded.
    pub error: u32,
    /// Text of that error.
    pub error_text: &'static str,
    /// OpenSSL's code of the verification of the peer's certificate; 0 if it is valid.
    pub verify: u32,
    /// The first error of the peer's own certificate, by OpenSSL's number.
    pub certificate_error: u32,
    /// The first error of its issuers.
    pub authority_error: u32,
    /// Which issuer that is: 1 is that of the peer's own certificate.
    pub authority_depth: u32,
    /// Secrets of the session, if they are kept, with their labels in the NSS key log format.
    pub secrets: &'a [(&'static str, Box<[u8]>)],
    /// Lists of the client's hello, if they are kept, with the labels of `manylane_tls::ClientHello`.
    pub hello: &'a [(&'static str, Box<[u8]>)],
    /// Random value of the server's hello.
    pub server_random: Option<&'a [u8; 32]>,
    /// The identifier of the session, with TLS 1.2; empty if it has none.
    pub session_id: &'a [u8],
}

/// The client side. It is constant during the connection, except for changes by rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientInfo<'a> {
    /// Source address, possibly changed by the PROXY protocol or rules; `None` for unix sockets.
    pub source: Option<SocketAddr>,
    /// Destination address, likewise.
    pub destination: Option<SocketAddr>,
    /// Source address of the connection itself.
    pub link_source: Option<SocketAddr>,
    /// Destination address of the connection itself.
    pub link_destination: Option<SocketAddr>,
    /// The frontend.
    pub frontend: ProxyInfo<'a>,
    /// The listener: its frontend, and its index there.
    pub listener: Option<(ProxyId, u32)>,
    /// `id` of the `bind` line.
    pub listener_id: i64,
    /// `name` of the `bind` line; empty if there is none.
    pub listener_name: &'a [u8],
    /// TLS of the connection; `None` if it is not encrypted.
    pub tls: Option<TlsInfo<'a>>,
    /// 1 for HTTP/1, 2 for HTTP/2; 0 in TCP mode.
    pub http_major: i64,
    /// True if a PROXY protocol header was received.
    pub proxied: bool,
    /// Authority TLV of the PROXY header.
    pub proxy_authority: Option<&'a [u8]>,
    /// Unique ID TLV of the PROXY header.
    pub proxy_unique_id: Option<&'a [u8]>,
    /// All TLVs of the PROXY header: a byte of type, two bytes of length, the value.
    pub proxy_tlvs: &'a [u8],
    /// Time at which the connection was accepted.
    pub accepted: Timestamp,
    /// True for the first request on the connection.
    pub first_request: bool,
}

/// The server side, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerInfo<'a> {
    /// The backend.
    pub backend: Option<ProxyInfo<'a>>,
    /// `id` and name of the server.
    pub server: Option<(i64, &'a [u8])>,
    /// Local address of the connection to the server.
    pub source: Option<SocketAddr>,
    /// Address of the server.
    pub destination: Option<SocketAddr>,
    /// Like [`ClientInfo::tls`].
    pub tls: Option<TlsInfo<'a>>,
    /// Like [`ClientInfo::http_major`].
    pub http_major: i64,
    /// True if the connection has served an earlier request.
    pub reused: bool,
}

/// A setting of a proxy that rules can change for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named after the settings
pub enum StreamSetting {
    ClientTimeout,
    ConnectTimeout,
    MaxRetries,
    QueueTimeout,
    ServerTimeout,
    TarpitTimeout,
    TunnelTimeout,
}

/// Settings of a stream and its proxies. Timeouts are in milliseconds, 0 for none. Called only by expressions
/// that use them.
pub trait Settings {
    /// The setting of the proxy; `None` if there is no such proxy yet.
    fn of_proxy(&self, which: StreamSetting) -> Option<i64>;
    /// The current setting of the stream.
    fn of_stream(&self, which: StreamSetting) -> Option<i64>;
}

/// State of a connection for fetches, without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Open streams.
    pub streams: u32,
    /// Maximum number of concurrent streams.
    pub streams_limit: u32,
    /// Protocol glitches of the peer; `None` if they are not counted.
    pub glitches: Option<u32>,
    /// The error of the connection, if it has one.
    pub error: Option<LinkError>,
    /// The current stream.
    pub stream: LinkStream,
}

/// The current stream as its connection numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStream {
    /// Stream ID. For HTTP/1 the number of the request, from 0.
    pub id: u32,
    /// Error code if the peer reset the stream (HTTP/2).
    pub reset: Option<u32>,
}

impl Default for LinkInfo {
    /// A connection with one stream and no error.
    fn default() -> Self {
        Self { streams: 1, streams_limit: 1, glitches: None, error: None, stream: LinkStream::default() }
    }
}

/// Error of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// HAProxy's number, as in the manual at `fc_err_name`.
    pub code: u8,
    /// HAProxy's name for it.
    pub name: &'static str,
    /// Description for people.
    pub sentence: &'static str,
}

/// What the kernel knows about a TCP connection. Times are in microseconds, the rest are segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named after `manylane_io::TcpInfo`
pub struct TcpInfo {
    pub rtt: u32,
    pub rtt_variance: u32,
    pub unacknowledged: u32,
    pub selective: u32,
    pub lost: u32,
    pub retransmitted: u32,
    pub forward: u32,
    pub reordering: u32,
}

/// The connections of a stream.
pub trait Links {
    /// The connection to the client.
    fn front(&self) -> LinkInfo;
    /// The connection to the server; `None` if there is none.
    fn back(&self) -> Option<LinkInfo>;
    /// The kernel's numbers of the connection to the client, if it is an open TCP connection. Costs two
    /// system calls.
    fn front_tcp(&self) -> Option<TcpInfo>;
    /// The kernel's numbers of the connection to the server.
    fn back_tcp(&self) -> Option<TcpInfo>;
}

/// Captures of a stream by slot: those of `capture request header`, `http-request capture`, `capture-req` and
/// so on. Called only by expressions that use them.
pub trait Captures: fmt::Debug {
    /// Number of slots for a direction.
    fn slots(&self, direction: Direction) -> usize;
    /// Calls `work` with the text of a slot. `work` must not store a capture.
    fn read(&self, direction: Direction, slot: usize, work: &mut dyn FnMut(Option<&[u8]>));
    /// Stores as much of a text as the slot takes. False if there is no such slot.
    fn store(&self, direction: Direction, slot: usize, text: &[u8]) -> bool;
}

/// Data about the messages of a stream, kept after they are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamInfo<'a> {
    /// Result of `unique-id-format`.
    pub unique_id: Option<&'a [u8]>,
    /// Captures; `None` if nothing can be captured.
    pub captures: Option<&'a dyn Captures>,
    /// The request line as received.
    pub request_line: Option<RequestLine<'a>>,
    /// Version and status of the response; `1.1` for HTTP/1.1.
    pub response_line: Option<(&'a [u8], u16)>,
    /// Status of the server's response before rules changed it; 0 without one.
    pub server_status: u16,
    /// `set-priority-class`
    pub priority_class: i64,
    /// `set-priority-offset` in milliseconds
    pub priority_offset: i64,
    /// File and line of the last rule that ended a ruleset.
    pub last_rule: Option<(&'a [u8], i64)>,
}

impl StreamInfo<'_> {
    /// Number of slots for captures of a direction.
    pub(crate) fn slots(&self, direction: Direction) -> usize {
        self.captures.map_or(0, |captures| captures.slots(direction))
    }

    /// The capture in a slot. It is copied into the scratch, since a later converter may replace it.
    pub(crate) fn capture<'x>(
        &self,
        direction: Direction,
        slot: usize,
        scratch: &mut Scratch<'x>,
    ) -> Option<&'x [u8]> {
        let mut copied = None;
        self.captures?.read(direction, slot, &mut |text| copied = text.and_then(|text| scratch.copy(text)));
        copied
    }
}

/// A request line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// `GET`
    pub method: &'a [u8],
    /// The target as received.
    pub target: &'a [u8],
    /// `1.1` for HTTP/1.1
    pub version: &'a [u8],
    /// Number of bytes of the line to keep; 0 means all.
    pub most: usize,
}

impl<'a> RequestLine<'a> {
    /// The kept parts: method, space, target, space and protocol, version.
    pub(crate) fn kept(&self) -> [&'a [u8]; 5] {
        let mut left = if self.most == 0 { usize::MAX } else { self.most };
        [self.method, b" ", self.target, b" HTTP/", self.version].map(|part| {
            let kept = &part[..part.len().min(left)];
            left -= kept.len();
            kept
        })
    }

    /// The kept part of the target.
    pub(crate) fn kept_target(&self) -> &'a [u8] {
        self.kept()[2]
    }
}

/// A number that only the proxy knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the fetches
pub enum Number {
    AvgQueue(ProxyId),
    BackConn(ProxyId),
    BackConnFree(ProxyId),
    BackSessRate(ProxyId),
    ConnSlots(ProxyId),
    FrontConn(ProxyId),
    FrontReqRate(ProxyId),
    FrontSessRate(ProxyId),
    NbSrv(ProxyId),
    Queue(ProxyId),
    SrvConn(ServerId),
    SrvConnFree(ServerId),
    SrvIsUp(ServerId),
    SrvIweight(ServerId),
    SrvQueue(ServerId),
    SrvSessRate(ServerId),
    SrvUweight(ServerId),
    SrvWeight(ServerId),
    /// Connections of a listener, by its index in the frontend.
    ListenerConn(ProxyId, u32),
    /// Number of lines that the frontend has logged.
    LogLines(ProxyId),
    /// Connections of the process.
    ProcessConn,
    /// 1 while the process stops, 0 before.
    Stopping,
    /// Seconds since the process began.
    Uptime,
    /// Number of this lane, from 0.
    Thread,
}

/// Access to data outside of messages. Methods are called during evaluation: they must not block or allocate.
pub trait Host {
    /// The current number; `None` if it is unknown.
    fn number(&self, which: Number) -> Option<i64>;
    /// The backend with this name, for converters that look up names.
    fn backend(&self, name: &[u8]) -> Option<ProxyId>;
    /// The server with this name in a backend.
    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId>;
    /// True if the user list has the user with this password.
    fn authenticate(&self, list: UserlistId, user: &[u8], password: &[u8]) -> bool;
    /// Name of the user's group with index `number`; `None` past the last one.
    fn group(&self, list: UserlistId, user: &[u8], number: usize) -> Option<&[u8]>;
    /// True if the address belongs to this machine.
    fn is_local(&self, addr: std::net::IpAddr) -> bool;
    /// Name of this machine.
    fn hostname(&self) -> &[u8];
    /// OpenSSL's name of an error of verification, without `X509_V_ERR_`.
    fn verify_error(&self, code: i64) -> Option<&'static str>;
    /// Output of the converter `debug`.
    fn debug(&self, prefix: &[u8], sink: &[u8], value: Option<Value<'_>>);
}

/// All input of an evaluation.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Reads the wall clock. Only expressions that ask for the time pay for it.
    pub now: fn() -> Timestamp,
    /// Time zone for local time.
    pub zone: &'a Zone,
    /// Direction of the message whose rules run. Log lines use the response.
    pub direction: Direction,
    /// True if nothing waits for more data, for example after `inspect-delay`: missing data stays missing.
    pub is_final: bool,
    /// Head of the request.
    pub request: Option<&'a Head>,
    /// Head of the response.
    pub response: Option<&'a Head>,
    /// Body of the request, or the client's bytes in TCP mode.
    pub request_data: Data<'a>,
    /// Body of the response, or the server's bytes in TCP mode.
    pub response_data: Data<'a>,
    /// The client side.
    pub client: &'a ClientInfo<'a>,
    /// The server side.
    pub server: &'a ServerInfo<'a>,
    /// The connections of the stream, if there are any.
    pub links: Option<&'a dyn Links>,
    /// Settings of the stream, if there is one.
    pub settings: Option<&'a dyn Settings>,
    /// Data about the messages of the stream.
    pub stream: &'a StreamInfo<'a>,
    /// Data for log lines only.
    pub log: Option<&'a LogInfo<'a>>,
    /// Stick tables, if there are any.
    pub tables: Option<&'a dyn StickTables>,
    /// Variables.
    pub variables: Scopes<'a>,
    /// The lane's reader of published values.
    pub reader: &'a Reader,
    /// All other data.
    pub host: &'a dyn Host,
}

impl<'a> Env<'a> {
    /// Returns the input of an evaluation that no stream asks for, in the direction of requests: no messages,
    /// tables, settings or variables, and nothing more to wait for.
    pub fn without_stream(
        now: fn() -> Timestamp,
        zone: &'a Zone,
        (client, server, stream): (&'a ClientInfo<'a>, &'a ServerInfo<'a>, &'a StreamInfo<'a>),
        reader: &'a Reader,
        host: &'a dyn Host,
    ) -> Self {
        Self {
            now,
            zone,
            direction: Direction::Request,
            is_final: true,
            request: None,
            response: None,
            request_data: Data::default(),
            response_data: Data::default(),
            client,
            server,
            links: None,
            settings: None,
            stream,
            log: None,
            tables: None,
            variables: Scopes::default(),
            reader,
            host,
        }
    }

    /// Data of one direction.
    pub fn data(&self, direction: Direction) -> Data<'a> {
        match direction {
            Direction::Request => self.request_data,
            Direction::Response => self.response_data,
        }
    }

    /// Head of one direction.
    pub fn head(&self, direction: Direction) -> Option<&'a Head> {
        match direction {
            Direction::Request => self.request,
            Direction::Response => self.response,
        }
    }
}
