//! An HTTP/2 connection of a client. Each stream is a session of one request, in a task of its own.
//!
//! Streams share only the state of the connection ([`Multiplexed`]). A stream that begins while another
//! stream holds the session's private connections opens its own.

use super::Session;
use super::private::Private;
use super::request::timeouts;
use super::stream::Stream;
use super::websocket::as_upgrade;
use crate::client::{Client, ClientOrigin};
use crate::flow::{ClientEnd, H2End};
use manylane_balance::Index;
use manylane_config::tree::LogStep;
use manylane_expr::Variables;
use manylane_h1::{Body, Connection as Said, Request};
use manylane_http::{EditError, Known, Method, Version};
use manylane_lanes::{
    Countable, CountedConn, IdleClient, Local, Parties, SESSION, SessionTracks, Timer, caught, judge_glitches,
};
use manylane_mux::h2;
use manylane_plan::Side;
use manylane_plan::generation::{Frontend, LoggedErrors};
use manylane_plan::{Cause, Phase, Termination};
use manylane_pool::{Pool, Pooled};
use manylane_rules::{EvalContext, Record};
use manylane_sched::Class;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Time in which a client has to acknowledge SETTINGS: a round trip, and time for a busy client. Until then
/// the client need not respect the limits.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// State that the streams of a connection share.
struct Multiplexed {
    local: Rc<Local>,
    /// Numbers of the frontend and of its listener.
    whose: (usize, usize),
    conn: h2::Conn,
    origin: ClientOrigin,
    /// Number of requests so far.
    requests: Cell<u64>,
    /// Backend and server of the last request.
    last: Cell<Option<(usize, Index)>>,
    /// Private connections to servers, while no stream holds them.
    private: RefCell<Private>,
    /// Variables of the session.
    variables: Rc<RefCell<Variables>>,
    tracks: SessionTracks,
}

/// An HTTP/2 connection that an HTTP/1 request has started (RFC 7540, 3.2). The request is its first stream.
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

/// The request of a new stream, or the error.
type Offered = Result<h2::Request, h2::TooLarge>;

manylane_sync::lazy_static! {
    /// Requests on their way to the stream's future. Passed by value they would take space in each enclosing
    /// future, and the task would need a larger block.
    static OFFERED: Pool<Offered> =
        Pool::new("h2 request").expect("the size is a constant below the bound");
}

/// Serves an HTTP/2 connection until it ends.
pub(super) async fn serve(session: Session<'_>, upgraded: Option<Pooled<Upgraded>>) {
    let Session { local, frontend, listener, client, private, scopes, .. } = session;
    let config = config(local, frontend);
    let (variables, tracks) = (scopes.take_session(), scopes.tracks.take_session());
    local.scopes.put(scopes);
    let Some((connection, received, origin)) = client.split() else { return };
    let (settings, has_descriptor) = (&local.generation.process.h2, connection.socket().is_some());
    let (conn, offered) = match upgraded.map(Pooled::into_inner) {
        Some(Upgraded { mux, stream, request }) => {
            (h2::Conn::new(mux, connection, received), Some((stream, request)))
        }
        None => match h2::Conn::server(connection, received, config, local.here()) {
            Ok(conn) => (conn, None),
            Err(_) => return,
        },
    };
    if listener.version == Some(Version::HTTP_2) {
        Parties::client(&local.generation, frontend, listener).h2_only_begins();
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
        variables: Rc::new(RefCell::new(variables.unwrap_or_default())),
        tracks: tracks.into_shared(),
    });
    let (first, _) = timeouts(frontend, 0);
    let (idle, _) = timeouts(frontend, 1);
    let timeout = h2::ConnTimeouts {
        first,
        idle,
        write: frontend.timeouts.client,
        settings: Some(SETTINGS_TIMEOUT),
        ping: listener.idle_ping,
    };
    if let Some((stream, request)) = offered {
        begin(&of, stream, h2::Incoming { request: Ok(request), end: true });
    }
    let mut running = pin!(conn.run(&timeout, |stream, incoming| begin(&of, stream, incoming)));
    let mut stopping = local.stopping.waiter();
    let (mut shut_down, mut counted_glitches, mut idle_client) = (false, 0, None);
    poll_fn(|context| {
        if !shut_down {
            let (event, slot) = stopping.parts();
            let stays = event.has_happened()
                && conn.open_streams() == 0
                && (frontend.http.outlives_stop || local.keeps_idle());
            if let Some((event, waiter_slot)) = event.unless(stays, slot, context)
                && event.poll(waiter_slot, context).is_ready()
            {
                shut_down = true;
                conn.shutdown();
            }
        }
        let idle = || local.generation.process_stats.idle_percent();
        judge_glitches(&conn, settings.kill_at_load, config.glitches, idle);
        let polled = running.as_mut().poll(context);
        let is_idle = has_descriptor && conn.open_streams() == 0;
        if is_idle != idle_client.is_some() {
            idle_client = is_idle.then(IdleClient::begin);
        }
        let glitches = conn.glitches();
        if glitches > counted_glitches {
            let new = Countable::Glitches(glitches - counted_glitches);
            of.tracks.count(new, local.here().now());
            counted_glitches = glitches;
        }
        let happened = counted.update();
        let lines = match settings.logged {
            LoggedErrors::None => 0,
            LoggedErrors::Connection => happened.connection_errors,
            LoggedErrors::Stream => happened.connection_errors + happened.refused,
        };
        (0..lines).for_each(|_| of.log_error());
        if happened.connection_errors + happened.stream_errors > 0
            && let Some(violation) = conn.take_violation()
        {
            let source = of.origin.peers(conn.connection()).source;
            frontend.invalid.keep_frame(*violation, source, None);
        }
        polled
    })
    .await;
}

/// Starts the task of a new stream. If memory is short, the stream is refused.
fn begin(of: &Rc<Multiplexed>, stream: h2::Stream, incoming: h2::Incoming) {
    let h2::Incoming { request, end } = incoming;
    if of.local.generation.process.h2.most_streams.is_some_and(|most| of.conn.begun() == most) {
        of.conn.shutdown();
    }
    let scheme = request.as_ref().map_or(h2::Scheme::None, |request| request.scheme.clone());
    let Ok(end) = H2End::new(of.conn.clone(), stream, scheme, end) else { return };
    let Ok(request) = OFFERED.alloc(request) else { return };
    let (here, of) = (of.local.here(), of.clone());
    // The future is large, so it is built in its final place.
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
    let _ = here.spawn_made(&SESSION, Class::Normal, task); // dropping the future ends its stream
}

/// Counts a stream's task on its lane.
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
        // The task panicked, but the lane continues: the soft stop must not wait for this task.
        if std::thread::panicking() {
            self.0.ended();
        }
    }
}

impl Multiplexed {
    /// Logs an error that belongs to no request: of the connection, or of a stream without a request.
    fn log_error(&self) {
        let local = &self.local;
        let frontend = &local.generation.frontends[self.whose.0];
        if frontend.log.is_none() {
            return;
        }
        let mut scopes = local.scopes.take();
        scopes.share_session(self.variables.clone());
        scopes.memory.links.set_front(self.conn.clone());
        let mut record = Record::new(local.here().now());
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
            http: true,
            scopes: &scopes,
            course: None,
        };
        record.write(LogStep::Error, &eval);
        local.scopes.put(scopes);
    }

    /// Serves one stream from its request to its end.
    async fn stream(&self, end: ClientEnd, request: Pooled<Offered>) {
        let local = &self.local;
        let frontend = &local.generation.frontends[self.whose.0];
        let listener = &frontend.listeners[self.whose.1];
        let Ok(client) = Client::with_stream(&self.origin, end) else { return };
        let mut scopes = local.scopes.take();
        scopes.share_session(self.variables.clone());
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
            timer: Timer::new(local.here()),
            since: local.here().now(),
            scopes,
        };
        let mut stream = session.stream();
        let links = &stream.scopes.memory.links;
        links.set_front(self.conn.clone());
        if let Some(end) = stream.client.end.h2() {
            links.set_id(Side::Client, end.id());
        }
        stream.begin_record(stream.since);
        stream.serve_one(request).await;
        if let Some(end) = stream.client.end.h2().filter(|_| !stream.replied.get()) {
            // Clients retry refused streams by themselves, which is safe only if no server was asked (RFC
            // 9113, 8.7).
            let requested = stream.scopes.memory.reached_server.get();
            end.reset(if requested { h2::Reason::INTERNAL_ERROR } else { h2::Reason::REFUSED_STREAM });
        }
        let Session { last, private, scopes, .. } = session;
        self.last.set(last);
        if !private.is_empty() {
            self.private.replace(private);
        }
        local.scopes.put(scopes);
    }
}

/// Returns the HTTP/2 settings for a client.
fn config(local: &Local, frontend: &Frontend) -> h2::Config {
    let process = &local.generation.process;
    h2::Config {
        connect_protocol: !process.hides_websocket,
        ..process.h2.of_client(&frontend.http.request_limits)
    }
}

impl Stream<'_> {
    /// Accepts the request's upgrade to h2c if it is valid and the session's first request: the response
    /// follows on a stream after 101. Otherwise returns the request, to be served over HTTP/1.
    ///
    /// # Errors
    /// The upgrade, or `None` if there is no memory.
    #[cold]
    pub(super) fn take_offer(&self, mut request: Request) -> Result<Request, Option<Pooled<Upgraded>>> {
        // Within TLS the offer has no meaning (RFC 7540, 3.3): a proxy before this one may have passed it on.
        let in_clear = self.client.end.connection().tls().is_none();
        let upgraded = match self.requests {
            0 if in_clear && self.required_version().is_none() => {
                h2::Mux::upgraded(config(self.local, self.frontend), self.local.here(), &request.head)
            }
            _ => Ok(None),
        };
        request.end_offer().map_err(|_| None)?;
        let Ok(Some((mux, stream))) = upgraded else { return Ok(request) };
        request.head.remove_fields(Known::UPGRADE);
        request.head.remove_fields(Known::CONNECTION);
        let request =
            h2::Request { head: request.head, scheme: h2::Scheme::Http, protocol: None, length: None };
        Err(UPGRADED.alloc(Upgraded { mux, stream, request }).ok())
    }

    /// Serves the request of a stream.
    async fn serve_one(&mut self, request: Pooled<Offered>) {
        let request = request.into_inner().ok().and_then(|request| self.of_stream(request).ok());
        let Some(mut request) = request else { return self.refuse_head().await };
        self.came = request.head.size() as u64;
        self.receives(request.head.size());
        self.unsent.set(self.came);
        let now = self.local.here().now();
        self.note(|record| record.request = Some(record.age(now)));
        self.parties().h2_request_begins();
        let mut up = self.body_of(&request);
        let after = caught(pin!(self.run(&mut request, &mut up))).await;
        if let Err(cause) = after {
            self.after_defect(cause).await;
        }
        self.end();
    }

    /// Converts a request to the form of the HTTP engine. A body without a length counts as chunked, so that
    /// its end is known.
    ///
    /// # Errors
    /// If the head has no room for the fields of an upgrade.
    fn of_stream(&self, request: h2::Request) -> Result<Request, EditError> {
        let h2::Request { mut head, length, protocol, .. } = request;
        if let Some(protocol) = &protocol {
            as_upgrade(&mut head, protocol)?;
        }
        let said = Said { upgrade: protocol.is_some(), ..Said::default() };
        let over = self.client.end.h2().is_none_or(H2End::is_over);
        let body = match (length, over) {
            // The data belongs to the tunnel.
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

    /// Refuses a request head that exceeds the limits.
    async fn refuse_head(&mut self) {
        self.parties().h2_request_refused();
        self.refuse(431, Cause::Refused).await;
        self.replied.set(true);
        self.refused(true).await;
    }
}
