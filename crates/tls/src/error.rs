//! Errors of settings and of connections.

use std::fmt;

/// A setting that cannot be used, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The keyword, as HAProxy names it.
    pub keyword: &'static str,
    /// A sentence without the keyword.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(keyword: &'static str, text: impl Into<String>) -> Self {
        Self { keyword, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' : {}", self.keyword, self.text)
    }
}

impl std::error::Error for Problem {}

/// Why a connection failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// rustls rejects the peer's messages or certificate.
    Tls(rustls::Error),
    /// No memory for buffers.
    Memory(manylane_buf::Error),
    /// The peer sends more than a handshake may have.
    Flood,
    /// The peer closed the connection during the handshake.
    Ended,
    /// Too many handshakes are in progress.
    Busy,
    /// The handshake has answered a challenge of ACME: the connection serves nothing else.
    Challenge,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Flood => f.write_str("the peer sends more than a handshake may have"),
            Self::Ended => f.write_str("the peer closed the connection amid the handshake"),
            Self::Busy => f.write_str("too many TLS handshakes are in progress"),
            Self::Challenge => f.write_str("the handshake has answered a challenge of ACME"),
        }
    }
}

impl std::error::Error for Error {}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<manylane_buf::Error> for Error {
    fn from(error: manylane_buf::Error) -> Self {
        Self::Memory(error)
    }
}
