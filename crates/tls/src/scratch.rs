//! Buffers that are used within one call. They belong to the lane, so connections need none.

use std::cell::Cell;
use zeroize::Zeroize;

/// The largest record of TLS 1.2 with its header: encryption may add 2048 bytes.
pub(crate) const LARGEST_RECORD: usize = 5 + (1 << 14) + 2048;

#[derive(Default)]
pub(crate) struct Scratch {
    /// Received records, one after another.
    pub(crate) input: Vec<u8>,
    /// Records to send.
    pub(crate) output: Vec<u8>,
}

thread_local! {
    static LANE: Cell<Scratch> = Cell::default();
}

/// Lends the lane's buffers to `work`. They are moved out meanwhile, since the simulator's lanes share a
/// thread and may switch within `work`.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = LANE.take();
    let result = work(&mut scratch);
    // The input was decrypted in place, so it holds the peer's data.
    scratch.input.as_mut_slice().zeroize();
    scratch.input.clear();
    if scratch.input.capacity() > 4 * LARGEST_RECORD {
        scratch.input = Vec::new();
    }
    if scratch.output.capacity() > 4 * LARGEST_RECORD {
        scratch.output = Vec::new(); // a handshake with a long chain made it grow
    }
    LANE.set(scratch);
    result
}
