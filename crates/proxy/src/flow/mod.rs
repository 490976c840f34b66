//! Transfers bytes between two connections, with timeouts for both sides.

mod ends;
mod timeouts;

pub(crate) use ends::{BodyEnd, ClientEnd, EndFailed, H2End, NotBegun, NotSent, ServerEnd, protocol};
pub(crate) use timeouts::{Direction, StreamTimeouts, Timeouts, Waits};

use manylane_net::SplicePolicy;

/// Splice policy of each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Splicing {
    pub(crate) up: Option<SplicePolicy>,
    pub(crate) down: Option<SplicePolicy>,
}

/// Most bytes that one step of a splice moves.
pub(crate) const SPLICED_AT_ONCE: usize = 1 << 20;
