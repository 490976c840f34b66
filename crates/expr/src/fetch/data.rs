//! Samples from bytes: bodies, and the first bytes of a TCP client.

use super::{Fetch, Row, distcc, rdp, row, tls_hello};
use crate::args::{ArgKind::*, Args};
use crate::env::{Data, Env};
use crate::error::Error;
use crate::eval_points::{Direction, EvalPoints};
use crate::sample::{Absent, FetchResult, Sample, Type, Value, found};
use crate::scratch::Scratch;
use manylane_buf::Chain;
use manylane_http::Head;

type Side = Option<Direction>;

const REQ: Side = Some(Direction::Request);
const RES: Side = Some(Direction::Response);

#[derive(Debug)]
pub(crate) enum DataFetch {
    Body(Direction),
    BodyLen(Direction),
    BodySize(Direction),
    Len(Side),
    Payload {
        side: Side,
        offset: usize,
        len: usize,
    },
    PayloadLv {
        side: Side,
        offset: usize,
        width: usize,
        skip: Skip,
    },
    WaitEnd,
    IsHttp,
    Hello(Direction, tls_hello::Part),
    Distcc(distcc::Part),
    /// The cookie with this name; any cookie if it is empty.
    RdpCookie(Box<[u8]>),
    RdpCookieCount(Box<[u8]>),
}

/// Start of the data of [`DataFetch::PayloadLv`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skip {
    /// Relative to the end of the length field.
    Relative(i64),
    /// At this offset in the buffer.
    Absolute(usize),
}

fn made(data: DataFetch) -> Result<Fetch, Error> {
    Ok(Fetch::Data(data))
}

/// Maximum of an offset or a length, in bytes. No buffer is larger.
const MAX_PAYLOAD: i64 = 1 << 30;

fn rdp_cookie(args: &Args<'_, '_>, which: fn(Box<[u8]>) -> DataFetch) -> Result<Fetch, Error> {
    made(which(args.given(0).unwrap_or_default().into()))
}

fn payload(args: &Args<'_, '_>, side: Side) -> Result<Fetch, Error> {
    let offset = args.int_in(0, 0..=MAX_PAYLOAD, 0)? as usize;
    let len = args.int_in(1, 0..=MAX_PAYLOAD, 0)? as usize;
    made(DataFetch::Payload { side, offset, len })
}

fn payload_lv(args: &Args<'_, '_>, side: Side) -> Result<Fetch, Error> {
    let offset = args.int_in(0, 0..=MAX_PAYLOAD, 0)? as usize;
    let width = args.int_in(1, 1..=8, 1)? as usize;
    let skip = match args.given(2) {
        None => Skip::Relative(0),
        Some([b'+' | b'-', ..]) => Skip::Relative(args.int_in(2, -MAX_PAYLOAD..=MAX_PAYLOAD, 0)?),
        Some(_) => Skip::Absolute(args.int_in(2, 0..=MAX_PAYLOAD, 0)? as usize),
    };
    if let Skip::Relative(n) = skip
        && offset as i64 + width as i64 + n < 0
    {
        let least = -(offset as i64) - width as i64;
        return Err(args.expected(2, &format!("a relative offset of {least} or more")));
    }
    made(DataFetch::PayloadLv { side, offset, width, skip })
}

fn distcc(args: &Args<'_, '_>, body: bool) -> Result<Fetch, Error> {
    let given = args.given(0).unwrap_or_default();
    let Ok(token) = given.try_into() else {
        return Err(args.expected(0, "a token of four characters, such as ARGV"));
    };
    let occurrence = args.int_in(1, i64::from(i32::MIN)..=i64::from(i32::MAX), 0)?;
    made(DataFetch::Distcc(distcc::Part { token, occurrence, body }))
}

macro_rules! rows {
    ($($name:literal, $args:expr, $required:literal, $out:ident, $points:ident, $help:literal,
        $make:expr;)*) => {
        &[$(row($name, $args, $required, Type::$out, EvalPoints::$points, $help, $make)),*]
    };
}

use DataFetch as D;

pub(super) const ROWS: &[Row] = rows! {
    "distcc_body", &[Str, Int], 1, Bin, MESSAGE, "what follows an occurrence of that token, or the first, in \
        a message of distcc",
        |a| distcc(a, true);
    "distcc_param", &[Str, Int], 1, Int, MESSAGE, "the number of an occurrence of that token, or of the \
        first, in a message of distcc",
        |a| distcc(a, false);
    "payload", &[Int, Int], 2, Bin, MESSAGE, "bytes from an offset on, of that length or all \
        (0)", |a| payload(a, None);
    "payload_lv", &[Int, Int, Str], 2, Bin, MESSAGE, "bytes whose length stands before them",
        |a| payload_lv(a, None);
    "rdp_cookie", &[Str], 0, Str, REQUEST, "the cookie of that name, or of any, that an RDP connection \
        begins with",
        |a| rdp_cookie(a, D::RdpCookie);
    "rdp_cookie_cnt", &[Str], 0, Int, REQUEST, "1 when an RDP connection begins with a cookie of that name, \
        or of any; else 0",
        |a| rdp_cookie(a, D::RdpCookieCount);
    "req.body", &[], 0, Bin, REQUEST, "the request's body as far as it is \
        here", |_| made(D::Body(Direction::Request));
    "req.body_len", &[], 0, Int, REQUEST, "bytes of the request's body that are here",
        |_| made(D::BodyLen(Direction::Request));
    "req.body_size", &[], 0, Int, REQUEST, "bytes that the request's body has or is said to have",
        |_| made(D::BodySize(Direction::Request));
    "req.len", &[], 0, Int, REQUEST, "bytes of the client that are here, in HTTP mode of the \
        request", |_| made(D::Len(REQ));
    "req.payload", &[Int, Int], 2, Bin, REQUEST, "the client's bytes from an offset on, of that length or \
        all (0)",
        |a| payload(a, REQ);
    "req.payload_lv", &[Int, Int, Str], 2, Bin, REQUEST, "the client's bytes whose length stands before them",
        |a| payload_lv(a, REQ);
    "req.proto_http", &[], 0, Bool, STREAM, "whether the client speaks HTTP", |_| made(D::IsHttp);
    "req.rdp_cookie", &[Str], 0, Str, REQUEST, "the cookie of that name, or of any, that an RDP connection \
        begins with",
        |a| rdp_cookie(a, D::RdpCookie);
    "req.rdp_cookie_cnt", &[Str], 0, Int, REQUEST, "1 when an RDP connection begins with a cookie of that \
        name, or of any; else 0",
        |a| rdp_cookie(a, D::RdpCookieCount);
    "req.ssl_alpn", &[], 0, Str, REQUEST, "the protocol that a TLS ClientHello in the bytes offers first",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Alpn));
    "req.ssl_cipherlist", &[], 0, Bin, LINK, "the ciphers that a TLS ClientHello in the bytes offers",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Ciphers));
    "rep_ssl_hello_type", &[], 0, Int, RESPONSE, "1 when the server's bytes are a TLS ClientHello, 2 for a \
        ServerHello",
        |_| made(D::Hello(Direction::Response, tls_hello::Part::Kind));
    "req.ssl_ec_ext", &[], 0, Bool, REQUEST, "whether a TLS ClientHello in the bytes offers groups",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::HasGroups));
    "req.ssl_hello_type", &[], 0, Int, REQUEST, "1 when the bytes are a TLS ClientHello, 2 for a ServerHello",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Kind));
    "req.ssl_keyshare_groups", &[], 0, Bin, LINK, "the groups that a TLS ClientHello in the bytes has \
        key shares of",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::KeyShareGroups));
    "req.ssl_sigalgs", &[], 0, Bin, LINK, "the signature algorithms that a TLS ClientHello in the bytes \
        offers",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::SignatureAlgorithms));
    "req.ssl_sni", &[], 0, Str, REQUEST, "the server name in a TLS ClientHello in the bytes",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::ServerName));
    "req.ssl_st_ext", &[], 0, Int, REQUEST, "1 when a TLS ClientHello in the bytes asks for a session \
        ticket, 2 when it has one, else 0",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::SessionTicket));
    "req.ssl_supported_groups", &[], 0, Bin, LINK, "the groups that a TLS ClientHello in the bytes offers",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::SupportedGroups));
    "req.ssl_ver", &[], 0, Int, REQUEST, "the version of a TLS ClientHello in the bytes, major times 65536 \
        plus minor",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Version));
    "req_len", &[], 0, Int, REQUEST, "bytes of the client that are here, in HTTP mode of the \
        request", |_| made(D::Len(REQ));
    "req_proto_http", &[], 0, Bool, STREAM, "whether the client speaks HTTP", |_| made(D::IsHttp);
    "req_ssl_hello_type", &[], 0, Int, REQUEST, "1 when the bytes are a TLS ClientHello, 2 for a ServerHello",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Kind));
    "req_ssl_sni", &[], 0, Str, REQUEST, "the server name in a TLS ClientHello in the bytes",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::ServerName));
    "req_ssl_ver", &[], 0, Int, REQUEST, "the version of a TLS ClientHello in the bytes, major times 65536 \
        plus minor",
        |_| made(D::Hello(Direction::Request, tls_hello::Part::Version));
    "res.body", &[], 0, Bin, RESPONSE, "the response's body as far as it is here",
        |_| made(D::Body(Direction::Response));
    "res.body_len", &[], 0, Int, RESPONSE, "bytes of the response's body that are here",
        |_| made(D::BodyLen(Direction::Response));
    "res.body_size", &[], 0, Int, RESPONSE, "bytes that the response's body has or is said to have",
        |_| made(D::BodySize(Direction::Response));
    "res.len", &[], 0, Int, RESPONSE, "bytes of the server that are here, in HTTP mode of the \
        response", |_| made(D::Len(RES));
    "res.payload", &[Int, Int], 2, Bin, RESPONSE, "the server's bytes from an offset on, of that length or \
        all (0)",
        |a| payload(a, RES);
    "res.payload_lv", &[Int, Int, Str], 2, Bin, RESPONSE, "the server's bytes whose length stands before \
        them",
        |a| payload_lv(a, RES);
    "res.ssl_hello_type", &[], 0, Int, RESPONSE, "1 when the server's bytes are a TLS ClientHello, 2 for a \
        ServerHello",
        |_| made(D::Hello(Direction::Response, tls_hello::Part::Kind));
    "wait_end", &[], 0, Bool, RUNNING, "true once nothing more is waited for", |_| made(D::WaitEnd);
};

/// At most `len` bytes from `offset`: borrowed if they are in one segment, else copied into the scratch.
/// `None` if there are none, or if the copy does not fit.
pub(super) fn contiguous<'x>(
    data: Data<'x>,
    offset: usize,
    len: usize,
    scratch: &mut Scratch<'x>,
) -> Option<&'x [u8]> {
    let chain = data.bytes?;
    let end = chain.len().min(offset.saturating_add(len));
    if offset >= end {
        return None;
    }
    let mut skip = offset;
    let mut segments = chain.segments();
    loop {
        let segment = segments.next()?.as_slice();
        if skip >= segment.len() {
            skip -= segment.len();
            continue;
        }
        if let Some(bytes) = segment.get(skip..skip + (end - offset)) {
            return Some(bytes);
        }
        return scratch.build(|out| {
            out.put(&segment[skip..])?;
            let mut left = end - offset - (segment.len() - skip);
            for segment in segments.by_ref() {
                let part = segment.as_slice();
                let part = &part[..part.len().min(left)];
                out.put(part)?;
                left -= part.len();
                if left == 0 {
                    break;
                }
            }
            Some(())
        });
    }
}

/// True if more bytes may follow.
fn may_grow(env: &Env<'_>, data: Data<'_>) -> bool {
    !env.is_final && !data.complete
}

/// True if the bytes received so far may begin an HTTP message.
pub(super) fn may_become_http(env: &Env<'_>) -> bool {
    let data = env.data(env.direction);
    let Some(first) = data.bytes.and_then(Chain::front) else { return may_grow(env, data) };
    let bytes = first.as_slice();
    may_grow(env, data)
        && match env.direction {
            Direction::Request => looks_like_http(bytes) != Some(false),
            Direction::Response => bytes.iter().zip(b"HTTP/").all(|(a, b)| a == b),
        }
}

/// The reason for missing bytes: they may follow, or not.
fn absent(env: &Env<'_>, data: Data<'_>) -> Absent {
    if may_grow(env, data) { Absent::NotYet } else { Absent::Never }
}

impl DataFetch {
    pub(super) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let of = |side: Side| env.data(side.unwrap_or(env.direction));
        match *self {
            Self::Body(side) => {
                let data = env.data(side);
                if data.is_empty() {
                    return found(Value::Bin(b""));
                }
                contiguous(data, 0, usize::MAX, scratch)
                    .map_or(Err(Absent::Never), |body| found(Value::Bin(body)))
            }
            Self::BodyLen(side) => found(Value::Int(env.data(side).len() as i64)),
            Self::BodySize(side) => {
                let data = env.data(side);
                let size = data.announced.unwrap_or(0).max(data.len() as u64);
                found(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
            }
            Self::Len(side) => {
                let side = side.unwrap_or(env.direction);
                let data = env.data(side);
                let head = env.head(side).filter(|_| data.is_body || data.bytes.is_none()).map_or(0, size);
                Ok(Sample { value: Value::Int((head + data.len()) as i64), may_change: may_grow(env, data) })
            }
            // `payload` counts from the first received byte, so it is undefined for a body whose head is
            // stored apart.
            Self::Payload { side, .. } | Self::PayloadLv { side, .. } if of(side).is_body => {
                Err(Absent::Never)
            }
            Self::Payload { side, offset, len } => {
                let data = of(side);
                if data.len() < offset + len || data.len() <= offset {
                    return Err(absent(env, data));
                }
                let wanted = if len == 0 { usize::MAX } else { len };
                let bytes = contiguous(data, offset, wanted, scratch).ok_or(Absent::Never)?;
                Ok(Sample { value: Value::Bin(bytes), may_change: len == 0 && may_grow(env, data) })
            }
            Self::PayloadLv { side, offset, width, skip } => {
                let data = of(side);
                if data.len() < offset + width {
                    return Err(absent(env, data));
                }
                let bytes = contiguous(data, offset, width, scratch).ok_or(Absent::Never)?;
                let len = bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
                let start = match skip {
                    Skip::Absolute(at) => at,
                    Skip::Relative(n) => ((offset + width) as i64 + n).max(0) as usize,
                };
                if len == 0 || len > MAX_PAYLOAD as u64 {
                    return Err(Absent::Never);
                }
                if data.len() < start + len as usize {
                    return Err(absent(env, data));
                }
                let bytes = contiguous(data, start, len as usize, scratch).ok_or(Absent::Never)?;
                found(Value::Bin(bytes))
            }
            Self::WaitEnd => {
                if env.is_final {
                    found(Value::Bool(true))
                } else {
                    Err(Absent::NotYet)
                }
            }
            Self::IsHttp => {
                if env.request.is_some() || env.stream.request_line.is_some() {
                    return found(Value::Bool(true));
                }
                let data = env.request_data;
                let bytes = contiguous(data, 0, usize::MAX, scratch).unwrap_or_default();
                match looks_like_http(bytes) {
                    Some(answer) => found(Value::Bool(answer)),
                    None if may_grow(env, data) => Err(Absent::NotYet),
                    None => found(Value::Bool(false)),
                }
            }
            Self::RdpCookie(_) | Self::RdpCookieCount(_) if env.request_data.is_body => Err(Absent::Never),
            Self::RdpCookie(ref name) => {
                let data = env.request_data;
                let bytes = contiguous(data, 0, usize::MAX, scratch).unwrap_or_default();
                match rdp::cookie(bytes, name) {
                    rdp::Read::Cookie(value) => found(Value::Str(value)),
                    rdp::Read::None => Err(Absent::Never),
                    rdp::Read::Short => Err(absent(env, data)),
                }
            }
            Self::RdpCookieCount(ref name) => {
                let data = env.request_data;
                let bytes = contiguous(data, 0, usize::MAX, scratch).unwrap_or_default();
                match rdp::cookie(bytes, name) {
                    rdp::Read::Cookie(_) => found(Value::Int(1)),
                    rdp::Read::Short if may_grow(env, data) => Err(Absent::NotYet),
                    rdp::Read::None | rdp::Read::Short => found(Value::Int(0)),
                }
            }
            // A connection with a request has no ClientHello.
            Self::Hello(side, _) if env.data(side).is_body => Err(Absent::Never),
            Self::Hello(side, part) => {
                let data = env.data(side);
                let bytes = contiguous(data, 0, usize::MAX, scratch).unwrap_or_default();
                match tls_hello::read(bytes, part, scratch) {
                    tls_hello::Read::Value(value) => found(value),
                    tls_hello::Read::None => Err(Absent::Never),
                    tls_hello::Read::Short => Err(absent(env, data)),
                }
            }
            Self::Distcc(_) if env.data(env.direction).is_body => Err(Absent::Never),
            Self::Distcc(ref part) => {
                let data = env.data(env.direction);
                let bytes = contiguous(data, 0, usize::MAX, scratch).unwrap_or_default();
                match part.find(bytes) {
                    distcc::Read::Value(value) => found(value),
                    distcc::Read::None => Err(Absent::Never),
                    distcc::Read::Short => Err(absent(env, data)),
                }
            }
        }
    }
}

/// Size of a head in HTTP/1 syntax.
fn size(head: &Head) -> usize {
    let line = match head.status() {
        0 => head.method().len() + head.target().len() + b"  HTTP/1.1\r\n".len(),
        _ => head.reason().len() + b"HTTP/1.1 200 \r\n".len(),
    };
    let fields: usize =
        head.fields().map(|field| field.name.len() + field.value.len() + b": \r\n".len()).sum();
    line + fields + b"\r\n".len()
}

/// True if the bytes begin with an HTTP/1 request with a complete head; `None` if more bytes are needed.
fn looks_like_http(bytes: &[u8]) -> Option<bool> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let method = bytes.iter().position(|byte| !is_token(*byte));
    match method {
        None => return None,
        Some(0) => return Some(false),
        Some(at) if bytes[at] != b' ' => return Some(false),
        Some(_) => {}
    }
    let end = memchr::memchr(b'\n', bytes)?;
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    if !matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.',
        minor] if major.is_ascii_digit() && minor.is_ascii_digit())
    {
        return Some(false);
    }
    let rest = &bytes[end..];
    (memchr::memmem::find(rest, b"\n\r\n").is_some() || memchr::memmem::find(rest, b"\n\n").is_some())
        .then_some(true)
}
