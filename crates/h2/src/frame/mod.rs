//! Frames (RFC 9113, 4 and 6): a file for each kind reads and writes its payload.
//!
//! Reading checks the frame itself: its length, its stream, its values. The connection checks what the frame
//! means to it.

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

/// Size of a frame's header, in bytes.
pub(crate) const HEADER: usize = 9;

/// Largest payload until settings allow more (RFC 9113, 6.5.2); no setting may be below it.
pub(crate) const DEFAULT_MAX: usize = 16_384;

/// Largest value of `SETTINGS_MAX_FRAME_SIZE`.
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

/// Kind of a frame.
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
    /// Any other kind, which is ignored (RFC 9113, 4.1).
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

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: StreamId,
}

impl Header {
    /// Reads the nine bytes. The reserved bit of the stream is ignored.
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

    /// Returns the stream; an error if the frame has none.
    #[inline]
    pub(crate) fn of_stream(&self) -> Result<StreamId, Problem> {
        if self.stream.is_connection() { Err(Problem::NoStream) } else { Ok(self.stream) }
    }

    /// Returns an error if the frame has a stream.
    #[inline]
    pub(crate) fn of_connection(&self) -> Result<(), Problem> {
        if self.stream.is_connection() { Ok(()) } else { Err(Problem::StreamNotAllowed) }
    }
}

/// Returns the header of a frame with a payload of `len` bytes.
#[inline]
pub(crate) fn header(len: usize, kind: u8, flags: u8, stream: StreamId) -> [u8; HEADER] {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [d, e, f, g] = stream.number().to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

/// Returns a frame of fixed size. `N` is the size of header and payload.
#[inline]
fn fixed<const P: usize, const N: usize>(kind: u8, flags: u8, stream: StreamId, payload: [u8; P]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..HEADER].copy_from_slice(&header(P, kind, flags, stream));
    bytes[HEADER..].copy_from_slice(&payload);
    bytes
}

/// Returns a payload that must have exactly `N` bytes.
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
