//! Frames (RFC 9113, 4 and 6): a file for each kind, which reads its payload and writes it.
//!
//! Reading judges what the frame itself says: its length, its stream, the values in it. What the frame means
//! to the connection is judged there.

pub(crate) mod continuation;
pub(crate) mod data;
pub(crate) mod goaway;
pub(crate) mod headers;
pub(crate) mod ping;
pub(crate) mod priority;
pub(crate) mod priority_update;
pub(crate) mod push_promise;
pub(crate) mod rst_stream;
pub(crate) mod settings;
pub(crate) mod window_update;

use crate::error::Problem;
use crate::stream_id::StreamId;
use manylane_buf::Chain;

/// Bytes before each payload.
pub(crate) const HEADER: usize = 9;

/// What a payload may have until settings say otherwise (RFC 9113, 6.5.2); no setting may be below it.
pub(crate) const DEFAULT_MAX: usize = 16_384;

/// The most that `SETTINGS_MAX_FRAME_SIZE` can allow.
pub(crate) const LARGEST_MAX: usize = (1 << 24) - 1;

/// `END_STREAM` of DATA and HEADERS.
pub(crate) const END_STREAM: u8 = 0x1;
/// `ACK` of SETTINGS and PING.
pub(crate) const ACK: u8 = 0x1;
/// `END_HEADERS` of HEADERS and CONTINUATION.
pub(crate) const END_HEADERS: u8 = 0x4;
/// `PADDED` of DATA and HEADERS.
pub(crate) const PADDED: u8 = 0x8;
/// `PRIORITY` of HEADERS.
pub(crate) const PRIORITY: u8 = 0x20;

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    Goaway,
    WindowUpdate,
    Continuation,
    PriorityUpdate,
    /// Any other: it is ignored (RFC 9113, 4.1).
    Unknown,
}

impl Kind {
    fn of(number: u8) -> Self {
        match number {
            data::KIND => Self::Data,
            headers::KIND => Self::Headers,
            priority::KIND => Self::Priority,
            rst_stream::KIND => Self::RstStream,
            settings::KIND => Self::Settings,
            push_promise::KIND => Self::PushPromise,
            ping::KIND => Self::Ping,
            goaway::KIND => Self::Goaway,
            window_update::KIND => Self::WindowUpdate,
            continuation::KIND => Self::Continuation,
            priority_update::KIND => Self::PriorityUpdate,
            _ => Self::Unknown,
        }
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: StreamId,
}

impl Header {
    /// From its nine bytes. The reserved bit of the stream is ignored.
    #[inline]
    pub(crate) fn read([a, b, c, kind, flags, stream @ ..]: [u8; HEADER]) -> Self {
        Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: Kind::of(kind),
            flags,
            stream: StreamId::new(u32::from_be_bytes(stream)),
        }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Its stream, where the frame is one of a stream.
    #[inline]
    pub(crate) fn of_stream(&self) -> Result<StreamId, Problem> {
        if self.stream.is_connection() { Err(Problem::NoStream) } else { Ok(self.stream) }
    }

    /// Refuses a stream where the frame is one of the connection.
    #[inline]
    pub(crate) fn of_connection(&self) -> Result<(), Problem> {
        if self.stream.is_connection() { Ok(()) } else { Err(Problem::StreamNotAllowed) }
    }
}

/// The nine bytes before a payload of `len` bytes.
#[inline]
pub(crate) fn header(len: usize, kind: u8, flags: u8, stream: StreamId) -> [u8; HEADER] {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [d, e, f, g] = stream.number().to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

/// A frame of fixed size as bytes: `N` are those of header and payload.
#[inline]
fn fixed<const P: usize, const N: usize>(kind: u8, flags: u8, stream: StreamId, payload: [u8; P]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..HEADER].copy_from_slice(&header(P, kind, flags, stream));
    bytes[HEADER..].copy_from_slice(&payload);
    bytes
}

/// A payload that has exactly `N` bytes.
#[inline]
fn exactly<const N: usize>(payload: &Chain) -> Result<[u8; N], Problem> {
    if payload.len() != N {
        return Err(Problem::FrameSize);
    }
    payload.cursor().read_array().map_err(|_| Problem::FrameSize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_before_a_payload_is_read() {
        let stream = StreamId::new(0x7fff_fffe);
        let bytes = header(0x12_3456, headers::KIND, END_STREAM | PADDED, stream);
        assert_eq!(Header::read(bytes), Header { len: 0x12_3456, kind: Kind::Headers, flags: 9, stream });
        // The reserved bit is ignored.
        assert_eq!(Header::read([0, 0, 0, 77, 0, 0x80, 0, 0, 1]).stream.number(), 1);
        assert_eq!(Header::read([0, 0, 0, 77, 0, 0x80, 0, 0, 1]).kind, Kind::Unknown);
    }
}
