//! Bodies that bypass their readers: spliced chunks, and bodies that a client must not get (items 20 and 22
//! of haproxy-today).

use crate::common;

use common::watch::ask;
use common::{DEFAULTS, Folder, Manylane, TIMEOUT, connect, fd, listener, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// Bytes of a body: more than one read takes, and more than what a splice is worth.
const LONG: usize = 300_000;

/// Reads a head.
fn head(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return None;
        }
    }
    Some(head)
}

/// An origin that reads bodies of one chunk and answers with one chunk, or as the path says.
fn chunks(connections: Arc<AtomicUsize>) -> SocketAddr {
    origin(move |mut stream| {
        connections.fetch_add(1, Ordering::SeqCst);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(head) = head(&mut reader) {
            if head.to_ascii_lowercase().contains("transfer-encoding") {
                let mut body = vec![0; chunked().len()];
                reader.read_exact(&mut body).unwrap();
                assert_eq!(body, chunked());
            }
            let (framing, body) = if head.contains(" /length ") {
                (format!("Content-Length: {LONG}"), vec![b'b'; LONG])
            } else {
                ("Transfer-Encoding: chunked".to_owned(), chunked())
            };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).unwrap();
            if stream.write_all(&body).is_err() {
                return;
            }
        }
    })
}

fn chunked() -> Vec<u8> {
    let mut body = format!("{LONG:x}\r\n").into_bytes();
    body.resize(body.len() + LONG, b'a');
    body.extend(b"\r\n3\r\nend\r\n0\r\n\r\n");
    body
}

#[test]
fn chunks_are_spliced_where_the_configuration_says_so() {
    let (folder, (socket, address)) = (Folder::new(), listener());
    let cli = folder.0.join("cli");
    let _program = Manylane::start(&format!(
        "global\n stats socket {}\n{DEFAULTS} mode http\n option splice-request\n option \
            splice-response\nfrontend f\n bind {}\n default_backend b\nbackend b\n server s {}\n",
        cli.display(),
        fd(&socket),
        chunks(Arc::default())
    ));
    let mut client = BufReader::new(connect(address));
    for _ in 0..3 {
        let mut request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        request.extend(chunked());
        client.get_mut().write_all(&request).unwrap();
        let head = head(&mut client).unwrap();
        assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
        let mut body = vec![0; chunked().len()];
        client.read_exact(&mut body).unwrap();
        assert!(body == chunked(), "the chunks are others");
    }
    let typed = ask(&cli, "show stat typed");
    for side in ["F.", "B."] {
        for name in ["h1_spliced_bytes_in", "h1_spliced_bytes_out"] {
            let line = typed.lines().find(|line| line.starts_with(side) && line.contains(name)).unwrap();
            let bytes: usize = line.rsplit(':').next().unwrap().parse().unwrap();
            assert!(bytes > 0 && bytes <= 3 * LONG, "{line}");
        }
    }
}

#[test]
fn a_body_that_a_client_must_not_get_leaves_its_connection_in_use() {
    for options in ["", " option splice-response\n"] {
        let ((socket, address), connections) = (listener(), Arc::new(AtomicUsize::new(0)));
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n{options}listen l\n bind {}\n http-request set-method GET\n server s {}\n",
            fd(&socket),
            chunks(connections.clone())
        ));
        let mut client = BufReader::new(connect(address));
        for path in ["/length", "/chunks", "/length", "/chunks"] {
            let request = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.get_mut().write_all(request.as_bytes()).unwrap();
            let head = head(&mut client).unwrap();
            assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1, "{options}");
    }
}

/// Neither a long body nor one that never ends is read for a client that must not get it.
#[test]
fn a_long_body_that_a_client_must_not_get_is_not_read() {
    /// What the proxy may read of it (`MOST_DROPPED`), and what the system's buffers hold.
    const MOST: usize = (1 << 20) + (8 << 20);
    for framing in ["Content-Length: 10000000000", "Transfer-Encoding: chunked"] {
        let ((socket, address), (sent, how_many)) = (listener(), mpsc::channel());
        let server = origin(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(head) = head(&mut reader) {
                if head.contains(" /short ") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                    continue;
                }
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).unwrap();
                let (chunk, mut all) = (chunked(), 0);
                let piece = &chunk[..chunk.len() - b"0\r\n\r\n".len()];
                while all <= MOST && stream.write_all(piece).is_ok() {
                    all += piece.len();
                }
                sent.send(all).unwrap();
                return;
            }
        });
        let _program = Manylane::start(&format!(
            "global\n tune.rcvbuf.server 4096\n{DEFAULTS} mode http\nlisten l\n bind {}\n http-request \
                set-method GET\n server s {server}\n",
            fd(&socket),
        ));
        let mut client = BufReader::new(connect(address));
        for path in ["/long", "/short"] {
            let request = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.get_mut().write_all(request.as_bytes()).unwrap();
            let head = head(&mut client).unwrap();
            assert!(head.starts_with("HTTP/1.1 200 "), "{framing}, {path}: {head}");
        }
        let all = how_many.recv_timeout(TIMEOUT).unwrap();
        assert!(all <= MOST, "{framing}: the proxy has read at least {all} bytes");
    }
}

/// A client of HTTP/1.0 knows the end of a body by that of the connection alone.
#[test]
fn a_chunked_response_that_breaks_off_does_not_look_complete_to_http_1_0() {
    let server = origin(|mut stream| {
        let _ = head(&mut BufReader::new(stream.try_clone().unwrap()));
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwho").unwrap();
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
