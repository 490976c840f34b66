//! Profiling by kind of task (R-F8): calls, CPU time, and latency from the wake-up to the run; totals, and a
//! histogram of each.

use crate::kind::TaskKind;
use crate::sums::Sums;
use crate::time::Time;
use manylane_stats::{Histogram, HistogramSnapshot};
use manylane_sync::atomic::{AtomicU8, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::sync::Once;
use std::time::Duration;

/// Whether lanes measure their tasks. Costs two looks at the clock a task, about 60 ns, while on; a
/// predictable branch while off.
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

/// A round that takes longer than this makes a lane measure, when profiling is [`Auto`](Profiling::Auto).
pub const LATE: Duration = Duration::from_millis(1);

static MODE: AtomicU8 = AtomicU8::new(Profiling::Auto as u8);
static LIST: LockClass = LockClass::new("profiled kinds", LockClass::REGISTRY);
/// Kinds that were measured at least once.
static LISTED: Mutex<Vec<&'static TaskKind>> = Mutex::new(&LIST, Vec::new());

/// Turns profiling on or off, on all lanes from their next round on.
pub fn set_profiling(mode: Profiling) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// Whether profiling is on.
pub fn profiling() -> Profiling {
    match MODE.load(Ordering::Relaxed) {
        0 => Profiling::Off,
        1 => Profiling::Auto,
        _ => Profiling::On,
    }
}

/// Whether a lane measures in the round that begins. `took`: how long the last one took, if it was not
/// followed by a sleep.
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

/// What a kind measured. Histograms of 3 bits: within 6 %, 4 KiB a lane.
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

/// Counts one poll of a task of kind `kind`. `woken`: 0 if the time of its wake-up is not known.
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

/// What was measured of one kind of task.
#[derive(Clone, Debug)]
pub struct KindReport {
    /// The kind's name.
    pub kind: &'static str,
    /// Polls that were measured.
    pub calls: u64,
    /// Time spent in them.
    pub cpu_total: Duration,
    /// Polls whose wake-up was measured too.
    pub waits: u64,
    /// Time from the wake-up to the run; for wake-ups from other lanes from their arrival on.
    pub latency_total: Duration,
    /// Nanoseconds of CPU time by poll.
    pub cpu: HistogramSnapshot<3>,
    /// Nanoseconds of latency by poll.
    pub latency: HistogramSnapshot<3>,
}

impl KindReport {
    /// CPU time of a poll, on average.
    pub fn cpu_average(&self) -> Duration {
        average(self.cpu_total, self.calls)
    }

    /// Latency of a poll, on average.
    pub fn latency_average(&self) -> Duration {
        average(self.latency_total, self.waits)
    }
}

fn average(total: Duration, count: u64) -> Duration {
    Duration::from_nanos((total.as_nanos() / u128::from(count.max(1))) as u64)
}

/// All kinds that were ever measured, those with the most CPU time first. Nothing is ever reset: subtract an
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
