//! Connections that change from TCP mode to HTTP: by `switch-mode`, or for a backend in HTTP mode (R-G1).
//! `differential/switch-mode*` compares the common behaviour with HAProxy; here are clients that need more.

use crate::common;
use crate::tls::Authority;

use common::h2::{block, client};
use common::watch::{Played, both, log_lines};
use common::{DEFAULTS, Manylane, TIMEOUT, connect, echo, fd, listener, named, read_all};
use h2::Reason;
use http::Request;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A frontend in TCP mode whose rules switch clients that begin with a letter, and a backend that tells what
/// it sees.
fn frontend(bind: &str, switch: &str, more: &str) -> String {
    format!(
        "{DEFAULTS}frontend f\n mode tcp\n bind {bind}\n{more} tcp-request inspect-delay 30s\n \
         tcp-request content set-var(sess.n) str(x),concat(,sess.n,) if {{ req.len gt 0 }}\n \
         tcp-request content {switch} if {{ req.payload(0,1) -m reg [A-Z] }}\n \
         tcp-request content accept if {{ req.len gt 0 }}\n \
         use_backend web if HTTP\n default_backend bytes\n\
         backend web\n mode http\n http-request return status 200 content-type text/plain lf-string \
         '%[method] %[path] %[req.ver] %[src] %[var(sess.n)] %[req.body]'\n\
         backend bytes\n mode tcp\n server e {}\n",
        echo()
    )
}

/// Reads a response, and returns its body.
fn body(stream: &mut BufReader<TcpStream>) -> String {
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).unwrap() > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// The PROXY header, the first bytes, the rest of the request in pieces, a second request in the same piece
/// as the end of the first: all of it counts. Other clients of the frontend stay in TCP mode.
#[test]
fn a_connection_switches_with_what_came_before() {
    let (socket, address) = listener();
    let bind = format!("{} accept-proxy", fd(&socket));
    let more = " option http-buffer-request\n";
    let _program = Manylane::start(&frontend(&bind, "switch-mode http", more));
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    for piece in [
        "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n",
        "P",
        "OST /a HTTP/1.1\r\nHost: a\r\nContent-",
        "Length: 5\r\n\r\n12",
        "345GET /b HTTP/1.1\r\nHost: a\r\n",
        "Connection: close\r\n\r\n",
    ] {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    let mut stream = BufReader::new(stream);
    assert_eq!(body(&mut stream), "POST /a 1.1 192.0.2.7 x 12345");
    assert_eq!(body(&mut stream), "GET /b 1.1 192.0.2.7 xx ", "the rules for contents run again");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);

    let mut stream = connect(address);
    stream.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n1").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "1");
}

/// The preface of HTTP/2 is enough, unless the rule demands a version. Rules for contents run in each stream.
#[test]
fn a_switched_connection_speaks_http_2() {
    let requests = |version: &'static str| {
        let (socket, address) = listener();
        let switch = format!("switch-mode http {version}");
        let _program = Manylane::start(&frontend(&fd(&socket), switch.trim_end(), ""));
        block(async {
            let mut bodies = Vec::new();
            let mut client = client(address).await;
            for path in ["/a", "/b"] {
                client = client.ready().await?;
                let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
                let (response, _) = client.send_request(request, true)?;
                let mut stream = response.await?.into_body();
                bodies.push(String::from_utf8(stream.data().await.unwrap()?.to_vec()).unwrap());
            }
            Ok::<_, h2::Error>(bodies)
        })
    };
    for version in ["", "proto h2"] {
        let bodies = requests(version).unwrap();
        assert_eq!(bodies, ["GET /a 2.0 127.0.0.1 xx ", "GET /b 2.0 127.0.0.1 xxx "], "{version}");
    }
    let error = requests("proto h1").unwrap_err();
    assert_ne!(error.reason(), Some(Reason::NO_ERROR), "{error}");
}

/// A client that does not finish its request has `timeout http-request`, counted from the switch.
#[test]
fn a_switched_client_that_falls_silent_is_answered() {
    let (socket, address) = listener();
    let (log, lines) = log_lines();
    let more = format!(" log {log} local0\n option tcplog\n timeout http-request 1s\n");
    let _program = Manylane::start(&frontend(&fd(&socket), "switch-mode http", &more));
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let line = lines.recv_timeout(TIMEOUT).unwrap();
    assert!(line.contains(" f f/<NOSRV> -1/-1/") && line.contains(" 0 PR "), "{line}");
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What a client sends in TCP mode goes to a backend in HTTP mode as HTTP only.
#[test]
fn a_backend_in_http_mode_gets_http_from_a_frontend_in_tcp_mode() {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS}frontend f\n mode tcp\n bind {}\n default_backend web\n\
         backend web\n mode http\n server s {}\n",
        fd(&socket),
        named("no http")
    );
    let _program = Manylane::start(&config);
    let mut stream = connect(address);
    stream.write_all(b"\x16\x03\x01 no request\r\n\r\n").unwrap();
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// `proto h1` holds for the whole connection, although the handshake agreed on HTTP/2: a second request that
/// is not finished is answered as the first one is.
#[test]
fn the_version_of_a_switch_holds_for_later_requests_as_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let config = |_: &common::watch::Syslog, socket: &std::path::Path| {
        let (shown, certificate) = (socket.display(), certificate.display());
        format!(
            "{}frontend f\n mode tcp\n timeout http-request 1s\n timeout http-keep-alive 30s\n bind \
             unix@{shown}.f ssl crt {certificate} alpn h2\n tcp-request inspect-delay 9s\n \
             tcp-request content switch-mode http proto h1 if {{ req.len gt 0 }}\n default_backend \
             web\nbackend web\n mode http\n http-request return status 200 content-type text/plain \
             string ok\n",
            DEFAULTS.replacen("global\n", &format!("global\n stats socket {shown}\n"), 1)
        )
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.own.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    let play = |played: Played| {
        let connect = || {
            let socket = UnixStream::connect(format!("{}.f", played.socket.display())).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            let tls = ClientConnection::new(client.clone(), "a.example".try_into().unwrap()).unwrap();
            let mut stream = StreamOwned::new(tls, socket);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
            assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
            let mut first = String::new();
            while !first.ends_with("\r\n\r\nok") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    assert!(first.is_empty() || first.starts_with("HTTP/1.1 408 "), "{first}");
                    return None;
                }
                first.push(byte[0].into());
            }
            Some(stream)
        };
        // On a busy machine the first request may come too late, too.
        let mut stream = (0..20).find_map(|_| connect()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
        let mut second = Vec::new();
        let _ = stream.read_to_end(&mut second); // whether the end is told is another question
        String::from_utf8(second).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let (ours, theirs) = both(config, play);
    assert_eq!(ours, "HTTP/1.1 408 Request Timeout");
    theirs.into_iter().for_each(|theirs| assert!(theirs.starts_with("HTTP/1.1 408 "), "{theirs}"));
}
