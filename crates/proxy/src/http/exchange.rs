//! One request and its response.
//!
//! The proxy forwards the request's body while it waits for the response and while it forwards the response:
//! a server may respond before it has read the whole body. The client receives nothing before the head of the
//! response has arrived, so until then the proxy can retry or make a response of its own.

use super::Session;
use super::body::{NoBody, data};
use super::edit::{self, PersistCookie};
use super::pump::Pump;
use super::websocket;
use crate::count::count_in_front;
use crate::rules::{
    Answer, Content, EvalPhase, Lookups, Stores, any_holds, chosen_backend, content, forward,
};
use crate::scopes::Countable;
use manylane_balance::{Index, Key};
use manylane_config::tree::LogStep;
use manylane_h1::{Body, From, Persist, Request, restrict_names, restrict_te, set_connection};
use manylane_http::{EditError, Form, Head, Method, Version};
use manylane_plan::Side;
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, CloseMode, ContentAction, End, Forwarded, Rule};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sync::atomic::Ordering;
use std::cell::Cell;
use std::pin::pin;

/// Whether the client's connection stays open behind a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
}

/// State of a request while its response is made.
pub(super) struct Asking {
    pub(super) version: Version,
    pub(super) method: Method,
    pub(super) upgrade: bool,
    /// The client's connection may stay open.
    pub(super) keep: bool,
    pub(super) mode: CloseMode,
    pub(super) told: PersistCookie,
    /// The request went to the server that its cookie names.
    pub(super) right: bool,
    /// The key that the balancing algorithm took from the body; a retry no longer has the body.
    pub(super) key: Cell<Option<Key<'static>>>,
    /// The server of the last attempt.
    pub(super) server: Cell<Option<Index>>,
    /// The request has been sent to a server. From then on formats of the proxy's own responses do not see
    /// it, as in HAProxy.
    pub(super) gone: Cell<bool>,
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
    /// The key by which a server of HTTP/1 accepts a WebSocket; a client of HTTP/2 does not have one.
    pub(super) websocket: Cell<Option<websocket::Key>>,
}

/// Request and backend that a response of the proxy's own is about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) backend: Option<&'a Backend>,
    pub(super) head: &'a Head,
}

impl Session<'_> {
    /// Returns the pump that reads a request's body.
    pub(super) fn body_of(&self, request: &Request) -> Pump {
        let http = &self.frontend.http;
        let mut up = Pump::new(
            self.client.end.body(),
            request.body,
            request.body,
            From::Client,
            http.request_limits,
            http.drop_request_trailers,
        );
        up.wait_for_continue(request.continue_expected && request.head.version() >= Version::HTTP_11);
        up
    }

    /// Forwards a request and its response. If the connection stays open and `up` has not read the whole
    /// body, the caller skips the rest.
    pub(super) async fn exchange(&mut self, request: &mut Request, up: &mut Pump) -> After {
        let frontend = self.frontend;
        let version = request.head.version();
        let method = request.head.method_kind();
        let persists = request.connection.persists(version) && !self.ends();
        let none = Termination::new(Cause::ServerLeft, Phase::Connect);
        let mut asking = Asking {
            version,
            method,
            upgrade: request.connection.upgrade || method == Method::Connect,
            keep: persists && frontend.http.close != CloseMode::Both,
            // `option httpclose` of the backend decides about the server's connection.
            mode: if frontend.http.close == CloseMode::Server {
                CloseMode::Server
            } else {
                CloseMode::KeepAlive
            },
            told: PersistCookie::default(),
            right: false,
            key: Cell::new(None),
            server: Cell::new(None),
            gone: Cell::new(false),
            ruled: None,
            stuck: None,
            stores: Stores::default(),
            forced: false,
            ignored: false,
            websocket: Cell::new(None),
        };
        if self.logs_step(LogStep::Accept) {
            // As in HAProxy, the line at this step has the status 0.
            self.note(|record| record.status = Some(0));
            self.log_now(LogStep::Accept);
            self.note(|record| record.status = None);
        }
        self.begin(&request.head);
        if self.local.generation.reads_connections && self.client.end.h2().is_none() {
            let id = u32::try_from(self.requests).unwrap_or(u32::MAX);
            self.scopes.memory.links.set_id(Side::Client, id);
        }
        let rules = &*frontend.rules;
        if rules.reads_data
            && let Err(broken) = up.read_ahead(self.client.end.body(), &mut self.client.received)
        {
            self.keep_broken(&broken, None);
            return self
                .fail(
                    &asking,
                    About { backend: None, head: &request.head },
                    400,
                    Termination::new(Cause::Refused, Phase::Request),
                    false,
                )
                .await;
        }
        if !self.contents(&rules.content, None, request, up).await {
            return After::Close;
        }
        self.log_step(LogStep::Request);
        self.count_in_tables(Countable::Request);
        if frontend.http.monitor.as_deref().is_some_and(|uri| is_monitored(&request.head, uri)) {
            self.record.take(); // monitoring requests are not logged
            frontend.counts.own().intercepted.add(1);
            let phase = EvalPhase { request: Some(&request.head), ..EvalPhase::default() };
            let fails = any_holds(&self.eval(), phase, &rules.monitor_fail);
            let bodyless = self.ends_soon(up);
            return self
                .answer(
                    &asking,
                    About { backend: None, head: &request.head },
                    if fails { 503 } else { 200 },
                    bodyless,
                )
                .await;
        }
        if frontend.http.asks_for_passwords
            && let Err(cause) = self.finds_out(&request.head).await
        {
            let bodyless = self.ends_soon(up);
            return self
                .fail(
                    &asking,
                    About { backend: None, head: &request.head },
                    503,
                    Termination::new(cause, Phase::Request),
                    bodyless,
                )
                .await;
        }
        if frontend.http.buffer_request
            && let Err(not) = self.await_body(request, up, None, frontend.timeouts.request, 0).await
        {
            if let NoBody::Left(_) = not {
                // As HAProxy, which sees later that the client has left.
                let backend = self.chosen(request, up);
                self.note(|record| (record.backend, record.status) = (backend, Some(400)));
            }
            return self.no_body(&asking, About { backend: None, head: &request.head }, not).await;
        }
        if !rules.request.is_empty()
            && let Some(after) = self.ruled(&asking, request, up, None, &rules.request).await
        {
            return after;
        }
        if !restrict_names(&mut request.head, frontend.http.names) {
            let bodyless = self.ends_soon(up);
            let about = About { backend: None, head: &request.head };
            return self.decided(&asking, about, End::Denied, Answer::Usual(403), bodyless).await;
        }
        if let Some(page) = frontend.http.stats_at(&request.head) {
            return self.statistics(&asking, request, up, None, page).await;
        }
        let chosen = self.chosen(request, up);
        let Some(backend) = chosen.map(|number| &self.local.generation.backends[number]) else {
            let bodyless = self.ends_soon(up);
            return self
                .fail(&asking, About { backend: None, head: &request.head }, 503, none, bodyless)
                .await;
        };
        if backend.id != frontend.id {
            self.scopes.memory.leave_frontend();
        }
        self.note(|record| record.backend = Some(backend.number));
        if let Some(stream) = &self.stream {
            stream.goes_to(backend.number);
        }
        self.persist(request, up, &mut asking, backend);
        // Only the frontend decides about the client's connection.
        asking.mode = asking.mode.max(backend.http.close);
        let counts = backend.counts.own();
        self.entered.set(Some((backend.number, self.local.here().now())));
        counts.begin();
        counts.requests.add(1);
        let refused = Termination::new(Cause::Refused, Phase::Request);
        if backend.http.drop_request_trailers {
            up.drop_trailers();
        }
        let listens = std::ptr::eq(&*backend.rules, rules);
        if backend.rules.reads_data
            && let Err(broken) = up.read_ahead(self.client.end.body(), &mut self.client.received)
        {
            self.keep_broken(&broken, Some(backend));
            self.leave(backend);
            return self
                .fail(&asking, About { backend: Some(backend), head: &request.head }, 400, refused, false)
                .await;
        }
        if backend.http.buffer_request
            && !frontend.http.buffer_request
            && let Err(not) = self.await_body(request, up, Some(backend), backend.timeouts.request, 0).await
        {
            if let NoBody::Left(_) = not {
                self.note(|record| record.status = Some(400));
            }
            self.leave(backend);
            return self.no_body(&asking, About { backend: Some(backend), head: &request.head }, not).await;
        }
        if !listens && !self.contents(&backend.rules.content, Some(backend), request, up).await {
            self.leave(backend);
            return After::Close;
        }
        if !listens
            && backend.http.asks_for_passwords
            && let Err(cause) = self.finds_out(&request.head).await
        {
            self.leave(backend);
            let ended = Termination::new(cause, Phase::Request);
            let bodyless = self.ends_soon(up);
            return self
                .fail(&asking, About { backend: Some(backend), head: &request.head }, 503, ended, bodyless)
                .await;
        }
        let ruled = if !listens && !backend.rules.request.is_empty() {
            self.ruled(&asking, request, up, Some(backend), &backend.rules.request).await
        } else {
            None
        };
        let after = if let Some(after) = ruled {
            after
        } else if !listens && !restrict_names(&mut request.head, backend.http.names) {
            let bodyless = self.ends_soon(up);
            let about = About { backend: Some(backend), head: &request.head };
            self.decided(&asking, about, End::Denied, Answer::Usual(403), bodyless).await
        } else if let Some(page) = backend.http.stats_at(&request.head) {
            self.statistics(&asking, request, up, Some(backend), page).await
        } else if self.prepare(request, &mut asking, backend, up).is_err() {
            let bodyless = self.ends_soon(up);
            self.fail(&asking, About { backend: Some(backend), head: &request.head }, 400, refused, bodyless)
                .await
        } else {
            let after = self.tries(request, &mut asking, backend, up).await;
            if let Some(relaxed) = up.take_relaxed() {
                self.accept_relaxed_request(&relaxed, Some(backend));
            }
            after
        };
        self.leave(backend);
        after
    }

    /// Returns the number of the backend that the frontend chooses.
    #[inline]
    fn chosen(&self, request: &Request, up: &Pump) -> Option<usize> {
        let rules = &self.frontend.rules;
        if rules.use_backend.is_empty() && rules.force_switch.is_empty() {
            let backends = &self.local.generation.backends;
            let takes = |number: &usize| backends[*number].published.load(Ordering::Relaxed);
            return self.frontend.default_backend.filter(takes);
        }
        let request_data = data(request, up);
        let phase = EvalPhase { request: Some(&request.head), request_data, ..EvalPhase::default() };
        chosen_backend(self.frontend, &self.eval(), phase)
    }

    /// Runs rules for contents on a request. Returns true if the request continues.
    async fn contents(
        &mut self,
        rules: &[Rule<ContentAction>],
        backend: Option<&Backend>,
        request: &Request,
        up: &Pump,
    ) -> bool {
        if rules.is_empty() {
            return true;
        }
        let request_data = data(request, up);
        let phase = EvalPhase { request: Some(&request.head), request_data, backend, ..EvalPhase::default() };
        let lookups = Lookups::default();
        let decided = loop {
            let eval = self.eval();
            let decided = content(&eval, phase, rules, &|| self.log_now(LogStep::TcpReqCont), &lookups);
            if decided != Content::LookUp {
                break decided;
            }
            if let Err(cause) = self.unless_ended(pin!(lookups.look_up(&eval, phase))).await {
                self.note(|record| record.ended = Termination::new(cause, Phase::Request));
                return false;
            }
        };
        self.mark();
        if !matches!(decided, Content::Reject | Content::Drop(_)) {
            self.readdress();
            return true;
        }
        match decided {
            Content::Drop(silence) => self.client.vanish(silence),
            _ if self.client.end.h2().is_some() => self.client.swallow(),
            _ => {} // the client's data stays unread, so that closing the socket sends a reset
        }
        self.note(|record| {
            record.ended = Termination::new(Cause::Refused, Phase::Request);
            record.request = None;
            if backend.is_none() {
                self.scopes.memory.forget(); // the request was refused before it counted as one
            }
        });
        count_in_front!(self.frontend, self.listener, requests_denied);
        if let Some(backend) = backend {
            backend.counts.own().requests_denied.add(1);
        }
        false
    }

    /// Ends a request whose body did not arrive.
    pub(super) async fn no_body(&mut self, asking: &Asking, about: About<'_>, not: NoBody) -> After {
        let ended = |cause| Termination::new(cause, Phase::Request);
        match not {
            NoBody::Late => {
                self.note(|record| record.request = None); // its time includes the body's
                self.fail(asking, about, 408, ended(Cause::ClientSilent), false).await
            }
            NoBody::Left(cause) => {
                self.note(|record| record.ended = ended(cause));
                count_in_front!(self.frontend, self.listener, request_errors);
                After::Close
            }
            NoBody::Wrong(status) => self.fail(asking, about, status, ended(Cause::Refused), false).await,
            NoBody::Ended(cause) => self.fail(asking, about, 503, ended(cause), false).await,
        }
    }

    /// `option forwarded`
    #[inline(never)] // most proxies do without it
    fn forward(
        &self,
        how: &Forwarded,
        request: &mut Request,
        up: &Pump,
        backend: &Backend,
    ) -> Result<(), EditError> {
        let request_data = data(request, up);
        let phase = EvalPhase { backend: Some(backend), request_data, ..EvalPhase::default() };
        forward(how, &self.eval(), phase, &mut request.head)
    }

    /// Makes the changes that every request needs, whichever server it goes to.
    fn prepare(
        &self,
        request: &mut Request,
        asking: &mut Asking,
        backend: &Backend,
        up: &Pump,
    ) -> Result<(), EditError> {
        asking.ruled = self.by_rule(request, asking, up, backend);
        let head = &mut request.head;
        if let Some(cookie) = &backend.http.cookie {
            asking.told = edit::told(head, cookie, backend, now().seconds);
            // The log's letters for the cookie until a server responds.
            let obeyed = |named| backend.balancer.servers()[named].state().serves_its_own();
            let usual = match (asking.told.there, asking.told.server) {
                (false, _) => b'N',
                (true, _) if asking.ignored || asking.ruled.is_some() => b'U',
                (true, None) => b'I',
                (true, Some(named)) => {
                    if obeyed(named) {
                        b'V'
                    } else {
                        b'D'
                    }
                }
            };
            self.note(|record| record.cookies = [asking.told.late.unwrap_or(usual), b'N']);
            edit::hide(head, cookie)?;
        }
        if request.body == Body::Chunked && head.version() < Version::HTTP_11 {
            head.set_version(Version::HTTP_11)?; // a server of HTTP/1.0 might not expect chunks
        }
        if let Some(how) = &backend.http.forwarded {
            self.forward(how, request, up, backend)?;
        }
        let head = &mut request.head;
        edit::addresses(head, self.frontend, backend, self.client.source, || self.client.destination())?;
        self.identify(head)?;
        self.stick(request, asking, up, backend);
        let head = &mut request.head;
        restrict_te(head)?;
        let server_closes = asking.mode >= CloseMode::Server && !backend.http.pretend_keep_alive;
        let persist = match (asking.upgrade, server_closes) {
            (true, _) => Persist::Upgrade,
            (false, true) => Persist::Close,
            (false, false) => Persist::KeepAlive,
        };
        set_connection(head, request.connection, persist)
    }
}

/// Returns true if a request is for `monitor-uri`. A URI that begins with a slash is compared with path and
/// query, also those of an absolute target.
pub(super) fn is_monitored(head: &Head, uri: &[u8]) -> bool {
    let target = head.target();
    match head.target_parts() {
        manylane_http::Target { form: Form::Absolute, path: Some(path), .. } if uri.starts_with(b"/") => {
            let at = path.as_ptr().addr() - target.as_ptr().addr();
            &target[at..] == uri
        }
        _ => target == uri,
    }
}
