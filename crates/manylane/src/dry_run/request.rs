//! The request of `manylane test`, from words or from bytes.

use super::arguments::TestArguments;
use super::found;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Largest request with its body, in bytes: memory holds several copies.
const MOST_BYTES: u64 = 16 << 20;

/// A request, and what its URL says of the connection that it comes over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// `https` or `http`, if the URL has a scheme.
    pub(super) tls: Option<bool>,
    /// The URL's host.
    pub(super) host: Option<String>,
    /// The URL's port, if it has one.
    pub(super) port: Option<u16>,
    /// The command line has the request itself, so it is an HTTP request.
    pub(super) in_words: bool,
}

impl Request {
    /// Makes the request from the command line, or reads it from a file or standard input.
    ///
    /// # Errors
    /// A sentence about the fault in the command line, or the reason why the file cannot be read.
    pub(super) fn read(arguments: &TestArguments) -> Result<Self, String> {
        let word = arguments.request.as_bytes();
        let raw = match word {
            b"-" => Some(OsStr::new("-")),
            [b'@', file @ ..] => Some(OsStr::from_bytes(file)),
            _ => None,
        };
        if let Some(file) = raw {
            if !arguments.fields.is_empty() || arguments.body.is_some() {
                return Err(format!(
                    "'-H' and '--body' expect a request in words, found {}: write them into it",
                    found(&arguments.request.to_string_lossy())
                ));
            }
            return Ok(Self { bytes: with_line_ends(contents(file)?), ..Self::default() });
        }
        let Some(text) = arguments.request.to_str() else {
            return Err(
                "a request expects text in UTF-8; write it into a file, and '@' before its name".into()
            );
        };
        let body = arguments.body.as_deref().map(contents).transpose()?;
        Self::in_words(text, &arguments.fields, body)
    }

    fn in_words(text: &str, fields: &[Vec<u8>], body: Option<Vec<u8>>) -> Result<Self, String> {
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        let version = match words.last() {
            Some(last) if words.len() > 1 && last.starts_with("HTTP/") => words.pop().unwrap_or_default(),
            _ => "HTTP/1.1",
        };
        if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
            return Err(format!(
                "a request in words expects HTTP/1.1 or HTTP/1.0, found {}; rules see the same in \
                 HTTP/2",
                found(version)
            ));
        }
        let (method, url) = match words[..] {
            [url] => (if body.is_some() { "POST" } else { "GET" }, url),
            [method, url] => (method, url),
            _ => {
                return Err(format!(
                    "a request expects '[<method>] <URL or path>', such as 'GET https://www.example.org/', \
                     found {}",
                    found(text)
                ));
            }
        };
        let Url { tls, host, port, authority, target } = Url::parse(method, url)?;
        let has = |name: &str| {
            fields.iter().any(|field| {
                let own = field.split(|&byte| byte == b':').next().unwrap_or_default();
                own.eq_ignore_ascii_case(name.as_bytes())
            })
        };
        if authority.is_none() && version == "HTTP/1.1" && !has("host") {
            return Err(format!(
                "a request of HTTP/1.1 expects a host, found {}: write a URL, or -H 'Host: ...'",
                found(text)
            ));
        }
        let mut bytes = format!("{method} {target} {version}\r\n").into_bytes();
        if let Some(authority) = authority.filter(|_| !has("host")) {
            bytes.extend_from_slice(format!("Host: {authority}\r\n").as_bytes());
        }
        for field in fields {
            if !field.contains(&b':') || field.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
                let field = String::from_utf8_lossy(field);
                return Err(format!("'-H' expects '<name>: <value>' in one line, found {}", found(&field)));
            }
            bytes.extend_from_slice(field);
            bytes.extend_from_slice(b"\r\n");
        }
        if let Some(body) = &body
            && !has("content-length")
            && !has("transfer-encoding")
        {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body.unwrap_or_default());
        Ok(Self { bytes, tls, host, port, in_words: true })
    }
}

/// The parts of a URL, or of a path alone.
struct Url<'a> {
    tls: Option<bool>,
    host: Option<String>,
    port: Option<u16>,
    /// For the field `Host`.
    authority: Option<&'a str>,
    /// Target for the request line.
    target: String,
}

impl<'a> Url<'a> {
    fn parse(method: &str, url: &'a str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let target = url.to_owned();
            if method.eq_ignore_ascii_case("CONNECT") {
                let (host, port) = host_and_port(url)?;
                return Ok(Self { tls: None, host: Some(host), port, authority: Some(url), target });
            }
            if !url.starts_with('/') && url != "*" {
                return Err(format!(
                    "a request expects a URL that begins with http:// or https://, or a path, found {}",
                    found(url)
                ));
            }
            return Ok(Self { tls: None, host: None, port: None, authority: None, target });
        };
        let tls = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(format!("a URL expects http:// or https://, found {}", found(url))),
        };
        let rest = rest.split('#').next().unwrap_or_default(); // fragments are not sent
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(format!(
                "a URL expects no user before its host, found {}; write -H 'Authorization: Basic ...'",
                found(authority)
            ));
        }
        let (host, port) = host_and_port(authority)?;
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { tls: Some(tls), host: Some(host), port, authority: Some(authority), target })
    }
}

/// Splits `host`, `host:port`, `[address]` or `[address]:port`.
fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let inside = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match inside {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("?"))),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let number = port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
    match (host.is_empty(), number) {
        (false, None) => Ok((host.to_owned(), None)),
        (false, Some(Some(port))) => Ok((host.to_owned(), Some(port))),
        _ => Err(format!("a URL expects a host, with or without ':' and a port, found {}", found(authority))),
    }
}

/// The bytes of a file, or of standard input.
fn contents(file: &OsStr) -> Result<Vec<u8>, String> {
    let name = file.to_string_lossy();
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", found(&name));
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!(
            "{} has more than {MOST_BYTES} bytes: test with a shorter request",
            found(&name)
        ));
    }
    Ok(bytes)
}

/// The head of a request that was written with an editor, with the line ends of HTTP. A head that has some
/// already stays as it is.
fn with_line_ends(bytes: Vec<u8>) -> Vec<u8> {
    let first = bytes.iter().position(|&byte| byte == b'\n');
    if first.is_none_or(|at| at > 0 && bytes[at - 1] == b'\r') {
        return bytes;
    }
    let end = bytes.windows(2).position(|pair| pair == b"\n\n").map_or(bytes.len(), |at| at + 2);
    let mut all = Vec::with_capacity(bytes.len() + 64);
    for &byte in &bytes[..end] {
        if byte == b'\n' {
            all.push(b'\r');
        }
        all.push(byte);
    }
    all.extend_from_slice(&bytes[end..]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, fields: &[&str], body: Option<&str>) -> Result<Request, String> {
        let fields: Vec<_> = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
        Request::in_words(text, &fields, body.map(|body| body.as_bytes().to_vec()))
    }

    #[test]
    fn words_become_a_request() {
        for (text, fields, body, bytes) in [
            ("https://a.test", &[][..], None, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            (
                "GET http://a.test:81?q#f",
                &["A: 1"],
                None,
                "GET /?q HTTP/1.1\r\nHost: a.test:81\r\nA: 1\r\n\r\n",
            ),
            ("PUT https://[::1]:8/x HTTP/1.0", &["host:b"], None, "PUT /x HTTP/1.0\r\nhost:b\r\n\r\n"),
            ("/x", &["Host: a"], Some("a"), "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na"),
            ("GET /x HTTP/1.0", &[], None, "GET /x HTTP/1.0\r\n\r\n"),
            ("OPTIONS *", &["Host: a"], None, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("CONNECT a.test:443", &[], None, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"),
        ] {
            let request = read(text, fields, body).unwrap();
            assert_eq!(String::from_utf8(request.bytes).unwrap(), bytes, "{text}");
        }
        let request = read("https://A.test:8443/", &[], None).unwrap();
        assert_eq!((request.tls, request.port), (Some(true), Some(8443)));
        assert_eq!(request.host.as_deref(), Some("A.test"));
    }

    #[test]
    fn what_is_no_request_is_reported_in_one_sentence() {
        for (text, fields, sentence) in [
            ("", &[][..], "expects '[<method>] <URL or path>'"),
            ("GET a b", &[], "expects '[<method>] <URL or path>'"),
            ("GET a.test/x", &[], "expects a URL that begins with http:// or https://, or a path"),
            ("ftp://a.test/", &[], "a URL expects http:// or https://, found 'ftp://a.test/'"),
            ("http://a:b/", &[], "a URL expects a host, with or without ':' and a port, found 'a:b'"),
            ("http:///x", &[], "a URL expects a host"),
            ("http://u@a/", &[], "a URL expects no user before its host, found 'u@a'"),
            ("GET / HTTP/2", &[], "expects HTTP/1.1 or HTTP/1.0, found 'HTTP/2'"),
            ("GET /", &["A: 1"], "a request of HTTP/1.1 expects a host, found 'GET /'"),
            ("http://a/", &["no colon"], "'-H' expects '<name>: <value>' in one line, found 'no colon'"),
            ("http://a/", &["a: b\r\nc: d"], "'-H' expects '<name>: <value>' in one line"),
        ] {
            let error = read(text, fields, None).unwrap_err();
            assert!(error.contains(sentence), "{text}: {error}");
        }
    }

    #[test]
    fn heads_from_an_editor_get_the_line_ends_of_http() {
        let plain = b"GET / HTTP/1.1\nhost: a\n\nbody\n".to_vec();
        assert_eq!(with_line_ends(plain), b"GET / HTTP/1.1\r\nhost: a\r\n\r\nbody\n");
        let strict = b"GET / HTTP/1.1\r\nhost: a\n\r\n".to_vec();
        assert_eq!(with_line_ends(strict.clone()), strict);
    }
}
