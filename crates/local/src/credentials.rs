//! Credentials of the peer.

use manylane_sync::{LaneId, lane};

/// Identity of a socket's user at the moment when it connected, began to listen, made a pair, or sent a
/// message with credentials. This crate fills it in, so the peer cannot forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Process id (`getpid`).
    pub process: u32,
    /// Effective user id.
    pub user: u32,
    /// Effective group id.
    pub group: u32,
    /// Lane of the calling thread.
    pub lane: LaneId,
}

impl Credentials {
    /// Returns those of the calling thread. Takes three system calls.
    pub fn own() -> Self {
        // SAFETY: these calls take nothing and cannot fail.
        let (process, user, group) = unsafe { (libc::getpid(), libc::geteuid(), libc::getegid()) };
        Self { process: process.unsigned_abs(), user, group, lane: lane::current() }
    }
}
