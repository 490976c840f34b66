//! What can go wrong, in one sentence each.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Bytes from a stream.
    Receive,
    /// Bytes to a stream.
    Send,
    /// The end of one direction, or of both.
    Shutdown,
    /// A connection from a listener.
    Accept,
    /// A connection to a peer.
    Connect,
    /// Bytes from one stream to another.
    Splice,
    /// Datagrams in.
    ReceiveDatagrams,
    /// Datagrams out.
    SendDatagrams,
    /// A descriptor becomes the driver's, or is given up.
    Register,
    /// A socket is made, bound, set to listen.
    Open,
}

impl Call {
    const fn words(self) -> &'static str {
        match self {
            Self::Receive => "receiving",
            Self::Send => "sending",
            Self::Shutdown => "shutting down",
            Self::Accept => "accepting",
            Self::Connect => "connecting",
            Self::Splice => "splicing",
            Self::ReceiveDatagrams => "receiving datagrams",
            Self::SendDatagrams => "sending datagrams",
            Self::Register => "handing a descriptor to the driver",
            Self::Open => "opening a socket",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    System(Errno),
    Memory,
    Busy,
}

/// A call that failed. Two words, so that results stay in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error {
    call: Call,
    cause: Cause,
}

impl Error {
    #[inline]
    pub(crate) const fn system(call: Call, errno: Errno) -> Self {
        Self { call, cause: Cause::System(errno) }
    }

    pub(crate) const fn memory(call: Call) -> Self {
        Self { call, cause: Cause::Memory }
    }

    pub(crate) const fn busy(call: Call) -> Self {
        Self { call, cause: Cause::Busy }
    }

    /// What was tried.
    pub fn call(self) -> Call {
        self.call
    }

    /// What the system said, if it was the system that refused.
    pub fn errno(self) -> Option<Errno> {
        match self.cause {
            Cause::System(errno) => Some(errno),
            Cause::Memory | Cause::Busy => None,
        }
    }

    /// The same in std's terms.
    pub fn kind(self) -> io::ErrorKind {
        match self.cause {
            Cause::System(errno) => errno.kind(),
            Cause::Memory => io::ErrorKind::OutOfMemory,
            Cause::Busy => io::ErrorKind::ResourceBusy,
        }
    }

    /// The error with what it happened to: an address, a path.
    pub fn at(self, place: impl fmt::Display) -> ErrorAt {
        ErrorAt { error: self, place: place.to_string().into_boxed_str() }
    }

    fn reason(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::System(errno) => fmt::Display::fmt(&io::Error::from(errno), f),
            Cause::Memory => f.write_str("there is no memory for it"),
            Cause::Busy => f.write_str(
                "another task waits for the same; let one task receive and one send on a descriptor",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: ", self.call.words())?;
        self.reason(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.cause {
            Cause::System(errno) => errno.into(),
            Cause::Memory | Cause::Busy => Self::new(error.kind(), error),
        }
    }
}

/// A call that failed, and the address that it was about. Off the data path: it allocates.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorAt {
    error: Error,
    place: Box<str>,
}

impl ErrorAt {
    /// What failed.
    pub fn error(&self) -> Error {
        self.error
    }

    /// The address, as it was given.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for ErrorAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error.call {
            Call::Connect => write!(f, "cannot connect to {}: ", self.place)?,
            Call::Open => write!(f, "cannot listen on {}: ", self.place)?,
            call => write!(f, "{} failed at {}: ", call.words(), self.place)?,
        }
        self.error.reason(f)
    }
}

impl fmt::Debug for ErrorAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorAt({self})")
    }
}

impl std::error::Error for ErrorAt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<ErrorAt> for io::Error {
    fn from(error: ErrorAt) -> Self {
        Self::new(error.error.kind(), error)
    }
}
