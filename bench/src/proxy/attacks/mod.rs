//! `manylane-bench attacks`: the effect of a client that misuses HTTP/2 on innocent clients.
//!
//! # Measurement
//! Each program has one thread, which the attacker and the innocent clients share, and a listener for each of
//! both. [`CLIENTS`] innocent clients make HTTP/1 requests, [`RATE`] per second together, alternately with
//! and without an attacker at the other listener. The table shows medians of the rounds. An attacker is one
//! thread with one or four connections; it sends up to 4 MB/s on each, and connects again when it is closed.
//! Its requests go to a separate server.

mod attacker;
pub(super) mod frames;

use super::load::{Arrival, Load, Message, Traffic};
use super::program::{Kind, Program, Programs, free_port};
use super::{How, median, met};
use attacker::{ATTACKS, Attack, Running};
use clap::Args;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Innocent clients, and their requests per second, together.
const CLIENTS: usize = 4;
const RATE: f64 = 1_000.0;

/// Requests of a round, with and without an attacker.
const REQUESTS: u64 = 400;

/// Time that an attack runs before the measurement, since the servers' first answers are the load's own work.
const BEGUN: Duration = Duration::from_millis(300);

/// Limit of the p99 of innocent clients during an attack, relative to without.
const MOST: f64 = 2.0;

/// Arguments of `attacks`.
#[derive(Clone, Debug, Args)]
pub struct AttackArguments {
    /// Only this attack; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// Rounds of each program and attack
    #[arg(long, value_name = "N", default_value_t = 3, value_parser =
        clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// The program [default: manylane beside this one]
    #[arg(long, value_name = "PATH")]
    pub manylane: Option<PathBuf>,
    /// Only ours
    #[arg(long)]
    pub alone: bool,
}

/// A program under attack.
struct Attacked {
    kind: Kind,
    program: Program,
    /// The attacker's listener.
    to: SocketAddr,
}

/// Results without or with an attack.
#[derive(Default)]
struct Measured {
    /// p50 and p99 of innocent requests in microseconds, for each round.
    latencies: [Vec<f64>; 2],
    /// The program's processor time, and the elapsed time, in nanoseconds.
    used: u64,
    time: u64,
}

impl Measured {
    /// Share of a processor, in percent.
    fn share(&self) -> f64 {
        self.used as f64 * 100.0 / self.time.max(1) as f64
    }
}

/// Runs the command.
///
/// # Errors
/// A sentence if an attack or a program is unknown, or an innocent client did not get its response.
pub fn run(arguments: &AttackArguments) -> Result<(), String> {
    let chosen = attacks(&arguments.rows)?;
    let how = How { manylane: arguments.manylane.clone(), alone: arguments.alone, ..How::default() };
    super::with_programs(&how, |programs| {
        let mut kinds = vec![Kind::Epoll, Kind::Uring];
        if !arguments.alone {
            kinds.extend([Kind::Haproxy, Kind::Nginx]);
        }
        let (load, origin) = (Load::start()?, Load::start()?);
        let mut all = Vec::new();
        for kind in kinds {
            if kind != Kind::Uring {
                println!("{}", programs.version(kind)?);
            }
            all.push(start(kind, &load, &origin, programs)?);
        }
        println!(
            "\ninnocent clients: {RATE} requests a second; one thread\n\n\
             | attack | program | p50 us, with it | p99 us, with it | ratio | CPU %, with it | ended/s |\n\
             |---|---|---|---|---|---|---|"
        );
        for attack in chosen {
            print!("{}", table(attack, &all, arguments.rounds, &load, &origin)?);
        }
        Ok(())
    })
}

fn attacks(names: &[String]) -> Result<Vec<&'static Attack>, String> {
    if names.is_empty() {
        return Ok(ATTACKS.iter().collect());
    }
    let find = |name: &String| {
        ATTACKS.iter().find(|attack| attack.name == name).ok_or_else(|| {
            let known: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
            format!("there is no attack `{name}`; known ones: {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

fn start(kind: Kind, load: &Load, origin: &Load, programs: &Programs) -> Result<Attacked, String> {
    let (innocent, attacked) = (free_port()?, free_port()?);
    let servers = [load.origin().port(), origin.origin().port()];
    let text = match kind {
        Kind::Nginx => nginx([innocent, attacked], servers, &programs.folder.display().to_string()),
        _ => haproxy([innocent, attacked], servers),
    };
    let program = programs.start(kind, innocent, &text)?;
    Ok(Attacked { kind, program, to: SocketAddr::from(([127, 0, 0, 1], attacked)) })
}

/// The configuration for haproxy and Manylane.
fn haproxy(ports: [u16; 2], servers: [u16; 2]) -> String {
    let mut text = String::from(
        "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode http\n    http-reuse always\n    \
         timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n",
    );
    for (number, (port, server)) in ports.iter().zip(servers).enumerate() {
        let _ =
            write!(text, "listen l{number}\n    bind 127.0.0.1:{port}\n    server s 127.0.0.1:{server}\n");
    }
    text
}

fn nginx(ports: [u16; 2], servers: [u16; 2], folder: &str) -> String {
    let mut text = format!(
        "daemon off;\nworker_processes 1;\nworker_rlimit_nofile 9000;\npid {folder}/attacked.pid;\n\
         error_log stderr crit;\nevents {{ worker_connections 8000; }}\nhttp {{\n    access_log off;\n    \
         keepalive_requests 1000000000;\n    client_max_body_size 0;\n"
    );
    for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "    {what}_temp_path {folder}/{what};");
    }
    for (port, (server, http2)) in ports.iter().zip(servers.iter().zip(["", " http2"])) {
        let _ = write!(
            text,
            "    upstream u{port} {{\n        server 127.0.0.1:{server};\n        keepalive 64;\n    }}\n\
             \x20   server {{\n        listen 127.0.0.1:{port}{http2};\n        location / {{\n\
             \x20           proxy_pass http://u{port};\n            proxy_http_version 1.1;\n\
             \x20           proxy_set_header Connection \"\";\n\
             \x20           proxy_request_buffering off;\n            proxy_max_temp_file_size 0;\n\
             \x20       }}\n    }}\n"
        );
    }
    text + "}\n"
}

/// The table lines of an attack.
fn table(
    attack: &'static Attack,
    all: &[Attacked],
    rounds: u32,
    load: &Load,
    origin: &Load,
) -> Result<String, String> {
    let requested = Arc::new(innocent());
    let served = Arc::new(Traffic { response: response(attack.body), clients: 0, ..innocent() });
    let mut text = String::new();
    for program in all {
        let failed = |sentence: String| format!("{}, {}: {sentence}", attack.name, program.kind);
        origin.open(&served, program.to).map_err(failed)?;
        load.open(&requested, program.program.address()).map_err(failed)?;
        let (mut without, mut with, mut ended) = (Measured::default(), Measured::default(), 0);
        load.go(REQUESTS / 5, Arrival::Rate(RATE)).map_err(failed)?;
        for _ in 0..rounds {
            measure(program, load, &mut without).map_err(failed)?;
            let running = Running::start(attack, program.to);
            std::thread::sleep(BEGUN);
            let before = running.ended();
            measure(program, load, &mut with).map_err(failed)?;
            ended += running.ended() - before;
        }
        load.close();
        origin.close();
        let [half, before] = without.latencies.clone().map(median);
        let [half_with, after] = with.latencies.clone().map(median);
        let ratio = after / before;
        let target = if program.kind.is_ours() { met(ratio, MOST) } else { "shown".to_string() };
        let _ = writeln!(
            text,
            "| {} | {} | {half:.0}, {half_with:.0} | {before:.0}, {after:.0} | {ratio:.2}, {target} \
                | {:.0}, {:.0} | {:.0} |",
            attack.words,
            program.kind,
            without.share(),
            with.share(),
            ended as f64 * 1e9 / with.time.max(1) as f64,
        );
    }
    Ok(text)
}

/// A round of innocent clients.
fn measure(program: &Attacked, load: &Load, measured: &mut Measured) -> Result<(), String> {
    let processes = program.program.processes();
    let (before, begun) = (processes.usage()?, Instant::now());
    let phase = load.go(REQUESTS, Arrival::Rate(RATE))?;
    measured.used += processes.usage()?.since(before).nanos;
    measured.time += begun.elapsed().as_nanos() as u64;
    for (latencies, percent) in measured.latencies.iter_mut().zip([50.0, 99.0]) {
        latencies.push(f64::from(phase.percentile(percent)));
    }
    Ok(())
}

fn innocent() -> Traffic {
    Traffic {
        request: Message::new("GET /innocent HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 0),
        response: response(1 << 10),
        expected: 1 << 10,
        clients: CLIENTS,
        close: false,
    }
}

fn response(body: u64) -> Message {
    Message::new(format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_attacks_are_refused_with_the_known_ones() {
        let Err(error) = attacks(&["pings".to_string()]) else { panic!("it is unknown") };
        assert!(error.contains("known ones: rapid-reset, made-you-reset"), "{error}");
    }
}
