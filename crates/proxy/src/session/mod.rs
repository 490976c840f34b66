//! A session: one connection of a client, from its first byte to its last.

mod greeting;
mod handshake;

use crate::client::Client;
use crate::count::count_in_front;
use crate::forward;
use crate::http::{self, IdleSession};
use crate::lane::{ConnGuard, Local, WaiterSlot};
use crate::rules::{self, Entrance, EvalContext};
use crate::scopes::{Countable, Scopes};
use crate::tcp;
use greeting::NoGreeting;
use handshake::NoHandshake;
use manylane_config::tree::{LogStep, Mode};
use manylane_net::{Incoming, LaneGuard};
use manylane_plan::generation::{ConnectionAction, Frontend, Listener, Rule};
use manylane_sched::Boxed;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Task of a connection on the lane that serves it. The task is small while the session is idle.
#[derive(Debug)]
pub(crate) struct Session {
    state: State,
    /// `None` when the session is over.
    held: Option<Held>,
}

/// State that a session has from its begin to its end.
#[derive(Debug)]
struct Held {
    local: Rc<Local>,
    guard: ConnGuard,
    lane_guard: LaneGuard,
    /// Slot in the event that stops the generation. The slot is kept while a request runs, since leaving and
    /// entering again costs time.
    place: WaiterSlot,
}

/// With the scheduler's part a session has 320 bytes, one of the sizes of its blocks. Each idle connection
/// has one.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Session>() <= 272);

#[derive(Debug)]
enum State {
    Begins(Incoming),
    Rests(IdleSession),
    /// The session runs until it is idle again or over.
    Works(Boxed<'static, Option<IdleSession>>),
    Over,
}

impl Session {
    /// Returns the task of a connection on the lane of `local`. Without `local`, because the lane no longer
    /// serves the generation, the task closes the connection.
    pub(crate) fn new(
        local: Option<Rc<Local>>,
        incoming: Incoming,
        lane_guard: LaneGuard,
        guard: ConnGuard,
    ) -> Self {
        let held = local.map(|local| Held { local, guard, lane_guard, place: WaiterSlot::default() });
        Self { state: State::Begins(incoming), held }
    }
}

impl Held {
    fn whose(&self) -> (&Frontend, &Listener) {
        let frontend = &self.local.generation.frontends[self.guard.frontend];
        (frontend, &frontend.listeners[self.guard.listener])
    }

    fn begin(&self, incoming: Incoming) -> State {
        let (frontend, listener) = self.whose();
        if listener.nice != 0 {
            let _ = self.local.here().set_nice(listener.nice); // the configuration checked the range
        }
        let client = Client::new(incoming, &self.local.io);
        if self.local.generation.process.reject_privileged
            && client.source.is_some_and(|address| address.port() < 1024)
        {
            count_in_front!(frontend, listener, connections_denied);
            return State::Over;
        }
        let asks = frontend.mode == Mode::Http
            && !listener.accept_proxy
            && listener.tls.is_none()
            && frontend.rules.connection.is_empty()
            && frontend.rules.session.is_empty();
        if asks && IdleSession::is_for(&client) {
            count_in_front!(frontend, listener, sessions_admitted);
            return IdleSession::new(client, &self.local).map_or(State::Over, State::Rests);
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
        successor.take(&mut self.local, &mut self.guard, &mut self.place);
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
        loop {
            match state {
                State::Begins(_) => {
                    let State::Begins(incoming) = std::mem::replace(state, State::Over) else { continue };
                    of.local.begun();
                    of.guard.begin_session();
                    *state = of.begin(incoming);
                }
                State::Rests(rest) => {
                    let stops = of.local.stopping.has_happened();
                    let stays = stops && of.stays(rest);
                    let end = if stops && !stays { rest.may_begin(&of.local) } else { None };
                    let frontend = &of.local.generation.frontends[of.guard.frontend];
                    let stopping = of.local.stopping.unless(stays || end.is_some(), &mut of.place, context);
                    let woken = ready!(rest.poll(frontend, stopping, end, context));
                    let State::Rests(rest) = std::mem::replace(state, State::Over) else { continue };
                    match woken {
                        Some(woken @ http::Woken::Bytes(_)) => *state = of.wake(rest, woken),
                        // With io_uring, sending a response may continue after the call has returned.
                        _ if rest.owes() => *state = of.deliver(rest),
                        Some(woken) => *state = of.wake(rest, woken),
                        None if rest.speaks_tls() => *state = of.close(rest),
                        None => {}
                    }
                }
                State::Works(work) => {
                    *state = ready!(Pin::new(work).poll(context)).map_or(State::Over, State::Rests);
                }
                State::Over => break,
            }
        }
        if let Some(Held { local, guard, lane_guard, mut place }) = held.take() {
            local.stopping.leave(&mut place);
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
        let Some(Held { local, guard, lane_guard, mut place }) = self.held.take() else { return };
        local.stopping.leave(&mut place);
        // After a panic the lane continues, and the end of the process must not wait for this session.
        // Otherwise the whole lane is being dropped.
        if std::thread::panicking() {
            drop(guard);
            drop(lane_guard);
            local.ended();
        }
    }
}

/// Prepares a session until its client can send a request. Sessions of TCP mode are served to their end.
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
        if frontend.mode == Mode::Http {
            return http::begin(local, frontend, listener, client, scopes).await;
        }
        match frontend.mode {
            Mode::Log => forward::serve(local, frontend, client).await,
            _ => tcp::run(local, frontend, listener, client, &scopes).await,
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
    let greeted = rule(local, frontend, listener, &frontend.rules.connection, &mut client, scopes)?;
    if (listener.accept_proxy || greeted)
        && let Err(why) = greeting::read(local, frontend, &mut client).await
    {
        count_in_front!(frontend, listener, request_errors);
        if why != NoGreeting::Empty {
            client.reset_on_close();
        }
        if let Some(log) = frontend.log.as_ref().filter(|log| why != NoGreeting::Empty || !log.no_null) {
            let eval = facts_of(local, frontend, listener, &client, scopes);
            let error = why.error();
            scopes.memory.links.set_front_error(error);
            rules::refused(log, &eval, error.sentence);
        }
        return None;
    }
    if let Some(context) = &listener.tls {
        client = client.encrypt(context, &local.reader())?;
        if let Err(why) = handshake::shake(local, frontend, &client).await {
            count_in_front!(frontend, listener, request_errors);
            count_in_front!(frontend, listener, tls_failed);
            let silent = matches!(why, NoHandshake::Empty);
            if let Some(log) = frontend.log.as_ref().filter(|log| !silent || !log.no_null) {
                let eval = facts_of(local, frontend, listener, &client, scopes);
                scopes.memory.links.set_front_error(why.error());
                rules::refused(log, &eval, &why.to_string());
            }
            return None;
        }
        count_in_front!(frontend, listener, tls_sessions);
        match client.tls().is_some_and(|info| info.resumed) {
            true => count_in_front!(frontend, listener, tls_resumed),
            false => local.generation.process_stats.tls_clients.own().keys.add(1),
        }
    }
    rule(local, frontend, listener, &frontend.rules.session, &mut client, scopes)?;
    count_in_front!(frontend, listener, sessions_admitted);
    scopes.tracks.count(Countable::Session, || local.here().now());
    Some(client)
}

/// Returns the state that rules may read before the first request.
fn facts_of<'a>(
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
        scopes,
        course: None,
    }
}

/// Runs `tcp-request connection` or `tcp-request session` rules. Returns `None` if the connection ends here,
/// also for lack of memory; else whether a rule asks for a PROXY header.
fn rule(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    rules: &[Rule<ConnectionAction>],
    client: &mut Client,
    scopes: &Scopes,
) -> Option<bool> {
    if rules.is_empty() {
        return Some(false);
    }
    let eval = facts_of(local, frontend, listener, client, scopes);
    let is_connection = std::ptr::eq(rules, &*frontend.rules.connection);
    let step = if is_connection { LogStep::TcpReqConn } else { LogStep::TcpReqSess };
    let entrance = rules::connection(&eval, rules, step);
    client.mark(scopes.memory.client_packets.take());
    match entrance {
        Entrance::Accepted { greeted } => {
            // Addresses that these rules set hold for the connection; later rules start from them.
            let (source, destination) = (scopes.memory.source.take(), scopes.memory.destination.take());
            if is_connection {
                client.is_linked(source, destination);
            } else {
                client.is_told(source, destination).ok()?;
            }
            Some(greeted)
        }
        entrance => {
            match is_connection {
                true => count_in_front!(frontend, listener, connections_denied),
                false => count_in_front!(frontend, listener, sessions_denied),
            }
            match entrance {
                Entrance::Dropped(silence) => client.vanish(silence),
                // A reset is one packet and leaves no state here, in case this is a flood.
                _ if is_connection => client.reset_on_close(),
                _ => {}
            }
            None
        }
    }
}
