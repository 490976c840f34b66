//! Early data (`allow-0rtt`): requests that arrive with a client's hello. The client is one of rustls that
//! withholds the end of its handshake, so that the tests do not depend on time.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::watch::{Haproxy, columns, until};
use common::{DEFAULTS, Manylane, connect, fd, listener, origin};
use manylane_tests::sockets::{FIN_WAIT1, sockets};
use rustix::net::{AddressFamily, SocketType};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Drivers of the program: epoll, and io_uring where the system has it.
const DRIVERS: [&str; 2] = ["epoll", "auto"];

/// Body of the response to a request for `/large`: more than the small window of a client.
fn large() -> String {
    format!("{}\r\n\r\n", "x".repeat(300_000))
}

/// A server that responds with the head of the request; with 425 to one for `/425`, and to early ones for
/// `/picky`.
fn echo_of_heads() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let observed = heads.clone();
    let address = origin(move |mut stream| {
        let (mut head, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            head.extend_from_slice(&piece[..n]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let reported = String::from_utf8(std::mem::take(&mut head)).unwrap().to_lowercase();
            let is_early = reported.starts_with("get /425")
                || reported.starts_with("get /picky") && reported.contains("\r\nearly-data:");
            let status = if is_early { "425 Too Early" } else { "200 OK" };
            let body = if reported.starts_with("get /large") { large() } else { reported.clone() };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            observed.lock().unwrap().push(reported);
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, heads)
}

/// [`DEFAULTS`], with a run-time interface in the folder of the authority.
fn defaults(authority: &Authority) -> String {
    DEFAULTS.replacen("global\n", &format!("global\n stats socket {}\n", stats(authority).display()), 1)
}

fn stats(authority: &Authority) -> PathBuf {
    authority.folder.0.join("stats")
}

/// Number of requests that the frontend has begun.
fn requests(authority: &Authority) -> u64 {
    columns(&stats(authority), "f", "FRONTEND", &["req_tot"])[0].parse().unwrap()
}

/// Waits until the program has written its last byte to a client whose window has no room for it: the
/// program's side is then in the state FIN_WAIT1.
fn last_is_written(client: &TcpStream) {
    let (own, peer) = (client.peer_addr().unwrap().port(), client.local_addr().unwrap().port());
    until(|| !sockets(FIN_WAIT1, Some(own), Some(peer)).is_empty());
}

/// Rules of the tests, for this `bind` line and this server.
fn rules(bind: &str, server: SocketAddr) -> String {
    format!(
        "frontend f\n mode http\n bind {bind}\n http-request return status 425 if {{ path /refused }} \
         {{ ssl_fc_has_early }}\n http-request wait-for-handshake if {{ path /wait }}\n \
         http-request set-header x-early %[ssl_fc_has_early]\n \
         http-request set-header x-rcvd %[ssl_fc_early_rcvd]\n default_backend b\n\
         backend b\n mode http\n http-request set-header x-told %[req.hdr(early-data)]\n \
         http-request pause 1s if {{ path /paused }}\n \
         http-request wait-for-handshake if {{ path /late /paused }}\n \
         http-request set-header x-told gone if {{ path /paused }} !{{ req.hdr(early-data) -m found }}\n \
         server s {server}\n"
    )
}

/// Starts the program with these rules.
fn start(
    driver: &str,
    authority: &Authority,
    options: &str,
) -> (Manylane, SocketAddr, Arc<Mutex<Vec<String>>>) {
    start_with(driver, authority, options, "")
}

/// As [`start`], with more lines of the backend.
fn start_with(
    driver: &str,
    authority: &Authority,
    options: &str,
    more: &str,
) -> (Manylane, SocketAddr, Arc<Mutex<Vec<String>>>) {
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (server, heads) = echo_of_heads();
    let (socket, address) = listener();
    let bind = format!("{} ssl crt {} {options}", fd(&socket), certificate.display());
    let config = format!("{}{}{more}", defaults(authority), rules(&bind, server));
    let program = Manylane::start_as(&config, |command| {
        command.env("MANYLANE_DRIVER", driver);
    });
    (program, address, heads)
}

/// A client that keeps sessions, and sends early data where a session permits it.
pub(crate) struct Early {
    early: Arc<ClientConfig>,
    /// Shares the sessions, and sends none.
    usual: Arc<ClientConfig>,
}

impl Early {
    pub(crate) fn new(authority: &Authority, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.own.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let usual = Arc::new(config.clone());
        config.enable_early_data = true;
        Self { early: Arc::new(config), usual }
    }

    fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
        ClientConnection::new(config.clone(), "a.example".try_into().unwrap()).unwrap()
    }

    /// Makes a connection of the usual kind, which leaves sessions behind. Returns the answer.
    pub(crate) fn first(&self, address: SocketAddr, request: &[u8], answered: &str) -> String {
        let mut both =
            Both { tls: Self::connection(&self.usual), socket: connect(address), hello: Vec::new() };
        both.finish();
        both.send(request);
        both.until(answered)
    }

    /// Sends a hello and `request` in early data, and nothing else.
    pub(crate) fn begin(&self, address: SocketAddr, request: &[u8]) -> Both {
        self.begin_on(connect(address), request)
    }

    fn begin_on(&self, mut socket: TcpStream, request: &[u8]) -> Both {
        let mut tls = Self::connection(&self.early);
        tls.early_data().expect("there is a session").write_all(request).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        socket.write_all(&hello).unwrap();
        Both { tls, socket, hello }
    }
}

/// A client's side of a connection.
pub(crate) struct Both {
    tls: ClientConnection,
    socket: TcpStream,
    /// What was sent first.
    hello: Vec<u8>,
}

impl Both {
    /// Reads, and sends nothing, until the decrypted data ends with these words. Returns all of it.
    pub(crate) fn until(&mut self, words: &str) -> String {
        let mut data = Vec::new();
        loop {
            let _ = self.tls.reader().read_to_end(&mut data); // there is no end yet
            let reported = String::from_utf8_lossy(&data).into_owned();
            if reported.ends_with(words) {
                return reported;
            }
            assert!(self.tls.read_tls(&mut self.socket).unwrap() > 0, "it ended: {reported}");
            self.tls.process_new_packets().unwrap();
        }
    }

    /// Reads until the server's half of the handshake has come.
    fn half(&mut self) {
        while self.tls.peer_certificates().is_none() || !self.tls.wants_write() {
            assert!(self.tls.read_tls(&mut self.socket).unwrap() > 0);
            self.tls.process_new_packets().unwrap();
        }
    }

    /// Asserts that no answer comes while the handshake is incomplete.
    fn waits(&mut self) {
        self.half();
        self.socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        self.tls.read_tls(&mut self.socket).expect_err("there is no answer yet");
        self.socket.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    }

    /// Completes the handshake.
    fn finish(&mut self) {
        while self.tls.is_handshaking() || self.tls.wants_write() {
            self.tls.complete_io(&mut self.socket).unwrap();
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.tls.writer().write_all(data).unwrap();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
    }
}

fn get(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{more}\r\n").into_bytes()
}

/// The fields that tell a server of early data.
fn lines_of(answer: &str) -> Vec<&str> {
    let is_one = |line: &&str| {
        ["early-data:", "x-early:", "x-rcvd:", "x-told:"].iter().any(|name| line.starts_with(name))
    };
    let mut reported: Vec<_> = answer.lines().filter(is_one).map(str::trim_end).collect();
    reported.sort_unstable();
    reported
}

/// Returns the first lines of answers, and what the server was told of. HAProxy sends its answers when the
/// handshake is complete; the last step, in which a rule waits, is not compared.
fn steps(authority: &Authority, address: SocketAddr, answers_early: bool) -> Vec<String> {
    let client = Early::new(authority, &["http/1.1"]);
    let mut all = Vec::new();
    let mut note = |answer: &str| {
        let line = answer.lines().next().unwrap_or_default().to_owned();
        all.push(format!("{line} {:?}", lines_of(answer)));
    };
    note(&client.first(address, &get("/", ""), "\r\n\r\n"));
    for (path, more) in [("/", ""), ("/", "Early-Data: 1\r\n"), ("/425", ""), ("/refused", "")] {
        client.first(address, &get("/", ""), "\r\n\r\n");
        let before = requests(authority);
        let mut begun = client.begin(address, &get(path, more));
        if !answers_early {
            begun.half();
            until(|| requests(authority) > before);
            begun.finish();
        }
        if path == "/refused" {
            note(&begun.until("\r\n\r\n"));
            continue;
        }
        note(&begun.until("\r\n\r\n"));
        assert!(begun.tls.is_early_data_accepted());
        begun.finish();
        begun.send(&get("/", ""));
        note(&begun.until("\r\n\r\n"));
    }
    if !answers_early {
        return all;
    }
    client.first(address, &get("/", ""), "\r\n\r\n");
    let mut begun = client.begin(address, &get("/wait", ""));
    begun.waits();
    begun.finish();
    note(&begun.until("\r\n\r\n"));
    all
}

#[test]
fn requests_of_early_data_are_served_and_marked_as_in_haproxy() {
    let authority = Authority::new();
    let expected = [
        r#"HTTP/1.1 200 OK ["x-early: 0", "x-rcvd: 0", "x-told:"]"#,
        r#"HTTP/1.1 200 OK ["early-data: 1", "x-early: 1", "x-rcvd: 1", "x-told: 1"]"#,
        r#"HTTP/1.1 200 OK ["x-early: 0", "x-rcvd: 1", "x-told:"]"#,
        r#"HTTP/1.1 200 OK ["early-data: 1", "x-early: 1", "x-rcvd: 1", "x-told: 1"]"#,
        r#"HTTP/1.1 200 OK ["x-early: 0", "x-rcvd: 1", "x-told:"]"#,
        r#"HTTP/1.1 425 Too Early ["early-data: 1", "x-early: 1", "x-rcvd: 1", "x-told: 1"]"#,
        r#"HTTP/1.1 200 OK ["x-early: 0", "x-rcvd: 1", "x-told:"]"#,
        r#"HTTP/1.1 425 Too Early []"#,
        r#"HTTP/1.1 200 OK ["x-early: 0", "x-rcvd: 1", "x-told:"]"#,
    ];
    for driver in DRIVERS {
        let (_program, address, _) = start(driver, &authority, "allow-0rtt");
        assert_eq!(steps(&authority, address, true), expected, "{driver}");
    }
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (server, _) = echo_of_heads();
    let address = common::own_address();
    let bind = format!("{address} ssl crt {} allow-0rtt", certificate.display());
    let file =
        authority.folder.file("haproxy.cfg", &format!("{}{}", defaults(&authority), rules(&bind, server)));
    if let Some(_haproxy) = Haproxy::start(&file) {
        until(|| TcpStream::connect(address).is_ok());
        assert_eq!(steps(&authority, address, false), expected[..8], "HAProxy");
    }
}

#[test]
fn a_backend_that_waits_for_the_handshake_takes_the_field_back() {
    let authority = Authority::new();
    let (_program, address, heads) = start("epoll", &authority, "allow-0rtt");
    let client = Early::new(&authority, &[]);
    client.first(address, &get("/", ""), "\r\n\r\n");
    let mut begun = client.begin(address, &get("/late", ""));
    begun.half();
    assert_eq!(heads.lock().unwrap().len(), 1, "the server does not know of it");
    begun.finish();
    assert_eq!(lines_of(&begun.until("\r\n\r\n")), ["x-early: 1", "x-rcvd: 1", "x-told: 1"]);
    // A client that leaves instead is not served, and one that has sent the field itself keeps it.
    for (more, leaves) in [("", true), ("Early-Data: 1\r\n", false)] {
        client.first(address, &get("/", ""), "\r\n\r\n");
        let mut begun = client.begin(address, &get("/late", more));
        begun.half();
        if leaves {
            begun.socket.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = begun.socket.read_to_end(&mut Vec::new()); // a reset is an end, too
        } else {
            begun.finish();
            assert_eq!(lines_of(&begun.until("\r\n\r\n"))[0], "early-data: 1");
        }
    }
    let served = heads.lock().unwrap().iter().filter(|head| head.starts_with("get /late")).count();
    assert_eq!(served, 2);
}

/// A client with a small window, so that responses stay in the program's socket.
fn small(address: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let client = TcpStream::from(socket);
    client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    client
}

#[test]
fn a_connection_that_closes_waits_for_the_handshake_so_that_no_response_is_cut() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (_program, address, _) = start(driver, &authority, "allow-0rtt");
        let client = Early::new(&authority, &[]);
        let closing = get("/large", "Connection: close\r\n");
        for request in [&closing[..], b"GET /large HTTP/1.0\r\n\r\n"] {
            client.first(address, &get("/", ""), "\r\n\r\n");
            let mut begun = client.begin_on(small(address), request);
            begun.half();
            last_is_written(&begun.socket); // it could close now
            begun.finish();
            let answer = begun.until(&large());
            assert!(answer.starts_with("HTTP/1.1 200"), "{driver}");
        }
    }
}

#[test]
fn tickets_come_with_the_end_of_the_handshake() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (_program, address, _) = start(driver, &authority, "allow-0rtt");
        let client = Early::new(&authority, &[]);
        client.first(address, &get("/", ""), "\r\n\r\n");
        let mut begun = client.begin(address, &get("/", ""));
        begun.until("\r\n\r\n");
        begun.finish();
        // Less than the time after which the connection closes.
        begun.socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        while begun.tls.tls13_tickets_received() == 0 {
            let read = begun.tls.read_tls(&mut begun.socket);
            assert!(read.expect("the tickets need no other request") > 0, "{driver}");
            begun.tls.process_new_packets().unwrap();
        }
    }
}

#[test]
fn a_handshake_that_is_complete_before_a_server_is_asked_takes_the_field_back() {
    let authority = Authority::new();
    let (_program, address, _) = start("auto", &authority, "allow-0rtt");
    let client = Early::new(&authority, &["h2"]);
    client.first(address, &h2_get("/"), "\r\n\r\n");
    let before = requests(&authority);
    let mut begun = client.begin(address, &h2_get("/paused"));
    begun.half();
    until(|| requests(&authority) > before);
    begun.finish();
    assert_eq!(lines_of(&begun.until("\r\n\r\n")), ["x-early: 1", "x-rcvd: 1", "x-told: gone"]);
}

#[test]
fn a_request_that_is_too_early_is_repeated_behind_the_handshake() {
    let authority = Authority::new();
    let (_program, address, heads) = start_with("auto", &authority, "allow-0rtt", " retry-on 425\n");
    let served = |path: &str| heads.lock().unwrap().iter().filter(|head| head.starts_with(path)).count();
    let client = Early::new(&authority, &["http/1.1"]);
    client.first(address, &get("/", ""), "\r\n\r\n");
    let mut begun = client.begin(address, &get("/picky", ""));
    begun.half();
    common::watch::until(|| served("get /picky") == 1);
    begun.waits();
    begun.finish();
    let answer = begun.until("\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!((lines_of(&answer), served("get /picky")), (vec!["x-early: 1", "x-rcvd: 1", "x-told: 1"], 2));
    // A client that has sent the field itself repeats the request.
    client.first(address, &get("/", ""), "\r\n\r\n");
    let mut begun = client.begin(address, &get("/picky", "Early-Data: 1\r\n"));
    assert!(begun.until("\r\n\r\n").starts_with("HTTP/1.1 425"));
    assert_eq!(served("get /picky"), 3);
}

#[test]
fn a_form_of_the_statistics_page_waits_for_the_handshake() {
    let authority = Authority::new();
    let page = " stats uri /stats\n stats admin if TRUE\n";
    let (_program, address, _) = start_with("auto", &authority, "allow-0rtt", page);
    let client = Early::new(&authority, &["http/1.1"]);
    client.first(address, &get("/", ""), "\r\n\r\n");
    let form = "s=s&b=b&action=drain";
    let head = format!("POST /stats HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", form.len());
    let mut begun = client.begin(address, format!("{head}{form}").as_bytes());
    begun.waits();
    begun.finish();
    let answer = begun.until("\r\n\r\n");
    assert!(answer.contains("/stats;st=DONE"), "{answer}");
}

#[test]
fn copied_early_data_is_not_served_again() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (_program, address, heads) = start(driver, &authority, "allow-0rtt");
        let client = Early::new(&authority, &[]);
        client.first(address, &get("/", ""), "\r\n\r\n");
        // Early data that is empty is none.
        let mut begun = client.begin(address, b"");
        begun.finish();
        begun.send(&get("/", ""));
        assert_eq!(lines_of(&begun.until("\r\n\r\n")), ["x-early: 0", "x-rcvd: 0", "x-told:"]);
        let mut begun = client.begin(address, &get("/pay", ""));
        begun.until("\r\n\r\n");
        // Several times, so that other lanes get it, too; before and behind the end of the handshake.
        for turn in 0..8 {
            let mut copy = connect(address);
            copy.write_all(&begun.hello).unwrap();
            assert!(copy.read(&mut [0; 4096]).unwrap() > 0, "{driver}: it is answered as a new client");
            if turn == 3 {
                begun.finish();
            }
        }
        begun.send(&get("/again", ""));
        begun.until("\r\n\r\n");
        let paid = heads.lock().unwrap().iter().filter(|head| head.starts_with("get /pay")).count();
        assert_eq!(paid, 1, "{driver}");
    }
}

/// A request of HTTP/2, with the preface.
fn h2_get(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x44, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x41, 1, b'x']);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend([0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    bytes.extend(block);
    bytes
}

#[test]
fn streams_of_http2_are_served_early_and_wait() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (_program, address, heads) = start(driver, &authority, "allow-0rtt");
        let client = Early::new(&authority, &["h2"]);
        client.first(address, &h2_get("/"), "\r\n\r\n");
        let mut begun = client.begin(address, &h2_get("/"));
        assert_eq!(
            lines_of(&begun.until("\r\n\r\n")),
            ["early-data: 1", "x-early: 1", "x-rcvd: 1", "x-told: 1"]
        );
        client.first(address, &h2_get("/"), "\r\n\r\n");
        let mut begun = client.begin(address, &h2_get("/wait"));
        begun.half();
        assert!(!heads.lock().unwrap().iter().any(|head| head.starts_with("get /wait")));
        begun.finish();
        assert_eq!(lines_of(&begun.until("\r\n\r\n")), ["x-early: 0", "x-rcvd: 1", "x-told:"], "{driver}");
    }
}

#[test]
fn in_tcp_mode_the_data_waits_for_the_handshake() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (server, heads) = echo_of_heads();
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS}frontend f\n bind {} ssl crt {} allow-0rtt\n default_backend b\n\
         backend b\n server s {server}\n",
        fd(&socket),
        certificate.display(),
    );
    let _program = Manylane::start(&config);
    let client = Early::new(&authority, &[]);
    client.first(address, &get("/", ""), "\r\n\r\n");
    let mut begun = client.begin(address, &get("/later", ""));
    begun.half();
    assert_eq!(heads.lock().unwrap().len(), 1, "the server does not know of it");
    begun.finish();
    begun.until("\r\n\r\n");
    assert!(begun.tls.is_early_data_accepted());
    assert!(heads.lock().unwrap()[1].starts_with("get /later"));
}

/// Passes a connection on; the client's first bytes as a whole, with its first record of data.
fn whole_hello(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), connect(to));
            let (mut there, mut piece) = (Vec::new(), [0; 4096]);
            let has_data = |bytes: &[u8]| {
                let mut rest = bytes;
                while let [kind, _, _, high, low, after @ ..] = rest
                    && let Some(next) = after.get(usize::from(u16::from_be_bytes([*high, *low]))..)
                {
                    if *kind == 23 {
                        return true;
                    }
                    rest = next;
                }
                false
            };
            while !has_data(&there) {
                let n = client.read(&mut piece).unwrap();
                assert!(n > 0);
                there.extend_from_slice(&piece[..n]);
            }
            server.write_all(&there).unwrap();
            let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut client, &mut server);
                let _ = server.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

/// `openssl s_client` with a session and a file of early data, and with what it sends afterwards.
fn openssl_early(address: SocketAddr, session: &Path, data: &Path, later: &str) -> String {
    let [to, session, data] =
        [address.to_string(), session.display().to_string(), data.display().to_string()];
    let arguments = ["s_client", "-connect", &to, "-ign_eof", "-sess_in", &session, "-early_data", &data];
    text(&openssl(&arguments, later).stdout)
}

#[test]
fn openssl_sends_early_data() {
    let authority = Authority::new();
    let session = authority.folder.0.join("session");
    let text = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let request = authority.folder.file("request", text);
    for (driver, options) in [("epoll", "allow-0rtt"), ("auto", "allow-0rtt"), ("epoll", "")] {
        let (_program, address, _) = start(driver, &authority, options);
        let shown = session.display().to_string();
        let first = crate::tls_limits::get(address, &["-tls1_3", "-sess_out", &shown]);
        assert!(first.contains("x-early: 0"), "{first}");
        if options.is_empty() {
            assert!(first.contains("Max Early Data: 0"), "{first}");
            continue;
        }
        assert!(first.contains("Max Early Data: 15360"), "{first}");
        let said = openssl_early(whole_hello(address), &session, &request, "");
        assert!(said.contains("Early data was accepted") && said.contains("early-data: 1"), "{said}");
        // A session is good for once.
        let said = openssl_early(whole_hello(address), &session, &request, text);
        assert!(said.contains("Early data was rejected") && said.contains("x-early: 0"), "{driver}: {said}");
    }
}
