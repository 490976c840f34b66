//! Errors in certificate chains of clients, and the signature algorithms in use, compared with HAProxy;
//! OpenSSL is the client.

use crate::common;
use crate::tls::{Authority, Server, openssl, text};

use common::watch::{Played, both};
use common::{DEFAULTS, Folder, Manylane, check, fd, listener};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, PKCS_RSA_SHA256, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use std::path::{Path, PathBuf};

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Client certificates that each have an error, in files.
struct Chains {
    folder: Folder,
    root: Issuer,
    /// Name, file with the chain, file with the key.
    all: Vec<(&'static str, PathBuf, PathBuf)>,
}

fn params(name: &str, ca: bool) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    params
}

fn numbered(mut params: CertificateParams, serial: u64) -> CertificateParams {
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

impl Chains {
    fn new() -> Self {
        let folder = Folder::new();
        let root = CertifiedIssuer::self_signed(params("root", true), key()).unwrap();
        folder.file("root.pem", &root.pem());
        Self { folder, root, all: Vec::new() }
    }

    fn issuer(&self, params: CertificateParams, by: Option<&Issuer>) -> Issuer {
        CertifiedIssuer::signed_by(params, key(), by.unwrap_or(&self.root)).unwrap()
    }

    /// A certificate signed by `by`, or by the root without `by`; clients send it with `chain`.
    fn leaf(
        &mut self,
        name: &'static str,
        params: CertificateParams,
        by: Option<&Issuer>,
        chain: &[&Issuer],
    ) {
        let key = key();
        let own = params.signed_by(&key, by.unwrap_or(&self.root)).unwrap().pem();
        self.add(name, own, &key, chain);
    }

    fn add(&mut self, name: &'static str, own: String, key: &KeyPair, chain: &[&Issuer]) {
        let chain: String = chain.iter().map(|issuer| issuer.pem()).collect();
        let chain = self.folder.file(&format!("{name}.pem"), &(own + &chain));
        let key = self.folder.file(&format!("{name}.key"), &key.serialize_pem());
        self.all.push((name, chain, key));
    }

    fn filled() -> Self {
        let mut chains = Self::new();
        let inter = chains.issuer(numbered(params("inter", true), 100), None);
        let old = chains.issuer(expired(numbered(params("old", true), 101)), None);
        let plain = chains.issuer(numbered(params("plain", false), 102), None);
        let other = CertifiedIssuer::self_signed(params("other root", true), key()).unwrap();
        let mut short = params("short", true);
        short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let short = chains.issuer(numbered(short, 103), None);
        let below = chains.issuer(numbered(params("below", true), 104), Some(&short));
        let mut for_servers = params("for servers", true);
        for_servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let for_servers = chains.issuer(numbered(for_servers, 105), None);
        let revoked = chains.issuer(numbered(params("revoked", true), 66), None);

        chains.leaf("good", numbered(params("a", false), 1), Some(&inter), &[&inter]);
        chains.leaf("direct", numbered(params("a", false), 2), None, &[]);
        chains.leaf("expired", expired(numbered(params("a", false), 3)), Some(&inter), &[&inter]);
        chains.leaf("both-expired", expired(numbered(params("a", false), 4)), Some(&old), &[&old]);
        chains.leaf("issuer-expired", numbered(params("a", false), 5), Some(&old), &[&old]);
        chains.leaf("no-authority", numbered(params("a", false), 6), Some(&plain), &[&plain]);
        chains.leaf("too-deep", numbered(params("a", false), 7), Some(&below), &[&below, &short]);
        chains.leaf("no-issuer", numbered(params("a", false), 8), Some(&inter), &[]);
        chains.leaf("no-issuer-expired", expired(numbered(params("a", false), 9)), Some(&inter), &[]);
        chains.leaf("other-root", numbered(params("a", false), 10), Some(&other), &[&other]);
        chains.leaf("other-root-expired", expired(numbered(params("a", false), 11)), Some(&other), &[&other]);
        let mut server = numbered(params("a", false), 12);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        chains.leaf("of-a-server", server, Some(&inter), &[&inter]);
        chains.leaf(
            "issuer-for-servers",
            numbered(params("a", false), 13),
            Some(&for_servers),
            &[&for_servers],
        );
        chains.leaf("revoked", numbered(params("a", false), 67), None, &[]);
        chains.leaf("revoked-expired", expired(numbered(params("a", false), 68)), None, &[]);
        chains.leaf("issuer-revoked", numbered(params("a", false), 14), Some(&revoked), &[&revoked]);
        let own = key();
        let alone = params("alone", false).self_signed(&own).unwrap().pem();
        chains.add("self-signed", alone, &own, &[]);
        let own = key();
        let alone = expired(params("alone", false)).self_signed(&own).unwrap().pem();
        chains.add("self-signed-expired", alone, &own, &[]);

        let gone = |serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: [66_u64, 67, 68].map(gone).to_vec(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        chains.folder.file("crl.pem", &list.signed_by(&chains.root).unwrap().pem().unwrap());
        chains
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    /// The program's response to a client that presents this chain.
    fn play(&self, name: &str, front: &str, more: &[&str]) -> String {
        let (_, chain, key) = self.all.iter().find(|(own, ..)| *own == name).unwrap();
        let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
        let common =
            ["s_client", "-unix", front, "-quiet", "-cert", chain, "-cert_chain", chain, "-key", key];
        let output = openssl(&[&common[..], more].concat(), "GET / HTTP/1.0\r\n\r\n");
        let said = text(&output.stdout);
        said.lines().find(|line| line.starts_with("told ")).unwrap_or("refused").to_owned()
    }
}

const REPLY: &str = " http-request return status 200 content-type text/plain lf-string \"told %[ssl_c_used] \
                    %[ssl_c_verify] %[ssl_c_err] %[ssl_c_ca_err] %[ssl_c_ca_err_depth]\\n\"\n";

#[test]
fn errors_of_chains_are_ignored_and_reported_as_in_haproxy() {
    let chains = Chains::filled();
    let certificate = Authority::new();
    let certificate = (certificate.bundle("a.pem", &["a.example"]), certificate);
    let (root, list) = (chains.file("root.pem"), chains.file("crl.pem"));
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let (own, root, list) = (certificate.0.display(), root.display(), list.display());
        let bind = format!("ssl crt {own} verify optional ca-file {root}");
        format!(
            "global\n stats socket {shown} level admin\n log {} local0\n{DEFAULTS} mode http\n log global\n \
             error-log-format \"failed %[fc_err] %[fc_err_name] %[ssl_c_verify] %[ssl_c_err] %[ssl_c_ca_err] \
             %[ssl_c_ca_err_depth]\"\n\
             frontend all\n bind unix@{shown}.all {bind} ca-ignore-err all crt-ignore-err all\n{REPLY}\
             frontend lists\n bind unix@{shown}.lists {bind} crl-file {list} ca-ignore-err all \
             crt-ignore-err all\n{REPLY}\
             frontend some\n bind unix@{shown}.some {bind} crt-ignore-err \
             X509_V_ERR_CERT_HAS_EXPIRED,18 ca-ignore-err 19\n{REPLY}",
            log.address(),
        )
    };
    let play = |played: Played| {
        let front = |which: &str| format!("{}.{which}", played.socket.display());
        common::watch::until(|| std::os::unix::net::UnixStream::connect(front("some")).is_ok());
        let mut said = Vec::new();
        for (name, ..) in &chains.all {
            for which in ["all", "lists"] {
                said.push(format!("{name} {which} {}", chains.play(name, &front(which), &[])));
            }
            let mut line = chains.play(name, &front("some"), &[]);
            if line == "refused" {
                line = played.log.wait("failed 3").split_once("failed ").unwrap().1.to_owned();
            }
            said.push(format!("{name} some {line}"));
        }
        said
    };
    let (ours, theirs) = both(config, play);
    for expected in [
        "good all told 1 0 0 0 0",
        "expired all told 1 10 10 0 0",
        "both-expired all told 1 10 10 10 1",
        "no-issuer all told 1 21 20 0 0",
        "other-root all told 1 19 0 19 1",
        "too-deep all told 1 25 0 25 2",
        "revoked lists told 1 23 23 0 0",
        "revoked-expired lists told 1 10 23 0 0",
        "issuer-revoked some told 1 0 0 0 0",
        "expired some told 1 10 10 0 0",
        "both-expired some 30 SSL_CA_FAIL - 0 10 1",
        "no-issuer some 31 SSL_CRT_FAIL - 20 0 0",
        "self-signed some told 1 18 18 0 0",
        "other-root-expired some told 1 10 10 19 1",
    ] {
        assert!(ours.iter().any(|line| line == expected), "{expected} of {ours:#?}");
    }
    let Some(theirs) = theirs else { return };
    let differs = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs);
    let differs: Vec<_> = differs.collect();
    assert!(differs.is_empty(), "{differs:#?}");
}

/// A session does not keep which errors were ignored, so resuming it must not look like success.
#[test]
fn a_client_whose_errors_were_ignored_is_verified_each_time() {
    let chains = Chains::filled();
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let front = chains.file("front").display().to_string();
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind unix@{front} ssl crt {} verify optional ca-file {} \
         crt-ignore-err all\n{REPLY}",
        certificate.display(),
        chains.file("root.pem").display()
    );
    let _program = Manylane::start_ready(&config);
    let session = chains.file("session").display().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let first = chains.play("expired", &front, &[version, "-sess_out", &session]);
        assert_eq!(first, "told 1 10 10 0 0");
        let again = match Path::new(&session).exists() {
            true => chains.play("expired", &front, &[version, "-sess_in", &session]),
            false => first, // the server sent no session
        };
        assert_eq!(again, "told 1 10 10 0 0");
    }
}

/// The program trusts 'ca-verify-file' as it trusts 'ca-file', and sends clients the names of the latter
/// only.
#[test]
fn clients_are_not_informed_of_authorities_that_only_verify() {
    let (announced, silent) = (Authority::new(), Authority::new());
    let certificate = announced.bundle("a.pem", &["a.example"]);
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let (ca, verify) = (announced.file(), silent.file());
        format!(
            "global\n stats socket {shown} level admin\n log {} local0\n{DEFAULTS} mode http\n\
             frontend f\n bind unix@{shown}.f ssl crt {own} verify required ca-file {} ca-verify-file {}\n\
             {REPLY}\
             frontend g\n bind unix@{shown}.g ssl crt {own} verify required ca-verify-file {}\n{REPLY}",
            log.address(),
            ca.display(),
            verify.display(),
            verify.display(),
            own = certificate.display(),
        )
    };
    let play = |played: Played| {
        let mut said = Vec::new();
        for which in ["f", "g"] {
            let front = format!("{}.{which}", played.socket.display());
            common::watch::until(|| std::os::unix::net::UnixStream::connect(&front).is_ok());
            for authority in [&announced, &silent] {
                let file = authority.bundle("client.pem", &["client"]);
                let file = file.to_str().unwrap();
                let arguments = ["s_client", "-unix", &front, "-cert", file, "-key", file, "-ign_eof"];
                let all = text(&openssl(&arguments, "GET / HTTP/1.0\r\n\r\n").stdout);
                let names = all.lines().filter(|line| line.starts_with("CN = authority ")).count();
                let line = all.lines().find(|line| line.starts_with("told "));
                said.push(format!("{which} {names} {}", line.unwrap_or("refused")));
            }
        }
        said
    };
    let (ours, theirs) = both(config, play);
    assert_eq!(
        ours,
        ["f 1 told 1 0 0 0 0", "f 1 told 1 0 0 0 0", "g 0 refused", "g 0 told 1 0 0 0 0"].map(str::to_owned)
    );
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}

/// The algorithms that signed a handshake: the server's, and the client's.
fn signed(output: &str) -> String {
    let field =
        |name: &str| output.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("-").to_owned();
    let requested = field("Requested Signature Algorithms: ");
    format!("{} {} {requested}", field("Peer signing digest: "), field("Peer signature type: "))
}

#[test]
fn lists_of_signature_algorithms_hold_for_both_sides() {
    let authority = Authority::new();
    let rsa = authority.bundle_of("rsa.pem", &["a.example"], &PKCS_RSA_SHA256);
    let list = authority
        .folder
        .file("list", &format!("{} [sigalgs rsa_pss_rsae_sha384] a.example\n", rsa.display()));
    let ca = authority.file();
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let bind = format!("ssl crt {}", rsa.display());
        let verify = format!("verify optional ca-file {}", ca.display());
        format!(
            "global\n stats socket {shown} level admin\n log {} local0\n \
             ssl-default-bind-sigalgs RSA-PSS+SHA512:RSA+SHA512\n{DEFAULTS} mode http\n\
             frontend a\n bind unix@{shown}.a {bind}\n{REPLY}\
             frontend b\n bind unix@{shown}.b {bind} sigalgs RSA-PSS+SHA256:RSA+SHA256 {verify} \
             client-sigalgs ECDSA+SHA384:rsa_pss_rsae_sha256\n{REPLY}\
             frontend c\n bind unix@{shown}.c ssl crt-list {}\n{REPLY}",
            log.address(),
            list.display(),
        )
    };
    let play = |played: Played| {
        let mut said = Vec::new();
        for which in ["a", "b", "c"] {
            let front = format!("{}.{which}", played.socket.display());
            common::watch::until(|| std::os::unix::net::UnixStream::connect(&front).is_ok());
            for version in ["-tls1_2", "-tls1_3"] {
                let arguments = ["s_client", "-unix", &front, version, "-ign_eof"];
                let output = text(&openssl(&arguments, "GET / HTTP/1.0\r\n\r\n").stdout);
                said.push(format!("{which} {version} {}", signed(&output)));
            }
            // The program refuses a client that supports no algorithm of the list.
            let arguments =
                ["s_client", "-unix", &front, "-tls1_3", "-sigalgs", "ECDSA+SHA256", "-ign_eof", "-quiet"];
            let refused = openssl(&arguments, "GET / HTTP/1.0\r\n\r\n");
            said.push(format!("{which} {}", refused.status.success()));
        }
        said
    };
    let (ours, theirs) = both(config, play);
    assert!(ours[0].starts_with("a -tls1_2 SHA512 RSA-PSS "), "{ours:?}");
    assert!(ours[1].starts_with("a -tls1_3 SHA512 RSA-PSS "), "{ours:?}");
    assert!(ours[4].ends_with(" ECDSA+SHA384:RSA-PSS+SHA256"), "{ours:?}");
    assert!(ours[7].starts_with("c -tls1_3 SHA384 RSA-PSS "), "{ours:?}");
    assert_eq!([&ours[2], &ours[5], &ours[8]], ["a false", "b false", "c false"]);
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}

/// The program offers servers the first list, and signs with its own certificate by the other one.
#[test]
fn servers_are_offered_the_signature_algorithms_of_their_lines() {
    let authority = Authority::new();
    let own = authority.bundle_of("rsa.pem", &["a.example"], &PKCS_RSA_SHA256);
    let client = authority.bundle_of("client.pem", &["client"], &PKCS_RSA_SHA256);
    let ca = authority.file();
    let server = Server::start(&own, &["-Verify", "1", "-CAfile", ca.to_str().unwrap()]);
    let (socket, address) = listener();
    let config = format!(
        "global\n ssl-default-server-sigalgs RSA-PSS+SHA384\n{DEFAULTS} mode http\nfrontend f\n bind {}\n \
         default_backend b\nbackend b\n server s {} ssl verify none crt {} client-sigalgs RSA-PSS+SHA512\n",
        fd(&socket),
        server.1,
        client.display()
    );
    let _program = Manylane::start(&config);
    let mut stream = common::connect(address);
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n").unwrap();
    // The page of OpenSSL's server lists the algorithms that the client offers.
    let page = common::read_all(&mut stream);
    assert!(page.contains("Signature Algorithms: RSA-PSS+SHA384\n"), "{page}");
    assert!(page.contains("Peer signing digest: SHA512") || page.contains("Verify return code: 0"), "{page}");
}

#[test]
fn lists_that_leave_nothing_are_refused_by_name() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let said = |options: &str| {
        let config = format!(
            "{DEFAULTS} mode http\nfrontend f\n bind 127.0.0.1:1 ssl crt {} ca-file {} {options}\n",
            certificate.display(),
            authority.file().display()
        );
        let output = check(&config, &[]);
        (output.status.success(), text(&output.stderr))
    };
    let (good, reported) = said("sigalgs ed448:ecdsa_secp256r1_sha256");
    assert!(good && reported.contains("rustls does not support: ed448"), "{reported}");
    for (options, why) in [
        ("sigalgs ed448", "'sigalgs' : no signature algorithm of 'ed448' is left"),
        ("client-sigalgs RSA+SHA1", "'client-sigalgs' : no signature algorithm of 'RSA+SHA1' is left"),
        ("crt-ignore-err 10,x", "'crt-ignore-err' : 'x' is no error of a certificate"),
        ("ca-ignore-err 200", "'ca-ignore-err' : '200' is no error of a certificate"),
        ("verify required ca-verify-file /none.pem", "'ca-verify-file' : cannot read '/none.pem'"),
    ] {
        let (good, reported) = said(options);
        assert!(!good && reported.contains(why), "{options}: {reported}");
    }
}
