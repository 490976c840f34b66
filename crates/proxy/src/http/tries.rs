//! Tries servers one after another until one responds.

use super::body::NoBody;
use super::choose::{take_idle, take_shared};
use super::pipeline::After;
use super::private::{PrivateEnd, Purpose};
use super::pump::{Kept, Pump};
use super::stream::Stream;
use super::upload::Watched;
use super::websocket::is_websocket;
use crate::client::Client;
use crate::flow::{H2End, ServerEnd};
use crate::server::{self, Attempt, IdleConn, Tried};
use manylane_balance::ConnSlot;
use manylane_buf::Chain;
use manylane_config::tree::LogStep;
use manylane_h1::{Body, Persist, Request, set_connection};
use manylane_http::Method;
use manylane_lanes::{BackLink, Idle, Local, SETTINGS_TIMEOUT, ServerPermit, Wanted};
use manylane_mux::h2;
use manylane_net::{Connection, TlsStream};
use manylane_plan::Side;
use manylane_plan::connect_timings::{ConnectTimings, NotReached};
use manylane_plan::generation::{Backend, End, Server};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{Answer, EvalContext, EvalPhase};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

/// Remaining attempts for a request, and their state.
#[derive(Clone, Copy)]
pub(super) struct RetryBudget<'a> {
    /// Another attempt is allowed.
    pub(super) left: bool,
    /// This is a retry.
    pub(super) again: bool,
    /// A cookie or a rule chose this server.
    pub(super) persistent: bool,
    /// Copy of the body's bytes that were sent.
    pub(super) kept: Option<&'a Kept>,
    /// True once the server's connection is authenticated as the client's.
    pub(super) authenticated: &'a Cell<bool>,
}

/// State of a request that a server responded to.
pub(super) struct Outcome {
    pub(super) after: After,
    /// The client may still be sending.
    pub(super) linger: bool,
    /// The server has received the whole request, and its response has ended.
    pub(super) whole: bool,
    /// The server's connection can serve another request.
    pub(super) again: bool,
}

impl Outcome {
    pub(super) const CLOSE: Self = Self { after: After::Close, linger: false, whole: false, again: false };
}

/// Reason why no response of a server was forwarded.
pub(super) enum Failed {
    /// The proxy responds with this status; the termination is for the log.
    Answer(u16, Termination),
    /// Retry: no byte has reached the client, and everything that was sent is still here.
    Again { persistent: bool },
    /// Retry once the client has completed its TLS handshake: the server does not serve early data.
    TooEarly { persistent: bool },
    /// The server closed an idle connection without a response, and the proxy closes the client's connection
    /// likewise: only the client knows whether its request may be repeated.
    Unanswered,
    /// The client left, in this phase.
    Client(Phase),
    /// A rule replaced the response of the server.
    Ruled(End, Answer),
    /// A rule closes the connection.
    Closed,
    /// The client gets no response. Holds the termination for the log.
    Silent(Termination),
    /// The server refused the stream. The proxy refuses the client's stream likewise, and the client may
    /// repeat the request (RFC 9113, 8.7). Holds the termination for the log.
    Refused(Termination),
}

/// Returns the failure for lack of memory.
pub(super) fn no_memory() -> Failed {
    Failed::Answer(500, Termination::new(Cause::Resource, Phase::Headers))
}

/// Waits until a server has announced whether it accepts extended CONNECT, which it does when it is
/// connected.
async fn takes_protocols(
    local: &Local,
    backend: &Backend,
    client: &mut Client,
    permit: &ServerPermit,
    conn: &h2::Conn,
) -> Result<(), Failed> {
    let time = backend.timeouts.server.unwrap_or(SETTINGS_TIMEOUT).min(SETTINGS_TIMEOUT);
    let supported = pin!(poll_fn(|context| conn.poll_takes_protocols(context)));
    let supported = pin!(local.here().timeout(time, supported));
    let supported = server::waiting(backend, client, supported).await;
    let (status, cause) = match supported.map_err(|ended| Failed::Client(ended.phase))? {
        Ok(true) => return Ok(()),
        Ok(false) => (502, Cause::ServerLeft),
        Err(_) => (504, Cause::ServerSilent),
    };
    permit.parties().response_error();
    Err(Failed::Answer(status, Termination::new(cause, Phase::Headers)))
}

/// Returns the key under which the connection of a request is shared; `None` if it serves one client only.
fn shared_key(purpose: &Cell<Option<Purpose>>) -> Option<u64> {
    purpose.get().and_then(Purpose::shared_key)
}

impl Stream<'_> {
    /// Tries until a server responds.
    pub(super) async fn tries(&mut self, request: &mut Request, backend: &Backend, up: &mut Pump) -> After {
        let mut tried = Tried { most: self.scopes.memory.retries.get(), ..Tried::default() };
        let kept = backend
            .http
            .retry_on
            .replays()
            .then(|| Kept::new(self.local.generation.process.bufsize, request.body));
        loop {
            let outcome = self.one_try(request, backend, &mut tried, up, kept.as_ref()).await;
            match outcome {
                Ok(after) => return after,
                Err(failed @ (Failed::Again { persistent } | Failed::TooEarly { persistent })) => {
                    if let Failed::TooEarly { .. } = failed
                        && let Err(not) = self.await_handshake().await
                    {
                        if let NoBody::Left(_) = not {
                            self.client_left(backend, Phase::Headers); // a server had the request
                            return After::Close;
                        }
                        return self.no_body(&request.head, not).await;
                    }
                    if let Some((_, index)) = *self.last {
                        tried.again(backend, index, persistent);
                    }
                }
                Err(Failed::Answer(status, ended)) => {
                    let by_server =
                        matches!(ended.cause, Cause::ServerLeft | Cause::ServerSilent | Cause::Refused);
                    if by_server && matches!(status, 502 | 504) && ended.phase != Phase::Connect {
                        self.parties().server_failed();
                    }
                    let bodyless = self.ends_behind(up);
                    return self.fail(&request.head, status, ended, bodyless).await;
                }
                Err(Failed::Ruled(end, answer)) => {
                    if end == End::Denied {
                        self.response_denied(backend);
                    }
                    let cause = if end == End::Denied { Cause::Refused } else { Cause::Local };
                    self.note(|record| record.ended = Termination::new(cause, Phase::Headers));
                    let bodyless = self.ends_behind(up);
                    return self.give(&request.head, answer, bodyless).await;
                }
                Err(Failed::Closed) => return After::Close,
                Err(Failed::Unanswered) => {
                    self.record.take(); // not logged: only the client knows how its request ends
                    if !up.is_done() {
                        self.send_last(&mut Chain::new()).await; // a reset would mean something else
                    }
                    return After::Close;
                }
                Err(Failed::Silent(ended)) => {
                    self.note(|record| record.ended = ended);
                    self.parties().unanswered();
                    return After::Close;
                }
                Err(Failed::Refused(ended)) => {
                    self.note(|record| record.ended = ended);
                    self.parties().server_failed();
                    self.parties().unanswered();
                    if let Some(end) = self.client.end.h2() {
                        end.reset(h2::Reason::REFUSED_STREAM);
                    }
                    return After::Close;
                }
                Err(Failed::Client(phase)) => {
                    self.client_left(backend, phase);
                    return After::Close;
                }
            }
        }
    }

    /// Begins HTTP/2 on a new connection to a server; with a key, other requests share the connection. On
    /// failure, returns the status of the response.
    async fn speak_http2(
        &self,
        request: &Request,
        backend: &Backend,
        permit: &ServerPermit,
        key: Option<u64>,
        slot: Option<ConnSlot>, // before `connection`, so that it is freed after that has closed
        connection: Connection,
    ) -> Result<ServerEnd, u16> {
        if let Some(how) = permit.server().header_within() {
            let phase = EvalPhase { server: Some(permit.server()), ..self.phase(&request.head) };
            let header = server::header(how, permit.server(), self.client, &self.eval(), phase);
            let mut out = Chain::new();
            header.map_err(|_| 500_u16).and_then(|header| out.append(&header).map_err(|_| 500))?;
            connection.send(&mut out).await.map_err(|_| 503_u16)?;
        }
        let conn = self.local.share(backend, permit.index(), key, connection, slot).map_err(|_| 500_u16)?;
        Ok(ServerEnd::stream_of(conn))
    }

    /// Like [`ends_soon`](Self::ends_soon). A body of which a server may have received a part must have been
    /// read completely.
    fn ends_behind(&mut self, up: &mut Pump) -> bool {
        if self.gone.get() { up.is_done() } else { self.ends_soon(up) }
    }

    /// Makes one attempt with one server.
    async fn one_try(
        &mut self,
        request: &mut Request,
        backend: &Backend,
        tried: &mut Tried,
        up: &mut Pump,
        kept: Option<&Kept>,
    ) -> Result<After, Failed> {
        let (local, scopes) = (self.local, self.scopes);
        // A client that resets its streams at once must not keep servers busy.
        if self.client.end.h2().is_some_and(H2End::is_gone) {
            return Err(Failed::Client(Phase::Connect));
        }
        let first = self.requests == 0;
        // For HAProxy, no request of HTTP/2 is the first of its client. Here that holds only if the proxy
        // retries the request when an idle connection turns out to be closed; others would get a 502.
        let counts_as_first = first
            && !(self.client.end.h2().is_some()
                && self.method.is_idempotent()
                && matches!(request.body, Body::None | Body::Length(0))
                && tried.most(backend) > 0);
        let anew = tried.retries > 0; // other idle connections may be as old as the one that failed
        let wanted = self.wanted(request, up, backend);
        let Wanted { persistent, packets, server: wanted_server, .. } = wanted;
        let memory = &scopes.memory;
        let phase = self.phase(&request.head);
        let names = if backend.pool_names.is_empty() {
            Default::default()
        } else {
            self.eval().pool_names(phase, backend)
        };
        let head = &request.head;
        let websocket = is_websocket(request);
        let is_http2 = move |server: &Server| if websocket { server.http2_websocket } else { server.http2 };
        let early = self.may_send_early(request, backend, tried);
        let redirects = matches!(self.method, Method::Get | Method::Head);
        let private = &mut *self.private;
        let purpose = Cell::new(None);
        let authenticated = Cell::new(false);
        let mut idle_pool = |permit: &ServerPermit, client: &Client| {
            if redirects && permit.server().redirect.is_some() {
                return IdleConn::Redirect;
            }
            let this = server::pool_key(permit.server(), client, Some(head), packets, &names)
                .map(|key| Purpose::new(backend, permit.index(), key));
            purpose.set(this);
            if anew {
                return IdleConn::Nothing;
            }
            let key = shared_key(&purpose);
            let only_http2 = is_http2(permit.server());
            let may_http2 = only_http2 || !websocket && permit.server().offers_h2();
            if may_http2
                && let shared @ IdleConn::Shared(_) =
                    take_shared(local, backend, key, counts_as_first, permit)
            {
                return shared;
            }
            let may_serve = |end: &PrivateEnd| match end {
                PrivateEnd::Http1(_) => !only_http2,
                PrivateEnd::Http2(_) => may_http2,
            };
            match private.take(this, may_serve) {
                Some((PrivateEnd::Http1(idle), is_authenticated)) => {
                    authenticated.set(is_authenticated);
                    IdleConn::This(idle)
                }
                Some((PrivateEnd::Http2(conn), _)) => {
                    conn.upgrade().map_or(IdleConn::Nothing, IdleConn::Shared)
                }
                None if only_http2 => IdleConn::Nothing,
                None => take_idle(local, backend, key, counts_as_first, permit),
            }
        };
        let had = self.client.received.len();
        let mut timings = ConnectTimings::new(local.here().now());
        // The wait is here and not in `connect`: each request that waited polls again through all futures
        // above the wait.
        let admitted = match tried.last {
            Some(_) => Ok(None), // the choice of the server depends on the last attempt
            None => match ServerPermit::at_once(local, backend, &wanted) {
                Some(permit) => Ok(Some(permit)),
                None => {
                    let entered =
                        pin!(server::enter(local, backend, self.client, &wanted, self.timer, &mut timings))
                            .await;
                    timings.queued = local.here().now().since(timings.since);
                    entered.map(Some)
                }
            },
        };
        let attempt = match admitted {
            Err(ended) => Err(NotReached { ended, server: None, timings }),
            Ok(permit) => {
                let at_once =
                    permit.map(|permit| server::at_once(self.client, permit, timings, &mut idle_pool));
                match at_once.transpose() {
                    Ok(Some(attempt)) => Ok(attempt),
                    left => {
                        let permit = left.err();
                        let (names_wanted, headers) = {
                            // Like `eval`, which would borrow the whole stream.
                            let eval = EvalContext {
                                local,
                                frontend: self.frontend,
                                listener: self.listener,
                                peers: self.client.peers(),
                                greeting: self.client.greeting(),
                                tls: self.client.tls().map(|info| &**info),
                                first_request: first,
                                http: true,
                                scopes: self.scopes,
                                course: Some(&self.record),
                            };
                            let headers = server::headers_before_tls(backend, self.client, &eval, phase);
                            (eval.server_names(phase, backend), headers)
                        };
                        let wanted = Wanted {
                            names: &names_wanted,
                            headers: Some(&headers),
                            memory: Some(memory),
                            early,
                            websocket,
                            ..wanted
                        };
                        pin!(server::connect(
                            local,
                            backend,
                            self.client,
                            wanted,
                            tried,
                            permit,
                            timings,
                            self.timer,
                            idle_pool
                        ))
                        .await
                    }
                }
            }
        };
        let Attempt { permit, mut slot, end, reused, timings } = match attempt {
            Ok(attempt) => attempt,
            Err(failed) => {
                if let Some(index) = failed.server {
                    self.server.set(Some(index));
                    server::remember_address(local, &backend.servers[index.get()], memory);
                }
                self.note(|record| {
                    record.not_reached(&failed);
                    record.server = failed.server.or(record.server);
                });
                let ended = failed.ended;
                if ended.cause == Cause::Local
                    && let Some(prefix) =
                        failed.server.and_then(|index| backend.servers[index.get()].redirect.as_ref())
                {
                    let answer = manylane_rules::to_server(prefix, &request.head)
                        .map_err(|_| Failed::Answer(500, ended))?;
                    let bodyless = self.ends_behind(up);
                    self.note(|record| record.ended = ended);
                    return Ok(self.give(&request.head, answer, bodyless).await);
                }
                let left = ended.cause == Cause::ClientLeft;
                return Err(if left { Failed::Client(ended.phase) } else { Failed::Answer(503, ended) });
            }
        };
        let index = permit.index();
        let speaks_http2 = |connection: &Connection| {
            if permit.server().selects_by_alpn() {
                reused.is_none() && server::has_agreed_on_h2(connection)
            } else {
                is_http2(permit.server())
            }
        };
        let end = match end {
            ServerEnd::Http1(connection) if speaks_http2(&connection) => {
                let shared = shared_key(&purpose);
                let begins =
                    pin!(self.speak_http2(request, backend, &permit, shared, slot.take(), connection));
                begins.await.map_err(|status| {
                    Failed::Answer(status, Termination::new(Cause::ServerLeft, Phase::Connect))
                })?
            }
            end => end,
        };
        if request.connection.upgrade
            && !matches!(request.body, Body::None | Body::Length(0))
            && matches!(end, ServerEnd::Http2(..))
        {
            // A stream of HTTP/2 that becomes a tunnel has no body before that: nothing is offered.
            set_connection(&mut request.head, request.connection, Persist::KeepAlive)
                .map_err(|_| no_memory())?;
            request.connection.upgrade = false;
        }
        if request.connection.upgrade
            && let ServerEnd::Http2(conn, _) = &end
        {
            let takes = takes_protocols(local, backend, self.client, &permit, conn).await;
            if takes.is_err() {
                // No other request finds a connection that has begun no stream.
                let unfindable = conn.begun() == 0 || shared_key(&purpose).is_none();
                local.release_shared(backend, index, conn, unfindable);
            }
            takes?;
        }
        // As if the client had the right cookie: a rule will choose the same server again.
        self.persistence.right =
            self.persistence.cookie.server == Some(index) || persistent && wanted_server == Some(index);
        *self.last = Some((backend.number, index));
        self.server.set(Some(index));
        memory.reached_server.set(true);
        memory.server_reused.set(reused.is_some());
        self.sends_early = reused.is_none() && end.connection().tls().is_some_and(TlsStream::is_unfinished);
        memory.server_h2.set(matches!(end, ServerEnd::Http2(..)));
        server::remember_link(local, end.connection(), memory);
        if let ServerEnd::Http2(conn, _) = &end
            && local.generation.reads_connections
        {
            memory.links.set_back(BackLink::Http2(conn.clone()));
        }
        permit.reached(&timings);
        // While the proxy watched for the client to leave, the client may have sent more.
        self.receives(self.client.received.len() - had);
        self.note(|record| {
            record.timings(timings);
            record.server = Some(index);
        });
        self.log_step(LogStep::Connect);
        // Bytes received from the client belong to the upload while it runs.
        let mut received = Chain::new();
        if !self.client.received.is_empty() {
            std::mem::swap(&mut received, &mut self.client.received);
        }
        let attempt = Attempt { end, permit, reused, slot, timings };
        let budget = RetryBudget {
            left: tried.retries < tried.most(backend) && !self.scopes.memory.no_repetition.get(),
            again: tried.retries > 0,
            persistent,
            kept,
            authenticated: &authenticated,
        };
        // The client's handshake may have ended while the request waited for a server.
        if !self.sends_early {
            self.untell_early(&mut request.head);
        }
        let mut watched = Watched::default();
        let outcome = self.served(request, backend, &attempt, &mut received, &mut watched, up, budget).await;
        let Attempt { end, reused, permit, slot, timings: _ } = attempt;
        // The permit is dropped last: by then the slot is free or with an idle connection, and the stream
        // that gets the permit next can take it.
        let (_permit, slot) = (slot.is_some().then_some(permit), slot);
        let connection = match end {
            ServerEnd::Http1(connection) => Some(connection),
            ServerEnd::Http2(conn, stream) => {
                if local.generation.reads_connections
                    && let Some(code) = stream.get().and_then(|stream| stream.peer_reset())
                {
                    self.scopes.memory.links.set_reset(Side::Server, code);
                }
                drop(stream); // dropping a stream resets it, unless it has ended
                let unfindable = shared_key(&purpose).is_none();
                let again = || {
                    let server = &backend.servers[index.get()];
                    outcome.is_ok() && conn.can_begin() && server.allows_reuse(conn.begun())
                };
                match purpose.get().filter(|_| unfindable && again()) {
                    Some(purpose) => {
                        let most = self.frontend.http.most_private;
                        self.private.put(purpose, PrivateEnd::Http2(conn.downgrade()), false, most);
                    }
                    None => local.release_shared(backend, index, &conn, unfindable),
                }
                None
            }
        };
        if let Some(connection) = &connection
            && !matches!(outcome, Ok(Outcome { whole: true, .. }))
        {
            connection.reset_on_close(); // the server might take the part of a body for the whole
        }
        if let Some(segment) = watched.received {
            self.receives(segment.len());
            if received.push_compact(segment).is_err() {
                return Ok(After::Close); // there is no memory, and bytes of the client are lost
            }
        }
        if !received.is_empty() {
            self.client.received = received;
        }
        let Outcome { after, linger, again, whole: _ } = outcome?;
        if linger {
            // The client may still be sending, and has to read the response.
            self.send_last(&mut Chain::new()).await;
        }
        if again
            && let Some(connection) = connection
            && let Some(purpose) = purpose.get()
        {
            let idle = Idle { connection, served: reused.unwrap_or(0) + 1, slot };
            let authenticated = authenticated.get();
            match purpose.shared_key().filter(|_| !authenticated) {
                Some(key) => local.keep(backend, index, key, idle),
                None => {
                    let most = self.frontend.http.most_private;
                    self.private.put(purpose, PrivateEnd::Http1(idle), authenticated, most);
                }
            }
        }
        Ok(after)
    }
}
