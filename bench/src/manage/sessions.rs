//! `show sess` with many sessions (R-G3). Each client's request goes through a chain of frontends within the
//! process (`local@`), so a process with some thousand descriptors has many sessions; the last one waits in
//! `tarpit`.

use super::running::{Running, until};
use super::{Bench, DEFAULTS, met, ms, percentile};
use crate::proxy::load::Load;
use crate::proxy::program::{Kind, free_port};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frontends in the chain of a request.
const CHAIN: usize = 16;

/// The longest permitted delay of a lane, and the pause between two requests to each lane.
const MOST: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(500);

/// Number of dumps.
const DUMPS: usize = 5;

pub(super) fn run(bench: &Bench, _: &Load) -> Result<(), String> {
    println!(
        "\n`show sess` of {} sessions, with two clients that ask a lane each all the time (sessions)",
        bench.sessions
    );
    println!(
        "| who | sessions | MB | s | tasks over {} ms of processor time, at most none | response in ms \
            before: p99, longest | meanwhile |",
        MOST.as_millis()
    );
    println!("|---|---|---|---|---|---|---|");
    for kind in bench.kinds().filter(|kind| kind.is_ours()) {
        one(bench, kind)?;
    }
    Ok(())
}

fn configuration(bench: &Bench, port: u16, probes: [u16; 2]) -> String {
    let mut text = format!(
        "global\n    nbthread 2\n    no strict-limits\n    maxconn {}\n    warn-blocked-traffic-after \
            {}ms\n    stats socket {} level admin\n{DEFAULTS}\
         \x20   timeout tarpit 1h\n    timeout server 1h\n    timeout client 1h\n",
        bench.sessions * 2 + 1_000,
        MOST.as_millis(),
        bench.socket().display(),
    );
    for (lane, probe) in (1..).zip(probes) {
        let _ = write!(
            text,
            "frontend probe{lane}\n    bind 127.0.0.1:{probe} thread {lane}\n    http-request return status \
                200\n"
        );
    }
    for link in 0..CHAIN {
        let bind = if link == 0 { format!("0.0.0.0:{port}") } else { format!("local@link{link}") };
        let _ = write!(text, "frontend link{link}\n    bind {bind}\n    maxconn {}\n", bench.sessions);
        if link == 0 {
            text.push_str("    http-request return status 200 if { path /ready }\n");
        }
        if link + 1 < CHAIN {
            let next = link + 1;
            let _ = write!(
                text,
                "    default_backend to{next}\nbackend to{next}\n    server one local@link{next}\n"
            );
        } else {
            text.push_str("    http-request tarpit\n");
        }
    }
    text
}

fn one(bench: &Bench, kind: Kind) -> Result<(), String> {
    let (port, probes) = (free_port()?, [free_port()?, free_port()?]);
    let running = bench.serve(kind, port, &configuration(bench, port, probes), &[])?;
    let clients = (bench.sessions as usize).div_ceil(CHAIN);
    let mut held = Vec::new();
    for number in 0..clients {
        // One address does not have enough ports.
        let to = SocketAddr::from(([127, 0, 0, 1 + (number / 20_000) as u8], port));
        let mut client = TcpStream::connect(to).map_err(|error| format!("client {number}: {error}"))?;
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").map_err(|error| error.to_string())?;
        held.push(client);
    }
    let shown = || running.ask("show sess", 0).map(|(_, length)| length);
    let count = || {
        let (text, _) = running.ask("show info", 1 << 16).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("CurrConns: ")).unwrap_or("0").to_owned();
        line.parse::<usize>().unwrap_or(0)
    };
    until("all sessions", || count() >= clients * CHAIN)?;
    let quiet = probe_times(&running, probes, || std::thread::sleep(Duration::from_secs(2)))?;
    let said = running.slices(MOST).len();
    let (began, mut bytes) = (Instant::now(), 0);
    let busy = probe_times(&running, probes, || {
        for _ in 0..DUMPS {
            bytes = shown().unwrap_or(0);
        }
    })?;
    let each = began.elapsed() / DUMPS as u32;
    let (text, _) = running.ask("show sess", 1 << 28)?;
    let sessions = text.lines().filter(|line| line.starts_with("0x")).count();
    let long = running.slices(MOST).len() - said;
    if sessions < clients * CHAIN || bytes == 0 {
        return Err(format!("{sessions} sessions are shown of {}", clients * CHAIN));
    }
    let shape = |all: &[u32]| {
        let micros = |at: f64| ms(Duration::from_micros(percentile(all, at).into()));
        format!("{:.2}, {:.1}", micros(99.0), micros(100.0))
    };
    println!(
        "| {kind} | {sessions} | {:.1} | {:.2} | {long}: {} | {} | {} |",
        bytes as f64 / 1e6,
        each.as_secs_f64(),
        met(long == 0),
        shape(&quiet),
        shape(&busy),
    );
    drop(held);
    Ok(())
}

/// Response times of both lanes in microseconds while `what` runs, sorted.
fn probe_times(running: &Running, probes: [u16; 2], what: impl FnOnce()) -> Result<Vec<u32>, String> {
    let over = AtomicBool::new(false);
    let mut all = std::thread::scope(|scope| {
        let asking = probes.map(|probe| {
            let over = &over;
            scope.spawn(move || -> std::io::Result<Vec<u32>> {
                let mut client = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], probe)))?;
                client.set_nodelay(true)?;
                let (mut times, mut room) = (Vec::new(), [0; 4096]);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
                    if client.read(&mut room)? == 0 {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    times.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
                    std::thread::sleep(PAUSE);
                }
                Ok(times)
            })
        });
        what();
        over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in asking {
            let times = client.join().map_err(|_| "a client has ended by a panic".to_string())?;
            all.extend(times.map_err(|error| format!("a client: {error}; {}", running.said()))?);
        }
        Ok::<_, String>(all)
    })?;
    all.sort_unstable();
    Ok(all)
}
