//! Runs a variant once for a fixed time, on the machine that this binary was built for.

#[cfg(not(manylane_sim))]
mod real;
#[cfg(manylane_sim)]
mod simulated;

pub mod child;

use crate::cases::{Case, Variant};
use crate::results::{Costs, Machine, Results, Series};
use std::time::Duration;

/// The machine of this binary.
pub const MACHINE: Machine = if cfg!(manylane_sim) { Machine::Simulated } else { Machine::Real };

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of threads or virtual cores, at least 1.
    pub threads: usize,
    /// Time in which operations are counted; on the simulator, virtual time.
    pub time: Duration,
    /// On the simulator, each number gives other starting times of the cores. No effect on real threads.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Over all threads.
    pub operations_per_second: f64,
    /// Operations of the least served thread divided by those of the most served one: 1 is fair.
    pub fairness: f64,
    /// From the simulator only.
    pub costs: Option<Costs>,
}

/// Runs `V` once.
///
/// # Panics
/// If the variant's own check fails: figures of wrong code are worthless.
pub fn once<V: Variant>(plan: &Plan) -> Sample {
    #[cfg(not(manylane_sim))]
    return real::once::<V>(plan);
    #[cfg(manylane_sim)]
    return simulated::once::<V>(plan);
}

/// The extent of a measurement.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Runs of each variant with each number of threads.
    pub runs: usize,
    /// The length of a run.
    pub time: Duration,
}

/// Runs all variants of `case`: for each number of threads and each run, one after another, so that changes
/// of the machine's state affect all of them. Calls `progress` before each run.
pub fn case(case: &Case, extent: &Extent, mut progress: impl FnMut(&str)) -> Results {
    let mut results = Results::default();
    for &threads in &extent.threads {
        let first = results.series.len();
        results.series.extend(case.contenders.iter().map(|contender| Series {
            case: case.name.to_string(),
            variant: contender.name.to_string(),
            role: contender.role,
            machine: MACHINE,
            threads,
            runs: Vec::with_capacity(extent.runs),
            costs: None,
        }));
        for run in 0..extent.runs {
            for (contender, series) in case.contenders.iter().zip(&mut results.series[first..]) {
                progress(&format!(
                    "{MACHINE} {} / {}, {threads} threads, run {}",
                    case.name,
                    contender.name,
                    run + 1
                ));
                let plan = Plan { threads, time: extent.time, seed: run as u64 };
                let sample = (contender.run)(&plan);
                series.runs.push(sample.operations_per_second);
                series.costs = sample.costs;
            }
        }
    }
    results
}
