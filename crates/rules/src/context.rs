//! Inputs of expressions.

use super::log::Record;
use manylane_config::table::Ruleset;
use manylane_expr::{
    ClientInfo, Data, Direction, Env, Format, LogInfo, ProxyId, ProxyInfo, RequestLine, Scratch, ServerInfo,
    Settings, StickTables, StreamInfo, StreamSetting, TlsInfo, Type, VariableLimits,
};
use manylane_http::Head;
use manylane_lanes::{
    CapturesOf, Greeting, LONGEST_ID, Local, Memory, Parties, Peers, Scopes, StreamText, TableView,
    current_of, digits, table_millis as millis_of,
};
use manylane_plan::Side;
use manylane_plan::clock::now;
use manylane_plan::generation::{
    Backend, BackendTimeouts, Frontend, Listener, MOST_POOL_NAMES, Server, TimeoutOf,
};
use manylane_tls::{Info, OwnCertificate, Verified};
use std::cell::RefCell;
use std::time::Duration;

/// Inputs of rules that stay the same during a session or request.
pub struct EvalContext<'a> {
    /// The lane's state for the generation.
    pub local: &'a Local,
    /// The client's frontend.
    pub frontend: &'a Frontend,
    /// The listener that accepted the client.
    pub listener: &'a Listener,
    /// Addresses of the client's connection.
    pub peers: Peers,
    /// Fields of the PROXY header, if there was one.
    pub greeting: Option<&'a Greeting>,
    /// Result of the client's TLS handshake.
    pub tls: Option<&'a Info>,
    /// True for the first request of its connection.
    pub first_request: bool,
    /// The client's connection speaks HTTP.
    pub http: bool,
    /// What earlier rules have left.
    pub scopes: &'a Scopes,
    /// Log record of the stream; `None` if nothing reads it.
    pub course: Option<&'a RefCell<Option<Record>>>,
}

impl EvalContext<'_> {
    /// Returns whom events of the client's part of the stream concern.
    #[inline]
    pub fn parties(&self) -> Parties<'_> {
        Parties {
            tracks: Some((&self.scopes.tracks, &self.local.io)),
            ..Parties::client(&self.local.generation, self.frontend, self.listener)
        }
    }

    /// Counts a failed edit of a head.
    pub(super) fn rewrite_failed(&self, phase: EvalPhase<'_>) {
        let EvalPhase { backend, server, .. } = phase;
        Parties { backend, server, ..self.parties() }.rewrite_failed();
    }
}

/// Inputs of rules that depend on the phase of the exchange.
#[derive(Clone, Copy, Default)]
pub struct EvalPhase<'a> {
    /// Head of the request.
    pub request: Option<&'a Head>,
    /// Head of the response.
    pub response: Option<&'a Head>,
    /// The backend, once it is chosen.
    pub backend: Option<&'a Backend>,
    /// The server, once it is chosen.
    pub server: Option<&'a Server>,
    /// The received part of the request's body, or of the client's bytes.
    pub request_data: Data<'a>,
    /// The received part of the response's body, or of the server's bytes.
    pub response_data: Data<'a>,
    /// Direction of the bytes that the rules read; set where there may be no head.
    pub side: Option<Direction>,
    /// More bytes may arrive, and the caller waits for them.
    pub may_grow: bool,
    /// Values that only log lines have.
    pub log: Option<&'a LogInfo<'a>>,
}

impl<'a> EvalPhase<'a> {
    /// Returns the phase with `head` as the message of a list of rules.
    #[inline]
    pub(super) fn about(self, list: Ruleset, head: Option<&'a Head>) -> Self {
        match list {
            Ruleset::TcpResponseContent | Ruleset::HttpResponse | Ruleset::HttpAfterResponse => {
                Self { response: head, ..self }
            }
            _ => Self { request: head, ..self },
        }
    }

    /// Returns the direction of the message that the rules are about.
    pub(super) fn direction(&self) -> Direction {
        let at_end = self.log.is_some() && self.request.is_none();
        match self.side {
            Some(direction) => direction,
            None if self.response.is_some() || at_end => Direction::Response,
            None => Direction::Request,
        }
    }
}

/// Returns a proxy in the form of samples.
pub fn proxy_info<'a>(id: u32, name: &'a str, default_backend: &'a [u8]) -> ProxyInfo<'a> {
    ProxyInfo { id: id.into(), name: name.as_bytes(), default_backend }
}

/// Returns the result of a TLS handshake in the form of samples.
pub fn tls_info(info: &Info) -> TlsInfo<'_> {
    let failed = info.failed.unwrap_or_default();
    let verified = info.verified;
    // Without a verdict about a chain, samples get the reason that rustls gave for the failure.
    let either = |error| if verified == Verified::default() { failed.verify } else { error };
    TlsInfo {
        shown: info.shown.as_ref().and_then(OwnCertificate::der),
        error: failed.code,
        error_text: failed.text,
        verify: either(verified.result),
        certificate_error: either(verified.certificate),
        authority_error: verified.authority,
        authority_depth: verified.authority_depth,
        version: info.version,
        cipher: info.cipher,
        key_bits: info.key_bits.into(),
        curve: info.curve,
        alpn: info.alpn.as_deref(),
        name: info.name.as_deref().map(str::as_bytes),
        resumed: info.resumed,
        early: info.early.get(),
        early_received: info.early_received,
        certificate: info.certificate.as_deref(),
        issuers: &info.issuers,
        secrets: info.secrets.as_ref().map_or(&[], |secrets| secrets.all()),
        hello: info.hello.as_ref().map_or(&[], |hello| hello.all()),
        server_random: info.server_random.as_ref(),
        session_id: &info.session_id,
    }
}

/// Settings of a stream or a check, and of its proxies.
pub struct SettingsOf<'a> {
    pub(crate) frontend: Option<&'a Frontend>,
    pub(crate) backend: Option<&'a Backend>,
    /// Settings of rules.
    pub(crate) memory: Option<&'a Memory>,
}

impl<'a> SettingsOf<'a> {
    /// Settings of a check of a server in `backend`, for which no rule has run.
    pub fn of_check(backend: &'a Backend) -> Self {
        Self { frontend: None, backend: Some(backend), memory: None }
    }
}

impl SettingsOf<'_> {
    fn value(&self, which: StreamSetting, memory: Option<&Memory>) -> Option<i64> {
        let set = |of: TimeoutOf| memory.and_then(|memory| memory.timeout(of).get());
        let of_backend = |of: TimeoutOf, usual: fn(&BackendTimeouts) -> Option<Duration>| match set(of) {
            Some(time) => Some(Some(time)),
            None => self.backend.map(|backend| usual(&backend.timeouts)),
        };
        let time = match which {
            StreamSetting::ClientTimeout => match set(TimeoutOf::Client) {
                Some(time) => Some(time),
                None => self.frontend?.timeouts.client,
            },
            StreamSetting::ConnectTimeout => of_backend(TimeoutOf::Connect, |usual| usual.connect)?,
            StreamSetting::QueueTimeout => of_backend(TimeoutOf::Queue, |usual| usual.queue)?,
            StreamSetting::ServerTimeout => of_backend(TimeoutOf::Server, |usual| usual.server)?,
            StreamSetting::TunnelTimeout => of_backend(TimeoutOf::Tunnel, |usual| usual.tunnel)?,
            StreamSetting::TarpitTimeout => match (set(TimeoutOf::Tarpit), self.backend) {
                (Some(time), _) => Some(time),
                (None, Some(backend)) => backend.timeouts.tarpit,
                (None, None) => self.frontend?.timeouts.tarpit,
            },
            StreamSetting::MaxRetries => {
                let set = memory.and_then(|memory| memory.retries.get());
                return set.or(self.backend.map(|backend| backend.retries)).map(i64::from);
            }
        };
        Some(time.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Settings for SettingsOf<'_> {
    fn of_proxy(&self, which: StreamSetting) -> Option<i64> {
        self.value(which, None)
    }

    fn of_stream(&self, which: StreamSetting) -> Option<i64> {
        self.value(which, self.memory)
    }
}

impl EvalContext<'_> {
    /// Calls `work` with an environment for expressions. Texts that expressions make are in the lane's
    /// scratch memory, which is valid only until this returns.
    pub fn with<R>(&self, phase: EvalPhase<'_>, work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R) -> R {
        // Samples may ask what has become of the stream so far.
        if phase.log.is_none() && self.course.is_some() && self.local.generation.reads_stream_record {
            return self.with_course(EvalPhase { side: Some(phase.direction()), ..phase }, work);
        }
        let memory = &self.scopes.memory;
        memory.with_line(|request_line| self.with_stream(phase, request_line, work))
    }

    fn with_stream<R>(
        &self,
        phase: EvalPhase<'_>,
        request_line: Option<RequestLine<'_>>,
        work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R,
    ) -> R {
        let generation = &*self.local.generation;
        let memory = &self.scopes.memory;
        if self.peers.socket.is_some() {
            memory.links.set_socket(Side::Client, self.peers.socket);
        }
        let default = self.frontend.default_backend.map(|number| &generation.backends[number]);
        let client = ClientInfo {
            source: memory.source.get().or(self.peers.source),
            destination: memory.destination.get().or(self.peers.destination),
            link_source: self.peers.link_source,
            link_destination: self.peers.link_destination,
            accepted: self.peers.accepted,
            frontend: proxy_info(
                self.frontend.id,
                &self.frontend.name,
                default.map_or(b"", |backend| backend.name.as_bytes()),
            ),
            listener: Some((ProxyId(self.frontend.number as u32), self.listener.index as u32)),
            listener_id: self.listener.id.into(),
            listener_name: self.listener.name.as_deref().unwrap_or_default().as_bytes(),
            http_major: i64::from(self.http) << u8::from(self.peers.http2),
            tls: self.tls.map(tls_info),
            proxied: self.peers.proxied,
            proxy_authority: self.greeting.and_then(|greeting| greeting.authority()),
            proxy_unique_id: self.greeting.and_then(|greeting| greeting.unique_id()),
            proxy_tlvs: self.greeting.map_or(&[], |greeting| &greeting.tlvs),
            first_request: self.first_request,
        };
        let backend = phase.backend;
        let (link_source, link_destination) = memory.link.get();
        let server_tls = memory.server_tls.borrow();
        let server = ServerInfo {
            source: link_source,
            destination: link_destination,
            tls: server_tls.as_deref().map(tls_info),
            backend: backend.map(|backend| proxy_info(backend.id, &backend.name, b"")),
            server: phase
                .server
                .filter(|server| !server.stands_in)
                .map(|server| (server.id.into(), server.name.as_bytes())),
            http_major: i64::from(self.http && backend.is_some()) << u8::from(memory.server_h2.get()),
            reused: memory.server_reused.get(),
        };
        let settings = SettingsOf { frontend: Some(self.frontend), backend, memory: Some(memory) };
        let texts = memory.texts.borrow();
        let captures = CapturesOf { slots: &self.frontend.captures, memory };
        let stream = StreamInfo {
            unique_id: texts.get(StreamText::UniqueId as usize),
            captures: Some(&captures),
            request_line,
            response_line: memory.response.get().map(|(version, status)| (digits(version), status)),
            server_status: memory.server_status.get(),
            priority_class: memory.priority_class.get().into(),
            priority_offset: memory.priority_offset.get().into(),
            last_rule: memory.last_rule.get().and_then(|line| {
                let (file, line) = generation.expressions.lines.get(line as usize)?;
                Some((&**file, i64::from(*line)))
            }),
        };
        let reader = self.local.reader();
        let tables = &*self.local.tables;
        let view = (!tables.is_empty()).then(|| TableView {
            tables,
            tracks: &self.scopes.tracks,
            now: millis_of(self.local.here().now()),
        });
        let env = Env {
            now,
            zone: &generation.zone,
            direction: phase.direction(),
            is_final: !phase.may_grow,
            request: phase.request,
            response: phase.response,
            request_data: phase.request_data,
            response_data: phase.response_data,
            client: &client,
            server: &server,
            links: Some(&memory.links),
            settings: Some(&settings),
            stream: &stream,
            log: phase.log,
            tables: view.as_ref().map(|view| view as &dyn StickTables),
            variables: manylane_expr::Scopes {
                process: Some(&generation.expressions.process),
                session: Some(self.scopes.session()),
                transaction: Some(&self.scopes.transaction),
                request: Some(&self.scopes.request),
                response: Some(&self.scopes.response),
                check: None,
                limits: VariableLimits { lanes: self.local.lanes(), ..generation.process.variable_limits },
            },
            reader: &reader,
            host: self.local,
        };
        let mut memory = self.local.memory.borrow_mut();
        work(&env, &mut memory.scratch())
    }
}

impl EvalContext<'_> {
    /// Calls `work` with the text of a format, or with `None` if the text does not fit.
    pub fn text<R>(&self, phase: EvalPhase<'_>, format: &Format, work: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let text = |env: &Env<'_>, scratch: &mut Scratch<'_>| work(format.eval(env, scratch));
        if format.has_aliases() && phase.log.is_none() {
            self.with_course(phase, text)
        } else {
            self.with(phase, text)
        }
    }

    /// Like [`with`](Self::with), with the log line's values as far as they are known.
    pub(crate) fn with_course<R>(
        &self,
        phase: EvalPhase<'_>,
        work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R,
    ) -> R {
        let known = self.log_info(phase.backend, phase.server);
        let record = self.course.map(RefCell::borrow);
        match record.as_deref() {
            Some(Some(record)) => record.with(self, known, self.local.here().now(), |log| {
                self.with(EvalPhase { log: Some(log), ..phase }, work)
            }),
            _ => self.with(EvalPhase { log: Some(&known), ..phase }, work),
        }
    }

    /// Makes the unique id, if the frontend has a format for it and this stream has no id yet.
    pub fn make_id(&self, head: Option<&Head>) {
        let memory = &self.scopes.memory;
        let Some(format) = &self.frontend.http.unique_id else { return };
        if memory.texts.borrow().get(StreamText::UniqueId as usize).is_some() {
            return;
        }
        let mut id = [0; LONGEST_ID];
        let phase = EvalPhase { request: head, ..EvalPhase::default() };
        let length = self.text(phase, format, |text| {
            let text = text.unwrap_or_default();
            let length = text.len().min(LONGEST_ID);
            id[..length].copy_from_slice(&text[..length]);
            length
        });
        memory.texts.borrow_mut().set(StreamText::UniqueId as usize, &id[..length]);
    }

    /// Calls `work` with the unique id, if there is one.
    pub fn unique_id<R>(&self, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.scopes.memory.texts.borrow().get(StreamText::UniqueId as usize).map(work)
    }

    /// Returns the values of `pool-conn-name`, hashed, which keep idle connections apart.
    pub fn pool_names(&self, phase: EvalPhase<'_>, backend: &Backend) -> [Option<u64>; MOST_POOL_NAMES] {
        let mut names = [None; MOST_POOL_NAMES];
        for (name, expression) in names.iter_mut().zip(&backend.pool_names) {
            *name = self.with(phase, |env, scratch| {
                let mut scratch = scratch.reborrow();
                let value = expression.eval_as(Type::Bin, env, &mut scratch).ok()?;
                Some(Local::hash(value.bytes()?))
            });
        }
        names
    }

    /// Returns the values of the backend's expressions, if any server uses one as its server name in TLS.
    /// Needed for a new connection.
    pub fn server_names(&self, phase: EvalPhase<'_>, backend: &Backend) -> Vec<Option<Box<str>>> {
        if !backend.servers.iter().any(|server| server.evaluated_name().is_some()) {
            return Vec::new();
        }
        let text = |expression: &manylane_expr::Expression| {
            self.with(phase, |env, scratch| {
                let mut scratch = scratch.reborrow();
                let value = expression.eval_as(Type::Bin, env, &mut scratch).ok()?;
                std::str::from_utf8(value.bytes()?).ok().map(Box::from)
            })
        };
        backend.pool_names.iter().map(text).collect()
    }

    /// Returns the values of aliases that do not depend on the log record: the numbers and dates of the
    /// stream, and current connections.
    pub(crate) fn log_info(&self, backend: Option<&Backend>, server: Option<&Server>) -> LogInfo<'static> {
        let memory = &self.scopes.memory;
        let began = self.frontend.counts.read_cheap_one(|counts| &counts.connections);
        let over = self.frontend.counts.read_cheap_one(|counts| &counts.connections_ended);
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let current = number(began.saturating_sub(over));
        LogInfo {
            request_date: memory.begun.get(),
            request_count: memory.number.get(),
            process_id: self.local.pid,
            status: memory.response.get().map_or(-1, |(_, status)| status.into()),
            frontend_connections: current,
            backend_connections: backend.map_or(0, |backend| number(current_of(backend))),
            server_connections: backend.zip(server).map_or(0, |(backend, server)| {
                let index = backend.balancer.servers().index(server.index);
                index.map_or(0, |index| number(backend.balancer.load(index)))
            }),
            ..LogInfo::default()
        }
    }
}
