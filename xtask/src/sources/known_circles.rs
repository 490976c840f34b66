//! Circles among the modules of a crate that stay, each with the reason. Modules that are parts of one
//! structure may know each other, but no module may join a circle that is listed here.

/// A circle that stays: the package, and all modules that are in the circle, in order.
pub(super) struct Known {
    pub(super) package: &'static str,
    pub(super) modules: &'static [&'static str],
}

pub(super) const KNOWN: &[Known] = &[
    known(
        "manylane-balance",
        &[
            "algorithm",
            "balancer",
            "by_key",
            "ewma",
            "first",
            "lane",
            "leastconn",
            "maglev",
            "random",
            "ring",
            "roundrobin",
            "snapshot",
            "sticky",
            "turns",
        ],
        "each algorithm is a row of one table, and works on what the balancer keeps for it",
    ),
    known(
        "manylane-balance",
        &["server_limit", "servers", "state"],
        "limits are counted for all servers, and the state of each server has its own limit",
    ),
    known("manylane-bench", &["cases", "run"], "a case says how it is run, and a run whose variant it is"),
    known(
        "manylane-bench",
        &["cli", "evidence", "heavy", "peers", "scale"],
        "the command line starts each command, which takes its arguments from there",
    ),
    known(
        "manylane-buf",
        &[
            "chain", "cluster", "cursor", "deque", "error", "external", "header", "model", "parcel",
            "segment", "store",
        ],
        "views of one memory: clusters become segments, segments become chains, and back",
    ),
    known(
        "manylane-config",
        &["build", "cond", "diag", "lex", "read", "source", "table", "tree", "value"],
        "a row of the table of keywords has its reader, and readers look rows up",
    ),
    known(
        "manylane-control",
        &["commands", "serve", "session"],
        "a session runs commands, and some commands change their session",
    ),
    known(
        "manylane-expr",
        &[
            "acl", "args", "cast", "clock", "convert", "env", "fetch", "format", "names", "needs", "pattern",
            "program", "scratch", "variable",
        ],
        "one language: what samples are made of is compiled by names, and names are of samples",
    ),
    known(
        "manylane-h2",
        &["conn", "event", "frame", "head", "limits", "violation"],
        "one state machine, the bounds of its parts, and what broke them",
    ),
    known(
        "manylane-io",
        &[
            "choice", "core", "datagram", "driver", "epoll", "listener", "pieces", "pipe", "receive",
            "stream", "uring", "waiter",
        ],
        "the drivers and their sources stand on the core, which calls the driver by name",
    ),
    known(
        "manylane-lanes",
        &["changes", "checks", "conn_slot", "idle", "local", "shared_conns", "streams"],
        "a lane's state has these parts, and each of them reaches the others through it",
    ),
    known(
        "manylane-lanes",
        &["datagrams", "listen"],
        "sockets for datagrams are bound among the others, and refused in the same sentences",
    ),
    known(
        "manylane-local",
        &["backoff", "error", "flight", "linkage", "locks", "name", "pcb", "rcv", "socket", "wait"],
        "two sockets hold each other, and one lock order is for all that they hold",
    ),
    known(
        "manylane-logs",
        &["datagrams", "sender"],
        "the sender has a link of either kind, and a link is retried as the sender says",
    ),
    known(
        "manylane-logs",
        &["descriptor", "message", "outbox", "ring", "target"],
        "a target is one of several kinds, and each kind takes batches of targets",
    ),
    known(
        "manylane",
        &["arguments", "environment", "master", "version"],
        "the master and its worker tell each other by arguments and the environment who they are",
    ),
    known(
        "manylane",
        &["reload", "start", "supervise"],
        "a process starts as it reloads, and the supervisor asks for both",
    ),
    known(
        "manylane-net",
        &["adopt", "hand_over", "listen"],
        "a socket that is taken over becomes a listener, as one that is bound here",
    ),
    known("manylane-net", &["connection", "tls"], "a connection may be TLS, and TLS is over a connection"),
    known(
        "manylane-pool",
        &["error", "options"],
        "errors state the bounds of the options that they are about",
    ),
    known(
        "manylane-pool",
        &["inner", "report", "reserve"],
        "pools are listed for reports, and the reserve empties what is listed",
    ),
    known(
        "manylane-rules",
        &["context", "log"],
        "expressions read the record of a stream, whose line is made of expressions",
    ),
    known("manylane-sched", &["busy", "lane"], "a lane looks around before it sleeps, in rounds of its own"),
    known(
        "manylane-sched",
        &["here", "home", "isolate", "poller", "queue", "report", "slot", "timer", "waker"],
        "a lane is one structure, and its parts reach each other through it",
    ),
    known(
        "manylane-sched",
        &["kind", "profile"],
        "a kind of task has its profile, and profiles are listed by kind",
    ),
    known(
        "manylane-sim",
        &["arena", "machine"],
        "the machine runs on memory of the arena, which charges the machine for it",
    ),
    known(
        "manylane-stats",
        &["mem", "registry"],
        "a memory type enters the registry at its first use, and the registry lists them",
    ),
    known(
        "manylane-stick",
        &["entry", "rate", "share", "table"],
        "an entry is a part of its table, whose share says how both are kept",
    ),
    known(
        "manylane-sync",
        &["arena", "lane", "model"],
        "a lane takes its arena with its number, and models begin both anew",
    ),
    known(
        "manylane-sync",
        &["lock", "per_lane"],
        "locks count by lane, and the table of lanes is made under a lock",
    ),
    known(
        "manylane-tests",
        &["compare", "run"],
        "a run ends with a comparison, and a comparison is of two runs",
    ),
    known(
        "manylane-tls",
        &[
            "certificate",
            "choose",
            "client",
            "generate",
            "line_options",
            "ocsp_update",
            "server",
            "store",
            "watch",
        ],
        "the store keeps contexts of both roles, which ask it for files, and renews what certificates show; \
         options of a line change the settings of a listener",
    ),
];

const fn known(package: &'static str, modules: &'static [&'static str], _reason: &'static str) -> Known {
    Known { package, modules }
}
