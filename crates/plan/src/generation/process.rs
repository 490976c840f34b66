//! Settings of `global`, which hold for the whole process.

use super::bind::{self, Listener};
use super::cpu_map::{CpuMap, cpu_map};
use super::groups::{Groups, groups};
use super::h2::H2Settings;
use super::proxies::Ids;
use super::refuse::Refuse;
use manylane_buf::MAX_CLUSTER;
use manylane_config::lex::Word;
use manylane_config::table::{TlsOptions, Tune};
use manylane_config::tree::{Bind, Global, HardStop, OnWorkerFailure, Set, Settings, StatusSet, TlsProcess};
use manylane_expr::VariableLimits;
use manylane_http::MAX_HEAD;
use manylane_sched::{Placement, Profiling};
use manylane_sync::Arc;
use std::path::PathBuf;
use std::time::Duration;

/// Most lanes of a process.
pub const MOST_LANES: usize = 1024;

/// Settings of the process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// `daemon`
    pub daemon: bool,
    /// `quiet`
    pub quiet: bool,
    /// `zero-warning`
    pub zero_warning: bool,
    /// `external-check`; true with `preserve-env`.
    pub external_check: Option<bool>,
    /// `h2-workaround-bogus-websocket-clients`: the proxy does not offer WebSocket to clients of HTTP/2.
    pub hides_websocket: bool,
    /// `insecure-setuid-wanted`
    pub insecure_setuid: bool,
    /// `pidfile`
    pub pidfile: Option<PathBuf>,
    /// `chroot`
    pub chroot: Option<PathBuf>,
    /// `user` or `uid`
    pub user: Option<Owner>,
    /// `group` or `gid`
    pub group: Option<Owner>,
    /// `nbthread`, at most `thread-hard-limit`.
    pub lanes: Option<usize>,
    /// `thread-hard-limit`
    pub most_lanes: Option<usize>,
    /// `thread-groups`
    pub groups: Groups,
    /// `cpu-map`
    pub cpu_map: CpuMap,
    /// `maxconn`
    pub maxconn: Option<u32>,
    /// `maxconnrate`; 0 for no limit.
    pub connection_rate: u32,
    /// `maxsessrate`; 0 for no limit. An accepted connection counts as a session here.
    pub session_rate: u32,
    /// `ulimit-n`
    pub descriptors: Option<u32>,
    /// `fd-hard-limit`
    pub most_descriptors: Option<u32>,
    /// `strict-limits`
    pub strict_limits: bool,
    /// TLS settings for later lines of the configuration.
    pub(super) tls: TlsProcess,
    /// `hard-stop-after`
    pub hard_stop_after: Option<Duration>,
    /// `grace`
    pub grace: Duration,
    /// `nosplice`
    pub no_splice: bool,
    /// `noreuseport`
    pub no_reuse_port: bool,
    /// `tune.runqueue-depth`
    pub runqueue_depth: Option<u32>,
    /// `tune.sched.low-latency`
    pub low_latency: bool,
    /// `busy-polling`: lanes never sleep before the soft stop.
    pub busy_polling: bool,
    /// `spread-checks`, in percent.
    pub spread_checks: u32,
    /// `pp2-never-send-local`
    pub never_local: bool,
    /// `tune.max-checks-per-thread`; 0 for no limit.
    pub max_checks: u32,
    /// `max-spread-checks`
    pub max_spread_checks: Option<Duration>,
    /// `tune.maxaccept`; `None` for the driver's own limit, `u32::MAX` for its highest.
    pub maxaccept: Option<u32>,
    /// `harden.reject-privileged-ports.tcp`
    pub reject_privileged: bool,
    /// `tune.listener.multi-queue`: connections go to the least loaded lane; otherwise they stay on the lane
    /// that accepts them.
    pub spreads_connections: bool,
    /// `tune.idle-pool.shared`: a lane without an idle connection asks another lane.
    pub idle_shared: bool,
    /// `tune.pool-low-fd-ratio`: share of descriptors in use, in percent, above which connections are not
    /// kept.
    pub pool_low: u64,
    /// `tune.pool-high-fd-ratio`: share above which an idle connection closes for each new one.
    pub pool_high: u64,
    /// `tune.bufsize`: most bytes of a head.
    pub bufsize: usize,
    /// `tune.buffers.limit`: clusters of the process; each lane gets a share.
    pub most_clusters: Option<usize>,
    /// `tune.buffers.reserve`: clusters of each lane that are reserved for connections that already hold
    /// data.
    pub reserved_clusters: usize,
    /// `tune.h2.*`
    pub h2: H2Settings,
    /// `tune.maxrewrite`: bytes of the buffer that are reserved for edits.
    pub maxrewrite: usize,
    /// `h1-accept-payload-with-any-method`
    pub old_payload: bool,
    /// `tune.http.logurilen`: bytes of a request's first line for the log and for captures, at least 1.
    pub longest_line: usize,
    /// `tune.http.maxhdr`
    pub maxhdr: usize,
    /// `tune.rcvbuf.server`: bytes of the kernel's receive buffers of server connections; `None` for the
    /// kernel's default.
    pub server_receive_buffer: Option<u32>,
    /// `tune.sndbuf.server`
    pub server_send_buffer: Option<u32>,
    /// `tune.notsent-lowat.server`
    pub server_unsent: Option<u32>,
    /// `tune.maxpollevents`
    pub events_at_once: Option<usize>,
    /// `tune.pipesize`
    pub pipe_size: Option<usize>,
    /// `maxpipes`: pipes of the process; each lane gets a share.
    pub most_pipes: Option<usize>,
    /// `tune.max-rules-at-once`
    pub rules_at_once: u32,
    /// `http-err-codes`: response statuses that count as errors of clients.
    pub error_statuses: StatusSet,
    /// `http-fail-codes`: response statuses that count as failures of servers.
    pub failure_statuses: StatusSet,
    /// `tune.vars.*-max-size`
    pub variable_limits: VariableLimits,
    /// `tune.renice.startup`
    pub nice_at_start: Option<i32>,
    /// `tune.renice.runtime`
    pub nice: Option<i32>,
    /// `close-spread-time`: period over which a soft stop closes clients' connections; the inner `None`
    /// leaves them until they end by themselves.
    pub close_spread: Option<Option<Duration>>,
    /// `master-worker`: what the master does when its worker fails.
    pub master_worker: Option<OnWorkerFailure>,
    /// `mworker-max-reloads`
    pub most_reloads: Option<u32>,
    /// `set-dumpable`
    pub dumpable: bool,
    /// `warn-blocked-traffic-after`: run time of a task from which it is reported.
    pub warn_blocked: Duration,
    /// `profiling.tasks`
    pub profiling: Profiling,
    /// `stats socket`: sockets of the run-time interface. They stay those of the start.
    pub stats_sockets: Arc<[RuntimeSocket]>,
    /// For each of these sockets the newest line of the files that has its address.
    pub stats_lines: Arc<[RuntimeSocket]>,
    /// `stats maxconn`: most concurrent clients of the run-time interface.
    pub stats_maxconn: Option<u32>,
    /// `stats timeout`: longest silence of a client of the run-time interface.
    pub stats_timeout: Duration,
    /// `node`
    pub node: Option<Box<str>>,
    /// `description`
    pub description: Option<Box<str>>,
}

impl Process {
    /// Returns the size that edits may make a head grow to that had `size` bytes when it was received, while
    /// `arrived` bytes of its body lie beside it. As in HAProxy, a message fills a buffer up to
    /// `tune.maxrewrite`, and what it leaves is for edits.
    pub fn room_beside(&self, arrived: usize, size: usize) -> usize {
        let most = self.bufsize.saturating_sub(self.maxrewrite).saturating_sub(size);
        self.bufsize - arrived.min(most)
    }

    /// Returns the number of lanes: the configured one, or one for each processor that the process may use.
    ///
    /// # Errors
    /// The processors could not be counted.
    pub fn lane_count(&self) -> std::io::Result<usize> {
        let wanted = match self.lanes {
            Some(lanes) => lanes,
            None => Placement::read()?.lanes.len(),
        };
        Ok(wanted.min(self.most_lanes.unwrap_or(usize::MAX)).clamp(1, MOST_LANES))
    }

    /// Returns the longest time of a soft stop: the sum of `grace` and `hard-stop-after`; `None` without the
    /// latter.
    pub fn longest_stop(&self) -> Option<Duration> {
        self.hard_stop_after.map(|most| self.grace.saturating_add(most))
    }

    /// Keeps the settings of `before` that apply only at the start of the process. Returns a clause for each
    /// setting that differs.
    pub fn keep_what_is_fixed(&mut self, before: &Self) -> Vec<&'static str> {
        let newest = |was: &RuntimeSocket| {
            let line = self.stats_lines.iter().find(|line| line.is_at_address_of(was));
            line.unwrap_or(was).clone()
        };
        self.stats_lines = before.stats_lines.iter().map(newest).collect();
        let mut kept = Vec::new();
        macro_rules! keep {
            ($($keyword:literal: $($field:ident)+),+ $(,)?) => { $({
                if $(self.$field != before.$field)||+ {
                    kept.push(concat!("'", $keyword, "' keeps its value"));
                }
                $(self.$field = before.$field.clone();)+
            })+ };
        }
        keep! {
            "nbthread": lanes most_lanes,
            "cpu-map": cpu_map,
            "chroot": chroot,
            "user": user,
            "group": group,
            "daemon": daemon,
            "pidfile": pidfile,
            "master-worker": master_worker,
            "mworker-max-reloads": most_reloads,
            "busy-polling": busy_polling,
            "tune.runqueue-depth": runqueue_depth,
            "tune.sched.low-latency": low_latency,
            "profiling.tasks": profiling,
            "warn-blocked-traffic-after": warn_blocked,
            "stats maxconn": stats_maxconn,
        }
        if self.stats_sockets != before.stats_sockets {
            kept.push("'stats socket' keeps its addresses and socket options");
            self.stats_sockets = before.stats_sockets.clone();
        }
        kept
    }
}

/// A socket of the run-time interface.
#[derive(Clone, Debug)]
pub struct RuntimeSocket {
    /// Address and options of the socket.
    pub listener: Listener,
    /// What its clients may do.
    pub rights: Rights,
}

/// What a client of the run-time interface may do, and how it is answered.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// `level`
    pub level: &'static str,
    /// `severity-output`: form of the severity in front of messages.
    pub severity: &'static str,
    /// `expose-fd listeners`: clients may get the listening sockets.
    pub exposes: bool,
}

impl RuntimeSocket {
    /// Returns whether both have the same address, whatever else their lines say.
    fn is_at_address_of(&self, other: &Self) -> bool {
        let (own, its) = (&self.listener, &other.listener);
        (&own.endpoint, &own.options.namespace, &own.options.interface)
            == (&its.endpoint, &its.options.namespace, &its.options.interface)
    }
}

/// Two are equal if the same socket is bound for both. Rights and TLS are those of the newer line.
impl PartialEq for RuntimeSocket {
    fn eq(&self, other: &Self) -> bool {
        let (own, its) = (&self.listener, &other.listener);
        (&own.endpoint, &own.options, &own.user, &own.group)
            == (&its.endpoint, &its.options, &its.user, &its.group)
    }
}

/// Default rights of the run-time interface's clients, and the default of their longest silence.
const LEVEL: &str = "operator";
const STATS_TIMEOUT: Duration = Duration::from_secs(10);

fn positive(time: Set<Duration>, refuse: &mut Refuse<'_>) -> bool {
    if time.value.is_zero() {
        refuse.found.alert(time.pos, "'stats timeout' expects a time above 0, found 0");
    }
    !time.value.is_zero()
}

fn stats_sockets(
    lines: &[Bind],
    global: &Global,
    groups: &Groups,
    refuse: &mut Refuse<'_>,
) -> Arc<[RuntimeSocket]> {
    let mut all = Vec::new();
    for line in lines {
        if line.options.tls.ssl.is_none() && line.options.tls != TlsOptions::default() {
            let pos = line.options.tls.crt.first().map_or(line.pos, Word::pos);
            let why = "options of TLS expect 'ssl' beside them, without which nothing is encrypted";
            refuse.keyword(pos, "stats socket", why);
        }
        if let (Some(_), Some(pos)) =
            (line.options.tls.verify, line.options.tls.crt_list.first().map(Word::pos))
        {
            let why = "a line of the list may say 'verify none' and let clients in without a certificate: \
                       use 'crt' beside 'verify'";
            refuse.keyword(pos, "crt-list", why);
        }
        if let Some(set) = line.options.tls.early_data {
            refuse.keyword(set.pos, "allow-0rtt", "commands are not taken as early data");
        }
        if let (Some(_), Some(set)) = (line.options.tls.ssl, line.options.expose_fd) {
            let why = "descriptors cannot pass within TLS: expose them on a socket without 'ssl'";
            refuse.keyword(set.pos, "expose-fd", why);
        }
        let listeners = bind::listeners(
            line,
            0,
            0,
            &Settings::default(),
            &mut Ids::new(1, std::iter::empty()),
            (global, groups, bind::Shards::Number(1), None),
            refuse,
        );
        all.extend(listeners.into_iter().map(|listener| RuntimeSocket {
            listener,
            rights: Rights {
                level: line.options.level.map_or(LEVEL, |set| set.value),
                severity: line.options.severity_output.map_or("none", |set| set.value),
                exposes: line.options.expose_fd.is_some(),
            },
        }));
    }
    all.into()
}

/// A user or a group, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A name, which the caller looks up.
    Name(Box<str>),
    /// A number.
    Number(u32),
}

fn text(word: &manylane_config::lex::Word) -> Box<str> {
    String::from_utf8_lossy(word.bytes()).into()
}

fn path(word: &manylane_config::lex::Word) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(word.bytes()))
}

fn owner(name: &Option<Set<manylane_config::lex::Word>>, number: &Option<Set<u32>>) -> Option<Owner> {
    match (name, number) {
        (_, Some(number)) => Some(Owner::Number(number.value)),
        (Some(name), None) => Some(Owner::Name(text(&name.value))),
        (None, None) => None,
    }
}

fn is_on(set: &Option<Set<bool>>) -> bool {
    set.is_some_and(|set| set.value)
}

/// Default run time of a task from which it is reported.
const WARN_BLOCKED: Duration = Duration::from_millis(100);

/// Default number of bytes of a request's first line in logs.
const LINE: usize = 1023;

/// Default number of rules that a stream evaluates before other tasks run.
const RULES_AT_ONCE: u32 = 50;

/// Default size of a buffer in bytes.
const BUFSIZE: u64 = 16_384;

/// Default of `tune.buffers.reserve`.
const BUFFERS_RESERVE: u64 = 4;

/// Returns the settings of the process. The pattern names all fields, so that a new field of the tree cannot
/// be forgotten.
pub(super) fn process(global: &Global, refuse: &mut Refuse<'_>) -> Process {
    let Global {
        busy_polling,
        chroot,
        close_spread_time,
        cpu_placement,
        daemon,
        default_path: _, // `refuse` finds files by it
        description,
        external_check,
        disable_fast_forward: _, // both directions are always forwarded without inspection
        disable_zero_copy: _,    // the table of keywords explains this one and the following
        dns_families: _,         // read by `resolvers`
        h2_hides_websocket,
        expose_deprecated: _,   // no keyword is deprecated
        expose_experimental: _, // no keyword is experimental
        fd_hard_limit,
        gid,
        grace,
        group,
        h1_accept_payload,
        h1_case_adjust: _, // read by `spelling`
        h1_case_adjust_file: _,
        hard_stop_after,
        http_err_codes,
        http_fail_codes,
        localpeer: _, // a variable of the environment
        log: _,       // read with the targets of proxies
        log_send_hostname: _,
        log_tag: _,
        max_spread_checks,
        maxconn,
        maxconnrate,
        maxpipes,
        maxsessrate,
        master_worker,
        mworker_max_reloads,
        nbthread,
        node,
        noreuseport,
        nosplice,
        numa_cpu_mapping: _,
        pidfile,
        pp2_never_send_local,
        profiling_memory: _,
        profiling_tasks,
        quiet,
        reject_privileged_tcp,
        server_state_base: _,
        server_state_file: _,
        set_dumpable,
        spread_checks,
        stats_file: _, // read once all that has counters is there
        stats_maxconn,
        stats_sockets,
        stats_timeout,
        strict_limits,
        thread_group: _, // read by `groups`
        thread_groups: _,
        thread_hard_limit,
        tune,
        uid,
        ulimit_n,
        unix_bind: _, // joined to the listeners by `bind`
        user,
        variables: _, // read with the rules, which share their names
        warn_blocked_after,
        zero_warning,
        insecure_setuid,
        tls,
    } = global;
    let groups = groups(global, refuse);
    if let Some(Set { value: "libs", pos }) = set_dumpable {
        refuse.keyword(*pos, "set-dumpable libs", "the program has no library that could change below it");
    }
    if let Some(Set { value, pos, .. }) = warn_blocked_after
        && !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(value)
    {
        let found = value.as_millis();
        let message =
            format!("'warn-blocked-traffic-after' expects a time from 1 ms to 1000 ms, found {found} ms");
        refuse.found.alert(*pos, message);
    }
    if let Some(Set { value, pos, .. }) = tune.bufsize
        && value > MAX_HEAD as u64
    {
        let message = format!(
            "'tune.bufsize' : the head of a message has at most {MAX_HEAD} bytes, whatever is given here; \
                what is kept of bodies, for rules that \
             wait for them and for retries, and of contents for 'tcp-request content' and 'tcp-response \
             content' grows to {value} bytes"
        );
        refuse.found.warning(pos, message);
    }
    let tune = self::tune(tune);
    let stats_sockets = self::stats_sockets(stats_sockets, global, &groups, refuse);
    let most_lanes = thread_hard_limit.map(|set| set.value as usize);
    let lanes = nbthread.map(|set| set.value as usize);
    let cpu_map = cpu_map(
        cpu_placement,
        &groups,
        lanes,
        || Placement::read().map(|read| read.lanes).unwrap_or_default(),
        refuse,
    );
    Process {
        tls: tls.clone(),
        daemon: is_on(daemon),
        quiet: is_on(quiet),
        zero_warning: is_on(zero_warning),
        external_check: external_check.map(|set| set.value),
        hides_websocket: is_on(h2_hides_websocket),
        error_statuses: http_err_codes.map_or_else(StatusSet::errors, |set| set.value),
        failure_statuses: http_fail_codes.map_or_else(StatusSet::failures, |set| set.value),
        insecure_setuid: is_on(insecure_setuid),
        pidfile: pidfile.as_ref().map(|set| path(&set.value)),
        chroot: chroot.as_ref().map(|set| path(&set.value)),
        user: owner(user, uid),
        group: owner(group, gid),
        most_lanes,
        lanes: lanes.or(cpu_map.chosen()),
        cpu_map,
        groups,
        maxconn: maxconn.map(|set| set.value),
        // 0 means the default.
        most_pipes: maxpipes.map(|set| set.value as usize).filter(|most| *most > 0),
        close_spread: close_spread_time.map(|set| set.value).filter(|window| *window != Some(Duration::ZERO)),
        master_worker: master_worker.map(|set| set.value),
        most_reloads: mworker_max_reloads.map(|set| set.value),
        dumpable: set_dumpable.is_some_and(|set| set.value != "off"),
        connection_rate: maxconnrate.map_or(0, |set| set.value),
        session_rate: maxsessrate.map_or(0, |set| set.value),
        descriptors: ulimit_n.map(|set| set.value),
        most_descriptors: fd_hard_limit.map(|set| set.value),
        strict_limits: strict_limits.is_none_or(|set| set.value),
        hard_stop_after: hard_stop_after.map(|Set { value: HardStop { after }, .. }| after),
        grace: grace.map_or(Duration::ZERO, |set| set.value),
        spread_checks: spread_checks.map_or(0, |set| set.value),
        never_local: is_on(pp2_never_send_local),
        max_spread_checks: max_spread_checks.map(|set| set.value).filter(|time| !time.is_zero()),
        busy_polling: is_on(busy_polling),
        no_splice: is_on(nosplice),
        no_reuse_port: is_on(noreuseport),
        reject_privileged: is_on(reject_privileged_tcp),
        old_payload: is_on(h1_accept_payload),
        warn_blocked: warn_blocked_after.as_ref().map_or(WARN_BLOCKED, |set| set.value),
        profiling: match profiling_tasks.map_or("auto", |set| set.value) {
            "on" => Profiling::On,
            "off" => Profiling::Off,
            _ => Profiling::Auto,
        },
        stats_lines: stats_sockets.clone(),
        stats_sockets,
        stats_maxconn: stats_maxconn.map(|set| set.value),
        stats_timeout: stats_timeout
            .filter(|set| positive(*set, refuse))
            .map_or(STATS_TIMEOUT, |set| set.value),
        node: node.as_ref().map(|set| text(&set.value)),
        description: description.as_ref().map(|set| text(&set.value)),
        ..tune
    }
}

/// Returns the settings of `tune.*`.
fn tune(tune: &Tune) -> Process {
    let Tune {
        buffers_limit,
        buffers_reserve,
        bufsize,
        bufsize_large: _,
        bufsize_small: _,
        events_max_at_once: _,
        fail_alloc: _,
        glitches_kill_cpu: _, // read by `H2Settings`
        h1_zero_copy_recv: _, // bytes are never copied
        h1_zero_copy_send: _,
        h1_be_glitches: _,
        h1_fe_glitches: _,
        h2_be_glitches: _, // read by `H2Settings`
        h2_be_window: _,
        h2_be_streams: _,
        h2_be_frames_at_once: _,
        h2_be_rxbuf: _,
        h2_fe_glitches: _,
        h2_fe_window: _,
        h2_fe_streams: _,
        h2_fe_frames_at_once: _,
        h2_fe_resets_at_once: _,
        h2_fe_total_streams: _,
        h2_fe_rxbuf: _,
        h2_header_table: _,
        h2_window: _,
        h2_log_errors: _,
        h2_streams: _,
        h2_max_frame: _,
        h2_zero_copy_send: _, // bytes are never copied
        http_cookielen: _,    // of captures
        http_logurilen,
        http_maxhdr,
        idle_pool_shared,
        idletimer: _,               // of connections with TLS
        listener_default_shards: _, // of bind lines
        listener_multi_queue,
        max_checks_per_thread,
        max_rules_at_once,
        maxaccept,
        maxpollevents,
        maxrewrite,
        notsent_lowat_client: _, // of the listeners
        notsent_lowat_server,
        pattern_cache_size: _,
        pipesize,
        pool_high_fd_ratio,
        pool_low_fd_ratio,
        rcvbuf_client: _,
        rcvbuf_server,
        rcvbuf_backend: _,
        rcvbuf_frontend: _, // of sockets for datagrams
        recv_enough: _,
        renice_runtime,
        renice_startup,
        runqueue_depth,
        sched_low_latency,
        sndbuf_client: _,
        sndbuf_server,
        sndbuf_backend: _,
        sndbuf_frontend: _,
        stick_counters: _, // of rules
        takeover_other_tg: _,
        vars_check,
        vars_global,
        vars_proc,
        vars_reqres,
        vars_sess,
        vars_txn,
    } = tune;
    // 0 means no limit.
    let most = |set: Option<Set<u64>>| {
        set.map_or(0, |set| set.value as usize).checked_sub(1).map_or(usize::MAX, |n| n + 1)
    };
    let bufsize = bufsize.map_or(BUFSIZE, |set| set.value) as usize;
    let clusters = |buffers: u64| (buffers as usize).saturating_mul(bufsize.div_ceil(MAX_CLUSTER));
    let maxrewrite = maxrewrite.map_or(1024, |set| set.value as usize).min(bufsize / 2);
    Process {
        runqueue_depth: runqueue_depth.map(|set| set.value as u32),
        low_latency: is_on(sched_low_latency),
        max_checks: max_checks_per_thread.map_or(0, |set| u32::try_from(set.value).unwrap_or(u32::MAX)),
        maxaccept: maxaccept.as_ref().and_then(|set| match set.value {
            0 => None, // 0 means the default
            bound => Some(u32::try_from(bound).unwrap_or(u32::MAX)),
        }),
        most_clusters: buffers_limit.map(|set| clusters(set.value)).filter(|most| *most > 0),
        reserved_clusters: clusters(buffers_reserve.map_or(BUFFERS_RESERVE, |set| set.value)),
        bufsize,
        h2: H2Settings::of(tune, bufsize),
        maxrewrite,
        spreads_connections: listener_multi_queue.is_none_or(|set| set.value != "off"),
        idle_shared: idle_pool_shared.is_none_or(|set| set.value != "off"),
        pool_low: pool_low_fd_ratio.map_or(20, |set| set.value),
        pool_high: pool_high_fd_ratio.map_or(25, |set| set.value),
        longest_line: http_logurilen.map_or(LINE, |set| set.value as usize),
        maxhdr: http_maxhdr.map_or(101, |set| set.value as usize),
        server_receive_buffer: bind::bytes(*rcvbuf_server),
        server_send_buffer: bind::bytes(*sndbuf_server),
        server_unsent: bind::bytes(*notsent_lowat_server),
        events_at_once: maxpollevents.map(|set| set.value as usize),
        pipe_size: pipesize.map(|set| set.value as usize).filter(|bytes| *bytes > 0),
        rules_at_once: max_rules_at_once
            .map_or(RULES_AT_ONCE, |set| u32::try_from(set.value).unwrap_or(u32::MAX))
            .max(1),
        variable_limits: VariableLimits {
            process: most(*vars_proc),
            session: most(*vars_sess),
            transaction: most(*vars_txn),
            message: most(*vars_reqres),
            check: most(*vars_check),
            global: most(*vars_global),
            lanes: 1, // each lane sets it
        },
        nice_at_start: renice_startup.map(|set| set.value as i32),
        nice: renice_runtime.map(|set| set.value as i32),
        ..Process::default()
    }
}
