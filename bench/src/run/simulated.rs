//! Virtual cores: the same variants, in virtual time.

use super::{Plan, Sample};
use crate::cases::Variant;
use crate::results::Costs;
use manylane_sim::{Report, Simulation, Topology};
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{CachePadded, relax};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Time before the measurement, in which lines reach the cores that use them.
const WARM_UP_NS: u64 = 5_000;

/// The length of a first run, which determines that of the measurement.
const PROBE: Duration = Duration::from_micros(10);

/// Operations for a steady state: more only take real time.
const ENOUGH: f64 = 60_000.0;

/// A contended variant does little in a virtual microsecond: its time is extended up to this factor.
const LONGEST: f64 = 20.0;

/// Number of lines named in the results.
const HOTTEST: usize = 3;

pub(super) fn once<V: Variant>(plan: &Plan) -> Sample {
    let probe = simulate::<V>(plan, PROBE).operations_per_second();
    let wanted = if probe > 0.0 { ENOUGH / probe } else { f64::INFINITY };
    let planned = plan.time.as_secs_f64();
    let time = Duration::from_secs_f64(wanted.clamp(planned, planned * LONGEST));
    let report = simulate::<V>(plan, time);
    let per_operation = |count: u64| count as f64 / report.operations.max(1) as f64;
    Sample {
        operations_per_second: report.operations_per_second(),
        fairness: report.fairness(),
        costs: Some(Costs {
            transfers_per_operation: report.transfers_per_operation(),
            lock_wait_per_operation: report.lock_wait_ns_per_operation(),
            hottest: report
                .hottest
                .iter()
                .take(HOTTEST)
                .map(|line| (line.name.clone(), per_operation(line.transfers)))
                .collect(),
        }),
    }
}

fn simulate<V: Variant>(plan: &Plan, time: Duration) -> Report {
    let measured_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (operations, ended) = (Cell::new(0), Cell::new(0));
    let lost = RefCell::new(None);
    let report = Simulation::new(Topology::two_sockets_24x2()).cores(plan.threads).seed(plan.seed + 1).run(
        || (V::new(plan.threads), CachePadded::new(AtomicUsize::new(0))),
        |(shared, entered), worker| {
            let mut own = shared.enter(worker.number());
            // 96 lanes make their slots one after another, under a lock. The first ones must not be measured
            // meanwhile.
            entered.fetch_add(1, Ordering::Relaxed);
            while entered.load(Ordering::Relaxed) < plan.threads {
                relax();
            }
            let mut made = 0;
            worker.measure_for(WARM_UP_NS, measured_ns, |_| {
                shared.operate(&mut own);
                made += 1;
            });
            drop(own);
            operations.set(operations.get() + made);
            ended.set(ended.get() + 1);
            if ended.get() == plan.threads {
                *lost.borrow_mut() = shared.check(operations.get()).err();
            }
        },
    );
    if let Some(lost) = lost.into_inner() {
        panic!("`{}` with {} simulated cores is wrong: {lost}", V::NAME, plan.threads);
    }
    report
}
