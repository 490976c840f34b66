//! One request and its response.
//!
//! The request's body goes up while the response is waited for and while it comes down: a server may answer before it has read
//! everything. Nothing is sent to the client before the response's head is there, so until then another try or an answer of the proxy's
//! own is possible.

use super::body::{NoBody, data};
use super::cacheable::gives_cookie_away;
use super::pump::{Broken, Ends, Kept, Pump, flush, send, send_last};
use super::look::{Incoming, Look};
use super::{Session, count_status, edit};
use crate::flow::{Patience, Waits, Watch, Way};
use crate::invalid::Found;
use crate::generation::{Backend, CloseMode, ContentAction, Reuse, Rule, Server, Target};
use crate::rules::{Lookups, Answer, Content, End, Moment, any_holds, content, key};
use crate::run::{Idle, Local, Seen, observe};
use crate::session::{Client, now};
use crate::server::{self, Attempt, Hold, Shelved, Tried, Wanted};
use crate::tcp::Pair;
use crate::termination::{Cause, Phase, Termination};
use edit::Told;
use manylane_balance::{Index, Key, Priority};
use manylane_buf::{Chain, Segment};
use manylane_h1::{
    Asked, Body, BodyReader, BodyWriter, From, Persist, Progress, Reader, Request, Response, ResponseParser, frame_for,
    restrict_names, restrict_te, set_body, set_connection, settle_request, settle_response,
};
use manylane_http::{EditError, Head, Method, Version};
use manylane_io::READ_AT_ONCE;
use manylane_logs::Level;
use manylane_net::{Connection, Packets};
use manylane_sched::{Here, Time};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
}

/// What is known of a request while its response is made.
pub(super) struct Asking {
    pub(super) version: Version,
    pub(super) method: Method,
    upgrade: bool,
    /// The client's connection may go on.
    pub(super) keep: bool,
    mode: CloseMode,
    told: Told,
    /// The server that the cookie names is the one.
    right: bool,
    /// What the algorithm was given of the body, which is gone at the next try.
    key: Cell<Option<Key<'static>>>,
    /// The server of the last try.
    pub(super) server: Cell<Option<Index>>,
    /// The request went to a server: formats of answers do not see it any more, as in HAProxy.
    pub(super) gone: Cell<bool>,
    /// The server that a rule chooses; then no cookie does.
    ruled: Option<Index>,
    /// `force-persist`: that server is taken though it is down.
    pub(super) forced: bool,
    /// `ignore-persist`: that server is not looked at.
    pub(super) ignored: bool,
}

/// What an answer of the program's own is about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) backend: Option<&'a Backend>,
    pub(super) head: &'a Head,
}

/// What is left to try.
#[derive(Clone, Copy)]
struct Chances<'a> {
    /// There may be another try.
    left: bool,
    /// This is not the first.
    again: bool,
    /// A cookie or a rule wants this server.
    persistent: bool,
    /// What was sent of the body.
    kept: Option<&'a Kept>,
}

/// How a response was passed on.
enum Ended {
    /// As a message.
    Message { complete: bool, sent_all: bool, server_persists: bool, persist: Persist },
    /// As the beginning of a tunnel; its head is still to be sent.
    Tunnel(Chain),
}

/// What is left of a request that was answered by a server.
struct Outcome {
    after: After,
    /// The client may still be sending.
    linger: bool,
    /// The server's connection, if it can serve again.
    idle: Option<Idle>,
}

impl Outcome {
    const CLOSE: Self = Self { after: After::Close, linger: false, idle: None };
}

/// Why there is no response of a server.
pub(super) enum Failed {
    /// The client has to be told, or not: the status, and how it ended.
    Answer(u16, Termination),
    /// It is tried again: nothing reached the client, and all that was sent is still here.
    Again { persistent: bool },
    /// The client is gone, and what was done for it then.
    Client(Phase),
    /// A rule has another answer than the server's.
    Ruled(End, Answer),
    /// A rule closes the connection.
    Closed,
    /// A rule refuses the response, and the client gets nothing: what the line says of it.
    Refused(Phase),
}

impl Session<'_> {
    /// Forwards a request and its response.
    pub(super) async fn exchange(&mut self, request: &mut Request) -> After {
        let frontend = self.frontend;
        let version = request.head.version();
        let method = request.head.method_kind();
        let persists = request.connection.persists(version) && !self.ends();
        let none = Termination::new(Cause::ServerLeft, Phase::Connect);
        let mut bodyless = matches!(request.body, Body::None | Body::Length(0));
        let mut up =
            Pump::new(request.body, request.body, From::Client, frontend.http.request_limits, frontend.http.drop_request_trailers);
        let mut asking = Asking {
            version,
            method,
            upgrade: request.connection.upgrade || method == Method::Connect,
            keep: persists && frontend.http.close != CloseMode::Both,
            mode: frontend.http.close,
            told: Told::default(),
            right: false,
            key: Cell::new(None),
            server: Cell::new(None),
            gone: Cell::new(false),
            ruled: None,
            forced: false,
            ignored: false,
        };
        self.begin(&request.head);
        let rules = &*frontend.rules;
        if rules.reads_data && let Err(broken) = up.read_ahead(&mut self.client.received) {
            self.keep_broken(&broken, None);
            return self.fail(&asking, About { backend: None, head: &request.head }, 400, Termination::new(Cause::Refused, Phase::Request), false).await;
        }
        if !self.contents(&rules.content, None, request, &up) {
            return After::Close;
        }
        if frontend.http.monitor.as_deref().is_some_and(|uri| request.head.target() == uri) {
            self.record.take(); // it is not logged
            frontend.counts.own().intercepted.add(1);
            let moment = Moment { request: Some(&request.head), ..Moment::default() };
            let fails = any_holds(&self.facts(), moment, &rules.monitor_fail);
            return self.answer(&asking, About { backend: None, head: &request.head }, if fails { 503 } else { 200 }, bodyless).await;
        }
        if frontend.http.asks_for_passwords && !self.finds_out(&request.head).await {
            return self.fail(&asking, About { backend: None, head: &request.head }, 503, Termination::new(Cause::Resource, Phase::Request), bodyless).await;
        }
        if frontend.http.buffer_request {
            if let Err(not) = self.await_body(request, &mut up, None, frontend.timeouts.request, 0).await {
                return self.no_body(&asking, About { backend: None, head: &request.head }, not).await;
            }
            bodyless = up.is_done();
        }
        if !rules.request.is_empty() {
            if let Some(after) = self.ruled(&asking, request, &mut up, None, &rules.request).await {
                return after;
            }
            bodyless = up.is_done();
        }
        if let Some(page) = frontend.http.stats_at(request.head.target()) {
            return self.statistics(&asking, About { backend: None, head: &request.head }, page, bodyless).await;
        }
        let chosen = if rules.use_backend.is_empty() {
            None
        } else {
            let request_data = data(request, &up);
            let moment = Moment { request: Some(&request.head), request_data, ..Moment::default() };
            Target::backend(&rules.use_backend, &self.facts(), moment)
        };
        let Some(backend) =
            chosen.or(frontend.default_backend).map(|number| &self.local.generation.backends[number])
        else {
            return self.fail(&asking, About { backend: None, head: &request.head }, 503, none, bodyless).await;
        };
        self.note(|record| record.backend = Some(backend.number));
        self.persist(request, &up, &mut asking, backend);
        asking.mode = asking.mode.max(backend.http.close); // the client's connection is for its frontend alone to say
        let counts = backend.counts.own();
        let begun = self.local.here().now();
        counts.begin();
        counts.requests.add(1);
        let refused = Termination::new(Cause::Refused, Phase::Request);
        if backend.http.drop_request_trailers {
            up.drop_trailers();
        }
        let listens = std::ptr::eq(&*backend.rules, rules);
        if backend.rules.reads_data && let Err(broken) = up.read_ahead(&mut self.client.received) {
            self.keep_broken(&broken, Some(backend));
            self.leave(backend, begun);
            return self.fail(&asking, About { backend: Some(backend), head: &request.head }, 400, refused, false).await;
        }
        if backend.http.buffer_request && !frontend.http.buffer_request {
            if let Err(not) = self.await_body(request, &mut up, Some(backend), backend.timeouts.request, 0).await {
                self.leave(backend, begun);
                return self.no_body(&asking, About { backend: Some(backend), head: &request.head }, not).await;
            }
            bodyless = up.is_done();
        }
        if !listens && !self.contents(&backend.rules.content, Some(backend), request, &up) {
            self.leave(backend, begun);
            return After::Close;
        }
        let fine = restrict_names(&mut request.head, frontend.http.names)
            && restrict_names(&mut request.head, backend.http.names);
        if !listens && backend.http.asks_for_passwords && !self.finds_out(&request.head).await {
            self.leave(backend, begun);
            let ended = Termination::new(Cause::Resource, Phase::Request);
            return self.fail(&asking, About { backend: Some(backend), head: &request.head }, 503, ended, bodyless).await;
        }
        let ruled = if !listens && !backend.rules.request.is_empty() {
            let after = self.ruled(&asking, request, &mut up, Some(backend), &backend.rules.request).await;
            bodyless = up.is_done();
            after
        } else {
            None
        };
        let after = if let Some(after) = ruled {
            after
        } else if !fine {
            self.fail(&asking, About { backend: Some(backend), head: &request.head }, 403, refused, bodyless).await
        } else if let Some(page) = backend.http.stats_at(request.head.target()) {
            self.statistics(&asking, About { backend: Some(backend), head: &request.head }, page, bodyless).await
        } else if self.prepare(request, &mut asking, backend, &up).is_err() {
            self.fail(&asking, About { backend: Some(backend), head: &request.head }, 400, refused, bodyless).await
        } else {
            self.tries(request, &mut asking, backend, &mut up).await
        };
        self.leave(backend, begun);
        after
    }

    /// For `show errors`: what is wrong with a request's body.
    pub(super) fn keep_request(&self, found: &Found, backend: Option<&Backend>) {
        self.frontend.invalid.keep(found, self.client.source, |invalid| {
            invalid.other = backend.map(|backend| (backend.name.clone(), backend.id));
        });
    }

    /// The same, if it is its framing.
    fn keep_broken(&self, broken: &Broken, backend: Option<&Backend>) {
        if let Broken::Framing(found) = broken {
            self.keep_request(found, backend);
        }
    }

    /// For `show errors`: what is wrong with a response, or its body.
    pub(super) fn keep_response(&self, found: &Found, backend: &Backend, server: &Server) {
        let frontend = self.frontend;
        backend.invalid.keep(found, self.client.source, |invalid| {
            invalid.other = Some((frontend.name.clone(), frontend.id));
            invalid.server = Some((server.name.clone(), server.id));
        });
    }

    /// The server of this backend that was reached last.
    pub(super) fn last_server<'b>(&self, backend: &'b Backend) -> Option<&'b Server> {
        let (number, index) = self.last?;
        (number == backend.number).then(|| &backend.servers[index.get()])
    }

    /// A request leaves a backend, where it has been since then.
    fn leave(&self, backend: &Backend, begun: Time) {
        let unsent = self.unsent.get();
        if unsent > 0 {
            backend.counts.own().bytes_in.add(unsent);
        }
        backend.counts.own().end(self.local.here().now().since(begun));
    }

    /// Has rules for contents look at a request, which is there. Whether it goes on.
    fn contents(&mut self, rules: &[Rule<ContentAction>], backend: Option<&Backend>, request: &Request, up: &Pump) -> bool {
        if rules.is_empty() {
            return true;
        }
        let request_data = data(request, up);
        let moment = Moment { request: Some(&request.head), request_data, backend, ..Moment::default() };
        let decided = content(&self.facts(), moment, rules, &|| self.log_now(), &Lookups::default());
        self.mark();
        if !matches!(decided, Content::Reject | Content::Drop) {
            self.readdress();
            return true;
        }
        if decided == Content::Drop {
            self.client.vanish();
        }
        self.note(|record| {
            record.ended = Termination::new(Cause::Refused, Phase::Request);
            record.request = None;
            if backend.is_none() {
                self.scopes.memory.forget(); // it was refused before it counted as one
            }
        });
        self.frontend.counts.own().requests_denied.add(1);
        if let Some(backend) = backend {
            backend.counts.own().requests_denied.add(1);
        }
        false
    }

    /// Answers a request whose body did not come.
    pub(super) async fn no_body(&mut self, asking: &Asking, about: About<'_>, not: NoBody) -> After {
        let ended = |cause| Termination::new(cause, Phase::Request);
        match not {
            NoBody::Late => {
                self.note(|record| record.request = None); // the body belongs to what was waited for
                self.fail(asking, about, 408, ended(Cause::ClientSilent), false).await
            }
            NoBody::Left => {
                self.note(|record| record.ended = ended(Cause::ClientLeft));
                self.frontend.counts.own().request_errors.add(1);
                After::Close
            }
            NoBody::Wrong(status) => self.fail(asking, about, status, ended(Cause::Refused), false).await,
        }
    }

    /// What is changed in a request wherever it goes.
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
            // What the line says of cookies as long as no server answers.
            let obeyed = |named| backend.balancer.servers()[named].state().serves_its_own();
            let usual = match (asking.told.there, asking.told.server) {
                (false, _) => b'N',
                (true, _) if asking.ignored || asking.ruled.is_some() => b'U',
                (true, None) => b'I',
                (true, Some(named)) => if obeyed(named) { b'V' } else { b'D' },
            };
            self.note(|record| record.cookies = [asking.told.late.unwrap_or(usual), b'N']);
            edit::hide(head, cookie)?;
        }
        edit::addresses(head, self.frontend, backend, &self.client)?;
        self.identify(head)?;
        restrict_te(head)?;
        let server_closes = asking.mode >= CloseMode::Server && !backend.http.pretend_keep_alive;
        let persist = match (asking.upgrade, server_closes) {
            (true, _) => Persist::Upgrade,
            (false, true) => Persist::Close,
            (false, false) => Persist::KeepAlive,
        };
        set_connection(head, request.connection, persist)
    }

    /// Tries until a server answers.
    async fn tries(&mut self, request: &mut Request, asking: &mut Asking, backend: &Backend, up: &mut Pump) -> After {
        let mut tried = Tried { most: self.scopes.memory.retries.get(), ..Tried::default() };
        let kept = backend.http.retry_on.replays().then(|| {
            Kept::new(self.local.generation.process.bufsize, request.body)
        });
        loop {
            let outcome = self.one_try(request, asking, backend, &mut tried, up, kept.as_ref()).await;
            // A body that is still coming stands before the next request.
            let bodyless = up.is_done();
            match outcome {
                Ok(after) => return after,
                Err(Failed::Again { persistent }) => {
                    if let Some((_, index)) = self.last {
                        tried.again(backend, index, persistent);
                    }
                }
                Err(Failed::Answer(status, ended)) => {
                    return self.fail(asking, About { backend: Some(backend), head: &request.head }, status, ended, bodyless).await;
                }
                Err(Failed::Ruled(end, answer)) => {
                    if end == End::Denied {
                        self.frontend.counts.own().responses_denied.add(1);
                        backend.counts.own().responses_denied.add(1);
                        if let Some(server) = self.last_server(backend) {
                            server.counts.own().responses_denied.add(1);
                        }
                    }
                    let cause = if end == End::Denied { Cause::Refused } else { Cause::Local };
                    self.note(|record| {
                        record.ended = Termination::new(cause, Phase::Headers);
                        record.response = None;
                    });
                    return self.give(asking, About { backend: Some(backend), head: &request.head }, answer, bodyless).await;
                }
                Err(Failed::Closed) => return After::Close,
                Err(Failed::Refused(phase)) => {
                    self.note(|record| record.ended = Termination::new(Cause::Refused, phase));
                    self.frontend.counts.own().responses_denied.add(1);
                    backend.counts.own().responses_denied.add(1);
                    if let Some(server) = self.last_server(backend) {
                        server.counts.own().responses_denied.add(1);
                    }
                    return After::Close;
                }
                Err(Failed::Client(phase)) => {
                    backend.counts.own().client_aborts.add(1);
                    if matches!(phase, Phase::Headers | Phase::Data)
                        && let Some(server) = self.last_server(backend)
                    {
                        server.counts.own().client_aborts.add(1);
                    }
                    self.note(|record| record.ended = Termination::new(Cause::ClientLeft, phase));
                    self.frontend.counts.own().request_errors.add(1);
                    return After::Close;
                }
            }
        }
    }

    /// The server that `use-server` chooses.
    fn by_rule(&self, request: &Request, asking: &Asking, up: &Pump, backend: &Backend) -> Option<Index> {
        if backend.rules.use_server.is_empty() {
            return None;
        }
        let request_data = data(request, up);
        let moment = Moment { request: Some(&request.head), request_data, backend: Some(backend), ..Moment::default() };
        let obeyed = backend.http.persist || asking.forced;
        Target::server(&backend.rules.use_server, &self.facts(), moment, backend.balancer.servers(), obeyed)
    }

    /// Which server the request goes to.
    fn wanted<'k>(&self, request: &'k Request, up: &Pump, asking: &Asking, backend: &Backend) -> Wanted<'k> {
        let head = &request.head;
        let servers = backend.balancer.servers();
        let serves = |index: &Index| servers[*index].state().serves_its_own();
        let obeyed = backend.http.persist || asking.forced;
        let by_cookie = asking.told.server.filter(|index| !asking.ignored && (obeyed || serves(index)));
        let by_habit = self
            .last
            .filter(|(number, _)| backend.http.prefer_last && !backend.balancer.algorithm().goes_by_key() && *number == backend.number)
            .map(|(_, index)| index)
            .filter(serves)
            .filter(|index| backend.http.keep_queue.is_none_or(|most| backend.balancer.has_room(*index) || backend.balancer.waiting(*index) < most));
        let persistent = asking.ruled.or(by_cookie);
        Wanted {
            key: self.balanced_by(request, up, asking, backend),
            server: persistent.or(by_habit).or(backend.of_client),
            avoid: None,
            persistent: persistent.is_some(),
            priority: Priority {
                class: self.scopes.memory.priority_class.get(),
                offset: self.scopes.memory.priority_offset.get(),
            },
            packets: self.scopes.memory.server_packets.get(),
            head: Some(head),
        }
    }

    /// What the algorithm is given.
    fn balanced_by<'k>(&self, request: &'k Request, up: &Pump, asking: &Asking, backend: &Backend) -> Key<'k> {
        if let Some(key) = asking.key.get() {
            return key;
        }
        let keep = |key| {
            asking.key.set(Some(key));
            key
        };
        if backend.key.is_expression() {
            let request_data = data(request, up);
            let moment =
                Moment { request: Some(&request.head), request_data, backend: Some(backend), ..Moment::default() };
            return keep(key(&self.facts(), moment, backend));
        }
        match backend.key.of_request(self.client.source, &request.head) {
            Key::None if backend.key.wants_body() && request.head.method_kind() == Method::Post => {
                keep(backend.key.of_body(backend.balancer.algorithm().hash_function(), up.data()))
            }
            key => key,
        }
    }

    /// A connection that may serve: the session's own, or one from the lane's shelf.
    fn take_idle(
        local: &Local,
        backend: &Backend,
        private: Option<(usize, Index, Idle)>,
        key: Option<u64>,
        first: bool,
        hold: &Hold,
    ) -> Shelved {
        let index = hold.index();
        if let Some((number, server, idle)) = private
            && number == backend.number
            && server == index
            && idle.is_quiet()
        {
            return Shelved::This(idle);
        }
        let least = match (backend.http.reuse, first) {
            (Reuse::Never, _) | (Reuse::Safe, true) => return Shelved::Nothing,
            (Reuse::Aggressive, true) => 2,
            (Reuse::Always, _) | (_, false) => 0,
        };
        let Some(key) = key else { return Shelved::Nothing };
        match local.take_kept(backend, index, key, least) {
            Some(idle) => Shelved::This(idle),
            None => Shelved::Elsewhere { key, least },
        }
    }

    /// One try with one server.
    async fn one_try(
        &mut self,
        request: &mut Request,
        asking: &mut Asking,
        backend: &Backend,
        tried: &mut Tried,
        up: &mut Pump,
        kept: Option<&Kept>,
    ) -> Result<After, Failed> {
        let local = self.local;
        let first = self.requests == 0 || tried.retries > 0;
        let wanted = self.wanted(request, up, asking, backend);
        let Wanted { persistent, packets, server: wanted_server, .. } = wanted;
        // A rule for this request says whose it is, or where it goes: the session's own connection is of the others.
        let memory = &self.scopes.memory;
        let readdressed = memory.source.get().is_some() || memory.destination.get().is_some();
        let names = if backend.pool_names.is_empty() {
            Default::default()
        } else {
            let moment = Moment { request: Some(&request.head), backend: Some(backend), ..Moment::default() };
            self.facts().pool_names(moment, backend)
        };
        let head = &request.head;
        let redirects = matches!(asking.method, Method::Get | Method::Head);
        let private = &mut self.private;
        let mut shelf = |hold: &Hold, client: &Client| {
            if redirects && hold.server().redirect.is_some() {
                return Shelved::Redirect;
            }
            let key = Local::key(hold.server(), client, Some(head), packets, &names);
            let private = private.take().filter(|_| packets == Packets::default() && !readdressed);
            Self::take_idle(local, backend, private, key, first, hold)
        };
        let at_once = match tried.last {
            None => server::at_once(local, backend, &self.client, &wanted, &mut shelf),
            Some(_) => Err(None),
        };
        let attempt = match at_once {
            Ok(attempt) => Ok(attempt),
            Err(hold) => server::connect(local, backend, &mut self.client, wanted, tried, hold, shelf).await,
        };
        let Attempt { connection, hold, reused, pains } = match attempt {
            Ok(attempt) => attempt,
            Err(failed) => {
                if let Some(index) = failed.server {
                    asking.server.set(Some(index));
                    server::remember_place(local, &backend.servers[index.get()], memory);
                }
                self.note(|record| {
                    record.not_reached(&failed);
                    record.server = failed.server.or(record.server);
                });
                let ended = failed.ended;
                if ended.cause == Cause::Local
                    && let Some(prefix) = failed.server.and_then(|index| backend.servers[index.get()].redirect.as_ref())
                {
                    asking.keep = false;
                    let answer = crate::rules::to_server(prefix, &request.head).map_err(|_| Failed::Answer(500, ended))?;
                    return Ok(self.redirect(asking, About { backend: Some(backend), head: &request.head }, answer, ended, up.is_done()).await);
                }
                let left = ended.cause == Cause::ClientLeft;
                return Err(if left { Failed::Client(ended.phase) } else { Failed::Answer(503, ended) });
            }
        };
        let index = hold.index();
        // As if it had the right cookie: a rule will choose the same server again.
        asking.right = asking.told.server == Some(index) || persistent && wanted_server == Some(index);
        self.last = Some((backend.number, index));
        asking.server.set(Some(index));
        server::remember_link(local, &connection, memory);
        backend.counts.own().reached(&pains);
        hold.server().counts.own().reached(&pains);
        self.note(|record| {
            record.pains(pains);
            record.server = Some(index);
        });
        // The bytes that were received of the client belong to the way up, as long as it lasts.
        let mut received = Chain::new();
        if !self.client.received.is_empty() {
            std::mem::swap(&mut received, &mut self.client.received);
        }
        let attempt = Attempt { connection, hold, reused, pains };
        let chances = Chances { left: tried.retries < tried.most(backend) && !self.scopes.memory.no_repetition.get(), again: tried.retries > 0, persistent, kept };
        let mut watched = Watched::default();
        let outcome = self.served(request, asking, backend, attempt, &mut received, &mut watched, up, chances).await;
        if let Some(segment) = watched.received
            && received.push_back(segment).is_err()
        {
            return Ok(After::Close); // no memory, and bytes of the client are lost
        }
        if !received.is_empty() {
            self.client.received = received;
        }
        let Outcome { after, linger, idle } = outcome?;
        if linger {
            self.send_last(&mut Chain::new()).await; // the server answered early: let the client read that
        }
        if let Some(idle) = idle {
            let key = Local::key(&backend.servers[index.get()], &self.client, Some(&request.head), packets, &names);
            match key.filter(|_| backend.http.reuse != Reuse::Never) {
                Some(key) => local.keep(backend, index, key, idle),
                None if packets != Packets::default() || readdressed => {} // the next request's may be others
                None if backend.servers[index.get()].tells_of_requests() => {}
                None if !self.frontend.http.keeps_own => {}
                None => self.private = Some((backend.number, index, idle)),
            }
        }
        Ok(after)
    }

    /// The request goes to a server that was reached, and its response comes back.
    #[allow(clippy::too_many_arguments)] // all that belongs to one try
    async fn served(
        &self,
        request: &mut Request,
        asking: &Asking,
        backend: &Backend,
        attempt: Attempt,
        received: &mut Chain,
        watched: &mut Watched,
        up: &mut Pump,
        chances: Chances<'_>,
    ) -> Result<Outcome, Failed> {
        let local = self.local;
        let Attempt { connection, hold, reused, pains: _ } = attempt;
        let index = hold.index();
        let mut out = Chain::new();
        let memory = || Failed::Answer(500, Termination::new(Cause::Resource, Phase::Headers));
        if reused.is_none()
            && let Some(how) = hold.server().header
        {
            let moment = Moment { request: Some(&request.head), backend: Some(backend), server: Some(hold.server()), ..Moment::default() };
            let header = server::header(how, hold.server(), &self.client, &self.facts(), moment).map_err(|_| memory())?;
            out.append(&header).map_err(|_| memory())?;
        }
        if let Some(name) = backend.http.send_name.as_ref().filter(|_| !hold.server().stands_in) {
            request.head.set_field(&**name, hold.server().name.as_bytes()).map_err(|_| memory())?;
        }
        if request.head.is_reframed() {
            let Some(framed) = settle_request(&mut request.head, request.body).map_err(|_| memory())? else {
                let _ = up.read_ahead(received); // who sent all of it may go on; what is wrong with it ends the connection anyway
                return Err(Failed::Answer(500, Termination::new(Cause::Internal, Phase::Headers)));
            };
            up.reframe(framed).map_err(|_| memory())?;
        }
        let spellings = self.local.generation.spellings.as_ref().filter(|_| backend.http.spells);
        request.head.emit(&mut out, spellings).map_err(|_| memory())?;
        asking.gone.set(true);
        self.unsent.set(0);
        // What was sent again is not counted twice.
        let resent = Cell::new(0);
        if chances.again {
            if let Some(kept) = chances.kept {
                kept.again(&mut out).map_err(|_| memory())?;
            }
            resent.set(out.len() as u64);
        }
        let on = &backend.http.retry_on;
        // What the server was asked is what its response goes by; a tunnel only where the client asked for one.
        let method = match request.head.method_kind() {
            Method::Connect => asking.method,
            method => method,
        };
        let stale = reused.is_some() && method.is_idempotent();
        let bodyless = matches!(request.body, Body::None | Body::Length(0));
        let watch = Watch::new(self.patience(backend), local.here().now());
        watch.up.excuse(request.continue_expected && asking.version >= Version::HTTP_11);
        let splicing = self.splicing(backend);
        let begun = local.here().now();
        let mut from_server = Chain::new();
        let client = &self.client.connection;
        let count = |up: u64, down: u64| {
            let before = resent.get().min(up);
            resent.set(resent.get() - before);
            self.count(backend, Some(index), up - before, down);
        };
        let ended = {
        let up_ends =
            Ends { io: &local.io, way: &watch.up, from: client, to: &connection, splice: splicing.up, kept: chances.kept };
        let mut going_up = Going { work: pin!(up.run(&up_ends, received, &mut out, |n| count(n, 0))), outcome: None };

        let asked = Asked { method, upgrade: asking.upgrade };
        let limits = backend.http.response_limits;
        let mut response = None; // a large value, which is put where it stays
        let head = {
            let reading = pin!(async {
                watch.down.waits(Waits::Sender, local.here().now());
                let parser = ResponseParser::new(limits);
                receive(&connection, &mut from_server, parser, asked, (client, &watch.up, local.here()), asking.version, &mut response).await
            });
            let leaving = backend.common.abort_on_close.then_some(Leaving::Closed);
            let stays = going_up.while_there(reading, client, watched, leaving);
            watch.over(&self.timer, &hold, pin!(stays)).await
        };
        let server_failed = |cause: Cause| {
            backend.counts.own().response_errors.add(1);
            backend.servers[index.get()].counts.own().response_errors.add(1);
            Termination::new(cause, Phase::Headers)
        };
        // Nothing has reached the client yet, so it may be tried again as long as all that was sent is here.
        let again = |wanted: bool| {
            let repeatable = bodyless || chances.kept.is_some_and(Kept::is_whole);
            wanted && chances.left && repeatable
        };
        let or_again = |wanted: bool, status: u16, ended: Termination| {
            if again(wanted) { Failed::Again { persistent: chances.persistent } } else { Failed::Answer(status, ended) }
        };
        let response: &mut Response = match head {
            Ok(Ok(Ok(()))) => response.as_mut().ok_or_else(memory)?, // it is there
            Ok(Ok(Err(NoHead::Nothing))) => {
                if reused.is_none() {
                    observe(local, backend, index, Seen::Closed); // else it was closed for its age
                }
                return Err(or_again(on.empty || stale && bodyless, 502, server_failed(Cause::ServerLeft)));
            }
            Ok(Ok(Err(NoHead::Cut))) => {
                observe(local, backend, index, Seen::Closed);
                // The manual has it with junk, HAProxy with empty ones.
                return Err(or_again(on.junk || on.empty, 502, server_failed(Cause::ServerLeft)));
            }
            Ok(Ok(Err(NoHead::Junk(error)))) => {
                self.keep_response(&Found::new(&from_server, error), backend, hold.server());
                let status = error.status;
                observe(local, backend, index, Seen::BadHead);
                return Err(or_again(on.junk, status, server_failed(Cause::Refused)));
            }
            Ok(Ok(Err(NoHead::Memory))) => return Err(memory()),
            Ok(Ok(Err(NoHead::Client))) => {
                return Err(Failed::Client(Phase::Headers));
            }
            Ok(Err(Broken::Framing(found))) => {
                self.keep_request(&found, Some(backend));
                return Err(Failed::Answer(found.error.status, Termination::new(Cause::Refused, Phase::Data)));
            }
            Ok(Err(Broken::Memory)) => return Err(memory()),
            Ok(Err(Broken::Receiver)) => {
                // It may be that it has closed its side only.
                return Err(Failed::Answer(400, Termination::new(Cause::ClientLeft, Phase::Headers)));
            }
            Ok(Err(Broken::Sender)) => {
                return Err(Failed::Client(Phase::Data)); // amid its body
            }
            // HAProxy holds the client's silence against the server, whose time alone it waits for; so a client could get servers marked as
            // failing. The manual has it as here.
            Err(Cause::ClientSilent) => {
                return Err(Failed::Answer(408, Termination::new(Cause::ClientSilent, Phase::Headers)));
            }
            Err(cause) if cause.is_order() => return Err(Failed::Answer(502, Termination::new(cause, Phase::Headers))),
            Err(cause) => {
                observe(local, backend, index, Seen::Silent);
                return Err(or_again(on.timeout, 504, server_failed(cause)));
            }
        };
        observe(local, backend, index, Seen::Status(response.head.status()));
        if again(on.statuses.contains(&response.head.status())) {
            return Err(Failed::Again { persistent: chances.persistent });
        }
        let mut closes = false; // a rule wants the server's connection closed when the response was passed on
        if !backend.rules.response_content.is_empty() {
            let mut seen = Look::new(response.body, From::Server, limits);
            if backend.rules.reads_data {
                let _ = seen.begin(&from_server); // what is wrong with it is found again when it is forwarded
            }
            let moment = Moment {
                request: Some(&request.head),
                response: Some(&response.head),
                response_data: seen.data(),
                backend: Some(backend),
                server: Some(hold.server()),
                ..Moment::default()
            };
            let decided = content(&self.facts(), moment, &backend.rules.response_content, &|| self.log_now(), &Lookups::default());
            closes = decided == Content::Close;
            self.mark();
            if matches!(decided, Content::Reject | Content::Drop) {
                self.note(|record| record.status = Some(response.head.status()));
                if decided == Content::Drop {
                    self.client.vanish();
                    return Err(Failed::Refused(Phase::Request)); // of whatever message, in HAProxy's lines
                }
                return Err(Failed::Refused(Phase::Data));
            }
        }
        let here = local.here();
        let took = here.now().since(begun);
        backend.balancer.report(index, took, here.now());
        backend.counts.own().answered(took);
        hold.server().counts.own().answered(took);
        self.scopes.begin_response();
        self.note(|record| {
            record.response = Some(took);
            record.status = Some(response.head.status());
            if backend.http.cookie.is_some() {
                let usual = match (asking.told.there, asking.told.server) {
                    (false, _) => b'N',
                    (true, _) if asking.ignored || asking.ruled.is_some() => b'U',
                    (true, None) => b'I',
                    (true, Some(named))
                        if named == index && backend.balancer.servers()[index].state().serves_its_own() =>
                    {
                        b'V'
                    }
                    (true, Some(_)) => b'D',
                };
                record.cookies[0] = asking.told.late.unwrap_or(usual);
            }
        });

        // From here on the client sees what comes.
        let Response { head: response_head, body, connection: said } = response;
        let (body, said) = (*body, *said);
        let status = response_head.status();
        let answered_with = || count_status!(hold.server().counts.own(), status);
        let rules = [&backend.rules, &self.frontend.rules];
        let twice = std::ptr::eq(&*backend.rules, &*self.frontend.rules);
        let rules = rules.into_iter().take(if twice { 1 } else { 2 });
        self.scopes.memory.response.set(Some((response_head.version(), status)));
        self.scopes.memory.capture_response(&self.frontend.captures, response_head);
        for rules in rules.clone().filter(|rules| !rules.response.is_empty()) {
            let mut seen = Look::new(body, From::Server, limits);
            let incoming = Incoming { connection: &connection, input: &mut from_server, seen: &mut seen };
            let moment = Moment {
                request: Some(&request.head),
                backend: Some(backend),
                server: Some(hold.server()),
                ..Moment::default()
            };
            let ruling = self.response_ruled(moment, rules, response_head, incoming);
            match going_up.beside(pin!(ruling)).await {
                Ok(ruled) => {
                    if let Err(Failed::Ruled(..)) = ruled {
                        answered_with();
                    }
                    ruled?;
                }
                Err(Broken::Framing(found)) => {
                    self.keep_request(&found, Some(backend));
                    return Err(Failed::Answer(found.error.status, Termination::new(Cause::Refused, Phase::Data)));
                }
                Err(Broken::Memory) => return Err(memory()),
                Err(Broken::Sender | Broken::Receiver) => return Err(Failed::Client(Phase::Headers)),
            }
        }
        if backend.http.check_cache && gives_cookie_away(asking.method, response_head) {
            answered_with();
            let name = &hold.server().name;
            let line = format!("Blocking cacheable cookie in response from instance {}, server {name}.", backend.name);
            crate::run::say(local, backend, Level::Alert, &line);
            return Err(Failed::Ruled(End::Denied, Answer::Usual(502)));
        }
        let mut server_persists = said.persists(response_head.version())
            && !matches!(body, Body::UntilClose | Body::Tunnel)
            && asking.mode == CloseMode::KeepAlive
            && !closes
            && request.head.method_kind() != Method::Connect;
        // Who asked for a tunnel takes no length.
        let tunnels = asking.method != Method::Connect || body == Body::Tunnel;
        let wished = if asking.keep && tunnels { Persist::KeepAlive } else { Persist::Close };
        let (framed, mut persist) = frame_for(body, asking.version, wished);
        let edited = set_connection(response_head, said, persist)
            .and_then(|()| edit::keep_alive(response_head, asking.version, persist))
            .and_then(|()| set_body(response_head, body, framed))
            .and_then(|()| match &backend.http.cookie {
                Some(cookie) => {
                    let set = edit::keep(response_head, cookie, hold.server(), asking.told, asking.right, asking.method, asking.ignored, now().seconds)?;
                    self.note(|record| record.cookies[1] = set);
                    Ok(())
                }
                None => Ok(()),
            });
        let edited = edited.and_then(|()| {
            let moment = Moment {
                request: Some(&request.head),
                backend: Some(backend),
                server: Some(hold.server()),
                ..Moment::default()
            };
            self.afterwards(moment, rules, response_head)
        });
        let reader = Reader { version: asking.version, method: asking.method };
        let settled = edited.and_then(|()| {
            let touched = response_head.is_reframed() || asking.method != method;
            if touched { settle_response(response_head, framed, reader) } else { Ok(framed) }
        });
        let mut back = Chain::new();
        let spellings = self.local.generation.spellings.as_ref().filter(|_| self.frontend.http.spells);
        let settled = settled.and_then(|framed| response_head.emit(&mut back, spellings).map(|()| framed));
        let Ok(mut framed) = settled else { return Err(memory()) };
        let mut body = body;
        if framed != body {
            match (body, framed) {
                // A rule has made another answer of the one that agrees to the tunnel.
                (Body::Tunnel, _) => return Err(Failed::Answer(502, Termination::new(Cause::Refused, Phase::Headers))),
                (Body::None | Body::Length(0), Body::Chunked) => {
                    BodyWriter::new(framed).end(None, &mut back).map_err(|_| memory())?;
                    framed = body;
                }
                (Body::None | Body::Length(0), _) => framed = body,
                (_, Body::None) => {
                    // What the server sends has no reader any more: it is read here if it is there, else the connection ends.
                    let all = BodyReader::new(body, From::Server, limits).read(&mut from_server, &mut Chain::new());
                    server_persists &= matches!(all, Ok(Progress::Done(_)));
                    body = Body::None;
                }
                _ => {}
            }
        }
        if response_head.status() < 200 && body != Body::Tunnel {
            persist = Persist::Close; // rules have made it one that is followed by another, and there is none
        }
        // Rules may have changed it, and as long as nothing was sent it may become another answer.
        let shown = response_head.status();
        self.note(|record| record.status = Some(shown));
        let counted = Cell::new(false);
        let count_shown = || {
            if !counted.replace(true) {
                answered_with();
                count_status!(self.frontend.counts.own(), shown);
                count_status!(backend.counts.own(), shown);
            }
        };
        if self.frontend.log.as_ref().is_some_and(|log| log.early) {
            self.note(|record| record.down += back.len() as u64);
            self.log();
        }
        if body == Body::Tunnel {
            count_shown();
            // Without its request complete no protocol was agreed on.
            if going_up.outcome.is_some() { Ended::Tunnel(back) } else { return Ok(Outcome::CLOSE) }
        } else {
        let drop_trailers = self.frontend.http.drop_response_trailers;
        let down_ends = Ends { io: &local.io, way: &watch.down, from: &connection, to: client, splice: splicing.down, kept: None };
        let whole = framed == body && take_whole(body, &mut from_server, &mut back).map_err(|_| memory())?;
        let goes_on = persist == Persist::KeepAlive;
        let told = Cell::new(0);
        let ended = if whole {
            count_shown();
            let sending = pin!(async {
                match goes_on {
                    true => send(&down_ends, &mut back, |n| count(0, n)).await,
                    false => send_last(&down_ends, &mut back, |n| count(0, n)).await,
                }
            });
            watch.over(&self.timer, &hold, pin!(going_up.beside(sending))).await
        } else {
            let mut down = Pump::new(body, framed, From::Server, limits, drop_trailers);
            let sending = pin!(async {
                let sent = |n| {
                    told.set(told.get() + n);
                    count_shown();
                    count(0, n);
                };
                down.run(&down_ends, &mut from_server, &mut back, sent).await?;
                if goes_on { Ok(()) } else { flush(&down_ends).await } // the connection is closed behind it
            });
            let stays = going_up.while_there(sending, client, watched, Some(Leaving::Reset));
            watch.over(&self.timer, &hold, pin!(stays)).await
        };
        match &ended {
            Ok(Ok(Err(Broken::Framing(found)))) => self.keep_response(found, backend, hold.server()),
            Ok(Err(Broken::Framing(found))) => self.keep_request(found, Some(backend)),
            _ => {}
        }
        // Nothing of it has reached the client, so it can still be told.
        if let Ok(Ok(Err(Broken::Framing(_)))) = ended
            && told.get() == 0
        {
            self.note(|record| record.response = None);
            return Err(Failed::Answer(502, server_failed(Cause::Refused)));
        }
        count_shown();
        let complete = matches!(ended, Ok(Ok(Ok(()))));
        // A server that answered early may go on reading: what is left of the body is its own, as long as it is there and did not say that it leaves.
        let rest = match &going_up.outcome {
            None if complete && server_persists => {
                let mut leaving = pin!(connection.recv());
                let rest = pin!(poll_fn(|context| match going_up.poll_end(context) {
                    Poll::Ready(()) => Poll::Ready(()),
                    Poll::Pending => leaving.as_mut().poll(context).map(drop),
                }));
                watch.over(&self.timer, &hold, rest).await
            }
            _ => Ok(()),
        };
        let termination = match &ended {
            _ if complete => match (rest, &going_up.outcome) {
                (Err(cause), _) => Termination::new(cause, Phase::Data),
                (Ok(()), Some(Err(Broken::Sender))) => Termination::new(Cause::ClientLeft, Phase::Data),
                (Ok(()), Some(Err(Broken::Framing(_)))) => Termination::new(Cause::Refused, Phase::Data),
                (Ok(()), Some(Err(_))) => Termination::new(Cause::ServerLeft, Phase::Data),
                (Ok(()), None) if server_persists => Termination::new(Cause::ServerLeft, Phase::Data),
                (Ok(()), _) => Termination::NORMAL,
            },
            Ok(Err(_)) | Ok(Ok(Err(Broken::Receiver))) => Termination::new(Cause::ClientLeft, Phase::Data),
            Ok(_) => Termination::new(Cause::ServerLeft, Phase::Data),
            Err(cause) => Termination::new(*cause, Phase::Data),
        };
        if termination.cause != Cause::Normal && !termination.cause.is_order() {
            let (b, s) = (backend.counts.own(), backend.servers[index.get()].counts.own());
            let by_client = matches!(termination.cause, Cause::ClientLeft | Cause::ClientSilent);
            let aborts = if by_client { [&b.client_aborts, &s.client_aborts] } else { [&b.server_aborts, &s.server_aborts] };
            aborts.into_iter().for_each(|aborts| aborts.add(1));
        }
        self.note(|record| record.ended = termination);
        if let Ok(Ok(Err(Broken::Sender | Broken::Framing(_)))) | Err(Cause::ServerSilent) = ended {
            backend.counts.own().response_errors.add(1);
            backend.servers[index.get()].counts.own().response_errors.add(1);
        }
        if let Ok(Ok(Err(Broken::Framing(_)))) = ended {
            observe(local, backend, index, Seen::BadBody);
        }
        let sent_all = matches!(going_up.outcome, Some(Ok(())));
        Ended::Message { complete, sent_all, server_persists, persist }
        }
        };
        let (complete, sent_all, server_persists, persist) = match ended {
            Ended::Message { complete, sent_all, server_persists, persist } => {
                (complete, sent_all, server_persists, persist)
            }
            Ended::Tunnel(back) => {
                let mut received = std::mem::take(received);
                if let Some(segment) = watched.received.take() {
                    received.push_back(segment).map_err(|_| memory())?;
                }
                let ended = self.tunnel(backend, (&connection, &hold), back, received, from_server, count).await;
                self.tunnelled(backend, hold.server(), ended);
                return Ok(Outcome::CLOSE);
            }
        };
        if !complete || !sent_all {
            return Ok(Outcome { linger: complete, ..Outcome::CLOSE });
        }
        let served = reused.unwrap_or(0) + 1;
        let good = server_persists
            && from_server.is_empty()
            && hold.server().max_reuse.is_none_or(|most| served <= most);
        let after = if persist == Persist::KeepAlive { After::KeepAlive } else { After::Close };
        Ok(Outcome { after, linger: false, idle: good.then_some(Idle { connection, served }) })
    }

    /// The connection carries another protocol from here on.
    async fn tunnel(
        &self,
        backend: &Backend,
        (server, hold): (&Connection, &Hold),
        mut back: Chain,
        received: Chain,
        from_server: Chain,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let client = &self.client.connection;
        let head = back.len() as u64;
        if client.send(&mut back).await.is_err() {
            return Termination::new(Cause::ClientLeft, Phase::Data);
        }
        count(0, head);
        let tunnel = self.scopes.memory.tunnel_timeout.get().or(backend.timeouts.tunnel);
        let usual = self.patience(backend);
        let patience = Patience {
            client: tunnel.or(usual.client),
            server: tunnel.or(usual.server),
            in_turn: false,
            ..usual
        };
        let pair = Pair::new(&self.local.io, client, server, hold, patience);
        pair.forward(received, std::future::ready(Ok((from_server, false))), self.splicing(backend), count).await
    }

    /// What is told of a tunnel that has ended.
    fn tunnelled(&self, backend: &Backend, server: &Server, ended: Termination) {
        self.note(|record| record.ended = ended);
        let (b, s) = (backend.counts.own(), server.counts.own());
        match ended.cause {
            Cause::ClientLeft | Cause::ClientSilent => [&b.client_aborts, &s.client_aborts].into_iter().for_each(|aborts| aborts.add(1)),
            Cause::ServerLeft | Cause::ServerSilent => [&b.server_aborts, &s.server_aborts].into_iter().for_each(|aborts| aborts.add(1)),
            _ => {}
        }
    }
}

/// A way up that goes on beside other work.
pub(super) struct Going<'a, F> {
    work: Pin<&'a mut F>,
    outcome: Option<Result<(), Broken>>,
}

impl<F: Future<Output = Result<(), Broken>>> Going<'_, F> {
    /// What `work` gives, while this goes on. A server that takes no more of a body may still answer, so only what is wrong
    /// with the client ends both.
    ///
    /// # Errors
    /// What is wrong with the client, or with its body.
    async fn beside<W: Future>(&mut self, mut work: Pin<&mut W>) -> Result<W::Output, Broken> {
        poll_fn(|context| self.poll_beside(work.as_mut(), context)).await
    }

    /// Goes on to its end, whatever that is.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &self.outcome {
            Some(_) => Poll::Ready(()),
            None => self.work.as_mut().poll(context).map(|outcome| self.outcome = Some(outcome)),
        }
    }

    #[inline]
    fn poll_beside<W: Future>(
        &mut self,
        work: Pin<&mut W>,
        context: &mut Context<'_>,
    ) -> Poll<Result<W::Output, Broken>> {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = self.work.as_mut().poll(context)
        {
            match outcome {
                Err(broken @ (Broken::Sender | Broken::Framing(_) | Broken::Memory)) => {
                    self.outcome = Some(Err(Broken::Sender));
                    return Poll::Ready(Err(broken));
                }
                outcome => self.outcome = Some(outcome),
            }
        }
        work.poll(context).map(Ok)
    }

    /// [`beside`](Self::beside), which also ends when the client leaves in this way, though nobody waits for it. What is wrong then is
    /// that there is no [`Receiver`](Broken::Receiver).
    async fn while_there<W: Future>(
        &mut self,
        mut work: Pin<&mut W>,
        client: &Connection,
        watched: &mut Watched,
        leaving: Option<Leaving>,
    ) -> Result<W::Output, Broken> {
        let stream = client.stream().filter(|_| leaving.is_some());
        let mut receiving = pin!(stream.map(|stream| stream.recv()));
        poll_fn(|context| {
            if let Poll::Ready(output) = self.poll_beside(work.as_mut(), context) {
                return Poll::Ready(output);
            }
            // As long as a body goes up, that is who hears of the client.
            if self.outcome.is_some()
                && watched.received.is_none()
                && !watched.closed
                && !watched.unseen
                && let Some(receiving) = receiving.as_mut().as_pin_mut()
                && let Poll::Ready(received) = receiving.poll(context)
            {
                match received {
                    Ok(Some(segment)) => watched.received = Some(segment),
                    Ok(None) => watched.closed = true,
                    // Nothing is known of the client when there is no room for what it sends.
                    Err(error) if error.errno().is_none() => watched.unseen = true,
                    Err(_) => return Poll::Ready(Err(Broken::Receiver)),
                }
            }
            if watched.closed && leaving == Some(Leaving::Closed) {
                return Poll::Ready(Err(Broken::Receiver));
            }
            Poll::Pending
        })
        .await
    }
}

/// What was seen of a client that is watched.
#[derive(Default)]
struct Watched {
    /// A piece of what follows its request. No more is asked for.
    received: Option<Segment>,
    /// It has closed its side.
    closed: bool,
    /// It cannot be watched any more.
    unseen: bool,
}

/// How a client leaves, to those who watch it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It takes no more.
    Reset,
    /// It sends no more, which may mean that it takes no more: `option abortonclose`.
    Closed,
}

/// Why there is no head of a response.
enum NoHead {
    /// The server closed before a byte came.
    Nothing,
    /// It closed amid the head.
    Cut,
    /// It is none.
    Junk(manylane_h1::Error),
    /// There is no memory to pass on what came before it.
    Memory,
    /// The client does not take what came before it.
    Client,
}

/// The head of the final response, put into `place`. Those that come before it are passed on, to clients that know of them.
async fn receive(
    server: &Connection,
    input: &mut Chain,
    mut parser: ResponseParser,
    asked: Asked,
    (client, up, here): (&Connection, &Way, Here),
    version: Version,
    place: &mut Option<Response>,
) -> Result<(), NoHead> {
    loop {
        match parser.parse(input, asked) {
            Ok(Some(response)) if response.is_interim() => {
                let mut head = response.head;
                if head.status() == 100 {
                    up.called(here.now()); // for the body
                }
                if version >= Version::HTTP_11 {
                    let mut out = Chain::new();
                    set_body(&mut head, Body::None, Body::None)
                        .and_then(|()| head.emit(&mut out, None))
                        .map_err(|_| NoHead::Memory)?;
                    client.send(&mut out).await.map_err(|_| NoHead::Client)?;
                }
            }
            Ok(Some(response)) => {
                *place = Some(response);
                return Ok(());
            }
            Ok(None) => match server.recv_chain(input, READ_AT_ONCE).await {
                Ok(true) => {}
                Ok(false) | Err(_) if input.is_empty() => return Err(NoHead::Nothing),
                Ok(false) | Err(_) => return Err(NoHead::Cut),
            },
            Err(error) => return Err(NoHead::Junk(error)),
        }
    }
}

/// Moves a body that came with its head behind it; whether all of it is there. Such a body needs no pump.
fn take_whole(body: Body, input: &mut Chain, out: &mut Chain) -> Result<bool, manylane_buf::Error> {
    let length = match body {
        Body::None => 0,
        Body::Length(length) => length,
        Body::Chunked | Body::UntilClose | Body::Tunnel => return Ok(false),
    };
    let there = input.len() as u64;
    if length < there {
        out.append_chain(&mut input.split_to(length as usize)?)?;
    } else if length == there {
        out.append_chain(input)?;
    }
    Ok(length <= there)
}
