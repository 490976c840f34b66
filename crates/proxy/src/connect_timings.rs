//! What it took to reach a server, or to try in vain.

use crate::termination::Termination;
use manylane_balance::Index;
use manylane_sched::Time;
use std::time::Duration;

/// Times and counts of the way to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTimings {
    /// When the attempt began.
    pub(crate) since: Time,
    /// Time in queues.
    pub(crate) queued: Duration,
    /// Time until the connection was established.
    pub(crate) connected: Duration,
    /// Number of retries.
    pub(crate) retries: u32,
    /// The last retry went to another server.
    pub(crate) redispatched: bool,
    /// Number of requests served from server queues while this one waited there, itself included.
    pub(crate) server_queue: u64,
    /// The same number for the backend's queue.
    pub(crate) backend_queue: u64,
}

impl ConnectTimings {
    /// Returns the state at the begin of an attempt.
    pub(crate) fn new(since: Time) -> Self {
        let (queued, connected) = (Duration::ZERO, Duration::ZERO);
        Self { since, queued, connected, retries: 0, redispatched: false, server_queue: 0, backend_queue: 0 }
    }
}

/// No server was reached.
#[derive(Debug)]
pub(crate) struct NotReached {
    /// How the stream ends.
    pub(crate) ended: Termination,
    /// The server of the last attempt, if there was one.
    pub(crate) server: Option<Index>,
    /// Times and counts until then.
    pub(crate) timings: ConnectTimings,
}
