//! TCP mode: a session is one stream of bytes in both directions.

mod forward;
mod inspect;

pub(crate) use forward::Pair;

use crate::client::{Client, Peers};
use crate::count::count_in_front;
use crate::filters::Filters;
use crate::flow::{Splicing, Timeouts};
use crate::lane::{Begun, Local, SetTime, Streaming, Timer, Wanted};
use crate::panics::caught;
use crate::rules::{
    Content, EvalContext, EvalPhase, Record, Stores, chosen_backend, chosen_server, first_persist, key,
};
use crate::scopes::{Countable, Scopes};
use crate::server::{self, Attempt, IdleConn, Tried};
pub(crate) use inspect::request as looks_like_request;
use inspect::{Inspected, inspect, response as response_head};
use manylane_balance::{Index, Priority};
use manylane_buf::Chain;
use manylane_config::tree::LogStep;
use manylane_expr::{Data, Direction};
use manylane_http::Head;
use manylane_plan::connect_timings::ConnectTimings;
use manylane_plan::generation::{
    Backend, ContentAction, Frontend, Listener, Persist, Rule, Server, TimeoutOf,
};
use manylane_plan::{Cause, Phase, Termination};
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Serves a connection until it ends.
pub(crate) async fn run(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    mut client: Client,
    scopes: &Scopes,
) {
    frontend.counts.own().streams.add(1);
    let rules = &frontend.rules;
    let asked = !rules.use_backend.is_empty()
        || !rules.content.is_empty()
        || frontend.log.is_some()
        || frontend.http.unique_id.is_some()
        || local.generation.tells_formats
        || local.generation.backends.iter().any(|backend| backend.rules.looks_at_streams());
    let mut record = Record::new(local.here().now());
    scopes.memory.begun.set(record.date);
    let number = local.next_number();
    scopes.memory.number.set(number);
    let (place, at) = ((listener.frontend as u32, listener.index as u32), local.here().now());
    let streaming = Streaming::begin(
        local,
        Begun { number, frontend: place.0, listener: place.1, source: client.source, at },
    );
    record.handshake = client.handshake();
    let course = RefCell::new(Some(record));
    // The connection changes while rules read these.
    let greeting = client.greeting().filter(|_| asked).cloned();
    let tls = client.tls().filter(|_| asked).cloned();
    let eval = EvalContext {
        local,
        frontend,
        listener,
        peers: if asked { client.peers() } else { Peers::default() },
        greeting: greeting.as_ref(),
        tls: tls.as_deref(),
        first_request: true,
        scopes,
        course: Some(&course),
    };
    if local.generation.makes_ids_early {
        eval.make_id(None);
    }
    let mut stream = Stream {
        local,
        frontend,
        listener,
        eval: &eval,
        course: &course,
        streaming: &streaming,
        server: None,
        logged: false,
    };
    stream.log_step(LogStep::Accept, None, None);
    let panicked = Termination::new(Cause::Internal, Phase::Data);
    let looked = {
        let looking =
            pin!(stream.inspect(&rules.content, frontend.common.inspect_request, None, &mut client));
        caught(looking).await.unwrap_or(Err(panicked))
    };
    let mut backend = None;
    let ended = match looked {
        Err(ended) => ended,
        Ok(()) => {
            let looks = !(rules.use_backend.is_empty() && rules.force_switch.is_empty());
            let head = stream.head(looks, &client);
            let chosen = chosen_backend(frontend, &eval, phase(head.as_ref(), &client));
            backend = chosen.map(|number| &local.generation.backends[number]);
            match backend {
                None => {
                    client.swallow();
                    Termination::new(Cause::ServerLeft, Phase::Connect)
                }
                Some(backend) => {
                    if backend.id != frontend.id {
                        scopes.memory.leave_frontend();
                    }
                    let begun = local.here().now();
                    streaming.goes_to(backend.number);
                    backend.counts.own().begin();
                    let ended = caught(pin!(stream.serve(backend, &mut client))).await.unwrap_or(panicked);
                    backend.counts.own().end(local.here().now().since(begun));
                    ended
                }
            }
        }
    };
    frontend.counts.own().streams_ended.add(1);
    match ended.cause {
        Cause::ClientLeft | Cause::ClientSilent => count_in_front!(frontend, listener, request_errors),
        Cause::Internal => {
            count_in_front!(frontend, listener, internal_errors);
            client.reset_on_close();
        }
        _ => {}
    }
    let Stream { server, logged, .. } = stream;
    if let Some(log) = &frontend.log
        && !logged
        && log.steps.is_none_or(|steps| steps.has(LogStep::Close))
        && let Some(mut record) = course.take()
        && !(log.no_null && record.up == 0)
    {
        record.ended = ended;
        eval.make_id(None);
        let server = backend.zip(server).map(|(backend, index)| &*backend.servers[index]);
        record.write(LogStep::Close, log, &eval, backend.map(|own| &**own), server, local.here().now());
    }
}

/// Returns the state that rules may read before there is a server: the bytes received so far.
fn phase<'a>(head: Option<&'a Head>, client: &'a Client) -> EvalPhase<'a> {
    let data = Data { bytes: Some(&client.received), complete: true, announced: None, is_body: false };
    EvalPhase { request: head, request_data: data, ..EvalPhase::default() }
}

/// A stream of bytes.
struct Stream<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    eval: &'a EvalContext<'a>,
    /// Log record of the stream.
    course: &'a RefCell<Option<Record>>,
    streaming: &'a Streaming,
    /// Index of the server that was reached or tried last.
    server: Option<usize>,
    /// The log line was written already.
    logged: bool,
}

impl Stream<'_> {
    /// Logs a step of the stream, if `log-steps` has it.
    fn log_step(&self, step: LogStep, backend: Option<&Backend>, server: Option<&Server>) {
        if self.frontend.log.as_ref().and_then(|log| log.steps).is_some_and(|steps| steps.has(step)) {
            self.log_now(step, backend, server);
        }
    }

    /// Logs the stream in its present state, for `do-log`.
    fn log_now(&self, step: LogStep, backend: Option<&Backend>, server: Option<&Server>) {
        if let Some(log) = &self.frontend.log
            && let Some(record) = &*self.course.borrow()
        {
            record.write(step, log, self.eval, backend, server, self.local.here().now());
        }
    }

    fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.course.borrow_mut() {
            what(record);
        }
    }

    /// Returns the head of a request that the client's bytes begin with, if one is wanted.
    fn head(&self, wanted: bool, client: &Client) -> Option<Head> {
        looks_like_request(&client.received).filter(|_| wanted)
    }

    /// Runs rules on the client's data. If they refuse it, the error says how the stream ends.
    async fn inspect(
        &self,
        rules: &[Rule<ContentAction>],
        delay: Option<Duration>,
        backend: Option<&Backend>,
        client: &mut Client,
    ) -> Result<(), Termination> {
        let log = || self.log_now(LogStep::TcpReqCont, backend, None);
        let what = Inspected { rules, delay, backend, server: None, log: &log };
        let Client { end, received, .. } = client;
        let connection = end.connection();
        let decided = {
            let inspecting = pin!(inspect(self.eval, &what, Direction::Request, connection, received));
            self.local.streams.unless_ended(self.streaming.entry(), inspecting).await
        };
        let decided = decided.map_err(|cause| Termination::new(cause, Phase::Request))?;
        client.mark(self.eval.scopes.memory.client_packets.take());
        match decided {
            Ok(decided @ (Content::Reject | Content::Drop(_))) => {
                count_in_front!(self.frontend, self.listener, requests_denied);
                if let Some(backend) = backend {
                    backend.counts.own().requests_denied.add(1);
                }
                if let Content::Drop(silence) = decided {
                    client.vanish(silence);
                }
                Err(Termination::new(Cause::Refused, Phase::Request))
            }
            Ok(_) => {
                let memory = &self.eval.scopes.memory;
                client.is_said_to_be(memory.source.get(), memory.destination.get());
                Ok(())
            }
            Err(()) => Err(Termination::new(Cause::ClientLeft, Phase::Request)),
        }
    }

    /// Returns the server that a rule names, if it takes streams.
    fn by_rule(&self, backend: &Backend, client: &Client, forced: bool) -> Option<Index> {
        let rules = &backend.rules.use_server;
        let head = self.head(!rules.is_empty(), client);
        let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
        chosen_server(rules, self.eval, phase, backend.balancer.servers(), forced || backend.http.persist)
    }

    /// Returns the server that `stick` rules find, and the keys to store.
    fn stick(
        &self,
        backend: &Backend,
        client: &Client,
        assigned: bool,
        forced: bool,
    ) -> (Option<Index>, Stores) {
        if backend.rules.stick.is_empty() {
            return Default::default();
        }
        let head = self.head(true, client);
        let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
        self.eval.stick(phase, backend, assigned, forced || backend.http.persist)
    }

    /// Returns true if `force-persist` applies.
    fn forced(&self, backend: &Backend, client: &Client) -> bool {
        let rules = &backend.rules.persist;
        let head = self.head(!rules.is_empty(), client);
        let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
        first_persist(rules, self.eval, phase) == Some(Persist::Force)
    }

    /// Stores the server under the keys of the client's data, and of the server's data so far.
    fn store(&self, backend: &Backend, server: &Server, received: &Chain, stores: &Stores) {
        let rules = &backend.rules;
        if rules.stick.is_empty() && rules.store_response.is_empty() {
            return;
        }
        let head = response_head(received).filter(|_| !rules.store_response.is_empty());
        let data = Data { bytes: Some(received), complete: true, announced: None, is_body: false };
        let phase = EvalPhase {
            response: head.as_ref(),
            response_data: data,
            backend: Some(backend),
            server: Some(server),
            side: Some(Direction::Response),
            ..EvalPhase::default()
        };
        self.eval.store_server(phase, backend, server, stores);
    }

    async fn serve(&mut self, backend: &Backend, client: &mut Client) -> Termination {
        let (local, frontend, listener) = (self.local, self.frontend, self.listener);
        let forced = self.forced(backend, client);
        if !std::ptr::eq(&*backend.rules, &*frontend.rules)
            && let Err(ended) = self
                .inspect(&backend.rules.content, backend.common.inspect_request, Some(backend), client)
                .await
        {
            return ended;
        }
        let key = if backend.key.is_expression() {
            let head = self.head(true, client);
            key(self.eval, EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) }, backend)
        } else {
            backend.key.of_connection(client.source)
        };
        let server = self.by_rule(backend, client, forced);
        let (stuck, stores) = self.stick(backend, client, server.is_some(), forced);
        let server = server.or(stuck);
        let memory = &self.eval.scopes.memory;
        let priority = Priority { class: memory.priority_class.get(), offset: memory.priority_offset.get() };
        let packets = memory.server_packets.get();
        let wanted = Wanted {
            key,
            server: server.or(backend.of_client),
            persistent: server.is_some(),
            priority,
            packets,
            stream: self.streaming.entry(),
            queue_time: SetTime::new(memory.timeout(TimeoutOf::Queue).get()),
            connect_time: SetTime::new(memory.timeout(TimeoutOf::Connect).get()),
            ..Wanted::default()
        };
        let mut tried = Tried { most: memory.retries.get(), ..Tried::default() };
        let (timings, timer) = (ConnectTimings::new(local.here().now()), Timer::new(local.here()));
        let (names, headers) = {
            let head = self.head(backend.servers.iter().any(|server| server.asked_name().is_some()), client);
            let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
            let headers = server::headers_before_tls(backend, client, self.eval, phase);
            (self.eval.server_names(phase, backend), headers)
        };
        let wanted = Wanted { names: &names, headers: &headers, memory: Some(memory), ..wanted };
        let attempt = match server::connect(
            local,
            backend,
            client,
            wanted,
            &mut tried,
            None,
            timings,
            &timer,
            |_, _| IdleConn::Nothing,
        )
        .await
        {
            Ok(attempt) => attempt,
            Err(failed) => {
                self.note(|record| record.not_reached(&failed));
                self.server = failed.server.map(Index::get);
                if let Some(index) = self.server {
                    server::remember_place(local, &backend.servers[index], memory);
                }
                client.swallow();
                return failed.ended;
            }
        };
        let Attempt { end, permit, reused: _, timings } = attempt;
        let connection = end.connection();
        self.note(|record| record.timings(timings));
        permit.reached(&timings);
        self.server = Some(permit.server().index);
        server::remember_link(local, connection, memory);
        self.log_step(LogStep::Connect, Some(backend), Some(permit.server()));
        if frontend.log.as_ref().is_some_and(|log| log.early && log.steps.is_none()) {
            self.log_now(LogStep::Connect, Some(backend), Some(permit.server()));
            self.logged = true;
        }
        let mut first = Chain::new();
        let full = Termination::new(Cause::Resource, Phase::Connect);
        if let Some(how) = permit.server().header_within() {
            let phase =
                EvalPhase { backend: Some(backend), server: Some(permit.server()), ..phase(None, client) };
            let header = server::header(how, permit.server(), client, self.eval, phase);
            if !header.is_ok_and(|header| first.append(&header).is_ok()) {
                return full;
            }
        }
        if first.append_chain(&mut client.received).is_err() {
            return full;
        }
        let tunnel = memory.timeout(TimeoutOf::Tunnel).get().or(backend.timeouts.tunnel);
        let timeouts = Timeouts {
            client: tunnel.or(memory.timeout(TimeoutOf::Client).get()).or(frontend.timeouts.client),
            server: tunnel.or(memory.timeout(TimeoutOf::Server).get()).or(backend.timeouts.server),
            client_fin: frontend.timeouts.client_fin,
            server_fin: backend.timeouts.server_fin,
            independent: frontend.common.independent || backend.common.independent,
            in_turn: false,
        };
        let allowed = !local.generation.process.no_splice;
        let splicing = Splicing {
            up: frontend.common.splice_request.or(backend.common.splice_request).filter(|_| allowed),
            down: frontend.common.splice_response.or(backend.common.splice_response).filter(|_| allowed),
        };
        let filters = Filters::of(local, (frontend, backend), memory, false);
        let pair = Pair::new(&local.io, client.end.connection(), connection, &permit, timeouts)
            .filtered(filters.as_ref());
        let server = permit.server();
        let tracks = &self.eval.scopes.tracks;
        let count = |up: u64, down: u64| {
            tracks.count(Countable::Bytes { up, down }, || local.here().now());
            let (f, b) = (frontend.counts.own(), backend.counts.own());
            let (s, l) = (server.counts.own(), listener.counts.own());
            for (bytes_in, bytes_out) in [
                (&f.bytes_in, &f.bytes_out),
                (&b.bytes_in, &b.bytes_out),
                (&s.bytes_in, &s.bytes_out),
                (&l.bytes_in, &l.bytes_out),
            ] {
                bytes_in.add(up);
                bytes_out.add(down);
            }
        };
        let log = || self.log_now(LogStep::TcpResCont, Some(backend), Some(server));
        let what = Inspected {
            rules: &backend.rules.response_content,
            delay: backend.common.inspect_response,
            backend: Some(backend),
            server: Some(server),
            log: &log,
        };
        let looked = async {
            let mut received = Chain::new();
            let decided = inspect(self.eval, &what, Direction::Response, connection, &mut received).await;
            client.mark(memory.client_packets.take());
            if !matches!(decided, Ok(Content::Reject | Content::Drop(_)) | Err(())) {
                self.store(backend, server, &received, &stores);
            }
            match decided {
                Ok(Content::Reject) => Err(Termination::new(Cause::Refused, Phase::Data)),
                Ok(Content::Drop(silence)) => {
                    client.vanish(silence);
                    // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                    Err(Termination::new(Cause::Refused, Phase::Request))
                }
                Ok(Content::Close) => Ok((received, true)),
                Ok(_) => Ok((received, false)),
                Err(()) => Err(Termination::new(Cause::ServerLeft, Phase::Data)),
            }
        };
        let ended = pair.forward(first, looked, splicing, count).await;
        if ended.cause == Cause::Refused {
            backend.counts.own().responses_denied.add(1);
            server.counts.own().responses_denied.add(1);
        }
        self.note(|record| (record.up, record.down) = pair.bytes());
        match ended.cause {
            Cause::ServerLeft | Cause::ServerSilent => {
                backend.counts.own().response_errors.add(1);
                server.counts.own().response_errors.add(1);
                backend.counts.own().server_aborts.add(1);
                server.counts.own().server_aborts.add(1);
            }
            Cause::ClientLeft | Cause::ClientSilent => {
                backend.counts.own().client_aborts.add(1);
                server.counts.own().client_aborts.add(1);
            }
            _ => {}
        }
        ended
    }
}
