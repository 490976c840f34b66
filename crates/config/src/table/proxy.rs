//! Keywords of proxies that belong to no other family: modes, listeners, servers, balancing.

use super::context::{DFL, DFLB, DLB, FL, FLB, KeywordContext, LB};
use super::{Keyword, OptionSwitch, args, choice, flag, int, own, text, time};
use crate::build::{Builder, Line, parse};
use crate::diag::Severity;
use crate::lex::Word;
use crate::tree::{ErrorFile, HashType, LEVELS, Mode, Redirection};

const MANY: i64 = i32::MAX as i64;

const BALANCE: &str = "how a server is chosen: \
    roundrobin (in turns by weight), static-rr (with fixed weights), leastconn (fewest connections), first \
    (the first with a free slot), random[(draws)] (the least loaded of some), sticky (one while it is up); \
    by a hash of the client's address (source), a part of the request (uri, url_param name, hdr(name), \
    rdp-cookie[(name)]), a value (hash expression) or a log line (log-hash converters); and two that HAProxy \
    does not have: ewma (the faster of two), maglev [expression] (Maglev's table: few clients move)";

macro_rules! setting {
    ($field:ident, $get:ident $(as $type:ty)?) => {
        |b, line| {
            let value = line.set(line.$get(0) $(as $type)?);
            b.settings().$field = Some(value);
        }
    };
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = vec![
        args(
            "mode",
            DFLB,
            [choice("mode", &["tcp", "http", "log"])],
            "what the proxy understands of the traffic; log is for backends that 'log' names",
        )
        .default("tcp")
        .built(mode),
        own(
            "bind",
            FL,
            "<address>[,...] [<option>...]",
            1,
            "where the proxy \
            listens",
        )
        .adds()
        .built(parse::bind),
        own(
            "server",
            LB,
            "<name> <address>[:<port>] \
            [<option>...]",
            2,
            "a server",
        )
        .adds()
        .built(parse::server),
        own("default-server", DLB, "<option>...", 1, "options that the servers below begin with")
            .adds()
            .built(parse::default_server),
        own(
            "server-template",
            LB,
            "<prefix> <count>|<low>-<high> <address>[:<port>] [<option>...]",
            3,
            "many servers of one kind",
        )
        .adds()
        .built(parse::server_template),
        own("balance", DLB, "[<algorithm> [<argument>...]]", 0, BALANCE)
            .default("roundrobin")
            .built(parse::balance),
        own(
            "hash-type",
            DLB,
            "map-based|consistent [<function>] [<avalanche>]",
            1,
            "how algorithms with a hash spread it",
        )
        .default("map-based sdbm")
        .built(hash_type),
        args(
            "hash-balance-factor",
            DLB,
            [int("percent", 0, 65_535)],
            "how far a server's load may be above the average, in percent; 0 for any",
        )
        .default("0")
        .built(|b, line| {
            let (percent, pos) = (line.int(0), line.words[0].pos());
            if percent != 0 && percent <= 100 {
                let message =
                    format!("'hash-balance-factor' expects 0 or a value above 100, found {percent}");
                return b.found.alert(pos, message);
            }
            let value = line.set(percent as u32);
            b.settings().hash_balance_factor = Some(value);
        }),
        args(
            "hash-preserve-affinity",
            DLB,
            [choice("when", &["always", "maxconn", "maxqueue"])],
            "when a hash keeps its server though that is full",
        )
        .default("always")
        .built(setting!(hash_preserve_affinity, choice)),
        own("default_backend", DFL, "<name>", 1, "the backend when no use_backend rule applies").built(
            |b, line| {
                let name = line.set(line.word(0));
                line.no_more(b, 1);
                b.settings().default_backend = Some(name);
            },
        ),
        own("use_backend", FL, "<name> [if|unless <condition>]", 1, "the backend when the condition holds")
            .adds()
            .words(parse::use_backend),
        own("use-server", LB, "<name> if|unless <condition>", 3, "the server when the condition holds")
            .adds()
            .words(parse::use_server),
        own("dispatch", LB, "<address>:<port>", 1, "the one address that all traffic goes to")
            .built(parse::dispatch),
        args(
            "fullconn",
            DLB,
            [int("number", 1, MANY)],
            "connections of the backend at which servers reach their maxconn",
        )
        .default("a tenth of the frontends' maxconn")
        .built(setting!(fullconn, int as u32)),
        args("maxconn", DFL, [int("number", 0, MANY)], "client connections of the proxy at once")
            .default("the process's")
            .built(setting!(maxconn, int as u32)),
        args(
            "backlog",
            DFL,
            [int("number", 0, MANY)],
            "connections that the system keeps until they are accepted",
        )
        .default("maxconn")
        .built(setting!(backlog, int as u32)),
        own("rate-limit sessions", DFL, "<number>", 1, "sessions begun a second").default("no bound").built(
            |b, line| {
                if let Some(rate) = line.own_int(b, 0, 0, MANY) {
                    let rate = line.set(rate as u32);
                    b.settings().rate_limit = Some(rate);
                }
                line.no_more(b, 1);
            },
        ),
        args("retries", DLB, [int("number", 0, MANY)], "tries to connect after the first")
            .default("3")
            .built(setting!(retries, int as u32)),
        own("retry-on", DLB, "<event>...", 1, "what makes a request be tried again")
            .default("conn-failure")
            .built(parse::retry_on),
        args(
            "http-reuse",
            DLB,
            [choice("mode", &["never", "safe", "aggressive", "always"])],
            "whether requests of several clients share a server's connection (R-G5)",
        )
        .default("safe")
        .built(setting!(http_reuse, choice)),
        own(
            "cookie",
            DLB,
            "<name> [rewrite|insert|prefix] [<option>...]",
            1,
            "keeps a client at its server by a cookie",
        )
        .built(parse::cookie),
        args(
            "dynamic-cookie-key",
            DLB,
            [text("secret")],
            "the secret in the cookies that 'cookie dynamic' makes",
        )
        .built(setting!(dynamic_cookie_key, word)),
        own(
            "source",
            DLB,
            "<address>[:<port>[-<port>]] [usesrc ...] [interface <name>]",
            1,
            "the address that servers see",
        )
        .built(parse::source),
        own(
            "capture cookie",
            FL,
            "<name> len <length>",
            3,
            "a cookie is \
            logged",
        )
        .once()
        .built(parse::capture),
        own("capture request header", FL, "<name> len <length>", 3, "a field of requests is logged")
            .adds()
            .built(parse::capture),
        own("capture response header", FL, "<name> len <length>", 3, "a field of responses is logged")
            .adds()
            .built(parse::capture),
        own("declare capture", FL, "request|response len <length>", 3, "a slot for a captured text")
            .adds()
            .built(parse::capture),
        own("errorfile", DFLB, "<code> <file>", 2, "a file that is the answer to an error")
            .adds()
            .built(|b, line| error_answer(b, line, None)),
        own("errorloc", DFLB, "<code> <url>", 2, "a redirection with 302 that is the answer to an error")
            .adds()
            .built(|b, line| error_answer(b, line, Some(302))),
        own("errorloc302", DFLB, "<code> <url>", 2, "a redirection with 302 that is the answer to an error")
            .adds()
            .built(|b, line| error_answer(b, line, Some(302))),
        own("errorloc303", DFLB, "<code> <url>", 2, "a redirection with 303 that is the answer to an error")
            .adds()
            .built(|b, line| error_answer(b, line, Some(303))),
        own("errorfiles", DFLB, "<section> [<code>...]", 1, "answers of an http-errors section")
            .adds()
            .built(|b, line| {
                let statement = line.statement();
                b.settings().errorfiles.push(statement);
            }),
        own("http-error", DFLB, "status <code> [<option>...]", 2, "an answer to an error, made of rules")
            .adds()
            .words(|b, line| {
                let statement = line.statement();
                b.settings().http_errors.push(statement);
            }),
        args(
            "http-send-name-header",
            DLB,
            [text("name")],
            "the server's name is sent to it in this header field",
        )
        .built(|b, line| b.settings().http_send_name_header = Some(line.set(line.word(0)))),
        own("monitor-uri", DFL, "<uri>", 1, "requests for this URI are answered by the proxy itself").built(
            |b, line| {
                let uri = line.set(line.word(0));
                line.no_more(b, 1);
                b.settings().monitor_uri = Some(uri);
            },
        ),
        own("monitor fail", FL, "if|unless <condition>", 2, "when the monitor URI answers with an error")
            .adds()
            .words(|b, line| {
                let (words, condition) = parse::split_condition(b, line);
                if let (Some(extra), Some(_)) = (words.first(), &condition) {
                    b.found.alert(
                        extra.pos(),
                        format!("'monitor fail' expects 'if' or 'unless', found '{}'", extra.shown()),
                    );
                } else if condition.is_none() {
                    b.found.alert(line.pos(), "'monitor fail' expects 'if' or 'unless' and a condition");
                }
                b.proxy().monitor_fail.extend(condition);
            }),
        own("force-persist", LB, "if|unless <condition>", 2, "when a server is kept though it is down")
            .adds()
            .words(persist),
        own(
            "ssl-f-use",
            FL,
            "crt <file> [<option>...]",
            2,
            "a certificate for all TLS listeners of the frontend",
        )
        .adds()
        .built(|b, line| {
            let line = line.statement();
            b.proxy().ssl_f_use.push(line);
        }),
        flag("be-unpublished", LB, "frontends pass the backend over until 'publish backend' is said")
            .built(|b, line| b.proxy().unpublished = Some(line.set(true))),
        own(
            "force-be-switch",
            FL,
            "if|unless <condition>",
            2,
            "when a backend is chosen though it is unpublished",
        )
        .adds()
        .words(persist),
        own("ignore-persist", LB, "if|unless <condition>", 2, "when no server is kept").adds().words(persist),
        args("id", FLB, [int("number", 1, MANY)], "the proxy's number").default("the next free one").built(
            |b, line| {
                let id = line.set(line.int(0) as u32);
                b.proxy().id = Some(id);
            },
        ),
        args("guid", FLB, [text("name")], "a name that nothing else in the process has").built(|b, line| {
            let guid = line.set(line.word(0));
            b.proxy().guid = Some(guid);
        }),
        own("description", FLB, "<text>...", 1, "a sentence about the proxy, shown by statistics").built(
            |b, line| {
                let text = line.set(line.sentence(0));
                b.proxy().description = Some(text);
            },
        ),
        flag("disabled", DFLB, "the proxy is not started").built(|b, line| {
            let value = line.set(true);
            b.settings().disabled = Some(value);
        }),
        flag("enabled", DFLB, "the proxy is started though its defaults disable it").built(|b, line| {
            let value = line.set(false);
            b.settings().disabled = Some(value);
        }),
        args(
            "max-keep-alive-queue",
            DLB,
            [int("number", -1, MANY)],
            "waiting requests from which on 'option prefer-last-server' lets a full server be; -1 for no \
                bound",
        )
        .default("-1")
        .built(setting!(max_keep_alive_queue, int as i32)),
        args(
            "max-session-srv-conns",
            DFL,
            [int("number", 0, MANY)],
            "server connections that a client's session keeps",
        )
        .default("5")
        .built(setting!(max_session_srv_conns, int as u32)),
        args(
            "server-state-file-name",
            DLB,
            [text("file").optional()],
            "the file that servers' states are read from (R-G8)",
        )
        .built(|b, line| {
            let statement = line.statement();
            b.settings().server_state_file = Some(statement);
        }),
        args(
            "load-server-state-from-file",
            DLB,
            [choice("which", &["global", "local", "none"])],
            "whether servers' states are read from a file (R-G8)",
        )
        .default("none")
        .built(setting!(load_server_state, choice)),
        own("unique-id-format", DFLB, "<format>", 1, "a log format that names each request").words(
            |b, line| {
                let format = line.set(line.word(0));
                line.no_more(b, 1);
                if b.context() == KeywordContext::Backend {
                    let message = "'unique-id-format' has no effect here: requests get their names in \
                                   frontends, and health checks have none";
                    b.found.push(Severity::Notice, Some(line.pos()), message);
                }
                b.settings().unique_id_format = Some(format);
            },
        ),
        args("unique-id-header", DFL, [text("name")], "the request's name is sent in this header field")
            .built(setting!(unique_id_header, word)),
        flag("persist rdp-cookie", DLB, "a client goes to the server whose address its cookie of RDP has")
            .built(|b, line| {
                let value = line.set(Word::plain(parse::RDP_TOKEN, line.pos()));
                b.settings().persist_rdp = Some(value);
            }),
        own("persist", DLB, "rdp-cookie(<name>)", 1, "the same, by a cookie of another name")
            .words(parse::persist_rdp),
        flag("transparent", DLB, "older form of option transparent").built(|b, line| {
            let value = line.set(true);
            b.settings().options[OptionSwitch::TRANSPARENT.index()] = Some(value);
        }),
        own("bind-process", DFLB, "<processes>", 0, "processes that run the proxy")
            .idle("there is one process; leave it out, as newer versions of HAProxy do not take it"),
        own(
            "redirect",
            FLB,
            "location|prefix|scheme <target> [code <code>] [<option>...] [if|unless <condition>]",
            2,
            "the client is sent elsewhere",
        )
        .adds()
        .words(super::rules::redirect),
        own("compression", DFLB, "<option>...", 1, "answers are compressed")
            .refused("compression is not built yet"),
        own(
            "filter",
            FLB,
            "bwlim-in|bwlim-out <name> default-limit <size> default-period <time> [min-size <size>] | \
                bwlim-in|bwlim-out <name> limit <size> key <pattern> [table <name>] [min-size <size>] | \
                trace [name <name>] [random-forwarding] [hexdump] [quiet]",
            1,
            "what streams forward is limited to so many bytes in a time, or reported on standard error",
        )
        .adds()
        .words(parse::filter),
        own("filter-sequence", FLB, "request|response <list>", 2, "the order of filters")
            .refused("filters are asked in the order of their lines; HAProxy 3.2 does not have it either"),
        own(
            "quic-initial",
            DFL,
            "<action>",
            1,
            "a rule of QUIC's first \
            packets",
        )
        .refused("QUIC is not built yet"),
        own(
            "crt",
            FL,
            "<file> [<option>...]",
            1,
            "a certificate of the frontend, as the manual's matrix has \
            it",
        )
        .refused("HAProxy 3.2 has it in the manual alone: name it on 'bind' lines, or by 'ssl-f-use'"),
        own("use-fcgi-app", LB, "<name>", 1, "servers speak FastCGI").refused("FastCGI is not built"),
    ];
    for name in ["clitcpka-cnt", "srvtcpka-cnt"] {
        let contexts = if name.starts_with("cli") { DFL } else { DLB };
        rows.push(
            args(
                name,
                contexts,
                [int("number", 1, 127)],
                "unanswered TCP keep-alive packets that end a connection",
            )
            .default("system's")
            .built(keep_alive),
        );
    }
    for name in ["clitcpka-idle", "clitcpka-intvl", "srvtcpka-idle", "srvtcpka-intvl"] {
        let contexts = if name.starts_with("cli") { DFL } else { DLB };
        let help = if name.ends_with("idle") {
            "silence before the first TCP keep-alive packet"
        } else {
            "time between TCP keep-alive packets"
        };
        rows.push(
            args(name, contexts, [super::seconds("delay")], help).default("system's").built(keep_alive),
        );
    }
    rows.extend([
        args("email-alert from", DFLB, [text("address")], "sender of alerts by mail")
            .built(|b, line| b.settings().email_alert.from = Some(line.set(line.word(0)))),
        args(
            "email-alert level",
            DFLB,
            [choice("level", LEVELS)],
            "the least severe level of which alerts are sent",
        )
        .default("alert")
        .built(|b, line| b.settings().email_alert.level = Some(line.set(line.choice(0)))),
        args("email-alert mailers", DFLB, [text("section")], "the 'mailers' section with their mail servers")
            .built(|b, line| b.settings().email_alert.mailers = Some(line.set(line.word(0)))),
        args("email-alert myhostname", DFLB, [text("name")], "this side's name in greetings")
            .default("the machine's")
            .built(|b, line| b.settings().email_alert.host = Some(line.set(line.word(0)))),
        args("email-alert to", DFLB, [text("address")], "receiver of alerts by mail")
            .built(|b, line| b.settings().email_alert.to = Some(line.set(line.word(0)))),
    ]);
    rows.push(
        args("grace", DFL, [time("delay")], "time between the request to stop and the end of listening")
            .refused("it is a setting of global"),
    );
    rows
}

fn mode(b: &mut Builder<'_>, line: &Line<'_>) {
    let mode = match line.choice(0) {
        "tcp" => Mode::Tcp,
        "log" => Mode::Log,
        _ => Mode::Http,
    };
    b.settings().mode = Some(line.set(mode));
    b.settings().refused.retain(|name| *name != "mode");
}

fn hash_type(b: &mut Builder<'_>, line: &Line<'_>) {
    let Some(method) = line.own_choice(b, 0, &["map-based", "consistent"]) else { return };
    let consistent = method == "consistent";
    // The function of a bare 'consistent' distributes badly over a ring, so the avalanche step is added.
    let mut hash = HashType { consistent, function: "sdbm", avalanche: consistent && line.words.len() == 1 };
    let mut next = 1;
    if let Some(word) = line.words.get(1).filter(|word| **word != "avalanche") {
        const FUNCTIONS: &[&str] = &["sdbm", "djb2", "wt6", "crc32", "none"];
        let _ = word;
        let Some(function) = line.own_choice(b, 1, FUNCTIONS) else { return };
        hash.function = function;
        next = 2;
    }
    if let Some(word) = line.words.get(next) {
        if *word != "avalanche" {
            return b.found.alert(
                word.pos(),
                format!("'hash-type' expects 'avalanche' here, found '{}'", word.shown()),
            );
        }
        hash.avalanche = true;
        next += 1;
    }
    line.no_more(b, next);
    let hash = line.set(hash);
    b.settings().hash_type = Some(hash);
}

fn error_answer(b: &mut Builder<'_>, line: &Line<'_>, redirect: Option<u16>) {
    /// Status codes of errors that the proxy itself can send.
    const CODES: [u16; 21] = [
        200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 414, 421, 422, 425, 429, 431, 500, 501, 502, 503,
        504,
    ];
    let Some(code) = line.own_int(b, 0, 100, 599) else { return };
    let code = code as u16;
    if !CODES.contains(&code) {
        let known: Vec<String> = CODES.iter().map(u16::to_string).collect();
        let known = known.iter().map(String::as_str);
        let message = manylane_expr::none_of(line.keyword.name, known, line.words[0].bytes());
        return b.found.alert(line.words[0].pos(), message);
    }
    line.no_more(b, 2);
    let target = line.word(1);
    let file =
        ErrorFile { code, redirect: redirect.map(|status| Redirection { status }), target, pos: line.pos() };
    if let Some(section) = b.http_errors() {
        section.files.push(file);
    } else {
        let files = &mut b.settings().error_files;
        files.retain(|known| known.code != code);
        files.push(file);
    }
}

/// `errorfile` in an `http-errors` section.
pub(super) fn section_error_file(b: &mut Builder<'_>, line: &Line<'_>) {
    error_answer(b, line, None);
}

fn persist(b: &mut Builder<'_>, line: &Line<'_>) {
    let (words, condition) = parse::split_condition(b, line);
    if !words.is_empty() || condition.is_none() {
        let message = format!("'{}' expects 'if' or 'unless' and a condition", line.keyword.name);
        b.found.alert(line.pos(), message);
    }
    let Some(condition) = condition else { return };
    let proxy = b.proxy();
    match line.keyword.name {
        "force-persist" => proxy.force_persist.push(condition),
        "force-be-switch" => proxy.force_switch.push(condition),
        _ => proxy.ignore_persist.push(condition),
    }
}

fn keep_alive(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.keyword.name;
    let settings = b.settings();
    let side = if name.starts_with("cli") {
        &mut settings.client_keep_alive
    } else {
        &mut settings.server_keep_alive
    };
    match &name[9..] {
        "cnt" => side.count = Some(line.set(line.int(0) as u32)),
        "idle" => side.idle = Some(line.set(line.time(0))),
        _ => side.interval = Some(line.set(line.time(0))),
    }
}
