//! Memory that is only used within one call: a lane's own, so that idle connections have none of it.

use std::cell::Cell;

/// Bytes that a vector may keep between calls; what a huge head made it take beyond is given back.
const KEEP: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct Scratch {
    /// A header block.
    pub(crate) block: Vec<u8>,
    /// Strings that are being decoded; names in lower case.
    pub(crate) strings: Vec<u8>,
    /// A head in the form of HTTP/1.
    pub(crate) text: Vec<u8>,
    /// Values of pseudo-headers.
    pub(crate) pseudo: Vec<u8>,
    /// Cookies, joined.
    pub(crate) cookies: Vec<u8>,
}

thread_local! {
    static LANE: Cell<Scratch> = Cell::default();
}

/// Lends the lane's memory, all of it empty. It is taken meanwhile, since the simulator's lanes share a
/// thread and may change places in `work`.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = LANE.take();
    let result = work(&mut scratch);
    let Scratch { block, strings, text, pseudo, cookies } = &mut scratch;
    for vector in [block, strings, text, pseudo, cookies] {
        vector.clear();
        if vector.capacity() > KEEP {
            vector.shrink_to(KEEP);
        }
    }
    LANE.set(scratch);
    result
}
