//! Connects to a server: chooses one, tries it, retries it, and perhaps tries another.

use super::TlsGuard;
use super::leaving::unless_left;
use crate::client::Client;
use crate::flow::ServerEnd;
use crate::lane::{Idle, Local, NoPermit, Observation, ServerPermit, Timer, Wanted, observe, say};
use crate::scopes::{BackLink, Memory};
use manylane_balance::Index;
use manylane_buf::Chain;
use manylane_expr::LinkError;
use manylane_io::{SocketAddrAny, socket};
use manylane_logs::Level;
use manylane_mux::h2;
use manylane_net::{Connection, Endpoint, Served, Step, TlsStream, TransferError};
use manylane_plan::connect_timings::{ConnectTimings, NotReached};
use manylane_plan::generation::{Backend, Redispatch, Server, ServerPlace, ServerTls};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sched::Time;
use manylane_sync::atomic::Ordering;
use manylane_tls::{CertificateError, RustlsError, ServerName};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// Pause before the same server is retried, unless `timeout connect` is shorter.
const TURN_AROUND: Duration = Duration::from_secs(1);

/// A server that was reached.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) end: ServerEnd,
    pub(crate) permit: ServerPermit,
    /// Number of requests that a reused connection has served; `None` for a new connection.
    pub(crate) reused: Option<u32>,
    /// Times and counts of the attempt.
    pub(crate) timings: ConnectTimings,
}

/// An existing connection for a request.
#[derive(Debug)]
pub(crate) enum IdleConn {
    /// This idle connection.
    This(Idle),
    /// A new stream of this shared connection.
    Shared(h2::Conn),
    /// No connection: the caller makes a new one.
    Nothing,
    /// No connection, and none is made: the client is redirected to the server.
    Redirect,
    /// No connection here, but another lane may have one under this key that has served `least` requests.
    Elsewhere { key: u64, least: u32 },
}

/// Retries of a stream, to connect and to repeat its request: together at most `retries`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    /// Number of retries.
    pub(crate) retries: u32,
    /// The server of the last attempt.
    pub(crate) last: Option<Index>,
    /// The next attempt may go to another server.
    pub(crate) elsewhere: bool,
    /// An attempt went to another server.
    pub(crate) redispatched: bool,
    /// Most retries, if a rule sets them.
    pub(crate) most: Option<u32>,
}

impl Tried {
    /// Returns the allowed number of retries.
    pub(crate) fn most(&self, backend: &Backend) -> u32 {
        self.most.unwrap_or(backend.retries)
    }

    /// Begins a retry after `last` failed. Returns true if the retry may go to another server.
    ///
    /// That is so at the retries that `option redispatch` names. With the option it is also so if neither a
    /// cookie nor a rule chose `last`, another server takes requests, and `last` was not chosen by a key or
    /// takes no more requests.
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

    /// Returns what the next attempt asks the balancer for.
    pub(crate) fn wanted<'k>(&self, first: Wanted<'k>, backend: &Backend) -> Wanted<'k> {
        match (self.last, self.elsewhere) {
            (None, _) => first,
            (Some(last), true) => {
                Wanted { server: backend.of_client, avoid: Some(last), persistent: false, ..first }
            }
            (Some(last), false) => Wanted { server: Some(last), ..first },
        }
    }

    /// Counts an attempt at `server`.
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

/// Reaches the server of `permit` without waiting, by an existing connection of `idle_pool`. Nearly all
/// requests take this path; a future would cost more than the rest of it.
///
/// # Errors
/// Returns the permit if there is no connection; the caller passes it to [`connect`].
pub(crate) fn at_once(
    client: &Client,
    permit: ServerPermit,
    timings: ConnectTimings,
    idle_pool: impl FnOnce(&ServerPermit, &Client) -> IdleConn,
) -> Result<Attempt, ServerPermit> {
    match idle_pool(&permit, client) {
        IdleConn::This(Idle { connection, served }) => {
            permit.reuses();
            let end = ServerEnd::Http1(connection);
            Ok(Attempt { end, permit, reused: Some(served), timings })
        }
        IdleConn::Shared(conn) => {
            permit.reuses();
            let reused = Some(begun(&conn));
            Ok(Attempt { end: ServerEnd::stream_of(conn), permit, reused, timings })
        }
        IdleConn::Nothing | IdleConn::Elsewhere { .. } | IdleConn::Redirect => Err(permit),
    }
}

/// Reaches a server of `backend` by a connection of `idle_pool` or a new one. `permit` is a permit that the
/// caller has already, and `timings` the time that it took.
///
/// # Errors
/// [`NotReached`].
#[allow(clippy::too_many_arguments)] // the participants, and the state so far
pub(crate) async fn connect(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    tried: &mut Tried,
    permit: Option<ServerPermit>,
    mut timings: ConnectTimings,
    timer: &Timer,
    idle_pool: impl FnMut(&ServerPermit, &Client) -> IdleConn,
) -> Result<Attempt, NotReached> {
    let mut server = None;
    // Pinned where they are made, here and below: a future passed by value is stored in its receiver several
    // times, and copied each time.
    let outcome = pin!(tries(
        local,
        backend,
        client,
        wanted,
        tried,
        permit,
        timer,
        idle_pool,
        &mut server,
        &mut timings
    ))
    .await;
    (timings.retries, timings.redispatched) = (tried.retries, tried.redispatched);
    match outcome {
        Ok((end, permit, reused)) => Ok(Attempt { end, permit, reused, timings }),
        Err(ended) => Err(NotReached { ended, server, timings }),
    }
}

/// Makes the attempts of [`connect`]; `last` and `timings` report how far they got.
#[allow(clippy::too_many_arguments)] // the participants, and the reports
async fn tries(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: Wanted<'_>,
    tried: &mut Tried,
    permit: Option<ServerPermit>,
    timer: &Timer,
    mut idle_pool: impl FnMut(&ServerPermit, &Client) -> IdleConn,
    last: &mut Option<Index>,
    timings: &mut ConnectTimings,
) -> Result<(ServerEnd, ServerPermit, Option<u32>), Termination> {
    let counts = backend.counts.own();
    let retries_most = if backend.retries_connect { tried.most(backend) } else { 0 };
    let here = local.here();
    let mut permit = match permit {
        Some(permit) => permit,
        None => {
            let entering =
                pin!(enter(local, backend, client, &tried.wanted(wanted, backend), timer, timings)).await;
            timings.queued = here.now().since(timings.since);
            entering?
        }
    };
    let entered = here.now();
    loop {
        *last = Some(permit.index());
        tried.count(backend, permit.index());
        let idle = match idle_pool(&permit, client) {
            IdleConn::This(idle) => Some(idle),
            IdleConn::Shared(conn) => {
                permit.reuses();
                let served = begun(&conn);
                return Ok((ServerEnd::stream_of(conn), permit, Some(served)));
            }
            IdleConn::Nothing => None,
            IdleConn::Redirect => return Err(Termination::new(Cause::Local, Phase::Connect)),
            // Rare, so its state is not part of every session.
            IdleConn::Elsewhere { key, least } => {
                Box::pin(local.take_over(backend, permit.index(), key, least)).await
            }
        };
        if let Some(Idle { connection, served }) = idle {
            permit.reuses();
            return Ok((ServerEnd::Http1(connection), permit, Some(served)));
        }
        local.make_room(backend);
        let server = permit.server();
        let namespace = client.namespace_for(server).cloned();
        let served = Served {
            client: client.source_for(server, wanted.head),
            packets: wanted.packets,
            speaks_first: wanted.head.is_some() || server.header.is_some() || !client.received.is_empty(),
            namespace: namespace.as_deref(),
            via: server.socks4,
        };
        let to = client.destination_of(server);
        permit.connects();
        let connected =
            waiting(backend, client, pin!(one(local, backend, &permit, served, to, &wanted))).await?;
        let cause = match connected {
            Ok(connection) => {
                observe(local, backend, permit.index(), Observation::Connected);
                timings.connected = here.now().since(entered);
                return Ok((ServerEnd::Http1(connection), permit, None));
            }
            Err(cause) if cause.is_order() => return Err(Termination::new(cause, Phase::Connect)),
            Err(cause) => cause,
        };
        if cause != Cause::Resource {
            observe(local, backend, permit.index(), Observation::NotConnected);
        }
        if tried.retries >= retries_most {
            counts.connection_errors.add(1);
            permit.server().counts.own().connection_errors.add(1);
            return Err(Termination::new(cause, Phase::Connect));
        }
        let elsewhere = tried.again(backend, permit.index(), wanted.persistent);
        if elsewhere {
            drop(permit);
            permit =
                pin!(enter(local, backend, client, &tried.wanted(wanted, backend), timer, timings)).await?;
        }
        if cause == Cause::ServerLeft && tried.last == Some(permit.index()) {
            // The server refused quickly: give it time to come back.
            let time = wanted.connect_time.or(backend.timeouts.connect);
            let pause = time.unwrap_or(TURN_AROUND).min(TURN_AROUND);
            waiting(backend, client, pin!(here.sleep(pause))).await?;
        }
    }
}

/// Returns the number of requests that a connection has begun.
fn begun(conn: &h2::Conn) -> u32 {
    u32::try_from(conn.begun()).unwrap_or(u32::MAX)
}

/// Stores the address of a server that was not reached, for samples.
pub(crate) fn remember_place(local: &Local, server: &Server, memory: &Memory) {
    if local.generation.reads_connections
        && let ServerPlace::At(Endpoint::Ip(address)) = server.addr.load(&local.reader())
    {
        memory.link.set((None, Some(*address)));
    }
}

/// Stores the addresses of a server connection for samples, if the configuration reads them. Costs two system
/// calls.
pub(crate) fn remember_link(local: &Local, connection: &Connection, memory: &Memory) {
    if !local.generation.reads_connections {
        return;
    }
    memory.links.set_back(BackLink::Single);
    memory.server_tls.replace(connection.tls().and_then(|tls| tls.info().cloned()));
    if let Some(stream) = connection.socket() {
        let ip = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
        let own = socket::local_address(stream.as_fd()).ok().and_then(ip);
        let peer = socket::peer_address(stream.as_fd()).ok().and_then(ip);
        memory.link.set((own, peer));
    }
}

/// Takes a permit of a server, perhaps after waiting in a queue. `timings` count the requests that were
/// served before.
///
/// # Errors
/// How the stream ends if it got no permit.
pub(crate) async fn enter(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    wanted: &Wanted<'_>,
    timer: &Timer,
    timings: &mut ConnectTimings,
) -> Result<ServerPermit, Termination> {
    let entering = pin!(ServerPermit::enter(local, backend, wanted, timer, timings));
    let outcome = if ends_waiting(backend, client) {
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
        NoPermit::NoServer => {
            unreached(None);
            Termination::new(Cause::ServerLeft, Phase::Connect)
        }
        NoPermit::Time(server) => {
            unreached(server);
            Termination::new(Cause::ServerSilent, Phase::Queue)
        }
        NoPermit::Ended(cause) => Termination::new(cause, Phase::Queue),
    })
}

/// Returns true if a client that leaves ends the wait. A client that resets its stream always does.
fn ends_waiting(backend: &Backend, client: &Client) -> bool {
    backend.common.abort_on_close || client.end.h2().is_some()
}

/// Runs `work`, unless the client ends it by leaving.
pub(crate) async fn waiting<W: Future>(
    backend: &Backend,
    client: &mut Client,
    work: Pin<&mut W>,
) -> Result<W::Output, Termination> {
    if !ends_waiting(backend, client) {
        return Ok(work.await);
    }
    let left = Termination::new(Cause::ClientLeft, Phase::Connect);
    unless_left(client, work).await.map_err(|_| left)
}

/// Makes one attempt to connect.
async fn one(
    local: &Rc<Local>,
    backend: &Backend,
    permit: &ServerPermit,
    served: Served<'_>,
    destination: SocketAddr,
    wanted: &Wanted<'_>,
) -> Result<Connection, Cause> {
    let server = permit.server();
    let endpoint = match server.addr.load(&local.reader()) {
        ServerPlace::At(Endpoint::Ip(address)) => Endpoint::Ip(*address),
        ServerPlace::At(endpoint) => endpoint.clone(),
        ServerPlace::OfClient(address) => match address.of_server(destination) {
            Ok(endpoint) => endpoint,
            Err(_) => return Err(Cause::ServerLeft),
        },
        ServerPlace::Nowhere => return Err(Cause::ServerLeft),
    };
    let time = wanted.connect_time.or(backend.timeouts.connect);
    let deadline = time.map(|time| local.here().now() + time);
    let connector = &local.connectors[server.number];
    let connecting = connector.connect_for(&local.io, &endpoint, served, deadline);
    let connected = permit.unless_ended(pin!(connecting)).await?.map_err(|error| match error.step() {
        Step::Time => Cause::ServerSilent,
        Step::Open | Step::Driver => Cause::Resource, // no descriptors or no memory
        _ => Cause::ServerLeft,
    })?;
    match &server.tls {
        None => Ok(connected),
        // Rare compared with requests, so its state is not part of every session.
        Some(tls) => Box::pin(encrypted(local, backend, permit, tls, connected, wanted, deadline)).await,
    }
}

/// Does the TLS handshake with a server, within the time to connect.
async fn encrypted(
    local: &Rc<Local>,
    backend: &Backend,
    permit: &ServerPermit,
    tls: &ServerTls,
    connection: Connection,
    wanted: &Wanted<'_>,
    deadline: Option<Time>,
) -> Result<Connection, Cause> {
    if permit.server().header.is_some() {
        let index = permit.index().get();
        let header = wanted.headers.iter().find(|(number, _)| *number == index);
        let mut chain = Chain::new();
        let (_, bytes) = header.ok_or(Cause::Resource)?; // the header could not be made
        chain.append(bytes).map_err(|_| Cause::Resource)?;
        connection.send(&mut chain).await.map_err(|_| Cause::ServerLeft)?;
    }
    let name = tls.name(wanted.names);
    let asks = matches!(name, ServerName::DnsName(_));
    let own =
        manylane_tls::Connection::client(&tls.context, name, &local.reader()).map_err(|_| Cause::Resource)?;
    let guard = TlsGuard::begin(&local.generation).ok_or(Cause::Resource)?;
    let connection =
        connection.encrypt(own, Chain::new(), Some(Box::new(guard))).map_err(|_| Cause::Resource)?;
    let here = local.here();
    let shaken = {
        let Some(stream) = connection.tls() else { return Ok(connection) };
        let shaking = pin!(stream.handshake(here));
        match deadline {
            None => permit.unless_ended(shaking).await?,
            Some(deadline) => {
                let shaking = pin!(here.timeout(deadline.since(here.now()), shaking));
                permit.unless_ended(shaking).await?.map_err(|_| Cause::ServerSilent)?
            }
        }
    };
    let (of_backend, of_server) = (backend.counts.own(), permit.server().counts.own());
    match shaken {
        Ok(()) => {
            of_backend.tls_sessions.add(1);
            of_server.tls_sessions.add(1);
            if connection.tls().and_then(TlsStream::info).is_some_and(|info| info.resumed) {
                of_backend.tls_resumed.add(1);
                of_server.tls_resumed.add(1);
            } else {
                local.generation.process_stats.tls_servers.own().keys.add(1);
            }
            if tls.failing.load(Ordering::Relaxed) {
                tls.failing.store(false, Ordering::Relaxed);
            }
            Ok(connection)
        }
        Err(error) if error.is_memory() => Err(Cause::Resource),
        Err(error) => {
            of_backend.tls_failed.add(1);
            of_server.tls_failed.add(1);
            if let (Some(stream), Some(memory)) = (connection.tls(), wanted.memory) {
                stream.fail(match &error {
                    TransferError::Tls(error) => Some(error),
                    _ => None,
                });
                memory.server_tls.replace(stream.info().cloned());
                memory.links.set_back_error(link_error(&error, asks));
            }
            // Logged once until a handshake succeeds; requests have log lines of their own.
            if !tls.failing.swap(true, Ordering::Relaxed) {
                let name = &permit.server().name;
                let text = format!("Server {}/{name}: SSL handshake failure ({error}).", backend.name);
                say(local, backend, Level::Err, &text);
            }
            Err(Cause::ServerLeft)
        }
    }
}

/// Returns the reason of a failed handshake, for samples. `asks` is true if the expected name in the
/// certificate was sent as SNI.
fn link_error(error: &TransferError, asks: bool) -> LinkError {
    let misnamed = matches!(
        error,
        TransferError::Tls(manylane_tls::Error::Tls(RustlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )))
    );
    let (code, name, sentence) = match (misnamed, asks) {
        (false, _) => (34, "SSL_HANDSHAKE", "SSL handshake failure"),
        (true, false) => {
            let why = "Server presented an SSL certificate different from the configured one";
            (32, "SSL_MISMATCH", why)
        }
        (true, true) => {
            let why = "Server presented an SSL certificate different from the expected one";
            (33, "SSL_MISMATCH_SNI", why)
        }
    };
    LinkError { code, name, sentence }
}

/// Returns true if ALPN has selected HTTP/2.
pub(crate) fn has_agreed_on_h2(connection: &Connection) -> bool {
    connection.tls().and_then(|tls| tls.info()).is_some_and(|info| info.alpn.as_deref() == Some(b"h2"))
}
