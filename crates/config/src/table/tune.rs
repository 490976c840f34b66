//! `tune.*`: sizes and counts of the process. One line defines a setting: field, type, argument, name,
//! default and help.

use super::context::GLOBAL;
use super::{Keyword, args, choice, flag, int, own, size, switch, time};
use crate::tree::Set;
use std::time::Duration;

/// Each line makes a field of [`Tune`], a row of the table and the code that stores the value.
macro_rules! tune {
    ($($field:ident: $type:ty = $arg:expr, $get:ident, $name:literal, $default:literal, $help:literal;)*) => {
        /// The `tune.*` settings that were given. `None` means not given; the table shows the default.
        #[derive(Clone, Debug, Default)]
        pub struct Tune {
            $(#[doc = concat!("`", $name, "`: ", $help, ". Default: ", $default, ".")]
            pub $field: Option<Set<$type>>,)*
        }

        fn built() -> Vec<Keyword> {
            vec![$(args($name, GLOBAL, [$arg], $help).default($default).built(|b, line| {
                b.config.global.tune.$field = Some(line.set(line.$get(0) as $type));
            })),*]
        }
    };
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const MANY: i64 = i32::MAX as i64;

tune! {
    buffers_limit: u64 = int("number", 0, MANY), int, "tune.buffers.limit", "0", "bounds the buffers of the \
        process; 0 for no bound";
    buffers_reserve: u64 = int("number", 0, MANY), int, "tune.buffers.reserve", "4", "buffers of each lane \
        that 'tune.buffers.limit' leaves to messages that have begun";
    bufsize: u64 = size("bytes", K, 64 * M), size, "tune.bufsize", "16k", "bytes that are kept of a message \
        at most: of its head, of its body for rules and retries, of the contents of TCP";
    bufsize_large: u64 = size("bytes", 0, 64 * M), size, "tune.bufsize.large", "0", "bytes of a large \
        buffer; 0 for none";
    bufsize_small: u64 = size("bytes", 0, 64 * M), size, "tune.bufsize.small", "1k", "bytes of a buffer for \
        short texts";
    events_max_at_once: u64 = int("number", 1, 10_000), int, "tune.events.max-events-at-once", "100",
        "internal events handled in one go";
    fail_alloc: u64 = int("percent", 0, 100), int, "tune.fail-alloc", "0", "share of allocations that fail, \
        for tests";
    glitches_kill_cpu: u64 = int("percent", 0, 100), int, "tune.glitches.kill.cpu-usage", "0", "processor \
        load from which connections with too many protocol glitches are closed";
    h1_zero_copy_recv: bool = switch("state"), switch, "tune.h1.zero-copy-fwd-recv", "on", "HTTP/1 bytes are \
        received without copying";
    h1_zero_copy_send: bool = switch("state"), switch, "tune.h1.zero-copy-fwd-send", "on", "HTTP/1 bytes are \
        sent without copying";
    h1_be_glitches: u64 = int("number", 0, MANY), int, "tune.h1.be.glitches-threshold", "0", "glitches after \
        which a server's connection is closed; 0 for never";
    h1_fe_glitches: u64 = int("number", 0, MANY), int, "tune.h1.fe.glitches-threshold", "0", "glitches after \
        which a client's connection is closed; 0 for never";
    h2_be_glitches: u64 = int("number", 0, MANY), int, "tune.h2.be.glitches-threshold", "0", "glitches after \
        which a server's HTTP/2 connection is closed; 0 for never";
    h2_be_window: u64 = int("bytes", 0, MANY), int, "tune.h2.be.initial-window-size", "0", "bytes that a \
        server may send on an HTTP/2 stream before they go on; 0 for what 'tune.h2.initial-window-size' says";
    h2_be_streams: u64 = int("number", 0, MANY), int, "tune.h2.be.max-concurrent-streams", "0", "streams \
        that a server's HTTP/2 connection has at a time; 0 for what 'tune.h2.max-concurrent-streams' says";
    h2_be_frames_at_once: u64 = int("number", 0, MANY), int, "tune.h2.be.max-frames-at-once", "0", "frames \
        of a server's HTTP/2 connection handled in one go before others get their turn; 0 for no bound";
    h2_be_rxbuf: u64 = size("bytes", 0, MANY as u64), size, "tune.h2.be.rxbuf", "0", "bytes that all \
        streams of a server's HTTP/2 connection may have sent before they go on, at least 65535; 0 for twice \
        what the windows of its streams add up to, with 'tune.h2.be.max-concurrent-streams' of them";
    h2_fe_glitches: u64 = int("number", 0, MANY), int, "tune.h2.fe.glitches-threshold", "0", "glitches after \
        which a client's HTTP/2 connection is closed; 0 for never";
    h2_fe_window: u64 = int("bytes", 0, MANY), int, "tune.h2.fe.initial-window-size", "0", "bytes that a \
        client may send on an HTTP/2 stream before they go on; 0 for what 'tune.h2.initial-window-size' says";
    h2_fe_streams: u64 = int("number", 0, MANY), int, "tune.h2.fe.max-concurrent-streams", "0", "streams \
        that a client's HTTP/2 connection may have at a time; 0 for what 'tune.h2.max-concurrent-streams' \
        says";
    h2_fe_frames_at_once: u64 = int("number", 0, MANY), int, "tune.h2.fe.max-frames-at-once", "0", "frames \
        of a client's HTTP/2 connection handled in one go before others get their turn; 0 for no bound";
    h2_fe_resets_at_once: u64 = int("number", 0, MANY), int, "tune.h2.fe.max-rst-at-once", "0", "stream \
        resets of a client's HTTP/2 connection handled in one go before others get their turn, those for \
        the client's faults included; 0 for 16";
    h2_fe_total_streams: u64 = int("number", 0, MANY), int, "tune.h2.fe.max-total-streams", "0", "streams \
        after which a client is asked to make another HTTP/2 connection; 0 for no bound";
    h2_fe_rxbuf: u64 = size("bytes", 0, MANY as u64), size, "tune.h2.fe.rxbuf", "1600k", "bytes that all \
        streams of a client's HTTP/2 connection may have sent before they go on, at least 65535; 0 for the \
        default";
    h2_header_table: u64 = int("bytes", 4096, 65_536), int, "tune.h2.header-table-size", "4096", "bytes of \
        the HPACK table that a peer may use";
    h2_window: u64 = int("bytes", 0, MANY), int, "tune.h2.initial-window-size", "65535", "bytes that a peer \
        may send on an HTTP/2 stream before they go on; 0 for the default";
    h2_log_errors: &'static str = choice("errors", &["none", "connection", "stream"]), choice,
        "tune.h2.log-errors", "stream", "HTTP/2 errors of clients that are logged where no request is: none, \
            those that end the connection, or those that end a stream, too";
    h2_streams: u64 = int("number", 1, MANY), int, "tune.h2.max-concurrent-streams", "100", "streams of an \
        HTTP/2 connection at a time";
    h2_max_frame: u64 = int("bytes", 16_384, 16_777_215), int, "tune.h2.max-frame-size", "tune.bufsize",
        "bytes of an HTTP/2 frame that a peer may send";
    h2_zero_copy_send: bool = switch("state"), switch, "tune.h2.zero-copy-fwd-send", "on", "HTTP/2 bytes are \
        sent without copying";
    http_cookielen: u64 = int("bytes", 1, 65_535), int, "tune.http.cookielen", "63", "bytes of a captured \
        cookie";
    http_logurilen: u64 = int("bytes", 1, 65_535), int, "tune.http.logurilen", "1023", "bytes of a request's \
        first line in log lines";
    http_maxhdr: u64 = int("number", 1, 32_767), int, "tune.http.maxhdr", "101", "header fields of a message";
    idle_pool_shared: &'static str = choice("state", &["on", "off", "full", "auto"]), choice,
        "tune.idle-pool.shared", "on", "lanes may take idle server connections of other lanes";
    idletimer: Duration = time("delay"), time, "tune.idletimer", "1000", "time without data to send after \
        which a connection with TLS begins with small records again ('tune.ssl.maxrecord'); 0 for never";
    listener_default_shards: &'static str = choice("mode", &["by-process", "by-thread", "by-group"]), choice,
        "tune.listener.default-shards", "by-process",
            "sockets that share the address of a bind line without shards: one, one a lane or one a group";
    listener_multi_queue: &'static str = choice("state", &["on", "off", "fair"]), choice,
        "tune.listener.multi-queue", "on", "accepted connections are given to the least loaded lane";
    max_checks_per_thread: u64 = int("number", 0, MANY), int, "tune.max-checks-per-thread", "0", "health \
        checks that a lane runs at once; 0 for no bound";
    max_rules_at_once: u64 = int("number", 0, MANY), int, "tune.max-rules-at-once", "50", "rules evaluated \
        in one go before others get their turn";
    maxaccept: i64 = int("number", -1, MANY), int, "tune.maxaccept", "4", "connections that a lane accepts \
        in one go, 4096 at most; -1 for that many";
    maxpollevents: u64 = int("number", 1, 1_000_000), int, "tune.maxpollevents", "200", "events taken from \
        the system in one go";
    maxrewrite: u64 = size("bytes", 0, 64 * M), size, "tune.maxrewrite", "1024", "bytes of a buffer kept \
        free for edits of a head";
    notsent_lowat_client: u64 = size("bytes", 0, G), size, "tune.notsent-lowat.client", "system's", "bytes \
        not sent up to which a client's socket can be written";
    notsent_lowat_server: u64 = size("bytes", 0, G), size, "tune.notsent-lowat.server", "system's", "bytes \
        not sent up to which a server's socket can be written";
    pattern_cache_size: u64 = int("number", 0, MANY), int, "tune.pattern.cache-size", "10000", "entries in \
        the cache of pattern look-ups; 0 for none";
    pipesize: u64 = size("bytes", 0, G), size, "tune.pipesize", "system's", "bytes of a pipe for splicing";
    pool_high_fd_ratio: u64 = int("percent", 1, 100), int, "tune.pool-high-fd-ratio", "25", "share of the \
        descriptors that the process may open: with more in use an idle connection is closed for each new \
        one; idle clients do not count, up to half of the descriptors";
    pool_low_fd_ratio: u64 = int("percent", 1, 100), int, "tune.pool-low-fd-ratio", "20", "share of the \
        descriptors that the process may open: with more in use no connection is kept idle; idle clients do \
        not count, up to half of the descriptors";
    rcvbuf_client: u64 = size("bytes", 0, G), size, "tune.rcvbuf.client", "system's", "bytes of the receive \
        buffer of client sockets";
    rcvbuf_server: u64 = size("bytes", 0, G), size, "tune.rcvbuf.server", "system's", "bytes of the receive \
        buffer of server sockets";
    rcvbuf_backend: u64 = size("bytes", 0, G), size, "tune.rcvbuf.backend", "system's", "bytes of the \
        receive buffer of datagram sockets towards servers";
    rcvbuf_frontend: u64 = size("bytes", 0, G), size, "tune.rcvbuf.frontend", "system's", "bytes of the \
        receive buffer of datagram sockets towards clients";
    recv_enough: u64 = size("bytes", 0, G), size, "tune.recv_enough", "10136", "bytes after which a receive \
        is not tried again at once; 0 for always";
    renice_runtime: i64 = int("nice", -20, 19), int, "tune.renice.runtime", "unchanged", "the process's nice \
        value while it runs";
    renice_startup: i64 = int("nice", -20, 19), int, "tune.renice.startup", "unchanged", "the process's nice \
        value while it starts";
    runqueue_depth: u64 = int("number", 1, 10_000), int, "tune.runqueue-depth", "40", "tasks that a lane \
        runs before it polls (R-F4)";
    sched_low_latency: bool = switch("state"), switch, "tune.sched.low-latency", "off", "the scheduler \
        prefers response time to throughput (R-F3)";
    sndbuf_client: u64 = size("bytes", 0, G), size, "tune.sndbuf.client", "system's", "bytes of the send \
        buffer of client sockets";
    sndbuf_server: u64 = size("bytes", 0, G), size, "tune.sndbuf.server", "system's", "bytes of the send \
        buffer of server sockets";
    sndbuf_backend: u64 = size("bytes", 0, G), size, "tune.sndbuf.backend", "system's", "bytes of the send \
        buffer of datagram sockets towards servers";
    sndbuf_frontend: u64 = size("bytes", 0, G), size, "tune.sndbuf.frontend", "system's", "bytes of the send \
        buffer of datagram sockets towards clients";
    stick_counters: u64 = int("number", 0, 15), int, "tune.stick-counters", "3", "stick counters that a \
        stream can have";
    takeover_other_tg: &'static str = choice("state", &["none", "restricted", "full"]), choice,
        "tune.takeover-other-tg-connections", "restricted",
            "idle connections may be taken from other groups of lanes";
    vars_check: u64 = size("bytes", 0, G), size, "tune.vars.check-max-size", "0", "bytes of variables of a \
        health check; 0 for no bound";
    vars_global: u64 = size("bytes", 0, G), size, "tune.vars.global-max-size", "0", "bytes of all variables; \
        0 for no bound";
    vars_proc: u64 = size("bytes", 0, G), size, "tune.vars.proc-max-size", "0", "bytes of variables of the \
        process; 0 for no bound";
    vars_reqres: u64 = size("bytes", 0, G), size, "tune.vars.reqres-max-size", "0", "bytes of variables of a \
        request or response; 0 for no bound";
    vars_sess: u64 = size("bytes", 0, G), size, "tune.vars.sess-max-size", "0", "bytes of variables of a \
        session; 0 for no bound";
    vars_txn: u64 = size("bytes", 0, G), size, "tune.vars.txn-max-size", "0", "bytes of variables of a \
        transaction; 0 for no bound";
}

/// Rows of `tune.*`. The refused ones belong to features that are not built, or that this program omits by
/// design.
pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = built();
    let edge = "descriptors are always registered edge-triggered";
    rows.push(
        args("tune.fd.edge-triggered", GLOBAL, [switch("state")], "edge-triggered polling")
            .default("on")
            .idle(edge),
    );
    for (name, help) in [
        ("tune.comp.maxlevel", "highest level of compression"),
        ("tune.zlib.memlevel", "memory of a zlib stream"),
        ("tune.zlib.windowsize", "window of a zlib stream"),
    ] {
        rows.push(
            args(name, GLOBAL, [int("level", 1, 15)], help)
                .idle("compression is not built yet, and nothing else heeds it; the line may stay"),
        );
    }
    for (name, help) in [
        ("tune.lua.bool-sample-conversion", "how Lua sees boolean samples"),
        ("tune.lua.burst-timeout", "time that Lua code may run without a pause"),
        ("tune.lua.forced-yield", "Lua instructions between forced pauses"),
        ("tune.lua.log.loggers", "whether Lua's messages go to the loggers"),
        ("tune.lua.log.stderr", "whether Lua's messages go to standard error"),
        ("tune.lua.maxmem", "megabytes of memory for Lua"),
        ("tune.lua.openlibs", "libraries that Lua code may use"),
        ("tune.lua.service-timeout", "time of a Lua service"),
        ("tune.lua.session-timeout", "time of a Lua action"),
        ("tune.lua.task-timeout", "time of a Lua task"),
    ] {
        rows.push(
            own(name, GLOBAL, "<value>", 1, help)
                .idle("Lua is not built yet, and nothing else heeds it; the line may stay"),
        );
    }
    rows.push(
        args(
            "tune.pt.zero-copy-forwarding",
            GLOBAL,
            [switch("state")],
            "bytes of TCP proxies are forwarded without copying",
        )
        .default("on")
        .idle(super::unbuilt::COPIES),
    );
    rows.push(
        own("tune.chksize", GLOBAL, "<bytes>", 1, "bytes that checks keep of an answer")
            .idle("they keep as much as 'tune.bufsize' says"),
    );
    let allocator = "memory comes from lane caches in front of the program's allocator";
    rows.push(
        own("tune.memory.hot-size", GLOBAL, "<bytes>", 1, "bytes that a thread caches").idle(allocator),
    );
    rows.push(
        own("tune.peers.max-updates-at-once", GLOBAL, "<number>", 1, "updates sent to a peer in one go")
            .idle("peers are sent as much at once as the driver takes; the line may stay"),
    );
    rows.push(
        flag("tune.defaults.purge", GLOBAL, "defaults are forgotten once the file is read")
            .idle("they always are: no proxy is added at run time"),
    );
    rows.push(
        own(
            "tune.applet.zero-copy-forwarding",
            GLOBAL,
            "on|off",
            1,
            "internal services send without copying",
        )
        .idle("internal services always send by reference"),
    );
    rows.push(
        own("tune.ring.queues", GLOBAL, "<number>", 1, "queues of writers in front of a ring")
            .idle("a ring takes the lines of a lane's whole batch at once"),
    );
    rows.push(
        own(
            "tune.epoll.mask-events",
            GLOBAL,
            "<event>[,...]",
            1,
            "events that epoll does not report, for tests",
        )
        .idle("no event is masked here: leave it to tests of HAProxy"),
    );
    for (name, help) in [
        ("tune.quic.be.cc.cubic.min-losses", "losses that count as congestion"),
        ("tune.quic.be.cc.hystart", "gentler slow start"),
        ("tune.quic.be.cc.max-frame-loss", "lost frames after which a connection is closed"),
        ("tune.quic.be.cc.max-win-size", "bytes in flight"),
        ("tune.quic.be.cc.reorder-ratio", "share of packets that may come late"),
        ("tune.quic.be.max-idle-timeout", "idle time of a server's connection"),
        ("tune.quic.be.sec.glitches-threshold", "glitches after which a connection is closed"),
        ("tune.quic.be.stream.data-ratio", "share of the buffer for one stream"),
        ("tune.quic.be.stream.max-concurrent", "streams at once"),
        ("tune.quic.be.stream.rxbuf", "bytes that a stream may buffer"),
        ("tune.quic.be.tx.pacing", "packets are spread over time"),
        ("tune.quic.be.tx.udp-gso", "packets are given to the system in batches"),
        ("tune.quic.cc-hystart", "gentler slow start"),
        ("tune.quic.cc.cubic.min-losses", "losses that count as congestion"),
        ("tune.quic.disable-tx-pacing", "packets are not spread over time"),
        ("tune.quic.disable-udp-gso", "packets are given to the system one by one"),
        ("tune.quic.fe.cc.cubic.min-losses", "losses that count as congestion"),
        ("tune.quic.fe.cc.hystart", "gentler slow start"),
        ("tune.quic.fe.cc.max-frame-loss", "lost frames after which a connection is closed"),
        ("tune.quic.fe.cc.max-win-size", "bytes in flight"),
        ("tune.quic.fe.cc.reorder-ratio", "share of packets that may come late"),
        ("tune.quic.fe.max-idle-timeout", "idle time of a client's connection"),
        ("tune.quic.fe.sec.glitches-threshold", "glitches after which a connection is closed"),
        (
            "tune.quic.fe.sec.retry-threshold",
            "half-open connections from which clients must prove their address",
        ),
        ("tune.quic.fe.sock-per-conn", "whether each connection has a socket of its own"),
        ("tune.quic.fe.stream.data-ratio", "share of the buffer for one stream"),
        ("tune.quic.fe.stream.max-concurrent", "streams at once"),
        ("tune.quic.fe.stream.max-total", "streams after which a connection is closed"),
        ("tune.quic.fe.stream.rxbuf", "bytes that a stream may buffer"),
        ("tune.quic.fe.tx.pacing", "packets are spread over time"),
        ("tune.quic.fe.tx.udp-gso", "packets are given to the system in batches"),
        ("tune.quic.frontend.conn-tx-buffers.limit", "buffers of a connection"),
        ("tune.quic.frontend.default-max-window-size", "bytes in flight"),
        ("tune.quic.frontend.glitches-threshold", "glitches after which a connection is closed"),
        ("tune.quic.frontend.max-data-size", "bytes that a connection may buffer"),
        ("tune.quic.frontend.max-idle-timeout", "idle time of a client's connection"),
        ("tune.quic.frontend.max-streams-bidi", "streams at once"),
        ("tune.quic.frontend.max-tx-mem", "bytes of all send buffers"),
        ("tune.quic.frontend.stream-data-ratio", "share of the buffer for one stream"),
        ("tune.quic.listen", "whether QUIC listens"),
        ("tune.quic.max-frame-loss", "lost frames after which a connection is closed"),
        ("tune.quic.mem.tx-max", "bytes of all send buffers"),
        ("tune.quic.reorder-ratio", "share of packets that may come late"),
        ("tune.quic.retry-threshold", "half-open connections from which clients must prove their address"),
        ("tune.quic.socket-owner", "whether each connection has a socket of its own"),
        ("tune.quic.zero-copy-fwd-send", "bytes are sent without copying"),
    ] {
        rows.push(
            own(name, GLOBAL, "<value>", 1, help)
                .idle("QUIC is not built yet, and nothing else heeds it; the line may stay"),
        );
    }
    rows
}
