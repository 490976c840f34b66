//! gRPC end to end: a client and servers made with Go's library (`tests/grpc/peer.go`), with the program
//! between them. Skipped with a message if the peer is not built; `scripts/setup test` builds it.

use crate::common;

use common::h2::block;
use common::watch::{ask, until};
use common::{DEFAULTS, Ended, Folder, Manylane, TIMEOUT, fd, listener};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};

/// Path of the peer.
fn program() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/grpc_peer"));
    let is_there = path.exists();
    if !is_there {
        eprintln!("NOT SHOWN HERE: there is no {}: 'scripts/setup test' builds it", path.display());
    }
    is_there.then_some(path)
}

/// A client or a server, killed at the end of the test.
struct Peer {
    child: Ended,
    said: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(program()?);
        let child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = Ended(child.unwrap());
        let said = BufReader::new(child.0.stdout.take().unwrap()).lines();
        Some(Self { child, said })
    }

    /// Starts a server; returns its address.
    fn server() -> Option<(Self, SocketAddr)> {
        let mut server = Self::start(&["serve"])?;
        let port: u16 = server.hear().parse().unwrap();
        Some((server, ([127, 0, 0, 1], port).into()))
    }

    fn client(of: SocketAddr) -> Option<Self> {
        Self::start(&["ask", &of.to_string()])
    }

    fn hear(&mut self) -> String {
        self.said.next().expect("it says a line").unwrap()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns the client's response to a line.
    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Runs a line, which must succeed.
    fn has(&mut self, line: &str) {
        assert_eq!(self.ask(line), "OK", "{line}");
    }
}

/// The program between the client and its servers.
struct Between {
    _program: Manylane,
    address: SocketAddr,
    folder: Folder,
}

impl Between {
    /// `backend` has lines of the backend besides its servers.
    fn start(backend: &str, servers: &[SocketAddr]) -> Self {
        let (web, address) = listener();
        let folder = Folder::new();
        let mut config = format!(
            "global\n stats socket {}/cli level admin\n{DEFAULTS} mode http\nfrontend f\n bind {} proto h2\n \
             default_backend b\nbackend b\n{backend}",
            folder.0.display(),
            fd(&web)
        );
        for (number, server) in servers.iter().enumerate() {
            config += &format!(" server s{number} {server} proto h2\n");
        }
        Self { _program: Manylane::start_ready(&config), address, folder }
    }

    fn tell(&self, line: &str) -> String {
        ask(&self.folder.0.join("cli"), line)
    }
}

/// A server, the program, and a client.
fn chain() -> Option<(Peer, Between, Peer)> {
    let (server, address) = Peer::server()?;
    let between = Between::start("", &[address]);
    let client = Peer::client(between.address)?;
    Some((server, between, client))
}

#[test]
fn a_call_is_answered_and_its_status_arrives_in_trailers() {
    let Some((_server, _between, mut client)) = chain() else { return };
    assert_eq!(client.ask("call unary hello"), "OK hello [] []");
    let large = "x".repeat(40_000); // more than one frame
    assert_eq!(client.ask(&format!("call unary {large}")), format!("OK {large} [] []"));
    // The status is in the trailers, after a message: its text and the other fields arrive unchanged.
    let failed = r#"FailedPrecondition "100 % \"wrong\",\nand more""#;
    assert_eq!(client.ask("call fail begun"), format!("{failed} begun [yes] [7]"));
    client.has("open one fail");
    client.has("send one begun");
    assert_eq!(client.ask("receive one"), "begun");
    assert_eq!(client.ask("receive one"), format!("ended {failed} [7] [00ff]"));
}

#[test]
fn an_error_that_is_trailers_alone_arrives_as_that() {
    let Some((_server, between, mut client)) = chain() else { return };
    assert_eq!(client.ask("call refuse x"), r#"PermissionDenied "not for you"  [] []"#);
    assert_eq!(client.ask("call missing x"), r#"Unimplemented "/test/missing"  [] []"#);
    // The whole response is one frame: nothing is added, and the status is in its head.
    block(async {
        let client = common::h2::client(between.address).await;
        let mut client = client.ready().await.unwrap();
        let request = http::Request::post("http://a.example/test/refuse")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let (response, _upload) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "7");
        assert!(response.body().is_end_stream(), "{response:?}");
    });
}

/// The windows stop the server while the client does not read; other calls continue.
#[test]
fn a_thousand_messages_wait_for_a_slow_reader() {
    let Some((_server, _between, mut client)) = chain() else { return };
    client.has("open slow list");
    client.has("send slow 1000");
    client.has("finish slow");
    let mut sent = 0;
    for number in 0..50 {
        assert_eq!(client.ask(&format!("call unary {number}")), format!("OK {number} [] []"));
        let answer = client.ask("call sent x");
        let now: u32 = answer.split(' ').nth(1).unwrap().parse().unwrap_or_else(|_| panic!("{answer}"));
        assert!(now >= sent && now < 1000, "{now} of 1000 messages are on their way to nobody");
        sent = now;
    }
    assert_eq!(client.ask("list slow"), "1000 OK");
    assert_eq!(client.ask("call sent x"), "OK 1000 [] []");
}

#[test]
fn messages_go_both_ways_in_turns() {
    let Some((mut server, _between, mut client)) = chain() else { return };
    client.has("open one echo");
    client.has("open other echo");
    for number in 0..100 {
        for name in ["one", "other"] {
            client.has(&format!("send {name} {number} {name}"));
        }
        for name in ["other", "one"] {
            assert_eq!(client.ask(&format!("receive {name}")), format!("{number} {name}"));
        }
    }
    // One call ends normally; the other is cancelled, and the server is told.
    client.has("finish one");
    assert_eq!(client.ask("receive one"), "ended OK [] []");
    client.has("cancel other");
    assert_eq!(server.hear(), "/test/echo: context canceled");
    assert_eq!(client.ask("call unary after"), "OK after [] []");
}

/// The client's library resets the stream when the deadline passes. The server must see the reset, since it
/// may not watch the deadline itself.
#[test]
fn a_deadline_that_passes_resets_the_stream_of_the_server() {
    if program().is_none() {
        return;
    }
    let (waits, port) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        block(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            waits.send(listener.local_addr().unwrap()).unwrap();
            let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            tokio::task::spawn_local(async move { while connection.accept().await.is_some() {} });
            let mut timeout = request.headers()["grpc-timeout"].to_str().unwrap().to_owned();
            assert!(matches!(timeout.pop(), Some('n' | 'u' | 'm' | 'S')), "{request:?}");
            assert!(timeout.parse::<u64>().unwrap() > 0 && request.headers()["te"] == "trailers");
            std::future::poll_fn(|context| respond.poll_reset(context)).await.unwrap()
        })
    });
    let between = Between::start("", &[port.recv_timeout(TIMEOUT).unwrap()]);
    let mut client = Peer::client(between.address).unwrap();
    let ended = client.ask("within hang 2s");
    assert!(ended.starts_with("DeadlineExceeded "), "{ended}");
    assert_eq!(server.join().unwrap(), h2::Reason::CANCEL);
}

/// One of two servers is killed: its calls end, and so do new calls to it. The calls of the other continue on
/// the same client connection.
#[test]
fn a_server_that_is_killed_ends_its_calls_alone() {
    let Some((mut first, first_address)) = Peer::server() else { return };
    let (_second, second_address) = Peer::server().unwrap();
    let rules = " retries 0\n use-server s1 if { path_end -too }\n use-server s0 if TRUE\n";
    let between = Between::start(rules, &[first_address, second_address]);
    let mut client = Peer::client(between.address).unwrap();
    for (name, method) in [("one", "echo"), ("other", "echo-too")] {
        client.has(&format!("open {name} {method}"));
        client.has(&format!("send {name} hello"));
        assert_eq!(client.ask(&format!("receive {name}")), "hello");
    }
    client.has("open silent silent");
    client.has("send silent x");
    assert_eq!(first.hear(), "/test/silent");
    drop(first);
    // As in HAProxy, a partial response is reset. Without a response there is 502: after a reset the client's
    // library would send the call again, and the server may have run it.
    let ended = client.ask("receive one");
    assert!(ended.starts_with("ended Canceled ") && ended.contains("RST_STREAM"), "{ended}");
    let ended = client.ask("receive silent");
    assert!(ended.starts_with("ended Unavailable ") && ended.contains("502 (Bad Gateway)"), "{ended}");
    let ended = client.ask("call unary x");
    assert!(ended.starts_with("Unavailable "), "{ended}");
    client.has("send other more");
    assert_eq!(client.ask("receive other"), "more");
    client.has("finish other");
    assert_eq!(client.ask("receive other"), "ended OK [] []");
}

#[test]
fn a_reload_ends_no_call() {
    let Some((_server, between, mut client)) = chain() else { return };
    client.has("open one echo");
    client.has("send one before");
    assert_eq!(client.ask("receive one"), "before");
    for number in 0..3 {
        let answer = between.tell("reload");
        assert!(answer.contains("Reloaded"), "{answer}");
        client.has(&format!("send one {number}"));
        assert_eq!(client.ask("receive one"), number.to_string());
        // The client was told to start new calls elsewhere, and does.
        assert_eq!(client.ask("call unary new"), "OK new [] []");
    }
    client.has("finish one");
    assert_eq!(client.ask("receive one"), "ended OK [] []");
}

/// `http-check` queries gRPC's health service: an empty message, and a response whose field 1 is 1.
#[test]
fn the_health_service_of_grpc_is_a_check() {
    let Some((mut server, address)) = Peer::server() else { return };
    let check = " timeout check 60s\n option httpchk\n http-check send meth POST uri \
                 /grpc.health.v1.Health/Check ver HTTP/2 hdr content-type application/grpc hdr te trailers \
                 body-lf \"%[bin(0000000000)]\"\n \
                 http-check expect rstring \"\\x08\\x01\\$\"\n default-server check inter 1s fastinter 20ms \
                 downinter 20ms\n";
    let between = Between::start(check, &[address]);
    let says = |state: &str| between.tell("show stat").contains(state);
    until(|| says("L7OK,200"));
    for (state, column) in [("NOT_SERVING", ",L7RSP,"), ("SERVING", ",L7OK,")] {
        server.say(state);
        until(|| says(column));
    }
}
