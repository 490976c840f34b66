//! `manylane-bench peers`: the same operation by ours and by the best crates, in one run.
//!
//! # Measurement
//! A contestant runs as many operations as take a sample's time (0.5 ms by default). The contestants of a row
//! alternate, sample by sample, so that other load on the machine affects all of them alike. The table shows
//! the median and the least sample, per operation. The loop around the operation is included; its own cost is
//! the row's contestant *empty loop*. With several threads, the figure is wall time per operation of all of
//! them together, from runs as in `scale`.
//!
//! [`black_box`](std::hint::black_box) hides the measured code from the optimiser: results are used, and
//! shared objects are accessed through an opaque reference.

mod buffer;
mod config;
mod counter;
mod handover;
mod list;
mod local;
mod lock;
mod pool;
mod sched;
mod table;
pub(crate) mod wake;

pub mod allocators;
pub mod instructions;

use crate::cli::PeersArguments;
use crate::run::{Plan, Sample};
use crate::stats::Summary;
use std::time::{Duration, Instant};
pub use table::{Row, Target};

/// Runs a number of operations, and returns how long they took.
type Work = Box<dyn FnMut(u64) -> Duration>;

/// An implementation, ready to run.
pub struct Contestant {
    name: String,
    ours: bool,
    work: Work,
}

impl Contestant {
    /// A peer.
    fn peer(name: &str, work: impl FnMut(u64) + 'static) -> Self {
        Self::timed_peer(name, timed(work))
    }

    /// Manylane's.
    fn ours(name: &str, work: impl FnMut(u64) + 'static) -> Self {
        Self::timed_ours(name, timed(work))
    }

    /// A peer with its own clock.
    fn timed_peer(name: &str, work: impl FnMut(u64) -> Duration + 'static) -> Self {
        Self { name: name.to_string(), ours: false, work: Box::new(work) }
    }

    /// Manylane's, with its own clock.
    fn timed_ours(name: &str, work: impl FnMut(u64) -> Duration + 'static) -> Self {
        Self { name: name.to_string(), ours: true, work: Box::new(work) }
    }
}

fn timed(mut work: impl FnMut(u64) + 'static) -> impl FnMut(u64) -> Duration {
    move |operations| {
        let started = Instant::now();
        work(operations);
        started.elapsed()
    }
}

/// A contestant that runs on several threads.
struct Crowd {
    name: &'static str,
    ours: bool,
    run: fn(&Plan) -> Sample,
}

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples of each contestant.
    pub samples: usize,
    /// The length of a sample.
    pub time: Duration,
}

/// The figures of a contestant, in nanoseconds per operation.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The contestant's name.
    pub name: String,
    /// True if it is Manylane's.
    pub ours: bool,
    /// Over all samples.
    pub summary: Summary,
    /// Operations of the least served thread divided by those of the most served one, in the median run; with
    /// several threads only.
    pub fairness: Option<f64>,
}

/// Measures `contestants` alternately.
fn measure(effort: Effort, contestants: Vec<Contestant>) -> Vec<Figures> {
    let mut all: Vec<(Contestant, u64, Vec<f64>)> = std::iter::once(empty_loop())
        .chain(contestants)
        .map(|mut contestant| {
            let operations = calibrate(&mut contestant.work, effort.time);
            (contestant, operations, Vec::with_capacity(effort.samples))
        })
        .collect();
    for _ in 0..effort.samples {
        for (contestant, operations, samples) in &mut all {
            samples.push((contestant.work)(*operations).as_nanos() as f64 / *operations as f64);
        }
    }
    all.into_iter()
        .map(|(contestant, _, samples)| Figures {
            name: contestant.name,
            ours: contestant.ours,
            summary: Summary::of(&samples).expect("at least three samples were taken"),
            fairness: None,
        })
        .collect()
}

/// The cost of an empty loop, one cycle per round: it shows how fast the host lets this core run.
fn empty_loop() -> Contestant {
    Contestant::peer(table::EMPTY_LOOP, |n| {
        for i in 0..n {
            std::hint::black_box(i);
        }
    })
}

/// Fewest operations of a sample: one-time work of a sample (reading the clock, waking a second thread) must
/// be small relative to them.
const LEAST: u64 = 4_096;

/// The number of operations that take `time`, but at least [`LEAST`]; warms up on the way. A multiple of 4,
/// since some rows rotate over four objects.
fn calibrate(work: &mut Work, time: Duration) -> u64 {
    let mut operations = LEAST;
    loop {
        let took = work(operations);
        if took * 4 >= time || operations >= 1 << 30 {
            let exact = operations as f64 * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return (exact as u64).max(LEAST) / 4 * 4;
        }
        operations *= 4;
    }
}

/// Measures `crowds` alternately with `threads` threads. A run is as long as 100 samples, and there are a
/// tenth as many. If threads share processors, runs are longer by that factor, so that each thread gets as
/// many time slices. The empty loop before them has one thread.
fn measure_crowds(effort: Effort, threads: usize, crowds: &[Crowd]) -> Vec<Figures> {
    let runs = (effort.samples / 10).max(3);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let time = effort.time * 100 * u32::try_from(threads.div_ceil(processors)).unwrap_or(1);
    let mut samples: Vec<Vec<(f64, f64)>> = vec![Vec::with_capacity(runs); crowds.len()];
    for run in 0..runs {
        for (crowd, samples) in crowds.iter().zip(&mut samples) {
            let plan = Plan { threads, time, seed: run as u64 };
            let sample = (crowd.run)(&plan);
            samples.push((1e9 / sample.operations_per_second, sample.fairness));
        }
    }
    let all = crowds.iter().zip(samples).map(|(crowd, mut samples)| {
        let times: Vec<f64> = samples.iter().map(|s| s.0).collect();
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        Figures {
            name: crowd.name.to_string(),
            ours: crowd.ours,
            summary: Summary::of(&times).expect("at least three runs were made"),
            fairness: Some(samples[samples.len() / 2].1),
        }
    });
    measure(effort, Vec::new()).into_iter().chain(all).collect()
}

/// An operation on one thread, by several contestants.
struct Contest {
    /// Description for the table.
    operation: &'static str,
    /// The target.
    target: Option<Target>,
    /// Makes the contestants, on the thread that measures them. Their state lives as long as the process.
    contestants: fn() -> Vec<Contestant>,
}

/// A group of rows, as named by `--row`.
struct Group {
    name: &'static str,
    /// Rows with one thread.
    contests: &'static [Contest],
    /// Rows with several threads.
    crowds: fn(Effort) -> Vec<Row>,
}

static GROUPS: &[Group] = &[
    Group { name: "counter", contests: counter::CONTESTS, crowds: counter::crowds },
    Group { name: "pool", contests: pool::CONTESTS, crowds: handover::crowds },
    Group { name: "buffer", contests: buffer::CONTESTS, crowds: none },
    Group { name: "list", contests: list::CONTESTS, crowds: list::crowds },
    Group { name: "local", contests: local::CONTESTS, crowds: local::crowds },
    Group { name: "lock", contests: lock::CONTESTS, crowds: none },
    Group { name: "config", contests: config::CONTESTS, crowds: none },
    Group { name: "sched", contests: sched::CONTESTS, crowds: sched::crowds },
    Group { name: "wake", contests: wake::CONTESTS, crowds: none },
];

fn none(_: Effort) -> Vec<Row> {
    Vec::new()
}

fn group(name: &str) -> Result<&'static Group, String> {
    GROUPS.iter().find(|group| group.name == name).ok_or_else(|| {
        let known: Vec<&str> = GROUPS.iter().map(|g| g.name).collect();
        format!(
            "there is no row `{name}`; known rows: {}; scenarios of the program: see `proxy`",
            known.join(", ")
        )
    })
}

fn groups(names: &[String]) -> Result<Vec<&'static Group>, String> {
    if names.is_empty() {
        Ok(GROUPS.iter().collect())
    } else {
        names.iter().map(|name| group(name)).collect()
    }
}

/// The figures of one contest of a group, for other tables.
///
/// # Errors
/// A sentence if there is no such contest.
pub(crate) fn figures(name: &str, contest: usize, effort: Effort) -> Result<Vec<Figures>, String> {
    let group = group(name)?;
    let contest = group.contests.get(contest).ok_or_else(|| format!("row `{name}` has no such contest"))?;
    Ok(measure(effort, (contest.contestants)()))
}

/// Runs the command.
///
/// # Errors
/// A sentence if a group is unknown.
pub fn run(arguments: &PeersArguments) -> Result<(), String> {
    let chosen = groups(&arguments.rows)?;
    let effort = Effort {
        samples: arguments.samples as usize,
        time: Duration::from_micros(u64::from(arguments.time)),
    };
    println!(
        "ns per operation, {} samples of {} us each, in turns; targets are those of the issue\n",
        arguments.samples, arguments.time
    );
    let mut all = Vec::new();
    for group in chosen {
        let alone = group.contests.iter().map(|contest| {
            Row::new(contest.operation, contest.target, measure(effort, (contest.contestants)()))
        });
        let mut rows: Vec<Row> = alone.inspect(|row| print!("{row}")).collect();
        all.append(&mut rows);
        for row in (group.crowds)(effort) {
            print!("{row}");
            all.push(row);
        }
    }
    print!("{}", table::overview(&all));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn contestants_take_turns_and_are_charged_for_their_own_work() {
        let calls = Rc::new(Cell::new((0u64, 0u64)));
        let (short, long) = (calls.clone(), calls.clone());
        let spin = |rounds: u64| (0..rounds).for_each(|i| _ = std::hint::black_box(i));
        let contestants = vec![
            Contestant::peer("short", move |n| {
                short.set((short.get().0 + 1, short.get().1));
                spin(n);
            }),
            Contestant::ours("long", move |n| {
                long.set((long.get().0, long.get().1 + 1));
                spin(n * 50);
            }),
        ];
        let effort = Effort { samples: 15, time: Duration::from_micros(50) };
        let figures = measure(effort, contestants);
        assert_eq!(
            figures.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["empty loop", "short", "long"]
        );
        assert!(figures[2].summary.min > figures[1].summary.min * 10.0, "{figures:?}");
        assert!(figures.iter().all(|f| f.summary.n == 15));
        assert!(calls.get().0 > 15 && calls.get().1 > 15);
    }

    #[test]
    fn every_target_is_relative_to_a_contestant_of_its_row() {
        // Some runtimes do not work if the system refuses io_uring: such a row shows that instead of a ratio.
        let groups = GROUPS.iter().filter(|group| group.name != "sched");
        for contest in groups.flat_map(|group| group.contests) {
            let Some(target) = contest.target else { continue };
            let names: Vec<String> = (contest.contestants)().into_iter().map(|c| c.name).collect();
            assert!(names.iter().any(|name| name == target.peer), "{}: {names:?}", contest.operation);
        }
    }

    #[test]
    fn unknown_rows_are_refused_with_the_known_ones() {
        let arguments =
            PeersArguments { rows: vec!["conter".into()], samples: 3, time: 10, program: Default::default() };
        let error = run(&arguments).expect_err("a typing error");
        assert_eq!(
            error,
            "there is no row `conter`; known rows: counter, pool, buffer, list, local, lock, config, \
                sched, wake; \
                scenarios of the program: see `proxy`"
        );
    }
}
