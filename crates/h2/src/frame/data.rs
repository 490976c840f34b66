//! DATA (RFC 9113, 6.1): the bytes of a message. The payload is not read here, but passed on as it comes.

use super::{HEADER, Header, PADDED, header};
use crate::error::Problem;
use crate::stream_id::StreamId;

pub(crate) const KIND: u8 = 0x0;

/// Returns whether a byte with the length of the padding stands before the data.
pub(crate) fn is_padded(header: &Header) -> bool {
    header.has(PADDED)
}

/// Returns the number of data bytes in a payload of `len` bytes, of which the first is the length byte and
/// the last `padding` are padding.
pub(crate) fn without_padding(len: usize, padding: u8) -> Result<usize, Problem> {
    len.checked_sub(1 + usize::from(padding)).ok_or(Problem::Padding)
}

/// Returns the header of a frame with `len` bytes of data.
#[inline]
pub(crate) fn before(len: usize, end: bool, stream: StreamId) -> [u8; HEADER] {
    header(len, KIND, u8::from(end) * super::END_STREAM, stream)
}
