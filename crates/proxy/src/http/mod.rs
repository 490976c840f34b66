//! HTTP mode: a session serves one request after another, and is an [`IdleSession`] between them.

mod administer;
mod answer;
mod authenticate;
mod body;
mod body_peek;
mod cacheable;
mod choose;
pub mod dry_run;
mod edit;
mod exchange;
mod failure;
mod idle_session;
mod multiplexed;
mod private;
mod pump;
mod receive;
mod report;
mod request;
mod ruled;
mod served;
mod service;
mod settle;
mod tries;
mod tunnel;
mod upload;
mod websocket;

use crate::client::Client;
use crate::count::count_in_front;
use crate::flow::{H2End, NotSent, Splicing, StreamTimeouts, Timeouts};
use crate::lane::{Local, Streaming, Timer};
use crate::panics::caught;
use crate::rules::{EvalContext, Record};
use crate::scopes::{Countable, Scopes};
use exchange::{After, Asking};
pub(crate) use idle_session::{IdleSession, Woken, deliver};
use manylane_balance::Index;
use manylane_config::tree::LogStep;
use manylane_http::Head;
use manylane_plan::Cause;
use manylane_plan::Side;
use manylane_plan::generation::{Backend, Frontend, Listener, TimeoutOf};
use manylane_pool::Pooled;
use manylane_sched::{Boxed, Class, Time};
use multiplexed::Upgraded;
use private::Private;
use request::{NoMore, PartialHead, Wait};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

/// Number of requests that one client may have served in a row, if they arrive together. Then other tasks
/// run.
const PIPELINED_AT_ONCE: u32 = 16;

/// Next step of a session.
enum Next {
    /// The session waits for the client's next request.
    Idle,
    Over,
    /// The client speaks HTTP/2.
    Http2,
}

/// A client's session while it serves a request.
struct Session<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    client: Client,
    /// Number of requests so far.
    requests: u64,
    /// Backend and server of the last request.
    last: Option<(usize, Index)>,
    /// Server connections that only this session uses.
    private: Private,
    /// The last response has been sent; the session [lingers](Self::linger) before it closes the connection.
    lingers: bool,
    /// The current request in the lane's list of streams.
    stream: Option<Streaming>,
    /// Timer for everything that the session waits for.
    timer: Timer,
    /// When the wait for the current request began.
    since: Time,
    /// Variables of rules.
    scopes: Box<Scopes>,
    /// Log record of the current request; `None` if nothing is logged.
    record: RefCell<Option<Record>>,
    /// Number of bytes in the request's head, as received.
    came: u64,
    /// Received bytes that are not counted yet, because they were not sent to a server.
    unsent: Cell<u64>,
    /// The backend that counts the current request, and since when.
    entered: Cell<Option<(usize, Time)>>,
    /// Part of the response may have been sent.
    replied: Cell<bool>,
    /// The part of the next request that has arrived, when the session is about to become idle.
    partial: Option<Pooled<PartialHead>>,
    /// Memory for the state of the idle session, once it was allocated.
    place: Option<Pooled<idle_session::More>>,
    /// A request of HTTP/1 has upgraded the connection to HTTP/2.
    upgraded: Option<Pooled<Upgraded>>,
}

/// Starts a session and serves the requests that arrived with the connection, if any. Returns `None` when the
/// connection is over.
pub(crate) async fn begin(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    client: Client,
    scopes: Box<Scopes>,
) -> Option<IdleSession> {
    let timer = Timer::new(local.here());
    let since = local.here().now();
    let record = RefCell::new(None);
    let mut session = Session {
        local,
        frontend,
        listener,
        client,
        requests: 0,
        last: None,
        private: Private::default(),
        lingers: false,
        stream: None,
        timer,
        since,
        scopes,
        record,
        came: 0,
        unsent: Cell::new(0),
        entered: Cell::new(None),
        replied: Cell::new(false),
        partial: None,
        place: None,
        upgraded: None,
    };
    session.forget();
    let next = if session.may_idle() { Next::Idle } else { session.serve(None).await };
    if let Next::Http2 = next {
        // In a block of its own, because most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(matches!(next, Next::Idle))
}

/// Continues an idle session that was woken. `whose` holds the numbers of its frontend and listener. Returns
/// `None` when the connection is over.
pub(crate) async fn wake(
    local: Rc<Local>,
    whose: (usize, usize),
    idle: IdleSession,
    woken: Woken,
) -> Option<IdleSession> {
    let frontend = &local.generation.frontends[whose.0];
    let mut session = idle.wake(&local, frontend, &frontend.listeners[whose.1]);
    session.regain_partial_head();
    let wait = session.woken(woken);
    let next = session.serve(Some(wait)).await;
    if let Next::Http2 = next {
        // In a block of its own, because most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(matches!(next, Next::Idle))
}

impl Session<'_> {
    /// Serves one request after another until none has arrived. `woken` is the result of the wait before.
    async fn serve(&mut self, mut woken: Option<Wait>) -> Next {
        let frontend = self.frontend;
        let mut in_a_row = 0;
        if woken.is_none() {
            self.receives(self.client.received.len()); // bytes that arrived before the session spoke HTTP
        }
        loop {
            match self.next_request(woken.take()).await {
                Ok(mut request) => {
                    let counts = frontend.counts.own();
                    counts.streams.add(1);
                    counts.requests.add(1);
                    let mut up = self.body_of(&request);
                    let after = caught(pin!(self.exchange(&mut request, &mut up))).await;
                    let after = match after {
                        Some(after) => after,
                        None => self.after_panic().await,
                    };
                    self.stream = None;
                    frontend.counts.own().streams_ended.add(1);
                    self.count_unsent();
                    self.log(LogStep::Close);
                    self.requests += 1;
                    if after == After::Close || !up.is_done() && !pin!(self.skip(&mut up)).await {
                        self.linger().await;
                        return Next::Over;
                    }
                }
                Err(NoMore::Refused { is_error }) => {
                    frontend.counts.own().requests.add(1);
                    self.count_in_tables(Countable::Request);
                    if is_error {
                        self.count_in_tables(Countable::Error);
                    }
                    count_in_front!(frontend, self.listener, request_errors);
                    self.last = None;
                    self.log(LogStep::Error);
                    self.linger().await;
                    return Next::Over;
                }
                Err(NoMore::Partial) => return Next::Idle,
                Err(NoMore::End) => return Next::Over,
                Err(NoMore::Http2) => return Next::Http2,
            }
            self.forget();
            if self.may_idle() {
                return Next::Idle;
            }
            in_a_row += 1;
            if in_a_row % PIPELINED_AT_ONCE == 0 {
                self.after_others().await;
            }
        }
    }

    /// Lets all other ready tasks of the lane run first, and one round of the lane pass, in which it polls
    /// descriptors.
    async fn after_others(&self) {
        let here = self.local.here();
        let class = here.set_class(Class::Heavy);
        here.yield_now().await;
        if let Some(class) = class {
            here.set_class(class);
        }
    }

    /// Resets the state of the previous request.
    fn forget(&mut self) {
        self.scopes.next_request();
        self.client.is_itself();
        self.replied.set(false);
        self.since = self.local.here().now();
    }

    /// Returns true if the connection ends with the current request, because its generation ends and no
    /// successor can take the connection.
    fn ends(&self) -> bool {
        self.local.stopping.has_happened()
            && self.local.closes_busy()
            && (self.belongs() || self.local.successor_at(self.frontend, self.listener).is_none())
    }

    /// Returns true if the connection may stay open behind the response whose head is being made. The process
    /// may have begun to stop since the request arrived.
    fn keeps(&self, asking: &Asking) -> bool {
        asking.keep && !self.ends()
    }

    /// Returns true if the session has state that only its generation understands. That includes clients
    /// inside the process, which cannot move.
    fn belongs(&self) -> bool {
        !self.private.is_empty() || self.scopes.has_session() || !self.client.end.connection().is_pollable()
    }

    /// Returns the state that rules may read.
    fn eval(&self) -> EvalContext<'_> {
        EvalContext {
            local: self.local,
            frontend: self.frontend,
            listener: self.listener,
            peers: self.client.peers(),
            greeting: self.client.greeting(),
            tls: self.client.tls().map(|info| &**info),
            first_request: self.requests == 0,
            scopes: &self.scopes,
            course: Some(&self.record),
        }
    }

    /// Runs `work`, unless something else ends the current request first. That includes a client of HTTP/2
    /// that resets its stream or is gone: neither `maxconn` nor the limit of streams bounds such requests.
    async fn unless_ended<W: Future>(&self, mut work: Pin<&mut W>) -> Result<W::Output, Cause> {
        let there = pin!(poll_fn(|context| {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            match self.client.end.h2() {
                Some(stream) => stream.poll_gone(context).map(|()| Err(Cause::ClientLeft)),
                None => Poll::Pending,
            }
        }));
        self.local.streams.unless_ended(self.entry(), there).await?
    }

    /// Returns timeouts for data that the proxy itself sends to the client: each step has `timeout client`.
    fn client_timeouts(&self) -> StreamTimeouts {
        let time = self.scopes.memory.timeout(TimeoutOf::Client).get().or(self.frontend.timeouts.client);
        StreamTimeouts::for_client(time, self.local.here().now())
    }

    /// Sends the head of an interim response that the proxy makes, and returns its length in bytes. Fails if
    /// the client takes it too slowly or something else ends the current request.
    async fn send_interim(&self, head: &mut Head) -> Result<Result<u64, NotSent>, Cause> {
        let timeouts = self.client_timeouts();
        let sending = pin!(self.client.end.send_interim(&timeouts.down, self.local.here(), head));
        self.unless_ended(pin!(timeouts.in_time(&self.timer, sending))).await?
    }

    /// Returns the entry of the current request in the lane's list of streams.
    fn entry(&self) -> Option<u32> {
        self.stream.as_ref().and_then(Streaming::entry)
    }

    /// Changes the log record of the current request, if there is one.
    fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            what(record);
        }
    }

    /// Logs the current request at `step`, unless it was logged before; nothing more is logged of it.
    fn log(&self, step: LogStep) {
        let Some(record) = self.record.take() else { return };
        // Errors are logged whatever `log-steps` says.
        let steps = self.frontend.log.as_ref().and_then(|log| log.steps);
        if step == LogStep::Error || steps.is_none_or(|steps| steps.has(step)) {
            self.write(step, &record);
        }
    }

    /// Logs a step of the current request, if `log-steps` has it.
    #[inline]
    fn log_step(&self, step: LogStep) {
        if self.logs_step(step) {
            self.log_now(step);
        }
    }

    #[inline]
    fn logs_step(&self, step: LogStep) -> bool {
        self.frontend.log.as_ref().and_then(|log| log.steps).is_some_and(|steps| steps.has(step))
    }

    /// Logs the current request in its present state, for `do-log`.
    #[inline(never)] // most proxies log no steps
    fn log_now(&self, step: LogStep) {
        if let Some(record) = &*self.record.borrow() {
            self.write(step, record);
        }
    }

    fn write(&self, step: LogStep, record: &Record) {
        let Some(log) = &self.frontend.log else { return };
        if let Some(code) = self.client.end.h2().and_then(H2End::peer_reset) {
            self.scopes.memory.links.set_reset(Side::Client, code);
        }
        self.make_id(None);
        let backend = record.backend.map(|number| &*self.local.generation.backends[number]);
        let server = backend.zip(record.server).map(|(backend, index)| &*backend.servers[index.get()]);
        record.write(step, log, &self.eval(), backend, server, self.local.here().now());
    }

    /// Counts an event in the stick-table entries that track the session and its request.
    #[inline]
    fn count_in_tables(&self, what: Countable) {
        self.scopes.tracks.count(what, || self.local.here().now());
    }

    /// Counts bytes received from the client.
    #[inline]
    fn receives(&self, bytes: usize) {
        self.frontend.counts.own().received.add(bytes as u64);
    }

    /// Counts received bytes that were not sent to a server.
    fn count_unsent(&self) {
        let unsent = self.unsent.take();
        if unsent > 0 {
            self.note(|record| record.up += unsent);
            self.count_in_tables(Countable::Bytes { up: unsent, down: 0 });
            self.frontend.counts.own().bytes_in.add(unsent);
            self.listener.counts.own().bytes_in.add(unsent);
        }
    }

    /// Counts bytes from the client and bytes to the client.
    fn count(&self, backend: &Backend, server: Option<Index>, up: u64, down: u64) {
        self.note(|record| {
            record.up += up;
            record.down += down;
        });
        self.count_in_tables(Countable::Bytes { up, down });
        let server = server.map(|index| backend.servers[index.get()].counts.own());
        let (f, b, l) = (self.frontend.counts.own(), backend.counts.own(), self.listener.counts.own());
        f.bytes_in.add(up);
        f.bytes_out.add(down);
        b.bytes_in.add(up);
        b.bytes_out.add(down);
        l.bytes_in.add(up);
        l.bytes_out.add(down);
        if let Some(server) = server {
            server.bytes_in.add(up);
            server.bytes_out.add(down);
        }
    }

    fn timeouts(&self, backend: &Backend) -> Timeouts {
        Timeouts {
            client: self.scopes.memory.timeout(TimeoutOf::Client).get().or(self.frontend.timeouts.client),
            server: self.scopes.memory.timeout(TimeoutOf::Server).get().or(backend.timeouts.server),
            client_fin: self.frontend.timeouts.client_fin,
            server_fin: backend.timeouts.server_fin,
            independent: self.frontend.common.independent || backend.common.independent,
            in_turn: true,
        }
    }

    fn splicing(&self, backend: &Backend) -> Splicing {
        if self.local.generation.process.no_splice {
            return Splicing::default();
        }
        let (f, b) = (&self.frontend.common, &backend.common);
        Splicing { up: f.splice_request.or(b.splice_request), down: f.splice_response.or(b.splice_response) }
    }
}

/// Counts a response's status in a proxy's counters.
macro_rules! count_status {
    ($counts:expr, $status:expr) => {{
        let counts = $counts;
        match $status {
            100..=199 => counts.responses_1xx.add(1),
            200..=299 => counts.responses_2xx.add(1),
            300..=399 => counts.responses_3xx.add(1),
            400..=499 => counts.responses_4xx.add(1),
            500..=599 => counts.responses_5xx.add(1),
            _ => counts.responses_other.add(1),
        }
    }};
}
use count_status;
