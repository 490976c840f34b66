//! Counters in Prometheus format: names, types and labels of HAProxy's exporter, with the values of `show
//! info` and `show stat`.

use crate::commands::columns::{COLUMNS, Column};
use crate::commands::stat::{self, Line};
use crate::commands::values::{Form, Value};
use crate::commands::{info, resolvers};
use crate::process::ProcessInfo;
use manylane_plan::Generation;
use manylane_plan::generation::{Listener, StatsPage};
use manylane_plan::pages::{PART, Page, Pages, Parts};
use manylane_sync::{Arc, Reader};
use std::fmt::Write;

const FRONTENDS: u8 = 1;
const BACKENDS: u8 = 2;
const SERVERS: u8 = 4;
const LISTENERS: u8 = 8;
/// All of them.
const EVERYTHING: u8 = FRONTENDS | BACKENDS | SERVERS | LISTENERS;

/// Marks a missing value.
const NONE: i64 = i64::MIN;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    /// Milliseconds, written as seconds.
    Millis,
    /// One sample for each class of status codes.
    Codes,
    /// One sample for each state; that of the current state is 1.
    State,
    /// One sample for each check result; that of the current result is 1.
    Check,
    /// The number of servers in each state.
    ServerStates,
    /// The number of servers with each result of the last check.
    ServerChecks,
    /// For HTTP/1 only; written if the query has `extra-counters`.
    Http1,
    /// For HTTP/2 only; written if the query has `extra-counters`.
    Http2,
}

impl Shape {
    fn is_extra(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2)
    }
}

/// A metric of proxies or servers.
struct Metric {
    name: &'static str,
    kind: &'static str,
    column: Column,
    /// Kinds of lines that have the metric: bits of [`FRONTENDS`] and the others.
    of: u8,
    shape: Shape,
}

macro_rules! metrics {
    ($($name:literal $kind:ident $column:ident $of:literal $shape:ident;)*) => {
        &[$(Metric {
            name: $name,
            kind: stringify!($kind),
            column: Column::$column,
            of: of($of),
            shape: Shape::$shape,
        }),*]
    };
}

const fn of(letters: &str) -> u8 {
    let (letters, mut bits, mut at) = (letters.as_bytes(), 0, 0);
    while at < letters.len() {
        bits |= match letters[at] {
            b'f' => FRONTENDS,
            b'b' => BACKENDS,
            b'l' => LISTENERS,
            _ => SERVERS,
        };
        at += 1;
    }
    bits
}

static METRICS: &[Metric] = metrics! {
    "current_queue" gauge Qcur "bs" Plain;
    "max_queue" gauge Qmax "bs" Plain;
    "current_sessions" gauge Scur "flbs" Plain;
    "max_sessions" gauge Smax "flbs" Plain;
    "limit_sessions" gauge Slim "flbs" Plain;
    "sessions_total" counter Stot "flbs" Plain;
    "bytes_in_total" counter Bin "flbs" Plain;
    "bytes_out_total" counter Bout "flbs" Plain;
    "requests_denied_total" counter Dreq "flb" Plain;
    "responses_denied_total" counter Dresp "flbs" Plain;
    "request_errors_total" counter Ereq "fl" Plain;
    "connection_errors_total" counter Econ "bs" Plain;
    "response_errors_total" counter Eresp "bs" Plain;
    "retry_warnings_total" counter Wretr "bs" Plain;
    "redispatch_warnings_total" counter Wredis "bs" Plain;
    "status" gauge Status "flbs" State;
    "weight" gauge Weight "bs" Plain;
    "active_servers" gauge Act "b" Plain;
    "backup_servers" gauge Bck "b" Plain;
    "active" gauge Act "s" Plain;
    "backup" gauge Bck "s" Plain;
    "check_failures_total" counter Chkfail "s" Plain;
    "check_up_down_total" counter Chkdown "bs" Plain;
    "check_last_change_seconds" gauge Lastchg "bs" Plain;
    "downtime_seconds_total" counter Downtime "bs" Plain;
    "queue_limit" gauge Qlimit "s" Plain;
    "current_throttle" gauge Throttle "s" Plain;
    "loadbalanced_total" counter Lbtot "bs" Plain;
    "current_session_rate" gauge Rate "fbs" Plain;
    "limit_session_rate" gauge RateLim "f" Plain;
    "max_session_rate" gauge RateMax "fbs" Plain;
    "check_status" gauge CheckStatus "s" Check;
    "check_code" gauge CheckCode "s" Plain;
    "check_duration_seconds" gauge CheckDuration "s" Millis;
    "http_responses_total" counter Hrsp1xx "fbs" Codes;
    "http_requests_rate_max" gauge ReqRateMax "f" Plain;
    "http_requests_total" counter ReqTot "fbs" Plain;
    "client_aborts_total" counter CliAbrt "bs" Plain;
    "server_aborts_total" counter SrvAbrt "bs" Plain;
    "http_comp_bytes_in_total" counter CompIn "fb" Plain;
    "http_comp_bytes_out_total" counter CompOut "fb" Plain;
    "http_comp_bytes_bypassed_total" counter CompByp "fb" Plain;
    "http_comp_responses_total" counter CompRsp "fb" Plain;
    "last_session_seconds" gauge Lastsess "bs" Plain;
    "queue_time_average_seconds" gauge Qtime "bs" Millis;
    "connect_time_average_seconds" gauge Ctime "bs" Millis;
    "response_time_average_seconds" gauge Rtime "bs" Millis;
    "total_time_average_seconds" gauge Ttime "bs" Millis;
    "connections_rate_max" gauge ConnRateMax "f" Plain;
    "connections_total" counter ConnTot "fl" Plain;
    "intercepted_requests_total" counter Intercepted "f" Plain;
    "denied_connections_total" counter Dcon "fl" Plain;
    "denied_sessions_total" counter Dses "fl" Plain;
    "failed_header_rewriting_total" counter Wrew "flbs" Plain;
    "connection_attempts_total" counter Connect "bs" Plain;
    "connection_reuses_total" counter Reuse "bs" Plain;
    "http_cache_lookups_total" counter CacheLookups "fb" Plain;
    "http_cache_hits_total" counter CacheHits "fb" Plain;
    "idle_connections_current" gauge SrvIcur "s" Plain;
    "idle_connections_limit" gauge SrcIlim "s" Plain;
    "max_queue_time_seconds" gauge QtimeMax "bs" Millis;
    "max_connect_time_seconds" gauge CtimeMax "bs" Millis;
    "max_response_time_seconds" gauge RtimeMax "bs" Millis;
    "max_total_time_seconds" gauge TtimeMax "bs" Millis;
    "internal_errors_total" counter Eint "flbs" Plain;
    "unsafe_idle_connections_current" gauge IdleConnCur "s" Plain;
    "safe_idle_connections_current" gauge SafeConnCur "s" Plain;
    "used_connections_current" gauge UsedConnCur "s" Plain;
    "need_connections_current" gauge NeedConnEst "s" Plain;
    "uweight" gauge Uweight "bs" Plain;
    "agg_server_status" gauge AggServerStatus "b" ServerStates;
    "agg_server_check_status" gauge AggServerCheckStatus "b" ServerStates;
    "agg_check_status" gauge AggCheckStatus "b" ServerChecks;
    "h2_headers_rcvd" counter H2HeadersRcvd "fb" Http2;
    "h2_data_rcvd" counter H2DataRcvd "fb" Http2;
    "h2_settings_rcvd" counter H2SettingsRcvd "fb" Http2;
    "h2_rst_stream_rcvd" counter H2RstStreamRcvd "fb" Http2;
    "h2_goaway_rcvd" counter H2GoawayRcvd "fb" Http2;
    "h2_detected_conn_protocol_errors" counter H2DetectedConnProtocolErrors "fb" Http2;
    "h2_detected_strm_protocol_errors" counter H2DetectedStrmProtocolErrors "fb" Http2;
    "h2_rst_stream_resp" counter H2RstStreamResp "fb" Http2;
    "h2_goaway_resp" counter H2GoawayResp "fb" Http2;
    "h2_open_connections" counter H2OpenConnections "fb" Http2;
    "h2_backend_open_streams" counter H2BackendOpenStreams "fb" Http2;
    "h2_total_connections" counter H2TotalConnections "fb" Http2;
    "h2_backend_total_streams" counter H2BackendTotalStreams "fb" Http2;
    "h1_open_connections" counter H1OpenConnections "fb" Http1;
    "h1_open_streams" counter H1OpenStreams "fb" Http1;
    "h1_total_connections" counter H1TotalConnections "fb" Http1;
    "h1_total_streams" counter H1TotalStreams "fb" Http1;
    "h1_bytes_in" counter H1BytesIn "fb" Http1;
    "h1_bytes_out" counter H1BytesOut "fb" Http1;
    "h1_spliced_bytes_in" counter H1SplicedBytesIn "fb" Http1;
    "h1_spliced_bytes_out" counter H1SplicedBytesOut "fb" Http1;
};

/// Columns that get a sample without a value, too: limits, and counters of checks. Other columns without a
/// value get no sample.
const NOT_THERE: &[Column] = &[
    Column::Chkfail,
    Column::Chkdown,
    Column::Downtime,
    Column::Qlimit,
    Column::Slim,
    Column::SrcIlim,
    Column::Throttle,
];

/// Fields of `show info`: the field's name, the metric's name and its type.
static PROCESS: &[(&str, &str, &str)] = &[
    ("Nbthread", "nbthread", "gauge"),
    ("Nbproc", "nbproc", "gauge"),
    ("Process_num", "relative_process_id", "gauge"),
    ("Uptime_sec", "uptime_seconds", "gauge"),
    ("PoolFailed", "pool_failures_total", "counter"),
    ("Ulimit-n", "max_fds", "gauge"),
    ("Maxsock", "max_sockets", "gauge"),
    ("Maxconn", "max_connections", "gauge"),
    ("Hard_maxconn", "hard_max_connections", "gauge"),
    ("CurrConns", "current_connections", "gauge"),
    ("CumConns", "connections_total", "counter"),
    ("CumReq", "requests_total", "counter"),
    ("MaxSslConns", "max_ssl_connections", "gauge"),
    ("CurrSslConns", "current_ssl_connections", "gauge"),
    ("CumSslConns", "ssl_connections_total", "counter"),
    ("Maxpipes", "max_pipes", "gauge"),
    ("PipesUsed", "pipes_used_total", "counter"),
    ("PipesFree", "pipes_free_total", "counter"),
    ("ConnRate", "current_connection_rate", "gauge"),
    ("ConnRateLimit", "limit_connection_rate", "gauge"),
    ("MaxConnRate", "max_connection_rate", "gauge"),
    ("SessRate", "current_session_rate", "gauge"),
    ("SessRateLimit", "limit_session_rate", "gauge"),
    ("MaxSessRate", "max_session_rate", "gauge"),
    ("SslRate", "current_ssl_rate", "gauge"),
    ("SslRateLimit", "limit_ssl_rate", "gauge"),
    ("MaxSslRate", "max_ssl_rate", "gauge"),
    ("SslFrontendKeyRate", "current_frontend_ssl_key_rate", "gauge"),
    ("SslFrontendMaxKeyRate", "max_frontend_ssl_key_rate", "gauge"),
    ("SslFrontendSessionReuse_pct", "frontend_ssl_reuse", "gauge"),
    ("SslBackendKeyRate", "current_backend_ssl_key_rate", "gauge"),
    ("SslBackendMaxKeyRate", "max_backend_ssl_key_rate", "gauge"),
    ("SslCacheLookups", "ssl_cache_lookups_total", "counter"),
    ("SslCacheMisses", "ssl_cache_misses_total", "counter"),
    ("CompressBpsIn", "http_comp_bytes_in_total", "counter"),
    ("CompressBpsOut", "http_comp_bytes_out_total", "counter"),
    ("CompressBpsRateLim", "limit_http_comp", "gauge"),
    ("Tasks", "current_tasks", "gauge"),
    ("Run_queue", "current_run_queue", "gauge"),
    ("Idle_pct", "idle_time_percent", "gauge"),
    ("Stopping", "stopping", "gauge"),
    ("Jobs", "jobs", "gauge"),
    ("Unstoppable Jobs", "unstoppable_jobs", "gauge"),
    ("Listeners", "listeners", "gauge"),
    ("ActivePeers", "active_peers", "gauge"),
    ("ConnectedPeers", "connected_peers", "gauge"),
    ("DroppedLogs", "dropped_logs_total", "counter"),
    ("BusyPolling", "busy_polling_enabled", "gauge"),
    // A counter in HAProxy, but Prometheus tools reject a counter without the suffix `_total`.
    ("FailedResolutions", "failed_resolutions", "gauge"),
    ("TotalBytesOut", "bytes_out_total", "counter"),
    ("TotalSplicedBytesOut", "spliced_bytes_out_total", "counter"),
    ("BytesOutRate", "bytes_out_rate", "gauge"),
    ("CumRecvLogs", "recv_logs_total", "counter"),
    ("Memmax_bytes", "max_memory_bytes", "gauge"),
    ("PoolAlloc_bytes", "pool_allocated_bytes", "gauge"),
    ("PoolUsed_bytes", "pool_used_bytes", "gauge"),
    ("Start_time_sec", "start_time_seconds", "gauge"),
    ("TotalWarnings", "total_warnings", "gauge"), // likewise
];

const STATES: &[&str] = &["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];
const LISTENER_STATES: &[&str] = &["WAITING", "OPEN", "FULL"];
const CHECKS: &[&str] = &[
    "HANA", "SOCKERR", "L4OK", "L4TOUT", "L4CON", "L6OK", "L6TOUT", "L6RSP", "L7TOUT", "L7RSP", "L7OK",
    "L7OKC", "L7STS", "PROCERR", "PROCTOUT", "PROCOK",
];
const CODES: &[&str] = &["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// Makes the page of metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    info: ProcessInfo,
}

impl Metrics {
    /// Metrics of the process that `info` describes.
    pub fn new(info: ProcessInfo) -> Self {
        Self { info }
    }
}

/// The metrics that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scope {
    process: bool,
    resolvers: bool,
    /// Bits of [`FRONTENDS`] and the others.
    of: u8,
    no_maintenance: bool,
    /// Also metrics of only one version of HTTP.
    extra: bool,
}

impl Scope {
    const ALL: Self =
        Self { process: true, resolvers: true, of: EVERYTHING, no_maintenance: false, extra: false };

    /// `None` if the query names an unknown scope.
    fn read(query: &[u8]) -> Option<Self> {
        let mut scope = Self { process: false, resolvers: false, of: 0, ..Self::ALL };
        let mut any = false;
        for part in query.split(|byte| *byte == b'&') {
            match part {
                b"no-maint" => scope.no_maintenance = true,
                b"extra-counters" => scope.extra = true,
                b"scope" => return None,
                _ => {
                    let Some(name) = part.strip_prefix(b"scope=") else { continue };
                    any = true;
                    match name {
                        b"" => {}
                        b"*" => {
                            let Self { no_maintenance, extra, .. } = scope;
                            scope = Self { no_maintenance, extra, ..Self::ALL };
                        }
                        b"global" => scope.process = true,
                        b"frontend" => scope.of |= FRONTENDS,
                        b"backend" => scope.of |= BACKENDS,
                        b"server" => scope.of |= SERVERS,
                        b"listener" => scope.of |= LISTENERS,
                        b"resolver" => scope.resolvers = true,
                        b"sticktable" => {} // accepted, but these metrics are not built
                        _ => return None,
                    }
                }
            }
        }
        if !any {
            let Self { no_maintenance, extra, .. } = scope;
            scope = Self { no_maintenance, extra, ..Self::ALL };
        }
        Some(scope)
    }
}

impl Pages for Metrics {
    fn metrics(&self, generation: &Arc<Generation>, query: &[u8]) -> Result<Page, u16> {
        let scope = Scope::read(query).ok_or(400u16)?;
        let making = MetricsWriter {
            info: self.info.clone(),
            generation: generation.clone(),
            scope,
            rows: Rows::default(),
            at: (0, 0, 0),
            head_written: false,
            begun: false,
            resolved: false,
        };
        Ok(Page::new("text/plain; version=0.0.4", None, making))
    }

    fn statistics(
        &self,
        generation: &Arc<Generation>,
        page: &Arc<StatsPage>,
        query: &[u8],
        admin: bool,
    ) -> Page {
        crate::page::page(&self.info, generation, page, query, admin)
    }
}

/// Values of a proxy or a server, read at one time.
struct Row {
    /// `proxy="a",server="b"`
    labels: String,
    /// By metric; [`NONE`] where there is no value.
    values: Box<[i64]>,
    /// Responses by class.
    codes: [i64; 6],
    /// Index in [`STATES`].
    state: Option<usize>,
    /// Index in [`CHECKS`].
    check: Option<usize>,
    /// For a backend: servers by state, and by result of their checks.
    states: [i64; STATES.len()],
    checks: [i64; CHECKS.len()],
}

/// Rows read for each part; reading one takes some ten microseconds.
const ROWS_AT_ONCE: usize = 32;

/// Rows by kind, sorted by name.
#[derive(Default)]
struct Rows {
    frontends: Vec<Row>,
    listeners: Vec<Row>,
    backends: Vec<Row>,
    servers: Vec<Row>,
    /// The next to read: a backend, or one of its servers if the second number is set.
    next: (usize, Option<usize>),
    /// All rows were read.
    whole: bool,
}

/// The state of writing a page.
struct MetricsWriter {
    info: ProcessInfo,
    generation: Arc<Generation>,
    scope: Scope,
    rows: Rows,
    /// The kind of rows (0 for frontends, 1 for listeners, 2 for backends, 3 for servers), the metric, and
    /// the row.
    at: (usize, usize, usize),
    /// The metric's head was written.
    head_written: bool,
    /// Metrics of the process were written.
    begun: bool,
    /// Metrics of name servers were written.
    resolved: bool,
}

fn number(line: &Line, column: Column) -> i64 {
    match &line.values[column as usize] {
        Some(Value::Number32(n)) => i64::from(*n),
        Some(Value::Number64(n)) => i64::try_from(*n).unwrap_or(i64::MAX),
        Some(Value::Signed(n)) => *n,
        Some(Value::Float(_) | Value::Text(_)) | None => NONE, // no column has a value of these types
    }
}

fn text(line: &Line, column: Column) -> &str {
    match &line.values[column as usize] {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

impl Row {
    /// `own`: the label's name for a server or a listener.
    fn new(line: &Line, own: Option<&str>) -> Self {
        let mut labels = format!("proxy=\"{}\"", escaped(text(line, Column::Pxname)));
        if let Some(own) = own {
            let _ = write!(labels, ",{own}=\"{}\"", escaped(text(line, Column::Svname)));
        }
        let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let status = match text(line, Column::Status) {
            "OPEN" | "no check" if own != Some("listener") => "UP".to_owned(),
            other => word(other),
        };
        let check = text(line, Column::CheckStatus).trim_start_matches("* ");
        let first = Column::Hrsp1xx as usize;
        Self {
            labels,
            values: METRICS
                .iter()
                .map(|metric| match number(line, metric.column) {
                    // The check has no code.
                    NONE if metric.column == Column::CheckCode && !check.is_empty() => 0,
                    value => value,
                })
                .collect(),
            codes: std::array::from_fn(|index| {
                let code = line.values[first + index].as_ref().and_then(Value::unsigned);
                code.map_or(NONE, |n| i64::try_from(n).unwrap_or(i64::MAX))
            }),
            state: if own == Some("listener") { LISTENER_STATES } else { STATES }
                .iter()
                .position(|state| *state == status),
            check: CHECKS.iter().position(|outcome| *outcome == check),
            states: [0; STATES.len()],
            checks: [0; CHECKS.len()],
        }
    }
}

/// Escapes a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl MetricsWriter {
    /// Reads all frontends in the first call, and up to [`ROWS_AT_ONCE`] backends and servers in each call.
    fn read(&mut self, reader: &Reader) {
        let Self { generation, scope, rows, .. } = self;
        if rows.next == (0, None) {
            for frontend in generation.frontends.iter().filter(|own| own.forward.is_none()) {
                rows.frontends.push(Row::new(&stat::frontend(frontend, generation.conn_limit.most()), None));
                let reported = |own: &&Listener| own.reported && scope.of & LISTENERS != 0;
                for listener in frontend.listeners.iter().filter(reported) {
                    rows.listeners.push(Row::new(&stat::listener(frontend, listener), Some("listener")));
                }
            }
        }
        for _ in 0..ROWS_AT_ONCE {
            let (position, own) = rows.next;
            let Some(backend) = generation.backends.get(position) else {
                rows.whole = true;
                return;
            };
            let Some(own) = own else {
                rows.next = (position, Some(0));
                rows.backends.push(Row::new(&stat::backend(backend, Form::default()), None));
                continue;
            };
            let Some(server) = backend.listed_at(own) else {
                rows.next = (position + 1, None);
                continue;
            };
            rows.next = (position, Some(own + 1));
            let Some(index) = backend.balancer.servers().index(server.index) else { continue };
            let row = Row::new(&stat::server(generation, backend, index, server, reader), Some("server"));
            if let Some(of) = rows.backends.last_mut() {
                row.state.into_iter().for_each(|state| of.states[state] += 1);
                row.check.into_iter().for_each(|check| of.checks[check] += 1);
            }
            let hidden = scope.no_maintenance && row.state.is_some_and(|state| STATES[state] == "MAINT");
            if scope.of & SERVERS != 0 && !hidden {
                rows.servers.push(row);
            }
        }
    }

    fn process(&self, text: &mut String) {
        for (field, name, kind) in PROCESS {
            let help = info::FIELDS.iter().find(|own| own.name == *field).map_or("", |own| own.help);
            if let Some(value) = info::value(&self.generation, &self.info, field, false) {
                let _ = writeln!(
                    text,
                    "# HELP haproxy_process_{name} {help}\n# TYPE haproxy_process_{name} \
                        {kind}\nhaproxy_process_{name} {}",
                    value.text()
                );
            }
        }
        let _ = writeln!(
            text,
            "# HELP haproxy_process_build_info The program\n# TYPE haproxy_process_build_info \
                gauge\nhaproxy_process_build_info{{version=\"{}\"}} 1",
            escaped(self.info.version)
        );
        if let Some(node) = info::value(&self.generation, &self.info, "node", false) {
            let _ = writeln!(
                text,
                "# HELP haproxy_process_node Name of the node\n# TYPE haproxy_process_node \
                    gauge\nhaproxy_process_node{{node=\"{}\"}} 1",
                escaped(&node.text())
            );
        }
        for (name, help) in
            [("current_zlib_memory", "Bytes of zlib"), ("max_zlib_memory", "Bytes of zlib at most")]
        {
            let name = format!("haproxy_process_{name}");
            let _ = writeln!(
                text,
                "# HELP {name} {help} (nothing is compressed here)\n# TYPE {name} gauge\n{name} NaN"
            );
        }
    }

    /// Writes the counters of name servers, in one part since there are few.
    fn resolvers(&self, text: &mut String) {
        let sections = &self.generation.resolvers;
        let counted: Vec<_> =
            sections.iter().map(|section| resolvers::counted(section).collect::<Vec<_>>()).collect();
        for (index, name) in resolvers::names().into_iter().enumerate() {
            if counted.iter().all(Vec::is_empty) {
                return;
            }
            let name = format!("haproxy_resolver_{name}");
            let _ =
                writeln!(text, "# HELP {name} What 'show resolvers' has by that name\n# TYPE {name} gauge");
            for (section, servers) in sections.iter().zip(&counted) {
                for (server, counts) in servers {
                    let (section, server, count) = (escaped(&section.name), escaped(server), counts[index]);
                    let _ =
                        writeln!(text, "{name}{{resolver=\"{section}\",nameserver=\"{server}\"}} {count}");
                }
            }
        }
    }
}

/// Writes a number; most have one digit.
fn decimal(text: &mut String, value: i64) {
    if let Ok(digit @ 0..=9) = u8::try_from(value) {
        text.push(char::from(b'0' + digit));
    } else {
        let _ = write!(text, "{value}");
    }
}

/// Writes milliseconds as seconds.
fn seconds(text: &mut String, millis: i64) {
    if millis == 0 {
        text.push_str("0.000000");
    } else {
        let _ = write!(text, "{:.6}", millis as f64 / 1000.0);
    }
}

/// Writes the samples of a metric for `rows[begin..]` until the part is full, and the metric's head before
/// them unless `head_written`. Returns the index of the first row that is left.
fn put(
    text: &mut String,
    kind: &str,
    index: usize,
    rows: &[Row],
    begin: usize,
    head_written: &mut bool,
) -> usize {
    let metric = &METRICS[index];
    let name = format!("haproxy_{kind}_{}{{", metric.name);
    // There may be millions of samples, so each costs only a few copies.
    let mut sample = |text: &mut String, row: &Row, more: Option<(&str, &str)>, value: i64, shape: Shape| {
        if !std::mem::replace(head_written, true) {
            let (name, help) = (name.trim_end_matches('{'), COLUMNS[metric.column as usize].help);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", metric.kind);
        }
        text.push_str(&name);
        text.push_str(&row.labels);
        if let Some((label, own)) = more {
            [",", label, "=\"", own, "\""].iter().for_each(|part| text.push_str(part));
        }
        text.push_str("} ");
        if value == NONE {
            text.push_str("NaN");
        } else if shape == Shape::Millis {
            seconds(text, value);
        } else {
            decimal(text, value);
        }
        text.push('\n');
    };
    for (number, row) in rows.iter().enumerate().skip(begin) {
        if text.len() >= PART {
            return number;
        }
        let value = row.values[index];
        match metric.shape {
            Shape::Plain if value == NONE && NOT_THERE.contains(&metric.column) => {
                sample(text, row, None, value, metric.shape)
            }
            Shape::Plain | Shape::Millis | Shape::Http1 | Shape::Http2 if value == NONE => {}
            Shape::Http1 => sample(text, row, Some(("mod", "h1")), value, metric.shape),
            Shape::Http2 => sample(text, row, Some(("mod", "h2")), value, metric.shape),
            Shape::Plain | Shape::Millis => sample(text, row, None, value, metric.shape),
            Shape::Codes => {
                for (code, value) in CODES.iter().zip(row.codes).filter(|(_, value)| *value != NONE) {
                    sample(text, row, Some(("code", code)), value, metric.shape);
                }
            }
            Shape::State => {
                let states = match kind {
                    "server" => STATES,
                    "listener" => LISTENER_STATES,
                    _ => &STATES[..2],
                };
                for (position, state) in states.iter().enumerate() {
                    sample(
                        text,
                        row,
                        Some(("state", state)),
                        i64::from(row.state == Some(position)),
                        metric.shape,
                    );
                }
            }
            Shape::Check => {
                for (at, outcome) in CHECKS.iter().enumerate().filter(|_| row.check.is_some()) {
                    sample(
                        text,
                        row,
                        Some(("state", outcome)),
                        i64::from(row.check == Some(at)),
                        metric.shape,
                    );
                }
            }
            // A backend without servers has no samples.
            Shape::ServerStates | Shape::ServerChecks if row.states.iter().all(|servers| *servers == 0) => {}
            Shape::ServerStates => {
                for (state, servers) in STATES.iter().zip(row.states) {
                    sample(text, row, Some(("state", state)), servers, metric.shape);
                }
            }
            Shape::ServerChecks => {
                for (outcome, servers) in CHECKS.iter().zip(row.checks) {
                    sample(text, row, Some(("state", outcome)), servers, metric.shape);
                }
            }
        }
    }
    rows.len()
}

impl Parts for MetricsWriter {
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool {
        if !std::mem::replace(&mut self.begun, true) && self.scope.process {
            self.process(text);
        }
        if !std::mem::replace(&mut self.resolved, true) && self.scope.resolvers {
            self.resolvers(text);
        }
        if self.scope.of == 0 {
            return false;
        }
        if !self.rows.whole {
            self.read(reader);
        }
        if !self.rows.whole {
            return true;
        }
        let Rows { frontends, listeners, backends, servers, .. } = &self.rows;
        let kinds = [
            ("frontend", FRONTENDS, frontends),
            ("listener", LISTENERS, listeners),
            ("backend", BACKENDS, backends),
            ("server", SERVERS, servers),
        ];
        while let Some((kind, of, rows)) = kinds.get(self.at.0) {
            if text.len() >= PART {
                return true;
            }
            let wanted = self.scope.of & of != 0;
            match METRICS.get(self.at.1).filter(|_| wanted) {
                None => self.at = (self.at.0 + 1, 0, 0),
                Some(metric) if metric.of & of == 0 || metric.shape.is_extra() && !self.scope.extra => {
                    self.at.1 += 1;
                }
                Some(_) => {
                    self.at.2 = put(text, kind, self.at.1, rows, self.at.2, &mut self.head_written);
                    if self.at.2 == rows.len() {
                        (self.at.1, self.at.2, self.head_written) = (self.at.1 + 1, 0, false);
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_is_wanted() {
        let all = Scope::ALL;
        assert_eq!(Scope::read(b""), Some(all));
        assert_eq!(Scope::read(b"scope=*&x=y"), Some(all));
        assert_eq!(Scope::read(b"no-maint"), Some(Scope { no_maintenance: true, ..all }));
        assert_eq!(Scope::read(b"scope=*&extra-counters"), Some(Scope { extra: true, ..all }));
        assert_eq!(Scope::read(b"extra-counters&scope=*"), Some(Scope { extra: true, ..all }));
        let some = Scope { process: false, resolvers: false, of: FRONTENDS | SERVERS, ..all };
        assert_eq!(Scope::read(b"scope=frontend&scope=server"), Some(some));
        assert_eq!(Scope::read(b"scope=nope"), None);
        assert_eq!(Scope::read(b"scope"), None);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
    }
}
