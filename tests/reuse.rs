//! Connections to servers that are used again: by which request, on which lane, and when they are closed (R-G5).

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

use common::{DEFAULTS, Manylane, connect, fd, listener, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An origin whose answers say the number of their connection, from 1, and that counts connections which are open.
fn numbered() -> (SocketAddr, Arc<AtomicUsize>) {
    let (connections, open) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let counted = open.clone();
    let address = origin(move |mut stream| {
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        counted.fetch_add(1, Ordering::SeqCst);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line == "\r\n" {
                let text = number.to_string();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            line.clear();
        }
        counted.fetch_sub(1, Ordering::SeqCst);
    });
    (address, open)
}

/// Asks once; the number of the server's connection.
fn ask(client: &mut TcpStream) -> u32 {
    ask_for(client, "/")
}

fn ask_for(client: &mut TcpStream, path: &str) -> u32 {
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut reader = BufReader::new(client);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the answer ends amid its head");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap().parse().unwrap()
}

fn start(lanes: usize, more: &str, server: &str) -> (Manylane, SocketAddr) {
    let (socket, address) = listener();
    let config = DEFAULTS.replace("nbthread 2", &format!("nbthread {lanes}"));
    let program = Manylane::start(&format!(
        "{config} mode http\n{more}\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    (program, address)
}

/// One lane, two clients that come one after the other, both ask twice.
#[test]
fn each_mode_of_reuse_says_which_requests_may_go_out_on_which_connection() {
    for (mode, expected) in [
        ("never", [1, 1, 2, 2]),
        ("safe", [1, 1, 2, 2]),
        // The first was used twice, so another client's first request may use it.
        ("aggressive", [1, 1, 1, 1]),
        ("always", [1, 1, 1, 1]),
    ] {
        let (server, _) = numbered();
        let (_program, address) = start(1, &format!(" http-reuse {mode}"), &server.to_string());
        let (mut first, mut second) = (connect(address), connect(address));
        let got = [ask(&mut first), ask(&mut first), ask(&mut second), ask(&mut second)];
        assert_eq!(got, expected, "{mode}");
    }
}

/// A connection that was used once only is not trusted with a first request.
#[test]
fn aggressive_reuse_takes_what_was_used_twice_only() {
    let (server, _) = numbered();
    let (_program, address) = start(1, " http-reuse aggressive", &server.to_string());
    let (mut first, mut second) = (connect(address), connect(address));
    assert_eq!([ask(&mut first), ask(&mut second)], [1, 2]);
}

/// The second client is served by the other lane, since the first one's has a connection already. Its lane has no idle connection to the
/// server, and takes over the one that the first lane has; which then makes one, and does not ask for that back.
///
/// An answer is with its client a moment before the connection lies on the shelf, and a lane that does not run for some milliseconds is not waited for:
/// so it is tried again where the test was faster than the lanes.
#[test]
fn a_lane_without_an_idle_connection_takes_one_of_another_lane_which_does_not_ask_for_it_back() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < common::PATIENCE {
        let (server, open) = numbered();
        let (_program, address) = start(2, " http-reuse always", &server.to_string());
        let (mut first, mut second) = (connect(address), connect(address));
        let got = [ask(&mut first), ask(&mut second), ask(&mut first), ask(&mut second)];
        if got == [1, 1, 2, 1] {
            assert_eq!(open.load(Ordering::SeqCst), 2);
            return;
        }
    }
    panic!("nothing was ever taken over");
}

#[test]
fn a_lane_keeps_what_pool_low_conn_leaves_it() {
    let (server, _) = numbered();
    let (_program, address) = start(2, " http-reuse always", &format!("{server} pool-low-conn 1"));
    let mut first = connect(address);
    assert_eq!(ask(&mut first), 1);
    let mut second = connect(address);
    assert_eq!(ask(&mut second), 2, "the other lane keeps its only one");
    assert_eq!(ask(&mut first), 1);
}

#[test]
fn nothing_is_taken_where_lanes_do_not_share() {
    let (server, _) = numbered();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n nbthread 2\n tune.idle-pool.shared off\ndefaults\n mode http\n timeout client 30s\n timeout server 30s\n \
         timeout connect 5s\n http-reuse always\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let (mut first, mut second) = (connect(address), connect(address));
    assert_eq!([ask(&mut first), ask(&mut second)], [1, 2]);
}

#[test]
fn more_than_pool_max_conn_are_not_kept() {
    let (server, _) = numbered();
    let (_program, address) = start(1, " http-reuse always", &format!("{server} pool-max-conn 0"));
    let mut client = connect(address);
    assert_eq!([ask(&mut client), ask(&mut client)], [1, 2]);
}

/// With 1 percent of few descriptors nothing is kept while a session is there.
#[test]
fn nothing_is_kept_when_descriptors_are_short() {
    let (server, _) = numbered();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n nbthread 1\n maxconn 50\n tune.pool-low-fd-ratio 1\ndefaults\n mode http\n timeout client 30s\n timeout server 30s\n \
         timeout connect 5s\n http-reuse always\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    assert_eq!([ask(&mut client), ask(&mut client)], [1, 2]);
}

/// The server sees an end soon after its connection was left idle for the delay.
#[test]
fn idle_connections_are_purged() {
    let (server, open) = numbered();
    let (_program, address) = start(1, " http-reuse always", &format!("{server} pool-purge-delay 100ms"));
    let mut client = connect(address);
    ask(&mut client);
    while open.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now(); // the test's own time limit ends a wait without end
    }
}

/// What haproxy has had since 2.7 or later: `set-bc-tos`. Also where connections are a client's own.
#[test]
fn connections_whose_packets_are_marked_otherwise_are_others() {
    let rules = " http-reuse always\n";
    let marks = " http-request set-bc-tos 0x10 if { path /low }\n http-request set-bc-tos path,length,mul(8) if { path /sum }\n";
    for (option, expected) in [("", [1, 2, 1, 2, 1, 3]), (" send-proxy", [1, 2, 3, 4, 5, 6])] {
        let (server, _) = numbered();
        let (socket, address) = listener();
        let config = DEFAULTS.replace("nbthread 2", "nbthread 1");
        let _program = Manylane::start(&format!(
            "{config} mode http\n{rules}listen l\n bind {}\n{marks} server s {server}{option}\n",
            fd(&socket)
        ));
        let mut client = connect(address);
        let got = ["/", "/low", "/", "/low", "/", "/sum"].map(|path| ask_for(&mut client, path));
        assert_eq!(got, expected, "{option}");
    }
}

/// As with HAProxy, the client gets the whole response all the same.
#[test]
fn a_rule_closes_a_connection_behind_its_response() {
    let (server, _) = numbered();
    let (socket, address) = listener();
    let config = DEFAULTS.replace("nbthread 2", "nbthread 1");
    let _program = Manylane::start(&format!(
        "{config} mode http\nlisten l\n bind {}\n tcp-response content close if {{ capture.req.uri /close }}\n server s {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    let got = ["/", "/close", "/", "/", "/close", "/close"].map(|path| ask_for(&mut client, path));
    assert_eq!(got, [1, 1, 2, 2, 2, 3]);
}

/// R-G5: what goes to `dispatch` is a client's alone.
#[test]
fn connections_to_the_address_of_dispatch_are_not_shared() {
    let (server, _) = numbered();
    let (socket, address) = listener();
    let config = DEFAULTS.replace("nbthread 2", "nbthread 1");
    let lines = format!(" http-reuse always\nlisten l\n bind {}\n dispatch {server}\n", fd(&socket));
    let _program = Manylane::start(&format!("{config} mode http\n{lines}"));
    let (mut first, mut second) = (connect(address), connect(address));
    assert_eq!([ask(&mut first), ask(&mut second), ask(&mut first), ask(&mut second)], [1, 2, 1, 2]);
}

#[test]
fn idle_connections_of_one_name_do_not_serve_another() {
    let (server, _) = numbered();
    let server = format!("{server} pool-conn-name path");
    let (_program, address) = start(1, " http-reuse always", &server);
    let (mut first, mut second) = (connect(address), connect(address));
    let got = [
        ask_for(&mut first, "/a"),
        ask_for(&mut second, "/b"),
        ask_for(&mut second, "/a"),
        ask_for(&mut first, "/b"),
    ];
    assert_eq!(got, [1, 2, 1, 2]);
}
