//! Bytes between two connections: who is waited for, and for how long.

mod bandwidth;
mod ends;
mod timeouts;

pub(crate) use bandwidth::{Bandwidth, FilterId, Limits};
pub(crate) use ends::{BodyEnd, ClientEnd, EndFailed, H2End, NotBegun, NotSent, ServerEnd, protocol};
pub(crate) use timeouts::{Direction, Side, StreamTimeouts, Timeouts, Timer, Waits};

use manylane_net::SplicePolicy;

/// When each direction is spliced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Splicing {
    pub(crate) up: Option<SplicePolicy>,
    pub(crate) down: Option<SplicePolicy>,
}

/// Bytes that one step of a splice moves at most.
pub(crate) const SPLICED_AT_ONCE: usize = 1 << 20;
