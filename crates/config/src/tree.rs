//! The checked configuration: typed settings, each with the place that it comes from.
//!
//! Expressions (conditions, log formats, samples, patterns) stay words with positions. The crate `expr`
//! parses them with its own registries and reports errors at the same places.

pub use crate::table::{BindOptions, ServerOptions, TlsOptions, TlsProcess, Tune};

use crate::lex::{Environment, Word};
use crate::source::Pos;
use crate::table::{OptionSwitch, Ruleset, Timeout};
use manylane_expr::{DataType, Type};
use manylane_net::Address;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A value with the position of the keyword that set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Position of the keyword.
    pub pos: Pos,
}

/// A whole configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `global`
    pub global: Global,
    /// All proxies and `defaults` sections, in the order of the files.
    pub proxies: Vec<Proxy>,
    /// `userlist`
    pub userlists: Vec<Userlist>,
    /// `http-errors`
    pub http_errors: Vec<HttpErrors>,
    /// `resolvers`
    pub resolvers: Vec<Resolvers>,
    /// `peers`
    pub peers: Vec<Peers>,
    /// `mailers`
    pub mailers: Vec<Mailers>,
    /// `ring`
    pub rings: Vec<Ring>,
    /// `log-profile`
    pub log_profiles: Vec<LogProfile>,
    /// `healthcheck`: settings of a check, and nothing else.
    pub healthchecks: Vec<Proxy>,
    /// `crt-store`
    pub crt_stores: Vec<CrtStore>,
    /// `acme`
    pub acmes: Vec<Acme>,
    /// Names of the files by file index, for reports.
    pub files: Vec<Box<[u8]>>,
    /// The environment after the last line. External programs and expressions at run time see it.
    pub environment: Environment,
    /// By the position of a section's name: keywords and first words of its refused lines, which is what
    /// these lines would have declared.
    pub refused: HashMap<Pos, HashSet<(&'static str, Vec<u8>)>>,
}

impl Config {
    /// True if a line of `keyword` that declares `name` was refused in the section with the name `section`: a
    /// use of the name is no second error.
    pub fn is_refused(&self, section: &Word, keyword: &'static str, name: &[u8]) -> bool {
        self.refused.get(&section.pos()).is_some_and(|lines| lines.contains(&(keyword, name.to_vec())))
    }

    /// The names for which [`Config::is_refused`] is true.
    pub fn refused(&self, section: &Word, keyword: &'static str) -> impl Iterator<Item = &[u8]> {
        let lines = self.refused.get(&section.pos()).into_iter().flatten();
        lines.filter(move |(of, _)| *of == keyword).map(|(_, name)| &name[..])
    }

    /// The groups of a list, also those whose lines were refused.
    pub fn groups<'c>(&'c self, list: &'c Userlist) -> impl Iterator<Item = &'c [u8]> {
        list.groups.iter().map(|group| group.name.bytes()).chain(self.refused(&list.name, "group"))
    }

    /// A line, as `<file>:<number>`.
    pub fn line(&self, pos: Pos) -> String {
        let file =
            self.files.get(pos.file.index()).map_or(Cow::default(), |name| String::from_utf8_lossy(name));
        format!("{file}:{}", pos.line)
    }

    /// The path of a file named at `pos`. A relative name starts at the folder of the last `default-path`
    /// line before `pos`.
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
        base.join(path(name)) // an absolute name replaces `base`
    }
}

impl Config {
    /// The file name and line of a position, for reports. `None` for a file that is not part of this
    /// configuration.
    pub fn file_and_line(&self, pos: Pos) -> Option<(&[u8], u32)> {
        Some((self.files.get(pos.file.index())?, pos.line))
    }
}

/// A line that is kept as words: a keyword and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The keyword, one or more words separated by single spaces.
    pub keyword: &'static str,
    /// The words after the keyword.
    pub words: Vec<Word>,
    /// Position of the keyword.
    pub pos: Pos,
}

/// `if` or `unless`, and the condition after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// True for `unless`: the rule applies when the condition is false.
    pub unless: bool,
    /// Words of the condition, at least one.
    pub words: Vec<Word>,
    /// Position of `if` or `unless`.
    pub pos: Pos,
}

/// `hard-stop-after`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardStop {
    /// Time from the request to stop until the process ends its connections.
    pub after: Duration,
}

/// `unix-bind`: defaults for all unix listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named like the options of `bind`
pub struct UnixBind {
    pub prefix: Option<Word>,
    pub mode: Option<u32>,
    pub user: Option<Word>,
    pub uid: Option<u32>,
    pub group: Option<Word>,
    pub gid: Option<u32>,
}

/// Families of addresses that name servers are asked for: `dns-accept-family`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsFamilies {
    /// `ipv4`, also a part of `auto`
    pub ipv4: bool,
    /// `ipv6`
    pub ipv6: bool,
    /// `auto`: IPv6 while the system has a default route for it.
    pub auto: bool,
}

/// Settings of the process. `None` means not given; the keyword table shows the default. Fields are named
/// after the keywords.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // documented by the keyword table
pub struct Global {
    pub busy_polling: Option<Set<bool>>,
    pub chroot: Option<Set<Word>>,
    /// `None` inside means `infinite`.
    pub close_spread_time: Option<Set<Option<Duration>>>,
    /// `cpu-map`, `cpu-policy`, `cpu-set` and `cpu-affinity` lines in order.
    pub cpu_placement: Vec<Statement>,
    pub daemon: Option<Set<bool>>,
    /// `default-path` lines in order. Each applies to the lines after it.
    pub default_path: Vec<Statement>,
    pub description: Option<Set<Word>>,
    pub disable_fast_forward: Option<Set<bool>>,
    /// `external-check`: programs may check servers. True with `preserve-env`: they get the whole environment
    /// of the process.
    pub external_check: Option<Set<bool>>,
    pub disable_zero_copy: Option<Set<bool>>,
    /// `h2-workaround-bogus-websocket-clients`
    pub h2_hides_websocket: Option<Set<bool>>,
    /// `dns-accept-family`
    pub dns_families: Option<Set<DnsFamilies>>,
    pub expose_deprecated: Option<Set<bool>>,
    pub expose_experimental: Option<Set<bool>>,
    pub fd_hard_limit: Option<Set<u32>>,
    pub gid: Option<Set<u32>>,
    pub grace: Option<Set<Duration>>,
    pub group: Option<Set<Word>>,
    pub h1_accept_payload: Option<Set<bool>>,
    /// Lower-case name and the spelling to send.
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
    pub master_worker: Option<Set<OnWorkerFailure>>,
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
    pub stats_file: Option<Set<Word>>,
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
    /// `set-var` and `set-var-fmt` lines in order.
    pub variables: Vec<Statement>,
    pub warn_blocked_after: Option<Set<Duration>>,
    pub zero_warning: Option<Set<bool>>,
    pub insecure_setuid: Option<Set<bool>>,
}

/// Kind of a proxy section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// Default settings of the proxies after it.
    Defaults,
    /// Accepts clients.
    Frontend,
    /// Has servers.
    Backend,
    /// Frontend and backend in one.
    Listen,
}

impl ProxyKind {
    /// True if it accepts clients: `frontend` and `listen`.
    pub fn is_frontend(self) -> bool {
        matches!(self, Self::Frontend | Self::Listen)
    }

    /// True if it has servers: `backend` and `listen`.
    pub fn is_backend(self) -> bool {
        matches!(self, Self::Backend | Self::Listen)
    }

    /// The keyword that begins the section.
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
    /// Kind of section.
    pub kind: ProxyKind,
    /// Its name; empty for an unnamed `defaults` section.
    pub name: Word,
    /// Position of the section header.
    pub pos: Pos,
    /// The `defaults` section that it inherits from, as an index of [`Config::proxies`]. If that section has
    /// a name, its rules run before those of the proxy, and only those rules see its ACLs.
    pub defaults: Option<usize>,
    /// True if the header names that section with `from`.
    pub explicit_defaults: bool,
    /// Settings that `defaults` sections can give.
    pub settings: Settings,
    /// A frontend in TCP mode whose connections may change to HTTP: it has a rule `switch-mode`, or may
    /// choose a backend in HTTP mode.
    pub switches_mode: bool,
    /// `id`
    pub id: Option<Set<u32>>,
    /// `guid`
    pub guid: Option<Set<Word>>,
    /// `description`
    pub description: Option<Set<Word>>,
    /// `bind`
    pub binds: Vec<Bind>,
    /// `server` lines, and the servers of `server-template` lines. They are boxed so that growing a table of
    /// thousands copies pointers only; the peak would be three times its size otherwise.
    pub servers: Vec<Box<Server>>,
    /// `acl`
    pub acls: Vec<Acl>,
    /// Rules of all rulesets, in order.
    pub rules: Vec<Rule>,
    /// `filter`
    pub filters: Vec<Filter>,
    /// `use_backend`
    pub use_backend: Vec<SwitchingRule>,
    /// `use-server`
    pub use_server: Vec<SwitchingRule>,
    /// `capture` and `declare capture`
    pub captures: Vec<Capture>,
    /// `monitor fail`
    pub monitor_fail: Vec<Condition>,
    /// `ssl-f-use`: certificates with their options.
    pub ssl_f_use: Vec<Statement>,
    /// `be-unpublished`
    pub unpublished: Option<Set<bool>>,
    /// `force-be-switch`
    pub force_switch: Vec<Condition>,
    /// `force-persist`
    pub force_persist: Vec<Condition>,
    /// `ignore-persist`
    pub ignore_persist: Vec<Condition>,
    /// `stick-table`
    pub stick_table: Option<StickTable>,
    /// `stick match`, `stick on`, `stick store-request` and `stick store-response`
    pub stick_rules: Vec<StickRule>,
    /// Settings of a `log-forward` section that frontends do not have.
    pub forward: Option<Box<LogForward>>,
}

impl Proxy {
    /// The mode for which rules and formats are compiled: HTTP if some connections speak it.
    pub fn mode_of_rules(&self) -> Mode {
        if self.switches_mode { Mode::Http } else { self.settings.mode() }
    }
}

/// Settings of a `log-forward` section that frontends do not have.
#[derive(Clone, Debug)]
pub struct LogForward {
    /// `dgram-bind`
    pub dgram_binds: Vec<Bind>,
    /// `option dont-parse-log`
    pub dont_parse: bool,
    /// `option assume-rfc6587-ntf`
    pub lines_only: bool,
    /// `option host`
    pub host: &'static str,
}

/// A `stick` line: finds the server of a key in a table, or stores it there.
#[derive(Clone, Debug)]
pub struct StickRule {
    /// What the rule does.
    pub kind: StickKind,
    /// Expression of the key.
    pub key: Vec<Word>,
    /// `table`; `None` means the table of the proxy.
    pub table: Option<Word>,
    /// `None` means always.
    pub condition: Option<Condition>,
    /// Position of the line.
    pub pos: Pos,
}

/// What a `stick` rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickKind {
    /// `on`: `match` and `store-request` together.
    On,
    /// `match`: takes the server of a request from the table.
    Match,
    /// `store-request`: stores the server under a key from the request.
    StoreRequest,
    /// `store-response`: stores the server under a key from the response.
    StoreResponse,
}

/// A set of HTTP status codes from 100 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatusSet([u64; 8]);

impl StatusSet {
    /// Default of `http-err-codes`: 400 to 499.
    pub fn errors() -> Self {
        let mut set = Self::default();
        set.change(400..=499, true);
        set
    }

    /// Default of `http-fail-codes`: 500 to 599 without 501 and 505.
    pub fn failures() -> Self {
        let mut set = Self::default();
        set.change(500..=599, true);
        set.change(501..=501, false);
        set.change(505..=505, false);
        set
    }

    /// Adds or removes statuses. Ignores those outside of 100 to 599.
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

    /// True if the set has `status`.
    pub fn contains(&self, status: u16) -> bool {
        Self::bit(status).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }
}

/// `stick-table`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickTable {
    /// Type of the keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
    /// Maximum length of a text or binary key in bytes.
    pub key_bytes: usize,
    /// Maximum number of entries.
    pub size: u32,
    /// Lifetime of an unused entry; `None` means that entries do not expire.
    pub expire: Option<Duration>,
    /// `nopurge`
    pub nopurge: bool,
    /// `srvkey addr`: identifies stored servers by address; otherwise by name.
    pub by_address: bool,
    /// `store`, sorted by data type.
    pub data: Vec<StickData>,
    /// `peers`: the section whose peers share the table.
    pub peers: Option<Word>,
    /// `recv-only`: takes updates from peers and sends none.
    pub receives_only: bool,
    /// `write-to`: the table that also takes the peers' updates of this one.
    pub write_to: Option<Word>,
    /// `brates-factor`: number of bytes that byte rates count as one; 1 by default.
    pub bytes_factor: NonZeroU32,
    /// Position of the line.
    pub pos: Pos,
}

/// A data type that the entries of a stick table store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickData {
    /// The data type.
    pub kind: DataType,
    /// Number of elements; 1 for a type that is not an array.
    pub count: u32,
    /// Period of a rate; zero for a type that is not a rate.
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

/// `filter bwlim-in` and `filter bwlim-out`: limits the bandwidth of streams.
#[derive(Clone, Debug)]
pub struct BandwidthLimit {
    /// Name that rules refer to, unique in the proxy.
    pub name: Word,
    /// True for `bwlim-in`, which limits data from the client; false for data to the client.
    pub incoming: bool,
    /// Bytes per period, at least 1.
    pub limit: u32,
    /// At least one millisecond. Zero if the stick table gives the period.
    pub period: Duration,
    /// `key`: streams with the same key share the limit.
    pub shared: Option<SharedLimit>,
    /// `min-size`: minimum number of bytes to forward at a time, if that many are available.
    pub min_size: u32,
    /// Position of the line.
    pub pos: Pos,
}

/// How streams share the limit of a filter.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    /// Expression of the key.
    pub key: Vec<Word>,
    /// `table`; `None` means the table of the proxy.
    pub table: Option<Word>,
}

/// `filter trace`: logs what streams do.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // documented by the keyword table
pub struct TraceFilter {
    pub name: Word,
    pub random_forwarding: bool,
    pub hexdump: bool,
    pub quiet: bool,
}

impl Proxy {
    /// A proxy with settings only.
    pub fn bare(kind: ProxyKind, name: Word, pos: Pos, settings: Settings) -> Self {
        Self {
            kind,
            name,
            pos,
            defaults: None,
            explicit_defaults: false,
            settings,
            switches_mode: false,
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
            ssl_f_use: Vec::new(),
            unpublished: None,
            force_switch: Vec::new(),
            force_persist: Vec::new(),
            ignore_persist: Vec::new(),
            stick_table: None,
            stick_rules: Vec::new(),
            forward: None,
        }
    }
}

/// `mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Forwards bytes.
    Tcp,
    /// Forwards HTTP messages.
    Http,
    /// Forwards log lines, in backends and in `log-forward` sections, which are frontends.
    Log,
}

impl Mode {
    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Log => "log",
        }
    }
}

/// Settings that a proxy inherits from `defaults`. `None` means not given; the keyword table shows the
/// default. Fields are named after the keywords.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // documented by the keyword table
pub struct Settings {
    /// Keywords whose lines were refused, so their settings are unknown. Checks draw no conclusion from them.
    pub refused: Vec<&'static str>,
    /// True if the `defaults` section that they begin with does not exist: then each is unknown.
    pub unsure: bool,
    pub backlog: Option<Set<u32>>,
    pub balance: Option<Set<Balance>>,
    /// `option httpchk`, `option tcp-check` and the like: kind of health check.
    pub check_kind: Option<Statement>,
    /// `http-check` and `tcp-check` lines in order. Own lines replace those from `defaults`, per family.
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
    /// `dispatch`: destination of streams for which neither a cookie nor a rule selects a server.
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
    pub email_alert: EmailAlert,
    pub http_errors: Vec<Statement>,
    pub http_reuse: Option<Set<&'static str>>,
    pub http_send_name_header: Option<Set<Word>>,
    pub inspect_request: Option<Set<Duration>>,
    pub inspect_response: Option<Set<Duration>>,
    pub load_server_state: Option<Set<&'static str>>,
    /// Empty after `no log`.
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
    /// Indexed by [`OptionSwitch`]; see [`Settings::option`].
    pub options: [Option<Set<bool>>; OptionSwitch::COUNT],
    pub originalto: Option<Set<AddressHeader>>,
    /// `persist rdp-cookie`: the cookie's name.
    pub persist_rdp: Option<Set<Word>>,
    pub rate_limit: Option<Set<u32>>,
    /// `option redispatch`: retries between two changes of the server; -1 for the last retry only.
    pub redispatch: Option<Set<i32>>,
    pub restrict_header_names: Option<Set<&'static str>>,
    pub retries: Option<Set<u32>>,
    pub retry_on: Option<Set<Vec<RetryOn>>>,
    pub server_keep_alive: KeepAlive,
    pub server_state_file: Option<Statement>,
    pub source: Option<Set<Source>>,
    /// `stats` lines in order.
    pub stats: Vec<Statement>,
    /// Indexed by [`Timeout`]; see [`Settings::timeout`].
    pub timeouts: [Option<Set<Duration>>; Timeout::COUNT],
    pub unique_id_format: Option<Set<Word>>,
    pub unique_id_header: Option<Set<Word>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            refused: Vec::new(),
            unsure: false,
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
            email_alert: EmailAlert::default(),
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
            options: [None; OptionSwitch::COUNT],
            originalto: None,
            persist_rdp: None,
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
    /// True if a switch is on. A switch that is not set is off.
    pub fn option(&self, toggle: OptionSwitch) -> bool {
        self.option_or(toggle, false)
    }

    /// Like [`Settings::option`], but a switch that is not set has the value `usual`.
    pub fn option_or(&self, toggle: OptionSwitch, usual: bool) -> bool {
        self.options[toggle.index()].map_or(usual, |set| set.value)
    }

    /// A timeout as given. `Some(Duration::ZERO)` means an explicit zero, which turns most timeouts off.
    pub fn timeout(&self, timeout: Timeout) -> Option<Duration> {
        self.timeouts[timeout as usize].map(|set| set.value)
    }

    /// Number of list items that a copy of the settings duplicates.
    pub(crate) fn lines(&self) -> usize {
        self.error_files.len()
            + self.errorfiles.len()
            + self.http_errors.len()
            + self.refused.len()
            + self.log.len()
            + self.stats.len()
            + self.default_server.proxy_tlvs.len()
            + self.forwardfor.as_ref().map_or(0, |set| set.value.except.len())
            + self.originalto.as_ref().map_or(0, |set| set.value.except.len())
    }

    /// True if the setting is unknown, since its line was refused. What seems to be missing may be there.
    pub fn is_refused(&self, keyword: &str) -> bool {
        self.unsure || self.refused.contains(&keyword)
    }

    /// True if lines that declare servers were refused.
    pub fn has_refused_servers(&self) -> bool {
        ["server", "server-template"].iter().any(|keyword| self.is_refused(keyword))
    }

    /// The mode, TCP by default.
    pub fn mode(&self) -> Mode {
        match self.mode {
            // Assume HTTP if the 'mode' line was refused: more keywords are valid there, so fewer follow-up
            // errors.
            _ if self.is_refused("mode") => Mode::Http,
            mode => mode.map_or(Mode::Tcp, |set| set.value),
        }
    }
}

/// TCP keep-alive settings of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// Unanswered probes before the connection counts as dead.
    pub count: Option<Set<u32>>,
    /// Idle time before the first probe.
    pub idle: Option<Set<Duration>>,
    /// Time between two probes.
    pub interval: Option<Set<Duration>>,
}

/// A `bind` line or a `stats socket` line.
#[derive(Clone, Debug)]
pub struct Bind {
    /// Addresses to listen on. Wrong addresses were reported and left out.
    pub addresses: Vec<Set<Address>>,
    /// Options of the line.
    pub options: BindOptions,
    /// Position of the line.
    pub pos: Pos,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: Word,
    /// Its address.
    pub address: Set<Address>,
    /// Its options, merged with those of earlier `default-server` lines.
    pub options: ServerOptions,
    /// Position of the line.
    pub pos: Pos,
    /// For a server of a `server-template` line: the number after the prefix.
    pub template: Option<u64>,
}

/// An `acl` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Its name. Lines with the same name are alternatives.
    pub name: Word,
    /// Fetch, flags and patterns.
    pub words: Vec<Word>,
    /// Position of the line.
    pub pos: Pos,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The ruleset that it belongs to.
    pub list: Ruleset,
    /// Name of the action. If it ends with `(`, the first word has its arguments in parentheses.
    pub action: &'static str,
    /// The action as written, then its arguments.
    pub words: Vec<Word>,
    /// `None` means always.
    pub condition: Option<Condition>,
    /// Position of the line.
    pub pos: Pos,
}

/// A `use_backend` or `use-server` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchingRule {
    /// Name of the backend or server; a log format if it contains `%`.
    pub target: Word,
    /// `None` means always.
    pub condition: Option<Condition>,
    /// Position of the line.
    pub pos: Pos,
}

impl SwitchingRule {
    /// True if the name is a log format, evaluated at run time.
    pub fn is_dynamic(&self) -> bool {
        self.target.bytes().contains(&b'%')
    }
}

/// A `capture` or `declare capture` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// What is captured.
    pub kind: CaptureKind,
    /// Name of the cookie or header field; empty for `declare capture`.
    pub name: Word,
    /// Maximum length in bytes.
    pub length: u32,
    /// Position of the line.
    pub pos: Pos,
}

/// What a capture keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureKind {
    /// A cookie.
    Cookie,
    /// A header field of requests.
    RequestHeader,
    /// A header field of responses.
    ResponseHeader,
    /// A slot for request rules to fill.
    RequestSlot,
    /// A slot for response rules to fill.
    ResponseSlot,
}

/// An `errorfile` or `errorloc` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFile {
    /// Status code of the error.
    pub code: u16,
    /// `Some` for `errorloc`, `None` for `errorfile`.
    pub redirect: Option<Redirection>,
    /// The file, or the URL of `errorloc`.
    pub target: Word,
    /// Position of the line.
    pub pos: Pos,
}

/// How an `errorloc` line redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// Status code of the redirect: 302 or 303.
    pub status: u16,
}

/// `option forwardfor`, `option originalto`: header fields with an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressHeader {
    /// Addresses for which no field is added (R-G7).
    pub except: Vec<ExceptNetwork>,
    /// Name of the header field; `None` means the default.
    pub name: Option<Word>,
    /// Adds no field if the message has one.
    pub if_none: bool,
}

/// `option forwarded`: parts of the `Forwarded` field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// `proto`: the protocol of the client connection.
    pub proto: bool,
    /// `host`: the host of the request.
    pub host: Option<FieldSource>,
    /// `by`: the address that accepted the request.
    pub proxy: Option<FieldSource>,
    /// `by_port`: its port.
    pub proxy_port: Option<FieldSource>,
    /// `for`: the address of the client.
    pub client: Option<FieldSource>,
    /// `for_port`: its port.
    pub client_port: Option<FieldSource>,
}

impl Forwarded {
    /// All sample expressions.
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
    /// From the connection or the request.
    Usual,
    /// From the result of a sample expression.
    Expression(Word),
}

/// An IPv4 or IPv6 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExceptNetwork {
    /// An address of the network.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

impl ExceptNetwork {
    /// Parses `address`, `address/bits`, or `address/mask` for IPv4.
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
    /// True for `consistent`, false for `map-based`.
    pub consistent: bool,
    /// Name of the hash function.
    pub function: &'static str,
    /// `avalanche`
    pub avalanche: bool,
}

/// `balance`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Its words, kept for `expr` or the algorithm: an expression or options.
    pub words: Vec<Word>,
}

/// An algorithm of `balance`: a row of the list in `build/parse/proxy.rs`. The crate `balance` finds the
/// behaviour by the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// The word of `balance` that chooses it, without arguments.
    pub name: &'static str,
    /// What its words say about the key.
    pub key: AlgorithmKey,
    /// Number of servers to draw: the argument of `random`, or its default.
    pub draws: u32,
    /// The name that `show stat` gives it in `mode log`; `None` if that mode does not accept it.
    pub log_name: Option<&'static str>,
}

impl Algorithm {
    /// The algorithm of a section without `balance`.
    pub const ROUNDROBIN: Self =
        Self { log_name: Some("roundrobin"), ..Self::new("roundrobin", AlgorithmKey::None) };

    pub(crate) const fn new(name: &'static str, key: AlgorithmKey) -> Self {
        Self { name, key, draws: 2, log_name: None }
    }
}

/// Key of an algorithm of `balance`, and the meaning of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmKey {
    /// No key.
    None,
    /// The client's address.
    Source,
    /// The target; the words are options.
    Uri,
    /// The parameter of the query that the first word names.
    Parameter,
    /// The header field that the first word names.
    Header,
    /// The expression in the words.
    Expression,
    /// The expression in the words, or the client's address if there are none.
    SourceOrExpression,
    /// The RDP cookie that the first word names, given or default.
    RdpCookie,
    /// A log line, with the converters in the first word.
    LogLine,
}

/// `cookie`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Its name.
    pub name: Word,
    /// `rewrite`, `insert` or `prefix`; `None` means that the cookie is only read.
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
    /// `domain`; may repeat.
    pub domains: Vec<Word>,
    /// `attr`; may repeat.
    pub attributes: Vec<Word>,
    /// `maxidle`
    pub maxidle: Option<Duration>,
    /// `maxlife`
    pub maxlife: Option<Duration>,
}

/// How the proxy sets a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named like the words
pub enum CookieMode {
    Rewrite,
    Insert,
    Prefix,
}

/// A condition of `retry-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryOn {
    /// An event by its keyword.
    Event(&'static str),
    /// A response with this status code.
    Status(u16),
}

/// `source`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address, with an optional range of ports.
    pub address: Set<Address>,
    /// `usesrc`: the address to use instead, as written.
    pub usesrc: Option<Word>,
    /// `interface`
    pub interface: Option<Word>,
}

/// `send-proxy` and its variants: version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // versions of the protocol
pub enum ProxyHeader {
    None,
    V1,
    V2,
    /// Version 2 with TLS information.
    V2Tls,
    /// Version 2 with TLS information and the common name of the client certificate.
    V2TlsName,
}

/// A `log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// `log global`: the targets of the `global` section.
    Global(Pos),
    /// A target of this section.
    Own(Box<LogLine>),
}

/// Target and format of a `log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Destination.
    pub sink: LogSink,
    /// `len`: maximum length of a line in bytes.
    pub length: Option<u32>,
    /// `format`
    pub format: Option<&'static str>,
    /// `profile`: the `log-profile` section.
    pub profile: Option<Word>,
    /// `sample`: logs only a part of the lines.
    pub sample: Option<LogSample>,
    /// Syslog facility, 0 to 23.
    pub facility: u8,
    /// Maximum severity number, 0 (emerg) to 7 (debug). Less severe lines are not sent.
    pub level: u8,
    /// Lines with a smaller severity number are sent with this one.
    pub min_level: u8,
    /// Position of the line.
    pub pos: Pos,
}

/// A `log-profile` section: replaces the log formats of the proxy for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProfile {
    /// Its name.
    pub name: Word,
    /// `log-tag`
    pub tag: Option<Set<Word>>,
    /// `on` lines, at most one per step.
    pub steps: Vec<ProfileStep>,
}

/// An `on` line: what to log at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileStep {
    /// The step.
    pub step: LogStep,
    /// `drop`: logs nothing.
    pub drop: bool,
    /// `format`
    pub format: Option<Word>,
    /// `sd`
    pub structured: Option<Word>,
}

/// A step of a stream or a connection that can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // named like the words
pub enum LogStep {
    Accept,
    Request,
    Connect,
    Response,
    Close,
    /// An error of a connection or stream.
    Error,
    /// All steps without an `on` line.
    Any,
    /// From here on: `do-log` actions, by ruleset.
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

    /// Steps of a stream, the valid values of `log-steps`.
    pub const COURSE: [Self; 5] = [Self::Accept, Self::Request, Self::Connect, Self::Response, Self::Close];

    /// All words of the configuration.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, step)| *step == self).map_or("", |(name, _)| name)
    }

    /// The step with this word.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, step)| *step)
    }
}

/// `log-steps`: a set of [`LogStep::COURSE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSteps(u8);

impl LogSteps {
    /// All steps of [`LogStep::COURSE`].
    pub const ALL: Self = Self(0b1_1111);

    /// The bit of a step; none for steps that are not of [`LogStep::COURSE`].
    const fn bit(step: LogStep) -> u8 {
        if (step as usize) < LogStep::COURSE.len() { 1 << step as u8 } else { 0 }
    }

    /// The set with `step` added if it is one of [`LogStep::COURSE`].
    #[must_use]
    pub const fn with(self, step: LogStep) -> Self {
        Self(self.0 | Self::bit(step))
    }

    /// True if the set has `step`.
    pub const fn has(self, step: LogStep) -> bool {
        self.0 & Self::bit(step) != 0
    }
}

/// Destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSink {
    /// A network address or unix socket. The default UDP port is 514.
    Address(Address),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A `ring` section.
    Ring(Word),
    /// A backend in `mode log`.
    Backend(Word),
}

/// `sample ranges:size`: which lines of every `size` are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSample {
    /// Inclusive ranges of line numbers from 1, ascending and disjoint.
    pub ranges: Vec<(u32, u32)>,
    /// Number of lines in a cycle.
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
    /// `users`: names of its users.
    pub users: Vec<Word>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Word,
    /// The password. Without one, authentication as this user always fails.
    pub password: Option<Password>,
    /// `groups`: names of groups that the user is in.
    pub groups: Vec<Word>,
}

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// Hash in the format of crypt(3).
    Hash(Word),
    /// Plain text.
    Plain(Word),
}

impl std::fmt::Debug for Password {
    /// Hides the secret, so that it cannot get into logs.
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
    /// Its name; empty if the header has none.
    pub name: Word,
    /// `crt-base`
    pub crt_base: Option<Set<Word>>,
    /// `key-base`
    pub key_base: Option<Set<Word>>,
    /// `load`
    pub loads: Vec<CrtLoad>,
}

/// A `load` line of a `crt-store` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtLoad {
    /// `crt`: file with the certificate and its chain.
    pub crt: Word,
    /// `key`: file with the private key.
    pub key: Option<Word>,
    /// `alias`: another name for the certificate.
    pub alias: Option<Word>,
    /// `ocsp`: file with the OCSP response.
    pub ocsp: Option<Word>,
    /// `issuer`: file with the issuer's certificate.
    pub issuer: Option<Word>,
    /// `ocsp-update`: whether the OCSP response is renewed.
    pub ocsp_update: Option<bool>,
    /// `acme`: the section of the authority that renews it.
    pub acme: Option<Word>,
    /// `watch`: the files replace the certificate when they change.
    pub is_watched: bool,
    /// `domains`: the names that the authority certifies.
    pub domains: Vec<Word>,
    /// Position of the line.
    pub pos: Pos,
}

/// An `acme` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Its name.
    pub name: Word,
    /// `directory`
    pub directory: Option<Set<Word>>,
    /// `contact`
    pub contact: Option<Set<Word>>,
    /// `account-key`
    pub account_key: Option<Set<Word>>,
    /// `bits`
    pub bits: Option<Set<&'static str>>,
    /// `curves`
    pub curves: Option<Set<&'static str>>,
    /// `keytype`
    pub keytype: Option<Set<&'static str>>,
    /// `challenge`
    pub challenge: Option<Set<&'static str>>,
    /// `eab-key-id`
    pub eab_key_id: Option<Set<Word>>,
    /// `eab-mac-key`
    pub eab_mac_key: Option<Set<Word>>,
    /// `eab-mac-alg`
    pub eab_mac_alg: Option<Set<&'static str>>,
    /// `map`
    pub map: Option<Set<Word>>,
}

/// A `resolvers` section.
#[derive(Clone, Debug)]
pub struct Resolvers {
    /// Its name.
    pub name: Word,
    /// `nameserver`
    pub nameservers: Vec<Nameserver>,
    /// `parse-resolv-conf`: uses the name servers of the system.
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
    /// `default-bind`: options of the listener.
    pub default_bind: BindOptions,
    /// `peer` and `server`
    pub peers: Vec<Peer>,
    /// `default-server`: options of the peers below.
    pub default_server: ServerOptions,
    /// `shards`: parts that the keys are divided into.
    pub shards: Option<Set<u32>>,
    /// `table` lines, each with the name of the table.
    pub tables: Vec<(Word, StickTable)>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Word,
    /// Its address. The local peer may have a `bind` line instead.
    pub address: Option<Set<Address>>,
    /// Options of the line and of `default-server`.
    pub options: ServerOptions,
}

/// A `mailers` section.
#[derive(Clone, Debug)]
pub struct Mailers {
    /// Its name.
    pub name: Word,
    /// `mailer`
    pub mailers: Vec<Mailer>,
    /// `timeout mail`
    pub timeout: Option<Set<Duration>>,
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailer {
    /// Its name.
    pub name: Word,
    /// Its address.
    pub address: Set<Address>,
}

/// Levels of log lines and of alerts, the most severe one first.
pub const LEVELS: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// `email-alert`
#[derive(Clone, Debug, Default)]
pub struct EmailAlert {
    /// `email-alert from`
    pub from: Option<Set<Word>>,
    /// `email-alert level`
    pub level: Option<Set<&'static str>>,
    /// `email-alert mailers`
    pub mailers: Option<Set<Word>>,
    /// `email-alert myhostname`
    pub host: Option<Set<Word>>,
    /// `email-alert to`
    pub to: Option<Set<Word>>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nameserver {
    /// Its name.
    pub name: Word,
    /// Its address.
    pub address: Set<Address>,
}

/// A `hold` line: how long a kind of response stays valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolverHold {
    /// Kind of response.
    pub kind: &'static str,
    /// How long it stays valid.
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

/// Reaction of the master to a failed worker (`master-worker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWorkerFailure {
    /// The master stops all workers and exits.
    Exit,
    /// The master exits once the other workers have ended.
    Wait,
    /// The master starts another worker.
    Restart,
}
