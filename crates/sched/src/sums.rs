//! The sums of a profile, which lanes write while other threads read them.
//!
//! # Protocol
//! A lane first adds to the calls, then to their times. A reader reads in the opposite order, and each
//! addition that it sees shows it the lane's earlier ones (rule 3 of `manylane_stats`). So a reading never
//! has more waits than calls, nor time without its call: averages may be too low by one call's time, never
//! too high.

#![cfg_attr(not(loom), allow(unreachable_pub))] // models access it

use manylane_stats::{CounterGroup, counters};

counters! {
    /// Sums of one lane, in the order of reading.
    struct Slot {
        latency,
        waits,
        cpu,
        calls,
    }
}

/// Sums over the lanes.
#[derive(Debug)]
pub struct Sums(CounterGroup<Slot>);

/// A reading of the sums; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Number of polls.
    pub calls: u64,
    /// Time of the polls.
    pub cpu: u64,
    /// Number of polls whose wake-up was seen.
    pub waits: u64,
    /// Time from the wake-ups to the runs.
    pub latency: u64,
}

impl Sums {
    manylane_sync::const_fn! {
        /// Creates sums of 0.
        pub fn new() -> Self { Self(CounterGroup::new()) }
    }

    /// Counts one poll on the calling lane.
    pub fn record(&self, cpu: u64, latency: Option<u64>) {
        let own = self.0.own();
        own.calls.add(1);
        own.cpu.add(cpu);
        if let Some(latency) = latency {
            own.waits.add(1);
            own.latency.add(latency);
        }
    }

    /// Reads the sums while the lanes go on.
    pub fn read(&self) -> Reading {
        let sums = self.0.read_cheap();
        let [latency, waits, cpu, calls] = sums[..] else { unreachable!("four counters have four sums") };
        Reading { calls, cpu, waits, latency }
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self::new()
    }
}
