//! `ewma` (our own): the server with the least expected time, judged by its recent answers.
//!
//! Each lane keeps a moving average of the times that its own requests took on each server. A slow answer
//! counts at once, a fast one gradually: "peak EWMA", as in Finagle's balancer. The expected time of a server
//! is its average, times its requests including the new one, divided by its weight. As in `random`, the
//! better of two draws is taken: if all lanes used the best server, they would make it the worst.
//!
//! A server without a measured answer is expected to be instant, so it gets a request soon.
//!
//! Cost of a report: one exponential and stores to the lane's own cache lines. Cost of a pick: two random
//! numbers, two averages.

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::lane::{LaneNeeds, LaneState, Wide};
use crate::random;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use manylane_sched::Time;
use std::time::Duration;

pub(crate) const ROW: Row = Row {
    wants: |_| LaneNeeds { view: true, times: true, ..LaneNeeds::default() },
    prepare: random::prepare,
    ..Row::without_turns("ewma", |_, _| Algorithm::Ewma { draws: 2 })
};

/// Returns the server with the least expected time among the drawn ones.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>, draws: u32) -> Result<Index, NoPick> {
    pick.refresh_view();
    let (lane, now) = (pick.lane, pick.input.now);
    let found = lane.times.as_ref().and_then(|times| {
        let expected = |server| times.expected(server, lane, pick.snapshot, now);
        random::drawn(pick, draws, |server| pick.is_good(server), |a, b| expected(a) < expected(b))
    });
    pick.or_any(found)
}

/// Time after which an average without reports has shrunk to 1/e: how long a slow answer is remembered.
const MEMORY: f64 = 10e9; // nanoseconds

#[derive(Debug)]
pub(crate) struct Times {
    /// Averages in nanoseconds, as bits of an `f64`.
    average: Wide,
    /// Time of the last report, in nanoseconds; 0 if there was none.
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

    /// Returns the average, which shrinks with the time since the last report: a server that was slow is
    /// tried again.
    fn average(&self, index: usize, now: Time) -> f64 {
        match self.reported.get(index) {
            0 => 0.0,
            _ => f64::from_bits(self.average.get(index)) * self.weight_of_old(index, now),
        }
    }

    /// Returns the expected time of a server, as a number to compare.
    pub(crate) fn expected(&self, index: usize, state: &LaneState, snapshot: &Snapshot, now: Time) -> f64 {
        let requests = f64::from(state.load(index)) + 1.0;
        // One nanosecond is added so that the load decides among servers that are instant.
        (self.average(index, now) + 1.0) * requests / f64::from(snapshot.weights[index].max(1))
    }
}
