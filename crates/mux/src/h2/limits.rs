//! Bounds on what a peer can make a connection hold or wait for.

use std::time::Duration;

/// Interim responses of one stream that wait to be taken. Servers send 100 and a 103 or two; of what is
/// beyond, the oldest go.
pub const MAX_INTERIM: usize = 8;

/// How long a client has to answer the first GOAWAY, before streams that it begins are refused: longer than
/// a round trip on any path, so that those under way are taken.
pub const LEAVE_ANSWER: Duration = Duration::from_secs(1);

/// How long a connection that is over goes on writing and reading, so that its last bytes reach a peer that
/// still sends: closed with bytes that nobody read, a socket is reset, and what is under way is lost.
pub const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read meanwhile.
pub const LINGER_BYTES: usize = 1 << 20;

/// Bytes that are read at once: where a peer sends much, four clusters.
#[cfg(not(any(loom, manylane_sim)))]
pub(crate) const READ: usize = 4 * manylane_buf::MAX_CLUSTER;
