//! CONTINUATION (RFC 9113, 6.10): the next part of a header block, which is the whole payload.

pub(crate) const KIND: u8 = 0x9;
