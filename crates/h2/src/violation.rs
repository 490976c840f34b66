//! What a peer sent against the rules, kept for reports.

use crate::error::Problem;
use crate::frame::{Header, Kind};
use manylane_buf::Chain;

/// Largest number of bytes that are kept of a frame: its payload at the usual settings.
pub const MAX_KEPT: usize = 16_384;

/// A rule that the peer broke, and the frame that broke it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub problem: Problem,
    /// Name of the frame's kind in RFC 9113. A header block counts as one HEADERS frame.
    pub frame: &'static str,
    /// Flags of the frame.
    pub flags: u8,
    /// Number of its stream, 0 for the connection.
    pub stream: u32,
    /// Number of bytes of its payload.
    pub len: usize,
    /// The payload, or as much of it as was read at once and is at most [`MAX_KEPT`] bytes: none of DATA, and
    /// none of a frame that is refused by its header. Of a header block its compressed fields.
    pub bytes: Vec<u8>,
}

/// A frame that breaks a rule.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) header: Header,
    /// What was read of its payload.
    pub(crate) payload: Option<&'a Chain>,
}

impl From<Header> for At<'_> {
    fn from(header: Header) -> Self {
        Self { header, payload: None }
    }
}

impl<'a> At<'a> {
    pub(crate) fn new(header: Header, payload: &'a Chain) -> Self {
        Self { header, payload: Some(payload) }
    }

    pub(crate) fn violation(&self, problem: Problem) -> Violation {
        let Header { kind, flags, stream, len } = self.header;
        let mut bytes = Vec::new();
        for segment in self.payload.into_iter().flat_map(Chain::segments) {
            let room = MAX_KEPT - bytes.len();
            bytes.extend_from_slice(&segment[..segment.len().min(room)]);
        }
        Violation { problem, frame: name(kind), flags, stream: stream.number(), len, bytes }
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Data => "DATA",
        Kind::Headers => "HEADERS",
        Kind::Priority => "PRIORITY",
        Kind::RstStream => "RST_STREAM",
        Kind::Settings => "SETTINGS",
        Kind::PushPromise => "PUSH_PROMISE",
        Kind::Ping => "PING",
        Kind::Goaway => "GOAWAY",
        Kind::WindowUpdate => "WINDOW_UPDATE",
        Kind::Continuation => "CONTINUATION",
        Kind::PriorityUpdate => "PRIORITY_UPDATE",
        Kind::Unknown => "of unknown kind",
    }
}
