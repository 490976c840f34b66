//! Where a client's connection comes from, as rules see it: its addresses, and the PROXY header before it.

use manylane_expr::Timestamp;
use manylane_io::SocketId;
use manylane_net::proxy_protocol::{Tlvs, kind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Addresses of a client's connection, and when it was accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peers {
    /// The client's address: that of the socket, unless a header (PROXY, NetScaler) or a rule says another.
    pub source: Option<SocketAddr>,
    /// The address that the client connected to, likewise.
    pub destination: Option<SocketAddr>,
    /// The address of the socket's peer, unless a `tcp-request connection` rule sets another.
    pub link_source: Option<SocketAddr>,
    /// The address of the socket itself, likewise.
    pub link_destination: Option<SocketAddr>,
    /// The client's socket, if the configuration reads what the kernel knows of it.
    pub socket: Option<SocketId>,
    /// The connection began with a header of the PROXY protocol.
    pub proxied: bool,
    /// When the connection was accepted; for a further request, when the one before it ended. By the wall
    /// clock.
    pub accepted: Timestamp,
    /// The client speaks HTTP/2, if it speaks HTTP.
    pub http2: bool,
}

/// Fields of a PROXY header beside the addresses.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// The header's TLVs, one after another.
    pub tlvs: Box<[u8]>,
    /// The network namespace, if the configuration names it, too.
    pub namespace: Option<Arc<str>>,
    /// Time that the session waited for the header.
    pub took: Duration,
}

impl Greeting {
    /// The host name that the client asked for.
    pub fn authority(&self) -> Option<&[u8]> {
        Tlvs::kept(&self.tlvs).value_of(kind::AUTHORITY)
    }

    /// An identifier of the connection.
    pub fn unique_id(&self) -> Option<&[u8]> {
        Tlvs::kept(&self.tlvs).value_of(kind::UNIQUE_ID)
    }
}
