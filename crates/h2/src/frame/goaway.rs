//! GOAWAY (RFC 9113, 6.8).

use super::{HEADER, Header, fixed};
use crate::error::{Problem, Reason};
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x7;

/// Returns the last stream that the peer may have acted on, and the reason. Debug data is dropped.
pub(crate) fn read(header: &Header, payload: &Chain) -> Result<(StreamId, Reason), Problem> {
    header.of_connection()?;
    let mut cursor = payload.cursor();
    let last = cursor.read_u32().map_err(|_| Problem::FrameSize)?;
    let reason = cursor.read_u32().map_err(|_| Problem::FrameSize)?;
    Ok((StreamId::new(last), Reason::from_code(reason)))
}

pub(crate) fn frame(last: StreamId, reason: Reason) -> [u8; HEADER + 8] {
    let ([a, b, c, d], [e, f, g, h]) = (last.number().to_be_bytes(), reason.code().to_be_bytes());
    fixed(KIND, 0, StreamId::CONNECTION, [a, b, c, d, e, f, g, h])
}
