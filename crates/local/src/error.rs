//! Errors, with the numbers that BSD sockets give them.

use crate::name::MAX_NAME;
use std::fmt;
use std::io;

/// Why an operation on a socket was refused. A refused operation changed nothing, and the caller still owns
/// the data to send.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `EAGAIN`: the operation would have to wait, and may not, or no longer.
    WouldBlock,
    /// `ECONNREFUSED`: no socket listens under the name, its backlog is full, or the connected datagram
    /// socket is closed.
    ConnectionRefused,
    /// `ECONNRESET`: the other datagram socket of a pair was closed, or the peer aborted. Reported once.
    ConnectionReset,
    /// `EPIPE`: the peer is closed, or one side shut this direction down. Raises no signal.
    BrokenPipe,
    /// `EISCONN`: the socket is or was connected.
    IsConnected,
    /// `ENOTCONN`: the socket is not connected.
    NotConnected,
    /// `EDESTADDRREQ`: a datagram without a destination, on a socket that is not connected.
    DestinationRequired,
    /// `EMSGSIZE`: the message does not fit into the buffers.
    MessageTooLong {
        /// Bytes of the message.
        len: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// `EADDRINUSE`: another socket has the name.
    AddressInUse(crate::Name),
    /// `ENAMETOOLONG`: a name of this many bytes.
    NameTooLong(usize),
    /// `EPROTOTYPE`: the socket with that name is of another kind.
    WrongKind,
    /// `EINVAL`: the state of the socket forbids the call; the text says why and what to do.
    Invalid(&'static str),
    /// `EOPNOTSUPP`: this kind of socket does not support the call; the text says which does.
    NotSupported(&'static str),
    /// `ETOOMANYREFS`: too many handles in one message, or in flight in the process.
    TooManyHandles {
        /// The requested number.
        wanted: usize,
        /// Maximum number of handles.
        limit: usize,
    },
    /// `ENOBUFS`: no memory for the bytes.
    NoBuffers(manylane_buf::Error),
}

impl Error {
    /// Returns the error's number, as in `errno`.
    pub fn raw_os_error(&self) -> i32 {
        match self {
            Self::WouldBlock => libc::EAGAIN,
            Self::ConnectionRefused => libc::ECONNREFUSED,
            Self::ConnectionReset => libc::ECONNRESET,
            Self::BrokenPipe => libc::EPIPE,
            Self::IsConnected => libc::EISCONN,
            Self::NotConnected => libc::ENOTCONN,
            Self::DestinationRequired => libc::EDESTADDRREQ,
            Self::MessageTooLong { .. } => libc::EMSGSIZE,
            Self::AddressInUse(_) => libc::EADDRINUSE,
            Self::NameTooLong(_) => libc::ENAMETOOLONG,
            Self::WrongKind => libc::EPROTOTYPE,
            Self::Invalid(_) => libc::EINVAL,
            Self::NotSupported(_) => libc::EOPNOTSUPP,
            Self::TooManyHandles { .. } => libc::ETOOMANYREFS,
            Self::NoBuffers(_) => libc::ENOBUFS,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => {
                f.write_str("the operation would have to wait; try again when the socket is ready")
            }
            Self::ConnectionRefused => {
                f.write_str("connection refused: no socket listens under that name, or its backlog is full")
            }
            Self::ConnectionReset => f.write_str(
                "connection reset: the other socket gave up, or was a datagram socket and is closed",
            ),
            Self::BrokenPipe => {
                f.write_str("broken pipe: the other end is closed, or this direction was shut down")
            }
            Self::IsConnected => {
                f.write_str("the socket is or was connected; use a new one for another connection")
            }
            Self::NotConnected => f.write_str("the socket is not connected; connect it first"),
            Self::DestinationRequired => f.write_str(
                "a datagram needs a destination: connect the socket, or name one with the message",
            ),
            Self::MessageTooLong { len, limit } => write!(
                f,
                "a message of {len} bytes does not fit into buffers of {limit}; send less at a time, or \
                    raise the limits"
            ),
            Self::AddressInUse(name) => {
                write!(f, "the name `{name}` is in use; close the socket that has it, or choose another")
            }
            Self::NameTooLong(len) => {
                write!(f, "a name of {len} bytes: use one of 1 to {MAX_NAME} bytes")
            }
            Self::WrongKind => {
                f.write_str("the socket of that name is of another kind; use a socket of the same kind")
            }
            Self::Invalid(why) | Self::NotSupported(why) => f.write_str(why),
            Self::TooManyHandles { wanted, limit } => write!(
                f,
                "{wanted} handles in a message or in flight, expected at most {limit}; send fewer, \
                    or receive some first"
            ),
            Self::NoBuffers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoBuffers(error) => Some(error),
            _ => None,
        }
    }
}

impl From<manylane_buf::Error> for Error {
    fn from(error: manylane_buf::Error) -> Self {
        Self::NoBuffers(error)
    }
}

/// Keeps the sentence; the kind is that of [`Error::raw_os_error`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = io::Error::from_raw_os_error(error.raw_os_error()).kind();
        Self::new(kind, error)
    }
}
