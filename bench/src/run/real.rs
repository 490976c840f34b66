//! Real threads.
//!
//! All threads start at a barrier and work until told to stop. After every batch, each publishes its progress
//! on its own cache line. The result is the progress between two readings of these lines, so the start and
//! the end of threads are not measured. If there are more threads than processors, they are not bound: the
//! kernel schedules them, as in a program with such a configuration.

use super::{Plan, Sample};
use crate::cases::Variant;
use manylane_sync::CachePadded;
use manylane_sync::atomic::{AtomicBool, Ordering, OwnedU64};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Operations between two checks of the stop flag: few enough to end soon if one takes microseconds, enough
/// to hide the check.
const BATCH: u64 = 64;

/// Time before the first reading: threads get processors, caches and slots fill.
const WARM_UP: Duration = Duration::from_millis(10);

pub(super) fn once<V: Variant>(plan: &Plan) -> Sample {
    let shared = V::new(plan.threads);
    let stop = CachePadded::new(AtomicBool::new(false));
    let done: Vec<CachePadded<OwnedU64>> =
        (0..plan.threads).map(|_| CachePadded::new(OwnedU64::new(0))).collect();
    let ready = Barrier::new(plan.threads + 1);
    let (rate, fairness) = std::thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (shared, stop, ready) = (&shared, &stop, &ready);
            scope.spawn(move || {
                let mut own = shared.enter(thread);
                ready.wait();
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..BATCH {
                        shared.operate(&mut own);
                    }
                    done.add(BATCH);
                }
            });
        }
        ready.wait();
        let snapshot = || (Instant::now(), done.iter().map(|d| d.get()).collect::<Vec<_>>());
        std::thread::sleep(WARM_UP);
        let (started, before) = snapshot();
        std::thread::sleep(plan.time);
        let (ended, after) = snapshot();
        stop.store(true, Ordering::Relaxed);
        let progress: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let (least, most) = (progress.iter().min().copied(), progress.iter().max().copied());
        let fairness = least.unwrap_or(0) as f64 / most.unwrap_or(0).max(1) as f64;
        let operations: u64 = progress.iter().sum();
        (operations as f64 / ended.duration_since(started).as_secs_f64(), fairness)
    });
    let operations = done.iter().map(|d| d.get()).sum();
    if let Err(lost) = shared.check(operations) {
        panic!("`{}` with {} threads is wrong: {lost}", V::NAME, plan.threads);
    }
    Sample { operations_per_second: rate, fairness, costs: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    /// Loses every second operation, and reports it.
    struct Lossy;

    impl Variant for Lossy {
        const NAME: &'static str = "lossy";
        type Own<'a> = ();
        fn new(_: usize) -> Self {
            Self
        }
        fn enter(&self, _: usize) {}
        fn operate(&self, (): &mut ()) {}
        fn check(&self, operations: u64) -> Result<(), String> {
            Err(format!("{operations} made"))
        }
    }

    #[test]
    #[should_panic(expected = "`lossy` with 2 threads is wrong")]
    fn lost_work_is_no_figure() {
        once::<Lossy>(&Plan { threads: 2, time: Duration::from_millis(1), seed: 0 });
    }

    #[test]
    fn every_contender_works_and_loses_nothing() {
        for case in cases::ALL {
            for contender in case.contenders {
                for threads in [1, 3] {
                    // Each run checks itself. A busy machine may give it no processor in time, and debug
                    // builds poison freed memory: then a longer run is tried.
                    let works = (0..10).any(|attempt| {
                        let plan = Plan { threads, time: Duration::from_millis(5 << attempt), seed: 0 };
                        (contender.run)(&plan).operations_per_second > 0.0
                    });
                    assert!(works, "{} / {} does nothing", case.name, contender.name);
                }
            }
        }
    }
}
