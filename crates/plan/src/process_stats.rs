//! Statistics of the whole process: idle time of the lanes, rates and their maxima. Successive generations
//! share them. `runtime::meter` updates them every second; reports read them.

use crate::counts::{FrontendStats, TlsStats};
use manylane_sched::Time;
use manylane_stats::Counter;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::time::Duration;

static PROCESS_STATS: LockClass = LockClass::new("process statistics", LockClass::LEAF);

const SECOND: Duration = Duration::from_secs(1);

/// Statistics of the process.
#[derive(Debug)]
pub struct ProcessStats {
    last_update: Mutex<LastUpdate>,
    stopping: AtomicBool,
    /// Failed resolutions: the name does not exist, or no name server gave a valid response.
    pub failed_resolutions: Counter,
    /// TLS connections of clients.
    pub tls_clients: TlsStats,
    /// TLS connections to servers, health checks included.
    pub tls_servers: TlsStats,
}

/// Result of the last update.
#[derive(Debug, Default)]
struct LastUpdate {
    at: Option<Time>,
    /// Total time that the lanes have slept.
    slept: Duration,
    /// Idle share of the lanes between the last two updates, in percent.
    idle: Option<u64>,
    /// Total bytes sent, and those of the last second.
    bytes: u64,
    grown: u64,
    /// Maximum of connections in a second.
    most_connections: u64,
}

impl Default for ProcessStats {
    fn default() -> Self {
        let (stopping, failed_resolutions) = (AtomicBool::new(false), Counter::new("failed_resolutions"));
        Self {
            last_update: Mutex::new(&PROCESS_STATS, LastUpdate::default()),
            stopping,
            failed_resolutions,
            tls_clients: TlsStats::default(),
            tls_servers: TlsStats::default(),
        }
    }
}

impl ProcessStats {
    /// Records that the soft stop has begun.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns true if the soft stop has begun.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Updates the statistics. `connections` arrived in the last second; `bytes` were sent and the lanes
    /// `slept` since the start.
    pub fn update(&self, now: Time, connections: u64, bytes: u64, lanes: u32, slept: Duration) {
        let mut last_update = self.last_update.lock();
        last_update.most_connections = last_update.most_connections.max(connections);
        let passed = last_update.at.map(|then| now.since(then));
        if passed.is_some_and(|passed| passed < SECOND / 2) {
            return; // a second generation updates, too
        }
        last_update.idle =
            passed.map(|passed| percent(slept.saturating_sub(last_update.slept), passed * lanes));
        let seconds = passed.map_or(1.0, |passed| passed.as_secs_f64().max(1.0));
        // May be fewer: a frontend was removed.
        last_update.grown = (bytes.saturating_sub(last_update.bytes) as f64 / seconds) as u64;
        (last_update.at, last_update.slept, last_update.bytes) = (Some(now), slept, bytes);
    }

    /// Returns the average idle share of the lanes in the last second, in percent; 100 before the first
    /// updates.
    pub fn idle_percent(&self) -> u64 {
        self.last_update.lock().idle.unwrap_or(100)
    }

    /// Returns the bytes sent to clients in the last second, computed as in [`meter`](crate::meter).
    pub fn bytes_rate(
        &self,
        now: Time,
        frontends: impl Iterator<Item = impl std::ops::Deref<Target = FrontendStats>>,
    ) -> u64 {
        let sum: u64 = frontends.map(|counts| counts.read_cheap_one(|counts| &counts.bytes_out)).sum();
        let last_update = self.last_update.lock();
        let Some(at) = last_update.at else { return sum };
        let (current, passed) = (sum.saturating_sub(last_update.bytes), now.since(at));
        if passed > SECOND {
            return (current as f64 / passed.as_secs_f64()) as u64; // the update is late
        }
        current + (last_update.grown as f64 * (SECOND - passed).as_secs_f64()) as u64
    }

    /// Resets the maxima.
    pub fn forget_most(&self) {
        self.last_update.lock().most_connections = 0;
        self.tls_clients.forget_most();
        self.tls_servers.forget_most();
    }

    /// Returns the maximum of connections in a second; `current` is the number of the last second.
    pub fn most_connections(&self, current: u64) -> u64 {
        self.last_update.lock().most_connections.max(current)
    }
}

/// Returns `part` in percent of `whole`, at most 100.
fn percent(part: Duration, whole: Duration) -> u64 {
    let hundredths = (part.as_nanos() * 100).checked_div(whole.as_nanos()).unwrap_or(100);
    hundredths.min(100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_tells_the_last_second_from_the_one_before() {
        let process_stats = ProcessStats::default();
        let counts = FrontendStats::default();
        let rate = |millis| {
            process_stats.bytes_rate(Time::ZERO + Duration::from_millis(millis), std::iter::once(&counts))
        };
        let update = |millis, connections, slept| {
            let bytes = counts.read_cheap_one(|counts| &counts.bytes_out);
            process_stats.update(
                Time::ZERO + Duration::from_millis(millis),
                connections,
                bytes,
                2,
                Duration::from_millis(slept),
            );
        };
        assert_eq!((process_stats.idle_percent(), rate(500), process_stats.most_connections(3)), (100, 0, 3));
        counts.own().bytes_out.add(1000);
        assert_eq!(rate(500), 1000, "before the first look");
        update(10_000, 7, 5_000);
        assert_eq!([rate(10_000), rate(10_250)], [1000, 750]);
        assert_eq!(
            (process_stats.idle_percent(), process_stats.most_connections(3)),
            (100, 7),
            "there is nothing yet to compare with"
        );
        counts.own().bytes_out.add(400);
        update(10_100, 8, 5_001); // another generation's
        assert_eq!([rate(10_500), rate(11_000), rate(12_000)], [900, 400, 200], "the last one late");
        update(11_000, 2, 5_500);
        assert_eq!(
            (process_stats.idle_percent(), process_stats.most_connections(3)),
            (25, 8),
            "half a second of two"
        );
        update(12_000, 0, 9_000);
        assert_eq!((process_stats.idle_percent(), rate(13_000)), (100, 0), "never more");
        assert!(!process_stats.is_stopping());
        process_stats.stop();
        assert!(process_stats.is_stopping());
    }
}
