//! A connection that carries another protocol: behind an upgrade or CONNECT.

use super::Session;
use crate::flow::Timeouts;
use crate::generation::{Backend, Server};
use crate::server::ServerPermit;
use crate::tcp::Pair;
use crate::termination::{Cause, Phase, Termination};
use manylane_buf::Chain;
use manylane_net::Connection;
use std::cell::Cell;

impl Session<'_> {
    /// The connection carries another protocol from here on.
    pub(super) async fn tunnel(
        &self,
        backend: &Backend,
        (server, permit): (&Connection, &ServerPermit),
        mut back: Chain,
        received: Chain,
        from_server: Chain,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let client = self.client.end.connection();
        let head = back.len() as u64;
        if client.send(&mut back).await.is_err() {
            return Termination::new(Cause::ClientLeft, Phase::Data);
        }
        count(0, head);
        let tunnel = self.scopes.memory.tunnel_timeout.get().or(backend.timeouts.tunnel);
        let usual = self.timeouts(backend);
        let timeouts = Timeouts {
            client: tunnel.or(usual.client),
            server: tunnel.or(usual.server),
            in_turn: false,
            ..usual
        };
        let (f, b) = (self.frontend.counts.own(), backend.counts.own());
        // What came before the tunnel was counted when it came.
        let (up_before, down_before) =
            (Cell::new(received.len() as u64), Cell::new(from_server.len() as u64));
        let new = |before: &Cell<u64>, bytes: u64| {
            let old = before.get().min(bytes);
            before.set(before.get() - old);
            bytes - old
        };
        let count = |up: u64, down: u64| {
            f.received.add(new(&up_before, up));
            b.received.add(new(&down_before, down));
            count(up, down);
        };
        let pair = Pair::new(&self.local.io, client, server, permit, timeouts)
            .counting([[&f.spliced_in, &b.spliced_out], [&b.spliced_in, &f.spliced_out]]);
        pair.forward(received, std::future::ready(Ok((from_server, false))), self.splicing(backend), count)
            .await
    }

    /// What is told of a tunnel that has ended.
    pub(super) fn tunnelled(&self, backend: &Backend, server: &Server, ended: Termination) {
        self.note(|record| record.ended = ended);
        let (b, s) = (backend.counts.own(), server.counts.own());
        match ended.cause {
            Cause::ClientLeft | Cause::ClientSilent => {
                [&b.client_aborts, &s.client_aborts].into_iter().for_each(|aborts| aborts.add(1))
            }
            Cause::ServerLeft | Cause::ServerSilent => {
                [&b.server_aborts, &s.server_aborts].into_iter().for_each(|aborts| aborts.add(1))
            }
            _ => {}
        }
    }
}
