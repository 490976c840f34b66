//! Answers of the proxy itself: its short error pages, redirects, and files that replace them (`errorfile`).

use crate::head::{EditError, Head};
use crate::method::Method;
use crate::name::Known;
use crate::status;
use crate::syntax::{decimal, is_token, is_value, trim};
use crate::version::Version;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A whole answer that is kept: bytes as they are sent, checked when the configuration was read. Cloning
/// shares it.
#[derive(Clone, Debug)]
pub struct Reply {
    bytes: Arc<[u8]>,
    status: u16,
    reason: Range<usize>,
    fields: Arc<[(Range<usize>, Range<usize>)]>,
    body: usize,
}

/// Why a file cannot be an answer: a sentence, and the offset of the byte that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError {
    /// What is wrong, and what to do.
    pub what: &'static str,
    /// Where in the file.
    pub at: usize,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.what, self.at)
    }
}

impl std::error::Error for ReplyError {}

/// What the pages say, by status.
fn sentence(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "All is well.",
        400 => "This request is not valid, and was not passed on.",
        401 => "Who you are has to be shown before this can be reached.",
        403 => "This request is not allowed here.",
        404 => "There is nothing at this address.",
        405 => "This method is not allowed here.",
        407 => "The proxy has to know who you are before it passes this on.",
        408 => "The request did not arrive in time.",
        410 => "What was at this address is gone for good.",
        413 => "The request is larger than what is accepted here.",
        414 => "The address is longer than what is accepted here.",
        421 => "This connection does not serve the host that was asked for.",
        422 => "The request is well-formed, but cannot be followed.",
        425 => "This request came too early to be safe; send it again.",
        429 => "There were too many requests in a short time; try again later.",
        431 => "The header fields are larger than what is accepted here.",
        500 => "Something went wrong inside the proxy.",
        501 => "The request needs something that is not supported here.",
        502 => "The server's answer was missing or not valid.",
        503 => "No server can take this request at the moment.",
        504 => "The server did not answer in time.",
        505 => "This version of the protocol is not supported here.",
        _ => return None,
    })
}

/// Whether there is a page for that status, which error files may take the place of.
pub fn has_page(status: u16) -> bool {
    sentence(status).is_some()
}

impl Reply {
    /// The built-in answer with this status: a short page, not to be cached. 400, 408 and what else leaves
    /// the connection in doubt say that it ends.
    pub fn built_in(status: u16) -> Self {
        let reason = status::reason(status);
        let body = format!(
            "<html><body><h1>{status} {reason}</h1>\n{}\n</body></html>\n",
            sentence(status).unwrap_or("The request could not be served.")
        );
        let close = if matches!(status, 400 | 408 | 413 | 414 | 431 | 500 | 501 | 505) {
            "Connection: close\r\n"
        } else {
            ""
        };
        let authenticate = match status {
            401 => "WWW-Authenticate: Basic realm=\"restricted\"\r\n",
            407 => "Proxy-Authenticate: Basic realm=\"restricted\"\r\n",
            _ => "",
        };
        let text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\nCache-Control: \
                no-cache\r\n{close}{authenticate}\
             Content-Type: text/html\r\n\r\n{body}",
            body.len()
        );
        Self::read(text.as_bytes()).expect("the text is made of valid parts")
    }

    /// An `errorfile`'s contents. Line ends may be line feeds alone, since people write these files; they are
    /// sent as they should be. A `Content-Length` that is not right, or none, is put right;
    /// `Transfer-Encoding` is refused.
    ///
    /// # Errors
    /// [`ReplyError`]
    pub fn read(file: &[u8]) -> Result<Self, ReplyError> {
        let refused = |what, at| ReplyError { what, at };
        let mut lines = Lines { file, at: 0 };
        let (line_at, line) = lines
            .next()
            .ok_or(refused("the file has no first line: begin it with HTTP/1.1, a status and a reason", 0))?;
        let (version_ok, rest) = match line.split_at_checked(9) {
            Some((b"HTTP/1.0 " | b"HTTP/1.1 ", rest)) => (true, rest),
            _ => (false, line),
        };
        if !version_ok {
            return Err(refused("the first line must begin with HTTP/1.0 or HTTP/1.1 and a space", line_at));
        }
        let (digits, reason) = rest
            .split_at_checked(3)
            .ok_or(refused("the first line has no status of three digits", line_at + 9))?;
        let status = decimal(digits).filter(|status| (200..=599).contains(status));
        let status =
            status.ok_or(refused("the status must be a number from 200 to 599", line_at + 9))? as u16;
        let reason = match reason {
            [] => reason,
            [b' ', reason @ ..] if is_value(reason) => reason,
            _ => {
                return Err(refused(
                    "a space and text without control characters must follow the status",
                    line_at + 12,
                ));
            }
        };
        let mut bytes = Vec::with_capacity(file.len() + 64);
        bytes.extend_from_slice(b"HTTP/1.1 ");
        bytes.extend_from_slice(digits);
        bytes.push(b' ');
        let reason_at = bytes.len();
        bytes.extend_from_slice(reason);
        let reason = reason_at..bytes.len();
        bytes.extend_from_slice(b"\r\n");
        let mut fields = Vec::new();
        loop {
            let (at, line) = lines
                .next()
                .ok_or(refused("the head does not end: put an empty line behind the fields", file.len()))?;
            if line.is_empty() {
                break;
            }
            let colon = memchr::memchr(b':', line).ok_or(refused("a field's line has no colon", at))?;
            let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
            if !is_token(name) {
                return Err(refused(
                    "a field's name must be letters, digits and hyphens, without a space before the colon",
                    at,
                ));
            }
            if !is_value(value) {
                return Err(refused("a field's value must not have control characters", at + colon + 1));
            }
            match Known::of(name) {
                Known::CONTENT_LENGTH => continue, // known better
                Known::TRANSFER_ENCODING => {
                    return Err(refused(
                        "Transfer-Encoding is not possible here: leave it out, the length is known",
                        at,
                    ));
                }
                _ => push_field(&mut bytes, &mut fields, name, value),
            }
        }
        let body = file.get(lines.at..).unwrap_or(&[]);
        if body.len() + bytes.len() > MAX_REPLY {
            return Err(refused("the answer is too large: make it fit into 16 KiB", MAX_REPLY));
        }
        if !matches!(status, 204 | 304) {
            push_field(&mut bytes, &mut fields, b"Content-Length", body.len().to_string().as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        let body_at = bytes.len();
        bytes.extend_from_slice(body);
        Ok(Self { bytes: bytes.into(), status, reason, fields: fields.into(), body: body_at })
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// All of it, as it is sent to a client of HTTP/1 that did not ask with `HEAD`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What follows the head.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// What is to be sent to a request with `method`.
    pub fn bytes_for(&self, method: Method) -> &[u8] {
        if method == Method::Head { &self.bytes[..self.body] } else { &self.bytes }
    }

    /// A head with its status and fields, for rules to edit; the body has to be sent behind it.
    ///
    /// # Errors
    /// [`EditError`]
    pub fn head(&self) -> Result<Head, EditError> {
        let mut head = Head::response(Version::HTTP_11, self.status, Some(&self.bytes[self.reason.clone()]))?;
        for (name, value) in self.fields.iter() {
            head.add_field(&self.bytes[name.clone()], &self.bytes[value.clone()])?;
        }
        Ok(head)
    }
}

/// The most bytes of a kept answer.
pub const MAX_REPLY: usize = 16_384;

fn push_field(
    bytes: &mut Vec<u8>,
    fields: &mut Vec<(Range<usize>, Range<usize>)>,
    name: &[u8],
    value: &[u8],
) {
    let name_at = bytes.len();
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(b": ");
    let value_at = bytes.len();
    bytes.extend_from_slice(value);
    fields.push((name_at..name_at + name.len(), value_at..bytes.len()));
    bytes.extend_from_slice(b"\r\n");
}

/// Lines that end with a line feed, a carriage return before it or not.
struct Lines<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// Where the line begins, and the line. None behind the last line end.
    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let rest = self.file.get(self.at..)?;
        let end = memchr::memchr(b'\n', rest)?;
        let at = self.at;
        self.at += end + 1;
        let line = &rest[..end];
        Some((at, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// A redirect, `http-request redirect` and `errorloc`: a response without a body that sends the client to
/// `location`.
///
/// # Errors
/// [`EditError`]; the location must not have control characters.
pub fn redirect(status: u16, location: &[u8], set_cookie: Option<&[u8]>) -> Result<Head, EditError> {
    let mut head = Head::response(Version::HTTP_11, status, None)?;
    head.add_field(Known::CONTENT_LENGTH, b"0")?;
    head.add_field(Known::LOCATION, location)?;
    if matches!(status, 302 | 303 | 307) {
        head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
    }
    if let Some(cookie) = set_cookie {
        head.add_field(Known::SET_COOKIE, cookie)?;
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_answers_are_whole_and_say_their_length() {
        for status in [
            200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 414, 421, 422, 425, 429, 431, 500, 501, 502,
            503, 504, 505,
        ] {
            let reply = Reply::built_in(status);
            let text = std::str::from_utf8(reply.bytes()).expect("text");
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
            assert!(text.contains(&format!("Content-Length: {}\r\n", reply.body().len())), "{text}");
            assert!(reply.body().ends_with(b"</html>\n"));
            let head = reply.head().expect("valid");
            assert_eq!((head.status(), head.reason()), (status, status::reason(status).as_bytes()));
            assert_eq!(head.value("content-type"), Some(&b"text/html"[..]));
            assert_eq!(
                reply.bytes_for(Method::Head).len() + reply.body().len(),
                reply.bytes_for(Method::Get).len()
            );
        }
    }

    #[test]
    fn a_file_is_put_right_or_refused_with_its_place() {
        let reply = Reply::read(b"HTTP/1.0 503 No\nX: y \nContent-Length: 99\n\nbody\n").expect("valid");
        assert_eq!(reply.bytes(), b"HTTP/1.1 503 No\r\nX: y\r\nContent-Length: 5\r\n\r\nbody\n");
        assert_eq!(Reply::read(b"HTTP/1.1 304\r\n\r\n").expect("valid").bytes(), b"HTTP/1.1 304 \r\n\r\n");
        for (file, at) in [
            (&b""[..], 0),
            (b"HTTP/1.1 503 No", 0),
            (b"HTTP/2.0 503 No\r\n\r\n", 0),
            (b"<html>\n", 0),
            (b"HTTP/1.1 5\r\n\r\n", 9),
            (b"HTTP/1.1 100 Go\r\n\r\n", 9),
            (b"HTTP/1.1 503-No\r\n\r\n", 12),
            (b"HTTP/1.1 503 No\r\n", 17),
            (b"HTTP/1.1 503 No\r\nX\r\n\r\n", 17),
            (b"HTTP/1.1 503 No\r\nX : y\r\n\r\n", 17),
            (b"HTTP/1.1 503 No\r\nX: a\0b\r\n\r\n", 19),
            (b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", 17),
        ] {
            assert_eq!(
                Reply::read(file).map(|_| ()).map_err(|error| error.at),
                Err(at),
                "{}",
                file.escape_ascii()
            );
        }
        let large = [&b"HTTP/1.1 503 No\r\n\r\n"[..], &[b'x'; MAX_REPLY]].concat();
        assert!(Reply::read(&large).is_err());
    }

    #[test]
    fn a_redirect_cannot_carry_a_second_field() {
        let head = redirect(302, b"https://a/b", Some(b"x=1")).expect("valid");
        assert_eq!((head.status(), head.value(Known::LOCATION)), (302, Some(&b"https://a/b"[..])));
        assert!(matches!(redirect(301, b"/a\r\nX: y", None), Err(EditError::Invalid(_))));
    }
}
