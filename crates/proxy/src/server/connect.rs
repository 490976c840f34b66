//! Connecting: a server is chosen, tried, tried again, and perhaps another one.

use super::hold::{NoPlace, Wanted};
use super::Hold;
use super::leaving::unless_left;
use crate::generation::{Backend, ServerPlace};
use crate::run::Local;
use crate::session::Client;
use crate::termination::{Cause, Phase, Termination};
use manylane_balance::Index;
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
    /// The connection was there already, and served so many requests.
    pub(crate) reused: Option<u32>,
    /// What it took.
    pub(crate) pains: Pains,
}

/// What it took to get to a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pains {
    /// Time in queues.
    pub(crate) queued: Duration,
    /// Time until it was connected.
    pub(crate) connected: Duration,
    /// Tries after the first.
    pub(crate) retries: u32,
    /// The last of them went to another server.
    pub(crate) redispatched: bool,
}

/// No server was reached.
#[derive(Debug)]
pub(crate) struct NotReached {
    /// How the stream ends.
    pub(crate) ended: Termination,
    /// The server that was tried last, if one was.
    pub(crate) server: Option<Index>,
    /// What it took until then.
    pub(crate) pains: Pains,
}

/// Gets to a server of `backend`: by a connection that `shelf` has of it, or by a new one.
///
/// # Errors
/// [`NotReached`].
pub(crate) async fn connect(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    shelf: impl FnMut(&Hold) -> Option<(Connection, u32)>,
) -> Result<Attempt, NotReached> {
    let (mut server, mut pains) = (None, Pains::default());
    match tries(local, backend, client, wanted, shelf, &mut server, &mut pains).await {
        Ok((connection, hold, reused)) => Ok(Attempt { connection, hold, reused, pains }),
        Err(ended) => Err(NotReached { ended, server, pains }),
    }
}

/// The same; `server` and `pains` tell how far it got.
async fn tries(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    mut shelf: impl FnMut(&Hold) -> Option<(Connection, u32)>,
    last: &mut Option<Index>,
    pains: &mut Pains,
) -> Result<(Connection, Hold, Option<u32>), Termination> {
    let counts = backend.counts.own();
    let retries_most = if backend.retries_connect { backend.retries } else { 0 };
    let here = local.here();
    let begun = here.now();
    let mut hold = enter(local, backend, client, wanted).await?;
    pains.queued = here.now().since(begun);
    let tried = here.now();
    let mut retries = 0;
    loop {
        *last = Some(hold.index());
        if let Some((connection, served)) = shelf(&hold) {
            counts.reuses.add(1);
            hold.server().counts.own().reuses.add(1);
            return Ok((connection, hold, Some(served)));
        }
        let (source, to) = (client.source, client.destination_of(hold.server()));
        let trying = one(local, backend, &hold, source, to);
        let cause = match waiting(backend, client, trying).await? {
            Ok(connection) => {
                counts.connects.add(1);
                hold.server().counts.own().connects.add(1);
                pains.connected = here.now().since(tried);
                return Ok((connection, hold, None));
            }
            Err(cause) => cause,
        };
        if retries >= retries_most {
            counts.connection_errors.add(1);
            hold.server().counts.own().connection_errors.add(1);
            return Err(Termination::new(cause, Phase::Connect));
        }
        retries += 1;
        pains.retries = retries;
        counts.retries.add(1);
        hold.server().counts.own().retries.add(1);
        if backend.redispatch.applies(retries, retries_most) && backend.servers.len() > 1 {
            counts.redispatches.add(1);
            hold.server().counts.own().redispatches.add(1);
            let failed = Wanted { server: None, avoid: Some(hold.index()), ..wanted };
            drop(hold);
            pains.redispatched = true;
            hold = enter(local, backend, client, failed).await?;
        } else if cause == Cause::ServerLeft {
            // It was quick to refuse: time to come back.
            let pause = backend.timeouts.connect.unwrap_or(TURN_AROUND).min(TURN_AROUND);
            waiting(backend, client, here.sleep(pause)).await?;
        }
    }
}

/// A place on a server, perhaps after some time in a queue.
async fn enter(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
) -> Result<Hold, Termination> {
    let entering = Hold::enter(local, backend, wanted);
    let outcome = if backend.common.abort_on_close {
        let left = Termination::new(Cause::ClientLeft, Phase::Queue);
        unless_left(client, entering).await.map_err(|_| left)?
    } else {
        entering.await
    };
    outcome.map_err(|why| match why {
        NoPlace::NoServer => Termination::new(Cause::ServerLeft, Phase::Connect),
        NoPlace::Time => Termination::new(Cause::ServerSilent, Phase::Queue),
    })
}

/// Something that the client may end by leaving.
async fn waiting<T>(backend: &Backend, client: &mut Client, work: impl Future<Output = T>) -> Result<T, Termination> {
    if !backend.common.abort_on_close {
        return Ok(work.await);
    }
    let left = Termination::new(Cause::ClientLeft, Phase::Connect);
    unless_left(client, work).await.map_err(|_| left)
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
