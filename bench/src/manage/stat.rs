//! `show stat` and a scrape of 50 backends with 1,000 servers each.

use super::running::{Running, scheduled};
use super::{Bench, DEFAULTS, backends, met, ms, traffic};
use crate::proxy::load::{Arrival, Load};
use crate::proxy::program::Kind;
use crate::proxy::program::free_port;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Requests per second, and requests in a round of latencies.
const RATE: f64 = 4_000.0;
const REQUESTS: u64 = 6_400;

/// Dumps to measure the lanes' time, with nothing else to do.
const DUMPS: u32 = 5;

/// Interval of dumps, like a frequent scraper's.
const EVERY: Duration = Duration::from_secs(1);

/// Limits: the lanes' time for a dump in milliseconds, and p99 during dumps relative to without.
const MOST: (f64, f64) = (50.0, 2.0);

/// Time limit of a task.
const SLICE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq)]
enum What {
    Stat,
    Scrape,
}

impl What {
    fn once(self, running: &Running) -> Result<usize, String> {
        let (text, length) = match self {
            Self::Stat => running.ask("show stat", 64)?,
            Self::Scrape => running.get("/metrics", 64)?,
        };
        let begins = if self == Self::Stat { "# pxname," } else { "HTTP/1.1 200" };
        if !text.starts_with(begins) || length < 1 << 20 {
            return Err(format!("the dump is none: {length} bytes, '{text}'"));
        }
        Ok(length)
    }
}

pub(super) fn run(bench: &Bench, load: &Load) -> Result<(), String> {
    println!("\n50 backends of 1,000 servers, {RATE} requests a second (stat)");
    println!(
        "| what | who | MB | ms | ms of lanes | at most {} | slices over 1 ms of dumps alone, of requests \
            without, with | p99 without, with, us | ratio | at most {} | waits for a processor without, \
            with, us a request |",
        MOST.0, MOST.1
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for kind in bench.kinds() {
        let port = free_port()?;
        let watched = format!("    warn-blocked-traffic-after {}ms\n", SLICE.as_millis());
        let slices = if kind.is_ours() { &*watched } else { "" };
        let text = format!(
            "global\n    nbthread 2\n    maxconn 2000\n{slices}    stats socket {} level admin\n{DEFAULTS}\
             frontend outside\n    bind 127.0.0.1:{port}\n    http-request return status 200 if {{ path \
             /ready }}\n\
             \x20   http-request use-service prometheus-exporter if {{ path /metrics }}\n    default_backend \
             served\n\
             backend served\n    server one {}\n{}",
            bench.socket().display(),
            bench.origin,
            backends(50, 1_000),
        );
        let running = bench.serve(kind, port, &text, &[])?;
        for what in [What::Stat, What::Scrape] {
            let length = what.once(&running)?; // allocates what is kept for later dumps
            let said = running.slices(SLICE).len();
            let (before, began) = (scheduled(running.pid(), !kind.is_ours()).ran, Instant::now());
            for _ in 0..DUMPS {
                what.once(&running)?;
            }
            let each = began.elapsed() / DUMPS;
            let lanes = (scheduled(running.pid(), !kind.is_ours()).ran - before) / DUMPS;
            let alone = running.slices(SLICE).split_off(said);
            let [without, with] = latencies(bench.rounds, load, &running, what, kind)?;
            let ratio = f64::from(with.p99) / f64::from(without.p99);
            let name = if what == What::Stat { "`show stat`" } else { "a scrape" };
            println!(
                "| {name} | {kind} | {:.1} | {:.0} | {:.1} | {} | {} | {}, {} | {ratio:.2} | {} | {:.1}, \
                    {:.1} |",
                length as f64 / 1e6,
                ms(each),
                ms(lanes),
                met(ms(lanes) <= MOST.0),
                if kind.is_ours() {
                    let all = [&alone, &without.slices, &with.slices];
                    let counts = all.map(|slices| slices.len().to_string()).join(", ");
                    let mut kinds: Vec<&str> = all.into_iter().flatten().map(String::as_str).collect();
                    kinds.sort_unstable();
                    kinds.dedup();
                    format!("{counts} {}", kinds.join(" "))
                } else {
                    "not told".into()
                },
                without.p99,
                with.p99,
                met(ratio <= MOST.1),
                without.waited,
                with.waited,
            );
        }
        load.close();
    }
    Ok(())
}

/// Results of rounds of one kind.
struct Rounds {
    /// The median of the rounds' p99, in microseconds.
    p99: u32,
    /// Time in which lanes were runnable without a processor, in microseconds per request.
    waited: f64,
    /// Kinds of tasks that took a lane for longer than [`SLICE`].
    slices: Vec<String>,
}

/// Alternates rounds without and with dumps.
fn latencies(
    count: u32,
    load: &Load,
    running: &Running,
    what: What,
    kind: Kind,
) -> Result<[Rounds; 2], String> {
    let traffic = Arc::new(traffic(false));
    let waited = || scheduled(running.pid(), !kind.is_ours()).waited;
    let mut waits = [Duration::ZERO; 2];
    load.open(&traffic, running.address())?;
    load.go(2_000, Arrival::Closed)?;
    let mut rounds = [Vec::new(), Vec::new()];
    let mut slices = [Vec::new(), Vec::new()];
    let mut said = running.slices(SLICE).len();
    let mut changes = || {
        let new = running.slices(SLICE).split_off(said);
        said += new.len();
        new
    };
    for _ in 0..count {
        let before = waited();
        let quiet = load.go(REQUESTS, Arrival::Rate(RATE))?;
        let between = waited();
        waits[0] += between - before;
        rounds[0].push(quiet.percentile(99.0));
        slices[0].extend(changes());
        let (over, dumps) = (AtomicBool::new(false), AtomicU32::new(0));
        let phase = std::thread::scope(|scope| {
            let dumping = scope.spawn(|| {
                // Stands for a client on another machine, which takes no processor from the program.
                let _ = rustix::process::nice(19);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    what.once(running)?;
                    dumps.fetch_add(1, Ordering::Relaxed);
                    while began.elapsed() < EVERY && !over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                Ok::<_, String>(())
            });
            let phase = load.go(REQUESTS, Arrival::Rate(RATE));
            over.store(true, Ordering::Relaxed);
            dumping.join().map_err(|_| "the dumps have ended by a panic".to_string())??;
            phase
        })?;
        if dumps.load(Ordering::Relaxed) == 0 {
            return Err("no dump came whole while requests were made".into());
        }
        waits[1] += waited() - between;
        rounds[1].push(phase.percentile(99.0));
        slices[1].extend(changes());
    }
    load.close();
    let [p99, slow] = rounds.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2]
    });
    let [rested, waited] = waits.map(|wait| wait.as_secs_f64() * 1e6 / (REQUESTS * u64::from(count)) as f64);
    let [quiet, dumping] = slices;
    Ok([Rounds { p99, waited: rested, slices: quiet }, Rounds { p99: slow, waited, slices: dumping }])
}
