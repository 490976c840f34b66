//! `manylane-bench h2`: requests over clear-text HTTP/2, compared with haproxy and nginx.
//!
//! # Measurement
//! As in `proxy`: all programs of a row run at the same time, with two threads each, and alternate. The
//! result is the processor time of the proxy's processes, divided by the requests. The clients are `h2load`
//! of nghttp2. The HTTP/1 server is that of `proxy`. The HTTP/2 server is an nginx with its own answers, the
//! same for all; nginx does not support HTTP/2 servers, so it has no such row.
//!
//! Held streams wait at a server that accepts and sends nothing. The result is the additional memory of the
//! proxy, divided by the streams.

use super::load::{Load, Message, Traffic};
use super::program::{Kind, Program, Programs, free_port};
use super::{How, median, met};
use clap::Args;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Streams of the row that holds some: a hundred connections with a hundred streams each.
const HELD: u64 = 10_000;

/// Time limit for held streams to reach their server, and for memory to settle.
const TIMEOUT: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_secs(1);

/// Arguments of `h2`.
#[derive(Clone, Debug, Args)]
pub struct Http2Arguments {
    /// Only this row; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// How it is measured
    #[command(flatten)]
    pub how: How,
}

/// The server of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Http1,
    Http2,
    Silent,
}

struct Row {
    name: &'static str,
    words: &'static str,
    unit: &'static str,
    origin: Origin,
    /// Bytes of a response.
    body: u64,
    connections: u32,
    streams: u32,
    requests: u64,
    /// Peers to compare with, the best of which counts; below, the largest ratios over epoll and io_uring.
    beside: &'static [Kind],
    most: [f64; 2],
    kinds: &'static [Kind],
}

const ALL: &[Kind] = &[Kind::Haproxy, Kind::Nginx, Kind::Epoll, Kind::Uring];
const NOT_NGINX: &[Kind] = &[Kind::Haproxy, Kind::Epoll, Kind::Uring];

static ROWS: &[Row] = &[
    Row {
        name: "streams",
        words: "16 connections of 32 streams, 1 KiB, to a server of HTTP/1",
        unit: "CPU us a request",
        origin: Origin::Http1,
        body: 1 << 10,
        connections: 16,
        streams: 32,
        requests: 40_000,
        beside: &[Kind::Haproxy, Kind::Nginx],
        most: [0.80, 0.65],
        kinds: ALL,
    },
    Row {
        name: "to-h2",
        words: "the same to a server of HTTP/2",
        unit: "CPU us a request",
        origin: Origin::Http2,
        body: 1 << 10,
        connections: 16,
        streams: 32,
        requests: 40_000,
        beside: &[Kind::Haproxy],
        most: [1.0, 1.0],
        kinds: NOT_NGINX,
    },
    Row {
        name: "large",
        words: "1 MiB answers, 4 connections of 4 streams, from a server of HTTP/1",
        unit: "CPU s per GB",
        origin: Origin::Http1,
        body: 1 << 20,
        connections: 4,
        streams: 4,
        requests: 800,
        beside: &[Kind::Haproxy],
        most: [1.0, 1.0],
        kinds: ALL,
    },
    Row {
        name: "held",
        words: "10,000 streams that are held open, 100 connections of 100",
        unit: "bytes a stream",
        origin: Origin::Silent,
        body: 0,
        connections: 100,
        streams: 100,
        requests: HELD,
        beside: &[Kind::Haproxy],
        most: [1.0, 1.0],
        kinds: ALL,
    },
];

/// Runs the command.
///
/// # Errors
/// A sentence if a row or a program is unknown, or requests were not answered.
pub fn run(arguments: &Http2Arguments) -> Result<(), String> {
    let chosen = rows(&arguments.rows)?;
    super::with_programs(&arguments.how, |programs| {
        for kind in [Kind::Epoll, Kind::Haproxy, Kind::Nginx] {
            if kind.is_ours() || !arguments.how.alone {
                println!("{}", programs.version(kind)?);
            }
        }
        println!("\n| row | program | median | least | ratio |\n|---|---|---|---|---|");
        for row in chosen {
            print!("{}", table(row, &arguments.how, programs)?);
        }
        Ok(())
    })
}

fn rows(names: &[String]) -> Result<Vec<&'static Row>, String> {
    super::named(names, "row", ROWS, |row| row.name)
}

/// The table lines of a row.
fn table(row: &Row, how: &How, programs: &Programs) -> Result<String, String> {
    let silent = Silent::start()?;
    let load = Load::start()?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", row.body);
    let response = Message::new(head, row.body);
    let served = Traffic { request: Message::default(), response, expected: 0, clients: 0, close: false };
    load.open(&Arc::new(served), load.origin())?;
    let own = free_port()?;
    let answers = match row.origin {
        Origin::Http2 => Some(programs.start(Kind::Nginx, own, &answering(own, row.body, programs))?),
        Origin::Http1 | Origin::Silent => None,
    };
    let server = match row.origin {
        Origin::Http1 => load.origin().port(),
        Origin::Http2 => own,
        Origin::Silent => silent.port,
    };
    let mut all = Vec::new();
    for &kind in row.kinds.iter().filter(|kind| kind.is_ours() || !how.alone) {
        let port = free_port()?;
        let text = match kind {
            Kind::Nginx => nginx(port, server, programs),
            _ => haproxy(port, server, row.origin),
        };
        all.push((kind, programs.start(kind, port, &text)?, Vec::new()));
    }
    // Held streams are measured once, since a program does not return all of its memory.
    let rounds = if row.origin == Origin::Silent { 1 } else { how.rounds };
    for _ in 0..rounds {
        for (kind, program, samples) in &mut all {
            let sample = match row.origin {
                Origin::Silent => held(row, program, &silent),
                _ => round(row, how, program),
            };
            samples.push(sample.map_err(|sentence| format!("{}, {kind}: {sentence}", row.name))?);
        }
    }
    drop(answers);
    let all = all.into_iter().map(|(kind, _, samples)| (kind, samples)).collect();
    Ok(lines(&format!("{}; {}", row.words, row.unit), all, row.beside, row.most))
}

/// Returns the lines of a table for one row: each program's median and least sample, and of ours the ratio to
/// the best of `beside`, which is to be at most `most`: over epoll, and over io_uring.
pub(super) fn lines(words: &str, all: Vec<(Kind, Vec<f64>)>, beside: &[Kind], most: [f64; 2]) -> String {
    let figures = |(kind, samples): (Kind, Vec<f64>)| {
        let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
        (kind, median(samples), least)
    };
    let all: Vec<_> = all.into_iter().map(figures).collect();
    let peers = all.iter().filter(|(kind, ..)| beside.contains(kind));
    let best = peers.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(kind, median, _)| (*kind, *median));
    let mut text = String::new();
    for (kind, median, least) in &all {
        let ratio = best.filter(|_| kind.is_ours()).map(|(peer, best)| {
            let most = most[usize::from(*kind == Kind::Uring)];
            format!("{:.2} of {peer}, {}", median / best, met(median / best, most))
        });
        let _ = writeln!(
            text,
            "| {words} | {kind} | {median:.3} | {least:.3} | {} |",
            ratio.as_deref().unwrap_or("–")
        );
    }
    text
}

/// Starts `h2load`, which makes `requests` requests to `url`, over `connections` with `streams` each.
pub(super) fn h2load(
    requests: u64,
    connections: u32,
    streams: u32,
    more: &[&str],
    url: &str,
) -> Result<Child, String> {
    Command::new("h2load")
        .args(["-n", &requests.to_string(), "-c", &connections.to_string()])
        .args(["-m", &streams.to_string()])
        .args(more)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start h2load: {error}; it is in the package nghttp2-client"))
}

/// Waits for `h2load`, and checks that all requests were answered with 2xx.
///
/// # Errors
/// A sentence if one was not.
pub(super) fn all_answered(requests: u64, h2load: Child) -> Result<(), String> {
    let output = h2load.wait_with_output();
    let text = String::from_utf8_lossy(&output.map_err(|error| error.to_string())?.stdout).into_owned();
    let all = format!("{requests} succeeded, 0 failed");
    if text.contains(&all) && text.contains(&format!("status codes: {requests} 2xx")) {
        return Ok(());
    }
    let succeeded: Vec<&str> = text.lines().filter(|line| line.contains("succeeded")).collect();
    Err(format!("of {requests} requests not all were answered: {succeeded:?}"))
}

/// Starts the clients.
fn clients(row: &Row, requests: u64, program: &Program) -> Result<Child, String> {
    h2load(requests, row.connections, row.streams, &[], &format!("http://{}/", program.address()))
}

/// A round of a program.
fn round(row: &Row, how: &How, program: &Program) -> Result<f64, String> {
    let requests = (row.requests * u64::from(how.requests) / 100).max(1);
    let go = |requests: u64| all_answered(requests, clients(row, requests, program)?);
    go((requests / 10).max(u64::from(row.connections * row.streams)))?;
    let processes = program.processes();
    let before = processes.usage()?;
    go(requests)?;
    let nanos = processes.usage()?.since(before).nanos as f64;
    Ok(if row.unit == "CPU s per GB" {
        nanos / (requests * row.body) as f64
    } else {
        nanos / 1e3 / requests as f64
    })
}

/// Bytes of a held stream.
fn held(row: &Row, program: &Program, silent: &Silent) -> Result<f64, String> {
    let processes = program.processes();
    let before = processes.memory();
    let had = silent.accepted.load(Ordering::Relaxed);
    let mut clients = clients(row, row.requests, program)?;
    let begun = Instant::now();
    let reached = || silent.accepted.load(Ordering::Relaxed) - had;
    while (reached() as u64) < row.requests && begun.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(SETTLED);
    let bytes = processes.memory().saturating_sub(before) as f64 / row.requests as f64;
    let _ = clients.kill();
    let _ = clients.wait();
    match reached() as u64 {
        count if count < row.requests => {
            Err(format!("{count} of {} streams reached the server", row.requests))
        }
        _ => Ok(bytes),
    }
}

/// An HTTP/1 server that sends nothing, and runs as long as the process.
struct Silent {
    port: u16,
    accepted: Arc<AtomicUsize>,
}

impl Silent {
    fn start() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("cannot listen: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                // Connections of the previous program are dropped.
                if held.len() as u64 == HELD {
                    held.clear();
                }
                held.push(stream);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { port, accepted })
    }
}

/// The configuration for haproxy and Manylane.
fn haproxy(port: u16, server: u16, origin: Origin) -> String {
    let proto = if origin == Origin::Http2 { " proto h2" } else { "" };
    format!(
        "global\n    nbthread 2\n    maxconn 9900\n    no strict-limits\ndefaults\n    mode http\n    \
         http-reuse always\n    timeout connect 60s\n    timeout client 60s\n    timeout server 60s\n\
         listen l\n    bind 127.0.0.1:{port} proto h2\n    server s 127.0.0.1:{server}{proto}\n"
    )
}

/// The common part of nginx configurations.
pub(super) fn nginx_of(workers: u32, port: u16, programs: &Programs, own: &str) -> String {
    let folder = programs.folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {folder}/{what};\n"))
        .concat();
    format!(
        "daemon off;\nworker_processes {workers};\nworker_rlimit_nofile 20000;\n\
         pid {folder}/h2-{port}.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 12000; }}\nhttp {{\n    access_log off;\n\
         \x20   keepalive_requests 1000000000;\n    client_max_body_size 0;\n{temporary}{own}}}\n"
    )
}

fn nginx(port: u16, server: u16, programs: &Programs) -> String {
    let own = format!(
        "    upstream servers {{\n        server 127.0.0.1:{server};\n        keepalive 512;\n\
         \x20       keepalive_requests 1000000000;\n    }}\n    server {{\n\
         \x20       listen 127.0.0.1:{port} http2 reuseport;\n        http2_max_concurrent_streams 128;\n\
         \x20       location / {{\n            proxy_pass http://servers;\n\
         \x20           proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n\
         \x20           proxy_request_buffering off;\n            proxy_max_temp_file_size 0;\n\
         \x20       }}\n    }}\n"
    );
    nginx_of(2, port, programs, &own)
}

/// An nginx with its own answers.
fn answering(port: u16, body: u64, programs: &Programs) -> String {
    let text = "x".repeat(body as usize);
    let own = format!(
        "    server {{\n        listen 127.0.0.1:{port} http2;\n        location / {{ return 200 \"{text}\"; \
         }}\n    }}\n"
    );
    nginx_of(1, port, programs, &own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_rows_are_refused_with_the_known_ones() {
        let Err(error) = rows(&["stream".to_string()]) else { panic!("it is unknown") };
        assert!(error.contains("known ones: streams, to-h2"), "{error}");
    }
}
