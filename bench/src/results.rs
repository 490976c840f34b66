//! Results, as passed from the simulated half of the benchmark to the real one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The machine of a figure. Simulated figures are always labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// This computer's processors.
    Real,
    /// The virtual multiprocessor.
    Simulated,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real => "real",
            Self::Simulated => "simulated",
        })
    }
}

/// A variant's role in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The old design: the reference of every comparison.
    Before,
    /// Another design that was considered.
    Other,
    /// The design that ships.
    After,
}

/// All runs of a variant with a number of threads on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// The variant's role.
    pub role: Role,
    /// The machine.
    pub machine: Machine,
    /// Number of threads or virtual cores.
    pub threads: usize,
    /// Operations per second over all threads, one value for each run.
    pub runs: Vec<f64>,
    /// Figures of the simulator, from the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
}

/// Distribution of simulated time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Cache lines that moved between cores, per operation.
    pub transfers_per_operation: f64,
    /// Nanoseconds of waiting for locks, per operation.
    pub lock_wait_per_operation: f64,
    /// The lines that moved most, by name, with transfers per operation.
    pub hottest: Vec<(String, f64)>,
}

/// All results of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// In the order of measurement.
    pub series: Vec<Series>,
}

impl Series {
    /// The median of the runs; 0 if there are none.
    pub fn median(&self) -> f64 {
        crate::stats::Summary::of(&self.runs).map_or(0.0, |s| s.median)
    }
}

impl Results {
    /// The series of `variant` on `machine`, by number of threads.
    pub fn of<'a>(
        &'a self,
        case: &'a str,
        variant: &'a str,
        machine: Machine,
    ) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |s| s.case == case && s.variant == variant && s.machine == machine)
    }

    /// The series of `variant` on `machine` with `threads` threads.
    pub fn at(&self, case: &str, variant: &str, machine: Machine, threads: usize) -> Option<&Series> {
        self.series
            .iter()
            .find(|s| s.case == case && s.variant == variant && s.machine == machine && s.threads == threads)
    }

    /// The numbers of threads that `case` ran with on `machine`, ascending.
    pub fn thread_counts(&self, case: &str, machine: Machine) -> Vec<usize> {
        let mut counts: Vec<usize> = self
            .series
            .iter()
            .filter(|s| s.case == case && s.machine == machine)
            .map(|s| s.threads)
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The results as JSON.
    ///
    /// # Errors
    /// A figure is not finite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Parses the output of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// `text` has another format.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_the_way_between_processes() {
        let series = Series {
            case: "counter".into(),
            variant: "shared".into(),
            role: Role::Before,
            machine: Machine::Simulated,
            threads: 96,
            runs: vec![1.5e6, 0.1 + 0.2],
            costs: Some(Costs {
                transfers_per_operation: 1.0,
                lock_wait_per_operation: 0.0,
                hottest: vec![("counter".into(), 1.0)],
            }),
        };
        let real = Series { machine: Machine::Real, costs: None, ..series.clone() };
        let results = Results { series: vec![series, real] };
        let text = results.to_json().expect("finite figures");
        assert!(text.contains("\"simulated\""), "{text}");
        assert_eq!(Results::from_json(&text).expect("own output"), results);
    }

    #[test]
    fn something_else_is_refused() {
        assert!(Results::from_json("{\"series\": 5}").is_err());
        assert!(Results::from_json("").is_err());
    }
}
