//! Connects to a server: chooses one, tries it, retries it, and perhaps tries another.

use super::TlsGuard;
use super::leaving::unless_left;
use crate::client::Client;
use crate::flow::ServerEnd;
use manylane_balance::{ConnSlot, Index};
use manylane_buf::Chain;
use manylane_expr::LinkError;
use manylane_io::{SocketAddrAny, SocketId, socket};
use manylane_lanes::{
    BackLink, Idle, Local, Memory, NoPermit, Observation, Parties, ServerPermit, Timer, Wanted, observe, say,
};
use manylane_logs::Level;
use manylane_mux::h2;
use manylane_net::{ConnPurpose, Connection, Endpoint, Step, TlsStream, TransferError};
use manylane_plan::connect_timings::{ConnectTimings, NotReached};
use manylane_plan::generation::{Backend, Redispatch, Server, ServerAddress, ServerTls};
use manylane_plan::{Cause, Phase, Side, Termination};
use manylane_sched::Time;
use manylane_sync::atomic::Ordering;
use manylane_tls::{CertificateError, Hello, Info, RustlsError, ServerName};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// Pause before the same server is retried, unless `timeout connect` is shorter.
const TURN_AROUND: Duration = Duration::from_secs(1);

/// A server that was reached. Dropped in this order: the slot is freed after the connection has closed, and
/// before another stream gets the permit and needs a slot.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) end: ServerEnd,
    /// The share that a connection of HTTP/1 or TCP has of the server's `maxconn`, if connections count.
    pub(crate) slot: Option<ConnSlot>,
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

    /// Counts an attempt at the server of `permit`, if it is not the first one of the stream.
    fn count(&mut self, permit: &ServerPermit) {
        let Some(last) = self.last else { return };
        self.redispatched |= last != permit.index();
        let parties = Parties { server: Some(&permit.backend().servers[last.get()]), ..permit.parties() };
        if last == permit.index() { parties.connection_retried() } else { parties.redispatched() }
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
        IdleConn::This(Idle { connection, served, slot }) => {
            permit.parties().reuses();
            let end = ServerEnd::Http1(connection);
            Ok(Attempt { end, permit, reused: Some(served), slot, timings })
        }
        IdleConn::Shared(conn) => {
            permit.parties().reuses();
            let reused = Some(begun(&conn));
            Ok(Attempt { end: ServerEnd::stream_of(conn), permit, reused, slot: None, timings })
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
        Ok((end, permit, reused, slot)) => Ok(Attempt { end, permit, reused, slot, timings }),
        Err(ended) => Err(NotReached { ended, server, timings }),
    }
}

/// Makes the attempts of [`connect`]; `last` and `timings` report how far they got.
#[allow(clippy::too_many_arguments)] // the participants, and the reports
async fn tries(
    local: &Rc<Local>,
    backend: &Backend,
    client: &mut Client,
    mut wanted: Wanted<'_>,
    tried: &mut Tried,
    permit: Option<ServerPermit>,
    timer: &Timer,
    mut idle_pool: impl FnMut(&ServerPermit, &Client) -> IdleConn,
    last: &mut Option<Index>,
    timings: &mut ConnectTimings,
) -> Result<(ServerEnd, ServerPermit, Option<u32>, Option<ConnSlot>), Termination> {
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
        tried.count(&permit);
        let idle = match idle_pool(&permit, client) {
            IdleConn::This(idle) => Some(idle),
            IdleConn::Shared(conn) => {
                permit.parties().reuses();
                let served = begun(&conn);
                return Ok((ServerEnd::stream_of(conn), permit, Some(served), None));
            }
            IdleConn::Nothing => None,
            IdleConn::Redirect => return Err(Termination::new(Cause::Local, Phase::Connect)),
            // Rare, so its state is not part of every session.
            IdleConn::Elsewhere { key, least } => {
                Box::pin(local.take_over(backend, permit.index(), key, least)).await
            }
        };
        if let Some(Idle { connection, served, slot }) = idle {
            permit.parties().reuses();
            return Ok((ServerEnd::Http1(connection), permit, Some(served), slot));
        }
        local.make_room(backend);
        let strict = permit.server().strict_maxconn;
        let slot = if strict { Box::pin(local.conn_slot(backend, permit.index())).await } else { None };
        let has_no_slot = strict && slot.is_none();
        let server = permit.server();
        let namespace = client.namespace_for(server).cloned();
        let served = ConnPurpose {
            client: client.source_for(server, wanted.head),
            packets: wanted.packets,
            speaks_first: wanted.head.is_some() || server.header.is_some() || !client.received.is_empty(),
            namespace: namespace.as_deref(),
            via: server.socks4,
        };
        let to = client.destination_of(server);
        let connected = if has_no_slot {
            Err(Cause::ServerLeft)
        } else {
            permit.parties().connects();
            waiting(backend, client, pin!(one(local, backend, &permit, served, to, &wanted))).await?
        };
        let cause = match connected {
            Ok(connection) => {
                observe(local, backend, permit.index(), Observation::Connected);
                timings.connected = here.now().since(entered);
                return Ok((ServerEnd::Http1(connection), permit, None, slot));
            }
            Err(cause) if cause.is_order() => return Err(Termination::new(cause, Phase::Connect)),
            Err(cause) => cause,
        };
        drop(slot); // another stream may get the permit below, and needs a slot
        if cause != Cause::Resource && !has_no_slot {
            observe(local, backend, permit.index(), Observation::NotConnected);
        }
        if tried.retries >= retries_most {
            permit.parties().connection_error();
            return Err(Termination::new(cause, Phase::Connect));
        }
        let elsewhere = tried.again(backend, permit.index(), wanted.persistent);
        wanted.early = false; // the last attempt must not get the answer 425
        if elsewhere {
            drop(permit);
            permit =
                pin!(enter(local, backend, client, &tried.wanted(wanted, backend), timer, timings)).await?;
        }
        if cause == Cause::ServerLeft && !has_no_slot && tried.last == Some(permit.index()) {
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
pub(crate) fn remember_address(local: &Local, server: &Server, memory: &Memory) {
    if local.generation.reads_connections
        && let ServerAddress::At(Endpoint::Ip(address)) = server.addr.load(&local.reader())
    {
        memory.link.set((None, Some(*address)));
    }
}

/// Stores the addresses of a server connection for samples, if the configuration reads them. Costs three
/// system calls.
pub(crate) fn remember_link(local: &Local, connection: &Connection, memory: &Memory) {
    if !local.generation.reads_connections {
        return;
    }
    memory.links.set_back(BackLink::Single);
    memory.server_tls.replace(connection.tls().and_then(|tls| tls.info().cloned()));
    let (mut ends, mut id) = ((None, None), None);
    // A try before may have had a socket where this one has none.
    if let Some(stream) = connection.socket() {
        let ip = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
        ends.0 = socket::local_address(stream.as_fd()).ok().and_then(ip);
        ends.1 = socket::peer_address(stream.as_fd()).ok().and_then(ip);
        id = SocketId::of(stream.as_fd());
    }
    memory.link.set(ends);
    memory.links.set_socket(Side::Server, id);
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
        let server = server.map(|index| &*backend.servers[index.get()]);
        let parties = Parties { backend: Some(backend), server, ..Parties::new(&local.generation) };
        parties.connection_error();
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
    served: ConnPurpose<'_>,
    destination: SocketAddr,
    wanted: &Wanted<'_>,
) -> Result<Connection, Cause> {
    let server = permit.server();
    let endpoint = match server.addr.load(&local.reader()) {
        ServerAddress::At(Endpoint::Ip(address)) => Endpoint::Ip(*address),
        ServerAddress::At(endpoint) => endpoint.clone(),
        ServerAddress::OfClient(address) => match address.of_server(destination) {
            Ok(endpoint) => endpoint,
            Err(_) => return Err(Cause::ServerLeft),
        },
        ServerAddress::Nowhere => return Err(Cause::ServerLeft),
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
        Some(tls) => Box::pin(encrypted(local, permit, tls, connected, wanted, deadline)).await,
    }
}

/// Does the TLS handshake with a server, within the time to connect.
async fn encrypted(
    local: &Rc<Local>,
    permit: &ServerPermit,
    tls: &ServerTls,
    connection: Connection,
    wanted: &Wanted<'_>,
    deadline: Option<Time>,
) -> Result<Connection, Cause> {
    if permit.server().header.is_some() {
        let mut chain = Chain::new();
        let header = wanted.headers.and_then(|headers| headers.of(permit.server()));
        let bytes = header.ok_or(Cause::Resource)?; // the header could not be made
        chain.append(bytes).map_err(|_| Cause::Resource)?;
        connection.send(&mut chain).await.map_err(|_| Cause::ServerLeft)?;
    }
    let protocol = tls.websocket.filter(|_| wanted.websocket);
    let early = wanted.early
        && protocol.is_none()
        && tls.sends_early
        && !permit.server().http2
        && connection.socket().is_some();
    let hello = match protocol {
        Some(protocol) => Hello::Protocol(protocol),
        None if early => Hello::Early,
        None => Hello::Usual,
    };
    let name = tls.name(wanted.names);
    let asks = matches!(name, ServerName::DnsName(_));
    let own = manylane_tls::Connection::client(&tls.context, name, hello, &local.reader())
        .map_err(|_| Cause::Resource)?;
    let guard = TlsGuard::begin(&local.generation).ok_or(Cause::Resource)?;
    let connection =
        connection.encrypt(own, Chain::new(), Some(Box::new(guard))).map_err(|_| Cause::Resource)?;
    let here = local.here();
    let shaken = {
        let Some(stream) = connection.tls() else { return Ok(connection) };
        let shaking = pin!(stream.handshake(here, early));
        match deadline {
            None => permit.unless_ended(shaking).await?,
            Some(deadline) => {
                let shaking = pin!(here.timeout(deadline.since(here.now()), shaking));
                permit.unless_ended(shaking).await?.map_err(|_| Cause::ServerSilent)?
            }
        }
    };
    match shaken {
        Ok(()) => {
            // A handshake that goes on behind early data is counted when it is complete.
            if let Some(info) = connection.tls().and_then(TlsStream::info) {
                shaken_with(local, permit, tls, Ok(info));
            }
            Ok(connection)
        }
        Err(error) if error.is_memory() => Err(Cause::Resource),
        Err(error) => {
            if let (Some(stream), Some(memory)) = (connection.tls(), wanted.memory) {
                stream.fail(match &error {
                    TransferError::Tls(error) => Some(error),
                    _ => None,
                });
                memory.server_tls.replace(stream.info().cloned());
                memory.links.set_back_error(link_error(&error, asks));
            }
            shaken_with(local, permit, tls, Err(Some(&error)));
            Err(Cause::ServerLeft)
        }
    }
}

/// Counts the outcome of a TLS handshake with a server. Without an error, the connection has ended before it
/// was complete.
pub(crate) fn shaken_with(
    local: &Local,
    permit: &ServerPermit,
    tls: &ServerTls,
    outcome: Result<&Rc<Info>, Option<&TransferError>>,
) {
    match outcome {
        Ok(info) => {
            permit.parties().server_handshake(info.resumed);
            if tls.failing.load(Ordering::Relaxed) {
                tls.failing.store(false, Ordering::Relaxed);
            }
        }
        Err(error) => {
            permit.parties().server_handshake_failed();
            // Logged once until a handshake succeeds; requests have log lines of their own.
            if !tls.failing.swap(true, Ordering::Relaxed) {
                let (backend, server) = (permit.backend(), permit.server());
                let why = error.map_or("behind early data".to_owned(), ToString::to_string);
                let text = format!("Server {}/{}: SSL handshake failure ({why}).", backend.name, server.name);
                say(local, backend, Level::Err, &text);
            }
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
pub fn has_agreed_on_h2(connection: &Connection) -> bool {
    connection.tls().and_then(|tls| tls.info()).is_some_and(|info| info.alpn.as_deref() == Some(b"h2"))
}
