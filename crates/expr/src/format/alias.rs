//! Aliases: short names for values in log lines.

use super::encode::{Encoding, Item};
use super::{Flags, Use, put_code, put_int, put_text};
use crate::clock::Civil;
use crate::env::{Env, Number, StreamInfo, Timestamp};
use crate::eval_points::Direction;
use crate::scratch::{Scratch, Writer};
use std::net::{IpAddr, SocketAddr};

/// Data that only log lines have. Times are in milliseconds; -1 if the phase was not reached.
#[derive(Clone, Copy, Debug)]
pub struct LogInfo<'a> {
    /// Time of the first byte of the request.
    pub request_date: Timestamp,
    /// `%Th`: time of handshakes.
    pub handshake: i64,
    /// `%Ti`: idle time before the request.
    pub idle: i64,
    /// `%TR`: time to receive the request, from its first byte.
    pub request: i64,
    /// `%Tw`: time in queues.
    pub queue: i64,
    /// `%Tc`: time to connect to the server.
    pub connect: i64,
    /// `%Tr`: time until the head of the response.
    pub response: i64,
    /// `%Td`: time of the data transfer.
    pub data: i64,
    /// `%Ta`: active time, from the first byte of the request to the end.
    pub active: i64,
    /// `%Tt`: total time, from the connection to the end.
    pub total: i64,
    /// `%Tu`: time that the user perceives.
    pub user: i64,
    /// Bytes sent to the client.
    pub bytes_read: u64,
    /// Bytes sent to the server.
    pub bytes_uploaded: u64,
    /// True if the line is written before the end of the stream. Totals then have a plus sign.
    pub partial: bool,
    /// Status code of the response; -1 without a response.
    pub status: i64,
    /// Termination state: cause, phase, and two characters for cookies.
    pub termination: [u8; 4],
    /// `capture cookie` in the request.
    pub request_cookie: Option<&'a [u8]>,
    /// `capture cookie` in the response.
    pub response_cookie: Option<&'a [u8]>,
    /// Connections of the frontend.
    pub frontend_connections: i64,
    /// Connections of the backend.
    pub backend_connections: i64,
    /// Connections of the server.
    pub server_connections: i64,
    /// Number of retries.
    pub retries: i64,
    /// True if the last retry went to another server.
    pub redispatched: bool,
    /// Requests that left the server's queue until it was this one's turn, itself included; 0 if it was not
    /// queued.
    pub server_queue: i64,
    /// The same of the backend's queue.
    pub backend_queue: i64,
    /// Number of requests or sessions of the process.
    pub request_count: u64,
    /// Process number.
    pub process_id: u32,
    /// `%OG`: the event that caused the line.
    pub origin: &'static str,
    /// Replacement for the server name if there is none: `<NOSRV>`, `<STATS>`...
    pub no_server: &'a [u8],
}

impl LogInfo<'_> {
    /// True if the stream counts as an error for `option dontlog-normal`: it did not end normally, had
    /// retries, or has a status of 500 or above. A response by a rule is normal.
    pub fn is_failure(&self) -> bool {
        !matches!(self.termination[0], b'-' | b'L') || self.retries > 0 || self.status >= 500
    }

    /// True if a server was reached.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.connect >= 0
    }

    /// The number of the request in 32 bits, as `%rt` and `txn.id32` have it: what reads logs may expect no
    /// more.
    pub(crate) fn request_number(&self) -> u32 {
        self.request_count as u32
    }

    /// True if a service of the program responds, such as the page of statistics.
    pub(crate) fn is_of_service(&self) -> bool {
        self.no_server.starts_with(b"<") && self.no_server != b"<NOSRV>"
    }
}

impl LogInfo<'static> {
    const NONE: Self = Self {
        request_date: Timestamp { seconds: 0, micros: 0 },
        handshake: 0,
        idle: 0,
        request: -1,
        queue: -1,
        connect: -1,
        response: -1,
        data: -1,
        active: 0,
        total: 0,
        user: 0,
        bytes_read: 0,
        bytes_uploaded: 0,
        partial: false,
        status: -1,
        termination: *b"----",
        request_cookie: None,
        response_cookie: None,
        frontend_connections: 0,
        backend_connections: 0,
        server_connections: 0,
        retries: 0,
        redispatched: false,
        server_queue: 0,
        backend_queue: 0,
        request_count: 0,
        process_id: 0,
        origin: "unspec",
        no_server: b"<NOSRV>",
    };
}

impl Default for LogInfo<'_> {
    fn default() -> Self {
        LogInfo::NONE
    }
}

/// The value of an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alias {
    BytesRead,
    TlsCipher,
    TlsVersion,
    RequestCookie,
    ResponseCookie,
    Hostname,
    Method,
    Path,
    PathOnly,
    QueryString,
    Uri,
    Version,
    UniqueId,
    Status,
    Gmt,
    Active,
    Connect,
    Data,
    LocalDate,
    Handshake,
    Idle,
    AllRequest,
    Request,
    Response,
    Unix,
    Total,
    User,
    Queue,
    BytesUploaded,
    ProcessConnections,
    Backend,
    BackendConnections,
    BackendIp,
    BackendPort,
    BackendQueue,
    ClientIp,
    ClientPort,
    Frontend,
    FrontendConnections,
    FrontendIp,
    FrontendPort,
    FrontendTransport,
    RequestFields,
    RequestFieldList,
    ResponseFields,
    ResponseFieldList,
    LogCount,
    Origin,
    Millis,
    ProcessId,
    RequestLine,
    Retries,
    RequestCount,
    Server,
    ServerConnections,
    ServerIp,
    ServerPort,
    ServerQueue,
    Date,
    RequestDate,
    RequestGmt,
    RequestLocal,
    Termination,
    TerminationCookies,
}

use Alias as A;

/// Aliases by name.
const ALIASES: &[(&str, Alias)] = &[
    ("B", A::BytesRead),
    ("CC", A::RequestCookie),
    ("CS", A::ResponseCookie),
    ("H", A::Hostname),
    ("HM", A::Method),
    ("HP", A::Path),
    ("HPO", A::PathOnly),
    ("HQ", A::QueryString),
    ("HU", A::Uri),
    ("HV", A::Version),
    ("ID", A::UniqueId),
    ("OG", A::Origin),
    ("ST", A::Status),
    ("T", A::Gmt),
    ("Ta", A::Active),
    ("Tc", A::Connect),
    ("Td", A::Data),
    ("Th", A::Handshake),
    ("Ti", A::Idle),
    ("Tl", A::LocalDate),
    ("Tq", A::AllRequest),
    ("TR", A::Request),
    ("Tr", A::Response),
    ("Ts", A::Unix),
    ("Tt", A::Total),
    ("Tu", A::User),
    ("Tw", A::Queue),
    ("U", A::BytesUploaded),
    ("ac", A::ProcessConnections),
    ("b", A::Backend),
    ("bc", A::BackendConnections),
    ("bi", A::BackendIp),
    ("bp", A::BackendPort),
    ("bq", A::BackendQueue),
    ("ci", A::ClientIp),
    ("cp", A::ClientPort),
    ("f", A::Frontend),
    ("fc", A::FrontendConnections),
    ("fi", A::FrontendIp),
    ("fp", A::FrontendPort),
    ("ft", A::FrontendTransport),
    ("hr", A::RequestFields),
    ("hrl", A::RequestFieldList),
    ("hs", A::ResponseFields),
    ("hsl", A::ResponseFieldList),
    ("lc", A::LogCount),
    ("ms", A::Millis),
    ("pid", A::ProcessId),
    ("r", A::RequestLine),
    ("rc", A::Retries),
    ("rt", A::RequestCount),
    ("s", A::Server),
    ("sc", A::ServerConnections),
    ("si", A::ServerIp),
    ("sp", A::ServerPort),
    ("sq", A::ServerQueue),
    ("sslc", A::TlsCipher),
    ("sslv", A::TlsVersion),
    ("t", A::Date),
    ("tr", A::RequestDate),
    ("trg", A::RequestGmt),
    ("trl", A::RequestLocal),
    ("ts", A::Termination),
    ("tsc", A::TerminationCookies),
];

impl Alias {
    pub(super) fn find(name: &[u8]) -> Option<Self> {
        ALIASES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, alias)| *alias)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        ALIASES.iter().map(|(name, _)| *name)
    }

    /// True if an empty value writes nothing, not even a dash. The spaces around it are then merged.
    pub(super) fn may_vanish(self) -> bool {
        let fields =
            matches!(self, A::RequestFields | A::ResponseFields | A::RequestFieldList | A::ResponseFieldList);
        fields || matches!(self, A::QueryString)
    }

    /// True for a list, for encodings.
    pub(super) fn is_list(self) -> bool {
        matches!(self, A::RequestFieldList | A::ResponseFieldList)
    }

    /// True for a part of the request line. An empty one is an empty text in encodings.
    pub(super) fn may_be_empty(self) -> bool {
        matches!(
            self,
            A::Method | A::Path | A::PathOnly | A::QueryString | A::Uri | A::Version | A::RequestLine
        )
    }

    /// Writes the values of a list in an encoding.
    pub(super) fn write_list(
        self,
        env: &Env<'_>,
        encoding: Encoding,
        scratch: &mut Scratch<'_>,
        out: &mut Writer<'_>,
    ) -> Option<()> {
        let direction = match self {
            A::RequestFieldList => Direction::Request,
            _ => Direction::Response,
        };
        let slots = env.stream.slots(direction);
        if slots == 0 || env.client.http_major > 0 && env.stream.request_line.is_none() {
            return encoding.put(Item::Null, out);
        }
        encoding.open_list(out)?;
        for slot in 0..slots {
            if slot > 0 {
                encoding.next_of_list(out)?;
            }
            let mut scratch = scratch.reborrow();
            let mut text = Writer::new(scratch.take_half());
            with_capture(env.stream, direction, slot, &mut |capture| match capture {
                Some(value) => put_field(value, Flags::default(), &mut text),
                None => text.push(b'-'),
            })?;
            encoding.put(Item::Text(text.written()), out)?;
        }
        encoding.close_list(out)
    }

    /// True for a number, for encodings.
    pub(super) fn is_number(self) -> bool {
        match self {
            A::BytesRead
            | A::Status
            | A::Active
            | A::Connect
            | A::Data
            | A::Handshake
            | A::Idle
            | A::AllRequest
            | A::Request
            | A::Response
            | A::Unix
            | A::Total
            | A::User
            | A::Queue
            | A::BytesUploaded
            | A::ProcessConnections
            | A::BackendConnections
            | A::BackendPort
            | A::BackendQueue
            | A::ClientPort
            | A::FrontendConnections
            | A::FrontendPort
            | A::LogCount
            | A::Millis
            | A::ProcessId
            | A::Retries
            | A::RequestCount
            | A::ServerConnections
            | A::ServerPort
            | A::ServerQueue => true,
            A::TlsCipher
            | A::TlsVersion
            | A::RequestCookie
            | A::ResponseCookie
            | A::Hostname
            | A::Method
            | A::Path
            | A::PathOnly
            | A::QueryString
            | A::Uri
            | A::Version
            | A::UniqueId
            | A::Gmt
            | A::LocalDate
            | A::Backend
            | A::BackendIp
            | A::ClientIp
            | A::Frontend
            | A::FrontendIp
            | A::FrontendTransport
            | A::RequestFields
            | A::RequestFieldList
            | A::ResponseFields
            | A::ResponseFieldList
            | A::Origin
            | A::RequestLine
            | A::Server
            | A::ServerIp
            | A::Date
            | A::RequestDate
            | A::RequestGmt
            | A::RequestLocal
            | A::Termination
            | A::TerminationCookies => false,
        }
    }

    /// True if it uses the connection to the server.
    pub(super) fn reads_link(self) -> bool {
        matches!(self, A::BackendIp | A::BackendPort | A::ServerIp | A::ServerPort)
    }

    /// True if it uses data about how the stream proceeds.
    pub(super) fn reads_stream_record(self) -> bool {
        let ends =
            matches!(self, A::Termination | A::TerminationCookies | A::RequestCookie | A::ResponseCookie);
        let counts =
            matches!(self, A::BytesRead | A::BytesUploaded | A::Retries | A::ServerQueue | A::BackendQueue);
        let phases = matches!(
            self,
            A::Connect | A::Handshake | A::Idle | A::AllRequest | A::Request | A::Response | A::Queue
        );
        ends || counts || phases || matches!(self, A::Active | A::Data | A::Total | A::User)
    }

    /// Writes the value. Data of log lines is missing in other formats.
    pub(super) fn write(
        self,
        env: &Env<'_>,
        flags: Flags,
        usage: Use,
        scratch: &mut Scratch<'_>,
        out: &mut Writer<'_>,
    ) -> Option<()> {
        let log = env.log.unwrap_or(&LogInfo::NONE);
        let text = |text: Option<&[u8]>, out: &mut Writer<'_>| put_text(text, flags, usage, out);
        let int = |n: i64, out: &mut Writer<'_>| out.put_number(n, 1);
        let total = |n: i64, out: &mut Writer<'_>| {
            if log.partial && !flags.bare {
                out.push(b'+')?;
            }
            out.put_number(n, 1)
        };
        let line = env.stream.request_line;
        match self {
            A::BytesRead => total(i64::try_from(log.bytes_read).unwrap_or(i64::MAX), out),
            A::BytesUploaded => total(i64::try_from(log.bytes_uploaded).unwrap_or(i64::MAX), out),
            A::RequestCookie => text(log.request_cookie, out),
            A::ResponseCookie => text(log.response_cookie, out),
            A::Hostname => text(Some(env.host.hostname()), out),
            A::Method => match line {
                Some(line) => put_encoded(&line.kept()[..1], flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::Path => match line {
                Some(line) => put_encoded(&[split_query(line.kept_target()).0], flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::PathOnly => match line {
                Some(line) => put_encoded(&[path_only(line.kept_target())], flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::QueryString => match line {
                Some(line) => put_encoded(&[split_query(line.kept_target()).1], flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::Uri => match line {
                Some(line) => put_encoded(&[line.kept_target()], flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::Version => match line {
                Some(line) => match line.kept() {
                    [.., [b' ', protocol @ ..], version] if !protocol.is_empty() => {
                        put_encoded(&[protocol, version], flags, out)
                    }
                    _ => text(Some(b"HTTP/0.9"), out), // the kept part ends before it
                },
                None => text(Some(BAD_REQUEST), out),
            },
            A::RequestLine => match line {
                Some(line) => put_encoded(&line.kept(), flags, out),
                None => text(Some(BAD_REQUEST), out),
            },
            A::UniqueId => text(env.stream.unique_id, out),
            A::Status => int(log.status, out),
            A::Gmt => date(env.client.accepted, 0, b"%d/%b/%Y:%H:%M:%S +0000", out),
            A::LocalDate => local(env, env.client.accepted, b"%d/%b/%Y:%H:%M:%S %z", out),
            A::RequestGmt => date(log.request_date, 0, b"%d/%b/%Y:%H:%M:%S +0000", out),
            A::RequestLocal => local(env, log.request_date, b"%d/%b/%Y:%H:%M:%S %z", out),
            A::Date => precise(env, env.client.accepted, scratch, out),
            A::RequestDate => precise(env, log.request_date, scratch, out),
            A::Unix => put_int(env.client.accepted.seconds, flags, out),
            A::Millis => out.put_number(i64::from(env.client.accepted.micros / 1000), 3),
            A::Active => total(log.active, out),
            A::Total => total(log.total, out),
            A::User => total(log.user, out),
            A::Connect => int(log.connect, out),
            A::Data => int(log.data, out),
            A::Handshake => int(log.handshake, out),
            A::Idle => int(log.idle, out),
            A::AllRequest | A::Request if log.request < 0 || env.client.http_major == 0 => int(-1, out),
            A::AllRequest => int(log.handshake + log.idle + log.request, out),
            A::Request => int(log.request, out),
            A::Response => int(log.response, out),
            A::Queue => int(log.queue, out),
            A::ProcessConnections => int(env.host.number(Number::ProcessConn).unwrap_or(0), out),
            A::FrontendConnections => int(log.frontend_connections, out),
            A::BackendConnections => int(log.backend_connections, out),
            A::ServerConnections => int(log.server_connections, out),
            A::BackendQueue => int(log.backend_queue, out),
            A::ServerQueue => int(log.server_queue, out),
            A::Retries => {
                if log.redispatched && !flags.bare {
                    out.push(b'+')?;
                }
                out.put_number(log.retries, 1)
            }
            A::LogCount => {
                let lines =
                    env.client.listener.and_then(|(frontend, _)| env.host.number(Number::LogLines(frontend)));
                int(lines.unwrap_or(0), out)
            }
            A::RequestCount => put_int(i64::from(log.request_number()), flags, out),
            A::Origin => text(Some(log.origin.as_bytes()), out),
            A::ProcessId => put_int(i64::from(log.process_id), flags, out),
            A::Frontend => text(Some(env.client.frontend.name), out),
            A::FrontendTransport => {
                let name = env.client.frontend.name;
                if env.client.tls.is_none() {
                    return text(Some(name), out);
                }
                put_encoded(&[name, b"~"], flags, out)
            }
            A::TlsCipher => text(env.client.tls.map(|tls| tls.cipher.as_bytes()), out),
            A::TlsVersion => text(env.client.tls.map(|tls| tls.version.as_bytes()), out),
            A::Backend => {
                text(Some(env.server.backend.map_or(env.client.frontend.name, |proxy| proxy.name)), out)
            }
            A::Server => text(Some(env.server.server.map_or(log.no_server, |(_, name)| name)), out),
            A::ClientIp => put_ip(env.client.source, flags, usage, out),
            A::ClientPort => put_port(env.client.source, flags, usage, out),
            A::FrontendIp => put_ip(env.client.destination, flags, usage, out),
            A::FrontendPort => put_port(env.client.destination, flags, usage, out),
            A::BackendIp => put_ip(env.server.source, flags, usage, out),
            A::BackendPort => put_port(env.server.source, flags, usage, out),
            A::ServerIp => put_ip(env.server.destination, flags, usage, out),
            A::ServerPort => put_port(env.server.destination, flags, usage, out),
            // An invalid request has no captures.
            A::RequestFields | A::ResponseFields | A::RequestFieldList | A::ResponseFieldList
                if env.client.http_major > 0 && env.stream.request_line.is_none() =>
            {
                Some(())
            }
            A::RequestFields => put_captures(env.stream, Direction::Request, flags, out),
            A::ResponseFields => put_captures(env.stream, Direction::Response, flags, out),
            A::RequestFieldList => put_capture_list(env.stream, Direction::Request, flags, out),
            A::ResponseFieldList => put_capture_list(env.stream, Direction::Response, flags, out),
            A::Termination => out.put(&log.termination[..2]),
            A::TerminationCookies => out.put(&log.termination),
        }
    }
}

/// Stands for the line of an invalid request, and of none: a connection may stay in TCP mode.
const BAD_REQUEST: &[u8] = b"<BADREQ>";

fn date(moment: Timestamp, offset: i64, format: &[u8], out: &mut Writer<'_>) -> Option<()> {
    Civil::new(moment.seconds, offset).format(format, out)
}

fn local(env: &Env<'_>, moment: Timestamp, format: &[u8], out: &mut Writer<'_>) -> Option<()> {
    date(moment, env.zone.offset(moment.seconds), format, out)
}

fn precise(env: &Env<'_>, moment: Timestamp, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) -> Option<()> {
    scratch.second().put(moment.seconds, env.zone, out)?;
    out.push(b'.')?;
    out.put_number(i64::from(moment.micros / 1000), 3)
}

fn put_ip(addr: Option<SocketAddr>, flags: Flags, usage: Use, out: &mut Writer<'_>) -> Option<()> {
    match addr.map(|addr| addr.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) if flags.hex => out.print(format_args!("{:08X}", ip.to_bits())),
        Some(IpAddr::V6(ip)) if flags.hex => out.print(format_args!("{:032X}", ip.to_bits())),
        Some(ip) if flags.quote => out.print(format_args!("\"{ip}\"")),
        Some(IpAddr::V4(ip)) => {
            let [first, others @ ..] = ip.octets();
            out.put_number(first.into(), 1)?;
            others.into_iter().try_for_each(|n| {
                out.push(b'.')?;
                out.put_number(n.into(), 1)
            })
        }
        Some(ip) => out.print(format_args!("{ip}")),
        None => put_text(None, flags, usage, out),
    }
}

fn put_port(addr: Option<SocketAddr>, flags: Flags, usage: Use, out: &mut Writer<'_>) -> Option<()> {
    match addr {
        Some(addr) => put_int(i64::from(addr.port()), flags, out),
        None => put_text(None, flags, usage, out),
    }
}

/// Splits a target before its question mark.
fn split_query(target: &[u8]) -> (&[u8], &[u8]) {
    target.split_at(memchr::memchr(b'?', target).unwrap_or(target.len()))
}

/// The path without scheme, host and query.
fn path_only(target: &[u8]) -> &[u8] {
    let path = split_query(target).0;
    match memchr::memmem::find(path, b"://") {
        Some(at) if !path.starts_with(b"/") => {
            let host = &path[at + 3..];
            memchr::memchr(b'/', host).map_or(b"/", |slash| &host[slash..])
        }
        _ => path,
    }
}

/// Writes text from a peer. Bytes other than printable ASCII, and the delimiters of log lines, become `#XX`.
fn put_encoded(parts: &[&[u8]], flags: Flags, out: &mut Writer<'_>) -> Option<()> {
    if flags.bare {
        return parts.iter().try_for_each(|part| out.put(part));
    }
    if flags.quote {
        out.push(b'"')?;
    }
    let is_marked = |byte| flags.escape && matches!(byte, b'\\' | b']');
    for part in parts {
        out.put_mapped(
            part,
            |byte| !matches!(byte, b'"' | b'#' | 0..32 | 127..) && !is_marked(byte),
            |byte, out| if is_marked(byte) { out.put(&[b'\\', byte]) } else { put_code(b'#', byte, out) },
        )?;
    }
    if flags.quote {
        out.push(b'"')?;
    }
    Some(())
}

/// Writes a capture. The delimiters of capture lists are encoded.
fn put_field(value: &[u8], flags: Flags, out: &mut Writer<'_>) -> Option<()> {
    let is_marked = |byte| flags.escape && matches!(byte, b'\\' | b']');
    out.put_mapped(
        value,
        |byte| !matches!(byte, b'"' | b'#' | b'{' | b'|' | b'}' | 0..32 | 127..) && !is_marked(byte),
        |byte, out| if is_marked(byte) { out.put(&[b'\\', byte]) } else { put_code(b'#', byte, out) },
    )
}

/// Calls `work` with the capture in a slot.
fn with_capture(
    stream: &StreamInfo<'_>,
    direction: Direction,
    slot: usize,
    work: &mut dyn FnMut(Option<&[u8]>) -> Option<()>,
) -> Option<()> {
    let mut done = None;
    stream.captures?.read(direction, slot, &mut |capture| done = work(capture));
    done
}

/// Writes `{one|two}`, or nothing if no captures are configured.
fn put_captures(
    stream: &StreamInfo<'_>,
    direction: Direction,
    flags: Flags,
    out: &mut Writer<'_>,
) -> Option<()> {
    let slots = stream.slots(direction);
    if slots == 0 {
        return Some(());
    }
    let (open, close): (&[u8], &[u8]) = if flags.quote { (b"\"{", b"}\"") } else { (b"{", b"}") };
    for slot in 0..slots {
        out.put(if slot == 0 { open } else { b"|" })?;
        with_capture(stream, direction, slot, &mut |capture| {
            put_field(capture.unwrap_or_default(), flags, out)
        })?;
    }
    out.put(close)
}

/// Writes captures separated by spaces, with `-` for missing ones.
fn put_capture_list(
    stream: &StreamInfo<'_>,
    direction: Direction,
    flags: Flags,
    out: &mut Writer<'_>,
) -> Option<()> {
    for slot in 0..stream.slots(direction) {
        if slot > 0 {
            out.push(b' ')?;
        }
        if flags.quote {
            out.push(b'"')?;
        }
        with_capture(stream, direction, slot, &mut |capture| match capture {
            Some(value) => put_field(value, flags, out),
            None if flags.quote => Some(()),
            None => out.push(b'-'),
        })?;
        if flags.quote {
            out.push(b'"')?;
        }
    }
    Some(())
}
