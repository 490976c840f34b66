//! `ssl`: does the TLS handshake with a client, before its first request.

use crate::client::Client;
use manylane_config::tree::Mode;
use manylane_expr::LinkError;
use manylane_lanes::Local;
use manylane_net::TransferError;
use manylane_plan::generation::Frontend;
use manylane_tls::Error;
use std::fmt;
use std::rc::Rc;

/// Reason why the connection cannot be served.
#[derive(Debug)]
pub(super) enum NoHandshake {
    /// The connection ended before the first byte.
    Empty,
    /// The connection ended or failed amid the handshake.
    Cut,
    /// The handshake took too long.
    Late,
    /// TLS refused the client's messages.
    Refused(Error),
    /// TLS refused an issuer of the client's certificate.
    RefusedIssuer(Error),
}

impl NoHandshake {
    /// Returns the error as samples see it.
    pub(super) fn error(&self) -> LinkError {
        let (code, name, sentence) = match self {
            Self::Empty => (24, "SSL_EMPTY", "Connection closed during SSL handshake"),
            Self::Cut => (25, "SSL_ABORT", "Connection error during SSL handshake"),
            Self::Late => (26, "SSL_TIMEOUT", "Timeout during SSL handshake"),
            Self::Refused(Error::Busy) => (27, "SSL_TOO_MANY", "Too many SSL connections"),
            Self::Refused(Error::Memory(_)) => {
                (28, "SSL_NO_MEM", "Out of memory when initializing an SSL connection")
            }
            Self::RefusedIssuer(_) => (30, "SSL_CA_FAIL", "SSL client CA chain cannot be verified"),
            Self::Refused(Error::Tls(manylane_tls::RustlsError::InvalidCertificate(_))) => {
                (31, "SSL_CRT_FAIL", "SSL client certificate not trusted")
            }
            Self::Refused(_) => (34, "SSL_HANDSHAKE", "SSL handshake failure"),
        };
        LinkError { code, name, sentence }
    }
}

impl fmt::Display for NoHandshake {
    /// Writes the text for the log: HAProxy's words, and the reason that TLS gives.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) | Self::RefusedIssuer(error) => {
                write!(f, "{} ({error})", self.error().sentence)
            }
            other => f.write_str(other.error().sentence),
        }
    }
}

/// Does the handshake with a client of a TLS listener within `timeout client-hs`. Returns false if it has
/// answered a challenge of ACME, behind which nothing is served.
pub(super) async fn shake(
    local: &Rc<Local>,
    frontend: &Frontend,
    client: &Client,
) -> Result<bool, NoHandshake> {
    let Some(tls) = client.end.connection().tls() else { return Ok(true) };
    let serves_early = frontend.mode == Mode::Http; // TCP mode cannot tell a server of copies
    let shaking = tls.handshake(local.here(), serves_early);
    let outcome = match frontend.timeouts.handshake {
        None => shaking.await,
        Some(time) => local.here().timeout(time, shaking).await.map_err(|_| {
            tls.fail(None);
            NoHandshake::Late
        })?,
    };
    let error = match outcome {
        Ok(()) => return Ok(true),
        Err(TransferError::Tls(Error::Challenge)) => return Ok(false),
        Err(error) => error,
    };
    match &error {
        TransferError::Tls(error) => tls.fail(Some(error)),
        _ => tls.fail(None),
    }
    Err(match error {
        TransferError::Tls(Error::Ended) if !tls.has_heard() => NoHandshake::Empty,
        TransferError::Tls(Error::Ended) => NoHandshake::Cut,
        TransferError::Tls(error) if tls.info().is_some_and(|info| info.verified.stopped_above) => {
            NoHandshake::RefusedIssuer(error)
        }
        TransferError::Tls(error) => NoHandshake::Refused(error),
        _ if !tls.has_heard() => NoHandshake::Empty,
        _ => NoHandshake::Cut,
    })
}
