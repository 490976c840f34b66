//! Budgets in line transfers, on the virtual multiprocessor.
#![cfg(manylane_sim)]

use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_stats::{Counter, CounterGroup, Gauge, Histogram, MemType, counters};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::relax;

fn on<S>(cores: usize, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, body)
}

counters! {
    struct Pair { left, right }
}

struct All {
    counter: Counter,
    gauge: Gauge,
    group: CounterGroup<Pair>,
    histogram: Histogram,
    memory: &'static MemType,
    met: AtomicU32,
}

impl All {
    fn new() -> Self {
        Self {
            counter: Counter::new("counter"),
            gauge: Gauge::new("gauge"),
            group: CounterGroup::new(),
            histogram: Histogram::new("histogram"),
            memory: Box::leak(Box::new(MemType::new("memory"))),
            met: AtomicU32::new(0),
        }
    }

    fn count(&self, n: u64) {
        self.counter.add(1);
        self.gauge.add(2);
        self.gauge.sub(1);
        self.group.own().left.add(1);
        self.group.own().right.add(n);
        self.histogram.record(n);
        self.memory.alloc(100);
        self.memory.free(100);
    }
}

/// R-C1, R-F2: all counts of a lane stay on its lines.
#[test]
fn counting_on_the_own_lane_moves_no_line() {
    for cores in [1, 8, 32, 96] {
        let report = on(cores, All::new, |all, worker| {
            all.count(1);
            // The tables have their final size when every lane is in all of them.
            all.met.fetch_add(1, Ordering::AcqRel);
            while (all.met.load(Ordering::Acquire) as usize) < worker.threads() {
                relax();
            }
            worker.measure(5, 50, |n| all.count(n));
        });
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
        assert_eq!(report.operations, cores as u64 * 50);
    }
}
