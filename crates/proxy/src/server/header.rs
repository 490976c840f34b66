//! `send-proxy`: what a connection to a server begins with.

use crate::generation::SendHeader;
use crate::session::Client;
use manylane_net::proxy_protocol::{Emit, Ends, emit_v1, emit_v2};

/// The header of the PROXY protocol that tells `server` about `client`.
pub(crate) fn header(how: SendHeader, client: &Client) -> Vec<u8> {
    let ends = client.source.zip(client.destination()).map(|(from, to)| Ends::tcp(from, to));
    let mut bytes = Vec::new();
    if how.v2 {
        let what = Emit { ends, tlvs: &[], checksum: how.checksum };
        emit_v2(&what, &mut bytes).expect("two addresses and a checksum are short");
    } else {
        emit_v1(ends.as_ref(), &mut bytes);
    }
    bytes
}
