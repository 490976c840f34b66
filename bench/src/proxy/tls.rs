//! `manylane-bench tls`: the cost of TLS, compared with haproxy and nginx.
//!
//! # Measurement
//! As in `proxy`: all programs of a row run at the same time, with two threads each, and alternate. The
//! result is the processor time of the proxy's processes. The clients are `h2load` of nghttp2, and
//! `openssl s_time` for handshakes; both use the versions, ciphers and groups that they and the proxy prefer.
//! The server is that of `proxy`, in clear text.
//!
//! Idle connections are made with rustls; the result is the additional memory of the proxy, divided by the
//! connections. The row `flood` measures clear-text requests beside clients that only make handshakes.

use super::How;
use super::http2::{all_answered, h2load, lines, nginx_of};
use super::load::{Arrival, Load, Message, Traffic};
use super::program::{Kind, Program, Programs, free_port};
use clap::Args;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Idle connections of their row, each of which has had a response.
const IDLE: usize = 4_000;

/// Time for memory to settle.
const SETTLED: Duration = Duration::from_secs(1);

/// Seconds of handshakes in each round.
const SECONDS: u32 = 2;

/// Clients of the row `flood` that only make handshakes.
const FLOODERS: usize = 4;

/// Clear-text requests per second beside them.
const RATE: f64 = 1_000.0;

/// Arguments of `tls`.
#[derive(Clone, Debug, Args)]
pub struct TlsArguments {
    /// Only this row; may be repeated
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<String>,
    /// How it is measured
    #[command(flatten)]
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Requests on kept connections, over HTTP/2 or HTTP/1.
    Requests {
        h2: bool,
        connections: u32,
        streams: u32,
        body: u64,
        requests: u64,
    },
    /// Connections one after another, with or without resumed sessions.
    Handshakes {
        resumed: bool,
    },
    Idle,
    /// Clear-text requests beside handshakes.
    Flood,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    Ecdsa,
    Rsa,
}

struct Row {
    name: &'static str,
    words: &'static str,
    work: Work,
    key: Key,
    /// Largest ratios to the best peer: over epoll, and over io_uring.
    most: [f64; 2],
}

const KINDS: [Kind; 4] = [Kind::Haproxy, Kind::Nginx, Kind::Epoll, Kind::Uring];
const PEERS: [Kind; 2] = [Kind::Haproxy, Kind::Nginx];

static ROWS: &[Row] = &[
    Row {
        name: "keep-alive",
        words: "HTTP/1 over TLS, keep-alive, 64 clients, 1 KiB; CPU us a request",
        work: Work::Requests { h2: false, connections: 64, streams: 1, body: 1 << 10, requests: 30_000 },
        key: Key::Ecdsa,
        most: [0.75, 0.60],
    },
    Row {
        name: "streams",
        words: "HTTP/2 over TLS, 16 connections of 32 streams, 1 KiB; CPU us a request",
        work: Work::Requests { h2: true, connections: 16, streams: 32, body: 1 << 10, requests: 40_000 },
        key: Key::Ecdsa,
        most: [0.80, 0.70],
    },
    Row {
        name: "medium",
        words: "HTTP/1 over TLS, 64 clients, 16 KiB; CPU s per GB",
        work: Work::Requests { h2: false, connections: 64, streams: 1, body: 16 << 10, requests: 20_000 },
        key: Key::Ecdsa,
        most: [0.80, 0.80],
    },
    Row {
        name: "ecdsa",
        words: "handshakes, ECDSA P-256, no resumption; CPU us each",
        work: Work::Handshakes { resumed: false },
        key: Key::Ecdsa,
        most: [0.80, 0.80],
    },
    Row {
        name: "resumed",
        words: "handshakes that resume a session, each with a request; CPU us each",
        work: Work::Handshakes { resumed: true },
        key: Key::Ecdsa,
        most: [0.80, 0.80],
    },
    Row {
        name: "rsa",
        words: "handshakes, RSA-2048, no resumption; CPU us each",
        work: Work::Handshakes { resumed: false },
        key: Key::Rsa,
        most: [0.90, 0.90],
    },
    Row {
        name: "idle",
        words: "4,000 idle connections of HTTP/1 over TLS; bytes each",
        work: Work::Idle,
        key: Key::Ecdsa,
        most: [0.60, 0.60],
    },
    Row {
        name: "flood",
        words: "1,000 requests a second in clear beside 4 clients that make RSA handshakes; p99 in ms",
        work: Work::Flood,
        key: Key::Rsa,
        most: [1.0, 1.0],
    },
];

/// Runs the command.
///
/// # Errors
/// A sentence if a row or a program is unknown, or requests were not answered.
pub fn run(arguments: &TlsArguments) -> Result<(), String> {
    let chosen = rows(&arguments.rows)?;
    super::with_programs(&arguments.how, |programs| {
        for kind in [Kind::Epoll, Kind::Haproxy, Kind::Nginx] {
            if kind.is_ours() || !arguments.how.alone {
                println!("{}", programs.version(kind)?);
            }
        }
        println!("\n| row | program | median | least | ratio |\n|---|---|---|---|---|");
        for row in chosen {
            print!("{}", table(row, &arguments.how, programs)?);
        }
        Ok(())
    })
}

fn rows(names: &[String]) -> Result<Vec<&'static Row>, String> {
    super::named(names, "row", ROWS, |row| row.name)
}

/// A running proxy, and the address of its TLS listener.
struct Contestant {
    kind: Kind,
    program: Program,
    tls: SocketAddr,
    samples: Vec<f64>,
}

/// The table lines of a row.
fn table(row: &Row, how: &How, programs: &Programs) -> Result<String, String> {
    let load = Load::start()?;
    let body = match row.work {
        Work::Requests { body, .. } => body,
        _ => 1 << 10,
    };
    let request = Message::new("GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n".to_owned(), 0);
    let response = Message::new(format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n"), body);
    let mut traffic = Traffic { request, response, expected: body, clients: 0, close: false };
    load.open(&Arc::new(traffic.clone()), load.origin())?;
    traffic.clients = 16;
    let pem = certificate(row.key, &programs.folder)?;
    let mut all = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| kind.is_ours() || !how.alone) {
        let (clear, tls, server) = (free_port()?, free_port()?, load.origin().port());
        let text = match kind {
            Kind::Nginx => nginx([clear, tls], server, &pem, programs),
            _ => haproxy([clear, tls], server, &pem),
        };
        let program = programs.start(kind, clear, &text)?;
        let tls = SocketAddr::from(([127, 0, 0, 1], tls));
        all.push(Contestant { kind, program, tls, samples: Vec::new() });
    }
    // Idle connections are measured once, since a program does not return all of its memory.
    let rounds = if row.work == Work::Idle { 1 } else { how.rounds };
    for _ in 0..rounds {
        for one in &mut all {
            let sample = match row.work {
                Work::Idle => idle(one, body),
                Work::Flood => flood(one, how, &load, &Arc::new(traffic.clone())),
                Work::Handshakes { resumed } => handshakes(one, resumed),
                Work::Requests { h2, connections, streams, requests, .. } => {
                    let requests = (requests * u64::from(how.requests) / 100).max(1);
                    let nanos = exchange(one, h2, connections, streams, requests);
                    nanos.map(|nanos| {
                        if row.words.ends_with("GB") {
                            nanos / (requests * body) as f64
                        } else {
                            nanos / 1e3 / requests as f64
                        }
                    })
                }
            };
            let sample = sample.map_err(|sentence| format!("{}, {}: {sentence}", row.name, one.kind))?;
            one.samples.push(sample);
        }
    }
    let all = all.into_iter().map(|one| (one.kind, one.samples)).collect();
    Ok(lines(row.words, all, &PEERS, row.most))
}

/// Processor time of the proxy in nanoseconds for `requests` requests over TLS.
fn exchange(
    one: &Contestant,
    h2: bool,
    connections: u32,
    streams: u32,
    requests: u64,
) -> Result<f64, String> {
    let url = format!("https://{}/", one.tls);
    let more: &[&str] = if h2 { &[] } else { &["--h1"] };
    let go = |requests: u64| all_answered(requests, h2load(requests, connections, streams, more, &url)?);
    go((requests / 10).max(u64::from(connections * streams)))?;
    let processes = one.program.processes();
    let before = processes.usage()?;
    go(requests)?;
    Ok(processes.usage()?.since(before).nanos as f64)
}

/// Starts a client that makes one connection after another for [`SECONDS`]. With `resumed`, it also makes a
/// request on each, since tickets of TLS 1.3 follow the handshake.
fn s_time(to: SocketAddr, resumed: bool, seconds: u32) -> Result<Child, String> {
    let mut command = Command::new("openssl");
    command.args(["s_time", "-connect", &to.to_string(), "-time", &seconds.to_string()]);
    command.args(if resumed { &["-reuse", "-www", "/"][..] } else { &["-new"] });
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("cannot start openssl: {error}; it is in the package openssl"))
}

/// Processor time of the proxy in microseconds for a connection.
fn handshakes(one: &Contestant, resumed: bool) -> Result<f64, String> {
    let go = |seconds| {
        let output =
            s_time(one.tls, resumed, seconds)?.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match connections(&text) {
            Some((all, of_old)) if resumed == (of_old > all * 0.9) => Ok(all),
            Some((all, of_old)) => Err(format!("of {all} handshakes {of_old} resumed a session")),
            None => Err(format!("openssl s_time counts no connections: {text}")),
        }
    };
    go(1)?;
    let processes = one.program.processes();
    let before = processes.usage()?;
    let count = go(SECONDS)?;
    Ok(processes.usage()?.since(before).nanos as f64 / 1e3 / count)
}

/// The number of connections that `openssl s_time` made, from `123 connections in 1.23s; ...`, and of those
/// that resumed a session. For each of these it prints an `r`, in a line without other words.
fn connections(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find(|line| line.contains(" connections in "))?;
    let all = line.split_whitespace().next()?.parse().ok()?;
    let marks = text.lines().filter(|line| line.bytes().all(|mark| mark == b'r' || mark == b'*'));
    let of_old = marks.flat_map(str::bytes).filter(|mark| *mark == b'r').count();
    Some((all, of_old as f64))
}

/// Bytes of an idle connection.
fn idle(one: &Contestant, body: u64) -> Result<f64, String> {
    let config = Arc::new(unverified());
    let client = || -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
        let fail = |error: std::io::Error| format!("an idle client: {error}");
        let name = ServerName::try_from("www.example.com").map_err(|error| error.to_string())?;
        let session = ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
        let socket = TcpStream::connect(one.tls).map_err(fail)?;
        let mut client = StreamOwned::new(session, socket);
        client.write_all(b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n").map_err(fail)?;
        let (mut got, mut piece) = (0, [0; 4096]);
        while got < body {
            match client.read(&mut piece).map_err(fail)? {
                0 => return Err("an idle client's connection was closed".to_owned()),
                more => got += more as u64,
            }
        }
        Ok(client)
    };
    // A few connections first, so that memory of the process itself is not counted.
    drop((0..64).map(|_| client()).collect::<Result<Vec<_>, _>>()?);
    std::thread::sleep(SETTLED);
    let processes = one.program.processes();
    let before = processes.memory();
    let held = (0..IDLE).map(|_| client()).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLED);
    let bytes = processes.memory().saturating_sub(before) as f64 / held.len() as f64;
    Ok(bytes)
}

/// The p99 of clear-text requests, in milliseconds.
fn flood(one: &Contestant, how: &How, load: &Load, traffic: &Arc<Traffic>) -> Result<f64, String> {
    let requests = (3_000 * u64::from(how.requests) / 100).max(100);
    let seconds = (requests as f64 / RATE).ceil() as u32 + 2;
    load.open(traffic, one.program.address())?;
    let flooders = (0..FLOODERS).map(|_| s_time(one.tls, false, seconds)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLED);
    let phase = load.go(requests, Arrival::Rate(RATE));
    let mut all = 0.0;
    for flooder in flooders {
        let output = flooder.wait_with_output().map_err(|error| error.to_string())?;
        all += connections(&String::from_utf8_lossy(&output.stdout)).map_or(0.0, |(all, _)| all);
    }
    load.close();
    if all < 100.0 {
        return Err(format!("there was no flood: {all} handshakes"));
    }
    Ok(f64::from(phase?.percentile(99.0)) / 1e3)
}

/// A rustls client configuration that accepts any certificate.
pub(super) fn unverified() -> ClientConfig {
    #[derive(Debug)]
    struct Any(Arc<CryptoProvider>);
    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth()
}

/// Makes a self-signed certificate, with its key in the same file.
pub(super) fn certificate(key: Key, folder: &Path) -> Result<PathBuf, String> {
    let (name, kind): (_, &[&str]) = match key {
        Key::Ecdsa => ("ecdsa", &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]),
        Key::Rsa => ("rsa", &["-newkey", "rsa:2048"]),
    };
    let (pem, private) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let done = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=www.example.com"])
        .args(kind)
        .arg("-keyout")
        .arg(&private)
        .arg("-out")
        .arg(&pem)
        .output()
        .map_err(|error| format!("cannot start openssl: {error}; it is in the package openssl"))?;
    if !done.status.success() {
        return Err(format!("openssl makes no certificate: {}", String::from_utf8_lossy(&done.stderr)));
    }
    let both = std::fs::read_to_string(&pem)
        .and_then(|text| Ok(text + &std::fs::read_to_string(&private)?))
        .and_then(|text| std::fs::write(&pem, text));
    both.map_err(|error| format!("cannot write {}: {error}", pem.display()))?;
    Ok(pem)
}

/// The configuration for haproxy and Manylane.
fn haproxy([clear, tls]: [u16; 2], server: u16, pem: &Path) -> String {
    format!(
        "global\n    nbthread 2\n    maxconn 9000\n    no strict-limits\ndefaults\n    mode http\n    \
         http-reuse always\n    timeout connect 60s\n    timeout client 60s\n    timeout server 60s\n\
         listen l\n    bind 127.0.0.1:{clear}\n    bind 127.0.0.1:{tls} ssl crt {} alpn h2,http/1.1\n    \
         server s 127.0.0.1:{server}\n",
        pem.display()
    )
}

fn nginx([clear, tls]: [u16; 2], server: u16, pem: &Path, programs: &Programs) -> String {
    let pem = pem.display();
    let own = format!(
        "    keepalive_timeout 60s;\n    upstream servers {{\n        server 127.0.0.1:{server};\n\
         \x20       keepalive 512;\n        keepalive_requests 1000000000;\n    }}\n    server {{\n\
         \x20       listen 127.0.0.1:{clear} reuseport;\n\
         \x20       listen 127.0.0.1:{tls} ssl http2 reuseport;\n\
         \x20       ssl_certificate {pem};\n        ssl_certificate_key {pem};\n\
         \x20       ssl_protocols TLSv1.2 TLSv1.3;\n        ssl_session_cache shared:tls:10m;\n\
         \x20       location / {{\n            proxy_pass http://servers;\n\
         \x20           proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n\
         \x20           proxy_request_buffering off;\n            proxy_max_temp_file_size 0;\n\
         \x20       }}\n    }}\n"
    );
    nginx_of(2, tls, programs, &own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_rows_are_refused_with_the_known_ones() {
        let Err(error) = rows(&["stream".to_string()]) else { panic!("it is unknown") };
        assert!(error.contains("known ones: keep-alive, streams"), "{error}");
    }

    #[test]
    fn connections_are_counted_as_openssl_says() {
        let text = "Collecting connection statistics for 2 seconds\n***\n\n812 connections in 0.35s; 2320.00 \
                    connections/user sec, bytes read 0\n812 connections in 3 real seconds\n";
        assert_eq!(connections(text), Some((812.0, 0.0)));
        assert_eq!(connections("starting\nrr*rr\n5 connections in 0.35s; 2320.00"), Some((5.0, 4.0)));
        assert_eq!(connections("ERROR\n"), None);
    }
}
