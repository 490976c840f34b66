//! `manylane explain` and `manylane test`: their reports about rules match what the program does.

use crate::common;

use common::{DEFAULTS, Folder, Manylane, command, connect, fd, listener, origin, read_all};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Output, Stdio};

/// An origin that answers with its name and the head that it received.
fn mirror(name: &'static str) -> SocketAddr {
    origin(move |mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let body = format!("{name}\n{}", String::from_utf8_lossy(&head));
        let length = body.len();
        let _ =
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    })
}

fn run(words: &[&str], input: &str) -> Output {
    let mut program = command();
    program.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let _ = program.stdin.take().unwrap().write_all(input.as_bytes()); // the program may not read it
    program.wait_with_output().unwrap()
}

/// The report of `manylane test --json`, and its exit code.
fn test(file: &Path, words: &[&str]) -> (Value, Option<i32>) {
    let output = run(&[&["test", "--json", file.to_str().unwrap()], words].concat(), "");
    let said = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (value, output.status.code())
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

/// The outcomes of the rules in the lines that contain `text`.
fn outcomes<'v>(report: &'v Value, text: &str) -> Vec<&'v str> {
    let rules = report["rules"].as_array().unwrap().iter();
    let has = rules.filter(|rule| rule["text"].as_str().is_some_and(|own| own.contains(text)));
    has.map(|rule| rule["outcome"].as_str().unwrap()).collect()
}

const RULES: &str = "
 acl api path_beg /api
 http-request set-var(txn.kind) str(api) if api
 http-request set-var(txn.kind) str(page) unless api
 http-request deny deny_status 429 if { path /deny } { src 127.0.0.0/8 }
 acl tea path /tea
 http-request return status 418 content-type text/plain lf-string \"%[path]\" hdr x-made by-rule if tea
 http-request redirect prefix https://b.test code 308 if { hdr(host) -i old.test }
 http-request auth realm x if { path /auth } !{ http_auth(users) }
 http-request set-header x-kind %[var(txn.kind)]
 http-request add-header x-body %[req.body,length] if { method POST }
 http-request del-header x-secret
 http-request replace-path /v1(/.*) \\1 if { path_beg /v1/ }
 http-request set-query a=b if { query -m len 0 }
 http-request reject if { path /gone }
 http-request set-header content-length 3 if { path /other-length }
 http-request allow if { path /allowed }
 http-request set-header x-last yes
 http-after-response set-header x-after %[status]
 use_backend api if api
 use_backend %[req.hdr(x-to)] if { req.hdr(x-to) -m found }
 default_backend main
";

/// Each request goes through the program, and through its report.
#[test]
fn what_is_said_of_a_request_is_what_the_program_does() {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nuserlist users\n user ann insecure-password secret\nfrontend www\n bind {}\n \
         option forwardfor\n{RULES}\
         backend main\n cookie SRV insert indirect\n http-request set-header x-backend main\n http-request \
         deny if {{ path_end .bak }}\n use-server b if {{ hdr(x-server) b }}\n balance uri\n server a {} \
         cookie \
         a\n server b {} cookie b\n\
         backend api\n option httpclose\n http-send-name-header x-server-name\n server only {}\n",
        fd(&socket),
        mirror("main/a"),
        mirror("main/b"),
        mirror("api/only"),
    );
    let folder = Folder::new();
    let file = folder.file("haproxy.cfg", &config);
    let _program = Manylane::start(&config);
    let users = "Authorization: Basic YW5uOnNlY3JldA==";
    let requests: &[(&str, &str, &[&str])] = &[
        ("GET", "/", &[]),
        ("GET", "/?q", &["X-Secret: 1", "x-secret: 2"]),
        ("GET", "/api/x", &[]),
        ("POST", "/api/x", &["Content-Length: 0"]),
        ("GET", "/deny", &[]),
        ("GET", "/tea", &[]),
        ("GET", "/any?x=1", &["Host: old.test"]),
        ("GET", "/auth", &[]),
        ("GET", "/auth", &[users]),
        ("GET", "/v1/users", &[]),
        ("GET", "/allowed", &["X-To: api"]),
        ("GET", "/x.bak", &[]),
        ("GET", "/other", &["X-To: nowhere"]),
        ("GET", "/other", &["X-Server: b"]),
        ("GET", "/other", &["Cookie: a=1; SRV=a; z=2"]),
        ("GET", "/other", &["Cookie: SRV=b"]),
        ("GET", "/hashed/1", &[]),
        ("GET", "/hashed/2", &[]),
        ("GET", "/gone", &[]),
        ("GET", "/other-length", &[]),
        ("G[T", "/", &[]),
    ];
    for (method, path, fields) in requests {
        let mut fields = fields.to_vec();
        if !fields.iter().any(|field| field.starts_with("Host:")) {
            fields.insert(0, "Host: www.test");
        }
        let head = format!("{method} {path} HTTP/1.1\r\n{}\r\n\r\n", fields.join("\r\n"));
        let mut client = connect(address);
        client.write_all(head.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let came = read_all(&mut client);
        let words = format!("{method} {path}");
        let mut arguments = vec!["--frontend", "www", "--src", "127.0.0.1", &words];
        fields.iter().for_each(|field| arguments.extend(["-H", field]));
        let (report, code) = test(&file, &arguments);
        let result = &report["result"];
        let kind = result["kind"].as_str().unwrap();
        assert!(report["certain"].as_bool().unwrap(), "{words}: {report:#}");
        assert_eq!(code, Some(if kind == "closed" { 2 } else { 0 }), "{words}");
        match kind {
            "closed" => assert_eq!(came, "", "{words}: {report:#}"),
            "answer" => {
                let status = came.split(' ').nth(1).map(|status| status.parse::<u64>().unwrap());
                assert_eq!(result["status"].as_u64(), status, "{words}: {came}\n{report:#}");
                for line in strings(&result["head"]) {
                    assert!(came.contains(&format!("{line}\r\n")), "{words}: {line} is not in {came}");
                }
            }
            _ => {
                let (_, body) = came.split_once("\r\n\r\n").unwrap();
                let (server, head) = body.split_once('\n').unwrap();
                let (backend, server) = server.split_once('/').unwrap();
                assert_eq!(result["backend"], backend, "{words}: {report:#}");
                let servers: Vec<_> = result["servers"].as_array().unwrap().iter().collect();
                assert_eq!(servers.len(), 1, "{words}: {result}");
                assert_eq!(servers[0]["name"], server, "{words}: {report:#}");
                let head: Vec<&str> = head.split("\r\n").filter(|line| !line.is_empty()).collect();
                assert_eq!(strings(&report["request"]), head, "{words}: {report:#}");
            }
        }
    }
}

#[test]
fn what_a_dry_run_cannot_know_is_said_and_passed_over() {
    let folder = Folder::new();
    let file = folder.file(
        "haproxy.cfg",
        "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
         frontend www\n bind 127.0.0.1:8080\n\
         stick-table type ip size 10 store http_req_rate(1s)\n\
         tcp-request connection reject if { src 192.0.2.66 }\n\
         http-request track-sc0 src\n\
         http-request deny if { path /known } || { sc_http_req_rate(0) gt 100 }\n\
         http-request deny if { path /no } { sc_http_req_rate(0) gt 100 }\n\
         http-request set-var(txn.rate) sc_http_req_rate(0)\n\
         http-request set-header x-rate %[var(txn.rate)]\n\
         http-request deny if { var(txn.rate),mul(2) gt 5 }\n\
         use_backend spare if { nbsrv(main) lt 1 }\n\
         default_backend main\n\
         http-response deny if { status 500 }\n\
         http-response set-header x-path %[var(txn.rate)]\n\
         backend main\n server one nobody.invalid:80 weight 3\n server two 127.0.0.1:2 backup\n\
         server three 127.0.0.1:3 disabled\n server four 127.0.0.1:4\n\
         backend spare\n",
    );
    let (report, code) = test(&file, &["GET http://a.test:8080/"]);
    assert_eq!(code, Some(0));
    assert_eq!(report["certain"], false);
    assert_eq!(outcomes(&report, "192.0.2.66"), ["unknown"], "the client's address is not given");
    assert_eq!(outcomes(&report, "path /known"), ["unknown"]);
    assert_eq!(outcomes(&report, "path /no"), ["not-matched"], "one part is enough");
    assert_eq!(outcomes(&report, "set-header x-rate"), ["matched"]);
    assert_eq!(outcomes(&report, "mul(2)"), ["unknown"], "the variable depends on the table");
    assert_eq!(outcomes(&report, "nbsrv"), ["unknown"]);
    assert_eq!(outcomes(&report, "status 500"), ["unknown"]);
    assert_eq!(outcomes(&report, "set-header x-path"), ["matched"]);
    let rules = report["rules"].as_array().unwrap();
    let of =
        |text: &str| rules.iter().find(|rule| rule["text"].as_str().is_some_and(|own| own.contains(text)));
    let rate = of("set-header x-rate").unwrap()["effects"].as_array().unwrap();
    let uncertain = serde_json::json!({ "kind": "uncertain", "needs": ["stick-table"] });
    assert!(rate.contains(&uncertain), "{rate:?}");
    assert_eq!(strings(&of("nbsrv").unwrap()["needs"]), ["state"]);
    let servers = report["result"]["servers"].as_array().unwrap();
    let names: Vec<_> = servers.iter().map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "four"]);
    assert_eq!((&servers[0]["address"], &servers[0]["weight"]), (&"nobody.invalid:80".into(), &3.into()));

    // With the client's address, the outcome of that rule is known, and the report leaves nothing open.
    let (report, code) = test(&file, &["GET http://a.test:8080/", "--src", "192.0.2.66"]);
    assert_eq!((code, &report["result"]["kind"]), (Some(2), &"closed".into()));
    assert_eq!(report["result"]["line"], 9);
    assert_eq!(outcomes(&report, "192.0.2.66"), ["matched"]);
    assert!(outcomes(&report, "http-request").iter().all(|outcome| *outcome == "not-reached"));
    let (report, code) = test(&file, &["GET http://a.test:8080/known", "--src", "192.0.2.1"]);
    assert_eq!(
        (code, &report["result"]["status"], &report["result"]["line"]),
        (Some(0), &403.into(), &11.into())
    );

    // The same as text.
    let output = run(&["test", file.to_str().unwrap(), "GET http://a.test:8080/"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "frontend www at 127.0.0.1:8080, by its port\n",
        "  not known    ",
        "cannot be known: it looks at a stick table\n",
        "request to the server\n  GET / HTTP/1.1\n  Host: a.test:8080\n",
        "the request goes to one of these servers of backend 'main' (balance roundrobin)\n",
        "  one nobody.invalid:80 (weight 3)\n",
        "this holds if what is not known does not match; it decides in ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_frontend_is_found_by_port_tls_or_name() {
    let folder = Folder::new();
    let certified = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = certified.cert.pem() + &certified.signing_key.serialize_pem();
    let pem = folder.file("a.pem", &pem);
    let file = folder.file(
        "haproxy.cfg",
        &format!(
            "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
             frontend plain\n bind 127.0.0.1:80\n http-request return status 200\n\
             frontend secure\n bind 127.0.0.1:443 ssl crt {}\n http-request return status 201 if {{ \
             ssl_fc_sni a.test }} {{ ssl_fc }}\n http-request return status 202\n\
             frontend other\n bind 127.0.0.1:81\n bind 127.0.0.1:82\n http-request return status 204 if {{ \
             dst_port 82 }}\n http-request return status 203\n\
             frontend twice\n bind 127.0.0.2:82\n\
             frontend bytes\n mode tcp\n bind 127.0.0.1:83\n",
            pem.display()
        ),
    );
    for (words, status) in [
        (&["http://a.test/"][..], 200),
        (&["GET https://a.test/"], 201),
        (&["GET https://b.test/"], 202),
        (&["GET https://b.test/", "--sni", "a.test"], 201),
        (&["GET http://a.test:81/"], 203),
        (&["GET http://a.test/", "--frontend", "plain"], 200),
        (&["GET http://a.test:82/", "--frontend", "other"], 204),
        (&["GET / HTTP/1.0", "--dst", "127.0.0.1:81"], 203),
    ] {
        let (report, code) = test(&file, words);
        assert_eq!((&report["result"]["status"], code), (&status.into(), Some(0)), "{words:?}: {report:#}");
    }
    for (words, sentence) in [
        (
            &["GET http://a.test:82/"][..],
            "several frontends match: 'other' (127.0.0.1:81, 127.0.0.1:82), 'twice'",
        ),
        (&["GET http://a.test:84/"], "no frontend listens on port 84 without 'ssl'; there are 'plain'"),
        (&["GET https://a.test:80/"], "no frontend listens on port 80 with 'ssl'"),
        (&["GET http://a/", "--frontend", "plane"], "unknown frontend 'plane'; did you mean 'plain'?"),
        (&["GET https://a.test/", "--frontend", "plain"], "frontend 'plain' expects a listener with 'ssl'"),
        (&["GET ftp://a.test/"], "a URL expects http:// or https://, found 'ftp://a.test/'"),
        (&["one two three four"], "a request expects '[<method>] <URL or path>'"),
        (&["@/no/such/file"], "cannot read '/no/such/file': No such file"),
        (&["-", "-H", "a: b"], "'-H' and '--body' expect a request in words, found '-'"),
    ] {
        let output = run(&[&["test", file.to_str().unwrap()], words].concat(), "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(sentence) && said.lines().count() == 1, "{words:?}: {said}");
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{words:?}");
    }
}

/// Bytes of a request from standard input and from a file, with the line ends of an editor and with a body in
/// chunks; a request that no parser takes.
#[test]
fn requests_are_read_as_bytes_too() {
    let folder = Folder::new();
    let file = folder.file(
        "haproxy.cfg",
        "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
         frontend www\n mode http\n bind 127.0.0.1:80\n http-request return status 201 if { \
         req.body -m str abc \
         }\n \
         http-request return status 202\n\
         frontend bytes\n mode tcp\n bind 127.0.0.1:81\n tcp-request inspect-delay 1s\n tcp-request content \
         reject if { req.payload(0,3) -m str bad }\n use_backend two if { req.len 4 }\n default_backend one\n\
         frontend both\n mode tcp\n bind 127.0.0.1:82\n \
         tcp-request content switch-mode http if { req.len 41 }\n \
         http-request return status 203 if { method POST } { req.body -m str abc }\n \
         use_backend two if { req.len 4 }\n default_backend web\n\
         backend web\n mode http\n server s 127.0.0.1:1\n\
         backend one\n server s 127.0.0.1:1\nbackend two\n server s 127.0.0.1:1\n",
    );
    let path = file.to_str().unwrap();
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let saved = folder.file("request", "POST / HTTP/1.1\nhost: a\ncontent-length: 3\n\nabc");
    let saved = format!("@{}", saved.display());
    for (request, frontend, input, part, code) in [
        ("-", "www", chunked, "the proxy answers 201, by ", 0),
        (&*saved, "www", "", "the proxy answers 201, by ", 0),
        ("-", "www", "GET / HTTP/1.1\r\nA b: c\r\n\r\n", "the proxy answers 400: it is refused for ", 0),
        ("-", "www", "GET / HTTP/1.1\r\n", "expects an empty line behind the last field", 1),
        ("-", "www", "PUT / HTTP/1.0\r\nContent-Length: 9\r\n\r\nabc", "the request ends within its body", 1),
        ("-", "www", "GET / HTTP/1.0\r\n\r\nGET /", "more bytes follow the request", 1),
        ("-", "bytes", "bad", "result: ends the connection, without a response, by ", 2),
        ("-", "bytes", "four", "goes to a server of backend 'two'", 0),
        ("-", "bytes", "others", "goes to a server of backend 'one'", 0),
        ("-", "both", "four", "goes to a server of backend 'two'", 0),
        ("-", "both", "GET / HTTP/1.1\r\nHost: longer\r\n\r\n", "goes to a server of backend 'web'", 0),
        ("-", "both", "others than HTTP\r\n\r\n", "the proxy answers 400: it is refused for ", 0),
        ("-", "both", "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "the proxy answers 203, by ", 0),
    ] {
        let output = run(&["test", path, "--frontend", frontend, request], input);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains(part), "{input:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{input:?}: {said}");
    }
}

/// The listener's address is in use, and the server would accept. The program opens no connection, and
/// succeeds.
#[test]
fn nothing_is_bound_and_nothing_sent() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new();
    let file = folder.file(
        "haproxy.cfg",
        &format!(
            "global\n log {} local0\n stats socket {}/socket\ndefaults\n mode http\n log global\n \
             option httplog\n \
             timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
             frontend www\n bind {}\n http-request do-log\n default_backend main\n\
             backend main\n option httpchk\n server s {} check inter 10ms\n",
            log.local_addr().unwrap(),
            folder.0.display(),
            taken.local_addr().unwrap(),
            server.local_addr().unwrap()
        ),
    );
    let url = format!("http://{}/", taken.local_addr().unwrap());
    let (report, code) = test(&file, &[&url]);
    assert_eq!((code, &report["result"]["kind"]), (Some(0), &"server".into()));
    assert_eq!(report["request"][1], format!("Host: {}", taken.local_addr().unwrap()));
    for socket in [&taken, &server] {
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    log.set_nonblocking(true).unwrap();
    assert_eq!(log.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(!folder.0.join("socket").exists());
}

#[test]
fn a_folder_without_files_is_reported() {
    let folder = Folder::new();
    folder.file("haproxy.conf", "frontend f\n");
    for (name, words) in [("explain", &[][..]), ("test", &["http://a.test/"])] {
        let output = run(&[&[name, folder.0.to_str().unwrap()], words].concat(), "");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("'{name}' expects files whose names end in .cfg in its folders, found none\n");
        assert!(said.ends_with(&expected) && output.status.code() == Some(1), "{output:?}");
    }
}

/// The outcome is known only where each rule's is.
#[test]
fn the_help_tells_the_exit_codes() {
    let said = run(&["test", "-h"], "").stdout;
    let said = String::from_utf8(said).unwrap();
    let codes = said.split("Exit code: ").nth(1).unwrap();
    let words: Vec<_> = codes.split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        "0 if the request reaches a server or an answer, 2 if it does not or if that is unknown, 1 if the \
         configuration, the request or the frontend is wrong."
    );
}

#[test]
fn rules_are_explained_in_the_order_of_their_evaluation() {
    let folder = Folder::new();
    let file = folder.file(
        "haproxy.cfg",
        "defaults base\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n \
         http-request deny if { path /first }\n\
         frontend www from base\n bind 127.0.0.1:80\n bind 127.0.0.1:81 accept-proxy\n stick-table type ip \
         size 10 store http_req_rate(1s)\n\
         default_backend main\n use_backend api if { path_beg /api }\n\
         http-after-response set-header x-y z\n\
         http-request wait-for-body time 1s if { method POST }\n\
         http-request track-sc0 src\n http-request tarpit if { sc_http_req_rate(0) gt 9 }\n\
         http-request return status 200 if { ssl_fc_sni a }\n\
         tcp-request session accept if { src 127.0.0.1 }\n\
         tcp-request connection reject if { src 192.0.2.1 }\n\
         defaults rest\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
         backend main\n http-request set-header x y\n balance hdr(x)\n cookie c insert\n use-server \
         s if { path /s \
         }\n server s \
         127.0.0.1:1 cookie s\n http-response deny if { status 500 }\n\
         backend api\n mode http\n server s 127.0.0.1:1\n\
         backend alone\n mode http\n server s 127.0.0.1:1\n",
    );
    let output = run(&["explain", "--json", file.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let www = &report["frontends"][0];
    assert_eq!(
        (&www["name"], &www["kind"], &www["mode"]),
        (&"www".into(), &"frontend".into(), &"http".into())
    );
    assert_eq!(strings(&www["listeners"]), ["127.0.0.1:80", "127.0.0.1:81"]);
    assert_eq!(strings(&www["backends"]), ["api", "main"]);
    let lists = |proxy: &Value, side: &str| -> Vec<String> {
        let lists = proxy[side].as_array().unwrap().iter();
        lists.map(|list| list["list"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        lists(www, "request"),
        [
            "tcp-request connection",
            "accept-proxy",
            "tcp-request session",
            "mode http",
            "http-request",
            "use_backend",
            "default_backend"
        ]
    );
    assert_eq!(lists(www, "response"), ["http-after-response"]);
    let rules = www["request"][4]["rules"].as_array().unwrap();
    let shown: Vec<_> = rules
        .iter()
        .map(|rule| {
            let (line, waits, ends) = (&rule["line"], &rule["waits"], &rule["ends"]);
            (line.as_u64().unwrap(), strings(&rule["needs"]), waits.as_str(), ends.as_str())
        })
        .collect();
    assert_eq!(
        shown,
        [
            (6, vec!["request-head"], None, Some("denies with 403")),
            (14, vec!["request-head", "request-body"], Some("the body"), None),
            (15, vec!["source-address", "stick-table"], None, None),
            (16, vec!["stick-table"], Some("timeout tarpit"), Some("tarpit, then 500")),
            (17, vec!["tls"], None, Some("returns 200")),
        ]
    );
    let backends = report["backends"].as_array().unwrap();
    let named: Vec<_> = backends.iter().map(|one| (one["name"].as_str().unwrap(), &one["reached"])).collect();
    assert_eq!(named, [("api", &true.into()), ("main", &true.into()), ("alone", &false.into())]);
    assert_eq!(lists(&backends[1], "request"), ["http-request", "use-server", "cookie", "balance"]);
    assert_eq!(lists(&backends[1], "response"), ["http-response"]);
    assert_eq!(backends[1]["response"][0]["rules"][0]["needs"][0], "response");

    let output = run(&["explain", file.to_str().unwrap()], "");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "frontend www (mode http), at 127.0.0.1:80, 127.0.0.1:81\n  tcp-request connection\n",
        "haproxy.cfg:19  tcp-request connection reject if { src 192.0.2.1 }\n        looks at the client's \
         address; ends the connection, without a response\n",
        "  reaches: api, main\n",
        "backend alone (mode http), which no frontend reaches\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let output = run(&["explain", folder.file("bad.cfg", "frontend x\n nonsense\n").to_str().unwrap()], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("bad.cfg:2") && said.contains("nonsense"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
