//! SETTINGS (RFC 9113, 6.5; RFC 8441, 3).

use super::{ACK, DEFAULT_MAX, HEADER, Header, LARGEST_MAX, header};
use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

pub(crate) const KIND: u8 = 0x4;

/// Largest number of settings in one frame. Seven have a meaning; a peer that sends more repeats them or
/// tests unknown ones, and a flood of settings costs this side more than the peer.
pub(crate) const MAX_SETTINGS: usize = 64;

/// The largest window (RFC 9113, 6.9.1).
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;

/// One setting with a checked value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    HeaderTableSize(u32),
    EnablePush(bool),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
    MaxHeaderListSize(u32),
    EnableConnectProtocol(bool),
    /// An unknown setting, which is ignored.
    Unknown,
}

impl Setting {
    fn read([a, b, value @ ..]: [u8; 6]) -> Result<Self, Problem> {
        let value = u32::from_be_bytes(value);
        let switch = |problem| match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(problem),
        };
        Ok(match u16::from_be_bytes([a, b]) {
            0x1 => Self::HeaderTableSize(value),
            0x2 => Self::EnablePush(switch(Problem::BadSetting)?),
            0x3 => Self::MaxConcurrentStreams(value),
            0x4 if value > MAX_WINDOW => return Err(Problem::WindowSetting),
            0x4 => Self::InitialWindowSize(value),
            0x5 if !(DEFAULT_MAX..=LARGEST_MAX).contains(&(value as usize)) => {
                return Err(Problem::BadSetting);
            }
            0x5 => Self::MaxFrameSize(value),
            0x6 => Self::MaxHeaderListSize(value),
            0x8 => Self::EnableConnectProtocol(switch(Problem::BadSetting)?),
            _ => Self::Unknown,
        })
    }

    fn bytes(self) -> [u8; 6] {
        let (number, value) = match self {
            Self::HeaderTableSize(value) => (0x1u16, value),
            Self::EnablePush(on) => (0x2, u32::from(on)),
            Self::MaxConcurrentStreams(value) => (0x3, value),
            Self::InitialWindowSize(value) => (0x4, value),
            Self::MaxFrameSize(value) => (0x5, value),
            Self::MaxHeaderListSize(value) => (0x6, value),
            Self::EnableConnectProtocol(on) => (0x8, u32::from(on)),
            Self::Unknown => (0, 0),
        };
        let ([a, b], [c, d, e, f]) = (number.to_be_bytes(), value.to_be_bytes());
        [a, b, c, d, e, f]
    }
}

/// Returns whether the frame acknowledges this side's settings; otherwise it has settings.
pub(crate) fn is_ack(header: &Header) -> Result<bool, Problem> {
    header.of_connection()?;
    let ack = header.has(ACK);
    if (ack && header.len != 0) || !header.len.is_multiple_of(6) {
        return Err(Problem::FrameSize);
    }
    if header.len / 6 > MAX_SETTINGS { Err(Problem::TooManySettings) } else { Ok(ack) }
}

/// Calls `each` with every setting of a payload, in order.
pub(crate) fn read(
    payload: &Chain,
    mut each: impl FnMut(Setting) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut cursor = payload.cursor();
    while cursor.remaining() > 0 {
        each(Setting::read(cursor.read_array().map_err(|_| Problem::FrameSize)?)?)?;
    }
    Ok(())
}

/// Appends a frame with this side's settings to `out`.
pub(crate) fn write(settings: &[Setting], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(settings.len() * 6, KIND, 0, StreamId::CONNECTION));
    for setting in settings {
        out.extend_from_slice(&setting.bytes());
    }
}

pub(crate) fn ack() -> [u8; HEADER] {
    header(0, KIND, ACK, StreamId::CONNECTION)
}
