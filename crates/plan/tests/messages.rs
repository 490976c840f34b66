//! Messages about mistakes that only a compiled configuration shows, compared with `messages.txt`.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;

/// A file with `lines` in this section; ` / ` separates lines.
fn file(section: &str, lines: &str) -> String {
    let lines = format!(" {}\n", lines.replace(" / ", "\n "));
    let of = |name: &str| if name == section { lines.as_str() } else { "" };
    format!(
        "global\n{}defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
            resolvers r\n{} nameserver n 127.0.0.1:53\nfrontend f\n bind 127.0.0.1:1\n default_backend b\n{}\
            backend b\n server s 127.0.0.1:2 check\n{}",
        of("global"),
        of("resolvers"),
        of("frontend"),
        of("backend"),
    )
}

/// Alerts and warnings, each with its column.
fn said(text: String) -> String {
    let mut sources = Sources::new();
    sources.add("test.cfg", text).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    let said = loaded.found.found().iter().filter(|one| one.severity != Severity::Notice);
    let said = said.map(|one| format!("{}: {}", one.pos.map_or(0, |pos| pos.column), one.message));
    said.collect::<Vec<_>>().join(" | ")
}

#[test]
fn each_mistake_is_reported_by_what_was_expected_and_what_was_found() {
    let (mut section, mut count, mut wrong) = ("", 0, Vec::new());
    for line in include_str!("messages.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some((lines, expected)) = line.split_once(" => ") {
            let said = said(file(section, lines));
            if said != expected {
                wrong.push(format!("{lines} => {said}"));
            }
            count += 1;
        }
    }
    assert!(count > 0 && wrong.is_empty(), "{count} lines, these are otherwise:\n{}", wrong.join("\n"));
}

/// What a check sends may be a password, in whatever way its line is wrong.
#[test]
fn no_message_shows_what_a_check_sends() {
    for lines in [
        "option httpchk / http-check send meth POST uri /login bdoy user=a&pw=c2VjcmV0",
        "option httpchk / http-check send hdr Authorization Basic c2VjcmV0",
        "option httpchk / http-check send body pw: c2VjcmV0",
        "option httpchk / http-check send ver 'HTTP/1.1 c2VjcmV0'",
        "option httpchk GET /x \"HTTP/1.1\\r\\nAuthorization: Basic c2VjcmV0\"",
        "option tcp-check / tcp-check send AUTH c2VjcmV0",
        "option tcp-check / tcp-check send-lf AUTH c2VjcmV0",
        "option tcp-check / tcp-check send-binary c2VjcmV0",
        "option tcp-check / tcp-check send-binary 00 c2VjcmV0",
    ] {
        let said = said(file("backend", lines));
        assert!(!said.is_empty() && !said.contains("c2VjcmV0"), "{lines}: {said}");
        assert!(!said.contains(" | "), "one message is enough for {lines}: {said}");
    }
}

/// A refused line declares its name: what uses the name is not reported too.
#[test]
fn what_uses_a_refused_declaration_is_not_reported() {
    const DEFAULTS: &str =
        "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    let table = "http-request track-sc0 src table b\n http-request deny if { src_conn_rate(b) gt 1 }\n \
        http-request set-header a %[src,table_conn_rate(b)]\n filter bwlim-in l limit 1k key src table b";
    let mut wrong = Vec::new();
    for (front, back, other, once) in [
        (table, "stick-table type ip size 10 store conn_rat(1s)\n stick on src", "", "conn_rat"),
        (table, "stick-table type ip size 10x store conn_rate(1s)", "", "size"),
        (table, "stick-table type ipv9 size 10 store conn_rate(1s)", "", "ipv9"),
        (table, "stick-table type ip", "", "stick-table"),
        (table, "stik-table type ip size 10", "", "stik-table"),
        (
            "http-request track-sc0 src table p/t",
            "",
            "peers p\n peer n 127.0.0.1:1\n table t type ip size 10x\n",
            "10x",
        ),
        (
            "http-request track-sc0 src table p/t",
            "",
            "peers p\n peer n 127.0.0.1:1\n table t type ip\n",
            "'table'",
        ),
        ("", "stick-table type ip size 10 peers p", "peers p x\n peer n 127.0.0.1:1\n", "'x'"),
        ("", "stick-table type ip size 10 peers p", "peers p\n peer n 127.0.0.1:x\n", "127.0.0.1:x"),
        ("use_backend c", "", "backend c x\n", "'x'"),
        ("http-request set-header a %[nbsrv(c)]", "", "bakend c\n server s 127.0.0.1:3\n", "bakend"),
        ("http-request set-header a %[srv_conn(b/t)]", "server t 127.0.0.1:x", "", "127.0.0.1:x"),
        ("http-request set-header a %[srv_conn(b/t)]", "sever t 127.0.0.1:4", "", "sever"),
        (
            "",
            "server t 127.0.0.1:4 chekc\n server u 127.0.0.1:5 track b/t\n use-server t if TRUE",
            "",
            "chekc",
        ),
        ("", "server t\n server u 127.0.0.1:5 track t\n use-server t if TRUE", "", "server"),
        ("", "server t 127.0.0.1:x check\n server u 127.0.0.1:5 track b/t", "", "127.0.0.1:x"),
        (
            "http-request auth unless { http_auth(l) }",
            "",
            "userlist l x\n user a insecure-password x\n",
            "'x'",
        ),
        (
            "http-request auth unless { http_auth(l) }",
            "",
            "userlst l\n user a insecure-password x\n",
            "userlst",
        ),
        ("", "", "userlist l\n user a pasword x groups g\n group g users a\n", "pasword"),
        ("", "", "userlist l\n user a insecure-password x groups g\n group g user a\n", "group"),
        ("http-request auth unless { http_auth_group(l) g }", "", "userlist l\n group g x\n", "group"),
        (
            "",
            "server t x.org:1 resolvers q init-addr none",
            "resolvers q x\n nameserver a 127.0.0.1:53\n",
            "'x'",
        ),
        (
            "",
            "server t x.org:1 resolvers q init-addr none",
            "resolvers q\n nameserver a 127.0.0.1:x\n",
            "nameserver",
        ),
        (
            "http-request do-resolve(txn.a,q) str(a)",
            "",
            "resolver q\n nameserver a 127.0.0.1:53\n",
            "'resolver'",
        ),
        ("log ring@q local0", "", "ring q x\n size 20000\n", "'x'"),
        ("log ring@q local0", "", "rng q\n size 20000\n", "rng"),
        ("log ring@q local0", "", "ring q\n size many\n", "size"),
        ("log 127.0.0.1:514 profile q local0", "", "log-profile q\n on nothing format x\n", "on"),
        ("log 127.0.0.1:514 profile q local0", "", "log-profil q\n", "log-profil"),
        ("errorfiles q", "", "http-errors q x\n", "'x'"),
        ("errorfiles q 404", "", "http-errors q\n errorfile 404 /no/such\n", "/no/such"),
        ("errorfiles q", "", "http-erors q\n", "http-erors"),
        ("capture request header a len x\n http-request set-header a %[capture.req.hdr(0)]", "", "", "len"),
        ("declare capture request len x\n http-request capture src id 0", "", "", "len"),
        ("acl a pth /\n http-request deny if a", "", "", "pth"),
        ("acl a -q path /\n http-request deny if a", "", "", "acl"),
        ("acl a\n http-request deny if a", "", "", "acl"),
        ("alc a path /\n http-request deny if a", "", "", "alc"),
        (
            "filter bwlim-out l default-limit x default-period 1s\n http-response set-bandwidth-limit l",
            "",
            "",
            "x",
        ),
        ("filter bwlim-out l\n http-response set-bandwidth-limit l", "", "", "filter"),
        ("", "server t 127.0.0.1:3 check healthcheck h", "healthcheck h\n type htp\n", "type"),
        ("", "server t 127.0.0.1:3 check healthcheck h", "healthcheck h x\n type tcp-check\n", "'x'"),
        (
            "",
            "email-alert mailers m\n email-alert from a@b\n email-alert to a@b",
            "mailers m\n mailer a 127.0.0.1:x\n",
            "mailer",
        ),
        ("bind 127.0.0.1:3 ssl crt @s/c", "", "crt-store s\n load crt /no/such alias c\n", "/no/such"),
        ("bind 127.0.0.1:3 ssl crt @s/c", "", "crt-store s\n load alias c\n", "load"),
        ("bind 127.0.0.1:3 ssl crt @s/c", "", "crt-store s\n load crt a.pem alias c watchh\n", "load"),
        ("use_backend c", "", "backend c\n server t 127.0.0.1:x\n", "127.0.0.1:x"),
        ("use_backend c/d", "", "backend c/d\n", "c/d"),
        ("", "", "frontend g :81\n default_backend b\n", "write 'bind :81' in a line of its own"),
    ] {
        let said = said(format!(
            "global\n localpeer n\n{DEFAULTS}frontend f\n bind 127.0.0.1:1\n default_backend b\n {front}\n\
                backend b\n \
                server s 127.0.0.1:2\n {back}\n{other}"
        ));
        let all = said.split(" | ").filter(|one| !one.contains("sends mails here"));
        if all.count() != 1 || !said.contains(once) {
            wrong.push(format!("{front} / {back} / {other}\n    => {}", said.replace(" | ", "\n    => ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A refused line declares its name in its own section only: in another one the name is still unknown.
#[test]
fn a_refused_declaration_hides_no_mistake_of_another_section() {
    const START: &str = "global\n localpeer n\ndefaults\n mode http\n timeout client 1s\n \
        timeout server 1s\n timeout connect 1s\nfrontend f\n bind 127.0.0.1:1\n default_backend a\n";
    let mut wrong = Vec::new();
    for (front, other, both) in [
        ("bind 127.0.0.1:3 ssl crt @b/typo", "crt-store s\n load crt a.pem watchh\n", ["watchh", "@b/typo"]),
        ("bind 127.0.0.1:3 ssl crt @b/typo", "crt-store s\n load crt /no/a\n", ["/no/a", "@b/typo"]),
        ("bind 127.0.0.1:3 ssl crt @s/typo", "crt-store s\n load crt /no/a alias c\n", ["/no/a", "@s/typo"]),
        (
            "bind 127.0.0.1:3 ssl crt @s/c crt /no/b",
            "crt-store s\n load crt /no/a alias c\n",
            ["/no/a", "/no/b"],
        ),
        (
            "",
            "global\n group g extra\nuserlist l\n user u insecure-password x groups g\n",
            ["2 arguments", "group g"],
        ),
        (
            "",
            "userlist a\n user u insecure-password x groups g\nuserlist b\n group g x\n",
            ["'x'", "add 'group g'"],
        ),
        ("", "userlist a\n group g users u\nuserlist b\n user u passwrd x\n", ["passwrd", "add 'user u'"]),
        (
            "http-request deny if { http_auth_group(a) g }",
            "userlist a\n user u insecure-password x\nuserlist b\n group g x\n",
            ["'x'", "'g'"],
        ),
        (
            "",
            "backend b\n server s 127.0.0.1:3\n server t 127.0.0.1:4 track b/s\n\
                backend c\n server s 127.0.0.1:5 chekc\n",
            ["chekc", "add 'check'"],
        ),
        ("acl a pth /", "frontend g\n bind 127.0.0.1:3\n http-request deny if a\n", ["pth", "'a'"]),
        (
            "http-request track-sc0 src table p/t",
            "peers p\n peer n 127.0.0.1:4\npeers q\n peer n 127.0.0.1:5\n table t type ip size 10x\n",
            ["10x", "p/t"],
        ),
        ("", "peers p\n peer m 127.0.0.1:4\npeers q\n peer n 127.0.0.1:x\n", ["127.0.0.1:x", "peers 'p'"]),
    ] {
        let text = format!("{START} {front}\nbackend a\n server s 127.0.0.1:2\n{other}");
        let said = said(text);
        if said.split(" | ").count() != 2 || !both.iter().all(|part| said.contains(part)) {
            wrong.push(format!("{front} / {other}\n    => {}", said.replace(" | ", "\n    => ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
