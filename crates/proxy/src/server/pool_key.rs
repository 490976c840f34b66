//! Which idle connections fit a request.

use crate::client::Client;
use crate::lane::{Local, hasher};
use manylane_http::Head;
use manylane_net::{Packets, Present};
use manylane_plan::generation::{MOST_POOL_NAMES, Server};
use std::hash::{BuildHasher, Hash};

/// Returns the key under which a connection to `server` for this client is shared; `None` if only this
/// client may use it.
pub(crate) fn pool_key(
    server: &Server,
    client: &Client,
    head: Option<&Head>,
    packets: Packets,
    names: &[Option<u64>; MOST_POOL_NAMES],
) -> Option<u64> {
    if server.header.is_some() || server.stands_in {
        // its header identifies the client, or the server is a stand-in (R-G5)
        return None;
    }
    let from = match server.connect.source.as_ref().and_then(|source| source.present) {
        Some(Present::Client) => return None,
        // Without the port, and with the scope of a link-local address.
        Some(Present::ClientIp) => client.source_for(server, head).map(|mut address| {
            address.set_port(0);
            address
        }),
        Some(Present::Address(_)) | None => None,
    };
    let to = if server.addr.is_of_client() { client.destination() } else { None };
    let addr = server.addr.word() >> 1;
    let index = server.pool;
    let name = server.pool_name.and_then(|number| names[number]);
    let asked = server.asked_name().and_then(|number| names[number]);
    let namespace = client.namespace_for(server);
    if from.is_none()
        && to.is_none()
        && name.is_none()
        && asked.is_none()
        && namespace.is_none()
        && packets == Packets::default()
    {
        return Some(Local::key_for_all(server.pool, addr));
    }
    let mut hash = hasher().build_hasher();
    (index, addr, from, to, name, asked, namespace, packets).hash(&mut hash);
    Some(std::hash::Hasher::finish(&hash) | 1 << 63) // the top bit keeps it apart from pool numbers
}
