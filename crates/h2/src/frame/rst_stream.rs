//! RST_STREAM (RFC 9113, 6.4): resets a stream.

use super::{HEADER, Header, exactly, fixed};
use crate::error::{Problem, Reason};
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x3;

pub(crate) fn read(header: &Header, payload: &Chain) -> Result<Reason, Problem> {
    header.of_stream()?;
    Ok(Reason::from_code(u32::from_be_bytes(exactly(payload)?)))
}

pub(crate) fn frame(stream: StreamId, reason: Reason) -> [u8; HEADER + 4] {
    fixed(KIND, 0, stream, reason.code().to_be_bytes())
}
