//! Options of `bind` and `stats socket` lines.

use super::context::BIND;
use super::tls::TlsOptions;
use super::{Keyword, choice, flag, int, own, text, time};
use crate::build::{Builder, Line, parse};
use crate::lex::Word;
use crate::tree::Set;
use std::time::Duration;

const MANY: i64 = i32::MAX as i64;

/// Each line makes a field of the options, a row of the table and the code that stores the value.
macro_rules! options {
    (values { $($field:ident: $type:ty = $arg:expr, $get:ident, $name:literal, $help:literal;)* }
     flags { $($flag:ident, $on:literal, $flag_help:literal;)* }) => {
        /// Options of one `bind` line. `None` means not given; the table shows the default, if there is one.
        #[derive(Clone, Debug, Default)]
        pub struct BindOptions {
            $(#[doc = concat!("`", $name, "`: ", $help, ".")]
            pub $field: Option<Set<$type>>,)*
            $(#[doc = concat!("`", $on, "`: ", $flag_help, ".")]
            pub $flag: Option<Set<bool>>,)*
            /// `mode`: access rights of a unix socket's file.
            pub mode: Option<Set<u32>>,
            /// `thread`: which lanes accept, as written. The sets of all words are united; no word means all
            /// lanes.
            pub thread: Vec<Word>,
            /// `ssl` and other TLS options.
            pub tls: TlsOptions,
        }

        fn built() -> Vec<Keyword> {
            let mut rows = vec![$(super::args($name, BIND, [$arg], $help).built(|b, line| {
                b.bind.$field = Some(line.argument(line.$get(0) as $type));
            })),*];
            rows.extend([$(flag($on, BIND, $flag_help).built(|b, line| b.bind.$flag =
                Some(line.set(true)))),*]);
            rows
        }
    };
}

options! {
    values {
    accept_netscaler_cip: u32 = int("number", 0, u32::MAX as i64), int, "accept-netscaler-cip", "connections \
        begin with NetScaler's copy of the client's headers, behind this number";
    backlog: u32 = int("number", 0, MANY), int, "backlog", "connections that the system keeps until they are \
        accepted";
    id: u32 = int("number", 1, MANY), int, "id", "the listener's number";
    idle_ping: Duration = time("delay"), time, "idle-ping", "a connection of HTTP/2 that had no request for \
        so long is asked whether it lives, and closed if it has not answered after as long again";
    guid_prefix: Word = text("prefix"), word, "guid-prefix", "the listeners of the line \
        have the GUIDs PREFIX-0, PREFIX-1 and so on";
    interface: Word = text("name"), word, "interface", "listens on this network interface only";
    label: Word = text("name"), word, "label", "a name that statistics group listeners by";
    expose_fd: &'static str = choice("what", &["listeners"]), choice, "expose-fd", "clients of a run-time \
        socket may take over listening sockets";
    level: &'static str = choice("level", &["user", "operator", "admin"]), choice, "level", "what run-time \
        clients may do";
    maxconn: u32 = int("number", 0, MANY), int, "maxconn", "connections of the listener at once";
    mss: i64 = int("bytes", -65_535, 65_535), int, "mss", "largest TCP segment; negative for so much less \
        than the route allows";
    name: Word = text("name"), word, "name", "the listener's name in statistics";
    namespace: Word = text("name"), word, "namespace", "the network namespace that is listened in";
    nice: i64 = int("nice", -1024, 1024), int, "nice", "priority of the listener's tasks; lower is earlier";
    severity_output: &'static str = choice("form", &["none", "number", "string"]), choice, "severity-output",
        "how severities stand before run-time answers";
    shards: Word = text("number"), word, "shards", "sockets that share the address: a number, by-thread or \
        by-group";
    tcp_md5sig: Word = text("key"), word, "tcp-md5sig", "all TCP segments are signed with this key of 1 to \
        80 bytes (RFC 2385), and others are thrown away";
    tcp_ut: Duration = time("delay"), time, "tcp-ut", "time after which unacknowledged bytes end a \
        connection";
    user: Word = text("name"), word, "user", "owner of a unix socket's file, by name";
    uid: u32 = int("number", 0, u32::MAX as i64), int, "uid", "owner of a unix socket's file, by number";
    group: Word = text("name"), word, "group", "group of a unix socket's file, by name";
    gid: u32 = int("number", 0, u32::MAX as i64), int, "gid", "group of a unix socket's file, by number";
    proto: &'static str = choice("protocol", &["h1", "h2", "none"]), choice, "proto", "the protocol that is \
        spoken, whatever is negotiated";
    cc: Word = text("name"), word, "cc", "congestion control";
    }
    flags {
    accept_proxy, "accept-proxy", "connections begin with the PROXY protocol";
    defer_accept, "defer-accept", "a connection is accepted when it has sent a byte";
    tfo, "tfo", "TCP Fast Open";
    transparent, "transparent", "addresses that are not the host's are listened on";
    v4v6, "v4v6", "an IPv6 address takes IPv4, too";
    v6only, "v6only", "an IPv6 address takes no IPv4";
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = built();
    let quic = "QUIC is not built yet";
    rows.extend([
        own("mode", BIND, "<octal>", 1, "access rights of a unix socket's file").built(|b, line| {
            if let Some(mode) = parse::octal(b, line, 0) {
                b.bind.mode = Some(line.set(mode));
            }
        }),
        own("thread", BIND, "[<group>/]<lanes>", 1, "which lanes accept")
            .adds()
            .built(|b, line| b.bind.thread.push(line.word(0))),
        own("process", BIND, "all|odd|even|1[/<lanes>]", 1, "older form of thread").adds().built(process),
        own("tcp-ss", BIND, "<number>", 1, "the first packet is kept")
            .refused("HAProxy 3.2 does not have it either"),
        own("quic-cc-algo", BIND, "<name>", 1, "congestion control of QUIC").refused(quic),
        own("quic-force-retry", BIND, "", 0, "clients must prove their address").refused(quic),
        own("quic-socket", BIND, "<kind>", 1, "whether each connection has a socket").refused(quic),
        own("nbconn", BIND, "<number>", 1, "connections that a reverse listener keeps")
            .refused("reverse HTTP is not built"),
    ]);
    rows.extend(super::tls::bind_rows());
    rows
}

/// `process`: numbers of HAProxy processes, which no longer exist. There is one process with the odd number
/// 1, so `even` is an error.
fn process(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = &line.words[0];
    let slash = word.bytes().iter().position(|byte| *byte == b'/');
    let end = slash.unwrap_or(word.bytes().len());
    if !matches!(&word.bytes()[..end], b"all" | b"odd" | b"even" | b"1" | b"1-" | b"1-1") {
        let message = format!(
            "'process' : '{}' is not 1, the only process; use 'thread' to say which lanes accept",
            word.slice(0..end).shown()
        );
        return b.found.alert(word.pos(), message);
    }
    let advice = match slash {
        Some(slash) => {
            let lanes = word.slice(slash + 1..word.bytes().len());
            let advice = format!("use 'thread {}' instead", lanes.shown());
            b.bind.thread.push(lanes);
            advice
        }
        None => "there is one process, so leave it out".to_owned(),
    };
    b.found.warning(line.pos(), format!("'process {}' is deprecated: {advice}", word.shown()));
}

pub(super) fn stats_socket(b: &mut Builder<'_>, line: &Line<'_>) {
    if !b.has_room_for_bind(line.pos()) {
        return;
    }
    let bind = parse::bind_line(b, line);
    b.config.global.stats_sockets.push(bind);
}

/// `unix-bind`: defaults of all unix listeners.
pub(super) fn unix_bind(b: &mut Builder<'_>, line: &Line<'_>) {
    let mut common = crate::tree::UnixBind::default();
    let mut at = 0;
    while let Some(word) = line.words.get(at) {
        const KNOWN: [&str; 6] = ["prefix", "mode", "user", "uid", "group", "gid"];
        if !KNOWN.iter().any(|known| *word == **known) {
            let message = manylane_expr::none_of("unix-bind", KNOWN, word.bytes());
            return b.found.alert(word.pos(), message);
        }
        let Some(value) = line.words.get(at + 1).cloned() else {
            return b
                .found
                .alert(word.pos(), format!("'unix-bind' : '{}' expects a value, found none", word.shown()));
        };
        let number =
            |b: &mut Builder<'_>| line.own_int(b, at + 1, 0, i64::from(u32::MAX)).map(|number| number as u32);
        match word.bytes() {
            b"prefix" => common.prefix = Some(value),
            b"mode" => common.mode = parse::octal(b, line, at + 1),
            b"user" => common.user = Some(value),
            b"uid" => common.uid = number(b),
            b"group" => common.group = Some(value),
            _ => common.gid = number(b),
        }
        at += 2;
    }
    b.config.global.unix_bind = Some(line.set(common));
}
