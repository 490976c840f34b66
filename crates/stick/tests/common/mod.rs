//! What tests of tables share.

use manylane_expr::Type;
use manylane_stick::{Data, Spec};
use std::num::NonZeroU32;

/// A table of at most `size` keys of this type, which stay for `expire` milliseconds.
pub(crate) fn spec(key: Type, size: u32, expire: u64, data: Vec<Data>) -> Spec {
    let bytes_factor = NonZeroU32::MIN;
    Spec { key, key_bytes: 0, size, expire, nopurge: false, data, bytes_factor, turns: false }
}
