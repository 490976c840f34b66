//! The checked configuration: what the file means, typed, each value with the place that it comes from.
//!
//! Expressions (conditions, log formats, samples, patterns) are words with positions: the crate `expr` reads
//! them with its own registries and reports with the same places.

pub use crate::table::{BindOptions, ServerOptions, TlsOptions, TlsProcess, Tune};

use crate::lex::{Environment, Word};
use crate::source::Pos;
use crate::table::{Ruleset, Timeout, Toggle};
use manylane_expr::{DataType, Type};
use manylane_net::Address;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A value and the line's keyword that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Where it was given.
    pub pos: Pos,
}

/// A whole configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `global`
    pub global: Global,
    /// All proxies in the order of the files, `defaults` among them.
    pub proxies: Vec<Proxy>,
    /// `userlist`
    pub userlists: Vec<Userlist>,
    /// `http-errors`
    pub http_errors: Vec<HttpErrors>,
    /// `resolvers`
    pub resolvers: Vec<Resolvers>,
    /// `peers`
    pub peers: Vec<Peers>,
    /// `ring`
    pub rings: Vec<Ring>,
    /// `log-profile`
    pub log_profiles: Vec<LogProfile>,
    /// `crt-store`
    pub crt_stores: Vec<CrtStore>,
    /// Names of the files, for reports.
    pub files: Vec<Box<[u8]>>,
    /// The environment after the last line: what programs and `defined()` at run time see.
    pub environment: Environment,
}

impl Config {
    /// Where a file is that is named at `pos`: a relative name begins where the last `default-path` before it
    /// says.
    pub fn path(&self, name: &[u8], pos: Pos) -> PathBuf {
        let before =
            |statement: &&Statement| (statement.pos.file, statement.pos.line) <= (pos.file, pos.line);
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let folder = self
            .files
            .get(pos.file.index())
            .and_then(|name| path(name).parent().map(Path::to_path_buf))
            .unwrap_or_default();
        let base = match self.global.default_path.iter().rfind(before).map(|statement| &statement.words[..]) {
            Some([kind]) if *kind == *"config" => folder,
            Some([kind]) if *kind == *"parent" => folder.join(".."),
            Some([kind, origin]) if *kind == *"origin" => path(origin.bytes()),
            _ => PathBuf::new(),
        };
        base.join(path(name)) // an absolute name stays as it is
    }
}

impl Config {
    /// The file and line of a position, as reports name them.
    pub fn place(&self, pos: Pos) -> Option<(&[u8], u32)> {
        Some((self.files.get(pos.file.index())?, pos.line))
    }
}

/// A line kept as it is: its keyword's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The keyword, of one or more words.
    pub keyword: &'static str,
    /// What follows it.
    pub words: Vec<Word>,
    /// Where the keyword stands.
    pub pos: Pos,
}

/// `if` or `unless` and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `unless`: the rule applies when the condition does not hold.
    pub unless: bool,
    /// The words of the condition, at least one.
    pub words: Vec<Word>,
    /// Where `if` or `unless` stands.
    pub pos: Pos,
}

/// `hard-stop-after`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardStop {
    /// Time from the request to stop.
    pub after: Duration,
}

/// `unix-bind`: what all unix listeners have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the option, as for `bind`
pub struct UnixBind {
    pub prefix: Option<Word>,
    pub mode: Option<u32>,
    pub user: Option<Word>,
    pub uid: Option<u32>,
    pub group: Option<Word>,
    pub gid: Option<u32>,
}

/// Settings of the process; what is `None` has the default that the table shows. Fields have the keywords'
/// names.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the table of keywords documents them
pub struct Global {
    pub busy_polling: Option<Set<bool>>,
    pub chroot: Option<Set<Word>>,
    /// `None` inside: infinite.
    pub close_spread_time: Option<Set<Option<Duration>>>,
    /// `cpu-map`, `cpu-policy`, `cpu-set`, `cpu-affinity` in order.
    pub cpu_placement: Vec<Statement>,
    pub daemon: Option<Set<bool>>,
    /// `default-path` lines in order: each holds for what follows it.
    pub default_path: Vec<Statement>,
    pub description: Option<Set<Word>>,
    pub disable_fast_forward: Option<Set<bool>>,
    /// `external-check`: programs may check servers; `preserve-env`: with all of the process's environment.
    pub external_check: Option<Set<bool>>,
    pub disable_zero_copy: Option<Set<bool>>,
    /// `h2-workaround-bogus-websocket-clients`
    pub h2_hides_websocket: Option<Set<bool>>,
    pub dns_accept_family: Option<Set<Word>>,
    pub expose_deprecated: Option<Set<bool>>,
    pub expose_experimental: Option<Set<bool>>,
    pub fd_hard_limit: Option<Set<u32>>,
    pub gid: Option<Set<u32>>,
    pub grace: Option<Set<Duration>>,
    pub group: Option<Set<Word>>,
    pub h1_accept_payload: Option<Set<bool>>,
    /// Name and spelling.
    pub h1_case_adjust: Vec<(Word, Word)>,
    pub h1_case_adjust_file: Option<Set<Word>>,
    pub hard_stop_after: Option<Set<HardStop>>,
    pub http_err_codes: Option<Set<StatusSet>>,
    pub http_fail_codes: Option<Set<StatusSet>>,
    pub localpeer: Option<Set<Word>>,
    pub log: Vec<LogTarget>,
    pub log_send_hostname: Option<Set<Option<Word>>>,
    pub log_tag: Option<Set<Word>>,
    pub max_spread_checks: Option<Set<Duration>>,
    pub maxconn: Option<Set<u32>>,
    pub maxconnrate: Option<Set<u32>>,
    pub maxpipes: Option<Set<u32>>,
    pub maxsessrate: Option<Set<u32>>,
    pub master_worker: Option<Set<WorkerFails>>,
    pub mworker_max_reloads: Option<Set<u32>>,
    pub nbthread: Option<Set<u32>>,
    pub node: Option<Set<Word>>,
    pub noreuseport: Option<Set<bool>>,
    pub nosplice: Option<Set<bool>>,
    pub numa_cpu_mapping: Option<Set<bool>>,
    pub pidfile: Option<Set<Word>>,
    pub pp2_never_send_local: Option<Set<bool>>,
    pub profiling_memory: Option<Set<bool>>,
    pub profiling_tasks: Option<Set<&'static str>>,
    pub quiet: Option<Set<bool>>,
    pub reject_privileged_tcp: Option<Set<bool>>,
    pub server_state_base: Option<Set<Word>>,
    pub server_state_file: Option<Set<Word>>,
    pub set_dumpable: Option<Set<&'static str>>,
    pub spread_checks: Option<Set<u32>>,
    pub stats_maxconn: Option<Set<u32>>,
    pub stats_sockets: Vec<Bind>,
    pub stats_timeout: Option<Set<Duration>>,
    pub strict_limits: Option<Set<bool>>,
    pub thread_group: Vec<Statement>,
    pub thread_groups: Option<Set<u32>>,
    pub thread_hard_limit: Option<Set<u32>>,
    pub tls: TlsProcess,
    pub tune: Tune,
    pub uid: Option<Set<u32>>,
    pub ulimit_n: Option<Set<u32>>,
    pub unix_bind: Option<Set<UnixBind>>,
    pub user: Option<Set<Word>>,
    /// `set-var` and `set-var-fmt` in order.
    pub variables: Vec<Statement>,
    pub warn_blocked_after: Option<Set<Duration>>,
    pub zero_warning: Option<Set<bool>>,
    pub insecure_setuid: Option<Set<bool>>,
}

/// What a proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// Settings for others.
    Defaults,
    /// Listens.
    Frontend,
    /// Has servers.
    Backend,
    /// Both.
    Listen,
}

impl ProxyKind {
    /// Whether it listens.
    pub fn is_frontend(self) -> bool {
        matches!(self, Self::Frontend | Self::Listen)
    }

    /// Whether it has servers.
    pub fn is_backend(self) -> bool {
        matches!(self, Self::Backend | Self::Listen)
    }

    /// The word that begins its section.
    pub fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::Listen => "listen",
        }
    }
}

/// A proxy, or a `defaults` section.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// What it is.
    pub kind: ProxyKind,
    /// Its name; empty for a `defaults` section without one.
    pub name: Word,
    /// Where its section begins.
    pub pos: Pos,
    /// The `defaults` section that it begins with, as an index of [`Config::proxies`]; the rules of a named
    /// one come before the proxy's own, and its ACLs are visible to those rules only.
    pub defaults: Option<usize>,
    /// Its header names that section.
    pub explicit_defaults: bool,
    /// What it can take over from `defaults`.
    pub settings: Settings,
    /// `id`
    pub id: Option<Set<u32>>,
    /// `guid`
    pub guid: Option<Set<Word>>,
    /// `description`
    pub description: Option<Set<Word>>,
    /// `bind`
    pub binds: Vec<Bind>,
    /// `server`, and those that `server-template` lines made. Each by itself: a table of thousands
    /// that doubles would take three times the memory for a moment.
    pub servers: Vec<Box<Server>>,
    /// `acl`
    pub acls: Vec<Acl>,
    /// Rules of all lists in order.
    pub rules: Vec<Rule>,
    /// `filter`
    pub filters: Vec<Filter>,
    /// `use_backend`
    pub use_backend: Vec<Choice>,
    /// `use-server`
    pub use_server: Vec<Choice>,
    /// `capture` and `declare capture`
    pub captures: Vec<Capture>,
    /// `monitor fail`
    pub monitor_fail: Vec<Condition>,
    /// `force-persist`
    pub force_persist: Vec<Condition>,
    /// `ignore-persist`
    pub ignore_persist: Vec<Condition>,
    /// `stick-table`
    pub stick_table: Option<StickTable>,
    /// `stick match`, `stick on`, `stick store-request` and `stick store-response`
    pub stick_rules: Vec<StickRule>,
}

/// `stick`: the server of a key is found in a table, or stored there.
#[derive(Clone, Debug)]
pub struct StickRule {
    /// What is done.
    pub kind: StickKind,
    /// The expression that makes the key.
    pub key: Vec<Word>,
    /// `table`; else that of the proxy.
    pub table: Option<Word>,
    /// When it applies; always without one.
    pub condition: Option<Condition>,
    /// Where the line is.
    pub pos: Pos,
}

/// What a `stick` rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickKind {
    /// `on`: both of the next two.
    On,
    /// `match`: finds the server of a request.
    Match,
    /// `store-request`: stores the server by what the request says.
    StoreRequest,
    /// `store-response`: stores the server by what its response says.
    StoreResponse,
}

/// Statuses of HTTP, 100 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatusSet([u64; 8]);

impl StatusSet {
    /// `http-err-codes`, unless the file says otherwise.
    pub fn errors() -> Self {
        let mut set = Self::default();
        set.change(400..=499, true);
        set
    }

    /// `http-fail-codes`, unless the file says otherwise.
    pub fn failures() -> Self {
        let mut set = Self::default();
        set.change(500..=599, true);
        set.change(501..=501, false);
        set.change(505..=505, false);
        set
    }

    /// Adds statuses, or takes them out.
    pub fn change(&mut self, statuses: std::ops::RangeInclusive<u16>, add: bool) {
        for status in statuses {
            let Some((word, bit)) = Self::bit(status) else { continue };
            if add { self.0[word] |= bit } else { self.0[word] &= !bit }
        }
    }

    fn bit(status: u16) -> Option<(usize, u64)> {
        let n = usize::from(status).checked_sub(100)?;
        (n < 500).then(|| (n / 64, 1 << (n % 64)))
    }

    /// Whether a status is among them.
    pub fn contains(&self, status: u16) -> bool {
        Self::bit(status).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }
}

/// `stick-table`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickTable {
    /// The type of its keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
    /// Bytes of a text or of data that are kept.
    pub key_bytes: usize,
    /// Entries at most.
    pub size: u32,
    /// How long an entry stays without being used; for good without it.
    pub expire: Option<Duration>,
    /// `nopurge`
    pub nopurge: bool,
    /// `srvkey addr`: servers are known again by their addresses, else by their names.
    pub by_address: bool,
    /// `store`, in the order of data types.
    pub data: Vec<StickData>,
    /// `peers`: the section that shares it.
    pub peers: Option<Word>,
    /// `recv-only`: it is filled by peers, which are told nothing of it.
    pub receives_only: bool,
    /// Where the line is.
    pub pos: Pos,
}

/// What entries of a stick table keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickData {
    /// What.
    pub kind: DataType,
    /// Elements of an array; 1 for what is none.
    pub count: u32,
    /// What a rate is over; zero for what is none.
    pub period: Duration,
}

/// `filter`
#[derive(Clone, Debug)]
pub enum Filter {
    /// `bwlim-in` and `bwlim-out`
    Bandwidth(BandwidthLimit),
    /// `trace`
    Trace(TraceFilter),
}

/// `filter bwlim-in` and `filter bwlim-out`: bounds the bytes of a stream.
#[derive(Clone, Debug)]
pub struct BandwidthLimit {
    /// What rules call it; no other of the proxy has this name.
    pub name: Word,
    /// Bytes from the client are bounded, else bytes to it.
    pub incoming: bool,
    /// Bytes a period, above 0.
    pub limit: u32,
    /// At least a millisecond. Zero where it is that of a stick table.
    pub period: Duration,
    /// `key`: streams with the same key share the limit.
    pub shared: Option<SharedLimit>,
    /// So many bytes go on together at least, where as many are there.
    pub min_size: u32,
    /// Where it stands.
    pub pos: Pos,
}

/// By what streams share the limit of a filter.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    /// The expression that makes the key.
    pub key: Vec<Word>,
    /// `table`; else that of the proxy.
    pub table: Option<Word>,
}

/// `filter trace`: tells what streams do.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the table of keywords documents them
pub struct TraceFilter {
    pub name: Word,
    pub random_forwarding: bool,
    pub hexdump: bool,
    pub quiet: bool,
}

impl Proxy {
    /// One with settings and nothing else.
    pub fn bare(kind: ProxyKind, name: Word, pos: Pos, settings: Settings) -> Self {
        Self {
            kind,
            name,
            pos,
            defaults: None,
            explicit_defaults: false,
            settings,
            id: None,
            guid: None,
            description: None,
            binds: Vec::new(),
            servers: Vec::new(),
            acls: Vec::new(),
            rules: Vec::new(),
            filters: Vec::new(),
            use_backend: Vec::new(),
            use_server: Vec::new(),
            captures: Vec::new(),
            monitor_fail: Vec::new(),
            force_persist: Vec::new(),
            ignore_persist: Vec::new(),
            stick_table: None,
            stick_rules: Vec::new(),
        }
    }
}

/// `mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Bytes.
    Tcp,
    /// Messages.
    Http,
}

impl Mode {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
        }
    }
}

/// What a proxy takes over from its `defaults`; what is `None` has the default that the table shows. Fields
/// have the keywords' names.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the table of keywords documents them
pub struct Settings {
    /// Keywords that were refused for their values: what they were to set is unknown.
    pub refused: Vec<&'static str>,
    pub backlog: Option<Set<u32>>,
    pub balance: Option<Set<Balance>>,
    /// `option httpchk`, `tcp-check`, `redis-check`: how servers are checked.
    pub check_kind: Option<Statement>,
    /// `http-check` and `tcp-check` lines in order: the section's own, or those of its `defaults`.
    pub check_steps: Vec<Statement>,
    /// `http-check disable-on-404`
    pub disable_on_404: Option<Set<bool>>,
    /// `http-check send-state`
    pub send_state: Option<Set<bool>>,
    /// `external-check command`
    pub external_command: Option<Set<Word>>,
    /// `external-check path`
    pub external_path: Option<Set<Word>>,
    pub client_keep_alive: KeepAlive,
    pub cookie: Option<Set<Cookie>>,
    pub default_backend: Option<Set<Word>>,
    pub default_server: ServerOptions,
    pub disabled: Option<Set<bool>>,
    /// Where streams go that no cookie and no rule has a server for.
    pub dispatch: Option<Set<Address>>,
    pub dynamic_cookie_key: Option<Set<Word>>,
    pub error_files: Vec<ErrorFile>,
    pub error_log_format: Option<Set<Word>>,
    pub errorfiles: Vec<Statement>,
    pub forwarded: Option<Set<Forwarded>>,
    pub forwardfor: Option<Set<AddressHeader>>,
    pub fullconn: Option<Set<u32>>,
    pub hash_balance_factor: Option<Set<u32>>,
    pub hash_preserve_affinity: Option<Set<&'static str>>,
    pub hash_type: Option<Set<HashType>>,
    /// `http-error` lines.
    pub http_errors: Vec<Statement>,
    pub http_reuse: Option<Set<&'static str>>,
    /// `None` inside: the header field is not sent.
    pub http_send_name_header: Option<Set<Word>>,
    pub inspect_request: Option<Set<Duration>>,
    pub inspect_response: Option<Set<Duration>>,
    pub load_server_state: Option<Set<&'static str>>,
    /// `no log` empties it.
    pub log: Vec<LogTarget>,
    pub log_format: Option<Set<Word>>,
    pub log_format_sd: Option<Set<Word>>,
    pub log_option: Option<Set<LogFormatOption>>,
    pub log_steps: Option<Set<LogSteps>>,
    pub log_tag: Option<Set<Word>>,
    pub max_keep_alive_queue: Option<Set<i32>>,
    pub max_session_srv_conns: Option<Set<u32>>,
    pub maxconn: Option<Set<u32>>,
    pub mode: Option<Set<Mode>>,
    pub monitor_uri: Option<Set<Word>>,
    /// By [`Toggle`]; see [`Settings::option`].
    pub options: [Option<Set<bool>>; Toggle::COUNT],
    pub originalto: Option<Set<AddressHeader>>,
    pub rate_limit: Option<Set<u32>>,
    /// `option redispatch`: the interval in retries; -1 for the last one only.
    pub redispatch: Option<Set<i32>>,
    pub restrict_header_names: Option<Set<&'static str>>,
    pub retries: Option<Set<u32>>,
    pub retry_on: Option<Set<Vec<RetryOn>>>,
    pub server_keep_alive: KeepAlive,
    pub server_state_file: Option<Statement>,
    pub source: Option<Set<Source>>,
    /// `stats ...` lines in order.
    pub stats: Vec<Statement>,
    /// By [`Timeout`]; see [`Settings::timeout`].
    pub timeouts: [Option<Set<Duration>>; Timeout::COUNT],
    pub unique_id_format: Option<Set<Word>>,
    pub unique_id_header: Option<Set<Word>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            refused: Vec::new(),
            backlog: None,
            balance: None,
            check_kind: None,
            check_steps: Vec::new(),
            disable_on_404: None,
            send_state: None,
            external_command: None,
            external_path: None,
            client_keep_alive: KeepAlive::default(),
            cookie: None,
            default_backend: None,
            default_server: ServerOptions::default(),
            disabled: None,
            dispatch: None,
            dynamic_cookie_key: None,
            error_files: Vec::new(),
            error_log_format: None,
            errorfiles: Vec::new(),
            forwarded: None,
            forwardfor: None,
            fullconn: None,
            hash_balance_factor: None,
            hash_preserve_affinity: None,
            hash_type: None,
            http_errors: Vec::new(),
            http_reuse: None,
            http_send_name_header: None,
            inspect_request: None,
            inspect_response: None,
            load_server_state: None,
            log: Vec::new(),
            log_format: None,
            log_format_sd: None,
            log_option: None,
            log_steps: None,
            log_tag: None,
            max_keep_alive_queue: None,
            max_session_srv_conns: None,
            maxconn: None,
            mode: None,
            monitor_uri: None,
            options: [None; Toggle::COUNT],
            originalto: None,
            rate_limit: None,
            redispatch: None,
            restrict_header_names: None,
            retries: None,
            retry_on: None,
            server_keep_alive: KeepAlive::default(),
            server_state_file: None,
            source: None,
            stats: Vec::new(),
            timeouts: [None; Timeout::COUNT],
            unique_id_format: None,
            unique_id_header: None,
        }
    }
}

impl Settings {
    /// Whether a switch is on.
    pub fn option(&self, toggle: Toggle) -> bool {
        self.option_or(toggle, false)
    }

    /// The same of a switch that is as `usual` where the file does not say how.
    pub fn option_or(&self, toggle: Toggle, usual: bool) -> bool {
        self.options[toggle.index()].map_or(usual, |set| set.value)
    }

    /// A timeout as it was given; `Some` of zero is as good as none for most of them, but was meant.
    pub fn timeout(&self, timeout: Timeout) -> Option<Duration> {
        self.timeouts[timeout as usize].map(|set| set.value)
    }

    /// How many lines a copy holds beside those that replace each other.
    pub(crate) fn lines(&self) -> usize {
        self.error_files.len()
            + self.errorfiles.len()
            + self.http_errors.len()
            + self.log.len()
            + self.stats.len()
            + self.default_server.proxy_tlvs.len()
            + self.forwardfor.as_ref().map_or(0, |set| set.value.except.len())
            + self.originalto.as_ref().map_or(0, |set| set.value.except.len())
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        match self.mode {
            // What an unknown one was to be is unknown; more lines have a meaning in HTTP.
            _ if self.refused.contains(&"mode") => Mode::Http,
            mode => mode.map_or(Mode::Tcp, |set| set.value),
        }
    }
}

/// TCP keep-alive of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// Packets without an answer.
    pub count: Option<Set<u32>>,
    /// Silence before the first.
    pub idle: Option<Set<Duration>>,
    /// Time between two.
    pub interval: Option<Set<Duration>>,
}

/// A `bind` line, or a `stats socket`.
#[derive(Clone, Debug)]
pub struct Bind {
    /// Where, at least one; what was wrong was reported and is not here.
    pub addresses: Vec<Set<Address>>,
    /// How.
    pub options: BindOptions,
    /// Where the line is.
    pub pos: Pos,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: Word,
    /// Where it is.
    pub address: Set<Address>,
    /// Its options, those of `default-server` lines before it included.
    pub options: ServerOptions,
    /// Where the line is.
    pub pos: Pos,
    /// Made by a `server-template` line: the number behind its prefix.
    pub template: Option<u64>,
}

/// An `acl` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Its name; lines of one name are alternatives.
    pub name: Word,
    /// Criterion, flags and patterns.
    pub words: Vec<Word>,
    /// Where the line is.
    pub pos: Pos,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its list.
    pub list: Ruleset,
    /// The action's name; one that ends with `(` has arguments in the first of `words`.
    pub action: &'static str,
    /// The action as written, and its arguments.
    pub words: Vec<Word>,
    /// When.
    pub condition: Option<Condition>,
    /// Where the line is.
    pub pos: Pos,
}

/// A `use_backend` or `use-server` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name; a log format when it contains `%`.
    pub target: Word,
    /// When.
    pub condition: Option<Condition>,
    /// Where the line is.
    pub pos: Pos,
}

impl Choice {
    /// Whether the name is made at run time.
    pub fn is_dynamic(&self) -> bool {
        self.target.bytes().contains(&b'%')
    }
}

/// A `capture` or `declare capture` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// What.
    pub kind: CaptureKind,
    /// The name of the cookie or header field; empty for `declare capture`.
    pub name: Word,
    /// Bytes that are kept.
    pub length: u32,
    /// Where the line is.
    pub pos: Pos,
}

/// What is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureKind {
    /// A cookie.
    Cookie,
    /// A field of requests.
    RequestHeader,
    /// A field of responses.
    ResponseHeader,
    /// A place for a rule of requests.
    RequestSlot,
    /// A place for a rule of responses.
    ResponseSlot,
}

/// `errorfile`, `errorloc`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFile {
    /// The status it answers for.
    pub code: u16,
    /// A redirection, else a file.
    pub redirect: Option<Redirection>,
    /// The file or the URL.
    pub target: Word,
    /// Where the line is.
    pub pos: Pos,
}

/// `errorloc`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The status of the answer: 302 or 303.
    pub status: u16,
}

/// `option forwardfor`, `option originalto`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressHeader {
    /// Addresses for which nothing is added (R-G7).
    pub except: Vec<ExceptNetwork>,
    /// The header field; `None` for the usual one.
    pub name: Option<Word>,
    /// Nothing is added when it is there.
    pub if_none: bool,
}

/// `option forwarded`: what the field says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// How the client speaks to us.
    pub proto: bool,
    /// The host that the request asks for.
    pub host: Option<FieldSource>,
    /// `by`: who took the request, and the port.
    pub proxy: Option<FieldSource>,
    /// `by_port`
    pub proxy_port: Option<FieldSource>,
    /// `for`: who made the request.
    pub client: Option<FieldSource>,
    /// `for_port`
    pub client_port: Option<FieldSource>,
}

impl Forwarded {
    /// Its sample expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Word> {
        let Self { proto: _, host, proxy, proxy_port, client, client_port } = self;
        [host, proxy, proxy_port, client, client_port].into_iter().filter_map(|part| match part {
            Some(FieldSource::Expression(word)) => Some(word),
            Some(FieldSource::Usual) | None => None,
        })
    }
}

/// Where a part of a `Forwarded` field comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// From the connection, or the request.
    Usual,
    /// From a sample expression.
    Expression(Word),
}

/// A network of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExceptNetwork {
    /// An address of the network.
    pub address: IpAddr,
    /// Bits that its addresses share.
    pub prefix: u8,
}

impl ExceptNetwork {
    /// Reads `address`, `address/bits`, or `address/mask` for IPv4.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => width,
            Some(bits) if bits.contains('.') && address.is_ipv4() => {
                let mask = u32::from(bits.parse::<std::net::Ipv4Addr>().ok()?);
                if mask.leading_ones() + mask.trailing_zeros() < 32 {
                    return None;
                }
                mask.leading_ones() as u8
            }
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= width)?
            }
            Some(_) => return None,
        };
        Some(Self { address, prefix })
    }
}

/// `option httplog`, `option tcplog`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormatOption {
    /// `option tcplog`
    Tcp,
    /// `option httplog`
    Http,
    /// `option httplog clf`
    HttpClf,
    /// `option httpslog`
    Https,
}

/// `hash-type`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashType {
    /// `consistent`, else `map-based`.
    pub consistent: bool,
    /// The function.
    pub function: &'static str,
    /// `avalanche`
    pub avalanche: bool,
}

/// `balance`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// What.
    pub algorithm: Algorithm,
    /// Arguments that `expr` or the algorithm reads: an expression, or options.
    pub words: Vec<Word>,
}

/// An algorithm of `balance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the words themselves
pub enum Algorithm {
    Roundrobin,
    StaticRr,
    Leastconn,
    First,
    Source,
    Uri,
    UrlParam,
    /// `hdr(name)`: the argument is the first of the words.
    Hdr,
    /// `hash` and an expression.
    Hash,
    /// `rdp-cookie(name)`: the argument, or what holds without one, is the first of the words.
    RdpCookie,
    /// `random(draws)`
    Random(u32),
    /// Our own: least time of the last answers, weighted.
    Ewma,
    /// Our own: Maglev's table.
    Maglev,
}

/// `cookie`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Its name.
    pub name: Word,
    /// What is done with it; `None`: it is only read.
    pub mode: Option<CookieMode>,
    /// `indirect`
    pub indirect: bool,
    /// `nocache`
    pub nocache: bool,
    /// `postonly`
    pub postonly: bool,
    /// `preserve`
    pub preserve: bool,
    /// `httponly`
    pub httponly: bool,
    /// `secure`
    pub secure: bool,
    /// `dynamic`
    pub dynamic: bool,
    /// `domain`, several.
    pub domains: Vec<Word>,
    /// `attr`, several.
    pub attributes: Vec<Word>,
    /// `maxidle`
    pub maxidle: Option<Duration>,
    /// `maxlife`
    pub maxlife: Option<Duration>,
}

/// What is done with a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the words themselves
pub enum CookieMode {
    Rewrite,
    Insert,
    Prefix,
}

/// An event of `retry-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryOn {
    /// A named event.
    Event(&'static str),
    /// An answer with this status.
    Status(u16),
}

/// `source`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address and perhaps a range of ports.
    pub address: Set<Address>,
    /// `usesrc`: whose address is used instead, as written.
    pub usesrc: Option<Word>,
    /// `interface`
    pub interface: Option<Word>,
}

/// `send-proxy` and its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // versions of the protocol
pub enum ProxyHeader {
    None,
    V1,
    V2,
    /// Version 2 that tells of TLS.
    V2Tls,
    /// The same, with the name in the client's certificate.
    V2TlsName,
}

/// A `log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// `log global`: the targets of `global`.
    Global(Pos),
    /// A target of its own.
    Own(Box<LogLine>),
}

/// A target of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Where to.
    pub sink: LogSink,
    /// `len`: bytes of a line.
    pub length: Option<u32>,
    /// `format`
    pub format: Option<&'static str>,
    /// `profile`: the section that says what its lines say.
    pub profile: Option<Word>,
    /// `sample`: ranges of line numbers and the length of their round.
    pub sample: Option<LogSample>,
    /// Facility, 0 to 23.
    pub facility: u8,
    /// Lines of less importance are left out: 0 (emerg) to 7 (debug).
    pub level: u8,
    /// Lines are never more important than this.
    pub min_level: u8,
    /// Where the line is.
    pub pos: Pos,
}

/// `log-profile`: what lines to a target say, in place of what the proxy says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProfile {
    /// Its name.
    pub name: Word,
    /// `log-tag`
    pub tag: Option<Set<Word>>,
    /// `on`
    pub steps: Vec<ProfileStep>,
}

/// `on`: the lines of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileStep {
    /// Which.
    pub step: LogStep,
    /// `drop`: there are none.
    pub drop: bool,
    /// `format`
    pub format: Option<Word>,
    /// `sd`
    pub structured: Option<Word>,
}

/// What a line is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the words of the configuration
pub enum LogStep {
    Accept,
    Request,
    Connect,
    Response,
    Close,
    /// A connection or a stream that went wrong.
    Error,
    /// Each that has no line of its own.
    Any,
    /// `do-log` in one of the lists of rules, from here on.
    QuicInit,
    TcpReqConn,
    TcpReqSess,
    TcpReqCont,
    TcpResCont,
    HttpReq,
    HttpRes,
    HttpAfterRes,
}

impl LogStep {
    const NAMES: [(&str, Self); 15] = [
        ("accept", Self::Accept),
        ("request", Self::Request),
        ("connect", Self::Connect),
        ("response", Self::Response),
        ("close", Self::Close),
        ("error", Self::Error),
        ("any", Self::Any),
        ("quic-init", Self::QuicInit),
        ("tcp-req-conn", Self::TcpReqConn),
        ("tcp-req-sess", Self::TcpReqSess),
        ("tcp-req-cont", Self::TcpReqCont),
        ("tcp-res-cont", Self::TcpResCont),
        ("http-req", Self::HttpReq),
        ("http-res", Self::HttpRes),
        ("http-after-res", Self::HttpAfterRes),
    ];

    /// Those of a stream's course, which `log-steps` chooses from.
    pub const COURSE: [Self; 5] = [Self::Accept, Self::Request, Self::Connect, Self::Response, Self::Close];

    /// The words for them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, step)| *step == self).map_or("", |(name, _)| name)
    }

    /// That of a word.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, step)| *step)
    }
}

/// `log-steps`: a set of [`LogStep::COURSE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSteps(u8);

impl LogSteps {
    /// All of them.
    pub const ALL: Self = Self(0b1_1111);

    /// With one more.
    #[must_use]
    pub const fn with(self, step: LogStep) -> Self {
        Self(self.0 | 1 << (step as u8 & 7))
    }

    /// Whether a step is one of them.
    pub const fn has(self, step: LogStep) -> bool {
        (step as u8) < 5 && self.0 & 1 << step as u8 != 0
    }
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSink {
    /// An address; a UDP port that was left out is 514.
    Address(Address),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A `ring` section.
    Ring(Word),
}

/// `sample ranges:size`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSample {
    /// Ranges of numbers, both ends included, ascending and apart.
    pub ranges: Vec<(u32, u32)>,
    /// Lines of a round.
    pub size: u32,
}

/// A `userlist` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Userlist {
    /// Its name.
    pub name: Word,
    /// Groups.
    pub groups: Vec<Group>,
    /// Users.
    pub users: Vec<User>,
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Word,
    /// `users`
    pub users: Vec<Word>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Word,
    /// The password; without one nobody is this user.
    pub password: Option<Password>,
    /// `groups`
    pub groups: Vec<Word>,
}

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// As crypt(3) hashes it.
    Hash(Word),
    /// As it is.
    Plain(Word),
}

impl std::fmt::Debug for Password {
    /// Secrets do not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hash(_) => "Hash(..)",
            Self::Plain(_) => "Plain(..)",
        })
    }
}

/// An `http-errors` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpErrors {
    /// Its name.
    pub name: Word,
    /// `errorfile`
    pub files: Vec<ErrorFile>,
}

/// A `crt-store` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtStore {
    /// Its name; empty without.
    pub name: Word,
    /// `crt-base`
    pub crt_base: Option<Set<Word>>,
    /// `key-base`
    pub key_base: Option<Set<Word>>,
    /// `load`
    pub loads: Vec<CrtLoad>,
}

/// A certificate of a `crt-store` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtLoad {
    /// `crt`: the file with the certificate and its chain.
    pub crt: Word,
    /// `key`: the file with its key.
    pub key: Option<Word>,
    /// `alias`: what else it is called.
    pub alias: Option<Word>,
    /// `ocsp`: the file with what its authority says of it.
    pub ocsp: Option<Word>,
    /// `issuer`: the file with the certificate of its issuer.
    pub issuer: Option<Word>,
    /// Where its line is.
    pub pos: Pos,
}

/// A `resolvers` section.
#[derive(Clone, Debug)]
pub struct Resolvers {
    /// Its name.
    pub name: Word,
    /// `nameserver`
    pub nameservers: Vec<Nameserver>,
    /// `parse-resolv-conf`
    pub system: bool,
    /// `hold`
    pub holds: Vec<ResolverHold>,
    /// `accepted_payload_size`
    pub payload: Option<Set<u16>>,
    /// `resolve_retries`
    pub retries: Option<Set<u32>>,
    /// `timeout resolve`
    pub timeout_resolve: Option<Set<Duration>>,
    /// `timeout retry`
    pub timeout_retry: Option<Set<Duration>>,
}

/// A `peers` section.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Its name.
    pub name: Word,
    /// `disabled` and `enabled`
    pub disabled: Option<Set<bool>>,
    /// `bind`
    pub binds: Vec<Bind>,
    /// `peer` and `server`
    pub peers: Vec<Peer>,
    /// `table`, each with its name.
    pub tables: Vec<(Word, StickTable)>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Word,
    /// Where it is; the process itself may have a `bind` line for it.
    pub address: Option<Set<Address>>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nameserver {
    /// Its name.
    pub name: Word,
    /// Where it is.
    pub address: Set<Address>,
}

/// How long an answer of a kind holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolverHold {
    /// The kind.
    pub kind: &'static str,
    /// How long.
    pub time: Duration,
}

/// A `ring` section.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Its name.
    pub name: Word,
    /// `description`
    pub description: Option<Set<Word>>,
    /// `format`
    pub format: Option<Set<&'static str>>,
    /// `maxlen`
    pub maxlen: Option<Set<u64>>,
    /// `size`
    pub size: Option<Set<u64>>,
    /// `backing-file`
    pub backing_file: Option<Set<Word>>,
    /// `server`
    pub servers: Vec<Server>,
    /// `timeout connect`
    pub timeout_connect: Option<Set<Duration>>,
    /// `timeout server`
    pub timeout_server: Option<Set<Duration>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn except_lists_take_networks_of_both_families() {
        for (text, address, prefix) in [
            ("127.0.0.0/8", "127.0.0.0", 8),
            ("10.0.0.1", "10.0.0.1", 32),
            ("10.0.0.0/255.0.0.0", "10.0.0.0", 8),
            ("2001:db8::/32", "2001:db8::", 32),
            ("::1", "::1", 128),
        ] {
            assert_eq!(
                ExceptNetwork::parse(text),
                Some(ExceptNetwork { address: address.parse().unwrap(), prefix }),
                "{text}"
            );
        }
        for text in ["", "x", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/255.0.255.0", "::/129", "10.0.0.0/"] {
            assert_eq!(ExceptNetwork::parse(text), None, "{text}");
        }
    }

    #[test]
    fn relative_names_begin_where_the_last_default_path_before_them_says() {
        let mut sources = crate::source::Sources::new();
        let text = |lines: &str| format!("global\n{lines}");
        let first = sources.add(
            "one/a.cfg",
            text(" default-path config\n default-path origin /etc/x\n default-path current\n"),
        );
        let second = sources.add("two/three/b.cfg", text(" default-path parent\n"));
        let (first, second) = (first.unwrap(), second.unwrap());
        let loaded = crate::load(&sources, &crate::cond::Build::bare(), Environment::new(), false);
        let at = |file, line| Pos { file, line, column: 1 };
        for (pos, path) in [
            (at(first, 1), "m"),
            (at(first, 2), "one/m"),
            (at(first, 3), "/etc/x/m"),
            (at(first, 9), "m"),
            (at(second, 1), "m"),
            (at(second, 2), "two/three/../m"),
        ] {
            assert_eq!(loaded.config.path(b"m", pos), Path::new(path));
            assert_eq!(loaded.config.path(b"/m", pos), Path::new("/m"));
        }
    }

    #[test]
    fn passwords_are_not_shown_by_accident() {
        let mut sources = crate::source::Sources::new();
        let file = sources.add("x", "").unwrap();
        let word = Word::plain("secret", Pos { file, line: 1, column: 1 });
        assert!(!format!("{:?}", Password::Plain(word)).contains("secret"));
    }
}

/// What a master does when its worker fails (`master-worker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFails {
    /// It ends, and all other workers with it.
    Exit,
    /// It ends once the others have ended by themselves.
    Wait,
    /// It starts another one.
    Restart,
}
