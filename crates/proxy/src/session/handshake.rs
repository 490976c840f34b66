//! `ssl`: the handshake of TLS, before anything else is heard of the client.

use super::Client;
use crate::generation::Frontend;
use crate::run::Local;
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

impl fmt::Display for NoHandshake {
    /// What the log says: the words that HAProxy's users look for, and what TLS has to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Connection closed during SSL handshake"),
            Self::Cut => f.write_str("Connection error during SSL handshake"),
            Self::Late => f.write_str("Timeout during SSL handshake"),
            Self::Refused(error) => write!(f, "SSL handshake failure ({error})"),
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
        Some(time) => local.here().timeout(time, shaking).await.map_err(|_| NoHandshake::Late)?,
    };
    outcome.map_err(|error| match error {
        TransferError::Tls(Error::Ended) if !tls.has_heard() => NoHandshake::Empty,
        TransferError::Tls(Error::Ended) => NoHandshake::Cut,
        TransferError::Tls(error) => NoHandshake::Refused(error),
        _ if !tls.has_heard() => NoHandshake::Empty,
        _ => NoHandshake::Cut,
    })
}
