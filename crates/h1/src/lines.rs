//! The lines of a head, in contiguous bytes: first line, fields, empty line. It is strict: see the crate's
//! README for what it refuses.
//!
//! Here `None` means that the bytes end before the head does. Positions are offsets in the bytes.

use crate::error::Problem;
use crate::leniency::Leniency;
use crate::limits::Limits;
use manylane_buf::scan;
use manylane_http::{FieldLine, Fields, Known, Method, PushError, RequestLine, StatusLine, Version, syntax};

/// A problem and its position.
pub(crate) type Refusal = (Problem, usize);

pub(crate) type Lines<T> = Result<Option<T>, Refusal>;

/// State of a line's end.
enum End {
    /// `\r\n` is at this offset.
    At(usize),
    /// The line end has not come yet.
    Missing,
}

/// Finds the end of the line whose text continues at `at`.
#[inline]
fn end_of_line(bytes: &[u8], at: usize) -> Result<End, Refusal> {
    let at = scan::control(bytes, at);
    match bytes.get(at..) {
        Some([b'\r', b'\n', ..]) => Ok(End::At(at)),
        _ => rare_end_of_line(bytes, at),
    }
}

/// Does what [`end_of_line`] does, and accepts tabs as text.
#[cold]
fn rare_end_of_line(bytes: &[u8], mut at: usize) -> Result<End, Refusal> {
    loop {
        at = scan::control(bytes, at);
        return match bytes.get(at..) {
            Some([b'\r', b'\n', ..]) => Ok(End::At(at)),
            Some([b'\r'] | []) | None => Ok(End::Missing),
            Some([b'\r', ..]) => Err((Problem::BareCr, at)),
            Some([b'\n', ..]) => Err((Problem::BareLf, at)),
            Some([b'\t', ..]) => {
                at += 1;
                continue;
            }
            Some(_) => Err((Problem::Control, at)),
        };
    }
}

/// Parses `method SP target SP version CRLF`. A request of HTTP/0.9 has no version.
pub(crate) fn request_line(bytes: &[u8], limits: &Limits) -> Lines<RequestLine> {
    let mut at = 0;
    while bytes.get(at).is_some_and(|&byte| syntax::is_token_byte(byte)) {
        at += 1;
    }
    let method = 0..at;
    match bytes.get(at) {
        None => return Ok(None),
        Some(b' ') if at > 0 => at += 1,
        Some(_) => return Err((control_or(bytes, at, Problem::BadMethod), at)),
    }
    let start = at;
    at = scan::target_end(bytes, at);
    let target = start..at;
    match bytes.get(at..) {
        Some([b' ', ..]) if !target.is_empty() => at += 1,
        Some([] | [b'\r']) | None => return Ok(None),
        Some([b'\r', b'\n', ..]) if !target.is_empty() => {
            if !limits.relaxed || &bytes[method.clone()] != b"GET" {
                return Err((Problem::NoVersion, at));
            }
            let kind = Method::Get;
            return Ok(Some(RequestLine { kind, method, target, version: Version::HTTP_09, end: at + 2 }));
        }
        Some([b' ', ..]) => return Err((Problem::ExtraSpace, at)),
        Some(_) => return Err((control_or(bytes, at, Problem::BadTarget), at)),
    }
    if bytes.get(at) == Some(&b' ') {
        return Err((Problem::ExtraSpace, at));
    }
    let Some((version, end)) = version(bytes, at, limits)? else {
        return Ok(None);
    };
    match bytes.get(end..) {
        Some([b'\r', b'\n', ..]) => {}
        Some([] | [b'\r']) | None => return Ok(None),
        Some(_) => return Err((control_or(bytes, end, Problem::BadVersion), end)),
    }
    if version.major() != 1 && !limits.relaxed {
        let http2 = version == Version::HTTP_2 && &bytes[..at] == b"PRI * ";
        return Err((if http2 { Problem::Http2 } else { Problem::OtherVersion }, at));
    }
    let kind = Method::of(&bytes[method.clone()]);
    if bytes[target.start] != b'/' || kind == Method::Connect {
        check_form(&bytes[target.clone()], kind, limits).map_err(|problem| (problem, target.start))?;
    }
    Ok(Some(RequestLine { kind, method, target, version: normal(version), end: end + 2 }))
}

/// Returns the version to treat a message as: 1.1 and all later ones count as 1.1.
fn normal(version: Version) -> Version {
    if version >= Version::HTTP_11 { Version::HTTP_11 } else { Version::HTTP_10 }
}

/// Returns the problem with a control character at `at`, or `otherwise`.
fn control_or(bytes: &[u8], at: usize, otherwise: Problem) -> Problem {
    match bytes.get(at..) {
        Some([b'\r', next, ..]) if *next != b'\n' => Problem::BareCr,
        Some([b'\n', ..]) => Problem::BareLf,
        Some([byte, ..]) if (*byte < 0x20 && *byte != b'\r') || *byte == 0x7f => Problem::Control,
        _ => otherwise,
    }
}

/// Parses `HTTP/d.d` at `at`, and returns the version and its end. If relaxed, letters, a slash and numbers.
#[inline]
fn version(bytes: &[u8], at: usize, limits: &Limits) -> Lines<(Version, usize)> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    match rest {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', ..] if !limits.relaxed => {
            return Ok(Some((Version::HTTP_11, at + 8)));
        }
        [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9', ..]
            if !limits.relaxed || !rest.get(8).is_some_and(u8::is_ascii_digit) =>
        {
            return Ok(Some((Version::new(major - b'0', minor - b'0'), at + 8)));
        }
        _ => {}
    }
    if limits.relaxed { relaxed_version(rest, at) } else { partial_version(rest, at) }
}

/// Handles bytes that are no complete version, but may begin one.
#[cold]
fn partial_version(rest: &[u8], at: usize) -> Lines<(Version, usize)> {
    for (n, (&byte, expected)) in rest.iter().zip("HTTP/d.d".bytes()).enumerate() {
        let fine = if expected == b'd' { byte.is_ascii_digit() } else { byte == expected };
        if !fine {
            return Err((control_or(rest, n, Problem::BadVersion), at + n));
        }
    }
    Ok(None)
}

#[cold]
fn relaxed_version(rest: &[u8], at: usize) -> Lines<(Version, usize)> {
    let letters = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = |from: usize, len: usize| {
        syntax::decimal(&rest[from..from + len])
            .map_or(u8::MAX, |number| number.min(u64::from(u8::MAX)) as u8)
    };
    let mut end = letters;
    let mut numbers = [0; 2];
    for (number_at, separator) in numbers.iter_mut().zip(*b"/.") {
        match rest.get(end) {
            None => return Ok(None),
            Some(&byte) if byte == separator && letters > 0 => end += 1,
            Some(_) => return Err((control_or(rest, end, Problem::BadVersion), at + end)),
        }
        let len = digits(end);
        match rest.get(end + len) {
            None => return Ok(None),
            Some(_) if len == 0 || len > 9 => {
                return Err((control_or(rest, end, Problem::BadVersion), at + end));
            }
            Some(_) => *number_at = number(end, len),
        }
        end += len;
    }
    Ok(Some((Version::new(numbers[0], numbers[1]), at + end)))
}

/// Checks that a target other than a plain path has a form that its method may have (RFC 9112, 3.2).
#[cold]
fn check_form(target: &[u8], method: Method, limits: &Limits) -> Result<(), Problem> {
    use manylane_http::{Form, Target};
    let fine = match Target::of(target, method) {
        _ if method == Method::Connect => is_host_and_port(target, limits.lenient),
        Target { form: Form::Origin, .. } => true,
        Target { form: Form::Asterisk, .. } => method == Method::Options,
        Target { form: Form::Absolute, authority: Some(authority), .. } => {
            let host = manylane_http::without_user(authority);
            !host.is_empty() && is_host(host, limits.lenient)
        }
        _ => false,
    };
    if fine { Ok(()) } else { Err(Problem::TargetForm) }
}

/// Returns whether this is a host with an optional port: the value of `Host`, or an authority without user
/// information. It may be empty.
pub(crate) fn is_host(host: &[u8], lenient: Leniency) -> bool {
    let (name, port) = split_port(host);
    let name_fine = match name {
        [b'[', address @ .., b']'] => {
            !address.is_empty()
                && address.iter().all(|&byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'%' | b'-' | b'_' | b'~')
                })
        }
        name => name.iter().all(|&byte| syntax::is_host_byte(byte)),
    };
    let strict = name_fine && port.is_none_or(|port| port.iter().all(u8::is_ascii_digit) && port.len() <= 5);
    strict || lenient.has(Leniency::HOSTS) && is_lenient_host(host)
}

/// Does what [`is_host`] does, but only refuses bytes that end a host for some reader, and brackets that do
/// not enclose an address.
#[cold]
fn is_lenient_host(host: &[u8]) -> bool {
    let fine = |byte: &u8| {
        (0x21..0x7f).contains(byte) && !matches!(byte, b',' | b'#' | b'/' | b'?' | b'@' | b'\\' | b'[' | b']')
    };
    let (address, rest) = match host {
        [b'[', rest @ ..] => match rest.split_at_checked(scan::find(rest, 0, b']')) {
            Some((address, [b']', rest @ ..])) if !address.is_empty() => (address, rest),
            _ => return false,
        },
        rest => (&b""[..], rest),
    };
    let apart = address.is_empty() || matches!(rest, [] | [b':', ..]);
    apart && address.iter().all(fine) && rest.iter().all(fine)
}

fn is_host_and_port(target: &[u8], lenient: Leniency) -> bool {
    let (name, port) = split_port(target);
    let digits =
        port.is_some_and(|port| (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit));
    !name.is_empty() && digits && is_host(target, lenient)
}

/// Splits a host into the name and the text behind its colon.
pub(crate) fn split_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let name_end = if host.first() == Some(&b'[') { scan::find(host, 0, b']') } else { 0 };
    let colon = scan::find(host, name_end, b':');
    (&host[..colon], host.get(colon + 1..))
}

/// Parses `version SP status [SP reason] CRLF`.
pub(crate) fn status_line(bytes: &[u8], limits: &Limits) -> Lines<StatusLine> {
    let Some((version, at)) = version(bytes, 0, limits)? else {
        return Ok(None);
    };
    match bytes.get(at) {
        None => return Ok(None),
        Some(b' ') => {}
        Some(_) => return Err((control_or(bytes, at, Problem::BadVersion), at)),
    }
    if version.major() != 1 && !limits.relaxed {
        return Err((Problem::OtherVersion, 0));
    }
    let at = at + 1;
    let digits = bytes.get(at..).unwrap_or(&[]);
    let count = digits.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    let &[a, b, c, ..] = digits else {
        let wrong = count < digits.len();
        return if wrong {
            Err((control_or(bytes, at + count, Problem::BadStatus), at + count))
        } else {
            Ok(None)
        };
    };
    if count < 3 || !matches!(a, b'1'..=b'9') {
        let at = at + if count < 3 { count } else { 0 };
        return Err((control_or(bytes, at, Problem::BadStatus), at));
    }
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    let at = at + 3;
    let start = match bytes.get(at) {
        None => return Ok(None),
        Some(b' ') => at + 1,
        Some(b'\r') => at, // many servers omit the space if there is no reason
        Some(byte) => {
            let problem = if byte.is_ascii_digit() { Problem::BadStatus } else { Problem::BadReason };
            return Err((control_or(bytes, at, problem), at));
        }
    };
    Ok(match end_of_line(bytes, start)? {
        End::Missing => None,
        End::At(end) => {
            Some(StatusLine { version: normal(version), status, reason: start..end, end: end + 2 })
        }
    })
}

/// Parses the fields from `at` to the empty line into `fields`, and calls `see` for those with well-known
/// names. Returns the end of the head.
#[inline]
pub(crate) fn fields(
    bytes: &[u8],
    mut at: usize,
    limits: &Limits,
    fields: &mut Fields,
    mut see: impl FnMut(Known, &[u8], usize) -> Result<(), Problem>,
) -> Lines<usize> {
    loop {
        if bytes.get(at).is_none_or(|&byte| byte <= b' ') {
            match bytes.get(at..) {
                Some([b'\r', b'\n', ..]) => return Ok(Some(at + 2)),
                Some([b'\r'] | []) | None => return Ok(None),
                Some([b'\r', ..]) => return Err((Problem::BareCr, at)),
                Some([b'\n', ..]) => return Err((Problem::BareLf, at)),
                Some([b' ' | b'\t', ..]) => return Err((Problem::Folded, at)),
                Some(_) => {} // no name begins with it
            }
        }
        let colon = scan::find(bytes, at, b':');
        let name = &bytes[at..colon];
        let known = Known::of(name);
        if known == Known::OTHER {
            check_name(bytes, at, colon)?;
        }
        if colon == bytes.len() {
            return Ok(None);
        }
        let mut start = colon + 1;
        while let Some(b' ' | b'\t') = bytes.get(start) {
            start += 1;
        }
        let End::At(line_end) = end_of_line(bytes, start)? else {
            return Ok(None);
        };
        let mut value_end = line_end;
        while value_end > start && matches!(bytes[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        let value = &bytes[start..value_end];
        if fields.len() + 1 >= limits.fields {
            return Err((Problem::TooManyFields, at));
        }
        let line = FieldLine {
            name: at as u16,
            name_len: name.len() as u16,
            value: start as u16,
            value_len: value.len() as u16,
            end: (line_end + 2) as u16,
            known,
        };
        fields.push(line).map_err(|error| match error {
            PushError::TooMany => (Problem::TooManyFields, at),
            PushError::NoMemory => (Problem::NoMemory, at),
        })?;
        if known != Known::OTHER {
            see(known, value, start).map_err(|problem| (problem, start))?;
        }
        at = line_end + 2;
    }
}

/// Checks that the bytes from `at` to `colon`, or to their end, are a name.
#[inline]
fn check_name(bytes: &[u8], at: usize, colon: usize) -> Result<(), Refusal> {
    if colon > at && scan::name_end(bytes, at) >= colon {
        return Ok(());
    }
    match bytes[at..colon].iter().position(|&byte| !syntax::is_token_byte(byte)) {
        Some(n) => Err(bad_name(bytes, at, at + n)),
        None if at == colon && colon < bytes.len() => Err((Problem::EmptyName, at)),
        None => Ok(()),
    }
}

/// Returns the problem of the byte at `wrong` in the name that begins at `at`. Not for heads that may go on:
/// the caller waits when a lone carriage return is at the end.
#[cold]
fn bad_name(bytes: &[u8], at: usize, wrong: usize) -> Refusal {
    match bytes[wrong] {
        b'\r' if bytes.get(wrong + 1).is_none_or(|&next| next == b'\n') => (Problem::NoColon, at),
        b' ' | b'\t' => {
            let rest = &bytes[wrong..];
            let next = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
            let before_colon = next.is_none_or(|n| rest[n] == b':');
            (if before_colon { Problem::SpaceBeforeColon } else { Problem::BadName }, wrong)
        }
        _ => (control_or(bytes, wrong, Problem::BadName), wrong),
    }
}
