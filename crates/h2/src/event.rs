//! Events of a connection.

use crate::error::{Problem, Reason};
use crate::head::{Request, Response};
use crate::stream_id::StreamId;
use manylane_buf::Chain;
use manylane_http::Head;

/// An event. The events of one stream come in the order of its frames.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would ask the global allocator for room
pub enum Event {
    /// A client began a stream.
    Request {
        /// The stream.
        stream: StreamId,
        /// The request.
        request: Request,
        /// True if no data follows.
        end: bool,
    },
    /// A client began a stream whose head is larger than [`Config::head`](crate::Config::head) or has too
    /// many fields. The user answers it, with 431 for example, or resets it.
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// True if no data follows.
        end: bool,
    },
    /// An interim response, such as 100 or 103.
    Interim {
        /// The stream.
        stream: StreamId,
        /// The response.
        response: Response,
    },
    /// The final response.
    Response {
        /// The stream.
        stream: StreamId,
        /// The response.
        response: Response,
        /// True if no data follows.
        end: bool,
    },
    /// Data, by reference. It uses up the windows until the user [consumes](crate::Connection::consume) it.
    Data {
        /// The stream.
        stream: StreamId,
        /// The data; empty if only the end came.
        data: Chain,
        /// True if nothing follows.
        end: bool,
    },
    /// Trailers, which end the message.
    Trailers {
        /// The stream.
        stream: StreamId,
        /// The trailers.
        trailers: Head,
    },
    /// A stream was reset. No more events of it follow.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Reason. [`Reason::REFUSED_STREAM`] means that the peer did nothing with the stream: a request may
        /// be tried again.
        reason: Reason,
        /// The rule that the peer broke, if this side reset the stream for it; `None` if the peer reset it.
        problem: Option<Problem>,
    },
    /// A stream that no event had reported was refused. For logs.
    Refused {
        /// The stream.
        stream: StreamId,
        /// The problem.
        problem: Problem,
    },
    /// The peer's settings came, the first or later ones: the number of streams that it allows may have
    /// changed.
    Settings,
    /// The peer begins no further streams and accepts no others. Each of this side's streams behind `last` is
    /// reported as [refused](Self::Reset).
    GoAway {
        /// Last stream of this side that the peer may act on.
        last: StreamId,
        /// Reason of the peer.
        reason: Reason,
    },
    /// The peer answered a [ping](crate::Connection::ping).
    Pong {
        /// Payload of the ping.
        payload: [u8; 8],
    },
}
