//! DATA (RFC 9113, 6.1): the bytes of a message. The payload is not read here but handed on as it comes.

use super::{HEADER, Header, PADDED, header};
use crate::error::Problem;
use crate::stream_id::StreamId;

pub(crate) const KIND: u8 = 0x0;

/// Whether a byte that says how much padding follows stands before the data.
pub(crate) fn is_padded(header: &Header) -> bool {
    header.has(PADDED)
}

/// How many bytes of data a payload of `len` bytes has, of which the first says that there are `padding` more
/// at its end.
pub(crate) fn without_padding(len: usize, padding: u8) -> Result<usize, Problem> {
    len.checked_sub(1 + usize::from(padding)).ok_or(Problem::Padding)
}

/// What stands before `len` bytes of data.
#[inline]
pub(crate) fn before(len: usize, end: bool, stream: StreamId) -> [u8; HEADER] {
    header(len, KIND, u8::from(end) * super::END_STREAM, stream)
}
