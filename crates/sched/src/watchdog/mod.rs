//! A thread outside of the lanes that looks for tasks which do not come back.
//!
//! # Protocol
//! 1. Before each poll a lane publishes the task's kind, then the number of the poll: two plain stores. It
//!    reads no clock.
//! 2. The watchdog looks at every lane several times within the warn limit. A lane on which it finds the same
//!    poll running for that long, by its own clock, is reported once, with the stack of its thread (see
//!    `capture.rs`); one that does so for the kill limit ends the process.
//! 3. The kind is read between two reads of the number that agree, so both belong together: a store that is a
//!    limit old is visible.
//! 4. Time counts from look to look, and a gap counts as two looks at most: when the whole process was
//!    stopped, or the machine stood still, no task is to blame.
//! 5. Limits are of processor time: a thread that has not been given a processor, on a machine with too much
//!    to do, is not to blame either, and looks the same from here as one that waits for a lock. Such a task
//!    may take [`WAITING`] times as long.

mod capture;
mod stack;

pub(crate) use capture::ThreadPlace;
pub use stack::{Frame, NoStack, Stack};

use crate::home::{self, Home};
use crate::kind::TaskKind;
use crate::report::{LaneReport, report};
use manylane_sync::LaneId;
use manylane_sync::atomic::{AtomicBool, Ordering};
use stack::Unwinder;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Looks within the warn limit: a task is reported at most a quarter of the limit late, if the watchdog
/// itself is not (rule 4).
const LOOKS: u32 = 4;

/// How many times a limit a task may take that does not use a processor (rule 5). With the default ones it is
/// reported after 1 s, and ends the process after 20 s: no scheduler of a system lets a thread wait that
/// long.
const WAITING: u32 = 10;

/// A task that has been running for longer than a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Where it runs.
    pub lane: LaneId,
    /// The kind of the task.
    pub kind: &'static str,
    /// For how long it has run at least.
    pub since: Duration,
    /// Where it stands.
    pub stack: Result<Stack, NoStack>,
}

impl fmt::Display for Stuck {
    /// A sentence, then the stack, a call a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: a task of the kind `{}` has been running for {:?}",
            self.lane, self.kind, self.since
        )?;
        show_stack(f, &self.stack)
    }
}

fn show_stack(f: &mut fmt::Formatter<'_>, stack: &Result<Stack, NoStack>) -> fmt::Result {
    match stack {
        Ok(stack) => write!(f, "{stack}"),
        Err(none) => writeln!(f, "      {none}"),
    }
}

/// A lane when the process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// Its numbers.
    pub report: LaneReport,
    /// Where it stands, if it runs a task.
    pub stack: Option<Result<Stack, NoStack>>,
}

impl fmt::Display for LaneState {
    /// A line of numbers, then the stack, a call a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        self.stack.as_ref().map_or(Ok(()), |stack| show_stack(f, stack))
    }
}

/// What a watchdog does with what it finds.
pub trait Alarm: Send + 'static {
    /// A task has been running for longer than the warn limit. Called once for each such poll.
    fn warn(&mut self, stuck: &Stuck);

    /// A task has been running for longer than the kill limit. By default it and every lane's state go to the
    /// standard error output, and the process aborts: a lane that does not come back serves nobody, and
    /// its connections wait in vain.
    fn kill(&mut self, stuck: &Stuck, lanes: &[LaneState]) {
        eprintln!("{stuck}aborting; the lanes:");
        for lane in lanes {
            eprint!("{lane}");
        }
        std::process::abort();
    }
}

/// Limits of a [`Watchdog`]: of the processor time that a task takes. One that waits, for a lock, for the
/// system or for a processor, may take ten times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From this on a task is reported. At least a millisecond.
    pub warn: Duration,
    /// From this on the process ends; not below `warn`.
    pub kill: Duration,
}

impl Limits {
    /// Shortest warn limit: below it the watchdog would itself be a load.
    pub const SHORTEST: Duration = Duration::from_millis(1);
}

impl Default for Limits {
    /// 100 ms and 2 s.
    fn default() -> Self {
        Self { warn: Duration::from_millis(100), kill: Duration::from_secs(2) }
    }
}

/// Limits that no watchdog can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLimits(
    /// What was asked for.
    pub Limits,
);

impl fmt::Display for BadLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { warn, kill } = self.0;
        write!(
            f,
            "a watchdog cannot warn after {warn:?} and kill after {kill:?}: warn after {:?} or more, and kill not earlier",
            Limits::SHORTEST
        )
    }
}

impl std::error::Error for BadLimits {}

/// The thread that looks. Ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts looking at all lanes of the process.
    ///
    /// # Errors
    /// [`BadLimits`] as an error of the kind [`InvalidInput`](io::ErrorKind::InvalidInput); or the system's,
    /// when it has no thread.
    pub fn start(limits: Limits, alarm: impl Alarm) -> io::Result<Self> {
        if limits.warn < Limits::SHORTEST || limits.kill < limits.warn {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, BadLimits(limits)));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut watch = LaneWatch::new(limits, alarm);
            while !stopped.load(Ordering::Relaxed) {
                watch.look(Instant::now());
                std::thread::park_timeout(limits.warn / LOOKS);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // An alarm that ends its own watchdog does not wait for itself. A panic of the alarm has been
            // printed; it does not spread to who ends the watchdog.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// What the watchdog remembers.
struct LaneWatch<A> {
    limits: Limits,
    alarm: A,
    seen: HashMap<LaneId, Observed>,
    looked: Option<Instant>,
    unwinder: Unwinder,
    /// Processor time of a lane's thread so far; none if the system does not tell, then time as such counts.
    used: fn(&Home) -> Option<Duration>,
}

/// A poll that was running at an earlier look.
struct Observed {
    run: u64,
    /// Since then, as far as it counts (rule 4).
    since: Duration,
    /// Processor time of the thread when the poll was first seen.
    used_before: Option<Duration>,
    warned: bool,
    killed: bool,
}

impl Observed {
    fn new(run: u64, used_before: Option<Duration>) -> Self {
        Self { run, since: Duration::ZERO, used_before, warned: false, killed: false }
    }

    /// Whether a limit is reached (rule 5).
    fn is_over(&self, limit: Duration, used: Option<Duration>) -> bool {
        let used = used.zip(self.used_before).map_or(self.since, |(now, before)| now.saturating_sub(before));
        self.since >= limit && used >= limit || self.since >= limit.saturating_mul(WAITING)
    }
}

impl<A: Alarm> LaneWatch<A> {
    fn new(limits: Limits, alarm: A) -> Self {
        Self {
            limits,
            alarm,
            seen: HashMap::new(),
            looked: None,
            unwinder: Unwinder::new(),
            used: |home| home.published.thread.processor_time(),
        }
    }

    fn look(&mut self, now: Instant) {
        let gap = self.looked.replace(now).map_or(Duration::ZERO, |before| now - before);
        let gap = gap.min((self.limits.warn / LOOKS).saturating_mul(2)); // rule 4
        for (lane, home) in home::all() {
            let published = &home.published;
            // Acquire: pairs with the release in `run_task` (rule 3).
            let run = published.run.load(Ordering::Acquire);
            let kind = published.running().map(TaskKind::name);
            let same = published.run.load(Ordering::Acquire) == run;
            let Some(kind) = kind.filter(|_| same) else {
                self.seen.remove(&lane);
                continue;
            };
            let used = (self.used)(home);
            let seen = self.seen.entry(lane).or_insert(Observed::new(run, used));
            if seen.run != run {
                *seen = Observed::new(run, used);
                continue;
            }
            seen.since += gap;
            let warns = !seen.warned && seen.is_over(self.limits.warn, used);
            let kills = !seen.killed && seen.is_over(self.limits.kill, used);
            if !warns && !kills {
                continue;
            }
            (seen.warned, seen.killed) = (true, seen.killed || kills);
            let since = seen.since;
            let stack = stack_of(home, &mut self.unwinder);
            let stuck = Stuck { lane, kind, since, stack };
            if warns {
                self.alarm.warn(&stuck);
            }
            if kills {
                let lanes = states(&mut self.unwinder, &stuck);
                self.alarm.kill(&stuck, &lanes);
            }
        }
    }
}

fn stack_of(home: &Home, unwinder: &mut Unwinder) -> Result<Stack, NoStack> {
    Ok(unwinder.stack(&capture::capture(home)?))
}

/// All lanes, with the stacks of those that run a task; that of the stuck one is known.
fn states(unwinder: &mut Unwinder, stuck: &Stuck) -> Vec<LaneState> {
    report()
        .into_iter()
        .map(|report| {
            let stack = report.running.and_then(|_| {
                if report.lane == stuck.lane {
                    return Some(stuck.stack.clone());
                }
                home::of(report.lane.index()).map(|home| stack_of(home, unwinder))
            });
            LaneState { report, stack }
        })
        .collect()
}

#[cfg(all(test, not(manylane_sim)))]
mod tests {
    use super::*;
    use crate::{Class, Config, Lane, Time};
    use std::sync::mpsc;

    struct Notes(mpsc::Sender<(&'static str, Stuck, usize)>);

    impl Alarm for Notes {
        fn warn(&mut self, stuck: &Stuck) {
            let _ = self.0.send(("warn", stuck.clone(), 0));
        }
        fn kill(&mut self, stuck: &Stuck, lanes: &[LaneState]) {
            let stuck_there =
                |lane: &&LaneState| lane.report.running == Some(stuck.kind) && lane.stack.is_some();
            let running = lanes.iter().filter(stuck_there).count();
            let _ = self.0.send(("kill", stuck.clone(), running));
        }
    }

    /// Looks at a task that waits for the test, in the watchdog's own time; what is said of it, when, and on
    /// how many lanes.
    fn looks_at(
        kind: &'static TaskKind,
        used: fn(&Home) -> Option<Duration>,
    ) -> Vec<(&'static str, Duration, usize)> {
        let (tell, told) = mpsc::channel();
        let (running, runs) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut lane = Lane::new(Config::new()).expect("a new thread");
            let stuck = async move {
                running.send(()).expect("the test listens");
                released.recv().expect("the test tells");
            };
            lane.here().spawn(kind, Class::Normal, stuck).expect("memory");
            lane.round(Time::ZERO);
        });
        runs.recv().expect("the task runs");
        let limits = Limits { warn: Duration::from_millis(100), kill: Duration::from_secs(1) };
        let mut watch = LaneWatch::new(limits, Notes(tell));
        watch.used = used;
        let begin = Instant::now();
        for ms in (0..=15_000).step_by(25) {
            watch.look(begin + Duration::from_millis(ms));
        }
        let notes: Vec<_> = told.try_iter().filter(|(_, stuck, _)| stuck.kind == kind.name()).collect();
        let sentence =
            format!("a task of the kind `{}` has been running for {:?}\n", kind.name(), notes[0].1.since);
        assert!(notes[0].1.to_string().contains(&sentence), "{}", notes[0].1);
        release.send(()).expect("the task listens");
        thread.join().expect("the lane ends well");
        watch.look(begin + Duration::from_secs(16));
        assert_eq!(told.try_iter().filter(|(_, stuck, _)| stuck.kind == kind.name()).count(), 0);
        notes.iter().map(|(what, stuck, running)| (*what, stuck.since, *running)).collect()
    }

    #[test]
    fn a_task_that_does_not_come_back_is_reported_once_and_kills_at_the_limit() {
        static STUCK: TaskKind = TaskKind::new("stuck in the test");
        let all = looks_at(&STUCK, |_| None);
        assert_eq!(all, [("warn", Duration::from_millis(100), 0), ("kill", Duration::from_secs(1), 1)]);
    }

    /// A machine with too much to do must not end the process, nor fill its log.
    #[test]
    fn a_task_whose_thread_is_given_no_processor_has_ten_times_as_long() {
        static STARVED: TaskKind = TaskKind::new("starved in the test");
        let used = |_: &Home| Some(Duration::from_millis(7));
        let all = looks_at(&STARVED, used);
        assert_eq!(all, [("warn", Duration::from_secs(1), 0), ("kill", Duration::from_secs(10), 1)]);
    }

    #[test]
    fn the_processor_time_of_a_lanes_thread_grows_while_it_works_and_is_unknown_without_a_thread() {
        let place = ThreadPlace::new();
        assert_eq!(place.processor_time(), None);
        place.enter();
        let before = place.processor_time().expect("the system tells");
        while place.processor_time().expect("the system tells") < before + Duration::from_millis(2) {}
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_in_a_sentence() {
        let (tell, _) = mpsc::channel();
        let limits = Limits { warn: Duration::from_secs(1), kill: Duration::from_millis(5) };
        let error = Watchdog::start(limits, Notes(tell)).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "a watchdog cannot warn after 1s and kill after 5ms: warn after 1ms or more, and kill not earlier"
        );
    }

    #[test]
    fn limits_that_are_never_reached_are_looked_at_without_a_panic() {
        let limits = Limits { warn: Duration::MAX, kill: Duration::MAX };
        let mut watch = LaneWatch::new(limits, Notes(mpsc::channel().0));
        let now = Instant::now();
        watch.look(now);
        watch.look(now + Duration::from_secs(1));
    }

    #[test]
    fn an_alarm_may_end_its_own_watchdog() {
        static LONG: TaskKind = TaskKind::new("long in the test");
        struct Ends(mpsc::Receiver<Watchdog>, mpsc::Sender<std::thread::Result<()>>);
        impl Alarm for Ends {
            fn warn(&mut self, _: &Stuck) {
                if let Ok(watchdog) = self.0.recv() {
                    let end = std::panic::AssertUnwindSafe(|| drop(watchdog));
                    let _ = self.1.send(std::panic::catch_unwind(end));
                }
            }
        }
        let (give, given) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let limits = Limits { warn: Duration::from_millis(1), kill: Duration::from_secs(3600) };
        give.send(Watchdog::start(limits, Ends(given, tell)).expect("there is a thread"))
            .expect("it listens");
        let waits = async move {
            told.recv().expect("the task is found").expect("the watchdog ends without a panic");
        };
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        lane.here().spawn(&LONG, Class::Normal, waits).expect("memory");
        lane.round(Time::ZERO);
    }

    #[test]
    fn a_watchdog_reports_from_its_thread_and_ends_when_it_is_dropped() {
        static SLOW: TaskKind = TaskKind::new("slow in the test");
        let (tell, told) = mpsc::channel();
        let limits = Limits { warn: Duration::from_millis(1), kill: Duration::from_secs(3600) };
        let watchdog = Watchdog::start(limits, Notes(tell)).expect("there is a thread");
        let waits = async move {
            // Other tests' tasks may be reported too.
            let found = told.iter().find(|(_, stuck, _)| stuck.kind == SLOW.name()).expect("it is found");
            assert_eq!(found.0, "warn");
        };
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        lane.here().spawn(&SLOW, Class::Normal, waits).expect("memory");
        lane.round(Time::ZERO);
        drop(watchdog);
    }
}
