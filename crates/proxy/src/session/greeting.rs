//! `accept-proxy` and `expect-proxy`: reads the PROXY header that the proxy in front sends first.

use crate::client::{Client, Greeting};
use crate::lane::Local;
use manylane_expr::LinkError;
use manylane_net::proxy_protocol::{Ends, HeaderError, Parsed, kind, parse};
use manylane_plan::generation::Frontend;
use std::rc::Rc;

/// Reason why the connection cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoGreeting {
    /// The connection ended before the first byte.
    Empty,
    /// The connection ended amid the header.
    Truncated,
    /// The connection failed.
    Failed,
    /// The header did not arrive in time.
    Late,
    /// The bytes are not a header.
    NoHeader,
    /// The header is of a protocol other than TCP.
    Unhandled,
    /// The content of the header is invalid.
    Bad,
}

impl NoGreeting {
    /// Returns the error for the log, with HAProxy's number and words.
    pub(super) const fn error(self) -> LinkError {
        let (code, name, sentence) = match self {
            Self::Empty => (11, "PRX_EMPTY", "Connection closed while waiting for PROXY protocol header"),
            Self::Failed => (12, "PRX_ABORT", "Connection error while waiting for PROXY protocol header"),
            Self::Late => (13, "PRX_TIMEOUT", "Timeout while waiting for PROXY protocol header"),
            Self::Truncated => (14, "PRX_TRUNCATED", "Truncated PROXY protocol header received"),
            Self::NoHeader => {
                let sentence = "Received something which does not look like a PROXY protocol header";
                (15, "PRX_NOT_HDR", sentence)
            }
            Self::Bad => (16, "PRX_BAD_HDR", "Received an invalid PROXY protocol header"),
            Self::Unhandled => {
                (17, "PRX_BAD_PROTO", "Received an unhandled protocol in the PROXY protocol header")
            }
        };
        LinkError { code, name, sentence }
    }
}

/// Reads the header and removes it from `client.received`; the bytes behind it stay there.
pub(super) async fn read(
    local: &Rc<Local>,
    frontend: &Frontend,
    client: &mut Client,
) -> Result<(), NoGreeting> {
    let reading = header(local, client);
    match frontend.timeouts.handshake {
        None => reading.await,
        Some(time) => local.here().timeout(time, reading).await.unwrap_or(Err(NoGreeting::Late)),
    }
}

async fn header(local: &Rc<Local>, client: &mut Client) -> Result<(), NoGreeting> {
    let begun = local.here().now();
    loop {
        let length = client.received.len();
        // `parse` refuses headers above a bound.
        let bytes = client.received.pull_up(length).map_err(|_| NoGreeting::Failed)?;
        let parsed = parse(bytes).map_err(|why| match why {
            HeaderError::Signature | HeaderError::Version(_) => NoGreeting::NoHeader,
            HeaderError::Protocol => NoGreeting::Unhandled,
            HeaderError::Long(_) => NoGreeting::Truncated,
            _ => NoGreeting::Bad,
        });
        let complete = match parsed? {
            Parsed::Incomplete { .. } => None,
            Parsed::Complete { header, length } => {
                let told = match header.ends.filter(|_| header.relayed) {
                    Some(Ends::Ip { source, destination, .. }) => Some((source, destination)),
                    _ => None,
                };
                let value = |kind| header.tlvs.value_of(kind);
                let greeting = Greeting {
                    tlvs: header.tlvs.bytes().into(),
                    namespace: value(kind::NETNS).and_then(|name| local.generation.namespace(name)),
                    took: local.here().now().since(begun),
                };
                Some((told, greeting, length))
            }
        };
        match complete {
            Some((told, greeting, length)) => {
                client.was_greeted(greeting).map_err(|_| NoGreeting::Failed)?;
                if let Some((source, destination)) = told {
                    client.is_between(source, destination).map_err(|_| NoGreeting::Failed)?;
                }
                return client.received.trim_front(length).map_err(|_| NoGreeting::Failed);
            }
            None => {
                let segment = client.end.connection().recv().await.map_err(|_| NoGreeting::Failed)?;
                let ended = if length == 0 { NoGreeting::Empty } else { NoGreeting::Truncated };
                let segment = segment.ok_or(ended)?;
                client.received.push_compact(segment).map_err(|_| NoGreeting::Failed)?;
            }
        }
    }
}
