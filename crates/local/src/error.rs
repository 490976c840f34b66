//! What can go wrong, with the number that BSD sockets give it.

use crate::name::MAX_NAME;
use std::fmt;
use std::io;

/// Why an operation on a socket was refused. What was refused changed nothing, and what was to be sent is
/// still the caller's.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `EAGAIN`: it would have to wait, and may not, or not for longer.
    WouldBlock,
    /// `ECONNREFUSED`: nobody listens under the name, its backlog is full, or the datagram socket that was
    /// connected to is closed.
    ConnectionRefused,
    /// `ECONNRESET`: the other datagram socket of a pair was closed, or the peer gave up. Reported once.
    ConnectionReset,
    /// `EPIPE`: the other end is closed, or one side shut this direction down. No signal is raised.
    BrokenPipe,
    /// `EISCONN`: it is connected already, or was.
    IsConnected,
    /// `ENOTCONN`: it is not connected.
    NotConnected,
    /// `EDESTADDRREQ`: a datagram without a destination, on a socket that is not connected.
    DestinationRequired,
    /// `EMSGSIZE`: a message that does not fit into the buffers.
    MessageTooLong {
        /// Bytes of the message.
        len: usize,
        /// The most that fits.
        limit: usize,
    },
    /// `EADDRINUSE`: another socket has the name.
    AddressInUse(crate::Name),
    /// `ENAMETOOLONG`: a name of so many bytes.
    NameTooLong(usize),
    /// `EPROTOTYPE`: the socket of that name is of another kind.
    WrongKind,
    /// `EINVAL`: the call makes no sense for the socket as it is; the text says why and what to do.
    Invalid(&'static str),
    /// `EOPNOTSUPP`: no socket of this kind can do that; the text says which can.
    NotSupported(&'static str),
    /// `ETOOMANYREFS`: too many handles in one message, or on their way in the process.
    TooManyHandles {
        /// What was asked for.
        wanted: usize,
        /// The most that there may be.
        limit: usize,
    },
    /// `ENOBUFS`: no memory for the bytes.
    NoBuffers(manylane_buf::Error),
}

impl Error {
    /// The number of the error, as `errno` has it.
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
                "{wanted} handles on their way, of {limit} that may be; receive some before sending more"
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

/// Keeps the sentence; the kind is that of the number, which [`Error::raw_os_error`] has.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = io::Error::from_raw_os_error(error.raw_os_error()).kind();
        Self::new(kind, error)
    }
}
