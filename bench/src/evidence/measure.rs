//! Measurements of the rows. Each runs the code anew and compares its figure with the published one.

use super::{EvidenceArguments, cases as own};
use crate::cases::{self, Case};
use crate::peers::{self, Effort, Figures, instructions, wake};
use crate::proxy::{self, How};
use crate::results::{Machine, Results, Series};
use crate::run::{self, Extent, child};
use crate::{heavy, plot::si};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a measurement showed.
#[derive(Debug)]
pub(super) struct Measured {
    /// The figures, before -> after.
    pub(super) ours: String,
    /// True if the figures are at least the published ones or, where the size of a gain on another machine
    /// cannot be expected, have the published sign; the row says which.
    pub(super) met: bool,
}

type Outcome = Result<Measured, String>;

/// Everything that measurements need.
pub(super) struct Context {
    pub(super) quick: bool,
    sim: Option<PathBuf>,
    how: How,
}

impl Context {
    pub(super) fn new(arguments: &EvidenceArguments) -> Self {
        let (rounds, requests) = if arguments.quick { (3, 50) } else { (7, 100) };
        let how = How { rounds, requests, manylane: arguments.manylane.clone(), ..How::default() };
        Self { quick: arguments.quick, sim: arguments.sim.clone(), how }
    }

    fn effort(&self) -> Effort {
        Effort { samples: if self.quick { 21 } else { 101 }, time: Duration::from_micros(500) }
    }

    fn real(&self, case: &Case, threads: &[usize]) -> Results {
        let (runs, time) = if self.quick { (5, 60) } else { (10, 200) };
        let extent = Extent { threads: threads.to_vec(), runs, time: Duration::from_millis(time) };
        run::case(case, &extent, |_| ())
    }

    /// Runs a case of `scale` or of the evidence in the simulated half.
    fn simulated(&self, case: &Case, cores: &[usize], work: Option<u64>) -> Result<Results, String> {
        let program = child::find(self.sim.as_deref())?;
        let list: Vec<String> = cores.iter().map(usize::to_string).collect();
        let mut arguments: Vec<String> = if cases::named(case.name).is_ok() {
            let runs = if self.quick { "1" } else { "3" };
            ["scale", "--simulated", "--json", "--runs", runs].map(String::from).to_vec()
        } else {
            vec!["evidence".to_string()]
        };
        if self.quick {
            arguments.push(if arguments[0] == "scale" { "--short" } else { "--quick" }.to_string());
        }
        arguments.extend([
            "--case".to_string(),
            case.name.to_string(),
            "--cores".to_string(),
            list.join(","),
        ]);
        arguments.extend(work.into_iter().flat_map(|work| ["--work".to_string(), work.to_string()]));
        child::run(&program, &arguments)
    }
}

/// The series of a contender.
fn of<'a>(results: &'a Results, case: &Case, variant: &str, machine: Machine, threads: usize) -> &'a Series {
    results.at(case.name, variant, machine, threads).expect("it was measured")
}

fn rate(results: &Results, case: &Case, variant: &str, machine: Machine, threads: usize) -> f64 {
    of(results, case, variant, machine, threads).median()
}

/// After / before.
fn gain(results: &Results, case: &Case, machine: Machine, threads: usize) -> f64 {
    let after = rate(results, case, case.after().name, machine, threads);
    after / rate(results, case, case.before().name, machine, threads)
}

/// Line transfers of an operation, simulated.
fn transfers(results: &Results, case: &Case, variant: &str, cores: usize) -> f64 {
    let series = of(results, case, variant, Machine::Simulated, cores);
    series.costs.as_ref().map_or(f64::NAN, |costs| costs.transfers_per_operation)
}

/// A gain as the sources tell it: `+18 %`, or `41x` where it is a multiple.
fn percent(gain: f64) -> String {
    if gain >= 2.0 { format!("{gain:.1}x") } else { format!("{:+.1} %", (gain - 1.0) * 100.0) }
}

/// Gains on the real machine with 1 and 2 threads.
fn real_gains(context: &Context, case: &Case) -> (String, [f64; 2]) {
    let results = context.real(case, &[1, 2]);
    let gains = [1, 2].map(|threads| gain(&results, case, Machine::Real, threads));
    (format!("{}, {} with 1, 2 real threads", percent(gains[0]), percent(gains[1])), gains)
}

/// A case of `scale`: after / before with 2 real threads, and simulated with 1, 48 and 96 cores.
fn scaled(context: &Context, name: &str, least: impl Fn(f64, f64) -> bool) -> Outcome {
    let case = cases::named(name)?;
    let (real, [_, two]) = real_gains(context, case);
    let results = context.simulated(case, &[1, 48, 96], None)?;
    let gains = [48, 96].map(|cores| gain(&results, case, Machine::Simulated, cores));
    let moved = [case.before().name, case.after().name].map(|v| transfers(&results, case, v, 96));
    let ours = format!(
        "{real}; simulated {}, {} with 48, 96 cores; {:.2} -> {:.3} transfers an operation",
        percent(gains[0]),
        percent(gains[1]),
        moved[0],
        moved[1]
    );
    Ok(Measured { ours, met: least(two, gains[0]) && gains[1] > 1.0 && moved[1] < 0.01 })
}

/// R-A2: the factor at 96 is +4010 % +/- 88, the peak of the old design at 6 processes.
pub(super) fn unix1(context: &Context) -> Outcome {
    const CORES: [usize; 9] = [1, 2, 4, 6, 8, 16, 32, 48, 96];
    let case = &own::UNIX1_WORK;
    let (real, _) = real_gains(context, case);
    let results = context.simulated(case, &CORES, None)?;
    let at = |cores| gain(&results, case, Machine::Simulated, cores);
    let before = |cores: &usize| rate(&results, case, case.before().name, Machine::Simulated, *cores);
    let peak = CORES.iter().max_by(|a, b| before(a).total_cmp(&before(b))).copied().unwrap_or(0);
    let after = rate(&results, case, case.after().name, Machine::Simulated, 96);
    let ours = format!(
        "{} -> {} ops/s on 96 simulated cores ({}), the peak with {peak}; {}, {}, {} with 1, 2, 4; {real}; \
            {:.2} -> {:.3} transfers an operation at 96",
        si(before(&96)),
        si(after),
        percent(at(96)),
        percent(at(1)),
        percent(at(2)),
        percent(at(4)),
        transfers(&results, case, case.before().name, 96),
        transfers(&results, case, case.after().name, 96),
    );
    Ok(Measured { ours, met: at(96) >= 41.1 && peak <= 8 })
}

/// R-B2: 30 -> 45 Gbit/s, a factor of 1.5.
pub(super) fn splice(context: &Context) -> Outcome {
    const CORES: [usize; 5] = [2, 8, 16, 32, 64];
    let case = &own::SPLICE;
    let gbit = |rate: f64| rate * crate::designs::CLUSTER as f64 * 8.0 / 1e9;
    let results = context.real(case, &[1, 2]);
    let real = |variant: &str, threads| gbit(rate(&results, case, variant, Machine::Real, threads));
    let (before, after) = (case.before().name, case.after().name);
    // The calls of an operation take as long in the simulator as they took here.
    let work = (1e9 / rate(&results, case, after, Machine::Real, 1)) as u64;
    let simulated = context.simulated(case, &CORES, Some(work))?;
    let at = |variant: &str, cores| gbit(rate(&simulated, case, variant, Machine::Simulated, cores));
    let curve: Vec<String> =
        CORES.iter().map(|&cores| format!("{:.0} -> {:.0}", at(before, cores), at(after, cores))).collect();
    let ours = format!(
        "{:.1} -> {:.1} and {:.1} -> {:.1} Gbit/s with 1, 2 real threads and sockets; simulated, with \
            {work} ns \
            of calls: {} Gbit/s with 2, 8, 16, 32, 64 cores",
        real(before, 1),
        real(after, 1),
        real(before, 2),
        real(after, 2),
        curve.join(", ")
    );
    let gained = at(after, 64) >= 1.5 * at(before, 64);
    let as_fast = [1, 2].into_iter().all(|threads| real(after, threads) >= 0.9 * real(before, threads));
    Ok(Measured { ours, met: gained && as_fast })
}

/// R-B4: both designs of the count are equal; ours is at least as fast.
pub(super) fn counts(context: &Context) -> Outcome {
    let case = cases::named("cluster")?;
    let results = context.real(case, &[1, 2]);
    let rates: Vec<(&str, [f64; 2])> = case
        .contenders
        .iter()
        .map(|c| (c.name, [1, 2].map(|threads| rate(&results, case, c.name, Machine::Real, threads))))
        .collect();
    let ours: Vec<String> =
        rates.iter().map(|(name, [one, two])| format!("{name} {}, {}", si(*one), si(*two))).collect();
    let best = |threads: usize| {
        let others = rates.iter().filter(|(name, _)| *name != case.after().name);
        others.map(|(_, rates)| rates[threads]).fold(0.0, f64::max)
    };
    let after = rates.iter().find(|(name, _)| *name == case.after().name).map_or([0.0; 2], |r| r.1);
    Ok(Measured {
        ours: format!("{} shares/s with 1, 2 threads", ours.join("; ")),
        met: after[0] >= best(0) && after[1] >= best(1),
    })
}

/// R-C1: +26 % with 48 threads.
pub(super) fn memtype(context: &Context) -> Outcome {
    scaled(context, "memtype", |_, at_48| at_48 >= 1.26)
}

/// R-D1: a lane's cache moves no line, and needs no call of the allocator.
pub(super) fn lane_caches(context: &Context) -> Outcome {
    scaled(context, "pool", |two, _| two > 1.0)
}

/// R-D2: an eighth is left of the performance, per object, when live objects exceed the caches. Two points of
/// the source's curve: within what a lane keeps, and twice as many. Transfers are shown and not judged; the
/// lines that nobody had, `cold_misses` of the simulator's report, are not shown.
pub(super) fn pools(context: &Context) -> Outcome {
    const CORES: usize = 64;
    let each = |case: &'static Case| {
        let results = context.simulated(case, &[CORES], None)?;
        let one = |variant: &str| {
            let objects = own::live(case) as f64;
            let rate = rate(&results, case, variant, Machine::Simulated, CORES) * objects;
            (rate, transfers(&results, case, variant, CORES) / objects)
        };
        Ok::<_, String>([one(case.before().name), one(case.after().name)])
    };
    let ([before, after], [before_beyond, after_beyond]) =
        (each(&own::POOL_WITHIN)?, each(&own::POOL_BEYOND)?);
    let cliff = [before.0 / before_beyond.0, after.0 / after_beyond.0];
    let ours = format!(
        "64 simulated cores, 32 objects kept by a lane (ours: 8 in its cache, 24 in its surplus): with \
            16 live objects {} -> {} objects/s, with 64 {} -> {}: divided by \
            {:.0} -> {:.1}; {:.2} -> {:.3} transfers an object",
        si(before.0),
        si(after.0),
        si(before_beyond.0),
        si(after_beyond.0),
        cliff[0],
        cliff[1],
        before_beyond.1,
        after_beyond.1
    );
    Ok(Measured { ours, met: cliff[0] >= 8.0 && cliff[1] < 2.0 })
}

/// R-E1.
pub(super) fn list(context: &Context) -> Outcome {
    scaled(context, "list", |_, at_48| at_48 > 1.0)
}

/// R-E2: more operations with a back-off on 16 and on 64 cores.
pub(super) fn relax(context: &Context) -> Outcome {
    let case = &own::RELAX;
    let results = context.simulated(case, &[16, 64], None)?;
    let words = [16, 64].map(|cores| {
        let of = |variant: &str| {
            let rate = rate(&results, case, variant, Machine::Simulated, cores);
            format!("{} ({:.1})", si(rate), transfers(&results, case, variant, cores))
        };
        let all: Vec<String> = case.contenders.iter().map(|c| of(c.name)).collect();
        format!("{} with {cores}", all.join(", "))
    });
    let gains = [16, 64].map(|cores| gain(&results, case, Machine::Simulated, cores));
    Ok(Measured {
        ours: format!(
            "at once, with a pause, with a back-off: {} simulated cores, operations/s (transfers of each)",
            words.join(", and ")
        ),
        met: gains.iter().all(|gain| *gain > 1.0),
    })
}

/// R-E4: one transfer less.
pub(super) fn read_first(context: &Context) -> Outcome {
    single_word(context, &own::READ_FIRST, 64, |gain, moved| gain > 1.0 && moved[1] < moved[0])
}

/// R-E5: 1.8 % with 16 threads, since the word moves less; a gain without that is what the simulator charges.
pub(super) fn aligned(context: &Context) -> Outcome {
    single_word(context, &own::ALIGNED, 16, |gain, moved| gain >= 1.018 && moved[1] < moved[0])
}

fn single_word(
    context: &Context,
    case: &'static Case,
    cores: usize,
    met: fn(f64, [f64; 2]) -> bool,
) -> Outcome {
    let (real, _) = real_gains(context, case);
    let results = context.simulated(case, &[cores], None)?;
    let gain = gain(&results, case, Machine::Simulated, cores);
    let moved = [case.before().name, case.after().name].map(|v| transfers(&results, case, v, cores));
    let ours = format!(
        "{} with {cores} simulated cores, {:.2} -> {:.2} transfers an operation; {real}",
        percent(gain),
        moved[0],
        moved[1]
    );
    Ok(Measured { ours, met: met(gain, moved) })
}

/// R-F1: a shared tick costs 2 % with 16 threads. R-F2: a shared length 12 %.
fn tick_of(context: &Context, variant: &str, least: f64) -> Outcome {
    let case = &own::TICK;
    let results = context.simulated(case, &[16, 96], None)?;
    let gains = [16, 96].map(|cores| {
        let of = |variant: &str| rate(&results, case, variant, Machine::Simulated, cores);
        of(case.after().name) / of(variant)
    });
    let moved = transfers(&results, case, variant, 16);
    let after = transfers(&results, case, case.after().name, 16);
    let ours = format!(
        "{}, {} with 16, 96 simulated cores beside 22 us of other work; {moved:.1} -> {after:.1} transfers \
            a request",
        percent(gains[0]),
        percent(gains[1])
    );
    Ok(Measured { ours, met: gains[0] >= least && after < 0.01 })
}

pub(super) fn tick(context: &Context) -> Outcome {
    tick_of(context, own::TICK.before().name, 1.02)
}

pub(super) fn lengths(context: &Context) -> Outcome {
    let alone = scaled(context, "counter", |two, _| two > 1.0)?;
    let beside = tick_of(context, "shared run-queue length", 1.12)?;
    Ok(Measured {
        ours: format!("{}; the counter alone: {}", beside.ours, alone.ours),
        met: alone.met && beside.met,
    })
}

/// R-F3: 14 -> 3.0 -> 1.8 ms.
pub(super) fn heavy_class(_: &Context) -> Outcome {
    let (mut words, mut met) = (Vec::new(), true);
    for tasks in [20, 300] {
        let [one, heavy, low] = heavy::averages(manylane_sched::RUNQUEUE_DEPTH, tasks, 2_000);
        met &= one / heavy >= 14.0 / 3.0 && heavy <= 3.0 && low <= 1.85;
        words.push(format!("{one:.1} -> {heavy:.2} -> {low:.2} ms beside {tasks} long tasks"));
    }
    Ok(Measured { ours: format!("{}, in virtual time", words.join("; ")), met })
}

/// R-F4: 722,000 v. 613,000 requests/s, 1.40 v. 1.62 ms.
pub(super) fn depth(context: &Context) -> Outcome {
    let [shallow, deep] = pair(context, "depth", 2)?;
    let waits = [40, 200].map(|depth| heavy::averages(depth, 300, 2_000)[0]);
    let ours = format!(
        "40 v. 200, 800 clients: {:.1} k v. {:.1} k requests/s, p50 {:.2} v. {:.2} ms, p99 {:.2} v. {:.2} \
            ms; beside \
            300 long tasks of the same class, virtual time: {:.1} v. {:.1} ms",
        shallow.throughput / 1e3,
        deep.throughput / 1e3,
        shallow.latency[0] / 1e3,
        deep.latency[0] / 1e3,
        shallow.latency[1] / 1e3,
        deep.latency[1] / 1e3,
        waits[0],
        waits[1]
    );
    Ok(Measured { ours, met: shallow.throughput >= 1.1 * deep.throughput && waits[0] < waits[1] })
}

/// R-F5: 336,000 v. 274,000 connections/s with 16 threads, a factor of 1.23. With few lanes only the sign can
/// be expected: 4 must not cost throughput.
pub(super) fn accepts(context: &Context) -> Outcome {
    let (mut words, mut met) = (Vec::new(), true);
    for lanes in [1, 2, 4] {
        let [few, many] = pair(context, "accepts", lanes)?;
        met &= few.throughput >= 0.97 * many.throughput;
        words.push(format!(
            "{:.1} k v. {:.1} k connections/s ({}), {:.1} v. {:.1} us of CPU each, with {lanes}",
            few.throughput / 1e3,
            many.throughput / 1e3,
            percent(few.throughput / many.throughput),
            few.median,
            many.median
        ));
    }
    Ok(Measured { ours: format!("4 v. 64: {} lanes", words.join("; ")), met })
}

fn pair(context: &Context, scenario: &str, lanes: u32) -> Result<[proxy::OwnFigures; 2], String> {
    let figures = proxy::own_figures(scenario, lanes, &context.how)?;
    figures.try_into().map_err(|_| format!("scenario `{scenario}` has not two variants"))
}

/// R-F6: what other lanes write on lines of its own.
pub(super) fn layout(context: &Context) -> Outcome {
    let case = &own::LAYOUT;
    let (real, _) = real_gains(context, case);
    let results = context.simulated(case, &[16, 96], None)?;
    let at = |cores| gain(&results, case, Machine::Simulated, cores);
    let time = |variant: &str| 16e9 / rate(&results, case, variant, Machine::Simulated, 16);
    let moved = [case.before().name, case.after().name].map(|v| transfers(&results, case, v, 16));
    let ours = format!(
        "{}, {} with 16, 96 simulated cores: {:.0} -> {:.0} ns and {:.3} -> {:.3} transfers an operation; \
            {real}",
        percent(at(16)),
        percent(at(96)),
        time(case.before().name),
        time(case.after().name),
        moved[0],
        moved[1]
    );
    Ok(Measured { ours, met: at(16) > 1.0 && moved[1] <= moved[0] })
}

/// R-F10: +1 %.
pub(super) fn inlined(context: &Context) -> Outcome {
    let figures = peers::figures("wake", 0, context.effort())?;
    let of = |name: &str| figures.iter().find(|figures: &&Figures| figures.name == name);
    let time = |name| of(name).map_or(f64::NAN, |figures| figures.summary.median);
    let (called, inlined) = (time(wake::CALLED), time(wake::INLINED));
    let counts = [wake::CALLED, wake::INLINED].map(|name| instructions::of("wake", 0, name));
    let counts = match counts {
        [Ok(called), Ok(inlined)] => format!(", {called:.1} -> {inlined:.1} instructions"),
        [Err(why), _] | [_, Err(why)] => format!(" ({why})"),
    };
    let ours = format!("called -> inlined: {called:.1} -> {inlined:.1} ns a wake-up and its poll{counts}");
    Ok(Measured { ours, met: called / inlined >= 1.01 })
}

/// R-G2: 432,000 -> 565,000 requests/s, a factor of 1.31.
pub(super) fn picks(context: &Context) -> Outcome {
    const CORES: [usize; 3] = [1, 16, 64];
    let all: [&'static Case; 7] = [
        &own::FIRST_1,
        &own::FIRST_8,
        &own::FIRST_500,
        &own::FIRST_LIMITED,
        &own::LEASTCONN_1,
        &own::LEASTCONN_8,
        &own::LEASTCONN_500,
    ];
    let (mut words, mut met) = (Vec::new(), true);
    for case in all {
        let results = context.simulated(case, &CORES, None)?;
        let at = |variant: &str| si(rate(&results, case, variant, Machine::Simulated, 64));
        let gains = CORES.map(|cores| gain(&results, case, Machine::Simulated, cores));
        let real = context.real(case, &[2]);
        // The gain of the source belongs to its own load. This row requires a gain on 64 cores, and no loss
        // on 16.
        met &= gains[2] > 1.05 && gains[1] > 0.97;
        words.push(format!(
            "{}: {} -> {} requests/s on 64 cores ({}, {} on 16, {} with 2 real threads)",
            case.name,
            at(case.before().name),
            at(case.after().name),
            percent(gains[2]),
            percent(gains[1]),
            percent(gain(&real, case, Machine::Real, 2))
        ));
    }
    Ok(Measured { ours: format!("simulated: {}", words.join("; ")), met })
}

/// R-G3: +7 % and +1.6 % with 4 threads.
pub(super) fn streams(context: &Context) -> Outcome {
    let case = &own::STREAMS;
    let results = context.simulated(case, &[4, 16, 64], None)?;
    let of = |variant: &str, cores| rate(&results, case, variant, Machine::Simulated, cores);
    let locked = "a list a lane, each under a lock";
    let at = |cores| {
        let (global, locked, plain) =
            (of(case.before().name, cores), of(locked, cores), of(case.after().name, cores));
        (locked / global, plain / locked, plain / global)
    };
    let words = [4, 16, 64].map(|cores| {
        let (own, unlocked, both) = at(cores);
        format!("{}, then {}, {} together, with {cores}", percent(own), percent(unlocked), percent(both))
    });
    let ours = format!(
        "lists by lane, then no lock: {} simulated cores; {:.1} -> {:.2} transfers a stream with 64",
        words.join("; "),
        transfers(&results, case, case.before().name, 64),
        transfers(&results, case, case.after().name, 64)
    );
    let (own, unlocked, _) = at(4);
    Ok(Measured { ours, met: own >= 1.07 && unlocked >= 1.016 })
}

/// R-G5: a frontend connection has no node of the tables of idle connections. No variant has one, so there is
/// no figure to compare with.
pub(super) fn idle_memory(context: &Context) -> Outcome {
    let figures = proxy::own_figures("idle", 2, &context.how)?;
    let after = figures.first().map_or(f64::NAN, |figures| figures.median);
    let node = manylane_balance::IdlePool::<u64>::slot_bytes() as f64;
    Err(format!(
        "a comparison with a node of {node} bytes in each frontend connection, which no variant has. Without \
         it, an idle client takes {after:.0} bytes, with 10,000 of them"
    ))
}

/// R-D5: on aarch64, with LSE and without.
pub(super) fn aarch64(_: &Context) -> Outcome {
    let output = Command::new("scripts/aarch64")
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("scripts/aarch64 cannot be started in this folder: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(2) {
        return Err(text.trim().to_string());
    }
    let passed: Vec<String> = text
        .split("aarch64, ")
        .skip(1)
        .map(|part| {
            let line =
                |prefix: &str| part.lines().find_map(|line| line.split_once(prefix)).map(|found| found.1);
            let processor = part.split(':').next().unwrap_or_default();
            let tests = line("test result: ok. ").and_then(|rest| rest.split(';').next()).unwrap_or("failed");
            format!("{processor} (LSE: {}): {tests}", line("LSE: ").unwrap_or("unknown"))
        })
        .collect();
    Ok(Measured {
        ours: format!("aarch64 under qemu: {}", passed.join("; ")),
        met: output.status.success() && passed.len() == 2,
    })
}
