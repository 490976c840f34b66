//! Errors of the scheduler, each with a sentence.

use manylane_pool::AllocError;
use manylane_sync::LaneId;
use std::fmt;

/// Error: a task was not started, and its future was dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpawnError(pub(crate) Cause);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    #[cfg_attr(loom, allow(dead_code))] // models use the global allocator
    Pool(AllocError),
    Memory,
    Slots,
    Ended(LaneId),
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
                write!(f, "the task was not started: {lane} has no scheduler, or its scheduler has ended")
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

/// Error: the calling thread already has a scheduler.
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
