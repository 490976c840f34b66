//! Log lines to servers within TLS: of `ring` sections, and of backends in `mode log`.

use crate::common;
use crate::tls::{Authority, text};

use common::watch::{Played, Syslog, ask, both};
use common::{DEFAULTS, Ended, Manylane, ONE_LANE, TIMEOUT, check, connect, fd, listener, read_all};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A syslog server within TLS.
struct Collector {
    listener: TcpListener,
    config: Arc<ServerConfig>,
}

fn own_certificate(file: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_file(file).unwrap())
}

impl Collector {
    fn new(certificate: &Path) -> Self {
        let (chain, key) = own_certificate(certificate);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receive = rustix::net::sockopt::Timeout::Recv; // which bounds how long it waits to accept as well
        rustix::net::sockopt::set_socket_timeout(&listener, receive, Some(TIMEOUT)).unwrap();
        Self { listener, config: Arc::new(config) }
    }

    /// One that asks its clients for certificates of this authority.
    fn verifying(
        certificate: &Path,
        authority: &Authority,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let plain = Self::new(certificate);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.own.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let (chain, key) = own_certificate(certificate);
        let config = ServerConfig::builder_with_protocol_versions(&[version]);
        let config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        Self { config: Arc::new(config), ..plain }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn accept(&self) -> Lines {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Lines(StreamOwned::new(ServerConnection::new(self.config.clone()).unwrap(), socket))
    }
}

/// A connection of a client of lines.
struct Lines(StreamOwned<ServerConnection, TcpStream>);

impl Lines {
    /// The next bytes up to `end`.
    fn until(&mut self, end: &str) -> String {
        let mut received = Vec::new();
        while !received.ends_with(end.as_bytes()) {
            self.next(&mut received)
                .unwrap_or_else(|error| panic!("{error}, {end} missing behind {}", text(&received)));
        }
        text(&received)
    }

    /// Takes the next byte. Behind the handshake it does not wait until what was written is sent.
    fn next(&mut self, received: &mut Vec<u8>) -> std::io::Result<()> {
        let StreamOwned { conn, sock } = &mut self.0;
        let mut byte = [0];
        match conn.reader().read(&mut byte) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => received.push(byte[0]),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if conn.is_handshaking() => drop(conn.complete_io(sock)?),
            Err(_) => {
                conn.read_tls(sock)?;
                conn.process_new_packets().map_err(std::io::Error::other)?;
            }
        }
        Ok(())
    }

    /// The name that the client has asked for.
    fn name(&self) -> Option<&str> {
        self.0.conn.server_name()
    }
}

/// Starts a program of one lane whose frontend logs to this server of a ring, or of a backend in `mode log`.
fn logging(is_ring: bool, global: &str, server: &str, web: &TcpListener) -> Manylane {
    let (ring, backend) = match is_ring {
        true => (format!("ring r\n timeout connect 20s\n timeout server 20s\n {server}\n"), String::new()),
        false => (String::new(), format!("backend r\n mode log\n {server}\n")),
    };
    Manylane::start(&format!(
        "global\n{global}{ring}{ONE_LANE} mode http\n{backend}frontend f\n bind {}\n log {}@r format raw \
         local0\n log-format \"%HP\"\n http-request return status 200\n",
        fd(web),
        if is_ring { "ring" } else { "backend" },
    ))
}

/// The line of `global` that makes a console hear what the program reports.
fn to_console(console: &Syslog) -> String {
    format!(" log {} format raw local0\n", console.address())
}

/// Requests a path of a frontend at a unix socket.
fn get(socket: &Path, path: &str) {
    let mut client = UnixStream::connect(format!("{}.f", socket.display())).unwrap();
    client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert!(said.contains(" 200 "), "{said}");
}

/// Servers of both kinds get the lines of requests, in both framings, as HAProxy sends them.
#[test]
fn lines_of_requests_go_to_servers_within_tls_as_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["log.example"]);
    let (ca, collector) = (authority.file(), RefCell::new(Collector::new(&certificate)));
    for (options, name, framing, [first, second]) in [
        ("sni str(log.example)", Some("log.example"), "", ["hello /1\n", "hello /2\n"]),
        ("verifyhost log.example", None, " log-proto octet-count", ["8 hello /1", "8 hello /2"]),
    ] {
        for section in [
            "ring logs\n timeout connect 5s\n timeout server 5s\n",
            "backend logs\n mode log\n timeout connect 5s\n timeout server 5s\n",
        ] {
            let kind = section.split(' ').next().unwrap();
            let config = |_: &Syslog, socket: &Path| {
                // Each program has a server of its own, to which no other connects once more.
                let (shown, own) = (socket.display(), Collector::new(&certificate));
                let to = own.address();
                *collector.borrow_mut() = own;
                format!(
                    "{} mode http\n{section} server s {to} ssl ca-file {} {options}{framing}\nfrontend f\n \
                     bind unix@{shown}.f\n log {kind}@logs format raw local0\n log-format \"hello %HP\"\n \
                     http-request return status 200\n",
                    ONE_LANE.replacen("global\n", &format!("global\n stats socket {shown}\n"), 1),
                    ca.display(),
                )
            };
            let play = |played: Played| {
                get(&played.socket, "/1");
                let mut lines = collector.borrow().accept();
                let one = lines.until(first);
                get(&played.socket, "/2");
                (one, lines.until(second), lines.name().map(str::to_owned))
            };
            let (ours, theirs) = both(config, play);
            assert_eq!(ours, (first.to_owned(), second.to_owned(), name.map(str::to_owned)), "{section}");
            theirs.into_iter().for_each(|theirs| assert_eq!(ours, theirs, "{section}"));
        }
    }
}

/// Lines behind the end of a connection come on the next one.
#[test]
fn a_ring_goes_on_with_its_lines_on_the_next_connection() {
    let authority = Authority::new();
    let collector = Collector::new(&authority.bundle("a.pem", &["log.example"]));
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "ring r\n size 1m\n timeout connect 5s\n timeout server 5s\n server s {} ssl verify none log-proto \
            octet-count\n{DEFAULTS} mode http\nfrontend f\n bind {}\n log ring@r format raw local0\n \
            log-format \"hello %HP\"\n http-request return status 200\n",
        collector.address(),
        fd(&web),
    ));
    let get = |path: &str| common::get(address, path);
    get("/a");
    let mut first = collector.accept();
    assert_eq!(first.until("/a"), "8 hello /a");
    drop(first); // its task is told so, and waits for lines on the next connection
    get("/b");
    let mut second = collector.accept();
    assert_eq!(second.until("/b"), "8 hello /b");
    get("/c");
    assert_eq!(second.until("/c"), "8 hello /c");
}

/// A connection breaks off while records are under way. The next one begins with a whole line, and behind
/// those that the server has read: none of these comes twice, and none is missing from there on.
#[test]
fn a_ring_goes_on_with_a_whole_line_when_a_connection_breaks_off() {
    const LINES: usize = 3_000;
    /// Lines behind the end of the first connection: the kernel may have taken all others for it.
    const MORE: usize = 10;
    let authority = Authority::new();
    let collector = Collector::new(&authority.bundle("a.pem", &["log.example"]));
    // Lines wait in the program, and not in the kernel of the server.
    rustix::net::sockopt::set_socket_recv_buffer_size(&collector.listener, 4096).unwrap();
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n tune.ssl.hard-maxrecord 5000\nring r\n size 8m\n maxlen 2000\n timeout connect 60s\n \
         timeout server 10m\n server s {} ssl verify none\n{DEFAULTS} mode http\nfrontend f\n bind {}\n log \
         ring@r len 2000 format raw local0\n log-format \"%HP\"\n http-request return status 200\n",
        collector.address(),
        fd(&web),
    ));
    let mut client = connect(address);
    let mut served = BufReader::new(client.try_clone().unwrap()).lines();
    let long = "x".repeat(900);
    let mut log = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let request = format!("GET /{number}/{long} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            while !served.next().unwrap().unwrap().is_empty() {}
        }
    };
    let number = |line: std::io::Result<String>| -> usize {
        let line = line.unwrap();
        let (number, rest) = line.strip_prefix('/').unwrap().split_once('/').unwrap();
        assert_eq!(rest, long, "a part of a line");
        number.parse().unwrap()
    };
    log(0..1);
    let mut first = BufReader::new(collector.accept().0).lines();
    assert_eq!(number(first.next().unwrap()), 0); // the handshake is over, which has a time limit
    log(1..LINES);
    for expected in 1..100 {
        assert_eq!(number(first.next().unwrap()), expected);
    }
    drop(first); // with bytes that are not read, so it is reset
    log(LINES..LINES + MORE);
    let second = BufReader::new(collector.accept().0);
    let mut received = second.lines().map(number).take_while(|number| number + 1 < LINES + MORE);
    let begin = received.next().unwrap();
    assert!(begin >= 100, "{begin} comes twice");
    assert!(received.eq(begin + 1..LINES + MORE - 1), "lines are missing behind {begin}");
}

#[test]
fn a_server_of_lines_that_is_not_trusted_gets_none_and_is_reported() {
    let (authority, other) = (Authority::new(), Authority::new());
    let collector = Collector::new(&authority.bundle("a.pem", &["log.example"]));
    for is_ring in [true, false] {
        let console = Syslog::new();
        let (web, address) = listener();
        let server = format!("server s {} ssl ca-file {}", collector.address(), other.file().display());
        let _program = logging(is_ring, &to_console(&console), &server, &web);
        let mut client = connect(address);
        write!(client, "GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(read_all(&mut client).contains(" 200 "));
        let mut refused = collector.accept();
        let error = refused.0.read(&mut [0; 10]).unwrap_err();
        assert!(error.to_string().contains("UnknownCA"), "{error}");
        let line = console.wait("SSL handshake failure");
        let begin = format!("Log lines do not reach {}: SSL handshake failure (", collector.address());
        assert!(line.contains(&begin), "{line}");
    }
}

/// Servers get the certificate of `crt`. One that refuses it gets no line, and the refusal is reported,
/// though with TLS 1.3 it comes behind the handshake.
#[test]
fn servers_of_lines_verify_the_certificate_of_this_side() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.bundle("client.pem", &["proxy"]);
    let strange = other.bundle("client.pem", &["proxy"]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let collector =
            Collector::verifying(&authority.bundle("a.pem", &["log.example"]), &authority, version);
        for (is_ring, certificate) in [(true, &own), (false, &own), (true, &strange), (false, &strange)] {
            let console = Syslog::new();
            let (web, to) = listener();
            let crt = certificate.display();
            let server = format!("server s {} ssl verify none crt {crt}", collector.address());
            let _program = logging(is_ring, &to_console(&console), &server, &web);
            common::get(to, "/line");
            let mut lines = collector.accept();
            if certificate == &own {
                lines.until("/line");
                continue;
            }
            let error = lines.0.read(&mut [0; 10]).unwrap_err();
            assert!(error.to_string().contains("UnknownIssuer"), "{error}");
            let line = console.wait("SSL handshake failure");
            assert!(line.contains("alert"), "{line}");
        }
    }
}

/// A server that accepts and does not shake hands is reported after `timeout connect`.
#[test]
fn a_server_of_lines_that_does_not_shake_hands_is_reported() {
    let (silent, address) = listener();
    for is_ring in [true, false] {
        let console = Syslog::new();
        let (web, to) = listener();
        let server = format!("server s {address} ssl verify none\n timeout connect 200ms");
        let _program = logging(is_ring, &to_console(&console), &server, &web);
        common::get(to, "/");
        let line = console.wait("SSL handshake failure");
        assert_eq!(
            line,
            format!("Log lines do not reach {address}: SSL handshake failure (it took too long).")
        );
    }
    drop(silent);
}

/// What a server of lines writes is not kept.
#[test]
fn a_server_of_lines_that_writes_takes_no_memory() {
    let authority = Authority::new();
    let collector = Collector::new(&authority.bundle("a.pem", &["log.example"]));
    for is_ring in [true, false] {
        let (web, to) = listener();
        let server = format!("server s {} ssl verify none log-proto octet-count", collector.address());
        let program = logging(is_ring, "", &server, &web);
        let mut client = connect(to);
        let mut served = BufReader::new(client.try_clone().unwrap()).lines();
        let mut get = |path: &str| {
            write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            while !served.next().unwrap().unwrap().is_empty() {}
        };
        get("/first");
        let mut lines = collector.accept();
        lines.until("/first");
        let before = program.memory();
        for number in 0..50 {
            lines.0.sock.set_nonblocking(true).unwrap();
            while lines.0.write_all(&[b'x'; 16 << 10]).is_ok() {}
            lines.0.sock.set_nonblocking(false).unwrap();
            let path = format!("/{number}/");
            get(&path);
            lines.until(&path);
        }
        let more = program.memory().saturating_sub(before);
        assert!(more < crate::drips::MORE, "{more} KB, ring: {is_ring}");
    }
}

/// The ring's server is the same for both generations, and its next line goes by the settings of the new one.
#[test]
fn a_reload_turns_tls_on_and_off() {
    let authority = Authority::new();
    let collector = Collector::new(&authority.bundle("a.pem", &["log.example"]));
    let (web, address) = listener();
    let cli = authority.folder.0.join("control");
    let file = authority.folder.0.join("test.cfg");
    let write = |tls: &str| {
        let config = format!(
            "global\n stats socket {} level admin\nring r\n timeout connect 5s\n timeout server 5s\n server \
             s {} {tls} log-proto octet-count\n{DEFAULTS} mode http\nfrontend f\n bind {}\n log ring@r \
             format raw local0\n log-format \"hello %HP\"\n http-request return status 200\n",
            cli.display(),
            collector.address(),
            fd(&web),
        );
        std::fs::write(&file, config).unwrap();
    };
    let get = |path: &str| common::get(address, path);
    write("");
    let _program = Ended(common::command().arg("-f").arg(&file).spawn().unwrap());
    let plain = |end: &str| {
        let (mut socket, _) = collector.listener.accept().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut received = vec![0; end.len()];
        socket.read_exact(&mut received).unwrap();
        assert_eq!(text(&received), end);
        socket
    };
    get("/a");
    let _kept = plain("8 hello /a");
    write("ssl verify none");
    assert!(ask(&cli, "reload").contains("Reloaded"));
    get("/b");
    let mut within = collector.accept();
    assert_eq!(within.until("/b"), "8 hello /b");
    write("");
    assert!(ask(&cli, "reload").contains("Reloaded"));
    get("/c");
    plain("8 hello /c");
}

#[test]
fn options_of_tls_that_do_not_fit_are_refused() {
    for (section, expected) in [
        ("ring r\n server s 127.0.0.1:1 ssl\n", "a server can be verified with a 'ca-file' only"),
        (
            "ring r\n server s 127.0.0.1:1 ssl verify none sni req.hdr(host)\n",
            "'sni' expects a fixed name such as str(a.example.org) where there are no requests",
        ),
        ("ring r\n server s 127.0.0.1:1 verify none\n", "options of TLS expect 'ssl' beside them"),
        ("ring r\n server s 127.0.0.1:1 ssl verify none crt /nowhere/x.pem\n", "/nowhere/x.pem"),
        ("ring r\n server s 127.0.0.1:1 ssl verify none allow-0rtt\n", "lines are not sent as early data"),
        ("ring r\n server s 127.0.0.1:1 check\n", "of the options of a ring's server only 'log-proto'"),
        (
            "backend b\n mode log\n server s udp@127.0.0.1:1 ssl verify none\n",
            "'ssl' expects a server of TCP, found one of datagrams (udp@)",
        ),
        (
            "backend b\n mode log\n server s 127.0.0.1:1 ssl verify none sni req.hdr(host)\n",
            "'sni' expects a fixed name",
        ),
    ] {
        let said = text(&check(&format!("{DEFAULTS} mode http\nlisten l\n bind :1\n{section}"), &[]).stderr);
        assert!(said.contains(expected), "{section}: {said}");
    }
}
