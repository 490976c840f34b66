//! A panic ends only the stream that caused it, not the process.

use crate::common;

use common::watch::{Syslog, ask, until};
use common::{Folder, Manylane, ONE_LANE, connect, end_of, fd, listener, origin, read_all};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::process::Stdio;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// After a panic, a stream that waits for its server gets 500; one amid its response, or in TCP mode, is
/// reset. Each has its log line. Permits, counters and other streams are as after any other end, and the
/// process stops normally.
#[test]
fn a_panic_ends_its_stream_and_nothing_else() {
    let silent = origin(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let half = origin(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let log = Syslog::new();
    let folder = Folder::new();
    let socket = folder.0.join("cli");
    let ((web, address), (plain, plain_address)) = (listener(), listener());
    let (said, mut says) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let mut program = Manylane::start_as(
        &format!(
            "global\n log {} local0\n stats socket {} level admin\n{ONE_LANE} mode http\n log \
                global\n option httplog\n retries 0\n\
             frontend web\n bind {}\n use_backend half if {{ path /half }}\n default_backend silent\n\
             backend silent\n server a {silent} maxconn 1\nbackend half\n server h {half}\n\
             listen plain\n mode tcp\n option tcplog\n bind {}\n server p {silent}\n",
            log.address(),
            socket.display(),
            fd(&web),
            fd(&plain),
        ),
        |command| {
            // The pipe has to hold all output until it is read.
            command.stderr(Stdio::from(said)).env_remove("RUST_BACKTRACE");
        },
    );
    until(|| socket.exists());
    // Finds the stream in `show sess` and makes it panic.
    let panics = |words: &str| {
        let mut number = String::new();
        until(|| {
            let shown = ask(&socket, "show sess");
            let line = shown.lines().find(|line| line.contains(words));
            line.map(|line| number = line.split(':').next().unwrap().to_owned()).is_some()
        });
        assert!(
            ask(&socket, &format!("debug dev panic {number}")).contains("expects 'expert-mode on' before it")
        );
        assert_eq!(ask(&socket, &format!("expert-mode on; debug dev panic {number}")).trim(), "");
    };

    let (mut first, mut second) = (connect(address), connect(address));
    first.write_all(REQUEST).unwrap();
    until(|| ask(&socket, "show sess").contains("srv=a "));
    second.write_all(REQUEST).unwrap();
    until(|| ask(&socket, "show sess").contains("state=queue"));
    panics("srv=a ");
    assert!(read_all(&mut first).starts_with("HTTP/1.1 500 "));
    let line = log.wait(" silent/a ");
    assert!(line.contains(" 500 ") && line.contains(" IH-- "), "{line}");

    // Its permit is free again.
    panics("srv=a ");
    assert!(read_all(&mut second).starts_with("HTTP/1.1 500 "));
    log.wait(" silent/a ");

    let mut amid = connect(address);
    amid.write_all(b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut came = Vec::new();
    while !came.ends_with(b"half") {
        let mut byte = [0];
        amid.read_exact(&mut byte).unwrap();
        came.push(byte[0]);
    }
    panics("srv=h ");
    assert_eq!(end_of(&mut amid), Err(std::io::ErrorKind::ConnectionReset));
    assert!(log.wait(" half/h ").contains(" ID-- "));

    let mut tunnel = connect(plain_address);
    tunnel.write_all(b"something").unwrap();
    panics("srv=p ");
    assert_eq!(end_of(&mut tunnel), Err(std::io::ErrorKind::ConnectionReset));
    assert!(log.wait(" plain/p ").contains(" ID "));

    let counts = ask(&socket, "show stat");
    let of = |proxy: &str, name: &str, column: &str| {
        let mut lines = counts.lines();
        let index =
            lines.next().unwrap().split(',').position(|own| own.trim_start_matches("# ") == column).unwrap();
        let line = lines.find(|line| line.starts_with(&format!("{proxy},{name},"))).unwrap();
        line.split(',').nth(index).unwrap().to_owned()
    };
    for proxy in ["silent", "half", "plain"] {
        assert_eq!(of(proxy, "BACKEND", "scur"), "0", "{proxy}");
    }
    assert_eq!([of("silent", "BACKEND", "eint"), of("web", "FRONTEND", "eint")], ["2", "3"]);
    assert_eq!(of("silent", "a", "scur"), "0");

    program.signal(Signal::SIGUSR1);
    assert!(program.wait().success(), "it ends as it was told to, when all sessions are over");
    let mut said = String::new();
    says.read_to_string(&mut said).unwrap();
    let reported =
        said.lines().filter(|line| line.contains("A defect of this program was met at crates/")).count();
    assert_eq!(reported, 4, "{said}");
}
