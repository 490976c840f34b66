//! Both roles against each other, and unusable files.
#![allow(clippy::unwrap_used)] // helpers of tests

use crate::watch::AHEAD;
use crate::{
    AlpnChallenge, Bases, ClientContext, ClientSettings, ClientVerify, CommonSettings, Connection,
    FileSettings, Kind, Problem, Progress, RecordSizes, ServerContext, ServerName, ServerSettings,
    ServerVerify, Source, Store, Version,
};
use manylane_buf::Chain;
use manylane_sync::qsbr::Reader;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RevokedCertParams, SignatureAlgorithm,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("manylane-tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate with its key, in PEM.
fn bundle(
    by: &CertifiedIssuer<'_, KeyPair>,
    names: &[&str],
    kind: &'static SignatureAlgorithm,
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names.clone()).unwrap();
    if let Some(name) = names.first() {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    change(&mut params);
    let key = KeyPair::generate_for(kind).unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    format!("{}{}", certificate.pem(), key.serialize_pem())
}

fn ecdsa(by: &CertifiedIssuer<'_, KeyPair>, names: &[&str]) -> String {
    bundle(by, names, &PKCS_ECDSA_P256_SHA256, |_| ())
}

fn server_settings(certificates: &[&Path]) -> ServerSettings {
    let certificates = certificates.iter().map(|path| Source::Path(path.to_path_buf())).collect();
    ServerSettings { sessions: 100, ..ServerSettings::new(certificates) }
}

fn client_settings(authorities: &Path) -> ClientSettings {
    ClientSettings {
        common: CommonSettings { authorities: Some(authorities.to_owned()), ..CommonSettings::default() },
        certificate: None,
        verify: ServerVerify::Required,
        sends_name: true,
        reuse: true,
        early_data: false,
    }
}

fn server_of(settings: &ServerSettings) -> ServerContext {
    Store::default().listener(settings, &mut Vec::new()).unwrap()
}

fn client_of(settings: &ClientSettings) -> ClientContext {
    Store::default().server(settings, &mut Vec::new()).unwrap()
}

fn named(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).unwrap()
}

fn begin_client(context: &ClientContext, name: &str) -> Connection {
    Connection::client(context, named(name), crate::Hello::Usual, &Reader::new()).unwrap()
}

fn begin_server(context: &ServerContext) -> Connection {
    Connection::server(context, &Reader::new()).unwrap()
}

/// A listener that requests certificates and offers other protocols proves names all the same.
#[test]
fn a_challenge_of_acme_is_answered_by_any_listener_and_ends_the_connection() {
    const NAME: &str = "proved.test";
    let folder = Folder::new();
    let ca = authority("ca");
    let file = folder.write("ca.pem", &ca.pem());
    let usual = folder.write("usual.pem", &ecdsa(&ca, &["usual.test"]));
    let mut settings = server_settings(&[&usual]);
    settings.verify = ClientVerify::Required;
    settings.common.authorities = Some(file.clone());
    settings.common.alpn = vec![b"h2".to_vec()];
    let server = server_of(&settings);
    let client = |protocols: &[&str], newest| {
        let mut settings = ClientSettings { verify: ServerVerify::None, ..client_settings(&file) };
        settings.common.newest = newest;
        settings.common.alpn = protocols.iter().map(|own| own.as_bytes().to_vec()).collect();
        client_of(&settings)
    };
    let key = KeyPair::generate().unwrap();
    let shown = CertificateParams::new([NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let publish = || AlpnChallenge::publish(NAME, shown.der(), key.serialized_der()).unwrap();
    // Whether the server has ended the connection because of a challenge, and what the client learnt.
    let ends = |protocols: &[&str], name: &str| {
        let of_version = [Version::V12, Version::V13].map(|version| {
            let mut pair = Pair::new(&client(protocols, Some(version)), &server, name);
            let error = loop {
                pair.client.receive(&mut pair.down, &mut pair.at_client, &mut pair.up).unwrap();
                let came = pair.server.receive(&mut pair.up, &mut pair.at_server, &mut pair.down);
                if let Err(error) = came {
                    break error;
                }
            };
            let last = pair.client.receive(&mut pair.down, &mut pair.at_client, &mut pair.up);
            let agreed = pair.client.negotiated().alpn().map(<[u8]>::to_vec);
            (matches!(error, crate::Error::Challenge), last.ok(), agreed)
        });
        assert_eq!(of_version[0], of_version[1]);
        of_version[0].clone()
    };
    let refused = (false, None, None);
    assert_eq!(ends(&["acme-tls/1"], NAME), refused);
    let first = publish();
    let second = publish();
    let answered = (true, Some(Progress::PeerClosed), Some(b"acme-tls/1".to_vec()));
    assert_eq!(ends(&["acme-tls/1"], NAME), answered);
    assert_eq!(ends(&["acme-tls/1"], "Proved.test"), answered);
    assert_eq!(ends(&["acme-tls/1"], "other.test"), refused);
    // Another protocol beside it makes the hello an ordinary one, which lacks a certificate here.
    assert!(!ends(&["acme-tls/1", "h2"], NAME).0);
    drop(first);
    assert_eq!(ends(&["acme-tls/1"], NAME), answered);
    drop(second);
    assert_eq!(ends(&["acme-tls/1"], NAME), refused);
}

/// Two ends, and the bytes in transit between them.
struct Pair {
    client: Connection,
    server: Connection,
    up: Chain,
    down: Chain,
    /// Decrypted data.
    at_server: Chain,
    at_client: Chain,
}

impl Pair {
    fn new(client: &ClientContext, server: &ServerContext, name: &str) -> Self {
        Self {
            client: begin_client(client, name),
            server: begin_server(server),
            up: Chain::new(),
            down: Chain::new(),
            at_server: Chain::new(),
            at_client: Chain::new(),
        }
    }

    /// Moves bytes, `at_once` of them at a time, until both ends are silent.
    fn settle(&mut self, at_once: usize) -> Result<(), (&'static str, String)> {
        self.client
            .receive(&mut Chain::new(), &mut self.at_client, &mut self.up)
            .map_err(|error| ("client", error.to_string()))?;
        while !(self.up.is_empty() && self.down.is_empty()) {
            let n = self.up.len().min(at_once);
            let mut part = copied(&mut self.up, n);
            let up = self.server.receive(&mut part, &mut self.at_server, &mut self.down);
            if let Err(error) = up {
                let (n, mut alert) = (self.down.len(), std::mem::take(&mut self.down));
                assert!(n > 0, "there is an alert");
                let result = self.client.receive(&mut alert, &mut self.at_client, &mut self.up);
                result.expect_err("the alert ends the client");
                return Err(("server", error.to_string()));
            }
            let n = self.down.len().min(at_once);
            let mut part = copied(&mut self.down, n);
            self.client
                .receive(&mut part, &mut self.at_client, &mut self.up)
                .map_err(|error| ("client", error.to_string()))?;
        }
        Ok(())
    }

    fn shaken(client: &ClientContext, server: &ServerContext, name: &str) -> Self {
        let mut pair = Self::new(client, server, name);
        pair.settle(1 << 20).unwrap();
        assert_eq!((pair.client.progress(), pair.server.progress()), (Progress::Open, Progress::Open));
        pair
    }
}

/// The next `n` bytes, in their own clusters.
fn copied(from: &mut Chain, n: usize) -> Chain {
    let mut chain = Chain::new();
    chain.append(&from.to_vec()[..n]).unwrap();
    from.trim_front(n).unwrap();
    chain
}

fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes).unwrap();
    chain
}

/// Contexts with one CA and a certificate for `a.example`.
fn simple() -> (Folder, ServerContext, ClientContext) {
    let (folder, ca) = (Folder::new(), authority("the authority"));
    let certificate = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let known = folder.write("ca.pem", &ca.pem());
    let contexts = (server_of(&server_settings(&[&certificate])), client_of(&client_settings(&known)));
    (folder, contexts.0, contexts.1)
}

#[test]
fn bytes_go_both_ways_however_they_are_cut() {
    let (_folder, server, client) = simple();
    for at_once in [1, 7, 1000, 1 << 20] {
        let mut pair = Pair::new(&client, &server, "a.example");
        pair.settle(at_once).unwrap();
        let negotiated = pair.server.negotiated();
        assert_eq!((negotiated.version(), negotiated.name()), (Some(Version::V13), Some("a.example")));
        assert_eq!(pair.client.negotiated().cipher(), negotiated.cipher());
        let long: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        pair.client.send(&mut chain(&long), &mut pair.up).unwrap();
        pair.server.send(&mut chain(b"hello"), &mut pair.down).unwrap();
        pair.settle(at_once.max(100)).unwrap();
        assert_eq!((pair.at_server.to_vec(), pair.at_client.to_vec()), (long, b"hello".to_vec()));
        assert!(pair.server.unread.is_empty() && pair.client.unread.is_empty(), "nothing is held");
    }
}

/// The length of the data in each of these records of TLS 1.3.
fn lengths_of_records(bytes: &[u8]) -> Vec<usize> {
    let (mut lengths, mut rest) = (Vec::new(), bytes);
    while let [_, _, _, high, low, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(length - 17); // the type of the content, and the tag
        rest = &more[length..];
    }
    lengths
}

#[test]
fn records_have_the_sizes_of_the_settings() {
    const LONG: usize = 100_000;
    let (folder, ca) = (Folder::new(), authority("ca"));
    let certificate = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let known = folder.write("ca.pem", &ca.pem());
    let second = Duration::from_secs(1);
    // Most bytes of any record and of the first ones, the idle time, and what is expected: the size of the
    // first records, of later ones, and of those after the idle time.
    for (most, first, idle, expected) in [
        (0, 0, second, [1 << 14, 1 << 14, 1 << 14]),
        (100_000, 100_000, second, [1 << 14, 1 << 14, 1 << 14]),
        (3000, 0, second, [3000, 3000, 3000]),
        (3000, 9000, second, [3000, 3000, 3000]),
        (0, 1419, second, [1419, 1 << 14, 1419]),
        (5000, 1419, second, [1419, 5000, 1419]),
        (5000, 1419, Duration::ZERO, [1419, 5000, 5000]),
        (1, 1, second, [1, 1, 1]),
    ] {
        let mut listener = server_settings(&[&certificate]);
        listener.common.records = RecordSizes::new(most, first, idle);
        let mut server = client_settings(&known);
        server.common.records = listener.common.records;
        let mut pair = Pair::shaken(&client_of(&server), &server_of(&listener), "a.example");
        for own in [&mut pair.server, &mut pair.client] {
            let mut send = |now: Duration, length: usize| {
                let mut out = Chain::new();
                own.note_time(now);
                own.send(&mut chain(&vec![7; length]), &mut out).unwrap();
                let lengths = lengths_of_records(&out.to_vec());
                assert_eq!(lengths.iter().sum::<usize>(), length);
                lengths
            };
            let begun = 10 * second;
            let sizes = send(begun, LONG);
            let grown = sizes.iter().position(|size| *size > expected[0]).unwrap_or(sizes.len());
            assert!(sizes[..grown].iter().rev().skip(1).all(|size| *size == expected[0]), "{sizes:?}");
            if expected[0] < expected[1] {
                let small: usize = sizes[..grown].iter().sum();
                assert!((48 << 10..(48 << 10) + expected[0]).contains(&small), "{small}");
            }
            let almost = begun + second - Duration::from_nanos(1);
            assert_eq!(send(almost, 20_000)[0], expected[1], "{most} {first}");
            assert_eq!(send(almost + second, 20_000)[0], expected[2], "{most} {first} {idle:?}");
        }
    }
}

#[test]
fn a_side_that_ends_can_still_receive_something() {
    let (_folder, server, client) = simple();
    let mut pair = Pair::shaken(&client, &server, "a.example");
    pair.client.send(&mut chain(b"last"), &mut pair.up).unwrap();
    pair.client.close_notify(&mut pair.up).unwrap();
    pair.client.close_notify(&mut pair.up).unwrap();
    pair.settle(1 << 20).unwrap();
    assert_eq!((pair.server.progress(), pair.client.progress()), (Progress::PeerClosed, Progress::Open));
    pair.server.send(&mut chain(b"answer"), &mut pair.down).unwrap();
    pair.server.close_notify(&mut pair.down).unwrap();
    pair.settle(1 << 20).unwrap();
    assert_eq!((pair.at_server.to_vec(), pair.at_client.to_vec()), (b"last".to_vec(), b"answer".to_vec()));
    assert_eq!(pair.client.progress(), Progress::PeerClosed);
    pair.client.send(&mut chain(b"more"), &mut pair.up).expect_err("it has said that it ends");
}

#[test]
fn names_choose_certificates() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let files = [
        folder.write("a.pem", &ecdsa(&ca, &["a.example"])),
        folder.write("b.pem", &ecdsa(&ca, &["b.example", "*.wild.example"])),
    ];
    let mut settings = server_settings(&[&folder.0]);
    fs::remove_file(&known).unwrap();
    let known = folder.write("ca.crl.key", &ca.pem()); // files with this extension are not certificates
    let client = client_of(&client_settings(&known));
    for strict in [false, true] {
        settings.strict_sni = strict;
        let server = server_of(&settings);
        for name in ["a.example", "B.Example", "x.wild.example"] {
            Pair::shaken(&client, &server, name);
        }
        for name in ["c.example", "x.y.wild.example", "wild.example"] {
            let who = Pair::new(&client, &server, name).settle(1 << 20).unwrap_err().0;
            assert_eq!(who, if strict { "server" } else { "client" }, "{name}");
        }
    }
    assert_eq!(files.len(), 2);
}

#[test]
fn what_a_retried_hello_requested_is_no_other_connections() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let mut settings = server_settings(&[&folder.write("a.pem", &ecdsa(&ca, &["a.example"]))]);
    settings.common.curves = Some("P-384".to_owned()); // clients send no key share for it at first
    let server = server_of(&settings);
    let pair = Pair::shaken(&client_of(&client_settings(&known)), &server, "a.example");
    assert_eq!(pair.server.negotiated().curve(), Some("P-384"));
    let mut other = begin_server(&server);
    let mut part = Chain::new();
    part.append(b"\x16\x03\x01\0\x04\x01\0\x02\0").unwrap(); // the beginning of a hello
    let progress = other.receive(&mut part, &mut Chain::new(), &mut Chain::new()).unwrap();
    assert_eq!((progress, other.negotiated().name()), (Progress::Handshaking, None));
}

#[test]
fn a_default_certificate_is_for_clients_that_no_other_is_for() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let (one, two) = (
        folder.write("a.pem", &ecdsa(&ca, &["a.example", "b.example"])),
        // The common name counts besides the alternative names.
        folder.write(
            "c.pem",
            &bundle(&ca, &["c.example", "x.example"], &PKCS_ECDSA_P256_SHA256, |params| {
                params.distinguished_name.push(DnType::CommonName, "common.example");
            }),
        ),
    );
    let mut settings = server_settings(&[&two]);
    settings.certificates.push(Source::Default(one));
    let server = server_of(&settings);
    let mut unchecked = client_settings(&known);
    unchecked.verify = ServerVerify::None;
    let client = client_of(&unchecked);
    for (name, shown) in
        [("c.example", "c.example"), ("common.example", "c.example"), ("none.example", "a.example")]
    {
        let pair = Pair::shaken(&client, &server, name);
        let der = pair.client.negotiated().certificate().unwrap().to_vec();
        let has = der.windows(shown.len()).any(|window| window == shown.as_bytes());
        assert!(has, "{name}");
    }
}

#[test]
fn a_list_says_which_names_a_certificate_is_for() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    folder.write("a.pem", &ecdsa(&ca, &["a.example", "b.example"]));
    folder.write("w.pem", &ecdsa(&ca, &["*.w.example"]));
    folder.write("c.pem", &ecdsa(&ca, &["no.w.example", "c.example"]));
    let list = "# a comment\n\na.pem a.example\nw.pem [] *.w.example !no.w.example\nc.pem\n";
    let list = folder.write("list", list);
    let mut settings = server_settings(&[]);
    settings.strict_sni = true;
    settings.certificates = vec![Source::List {
        path: list.clone(),
        bases: Bases { crt: folder.0.clone(), ca: folder.0.clone() },
    }];
    let (server, client) = (server_of(&settings), client_of(&client_settings(&known)));
    for (name, good) in [
        ("a.example", true),
        ("b.example", false), // its certificate has the name, but the list excludes it
        ("x.w.example", true),
        ("no.w.example", true), // by the certificate with this exact name
        ("c.example", true),
    ] {
        assert_eq!(Pair::new(&client, &server, name).settle(1 << 20).is_ok(), good, "{name}");
    }
    for (text, sentence) in [
        ("a.pem\nw.pem [npn h2] x\n", "line 2 of 'list' has the option 'npn'"),
        ("a.pem\nw.pem [ciphers none] x\n", "line 2 of 'list' : 'ciphers' : no cipher of 'none' is left"),
        (
            "a.pem [verify required]\n",
            "line 1 of 'list' : 'verify' : clients can be verified with a 'ca-file'",
        ),
        (
            "a.pem [ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.2]\n",
            "line 1 of 'list' : 'ssl-min-ver' : no version",
        ),
        ("a.pem [crl-file r ca-file c verify optional]\n", "line 1 of 'list' : 'ca-file' : cannot read 'c'"),
        ("a.pem [x\n", "line 1 of 'list' has a '[' without its ']'"),
        ("#\n", "'list' names no certificate"),
        ("none.pem\n", "cannot read 'none.pem'"),
    ] {
        folder.write("list", text);
        let lenient = ServerSettings { strict_sni: false, ..settings.clone() };
        let problem = Store::default().listener(&lenient, &mut Vec::new()).unwrap_err().to_string();
        let problem = problem.replace(&format!("{}/", folder.0.display()), "");
        assert!(problem.contains(sentence), "{problem}");
    }
    // A name that the list excludes does not get the wildcard's certificate either.
    folder.write("list", "w.pem *.w.example !no.w.example\n");
    let server = server_of(&settings);
    assert!(Pair::new(&client, &server, "no.w.example").settle(1 << 20).is_err());
    Pair::shaken(&client, &server, "yes.w.example");
    // An exclusion applies to one certificate, not to another one with the same wildcard.
    folder.write("v.pem", &ecdsa(&ca, &["*.w.example"]));
    folder.write("list", "w.pem *.w.example !no.w.example\nv.pem\na.pem !b.example\n");
    let server = server_of(&settings);
    Pair::shaken(&client, &server, "no.w.example");
    // Clients with other names get the certificate with '*'; a list may also be empty.
    folder.write("list", "c.pem\na.pem *\n");
    let lenient = ServerSettings { strict_sni: false, ..settings.clone() };
    let server = server_of(&lenient);
    Pair::shaken(&client, &server, "b.example");
    assert!(Pair::new(&client, &server_of(&settings), "b.example").settle(1 << 20).is_err());
    folder.write("list", "#\n");
    assert!(Pair::new(&client, &server_of(&settings), "b.example").settle(1 << 20).is_err());
    folder.write("list", "w.pem *.w.example !no.w.example\nv.pem\na.pem !b.example\n");
    let server = server_of(&settings);
    // A line with exclusions only has no names.
    for name in ["a.example", "b.example"] {
        assert!(Pair::new(&client, &server, name).settle(1 << 20).is_err(), "{name}");
    }
}

#[test]
fn of_one_name_a_client_gets_the_kind_of_key_that_it_can_check() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let rsa = folder.write("r.pem", &bundle(&ca, &["a.example"], &PKCS_RSA_SHA256, |_| ()));
    let ec = folder.write("e.pem", &ecdsa(&ca, &["a.example"]));
    let server = server_of(&server_settings(&[&rsa, &ec]));
    let mut settings = client_settings(&known);
    settings.common.newest = Some(Version::V12);
    for (ciphers, cipher) in [
        ("ALL", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("aRSA", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ] {
        settings.common.ciphers = Some(ciphers.to_owned());
        let pair = Pair::shaken(&client_of(&settings), &server, "a.example");
        assert_eq!(pair.server.negotiated().cipher(), Some(cipher));
        assert_eq!(pair.server.negotiated().version(), Some(Version::V12));
    }
}

#[test]
fn sessions_are_resumed_by_tickets_and_without() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    for (tickets, sessions, resumed) in [(true, 0, true), (false, 100, true), (false, 0, false)] {
        for newest in [Version::V12, Version::V13] {
            let (mut server, mut client) = (server_settings(&[&file]), client_settings(&known));
            (server.tickets, server.sessions, client.common.newest) = (tickets, sessions, Some(newest));
            let (server, client) = (server_of(&server), client_of(&client));
            assert!(!Pair::shaken(&client, &server, "a.example").server.negotiated().is_resumed());
            let again = Pair::shaken(&client, &server, "a.example");
            assert_eq!(again.server.negotiated().is_resumed(), resumed, "{tickets} {sessions} {newest}");
            assert_eq!(again.server.negotiated().name(), Some("a.example"));
        }
    }
}

/// Tickets of this length, which contain their session.
#[derive(Debug)]
struct Tickets(usize);

impl rustls::server::ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        300
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut ticket = [&(session.len() as u16).to_be_bytes(), session].concat();
        ticket.resize(self.0, 0);
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (length, rest) = ticket.split_first_chunk()?;
        rest.get(..u16::from_be_bytes(*length).into()).map(<[u8]>::to_vec)
    }
}

/// Returns whether a new connection to a server of rustls resumes a session.
fn is_resumed_by(client: &ClientContext, server: &std::sync::Arc<rustls::ServerConfig>) -> bool {
    is_resumed_of("a.example", client, server)
}

/// As above, for a server of this name.
fn is_resumed_of(name: &str, client: &ClientContext, server: &std::sync::Arc<rustls::ServerConfig>) -> bool {
    let mut server = rustls::ServerConnection::new(server.clone()).unwrap();
    let mut client = begin_client(client, name);
    let (mut up, mut down, mut data) = (Chain::new(), Chain::new(), Chain::new());
    loop {
        client.receive(&mut down, &mut data, &mut up).unwrap();
        let sent = std::mem::take(&mut up).to_vec();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        if sent.is_empty() && answer.is_empty() {
            return server.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        }
        down = chain(&answer);
    }
}

#[test]
fn sessions_with_long_tickets_are_not_kept() {
    let (_folder, server, client) = simple();
    for newest in [Version::V12, Version::V13] {
        for (length, is_kept) in
            [(2000, true), (crate::client::LONGEST_TICKET, true), (crate::client::LONGEST_TICKET + 1, false)]
        {
            let mut settings = client.0.settings.clone();
            settings.common.newest = Some(newest);
            let mut config = (*server.0.load(&Reader::new()).usual).clone();
            config.ticketer = std::sync::Arc::new(Tickets(length));
            let (client, config) = (client_of(&settings), std::sync::Arc::new(config));
            assert!(!is_resumed_by(&client, &config));
            assert_eq!(is_resumed_by(&client, &config), is_kept, "{newest}, {length} bytes");
        }
    }
}

#[test]
fn of_a_server_eight_names_are_kept_and_eight_tickets_of_each() {
    let (_folder, server, client) = simple();
    let usual = server.0.load(&Reader::new()).usual.clone();
    // A server that gives this many tickets to each connection of TLS 1.3.
    let giving = |tickets| {
        let mut config = (*usual).clone();
        config.ticketer = std::sync::Arc::new(Tickets(2000));
        config.send_tls13_tickets = tickets;
        std::sync::Arc::new(config)
    };
    let (generous, none) = (giving(9), giving(0));
    for newest in [Version::V12, Version::V13] {
        let mut settings = client.0.settings.clone();
        (settings.common.newest, settings.verify) = (Some(newest), ServerVerify::None);
        let client = client_of(&settings);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        for name in names {
            assert!(!is_resumed_of(name, &client, &generous));
        }
        for name in &names[1..] {
            assert!(is_resumed_of(name, &client, &none), "{newest}: {name}");
        }
        assert!(!is_resumed_of(names[0], &client, &none), "{newest}: there were eight others");
    }
    // With TLS 1.3 each ticket is used once.
    let client = client_of(&client.0.settings);
    assert!(!is_resumed_by(&client, &generous));
    let resumed = (0..10).take_while(|_| is_resumed_by(&client, &none)).count();
    assert_eq!(resumed, 8);
}

#[test]
fn clients_show_certificates_where_they_must_or_may() {
    let (folder, ca, other) = (Folder::new(), authority("ca"), authority("other"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let good = folder.write("good.pem", &ecdsa(&ca, &["client"]));
    let bad = folder.write("bad.pem", &ecdsa(&other, &["client"]));
    let mut server = server_settings(&[&file]);
    server.common.authorities = Some(known.clone());
    for (verify, certificate, accepted) in [
        (ClientVerify::Required, Some(&good), true),
        (ClientVerify::Required, Some(&bad), false),
        (ClientVerify::Required, None, false),
        (ClientVerify::Optional, Some(&good), true),
        (ClientVerify::Optional, Some(&bad), false),
        (ClientVerify::Optional, None, true),
    ] {
        server.verify = verify;
        let mut client = client_settings(&known);
        client.certificate = certificate.cloned();
        let mut pair = Pair::new(&client_of(&client), &server_of(&server), "a.example");
        let outcome = pair.settle(1 << 20);
        assert_eq!(outcome.is_ok(), accepted, "{verify:?} {certificate:?}: {outcome:?}");
        let shown = pair.server.negotiated().certificate().is_some();
        assert_eq!(shown && accepted, certificate.is_some() && accepted);
    }
}

#[test]
fn who_resumes_at_a_listener_that_asks_for_certificates_began_there() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let (open, mut closed) = (server_settings(&[&file]), server_settings(&[&file]));
    closed.common.authorities = Some(known.clone());
    closed.verify = ClientVerify::Required;
    let client = client_of(&client_settings(&known));
    Pair::shaken(&client, &server_of(&open), "a.example");
    Pair::shaken(&client, &server_of(&open), "a.example"); // these share their keys
    Pair::new(&client, &server_of(&closed), "a.example").settle(1 << 20).unwrap_err();
}

#[test]
fn servers_are_verified() {
    let (folder, ca, other) = (Folder::new(), authority("ca"), authority("other"));
    let (known, unknown) = (folder.write("ca.pem", &ca.pem()), folder.write("other.pem", &other.pem()));
    let server = server_of(&server_settings(&[&folder.write("a.pem", &ecdsa(&ca, &["a.example"]))]));
    let outcome = |known: &Path, verify: ServerVerify, sends_name, name| {
        let settings = ClientSettings { verify, sends_name, ..client_settings(known) };
        let outcome = Pair::new(&client_of(&settings), &server, name).settle(1 << 20);
        outcome.map_err(|(who, why)| (who == "client", why))
    };
    let required = || ServerVerify::Required;
    outcome(&known, required(), true, "a.example").unwrap();
    let (_, why) = outcome(&known, required(), true, "b.example").unwrap_err();
    assert!(why.contains("not valid for name"), "{why}");
    outcome(&known, required(), false, "127.0.0.1").unwrap(); // no name was asked for
    let (_, why) = outcome(&unknown, required(), true, "a.example").unwrap_err();
    assert!(why.contains("UnknownIssuer"), "{why}");
    outcome(&unknown, required(), false, "127.0.0.1").unwrap_err();
    outcome(&unknown, ServerVerify::None, true, "b.example").unwrap();
    for (host, sends_name, name, accepted) in [
        ("a.example", true, "b.example", false), // the name that is asked for counts, as in HAProxy
        ("b.example", true, "a.example", true),
        ("a.example", true, "127.0.0.1", true), // no name can be asked for
        ("b.example", true, "127.0.0.1", false),
        ("a.example", false, "127.0.0.1", true),
        ("b.example", false, "127.0.0.1", false),
    ] {
        let outcome = outcome(&known, ServerVerify::Host(host.to_owned()), sends_name, name);
        assert_eq!(outcome.is_ok(), accepted, "{host} {sends_name} {name}: {outcome:?}");
    }
}

#[test]
fn a_server_may_show_a_certificate_that_is_trusted_itself() {
    let folder = Folder::new();
    let made = |names: &[&str], old| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        if old {
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), format!("{}{}", certificate.pem(), key.serialize_pem()))
    };
    for (old, name, accepted) in
        [(false, "a.example", true), (false, "b.example", false), (true, "a.example", false)]
    {
        let (certificate, bundle) = made(&["a.example"], old);
        let (known, bundle) = (folder.write("c.pem", &certificate), folder.write("b.pem", &bundle));
        let (client, server) = (client_of(&client_settings(&known)), server_of(&server_settings(&[&bundle])));
        let outcome = Pair::new(&client, &server, name).settle(1 << 20);
        assert_eq!(outcome.is_ok(), accepted, "{old} {name} {outcome:?}");
        // The same for a client, which needs no name.
        let (mut server, mut client) = (server_settings(&[&bundle]), client_settings(&known));
        (server.verify, server.common.authorities) = (ClientVerify::Required, Some(known));
        (client.certificate, client.verify) = (Some(bundle), ServerVerify::None);
        let outcome = Pair::new(&client_of(&client), &server_of(&server), name).settle(1 << 20);
        assert_eq!(outcome.is_ok(), !old, "{old} {outcome:?}");
    }
}

#[test]
fn protocols_are_agreed_on() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let protocols = |list: &[&str]| list.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    for (offered, known_there, agreed) in
        [(vec!["http/1.1", "h2"], vec!["h2", "http/1.1"], Some("h2")), (vec![], vec!["h2"], None)]
    {
        let (mut server, mut client) = (server_settings(&[&file]), client_settings(&known));
        (server.common.alpn, client.common.alpn) = (protocols(&known_there), protocols(&offered));
        let pair = Pair::shaken(&client_of(&client), &server_of(&server), "a.example");
        assert_eq!(pair.server.negotiated().alpn(), agreed.map(str::as_bytes));
        assert_eq!(pair.client.negotiated().alpn(), agreed.map(str::as_bytes));
    }
}

#[test]
fn what_is_no_tls_is_refused_and_a_flood_ends() {
    let (_folder, server, client) = simple();
    let mut connection = begin_server(&server);
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    connection.receive(&mut chain(b"GET / HTTP/1.1\r\n\r\n"), &mut plain, &mut out).unwrap_err();
    assert!(connection.has_failed() && plain.is_empty());
    connection.receive(&mut chain(b"more"), &mut plain, &mut out).unwrap_err();

    // What a fuzzer found: input behind the failure that looks like the beginning of a record.
    let mut connection = begin_client(&client, "a.example");
    connection.receive(&mut Chain::new(), &mut plain, &mut out).unwrap();
    let input = [0, 0, 0xc0, 0, 0, 0x14, 3, 3, 0x0a];
    connection.receive(&mut chain(&input), &mut plain, &mut out).unwrap_err();
    connection.receive(&mut chain(&[22, 3, 3, 0, 9]), &mut plain, &mut out).unwrap_err();

    // A hello of 16 MiB that never ends.
    let mut connection = begin_server(&server);
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    let ended = (0..8).any(|_| connection.receive(&mut chain(&record), &mut plain, &mut out).is_err());
    assert!(ended && connection.unread.len() <= crate::MOST_UNREAD + record.len());
}

/// A hello of 64 KiB without its last byte, and a record that is not complete behind it.
#[test]
fn as_many_bytes_as_the_bound_wait_to_be_understood() {
    let (_folder, server, _) = simple();
    for (most, flood) in [(80 << 10, false), ((80 << 10) + 1, true)] {
        let mut connection = begin_server(&server);
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        let mut hello = vec![1, 0, 0xff, 0xff];
        hello.resize(4 + 0xfffe, 0);
        for part in hello.chunks(1 << 14) {
            let length = (part.len() as u16).to_be_bytes();
            let record = [&[22, 3, 1][..], &length, part].concat();
            connection.receive(&mut chain(&record), &mut plain, &mut out).unwrap();
        }
        let mut record = vec![22, 3, 1, 0x47, 0xff];
        record.resize(most - connection.unread.len(), 0);
        let received = connection.receive(&mut chain(&record), &mut plain, &mut out);
        assert_eq!(matches!(received, Err(crate::Error::Flood)), flood, "{most}: {received:?}");
        assert_eq!(received.is_err(), flood, "{most}: {received:?}");
    }
}

/// A record with these bytes of handshake messages.
fn handshake_record(bytes: &[u8]) -> Vec<u8> {
    [&[22, 3, 1, 0, bytes.len() as u8], bytes].concat()
}

/// A listener whose list has a line for each of several names, and clients with and without a certificate.
struct Listed {
    folder: Folder,
    server: ServerContext,
    client: ClientSettings,
    settings: ServerSettings,
    store: Store,
}

impl Listed {
    fn new(lines: &str, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (folder, ca) = (Folder::new(), authority("ca"));
        let known = folder.write("ca.pem", &ca.pem());
        for name in ["a", "b", "c", "d"] {
            folder.write(&format!("{name}.pem"), &ecdsa(&ca, &[&format!("{name}.example")]));
        }
        let path = folder.write("list", lines);
        let bases = Bases { crt: folder.0.clone(), ca: folder.0.clone() };
        let mut settings = server_settings(&[]);
        settings.certificates = vec![Source::List { path, bases }];
        change(&mut settings);
        let store = Store::default();
        let server = store.listener(&settings, &mut Vec::new()).unwrap();
        Self { server, client: client_settings(&known), settings, store, folder }
    }

    fn shake(&self, name: &str, at_once: usize, change: impl FnOnce(&mut ClientSettings)) -> Option<Pair> {
        let mut settings = self.client.clone();
        change(&mut settings);
        let mut pair = Pair::new(&client_of(&settings), &self.server, name);
        pair.settle(at_once).ok().map(|()| pair)
    }
}

#[test]
fn the_options_of_a_line_hold_for_its_names_alone() {
    let listed = Listed::new(
        "a.pem [no-alpn ssl-max-ver TLSv1.2 ciphers ECDHE-ECDSA-CHACHA20-POLY1305]\n\
         b.pem [alpn foo curves P-384 ciphersuites TLS_AES_128_GCM_SHA256 sigalgs ECDSA+SHA256]\n\
         c.pem [verify required ca-file ca.pem client-sigalgs ECDSA+SHA256]\n\
         d.pem\nd.pem [verify none ssl-min-ver TLSv1.3] x.example\n",
        |settings| settings.common.alpn = vec![b"h2".to_vec()],
    );
    let protocols = |settings: &mut ClientSettings| {
        settings.common.alpn = [&b"foo"[..], b"h2"].map(<[u8]>::to_vec).to_vec();
    };
    for at_once in [1, 100, 1 << 20] {
        for (name, expected) in [
            ("a.example", ("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305", None, "X25519")),
            ("b.example", ("TLSv1.3", "TLS_AES_128_GCM_SHA256", Some(&b"foo"[..]), "P-384")),
            ("d.example", ("TLSv1.3", "TLS_AES_256_GCM_SHA384", Some(&b"h2"[..]), "X25519")),
        ] {
            let pair = listed.shake(name, at_once, protocols).unwrap();
            let own = pair.server.negotiated();
            let curve = own.curve().unwrap().trim_end_matches("MLKEM768");
            let found = (own.version().unwrap().name(), own.cipher().unwrap(), own.alpn(), curve);
            assert_eq!(found, expected, "{name} {at_once}");
            assert_eq!(own.name(), Some(name), "{at_once}");
        }
        assert!(listed.shake("c.example", at_once, |_| ()).is_none(), "a client without a certificate");
        let shows =
            |settings: &mut ClientSettings| settings.certificate = Some(listed.folder.0.join("d.pem"));
        let pair = listed.shake("c.example", at_once, shows).unwrap();
        assert!(pair.server.negotiated().certificate().is_some());
        let pair = listed.shake("d.example", at_once, shows).unwrap();
        assert!(pair.server.negotiated().certificate().is_none(), "nobody has asked for one");
    }
    let old = |settings: &mut ClientSettings| settings.common.newest = Some(Version::V12);
    assert!(listed.shake("d.example", 1 << 20, old).is_some());
    // rustls takes these for a hello, and a look at the first message does not: an alert that it ignores
    // stands in front, or the message is longer on the wire than the look keeps.
    let client = client_of(&listed.client);
    for name in ["c.example", "d.example"] {
        let mut begin = begin_client(&client, name);
        let mut hello = Chain::new();
        begin.receive(&mut Chain::new(), &mut Chain::new(), &mut hello).unwrap();
        let hello = hello.to_vec();
        let alert = [&[21, 3, 1, 0, 2, 1, 90][..], &hello].concat();
        // An extension for padding (RFC 7685) up to the longest message.
        let message = &hello[5..];
        let mut padded = message.to_vec();
        let at = 4 + 2 + 32 + 1 + usize::from(message[38]); // behind the session's number
        let suites = usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
        let lengths = at + 2 + suites + 2; // of all extensions
        let old = usize::from(u16::from_be_bytes([message[lengths], message[lengths + 1]]));
        let filling = 65_520 - 4 - message.len();
        padded[lengths..lengths + 2].copy_from_slice(&((old + 4 + filling) as u16).to_be_bytes());
        let padding = [&[0, 21][..], &(filling as u16).to_be_bytes(), &vec![0; filling]].concat();
        padded.splice(lengths + 2..lengths + 2, padding);
        let length = (padded.len() - 4) as u32;
        padded[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
        let record = |bytes: &[u8]| [&[22, 3, 1][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat();
        let padded: Vec<u8> = padded.chunks(16_000).flat_map(record).collect();
        for (bytes, at_once) in [(&alert, 7), (&alert, 1 << 20), (&padded, 1 << 20), (&padded, 16_005)] {
            let mut server = begin_server(&listed.server);
            let (mut plain, mut out) = (Chain::new(), Chain::new());
            let failed = bytes
                .chunks(at_once)
                .find_map(|piece| server.receive(&mut chain(piece), &mut plain, &mut out).err());
            assert!(failed.is_some(), "{name}: no certificate is shown");
        }
    }
    // The certificate of x.example is not good for this name.
    let trusting = |settings: &mut ClientSettings| settings.verify = ServerVerify::None;
    assert!(listed.shake("x.example", 1 << 20, trusting).is_some());
    let both = |settings: &mut ClientSettings| {
        trusting(settings);
        old(settings);
    };
    assert!(listed.shake("x.example", 1 << 20, both).is_none());
}

#[test]
fn a_line_may_undo_what_the_listener_demands() {
    let listed = Listed::new("a.pem [verify none ssl-min-ver TLSv1.2]\nb.pem [no-alpn]\n", |settings| {
        settings.verify = ClientVerify::Required;
        settings.verify_authorities = Some(settings.certificates[0].path().with_file_name("ca.pem"));
        settings.common.oldest = Some(Version::V13);
    });
    let old = |settings: &mut ClientSettings| settings.common.newest = Some(Version::V12);
    assert!(listed.shake("a.example", 1 << 20, old).is_some());
    assert!(listed.shake("b.example", 1 << 20, |_| ()).is_none(), "the listener's 'verify' holds");
    assert!(listed.shake("c.example", 1 << 20, |_| ()).is_none(), "the first line is the default");
}

/// Whoever was served without a certificate must not get past a line that demands one.
#[test]
fn a_session_is_not_resumed_under_the_rules_of_another_line() {
    let listed = Listed::new("a.pem a.example\n", |_| ());
    let list = listed.settings.certificates[0].path().display().to_string();
    for newest in [Version::V12, Version::V13] {
        let mut settings = listed.client.clone();
        settings.common.newest = Some(newest);
        let client = client_of(&settings);
        let is_resumed = || {
            let mut pair = Pair::new(&client, &listed.server, "a.example");
            pair.settle(1 << 20).map(|()| pair.server.negotiated().is_resumed())
        };
        let is_now = |line: &str| {
            listed.store.add_line(&list, line).unwrap();
            let first = listed.store.list(&list).unwrap()[0].clone();
            listed.store.remove_line(&list, &first.certificate, first.number).unwrap();
        };
        is_now("a.pem a.example");
        assert_eq!(is_resumed(), Ok(false));
        assert_eq!(is_resumed(), Ok(true));
        is_now("a.pem [alpn foo] a.example");
        assert_eq!(is_resumed(), Ok(true), "nobody is verified as before");
        is_now("a.pem [verify required ca-file ca.pem] a.example");
        is_resumed().unwrap_err();
        is_now("a.pem [verify optional ca-file ca.pem] a.example");
        assert_eq!(is_resumed(), Ok(false));
    }
}

#[test]
fn authorities_of_a_line_change_with_their_file() {
    let listed = Listed::new("a.pem [verify required ca-file ca.pem]\n", |_| ());
    let shows = |settings: &mut ClientSettings| settings.certificate = Some(listed.folder.0.join("d.pem"));
    assert!(listed.shake("a.example", 1 << 20, shows).is_some());
    let known = listed.folder.0.join("ca.pem").display().to_string();
    let kind = crate::Kind::Authorities;
    assert!(listed.store.show(kind, &known).unwrap().used);
    assert_eq!(listed.store.remove(kind, &known), Err(crate::Failure::Used));
    listed.store.set(kind, &known, authority("other").pem().as_bytes(), false).unwrap();
    assert_eq!(listed.store.commit(kind, &known, &mut Vec::new()), Ok(1));
    assert!(listed.shake("a.example", 1 << 20, shows).is_none());
}

#[test]
fn a_hello_that_selects_a_configuration_is_limited_as_others() {
    let listed = Listed::new("a.pem [no-alpn]\n", |_| ());
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let endless = [&[1, 0, 0x40, 0][..], &[0; 1000]].concat();
    let records: Vec<u8> = endless.chunks(1).flat_map(handshake_record).collect();
    for at_once in [1, 6, 3000] {
        let mut connection = begin_server(&listed.server);
        let failed = records
            .chunks(at_once)
            .find_map(|piece| connection.receive(&mut chain(piece), &mut plain, &mut out).err());
        assert!(matches!(failed, Some(crate::Error::Flood)), "{at_once} {failed:?}");
        assert_eq!(connection.calls, 0);
    }
    // Whatever is no hello ends as without options.
    let (_folder, usual, _) = simple();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[21, 3, 3, 0, 2, 1, 0], &[22, 3, 1, 0, 4, 2, 0, 0, 0]] {
        let of = |server: &ServerContext| {
            let (mut plain, mut out) = (Chain::new(), Chain::new());
            let mut connection = begin_server(server);
            let failed =
                connection.receive(&mut chain(bytes), &mut plain, &mut out).map_err(|e| e.to_string());
            (failed, out.to_vec())
        };
        assert_eq!(of(&listed.server), of(&usual));
    }
}

#[test]
fn early_data_is_accepted_by_the_line_that_allows_it() {
    let early = Early::new(|settings| {
        let file = settings.certificates[0].path();
        let (path, crt) = (file.with_file_name("list"), file.parent().unwrap().to_owned());
        fs::write(&path, "a.pem [allow-0rtt]\n").unwrap();
        settings.certificates = vec![Source::List { path, bases: Bases { crt, ca: PathBuf::new() } }];
        settings.early_data = false;
    });
    early.first();
    let (_, hello) = early.begin(b"request");
    for at_once in [1, 1 << 20] {
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        let mut server = begin_server(&early.server);
        for piece in hello.chunks(at_once) {
            server.receive(&mut chain(piece), &mut plain, &mut out).unwrap();
        }
        let expected = if at_once == 1 { Progress::Early } else { Progress::Handshaking }; // the copy
        assert_eq!(server.progress(), expected);
        assert_eq!(plain.len(), if at_once == 1 { 7 } else { 0 });
    }
}

#[test]
fn files_that_have_changed_and_are_complete_replace_a_watched_certificate() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let store = Store::default();
    let definition = crate::Definition {
        certificate: file.clone(),
        key: None,
        ocsp: None,
        issuer: None,
        ocsp_update: None,
        is_watched: true,
    };
    assert!(store.define("@s/a", definition));
    assert!(!store.watches_files());
    let server = store.listener(&server_settings(&[Path::new("@s/a")]), &mut Vec::new()).unwrap();
    assert!(store.watches_files());
    let client = client_of(&client_settings(&known));
    let is_shown = |name: &str| Pair::new(&client, &server, name).settle(1 << 20).is_ok();
    let check = || store.check_files().into_iter().map(|change| change.result).collect::<Vec<_>>();
    assert_eq!((check(), check()), (vec![], vec![]));

    // A file that takes its place at once.
    fs::rename(folder.write("new.pem", &ecdsa(&ca, &["b.example"])), &file).unwrap();
    assert_eq!(check(), [], "somebody may still write");
    assert_eq!(check(), [Ok(())]);
    assert!(is_shown("b.example") && !is_shown("a.example"));
    assert_eq!(check(), []);

    // One that is written in two halves.
    let whole = ecdsa(&ca, &["a.example"]);
    let half = whole.len() - 40;
    fs::write(&file, &whole[..half]).unwrap();
    assert_eq!(check(), []);
    let changes = check();
    assert!(changes[0].as_ref().unwrap_err().text.ends_with("a section has no end"), "{changes:?}");
    assert_eq!((check(), is_shown("b.example")), (vec![], true), "reported once, and nothing has changed");
    fs::write(&file, &whole).unwrap();
    assert_eq!(check(), []);
    assert_eq!((check(), is_shown("a.example")), (vec![Ok(())], true));

    // One that changes between two looks is not complete.
    for length in [half, half + 1, half + 2] {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(check(), []);
    }
    // A key beside it that is none of its, and then the right one.
    let end = "-----END CERTIFICATE-----\n";
    let (certificate, key) = whole.split_once(end).unwrap();
    let second = ecdsa(&ca, &["b.example"]);
    fs::write(&file, format!("{certificate}{end}")).unwrap();
    folder.write("a.pem.key", second.split_once(end).unwrap().1);
    assert_eq!(check(), []);
    assert!(check()[0].as_ref().unwrap_err().text.contains("is not that of its certificate"));
    folder.write("a.pem.key", key);
    assert_eq!((check().len(), check()), (0, vec![Ok(())]));

    // A transaction goes first.
    let kind = crate::Kind::Certificate;
    store.set(kind, "@s/a", second.as_bytes(), false).unwrap();
    fs::write(&file, format!("{certificate}{end}{end}")).unwrap();
    assert_eq!((check(), check(), check()), (vec![], vec![], vec![]));
    store.abort(kind, "@s/a").unwrap();
    assert_eq!(check().len(), 1);

    // A file that is gone is reported, too.
    fs::remove_file(&file).unwrap();
    assert_eq!(check(), []);
    assert!(check()[0].as_ref().unwrap_err().text.starts_with("cannot read "));
    assert_eq!((check(), is_shown("a.example")), (vec![], true));
}

/// The cost of a message grows with the number of its records, not with the number of pieces in which they
/// arrive; and the number of records is limited.
#[test]
fn a_hello_in_many_small_records_is_examined_once_for_each_of_so_many() {
    let (_folder, server, client) = simple();
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let mut hello = Chain::new();
    begin_client(&client, "a.example").receive(&mut Chain::new(), &mut plain, &mut hello).unwrap();
    let hello = hello.to_vec()[5..].to_vec();
    let endless = [&[1, 0, 0x40, 0][..], &[0; 1000]].concat();
    for (size, at_once, served) in [(8, 1, true), (8, 7, true), (8, 500, true), (1, 1, false), (1, 6, false)]
    {
        let message = if served { &hello } else { &endless };
        let records: Vec<u8> = message.chunks(size).flat_map(handshake_record).collect();
        let mut connection = begin_server(&server);
        out.clear();
        let failed = records
            .chunks(at_once)
            .find_map(|piece| connection.receive(&mut chain(piece), &mut plain, &mut out).err());
        assert_eq!(failed.is_none(), served, "{size} {at_once}: {failed:?}");
        assert_eq!(out.is_empty(), !served, "{size} {at_once}");
        if served {
            assert!(
                connection.calls <= hello.len().div_ceil(size),
                "{} for {size} {at_once}",
                connection.calls
            );
        } else {
            assert!(matches!(failed, Some(crate::Error::Flood)), "{failed:?}");
            assert_eq!(connection.calls, crate::MOST_RECORDS + 1, "{size} {at_once}");
        }
    }
}

/// Where the certificate depends on the hello, the whole message is copied for one call of rustls.
#[test]
fn a_hello_that_the_listener_examines_has_64_kib_at_most() {
    let (_folder, server, _) = simple();
    let mut settings = server.0.settings.clone();
    settings.common.hello_bytes = 1000;
    let server = server_of(&settings);
    for (length, refused) in [(0xffff_u32, false), (0x1_0000, true)] {
        // The last byte is missing.
        let mut hello = [&[1][..], &length.to_be_bytes()[1..]].concat();
        hello.resize(3 + length as usize, 0);
        let records = hello.chunks(1 << 14).map(|part| {
            let length = (part.len() as u16).to_be_bytes();
            [&[22, 3, 1][..], &length, part].concat()
        });
        let mut connection = begin_server(&server);
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        let mut ended = false;
        for record in records {
            ended |= connection.receive(&mut chain(&record), &mut plain, &mut out).is_err();
        }
        assert_eq!(ended, refused, "{length}");
        assert!(connection.unread.len() <= crate::MOST_UNREAD, "{length}");
    }
}

/// Within rustls the parts of a split hello move together; what is kept is what the client has sent.
#[test]
fn a_hello_in_several_records_is_kept_as_one_in_a_single_record() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let mut settings = server_settings(&[&folder.write("a.pem", &ecdsa(&ca, &["a.example"]))]);
    settings.common.hello_bytes = 1000;
    let (server, client) = (server_of(&settings), client_of(&client_settings(&known)));
    let (mut plain, mut hello) = (Chain::new(), Chain::new());
    begin_client(&client, "a.example").receive(&mut Chain::new(), &mut plain, &mut hello).unwrap();
    let hello = hello.to_vec();
    let message = &hello[5..];
    let kept = |pieces: &[Vec<u8>]| {
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        let mut connection = begin_server(&server);
        for piece in pieces {
            assert!(out.is_empty() && connection.negotiated().hello.is_none());
            connection.receive(&mut chain(piece), &mut plain, &mut out).unwrap();
        }
        assert!(!out.is_empty());
        connection.negotiated().hello.cloned().expect("it is kept")
    };
    let whole = kept(std::slice::from_ref(&hello));
    assert!(whole.all().len() > 4, "{whole:?}");
    let records = |size: usize| message.chunks(size).map(handshake_record).collect::<Vec<_>>();
    assert_eq!(records(message.len().div_ceil(3)).len(), 3);
    assert_eq!(kept(&records(message.len().div_ceil(3))), whole);
    assert_eq!(kept(&records(20)), whole);
    let bytes: Vec<Vec<u8>> = records(50).concat().chunks(1).map(<[u8]>::to_vec).collect();
    assert_eq!(kept(&bytes), whole);
}

/// Whatever changes in transit, each side fails or continues, and output equals input.
#[test]
fn changed_bytes_are_never_taken_for_good_ones() {
    let (_folder, server, client) = simple();
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for _ in 0..400 {
        let mut pair = Pair::new(&client, &server, "a.example");
        let (at, bit, at_once) = (next(3000), next(8), 1 + next(700));
        pair.client.receive(&mut Chain::new(), &mut pair.at_client, &mut pair.up).unwrap();
        let (mut passed, mut said, mut failed) = (0, false, false);
        while !(failed || pair.up.is_empty() && pair.down.is_empty()) {
            for up in [true, false] {
                let from = if up { &mut pair.up } else { &mut pair.down };
                let n = from.len().min(at_once);
                let mut bytes = copied(from, n).to_vec();
                if (passed..passed + n).contains(&at) {
                    bytes[at - passed] ^= 1 << bit;
                }
                passed += n;
                let outcome = match up {
                    true => pair.server.receive(&mut chain(&bytes), &mut pair.at_server, &mut pair.down),
                    false => pair.client.receive(&mut chain(&bytes), &mut pair.at_client, &mut pair.up),
                };
                failed |= outcome.is_err();
            }
            if !said && !failed && pair.client.progress() == Progress::Open {
                said = true;
                pair.client.send(&mut chain(&[7; 2000]), &mut pair.up).unwrap();
            }
        }
        let came = pair.at_server.to_vec();
        assert!(came.iter().all(|byte| *byte == 7) && came.len() <= 2000 && pair.at_client.is_empty());
        assert!(failed || passed <= at || came.len() == 2000, "at {at} of {passed}, {at_once} at once");
    }
}

#[test]
fn bytes_that_come_one_by_one_hold_few_clusters() {
    let (_folder, server, _) = simple();
    let mut connection = begin_server(&server);
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let mut hello = vec![22, 3, 1, 0x20, 0, 1, 0, 0x1f, 0xfc];
    hello.resize(1000, 3);
    for byte in hello {
        connection.receive(&mut chain(&[byte]), &mut plain, &mut out).unwrap();
    }
    assert_eq!(connection.unread.len(), 1000);
    assert!(connection.unread.segment_count() < 10, "{}", connection.unread.segment_count());
}

#[test]
fn files_that_cannot_be_used_are_reported_in_a_sentence() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let (one, two) = (ecdsa(&ca, &["a.example"]), ecdsa(&ca, &["a.example"]));
    let (certificate, key) = one.split_at(one.find("-----BEGIN PRIVATE").unwrap());
    let other_key = &two[two.find("-----BEGIN PRIVATE").unwrap()..];
    let refused = |name: &str, text: &str| {
        let file = folder.write(name, text);
        let problem = Store::default().listener(&server_settings(&[&file]), &mut Vec::new()).unwrap_err();
        problem.to_string().replace(&format!("{}/", folder.0.display()), "")
    };
    let cut = &certificate[..certificate.len() / 2];
    for (name, text, sentence) in [
        ("none.pem", "", "'crt' : 'none.pem' has no certificate"),
        ("nokey.pem", certificate, "'crt' : 'nokey.pem' cannot be used: it has no private key"),
        (
            "wrong.pem",
            &format!("{certificate}{other_key}"),
            "'crt' : the private key of 'wrong.pem' is not that of its certificate",
        ),
        ("cut.pem", cut, "'crt' : 'cut.pem' is not PEM: a section has no end"),
        (
            "bad.pem",
            &format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{key}"),
            "'crt' : the certificate of 'bad.pem' is malformed",
        ),
        (
            "locked.pem",
            &certificate.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY").replacen("", certificate, 1),
            "'crt' : 'locked.pem' cannot be used: its key has a passphrase",
        ),
    ] {
        assert_eq!(refused(name, text), sentence);
    }
    let missing =
        Store::default().listener(&server_settings(&[Path::new("/none/x")]), &mut Vec::new()).unwrap_err();
    assert_eq!(missing.to_string(), "'crt' : cannot read '/none/x': No such file or directory (os error 2)");
    let file = folder.write("beside.pem", certificate);
    folder.write("beside.pem.key", key);
    Store::default().listener(&server_settings(&[&file]), &mut Vec::new()).unwrap();
    let old = bundle(&ca, &["a.example"], &PKCS_ECDSA_P256_SHA256, |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let (file, mut warnings) = (folder.write("old.pem", &old), Vec::<Problem>::new());
    Store::default().listener(&server_settings(&[&file]), &mut warnings).unwrap();
    assert!(warnings[0].text.contains("expired at Jan  1"), "{}", warnings[0].text);
}

#[test]
fn no_sentence_repeats_a_private_key() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let whole = ecdsa(&ca, &["a.example"]);
    let key = &whole[whole.find("-----BEGIN PRIVATE").unwrap()..];
    let secret = key.lines().nth(1).unwrap();
    // Damage as by environment variables and templates.
    let damaged = [
        key.replace('\n', "\\n"),
        key.replace('\n', " "),
        key.replace('\n', ""),
        key.replacen('\n', " ", 2),
        key.replace("-----END", "----END"),
        key.replacen(secret, &format!("{secret}?"), 1),
    ];
    for text in damaged {
        let file = folder.write("damaged.pem", &text);
        let list =
            Source::List { path: file.clone(), bases: Bases { crt: folder.0.clone(), ca: folder.0.clone() } };
        let mut trusting = server_settings(&[&folder.write("good.pem", &whole)]);
        (trusting.verify, trusting.common.authorities) = (ClientVerify::Required, Some(file.clone()));
        let mut listed = server_settings(&[]);
        listed.certificates = vec![list];
        for settings in [server_settings(&[&file]), trusting, listed] {
            let error = Store::default().listener(&settings, &mut Vec::new()).unwrap_err().to_string();
            assert!(!error.contains(&secret[..8]), "{error}");
        }
    }
}

/// A revocation list of `by` with `serial`, if any, whose next update was due in the given year.
fn revocations(by: &CertifiedIssuer<'_, KeyPair>, serial: Option<u64>, renewed: i32) -> String {
    let revoked = |serial: u64| RevokedCertParams {
        serial_number: serial.into(),
        revocation_time: rcgen::date_time_ymd(2001, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2001, 1, 1),
        next_update: rcgen::date_time_ymd(renewed, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: serial.map(revoked).into_iter().collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(by).unwrap().pem().unwrap()
}

#[test]
fn revoked_certificates_and_lists_that_say_nothing_are_refused() {
    let (folder, ca, other) = (Folder::new(), authority("ca"), authority("other"));
    let known = folder.write("ca.pem", &ca.pem());
    let own = ecdsa(&ca, &["own.example"]);
    let pinned = folder.write("pinned.pem", &format!("{}{own}", other.pem()));
    let numbered = bundle(&ca, &["a.example"], &PKCS_ECDSA_P256_SHA256, |params| {
        params.serial_number = Some(7.into());
    });
    let (numbered, own) = (folder.write("a.pem", &numbered), folder.write("own.pem", &own));
    for (list, trusted, shown, accepted) in [
        (revocations(&ca, None, 2099), &known, &numbered, true),
        (revocations(&ca, Some(8), 2099), &known, &numbered, true),
        (revocations(&ca, Some(7), 2099), &known, &numbered, false),
        (revocations(&ca, None, 2002), &known, &numbered, false), // overdue: later revocations are unknown
        (revocations(&other, None, 2099), &known, &numbered, false), // of another CA
        (revocations(&other, None, 2099), &pinned, &own, false),  // no list can cover it
    ] {
        let list = folder.write("list.pem", &list);
        let mut server = server_settings(&[&numbered]);
        server.verify = ClientVerify::Required;
        (server.common.authorities, server.common.revoked) = (Some(trusted.clone()), Some(list.clone()));
        let mut client = client_settings(&known);
        client.certificate = Some(shown.clone());
        let outcome = Pair::new(&client_of(&client), &server_of(&server), "a.example").settle(1 << 20);
        assert_eq!(outcome.is_ok(), accepted, "{outcome:?}");
        // The same for a server that presents it.
        let mut client = client_settings(trusted);
        (client.common.revoked, client.sends_name) = (Some(list), false);
        let server = server_of(&server_settings(&[shown]));
        let outcome = Pair::new(&client_of(&client), &server, "127.0.0.1").settle(1 << 20);
        assert_eq!(outcome.is_ok(), accepted, "{outcome:?}");
    }
}

#[test]
fn a_trusted_certificate_does_not_vouch_for_another_purpose() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let text = bundle(&ca, &["a.example"], &PKCS_ECDSA_P256_SHA256, |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let (file, known) = (folder.write("a.pem", &text), folder.write("ca.pem", &ca.pem()));
    let mut server = server_settings(&[&file]);
    (server.verify, server.common.authorities) = (ClientVerify::Required, Some(file.clone()));
    let mut client = client_settings(&known);
    client.certificate = Some(file.clone());
    Pair::new(&client_of(&client), &server_of(&server), "a.example").settle(1 << 20).unwrap_err();
    Pair::shaken(&client_of(&client_settings(&file)), &server_of(&server_settings(&[&file])), "a.example");
}

/// A listener with `allow-0rtt`, and a client of rustls that sends early data to it.
struct Early {
    _folder: Folder,
    server: ServerContext,
    client: std::sync::Arc<rustls::ClientConfig>,
}

impl Early {
    fn new(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (folder, ca) = (Folder::new(), authority("ca"));
        let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
        let mut settings = server_settings(&[&file]);
        settings.early_data = true;
        change(&mut settings);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap();
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.enable_early_data = true;
        Self { _folder: folder, server: server_of(&settings), client: std::sync::Arc::new(client) }
    }

    /// A client with its first bytes: the hello, and `data` if the client has a session to send it with.
    fn begin(&self, data: &[u8]) -> (rustls::ClientConnection, Vec<u8>) {
        let mut client = rustls::ClientConnection::new(self.client.clone(), named("a.example")).unwrap();
        if let Some(mut early) = client.early_data() {
            std::io::Write::write_all(&mut early, data).unwrap();
        }
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        (client, hello)
    }

    /// Makes a connection without early data, so that the client has sessions.
    fn first(&self) {
        let (mut client, hello) = self.begin(b"never sent");
        let mut server = begin_server(&self.server);
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        server.receive(&mut chain(&hello), &mut plain, &mut out).unwrap();
        assert_eq!(server.progress(), Progress::Handshaking, "half of a handshake is none");
        answer(&mut client, &mut out);
        let mut rest = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut rest).unwrap();
        }
        server.receive(&mut chain(&rest), &mut plain, &mut out).unwrap();
        assert_eq!((server.progress(), plain.len()), (Progress::Open, 0));
        answer(&mut client, &mut out);
    }
}

/// Passes what a server has sent to a client, and returns the decrypted data.
fn answer(client: &mut rustls::ClientConnection, out: &mut Chain) -> Vec<u8> {
    let sent = std::mem::take(out).to_vec();
    let (mut rest, mut data) = (&sent[..], Vec::new());
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets().unwrap();
    }
    let _ = std::io::Read::read_to_end(&mut client.reader(), &mut data); // the end has not come
    data
}

#[test]
fn early_data_is_answered_before_the_handshake_is_complete_and_only_once() {
    for tickets in [true, false] {
        let early = Early::new(|settings| settings.tickets = tickets);
        early.first();
        let (mut client, hello) = early.begin(b"request");
        let (mut plain, mut out) = (Chain::new(), Chain::new());
        let mut server = begin_server(&early.server);
        for byte in &hello {
            server.receive(&mut chain(&[*byte]), &mut plain, &mut out).unwrap();
        }
        assert_eq!((server.progress(), plain.to_vec()), (Progress::Early, b"request".to_vec()));
        server.send(&mut chain(b"response"), &mut out).unwrap();
        assert_eq!(answer(&mut client, &mut out), b"response");
        assert!(client.is_early_data_accepted());

        // A copy of the same bytes, at whatever lane it arrives: its session is used up.
        let (mut copied, mut other) = (Chain::new(), Chain::new());
        let mut copy = begin_server(&early.server);
        copy.receive(&mut chain(&hello), &mut copied, &mut other).unwrap();
        assert_eq!((copy.progress(), copied.len()), (Progress::Handshaking, 0));
        copy.send(&mut chain(b"response"), &mut other).unwrap_err();

        let mut rest = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut rest).unwrap();
        }
        server.receive(&mut chain(&rest), &mut plain, &mut out).unwrap();
        assert_eq!(server.progress(), Progress::Open);
        server.close_notify(&mut out).unwrap();
        assert_eq!(answer(&mut client, &mut out), b"");
    }
}

#[test]
fn more_early_data_than_the_bound_ends_the_connection() {
    let early = Early::new(|_| ());
    early.first();
    // The client keeps to the number that the server has sent with the session.
    let most = crate::MOST_EARLY_DATA as usize;
    let (_, hello) = early.begin(&vec![7; most]);
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let mut server = begin_server(&early.server);
    server.receive(&mut chain(&hello), &mut plain, &mut out).unwrap();
    assert_eq!((server.progress(), plain.len()), (Progress::Early, most));

    let mut config = (*early.server.0.load(&Reader::new()).usual).clone();
    config.max_early_data_size -= 1;
    let usual = std::sync::Arc::new(config);
    early.server.0.now.replace(std::sync::Arc::new(crate::server::Configs { usual, own: None }));
    let (_, hello) = early.begin(&vec![7; most]);
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let mut server = begin_server(&early.server);
    let refused = server.receive(&mut chain(&hello), &mut plain, &mut out).unwrap_err();
    assert!(refused.to_string().contains("TooMuchEarlyData"), "{refused}");
    assert!(server.has_failed() && !out.is_empty());
}

/// A hello of TLS 1.3 that a server with an ECDSA certificate takes, in parts that tests change.
struct Hello {
    version: u16,
    suites: Vec<u16>,
    compressions: Vec<u8>,
    /// Types and bodies.
    extensions: Vec<(u16, Vec<u8>)>,
    /// Bytes behind the message, within its length.
    behind: Vec<u8>,
}

impl Hello {
    fn good() -> Self {
        let key = [&[0, 36, 0, 29, 0, 32][..], &[9; 32]].concat(); // one share, for X25519
        Self {
            version: 0x0303,
            suites: vec![0x1301, 0xc02b],
            compressions: vec![0],
            extensions: vec![
                (0, sized(2, &[&[0][..], &sized(2, b"a.example")].concat())),
                (10, vec![0, 2, 0, 29]),
                (13, vec![0, 2, 4, 3]),
                (43, vec![2, 3, 4]),
                (51, key),
            ],
            behind: Vec::new(),
        }
    }

    /// The message of this type, without a record.
    fn message(&self, kind: u8) -> Vec<u8> {
        let pairs = |list: &[u16]| list.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, body)| [&kind.to_be_bytes()[..], &sized(2, body)].concat())
            .collect();
        let body = [
            &self.version.to_be_bytes()[..],
            &[7; 32],
            &[0],
            &sized(2, &pairs(&self.suites)),
            &sized(1, &self.compressions),
            &sized(2, &extensions),
            &self.behind,
        ]
        .concat();
        [&[kind][..], &sized(3, &body)].concat()
    }

    fn without(mut self, extension: u16) -> Self {
        self.extensions.retain(|(kind, _)| *kind != extension);
        self
    }

    fn with(self, extension: u16, body: &[u8]) -> Self {
        let mut own = self.without(extension);
        own.extensions.push((extension, body.to_vec()));
        own
    }
}

fn sized(width: usize, body: &[u8]) -> Vec<u8> {
    [&body.len().to_be_bytes()[8 - width..], body].concat()
}

/// What a server tells a client whose first bytes these are: the number of the alert, or that it goes on.
fn alert_for(server: &ServerContext, bytes: &[u8], at_once: usize) -> Option<u8> {
    let mut server = begin_server(server);
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    for part in bytes.chunks(at_once) {
        if server.receive(&mut chain(part), &mut plain, &mut out).is_err() {
            assert!(server.has_failed() && plain.is_empty());
            let out = out.to_vec();
            let [21, 3, _, 0, 2, 2, alert] = out[..] else { panic!("no single alert: {out:?}") };
            return Some(alert);
        }
    }
    assert_ne!(out.to_vec().first(), Some(&21));
    None
}

/// As the RFCs say (8446 for TLS 1.3, 5246 for TLS 1.2). Where they leave a choice, both are good.
#[test]
fn wrong_hellos_and_records_end_with_the_alert_of_the_rfc() {
    const UNEXPECTED_MESSAGE: u8 = 10;
    const RECORD_OVERFLOW: u8 = 22;
    const HANDSHAKE_FAILURE: u8 = 40;
    const ILLEGAL_PARAMETER: u8 = 47;
    const DECODE_ERROR: u8 = 50;
    const PROTOCOL_VERSION: u8 = 70;
    const MISSING_EXTENSION: u8 = 109;
    let (_folder, server, _) = simple();
    let good = Hello::good;
    let hello = |hello: Hello| handshake_record(&hello.message(1));
    let twice = |kind: u16| {
        let mut own = good();
        let again = own.extensions.iter().find(|(own, _)| *own == kind).unwrap().clone();
        own.extensions.push(again);
        own
    };
    let malformed = [DECODE_ERROR, ILLEGAL_PARAMETER];
    for (name, bytes, alerts) in [
        ("good", hello(good()), &[][..]),
        ("TLS 1.2 alone", hello(good().without(43).without(51)), &[]),
        ("unknown extension", hello(good().with(0xff77, &[1])), &[]),
        ("TLS 1.1 in the list", hello(good().with(43, &[2, 3, 2])), &[PROTOCOL_VERSION]),
        (
            "TLS 1.1 without a list",
            hello(Hello { version: 0x0302, ..good().without(43) }),
            &[PROTOCOL_VERSION],
        ),
        ("an unknown suite", hello(Hello { suites: vec![0x1399], ..good() }), &[HANDSHAKE_FAILURE]),
        (
            "no suite",
            hello(Hello { suites: vec![], ..good() }),
            &[HANDSHAKE_FAILURE, DECODE_ERROR, ILLEGAL_PARAMETER],
        ),
        ("compression alone", hello(Hello { compressions: vec![1], ..good() }), &malformed),
        ("an extension twice", hello(twice(13)), &malformed),
        (
            "an empty list of groups",
            hello(good().with(10, &[0, 0])),
            &[DECODE_ERROR, ILLEGAL_PARAMETER, HANDSHAKE_FAILURE],
        ),
        ("half of a group", hello(good().with(10, &[0, 1, 0])), &malformed),
        ("an extension longer than its list", hello(good().with(10, &[0, 2, 0, 29, 0])), &malformed),
        ("bytes behind the hello", hello(Hello { behind: vec![0], ..good() }), &malformed),
        ("no signature algorithms", hello(good().without(13)), &[MISSING_EXTENSION, HANDSHAKE_FAILURE]),
        ("no groups", hello(good().without(10)), &[MISSING_EXTENSION, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER]),
        ("no share", hello(good().without(51)), &[MISSING_EXTENSION, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER]),
        (
            "a short share",
            hello(good().with(51, &[0, 5, 0, 29, 0, 1, 9])),
            &[ILLEGAL_PARAMETER, DECODE_ERROR],
        ),
        (
            "a message of a server",
            handshake_record(&good().message(2)),
            &[UNEXPECTED_MESSAGE, DECODE_ERROR, ILLEGAL_PARAMETER],
        ),
        ("the end of a handshake", handshake_record(&[20, 0, 0, 1, 0]), &[UNEXPECTED_MESSAGE, DECODE_ERROR]),
        ("an alert", vec![21, 3, 1, 0, 2, 2, 40], &[UNEXPECTED_MESSAGE]),
        ("a change of ciphers", vec![20, 3, 3, 0, 1, 1], &[UNEXPECTED_MESSAGE]),
        ("data", vec![23, 3, 3, 0, 1, 1], &[UNEXPECTED_MESSAGE]),
        (
            "a record that is too long",
            [&[22, 3, 1, 0xff, 0xff][..], &[0; 0xffff]].concat(),
            &[RECORD_OVERFLOW, DECODE_ERROR],
        ),
    ] {
        for at_once in [1 << 20, 7] {
            let alert = alert_for(&server, &bytes, at_once);
            let is_right = alert.map_or(alerts.is_empty(), |alert| alerts.contains(&alert));
            assert!(is_right, "{name}: {alert:?}");
        }
    }
}

/// A client sends as much early as the server allows, and what the server has not taken behind the handshake.
#[test]
fn early_data_for_a_server_reaches_it_once_whatever_it_accepts() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
    let mut settings = server_settings(&[&file]);
    settings.early_data = true;
    let server = server_of(&settings);
    let client = client_of(&ClientSettings { early_data: true, ..client_settings(&known) });
    let early = |server: &ServerContext| {
        let mut pair = Pair::new(&client, server, "a.example");
        pair.client =
            Connection::client(&client, named("a.example"), crate::Hello::Early, &Reader::new()).unwrap();
        pair.client.receive(&mut Chain::new(), &mut pair.at_client, &mut pair.up).unwrap();
        pair
    };
    let send = |pair: &mut Pair, data: &[u8]| {
        assert_eq!(pair.client.progress(), Progress::Early);
        pair.client.close_notify(&mut pair.up).unwrap(); // not now
        pair.client.send(&mut chain(data), &mut pair.up).unwrap();
    };
    // Without a session there is nothing to send it with.
    let mut pair = early(&server);
    assert_eq!(pair.client.progress(), Progress::Handshaking);
    pair.settle(1 << 20).unwrap();
    for at_once in [1, 1 << 20] {
        let mut pair = early(&server);
        send(&mut pair, b"requ");
        send(&mut pair, b"est");
        while pair.server.progress() != Progress::Early || pair.at_server.len() < 7 {
            let n = at_once.min(pair.up.len());
            let mut part = copied(&mut pair.up, n);
            pair.server.receive(&mut part, &mut pair.at_server, &mut pair.down).unwrap();
        }
        pair.server.send(&mut chain(b"response"), &mut pair.down).unwrap();
        pair.settle(at_once).unwrap();
        assert_eq!((pair.client.progress(), pair.server.progress()), (Progress::Open, Progress::Open));
        assert!(pair.client.negotiated().is_resumed());
        assert_eq!(
            (pair.at_server.to_vec(), pair.at_client.to_vec()),
            (b"request".to_vec(), b"response".to_vec())
        );
        pair.client.send(&mut chain(b" more"), &mut pair.up).unwrap();
        pair.settle(at_once).unwrap();
        assert_eq!(pair.at_server.to_vec(), b"request more");
    }
    // A server that knows no session, and one that asks for another hello.
    for (early_data, curves) in [(false, None), (true, Some("P-384".to_owned()))] {
        early(&server).settle(1 << 20).unwrap(); // new sessions
        settings.early_data = early_data;
        settings.common.curves = curves;
        let other = server_of(&settings);
        let mut pair = early(&other);
        send(&mut pair, b"request");
        pair.settle(1 << 20).unwrap();
        assert_eq!(pair.client.negotiated().is_resumed(), early_data);
        assert_eq!(pair.at_server.to_vec(), b"request");
    }
    // What exceeds the server's bound waits, and what exceeds ours.
    let ours = crate::MOST_EARLY_DATA as usize;
    for (bound, early) in [(4, 4), (1 << 20, ours)] {
        let mut config = (*server.0.load(&Reader::new()).usual).clone();
        config.max_early_data_size = bound;
        let usual = std::sync::Arc::new(config);
        server.0.now.replace(std::sync::Arc::new(crate::server::Configs { usual, own: None }));
        let fresh = client_of(&ClientSettings { early_data: true, ..client_settings(&known) });
        Pair::shaken(&fresh, &server, "a.example");
        let mut pair = Pair::new(&fresh, &server, "a.example");
        pair.client =
            Connection::client(&fresh, named("a.example"), crate::Hello::Early, &Reader::new()).unwrap();
        pair.client.receive(&mut Chain::new(), &mut pair.at_client, &mut pair.up).unwrap();
        let data: Vec<u8> = (0..40_000).map(|n| n as u8).collect();
        send(&mut pair, &data[..7]);
        send(&mut pair, &data[7..]);
        pair.server.receive(&mut pair.up, &mut pair.at_server, &mut pair.down).unwrap();
        assert_eq!(
            (pair.server.progress(), pair.at_server.to_vec()),
            (Progress::Early, data[..early].to_vec())
        );
        pair.settle(1 << 20).unwrap();
        assert_eq!(pair.at_server.to_vec(), data);
    }
}

#[test]
fn early_data_for_servers_needs_sessions_of_tls_1_3() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let known = folder.write("ca.pem", &ca.pem());
    let usual = ClientSettings { early_data: true, ..client_settings(&known) };
    let mut old = usual.clone();
    old.common.newest = Some(Version::V12);
    for (settings, why) in [
        (ClientSettings { reuse: false, ..usual }, "with 'no-ssl-reuse' no session is resumed"),
        (old, "only TLS 1.3"),
    ] {
        let mut warnings = Vec::new();
        Store::default().server(&settings, &mut warnings).unwrap();
        assert!(warnings[0].to_string().contains(why), "{}", warnings[0]);
    }
}

#[test]
fn early_data_is_not_accepted_where_sessions_can_be_used_twice() {
    let keys = Folder::new();
    let line = |byte: char| byte.to_string().repeat(64) + "\n";
    let keys = keys.write("keys", &['A', 'E', 'I'].map(line).concat());
    for (change, why) in [
        (
            &(|settings: &mut ServerSettings| settings.ticket_keys = Some(keys.clone()))
                as &dyn Fn(&mut ServerSettings),
            "can be used several times",
        ),
        (&|settings| settings.sessions = 0, "'tune.ssl.cachesize' is 0"),
        (&|settings| settings.common.newest = Some(Version::V12), "only TLS 1.3"),
    ] {
        let (folder, ca) = (Folder::new(), authority("ca"));
        let file = folder.write("a.pem", &ecdsa(&ca, &["a.example"]));
        let mut settings = server_settings(&[&file]);
        settings.early_data = true;
        change(&mut settings);
        let mut warnings = Vec::new();
        let server = Store::default().listener(&settings, &mut warnings).unwrap();
        assert!(warnings[0].to_string().contains(why), "{}", warnings[0]);
        assert_eq!(server.0.load(&Reader::new()).usual.max_early_data_size, 0);
    }
}

#[test]
fn bundles_stand_for_names_without_a_file() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let rsa = bundle(&ca, &["a.test"], &PKCS_RSA_SHA256, |_| ());
    for (name, text) in [("x.ecdsa", ecdsa(&ca, &["a.test"])), ("x.rsa", rsa), ("x.dsa", String::new())] {
        folder.write(name, &text);
    }
    let (path, list) = (folder.0.join("x"), folder.write("list", "x [alpn h2] one.test\n"));
    let names = ["x.ecdsa", "x.rsa"].map(|name| Box::from(folder.0.join(name).display().to_string()));
    let (store, mut warnings) = (Store::default(), Vec::new());
    let context = store.listener(&server_settings(&[&path]), &mut warnings).unwrap();
    assert_eq!(store.names(crate::Kind::Certificate).all, names.clone().map(|name| (name, 1)));
    assert!(warnings[0].text.contains("x.dsa' is not used"), "{warnings:?}");
    let shown: Vec<_> = store.shown_names(&context).into_iter().map(|own| (own.name, own.key)).collect();
    let kinds = ["a.test", "*"].map(|name| ["ecdsa", "rsa"].map(|kind| (Box::<str>::from(name), kind)));
    assert_eq!(shown, kinds.concat());
    let bases = Bases { crt: folder.0.clone(), ..Bases::default() };
    let settings = ServerSettings::new(vec![Source::List { path: list.clone(), bases }]);
    store.listener(&settings, &mut warnings).unwrap();
    let lines = store.list(list.to_str().unwrap()).unwrap();
    let lines: Vec<_> = lines.into_iter().map(|line| (line.certificate, line.options.to_string())).collect();
    assert_eq!(lines, names.map(|name| (name, "alpn h2".to_owned())));
}

#[test]
fn chains_are_completed_and_end_before_self_issued_certificates() {
    let (folder, ca, other) = (Folder::new(), authority("ca"), authority("other"));
    let (bare, foreign) = (ecdsa(&ca, &["a.test"]), ecdsa(&other, &["b.test"]));
    let files = [("bare", bare.clone()), ("full", bare + &ca.pem()), ("foreign", foreign)]
        .map(|(name, text)| folder.write(name, &text));
    fs::create_dir(folder.0.join("issuers")).unwrap();
    folder.write("issuers/a", &ca.pem());
    folder.write("issuers/b", &ca.pem());
    folder.write("issuers/c", "");
    let issuers = Some(folder.0.join("issuers"));
    for (skips_self_issued, issuers, sent) in [
        (false, None, [1, 2, 1]),
        (true, None, [1, 1, 1]),
        (false, issuers.clone(), [2, 2, 1]),
        (true, issuers, [1, 1, 1]),
    ] {
        let (store, mut warnings) = (Store::default(), Vec::new());
        let is_given = issuers.is_some();
        let settings = crate::FileSettings { drops_extension: false, skips_self_issued, issuers };
        store.set_files(&settings, &mut warnings).unwrap();
        assert_eq!(warnings.len(), if is_given { 2 } else { 0 }, "{warnings:?}");
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let _context = store.listener(&server_settings(&paths), &mut warnings).unwrap();
        let chain = |path: &PathBuf| {
            let bundle = store.lock().bundle(path.to_str().unwrap()).unwrap();
            bundle.ready.as_ref().unwrap().key.cert.len()
        };
        assert_eq!(files.each_ref().map(chain), sent, "{settings:?}");
    }
    let settings = crate::FileSettings { issuers: Some("/none".into()), ..Default::default() };
    assert!(Store::default().set_files(&settings, &mut Vec::new()).is_err());
}

#[test]
fn parts_of_a_certificate_are_sent_by_themselves() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let whole = ecdsa(&ca, &["a.test"]);
    let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE").unwrap());
    folder.write("a.key", key);
    let path = folder.write("a.crt", certificate);
    let (store, kind) = (Store::default(), crate::Kind::Certificate);
    let settings = crate::FileSettings { drops_extension: true, ..Default::default() };
    store.set_files(&settings, &mut Vec::new()).unwrap();
    let _context = store.listener(&server_settings(&[&path]), &mut Vec::new()).unwrap();
    let name = path.to_str().unwrap();
    let set = |ending: &str, text: &str| {
        let of = folder.0.join(format!("a.{ending}"));
        store.set(kind, of.to_str().unwrap(), text.as_bytes(), false)
    };
    let commit = || {
        let mut warnings = Vec::new();
        store.commit(kind, name, &mut warnings).map(|_| warnings.len())
    };
    assert_eq!(set("key", key), Ok((name.into(), true)));
    assert_eq!(set("crt.ocsp", "AAAA"), Ok((name.into(), false)));
    assert!(
        matches!(commit(), Err(crate::Failure::Bad(problem)) if problem.text.contains("add it to the chain"))
    );
    assert_eq!(set("issuer", &ca.pem()), Ok((name.into(), false)));
    assert_eq!(commit(), Ok(1)); // the response is ignored with a warning
    for (ending, text) in [("ocsp", "!"), ("issuer", "none"), ("sctl", "AAAA")] {
        assert!(matches!(set(ending, text), Err(crate::Failure::Bad(_))), "{ending}");
    }
    assert_eq!(set("dh", ""), Err(crate::Failure::Unknown));
    assert_eq!(store.abort(kind, name), Err(crate::Failure::NoTransaction));
}

/// A store that follows another one takes over what files still say, and nothing else.
#[test]
fn certificates_of_unchanged_files_are_not_read_again() {
    let (folder, ca) = (Folder::new(), authority("ca"));
    let names = ["same", "replaced", "commanded", "with-key"];
    let files =
        names.map(|name| folder.write(&format!("{name}.pem"), &ecdsa(&ca, &[&format!("{name}.example")])));
    let settings = server_settings(&files.each_ref().map(PathBuf::as_path));
    let key_of = |store: &Store, file: &Path| {
        let bundle = store.lock().bundle(&file.display().to_string()).unwrap();
        bundle.ready.as_ref().unwrap().key.clone()
    };
    let follow = |before: &Store, settings_of_files: &FileSettings| {
        let next = Store::default();
        next.follow(before);
        next.set_files(settings_of_files, &mut Vec::new()).unwrap();
        let context = next.listener(&settings, &mut Vec::new()).unwrap();
        next.forget_predecessor();
        (next, context)
    };
    let is_kept = |before: &Store, after: &Store| {
        files.each_ref().map(|file| Arc::ptr_eq(&key_of(before, file), &key_of(after, file)))
    };
    // Files that have just been written may change again without another stamp.
    let fresh = Store::default();
    let _context = fresh.listener(&settings, &mut Vec::new()).unwrap();
    let (next, _context) = follow(&fresh, &FileSettings::default());
    assert_eq!(is_kept(&fresh, &next), [false; 4]);
    AHEAD.set(Duration::from_secs(3600));
    let first = Store::default();
    let _context = first.listener(&settings, &mut Vec::new()).unwrap();
    let keys = files.each_ref().map(|file| key_of(&first, file));
    // The second.
    fs::rename(folder.write("new", &ecdsa(&ca, &["new.example"])), &files[1]).unwrap();
    // The third, by a command.
    let name = files[2].display().to_string();
    let sent = ecdsa(&ca, &["sent.example"]);
    first.set(Kind::Certificate, &name, sent.as_bytes(), false).unwrap();
    first.commit(Kind::Certificate, &name, &mut Vec::new()).unwrap();
    // A file beside the fourth, which is not read as long as the file itself has a key.
    folder.write("with-key.pem.key", "");
    let (second, _context) = follow(&first, &FileSettings::default());
    assert_eq!(is_kept(&first, &second), [true, false, false, false]);
    assert!(Arc::ptr_eq(&keys[0], &key_of(&second, &files[0])));
    assert_ne!(keys[1].cert, key_of(&second, &files[1]).cert, "the new file");
    assert_eq!(keys[2].cert, key_of(&second, &files[2]).cert, "the file, and not what the command has sent");
    let (third, _context) = follow(&second, &FileSettings::default());
    assert_eq!(is_kept(&second, &third), [true; 4]);
    let (other, _context) = follow(&second, &FileSettings { skips_self_issued: true, ..Default::default() });
    assert_eq!(is_kept(&second, &other), [false; 4], "files are read in another way");
}
