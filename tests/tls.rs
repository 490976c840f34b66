//! TLS with clients and servers, end to end: curl and OpenSSL are the peers.

use crate::common;

use common::watch::{Haproxy, ask, until};
use common::{DEFAULTS, Ended, Folder, Manylane, TIMEOUT, check, connect, fd, listener, origin, read_all};
use nix::sys::signal::Signal;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A CA, and files that it has issued.
pub(crate) struct Authority {
    pub(crate) folder: Folder,
    pub(crate) own: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("authority {}", NEXT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = Folder::new();
        folder.file("ca.pem", &own.pem()); // written once: programs may read it at any time
        Self { folder, own }
    }

    /// File of its certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.0.join("ca.pem")
    }

    /// File with a certificate for `names` and its key.
    pub(crate) fn bundle(&self, file: &str, names: &[&str]) -> PathBuf {
        self.bundle_of(file, names, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn bundle_of(&self, file: &str, names: &[&str], kind: &'static SignatureAlgorithm) -> PathBuf {
        let texts: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(texts).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "Test");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        let key = KeyPair::generate_for(kind).unwrap();
        let certificate = params.signed_by(&key, &self.own).unwrap();
        self.folder.file(file, &format!("{}{}", certificate.pem(), key.serialize_pem()))
    }
}

/// Runs curl, which trusts `authority` and uses `name` for the address.
pub(crate) fn curl(authority: &Authority, address: SocketAddr, name: &str, more: &[&str]) -> Output {
    let resolve = format!("{name}:{}:{}", address.port(), address.ip());
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--resolve", &resolve, "--cacert"]).arg(authority.file());
    command.args(["-w", "|%{http_code}|%{http_version}|%{num_connects}|"]).args(more);
    command.output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `openssl` with these arguments and this input.
pub(crate) fn openssl(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || to.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join().unwrap(); // it may have ended before it read everything
    output
}

/// `openssl s_server`, which responds to requests for pages.
pub(crate) struct Server(#[expect(dead_code)] Ended, pub(crate) SocketAddr);

impl Server {
    pub(crate) fn start(certificate: &Path, arguments: &[&str]) -> Self {
        let child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-naccept", "100", "-cert"])
            .arg(certificate)
            .arg("-key")
            .arg(certificate)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = Ended(child.unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let accept = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("ACCEPT ")).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self(child, accept.trim_start_matches("ACCEPT ").trim().parse().unwrap())
    }
}

/// A frontend in HTTP mode with TLS, followed by lines `more`.
fn secure(certificate: &Path, options: &str, more: &str) -> (Manylane, SocketAddr) {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {} {options}\n{more}",
        fd(&socket),
        certificate.display()
    );
    (Manylane::start(&config), address)
}

const PAGE: &str = " http-request return status 200 content-type text/plain string hello\n";

#[test]
fn clients_speak_both_versions_of_http_within_tls() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (_program, address) = secure(&certificate, "", PAGE);
    let url = format!("https://a.example:{}/", address.port());
    for (arguments, version) in [(&["--http2"][..], "2"), (&["--http1.1"], "1.1"), (&["--no-alpn"], "1.1")] {
        let output = curl(&authority, address, "a.example", &[arguments, &[&url, &url]].concat());
        let said = text(&output.stdout);
        // The second request uses the connection of the first.
        assert_eq!(said, format!("hello|200|{version}|1|hello|200|{version}|0|"), "{}", text(&output.stderr));
    }
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let file = authority.folder.0.join("large");
    std::fs::write(&file, &large).unwrap();
    // Echoes its input.
    let echo = origin(|mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut body = vec![0; 3_000_000];
        stream.read_exact(&mut body).unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
    });
    let inner = authority.bundle("b.pem", &["b.example"]);
    let (socket, between) = listener();
    let (outer, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\n\
         frontend f\n bind {} ssl crt {}\n default_backend secure\n\
         backend secure\n server s {between} ssl ca-file {} sni str(b.example) alpn http/1.1\n\
         frontend g\n bind {} ssl crt {}\n default_backend clear\n\
         backend clear\n server s {echo}\n",
        fd(&outer),
        certificate.display(),
        authority.file().display(),
        fd(&socket),
        inner.display(),
    );
    let _program = Manylane::start(&config);
    let url = format!("https://a.example:{}/", address.port());
    for version in ["--http1.1", "--http2"] {
        let body = format!("@{}", file.display());
        let arguments = [version, "-H", "Expect:", "--data-binary", &body, &url, "-w", ""];
        let output = curl(&authority, address, "a.example", &arguments);
        assert!(output.stdout == large, "{version} {} {}", output.stdout.len(), text(&output.stderr));
    }
}

#[test]
fn bytes_of_tcp_pass_and_each_side_may_end_first() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let echo = origin(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap(); // responds after the client's end
        all.reverse();
        stream.write_all(&all).unwrap();
    });
    let (inner, between) = listener();
    // From clear to clear, with TLS between: over a TCP socket, and inside the process.
    for (at, to) in [(fd(&inner), between.to_string()), ("local@inner".into(), "local@inner".into())] {
        let (outer, address) = listener();
        let config = format!(
            "{DEFAULTS} mode tcp\n\
             frontend f\n bind {}\n default_backend secure\n\
             backend secure\n server s {to} ssl verify required ca-file {} verifyhost a.example\n\
             frontend g\n bind {at} ssl crt {}\n default_backend clear\n\
             backend clear\n server s {echo}\n",
            fd(&outer),
            authority.file().display(),
            certificate.display(),
        );
        let _program = Manylane::start(&config);
        let mut client = connect(address);
        client.write_all(b"stressed").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), "desserts", "{to}");
    }
}

#[test]
fn a_body_of_unknown_length_ends_where_its_server_says_so() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    for cut in [false, true] {
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let finished = Mutex::new(finished);
        let web = origin(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\npart").unwrap();
            let _ = finished.lock().unwrap().recv(); // then it closes
        });
        let (inner, between) = listener();
        // An attacker on the path forwards bytes that it cannot read, and may cut the connection.
        let relayed = Arc::new(Mutex::new(None));
        let relay = {
            let relayed = relayed.clone();
            origin(move |stream| {
                let server = connect(between);
                *relayed.lock().unwrap() = Some(stream.try_clone().unwrap());
                let (mut from, mut to) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let _ = std::io::copy(&mut &server, &mut &stream);
                let _ = stream.shutdown(Shutdown::Write);
            })
        };
        let (outer, address) = listener();
        let config = format!(
            "{DEFAULTS} mode http\n\
             frontend f\n bind {}\n default_backend secure\n\
             backend secure\n server s {relay} ssl verify none\n\
             frontend g\n mode tcp\n bind {} ssl crt {}\n default_backend clear\n\
             backend clear\n mode tcp\n server s {web}\n",
            fd(&outer),
            fd(&inner),
            certificate.display(),
        );
        let _program = Manylane::start(&config);
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut came = Vec::new();
        while !text(&came).contains("part") {
            let mut some = [0; 1024];
            let n = client.read(&mut some).unwrap();
            assert!(n > 0, "{}", text(&came));
            came.extend_from_slice(&some[..n]);
        }
        match cut {
            true => relayed.lock().unwrap().take().unwrap().shutdown(Shutdown::Write).unwrap(),
            false => finish.send(()).unwrap(),
        }
        assert!(
            !text(&came).contains("chunked"),
            "the client sees the end as the proxy does: {}",
            text(&came)
        );
        let end = client.read_to_end(&mut came);
        assert_eq!(end.is_err(), cut, "{end:?}: {}", text(&came));
    }
}

#[test]
fn a_client_is_informed_that_a_body_of_unknown_length_ends() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let web = origin(|mut stream| {
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nwhole").unwrap();
    });
    let (inner, between) = listener();
    let (outer, address) = listener();
    // The second proxy is a client that accepts only an end that TLS has authenticated.
    let config = format!(
        "{DEFAULTS} mode http\n\
         frontend f\n bind {}\n default_backend secure\n\
         backend secure\n server s {between} ssl verify none\n\
         frontend g\n bind {} ssl crt {}\n default_backend clear\n\
         backend clear\n server s {web}\n",
        fd(&outer),
        fd(&inner),
        certificate.display(),
    );
    let _program = Manylane::start(&config);
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut came = Vec::new();
    client.read_to_end(&mut came).unwrap();
    assert!(text(&came).ends_with("\r\n\r\nwhole"), "{}", text(&came));
}

/// Servers that send the same share a header; one with fields of its own has them.
#[test]
fn each_server_gets_its_own_words_before_tls() {
    let (came, got) = std::sync::mpsc::channel();
    let origin = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        let _ = came.send(bytes[..length].to_vec()); // later tries are of no interest
    });
    let (socket, address) = listener();
    let tlv = "set-proxy-v2-tlv-fmt(0xE1)";
    let _program = Manylane::start(&format!(
        "{DEFAULTS}frontend f\n mode http\n bind {}\n use_backend b\nbackend b\n mode http\n retries 0\n \
         use-server %[path,field(2,/)] if TRUE\n default-server ssl verify none\n \
         server a {origin} send-proxy-v2\n server b {origin} send-proxy-v2\n server c {origin} send-proxy\n \
         server d {origin} send-proxy-v2 {tlv} d-%[src_port]\n \
         server e {origin} send-proxy-v2 {tlv} %[path]\n \
         server f {origin}\n",
        fd(&socket)
    ));
    for server in ["a", "b", "c", "d", "e", "f"] {
        let mut client = connect(address);
        let port = client.local_addr().unwrap().port();
        client.write_all(format!("GET /{server} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let received = got.recv_timeout(TIMEOUT).unwrap();
        let parsed = manylane_net::proxy_protocol::parse(&received);
        if server == "f" {
            assert_eq!(received[0], 22, "a handshake record of TLS");
            continue;
        }
        let Ok(manylane_net::proxy_protocol::Parsed::Complete { header, .. }) = parsed else {
            panic!("{server}: {received:?}")
        };
        let own = header.tlvs.value_of(0xe1).map(text);
        let wanted = match server {
            "d" => Some(format!("d-{port}")),
            "e" => Some("/e".to_owned()),
            _ => None,
        };
        assert_eq!((own, received.starts_with(b"PROXY ")), (wanted, server == "c"), "{server}");
    }
}

#[test]
fn words_of_other_proxies_stand_before_tls_and_servers_are_informed_of_it() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let shown = authority.bundle("client.pem", &["client"]);
    let (came, got) = std::sync::mpsc::channel();
    let origin = origin(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        came.send(all).unwrap();
    });
    let (proxied, address) = listener();
    let (clear, plain) = listener();
    let (outer, through) = listener();
    let config = format!(
        "{DEFAULTS}frontend f\n mode http\n bind {} accept-proxy ssl crt {certificate}\n \
         http-request return status 200 content-type text/plain lf-string \
         \"%[fc_rcvd_proxy] %[ssl_fc_sni]\"\n\
         frontend g\n mode tcp\n bind {} ssl crt {certificate} verify optional ca-file {} \
         ca-ignore-err all crt-ignore-err all alpn one,two\n \
         default_backend b\n\
         backend b\n mode tcp\n server s {origin} send-proxy-v2-ssl-cn proxy-v2-options cert-cn,authority\n\
         frontend h\n bind {}\n mode {{MODE}}\n default_backend c\n\
         backend c\n mode {{MODE}}\n \
         server s {address} ssl send-proxy verify none sni str(a.example) {{ALPN}}\n",
        fd(&proxied),
        fd(&outer),
        authority.file().display(),
        fd(&clear),
        certificate = certificate.display(),
    );
    // PROXY headers precede the handshake, whatever the protocol.
    for (mode, alpn) in [("http", ""), ("http", "alpn h2"), ("tcp", "")] {
        let config = config.replace("{MODE}", mode).replace("{ALPN}", alpn);
        let _program = Manylane::start(&config);
        let mut client = connect(plain);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let answer = read_all(&mut client);
        assert!(answer.ends_with("1 a.example"), "{mode} {alpn}: {answer}");
    }
    let _program = Manylane::start(&config.replace("{MODE}", "tcp").replace("{ALPN}", ""));
    let url = format!("https://a.example:{}/", address.port());
    let output = curl(&authority, address, "a.example", &["--haproxy-protocol", &url]);
    assert!(text(&output.stdout).starts_with("1 a.example|200"), "{}", text(&output.stderr));
    let to = through.to_string();
    let stranger = Authority::new();
    let foreign = stranger.bundle("client.pem", &["client"]);
    // OpenSSL's number of "unable to verify the first certificate" is 21.
    for (shown, verified) in [(shown, 0), (foreign, 21)] {
        let shown = shown.to_str().unwrap();
        let arguments =
            ["s_client", "-connect", &to, "-servername", "a.example", "-alpn", "two", "-cert", shown];
        openssl(&[&arguments[..], &["-key", shown, "-quiet", "-no_ign_eof"]].concat(), "hello");
        let reported = got.recv_timeout(TIMEOUT).unwrap();
        let header = manylane_net::proxy_protocol::parse(&reported).unwrap();
        let manylane_net::proxy_protocol::Parsed::Complete { header, length } = header else {
            panic!("{reported:?}")
        };
        assert_eq!(&reported[length..], b"hello");
        use manylane_net::proxy_protocol::kind;
        let value = |kind| header.tlvs.value_of(kind).map(text);
        assert_eq!(
            (value(kind::ALPN).as_deref(), value(kind::AUTHORITY).as_deref()),
            (Some("two"), Some("a.example"))
        );
        let tls = header.tlvs.value_of(kind::SSL).unwrap();
        let expected = [b"\x07\0\0\0", &[verified][..], b"\x21\0\x07TLSv1.3\x22\0\x06client"].concat();
        assert_eq!(tls, expected);
    }
}

/// As HAProxy 3.2 sends them, byte for byte.
#[test]
fn servers_are_informed_of_the_certificate_that_the_client_was_shown() {
    let authority = Authority::new();
    let client = authority.bundle("client.pem", &["client"]);
    let client = client.to_str().unwrap();
    let (came, got) = std::sync::mpsc::channel();
    let origin = origin(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        came.send(all).unwrap();
    });
    let kinds = [
        ("ec", &PKCS_ECDSA_P256_SHA256),
        ("p384", &PKCS_ECDSA_P384_SHA384),
        ("rsa", &PKCS_RSA_SHA256),
        ("ed", &PKCS_ED25519),
    ];
    let names = || kinds.iter().map(|(name, _)| *name);
    let fronts: Vec<_> = names().chain(["clear"]).map(|name| (name, listener())).collect();
    let config = |_: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let mut text = format!("global\n stats socket {shown}\n{DEFAULTS} mode tcp\n");
        for ((name, kind), (_, (front, _))) in kinds.iter().zip(&fronts) {
            let own = authority.bundle_of(&format!("{name}.pem"), &["a.example"], kind);
            text += &format!(
                "frontend {name}\n bind {} ssl verify optional ca-file {} crt {}\n default_backend b\n",
                fd(front),
                authority.file().display(),
                own.display(),
            );
        }
        text + &format!(
            "frontend clear\n bind {}\n default_backend b\nbackend b\n \
             server s {origin} send-proxy-v2 proxy-v2-options cert-sig,cert-key,ssl-cipher,cert-cn\n",
            fd(&fronts[kinds.len()].1.0)
        )
    };
    let play = |_: common::watch::Played| {
        let mut fields = Vec::new();
        for (name, (_, address)) in &fronts {
            if *name == "clear" {
                connect(*address).write_all(b"hello").unwrap();
            } else {
                let to = address.to_string();
                let arguments =
                    ["s_client", "-connect", &to, "-quiet", "-no_ign_eof", "-cert", client, "-key", client];
                let cipher = ["-ciphersuites", "TLS_AES_128_GCM_SHA256"];
                openssl(&[&arguments[..], &cipher].concat(), "hello");
            }
            let reported = got.recv_timeout(TIMEOUT).unwrap();
            let header = manylane_net::proxy_protocol::parse(&reported).unwrap();
            let manylane_net::proxy_protocol::Parsed::Complete { header, .. } = header else {
                panic!("{reported:?}")
            };
            let kind = manylane_net::proxy_protocol::kind::SSL;
            fields.push((*name, text(header.tlvs.value_of(kind).unwrap())));
        }
        fields
    };
    let (ours, theirs) = common::watch::both(config, play);
    let (version, cipher) = ("\x21\0\x07TLSv1.3\x22\0\x06client", "\x23\0\x16TLS_AES_128_GCM_SHA256");
    let signature = "\x24\0\x11ecdsa-with-SHA256";
    let expected =
        |(name, key): (&'static str, &str)| (name, format!("\x07\0\0\0\0{version}{key}{signature}{cipher}"));
    let keys = ["\x25\0\x05EC256", "\x25\0\x05EC384", "\x25\0\x07RSA2048", ""];
    let mut all: Vec<_> = names().zip(keys).map(expected).collect();
    all.push(("clear", "\0".repeat(5)));
    assert_eq!(ours, all);
    assert_eq!(theirs.unwrap_or_else(|| ours.clone()), ours);
}

/// R-F3: the cryptography of a handshake runs in the class of heavy tasks, with clients and with servers;
/// requests do not.
#[test]
fn handshakes_run_in_the_class_of_heavy_tasks() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let ((inner, between), (outer, address)) = (listener(), listener());
    let folder = Folder::new();
    let socket = folder.0.join("admin");
    let config = format!(
        "{DEFAULTS} mode http\nglobal\n nbthread 1\n stats socket {}\n\
         frontend f\n bind {}\n default_backend b\n\
         backend b\n http-reuse always\n server s {between} ssl verify none\n\
         frontend g\n bind {} ssl crt {}\n{PAGE}",
        socket.display(),
        fd(&outer),
        fd(&inner),
        certificate.display(),
    );
    let _program = Manylane::start_ready(&config);
    let heavy = || -> u64 {
        let activity = ask(&socket, "show activity 0");
        activity.lines().find_map(|line| line.strip_prefix("tasksw_heavy: ")).unwrap().parse().unwrap()
    };
    // Heavy polls for so many requests over one connection.
    let polls = |scheme: &str, to: SocketAddr, requests: usize| {
        let before = heavy();
        let url = format!("{scheme}://a.example:{}/", to.port());
        let output = curl(&authority, to, "a.example", &vec![&*url; requests]);
        assert_eq!(text(&output.stdout).matches("hello").count(), requests, "{}", text(&output.stderr));
        heavy() - before
    };
    let one = polls("https", between, 1);
    assert!(one > 0, "no handshake is a heavy task");
    let many = polls("https", between, 30);
    assert!(many < one + 10, "30 requests of one connection: {many} heavy polls, one request: {one}");
    let both = polls("http", address, 1);
    assert!(both > one, "both sides of a handshake: {both} heavy polls, its server alone: {one}");
    let reused = polls("http", address, 30);
    assert!(reused < 10, "30 requests over a connection that is there: {reused} heavy polls");
}

#[test]
fn pages_go_over_tls() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (_program, address) = secure(&certificate, "", " stats enable\n stats uri /\n");
    let url = format!("https://a.example:{}/", address.port());
    let output = curl(&authority, address, "a.example", &[&url]);
    assert!(text(&output.stdout).contains("</html>"), "{}", text(&output.stderr));
}

#[test]
fn names_versions_and_ciphers_are_as_the_file_says() {
    let authority = Authority::new();
    let folder = authority.folder.0.join("certificates");
    std::fs::create_dir(&folder).unwrap();
    authority.bundle("certificates/a.pem", &["a.example"]);
    authority.bundle("certificates/b.pem", &["b.example", "*.w.example"]);
    authority.bundle_of("certificates/r.pem", &["a.example"], &PKCS_RSA_SHA256);
    let options = "strict-sni ciphers ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256 \
                   ciphersuites TLS_CHACHA20_POLY1305_SHA256";
    let (_program, address) = secure(&folder, options, PAGE);
    for (name, arguments, good) in [
        ("a.example", &[][..], true),
        ("b.example", &[], true),
        ("x.w.example", &[], true),
        ("c.example", &[], false),
        ("a.example", &["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"], true),
        ("a.example", &["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES256-GCM-SHA384"], false),
        ("a.example", &["--tls13-ciphers", "TLS_AES_128_GCM_SHA256", "--tlsv1.3"], false),
        ("b.example", &["--tls-max", "1.1"], false),
    ] {
        let url = format!("https://{name}:{}/", address.port());
        let output = curl(&authority, address, name, &[arguments, &[&url]].concat());
        assert_eq!(output.status.success(), good, "{name} {arguments:?}: {}", text(&output.stderr));
    }
    let to = address.to_string();
    let shown = openssl(&["s_client", "-connect", &to, "-servername", "x.w.example", "-brief"], "");
    let said = text(&shown.stderr);
    assert!(said.contains("TLSv1.3") && said.contains("TLS_CHACHA20_POLY1305_SHA256"), "{said}");
    assert!(said.contains("b.example"), "{said}");
}

#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (_program, address) = secure(&certificate, "", PAGE);
    let to = address.to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let session = authority.folder.0.join(format!("session{version}"));
        let session = session.to_str().unwrap();
        let ask = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        let arguments = ["s_client", "-connect", &to, "-servername", "a.example", "-ign_eof", version];
        let first = openssl(&[&arguments[..], &["-sess_out", session]].concat(), ask);
        assert!(text(&first.stdout).contains("New, TLSv1"), "{}", text(&first.stdout));
        let second = openssl(&[&arguments[..], &["-sess_in", session]].concat(), ask);
        assert!(text(&second.stdout).contains("Reused, TLSv1"), "{version}: {}", text(&second.stdout));
        assert!(text(&second.stdout).contains("hello"), "{version}");
    }
}

#[test]
fn clients_show_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (good, bad) = (authority.bundle("good.pem", &["client"]), other.bundle("bad.pem", &["client"]));
    let known = authority.file();
    for (verify, shown, accepted) in [
        ("required", Some(&good), true),
        ("required", None, false),
        ("required", Some(&bad), false),
        ("optional", None, true),
        ("optional", Some(&bad), false),
    ] {
        let options = format!("verify {verify} ca-file {}", known.display());
        let (_program, address) = secure(&certificate, &options, PAGE);
        let url = format!("https://a.example:{}/", address.port());
        let mut arguments = vec![&*url];
        if let Some(shown) = shown {
            let shown = shown.to_str().unwrap();
            arguments.extend(["--cert", shown, "--key", shown]);
        }
        let output = curl(&authority, address, "a.example", &arguments);
        assert_eq!(output.status.success(), accepted, "{verify} {shown:?}: {}", text(&output.stderr));
    }
}

#[test]
fn servers_are_verified_and_the_log_tells_why_one_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let server = Server::start(&certificate, &[]);
    let (known, unknown) = (authority.file(), other.file());
    for (options, status, reported) in [
        ("verify none".to_owned(), 200, None),
        (format!("ca-file {}", known.display()), 200, None),
        (format!("ca-file {} sni str(a.example)", known.display()), 200, None),
        (format!("ca-file {} sni req.hdr(x-name)", known.display()), 200, None),
        (format!("ca-file {} verifyhost a.example", known.display()), 200, None),
        (format!("ca-file {} verifyhost b.example", known.display()), 503, Some("not valid for name")),
        (format!("ca-file {} sni str(b.example)", known.display()), 503, Some("not valid for name")),
        (format!("ca-file {} sni str(a.example) verifyhost b.example", known.display()), 200, None),
        (
            format!("ca-file {} sni str(b.example) verifyhost a.example", known.display()),
            503,
            Some("not valid for name"),
        ),
        (format!("ca-file {} sni req.hdr(x-none) verifyhost a.example", known.display()), 200, None),
        (format!("ca-file {}", unknown.display()), 503, Some("UnknownIssuer")),
    ] {
        let (socket, address) = listener();
        let config = format!(
            "{DEFAULTS} mode http\nfrontend f\n bind {}\n default_backend b\n\
             backend b\n retries 0\n server s {} ssl {options}\n",
            fd(&socket),
            server.1
        );
        let (_program, mut said) = Manylane::start_heard(&config, &[]);
        let mut client = connect(address);
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-Name: a.example\r\nConnection: close\r\n\r\n")
            .unwrap();
        let answer = read_all(&mut client);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} "))
                || answer.starts_with(&format!("HTTP/1.0 {status} ")),
            "{options}: {answer}"
        );
        if let Some(reported) = reported {
            let line =
                said.by_ref().map_while(Result::ok).find(|line| line.contains("SSL handshake failure"));
            assert!(
                line.as_ref().is_some_and(|line| line.contains("b/s") && line.contains(reported)),
                "{line:?}"
            );
        }
    }
}

/// `sni-auto`
#[test]
fn names_of_requests_are_asked_for_within_tls() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (inner, between) = listener();
    let (outer, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\n http-reuse safe\nfrontend f\n bind {}\n use_backend %[req.hdr(x-to)]\n\
         backend auto\n default-server ssl verify none sni-auto\n server s {between}\n\
         backend not\n default-server ssl verify none sni-auto\n server s {between} no-sni-auto\n\
         backend own\n default-server ssl verify none sni-auto\n server s {between} sni str(own.example)\n\
         frontend g\n bind {} ssl crt {}\n http-request return status 200 hdr x-name .%[ssl_fc_sni].\n",
        fd(&outer),
        fd(&inner),
        certificate.display(),
    );
    let _program = Manylane::start(&config);
    for (to, host, name) in [
        ("auto", "B.example:8443", ".b.example."),
        ("auto", "c.example", ".c.example."),
        ("auto", "127.0.0.1:80", ".."),
        ("not", "b.example", ".."),
        ("own", "b.example", ".own.example."),
    ] {
        let mut client = connect(address);
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-To: {to}\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let answer = read_all(&mut client);
        assert!(answer.contains(&format!("x-name: {name}\r\n")), "{to} {host}: {answer}");
    }
}

#[test]
fn http2_is_spoken_to_servers_that_agree_on_it() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    for (offered, spoken, version) in [
        ("h2,http/1.1", "h2,http/1.1", "HTTP/2.0"),
        ("h2,http/1.1", "http/1.1", "HTTP/1.1"),
        ("http/1.1", "h2,http/1.1", "HTTP/1.1"),
    ] {
        let (inner, between) = listener();
        let (outer, address) = listener();
        let config = format!(
            "{DEFAULTS} mode http\n\
             frontend f\n bind {}\n default_backend b\n\
             backend b\n http-reuse always\n server s {between} ssl verify none alpn {offered}\n\
             frontend g\n bind {} ssl crt {} alpn {spoken}\n \
             http-request return status 200 content-type text/plain lf-string %HV\n",
            fd(&outer),
            fd(&inner),
            certificate.display(),
        );
        let _program = Manylane::start(&config);
        for _ in 0..3 {
            let mut client = connect(address);
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let answer = read_all(&mut client);
            assert!(answer.ends_with(version), "{offered} {spoken}: {answer}");
        }
    }
}

/// Reads to the end of the connection; returns the alert, if there was one.
fn ends(stream: &mut TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    let _ = stream.read_to_end(&mut came); // a reset is an end, too
    came
}

#[test]
fn what_is_no_tls_and_what_takes_too_long_ends() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    // Without `timeout client-hs`, `timeout client` bounds a handshake. The times of `DEFAULTS` are 30 s.
    for times in ["", "timeout client-hs 300ms", "timeout client 300ms"] {
        let (socket, address) = listener();
        let config = format!(
            "{DEFAULTS} {times}\n mode http\n log stderr local0\n\
             frontend f\n bind {} ssl crt {}\n{PAGE}",
            fd(&socket),
            certificate.display()
        );
        let (_program, mut said) = Manylane::start_heard(&config, &[]);
        let mut reported = |text: &str| {
            let line = said.by_ref().map_while(Result::ok).find(|line| line.contains("SSL handshake"));
            assert!(line.as_ref().is_some_and(|line| line.contains(text)), "{line:?} for {text}");
        };
        if times.is_empty() {
            let mut plain = connect(address);
            plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let came = ends(&mut plain);
            assert!(!text(&came).contains("HTTP"), "{came:?}");
            reported("SSL handshake failure");
            drop(connect(address));
            reported("Connection closed during SSL handshake");
            // Others are served meanwhile.
            let url = format!("https://a.example:{}/", address.port());
            assert!(text(&curl(&authority, address, "a.example", &[&url]).stdout).starts_with("hello|200"));
            continue;
        }
        for part in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let begin = Instant::now();
            let mut slow = connect(address);
            slow.write_all(part).unwrap();
            assert!(ends(&mut slow).is_empty());
            let time = begin.elapsed();
            // A lane's clock may be behind by a millisecond or two.
            assert!(
                (Duration::from_millis(290)..Duration::from_secs(20)).contains(&time),
                "{times}: {time:?}"
            );
            reported("Timeout during SSL handshake");
        }
    }
}

/// OpenSSL reports an end without close_notify as an attack.
#[test]
fn a_client_whose_time_between_requests_is_over_is_informed() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} timeout http-keep-alive 100ms\n mode http\nfrontend f\n bind {} ssl crt {}\n{PAGE}",
        fd(&socket),
        certificate.display()
    );
    let _program = Manylane::start(&config);
    let to = address.to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let arguments = ["s_client", "-connect", &to, "-ign_eof", version];
        let output = openssl(&arguments, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(text(&output.stdout).contains("\r\n\r\nhello"), "{version}");
        let said = text(&output.stderr);
        assert!(!said.contains("unexpected eof") && !said.contains("errno"), "{version}: {said}");
    }
}

#[test]
fn a_reload_takes_new_certificates_and_a_bad_one_changes_nothing() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {}\n{PAGE}",
        fd(&socket),
        certificate.display()
    );
    let (program, mut said) = Manylane::start_heard(&config, &["-V"]);
    let mut wait = |text: &str| {
        let found = said.by_ref().map_while(Result::ok).any(|line| line.contains(text));
        assert!(found, "{text}");
    };
    wait("lanes are ready");
    let works = |name: &str| {
        let url = format!("https://{name}:{}/", address.port());
        text(&curl(&authority, address, name, &[&url]).stdout).starts_with("hello|200")
    };
    assert!(works("a.example") && !works("b.example"));
    std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nnone\n").unwrap();
    program.signal(Signal::SIGHUP);
    wait("Not reloaded");
    assert!(works("a.example") && !works("b.example"));
    authority.bundle("a.pem", &["b.example"]);
    program.signal(Signal::SIGHUP);
    wait("Reloaded");
    let deadline = Instant::now() + TIMEOUT;
    while !works("b.example") {
        assert!(Instant::now() < deadline, "the new certificate is not shown");
    }
}

#[test]
fn what_cannot_be_used_is_reported_with_its_position() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let crt = certificate.display();
    let ca = authority.file();
    for (lines, reported) in [
        ("bind :1 ssl".to_owned(), "no certificate is given: add 'crt <file>'"),
        ("bind :1 ssl crt /none.pem".into(), "'crt' : cannot read '/none.pem': No such file or directory"),
        (format!("bind :1 ssl crt {}", ca.display()), "cannot be used: it has no private key"),
        (format!("bind :1 ssl crt {crt} ciphers RC4"), "'ciphers' : no cipher of 'RC4' is left"),
        (
            format!("bind :1 ssl crt {crt} ssl-max-ver TLSv1.1"),
            "TLSv1.1 is not supported; the oldest version is TLSv1.2",
        ),
        (format!("bind :1 ssl crt {crt} force-tlsv11"), "TLS below 1.2 is broken (RFC 8996), and not supp"),
        (format!("bind :1 ssl crt {crt} verify required"), "clients can be verified with a 'ca-file' or"),
        (format!("bind :1 ssl crt {crt} crt-list /none"), "'crt-list' : cannot read '/none'"),
        (
            format!("bind :1 ssl crt {crt} ocsp-update on"),
            "set it in 'crt-store', 'crt-list' or 'ocsp-update.mode'",
        ),
        ("server s 127.0.0.1:1 ssl".into(), "a server can be verified with a 'ca-file' only"),
    ] {
        let output = check(&format!("{DEFAULTS}listen l\n mode tcp\n {lines}\n"), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reported), "{lines}: {said}");
    }
    for option in ["force-sslv3", "force-tlsv10", "force-tlsv11"] {
        for side in ["bind", "server"] {
            let output = check(&format!("global\n ssl-default-{side}-options {option}\n{DEFAULTS}"), &[]);
            let said = text(&output.stderr);
            let reported = format!("'{option}' : TLS below 1.2 is broken (RFC 8996), and not supported");
            assert!(!output.status.success() && said.contains(&reported), "{said}");
        }
    }
    // Older versions that are allowed, and not spoken: notes, as HAProxy is silent.
    let list = authority.folder.file("old.list", &format!("{crt} [ssl-min-ver TLSv1.1]\n"));
    let old = format!(
        "global\n ssl-default-bind-options ssl-min-ver TLSv1.0\n{DEFAULTS}listen l\n mode tcp\n \
         bind :1 ssl crt {crt}\n bind :2 ssl crt {crt} ssl-min-ver SSLv3\n bind :3 ssl crt-list {}\n \
         server s 127.0.0.1:1 ssl verify none ssl-min-ver TLSv1.1\n",
        list.display()
    );
    let output = check(&old, &["-dW"]);
    let said = text(&output.stderr);
    let end = "is not supported, as TLS below 1.2 is broken (RFC 8996); the oldest is TLSv1.2";
    assert!(output.status.success(), "{said}");
    for (version, count) in [("TLSv1.0", 1), ("SSLv3", 1), ("TLSv1.1", 2)] {
        assert_eq!(said.matches(&format!("{version} {end}")).count(), count, "{said}");
    }
    // The parts of Debian's default file that are about TLS.
    let stock = format!(
        "global\n ca-base /etc/ssl/certs\n crt-base /etc/ssl/private\n \
         ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
         ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:\
         ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384\n \
         ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:\
         TLS_CHACHA20_POLY1305_SHA256\n \
         ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets\n\
         {DEFAULTS} mode http\nfrontend f\n bind :1 ssl crt {crt}\n"
    );
    let output = check(&stock, &["-dW"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn health_checks_speak_tls_with_servers_that_do() {
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let server = Server::start(&certificate, &[]);
    let host = |name: &str| format!(" option httpchk GET / HTTP/1.1\n http-check send hdr host {name}\n");
    for (lines, options, reported) in [
        (
            String::new(),
            format!("ca-file {}", authority.file().display()),
            "succeeded, reason: Layer6 check passed",
        ),
        (
            String::new(),
            format!("ca-file {}", other.file().display()),
            "failed, reason: Layer6 invalid response",
        ),
        (
            host("a.example:8443"),
            format!("ca-file {} check-sni-auto", authority.file().display()),
            "succeeded, reason: Layer7 check passed",
        ),
        (
            host("b.example"),
            format!("ca-file {} check-sni-auto", authority.file().display()),
            "failed, reason: Layer6 invalid response",
        ),
        (
            host("b.example"),
            format!("ca-file {} check-sni-auto no-check-sni-auto", authority.file().display()),
            "succeeded, reason: Layer7 check passed",
        ),
    ] {
        let (socket, _) = listener();
        let config = format!(
            "{DEFAULTS} mode http\n log stderr local0\n option log-health-checks\n\
             frontend f\n bind {}\n\
             backend b\n{lines} server s {} ssl {options} check inter 20s downinter 50ms fall 1 rise 1 \
             init-state down\n",
            fd(&socket),
            server.1
        );
        let (_program, mut said) = Manylane::start_heard(&config, &[]);
        let line = said.by_ref().map_while(Result::ok).find(|line| line.contains("Health check"));
        assert!(line.as_ref().is_some_and(|line| line.contains(reported)), "{line:?}");
    }
}

#[test]
fn samples_tell_of_both_connections() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let shown = authority.bundle("client.pem", &["client"]);
    let (inner, between) = listener();
    let (outer, address) = listener();
    let (clear, plain) = listener();
    let ca = authority.file();
    let config = format!(
        "{DEFAULTS} mode http\n\
         frontend f\n bind {} ssl crt {certificate} alpn http/1.1 verify optional ca-file {ca}\n \
         http-response set-header x-front \"%[ssl_fc] %[ssl_fc_protocol] %[ssl_fc_cipher] %[ssl_fc_sni] \
         %[ssl_fc_has_sni] %[ssl_fc_alpn] %[ssl_fc_is_resumed] %[ssl_fc_alg_keysize] %[ssl_fc_curve] \
         %sslv %sslc\"\n \
         http-response set-header x-client \"%[ssl_c_used] %[ssl_c_verify] %[ssl_c_s_dn] %[ssl_c_s_dn(CN)] \
         %[ssl_c_s_dn(,0,rfc2253)] %[ssl_c_i_dn(CN)] %[ssl_c_sha1,hex] %[ssl_c_serial,hex] %[ssl_c_version] \
         %[ssl_c_sig_alg] %[ssl_c_key_alg] %[ssl_c_notafter]\"\n \
         http-response set-header x-back \"%[ssl_bc] %[ssl_bc_protocol] %[ssl_bc_cipher] %[ssl_bc_alpn] \
         %[ssl_bc_is_resumed] %[ssl_bc_sni] %[ssl_s_s_dn(CN)] %[bc_http_major]\"\n default_backend b\n\
         backend b\n server s {between} ssl ca-file {ca} sni str(a.example) alpn h2\n\
         frontend g\n bind {} ssl crt {certificate}\n{PAGE}\
         frontend h\n bind {}\n http-request redirect scheme https code 301 if !{{ ssl_fc }}\n\
         http-response set-header x-front %[ssl_fc]\n",
        fd(&outer),
        fd(&inner),
        fd(&clear),
        certificate = certificate.display(),
        ca = ca.display(),
    );
    let _program = Manylane::start(&config);
    let url = format!("https://a.example:{}/", address.port());
    let file = shown.to_str().unwrap();
    let ask =
        |more: &[&str]| text(&curl(&authority, address, "a.example", &[more, &["-i", &url]].concat()).stdout);
    let field = |answer: &str, name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {answer}"))
    };
    let answer = ask(&["--cert", file, "--key", file]);
    assert_eq!(
        field(&answer, "x-front"),
        "1 TLSv1.3 TLS_AES_256_GCM_SHA384 a.example 1 http/1.1 0 256 X25519 TLSv1.3 TLS_AES_256_GCM_SHA384"
    );
    let client = field(&answer, "x-client");
    let [hash, serial, date] =
        [["-fingerprint", "-sha1"].as_slice(), &["-serial"], &["-enddate", "-dateopt", "iso_8601"]].map(
            |arguments| {
                let said = openssl(&[&["x509", "-in", file, "-noout"], arguments].concat(), "");
                text(&said.stdout).trim().rsplit_once('=').unwrap().1.replace([':', '-', ' '], "")
            },
        );
    let name = field(&answer, "x-client");
    let issuer = name.split(' ').skip(5).take(2).collect::<Vec<_>>().join(" ");
    assert!(issuer.starts_with("authority "), "{issuer}");
    let expected = format!(
        "1 0 /CN=client/O=Test client O=Test,CN=client {issuer} {hash} {serial} 3 ecdsa-with-SHA256 \
         id-ecPublicKey {}",
        &date[2..]
    );
    assert_eq!(client, expected);
    assert_eq!(field(&answer, "x-back"), "1 TLSv1.3 TLS_AES_256_GCM_SHA384 h2 0 a.example a.example 2");
    let answer = ask(&["--tls-max", "1.2"]);
    assert!(
        field(&answer, "x-front").starts_with("1 TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384 a.example 1 "),
        "{answer}"
    );
    assert_eq!(field(&answer, "x-client").trim(), "0 0");
    let mut client = connect(plain);
    client.write_all(b"GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.to_lowercase().contains("location: https://a.example/x\r\n"), "{answer}");
}

/// Two frontends that speak TLS, the outer one before the inner one, whose answers tell of hellos and chains.
fn hello_config(
    authority: &Authority,
    chain: &Path,
    outer: &str,
    inner: &str,
    between: SocketAddr,
) -> String {
    format!(
        "{} mode http\n http-reuse never\n\
         frontend f\n bind {outer} ssl crt {chain} verify optional ca-file {ca}\n \
         http-response set-header x-lists \"%[ssl_fc_protocol_hello_id] %[ssl_fc_cipherlist_hex] \
         %[ssl_fc_cipherlist_bin(1),hex] %[ssl_fc_cipherlist_str] %[ssl_fc_cipherlist_xxh] \
         %[ssl_fc_extlist_bin,hex] %[ssl_fc_eclist_bin(0),hex] %[ssl_fc_ecformats_bin,hex] \
         %[ssl_fc_sigalgs_bin,hex] %[ssl_fc_supported_versions_bin,hex]\"\n \
         http-response set-header x-client \"%[ssl_c_san] %[ssl_c_chain_der,sha1,hex] %[ssl_fc_early_rcvd] \
         %[ssl_fc_client_early_traffic_secret]\"\n \
         http-response set-header x-chain %[ssl_s_chain_der,sha1,hex]\n \
         http-response set-header x-random %[ssl_bc_server_random,hex]\n \
         http-response set-header x-own-random %[ssl_fc_server_random,hex]\n default_backend b\n\
         backend b\n server s {between} ssl verify none no-ssl-reuse\n\
         frontend g\n bind {inner} ssl crt {chain}\n \
         http-request return status 200 hdr x-inner %[ssl_fc_server_random,hex]\n",
        DEFAULTS.replacen("global\n", "global\n tune.ssl.capture-buffer-size 100\n tune.ssl.keylog on\n", 1),
        chain = chain.display(),
        ca = authority.file().display(),
    )
}

/// The fields that [`hello_config`] adds, for clients of both versions, and with a list that is too long.
fn reported_hellos(authority: &Authority, address: SocketAddr) -> Vec<String> {
    let shown = authority.bundle("client.pem", &["client", "*.example", "127.0.0.1", "::1"]);
    let [shown, ca] = [shown, authority.file()].map(|file| file.to_str().unwrap().to_owned());
    let address = address.to_string();
    let own = ["-cert", &shown, "-key", &shown, "-cert_chain", &ca];
    let mut all = Vec::new();
    for more in [
        &[&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256:AES256-SHA"][..], &own].concat()[..],
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", "-groups", "P-521:X25519"],
        &["-tls1_2", "-cipher", "ALL"],
    ] {
        let arguments = [&["s_client", "-quiet", "-connect", &address][..], more].concat();
        let answer = text(
            &openssl(&arguments, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").stdout,
        );
        let field = |name: &str| {
            let begin = format!("{name}: ");
            let line = answer.lines().find_map(|line| line.strip_prefix(&begin)).map(str::trim);
            line.unwrap_or_else(|| panic!("no {name} in {answer}")).to_owned()
        };
        assert_eq!(field("x-random"), field("x-inner"));
        assert_eq!(field("x-own-random").len(), 64);
        assert_ne!(field("x-own-random"), field("x-random"));
        all.extend(["x-lists", "x-client", "x-chain"].map(field));
    }
    all
}

#[test]
fn samples_tell_of_hellos_and_chains_as_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let both = [certificate, authority.file()].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let chain = authority.folder.file("chain.pem", &both);
    let (inner, between) = listener();
    let (outer, address) = listener();
    let _program = Manylane::start(&hello_config(&authority, &chain, &fd(&outer), &fd(&inner), between));
    let ours = reported_hellos(&authority, address);
    let first: Vec<&str> = ours[0].split(' ').collect();
    let ciphers = "C02B003500FF";
    let names = "ECDHE-ECDSA-AES128-GCM-SHA256,AES256-SHA,TLS_EMPTY_RENEGOTIATION_INFO_SCSV";
    assert_eq!(first[..4], ["771", ciphers, ciphers, names]);
    let names = "DNS:client, DNS:*.example, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1 ";
    assert!(ours[1].starts_with(names), "{ours:?}");
    assert!(ours[3].starts_with("771 130100FF "), "{ours:?}");
    let [address, between] = [(); 2].map(|()| common::own_address());
    let config = hello_config(&authority, &chain, &address.to_string(), &between.to_string(), between);
    if let Some(_haproxy) = Haproxy::start(&authority.folder.file("haproxy.cfg", &config)) {
        until(|| TcpStream::connect(address).is_ok());
        assert_eq!(reported_hellos(&authority, address), ours);
    }
}
