//! Stick tables, end to end: counters, expiry, and rules that use them.

use crate::common;

use common::h2::{block, client};
use common::watch::{ask, until};
use common::{DEFAULTS, Folder, Manylane, check, connect, fd, listener, named, origin, read_all};
use http::Request;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Instant;

/// A program with a run-time interface.
struct Program {
    _folder: Folder,
    _program: Manylane,
    address: SocketAddr,
    socket: PathBuf,
}

impl Program {
    /// Starts it with these lines of the frontend and further sections; `bind` is added.
    fn start(frontend: &str) -> Self {
        let folder = Folder::new();
        let socket = folder.0.join("control");
        let (web, address) = listener();
        let config = format!(
            "global\n nbthread 2\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend front\n bind \
             {}\n{frontend}",
            socket.display(),
            fd(&web)
        );
        let program = Manylane::start_ready(&config);
        Self { _folder: folder, _program: program, address, socket }
    }

    fn ask(&self, line: &str) -> String {
        ask(&self.socket, line)
    }

    /// A value in the only entry of a table.
    fn number(&self, table: &str, name: &str) -> Option<u64> {
        let answer = self.ask(&format!("show table {table}"));
        let word = answer.split_whitespace().find_map(|word| word.strip_prefix(name));
        word.and_then(|rest| rest.split('=').next_back()?.parse().ok())
    }
}

/// Status of the response to a request on a kept connection.
fn get(client: &mut TcpStream, path: &str, more: &str) -> u16 {
    // In one write, since parts would wait for acknowledgements.
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n").as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    client.read_exact(&mut body).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The most common use of stick tables.
#[test]
fn a_client_beyond_its_rate_is_denied_until_its_entry_is_cleared() {
    let program = Program::start(
        " stick-table type ipv6 size 100k expire 10m store http_req_rate(1h)\n http-request track-sc0 src\n \
         http-request deny status 429 if { sc_http_req_rate(0) gt 3 }\n http-request return status 200\n",
    );
    let mut one = connect(program.address);
    let mut other = connect(program.address);
    let statuses: Vec<u16> =
        (0..5).map(|n| get(if n % 2 == 0 { &mut one } else { &mut other }, "/", "")).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(program.number("front", "http_req_rate"), Some(5));
    // The entry is released a moment after the response was read.
    until(|| program.ask("clear table front key ::ffff:127.0.0.1") == "\n");
    assert_eq!(get(&mut one, "/", ""), 200);
    assert_eq!(program.number("front", "http_req_rate"), Some(1));
}

/// `conn_cur` counts from accept to close, also without requests.
#[test]
fn connections_now_go_down_when_connections_end() {
    let program = Program::start(
        " stick-table type ip size 100 store conn_cur,conn_cnt\n tcp-request connection track-sc0 src\n \
         tcp-request connection reject if { sc0_conn_cur gt 3 }\n http-request return status 200\n",
    );
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(program.address)).collect();
    for client in &mut clients {
        assert_eq!(get(client, "/", ""), 200);
        assert_eq!(get(client, "/", ""), 200, "it is at rest between requests");
    }
    assert_eq!(program.number("front", "conn_cur"), Some(3));
    let mut refused = connect(program.address);
    let _ = refused.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut rest = Vec::new();
    let _ = refused.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    until(|| program.number("front", "conn_cur") == Some(3));
    assert_eq!(program.number("front", "conn_cnt"), Some(4));
    clients.pop();
    until(|| program.number("front", "conn_cur") == Some(2));
    clients.push(connect(program.address));
    assert_eq!(get(&mut clients[2], "/", ""), 200);
    drop(clients);
    until(|| program.number("front", "conn_cur") == Some(0));
    until(|| program.number("front", "use=") == Some(0));
    assert_eq!(program.number("front", "conn_cnt"), Some(5));
}

/// An HTTP/2 connection is one connection, and each of its streams a request.
#[test]
fn streams_of_http2_count_in_what_their_connection_tracks() {
    let program = Program::start(
        " stick-table type ip size 100 store conn_cur,conn_cnt,sess_cnt,http_req_cnt\n tcp-request \
         connection track-sc0 src\n http-request deny status 429 if { sc0_http_req_cnt gt 3 }\n http-request \
         return status 200\n",
    );
    block(async {
        let client = client(program.address).await;
        for (n, status) in [200, 200, 200, 429].into_iter().enumerate() {
            let request = Request::get(format!("http://x/{n}")).body(()).unwrap();
            let (response, _) = client.clone().ready().await.unwrap().send_request(request, true).unwrap();
            assert_eq!(response.await.unwrap().status().as_u16(), status);
        }
        assert_eq!(program.number("front", "conn_cur"), Some(1));
        assert_eq!(program.number("front", "conn_cnt"), Some(1));
        assert_eq!(program.number("front", "sess_cnt"), Some(1));
        assert_eq!(program.number("front", "http_req_cnt"), Some(4));
    });
    until(|| program.number("front", "conn_cur") == Some(0));
}

/// Unused entries expire and no longer count; held entries stay.
#[test]
fn entries_expire() {
    let program = Program::start(
        " stick-table type string size 10 expire 200ms store http_req_cnt\n http-request track-sc0 path\n \
         http-request wait-for-body time 1h if { path /held }\n http-request return status 200\n",
    );
    let mut client = connect(program.address);
    assert_eq!(get(&mut client, "/one", ""), 200);
    let mut held = connect(program.address);
    write!(held, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n").unwrap();
    until(|| program.ask("show table front key /held").contains("use=1"));
    until(|| program.ask("show table front").contains("used:1"));
    assert_eq!(program.ask("show table front key /one"), "\n");
    assert!(program.ask("show table front key /held").contains("http_req_cnt=1"));
    held.write_all(b"x").unwrap();
    until(|| program.ask("show table front").contains("used:0"));
}

/// A flood of keys takes no more entries than the table has, and held entries stay.
#[test]
fn a_flood_of_keys_takes_no_more_than_the_size_of_the_table() {
    let program = Program::start(
        " stick-table type string size 50 store http_req_cnt\n http-request track-sc0 hdr(x-key)\n \
         http-request return status 200 hdr x-size %[table_cnt(front)]/%[table_avl(front)]\n",
    );
    let mut client = connect(program.address);
    for key in 0..500 {
        assert_eq!(get(&mut client, "/", &format!("X-Key: {key}\r\n")), 200);
        assert_eq!(get(&mut client, "/", "X-Key: busy\r\n"), 200);
    }
    // The entry is released a moment after the response was read.
    until(|| !program.ask("show table front").contains(" use=1 "));
    let shown = program.ask("show table front");
    assert!(shown.starts_with("# table: front, type: string, size:50, used:50\n"), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.contains("key=")).count(), 50);
    assert!(shown.contains("key=busy use=0 exp=0 shard=0 http_req_cnt=500\n"), "{shown}");
    assert!(shown.contains("key=499 "), "{shown}");
}

#[test]
fn bytes_are_those_of_messages() {
    let program = Program::start(
        " stick-table type string size 50 store bytes_in_cnt,bytes_out_cnt,bytes_in_rate(1h)\n http-request \
         track-sc0 path\n http-request return status 200 content-type text/plain string hello\n",
    );
    let mut client = connect(program.address);
    let request = "GET /1 HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let answer = read_all(&mut client);
    until(|| program.number("front", "bytes_in_cnt") == Some(request.len() as u64));
    until(|| program.number("front", "bytes_in_rate") == Some(request.len() as u64));
    until(|| program.number("front", "bytes_out_cnt") == Some(answer.len() as u64));
}

/// Invalid requests count in the entry that the connection tracks.
#[test]
fn what_is_no_request_counts_as_an_error_of_its_connection() {
    let program = Program::start(
        " stick-table type ip size 50 store http_req_cnt,http_err_cnt\n tcp-request session track-sc0 src\n \
         http-request return status 200\n",
    );
    let mut client = connect(program.address);
    client.write_all(b"no request\r\n\r\n").unwrap();
    assert!(read_all(&mut client).starts_with("HTTP/1.1 400 "));
    until(|| program.number("front", "http_err_cnt") == Some(1));
    assert_eq!(program.number("front", "http_req_cnt"), Some(1));
}

#[test]
fn what_tables_and_rules_cannot_be_is_reported_at_its_position() {
    let table = "stick-table type ip size 10 store gpc0\n";
    for (lines, message) in [
        ("stick-table type ip", "'stick-table' expects"),
        ("stick-table type ip nopurge nopurge", "'stick-table' expects 'size', found none"),
        (
            "stick-table type cat size 10",
            "'stick-table type' expects ip, ipv4, ipv6, integer, string or binary",
        ),
        ("stick-table type ip size 10 srvkey id", "'stick-table srvkey' expects name or addr, found 'id'"),
        ("stick-table type ip size 10 srvkey", "'srvkey' expects name or addr, found none"),
        (
            "stick-table type ip size 10 store cats",
            "'stick-table store' expects one of 27 values such as server_id, gpt0 or gpc0, found 'cats'",
        ),
        ("stick-table type ip size 10 store gpc0,gpc0", "'gpc0' is stored already"),
        ("stick-table type ip size 10 store gpc", "'gpc' expects (<elements>)"),
        ("stick-table type ip size 10 store gpc0_rate(0)", "expects a period from 1ms to 12 days, found '0'"),
        ("stick-table type ip size 10 peers p", "unknown peers section 'p'"),
        ("stick-table type ip size 10 write-to", "'write-to' expects a table, found none"),
        ("stick-table type ip size 10 write-to x", "'write-to' expects the name of a table, found 'x'"),
        ("stick-table type ip size 10 write-to f", "'write-to' expects another table, found 'f'"),
        (
            "stick-table type ipv6 size 10 write-to t",
            "'write-to' expects a table with keys of the same type and length, found 't'",
        ),
        (
            "stick-table type ip size 10 write-to u\nbackend u\n stick-table type ip size 1 write-to t",
            "'write-to' expects a table without a 'write-to' of its own, found 'u'",
        ),
        ("stick-table type ip size 10 brates-factor 0", "'brates-factor' cannot be '0'"),
        ("stick-table type ip size 10 brates-factor 1025", "the range is 1 to 1024"),
        ("stick-table type ip size 10 brates-factor", "'brates-factor' expects a value, found none"),
        (
            "http-request track-sc0 src",
            "expects 'table <name>', or a 'stick-table' of the same proxy, found neither",
        ),
        ("http-request track-sc0 src table x", "the name of a proxy with a 'stick-table', found 'x'"),
        ("http-request track-sc3 src table t", "expects the number of a counter below 3"),
        ("http-request sc-inc-gpc(1) ", "expects (<index>,<counter>)"),
        ("http-request deny if { sc0_get_gpc0(x) gt 1 }", "the name of a proxy with a 'stick-table'"),
        ("http-request deny if { src_get_gpc0 gt 1 }", "'src_get_gpc0' expects"),
    ] {
        let config =
            format!("{DEFAULTS} mode http\nfrontend f\n bind 127.0.0.1:1\n {lines}\nbackend t\n {table}");
        let output = check(&config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{lines}: {said}");
    }
    // A session and its stream track as many counters as the file says, at most 15 each.
    for (counters, fine) in [(15, true), (16, false)] {
        let last = counters - 1;
        let config = format!(
            "global\n tune.stick-counters {counters}\n{DEFAULTS} mode http\nfrontend f\n bind 127.0.0.1:1\n \
             http-request track-sc{last} src table t\nbackend t\n {table}"
        );
        let output = check(&config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), fine, "{counters}: {said}");
        assert!(fine || said.contains("'tune.stick-counters' expects"), "{said}");
    }
    // As HAProxy 3.2: content rules that do not wait for what they read, or read nothing that comes later.
    for (mode, lines, message) in [
        ("http", "tcp-request content track-sc0 path table t", "set 'tcp-request inspect-delay'"),
        ("tcp", "tcp-request content track-sc0 req.len table t", "set 'tcp-request inspect-delay'"),
        ("tcp", "tcp-request content capture req.ssl_sni len 5", "set 'tcp-request inspect-delay'"),
        ("http", "tcp-request content track-sc0 src table t", "use 'tcp-request session'"),
        (
            "http",
            "tcp-request content track-sc0 src table t if { src 127.0.0.2 }",
            "use 'tcp-request session'",
        ),
        ("http", "tcp-request content track-sc0 src table t if HTTP", ""),
        ("http", "tcp-request content track-sc0 src table t unless { req.hdr(a) -m found }", ""),
        ("tcp", "tcp-request content track-sc0 src table t", ""),
        ("tcp", "tcp-request inspect-delay 1s\n tcp-request content track-sc0 req.len table t", ""),
    ] {
        let config =
            format!("{DEFAULTS} mode {mode}\nfrontend f\n bind 127.0.0.1:1\n {lines}\nbackend t\n {table}");
        let output = check(&config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        let warned = said.contains("[WARNING]") || said.contains("warning");
        assert!(
            output.status.success() && said.contains(message) && warned != message.is_empty(),
            "{lines}: {said}"
        );
    }
    for (line, message) in [
        ("stick on", "'stick on'"),
        ("stick on table t", "'stick on' expects <pattern> [table <name>] [if|unless <condition>]"),
        ("stick on src table", "'stick on' expects <pattern>"),
        ("stick match src", "'stick' expects 'table <name>', or a 'stick-table' of the same proxy"),
        ("stick match src table x", "'stick' expects the name of a proxy with a 'stick-table', found 'x'"),
        ("stick on bool(1) table t", "'stick' expects a key that can be converted to the table's type"),
        (
            "stick on res.len table t",
            "this sample has no value in use-server, balance or stick; it has one in",
        ),
        (
            "stick store-response req.len table t",
            "this sample has no value in stick store-response; it has one in",
        ),
        ("stick on src table t if", "'stick on' : 'if' expects a condition"),
        ("stick store src table t", "unknown stick 'store'"),
    ] {
        let config = format!("{DEFAULTS}backend b\n {line}\nbackend t\n {table}");
        let output = check(&config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{line}: {said}");
    }
    let twice = format!("{DEFAULTS}frontend t\n bind 127.0.0.1:1\n {table}backend t\n {table}");
    let output = check(&twice, &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("another proxy named 't' has a table already"));
}

/// A counting rule before a waiting one counts once, however often the list runs.
#[test]
fn a_rule_for_contents_counts_once_however_often_it_is_examined() {
    let server = named("hello");
    let program = Program::start(&format!(
        " mode tcp\n stick-table type ip size 10 store gpc(2),gpt(1)\n tcp-request inspect-delay 1h\n \
         tcp-request content track-sc0 src\n tcp-request content sc-inc-gpc(0,0)\n tcp-request content \
         sc-set-gpt(0,0) req.len\n tcp-request content sc-add-gpc(1,0) req.len if {{ req.len ge 3 }}\n \
         tcp-request content accept if {{ req.len ge 6 \
         }}\n default_backend b\nbackend b\n mode tcp\n server s {server}\n"
    ));
    let mut client = connect(program.address);
    for n in 1..=5 {
        client.write_all(b"x").unwrap();
        until(|| program.number("front", "gpt0") == Some(n));
        assert_eq!(program.number("front", "gpc0"), Some(1));
        // The rule behind the one that was waited for.
        until(|| program.number("front", "gpc1") == Some(if n < 3 { 0 } else { 3 }));
    }
    client.write_all(b"x").unwrap();
    assert_eq!(read_all(&mut client), "hello");
    assert_eq!(program.number("front", "gpc0"), Some(1));
    assert_eq!(program.number("front", "gpc1"), Some(3));
}

/// Rules look at each of the first bytes that drip, and after that at most every 10 ms. A client that sends
/// no more before it has an answer gets one.
#[test]
fn rules_look_at_what_drips_only_so_often() {
    let server = named("hello");
    let program = Program::start(&format!(
        " mode tcp\n stick-table type ip size 10 store gpc0\n tcp-request inspect-delay 1h\n tcp-request \
         connection track-sc0 src\n tcp-request content reject if {{ sc0_inc_gpc0 gt 10000 }}\n tcp-request \
         content accept if {{ req.payload(0,0) -m sub end }}\n default_backend b\nbackend b\n mode tcp\n \
         server s {server}\n"
    ));
    let mut client = connect(program.address);
    client.set_nodelay(true).unwrap();
    let begun = Instant::now();
    for byte in "x".repeat(1_500).bytes().chain(*b"end") {
        client.write_all(&[byte]).unwrap();
        crate::drips::all_is_read(program.address.port(), false);
    }
    assert_eq!(read_all(&mut client), "hello");
    let most = 258 + begun.elapsed().as_millis() as u64 / 10;
    let looks = program.number("front", "gpc0").unwrap();
    assert!((256..=most).contains(&looks), "{looks} looks, and {most} are allowed");
}

/// A large table can be used while it is cleared, and new entries stay.
#[test]
fn a_table_is_used_while_it_is_cleared() {
    let program = Program::start(
        " stick-table type integer size 100k store gpc0\n http-request track-sc0 rand(1000000000)\n \
         http-request return status 200\n",
    );
    let mut client = connect(program.address);
    for _ in 0..3 {
        (0..500).for_each(|_| assert_eq!(get(&mut client, "/", ""), 200));
        assert_eq!(program.ask("clear table front"), "\n");
    }
    let lines: String = (0..2_000).map(|n| format!("set table front key {n} data.gpc0 {};", n % 2)).collect();
    for batch in lines.as_bytes().split_inclusive(|byte| *byte == b';').collect::<Vec<_>>().chunks(50) {
        program.ask(std::str::from_utf8(&batch.concat()).unwrap());
    }
    assert_eq!(program.ask("clear table front data.gpc0 eq 1"), "\n");
    assert_eq!(program.ask("show table front").lines().filter(|line| line.contains("gpc0=0")).count(), 1_000);
    assert!(program.ask("show table").contains("used:1000\n"), "{}", program.ask("show table"));
}

/// Body of the response to a request on a new connection.
fn body_of(address: SocketAddr, fields: &str) -> String {
    let mut client = connect(address);
    client.write_all(format!("GET / HTTP/1.0\r\nHost: x\r\n{fields}\r\n").as_bytes()).unwrap();
    let answer = read_all(&mut client);
    answer.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
}

/// A server that responds with its name.
fn http_server(name: &'static str) -> SocketAddr {
    origin(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
        }
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}",
            name.len()
        );
    })
}

/// Servers added at run time are found and stored like those of the file. If a server is gone, another one
/// replaces it, also one that returns with another number.
#[test]
fn a_key_keeps_to_its_server_by_name_while_servers_come_and_go() {
    let [a, b] = ["a", "b"].map(http_server);
    let program = Program::start(&format!(
        " default_backend b\nbackend b\n stick-table type string size 1k expire 1h\n stick on \
         req.hdr(x-id)\n server a {a}\n"
    ));
    let asks = |id: &str| body_of(program.address, &format!("x-id: {id}\r\n"));
    assert_eq!(asks("1"), "a");
    assert!(program.ask(&format!("add server b/b {b}")).contains("New server registered"));
    assert_eq!(program.ask("enable server b/b"), "\n");
    assert_eq!(asks("1"), "a");
    program.ask("set server b/a state maint");
    assert_eq!(asks("1"), "b");
    program.ask("set server b/a state ready");
    (0..4).for_each(|_| assert_eq!(asks("1"), "b"));
    let entry = program.ask("show table b");
    assert!(entry.contains(" server_id=2 server_key=b\n"), "{entry}");
    program.ask("set server b/b state maint");
    until(|| program.ask("del server b/b").contains("Server deleted"));
    assert_eq!(asks("1"), "a");
    assert!(program.ask("show table b").contains(" server_id=1 server_key=a\n"));
}

/// Over HTTP/2 each stream has its own server.
#[test]
fn streams_of_a_connection_find_their_servers_one_by_one() {
    let [a, b] = ["a", "b"].map(http_server);
    let program = Program::start(&format!(
        " default_backend b\nbackend b\n stick-table type string size 1k expire 1h\n stick on \
         req.hdr(x-id)\n stick store-response str(last)\n server a {a}\n server b {b}\n"
    ));
    program.ask("set table b key 1 data.server_id 2");
    program.ask("set table b key 2 data.server_id 1");
    let names = block(async {
        let mut client = client(program.address).await.ready().await.unwrap();
        let mut names = Vec::new();
        for n in 0..20 {
            let id = if n % 3 == 0 { "1" } else { "2" };
            let request = Request::get("http://x/").header("x-id", id).body(()).unwrap();
            let (response, _) = client.send_request(request, true).unwrap();
            let mut body = response.await.unwrap().into_body();
            let mut name = Vec::new();
            while let Some(piece) = body.data().await {
                name.extend_from_slice(&piece.unwrap());
            }
            names.push((id, String::from_utf8(name).unwrap()));
        }
        names
    });
    let wrong: Vec<_> = names.iter().filter(|(id, name)| (*id == "1") != (name == "b")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let entry = program.ask("show table b key last");
    assert!(entry.contains(" server_id=1 server_key=a\n"), "the last of all: {entry}");
}

/// The lane runs other tasks while `show table` walks a table of which a filter shows nothing: the polls of
/// its task grow with the table, where one poll would walk all of it.
#[test]
fn a_filter_that_shows_nothing_leaves_the_lane_to_others() {
    const ENTRIES: u64 = 6_000;
    /// Most entries that a poll may walk.
    const A_POLL: u64 = 300;
    /// Commands of a line.
    const A_LINE: usize = 400;
    let program = Program::start(" stick-table type integer size 20k store gpc0\n http-request deny\n");
    let keys: Vec<String> = (1..=ENTRIES).map(|key| format!("set table front key {key}")).collect();
    for line in keys.chunks(A_LINE) {
        program.ask(&line.join("; "));
    }
    assert!(
        program.ask("show table").contains(&format!("used:{ENTRIES}\n")),
        "{}",
        program.ask("show table")
    );
    // A lane counts polls at the end of a round, so each command has a connection of its own.
    let polled = || {
        let answer = program.ask("show activity");
        let count = answer.lines().find_map(|line| line.strip_prefix("tasksw_bulk: ")).unwrap();
        count.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = polled();
    let shown = program.ask("show table front data.gpc0 gt 0");
    let polls = polled() - before;
    assert_eq!(shown.matches("key=").count(), 0);
    assert!(polls >= ENTRIES / A_POLL, "{polls} polls for {ENTRIES} entries");
}
