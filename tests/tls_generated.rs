//! `generate-certificates`: certificates for names that no file has.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::watch::{Played, Syslog, both};
use common::{DEFAULTS, Folder, Manylane, check, fd, listener};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// An authority's certificate with its key, in one file.
pub(crate) fn signing(authority: &Authority, key: &str) -> PathBuf {
    authority.folder.file("sign.pem", &format!("{}{key}", authority.own.pem()))
}

/// What `openssl s_client` and `openssl x509` say of the first certificate.
#[derive(Debug, PartialEq)]
struct Shown {
    subject: String,
    issuer: String,
    names: String,
    verified: bool,
    /// Number of certificates of the chain.
    chain: usize,
}

fn ask(connect: &[&str], name: Option<&str>, ca: &Path, more: &[&str]) -> Option<Shown> {
    let named =
        name.map_or(vec!["-noservername"], |name| vec!["-servername", name, "-verify_hostname", name]);
    let ca = ca.to_str().unwrap();
    let words = [&["s_client", "-showcerts", "-CAfile", ca], connect, &named, more].concat();
    let said = text(&openssl(&words, "").stdout);
    let pem = &said[said.find("-----BEGIN CERTIFICATE")?..];
    let read = |what: &[&str]| {
        let words = [&["x509", "-noout", "-nameopt", "RFC2253"], what].concat();
        text(&openssl(&words, pem).stdout).trim().to_owned()
    };
    Some(Shown {
        subject: read(&["-subject"]),
        issuer: read(&["-issuer"]),
        names: read(&["-ext", "subjectAltName"]),
        verified: said.contains("Verify return code: 0 (ok)"),
        chain: said.matches("-----BEGIN CERTIFICATE").count(),
    })
}

/// The listeners `front` and `strict` (with `strict-sni`) make the same of names as HAProxy's.
#[test]
fn unknown_names_get_certificates_as_in_haproxy() {
    let authority = Authority::new();
    let own = authority.bundle("a.pem", &["a.test", "*.w.test"]);
    let sign = signing(&authority, &authority.own.key().serialize_pem());
    let config = |_: &Syslog, control: &Path| {
        let bind = |name: &str, options: &str| {
            format!(
                " bind unix@{}.{name} ssl crt {} generate-certificates ca-sign-file {} {options}\n",
                control.display(),
                own.display(),
                sign.display()
            )
        };
        format!(
            "global\n stats socket {}\n{DEFAULTS} mode http\nfrontend f\n{}{} http-request return status \
             200\n",
            control.display(),
            bind("front", ""),
            bind("strict", "strict-sni"),
        )
    };
    let long = format!("{}.{}.test", "a".repeat(60), "b".repeat(60));
    let play = |played: Played| {
        let mut all = Vec::new();
        for listener in ["front", "strict"] {
            let path = format!("{}.{listener}", played.socket.display());
            for name in
                [Some("a.test"), Some("x.w.test"), Some("new.test"), Some("NEW.test"), Some(&*long), None]
            {
                all.push((listener, name, ask(&["-unix", &path], name, &authority.file(), &[])));
            }
        }
        all
    };
    let (ours, theirs) = both(config, play);
    for (listener, name, shown) in &ours {
        match name {
            None => assert_eq!(shown.is_some(), *listener == "front"),
            Some(_) => assert!(shown.as_ref().unwrap().verified, "{listener} {name:?}: {shown:?}"),
        }
    }
    if let Some(mut theirs) = theirs {
        // With the long name HAProxy's subject is that of the authority.
        for (ours, theirs) in ours.iter().zip(&mut theirs).filter(|(ours, _)| ours.1 == Some(&long)) {
            let (ours, theirs) = (ours.2.as_ref().unwrap(), theirs.2.as_mut().unwrap());
            assert_eq!(
                (&*ours.subject, &*theirs.subject),
                ("subject=", &*theirs.issuer.replace("issuer", "subject"))
            );
            theirs.subject.clone_from(&ours.subject);
            theirs.names = theirs.names.replace("Name: \n", "Name: critical\n");
        }
        assert_eq!(ours, theirs);
    }
}

#[test]
fn each_kind_of_key_signs_and_protocols_are_agreed_on() {
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    let keys = kinds.map(|kind| rcgen::KeyPair::generate_for(kind).unwrap());
    let rsa = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    for key in keys.into_iter().chain([rsa]) {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let folder = Folder::new();
        let ca = params.self_signed(&key).unwrap().pem();
        let (sign, ca) =
            (folder.file("sign.pem", &format!("{ca}{}", key.serialize_pem())), folder.file("ca.pem", &ca));
        let authority = Authority::new();
        let (ecdsa, rsa) = (
            authority.bundle("a.pem", &["a.test"]),
            authority.bundle_of("r.pem", &["a.test"], &rcgen::PKCS_RSA_SHA256),
        );
        let (socket, address) = listener();
        let config = format!(
            "global\n tune.ssl.ssl-ctx-cache-size 2\n{DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {} \
             crt {} generate-certificates ca-sign-file {}\n http-request return status 200\n",
            fd(&socket),
            ecdsa.display(),
            rsa.display(),
            sign.display()
        );
        let _program = Manylane::start_ready(&config);
        let connect = ["-connect", &address.to_string()];
        for number in 0..5 {
            let name = format!("{number}.test");
            assert!(ask(&connect, Some(&name), &ca, &[]).unwrap().verified);
        }
        // A client that has RSA alone gets a certificate, too.
        let old = ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"];
        assert!(ask(&connect, Some("old.test"), &ca, &old).unwrap().verified);
        let words = ["s_client", "-connect", connect[1], "-servername", "h2.test", "-alpn", "h2"];
        assert!(text(&openssl(&words, "").stdout).contains("ALPN protocol: h2"));
    }
}

/// The serial number of the certificate for a name.
pub(crate) fn serial(address: SocketAddr, name: &str) -> String {
    let said =
        text(&openssl(&["s_client", "-connect", &address.to_string(), "-servername", name], "").stdout);
    text(&openssl(&["x509", "-noout", "-serial"], &said).stdout)
}

/// The same name gets the same certificate as long as it is kept, on all lanes.
#[test]
fn certificates_are_kept_as_long_as_there_is_room() {
    let authority = Authority::new();
    let own = authority.bundle("a.pem", &["a.test"]);
    let sign = signing(&authority, &authority.own.key().serialize_pem());
    let serials = |kept: usize, names: &[&str]| -> Vec<String> {
        let (socket, address) = listener();
        let config = format!(
            "global\n tune.ssl.ssl-ctx-cache-size {kept}\n{DEFAULTS} mode http\nfrontend f\n bind {} ssl \
             crt {} generate-certificates ca-sign-file {}\n",
            fd(&socket),
            own.display(),
            sign.display()
        );
        let _program = Manylane::start_ready(&config);
        names.iter().map(|name| serial(address, name)).collect()
    };
    let of_four = serials(4, &["a", "a", "a", "b", "c", "a", "d", "e", "f", "g", "a"]);
    assert_eq!(of_four[0], of_four[1]);
    assert_eq!(of_four[0], of_four[2]);
    assert_eq!(of_four[0], of_four[5], "what is used stays");
    assert_ne!(of_four[0], of_four[10], "what is not is forgotten");
    let none = serials(0, &["a", "a"]);
    assert_ne!(none[0], none[1]);
}

#[test]
fn faults_are_reported_by_position() {
    let authority = Authority::new();
    let own = authority.bundle("a.pem", &["a.test"]);
    let file = |name: &str, text: &str| authority.folder.file(name, text).display().to_string();
    let (key, ca) = (authority.own.key().serialize_pem(), authority.own.pem());
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let cases = [
        (String::new(), true, "'generate-certificates' expects 'ca-sign-file <file>' beside it"),
        ("ca-sign-file /none.pem".into(), true, "'ca-sign-file' : cannot read '/none.pem'"),
        (format!("ca-sign-file {}", file("1", &ca)), true, "cannot be used: it has no private key"),
        (format!("ca-sign-file {}", file("2", &key)), true, "has no certificate"),
        (
            format!("ca-sign-file {}", file("3", &format!("{ca}{other}"))),
            true,
            "is not that of its certificate",
        ),
        (
            format!("ca-sign-file {}", file("4", &format!("{ca}{encrypted}"))),
            true,
            "its key has a passphrase",
        ),
        ("ca-sign-pass x".into(), true, "no key with a passphrase is read"),
        (
            format!("ca-sign-file {}", own.display()),
            false,
            "is no authority: clients will refuse what it signs",
        ),
    ];
    for (options, refused, sentence) in cases {
        let config = format!(
            "{DEFAULTS} mode http\nfrontend f\n bind unix@{0}.front ssl crt {0} generate-certificates \
             {options}\n",
            own.display()
        );
        let output = check(&config, &[]);
        let said = text(&output.stderr);
        assert!(output.status.success() != refused && said.contains(sentence), "{options}: {said}");
        assert!(said.contains("test.cfg:"), "{said}");
    }
}
