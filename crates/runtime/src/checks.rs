//! Runs health checks: one lane checks each server and reports the results to the balancer.

use super::check_words::CheckWords;
use manylane_balance::Index;
use manylane_buf::Chain;
use manylane_check::{
    CheckResult, Exchange, HealthState, Intervals, NextAction, Script, Status, Target, agent,
};
use manylane_io::options::set_reset_on_close;
use manylane_io::{Errno, SocketAddrAny, socket};
use manylane_lanes::{
    CheckKind, CheckSockets, Checks, Event, Idle, Local, checks_beside, find_check as find,
    tell_of_check as tell,
};
use manylane_net::proxy_protocol::{EndpointPair, HeaderContents, emit_v1, emit_v2};
use manylane_net::{ConnPurpose, Connection, Connector, Endpoint, Step, TransferError};
use manylane_plan::ConnLimit;
use manylane_plan::generation::{Backend, CheckTimeouts, SendHeader, Server, ServerCheck};
use manylane_proxy::TlsGuard;
use manylane_sched::{Class, Here, TaskKind, Time};
use manylane_sync::{Arc, LaneId};
use manylane_tls::{ClientContext, Hello, ServerName};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

static CHECK: TaskKind = TaskKind::new("check");
static AGENT: TaskKind = TaskKind::new("agent check");

/// Starts checks of this lane's share of the servers; `lanes` share all servers. Checks that the generation
/// before has, too, continue where they run.
///
/// # Errors
/// A sentence, if there is no memory.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let Some(own) = lanes.iter().position(|lane| *lane == local.here().lane()) else { return Ok(()) };
    let generation = &local.generation;
    let before = local.predecessor();
    let adds = before.as_ref().is_some_and(|before| before.generation.is_related(generation));
    let fresh: Vec<_> =
        checks_beside(generation, before.as_ref().map(|before| &*before.generation)).collect();
    for (wanted, what) in [(CheckKind::Health, &CHECK), (CheckKind::Agent, &AGENT)] {
        let fresh = || {
            let of = fresh.iter().filter(|(.., kind)| *kind == wanted);
            of.filter_map(|&(backend, server, kind)| Some((backend, server, kind.of(server)?)))
        };
        let spreading = fresh()
            .map(|(.., check)| check.intervals.inter)
            .filter(|inter| *inter >= Intervals::SPREADS_FROM);
        let (shortest, count) = (spreading.min().unwrap_or_default(), fresh().count());
        for (index, (backend, server, check)) in fresh().enumerate() {
            // The first lanes would get all of the few servers that are added later.
            let lane = if before.is_some() { server.number } else { index };
            if lane % lanes.len() != own {
                continue;
            }
            let room = if wanted == CheckKind::Agent { check.intervals.inter } else { shortest };
            let delay = match adds {
                true => Duration::ZERO, // added servers are checked once they are enabled
                false => Intervals::first(room, generation.process.max_spread_checks, index, count),
            };
            let own = Checked {
                checks: local.checks.clone(),
                backend: backend.name.clone(),
                server: server.clone(),
                kind: wanted,
            };
            local
                .here()
                .spawn(what, Class::Normal, checking(local.here(), own, delay))
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// A checked server, as its task keeps it.
struct Checked {
    checks: Rc<Checks>,
    /// Name of the server's backend.
    backend: Box<str>,
    /// The server in the generation that last ran the check.
    server: Arc<Server>,
    kind: CheckKind,
}

impl Checked {
    /// Returns the lane's state of the oldest generation that has the check and does not stop, with the
    /// backend and the server there. A later generation may fail to start.
    fn find(&self) -> Option<(Rc<Local>, usize, Index)> {
        let goes_on =
            |local: &Rc<Local>| Rc::ptr_eq(&local.checks, &self.checks) && !local.stopping.has_happened();
        Local::all().filter(goes_on).find_map(|local| {
            let (backend, index) = find(&local.generation, &self.backend, &self.server, self.kind)?;
            Some((local, backend, index))
        })
    }

    /// Runs `work`, unless the lane's checks end first.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        unless_happens(&self.checks.over, work).await
    }
}

/// Task that checks one server on one lane as long as a generation has the check. It holds no generation
/// while it waits for the next check.
async fn checking(here: Here, mut own: Checked, delay: Duration) {
    let Some(check) = own.kind.of(&own.server) else { return };
    let connector = Connector::new(check.connect.clone());
    let mut wait = delay;
    let mut noise = (own.server.number as u32).wrapping_mul(0x9e37_79b9) | 1;
    loop {
        let Some(check) = own.kind.of(&own.server) else { return };
        let mut until = here.now() + wait;
        loop {
            let paused = !check.board.is_active();
            if until <= here.now() && !paused {
                break;
            }
            let sleep = here.sleep_until(if paused { Time::MAX } else { until });
            let Some(rung) = own.unless_over(check.notify.or(sleep)).await else { return };
            if rung && own.find().is_none() {
                return;
            }
            if rung && !paused {
                until = until.min(here.now() + check.intervals.fast);
            }
        }
        // Checks above the limit wait.
        let Some(_guard) = own.unless_over(CheckGuard::enter(&own.checks.conn_limit)).await else { return };
        let Some((local, backend, index)) = own.find() else { return };
        let generation = local.generation.clone();
        let backend = &generation.backends[backend];
        own.server = backend.servers[index.get()].clone();
        let Some(check) = own.kind.of(&own.server) else { return };
        let begun = here.now();
        let serves = check.board.begin() != HealthState::Down;
        let script = match check.target.read().send {
            Some(send) => Arc::new(agent::script(&send)),
            None => check.script.clone(),
        };
        let mut run = begun_run(&script, check, serves);
        // On the heap while the check runs: a task that waits for its next check stays small.
        let result = match &check.program {
            Some(program) => {
                let made = Box::pin(super::program::run(&local, backend, index, check, program));
                own.unless_over(made).await
            }
            None => {
                let made = Box::pin(by_connection(
                    &local,
                    (backend, index),
                    check,
                    &connector,
                    &script,
                    serves,
                    &mut run,
                ));
                own.unless_over(made).await
            }
        };
        let Some(check_result) = result else { return };
        // Another generation may serve by now.
        let Some((local, backend, index)) = own.find() else { return };
        let backend = &local.generation.backends[backend];
        let Some(check) = own.kind.of(&backend.servers[index.get()]) else { return };
        if !check.board.is_active() {
            check.board.cancel(); // the check was disabled since it began
            continue;
        }
        let now = here.now();
        let took = now.since(begun);
        match own.kind {
            CheckKind::Health => {
                let (is_new, change) = check.board.end(check_result, took);
                tell(&local, backend, index, is_new, change);
            }
            CheckKind::Agent => {
                super::agent::heard(&local, backend, index, check, check_result, run.line(), took)
            }
        }
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        wait = check.intervals.next(&check.board.read().health, noise);
    }
}

/// Permit of a running check, within the lane's limit of concurrent checks (`tune.max-checks-per-thread`).
pub(super) struct CheckGuard<'a>(&'a ConnLimit);

impl<'a> CheckGuard<'a> {
    pub(super) async fn enter(conn_limit: &'a ConnLimit) -> Self {
        conn_limit.enter().await;
        Self(conn_limit)
    }
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Runs `work`, unless the generation stops first on this lane.
pub(super) async fn unless_stopped<T>(local: &Local, work: impl Future<Output = T>) -> Option<T> {
    unless_happens(&local.stopping, work).await
}

pub(super) async fn unless_happens<T>(event: &Event, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut waiter = event.waiter();
    poll_fn(|context| match waiter.poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

fn begun_run<'s>(script: &'s Script, check: &ServerCheck, serves: bool) -> Exchange<'s> {
    let mut run = script.run(serves);
    if check.http2 {
        run.speak_h2();
    }
    run
}

/// Makes one check by a connection. If an idle connection fails before the server has sent anything on it,
/// the server had closed it, and the check takes the next one.
async fn by_connection<'s>(
    local: &Rc<Local>,
    (backend, index): (&Backend, Index),
    check: &ServerCheck,
    connector: &Connector,
    script: &'s Script,
    serves: bool,
    run: &mut Exchange<'s>,
) -> CheckResult {
    loop {
        let kept = check.reuses.then(|| local.take_own(backend, index)).flatten();
        if check.reuses {
            run.keep();
        }
        let was_kept = kept.is_some();
        let served = kept.as_ref().map_or(0, |idle| idle.served) + 1;
        let mut link = Link::default();
        let words = CheckWords::new(local, backend, index, check);
        let result =
            steps(local, check, connector, run, words, &mut kept.map(|idle| idle.connection), &mut link)
                .await;
        // The server may have closed the idle connection. A timeout is a result: other connections would each
        // take that time again.
        if was_kept && !link.heard && result.status.result() == 2 && !result.status.is_late() {
            *run = begun_run(script, check, serves);
            continue;
        }
        match (link.connection.take(), link.again) {
            (Some(Connection::Socket(stream)), Some(to)) => local.checks.sockets.put(&to, stream),
            (connection, _) => {
                link.connection = connection;
                link.settle(check);
                if let Some(connection) = link.connection.filter(|_| run.is_reusable()) {
                    local.keep_own(backend, index, Idle { connection, served, slot: None });
                }
            }
        }
        return result;
    }
}

/// Connection of a check, and how to close it.
#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    /// The connection ends in the usual way, without a reset.
    lingers: bool,
    /// The server has sent something.
    heard: bool,
    /// The check only connects to this address, and another check may use the socket.
    again: Option<SocketAddr>,
}

impl Link {
    /// Prepares the connection to be closed. A reset leaves nothing behind; otherwise each check would leave
    /// a connection in TIME_WAIT here.
    fn settle(&self, check: &ServerCheck) {
        let stream = self.connection.as_ref().and_then(Connection::socket);
        if let Some(stream) = stream
            && !(self.lingers || check.reuses)
        {
            // without the reset the connection would stay in TIME_WAIT
            let _ = set_reset_on_close(stream.as_fd());
        }
    }
}

/// Runs the steps of a check.
async fn steps(
    local: &Rc<Local>,
    check: &ServerCheck,
    connector: &Connector,
    run: &mut Exchange<'_>,
    mut words: CheckWords<'_>,
    kept: &mut Option<Connection>,
    link: &mut Link,
) -> CheckResult {
    let here = local.here();
    let begun = here.now();
    let asks = run.script().evaluates();
    let again = run.script().only_connects()
        && check.header.is_none()
        && check.tls.is_none()
        && check.tls_of_steps.is_empty()
        && connector.is_plain();
    let deadline = |connecting: bool| match check.timeouts {
        CheckTimeouts::Whole(whole) => begun + whole,
        CheckTimeouts::Parts { connect, .. } if connecting => here.now() + connect,
        CheckTimeouts::Parts { answer, .. } => here.now() + answer,
    };
    let mut until = deadline(false);
    loop {
        let left = until.since(here.now());
        match (run.ask(&mut words), &link.connection) {
            (NextAction::Done(mut result), connection) => {
                let secure = connection.as_ref().is_some_and(|connection| connection.tls().is_some());
                if secure && result.status == Status::L4Ok {
                    result.status = Status::L6Ok;
                }
                return result;
            }
            (NextAction::Connect(target), _) => {
                link.settle(check);
                drop(link.connection.take()); // the previous connection ends first
                link.lingers = target.linger;
                if let Some(idle) = kept.take() {
                    if asks {
                        words.connected(&idle);
                    }
                    link.connection = Some(idle);
                    run.connected();
                    until = deadline(false);
                    continue;
                }
                let Some(endpoint) = aimed(check, &target) else {
                    return CheckResult::new(Status::L4Con, "it has no address");
                };
                let through = target.via_socks4 || target.own && check.via_socks4;
                let via = check.socks4.filter(|_| through);
                let served = ConnPurpose { speaks_first: target.speaks_first, via, ..ConnPurpose::default() };
                link.again = match &endpoint {
                    Endpoint::Ip(address)
                        if again && via.is_none() && CheckSockets::leaves_no_trace(address) =>
                    {
                        Some(*address)
                    }
                    _ => None,
                };
                let made = match link.again.and_then(|to| local.checks.sockets.take(&to)) {
                    Some(socket) => {
                        connector
                            .connect_again(&local.io, socket, &endpoint, served, Some(deadline(true)))
                            .await
                    }
                    None => connector.connect_for(&local.io, &endpoint, served, Some(deadline(true))).await,
                };
                match made {
                    Ok(made) => {
                        if let Some(greeting) = greeting(check, &target, &made) {
                            match here.timeout(deadline(true).since(here.now()), give(&made, &greeting)).await
                            {
                                Ok(Ok(())) => {}
                                Ok(Err(why)) => return run.broke(why),
                                Err(_) => return run.timed_out(),
                            }
                        }
                        let of_step = |number| {
                            check.tls_of_steps.iter().find(|(own, _)| *own == number).map(|(_, tls)| tls)
                        };
                        let usual = check.tls.as_ref().filter(|_| target.own);
                        let made = match target.tls.and_then(of_step).or(usual) {
                            None => made,
                            Some(tls) => {
                                let left = deadline(true).since(here.now());
                                match Box::pin(
                                    here.timeout(left, encrypted(local, &tls.context, tls.name(&[]), made)),
                                )
                                .await
                                {
                                    Ok(Ok(made)) => made,
                                    Ok(Err(why)) => return CheckResult::new(Status::L6Rsp, why),
                                    Err(_) => return CheckResult::new(Status::L6Tout, ""),
                                }
                            }
                        };
                        if manylane_proxy::has_agreed_on_h2(&made) {
                            run.agreed_on_h2();
                        }
                        if asks {
                            words.connected(&made);
                        }
                        link.connection = Some(made);
                        run.connected();
                        until = deadline(false);
                    }
                    Err(error) if error.step() == Step::Time => return run.timed_out(),
                    Err(error) if matches!(error.step(), Step::Open | Step::Driver) => {
                        return CheckResult::new(Status::SockErr, self::words(error.errno()));
                    }
                    Err(error) if (error.step(), error.errno()) == (Step::Socks, Errno::CONNREFUSED) => {
                        return CheckResult::new(Status::SockErr, "SOCKS4 Proxy deny the request");
                    }
                    Err(error) => return run.broke(self::words(error.errno())),
                }
            }
            (NextAction::Send(bytes), Some(connection)) => {
                match here.timeout(left, give(connection, &bytes)).await {
                    Ok(Ok(())) => run.sent(),
                    Ok(Err(why)) => return run.broke(why),
                    Err(_) => return run.timed_out(),
                }
                until = deadline(false);
            }
            (NextAction::Pass(bytes), Some(connection)) => {
                match here.timeout(left, give(connection, &bytes)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return run.broke(why),
                    Err(_) => return run.timed_out(),
                }
            }
            (NextAction::Receive, Some(connection)) => match here.timeout(left, connection.recv()).await {
                Ok(Ok(segment)) => {
                    link.lingers |= segment.is_none(); // the server has ended the connection already
                    link.heard |= segment.is_some();
                    run.received(segment);
                }
                Ok(Err(error)) if !run.cut() => return run.broke(said(&error)),
                Ok(Err(_)) => {}
                Err(_) => return run.timed_out(),
            },
            (NextAction::Send(_) | NextAction::Pass(_) | NextAction::Receive, None) => {
                return CheckResult::new(Status::SockErr, "it is not connected");
            }
        }
    }
}

/// Returns the target of a check's connection: the address and port of its step, else those of the server's
/// line.
fn aimed(check: &ServerCheck, target: &Target) -> Option<Endpoint> {
    let own = check.endpoint();
    let of_line = match &own {
        Some(Endpoint::Ip(address)) => Some(*address),
        _ => None,
    };
    let Some(ip) = target.address.map(|address| address.ip()).or(of_line.map(|address| address.ip())) else {
        return own;
    };
    let written = target.address.map(|address| address.port()).filter(|port| *port != 0);
    let port = target.port.or(written).or(of_line.map(|address| address.port()))?;
    Some(Endpoint::Ip((ip, port).into()))
}

/// Returns the PROXY header that a check's connection begins with, if one is configured. Version 2 says
/// LOCAL, or PROXY for servers that do not know LOCAL (`relays`).
fn greeting(check: &ServerCheck, target: &Target, connection: &Connection) -> Option<Vec<u8>> {
    let own = check.header.filter(|_| target.own);
    let how: SendHeader = own.or(target.header.then_some(check.usual_header))?;
    let mut bytes = Vec::new();
    if how.v2 {
        let ends = ends(connection).filter(|_| check.relays);
        let own = HeaderContents { ends, tlvs: &[], checksum: how.checksum };
        emit_v2(&own, &mut bytes).expect("addresses and a checksum are short");
    } else {
        emit_v1(ends(connection).as_ref(), &mut bytes);
    }
    Some(bytes)
}

/// Returns the two IP addresses of a connection, if it has them.
fn ends(connection: &Connection) -> Option<EndpointPair<'static>> {
    let stream = connection.socket()?;
    let ip = |address: Result<SocketAddrAny, Errno>| {
        address.ok().and_then(|address| SocketAddr::try_from(address).ok())
    };
    let (from, to) = (socket::local_address(stream.as_fd()), socket::peer_address(stream.as_fd()));
    Some(EndpointPair::tcp(ip(from)?, ip(to)?))
}

/// Does the TLS handshake. The error is the text for the check's result.
pub(super) async fn encrypted(
    local: &Local,
    context: &ClientContext,
    name: ServerName<'static>,
    made: Connection,
) -> Result<Connection, String> {
    let own = manylane_tls::Connection::client(context, name, Hello::Usual, &local.reader())
        .map_err(|why| why.to_string())?;
    let guard = TlsGuard::begin(&local.generation).ok_or("Too many SSL connections")?;
    let made = made.encrypt(own, Chain::new(), Some(Box::new(guard))).map_err(|why| why.to_string())?;
    if let Some(stream) = made.tls() {
        stream
            .handshake(local.here(), false)
            .await
            .map_err(|why| format!("SSL handshake failure ({why})"))?;
        if !stream.info().is_some_and(|info| info.resumed) {
            local.generation.process_stats.tls_servers.own().keys.add(1);
        }
    }
    Ok(made)
}

/// Sends bytes. The error is the text for the check's result.
async fn give(connection: &Connection, bytes: &[u8]) -> Result<(), String> {
    let mut chain = Chain::new();
    chain.append(bytes).map_err(|error| error.to_string())?;
    connection.send(&mut chain).await.map_err(|error| said(&error))
}

/// Returns the system's text for an error, without its number.
fn words(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    text.split(" (os error").next().unwrap_or_default().into()
}

/// Returns HAProxy's text for an error of an established connection: with the error's name, if HAProxy knows
/// it.
fn said(error: &TransferError) -> String {
    let errno = if let TransferError::Socket(error) = error { error.errno() } else { None };
    let name = match errno {
        Some(Errno::CONNRESET) => "ECONNRESET returned by OS",
        Some(Errno::CONNREFUSED) => "ECONNREFUSED returned by OS",
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => "ENETUNREACH returned by OS",
        Some(Errno::NOMEM) => "ENOMEM returned by OS",
        Some(Errno::NOBUFS) => "ENOBUFS returned by OS",
        Some(Errno::PIPE) => "EPIPE returned by OS",
        _ => "General socket error",
    };
    if let Some(errno) = errno {
        return format!("{name} ({})", words(errno));
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.rsplit_once(": ").map_or(text, |(_, cause)| cause).into() // the text already says what was attempted
}
