//! Where a client's connection comes from, as rules see it: its addresses, and the PROXY header before it.

use manylane_expr::Timestamp;
use manylane_io::SocketId;
use manylane_net::proxy_protocol::{Tlvs, kind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Addresses of a client's connection, and when it was accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peers {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// Addresses of the socket, without those of the PROXY protocol.
    pub(crate) link_source: Option<SocketAddr>,
    pub(crate) link_destination: Option<SocketAddr>,
    /// The client's socket, if the configuration reads what the kernel knows of it.
    pub(crate) socket: Option<SocketId>,
    /// The connection began with a header of the PROXY protocol.
    pub(crate) proxied: bool,
    pub(crate) accepted: Timestamp,
    /// The client speaks HTTP/2, if it speaks HTTP.
    pub(crate) http2: bool,
}

/// Fields of a PROXY header beside the addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    /// The header's TLVs, one after another.
    pub(crate) tlvs: Box<[u8]>,
    /// The network namespace, if the configuration names it, too.
    pub(crate) namespace: Option<Arc<str>>,
    /// Time that the session waited for the header.
    pub(crate) took: Duration,
}

impl Greeting {
    /// The host name that the client asked for.
    pub(crate) fn authority(&self) -> Option<&[u8]> {
        Tlvs::kept(&self.tlvs).value_of(kind::AUTHORITY)
    }

    /// An identifier of the connection.
    pub(crate) fn unique_id(&self) -> Option<&[u8]> {
        Tlvs::kept(&self.tlvs).value_of(kind::UNIQUE_ID)
    }
}
