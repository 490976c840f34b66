//! Scratch memory that is used within one call. It belongs to the lane, so that idle connections have none.

use std::cell::Cell;

/// Number of bytes that a vector may keep between calls; after a huge head, the rest is freed.
const KEEP: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct Scratch {
    /// A header block.
    pub(crate) block: Vec<u8>,
    /// Decoded strings, and names in lower case.
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

/// Lends the lane's scratch memory, empty, to `work`. It is taken out meanwhile, because lanes of the
/// simulator share a thread and may switch inside `work`.
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
