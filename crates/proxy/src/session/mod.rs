//! A session: one connection of a client, from its first byte to its last.

mod greeting;
mod handshake;

use crate::client::Client;
use crate::forward;
use crate::http::{self, IdleSession};
use crate::tcp;
use handshake::NoHandshake;
use manylane_config::table::Ruleset;
use manylane_config::tree::{LogStep, Mode};
use manylane_lanes::{ConnGuard, Growth, Local, Parties, Scopes, WaiterSlot};
use manylane_net::{Incoming, LaneGuard};
use manylane_plan::generation::{Frontend, Listener, Preamble};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{self, EvalContext, EvalPhase, Record, Verdict, Walk, apply};
use manylane_sched::Boxed;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Task of a connection on the lane that serves it. The task is small while the session is idle.
#[derive(Debug)]
pub struct Session {
    state: State,
    /// `None` when the session is over.
    held: Option<SessionParts>,
}

/// State that a session has from its start to its end.
#[derive(Debug)]
struct SessionParts {
    local: Rc<Local>,
    guard: ConnGuard,
    lane_guard: LaneGuard,
    /// Slot in the event that stops the generation. The slot is kept while a request runs, since leaving and
    /// entering again costs time.
    slot: WaiterSlot,
}

/// With the scheduler's part a session has 320 bytes, one of the sizes of its blocks. Each idle connection
/// has one.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Session>() <= 272);

#[derive(Debug)]
enum State {
    Begins(Incoming),
    Idle(IdleSession),
    /// The session runs until it is idle again or over.
    Works(Boxed<'static, Option<IdleSession>>),
    Over,
}

impl Session {
    /// Returns the task of a connection on the lane of `local`. Without `local`, because the lane no longer
    /// serves the generation, the task closes the connection.
    pub fn new(
        local: Option<Rc<Local>>,
        incoming: Incoming,
        lane_guard: LaneGuard,
        guard: ConnGuard,
    ) -> Self {
        let held = local.map(|local| SessionParts { local, guard, lane_guard, slot: WaiterSlot::default() });
        Self { state: State::Begins(incoming), held }
    }
}

impl SessionParts {
    fn whose(&self) -> (&Frontend, &Listener) {
        let frontend = &self.local.generation.frontends[self.guard.frontend];
        (frontend, &frontend.listeners[self.guard.listener])
    }

    fn begin(&self, incoming: Incoming) -> State {
        let (frontend, listener) = self.whose();
        let parties = Parties::client(&self.local.generation, frontend, listener);
        if listener.nice != 0 {
            let _ = self.local.here().set_nice(listener.nice); // the configuration checked the range
        }
        let mut client = Client::new(incoming, &self.local.io);
        if self.local.generation.reads_connections {
            client.identify();
        }
        if self.local.generation.process.reject_privileged
            && client.source.is_some_and(|address| address.port() < 1024)
        {
            parties.connection_denied();
            return State::Over;
        }
        let asks = frontend.mode == Mode::Http
            && !listener.accept_proxy
            && listener.netscaler.is_none()
            && listener.tls.is_none()
            && frontend.rules.connection.is_empty()
            && frontend.rules.session.is_empty();
        if asks && IdleSession::is_for(&client) {
            parties.session_admitted();
            return IdleSession::new(client, &self.local).map_or(State::Over, State::Idle);
        }
        let (local, (frontend, listener)) = (self.local.clone(), (self.guard.frontend, self.guard.listener));
        State::works(move || async move {
            let frontend = &local.generation.frontends[frontend];
            enter(&local, frontend, &frontend.listeners[listener], client).await
        })
    }

    /// Handles the end of the generation: an idle session moves to the successor if that has its listener.
    /// Returns true if the session stays with the ending generation.
    #[cold]
    fn stays(&mut self, rest: &mut IdleSession) -> bool {
        if rest.has_partial_head() {
            return true;
        }
        let (frontend, listener) = self.whose();
        let Some(successor) = self.local.successor_at(frontend, listener) else {
            return frontend.http.outlives_stop || self.local.keeps_idle();
        };
        if rest.belongs() {
            return true;
        }
        rest.forget_server();
        successor.take(&mut self.local, &mut self.guard, &mut self.slot);
        false
    }

    #[cold]
    fn deliver(&self, rest: IdleSession) -> State {
        let (local, whose) = (self.local.clone(), (self.guard.frontend, self.guard.listener));
        State::works(move || http::deliver(local, whose, rest))
    }

    #[cold]
    fn close(&self, rest: IdleSession) -> State {
        let here = self.local.here();
        State::works(move || async move {
            rest.close(here).await;
            None
        })
    }

    fn wake(&self, rest: IdleSession, woken: http::Woken) -> State {
        let (local, whose) = (self.local.clone(), (self.guard.frontend, self.guard.listener));
        State::works(move || http::wake(local, whose, rest, woken))
    }
}

impl State {
    /// Starts `make`'s future in a block of its own; the session ends if there is no memory.
    #[inline(always)] // the future is built in its block
    fn works<F: Future<Output = Option<IdleSession>> + 'static>(make: impl FnOnce() -> F) -> Self {
        Boxed::new(make).map_or(Self::Over, Self::Works)
    }
}

impl Future for Session {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { state, held } = &mut *self;
        let Some(of) = held else { return Poll::Ready(()) };
        if of.local.is_over() {
            if let State::Begins(_) = state {
                held.take(); // the session has not begun
                return Poll::Ready(());
            }
            *state = State::Over;
        }
        let growth = Growth::begin();
        loop {
            match state {
                State::Begins(_) => {
                    let State::Begins(incoming) = std::mem::replace(state, State::Over) else { continue };
                    of.local.begun();
                    of.guard.begin_session();
                    *state = of.begin(incoming);
                }
                State::Idle(rest) => {
                    let stops = of.local.stopping.has_happened();
                    let stays = stops && of.stays(rest);
                    let end = if stops && !stays { rest.may_begin(&of.local) } else { None };
                    let frontend = &of.local.generation.frontends[of.guard.frontend];
                    let stopping = of.local.stopping.unless(stays || end.is_some(), &mut of.slot, context);
                    let woken = ready!(rest.poll(frontend, stopping, end, context));
                    let State::Idle(rest) = std::mem::replace(state, State::Over) else { continue };
                    match woken {
                        Some(woken @ http::Woken::Bytes(_)) => *state = of.wake(rest, woken),
                        // With io_uring, sending a response may continue after the call has returned.
                        _ if rest.owes() => *state = of.deliver(rest),
                        Some(woken) => *state = of.wake(rest, woken),
                        None if rest.speaks_tls() => *state = of.close(rest),
                        None => {}
                    }
                }
                State::Works(work) => match Pin::new(work).poll(context) {
                    Poll::Ready(idle) => *state = idle.map_or(State::Over, State::Idle),
                    // The session frees what it has taken.
                    Poll::Pending if growth.has_happened() => *state = State::Over,
                    Poll::Pending => return Poll::Pending,
                },
                State::Over => break,
            }
        }
        if let Some(SessionParts { local, guard, lane_guard, mut slot }) = held.take() {
            local.stopping.leave(&mut slot);
            drop(guard);
            drop(lane_guard); // dropped before the lane reports that it is empty
            local.ended();
        }
        Poll::Ready(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.state = State::Over; // the state may borrow what follows
        let Some(SessionParts { local, guard, lane_guard, mut slot }) = self.held.take() else { return };
        local.stopping.leave(&mut slot);
        // After a panic the lane continues, and the end of the process must not wait for this session.
        // Otherwise the whole lane is being dropped.
        if std::thread::panicking() {
            drop(guard);
            drop(lane_guard);
            local.ended();
        }
    }
}

/// Prepares a session until its client can send a request. Sessions of TCP mode are served to their end
/// or to their change to HTTP.
/// `None` when the connection is over.
async fn enter(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    client: Client,
) -> Option<IdleSession> {
    let scopes = local.scopes.take();
    let admitted = admit(local, frontend, listener, client, &scopes).await;
    if let Some(client) = admitted {
        let http = match frontend.mode {
            Mode::Http => Some((client, None)),
            Mode::Tcp => {
                let switched = tcp::run(local, frontend, listener, client, &scopes).await;
                switched.map(|(client, switched)| (client, Some(switched)))
            }
            Mode::Log => {
                forward::serve(local, frontend, client).await;
                None
            }
        };
        if let Some((client, switched)) = http {
            return http::begin(local, frontend, listener, client, scopes, switched).await;
        }
    }
    local.scopes.put(scopes);
    None
}

/// Reads the PROXY header, does the TLS handshake and runs the rules. `None` when the connection ends here.
async fn admit(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    mut client: Client,
    scopes: &Scopes,
) -> Option<Client> {
    let list = Ruleset::TcpRequestConnection;
    let greets = rule(local, frontend, listener, list, &mut client, scopes)?;
    let greets = Greets {
        proxy: listener.accept_proxy || greets.proxy,
        netscaler: listener.netscaler.is_some() || greets.netscaler,
    };
    if greets != Greets::default()
        && let Err(why) = greeting::read(local, frontend, listener, &mut client, greets).await
    {
        Parties::client(&local.generation, frontend, listener).request_error();
        if !why.is_silent() {
            client.reset_on_close();
        }
        if let Some(log) = frontend.log.as_ref().filter(|log| !why.is_silent() || !log.no_null) {
            let eval = eval_context(local, frontend, listener, &client, scopes);
            let error = why.error();
            scopes.memory.links.set_front_error(error);
            manylane_rules::refused(log, &eval, error.sentence);
        }
        return None;
    }
    if let Some(context) = &listener.tls {
        client = client.encrypt(context, &local.reader())?;
        match handshake::shake(local, frontend, &client).await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => {
                let parties = Parties::client(&local.generation, frontend, listener);
                parties.client_handshake_failed();
                let silent = matches!(why, NoHandshake::Empty);
                if let Some(log) = frontend.log.as_ref().filter(|log| !silent || !log.no_null) {
                    let eval = eval_context(local, frontend, listener, &client, scopes);
                    scopes.memory.links.set_front_error(why.error());
                    manylane_rules::refused(log, &eval, &why.to_string());
                }
                return None;
            }
        }
        let resumed = client.tls().is_some_and(|info| info.resumed);
        Parties::client(&local.generation, frontend, listener).client_handshake(resumed);
    }
    rule(local, frontend, listener, Ruleset::TcpRequestSession, &mut client, scopes)?;
    eval_context(local, frontend, listener, &client, scopes).parties().session_admitted();
    Some(client)
}

/// Returns the state that rules may read before the first request.
fn eval_context<'a>(
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    client: &'a Client,
    scopes: &'a Scopes,
) -> EvalContext<'a> {
    EvalContext {
        local,
        frontend,
        listener,
        peers: client.peers(),
        greeting: client.greeting(),
        tls: client.tls().map(|info| &**info),
        first_request: true,
        http: frontend.mode == Mode::Http,
        scopes,
        course: None,
    }
}

/// Headers that a connection begins with, as its listener and its rules say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Greets {
    /// A PROXY header.
    proxy: bool,
    /// NetScaler's, behind that.
    netscaler: bool,
}

/// Runs `tcp-request connection` or `tcp-request session` rules. Returns `None` if the connection ends here,
/// also for lack of memory; else the headers that rules ask for.
fn rule(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    list: Ruleset,
    client: &mut Client,
    scopes: &Scopes,
) -> Option<Greets> {
    let is_connection = list == Ruleset::TcpRequestConnection;
    let (rules, step) = match is_connection {
        true => (&frontend.rules.connection, LogStep::TcpReqConn),
        false => (&frontend.rules.session, LogStep::TcpReqSess),
    };
    let mut greets = Greets::default();
    if rules.is_empty() {
        return Some(greets);
    }
    let eval = eval_context(local, frontend, listener, client, scopes);
    let mut walk = Walk::new(list, rules);
    let outcome = loop {
        match apply(&eval, EvalPhase::default(), &mut walk, None) {
            Verdict::Expect(Preamble::Proxy) => greets.proxy = true,
            Verdict::Expect(Preamble::NetScaler) => greets.netscaler = true,
            Verdict::Log => {
                let mut record = Record::new(local.here().now());
                // As in HAProxy: there is no request yet, and the line shows the stream as refused.
                record.status = Some(0);
                record.ended = Termination::new(Cause::Refused, Phase::Request);
                record.write(step, &eval);
            }
            outcome => break outcome,
        }
    };
    client.mark(scopes.memory.client_packets.take());
    if let Verdict::Accept = outcome {
        // Addresses that these rules set hold for the connection; later rules start from them.
        let (source, destination) = (scopes.memory.source.take(), scopes.memory.destination.take());
        if is_connection {
            client.is_linked(source, destination);
        } else {
            client.set_addresses(source, destination).ok()?;
        }
        return Some(greets);
    }
    if is_connection {
        eval.parties().connection_denied();
    } else {
        eval.parties().session_denied();
    }
    match outcome {
        Verdict::Drop(silence) => client.vanish(silence),
        // A reset is one packet and leaves no state here, in case this is a flood.
        _ if is_connection => client.reset_on_close(),
        _ => {}
    }
    None
}
