//! Connecting: a server is chosen, tried, tried again, and perhaps another one.

use super::Hold;
use super::leaving::unless_left;
use crate::generation::{Backend, ServerPlace};
use crate::run::Local;
use crate::session::Client;
use crate::termination::{Cause, Phase, Termination};
use manylane_balance::Key;
use manylane_net::{Connection, Endpoint, Step};
use std::rc::Rc;
use std::time::Duration;

/// How long is waited before the same server is tried again, unless connecting may take even less.
const TURN_AROUND: Duration = Duration::from_secs(1);

/// A server that was reached.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) connection: Connection,
    pub(crate) hold: Hold,
}

/// Connects to a server of `backend`.
///
/// # Errors
/// How the stream ends.
pub(crate) async fn connect(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    key: Key<'_>,
) -> Result<Attempt, Termination> {
    let connecting = |cause| Termination::new(cause, Phase::Connect);
    let counts = backend.counts.own();
    let mut hold =
        Hold::choose(local, backend, key, None).map_err(|_| connecting(Cause::ServerLeft))?;
    let mut retries = 0;
    loop {
        let outcome = if backend.common.abort_on_close {
            let (source, to) = (client.source, client.destination_or_any());
            let trying = one(local, backend, &hold, source, to);
            match unless_left(client, trying).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(connecting(Cause::ClientLeft)),
            }
        } else {
            one(local, backend, &hold, client.source, client.destination_or_any()).await
        };
        let cause = match outcome {
            Ok(connection) => {
                counts.connects.add(1);
                hold.server().counts.own().connects.add(1);
                return Ok(Attempt { connection, hold });
            }
            Err(cause) => cause,
        };
        if retries >= backend.retries {
            counts.connection_errors.add(1);
            hold.server().counts.own().connection_errors.add(1);
            return Err(connecting(cause));
        }
        retries += 1;
        counts.retries.add(1);
        hold.server().counts.own().retries.add(1);
        let failed = hold.index();
        if backend.redispatch.applies(retries, backend.retries) && backend.servers.len() > 1 {
            counts.redispatches.add(1);
            hold.server().counts.own().redispatches.add(1);
            drop(hold);
            hold = Hold::choose(local, backend, key, Some(failed))
                .map_err(|_| connecting(Cause::ServerLeft))?;
        } else if cause == Cause::ServerLeft {
            // It was quick to refuse: time to come back.
            let pause = backend.timeouts.connect.unwrap_or(TURN_AROUND).min(TURN_AROUND);
            let pause = local.here().sleep(pause);
            if backend.common.abort_on_close {
                if unless_left(client, pause).await.is_err() {
                    return Err(connecting(Cause::ClientLeft));
                }
            } else {
                pause.await;
            }
        }
    }
}

/// One try.
async fn one(
    local: &Rc<Local>,
    backend: &Backend,
    hold: &Hold,
    source: Option<std::net::SocketAddr>,
    destination: std::net::SocketAddr,
) -> Result<Connection, Cause> {
    let server = hold.server();
    let of_client;
    let endpoint: &Endpoint = match &server.place {
        ServerPlace::At(endpoint) => endpoint,
        ServerPlace::OfClient(address) => match address.of_server(destination) {
            Ok(endpoint) => {
                of_client = endpoint;
                &of_client
            }
            Err(_) => return Err(Cause::ServerLeft),
        },
        ServerPlace::Nowhere => return Err(Cause::ServerLeft),
    };
    let deadline = backend.timeouts.connect.map(|time| local.here().now() + time);
    let connector = &local.connectors[server.number];
    connector.connect(&local.io, endpoint, source, deadline).await.map_err(|error| match error.step() {
        Step::Time => Cause::ServerSilent,
        Step::Open | Step::Driver => Cause::Resource, // no descriptors or no memory left
        _ => Cause::ServerLeft,
    })
}
