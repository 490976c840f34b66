//! `show stat`.

use super::Call;
use super::columns::{COLUMNS, Column, begins_protocols, header};
use super::values::{Field, Form, Value};
use crate::reply::ReplyError;
use crate::walk::{Sides, Step, Walk};
use manylane_balance::{Admin, Availability, Index, Operation, WEIGHT_SCALE};
use manylane_check::{CheckResult, Health, Report, Status};
use manylane_config::tree::Mode;
use manylane_net::Endpoint;
use manylane_plan::Generation;
use manylane_plan::generation::{Backend, Frontend, FrontendGateState, Listener, Server, ServerAddress};
use manylane_plan::meter::{Meter, MeterSnapshot, MeteredCounters};
use manylane_plan::pages::{PART, Parts};
use manylane_sched::Time;
use manylane_sync::{Arc, Reader};
use std::fmt::Write;
use std::net::SocketAddr;

use Value::{Number32, Number64, Text};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Frontend = 0,
    Backend = 1,
    Server = 2,
    Listener = 3,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Self::Frontend => 'F',
            Self::Backend => 'B',
            Self::Server => 'S',
            Self::Listener => 'L',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Frontend => "Frontend",
            Self::Backend => "Backend",
            Self::Server => "Server",
            Self::Listener => "Listener",
        }
    }
}

/// A mode, in HAProxy's word for it.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tcp => "tcp",
        Mode::Http => "http",
        Mode::Log => "syslog",
    }
}

/// A line: a value for each column, or none.
pub(crate) struct Line {
    kind: Kind,
    proxy: u32,
    server: u32,
    pub(crate) values: Vec<Option<Value>>,
}

impl Line {
    fn new(kind: Kind, proxy: (u32, &str), server: (u32, &str), mode: Mode) -> Self {
        let mut line =
            Self { kind, proxy: proxy.0, server: server.0, values: COLUMNS.iter().map(|_| None).collect() };
        line.set(Column::Pxname, Text(proxy.1.into()));
        line.set(Column::Svname, Text(server.1.into()));
        line.set(Column::Pid, Number32(1));
        line.set(Column::Iid, Number32(proxy.0));
        line.set(Column::Sid, Number32(server.0));
        line.set(Column::Type, Number32(kind as u32));
        line.set(Column::Mode, Text(self::mode(mode).into()));
        line
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn value(&self, column: Column) -> Option<&Value> {
        self.values[column as usize].as_ref()
    }

    fn set(&mut self, column: Column, value: Value) {
        self.values[column as usize] = Some(value);
    }

    fn count(&mut self, column: Column, n: u64) {
        self.set(column, Number64(n));
    }

    /// Sets all protocol columns to 0.
    fn protocols(&mut self) {
        for value in &mut self.values[PROTOCOLS] {
            *value = Some(Number64(0));
        }
    }

    fn gauge(&mut self, column: Column, n: u64) {
        self.set(column, Value::gauge32(n));
    }
}

/// The columns of protocols.
const PROTOCOLS: std::ops::RangeInclusive<usize> =
    Column::SslSess as usize..=Column::H1SplicedBytesOut as usize;
/// The protocol columns that only frontends have.
const OF_FRONTENDS: std::ops::RangeInclusive<usize> =
    Column::H3Data as usize..=Column::QuicStreamsBlockedUni as usize;
/// The columns that frontends count by protocol.
const SESSIONS: std::ops::RangeInclusive<usize> = Column::SessOther as usize..=Column::H3req as usize;

/// Sums of a counter group. Each lane's slots are read once for all columns.
struct Sums {
    names: &'static [&'static str],
    /// Since the start; for differences.
    all: Vec<u64>,
    /// Since counters were cleared.
    counted: Vec<u64>,
    /// The largest value among the lanes; for peaks of times.
    largest: Vec<u64>,
    figures: MeterSnapshot,
}

impl Sums {
    fn of<C: MeteredCounters>(counted: &Meter<C>) -> Self {
        let (mut all, mut largest) = (vec![0u64; C::NAMES.len()], vec![0u64; C::NAMES.len()]);
        for (_, values) in counted.lanes() {
            for (index, value) in values.into_iter().enumerate() {
                all[index] = all[index].wrapping_add(value);
                largest[index] = largest[index].max(value);
            }
        }
        let since = counted.since_cleared(&all);
        let figures = counted.figures(Time::now());
        Self { names: C::NAMES, all, counted: since, largest, figures }
    }

    fn of_name(&self, values: &[u64], name: &str) -> u64 {
        let index = self.names.iter().position(|own| *own == name);
        debug_assert!(index.is_some(), "there is no counter '{name}'");
        index.map_or(0, |position| values[position])
    }

    fn get(&self, name: &str) -> u64 {
        self.of_name(&self.counted, name)
    }

    /// The count of `all` less the count of `some`.
    fn without(&self, all: &str, some: &str) -> u64 {
        self.get(all).saturating_sub(self.get(some))
    }

    /// Fills the columns of HTTP/2. Returns its open connections and streams.
    fn http2(&self, line: &mut Line) -> (u64, u64) {
        let connections = self.now("h2_connections", "h2_connections_ended");
        let streams = self.now("h2_streams", "h2_streams_ended");
        line.count(Column::H2OpenConnections, connections);
        line.count(Column::H2BackendOpenStreams, streams);
        self.fill(
            line,
            &[
                (Column::H2TotalConnections, "h2_connections"),
                (Column::H2BackendTotalStreams, "h2_streams"),
                (Column::H2HeadersRcvd, "h2_headers"),
                (Column::H2DataRcvd, "h2_data"),
                (Column::H2SettingsRcvd, "h2_settings"),
                (Column::H2RstStreamRcvd, "h2_rst_stream"),
                (Column::H2GoawayRcvd, "h2_goaway"),
                (Column::H2DetectedConnProtocolErrors, "h2_connection_errors"),
                (Column::H2DetectedStrmProtocolErrors, "h2_stream_errors"),
                (Column::H2RstStreamResp, "h2_rst_stream_sent"),
                (Column::H2GoawayResp, "h2_goaway_sent"),
            ],
        );
        (connections, streams)
    }

    /// Fills the columns of TLS.
    fn tls(&self, line: &mut Line) {
        let columns = [
            (Column::SslSess, "tls_sessions"),
            (Column::SslReusedSess, "tls_resumed"),
            (Column::SslFailedHandshake, "tls_failed"),
        ];
        self.fill(line, &columns);
        line.count(Column::SslOcspStaple, 0);
        line.count(Column::SslFailedOcspStaple, 0);
    }

    /// The largest value among the lanes.
    fn largest(&self, name: &str) -> u64 {
        self.of_name(&self.largest, name)
    }

    /// Begun less ended.
    fn now(&self, began: &str, ended: &str) -> u64 {
        self.of_name(&self.all, began).saturating_sub(self.of_name(&self.all, ended))
    }

    /// The peak of concurrent connections or streams. The sum of the lanes' peaks may exceed it, since lanes
    /// peak at different times, so it is capped at `limit`. The limit may have been lowered, so the result is
    /// at least `now`.
    fn peak(&self, name: &str, limit: u64, now: u64) -> u64 {
        let sum = self.of_name(&self.all, name);
        if limit > 0 { sum.min(limit).max(now) } else { sum }
    }

    fn fill(&self, line: &mut Line, columns: &[(Column, &str)]) {
        for (column, name) in columns {
            line.count(*column, self.get(name));
        }
    }

    /// Sets the seconds since the last stream; -1 if there was none.
    fn last(&self, line: &mut Line) {
        let since = |time: Time| Time::now().since(time).as_secs();
        let value =
            self.figures.last.map_or(Value::Signed(-1), |time| Value::Signed(since(time).cast_signed()));
        line.set(Column::Lastsess, value);
    }

    /// Times of streams, in milliseconds.
    fn times(&self, line: &mut Line) {
        let means = [Column::Qtime, Column::Ctime, Column::Rtime, Column::Ttime];
        for (index, column) in means.into_iter().enumerate() {
            line.gauge(column, self.figures.means[index].round() as u64);
        }
        for (column, name) in [
            (Column::QtimeMax, "peak_queue_ms"),
            (Column::CtimeMax, "peak_connect_ms"),
            (Column::RtimeMax, "peak_response_ms"),
            (Column::TtimeMax, "peak_total_ms"),
        ] {
            line.gauge(column, self.largest(name));
        }
    }
}

const RESPONSES: &[(Column, &str)] = &[
    (Column::Hrsp1xx, "responses_1xx"),
    (Column::Hrsp2xx, "responses_2xx"),
    (Column::Hrsp3xx, "responses_3xx"),
    (Column::Hrsp4xx, "responses_4xx"),
    (Column::Hrsp5xx, "responses_5xx"),
    (Column::HrspOther, "responses_other"),
];

/// The line of a frontend.
pub(crate) fn frontend(frontend: &Frontend, process_most: u64) -> Line {
    let mut line = Line::new(Kind::Frontend, (frontend.id, &frontend.name), (0, "FRONTEND"), frontend.mode);
    let sums = Sums::of(&frontend.counts);
    line.gauge(Column::Scur, sums.now("connections", "connections_ended"));
    let own = frontend.conn_limit.most();
    let limit = if own == 0 { process_most } else { own };
    line.gauge(Column::Slim, limit);
    line.gauge(Column::Smax, sums.peak("peak_sessions", limit, sums.now("connections", "connections_ended")));
    let MeterSnapshot { rates, most, .. } = &sums.figures;
    line.gauge(Column::Rate, rates[0]);
    line.gauge(Column::RateMax, most[0]);
    line.gauge(Column::RateLim, frontend.rate.most());
    line.gauge(Column::ConnRate, rates[0]);
    line.gauge(Column::ConnRateMax, most[0]);
    for unused in [Column::CompIn, Column::CompOut, Column::CompByp, Column::CompRsp] {
        line.count(unused, 0); // nothing is compressed
    }
    let status = match frontend.gate.state() {
        FrontendGateState::Open => "OPEN",
        FrontendGateState::Paused => "PAUSED",
        FrontendGateState::Shut => "STOP",
    };
    line.set(Column::Status, Text(status.into()));
    sums.fill(
        &mut line,
        &[
            (Column::Stot, "sessions_admitted"),
            (Column::Bin, "bytes_in"),
            (Column::Bout, "bytes_out"),
            (Column::Dreq, "requests_denied"),
            (Column::Dresp, "responses_denied"),
            (Column::Ereq, "request_errors"),
            (Column::ConnTot, "connections"),
            (Column::Dcon, "connections_denied"),
            (Column::Dses, "sessions_denied"),
            (Column::Eint, "internal_errors"),
            (Column::Wrew, "failed_rewrites"),
            (Column::ReqTot, "requests"),
        ],
    );
    for protocol in SESSIONS {
        line.values[protocol] = Some(Number64(0));
    }
    if frontend.mode == Mode::Http {
        line.count(Column::H1sess, sums.without("sessions_admitted", "h2_only"));
        line.count(Column::H1req, sums.without("requests", "h2_requests"));
        sums.fill(&mut line, &[(Column::H2sess, "h2_connections"), (Column::H2req, "h2_requests")]);
    } else {
        sums.fill(&mut line, &[(Column::SessOther, "sessions_admitted")]);
    }
    line.gauge(Column::ReqRate, rates[1]);
    line.gauge(Column::ReqRateMax, most[1]);
    line.protocols();
    sums.tls(&mut line);
    if frontend.mode == Mode::Http {
        sums.fill(&mut line, RESPONSES);
        let (connections, streams) = sums.http2(&mut line);
        line.count(
            Column::H1OpenConnections,
            sums.now("sessions", "sessions_ended").saturating_sub(connections),
        );
        line.count(Column::H1OpenStreams, sums.now("streams", "streams_ended").saturating_sub(streams));
        line.count(Column::H1TotalConnections, sums.without("sessions_admitted", "h2_only"));
        line.count(Column::H1TotalStreams, sums.without("streams", "h2_requests"));
        line.count(Column::H1BytesOut, sums.get("bytes_out") + sums.get("sent_early"));
        sums.fill(
            &mut line,
            &[
                (Column::H1BytesIn, "received"),
                (Column::H1SplicedBytesIn, "spliced_in"),
                (Column::H1SplicedBytesOut, "spliced_out"),
            ],
        );
        line.count(Column::Intercepted, sums.get("intercepted"));
        line.count(Column::CacheLookups, 0); // there is no cache
        line.count(Column::CacheHits, 0);
    }
    line
}

/// The line of a listener, for frontends with `option socket-stats`. Columns that only frontends count stay
/// empty, as with HAProxy.
pub(crate) fn listener(frontend: &Frontend, own: &Listener) -> Line {
    let name = own.name.as_deref().unwrap_or_default();
    let mut line = Line::new(Kind::Listener, (frontend.id, &frontend.name), (own.id, name), frontend.mode);
    let sums = Sums::of(&own.counts);
    line.gauge(Column::Scur, sums.now("connections", "connections_ended"));
    let limit = own.conn_limit.most();
    line.gauge(Column::Slim, limit);
    line.gauge(Column::Smax, sums.peak("peak_sessions", limit, sums.now("connections", "connections_ended")));
    line.set(Column::Status, Text(if own.conn_limit.is_full() { "FULL" } else { "OPEN" }.into()));
    sums.fill(
        &mut line,
        &[
            (Column::Stot, "sessions_admitted"),
            (Column::ConnTot, "connections"),
            (Column::Bin, "bytes_in"),
            (Column::Bout, "bytes_out"),
            (Column::Dreq, "requests_denied"),
            (Column::Dresp, "responses_denied"),
            (Column::Ereq, "request_errors"),
            (Column::Dcon, "connections_denied"),
            (Column::Dses, "sessions_denied"),
            (Column::Eint, "internal_errors"),
            (Column::Wrew, "failed_rewrites"),
        ],
    );
    sums.tls(&mut line);
    let proto = match &own.endpoint {
        Endpoint::Ip(SocketAddr::V4(_)) => "tcpv4",
        Endpoint::Ip(SocketAddr::V6(_)) => "tcpv6",
        Endpoint::Unix(_) => "unix_stream",
        Endpoint::Abstract(_) => "abns_stream",
        Endpoint::SocketPair(_) => "sockpair",
        Endpoint::Local(_) => "local",
        Endpoint::Descriptor(_) => "fd",
    };
    line.set(Column::Proto, Text(proto.into()));
    if let Some(address) = address(&ServerAddress::At(own.endpoint.clone())) {
        line.set(Column::Addr, Text(address));
    }
    line
}

/// `status` of a server.
///
/// `health` is that of the checked server: the end of the chain if the server tracks another one, which `via`
/// names.
pub(crate) fn status(
    standing: Availability,
    health: Option<&Health>,
    agent: Option<&Health>,
    via: Option<&str>,
) -> String {
    let word = match (standing.admin(), standing.operation) {
        (Admin::Maintenance, _) if standing.inherited == Admin::Maintenance => {
            return format!("MAINT (via {})", via.unwrap_or_default());
        }
        (Admin::Maintenance, _) if standing.unresolved && standing.own != Admin::Maintenance => {
            return "MAINT (resolution)".into();
        }
        (Admin::Maintenance, _) => return "MAINT".into(),
        (_, Operation::Down) if agent.is_some_and(|agent| agent.value() == 0) => {
            return "DOWN (agent)".into();
        }
        (_, Operation::Down) => "DOWN",
        (Admin::Drain, _) if agent.is_some() => return "DRAIN (agent)".into(),
        (Admin::Drain, _) => "DRAIN",
        (Admin::Ready, Operation::Stopping) => "NOLB",
        (Admin::Ready, Operation::Up) if health.is_none() => "no check",
        (Admin::Ready, Operation::Up) => "UP",
    };
    match health {
        // Between two states: shows the progress.
        Some(health) if !health.is_settled() => {
            let (left, of) = health.progress();
            format!("{word} {left}/{of}")
        }
        _ => word.into(),
    }
}

/// Sets the columns of health checks. A server in maintenance is not checked.
fn checked(line: &mut Line, report: &Report, in_maintenance: bool) {
    line.count(Column::Chkfail, report.failed);
    if report.paused || in_maintenance {
        return;
    }
    let CheckResult { status, code, info } = &report.result;
    let mark = if report.in_progress && *status != Status::Ini { "* " } else { "" };
    line.set(Column::CheckStatus, Text(format!("{mark}{}", status.name())));
    line.set(Column::CheckDesc, Text(status.description().into()));
    if !matches!(status, Status::Ini | Status::Hana) {
        line.count(Column::CheckDuration, report.took.as_millis() as u64);
    }
    if let Some(code) = code {
        line.gauge(Column::CheckCode, code.cast_unsigned() & u64::from(u32::MAX));
    }
    line.set(Column::LastChk, Text(info.to_string()));
    line.gauge(Column::CheckRise, report.health.rise().into());
    line.gauge(Column::CheckFall, report.health.fall().into());
    line.gauge(Column::CheckHealth, report.health.value().into());
}

/// Sets the columns of the agent check.
fn heard(line: &mut Line, report: &Report) {
    let CheckResult { status, code, info } = &report.result;
    let mark = if report.in_progress && *status != Status::Ini { "* " } else { "" };
    line.set(Column::AgentStatus, Text(format!("{mark}{}", status.name())));
    line.set(Column::AgentDesc, Text(status.description().into()));
    if *status != Status::Ini {
        line.count(Column::AgentDuration, report.took.as_millis() as u64);
    }
    if let Some(code) = code {
        line.gauge(Column::AgentCode, code.cast_unsigned() & u64::from(u32::MAX));
    }
    line.set(Column::LastAgt, Text(info.to_string()));
    line.gauge(Column::AgentRise, report.health.rise().into());
    line.gauge(Column::AgentFall, report.health.fall().into());
    line.gauge(Column::AgentHealth, report.health.value().into());
}

/// A server's address, as `show stat` shows it.
fn address(server_address: &ServerAddress) -> Option<String> {
    match server_address {
        ServerAddress::At(Endpoint::Unix(_) | Endpoint::Abstract(_)) => Some("unix".into()),
        ServerAddress::At(endpoint) => Some(endpoint.to_string()),
        ServerAddress::OfClient(_) | ServerAddress::Nowhere => None,
    }
}

/// The streams that a server has now, and their peak.
pub(super) fn streams(server: &Server, limit: u64) -> (u64, u64) {
    let sums = Sums::of(&server.counts);
    let now = sums.now("streams", "streams_ended");
    (now, sums.peak("peak_streams", limit, now))
}

/// The line of a server.
pub(crate) fn server(
    generation: &Generation,
    backend: &Backend,
    index: Index,
    server: &Server,
    reader: &Reader,
) -> Line {
    let mut line =
        Line::new(Kind::Server, (backend.id, &backend.name), (server.id, &server.name), backend.mode);
    let sums = Sums::of(&server.counts);
    // The checked server: the end of the chain if this one tracks another.
    let (_, root) = generation.server(generation.root_of(backend.number_of(index)));
    let report = root.check.as_ref().map(|check| check.board.read()).filter(|report| !report.disabled);
    let agent = root.agent.as_ref().map(|agent| agent.board.read()).filter(|report| !report.disabled);
    let past = server.past.read();
    let state = backend.balancer.servers()[index].state();
    let standing = state.standing();
    line.gauge(Column::Qcur, backend.balancer.waiting(index).into());
    let streams = sums.now("streams", "streams_ended");
    line.gauge(Column::Qmax, sums.largest("peak_waiting"));
    line.gauge(Column::Scur, streams);
    line.gauge(Column::Smax, sums.peak("peak_streams", state.maxconn().into(), streams));
    line.gauge(Column::Rate, sums.figures.rates[0]);
    line.gauge(Column::RateMax, sums.figures.most[0]);
    line.gauge(Column::UsedConnCur, streams);
    line.gauge(Column::SafeConnCur, 0); // idle connections are not divided into safe and unsafe
    line.gauge(Column::NeedConnEst, sums.figures.usual);
    sums.last(&mut line);
    sums.times(&mut line);
    if state.maxconn() > 0 {
        line.gauge(Column::Slim, state.maxconn().into());
    }
    if server.maxqueue > 0 {
        line.gauge(Column::Qlimit, server.maxqueue.into());
    }
    let via = server.tracks.map(|tracked| {
        let (backend, server) = generation.server(tracked);
        format!("{}/{}", backend.name, server.name)
    });
    let health = |report: &Option<Report>| report.as_ref().map(|report| report.health.clone());
    let word = status(standing, health(&report).as_ref(), health(&agent).as_ref(), via.as_deref());
    line.set(Column::Status, Text(word));
    if let Some(agent) = agent.filter(|_| via.is_none()) {
        heard(&mut line, &agent);
    }
    let now = Time::now().since(Time::ZERO);
    line.gauge(Column::Lastchg, now.saturating_sub(past.changed).as_secs());
    if let Some(report) = report.filter(|_| via.is_none()) {
        line.count(Column::Chkdown, past.downs);
        line.gauge(Column::Downtime, past.downtime(now).as_secs());
        checked(&mut line, &report, standing.is_in_maintenance());
    }
    if let Some(via) = via {
        line.set(Column::Tracked, Text(via));
    }
    line.gauge(Column::Weight, u64::from(state.effective_weight().div_ceil(WEIGHT_SCALE)));
    line.gauge(Column::Uweight, u64::from(state.weight()));
    if state.is_warming() {
        let percent =
            (100 * state.effective_weight()).div_ceil(WEIGHT_SCALE * u32::from(state.weight()).max(1));
        line.gauge(Column::Throttle, percent.min(100).into());
    }
    line.gauge(Column::Act, (!server.backup).into());
    line.gauge(Column::Bck, server.backup.into());
    if let Some(address) = address(server.addr.load(reader)) {
        line.set(Column::Addr, Text(address));
    }
    if let Some(cookie) = &server.cookie {
        line.set(Column::Cookie, Text(String::from_utf8_lossy(cookie).into_owned()));
    }
    let idle = backend.idle_pools.idle(index);
    line.gauge(Column::SrvIcur, idle);
    line.gauge(Column::IdleConnCur, idle);
    if let Some(most) = server.pool_max {
        line.gauge(Column::SrcIlim, most.into());
    }
    sums.fill(
        &mut line,
        &[
            (Column::Stot, "sessions"),
            (Column::Wrew, "failed_rewrites"),
            (Column::Bin, "bytes_in"),
            (Column::Bout, "bytes_out"),
            (Column::Econ, "connection_errors"),
            (Column::Eresp, "response_errors"),
            (Column::Wretr, "retries"),
            (Column::Wredis, "redispatches"),
            (Column::Lbtot, "chosen"),
            (Column::Connect, "connects"),
            (Column::Reuse, "reuses"),
            (Column::Dresp, "responses_denied"),
            (Column::CliAbrt, "client_aborts"),
            (Column::SrvAbrt, "server_aborts"),
            (Column::Eint, "internal_errors"),
        ],
    );
    if server.check.as_ref().is_some_and(|check| check.observed.is_some()) {
        line.count(Column::Hanafail, sums.get("health_errors"));
    }
    sums.tls(&mut line);
    if !server.added {
        line.gauge(Column::Srid, 0);
    }
    if backend.mode == Mode::Http {
        sums.fill(&mut line, RESPONSES);
        // HAProxy counts the responses of a server here.
        line.count(Column::ReqTot, RESPONSES.iter().map(|(_, name)| sums.get(name)).sum());
    }
    line
}

/// The line of a backend.
pub(crate) fn backend(backend: &Backend, form: Form) -> Line {
    let mut line = Line::new(Kind::Backend, (backend.id, &backend.name), (0, "BACKEND"), backend.mode);
    let sums = Sums::of(&backend.counts);
    let servers = backend.balancer.servers();
    let usable = |backups: bool| {
        servers
            .iter()
            .filter(|(_, server)| server.spec().backup == backups && server.state().is_usable())
            .count()
    };
    let (active, backups) = (usable(false), usable(true));
    line.gauge(Column::Qcur, backend.balancer.waiting_for_any());
    line.gauge(Column::Qmax, sums.largest("peak_waiting"));
    line.gauge(Column::Scur, sums.now("streams", "streams_ended"));
    line.gauge(Column::Smax, sums.peak("peak_streams", 0, 0));
    line.gauge(Column::Rate, sums.figures.rates[0]);
    line.gauge(Column::RateMax, sums.figures.most[0]);
    sums.last(&mut line);
    sums.times(&mut line);
    for unused in [Column::CompIn, Column::CompOut, Column::CompByp, Column::CompRsp] {
        line.count(unused, 0); // nothing is compressed
    }
    line.gauge(Column::Slim, backend.fullconn.into());
    let up = servers.is_empty() || active + backups > 0;
    let mut status = if up { "UP" } else { "DOWN" }.to_owned();
    if form.up || form.no_maintenance {
        let up = servers.iter().filter(|(_, server)| server.state().serves_its_own()).count();
        let _ = write!(status, " ({up}/{})", servers.len()); // only some servers are shown
    }
    line.set(Column::Status, Text(status));
    line.gauge(Column::Weight, servers.total_weight(active == 0).into());
    let counted = |server: &manylane_balance::Server| {
        server.spec().backup == (active == 0) && server.state().is_usable()
    };
    let weights = servers
        .iter()
        .filter(|(_, server)| counted(server))
        .map(|(_, server)| u64::from(server.state().weight()));
    line.gauge(Column::Uweight, weights.sum());
    for kept_for_exporters in [Column::AggServerStatus, Column::AggServerCheckStatus, Column::AggCheckStatus]
    {
        line.gauge(kept_for_exporters, 0);
    }
    line.gauge(Column::Act, active as u64);
    line.gauge(Column::Bck, backups as u64);
    let log_name = backend.algorithm.log_name.filter(|_| backend.mode == Mode::Log);
    line.set(Column::Algo, Text(log_name.unwrap_or(backend.algorithm.name).into()));
    sums.fill(
        &mut line,
        &[
            (Column::Stot, "streams"),
            (Column::Wrew, "failed_rewrites"),
            (Column::Bin, "bytes_in"),
            (Column::Bout, "bytes_out"),
            (Column::Dreq, "requests_denied"),
            (Column::Dresp, "responses_denied"),
            (Column::Econ, "connection_errors"),
            (Column::Eresp, "response_errors"),
            (Column::Wretr, "retries"),
            (Column::Wredis, "redispatches"),
            (Column::Connect, "connects"),
            (Column::Reuse, "reuses"),
            (Column::Lbtot, "chosen"),
            (Column::CliAbrt, "client_aborts"),
            (Column::SrvAbrt, "server_aborts"),
            (Column::Eint, "internal_errors"),
        ],
    );
    let now = Time::now().since(Time::ZERO);
    let past = backend.past.read();
    line.count(Column::Chkdown, past.downs);
    line.gauge(Column::Lastchg, now.saturating_sub(past.changed).as_secs());
    if backend.listed().next().is_some() {
        line.gauge(Column::Downtime, past.downtime(now).as_secs());
    }
    line.protocols();
    sums.tls(&mut line);
    line.values[OF_FRONTENDS].fill_with(|| None);
    if backend.mode == Mode::Http {
        if let Some(cookie) = &backend.http.cookie {
            line.set(Column::Cookie, Text(String::from_utf8_lossy(&cookie.name).into_owned()));
        }
        let at_work = sums.now("reached", "left");
        let (_, streams) = sums.http2(&mut line);
        let at_work = at_work.saturating_sub(streams);
        line.count(Column::H1OpenConnections, at_work + backend.idle_pools.idle_in_all());
        line.count(Column::H1OpenStreams, at_work);
        let begun = sums.get("connects") + sums.get("reuses");
        line.count(Column::H1TotalStreams, begun.saturating_sub(sums.get("h2_streams")));
        line.count(Column::H1TotalConnections, sums.without("connects", "h2_connections"));
        sums.fill(
            &mut line,
            &[
                (Column::H1BytesIn, "received"),
                (Column::H1BytesOut, "sent"),
                (Column::H1SplicedBytesIn, "spliced_in"),
                (Column::H1SplicedBytesOut, "spliced_out"),
            ],
        );
        sums.fill(&mut line, RESPONSES);
        line.count(Column::ReqTot, sums.get("requests"));
        line.count(Column::CacheLookups, 0); // there is no cache
        line.count(Column::CacheHits, 0);
    }
    line
}

/// The lines to show: `show stat [<proxy> <types> <server>]`. -1 or nothing means all. A server's number
/// selects among servers only; it hides neither frontends nor backends.
struct LineFilter {
    proxy: Option<String>,
    kinds: i64,
    server: i64,
}

impl LineFilter {
    /// Takes the three words off the front, if they are there.
    fn read(words: &[String]) -> (Self, &[String]) {
        if let [proxy, kinds, server, rest @ ..] = words
            && let (Ok(kinds), Ok(server)) = (kinds.parse(), server.parse())
        {
            return (Self { proxy: (proxy != "-1").then(|| proxy.clone()), kinds, server }, rest);
        }
        (Self { proxy: None, kinds: -1, server: -1 }, words)
    }

    fn proxy(&self, sides: Sides<'_>) -> bool {
        self.proxy.as_deref().is_none_or(|wanted| wanted == sides.name() || wanted.parse() == Ok(sides.id()))
    }

    /// True if the number of a server or listener is wanted.
    fn number(&self, id: u32) -> bool {
        self.server < 0 || self.server == i64::from(id)
    }

    /// True if no proxy has the wanted name. A number never counts as unknown.
    fn is_unknown(&self, generation: &Generation) -> bool {
        let named =
            self.proxy.as_deref().filter(|wanted| wanted.parse::<i64>().map_or(true, |number| number == 0));
        named.is_some_and(|wanted| {
            !generation.frontends.iter().any(|own| *own.name == *wanted)
                && !generation.backends.iter().any(|own| *own.name == *wanted)
        })
    }

    fn kind(&self, kind: Kind) -> bool {
        self.kinds < 0 || self.kinds & (1 << kind as i64) != 0
    }
}

pub(crate) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    match (call.word(0), call.word(1)) {
        ("domain", "proxy") => call.words = &call.words[2..],
        ("domain", "resolvers") => {
            super::resolvers::table(call);
            return Ok(());
        }
        ("domain", _) => {
            call.error("Invalid statistics domain.");
            return Ok(());
        }
        _ => {}
    }
    let (wanted, words) = LineFilter::read(call.words);
    let Some(form) = Form::read(call, words, &["typed", "json", "desc", "up", "no-maint"]) else {
        return Ok(());
    };
    let generation = call.generation;
    if wanted.is_unknown(generation) {
        call.error("No such proxy.");
        return Ok(());
    }
    let making = StatWriter {
        generation: generation.clone(),
        wanted,
        form,
        walk: Walk::new(generation),
        begun: false,
        first: true,
    };
    if let Err(refused) = call.reply.make(making).await? {
        call.error(&format!("Cannot show statistics: {refused}."));
    }
    Ok(())
}

/// The state of writing the lines. It runs on the reporter's thread, since visiting tens of thousands of
/// servers would block a lane.
struct StatWriter {
    generation: Arc<Generation>,
    wanted: LineFilter,
    form: Form,
    walk: Walk,
    begun: bool,
    /// No line was written yet.
    first: bool,
}

impl Parts for StatWriter {
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool {
        let Self { generation, wanted, form, walk, begun, first } = self;
        if !std::mem::replace(begun, true) {
            if form.json {
                text.push('[');
            } else if !form.typed {
                let _ = writeln!(text, "{}", header());
            }
        }
        for _ in 0..STEPS_AT_ONCE {
            if text.len() >= PART {
                return true;
            }
            let Some(step) = walk.next(generation) else {
                if form.json {
                    text.push_str("]\n");
                }
                return false;
            };
            let line = match step {
                // The sides of a proxy share name and number.
                Step::Begin(sides) if !wanted.proxy(sides) => {
                    walk.skip();
                    continue;
                }
                Step::Frontend(front) if wanted.kind(Kind::Frontend) => {
                    frontend(front, generation.conn_limit.most())
                }
                Step::Listener(front, own) if wanted.kind(Kind::Listener) && wanted.number(own.id) => {
                    listener(front, own)
                }
                Step::Server(back, index, own)
                    if wanted.kind(Kind::Server) && wanted.number(own.id) && form.shows(back, index) =>
                {
                    server(generation, back, index, own, reader)
                }
                Step::Backend(back) if wanted.kind(Kind::Backend) => backend(back, *form),
                _ => continue,
            };
            put(text, *form, first, &line);
        }
        true
    }
}

/// Most steps of a part; a step may have nothing to show.
pub(crate) const STEPS_AT_ONCE: usize = 1_024;

/// Writes a line. The first line of JSON has no comma before it.
pub(crate) fn put(out: &mut impl Write, form: Form, first: &mut bool, line: &Line) {
    // For a backend, these values are measured instead of configured.
    let tags = |column: &Field| match column.name {
        "act" | "bck" | "rate_max" if line.kind == Kind::Backend => "MGP",
        _ => column.tags,
    };
    let filled = || {
        COLUMNS
            .iter()
            .zip(&line.values)
            .filter_map(|(column, value)| Some((Field { tags: tags(column), ..*column }, value.as_ref()?)))
    };
    if form.json {
        let objects = filled().map(|(column, value)| {
            let mut object = column.json(value);
            object.insert("objType".into(), line.kind.name().into());
            object.insert("proxyId".into(), line.proxy.into());
            object.insert("id".into(), line.server.into());
            serde_json::Value::Object(object)
        });
        let array = serde_json::Value::Array(objects.collect());
        let _ = write!(out, "{}{array}", if *first { "" } else { "," });
        *first = false;
        return;
    }
    if form.typed {
        for (column, value) in filled() {
            let Line { kind, proxy, server, .. } = line;
            let typed = column.typed(value);
            let _ =
                write!(out, "{}.{proxy}.{server}.{}.{}.1:{typed}", kind.letter(), column.number, column.name);
            if form.described {
                let _ = write!(out, ":\"{}\"", column.help);
            }
            let _ = out.write_str("\n");
        }
        return;
    }
    for (index, value) in line.values.iter().enumerate() {
        if begins_protocols(index) {
            let _ = out.write_str("-,");
        }
        match value {
            None => {}
            // Most values are 0.
            Some(Number32(n @ ..10)) => {
                let _ = out.write_char(char::from(b'0' + *n as u8));
            }
            Some(Number64(n @ ..10)) => {
                let _ = out.write_char(char::from(b'0' + *n as u8));
            }
            // RFC 4180: quotes around a value with a separator.
            Some(Text(text)) if text.contains([',', '"', '\n']) => {
                let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
            }
            Some(value) => {
                let _ = write!(out, "{value}");
            }
        }
        let _ = out.write_str(",");
    }
    let _ = out.write_str("\n");
}
