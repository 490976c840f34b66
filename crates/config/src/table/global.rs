//! Settings of the process in `global`. `setenv` and related keywords change the environment of the next
//! line.

use super::context::GLOBAL;
use super::{Arg, Keyword, Kind, args, choice, flag, int, own, switch, text, time};
use crate::build::{Builder, Line};
use crate::lex::InvalidVariable;
use crate::tree::{DnsFamilies, HardStop, OnWorkerFailure, StatusSet};
use crate::value;

const MANY: i64 = i32::MAX as i64;

/// Makes a handler that stores the value in a field of `Global`.
macro_rules! store {
    ($field:ident, $get:ident $(as $type:ty)?) => {
        |b, line| b.config.global.$field = Some(line.argument(line.$get(0) $(as $type)?))
    };
}

macro_rules! raise {
    ($field:ident) => {
        |b, line| b.config.global.$field = Some(line.set(line.given()))
    };
}

/// Environment variable with the name of the local peer.
const LOCAL_PEER: &[u8] = b"HAPROXY_LOCALPEER";

fn variable(b: &mut Builder<'_>, line: &Line<'_>, only_if_unset: bool) {
    let (name, value) = (&line.words[0], &line.words[1]);
    let set = if only_if_unset {
        b.environment.preset(name.bytes(), value.bytes())
    } else {
        b.environment.set(name.bytes(), value.bytes())
    };
    match set {
        Ok(()) => {}
        Err(InvalidVariable::Name) => {
            b.found.alert(
                name.pos(),
                format!("'{}' expects the name of a variable, found '{}'", line.keyword.name, name.shown()),
            );
        }
        Err(InvalidVariable::Value) => {
            b.found.alert(
                value.pos(),
                format!("'{}' : the value is too long for a variable", line.keyword.name),
            );
        }
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = vec![
        args("chroot", GLOBAL, [text("folder")], "the process sees only this folder once it has started")
            .built(store!(chroot, word)),
        flag("daemon", GLOBAL, "the process goes to the background").built(raise!(daemon)),
        own(
            "default-path",
            GLOBAL,
            "current|config|parent|origin <path>",
            1,
            "where relative names of files in the configuration begin",
        )
        .default("current")
        .adds()
        .built(default_path),
        own(
            "description",
            GLOBAL,
            "<text>...",
            1,
            "a sentence about this process, shown by \
            statistics",
        )
        .built(|b, line| {
            b.config.global.description = Some(line.set(line.sentence(0)));
        }),
        flag("expose-deprecated-directives", GLOBAL, "deprecated keywords cause no warning")
            .built(raise!(expose_deprecated)),
        flag("expose-experimental-directives", GLOBAL, "experimental keywords are allowed")
            .built(raise!(expose_experimental)),
        args(
            "fd-hard-limit",
            GLOBAL,
            [int("number", 1, MANY)],
            "descriptors that the process may at most ask for",
        )
        .built(store!(fd_hard_limit, int as u32)),
        args(
            "gid",
            GLOBAL,
            [int("number", 0, u32::MAX as i64)],
            "group that the process changes to, by its number",
        )
        .built(store!(gid, int as u32)),
        args("grace", GLOBAL, [time("delay")], "time between the request to stop and the end of listening")
            .default("0")
            .built(store!(grace, time)),
        args("group", GLOBAL, [text("name")], "group that the process changes to, by its name")
            .built(store!(group, word)),
        flag(
            "h1-accept-payload-with-any-method",
            GLOBAL,
            "requests that have no body by their method may have one",
        )
        .built(raise!(h1_accept_payload)),
        args(
            "h1-case-adjust",
            GLOBAL,
            [text("name"), text("spelling")],
            "how the name of a header field is spelled for peers that care about case",
        )
        .adds()
        .built(|b, line| b.config.global.h1_case_adjust.push((line.word(0), line.word(1)))),
        args(
            "h1-case-adjust-file",
            GLOBAL,
            [text("file")],
            "a file with one spelling of a header field's name a line",
        )
        .built(store!(h1_case_adjust_file, word)),
        flag(
            "h1-do-not-close-on-insecure-transfer-encoding",
            GLOBAL,
            "a connection stays open after a request with length and transfer coding",
        )
        .refused("two parsers could frame such requests differently: they are refused"),
        flag("h2-workaround-bogus-websocket-clients", GLOBAL, "HTTP/2 does not announce WebSocket support")
            .built(raise!(h2_hides_websocket)),
        own(
            "hard-stop-after",
            GLOBAL,
            "<time>",
            1,
            "time after which a stopping process ends its last connections",
        )
        .built(|b, line| {
            if let Some(after) = line.own_time(b, 0) {
                b.config.global.hard_stop_after = Some(line.set(HardStop { after }));
            }
            line.no_more(b, 1);
        }),
        flag("insecure-fork-wanted", GLOBAL, "the process may start others while it runs")
            .idle("nothing keeps the process from starting others, which only external checks do"),
        flag(
            "insecure-setuid-wanted",
            GLOBAL,
            "the process may get rights again that it gave up, by programs that have them",
        )
        .built(raise!(insecure_setuid)),
        args("limited-quic", GLOBAL, [] as [Arg; 0], "QUIC with a TLS library that hardly supports it")
            .refused("QUIC is not built yet"),
        args(
            "localpeer",
            GLOBAL,
            [text("name")],
            "the name of this process among its peers, in the variable HAPROXY_LOCALPEER",
        )
        .default("the machine's name")
        .built(|b, line| {
            b.config.global.localpeer = Some(line.set(line.word(0)));
            if b.environment.is_given(LOCAL_PEER) {
                let message = "'localpeer' has no effect: the command line says another name with '-L'";
                b.found.warning(line.pos(), message);
            } else if b.environment.set(LOCAL_PEER, line.words[0].bytes()).is_err() {
                b.found.alert(line.words[0].pos(), "'localpeer' : the name is too long for a variable");
            }
        }),
        args(
            "master-worker",
            GLOBAL,
            [choice("mode", &["no-exit-on-failure", "restart-on-crash"]).optional()],
            "a master process watches over the worker, and replaces it on SIGUSR2; with restart-on-crash \
                (not of HAProxy) also when it crashes",
        )
        .built(|b, line| {
            let fails = match line.words.first().map(|word| word.bytes()) {
                None => OnWorkerFailure::Exit,
                Some(b"restart-on-crash") => OnWorkerFailure::Restart,
                Some(_) => OnWorkerFailure::Wait,
            };
            b.config.global.master_worker = Some(line.set(fails));
        }),
        args(
            "max-spread-checks",
            GLOBAL,
            [time("delay")],
            "longest time between the first checks of two servers",
        )
        .built(store!(max_spread_checks, time)),
        args(
            "maxcompcpuusage",
            GLOBAL,
            [int("percent", 0, 100)],
            "processor load from which answers are not compressed",
        )
        .refused("compression is not built yet"),
        args("maxcomprate", GLOBAL, [int("kilobytes", 0, MANY)], "kilobytes a second that are compressed")
            .refused("compression is not built yet"),
        args("maxconn", GLOBAL, [int("number", 1, MANY)], "client connections at once")
            .default("from the number of descriptors")
            .built(store!(maxconn, int as u32)),
        args(
            "maxconnrate",
            GLOBAL,
            [int("number", 0, MANY)],
            "connections accepted a second; 0 for no bound",
        )
        .default("0")
        .built(store!(maxconnrate, int as u32)),
        args("maxpipes", GLOBAL, [int("number", 0, MANY)], "pipes for splicing")
            .default("a quarter of maxconn")
            .built(store!(maxpipes, int as u32)),
        args("maxsessrate", GLOBAL, [int("number", 0, MANY)], "sessions begun a second; 0 for no bound")
            .default("0")
            .built(store!(maxsessrate, int as u32)),
        args("maxzlibmem", GLOBAL, [int("megabytes", 0, MANY)], "memory for compression")
            .refused("compression is not built yet"),
        args(
            "mworker-max-reloads",
            GLOBAL,
            [int("number", 0, MANY)],
            "reloads after which an old worker is ended",
        )
        .built(store!(mworker_max_reloads, int as u32)),
        args("nbproc", GLOBAL, [int("number", 1, 1)], "number of processes")
            .refused("there is one process; use nbthread"),
        args("nbtgroups", GLOBAL, [int("number", 1, 64)], "groups of lanes")
            .default("1")
            .built(store!(thread_groups, int as u32)),
        args("thread-groups", GLOBAL, [int("number", 1, 64)], "groups of lanes")
            .default("1")
            .built(store!(thread_groups, int as u32)),
        args(
            "max-threads-per-group",
            GLOBAL,
            [int("number", 1, 1024)],
            "lanes of a group, beyond which there are more groups",
        )
        .refused("HAProxy 3.2 does not have it either: use 'thread-groups'"),
        own("thread-group", GLOBAL, "<group> [<first>[-<last>]...]", 1, "which lanes belong to a group")
            .adds()
            .built(|b, line| b.config.global.thread_group.push(line.statement())),
        args("nbthread", GLOBAL, [int("number", 1, 1024)], "lanes: threads that carry traffic")
            .default("processors that the process may use")
            .built(store!(nbthread, int as u32)),
        args("thread-hard-limit", GLOBAL, [int("number", 1, 1024)], "lanes at most, whatever nbthread is")
            .built(store!(thread_hard_limit, int as u32)),
        args("node", GLOBAL, [text("name")], "the name of this process in statistics").built(|b, line| {
            let name = line.word(0);
            // The name is part of the header of log lines, where a space would end it.
            if !name.bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte)) {
                let message = format!(
                    "'node' expects letters, digits, '.', '-' and '_' only, found '{}'",
                    name.shown()
                );
                b.found.alert(name.pos(), message);
            }
            b.config.global.node = Some(line.set(name));
        }),
        flag("no-memory-trimming", GLOBAL, "memory is not given back to the system")
            .idle("the allocator gives memory back by its own rules"),
        flag("no-quic", GLOBAL, "QUIC is not used").idle("QUIC is not built"),
        flag("noepoll", GLOBAL, "epoll is not used")
            .refused("there is no other poller than epoll and io_uring"),
        flag("noevports", GLOBAL, "event ports are not used").idle("they are Solaris's"),
        flag("nogetaddrinfo", GLOBAL, "names are not resolved by the system's modern function")
            .idle("names are always resolved by getaddrinfo"),
        flag("nokqueue", GLOBAL, "kqueue is not used").idle("it is BSD's"),
        flag("noktls", GLOBAL, "TLS in the kernel is not used").idle("it is not used"),
        flag("nopoll", GLOBAL, "poll is not used").idle("it is not used"),
        flag("noreuseport", GLOBAL, "listeners do not share their port").built(raise!(noreuseport)),
        flag("nosplice", GLOBAL, "bytes are not spliced").built(raise!(nosplice)),
        own("numa-cpu-mapping", GLOBAL, "", 0, "lanes stay on one NUMA node").negatable().built(|b, line| {
            b.config.global.numa_cpu_mapping = Some(line.set(line.on()));
        }),
        args("pidfile", GLOBAL, [text("file")], "the file that the process's number is written to")
            .built(store!(pidfile, word)),
        flag("pp2-never-send-local", GLOBAL, "health checks show a client's address in the PROXY protocol")
            .built(raise!(pp2_never_send_local)),
        flag("prealloc-fd", GLOBAL, "the table of descriptors is made at its full size at the start")
            .idle("it is the kernel's table and grows by itself"),
        own("presetenv", GLOBAL, "<name> <value>", 2, "sets a variable of the environment unless it is set")
            .adds()
            .built(|b, line| {
                variable(b, line, true);
                line.no_more(b, 2);
            }),
        own("resetenv", GLOBAL, "[<name>...]", 0, "removes all variables of the environment but those named")
            .adds()
            .built(|b, line| {
                let keep: Vec<&[u8]> = line.words.iter().map(crate::lex::Word::bytes).collect();
                b.environment.reset(&keep);
            }),
        own("setenv", GLOBAL, "<name> <value>", 2, "sets a variable of the environment").adds().built(
            |b, line| {
                variable(b, line, false);
                line.no_more(b, 2);
            },
        ),
        own("unsetenv", GLOBAL, "<name>...", 1, "removes variables of the environment").adds().built(
            |b, line| {
                line.words.iter().for_each(|word| b.environment.unset(word.bytes()));
            },
        ),
        own("set-var", GLOBAL, "proc.<name> <expression>", 2, "sets a variable of the process")
            .adds()
            .words(|b, line| b.config.global.variables.push(line.statement())),
        own(
            "set-var-fmt",
            GLOBAL,
            "proc.<name> <format>",
            2,
            "sets a variable of the process from a log \
            format",
        )
        .adds()
        .words(|b, line| b.config.global.variables.push(line.statement())),
        flag("quiet", GLOBAL, "no messages once the process has started").built(raise!(quiet)),
        args(
            "server-state-base",
            GLOBAL,
            [text("folder")],
            "where relative names of server state files begin",
        )
        .built(store!(server_state_base, word)),
        args("server-state-file", GLOBAL, [text("file")], "the file that servers' states are read from")
            .built(store!(server_state_file, word)),
        args(
            "set-dumpable",
            GLOBAL,
            [Arg {
                name: "state",
                kind: Kind::Choice(&["on", "off", "libs"]),
                count: super::Count::Optional,
            }],
            "the process may leave a core file although it changed its user",
        )
        .built(|b, line| {
            let state = if line.words.is_empty() { "on" } else { line.choice(0) };
            b.config.global.set_dumpable = Some(line.set(state));
        }),
        own(
            "setcap",
            GLOBAL,
            "<capabilities>",
            1,
            "capabilities that the process keeps when it gives up \
            root",
        )
        .refused("none is kept: let the service manager give them to the user that it starts the program as"),
        args("stress-level", GLOBAL, [int("level", 0, 9)], "how much the program's own code is stressed")
            .default("0")
            .idle("there is no such code here"),
        args("debug.counters", GLOBAL, [switch("state")], "counters of events in HAProxy's code")
            .idle("there are no such counters here"),
        args("shm-stats-file", GLOBAL, [text("file")], "counters that survive a reload")
            .refused("HAProxy 3.2 does not have it either"),
        args(
            "shm-stats-file-max-objects",
            GLOBAL,
            [int("number", 1, MANY)],
            "objects in the file of counters",
        )
        .refused("HAProxy 3.2 does not have it either"),
        args(
            "spread-checks",
            GLOBAL,
            [int("percent", 0, 50)],
            "randomness of the time between health checks",
        )
        .default("0")
        .built(store!(spread_checks, int as u32)),
        args(
            "close-spread-time",
            GLOBAL,
            [text("delay")],
            "time over which connections are closed by a stopping process",
        )
        .built(|b, line| {
            if line.text(0).bytes() == b"infinite" {
                b.config.global.close_spread_time = Some(line.set(None));
            } else if let Some(delay) = line.own_time(b, 0) {
                b.config.global.close_spread_time = Some(line.set(Some(delay)));
            }
        }),
        own("stats maxconn", GLOBAL, "<number>", 1, "run-time clients at once").default("10").built(
            |b, line| {
                if let Some(number) = line.own_int(b, 0, 1, MANY) {
                    b.config.global.stats_maxconn = Some(line.set(number as u32));
                }
                line.no_more(b, 1);
            },
        ),
        own("stats socket", GLOBAL, "<address> [<option>...]", 1, "a socket for run-time commands")
            .adds()
            .built(super::bind::stats_socket),
        args("stats timeout", GLOBAL, [time("delay")], "idle time after which a run-time client is closed")
            .default("10s")
            .built(store!(stats_timeout, time)),
        args(
            "stats-file",
            GLOBAL,
            [text("file")],
            "counters that the process begins with: what 'dump stats-file' wrote of proxies, servers and \
                listeners with a 'guid'",
        )
        .built(store!(stats_file, word)),
        flag("strict-limits", GLOBAL, "the start fails if a limit of the system cannot be raised")
            .negatable()
            .default("on")
            .built(|b, line| {
                b.config.global.strict_limits = Some(line.set(line.on()));
            }),
        args(
            "uid",
            GLOBAL,
            [int("number", 0, u32::MAX as i64)],
            "user that the process changes to, by its number",
        )
        .built(store!(uid, int as u32)),
        args("ulimit-n", GLOBAL, [int("number", 1, MANY)], "descriptors of the process")
            .default("from maxconn")
            .built(store!(ulimit_n, int as u32)),
        own(
            "unix-bind",
            GLOBAL,
            "[prefix <text>] [mode <mode>] [user <name>] [uid <number>] [group <name>] [gid <number>]",
            1,
            "what all unix listeners have in common",
        )
        .built(super::bind::unix_bind),
        args("user", GLOBAL, [text("name")], "user that the process changes to, by its name")
            .built(store!(user, word)),
        args(
            "warn-blocked-traffic-after",
            GLOBAL,
            [time("delay")],
            "time after which a task that keeps its lane busy is reported, from 1 ms to 1 s",
        )
        .default("100ms")
        .built(store!(warn_blocked_after, time)),
        flag("zero-warning", GLOBAL, "a warning refuses the configuration, as -dW")
            .built(raise!(zero_warning)),
        args(
            "anonkey",
            GLOBAL,
            [int("key", 0, u32::MAX as i64)],
            "the key of names that run-time answers hide",
        )
        .refused("run-time answers hide no names: leave it out"),
        args("busy-polling", GLOBAL, [] as [Arg; 0], "lanes never sleep until the soft stop")
            .negatable()
            .built(|b, line| {
                b.config.global.busy_polling = Some(line.set(line.on()));
            }),
        own("cpu-affinity", GLOBAL, "<policy>", 1, "how lanes are bound to processors")
            .built(|b, line| b.config.global.cpu_placement.push(line.statement())),
        own(
            "cpu-map",
            GLOBAL,
            "[auto:]<groups>/<lanes> <processors>...",
            2,
            "which lanes run on which processors; for a lane that several lines name the last one counts",
        )
        .adds()
        .built(|b, line| b.config.global.cpu_placement.push(line.statement())),
        own("cpu-policy", GLOBAL, "<policy> [<option>...]", 1, "how lanes are spread over processors")
            .built(|b, line| b.config.global.cpu_placement.push(line.statement())),
        own("cpu-set", GLOBAL, "<rule>...", 1, "which processors may be used")
            .adds()
            .built(|b, line| b.config.global.cpu_placement.push(line.statement())),
        own(
            "dns-accept-family",
            GLOBAL,
            "<family>[,...]",
            1,
            "families of addresses that name servers are asked for: ipv4, ipv6; auto is IPv4, and IPv6 while \
             the system has a default route for it",
        )
        .default("ipv4,ipv6")
        .built(dns_families),
        args("profiling.memory", GLOBAL, [switch("state")], "memory is counted by call site")
            .built(store!(profiling_memory, switch)),
        args("profiling.tasks", GLOBAL, [choice("state", &["on", "off", "auto"])], "tasks are profiled")
            .default("auto")
            .built(store!(profiling_tasks, choice)),
        flag(
            "tune.disable-fast-forward",
            GLOBAL,
            "bytes pass through the message parser even where they need not",
        )
        .built(raise!(disable_fast_forward)),
        flag("tune.disable-zero-copy-forwarding", GLOBAL, "bytes are always copied between both sides")
            .built(raise!(disable_zero_copy)),
        own("external-check", GLOBAL, "[preserve-env]", 0, "external programs may check servers").words(
            |b, line| {
                let preserves = match line.words.first() {
                    Some(word) if *word == "preserve-env" => true,
                    Some(word) => {
                        let message = format!(
                            "'external-check' only supports 'preserve-env' as an argument, found '{}'",
                            word.shown()
                        );
                        return b.found.alert(word.pos(), message);
                    }
                    None => false,
                };
                line.no_more(b, 1);
                b.config.global.external_check = Some(line.set(preserves));
            },
        ),
        args("force-cfg-parser-pause", GLOBAL, [time("delay")], "the reader waits, for tests")
            .refused("the reader does not wait"),
        args(
            "harden.reject-privileged-ports.tcp",
            GLOBAL,
            [switch("state")],
            "clients whose port is below 1024 are refused",
        )
        .built(store!(reject_privileged_tcp, switch)),
        args(
            "harden.reject-privileged-ports.quic",
            GLOBAL,
            [switch("state")],
            "QUIC clients whose port is below 1024 are refused",
        )
        .refused("QUIC is not built yet"),
        own("cluster-secret", GLOBAL, "<secret>", 1, "the secret of addresses' tokens")
            .refused("QUIC is not built yet"),
    ];
    for (name, default, help) in [
        ("http-err-codes", "400-499", "statuses of servers that count as errors of clients in stick tables"),
        ("http-fail-codes", "500-599 -501,505", "statuses of servers that count as their failures there"),
    ] {
        rows.push(
            own(name, GLOBAL, "[+|-]<codes>[,...]...", 1, help).adds().default(default).built(statuses),
        );
    }
    for (name, help) in [
        ("lua-load", "a Lua file for all lanes"),
        ("lua-load-per-thread", "a Lua file loaded by each lane"),
        ("lua-prepend-path", "where Lua modules are found"),
    ] {
        rows.push(own(name, GLOBAL, "<file>", 1, help).adds().refused("Lua is not built yet"));
    }
    for (name, help) in [
        ("51degrees-allow-unmatched", "answers for devices that are not known"),
        ("51degrees-cache-size", "devices in the cache"),
        ("51degrees-data-file", "the file of devices"),
        ("51degrees-difference", "how far a device may be from a known one"),
        ("51degrees-drift", "how far letters may be moved"),
        ("51degrees-property-name-list", "properties that are looked up"),
        ("51degrees-property-separator", "what stands between properties"),
        ("51degrees-use-performance-graph", "the faster graph is used"),
        ("51degrees-use-predictive-graph", "the guessing graph is used"),
        ("deviceatlas-json-file", "the file of devices"),
        ("deviceatlas-log-level", "how much is logged"),
        ("deviceatlas-properties-cookie", "the cookie with properties"),
        ("deviceatlas-separator", "what stands between properties"),
        ("wurfl-cache-size", "devices in the cache"),
        ("wurfl-data-file", "the file of devices"),
        ("wurfl-information-list", "properties that are looked up"),
        ("wurfl-information-list-separator", "what stands between properties"),
        ("wurfl-patch-file", "changes to the file of devices"),
        ("wurfl-engine-mode", "how devices are looked up"),
        ("wurfl-useragent-priority", "which header field names the device"),
    ] {
        rows.push(
            own(name, GLOBAL, "<value>...", 0, help)
                .refused("device detection needs a product of another company"),
        );
    }
    rows
}

fn default_path(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = &line.words[0];
    match word.bytes() {
        b"current" | b"config" | b"parent" => line.no_more(b, 1),
        b"origin" => match line.words.get(1) {
            Some(_) => line.no_more(b, 2),
            None => return b.found.alert(word.pos(), "'default-path origin' expects a folder"),
        },
        _ => {
            let message =
                format!("'default-path' expects current, config, parent or origin, found '{}'", word.shown());
            return b.found.alert(word.pos(), message);
        }
    }
    b.config.global.default_path.push(line.statement());
}

/// `dns-accept-family`
fn dns_families(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = line.word(0);
    let mut families = DnsFamilies::default();
    for name in word.bytes().split(|byte| *byte == b',') {
        match name {
            b"ipv4" => families.ipv4 = true,
            b"ipv6" => families.ipv6 = true,
            b"auto" => families = DnsFamilies { ipv4: true, auto: true, ..families },
            _ => {
                let message = manylane_expr::none_of(line.keyword.name, ["auto", "ipv4", "ipv6"], name);
                return b.found.alert(word.pos(), message);
            }
        }
    }
    line.no_more(b, 1);
    b.config.global.dns_families = Some(line.set(families));
}

/// `http-err-codes`, `http-fail-codes`: `400-499 -404,410 +500`. If the first word has no sign, it replaces
/// the set.
fn statuses(b: &mut Builder<'_>, line: &Line<'_>) {
    let errors = line.keyword.name == "http-err-codes";
    let global = &mut b.config.global;
    let known = if errors { global.http_err_codes } else { global.http_fail_codes };
    let mut set = known.map_or_else(
        || if errors { StatusSet::errors() } else { StatusSet::failures() },
        |known| known.value,
    );
    for (index, word) in line.words.iter().enumerate() {
        let (add, codes) = match word.bytes() {
            [b'+', codes @ ..] => (true, codes),
            [b'-', codes @ ..] => (false, codes),
            codes => {
                if index == 0 {
                    set = StatusSet::default();
                }
                (true, codes)
            }
        };
        for range in codes.split(|byte| *byte == b',') {
            let mut ends = range.splitn(2, |byte| *byte == b'-');
            let code = |bytes: &[u8]| value::integer(bytes, 100, 599).ok().map(|code| code as u16);
            let first = ends.next().and_then(code);
            let last = ends.next().map_or(first, code);
            let (Some(first), Some(last)) = (first, last) else {
                let message = format!(
                    "'{}' expects statuses from 100 to 599, found '{}'",
                    line.keyword.name,
                    word.shown()
                );
                return b.found.alert(word.pos(), message);
            };
            set.change(first..=last, add);
        }
    }
    let set = Some(line.set(set));
    if errors { b.config.global.http_err_codes = set } else { b.config.global.http_fail_codes = set }
}
