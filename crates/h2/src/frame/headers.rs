//! HEADERS (RFC 9113, 6.2): the beginning of a header block.

use super::{Header, PADDED, PRIORITY};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x1;

/// Contents of the frame, besides its flags.
pub(crate) struct Headers {
    /// Part of the header block in this frame.
    pub(crate) block: Chain,
    /// Stream that its priority depends on, used only to refuse a stream that depends on itself.
    pub(crate) depends_on: Option<StreamId>,
}

impl Headers {
    /// Removes padding and priority from a payload.
    pub(crate) fn read(header: &Header, mut payload: Chain) -> Result<Self, Problem> {
        let (mut before, mut behind, mut depends_on) = (0, 0, None);
        {
            let mut cursor = payload.cursor();
            if header.has(PADDED) {
                behind = usize::from(cursor.read_u8().map_err(|_| Problem::FrameSize)?);
                before += 1;
            }
            if header.has(PRIORITY) {
                depends_on = Some(StreamId::new(cursor.read_u32().map_err(|_| Problem::FrameSize)?));
                cursor.read_u8().map_err(|_| Problem::FrameSize)?;
                before += 5;
            }
        }
        let left = payload.len() - before;
        payload.trim_front(before).map_err(|_| Problem::FrameSize)?;
        payload.truncate(left.checked_sub(behind).ok_or(Problem::Padding)?);
        Ok(Self { block: payload, depends_on })
    }
}
