//! A generation is one configuration, built for running. Only counters and the state of servers change in it,
//! so lanes share it by an `Arc`. A reload builds another generation; sessions of the older one run to their
//! end.
//!
//! `Generation::build` destructures the checked tree field by field, so no setting is ignored silently. It
//! refuses settings that the program does not implement, at their position in the file.

mod acme;
mod agent;
mod balance;
mod bandwidth;
mod bind;
mod checks;
mod cpu_choice;
mod cpu_map;
mod files;
mod filters;
mod forward;
mod frontend_gate;
mod groups;
mod h2;
mod http;
mod http_client;
mod inherit;
mod log;
mod mailers;
mod members;
mod missing;
pub mod notify;
mod observe;
pub mod pages;
mod peers;
mod process;
mod proxies;
mod refuse;
mod resolvers;
mod rules;
mod server;
mod server_addr;
mod spelling;
mod state_file;
mod stats_file;
mod stats_page;
mod steps;
mod stick;
mod tls;
mod track;
mod users;
mod variables;

pub use acme::{Acme, AcmeCertificate, AcmeSection, certificate_info, server_name};
pub use agent::{CheckTarget, TargetOverride};
pub use balance::BalanceKey;
pub use bandwidth::{Bandwidth, FilterId};
pub use bind::has_lanes;
pub use bind::{Listener, Shards};
pub use checks::{CheckTimeouts, InheritedTarget, Program, ServerCheck};
pub use cpu_map::CpuMap;
pub use filters::Filters;
pub use filters::TraceFilter;
pub use forward::{DatagramListener, LogForward};
pub use frontend_gate::{FrontendGate, FrontendGateSnapshot, FrontendGateState};
pub use groups::Groups;
pub use h2::{H2Settings, LoggedErrors};
pub use http::{AddressField, CloseMode, Cookie, Http, RetryEvents, Reuse};
pub use http_client::HttpClientSettings;
pub use log::{EventLog, FrontendLog, Logs, Profile};
pub use mailers::{Alerts, MOST_MAILS, Mail, Mailer, Queued};
pub use manylane_expr::{CLF_LOG, HTTP_LOG, HTTPS_LOG, TCP_LOG};
pub use members::{Change, Changed, Changes, Effect, MOST_BEHIND, NotRemoved, options_of_added_servers};
pub use observe::{OnError, TrafficObserver};
pub use peers::{Link as PeerLink, Peer, Peers, PeersTls, Report as PeersReport};
pub use process::{MOST_LANES, Owner, Process, Rights, RuntimeSocket};
pub use proxies::{Backend, BackendParts, BackendTimeouts, Common, Frontend, FrontendTimeouts, Redispatch};
pub use resolvers::{MOST_ORDERS, NameServer, Resolution, Resolvers};
pub use resolvers::{Order, Question};
pub use rules::{
    Action, AddressPart, Captures, DropMode, Edit, End, Expressions, GeneralCounter, ListChange, Lookup,
    MOST_POOL_NAMES, NameMatch, Normalizer, NumberSource, Packets, Persist, Preamble, Redirect,
    RedirectCookie, RedirectKind, Reply, ReplyBody, Rule, Rules, SetBandwidth, Setting, SharedKey, Stick,
    Target, TargetPart, TimeSource, TimeoutOf, Track, TrackCounts, ValueSource,
};
pub use rules::{Forwarded, NoTarget};
pub use server::{HashKey, SendHeader, Server, ServerAddress};
pub use server_addr::{ServerAddr, ServerAddrState};
pub use stats_page::{Credentials, StatsPage};
pub use stick::StickTable;
pub use tls::{ServerTls, SniName};
pub use track::ServerNumber;
pub use track::{follow, operation};
pub use users::Userlist;
pub use variables::{inherit_late, set_now};

use crate::conn_limit::ConnLimit;
use crate::process_stats::ProcessStats;
use crate::rate::Rate;
use manylane_config::diag::Diagnostics;
use manylane_config::lex::Environment;
use manylane_config::tree::{Config, Mode, Proxy, ProxyKind, Set};
use manylane_expr::Zone;
use manylane_http::CaseTable;
use manylane_logs::RingServer;
use manylane_sched::Time;
use manylane_sync::Arc;
use manylane_tls::Store;
use pages::Pages;
use refuse::Refuse;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

/// Number of certificates that a lane frees within a tenth of a millisecond.
const MANY_CERTIFICATES: usize = 1000;

/// One configuration, built for running. A generation that differs from another only by a server shares the
/// rest with it (`members.rs`).
#[derive(Debug)]
pub struct Generation {
    /// The parts that do not depend on servers.
    parts: Arc<Parts>,
    /// All backends.
    pub backends: Vec<Arc<Backend>>,
    /// Number of server numbers in use, over all backends.
    pub servers: usize,
    /// Makes the program's own pages; the program sets it before the generation serves.
    pub pages: Option<Arc<dyn Pages>>,
    /// Changes servers for agents; the program sets it before the generation serves.
    pub changes: Option<Arc<dyn Changes>>,
    /// Limits shared with the generation before, and their values once this generation serves.
    bounds: Vec<(Arc<ConnLimit>, u64)>,
    /// Servers of rings shared with the generation before, and those whose timeouts and TLS they have once
    /// this generation serves.
    ring_servers: Vec<(Arc<RingServer>, Arc<RingServer>)>,
}

impl Deref for Generation {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl DerefMut for Generation {
    /// # Panics
    /// If another generation shares the parts already.
    fn deref_mut(&mut self) -> &mut Parts {
        Arc::get_mut(&mut self.parts).expect("a generation is changed before it serves")
    }
}

/// The parts of a generation that do not depend on servers.
#[derive(Debug)]
pub struct Parts {
    /// Settings of the process.
    pub process: Process,
    /// All frontends that are started.
    pub frontends: Vec<Frontend>,
    /// State that the compiled expressions share.
    pub expressions: Expressions,
    /// `resolvers` sections, in the order of the file.
    pub resolvers: Vec<Arc<Resolvers>>,
    /// `peers` sections, in the order of the file.
    pub peers: Vec<Arc<Peers>>,
    /// TLS of `peers` sections, in the same order.
    pub peers_tls: Vec<PeersTls>,
    /// The loaded certificates and keys.
    pub certificates: Arc<Store>,
    /// The files name more than `MANY_CERTIFICATES`: freeing those stops a lane.
    pub has_many_certificates: bool,
    /// The certificates that ACME renews.
    pub acme: Acme,
    /// `httpclient.*`
    pub http_client: HttpClientSettings,
    /// Stick tables, by number.
    pub stick_tables: Vec<StickTable>,
    /// `userlist` sections, in the order of the file.
    pub userlists: Vec<Userlist>,
    /// True if some list has hashed passwords.
    pub hashes_passwords: bool,
    /// `h1-case-adjust`
    pub spellings: Option<CaseTable>,
    /// True if a rule or a format uses the unique id of requests.
    pub makes_ids_early: bool,
    /// True if some server is sent evaluated formats: `set-proxy-v2-tlv-fmt`.
    pub tells_formats: bool,
    /// True if a format or an expression uses the addresses of connections to servers.
    pub reads_connections: bool,
    /// True if a rule uses what is logged about its stream.
    pub reads_stream_record: bool,
    /// The network namespaces that the configuration names.
    namespaces: Vec<Arc<str>>,
    /// Log targets.
    pub logs: Logs,
    /// The local time zone.
    pub zone: Zone,
    /// `maxconn` of `global`.
    pub conn_limit: Arc<ConnLimit>,
    /// Descriptors that the process may open; 0 if unknown.
    pub descriptors: u64,
    /// `maxconnrate`
    pub connection_rate: Arc<Rate>,
    /// `maxsessrate`
    pub session_rate: Arc<Rate>,
    /// `maxsslrate`
    pub tls_rate: Arc<Rate>,
    /// `maxsslconn`
    pub tls_conn_limit: Arc<ConnLimit>,
    /// `maxconn` at the start.
    pub hard_maxconn: u64,
    /// The environment after the files were read.
    pub environment: Environment,
    /// Messages about the files, one a line.
    pub said: Box<str>,
    /// The saved configuration, from which added servers are made.
    saved: members::SavedConfig,
    /// Counters of the whole process.
    pub process_stats: Arc<ProcessStats>,
    /// Numbers of frontends and backends.
    frontends_by_name: HashMap<Box<str>, usize>,
    backends_by_name: HashMap<Box<str>, usize>,
}

/// Settings of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartOptions {
    /// `-dr`: a server whose name cannot be resolved begins without an address.
    pub ignore_unresolved: bool,
    /// `-dS`
    pub no_splice: bool,
    /// `-dR`
    pub no_reuse_port: bool,
    /// Servers with names get an address of documentation (192.0.2.0) instead of one that the system looks
    /// up. `manylane test` connects to no server.
    pub no_lookups: bool,
    /// `-sf`, or a master's reload: the process replaces another one, which sends the contents of its stick
    /// tables.
    pub follows: bool,
}

impl Generation {
    /// Builds the generation of `config`. Adds errors and settings that are not built to `found`; the result
    /// is usable only if there are no errors.
    ///
    /// Resolves host names with the system's resolver, which may take seconds.
    pub fn build(config: &Config, wishes: StartOptions, found: &mut Diagnostics) -> Self {
        Self::build_after(config, wishes, None, found)
    }

    /// Builds a generation as [`build`](Self::build) does, to replace `before`: certificates whose files have
    /// not changed are not read again.
    pub fn build_after(
        config: &Config,
        wishes: StartOptions,
        before: Option<&Self>,
        found: &mut Diagnostics,
    ) -> Self {
        let Config {
            global,
            proxies: _,
            userlists,
            http_errors,
            resolvers: _, // by their own reader
            peers: _,     // the same
            mailers: _,   // the same
            rings: _,     // with the targets of logs
            log_profiles: _,
            healthchecks: _, // with the servers that name them
            crt_stores: _,
            acmes: _,
            files: _, // for positions in reports
            environment,
            refused: _, // where names are looked up
        } = config;
        let mut refuse = Refuse::new(found, config, wishes.ignore_unresolved);
        refuse.no_lookups = wishes.no_lookups;
        if let Some(before) = before {
            refuse.tls.follow(&before.certificates);
        }
        let acme = tls::crt_stores(config, &mut refuse); // before lines that name their certificates
        let mut process = process::process(global, &mut refuse);
        process.no_splice |= wishes.no_splice;
        process.no_reuse_port |= wishes.no_reuse_port;
        let resolvers = resolvers::sections(config, &mut refuse);
        let userlists = users::userlists(userlists, &mut refuse);
        if userlists.iter().any(Userlist::has_hashes) {
            let bytes =
                |proxy: &&Proxy| proxy.kind != ProxyKind::Defaults && proxy.settings.mode() == Mode::Tcp;
            let asks = |proxy: &&Proxy| {
                [&b"http_auth("[..], b"http_auth_group"].iter().any(|name| rules::mentioned_by(proxy, name))
            };
            for proxy in config.proxies.iter().filter(bytes).filter(asks) {
                let why = "in TCP mode checking a hashed password would block the lane; use 'mode http'";
                refuse.keyword(proxy.pos, "http_auth", why);
            }
        }
        let stick_tables = stick::tables(config, &mut refuse);
        let (peers, peers_tls) = peers::sections(config, &process, wishes.follows, &mut refuse);
        let spellings = spelling::spellings(global, &mut refuse);
        let mut logs = Logs::new(global, &mut refuse);
        let zone = Zone::system();
        let mut proxies = proxies::proxies(config, &process, &zone, &mut logs, &mut refuse);
        http::unused(http_errors, &mut refuse);
        track::resolve(config, &mut proxies.backends, &mut refuse);
        let sockets = process.stats_sockets.clone();
        let listeners = proxies.frontends.iter().flat_map(|frontend| &frontend.listeners);
        bind::served(listeners.chain(sockets.iter().map(|socket| &socket.listener)), &process, &mut refuse);
        if process.no_reuse_port {
            let listeners = proxies.frontends.iter_mut().flat_map(|frontend| &mut frontend.listeners);
            listeners.for_each(|listener| listener.options.reuse_port = false);
        }
        let conn_limit = Arc::new(ConnLimit::new(process.maxconn.unwrap_or(0)));
        let hard_maxconn = conn_limit.most();
        let (connection_rate, session_rate) =
            (Arc::new(Rate::new(process.connection_rate)), Arc::new(Rate::new(process.session_rate)));
        let limit = |set: &Option<Set<u32>>| set.map_or(0, |set| set.value);
        let tls_rate = Arc::new(Rate::new(limit(&process.tls.rate)));
        let tls_conn_limit = Arc::new(ConnLimit::new(limit(&process.tls.connections)));
        stats_file::load(&proxies.frontends, &proxies.backends, &mut refuse);
        let (expressions, used) = proxies.expressions.take().expect("the proxies were read");
        acme.check_maps(&expressions, &mut refuse);
        let named = |namespace: &Option<Box<str>>| namespace.as_deref().map(Arc::from);
        let of_binds = proxies
            .frontends
            .iter()
            .flat_map(|own| &own.listeners)
            .filter_map(|listener| named(&listener.options.namespace));
        let of_servers = proxies
            .backends
            .iter()
            .flat_map(|own| &own.servers)
            .filter_map(|server| named(&server.connect.namespace));
        let namespaces = of_binds.chain(of_servers).collect();
        let tells_formats =
            proxies.backends.iter().flat_map(|own| &own.servers).any(|server| !server.tlvs.is_empty());
        let certificates = refuse.tls.clone();
        certificates.forget_predecessor();
        let parts = Parts {
            process,
            has_many_certificates: certificates.count() > MANY_CERTIFICATES,
            certificates,
            acme,
            http_client: http_client::settings(config),
            environment: environment.clone(),
            said: Box::default(),
            saved: members::SavedConfig::of(config),
            process_stats: Arc::default(),
            frontends_by_name: proxies.frontends.iter().map(|own| (own.name.clone(), own.number)).collect(),
            backends_by_name: proxies.backends.iter().map(|own| (own.name.clone(), own.number)).collect(),
            reads_connections: used.links,
            reads_stream_record: used.course,
            namespaces,
            tells_formats,
            frontends: proxies.frontends,
            expressions,
            resolvers,
            peers,
            peers_tls,
            stick_tables,
            hashes_passwords: userlists.iter().any(Userlist::has_hashes),
            userlists,
            spellings,
            makes_ids_early: rules::mentions(config, b"unique-id") || rules::mentions(config, b"%ID"),
            zone,
            logs,
            conn_limit,
            descriptors: 0,
            connection_rate,
            session_rate,
            tls_rate,
            tls_conn_limit,
            hard_maxconn,
        };
        let generation = Self {
            parts: Arc::new(parts),
            backends: proxies.backends.into_iter().map(Arc::new).collect(),
            servers: proxies.servers,
            pages: None,
            changes: None,
            bounds: Vec::new(),
            ring_servers: Vec::new(),
        };
        for (backend, states) in &proxies.states {
            state_file::restore(&generation.backends[*backend], states);
        }
        generation.settle_followers(Time::now());
        for backend in &generation.backends {
            if backend.is_down() {
                // a backend that starts down does not count as going down
                backend.past.restore(false, Time::now().since(Time::ZERO));
            }
        }
        generation
    }

    /// Returns the network namespace with this name, if the configuration names it. A client cannot open
    /// others.
    pub fn namespace(&self, name: &[u8]) -> Option<Arc<str>> {
        self.namespaces.iter().find(|known| known.as_bytes() == name).cloned()
    }

    /// Returns the name of the node: `node`, or the host name.
    pub fn node(&self) -> &str {
        self.process.node.as_deref().unwrap_or(&self.logs.hostname)
    }

    /// Returns true if anything listens: command sockets and `peers` sections count, as in HAProxy.
    pub fn listens(&self) -> bool {
        !self.process.stats_sockets.is_empty()
            || self.peers.iter().any(|section| section.listener.is_some())
            || self.frontends.iter().any(|frontend| {
                let datagrams = frontend.forward.as_ref().map_or(0, |own| own.datagrams.len());
                frontend.listeners.len() + datagrams > 0
            })
    }

    /// Limits the connections of the process to `most`, for a configuration without `maxconn`.
    pub fn set_maxconn(&mut self, most: u64) {
        self.conn_limit.give(most);
        self.hard_maxconn = most;
        for frontend in &self.parts.frontends {
            let own =
                if frontend.conn_limit.most() == 0 { most } else { frontend.conn_limit.most().min(most) };
            frontend.conn_limit.give(own);
        }
        self.set_fullconn();
    }

    /// Sets `fullconn` of backends that do not configure it: a tenth of the sum of `maxconn` of the frontends
    /// that may choose the backend, at least 1. Frontends that choose it by a format do not count.
    fn set_fullconn(&mut self) {
        let parts = &self.parts;
        let own = self.backends.iter_mut().filter_map(Arc::get_mut); // not shared yet
        for backend in own.filter(|backend| backend.fullconn == 0) {
            let chooses = |frontend: &&Frontend| {
                let fixed = |rule: &Rule<Target>| {
                    matches!(rule.action, Target::Fixed(number)
                    if number == backend.number)
                };
                frontend.default_backend == Some(backend.number)
                    || frontend.rules.use_backend.iter().any(fixed)
            };
            let most = |frontend: &Frontend| match frontend.conn_limit.most() {
                0 => parts.conn_limit.most(),
                own => own,
            };
            let sum = parts.frontends.iter().filter(chooses).map(most).sum::<u64>();
            let fullconn = u32::try_from(sum.div_ceil(10)).unwrap_or(u32::MAX).max(1);
            backend.fullconn = fullconn;
            backend.balancer.set_fullconn(fullconn);
        }
    }
}
