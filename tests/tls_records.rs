//! The sizes of the records that clients get: `tune.ssl.maxrecord`, `tune.ssl.hard-maxrecord`.

use crate::common;
use crate::tls::Authority;

use common::watch::{Played, Syslog, both, until};
use common::{DEFAULTS, Manylane, TIMEOUT, origin};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a body: far more than go in small records.
const BODY: usize = 300_000;

/// Bytes that a record of AES-GCM in TLS 1.2 has beside its data: a part of the nonce, and the tag.
const BESIDE: usize = 8 + 16;

/// A server whose bodies are large.
fn large() -> SocketAddr {
    origin(|mut stream| {
        let mut head = [0; 4096];
        while stream.read(&mut head).is_ok_and(|length| length > 0) {
            let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").into_bytes();
            response.resize(response.len() + BODY, b'x');
            if stream.write_all(&response).is_err() {
                return;
            }
        }
    })
}

/// A socket that keeps what was received.
struct Kept(UnixStream, Vec<u8>);

impl Read for Kept {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.read(buffer)?;
        self.1.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A client of TLS 1.2, where a record tells the length of its data.
struct Client(StreamOwned<ClientConnection, Kept>);

impl Client {
    fn new(authority: &Authority, socket: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.own.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let tls = ClientConnection::new(config, "a.example".try_into().unwrap()).unwrap();
        Self(StreamOwned::new(tls, Kept(socket, Vec::new())))
    }

    /// Gets the large body once. Returns the length of the data in each record.
    fn get(&mut self) -> Vec<usize> {
        let Self(stream) = self;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
        let mut response = Vec::new();
        let whole = |response: &[u8]| {
            let head = response.windows(4).position(|end| end == b"\r\n\r\n");
            head.is_some_and(|head| response.len() == head + 4 + BODY)
        };
        while !whole(&response) {
            let mut part = [0; 1 << 16];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "ended behind {} bytes", response.len());
            response.extend_from_slice(&part[..length]);
        }
        let cipher = stream.conn.negotiated_cipher_suite().unwrap().suite();
        assert!(format!("{cipher:?}").contains("_GCM_"), "{cipher:?}");
        let (mut lengths, bytes) = (Vec::new(), std::mem::take(&mut stream.sock.1));
        let mut rest = &bytes[..];
        while let [kind, _, _, high, low, more @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if *kind == 23 {
                lengths.push(length - BESIDE);
            }
            rest = &more[length..];
        }
        lengths
    }
}

/// A configuration with a frontend in front of a server whose bodies are large.
fn config(authority: &Authority, server: SocketAddr, socket: &Path, global: &str) -> String {
    let (shown, certificate) = (socket.display(), authority.bundle("a.pem", &["a.example"]));
    format!(
        "{} mode http\nfrontend f\n bind unix@{shown}.f ssl crt {} alpn http/1.1\n default_backend b\n\
         backend b\n server s {server}\n",
        DEFAULTS.replacen("global\n", &format!("global\n stats socket {shown}\n{global}"), 1),
        certificate.display(),
    )
}

/// Calls `play` with a client of each program.
fn play<T>(global: &str, play: impl Fn(Client) -> T) -> Vec<T> {
    let (authority, server) = (Authority::new(), large());
    let config = |_: &Syslog, socket: &Path| config(&authority, server, socket, global);
    let own = |played: Played| {
        let socket = format!("{}.f", played.socket.display());
        play(Client::new(&authority, Path::new(&socket)))
    };
    let (ours, theirs) = both(config, own);
    std::iter::once(ours).chain(theirs).collect()
}

#[test]
fn no_record_is_larger_than_hard_maxrecord() {
    for (global, most) in [
        (" tune.ssl.hard-maxrecord 3000\n", 3000),
        (" tune.ssl.hard-maxrecord 3000\n tune.ssl.maxrecord 9000\n", 3000),
    ] {
        for mut lengths in play(global, |mut client| client.get()) {
            assert_eq!(lengths.iter().max(), Some(&most), "{global}{lengths:?}");
            lengths.retain(|length| *length == most);
            assert!(lengths.len() > BODY / most / 2, "{} are full", lengths.len());
        }
    }
}

#[test]
fn records_are_small_at_first_with_maxrecord() {
    const SMALL: usize = 1419;
    let of_both = play(" tune.ssl.maxrecord 1419\n tune.idletimer 0\n", |mut client| {
        let first = client.get();
        (first, (0..20).map(|_| client.get()[0]).collect::<Vec<_>>())
    });
    for (first, _) in &of_both {
        assert_eq!(first[0], SMALL, "{first:?}");
    }
    let (first, others) = &of_both[0];
    let grown = first.iter().position(|length| *length > SMALL).expect("records have grown");
    let before: usize = first[..grown].iter().sum();
    assert!((48 << 10..50 << 10).contains(&before), "{before} bytes went in small records: {first:?}");
    assert!(!others.contains(&SMALL), "records begin small again: {others:?}");
}

#[test]
fn records_are_small_again_after_the_idle_timer() {
    const SMALL: usize = 1419;
    let authority = Authority::new();
    let socket = authority.folder.0.join("control");
    let global = " tune.ssl.maxrecord 1419\n tune.idletimer 1\n";
    let _program = Manylane::start_ready(&config(&authority, large(), &socket, global));
    let mut client = Client::new(&authority, &authority.folder.0.join("control.f"));
    let has_grown = |records: &[usize]| records.iter().any(|length| *length > SMALL);
    until(|| has_grown(&client.get()));
    until(|| client.get()[0] == SMALL);
}
