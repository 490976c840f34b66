//! Early data to servers (`server ... allow-0rtt`). Servers are this program, and HAProxy with OpenSSL.

use crate::common;
use crate::tls::Authority;
use crate::tls_early::Early;

use common::watch::{Haproxy, columns, until};
use common::{DEFAULTS, Manylane, connect, fd, listener, origin};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const DRIVERS: [&str; 2] = ["epoll", "auto"];

/// A listener with early data, which tells of it, and refuses it for `/picky`.
fn server(bind: &str, certificate: &Path, options: &str) -> String {
    format!(
        "frontend s\n mode http\n bind {bind} ssl crt {} {options}\n \
         http-request return status 425 hdr x-early 1 if {{ path /picky }} {{ ssl_fc_early_rcvd }}\n \
         http-request return status 200 hdr x-early %[ssl_fc_early_rcvd] hdr x-told %[req.hdr(early-data)]\n",
        certificate.display()
    )
}

/// Frontends for clients with and without TLS. Every request gets a connection to the server of its own.
fn front(clear: &str, secure: &str, certificate: &Path, to: SocketAddr) -> String {
    let backend = |name: &str, more: &str| {
        format!(
            "backend {name}\n mode http\n http-reuse never\n {more}\n \
             server s {to} ssl verify none allow-0rtt\n"
        )
    };
    format!(
        "frontend c\n mode http\n bind {clear}\n use_backend never if {{ path_beg /never }}\n \
         default_backend again\n\
         frontend f\n mode http\n bind {secure} ssl crt {} allow-0rtt\n default_backend usual\n{}{}{}",
        certificate.display(),
        backend("again", "retry-on 0rtt-rejected"),
        backend("never", ""),
        backend("usual", ""),
    )
}

/// Sends a request over a connection of its own. Returns the status and what the server has seen.
fn fields_of(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut socket = connect(address);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer); // a reset is an end, too
    fields(&answer)
}

fn fields(answer: &str) -> String {
    let status = answer.split(' ').nth(1).unwrap_or("none");
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    format!("{status} {}{}", field("x-early:"), field("x-told:"))
}

fn driver(name: &str) -> impl FnOnce(&mut std::process::Command) {
    move |command| {
        command.env("MANYLANE_DRIVER", name);
    }
}

/// Each full handshake leaves two sessions behind, and each session is good for one request.
#[test]
fn requests_go_early_to_a_server_that_has_given_a_session() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let stats = authority.folder.0.join("stats");
    let defaults = DEFAULTS.replacen("global\n", &format!("global\n stats socket {}\n", stats.display()), 1);
    for name in DRIVERS {
        let [own, clear, secure] = [listener(), listener(), listener()];
        let config = server(&fd(&own.0), &certificate, "allow-0rtt")
            + &front(&fd(&clear.0), &fd(&secure.0), &certificate, own.1);
        let _program = Manylane::start_as(&format!("{defaults}{config}"), driver(name));
        assert_eq!(fields_of(clear.1, "GET", "/", ""), "200 0", "{name}: there is no session");
        assert_eq!(fields_of(clear.1, "GET", "/", ""), "200 1", "{name}");
        // It would be sent twice if somebody copied it.
        assert_eq!(fields_of(clear.1, "DELETE", "/", ""), "200 0", "{name}");
        assert_eq!(fields_of(clear.1, "GET", "/", "body"), "200 0", "{name}");
        // The client has not sent it early, so it learns nothing of 425.
        assert_eq!(fields_of(clear.1, "GET", "/picky", ""), "200 0", "{name}");
        let reported =
            columns(&stats, "again", "s", &["ssl_sess", "ssl_reused_sess", "ssl_failed_handshake", "econ"]);
        assert_eq!(reported[2..], ["0", "0"], "{name}");
        assert!(
            reported[0].parse::<u32>().unwrap() == 6 && reported[1].parse::<u32>().unwrap() >= 4,
            "{reported:?}"
        );
        // Without 'retry-on 0rtt-rejected', only what came early goes on early.
        for _ in 0..2 {
            assert_eq!(fields_of(clear.1, "GET", "/never", ""), "200 0", "{name}");
        }
        let client = Early::new(&authority, &["http/1.1"]);
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n").into_bytes();
        let end = "\r\n\r\n";
        assert_eq!(fields(&client.first(secure.1, &get("/"), end)), "200 0", "{name}");
        let mut begun = client.begin(secure.1, &get("/"));
        assert_eq!(fields(&begun.until(end)), "200 11", "{name}");
        let mut begun = client.begin(secure.1, &get("/picky"));
        assert_eq!(fields(&begun.until(end)), "425 1", "{name}");
    }
}

/// The new process of the server knows no session, so its handshakes are full ones.
#[test]
fn a_request_that_a_server_refuses_early_is_sent_again_behind_the_handshake() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    for name in DRIVERS {
        let [own, clear, secure] = [listener(), listener(), listener()];
        let start = |options: &str| {
            let config = DEFAULTS.to_owned() + &server(&fd(&own.0), &certificate, options);
            Manylane::start_as(&config, driver(name))
        };
        let config = DEFAULTS.to_owned() + &front(&fd(&clear.0), &fd(&secure.0), &certificate, own.1);
        let _front = Manylane::start_as(&config, driver(name));
        for options in ["allow-0rtt", "", "allow-0rtt curves P-384"] {
            let _server = start("allow-0rtt");
            assert_eq!(fields_of(clear.1, "GET", "/", ""), "200 0", "{name}");
            drop(_server);
            let _server = start(options);
            assert_eq!(fields_of(clear.1, "GET", "/", ""), "200 0", "{name} {options}");
        }
    }
}

/// Passes bytes on until either side ends. If `cuts` is set when it begins, the server's bytes stay, and it
/// ends once `is_served`.
fn relay(
    to: SocketAddr,
    cuts: Arc<AtomicBool>,
    is_served: impl Fn() -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let is_served = Arc::new(is_served);
    origin(move |mut client| {
        let mut server = connect(to);
        let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let upward = std::thread::spawn(move || std::io::copy(&mut up, &mut down));
        if cuts.swap(false, Ordering::Relaxed) {
            until(|| is_served());
        } else {
            let _ = std::io::copy(&mut server, &mut client);
        }
        for socket in [&client, &server] {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let _ = upward.join();
    })
}

/// A server may have served what came early although the handshake never ended.
#[test]
fn a_request_that_was_perhaps_served_early_is_repeated_only_if_that_does_no_harm() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let stats = authority.folder.0.join("stats");
    let served = move || columns(&stats, "s", "FRONTEND", &["req_tot"])[0].parse::<u32>().unwrap();
    let stats = authority.folder.0.join("stats");
    let defaults = DEFAULTS.replacen("global\n", &format!("global\n stats socket {}\n", stats.display()), 1);
    for name in DRIVERS {
        let [own, clear, secure] = [listener(), listener(), listener()];
        let config = defaults.clone() + &server(&fd(&own.0), &certificate, "allow-0rtt");
        let _server = Manylane::start_as(&config, driver(name));
        let (cuts, before) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let is_served = {
            let (served, before) = (served.clone(), before.clone());
            move || served() > before.load(Ordering::Relaxed)
        };
        let relay = relay(own.1, cuts.clone(), is_served);
        let config = DEFAULTS.to_owned() + &front(&fd(&clear.0), &fd(&secure.0), &certificate, relay);
        let _front = Manylane::start_as(&config, driver(name));
        let client = Early::new(&authority, &["http/1.1"]);
        let request = |method: &str| {
            format!("{method} / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").into_bytes()
        };
        let end = "\r\n\r\n";
        assert_eq!(fields(&client.first(secure.1, &request("GET"), end)), "200 0", "{name}");
        for (method, expected, times) in [("POST", "502 ", 1), ("GET", "200 0", 2)] {
            before.store(served(), Ordering::Relaxed);
            cuts.store(true, Ordering::Relaxed);
            let mut begun = client.begin(secure.1, &request(method));
            assert!(fields(&begun.until("\n")).starts_with(expected), "{name} {method}");
            assert_eq!(served() - before.load(Ordering::Relaxed), times, "{name} {method}");
        }
    }
}

#[test]
fn haproxy_takes_early_data_and_sends_it_to_the_same_requests() {
    let Some(_) = Haproxy::program() else { return };
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let own = common::own_address();
    let config = DEFAULTS.to_owned() + &server(&own.to_string(), &certificate, "allow-0rtt");
    let _server = Haproxy::start(&authority.folder.file("server.cfg", &config));
    until(|| TcpStream::connect(own).is_ok());
    let [clear, secure] = [listener(), listener()];
    let config = DEFAULTS.to_owned() + &front(&fd(&clear.0), &fd(&secure.0), &certificate, own);
    let _front = Manylane::start(&config);
    let of_ours = [(); 3].map(|()| fields_of(clear.1, "GET", "/", ""));
    assert_eq!(of_ours, ["200 0", "200 1", "200 1"]);
    // HAProxy does the same.
    let theirs = common::own_address();
    let other = common::own_address();
    let config = DEFAULTS.to_owned() + &front(&theirs.to_string(), &other.to_string(), &certificate, own);
    let _haproxy = Haproxy::start(&authority.folder.file("front.cfg", &config));
    until(|| TcpStream::connect(theirs).is_ok());
    assert_eq!([(); 3].map(|()| fields_of(theirs, "GET", "/", "")), of_ours);
}
