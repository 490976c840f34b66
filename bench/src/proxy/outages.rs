//! `manylane-bench outages`: latencies of clients while a server dies, or while servers change their states.
//!
//! # Measurement
//! Clients share one program with two threads, and each sends its next request at a fixed time, so a request
//! that waits does not hold the others back. A round has two phases of the same length, without and with the
//! fault. Answers other than 200 are counted, and so are connections that end without an answer: their
//! clients connect again. The table shows medians of the rounds.
//!
//! # Targets
//! With the fault, the p99 is at most haproxy's of the same run, and no more answers are missing.

use super::program::{Kind, Program, Programs, free_port};
use super::{ProxyArguments, median, met, named};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of clients, and the time from one request of a client to its next: 1,600 requests a second.
const CLIENTS: usize = 32;
const EVERY: Duration = Duration::from_millis(20);

/// Length of a phase. A check finds a dead server within three of its intervals of one second, so all of
/// that is in the phase.
const PHASE: Duration = Duration::from_secs(5);

/// Servers of the rows of changes, and the changes of their states per second.
const SERVERS: usize = 1_000;
const CHANGES: u32 = 3_000;

/// Changes that a connection to the run-time interface carries.
const TOGETHER: u32 = 30;

/// Time limit of a client for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// One of two servers dies: its connections and its listener are closed.
    Dead {
        /// The configuration says `retry-on all-retryable-errors`.
        retry: bool,
    },
    /// The run-time interface changes the states of servers.
    Changes {
        /// Lines of the configuration that say how the servers are balanced.
        balance: &'static str,
        /// Each server has one of so many weights.
        weights: usize,
    },
}

const ROWS: &[(&str, Fault)] = &[
    ("one of two servers dies; redispatch", Fault::Dead { retry: false }),
    ("the same with retry-on all-retryable-errors", Fault::Dead { retry: true }),
    (
        "3,000 changes of 1,000 servers' states a second; uri, consistent",
        Fault::Changes { balance: "balance uri\n    hash-type consistent", weights: 1 },
    ),
    ("the same; roundrobin, 256 weights", Fault::Changes { balance: "balance roundrobin", weights: 256 }),
    ("the same; leastconn, 256 weights", Fault::Changes { balance: "balance leastconn", weights: 256 }),
    // With 256 weights a change takes HAProxy so long that its watchdog ends it.
    ("the same; static-rr", Fault::Changes { balance: "balance static-rr", weights: 1 }),
    ("the same; uri, map-based", Fault::Changes { balance: "balance uri", weights: 1 }),
];

/// Runs the command.
///
/// # Errors
/// A sentence if a row is unknown, a program cannot be started, or a client cannot connect.
pub fn run(arguments: &ProxyArguments) -> Result<(), String> {
    let how = &arguments.how;
    let chosen = named(&arguments.rows, "row", ROWS, |row| row.0)?;
    super::with_programs(how, |programs| {
        let mut kinds = vec![Kind::Epoll, Kind::Uring];
        if !how.alone {
            kinds.push(Kind::Haproxy);
        }
        for &(words, fault) in chosen {
            println!(
                "\n{words}\n\n| program | p50 ms, with it | p99 ms, with it | most ms, with it | not 200, of \
                 | changes/s |\n|---|---|---|---|---|---|"
            );
            let mut rounds: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
            for _ in 0..how.rounds {
                for (kind, rounds) in kinds.iter().zip(&mut rounds) {
                    let round = measure(*kind, fault, programs);
                    rounds.push(round.map_err(|sentence| format!("{kind}: {sentence}"))?);
                }
            }
            for (kind, rounds) in kinds.iter().zip(&rounds) {
                println!("{}", line(*kind, rounds));
            }
            let all: Vec<_> =
                kinds.iter().copied().zip(rounds.iter().map(|rounds| Outcome::of(rounds))).collect();
            print!("{}", verdicts(&all));
        }
        Ok(())
    })
}

/// The result of a round: both phases, and the changes that were made in the second one.
struct Round {
    phases: [Phase; 2],
    changes: u32,
}

/// Latencies in milliseconds, in order, and the number of answers that were not 200.
#[derive(Default)]
struct Phase {
    latencies: Vec<f64>,
    failed: usize,
}

impl Phase {
    fn percentile(&self, percent: f64) -> f64 {
        let at = (self.latencies.len() as f64 * percent / 100.0).ceil() as usize;
        self.latencies.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

fn line(kind: Kind, rounds: &[Round]) -> String {
    let mut text = format!("| {kind} |");
    for percent in [50.0, 99.0, 100.0] {
        let [without, with] =
            [0, 1].map(|phase| median(rounds.iter().map(|r| r.phases[phase].percentile(percent)).collect()));
        let _ = write!(text, " {without:.2}, {with:.2} |");
    }
    let sum = |count: fn(&Phase) -> usize| rounds.iter().map(|round| count(&round.phases[1])).sum::<usize>();
    let changes = median(rounds.iter().map(|round| f64::from(round.changes)).collect());
    let _ = write!(
        text,
        " {}, {} | {:.0} |",
        sum(|phase| phase.failed),
        sum(|phase| phase.latencies.len()),
        changes / PHASE.as_secs_f64()
    );
    text
}

/// What is judged: the p99 with the fault, and the answers that were not 200.
#[derive(Clone, Copy)]
struct Outcome {
    slow: f64,
    failed: usize,
}

impl Outcome {
    fn of(rounds: &[Round]) -> Self {
        Self {
            slow: median(rounds.iter().map(|round| round.phases[1].percentile(99.0)).collect()),
            failed: rounds.iter().map(|round| round.phases[1].failed).sum(),
        }
    }
}

/// The verdicts on ours, beside haproxy; nothing without it.
fn verdicts(all: &[(Kind, Outcome)]) -> String {
    let mut text = String::new();
    let Some((_, peer)) = all.iter().find(|(kind, _)| *kind == Kind::Haproxy) else { return text };
    for (kind, ours) in all.iter().filter(|(kind, _)| kind.is_ours()) {
        let ratio = ours.slow / peer.slow;
        let failed = if ours.failed <= peer.failed { "met" } else { "MISSED" };
        let _ = writeln!(
            text,
            "{kind}: p99 with it {ratio:.2} of haproxy's, {}; not 200: {}, at most {}: {failed}",
            met(ratio, 1.0),
            ours.failed,
            peer.failed
        );
    }
    text
}

fn measure(kind: Kind, fault: Fault, programs: &Programs) -> Result<Round, String> {
    let (survivor, victim) = (Server::start()?, Server::start()?);
    let port = free_port()?;
    let commands = programs.folder.join(format!("outages-{port}.sock"));
    let text = configuration(fault, port, &commands, [survivor.port, victim.port]);
    let program = programs.start(kind, port, &text)?;
    let without = phase(&program)?;
    let changing = matches!(fault, Fault::Changes { .. }).then(|| Changing::start(&commands));
    let clients = begin(&program)?;
    if let Fault::Dead { .. } = fault {
        std::thread::sleep(PHASE / 10);
        drop(victim);
    }
    let with = end(clients)?;
    let changes = changing.map_or(Ok(0), Changing::stop)?;
    Ok(Round { phases: [without, with], changes })
}

fn configuration(fault: Fault, port: u16, commands: &Path, servers: [u16; 2]) -> String {
    let mut text = format!(
        "global\n    nbthread 2\n    maxconn 4000\n    stats socket {} level admin\ndefaults\n    mode http\n\
         \x20   option redispatch\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n",
        commands.display()
    );
    if fault == (Fault::Dead { retry: true }) {
        text.push_str("    retry-on all-retryable-errors\n");
    }
    let _ = write!(text, "listen l\n    bind 127.0.0.1:{port}\n    default-server check inter 1s fall 3\n");
    match fault {
        Fault::Dead { .. } => {
            for server in servers {
                let _ = writeln!(text, "    server s{server} 127.0.0.1:{server}");
            }
        }
        Fault::Changes { balance, weights } => {
            let _ = writeln!(text, "    {balance}");
            for number in 0..SERVERS {
                let weight = 1 + number % weights;
                let _ =
                    writeln!(text, "    server s{number} 127.0.0.1:{} no-check weight {weight}", servers[0]);
            }
        }
    }
    text
}

/// A server that answers each request with a body of 1 KiB, until it is dropped.
struct Server {
    port: u16,
    alive: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("cannot start a server: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let (alive, open) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (lives, kept) = (alive.clone(), open.clone());
        let accepting = std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if !lives.load(Ordering::Relaxed) {
                    return;
                }
                if let (Ok(other), Ok(mut kept)) = (socket.try_clone(), kept.lock()) {
                    kept.push(other);
                }
                std::thread::spawn(move || serve(socket));
            }
        });
        Ok(Self { port, alive, open, accepting: Some(accepting) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // so that it stops accepting
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for socket in self.open.lock().iter_mut().flat_map(|open| open.drain(..)) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn serve(socket: TcpStream) {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n{}", "x".repeat(1024));
    let _ = socket.set_nodelay(true);
    let Ok(mut writer) = socket.try_clone() else { return };
    let mut lines = BufReader::new(socket);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" && writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

type Clients = Vec<JoinHandle<Result<Phase, String>>>;

fn phase(program: &Program) -> Result<Phase, String> {
    end(begin(program)?)
}

/// Starts the clients of a phase.
fn begin(program: &Program) -> Result<Clients, String> {
    let (to, begun) = (program.address(), Instant::now());
    let client = |number: usize| {
        let first = begun + EVERY * number as u32 / CLIENTS as u32;
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || client(to, number, first, begun + PHASE))
            .map_err(|error| format!("cannot start a client: {error}"))
    };
    (0..CLIENTS).map(client).collect()
}

fn end(clients: Clients) -> Result<Phase, String> {
    let mut all = Phase::default();
    for client in clients {
        let phase = client.join().map_err(|_| "a client panicked")??;
        all.latencies.extend(phase.latencies);
        all.failed += phase.failed;
    }
    all.latencies.sort_by(f64::total_cmp);
    Ok(all)
}

/// Sends requests until `over`. A latency begins when its request was due.
fn client(to: SocketAddr, number: usize, first: Instant, over: Instant) -> Result<Phase, String> {
    let mut phase = Phase::default();
    let mut connection = None;
    let mut due = first;
    while due < over {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut socket = match connection.take() {
            Some(socket) => socket,
            None => connect(to)?,
        };
        let request =
            format!("GET /{number}/{} HTTP/1.1\r\nHost: www.example.com\r\n\r\n", phase.latencies.len());
        let answered = ask(&mut socket, &request).unwrap_or(false);
        phase.latencies.push(due.elapsed().as_secs_f64() * 1e3);
        if answered {
            connection = Some(socket);
        } else {
            phase.failed += 1;
        }
        due += EVERY;
    }
    Ok(phase)
}

fn connect(to: SocketAddr) -> Result<BufReader<TcpStream>, String> {
    let fail = |error: std::io::Error| format!("cannot connect to the proxy: {error}");
    let socket = TcpStream::connect(to).map_err(fail)?;
    socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(TIMEOUT))).map_err(fail)?;
    Ok(BufReader::new(socket))
}

/// Sends a request; true if the answer is a complete one with the status 200.
fn ask(socket: &mut BufReader<TcpStream>, request: &str) -> std::io::Result<bool> {
    socket.get_mut().write_all(request.as_bytes())?;
    let (mut line, mut ok, mut length) = (String::new(), false, 0);
    while line != "\r\n" {
        line.clear();
        if socket.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        ok |= line.starts_with("HTTP/1.1 200");
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body)?;
    Ok(ok)
}

/// Changes servers' states until it is stopped.
struct Changing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u32, String>>,
}

impl Changing {
    fn start(commands: &Path) -> Self {
        let (stop, commands) = (Arc::new(AtomicBool::new(false)), commands.to_path_buf());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut made, begun) = (0, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                let due = begun + Duration::from_secs(1) * made / CHANGES;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                change(&commands, made)?;
                made += TOGETHER;
            }
            Ok(made)
        });
        Self { stop, thread }
    }

    /// Stops, and returns the number of changes.
    fn stop(self) -> Result<u32, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the changes panicked".to_string())?
    }
}

/// Makes [`TOGETHER`] changes; each server is drained in one pass over all of them, and ready in the next.
fn change(commands: &Path, made: u32) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot change a state: {error}");
    let mut text = String::new();
    for number in made..made + TOGETHER {
        let (pass, server) = (number as usize / SERVERS, number as usize % SERVERS);
        // One server of ten stays, so that there is always one to take.
        let state = if pass % 2 == 0 && server % 10 != 0 { "drain" } else { "ready" };
        let _ = write!(text, "set server l/s{server} state {state};");
    }
    text.pop();
    text.push('\n');
    let mut socket = UnixStream::connect(commands).map_err(fail)?;
    socket.write_all(text.as_bytes()).map_err(fail)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map_err(fail)?;
    match answer.trim() {
        "" => Ok(()),
        words => Err(format!("a state is not changed: {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_missing_answers_are_judged_beside_haproxy() {
        let outcome = |slow, failed| Outcome { slow, failed };
        let text = verdicts(&[
            (Kind::Epoll, outcome(3.0, 1)),
            (Kind::Uring, outcome(2.0, 0)),
            (Kind::Haproxy, outcome(2.0, 0)),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains("1.50 of haproxy's, at most 1: MISSED; not 200: 1, at most 0: MISSED"),
            "{text}"
        );
        assert!(lines[1].contains("1.00 of haproxy's, at most 1: met; not 200: 0, at most 0: met"), "{text}");
        assert_eq!(verdicts(&[(Kind::Epoll, outcome(3.0, 1))]), "");
    }
}
