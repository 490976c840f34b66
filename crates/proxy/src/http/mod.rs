//! HTTP mode: a session is one request after another, each with its response, and between two of them a
//! [`IdleSession`].

mod administer;
mod answer;
mod authenticate;
mod body;
mod body_peek;
mod cacheable;
mod choose;
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

use crate::counts::count_in_front;
use crate::flow::{H2End, NotSent, Side, Splicing, StreamTimeouts, Timeouts, Timer};
use crate::generation::{Backend, Frontend, Listener, TimeoutOf};
use crate::log::Record;
use crate::panics::caught;
use crate::rules::{Countable, EvalContext, Scopes};
use crate::run::{Local, Streaming};
use crate::session::Client;
use crate::termination::Cause;
use exchange::{After, Asking};
pub(crate) use idle_session::{IdleSession, Woken, deliver};
use manylane_balance::Index;
use manylane_http::Head;
use manylane_pool::Pooled;
use manylane_sched::{Boxed, Class, Time};
use multiplexed::Upgraded;
use private::Private;
use request::{NoMore, PartialHead, Wait};
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;

/// Requests that a client has served one after another when they are there at once. Then others have their
/// turn.
const PIPELINED_AT_ONCE: u32 = 16;

/// What becomes of a session.
enum Next {
    /// It waits for its client's next request.
    Idle,
    Over,
    /// Its client speaks HTTP/2.
    Http2,
}

/// A client's session while there is a request.
struct Session<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    client: Client,
    /// Requests so far.
    requests: u64,
    /// The server of the last request: number of the backend, and which.
    last: Option<(usize, Index)>,
    /// Connections to servers that are this session's alone.
    private: Private,
    /// The client has been sent its last.
    lingers: bool,
    /// The request at work, as the lane's list of streams has it.
    stream: Option<Streaming>,
    /// For all that it waits for.
    timer: Timer,
    /// Nothing came since then, before the request.
    since: Time,
    /// Variables of rules.
    scopes: Box<Scopes>,
    /// What the log will say of the request at work; none where nothing is logged.
    record: RefCell<Option<Record>>,
    /// Bytes of the request's head, as it came.
    came: u64,
    /// Bytes that came and are not counted yet, because no server was sent them.
    unsent: Cell<u64>,
    /// The backend that counts the request at work, and since when.
    entered: Cell<Option<(usize, Time)>>,
    /// Something of its response may have been sent.
    replied: Cell<bool>,
    /// What came of the next request, when the session is about to rest.
    partial: Option<Pooled<PartialHead>>,
    /// Room for that at rest, once it is kept.
    place: Option<Pooled<idle_session::More>>,
    /// A request in HTTP/1 has begun a connection of HTTP/2.
    upgraded: Option<Pooled<Upgraded>>,
}

/// Serves what the client of a new session sent with the connection, if it did. None when the connection is
/// over.
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
        // In a block of its own: most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(matches!(next, Next::Idle))
}

/// Goes on with a session that has news: of this frontend and listener, by their numbers. None when the
/// connection is over.
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
        // In a block of its own: most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(matches!(next, Next::Idle))
}

impl Session<'_> {
    /// Serves one request after another until none is there; `woken` is what the session waited for before.
    async fn serve(&mut self, mut woken: Option<Wait>) -> Next {
        let frontend = self.frontend;
        let mut in_a_row = 0;
        if woken.is_none() {
            self.receives(self.client.received.len()); // before it was a session of HTTP
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
                    self.log();
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
                    self.log();
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

    /// Lets all others go first who have something to do by now, and one round of the lane pass: descriptors
    /// are looked at.
    async fn after_others(&self) {
        let here = self.local.here();
        let class = here.set_class(Class::Heavy);
        here.yield_now().await;
        if let Some(class) = class {
            here.set_class(class);
        }
    }

    /// The next request begins: nothing is left of the one before.
    fn forget(&mut self) {
        self.scopes.next_request();
        self.client.is_itself();
        self.replied.set(false);
        self.since = self.local.here().now();
    }

    /// Whether the connection ends with the request at work, because its generation does and there is none
    /// where it could go on.
    fn ends(&self) -> bool {
        self.local.stopping.has_happened()
            && self.local.closes_busy()
            && (self.belongs() || self.local.successor_at(self.frontend, self.listener).is_none())
    }

    /// Whether the connection may go on behind the response whose head is made now: the process may have been
    /// told to end since the request came.
    fn keeps(&self, asking: &Asking) -> bool {
        asking.keep && !self.ends()
    }

    /// Whether it has something that only its generation understands; clients inside of the process stay in
    /// their place, too.
    fn belongs(&self) -> bool {
        !self.private.is_empty() || self.scopes.has_session() || !self.client.end.connection().is_pollable()
    }

    /// What rules may look at.
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

    /// What `work` gives, unless somebody else ends the request at work first.
    async fn unless_ended<W: Future>(&self, work: Pin<&mut W>) -> Result<W::Output, Cause> {
        self.local.streams.unless_ended(self.entry(), work).await
    }

    /// For what the proxy itself sends to the client, each step of which has `timeout client`.
    fn client_timeouts(&self) -> StreamTimeouts {
        let time = self.scopes.memory.timeout(TimeoutOf::Client).get().or(self.frontend.timeouts.client);
        StreamTimeouts::for_client(time, self.local.here().now())
    }

    /// Sends the head of an interim response of the proxy's own: how many bytes it has, unless the client
    /// takes it too slowly or somebody else ends the request at work.
    async fn send_interim(&self, head: &mut Head) -> Result<Result<u64, NotSent>, Cause> {
        let timeouts = self.client_timeouts();
        let sending = pin!(self.client.end.send_interim(&timeouts.down, self.local.here(), head));
        self.unless_ended(pin!(timeouts.in_time(&self.timer, sending))).await?
    }

    /// The request at work, among the lane's streams.
    fn entry(&self) -> Option<u32> {
        self.stream.as_ref().and_then(Streaming::entry)
    }

    /// Notes something of the request at work, if that is logged.
    fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            what(record);
        }
    }

    /// Logs the request at work, if it was not logged yet.
    fn log(&self) {
        let Some(record) = self.record.take() else { return };
        self.write(&record);
    }

    /// `do-log`: a line of what is known by now.
    fn log_now(&self) {
        if let Some(record) = &*self.record.borrow() {
            self.write(record);
        }
    }

    fn write(&self, record: &Record) {
        let Some(log) = &self.frontend.log else { return };
        if let Some(code) = self.client.end.h2().and_then(H2End::peer_reset) {
            self.scopes.memory.links.set_reset(Side::Client, code);
        }
        self.make_id(None);
        let backend = record.backend.map(|number| &*self.local.generation.backends[number]);
        let server = backend.zip(record.server).map(|(backend, index)| &*backend.servers[index.get()]);
        record.write(log, &self.eval(), backend, server, self.local.here().now());
    }

    /// Counts something in the entries of stick tables that the session and its request are counted in.
    #[inline]
    fn count_in_tables(&self, what: Countable) {
        self.scopes.tracks.count(what, || self.local.here().now());
    }

    /// So many bytes came from the client.
    #[inline]
    fn receives(&self, bytes: usize) {
        self.frontend.counts.own().received.add(bytes as u64);
    }

    /// Counts what came of a request that no server was sent.
    fn count_unsent(&self) {
        let unsent = self.unsent.take();
        if unsent > 0 {
            self.note(|record| record.up += unsent);
            self.count_in_tables(Countable::Bytes { up: unsent, down: 0 });
            self.frontend.counts.own().bytes_in.add(unsent);
            self.listener.counts.own().bytes_in.add(unsent);
        }
    }

    /// Tells the counters of bytes from the client, and to it.
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

/// Counts a response's status, of a proxy's counters.
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
