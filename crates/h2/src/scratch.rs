//! Memory that is only used within one call: a lane's own, so that idle connections have none of it.

use std::cell::RefCell;

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
    static LANE: RefCell<Scratch> = RefCell::default();
}

/// Lends the lane's memory, all of it empty. Not to be called within itself.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    LANE.with_borrow_mut(|scratch| {
        let result = work(scratch);
        let Scratch { block, strings, text, pseudo, cookies } = scratch;
        for vector in [block, strings, text, pseudo, cookies] {
            vector.clear();
            if vector.capacity() > KEEP {
                vector.shrink_to(KEEP);
            }
        }
        result
    })
}
