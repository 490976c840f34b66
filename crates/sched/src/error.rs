//! What can go wrong, in one sentence each.

use manylane_pool::AllocError;
use manylane_sync::LaneId;
use std::fmt;

/// A task could not be started. Its future was dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpawnError(pub(crate) Cause);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    #[cfg_attr(loom, allow(dead_code))] // models take memory from the allocator
    Pool(AllocError),
    Memory,
    Slots,
    Ended(LaneId),
}

impl SpawnError {
    /// Whether the lane has ended (or never began), so that trying again later is in vain.
    pub fn lane_ended(self) -> bool {
        matches!(self.0, Cause::Ended(_))
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cause::Pool(error) => write!(f, "the task was not started: {error}"),
            Cause::Memory => f.write_str("the task was not started: the system has no memory for it"),
            Cause::Slots => f.write_str(
                "the task was not started: the lane's table of tasks cannot grow; end some tasks first",
            ),
            Cause::Ended(lane) => {
                write!(f, "the task was not started: {lane} has no scheduler, or its has ended")
            }
        }
    }
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpawnError({self})")
    }
}

impl std::error::Error for SpawnError {}

/// The calling thread has a scheduler already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTaken(pub(crate) LaneId);

impl fmt::Display for LaneTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} has a scheduler already: one thread runs one lane; use that one, or another thread",
            self.0
        )
    }
}

impl std::error::Error for LaneTaken {}
