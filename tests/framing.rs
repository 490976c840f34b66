//! Framing, seen from both ends: an origin and clients parse each byte by RFC 9112, without this program's
//! parser, and refuse everything that two parsers could read differently. Each request has a number, and its
//! response repeats it.
//!
//! `MANYLANE_SEED` repeats a random run, `MANYLANE_LONG=1` makes it 13 times as long.

use crate::common;

use crate::drips::all_is_read;
use crate::h2_settings::{self, Raw};
use crate::h2_websocket::accept_of;
use common::{DEFAULTS, Folder, Manylane, connect, fd, listener, origin, watch};
use manylane_h1::Problem;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};

/// A message as the reference parser reads it.
#[derive(Debug)]
struct Message {
    line: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    length: usize,
}

impl Message {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(there, _)| there == name).map(|(_, value)| &**value)
    }

    fn status(&self) -> u16 {
        self.line.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// Reads lines up to an empty one; `None` if more bytes are needed.
fn lines(bytes: &[u8], at: &mut usize) -> Result<Option<Vec<String>>, String> {
    let mut lines = Vec::new();
    loop {
        let Some(n) = bytes[*at..].iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line = bytes[*at..*at + n].strip_suffix(b"\r").ok_or("a line feed alone")?;
        if line.iter().any(|&byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(format!("a control character in {:?}", String::from_utf8_lossy(line)));
        }
        *at += n + 1;
        if line.is_empty() {
            return Ok(Some(lines));
        }
        lines.push(String::from_utf8_lossy(line).into_owned());
    }
}

fn field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or(format!("no colon in {line:?}"))?;
    if !is_token(name) {
        return Err(format!("no name in {line:?}"));
    }
    Ok((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()))
}

fn is_token(text: &str) -> bool {
    let is = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is)
}

/// Checks the parts of a request that say what is asked for (RFC 9112, 3.2). Two forms pass that are not
/// those of RFC 3986, as in HAProxy and told in docs/migrating.md: bytes such as `"<>` in a target, and text
/// that is no port behind the colon of a host.
fn check_target(method: &str, target: &str, version: &str, hosts: &[&str]) -> Result<(), String> {
    if !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(format!("{method:?} of {target:?}"));
    }
    let host = match hosts {
        [] if version == "HTTP/1.0" => return Ok(()),
        [host] => host,
        _ => return Err(format!("{} hosts", hosts.len())),
    };
    if !host.bytes().all(|byte| byte.is_ascii_graphic() && !b",#/?@\\".contains(&byte)) {
        return Err(format!("the host {host:?}"));
    }
    let Some((scheme, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        let fine = target.starts_with('/') || method == "OPTIONS" && target == "*";
        return if fine { Ok(()) } else { Err(format!("the target {target:?}")) };
    };
    let authority = rest.split(['/', '?']).next().unwrap();
    let authority = authority.rsplit('@').next().unwrap();
    let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let plain = |host: &str| {
        let host = host.strip_suffix(port).or(host.strip_suffix(':')).unwrap_or(host);
        host.to_ascii_lowercase()
    };
    if plain(authority) == plain(host) { Ok(()) } else { Err(format!("{target:?} for the host {host:?}")) }
}

/// Parses one message at the start of `bytes`; `None` if more bytes are needed. `ended` says that no more
/// will come.
fn judge(bytes: &[u8], request: bool, ended: bool) -> Result<Option<Message>, String> {
    let mut at = 0;
    let Some(mut head) = lines(bytes, &mut at)? else { return Ok(None) };
    if head.is_empty() {
        return Err("an empty line before a message".into());
    }
    let line = head.remove(0);
    let parts: Vec<&str> = line.splitn(3, ' ').collect();
    let version = if request { parts.last() } else { parts.first() };
    let code = |status: &&str| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    let fine = parts.len() == 3
        && matches!(version, Some(&("HTTP/1.1" | "HTTP/1.0")))
        && (request || parts.get(1).is_some_and(code));
    if !fine {
        return Err(format!("the first line is {line:?}"));
    }
    let old = version == Some(&"HTTP/1.0");
    let status = parts.get(1).copied().unwrap_or("");
    let fields: Vec<_> = head.iter().map(|line| field(line)).collect::<Result<_, _>>()?;
    let all = |name: &str| {
        fields.iter().filter(|(there, _)| there == name).map(|(_, value)| &**value).collect::<Vec<_>>()
    };
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    if request {
        check_target(parts[0], parts[1], parts[2], &all("host"))?;
    }
    if fields.iter().any(|(name, value)| name == "upgrade" && value == "websocket") {
        let name = if request { "sec-websocket-key" } else { "sec-websocket-accept" };
        // Base64 of 16 bytes, or of 20.
        let (size, end) = if request { (22, "==") } else { (27, "=") };
        let digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        let good = |value: &str| {
            value.strip_suffix(end).is_some_and(|digits| digits.len() == size && digits.bytes().all(digit))
        };
        if !matches!(all(name)[..], [value] if good(value)) {
            return Err(format!("{:?} for {name}", all(name)));
        }
    }
    let body = match (&lengths[..], &codings[..]) {
        ([], []) if request || status.starts_with('1') || matches!(status, "204" | "304") => Vec::new(),
        ([], []) if !ended => return Ok(None),
        ([], []) => {
            let rest = bytes[at..].to_vec();
            at = bytes.len();
            rest
        }
        ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| "a length beyond all bounds")?;
            let Some(body) = bytes.get(at..).and_then(|rest| rest.get(..length)) else { return Ok(None) };
            at += length;
            body.to_vec()
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && !old => {
            let mut body = Vec::new();
            loop {
                let Some(n) = bytes[at..].iter().position(|&byte| byte == b'\n') else { return Ok(None) };
                let size = bytes[at..at + n].strip_suffix(b"\r").ok_or("a line feed behind a size")?;
                if size.is_empty() || size.len() > 15 || !size.iter().all(u8::is_ascii_hexdigit) {
                    return Err(format!("a size of {:?}", String::from_utf8_lossy(size)));
                }
                let size = usize::from_str_radix(std::str::from_utf8(size).unwrap(), 16).unwrap();
                at += n + 1;
                if size == 0 {
                    break;
                }
                let Some(data) = bytes.get(at..).and_then(|rest| rest.get(..size)) else { return Ok(None) };
                body.extend_from_slice(data);
                at += size;
                match bytes.get(at..at + 2) {
                    None => return Ok(None),
                    Some(b"\r\n") => at += 2,
                    Some(_) => return Err("no line end behind a chunk".into()),
                }
            }
            let Some(trailers) = lines(bytes, &mut at)? else { return Ok(None) };
            trailers.iter().try_for_each(|line| field(line).map(drop))?;
            body
        }
        _ => return Err(format!("a body of {lengths:?} and {codings:?}")),
    };
    Ok(Some(Message { line, fields, body, length: at }))
}

/// Errors that were found.
type Wrongs = Arc<Mutex<Vec<String>>>;

/// An origin that checks its input and responds with the request's number and body, or with `answer`.
fn judging(wrongs: &Wrongs, answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    judging_in_pieces(wrongs, move |message| vec![answer(message)])
}

/// The same, with responses in pieces, each of which is a segment of its own.
fn judging_in_pieces(
    wrongs: &Wrongs,
    answer: impl Fn(&Message) -> Vec<Vec<u8>> + Send + Sync + 'static,
) -> SocketAddr {
    let wrongs = wrongs.clone();
    origin(move |mut stream| {
        stream.set_nodelay(true).unwrap();
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = stream.read(&mut part) {
            bytes.extend_from_slice(&part[..n]);
            loop {
                match judge(&bytes, true, false) {
                    Ok(None) => break,
                    Ok(Some(message)) => {
                        bytes.drain(..message.length);
                        for piece in answer(&message) {
                            if stream.write_all(&piece).is_err() {
                                return;
                            }
                            manylane_tests::look_again();
                        }
                        if message.field("x-last").is_some() {
                            return;
                        }
                    }
                    Err(why) => {
                        let sent = String::from_utf8_lossy(&bytes).into_owned();
                        wrongs.lock().unwrap().push(format!("the origin got {why}: {sent:?}"));
                        return;
                    }
                }
            }
        }
    })
}

fn echo(message: &Message) -> Vec<u8> {
    let id = message.field("x-id").unwrap_or("none");
    let head = format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nContent-Length: {}\r\n\r\n", message.body.len());
    [head.as_bytes(), &message.body].concat()
}

/// The program with a strict, a lenient and a default proxy in front of the origin.
struct Pair {
    program: Manylane,
    addresses: [SocketAddr; 3],
    control: std::path::PathBuf,
    _folder: Folder,
}

fn start(server: SocketAddr) -> Pair {
    let ((strict, at), (lenient, lenient_at), (usual, usual_at)) = (listener(), listener(), listener());
    let folder = Folder::new();
    let control = folder.0.join("control");
    let program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n{DEFAULTS} mode http\n http-reuse always\nlisten strict\n bind {}\n \
         option http-strict-framing\n server s {server}\nlisten lenient\n bind {}\n \
         option accept-unsafe-violations-in-http-request\n option \
         accept-unsafe-violations-in-http-response\n server s {server}\n\
         listen usual\n bind {}\n server s {server}\n",
        control.display(),
        fd(&strict),
        fd(&lenient),
        fd(&usual),
    ));
    Pair { program, addresses: [at, lenient_at, usual_at], control, _folder: folder }
}

/// Sends these pieces and parses the responses.
fn ask<'a>(address: SocketAddr, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Message>, String> {
    let mut client = connect(address);
    client.set_nodelay(true).unwrap();
    for piece in pieces {
        if client.write_all(piece).is_err() {
            break; // refused already; the reason can be read
        }
    }
    let _ = client.shutdown(Shutdown::Write);
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match client.read(&mut part) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(format!("the client got {error} behind {} bytes", bytes.len())),
        }
    }
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        match judge(&bytes, false, true) {
            Ok(Some(message)) => {
                bytes.drain(..message.length);
                messages.push(message);
            }
            Ok(None) => break, // truncated by the end of the connection
            Err(why) => return Err(format!("the client got {why}: {:?}", String::from_utf8_lossy(&bytes))),
        }
    }
    Ok(messages)
}

fn plain(id: &str) -> Vec<u8> {
    format!("GET /{id} HTTP/1.1\r\nHost: a\r\nX-Id: {id}\r\n\r\n").into_bytes()
}

/// Text that no parser may take for a message.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\nX-Id: hidden\r\n\r\n";
const HIDDEN_ANSWER: &str = "HTTP/1.1 200 OK\r\nX-Id: hidden\r\nContent-Length: 0\r\n\r\n";

/// All combinations of heads, fields, line ends and framings.
fn crafted(first: &[&str], fixed: &str, hidden: &str) -> Vec<Vec<u8>> {
    let size = hidden.len();
    let chunks = |line: &str| line.replace("N", &format!("{size:x}")).replace('D', hidden);
    let chunked = chunks("N\r\nD\r\n0\r\n\r\n");
    let mut framings = vec![(format!("Content-Length: {size}\r\n"), hidden.to_owned())];
    for length in [
        "N\r\nContent-Length: N",
        "N, N",
        "N,N",
        "0N",
        "N\r\nContent-Length: 0",
        "0, N",
        "+N",
        " N \t",
        "N;",
        "-1",
        "\u{1}N",
        "N\r\n ",
    ] {
        let length = length.replace('N', &size.to_string());
        framings.push((format!("Content-Length: {length}\r\n"), hidden.to_owned()));
    }
    for coding in [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: Chunked\r\n",
        "Transfer-Encoding: \tchunked \r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: \u{1}chunked\r\n",
        "Transfer-Encoding: chunked\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\nContent-Length: 3\r\n",
    ] {
        framings.push((coding.into(), chunked.clone()));
    }
    for form in [
        "N \r\nD\r\n0\r\n\r\n",
        "N\t \r\nD\r\n0 \r\n\r\n",
        " N\r\nD\r\n0\r\n\r\n",
        "N;a=b\r\nD\r\n0;c\r\n\r\n",
        "N;a=\"\r\nD\r\n0\r\n\r\n",
        "00N\r\nD\r\n00\r\n\r\n",
        "N\nD\r\n0\r\n\r\n",
        "N\r\nD\n0\r\n\r\n",
        "N\r\nD0\r\n\r\n",
        "0xN\r\nD\r\n0\r\n\r\n",
        "N\r\nD\r\n0\r\nX: y\r\n\r\n",
        "N\r\nD\r\n0\r\nX: y\n\n",
        "N\r\nD\r\n0\r\nX: \u{1}y\r\n z\r\n\r\n",
        "N\r\nD\r\n0\r\nContent-Length: 1\r\n\r\n",
    ] {
        framings.push(("Transfer-Encoding: chunked\r\n".into(), chunks(form)));
    }
    let fields = [
        "",
        "X: a\u{1}b\r\n",
        "X: a\0b\r\n",
        "X: a\r\n b\r\n",
        "X: a\n",
        "X: a\rb\r\n",
        "X(\u{e9}: a\r\n",
        "X(: a\r\n b\r\n",
        "X(: a\rb\r\n",
        "X(: a\r\n b\rc\r\n",
        "X y: z\r\n",
        ": a\r\n",
        "X\r\n",
    ];
    let mut all = Vec::new();
    for first in first {
        for (framing, body) in &framings {
            all.push(format!("{first}{fixed}{framing}\r\n{body}"));
            all.push(format!("{first}{fixed}{framing}\r\n").replace("\r\n", "\n") + body);
        }
        for field in fields {
            all.push(format!("{first}{field}{fixed}Content-Length: {size}\r\n\r\n{hidden}"));
            all.push(format!("{first}{fixed}{field}Transfer-Encoding: chunked\r\n\r\n{chunked}"));
        }
    }
    all.into_iter().map(String::into_bytes).collect()
}

fn crafted_requests(id: &str) -> Vec<Vec<u8>> {
    let first = [
        "POST / HTTP/1.1\r\n",
        "POST  / \tHTTP/1.1\r\n",
        "\nPOST / HTTP/1.1\r\n",
        "POST / HTTP/1.0\r\n",
        "POST http://a/ HTTP/1.1\r\n",
        "POST http://b/ HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "POST /\u{e9}# HTTP/1.1\r\n",
        "POST / RTSP/1.1\r\n",
    ];
    crafted(&first, &format!("Host: a\r\nX-Id: {id}\r\n"), HIDDEN)
}

/// Checks that responses have the numbers of this client's requests, in order, and that there are no others.
fn in_order(answers: &[Message], ids: &[&str]) -> Result<(), String> {
    let mut left = ids.iter();
    for answer in answers {
        if let Some(id) = answer.field("x-id")
            && !left.any(|there| *there == id)
        {
            return Err(format!("an answer to {id} where {ids:?} were asked for"));
        }
    }
    Ok(())
}

fn assert_none(wrongs: &Wrongs) {
    let wrongs = wrongs.lock().unwrap();
    assert!(wrongs.is_empty(), "{} times, first: {:#?}", wrongs.len(), &wrongs[..wrongs.len().min(5)]);
}

#[test]
fn crafted_requests_reach_the_origin_as_one_plain_request_or_not_at_all() {
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, echo));
    let mut passed = [0; 3];
    for (n, message) in crafted_requests("ID").iter().enumerate() {
        for (which, address) in pair.addresses.into_iter().enumerate() {
            let [a, b, c] = ["a", "b", "c"].map(|part| format!("{n}-{which}-{part}"));
            let text = String::from_utf8_lossy(message).replace("X-Id: ID", &format!("X-Id: {b}"));
            let (before, behind) = (plain(&a), plain(&c));
            let outcome = ask(address, [&before[..], text.as_bytes(), &behind[..]]);
            let checked = outcome.and_then(|answers| {
                in_order(&answers, &[&a, &b, &c])?;
                if answers.first().and_then(|answer| answer.field("x-id")) != Some(&a) || answers.len() < 2 {
                    return Err(format!("not all was answered: {answers:?}"));
                }
                if answers[1].field("x-id").is_some() {
                    passed[which] += 1;
                    if answers[1].body != HIDDEN.as_bytes() {
                        return Err(format!("another body: {:?}", answers[1]));
                    }
                }
                Ok(())
            });
            if let Err(why) = checked {
                wrongs.lock().unwrap().push(format!("{why}\nof {text:?} (lenient: {which})"));
            }
        }
    }
    assert_none(&wrongs);
    assert!(passed[0] > 20 && passed[1] > 2 * passed[0], "passed: {passed:?}");
    assert!(passed[2] > passed[0] && passed[2] < passed[1], "passed: {passed:?}");
    let shown = watch::ask(&pair.control, "show errors");
    assert!(shown.contains("frontend lenient") && shown.contains("frontend strict"), "{shown}");
    drop(pair.program);
}

/// A request over HTTP/2 with the body [`HIDDEN`].
struct CraftedStream {
    fields: Vec<(&'static str, String)>,
    trailers: Vec<(&'static str, &'static str)>,
    is_right: bool,
}

/// Requests that RFC 9113 (8.1.1, 8.2, 8.3) calls malformed or that no line of HTTP/1 can say, and some that
/// are right.
fn crafted_streams() -> Vec<CraftedStream> {
    const USUAL: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let size = HIDDEN.len().to_string();
    let stream = |fields: Vec<(&'static str, &'static str)>, trailers, is_right| {
        let fields = fields.into_iter();
        let fields = fields.map(|(name, value)| match name {
            "content-length" => (name, value.replace('N', &size)),
            _ => (name, value.to_owned()),
        });
        CraftedStream { fields: fields.collect(), trailers, is_right }
    };
    let with = |more: &[(&'static str, &'static str)]| [&USUAL, more].concat();
    let mut all = Vec::new();
    for (which, values) in [
        ["", "GE T", " POST", "PO(ST", "POST\r\nx-evil: a", "POST / HTTP/1.1\r\nx-evil: a\r\n\r\nGET"]
            .as_slice(),
        &["", "ht tp", "http\r\nx-evil: a"],
        &["a b", "a\tb", "a/b", "a?b", "a#b", "a\\b", "b@a", "a\0", "a\r\nx-evil: a"],
        &[
            "",
            "a",
            "*",
            "/a b",
            "/a\t",
            "/a#b",
            "/\0",
            "/\u{7f}",
            "/\r\nx-evil: a",
            "/ HTTP/1.1\r\nx-evil: a\r\n\r\nGET /hidden",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        for value in values {
            let mut fields = USUAL.to_vec();
            fields[which].1 = value;
            all.push(stream(fields, vec![], false));
        }
        let without = USUAL.iter().copied().filter(|field| *field != USUAL[which]).collect::<Vec<_>>();
        let mut behind = without.clone();
        behind.extend([("x", "y"), USUAL[which]]);
        all.extend([without, with(&[USUAL[which]]), behind].map(|fields| stream(fields, vec![], false)));
    }
    let length = |value: &'static str| ("content-length", value);
    for fields in [
        [("transfer-encoding", "chunked")].as_slice(),
        &[length("N"), ("transfer-encoding", "chunked")],
        &[("transfer-encoding", "identity")],
        &[("te", "chunked")],
        &[("connection", "close")],
        &[("connection", "content-length"), length("N")],
        &[("keep-alive", "timeout=1")],
        &[("proxy-connection", "close")],
        &[("upgrade", "h2c")],
        &[("host", "b")],
        &[length("0")],
        &[length("3")],
        &[length("1000")],
        &[length("")],
        &[length("+N")],
        &[length("-1")],
        &[length("Nx")],
        &[length("N, 0")],
        &[length("N"), length("0")],
        &[length("0"), length("N")],
        &[("X", "a")],
        &[("x y", "a")],
        &[("x:", "a")],
        &[("x(", "a")],
        &[("", "a")],
        &[(":x", "a")],
        &[(":status", "200")],
        &[("x\0", "a")],
        &[("x\r\nx-evil", "a")],
        &[("x: a\r\nx-evil", "a")],
        &[("x: a\r\n\r\nGET /hidden HTTP/1.1\r\nhost", "a")],
        &[("x", "a\rb")],
        &[("x", "a\nx-evil: a")],
        &[("x", "a\r\nx-evil: a")],
        &[("x", "a\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a")],
        &[("x", "a\0b")],
        &[("cookie", "a=b\r\nx-evil: a"), ("cookie", "c=d")],
    ] {
        all.push(stream(with(fields), vec![], false));
    }
    for trailer in [
        (":path", "/"),
        ("X", "a"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("x\r\nx-evil", "a"),
        ("x", "a\r\nx-evil: a"),
        ("x", "a\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a"),
    ] {
        all.push(stream(USUAL.to_vec(), vec![trailer], false));
    }
    for fields in [
        [].as_slice(),
        &[length("N")],
        &[("te", "trailers")],
        &[("host", "a")],
        &[("cookie", "a=b"), ("cookie", "c=d")],
        &[("x", "a: b")],
    ] {
        all.push(stream(with(fields), vec![], true));
        all.push(stream(with(fields), vec![("x-sum", "a")], true));
    }
    all
}

/// Sends a crafted request and a plain one behind it on one connection, with these numbers. Returns the
/// bodies of the responses.
fn ask_streams(address: SocketAddr, crafted: &CraftedStream, ids: [&str; 2]) -> [String; 2] {
    use h2_settings::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, field, frame};
    let block = |fields: &[(&str, &str)], id: Option<&(&str, &str)>| -> Vec<u8> {
        fields.iter().chain(id).flat_map(|(name, value)| field(name, value)).collect()
    };
    let fields: Vec<_> = crafted.fields.iter().map(|(name, value)| (*name, &**value)).collect();
    let plain = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/plain")];
    let mut client = Raw::client(address);
    let has_trailers = !crafted.trailers.is_empty();
    let mut frames = vec![
        frame(HEADERS, END_HEADERS, 1, &block(&fields, Some(&("x-id", ids[0])))),
        frame(DATA, if has_trailers { 0 } else { END_STREAM }, 1, HIDDEN.as_bytes()),
    ];
    if has_trailers {
        frames.push(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&crafted.trailers, None)));
    }
    frames.push(frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&plain, Some(&("x-id", ids[1])))));
    client.send(&frames);
    let (mut bodies, mut over) = ([Vec::new(), Vec::new()], [false; 2]);
    while over != [true; 2]
        && let Some(frame) = client.next()
    {
        let Some(which) = [1, 3].iter().position(|stream| *stream == frame.stream) else { continue };
        if frame.kind == DATA {
            bodies[which].extend_from_slice(&frame.payload);
        }
        let ends = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
        over[which] |= ends || frame.kind == RST_STREAM;
    }
    bodies.map(|body| String::from_utf8_lossy(&body).into_owned())
}

/// What a client of HTTP/2 puts into names, values, lengths and trailers begins no request and adds no field
/// at a server of HTTP/1.
#[test]
fn crafted_streams_reach_the_origin_as_one_plain_request_or_not_at_all() {
    let wrongs = Wrongs::default();
    let smuggled = wrongs.clone();
    let pair = start(judging(&wrongs, move |message| {
        if message.field("x-evil").is_some() || message.line.contains("hidden") {
            smuggled.lock().unwrap().push(format!("the origin got {message:?}"));
        }
        let id = message.field("x-id").unwrap_or("none");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", id.len() + message.body.len());
        [head.as_bytes(), id.as_bytes(), &message.body].concat()
    }));
    for (n, crafted) in crafted_streams().iter().enumerate() {
        for (which, address) in pair.addresses.into_iter().enumerate() {
            let [a, b] = ["a", "b"].map(|part| format!("{n}-{which}-{part}"));
            let [first, second] = ask_streams(address, crafted, [&a, &b]);
            let passed = first == format!("{a}{HIDDEN}");
            let is_lenient = which == 1;
            let fine = passed == crafted.is_right || is_lenient && !crafted.is_right;
            if !fine || first.contains(&a) != passed || second != b {
                let sent = (&crafted.fields, &crafted.trailers);
                let why = format!("{first:?} and {second:?} (lenient: {which}) to {sent:?}");
                wrongs.lock().unwrap().push(why);
            }
        }
    }
    assert_none(&wrongs);
}

/// Accepted violations are counted by kind, and the first since the last `show errors` is shown.
#[test]
fn what_is_let_pass_is_counted_and_shown() {
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, |_| b"HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_vec()));
    let request = b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(ask(pair.addresses[1], [&request[..]]).unwrap()[0].status(), 200);
    let shown = watch::ask(&pair.control, "show errors");
    assert!(
        shown.contains("frontend lenient")
            && shown.contains("error at position 4: more than one space in the first line (accepted)"),
        "{shown}"
    );
    assert!(
        shown.contains("error at position 15: a line feed that no carriage return precedes (accepted)"),
        "{shown}"
    );
    for request in ["GET / HTTP/1.1\nHost: a\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        assert_eq!(ask(pair.addresses[1], [request.as_bytes()]).unwrap()[0].status(), 200);
    }
    let shown = watch::ask(&pair.control, "show errors lenient request");
    for line in [
        "error at position 14: a line feed that no carriage return precedes (accepted)\n",
        ": 3 invalid requests accepted (option accept-unsafe-violations-in-http-request):\n",
        "\n  1: a line feed that no carriage return precedes\n",
        "\n  2: more than one space in the first line\n",
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    assert!(!shown.contains("response"), "{shown}");
    let shown = watch::ask(&pair.control, "show errors -1 response");
    let responses = ": 3 invalid responses accepted (option accept-unsafe-violations-in-http-response)";
    assert!(shown.contains(responses), "{shown}");
    assert_eq!(ask(pair.addresses[0], [&request[..]]).unwrap()[0].status(), 400);
    assert_eq!(ask(pair.addresses[0], [&plain("x")[..]]).unwrap()[0].status(), 502);
    // Violations that pass without an option, as in HAProxy (items 13 to 17 of haproxy-today), are counted
    // apart, and none is kept.
    assert_eq!(ask(pair.addresses[2], [&request[..]]).unwrap()[0].status(), 200);
    let shown = watch::ask(&pair.control, "show errors usual");
    let passed =
        "1 invalid requests passed (option http-strict-framing refuses them):\n  1: more than one space";
    assert!(shown.contains(passed), "{shown}");
    let passed = "1 invalid responses passed (option http-strict-framing refuses them):\n  1: a line feed";
    let shown = watch::ask(&pair.control, "show errors");
    assert!(shown.contains(passed) && !shown.contains("invalid request\n  backend usual"), "{shown}");
    // Refused and accepted messages do not replace each other.
    let refused = b"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n";
    assert_eq!(ask(pair.addresses[1], [&refused[..]]).unwrap()[0].status(), 400);
    assert_eq!(ask(pair.addresses[1], [&request[..]]).unwrap()[0].status(), 200);
    let shown = watch::ask(&pair.control, "show errors lenient request");
    assert_eq!(shown.matches("(accepted)\n").count(), 1, "{shown}");
    assert_eq!(shown.matches("error at position").count(), 2, "{shown}");
    assert_none(&wrongs);
}

/// Returns a request and a response that pass with the options in spite of a violation; `None` where nothing
/// of that side does.
fn accepted(problem: Problem) -> (Option<String>, Option<String>) {
    use Problem::*;
    let get = |line: &str, fields: &str| Some(format!("GET {line}\r\n{fields}\r\n"));
    let with = |fields: &str| get("/ HTTP/1.1", &format!("Host: a\r\n{fields}"));
    let post = |fields: &str, body: &str| Some(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"));
    // The origin ends each connection: without the field, a request could reuse one that is about to end.
    let ok = |fields: &str| Some(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}\r\n"));
    let status = |line: &str| Some(format!("{line}\r\n\r\n"));
    let of_both = |fields: &str, body: &str| (post(fields, body), ok(fields).map(|head| head + body));
    let chunked = "Transfer-Encoding: chunked\r\n";
    match problem {
        BareLf => (with("X: a\n"), status("HTTP/1.1 200 OK\nX: a")),
        Control => (with("X: a\u{1}b\r\n"), status("HTTP/1.1 200 O\u{1}K")),
        BadTarget => (get("/\u{e9} HTTP/1.1", "Host: a\r\n"), None),
        TargetForm => (get("http://a:b/ HTTP/1.1", "Host: a:b\r\n"), None),
        ExtraSpace => (get(" / HTTP/1.1", "Host: a\r\n"), None),
        NoVersion => (get("/", ""), None),
        BadVersion => (get("/ RTSP/1.1", "Host: a\r\n"), status("RTSP/1.1 200 OK")),
        OtherVersion => (get("/ HTTP/3.0", "Host: a\r\n"), status("HTTP/3.0 200 OK")),
        BadStatus => (None, status("HTTP/1.1  200 OK")),
        Folded => (with("X: a\r\n b\r\n"), ok("X: a\r\n b\r\n")),
        BadName => (with("X(: a\r\n"), ok("X(: a\r\n")),
        BadLength => of_both("Content-Length: 1, 1\r\n", "a"),
        TwoLengths => of_both("Content-Length: 1\r\nContent-Length: 1\r\n", "a"),
        BadCoding => (None, ok("Transfer-Encoding: chunked, chunked\r\n").map(|head| head + "0\r\n\r\n")),
        NoWebSocketKey => (with("Connection: Upgrade\r\nUpgrade: websocket\r\n"), None),
        LengthAndCoding => of_both(&format!("Content-Length: 1\r\n{chunked}"), "0\r\n\r\n"),
        CodingBefore11 => (
            Some(format!("POST / HTTP/1.0\r\n{chunked}\r\n0\r\n\r\n")),
            Some(format!("HTTP/1.0 200 OK\r\n{chunked}\r\n0\r\n\r\n")),
        ),
        TwoHosts => (with("Host: a\r\n"), None),
        NoHost => (get("/ HTTP/1.1", ""), None),
        BadHost => (get("/ HTTP/1.1", "Host: a:b\r\n"), None),
        OtherHost => (get("http://a/ HTTP/1.1", "Host: b\r\n"), None),
        // It passes as 101, see `lenient-option-response-websocket.case`.
        NoWebSocketAccept => (None, None),
        // From servers it passes without an option.
        BadExtension => (post(chunked, "1 \r\na\r\n0\r\n\r\n"), None),
        BareCr | BadMethod | Http2 | BadReason | EmptyLine | SpaceBeforeColon | NoColon | EmptyName
        | TooLongTarget | TooLarge | TooManyFields | OtherCoding | BodyForbidden | OldPayload
        | TooManyOptions | UnaskedSwitch | NoSwitch | BadChunkSize | HugeChunk | BadChunkEnd
        | TooLargeTrailers | BadTrailer | Early | NoMemory => (None, None),
        other => {
            panic!("{other:?}: add messages that pass in spite of it, or list it as one that never does")
        }
    }
}

/// Each kind of violation that the options let pass has a counter of its own, and `show errors` shows it.
#[test]
fn each_kind_that_is_let_pass_is_counted_and_shown() {
    const PATH: &str = "GET /answer-";
    let wrongs = Wrongs::default();
    let found = wrongs.clone();
    let origin = origin(move |mut stream| {
        let (mut head, mut part) = (String::new(), [0; 4096]);
        while !head.contains("\r\n\r\n") {
            let Ok(n @ 1..) = stream.read(&mut part) else { return };
            head += &String::from_utf8_lossy(&part[..n]);
        }
        if let Err(why) = judge(head.as_bytes(), true, false) {
            found.lock().unwrap().push(format!("the origin got {why}: {head:?}"));
        }
        let place = head.strip_prefix(PATH).map(|rest| rest.split(' ').next().unwrap().parse().unwrap());
        let answer = place.and_then(|place: usize| accepted(Problem::all()[place]).1);
        let answer =
            answer.unwrap_or("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".into());
        let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut Vec::new()); // a reset could overtake the answer
    });
    let pair = start(origin);
    let mut counted = [Vec::new(), Vec::new()];
    for (at, &problem) in Problem::all().iter().enumerate() {
        let (request, response) = accepted(problem);
        let asks = response.is_some().then(|| format!("{PATH}{at} HTTP/1.1\r\nHost: a\r\n\r\n"));
        for (side, message, number) in [("request", request, 0), ("response", asks, 1)] {
            let (Some(message), counted) = (message, &mut counted[number]) else { continue };
            counted.push(format!("  1: {}", problem.sentence()));
            let mut client = connect(pair.addresses[1]);
            client.write_all(message.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let answer = common::read_all(&mut client);
            assert!(answer.split(' ').nth(1) == Some("200"), "{problem:?} of a {side}: {answer:?}");
            // An answer to HTTP/1.0 has no chunks; it ends with its connection.
            judge(answer.as_bytes(), false, true)
                .unwrap_or_else(|why| panic!("{problem:?} of a {side}: {why}: {answer:?}"));
            let shown = watch::ask(&pair.control, &format!("show errors lenient {side}"));
            let kept = format!(": {} (accepted)\n", problem.sentence());
            assert_eq!(shown.matches(&*kept).count(), 1, "{problem:?} of a {side}: {shown}");
            let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("  1: ")).collect();
            assert_eq!(lines, *counted, "{problem:?} of a {side}");
            let total = format!(": {} invalid {side}s accepted (option ", counted.len());
            assert!(shown.contains(&total), "{problem:?} of a {side}: {shown}");
        }
    }
    assert_none(&wrongs);
}

/// The requests and responses that lax peers send and `option http-strict-framing` refuses (issue 20, item
/// 12). With `option accept-unsafe-violations-in-http-request` or `-response` each passes; beside it stands
/// what is read of its strict form: the first line, fields that do not frame it, and its body.
const LAX_REQUESTS: [(&str, &str); 25] = [
    // A line feed alone.
    ("GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1|host: a|"),
    ("GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
    ("GET / HTTP/1.1\r\nHost: a\n\r\n", "GET / HTTP/1.1|host: a|"),
    ("GET / HTTP/1.1\r\nHost: a\r\n\n", "GET / HTTP/1.1|host: a|"),
    ("POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\nb", "POST / HTTP/1.1|host: a|b"),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX: y\n\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    // Several blanks in the first line.
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
    ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
    ("GET   /\t HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
    ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
    // Blanks behind the size of a chunk.
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nb\r\n0\r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\t \r\nb\r\n0\r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0 \r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    // Equal lengths.
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nb",
        "POST / HTTP/1.1|host: a|b",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 01\r\n\r\nb",
        "POST / HTTP/1.1|host: a|b",
    ),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nb", "POST / HTTP/1.1|host: a|b"),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,1\r\n\r\nb", "POST / HTTP/1.1|host: a|b"),
    // A length beside chunks.
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: \
         chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: \
         9\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    // Chunks in HTTP/1.0.
    (
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "POST / HTTP/1.1|host: a|b",
    ),
    // Control bytes, and a line that goes on in the next.
    ("GET / HTTP/1.1\r\nHost: a\r\nX: c\u{1}d\r\n\r\n", "GET / HTTP/1.1|host: a|x: c d|"),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: c\0d\r\n\r\n", "GET / HTTP/1.1|host: a|x: c d|"),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: c\u{7f}d\r\n\r\n", "GET / HTTP/1.1|host: a|x: c d|"),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: c\r\n d\r\n\r\n", "GET / HTTP/1.1|host: a|x: c   d|"),
    // Equal hosts.
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "GET / HTTP/1.1|host: a|"),
];

const LAX_RESPONSES: [(&str, &str); 17] = [
    // A line feed alone.
    ("HTTP/1.1 200 OK\nContent-Length: 1\n\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\n\r\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX: y\n\n", "HTTP/1.1 200 OK|b"),
    // Several blanks in the first line.
    ("HTTP/1.1  200 OK\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1\t200\tOK\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|b"),
    // Control bytes, and a line that goes on in the next.
    ("HTTP/1.1 200 O\u{1}K\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 O K|b"),
    ("HTTP/1.1 200 OK\r\nX: c\u{1}d\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|x: c d|b"),
    ("HTTP/1.1 200 OK\r\nX: c\0d\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|x: c d|b"),
    ("HTTP/1.1 200 OK\r\nX: c\u{7f}d\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|x: c d|b"),
    ("HTTP/1.1 200 OK\r\nX: c\r\n d\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|x: c   d|b"),
    // Equal lengths.
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nb", "HTTP/1.1 200 OK|b"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nb", "HTTP/1.1 200 OK|b"),
    // A length beside chunks.
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK|b",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK|b",
    ),
    // Chunks in HTTP/1.0.
    ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n", "HTTP/1.1 200 OK|b"),
];

/// Each of the 42 messages of lax peers is refused with `option http-strict-framing` and passes with the
/// options of leniency, in the strict form, which the reference parser reads at the other end.
#[test]
fn what_lax_peers_send_passes_with_the_option_and_in_the_strict_form() {
    const { assert!(LAX_REQUESTS.len() + LAX_RESPONSES.len() == 42) }
    let read = |message: &Message| {
        let framing = ["content-length", "transfer-encoding", "connection"];
        let fields = message.fields.iter().filter(|(name, _)| !framing.contains(&&**name));
        let fields: String = fields.map(|(name, value)| format!("{name}: {value}|")).collect();
        format!("{}|{fields}{}", message.line, String::from_utf8_lossy(&message.body))
    };
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, move |message| match message.field("x-case") {
        Some(n) => LAX_RESPONSES[n.parse::<usize>().unwrap()].0.into(),
        None => {
            let said = read(message);
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len()).into_bytes()
        }
    }));
    let [strict, lenient, _] = pair.addresses;
    for (request, expected) in LAX_REQUESTS {
        let refused = ask(strict, [request.as_bytes()]).unwrap();
        assert_eq!(refused.iter().map(Message::status).collect::<Vec<_>>(), [400], "{request:?}");
        let passed = ask(lenient, [request.as_bytes()]).unwrap();
        let said: Vec<_> = passed.iter().map(|answer| String::from_utf8_lossy(&answer.body)).collect();
        assert_eq!(said, [expected], "{request:?}");
    }
    for (n, (response, expected)) in LAX_RESPONSES.into_iter().enumerate() {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Case: {n}\r\n\r\n");
        let refused = ask(strict, [request.as_bytes()]).unwrap();
        assert_eq!(refused.iter().map(Message::status).collect::<Vec<_>>(), [502], "{response:?}");
        let passed = ask(lenient, [request.as_bytes()]).unwrap();
        assert_eq!(passed.iter().map(read).collect::<Vec<_>>(), [expected], "{response:?}");
    }
    assert_none(&wrongs);
}

/// What the option lets pass goes on in the strict form: versions as 1.0 or 1.1, targets percent-encoded, the
/// host that the target names, and nothing of fields whose names are no tokens.
#[test]
fn what_is_let_pass_goes_on_in_the_strict_form() {
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, |message| {
        let fields = message.fields.iter().map(|(name, value)| format!("{name}: {value}"));
        let said = [message.line.clone()].into_iter().chain(fields).collect::<Vec<_>>().join("|");
        let odd = "X(: y\r\nX\u{e9}: y\r\n z\r\nX: y";
        format!("RTSP/2.0 200 O\u{e9}K\r\n{odd}\r\nContent-Length: {}\r\n\r\n{said}", said.len()).into_bytes()
    }));
    for (request, goes_on) in [
        ("GET /\u{e9}#?\u{e9}\"< HTTP/1.1\r\nHost: a\r\n", "GET /%C3%A9%23?%C3%A9\"< HTTP/1.1|host: a"),
        ("GET / RTSP/1.0\r\nHost: a\r\nX: y\r\nX/: y\r\n", "GET / HTTP/1.0|host: a|x: y"),
        ("GET / HTTP/2.7\r\nHost: a\r\n", "GET / HTTP/1.1|host: a"),
        ("GET / HTTP/1.1\r\nX(: y\r\n z\r\nHost: a\r\n", "GET / HTTP/1.1|host: a"),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n", "GET http://b/ HTTP/1.1|host: b"),
        ("GET http://b HTTP/1.1\r\n", "GET http://b/ HTTP/1.1|host: b"),
        ("GET / HTTP/1.1\r\n", "GET / HTTP/1.1|host: "),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n", "GET / HTTP/1.1|host: a:b"),
    ] {
        let answers = ask(pair.addresses[1], [format!("{request}\r\n").as_bytes()]).unwrap();
        let said = String::from_utf8_lossy(&answers[0].body);
        assert_eq!(said.replace("|connection: keep-alive", ""), goes_on, "{request:?}");
        let names: Vec<&str> = answers[0].fields.iter().map(|(name, _)| &**name).collect();
        assert!(answers[0].line.starts_with("HTTP/1.1 200 O"), "{:?}", answers[0].line);
        assert_eq!(
            names.iter().filter(|name| name.starts_with('x')).collect::<Vec<_>>(),
            [&"x"],
            "{names:?}"
        );
    }
    let refused = ask(pair.addresses[1], [&b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"[..]]).unwrap();
    assert_eq!(refused[0].status(), 400);
    assert_none(&wrongs);
}

/// A WebSocket handshake that is let pass goes on with one good key, and its acceptance with the value of the
/// client's key, or of the server's if the client has none. What neither option relaxes is verified.
#[test]
fn what_is_let_pass_goes_on_as_a_right_handshake_of_websocket() {
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    let wrongs = Wrongs::default();
    let server = judging(&wrongs, |message| {
        let key = message.field("sec-websocket-key").unwrap();
        let accept = match message.line.split(' ').nth(1) {
            Some("/none") => String::new(),
            Some("/wrong") => "Sec-WebSocket-Accept: AAAA\r\n".into(),
            Some("/other") => {
                return b"HTTP/1.1 101 Switch\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n".into();
            }
            _ => format!("Sec-WebSocket-Accept: {}\r\n", accept_of(key)),
        };
        let switch = "HTTP/1.1 101 Switch\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        format!("{switch}{accept}X-Key: {key}\r\n\r\n").into_bytes()
    });
    let upgrade = |address, path: &str, keys: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
        let mut answers = ask(address, [format!("{head}{keys}\r\n").as_bytes()]).unwrap();
        answers.pop().unwrap_or_else(|| panic!("no answer to {path} with {keys:?}"))
    };
    let good = format!("Sec-WebSocket-Key: {KEY}\r\n");
    let odd = ["", "Sec-WebSocket-Key:\r\n", "Sec-WebSocket-Key: abc\r\n"];
    let pair = start(server);
    for (keys, own) in odd.into_iter().zip([None, None, Some("abc")]).chain([(&*good, Some(KEY))]) {
        for path in ["/right", "/none", "/wrong"] {
            let answer = upgrade(pair.addresses[1], path, keys);
            assert_eq!(answer.status(), 101, "{path} with {keys:?}");
            let sent = answer.field("x-key").unwrap();
            assert!(keys != good || sent == KEY, "{sent:?} for the client's own");
            let expected = accept_of(own.unwrap_or(sent));
            assert_eq!(answer.field("sec-websocket-accept"), Some(&*expected), "{path} with {keys:?}");
        }
    }
    let shown = watch::ask(&pair.control, "show errors");
    for counted in [
        "9 invalid requests accepted (option accept-unsafe-violations-in-http-request):\n  9: an upgrade to",
        "8 invalid responses accepted (option accept-unsafe-violations-in-http-response):\n  8: a switch to",
    ] {
        assert!(shown.contains(counted), "{counted:?} in {shown}");
    }
    // Nobody but the proxy knows the key that it made.
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n option accept-unsafe-violations-in-http-request\n \
         server s {server}\n",
        fd(&socket)
    ));
    for keys in odd {
        let statuses = ["/right", "/none", "/wrong"].map(|path| upgrade(address, path, keys).status());
        assert_eq!(statuses, [101, 502, 502], "{keys:?}");
    }
    // The server chooses another protocol, which has no such fields.
    let other = upgrade(address, "/other", "Upgrade: foo\r\n");
    assert_eq!((other.status(), other.field("sec-websocket-accept")), (101, None));
    assert_none(&wrongs);
}

/// An HTTP/1.0 request with chunks is forwarded as HTTP/1.1; its client gets no chunks, and its connection
/// closes. A strict proxy refuses it.
#[test]
fn an_old_request_in_chunks_goes_on_as_a_new_one() {
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, |message| {
        let said = format!("{}, {}", message.line, String::from_utf8_lossy(&message.body));
        let coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{coded}{:x}\r\n{said}\r\n0\r\n\r\n", said.len()).into_bytes()
    }));
    let request = "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n\
                   4\r\nbody\r\n0\r\n\r\n";
    let next = plain("next");
    for address in &pair.addresses[1..] {
        let answers = ask(*address, [request.as_bytes(), &next[..]]).unwrap();
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0].field("transfer-encoding"), None);
        assert_eq!(String::from_utf8_lossy(&answers[0].body), "POST / HTTP/1.1, body");
    }
    let refused = ask(pair.addresses[0], [request.as_bytes()]).unwrap();
    assert_eq!(refused[0].status(), 400);
    assert_none(&wrongs);
}

fn crafted_responses() -> Vec<Vec<u8>> {
    let first = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1  200  OK\r\n",
        "HTTP/1.1 200 O\u{1}K\r\n",
        "HTTP/1.1 103 E\r\n\r\nHTTP/1.1 200\r\n",
    ];
    crafted(&first, "X-Id: ID\r\n", HIDDEN_ANSWER)
}

/// Sends two pipelined requests; `more` is in the response to the first.
fn answered_with(pair: &Pair, which: usize, n: usize, more: &str) -> Result<Vec<Message>, String> {
    let [a, b] = ["a", "b"].map(|part| format!("{n}-{which}-{part}"));
    let first = format!("GET /a HTTP/1.1\r\nHost: a\r\nX-Id: {a}\r\nX-Case: {n}\r\n{more}\r\n");
    let answers = ask(pair.addresses[which], [first.as_bytes(), &plain(&b)])?;
    in_order(&answers, &[&a, &b])?;
    Ok(answers)
}

fn odd(cases: Vec<Vec<u8>>) -> impl Fn(&Message) -> Vec<u8> {
    move |message| match message.field("x-case") {
        Some(n) => {
            let case = String::from_utf8_lossy(&cases[n.parse::<usize>().unwrap()]).into_owned();
            case.replace("X-Id: ID", &format!("X-Id: {}", message.field("x-id").unwrap())).into_bytes()
        }
        None => echo(message),
    }
}

#[test]
fn crafted_responses_reach_the_client_as_one_plain_response_or_not_at_all() {
    let wrongs = Wrongs::default();
    let cases = crafted_responses();
    let pair = start(judging(&wrongs, odd(cases.clone())));
    let mut passed = [0; 3];
    for (n, case) in cases.iter().enumerate() {
        for (which, passed) in passed.iter_mut().enumerate() {
            match answered_with(&pair, which, n, "") {
                Ok(answers) => {
                    *passed += usize::from(
                        answers
                            .iter()
                            .any(|answer| answer.status() == 200 && answer.body == HIDDEN_ANSWER.as_bytes()),
                    )
                }
                Err(why) => wrongs
                    .lock()
                    .unwrap()
                    .push(format!("{why}\nof {:?} (lenient: {which})", String::from_utf8_lossy(case))),
            }
        }
    }
    assert_none(&wrongs);
    assert!(passed[0] > 30 && passed[1] > 2 * passed[0], "passed: {passed:?}");
    assert!(passed[2] > passed[0] && passed[2] < passed[1], "passed: {passed:?}");
}

/// `Connection` of a client or server removes nothing that rules and `forwardfor` write, or that a message
/// needs (RFC 9110, 7.6.1).
#[test]
fn what_connection_names_weakens_nothing() {
    let wrongs = Wrongs::default();
    let server = judging(&wrongs, |message| {
        let all: String = message.fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!(
            "HTTP/1.1 200 OK\r\nConnection: X-Rule, X-Own, Set-Cookie, Vary, Cache-Control\r\nX-Own: 1\r\n\
             X-Rule: own\r\nVary: g\r\nCache-Control: private\r\nSet-Cookie: a=b\r\n\
             Content-Length: {}\r\n\r\n{all}",
            all.len()
        )
        .into_bytes()
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n option forwardfor\n http-request set-header X-Rule \
            rule\n \
         http-response set-header X-Rule rule\n server s {server}\n",
        fd(&socket)
    ));
    let named = "X-Forwarded-For, X-Rule, X-Own, Host, Content-Length, Transfer-Encoding, Authorization, \
                 Cookie, Expect, Vary, Cache-Control, Content-Type, close";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: {named}\r\nX-Own: 1\r\nX-Rule: own\r\n\
         X-Forwarded-For: 192.0.2.1\r\nAuthorization: b\r\nCookie: c=d\r\nExpect: none\r\nCache-Control: \
         no-store\r\nContent-Type: e/f\r\nContent-Length: 4\r\n\r\nbody"
    );
    let answers = ask(address, [request.as_bytes()]).unwrap();
    let mut came: Vec<_> = std::str::from_utf8(&answers[0].body).unwrap().lines().collect();
    came.sort_unstable();
    assert_eq!(
        came,
        [
            "authorization: b",
            "cache-control: no-store",
            "content-length: 4",
            "content-type: e/f",
            "cookie: c=d",
            "expect: none",
            "host: a",
            "x-forwarded-for: 127.0.0.1",
            "x-rule: rule"
        ]
    );
    let given = |name: &str| answers[0].field(name);
    assert_eq!(
        (given("x-rule"), given("x-own"), given("set-cookie"), given("connection")),
        (Some("rule"), None, Some("a=b"), Some("close"))
    );
    assert_eq!((given("vary"), given("cache-control")), (Some("g"), Some("private")));
    // A body in chunks keeps its framing, of requests and responses.
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding, close\r\nTransfer-Encoding: \
                   chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let answers = ask(address, [chunked.as_bytes()]).unwrap();
    let came = std::str::from_utf8(&answers[0].body).unwrap();
    assert!(came.contains("transfer-encoding: chunked\n") && !came.contains("connection"), "{came}");
    // Each field that the program writes by itself, where the client names it and sends one of its own.
    let goes_on = |lines: &str, fields: &str| {
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n {lines}\n server s {server}\n",
            fd(&socket)
        ));
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {fields}\r\n\r\n");
        let answers = ask(address, [request.as_bytes()]).unwrap();
        let came = String::from_utf8_lossy(&answers[0].body).into_owned();
        came.lines().filter(|line| line.starts_with("x-")).map(str::to_owned).collect::<Vec<_>>()
    };
    for (lines, fields, expected) in [
        ("option forwardfor if-none", "X-Forwarded-For, close", "x-forwarded-for: 127.0.0.1"),
        ("option forwardfor header X-C", "X-C, close\r\nX-C: 192.0.2.1", "x-c: 127.0.0.1"),
        // The client's own field ends here, so there is none.
        (
            "option forwardfor if-none",
            "X-Forwarded-For, close\r\nX-Forwarded-For: 192.0.2.1",
            "x-forwarded-for: 127.0.0.1",
        ),
        (
            "unique-id-format u-%ci\n unique-id-header X-Unique",
            "X-Unique, close\r\nX-Unique: own",
            "x-unique: u-127.0.0.1",
        ),
        ("http-send-name-header X-Server", "X-Server, close\r\nX-Server: own", "x-server: s"),
    ] {
        assert_eq!(goes_on(lines, fields), [expected], "{lines}, {fields:?}");
    }
    assert_none(&wrongs);
}

/// An interim response loses what is for one hop, as each other message does, and says nothing of the
/// client's connection.
#[test]
fn what_is_for_one_hop_of_an_interim_response_ends_there() {
    let wrongs = Wrongs::default();
    let server = judging(&wrongs, |message| {
        let of_one_hop = "Connection: X-Own, upgrade, close\r\nUpgrade: other\r\nX-Own: 1\r\nKeep-Alive: \
                          a\r\nProxy-Connection: b\r\nHTTP2-Settings: c\r\nTE: trailers\r\n";
        let interim = |status| format!("HTTP/1.1 {status} Early\r\n{of_one_hop}Link: d\r\n\r\n");
        [interim(103).as_bytes(), interim(102).as_bytes(), &echo(message)].concat()
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let answers = ask(address, [&plain("a")[..], &plain("b")]).unwrap();
    let got: Vec<_> = answers.iter().map(|answer| (answer.status(), answer.field("x-id"))).collect();
    let each = |id| [(103, None), (102, None), (200, Some(id))];
    assert_eq!(got, [each("a"), each("b")].concat());
    for answer in answers.iter().filter(|answer| answer.status() < 200) {
        assert_eq!(answer.fields, [("link".to_owned(), "d".to_owned())]);
    }
    assert_none(&wrongs);
}

/// Pseudorandom numbers.
struct Random(u64);

impl Random {
    fn new() -> (Self, u64) {
        let now =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("MANYLANE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(now);
        (Self(seed | 1), seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// Cuts bytes in pieces of up to 60.
    fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, behind) = bytes.split_at((1 + self.below(60)).min(bytes.len()));
            pieces.push(piece);
            bytes = behind;
        }
        pieces
    }

    /// Changes a few bytes, but none of a number.
    fn mutate(&mut self, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        for _ in 0..=self.below(3) {
            let spared =
                message.windows(6).position(|window| window == b"X-Id: ").map_or(0..0, |at| at..at + 14);
            let at = self.below(message.len());
            if spared.contains(&at) {
                continue;
            }
            let odd = b"\r\n \t:;,0159afxG\0\x01\x7f\x80\"/-";
            match self.below(4) {
                0 => message[at] = odd[self.below(odd.len())],
                1 => message.insert(at, odd[self.below(odd.len())]),
                2 if message.len() > 1 => drop(message.remove(at)),
                _ => {
                    let end = (at + self.below(12)).min(message.len());
                    if end <= spared.start || at >= spared.end {
                        let piece = message[at..end].to_vec();
                        message.splice(at..at, piece);
                    }
                }
            }
        }
        message
    }
}

fn rounds() -> usize {
    if std::env::var_os("MANYLANE_LONG").is_some() { 13_000 } else { 1_000 }
}

#[test]
fn mutated_requests_are_never_mixed_up() {
    let wrongs = Wrongs::default();
    let pair = start(judging(&wrongs, echo));
    let (mut random, seed) = Random::new();
    let models = crafted_requests("ID");
    for n in 0..rounds() {
        let [a, b, c] = ["a", "b", "c"].map(|part| format!("{n:05}-{part}"));
        let model = String::from_utf8_lossy(&models[random.below(models.len())])
            .replace("X-Id: ID", &format!("X-Id: {b}"));
        let message = random.mutate(model.replace("X-Id: hidden", "").as_bytes());
        let which = random.below(3);
        let outcome = ask(pair.addresses[which], [&plain(&a)[..], &message, &plain(&c)]);
        // A number may now occur twice, or not at all.
        let checked = outcome.and_then(|answers| {
            let own = |id: &str| id == "none" || id.starts_with(&a[..6]);
            match answers.iter().filter_map(|answer| answer.field("x-id")).find(|id| !own(id)) {
                Some(id) => Err(format!("an answer to {id}")),
                None if answers.first().and_then(|answer| answer.field("x-id")) != Some(&a) => {
                    Err(format!("not answered: {answers:?}"))
                }
                None => Ok(()),
            }
        });
        if let Err(why) = checked {
            wrongs.lock().unwrap().push(format!(
                "seed {seed}: {why}\nof {:?} (lenient: {which})",
                String::from_utf8_lossy(&message)
            ));
        }
    }
    assert_none(&wrongs);
}

#[test]
fn mutated_responses_are_never_mixed_up() {
    let wrongs = Wrongs::default();
    let (mut random, seed) = Random::new();
    let models = crafted_responses();
    let mut case = |_| {
        let model = String::from_utf8_lossy(&models[random.below(models.len())]).replace("X-Id: hidden", "");
        random.mutate(model.as_bytes())
    };
    let cases: Vec<_> = (0..rounds()).map(&mut case).collect();
    let pair = start(judging(&wrongs, odd(cases.clone())));
    for (n, case) in cases.iter().enumerate() {
        let which = random.below(3);
        if let Err(why) = answered_with(&pair, which, n, "X-Last: y\r\n") {
            // Otherwise the test would wait for a longer body.
            wrongs.lock().unwrap().push(format!(
                "seed {seed}: {why}\nof {:?} (lenient: {which})",
                String::from_utf8_lossy(case)
            ));
        }
    }
    assert_none(&wrongs);
}

#[test]
fn cuts_do_not_matter() {
    let wrongs = Wrongs::default();
    let (mut random, seed) = Random::new();
    let cuts = Mutex::new(Random(seed.rotate_left(32) | 1));
    let pair = start(judging_in_pieces(&wrongs, move |message| {
        let answer = match message.field("x-coded") {
            Some(_) => {
                let id = message.field("x-id").unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nTransfer-Encoding: chunked\r\n\r\n");
                let body = String::from_utf8_lossy(&message.body);
                format!("{head}{:x};y\r\n{body}\r\n0\r\nV: w\r\n\r\n", body.len()).into_bytes()
            }
            None => echo(message),
        };
        cuts.lock().unwrap().cut(&answer).into_iter().map(<[u8]>::to_vec).collect()
    }));
    for n in 0..rounds() / 5 {
        let [a, b, c] = ["a", "b", "c"].map(|part| format!("{n:05}-{part}"));
        let coded = if random.below(2) == 0 { "X-Coded: y\r\n" } else { "" };
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nX-Id: {b}\r\n{coded}");
        let framed = match random.below(2) {
            0 => format!("{head}Content-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len()),
            _ => format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{:x};x\r\n{HIDDEN}\r\n0\r\nT: u\r\n\r\n",
                HIDDEN.len()
            ),
        };
        let which = random.below(3);
        let framed = if which != 0 { framed.replacen("\r\n", "\n", random.below(4)) } else { framed };
        let bytes = [plain(&a), framed.into_bytes(), plain(&c)].concat();
        let pieces = random.cut(&bytes);
        // What is sent quickly is read together, so the program reads once more at one of the cuts.
        let read = 1 + random.below(pieces.len() - 1);
        let address = pair.addresses[which];
        let pieces = pieces.into_iter().enumerate().inspect(|&(n, _)| {
            if n == read {
                all_is_read(address.port(), false);
            }
        });
        let answers =
            ask(address, pieces.map(|(_, piece)| piece)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let ids: Vec<_> = answers.iter().filter_map(|answer| answer.field("x-id")).collect();
        assert_eq!(ids, [&a, &b, &c], "seed {seed}: {answers:?}");
        assert_eq!(answers[1].body, HIDDEN.as_bytes(), "seed {seed}");
    }
    assert_none(&wrongs);
}

#[test]
fn tiny_chunks_leave_as_few() {
    const CHUNKS: usize = 27_000;
    let server = origin(|mut stream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let body = format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(CHUNKS));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        let _ = stream.read(&mut [0]);
    });
    let program = start(server);
    let mut client = connect(program.addresses[0]);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let message = judge(&answer, false, true).unwrap().unwrap();
    assert_eq!(message.body, b"x".repeat(CHUNKS));
    assert!(answer.len() < CHUNKS + 4096, "{} bytes for {CHUNKS} of data", answer.len());
}
