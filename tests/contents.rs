//! Inspected contents and stored bodies: `tcp-request content`, `option http-buffer-request`, `retry-on`
//! (R-G1). `differential/` compares the common behaviour with HAProxy; here are cases with more than one step
//! of a client.

use crate::common;

use common::watch::until;
use common::{DEFAULTS, Manylane, connect, fd, listener, named, origin, read_all};
use manylane_tests::sockets::{ESTABLISHED, sockets};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// A client names its backend byte by byte, so that rules wait for each byte.
#[test]
fn rules_wait_for_the_bytes_that_they_ask_for() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\nfrontend f\n bind {}\n tcp-request inspect-delay 30s\n \
         tcp-request content reject if {{ req.payload(0,6) -m str second }}\n tcp-request content accept if \
         {{ req.len ge 6 }}\n \
         use_backend b if {{ req.payload(0,6) -m str third. }}\n default_backend a\n\
         backend a\n server a {}\nbackend b\n server b {}\n",
        fd(&socket),
        named("a"),
        named("b")
    ));
    for (text, answer) in [("first.", "a"), ("second", ""), ("third.", "b")] {
        let mut client = connect(address);
        client.set_nodelay(true).unwrap();
        for byte in text.bytes() {
            client.write_all(&[byte]).unwrap();
        }
        assert_eq!(read_all(&mut client), answer, "{text}");
    }
}

/// Waits until the other end's system has acknowledged all that this socket has sent.
fn until_delivered(client: &TcpStream) {
    let port = client.local_addr().unwrap().port();
    until(|| sockets(ESTABLISHED, Some(port), None).iter().any(|own| own.unsent == 0));
}

/// When `http-request reject` ends a connection, up to 64 KiB of what the client has sent are read, so that
/// it sees an end. A client that has sent more gets a reset: the rest stays unread. The bytes are in the
/// socket before the program accepts, so it never waits for any. Without the bound, epoll would read 256 KiB
/// in one round. io_uring may have received 640 KiB by then.
#[test]
fn of_what_a_rejected_client_has_sent_a_part_is_read() {
    const RESET: Option<ErrorKind> = Some(ErrorKind::ConnectionReset);
    for (driver, sent, end) in [
        ("epoll", 48 << 10, None),
        ("epoll", 160 << 10, RESET),
        ("io_uring", 48 << 10, None),
        ("io_uring", 2 << 20, RESET),
    ] {
        let (socket, address) = listener();
        // The kernel doubles the size, and counts more than the bytes.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).is_err() {
            return println!("NOT SHOWN HERE: only root has a receive buffer of this size");
        }
        let mut client = connect(address);
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
        client.write_all(&[head.as_bytes(), &vec![b'x'; sent]].concat()).unwrap();
        until_delivered(&client);
        let config = format!("{DEFAULTS} mode http\nlisten l\n bind {}\n http-request reject\n", fd(&socket));
        let _program = Manylane::start_as(&config, |command| {
            command.env("MANYLANE_DRIVER", driver);
        });
        let observed = client.read(&mut [0]);
        assert_eq!(
            observed.as_ref().err().map(std::io::Error::kind),
            end,
            "{driver}, {sent} bytes: {observed:?}"
        );
        assert_eq!(observed.unwrap_or(0), 0);
    }
}

/// The server name of a TLS handshake selects the backend, which gets all bytes.
#[test]
fn a_backend_is_chosen_by_the_name_in_a_handshake() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let server = origin(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        tell.lock().unwrap().send(all).unwrap();
    });
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\nfrontend f\n bind {}\n tcp-request inspect-delay 30s\n \
         tcp-request content accept if {{ req.ssl_hello_type 1 }}\n use_backend a if {{ req.ssl_sni -i \
         a.example }}\n\
         backend a\n server a {server}\n",
        fd(&socket)
    ));
    let name = b"a.example";
    let mut extension = vec![0, 0, 0, name.len() as u8 + 5, 0, name.len() as u8 + 3, 0, 0, name.len() as u8];
    extension.extend_from_slice(name);
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0, 0, extension.len() as u8]);
    body.extend_from_slice(&extension);
    let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend_from_slice(&body);
    let mut client = connect(address);
    let (first, second) = hello.split_at(hello.len() / 2);
    client.write_all(first).unwrap();
    client.write_all(second).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receiver.recv().unwrap(), hello);
}

/// Reads a request's head and `body` bytes of its body.
fn request(stream: &TcpStream, body: usize) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            break;
        }
    }
    let mut bytes = vec![0; body];
    reader.read_exact(&mut bytes).unwrap();
    (head, bytes)
}

/// The first connection reads `first` bytes of the body and closes; the second one responds with the body.
fn leaves_once(first: usize, whole: usize) -> (SocketAddr, mpsc::Receiver<()>) {
    let count = AtomicUsize::new(0);
    let (tell, receiver) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let server = origin(move |mut stream| {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            request(&stream, first);
            drop(stream);
            tell.lock().unwrap().send(()).unwrap();
            return;
        }
        let (_, body) = request(&stream, whole);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&body);
    });
    (server, receiver)
}

/// R-G1: a server closes amid a request body. The received part is sent to the next server, then the rest.
#[test]
fn a_body_that_is_still_coming_is_sent_to_another_server_from_its_beginning() {
    let (socket, address) = listener();
    let (server, left) = leaves_once(5, 10);
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n retries 2\n retry-on empty-response\n server s \
            {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\n01234")
        .unwrap();
    left.recv().unwrap();
    client.write_all(b"56789").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n0123456789"), "{answer}");
}

/// A body that does not fit a buffer is not stored, so the request is not retried.
#[test]
fn a_body_that_is_longer_than_a_buffer_is_sent_once() {
    const LONG: usize = 100_000;
    let (socket, address) = listener();
    let (server, _left) = leaves_once(LONG, LONG);
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n retries 2\n retry-on all-retryable-errors\n server s \
            {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(format!("{LONG:x}\r\n").as_bytes()).unwrap();
    client.write_all(&vec![b'x'; LONG]).unwrap();
    client.write_all(b"\r\n0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

/// As many bytes as a buffer has are stored, with what frames them, and not one more.
#[test]
fn a_body_of_a_buffer_is_sent_again_and_a_longer_one_is_not() {
    for (bytes, status) in [(16_384, 200), (16_385, 502)] {
        let framing = "4000\r\n\r\n0\r\n\r\n".len();
        let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", bytes - framing, "x".repeat(bytes - framing));
        for (framing, body) in [
            (format!("Content-Length: {bytes}"), "x".repeat(bytes)),
            ("Transfer-Encoding: chunked".to_owned(), chunked),
        ] {
            assert_eq!(body.len(), bytes);
            let (socket, address) = listener();
            let (server, _left) = leaves_once(bytes, bytes);
            let _program = Manylane::start(&format!(
                "{DEFAULTS} mode http\nlisten l\n bind {}\n retries 2\n retry-on all-retryable-errors\n \
                 server s {server}\n",
                fd(&socket)
            ));
            let mut client = connect(address);
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\nConnection: close\r\n\r\n");
            client.write_all(head.as_bytes()).unwrap();
            client.write_all(body.as_bytes()).unwrap();
            let answer = read_all(&mut client);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}, {framing}: {answer:.40}");
        }
    }
}

/// `option http-buffer-request`: the server gets nothing until the body is complete, and rules see all of it.
#[test]
fn a_buffered_body_is_whole_before_a_rule_looks() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n option http-buffer-request\n \
         http-request return status 200 content-type text/plain lf-string \"%[req.body] %[req.body_len] \
         %[req.body_size]\"\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client.set_nodelay(true).unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        .unwrap();
    for byte in b"a body" {
        client.write_all(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']).unwrap();
    }
    client.write_all(b"0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.ends_with("\r\n\r\na body 6 6"), "{answer}");
}

/// A capture takes the first data and does not wait for the whole delay.
#[test]
fn a_capture_does_not_hold_up_the_rules_behind_it() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\nfrontend f\n bind {}\n tcp-request inspect-delay 1h\n \
         tcp-request content capture req.payload(0,0) len 5\n tcp-request content reject if {{ \
         req.proto_http }}\n \
         tcp-request content accept if {{ req.len ge 3 }}\n default_backend b\nbackend b\n server s {}\n",
        fd(&socket),
        named("here"),
    ));
    for (text, answer) in [("GET / HTTP/1.0\r\n\r\n", ""), ("\x16bc", "here")] {
        let mut client = connect(address);
        client.write_all(text.as_bytes()).unwrap();
        assert_eq!(read_all(&mut client), answer, "{text}");
    }
}
