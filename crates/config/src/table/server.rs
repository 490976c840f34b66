//! Options of `server`, `server-template` and `default-server` lines.

use super::context::SERVER;
use super::tls::TlsOptions;
use super::{Keyword, choice, flag, int, interval, own, text, time};
use crate::build::parse;
use crate::lex::Word;
use crate::tree::{ProxyHeader, Set, Source};
use manylane_net::Address;
use std::time::Duration;

/// Why newer versions' sets of settings of servers are refused.
const SETS: &str = "servers have no named sets of settings; HAProxy 3.2 does not have it either";

const MANY: i64 = i32::MAX as i64;

macro_rules! options {
    (values { $($field:ident: $type:ty = $arg:expr, $get:ident, $name:literal, $help:literal;)* }
     flags { $($flag:ident, $on:literal, $off:literal, $flag_help:literal;)* }) => {
        /// Options of one server, merged with those of `default-server`. `None` means not given.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ServerOptions {
            $(#[doc = concat!("`", $name, "`: ", $help, ".")]
            pub $field: Option<Set<$type>>,)*
            $(#[doc = concat!("`", $on, "` and `", $off, "`: ", $flag_help, ".")]
            pub $flag: Option<Set<bool>>,)*
            /// `send-proxy` and its variants.
            pub send_proxy: Option<Set<ProxyHeader>>,
            /// `proxy-v2-options`: extra information in a PROXY header.
            pub proxy_v2_options: Option<Set<Word>>,
            /// `set-proxy-v2-tlv-fmt(id)`: TLVs of a PROXY header with their types and log formats.
            pub proxy_tlvs: Vec<(u8, Word)>,
            /// `source`: the source address of connections to the server.
            pub source: Option<Set<Source>>,
            /// `socks4`: the SOCKS4 proxy that connects to the server.
            pub socks4: Option<Set<Address>>,
            /// `check-via-socks4`: health checks go through that proxy, too.
            pub check_via_socks4: Option<Set<bool>>,
            /// `strict-maxconn`: idle connections count for `maxconn`.
            pub strict_maxconn: Option<Set<bool>>,
            /// `ssl` and other TLS options.
            pub tls: TlsOptions,
        }

        fn built() -> Vec<Keyword> {
            let mut rows = vec![$(super::args($name, SERVER, [$arg], $help).built(|b, line| {
                b.server.$field = Some(line.argument(line.$get(0) as $type));
            })),*];
            $(rows.push(flag($on, SERVER, $flag_help).built(|b, line| b.server.$flag = Some(line.set(true))));
            rows.push(flag($off, SERVER, concat!("undoes ", $on)).built(|b, line| b.server.$flag =
                Some(line.set(false))));)*
            rows
        }
    };
}

options! {
    values {
    check_proto: &'static str = choice("protocol", &["h1", "h2", "none"]), choice, "check-proto", "the \
        protocol that checks speak";
    cookie: Word = text("value"), word, "cookie", "the server's value of the proxy's cookie";
    error_limit: u32 = int("number", 1, MANY), int, "error-limit", "errors of live traffic after which \
        on-error acts";
    guid: Word = text("name"), word, "guid", "a name that nothing else in the process has";
    hash_key: &'static str = choice("key", &["id", "addr", "addr-port", "guid"]), choice, "hash-key", "what \
        a consistent hash knows the server by";
    id: u32 = int("number", 1, MANY), int, "id", "the server's number";
    healthcheck: Word = text("name"), word, "healthcheck", "the 'healthcheck' section that says how the \
        server is checked, in place of its backend";
    init_addr: Word = text("method[,...]"), word, "init-addr", "how a name is resolved at the start: last, \
        libc, none or an address, in order";
    idle_ping: Duration = time("delay"), time, "idle-ping", "a connection of HTTP/2 that had no request for \
        so long is asked whether it lives, and closed if it has not answered after as long again";
    init_state: &'static str = choice("state", &["fully-up", "up", "down", "fully-down"]), choice,
        "init-state", "the state that the server begins in";
    log_bufsize: u32 = int("bytes", 0, MANY), int, "log-bufsize", "bytes of log lines that wait for a server \
        of a log backend, on each lane";
    log_proto: &'static str = choice("form", &["legacy", "octet-count"]), choice, "log-proto", "how log \
        lines are framed on a stream";
    max_reuse: i64 = int("number", -1, MANY), int, "max-reuse", "requests that a connection carries after \
        its first";
    maxconn: u32 = int("number", 0, MANY), int, "maxconn", "connections or requests of the server at once; 0 \
        for no bound";
    maxqueue: u32 = int("number", 0, MANY), int, "maxqueue", "requests that may wait for the server; 0 for \
        no bound";
    minconn: u32 = int("number", 0, MANY), int, "minconn", "maxconn while the backend is hardly loaded";
    namespace: Word = text("name"), word, "namespace", "the network namespace of connections; * for the \
        client's";
    observe: &'static str = choice("layer", &["layer4", "layer7"]), choice, "observe", "errors of live \
        traffic count as failed checks";
    on_error: &'static str = choice("action", &["fastinter", "fail-check", "sudden-death", "mark-down"]),
        choice, "on-error", "what too many errors of live traffic do";
    on_marked_down: &'static str = choice("action", &["shutdown-sessions"]), choice, "on-marked-down", "what \
        happens to sessions when the server goes down";
    on_marked_up: &'static str = choice("action", &["shutdown-backup-sessions"]), choice, "on-marked-up",
        "what happens to sessions on backup servers when the server comes up";
    pool_conn_name: Word = text("expression"), word, "pool-conn-name", "what idle connections are told apart \
        by";
    pool_low_conn: u32 = int("number", 0, MANY), int, "pool-low-conn", "idle connections below which other \
        lanes' are not taken";
    pool_max_conn: i64 = int("number", -1, MANY), int, "pool-max-conn", "idle connections that are kept; -1 \
        for no bound";
    pool_purge_delay: Duration = time("delay"), time, "pool-purge-delay", "time between purges of half of \
        the idle connections";
    proto: &'static str = choice("protocol", &["h1", "h2", "none"]), choice, "proto", "the protocol that \
        is spoken";
    redir: Word = text("prefix"), word, "redir", "GET and HEAD requests are redirected to the server with \
        this prefix";
    resolve_net: Word = text("network[,...]"), word, "resolve-net", "networks whose addresses are preferred";
    resolve_opts: Word = text("option[,...]"), word, "resolve-opts", "how answers of name servers are used";
    resolve_prefer: &'static str = choice("family", &["ipv4", "ipv6"]), choice, "resolve-prefer", "the \
        family of addresses that is preferred";
    resolvers: Word = text("section"), word, "resolvers", "the name servers that keep the address up to date";
    shard: u32 = int("number", 0, MANY), int, "shard", "the part of a table that a peer gets";
    slowstart: Duration = time("delay"), time, "slowstart", "time over which a server that came up reaches \
        its weight";
    tcp_md5sig: Word = text("key"), word, "tcp-md5sig", "all TCP segments are signed with this key of 1 to \
        80 bytes (RFC 2385), and others are thrown away";
    tcp_ut: Duration = time("delay"), time, "tcp-ut", "time after which unacknowledged bytes end a \
        connection";
    track: Word = text("server"), word, "track", "the server takes the state of another, server or \
        backend/server";
    weight: u32 = int("weight", 0, 256), int, "weight", "share of the load";
    ws: &'static str = choice("protocol", &["auto", "h1", "h2"]), choice, "ws", "the protocol that carries \
        WebSocket; auto for that of the server, and for HTTP/1 where ALPN offers both";
    cc: Word = text("name"), word, "cc", "congestion control";
    addr: Word = text("address"), word, "addr", "where health checks go, if not where requests go";
    port: u16 = int("port", 1, 65535), int, "port", "the port of health checks, if it is another";
    agent_addr: Word = text("address"), word, "agent-addr", "where the agent is, if not where the server is";
    agent_inter: Duration = interval("delay"), time, "agent-inter", "time between two questions to the \
        agent; 2 s without";
    agent_port: u16 = int("port", 1, 65535), int, "agent-port", "the agent's port";
    agent_send: Word = text("text"), word, "agent-send", "what the agent is sent";
    inter: Duration = interval("delay"), time, "inter", "time between two health checks; 2 s without";
    fastinter: Duration = interval("delay"), time, "fastinter", "inter while the server's state is about to \
        change";
    downinter: Duration = interval("delay"), time, "downinter", "inter while the server is down";
    rise: u32 = int("count", 1, MANY / 2), int, "rise", "good checks in a row that bring a server up; 2 \
        without";
    fall: u32 = int("count", 1, MANY / 2), int, "fall", "failed checks in a row that take a server down; 3 \
        without";
    }
    flags {
    check_reuse_pool, "check-reuse-pool", "no-check-reuse-pool", "checks use idle connections of requests";
    check, "check", "no-check", "the server's health is checked";
    agent_check, "agent-check", "no-agent-check", "an agent beside the server says how it is";
    check_send_proxy, "check-send-proxy", "no-check-send-proxy", "health checks begin with the PROXY \
        protocol";
    backup, "backup", "no-backup", "the server is used when all others are down";
    disabled, "disabled", "enabled", "the server begins in maintenance";
    non_stick, "non-stick", "stick", "the server is not stored in stick tables";
    tfo, "tfo", "no-tfo", "TCP Fast Open";
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = built();
    rows.extend([
        flag("send-proxy", SERVER, "connections begin with the PROXY protocol, version 1")
            .built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::V1))),
        flag("send-proxy-v2", SERVER, "connections begin with the PROXY protocol, version 2")
            .built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::V2))),
        flag("no-send-proxy", SERVER, "undoes send-proxy")
            .built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::None))),
        flag("no-send-proxy-v2", SERVER, "undoes send-proxy-v2")
            .built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::None))),
        own(
            "proxy-v2-options",
            SERVER,
            "<option>[,...]",
            1,
            "what a PROXY header tells beside the addresses",
        )
        .built(parse::proxy_v2_options),
        own("source", SERVER, "<address>[:<port>[-<port>]]", 1, "the address that the server sees")
            .built(parse::server_source),
        own(
            "usesrc",
            SERVER,
            "<address>|client|clientip|hdr_ip(...)",
            1,
            "the source address is somebody else's",
        )
        .built(parse::server_usesrc),
        own("interface", SERVER, "<name>", 1, "the interface that connections leave by")
            .built(parse::server_interface),
        own(
            "set-proxy-v2-tlv-fmt",
            SERVER,
            "(<id>) <format>",
            1,
            "a further field of PROXY headers, from a log format",
        )
        .adds()
        .words(parse::proxy_tlv),
        own("socks4", SERVER, "<address>:<port>", 1, "a SOCKS4 proxy in between, for servers with IPv4")
            .built(parse::server_socks4),
        own("check-via-socks4", SERVER, "", 0, "checks go through the SOCKS4 proxy")
            .built(|b, line| b.server.check_via_socks4 = Some(line.set(true))),
        own("check-pool-conn-name", SERVER, "<name>", 1, "name of the idle connections that checks may use")
            .refused("checks use no idle connections of servers with 'pool-conn-name' yet"),
        own("from", SERVER, "<set>", 1, "where the server's settings begin").refused(SETS),
        own("name", SERVER, "<name>", 1, "the name of a set of settings").refused(SETS),
        own("quic-cc-algo", SERVER, "<name>", 1, "congestion control of QUIC")
            .refused("QUIC is not built yet"),
        own(
            "strict-maxconn",
            SERVER,
            "",
            0,
            "maxconn counts idle connections, too, which are closed for new ones",
        )
        .built(|b, line| b.server.strict_maxconn = Some(line.set(true))),
    ]);
    rows.extend(super::tls::server_rows());
    for (name, header) in [
        ("send-proxy-v2-ssl", ProxyHeader::V2Tls),
        ("send-proxy-v2-ssl-cn", ProxyHeader::V2TlsName),
        ("no-send-proxy-v2-ssl", ProxyHeader::None),
        ("no-send-proxy-v2-ssl-cn", ProxyHeader::None),
    ] {
        let help = match name.strip_prefix("no-") {
            None => "connections begin with the PROXY protocol, version 2, that tells about TLS",
            Some("send-proxy-v2-ssl") => "undoes send-proxy-v2-ssl",
            Some(_) => "undoes send-proxy-v2-ssl-cn",
        };
        let row = flag(name, SERVER, help);
        rows.push(match header {
            ProxyHeader::V2Tls => {
                row.built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::V2Tls)))
            }
            ProxyHeader::V2TlsName => {
                row.built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::V2TlsName)))
            }
            _ => row.built(|b, line| b.server.send_proxy = Some(line.set(ProxyHeader::None))),
        });
    }
    rows
}
