//! `accept-proxy` and `accept-netscaler-cip`, and the rules that expect the same: reads the header that the
//! proxy in front sends first.

use super::Greets;
use crate::client::Client;
use manylane_expr::LinkError;
use manylane_lanes::{Greeting, Local};
use manylane_net::netscaler;
use manylane_net::proxy_protocol::{EndpointPair, HeaderError, Parsed, beginning, kind, parse};
use manylane_plan::generation::{Frontend, Listener};
use std::rc::Rc;

/// Reason why the connection cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoGreeting {
    /// The PROXY header is missing or wrong.
    Proxy(Wrong),
    /// The NetScaler header is missing or wrong.
    NetScaler(Wrong),
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
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
    /// True if nothing came before the connection ended.
    pub(super) fn is_silent(self) -> bool {
        matches!(self, Self::Proxy(Wrong::Empty) | Self::NetScaler(Wrong::Empty))
    }

    /// Returns the error for the log, with HAProxy's number and words.
    pub(super) const fn error(self) -> LinkError {
        use Wrong::*;
        let (code, name, sentence) = match self {
            Self::Proxy(Empty) => {
                (11, "PRX_EMPTY", "Connection closed while waiting for PROXY protocol header")
            }
            Self::Proxy(Failed) => {
                (12, "PRX_ABORT", "Connection error while waiting for PROXY protocol header")
            }
            Self::Proxy(Late) => (13, "PRX_TIMEOUT", "Timeout while waiting for PROXY protocol header"),
            Self::Proxy(Truncated) => (14, "PRX_TRUNCATED", "Truncated PROXY protocol header received"),
            Self::Proxy(NoHeader) => {
                let sentence = "Received something which does not look like a PROXY protocol header";
                (15, "PRX_NOT_HDR", sentence)
            }
            Self::Proxy(Bad) => (16, "PRX_BAD_HDR", "Received an invalid PROXY protocol header"),
            Self::Proxy(Unhandled) => {
                (17, "PRX_BAD_PROTO", "Received an unhandled protocol in the PROXY protocol header")
            }
            Self::NetScaler(Empty) => {
                (18, "CIP_EMPTY", "Connection closed while waiting for NetScaler Client IP header")
            }
            Self::NetScaler(Failed) => {
                (19, "CIP_ABORT", "Connection error while waiting for NetScaler Client IP header")
            }
            Self::NetScaler(Late) => {
                (20, "CIP_TIMEOUT", "Timeout while waiting for a NetScaler Client IP header")
            }
            Self::NetScaler(Truncated | Bad) => {
                (21, "CIP_TRUNCATED", "Truncated NetScaler Client IP header received")
            }
            Self::NetScaler(NoHeader) => {
                (22, "CIP_BAD_MAGIC", "Received an invalid NetScaler Client IP magic number")
            }
            Self::NetScaler(Unhandled) => {
                (23, "CIP_BAD_PROTO", "Received an unhandled protocol in the NetScaler Client IP header")
            }
        };
        LinkError { code, name, sentence }
    }
}

/// Reads the headers and removes them from `client.received`; the bytes behind them stay there.
pub(super) async fn read(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    client: &mut Client,
    greets: Greets,
) -> Result<(), NoGreeting> {
    let reading = async {
        if greets.proxy {
            proxy_header(local, client).await.map_err(NoGreeting::Proxy)?;
        }
        if greets.netscaler {
            let magic = listener.netscaler.unwrap_or_default();
            netscaler_header(client, magic).await.map_err(NoGreeting::NetScaler)?;
        }
        Ok(())
    };
    let Some(time) = frontend.timeouts.handshake else { return reading.await };
    let late = if greets.proxy { NoGreeting::Proxy } else { NoGreeting::NetScaler };
    local.here().timeout(time, reading).await.unwrap_or(Err(late(Wrong::Late)))
}

async fn netscaler_header(client: &mut Client, magic: u32) -> Result<(), Wrong> {
    loop {
        let bytes = netscaler::beginning(&mut client.received).map_err(|_| Wrong::Failed)?;
        let parsed = netscaler::parse(bytes, magic).map_err(|why| match why {
            netscaler::HeaderError::Magic => Wrong::NoHeader,
            netscaler::HeaderError::Protocol => Wrong::Unhandled,
            netscaler::HeaderError::Length => Wrong::Bad,
        });
        if let Some(header) = parsed? {
            client.is_between(header.source, header.destination).map_err(|_| Wrong::Failed)?;
            return client.received.trim_front(header.length).map_err(|_| Wrong::Failed);
        }
        more(client).await?;
    }
}

/// Waits for more bytes.
async fn more(client: &mut Client) -> Result<(), Wrong> {
    let segment = client.end.connection().recv().await.map_err(|_| Wrong::Failed)?;
    let ended = if client.received.is_empty() { Wrong::Empty } else { Wrong::Truncated };
    client.received.push_compact(segment.ok_or(ended)?).map_err(|_| Wrong::Failed)
}

async fn proxy_header(local: &Rc<Local>, client: &mut Client) -> Result<(), Wrong> {
    let begun = local.here().now();
    loop {
        let bytes = beginning(&mut client.received).map_err(|_| Wrong::Failed)?;
        let parsed = parse(bytes).map_err(|why| match why {
            HeaderError::Signature | HeaderError::Version(_) => Wrong::NoHeader,
            HeaderError::Protocol => Wrong::Unhandled,
            HeaderError::Long(_) => Wrong::Truncated,
            _ => Wrong::Bad,
        });
        let complete = match parsed? {
            Parsed::Incomplete { .. } => None,
            Parsed::Complete { header, length } => {
                let addresses = match header.ends.filter(|_| header.relayed) {
                    Some(EndpointPair::Ip { source, destination, .. }) => Some((source, destination)),
                    _ => None,
                };
                let value = |kind| header.tlvs.value_of(kind);
                let greeting = Greeting {
                    tlvs: header.tlvs.bytes().into(),
                    namespace: value(kind::NETNS).and_then(|name| local.generation.namespace(name)),
                    took: local.here().now().since(begun),
                };
                Some((addresses, greeting, length))
            }
        };
        match complete {
            Some((addresses, greeting, length)) => {
                client.was_greeted(greeting).map_err(|_| Wrong::Failed)?;
                if let Some((source, destination)) = addresses {
                    client.is_between(source, destination).map_err(|_| Wrong::Failed)?;
                }
                return client.received.trim_front(length).map_err(|_| Wrong::Failed);
            }
            None => more(client).await?,
        }
    }
}
