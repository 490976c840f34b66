//! Why streams and connections end.

use manylane_h2::{ConnectionError, Problem, Reason, SendError};
use std::fmt;
use std::io;

/// Reason why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEnd {
    /// One side announced that it leaves, and all streams are done.
    Drained,
    /// The connection had no stream for too long.
    Idle,
    /// No request came in time.
    NoRequest,
    /// The peer closed the connection, with or without open streams.
    Closed,
    /// The peer broke a rule, or this side ended it ([`Problem::Aborted`]).
    Protocol(ConnectionError),
    /// The transport failed.
    Transport(io::ErrorKind),
    /// The peer accepted no bytes in time.
    WriteTimeout,
    /// The peer did not answer a ping.
    NoAnswer,
    /// The connection's task was dropped.
    Dropped,
}

impl fmt::Display for ConnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => f.write_str("all streams are done"),
            Self::Idle => f.write_str("no stream for too long"),
            Self::NoRequest => f.write_str("no request came in time"),
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::Protocol(error) => error.fmt(f),
            Self::Transport(kind) => kind.fmt(f),
            Self::NoAnswer => f.write_str("the peer does not answer a ping"),
            Self::WriteTimeout => f.write_str("the peer accepted no bytes in time"),
            Self::Dropped => f.write_str("the connection was dropped"),
        }
    }
}

/// Reason why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer reset the stream.
    Reset(Reason),
    /// The server did nothing with the request: it may be sent elsewhere.
    Refused,
    /// The peer broke a rule, and this side reset the stream for it.
    Broken(Problem),
    /// The connection is over.
    Connection(ConnEnd),
    /// This cannot be sent; the stream is unchanged.
    Send(SendError),
    /// The lane's pools have no memory. The stream was reset.
    Memory,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(reason) => write!(f, "the peer reset the stream: {reason}"),
            Self::Refused => f.write_str("the server refused the stream (REFUSED_STREAM)"),
            Self::Broken(problem) => f.write_str(problem.sentence()),
            Self::Connection(end) => end.fmt(f),
            Self::Send(error) => error.fmt(f),
            Self::Memory => f.write_str("no memory"),
        }
    }
}

impl std::error::Error for StreamError {}
