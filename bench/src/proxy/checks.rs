//! The cost of server checks.

use super::program::{Programs, free_port};
use super::scenario::{self, Scenario};
use super::usage::Usage;
use super::{Counts, Figures, ProxyArguments, Rounds, contestants_of, floor, median};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Duration of the measurement after the first check of all servers: each is checked twice.
pub(super) const CHECKED_FOR: Duration = Duration::from_secs(4);

/// Measures the cost of server checks, one program at a time, since checks do not wait for turns.
pub(super) fn measure(
    arguments: &ProxyArguments,
    scenario: &'static Scenario,
    programs: &Programs,
) -> Result<Vec<Figures>, String> {
    let fail = |error: std::io::Error| format!("cannot be checked: {error}");
    // Servers use many addresses of the loopback.
    let servers = TcpListener::bind("0.0.0.0:0").map_err(fail)?;
    let port = servers.local_addr().map_err(fail)?.port();
    std::thread::spawn(move || for _ in servers.incoming() {});
    let mut all = Vec::new();
    for (kind, base) in contestants_of(scenario, arguments.how.alone) {
        let shape = if base { scenario::PLAIN } else { scenario.shape };
        let (mut samples, mut rounds, mut used, mut memory) =
            (Vec::new(), Rounds::default(), Usage::default(), 0);
        for _ in 0..arguments.how.rounds {
            let own = free_port()?;
            let text = Scenario { shape, ..*scenario }.configuration(kind, own, port, 0, "");
            let program = programs.start(kind, own, &text)?;
            std::thread::sleep(CHECKED_FOR);
            let processes = program.processes();
            let (before, first) = (processes.usage()?, opened()?);
            let begun = Instant::now();
            std::thread::sleep(CHECKED_FOR);
            let more = processes.usage()?.since(before);
            let (time, made) = (begun.elapsed().as_secs_f64(), opened()? - first);
            if !base && (made as f64) < 0.9 * scenario::CHECKED as f64 * time / 2.0 {
                return Err(format!("{kind} has made {made} checks in {time:.1} s"));
            }
            samples.push(more.nanos as f64 / 1e7 / time);
            rounds.throughput.push(made as f64 / time);
            (used.nanos, used.user, used.system) =
                (used.nanos + more.nanos, used.user + more.user, used.system + more.system);
            memory = processes.peak_memory();
        }
        all.push(Figures {
            kind,
            base,
            least: samples.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(samples),
            throughput: median(rounds.throughput),
            latency: [0.0; 3],
            user_share: used.user_share(),
            memory,
            counts: Counts::default(),
        });
    }
    // After the programs, so that none of it is charged to them.
    print!("{}", floor::table(port, arguments.how.rounds)?);
    Ok(all)
}

/// Number of connections begun on this machine. Servers cannot count them: a check that only connects ends
/// before the server is told.
fn opened() -> Result<u64, String> {
    let text =
        std::fs::read_to_string("/proc/net/snmp").map_err(|error| format!("/proc/net/snmp: {error}"))?;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (names, values) = (lines.next(), lines.next());
    let mut both = names.into_iter().flatten().zip(values.into_iter().flatten());
    let found = both.find(|(name, _)| *name == "ActiveOpens").and_then(|(_, value)| value.parse().ok());
    found.ok_or_else(|| "/proc/net/snmp does not tell how many connections were begun".to_string())
}

/// Details of a program with checks: time in its own code, checks per second, and peak memory for each
/// server, relative to one without checks.
pub(super) fn details(figures: &Figures, all: &[Figures]) -> String {
    let each = figures.median * 1e4 / figures.throughput.max(1.0);
    let user = each * figures.user_share;
    let mut text = format!(
        "  {:.2} own, {:.0} checks/s, {each:.1} us each: {user:.1} user, {:.1} system",
        figures.median * figures.user_share,
        figures.throughput,
        each - user,
    );
    let base = all.iter().find(|other| other.kind == figures.kind && other.base);
    if let Some(base) = base.filter(|_| !figures.base) {
        let more = figures.memory.saturating_sub(base.memory) / scenario::CHECKED as u64;
        let _ = write!(text, ", {more} bytes for each checked server");
    }
    text
}
