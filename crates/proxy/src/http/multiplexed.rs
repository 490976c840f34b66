//! A client's connection of HTTP/2: each of its streams is a session of one request, in a task of its own.
//!
//! Streams have nothing of each other but what belongs to the connection ([`Multiplexed`]). One that begins
//! while the private connections of the session are with another makes one of its own.

use super::Session;
use super::private::Private;
use super::request::timeouts;
use super::websocket::as_upgrade;
use crate::counts::count_in_front;
use crate::flow::{ClientEnd, H2End, Side, Timer};
use crate::generation::LoggedErrors;
use crate::h2_counts::{CountedConn, judge_glitches};
use crate::log::Record;
use crate::panics::caught;
use crate::rules::{Countable, EvalContext, SessionTracks};
use crate::run::{Local, SESSION};
use crate::session::{Client, ClientOrigin};
use crate::termination::{Cause, Phase, Termination};
use manylane_balance::Index;
use manylane_config::tree::LogStep;
use manylane_expr::Variables;
use manylane_h1::{Body, Connection as Said, Request};
use manylane_http::{EditError, Known, Method};
use manylane_mux::h2;
use manylane_pool::{Pool, Pooled};
use manylane_sched::Class;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// How long a client may take to acknowledge settings: a round trip, and time for one that is busy. Without
/// that its limits are not known to hold.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(10);

/// What the streams of a connection share.
struct Multiplexed {
    local: Rc<Local>,
    /// The numbers of the frontend and of its listener.
    whose: (usize, usize),
    conn: h2::Conn,
    origin: ClientOrigin,
    /// Requests so far.
    requests: Cell<u64>,
    /// The server of the last request.
    last: Cell<Option<(usize, Index)>>,
    /// Connections to servers that are this session's alone, and no stream's at the moment.
    private: RefCell<Private>,
    variables: RefCell<Option<Variables>>,
    tracks: SessionTracks,
}

/// A connection of HTTP/2 that a request in HTTP/1 has begun (RFC 7540, 3.2), which is its first stream.
#[derive(Debug)]
pub(super) struct Upgraded {
    mux: h2::Mux,
    stream: h2::Stream,
    request: h2::Request,
}

manylane_sync::lazy_static! {
    static UPGRADED: Pool<Upgraded> =
        Pool::new("h2c upgrade").expect("the size is a constant below the bound");
}

/// What a stream begins with.
type Offered = Result<h2::Request, h2::TooLarge>;

manylane_sync::lazy_static! {
    /// On its way to the stream's future: as a value it would have a place in each of those around it, and
    /// the task would need a larger size of memory.
    static OFFERED: Pool<Offered> =
        Pool::new("h2 request").expect("the size is a constant below the bound");
}

/// Serves a connection that begins to speak HTTP/2, to its end.
pub(super) async fn serve(session: Session<'_>) {
    let config = session.h2_config();
    let Session { local, frontend, listener, client, private, scopes, upgraded, .. } = session;
    let (variables, tracks) = (scopes.take_session(), scopes.tracks.take_session());
    local.scopes.put(scopes);
    let Some((connection, received, origin)) = client.split() else { return };
    let settings = &local.generation.process.h2;
    let (conn, offered) = match upgraded.map(Pooled::into_inner) {
        Some(Upgraded { mux, stream, request }) => {
            (h2::Conn::new(mux, connection, received), Some((stream, request)))
        }
        None => match h2::Conn::server(connection, received, config, local.here()) {
            Ok(conn) => (conn, None),
            Err(_) => return,
        },
    };
    if listener.http2 {
        frontend.counts.own().h2_only.add(1);
    }
    let mut counted = CountedConn::begin(&*frontend.counts, conn.clone());
    let of = Rc::new(Multiplexed {
        local: local.clone(),
        whose: (listener.frontend, listener.index),
        conn: conn.clone(),
        origin,
        requests: Cell::new(0),
        last: Cell::new(None),
        private: RefCell::new(private),
        variables: RefCell::new(variables),
        tracks: tracks.into_shared(),
    });
    let (first, _) = timeouts(frontend, 0);
    let (idle, _) = timeouts(frontend, 1);
    let patience = h2::ConnTimeouts {
        first,
        idle,
        write: frontend.timeouts.client,
        settings: Some(SETTINGS_PATIENCE),
        ping: listener.idle_ping,
    };
    if let Some((stream, request)) = offered {
        begin(&of, stream, h2::Incoming { request: Ok(request), end: true });
    }
    let mut running = pin!(conn.run(&patience, |stream, incoming| begin(&of, stream, incoming)));
    let mut stopping = local.stopping.waiter();
    let (mut told, mut counted_glitches) = (false, 0);
    poll_fn(|context| {
        if !told {
            let (event, place) = stopping.place();
            let stays = event.has_happened()
                && conn.open_streams() == 0
                && (frontend.http.outlives_stop || local.keeps_idle());
            if let Some((event, place)) = event.unless(stays, place, context)
                && event.poll(place, context).is_ready()
            {
                told = true;
                conn.shutdown();
            }
        }
        let idle = || local.generation.process_stats.idle_percent();
        judge_glitches(&conn, settings.kill_at_load, config.glitches, idle);
        let polled = running.as_mut().poll(context);
        let glitches = conn.glitches();
        if glitches > counted_glitches {
            let new = Countable::Glitches(glitches - counted_glitches);
            of.tracks.count(new, local.here().now());
            counted_glitches = glitches;
        }
        let happened = counted.look();
        let lines = match settings.logged {
            LoggedErrors::None => 0,
            LoggedErrors::Connection => happened.connection_errors,
            LoggedErrors::Stream => happened.connection_errors + happened.refused,
        };
        (0..lines).for_each(|_| of.log_error());
        polled
    })
    .await;
}

/// A stream begins: it has a task of its own. Without memory for that it is refused.
fn begin(of: &Rc<Multiplexed>, stream: h2::Stream, incoming: h2::Incoming) {
    let h2::Incoming { request, end } = incoming;
    if of.local.generation.process.h2.most_streams.is_some_and(|most| of.conn.begun() == most) {
        of.conn.shutdown();
    }
    let scheme = request.as_ref().map_or(h2::Scheme::None, |request| request.scheme.clone());
    let Ok(end) = H2End::new(of.conn.clone(), stream, scheme, end) else { return };
    let Ok(request) = OFFERED.alloc(request) else { return };
    let (here, of) = (of.local.here(), of.clone());
    // A stream's future is large: it is made where it stays.
    let task = move || async move {
        of.local.begun();
        let counted = Counted(&of.local);
        {
            let mut work = pin!(of.stream(ClientEnd::Http2(end), request));
            let over = || of.local.is_over();
            poll_fn(|context| if over() { Poll::Ready(()) } else { work.as_mut().poll(context) }).await;
        }
        counted.end();
    };
    let _ = here.spawn_made(&SESSION, Class::Normal, task); // what is dropped ends its stream
}

/// A task of a stream, which its lane counts.
struct Counted<'a>(&'a Local);

impl Counted<'_> {
    fn end(self) {
        let Self(local) = self;
        std::mem::forget(self);
        local.ended();
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // A defect ended it, and the lane goes on: the end of the process must not wait for it.
        if std::thread::panicking() {
            self.0.ended();
        }
    }
}

impl Multiplexed {
    /// Writes the line of an error that belongs to no request: the client broke a rule of the connection, or
    /// of a stream that did not get as far as to have one.
    fn log_error(&self) {
        let local = &self.local;
        let frontend = &local.generation.frontends[self.whose.0];
        let Some(log) = &frontend.log else { return };
        let scopes = local.scopes.take();
        scopes.memory.links.set_front(self.conn.clone());
        let now = local.here().now();
        let mut record = Record::new(now);
        record.status = Some(0);
        record.ended = Termination::new(Cause::Refused, Phase::Request);
        let eval = EvalContext {
            local,
            frontend,
            listener: &frontend.listeners[self.whose.1],
            peers: self.origin.peers(self.conn.connection()),
            greeting: self.origin.greeting(),
            tls: self.conn.connection().tls().and_then(|tls| tls.info()).map(|info| &**info),
            first_request: self.requests.get() == 0,
            scopes: &scopes,
            course: None,
        };
        record.write(LogStep::Error, log, &eval, None, None, now);
        local.scopes.put(scopes);
    }

    /// One stream, from its request to its end.
    async fn stream(&self, end: ClientEnd, request: Pooled<Offered>) {
        let local = &self.local;
        let frontend = &local.generation.frontends[self.whose.0];
        let listener = &frontend.listeners[self.whose.1];
        let Ok(client) = Client::with_stream(&self.origin, end) else { return };
        let scopes = local.scopes.take();
        if let Some(variables) = &*self.variables.borrow() {
            scopes.put_session(variables.clone());
        }
        if !self.tracks.is_none() {
            scopes.tracks.put_session(self.tracks.share());
        }
        let requests = self.requests.replace(self.requests.get() + 1);
        let mut session = Session {
            local,
            frontend,
            listener,
            client,
            requests,
            last: self.last.get(),
            private: self.private.take(),
            lingers: false,
            stream: None,
            timer: Timer::new(local.here()),
            since: local.here().now(),
            scopes,
            record: RefCell::new(None),
            came: 0,
            unsent: Cell::new(0),
            entered: Cell::new(None),
            replied: Cell::new(false),
            partial: None,
            place: None,
            upgraded: None,
        };
        session.forget();
        session.scopes.memory.links.set_front(self.conn.clone());
        if let Some(stream) = session.client.end.h2() {
            session.scopes.memory.links.set_id(Side::Client, stream.id());
        }
        session.begin_record(session.since);
        session.serve_one(request).await;
        if let Some(stream) = session.client.end.h2().filter(|_| !session.replied.get()) {
            // Who is refused asks again by itself, which is safe as long as no server was asked (RFC 9113,
            // 8.7).
            let asked = session.scopes.memory.asked.get();
            stream.reset(if asked { h2::Reason::INTERNAL_ERROR } else { h2::Reason::REFUSED_STREAM });
        }
        let Session { last, private, scopes, .. } = session;
        self.last.set(last);
        if !private.is_empty() {
            self.private.replace(private);
        }
        if let Some(variables) = scopes.take_session() {
            self.variables.replace(Some(variables));
        }
        local.scopes.put(scopes);
    }
}

impl Session<'_> {
    /// What is allowed to a client of HTTP/2.
    fn h2_config(&self) -> h2::Config {
        let process = &self.local.generation.process;
        h2::Config {
            connect_protocol: !process.hides_websocket,
            ..process.h2.of_client(&self.frontend.http.request_limits)
        }
    }

    /// Takes a request's offer of HTTP/2, if it is one as it has to be: then its answer is that of a stream,
    /// behind 101. Only a session's first request is heard. Else it goes on as one of HTTP/1; none where
    /// there is no memory for that.
    #[cold]
    pub(super) fn take_offer(&mut self, mut request: Request) -> Option<Request> {
        let upgraded = match self.requests {
            0 => h2::Mux::upgraded(self.h2_config(), self.local.here(), &request.head),
            _ => Ok(None),
        };
        request.end_offer().ok()?;
        let Ok(Some((mux, stream))) = upgraded else { return Some(request) };
        request.head.remove_fields(Known::UPGRADE);
        request.head.remove_fields(Known::CONNECTION);
        let request =
            h2::Request { head: request.head, scheme: h2::Scheme::Http, protocol: None, length: None };
        self.upgraded = UPGRADED.alloc(Upgraded { mux, stream, request }).ok();
        None
    }

    /// Serves the request of a stream.
    async fn serve_one(&mut self, request: Pooled<Offered>) {
        let frontend = self.frontend;
        let request = request.into_inner().ok().and_then(|request| self.of_stream(request).ok());
        let Some(mut request) = request else { return self.refuse_head().await };
        self.came = request.head.size() as u64;
        self.receives(request.head.size());
        self.unsent.set(self.came);
        let now = self.local.here().now();
        self.note(|record| record.request = Some(record.age(now)));
        let counts = frontend.counts.own();
        counts.streams.add(1);
        counts.requests.add(1);
        counts.h2_requests.add(1);
        let mut up = self.body_of(&request);
        if caught(pin!(self.exchange(&mut request, &mut up))).await.is_none() {
            self.after_panic().await;
        }
        self.stream = None;
        frontend.counts.own().streams_ended.add(1);
        self.count_unsent();
        self.log(LogStep::Close);
    }

    /// A request as the engine has it. A body without a length is one of chunks, to those who need to know
    /// where it ends.
    ///
    /// # Errors
    /// There is no room to say that it is an upgrade.
    fn of_stream(&self, request: h2::Request) -> Result<Request, EditError> {
        let h2::Request { mut head, length, protocol, .. } = request;
        if let Some(protocol) = &protocol {
            as_upgrade(&mut head, protocol)?;
        }
        let said = Said { upgrade: protocol.is_some(), ..Said::default() };
        let over = self.client.end.h2().is_none_or(H2End::is_over);
        let body = match (length, over) {
            // What follows is the tunnel's.
            _ if head.method_kind() == Method::Connect || said.upgrade => Body::None,
            (Some(length), _) => Body::Length(length),
            (None, true) => Body::None,
            (None, false) => Body::Chunked,
        };
        let continue_expected =
            head.values(Known::EXPECT).any(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let te_trailers = head.has(Known::TE);
        Ok(Request { head, body, connection: said, continue_expected, te_trailers })
    }

    /// A head came that is larger than is taken.
    async fn refuse_head(&mut self) {
        let counts = self.frontend.counts.own();
        counts.requests.add(1);
        counts.h2_requests.add(1);
        self.count_in_tables(Countable::Request);
        self.count_in_tables(Countable::Error);
        count_in_front!(self.frontend, self.listener, request_errors);
        self.refuse(431, Cause::Refused).await;
        self.replied.set(true);
        self.log(LogStep::Error);
    }
}
