//! PRIORITY (RFC 9113, 6.3): ignored, except for errors.

use super::{Header, exactly};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x2;

/// Returns the stream that the frame's stream depends on. The caller treats a wrong size as an error of the
/// stream.
pub(crate) fn read(header: &Header, payload: &Chain) -> Result<StreamId, Problem> {
    header.of_stream()?;
    let [a, b, c, d, _weight] = exactly::<5>(payload)?;
    Ok(StreamId::new(u32::from_be_bytes([a, b, c, d])))
}
