//! `ssl`: the handshake of TLS, before anything else is heard of the client.

use super::Client;
use crate::generation::Frontend;
use crate::run::Local;
use manylane_expr::LinkError;
use manylane_net::TransferError;
use manylane_tls::Error;
use std::fmt;
use std::rc::Rc;

/// Why the connection is of no use.
#[derive(Debug)]
pub(super) enum NoHandshake {
    /// It ended before a byte came.
    Empty,
    /// It ended, or failed, amid the handshake.
    Cut,
    /// The handshake took too long.
    Late,
    /// What came was not accepted.
    Refused(Error),
}

impl NoHandshake {
    /// What samples say of it.
    pub(super) fn error(&self) -> LinkError {
        let (code, name, sentence) = match self {
            Self::Empty => (24, "SSL_EMPTY", "Connection closed during SSL handshake"),
            Self::Cut => (25, "SSL_ABORT", "Connection error during SSL handshake"),
            Self::Late => (26, "SSL_TIMEOUT", "Timeout during SSL handshake"),
            Self::Refused(Error::Busy) => (27, "SSL_TOO_MANY", "Too many SSL connections"),
            Self::Refused(Error::Memory(_)) => {
                (28, "SSL_NO_MEM", "Out of memory when initializing an SSL connection")
            }
            Self::Refused(Error::Tls(manylane_tls::RustlsError::InvalidCertificate(_))) => {
                (31, "SSL_CRT_FAIL", "SSL client certificate not trusted")
            }
            Self::Refused(_) => (34, "SSL_HANDSHAKE", "SSL handshake failure"),
        };
        LinkError { code, name, sentence }
    }
}

impl fmt::Display for NoHandshake {
    /// What the log says: the words that HAProxy's users look for, and what TLS has to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{} ({error})", self.error().sentence),
            other => f.write_str(other.error().sentence),
        }
    }
}

/// Shakes hands with a client of a listener with TLS, in the time of `timeout client-hs`.
pub(super) async fn shake(
    local: &Rc<Local>,
    frontend: &Frontend,
    client: &Client,
) -> Result<(), NoHandshake> {
    let Some(tls) = client.end.connection().tls() else { return Ok(()) };
    let shaking = tls.handshake(local.here());
    let outcome = match frontend.timeouts.handshake {
        None => shaking.await,
        Some(time) => local.here().timeout(time, shaking).await.map_err(|_| {
            tls.fail(None);
            NoHandshake::Late
        })?,
    };
    outcome.map_err(|error| {
        match &error {
            TransferError::Tls(error) => tls.fail(Some(error)),
            _ => tls.fail(None),
        }
        match error {
            TransferError::Tls(Error::Ended) if !tls.has_heard() => NoHandshake::Empty,
            TransferError::Tls(Error::Ended) => NoHandshake::Cut,
            TransferError::Tls(error) => NoHandshake::Refused(error),
            _ if !tls.has_heard() => NoHandshake::Empty,
            _ => NoHandshake::Cut,
        }
    })
}
