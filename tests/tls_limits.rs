//! Number and rate of TLS connections: limits and counters.

use crate::common;
use crate::tls::{Authority, Server, openssl, text};

use common::watch::{ask, until};
use common::{DEFAULTS, Manylane, connect, fd, listener, read_all};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = " http-request return status 200 content-type text/plain string hello\n";

/// A field of `show info`.
fn info(socket: &Path, name: &str) -> u64 {
    let all = ask(socket, "show info");
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {all}")).parse().unwrap()
}

/// A column of `show stat`.
fn column(socket: &Path, proxy: &str, own: &str, name: &str) -> u64 {
    let all = ask(socket, "show stat");
    let header: Vec<&str> = all.lines().next().unwrap().trim_start_matches("# ").split(',').collect();
    let row = all.lines().find(|line| line.starts_with(&format!("{proxy},{own},"))).unwrap();
    let index = header.iter().position(|own| *own == name).unwrap();
    row.split(',').nth(index).unwrap().parse().unwrap()
}

fn control(authority: &Authority) -> PathBuf {
    authority.folder.0.join("control")
}

/// Output of a client that may have kept a session.
pub(crate) fn get(address: SocketAddr, arguments: &[&str]) -> String {
    let to = address.to_string();
    let common = ["s_client", "-connect", &to, "-ign_eof"];
    text(&openssl(&[&common[..], arguments].concat(), "GET / HTTP/1.0\r\n\r\n").stdout)
}

#[test]
fn figures_tell_of_connections_keys_and_sessions() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (socket, address) = listener();
    let (clear, plain) = listener();
    let control = control(&authority);
    let session = authority.folder.0.join("session").display().to_string();
    let config = format!(
        "global\n stats socket {} level admin\n ssl-default-bind-options no-tls-tickets\n\
         {DEFAULTS} mode http\n\
         frontend f\n bind {} ssl crt {} ssl-max-ver TLSv1.2\n{PAGE}\
         frontend g\n bind {}\n default_backend b\n\
         backend b\n http-reuse never\n server s {address} ssl verify none\n",
        control.display(),
        fd(&socket),
        certificate.display(),
        fd(&clear),
    );
    let _program = Manylane::start_ready(&config);
    let stat = |proxy: &str, own: &str| {
        ["ssl_sess", "ssl_reused_sess", "ssl_failed_handshake"].map(|name| column(&control, proxy, own, name))
    };
    assert!(get(address, &["-tls1_2", "-sess_out", &session]).contains("hello"));
    assert_eq!(stat("f", "FRONTEND"), [1, 0, 0]);
    assert_eq!([info(&control, "SslCacheLookups"), info(&control, "SslCacheMisses")], [0, 0]);
    assert!(get(address, &["-tls1_2", "-sess_in", &session]).contains("\nReused, "));
    assert_eq!(stat("f", "FRONTEND"), [2, 1, 0]);
    assert_eq!([info(&control, "SslCacheLookups"), info(&control, "SslCacheMisses")], [1, 0]);
    // Both ends of the same two connections; the second one resumes the session of the first.
    for _ in 0..2 {
        let mut client = connect(plain);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert!(read_all(&mut client).ends_with("hello"));
    }
    assert_eq!((stat("b", "BACKEND"), stat("b", "s")), ([2, 1, 0], [2, 1, 0]));
    assert_eq!(stat("f", "FRONTEND"), [4, 2, 0]);
    let mut garbage = connect(address);
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = std::io::Read::read_to_end(&mut garbage, &mut Vec::new()); // a reset is an end, too
    until(|| stat("f", "FRONTEND") == [4, 2, 1]);
    // Five of clients, and two to the server.
    assert_eq!(info(&control, "CumSslConns"), 7);
    until(|| info(&control, "CurrSslConns") == 0);
    let most = |name: &str| info(&control, name);
    assert!((1..=5).contains(&most("MaxSslRate")));
    assert!((1..=2).contains(&most("SslFrontendMaxKeyRate")));
    assert_eq!(most("SslBackendMaxKeyRate"), 1);
    ask(&control, "clear counters");
    until(|| ["SslRate", "SslFrontendKeyRate", "SslBackendKeyRate"].map(most) == [0, 0, 0]);
    let _held = connect(address);
    until(|| info(&control, "CurrSslConns") == 1);
    assert_eq!(info(&control, "MaxSslRate"), 1);
}

#[test]
fn maxsslconn_has_clients_wait_and_refuses_servers() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let server = Server::start(&certificate, &[]);
    let (socket, address) = listener();
    let (clear, plain) = listener();
    let control = control(&authority);
    let config = format!(
        "global\n stats socket {} level admin\n maxsslconn 1\n\
         {DEFAULTS} mode http\n log stderr format raw local0\n log-format \"%ft %ST\"\n\
         frontend f\n bind {} ssl crt {}\n default_backend b\n\
         frontend g\n bind {}\n default_backend b\n\
         backend b\n retries 0\n http-reuse never\n server s {} ssl verify none\n",
        control.display(),
        fd(&socket),
        certificate.display(),
        fd(&clear),
        server.1,
    );
    let (_program, mut said) = Manylane::start_heard(&config, &[]);
    let mut logged = |text: &str| {
        let line = said.by_ref().map_while(Result::ok).find(|line| line.starts_with(['f', 'g']));
        assert_eq!(line.unwrap(), text);
    };
    until(|| std::os::unix::net::UnixStream::connect(&control).is_ok());
    assert_eq!(info(&control, "MaxSslConns"), 1);
    let status = || {
        let mut client = connect(plain);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        read_all(&mut client)[9..12].to_owned()
    };
    assert_eq!(status(), "200");
    logged("g 200");
    until(|| info(&control, "CurrSslConns") == 0);
    let mut first = connect(address); // sends nothing
    until(|| info(&control, "CurrSslConns") == 1);
    assert_eq!(status(), "503", "the client has the only place");
    logged("g 503");
    let second = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-ign_eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut second = second.unwrap();
    second.stdin.as_mut().unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    for _ in 0..10 {
        assert_eq!(status(), "503");
        logged("g 503");
    }
    assert!(second.try_wait().unwrap().is_none());
    first.write_all(b"no hello\r\n").unwrap();
    let _ = std::io::Read::read_to_end(&mut first, &mut Vec::new());
    let output = second.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("503"), "it has a place, and its request none");
    assert_eq!(info(&control, "CumSslConns"), 3, "two clients and the first request");
}

#[test]
fn maxsslrate_bounds_how_fast_clients_come_and_commands_change_it() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (socket, address) = listener();
    let control = control(&authority);
    let config = format!(
        "global\n stats socket {} level admin\n maxsslrate 1\n\
         {DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {}\n{PAGE}",
        control.display(),
        fd(&socket),
        certificate.display(),
    );
    let _program = Manylane::start_ready(&config);
    assert_eq!(info(&control, "SslRateLimit"), 1);
    let begun = Instant::now();
    for _ in 0..3 {
        assert!(get(address, &[]).contains("hello"));
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1900), "each but the first waits for a second: {took:?}");
    assert_eq!(ask(&control, "set rate-limit ssl-sessions global 1000"), "\n");
    assert_eq!(info(&control, "SslRateLimit"), 1000);
    let said = ask(&control, "set rate-limit ssl-sessions other 1");
    assert!(said.contains("'ssl-sessions global'"), "{said}");
    let said = ask(&control, "set rate-limit ssl-sessions global many");
    assert!(said.contains("Expects an integer value."), "{said}");
}
