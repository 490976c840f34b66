//! What the process does as a whole: how busy its lanes are, how much comes and goes in a second, and the
//! most that it was. Generations that follow on each other share it. The look once a second (`run::meter`)
//! writes it; those who ask read what it found.

use crate::counts::{FrontendStats, TlsStats};
use manylane_sched::Time;
use manylane_stats::Counter;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::time::Duration;

static PROCESS_STATS: LockClass = LockClass::new("process statistics", LockClass::LEAF);

const SECOND: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct ProcessStats {
    looks: Mutex<Looks>,
    stopping: AtomicBool,
    /// Resolutions that failed: the name is not there, or no name server gave an answer that is one.
    pub failed_resolutions: Counter,
    /// Connections of clients that speak TLS.
    pub tls_clients: TlsStats,
    /// The same with servers, also for health checks.
    pub tls_servers: TlsStats,
}

/// What the last look found.
#[derive(Debug, Default)]
struct Looks {
    at: Option<Time>,
    /// Time that the lanes had slept.
    slept: Duration,
    /// Percent of the time between the last two looks that the lanes slept.
    idle: Option<u64>,
    /// Bytes that were sent, and of these those of the second before.
    bytes: u64,
    grown: u64,
    /// The most connections in a second.
    most_connections: u64,
}

impl Default for ProcessStats {
    fn default() -> Self {
        let (stopping, failed_resolutions) = (AtomicBool::new(false), Counter::new("failed_resolutions"));
        Self {
            looks: Mutex::new(&PROCESS_STATS, Looks::default()),
            stopping,
            failed_resolutions,
            tls_clients: TlsStats::default(),
            tls_servers: TlsStats::default(),
        }
    }
}

impl ProcessStats {
    /// The soft stop has begun.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// A look: so many connections came in the second that ended now, so many bytes were sent since the
    /// start, and so long the lanes slept.
    pub(crate) fn look(&self, now: Time, connections: u64, bytes: u64, lanes: u32, slept: Duration) {
        let mut looks = self.looks.lock();
        looks.most_connections = looks.most_connections.max(connections);
        let passed = looks.at.map(|then| now.since(then));
        if passed.is_some_and(|passed| passed < SECOND / 2) {
            return; // a second generation looks, too
        }
        looks.idle = passed.map(|passed| percent(slept.saturating_sub(looks.slept), passed * lanes));
        let seconds = passed.map_or(1.0, |passed| passed.as_secs_f64().max(1.0));
        // fewer: a frontend has gone
        looks.grown = (bytes.saturating_sub(looks.bytes) as f64 / seconds) as u64;
        (looks.at, looks.slept, looks.bytes) = (Some(now), slept, bytes);
    }

    /// Percent of the last second that the lanes slept, on average. All of it, before it was looked at.
    pub fn idle_percent(&self) -> u64 {
        self.looks.lock().idle.unwrap_or(100)
    }

    /// Bytes that went to clients in the second that ends now: as [`meter`](crate::meter) has rates.
    pub fn bytes_rate(
        &self,
        now: Time,
        frontends: impl Iterator<Item = impl std::ops::Deref<Target = FrontendStats>>,
    ) -> u64 {
        let sum: u64 = frontends.map(|counts| counts.read_cheap_one(|counts| &counts.bytes_out)).sum();
        let looks = self.looks.lock();
        let Some(at) = looks.at else { return sum };
        let (current, passed) = (sum.saturating_sub(looks.bytes), now.since(at));
        if passed > SECOND {
            return (current as f64 / passed.as_secs_f64()) as u64; // the look is late
        }
        current + (looks.grown as f64 * (SECOND - passed).as_secs_f64()) as u64
    }

    /// The most of a second is forgotten.
    pub fn forget_most(&self) {
        self.looks.lock().most_connections = 0;
        self.tls_clients.forget_most();
        self.tls_servers.forget_most();
    }

    /// The most connections that came in a second; `current` are those of the last.
    pub fn most_connections(&self, current: u64) -> u64 {
        self.looks.lock().most_connections.max(current)
    }
}

/// How much of `whole` a part is.
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
        let look = |millis, connections, slept| {
            let bytes = counts.read_cheap_one(|counts| &counts.bytes_out);
            process_stats.look(
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
        look(10_000, 7, 5_000);
        assert_eq!([rate(10_000), rate(10_250)], [1000, 750]);
        assert_eq!(
            (process_stats.idle_percent(), process_stats.most_connections(3)),
            (100, 7),
            "there is nothing yet to compare with"
        );
        counts.own().bytes_out.add(400);
        look(10_100, 8, 5_001); // another generation's
        assert_eq!([rate(10_500), rate(11_000), rate(12_000)], [900, 400, 200], "the last one late");
        look(11_000, 2, 5_500);
        assert_eq!(
            (process_stats.idle_percent(), process_stats.most_connections(3)),
            (25, 8),
            "half a second of two"
        );
        look(12_000, 0, 9_000);
        assert_eq!((process_stats.idle_percent(), rate(13_000)), (100, 0), "never more");
        assert!(!process_stats.is_stopping());
        process_stats.stop();
        assert!(process_stats.is_stopping());
    }
}
