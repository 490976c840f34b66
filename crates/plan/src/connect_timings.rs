//! Times and counts of the attempts to reach a server.

use crate::termination::Termination;
use manylane_balance::Index;
use manylane_sched::Time;
use std::time::Duration;

/// Times and counts of the way to a server.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTimings {
    /// When the attempt began.
    pub since: Time,
    /// Time in queues.
    pub queued: Duration,
    /// Time until the connection was established.
    pub connected: Duration,
    /// Number of retries.
    pub retries: u32,
    /// The last retry went to another server.
    pub redispatched: bool,
    /// Number of requests served from server queues while this one waited there, itself included.
    pub server_queue: u64,
    /// The same number for the backend's queue.
    pub backend_queue: u64,
}

impl ConnectTimings {
    /// Returns the state at the start of an attempt.
    pub fn new(since: Time) -> Self {
        let (queued, connected) = (Duration::ZERO, Duration::ZERO);
        Self { since, queued, connected, retries: 0, redispatched: false, server_queue: 0, backend_queue: 0 }
    }
}

/// No server was reached.
#[derive(Debug)]
pub struct NotReached {
    /// How the stream ends.
    pub ended: Termination,
    /// The server of the last attempt, if there was one.
    pub server: Option<Index>,
    /// Times and counts until then.
    pub timings: ConnectTimings,
}
