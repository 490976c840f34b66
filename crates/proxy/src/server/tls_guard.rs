//! What a connection to a server that speaks TLS holds: its place within `maxsslconn`, and its part in the
//! counters of the process.

use crate::conn_limit::ConnLimit;
use crate::generation::Generation;
use crate::process_stats::ProcessStats;
use manylane_sync::Arc;

/// See the module. To be dropped on the lane that began it, where the connection stays.
#[derive(Debug)]
pub(crate) struct TlsGuard {
    stats: Arc<ProcessStats>,
    places: Arc<ConnLimit>,
}

impl TlsGuard {
    /// None: there are as many connections with TLS as there may be. Nobody waits: the client may hold the
    /// place that would be waited for.
    pub(crate) fn begin(generation: &Generation) -> Option<Self> {
        if !generation.tls_places.try_enter() {
            return None;
        }
        generation.process_stats.tls_servers.own().connections.add(1);
        Some(Self { stats: generation.process_stats.clone(), places: generation.tls_places.clone() })
    }
}

impl Drop for TlsGuard {
    fn drop(&mut self) {
        self.stats.tls_servers.own().connections_ended.add(1);
        self.places.leave();
    }
}
