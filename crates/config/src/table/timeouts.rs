//! `timeout` lines of proxies.

use super::context::{DFL, DFLB, DLB, KeywordContext, KeywordContexts};
use super::{Keyword, time};
use crate::build::{Builder, Line};

/// A timeout of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Timeout {
    /// Response of a health check.
    Check,
    /// Inactivity of the client.
    Client,
    /// Inactivity of the client after one half of its connection was closed.
    ClientFin,
    /// PROXY header and TLS handshake of a client.
    ClientHs,
    /// Connection attempt to a server.
    Connect,
    /// Next request on an idle client connection.
    HttpKeepAlive,
    /// Complete head of a request.
    HttpRequest,
    /// Wait in the queue for a server.
    Queue,
    /// Inactivity of the server.
    Server,
    /// Inactivity of the server after one half of its connection was closed.
    ServerFin,
    /// Delay before the response to a tarpitted request.
    Tarpit,
    /// Inactivity of either side of a tunnel.
    Tunnel,
}

use Timeout::*;

const TABLE: [(Timeout, &str, KeywordContexts, &str, &str); 12] = [
    (
        Check,
        "timeout check",
        DLB,
        "timeout connect and inter",
        "how long a health check waits for an answer once it is connected",
    ),
    (Client, "timeout client", DFL, "none", "how long a client may be silent when it should send or receive"),
    (
        ClientFin,
        "timeout client-fin",
        DFL,
        "timeout client",
        "how long a client may be silent after one side was closed",
    ),
    (ClientHs, "timeout client-hs", DFL, "timeout client", "how long the handshake of a client may take"),
    (Connect, "timeout connect", DLB, "none", "how long a connection to a server may take"),
    (
        HttpKeepAlive,
        "timeout http-keep-alive",
        DFLB,
        "timeout http-request",
        "how long a client's connection may wait for its next request",
    ),
    (HttpRequest, "timeout http-request", DFLB, "timeout client", "how long the head of a request may take"),
    (Queue, "timeout queue", DLB, "timeout connect", "how long a request waits for a slot at a server"),
    (Server, "timeout server", DLB, "none", "how long a server may be silent when it should send or receive"),
    (
        ServerFin,
        "timeout server-fin",
        DLB,
        "timeout server",
        "how long a server may be silent after one side was closed",
    ),
    (Tarpit, "timeout tarpit", DFLB, "timeout connect", "how long a tarpitted client waits for its answer"),
    (Tunnel, "timeout tunnel", DLB, "timeout client and server", "how long a tunnel may be silent"),
];

impl Timeout {
    /// Number of timeouts.
    pub const COUNT: usize = TABLE.len();

    /// The keyword.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

fn store(b: &mut Builder<'_>, line: &Line<'_>) {
    if let Some(row) = TABLE.iter().find(|row| row.1 == line.keyword.name) {
        let value = line.set(line.time(0));
        b.settings().timeouts[row.0 as usize] = Some(value);
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows: Vec<Keyword> = TABLE
        .iter()
        .map(|&(_, name, contexts, default, help)| {
            super::args(name, contexts, [time("delay")], help).default(default).built(store)
        })
        .collect();
    let resolvers = KeywordContexts::of(&[KeywordContext::Resolvers]);
    for name in ["timeout resolve", "timeout retry"] {
        rows.push(
            super::args(name, resolvers, [time("delay")], "how long until a name is asked for again")
                .default("1s")
                .built(super::misc::resolver_timeout),
        );
    }
    let ring = KeywordContexts::of(&[KeywordContext::Ring]);
    for name in ["timeout connect", "timeout server"] {
        rows.push(
            super::args(name, ring, [time("delay")], "how long a server of the ring is waited for")
                .built(super::misc::ring_timeout),
        );
    }
    let renamed = "older name; HAProxy itself has removed it, use the keyword that begins with timeout";
    for (name, contexts) in [("clitimeout", DFL), ("contimeout", DLB), ("srvtimeout", DLB)] {
        rows.push(super::args(name, contexts, [time("delay")], "older name of a timeout").refused(renamed));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_timeout_is_its_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
        }
    }
}
