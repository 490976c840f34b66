//! `manylane-bench burst`: memory after a burst of clients.
//!
//! # Measurement
//! [`CLIENTS`] connections each send [`BYTES`] of an incomplete head, or a request that a server does not
//! answer; then all connections close. The tables show the resident memory of a program with one thread
//! before the burst, at its peak, and at three times after it: memory that a program keeps for a next burst
//! is not available to others.

use super::program::{Kind, Programs, free_port};
use super::{How, median};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of connections.
const CLIENTS: usize = 1_500;

/// Bytes of the head that each sends.
const BYTES: usize = 14_000;

/// Times of measurements, after the end of the last connection.
const AFTER: [Duration; 3] = [Duration::from_secs(12), Duration::from_secs(36), Duration::from_secs(60)];

/// Time for a program to read everything.
const SETTLED: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// A sentence if a program cannot be started, or does not accept the connections.
pub fn run(how: &How) -> Result<(), String> {
    super::with_programs(how, |programs| {
        let mut kinds = vec![Kind::Epoll, Kind::Uring];
        if !how.alone {
            kinds.push(Kind::Haproxy);
        }
        for (what, end) in [("a part of a head", ""), ("a request that waits for its server", "\r\n\r\n")] {
            println!("{CLIENTS} connections with {what} of {BYTES} bytes: resident memory in MB\n");
            println!(
                "| program | before | peak | 12 s after they left | 36 s | 60 s |\n|---|---|---|---|---|---|"
            );
            for kind in kinds.iter().copied() {
                let runs =
                    (0..how.rounds).map(|_| measure(kind, programs, end)).collect::<Result<Vec<_>, _>>();
                let runs = runs.map_err(|sentence| format!("{kind}: {sentence}"))?;
                let figures = (0..runs[0].len()).map(|moment| {
                    let all = runs.iter().map(|run| run[moment] as f64 / f64::from(1 << 20)).collect();
                    format!(" {:.1} |", median(all))
                });
                println!("| {kind} |{}", figures.collect::<String>());
            }
            println!();
        }
        Ok(())
    })
}

/// Bytes before the burst, at its peak, and [`AFTER`] it. Heads end with `end`.
fn measure(kind: Kind, programs: &Programs, end: &str) -> Result<[u64; 2 + AFTER.len()], String> {
    let fail = |error: std::io::Error| error.to_string();
    let origin = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let (port, address) = (free_port()?, origin.local_addr().map_err(fail)?);
    let configuration = format!(
        "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode http\n    timeout connect 60s\n    \
            timeout client 60s\n    timeout server 60s\n    timeout http-request 60s\nlisten l\n    bind \
            127.0.0.1:{port}\n    server s {address}\n"
    );
    let over = Arc::new(AtomicBool::new(false));
    let server = std::thread::spawn({
        let over = over.clone();
        // Never answers; its connections close when the burst is over.
        move || drop(origin.incoming().take_while(|_| !over.load(Ordering::Acquire)).collect::<Vec<_>>())
    });
    let program = programs.start(kind, port, &configuration)?;
    std::thread::sleep(SETTLED);
    let processes = program.processes();
    let mut memory = [processes.memory(); 2 + AFTER.len()];
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(BYTES)) + end;
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(program.address()).map_err(fail)?;
        client.write_all(head.as_bytes()).map_err(fail)?;
        clients.push(client);
    }
    std::thread::sleep(SETTLED);
    memory[1] = processes.memory();
    over.store(true, Ordering::Release);
    let ended = TcpStream::connect(address).is_ok() && server.join().is_ok(); // it sees that by a connection
    if !ended {
        return Err("the server of the measurement did not end".to_owned());
    }
    drop(clients);
    let over = Instant::now();
    for (moment, after) in memory[2..].iter_mut().zip(AFTER) {
        std::thread::sleep((over + after).saturating_duration_since(Instant::now()));
        *moment = processes.memory();
    }
    Ok(memory)
}
