//! What a program runs against: borrowed parts of a session, a stream and the process.

use crate::clock::Zone;
use crate::eval_points::Direction;
use crate::format::LogFacts;
use crate::names::{ProxyId, ServerId, UserlistId};
use crate::sample::Value;
use crate::table::StickTables;
use crate::variable::Scopes;
use manylane_buf::Chain;
use manylane_http::Head;
use manylane_sync::Reader;
use std::net::SocketAddr;

/// A moment in wall clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// 0..1,000,000
    pub micros: u32,
}

/// Bytes of one direction that have been received and are still here: of a message's body, or of a TCP
/// stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Data<'a> {
    /// The bytes; nothing before the first.
    pub bytes: Option<&'a Chain>,
    /// No more will come: the end was received, or there is no room for more.
    pub complete: bool,
    /// Length that the message announces, when it does.
    pub announced: Option<u64>,
    /// They are a message's body, and its head is apart; else all that came.
    pub is_body: bool,
}

impl Data<'_> {
    /// Bytes that are here.
    pub fn len(&self) -> usize {
        self.bytes.map_or(0, Chain::len)
    }

    /// No byte is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A proxy as samples show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyFacts<'a> {
    /// Its `id`, or the one that it was given.
    pub id: i64,
    /// Its name.
    pub name: &'a [u8],
    /// `default_backend`; empty without.
    pub default_backend: &'a [u8],
}

/// What TLS of a connection has agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsFacts<'a> {
    /// Such as `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// Bits of the cipher's key.
    pub key_bits: i64,
    /// The group of the exchange of keys.
    pub curve: Option<&'static str>,
    /// The protocol that was chosen by ALPN.
    pub alpn: Option<&'a [u8]>,
    /// The name that the client asked for.
    pub name: Option<&'a [u8]>,
    /// The connection goes on with the session of an earlier one.
    pub resumed: bool,
    /// The peer's certificate.
    pub certificate: Option<&'a [u8]>,
    /// The certificate that this side has shown.
    pub shown: Option<&'a [u8]>,
    /// OpenSSL's number of why the handshake failed; 0 if it did not.
    pub error: u32,
    /// Its words.
    pub error_text: &'static str,
    /// OpenSSL's number of what is wrong with the peer's certificate.
    pub verify: u32,
    /// Its secrets, where they are kept, by the labels of files for programs that read captured traffic.
    pub secrets: &'a [(&'static str, Box<[u8]>)],
}

/// The client's side: fixed while the connection lives, except for what rules set.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientFacts<'a> {
    /// The client's address as rules and the PROXY protocol left it; nothing for unix sockets.
    pub source: Option<SocketAddr>,
    /// The address that it connected to, likewise.
    pub destination: Option<SocketAddr>,
    /// The connection's own addresses.
    pub link_source: Option<SocketAddr>,
    /// The connection's own addresses.
    pub link_destination: Option<SocketAddr>,
    /// The frontend.
    pub frontend: ProxyFacts<'a>,
    /// The listener: the frontend's, and its place there.
    pub listener: Option<(ProxyId, u32)>,
    /// `id` of the `bind` line.
    pub listener_id: i64,
    /// `name` of the `bind` line; empty without.
    pub listener_name: &'a [u8],
    /// What TLS has agreed on, if the connection is encrypted.
    pub tls: Option<TlsFacts<'a>>,
    /// 1 for HTTP/1, 2 for HTTP/2; 0 in TCP mode.
    pub http_major: i64,
    /// A PROXY protocol header was received.
    pub proxied: bool,
    /// Its authority.
    pub proxy_authority: Option<&'a [u8]>,
    /// Its unique id.
    pub proxy_unique_id: Option<&'a [u8]>,
    /// All of its vectors: a type, a length of two bytes, a value.
    pub proxy_tlvs: &'a [u8],
    /// When the connection was accepted.
    pub accepted: Timestamp,
    /// No request came before this one on the connection.
    pub first_request: bool,
}

/// The server's side, as far as it was chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerFacts<'a> {
    /// The backend.
    pub backend: Option<ProxyFacts<'a>>,
    /// `id` and name of the server.
    pub server: Option<(i64, &'a [u8])>,
    /// Our address of the connection to it.
    pub source: Option<SocketAddr>,
    /// Its address.
    pub destination: Option<SocketAddr>,
    /// As [`ClientFacts::tls`].
    pub tls: Option<TlsFacts<'a>>,
    /// As [`ClientFacts::http_major`].
    pub http_major: i64,
    /// Whether the connection to it has served a request before.
    pub reused: bool,
}

/// A setting of a proxy that rules may change for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the settings
pub enum StreamSetting {
    ClientTimeout,
    ConnectTimeout,
    MaxRetries,
    QueueTimeout,
    ServerTimeout,
    TarpitTimeout,
    TunnelTimeout,
}

/// Settings of the stream and of its proxies: timeouts in milliseconds, 0 without one. Asked for only where
/// an expression wants to know.
pub trait Settings {
    /// The proxy's own; nothing while there is no such proxy.
    fn of_proxy(&self, which: StreamSetting) -> Option<i64>;
    /// The one in use for this stream.
    fn of_stream(&self, which: StreamSetting) -> Option<i64>;
}

/// A connection as samples show it, beside its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// Streams that it has now.
    pub streams: u32,
    /// Streams that it may have at a time.
    pub streams_limit: u32,
    /// Oddities of the peer so far; none where they are not counted.
    pub glitches: Option<u32>,
    /// What is wrong with it.
    pub error: Option<LinkError>,
    /// The stream at work.
    pub stream: LinkStream,
}

/// The stream at work, as one of its connections has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStream {
    /// Its number there; of HTTP/1, that of the request, from 0 on.
    pub id: u32,
    /// The code with which the peer has reset it, of a stream of HTTP/2.
    pub reset: Option<u32>,
}

impl Default for LinkFacts {
    /// One that carries one stream at a time, and is well.
    fn default() -> Self {
        Self { streams: 1, streams_limit: 1, glitches: None, error: None, stream: LinkStream::default() }
    }
}

/// What is wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// Its number in HAProxy's manual, at `fc_err_name`.
    pub code: u8,
    /// Its name there.
    pub name: &'static str,
    /// For people.
    pub sentence: &'static str,
}

/// The connections of the stream.
pub trait Links {
    /// To the client.
    fn front(&self) -> LinkFacts;
    /// To the server; nothing where there is none.
    fn back(&self) -> Option<LinkFacts>;
}

/// What the stream remembers of its messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFacts<'a> {
    /// `unique-id-format`'s result.
    pub unique_id: Option<&'a [u8]>,
    /// Values of `capture request header` lines and `http-request capture`, by slot.
    pub request_captures: &'a [Option<&'a [u8]>],
    /// The same of responses.
    pub response_captures: &'a [Option<&'a [u8]>],
    /// The request line as it was received: method, target and version.
    pub request_line: Option<RequestLine<'a>>,
    /// The response's version, `1.1` for HTTP/1.1, and its status.
    pub response_line: Option<(&'a [u8], u16)>,
    /// `set-priority-class`
    pub priority_class: i64,
    /// `set-priority-offset`, milliseconds
    pub priority_offset: i64,
    /// File and line of the last rule that ended a list.
    pub last_rule: Option<(&'a [u8], i64)>,
}

/// A request's first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// `GET`
    pub method: &'a [u8],
    /// As it was sent.
    pub target: &'a [u8],
    /// `1.1` for HTTP/1.1
    pub version: &'a [u8],
    /// Bytes of it that are kept for later; 0 for all.
    pub most: usize,
}

impl<'a> RequestLine<'a> {
    /// What is kept of its parts: method, blank, target, blank and protocol, version.
    pub(crate) fn kept(&self) -> [&'a [u8]; 5] {
        let mut left = if self.most == 0 { usize::MAX } else { self.most };
        [self.method, b" ", self.target, b" HTTP/", self.version].map(|part| {
            let kept = &part[..part.len().min(left)];
            left -= kept.len();
            kept
        })
    }

    /// What is kept of its target.
    pub(crate) fn kept_target(&self) -> &'a [u8] {
        self.kept()[2]
    }
}

/// A number that only the proxy knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names of the fetches
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
    /// Connections of a listener, by its place in the frontend.
    ListenerConn(ProxyId, u32),
    /// Lines that the frontend has logged.
    LogLines(ProxyId),
    /// Connections of the process.
    ProcessConn,
    /// 1 while the process ends.
    Stopping,
    /// This lane's number, from 0.
    Thread,
}

/// Answers what is not in a message. Called while a program runs: it must not block or allocate.
pub trait Host {
    /// The number now; nothing when it is not known.
    fn number(&self, which: Number) -> Option<i64>;
    /// The backend of that name, for the converters that look names up.
    fn backend(&self, name: &[u8]) -> Option<ProxyId>;
    /// The server of that name of the backend.
    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId>;
    /// Whether the user list knows the user with that password.
    fn authenticate(&self, list: UserlistId, user: &[u8], password: &[u8]) -> bool;
    /// The user's group of that number, from 0.
    fn group(&self, list: UserlistId, user: &[u8], number: usize) -> Option<&[u8]>;
    /// Whether the address is one of this machine's.
    fn is_local(&self, addr: std::net::IpAddr) -> bool;
    /// This machine's name.
    fn hostname(&self) -> &[u8];
    /// What the converter `debug` saw.
    fn debug(&self, prefix: &[u8], sink: &[u8], value: Option<Value<'_>>);
}

/// All that a program may look at.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The moment of this evaluation.
    pub now: Timestamp,
    /// Local time's rules.
    pub zone: &'a Zone,
    /// The message whose rules are run; a log line is of the response's side.
    pub direction: Direction,
    /// Nothing more is waited for: what is not here now is absent for good (`inspect-delay` is over).
    pub is_final: bool,
    /// The request's head.
    pub request: Option<&'a Head>,
    /// The response's head.
    pub response: Option<&'a Head>,
    /// The request's body, or the client's bytes in TCP mode.
    pub request_data: Data<'a>,
    /// The response's body, or the server's bytes in TCP mode.
    pub response_data: Data<'a>,
    /// The client's side.
    pub client: &'a ClientFacts<'a>,
    /// The server's side.
    pub server: &'a ServerFacts<'a>,
    /// Both connections, where there are any.
    pub links: Option<&'a dyn Links>,
    /// Settings of the stream.
    pub settings: Option<&'a dyn Settings>,
    /// What the stream remembers.
    pub stream: &'a StreamFacts<'a>,
    /// What only log lines have.
    pub log: Option<&'a LogFacts<'a>>,
    /// Stick tables, where there are any.
    pub tables: Option<&'a dyn StickTables>,
    /// Variables.
    pub variables: Scopes<'a>,
    /// The lane's licence to read what is published.
    pub reader: &'a Reader,
    /// The rest.
    pub host: &'a dyn Host,
}

impl<'a> Env<'a> {
    /// The data of one direction.
    pub fn data(&self, direction: Direction) -> Data<'a> {
        match direction {
            Direction::Request => self.request_data,
            Direction::Response => self.response_data,
        }
    }

    /// The head of one direction.
    pub fn head(&self, direction: Direction) -> Option<&'a Head> {
        match direction {
            Direction::Request => self.request,
            Direction::Response => self.response,
        }
    }
}
