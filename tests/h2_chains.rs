//! Messages through a chain of versions: from HTTP/1 over HTTP/2 to HTTP/1, and the reverse, any message
//! arrives unchanged. One program has both hops.

use crate::common;

use bytes::Bytes;
use common::{Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, origin};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

/// Cases of each property, each a request and its response over sockets: this number, or one in `SHARE` of
/// `PROPTEST_CASES`, which the long run sets.
const CASES: u32 = 60;
const SHARE: u32 = 20;

type Fields = Vec<(String, Vec<u8>)>;

/// A message without its first line.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    fields: Fields,
    body: Vec<u8>,
    /// True with a known length; else there may be trailers.
    sized: bool,
    trailers: Fields,
}

/// A request and its response.
#[derive(Clone, Debug)]
struct Exchange {
    method: &'static str,
    target: String,
    request: Content,
    status: u16,
    response: Content,
}

fn fields(most: usize) -> impl Strategy<Value = Fields> {
    let value = r"([!-~\x80-\xff]([ -~\t\x80-\xff]{0,30}[!-~\x80-\xff])?)?";
    let value = proptest::string::bytes_regex(&format!("(?-u){value}")).unwrap();
    prop::collection::vec(("x-[a-z0-9_.!#$%&'*+^`|~-]{1,12}", value), 0..most)
}

/// Small sizes, and those near frames and windows.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![0..100_usize, 16_300..16_500_usize, 65_500..65_600_usize, Just(200_000_usize)];
    (size, any::<u8>()).prop_map(|(size, seed)| (0..size).map(|n| (n % 251) as u8 ^ seed).collect())
}

fn content(named: &'static [(&'static str, &'static str)]) -> impl Strategy<Value = Content> {
    let named = prop::sample::subsequence(named, 0..=named.len());
    (fields(6), named, body(), any::<bool>(), fields(3)).prop_map(
        |(mut fields, named, body, sized, trailers)| {
            fields
                .extend(named.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())));
            Content { fields, body, sized, trailers: if sized { Vec::new() } else { trailers } }
        },
    )
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let method =
        prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "REPORT"]);
    let target = r"/[a-zA-Z0-9._~!$&'()*+,;=:@%/-]{0,40}(\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]{0,40})?";
    let status = prop::sample::select(vec![200_u16, 201, 204, 301, 304, 404, 418, 500, 599]);
    let request = content(&[
        ("cookie", "a=1; b=2; c=3"),
        ("authorization", "Basic dTpw"),
        ("accept", "*/*"),
        ("accept-encoding", "gzip, br;q=0.5"),
        ("content-type", "text/plain; charset=utf-8"),
        ("te", "trailers"),
        ("user-agent", "some agent/1.0 (with words)"),
    ]);
    let response = content(&[
        ("set-cookie", "a=1; path=/"),
        ("set-cookie", "b=2; expires=Thu, 01 Jan 1970 00:00:00 GMT"),
        ("content-type", "application/octet-stream"),
        ("cache-control", "no-store, max-age=0"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("etag", "W/\"x\""),
        ("location", "http://b.example/"),
        ("vary", "accept, x-other"),
    ]);
    (method, target, request, status, response).prop_map(
        |(method, target, mut request, status, mut response)| {
            if matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
                (request.body, request.sized, request.trailers) = (Vec::new(), true, Vec::new());
            }
            if method == "HEAD" || matches!(status, 204 | 304) {
                (response.body, response.sized, response.trailers) = (Vec::new(), true, Vec::new());
            }
            Exchange { method, target, request, status, response }
        },
    )
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |fields: &Fields| {
            let shown = fields.iter().map(|(name, value)| format!("{name}: {}", value.escape_ascii()));
            shown.collect::<Vec<_>>()
        };
        let Self { fields, body, sized, trailers } = self;
        let framing = if *sized { "sized" } else { "unsized" };
        write!(f, "{:?}, {} bytes {framing}, {:?}", shown(fields), body.len(), shown(trailers))
    }
}

impl Exchange {
    fn has_body(&self) -> bool {
        self.method != "HEAD" && !matches!(self.status, 204 | 304)
    }

    /// Returns true if a request without a body has to say so.
    fn tells_of_no_body(&self) -> bool {
        matches!(self.method, "POST" | "PUT" | "PATCH" | "REPORT")
    }
}

impl Content {
    /// Writes the message in HTTP/1, after its first line.
    fn write(&self, first: &str, framed: bool) -> Vec<u8> {
        let mut out = first.as_bytes().to_vec();
        let put = |out: &mut Vec<u8>, fields: &Fields| {
            for (name, value) in fields {
                out.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
            }
        };
        put(&mut out, &self.fields);
        if framed && self.sized {
            out.extend(format!("content-length: {}\r\n\r\n", self.body.len()).into_bytes());
            out.extend(&self.body);
        } else if framed {
            out.extend(b"transfer-encoding: chunked\r\n\r\n");
            for piece in self.body.chunks(10_000) {
                out.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                out.extend([piece, b"\r\n"].concat());
            }
            out.extend(b"0\r\n");
            put(&mut out, &self.trailers);
            out.extend(b"\r\n");
        } else {
            out.extend(b"\r\n");
        }
        out
    }

    /// Reads a message in HTTP/1: the first line and the rest.
    fn read(stream: &mut BufReader<TcpStream>, has_body: impl Fn(&str) -> bool) -> Option<(String, Self)> {
        fn line(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).ok().filter(|length| *length > 0)?;
            Some(line.strip_suffix(b"\r\n").unwrap().to_vec())
        }
        fn fields(stream: &mut BufReader<TcpStream>) -> Option<Fields> {
            let mut fields = Vec::new();
            loop {
                let line = line(stream)?;
                let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Some(fields) };
                let name = String::from_utf8(line[..colon].to_ascii_lowercase()).unwrap();
                fields.push((
                    name,
                    line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]).to_vec(),
                ));
            }
        }
        let first = String::from_utf8(line(stream)?).unwrap();
        let mut content =
            Self { fields: fields(stream)?, body: Vec::new(), sized: true, trailers: Vec::new() };
        let mut length = 0;
        content.fields.retain(|(name, value)| {
            let text = String::from_utf8_lossy(value);
            match &**name {
                "content-length" => length = text.parse().unwrap(),
                "transfer-encoding" => content.sized = false,
                "host" => assert_eq!(text, "a.example"),
                "connection" => assert_eq!(text, "TE"),
                _ => return true,
            }
            false
        });
        if content.sized && has_body(&first) {
            content.body = vec![0; length];
            stream.read_exact(&mut content.body).unwrap();
        } else if has_body(&first) {
            loop {
                let size = String::from_utf8(line(stream)?).unwrap();
                let size = usize::from_str_radix(&size, 16).unwrap();
                if size == 0 {
                    break;
                }
                let begin = content.body.len();
                content.body.resize(begin + size, 0);
                stream.read_exact(&mut content.body[begin..]).unwrap();
                assert_eq!(line(stream)?, b"");
            }
            content.trailers = fields(stream)?;
        }
        Some((first, content))
    }

    /// Fields with different names have no order (RFC 9110, 5.3); those with one name keep theirs.
    fn sorted(mut self) -> Self {
        self.fields.sort_by(|one, other| one.0.cmp(&other.0));
        self.trailers.sort_by(|one, other| one.0.cmp(&other.0));
        self
    }

    fn map(fields: &Fields) -> HeaderMap {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).unwrap();
        fields.iter().map(|(n, value)| (name(n), HeaderValue::from_bytes(value).unwrap())).collect_appended()
    }

    fn fields_of(map: &HeaderMap) -> Fields {
        map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
    }

    /// Sends body and trailers over HTTP/2.
    async fn send(&self, out: &mut h2::SendStream<Bytes>) -> Option<()> {
        let mut body = Bytes::from(self.body.clone());
        while !body.is_empty() {
            out.reserve_capacity(body.len());
            let room = std::future::poll_fn(|context| out.poll_capacity(context)).await?.ok()?;
            out.send_data(body.split_to(room.min(body.len())), false).ok()?;
        }
        if self.trailers.is_empty() {
            out.send_data(Bytes::new(), true).ok()
        } else {
            out.send_trailers(Self::map(&self.trailers)).ok()
        }
    }

    /// Receives a message with these fields over HTTP/2.
    async fn receive(map: &HeaderMap, stream: &mut h2::RecvStream) -> Option<Self> {
        let mut fields = Self::fields_of(map);
        let had = fields.len();
        fields.retain(|(name, _)| name != "content-length");
        let sized = fields.len() < had;
        // Cookies may be split (RFC 9113, 8.2.3).
        let (pieces, mut fields): (Fields, Fields) =
            fields.into_iter().partition(|(name, _)| name == "cookie");
        if !pieces.is_empty() {
            let pieces: Vec<_> = pieces.into_iter().map(|(_, piece)| piece).collect();
            fields.push(("cookie".into(), pieces.join(&b"; "[..])));
        }
        let mut body = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece.ok()?;
            body.extend_from_slice(&piece);
            stream.flow_control().release_capacity(piece.len()).ok()?;
        }
        let trailers = stream.trailers().await.ok()?;
        let trailers = trailers.map_or(Vec::new(), |map| Self::fields_of(&map));
        Some(Self { fields, body, sized, trailers }.sorted())
    }
}

/// Collects a map that keeps all values of a name.
trait CollectAppended {
    fn collect_appended(self) -> HeaderMap;
}

impl<I: Iterator<Item = (HeaderName, HeaderValue)>> CollectAppended for I {
    fn collect_appended(self) -> HeaderMap {
        let mut map = HeaderMap::new();
        self.for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }
}

/// The next response of the origin, and the request that it got.
#[derive(Default)]
struct Script {
    next: Option<Exchange>,
    received: Option<(String, Content)>,
}

type Shared = Arc<Mutex<Script>>;

/// Starts the program with two hops: the first reaches the second by a socket.
fn start(first: &str, second: &str, server: SocketAddr) -> (Manylane, SocketAddr, Folder) {
    let (web, address) = listener();
    let folder = Folder::new();
    let inner = folder.0.join("inner");
    let inner = inner.display();
    let program = Manylane::start_ready(&format!(
        "{}\n mode http\n http-reuse always\nlisten outer\n bind {}\n server s {inner} {first}\nlisten \
         inner\n bind unix@{inner}\n server s {server} {second}\n",
        ONE_LANE,
        fd(&web),
    ));
    (program, address, folder)
}

fn run(property: impl Fn(Exchange) -> Result<(), TestCaseError>) {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    let cases = requested.map_or(CASES, |requested| requested.div_ceil(SHARE));
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    if let Err(failed) = runner.run(&exchange(), property) {
        panic!("{failed}");
    }
}

#[test]
fn messages_of_http_1_pass_through_http_2() {
    let script = Shared::default();
    let own = script.clone();
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while let Some(observed) = Content::read(&mut stream, |_| true) {
            let mut script = own.lock().unwrap();
            script.received = Some(observed);
            let exchange = script.next.take().unwrap();
            let first = format!("HTTP/1.1 {} As it is\r\n", exchange.status);
            if out.write_all(&exchange.response.write(&first, exchange.has_body())).is_err() {
                return;
            }
        }
    });
    let (_program, address, _folder) = start("proto h2", "", server);
    let client = RefCell::new(BufReader::new(connect(address)));
    run(|exchange| {
        script.lock().unwrap().next = Some(exchange.clone());
        let mut client = client.borrow_mut();
        let first = format!("{} {} HTTP/1.1\r\nhost: a.example\r\n", exchange.method, exchange.target);
        let framed = exchange.tells_of_no_body();
        let request = exchange.request.write(&first, framed);
        client.get_mut().write_all(&request).unwrap();
        let (status, response) = Content::read(&mut client, |_| exchange.has_body()).unwrap();
        let (line, observed) = script.lock().unwrap().received.take().unwrap();
        prop_assert_eq!(line, format!("{} {} HTTP/1.1", exchange.method, exchange.target));
        prop_assert_eq!(observed.sorted(), exchange.request.sorted());
        prop_assert!(status.starts_with(&format!("HTTP/1.1 {} ", exchange.status)), "{}", status);
        prop_assert_eq!(response.sorted(), exchange.response.sorted());
        Ok(())
    });
}

#[test]
fn messages_of_http_2_pass_through_http_1() {
    let script = Shared::default();
    let own = script.clone();
    let server = common::h2::serve(move |stream, _| {
        let own = own.clone();
        async move {
            stream.set_nodelay(true).unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::task::spawn_local(answer(own.clone(), request, respond));
            }
        }
    });
    let (_program, address, _folder) = start("", "proto h2", server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    let connecting = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::task::spawn_local(connection);
        client
    };
    let client = runtime.block_on(tasks.run_until(connecting));
    run(|exchange| {
        script.lock().unwrap().next = Some(exchange.clone());
        let asking = async {
            let mut client = client.clone().ready().await.unwrap();
            let uri = format!("http://a.example{}", exchange.target);
            let mut request = Request::builder().method(exchange.method).uri(uri).body(()).unwrap();
            *request.headers_mut() = Content::map(&exchange.request.fields);
            let empty = !exchange.tells_of_no_body();
            if exchange.request.sized && !empty {
                request.headers_mut().insert("content-length", exchange.request.body.len().into());
            }
            let (response, mut up) = client.send_request(request, empty).unwrap();
            if !empty {
                exchange.request.send(&mut up).await.unwrap();
            }
            let (head, mut down) = response.await.unwrap().into_parts();
            (head.status.as_u16(), Content::receive(&head.headers, &mut down).await.unwrap())
        };
        let asking = async { tokio::time::timeout(TIMEOUT, asking).await.expect("it takes too long") };
        let (status, response) = runtime.block_on(tasks.run_until(asking));
        let (line, observed) = script.lock().unwrap().received.take().unwrap();
        prop_assert_eq!(line, format!("{} http://a.example{}", exchange.method, exchange.target));
        let framed = |content: Content, has_body: bool| {
            let sized = content.sized && has_body;
            Content { sized, ..content }.sorted()
        };
        prop_assert_eq!(observed, framed(exchange.request.clone(), exchange.tells_of_no_body()));
        prop_assert_eq!(status, exchange.status);
        prop_assert_eq!(response, framed(exchange.response.clone(), exchange.has_body()));
        Ok(())
    });
}

async fn answer(
    script: Shared,
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let (head, mut upload) = request.into_parts();
    let content = Content::receive(&head.headers, &mut upload).await?;
    let exchange = {
        let mut script = script.lock().unwrap();
        script.received = Some((format!("{} {}", head.method, head.uri), content));
        script.next.take().unwrap()
    };
    let mut response = Response::builder().status(exchange.status).body(()).unwrap();
    *response.headers_mut() = Content::map(&exchange.response.fields);
    if exchange.response.sized && exchange.has_body() {
        response.headers_mut().insert("content-length", exchange.response.body.len().into());
    }
    let mut out = respond.send_response(response, !exchange.has_body()).ok()?;
    if exchange.has_body() {
        exchange.response.send(&mut out).await?;
    }
    Some(())
}
