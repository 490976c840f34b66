//! Builds heads from received fields (RFC 9113, 8.2 and 8.3).
//!
//! A block is read to its end even if it has a problem, because the compression state must follow. The first
//! problem is kept, and nothing is stored after it.

use super::{Request, Response, Scheme, authority};
use crate::error::Problem;
use crate::hpack::Line;
use crate::limits::Config;
use crate::scratch::Scratch;
use manylane_buf::{Cluster, External, MAX_CLUSTER, Segment, scan};
use manylane_http::{
    FieldLine, Fields, Head, Known, List, Method, PushError, RequestLine, StatusLine, Version, is_http2,
    status, syntax, without_default_port,
};
use std::ops::Range;

/// Kind of message that a block has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Request,
    Response,
    Trailers,
}

/// Bound on `Content-Length`, exclusive, so that offsets can be added to it.
const MAX_LENGTH: u64 = 1 << 63;

type ValueRange = Option<Range<usize>>;

/// Ranges of the pseudo-headers' values in the scratch memory.
#[derive(Default)]
struct Pseudo {
    method: ValueRange,
    scheme: ValueRange,
    authority: ValueRange,
    path: ValueRange,
    protocol: ValueRange,
    status: ValueRange,
}

/// Collects the fields of one block.
pub(crate) struct Collector<'a> {
    expected: Expected,
    config: &'a Config,
    text: &'a mut Vec<u8>,
    values: &'a mut Vec<u8>,
    cookies: &'a mut Vec<u8>,
    fields: Fields,
    pseudo: Pseudo,
    /// The first line, written once all pseudo-headers are there.
    line: Option<FirstLine>,
    length: Option<u64>,
    /// True if some cookie must not be indexed.
    secret_cookie: bool,
    problem: Option<Problem>,
}

/// First line in the form of HTTP/1.
enum FirstLine {
    /// The request line, and the range of the scheme's value.
    Request(RequestLine, ValueRange),
    Response(StatusLine),
    None,
}

impl<'a> Collector<'a> {
    /// Creates a collector for a block of this kind. It uses all scratch memory except for that of the block,
    /// and returns `strings` for the decoder.
    pub(crate) fn new(
        expected: Expected,
        config: &'a Config,
        scratch: &'a mut Scratch,
    ) -> Result<(Self, &'a mut Vec<u8>), Problem> {
        let Scratch { text, pseudo, cookies, strings, .. } = scratch;
        let collector = Self {
            expected,
            config,
            text,
            values: pseudo,
            cookies,
            fields: Fields::new()?,
            pseudo: Pseudo::default(),
            line: None,
            length: None,
            secret_cookie: false,
            problem: None,
        };
        Ok((collector, strings))
    }

    /// Takes the next field.
    #[inline]
    pub(crate) fn take(&mut self, line: Line<'_>) {
        if self.problem.is_some() {
            return;
        }
        let taken = match line.name {
            [b':', ..] => self.pseudo_header(line),
            _ => self.field(line),
        };
        self.problem = taken.err();
    }

    fn pseudo_header(&mut self, Line { name, value, .. }: Line<'_>) -> Result<(), Problem> {
        if self.line.is_some() {
            return Err(Problem::LatePseudo);
        }
        let request = self.expected == Expected::Request;
        let range = match name {
            b":method" if request => &mut self.pseudo.method,
            b":scheme" if request => &mut self.pseudo.scheme,
            b":authority" if request => &mut self.pseudo.authority,
            b":path" if request => &mut self.pseudo.path,
            b":protocol" if request => &mut self.pseudo.protocol,
            b":status" if self.expected == Expected::Response => &mut self.pseudo.status,
            _ => return Err(Problem::UnknownPseudo),
        };
        if range.is_some() {
            return Err(Problem::TwicePseudo);
        }
        let start = self.values.len();
        if start + value.len() > self.config.head {
            return Err(Problem::TooLargeHead);
        }
        self.values.extend_from_slice(value);
        *range = Some(start..self.values.len());
        Ok(())
    }

    fn field(&mut self, Line { name, value, never_indexed }: Line<'_>) -> Result<(), Problem> {
        let known = Known::of(name);
        check_name(name, known)?;
        check_value(value)?;
        if self.line.is_none() {
            self.first_line()?;
        }
        match known {
            Known::CONNECTION
            | Known::KEEP_ALIVE
            | Known::PROXY_CONNECTION
            | Known::TRANSFER_ENCODING
            | Known::UPGRADE => return Err(Problem::ConnectionField),
            Known::TE if !value.eq_ignore_ascii_case(b"trailers") => return Err(Problem::BadTe),
            Known::CONTENT_LENGTH | Known::HOST | Known::TRAILER if self.expected == Expected::Trailers => {
                return Err(Problem::BadTrailer);
            }
            Known::CONTENT_LENGTH => return self.content_length(name, value),
            Known::HOST if self.expected == Expected::Request => return self.host(name, value),
            Known::COOKIE if self.expected == Expected::Request => {
                return self.cookie(value, never_indexed);
            }
            _ => {}
        }
        self.push(name, value, known, never_indexed)
    }

    /// Accepts repeated equal lengths, and stores one plain number.
    fn content_length(&mut self, name: &[u8], value: &[u8]) -> Result<(), Problem> {
        let first = self.length.is_none();
        let said = List::new(value).try_fold(self.length, |said, member| {
            let length = syntax::decimal(member).filter(|&length| length < MAX_LENGTH);
            let length = length.ok_or(Problem::BadLength)?;
            if said.is_some_and(|said| said != length) { Err(Problem::BadLength) } else { Ok(Some(length)) }
        })?;
        let length = said.ok_or(Problem::BadLength)?;
        self.length = said;
        if !first {
            return Ok(());
        }
        let (mut digits, mut rest, mut at) = ([0; 20], length, 20);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(name, &digits[at..], Known::CONTENT_LENGTH, false);
            }
        }
    }

    /// Drops a `Host` that agrees with the authority, and keeps one of several equal ones.
    fn host(&mut self, name: &[u8], value: &[u8]) -> Result<(), Problem> {
        if !authority::is_valid(value) {
            return Err(Problem::BadAuthority);
        }
        let given = self.pseudo.authority.clone().map(|range| &self.values[range]);
        let scheme = self.pseudo.scheme.clone().map_or(&b""[..], |range| &self.values[range]);
        match given {
            Some(target) if self.is_connect() => {
                if authority::agree_connect(target, value) {
                    Ok(())
                } else {
                    Err(Problem::OtherHost)
                }
            }
            Some(given) if authority::agree(given, value, scheme) => Ok(()),
            Some(_) => Err(Problem::OtherHost),
            None => {
                // From here on, the value of `Host` is the authority.
                let start = self.values.len();
                self.values.extend_from_slice(value);
                self.pseudo.authority = Some(start..self.values.len());
                self.push(name, value, Known::HOST, false)
            }
        }
    }

    /// Joins the pieces of a cookie (RFC 9113, 8.2.3); the result goes behind all fields.
    fn cookie(&mut self, value: &[u8], never_indexed: bool) -> Result<(), Problem> {
        if self.text.len() + self.cookies.len() + value.len() > self.config.head {
            return Err(Problem::TooLargeHead);
        }
        if !self.cookies.is_empty() {
            self.cookies.extend_from_slice(b"; ");
        }
        self.cookies.extend_from_slice(value);
        self.secret_cookie |= never_indexed;
        Ok(())
    }

    fn push(&mut self, name: &[u8], value: &[u8], known: Known, never_indexed: bool) -> Result<(), Problem> {
        let at = self.text.len();
        let end = at + name.len() + value.len() + 4;
        // Room for the empty line at the end is included.
        if end + 2 > self.config.head || self.fields.len() + 1 >= self.config.fields {
            return Err(Problem::TooLargeHead);
        }
        for part in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        let line = FieldLine {
            name: at as u16,
            name_len: name.len() as u16,
            value: (at + name.len() + 2) as u16,
            value_len: value.len() as u16,
            end: end as u16,
            known,
        };
        self.fields.push(line).map_err(|error| match error {
            PushError::TooMany => Problem::TooLargeHead,
            PushError::NoMemory => Problem::NoMemory,
        })?;
        if never_indexed {
            self.fields.never_index_last();
        }
        Ok(())
    }

    fn is_connect(&self) -> bool {
        self.pseudo.protocol.is_none()
            && self.pseudo.method.clone().is_some_and(|range| self.values[range] == *b"CONNECT")
    }

    /// Checks the pseudo-headers, which are complete, and writes the first line.
    fn first_line(&mut self) -> Result<(), Problem> {
        let line = match self.expected {
            Expected::Request => self.request_line()?,
            Expected::Response => self.status_line()?,
            Expected::Trailers => FirstLine::None,
        };
        self.line = Some(line);
        Ok(())
    }

    fn request_line(&mut self) -> Result<FirstLine, Problem> {
        let Pseudo { method, scheme, authority, path, protocol, .. } = &self.pseudo;
        let method_at = method.clone().ok_or(Problem::MissingPseudo)?;
        let value = |range: &ValueRange| range.clone().map(|at| &self.values[at]);
        let (method, given) = (&self.values[method_at], value(authority));
        let (scheme_value, path_value) = (value(scheme), value(path));
        if !syntax::is_token(method) {
            return Err(Problem::BadMethod);
        }
        let connect = method == b"CONNECT";
        if protocol.is_some() && !(connect && self.config.connect_protocol) {
            return Err(Problem::NoConnectProtocol);
        }
        if given.is_some_and(|given| !authority::is_valid(given)) {
            return Err(Problem::BadAuthority);
        }
        if connect && protocol.is_none() {
            let target = given.filter(|target| authority::is_connect_target(target));
            let (Some(target), None, None) = (target, scheme_value, path_value) else {
                return Err(Problem::ConnectTarget);
            };
            let host = authority::connect_host(target);
            let line = write_request_line(self.text, method, target, self.config)?;
            let range = range_in(self.values, host);
            self.push_host(range)?;
            return Ok(FirstLine::Request(line, None));
        }
        let (Some(scheme_value), Some(path_value)) = (scheme_value, path_value) else {
            return Err(Problem::MissingPseudo);
        };
        if !is_scheme(scheme_value) {
            return Err(Problem::BadScheme);
        }
        if let Some(protocol) = value(protocol)
            && (!syntax::is_token(protocol) || is_http2(protocol))
        {
            return Err(Problem::UnknownPseudo);
        }
        let fragments = self.config.fragments;
        let fine = match path_value {
            b"*" => method == b"OPTIONS",
            [b'/', ..] => {
                path_value.iter().all(|&byte| syntax::is_target_byte(byte) || fragments && byte == b'#')
            }
            _ => false,
        };
        if !fine {
            return Err(Problem::BadPath);
        }
        let method: &[u8] = if connect { b"GET" } else { method };
        let line = write_request_line(self.text, method, path_value, self.config)?;
        let scheme = scheme.clone();
        if let Some(given) = given {
            let range = range_in(self.values, without_default_port(scheme_value, given));
            self.push_host(range)?;
        }
        Ok(FirstLine::Request(line, scheme))
    }

    /// Adds `Host` with the value at `range` in the scratch memory.
    fn push_host(&mut self, range: Range<usize>) -> Result<(), Problem> {
        let values = std::mem::take(self.values);
        let pushed = self.push(b"host", &values[range], Known::HOST, false);
        *self.values = values;
        pushed
    }

    fn status_line(&mut self) -> Result<FirstLine, Problem> {
        let range = self.pseudo.status.clone().ok_or(Problem::MissingPseudo)?;
        let digits = &self.values[range];
        let number = syntax::decimal(digits).filter(|_| digits.len() == 3).ok_or(Problem::BadStatus)? as u16;
        // 101 exists in HTTP/1 only (RFC 9113, 8.6).
        if !(100..=999).contains(&number) || number == 101 {
            return Err(Problem::BadStatus);
        }
        let (reason, start) = (status::reason(number).as_bytes(), b"HTTP/1.1 200 ".len());
        for part in [b"HTTP/1.1 ", digits, b" ", reason, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        Ok(FirstLine::Response(StatusLine {
            version: Version::HTTP_2,
            status: number,
            reason: start..start + reason.len(),
            end: self.text.len(),
        }))
    }

    /// Completes a head after the block was read: the part that all kinds of messages share.
    fn finish(&mut self) -> Result<FirstLine, Problem> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.line.is_none() {
            self.first_line()?;
        }
        if self.expected == Expected::Request && self.pseudo.authority.is_none() {
            return Err(Problem::NoHost);
        }
        if !self.cookies.is_empty() {
            let cookies = std::mem::take(self.cookies);
            let pushed = self.push(b"cookie", &cookies, Known::COOKIE, self.secret_cookie);
            *self.cookies = cookies;
            pushed?;
        }
        self.text.extend_from_slice(b"\r\n");
        self.line.take().ok_or(Problem::MissingPseudo)
    }

    /// Returns the request.
    pub(crate) fn request(mut self) -> Result<Request, Problem> {
        let FirstLine::Request(line, scheme) = self.finish()? else { return Err(Problem::MissingPseudo) };
        let scheme = match scheme.map(|range| &self.values[range]) {
            None => Scheme::None,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => Scheme::Http,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => Scheme::Https,
            Some(scheme) => Scheme::Other(Cluster::with(scheme)?.into_segment()),
        };
        let protocol = self.pseudo.protocol.clone().map(|range| Cluster::with(&self.values[range]));
        let mut head = Head::parsed_request(segment(self.text)?, &line, self.fields, self.config.room);
        let mut length = self.length;
        // A tunnel has no body (RFC 9110, 9.3.6). A server of HTTP/1 that was sent a length would take the
        // next request on its connection, another client's perhaps, for this body.
        if protocol.is_some() || head.method_kind() == Method::Connect {
            head.remove_fields(Known::CONTENT_LENGTH);
            head.remove_fields(Known::EXPECT);
            length = None;
        }
        Ok(Request { head, scheme, protocol: protocol.transpose()?.map(Cluster::into_segment), length })
    }

    /// Returns the response.
    pub(crate) fn response(mut self) -> Result<Response, Problem> {
        let FirstLine::Response(line) = self.finish()? else { return Err(Problem::MissingPseudo) };
        let head = Head::parsed_response(segment(self.text)?, &line, self.fields, self.config.room);
        Ok(Response { head, length: self.length })
    }

    /// Returns the trailers.
    pub(crate) fn trailers(mut self) -> Result<Head, Problem> {
        self.finish()?;
        Ok(Head::parsed_trailers(segment(self.text)?, self.fields, self.config.room))
    }
}

/// Writes `method SP target SP version CRLF`. `#` in the target goes on percent-encoded, as in a path of
/// HTTP/1.
fn write_request_line(
    text: &mut Vec<u8>,
    method: &[u8],
    target: &[u8],
    config: &Config,
) -> Result<RequestLine, Problem> {
    let fragments = if config.fragments { target.iter().filter(|&&byte| byte == b'#').count() } else { 0 };
    let start = method.len() + 1;
    let end = start + target.len() + 2 * fragments;
    if end + b" HTTP/1.1\r\n\r\n".len() > config.head {
        return Err(Problem::TooLargeHead);
    }
    text.extend_from_slice(method);
    text.push(b' ');
    if fragments == 0 {
        text.extend_from_slice(target);
    } else {
        write_encoded(text, target);
    }
    text.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(RequestLine {
        kind: Method::of(method),
        method: 0..method.len(),
        target: start..end,
        version: Version::HTTP_2,
        end: text.len(),
    })
}

/// Writes `path` with `#` percent-encoded.
#[cold]
fn write_encoded(text: &mut Vec<u8>, path: &[u8]) {
    for (number, part) in path.split(|&byte| byte == b'#').enumerate() {
        let before: &[u8] = if number > 0 { b"%23" } else { b"" };
        text.extend_from_slice(before);
        text.extend_from_slice(part);
    }
}

/// Returns a head's bytes as one segment, in a cluster of the lane if one is large enough.
fn segment(text: &[u8]) -> Result<Segment, Problem> {
    if text.len() <= MAX_CLUSTER {
        return Ok(Cluster::with(text)?.into_segment());
    }
    External::from_vec(text.to_vec()).map_err(|_| Problem::NoMemory)
}

/// Returns the range of `part` in `bytes`.
fn range_in(bytes: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + part.len()
}

/// Checks that the name is a token in lower case.
#[inline]
fn check_name(name: &[u8], known: Known) -> Result<(), Problem> {
    if name.iter().any(u8::is_ascii_uppercase) {
        return Err(Problem::UpperCase);
    }
    if known != Known::OTHER || syntax::is_token(name) { Ok(()) } else { Err(Problem::BadName) }
}

/// Checks that the value has no control character except for tabs, and no blank at either end.
#[inline]
fn check_value(value: &[u8]) -> Result<(), Problem> {
    let mut at = scan::control(value, 0);
    while value.get(at) == Some(&b'\t') {
        at = scan::control(value, at + 1);
    }
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if at < value.len() || blank(value.first()) || blank(value.last()) {
        return Err(Problem::BadValue);
    }
    Ok(())
}

fn is_scheme(scheme: &[u8]) -> bool {
    scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}
