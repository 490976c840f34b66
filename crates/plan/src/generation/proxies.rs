//! `frontend`, `backend` and `listen`.

use super::agent;
use super::balance::{self, BalanceKey};
use super::bind::{self, Listener, text};
use super::checks::{self, CheckScript, ServerCheck};
use super::filters::Filters;
use super::forward::{self, LogForward};
use super::frontend_gate::FrontendGate;
use super::http::{self, Http, HttpSide};
use super::log::{EventLog, FrontendLog, Logs};
use super::mailers::{self, Alerts, Mailer};
use super::process::Process;
use super::refuse::Refuse;
use super::rules::{Captures, Directory, Expressions, RuleReader, Rules, UsedFeatures};
use super::server::{self, Server};
use super::state_file::StateFiles;
use super::steps;
use crate::conn_limit::ConnLimit;
use crate::counts::{BackendStats, FrontendStats};
use crate::invalid::InvalidMessages;
use crate::rate::Rate;
use manylane_balance::{Balancer, IdleLimits, IdlePools, Index, Operation};
use manylane_check::states::States;
use manylane_check::{HealthState, HistoryCell};
use manylane_config::table::{OptionSwitch, Timeout};
use manylane_config::tree::{self, Config, Mode, Proxy, ProxyKind, Settings};
use manylane_expr::{Expression, Zone};
use manylane_net::SplicePolicy;
use manylane_sched::Time;
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicBool, Ordering};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

/// A `frontend` section, or the frontend half of a `listen` section.
#[derive(Debug)]
pub struct Frontend {
    /// Number among all frontends.
    pub number: usize,
    /// `id`, or the next free one.
    pub id: u32,
    /// Position among the proxies of the file, from 1.
    pub position: usize,
    /// Name of the section.
    pub name: Box<str>,
    /// `guid`
    pub guid: Option<Box<str>>,
    /// `description`
    pub description: Option<Box<str>>,
    /// `mode`
    pub mode: Mode,
    /// In TCP mode: some connections change to HTTP, by a rule `switch-mode` or for a backend in HTTP mode.
    pub switches_mode: bool,
    /// Listeners of its `bind` lines.
    pub listeners: Vec<Listener>,
    /// Number of `default_backend`, or of the backend half of a `listen`.
    pub default_backend: Option<usize>,
    /// Number of the backend half of a `listen`.
    pub own_backend: Option<usize>,
    /// Settings of `mode http`.
    pub http: Http,
    /// Rules of the section.
    pub rules: Arc<Rules>,
    /// Filters of the section.
    pub filters: Arc<Filters>,
    /// Captures of the section.
    pub captures: Captures,
    /// Log settings; `None` if nothing is logged.
    pub log: Option<FrontendLog>,
    /// Set for a `log-forward` section, whose clients send log messages.
    pub forward: Option<Arc<LogForward>>,
    /// Timeouts.
    pub timeouts: FrontendTimeouts,
    /// `maxconn`
    pub conn_limit: Arc<ConnLimit>,
    /// `rate-limit sessions`
    pub rate: Rate,
    /// Settings that frontends and backends share.
    pub common: Common,
    /// Counters.
    pub counts: Arc<FrontendStats>,
    /// Whether the frontend accepts connections.
    pub gate: Arc<FrontendGate>,
    /// Requests that broke the protocol.
    pub invalid: Arc<InvalidMessages>,
}

/// Timeouts of a frontend; `None` for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrontendTimeouts {
    /// `timeout client`
    pub client: Option<Duration>,
    /// `timeout client-fin`
    pub client_fin: Option<Duration>,
    /// `timeout client-hs`
    pub handshake: Option<Duration>,
    /// `timeout http-request`
    pub request: Option<Duration>,
    /// `timeout http-keep-alive`
    pub keep_alive: Option<Duration>,
    /// `timeout tarpit`
    pub tarpit: Option<Duration>,
}

/// A `backend` section, or the backend half of a `listen` section.
#[derive(Debug)]
pub struct Backend {
    /// The parts that do not depend on servers.
    pub(super) parts: Arc<BackendParts>,
    /// Servers by number. They may include a [stand-in](Server::stands_in) for other addresses, and removed
    /// servers, which are no longer listed.
    pub servers: Vec<Arc<Server>>,
    /// Numbers of the listed servers: those of the file in its order, then added ones.
    pub(super) order: Vec<usize>,
    /// The stand-in of `dispatch` or `option transparent`.
    pub of_client: Option<Index>,
    /// Limits and sizes of the lanes' idle pools.
    pub idle_pools: Arc<IdlePools>,
    /// Balances streams over the servers.
    pub balancer: Balancer,
    /// `fullconn`; before it is set, 0 stands for the default.
    pub fullconn: u32,
}

impl Deref for Backend {
    type Target = BackendParts;

    fn deref(&self) -> &BackendParts {
        &self.parts
    }
}

impl DerefMut for Backend {
    /// # Panics
    /// If another generation shares the parts already.
    fn deref_mut(&mut self) -> &mut BackendParts {
        Arc::get_mut(&mut self.parts).expect("a backend is changed before it serves")
    }
}

/// The parts of a backend that do not depend on its servers.
#[derive(Debug)]
pub struct BackendParts {
    /// Number among all backends.
    pub number: usize,
    /// `id`, or the next free one.
    pub id: u32,
    /// True if `id` gives the number.
    pub id_is_given: bool,
    /// Position among the proxies of the file, from 1.
    pub position: usize,
    /// Name of the section.
    pub name: Box<str>,
    /// True if frontends may choose the backend. Operators change it (`publish backend`).
    pub published: Arc<AtomicBool>,
    /// Initial value of `published`: false with `be-unpublished`.
    pub begins_published: bool,
    /// `guid`
    pub guid: Option<Box<str>>,
    /// `description`
    pub description: Option<Box<str>>,
    /// `mode`
    pub mode: Mode,
    /// Distinct expressions of the servers' `pool-conn-name` and `sni`.
    pub pool_names: Vec<Expression>,
    /// Script of the health checks.
    pub check_script: Arc<manylane_check::Script>,
    /// Configuration that the script was made from, to compare scripts.
    pub check_wording: Arc<[u8]>,
    /// Settings of `mode http`.
    pub http: Http,
    /// Rules of the section; those of a `listen` run in its frontend.
    pub rules: Arc<Rules>,
    /// Filters of the section; a `listen` shares them with its frontend.
    pub filters: Arc<Filters>,
    /// True if `retry-on` has `conn-failure`.
    pub retries_connect: bool,
    /// Algorithm of the balancer, as the configuration names it.
    pub algorithm: tree::Algorithm,
    /// Source of the key for the balancer.
    pub key: BalanceKey,
    /// Timeouts.
    pub timeouts: BackendTimeouts,
    /// `retries`: attempts to connect after the first.
    pub retries: u32,
    /// `option redispatch`
    pub redispatch: Redispatch,
    /// Settings that frontends and backends share.
    pub common: Common,
    /// Log settings for events of servers.
    pub events: EventLog,
    /// `email-alert`
    pub alerts: Option<Arc<Alerts>>,
    /// Counters.
    pub counts: Arc<BackendStats>,
    /// Times with and without usable servers.
    pub past: Arc<HistoryCell>,
    /// Responses that broke the protocol.
    pub invalid: Arc<InvalidMessages>,
}

impl Backend {
    /// Returns the servers of the file and added ones.
    pub fn listed(&self) -> impl Iterator<Item = &Arc<Server>> + Clone {
        self.order.iter().map(|&number| &self.servers[number])
    }

    /// Returns the server at `index` of [`listed`](Self::listed).
    pub fn listed_at(&self, index: usize) -> Option<&Arc<Server>> {
        self.order.get(index).map(|&number| &self.servers[number])
    }

    /// Returns true if the backend has servers, but no usable one.
    pub(super) fn is_down(&self) -> bool {
        !self.order.is_empty()
            && !self.balancer.servers().iter().any(|(_, server)| server.state().is_usable())
    }

    /// Updates `past` after servers have changed.
    pub fn settle_past(&self, now: Time) {
        loop {
            let down = self.is_down();
            if self.past.read().is_down != down {
                self.past.change(!down, now.since(Time::ZERO));
            }
            if self.is_down() == down {
                return; // else another lane has changed a server meanwhile
            }
        }
    }
}

/// Timeouts of a backend; `None` for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendTimeouts {
    /// `timeout connect`
    pub connect: Option<Duration>,
    /// `timeout server`
    pub server: Option<Duration>,
    /// `timeout server-fin`
    pub server_fin: Option<Duration>,
    /// `timeout queue`
    pub queue: Option<Duration>,
    /// `timeout tunnel`
    pub tunnel: Option<Duration>,
    /// `timeout http-request`
    pub request: Option<Duration>,
    /// `timeout http-keep-alive`
    pub keep_alive: Option<Duration>,
    /// `timeout tarpit`
    pub tarpit: Option<Duration>,
}

/// `option redispatch`: at which retries another server may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redispatch {
    /// Never.
    Off,
    /// At every n-th retry.
    Every(u32),
    /// At the n-th retry from the end, counted from 1.
    FromEnd(u32),
}

impl Redispatch {
    fn new(interval: Option<i32>) -> Self {
        match interval {
            None | Some(0) => Self::Off,
            Some(n) if n > 0 => Self::Every(n.cast_unsigned()),
            Some(n) => Self::FromEnd(n.unsigned_abs()),
        }
    }

    /// Returns true if retry `attempt` of `retries`, counted from 1, may use another server.
    pub fn applies(self, attempt: u32, retries: u32) -> bool {
        match self {
            Self::Off => false,
            Self::Every(n) => attempt.is_multiple_of(n),
            Self::FromEnd(n) => attempt == (retries + 1).saturating_sub(n).max(1),
        }
    }
}

/// Settings that frontends and backends share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Common {
    /// When data of clients is spliced.
    pub splice_request: Option<SplicePolicy>,
    /// When data of servers is spliced.
    pub splice_response: Option<SplicePolicy>,
    /// `option independent-streams`
    pub independent: bool,
    /// `option abortonclose`
    pub abort_on_close: bool,
    /// `option nolinger` for connections to servers; clients' connections have it from their listener.
    pub no_linger: bool,
    /// `tcp-request inspect-delay`
    pub inspect_request: Option<Duration>,
    /// `tcp-response inspect-delay`
    pub inspect_response: Option<Duration>,
}

/// All proxies of a configuration.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    pub(super) frontends: Vec<Frontend>,
    pub(super) backends: Vec<Backend>,
    pub(super) servers: usize,
    /// Number of lanes, or the most there may be.
    lanes: usize,
    /// Number of proxies built so far.
    count: usize,
    /// Saved states of servers, with the numbers of their backends.
    pub(super) states: Vec<(usize, Rc<States>)>,
    files: StateFiles,
    /// `mailers` sections, with their names.
    mailers: Vec<(Box<str>, Vec<Arc<Mailer>>)>,
    /// Set after all proxies are built, with the features that they use.
    pub(super) expressions: Option<(Expressions, UsedFeatures)>,
}

pub(super) fn proxies(
    config: &Config,
    process: &Process,
    zone: &Zone,
    logs: &mut Logs,
    refuse: &mut Refuse<'_>,
) -> Proxies {
    let mut all = Proxies { lanes: process.lane_count().unwrap_or(super::MOST_LANES), ..Proxies::default() };
    all.mailers = mailers::sections(refuse);
    let mut names: HashMap<Vec<u8>, usize> = HashMap::new();
    let started = |proxy: &&Proxy| {
        proxy.kind != ProxyKind::Defaults && !proxy.settings.disabled.is_some_and(|set| set.value)
    };
    let kinds = || config.proxies.iter().filter(started).map(|proxy| proxy.kind);
    all.frontends.reserve_exact(kinds().filter(|kind| kind.is_frontend()).count());
    all.backends.reserve_exact(kinds().filter(|kind| kind.is_backend()).count());
    for proxy in config.proxies.iter().filter(started).filter(|proxy| proxy.kind.is_backend()) {
        let number = names.len();
        names.insert(proxy.name.bytes().to_vec(), number);
    }
    let mut reader = RuleReader::new(Directory::new(config, started));
    // In HAProxy the run-time sockets have a proxy with a number of its own.
    let first = 1 + u32::from(!process.stats_sockets.is_empty());
    let mut ids = Ids::new(first, config.proxies.iter().filter_map(|proxy| proxy.id).map(|set| set.value));
    for proxy in config.proxies.iter().filter(started) {
        one(proxy, config, process, &names, &mut reader, logs, &mut ids, &mut all, refuse);
    }
    let named = reader.named_servers();
    for server in all
        .backends
        .iter()
        .flat_map(|backend| &backend.servers)
        .filter(|server| named.contains(&(server.number as u32)))
    {
        server.named.store(true, Ordering::Relaxed);
    }
    all.expressions = Some(reader.finish(zone, refuse));
    all
}

/// Assigns numbers to proxies, servers and listeners without `id`. As in HAProxy, numbers in use are skipped,
/// and an object with an `id` skips one number, too.
pub(super) struct Ids {
    taken: HashSet<u32>,
    next: u32,
}

impl Ids {
    /// Starts at `first` and skips the numbers `taken`.
    pub(super) fn new(first: u32, taken: impl Iterator<Item = u32>) -> Self {
        Self { taken: taken.collect(), next: first }
    }

    /// Returns the number of the next listener. Later listeners count on from `given`.
    pub(super) fn next_behind(&mut self, given: Option<u32>) -> u32 {
        self.next = given.unwrap_or(self.next);
        self.next(given)
    }

    /// Returns `given`, or else the next free number.
    pub(super) fn next(&mut self, given: Option<u32>) -> u32 {
        while given.is_none() && self.taken.contains(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        given.unwrap_or(self.next - 1)
    }
}

#[allow(clippy::too_many_arguments)] // shared by all proxies
fn one<'c>(
    proxy: &'c Proxy,
    config: &Config,
    process: &Process,
    names: &HashMap<Vec<u8>, usize>,
    reader: &mut RuleReader<'c>,
    logs: &mut Logs,
    ids: &mut Ids,
    all: &mut Proxies,
    refuse: &mut Refuse<'_>,
) {
    let Proxy {
        kind,
        name,
        pos: _,
        defaults: _, // rules of a named section were refused where they stand
        explicit_defaults: _,
        settings,
        switches_mode,
        id,
        guid,
        description,
        binds,
        servers,
        acls: _, // read with the rules
        rules: _,
        use_backend: _,
        use_server: _,
        captures: _,
        monitor_fail: _,
        ssl_f_use: _, // by its own reader
        unpublished,
        force_switch: _,
        force_persist: _,
        ignore_persist: _,
        filters: _,
        stick_table: _, // by their own reader
        stick_rules: _, // with the rules
        forward,
    } = proxy;
    all.count += 1;
    let number = all.count as u32; // no file has so many proxies
    let filters = Arc::new(Filters::of(proxy, number, config, refuse));
    let (rules, captures) = reader.rules(proxy, &filters, refuse);
    let rules = Arc::new(rules);
    let mode = settings.mode();
    let common = self::settings(settings, refuse);
    // In HAProxy `log-forward` sections have no number, and reports do not show them.
    let id_is_given = id.is_some();
    let id = if forward.is_some() { 0 } else { ids.next(id.map(|set| set.value)) };
    let description = description.as_ref().map(|set| text(&set.value));
    let guid = guid.as_ref().map(|set| text(&set.value));
    let time = |timeout: Timeout| settings.timeout(timeout).filter(|time| !time.is_zero());
    let targets = logs.targets(proxy, refuse);
    if *kind == ProxyKind::Frontend {
        mailers::alerts(proxy, &all.mailers, &logs.hostname, refuse); // says that they have no effect
    }
    if kind.is_frontend() {
        let number = all.frontends.len();
        let own = names.get(name.bytes()).copied().filter(|_| kind.is_backend());
        let default_backend = match &settings.default_backend {
            Some(set) => names.get(set.value.bytes()).copied(),
            None => own,
        };
        let mut listeners = Vec::new();
        let shards = bind::default_shards(&config.global, !process.no_reuse_port);
        let mut listener_ids =
            Ids::new(1, binds.iter().filter_map(|bind| bind.options.id).map(|set| set.value));
        let used = super::tls::used(proxy, &config.global.tls, refuse);
        for bind in binds {
            let more = bind::listeners(
                bind,
                number,
                listeners.len(),
                settings,
                &mut listener_ids,
                (&config.global, &process.groups, shards, used.as_ref()),
                refuse,
            );
            for listener in &more {
                if bind.options.id.is_some()
                    && listeners.iter().any(|other: &bind::Listener| other.id == listener.id)
                {
                    let message = format!(
                        "'id' expects a number of its own, found {}, which another listener has",
                        listener.id
                    );
                    refuse.found.alert(bind.options.id.map_or(bind.pos, |set| set.pos), message);
                }
            }
            listeners.extend(more);
        }
        let forward = forward.as_deref().map(|section| {
            let common = (&config.global, &process.groups, shards);
            LogForward::new(section, number, targets.clone(), settings, process, common, refuse)
        });
        all.frontends.push(Frontend {
            number,
            id,
            forward: forward.map(Arc::new),
            position: all.count,
            name: text(name),
            guid: guid.clone(),
            description: description.clone(),
            mode,
            switches_mode: *switches_mode,
            listeners,
            default_backend,
            own_backend: own,
            http: http::http(proxy, HttpSide::Front, reader, process, config, refuse),
            captures,
            rules: rules.clone(),
            filters: filters.clone(),
            log: logs.of(proxy, targets.clone(), reader, refuse),
            timeouts: FrontendTimeouts {
                client: time(Timeout::Client),
                client_fin: time(Timeout::ClientFin),
                handshake: time(Timeout::ClientHs).or(time(Timeout::Client)),
                request: time(Timeout::HttpRequest),
                keep_alive: time(Timeout::HttpKeepAlive),
                tarpit: time(Timeout::Tarpit).or(time(Timeout::Connect)),
            },
            conn_limit: Arc::new(ConnLimit::new(settings.maxconn.map_or(0, |set| set.value))),
            rate: Rate::new(settings.rate_limit.map_or(0, |set| set.value)),
            common,
            counts: Arc::default(),
            gate: Arc::default(),
            invalid: Arc::default(),
        });
    }
    if kind.is_backend() {
        let mut built = Vec::with_capacity(servers.len() + 1); // exact: growth by doubling would waste memory
        let states = all.files.of(proxy, refuse);
        for line in servers {
            let state = states
                .as_deref()
                .zip(proxy.name.text().zip(line.name.text()))
                .and_then(|(states, (backend, own))| states.get(backend, own));
            built.push(server::server(line, settings, process, all.servers, built.len(), state, refuse));
            all.servers += 1;
        }
        if mode == Mode::Log {
            for (server, line) in built.iter_mut().zip(servers) {
                forward::log_server(server, line, settings, logs, refuse);
            }
        }
        let mut ids = Ids::new(1, built.iter().map(|server| server.id));
        for server in &mut built {
            server.id = ids.next(Some(server.id).filter(|id| *id != 0));
        }
        server::check_dynamic_cookies(settings, &built, refuse);
        let pool_names = reader.servers(proxy, &mut built, refuse);
        let mut script = |of: &Proxy, refuse: &mut Refuse<'_>| -> CheckScript {
            let script = reader.compile(proxy, |compiler| steps::script(of, compiler, refuse));
            (Arc::new(script), steps::wording(&of.settings).into())
        };
        let usual = script(proxy, refuse);
        let names = |section: &&Proxy| {
            let own = servers.iter().filter_map(|server| server.options.healthcheck.as_ref());
            own.map(|set| set.value.bytes()).any(|name| name == section.name.bytes())
        };
        let named = config.healthchecks.iter().filter(names);
        let named = named.map(|section| (section.name.bytes().to_vec(), script(section, refuse))).collect();
        checks::checks(proxy, process, &mut built, &usual, &named, refuse);
        let (check_script, check_wording) = usual;
        agent::agents(proxy, process, &mut built, refuse);
        if server::has_stand_in(settings) {
            let mut server =
                server::of_client(proxy.pos, settings, process, all.servers, built.len(), refuse);
            server.id = ids.next(None);
            built.push(server);
            all.servers += 1;
        }
        let alerts = mailers::alerts(proxy, &all.mailers, &logs.hostname, refuse);
        let (balancer, key, algorithm) = balance::balancer(settings, mode, &built, all.lanes, refuse);
        let of_client = built
            .last()
            .filter(|server| server.stands_in)
            .and_then(|server| balancer.servers().index(server.index));
        for (index, _) in balancer.servers().iter() {
            let down = |check: &ServerCheck| check.board.read().health.running() == HealthState::Down;
            if built[index.get()].check.as_ref().is_some_and(down) {
                balancer.set_operation(index, Operation::Down, Time::now());
                built[index.get()].past.change(false, Time::now().since(Time::ZERO));
            }
        }
        if let Some(states) = states {
            all.states.push((all.backends.len(), states));
        }
        let mut http = http::http(proxy, HttpSide::Back, reader, process, config, refuse);
        http.buffer_request |= key.wants_body();
        let parts = BackendParts {
            number: all.backends.len(),
            pool_names,
            check_script,
            check_wording,
            algorithm,
            key,
            retries_connect: http.retry_on.connect,
            http,
            rules,
            filters,
            id,
            id_is_given,
            position: all.count,
            name: text(name),
            guid,
            published: Arc::new(AtomicBool::new(unpublished.is_none())),
            begins_published: unpublished.is_none(),
            description,
            mode,
            timeouts: BackendTimeouts {
                connect: time(Timeout::Connect),
                server: time(Timeout::Server),
                server_fin: time(Timeout::ServerFin),
                queue: time(Timeout::Queue).or(time(Timeout::Connect)),
                tunnel: time(Timeout::Tunnel),
                request: time(Timeout::HttpRequest),
                keep_alive: time(Timeout::HttpKeepAlive),
                tarpit: time(Timeout::Tarpit).or(time(Timeout::Connect)),
            },
            retries: settings.retries.map_or(3, |set| set.value),
            redispatch: Redispatch::new(settings.redispatch.map(|set| set.value)),
            common,
            events: logs.events(proxy, targets),
            alerts,
            counts: Arc::default(),
            past: Arc::new(HistoryCell::new(Time::now().since(Time::ZERO))),
            invalid: Arc::default(),
        };
        all.backends.push(Backend {
            parts: Arc::new(parts),
            order: built.iter().filter(|server| !server.stands_in).map(|server| server.index).collect(),
            idle_pools: Arc::new(idle_pools(&built)),
            balancer,
            of_client,
            servers: built.into_iter().map(Arc::new).collect(),
            fullconn: settings.fullconn.map_or(0, |set| set.value),
        });
    }
}

/// Returns limits and sizes of the lanes' idle pools for these servers.
pub(super) fn idle_pools<S: Borrow<Server>>(servers: &[S]) -> IdlePools {
    IdlePools::new(servers.iter().map(Borrow::borrow).map(|server| IdleLimits {
        most: server.pool_max,
        low: server.pool_low,
        purge: server.pool_purge,
    }))
}

/// Toggles that are implemented in both modes, or need no work.
const DONE: &[OptionSwitch] = &[
    OptionSwitch::ABORTONCLOSE,
    OptionSwitch::ALLBACKUPS,
    OptionSwitch::CHECKCACHE,
    OptionSwitch::CLITCPKA,
    OptionSwitch::CONTSTATS, // counters always grow during streams
    OptionSwitch::DISABLE_H2_UPGRADE,
    OptionSwitch::INDEPENDENT_STREAMS,
    OptionSwitch::NOLINGER,
    OptionSwitch::SOCKET_STATS, // in listeners
    OptionSwitch::SPLICE_AUTO,
    OptionSwitch::SPLICE_REQUEST,
    OptionSwitch::SPLICE_RESPONSE,
    OptionSwitch::SRVTCPKA,
    OptionSwitch::TCP_SMART_ACCEPT,
    OptionSwitch::TCP_SMART_CONNECT,
    OptionSwitch::TCPKA,
    OptionSwitch::TRANSPARENT,
    OptionSwitch::H1_ADJUST_CLIENT,
    OptionSwitch::H1_ADJUST_SERVER,
    OptionSwitch::HTTP_BUFFER_REQUEST,
    OptionSwitch::HTTP_DROP_REQUEST_TRAILERS,
    OptionSwitch::HTTP_DROP_RESPONSE_TRAILERS,
    OptionSwitch::HTTP_IGNORE_PROBES,
    OptionSwitch::HTTP_KEEP_ALIVE,
    OptionSwitch::HTTP_NO_DELAY, // data is never held back
    OptionSwitch::HTTP_PRETEND_KEEPALIVE,
    OptionSwitch::HTTP_SERVER_CLOSE,
    OptionSwitch::HTTP_STRICT_FRAMING,
    OptionSwitch::HTTP_USE_PROXY_HEADER,
    OptionSwitch::HTTPCLOSE,
    OptionSwitch::IDLE_CLOSE_ON_RESPONSE,
    OptionSwitch::PERSIST,
    OptionSwitch::PREFER_LAST_SERVER,
    OptionSwitch::UNSAFE_REQUESTS,
    OptionSwitch::UNSAFE_RESPONSES,
    OptionSwitch::DONTLOG_NORMAL,
    OptionSwitch::DONTLOGNULL,
    OptionSwitch::LOG_HEALTH_CHECKS,
    OptionSwitch::LOG_SEPARATE_ERRORS,
    OptionSwitch::LOGASAP, // in log settings
];

fn settings(settings: &Settings, refuse: &mut Refuse<'_>) -> Common {
    let Settings {
        refused: _,
        unsure: _,
        backlog: _,    // in listeners
        check_kind: _, // in checks
        check_steps: _,
        send_state: _,
        external_command: _,
        external_path: _,
        disable_on_404: _,
        balance: _,
        client_keep_alive: _, // in listeners
        cookie: _,
        default_backend: _,
        default_server: _, // merged into the servers
        disabled: _,
        dispatch: _,           // in servers
        dynamic_cookie_key: _, // in servers
        persist_rdp: _,        // in rules
        error_files: _,
        error_log_format: _, // in log settings
        errorfiles: _,
        forwarded: _,
        forwardfor: _,
        fullconn: _,
        hash_balance_factor: _,
        hash_preserve_affinity: _,
        hash_type: _,
        email_alert: _, // in the backend
        http_errors: _,
        http_reuse: _,
        http_send_name_header: _,
        inspect_request,
        inspect_response,
        load_server_state: _, // after all servers are built
        log: _,               // in log settings
        log_format: _,
        log_format_sd: _,
        log_option: _,
        log_steps: _,
        log_tag: _,
        max_keep_alive_queue: _, // in HTTP settings, as the next
        max_session_srv_conns: _,
        maxconn: _,
        mode: _,
        monitor_uri: _,
        options,
        originalto: _,
        rate_limit: _, // in the frontend
        redispatch: _,
        restrict_header_names: _,
        retries: _,
        retry_on: _,
        server_keep_alive: _, // in servers
        server_state_file: _, // in servers
        source: _,            // in servers
        stats: _,             // in HTTP settings
        timeouts: _,
        unique_id_format: _,
        unique_id_header: _,
    } = settings;
    for (toggle, set) in OptionSwitch::all().zip(options) {
        if let Some(set) = set
            && set.value
            && !DONE.contains(&toggle)
        {
            refuse.keyword(set.pos, toggle.name(), "it is not built yet");
        }
    }
    let splice = |forced: OptionSwitch| {
        let always = SplicePolicy { from: 0 };
        let auto = settings.option(OptionSwitch::SPLICE_AUTO).then(SplicePolicy::default);
        settings.option(forced).then_some(always).or(auto)
    };
    Common {
        splice_request: splice(OptionSwitch::SPLICE_REQUEST),
        splice_response: splice(OptionSwitch::SPLICE_RESPONSE),
        independent: settings.option(OptionSwitch::INDEPENDENT_STREAMS),
        abort_on_close: settings.option(OptionSwitch::ABORTONCLOSE),
        no_linger: settings.option(OptionSwitch::NOLINGER),
        inspect_request: inspect_request.map(|set| set.value).filter(|time| !time.is_zero()),
        inspect_response: inspect_response.map(|set| set.value).filter(|time| !time.is_zero()),
    }
}
