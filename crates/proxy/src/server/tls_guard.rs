//! Guard of a TLS connection to a server: a permit of `maxsslconn`, and the counters of the process.

use manylane_plan::ConnLimit;
use manylane_plan::generation::Generation;
use manylane_plan::process_stats::ProcessStats;
use manylane_sync::Arc;

/// The guard. Drop it on the lane where it began, since counters are per lane.
#[derive(Debug)]
pub struct TlsGuard {
    stats: Arc<ProcessStats>,
    conn_limit: Arc<ConnLimit>,
}

impl TlsGuard {
    /// Returns the guard, or `None` if `maxsslconn` is reached. Does not wait, since the client of this
    /// request may hold the permit that it would wait for.
    pub fn begin(generation: &Generation) -> Option<Self> {
        if !generation.tls_conn_limit.try_enter() {
            return None;
        }
        generation.process_stats.tls_servers.own().connections.add(1);
        Some(Self { stats: generation.process_stats.clone(), conn_limit: generation.tls_conn_limit.clone() })
    }
}

impl Drop for TlsGuard {
    fn drop(&mut self) {
        self.stats.tls_servers.own().connections_ended.add(1);
        self.conn_limit.leave();
    }
}
