//! Which idle connections fit a request.

use crate::client::Client;
use manylane_http::Head;
use manylane_lanes::{Local, hasher};
use manylane_net::{Packets, UseSource};
use manylane_plan::generation::{MOST_POOL_NAMES, Server};
use std::hash::{BuildHasher, Hash};
use std::net::SocketAddr;

/// Names the connections that fit a request: those with an equal key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolKey {
    /// Hash of everything that the connections depend on.
    pub(crate) hash: u64,
    /// True if they fit requests of other clients, too. If false, compare hashes within one session only.
    pub(crate) shared: bool,
}

/// What a request demands of a connection beside its server and the server's address.
#[derive(Clone, Copy, Debug, Default, Hash)]
#[cfg_attr(test, derive(PartialEq))]
struct Demands<'a> {
    /// Source and destination that the connection may report to the server, if it is for one client only.
    /// Rules can set them anew for each request.
    identity: Option<(Option<SocketAddr>, Option<SocketAddr>)>,
    /// Address of the client that the connection comes from (`source ... usesrc`).
    from: Option<SocketAddr>,
    /// Destination of the client that the connection goes to.
    to: Option<SocketAddr>,
    /// Hash of `pool-conn-name`.
    name: Option<u64>,
    /// Hash of the name that TLS asks for (`sni`).
    wanted: Option<u64>,
    namespace: Option<&'a str>,
    packets: Packets,
}

impl Demands<'_> {
    #[inline]
    fn key(&self, pool: u64, addr: u32) -> u64 {
        let Self { identity, from, to, name, wanted, namespace, packets } = self;
        // Compared with the default as a whole, this would cost each request 1,000 instructions.
        if identity.is_none()
            && from.is_none()
            && to.is_none()
            && name.is_none()
            && wanted.is_none()
            && namespace.is_none()
            && *packets == Packets::default()
        {
            return Local::key_for_all(pool, addr);
        }
        let hash = hasher().hash_one((pool, addr, self));
        hash | 1 << 63 // the top bit keeps it apart from pool numbers
    }
}

/// Returns the key of connections to `server` that fit this request; `None` if one made for it fits no other.
pub(crate) fn pool_key(
    server: &Server,
    client: &Client,
    head: Option<&Head>,
    packets: Packets,
    names: &[Option<u64>; MOST_POOL_NAMES],
) -> Option<PoolKey> {
    if server.tells_of_requests() {
        return None;
    }
    let present = server.connect.source.as_ref().and_then(|source| source.present);
    // A PROXY header and `usesrc client` identify the client. A stand-in: R-G5.
    let shared = server.header.is_none() && !server.stands_in && present != Some(UseSource::Client);
    let from = match present {
        // Without the port, and with the scope of a link-local address.
        Some(UseSource::ClientIp) => client.source_for(server, head).map(|mut address| {
            address.set_port(0);
            address
        }),
        Some(UseSource::Client | UseSource::Address(_)) | None => None,
    };
    let to = if server.addr.is_of_client() { client.destination() } else { None };
    let demands = Demands {
        identity: (!shared).then(|| client.request_addresses()),
        from,
        to,
        name: server.pool_name.and_then(|number| names[number]),
        wanted: server.evaluated_name().and_then(|number| names[number]),
        namespace: client.namespace_for(server).map(|name| &**name),
        packets,
    };
    Some(PoolKey { hash: demands.key(server.pool, server.addr.word() >> 1), shared })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What connections are kept apart by: each demand alone, each beside all others, the server and its
    /// address. Equal demands have equal keys.
    #[test]
    fn each_demand_keeps_connections_apart() {
        let address = |ip: [u8; 4]| Some(SocketAddr::from((ip, 0)));
        let all = Demands {
            identity: Some((address([127, 0, 0, 4]), None)),
            from: address([127, 0, 0, 2]),
            to: address([127, 0, 0, 3]),
            name: Some(4),
            wanted: Some(5),
            namespace: Some("six"),
            packets: Packets { mark: Some(7), tos: Some(8) },
        };
        let none = Demands::default();
        let mut made = vec![none, all];
        for one in [all, Demands { from: all.to, to: all.from, name: all.wanted, wanted: all.name, ..all }] {
            for (other, base) in [(one, none), (none, one)] {
                made.push(Demands { from: other.from, ..base });
                made.push(Demands { to: other.to, ..base });
                made.push(Demands { name: other.name, ..base });
                made.push(Demands { wanted: other.wanted, ..base });
                let mark = Packets { mark: other.packets.mark, ..base.packets };
                let tos = Packets { tos: other.packets.tos, ..base.packets };
                if one == all {
                    made.push(Demands { identity: other.identity, ..base });
                    made.push(Demands { namespace: other.namespace, ..base });
                    made.push(Demands { packets: mark, ..base });
                    made.push(Demands { packets: tos, ..base });
                }
            }
        }
        made.push(Demands { identity: Some((None, address([127, 0, 0, 4]))), ..none });
        made.push(Demands { identity: Some((None, None)), ..none });
        made.push(Demands { namespace: Some("seven"), ..none });
        made.push(Demands { packets: Packets { mark: Some(8), tos: None }, ..none });
        made.push(Demands { packets: Packets { mark: None, tos: Some(7) }, ..none });
        let servers = [(1, 0), (2, 0), (1, 1), (2, 1)];
        let keyed = || made.iter().flat_map(|demands| servers.map(|(pool, addr)| demands.key(pool, addr)));
        let keys: std::collections::HashSet<u64> = keyed().collect();
        assert_eq!(keys.len(), made.len() * servers.len(), "{keys:?}");
        assert!(keyed().eq(keyed()));
    }
}
