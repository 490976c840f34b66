//! Fingerprints of clients by converters, as docs/tls.md has them, and errors of hellos that were changed.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::DEFAULTS;
use common::watch::{Played, both, until};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// The lines of the example in docs/tls.md that compute fingerprints.
fn example() -> String {
    let page = include_str!("../docs/tls.md");
    let lines = page.lines().skip_while(|line| !line.contains("set-var-fmt(txn.offers)"));
    lines.take_while(|line| !line.contains("http-request deny")).map(|line| format!("{line}\n")).collect()
}

/// The format that the example gives a variable, with those of other variables in their places: a log line of
/// a refused hello has no variables, as no rule has run.
fn format_of(variable: &str) -> String {
    let page = example();
    let (_, format) = page.split_once(&format!("(txn.{variable}) \"")).unwrap();
    let (format, _) = format.split_once('"').unwrap();
    let mut parts = format.split("%[var(txn.");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let (variable, rest) = part.split_once(")]").unwrap();
        text + &format_of(variable) + rest
    })
}

/// The lists of a hello in one record: version, cipher suites, extensions, groups, formats of points,
/// signature algorithms.
fn lists(hello: &[u8]) -> [Vec<u16>; 6] {
    let pairs = |bytes: &[u8]| bytes.chunks(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
    let mut at = 5 + 4;
    let mut take = |len: usize| {
        at += len;
        &hello[at - len..at]
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let version = pairs(take(2));
    take(32);
    let session = number(take(1));
    take(session);
    let ciphers = number(take(2));
    let ciphers = pairs(take(ciphers));
    let compressions = number(take(1));
    take(compressions);
    let mut left = number(take(2));
    let [mut extensions, mut groups, mut formats, mut signatures] = [const { Vec::new() }; 4];
    while left > 0 {
        let kind = number(take(2)) as u16;
        let len = number(take(2));
        let body = take(len);
        left -= 4 + len;
        extensions.push(kind);
        match kind {
            10 => groups = pairs(&body[2..]),
            11 => formats = body[1..].iter().map(|byte| u16::from(*byte)).collect(),
            13 => signatures = pairs(&body[2..]),
            _ => {}
        }
    }
    [version, ciphers, extensions, groups, formats, signatures]
}

fn digest(name: &str, of: &str) -> String {
    let reported = text(&openssl(&["dgst", name, "-r"], of).stdout);
    reported.split(' ').next().unwrap().to_owned()
}

fn hex(list: &[u16]) -> String {
    list.iter().map(|n| format!("{n:04x}")).collect::<Vec<_>>().join(",")
}

/// Connects as soon as a program listens.
fn open(front: &str) -> UnixStream {
    let mut socket = None;
    until(|| {
        socket = UnixStream::connect(front).ok();
        socket.is_some()
    });
    socket.unwrap()
}

/// Sends a hello and a request, and returns the hello and the response.
fn visit(client: &Arc<ClientConfig>, front: &str) -> (Vec<u8>, String) {
    let mut socket = open(front);
    // rustls draws the order of extensions. HAProxy leaves out the last one if it has no body.
    let (mut tls, hello) = loop {
        let mut tls = ClientConnection::new(client.clone(), "a.example".try_into().unwrap()).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        if !hello.ends_with(&[0, 0]) {
            break (tls, hello);
        }
    };
    socket.write_all(&hello).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // whether the end is told is another question
    (hello, text(&answer))
}

#[test]
fn fingerprints_of_the_page_are_those_of_the_hellos() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let config = |_: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let global = format!("global\n stats socket {shown}\n tune.ssl.capture-buffer-size 200\n");
        format!(
            "{}\nfrontend f\n mode http\n bind unix@{shown}.f ssl crt {}\n{} http-request return status 200 \
             hdr x-lists %[var(txn.ja3)] hdr x-ja3 %[req.hdr(x-ja3)] \
             hdr x-c %[req.hdr(x-ciphers)] hdr x-e %[req.hdr(x-extensions)]\n",
            DEFAULTS.replacen("global\n", &global, 1),
            certificate.display(),
            example(),
        )
    };
    let mut roots = RootCertStore::empty();
    roots.add(authority.own.der().to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13], rustls::ALL_VERSIONS] {
            let config = ClientConfig::builder_with_provider(provider.clone());
            let config = config.with_protocol_versions(versions).unwrap();
            let config = config.with_root_certificates(roots.clone()).with_no_client_auth();
            let (hello, answer) = visit(&Arc::new(config), &front);
            let [version, ciphers, extensions, groups, formats, signatures] = lists(&hello);
            let ja3 = [version, ciphers.clone(), extensions.clone(), groups, formats]
                .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("-"));
            let field = |name: &str| {
                let line = answer.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_else(|| panic!("no {name} in {answer}")).trim().to_owned()
            };
            assert_eq!(field("x-lists:"), ja3.join(","));
            assert_eq!(field("x-ja3:"), digest("-md5", &ja3.join(",")));
            assert_eq!(field("x-c:"), digest("-sha256", &hex(&ciphers))[..12]);
            let both = format!("{}_{}", hex(&extensions), hex(&signatures));
            assert_eq!(field("x-e:"), digest("-sha256", &both)[..12]);
        }
    };
    both(config, play);
}

/// The first example in the README of JA3, with GREASE (RFC 8701) in between, which does not count.
#[test]
fn the_ja3_of_a_refused_hello_is_the_known_one() {
    let sized = |width: usize, body: &[u8]| [&body.len().to_be_bytes()[8 - width..], body].concat();
    let pairs = |list: &[u16]| list.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let suites = pairs(&[0x0a0a, 47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4]);
    let name = [&[0][..], &sized(2, b"a.example")].concat();
    let extensions = [
        [&[0x1a, 0x1a][..], &sized(2, &[])].concat(),
        [&[0, 0][..], &sized(2, &sized(2, &name))].concat(),
        [&[0, 10][..], &sized(2, &sized(2, &pairs(&[0x2a2a, 23, 24, 25])))].concat(),
        [&[0, 11][..], &sized(2, &sized(1, &[0]))].concat(),
    ]
    .concat();
    let body = [&[3, 1][..], &[7; 32], &[0], &sized(2, &suites), &[1, 0], &sized(2, &extensions)].concat();
    let hello = [&[22, 3, 1][..], &sized(2, &[&[1][..], &sized(3, &body)].concat())].concat();
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let ja3 = format_of("ja3");
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let global = format!(
            "global\n stats socket {shown}\n log {} local0\n tune.ssl.capture-buffer-size 200\n",
            log.address()
        );
        format!(
            "{} log global\nfrontend f\n mode http\n bind unix@{shown}.f ssl crt {}\n \
             error-log-format \"failed {ja3}\"\n",
            DEFAULTS.replacen("global\n", &global, 1),
            certificate.display(),
        )
    };
    let play = |played: Played| {
        let mut socket = open(&format!("{}.f", played.socket.display()));
        socket.write_all(&hello).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let line = played.log.wait("failed");
        line.split_once("failed ").unwrap().1.to_owned()
    };
    let (ours, theirs) = both(config, play);
    assert_eq!(digest("-md5", &ours), "ada70206e40642a3e4461f35503241d5", "{ours}");
    theirs.into_iter().for_each(|theirs| assert_eq!(ours, theirs));
}

/// An extension of the hello (RFC 7627) is hidden from the server, so both ends have seen other hellos, as
/// their Finished messages tell; or a byte of the encrypted message is changed.
#[test]
fn finished_messages_that_are_wrong_are_reported_in_the_words_of_openssl() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let config = |log: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let global = format!("global\n stats socket {shown}\n log {} local0\n", log.address());
        format!(
            "{} log global\nfrontend f\n mode http\n bind unix@{shown}.f ssl crt {}\n \
             error-log-format \"failed %[ssl_fc_err] [%{{+Q}}[ssl_fc_err_str]]\"\n",
            DEFAULTS.replacen("global\n", &global, 1),
            certificate.display(),
        )
    };
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        let mut said = Vec::new();
        for (version, hides) in [("-tls1_2", true), ("-tls1_2", false), ("-tls1_3", false)] {
            let between = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = between.local_addr().unwrap().to_string();
            let mut server = open(&front);
            let changing = std::thread::spawn(move || {
                let (mut client, _) = between.accept().unwrap();
                let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let backwards = std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let mut head = [0; 5];
                let (mut is_first, mut is_encrypted) = (true, false);
                while client.read_exact(&mut head).is_ok() {
                    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
                    client.read_exact(&mut body).unwrap();
                    match body.windows(4).position(|four| four == [0, 23, 0, 0]) {
                        Some(at) if hides && is_first => body[at] = 0xff,
                        // The Finished message, behind the change of ciphers.
                        _ if !hides && is_encrypted => *body.last_mut().unwrap() ^= 1,
                        _ => {}
                    }
                    is_first = false;
                    is_encrypted |= head[0] == 20;
                    if server.write_all(&[&head[..], &body].concat()).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(Shutdown::Both);
                backwards.join().unwrap();
            });
            openssl(&["s_client", "-connect", &address, version, "-quiet"], "GET / HTTP/1.0\r\n\r\n");
            changing.join().unwrap();
            let line = played.log.wait("failed");
            said.push(line.split_once("failed ").unwrap().1.to_owned());
        }
        said
    };
    let (ours, theirs) = both(config, play);
    assert!(ours[0].contains("digest check failed"), "{ours:?}");
    assert!(ours[1].contains("bad record mac") && ours[2].contains("bad record mac"), "{ours:?}");
    // With TLS 1.2, OpenSSL tells of a failed cipher first, and of the record behind that.
    let compared = |reported: &[String]| [reported[0].clone(), reported[2].clone()];
    theirs.into_iter().for_each(|theirs| assert_eq!(compared(&ours), compared(&theirs)));
}
