//! TCP mode: a session is one stream of bytes in both directions.

mod heads;
mod inspect;

use crate::client::Client;
use crate::filters::StreamFilters;
use crate::flow::{Splicing, Timeouts};
use crate::server::{self, Attempt, IdleConn, Tried};
use crate::tunnel::Tunnel;
pub(crate) use heads::request as looks_like_request;
use heads::response as response_head;
use inspect::{Inspected, inspect};
use manylane_balance::{Index, Priority};
use manylane_buf::Chain;
use manylane_config::tree::{LogStep, Mode};
use manylane_expr::{Data, Direction};
use manylane_http::{Head, Version};
use manylane_lanes::{Local, Parties, Peers, Scopes, SetTime, StreamStart, Streaming, Timer, Wanted, caught};
use manylane_plan::connect_timings::ConnectTimings;
use manylane_plan::generation::{Backend, Frontend, Listener, Persist, Rule, Server, TimeoutOf};
use manylane_plan::{Cause, Phase, Termination};
use manylane_pool::{Pool, Pooled};
use manylane_rules::{
    EvalContext, EvalPhase, Record, Stores, Verdict, chosen_backend, chosen_server, first_persist, key,
    of_rdp_cookie,
};
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The stream of a connection that changes to HTTP. The first request continues it.
#[derive(Debug)]
pub(crate) struct Switched {
    /// The version that the rule demands; `None` if the client's first bytes say it.
    pub(crate) version: Option<Version>,
    /// The backend in HTTP mode that the frontend has chosen already.
    pub(crate) backend: Option<usize>,
    /// Entry in the lane's list of streams; the request takes it.
    pub(crate) streaming: Option<Streaming>,
    /// Log record; the request takes it.
    pub(crate) record: Option<Record>,
}

manylane_sync::lazy_static! {
    static SWITCHED: Pool<Switched> =
        Pool::new("switch to http").expect("the size is a constant below the bound");
}

/// Serves a connection until it ends, or until it changes to HTTP: then returns it for the HTTP engine.
pub(crate) async fn run(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    mut client: Client,
    scopes: &Scopes,
) -> Option<(Client, Pooled<Switched>)> {
    let rules = &frontend.rules;
    let requested = !rules.use_backend.is_empty()
        || !rules.content.is_empty()
        || frontend.log.is_some()
        || frontend.http.unique_id.is_some()
        || local.generation.tells_formats
        || local.generation.backends.iter().any(|backend| backend.rules.processes_streams());
    let mut record = Record::new(local.here().now());
    scopes.memory.begun.set(record.date);
    let number = local.next_number();
    scopes.memory.number.set(number);
    let (index, at) = ((listener.frontend as u32, listener.index as u32), local.here().now());
    let streaming = Streaming::begin(
        local,
        StreamStart { number, frontend: index.0, listener: index.1, source: client.source, at },
    );
    record.handshake = client.handshake();
    let course = RefCell::new(Some(record));
    // The connection changes while rules read these.
    let greeting = client.greeting().filter(|_| requested).cloned();
    let tls = client.tls().filter(|_| requested).cloned();
    let eval = EvalContext {
        local,
        frontend,
        listener,
        peers: if requested { client.peers() } else { Peers::default() },
        greeting: greeting.as_ref(),
        tls: tls.as_deref(),
        first_request: true,
        http: false,
        scopes,
        course: Some(&course),
    };
    eval.parties().stream_begins();
    if local.generation.makes_ids_early {
        eval.make_id(None);
    }
    let mut stream = Stream { local, frontend, eval: &eval, streaming: &streaming, logged: false };
    eval.log_step(LogStep::Accept);
    let defect = |cause| Termination::new(cause, Phase::Data);
    let inspected = {
        let looking =
            pin!(stream.inspect(&rules.content, frontend.common.inspect_request, None, &mut client));
        caught(looking).await.unwrap_or_else(|cause| Err(Stop::Ended(defect(cause))))
    };
    let ended = match inspected {
        Err(Stop::Ended(ended)) => Ok(ended),
        Err(Stop::SwitchMode(version)) => Err((version, None)),
        Ok(()) => {
            let reads_head = !(rules.use_backend.is_empty() && rules.force_switch.is_empty());
            let head = stream.head(reads_head, &client);
            let chosen = chosen_backend(frontend, &eval, phase(head.as_ref(), &client));
            match chosen.map(|number| &local.generation.backends[number]) {
                None => {
                    client.swallow();
                    Ok(Termination::new(Cause::ServerLeft, Phase::Connect))
                }
                Some(backend) if backend.mode == Mode::Http => Err((None, Some(backend.number))),
                Some(backend) => {
                    if backend.id != frontend.id {
                        scopes.memory.leave_frontend();
                    }
                    let begun = local.here().now();
                    eval.note(|record| record.backend = Some(backend.number));
                    streaming.goes_to(backend.number);
                    let parties = || Parties { backend: Some(backend), ..eval.parties() };
                    parties().backend_entered();
                    let ended = caught(pin!(stream.serve(backend, &mut client))).await;
                    let ended = ended.unwrap_or_else(|cause| {
                        client.reset_on_close(); // it may have received a part of the data only
                        defect(cause)
                    });
                    parties().backend_left(local.here().now().since(begun));
                    Ok(ended)
                }
            }
        }
    };
    eval.parties().stream_ends();
    let ended = match ended {
        Ok(ended) => ended,
        Err((version, backend)) => {
            match SWITCHED.alloc(Switched { version, backend, streaming: None, record: None }) {
                Ok(mut switched) => {
                    (switched.streaming, switched.record) = (Some(streaming), course.take());
                    return Some((client, switched));
                }
                Err(_) => Termination::new(Cause::Resource, Phase::Request),
            }
        }
    };
    match ended.cause {
        Cause::ClientLeft | Cause::ClientSilent => eval.parties().request_error(),
        Cause::Internal => {
            eval.parties().internal_error();
            client.reset_on_close();
        }
        _ => {}
    }
    if let Some(log) = &frontend.log
        && !stream.logged
        && log.steps.is_none_or(|steps| steps.has(LogStep::Close))
        && let Some(mut record) = course.take()
        && !(log.no_null && record.up == 0)
    {
        record.ended = ended;
        eval.make_id(None);
        record.write(LogStep::Close, &eval);
    }
    None
}

/// Returns the state that rules may read before there is a server: the bytes received so far.
fn phase<'a>(head: Option<&'a Head>, client: &'a Client) -> EvalPhase<'a> {
    let data = Data { bytes: Some(&client.received), complete: true, announced: None, is_body: false };
    EvalPhase { request: head, request_data: data, ..EvalPhase::default() }
}

/// Why a stream does not continue in TCP mode.
enum Stop {
    Ended(Termination),
    /// The connection continues in HTTP, of this version if there is one.
    SwitchMode(Option<Version>),
}

/// A stream of bytes.
struct Stream<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    eval: &'a EvalContext<'a>,
    streaming: &'a Streaming,
    /// The log line was written already.
    logged: bool,
}

impl Stream<'_> {
    /// Returns the head of a request that the client's bytes begin with, if one is wanted.
    fn head(&self, wanted: bool, client: &Client) -> Option<Head> {
        looks_like_request(&client.received).filter(|_| wanted)
    }

    /// Runs rules on the client's data.
    async fn inspect(
        &self,
        rules: &[Rule],
        delay: Option<Duration>,
        backend: Option<&Backend>,
        client: &mut Client,
    ) -> Result<(), Stop> {
        let what = Inspected { rules, delay, backend, server: None };
        let Client { end, received, .. } = client;
        let connection = end.connection();
        let decided = {
            let inspecting = pin!(inspect(self.eval, &what, Direction::Request, connection, received));
            self.local.streams.unless_ended(self.streaming.entry(), inspecting).await
        };
        let ended = |cause| Stop::Ended(Termination::new(cause, Phase::Request));
        let decided = decided.map_err(ended)?;
        client.mark(self.eval.scopes.memory.client_packets.take());
        let parties = Parties { backend, ..self.eval.parties() };
        let decided = match decided {
            Ok(Verdict::Reject) => {
                parties.contents_rejected();
                return Err(ended(Cause::Refused));
            }
            Ok(Verdict::Drop(silence)) => {
                parties.silently_dropped();
                client.vanish(silence);
                return Err(ended(Cause::Refused));
            }
            Ok(Verdict::SwitchMode(version)) => Err(Stop::SwitchMode(version)),
            Ok(_) => Ok(()),
            Err(()) => return Err(ended(Cause::ClientLeft)),
        };
        let memory = &self.eval.scopes.memory;
        client.is_said_to_be(memory.source.get(), memory.destination.get());
        decided
    }

    /// Returns the server that a rule names, if it takes streams.
    fn by_rule(&self, backend: &Backend, client: &Client, forced: bool) -> Option<Index> {
        let rules = &backend.rules.use_server;
        let head = self.head(!rules.is_empty(), client);
        let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
        chosen_server(rules, self.eval, phase, backend.balancer.servers(), forced || backend.http.persist)
    }

    /// Returns the server that the client's cookie of RDP names, if it takes streams.
    fn by_rdp_cookie(&self, backend: &Backend, client: &Client, forced: bool) -> Option<Index> {
        backend.rules.persist_rdp.as_ref()?;
        let phase = EvalPhase { backend: Some(backend), ..phase(None, client) };
        of_rdp_cookie(self.eval, phase, backend, forced || backend.http.persist)
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
        let (local, frontend) = (self.local, self.frontend);
        let forced = self.forced(backend, client);
        if !std::ptr::eq(&*backend.rules, &*frontend.rules) {
            let delay = backend.common.inspect_request;
            match self.inspect(&backend.rules.content, delay, Some(backend), client).await {
                Ok(()) => {}
                Err(Stop::Ended(ended)) => return ended,
                // A `listen` of which this is the backend; its servers are in TCP mode.
                Err(Stop::SwitchMode(_)) => return Termination::new(Cause::Internal, Phase::Request),
            }
        }
        let key = if backend.key.is_expression() {
            let head = self.head(true, client);
            key(self.eval, EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) }, backend)
        } else {
            backend.key.of_connection(client.source)
        };
        let server =
            self.by_rule(backend, client, forced).or_else(|| self.by_rdp_cookie(backend, client, forced));
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
            let head =
                self.head(backend.servers.iter().any(|server| server.evaluated_name().is_some()), client);
            let phase = EvalPhase { backend: Some(backend), ..phase(head.as_ref(), client) };
            let headers = server::headers_before_tls(backend, client, self.eval, phase);
            (self.eval.server_names(phase, backend), headers)
        };
        let wanted = Wanted { names: &names, headers: Some(&headers), memory: Some(memory), ..wanted };
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
                self.eval.note(|record| {
                    record.not_reached(&failed);
                    record.server = failed.server;
                });
                if let Some(index) = failed.server {
                    server::remember_address(local, &backend.servers[index.get()], memory);
                }
                client.swallow();
                return failed.ended;
            }
        };
        let Attempt { permit, slot: _slot, end, reused: _, timings } = attempt;
        let connection = end.connection();
        self.eval.note(|record| {
            record.timings(timings);
            record.server = Some(permit.index());
        });
        permit.reached(&timings);
        server::remember_link(local, connection, memory);
        self.eval.log_step(LogStep::Connect);
        if frontend.log.as_ref().is_some_and(|log| log.early && log.steps.is_none()) {
            self.eval.log_now(LogStep::Connect);
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
        let timeouts = Timeouts::of_tunnel(frontend, backend, memory);
        let splicing = Splicing::of(&local.generation, frontend, backend);
        let filters = StreamFilters::of(local, (frontend, backend), memory, false);
        let Some(server_end) = end.body() else { return full };
        let tunnel = Tunnel::new(&local.io, (client.end.body(), server_end), &permit, timeouts)
            .filtered(filters.as_ref());
        let server = permit.server();
        let parties = || Parties { backend: Some(backend), server: Some(server), ..self.eval.parties() };
        let count = |up: u64, down: u64| parties().bytes(up, down);
        let what = Inspected {
            rules: &backend.rules.response_content,
            delay: backend.common.inspect_response,
            backend: Some(backend),
            server: Some(server),
        };
        let inspected = async {
            let mut received = Chain::new();
            let decided = inspect(self.eval, &what, Direction::Response, connection, &mut received).await;
            client.mark(memory.client_packets.take());
            if !matches!(decided, Ok(Verdict::Reject | Verdict::Drop(_)) | Err(())) {
                self.store(backend, server, &received, &stores);
            }
            match decided {
                Ok(Verdict::Reject) => {
                    parties().response_denied();
                    Err(Termination::new(Cause::Refused, Phase::Data))
                }
                Ok(Verdict::Drop(silence)) => {
                    client.vanish(silence);
                    parties().silently_dropped();
                    // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                    Err(Termination::new(Cause::Refused, Phase::Request))
                }
                Ok(Verdict::Close) => Ok((received, true)),
                Ok(_) => Ok((received, false)),
                Err(()) => Err(Termination::new(Cause::ServerLeft, Phase::Data)),
            }
        };
        let ended = tunnel.forward(first, inspected, splicing, count).await;
        self.eval.note(|record| (record.up, record.down) = tunnel.bytes());
        match ended.cause {
            Cause::ServerLeft | Cause::ServerSilent => {
                permit.parties().response_error();
                permit.parties().server_aborts();
            }
            Cause::ClientLeft | Cause::ClientSilent => permit.parties().client_aborts(),
            _ => {}
        }
        ended
    }
}
