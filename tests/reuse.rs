//! Reuse of connections to servers: by which requests, on which lanes, and when they close (R-G5).

use crate::common;

use bytes::Bytes;
use common::h2::{block, client};
use common::watch::{Syslog, both, until};
use common::{DEFAULTS, Manylane, ONE_LANE, connect, fd, listener, origin, own_address, read_all, reset};
use h2::client::SendRequest;
use http::Request;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

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
    body_of(client).parse().unwrap()
}

fn body_of(client: &mut TcpStream) -> String {
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
    String::from_utf8(body).unwrap()
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

/// Each name gets a connection of its own, which is kept as long as the share of the descriptors allows: with
/// 50 percent of 200 as many more as 25 percent are.
#[test]
fn as_many_connections_are_kept_as_the_share_of_descriptors_says() {
    let kept = |ratio: usize| {
        let (server, open) = numbered();
        let (_program, address) = start_global(
            &format!(
                " maxconn 50\n ulimit-n 200\n tune.pool-low-fd-ratio {ratio}\n tune.pool-high-fd-ratio 100\n"
            ),
            &format!("{server} pool-conn-name req.hdr(x-name) pool-purge-delay 1h"),
        );
        let mut client = connect(address);
        let mut most = 0;
        for name in 1..=150 {
            write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-Name: {name}\r\n\r\n").unwrap();
            assert_eq!(answer_of(&mut client), name);
            most = most.max(open.load(Ordering::SeqCst));
        }
        most
    };
    let [few, more, most] = [20, 25, 50].map(kept);
    // A lane tells of its descriptors once a round, and a server learns late of an end.
    const LATE: usize = 4;
    assert!(few <= 40 && more <= 50 && most <= 100, "{few}, {more}, {most}");
    assert!((10 - LATE..=10 + LATE).contains(&(more - few)), "{few}, {more}, {most}");
    assert!((50 - LATE..=50 + LATE).contains(&(most - more)), "{few}, {more}, {most}");
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

/// However often the clients ask, one lane has no more connections than clients, and two have about as many.
/// HAProxy, which counts against what its `maxconn` needs, makes one for nearly each request.
#[test]
fn there_are_about_as_many_connections_as_clients() {
    const CLIENTS: usize = 100;
    // A lane whose idle connections are in use connects anew if the other lane is late with one of its own.
    for (lanes, most) in [(1, CLIENTS), (2, 2 * CLIENTS)] {
        let address = Cell::new(own_address());
        let config = |_: &Syslog, socket: &Path| {
            address.set(own_address());
            format!(
                "global\n nbthread {lanes}\n maxconn 200\n ulimit-n 4096\n stats socket {}\ndefaults\n mode \
                 http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n http-reuse \
                 always\nlisten l\n bind {}\n server s {}\n",
                socket.display(),
                address.get(),
                numbered().0
            )
        };
        let (ours, theirs) = both(config, |played| {
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(address.get())).collect();
            let mut last = 0;
            for _ in 0..20 {
                clients.iter_mut().for_each(send);
                last = clients.iter_mut().map(answer_of).fold(last, u32::max);
                // A client gets its response a moment before the connection can be reused.
                until(|| played.columns("l", "s", &["used_conn_cur"]) == ["0"]);
            }
            last as usize
        });
        println!("{lanes} lanes: {ours} connections for {CLIENTS} clients; HAProxy: {theirs:?}");
        assert!(ours <= most && theirs.is_none_or(|theirs| ours <= theirs), "{lanes}: {ours}, {theirs:?}");
    }
}

/// Clients without a request do not count: here they alone exceed the share.
#[test]
fn idle_clients_do_not_keep_others_from_using_connections_again() {
    let (server, _) = numbered();
    let (_program, address) = start_global(" maxconn 100\n ulimit-n 300\n", &server.to_string());
    let mut idle: Vec<_> = (0..90).map(|_| connect(address)).collect();
    let requested: Vec<u32> = idle.iter_mut().map(ask).collect();
    assert!(requested.iter().all(|&number| number <= 4), "{requested:?}"); // see above
    let silent: Vec<_> = (0..8).map(|_| connect(address)).collect();
    let mut busy = connect(address);
    assert!((0..20).all(|_| ask(&mut busy) <= 4));
    drop((idle, silent));
}

/// The same with clients of HTTP/2, whose streams have all ended.
#[test]
fn idle_clients_of_http_2_do_not_keep_others_from_using_connections_again() {
    let (server, _) = numbered();
    let (_program, address) = start_global(" maxconn 100\n ulimit-n 300\n", &server.to_string());
    block(async {
        let mut idle = Vec::new();
        for _ in 0..90 {
            let client = client(address).await;
            let (status, number) = over_2(&client, "/", "").await;
            assert!(status == 200 && number.parse::<u32>().unwrap() <= 4, "{status}, {number}");
            idle.push(client);
        }
        for client in &idle {
            let (_, number) = over_2(client, "/", "").await;
            assert!(number.parse::<u32>().unwrap() <= 4, "{number}");
        }
    });
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

/// An HTTP/2 origin that counts open connections. Its responses contain the number of their connection.
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

/// A client that uses many names gets a connection for each name, also over HTTP/2. Without a limit, these
/// connections would leave no descriptors for others.
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
    // The default share is 20 percent; a server learns late of an end.
    assert!(open.load(Ordering::SeqCst) <= 40 + 4, "{}", open.load(Ordering::SeqCst));
}

/// The same above `tune.pool-high-fd-ratio`.
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

/// With `strict-maxconn`, idle connections of another lane count. One of them closes for a request that may
/// not use it.
#[test]
fn an_idle_connection_of_another_lane_counts_for_a_strict_maxconn() {
    let (server, open) = numbered();
    let (_program, address) = start(2, " http-reuse safe", &format!("{server} maxconn 1 strict-maxconn"));
    let (mut first, mut second) = (connect(address), connect(address));
    assert_eq!([ask(&mut first), ask(&mut second), ask(&mut first)], [1, 2, 2]);
    until(|| open.load(Ordering::SeqCst) == 1);
}

/// The same over HTTP/2, with a connection of the own lane and of another one.
#[test]
fn an_idle_connection_of_http_2_counts_for_a_strict_maxconn() {
    for lanes in [1, 2] {
        let (server, open) = numbered_of_2();
        let server = format!("{server} proto h2 pool-conn-name path maxconn 1 strict-maxconn");
        let (_program, address) = start(lanes, " http-reuse always", &server);
        let (mut first, mut second) = (connect(address), connect(address));
        let got = [ask(&mut first), ask_for(&mut second, "/two"), ask(&mut first), ask_for(&mut second, "/")];
        assert_eq!(got[..3], [1, 2, 3], "{lanes}");
        until(|| open.load(Ordering::SeqCst) == 1);
    }
}

/// A private connection does not close for another client. As in HAProxy, that client's request fails until
/// the connection has ended with its session.
#[test]
fn a_private_connection_counts_for_a_strict_maxconn() {
    let (server, _) = numbered();
    let (_program, address) = start(2, " http-reuse never", &format!("{server} maxconn 1 strict-maxconn"));
    let mut first = connect(address);
    assert_eq!([ask(&mut first), ask(&mut first)], [1, 1]);
    let has = |status: &str| {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        read_all(&mut client).starts_with(status)
    };
    assert!(has("HTTP/1.1 503 "));
    assert_eq!(ask(&mut first), 1);
    drop(first);
    until(|| has("HTTP/1.1 200 "));
}

/// `max-reuse` bounds private connections of both versions.
#[test]
fn a_private_connection_serves_as_many_requests_as_max_reuse_lets_it() {
    for (server, options) in [(numbered().0, ""), (numbered_of_2().0, " proto h2")] {
        for (most, expected) in [(0, [1, 2, 3, 4]), (1, [5, 5, 6, 6])] {
            let server = format!("{server} max-reuse {most}{options}");
            let (_program, address) = start(1, " http-reuse never", &server);
            let mut client = connect(address);
            assert_eq!([(); 4].map(|()| ask(&mut client)), expected, "max-reuse {most}{options}");
        }
    }
}

/// A private connection of HTTP/2 that is purged leaves no descriptor, although its session goes on.
#[test]
fn a_private_connection_of_http_2_leaves_no_descriptor_when_it_is_purged() {
    let (server, _) = numbered_of_2();
    let own = "http-request return status 200 content-type text/plain string 0 if { path /own }";
    let server = format!("{server} proto h2 pool-purge-delay 100ms\n {own}");
    let (program, address) = start(1, " http-reuse never", &server);
    let mut client = connect(address);
    assert_eq!(ask_for(&mut client, "/own"), 0);
    let before = common::descriptors(program.pid());
    for number in 1..=3 {
        assert_eq!(ask(&mut client), number);
        until(|| common::descriptors(program.pid()) == before);
    }
}

/// The server sees the end soon after the connection was idle for the delay.
#[test]
fn idle_connections_are_purged() {
    let (server, open) = numbered();
    let (_program, address) = start(1, " http-reuse always", &format!("{server} pool-purge-delay 100ms"));
    let mut client = connect(address);
    ask(&mut client);
    while open.load(Ordering::SeqCst) > 0 {
        manylane_tests::look_again(); // the time limit of tests ends an endless wait
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
        let _program = Manylane::start(&format!(
            "{ONE_LANE} mode http\n{rules}listen l\n bind {}\n{marks} server s {server}{option}\n",
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
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\nlisten l\n bind {}\n tcp-response content close if {{ capture.req.uri /close \
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
    let lines = format!(" http-reuse always\nlisten l\n bind {}\n dispatch {server}\n", fd(&socket));
    let _program = Manylane::start(&format!("{ONE_LANE} mode http\n{lines}"));
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

/// Two clients ask in turns with these fields, through a server with these options, whose other end is
/// `back`. Each is answered with the port that the server's connection came from; returns the numbers of
/// connections, in the order of their first use.
fn turns(certificate: &str, rules: &str, server: &str, back: &str, fields: &[&str]) -> Vec<usize> {
    let ((front, address), (inner, server_at)) = (listener(), listener());
    let server = server.replace("@back", &server_at.to_string());
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\n http-reuse always\nlisten l\n bind {}\n{rules} server s {server}\n\
         frontend back\n bind {}{certificate}\n \
         http-request return status 200 content-type text/plain lf-string {back}\n",
        fd(&front),
        fd(&inner)
    ));
    let mut clients = [connect(address), connect(address)];
    let mut ports = Vec::new();
    fields
        .iter()
        .enumerate()
        .map(|(n, field)| {
            let client = &mut clients[n % 2];
            write!(client, "GET / HTTP/1.1\r\n{field}\r\n\r\n").unwrap();
            let port = answer_of(client);
            ports.iter().position(|&known| known == port).unwrap_or_else(|| {
                ports.push(port);
                ports.len() - 1
            })
        })
        .collect()
}

/// The server's certificate was checked for one name, and the server may have taken the connection for one of
/// this name.
#[test]
fn idle_connections_of_tls_serve_only_the_name_that_they_requested() {
    let authority = crate::tls::Authority::new();
    let certificate = format!(" ssl crt {}", authority.bundle("a.pem", &["a.example"]).display());
    let hosts = ["Host: a.example", "Host: b.example", "Host: b.example", "Host: a.example", "Host: c"];
    let asks = |server: &str| turns(&certificate, "", server, "%[src_port]", &hosts);
    assert_eq!(asks("@back ssl verify none sni req.hdr(host)"), [0, 1, 1, 0, 2]);
    assert_eq!(asks("@back ssl verify none sni str(a.example)"), [0; 5]);
}

/// The same holds for a session's private connection, of both versions.
#[test]
fn a_private_connection_of_tls_serves_only_the_name_that_it_requested() {
    let authority = crate::tls::Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    for (options, version) in [("", "1"), (" alpn h2", "2")] {
        let ((front, address), (inner, server)) = (listener(), listener());
        let _program = Manylane::start(&format!(
            "{ONE_LANE} mode http\n http-reuse always\nlisten l\n bind {}\n \
             server s {server} send-proxy-v2 ssl verify none sni req.hdr(host){options}\n\
             frontend back\n bind {} accept-proxy ssl crt {} alpn h2,http/1.1\n \
             http-request return status 200 content-type text/plain lf-string \
             %[fc_http_major]:%[ssl_fc_sni]\n",
            fd(&front),
            fd(&inner),
            certificate.display()
        ));
        let mut client = connect(address);
        for host in ["a.example", "a.example", "b.example", "a.example"] {
            write!(client, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            assert_eq!(body_of(&mut client), format!("{version}:{host}"));
        }
    }
}

#[test]
fn idle_connections_from_the_address_of_one_client_do_not_serve_another() {
    if !crate::servers::may_pretend() {
        return eprintln!("NOT SHOWN HERE: usesrc: this process has no CAP_NET_ADMIN");
    }
    let [a, b] = ["Host: a\r\nX-From: 127.0.0.7", "Host: a\r\nX-From: 127.0.0.8"];
    // The address and the port: two clients could have the same port.
    let server = "@back source 0.0.0.0 usesrc hdr_ip(x-from)";
    assert_eq!(turns("", "", server, "%[src_port]", &[a, b, b, a, a]), [0, 1, 1, 0, 0]);
    // Each client's address; both have the same.
    assert_eq!(turns("", "", "@back source 0.0.0.0 usesrc clientip", "%[src_port]", &[a, b, a]), [0; 3]);
}

/// Returns a connection from this address. Its port may be used for another one: `usesrc client` connects
/// from it, on the same machine.
fn connect_from(ip: &str, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    stream
}

/// An origin that answers with the address that it sees. It ignores a PROXY header.
fn telling_peers() -> SocketAddr {
    origin(|mut stream| {
        let who = stream.peer_addr().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line == "\r\n" {
                let text = who.to_string();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).unwrap();
            }
            line.clear();
        }
    })
}

/// A session's private connection serves only requests from the address that it was made from.
#[test]
fn a_private_connection_from_one_address_serves_no_request_from_another() {
    if !crate::servers::may_pretend() {
        return eprintln!("NOT SHOWN HERE: usesrc: this process has no CAP_NET_ADMIN");
    }
    let server = format!("{} send-proxy source 0.0.0.0 usesrc hdr_ip(x-from)", telling_peers());
    let (_program, address) = start(1, " http-reuse always", &server);
    let mut client = connect(address);
    let mut from = |ip: &str| {
        write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-From: {ip}\r\n\r\n").unwrap();
        let own: SocketAddr = body_of(&mut client).parse().unwrap();
        assert_eq!(own.ip().to_string(), ip);
        own
    };
    assert_eq!(from("127.0.0.7"), from("127.0.0.7"), "it serves requests from its own address");
    from("127.0.0.8");
    from("127.0.0.7");
}

/// A connection that was made from one client's address serves no client at another. The server answers with
/// the address that it sees.
#[test]
fn a_connection_from_one_clients_address_is_not_given_to_another() {
    if !crate::servers::may_pretend() {
        return eprintln!("NOT SHOWN HERE: usesrc: this process has no CAP_NET_ADMIN");
    }
    let server = telling_peers();
    for (usesrc, own) in [("client", true), ("clientip", false), ("hdr_ip(x-from)", false)] {
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "{ONE_LANE} mode http\n http-reuse always\nlisten l\n bind {}\n \
             server s {server} source 0.0.0.0 usesrc {usesrc}\n",
            fd(&socket)
        ));
        let ips = ["127.0.0.2", "127.0.0.3"];
        let mut clients = ips.map(|ip| connect_from(ip, address));
        let mut observed: Vec<SocketAddr> = Vec::new();
        for turn in [0, 1, 0, 1, 1, 0] {
            let client = &mut clients[turn];
            write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-From: {}\r\n\r\n", ips[turn]).unwrap();
            let from = body_of(client);
            let Ok(from) = from.parse::<SocketAddr>() else { panic!("{usesrc}: {from}") };
            assert_eq!(from.ip().to_string(), ips[turn], "{usesrc}, request {}", observed.len());
            if own {
                assert_eq!(from, client.local_addr().unwrap(), "{usesrc}: the port is the client's, too");
            }
            observed.push(from);
        }
        // Each client's connection serves it again.
        assert_eq!(
            [observed[2], observed[3], observed[4], observed[5]],
            [observed[0], observed[1], observed[1], observed[0]],
            "{usesrc}"
        );
        // Another client at the first one's address gets its connection, but not with `usesrc client`, which
        // has the port, too.
        let mut third = connect_from(ips[0], address);
        write!(third, "GET / HTTP/1.1\r\nHost: a\r\nX-From: {}\r\n\r\n", ips[0]).unwrap();
        assert_eq!(body_of(&mut third) == observed[0].to_string(), !own, "{usesrc}");
    }
}

/// A server without an address of its own is wherever a rule says.
#[test]
fn idle_connections_to_one_destination_do_not_serve_another() {
    let ((one, _), (two, _)) = (numbered(), numbered());
    assert_eq!(ask(&mut connect(two)), 1); // its next connections have other numbers than those of the first
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\n http-reuse always\nlisten l\n bind {}\n \
         http-request set-dst ipv4(127.0.0.1)\n http-request set-dst-port req.hdr(x-port)\n \
         server s 0.0.0.0\n",
        fd(&socket)
    ));
    let (mut first, mut second) = (connect(address), connect(address));
    let ask_at = |client: &mut TcpStream, server: SocketAddr| {
        write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-Port: {}\r\n\r\n", server.port()).unwrap();
        answer_of(client)
    };
    let got = [
        ask_at(&mut first, one),
        ask_at(&mut second, two),
        ask_at(&mut second, one),
        ask_at(&mut first, two),
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
/// request may be repeated, also if it is the first of that connection. Nothing is logged.
#[test]
fn a_client_learns_that_a_kept_connection_has_ended_by_the_end_of_its_own() {
    for mode in ["safe", "aggressive", "always"] {
        let address = std::cell::Cell::new(own_address());
        let config = |log: &Syslog, socket: &Path| {
            address.set(own_address());
            format!(
                "global\n stats socket {} level admin\n{} mode http\n log {} local0\n option httplog\n \
                    http-reuse {mode}\nlisten l\n bind {}\n server s {}\n",
                socket.display(),
                ONE_LANE,
                log.address(),
                address.get(),
                quitting()
            )
        };
        let (ours, theirs) = both(config, |played| {
            for path in ["/fin", "/rst"] {
                for is_first in [false, true] {
                    let mut client = connect(address.get());
                    // `aggressive` gives a first request only a connection that was used again before.
                    (0..2).for_each(|_| _ = ask(&mut client));
                    let waiting = (is_first && mode != "safe").then(|| client.try_clone().unwrap());
                    if waiting.is_some() {
                        client = connect(address.get());
                    }
                    write!(client, "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
                        .unwrap();
                    assert_eq!(read_all(&mut client), "", "{mode}, {path}, first: {is_first}");
                }
            }
            ask_for(&mut connect(address.get()), "/last");
            let lines = played.lines("GET /last ");
            let posts: Vec<String> = lines.into_iter().filter(|line| line.contains("POST")).collect();
            (posts, played.columns("l", "s", &["hrsp_5xx"]), played.columns("l", "s", &["eresp", "srv_abrt"]))
        });
        assert_eq!(
            ours,
            (Vec::new(), vec!["0".to_owned()], ["4", "4"].map(str::to_owned).to_vec()),
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

/// A request at an origin: the number of its connection, from 1, and its method with its body.
type Heard = (usize, String);

/// An origin that answers the first request of each connection with the connection's number. It reads a
/// second one and closes without an answer. After an answer to `/ends` it waits for an order that says
/// whether to reset or close the connection, and reports when it has done so.
struct Ending {
    address: SocketAddr,
    heard: mpsc::Receiver<Heard>,
    order: mpsc::Sender<bool>,
    done: mpsc::Receiver<()>,
}

impl Ending {
    fn new() -> Self {
        let ((tell, heard), (order, orders), (finish, done)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let (connections, orders) = (AtomicUsize::new(0), Mutex::new(orders));
        let address = origin(move |mut stream| {
            let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            for served in [false, true] {
                let (mut head, mut body) = (String::new(), Vec::new());
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                if head.starts_with("POST") {
                    body.resize(3, 0);
                    reader.read_exact(&mut body).unwrap();
                }
                let mut words = head.split(' ');
                let (method, path) = (words.next().unwrap(), words.next().unwrap());
                tell.send((number, format!("{method} {}", String::from_utf8_lossy(&body)))).unwrap();
                if served {
                    return;
                }
                let text = number.to_string();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).unwrap();
                if path == "/ends" {
                    let resets: bool = orders.lock().unwrap().recv().unwrap();
                    if resets {
                        reset(stream);
                    } else {
                        // At once, as in `reset`.
                        stream.shutdown(Shutdown::Write).unwrap();
                    }
                    finish.send(()).unwrap();
                    return;
                }
            }
        });
        Self { address, heard, order, done }
    }

    /// Ends the connection that waits for an order.
    fn end(&self, resets: bool) {
        self.order.send(resets).unwrap();
        self.done.recv_timeout(common::TIMEOUT).unwrap();
    }

    /// Returns the next requests.
    fn heard<const N: usize>(&self) -> [Heard; N] {
        std::array::from_fn(|_| self.heard.recv_timeout(common::TIMEOUT).unwrap())
    }
}

fn post(client: &mut TcpStream) {
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").unwrap();
}

/// No server can have processed a POST whose connection failed or had already ended: the program sends it on
/// a new connection, once. It does not resend a POST of which bytes were sent, since only the client knows
/// whether that is safe. `retry-on conn-failure` is the default.
#[test]
fn a_post_is_sent_again_only_where_no_byte_of_it_was_sent() {
    for retry_on in ["", " retry-on conn-failure\n"] {
        let (address, refused) = (std::cell::Cell::new(own_address()), std::cell::Cell::new(own_address()));
        let ending = std::cell::RefCell::new(Ending::new());
        let config = |_: &Syslog, socket: &Path| {
            address.set(own_address());
            refused.set(own_address());
            *ending.borrow_mut() = Ending::new();
            let defaults = ONE_LANE;
            let server = ending.borrow().address;
            format!(
                "global\n stats socket {} level admin\n{defaults} mode http\n http-reuse always\n{retry_on}\
                 listen l\n bind {}\n server s {server}\nlisten refused\n bind {}\n retries 1\n \
                 option redispatch 1\n balance roundrobin\n server d {}\n server s {server}\n",
                socket.display(),
                address.get(),
                refused.get(),
                common::nobody(),
            )
        };
        let (ours, theirs) = both(config, |_played| {
            let ending = ending.borrow();
            let mut client = connect(address.get());
            for resets in [false, true] {
                let before = ask_for(&mut client, "/ends");
                ending.end(resets);
                post(&mut client);
                assert_eq!(answer_of(&mut client), before + 1, "{retry_on}, {resets}");
                // The next POST is sent, and then its connection ends.
                post(&mut client);
                assert_eq!(read_all(&mut client), "", "{retry_on}, {resets}");
                client = connect(address.get());
            }
            let heard: [Heard; 6] = ending.heard();
            let mut client = connect(refused.get());
            post(&mut client); // server d refuses the connection
            answer_of(&mut client);
            (heard, ending.heard::<1>(), ending.heard.try_recv().is_err())
        });
        let get_and_posts =
            |first: usize| [(first, "GET "), (first + 1, "POST abc"), (first + 1, "POST abc")];
        let expected = [get_and_posts(1), get_and_posts(3)].concat();
        let heard: Vec<_> = ours.0.iter().map(|(number, text)| (*number, &**text)).collect();
        assert_eq!(heard, expected, "{retry_on}");
        assert_eq!((&ours.1[0].1[..], ours.2), ("POST abc", true), "{retry_on}");
        if let Some(theirs) = theirs {
            assert_eq!(ours, theirs, "{retry_on}");
        }
    }
}

/// A server's connection ends and a request arrives while the program is stopped: it checks the connection
/// once more before it uses it. With `retries 0` it would not resend the request.
#[test]
fn a_post_is_not_sent_on_a_connection_that_ended_at_the_same_time() {
    for resets in [false, true].repeat(3) {
        let ending = Ending::new();
        let (program, address) = start(1, " http-reuse always\n retries 0", &ending.address.to_string());
        let mut client = connect(address);
        assert_eq!(ask_for(&mut client, "/ends"), 1);
        program.signal(Signal::SIGSTOP);
        let stopped = waitpid(Pid::from_raw(program.pid() as i32), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
        ending.end(resets);
        post(&mut client);
        program.signal(Signal::SIGCONT);
        assert_eq!(answer_of(&mut client), 2, "{resets}");
        assert_eq!(ending.heard(), [(1, "GET ".into()), (2, "POST abc".into())]);
    }
}

/// Sends a request over HTTP/2: a POST if there is a body. Returns the status and body of the response.
async fn over_2(client: &SendRequest<Bytes>, path: &str, body: &'static str) -> (u16, String) {
    let mut client = client.clone().ready().await.unwrap();
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut request = Request::builder().method(method).uri(format!("http://a{path}"));
    if !body.is_empty() {
        request = request.header("content-length", body.len());
    }
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), body.is_empty()).unwrap();
    if !body.is_empty() {
        stream.send_data(body.into(), true).unwrap();
    }
    let (head, mut stream) = response.await.unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(piece) = stream.data().await {
        text.extend_from_slice(&piece.unwrap());
    }
    (head.status.as_u16(), String::from_utf8(text).unwrap())
}

/// A client of HTTP/2 gets 502 where one of HTTP/1 gets the end of its connection: it would repeat a stream
/// that is refused, and the server may have processed the request. Where no byte of the request was sent,
/// nobody can have processed it, and the program itself sends it on a new connection, also with `retries 0`.
#[test]
fn a_client_of_http_2_gets_502_where_its_request_was_sent_on_an_ending_connection() {
    for (retries, resets) in [(0, false), (0, true), (3, false), (3, true)] {
        let ending = Ending::new();
        let settings = format!(" http-reuse always\n retries {retries}");
        let (_program, address) = start(1, &settings, &ending.address.to_string());
        let mut expected = vec![(1, "GET "), (2, "POST abc"), (2, "POST abc"), (3, "GET "), (3, "GET ")];
        block(async {
            let client = client(address).await;
            assert_eq!(over_2(&client, "/ends", "").await, (200, "1".into()));
            ending.end(resets);
            // No byte of it was sent.
            assert_eq!(over_2(&client, "/", "abc").await, (200, "2".into()), "{retries}, {resets}");
            // The server reads it, and ends the connection.
            assert_eq!(over_2(&client, "/", "abc").await.0, 502, "{retries}, {resets}");
            // The client's connection has not ended.
            assert_eq!(over_2(&client, "/", "").await, (200, "3".into()), "{retries}, {resets}");
            // This one may be repeated.
            let (status, number) = over_2(&client, "/", "").await;
            match retries {
                0 => assert_eq!(status, 502, "{resets}"),
                _ => assert_eq!((status, &*number), (200, "4"), "{resets}"),
            }
        });
        if retries > 0 {
            expected.push((4, "GET "));
        }
        let heard: Vec<Heard> = ending.heard.try_iter().collect();
        let heard: Vec<_> = heard.iter().map(|(number, text)| (*number, &**text)).collect();
        assert_eq!(heard, expected, "{retries}, {resets}");
    }
}
