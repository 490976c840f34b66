//! `manylane-bench proxy`: the program compared with the installed proxies, in one run.
//!
//! # Measurement
//! All programs of a row run at the same time, each with two threads, and alternate. A round is a number of
//! requests through one of them, from clients to servers in this process (`load`). The result is the
//! processor time of the proxy's processes during the round, as the kernel accounts for it, divided by the
//! requests, so the load's own processor time is not charged to the proxy. The table shows the median and the
//! least of the rounds. Every response is checked: its status, and its length.
//!
//! System calls, instructions and calls of the global allocator are counted in separate short passes.

mod attacks;
mod burst;
mod checks;
mod drips;
mod floor;
mod http2;
pub(crate) mod load;
mod outages;
pub(crate) mod program;
mod scenario;
mod tls;
pub(crate) mod usage;

pub use attacks::{AttackArguments, run as attacks};
pub use burst::run as burst;
use clap::Args;
pub use drips::run as drips;
pub use http2::{Http2Arguments, run as http2};
use load::{Arrival, Load, Phase, Traffic};
pub use outages::run as outages;
use program::{Kind, Program, Programs, free_port};
use scenario::{SCENARIOS, Scenario, Shape, Target, Unit};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
pub use tls::{TlsArguments, run as tls};
use usage::{Allocator, CALLS, INSTRUCTIONS, Usage};

/// Arguments of `proxy`.
#[derive(Clone, Debug, Args)]
pub struct ProxyArguments {
    /// Only this scenario; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// How it is measured
    #[command(flatten)]
    pub how: How,
}

/// Parameters of a measurement.
#[derive(Clone, Debug, Default, Args)]
pub struct How {
    /// Rounds of each program
    #[arg(long, value_name = "N", default_value_t = 7, value_parser =
        clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Requests of a round, in hundredths of the usual number
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser =
        clap::value_parser!(u32).range(1..=10_000))]
    pub requests: u32,
    /// The program [default: manylane beside this one]
    #[arg(long, value_name = "PATH")]
    pub manylane: Option<PathBuf>,
    /// Only ours
    #[arg(long)]
    pub alone: bool,
    /// Do not count system calls, instructions and allocations
    #[arg(long)]
    pub no_calls: bool,
}

/// A program in a row.
struct Contestant {
    kind: Kind,
    /// It runs the configuration that the row is compared with.
    base: bool,
    program: Program,
    /// The row's figure, for each round.
    samples: Vec<f64>,
    rounds: Rounds,
    used: Usage,
    requests: u64,
    /// Resident memory at the end of the last round, in bytes.
    memory: u64,
    counts: Counts,
}

/// Results on the clients' side, for each round.
#[derive(Clone, Debug, Default)]
struct Rounds {
    /// Requests per second.
    throughput: Vec<f64>,
    /// p50, p99 and p99.9, in microseconds.
    latency: [Vec<f64>; 3],
}

/// Counts per request from separate passes.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: Option<f64>,
    /// Instructions of the program, and of the kernel.
    instructions: Option<(f64, f64)>,
    /// Allocating calls of the global allocator.
    allocations: Option<f64>,
}

/// A program's figures in a row: medians of the rounds.
#[derive(Clone, Debug)]
struct Figures {
    kind: Kind,
    base: bool,
    median: f64,
    least: f64,
    throughput: f64,
    /// p50, p99 and p99.9, in microseconds.
    latency: [f64; 3],
    user_share: f64,
    memory: u64,
    counts: Counts,
}

/// Runs the command.
///
/// # Errors
/// A sentence if a scenario or a program is unknown, or a response is unexpected.
pub fn run(arguments: &ProxyArguments) -> Result<(), String> {
    let chosen = scenarios(&arguments.rows)?;
    with_programs(&arguments.how, |programs| scenarios_with(arguments, &chosen, programs))
}

/// Runs `measure` with the programs and a temporary folder.
fn with_programs(how: &How, measure: impl FnOnce(&Programs) -> Result<(), String>) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("manylane-bench-proxy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("manylane"));
    let manylane = how.manylane.clone().or_else(beside).ok_or("where is manylane? --manylane tells")?;
    // Debian's folder for administrators' programs is not always in the path.
    let found = |name: &str| {
        let administrators = PathBuf::from("/usr/sbin").join(name);
        if administrators.exists() { administrators } else { PathBuf::from(name) }
    };
    let programs = Programs { manylane, haproxy: haproxy(), nginx: found("nginx"), folder: folder.clone() };
    let done = measure(&programs);
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn scenarios_with(
    arguments: &ProxyArguments,
    chosen: &[&'static Scenario],
    programs: &Programs,
) -> Result<(), String> {
    let load = Load::start()?;
    let sink = Sink::start()?;
    for kind in [Kind::Epoll, Kind::Haproxy, Kind::Nginx] {
        if kind.is_ours() || !arguments.how.alone {
            println!("{}", programs.version(kind)?);
        }
    }
    let mut overview = String::from(
        "| scenario | loop ns | haproxy | nginx | epoll | io_uring | epoll by ratio | io_uring by ratio \
            |\n|---|---|---|---|---|---|---|---|\n",
    );
    for scenario in chosen {
        let before = empty_loop();
        let figures = measure(arguments, scenario, programs, &load, &sink)?;
        let host = before.max(empty_loop());
        print!("{}", table(scenario, host, &figures));
        overview.push_str(&lines(scenario, host, &figures));
    }
    println!("{overview}");
    Ok(())
}

/// Figures of a scenario, for other tables: those of ours with epoll, the base of the comparison first.
pub(crate) struct OwnFigures {
    /// The scenario's figure.
    pub(crate) median: f64,
    /// Requests per second.
    pub(crate) throughput: f64,
    /// p50 and p99, in microseconds.
    pub(crate) latency: [f64; 2],
}

/// Runs a scenario with ours alone, on so many lanes.
///
/// # Errors
/// A sentence if the program is missing, or a response is unexpected.
pub(crate) fn own_figures(name: &str, lanes: u32, how: &How) -> Result<Vec<OwnFigures>, String> {
    let chosen = scenarios(&[name.to_string()])?;
    let arguments =
        ProxyArguments { rows: Vec::new(), how: How { alone: true, no_calls: true, ..how.clone() } };
    let mut found = Vec::new();
    with_programs(&arguments.how, |programs| {
        let (load, sink) = (Load::start()?, Sink::start()?);
        for scenario in &chosen {
            let shape = Shape { lanes: Some(lanes), ..scenario.shape };
            // Scenarios are static; this one is made once a row.
            let scenario: &'static Scenario =
                Box::leak(Box::new(Scenario { shape, kinds: &[Kind::Epoll], ..**scenario }));
            let figures = measure(&arguments, scenario, programs, &load, &sink)?;
            let mut ours: Vec<Figures> = figures.into_iter().filter(|f| f.kind == Kind::Epoll).collect();
            ours.sort_by_key(|figures| !figures.base);
            found.extend(ours.into_iter().map(|f| OwnFigures {
                median: f.median,
                throughput: f.throughput,
                latency: [f.latency[0], f.latency[1]],
            }));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Path of HAProxy: from `MANYLANE_HAPROXY`, or fetched by `scripts/peers` below the current folder.
pub(crate) fn haproxy() -> PathBuf {
    let fetched = "target/peers/haproxy/usr/sbin/haproxy";
    std::env::var_os("MANYLANE_HAPROXY").map_or_else(|| fetched.into(), PathBuf::from)
}

/// True if there is such a scenario.
pub fn has(name: &str) -> bool {
    SCENARIOS.iter().any(|scenario| scenario.name == name)
}

fn scenarios(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    named(names, "scenario", SCENARIOS, |scenario| scenario.name)
}

/// Returns those of `all` that `names` names, or all of them without names.
///
/// # Errors
/// A sentence with the known names for one that is unknown. `what` says what has the names.
fn named<T>(
    names: &[String],
    what: &str,
    all: &'static [T],
    name_of: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>, String> {
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| {
        all.iter().find(|one| name_of(one) == name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(name_of).collect();
            format!("there is no {what} `{name}`; known ones: {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// The time of an empty loop's round in nanoseconds, one cycle: it shows how fast the host lets a core run.
fn empty_loop() -> f64 {
    const TURNS: u64 = 4_000_000;
    let once = || {
        let started = Instant::now();
        for i in 0..TURNS {
            std::hint::black_box(i);
        }
        started.elapsed().as_nanos() as f64 / TURNS as f64
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn measure(
    arguments: &ProxyArguments,
    scenario: &'static Scenario,
    programs: &Programs,
    load: &Load,
    sink: &Sink,
) -> Result<Vec<Figures>, String> {
    if scenario.unit == Unit::Checks {
        return checks::measure(arguments, scenario, programs);
    }
    let traffic = Arc::new((scenario.traffic)());
    let requests = (scenario.requests * u64::from(arguments.how.requests) / 100).max(1);
    let mut contestants = Vec::new();
    for (kind, base) in contestants_of(scenario, arguments.how.alone) {
        let lanes = scenario.shape.lanes;
        let shape = if base { Shape { lanes, ..scenario::PLAIN } } else { scenario.shape };
        let port = free_port()?;
        let folder = programs.folder.to_string_lossy();
        let text = Scenario { shape, ..*scenario }.configuration(
            kind,
            port,
            load.origin().port(),
            sink.port,
            &folder,
        );
        let program = programs.start(kind, port, &text)?;
        contestants.push(Contestant {
            kind,
            base,
            program,
            samples: Vec::new(),
            rounds: Rounds::default(),
            used: Usage::default(),
            requests: 0,
            memory: 0,
            counts: Counts::default(),
        });
    }
    let rounds = if scenario.unit == Unit::Idle { 1 } else { arguments.how.rounds };
    for _ in 0..rounds {
        for contestant in &mut contestants {
            let done = round(scenario, &traffic, requests, contestant, load);
            load.close();
            done.map_err(|sentence| format!("{}, {}: {sentence}", scenario.name, contestant.kind))?;
        }
    }
    if !arguments.how.no_calls && scenario.unit != Unit::Idle {
        for contestant in &mut contestants {
            let _beside = idle_clients(scenario.shape.beside, contestant)?;
            let done = calls(&traffic, requests.div_ceil(4), contestant, load);
            load.close();
            done.map_err(|sentence| format!("{}, {}: {sentence}", scenario.name, contestant.kind))?;
        }
    }
    if scenario.shape.log && sink.lines() < requests {
        return Err(format!("{}: only {} lines were logged", scenario.name, sink.lines()));
    }
    Ok(contestants.into_iter().map(Contestant::figures).collect())
}

/// The contestants: those of the row, and the ones to compare with if these are Manylane, too.
fn contestants_of(scenario: &Scenario, alone: bool) -> Vec<(Kind, bool)> {
    let base = matches!(scenario.target, Target::Own(..) | Target::Hop(..) | Target::Share(..));
    let kinds = scenario.kinds.iter().copied().filter(|kind| kind.is_ours() || !alone);
    kinds.flat_map(|kind| [(kind, true), (kind, false)]).filter(|(_, is_base)| base || !is_base).collect()
}

/// A round of a program.
fn round(
    scenario: &Scenario,
    traffic: &Arc<Traffic>,
    requests: u64,
    contestant: &mut Contestant,
    load: &Load,
) -> Result<(), String> {
    let processes = contestant.program.processes();
    let to = contestant.program.address();
    if scenario.unit == Unit::Idle {
        // A few requests first, so that only the connections' memory is measured.
        let few = Arc::new(Traffic { clients: 64, ..(**traffic).clone() });
        load.open(&few, to)?;
        load.go(6_400, Arrival::Closed)?;
        let before = processes.memory();
        load.open(traffic, to)?;
        load.go(requests, Arrival::Once)?;
        std::thread::sleep(Duration::from_millis(1_500));
        let more = processes.memory().saturating_sub(before);
        contestant.samples.push(more as f64 / traffic.clients as f64);
        contestant.requests = requests;
        return Ok(());
    }
    let _beside = idle_clients(scenario.shape.beside, contestant)?;
    load.open(traffic, to)?;
    load.go((requests / 10).max(traffic.clients as u64), Arrival::Closed)?;
    let arrival =
        if scenario.unit == Unit::Latency { Arrival::Rate(scenario::RATE) } else { Arrival::Closed };
    let before = processes.usage()?;
    let phase = load.go(requests, arrival)?;
    let used = processes.usage()?.since(before);
    if phase.requests != requests {
        return Err(format!("{} of {requests} requests were answered", phase.requests));
    }
    contestant.samples.push(match scenario.unit {
        Unit::Gigabyte => used.nanos as f64 / (requests * scenario.bytes()) as f64,
        Unit::Latency => f64::from(phase.percentile(99.0)),
        Unit::Request | Unit::Idle | Unit::Checks => used.nanos as f64 / 1e3 / requests as f64,
    });
    contestant.rounds.add(&phase);
    contestant.memory = processes.memory();
    contestant.used.nanos += used.nanos;
    contestant.used.user += used.user;
    contestant.used.system += used.system;
    contestant.requests += requests;
    Ok(())
}

/// Clients that have had an answer and send nothing more; none for the base of a comparison. They end with a
/// reset, which frees their ports for the next round.
fn idle_clients(count: usize, contestant: &Contestant) -> Result<Vec<TcpStream>, String> {
    let to = contestant.program.address();
    let client = || -> std::io::Result<TcpStream> {
        let mut client = TcpStream::connect(to)?;
        manylane_io::options::set_reset_on_close(client.as_fd())?;
        client.write_all(b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n")?;
        let (mut got, mut piece) = (0, [0; 4096]);
        while got < 1_024 {
            match client.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                more => got += more,
            }
        }
        Ok(client)
    };
    let count = if contestant.base { 0 } else { count };
    (0..count)
        .map(|_| client().map_err(|error| format!("{}: idle clients: {error}", contestant.kind)))
        .collect()
}

/// Counts system calls, instructions and allocations of a request, in separate passes, since counting takes
/// time.
fn calls(
    traffic: &Arc<Traffic>,
    requests: u64,
    contestant: &mut Contestant,
    load: &Load,
) -> Result<(), String> {
    load.open(traffic, contestant.program.address())?;
    load.go((requests / 10).max(traffic.clients as u64), Arrival::Closed)?;
    let processes = contestant.program.processes();
    let each = |events: &[String]| {
        let Some(count) = processes.count(events) else { return Ok(None) };
        let phase = load.go(requests, Arrival::Closed)?;
        let counts = count.end().unwrap_or_default();
        Ok::<_, String>(Some(
            counts.into_iter().map(|n| n as f64 / phase.requests as f64).collect::<Vec<_>>(),
        ))
    };
    let named = |events: &[&str]| events.iter().map(ToString::to_string).collect::<Vec<_>>();
    let counts = &mut contestant.counts;
    counts.calls = each(&named(CALLS))?.and_then(|counts| counts.first().copied());
    counts.instructions =
        each(&named(INSTRUCTIONS))?.and_then(|counts| Some((*counts.first()?, *counts.get(1)?)));
    if let Some(allocator) = Allocator::of(&processes, contestant.kind.is_ours()) {
        let counted = each(&allocator.events)?.filter(|counts| counts.len() == allocator.events.len());
        counts.allocations = counted.map(|counts| counts.iter().sum());
    }
    Ok(())
}

impl Rounds {
    fn add(&mut self, phase: &Phase) {
        self.throughput.push(phase.requests as f64 / phase.time.as_secs_f64());
        for (latency, percent) in self.latency.iter_mut().zip([50.0, 99.0, 99.9]) {
            latency.push(f64::from(phase.percentile(percent)));
        }
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Contestant {
    fn figures(self) -> Figures {
        Figures {
            kind: self.kind,
            base: self.base,
            least: self.samples.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(self.samples),
            throughput: median(self.rounds.throughput),
            latency: self.rounds.latency.map(median),
            user_share: self.used.user_share(),
            memory: self.memory,
            counts: self.counts,
        }
    }
}

/// What became of one of ours by the figure `of`: its ratio, its limit, and the contestant compared with.
fn compared(
    scenario: &Scenario,
    all: &[Figures],
    ours: &Figures,
    of: fn(&Figures) -> f64,
) -> Option<(f64, f64, String)> {
    let find =
        |kind: Kind, base: bool| all.iter().find(|figures| figures.kind == kind && figures.base == base);
    let beside_peers = |most: f64| {
        let peers = all.iter().filter(|figures| !figures.kind.is_ours());
        let best = peers.min_by(|a, b| of(a).total_cmp(&of(b)))?;
        Some((of(ours) / of(best), most, best.kind.to_string()))
    };
    match scenario.target {
        Target::Peers(epoll, uring) => beside_peers(if ours.kind == Kind::Uring { uring } else { epoll }),
        Target::Shown => beside_peers(f64::INFINITY),
        Target::Own(most) => Some((of(ours) / of(find(ours.kind, true)?), most, "ours without".to_string())),
        Target::Share(most) => Some((of(ours), most, "a processor in %".to_string())),
        Target::Hop(most) => {
            let hop = |kind| Some(of(find(kind, false)?) - of(find(kind, true)?));
            Some((hop(ours.kind)? / hop(Kind::Haproxy)?, most, "haproxy's hop".to_string()))
        }
    }
}

/// A limit, and whether the ratio meets it.
fn met(ratio: f64, most: f64) -> String {
    if most.is_infinite() {
        "no target of its own".to_string()
    } else {
        format!("at most {most}: {}", if ratio <= most { "met" } else { "MISSED" })
    }
}

fn table(scenario: &Scenario, host: f64, all: &[Figures]) -> String {
    let unit = match scenario.unit {
        Unit::Request => "CPU us per request",
        Unit::Gigabyte => "CPU s per GB",
        Unit::Idle => "bytes per connection",
        Unit::Latency => "us",
        Unit::Checks => "% of a processor",
    };
    let mut text = format!("\n{} ({}): {unit}; empty loop {host:.2} ns\n", scenario.words, scenario.name);
    for figures in all {
        let mark = if figures.kind.is_ours() { '*' } else { ' ' };
        let name = format!("{}{}", figures.kind, if figures.base { ", without" } else { "" });
        let _ =
            write!(text, "  {mark} {name:<26} median {:>8.3}  least {:>8.3}", figures.median, figures.least);
        if scenario.unit == Unit::Checks {
            text.push_str(&checks::details(figures, all));
        } else if scenario.unit != Unit::Idle {
            let [half, slow, slowest] = figures.latency;
            let _ = write!(
                text,
                "  user {:>2.0} %  {:>7.0}/s  p50 {half:.0} p99 {slow:.0} p99.9 {slowest:.0} us  {:.1} MiB",
                figures.user_share * 100.0,
                figures.throughput,
                figures.memory as f64 / (1 << 20) as f64,
            );
        }
        if scenario.unit == Unit::Request {
            let user = figures.median * figures.user_share;
            let _ = write!(text, "  {user:.1} us user, {:.1} us system", figures.median - user);
        }
        let Counts { calls, instructions, allocations } = figures.counts;
        if let Some(calls) = calls {
            let _ = write!(text, "  calls {calls:.2}");
        }
        if let Some((own, kernel)) = instructions {
            let _ = write!(text, "  instructions {own:.0} own, {kernel:.0} kernel");
        }
        if let Some(allocations) = allocations {
            let _ = write!(text, "  allocations {allocations:.3}");
        }
        if figures.kind.is_ours()
            && !figures.base
            && let Some((ratio, most, whom)) = compared(scenario, all, figures, MEDIAN)
        {
            let _ = write!(text, "  {ratio:.2} of {whom}, {}", met(ratio, most));
            if scenario.shape.beside > 0
                && let Some((ratio, most, _)) = compared(scenario, all, figures, TIME)
            {
                let _ = write!(text, "; time {ratio:.2}, {}", met(ratio, most));
            }
        }
        text.push('\n');
    }
    text
}

/// The figures of rows: the median, and with a fixed rate also the tail.
const MEDIAN: fn(&Figures) -> f64 = |figures| figures.median;
const SLOWEST: fn(&Figures) -> f64 = |figures| figures.latency[2];

/// Time of a request in microseconds: what throughput is judged by, as the least is best of all figures.
const TIME: fn(&Figures) -> f64 = |figures| 1e6 / figures.throughput;

/// The overview lines of a row.
fn lines(scenario: &Scenario, host: f64, all: &[Figures]) -> String {
    let first = line(scenario, scenario.words, host, all, MEDIAN);
    if scenario.shape.beside > 0 {
        return first + &line(scenario, "the same, time per request", host, all, TIME);
    }
    if scenario.unit != Unit::Latency {
        return first;
    }
    first + &line(scenario, "the same, p99.9", host, all, SLOWEST)
}

fn line(scenario: &Scenario, words: &str, host: f64, all: &[Figures], of: fn(&Figures) -> f64) -> String {
    let find = |kind| all.iter().find(|figures| figures.kind == kind && !figures.base);
    let mut text = format!("| {words} | {host:.2} |");
    for kind in [Kind::Haproxy, Kind::Nginx, Kind::Epoll, Kind::Uring] {
        let _ = match find(kind).map(of) {
            Some(figure) if figure >= 100.0 => write!(text, " {figure:.0} |"),
            Some(figure) if figure >= 1.0 => write!(text, " {figure:.1} |"),
            Some(figure) => write!(text, " {figure:.3} |"),
            None => write!(text, " – |"),
        };
    }
    for kind in [Kind::Epoll, Kind::Uring] {
        let _ = match find(kind).and_then(|ours| compared(scenario, all, ours, of)) {
            Some((ratio, most, whom)) => {
                write!(text, " {ratio:.2} of {whom}, {} |", met(ratio, most))
            }
            None => write!(text, " – |"),
        };
    }
    text + "\n"
}

/// A syslog server that only counts lines.
struct Sink {
    port: u16,
    lines: Arc<AtomicU64>,
}

impl Sink {
    fn start() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("cannot receive logs: {error}");
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(fail)?;
        let port = socket.local_addr().map_err(fail)?.port();
        let lines = Arc::new(AtomicU64::new(0));
        let counted = lines.clone();
        std::thread::spawn(move || {
            let mut room = [0; 2048];
            while socket.recv(&mut room).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { port, lines })
    }

    fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(kind: Kind, base: bool, median: f64) -> Figures {
        Figures {
            kind,
            base,
            median,
            least: median,
            throughput: 1e6 / median,
            latency: [median, median, 2.0 * median],
            user_share: 0.5,
            memory: 0,
            counts: Counts::default(),
        }
    }

    #[test]
    fn each_target_is_compared_with_what_it_names() {
        let find = |name: &str| SCENARIOS.iter().find(|scenario| scenario.name == name).expect("a scenario");
        let all = [
            figures(Kind::Haproxy, true, 20.0),
            figures(Kind::Haproxy, false, 30.0),
            figures(Kind::Epoll, true, 10.0),
            figures(Kind::Epoll, false, 12.0),
        ];
        let (ratio, most, _) = compared(find("hop"), &all, &all[3], MEDIAN).expect("both are there");
        assert_eq!((ratio, met(ratio, most)), (0.2, "at most 0.25: met".to_string()));
        let (ratio, most, _) = compared(find("log"), &all, &all[3], MEDIAN).expect("both are there");
        assert_eq!((ratio, met(ratio, most)), (1.2, "at most 1.1: MISSED".to_string()));
        // Clients at rest cost throughput alone.
        let slow = Figures { throughput: 90_000.0, ..figures(Kind::Epoll, false, 10.0) };
        let beside = find("beside-2200");
        let all = [figures(Kind::Epoll, true, 10.0), slow];
        let (ratio, most, _) = compared(beside, &all, &all[1], MEDIAN).expect("both are there");
        assert_eq!(met(ratio, most), "at most 1.05: met");
        let text = lines(beside, 1.0, &all);
        assert!(
            text.contains("the same, time per request") && text.contains("1.11 of ours without"),
            "{text}"
        );
        assert!(text.contains("at most 1.05: MISSED"), "{text}");
        let all = [
            figures(Kind::Nginx, false, 12.0),
            figures(Kind::Haproxy, false, 10.0),
            figures(Kind::Uring, false, 6.0),
        ];
        let (ratio, most, whom) =
            compared(find("keep-alive"), &all, &all[2], MEDIAN).expect("there are peers");
        assert_eq!((ratio, most, whom.as_str()), (0.6, 0.55, "haproxy"));
    }

    #[test]
    fn unknown_scenarios_are_refused_with_the_known_ones() {
        let error = scenarios(&["keepalive".to_string()]).expect_err("a typing error");
        assert!(error.contains("known ones: keep-alive, connections"), "{error}");
    }
}
