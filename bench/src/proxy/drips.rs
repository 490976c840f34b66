//! `manylane-bench drips`: clients and servers that send single bytes.
//!
//! # Measurement
//! For each place where incomplete input waits, [`CLIENTS`] connections get [`BYTES`] bytes each, or as many
//! as fit: once in one piece, and once a byte at a time, every [`BYTE_INTERVAL`] one on each connection. The
//! table shows the resident memory of a program with one thread in both cases, and its processor time while
//! the bytes drip. Programs alternate; each measurement has a new process. A master counts with its worker.
//!
//! # Targets
//! With drips, ours take at most so much more memory, and such a multiple of haproxy's processor time, as
//! [`TARGETS`] says. The command fails if a row misses one, and names the row.

use super::attacks::frames::{HEADERS, PREFACE};
use super::program::{Kind, Program, Programs, free_port};
use super::{ProxyArguments, median, named, tls};
use rustls::{ClientConnection, StreamOwned};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Usual number of connections.
const CLIENTS: usize = 40;

/// Usual bytes of each connection.
const BYTES: usize = 6_000;

/// Time between two bytes of a connection.
const BYTE_INTERVAL: Duration = Duration::from_micros(500);

/// Time for a program to read everything before its memory is measured.
const SETTLED: Duration = Duration::from_millis(500);

/// Longer than any step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Limits: additional memory in bytes compared with one piece, and processor time relative to HAProxy's.
const TARGETS: (u64, f64) = (2 << 20, 1.5);

/// A place where input waits, or passes.
struct DripCase {
    words: &'static str,
    /// Sections of the configuration, with `@bind`, `@server`, the certificate `@pem`, and the `@port` of
    /// `@bind` for names that are free. A line with `#` is there once for each connection, with its number.
    /// HAProxy gets `abns@` in place of `local@`.
    sections: &'static str,
    /// Further arguments of the program, with `@bind`.
    arguments: &'static [&'static str],
    /// Number of connections.
    clients: usize,
    /// The client's first bytes, with its number in place of `#`; `None` if there are no clients.
    begin: Option<&'static [u8]>,
    /// True if the client sends them, and each piece of what drips, in a TLS record of its own.
    tls: bool,
    /// The server's first bytes, if the server drips.
    answer: Option<&'static [u8]>,
    /// The server's answer that opens a tunnel, which the client fills before it drips.
    opened: Option<&'static [u8]>,
    /// True if the other side reads; false if it has small buffers in addition.
    reads: bool,
    /// True if the program sends heartbeats.
    sends_heartbeats: bool,
    /// What drips.
    piece: &'static [u8],
    /// Number of pieces for each connection.
    pieces: usize,
    /// True if HAProxy waits here, too.
    peer: bool,
}

/// The usual place: a client of HTTP sends a head.
const USUAL: DripCase = DripCase {
    words: "heads of requests",
    sections: "listen l\n bind @bind\n server s @server\n",
    arguments: &[],
    clients: CLIENTS,
    begin: Some(HEAD),
    tls: false,
    answer: None,
    opened: None,
    reads: true,
    sends_heartbeats: false,
    piece: b"x",
    pieces: BYTES,
    peer: true,
};

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX: ";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// With `Connection: close`: the connection ends if the program refuses what the server has sent so far.
const LAST_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

const CONNECT: &[u8] = b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";

/// Fills the buffers of the sockets of a tunnel before it drips.
const FILL: &[u8] = &[b'x'; 8_000];

/// Settings, a head with the status 200, and the head of a frame of 8,192 bytes.
const DATA_OF_8192: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\
    \0\x20\0\0\0\0\0\0\x01";

/// A message for `log-forward`. The kernel's buffer for a server that does not read has room for a twentieth
/// of all these messages.
const MESSAGE: &[u8] = &{
    let mut message = [b'x'; 200];
    (message[0], message[1], message[2], message[3]) = (b'<', b'1', b'3', b'>');
    message[199] = b'\n';
    message
};

/// Each connection to the server has one stream.
const TO_HTTP_2: &str = "listen l\n bind @bind\n http-reuse never\n server s @server proto h2\n";

const PEERS: &str = "global\n localpeer own\npeers ps\n peer own @bind\n peer p# 127.0.0.1:9\nbackend b\n \
    stick-table type ip size 1k peers ps store gpc0\n server s @server\n";

/// A record with 16,112 bytes of a ClientHello.
const HELLO: &[u8] = b"\x16\x03\x01\x3e\xf0\x01\0\x3e\xec\x03\x03";

const KINDS_OF_DRIPS: &[DripCase] = &[
    USUAL,
    DripCase {
        words: "bodies, `http-buffer-request`",
        sections: "listen l\n bind @bind\n option http-buffer-request\n server s @server\n",
        begin: Some(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n"),
        ..USUAL
    },
    DripCase {
        words: "trailers",
        begin: Some(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: "),
        ..USUAL
    },
    DripCase {
        words: "heads of responses",
        begin: Some(REQUEST),
        answer: Some(b"HTTP/1.1 200 OK\r\nX: "),
        ..USUAL
    },
    DripCase {
        words: "bodies of responses",
        begin: Some(REQUEST),
        answer: Some(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"),
        ..USUAL
    },
    DripCase {
        words: "..., `http-response wait-for-body`",
        sections: "listen l\n bind @bind\n http-response wait-for-body time 60s\n server s @server\n",
        begin: Some(REQUEST),
        answer: Some(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"),
        ..USUAL
    },
    DripCase {
        words: "trailers of responses",
        begin: Some(REQUEST),
        answer: Some(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: "),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2, HEADERS",
        sections: "listen l\n bind @bind proto h2\n server s @server\n",
        // Empty settings, and an acknowledgement of the other ones.
        begin: Some(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\
            \0\x20\0\x01\x04\0\0\0\x01",
        ),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2, CONTINUATION",
        sections: "listen l\n bind @bind proto h2\n server s @server\n",
        begin: Some(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\
            \0\0\x01\x01\0\0\0\0\x01\x82\0\x20\0\x09\x04\0\0\0\x01",
        ),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2, DATA, `http-buffer-request`",
        sections: "listen l\n bind @bind proto h2\n option http-buffer-request\n server s @server\n",
        // A request of POST / with `Host: a`, and the head of a frame of 8,192 bytes.
        begin: Some(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\
            \0\0\x12\x01\x04\0\0\0\x01\x03\x04POST\x04\x01/\x06\x04http\x01\x01a\
            \0\x20\0\0\0\0\0\0\x01",
        ),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2 of servers, HEADERS",
        sections: TO_HTTP_2,
        begin: Some(LAST_REQUEST),
        answer: Some(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\0\x20\0\x01\x04\0\0\0\x01"),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2 of servers, DATA",
        sections: TO_HTTP_2,
        begin: Some(LAST_REQUEST),
        answer: Some(DATA_OF_8192), // HAProxy waits for the end of the frame, ours passes each byte on
        ..USUAL
    },
    DripCase {
        words: "HTTP/2 of servers, DATA, `http-response wait-for-body`",
        sections: "listen l\n bind @bind\n http-reuse never\n http-response wait-for-body time 60s\n server \
            s @server proto h2\n",
        begin: Some(LAST_REQUEST),
        answer: Some(DATA_OF_8192),
        ..USUAL
    },
    DripCase {
        words: "HTTP/2 of servers, a frame of DATA a byte",
        sections: TO_HTTP_2,
        begin: Some(LAST_REQUEST),
        answer: Some(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88"),
        piece: b"\0\0\x01\0\0\0\0\0\x01x",
        ..USUAL
    },
    DripCase {
        words: "heads of requests through `abns@`",
        sections: "listen outer\n bind @bind\n mode tcp\n server s abns@drips-@port\nlisten l\n bind \
            abns@drips-@port\n server s @server\n",
        ..USUAL
    },
    DripCase {
        words: "..., `local@` beside HAProxy's `abns@`",
        sections: "listen outer\n bind @bind\n mode tcp\n server s local@drips-@port\nlisten l\n bind \
            local@drips-@port\n server s @server\n",
        ..USUAL
    },
    DripCase {
        words: "a ClientHello",
        sections: "listen l\n bind @bind ssl crt @pem\n server s @server\n",
        begin: Some(HELLO),
        ..USUAL
    },
    DripCase {
        words: "heads of requests, a TLS record a byte",
        sections: "listen l\n bind @bind ssl crt @pem\n server s @server\n",
        tls: true,
        ..USUAL
    },
    DripCase {
        words: "PROXY headers",
        sections: "listen l\n bind @bind accept-proxy\n server s @server\n",
        begin: Some(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\x00"), // announces 3,840 more bytes
        pieces: 3_800,
        peer: false, // HAProxy closes when a part comes
        ..USUAL
    },
    DripCase {
        words: "`inspect-delay` in TCP mode",
        sections: "listen l\n bind @bind\n mode tcp\n tcp-request inspect-delay 60s\n tcp-request content \
            accept if { req.len gt 15000 }\n server s @server\n",
        begin: Some(b""),
        ..USUAL
    },
    DripCase {
        words: "..., a regular expression",
        sections: "listen l\n bind @bind\n mode tcp\n tcp-request inspect-delay 60s\n tcp-request content \
            accept if { req.payload(0,0) -m reg -i [a-w]secret }\n server s @server\n",
        begin: Some(b""),
        ..USUAL
    },
    DripCase {
        words: "..., `req.ssl_sni`",
        sections: "listen l\n bind @bind\n mode tcp\n tcp-request inspect-delay 60s\n tcp-request content \
            accept if { req.ssl_sni -i a.example }\n server s @server\n",
        begin: Some(HELLO),
        ..USUAL
    },
    DripCase {
        words: "..., `HTTP`",
        sections: "listen l\n bind @bind\n mode tcp\n tcp-request inspect-delay 60s\n tcp-request content \
            accept if HTTP\n server s @server\n",
        ..USUAL
    },
    DripCase {
        words: "a tunnel, the receiver does not read",
        sections: "global\n tune.sndbuf.server 4096\nlisten l\n bind @bind\n mode tcp\n server s @server\n",
        begin: Some(FILL),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "..., `tune.disable-zero-copy-forwarding`", // else HAProxy does not read, either
        sections: "global\n tune.sndbuf.server 4096\n tune.disable-zero-copy-forwarding\nlisten l\n bind \
            @bind\n mode tcp\n server s @server\n",
        begin: Some(FILL),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "a tunnel after Upgrade, the receiver does not read",
        sections: "global\n tune.sndbuf.server 4096\nlisten l\n bind @bind\n timeout tunnel 60s\n server s \
            @server\n",
        begin: Some(UPGRADE),
        opened: Some(UPGRADED),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "a tunnel after CONNECT, the receiver does not read",
        sections: "global\n tune.sndbuf.server 4096\nlisten l\n bind @bind\n timeout tunnel 60s\n server s \
            @server\n",
        begin: Some(CONNECT),
        opened: Some(b"HTTP/1.1 200 OK\r\n\r\n"),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "after CONNECT, `tune.disable-zero-copy-forwarding`",
        sections: "global\n tune.sndbuf.server 4096\n tune.disable-zero-copy-forwarding\nlisten l\n bind \
            @bind\n timeout tunnel 60s\n server s @server\n",
        begin: Some(CONNECT),
        opened: Some(b"HTTP/1.1 200 OK\r\n\r\n"),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "messages for `log-forward`",
        sections: "log-forward l\n bind @bind\n maxconn 100\n timeout client 60s\n log @server local0\n",
        begin: Some(b"9999 <13>"),
        ..USUAL
    },
    DripCase {
        words: "messages for a ring, its server does not read",
        sections: "ring r\n server s @server\nlog-forward l\n bind @bind\n maxconn 100\n timeout client \
            60s\n log ring@r local0\n",
        begin: Some(b""),
        reads: false,
        piece: MESSAGE,
        ..USUAL
    },
    DripCase {
        words: "data from servers of a ring",
        sections: "ring r\n server s# @server\nlisten l\n bind @bind\n option httplog\n log ring@r local0\n \
            http-request return status 200\n",
        begin: Some(REQUEST), // a ring connects to its servers when it has a line
        answer: Some(b""),
        ..USUAL
    },
    DripCase {
        words: "greetings of peers",
        sections: PEERS,
        begin: Some(b"HAProxyS 2.1\nown\n"),
        pieces: 900,
        ..USUAL
    },
    DripCase {
        words: "messages of peers",
        sections: PEERS,
        // An update of 8,192 bytes. A peer may be silent for five seconds.
        begin: Some(b"HAProxyS 2.1\nown\np# 1 1\n\x0a\x80\xf0\xf1\x02"),
        sends_heartbeats: true,
        pieces: 4_000,
        ..USUAL
    },
    DripCase {
        words: "commands",
        sections: "global\n stats socket ipv4@@bind level admin\n stats maxconn 100\n stats timeout 60s\n\
            backend b\n server s @server\n",
        begin: Some(b"show info "),
        ..USUAL
    },
    DripCase {
        words: "commands for a master, 10 clients", // it serves no more at a time
        sections: "listen l\n bind abns@drips-@port\n server s @server\n",
        arguments: &["-W", "-S", "@bind"],
        clients: 10,
        begin: Some(b"show proc "),
        ..USUAL
    },
    DripCase {
        words: "answers to checks",
        sections: "listen l\n bind @bind\n timeout check 60s\n option httpchk GET /\n http-check expect \
            string never\n server-template s 40 @server check inter 1s\n",
        begin: None,
        answer: Some(b"HTTP/1.1 200 OK\r\nX: "),
        ..USUAL
    },
    DripCase {
        words: "answers of name servers over TCP",
        sections: "resolvers r\n nameserver n tcp@@server\n timeout resolve 60s\n timeout retry \
            60s\nlisten l\n bind @bind\n server s# n#.example:80 resolvers r init-addr none\n",
        begin: None,
        answer: Some(b"\xff\xff"), // announces 65,535 bytes
        peer: false,               // HAProxy asks for all names over one connection
        ..USUAL
    },
];

impl DripCase {
    fn configuration(&self, kind: Kind, port: u16, origin: SocketAddr, pem: &Path) -> String {
        let lines = self.sections.lines().flat_map(|line| {
            let copies = if line.contains('#') { self.clients } else { 1 };
            (0..copies).map(move |number| line.replace('#', &number.to_string()) + "\n")
        });
        let sections = lines.collect::<String>().replace("@port", &port.to_string());
        let sections = sections.replace("@bind", &format!("127.0.0.1:{port}"));
        let sections = sections.replace("@server", &origin.to_string());
        let sections = if kind.is_ours() { sections } else { sections.replace("local@", "abns@") };
        format!(
            "global\n nbthread 1\n maxconn 500\ndefaults\n mode http\n timeout connect 60s\n timeout client \
                60s\n timeout server 60s\n timeout http-request 60s\n{}",
            sections.replace("@pem", &pem.display().to_string())
        )
    }

    /// The first bytes of a client, if there are clients.
    fn begin(&self, number: usize) -> Option<Vec<u8>> {
        let parts = self.begin?.split(|byte| *byte == b'#').collect::<Vec<_>>();
        Some(parts.join(number.to_string().as_bytes()))
    }

    /// What the client sends over: the socket, or TLS within it.
    fn carrier(&self, socket: &TcpStream) -> Result<Carrier, String> {
        let socket = socket.try_clone().map_err(|error| error.to_string())?;
        if !self.tls {
            return Ok(Box::new(socket));
        }
        let name = "www.example.com".try_into().map_err(|_| "no name".to_string())?;
        let session = ClientConnection::new(Arc::new(tls::unverified()), name);
        Ok(Box::new(StreamOwned::new(session.map_err(|error| error.to_string())?, socket)))
    }
}

type Carrier = Box<dyn Write>;

/// A program's memory in bytes, and its processor time in nanoseconds.
struct Taken {
    memory: u64,
    nanos: u64,
}

/// Runs the command.
///
/// # Errors
/// A sentence if a program cannot be started, does not wait for the rest, or misses a target.
pub fn run(arguments: &ProxyArguments) -> Result<(), String> {
    let how = &arguments.how;
    let chosen = named(&arguments.rows, "row", KINDS_OF_DRIPS, |case| case.words)?;
    super::with_programs(how, |programs| {
        let mut kinds = vec![Kind::Epoll, Kind::Uring];
        if !how.alone {
            kinds.insert(0, Kind::Haproxy);
        }
        for kind in kinds.iter().filter(|kind| **kind != Kind::Uring) {
            println!("{}", programs.version(*kind)?);
        }
        println!(
            "{CLIENTS} connections, {BYTES} bytes each, or as many as fit: CPU ms while they drip, and KB of \
                memory at once, and with drips\n"
        );
        println!(
            "| what drips | program | CPU ms (least) | ratio | at once | drips | more \
                |\n|---|---|---|---|---|---|---|"
        );
        let pem = tls::certificate(tls::Key::Ecdsa, &programs.folder)?;
        let mut all_missed = Vec::new();
        for case in chosen {
            let kinds: Vec<_> =
                kinds.iter().copied().filter(|kind| case.peer || *kind != Kind::Haproxy).collect();
            let figures = measure_all(case, &kinds, how.rounds, programs, &pem)?;
            let (text, missed) = table(case.words, &figures);
            print!("{text}");
            all_missed.extend(missed);
        }
        if all_missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", all_missed.join("; "))) }
    })
}

/// What a program took in a place: its CPU ms, and its bytes of memory in both cases.
struct Figures {
    kind: Kind,
    /// Median and least.
    time: (f64, f64),
    at_once: f64,
    drips: f64,
}

fn measure_all(
    case: &DripCase,
    kinds: &[Kind],
    rounds: u32,
    programs: &Programs,
    pem: &Path,
) -> Result<Vec<Figures>, String> {
    let mut all: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = kinds.iter().map(|_| <_>::default()).collect();
    for _ in 0..rounds {
        for (kind, (times, at_once, drips)) in kinds.iter().zip(&mut all) {
            let failed = |sentence: String| format!("{}, {kind}: {sentence}", case.words);
            at_once.push(measure(case, *kind, case.pieces, programs, pem).map_err(failed)?.memory as f64);
            let taken = measure(case, *kind, 1, programs, pem).map_err(failed)?;
            drips.push(taken.memory as f64);
            times.push(taken.nanos as f64 / 1e6);
        }
    }
    let figures = kinds.iter().zip(all).map(|(kind, (times, at_once, drips))| {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        Figures { kind: *kind, time: (median(times), least), at_once: median(at_once), drips: median(drips) }
    });
    Ok(figures.collect())
}

/// The table lines of a place, and the targets that ours miss there.
fn table(words: &str, all: &[Figures]) -> (String, Vec<String>) {
    let (mut text, mut all_missed) = (String::new(), Vec::new());
    let (most_more, most) = TARGETS;
    let peer = all.iter().find(|figures| figures.kind == Kind::Haproxy).map(|figures| figures.time.0);
    for Figures { kind, time: (time, least), at_once, drips } in all {
        let more = drips - at_once;
        let ratio = peer.filter(|_| kind.is_ours()).map(|peer| time / peer);
        let judged =
            ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}, {}", super::met(ratio, most)));
        let takes_more = kind.is_ours() && more > most_more as f64;
        let _ = writeln!(
            text,
            "| {words} | {kind} | {time:.0} ({least:.0}) | {judged} | {:.0} | {:.0} | {:.0}{} |",
            at_once / 1024.0,
            drips / 1024.0,
            more / 1024.0,
            if takes_more { ": MISSED" } else { "" }
        );
        if let Some(ratio) = ratio.filter(|ratio| *ratio > most) {
            all_missed.push(format!("{words}, {kind}: {ratio:.2} of haproxy's time, at most {most}"));
        }
        if takes_more {
            let (more, most) = (more / 1024.0, most_more / 1024);
            all_missed.push(format!("{words}, {kind}: {more:.0} KB more with drips, at most {most}"));
        }
    }
    (text, all_missed)
}

/// Measures a new process that gets `step` pieces at a time.
fn measure(
    case: &DripCase,
    kind: Kind,
    step: usize,
    programs: &Programs,
    pem: &Path,
) -> Result<Taken, String> {
    let fail = |error: std::io::Error| error.to_string();
    let origin = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    if !case.reads {
        rustix::net::sockopt::set_socket_recv_buffer_size(&origin, 4096)
            .map_err(|error| error.to_string())?;
    }
    let (port, servers) = (free_port()?, origin.local_addr().map_err(fail)?);
    let arguments: Vec<_> =
        case.arguments.iter().map(|word| word.replace("@bind", &format!("127.0.0.1:{port}"))).collect();
    let text = case.configuration(kind, port, servers, pem);
    let program = programs.start_with(kind, port, &text, &arguments)?;
    let (mut clients, mut behind, mut carriers) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..case.clients {
        if let Some(begin) = case.begin(number) {
            let client = TcpStream::connect(program.address()).map_err(fail)?;
            client.set_nodelay(true).map_err(fail)?;
            client.set_read_timeout(Some(TIMEOUT)).map_err(fail)?;
            let mut carrier = case.carrier(&client)?;
            carrier.write_all(&begin).map_err(fail)?;
            carriers.push(carrier);
            clients.push(client);
        }
        if let Some(answer) = case.answer.or(case.opened) {
            let (mut server, _) = origin.accept().map_err(fail)?;
            server.set_nodelay(true).map_err(fail)?;
            server.set_read_timeout(Some(TIMEOUT)).map_err(fail)?;
            read_request(&mut server).map_err(fail)?;
            server.write_all(answer).map_err(fail)?;
            behind.push(server);
        }
        if let (Some(_), Some(mut client), Some(carrier)) = (case.opened, clients.last(), carriers.last_mut())
        {
            let _ = client.read(&mut [0; 4096]).map_err(fail)?; // a short head
            carrier.write_all(FILL).map_err(fail)?;
        }
    }
    if case.answer.is_some() {
        carriers = behind
            .iter()
            .map(|server| Ok(Box::new(server.try_clone()?) as Carrier))
            .collect::<std::io::Result<_>>()
            .map_err(fail)?;
        for stream in clients.iter().chain(&behind) {
            discard(stream.try_clone().map_err(fail)?);
        }
    }
    let kept = match case.answer.is_none() && case.reads {
        true => {
            let count = case.clients;
            std::thread::spawn(move || origin.incoming().map_while(Result::ok).take(count).for_each(discard));
            None
        }
        false => Some(origin),
    };
    std::thread::sleep(SETTLED);
    for client in clients.iter().filter(|_| case.answer.is_none()) {
        // Settings of HTTP/2, tickets of TLS.
        client.set_nonblocking(true).map_err(fail)?;
        let _ = (&*client).read(&mut [0; 4096]);
        client.set_nonblocking(false).map_err(fail)?;
    }
    let taken = drip(&mut carriers, case, step, &program)?;
    for stream in clients.iter().chain(&behind) {
        stream.set_nonblocking(true).map_err(fail)?;
        match stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(1) if case.sends_heartbeats || !case.reads => {}
            _ => return Err("it does not wait for the rest".to_string()),
        }
    }
    drop(kept);
    Ok(taken)
}

/// Reads the short head of a request, a question, or a line. Over HTTP/2, settings come before the head.
fn read_request(server: &mut TcpStream) -> std::io::Result<()> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let length = server.read(&mut part)?;
        bytes.extend_from_slice(&part[..length]);
        let is_whole = bytes.strip_prefix(PREFACE).is_none_or(has_headers);
        if length == 0 || length < part.len() && is_whole {
            return Ok(());
        }
    }
}

/// True if the frames of HTTP/2 in these bytes have a head.
fn has_headers(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, ..] = frames {
        if *kind == HEADERS {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames = frames.get(9 + length..).unwrap_or_default();
    }
    false
}

/// Reads and discards what comes, until the end.
fn discard(mut stream: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = stream.shutdown(Shutdown::Both);
    });
}

/// Sends all pieces, `step` at a time; returns the cost once they were read.
fn drip(carriers: &mut [Carrier], case: &DripCase, step: usize, program: &Program) -> Result<Taken, String> {
    let processes = program.processes();
    let before = processes.usage()?;
    let begun = Instant::now();
    let bytes = case.piece.repeat(step);
    for round in 0..case.pieces / step {
        for carrier in &mut *carriers {
            carrier.write_all(&bytes).map_err(|error| format!("it closes: {error}"))?;
        }
        if step < case.pieces {
            std::thread::sleep(
                (begun + BYTE_INTERVAL * round as u32).saturating_duration_since(Instant::now()),
            );
        }
    }
    std::thread::sleep(SETTLED);
    Ok(Taken { nanos: processes.usage()?.since(before).nanos, memory: processes.memory() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_miss_a_target_are_named() {
        let figures = |kind, time, more: u32| Figures {
            kind,
            time: (time, time),
            at_once: 1024.0,
            drips: 1024.0 * f64::from(1 + more),
        };
        let (text, missed) = table(
            "heads",
            &[
                figures(Kind::Haproxy, 10.0, 5000),
                figures(Kind::Epoll, 16.0, 2048),
                figures(Kind::Uring, 15.0, 2049),
            ],
        );
        assert_eq!(
            missed,
            [
                "heads, manylane epoll: 1.60 of haproxy's time, at most 1.5",
                "heads, manylane io_uring: 2049 KB more with drips, at most 2048"
            ],
            "{text}"
        );
        assert_eq!(table("heads", &[figures(Kind::Epoll, 16.0, 2048)]).1, [""; 0]);
    }

    #[test]
    fn each_connection_has_its_lines_and_its_name() {
        let case = DripCase {
            sections: "peer p# a\nserver s local@drips-@port\nbind @bind\n",
            clients: 2,
            begin: Some(b"p# 1 1\n\xf0"),
            ..USUAL
        };
        let text = |kind| case.configuration(kind, 80, ([127, 0, 0, 1], 81).into(), Path::new("pem"));
        let lines = "peer p0 a\npeer p1 a\nserver s local@drips-80\nbind 127.0.0.1:80\n";
        assert!(text(Kind::Epoll).ends_with(lines), "{}", text(Kind::Epoll));
        assert!(text(Kind::Haproxy).ends_with(&lines.replace("local", "abns")), "{}", text(Kind::Haproxy));
        assert_eq!(case.begin(17).as_deref(), Some(&b"p17 1 1\n\xf0"[..]));
    }

    #[test]
    fn a_head_of_http_2_is_found_behind_settings() {
        let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x01\0\0\0\x01";
        assert!(!has_headers(settings));
        assert!(has_headers(&[&settings[..], b"\0\0\x01\x01\x05\0\0\0\x01\x82"].concat()));
    }
}
