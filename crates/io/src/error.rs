//! Errors of the driver, each with a sentence.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Receiving bytes from a stream.
    Receive,
    /// Sending bytes to a stream.
    Send,
    /// Ending one direction, or both.
    Shutdown,
    /// Accepting a connection.
    Accept,
    /// Connecting to a peer.
    Connect,
    /// Moving bytes from one stream to another.
    Splice,
    /// Receiving datagrams.
    ReceiveDatagrams,
    /// Sending datagrams.
    SendDatagrams,
    /// Adding a descriptor to the driver, or giving it up.
    Register,
    /// Creating a socket, binding it, or listening.
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

/// An operation that failed. Two words, so that results stay in registers.
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

    /// Returns the operation.
    pub fn call(self) -> Call {
        self.call
    }

    /// Returns the system's error, if the system refused.
    pub fn errno(self) -> Option<Errno> {
        match self.cause {
            Cause::System(errno) => Some(errno),
            Cause::Memory | Cause::Busy => None,
        }
    }

    /// Returns the kind of error in std's terms.
    pub fn kind(self) -> io::ErrorKind {
        match self.cause {
            Cause::System(errno) => errno.kind(),
            Cause::Memory => io::ErrorKind::OutOfMemory,
            Cause::Busy => io::ErrorKind::ResourceBusy,
        }
    }

    /// Adds the object of the operation, such as an address or a path.
    pub fn at(self, subject: impl fmt::Display) -> ErrorAt {
        ErrorAt { error: self, subject: subject.to_string().into_boxed_str() }
    }

    fn reason(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::System(errno) => fmt::Display::fmt(&io::Error::from(errno), f),
            Cause::Memory => f.write_str("there is no memory for the operation"),
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

/// An operation that failed, with its address. Off the data path, since it allocates.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorAt {
    error: Error,
    subject: Box<str>,
}

impl ErrorAt {
    /// Returns the error.
    pub fn error(&self) -> Error {
        self.error
    }

    /// Returns the address in its original form.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl fmt::Display for ErrorAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error.call {
            Call::Connect => write!(f, "cannot connect to {}: ", self.subject)?,
            Call::Open => write!(f, "cannot listen on {}: ", self.subject)?,
            call => write!(f, "{} failed at {}: ", call.words(), self.subject)?,
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
