//! Connections that carry another protocol, behind an upgrade or CONNECT.

use super::exchange::Exchange;
use crate::filters::StreamFilters;
use crate::flow::{Splicing, Timeouts};
use crate::tunnel::Tunnel;
use manylane_buf::Chain;
use manylane_plan::{Cause, Phase, Termination};
use std::cell::Cell;

impl Exchange<'_> {
    /// Forwards data in both directions until the tunnel ends.
    pub(super) async fn tunnel(
        &self,
        [received, mut from_server, mut back]: [Chain; 3],
        filters: Option<&StreamFilters<'_>>,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let Self { backend, permit, server, .. } = *self;
        if back.append_chain(&mut from_server).is_err() {
            return Termination::new(Cause::Resource, Phase::Data);
        }
        let (f, b) = (self.stream.frontend.counts.own(), backend.counts.own());
        // Bytes that arrived before the tunnel were counted then.
        let (up_before, down_before) = (Cell::new(received.len() as u64), Cell::new(back.len() as u64));
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
        let timeouts = Timeouts::of_tunnel(self.stream.frontend, backend, &self.stream.scopes.memory);
        let tunnel =
            Tunnel::new(&self.stream.local.io, (self.stream.client.end.body(), server), permit, timeouts)
                .counting([[&f.spliced_in, &b.spliced_out], [&b.spliced_in, &f.spliced_out]])
                .filtered(filters);
        let splicing = Splicing::of(&self.stream.local.generation, self.stream.frontend, backend);
        tunnel.forward(received, std::future::ready(Ok((back, false))), splicing, count).await
    }

    /// Counts and logs the end of a tunnel.
    pub(super) fn tunnelled(&self, ended: Termination) {
        self.stream.note(|record| record.ended = ended);
        match ended.cause {
            Cause::ClientLeft | Cause::ClientSilent => self.parties().client_aborts(),
            Cause::ServerLeft | Cause::ServerSilent => self.parties().server_aborts(),
            _ => {}
        }
    }
}
