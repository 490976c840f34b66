//! TCP mode: a session is one stream of bytes in both directions.

mod forward;

pub(crate) use forward::Pair;

use crate::flow::{Patience, Splicing};
use crate::generation::{Backend, Frontend, Listener, Target};
use crate::rules::{Facts, Moment, Scopes};
use crate::run::Local;
use crate::server::{self, Attempt, Wanted};
use crate::session::Client;
use crate::termination::{Cause, Phase, Termination};
use manylane_buf::Chain;
use std::rc::Rc;

/// Serves a connection until it ends.
pub(crate) async fn run(local: &Rc<Local>, frontend: &Frontend, listener: &Listener, client: Client) {
    frontend.counts.own().streams.add(1);
    let ended = stream(local, frontend, listener, client).await;
    frontend.counts.own().streams_ended.add(1);
    if matches!(ended.cause, Cause::ClientLeft | Cause::ClientSilent) {
        frontend.counts.own().request_errors.add(1);
    }
}

async fn stream(local: &Rc<Local>, frontend: &Frontend, listener: &Listener, client: Client) -> Termination {
    let chosen = if frontend.rules.use_backend.is_empty() {
        None
    } else {
        let scopes = Scopes::default();
        let facts = Facts {
            local,
            frontend,
            listener,
            source: client.source,
            destination: client.destination(),
            first_request: true,
            scopes: &scopes,
        };
        Target::backend(&frontend.rules.use_backend, &facts, Moment::default())
    };
    let Some(backend) =
        chosen.or(frontend.default_backend).map(|number| &local.generation.backends[number])
    else {
        return Termination::new(Cause::ServerLeft, Phase::Connect);
    };
    backend.counts.own().streams.add(1);
    let ended = served(local, frontend, listener, backend, client).await;
    backend.counts.own().streams_ended.add(1);
    ended
}

async fn served(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    backend: &Backend,
    mut client: Client,
) -> Termination {
    let wanted = Wanted { key: backend.key.of_connection(client.source), ..Wanted::default() };
    let attempt = match server::connect(local, backend, &mut client, wanted, |_| None).await {
        Ok(attempt) => attempt,
        Err(ended) => return ended,
    };
    let Attempt { connection, hold, reused: _ } = attempt;
    let mut first = Chain::new();
    if let Some(how) = hold.server().header {
        let header = server::header(how, &client);
        if first.append(&header).is_err() {
            return Termination::new(Cause::Resource, Phase::Connect); // no memory
        }
    }
    if first.append_chain(&mut client.received).is_err() {
        return Termination::new(Cause::Resource, Phase::Connect);
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
        let (f, b, s, l) = (frontend.counts.own(), backend.counts.own(), server.counts.own(), listener.counts.own());
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
    if matches!(ended.cause, Cause::ServerLeft | Cause::ServerSilent) {
        backend.counts.own().response_errors.add(1);
        server.counts.own().response_errors.add(1);
    }
    ended
}
