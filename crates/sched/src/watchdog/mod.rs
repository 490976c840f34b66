//! The watchdog: a thread outside of the lanes that reports tasks whose polls do not return.
//!
//! # Protocol
//! 1. Before each poll a lane publishes the task's kind, then the number of the poll: two plain stores. It
//!    reads no clock.
//! 2. The watchdog checks every lane several times within the warn limit. If it finds the same poll running
//!    for that long, by its own clock, it reports the lane once, with the stack of its thread (see
//!    `stack.rs`). At the kill limit it ends the process.
//! 3. The watchdog reads the kind between two reads of the number that agree, so the two belong together: a
//!    store that is a limit old is visible.
//! 4. Time counts from check to check, and a gap counts as two checks at most: if the whole process was
//!    stopped, or the machine stood still, no task is to blame.
//! 5. Limits are of processor time. A task is not to blame if its thread waits for a processor, which looks
//!    the same as waiting for a lock: either may take [`WAITING`] times as long.

mod stack;

pub(crate) use stack::this_thread;

use crate::abort::{LONGEST_WRITE, abort_after};
use crate::home::{self, Home};
use crate::kind::TaskKind;
use crate::report::report;
use manylane_sync::LaneId;
use manylane_sync::atomic::{AtomicBool, Ordering};
use stack::{processor_time, stack_of};
use std::collections::HashMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Checks within the warn limit: a task is reported at most a quarter of the limit late, unless the watchdog
/// itself is late (rule 4).
const CHECKS_PER_LIMIT: u32 = 4;

/// Factor on a limit for a task that uses no processor (rule 5). With the default limits it is reported after
/// 1 s and ends the process after 20 s: no operating system lets a thread wait that long for a processor.
const WAITING: u32 = 10;

/// Limits of a [`Watchdog`] on the processor time of a poll. A task that waits, for a lock, for the system or
/// for a processor, may take ten times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit after which a task is reported; at least a millisecond.
    pub warn: Duration,
    /// Limit after which the process ends; not below `warn`.
    pub kill: Duration,
}

impl Limits {
    /// Shortest warn limit: with a lower one the watchdog itself would be a load.
    pub const SHORTEST: Duration = Duration::from_millis(1);
}

impl Default for Limits {
    /// 100 ms and 2 s.
    fn default() -> Self {
        Self { warn: Duration::from_millis(100), kill: Duration::from_secs(2) }
    }
}

/// The watchdog's thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts checking all lanes of the process. Calls `warn` once for each poll that exceeds the warn limit,
    /// with a sentence and the stack, one line for each call. At the kill limit it writes the task and every
    /// lane's state to standard error and aborts the process, soon even if nobody reads that: a lane whose
    /// task does not return serves no connection.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for limits out of range; or that of the system, if it
    /// refuses a thread or the signal.
    pub fn start(limits: Limits, mut warn: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        let (Limits { warn: first, kill }, shortest) = (limits, Limits::SHORTEST);
        if first < shortest || kill < first {
            let error = format!(
                "a watchdog cannot warn after {first:?} and kill after {kill:?}: warn after {shortest:?} or \
                    more, and kill not earlier"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        stack::install()?;
        let mut lane_watch = LaneWatch::new(limits);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                lane_watch.check(Instant::now(), processor_time, |kills, text| match kills {
                    true => abort(text),
                    false => warn(text),
                });
                std::thread::park_timeout(first / CHECKS_PER_LIMIT);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Longest time of the last report about lanes of which `running` run a task: each stack takes its time.
fn longest_report(running: usize) -> Duration {
    LONGEST_WRITE + stack::TIMEOUT.saturating_mul(u32::try_from(running).unwrap_or(u32::MAX))
}

fn abort(text: &str) -> ! {
    let running = report().iter().filter(|report| report.running.is_some()).count();
    // Piece by piece: the collection of a stack may fail or take its time, too.
    abort_after(longest_report(running), || {
        let mut output = io::stderr();
        let _ = writeln!(output, "{text}aborting; the lanes:");
        for report in report() {
            let _ = writeln!(output, "{report}");
            if let Some(home) = home::of(report.lane.index()).filter(|_| report.running.is_some()) {
                let _ = output.write_all(stack_of(home).as_bytes());
            }
        }
    })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // the panic hook has reported a panic of `warn`
        }
    }
}

/// Memory of the watchdog.
struct LaneWatch {
    limits: Limits,
    observed: HashMap<LaneId, Observed>,
    sampled: Option<Instant>,
}

/// A poll that was running at an earlier check.
struct Observed {
    run: u64,
    /// Counted time since the poll was first seen (rule 4).
    since: Duration,
    /// Processor time of the thread when the poll was first observed.
    used: Option<Duration>,
    warned: bool,
}

impl LaneWatch {
    fn new(limits: Limits) -> Self {
        Self { limits, observed: HashMap::new(), sampled: None }
    }

    /// Checks all lanes. `used` returns the processor time of a lane's thread so far; if it is unknown, wall
    /// time counts. Calls `over` for each task that exceeded a limit: whether it is the kill limit, and a
    /// sentence with the stack, one line for each call.
    fn check(&mut self, now: Instant, used: fn(&Home) -> Option<Duration>, mut over: impl FnMut(bool, &str)) {
        let Self { limits: Limits { warn, kill }, .. } = *self;
        let gap = self.sampled.replace(now).map_or(Duration::ZERO, |before| now - before);
        let gap = gap.min((warn / CHECKS_PER_LIMIT).saturating_mul(2)); // rule 4
        for (lane, home) in home::all() {
            let published = &home.published;
            // Acquire: pairs with the release in `run_task` (rule 3).
            let run = published.run.load(Ordering::Acquire);
            let kind = published.running().filter(|_| published.run.load(Ordering::Acquire) == run);
            let Some(kind) = kind.map(TaskKind::name) else {
                self.observed.remove(&lane);
                continue;
            };
            let used = used(home);
            let Some(observed) = self.observed.get_mut(&lane).filter(|observed| observed.run == run) else {
                self.observed.insert(lane, Observed { run, since: Duration::ZERO, used, warned: false });
                continue;
            };
            observed.since += gap;
            let since = observed.since;
            let used = used.zip(observed.used).map_or(since, |(now, before)| now.saturating_sub(before));
            let is_over =
                |limit: Duration| since >= limit && used >= limit || since >= limit.saturating_mul(WAITING);
            let kills = is_over(kill);
            if kills || (!observed.warned && is_over(warn)) {
                observed.warned = true;
                let stack = stack_of(home);
                let task = format!("{lane}: a task of the kind `{kind}`");
                over(kills, &format!("{task} has been running for {since:?}\n{stack}"));
            }
        }
    }
}

#[cfg(all(test, not(manylane_sim)))]
mod tests;
