//! The state of one request and its response, and what every stage needs: evaluation, log lines, counters.

use super::Session;
use super::edit::PersistCookie;
use super::private::Private;
use super::websocket;
use crate::client::Client;
use crate::flow::{H2End, NotSent, StreamTimeouts};
use crate::tcp::Switched;
use manylane_balance::{Index, Key};
use manylane_config::tree::LogStep;
use manylane_http::{Head, Method, Version};
use manylane_lanes::{Local, Parties, Scopes, Streaming, Timer};
use manylane_plan::generation::{Backend, CloseMode, Frontend, Listener, TimeoutOf};
use manylane_plan::{Cause, Side};
use manylane_pool::Pooled;
use manylane_rules::{EvalContext, EvalPhase, Record, Stores, logs_step};
use manylane_sched::Time;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

/// One request and its response, from the wait for the request's first byte. Each wait has a new one; the
/// one that receives the whole head serves it.
pub(super) struct Stream<'s> {
    pub(super) local: &'s Rc<Local>,
    pub(super) frontend: &'s Frontend,
    pub(super) listener: &'s Listener,
    pub(super) client: &'s mut Client,
    /// Server connections that only this session uses.
    pub(super) private: &'s mut Private,
    /// Backend and server of the session's last request.
    pub(super) last: &'s mut Option<(usize, Index)>,
    /// Timer for everything that the stream waits for.
    pub(super) timer: &'s Timer,
    /// Variables of rules.
    pub(super) scopes: &'s Scopes,
    /// Number of requests of the session before this one.
    pub(super) requests: u64,
    /// When the wait for this request began.
    pub(super) since: Time,
    /// Entry in the lane's list of streams.
    pub(super) streaming: Option<Streaming>,
    /// The stream of TCP mode that this request continues.
    pub(super) switched: Option<Pooled<Switched>>,
    /// Log record; `None` if nothing is logged.
    pub(super) record: RefCell<Option<Record>>,
    /// Number of bytes in the request's head, as received.
    pub(super) came: u64,
    /// Received bytes that are not counted yet, because they were not sent to a server.
    pub(super) unsent: Cell<u64>,
    /// The backend, once the frontend has chosen it.
    pub(super) backend: Option<&'s Backend>,
    /// Since when the backend counts this request.
    pub(super) entered: Cell<Option<Time>>,
    /// Part of the response may have been sent.
    pub(super) replied: Cell<bool>,
    /// The last response has been sent; the stream [lingers](Self::linger) before the connection closes.
    pub(super) lingers: bool,
    pub(super) version: Version,
    pub(super) method: Method,
    /// The proxy has added `Early-Data` to the request.
    pub(super) tells_early: bool,
    /// The connection to the server may begin with the request, as early data.
    pub(super) sends_early: bool,
    /// The client asks for another protocol or for a tunnel.
    pub(super) upgrade: bool,
    /// The client's connection may stay open.
    pub(super) keep: bool,
    pub(super) mode: CloseMode,
    pub(super) persistence: Persistence,
    /// The key that the balancing algorithm took from the body; a retry no longer has the body.
    pub(super) key: Cell<Option<Key<'static>>>,
    /// The server of the last attempt.
    pub(super) server: Cell<Option<Index>>,
    /// The request has been sent to a server. From then on formats of the proxy's own responses do not see
    /// it, as in HAProxy.
    pub(super) gone: Cell<bool>,
    /// The WebSocket handshake of the request.
    pub(super) websocket: Cell<Option<websocket::Handshake>>,
}

/// What binds a request to one server.
#[derive(Default)]
pub(super) struct Persistence {
    pub(super) cookie: PersistCookie,
    /// The request went to the server that its cookie names.
    pub(super) right: bool,
    /// The server that a rule chose; it wins over the cookie.
    pub(super) ruled: Option<Index>,
    /// The server that a `stick` rule has found; a rule and a cookie win over it.
    pub(super) stuck: Option<Index>,
    /// Keys under which `stick` rules store the server once it has responded.
    pub(super) stores: Stores,
    /// `force-persist`: the cookie's server is used even if it is down.
    pub(super) forced: bool,
    /// `ignore-persist`: the cookie's server is ignored.
    pub(super) ignored: bool,
}

impl Session<'_> {
    /// Returns a new stream, for the next request.
    #[inline(always)] // builds the stream at its final place
    pub(super) fn stream(&mut self) -> Stream<'_> {
        Stream {
            local: self.local,
            frontend: self.frontend,
            listener: self.listener,
            client: &mut self.client,
            private: &mut self.private,
            last: &mut self.last,
            timer: &self.timer,
            scopes: &self.scopes,
            requests: self.requests,
            since: self.since,
            streaming: None,
            switched: None,
            record: RefCell::new(None),
            came: 0,
            unsent: Cell::new(0),
            backend: None,
            entered: Cell::new(None),
            replied: Cell::new(false),
            lingers: false,
            version: Version::HTTP_11,
            method: Method::Get,
            tells_early: false,
            sends_early: false,
            upgrade: false,
            keep: false,
            mode: CloseMode::KeepAlive,
            persistence: Persistence::default(),
            key: Cell::new(None),
            server: Cell::new(None),
            gone: Cell::new(false),
            websocket: Cell::new(None),
        }
    }
}

impl<'s> Stream<'s> {
    /// Returns true if the connection ends with the current request, because its generation ends and no
    /// successor can take the connection.
    pub(super) fn ends(&self) -> bool {
        self.local.stopping.has_happened()
            && self.local.closes_busy()
            && (self.belongs() || self.local.successor_at(self.frontend, self.listener).is_none())
    }

    /// Returns true if the session has state that only its generation understands. That includes clients
    /// inside the process, which cannot move.
    pub(super) fn belongs(&self) -> bool {
        !self.private.is_empty() || self.scopes.has_session() || !self.client.end.connection().is_pollable()
    }

    /// Returns true if the connection may stay open behind the response whose head is being made. The process
    /// may have begun to stop since the request arrived.
    pub(super) fn keeps(&self) -> bool {
        self.keep && !self.ends()
    }

    /// Returns the state that rules may read.
    pub(super) fn eval(&self) -> EvalContext<'_> {
        EvalContext {
            local: self.local,
            frontend: self.frontend,
            listener: self.listener,
            peers: self.client.peers(),
            greeting: self.client.greeting(),
            tls: self.client.tls().map(|info| &**info),
            first_request: self.requests == 0,
            http: true,
            scopes: self.scopes,
            course: Some(&self.record),
        }
    }

    /// Returns the phase in which rules see the head of the request.
    pub(super) fn phase<'p>(&self, head: &'p Head) -> EvalPhase<'p>
    where
        's: 'p,
    {
        EvalPhase { request: Some(head), backend: self.backend, ..EvalPhase::default() }
    }

    /// Runs `work`, unless something else ends the current request first. That includes a client of HTTP/2
    /// that resets its stream or is gone: neither `maxconn` nor the limit of streams bounds such requests.
    pub(super) async fn unless_ended<W: Future>(&self, mut work: Pin<&mut W>) -> Result<W::Output, Cause> {
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
    pub(super) fn client_timeouts(&self) -> StreamTimeouts {
        let time = self.scopes.memory.timeout(TimeoutOf::Client).get().or(self.frontend.timeouts.client);
        StreamTimeouts::for_client(time, self.local.here().now())
    }

    /// Sends the head of an interim response that the proxy makes, and returns its length in bytes. Fails if
    /// the client takes it too slowly or something else ends the current request.
    pub(super) async fn send_interim(&self, head: &mut Head) -> Result<Result<u64, NotSent>, Cause> {
        let timeouts = self.client_timeouts();
        let sending = pin!(self.client.end.send_interim(&timeouts.down, self.local.here(), head));
        self.unless_ended(pin!(timeouts.in_time(self.timer, sending))).await?
    }

    /// Returns the entry of the current request in the lane's list of streams.
    pub(super) fn entry(&self) -> Option<u32> {
        self.streaming.as_ref().and_then(Streaming::entry)
    }

    /// Changes the log record of the current request, if there is one.
    pub(super) fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            what(record);
        }
    }

    /// Logs the current request at `step`, unless it was logged before; nothing more is logged of it.
    pub(super) fn log(&self, step: LogStep) {
        let Some(record) = self.record.take() else { return };
        // Errors are logged whatever `log-steps` says.
        let steps = self.frontend.log.as_ref().and_then(|log| log.steps);
        if step == LogStep::Error || steps.is_none_or(|steps| steps.has(step)) {
            self.write(step, &record);
        }
    }

    /// Logs a step of the current request, if `log-steps` has it.
    #[inline]
    pub(super) fn log_step(&self, step: LogStep) {
        if self.logs_step(step) {
            self.log_now(step);
        }
    }

    #[inline]
    pub(super) fn logs_step(&self, step: LogStep) -> bool {
        logs_step(self.frontend, step)
    }

    /// Logs the current request in its present state, for `do-log`.
    #[inline(never)] // most proxies log no steps
    pub(super) fn log_now(&self, step: LogStep) {
        if let Some(record) = &*self.record.borrow() {
            self.write(step, record);
        }
    }

    fn write(&self, step: LogStep, record: &Record) {
        if let Some(code) = self.client.end.h2().and_then(H2End::peer_reset) {
            self.scopes.memory.links.set_reset(Side::Client, code);
        }
        self.make_id(None);
        record.write(step, &self.eval());
    }

    /// Returns whom events of the stream concern.
    #[inline]
    pub(super) fn parties(&self) -> Parties<'_> {
        Parties {
            backend: self.backend,
            tracks: Some((&self.scopes.tracks, &self.local.io)),
            ..Parties::client(&self.local.generation, self.frontend, self.listener)
        }
    }

    /// Counts bytes received from the client.
    #[inline]
    pub(super) fn receives(&self, bytes: usize) {
        self.frontend.counts.own().received.add(bytes as u64);
    }

    /// Counts received bytes that were not sent to a server.
    pub(super) fn count_unsent(&self) {
        let unsent = self.unsent.take();
        if unsent > 0 {
            self.note(|record| record.up += unsent);
            self.parties().bytes(unsent, 0);
        }
    }

    /// Ends the request for counters, logs and the lane's list of streams.
    pub(super) fn end(&mut self) {
        self.leave();
        self.streaming = None;
        self.parties().stream_ends();
        self.count_unsent();
        self.log(LogStep::Close);
    }

    /// Counts the end of the request in its backend, with the time that it spent there.
    pub(super) fn leave(&self) {
        if let Some(begun) = self.entered.take() {
            self.parties().backend_left(self.local.here().now().since(begun));
        }
    }

    /// Counts bytes that the proxy itself sends to the client.
    pub(super) fn count_own(&self, bytes: u64) {
        self.note(|record| record.down += bytes);
        self.parties().bytes(0, bytes);
    }
}
