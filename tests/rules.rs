//! Rules and conditions, end to end.

use crate::common;

use common::{DEFAULTS, Folder, Manylane, check, connect, fd, listener, named, origin, read_all, watch};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

/// An origin that responds with the request's head and its name.
fn mirror(name: &'static str) -> SocketAddr {
    origin(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let body = format!("{name}\n{}", String::from_utf8_lossy(&head));
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nX-Powered-By: me\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    })
}

/// Response to a request with additional fields `more`.
fn ask(address: SocketAddr, line: &str, more: &str) -> String {
    let mut client = connect(address);
    write!(client, "{line} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{more}\r\n").unwrap();
    read_all(&mut client)
}

fn start(rules: &str) -> (Manylane, SocketAddr, std::net::TcpListener) {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n{rules}\n default_backend main\n\
         backend main\n server s {}\nbackend api\n server s {}\n",
        fd(&socket),
        mirror("main"),
        mirror("api")
    );
    (Manylane::start(&config), address, socket)
}

/// Some clients look for the length of HAProxy's page.
#[test]
fn the_page_for_403_has_93_bytes() {
    let (_program, address, _socket) = start(" http-request deny");
    let answer = ask(address, "GET /", "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("\r\ncontent-length: 93\r\n"), "{head}");
    assert_eq!(body.len(), 93, "{body}");
}

#[test]
fn conditions_choose_the_backend() {
    let (_program, address, _socket) = start(
        " acl api path_beg /api\n acl beta hdr(X-Beta) -i yes\n use_backend api if api !beta or { path \
            /always }\n \
          use_backend %[req.hdr(x-to)] if { req.hdr(x-to) -m found }",
    );
    for (line, more, backend) in [
        ("GET /", "", "main"),
        ("GET /api/x", "", "api"),
        ("GET /api/x", "X-Beta: YES\r\n", "main"),
        ("GET /always", "", "api"),
        ("GET /", "X-To: api\r\n", "api"),
        ("GET /", "X-To: nowhere\r\n", "main"),
    ] {
        let answer = ask(address, line, more);
        assert!(answer.contains(&format!("\r\n\r\n{backend}\n")), "{line} {more}: {answer}");
    }
}

/// Lanes, generations and starts have no UUID in common.
#[test]
fn a_uuid_is_made_once() {
    let (mut all, mut count) = (HashSet::new(), 0);
    let defaults = DEFAULTS.replace("nbthread 2", "nbthread 4");
    for _ in 0..2 {
        let (folder, (socket, address)) = (Folder::new(), listener());
        let cli = folder.0.join("cli");
        let _program = Manylane::start_ready(&format!(
            "global\n stats socket {} level admin\n{defaults} mode http\nfrontend f\n bind {}\n \
             http-request return status 200 content-type text/plain lf-string %[uuid]\nbackend b\n \
             server s 127.0.0.1:1\n",
            cli.display(),
            fd(&socket)
        ));
        for server in ["t", "u"] {
            for _ in 0..32 {
                let answer = ask(address, "GET /", "");
                let uuid = answer.rsplit_once("\r\n\r\n").unwrap().1.to_owned();
                assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{answer}");
                all.insert(uuid);
                count += 1;
            }
            // Each lane evaluates in memory of its own for each generation.
            let said = watch::ask(&cli, &format!("add server b/{server} 127.0.0.1:1"));
            assert!(said.contains("New server registered"), "{said}");
        }
    }
    assert_eq!(all.len(), count);
}

#[test]
fn heads_are_edited() {
    let (_program, address, _socket) = start(
        " http-request set-header X-From %[src]\n http-request add-header X-Two b\n http-request del-header \
            X-Secret\n \
          http-request set-var(txn.old) path\n http-request set-path /new%[path] if { path_beg /old }\n \
          http-request set-query a=%[var(txn.old)] if { var(txn.old) -m found }\n \
          http-response set-header X-Path %[var(txn.old)]\n http-response del-header X-Powered-By\n \
          http-response set-status 201 reason Made if { status 200 }",
    );
    let answer = ask(address, "GET /old/x?q", "X-Secret: s\r\nX-Two: a\r\n");
    assert!(answer.starts_with("HTTP/1.1 201 Made\r\n"), "{answer}");
    let lower = answer.to_lowercase();
    assert!(lower.contains("x-path: /old/x\r\n") && !lower.contains("x-powered-by"), "{answer}");
    assert!(answer.contains("GET /new/old/x?a=/old/x HTTP/1.1\r\n"), "{answer}");
    assert!(
        lower.contains("x-from: 127.0.0.1\r\n")
            && lower.contains("x-two: a\r\n")
            && lower.contains("x-two: b\r\n")
    );
    assert!(!lower.contains("x-secret"), "{answer}");
}

#[test]
fn requests_are_denied_answered_and_redirected() {
    let (_program, address, _socket) = start(
        " http-request deny if { method DELETE }\n http-request deny deny_status 429 if { path /busy }\n \
          http-request return status 200 content-type text/plain lf-string \"hello %[path]\" hdr x-own yes \
          if { path_beg /own }\n \
          http-request redirect scheme https code 301 if { path_beg /secure }\n \
          redirect location /elsewhere if { path /moved }\n redirect location /x code 308 keep-query if { \
          path /kept }\n \
          redirect location \"/x?b#c\" keep-query if { path /both }\n redirect prefix http://other \
          drop-query if { path_beg /prefix }",
    );
    for (line, begin, contains) in [
        ("DELETE /", "HTTP/1.1 403 ", "content-length"),
        ("GET /busy", "HTTP/1.1 429 ", ""),
        ("GET /own/x", "HTTP/1.1 200 ", "\r\n\r\nhello /own/x"),
        ("GET /secure?a=b", "HTTP/1.1 301 ", "location: https://example.org/secure?a=b\r\n"),
        ("GET /moved", "HTTP/1.1 302 ", "location: /elsewhere\r\n"),
        ("GET /kept?a=b&c", "HTTP/1.1 308 ", "location: /x?a=b&c\r\n"),
        ("GET /kept", "HTTP/1.1 308 ", "location: /x\r\n"),
        ("GET /kept?", "HTTP/1.1 308 ", "location: /x\r\n"),
        ("GET /both?a", "HTTP/1.1 302 ", "location: /x?b&a#c\r\n"),
        ("GET /prefix/a?b", "HTTP/1.1 302 ", "location: http://other/prefix/a\r\n"),
        ("GET /fine", "HTTP/1.1 200 ", "main\n"),
    ] {
        let answer = ask(address, line, "");
        assert!(answer.starts_with(begin) && answer.contains(contains), "{line}: {answer}");
    }
}

#[test]
fn connections_are_chosen_by_their_addresses() {
    let (socket, address) = listener();
    let config = |rule: &str| {
        format!(
            "{DEFAULTS}frontend f\n bind {}\n{rule}\n default_backend a\nbackend a\n server s {}\nbackend \
                b\n server s {}\n",
            fd(&socket),
            named("a"),
            named("b")
        )
    };
    for (rule, expected) in [
        (" use_backend b if { src 127.0.0.0/8 }", "b"),
        (" use_backend b if { src 10.0.0.0/8 }", "a"),
        (" tcp-request session reject if { src 127.0.0.1 }", ""),
        (" tcp-request connection accept if { src 127.0.0.1 }\n tcp-request connection reject", "a"),
    ] {
        let _program = Manylane::start(&config(rule));
        assert_eq!(read_all(&mut connect(address)), expected, "{rule}");
    }
    // At this stage a rejected connection costs one packet.
    let _program = Manylane::start(&config(" tcp-request connection reject if { src 127.0.0.1 }"));
    let ended = connect(address).read(&mut [0]).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
}

/// A PROXY protocol header does not hide the addresses of the connection.
#[test]
fn both_ends_of_a_connection_are_shown_behind_a_proxy() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {} accept-proxy\n http-request return status 200 \
            content-type text/plain \
         lf-string \"%[src] %[dst] %[dst_port] %[fc_src] %[fc_dst_port]\"\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    write!(client, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    let expected = format!("\r\n\r\n192.0.2.1 192.0.2.2 2 127.0.0.1 {}", address.port());
    assert!(answer.ends_with(&expected), "{answer}");
}

/// R-G1: nothing is ignored silently.
#[test]
fn what_would_have_no_effect_is_refused_by_name() {
    for (mode, line, name) in [
        ("tcp", " tcp-request content use-service lua.x", "tcp-request content use-service"),
        ("tcp", " log stderr format raw local0\n log-format \"%[req.payload(0,1)]\"", "req.payload"),
        ("http", " http-request send-spoe-group x y", "http-request send-spoe-group"),
        ("http", " http-request add-map(/dev/null) a b", "http-request add-map"),
        ("http", " http-request set-header x %[src,debug]", "debug"),
    ] {
        let config = format!(
            "{DEFAULTS} mode {mode}\nfrontend f\n bind :80\n default_backend b\n{line}\nbackend b\n server s \
                127.0.0.1:1\n"
        );
        let outcome = check(&config, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(1), "{line}: {said}");
        assert!(
            said.contains(&format!("'{name}")) && said.contains("that this program refuses"),
            "{line}: {said}"
        );
    }
    // What exists is accepted.
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind :80\n log stderr format raw local0\n log-format \
            \"%[capture.req.uri] %[status]\"\n \
         http-request deny if WAIT_END {{ fc_src 10.0.0.0/8 }} HTTP\n \
         http-request set-header x %[unique-id]%[capture.req.uri]\n http-response deny if {{ res.body_len gt \
         10 }}\n default_backend b\nbackend b\n server s 127.0.0.1:1\n"
    );
    let outcome = check(&config, &[]);
    assert_eq!(outcome.status.code(), Some(0), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn mistakes_in_rules_are_reported_with_their_position() {
    for (line, column, part) in [
        (" acl a pth_beg /x", 8, "path_beg"),
        (" http-request set-header x %[srcc]", 30, "src"),
        (" use_backend b if nothing", 19, "nothing"),
        (" http-request set-fc-tos 0x100", 26, "a number from 0 to 255"),
        (" http-request set-fc-mark 5000000000", 27, "a number from 0 to 4294967295"),
        (" http-request set-bc-mark", 15, "expects <number>|<expression>, found none"),
        (" http-request set-bc-tos nosuch", 26, "nosuch"),
        (
            " http-request add-header X-Foo",
            15,
            "'http-request add-header' expects <name> <format>, found 1 argument",
        ),
        (" http-request set-path", 15, "'http-request set-path' expects <format>, found none"),
        (
            " http-request set-map(/dev/null) a",
            15,
            "'http-request set-map' expects (<file>) <key> <value>, found 1",
        ),
        (" acl a path_reg ^/(foo|bar[", 27, "this regular expression is refused: unclosed character class"),
        (" acl a path_reg a{3,1}", 18, "the repetition {3,1} has a minimum above its maximum"),
        (" http-request replace-path a(b x", 29, "this regular expression is refused: unclosed group"),
        (" redirect location /x keep-qury", 23, "did you mean 'keep-query'?"),
        (" redirect location /x y", 23, "'redirect' expects location, "),
        (
            " http-request silent-drop rst-ttl 0",
            35,
            "expects a number from 1 to 255 behind 'rst-ttl', found '0'",
        ),
        (" http-response silent-drop hops", 28, "expects [rst-ttl <hops>], found 1 argument"),
        (" tcp-request connection silent-drop rst-ttl", 37, "expects [rst-ttl <hops>], found 1 argument"),
        (" http-request set-retries 1", 2, "expects a backend, found a frontend; move the rule to a backend"),
        (" http-request set-timeout quue 1s", 27, "expects client, connect, queue, server, tarpit or tunnel"),
        (
            " tcp-request content do-log now",
            29,
            "'tcp-request content do-log' expects no argument, found 1 argument",
        ),
        (
            " http-request return status 204 content-type a string b",
            48,
            "expects no body with status 204, found 'string'",
        ),
        (" http-request deny status 403 string b", 31, "expects a 'content-type'"),
        (" http-error status 403 lf-string b", 24, "expects a 'content-type'"),
        (
            " http-request return content-type a string b file c",
            46,
            "expects one answer, found 'string' and 'file'",
        ),
        (" http-request return content-type a string \"\"", 37, "expects a value"),
        (
            " http-request send-spoe-group x y",
            15,
            "'http-request send-spoe-group' is an action of HAProxy that this program refuses",
        ),
    ] {
        let outcome = check(
            &format!(
                "{DEFAULTS} mode http\nfrontend f\n bind :80\n default_backend b\n{line}\nbackend b\n server \
                    s 127.0.0.1:1\n"
            ),
            &[],
        );
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains(&format!(":{column}\n  ")) && said.contains(part), "{line}: {said}");
    }
}

/// Backends that use a `defaults` section differ, so a server in it is named with its backend (item 12 of
/// haproxy-today).
#[test]
fn a_server_in_named_defaults_is_named_with_its_backend() {
    for (line, code) in [
        (" http-response set-header x %[srv_conn(b/www)]", Some(0)),
        (" http-response set-header x %[srv_conn(www)]", Some(1)),
        (" acl up srv_is_up(www)", Some(0)),
        (" acl up srv_is_up(www)\n http-response set-header x y if up", Some(1)),
        (" acl up srv_is_up(b/www)", Some(0)),
        (" acl any nbsrv ge 1", Some(0)),
        (" http-response set-header x y if { srv_queue(www) gt 1 }", Some(1)),
        (" log-format %[srv_conn(b/www)]", Some(0)),
    ] {
        let times = " mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n";
        let config = format!(
            "defaults e\n{times}frontend f from e\n bind 127.0.0.1:81\n default_backend b\n\
                defaults d\n{times}{line}\nbackend b from d\n server www 127.0.0.1:82\n \
                http-request set-header x %[srv_conn(www)]\n"
        );
        let outcome = check(&config, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), code, "{line}: {said}");
        let sentence = "expects <backend>/<server> in a 'defaults' section as argument 1, found 'www'";
        assert_eq!(said.contains(sentence), code == Some(1), "{line}: {said}");
        if let Some(haproxy) = watch::Haproxy::program() {
            let folder = Folder::new();
            let file = folder.file("theirs.cfg", &config);
            let theirs = std::process::Command::new(haproxy).arg("-c").arg("-f").arg(file).output().unwrap();
            assert_eq!(theirs.status.code(), code, "{line}: {}", String::from_utf8_lossy(&theirs.stderr));
        }
    }
}

/// Items 35 and 37 of haproxy-today: a frontend's rules about servers apply to its own servers only.
#[test]
fn timeouts_that_rules_set_are_of_their_own_servers() {
    let (socket, address) = listener();
    let server = mirror("s");
    let times = "%[cur_client_timeout] %[cur_connect_timeout] %[cur_queue_timeout] %[cur_server_timeout] \
                 %[cur_tarpit_timeout] %[cur_tunnel_timeout] %[cur_max_retries]";
    let own = "%[fe_client_timeout] %[be_connect_timeout] %[be_queue_timeout] %[be_server_timeout] \
               %[be_tarpit_timeout] %[be_tunnel_timeout] %[be_max_retries]";
    let of = ["client", "connect", "queue", "server", "tarpit", "tunnel"];
    let set: String =
        (21..).zip(of).map(|(n, of)| format!(" http-request set-timeout {of} {n}s\n")).collect();
    let reported =
        format!(" http-response set-header x-times \"{times}\"\n http-response set-header x-own \"{own}\"\n");
    let _program = Manylane::start_ready(&format!(
        "defaults\n mode http\n timeout client 11s\n timeout connect 12s\n timeout queue 13s\n \
         timeout server 14s\n timeout tarpit 15s\n timeout tunnel 16s\n retries 7\n\
         listen l\n bind {}\n{set} http-request set-retries int(5)\n use_backend other if {{ path /other }}\n\
         {reported} server s {server}\n\
         backend other\n{reported} server s {server}\n",
        fd(&socket),
    ));
    let own = "x-own: 11000 12000 13000 14000 15000 16000 7";
    let held = ask(address, "GET /here", "");
    assert!(held.contains("x-times: 21000 22000 23000 24000 25000 26000 5") && held.contains(own), "{held}");
    let lost = ask(address, "GET /other", "");
    assert!(lost.contains("x-times: 21000 12000 13000 14000 25000 16000 7") && lost.contains(own), "{lost}");
}

/// The timeouts of the rules apply: the configured ones would outlast the test.
#[test]
fn timeouts_that_rules_set_are_waited_for() {
    let (socket, address) = listener();
    let (silent, silent_at) = listener();
    let _program = Manylane::start_ready(&format!(
        "defaults\n mode http\n timeout client 1h\n timeout connect 1h\n timeout queue 1h\n \
         timeout server 1h\n timeout tarpit 1h\n\
         frontend f\n bind {}\n http-request set-timeout tarpit 1ms\n \
         http-request tarpit if {{ path /tarpit }}\n default_backend b\n\
         backend b\n http-request set-timeout queue 1ms\n server s {silent_at} maxconn 1\n",
        fd(&socket),
    ));
    assert!(ask(address, "GET /tarpit", "").starts_with("HTTP/1.1 500"));
    let mut held = connect(address);
    held.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (_taken, _) = silent.accept().unwrap();
    assert!(ask(address, "GET /queued", "").starts_with("HTTP/1.1 503"));
}

/// HAProxy refuses these, too, since they have no effect.
#[test]
fn what_names_something_that_is_not_there_is_refused() {
    for (lines, said) in [
        (" http-request capture path id 3", "expects the id of a slot, found 3: the highest id is 0"),
        (
            " http-response capture hdr(a) id 0",
            "expects the id of a slot, found 0: no slot is declared; add one with 'declare capture'",
        ),
        (" http-request deny deny_status 299", "expects a status that has an error page, found 299"),
        (
            " http-error status 299 content-type a string b",
            "expects a status that has an error page, found 299",
        ),
        (
            " bind 127.0.0.1:81 id 7\n bind 127.0.0.1:82 id 7",
            "'id' expects a number of its own, found 7, which another listener has",
        ),
    ] {
        let config = format!(
            "{DEFAULTS} mode http\nfrontend f\n bind 127.0.0.1:80\n capture request header a len 3\n \
                default_backend b\n{lines}\nbackend b\n server s 127.0.0.1:1\n"
        );
        let outcome = check(&config, &[]);
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(
            outcome.status.code() == Some(1) && text.contains(said) && text.contains("test.cfg:"),
            "{lines}: {text}"
        );
        let outcome = check(&config, &["-q"]);
        assert_eq!((outcome.status.code(), outcome.stderr.len()), (Some(1), 0), "{lines}");
    }
}

#[test]
fn a_pause_holds_a_request_and_a_response() {
    let (_program, address, _socket) = start(
        " http-request set-var(txn.t) date(0,ms)\n http-request pause 150\n \
          http-request set-header X-Held %[date(0,ms),sub(txn.t)]\n \
          http-response set-var(txn.t) date(0,ms)\n http-response pause int(120)\n \
          http-response set-header X-Held-Back %[date(0,ms),sub(txn.t)]",
    );
    let answer = ask(address, "GET /", "");
    let held = |name: &str| -> u64 {
        let line = answer.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {answer}")).trim().parse().unwrap()
    };
    // A pause counts from the start of the lane's round, which may be earlier than the rule on a busy
    // machine.
    assert!(held("X-Held:") >= 50, "{answer}");
    assert!(held("X-Held-Back:") >= 50, "{answer}");
}

/// Settings of connection rules apply to each request.
#[test]
fn what_a_rule_of_the_connection_set_is_there_for_each_request() {
    let (_program, address, _socket) = start(
        " tcp-request connection set-src str(192.0.2.5),ipmask(32)\n tcp-request session set-var(sess.n) \
            int(7)\n \
          http-request set-header X-Who \"%[src] %[var(sess.n)]\"",
    );
    for _ in 0..2 {
        let answer = ask(address, "GET /", "");
        assert!(answer.contains("X-Who: 192.0.2.5 7\r\n"), "{answer}");
    }
}

/// Response on a kept connection.
fn ask_on(client: &mut std::net::TcpStream, more: &str) -> String {
    write!(client, "GET / HTTP/1.1\r\nHost: example.org\r\n{more}\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or_else(|| panic!("no length: {head}"))];
    client.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// An idle session keeps its own data between two requests.
#[test]
fn an_idle_session_keeps_its_addresses_and_variables_and_gets_nothing_of_others() {
    let (_program, address, _socket) = start(
        " tcp-request connection expect-proxy layer4\n \
          http-request set-header X-Who \"%[src] [%[var(sess.n)]] [%[var(txn.n)]]\"\n \
          http-request set-src req.hdr(x-src) if { req.hdr(x-src) -m found }\n \
          http-request set-var(sess.n) req.hdr(x-n) if { req.hdr(x-n) -m found }\n \
          http-request set-var(txn.n) str(here)",
    );
    let mut clients: Vec<_> = (1..=3)
        .map(|n| {
            let mut client = connect(address);
            write!(client, "PROXY TCP4 192.0.2.{n} 192.0.2.9 1000 80\r\n").unwrap();
            client
        })
        .collect();
    let names = ["one", "a second that is longer", ""];
    for round in 0..3 {
        for (n, client) in clients.iter_mut().enumerate() {
            let more = match (round, names[n]) {
                (0, "") => "X-Src: 198.51.100.1\r\n".to_owned(),
                (0, name) => format!("X-Src: 198.51.100.1\r\nX-N: {name}\r\n"),
                _ => String::new(),
            };
            let known = if round == 0 { "" } else { names[n] };
            let answer = ask_on(client, &more);
            let wanted = format!("X-Who: 192.0.2.{} [{known}] []\r\n", n + 1);
            assert!(answer.contains(&wanted), "{wanted} in {answer}");
        }
    }
}

/// A long list of rules is evaluated in parts; other tasks of the lane run between them.
#[test]
fn long_lists_of_rules_are_examined_in_turns() {
    let server = mirror("s");
    let polls = |mode: &str, list: &str, at_once: u32| {
        let (socket, address) = listener();
        let folder = Folder::new();
        let control = folder.0.join("cli");
        let rules = format!(" {list} set-var(txn.n) int(1)\n").repeat(120);
        let _program = Manylane::start_ready(&format!(
            "global\n nbthread 1\n stats socket {} level admin\n profiling.tasks on\n \
             tune.max-rules-at-once {at_once}\ndefaults\n mode {mode}\n timeout client 30s\n \
             timeout server 30s\n timeout connect 5s\nlisten l\n bind {}\n{rules} server s {server}\n",
            control.display(),
            fd(&socket)
        ));
        assert!(ask(address, "GET /", "").starts_with("HTTP/1.1 200 "));
        let table = watch::ask(&control, "show profiling tasks");
        let row = table.lines().find(|line| line.trim_start().starts_with("session ")).unwrap().to_owned();
        row.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    for (mode, list) in [
        ("http", "http-request"),
        ("http", "http-response"),
        ("http", "tcp-request content"),
        ("http", "tcp-response content"),
        ("tcp", "tcp-request content"),
        ("tcp", "tcp-response content"),
    ] {
        // What a transfer takes of polls varies by a few.
        let (one, all) = (polls(mode, list, 1), polls(mode, list, 1000));
        assert!(one >= all + 100, "{mode} {list}: {one} {all}");
    }
}

/// HAProxy lets 10 pass. On a busy machine it may be some more, if these span more than a second; by the rate
/// of the previous second, all of a second's would pass.
#[test]
fn a_burst_is_stopped_by_the_rate_of_its_own_second() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n http-request deny if {{ fe_req_rate gt 10 }}\n \
            http-request return status 200\n",
        fd(&socket)
    ));
    let passes = || {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let answer = read_all(&mut client);
        assert!([" 200 ", " 403 "].contains(&&answer[8..13]), "{answer}");
        answer[8..13] == *" 200 "
    };
    let passed = (0..200).take_while(|_| passes()).count();
    assert!((10..100).contains(&passed), "{passed}");
}

#[test]
fn rules_see_rates_of_frontends_backends_and_servers() {
    let server = origin(|mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let (socket, address) = listener();
    let shown =
        "\"%[fe_req_rate(f)] %[fe_sess_rate(f)] %[be_sess_rate(b)] %[srv_sess_rate(b/s)] %[avg_queue(b)]\"";
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n http-response set-header x-rates {shown}\n \
            default_backend b\nbackend b\n server s {server}\n",
        fd(&socket)
    ));
    let begin = std::time::Instant::now();
    loop {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let answer = read_all(&mut client);
        let rates = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-rates: "))
            .unwrap_or_else(|| panic!("{answer}"));
        let numbers: Vec<u64> = rates.split(' ').map(|number| number.parse().unwrap()).collect();
        if numbers[..4].iter().all(|rate| *rate > 0) && numbers[4] == 0 {
            return;
        }
        assert!(begin.elapsed() < common::TIMEOUT, "{numbers:?}");
    }
}

/// Values that rules replace are freed while requests go on, also beside a lane that has nothing to do.
#[test]
fn values_that_rules_replace_are_freed_meanwhile() {
    const REQUESTS: usize = 8_000;
    /// Limit for the additional memory, in kilobytes: 256 values have 2 MB, and those of a round of the lanes
    /// as much again. The values of all requests have 64 MB.
    const MOST: usize = 4 << 10;
    let (folder, (socket, address)) = (Folder::new(), listener());
    let map = folder.file("map", "a b\n");
    for rule in [format!("set-map({}) a %[path]", map.display()), "set-var(proc.a) path".to_owned()] {
        let program = Manylane::start_ready(&format!(
            "{} mode http\nlisten l\n bind {}\n http-request {rule}\n http-request return status 200 hdr X \
             %[str(none),map({})]%[var(proc.a),length]\n",
            common::measured(),
            fd(&socket),
            map.display()
        ));
        let mut client = BufReader::new(connect(address));
        let long = "x".repeat(8_000);
        let mut asks = |count: usize| {
            for number in 0..count {
                let request = format!("GET /{number}{long} HTTP/1.1\r\nHost: a\r\n\r\n");
                client.get_mut().write_all(request.as_bytes()).unwrap();
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert!(client.read_line(&mut head).unwrap() > 0, "it closes");
                }
            }
        };
        asks(500);
        let before = program.memory();
        asks(REQUESTS);
        let after = program.memory();
        println!("{rule}: {before} KB have become {after} KB");
        assert!(after <= before + MOST, "{rule}: {before} KB have become {after} KB");
    }
}
