//! WebSocket and other tunnels with an HTTP/2 client or server (RFC 8441): the crate `h2` at HTTP/2 ends,
//! sockets of the test at the others.

use crate::common;

use crate::tls::Authority;
use bytes::Bytes;
use common::h2::block;
use common::watch::Syslog;
use common::{DEFAULTS, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, origin};
use h2::client::SendRequest;
use h2::ext::Protocol;
use http::{Method, Request, Response, StatusCode};
use sha1::Digest;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A key, and the server's value for it (RFC 6455, 1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A client that has received the server's settings.
async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, mut connection) = h2::client::handshake(stream).await.unwrap();
    let mut pong = connection.ping_pong().unwrap();
    tokio::task::spawn_local(connection);
    pong.ping(h2::Ping::opaque()).await.unwrap(); // its answer follows the settings
    client
}

/// One end of a tunnel.
struct Tunnel {
    up: h2::SendStream<Bytes>,
    down: h2::RecvStream,
}

impl Tunnel {
    fn say(&mut self, text: &str, end: bool) {
        self.up.send_data(Bytes::copy_from_slice(text.as_bytes()), end).unwrap();
    }

    /// Waits for `text`, or for the end if `text` is empty.
    async fn hear(&mut self, text: &str) {
        let mut heard = Vec::new();
        while heard.len() < text.len().max(1) {
            let Some(data) = self.down.data().await else { break };
            let data = data.unwrap();
            heard.extend_from_slice(&data);
            self.down.flow_control().release_capacity(data.len()).unwrap();
        }
        assert_eq!(String::from_utf8(heard).unwrap(), text);
    }
}

fn chat(path: &str) -> Request<()> {
    let request = Request::connect(format!("http://a.example{path}")).header("sec-websocket-version", "13");
    request.extension(Protocol::from_static("websocket")).body(()).unwrap()
}

async fn ask(client: &mut SendRequest<Bytes>, request: Request<()>) -> (Response<()>, Tunnel) {
    let (response, up) = client.send_request(request, false).unwrap();
    let (head, down) = response.await.unwrap().into_parts();
    (Response::from_parts(head, ()), Tunnel { up, down })
}

fn head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while stream.read_line(&mut head).is_ok_and(|length| length > 0) {
        if head.ends_with("\r\n\r\n") {
            return head;
        }
    }
    panic!("no head, but {head:?}");
}

/// An HTTP/1 origin that accepts upgrades, unless the path says otherwise, and then echoes to the end.
fn server_of_1() -> SocketAddr {
    origin(|stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        let requested = head(&mut stream);
        let field = |name: &str| requested.lines().find_map(|line| line.strip_prefix(name));
        let key = field("sec-websocket-key: ").or_else(|| field("Sec-WebSocket-Key: ")).unwrap();
        assert_eq!(key.len(), 24);
        let path = requested.split(' ').nth(1).unwrap();
        assert!(requested.to_lowercase().contains("\r\nupgrade: websocket\r\n"), "{requested}");
        assert!(requested.to_lowercase().contains("\r\nconnection: upgrade\r\n"), "{requested}");
        let accept = if path == "/wrong" { "AAAA".into() } else { accept_of(key) };
        let answer = match path {
            "/200" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".into(),
            "/403" => "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno".into(),
            _ => format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
            ),
        };
        let _ = out.write_all(answer.as_bytes());
        let _ = std::io::copy(&mut stream, &mut out);
        let _ = out.shutdown(Shutdown::Write);
    })
}

pub(crate) fn accept_of(key: &str) -> String {
    let hash = sha1::Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = hash.iter().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)).collect();
    let six = |bits: &[u8]| (0..6).fold(0, |six, n| six << 1 | bits.get(n).copied().unwrap_or(0));
    let text: String = bits.chunks(6).map(|bits| char::from(digits[usize::from(six(bits))])).collect();
    text + "="
}

/// An HTTP/2 origin that accepts extended CONNECT if `takes` is true. It echoes the data of tunnels, and
/// responds with the path to other requests.
fn server_of_2(takes: bool) -> SocketAddr {
    common::h2::serve(move |stream, _| async move {
        let mut builder = h2::server::Builder::new();
        if takes {
            builder.enable_connect_protocol();
        }
        let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::task::spawn_local(respond_to(request, respond));
        }
    })
}

async fn respond_to(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let (head, mut upload) = request.into_parts();
    let protocol = head.extensions.get::<Protocol>().map(|protocol| protocol.as_str().to_owned());
    let what = format!("{} {:?} {}", head.method, protocol, head.headers.contains_key("sec-websocket-key"));
    let response = Response::builder().header("x-requested", what);
    if head.method == Method::POST {
        while let Some(data) = upload.data().await {
            upload.flow_control().release_capacity(data.ok()?.len()).ok()?;
        }
        let trailers = upload.trailers().await.ok()??;
        let mut out = respond.send_response(response.body(()).unwrap(), false).ok()?;
        return out.send_trailers(trailers).ok();
    }
    if head.method != Method::CONNECT || head.uri.path() == "/403" {
        let status = if head.method == Method::CONNECT { 403 } else { 200 };
        let mut out = respond.send_response(response.status(status).body(()).unwrap(), false).ok()?;
        return out.send_data(Bytes::from(head.uri.path().to_owned()), true).ok();
    }
    let mut out = respond.send_response(response.body(()).unwrap(), false).ok()?;
    while let Some(data) = upload.data().await {
        let data = data.ok()?;
        upload.flow_control().release_capacity(data.len()).ok()?;
        out.send_data(data, false).ok()?;
    }
    out.send_data(Bytes::new(), true).ok()
}

fn start(global: &str, backend: &str, server: SocketAddr, options: &str) -> (Manylane, SocketAddr, Syslog) {
    let (web, address) = listener();
    let log = Syslog::new();
    let program = Manylane::start_ready(&format!(
        "global\n{global}{DEFAULTS} mode http\n log {} local0\n option httplog\nfrontend f\n bind {}\n \
         default_backend b\nbackend b\n{backend} server s {server} {options}\n",
        log.address(),
        fd(&web)
    ));
    (program, address, log)
}

/// An HTTP/1 client that requests WebSocket.
fn upgrade(address: SocketAddr, path: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = connect(address);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    (head(&mut stream), stream)
}

/// Checks that a tunnel echoes, then ends it.
fn echoes(stream: &mut BufReader<TcpStream>) {
    for text in ["one", "three"] {
        stream.get_mut().write_all(text.as_bytes()).unwrap();
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, text.as_bytes());
    }
    stream.get_mut().write_all(b"last").unwrap();
    stream.get_mut().shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "last");
}

#[test]
fn a_client_of_http_2_reaches_a_server_of_http_1() {
    let (_program, address, log) = start("", "", server_of_1(), "");
    block(async {
        let mut client = client(address).await;
        assert!(client.is_extended_connect_protocol_enabled());
        let (response, mut tunnel) = ask(&mut client, chat("/chat")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
        for hop in ["upgrade", "connection", "sec-websocket-accept"] {
            assert!(!response.headers().contains_key(hop), "{response:?}");
        }
        // The end of another stream does not end this one.
        let (_, mut other) = ask(&mut client, chat("/other")).await;
        for text in ["one", "three"] {
            tunnel.say(text, false);
            tunnel.hear(text).await;
        }
        other.say("bye", true);
        other.hear("bye").await;
        other.hear("").await;
        tunnel.say("last", true);
        tunnel.hear("last").await;
        tunnel.hear("").await;
    });
    for _ in 0..2 {
        let line = log.wait("HTTP/2.0");
        assert!(line.contains(" f b/s ") && line.contains(" 101 ") && line.contains(" ---- "), "{line}");
    }
}

/// A server that agreed to `Upgrade: h2c` would serve requests that no rule has seen.
#[test]
fn no_server_is_offered_http_2_within_a_tunnel() {
    let (_program, address, _log) = start("", "", server_of_1(), "");
    block(async {
        let mut client = client(address).await;
        let request = Request::connect("http://a.example/").extension(Protocol::from_static("h2c"));
        let request = request.header("http2-settings", "AAMAAABkAAQAAP__").body(()).unwrap();
        let (response, _up) = client.send_request(request, false).unwrap();
        assert_eq!(response.await.unwrap_err().reason(), Some(h2::Reason::PROTOCOL_ERROR));
        assert_eq!(ask(&mut client, chat("/403")).await.0.status(), 403); // the connection goes on
    });
}

/// Any 2xx accepts an extended CONNECT, so an invalid acceptance of the server must not become one.
#[test]
fn what_is_no_agreement_is_not_reported_as_one() {
    let (_program, address, log) = start("", "", server_of_1(), "");
    let statuses = block(async {
        let mut client = client(address).await;
        let mut statuses = Vec::new();
        for path in ["/wrong", "/200", "/403"] {
            statuses.push(ask(&mut client, chat(path)).await.0.status().as_u16());
        }
        statuses
    });
    assert_eq!(statuses, [502, 502, 403]);
    // With the option a wrong `Sec-WebSocket-Accept` is let pass, but no other status.
    let option = " option accept-unsafe-violations-in-http-response\n";
    let (_lenient, lenient_at, _log) = start("", option, server_of_1(), "");
    block(async {
        let mut client = client(lenient_at).await;
        for (path, status) in [("/wrong", 200), ("/200", 502)] {
            assert_eq!(ask(&mut client, chat(path)).await.0.status(), status, "{path}");
        }
    });
    for shown in [" 502 ", " 502 "] {
        let line = log.wait("HTTP/2.0");
        assert!(line.contains(shown) && line.contains(" PH-- "), "{line}");
    }
}

#[test]
fn a_client_of_http_1_reaches_a_server_of_http_2() {
    let (_program, address, log) = start("", " http-reuse always\n", server_of_2(true), "proto h2");
    let (head, mut stream) = upgrade(address, "/chat");
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.1 101 switching protocols\r\n"), "{head}");
    for field in
        ["upgrade: websocket", "connection: upgrade", "x-requested: connect some(\"websocket\") false"]
    {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{head}");
    }
    assert!(head.contains(&format!("\r\nsec-websocket-accept: {}\r\n", ACCEPT.to_lowercase())), "{head}");
    // A concurrent request on the same connection.
    let mut plain = connect(address);
    plain.write_all(b"GET /plain HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    assert!(common::read_all(&mut plain).contains("/plain"));
    // Waited for here, since lines of two lanes come in any order and waiting skips others.
    assert!(log.wait("GET /plain").contains(" 200 "));
    echoes(&mut stream);
    let (head, _stream) = upgrade(address, "/403");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let line = log.wait("GET /chat");
    assert!(line.contains(" 101 ") && line.contains(" ---- "), "{line}");
}

#[test]
fn a_client_of_http_2_reaches_a_server_of_http_2() {
    for options in ["proto h2", "ws h2"] {
        let (_program, address, log) = start("", "", server_of_2(true), options);
        block(async {
            let mut client = client(address).await;
            let (response, mut tunnel) = ask(&mut client, chat("/chat")).await;
            assert_eq!(response.headers()["x-requested"], "CONNECT Some(\"websocket\") false");
            tunnel.say("one", false);
            tunnel.hear("one").await;
            tunnel.say("last", true);
            tunnel.hear("last").await;
            tunnel.hear("").await;
            let (response, _tunnel) = ask(&mut client, chat("/403")).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
        });
        assert!(log.wait("/chat").contains(" 101 "));
    }
}

#[test]
fn ws_says_what_websocket_goes_by() {
    // A server that does not accept it.
    let (_program, address, log) = start("", "", server_of_2(false), "proto h2");
    assert!(upgrade(address, "/chat").0.starts_with("HTTP/1.1 502 "));
    assert!(log.wait("GET /chat").contains(" SH-- "));
    let (_program, address, _log) = start("", "", server_of_1(), "proto h2 ws h1");
    let (head, mut stream) = upgrade(address, "/chat");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPT), "{head}");
    echoes(&mut stream);
}

#[test]
fn clients_are_not_informed_of_websocket_where_that_is_wanted() {
    let (_program, address, _log) = start(" h2-workaround-bogus-websocket-clients\n", "", server_of_1(), "");
    block(async {
        let mut client = client(address).await;
        assert!(!client.is_extended_connect_protocol_enabled());
        let (response, _up) = client.send_request(chat("/chat"), false).unwrap();
        let error = response.await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::PROTOCOL_ERROR));
    });
}

#[test]
fn a_silent_tunnel_ends_by_its_timeout() {
    let (_program, address, log) = start("", " timeout tunnel 3s\n", server_of_1(), "");
    block(async {
        let mut client = client(address).await;
        let (_, mut tunnel) = ask(&mut client, chat("/chat")).await;
        tunnel.say("one", false);
        tunnel.hear("one").await;
        let end = tunnel.down.data().await.unwrap().unwrap_err();
        assert!(end.is_reset(), "{end}");
    });
    let line = log.wait("/chat");
    assert!(line.contains(" cD-- ") || line.contains(" sD-- "), "{line}");
}

/// A client that resets its stream ends the tunnel and the server's connection.
#[test]
fn a_reset_ends_a_tunnel() {
    let (gone, is_gone) = std::sync::mpsc::channel();
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        let requested = head(&mut stream);
        let key = requested.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept_of(key)
        );
        out.write_all(answer.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = gone.send(());
    });
    let (_program, address, log) = start("", "", server, "");
    block(async {
        let mut client = client(address).await;
        let (_, mut tunnel) = ask(&mut client, chat("/chat")).await;
        tunnel.up.send_reset(h2::Reason::CANCEL);
        drop(tunnel);
        let (_, _other) = ask(&mut client, chat("/other")).await;
    });
    is_gone.recv_timeout(TIMEOUT).unwrap();
    assert!(log.wait("/chat").contains(" CD-- "));
}

/// A connection that was opened only to learn whether the server accepts WebSocket is closed if it starts no
/// stream.
#[test]
fn no_connection_stays_behind_a_server_that_does_not_take_it() {
    let (sender, over) = std::sync::mpsc::channel();
    let server = common::h2::serve(move |stream, _| {
        let tx = sender.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok(_)) = connection.accept().await {}
            tx.send(()).unwrap();
        }
    });
    let (_program, address, _log) = start("", "", server, "proto h2 pool-purge-delay 10m");
    for _ in 0..3 {
        assert!(upgrade(address, "/chat").0.starts_with("HTTP/1.1 502 "));
        over.recv_timeout(TIMEOUT).unwrap();
    }
}

/// The proxy waits for the server's settings, which never arrive, to learn whether it accepts tunnels.
#[test]
fn who_leaves_while_a_servers_settings_are_waited_for_is_noticed() {
    let (sender, reached) = std::sync::mpsc::channel();
    let silent = origin(move |mut stream| {
        stream.read_exact(&mut [0; 24]).unwrap();
        sender.send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (_program, address, log) = start("", " option abortonclose\n", silent, "proto h2");
    let mut one = connect(address);
    write!(one, "GET /one HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n").unwrap();
    write!(one, "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n").unwrap();
    reached.recv_timeout(TIMEOUT).unwrap();
    drop(one);
    let line = log.wait("/one");
    assert!(line.contains(" CC-- "), "{line}");
    block(async {
        let mut two = client(address).await;
        let requested = two.send_request(chat("/two"), false).unwrap();
        let begun = std::time::Instant::now();
        while reached.try_recv().is_err() {
            assert!(begun.elapsed() < TIMEOUT, "the server is not reached");
            tokio::task::yield_now().await;
        }
        drop(requested); // resets the stream
        tokio::task::yield_now().await;
        let line = tokio::task::spawn_blocking(move || log.wait("/two")).await.unwrap();
        assert!(line.contains(" CC-- "), "{line}");
    });
}

/// A plain CONNECT to an HTTP/2 server, which keeps its stream open for the tunnel.
#[test]
fn a_connect_goes_through_a_server_of_http_2() {
    let (_program, address, _log) = start("", "", server_of_2(false), "proto h2");
    let mut stream = connect(address);
    stream.write_all(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let head = head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("CONNECT None false"), "{head}");
    echoes(&mut stream);
}

/// An HTTP/1 origin that reads a body for each request with a length, whatever the method, and accepts no
/// tunnel. Its response has the number of the connection, from 1, and the request's head.
fn lengths() -> SocketAddr {
    let connections = AtomicUsize::new(0);
    origin(move |mut stream| {
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            let requested = head(&mut reader).to_lowercase();
            let text = format!("{number} {requested}");
            let answer = format!("HTTP/1.1 404 No\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            let length = requested.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            if stream.write_all(answer.as_bytes()).is_err() || reader.read_exact(&mut body).is_err() {
                return;
            }
        }
    })
}

/// The response of [`lengths`] to an HTTP/1 client: number of the connection, and head.
fn frame_of(stream: &mut BufReader<TcpStream>, line: &str) -> (usize, String) {
    stream.get_mut().write_all(format!("{line}\r\nHost: b.example\r\n\r\n").as_bytes()).unwrap();
    let head = head(stream).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let (number, requested) = body.split_once(' ').unwrap();
    (number.parse().unwrap(), requested.to_owned())
}

/// A connection whose server has refused a tunnel serves other requests. The server must not expect a body of
/// the length that the tunnel's client has sent: the next request would become that body.
#[test]
fn a_tunnel_with_a_length_takes_nothing_of_the_next_request() {
    let plain = || Request::builder().method(Method::CONNECT).uri("b.example:443").body(()).unwrap();
    for reuse in ["safe", "aggressive", "always"] {
        for (kind, mut request) in [("extended", chat("/chat")), ("plain", plain())] {
            let what = format!("http-reuse {reuse}, {kind} CONNECT");
            let (web, address) = listener();
            let _program = Manylane::start_ready(&format!(
                "{} mode http\nlisten l\n bind {}\n http-reuse {reuse}\n server s {}\n",
                ONE_LANE,
                fd(&web),
                lengths()
            ));
            let mut other = BufReader::new(connect(address));
            assert_eq!(frame_of(&mut other, "GET /first HTTP/1.1").0, 1, "{what}");
            let begin = "GET /victim?q=";
            request.headers_mut().insert("content-length", begin.len().into());
            request.headers_mut().insert("expect", "100-continue".parse().unwrap());
            block(async {
                let mut client = client(address).await;
                // Later requests of a session use any connection.
                let get = Request::get("http://a.example/").body(()).unwrap();
                assert_eq!(client.send_request(get, true).unwrap().0.await.unwrap().status(), 404, "{what}");
                let (response, mut tunnel) = ask(&mut client, request).await;
                assert_eq!(response.status(), 404, "{what}");
                let mut text = String::new();
                while let Some(data) = tunnel.down.data().await {
                    text.push_str(std::str::from_utf8(&data.unwrap()).unwrap());
                }
                assert!(!text.contains("content-length") && !text.contains("expect"), "{what}: {text}");
                let requested =
                    move || [(); 2].map(|()| frame_of(&mut other, &format!("{begin}DELETE HTTP/1.1")));
                for (_, requested) in tokio::task::spawn_blocking(requested).await.unwrap() {
                    assert!(
                        requested.starts_with("get /victim?q=delete http/1.1\r\n"),
                        "{what}: {requested}"
                    );
                }
            });
        }
    }
}

const BOTH: &str = "alpn h2,http/1.1";

/// A program whose frontend `f` reaches its own frontend `g`, with `alpn`, over TLS with `options`, and that
/// `server`. With `hides`, `g` does not announce RFC 8441. `g` tells the version of requests.
fn start_over_tls(alpn: &str, hides: bool, options: &str, server: &str) -> (Manylane, SocketAddr) {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let ((inner, between), (outer, address)) = (listener(), listener());
    let program = Manylane::start_ready(&format!(
        "global\n{}{} mode http\n http-reuse always\nfrontend f\n bind {}\n default_backend b\nbackend b\n \
         server s {between} ssl verify none {options}\nfrontend g\n bind {} ssl crt {} {alpn}\n \
         http-request return status 200 content-type text/plain lf-string %[fc_http_major] if {{ path \
         /plain }}\n \
         http-response set-header x-version %[fc_http_major]\n default_backend c\nbackend c\n server s \
         {server}\n",
        if hides { " h2-workaround-bogus-websocket-clients\n" } else { "" },
        ONE_LANE,
        fd(&outer),
        fd(&inner),
        certificate.display(),
    ));
    (program, address)
}

/// ALPN is agreed on before the proxy knows whether a server of HTTP/2 accepts WebSocket.
#[test]
fn websocket_goes_to_servers_with_alpn_over_http_1_unless_ws_says_otherwise() {
    for (alpn, options, hides, version) in [
        (BOTH, "alpn h2,http/1.1", true, Some('1')),
        (BOTH, "alpn h2,http/1.1 ws h1", true, Some('1')),
        (BOTH, "alpn h2 ws h1", true, Some('1')),
        (BOTH, "alpn h2,http/1.1 ws h2", false, Some('2')),
        (BOTH, "alpn h2", false, Some('2')),
        (BOTH, "alpn h2,http/1.1 ws h2", true, None),
        // A server that selects none speaks HTTP/1.
        ("no-alpn", "alpn h2", false, Some('1')),
        ("no-alpn", "alpn h2,http/1.1 ws h2", false, Some('1')),
    ] {
        let (_program, address) = start_over_tls(alpn, hides, options, &server_of_1().to_string());
        // Leaves an idle connection of HTTP/2, if the server speaks that.
        let mut plain = connect(address);
        plain.write_all(b"GET /plain HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
        let answer = common::read_all(&mut plain);
        assert!(answer.ends_with(if alpn == BOTH { "\r\n\r\n2" } else { "\r\n\r\n1" }), "{options}");
        let (head, mut stream) = upgrade(address, "/chat");
        let Some(version) = version else {
            assert!(head.starts_with("HTTP/1.1 502 "), "{options}: {head}");
            continue;
        };
        assert!(head.starts_with("HTTP/1.1 101 "), "{options}: {head}");
        assert!(head.contains(&format!("\r\nx-version: {version}\r\n")), "{options}: {head}");
        echoes(&mut stream);
    }
}

#[test]
fn tunnels_and_trailers_go_over_http_2_within_tls() {
    let (_program, address) =
        start_over_tls(BOTH, false, "alpn h2", &format!("{} proto h2", server_of_2(true)));
    block(async {
        let mut client = client(address).await;
        let plain = Request::builder().method(Method::CONNECT).uri("b.example:443").body(()).unwrap();
        for (request, protocol) in [(chat("/chat"), "Some(\"websocket\")"), (plain, "None")] {
            let (response, mut tunnel) = ask(&mut client, request).await;
            assert_eq!(response.headers()["x-requested"], format!("CONNECT {protocol} false"));
            assert_eq!(response.headers()["x-version"], "2");
            for text in ["one", "three"] {
                tunnel.say(text, false);
                tunnel.hear(text).await;
            }
            tunnel.say("last", true);
            tunnel.hear("last").await;
            tunnel.hear("").await;
        }
        let request = Request::post("http://a.example/").body(()).unwrap();
        let (response, mut up) = client.send_request(request, false).unwrap();
        up.send_data(Bytes::from("body"), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        up.send_trailers(trailers).unwrap();
        let mut down = response.await.unwrap().into_body();
        while let Some(data) = down.data().await {
            data.unwrap();
        }
        assert_eq!(down.trailers().await.unwrap().unwrap()["x-sum"], "1");
    });
}
