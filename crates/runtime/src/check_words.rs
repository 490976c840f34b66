//! Evaluates the expressions of health checks.

use manylane_balance::Index;
use manylane_check::{CheckInput, Evaluate, HealthState, Setting, Value as To};
use manylane_expr::{
    ClientInfo, Data, Direction, Env, Expression, Format, LogInfo, Scratch, ServerInfo, StreamInfo, Value,
    VariableLimits, Variables,
};
use manylane_lanes::{Local, current_of};
use manylane_net::{Connection, Endpoint};
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, Server, ServerCheck};
use manylane_rules::{SettingsOf, proxy_info, tls_info};
use manylane_tls::Info;
use std::cell::RefCell;
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;

/// Input of one check's expressions: its server, its connection, its variables.
pub(super) struct CheckWords<'a> {
    local: &'a Local,
    backend: &'a Backend,
    index: Index,
    check: &'a ServerCheck,
    /// Local and remote address of the connection.
    ends: (Option<SocketAddr>, Option<SocketAddr>),
    /// Result of the TLS handshake.
    tls: Option<Rc<Info>>,
    session: RefCell<Variables>,
    own: RefCell<Variables>,
}

impl<'a> CheckWords<'a> {
    pub(super) fn new(local: &'a Local, backend: &'a Backend, index: Index, check: &'a ServerCheck) -> Self {
        Self {
            local,
            backend,
            index,
            check,
            ends: (None, None),
            tls: None,
            session: RefCell::default(),
            own: RefCell::default(),
        }
    }

    /// Takes the addresses and the TLS state of a new connection.
    pub(super) fn connected(&mut self, connection: &Connection) {
        use manylane_io::socket::{local_address, peer_address};
        self.tls = connection.tls().and_then(|tls| tls.info().cloned());
        let Some(stream) = connection.socket() else { return self.ends = (None, None) };
        let address = |address: Result<manylane_io::SocketAddrAny, _>| {
            address.ok().and_then(|address| SocketAddr::try_from(address).ok())
        };
        self.ends = (address(local_address(stream.as_fd())), address(peer_address(stream.as_fd())));
    }

    fn server(&self) -> &'a Server {
        &self.backend.servers[self.index.get()]
    }

    fn with<R>(&self, input: CheckInput<'_>, work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R) -> R {
        let (local, backend) = (self.local, self.backend);
        let generation = &*local.generation;
        let bytes = input.chain();
        let answer = Data {
            bytes: (!input.bytes.is_empty()).then_some(&bytes),
            complete: true,
            announced: None,
            is_body: input.http,
        };
        let server = ServerInfo {
            reused: false,
            source: self.ends.0,
            destination: self.ends.1,
            tls: self.tls.as_deref().map(tls_info),
            backend: Some(proxy_info(backend.id, &backend.name, b"")),
            server: Some((self.server().id.into(), self.server().name.as_bytes())),
            http_major: i64::from(input.http),
        };
        let (client, stream) = (ClientInfo::default(), StreamInfo::default());
        let log = LogInfo { request_date: now(), process_id: local.pid, ..LogInfo::default() };
        let reader = local.reader();
        let env = Env {
            direction: Direction::Response,
            response: input.head,
            response_data: answer,
            settings: Some(&SettingsOf::of_check(backend)),
            log: Some(&log),
            variables: manylane_expr::Scopes {
                process: Some(&generation.expressions.process),
                session: Some(&self.session),
                check: Some(&self.own),
                limits: VariableLimits { lanes: local.lanes(), ..generation.process.variable_limits },
                ..manylane_expr::Scopes::default()
            },
            ..Env::without_stream(now, &generation.zone, (&client, &server, &stream), &reader, local)
        };
        let mut memory = local.memory.borrow_mut();
        work(&env, &mut memory.scratch())
    }
}

impl Evaluate for CheckWords<'_> {
    fn text(&mut self, format: &Format, input: CheckInput<'_>) -> Vec<u8> {
        self.with(input, |env, scratch| format.eval(env, scratch).unwrap_or_default().to_vec())
    }

    fn number(&mut self, expression: &Expression, input: CheckInput<'_>) -> Option<i64> {
        self.with(input, |env, scratch| {
            if let Some(number) = expression.eval_int(env, &mut scratch.reborrow()) {
                return Some(number);
            }
            // Bytes of a server do not have the type of a number, but may begin with the digits of one.
            let mut scratch = scratch.reborrow();
            let text = expression.eval_text(env, &mut scratch)?;
            let digits = text.iter().position(|byte| !byte.is_ascii_digit()).map_or(text, |end| &text[..end]);
            std::str::from_utf8(digits).ok()?.parse().ok()
        })
    }

    fn set(&mut self, setting: &Setting, input: CheckInput<'_>) {
        self.with(input, |env, scratch| {
            let mut scratch = scratch.reborrow();
            let value = match &setting.to {
                To::Nothing => {
                    env.variables.set(setting.id, None);
                    return;
                }
                To::Of(expression) => expression.eval(env, &mut scratch).ok().map(|sample| sample.value),
                To::Format(format) => format.eval(env, &mut scratch).map(Value::Str),
            };
            let Some(value) = value else { return };
            let old = env.variables.get(setting.id, env.reader, &mut scratch);
            if setting.when.holds(setting.id, old, value) {
                env.variables.set(setting.id, Some(value));
            }
        });
    }

    /// Returns the server's state in HAProxy's format, which other programs parse.
    fn state(&mut self) -> Vec<u8> {
        let (backend, server) = (self.backend, self.server());
        let servers = backend.balancer.servers();
        let health = self.check.board.read().health;
        let (progress, of) = health.progress();
        let settled = health.is_settled();
        let mut text = match (health.running(), settled) {
            (HealthState::Down, true) => "DOWN".to_owned(),
            (HealthState::Down, false) => format!("DOWN {progress}/{of}"),
            (HealthState::Up, true) => "UP".to_owned(),
            (HealthState::Up, false) => format!("UP {progress}/{of}"),
            (HealthState::Stopping, true) => "NOLB".to_owned(),
            (HealthState::Stopping, false) => format!("NOLB {progress}/{of}"),
        };
        let (ip, port) = match server.addr.read().endpoint() {
            Some(Endpoint::Ip(address)) => (address.ip().to_string(), address.port().to_string()),
            Some(Endpoint::Unix(_) | Endpoint::Abstract(_)) => ("unix".to_owned(), String::new()),
            _ => (String::new(), String::new()),
        };
        let usable = servers.iter().any(|(_, server)| !server.spec().backup && server.state().is_usable());
        let waiting = u64::from(backend.balancer.waiting(self.index));
        let _ = write!(
            text,
            "; address={ip}; port={port}; name={}/{}; node={}; weight={}/{}; scur={}/{}; qcur={waiting}",
            backend.name,
            server.name,
            self.local.generation.node(),
            servers[self.index].state().weight(),
            servers.total_weight(!usable),
            backend.balancer.load(self.index).saturating_sub(waiting),
            current_of(backend).saturating_sub(backend.balancer.waiting_for_any()),
        );
        text.into_bytes()
    }
}
