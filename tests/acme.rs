//! Certificates by ACME: pebble, the test authority of Let's Encrypt, is the other end.

use crate::common;
use crate::tls::{Authority, curl, openssl, text};

use common::dns::Dns;
use common::watch::{Played, Syslog, ask, both, until};
use common::{DEFAULTS, Ended, Folder, Manylane, check, fd, listener, origin_of, own_address};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RULE: &str = "http-request return status 200 content-type text/plain lf-string \
    \"%[path,field(-1,/)].%[path,field(-1,/),map(virt@acme)]\\n\" if { path_beg \
    '/.well-known/acme-challenge/' }";

/// An authority that resolves names with a name server of the test.
struct Pebble {
    _child: Ended,
    authority: Authority,
    address: SocketAddr,
    management: SocketAddr,
}

impl Pebble {
    /// Starts the authority. Returns `None`, and prints a message, if the program is not installed. The
    /// authority requests pages at `http`, and refuses `refused` of a hundred nonces.
    fn start(dns: &Dns, http: SocketAddr, refused: usize) -> Option<Self> {
        Self::start_with(dns, &format!(r#""httpPort": {}, "tlsPort": 1"#, http.port()), refused)
    }

    /// As [`start`](Self::start), with more settings, in JSON.
    fn start_with(dns: &Dns, settings: &str, refused: usize) -> Option<Self> {
        let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/pebble"));
        if !program.exists() {
            println!("not compared: there is no pebble here; scripts/setup test builds it");
            return None;
        }
        let authority = Authority::new();
        let (address, management) = (own_address(), own_address());
        let names = [address, management].map(|address| address.ip().to_string());
        let file = authority.bundle("pebble.pem", &names.each_ref().map(String::as_str));
        let settings = format!(
            r#"{{"pebble": {{"listenAddress": "{address}", "managementListenAddress": "{management}",
                "certificate": "{0}", "privateKey": "{0}", {settings},
                "retryAfter": {{"authz": 1, "order": 1}}, "keyAlgorithm": "ecdsa",
                "profiles": {{"default": {{"description": "", "validityPeriod": 7776000}}}}}}}}"#,
            file.display(),
        );
        let settings = authority.folder.file("pebble.json", &settings);
        let child = Command::new(program)
            .args(["-dnsserver", &dns.address().to_string(), "-config"])
            .arg(settings)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", refused.to_string())
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let own = Self { _child: Ended(child.unwrap()), authority, address, management };
        until(|| {
            let root = own.get(&format!("https://{}/roots/0", own.management));
            root.contains("BEGIN CERTIFICATE").then(|| own.authority.folder.file("root.pem", &root)).is_some()
        });
        Some(own)
    }

    fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }

    fn trust(&self) -> String {
        format!("ca-file {}", self.authority.file().display())
    }

    fn get(&self, url: &str) -> String {
        let output = Command::new("curl").args(["-sS", url, "--cacert"]).arg(self.authority.file()).output();
        text(&output.unwrap().stdout)
    }
}

/// A program with a certificate of its own for `a.test`, which ACME renews.
struct Begun {
    program: Manylane,
    log: Syslog,
    folder: Folder,
    control: PathBuf,
    front: SocketAddr,
    name: String,
}

/// A self-signed certificate, and its key.
fn own_certificate(folder: &Folder) -> PathBuf {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    let own = params.self_signed(&key).unwrap();
    folder.file("a.pem", &format!("{}{}", own.pem(), key.serialize_pem()))
}

impl Begun {
    /// `trust` selects the CAs that verify the authority. The rule answers the authority's requests; with
    /// `switched`, only once the map `virt@switch` has the key `on`.
    fn start(
        trust: &str,
        directory: &str,
        section: &str,
        domains: &str,
        http: &TcpListener,
        switched: bool,
    ) -> Self {
        Self::start_at(listener(), trust, directory, section, domains, http, switched)
    }

    /// As [`start`](Self::start), with the listener of TLS.
    fn start_at(
        (tls, front): (TcpListener, SocketAddr),
        trust: &str,
        directory: &str,
        section: &str,
        domains: &str,
        http: &TcpListener,
        switched: bool,
    ) -> Self {
        let (folder, log) = (Folder::new(), Syslog::new());
        let control = folder.0.join("control");
        let name = own_certificate(&folder).display().to_string();
        let condition = if switched { "{ str(on),map(virt@switch) -m found }" } else { "" };
        let config = format!(
            "global\n stats socket {} level admin\n log {} local0\n httpclient.ssl.{trust}\nacme x\n \
             directory {directory}\n account-key {}\n contact q@a.test\n {section}\nacme y\n \
             directory https://y.test/d\n account-key {2}\ncrt-store\n load crt {name} acme x domains \
             {domains}\n{DEFAULTS} mode http\nfrontend f\n bind {}\n bind {} ssl crt \
             {name}\n {RULE} {condition}\n http-request return status 200\nbackend b\n \
             server s 127.0.0.1:1\n",
            control.display(),
            log.address(),
            folder.0.join("account.key").display(),
            fd(http),
            fd(&tls),
        );
        Self { program: Manylane::start_ready(&config), log, folder, control, front, name }
    }

    fn ask(&self, line: &str) -> String {
        ask(&self.control, &line.replace("CERT", &self.name))
    }

    fn serial(&self) -> String {
        let shown = self.ask("show ssl cert CERT");
        shown.lines().find_map(|line| line.strip_prefix("Serial: ")).unwrap().to_owned()
    }

    fn status(&self) -> Vec<String> {
        let shown = self.ask("acme status");
        let line = shown.lines().nth(1).unwrap();
        line.split('\t').map(str::to_owned).collect()
    }

    /// The response to a client that trusts this authority only.
    fn visit(&self, pebble: &Pebble, name: &str) -> String {
        let root = pebble.authority.folder.0.join("root.pem");
        let url = format!("https://{name}:{}/", self.front.port());
        text(&curl(&pebble.authority, self.front, name, &[&url, "--cacert", root.to_str().unwrap()]).stdout)
    }

    fn failure(&self) -> String {
        let line = self.log.wait("The order failed: ");
        line.split_once("The order failed: ").unwrap().1.to_owned()
    }
}

#[test]
fn a_certificate_is_obtained_shown_and_renewed() {
    let (dns, (http, pages)) = (Dns::new(), listener());
    for name in ["a.test", "b.test"] {
        dns.addresses(name, &["127.0.0.1"]);
    }
    let Some(pebble) = Pebble::start(&dns, pages, 30) else { return };
    let begun =
        Begun::start(&pebble.trust(), &pebble.directory(), "map virt@acme", "a.test,B.test", &http, false);
    begun.log.wait("The certificate was renewed");
    for name in ["a.test", "b.test"] {
        assert_eq!(begun.visit(&pebble, name), "|200|2|1|");
    }
    // The proofs are removed.
    until(|| begun.ask("show map virt@acme").trim().is_empty());
    let state = begun.status();
    assert_eq!(state[..3], [begun.name.clone(), "x".into(), "Scheduled".into()]);
    assert!(state[4].starts_with("89d 23h5"), "{state:?}");
    let days: u64 = state[6].split_once("d ").unwrap().0.parse().unwrap();
    assert!((59..64).contains(&days), "{state:?}");
    let key = begun.folder.0.join("account.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    let first = begun.serial();
    assert_eq!(begun.ask("acme renew CERT").trim(), "");
    begun.log.wait("The certificate was renewed");
    let second = begun.serial();
    assert_ne!(first, second);
    assert_eq!(begun.visit(&pebble, "a.test"), "|200|2|1|");
    // A reload keeps the certificate, since its file has not changed.
    assert!(begun.ask("reload").contains("serves"));
    assert_eq!(begun.serial(), second);
    assert_eq!(begun.status()[2], "Scheduled");
    // An operator may write the certificate to its file, and a reload reads it.
    let dumped = begun.ask("dump ssl cert CERT");
    assert_eq!(dumped.matches("BEGIN PRIVATE KEY").count(), 1);
    std::fs::write(&begun.name, dumped).unwrap();
    assert!(begun.ask("reload").contains("serves"));
    assert_eq!((begun.serial(), &*begun.status()[2]), (second, "Scheduled"));
    // The program does not dump a certificate that its file has: the file may be newer.
    assert!(begun.ask("dump ssl cert CERT").contains("ACME has obtained no certificate"));
    let shown = text(&openssl(&["x509", "-in", &begun.name, "-noout", "-issuer"], "").stdout);
    assert!(shown.contains("Pebble Intermediate"), "{shown}");
    assert!(begun.ask("dump ssl cert other").contains("their keys do not leave the process"));
    assert_eq!(begun.ask("acme renew other").trim(), "No ACME configuration defined for file 'other'.");
}

#[test]
fn a_challenge_that_fails_is_reported_and_tried_again() {
    let (dns, (http, pages)) = (Dns::new(), listener());
    dns.addresses("a.test", &["127.0.0.1"]);
    let Some(pebble) = Pebble::start(&dns, pages, 0) else { return };
    let begun = Begun::start(&pebble.trust(), &pebble.directory(), "map virt@acme", "a.test", &http, true);
    let why = begun.failure();
    let expected = "the authorization for 'a.test' is 'invalid' instead of 'valid' (unauthorized: ";
    assert!(why.starts_with(expected), "{why}");
    until(|| begun.status()[2] == "Scheduled");
    // Retries are up to a quarter later.
    let waits = |minutes: u32| {
        let left = begun.status()[6].clone();
        let found: u32 = left.strip_prefix("0d 0h").unwrap().split_once('m').unwrap().0.parse().unwrap();
        (minutes..=(minutes + 1) * 5 / 4).contains(&found)
    };
    assert!(waits(4), "{:?}", begun.status());
    assert!(
        begun.ask("acme status").contains("1 failed, the last: the authorization for 'a.test' is 'invalid'")
    );
    begun.ask("acme renew CERT");
    begun.failure();
    until(|| waits(9));
    // A reload keeps all of this.
    assert!(begun.ask("reload").contains("serves"));
    assert!(waits(9), "{:?}", begun.status());
    begun.ask("add map virt@switch on 1");
    begun.ask("acme renew CERT");
    begun.log.wait("The certificate was renewed");
    assert!(!begun.ask("acme status").contains("failed"));
    assert_eq!(begun.visit(&pebble, "a.test"), "|200|2|1|");
}

#[test]
fn records_prove_names_too() {
    let (dns, (http, pages)) = (Dns::new(), listener());
    let Some(pebble) = Pebble::start(&dns, pages, 0) else { return };
    let section = "challenge dns-01\n keytype RSA\n bits 2048";
    let begun = Begun::start("verify none", &pebble.directory(), section, "*.a.test,a.test", &http, false);
    // One name has both records, so one line has them, and one confirmation counts for both.
    let line = begun.log.wait("Add the TXT records ");
    let texts = [1, 3].map(|nth| line.split('"').nth(nth).unwrap().to_owned());
    assert_ne!(texts[0], texts[1]);
    dns.texts("_acme-challenge.a.test", &texts);
    // Adding a server does not restart the order. The command is answered once the generation without the
    // server has ended on all lanes, and so has woken the order.
    assert!(begun.ask("add server b/t 127.0.0.1:1").contains("New server registered"));
    assert_eq!(begun.status()[2], "Running");
    until(|| !begun.ask("acme challenge_ready CERT domain a.test").contains("Couldn't find"));
    begun.log.wait("The certificate was renewed");
    assert_eq!(begun.visit(&pebble, "any.a.test"), "|200|2|1|");
    assert!(begun.ask("show ssl cert CERT").contains("Algorithm: RSA2048"));
}

/// The test stands between the authority and the program: it looks at the handshake before it passes the
/// authority's bytes.
#[test]
fn handshakes_prove_names_too() {
    let (dns, (http, _), (between, validated), tls) = (Dns::new(), listener(), listener(), listener());
    dns.addresses("a.test", &["127.0.0.1"]);
    let ports = format!(r#""httpPort": 1, "tlsPort": {}"#, validated.port());
    let Some(pebble) = Pebble::start_with(&dns, &ports, 0) else { return };
    let (section, front) = ("challenge tls-alpn-01", tls.1);
    let begun = Begun::start_at(tls, &pebble.trust(), &pebble.directory(), section, "a.test", &http, false);
    let connect = front.to_string();
    let shake = |name: &str, protocols: &str| {
        let words = ["s_client", "-connect", &connect, "-servername", name, "-alpn", protocols];
        let output = openssl(&words, "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    };
    let (first, _) = between.accept().unwrap();
    // Each connection may be on another lane.
    for _ in 0..8 {
        let shown = shake("a.test", "acme-tls/1");
        assert!(shown.contains("ALPN protocol: acme-tls/1") && !shown.contains("HTTP/1.1 200"), "{shown}");
        let pem = shown.find("-----BEGIN").map(|at| &shown[at..]).unwrap();
        let read = text(&openssl(&["x509", "-noout", "-text"], pem).stdout);
        assert!(read.contains("1.3.6.1.5.5.7.1.31: critical") && read.contains("DNS:a.test"), "{read}");
    }
    assert!(!shake("b.test", "acme-tls/1").contains("ALPN protocol: acme-tls/1"));
    let usual = shake("a.test", "http/1.1,acme-tls/1");
    assert!(usual.contains("ALPN protocol: http/1.1"), "{usual}");

    let pass = move |mut of_authority: TcpStream| {
        let mut of_program = TcpStream::connect(front).unwrap();
        let (mut from, mut to) = (of_authority.try_clone().unwrap(), of_program.try_clone().unwrap());
        let up = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut of_program, &mut of_authority);
        let _ = of_authority.shutdown(Shutdown::Both);
        let _ = up.join().unwrap();
    };
    origin_of(between, pass); // the authority connects several times
    pass(first);
    begun.log.wait("The certificate was renewed");
    assert_eq!(begun.visit(&pebble, "a.test"), "|200|2|1|");
    // The proof is removed.
    until(|| !shake("a.test", "acme-tls/1").contains("ALPN protocol: acme-tls/1"));
}

#[test]
fn an_account_is_bound_to_the_one_that_the_authority_knows() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let (dns, (http, pages)) = (Dns::new(), listener());
    dns.addresses("a.test", &["127.0.0.1"]);
    let settings = format!(
        r#""httpPort": {}, "tlsPort": 1, "externalAccountBindingRequired": true,
            "externalAccountMACKeys": {{"kid-1": "{KEY}"}}"#,
        pages.port()
    );
    let Some(pebble) = Pebble::start_with(&dns, &settings, 0) else { return };
    let folder = Folder::new();
    let file = folder.file("mac.key", &format!("{KEY}\n"));
    let start = |binding: &str| {
        let section = format!("map virt@acme\n {binding}");
        Begun::start(&pebble.trust(), &pebble.directory(), &section, "a.test", &http, false)
    };
    for (binding, sentence) in [
        ("", "the account is answered with the status 403 (externalAccountRequired: "),
        (
            "eab-key-id kid-1\n eab-mac-key AAAA",
            "the account is answered with the status 403 (unauthorized: ",
        ),
        (
            &format!("eab-key-id kid-2\n eab-mac-key {KEY}"),
            "the account is answered with the status 403 (unauthorized: ",
        ),
    ] {
        let why = start(binding).failure();
        assert!(why.starts_with(sentence) && !why.contains(KEY), "{why}");
    }
    for key in [KEY, file.to_str().unwrap()] {
        let begun = start(&format!("eab-key-id kid-1\n eab-mac-key {key}"));
        begun.log.wait("The certificate was renewed");
        assert_eq!(begun.visit(&pebble, "a.test"), "|200|2|1|");
    }
}

#[test]
fn an_authority_that_stalls_is_given_up() {
    let (http, _) = listener();
    let (silent, address) = listener();
    let directory = format!("https://{address}/dir");
    let begun = Begun::start("verify none", &directory, "map virt@acme", "a.test", &http, false);
    let (_first, _) = silent.accept().unwrap();
    until(|| begun.status()[2] == "Running");
    let requested = begun.ask("acme renew CERT");
    assert!(requested.contains("Task already exists for '"), "{requested}");
    assert_eq!(begun.failure(), "127.0.0.1 is not reached: it gave no answer within 15 seconds.");
    until(|| begun.status()[2] == "Scheduled");
    // An order that a reload interrupts is not a failure, and no other one begins at once.
    begun.ask("acme renew CERT");
    let (_second, _) = silent.accept().unwrap();
    assert!(begun.ask("reload").contains("serves"));
    begun.log.wait("The order was interrupted by a reload");
    until(|| begun.status()[2] == "Scheduled");
    // A command requested the order, so the next one need not wait as long as after a failure.
    let left = begun.status()[6].clone();
    assert!(left.starts_with("0d 0h00m") || left.starts_with("0d 0h01m"), "{left}");
    assert!(begun.ask("acme status").contains("1 failed, the last: 127.0.0.1 is not reached"));
}

/// A head or body of an authority, with a TLS record for each byte. With a cluster for each byte it would
/// take 2.4 MB.
#[test]
fn an_answer_that_drips_takes_no_more_than_at_once() {
    const LONG: usize = 1_200; // few enough for the time limit of an answer, 15 seconds, on a busy machine
    let memory = |begin: &str, step: usize| {
        let ((http, _), (authority, address)) = (listener(), listener());
        let directory = format!("https://{address}/dir");
        let begun = Begun::start("verify none", &directory, "map virt@acme", "a.test", &http, false);
        let (stream, _) = authority.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let tls = rustls::ServerConnection::new(crate::drips::server_of_tls()).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, stream);
        crate::drips::asks_by_a_head(&mut stream);
        stream.write_all(begin.as_bytes()).unwrap();
        for round in 0..LONG / step {
            stream.write_all(&vec![b'x'; step]).unwrap();
            if round.is_multiple_of(crate::drips::ROUNDS_IN_HASTE) {
                crate::drips::all_is_read(address.port(), true);
            }
        }
        crate::drips::all_is_read(address.port(), true);
        assert_eq!(begun.status()[2], "Running", "the program waits for more");
        begun.program.memory()
    };
    let body = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n";
    for begin in ["HTTP/1.1 200 OK\r\nX: ", body] {
        let (at_once, drops) = (memory(begin, LONG), memory(begin, 1));
        let most = at_once + crate::drips::MORE;
        assert!(drops <= most, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

#[test]
fn an_authority_that_cannot_be_verified_is_sent_nothing() {
    let (dns, (http, pages)) = (Dns::new(), listener());
    let Some(pebble) = Pebble::start(&dns, pages, 0) else { return };
    let other = Authority::new();
    let trust = format!("ca-file {}", other.file().display());
    let begun = Begun::start(&trust, &pebble.directory(), "map virt@acme", "a.test", &http, false);
    let why = begun.failure();
    let expected = format!("{} is not reached: SSL handshake failure (", pebble.address.ip());
    assert!(why.starts_with(&expected), "{why}");
}

fn sections(folder: &Folder, section: &str, load: &str) -> String {
    let file = own_certificate(folder);
    format!(
        "global\n default-path config\n httpclient.ssl.ca-file {0}\nacme x\n{section}\ncrt-store\n \
         load crt {0} {load}\n{DEFAULTS} mode http\nfrontend f\n bind unix@{0}.front ssl crt {0}\n {RULE}\n",
        file.display()
    )
}

#[test]
fn faults_are_reported_by_position() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("bad.key"), "x").unwrap();
    let good = " directory https://a.test/d\n map virt@acme";
    let load = "acme x domains a.test";
    let bad_key = format!("{good}\n account-key {}", folder.0.join("bad.key").display());
    let no_file = format!("{good}\n eab-key-id a\n eab-mac-key {}", folder.0.join("none.key").display());
    let cases = [
        ("", load, "acme section 'x' expects 'directory <url>', found none"),
        (" directory http://a.test/d", load, "expects a URL of https://"),
        (" directory https://a.test/d", load, "expects 'map <map>' with the challenge http-01"),
        (" directory https://a.test/d\n map virt@b", load, "no rule reads the map 'virt@b'"),
        (&format!("{good}\n contact a"), load, "'contact' expects <name>@<host>, found 'a'"),
        (&format!("{good}\n challenge tls-sni-01"), load, "tls-sni-01"),
        (
            &format!("{good}\n challenge tls-alpn-01"),
            "acme x domains *.a.test",
            "'*.a.test' expects 'challenge dns-01', since tls-alpn-01 cannot validate wildcard names",
        ),
        (&format!("{good}\n curves P-521"), load, "P-521"),
        (&format!("{good}\n bits 1024"), load, "1024"),
        (&format!("{good}\n reuse-key on"), load, "each certificate has a key of its own"),
        (&format!("{good}\n provider-name p"), load, "no program is run; the log says what record to set"),
        (&format!("{good}\n eab-key-id a"), load, "'eab-key-id' expects 'eab-mac-key <file|key>' beside it"),
        (&format!("{good}\n eab-mac-key a"), load, "'eab-mac-key' expects 'eab-key-id <id>' beside it"),
        (&format!("{good}\n eab-mac-alg HS1"), load, "HS1"),
        (
            &format!("{good}\n eab-key-id a\n eab-mac-key b+c"),
            load,
            "'eab-mac-key' : the key cannot be used: it is not base64url",
        ),
        (&no_file, load, "none.key' cannot be used: there is no such file"),
        (&bad_key, load, "bad.key' cannot be used: it has neither an RSA key"),
        (good, "acme y domains a.test", "'y'"),
        (good, "acme x", "'acme' expects 'domains <name>[,...]' in the same line"),
        (good, "acme x domains", "'load' : 'domains' expects a value"),
        (
            good,
            "acme x domains *.a.test",
            "'*.a.test' expects 'challenge dns-01', since http-01 cannot validate wildcard names",
        ),
        (good, "acme x domains a..test", "'domains' expects host names"),
        (good, "acme x domains 127.0.0.1", "'domains' expects host names"),
    ];
    for (section, load, sentence) in cases {
        let output = check(&sections(&folder, section, load), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(sentence), "{section} {load}: {said}");
        assert_eq!(said.matches(" : parsing [").count(), 1, "{section} {load}: {said}");
        assert!(said.contains("test.cfg:"), "{said}");
    }
    let secret = |lines: &str| {
        let said = text(&check(&sections(&folder, &format!("{good}\n{lines}"), load), &[]).stderr);
        assert!(said.contains(" : parsing [") && !said.contains("c2VjcmV0"), "{said}");
    };
    secret(" eab-key-id a\n eab-mac-key c2VjcmV0+");
    secret(" eab-mac-key c2VjcmV0");
    secret(" eab-key-id a\n eab-mac-key c2VjcmV0 b");
}

#[test]
fn a_check_makes_no_key_and_wide_rights_are_reported() {
    let folder = Folder::new();
    let key = folder.0.join("account.key");
    let section = format!(" directory https://a.test/d\n map virt@acme\n account-key {}", key.display());
    let long = ["a"; 90].join("."); // messages would truncate it
    let config = sections(&folder, &section, &format!("acme x domains a.test,{long}"));
    let output = check(&config, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!key.exists());
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = text(&check(&config, &[]).stderr);
    assert!(said.contains("others may read") && said.contains("(mode 640)"), "{said}");
}

#[test]
fn commands_answer_as_haproxy_does() {
    let folder = Folder::new();
    let file = folder.file("a.pem", &std::fs::read_to_string(own_certificate(&folder)).unwrap());
    let config = |log: &Syslog, control: &Path| {
        format!(
            "{DEFAULTS} mode http\nglobal\n expose-experimental-directives\n acme.scheduler off\n \
             stats socket {0} level admin\n log {1} local0\n httpclient.ssl.ca-file {2}\nacme x\n \
             directory https://127.0.0.1:1/d\n map virt@acme\n account-key {0}.key\ncrt-store s\n \
             load crt {2} alias a acme x domains a.test\nfrontend f\n bind unix@{0}.front ssl crt @s/a\n \
             {RULE}\n",
            control.display(),
            log.address(),
            file.display(),
        )
    };
    let play = |played: Played| {
        let columns = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        let mut answers: Vec<_> =
            ["acme challenge_ready", "acme challenge_ready @s/a domain a.test", "acme status"]
                .map(|line| played.ask(line).lines().map(columns).collect::<Vec<_>>())
                .into();
        // The remaining time still changes meanwhile.
        let lasts = answers[2][1].remove(4);
        assert!(lasts.ends_with('s') && lasts.contains("d "), "{lasts}");
        answers
    };
    let (own, other) = both(config, play);
    assert_eq!(own[2][1][2], "Stopped");
    if let Some(other) = other {
        assert_eq!(own, other);
    }
}
