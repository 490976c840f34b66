//! Messages for common mistakes.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;

/// Findings of a file, sorted by position: line, column, severity letter, message.
fn said(config: &str) -> Vec<String> {
    let mut sources = Sources::new();
    sources.add("t.cfg", config.to_owned()).unwrap();
    let mut environment = Environment::new();
    environment.set(b"PORT", b"8080").unwrap();
    let found = load(&sources, &Build::bare(), environment, false).found;
    let mut all: Vec<_> = found.found().iter().collect();
    all.sort_by_key(|finding| finding.pos);
    let show = |finding: &&manylane_config::diag::Diagnostic| {
        let pos = finding.pos.unwrap();
        let letter = match finding.severity {
            Severity::Alert => 'A',
            Severity::Warning => 'W',
            Severity::Notice => 'N',
            Severity::Diag => 'D',
        };
        format!("{}:{} {letter} {}", pos.line, pos.column, finding.message)
    };
    all.iter().map(show).collect()
}

/// A file with `line` as line 7, in the frontend.
fn file(line: &str) -> String {
    let timeouts = " timeout client 5s\n timeout connect 5s\n timeout server 5s\n";
    format!(
        "defaults\n mode http\n{timeouts}frontend f\n{line}\n bind :8081\n default_backend b\nbackend b\n"
    )
}

#[test]
fn a_mistake_is_reported_by_what_was_expected_and_what_was_found() {
    for (line, expected) in [
        (" bind 8080", "7 A 'bind' : '8080' is an address without a port; did you mean ':8080'?"),
        (
            " bind 127.0.0.1",
            "16 A 'bind' : '127.0.0.1' is an address without a port; add one from 1 to 65535, as in ':80'",
        ),
        (
            " bind :80 proto quic",
            "17 A 'proto quic' is a keyword of HAProxy that this program refuses: QUIC is not built yet",
        ),
        (" bind :80 proto h3", "17 A 'proto' expects h1|h2|none, found 'h3': HTTP/3 is not built"),
        (" use_backend", "2 A 'use_backend' expects <name> [if|unless <condition>], found none"),
        (" use_backend if TRUE", "2 A 'use_backend' expects a name, found none"),
        (
            " acl a!b src 10.0.0.1",
            "7 A 'acl' expects a name of letters, digits and . : _ -, found '!' in 'a!b'",
        ),
        (" bind :80 nmae x", "11 A unknown keyword 'nmae' of a 'bind' line; did you mean 'name'?"),
        (
            " bind :80 bogus",
            "11 A unknown keyword 'bogus' of a 'bind' line; docs/configuration.md lists those that there are",
        ),
        (" bind :80 name", "11 A 'name' expects <name>, found none"),
        (
            " bind localhost 8080",
            "17 A 'bind' expects address and port as one word, found two; did you mean 'localhost:8080'?",
        ),
        (
            " bind https://0.0.0.0:443",
            "7 A 'bind' : 'https://0.0.0.0' is a URL, not an address in 'https://0.0.0.0:443'; write an \
                address such as '192.0.2.1:80'",
        ),
        (
            " errorfile 418 /dev/null",
            "12 A 'errorfile' expects one of 21 values such as 200, 400 or 401, found '418'; did you mean \
                '408', '410' or '413'?",
        ),
        (
            " stick-table type ip size 10 store http_req_rate",
            "36 A 'stick-table' : 'http_req_rate' expects (<period>), found none",
        ),
        (
            " stats auth admin",
            "13 A 'stats auth' expects a user and a password with a colon between them, found no colon",
        ),
        (" bind $NOTHING", "7 A 'bind' expects an address, and '$NOTHING' is empty: is the variable set?"),
        (
            " bind quic+127.0.0.1:80",
            "7 A 'bind' : 'quic+' is not supported in 'quic+127.0.0.1:80'; QUIC is not built yet",
        ),
        (
            " option xyzzy",
            "9 A unknown option 'xyzzy' in 'frontend' section; 'manylane --help option' lists those that \
                there are",
        ),
        (" option httplg", "9 A unknown option 'httplg' in 'frontend' section; did you mean 'httplog'?"),
        (
            " option splice",
            "9 A unknown option 'splice' in 'frontend' section; did you mean 'splice-auto', 'splice-request' \
                or 'splice-response'?",
        ),
        (" option tcplog x", "16 A 'option tcplog' expects no argument, found 1 argument"),
        (" maxconn", "2 A 'maxconn' expects <number>, found none"),
        (" maxconn 1 2", "12 A 'maxconn' expects <number>, found 2 arguments"),
        (" maxconn many", "10 A 'maxconn' expects <number>, found 'many': 'm' is not a digit"),
        (" id 0", "5 A 'id' expects <number>, found '0': the range is 1 to 2147483647"),
        (" capture cookie a", "18 A 'capture cookie' expects <name> len <length>, found 1 argument"),
        (
            " timeout client 1m30s",
            "18 A 'timeout client' expects <delay>, found '1m30s': 'm30s' is not a unit of time, which are \
                us, ms, s, m, h and d",
        ),
        (
            " redirect code 301",
            "11 A 'redirect' expects location|prefix|scheme <target> [code <code>] [<option>...] [if|unless \
                <condition>], found 2 arguments",
        ),
        (
            " http-request set-heder a b",
            "15 A unknown action 'set-heder' of 'http-request'; did you mean 'set-header'?",
        ),
    ] {
        assert_eq!(said(&file(line)), [format!("7:{expected}")], "{line}");
    }
}

#[test]
fn one_mistake_is_reported_once() {
    let wrong = "defaults\n mode htp\n timeout client x\n timeout connect 5s\n timeout server 5s\n\
                 frontend f\n bind :80\n option httplog\n cookie x\n http-request deny\n default_backend b\n\
                 backend b\n mode tcp\n server s :80\n";
    let said = said(wrong);
    let lines: Vec<&str> = said.iter().filter_map(|text| text.split(' ').next()).collect();
    assert_eq!(lines, ["2:7", "3:17", "9:2"], "{said:?}");
    assert!(said[2].contains("'cookie' ignored because frontend 'f' has no backend capability"), "{said:?}");
}

#[test]
fn what_haproxy_warns_of_is_warned_of_and_nothing_else() {
    let never = |above: &str, line| {
        format!(
            "this rule and those behind it never run: '{above}' in line {line} ends the list and has no \
                condition"
        )
    };
    let order = |own: &str, above: &str| {
        format!("'{own}' rules run before the '{above}' rules above: move this one up")
    };
    let small = |name: &str, time: &str| {
        format!(
            "'{name} {time}' is suspiciously small for milliseconds; write {time}s if these are seconds, or \
                {time}ms"
        )
    };
    for (lines, expected) in [
        (
            " http-request deny\n http-request set-header a b",
            format!("8:2 W {}", never("http-request deny", 7)),
        ),
        (" http-response allow\n http-response deny", format!("8:2 W {}", never("http-response allow", 7))),
        (
            " http-response redirect location /\n http-response deny",
            format!("8:2 W {}", never("http-response redirect", 7)),
        ),
        (" http-request deny if TRUE\n http-request set-header a b", String::new()),
        (" http-request reject\n http-request set-header a b", String::new()),
        (" http-after-response allow\n http-request deny", String::new()),
        (
            " use_backend b if TRUE\n http-request deny",
            format!("8:2 W {}", order("http-request", "use_backend")),
        ),
        (
            " redirect prefix / if TRUE\n http-request deny",
            format!("8:2 W {}", order("http-request", "redirect")),
        ),
        (
            " http-request deny\n tcp-request content accept",
            format!("8:2 W {}", order("tcp-request content", "http-request")),
        ),
        (
            " http-request deny\n monitor fail if TRUE",
            format!("8:15 W {}", order("monitor fail", "http-request")),
        ),
        (" tcp-request connection accept\n http-request deny\n use_backend b", String::new()),
        (" use_backend b\n http-response deny", String::new()),
        (" timeout client 30", format!("7:17 W {}", small("timeout client", "30"))),
        (" timeout http-request 0", String::new()),
        (" timeout client 100", String::new()),
        (" timeout client 5ms", String::new()),
        (
            " timeout client 15min",
            "7:20 W 'timeout client' reads '15min' as 15m: the units are us, ms, s, m, h and d".into(),
        ),
        (" redirect code 301 prefix /", String::new()),
        (" bind \":$PORT\"\n bind 127.0.0.1:${PORT}\n bind stream+127.0.0.1:9", String::new()),
    ] {
        assert_eq!(said(&file(lines)).join("\n"), expected, "{lines}");
    }
    for (lines, expected) in [
        (" balance", String::new()),
        (" option httplog", "11:2 W backend 'b' : 'option httplog' directive is ignored in backends".into()),
        (" option tcplog", "11:2 W backend 'b' : 'option tcplog' directive is ignored in backends".into()),
        (
            " unique-id-format x",
            "11:2 N 'unique-id-format' has no effect here: requests get their names in frontends, and health \
                checks have none"
                .into(),
        ),
        (" server s :80 check inter 5", format!("11:27 W {}", small("inter", "5"))),
        (
            " use-server s if TRUE\n redirect prefix /\n server s :80",
            format!("12:2 W {}", order("redirect", "use-server")),
        ),
        (" server s 127.0.0.1:$PORT addr $PORT ws h1", String::new()),
    ] {
        assert_eq!(said(&(file(" description x") + lines + "\n")).join("\n"), expected, "{lines}");
    }
}

#[test]
fn servers_of_a_default_backend_and_settings_of_http_in_tcp_mode_are_warned_of() {
    const DEFAULTS: &str = "defaults\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n";
    let ignored = |what: &str| format!("{what} will be ignored for listen 'l' (needs 'mode http')");
    for (lines, expected) in [
        (
            " mode http\n default_backend b\n server s :80\nbackend b\n mode http\n",
            "8:2 W 'default_backend' takes precedence over the servers of listen 'l', which get no requests"
                .to_owned(),
        ),
        (" mode http\n default_backend b\nbackend b\n mode http\n", String::new()),
        (
            " disabled\n default_backend b\n server s :80 minconn 2 maxconn 1 cookie a\nbackend b\n",
            String::new(),
        ),
        (" disabled\n cookie a\n stats enable\n redirect prefix /\n", String::new()),
        (" stats enable\n stats uri /x\n", format!("7:2 W {}", ignored("'stats'"))),
        (" redirect prefix /\n", format!("7:2 W {}", ignored("'redirect' rules"))),
        (" server s :80 cookie a\n", format!("7:22 W {}", ignored("'cookie' of server 's'"))),
    ] {
        assert_eq!(said(&format!("{DEFAULTS}listen l\n bind :80\n{lines}")).join("\n"), expected, "{lines}");
    }
    // A backend uses its servers, whatever it inherits.
    let inherits = format!("{DEFAULTS} default_backend b\nfrontend f\n bind :80\nbackend b\n server s :80\n");
    assert_eq!(said(&inherits).join("\n"), "");
    // A proxy's own line is warned of even if `defaults` has another.
    let both = format!("{DEFAULTS} stats uri /x\nlisten l\n bind :80\n stats enable\n");
    assert_eq!(said(&both), [format!("8:2 W {}", ignored("'stats'"))]);
}

#[test]
fn messages_say_what_was_found() {
    for (lines, expected) in [
        (" balance hash(src)(dst)", "'balance' expects <algorithm>(<argument>), found 'hash(src)(dst)'"),
        (" option forwarded host-expr", "'host-expr' expects an expression, found none"),
        (
            " server s :80 set-proxy-v2-tlv-fmt(x) a",
            "expects a number up to 255 in parentheses, found 'set-proxy-v2-tlv-fmt(x)'",
        ),
        (
            " stick-table type ip size 10 store gpc0_rate(0)",
            "'gpc0_rate' expects a period from 1ms to 12 days, found '0'",
        ),
        (" mode log\n server s /x", "with udp@ for datagrams, found '/x'"),
        (" log backend@b local0", "'log' expects a backend in 'mode log', found 'b' in 'mode tcp'"),
    ] {
        let said = said(&format!("backend b\n{lines}\n"));
        assert!(said.iter().any(|text| text.contains(expected)), "{lines}: {said:?}");
    }
}

/// HAProxy refuses them, where it warns of those of proxies.
#[test]
fn small_times_of_resolvers_are_refused() {
    let small = |name: &str| {
        format!(
            "A '{name} 10' is suspiciously small for milliseconds; write 10s if these are seconds, or 10ms"
        )
    };
    let said =
        said("resolvers r\n nameserver a 127.0.0.1:53\n hold valid 10\n timeout retry 10\n hold nx 100\n");
    assert_eq!(said, [format!("3:13 {}", small("hold valid")), format!("4:16 {}", small("timeout retry"))]);
}

#[test]
fn what_has_no_effect_is_a_notice_so_that_zero_warning_takes_it() {
    for lines in [
        "global\n ssl-engine rdrand\n ssl-security-level 2\n tune.ssl.default-dh-param 2048",
        "global\n insecure-fork-wanted\n tune.lua.openlibs none\n tune.quic.fe.stream.max-total 1",
        "fcgi-app php\n docroot /var/www\n index index.php",
    ] {
        let said = said(&format!("{lines}\n"));
        let notices = said.iter().filter(|text| text.contains(" N ")).count();
        assert!(notices == said.len() && notices >= 2, "{said:?}");
    }
    assert!(said("fcgi-app php\n docrot /x\n")[0].contains("unknown keyword 'docrot'"));
}

/// A thousand alike do not hide those behind them, nor part into groups.
#[test]
fn many_alike_leave_the_others_their_words() {
    let alike = " servr s :80\n".repeat(1500);
    let config = format!(
        "backend back\n{alike} option foo\n chekc\n timeout srver 5s\n server s :80 chekc\n\
         frontend f\n bind :80\n default_backend bakc\n"
    );
    let said = said(&config);
    let those = |word: &str| said.iter().filter(|text| text.contains(word)).count();
    assert_eq!(those("unknown keyword 'servr' in 'backend' section; did you mean 'server'?"), 4, "{said:#?}");
    for other in [
        "unknown option 'foo' in 'backend' section; 'manylane --help option' lists those that there are",
        "unknown keyword 'chekc' in 'backend' section",
        "unknown timeout 'srver' in 'backend' section; did you mean 'server'?",
        "unknown keyword 'chekc' of a 'server' line; did you mean 'check'?",
        "'default_backend' of frontend 'f' expects the name of a backend, found 'bakc'; did you mean 'back'?",
    ] {
        assert_eq!(those(other), 1, "{other}: {said:#?}");
    }
}

/// One mistake, and nothing that follows from it.
#[test]
fn what_follows_from_a_mistake_is_not_reported() {
    const DEFAULTS: &str =
        "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n";
    const SERVER: &str = " server s 127.0.0.1:80\n";
    let front = |rest: &str| format!("{DEFAULTS}frontend f\n bind :81\n default_backend b\n{rest}");
    let after = |rest: &str| front(&format!("backend b\n{SERVER}{rest}"));
    for (config, expected) in [
        (
            after(&format!("bakend z\n{SERVER} option httpchk\n")),
            "11:1 A unknown keyword 'bakend' in 'backend' section; did you mean 'backend'?",
        ),
        (
            after("userlst u\n user a insecure-password b groups g\n group g\n"),
            "11:1 A unknown keyword 'userlst' in 'backend' section; did you mean 'userlist'?",
        ),
        (
            after("resolver r\n nameserver a 127.0.0.1:53\n resolve_retries 3\n hold valid 5s\n"),
            "11:1 A unknown keyword 'resolver' in 'backend' section; did you mean 'resolvers'?",
        ),
        (
            front(&format!("bakend b\n{SERVER}")),
            "9:1 A unknown keyword 'bakend' in 'frontend' section; did you mean 'backend'?",
        ),
        (
            after(&format!("  bakend z\n{SERVER}")).replace("server s", "server z"),
            "11:3 A unknown keyword 'bakend' in 'backend' section; did you mean 'backend'?\n\
             12:9 A backend 'b' has a server named 'z' already at t.cfg:10",
        ),
        (
            after("").replace("defaults", "defalts"),
            "1:1 A unknown keyword 'defalts' out of section; did you mean 'defaults'?",
        ),
        (
            front(&format!("backend b from e\n{SERVER}")),
            "9:16 A backend 'b' expects the name of a 'defaults' section above it, found 'e'",
        ),
        (
            front(&format!("backend b from e\n option forwardfor\n cookie x\n{SERVER}")),
            "9:16 A backend 'b' expects the name of a 'defaults' section above it, found 'e'",
        ),
        (
            after("").replace("timeout server", "timeout srver"),
            "5:10 A unknown timeout 'srver' in 'defaults' section; did you mean 'server'?",
        ),
        (
            after("").replace("bind :81", "bnid :81"),
            "7:2 A unknown keyword 'bnid' in 'frontend' section; did you mean 'bind'?",
        ),
        (
            after("").replace("bind :81", "bind 81"),
            "7:7 A 'bind' : '81' is an address without a port; did you mean ':81'?",
        ),
        (
            after(" use-server t if TRUE\n server t 127.0.0.1:80 chekc\n"),
            "12:24 A unknown keyword 'chekc' of a 'server' line; did you mean 'check'?",
        ),
    ] {
        assert_eq!(said(&config).join("\n"), expected, "{config}");
    }
}

#[test]
fn a_frontend_and_a_backend_of_one_name_are_warned_of() {
    let with = |sections: &str| {
        format!(
            "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n{sections}"
        )
    };
    let (front, back) = ("frontend x\n bind :81\n", "backend x\n");
    let rename = "rename one of them: newer versions of HAProxy refuse this";
    assert_eq!(
        said(&with(&format!("{front}{back}"))),
        [format!("8:9 W backend 'x' has the same name as frontend 'x' declared at t.cfg:6; {rename}")]
    );
    assert_eq!(
        said(&with(&format!("{back}{front}"))),
        [format!("7:10 W frontend 'x' has the same name as backend 'x' declared at t.cfg:6; {rename}")]
    );
}

/// A message lists few words; of more it says how many there are.
#[test]
fn no_message_lists_many_words() {
    for (line, expected) in [
        (
            " stick-table type ip size 10 store foo",
            "36 A 'stick-table store' expects one of 27 values such as server_id, gpt0 or gpc0, found 'foo'",
        ),
        (
            " errorfile 599 /dev/null",
            "12 A 'errorfile' expects one of 21 values such as 200, 400 or 401, found '599'",
        ),
    ] {
        assert_eq!(said(&file(line)), [format!("7:{expected}")], "{line}");
    }
    for (line, expected) in [
        (
            " balance roundrobbin",
            "10 A 'balance' expects one of 15 values such as ewma, first or hash, found \
                'roundrobbin'; did you mean 'roundrobin'?",
        ),
        (
            " cookie SRV foo",
            "13 A 'cookie' expects one of 14 values such as attr, domain or dynamic, found 'foo'",
        ),
        (
            " http-check sned",
            "13 A 'http-check' expects comment, connect, disable-on-404, expect, send, send-state, set-var, \
                set-var-fmt or unset-var, found 'sned'; did you mean 'send'?",
        ),
        (
            " log 127.0.0.1:514 local0 foo",
            "27 A 'log' expects a level (emerg, alert, crit, err, warning, notice, info or debug), found \
                'foo'",
        ),
        (
            " log 127.0.0.1:514 foo",
            "20 A 'log' expects a facility (one of 24 values such as kern, user or mail), found 'foo'",
        ),
    ] {
        assert_eq!(said(&(file(" description x") + line + "\n")), [format!("11:{expected}")], "{line}");
    }
}

#[test]
fn of_an_unknown_word_what_is_behind_its_equals_sign_is_not_shown() {
    for text in [
        "global\n cluster-secret=hidden\n",
        "backend b\n dynamic-cookie-key=hidden\n",
        "backend b\n stats auth=hidden\n",
        "backend b\n server s 192.0.2.1:1 tcp-md5sig=hidden\n",
        "userlist l\n user u password=hidden\n",
        "cluster-secret=hidden\n",
    ] {
        let said = said(text);
        assert!(!said.is_empty() && !said.iter().any(|one| one.contains("hidden")), "{said:?}");
    }
}
