//! Memory that is only used within one call: a lane's own, so that connections have none of it.

use std::cell::Cell;
use zeroize::Zeroize;

/// The largest record of TLS 1.2, with its header: what is encrypted may be so much longer than its content.
pub(crate) const LARGEST_RECORD: usize = 5 + (1 << 14) + 2048;

#[derive(Default)]
pub(crate) struct Scratch {
    /// Records that came, one behind another.
    pub(crate) input: Vec<u8>,
    /// Records that are made.
    pub(crate) output: Vec<u8>,
}

thread_local! {
    static LANE: Cell<Scratch> = Cell::default();
}

/// Lends the lane's memory. It is taken meanwhile, since the simulator's lanes share a thread and may change
/// places in `work`.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = LANE.take();
    let result = work(&mut scratch);
    // It held what the peers wanted to keep to themselves.
    scratch.input.as_mut_slice().zeroize();
    scratch.input.clear();
    if scratch.input.capacity() > 4 * LARGEST_RECORD {
        scratch.input = Vec::new();
    }
    if scratch.output.capacity() > 4 * LARGEST_RECORD {
        scratch.output = Vec::new(); // a handshake with a long chain
    }
    LANE.set(scratch);
    result
}
