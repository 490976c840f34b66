//! The report of a run.

use crate::machine::Machine;
use crate::topology::Distance;
use std::fmt;

/// Maximum number of lines that a report names.
const HOTTEST: usize = 10;

/// The measured part of a simulation. All figures are simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Shape of the machine in words.
    pub machine: &'static str,
    /// Number of used cores.
    pub cores: usize,
    /// Number of virtual threads.
    pub threads: usize,
    /// The seed of the run.
    pub seed: u64,
    /// Number of operations of all threads.
    pub operations: u64,
    /// Operations of each thread.
    pub operations_by_thread: Vec<u64>,
    /// Virtual picoseconds from the start of the measured part to the end of its last thread.
    pub picoseconds: u64,
    /// Transfers of lines from another core.
    pub transfers: Transfers,
    /// Number of transfers that each thread caused.
    pub transfers_by_thread: Vec<u64>,
    /// Number of lines that came from memory, at their first access.
    pub cold_misses: u64,
    /// Number of locked instructions and full fences: about 6 ns each on the real machine even if no line
    /// moves.
    pub locked: u64,
    /// Number of times that a thread went to sleep.
    pub parks: u64,
    /// Waits for locks by class, in descending order of total time.
    pub locks: Vec<LockWaits>,
    /// The lines with the most transfers, the hottest first; at most ten.
    pub hottest: Vec<HotLine>,
}

/// Numbers of transfers by distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Between sibling threads of a core.
    pub same_core: u64,
    /// Between cores with one last-level cache.
    pub same_complex: u64,
    /// Between complexes of a socket.
    pub same_socket: u64,
    /// Between sockets.
    pub other_socket: u64,
}

impl Transfers {
    /// Returns the sum of all transfers.
    pub fn total(&self) -> u64 {
        self.same_core + self.same_complex + self.same_socket + self.other_socket
    }
}

/// Waits for the locks of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// The class's name.
    pub class: &'static str,
    /// Number of times that a thread found a lock taken.
    pub times: u64,
    /// Picoseconds waited, over all threads.
    pub picoseconds: u64,
}

/// A line with transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// Its label, with the offset if the labelled memory spans lines; otherwise the place in the source that
    /// first made it move.
    pub name: String,
    /// Number of its transfers.
    pub transfers: u64,
}

impl Report {
    pub(crate) fn new(machine: &Machine, cores: usize, seed: u64) -> Self {
        let by_distance = |distance: Distance| -> u64 {
            machine.threads.iter().map(|t| t.counts.transfers[distance as usize]).sum()
        };
        let finished = machine.threads.iter().map(|t| t.finished).max().unwrap_or(0);
        let mut locks: Vec<_> = machine
            .locks
            .iter()
            .map(|l| LockWaits { class: l.class, times: l.times, picoseconds: l.total })
            .collect();
        locks.sort_by_key(|l| (std::cmp::Reverse(l.picoseconds), l.class));
        Self {
            machine: machine.topology.name(),
            cores,
            threads: machine.threads.len(),
            seed,
            operations: machine.threads.iter().map(|t| t.operations).sum(),
            operations_by_thread: machine.threads.iter().map(|t| t.operations).collect(),
            picoseconds: finished.saturating_sub(machine.started),
            transfers: Transfers {
                same_core: by_distance(Distance::SameCore),
                same_complex: by_distance(Distance::SameComplex),
                same_socket: by_distance(Distance::SameSocket),
                other_socket: by_distance(Distance::OtherSocket),
            },
            transfers_by_thread: machine.threads.iter().map(|t| t.counts.transfers.iter().sum()).collect(),
            cold_misses: machine.threads.iter().map(|t| t.counts.cold).sum(),
            locked: machine.threads.iter().map(|t| t.counts.locked).sum(),
            parks: machine.threads.iter().map(|t| t.counts.parks).sum(),
            locks,
            hottest: hottest(machine),
        }
    }

    /// Returns the virtual seconds of the measured part.
    pub fn seconds(&self) -> f64 {
        self.picoseconds as f64 * 1e-12
    }

    /// Returns the operations of all threads in a virtual second.
    pub fn operations_per_second(&self) -> f64 {
        ratio(self.operations as f64, self.seconds())
    }

    /// Returns the transfers from another core for each operation, without cold misses.
    pub fn transfers_per_operation(&self) -> f64 {
        ratio(self.transfers.total() as f64, self.operations as f64)
    }

    /// Returns the nanoseconds that threads waited for locks, for each operation.
    pub fn lock_wait_ns_per_operation(&self) -> f64 {
        let total: u64 = self.locks.iter().map(|l| l.picoseconds).sum();
        ratio(total as f64 / 1e3, self.operations as f64)
    }

    /// Returns the ratio of the operations of the least served thread to those of the most served one: 1 is
    /// fair. Meaningful only after [`measure_for`](crate::Worker::measure_for).
    pub fn fairness(&self) -> f64 {
        let least = self.operations_by_thread.iter().min().copied().unwrap_or(0);
        let most = self.operations_by_thread.iter().max().copied().unwrap_or(0);
        ratio(least as f64, most as f64)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

fn hottest(machine: &Machine) -> Vec<HotLine> {
    let line_bytes = machine.lines.line_bytes();
    let mut all: Vec<_> = machine.lines.travelled().collect();
    // A stable sort: equally hot lines stay in the order of first access.
    all.sort_by_key(|(_, line)| std::cmp::Reverse(line.transfers));
    let named = all.into_iter().take(HOTTEST).map(|(address, line)| {
        let end = address + line_bytes;
        let label = machine.labels.iter().rev().find(|l| l.address < end && address < l.address + l.bytes);
        let name = match (label, line.site) {
            (Some(label), _) => {
                let first_line = label.address / line_bytes * line_bytes;
                let spans = label.address + label.bytes > first_line + line_bytes;
                if spans {
                    format!("{} +{}", label.name, address.saturating_sub(label.address))
                } else {
                    label.name.to_owned()
                }
            }
            (None, Some(site)) => format!("{}:{}", site.file(), site.line()),
            (None, None) => "unknown".to_owned(),
        };
        HotLine { name, transfers: line.transfers }
    });
    named.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_operation = |count: u64| ratio(count as f64, self.operations as f64);
        writeln!(
            f,
            "simulated: {} threads on {} cores of {}, seed {}",
            self.threads, self.cores, self.machine, self.seed
        )?;
        let mut row = |name: &str, value: String| writeln!(f, "  {name:<28}{value:>16}");
        row("operations", self.operations.to_string())?;
        row("seconds", format!("{:.9}", self.seconds()))?;
        row("operations/s", format!("{:.0}", self.operations_per_second()))?;
        row("transfers/operation", format!("{:.4}", self.transfers_per_operation()))?;
        for (name, count) in [
            ("  within a core", self.transfers.same_core),
            ("  within a complex", self.transfers.same_complex),
            ("  within a socket", self.transfers.same_socket),
            ("  between sockets", self.transfers.other_socket),
        ] {
            if count > 0 {
                row(name, format!("{:.4}", per_operation(count)))?;
            }
        }
        row("locked/operation", format!("{:.4}", per_operation(self.locked)))?;
        row("cold misses/operation", format!("{:.4}", per_operation(self.cold_misses)))?;
        row("lock wait ns/operation", format!("{:.1}", self.lock_wait_ns_per_operation()))?;
        row("parks/operation", format!("{:.4}", per_operation(self.parks)))?;
        row("fairness", format!("{:.2}", self.fairness()))?;
        for lock in &self.locks {
            let wait = ratio(lock.picoseconds as f64 / 1e3, lock.times as f64);
            writeln!(f, "  lock {:<24}{:>12} waits of {wait:.0} ns on average", lock.class, lock.times)?;
        }
        for line in &self.hottest {
            writeln!(f, "  line {:<40}{:>12} transfers", line.name, line.transfers)?;
        }
        Ok(())
    }
}
