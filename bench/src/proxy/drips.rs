//! `manylane-bench drips`: clients and servers that send single bytes.
//!
//! # Measurement
//! For each place where incomplete input waits, [`CLIENTS`] connections get [`BYTES`] bytes each, or as many
//! as fit: once in one piece, and once a byte at a time, every [`BYTE_INTERVAL`] one on each connection. The
//! table shows the resident memory of a program with one thread in both cases, and its processor time while
//! the bytes drip. Programs alternate; each measurement has a new process.
//!
//! # Targets
//! With drips, ours take at most so much more memory, and such a multiple of haproxy's processor time, as
//! [`TARGETS`] says. The command fails if a row misses one, and names the row.

use super::program::{Kind, Program, Programs, free_port};
use super::{ProxyArguments, median, named, tls};
use rustls::{ClientConnection, StreamOwned};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of connections.
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
    /// Sections of the configuration, with `@bind`, `@server`, the certificate `@pem`, and servers of
    /// `@names` that a name server is asked for.
    sections: &'static str,
    /// The client's first bytes; `None` if there are no clients.
    begin: Option<&'static [u8]>,
    /// True if the client sends them, and each piece of what drips, in a TLS record of its own.
    tls: bool,
    /// The server's first bytes, if the server drips.
    answer: Option<&'static [u8]>,
    /// True if the other side reads; false if it has small buffers in addition.
    reads: bool,
    /// Bytes of each connection.
    bytes: usize,
    /// True if HAProxy waits here, too.
    peer: bool,
}

/// The usual place: a client of HTTP sends a head.
const USUAL: DripCase = DripCase {
    words: "heads of requests",
    sections: "listen l\n bind @bind\n server s @server\n",
    begin: Some(HEAD),
    tls: false,
    answer: None,
    reads: true,
    bytes: BYTES,
    peer: true,
};

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX: ";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

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
        bytes: 3_800,
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
        // The buffers of the sockets are full before it drips.
        begin: Some(&[b'x'; 8_000]),
        reads: false,
        ..USUAL
    },
    DripCase {
        words: "..., `tune.disable-zero-copy-forwarding`", // else HAProxy does not read, either
        sections: "global\n tune.sndbuf.server 4096\n tune.disable-zero-copy-forwarding\nlisten l\n bind \
            @bind\n mode tcp\n server s @server\n",
        begin: Some(&[b'x'; 8_000]),
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
        words: "commands",
        sections: "global\n stats socket ipv4@@bind level admin\n stats maxconn 100\n stats timeout 60s\n\
            backend b\n server s @server\n",
        begin: Some(b"show info "),
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
            60s\nlisten l\n bind @bind\n@names",
        begin: None,
        answer: Some(b"\xff\xff"), // announces 65,535 bytes
        peer: false,               // HAProxy asks for all names over one connection
        ..USUAL
    },
];

impl DripCase {
    fn configuration(&self, port: u16, origin: SocketAddr, pem: &Path) -> String {
        let name = |n| format!(" server s{n} n{n}.example:80 resolvers r init-addr none\n");
        let sections = self.sections.replace("@names", &(0..CLIENTS).map(name).collect::<String>());
        let sections = sections.replace("@bind", &format!("127.0.0.1:{port}"));
        let sections = sections.replace("@server", &origin.to_string());
        format!(
            "global\n nbthread 1\n maxconn 500\ndefaults\n mode http\n timeout connect 60s\n timeout client \
                60s\n timeout server 60s\n timeout http-request 60s\n{}",
            sections.replace("@pem", &pem.display().to_string())
        )
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
            "{CLIENTS} connections, {BYTES} bytes each: CPU ms while they drip, and KB of memory at once, \
                and with drips\n"
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
            at_once.push(measure(case, *kind, case.bytes, programs, pem).map_err(failed)?.memory as f64);
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

/// Measures a new process with pieces of `step` bytes.
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
    let program = programs.start(kind, port, &case.configuration(port, servers, pem))?;
    let (mut clients, mut behind, mut carriers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        if let Some(begin) = case.begin {
            let client = TcpStream::connect(program.address()).map_err(fail)?;
            client.set_nodelay(true).map_err(fail)?;
            let mut carrier = case.carrier(&client)?;
            carrier.write_all(begin).map_err(fail)?;
            carriers.push(carrier);
            clients.push(client);
        }
        if let Some(answer) = case.answer {
            let (mut server, _) = origin.accept().map_err(fail)?;
            server.set_nodelay(true).map_err(fail)?;
            server.set_read_timeout(Some(TIMEOUT)).map_err(fail)?;
            while server.read(&mut [0; 4096]).map_err(fail)? == 4096 {} // a short head
            server.write_all(answer).map_err(fail)?;
            behind.push(server);
        }
    }
    if case.answer.is_some() {
        carriers = behind
            .iter()
            .map(|server| Ok(Box::new(server.try_clone()?) as Carrier))
            .collect::<std::io::Result<_>>()
            .map_err(fail)?;
        for client in &clients {
            discard(client.try_clone().map_err(fail)?);
        }
    }
    let kept = match case.answer.is_none() && case.reads {
        true => {
            std::thread::spawn(move || {
                origin.incoming().map_while(Result::ok).take(CLIENTS).for_each(discard)
            });
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
    let taken = drip(&mut carriers, case.bytes, step, &program)?;
    for stream in clients.iter().chain(&behind) {
        stream.set_nonblocking(true).map_err(fail)?;
        match stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return Err("it does not wait for the rest".to_string()),
        }
    }
    drop(kept);
    Ok(taken)
}

/// Reads and discards what comes, until the end.
fn discard(mut stream: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = stream.shutdown(Shutdown::Both);
    });
}

/// Sends all bytes; returns the cost once they were read.
fn drip(carriers: &mut [Carrier], bytes: usize, step: usize, program: &Program) -> Result<Taken, String> {
    let processes = program.processes();
    let before = processes.usage()?;
    let begun = Instant::now();
    let piece = vec![b'x'; step];
    for round in 0..bytes / step {
        for carrier in &mut *carriers {
            carrier.write_all(&piece).map_err(|error| format!("it closes: {error}"))?;
        }
        if step < bytes {
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
}
