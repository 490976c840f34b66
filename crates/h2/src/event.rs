//! What happens on a connection.

use crate::error::{Problem, Reason};
use crate::head::{Request, Response};
use crate::stream_id::StreamId;
use manylane_buf::Chain;
use manylane_http::Head;

/// Something that happened. Events of one stream come in the order of its frames.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would ask the global allocator for room
pub enum Event {
    /// A client began a stream. `end`: there is no data.
    Request {
        /// The stream.
        stream: StreamId,
        /// Its request.
        request: Request,
        /// Nothing follows.
        end: bool,
    },
    /// A client began a stream with a head that is larger than [`Config::head`](crate::Config::head) or has
    /// too many fields. The user answers it, with 431 for one, or resets it.
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// Nothing follows.
        end: bool,
    },
    /// A response that is not the last of its stream: 100, 103 and their like.
    Interim {
        /// The stream.
        stream: StreamId,
        /// The response.
        response: Response,
    },
    /// The response.
    Response {
        /// The stream.
        stream: StreamId,
        /// The response.
        response: Response,
        /// Nothing follows.
        end: bool,
    },
    /// Data, by reference. It counts against the windows until it is
    /// [consumed](crate::Connection::consume).
    Data {
        /// The stream.
        stream: StreamId,
        /// The data; empty where only the end came.
        data: Chain,
        /// Nothing follows.
        end: bool,
    },
    /// Trailers, which end what comes.
    Trailers {
        /// The stream.
        stream: StreamId,
        /// The trailers.
        trailers: Head,
    },
    /// A stream ended at once. Nothing more is told of it.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why. [`Reason::REFUSED_STREAM`]: nothing was done with it, a request may be tried again.
        reason: Reason,
        /// The rule that the peer broke, where it was reset for that; none where the peer ended it.
        problem: Option<Problem>,
    },
    /// A stream that the user was not told of was refused: for logs.
    Refused {
        /// The stream.
        stream: StreamId,
        /// Why.
        problem: Problem,
    },
    /// The peer's settings came, its first or others: how many streams it allows may be another number.
    Settings,
    /// The peer begins no further streams, or takes none; those behind `last` are told as
    /// [refused](Self::Reset).
    GoAway {
        /// The last stream of ours that the peer may act on.
        last: StreamId,
        /// Why.
        reason: Reason,
    },
    /// A [ping](crate::Connection::ping) was answered.
    Pong {
        /// What it had.
        payload: [u8; 8],
    },
}
