//! The checked tree of whole files, inheritance, and findings about more than one line.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::source::Sources;
use manylane_config::table::{OptionSwitch, Ruleset, Timeout};
use manylane_config::tree::{Config, LogTarget, Mode, Proxy, ProxyHeader, ProxyKind, RetryOn};
use manylane_config::{Loaded, load};
use std::time::Duration;

fn read(text: &str) -> (Sources, Loaded) {
    let mut sources = Sources::new();
    sources.add("t.cfg", text).unwrap();
    let build = Build::bare();
    let loaded = load(&sources, &build, Environment::new(), false);
    (sources, loaded)
}

fn tree(text: &str) -> Config {
    let (sources, loaded) = read(text);
    assert_eq!(loaded.found.errors(), 0, "{}", loaded.found.render(&sources, 1));
    loaded.config
}

/// `line:column severity message` of each finding, first lines only.
fn findings(text: &str) -> Vec<String> {
    let (_, loaded) = read(text);
    let show = |finding: &manylane_config::diag::Diagnostic| {
        let pos = finding.pos.unwrap();
        let level = match finding.severity {
            Severity::Alert => "A",
            Severity::Warning => "W",
            _ => "N",
        };
        format!("{}:{} {level} {}", pos.line, pos.column, finding.message.lines().next().unwrap())
    };
    loaded.found.found().iter().map(show).collect()
}

fn proxy<'c>(config: &'c Config, name: &str) -> &'c Proxy {
    config.proxies.iter().find(|proxy| proxy.name == name).unwrap()
}

#[test]
fn a_field_of_a_proxy_header_without_a_format_is_empty() {
    let text = "backend b\n    server s 127.0.0.1:1 send-proxy-v2 set-proxy-v2-tlv-fmt(0x20)\n";
    let config = tree(text);
    let (kind, format) = &config.proxies[0].servers[0].options.proxy_tlvs[0];
    assert_eq!((*kind, format.bytes()), (0x20, &b""[..]));
}

#[test]
fn a_whole_file_is_read_into_types() {
    let config = tree(include_str!("whole.cfg"));
    assert_eq!(config.global.maxconn.unwrap().value, 20000);
    assert_eq!(config.global.tune.bufsize.unwrap().value, 16384);
    assert_eq!(config.global.hard_stop_after.unwrap().value.after, Duration::from_secs(30));
    assert_eq!(config.global.description.as_ref().unwrap().value.bytes(), b"the edge of the house");
    assert_eq!(config.global.log.len(), 2);
    assert_eq!(config.environment.get(b"WWW_PORT"), Some(&b"18080"[..]));

    let www = proxy(&config, "www");
    assert_eq!((www.kind, www.settings.mode()), (ProxyKind::Frontend, Mode::Http));
    assert_eq!(www.binds[0].addresses[0].value.to_string(), "127.0.0.1:18080");
    assert!(www.binds[0].options.accept_proxy.unwrap().value);
    assert_eq!(www.binds[1].addresses.len(), 2);
    assert_eq!(www.binds[1].options.mode.unwrap().value, 0o600);
    let forwarded = &www.settings.forwardfor.as_ref().unwrap().value;
    assert!(forwarded.if_none && forwarded.except.len() == 2 && forwarded.except[1].prefix == 32);
    assert_eq!(www.acls.iter().filter(|acl| acl.name == "static").count(), 2);
    let rule = &www.rules[0];
    assert_eq!((rule.list, rule.action), (Ruleset::HttpRequest, "set-header"));
    assert_eq!(rule.words[2].bytes(), b"t.cfg:57:www");
    let deny = www.rules[1].condition.as_ref().unwrap();
    assert!(!deny.unless && deny.words.len() == 5);
    assert!(www.use_backend[1].is_dynamic() && !www.use_backend[0].is_dynamic());

    let app = proxy(&config, "app");
    let balance = &app.settings.balance.as_ref().unwrap().value;
    assert_eq!((balance.algorithm.name, balance.words[0].bytes()), ("hash", &b"req.hdr(x-user)"[..]));
    assert!(app.settings.hash_type.unwrap().value.avalanche);
    assert_eq!(app.settings.redispatch.unwrap().value, 1);
    assert_eq!(app.servers[1].options.slowstart.unwrap().value, Duration::from_secs(30));
    assert_eq!(app.servers[0].options.maxconn.unwrap().value, 100);
    assert!(app.servers[2].options.backup.unwrap().value);
    assert_eq!(app.settings.retry_on.as_ref().unwrap().value[2], RetryOn::Status(503));

    let files = proxy(&config, "files");
    let names: Vec<&[u8]> = files.servers.iter().map(|server| server.name.bytes()).collect();
    assert_eq!(names, [b"file1", b"file2", b"file3"]);
    assert_eq!(files.servers[0].options.send_proxy.unwrap().value, ProxyHeader::V2);

    let db = proxy(&config, "db");
    assert_eq!(db.settings.mode(), Mode::Tcp);
    assert_eq!(db.servers[0].address.value.to_string(), "[::1]:+10");
    assert_eq!(config.userlists[0].users.len(), 2);
    assert_eq!(config.resolvers[0].holds[0].time, Duration::from_secs(10));
}

#[test]
fn proxies_begin_with_their_defaults_and_change_only_themselves() {
    let config = tree(
        "defaults a\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n option \
            httpclose\n maxconn 5\n log stdout local0\n\
         defaults b from a\n timeout client 2s\n no option httpclose\n\
         frontend f\n bind :1\n maxconn 7\n no log\n\
         frontend g from a\n bind :2\n option http-keep-alive\n\
         defaults\n mode tcp\n timeout client 3s\nfrontend h\n bind :3\n",
    );
    let (f, g, h) = (proxy(&config, "f"), proxy(&config, "g"), proxy(&config, "h"));
    let client = |proxy: &Proxy| proxy.settings.timeout(Timeout::Client).unwrap().as_secs();
    assert_eq!((client(f), client(g), client(h)), (2, 1, 3));
    assert!(!f.settings.option(OptionSwitch::HTTPCLOSE));
    // The last connection mode wins.
    assert!(!g.settings.option(OptionSwitch::HTTPCLOSE) && g.settings.option(OptionSwitch::HTTP_KEEP_ALIVE));
    assert_eq!(f.settings.maxconn.unwrap().value, 7);
    assert_eq!(g.settings.maxconn.unwrap().value, 5);
    assert!(f.settings.log.is_empty() && matches!(g.settings.log[..], [LogTarget::Own(_)]));
    // A `defaults` section without `from` starts empty.
    assert!(h.settings.maxconn.is_none() && h.settings.mode() == Mode::Tcp);
    assert_eq!(config.proxies[f.defaults.unwrap()].name, "b");
}

#[test]
fn all_errors_of_a_file_are_found_in_one_run_each_at_its_position() {
    let text = "global\n maxcon 5\n nbthread many\n\
                defaults\n mode htpt\n timeout clent 5s\n timeout queue 5x\n option httplg\n\
                frontend www\n bind :99999 nmae x\n use_backend ap if TRUE\n http-request dney\n\
                backend app\n balance roundrbin\n server a 127.0.0.1:80 wieght 3\n server a 127.0.0.1:80\n \
                compression algo gzip\n";
    assert_eq!(
        findings(text),
        [
            "2:2 A unknown keyword 'maxcon' in 'global' section; did you mean 'maxconn'?",
            "3:11 A 'nbthread' expects <number>, found 'many': 'm' is not a digit",
            "5:7 A 'mode' expects tcp|http|log, found 'htpt'; did you mean 'http'?",
            "6:10 A unknown timeout 'clent' in 'defaults' section; did you mean 'client'?",
            "7:17 A 'timeout queue' expects <delay>, found '5x': 'x' is not a unit of time, which are us, \
                ms, s, m, h and d",
            "8:9 A unknown option 'httplg' in 'defaults' section; did you mean 'httplog'?",
            "10:8 A 'bind' : '99999' is not a port in ':99999'; write a number from 1 to 65535",
            "10:14 A unknown keyword 'nmae' of a 'bind' line; did you mean 'name'?",
            "12:15 A unknown action 'dney' of 'http-request'; did you mean 'deny'?",
            "14:10 A 'balance' expects one of 15 values such as ewma, first or hash, found 'roundrbin'; did \
                you mean 'roundrobin'?",
            "15:24 A unknown keyword 'wieght' of a 'server' line; did you mean 'weight'?",
            "17:2 A 'compression' is a keyword of HAProxy that this program refuses: compression is not \
                built yet",
            "11:14 A 'use_backend' of frontend 'www' expects the name of a backend, found 'ap'; did you mean \
                'app'?",
            "16:9 A backend 'app' has a server named 'a' already at t.cfg:15",
            "13:1 W missing timeouts ('timeout connect', 'timeout server'): clients or servers that fall \
                silent keep their connections for ever",
        ]
    );
}

#[test]
fn lines_of_a_refused_section_are_part_of_its_refusal() {
    let found = findings(
        "cache c\n total-max-size 4\n nonsense\nfrontend f\n bind :1\n timeout client 1s\n nonsense\n",
    );
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("1:1 A section 'cache'")
            && found[1].starts_with("7:2 A unknown keyword 'nonsense'"),
        "{found:?}"
    );
}

#[test]
fn keywords_of_the_other_side_are_ignored_with_a_warning_as_in_haproxy() {
    let base = "defaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n";
    let found =
        findings(&format!("{base}frontend f\n bind :1\n fullconn 5\nbackend b\n maxconn 5\n bind :2\n"));
    assert_eq!(
        found,
        [
            "7:2 W 'fullconn' ignored because frontend 'f' has no backend capability. Maybe you want \
                'maxconn' instead ?",
            "9:2 W 'maxconn' ignored because backend 'b' has no frontend capability. Maybe you want \
                'fullconn' instead ?",
            "10:2 W 'bind' ignored because backend 'b' has no frontend capability",
        ]
    );
}

#[test]
fn a_misplaced_keyword_tells_where_it_belongs() {
    assert_eq!(
        findings("global\n balance first\n"),
        ["2:2 A 'balance' not allowed in 'global' section; it belongs to defaults, listen, backend"]
    );
    assert_eq!(
        findings("defaults\n acl a src 10.0.0.1\n"),
        ["2:2 A 'acl' expects a 'defaults' section with a name, found one without: write 'defaults <name>'"]
    );
}

#[test]
fn two_files_are_two_worlds_of_sections_and_one_of_names() {
    let mut sources = Sources::new();
    sources.add("a.cfg", "frontend f\n bind :1\n timeout client 1s\n default_backend b\n").unwrap();
    sources.add("b.cfg", " mode http\nbackend b\n").unwrap();
    let build = Build::bare();
    let loaded = load(&sources, &build, Environment::new(), false);
    let text = loaded.found.render(&sources, 1);
    assert_eq!(loaded.found.found().len(), 1, "{text}");
    assert!(text.contains("[b.cfg:1] : unknown keyword 'mode' out of section"), "{text}");
}

#[test]
fn mixing_named_and_implicit_use_of_defaults_is_warned_about() {
    let base = "defaults d\n timeout client 1s\n";
    let found = findings(&format!("{base}frontend f from d\n bind :1\nfrontend g\n bind :2\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "5:1 W defaults section 'd' is used explicitly by frontend 'f' and implicitly by frontend 'g'"
        ),
        "{found:?}"
    );
}

#[test]
fn names_that_would_break_what_they_stand_in_are_refused() {
    assert_eq!(
        findings("global\n node a\\ b\nbackend b\n http-send-name-header\n"),
        [
            "2:7 A 'node' expects letters, digits, '.', '-' and '_' only, found 'a b'",
            "4:2 A 'http-send-name-header' expects <name>, found none",
        ]
    );
}

#[test]
fn the_section_default_of_resolvers_is_there_where_something_names_it() {
    let times = "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n";
    let server = " server a app.test:80 resolvers default\n";
    let rule = " http-request do-resolve(txn.ip,default,ipv4) str(app.test)\n";
    for (lines, count) in [(server, 1), (rule, 1), (" server a 127.0.0.1:80\n", 0)] {
        let config = tree(&format!("{times}backend b\n{lines}"));
        assert_eq!(config.resolvers.len(), count, "{lines}");
        assert!(config.resolvers.iter().all(|section| section.system && section.name.bytes() == b"default"));
    }
    let own = tree(&format!("{times}backend b\n{server}resolvers default\n nameserver n 127.0.0.1:53\n"));
    assert_eq!((own.resolvers.len(), own.resolvers[0].system), (1, false));
}

#[test]
fn rules_of_defaults_are_for_one_side_only() {
    let base = "defaults plain\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n mode http\n\
                defaults d from plain\n http-request deny\n";
    let why = |rest: &str, base: &str| -> Vec<String> {
        let found = findings(&format!("{base}{rest}"));
        found.into_iter().filter(|line| line.contains(" A ")).collect()
    };
    let has = "cannot begin with 'defaults d' (t.cfg:6), which has 'http-request deny' (t.cfg:7): ";
    let twice = "a frontend and a backend that both take them would run them twice; \
                 give one of the two sides a 'defaults' section of its own";
    for (rest, expected) in [
        ("frontend f from d\n bind :1\nfrontend g from d\n bind :2\n", vec![]),
        ("backend b from d\nbackend c from d\n", vec![]),
        ("frontend f from d\n bind :1\nbackend b from plain\n", vec![]),
        ("frontend f from d\n bind :1\nbackend b from d\n", vec![format!("10:1 A backend 'b' {has}{twice}")]),
        // Inheriting by position counts as use.
        ("backend b\nfrontend f\n bind :1\n", vec![format!("9:1 A frontend 'f' {has}{twice}")]),
        (
            "listen l from d\n bind :1\n",
            vec![format!(
                "8:1 A listen 'l' {has}they would run for both of its sides; write the rules in the section \
                    itself, or split it \
                 into a frontend and a backend"
            )],
        ),
        (
            "defaults e from d\n",
            vec![format!(
                "8:1 A defaults 'e' {has}rules are not handed on from one 'defaults' section to the next; \
                    let both begin with a \
                 third one that has no rules"
            )],
        ),
    ] {
        assert_eq!(why(rest, base), expected, "{rest}");
    }
    // ACLs and inspection delays are not rules.
    let settings = "defaults d\n acl a src 127.0.0.1\n tcp-request inspect-delay 1s\n";
    assert_eq!(why("listen l from d\n bind :1\ndefaults e from d\n", settings), [""; 0]);
    for (rule, back, reason) in [
        ("tcp-request connection accept", true, "a backend accepts no connections"),
        ("tcp-request session accept", true, "a backend accepts no connections"),
        ("http-request capture src len 8", true, "only frontends have capture slots"),
        ("tcp-response content accept", false, "a frontend receives no bytes from servers"),
    ] {
        let base = format!("defaults d\n mode http\n {rule}\n");
        let (front, behind) = ("frontend f from d\n bind :1\n", "backend b from d\n");
        let (good, bad) = if back { (front, behind) } else { (behind, front) };
        assert_eq!(why(good, &base), [""; 0], "{rule}");
        let found = why(bad, &base);
        assert!(found.len() == 1 && found[0].contains(reason) && found[0].contains("t.cfg:3"), "{found:?}");
    }
}

/// A rule or a backend in HTTP mode makes connections of a frontend in TCP mode change to HTTP: only then its
/// HTTP rules run.
#[test]
fn http_rules_of_a_tcp_frontend_are_ignored_unless_its_connections_change_to_http() {
    let said = |front: &str, kind: &str| {
        findings(&format!(
            "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n{kind} f\n bind :1\n \
             {front}\n http-request deny\n monitor-uri /m\nbackend web\n mode http\nbackend bytes\n"
        ))
        .into_iter()
        .filter(|line| line.contains("needs 'mode http'") || line.contains("'switch-mode http'"))
        .map(|line| line.split_once(" W ").unwrap().1.to_owned())
        .collect::<Vec<_>>()
    };
    let ignored = |kind: &str| {
        let tail = format!("will be ignored for {kind} 'f' (needs 'mode http')");
        vec![format!("'monitor-uri' {tail}"), format!("'http-request' rules {tail}")]
    };
    for front in ["", "default_backend bytes", "use_backend bytes if TRUE"] {
        assert_eq!(said(front, "frontend"), ignored("frontend"), "{front}");
    }
    for front in [
        "default_backend web",
        "use_backend web if TRUE\n default_backend bytes",
        "use_backend %[src]\n default_backend bytes",
        "tcp-request content switch-mode http",
    ] {
        assert_eq!(said(front, "frontend"), [""; 0], "{front}");
    }
    assert_eq!(said("", "listen"), ignored("listen"));
    assert_eq!(
        said("tcp-request content switch-mode http", "listen"),
        ["'switch-mode http' ends connections of listen 'f': HTTP does not go to servers in 'mode tcp'; \
             choose a backend in 'mode http' with 'default_backend' or 'use_backend'"]
    );
    assert_eq!(said("tcp-request content switch-mode http\n use_backend web if TRUE", "listen"), [""; 0]);
}
