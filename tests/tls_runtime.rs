//! Certificates, CA files and certificate lists that change at run time; responses to the commands are
//! compared with HAProxy's.

use crate::common;
use crate::tls::{Authority, curl, openssl, text};

use common::watch::{Played, ask, both, until};
use common::{DEFAULTS, Ended, Manylane, fd, listener};
use nix::sys::signal::Signal;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, DnType, KeyIdMethod, KeyPair, RevokedCertParams,
    SerialNumber,
};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PAGE: &str = " http-request return status 200 content-type text/plain string hello\n";

/// A program with a TLS listener and a command socket.
struct Served {
    _program: Manylane,
    address: SocketAddr,
    socket: PathBuf,
}

impl Served {
    /// `options` follow `bind ... ssl`.
    fn start(authority: &Authority, options: &str) -> Self {
        Self::start_with(authority, options, "", PAGE)
    }

    fn start_with(authority: &Authority, options: &str, sections: &str, more: &str) -> Self {
        let (listening, address) = listener();
        let socket = authority.folder.0.join("control");
        let config = format!(
            "global\n stats socket {} level admin\n nbthread 2\n{sections}\n{DEFAULTS} mode http\n\
             frontend f\n bind {} ssl {options}\n{more}",
            socket.display(),
            fd(&listening),
        );
        Self { _program: Manylane::start_ready(&config), address, socket }
    }

    fn ask(&self, line: &str) -> String {
        ask(&self.socket, line)
    }

    /// Response to a command with this file as payload.
    fn send(&self, command: &str, file: &Path) -> String {
        self.ask(&format!("{command} <<\n{}", std::fs::read_to_string(file).unwrap()))
    }

    /// Replaces a file by another one and commits that.
    fn replace(&self, kind: &str, name: &Path, file: &Path) {
        let name = name.display();
        let said = self.send(&format!("set ssl {kind} {name}"), file);
        assert!(said.to_lowercase().starts_with("transaction created for "), "{said}");
        let said = self.ask(&format!("commit ssl {kind} {name}"));
        assert!(said.ends_with("\nSuccess!\n\n"), "{said}");
    }

    /// Names in the certificate for clients that request `name`; empty if they are refused.
    fn shown(&self, name: &str) -> String {
        let to = self.address.to_string();
        let output = openssl(&["s_client", "-connect", &to, "-servername", name], "");
        let subject = text(&output.stdout);
        let line = subject.lines().find_map(|line| line.strip_prefix("subject="));
        let name = line.and_then(|line| line.rsplit_once("CN")).map(|(_, name)| name);
        let name = name.unwrap_or_default().trim_start_matches([' ', '=']);
        name.split(',').next().unwrap_or_default().to_owned()
    }

    /// Returns true if a client with this certificate is served.
    fn serves(&self, authority: &Authority, certificate: &Path) -> bool {
        let url = format!("https://a.example:{}/", self.address.port());
        let file = certificate.to_str().unwrap();
        let output = curl(authority, self.address, "a.example", &["--cert", file, "--key", file, &url]);
        text(&output.stdout).starts_with("hello|200")
    }
}

/// A client whose connection stays open, and its output.
struct Client(Ended, BufReader<std::process::ChildStdout>);

impl Client {
    fn connect(to: SocketAddr) -> Self {
        let child = Command::new("openssl")
            .args(["s_client", "-connect", &to.to_string(), "-quiet", "-no_ign_eof"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = Ended(child.unwrap());
        let out = BufReader::new(child.0.stdout.take().unwrap());
        Self(child, out)
    }

    /// Requests a page and reads it.
    fn get(&mut self) -> String {
        let to = self.0.0.stdin.as_mut().unwrap();
        to.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert!(self.1.read_line(&mut answer).unwrap() > 0, "the connection ended: {answer}");
        }
        let mut body = [0; 5];
        std::io::Read::read_exact(&mut self.1, &mut body).unwrap();
        answer + &text(&body)
    }
}

#[test]
fn a_certificate_is_replaced_and_what_is_established_goes_on() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (second, other) = (authority.bundle("new.pem", &["b.example"]), Authority::new());
    let mismatched = {
        let (one, two) = (std::fs::read_to_string(&certificate), std::fs::read_to_string(&second));
        let (certificate, key) = (one.unwrap(), two.unwrap());
        let end = "-----END CERTIFICATE-----\n";
        let (certificate, _) = certificate.split_once(end).unwrap();
        let (_, key) = key.split_once(end).unwrap();
        other.folder.file("mismatched", &format!("{certificate}{end}{key}"))
    };
    let served = Served::start(&authority, &format!("crt {}", certificate.display()));
    let name = certificate.display();
    let mut client = Client::connect(served.address);
    assert!(client.get().ends_with("hello"));
    assert_eq!(served.shown("x"), "a.example");
    let said = served.send(&format!("set ssl cert {name}"), &second);
    assert_eq!(said, format!("Transaction created for certificate {name}!\n\n"));
    assert_eq!(served.shown("x"), "a.example", "nothing is different before the commit");
    assert!(served.ask(&format!("show ssl cert *{name}")).contains("DNS:b.example"));
    served.ask(&format!("abort ssl cert {name}"));
    assert!(served.ask(&format!("commit ssl cert {name}")).contains("No ongoing transaction!"));
    assert_eq!(served.shown("x"), "a.example");
    let said = served.send(&format!("set ssl cert {name}"), &mismatched);
    assert!(said.contains("Transaction created"), "{said}");
    let said = served.ask(&format!("commit ssl cert {name}"));
    assert!(said.contains("is not that of its certificate") && said.contains("Failed!"), "{said}");
    assert_eq!(served.shown("x"), "a.example", "a key of another certificate changes nothing");
    served.ask(&format!("abort ssl cert {name}"));
    served.replace("cert", &certificate, &second);
    assert_eq!(served.shown("x"), "b.example");
    assert!(client.get().ends_with("hello"), "the connection goes on");
    assert!(served.ask(&format!("show ssl cert {name}")).contains("Status: Used"));
}

#[test]
fn a_key_alone_replaces_that_of_the_file() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let second = std::fs::read_to_string(authority.bundle("new.pem", &["b.example"])).unwrap();
    let served = Served::start(&authority, &format!("crt {}", certificate.display()));
    let name = certificate.display();
    let end = "-----END CERTIFICATE-----\n";
    let (certificate, key) = second.split_once(end).unwrap();
    let said = served.ask(&format!("set ssl cert {name} <<\n{certificate}{end}"));
    assert!(said.contains("Transaction created"), "{said}");
    assert!(served.ask(&format!("commit ssl cert {name}")).contains("Failed!"));
    let said = served.ask(&format!("set ssl cert {name}.key <<\n{key}"));
    assert!(said.contains("Transaction updated"), "{said}");
    assert!(served.ask(&format!("commit ssl cert {name}")).contains("Success!"));
    assert_eq!(served.shown("x"), "b.example");
}

#[test]
fn authorities_and_revoked_certificates_change_for_clients() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (one, two) = (authority.bundle("one.pem", &["one"]), other.bundle("two.pem", &["two"]));
    let known = authority.folder.file("known.pem", &std::fs::read_to_string(authority.file()).unwrap());
    let served = Served::start(
        &authority,
        &format!("crt {} verify required ca-file {}", certificate.display(), known.display()),
    );
    let who = |served: &Served| (served.serves(&authority, &one), served.serves(&authority, &two));
    assert_eq!(who(&served), (true, false));
    served.replace("ca-file", &known, &other.file());
    assert_eq!(who(&served), (false, true));
    let said = served.send(&format!("add ssl ca-file {}", known.display()), &authority.file());
    assert!(said.starts_with("transaction created for CA "), "{said}");
    assert_eq!(who(&served), (false, true));
    assert!(served.ask(&format!("commit ssl ca-file {}", known.display())).contains("Success!"));
    assert_eq!(who(&served), (true, true));
}

/// `Upgrade: h2c` is for connections in clear (RFC 7540, 3.2).
#[test]
fn nobody_changes_to_h2c_within_tls() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let served = Served::start(&authority, &format!("crt {}", certificate.display()));
    let to = served.address.to_string();
    let output = openssl(
        &["s_client", "-connect", &to, "-quiet", "-ign_eof"],
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    let said = text(&output.stdout);
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("hello"), "{said}");
}

/// A CRL of `authority`.
fn revoked_by(authority: &Authority, serials: &[u64]) -> String {
    revoked_in(authority, serials, (2020, 2090))
}

/// A CRL of `authority` from the first year, due to be replaced in the second.
fn revoked_in(authority: &Authority, serials: &[u64], (year, until): (i32, i32)) -> String {
    let now = rcgen::date_time_ymd(year, 1, 1);
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: now,
        next_update: rcgen::date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&authority.own).unwrap().pem().unwrap()
}

/// Certificate and key of a client, with this serial number.
fn client_4711(authority: &Authority) -> PathBuf {
    let mut params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(4711));
    params.distinguished_name.push(DnType::CommonName, "client");
    let key = KeyPair::generate().unwrap();
    let shown = params.signed_by(&key, &authority.own).unwrap();
    authority.folder.file("client.pem", &format!("{}{}", shown.pem(), key.serialize_pem()))
}

/// An older list of the same issuer, which has not the serial or is overdue, does not hide it, whatever their
/// order in the file.
#[test]
fn the_newest_list_of_an_issuer_decides() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let shown = client_4711(&authority);
    let of = |serials: &[u64], years| revoked_in(&authority, serials, years);
    let (before, after) = (of(&[1], (2020, 2090)), of(&[1, 4711], (2021, 2090)));
    let (overdue, fresh) = (of(&[1], (2020, 2021)), of(&[1], (2021, 2090)));
    for (n, (lists, served_then)) in
        [([&before, &after], false), ([&after, &before], false), ([&overdue, &fresh], true)]
            .iter()
            .enumerate()
    {
        let list = authority.folder.file(&format!("{n}.pem"), &lists.map(String::as_str).concat());
        for ignored in ["", " crt-ignore-err 10"] {
            let served = Served::start(
                &authority,
                &format!(
                    "crt {} verify required ca-file {} crl-file {}{ignored}",
                    certificate.display(),
                    authority.file().display(),
                    list.display()
                ),
            );
            assert_eq!(served.serves(&authority, &shown), *served_then, "{n}{ignored}");
        }
    }
}

#[test]
fn a_list_of_revoked_certificates_is_replaced() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let shown = client_4711(&authority);
    let list = authority.folder.file("revoked.pem", &revoked_by(&authority, &[1]));
    let served = Served::start(
        &authority,
        &format!(
            "crt {} verify required ca-file {} crl-file {}",
            certificate.display(),
            authority.file().display(),
            list.display()
        ),
    );
    assert!(served.serves(&authority, &shown));
    let session = authority.folder.0.join("session").display().to_string();
    // The page, if the client is served, and whether it resumed a session.
    let get = |version: &str, arguments: &[&str]| {
        let (to, file) = (served.address.to_string(), shown.to_str().unwrap());
        let common = ["s_client", "-connect", &to, "-cert", file, "-key", file, "-ign_eof", version];
        let output = openssl(&[&common[..], arguments].concat(), "GET / HTTP/1.0\r\n\r\n");
        let said = text(&output.stdout);
        (said.contains("\r\n\r\nhello"), said.contains("\nReused, "))
    };
    let newer = authority.folder.file("newer.pem", &revoked_by(&authority, &[1, 4711]));
    for version in ["-tls1_2", "-tls1_3"] {
        let original = authority.folder.file("original.pem", &revoked_by(&authority, &[1]));
        served.replace("crl-file", &list, &original);
        assert_eq!(get(version, &["-sess_out", &session]), (true, false), "{version}");
        assert_eq!(get(version, &["-sess_in", &session]), (true, true), "{version}");
        served.replace("crl-file", &list, &newer);
        assert!(!get(version, &["-sess_in", &session]).0, "{version}: the ticket is from before");
    }
    assert!(!served.serves(&authority, &shown));
    let said = served.ask(&format!("show ssl crl-file {}", list.display()));
    assert!(said.contains("Serial Number: 1267"), "{said}");
}

/// Files are checked when they are sent, and taken completely or not at all.
#[test]
fn lists_and_authorities_that_cannot_be_used_are_refused_when_they_come() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (known, list) = (authority.file(), authority.folder.file("revoked", &revoked_by(&authority, &[1])));
    let served = Served::start(
        &authority,
        &format!(
            "crt {} verify optional ca-file {} crl-file {}",
            certificate.display(),
            known.display(),
            list.display()
        ),
    );
    let new = authority.folder.0.join("new").display().to_string();
    served.ask(&format!("new ssl crl-file {new}"));
    let empty = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    // An additional byte at the end.
    let longer = {
        let list = list.display().to_string();
        let output = openssl(&["crl", "-in", &list, "-outform", "DER", "-out", &format!("{list}.der")], "");
        assert!(output.status.success());
        let mut der = std::fs::read(format!("{list}.der")).unwrap();
        der.push(0);
        std::fs::write(format!("{list}.der"), der).unwrap();
        let text64 = text(&openssl(&["base64", "-in", &format!("{list}.der")], "").stdout);
        format!("-----BEGIN X509 CRL-----\n{text64}-----END X509 CRL-----\n")
    };
    for name in [&new, &list.display().to_string()] {
        for bad in [empty, &longer] {
            assert_eq!(
                served.ask(&format!("set ssl crl-file {name} <<\n{bad}")),
                format!(
                    "'crl-file' : '{name}' has a list of revoked certificates that cannot be used: it is \
                     malformed\nCan't update {name}!\n\n"
                )
            );
            assert!(served.ask(&format!("commit ssl crl-file {name}")).contains("No ongoing transaction!"));
        }
    }
    let file = authority.folder.file("bad", empty);
    let output = common::check(
        &format!(
            "{DEFAULTS}listen l\n mode tcp\n bind :1 ssl crt {} verify required ca-file {} crl-file {}\n",
            certificate.display(),
            known.display(),
            file.display()
        ),
        &[],
    );
    let said = text(&output.stderr);
    assert!(said.contains("'crl-file' : ") && said.contains("cannot be used: it is malformed"), "{said}");

    let known = known.display();
    let two = format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", other.own.pem());
    for command in ["set", "add"] {
        let said = served.ask(&format!("{command} ssl ca-file {known} <<\n{two}"));
        assert!(said.contains(&format!("'{known}' has a certificate that cannot be used: ")), "{said}");
        assert!(said.ends_with(&format!("\nCan't update {known}!\n\n")), "{said}");
        assert!(served.ask(&format!("commit ssl ca-file {known}")).contains("No ongoing transaction!"));
    }
}

/// CPU time of the threads with this name, in nanoseconds.
fn processor_time(pid: u32, name: &str) -> u64 {
    let read = |folder: &Path, file: &str| std::fs::read_to_string(folder.join(file));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let own = threads.flatten().map(|thread| thread.path());
    // A thread may end meanwhile.
    own.filter(|thread| read(thread, "comm").is_ok_and(|comm| comm.trim() == name))
        .filter_map(|thread| read(&thread, "schedstat").ok()?.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Lanes do not parse a large CRL or format its text; a lane only sends the text.
#[test]
fn the_text_of_a_large_list_is_made_aside_of_lanes() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let serials: Vec<u64> = (1..=50_000).collect();
    let list = authority.folder.file("revoked.pem", &revoked_by(&authority, &serials));
    let socket = authority.folder.0.join("control");
    let (listening, _address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nglobal\n stats socket {} level admin\n nbthread 1\n\
         frontend f\n bind {} ssl crt {} verify required ca-file {} crl-file {}\n",
        socket.display(),
        fd(&listening),
        certificate.display(),
        authority.file().display(),
        list.display()
    );
    let program = Manylane::start_ready(&config);
    let used = || (processor_time(program.pid(), "manylane"), processor_time(program.pid(), "reporter"));
    let (lane, aside) = used();
    let shown = ask(&socket, &format!("show ssl crl-file {}", list.display()));
    let (lane, aside) = (used().0 - lane, used().1 - aside);
    assert_eq!(shown.matches("    Serial Number: ").count(), serials.len());
    assert!(
        shown.ends_with("    Serial Number: C350\n        Revocation Date: Jan  1 00:00:00 2020 GMT\n\n")
    );
    assert!(aside > lane / 4, "{aside} ns beside {lane} ns of the lane");
}

/// Commands could not name these files, and two of them could look the same.
#[test]
fn files_whose_names_are_not_utf_8_are_refused_in_a_sentence() {
    use std::os::unix::ffi::OsStrExt;
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let folder = authority.folder.0.join("folder");
    std::fs::create_dir(&folder).unwrap();
    let odd = folder.join(std::ffi::OsStr::from_bytes(b"a\xff.pem"));
    std::fs::copy(&certificate, &odd).unwrap();
    let (folder, known) = (folder.display(), authority.file());
    let (certificate, known) = (certificate.display(), known.display());
    for (options, keyword) in [
        (format!("crt {folder}"), "crt"),
        (format!("crt {folder}/a\\xff.pem"), "crt"),
        (format!("crt {certificate} verify required ca-file {folder}/a\\xff.pem"), "ca-file"),
        (
            format!("crt {certificate} verify required ca-file {known} crl-file {folder}/a\\xff.pem"),
            "crl-file",
        ),
    ] {
        let output = common::check(&format!("{DEFAULTS}listen l\n mode tcp\n bind :1 ssl {options}\n"), &[]);
        let said = text(&output.stderr);
        let sentence =
            format!("'{keyword}' : '{folder}/a\u{fffd}.pem' has a name that is not UTF-8: rename the file");
        assert!(said.contains(&sentence), "{options}: {said}");
    }
}

/// Returns true if the memory of a program contains these bytes.
fn memory_has(pid: u32, wanted: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let is_there = |range: &str| {
        let (begin, end) = range.split_once('-').unwrap();
        let [mut at, end] = [begin, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut piece = vec![0; 1 << 20];
        let mut kept = Vec::new();
        while at < end {
            let most = piece.len().min((end - at) as usize);
            // Pages may be unmapped meanwhile, and some cannot be read.
            let Ok(read @ 1..) = memory.read_at(&mut piece[..most], at) else { break };
            kept.extend_from_slice(&piece[..read]);
            if memchr::memmem::find(&kept, wanted).is_some() {
                return true;
            }
            kept.drain(..kept.len().saturating_sub(wanted.len()));
            at += read as u64;
        }
        false
    };
    maps.lines().filter(|line| line.contains(" rw")).any(|line| is_there(line.split(' ').next().unwrap()))
}

#[test]
fn no_private_key_stays_where_it_was_received() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let served = Served::start(&authority, &format!("crt {}", certificate.display()));
    let read = |file: &str| std::fs::read_to_string(authority.bundle(file, &["b.example"])).unwrap();
    let (first, second) = (read("b.pem"), read("c.pem"));
    // The end of one line and the beginning of the next, joined: decoders keep no line ends.
    let wanted = |bundle: &str| {
        let (_, key) = bundle.split_once("-----BEGIN PRIVATE KEY-----\n").unwrap();
        key.as_bytes()[40..90].to_vec()
    };
    // The client stays connected, so that its session exists when memory is searched.
    let mut client = std::os::unix::net::UnixStream::connect(&served.socket).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let mut send = |lines: &str, end: &str| {
        client.write_all(lines.as_bytes()).unwrap();
        let mut said = String::new();
        while !said.contains(end) {
            assert!(answers.read_line(&mut said).unwrap() > 0, "the connection ended: {said}");
        }
    };
    send("prompt\n\n", "\n");
    send("set timeout cli 600\n", "\n"); // a search takes long
    let (name, pid) = (certificate.display(), served._program.pid());
    // A command that expects no key shows that the search finds one.
    send(&format!("set ssl ca-file /none <<\n{first}\n"), "Can't update");
    assert!(memory_has(pid, &wanted(&first)));
    send(&format!("set ssl cert {name} <<\n{second}\n"), "Transaction created");
    assert!(!memory_has(pid, &wanted(&second)));
    // A key may also be a word of its command.
    let key = "bm8gb25lIGtlZXBzIHRoaXMga2V5LCBub3QgZXZlbiBmb3IgYSBtb21lbnQhISEh";
    send(&format!("set ssl tls-key /none {key}\n"), "unable to locate");
    assert!(!memory_has(pid, key.as_bytes()));
}

#[test]
fn certificates_come_to_lists_and_go() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let second = authority.bundle("b.pem", &["b.example"]);
    let list = authority.folder.file("list", &format!("{}\n", certificate.display()));
    let served = Served::start(&authority, &format!("strict-sni crt-list {}", list.display()));
    assert_eq!((served.shown("a.example").as_str(), served.shown("b.example").as_str()), ("a.example", ""));
    let (list, new) = (list.display(), authority.folder.0.join("new.pem"));
    let new = new.display();
    let refused = served.ask(&format!("add ssl crt-list {list} {new}"));
    assert!(refused.contains("does not exist!"), "{refused}");
    assert_eq!(
        served.ask(&format!("new ssl cert {new}")),
        format!("New empty certificate store '{new}'!\n\n")
    );
    let refused = served.ask(&format!("add ssl crt-list {list} {new}"));
    assert!(refused.contains("is empty!"), "{refused}");
    assert!(served.send(&format!("set ssl cert {new}"), &second).contains("Transaction created"));
    assert!(served.ask(&format!("commit ssl cert {new}")).contains("Success!"));
    assert_eq!(served.shown("b.example"), "", "no list has it");
    let said = served.ask(&format!("add ssl crt-list {list} <<\n{new} *.w.example !no.w.example\n"));
    assert!(said.contains("Success!"), "{said}");
    assert_eq!(served.shown("x.w.example"), "b.example");
    assert_eq!((served.shown("b.example").as_str(), served.shown("no.w.example").as_str()), ("", ""));
    let refused = served.ask(&format!("del ssl cert {new}"));
    assert!(refused.contains("in use, can't be deleted!"), "{refused}");
    let said = served.ask(&format!("del ssl crt-list {list} {new}"));
    assert!(said.contains("deleted in crtlist"), "{said}");
    assert_eq!((served.shown("x.w.example").as_str(), served.shown("a.example").as_str()), ("", "a.example"));
    let said = served.ask(&format!("del ssl cert {new}"));
    assert_eq!(said, format!("Certificate '{new}' deleted!\n\n"));
}

#[test]
fn servers_are_verified_by_other_authorities() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (outer, inner) = (authority.bundle("a.pem", &["a.example"]), other.bundle("b.pem", &["b.example"]));
    let known = authority.folder.file("known.pem", &std::fs::read_to_string(authority.file()).unwrap());
    let (socket, between) = listener();
    let more = format!(
        " default_backend b\nbackend b\n server s {between} ssl ca-file {} verifyhost b.example\n\
         frontend g\n bind {} ssl crt {}\n{PAGE}",
        known.display(),
        fd(&socket),
        inner.display(),
    );
    let served = Served::start_with(&authority, &format!("crt {}", outer.display()), "", &more);
    let url = format!("https://a.example:{}/", served.address.port());
    let status = || {
        let output = curl(&authority, served.address, "a.example", &["-o", "/dev/null", &url]);
        text(&output.stdout)[1..4].to_owned()
    };
    assert_eq!(status(), "503");
    served.replace("ca-file", &known, &other.file());
    assert_eq!(status(), "200");
}

#[test]
fn certificates_of_stores_have_names() {
    let authority = Authority::new();
    let certificate = std::fs::read_to_string(authority.bundle("a.pem", &["a.example"])).unwrap();
    let end = "-----END CERTIFICATE-----\n";
    let (certificate, key) = certificate.split_once(end).unwrap();
    let folder = &authority.folder;
    std::fs::create_dir(folder.0.join("keys")).unwrap();
    folder.file("only.crt", &format!("{certificate}{end}"));
    folder.file("keys/only.key", key);
    authority.bundle("b.pem", &["b.example"]);
    authority.bundle("c.pem", &["c.example"]);
    let base = folder.0.display();
    let sections = format!(
        "crt-store web\n crt-base {base}\n key-base {base}/keys\n load crt only.crt key only.key alias one\n \
         load crt b.pem\ncrt-store\n crt-base {base}\n load crt c.pem alias c\n"
    );
    let list = folder.file("list", "@/c w.example\n");
    let options = format!("crt @web/one crt @web/b.pem crt-list {}", list.display());
    let served = Served::start_with(&authority, &options, &sections, PAGE);
    for (name, shown) in [
        ("a.example", "a.example"),
        ("b.example", "b.example"),
        ("w.example", "c.example"),
        ("x", "a.example"),
    ] {
        assert_eq!(served.shown(name), shown, "{name}");
    }
    assert!(served.ask("show ssl cert @web/one").contains("Status: Used"));
    served.replace("cert", Path::new("@web/one"), &folder.0.join("b.pem"));
    assert_eq!(served.shown("x"), "b.example");
    for (section, reported) in [
        ("crt-store s\n load crt /none.pem\n", "cannot read '/none.pem'"),
        ("crt-store s\n load alias x\n", "'load' expects 'crt <file>', found none"),
        ("crt-store s\n load crt x sctl y\n", "'sctl' is an option of HAProxy that this program refuses"),
        (
            "crt-store s\n load crt x rc y\n",
            "'load' expects crt, key, alias, ocsp, issuer, ocsp-update, watch, acme or domains, found 'rc'",
        ),
        ("frontend f\n bind :1 ssl crt @s/none\n", "'@s/none' is loaded by no 'crt-store' section"),
    ] {
        let output = common::check(&format!("{section}{DEFAULTS}listen l\n bind :1\n mode tcp\n"), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reported), "{section}: {said}");
    }
}

#[test]
fn a_reload_reads_the_files_again() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let second = authority.bundle("b.pem", &["b.example"]);
    let served = Served::start(&authority, &format!("crt {}", certificate.display()));
    served.replace("cert", &certificate, &second);
    assert_eq!(served.shown("x"), "b.example");
    served._program.signal(Signal::SIGHUP);
    until(|| served.shown("x") == "a.example");
}

/// The same commands to both programs, and their responses.
#[test]
fn answers_are_those_of_haproxy() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example", "*.w.example"]);
    let second = authority.bundle("b.pem", &["b.example"]);
    let list = authority.folder.file("list", &format!("{} c.example !d.c.example\n", second.display()));
    let known = authority.folder.file("known.pem", &std::fs::read_to_string(authority.file()).unwrap());
    let revoked = authority.folder.file("revoked.pem", &revoked_by(&authority, &[1, 4711]));
    let (certificate, second, list, known, revoked) = (
        certificate.display().to_string(),
        second.display().to_string(),
        list.display().to_string(),
        known.display().to_string(),
        revoked.display().to_string(),
    );
    let read = |file: &str| std::fs::read_to_string(file).unwrap();
    let config = |_: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n{DEFAULTS} mode http\n\
             frontend f\n bind unix@{shown}.f ssl crt {certificate} crt-list {list} verify optional \
             ca-file {known} crl-file {revoked}\n"
        )
    };
    let new = format!("{}/new.pem", authority.folder.0.display());
    // A certificate with a key whose size is no multiple of 8 bits.
    let odd_key = |kind: &[&str]| {
        let file = format!("{}/odd.pem", authority.folder.0.display());
        let request = ["req", "-x509", "-nodes", "-subj", "/CN=odd", "-keyout", &file, "-newkey"];
        let output = openssl(&[&request[..], kind].concat(), "");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let commands = [
        "show ssl cert".to_owned(),
        format!("show ssl cert {certificate}"),
        "show ssl cert /none".into(),
        "set ssl cert".into(),
        format!("set ssl cert /none <<\n{}", read(&second)),
        format!("set ssl cert {certificate} <<\n{}", read(&second)),
        format!("set ssl cert {certificate} <<\n{}", read(&second)),
        format!("set ssl cert {second} <<\n{}", read(&second)),
        "show ssl cert".into(),
        format!("show ssl cert *{certificate}"),
        format!("commit ssl cert {second}"),
        format!("commit ssl cert {certificate}"),
        format!("commit ssl cert {certificate}"),
        "commit ssl cert".into(),
        format!("set ssl cert {certificate} <<\n{}", read(&second)),
        format!("abort ssl cert {second}"),
        format!("abort ssl cert {certificate}"),
        format!("abort ssl cert {certificate}"),
        "abort ssl cert".into(),
        format!("new ssl cert {new}"),
        format!("new ssl cert {new}"),
        "new ssl cert".into(),
        format!("show ssl cert {new}"),
        format!("del ssl cert {new}"),
        format!("del ssl cert {new}"),
        format!("del ssl cert {certificate}"),
        "del ssl cert".into(),
        format!("new ssl cert {new}"),
        format!("set ssl cert {new} <<\n{}", read(&second)),
        format!("del ssl cert {new}"),
        format!("del ssl cert {certificate}"),
        format!("abort ssl cert {new}"),
        format!("del ssl cert {new}"),
        format!("set ssl cert {certificate} <<\n{}", read(&second)),
        format!("del ssl cert {certificate}"),
        format!("abort ssl cert {certificate}"),
        "show ssl ca-file".into(),
        format!("show ssl ca-file {known}"),
        "show ssl ca-file /none".into(),
        "set ssl ca-file".into(),
        format!("set ssl ca-file /none <<\n{}", read(&known)),
        format!("set ssl ca-file {known} <<\n{}", text(other.own.pem().as_bytes())),
        format!("add ssl ca-file {known} <<\n{}", read(&known)),
        "show ssl ca-file".into(),
        format!("show ssl ca-file *{known}"),
        format!("show ssl ca-file *{known}:2"),
        format!("abort ssl ca-file {known}"),
        format!("commit ssl ca-file {known}"),
        format!("set ssl ca-file {known} <<\n{}", text(other.own.pem().as_bytes())),
        format!("commit ssl ca-file {known}"),
        format!("show ssl ca-file {known}"),
        format!("new ssl ca-file {new}"),
        format!("new ssl ca-file {new}"),
        format!("set ssl ca-file {new} <<\n{}", odd_key(&["rsa:2047"])),
        format!("show ssl ca-file *{new}"),
        format!("del ssl ca-file {new}"),
        format!("set ssl ca-file {new} <<\n{}", odd_key(&["ec", "-pkeyopt", "ec_paramgen_curve:P-521"])),
        format!("show ssl ca-file *{new}"),
        format!("abort ssl ca-file {new}"),
        format!("del ssl ca-file {new}"),
        format!("del ssl ca-file {new}"),
        format!("del ssl ca-file {known}"),
        "show ssl crl-file".into(),
        format!("show ssl crl-file {revoked}"),
        format!("show ssl crl-file {revoked}:1"),
        "show ssl crl-file /none".into(),
        format!("set ssl crl-file {revoked} <<\n{}", revoked_by(&authority, &[2])),
        format!("show ssl crl-file *{revoked}"),
        "show ssl crl-file".into(),
        format!("commit ssl crl-file {revoked}"),
        format!("commit ssl crl-file {revoked}"),
        format!("new ssl crl-file {new}"),
        format!("show ssl crl-file {new}"),
        format!("set ssl crl-file {new} <<\n{}", read(&revoked)),
        format!("del ssl crl-file {new}"),
        format!("abort ssl crl-file {new}"),
        format!("del ssl crl-file {new}"),
        format!("del ssl crl-file {revoked}"),
        "show ssl crt-list".into(),
        format!("show ssl crt-list {list}"),
        format!("show ssl crt-list -n {list}"),
        "show ssl crt-list /none".into(),
        format!("add ssl crt-list {list} {certificate}"),
        format!("add ssl crt-list {list} <<\n{certificate} e.example\n"),
        format!("add ssl crt-list {list} <<\n{certificate} f.example\n{certificate} g.example\n"),
        format!("add ssl crt-list {list} <<\n{certificate} f.example\n#\n"),
        format!("add ssl crt-list {list} <<\n"),
        format!("add ssl crt-list /none <<\n{certificate} f.example\n{certificate} g.example\n"),
        format!("add ssl crt-list {list} /none"),
        format!("add ssl crt-list /none {certificate}"),
        "add ssl crt-list".into(),
        format!("show ssl crt-list -n {list}"),
        format!("del ssl crt-list {list} {certificate}"),
        format!("del ssl crt-list {list} {second}:7"),
        format!("del ssl crt-list {list} /none"),
        format!("del ssl crt-list /none {second}"),
        "del ssl crt-list".into(),
        format!("show ssl crt-list {list}"),
    ];
    let (ours, theirs) =
        both(config, |played: Played| commands.iter().map(|command| played.ask(command)).collect::<Vec<_>>());
    // HAProxy lists the system's CAs even if nothing uses them, shows paths of features that are not built
    // here, and has a context for each certificate of a line.
    let theirs = theirs.map(|all| {
        let left_out = ["@system-ca - ", "OCSP filename: ", "SCTL filename: "];
        let kept = |line: &&str| !left_out.iter().any(|beginning| line.starts_with(beginning));
        let lines = |answer: &String| answer.split_inclusive('\n').filter(kept).collect::<String>();
        all.iter().map(lines).map(|answer| answer.replace("..\n", ".\n")).collect::<Vec<_>>()
    });
    let Some(theirs) = theirs else { return };
    let mut wrong = String::new();
    for ((command, ours), theirs) in commands.iter().zip(&ours).zip(&theirs) {
        if ours != theirs {
            let line = command.lines().next().unwrap();
            wrong = format!("{wrong}== {line}\n-- HAProxy\n{theirs}-- Manylane\n{ours}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Connects to a listener that may not be bound yet: the command socket is bound earlier.
fn reach(path: &str) -> UnixStream {
    let mut reached = None;
    until(|| {
        reached = UnixStream::connect(path).ok();
        reached.is_some()
    });
    reached.unwrap()
}

/// Both programs report failed handshakes in the same words.
#[test]
fn failed_handshakes_are_reported_in_the_words_of_openssl() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (good, bad) = (authority.bundle("good.pem", &["good"]), other.bundle("bad.pem", &["bad"]));
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let known = authority.file();
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n log {} local0\n{DEFAULTS} mode http\n log global\n \
             timeout client-hs 500ms\n option httpslog\n \
             error-log-format \"failed %[fc_err] %[fc_err_name] %[ssl_fc_err] %[ssl_fc_err_str] %[ssl_c_err] \
             %[ssl_fc]\"\n\
             frontend f\n bind unix@{shown}.f ssl crt {} strict-sni verify required ca-file {}\n \
             http-after-response set-header x-own \"%[ssl_f_s_dn] %[ssl_f_sha1,hex] %[ssl_f_key_alg] \
             %[ssl_f_serial,hex] %[ssl_f_sig_alg] %[ssl_f_version] %[ssl_f_i_dn(CN)] \
             %[ssl_fc_err] %[ssl_c_err]\"\n{PAGE}",
            log.address(),
            certificate.display(),
            known.display(),
        )
    };
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        let client = |arguments: &[&str]| {
            let common = ["s_client", "-unix", &front, "-quiet"];
            openssl(&[&common[..], arguments].concat(), "GET / HTTP/1.0\r\n\r\n")
        };
        let mut said = Vec::new();
        let mut reported = || {
            let line = played.log.wait("failed");
            said.push(line.split_once("failed ").unwrap().1.to_owned());
        };
        let mut plain = reach(&front);
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        reported();
        for arguments in [
            &["-servername", "none.example", "-cert", good, "-key", good][..],
            &["-servername", "a.example"],
            &["-servername", "a.example", "-cert", bad, "-key", bad],
            &["-servername", "a.example", "-tls1_2", "-cipher", "AES128-SHA", "-cert", good, "-key", good],
            // It does not trust the server and reports that.
            &["-servername", "a.example", "-tls1_2", "-verify_return_error", "-verify", "1"],
        ] {
            client(arguments);
            reported();
        }
        let silent = reach(&front);
        reported();
        drop(silent);
        let answer = client(&["-servername", "a.example", "-cert", good, "-key", good]);
        let answer = text(&answer.stdout);
        let line = played.log.wait(" 200 ");
        let behind = line.rsplit_once("\" ").unwrap().1.to_owned();
        let own = answer.lines().find_map(|line| line.strip_prefix("x-own: ")).map(str::to_owned);
        said.push(behind);
        said.push(own.unwrap_or(answer));
        said
    };
    let (ours, theirs) = both(config, play);
    assert_eq!(ours.len(), 9);
    assert!(
        ours[7].starts_with("0/0000000000000000/0/0/0 a.example/TLSv1.3/TLS_AES_256_GCM_SHA384"),
        "{}",
        ours[7]
    );
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_failed_handshake_with_a_server_is_shown_in_its_line() {
    let (authority, other) = (Authority::new(), Authority::new());
    let inner = other.bundle("b.pem", &["b.example"]);
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n log {} local0\n{DEFAULTS} mode http\n retries 0\n\
             frontend f\n bind unix@{shown}.f\n log global\n \
             log-format \"line %ST %[ssl_bc_err] %[ssl_bc_err_str] [%[bc_err] %[bc_err_name] \
             %[bc_err_str]]\"\n \
             use_backend b%[path,field(2,/)]\n\
             backend b1\n server s unix@{shown}.g ssl verify required ca-file {}\n\
             backend b2\n server s unix@{shown}.g ssl verify required ca-file {known} verifyhost c.example\n\
             backend b3\n server s unix@{shown}.g ssl verify required ca-file {known} sni str(c.example)\n\
             backend b4\n server s unix@{shown}.g ssl verify required ca-file {known}\n\
             frontend g\n bind unix@{shown}.g ssl crt {}\n{PAGE}",
            log.address(),
            authority.file().display(),
            inner.display(),
            known = other.file().display(),
        )
    };
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        let line = |number: u32| {
            let mut client = reach(&front);
            client.write_all(format!("GET /{number} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
            let line = played.log.wait("line ");
            line.split_once("line ").unwrap().1.to_owned()
        };
        [1, 2, 3, 4].map(line)
    };
    let (ours, theirs) = both(config, play);
    let failed = "503 167772294 error:0A000086:SSL routines::certificate verify failed";
    let misnamed = "Server presented an SSL certificate different from the";
    assert_eq!(
        ours,
        [
            format!("{failed} [34 SSL_HANDSHAKE SSL handshake failure]"),
            format!("{failed} [32 SSL_MISMATCH {misnamed} configured one]"),
            format!("{failed} [33 SSL_MISMATCH_SNI {misnamed} expected one]"),
            "200 0 - [0 - Success]".to_owned(),
        ]
    );
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}

/// Results of checks whose steps say whether they use TLS.
#[test]
fn steps_of_checks_speak_tls_where_they_say_so() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let ca = authority.file();
    // A check may take long, and each server settles at once or is checked often until it does.
    let often = "inter 60s fastinter 100ms downinter 100ms";
    let config = |_: &common::watch::Syslog, socket: &Path| {
        let (shown, ca) = (socket.display(), ca.display());
        format!(
            "global\n stats socket {shown} level admin\n max-spread-checks 100ms\n{DEFAULTS} mode http\n \
             timeout check 60s\n\
             backend secure\n option httpchk\n http-check connect ssl sni a.example alpn h2,http/1.1\n \
             http-check send meth GET uri / ver HTTP/1.1 hdr Host a.example\n \
             http-check expect string a.example\n \
             server s unix@{shown}.g verify required ca-file {ca} check {often} init-state fully-down\n\
             backend wrong\n option httpchk\n http-check connect ssl sni b.example\n \
             server s unix@{shown}.g verify required ca-file {ca} check {often} fall 1\n\
             backend bytes\n mode tcp\n option tcp-check\n tcp-check connect ssl sni a.example\n \
             tcp-check send GET\\ /\\ HTTP/1.0\\r\\nHost:\\ a.example\\r\\n\\r\\n\n \
             tcp-check expect string a.example\n \
             server s unix@{shown}.g verify none check {often} init-state fully-down\n\
             backend clear\n mode tcp\n option tcp-check\n tcp-check connect\n \
             tcp-check send GET\\ /\\r\\n\n \
             tcp-check expect string hello\n \
             server s unix@{shown}.g ssl verify none check {often} fall 1\n\
             frontend g\n bind unix@{shown}.g ssl crt {} strict-sni\n \
             http-request return status 200 content-type text/plain lf-string %[ssl_fc_sni]\n",
            certificate.display(),
        )
    };
    let play = |played: Played| {
        let state = |backend: &str| played.columns(backend, "s", &["status", "check_status"]);
        let mut all = Vec::new();
        for (backend, wanted) in [("secure", "UP"), ("wrong", "DOWN"), ("bytes", "UP"), ("clear", "DOWN")] {
            until(|| state(backend)[0] == wanted);
            // A star says that the next check runs already.
            let reported: Vec<_> =
                state(backend).iter().map(|word| word.trim_start_matches("* ").to_owned()).collect();
            all.push((backend, reported));
        }
        all
    };
    let (ours, theirs) = both(config, play);
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}
