//! OCSP stapling; OpenSSL creates and checks the responses.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::watch::{Haproxy, Played, Syslog, ask, both, until};
use common::{DEFAULTS, Manylane, check, fd, listener};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SerialNumber};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A certificate and its issuer, and the request to a responder about it.
struct Leaf {
    pem: PathBuf,
    serial: &'static str,
}

/// Creates files.
struct Maker<'a>(&'a Authority);

impl Maker<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.folder.0.join(name)
    }

    /// A certificate with this serial number of one byte; `whole` adds its issuer.
    fn leaf(&self, name: &str, serial: &'static str, whole: bool, usage: &[ExtendedKeyUsagePurpose]) -> Leaf {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params.serial_number = Some(SerialNumber::from(u64::from_str_radix(serial, 16).unwrap()));
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = usage.to_vec();
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.0.own).unwrap();
        let issuer = if whole { self.0.own.pem() } else { String::new() };
        let all = format!("{}{issuer}{}", own.pem(), key.serialize_pem());
        Leaf { pem: self.0.folder.file(&format!("{name}.pem"), &all), serial }
    }

    /// An OCSP response in DER about a certificate: valid (V) or revoked (R). The CA signs it, or the
    /// certificate in the file `signer`.
    fn response(&self, name: &str, about: &Leaf, status: char, signer: Option<&Path>) -> PathBuf {
        let revoked = if status == 'R' { "200101000000Z" } else { "" };
        let line = format!("{status}\t490101000000Z\t{revoked}\t{}\tunknown\t/CN=x\n", about.serial);
        let index = self.0.folder.file(&format!("{name}.index"), &line);
        let ca_key = self.0.folder.file("ca.key", &self.0.own.key().serialize_pem());
        let (ca, request, made) = (self.0.file(), self.path(&format!("{name}.request")), self.path(name));
        let (signs, key) = (signer.unwrap_or(&ca), signer.unwrap_or(&ca_key));
        let words = |all: &[&dyn AsRef<std::ffi::OsStr>]| {
            let all: Vec<_> = all.iter().map(|word| word.as_ref().to_str().unwrap().to_owned()).collect();
            let output = openssl(&all.iter().map(String::as_str).collect::<Vec<_>>(), "");
            assert!(output.status.success(), "{}", text(&output.stderr));
        };
        words(&[&"ocsp", &"-issuer", &ca, &"-cert", &about.pem, &"-reqout", &request, &"-no_nonce"]);
        words(&[
            &"ocsp",
            &"-index",
            &index,
            &"-CA",
            &ca,
            &"-rsigner",
            &signs,
            &"-rkey",
            &key,
            &"-reqin",
            &request,
            &"-respout",
            &made,
            &"-ndays",
            &"3",
        ]);
        made
    }
}

fn base64(file: &Path) -> String {
    text(&openssl(&["base64", "-A", "-in", file.to_str().unwrap()], "").stdout)
}

/// Status that a requesting client gets: `good`, `revoked`, or none.
fn shown(address: SocketAddr, version: &str) -> Option<String> {
    shown_at(["-connect", &address.to_string()], version)
}

fn shown_at([kind, to]: [&str; 2], version: &str) -> Option<String> {
    let said = text(&openssl(&["s_client", kind, to, "-status", version], "").stdout);
    if said.contains("OCSP response: no response sent") {
        return None;
    }
    let status = said.lines().find_map(|line| line.trim().strip_prefix("Cert Status: "));
    Some(status.unwrap_or_else(|| panic!("no status in {said}")).to_owned())
}

fn start(folder: &Path, sections: &str, options: &str) -> (Manylane, SocketAddr, PathBuf) {
    let (socket, address) = listener();
    let control = folder.join("control");
    let config = format!(
        "global\n stats socket {} level admin\n{sections}{DEFAULTS} mode http\nfrontend f\n bind {} \
         ssl {options}\n http-request return status 200\n",
        control.display(),
        fd(&socket)
    );
    (Manylane::start_ready(&config), address, control)
}

#[test]
fn clients_that_ask_are_shown_what_the_authority_says() {
    let authority = Authority::new();
    let maker = Maker(&authority);
    let leaf = maker.leaf("a", "2A", true, &[]);
    maker.response("a.pem.ocsp", &leaf, 'V', None);
    let name = leaf.pem.display().to_string();
    let (_program, address, control) = start(&authority.folder.0, "", &format!("crt {name}"));
    let both = || ["-tls1_2", "-tls1_3"].map(|version| shown(address, version));
    let said = |status: &str| [Some(status.to_owned()), Some(status.to_owned())];
    assert_eq!(both(), said("good"));
    let to = address.to_string();
    let silent = text(&openssl(&["s_client", "-connect", &to], "").stdout);
    assert!(!silent.contains("OCSP"), "who does not ask is shown nothing");

    // As HAProxy shows it.
    let listed = ask(&control, "show ssl ocsp-response");
    let id = listed.lines().find_map(|line| line.strip_prefix("Certificate ID key : ")).unwrap().to_owned();
    let key = ask(&control, &format!("show ssl cert {name}"));
    assert!(key.ends_with(&format!("OCSP Response Key: {id}\n\n")), "{key}");
    let detail = ask(&control, &format!("show ssl ocsp-response {id}"));
    assert_eq!(detail, ask(&control, &format!("show ssl ocsp-response text {name}")));
    assert_eq!(detail, ask(&control, &format!("show ssl cert {name}.ocsp")));
    let peer = authority.folder.0.join("peer");
    let config = authority.folder.file(
        "peer.cfg",
        &format!(
            "global\n stats socket {} level admin\ndefaults\n mode http\n timeout client 5s\n \
             timeout server 5s\n timeout connect 5s\nfrontend f\n bind unix@{}.f ssl crt {name}\n",
            peer.display(),
            peer.display(),
        ),
    );
    if let Some(_haproxy) = Haproxy::start(&config) {
        until(|| std::os::unix::net::UnixStream::connect(&peer).is_ok());
        for command in [
            "show ssl ocsp-response",
            "show ssl ocsp-response none",
            "set ssl ocsp-response",
            "set ssl ocsp-response ?",
            "show ssl cert none.pem.ocsp",
        ] {
            assert_eq!(ask(&control, command), ask(&peer, command), "{command}");
        }
        let theirs = ask(&peer, &format!("show ssl ocsp-response {id}"));
        for line in detail.lines() {
            assert!(theirs.contains(line), "'{line}' in {theirs}");
        }
    }

    // Another response replaces it at once, and stays when the certificate is sent again.
    let revoked = base64(&maker.response("revoked", &leaf, 'R', None));
    assert_eq!(ask(&control, &format!("set ssl ocsp-response {revoked}")), "OCSP Response updated!\n\n");
    assert_eq!(both(), said("revoked"));
    let commit = |file: &Path| {
        let sent = std::fs::read_to_string(file).unwrap();
        ask(&control, &format!("set ssl cert {name} <<\n{sent}\n"));
        let said = ask(&control, &format!("commit ssl cert {name}"));
        assert!(said.contains("Success!"), "{said}");
    };
    commit(&leaf.pem);
    assert_eq!(both(), said("revoked"));
    let other = maker.leaf("b", "2B", true, &[]);
    commit(&other.pem);
    assert_eq!(both(), [None, None], "it is about another certificate");
    let none = ask(&control, &format!("show ssl cert {name}.ocsp"));
    assert_eq!(none, "The certificate has no OCSP response.\n\n");
    let about_other = base64(&maker.response("other", &other, 'V', None));
    assert_eq!(
        ask(&control, &format!("set ssl ocsp-response <<\n{about_other}\n")),
        "OCSP Response updated!\n\n"
    );
    assert_eq!(both(), said("good"));
}

#[test]
fn responses_that_are_of_no_use_are_refused_in_a_sentence() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let maker = Maker(&authority);
    let leaf = maker.leaf("a", "2A", true, &[]);
    let other = maker.leaf("b", "2B", true, &[]);
    let delegate = maker.leaf("d", "2C", false, &[ExtendedKeyUsagePurpose::OcspSigning]);
    let stranger = Maker(&foreign).leaf("s", "2D", false, &[ExtendedKeyUsagePurpose::OcspSigning]);
    let malformed = maker.path("malformed");
    let whole = std::fs::read(maker.response("whole", &leaf, 'V', None)).unwrap();
    std::fs::write(&malformed, &whole[..100]).unwrap();
    let changed = maker.path("changed");
    let mut bytes = whole.clone();
    let at = bytes.windows(2).position(|two| two == [0x80, 0]).unwrap(); // good
    bytes[at] = 0x82; // unknown
    std::fs::write(&changed, &bytes).unwrap();
    let tampered = maker.path("tampered");
    let mut bytes = whole;
    let at = bytes.windows(2).position(|two| two == [0x18, 15]).unwrap(); // producedAt
    bytes[at + 15] ^= 1; // a second earlier or later
    std::fs::write(&tampered, &bytes).unwrap();
    let unsigned = "it is not signed by who issued the certificate";
    let all = [
        (maker.response("fine", &leaf, 'V', None), None),
        (maker.response("delegated", &leaf, 'R', Some(&delegate.pem)), None),
        (maker.response("other", &other, 'V', None), Some("it is about another certificate")),
        // A server's certificate may not sign responses, nor may that of another CA.
        (maker.response("by-server", &leaf, 'V', Some(&other.pem)), Some(unsigned)),
        (maker.response("by-stranger", &leaf, 'V', Some(&stranger.pem)), Some(unsigned)),
        (tampered, Some(unsigned)),
        (malformed, Some("it is malformed")),
        (changed, Some("it says that the responder does not know the certificate")),
    ];
    let config = format!("{DEFAULTS}frontend f\n mode http\n bind :1 ssl crt {}\n", leaf.pem.display());
    let beside = maker.path("a.pem.ocsp");
    for (file, why) in &all {
        std::fs::copy(file, &beside).unwrap();
        let output = check(&config, &[]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{file:?}: {said}");
        match why {
            Some(why) => {
                let expected = format!("the OCSP response of '{}' is ignored: {why}", leaf.pem.display());
                assert!(said.contains(&expected), "{file:?}: {said}");
            }
            None => assert!(!said.contains("OCSP"), "{file:?}: {said}"),
        }
    }
    std::fs::copy(&all[0].0, &beside).unwrap();
    let (_program, address, control) = start(&authority.folder.0, "", &format!("crt {}", leaf.pem.display()));
    for (file, why) in &all[2..] {
        let said = ask(&control, &format!("set ssl ocsp-response {}", base64(file)));
        let why =
            if file.ends_with("other") { "no certificate that it is about is known" } else { why.unwrap() };
        assert!(said.contains("was not taken") && said.contains(why), "{file:?}: {said}");
        assert_eq!(shown(address, "-tls1_3").as_deref(), Some("good"), "{file:?}");
    }
    // Without its issuer a certificate cannot have a response.
    let alone = maker.leaf("alone", "2E", false, &[]);
    std::fs::copy(&all[0].0, maker.path("alone.pem.ocsp")).unwrap();
    let config = format!("{DEFAULTS}frontend f\n mode http\n bind :1 ssl crt {}\n", alone.pem.display());
    let output = check(&config, &[]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("is not known; add it to the chain"), "{said}");
}

#[test]
fn stores_and_files_beside_certificates_name_issuers_and_responses() {
    let authority = Authority::new();
    let maker = Maker(&authority);
    let leaf = maker.leaf("a", "2A", false, &[]);
    let response = maker.response("named", &leaf, 'V', None);
    let folder = authority.folder.0.display();
    let sections =
        format!("crt-store s\n crt-base {folder}\n load crt a.pem ocsp named issuer ca.pem alias x\n");
    let (program, address, control) = start(&authority.folder.0, &sections, "crt @s/x");
    assert_eq!(shown(address, "-tls1_3").as_deref(), Some("good"));
    assert!(ask(&control, "show ssl ocsp-response").contains("Certificate path : @s/x\n"));
    drop(program);
    std::fs::copy(response, maker.path("a.pem.ocsp")).unwrap();
    std::fs::copy(authority.file(), maker.path("a.pem.issuer")).unwrap();
    let (_program, address, _) = start(&authority.folder.0, "", &format!("crt {}", leaf.pem.display()));
    assert_eq!(shown(address, "-tls1_2").as_deref(), Some("good"));
}

#[test]
fn commands_replace_the_files_beside_certificates() {
    let authority = Authority::new();
    let maker = Maker(&authority);
    let leaf = maker.leaf("a", "2A", false, &[]);
    let other = maker.leaf("b", "2B", true, &[]);
    let issuer = std::fs::read_to_string(authority.file()).unwrap();
    let [good, revoked] = [('V', "good"), ('R', "revoked")]
        .map(|(status, name)| base64(&maker.response(name, &leaf, status, None)));
    let wrong = base64(&maker.response("wrong", &other, 'V', None));
    let name = leaf.pem.display();
    let config = |_: &Syslog, socket: &Path| {
        let socket = socket.display();
        format!(
            "global\n stats socket {socket} level admin\n{DEFAULTS} mode http\nfrontend f\n \
             bind unix@{socket}.f ssl crt {name}\n http-request return status 200\n"
        )
    };
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        let last = |answer: String| answer.trim_end().lines().last().unwrap_or_default().to_owned();
        let set = |ending: &str, sent: &str| {
            last(played.ask(&format!("set ssl cert {name}.{ending} <<\n{}\n", sent.trim_end())))
        };
        let commit = || {
            let done = last(played.ask(&format!("commit ssl cert {name}")));
            played.ask(&format!("abort ssl cert {name}")); // ours stays open if it fails
            (done, shown_at(["-unix", &front], "-tls1_3"))
        };
        let said = vec![
            (set("ocsp", &good), Some(commit())),
            (set("issuer", &issuer), None),
            (set("ocsp", &good), Some(commit())),
            (set("ocsp", &wrong), Some(commit())),
            (set("ocsp", &revoked), Some(commit())),
            (set("ocsp", "!!!"), None),
            (set("issuer", "none"), None),
            (set("sctl", "AAAA"), None),
            (set("dh", "AAAA"), None),
        ];
        said
    };
    let (ours, theirs) = both(config, play);
    let set = |done: &str| format!("Transaction {done} for certificate {name}!");
    let refused = |ending: &str| (format!("Can't update {name}.{ending}!"), None);
    let commit = |done: &str, status: Option<&str>| Some((done.to_owned(), status.map(str::to_owned)));
    let expected = [
        (set("created"), commit("Failed!", None)),
        (set("created"), None),
        (set("updated"), commit("Success!", Some("good"))),
        (set("created"), commit("Success!", Some("good"))), // it is ignored
        (set("created"), commit("Success!", Some("revoked"))),
        refused("ocsp"),
        refused("issuer"),
        refused("sctl"),
        refused("dh"),
    ];
    assert_eq!(ours, expected);
    assert_eq!(theirs.unwrap_or_else(|| ours.clone()), ours);
}

#[test]
fn a_line_of_a_list_names_the_response_and_the_issuer_as_in_haproxy() {
    let authority = Authority::new();
    let maker = Maker(&authority);
    let leaf = maker.leaf("a", "2A", false, &[]);
    let response = maker.response("elsewhere", &leaf, 'V', None);
    let line = format!(
        "{} [ocsp {} issuer {}]\n",
        leaf.pem.display(),
        response.display(),
        authority.file().display()
    );
    let list = authority.folder.file("list", &line);
    let config = |_: &Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n{DEFAULTS} mode http\nfrontend f\n bind \
             unix@{shown}.f ssl crt-list {}\n http-request return status 200\n",
            list.display()
        )
    };
    let play = |played: Played| {
        let socket = format!("{}.f", played.socket.display());
        ["-tls1_2", "-tls1_3"].map(|version| shown_at(["-unix", &socket], version))
    };
    let (ours, theirs) = both(config, play);
    assert_eq!(ours, [Some("good".to_owned()), Some("good".to_owned())]);
    theirs.into_iter().for_each(|theirs| assert_eq!(ours, theirs));
}
