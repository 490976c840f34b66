//! Connections that carry another protocol, behind an upgrade or CONNECT.

use super::Session;
use super::pump::{Broken, Ends, Passage, Pump};
use crate::filters::Filters;
use crate::flow::{BodyEnd, StreamTimeouts, Timeouts};
use crate::lane::ServerPermit;
use crate::tcp::Pair;
use manylane_buf::Chain;
use manylane_h1::{Body, From};
use manylane_plan::Side;
use manylane_plan::generation::{Backend, Server, TimeoutOf};
use manylane_plan::{Cause, Phase, Termination};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

impl Session<'_> {
    /// Forwards data in both directions until the tunnel ends.
    pub(super) async fn tunnel(
        &self,
        backend: &Backend,
        (server, permit): (BodyEnd<'_>, &ServerPermit),
        [received, mut from_server, mut back]: [Chain; 3],
        filters: Option<&Filters<'_>>,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let tunnel = self.scopes.memory.timeout(TimeoutOf::Tunnel).get().or(backend.timeouts.tunnel);
        let usual = self.timeouts(backend);
        let timeouts = Timeouts {
            client: tunnel.or(usual.client),
            server: tunnel.or(usual.server),
            in_turn: false,
            ..usual
        };
        let (Some(client), Some(server)) = (self.client.end.whole(), server.whole()) else {
            let chains = [received, from_server, back];
            let tunnel =
                pin!(self.tunnel_of_streams(backend, (server, permit), timeouts, chains, filters, count));
            return tunnel.await;
        };
        if back.append_chain(&mut from_server).is_err() {
            return Termination::new(Cause::Resource, Phase::Data);
        }
        let (f, b) = (self.frontend.counts.own(), backend.counts.own());
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
        let pair = Pair::new(&self.local.io, client, server, permit, timeouts)
            .counting([[&f.spliced_in, &b.spliced_out], [&b.spliced_in, &f.spliced_out]])
            .filtered(filters);
        pair.forward(received, std::future::ready(Ok((back, false))), self.splicing(backend), count).await
    }

    /// Like [`tunnel`](Self::tunnel), with a stream of HTTP/2 at one end or both: the data of the stream are
    /// the bytes of the tunnel.
    async fn tunnel_of_streams(
        &self,
        backend: &Backend,
        (server, permit): (BodyEnd<'_>, &ServerPermit),
        timeouts: Timeouts,
        [mut received, mut from_server, mut back]: [Chain; 3],
        filters: Option<&Filters<'_>>,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let here = self.local.here();
        let watch = StreamTimeouts::new(timeouts, here.now());
        let client = self.client.end.body();
        let (f, b) = (self.frontend.counts.own(), backend.counts.own());
        let ends = |(sender, way), from, to, passage| Ends {
            io: &self.local.io,
            way,
            from,
            to,
            splice: None,
            kept: None,
            passage,
            filters: filters.and_then(|filters| filters.seeing(sender)),
        };
        let up_passage = Passage { received: &f.received, spliced: [&f.spliced_in, &b.spliced_out] };
        let up_ends = ends((Side::Client, &watch.up), client, server, up_passage);
        let down_passage = Passage { received: &b.received, spliced: [&b.spliced_in, &f.spliced_out] };
        let down_ends = ends((Side::Server, &watch.down), server, client, down_passage);
        let limits = backend.http.response_limits;
        let mut up = Pump::new(client, Body::Tunnel, Body::Tunnel, From::Client, limits, true);
        let mut down = Pump::new(server, Body::Tunnel, Body::Tunnel, From::Server, limits, true);
        if client.h2().is_some() {
            down.goes_to_stream();
        }
        if server.h2().is_some() {
            up.goes_to_stream();
        }
        let mut out = Chain::new();
        let mut up = pin!(async {
            up.run(&up_ends, &mut received, &mut out, |n| count(n, 0)).await?;
            watch.up.end(here.now());
            finish(server).await
        });
        let mut down = pin!(async {
            down.run(&down_ends, &mut from_server, &mut back, |n| count(0, n)).await?;
            watch.down.end(here.now());
            finish(client).await
        });
        let (mut up_is_done, mut down_is_done) = (false, false);
        let both = poll_fn(|context| {
            for (way, is_done, sender, receiver) in [
                (
                    up.as_mut() as Pin<&mut dyn Future<Output = Result<(), Broken>>>,
                    &mut up_is_done,
                    Cause::ClientLeft,
                    Cause::ServerLeft,
                ),
                (down.as_mut(), &mut down_is_done, Cause::ServerLeft, Cause::ClientLeft),
            ] {
                if !*is_done && let Poll::Ready(outcome) = way.poll(context) {
                    match outcome {
                        Ok(()) => *is_done = true,
                        Err(Broken::Sender | Broken::Framing(_)) => return Poll::Ready(Err(sender)),
                        Err(Broken::Receiver) => return Poll::Ready(Err(receiver)),
                        Err(Broken::Memory) => return Poll::Ready(Err(Cause::Resource)),
                    }
                }
            }
            if up_is_done && down_is_done { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        match watch.over(&self.timer, permit, pin!(both)).await {
            Ok(Ok(())) => Termination::NORMAL,
            Ok(Err(cause)) | Err(cause) => Termination::new(cause, Phase::Data),
        }
    }

    /// Counts and logs the end of a tunnel.
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

/// Ends the sending side. A stream was ended with the last data.
async fn finish(end: BodyEnd<'_>) -> Result<(), Broken> {
    match end.whole() {
        Some(connection) => connection.finish().await.map_err(|_| Broken::Receiver),
        None => Ok(()),
    }
}
