//! `manylane-bench drips`: clients and servers that send single bytes.
//!
//! # Measurement
//! For each place where incomplete input waits, [`CLIENTS`] connections get [`BYTES`] bytes each: once in one
//! piece, and once a byte at a time, every [`BYTE_INTERVAL`] one on each connection. The table shows the
//! resident memory of a program with one thread in both cases, and its processor time while the bytes drip.
//! Programs alternate; each measurement has a new process.

use super::program::{Kind, Program, Programs, free_port};
use super::{How, median};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Number of connections.
const CLIENTS: usize = 40;

/// Bytes of each connection.
const BYTES: usize = 6_000;

/// Time between two bytes of a connection.
const BYTE_INTERVAL: Duration = Duration::from_micros(500);

/// Time for a program to read everything before its memory is measured.
const SETTLED: Duration = Duration::from_millis(500);

/// Longer than any step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Limits: additional memory in bytes compared with one piece, and processor time relative to HAProxy's.
const TARGETS: (u64, f64) = (2 << 20, 1.5);

/// A place where input waits.
struct DripCase {
    words: &'static str,
    mode: &'static str,
    rules: &'static str,
    /// The client's first bytes.
    begin: &'static str,
    /// The server's first bytes, if the server drips.
    answer: Option<&'static str>,
}

const KINDS_OF_DRIPS: &[DripCase] = &[
    DripCase {
        words: "heads of requests",
        mode: "http",
        rules: "",
        begin: "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        answer: None,
    },
    DripCase {
        words: "bodies, `http-buffer-request`",
        mode: "http",
        rules: "    option http-buffer-request\n",
        begin: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n",
        answer: None,
    },
    DripCase {
        words: "trailers",
        mode: "http",
        rules: "",
        begin: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
        answer: None,
    },
    DripCase {
        words: "heads of responses",
        mode: "http",
        rules: "",
        begin: "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        answer: Some("HTTP/1.1 200 OK\r\nX: "),
    },
    DripCase {
        words: "`inspect-delay` in TCP mode",
        mode: "tcp",
        rules: "    tcp-request inspect-delay 60s\n    tcp-request content accept if { req.len gt 15000 }\n",
        begin: "",
        answer: None,
    },
];

impl DripCase {
    fn configuration(&self, port: u16, origin: u16) -> String {
        let Self { mode, rules, .. } = self;
        format!(
            "global\n    nbthread 1\n    maxconn 500\ndefaults\n    mode {mode}\n    timeout connect \
                60s\n    timeout client 60s\n    timeout server 60s\n    timeout http-request 60s\n\
             listen l\n    bind 127.0.0.1:{port}\n{rules}    server s 127.0.0.1:{origin}\n"
        )
    }
}

/// A program's memory in bytes, and its processor time in nanoseconds.
struct Taken {
    memory: u64,
    nanos: u64,
}

/// Runs the command.
///
/// # Errors
/// A sentence if a program cannot be started, or does not wait for the rest.
pub fn run(how: &How) -> Result<(), String> {
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
        for case in KINDS_OF_DRIPS {
            print!("{}", table(case, &kinds, how.rounds, programs)?);
        }
        Ok(())
    })
}

/// The table lines of a place.
fn table(case: &DripCase, kinds: &[Kind], rounds: u32, programs: &Programs) -> Result<String, String> {
    let mut all: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = kinds.iter().map(|_| <_>::default()).collect();
    for _ in 0..rounds {
        for (kind, (times, at_once, drips)) in kinds.iter().zip(&mut all) {
            let failed = |sentence: String| format!("{}, {kind}: {sentence}", case.words);
            at_once.push(measure(case, *kind, BYTES, programs).map_err(failed)?.memory as f64);
            let taken = measure(case, *kind, 1, programs).map_err(failed)?;
            drips.push(taken.memory as f64);
            times.push(taken.nanos as f64 / 1e6);
        }
    }
    let mut text = String::new();
    let mut peer = None;
    for (kind, (times, at_once, drips)) in kinds.iter().zip(all) {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let (time, at_once, drips) = (median(times), median(at_once), median(drips));
        let more = drips - at_once;
        if *kind == Kind::Haproxy {
            peer = Some(time);
        }
        let (most_more, most) = TARGETS;
        let ratio = peer.filter(|_| kind.is_ours()).map(|peer| time / peer);
        let ratio =
            ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}, {}", super::met(ratio, most)));
        let missed = if kind.is_ours() && more > most_more as f64 { ": MISSED" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {kind} | {time:.0} ({least:.0}) | {ratio} | {:.0} | {:.0} | {:.0}{missed} |",
            case.words,
            at_once / 1024.0,
            drips / 1024.0,
            more / 1024.0,
        );
    }
    Ok(text)
}

/// Measures a new process with pieces of `step` bytes.
fn measure(case: &DripCase, kind: Kind, step: usize, programs: &Programs) -> Result<Taken, String> {
    let fail = |error: std::io::Error| error.to_string();
    let origin = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let (port, servers) = (free_port()?, origin.local_addr().map_err(fail)?.port());
    let program = programs.start(kind, port, &case.configuration(port, servers))?;
    let mut clients = Vec::new();
    let mut behind = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(program.address()).map_err(fail)?;
        client.set_nodelay(true).map_err(fail)?;
        client.write_all(case.begin.as_bytes()).map_err(fail)?;
        clients.push(client);
        if let Some(answer) = case.answer {
            let (mut server, _) = origin.accept().map_err(fail)?;
            server.set_nodelay(true).map_err(fail)?;
            server.set_read_timeout(Some(TIMEOUT)).map_err(fail)?;
            while server.read(&mut [0; 4096]).map_err(fail)? == 4096 {} // a short head
            server.write_all(answer.as_bytes()).map_err(fail)?;
            behind.push(server);
        }
    }
    if case.answer.is_none() {
        // Data for the servers are read and discarded.
        let reads = move || {
            for stream in origin.incoming().map_while(Result::ok).take(CLIENTS) {
                std::thread::spawn(move || {
                    let _ = (&stream).read_to_end(&mut Vec::new());
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        };
        std::thread::spawn(reads);
    }
    std::thread::sleep(SETTLED);
    let taken = drip(if case.answer.is_some() { &mut behind } else { &mut clients }, step, &program)?;
    for stream in clients.iter().chain(&behind) {
        stream.set_nonblocking(true).map_err(fail)?;
        match stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return Err("it does not wait for the rest".to_string()),
        }
    }
    Ok(taken)
}

/// Sends all bytes; returns the cost once they were read.
fn drip(streams: &mut [TcpStream], step: usize, program: &Program) -> Result<Taken, String> {
    let processes = program.processes();
    let before = processes.usage()?;
    let begun = Instant::now();
    let piece = vec![b'x'; step];
    for round in 0..BYTES / step {
        for stream in &mut *streams {
            stream.write_all(&piece).map_err(|error| format!("it closes: {error}"))?;
        }
        if step < BYTES {
            std::thread::sleep(
                (begun + BYTE_INTERVAL * round as u32).saturating_duration_since(Instant::now()),
            );
        }
    }
    std::thread::sleep(SETTLED);
    Ok(Taken { nanos: processes.usage()?.since(before).nanos, memory: processes.memory() })
}
