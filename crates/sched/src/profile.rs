//! Profiling by kind of task (R-F8): calls, CPU time, and latency from the wake-up to the run, as totals and
//! histograms.

use crate::kind::TaskKind;
use crate::sums::Sums;
use crate::time::Time;
use manylane_stats::{Histogram, HistogramSnapshot};
use manylane_sync::atomic::{AtomicU8, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::sync::Once;
use std::time::Duration;

/// Whether lanes measure their tasks. While on it costs two reads of the clock for each task, about 60 ns;
/// while off a predictable branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Profiling {
    /// Never.
    Off,
    /// On each lane while its rounds are late: from a round longer than [`LATE`] until one shorter than half
    /// of that.
    #[default]
    Auto,
    /// Always.
    On,
}

/// Duration of a round after which a lane measures in mode [`Auto`](Profiling::Auto).
pub const LATE: Duration = Duration::from_millis(1);

static MODE: AtomicU8 = AtomicU8::new(Profiling::Auto as u8);
static LIST: LockClass = LockClass::new("profiled kinds", LockClass::REGISTRY);
/// Kinds that were measured at least once.
static LISTED: Mutex<Vec<&'static TaskKind>> = Mutex::new(&LIST, Vec::new());

/// Turns profiling on or off, on all lanes from their next round on.
pub fn set_profiling(mode: Profiling) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// Returns the mode.
pub fn profiling() -> Profiling {
    match MODE.load(Ordering::Relaxed) {
        0 => Profiling::Off,
        1 => Profiling::Auto,
        _ => Profiling::On,
    }
}

/// Returns whether a lane measures in the round that begins. `took` is the duration of the last round, unless
/// a sleep followed it.
pub(crate) fn decide(before: bool, took: Option<Duration>) -> bool {
    match profiling() {
        Profiling::Off => false,
        Profiling::On => true,
        Profiling::Auto => match took {
            Some(took) if took > LATE => true,
            Some(took) if took < LATE / 2 => false,
            Some(_) => before,
            None => false,
        },
    }
}

/// Measurements of a kind. Histograms of 3 bits: within 6 %, 4 KiB a lane.
#[derive(Debug)]
pub(crate) struct Profile {
    sums: Sums,
    cpu: Histogram<3>,
    latency: Histogram<3>,
    listed: Once,
}

impl Profile {
    pub(crate) const fn new() -> Self {
        Self {
            sums: Sums::new(),
            cpu: Histogram::new("cpu, ns"),
            latency: Histogram::new("latency, ns"),
            listed: Once::new(),
        }
    }
}

/// Counts one poll of a task of kind `kind`. `woken` is 0 if the time of its wake-up is unknown.
pub(crate) fn record(kind: &'static TaskKind, woken: u64, began: Time, ended: Time) {
    let profile = &kind.profile;
    profile.listed.call_once(|| LISTED.lock().push(kind));
    let cpu = ended.since(began).as_nanos() as u64;
    let latency = (woken != 0).then(|| began.as_nanos().saturating_sub(woken));
    profile.sums.record(cpu, latency);
    profile.cpu.record(cpu);
    if let Some(latency) = latency {
        profile.latency.record(latency);
    }
}

/// Measurements of one kind of task.
#[derive(Clone, Debug)]
pub struct KindReport {
    /// The kind's name.
    pub kind: &'static str,
    /// Number of measured polls.
    pub calls: u64,
    /// Time spent in them.
    pub cpu_total: Duration,
    /// Number of polls whose wake-up was measured, too.
    pub waits: u64,
    /// Time from the wake-up to the run; wake-ups from other lanes count from their arrival.
    pub latency_total: Duration,
    /// Nanoseconds of CPU time of each poll.
    pub cpu: HistogramSnapshot<3>,
    /// Nanoseconds of latency of each poll.
    pub latency: HistogramSnapshot<3>,
}

impl KindReport {
    /// Returns the average CPU time of a poll.
    pub fn cpu_average(&self) -> Duration {
        average(self.cpu_total, self.calls)
    }

    /// Returns the average latency of a poll.
    pub fn latency_average(&self) -> Duration {
        average(self.latency_total, self.waits)
    }
}

fn average(total: Duration, count: u64) -> Duration {
    Duration::from_nanos((total.as_nanos() / u128::from(count.max(1))) as u64)
}

/// Returns all kinds that were ever measured, most CPU time first. No call resets the numbers: subtract an
/// earlier report.
pub fn profile() -> Vec<KindReport> {
    let kinds = LISTED.lock().clone();
    let mut reports: Vec<_> = kinds
        .into_iter()
        .map(|kind| {
            let sums = kind.profile.sums.read();
            KindReport {
                kind: kind.name(),
                calls: sums.calls,
                cpu_total: Duration::from_nanos(sums.cpu),
                waits: sums.waits,
                latency_total: Duration::from_nanos(sums.latency),
                cpu: kind.profile.cpu.read_cheap(),
                latency: kind.profile.latency.read_cheap(),
            }
        })
        .collect();
    reports.sort_by_key(|report| std::cmp::Reverse(report.cpu_total));
    reports
}

#[cfg(all(test, not(manylane_sim)))]
mod tests {
    use super::*;

    #[test]
    fn automatic_profiling_follows_the_length_of_rounds_with_a_margin() {
        let late = Some(LATE * 2);
        let between = Some(LATE * 3 / 4);
        let early = Some(LATE / 4);
        assert_eq!(profiling(), Profiling::Auto);
        assert!(decide(false, late));
        assert!(decide(true, between) && !decide(false, between));
        assert!(!decide(true, early) && !decide(true, None));
    }
}
