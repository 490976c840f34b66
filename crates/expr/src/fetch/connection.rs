//! Addresses, proxies and settings of both connections, and data that the stream keeps.

use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::{Env, LinkInfo, Number, StreamSetting, TcpInfo};
use crate::error::Error;
use crate::eval_points::{Direction, EvalPoints};
use crate::fetch::constant::Unit;
use crate::sample::{Absent, FetchResult, Type, Value, found};
use crate::scratch::Scratch;
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Addr(End),
    Port(End),
    IsLocal(End),
    BackHttpMajor,
    FrontHttpMajor,
    BackendId,
    BackendName,
    FrontendId,
    FrontendName,
    FrontendDefault,
    ReceivedProxy,
    ProxyAuthority,
    ProxyUniqueId,
    ProxyTlv(u8),
    FirstRequest,
    LastRuleFile,
    LastRuleLine,
    ListenerConnections,
    ListenerId,
    ListenerName,
    PriorityClass,
    PriorityOffset,
    ServerId,
    ServerName,
    UniqueId,
    Capture(Direction, usize),
    CapturedMethod,
    CapturedUri,
    CapturedVersion,
    CapturedResponseVersion,
    AcceptDate(Unit),
    OfProxy(StreamSetting),
    OfStream(StreamSetting),
    FrontLink(LinkFact),
    BackLink(LinkFact),
    FrontTcp(TcpFact),
    BackTcp(TcpFact),
}

/// A property of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFact {
    Error,
    ErrorName,
    ErrorSentence,
    Glitches,
    Streams,
    StreamsLimit,
    StreamId,
    StreamAborted,
    StreamReset,
}

impl LinkFact {
    fn of(self, info: LinkInfo) -> FetchResult<'static> {
        match self {
            Self::Error => found(Value::Int(info.error.map_or(0, |error| error.code.into()))),
            Self::ErrorName => some(Some(info.error.map_or("", |error| error.name).as_bytes())),
            Self::ErrorSentence => {
                some(Some(info.error.map_or("Success", |error| error.sentence).as_bytes()))
            }
            Self::Glitches => int(info.glitches.map(i64::from)),
            Self::Streams => int(Some(info.streams.into())),
            Self::StreamsLimit => int(Some(info.streams_limit.into())),
            Self::StreamId => int(Some(info.stream.id.into())),
            Self::StreamAborted => found(Value::Bool(info.stream.reset.is_some())),
            Self::StreamReset => int(info.stream.reset.map(i64::from)),
        }
    }
}

/// A number that the kernel has of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpFact {
    /// Times, in milliseconds unless `micros` is set.
    RoundTrip {
        micros: bool,
    },
    Variance {
        micros: bool,
    },
    Unacknowledged,
    Selective,
    Lost,
    Retransmitted,
    Forward,
    Reordering,
}

impl TcpFact {
    fn of(self, info: Option<TcpInfo>) -> FetchResult<'static> {
        let Some(info) = info else { return Err(Absent::Never) };
        let number = match self {
            Self::RoundTrip { micros } => info.rtt / if micros { 1 } else { 1000 },
            Self::Variance { micros } => info.rtt_variance / if micros { 1 } else { 1000 },
            Self::Unacknowledged => info.unacknowledged,
            Self::Selective => info.selective,
            Self::Lost => info.lost,
            Self::Retransmitted => info.retransmitted,
            Self::Forward => info.forward,
            Self::Reordering => info.reordering,
        };
        found(Value::Int(number.into()))
    }
}

/// Whether a time is wanted in microseconds.
fn in_micros(args: &Args<'_, '_>) -> Result<bool, Error> {
    match args.given(0) {
        None | Some(b"ms") => Ok(false),
        Some(b"us") => Ok(true),
        Some(_) => Err(args.expected(0, "us or ms")),
    }
}

/// A row of a time that the kernel knows.
macro_rules! time {
    ($name:literal, $points:ident, $help:literal, $link:ident, $fact:ident) => {
        row($name, &[Str], 0, Type::Int, EvalPoints::$points, $help, |args| {
            made(C::$link(TcpFact::$fact { micros: in_micros(args)? }))
        })
    };
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
    LinkSource,
    LinkDestination,
    BackSource,
    BackDestination,
}

impl End {
    fn is_back(self) -> bool {
        matches!(self, Self::BackSource | Self::BackDestination)
    }

    fn of(self, env: &Env<'_>) -> Option<SocketAddr> {
        match self {
            Self::Source => env.client.source,
            Self::Destination => env.client.destination,
            Self::LinkSource => env.client.link_source,
            Self::LinkDestination => env.client.link_destination,
            Self::BackSource => env.server.source,
            Self::BackDestination => env.server.destination,
        }
    }
}

fn made(connection: Connection) -> Result<Fetch, Error> {
    Ok(Fetch::Connection(connection))
}

/// A row of a fetch without arguments.
macro_rules! plain {
    ($name:literal, $out:ident, $points:ident, $help:expr, $what:expr) => {
        row($name, &[], 0, Type::$out, EvalPoints::$points, $help, |_| made($what))
    };
}

/// Rows for the connection to `$peer`.
macro_rules! links {
    ($link:ident, $peer:literal, $points:ident, $agreed:ident, $stream:ident,
     [$error:literal, $name:literal, $sentence:literal,
      $glitches:literal, $streams:literal, $limit:literal,
      $id:literal, $aborted:literal, $reset:literal]) => {
        [
            plain!(
                $error,
                Int,
                $points,
                concat!("the number of what is wrong with the ", $peer, "'s connection, or 0"),
                C::$link(LinkFact::Error)
            ),
            plain!(
                $name,
                Str,
                $points,
                "the name of that, empty if nothing is",
                C::$link(LinkFact::ErrorName)
            ),
            plain!($sentence, Str, $points, "the same for people", C::$link(LinkFact::ErrorSentence)),
            plain!(
                $glitches,
                Int,
                $points,
                concat!("oddities of the ", $peer, " on its HTTP/2 connection"),
                C::$link(LinkFact::Glitches)
            ),
            plain!(
                $streams,
                Int,
                $points,
                concat!("streams that the ", $peer, "'s connection has now"),
                C::$link(LinkFact::Streams)
            ),
            plain!(
                $limit,
                Int,
                $agreed,
                concat!("streams that the ", $peer, "'s connection may have at a time"),
                C::$link(LinkFact::StreamsLimit)
            ),
            plain!(
                $id,
                Int,
                $stream,
                concat!(
                    "the stream's number on the ",
                    $peer,
                    "'s connection; of HTTP/1 the request's, from 0"
                ),
                C::$link(LinkFact::StreamId)
            ),
            plain!(
                $aborted,
                Bool,
                $stream,
                concat!("whether the ", $peer, " has reset the stream of HTTP/2"),
                C::$link(LinkFact::StreamAborted)
            ),
            plain!(
                $reset,
                Int,
                $stream,
                concat!("the code with which the ", $peer, " has reset the stream of HTTP/2"),
                C::$link(LinkFact::StreamReset)
            ),
        ]
    };
}

/// Maximum index of a capture.
const MAX_CAPTURE: i64 = 4095;

fn capture(args: &Args<'_, '_>) -> Result<usize, Error> {
    Ok(args.int_in(0, 0..=MAX_CAPTURE, 0)? as usize)
}

use Connection as C;

/// Numbers of the kernel.
pub(super) const TCP: [Row; 10] = [
    time!("bc_rtt", LINK, "round trip time to the server in ms, or in us", BackTcp, RoundTrip),
    time!("bc_rttvar", LINK, "mean deviation of that time in ms, or in us", BackTcp, Variance),
    plain!(
        "fc_fackets",
        Int,
        LINK,
        "segments to the client up to the last that was acknowledged out of order",
        C::FrontTcp(TcpFact::Forward)
    ),
    plain!("fc_lost", Int, LINK, "segments to the client that seem lost", C::FrontTcp(TcpFact::Lost)),
    plain!(
        "fc_reordering",
        Int,
        LINK,
        "segments to the client that may overtake each other",
        C::FrontTcp(TcpFact::Reordering)
    ),
    plain!(
        "fc_retrans",
        Int,
        LINK,
        "segments that were sent again to the client and are not acknowledged",
        C::FrontTcp(TcpFact::Retransmitted)
    ),
    time!("fc_rtt", LINK, "round trip time to the client in ms, or in us", FrontTcp, RoundTrip),
    time!("fc_rttvar", LINK, "mean deviation of that time in ms, or in us", FrontTcp, Variance),
    plain!(
        "fc_sacked",
        Int,
        LINK,
        "segments that the client has acknowledged out of order",
        C::FrontTcp(TcpFact::Selective)
    ),
    plain!(
        "fc_unacked",
        Int,
        LINK,
        "segments to the client that are not acknowledged",
        C::FrontTcp(TcpFact::Unacknowledged)
    ),
];

pub(super) const LINKS: [[Row; 9]; 2] = [
    links!(
        BackLink,
        "server",
        ANSWERED,
        ANSWERED,
        ANSWERED,
        [
            "bc_err",
            "bc_err_name",
            "bc_err_str",
            "bc_glitches",
            "bc_nb_streams",
            "bc_settings_streams_limit",
            "bs.id",
            "bs.aborted",
            "bs.rst_code"
        ]
    ),
    links!(
        FrontLink,
        "client",
        LINK,
        HANDSHAKEN,
        HANDSHAKEN,
        [
            "fc_err",
            "fc_err_name",
            "fc_err_str",
            "fc_glitches",
            "fc_nb_streams",
            "fc_settings_streams_limit",
            "fs.id",
            "fs.aborted",
            "fs.rst_code"
        ]
    ),
];

/// A row of a setting of the proxy or the stream.
macro_rules! setting {
    ($name:literal, $points:ident, $help:literal, $of:ident, $which:ident) => {
        plain!($name, Int, $points, $help, C::$of(StreamSetting::$which))
    };
}

pub(super) const SETTINGS: &[Row] = &[
    setting!(
        "be_connect_timeout",
        BACKEND,
        "'timeout connect' of the backend in ms",
        OfProxy,
        ConnectTimeout
    ),
    setting!("be_max_retries", BACKEND, "'retries' of the backend", OfProxy, MaxRetries),
    setting!("be_queue_timeout", BACKEND, "'timeout queue' of the backend in ms", OfProxy, QueueTimeout),
    setting!("be_server_timeout", BACKEND, "'timeout server' of the backend in ms", OfProxy, ServerTimeout),
    setting!("be_tarpit_timeout", BACKEND, "'timeout tarpit' of the backend in ms", OfProxy, TarpitTimeout),
    setting!("be_tunnel_timeout", BACKEND, "'timeout tunnel' of the backend in ms", OfProxy, TunnelTimeout),
    setting!("cur_client_timeout", CLIENT, "'timeout client' of the stream in ms", OfStream, ClientTimeout),
    setting!(
        "cur_connect_timeout",
        BACKEND,
        "'timeout connect' of the stream in ms",
        OfStream,
        ConnectTimeout
    ),
    setting!("cur_max_retries", BACKEND, "'retries' of the stream", OfStream, MaxRetries),
    setting!("cur_queue_timeout", BACKEND, "'timeout queue' of the stream in ms", OfStream, QueueTimeout),
    setting!("cur_server_timeout", BACKEND, "'timeout server' of the stream in ms", OfStream, ServerTimeout),
    setting!("cur_tarpit_timeout", CLIENT, "'timeout tarpit' of the stream in ms", OfStream, TarpitTimeout),
    setting!("cur_tunnel_timeout", BACKEND, "'timeout tunnel' of the stream in ms", OfStream, TunnelTimeout),
    setting!("fe_client_timeout", CLIENT, "'timeout client' of the frontend in ms", OfProxy, ClientTimeout),
];

pub(super) const ROWS: &[Row] = &[
    row(
        "accept_date",
        &[Str],
        0,
        Type::Int,
        EvalPoints::LINK,
        "when the connection was accepted, in seconds, or in 'ms' or 'us', since 1970",
        |args| Ok(Fetch::Connection(C::AcceptDate(Unit::of(args, 0)?))),
    ),
    plain!(
        "bc_dst",
        Addr,
        ANSWERED,
        "the server's address of the connection to it",
        C::Addr(End::BackDestination)
    ),
    plain!(
        "bc_dst_port",
        Int,
        ANSWERED,
        "the server's port of the connection to it",
        C::Port(End::BackDestination)
    ),
    plain!("bc_http_major", Int, ANSWERED, "1 for HTTP/1 to the server, 2 for HTTP/2", C::BackHttpMajor),
    plain!("bc_src", Addr, ANSWERED, "our address of the connection to the server", C::Addr(End::BackSource)),
    plain!(
        "bc_src_port",
        Int,
        ANSWERED,
        "our port of the connection to the server",
        C::Port(End::BackSource)
    ),
    plain!("be_id", Int, BACKEND, "the backend's number", C::BackendId),
    plain!("be_name", Str, BACKEND, "the backend's name", C::BackendName),
    row(
        "capture.req.hdr",
        &[Int],
        1,
        Type::Str,
        EvalPoints::STREAM,
        "a captured request header field by its number, from 0",
        |args| made(C::Capture(Direction::Request, capture(args)?)),
    ),
    plain!("capture.req.method", Str, STREAM, "the request's method as it was received", C::CapturedMethod),
    plain!("capture.req.uri", Str, STREAM, "the received target from its path on", C::CapturedUri),
    plain!("capture.req.ver", Str, STREAM, "HTTP/1.0 or, from that on, HTTP/1.1", C::CapturedVersion),
    row(
        "capture.res.hdr",
        &[Int],
        1,
        Type::Str,
        EvalPoints::ANSWERED,
        "a captured response header field by its number, from 0",
        |args| made(C::Capture(Direction::Response, capture(args)?)),
    ),
    plain!("capture.res.ver", Str, STREAM, "HTTP/1.0 or, from that on, HTTP/1.1", C::CapturedResponseVersion),
    plain!("dst", Addr, LINK, "the address that the client connected to", C::Addr(End::Destination)),
    plain!(
        "dst_conn",
        Int,
        CLIENT,
        "connections that the listener has now, this one included",
        C::ListenerConnections
    ),
    plain!(
        "dst_is_local",
        Bool,
        LINK,
        "whether 'dst' is an address of this machine",
        C::IsLocal(End::Destination)
    ),
    plain!("dst_port", Int, LINK, "the port that the client connected to", C::Port(End::Destination)),
    plain!("fc_dst", Addr, LINK, "the connection's own destination address", C::Addr(End::LinkDestination)),
    plain!(
        "fc_dst_is_local",
        Bool,
        LINK,
        "whether 'fc_dst' is an address of this machine",
        C::IsLocal(End::LinkDestination)
    ),
    plain!("fc_dst_port", Int, LINK, "the connection's own destination port", C::Port(End::LinkDestination)),
    plain!("fc_http_major", Int, LINK, "1 for HTTP/1 from the client, 2 for HTTP/2", C::FrontHttpMajor),
    plain!("fc_pp_authority", Str, LINK, "the authority in the PROXY protocol's header", C::ProxyAuthority),
    row(
        "fc_pp_tlv",
        &[Str],
        1,
        Type::Str,
        EvalPoints::HANDSHAKEN,
        "the value of a vector of the PROXY protocol's header, by its number or name",
        |args| made(C::ProxyTlv(tlv(args)?)),
    ),
    plain!("fc_pp_unique_id", Str, LINK, "the unique id in the PROXY protocol's header", C::ProxyUniqueId),
    plain!(
        "fc_rcvd_proxy",
        Bool,
        LINK,
        "whether a header of the PROXY protocol was received",
        C::ReceivedProxy
    ),
    plain!("fc_src", Addr, LINK, "the connection's own source address", C::Addr(End::LinkSource)),
    plain!(
        "fc_src_is_local",
        Bool,
        LINK,
        "whether 'fc_src' is an address of this machine",
        C::IsLocal(End::LinkSource)
    ),
    plain!("fc_src_port", Int, LINK, "the connection's own source port", C::Port(End::LinkSource)),
    plain!("fe_defbe", Str, CLIENT, "the frontend's default backend", C::FrontendDefault),
    plain!("fe_id", Int, CLIENT, "the frontend's number", C::FrontendId),
    plain!("fe_name", Str, CLIENT, "the frontend's name", C::FrontendName),
    plain!("http_first_req", Bool, STREAM, "whether it is the connection's first request", C::FirstRequest),
    plain!("last_rule_file", Str, RUNNING, "the file of the last rule that ended a list", C::LastRuleFile),
    plain!("last_rule_line", Int, RUNNING, "the line of the last rule that ended a list", C::LastRuleLine),
    plain!("prio_class", Int, RUNNING, "the stream's class in queues", C::PriorityClass),
    plain!("prio_offset", Int, RUNNING, "the stream's offset in queues in milliseconds", C::PriorityOffset),
    plain!("so_id", Int, CLIENT, "the listener's number", C::ListenerId),
    plain!("so_name", Str, CLIENT, "the listener's name", C::ListenerName),
    plain!("src", Addr, LINK, "the client's address", C::Addr(End::Source)),
    plain!(
        "src_is_local",
        Bool,
        LINK,
        "whether 'src' is an address of this machine",
        C::IsLocal(End::Source)
    ),
    plain!("src_port", Int, LINK, "the client's port", C::Port(End::Source)),
    plain!("srv_id", Int, SERVER, "the server's number", C::ServerId),
    plain!("srv_name", Str, SERVER, "the server's name", C::ServerName),
    plain!("unique-id", Str, EVERYWHERE, "the identifier that 'unique-id-format' makes", C::UniqueId),
];

/// Names of TLVs in the specification of the PROXY protocol.
const TLVS: [(&str, u8); 12] = [
    ("ALPN", 0x01),
    ("AUTHORITY", 0x02),
    ("CRC32C", 0x03),
    ("NETNS", 0x30),
    ("NOOP", 0x04),
    ("SSL", SSL),
    ("SSL_CIPHER", 0x23),
    ("SSL_CN", 0x22),
    ("SSL_KEY_ALG", 0x25),
    ("SSL_SIG_ALG", 0x24),
    ("SSL_VERSION", 0x21),
    ("UNIQUE_ID", 0x05),
];

const SSL: u8 = 0x20;

/// Size of the SSL TLV's value before its sub-TLVs, in bytes.
const SSL_HEAD: usize = 5;

/// Parses a type of TLV: 0 to 255, hexadecimal digits after `0x`, or a name.
fn tlv(args: &Args<'_, '_>) -> Result<u8, Error> {
    let text = args.boxed(0);
    let named =
        TLVS.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(&text)).map(|(_, kind)| *kind);
    let number = || {
        let text = std::str::from_utf8(&text).ok()?;
        match text.strip_prefix("0x") {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u8::from_str_radix(digits, 16).ok()
            }
            Some(_) => None,
            None => text.parse().ok(),
        }
    };
    named
        .or_else(number)
        .ok_or_else(|| args.expected(0, "a number from 0 to 255 or the name of a vector, such as AUTHORITY,"))
}

/// The first TLV of this type; `within` also searches in the SSL TLV.
fn find_tlv(mut rest: &[u8], wanted: u8, within: bool) -> Option<&[u8]> {
    while let [kind, high, low, behind @ ..] = rest {
        let (value, next) = behind.split_at_checked(u16::from_be_bytes([*high, *low]).into())?;
        if *kind == wanted {
            return Some(value);
        }
        if within
            && *kind == SSL
            && let Some(found) = value.get(SSL_HEAD..).and_then(|inside| find_tlv(inside, wanted, false))
        {
            return Some(found);
        }
        rest = next;
    }
    None
}

/// The text, if it exists.
fn some(text: Option<&[u8]>) -> FetchResult<'_> {
    text.map_or(Err(Absent::Never), |text| found(Value::Str(text)))
}

fn int(n: Option<i64>) -> FetchResult<'static> {
    n.map_or(Err(Absent::Never), |n| found(Value::Int(n)))
}

fn nonempty(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}

impl Connection {
    /// True for data that must be requested in advance: that of the connection to the server, and stream IDs.
    pub(super) fn reads_link(self) -> bool {
        matches!(
            self,
            Self::BackLink(_) | Self::FrontLink(LinkFact::StreamId) | Self::FrontTcp(_) | Self::BackTcp(_)
        ) || matches!(self, Self::Addr(end) | Self::Port(end) | Self::IsLocal(end) if end.is_back())
    }

    pub(super) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let (client, server, stream) = (env.client, env.server, env.stream);
        let bool = |b| found(Value::Bool(b));
        match *self {
            Self::Addr(end) => {
                end.of(env).map_or(Err(Absent::Never), |addr| found(plain_ip(addr.ip()).into()))
            }
            Self::Port(end) => int(end.of(env).map(|addr| i64::from(addr.port()))),
            Self::IsLocal(end) => end
                .of(env)
                .map_or(Err(Absent::Never), |addr| found(Value::Bool(env.host.is_local(addr.ip())))),
            Self::AcceptDate(unit) => int(Some(unit.of_date(client.accepted))),
            Self::FrontLink(fact) => env.links.map_or(Err(Absent::Never), |links| fact.of(links.front())),
            Self::BackLink(fact) => {
                env.links.and_then(crate::env::Links::back).map_or(Err(Absent::Never), |info| fact.of(info))
            }
            Self::FrontTcp(fact) => fact.of(env.links.and_then(crate::env::Links::front_tcp)),
            Self::BackTcp(fact) => fact.of(env.links.and_then(crate::env::Links::back_tcp)),
            Self::BackHttpMajor => int((server.http_major > 0).then_some(server.http_major)),
            Self::FrontHttpMajor => int((client.http_major > 0).then_some(client.http_major)),
            // The frontend acts as the backend until one is selected.
            Self::BackendId => int(Some(server.backend.unwrap_or(client.frontend).id)),
            Self::BackendName => some(Some(server.backend.unwrap_or(client.frontend).name)),
            Self::OfProxy(which) => int(env.settings.and_then(|settings| settings.of_proxy(which))),
            Self::OfStream(which) => int(env.settings.and_then(|settings| settings.of_stream(which))),
            Self::FrontendId => int(Some(client.frontend.id)),
            Self::FrontendName => some(Some(client.frontend.name)),
            Self::FrontendDefault => some(nonempty(client.frontend.default_backend)),
            Self::ReceivedProxy => bool(client.proxied),
            Self::ProxyAuthority => some(client.proxy_authority),
            Self::ProxyUniqueId => some(client.proxy_unique_id),
            Self::ProxyTlv(kind) => some(find_tlv(client.proxy_tlvs, kind, true)),
            Self::FirstRequest => bool(client.first_request),
            Self::LastRuleFile => some(stream.last_rule.map(|(file, _)| file)),
            Self::LastRuleLine => int(stream.last_rule.map(|(_, line)| line)),
            Self::ListenerConnections => int(client
                .listener
                .and_then(|(frontend, listener)| env.host.number(Number::ListenerConn(frontend, listener)))),
            Self::ListenerId => int(Some(client.listener_id)),
            Self::ListenerName => some(nonempty(client.listener_name)),
            Self::PriorityClass => int(Some(stream.priority_class)),
            Self::PriorityOffset => int(Some(stream.priority_offset)),
            Self::ServerId => int(server.server.map(|(id, _)| id)),
            Self::ServerName => some(server.server.map(|(_, name)| name)),
            Self::UniqueId => some(stream.unique_id),
            Self::Capture(direction, slot) => some(stream.capture(direction, slot, scratch)),
            Self::CapturedMethod => some(stream.request_line.map(|line| line.method)),
            Self::CapturedUri => some(stream.request_line.and_then(|line| from_path(line.kept_target()))),
            Self::CapturedVersion => version(stream.request_line.map(|line| line.version)),
            Self::CapturedResponseVersion => version(stream.response_line.map(|line| line.0)),
        }
    }
}

/// The version of a message. `HTTP/1.1` also stands for later versions, as in HAProxy, so that old conditions
/// keep matching.
fn version(number: Option<&[u8]>) -> FetchResult<'static> {
    some(number.map(|number| if number < b"1.1" { &b"HTTP/1.0"[..] } else { b"HTTP/1.1" }))
}

/// The path and query of a target. Clients of HTTP/2 and of proxies also send scheme and authority. `None`
/// without a path.
fn from_path(target: &[u8]) -> Option<&[u8]> {
    let behind = match memchr::memmem::find(target, b"://") {
        Some(at) if !target.starts_with(b"/") => {
            let authority = &target[at + 3..];
            &authority[memchr::memchr(b'/', authority)?..]
        }
        _ => target,
    };
    behind.starts_with(b"/").then_some(behind)
}

/// Converts an IPv4-mapped address, which a dual-stack socket shows, to IPv4.
fn plain_ip(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
