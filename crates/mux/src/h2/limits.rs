//! Bounds on what a peer can make a connection hold or wait for.

use std::time::Duration;

/// Largest number of untaken interim responses of one stream. Servers send 100 and one or two 103s; beyond
/// that, the oldest are dropped.
pub const MAX_INTERIM: usize = 8;

/// Time for a client to answer the first GOAWAY, before the server refuses its new streams. It is longer than
/// any round trip, so that streams under way are still accepted.
pub const LEAVE_ANSWER: Duration = Duration::from_secs(1);

/// Time for which a finished connection continues to write and read, so that its last bytes reach a peer that
/// still sends. A socket that is closed with unread bytes is reset, and the bytes under way are lost.
pub const LINGER: Duration = Duration::from_secs(1);

/// Largest number of bytes to read in that time.
pub const LINGER_BYTES: usize = 1 << 20;

/// Number of bytes in one read: if a peer sends much, four clusters.
#[cfg(not(any(loom, manylane_sim)))]
pub(crate) const READ: usize = 4 * manylane_buf::MAX_CLUSTER;
