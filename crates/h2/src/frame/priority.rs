//! PRIORITY (RFC 9113, 6.3): ignored, but for what makes it an error.

use super::{Header, exactly};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x2;

/// The stream that the frame's own is to depend on. A wrong size is an error of the stream alone.
pub(crate) fn read(header: &Header, payload: &Chain) -> Result<StreamId, Problem> {
    header.of_stream()?;
    let [a, b, c, d, _weight] = exactly::<5>(payload)?;
    Ok(StreamId::new(u32::from_be_bytes([a, b, c, d])))
}
