//! One request and its response.
//!
//! The proxy forwards the request's body while it waits for the response and while it forwards the response:
//! a server may respond before it has read the whole body. The client receives nothing before the head of the
//! response has arrived, so until then the proxy can retry or make a response of its own.

use super::body::{NoBody, data};
use super::edit;
use super::pump::Pump;
use super::stream::Stream;
use manylane_config::table::Ruleset;
use manylane_config::tree::{LogStep, Mode};
use manylane_h1::{
    Body, From, Persist, Request, has_close_option, restrict_names, restrict_te, set_connection,
};
use manylane_http::{EditError, Form, Head, Method, Version};
use manylane_lanes::Parties;
use manylane_plan::Side;
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, CloseMode, End, Forwarded, Http, Rules};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{Answer, EvalPhase, any_holds, chosen_backend, forward};
use manylane_sync::atomic::Ordering;

/// How a request ends that the proxy refuses before a server gets it.
const REFUSED: Termination = Termination::new(Cause::Refused, Phase::Request);

/// Whether the client's connection stays open behind a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
}

impl<'s> Stream<'s> {
    /// Returns the pump that reads a request's body.
    pub(super) fn body_of(&self, request: &Request) -> Pump {
        let http = &self.frontend.http;
        let mut up = Pump::new(
            self.client.end.body(),
            request.body,
            request.body,
            From::Client,
            http.request_limits,
            http.drop_request_trailers || request.connection.names_fields,
        );
        up.wait_for_continue(request.continue_expected && request.head.version() >= Version::HTTP_11);
        up
    }

    /// Forwards a request and its response: runs the stages of the frontend, of the backend that it chooses,
    /// and then tries servers. If the connection stays open and `up` has not read the whole body, the caller
    /// skips the rest.
    pub(super) async fn run(&mut self, request: &mut Request, up: &mut Pump) -> After {
        let (local, frontend) = (self.local, self.frontend);
        self.version = request.head.version();
        self.method = request.head.method_kind();
        self.upgrade = request.connection.upgrade || self.method == Method::Connect;
        let persists = request.connection.persists(self.version) && !self.ends();
        self.keep = persists && frontend.http.close != CloseMode::Both;
        // `option httpclose` of the backend decides about the server's connection.
        if frontend.http.close == CloseMode::Server {
            self.mode = CloseMode::Server;
        }
        if self.switched.is_none() && self.logs_step(LogStep::Accept) {
            // As in HAProxy, the line at this step has the status 0.
            self.note(|record| record.status = Some(0));
            self.log_now(LogStep::Accept);
            self.note(|record| record.status = None);
        }
        self.begin(&request.head);
        if local.generation.reads_connections && self.client.end.h2().is_none() {
            let id = u32::try_from(self.requests).unwrap_or(u32::MAX);
            self.scopes.memory.links.set_id(Side::Client, id);
        }
        let rules = &*frontend.rules;
        if self.reads_invalid(rules, up) {
            return self.fail(&request.head, 400, REFUSED, false).await;
        }
        if let Some(switched) = &self.switched {
            // The rules for contents ran before the connection changed to HTTP.
            if let Some(number) = switched.backend {
                self.enter(&local.generation.backends[number], request, up);
            }
        } else if !rules.content.is_empty()
            && let Some(after) = self.ruled(request, up, Ruleset::TcpRequestContent, &rules.content).await
        {
            return after;
        }
        self.log_step(LogStep::Request);
        self.parties().request_accepted();
        if frontend.http.monitor.as_deref().is_some_and(|uri| is_monitored(&request.head, uri)) {
            self.record.take(); // monitoring requests are not logged
            self.parties().intercepted();
            let fails = any_holds(&self.eval(), self.phase(&request.head), &rules.monitor_fail);
            let bodyless = self.ends_soon(up);
            return self.answer(&request.head, if fails { 503 } else { 200 }, bodyless).await;
        }
        if frontend.http.asks_for_passwords
            && let Err(cause) = self.finds_out(&request.head).await
        {
            return self.unknown_password(request, up, cause).await;
        }
        if frontend.http.buffer_request
            && let Err(not) = self.await_body(request, up, frontend.timeouts.request, 0).await
        {
            if let NoBody::Left(_) = not {
                // For the log, as in HAProxy: it notices only after this choice that the client has left.
                let backend = self.chosen(request, up);
                self.note(|record| (record.backend, record.status) = (backend, Some(400)));
            }
            return self.no_body(&request.head, not).await;
        }
        if let Some(after) = self.decide(rules, &frontend.http, request, up).await {
            return after;
        }
        if self.backend.is_none()
            && let Some(number) = self.chosen(request, up)
        {
            self.enter(&local.generation.backends[number], request, up);
        }
        if self.backend.map_or(frontend.mode, |backend| backend.mode) != Mode::Http {
            return self.misrouted();
        }
        let Some(backend) = self.backend else {
            let bodyless = self.ends_soon(up);
            let ended = Termination::new(Cause::ServerLeft, Phase::Connect);
            return self.fail(&request.head, 503, ended, bodyless).await;
        };
        let listens = std::ptr::eq(&*backend.rules, rules);
        if self.reads_invalid(&backend.rules, up) {
            return self.fail(&request.head, 400, REFUSED, false).await;
        }
        if backend.http.buffer_request
            && !frontend.http.buffer_request
            && let Err(not) = self.await_body(request, up, backend.timeouts.request, 0).await
        {
            if let NoBody::Left(_) = not {
                self.note(|record| record.status = Some(400));
            }
            return self.no_body(&request.head, not).await;
        }
        if !listens {
            let content = &backend.rules.content;
            if !content.is_empty()
                && let Some(after) = self.ruled(request, up, Ruleset::TcpRequestContent, content).await
            {
                return after;
            }
            if backend.http.asks_for_passwords
                && let Err(cause) = self.finds_out(&request.head).await
            {
                return self.unknown_password(request, up, cause).await;
            }
            if let Some(after) = self.decide(&backend.rules, &backend.http, request, up).await {
                return after;
            }
        }
        if self.prepare(request, backend, up).is_err() {
            let bodyless = self.ends_soon(up);
            return self.fail(&request.head, 400, REFUSED, bodyless).await;
        }
        let after = self.tries(request, backend, up).await;
        if let Some(relaxed) = up.take_relaxed() {
            self.accept_relaxed_request(&relaxed);
        }
        after
    }

    /// Reads the part of the body that has arrived, if the rules of a proxy read it. Returns true if it is
    /// invalid.
    fn reads_invalid(&mut self, rules: &Rules, up: &mut Pump) -> bool {
        if !rules.reads_data {
            return false;
        }
        let read = up.read_ahead(self.client.end.body(), &mut self.client.received);
        read.inspect_err(|broken| self.keep_broken(broken)).is_err()
    }

    /// Runs the rules of a proxy, and serves its statistics page. Returns `None` if the request continues.
    async fn decide(
        &mut self,
        rules: &Rules,
        http: &Http,
        request: &mut Request,
        up: &mut Pump,
    ) -> Option<After> {
        if !rules.request.is_empty()
            && let Some(after) = self.ruled(request, up, Ruleset::HttpRequest, &rules.request).await
        {
            return Some(after);
        }
        if self.tell_early(&mut request.head).is_err() {
            let bodyless = self.ends_soon(up);
            return Some(self.fail(&request.head, 500, REFUSED, bodyless).await);
        }
        if !restrict_names(&mut request.head, http.names) {
            let bodyless = self.ends_soon(up);
            return Some(self.decided(&request.head, End::Denied, Answer::Usual(403), bodyless).await);
        }
        match http.stats_at(&request.head) {
            Some(page) => Some(self.statistics(request, up, page).await),
            None => None,
        }
    }

    /// Ends a request whose password could not be checked.
    async fn unknown_password(&mut self, request: &Request, up: &mut Pump, cause: Cause) -> After {
        let bodyless = self.ends_soon(up);
        self.fail(&request.head, 503, Termination::new(cause, Phase::Request), bodyless).await
    }

    /// Ends a request whose backend is in TCP mode, as a frontend in TCP mode without a backend counts: as in
    /// HAProxy, the client gets no answer, and the frontend counts 500.
    #[cold]
    fn misrouted(&self) -> After {
        Parties { backend: None, ..self.parties() }.responds(500);
        self.note(|record| {
            (record.status, record.request) = (Some(500), None);
            record.ended = Termination::new(Cause::Internal, Phase::Request);
        });
        After::Close
    }

    /// Enters the backend that the frontend has chosen.
    fn enter(&mut self, backend: &'s Backend, request: &Request, up: &mut Pump) {
        if backend.id != self.frontend.id {
            self.scopes.memory.leave_frontend();
        }
        self.note(|record| record.backend = Some(backend.number));
        if let Some(stream) = &self.streaming {
            stream.goes_to(backend.number);
        }
        self.backend = Some(backend);
        self.persist(request, up, backend);
        // Only the frontend decides about the client's connection.
        self.mode = self.mode.max(backend.http.close);
        self.entered.set(Some(self.local.here().now()));
        self.parties().backend_entered();
        self.parties().backend_request();
        if backend.http.drop_request_trailers {
            up.drop_trailers();
        }
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
        let phase = EvalPhase { request_data, ..self.phase(&request.head) };
        chosen_backend(self.frontend, &self.eval(), phase)
    }

    /// Ends a request whose body did not arrive.
    pub(super) async fn no_body(&mut self, head: &Head, not: NoBody) -> After {
        let ended = |cause| Termination::new(cause, Phase::Request);
        match not {
            NoBody::Late => {
                self.note(|record| record.request = None); // its time includes the body's
                self.fail(head, 408, ended(Cause::ClientSilent), false).await
            }
            NoBody::Left(cause) => {
                self.note(|record| record.ended = ended(cause));
                self.parties().request_error();
                After::Close
            }
            NoBody::Wrong(status) => self.fail(head, status, ended(Cause::Refused), false).await,
            NoBody::Ended(cause) => self.fail(head, 503, ended(cause), false).await,
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
    fn prepare(&mut self, request: &mut Request, backend: &Backend, up: &Pump) -> Result<(), EditError> {
        self.untell_early(&mut request.head);
        self.persistence.ruled = self.by_rule(request, up, backend);
        let head = &mut request.head;
        if let Some(cookie) = &backend.http.cookie {
            self.persistence.cookie = edit::persist_cookie(head, cookie, backend, now().seconds);
            self.note(|record| record.cookies = [self.cookie_letter(backend, None), b'N']);
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
        self.stick(request, up, backend);
        let head = &mut request.head;
        restrict_te(head)?;
        let server_closes =
            self.mode >= CloseMode::Server && !backend.http.pretend_keep_alive || has_close_option(head);
        let persist = match (self.upgrade, server_closes) {
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
