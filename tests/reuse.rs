//! Reuse of connections to servers: by which requests, on which lanes, and when they close (R-G5).

use crate::common;

use common::watch::{Syslog, both, until};
use common::{DEFAULTS, Manylane, connect, fd, free, listener, origin, read_all, reset};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

/// An origin that responds with the number of the connection, from 1, and counts open connections.
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

/// Sends a request; returns the number of the server's connection.
fn ask(client: &mut TcpStream) -> u32 {
    ask_for(client, "/")
}

fn ask_for(client: &mut TcpStream, path: &str) -> u32 {
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    answer_of(client)
}

fn send(client: &mut TcpStream) {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
}

fn answer_of(client: &mut TcpStream) -> u32 {
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

/// One lane, and two clients one after the other, with two requests each.
#[test]
fn each_mode_of_reuse_says_which_requests_may_go_out_on_which_connection() {
    for (mode, expected) in [
        ("never", [1, 1, 2, 2]),
        ("safe", [1, 1, 2, 2]),
        // The first connection was used twice, so another client's first request may use it.
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

/// A first request does not use a connection that was used only once.
#[test]
fn aggressive_reuse_takes_what_was_used_twice_only() {
    let (server, _) = numbered();
    let (_program, address) = start(1, " http-reuse aggressive", &server.to_string());
    let (mut first, mut second) = (connect(address), connect(address));
    assert_eq!([ask(&mut first), ask(&mut second)], [1, 2]);
}

/// The other lane serves the second client, since the first lane has a connection already. It has no idle
/// connection to the server and takes the one of the first lane, which then opens a new one and does not take
/// the other one back.
///
/// A client gets its response a moment before the connection is idle, and no lane waits for another one that
/// does not run for some milliseconds. So the test tries again if it was faster than the lanes.
#[test]
fn a_lane_without_an_idle_connection_takes_one_of_another_lane_which_does_not_ask_for_it_back() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < common::TIMEOUT {
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
        "global\n nbthread 2\n tune.idle-pool.shared off\ndefaults\n mode http\n timeout client 30s\n \
            timeout server 30s\n \
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

/// Starts the program with one lane, `http-reuse always`, these lines of `global` and this server.
fn start_global(global: &str, server: &str) -> (Manylane, SocketAddr) {
    let (socket, address) = listener();
    let program = Manylane::start(&format!(
        "global\n nbthread 1\n{global}defaults\n mode http\n timeout client 30s\n timeout server 30s\n \
            timeout connect 5s\n \
         http-reuse always\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    (program, address)
}

/// With 1 percent of few descriptors, no connection is kept.
#[test]
fn nothing_is_kept_when_descriptors_are_short() {
    let (server, _) = numbered();
    let (_program, address) =
        start_global(" maxconn 50\n ulimit-n 200\n tune.pool-low-fd-ratio 1\n", &server.to_string());
    let mut client = connect(address);
    // A lane reports its descriptors once per round, so the first connection may be kept.
    let first = ask(&mut client);
    common::watch::until(|| ask(&mut client) != first);
}

/// The share counts against the descriptors that the process may open, whatever `maxconn` is, and each
/// descriptor counts once.
#[test]
fn connections_are_used_again_however_many_clients_of_maxconn_are_there() {
    for (maxconn, clients, lanes) in [(82, 32, 1), (200, 100, 2)] {
        let (server, _) = numbered();
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "global\n nbthread {lanes}\n maxconn {maxconn}\n ulimit-n 4096\ndefaults\n mode http\n timeout \
                client 30s\n timeout server 30s\n \
             timeout connect 5s\n http-reuse always\nlisten l\n bind {}\n server s {server}\n",
            fd(&socket)
        ));
        let mut clients: Vec<_> = (0..clients).map(|_| connect(address)).collect();
        let busy = clients.len() as u32;
        // All at the same time.
        for _ in 0..6 {
            clients.iter_mut().for_each(send);
            let last = clients.iter_mut().map(answer_of).max();
            // A client gets its response a moment before the connection can be reused.
            assert!(
                last.is_some_and(|last| last <= 2 * busy),
                "{maxconn}: connection {last:?} for {busy} clients"
            );
        }
        // One after the other: all others are idle.
        let before = ask(&mut connect(address)).max(2 * busy);
        let last = clients.iter_mut().map(ask).max();
        assert!(
            last.is_some_and(|last| last <= before + 4),
            "{maxconn}: connection {last:?}, before {before}"
        );
    }
}

/// Clients without a request do not count: here they alone exceed the share.
#[test]
fn idle_clients_do_not_keep_others_from_using_connections_again() {
    let (server, _) = numbered();
    let (_program, address) = start_global(" maxconn 100\n ulimit-n 300\n", &server.to_string());
    let mut idle: Vec<_> = (0..90).map(|_| connect(address)).collect();
    let asked: Vec<u32> = idle.iter_mut().map(ask).collect();
    assert!(asked.iter().all(|&number| number <= 4), "{asked:?}"); // see above
    let silent: Vec<_> = (0..8).map(|_| connect(address)).collect();
    let mut busy = connect(address);
    assert!((0..20).all(|_| ask(&mut busy) <= 4));
    drop((idle, silent));
}

/// Above `tune.pool-high-fd-ratio`, an idle connection closes for each new one, even to a server of another
/// backend.
#[test]
fn an_idle_connection_is_closed_for_a_new_one_when_descriptors_are_short() {
    let ((one, open), (two, _)) = (numbered(), numbered());
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n nbthread 1\n maxconn 50\n ulimit-n 200\n tune.pool-low-fd-ratio 100\n \
            tune.pool-high-fd-ratio 1\ndefaults\n mode http\n \
         timeout client 30s\n timeout server 30s\n timeout connect 5s\n http-reuse always\nfrontend f\n bind \
         {}\n use_backend two if {{ path /two }}\n \
         default_backend one\nbackend one\n server s {one} pool-purge-delay 1h\nbackend two\n server s {two} \
         pool-purge-delay 1h\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    assert_eq!([ask(&mut client), ask(&mut client)], [1, 1]);
    assert_eq!(ask_for(&mut client, "/two"), 1);
    until(|| open.load(Ordering::SeqCst) == 0);
    assert_eq!(ask(&mut client), 2);
}

/// An origin of HTTP/2 that counts connections which are open. Its answers say the number of their own.
fn numbered_of_2() -> (SocketAddr, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let counted = open.clone();
    let address = common::h2::serve(move |stream, number| {
        let open = counted.clone();
        async move {
            open.fetch_add(1, Ordering::SeqCst);
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let text = number.to_string();
                let head = http::Response::builder().header("content-length", text.len()).body(()).unwrap();
                let sent = respond.send_response(head, false);
                let _ = sent.and_then(|mut body| body.send_data(text.into(), true));
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
    });
    (address, open)
}

/// A client that names many has a connection for each name, also of HTTP/2: they would leave no descriptor to
/// anybody else.
#[test]
fn connections_of_http_2_for_many_names_leave_descriptors() {
    let (server, open) = numbered_of_2();
    let (_program, address) = start_global(
        " maxconn 50\n ulimit-n 200\n",
        &format!("{server} proto h2 pool-conn-name req.hdr(x-name) pool-purge-delay 1h"),
    );
    let mut client = connect(address);
    for name in 1..=300 {
        write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-Name: {name}\r\n\r\n").unwrap();
        assert_eq!(answer_of(&mut client), name);
    }
    assert!(open.load(Ordering::SeqCst) < 100);
}

/// As above, above `tune.pool-high-fd-ratio`.
#[test]
fn an_idle_connection_of_http_2_is_closed_for_a_new_one_when_descriptors_are_short() {
    let ((one, open), (two, _)) = (numbered_of_2(), numbered());
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n nbthread 1\n maxconn 50\n ulimit-n 200\n tune.pool-low-fd-ratio 100\n \
            tune.pool-high-fd-ratio 1\ndefaults\n mode http\n \
         timeout client 30s\n timeout server 30s\n timeout connect 5s\n http-reuse always\nfrontend f\n bind \
         {}\n use_backend two if {{ path /two }}\n \
         default_backend one\nbackend one\n server s {one} proto h2 pool-purge-delay 1h\nbackend two\n \
         server s {two} pool-purge-delay 1h\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    assert_eq!([ask(&mut client), ask(&mut client)], [1, 1]);
    assert_eq!(ask_for(&mut client, "/two"), 1);
    until(|| open.load(Ordering::SeqCst) == 0);
    assert_eq!(ask(&mut client), 2);
}

/// The server sees the end soon after the connection was idle for the delay.
#[test]
fn idle_connections_are_purged() {
    let (server, open) = numbered();
    let (_program, address) = start(1, " http-reuse always", &format!("{server} pool-purge-delay 100ms"));
    let mut client = connect(address);
    ask(&mut client);
    while open.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now(); // the time limit of tests ends an endless wait
    }
}

/// In haproxy since 2.7 or later: `set-bc-tos`. Also with private connections.
#[test]
fn connections_whose_packets_are_marked_otherwise_are_others() {
    let rules = " http-reuse always\n";
    let marks = " http-request set-bc-tos 0x10 if { path /low }\n http-request set-bc-tos path,length,mul(8) \
        if { path /sum }\n";
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

/// As in HAProxy, the client still gets the whole response.
#[test]
fn a_rule_closes_a_connection_behind_its_response() {
    let (server, _) = numbered();
    let (socket, address) = listener();
    let config = DEFAULTS.replace("nbthread 2", "nbthread 1");
    let _program = Manylane::start(&format!(
        "{config} mode http\nlisten l\n bind {}\n tcp-response content close if {{ capture.req.uri /close \
            }}\n server s {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    let got = ["/", "/close", "/", "/", "/close", "/close"].map(|path| ask_for(&mut client, path));
    assert_eq!(got, [1, 1, 2, 2, 2, 3]);
}

/// R-G5: connections to the address of `dispatch` are private.
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

/// An origin that closes on purpose: a connection that has served a request closes or resets when it gets one
/// for `/fin` or `/rst`. Otherwise it responds with its number, from 1; two requests for `/both` wait for
/// each other.
fn quitting() -> SocketAddr {
    let connections = AtomicUsize::new(0);
    let together = Barrier::new(2);
    origin(move |mut stream| {
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut served = false;
        loop {
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let begin = head.len();
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = head[begin..].to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            match path {
                "/rst" if served => return reset(stream),
                "/fin" if served => return,
                "/both" => _ = together.wait(),
                _ => {}
            }
            served = true;
            let text = number.to_string();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            stream.write_all(answer.as_bytes()).unwrap();
        }
    })
}

/// As in HAProxy, the client's connection closes without a response, since only the client knows whether the
/// request may be repeated. Nothing is logged.
#[test]
fn a_client_learns_that_a_kept_connection_has_ended_by_the_end_of_its_own() {
    for mode in ["safe", "always"] {
        let address = std::cell::Cell::new(free());
        let config = |log: &Syslog, socket: &Path| {
            address.set(free());
            format!(
                "global\n stats socket {} level admin\n{} mode http\n log {} local0\n option httplog\n \
                    http-reuse {mode}\nlisten l\n bind {}\n server s {}\n",
                socket.display(),
                DEFAULTS.replace("nbthread 2", "nbthread 1"),
                log.address(),
                address.get(),
                quitting()
            )
        };
        let (ours, theirs) = both(config, |played| {
            for path in ["/fin", "/rst"] {
                let mut client = connect(address.get());
                ask(&mut client);
                client
                    .write_all(
                        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").as_bytes(),
                    )
                    .unwrap();
                assert_eq!(read_all(&mut client), "", "{mode}, {path}");
            }
            ask_for(&mut connect(address.get()), "/last");
            let lines = played.lines("GET /last ");
            let posts: Vec<String> = lines.into_iter().filter(|line| line.contains("POST")).collect();
            (posts, played.columns("l", "s", &["hrsp_5xx"]), played.columns("l", "s", &["eresp", "srv_abrt"]))
        });
        assert_eq!(
            ours,
            (Vec::new(), vec!["0".to_owned()], ["2", "2"].map(str::to_owned).to_vec()),
            "{mode}"
        );
        if let Some(theirs) = theirs {
            // HAProxy counts missing responses in another way.
            assert_eq!((ours.0, ours.1), (theirs.0, theirs.1), "{mode}");
        }
    }
}

/// A request that may be repeated is sent again on a new connection, since other idle ones may close for the
/// same reason.
#[test]
fn a_request_that_met_an_ending_connection_is_repeated_on_a_new_one() {
    let (_program, address) = start(1, " http-reuse always\n retries 1", &quitting().to_string());
    let (mut first, mut second) = (connect(address), connect(address));
    for client in [&mut first, &mut second] {
        client.write_all(b"GET /both HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    let mut numbers = [&mut first, &mut second].map(answer_of);
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(ask_for(&mut first, "/fin"), 3);
    assert_eq!(ask_for(&mut first, "/rst"), 4);
}

/// `retries 0`: nothing is repeated, and the client gets no error either.
#[test]
fn a_request_that_may_not_be_repeated_ends_without_a_word() {
    let (_program, address) = start(1, " retries 0", &quitting().to_string());
    let mut client = connect(address);
    assert_eq!(ask(&mut client), 1);
    client.write_all(b"GET /fin HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(read_all(&mut client), "");
}
