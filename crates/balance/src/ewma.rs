//! `ewma` (our own): the server with the least expected time, as its last answers tell.
//!
//! Each lane keeps a moving average of the times that its own requests took on each server. A slow answer
//! counts at once, a fast one by and by: "peak EWMA", as Finagle's balancer has it. What is expected of a
//! server is its average times the requests that it would have, by its weight. The better of two draws is
//! taken, as in `random`: with all lanes on the best one they would make it the worst.
//!
//! A server that was never timed is expected to be instant, so it is tried.
//!
//! Cost of a report: one exponential and three stores to the lane's own lines; of a pick: two random numbers,
//! two averages.

use crate::algorithm::{NoPick, Row};
use crate::balancer::Pick;
use crate::lane::{LaneState, Wants, Wide};
use crate::random;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use manylane_sched::Time;
use std::time::Duration;

pub(crate) const ROW: Row = Row {
    wants: |_| Wants { view: true, times: true, ..Wants::default() },
    prepare: random::prepare,
    ..Row::without_turns("ewma")
};

/// The one with the least expected time.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>, draws: u32) -> Result<Index, NoPick> {
    pick.look_around();
    let (lane, now) = (pick.lane, pick.input.now);
    let found = lane.times.as_ref().and_then(|times| {
        let expected = |server| times.expected(server, lane, pick.snapshot, now);
        random::drawn(pick, draws, |server| pick.is_good(server), |a, b| expected(a) < expected(b))
    });
    pick.or_any(found)
}

/// After this time without reports an average has shrunk to 1/e of what it was; how long a slow answer is
/// remembered.
const MEMORY: f64 = 10e9; // nanoseconds

#[derive(Debug)]
pub(crate) struct Times {
    /// Averages in nanoseconds, as bits of an `f64`.
    average: Wide,
    /// When each was reported last.
    reported: Wide,
}

impl Times {
    pub(crate) fn new(servers: usize) -> Self {
        Self { average: Wide::new(servers, 0), reported: Wide::new(servers, 0) }
    }

    fn weight_of_old(&self, index: usize, now: Time) -> f64 {
        let passed = now.since(Time::from_nanos(self.reported.get(index)));
        (-(passed.as_nanos() as f64) / MEMORY).exp()
    }

    pub(crate) fn report(&self, index: usize, took: Duration, now: Time) {
        let took = took.as_nanos() as f64;
        let old = f64::from_bits(self.average.get(index));
        let new = match self.reported.get(index) {
            0 => took,
            _ if took >= old => took,
            _ => {
                let keep = self.weight_of_old(index, now);
                old * keep + took * (1.0 - keep)
            }
        };
        self.average.set(index, new.to_bits());
        self.reported.set(index, now.as_nanos().max(1));
    }

    /// The average, less for each moment since it was reported: a server that was slow is tried again.
    fn average(&self, index: usize, now: Time) -> f64 {
        match self.reported.get(index) {
            0 => 0.0,
            _ => f64::from_bits(self.average.get(index)) * self.weight_of_old(index, now),
        }
    }

    /// What is expected of a server: a number to compare.
    pub(crate) fn expected(&self, index: usize, state: &LaneState, snapshot: &Snapshot, now: Time) -> f64 {
        let requests = f64::from(state.seen(index)) + 1.0;
        // One nanosecond more: among servers that are instant the load decides.
        (self.average(index, now) + 1.0) * requests / f64::from(snapshot.weights[index].max(1))
    }
}
