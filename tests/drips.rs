//! Input that arrives byte by byte takes memory by its size, wherever it waits for its end (SECURITY.md,
//! *What one connection can make us hold*).

use crate::common;
use crate::slow_readers::small;
use crate::tls::Authority;

use common::watch::until;
use common::{Manylane, TIMEOUT, connect, fd, listener, origin};
use manylane_tests::sockets::{ESTABLISHED, sockets};
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

const CLIENTS: usize = 40;

/// Bytes of each client. With a cluster for each byte they would take 120 MB in all.
const BYTES: usize = 1400;

/// Bytes of each client where they grow beyond the first cluster, of 2 KiB, into further and larger ones.
const MANY: usize = 6000;

/// Limit for the additional memory of bytes that arrive one by one, in kilobytes. Debug builds took up to
/// 312.
pub(crate) const MORE: usize = 1024;

/// One lane, since the lanes' own memory would count twice; and long timeouts for single bytes on a busy
/// machine.
fn defaults() -> String {
    common::measured().replace("nbthread 2", "nbthread 1").replace("30s", "300s")
}

/// A name that no other program uses: a killed program may keep its name for a moment.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("manylane-drips-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until the program has read everything on sockets with this port: its own port, or that of its peers.
pub(crate) fn all_is_read(port: u16, of_peer: bool) {
    until(|| {
        let at = sockets(ESTABLISHED, Some(port), None);
        let to = sockets(ESTABLISHED, None, Some(port));
        let (own, theirs) = if of_peer { (to, at) } else { (at, to) };
        own.iter().all(|socket| socket.unread == 0) && theirs.iter().all(|socket| socket.unsent == 0)
    });
}

/// Rounds between two checks whether everything was read: a check takes longer than a round. If the program
/// read only at these times, single bytes in clusters of their own would still take 7 MB.
const ROUNDS: u64 = 16;

/// The same for a program that waits for a limited time.
pub(crate) const ROUNDS_IN_HASTE: usize = 64;

/// How bytes are sent to each stream, in turns.
#[derive(Clone, Copy)]
struct Drip {
    /// Number of bytes.
    bytes: usize,
    pieces: Pieces,
    /// Rounds between two checks whether everything was read.
    rounds: u64,
    /// Makes what carries a piece.
    carried: fn(Vec<u8>) -> Vec<u8>,
}

#[derive(Clone, Copy)]
enum Pieces {
    AtOnce,
    Single,
    Of(usize),
    /// Of random lengths up to 60, from this seed.
    Random(u64),
}

impl Drip {
    /// [`BYTES`] in pieces of `step`, or at once.
    fn of(step: usize) -> Self {
        let pieces = if step == 1 { Pieces::Single } else { Pieces::AtOnce };
        Self { bytes: BYTES, pieces, rounds: ROUNDS, carried: |piece| piece }
    }

    fn send(self, streams: &mut [impl Write], all_is_read: impl Fn()) {
        self.try_send(streams, all_is_read).unwrap();
    }

    fn try_send(self, streams: &mut [impl Write], all_is_read: impl Fn()) -> std::io::Result<()> {
        let (mut left, mut round) = (self.bytes, 0);
        while left > 0 {
            let length = match self.pieces {
                Pieces::AtOnce => left,
                Pieces::Single => 1,
                Pieces::Of(length) => length,
                Pieces::Random(seed) => {
                    1 + (seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 60
                }
            };
            let piece = (self.carried)(vec![b'x'; length.min(left)]);
            left -= length.min(left);
            for stream in &mut *streams {
                stream.write_all(&piece)?;
            }
            if round.is_multiple_of(self.rounds) {
                all_is_read();
            }
            round += 1;
        }
        all_is_read();
        Ok(())
    }
}

/// Memory of a program with this configuration after clients have sent `begin` and then what drips, over what
/// `client` makes of their connections.
fn memory_with_clients<P: Peer>(
    config: &str,
    begin: &str,
    drip: Drip,
    client: impl Fn(TcpStream) -> P,
) -> usize {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        stream.set_read_timeout(None).unwrap(); // what drips here may reach it only when it is complete
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let config = config.replace("@bind", &fd(&socket)).replace("@server", &server.to_string());
    let config = config.replace("@name", &name());
    let waits = " timeout http-request 300s";
    let program = Manylane::start_ready(&format!("{}{waits}\n{config}", defaults()));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let stream = connect(address);
            stream.set_nodelay(true).unwrap();
            client(stream)
        })
        .collect();
    for client in &mut clients {
        client.write_all(begin.as_bytes()).unwrap();
    }
    drip.send(&mut clients, || all_is_read(address.port(), false));
    let memory = program.memory();
    for client in &mut clients {
        // All wait: no client got a response or was disconnected. One of HTTP/2 got settings.
        client.socket().set_nonblocking(true).unwrap();
        let mut got = vec![0; 200];
        let outcome = client.read(&mut got).map_err(|error| error.kind());
        match outcome {
            Ok(length) if begin.starts_with("PRI ") => {
                let kinds: Vec<u8> = frames(&got[..length]);
                assert!(!kinds.is_empty() && kinds.iter().all(|kind| [4, 8].contains(kind)), "{kinds:?}");
            }
            other => assert_eq!(other, Err(std::io::ErrorKind::WouldBlock)),
        }
    }
    memory
}

/// Kinds of the frames of HTTP/2 in these bytes.
fn frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = bytes {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    kinds
}

#[track_caller]
fn drops_take_no_more(config: &str, begin: &str) {
    drops_over_take_no_more(config, begin, |stream| stream);
}

#[track_caller]
fn drops_over_take_no_more<P: Peer>(config: &str, begin: &str, client: impl Fn(TcpStream) -> P) {
    carried_take_no_more(config, begin, &[Drip::of(1)], client);
}

#[track_caller]
fn carried_take_no_more<P: Peer>(config: &str, begin: &str, drips: &[Drip], client: impl Fn(TcpStream) -> P) {
    for &drip in drips {
        let at_once = Drip { pieces: Pieces::AtOnce, ..drip };
        let at_once = memory_with_clients(config, begin, at_once, &client);
        let drops = memory_with_clients(config, begin, drip, &client);
        println!("{begin:?}: {drops} KB drop by drop, {at_once} KB at once");
        assert!(drops <= at_once + MORE, "{drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Sends [`MANY`] bytes one by one, and in pieces of random lengths.
#[track_caller]
fn many_drops_take_no_more(config: &str, begin: &str) {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let drips =
        [Pieces::Single, Pieces::Random(seed)].map(|pieces| Drip { bytes: MANY, pieces, ..Drip::of(1) });
    carried_take_no_more(config, begin, &drips, |stream| stream);
}

/// What clients and servers send over: a connection, or TLS within one.
trait Peer: Read + Write {
    fn socket(&self) -> &TcpStream;

    /// Sends a piece. Fails if the socket has not taken all of it within its limit of time.
    fn send(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.write_all(piece)
    }
}

impl Peer for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

/// It sends each piece that is written in a record of its own.
impl<C, S> Peer for rustls::StreamOwned<C, TcpStream>
where
    C: DerefMut<Target = rustls::ConnectionCommon<S>>,
    S: rustls::SideData,
{
    fn socket(&self) -> &TcpStream {
        &self.sock
    }

    /// A write succeeds as well if its record only waits in this process.
    fn send(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.write_all(piece)?;
        match self.conn.wants_write() {
            true => Err(std::io::ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }
}

const PROXY: &str = "listen l\n bind @bind\n mode http\n server s @server\n";

#[test]
fn a_head_that_comes_drop_by_drop_takes_no_more_than_at_once() {
    many_drops_take_no_more(PROXY, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
}

/// What begins a connection of HTTP/2: empty settings, and an acknowledgement of the other ones, which are
/// waited for a short time only.
const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

/// HEADERS of 8,192 bytes, without a padding or an end of the stream.
const HEADERS: &str = "\0\x20\0\x01\x04\0\0\0\x01";

/// Makes a frame of DATA.
fn data_frame(piece: Vec<u8>) -> Vec<u8> {
    let [.., a, b, c] = (piece.len() as u32).to_be_bytes();
    [&[a, b, c, 0, 0, 0, 0, 0, 1][..], &piece].concat()
}

#[test]
fn frames_of_http_2_take_no_more_drop_by_drop() {
    let bind = "listen l\n bind @bind proto h2\n mode http\n server s @server\n";
    drops_take_no_more(bind, &format!("{PREFACE}{HEADERS}"));
    // A request of POST / with `Host: a`, and DATA of 8,192 bytes for a rule that waits for the body.
    let body = "\0\x20\0\0\0\0\0\0\x01";
    let block = "\x03\x04POST\x04\x01/\x06\x04http\x01\x01a";
    let request = format!("\0\0{}\x01\x04\0\0\0\x01{block}", char::from(block.len() as u8));
    let bind = format!("{bind} option http-buffer-request\n");
    drops_take_no_more(&bind, &format!("{PREFACE}{request}{body}"));
    // A frame of DATA for each byte.
    let drip = Drip { carried: data_frame, ..Drip::of(1) };
    carried_take_no_more(&bind, &format!("{PREFACE}{request}"), &[drip], |stream| stream);
}

#[test]
fn a_body_that_is_waited_for_takes_no_more_drop_by_drop() {
    let config = format!("{PROXY} option http-buffer-request\n");
    many_drops_take_no_more(&config, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n");
    let config = format!("{PROXY} http-request wait-for-body time 300s\n");
    drops_take_no_more(&config, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n");
}

#[test]
fn trailers_take_no_more_drop_by_drop() {
    drops_take_no_more(
        PROXY,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    );
}

#[test]
fn what_rules_of_tcp_wait_for_takes_no_more_drop_by_drop() {
    let rules = " tcp-request inspect-delay 300s\n tcp-request content accept if { req.len gt 15000 }\n";
    many_drops_take_no_more(&format!("listen l\n bind @bind\n mode tcp\n server s @server\n{rules}"), "");
    let rules = " tcp-request inspect-delay 300s\n tcp-request content accept if HTTP\n";
    drops_take_no_more(
        &format!("listen l\n bind @bind\n mode tcp\n server s @server\n{rules}"),
        "GET / HTTP/1.1\r\nX: ",
    );
}

/// Messages of other programs.
#[test]
fn a_message_for_log_forward_takes_no_more_drop_by_drop() {
    for begin in ["<13>", "9999 <13>"] {
        // 10 connections are usual.
        let config = format!(
            "log-forward l\n bind @bind\n maxconn {CLIENTS}\n timeout client 300s\n log @server local0\n"
        );
        drops_take_no_more(&config, begin);
    }
}

#[test]
fn a_header_of_the_proxy_protocol_takes_no_more_drop_by_drop() {
    let begin = "\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\x00"; // announces 3,840 more bytes
    let config = "listen l\n bind @bind accept-proxy\n mode http\n server s @server\n";
    let seed = std::process::id().into();
    let drips =
        [Pieces::Single, Pieces::Random(seed)].map(|pieces| Drip { bytes: 3800, pieces, ..Drip::of(1) });
    println!("seed {seed}");
    carried_take_no_more(config, begin, &drips, |stream| stream);
}

/// The copies of IP and TCP headers that are announced here, of 256 bytes, are the longest.
#[test]
fn a_header_of_netscaler_takes_no_more_drop_by_drop() {
    let begin = "\0\0\x30\x39\0\0\x01\0\x45"; // the number, the length, and the version of IP
    let config = "listen l\n bind @bind accept-netscaler-cip 12345\n mode http\n server s @server\n";
    carried_take_no_more(config, begin, &[Drip { bytes: 250, rounds: 2, ..Drip::of(1) }], |stream| stream);
}

/// Memory of a program to which as many peers are connected. They have sent `bytes` of a message in pieces of
/// `step`, or of the last line of a greeting.
/// `None` if the program closed one, because all of that took longer than peers may be silent.
fn memory_with_peers(greets: bool, bytes: usize, step: usize) -> Option<usize> {
    let own = common::own_address();
    let (socket, _) = listener();
    let away = common::nobody();
    let others: String = (0..CLIENTS).map(|number| format!(" peer p{number} {away}\n")).collect();
    let program = Manylane::start_ready(&format!(
        "global\n localpeer own\n{}peers ps\n peer own {own}\n{others}listen l\n bind {}\n mode http\n \
         stick-table type ip size 1k peers ps store gpc0\n",
        defaults(),
        fd(&socket)
    ));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = connect(own);
            client.set_nodelay(true).unwrap();
            if greets {
                client.write_all(b"HAProxyS 2.1\nown\n").unwrap();
            } else {
                write!(client, "HAProxyS 2.1\nown\np{number} 1 1\n").unwrap();
                let mut answer = [0; 4];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"200\n");
                client.write_all(b"\x0a\x80\xf0\xf1\x06").unwrap(); // an update of 16,384 bytes
            }
            client
        })
        .collect();
    let drip = Drip { bytes, ..Drip::of(step) };
    drip.try_send(&mut clients, || all_is_read(own.port(), false)).ok()?;
    let memory = program.memory();
    clients
        .iter_mut()
        .all(|client| {
            client.set_nonblocking(true).unwrap();
            let sent = client.read_to_end(&mut Vec::new()); // who has greeted gets heartbeats
            sent.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        })
        .then_some(memory)
}

/// Few bytes, since a greeting and a silence are limited to five seconds. With a cluster for each of their
/// 10,000 bytes they would take 21 MB.
#[test]
fn what_peers_say_takes_no_more_drop_by_drop() {
    const SAID: usize = 250;
    for greets in [true, false] {
        let begun = std::time::Instant::now();
        let memory = |step| loop {
            if let Some(memory) = memory_with_peers(greets, SAID, step) {
                break memory;
            }
            assert!(begun.elapsed() < common::TIMEOUT, "peers were closed each time");
        };
        let (at_once, drops) = (memory(SAID), memory(1));
        assert!(drops <= at_once + MORE, "{greets}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Reads frames of HTTP/2 up to one with a head.
fn head_of_http_2(stream: &mut impl Read) {
    let mut header = [0; 9];
    while header[3] != 1 {
        stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        stream.read_exact(&mut vec![0; length as usize]).unwrap();
    }
}

/// Reads to the end of a head.
pub(crate) fn asks_by_a_head(stream: &mut impl Read) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "the head is cut");
        head.extend_from_slice(&part[..length]);
    }
}

/// Memory of a program with this configuration when it has [`CLIENTS`] connections to servers. Each server
/// has read what `asks` reads, and sent `begin` and then [`BYTES`] in pieces of `step`. If there is a
/// `request`, as many clients send it.
fn memory_with_servers<P: Peer + Send + 'static>(
    config: impl FnOnce(SocketAddr) -> String,
    request: Option<&str>,
    asks: impl Fn(TcpStream) -> P + Send + Sync + 'static,
    begin: &'static [u8],
    step: usize,
) -> usize {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let server: SocketAddr = origin(move |stream| {
        stream.set_nodelay(true).unwrap();
        let mut stream = asks(stream);
        stream.write_all(begin).unwrap();
        let _ = tell.send(stream); // the program may have ended
    });
    let listen = "listen served\n bind @bind\n mode http\n";
    let config = config(server);
    let config = if request.is_none() { format!("{listen}{config}") } else { config };
    let config = config.replace("@bind", &fd(&socket));
    let program = Manylane::start_ready(&format!("{}{config}", defaults()));
    let clients: Vec<_> = request
        .into_iter()
        .flat_map(|request| {
            (0..CLIENTS).map(move |_| {
                let mut client = connect(address);
                client.write_all(request.as_bytes()).unwrap();
                client
            })
        })
        .collect();
    let mut servers: Vec<_> = (0..CLIENTS).map(|_| receiver.recv_timeout(TIMEOUT).unwrap()).collect();
    Drip::of(step).send(&mut servers, || all_is_read(server.port(), true));
    let memory = program.memory();
    for server in &servers {
        // The program waits for more: it has not closed the connection. That of a ring may have sent lines.
        let server = server.socket();
        server.set_nonblocking(true).unwrap();
        let peeked = server.peek(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(peeked, Ok(1) | Err(std::io::ErrorKind::WouldBlock)), "{peeked:?}");
    }
    drop(clients);
    memory
}

#[track_caller]
fn drops_of_servers_take_no_more(
    config: impl Fn(SocketAddr) -> String,
    request: Option<&str>,
    asks: fn(&mut TcpStream),
    begin: &'static [u8],
) {
    let requested = move |mut stream: TcpStream| {
        asks(&mut stream);
        stream
    };
    let at_once = memory_with_servers(&config, request, requested, begin, BYTES);
    let drops = memory_with_servers(&config, request, requested, begin, 1);
    let begin = String::from_utf8_lossy(begin);
    println!("{begin:?}: {drops} KB drop by drop, {at_once} KB at once");
    assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
}

#[test]
fn what_servers_send_drop_by_drop_takes_no_more_than_at_once() {
    let wait = " http-response wait-for-body time 300s\n";
    let bodies = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n";
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n";
    let trailers = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ";
    let all: [(&str, &'static [u8]); 4] =
        [("", b"HTTP/1.1 200 OK\r\nX: "), (wait, bodies), (wait, chunks), ("", trailers)];
    for (rules, begin) in all {
        let config = |server| format!("listen l\n bind @bind\n mode http\n server s {server}\n{rules}");
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        drops_of_servers_take_no_more(config, Some(request), asks_by_a_head, begin);
    }
}

/// Makes clients of TLS that trust this authority.
fn within_tls(authority: &Authority) -> impl Fn(TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.own.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let client = Arc::new(client);
    move |stream| {
        let name = "a.example".try_into().unwrap();
        StreamOwned::new(ClientConnection::new(client.clone(), name).unwrap(), stream)
    }
}

/// Data within TLS, with a record for each byte.
#[test]
fn what_comes_within_tls_takes_no_more_drop_by_drop() {
    let authority = Authority::new();
    let file = authority.bundle("a.pem", &["a.example"]).display().to_string();
    let within = within_tls(&authority);
    let bind = |words: &str| {
        format!("listen l\n bind @bind ssl crt {file} {words}\n mode http\n server s @server\n")
    };
    drops_over_take_no_more(&bind(""), "GET / HTTP/1.1\r\nHost: a\r\nX: ", &within);
    let body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n";
    drops_over_take_no_more(&format!("{} option http-buffer-request\n", bind("")), body, &within);
    drops_over_take_no_more(&bind("proto h2"), &format!("{PREFACE}{HEADERS}"), within);

    let server = server_of_tls();
    let memory = |step| {
        let config =
            |server| format!("listen l\n bind @bind\n mode http\n server s {server} ssl verify none\n");
        let server = server.clone();
        let asks = move |stream| {
            let connection = rustls::ServerConnection::new(server.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            asks_by_a_head(&mut stream);
            stream
        };
        let request = Some("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        memory_with_servers(config, request, asks, b"HTTP/1.1 200 OK\r\nX: ", step)
    };
    let (at_once, drops) = (memory(BYTES), memory(1));
    println!("servers: {drops} KB drop by drop, {at_once} KB at once");
    assert!(drops <= at_once + MORE, "servers: {drops} KB drop by drop, {at_once} KB at once");
}

/// A server with a certificate that nobody verifies.
pub(crate) fn server_of_tls() -> Arc<rustls::ServerConfig> {
    let (key, params) = (rcgen::KeyPair::generate().unwrap(), rcgen::CertificateParams::default());
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

/// Reads to the head of a request over HTTP/2.
fn asks_by_headers(stream: &mut TcpStream) {
    let mut came = Vec::new();
    while !frames(came.get(24..).unwrap_or_default()).contains(&1) {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "the head is cut");
        came.extend_from_slice(&part[..length]);
    }
}

/// A head of a server of HTTP/2, and DATA of 8,192 bytes for a rule that waits for the body.
#[test]
fn frames_of_servers_of_http_2_take_no_more_drop_by_drop() {
    let head = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\0\x20\0\x01\x04\0\0\0\x01";
    let body = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\
        \0\0\x01\x01\x04\0\0\0\x01\x88\0\x20\0\0\0\0\0\0\x01";
    let all: [(&str, &'static [u8]); 2] = [("", head), (" http-response wait-for-body time 300s\n", body)];
    for (rules, begin) in all {
        let config =
            |server| format!("listen l\n bind @bind\n mode http\n server s {server} proto h2\n{rules}");
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        drops_of_servers_take_no_more(config, Some(request), asks_by_headers, begin);
    }
}

#[test]
fn what_rules_of_responses_of_tcp_wait_for_takes_no_more_drop_by_drop() {
    let rules = " tcp-response inspect-delay 300s\n tcp-response content accept if { res.len gt 15000 }\n";
    let config = |server| format!("listen l\n bind @bind\n mode tcp\n server s {server}\n{rules}");
    let asks = |stream: &mut TcpStream| stream.read_exact(&mut [0]).unwrap();
    drops_of_servers_take_no_more(config, Some("x"), asks, b"");
}

/// A rule that waits for a chunked body, with one byte and a long extension in each chunk: the framing is
/// stored with the body, so it is limited, too.
#[test]
fn a_body_that_is_waited_for_is_bounded_with_what_frames_it() {
    /// Chunks of 16,000 bytes each: 16 MB for a kilobyte of body.
    const CHUNKS: usize = 1_000;
    /// Chunks that are more than the limit, `tune.bufsize` twice and 16 KiB. The server sends no other before
    /// the response begins, so that nothing but the program decides when it does.
    const MOST: usize = (48 << 10) / 16_000 + 1;
    let (begun, begins) = mpsc::channel();
    let begins = Mutex::new(begins);
    let server = origin(move |mut stream| {
        asks_by_a_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(15_992));
        stream.write_all(chunk.repeat(MOST).as_bytes()).unwrap();
        begins.lock().unwrap().recv().expect("the response begins");
        stream.write_all(chunk.repeat(CHUNKS - MOST).as_bytes()).unwrap();
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{}listen l\n bind {}\n mode http\n server s {server}\n http-response wait-for-body time 300s\n",
        defaults(),
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begin = "HTTP/1.1 200 OK";
    let mut first = [0; 15];
    client.read_exact(&mut first).expect("the response begins with a part of the body");
    assert_eq!(first, begin.as_bytes());
    begun.send(()).unwrap();
    // It arrives complete.
    let (mut piece, mut tail, mut data) = (vec![0; 65_536], Vec::new(), 0);
    while !tail.ends_with(b"\r\n0\r\n\r\n") {
        let length = client.read(&mut piece).unwrap();
        assert!(length > 0, "it is cut");
        data += piece[..length].iter().filter(|&&byte| byte == b'x').count();
        tail.extend_from_slice(&piece[..length]);
        tail.drain(..tail.len().saturating_sub(16));
    }
    assert_eq!(data, CHUNKS);
}

#[test]
fn answers_to_checks_take_no_more_drop_by_drop() {
    let backend = |server: SocketAddr, rules: &str, options: &str| {
        format!(
            "backend b\n timeout check 300s\n{rules} server-template s {CLIENTS} {server} {options} \
                inter 1s\n"
        )
    };
    let http = |server| backend(server, " option httpchk GET /\n http-check expect string never\n", "check");
    drops_of_servers_take_no_more(http, None, asks_by_a_head, b"HTTP/1.1 200 OK\r\nX: ");
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n";
    drops_of_servers_take_no_more(http, None, asks_by_a_head, body);
    let tcp = |server| backend(server, " option tcp-check\n tcp-check expect string never\n", "check");
    drops_of_servers_take_no_more(tcp, None, |_| {}, b"");
    let agent = |server: SocketAddr| {
        backend(server, "", &format!("agent-check agent-port {} agent-inter 1s", server.port()))
    };
    drops_of_servers_take_no_more(agent, None, |_| {}, b"");
}

#[test]
fn answers_of_name_servers_over_tcp_take_no_more_drop_by_drop() {
    let names = |server: SocketAddr| {
        let servers: String = (0..CLIENTS)
            .map(|n| format!(" server s{n} n{n}.example:80 resolvers r resolve-prefer ipv4 init-addr none\n"))
            .collect();
        format!(
            "resolvers r\n nameserver n tcp@{server}\n timeout resolve 300s\n timeout retry 300s\nbackend \
                b\n{servers}"
        )
    };
    let asks = |stream: &mut TcpStream| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        stream.read_exact(&mut vec![0; u16::from_be_bytes(length).into()]).unwrap();
    };
    drops_of_servers_take_no_more(names, None, asks, b"\xff\xff");
}

/// What a responder answers about a certificate.
#[test]
fn answers_about_certificates_take_no_more_drop_by_drop() {
    // Few enough for the time limit of an answer, 20 seconds, on a busy machine. With a cluster for each byte
    // they would take 2.4 MB.
    const LONG: usize = 1_200;
    let memory = |begin: &'static str, step: usize| {
        let (tell, receiver) = mpsc::channel();
        let responder = origin(move |mut stream| {
            asks_by_a_head(&mut stream);
            stream.set_nodelay(true).unwrap();
            stream.write_all(begin.as_bytes()).unwrap();
            let _ = tell.send(stream);
        });
        let authority = crate::tls::Authority::new();
        let url = format!("http://{responder}");
        let file = crate::tls_renewal::leaf(&authority, "a", 0x2a, &url, true).display().to_string();
        let (socket, _) = listener();
        let program = Manylane::start_ready(&format!(
            "{}crt-store\n load crt {file} ocsp-update on\nlisten l\n bind {} ssl crt {file}\n mode http\n",
            defaults(),
            fd(&socket)
        ));
        let mut stream = receiver.recv_timeout(TIMEOUT).unwrap();
        for round in 0..LONG / step {
            stream.write_all(&vec![b'x'; step]).unwrap();
            if round.is_multiple_of(ROUNDS_IN_HASTE) {
                all_is_read(responder.port(), true);
            }
        }
        all_is_read(responder.port(), true);
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(peeked, Err(std::io::ErrorKind::WouldBlock), "the program waits for more");
        program.memory()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\n";
    let body: &'static str = format!("{head}Content-Length: 60000\r\n\r\n").leak();
    for begin in ["HTTP/1.1 200 OK\r\nX: ", body] {
        let (at_once, drops) = (memory(begin, LONG), memory(begin, 1));
        assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Data of the servers of rings is dropped.
#[test]
fn what_servers_of_rings_send_takes_no_more_drop_by_drop() {
    let rings = |server: SocketAddr| {
        let rings = (0..CLIENTS).map(|n| format!("ring r{n}\n format raw\n server s {server}\n"));
        let targets = (0..CLIENTS).map(|n| format!(" log ring@r{n} local0\n"));
        let all = rings.chain(["listen l\n bind @bind\n mode http\n option httplog\n".into()]).chain(targets);
        all.collect::<String>() + " http-request return status 200\n"
    };
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    drops_of_servers_take_no_more(rings, Some(request), |_| {}, b"");
}

/// Data from one proxy of this program to another one waits for its end there: inside the process, and
/// through a socket.
#[test]
fn what_comes_through_a_second_proxy_takes_no_more_drop_by_drop() {
    for inner in ["local@", "abns@"].map(|kind| format!("{kind}@name")) {
        drops_take_no_more(
            &format!(
                "listen outer\n bind @bind\n mode tcp\n server s {inner}\nlisten l\n bind {inner}\n mode \
                    http\n server s @server\n"
            ),
            "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        );
    }
}

/// A request that waits for a name server that never answers.
#[test]
fn a_request_that_waits_for_a_name_takes_no_more_drop_by_drop() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolvers = format!(
        "resolvers r\n nameserver n {}\n timeout resolve 300s\n timeout retry 300s\n",
        silent.local_addr().unwrap()
    );
    let rule = " http-request do-resolve(txn.a,r,ipv4) str(a.example)\n option http-buffer-request\n";
    drops_take_no_more(
        &format!("{resolvers}{PROXY}{rule}"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1400\r\n\r\n",
    );
}

/// While a rule waits, the program reads what one read takes ahead, and what io_uring receives ahead. The
/// rest waits in the sockets, whose buffers are small here.
#[test]
fn what_comes_while_a_rule_waits_for_a_name_or_pauses_has_a_bound() {
    for action in ["do-resolve(txn.a,r,ipv4) str(a.example)", "pause 300s"] {
        little_is_taken_during(action);
    }
}

fn little_is_taken_during(action: &str) {
    const SMALL: usize = 16 << 10;
    const OFFERED: usize = 4 << 20;
    // `READ_AT_ONCE`, `RECEIVED_AHEAD` and the contents of a ring; and the buffers, which the kernel doubles.
    const BOUND: usize = (64 << 10) + (128 << 10) + (64 << 10) + 2 * 2 * SMALL;
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let log = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "global\n tune.rcvbuf.client {SMALL}\n{}resolvers r\n nameserver n {}\n timeout resolve 300s\n \
         timeout retry 300s\nlisten l\n bind {}\n mode http\n log {} local0\n http-request do-log\n \
         http-request {action}\n",
        defaults(),
        silent.local_addr().unwrap(),
        fd(&socket),
        log.local_addr().unwrap()
    ));
    let mut client = connect(address);
    rustix::net::sockopt::set_socket_send_buffer_size(&client, SMALL).unwrap();
    write!(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {OFFERED}\r\n\r\n").unwrap();
    log.set_read_timeout(Some(TIMEOUT)).unwrap();
    log.recv(&mut [0; 512]).unwrap(); // the rule that waits is next
    client.set_write_timeout(Some(STUCK)).unwrap();
    let mut sent = 0;
    while let Ok(n) = client.write(&[b'x'; 4096]) {
        sent += n;
        assert!(sent <= BOUND, "{action}: {sent} bytes were taken while the rule waits");
    }
    println!("{action}: {sent} bytes were taken");
}

/// Number of tunnel clients, and the bytes that each tries to send: those that fill the sockets, and those
/// that drip. These take up to 40 ms for each ten, since the kernel delays what acknowledges them.
const TUNNELS: (usize, (usize, usize)) = (40, (6000, 2000));

/// A client that cannot send for so long is stuck: everything that fits was accepted.
const STUCK: std::time::Duration = std::time::Duration::from_millis(100);

/// Which end of a tunnel reads nothing.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    Client,
    Server,
}

/// A program with tunnels, and their ends.
struct Tunnels<P> {
    program: Manylane,
    clients: Vec<P>,
    servers: Vec<TcpStream>,
    /// Address of the servers.
    server: SocketAddr,
}

/// Starts a program with these tunnels. A client is what `client` makes of its connection; it sends `begin`
/// and reads the head of the `answer`, if there is one. Socket buffers are small, so that data waits in the
/// program.
fn tunnels<P: Peer>(
    start: impl Fn(&str) -> Manylane,
    rules: &str,
    begin: &str,
    answer: &str,
    receiver: Receiver,
    client: impl Fn(TcpStream) -> P,
) -> Tunnels<P> {
    let (socket, address) = listener();
    let (waiting, server) = listener();
    rustix::net::sockopt::set_socket_recv_buffer_size(&waiting, 4096).unwrap();
    let config = rules.replace("@bind", &fd(&socket)).replace("@server", &server.to_string());
    let config = config.replace("@name", &name());
    let buffers = " tune.sndbuf.server 4096\n tune.rcvbuf.client 4096\n tune.sndbuf.client 4096\n \
        tune.rcvbuf.server 4096\n";
    let program = start(&format!("global\n{buffers}{}{config}", defaults()));
    let (clients, servers) = (0..TUNNELS.0)
        .map(|_| {
            let stream = match receiver {
                Receiver::Client => small(address),
                Receiver::Server => connect(address),
            };
            stream.set_nodelay(true).unwrap();
            let mut client = client(stream);
            client.write_all(begin.as_bytes()).unwrap();
            client.flush().unwrap(); // with TLS, this makes the handshake
            let mut server = waiting.accept().unwrap().0;
            server.set_read_timeout(Some(TIMEOUT)).unwrap();
            server.set_nodelay(true).unwrap();
            if !begin.is_empty() {
                asks_by_a_head(&mut server);
                server.write_all(answer.as_bytes()).unwrap();
                match begin.starts_with("PRI ") {
                    true => head_of_http_2(&mut client),
                    false => asks_by_a_head(&mut client), // a response head ends like a request head
                }
            }
            (client, server)
        })
        .unzip();
    Tunnels { program, clients, servers, server }
}

/// Sends each stream as much as it accepts: pieces of 1,000 bytes, which fill the sockets, and then pieces of
/// `step`. `carried` makes what carries a piece. Returns the number of bytes of data that were accepted.
fn fill<P: Peer + Send>(senders: &mut [P], step: usize, carried: fn(Vec<u8>) -> Vec<u8>) -> usize {
    let (first, then) = TUNNELS.1;
    let lengths = std::iter::repeat_n(1000, first / 1000).chain(std::iter::repeat_n(step, then / step));
    let sending = senders.iter_mut().map(|sender| {
        let lengths = lengths.clone();
        move || {
            sender.socket().set_write_timeout(Some(STUCK)).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(sender.socket(), 4096).unwrap();
            lengths.take_while(|&length| sender.send(&carried(vec![b'x'; length])).is_ok()).sum::<usize>()
        }
    });
    std::thread::scope(|scope| {
        let all: Vec<_> = sending.map(|send| scope.spawn(send)).collect();
        all.into_iter().map(|each| each.join().unwrap()).sum()
    })
}

/// Memory of a program with [`tunnels`] whose `receiver` does not read, after the other ends have sent as
/// much as was accepted, in pieces of `step`. A client of HTTP/2 sends each piece in a frame.
fn memory_with_tunnels<P: Peer + Send>(
    rules: &str,
    begin: &str,
    answer: &str,
    (receiver, step): (Receiver, usize),
    client: impl Fn(TcpStream) -> P,
) -> usize {
    let mut tunnels = tunnels(Manylane::start_ready, rules, begin, answer, receiver, client);
    let sent = match receiver {
        Receiver::Client => fill(&mut tunnels.servers, step, |piece| piece),
        Receiver::Server if begin.starts_with("PRI ") => fill(&mut tunnels.clients, step, data_frame),
        Receiver::Server => fill(&mut tunnels.clients, step, |piece| piece),
    };
    // A slow machine may not have read yet what the kernel accepted.
    let (mut memory, mut same) = (0, 0);
    while same < 20 {
        let now = tunnels.program.memory();
        same = if now > memory { 0 } else { same + 1 };
        memory = memory.max(now);
        manylane_tests::look_again();
    }
    println!("{begin:?} to a {receiver:?}: {sent} bytes in pieces of {step}, {memory} KB");
    memory
}

/// What begins a tunnel over HTTP/2, and the answer of its server.
const CONNECT_H2: &str = "\0\0\x10\x01\x04\0\0\0\x01\x02\x07CONNECT\x01\x05a:443";
const CONNECTED: &str = "HTTP/1.1 200 OK\r\n\r\n";

#[test]
fn tunnels_whose_receiver_is_slow_take_no_more_drop_by_drop() {
    let tcp = "listen l\n bind @bind\n mode tcp\n server s @server\n";
    let two = "listen outer\n bind @bind\n mode tcp\n server s local@@name\nlisten l\n bind local@@name\n \
        mode tcp\n server s @server\n";
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: \
        websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: \
        websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    let of_http_2 = format!("{PREFACE}{CONNECT_H2}");
    // Settings with windows of no byte for streams.
    let empty = "\0\0\0\x04\0\0\0\0\0";
    let closed = PREFACE.replacen(empty, "\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0", 1);
    let without_window = format!("{closed}{CONNECT_H2}");
    for (rules, begin, answer, receiver) in [
        (tcp, "", "", Receiver::Server),
        (tcp, "", "", Receiver::Client),
        (two, "", "", Receiver::Server),
        (PROXY, upgrade, upgraded, Receiver::Server),
        (PROXY, upgrade, upgraded, Receiver::Client),
        (PROXY, connect, CONNECTED, Receiver::Server),
        (PROXY, connect, CONNECTED, Receiver::Client),
        (PROXY, &*of_http_2, CONNECTED, Receiver::Server),
        (PROXY, &*of_http_2, CONNECTED, Receiver::Client),
        (PROXY, &*without_window, CONNECTED, Receiver::Client),
    ] {
        let [at_once, drops] = [1000, 1]
            .map(|step| memory_with_tunnels(rules, begin, answer, (receiver, step), |stream| stream));
        assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

#[test]
fn tunnels_within_tls_whose_receiver_is_slow_take_no_more_drop_by_drop() {
    let authority = Authority::new();
    let file = authority.bundle("a.pem", &["a.example"]).display().to_string();
    let http = PROXY.replace("@bind", &format!("@bind ssl crt {file}"));
    let tcp = http.replace("mode http", "mode tcp");
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    for (rules, begin, answer, receiver) in [
        (&http, connect, CONNECTED, Receiver::Server),
        (&tcp, "", "", Receiver::Server),
        (&tcp, "", "", Receiver::Client),
    ] {
        let client = within_tls(&authority);
        let [at_once, drops] =
            [1000, 1].map(|step| memory_with_tunnels(rules, begin, answer, (receiver, step), &client));
        assert!(drops <= at_once + MORE, "{receiver:?}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// DATA of more than 512 bytes, which is not always copied: each piece that is read by itself is in a cluster
/// of 2 KiB. With epoll, since io_uring takes as much ahead of the client.
#[test]
fn data_that_a_client_of_http_2_does_not_read_takes_no_more_in_small_pieces() {
    /// Bytes of each server: as many as the program takes while the client reads nothing. In a cluster for
    /// each piece, they would take 3 MB in all.
    const SENT: usize = 20_000;
    let start =
        |config: &str| Manylane::start_ready_as(config, common::command().env("MANYLANE_DRIVER", "epoll"));
    let begin = format!("{PREFACE}{CONNECT_H2}");
    let [at_once, pieces] = [Pieces::AtOnce, Pieces::Of(520)].map(|pieces| {
        let mut tunnels = tunnels(start, PROXY, &begin, CONNECTED, Receiver::Client, |stream| stream);
        let drip = Drip { bytes: SENT, pieces, rounds: 1, ..Drip::of(1) };
        drip.send(&mut tunnels.servers, || all_is_read(tunnels.server.port(), true));
        tunnels.program.memory()
    });
    println!("{pieces} KB in pieces, {at_once} KB at once");
    assert!(pieces <= at_once + MORE, "{pieces} KB in pieces, {at_once} KB at once");
}

/// Clients of the master CLI: as many as it serves at a time.
const MASTERED: usize = 10;

/// Memory of a master whose clients have sent the beginning of a line or payload in pieces of `step`.
fn memory_of_a_master(begin: &str, step: usize) -> usize {
    let (socket, address) = (listener(), common::own_address());
    let config = format!("{}listen l\n bind {}\n mode http\n", defaults(), fd(&socket.0));
    let (program, mut said) = Manylane::start_heard(&config, &["-W", "-S", &address.to_string()]);
    while !said.next().unwrap().unwrap().contains("Loading success.") {}
    let mut clients: Vec<_> = (0..MASTERED)
        .map(|_| {
            let mut client = connect(address);
            client.set_nodelay(true).unwrap();
            client.write_all(begin.as_bytes()).unwrap();
            client
        })
        .collect();
    Drip::of(step).send(&mut clients, || all_is_read(address.port(), false));
    program.memory()
}

#[test]
fn commands_for_a_master_take_no_more_drop_by_drop() {
    for begin in ["show proc ", "@1 add map #0 <<\n"] {
        let (at_once, drops) = (memory_of_a_master(begin, BYTES), memory_of_a_master(begin, 1));
        assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Number of clients that have sent a part of a head, and its bytes.
const SLOW: (usize, usize) = (1500, 200);

/// Limit of memory for each of them, in bytes: its task, a cluster of 2,176, and state of parser and log. A
/// release build takes 3,700 with epoll and 3,900 with io_uring. A debug build has larger state, and would
/// take 16,200 with an active request's block for each client.
fn slow_bytes() -> usize {
    if common::has_assertions() { 6 << 10 } else { 5 << 10 }
}

/// Limit of memory for a whole session, in bytes.
const SESSION: usize = 24 * 1024;

/// A session with an incomplete head goes idle, and continues where it was.
#[test]
fn a_slow_head_in_one_piece_takes_little() {
    let each = slow_heads("listen l\n bind @bind\n mode http\n option httplog\n", |stream| stream);
    assert!(each <= slow_bytes(), "{each} bytes for each client");
}

/// A session that rules of TCP mode changed to HTTP stays whole: an idle one would lose what they have set.
#[test]
fn a_slow_head_in_a_connection_that_changed_to_http_takes_a_session() {
    let rules = " tcp-request inspect-delay 300s\n tcp-request content switch-mode http\n";
    let each = slow_heads(&format!("listen l\n bind @bind\n mode tcp\n{rules}"), |stream| stream);
    assert!(each <= SESSION, "{each} bytes for each client");
}

/// The rest is the state of TLS, which an idle client has as well: 5,600 bytes with its connection.
#[test]
fn a_slow_head_within_tls_takes_as_little_beside_the_state_of_tls() {
    let authority = Authority::new();
    let file = authority.bundle("a.pem", &["a.example"]).display().to_string();
    let lines = format!("listen l\n bind @bind ssl crt {file}\n mode http\n option httplog\n");
    let each = slow_heads(&lines, within_tls(&authority));
    assert!(each <= slow_bytes() + 5 * 1024, "{each} bytes for each client");
}

/// Inside of the process a session waits for its client in a future, so it stays whole. The proxy before it
/// has a session, too: 16,900 bytes of 37,300.
#[test]
fn a_slow_head_that_came_through_the_process_takes_a_session() {
    let lines = "listen outer\n bind @bind\n mode tcp\n server s local@@name\nlisten l\n bind \
        local@@name\n mode http\n option httplog\n";
    let each = slow_heads(lines, |stream| stream);
    assert!(each <= 2 * SESSION, "{each} bytes for each client");
}

/// Many clients send a part of a head to a proxy of these lines, and all are served. Returns the bytes that
/// the program holds for each.
fn slow_heads<P: Peer>(lines: &str, client: impl Fn(TcpStream) -> P) -> usize {
    let (socket, address) = listener();
    let config = format!(
        "{} timeout http-request 300s\n{lines} log 127.0.0.1:9 local0\n http-request return status 200 hdr X \
         %[req.hdr(x)]\n",
        defaults()
    );
    let program = Manylane::start_ready(&config.replace("@bind", &fd(&socket)).replace("@name", &name()));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(SLOW.1 - 28));
    let connect_slow = |count| {
        let connect_one = |_| {
            let mut client = client(connect(address));
            client.write_all(head.as_bytes()).unwrap();
            client
        };
        let clients: Vec<_> = (0..count).map(connect_one).collect();
        all_is_read(address.port(), false);
        clients
    };
    let mut clients = connect_slow(SLOW.0 / 4); // memory that the program allocates once is there then
    let begin = program.memory();
    clients.append(&mut connect_slow(SLOW.0));
    let each = program.memory().saturating_sub(begin) * 1024 / SLOW.0;
    let value = format!("\r\nX: {}end\r\n", "x".repeat(SLOW.1 - 28)).to_lowercase();
    for client in &mut clients {
        client.write_all(b"e").unwrap();
    }
    all_is_read(address.port(), false);
    for client in &mut clients {
        client.write_all(b"nd\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.to_lowercase().contains(&value), "{answer}");
    }
    each
}

/// Number of clients in a burst, and the bytes of each one's partial head: some 30 MB in all.
const BURST: (usize, usize) = (1500, 14_000);

/// Number of clients whose requests wait for a server: some 12 MB in all.
const WAITING: usize = 700;

/// Makes clients that have each sent `request` over what `client` makes of its connection.
fn burst<P: Peer>(
    count: usize,
    request: &str,
    client: impl Fn(TcpStream) -> P,
) -> impl Fn(SocketAddr) -> Vec<P> {
    move |address| {
        let asking = |_| {
            let mut client = client(connect(address));
            client.write_all(request.as_bytes()).unwrap();
            client
        };
        (0..count).map(asking).collect()
    }
}

/// Memory of a burst returns to the system when its clients have left: every few seconds a lane releases half
/// of the memory that it does not need. At most 1 / `share` of the growth stays, in partially used pages.
fn goes_back<P>(
    share: usize,
    bind: &str,
    clients: impl Fn(SocketAddr) -> Vec<P>,
    server: SocketAddr,
    until_read: impl Fn(u16),
    servers_leave: impl FnOnce(),
    least: usize,
) {
    let (socket, address) = listener();
    let config = PROXY.replace("@bind", &format!("{}{bind}", fd(&socket)));
    let config = config.replace("@server", &server.to_string());
    let waits = " timeout http-request 300s";
    let program = Manylane::start_ready(&format!("{}{waits}\n{config}", defaults()));
    let begin = program.memory();
    let clients = clients(address);
    until_read(address.port());
    let peak = program.memory();
    assert!(peak > begin + least, "{begin} KB, then {peak} KB: no burst");
    drop(clients);
    servers_leave();
    let over = Instant::now();
    let left = begin + (peak - begin) / share;
    while program.memory() > left {
        assert!(
            over.elapsed() < 4 * TIMEOUT,
            "{begin} KB, then {peak} KB, and {} KB are left",
            program.memory()
        );
        manylane_tests::look_again();
    }
    println!("{begin} KB, then {peak} KB, and 1/{share} of it after {:?}", over.elapsed());
}

/// Debug builds with either driver keep a twelfth at most.
#[test]
fn memory_of_a_burst_goes_back_when_it_is_over() {
    let server = origin(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(BURST.1));
    goes_back(
        8,
        "",
        burst(BURST.0, &head, |stream| stream),
        server,
        |port| all_is_read(port, false),
        || {},
        BURST.0 * BURST.1 / 1024,
    );
}

/// The same with connections of HTTP/2: their state, and a part of a frame in each.
#[test]
fn memory_of_a_burst_of_http_2_goes_back_when_it_is_over() {
    let server = origin(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let part = format!("{PREFACE}{HEADERS}{}", "x".repeat(8_000));
    let clients = burst(BURST.0, &part, |stream| stream);
    goes_back(8, " proto h2", clients, server, |port| all_is_read(port, false), || {}, BURST.0 * 8);
}

/// The same within TLS, whose state is in the memory of the system's allocator: a debug build keeps a ninth.
#[test]
fn memory_of_a_burst_of_tls_goes_back_when_it_is_over() {
    let server = origin(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let authority = Authority::new();
    let file = authority.bundle("a.pem", &["a.example"]).display().to_string();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(BURST.1));
    goes_back(
        4,
        &format!(" ssl crt {file}"),
        burst(BURST.0, &head, within_tls(&authority)),
        server,
        |port| all_is_read(port, false),
        || {},
        BURST.0 * BURST.1 / 1024,
    );
}

/// One of so many parts of the growth by [`WAITING`] requests may stay.
fn left_of_waiting() -> usize {
    if common::has_assertions() { 3 } else { 4 }
}

/// What lanes keep for each descriptor keeps no page of the requests' memory. Of a growth of 13 MB, an
/// optimised build keeps 16 % with epoll and 19 % with io_uring, a debug build up to 21 % and 27 %.
#[test]
fn memory_of_requests_that_waited_goes_back_when_they_are_over() {
    let (servers, server) = listener();
    let open = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let shared = open.clone();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = servers.accept() {
            shared.lock().unwrap().push(stream);
        }
    });
    let all_wait = |_| common::watch::until(|| open.lock().unwrap().len() == WAITING);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    goes_back(
        left_of_waiting(),
        "",
        burst(WAITING, request, |stream| stream),
        server,
        all_wait,
        || open.lock().unwrap().clear(),
        WAITING * 8,
    );
}

#[test]
fn commands_take_no_more_drop_by_drop() {
    let socket = "global\n stats socket @bind level admin\n stats maxconn 60\n stats timeout 300s\n";
    for begin in ["show info ", "add map #0 <<\n", "set ssl cert a.pem <<\n"] {
        drops_take_no_more(&format!("{socket}backend b\n mode http\n server s @server\n"), begin);
    }
}

/// Number of clients of a process with limited memory, and the bytes that each makes it hold: more than fit.
const TOO_MANY: (usize, usize) = (800, 120_000);

/// A process with little memory, clients that fill it, and the lines of its standard error.
fn without_memory() -> (Manylane, SocketAddr, Vec<TcpStream>, mpsc::Receiver<String>) {
    let (socket, address) = listener();
    let rules = " http-request return status 200 if { path /small }\n option http-buffer-request\n";
    let config = format!(
        "global\n tune.bufsize 131072\n{} timeout http-request 300s\nlisten l\n bind {}\n mode http\n server \
            s 127.0.0.1:9\n{rules}",
        defaults(),
        fd(&socket)
    );
    let (program, mut said) = Manylane::start_heard(&config, &["-V", "-m", "100"]);
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 130000\r\n\r\n";
    let clients: Vec<_> = (0..TOO_MANY.0)
        .map(|_| {
            let mut client = connect(address);
            // A client that was disconnected cannot send everything.
            let _ = client.write_all(begin.as_bytes()).and_then(|()| client.write_all(&[b'x'; TOO_MANY.1]));
            client
        })
        .collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let is_ended = |client: &TcpStream| {
        client.peek(&mut [0]).map_err(|error| error.kind()) != Err(std::io::ErrorKind::WouldBlock)
    };
    let began = Instant::now();
    while !clients.iter().any(is_ended) {
        assert!(began.elapsed() < TIMEOUT, "all of them had their memory: the bound was not met");
        manylane_tests::look_again();
    }
    all_is_read(address.port(), false);
    std::mem::forget(socket); // keeps connections in its queue until they are accepted
    (program, address, clients, lines)
}

/// Under `-m`, clients that need more memory than there is are disconnected; the process continues and serves
/// the next one.
#[test]
fn memory_that_is_bounded_ends_streams_and_not_the_process() {
    let (mut program, address, clients, _lines) = without_memory();
    assert!(program.runs(), "the process has ended");
    drop(clients);
    crate::short_memory::is_served(&mut program, address);
}

/// Clients cannot use up the memory for signals and reports: the process handles a signal, reports it, and
/// ends with its last client.
#[test]
fn a_process_without_memory_hears_signals() {
    let (mut program, _, clients, lines) = without_memory();
    program.signal(nix::sys::signal::Signal::SIGUSR1);
    common::watch::until(|| !waits(program.pid()));
    drop(clients);
    let began = Instant::now();
    while program.runs() {
        assert!(began.elapsed() < TIMEOUT, "the process does not end");
        manylane_tests::look_again();
    }
    let (status, said) = (program.wait(), lines.iter().collect::<Vec<_>>());
    assert!(status.success(), "{status}: {said:?}");
    assert!(said.iter().any(|line| line.contains("Proxy l stopped (cumulated conns")), "{said:?}");
}

/// Returns true while a signal is pending for a process.
fn waits(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    pending.trim() != "0000000000000000"
}
