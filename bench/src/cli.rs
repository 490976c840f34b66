//! Arguments and commands.

use crate::cases::{self, Case};
use crate::scale;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Most real threads: the number of records in the MAXCPU variant's arrays.
pub const MOST_THREADS: usize = 256;

/// Cores of the simulated machine: 2 sockets of 24 cores with 2 threads each.
pub const MOST_CORES: usize = 96;

#[derive(Debug, Parser)]
#[command(
    name = "manylane-bench",
    about = "Does it scale, and is it fast? Measured here, and simulated up to 96 cores."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Before and after, by number of threads: real ones here, simulated cores to 96
    Scale(ScaleArguments),
    /// Side by side with the peers: the libraries with the best crates, one thread; the program with the
    /// proxies that are installed
    Peers(PeersArguments),
    /// The second half of `peers` alone: CPU time, system calls, memory
    #[cfg(not(manylane_sim))]
    Proxy(crate::proxy::ProxyArguments),
    /// Clients and servers that send single bytes: memory and CPU time, beside haproxy
    #[cfg(not(manylane_sim))]
    Drips(crate::proxy::ProxyArguments),
    /// 1,500 clients that leave at once: memory before, at the peak and a minute after it, beside haproxy
    #[cfg(not(manylane_sim))]
    Burst(crate::proxy::How),
    /// Latencies of clients while a server dies, or servers change their states, beside haproxy
    #[cfg(not(manylane_sim))]
    Outages(crate::proxy::ProxyArguments),
    /// What innocent clients notice of one that misuses HTTP/2, beside haproxy and nginx: latency, CPU time
    #[cfg(not(manylane_sim))]
    Attacks(crate::proxy::AttackArguments),
    /// Requests over HTTP/2 in clear, and streams that are held open, beside haproxy and nginx
    #[cfg(not(manylane_sim))]
    #[command(name = "h2")]
    Http2(crate::proxy::Http2Arguments),
    /// Requests, handshakes and idle connections with TLS, and requests beside a flood of handshakes, beside
    /// haproxy and nginx
    #[cfg(not(manylane_sim))]
    Tls(crate::proxy::TlsArguments),
    /// Looking at the program and changing it while it serves: dumps under load, reloads, start, sessions
    #[cfg(not(manylane_sim))]
    Manage(crate::manage::ManageArguments),
    /// The rows of `peers` by instruction counts (needs valgrind); fails where a promised limit is broken
    Instructions(InstructionsArguments),
    /// Response times beside tasks of 700 us: with one class, with the heavy class, with low latency
    Heavy(HeavyArguments),
    /// Every requirement: the figure of its source, ours, the command that shows it, and a verdict
    Evidence(crate::evidence::EvidenceArguments),
    /// One contestant of `peers`, so many times: what `instructions` counts
    #[command(hide = true)]
    Repeat(RepeatArguments),
}

/// Arguments of `scale`.
#[derive(Clone, Debug, Args)]
pub struct ScaleArguments {
    /// Only this case; may be repeated
    #[arg(long = "case", value_name = "NAME", value_parser = cases::named)]
    pub cases: Vec<&'static Case>,
    /// Runs of each variant with each number of threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: Option<u16>,
    /// Real threads, e.g. 1,2,8,32
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<usize>,
    /// Simulated cores, e.g. 1,8,96
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cores)]
    pub cores: Vec<usize>,
    /// Length of a real run in milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub time: Option<u32>,
    /// A look in less than two minutes: fewer runs, threads and cores, shorter tables
    #[arg(long)]
    pub short: bool,
    /// Only the simulated half
    #[arg(long, conflicts_with = "real")]
    pub simulated: bool,
    /// Only the real half
    #[arg(long)]
    pub real: bool,
    /// Print the results as JSON, and no tables
    #[arg(long)]
    pub json: bool,
    /// The simulated build of this program [env: MANYLANE_BENCH_SIM] [default: sim/release beside this one]
    #[arg(long, value_name = "PATH")]
    pub sim: Option<PathBuf>,
    /// Where plots and full tables are written
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub out: PathBuf,
}

/// Arguments of `peers`.
#[derive(Clone, Debug, Args)]
pub struct PeersArguments {
    /// Only this group of rows, or this scenario of the program; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// Samples of each contestant
    #[arg(long, value_name = "N", default_value_t = 101, value_parser =
        clap::value_parser!(u32).range(3..=100_000))]
    pub samples: u32,
    /// Length of a sample in microseconds
    #[arg(long, value_name = "US", default_value_t = 500, value_parser =
        clap::value_parser!(u32).range(10..=1_000_000))]
    pub time: u32,
    /// How the program is measured
    #[cfg(not(manylane_sim))]
    #[command(flatten)]
    pub program: crate::proxy::How,
}

/// Arguments of `heavy`.
#[derive(Clone, Debug, Args)]
pub struct HeavyArguments {
    /// Long tasks that are always ready, e.g. 20,300
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [20, 300],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tasks: Vec<u32>,
    /// Run-queue depths, e.g. 40,200: tasks of a round at most, heavy ones apart
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t =
        [manylane_sched::RUNQUEUE_DEPTH],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub depth: Vec<u32>,
    /// Requests of each run
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser =
        clap::value_parser!(u32).range(1..=1_000_000))]
    pub requests: u32,
    /// In virtual time: exact, and the same in every run
    #[arg(long)]
    pub simulated: bool,
}

/// Arguments of `instructions`.
#[derive(Clone, Debug, Args)]
pub struct InstructionsArguments {
    /// Only this group of rows; may be repeated
    #[arg(long = "row", value_name = "GROUP")]
    pub rows: Vec<String>,
}

/// Arguments of `repeat`.
#[derive(Clone, Debug, Args)]
pub struct RepeatArguments {
    /// The group of rows
    pub group: String,
    /// Which of its one-thread rows, from 0 on
    pub contest: usize,
    /// Its name in the table
    pub contestant: String,
    /// How often
    pub operations: u64,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=MOST_THREADS).contains(&threads) => Ok(threads),
        _ => Err(format!("a number of threads is between 1 and {MOST_THREADS}")),
    }
}

fn cores(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cores) if (1..=MOST_CORES).contains(&cores) => Ok(cores),
        _ => Err(format!("the simulated machine has 1 to {MOST_CORES} cores")),
    }
}

/// Runs `peers`: rows of the libraries, and scenarios of the program.
#[cfg(not(manylane_sim))]
fn peers(mut arguments: PeersArguments) -> Result<(), String> {
    let all = arguments.rows.is_empty();
    let (scenarios, rows): (Vec<_>, Vec<_>) =
        arguments.rows.drain(..).partition(|name| crate::proxy::has(name));
    arguments.rows = rows;
    if all || !arguments.rows.is_empty() {
        crate::peers::run(&arguments)?;
    }
    if all || !scenarios.is_empty() {
        crate::proxy::run(&crate::proxy::ProxyArguments { rows: scenarios, how: arguments.program })?;
    }
    Ok(())
}

/// Runs the program. Every failure is one sentence on standard error.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Scale(arguments) => scale::run(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Peers(arguments) => peers(arguments),
        #[cfg(not(manylane_sim))]
        Command::Proxy(arguments) => crate::proxy::run(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Drips(arguments) => crate::proxy::drips(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Burst(how) => crate::proxy::burst(&how),
        #[cfg(not(manylane_sim))]
        Command::Outages(arguments) => crate::proxy::outages(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Attacks(arguments) => crate::proxy::attacks(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Http2(arguments) => crate::proxy::http2(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Tls(arguments) => crate::proxy::tls(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Manage(arguments) => crate::manage::run(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Instructions(arguments) => crate::peers::instructions::run(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Heavy(arguments) => crate::heavy::run(&arguments),
        Command::Evidence(arguments) => crate::evidence::run(&arguments),
        #[cfg(not(manylane_sim))]
        Command::Repeat(arguments) => crate::peers::instructions::repeat(&arguments),
        #[cfg(manylane_sim)]
        Command::Peers(_) | Command::Heavy(_) | Command::Instructions(_) | Command::Repeat(_) => Err(
            "only `scale` and `evidence` are built for the simulator: use the ordinary build of this program"
                .to_string(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("manylane-bench: {sentence}");
            ExitCode::FAILURE
        }
    }
}
