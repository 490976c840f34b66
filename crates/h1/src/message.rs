//! The fields of a message that describe its body and its connection (RFC 9112, sections 6 and 9).
//!
//! The parser examines them as it reads, so nothing is looked up afterwards. A message that two parsers
//! could understand differently is refused.

use crate::error::Problem;
use crate::leniency::Leniency;
use crate::limits::Limits;
use crate::lines::{self, Refusal};
use manylane_http::{Form, Known, List, MAX_OPTIONS, Method, RequestLine, Target, Version, is_http2, syntax};

/// Framing of a body: the way to find its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is no body.
    None,
    /// The body ends after this many bytes, which may be 0.
    Length(u64),
    /// The body ends with a chunk of size 0, and trailers.
    Chunked,
    /// The body ends with the connection. Only responses have this framing.
    UntilClose,
    /// The body never ends: from here on the connection carries another protocol in both directions. This
    /// follows a `101` and a successful `CONNECT`.
    Tunnel,
}

/// Options of the connection fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// `Connection` has `close`.
    pub close: bool,
    /// `Connection` has `keep-alive`.
    pub keep_alive: bool,
    /// `Connection` has `upgrade`, and there is an `Upgrade` field that does not offer HTTP/2. Never set for
    /// a WebSocket request with a body. For another request with a body, the server switches only after the
    /// body.
    pub upgrade: bool,
    /// A request without a body offers HTTP/2 (`Upgrade: h2c`), and the [limits](crate::Limits::h2c) allow
    /// that. Its hop-by-hop fields are still in the head until [`end_offer`](crate::Request::end_offer).
    pub h2c: bool,
    /// `Connection` names a field other than `TE` and those of HTTP/2. Such a field must not go on among the
    /// trailers either.
    pub names_fields: bool,
}

impl Connection {
    /// Returns whether the sender of a message of this version keeps the connection open after it (RFC 9112,
    /// 9.3).
    pub fn persists(self, version: Version) -> bool {
        !self.close && (version >= Version::HTTP_11 || self.keep_alive)
    }

    /// Returns whether the sender says that its connection stays open, or that it ends.
    pub(crate) fn says_persistence(self) -> bool {
        self.close || self.keep_alive
    }

    /// Adds the options of one line. Returns the number of other options in it.
    fn add(&mut self, value: &[u8]) -> usize {
        if value == b"keep-alive" {
            self.keep_alive = true;
            return 0;
        }
        let mut others = 0;
        for member in List::new(value) {
            match member {
                b"" => {}
                member if member.eq_ignore_ascii_case(b"close") => self.close = true,
                member if member.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                member if member.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                member => {
                    others += 1;
                    let is = |own: &[u8]| member.eq_ignore_ascii_case(own);
                    self.names_fields |= !is(b"te") && !is(b"http2-settings");
                }
            }
        }
        others
    }
}

/// Findings about the fields that decide on framing and the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingFields {
    length: Option<u64>,
    length_at: usize,
    /// True if the length was not written as one plain number, and must be rewritten.
    length_restated: bool,
    lenient: Leniency,
    chunked: bool,
    /// True if a response names no coding, or `chunked` several times, and the field must be rewritten.
    pub(crate) coding_restated: bool,
    /// True if another coding stands before `chunked`.
    other_coding: bool,
    coding_at: Option<usize>,
    host: Option<(usize, usize)>,
    /// True if there are several `Host` fields, all equal.
    pub(crate) several_hosts: bool,
    /// True if `Host` is missing, or is not the target's: the target's takes its place.
    pub(crate) host_of_target: bool,
    upgrade_field: bool,
    /// True if the request offers HTTP/2, in which requests would pass unseen; the offer is not passed on.
    http2_upgrade: bool,
    /// Position of an offer of WebSocket, or of agreement to it. The next two fields say whether the rest of
    /// the handshake is there.
    websocket_at: Option<usize>,
    websocket_key: bool,
    websocket_accept: bool,
    proxy_connection: Connection,
    /// True if `connection` comes from `Proxy-Connection`.
    pub(crate) uses_proxy_connection: bool,
    pub(crate) connection: Connection,
    pub(crate) continue_expected: bool,
    pub(crate) te_trailers: bool,
    pub(crate) te: bool,
    /// Number of options in `Connection` that name fields.
    options: usize,
    /// True if there are hop-by-hop fields besides those that are handled in any case.
    pub(crate) hop_by_hop: bool,
}

/// `Content-Length` is less: offsets are added to it.
const MAX_LENGTH: u64 = 1 << 63;

impl FramingFields {
    /// Begins a head with these relaxations.
    #[inline]
    pub(crate) fn new(lenient: Leniency) -> Self {
        Self { lenient, ..Self::default() }
    }

    /// Handles a `Content-Length` that is not a single plain number.
    #[cold]
    fn odd_length(&mut self, value: &[u8]) -> Result<(), Problem> {
        if !self.lenient.has(Leniency::LENGTHS) {
            return Err(if self.length.is_some() { Problem::TwoLengths } else { Problem::BadLength });
        }
        for member in List::new(value) {
            let length = syntax::decimal(member).filter(|&length| length < MAX_LENGTH);
            let length = length.ok_or(Problem::BadLength)?;
            if *self.length.get_or_insert(length) != length {
                return Err(Problem::TwoLengths);
            }
        }
        self.length_restated = true;
        if self.length.is_some() { Ok(()) } else { Err(Problem::BadLength) }
    }

    /// Returns the framing that has to be rewritten for the next reader, if the fields of a leniently parsed
    /// message do not state it plainly.
    pub(crate) fn restated(&self) -> Option<Body> {
        match self.length {
            Some(_) if self.coding_at.is_some() => Some(Body::Chunked),
            Some(length) if self.length_restated || self.coding_restated => Some(Body::Length(length)),
            None if self.coding_restated && self.chunked => Some(Body::Chunked),
            None if self.coding_restated => Some(Body::UntilClose),
            _ => None,
        }
    }

    /// Examines a field with a well-known name, whose value begins at `at`. `request` is the whole head of a
    /// request, and `None` for a response.
    #[inline]
    pub(crate) fn see(
        &mut self,
        known: Known,
        value: &[u8],
        at: usize,
        request: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let (head, request) = (request, request.is_some());
        match known {
            Known::CONTENT_LENGTH => {
                self.length_at = at;
                match syntax::decimal(value).filter(|&length| length < MAX_LENGTH) {
                    Some(length) if self.length.is_none() => {
                        self.length = Some(length);
                        // `003` goes on as `3`, because the next reader may take it for an octal number.
                        self.length_restated |= value.len() > 1 && value[0] == b'0';
                    }
                    _ => self.odd_length(value)?,
                }
            }
            Known::TRANSFER_ENCODING => {
                self.coding_at = Some(at);
                self.coding(value, request)?;
            }
            Known::CONNECTION => {
                self.options += self.connection.add(value);
                if self.options > MAX_OPTIONS {
                    return Err(Problem::TooManyOptions);
                }
                self.hop_by_hop |= self.options > 0;
            }
            Known::PROXY_CONNECTION => {
                self.proxy_connection.add(value);
                self.hop_by_hop = true;
            }
            Known::KEEP_ALIVE | Known::HTTP2_SETTINGS => self.hop_by_hop = true,
            Known::UPGRADE => {
                self.upgrade_field |= !value.is_empty();
                self.http2_upgrade |= List::new(value).any(is_http2);
                if List::new(value).any(|member| member.eq_ignore_ascii_case(b"websocket")) {
                    self.websocket_at = Some(at);
                }
            }
            Known::SEC_WEBSOCKET_KEY if request => self.websocket_key |= is_websocket_key(value),
            Known::SEC_WEBSOCKET_ACCEPT if !request => self.websocket_accept = true,
            Known::HOST if request => {
                if let Some((at, len)) = self.host {
                    return self.further_host(value, head.and_then(|head| head.get(at..at + len)));
                }
                if !lines::is_host(value, self.lenient) {
                    return Err(Problem::BadHost);
                }
                self.host = Some((at, value.len()));
            }
            Known::EXPECT if request => self.continue_expected |= value.eq_ignore_ascii_case(b"100-continue"),
            Known::TE => {
                self.te = true;
                self.hop_by_hop = true;
                self.te_trailers |= List::new(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            }
            _ => {}
        }
        Ok(())
    }

    #[cold]
    fn further_host(&mut self, value: &[u8], first: Option<&[u8]>) -> Result<(), Problem> {
        self.several_hosts = true;
        let equal = self.lenient.has(Leniency::HOSTS) && first == Some(value);
        if equal { Ok(()) } else { Err(Problem::TwoHosts) }
    }

    /// Checks that `chunked` comes once, behind all other codings.
    fn coding(&mut self, value: &[u8], request: bool) -> Result<(), Problem> {
        if !self.chunked && value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        let repeats = !request && self.lenient.has(Leniency::CODINGS);
        for member in List::new(value) {
            let chunked = member.eq_ignore_ascii_case(b"chunked");
            if repeats && (member.is_empty() || chunked && self.chunked) {
                self.coding_restated = true;
                continue;
            }
            if self.chunked || !syntax::is_token(member) {
                return Err(Problem::BadCoding);
            }
            self.chunked = chunked;
            self.other_coding |= !chunked;
        }
        Ok(())
    }

    /// Completes the findings after the last field.
    fn finish(&mut self) {
        self.connection.upgrade &= self.upgrade_field && !self.http2_upgrade;
    }

    /// Returns the framing of the body, by rules common to requests and responses. The caller decides whether
    /// the message may have a body.
    fn framing(&mut self, version: Version) -> Result<Option<Body>, Refusal> {
        let Some(coding_at) = self.coding_at else { return Ok(self.length.map(Body::Length)) };
        if !self.chunked {
            return Err((Problem::BadCoding, coding_at));
        }
        // Few readers know other codings, and one that does not would frame the body differently.
        if self.other_coding {
            return Err((Problem::OtherCoding, coding_at));
        }
        if self.length.is_some() {
            if !self.lenient.has(Leniency::LENGTH_AND_CODING) {
                return Err((Problem::LengthAndCoding, self.length_at.max(coding_at)));
            }
            self.connection.close = true; // the sender may have meant the other one
        }
        if version < Version::HTTP_11 {
            return Err((Problem::CodingBefore11, coding_at));
        }
        Ok(Some(Body::Chunked))
    }

    /// Returns the version whose rules the framing follows. Chunks belong to HTTP/1.1; where an older version
    /// may have them, the connection ends after them.
    fn version_of_framing(&mut self, version: Version) -> Version {
        let old = version < Version::HTTP_11 && self.coding_at.is_some();
        if old && self.lenient.has(Leniency::OLD_CODING) {
            self.connection.close = true;
            return Version::HTTP_11;
        }
        version
    }

    /// Returns the framing of a request's body, and checks its fields against its first line. `bytes` is the
    /// whole head.
    #[inline]
    pub(crate) fn request(
        &mut self,
        bytes: &[u8],
        line: &RequestLine,
        limits: &Limits,
    ) -> Result<Body, Refusal> {
        self.finish();
        if self.host.is_none() && line.version >= Version::HTTP_11 && !limits.relaxed {
            return Err((Problem::NoHost, 0));
        }
        if line.kind == Method::Connect || bytes.get(line.target.start) != Some(&b'/') {
            self.rare_target(bytes, line, limits)?;
        }
        let version = self.version_of_framing(line.version);
        self.host_of_target |= self.host.is_none() && version >= Version::HTTP_11;
        let body = self.framing(version)?;
        if self.connection.upgrade {
            self.upgrade(body, limits.relaxed)?;
        }
        let Some(body) = body else { return Ok(Body::None) };
        if line.kind == Method::Connect {
            // The bytes that follow belong to the tunnel; if there is no tunnel, they are no request.
            return match body {
                Body::Length(length) => {
                    self.connection.close |= length > 0;
                    Ok(Body::None)
                }
                _ => Err((Problem::BodyForbidden, self.coding_at.unwrap_or(self.length_at))),
            };
        }
        let bodyless = matches!(line.kind, Method::Get | Method::Head | Method::Delete);
        if bodyless && line.version < Version::HTTP_11 && body != Body::Length(0) && !limits.old_payload {
            return Err((Problem::OldPayload, self.length_at));
        }
        Ok(body)
    }

    /// Handles a request that offers another protocol. A handshake that only one side accepts could hide
    /// requests from the other.
    #[cold]
    fn upgrade(&mut self, body: Option<Body>, relaxed: bool) -> Result<(), Refusal> {
        let has_body = !matches!(body, None | Some(Body::Length(0)));
        match self.websocket_at {
            // A WebSocket handshake has no body.
            Some(_) if has_body => {
                self.connection.upgrade = false;
                Ok(())
            }
            Some(at) if !self.websocket_key && !relaxed => Err((Problem::NoWebSocketKey, at)),
            _ => Ok(()),
        }
    }

    /// Checks a target that is not a path: its host must be that of `Host`, with or without the default port
    /// of its scheme.
    #[cold]
    fn rare_target(&mut self, bytes: &[u8], line: &RequestLine, limits: &Limits) -> Result<(), Refusal> {
        let target = Target::of(&bytes[line.target.clone()], line.kind);
        if target.form == Form::Absolute && limits.proxy_header {
            let Connection { upgrade, names_fields, .. } = self.connection;
            self.connection = Connection { upgrade, names_fields, ..self.proxy_connection };
            self.uses_proxy_connection = true;
        }
        let (Some(authority), Some((at, len))) = (target.authority, self.host) else { return Ok(()) };
        let default: &[u8] = match target.scheme {
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => b"80",
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => b"443",
            _ => b"",
        };
        let host = &bytes[at..at + len];
        let (name, port) = lines::split_port(manylane_http::without_user(authority));
        let (host_name, host_port) = lines::split_port(host);
        let port_or_default = |port: Option<&[u8]>| match port {
            None | Some([]) => default.to_owned(),
            Some(port) => port.to_owned(),
        };
        let same_port = match host_port {
            // Without a scheme, a name without a port may only mean one of these ports.
            None | Some([]) if target.form == Form::Authority => matches!(port, Some(b"80" | b"443")),
            _ => port_or_default(port) == port_or_default(host_port),
        };
        if name.eq_ignore_ascii_case(host_name) && same_port {
            return Ok(());
        }
        self.host_of_target = limits.relaxed;
        if limits.relaxed { Ok(()) } else { Err((Problem::OtherHost, at)) }
    }

    /// Returns whether a request with this body offers HTTP/2.
    #[cold]
    pub(crate) fn offers_h2c(&self, body: Body) -> bool {
        self.http2_upgrade && matches!(body, Body::None | Body::Length(0))
    }

    /// Returns whether there is a `Transfer-Encoding`.
    pub(crate) fn is_coded(&self) -> bool {
        self.coding_at.is_some()
    }

    /// Returns whether there is a `Content-Length`.
    pub(crate) fn is_measured(&self) -> bool {
        self.length.is_some()
    }

    /// Returns the framing of a response's body.
    #[inline]
    pub(crate) fn response(
        &mut self,
        version: Version,
        status: u16,
        request: RequestInfo,
        relaxed: bool,
    ) -> Result<Body, Refusal> {
        let switches = self.connection.upgrade;
        self.finish();
        if self.coding_restated && !self.chunked && !self.other_coding {
            self.coding_at = None; // the field is empty, and goes
        }
        let version = self.version_of_framing(version);
        let framing = self.framing(version)?;
        match status {
            101 if request.upgrade => match self.websocket_at {
                _ if !switches => Err((Problem::NoSwitch, 0)),
                Some(at) if !self.websocket_accept && !relaxed => Err((Problem::NoWebSocketAccept, at)),
                _ => Ok(Body::Tunnel),
            },
            101 => Err((Problem::UnaskedSwitch, 0)),
            _ if is_bodyless(status) => Ok(Body::None),
            200..=299 if request.method == Method::Connect => Ok(Body::Tunnel),
            304 => Ok(Body::None),
            _ if request.method == Method::Head => Ok(Body::None),
            _ => Ok(framing.unwrap_or(Body::UntilClose)),
        }
    }
}

/// Returns whether the value of `Sec-WebSocket-Key` is sixteen bytes in base64 (RFC 6455, 4.2.1).
pub fn is_websocket_key(value: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    matches!(value, [digits @ .., b'=', b'='] if digits.len() == 22 && digits.iter().all(digit))
}

/// Returns whether responses of this status never have a body (RFC 9112, 6.3).
pub(crate) fn is_bodyless(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}

/// Properties of a request that the framing of its response depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Method of the request.
    pub method: Method,
    /// True if the request offered another protocol.
    pub upgrade: bool,
}
