//! Reloads at full load, of each kind: in the process, by a master, by another process that takes over.

use super::running::{Running, ask, descriptors, memory, signal_to, until};
use super::{Bench, DEFAULTS, met, percentile, traffic};
use crate::proxy::load::{Arrival, Load};
use crate::proxy::program::{Kind, free_port};
use rustix::process::Signal;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The way to replace a configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// SIGHUP, in the process.
    Signal,
    /// `reload` of the run-time interface, in the process.
    Command,
    /// SIGUSR2 to the master.
    MasterSignal,
    /// `reload` of the master CLI.
    MasterCommand,
    /// Another process with `-x` and `-sf`.
    TakeOver,
}

impl How {
    const ALL: [Self; 5] =
        [Self::Signal, Self::Command, Self::MasterSignal, Self::MasterCommand, Self::TakeOver];

    fn words(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Command => "`reload`",
            Self::MasterSignal => "SIGUSR2 to the master",
            Self::MasterCommand => "`reload` of the master",
            Self::TakeOver => "`-x`, `-sf`",
        }
    }

    fn is_in_the_process(self) -> bool {
        matches!(self, Self::Signal | Self::Command)
    }

    fn has_master(self) -> bool {
        matches!(self, Self::MasterSignal | Self::MasterCommand)
    }
}

/// Requests of a phase; phases run as long as the reloads do.
const PHASE: u64 = 2_000;

/// Requests before the first reload.
const BEFORE: u64 = 20_000;

/// Reloads after which memory and descriptors are recorded for comparison.
const SETTLED: u32 = 20;

/// Limits: p99 during reloads relative to before, and growth of memory in KiB and of descriptors. Descriptors
/// are compared at rest, since at full load each connection has one.
const MOST: (f64, u64, usize) = (2.0, 4 << 10, 16);

/// Size of the syslog server's buffer in bytes: more lines than arrive during a pause.
const ROOM: usize = 4 << 20;

pub(super) fn run(bench: &Bench, load: &Load) -> Result<(), String> {
    println!(
        "\n{} reloads of each kind, 64 clients with a connection for each request (reloads)",
        bench.reloads
    );
    println!(
        "| how | who | s each | requests | failed | lines with 200 | others | p99 before, meanwhile, us | \
            ratio | at most {} | KiB after {SETTLED}, at the end | descriptors before, meanwhile, at the \
            end, at rest |",
        MOST.0
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for how in How::ALL {
        for kind in bench.kinds().filter(|kind| kind.is_ours() || !how.is_in_the_process()) {
            one(bench, load, how, kind)?;
        }
    }
    Ok(())
}

fn text(bench: &Bench, port: u16, logs: u16, turn: u32) -> String {
    format!(
        "global\n    nbthread 2\n    maxconn 2000\n    log 127.0.0.1:{logs} len 1024 local0\n    stats \
            socket {} level admin expose-fd listeners\n{DEFAULTS}\
         \x20   log global\n    log-format \"%ST %{{+Q}}r\"\nfrontend outside\n    bind \
         127.0.0.1:{port}\n    http-request return status 200 if {{ path /ready }}\n\
         \x20   http-request set-header x-turn {turn}\n    default_backend served\nbackend served\n    \
         server one {}\n",
        bench.socket().display(),
        bench.origin,
    )
}

fn one(bench: &Bench, load: &Load, how: How, kind: Kind) -> Result<(), String> {
    let sink = Sink::start()?;
    let port = free_port()?;
    let master = bench.master();
    let master = master.to_string_lossy();
    let words = if how.has_master() { vec!["-W", "-S", &*master] } else { Vec::new() };
    let mut running = bench.serve(kind, port, &text(bench, port, sink.port, 0), &words)?;
    until("a worker", || !how.has_master() || worker(bench).is_ok())?;
    let first = descriptors(serving(bench, how, &running)?);
    let traffic = Arc::new(traffic(true));
    load.open(&traffic, running.address())?;
    load.go(PHASE, Arrival::Closed)?;
    let before = load.go(BEFORE, Arrival::Closed)?.percentile(99.0);
    // The requests for readiness were logged, too.
    until("lines of what was before", || sink.has_settled())?;
    let lines = (sink.good.load(Ordering::Relaxed), sink.bad.load(Ordering::Relaxed));
    let over = AtomicBool::new(false);
    let mut settled = (0, 0);
    let (mut latencies, mut failed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            let outcome = (1..=bench.reloads).try_for_each(|turn| {
                replace(bench, how, kind, &mut running, &text(bench, port, sink.port, turn), turn)?;
                if turn == SETTLED.min(bench.reloads) {
                    let pid = serving(bench, how, &running)?;
                    settled = (memory(pid), descriptors(pid));
                }
                Ok::<_, String>(())
            });
            over.store(true, Ordering::Relaxed);
            outcome
        });
        while !over.load(Ordering::Relaxed) {
            match load.go(PHASE, Arrival::Closed) {
                Ok(mut phase) => latencies.append(&mut phase.latencies),
                Err(sentence) => {
                    failed.push(sentence);
                    load.close();
                    load.open(&traffic, SocketAddr::from(([127, 0, 0, 1], port)))?;
                }
            }
        }
        replacing.join().map_err(|_| "the reloads have ended by a panic".to_string())?
    })?;
    let each = began.elapsed() / bench.reloads;
    let pid = serving(bench, how, &running)?;
    let last = (memory(pid), descriptors(pid));
    load.close();
    until("the last lines", || sink.has_settled())?;
    // Idle connections are closed by halves, every five seconds.
    let grows = last.0 > settled.0 + MOST.1
        || until("idle connections to be closed", || descriptors(pid) <= first + MOST.2).is_err();
    let rest = descriptors(pid);
    latencies.sort_unstable();
    let meanwhile = percentile(&latencies, 99.0);
    let ratio = f64::from(meanwhile) / f64::from(before);
    let (good, bad) =
        (sink.good.load(Ordering::Relaxed) - lines.0, sink.bad.load(Ordering::Relaxed) - lines.1);
    println!(
        "| {} | {kind} | {:.3} | {} | {} | {good} | {bad} | {before}, {meanwhile} | {ratio:.2} | {} | {}, \
            {}{} | {first}, {}, {}, {rest} |",
        how.words(),
        each.as_secs_f64(),
        latencies.len(),
        failed.len(),
        met(ratio <= MOST.0 && failed.is_empty()),
        settled.0,
        last.0,
        if grows { ": GROWS" } else { "" },
        settled.1,
        last.1,
    );
    for sentence in failed.iter().take(3) {
        println!("  {sentence}");
    }
    Ok(())
}

/// Id of the serving process.
fn serving(bench: &Bench, how: How, running: &Running) -> Result<u32, String> {
    if how.has_master() { worker(bench) } else { Ok(running.pid()) }
}

/// Id of the worker, once it is the only one.
fn worker(bench: &Bench) -> Result<u32, String> {
    let (text, _) = ask(&bench.master(), "show proc", 1 << 16)?;
    let mut rows = text.lines().skip_while(|line| !line.starts_with("# workers")).skip(1);
    let row = rows.next().unwrap_or_default();
    let others = text.lines().skip_while(|line| !line.starts_with("# old workers")).skip(1);
    if others.take_while(|line| !line.starts_with('#') && !line.is_empty()).count() > 0 {
        return Err("an old worker is left".into());
    }
    row.split_whitespace().next().and_then(|pid| pid.parse().ok()).ok_or(format!("no worker serves: {text}"))
}

/// Reloads once, and waits until the old configuration is gone.
fn replace(
    bench: &Bench,
    how: How,
    kind: Kind,
    running: &mut Running,
    text: &str,
    turn: u32,
) -> Result<(), String> {
    match how {
        How::Signal => {
            bench.write(text)?;
            running.signal(Signal::HUP)?;
            let served = format!("Reloaded: generation {turn} serves.");
            until(&served, || running.times(&served) > 0)
        }
        How::Command => {
            bench.write(text)?;
            let (answer, _) = running.ask("reload", 4096)?;
            if answer.contains("Reloaded: ") { Ok(()) } else { Err(answer) }
        }
        How::MasterSignal | How::MasterCommand => {
            bench.write(text)?;
            let before = worker(bench)?;
            if how == How::MasterSignal {
                running.signal(Signal::USR2)?;
            } else {
                ask(&bench.master(), "reload", 4096)?;
            }
            // haproxy's master is unreachable for a moment.
            until("the next worker alone", || worker(bench).is_ok_and(|pid| pid != before))
        }
        How::TakeOver => {
            let (pid, socket) = (running.pid().to_string(), bench.socket());
            let words = ["-x", &*socket.to_string_lossy(), "-sf", &pid];
            let next = bench.start(kind, running.port, text, &words)?;
            let mut before = std::mem::replace(running, next);
            until("the end of the process before", || before.has_ended() || running.has_ended())?;
            if running.has_ended() {
                signal_to(before.pid(), Signal::TERM)?;
                return Err(format!("{kind} does not take over: {}", running.said()));
            }
            Ok(())
        }
    }
}

/// A syslog server that counts lines by status.
struct Sink {
    port: u16,
    good: Arc<AtomicU64>,
    bad: Arc<AtomicU64>,
}

impl Sink {
    fn start() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("cannot receive logs: {error}");
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(fail)?;
        // as much as the system allows
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, ROOM);
        let port = socket.local_addr().map_err(fail)?.port();
        let (good, bad) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counted = (good.clone(), bad.clone());
        std::thread::spawn(move || {
            let mut room = [0; 2048];
            while let Ok(length) = socket.recv(&mut room) {
                let line = String::from_utf8_lossy(&room[..length]);
                // Messages about the start and stop of proxies are not requests.
                if line.contains("\"GET / HTTP/1.1\"") {
                    let which = if line.contains(": 200 ") { &counted.0 } else { &counted.1 };
                    which.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { port, good, bad })
    }

    /// True if no line has arrived for a while.
    fn has_settled(&self) -> bool {
        let all = || self.good.load(Ordering::Relaxed) + self.bad.load(Ordering::Relaxed);
        let before = all();
        std::thread::sleep(Duration::from_millis(300));
        all() == before
    }
}
