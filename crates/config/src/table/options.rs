//! `option` lines: switches of proxies. `no` turns an option off, `default` restores its default.

use super::context::{DFL, DFLB, DLB, KeywordContexts};
use super::{Keyword, flag, own};
use crate::build::{Builder, Line, Prefix};
use crate::tree::{AddressHeader, ExceptNetwork, FieldSource, Forwarded, LogFormatOption, Set};

/// An `option` that is either on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OptionSwitch(u8);

/// Each line makes a [`OptionSwitch`] and its row.
macro_rules! toggles {
    ($($constant:ident $name:literal $contexts:ident $help:literal;)*) => {
        const TABLE: &[(&str, KeywordContexts, &str)] = &[$((concat!("option ", $name), $contexts, $help)),*];
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)] // the variants number the constants below
        enum Number { $($constant),* }
        impl OptionSwitch {
            $(#[doc = concat!("`option ", $name, "`: ", $help, ".")]
            pub const $constant: Self = Self(Number::$constant as u8);)*
        }
    };
}

toggles! {
    ABORTONCLOSE "abortonclose" DFLB "a request whose client has gone is dropped while it waits";
    UNSAFE_REQUESTS "accept-unsafe-violations-in-http-request" DFL "requests that bend the rules of HTTP are \
        accepted where that is known to be dangerous";
    UNSAFE_RESPONSES "accept-unsafe-violations-in-http-response" DLB "responses that bend the rules of HTTP \
        are accepted where that is known to be dangerous";
    ALLBACKUPS "allbackups" DLB "all backup servers share the load, not the first only";
    CHECKCACHE "checkcache" DLB "cacheable responses that set a cookie are refused";
    CLITCPKA "clitcpka" DFL "TCP keep-alive packets towards clients";
    CONTSTATS "contstats" DFL "counters of long streams grow while they last";
    DISABLE_H2_UPGRADE "disable-h2-upgrade" DFL "a client's connection does not become HTTP/2 by its preface";
    DONTLOG_NORMAL "dontlog-normal" DFL "what went well is not logged";
    DONTLOGNULL "dontlognull" DFL "connections without a byte are not logged";
    H1_ADJUST_CLIENT "h1-case-adjust-bogus-client" DFL "names of header fields are spelled as h1-case-adjust \
        says towards clients";
    H1_ADJUST_SERVER "h1-case-adjust-bogus-server" DLB "names of header fields are spelled as h1-case-adjust \
        says towards servers";
    HTTP_BUFFER_REQUEST "http-buffer-request" DFLB "a request's body is awaited, up to a buffer, before a \
        server is chosen";
    HTTP_DROP_REQUEST_TRAILERS "http-drop-request-trailers" DLB "trailers of requests are not forwarded";
    HTTP_DROP_RESPONSE_TRAILERS "http-drop-response-trailers" DFL "trailers of responses are not forwarded";
    HTTP_IGNORE_PROBES "http-ignore-probes" DFL "connections that browsers open ahead are neither logged nor \
        answered";
    HTTP_KEEP_ALIVE "http-keep-alive" DFLB "connections on both sides serve several requests";
    HTTP_NO_DELAY "http-no-delay" DFLB "bytes are sent at once, whatever that costs in packets";
    HTTP_PRETEND_KEEPALIVE "http-pretend-keepalive" DLB "servers are told that the connection stays open \
        though it will be closed";
    HTTP_SERVER_CLOSE "http-server-close" DFLB "the server's connection is closed after each response";
    HTTP_STRICT_FRAMING "http-strict-framing" DFLB "requests (in a frontend) and responses (in a backend) \
        that two programs could frame differently are refused, also those that HAProxy accepts; \
        accept-unsafe-violations-in-http-request and -response win over it; not of HAProxy";
    HTTP_USE_PROXY_HEADER "http-use-proxy-header" DFL "Proxy-Connection stands for Connection in requests to \
        a proxy";
    HTTPCLOSE "httpclose" DFLB "the connection to the server is closed after each response, and in a \
        frontend that of the client";
    IDLE_CLOSE_ON_RESPONSE "idle-close-on-response" DFL "idle clients are told in a response before a \
        stopping process closes";
    INDEPENDENT_STREAMS "independent-streams" DFLB "bytes received do not put off the timeout of bytes sent";
    LOG_HEALTH_CHECKS "log-health-checks" DLB "every change of a health check's result is logged";
    LOG_SEPARATE_ERRORS "log-separate-errors" DFL "what went wrong is logged with level err";
    LOGASAP "logasap" DFL "a line is logged when the response's head has come, not at the end";
    NOLINGER "nolinger" DFLB "connections are reset instead of closed";
    PERSIST "persist" DLB "a server is kept by its cookie though it is down";
    PREFER_LAST_SERVER "prefer-last-server" DLB "the server of the connection's last request is preferred";
    SOCKET_STATS "socket-stats" DFL "counters for each bind line";
    SPLICE_AUTO "splice-auto" DFLB "bytes are spliced where that pays";
    SPLICE_REQUEST "splice-request" DFLB "bytes of requests are spliced";
    SPLICE_RESPONSE "splice-response" DFLB "bytes of responses are spliced";
    SRVTCPKA "srvtcpka" DLB "TCP keep-alive packets towards servers";
    TCP_SMART_ACCEPT "tcp-smart-accept" DFL "the first acknowledgement of a client is left out";
    TCP_SMART_CONNECT "tcp-smart-connect" DLB "the acknowledgement of a server is sent with the first bytes";
    TCPKA "tcpka" DFLB "TCP keep-alive packets on both sides";
    TRANSPARENT "transparent" DLB "the server is the address that the client connected to";
}

impl OptionSwitch {
    /// Number of switches.
    pub const COUNT: usize = TABLE.len();

    /// All switches.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TABLE.len() as u8).map(Self)
    }

    /// The keyword, with `option`.
    pub fn name(self) -> &'static str {
        TABLE[usize::from(self.0)].0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

fn toggle(b: &mut Builder<'_>, line: &Line<'_>) {
    let Some(toggle) = OptionSwitch::all().find(|toggle| toggle.name() == line.keyword.name) else { return };
    let value = match line.prefix {
        Prefix::None => Some(line.set(true)),
        Prefix::No => Some(line.set(false)),
        Prefix::Default => None,
    };
    let exclusive = [OptionSwitch::HTTP_KEEP_ALIVE, OptionSwitch::HTTP_SERVER_CLOSE, OptionSwitch::HTTPCLOSE];
    let options = &mut b.settings().options;
    options[toggle.index()] = value;
    // The last of the three modes wins.
    if line.prefix == Prefix::None && exclusive.contains(&toggle) {
        for other in exclusive.into_iter().filter(|other| *other != toggle) {
            options[other.index()] = None;
        }
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows: Vec<Keyword> = TABLE
        .iter()
        .map(|&(name, contexts, help)| {
            let usual = if name == OptionSwitch::TCP_SMART_ACCEPT.name() {
                "on in HTTP mode, else off"
            } else {
                "off"
            };
            let row = flag(name, contexts, help).default(usual).built(toggle);
            // HAProxy has no `no option tcpka`; `clitcpka` and `srvtcpka` turn the halves off.
            if name == OptionSwitch::TCPKA.name() { row } else { row.negatable() }
        })
        .collect();
    rows.extend([
        own(
            "option forwardfor",
            DFLB,
            "[except <network>]... [header <name>] [if-none]",
            0,
            "the client's address is added to requests",
        )
        .built(|b, line| b.settings().forwardfor = address_header(b, line)),
        own(
            "option originalto",
            DFLB,
            "[except <network>]... [header <name>] [if-none]",
            0,
            "the address that the client connected to is added to requests",
        )
        .built(|b, line| b.settings().originalto = address_header(b, line)),
        own(
            "option forwarded",
            DLB,
            "[proto] [host|host-expr <expression>] [by|by-expr <expression>] [by_port|by_port-expr \
                <expression>] [for|for-expr <expression>] [for_port|for_port-expr <expression>]",
            0,
            "a Forwarded field (RFC 7239) is added to requests",
        )
        .negatable()
        .built(|b, line| b.settings().forwarded = forwarded(b, line)),
        own("option httplog", DFLB, "[clf]", 0, "logs in HTTP's format").built(log_format),
        flag("option tcplog", DFLB, "logs in TCP's format").built(log_format),
        flag("option httpslog", DFLB, "logs in HTTP's format, with TLS behind it").built(log_format),
        own(
            "option redispatch",
            DLB,
            "[<interval>]",
            0,
            "a request whose server cannot be reached goes to another",
        )
        .negatable()
        .default("off")
        .built(redispatch),
        own(
            "option http-restrict-req-hdr-names",
            DFLB,
            "preserve|delete|reject",
            1,
            "what happens to header fields with unusual names",
        )
        .built(|b, line| {
            if let Some(choice) = line.own_choice(b, 0, &["preserve", "delete", "reject"]) {
                let choice = line.set(choice);
                b.settings().restrict_header_names = Some(choice);
            }
            line.no_more(b, 1);
        }),
        flag(
            "option accept-invalid-http-request",
            DFL,
            "older name of accept-unsafe-violations-in-http-request",
        )
        .negatable()
        .built(|b, line| {
            let value = (line.prefix == Prefix::None).then(|| line.set(true));
            b.settings().options[OptionSwitch::UNSAFE_REQUESTS.index()] = value;
        }),
        flag(
            "option accept-invalid-http-response",
            DLB,
            "older name of accept-unsafe-violations-in-http-response",
        )
        .negatable()
        .built(|b, line| {
            let value = (line.prefix == Prefix::None).then(|| line.set(true));
            b.settings().options[OptionSwitch::UNSAFE_RESPONSES.index()] = value;
        }),
        own("option use-small-buffers", DFLB, "[<kind>...]", 0, "small buffers where they suffice")
            .negatable()
            .idle("an idle connection holds no buffer here"),
        own(
            "option httpchk",
            DLB,
            "[<method>] [<uri>] [<version>] [<host>]",
            0,
            "health checks are HTTP requests",
        )
        .words(check_kind),
        flag("option ldap-check", DLB, "health checks are LDAP requests").words(check_kind),
        own(
            "option mysql-check",
            DLB,
            "[user <name> [post-41|pre-41]]",
            0,
            "health checks are MySQL handshakes",
        )
        .words(check_kind),
        own("option pgsql-check", DLB, "user <name>", 0, "health checks are PostgreSQL handshakes")
            .words(check_kind),
        flag("option redis-check", DLB, "health checks are Redis requests").words(check_kind),
        own("option smtpchk", DLB, "[HELO|EHLO <domain>]", 0, "health checks are SMTP greetings")
            .words(check_kind),
        flag("option spop-check", DLB, "health checks are SPOP handshakes").words(check_kind),
        flag("option ssl-hello-chk", DLB, "health checks are TLS greetings").words(check_kind),
        flag("option tcp-check", DLB, "health checks are steps over TCP").words(check_kind),
        flag("option external-check", DLB, "health checks are programs").words(check_kind),
    ]);
    rows
}

/// Stores the kind of health check. The last line of a section wins.
fn check_kind(b: &mut Builder<'_>, line: &Line<'_>) {
    let most = match line.keyword.name {
        "option httpchk" => 4,
        "option mysql-check" => 3,
        "option pgsql-check" | "option smtpchk" => 2,
        _ => 0,
    };
    line.no_more(b, most);
    let statement = line.statement();
    b.settings().check_kind = Some(statement);
    let steps = if line.keyword.name == "option httpchk" { "http-check" } else { "tcp-check" };
    super::checks::forget_inherited(b, steps);
}

fn log_format(b: &mut Builder<'_>, line: &Line<'_>) {
    let format = match (line.keyword.name, line.words.first()) {
        ("option tcplog", _) => LogFormatOption::Tcp,
        ("option httpslog", _) => LogFormatOption::Https,
        (_, None) => LogFormatOption::Http,
        (_, Some(word)) if *word == "clf" => LogFormatOption::HttpClf,
        (_, Some(word)) => {
            let message = format!("'option httplog' supports only 'clf', found '{}'", word.shown());
            return b.found.alert(word.pos(), message);
        }
    };
    line.no_more(b, 1);
    if !super::logs::is_of_backend(b, line) {
        let value = line.set(format);
        b.settings().log_option = Some(value);
    }
}

fn redispatch(b: &mut Builder<'_>, line: &Line<'_>) {
    let interval = if line.words.is_empty() {
        Some(-1)
    } else {
        line.own_int(b, 0, i64::from(i32::MIN), i64::from(i32::MAX))
    };
    line.no_more(b, 1);
    if let Some(interval) = interval {
        let value = (line.prefix == Prefix::None).then(|| line.set(interval as i32));
        b.settings().redispatch = value;
    }
}

/// Reads `option forwarded`. Without arguments it means `proto for`.
fn forwarded(b: &mut Builder<'_>, line: &Line<'_>) -> Option<Set<Forwarded>> {
    if line.prefix != Prefix::None {
        line.no_more(b, 0);
        return None;
    }
    let mut forwarded = Forwarded::default();
    if line.words.is_empty() {
        forwarded.proto = true;
        forwarded.client = Some(FieldSource::Usual);
    }
    let mut words = line.words.iter();
    while let Some(word) = words.next() {
        let (name, has_expression) = match word.bytes().strip_suffix(b"-expr") {
            Some(name) => (name, true),
            None => (word.bytes(), false),
        };
        let part = match (name, has_expression) {
            (b"proto", false) => {
                forwarded.proto = true;
                continue;
            }
            (b"host", _) => &mut forwarded.host,
            (b"by", _) => &mut forwarded.proxy,
            (b"by_port", _) => &mut forwarded.proxy_port,
            (b"for", _) => &mut forwarded.client,
            (b"for_port", _) => &mut forwarded.client_port,
            _ => {
                let known = [
                    "proto",
                    "host",
                    "host-expr",
                    "by",
                    "by-expr",
                    "by_port",
                    "by_port-expr",
                    "for",
                    "for-expr",
                    "for_port",
                    "for_port-expr",
                ];
                let message = manylane_expr::none_of(line.keyword.name, known, word.bytes());
                b.found.alert(word.pos(), message);
                return None;
            }
        };
        *part = Some(match (has_expression, words.as_slice().first()) {
            (false, _) => FieldSource::Usual,
            (true, Some(expression)) => {
                words.next();
                FieldSource::Expression(expression.clone())
            }
            (true, None) => {
                let message =
                    format!("'option forwarded' : '{}' expects an expression, found none", word.shown());
                b.found.alert(word.pos(), message);
                return None;
            }
        });
    }
    for (name, node, port) in
        [("by", &forwarded.proxy, &forwarded.proxy_port), ("for", &forwarded.client, &forwarded.client_port)]
    {
        if port.is_some() && node.is_none() {
            let message = format!(
                "'option forwarded' : '{name}_port' and '{name}_port-expr' have no effect without '{name}' \
                    or '{name}-expr'"
            );
            b.found.warning(line.pos(), message);
        }
    }
    Some(line.set(forwarded))
}

/// Reads `option forwardfor` and `option originalto` (R-G7).
fn address_header(b: &mut Builder<'_>, line: &Line<'_>) -> Option<Set<AddressHeader>> {
    let mut header = AddressHeader::default();
    let mut words = line.words.iter();
    while let Some(word) = words.next() {
        match word.bytes() {
            b"if-none" => header.if_none = true,
            b"except" | b"header" => {
                let Some(value) = words.next().filter(|value| !value.bytes().is_empty()) else {
                    b.found.alert(
                        word.pos(),
                        format!("'{}' : '{}' expects a value, found none", line.keyword.name, word.shown()),
                    );
                    return None;
                };
                if *word == "header" {
                    header.name = Some(value.clone());
                } else {
                    match value.text().and_then(ExceptNetwork::parse) {
                        Some(network) => header.except.push(network),
                        None => {
                            let message = format!(
                                "'{}' expects an IPv4 or IPv6 network such as 192.0.2.0/24 behind \
                                    'except', found '{}'",
                                line.keyword.name,
                                value.shown()
                            );
                            b.found.alert(value.pos(), message);
                        }
                    }
                }
            }
            _ => {
                let known = ["except", "header", "if-none"];
                let message = manylane_expr::none_of(line.keyword.name, known, word.bytes());
                b.found.alert(word.pos(), message);
            }
        }
    }
    Some(line.set(header))
}
