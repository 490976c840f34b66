//! Who is on the other side.

use manylane_sync::{LaneId, lane};

/// Identity of a socket's user at the moment when it connected, began to listen, made a pair, or sent a
/// message with credentials. Filled in here, so it cannot be made up by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Process, as `getpid` says.
    pub process: u32,
    /// Effective user.
    pub user: u32,
    /// Effective group.
    pub group: u32,
    /// The calling thread's lane.
    pub lane: LaneId,
}

impl Credentials {
    /// Of the calling thread. Three system calls.
    pub fn own() -> Self {
        // SAFETY: these calls take nothing and cannot fail.
        let (process, user, group) = unsafe { (libc::getpid(), libc::geteuid(), libc::getegid()) };
        Self { process: process.unsigned_abs(), user, group, lane: lane::current() }
    }
}
