//! Connecting: a server is chosen, tried, tried again, and perhaps another one.

use super::Hold;
use super::hold::{NoPlace, Wanted};
use super::leaving::unless_left;
use crate::flow::Timer;
use crate::generation::{Backend, Redispatch, Server, ServerPlace};
use crate::rules::Memory;
use crate::run::{Idle, Local, Seen, observe};
use crate::session::Client;
use crate::termination::{Cause, Phase, Termination};
use manylane_balance::Index;
use manylane_io::{SocketAddrAny, socket};
use manylane_net::{Connection, Endpoint, Served, Step};
use manylane_sched::Time;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pains {
    /// When it began.
    pub(crate) since: Time,
    /// Time in queues.
    pub(crate) queued: Duration,
    /// Time until it was connected.
    pub(crate) connected: Duration,
    /// Tries after the first.
    pub(crate) retries: u32,
    /// The last of them went to another server.
    pub(crate) redispatched: bool,
    /// How many were served from the servers' queues while it waited there, itself included.
    pub(crate) server_queue: u64,
    /// The same of the backend's queue.
    pub(crate) backend_queue: u64,
}

impl Pains {
    /// It begins.
    pub(crate) fn new(since: Time) -> Self {
        let (queued, connected) = (Duration::ZERO, Duration::ZERO);
        Self { since, queued, connected, retries: 0, redispatched: false, server_queue: 0, backend_queue: 0 }
    }
}

/// What the lane has for a request that goes to a server.
#[derive(Debug)]
pub(crate) enum Shelved {
    /// This connection.
    This(Idle),
    /// Nothing, and a new one is made.
    Nothing,
    /// Nothing, and none is made: the client is sent there by itself.
    Redirect,
    /// Nothing, but another lane may have one under this key, which has served so many requests.
    Elsewhere { key: u64, least: u32 },
}

/// Tries of a stream after the first, to connect and of its request: all together are at most `retries`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    /// How many.
    pub(crate) retries: u32,
    /// The server of the last one.
    pub(crate) last: Option<Index>,
    /// The next may go to another one.
    pub(crate) elsewhere: bool,
    /// One went to another one.
    pub(crate) redispatched: bool,
    /// How many there may be, where a rule says so.
    pub(crate) most: Option<u32>,
}

impl Tried {
    /// How many tries there may be.
    pub(crate) fn most(&self, backend: &Backend) -> u32 {
        self.most.unwrap_or(backend.retries)
    }

    /// One more try after `last` failed. Whether it may go to another server.
    ///
    /// With `option redispatch` that is at the tries that it names; and always where neither a cookie nor a
    /// rule wants `last`, if no key has chosen it or it takes no requests any more, and another server
    /// does.
    pub(crate) fn again(&mut self, backend: &Backend, last: Index, persistent: bool) -> bool {
        self.retries += 1;
        self.last = Some(last);
        let servers = backend.balancer.servers();
        let may_leave = || {
            let chosen_by_key =
                backend.balancer.algorithm().goes_by_key() && servers[last].state().is_usable();
            !persistent
                && !chosen_by_key
                && servers.iter().any(|(index, other)| index != last && other.state().is_usable())
        };
        self.elsewhere = backend.redispatch != Redispatch::Off
            && (backend.redispatch.applies(self.retries, self.most(backend)) || may_leave());
        self.elsewhere
    }

    /// What is wanted at this try.
    pub(crate) fn wanted<'k>(&self, first: Wanted<'k>, backend: &Backend) -> Wanted<'k> {
        match (self.last, self.elsewhere) {
            (None, _) => first,
            (Some(last), true) => {
                Wanted { server: backend.of_client, avoid: Some(last), persistent: false, ..first }
            }
            (Some(last), false) => Wanted { server: Some(last), ..first },
        }
    }

    /// Counts this try, which goes to `server`.
    fn count(&mut self, backend: &Backend, server: Index) {
        let Some(last) = self.last else { return };
        let counts = (backend.counts.own(), backend.servers[last.get()].counts.own());
        if last == server {
            counts.0.retries.add(1);
            counts.1.retries.add(1);
        } else {
            self.redispatched = true;
            counts.0.redispatches.add(1);
            counts.1.redispatches.add(1);
        }
    }
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

/// Gets to the server of `hold` without waiting, by a connection that `shelf` has of it. So it is for nearly
/// all requests, and a future would cost more than the rest.
///
/// # Errors
/// The place, if there is none; for [`connect`].
pub(crate) fn at_once(
    client: &Client,
    hold: Hold,
    pains: Pains,
    shelf: impl FnOnce(&Hold, &Client) -> Shelved,
) -> Result<Attempt, Hold> {
    match shelf(&hold, client) {
        Shelved::This(Idle { connection, served }) => {
            hold.reuses();
            Ok(Attempt { connection, hold, reused: Some(served), pains })
        }
        Shelved::Nothing | Shelved::Elsewhere { .. } | Shelved::Redirect => Err(hold),
    }
}

/// Gets to a server of `backend`: by a connection that `shelf` has of it, or by a new one. `hold` is a place
/// on a server that there is already, and `pains` what that took.
///
/// # Errors
/// [`NotReached`].
#[allow(clippy::too_many_arguments)] // who takes part, and what there is already
pub(crate) async fn connect(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    tried: &mut Tried,
    hold: Option<Hold>,
    mut pains: Pains,
    timer: &Timer,
    shelf: impl FnMut(&Hold, &Client) -> Shelved,
) -> Result<Attempt, NotReached> {
    let mut server = None;
    // Pinned where they are made, here and below: a future that is given by value stands in its receiver
    // several times, and is copied each time.
    let outcome =
        pin!(tries(local, backend, client, wanted, tried, hold, timer, shelf, &mut server, &mut pains)).await;
    (pains.retries, pains.redispatched) = (tried.retries, tried.redispatched);
    match outcome {
        Ok((connection, hold, reused)) => Ok(Attempt { connection, hold, reused, pains }),
        Err(ended) => Err(NotReached { ended, server, pains }),
    }
}

/// The same; `server` and `pains` tell how far it got.
#[allow(clippy::too_many_arguments)] // who takes part, and what is told of it
async fn tries(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    tried: &mut Tried,
    hold: Option<Hold>,
    timer: &Timer,
    mut shelf: impl FnMut(&Hold, &Client) -> Shelved,
    last: &mut Option<Index>,
    pains: &mut Pains,
) -> Result<(Connection, Hold, Option<u32>), Termination> {
    let counts = backend.counts.own();
    let retries_most = if backend.retries_connect { tried.most(backend) } else { 0 };
    let here = local.here();
    let mut hold = match hold {
        Some(hold) => hold,
        None => {
            let entering =
                pin!(enter(local, backend, client, &tried.wanted(wanted, backend), timer, pains)).await;
            pains.queued = here.now().since(pains.since);
            entering?
        }
    };
    let entered = here.now();
    loop {
        *last = Some(hold.index());
        tried.count(backend, hold.index());
        let idle = match shelf(&hold, client) {
            Shelved::This(idle) => Some(idle),
            Shelved::Nothing => None,
            Shelved::Redirect => return Err(Termination::new(Cause::Local, Phase::Connect)),
            // Seldom, so what it needs is not a part of every session.
            Shelved::Elsewhere { key, least } => {
                Box::pin(local.take_over(backend, hold.index(), key, least)).await
            }
        };
        if let Some(Idle { connection, served }) = idle {
            hold.reuses();
            return Ok((connection, hold, Some(served)));
        }
        local.make_room(backend);
        let server = hold.server();
        let namespace = client.namespace_for(server).cloned();
        let served = Served {
            client: client.source_for(server, wanted.head),
            packets: wanted.packets,
            speaks_first: wanted.head.is_some() || server.header.is_some() || !client.received.is_empty(),
            namespace: namespace.as_deref(),
        };
        let to = client.destination_of(server);
        hold.connects();
        let connected = waiting(backend, client, pin!(one(local, backend, &hold, served, to))).await?;
        let cause = match connected {
            Ok(connection) => {
                observe(local, backend, hold.index(), Seen::Connected);
                pains.connected = here.now().since(entered);
                return Ok((connection, hold, None));
            }
            Err(cause) if cause.is_order() => return Err(Termination::new(cause, Phase::Connect)),
            Err(cause) => cause,
        };
        if cause != Cause::Resource {
            observe(local, backend, hold.index(), Seen::NotConnected);
        }
        if tried.retries >= retries_most {
            counts.connection_errors.add(1);
            hold.server().counts.own().connection_errors.add(1);
            return Err(Termination::new(cause, Phase::Connect));
        }
        let elsewhere = tried.again(backend, hold.index(), wanted.persistent);
        if elsewhere {
            drop(hold);
            hold = pin!(enter(local, backend, client, &tried.wanted(wanted, backend), timer, pains)).await?;
        }
        if cause == Cause::ServerLeft && tried.last == Some(hold.index()) {
            // It was quick to refuse: time to come back.
            let pause = backend.timeouts.connect.unwrap_or(TURN_AROUND).min(TURN_AROUND);
            waiting(backend, client, pin!(here.sleep(pause))).await?;
        }
    }
}

/// Remembers where a server is that was not reached.
pub(crate) fn remember_place(local: &Local, server: &Server, memory: &Memory) {
    if local.generation.looks_at_links
        && let ServerPlace::At(Endpoint::Ip(address)) = server.site.load(&local.reader())
    {
        memory.link.set((None, Some(*address)));
    }
}

/// Remembers between whom a connection to a server is, where the configuration looks at that: two calls of
/// the system.
pub(crate) fn remember_link(local: &Local, connection: &Connection, memory: &Memory) {
    if local.generation.looks_at_links
        && let Some(stream) = connection.stream()
    {
        let ip = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
        let own = socket::local_address(stream.as_fd()).ok().and_then(ip);
        let peer = socket::peer_address(stream.as_fd()).ok().and_then(ip);
        memory.link.set((own, peer));
    }
}

/// A place on a server, perhaps after some time in a queue. `pains` are told how many went before.
///
/// # Errors
/// How the stream ends, which got none.
pub(crate) async fn enter(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: &Wanted<'_>,
    timer: &Timer,
    pains: &mut Pains,
) -> Result<Hold, Termination> {
    let entering = pin!(Hold::enter(local, backend, wanted, timer, pains));
    let outcome = if backend.common.abort_on_close {
        let left = Termination::new(Cause::ClientLeft, Phase::Queue);
        unless_left(client, entering).await.map_err(|_| left)?
    } else {
        entering.await
    };
    let unreached = |server: Option<Index>| {
        backend.counts.own().connection_errors.add(1);
        if let Some(server) = server {
            backend.servers[server.get()].counts.own().connection_errors.add(1);
        }
    };
    outcome.map_err(|why| match why {
        NoPlace::NoServer => {
            unreached(None);
            Termination::new(Cause::ServerLeft, Phase::Connect)
        }
        NoPlace::Time(server) => {
            unreached(server);
            Termination::new(Cause::ServerSilent, Phase::Queue)
        }
        NoPlace::Ended(cause) => Termination::new(cause, Phase::Queue),
    })
}

/// Something that the client may end by leaving.
async fn waiting<W: Future>(
    backend: &Backend,
    client: &mut Client,
    work: Pin<&mut W>,
) -> Result<W::Output, Termination> {
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
    served: Served<'_>,
    destination: SocketAddr,
) -> Result<Connection, Cause> {
    let server = hold.server();
    let endpoint = match server.site.load(&local.reader()) {
        ServerPlace::At(Endpoint::Ip(address)) => Endpoint::Ip(*address),
        ServerPlace::At(endpoint) => endpoint.clone(),
        ServerPlace::OfClient(address) => match address.of_server(destination) {
            Ok(endpoint) => endpoint,
            Err(_) => return Err(Cause::ServerLeft),
        },
        ServerPlace::Nowhere => return Err(Cause::ServerLeft),
    };
    let deadline = backend.timeouts.connect.map(|time| local.here().now() + time);
    let connector = &local.connectors[server.number];
    let connecting = connector.connect_for(&local.io, &endpoint, served, deadline);
    hold.unless_ended(pin!(connecting)).await?.map_err(|error| match error.step() {
        Step::Time => Cause::ServerSilent,
        Step::Open | Step::Driver => Cause::Resource, // no descriptors or no memory left
        _ => Cause::ServerLeft,
    })
}
