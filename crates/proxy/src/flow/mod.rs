//! Transfers bytes between two connections, with timeouts for both sides.

mod ends;
mod timeouts;

pub(crate) use ends::{BodyEnd, ClientEnd, EndFailed, H2End, NotBegun, NotSent, ServerEnd, protocol};
pub(crate) use timeouts::{Direction, StreamTimeouts, Timeouts, Waits};

use manylane_net::SplicePolicy;
use manylane_plan::generation::{Backend, Frontend, Generation};

/// Splice policy of each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Splicing {
    pub(crate) up: Option<SplicePolicy>,
    pub(crate) down: Option<SplicePolicy>,
}

impl Splicing {
    /// Returns the policies of a stream between two proxies.
    pub(crate) fn of(generation: &Generation, frontend: &Frontend, backend: &Backend) -> Self {
        if generation.process.no_splice {
            return Self::default();
        }
        let (f, b) = (&frontend.common, &backend.common);
        Self { up: f.splice_request.or(b.splice_request), down: f.splice_response.or(b.splice_response) }
    }
}

/// Most bytes that one step of a splice moves.
pub(crate) const SPLICED_AT_ONCE: usize = 1 << 20;
