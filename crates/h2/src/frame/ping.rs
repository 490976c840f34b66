//! PING (RFC 9113, 6.7).

use super::{ACK, HEADER, Header, exactly, fixed};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x6;

/// Returns whether the frame answers a ping of this side, and its eight bytes.
pub(crate) fn read(header: &Header, payload: &Chain) -> Result<(bool, [u8; 8]), Problem> {
    header.of_connection()?;
    Ok((header.has(ACK), exactly(payload)?))
}

pub(crate) fn frame(ack: bool, payload: [u8; 8]) -> [u8; HEADER + 8] {
    fixed(KIND, u8::from(ack) * ACK, StreamId::CONNECTION, payload)
}
