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
fn a_mistake_is_told_by_what_was_expected_and_what_was_found() {
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
        (" bind :80 proto h3", "17 A 'proto' expects h1|h2|none, found 'h3'; did you mean 'h1' or 'h2'?"),
        (" bind :80 nmae x", "11 A unknown keyword 'nmae' of a 'bind' line; did you mean 'name'?"),
        (" bind :80 name", "11 A 'name' expects <name>, found none"),
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
fn one_mistake_is_told_once() {
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
        format!("'{own}' rules run before '{above}' rules, and this one stands behind one")
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
        (" unique-id-format x", String::new()),
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
