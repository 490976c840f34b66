//! What happens to connections, streams and servers: each event is a function, and says whose counters grow
//! and what tracked entries of stick tables count.

use crate::scopes::{Countable, Tracks};
use manylane_io::Io;
use manylane_plan::connect_timings::ConnectTimings;
use manylane_plan::generation::{Backend, Frontend, Generation, Listener, Server};
use std::time::Duration;

/// Whom an event concerns, as far as there is one.
#[derive(Clone, Copy)]
pub struct Parties<'a> {
    /// The generation that the others belong to.
    pub generation: &'a Generation,
    /// The frontend.
    pub frontend: Option<&'a Frontend>,
    /// The listener that accepted the client.
    pub listener: Option<&'a Listener>,
    /// The backend, once it is chosen.
    pub backend: Option<&'a Backend>,
    /// The server, once it is chosen.
    pub server: Option<&'a Server>,
    /// Tracked entries, and the lane's clock.
    pub tracks: Option<(&'a Tracks, &'a Io)>,
}

/// Evaluates an expression with the counters of each party that is there.
macro_rules! on {
    ([$($party:expr),+], |$own:ident| $work:expr) => {{$(
        if let Some(party) = $party {
            let $own = party.counts.own();
            $work;
        }
    )+}};
}

macro_rules! on_status {
    ($of:tt, $status:expr) => {
        on!($of, |own| match $status {
            100..=199 => own.responses_1xx.add(1),
            200..=299 => own.responses_2xx.add(1),
            300..=399 => own.responses_3xx.add(1),
            400..=499 => own.responses_4xx.add(1),
            500..=599 => own.responses_5xx.add(1),
            _ => own.responses_other.add(1),
        })
    };
}

/// Defines events by the parties and their counters that grow by one, and by what tracked entries count.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident: $([$($party:ident)+ += $($counter:ident)+])* $($tracked:ident)*;)+) => {
        impl Parties<'_> {$(
            $(#[$doc])*
            #[inline(always)] // the parties are in registers of the caller
            pub fn $event(self) {
                $(events!(@self [$($party)+] { $($counter)+ });)*
                $(self.track(Countable::$tracked);)*
            }
        )+}
    };
    (@$parties:ident [$($party:ident)+] $counters:tt) => { $(events!(@$parties.$party $counters);)+ };
    (@$parties:ident.$party:ident { $($counter:ident)+ }) => {
        on!([$parties.$party], |own| { $(own.$counter.add(1);)+ })
    };
}

events! {
    /// The limits admitted a connection, or it moves to a generation with counters of its own.
    connection_begins: [frontend listener += connections];
    /// A connection ended, or moved to such a generation.
    connection_ends: [frontend listener += connections_ended];
    /// A session ended.
    session_ends: [frontend listener += sessions_ended];
    /// PROXY header and TLS handshake are done, and no rule refused the session.
    session_admitted: [frontend listener += sessions_admitted] Session;
    /// A `tcp-request connection` rule refused a connection, or its source port is privileged and the process
    /// rejects such.
    connection_denied: [frontend listener += connections_denied];
    /// A `tcp-request session` rule refused a session.
    session_denied: [frontend listener += sessions_denied];
    /// The TLS handshake of a client failed.
    client_handshake_failed: [frontend listener += request_errors tls_failed];
    /// A connection of a listener with `proto h2` begins.
    h2_only_begins: [frontend += h2_only];

    /// A stream of TCP mode begins, or one of log messages.
    stream_begins: [frontend += streams];
    /// A stream ended: of TCP mode, of log messages, or a request with its response.
    stream_ends: [frontend += streams_ended];
    /// The head of a request arrived.
    request_begins: [frontend += streams requests];
    /// As `request_begins`, over HTTP/2.
    h2_request_begins: [frontend += streams requests h2_requests];
    /// The content rules of the frontend let a request pass.
    request_accepted: Request;
    /// The client sent something that is not a request.
    no_request: [frontend += requests] [frontend listener += request_errors] Request;
    /// The head of a request over HTTP/2 exceeded the limits.
    h2_request_refused: [frontend += h2_requests];
    /// The request was invalid, or its client left.
    request_error: [frontend listener += request_errors];
    /// A rule asked the client for a password, or the client sent what is not a request.
    client_error: Error;
    /// `tcp-request content` rules refused the request.
    contents_rejected: [frontend listener += requests_denied];
    /// A rule, be it for a response, left the client without an answer by `silent-drop`.
    silently_dropped: [frontend listener backend += requests_denied];
    /// A rule denied a response.
    response_denied: [frontend listener backend server += responses_denied];
    /// A rule could not edit a head or make its response.
    rewrite_failed: [frontend listener backend server += failed_rewrites];
    /// A request failed with 500, or a panic or a lack of memory ended a stream.
    internal_error: [frontend listener backend += internal_errors];
    /// The line of a stream was written to at least one target of the frontend.
    line_logged: [frontend += lines];

    /// A backend got a request.
    backend_request: [backend += requests];
    /// The algorithm chose the server.
    server_chosen: [backend server += chosen];
    /// A stream that reached a server released it.
    server_left: [backend += left];
    /// A new connection to a server is tried.
    connects: [backend server += connects] [server += sessions];
    /// A request takes a connection that exists.
    reuses: [backend server += reuses] [server += sessions];
    /// The connection came from the idle pool of another lane.
    connection_taken_over: [server += takeovers];
    /// A stream tries the same server again.
    connection_retried: [backend server += retries];
    /// A stream tries another server; counts at the one that it leaves.
    redispatched: [backend server += redispatches];
    /// A stream reached no server: its last attempt failed, its time in a queue ran out, or no server takes
    /// requests. Also a TLS handshake that failed behind early data.
    connection_error: [backend server += connection_errors];
    /// A TLS handshake with a server failed.
    server_handshake_failed: [backend server += tls_failed];
    /// The response was invalid, or its server left.
    response_error: [backend server += response_errors];
    /// A server did not respond, or its response broke off.
    server_failed: Failure;
    /// A client left or timed out after its stream had entered a backend.
    client_aborts: [backend server += client_aborts];
    /// A server left or timed out amid its response or a tunnel, or closed a reused connection before it
    /// responded.
    server_aborts: [backend server += server_aborts];
    /// `observe` counted `error-limit` errors in a row.
    error_limit_reached: [server += health_errors];
}

impl<'a> Parties<'a> {
    /// Returns only the generation; callers add whom the event concerns.
    #[inline]
    pub fn new(generation: &'a Generation) -> Self {
        Self { generation, frontend: None, listener: None, backend: None, server: None, tracks: None }
    }

    /// Returns the parties of an event between a client and its frontend.
    #[inline]
    pub fn client(generation: &'a Generation, frontend: &'a Frontend, listener: &'a Listener) -> Self {
        Self { frontend: Some(frontend), listener: Some(listener), ..Self::new(generation) }
    }

    /// The backend, unless it is the frontend: a `listen` section.
    fn other_backend(&self) -> Option<&'a Backend> {
        self.backend.filter(|backend| self.frontend.is_none_or(|frontend| frontend.id != backend.id))
    }

    /// The backend that has the stream; before the choice, the backend half of a `listen`.
    #[inline(always)]
    fn holder(&self) -> Option<&'a Backend> {
        self.backend.or_else(|| Some(&self.generation.backends[self.frontend?.own_backend?]))
    }

    #[inline]
    fn track(&self, what: Countable) {
        if let Some((tracks, io)) = self.tracks {
            tracks.count(what, || io.here().now());
        }
    }

    pub(crate) fn session_begins(self) {
        on!([self.frontend, self.listener], |own| own.begin_session());
    }

    /// A TLS handshake with a client is complete.
    pub fn client_handshake(self, resumed: bool) {
        on!([self.frontend, self.listener], |own| own.tls_sessions.add(1));
        match resumed {
            true => on!([self.frontend, self.listener], |own| own.tls_resumed.add(1)),
            false => self.generation.process_stats.tls_clients.own().keys.add(1),
        }
    }

    /// `http-request reject` refused the request.
    pub fn request_rejected(self) {
        on!([self.frontend, self.listener, self.holder()], |own| own.requests_denied.add(1));
    }

    /// A rule refused the request with a response.
    pub fn request_denied(self) {
        self.track(Countable::Error);
        on!([self.frontend, self.listener, self.other_backend()], |own| own.requests_denied.add(1));
    }

    /// The proxy responds itself, because of a rule or the configuration. The frontend does not count what a
    /// backend responds.
    pub fn intercepted(self) {
        on!([self.frontend.filter(|_| self.other_backend().is_none())], |own| own.intercepted.add(1));
    }

    /// Bytes came from the client (`up`), and went to the client (`down`).
    #[inline(always)]
    pub fn bytes(self, up: u64, down: u64) {
        self.track(Countable::Bytes { up, down });
        if up > 0 {
            on!([self.frontend, self.listener, self.holder(), self.server], |own| own.bytes_in.add(up));
        }
        if down > 0 {
            on!([self.frontend, self.listener, self.holder(), self.server], |own| own.bytes_out.add(down));
        }
    }

    /// The stream ends without a response.
    pub fn unanswered(self) {
        self.responds(0);
    }

    /// The client gets a response with this status.
    #[inline(always)]
    pub fn responds(self, status: u16) {
        on_status!([self.frontend, self.backend], status);
    }

    /// A stream entered its backend.
    #[inline(always)]
    pub fn backend_entered(self) {
        on!([self.backend], |own| own.begin());
    }

    /// A stream left its backend, `took` after it entered.
    #[inline(always)]
    pub fn backend_left(self, took: Duration) {
        on!([self.backend], |own| own.end(took));
    }

    #[inline(always)]
    pub(crate) fn server_taken(self) {
        on!([self.server], |own| own.begin());
    }

    #[inline(always)]
    pub(crate) fn server_released(self, took: Duration) {
        on!([self.server], |own| own.end(took));
    }

    /// The stream has a connection to the server.
    #[inline(always)]
    pub(crate) fn server_reached(self, timings: &ConnectTimings) {
        on!([self.backend, self.server], |own| own.reached(timings));
    }

    /// A TLS handshake with a server is complete.
    pub fn server_handshake(self, resumed: bool) {
        on!([self.backend, self.server], |own| own.tls_sessions.add(1));
        match resumed {
            true => on!([self.backend, self.server], |own| own.tls_resumed.add(1)),
            false => self.generation.process_stats.tls_servers.own().keys.add(1),
        }
    }

    /// The server sent a response with this status.
    #[inline(always)]
    pub fn server_responds(self, status: u16) {
        on_status!([self.server], status);
    }

    /// The head of a response goes to the client, `took` after the connection.
    #[inline(always)]
    pub fn answered(self, status: u16, took: Duration) {
        on!([self.backend, self.server], |own| own.answered(took));
        let codes = &self.generation.process;
        if codes.error_statuses.contains(status) {
            self.track(Countable::Error);
        }
        if codes.failure_statuses.contains(status) {
            self.track(Countable::Failure);
        }
    }
}
