//! CONTINUATION (RFC 9113, 6.10): the header block goes on. Its payload is a part of the block and nothing
//! else.

pub(crate) const KIND: u8 = 0x9;
