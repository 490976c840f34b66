//! Both roles against each other, and unusable files.
#![allow(clippy::unwrap_used)] // helpers of tests

use crate::{
    ClientContext, ClientSettings, ClientVerify, CommonSettings, Connection, IgnoredErrors, Problem,
    Progress, ServerContext, ServerName, ServerSettings, ServerVerify, Source, Store, Version,
};
use manylane_buf::Chain;
use manylane_sync::qsbr::Reader;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RevokedCertParams, SignatureAlgorithm,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

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
    ServerSettings {
        common: CommonSettings::default(),
        certificates: certificates.iter().map(|path| Source::Path(path.to_path_buf())).collect(),
        strict_sni: false,
        verify: ClientVerify::None,
        verify_authorities: None,
        ignored: IgnoredErrors::default(),
        ignored_of_authorities: IgnoredErrors::default(),
        tell_authorities: true,
        tickets: true,
        client_order: false,
        ticket_keys: None,
        sessions: 100,
        lifetime: 300,
    }
}

fn client_settings(authorities: &Path) -> ClientSettings {
    ClientSettings {
        common: CommonSettings { authorities: Some(authorities.to_owned()), ..CommonSettings::default() },
        certificate: None,
        verify: ServerVerify::Required,
        sends_name: true,
        reuse: true,
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
    Connection::client(context, named(name), &Reader::new()).unwrap()
}

fn begin_server(context: &ServerContext) -> Connection {
    Connection::server(context, &Reader::new()).unwrap()
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
                let told = self.client.receive(&mut alert, &mut self.at_client, &mut self.up);
                told.expect_err("the alert ends the client");
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

#[test]
fn a_side_that_ends_can_still_be_told_something() {
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
fn what_a_retried_hello_asked_for_is_no_other_connections() {
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
    settings.certificates = vec![Source::List { path: list.clone(), base: folder.0.clone() }];
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
        ("a.pem\nw.pem [alpn h2] x\n", "line 2 of 'list' has the option 'alpn'"),
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

/// A record with these bytes of handshake messages.
fn handshake_record(bytes: &[u8]) -> Vec<u8> {
    [&[22, 3, 1, 0, bytes.len() as u8], bytes].concat()
}

/// The cost of a message grows with the number of its records, not with the number of pieces in which they
/// arrive; and the number of records is limited.
#[test]
fn a_hello_in_many_small_records_is_looked_at_once_for_each_of_so_many() {
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
                connection.looks <= hello.len().div_ceil(size),
                "{} for {size} {at_once}",
                connection.looks
            );
        } else {
            assert!(matches!(failed, Some(crate::Error::Flood)), "{failed:?}");
            assert_eq!(connection.looks, crate::MOST_RECORDS + 1, "{size} {at_once}");
        }
    }
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
fn files_that_cannot_be_used_are_told_in_a_sentence() {
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
    let (file, mut told) = (folder.write("old.pem", &old), Vec::<Problem>::new());
    Store::default().listener(&server_settings(&[&file]), &mut told).unwrap();
    assert!(told[0].text.contains("expired at Jan  1"), "{}", told[0].text);
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
        let list = Source::List { path: file.clone(), base: folder.0.clone() };
        let mut trusting = server_settings(&[&folder.write("good.pem", &whole)]);
        (trusting.verify, trusting.common.authorities) = (ClientVerify::Required, Some(file.clone()));
        let mut listed = server_settings(&[]);
        listed.certificates = vec![list];
        for settings in [server_settings(&[&file]), trusting, listed] {
            let told = Store::default().listener(&settings, &mut Vec::new()).unwrap_err().to_string();
            assert!(!told.contains(&secret[..8]), "{told}");
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
