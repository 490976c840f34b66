//! Renewal of OCSP responses. The responder is a small HTTP server that gets its responses from OpenSSL.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::dns::Dns;
use common::watch::{Syslog, ask, until};
use common::{DEFAULTS, Manylane, check, origin};
use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair, SerialNumber};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Behaviour of a responder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    Revoked,
    /// It answers with a 500.
    Broken,
    /// Its responses have another content type.
    Mistyped,
    /// It answers about another certificate.
    Confused,
    /// It sends chunks instead of a length.
    Chunked,
}

struct Responder {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    /// First lines of requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Responder {
    fn start(folder: &Path) -> Self {
        let (mood, requested) = (Arc::new(Mutex::new(Mood::Good)), Arc::new(Mutex::new(Vec::new())));
        let (own_mood, own_requests, folder) = (mood.clone(), requested.clone(), folder.to_owned());
        let address = origin(move |stream| answer(stream, &folder, &own_mood, &own_requests));
        Self { address, mood, requests: requested }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }
}

fn request_of(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map_or(0, |length| length.parse().unwrap());
            if all.len() >= end + 4 + length {
                return Some((text.lines().next().unwrap().to_owned(), all[end + 4..].to_vec()));
            }
        }
        match stream.read(&mut bytes).ok()? {
            0 => return None,
            n => all.extend_from_slice(&bytes[..n]),
        }
    }
}

fn answer(mut stream: TcpStream, folder: &Path, mood: &Mutex<Mood>, requested: &Mutex<Vec<String>>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some((line, body)) = request_of(&mut stream) else { return };
    requested.lock().unwrap().push(line.clone());
    let mood = *mood.lock().unwrap();
    if mood == Mood::Broken {
        let _ = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = |name: &str| folder.join(format!("{name}.{number}")).display().to_string();
    let (request, response, index) = (path("request"), path("response"), path("index"));
    if line.starts_with("GET ") {
        let encoded = line.split(' ').nth(1).unwrap().rsplit('/').next().unwrap();
        let encoded = encoded.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
        let decoded = openssl(&["base64", "-d", "-A", "-out", &request], &encoded);
        assert!(decoded.status.success());
    } else {
        std::fs::write(&request, body).unwrap();
    }
    let state = if mood == Mood::Revoked { "R\t490101000000Z\t200101000000Z" } else { "V\t490101000000Z\t" };
    std::fs::write(&index, format!("{state}\t2A\tunknown\t/CN=a\n{state}\t2B\tunknown\t/CN=b\n")).unwrap();
    let (ca, key) = (folder.join("ca.pem"), folder.join("ca.key"));
    let (ca, key) = (ca.to_str().unwrap(), key.to_str().unwrap());
    let other = folder.join("other.request").display().to_string();
    let requested = if mood == Mood::Confused { &other } else { &request };
    let made = openssl(
        &[
            "ocsp", "-index", &index, "-CA", ca, "-rsigner", ca, "-rkey", key, "-reqin", requested,
            "-respout", &response, "-ndays", "1",
        ],
        "",
    );
    assert!(made.status.success(), "{}", text(&made.stderr));
    let response = std::fs::read(response).unwrap();
    let kind = if mood == Mood::Mistyped { "text/html" } else { "application/ocsp-response" };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n");
    let all = match mood {
        Mood::Chunked => {
            let half = response.len() / 2;
            let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
            [head.as_bytes(), &chunk(&response[..half]), &chunk(&response[half..]), b"0\r\n\r\n"].concat()
        }
        _ => {
            let head = format!("{head}content-length: {}\r\n\r\n", response.len());
            [head.as_bytes(), &response].concat()
        }
    };
    let _ = stream.write_all(&all);
}

/// A certificate that names a responder.
pub(crate) fn leaf(authority: &Authority, name: &str, serial: u64, url: &str, whole: bool) -> PathBuf {
    let value = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        let header = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
        [header, content.to_vec()].concat()
    };
    // AuthorityInfoAccess: id-ad-ocsp, and a URI.
    let oid = value(6, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
    let access = value(0x30, &[oid, value(0x86, url.as_bytes())].concat());
    let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
    params.serial_number = Some(SerialNumber::from(serial));
    params.distinguished_name.push(DnType::CommonName, name);
    params.custom_extensions =
        vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], value(0x30, &access))];
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &authority.own).unwrap();
    let issuer = if whole { authority.own.pem() } else { String::new() };
    authority.folder.file(&format!("{name}.pem"), &format!("{}{issuer}{}", own.pem(), key.serialize_pem()))
}

fn authority() -> Authority {
    let authority = Authority::new();
    authority.folder.file("ca.key", &authority.own.key().serialize_pem());
    authority
}

/// The status that a client gets if it requests one.
fn stapled(front: &str) -> Option<String> {
    let said = text(&openssl(&["s_client", "-unix", front, "-status"], "").stdout);
    said.lines().find_map(|line| line.trim().strip_prefix("Cert Status: ")).map(str::to_owned)
}

struct Begun {
    _program: Manylane,
    log: Syslog,
    control: PathBuf,
    front: String,
}

fn start(authority: &Authority, global: &str, sections: &str, options: &str) -> Begun {
    let log = Syslog::new();
    let (control, front) = (authority.folder.0.join("control"), authority.folder.0.join("front"));
    let config = format!(
        "global\n stats socket {} level admin\n log {} local0\n{global}{sections}{DEFAULTS} mode http\n\
         frontend f\n bind unix@{} ssl {options}\n http-request return status 200\n",
        control.display(),
        log.address(),
        front.display(),
    );
    Begun { _program: Manylane::start_ready(&config), log, control, front: front.display().to_string() }
}

impl Begun {
    fn line(&self) -> String {
        let line = self.log.wait("<OCSP-UPDATE>");
        line.split_once("<OCSP-UPDATE> ").unwrap().1.to_owned()
    }
}

#[test]
fn a_response_is_fetched_and_shown() {
    let authority = authority();
    let responder = Responder::start(&authority.folder.0);
    let url = format!("http://{}/ocsp", responder.address);
    let file = leaf(&authority, "a", 0x2a, &url, true);
    let shown = file.display().to_string();
    let store = format!("crt-store\n load crt {shown} ocsp-update on\n");
    let begun = start(&authority, "", &store, &format!("crt {shown}"));
    assert_eq!(begun.line(), format!("{shown} 1 \"Update successful\" 0 1"));
    assert_eq!(stapled(&begun.front).as_deref(), Some("good"));
    let requested = responder.requests.lock().unwrap().remove(0);
    assert!(requested.starts_with("GET /ocsp/M") && requested.ends_with("%3D HTTP/1.1"), "{requested}");
    let all = ask(&begun.control, "show ssl ocsp-updates");
    let mut lines = all.lines();
    assert_eq!(
        lines.next().unwrap(),
        "OCSP Certid | Path | Next Update | Last Update | Successes | Failures | Last Update Status | Last \
         Update Status (str)"
    );
    let line = lines.next().unwrap();
    assert!(
        line.contains(&format!(" | {shown} | ")) && line.ends_with(" | 1 | 0 | 1 | Update successful"),
        "{line}"
    );

    // A command requests a response at once and shows it.
    responder.set(Mood::Revoked);
    let said = ask(&begun.control, &format!("update ssl ocsp-response {shown}"));
    assert!(said.contains("Cert Status: revoked"), "{said}");
    assert_eq!(begun.line(), format!("{shown} 1 \"Update successful\" 0 2"));
    assert_eq!(stapled(&begun.front).as_deref(), Some("revoked"));
    responder.set(Mood::Chunked);
    let said = ask(&begun.control, &format!("update ssl ocsp-response {shown}"));
    assert!(said.contains("Cert Status: good"), "{said}");
    let der = ask(&begun.control, &format!("show ssl ocsp-response base64 {shown}"));
    let taken = ask(&begun.control, &format!("set ssl ocsp-response {}", der.trim()));
    assert_eq!(taken.trim(), "OCSP Response updated!");
    for (command, why) in [
        ("update ssl ocsp-response", "'update ssl ocsp-response' expects a filename"),
        ("update ssl ocsp-response /none", "Unknown certificate!"),
    ] {
        let said = ask(&begun.control, command);
        assert!(said.contains(why), "{said}");
    }
}

/// The program reports invalid responses and keeps the current one.
#[test]
fn failures_are_reported_and_leave_what_is_shown() {
    let authority = authority();
    let responder = Responder::start(&authority.folder.0);
    let url = format!("http://{}", responder.address);
    let file = leaf(&authority, "a", 0x2a, &url, true);
    let other = leaf(&authority, "other", 0x2b, &url, true);
    let (ca, request) = (authority.file(), authority.folder.0.join("other.request"));
    let words =
        ["ocsp", "-issuer", ca.to_str().unwrap(), "-cert", other.to_str().unwrap(), "-no_nonce", "-reqout"];
    openssl(&[&words[..], &[request.to_str().unwrap()]].concat(), "");
    let shown = file.display().to_string();
    let list = authority.folder.file("list", &format!("{shown} [ocsp-update on]\n"));
    let begun = start(
        &authority,
        " ocsp-update.mindelay 1\n ocsp-update.maxdelay 1\n",
        "",
        &format!("crt-list {}", list.display()),
    );
    assert_eq!(begun.line(), format!("{shown} 1 \"Update successful\" 0 1"));
    responder.set(Mood::Broken);
    // The next request is due by time.
    until(|| begun.line().starts_with(&format!("{shown} 2 \"HTTP error (the status is 500)\" 1 ")));
    for (mood, said) in [
        (Mood::Mistyped, "Missing \"ocsp-response\" header (the type is 'text/html')"),
        (Mood::Confused, "OCSP response check failure (it is about another certificate)"),
    ] {
        responder.set(mood);
        let answer = ask(&begun.control, &format!("update ssl ocsp-response {shown}"));
        assert_eq!(answer.trim(), format!("{said}."));
        assert_eq!(stapled(&begun.front).as_deref(), Some("good"));
    }
    let crt_list = ask(&begun.control, &format!("show ssl crt-list {}", list.display()));
    assert!(crt_list.contains(&format!("{shown} [ocsp-update on]\n")), "{crt_list}");
}

/// `httpclient.resolvers.*`
#[test]
fn names_of_responders_are_resolved_as_the_file_says() {
    let authority = authority();
    let responder = Responder::start(&authority.folder.0);
    let dns = Dns::new();
    dns.addresses("responder.example", &["127.0.0.1"]);
    let url = format!("http://responder.example:{}/ocsp", responder.address.port());
    let shown = leaf(&authority, "a", 0x2a, &url, true).display().to_string();
    let store = format!("crt-store\n load crt {shown} ocsp-update on\n");
    let sections = format!("resolvers d\n nameserver a {}\n{store}", dns.address());
    let global = " httpclient.resolvers.id d\n httpclient.resolvers.prefer ipv4\n";
    let begun = start(&authority, global, &sections, &format!("crt {shown}"));
    assert_eq!(begun.line(), format!("{shown} 1 \"Update successful\" 0 1"));
    drop(begun);
    let begun = start(&authority, " httpclient.resolvers.disabled on\n", &store, &format!("crt {shown}"));
    let why = "'responder.example' is not resolved: 'httpclient.resolvers.disabled' is on";
    assert_eq!(begun.line(), format!("{shown} 2 \"HTTP error ({why})\" 1 0"));
}

/// `httpclient.retries`
#[test]
fn a_responder_that_begins_late_is_connected_to_again() {
    let authority = authority();
    let address = common::own_address();
    let shown = leaf(&authority, "a", 0x2a, &format!("http://{address}/"), true).display().to_string();
    let store = format!("crt-store\n load crt {shown} ocsp-update on\n");
    let options = format!("crt {shown}");
    let begun = start(&authority, " httpclient.retries 0\n", &store, &options);
    assert!(begun.line().starts_with(&format!("{shown} 2 \"HTTP error (")));
    drop(begun);
    let global = " httpclient.retries 9\n httpclient.timeout.connect 500ms\n";
    let begun = start(&authority, global, &store, &options);
    let listener = std::net::TcpListener::bind(address).unwrap();
    let mood = Mutex::new(Mood::Good);
    let (folder, requested) = (authority.folder.0.clone(), Mutex::default());
    common::origin_of(listener, move |stream| answer(stream, &folder, &mood, &requested));
    assert_eq!(begun.line(), format!("{shown} 1 \"Update successful\" 0 1"));
}

#[test]
fn a_proxy_is_asked_for_all_responders_and_long_requests_are_posted() {
    let authority = authority();
    let responder = Responder::start(&authority.folder.0);
    // No resolver has this name.
    let url = format!("http://responder.invalid/{}", "x".repeat(190));
    let file = leaf(&authority, "a", 0x2a, &url, true);
    let url = format!("http://responder.invalid:8080/{}", "x".repeat(60));
    let short = leaf(&authority, "b", 0x2b, &url, true);
    let (file, short) = (file.display().to_string(), short.display().to_string());
    let global = format!(" ocsp-update.mode on\n ocsp-update.httpproxy {}\n", responder.address);
    let begun = start(&authority, &global, "", &format!("crt {file} crt {short}"));
    for _ in 0..2 {
        let line = begun.line();
        assert!(line.ends_with(" 1 \"Update successful\" 0 1"), "{line}");
    }
    let requested = responder.requests.lock().unwrap().clone();
    let begins = |begin: &str| requested.iter().any(|line| line.starts_with(begin));
    assert!(begins("POST http://responder.invalid/xxx"), "{requested:?}");
    assert!(begins("GET http://responder.invalid:8080/xxx"), "{requested:?}");
}

#[test]
fn what_cannot_be_renewed_is_refused_by_name() {
    let authority = authority();
    let http = "http://127.0.0.1:1/";
    let alone = leaf(&authority, "alone", 0x2a, http, false).display().to_string();
    let whole = leaf(&authority, "whole", 0x2a, http, true).display().to_string();
    let https = leaf(&authority, "https", 0x2a, "https://127.0.0.1/", true).display().to_string();
    let list =
        authority.folder.file("list", &format!("{whole} [ocsp-update on]\n{whole} [ocsp-update off] b\n"));
    let said = |global: &str, store: &str, options: &str| {
        let config = format!(
            "global\n{global} maxconn 100\n{store}{DEFAULTS} mode http\nfrontend f\n bind 127.0.0.1:1 ssl \
             {options}\n"
        );
        let output = check(&config, &[]);
        (output.status.success(), text(&output.stderr))
    };
    let store = |file: &str| format!("crt-store\n load crt {file} ocsp-update on\n");
    for (global, store, options, why) in [
        ("", store(&alone), format!("crt {alone}"), "has an issuer that is not known"),
        ("", store(&https), format!("crt {https}"), "expected one of http://"),
        ("", String::new(), format!("crt-list {}", list.display()), "has 'ocsp-update' on in one place"),
        ("", store(&whole).replace(" on", " maybe"), String::new(), "'ocsp-update' expects 'on' or 'off'"),
        (
            " ocsp-update.mindelay 50\n ocsp-update.maxdelay 40\n",
            String::new(),
            format!("crt {whole}"),
            "must not be above",
        ),
        (" ocsp-update.httpproxy :80\n", String::new(), format!("crt {whole}"), "expects <address>[:<port>]"),
    ] {
        let (good, reported) = said(global, &store, &options);
        assert!(!good && reported.contains(why), "{why}: {reported}");
    }
    let (good, reported) = said(" ocsp-update.disable on\n", &store(&alone), &format!("crt {alone}"));
    assert!(good, "{reported}");
}

/// Two CAs assign the same serial number: the program finds a response's certificate by its issuer.
#[test]
fn a_response_finds_its_certificate_by_its_issuer() {
    let (one, two) = (authority(), authority());
    let responder = Responder::start(&two.folder.0);
    let url = format!("http://{}", responder.address);
    let first = leaf(&one, "a", 0x2a, &url, true).display().to_string();
    let second = leaf(&two, "b", 0x2a, &url, true).display().to_string();
    let begun = start(&one, "", "", &format!("crt {first} crt {second}"));
    // OpenSSL names the issuer by SHA-256.
    let (ca, path) = (two.file(), |name: &str| two.folder.0.join(name).display().to_string());
    let (request, response, index) = (path("request"), path("response"), path("index"));
    two.folder.file("index", "V\t490101000000Z\t\t2A\tunknown\t/CN=x\n");
    let ca = ca.to_str().unwrap();
    let made =
        openssl(&["ocsp", "-sha256", "-issuer", ca, "-cert", &second, "-no_nonce", "-reqout", &request], "");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made = openssl(
        &[
            "ocsp",
            "-index",
            &index,
            "-CA",
            ca,
            "-rsigner",
            ca,
            "-rkey",
            &path("ca.key"),
            "-reqin",
            &request,
            "-respout",
            &response,
            "-ndays",
            "1",
        ],
        "",
    );
    assert!(made.status.success(), "{}", text(&made.stderr));
    let encoded = text(&openssl(&["base64", "-A", "-in", &response], "").stdout);
    let said = ask(&begun.control, &format!("set ssl ocsp-response {encoded}"));
    assert_eq!(said.trim(), "OCSP Response updated!");
    let listed = ask(&begun.control, "show ssl ocsp-response");
    assert!(listed.contains(&second) && !listed.contains(&first), "{listed}");
}
