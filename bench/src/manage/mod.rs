//! `manylane-bench manage`: the cost of observing and changing the program while it serves, compared with
//! haproxy where that can do the same.
//!
//! Each row runs one program at a time. Its standard error is read: ours reports tasks that hold a lane for
//! too long (`warn-blocked-traffic-after`), so its own watchdog measures the longest slice, in processor
//! time.

mod certificates;
mod reloads;
mod running;
mod sessions;
mod start;
mod stat;

use crate::proxy::load::{Load, Message, Traffic};
use crate::proxy::program::Kind;
use clap::Args;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `manage`.
#[derive(Clone, Debug, Args)]
pub struct ManageArguments {
    /// Only this row; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// Rounds of latencies without dumps and with them, in turns, of which the medians count
    #[arg(long, value_name = "N", default_value_t = 15, value_parser =
        clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Reloads of each kind
    #[arg(long, value_name = "N", default_value_t = 100, value_parser =
        clap::value_parser!(u32).range(1..=10_000))]
    pub reloads: u32,
    /// Sessions that are shown
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser =
        clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Certificates in a folder
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser =
        clap::value_parser!(u32).range(2..=1_000_000))]
    pub certificates: u32,
    /// The program [default: manylane beside this one]
    #[arg(long, value_name = "PATH")]
    pub manylane: Option<PathBuf>,
    /// Only ours
    #[arg(long)]
    pub alone: bool,
}

/// State that every row needs.
struct Bench {
    manylane: PathBuf,
    haproxy: PathBuf,
    folder: PathBuf,
    /// Address of the servers.
    origin: SocketAddr,
    alone: bool,
    rounds: u32,
    reloads: u32,
    sessions: u32,
    certificates: u32,
}

type Row = (&'static str, fn(&Bench, &Load) -> Result<(), String>);

const ROWS: &[Row] = &[
    ("stat", stat::run),
    ("reloads", reloads::run),
    ("start", start::run),
    ("sessions", sessions::run),
    ("certificates", certificates::run),
];

/// Runs the command.
///
/// # Errors
/// A sentence if a row is unknown, a program does not follow a command, or a response is unexpected.
pub fn run(arguments: &ManageArguments) -> Result<(), String> {
    if let Some(unknown) = arguments.rows.iter().find(|name| !ROWS.iter().any(|(row, _)| row == name)) {
        let known: Vec<&str> = ROWS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no row `{unknown}`; known ones: {}", known.join(", ")));
    }
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("manylane"));
    let manylane = arguments.manylane.clone().or_else(beside).ok_or("where is manylane? --manylane tells")?;
    let folder = std::env::temp_dir().join(format!("manylane-bench-manage-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let load = Load::start()?;
    let bench = Bench {
        manylane,
        haproxy: crate::proxy::haproxy(),
        folder: folder.clone(),
        origin: load.origin(),
        alone: arguments.alone,
        rounds: arguments.rounds,
        reloads: arguments.reloads,
        sessions: arguments.sessions,
        certificates: arguments.certificates,
    };
    let mut chosen = ROWS
        .iter()
        .filter(|(name, _)| arguments.rows.is_empty() || arguments.rows.iter().any(|row| row == name));
    let done = chosen.try_for_each(|(_, row)| row(&bench, &load));
    let _ = std::fs::remove_dir_all(&folder);
    done
}

impl Bench {
    /// The programs to measure.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let alone = self.alone;
        [Kind::Haproxy, Kind::Epoll, Kind::Uring].into_iter().filter(move |kind| !alone || kind.is_ours())
    }
}

/// `count` backends with `servers` servers each, which get no requests.
fn backends(count: usize, servers: usize) -> String {
    let mut text = String::new();
    for backend in 0..count {
        let _ = writeln!(text, "backend b{backend}");
        for server in 0..servers {
            let (high, low) = (server / 250, server % 250 + 1);
            let _ = writeln!(text, "    server s{server} 127.1.{high}.{low}:{}", 10_000 + backend);
        }
    }
    text
}

const DEFAULTS: &str = "defaults\n    mode http\n    http-reuse always\n    timeout connect 5s\n    timeout \
    client 60s\n    timeout server 60s\n";

/// Requests for a KiB, on kept connections or on one for each.
fn traffic(close: bool) -> Traffic {
    let closes = if close { "Connection: close\r\n" } else { "" };
    let request = Message::new(format!("GET / HTTP/1.1\r\nHost: www.example.com\r\n{closes}\r\n"), 0);
    let response = Message::new("HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Length: 1024\r\n\r\n", 1024);
    Traffic { request, response, expected: 1024, clients: 64, close }
}

/// A percentile of sorted numbers.
fn percentile(sorted: &[u32], percent: f64) -> u32 {
    let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
