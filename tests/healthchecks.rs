//! `healthcheck` sections, which servers name (item 54 of haproxy-today, which HAProxy 3.2 has not).

use crate::common;

use common::watch::ask;
use common::{DEFAULTS, Folder, Manylane, fd, listener, origin};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

/// An origin that reports the first bytes of each connection and sends `answer`.
fn heard(answer: &'static [u8]) -> (SocketAddr, Receiver<String>) {
    let (tell, receiver) = channel();
    let tell = std::sync::Mutex::new(tell);
    let address = origin(move |mut stream| {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).unwrap();
        let _ = tell.lock().unwrap().send(String::from_utf8_lossy(&bytes[..count]).into_owned());
        let _ = stream.write_all(answer);
    });
    (address, receiver)
}

#[test]
fn servers_are_checked_as_the_section_says_that_they_name() {
    let (folder, (socket, _)) = (Folder::new(), listener());
    let cli = folder.0.join("cli");
    let (usual, usually) = heard(b"HTTP/1.0 200 OK\r\n\r\n");
    let (web, of_web) = heard(b"HTTP/1.0 204 No Content\r\n\r\n");
    let (bytes, of_bytes) = heard(b"+WORLD\r\n");
    let _program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\n\
            healthcheck web\n type httpchk GET /health\n http-check expect status 204\n\
            healthcheck bytes\n type tcp-check\n tcp-check send hello\n tcp-check expect string WORLD\n\
            frontend f\n bind {}\n default_backend b\n\
            backend b\n option httpchk HEAD /\n timeout check 60s\n default-server inter 1s check\n \
            server a {usual}\n server b {web} healthcheck web\n server c {bytes} healthcheck bytes\n \
            server d {usual} healthcheck web\n",
        cli.display(),
        fd(&socket)
    ));
    assert_eq!(of_web.recv().unwrap(), "GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(of_bytes.recv().unwrap(), "hello");
    let mut requested = [usually.recv().unwrap(), usually.recv().unwrap()];
    while requested[0] == requested[1] {
        requested[1] = usually.recv().unwrap();
    }
    requested.sort();
    assert_eq!(requested, ["GET /health HTTP/1.0\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n"]);
    let status = || {
        let stat = ask(&cli, "show stat b 4 -1");
        let column = |line: &str, at: usize| line.split(',').nth(at).unwrap().to_owned();
        let lines = stat.lines().skip(1).filter(|line| !line.is_empty());
        lines.map(|line| (column(line, 1), column(line, 36))).collect::<Vec<_>>()
    };
    let wanted = [("a", "L7OK"), ("b", "L7OK"), ("c", "L7OK"), ("d", "L7STS")];
    common::watch::until(|| {
        let status = status();
        wanted.iter().all(|(name, word)| {
            status.iter().any(|(own, said)| own == name && said.trim_start_matches("* ") == *word)
        })
    });
}

#[test]
fn sections_of_health_checks_are_checked() {
    for (lines, said) in [
        (
            "healthcheck a\n http-check expect status 200\n",
            "'healthcheck a' expects a 'type' line, found none",
        ),
        ("healthcheck a\n type frob\n", "'type' expects one of httpchk, ldap-check, "),
        ("healthcheck a\n type tcp-check x\n", "found 2 arguments"),
        (
            "healthcheck a\n type tcp-check\nhealthcheck a\n type tcp-check\n",
            "'healthcheck' expects a name of its own, found 'a'",
        ),
        ("backend b\n server s 127.0.0.1:1 check healthcheck none\n", "'none'"),
        ("backend b\n type tcp-check\n", "'type'"),
    ] {
        let output = common::check(&format!("{DEFAULTS} mode http\n{lines}"), &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{lines}: {text}");
    }
}
