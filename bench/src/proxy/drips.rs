//! `manylane-bench drips`: clients and servers that send single bytes.
//!
//! # How it is measured
//! For each place where bytes wait for their end, [`CLIENTS`] connections get [`BYTES`] bytes each: once in
//! one piece, and once a byte at a time, every [`PACE`] one to each connection. What counts is the resident
//! memory of a program of one thread with both, and its processor time while the bytes drip. Programs take
//! turns; each measurement has a process of its own.

use super::program::{Kind, Program, Programs, free_port};
use super::{How, median};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that bytes drip into.
const CLIENTS: usize = 40;

/// Bytes of each.
const BYTES: usize = 6_000;

/// From one byte of a connection to its next.
const PACE: Duration = Duration::from_micros(500);

/// How long a program may take to read what was sent to the end, before its memory is looked at.
const SETTLED: Duration = Duration::from_millis(500);

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// What dripping may take more than sending at once, in bytes, and how many times HAProxy's processor time.
const TARGETS: (u64, f64) = (2 << 20, 1.5);

/// One place where bytes wait.
struct DripCase {
    words: &'static str,
    mode: &'static str,
    rules: &'static str,
    /// What a client begins with.
    begin: &'static str,
    /// What a server begins with, where it is the server that drips.
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

/// What one program took, in bytes and nanoseconds.
struct Taken {
    memory: u64,
    nanos: u64,
}

/// Runs the command.
///
/// # Errors
/// A sentence, when a program cannot be started, or does not wait for what drips.
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
        for place in KINDS_OF_DRIPS {
            print!("{}", table(place, &kinds, how.rounds, programs)?);
        }
        Ok(())
    })
}

/// The lines of one place.
fn table(place: &DripCase, kinds: &[Kind], rounds: u32, programs: &Programs) -> Result<String, String> {
    let mut all: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = kinds.iter().map(|_| <_>::default()).collect();
    for _ in 0..rounds {
        for (kind, (times, at_once, drips)) in kinds.iter().zip(&mut all) {
            let failed = |sentence: String| format!("{}, {kind}: {sentence}", place.words);
            at_once.push(measure(place, *kind, BYTES, programs).map_err(failed)?.memory as f64);
            let taken = measure(place, *kind, 1, programs).map_err(failed)?;
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
            place.words,
            at_once / 1024.0,
            drips / 1024.0,
            more / 1024.0,
        );
    }
    Ok(text)
}

/// What a new process takes when the bytes come in pieces of `step`.
fn measure(place: &DripCase, kind: Kind, step: usize, programs: &Programs) -> Result<Taken, String> {
    let fail = |error: std::io::Error| error.to_string();
    let origin = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let (port, servers) = (free_port()?, origin.local_addr().map_err(fail)?.port());
    let program = programs.start(kind, port, &place.configuration(port, servers))?;
    let mut clients = Vec::new();
    let mut behind = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(program.address()).map_err(fail)?;
        client.set_nodelay(true).map_err(fail)?;
        client.write_all(place.begin.as_bytes()).map_err(fail)?;
        clients.push(client);
        if let Some(answer) = place.answer {
            let (mut server, _) = origin.accept().map_err(fail)?;
            server.set_nodelay(true).map_err(fail)?;
            server.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
            while server.read(&mut [0; 4096]).map_err(fail)? == 4096 {} // a short head
            server.write_all(answer.as_bytes()).map_err(fail)?;
            behind.push(server);
        }
    }
    if place.answer.is_none() {
        // Whatever goes on to the servers is read and forgotten.
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
    let taken = drip(if place.answer.is_some() { &mut behind } else { &mut clients }, step, &program)?;
    for stream in clients.iter().chain(&behind) {
        stream.set_nonblocking(true).map_err(fail)?;
        match stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return Err("it does not wait for the rest".to_string()),
        }
    }
    Ok(taken)
}

/// Sends all bytes, and tells what that took when they were read.
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
            std::thread::sleep((begun + PACE * round as u32).saturating_duration_since(Instant::now()));
        }
    }
    std::thread::sleep(SETTLED);
    Ok(Taken { nanos: processes.usage()?.since(before).nanos, memory: processes.memory() })
}
