//! TCP mode: a session is one stream of bytes in both directions.

mod forward;

pub(crate) use forward::Pair;

use crate::flow::{Patience, Splicing};
use crate::generation::{Backend, Frontend, Listener, Target};
use crate::log::Record;
use crate::rules::{Facts, Moment, Scopes};
use crate::run::Local;
use crate::server::{self, Attempt, Wanted};
use crate::session::{Client, Peers};
use crate::termination::{Cause, Phase, Termination};
use manylane_balance::Index;
use manylane_buf::Chain;
use std::rc::Rc;

/// Serves a connection until it ends.
pub(crate) async fn run(local: &Rc<Local>, frontend: &Frontend, listener: &Listener, mut client: Client) {
    frontend.counts.own().streams.add(1);
    let scopes = Scopes::default();
    let asked = !frontend.rules.use_backend.is_empty() || frontend.log.is_some();
    let facts = Facts {
        local,
        frontend,
        listener,
        peers: if asked { client.peers() } else { Peers::default() },
        first_request: true,
        scopes: &scopes,
    };
    let chosen = Target::backend(&frontend.rules.use_backend, &facts, Moment::default());
    let backend = chosen.or(frontend.default_backend).map(|number| &local.generation.backends[number]);
    let mut stream = Stream { local, frontend, listener, record: Record::new(local.here().now()), server: None };
    let ended = match backend {
        None => {
            client.swallow();
            Termination::new(Cause::ServerLeft, Phase::Connect)
        }
        Some(backend) => {
            backend.counts.own().streams.add(1);
            let ended = stream.serve(backend, &mut client).await;
            backend.counts.own().streams_ended.add(1);
            ended
        }
    };
    frontend.counts.own().streams_ended.add(1);
    if matches!(ended.cause, Cause::ClientLeft | Cause::ClientSilent) {
        frontend.counts.own().request_errors.add(1);
    }
    let Stream { mut record, server, .. } = stream;
    if let Some(log) = &frontend.log
        && !(log.no_null && record.up == 0)
    {
        record.ended = ended;
        let server = backend.zip(server).map(|(backend, index)| &backend.servers[index]);
        record.write(log, &facts, backend, server, local.here().now());
    }
}

/// A stream of bytes.
struct Stream<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    record: Record,
    /// The number of the server that was reached, or tried last.
    server: Option<usize>,
}

impl Stream<'_> {
    async fn serve(&mut self, backend: &Backend, client: &mut Client) -> Termination {
        let (local, frontend, listener) = (self.local, self.frontend, self.listener);
        let wanted = Wanted { key: backend.key.of_connection(client.source), ..Wanted::default() };
        let attempt = match server::connect(local, backend, client, wanted, |_| None).await {
            Ok(attempt) => attempt,
            Err(failed) => {
                self.record.not_reached(&failed);
                self.server = failed.server.map(Index::get);
                client.swallow();
                return failed.ended;
            }
        };
        let Attempt { connection, hold, reused: _, pains } = attempt;
        self.record.pains(pains);
        self.server = Some(hold.server().index);
        let mut first = Chain::new();
        let memory = Termination::new(Cause::Resource, Phase::Connect);
        if let Some(how) = hold.server().header
            && first.append(&server::header(how, client)).is_err()
        {
            return memory;
        }
        if first.append_chain(&mut client.received).is_err() {
            return memory;
        }
        let tunnel = backend.timeouts.tunnel;
        let patience = Patience {
            client: tunnel.or(frontend.timeouts.client),
            server: tunnel.or(backend.timeouts.server),
            client_fin: frontend.timeouts.client_fin.or(frontend.timeouts.client),
            server_fin: backend.timeouts.server_fin.or(backend.timeouts.server),
            independent: frontend.common.independent || backend.common.independent,
            in_turn: false,
        };
        let allowed = !local.generation.process.no_splice;
        let splicing = Splicing {
            up: frontend.common.splice_request.or(backend.common.splice_request).filter(|_| allowed),
            down: frontend.common.splice_response.or(backend.common.splice_response).filter(|_| allowed),
        };
        let pair = Pair::new(&local.io, &client.connection, &connection, patience);
        let server = hold.server();
        let count = |up: u64, down: u64| {
            let (f, b) = (frontend.counts.own(), backend.counts.own());
            let (s, l) = (server.counts.own(), listener.counts.own());
            for (bytes_in, bytes_out) in [
                (&f.bytes_in, &f.bytes_out),
                (&b.bytes_in, &b.bytes_out),
                (&s.bytes_in, &s.bytes_out),
                (&l.bytes_in, &l.bytes_out),
            ] {
                bytes_in.add(up);
                bytes_out.add(down);
            }
        };
        let ended = pair.forward(first, Chain::new(), splicing, count).await;
        (self.record.up, self.record.down) = pair.bytes();
        if matches!(ended.cause, Cause::ServerLeft | Cause::ServerSilent) {
            backend.counts.own().response_errors.add(1);
            server.counts.own().response_errors.add(1);
        }
        ended
    }
}
