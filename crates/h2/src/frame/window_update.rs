//! WINDOW_UPDATE (RFC 9113, 6.9).

use super::{HEADER, Header, exactly, fixed};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x8;

/// Returns the increment. The caller refuses 0, as an error of the frame's stream or of the connection.
pub(crate) fn read(_: &Header, payload: &Chain) -> Result<u32, Problem> {
    Ok(u32::from_be_bytes(exactly(payload)?) & 0x7fff_ffff)
}

pub(crate) fn frame(stream: StreamId, more: u32) -> [u8; HEADER + 4] {
    fixed(KIND, 0, stream, more.to_be_bytes())
}
