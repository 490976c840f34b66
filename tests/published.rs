//! Backends that frontends pass over (item 59 of haproxy-today, which HAProxy 3.2 has not).

use crate::common;

use common::watch::ask;
use common::{DEFAULTS, Folder, Manylane, connect, echo, fd, listener, read_all};
use std::io::Write;
use std::net::SocketAddr;

/// The status of the answer to a request.
fn get(address: SocketAddr, path: &str) -> u16 {
    let mut client = connect(address);
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    read_all(&mut client)[9..12].parse().unwrap()
}

#[test]
fn frontends_pass_unpublished_backends_over() {
    let (folder, (socket, address), (bytes, tcp)) = (Folder::new(), listener(), listener());
    let cli = folder.0.join("cli");
    let _program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS}\
            frontend f\n mode http\n bind {}\n use_backend %[path,word(2,/)] if {{ path_beg /named/ }}\n \
            use_backend one if {{ path_beg /ab }}\n use_backend two if {{ path_beg /ab }}\n \
            force-be-switch if {{ path_end /forced }}\n default_backend three\n\
            frontend g\n mode tcp\n bind {}\n default_backend four\n\
            backend one\n mode http\n be-unpublished\n http-request return status 201\n\
            backend two\n mode http\n http-request return status 202\n\
            backend three\n mode http\n http-request return status 203\n\
            backend four\n mode tcp\n server s {}\n\
            backend off\n mode http\n disabled\n",
        cli.display(),
        fd(&socket),
        fd(&bytes),
        echo()
    ));
    let said = |line: &str| ask(&cli, line).trim().to_owned();
    assert_eq!(
        ["/ab", "/ab/forced", "/", "/named/one", "/named/two"].map(|path| get(address, path)),
        [202, 201, 203, 203, 202]
    );
    assert_eq!(said("publish backend one"), "Backend published.");
    assert_eq!(["/ab", "/named/one"].map(|path| get(address, path)), [201, 201]);
    for (name, answer) in [
        ("one", "Backend unpublished."),
        ("two", "Backend unpublished."),
        ("three", "Backend unpublished."),
        ("four", "Backend unpublished."),
        ("off", "No effect on a disabled backend."),
        ("none", "No such backend."),
        ("", "No such backend."),
    ] {
        assert_eq!(said(&format!("unpublish backend {name}")), answer);
    }
    assert_eq!(["/ab", "/ab/forced", "/"].map(|path| get(address, path)), [503, 201, 503]);
    let mut client = connect(tcp);
    client.write_all(b"hello").unwrap();
    assert_eq!(read_all(&mut client), "");
    // A reload keeps what a command has set.
    let _ = said("reload");
    assert_eq!(["/ab", "/"].map(|path| get(address, path)), [503, 503]);
    assert_eq!(said("publish backend two"), "Backend published.");
    assert_eq!(get(address, "/ab"), 202);
}

#[test]
fn settings_of_unpublished_backends_are_checked() {
    for (lines, said) in [
        ("backend b\n mode http\n be-unpublished now\n", "'be-unpublished'"),
        ("frontend f\n mode http\n bind 127.0.0.1:1\n force-be-switch\n", "'force-be-switch'"),
        (
            "frontend f\n mode http\n bind 127.0.0.1:1\n force-be-switch x if TRUE\n",
            "expects 'if' or 'unless'",
        ),
    ] {
        let output = common::check(&format!("{DEFAULTS}{lines}"), &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{lines}: {text}");
    }
}
