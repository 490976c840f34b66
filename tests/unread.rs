//! Responses of the program itself to requests with a body: after a small body the connection stays open, and
//! the next request starts behind the body.

use crate::common;

use common::{DEFAULTS, Manylane, connect, end_of, fd, listener};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Bodies consist of this request, which no parser may take for one.
const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// Limit of body bytes that are read after a response.
const SKIPPED: usize = 1 << 16;

/// Paths of rules, and the status of their responses.
const RULES: [(&str, u16); 5] =
    [("/return", 200), ("/deny", 403), ("/redirect", 302), ("/auth", 401), ("/nowhere", 503)];

fn start(more: &str) -> (Manylane, SocketAddr) {
    let (socket, address) = listener();
    let program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n{more}\nfrontend f\n bind {}\n http-request deny if {{ path /deny }}\n \
            http-request redirect location /x if {{ path /redirect }}\n \
         http-request auth if {{ path /auth }}\n use_backend b if {{ path /nowhere }}\n \
         http-request return status 200 content-type text/plain lf-string %[path] if !{{ path /nowhere \
         }}\nbackend b\n",
        fd(&socket)
    ));
    (program, address)
}

/// Status of a response, whether the connection closes with it, and its body; `None` after the end of the
/// connection.
fn answer(reader: &mut BufReader<TcpStream>) -> Option<(u16, bool, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            assert_eq!(head, "", "an end amid a head");
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    Some((head[9..12].parse().unwrap(), head.contains("connection: close"), String::from_utf8(body).unwrap()))
}

/// The head of a request, and a framed body of `bytes` bytes.
fn framed(path: &str, chunked: bool, expect: bool, bytes: usize) -> (String, String) {
    let mut data = EVIL.repeat(bytes.div_ceil(EVIL.len()));
    data.truncate(bytes);
    let expect = if expect { "Expect: 100-continue\r\n" } else { "" };
    if !chunked {
        return (
            format!("POST {path} HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: {}\r\n\r\n", data.len()),
            data,
        );
    }
    let chunks: String = data
        .as_bytes()
        .chunks(1000)
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap()))
        .collect();
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{expect}Transfer-Encoding: chunked\r\n\r\n");
    (head, format!("{chunks}0\r\nX-Trailer: GET /evil HTTP/1.1\r\n\r\n"))
}

/// Sends pieces; reads the response before those marked `true`.
fn goes_on(address: SocketAddr, status: u16, pieces: &[(&str, bool)], what: &str) {
    let mut client = connect(address);
    client.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    for (piece, answered) in pieces {
        client.write_all(piece.as_bytes()).unwrap();
        if *answered {
            let (got, closes, _) = answer(&mut reader).expect(what);
            assert_eq!((got, closes), (status, false), "{what}");
        }
    }
    assert_eq!(answer(&mut reader), Some((200, false, "/next".to_owned())), "{what}");
    // Nothing is left between two requests.
    client.write_all(NEXT.as_bytes()).unwrap();
    assert_eq!(answer(&mut reader), Some((200, false, "/next".to_owned())), "{what}");
}

#[test]
fn the_next_request_begins_behind_a_small_body() {
    let (_program, address) = start("");
    for (path, status) in RULES {
        for chunked in [false, true] {
            for expect in [false, true] {
                for bytes in [EVIL.len(), 5000, SKIPPED - 4096] {
                    let what = format!("{path}, chunked: {chunked}, expect: {expect}, {bytes} bytes");
                    let (head, body) = framed(path, chunked, expect, bytes);
                    let (half, rest) = body.split_at(body.len() / 2);
                    let all = format!("{head}{body}");
                    goes_on(address, status, &[(&all, true), (NEXT, false)], &format!("{what}, at once"));
                    goes_on(
                        address,
                        status,
                        &[(&format!("{all}{NEXT}"), true)],
                        &format!("{what}, pipelined"),
                    );
                    if !expect {
                        goes_on(
                            address,
                            status,
                            &[(&head, true), (&body, false), (NEXT, false)],
                            &format!("{what}, head first"),
                        );
                    }
                    goes_on(
                        address,
                        status,
                        &[(&format!("{head}{half}"), true), (&format!("{rest}{NEXT}"), false)],
                        &format!("{what}, half of it later"),
                    );
                }
            }
        }
    }
}

/// A client that waits for 100 may omit the body after a final response. Its next bytes may be the body or a
/// request, so neither is read.
#[test]
fn a_connection_ends_where_the_client_waits_to_be_asked_for_the_body() {
    let (_program, address) = start("");
    for (path, status) in RULES {
        for chunked in [false, true] {
            let (head, body) = framed(path, chunked, true, 5000);
            for next in [NEXT.repeat(3), format!("{body}{NEXT}")] {
                let what = format!("{path}, chunked: {chunked}, {} bytes next", next.len());
                let mut client = connect(address);
                let mut reader = BufReader::new(client.try_clone().unwrap());
                client.write_all(head.as_bytes()).unwrap();
                let given = answer(&mut reader).map(|(got, closes, _)| (got, closes));
                assert_eq!(given, Some((status, true)), "{what}");
                let _ = client.write_all(next.as_bytes());
                assert_eq!(answer(&mut reader), None, "{what}");
            }
        }
    }
    // HTTP/1.0 has no 100 (RFC 9110, 10.1.1): its clients do not wait.
    let mut client = connect(address);
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let head =
        "POST /deny HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(&mut reader).map(|(got, closes, _)| (got, closes)), Some((403, false)));
    client.write_all(format!("body{NEXT}").as_bytes()).unwrap();
    assert_eq!(answer(&mut reader), Some((200, false, "/next".to_owned())));
}

/// A client that got 100 sends the body: the connection stays open after a response.
#[test]
fn a_connection_goes_on_where_the_client_was_asked_for_the_body() {
    let (_program, address) = start(" option http-buffer-request");
    for chunked in [false, true] {
        let (head, body) = framed("/deny", chunked, true, 5000);
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(head.as_bytes()).unwrap();
        let mut interim = [0; 25];
        reader.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(format!("{body}{NEXT}").as_bytes()).unwrap();
        assert_eq!(answer(&mut reader).map(|(got, closes, _)| (got, closes)), Some((403, false)));
        assert_eq!(answer(&mut reader), Some((200, false, "/next".to_owned())));
    }
}

/// A large body closes the connection, and nothing of it is read as a request.
#[test]
fn a_connection_ends_with_a_large_body() {
    let (_program, address) = start("");
    for (path, status) in RULES {
        let what = format!("{path}, its length is told");
        let (head, body) = framed(path, false, false, 4 * SKIPPED);
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(head.as_bytes()).unwrap();
        assert_eq!(answer(&mut reader).map(|(got, closes, _)| (got, closes)), Some((status, true)), "{what}");
        let _ = client.write_all(format!("{body}{NEXT}").as_bytes());
        assert_eq!(answer(&mut reader), None, "{what}");
        // The length of a chunked body is known only at its end.
        let what = format!("{path}, in chunks");
        let (head, body) = framed(path, true, false, 4 * SKIPPED);
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(head.as_bytes()).unwrap();
        assert_eq!(
            answer(&mut reader).map(|(got, closes, _)| (got, closes)),
            Some((status, false)),
            "{what}"
        );
        let _ = client.write_all(format!("{body}{NEXT}").as_bytes());
        assert_eq!(answer(&mut reader), None, "{what}");
    }
}

/// Of a body whose length is told, the limit counts its bytes; of one in chunks, all bytes on the wire.
#[test]
fn a_body_of_the_limit_is_read_and_one_byte_more_is_not() {
    let (_program, address) = start("");
    let ask = |head: &str| {
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(head.as_bytes()).unwrap();
        let (status, closes, _) = answer(&mut reader).unwrap();
        assert_eq!(status, 403);
        (client, reader, closes)
    };
    let (head, body) = framed("/deny", false, false, SKIPPED);
    goes_on(address, 403, &[(&head, true), (&body, false), (NEXT, false)], "65,536 bytes");
    let (_client, mut reader, closes) = ask(&framed("/deny", false, false, SKIPPED + 1).0);
    assert!(closes, "65,537 bytes");
    assert_eq!(answer(&mut reader), None);

    let head = framed("/deny", true, false, 1).0;
    // The last five bytes and two line ends of the chunk are framing.
    let chunk = |data: usize| format!("{data:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(data));
    let body = chunk(SKIPPED - "fff3\r\n\r\n0\r\n\r\n".len());
    assert_eq!(body.len(), SKIPPED);
    goes_on(address, 403, &[(&head, true), (&body, false), (NEXT, false)], "65,536 bytes in chunks");
    let (mut client, mut reader, closes) = ask(&head);
    assert!(!closes);
    client.write_all(&chunk(2 * SKIPPED).as_bytes()[..SKIPPED + 1]).unwrap();
    assert_eq!(answer(&mut reader), None, "it waits for the rest of a body that is too long");
}

/// Invalid framing closes the connection, before or after the response.
#[test]
fn a_connection_ends_with_a_body_that_is_none() {
    let (_program, address) = start("");
    let head = framed("/return", true, false, 1).0;
    for bad in ["zz\r\n", "5\r\nabcdeGET", "-1\r\n\r\n", "5\rabcde\r\n"] {
        let bad = format!("{bad}\r\n\r\n{NEXT}{NEXT}");
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(format!("{head}{bad}").as_bytes()).unwrap();
        assert!(answer(&mut reader).is_some_and(|(_, closes, _)| closes), "{bad}");
        assert_eq!(answer(&mut reader), None, "{bad}");
        let mut client = connect(address);
        let mut reader = BufReader::new(client.try_clone().unwrap());
        client.write_all(head.as_bytes()).unwrap();
        assert!(answer(&mut reader).is_some_and(|(_, closes, _)| !closes), "{bad}");
        client.write_all(bad.as_bytes()).unwrap();
        assert_eq!(answer(&mut reader), None, "{bad}");
    }
}

/// The rest of a body has a timeout.
#[test]
fn a_body_that_does_not_come_ends_the_connection() {
    let (_program, address) = start(" timeout http-request 2s");
    let mut client = connect(address);
    client.write_all(framed("/return", false, false, 100).0.as_bytes()).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    assert!(answer(&mut reader).is_some_and(|(_, closes, _)| !closes));
    assert_eq!(end_of(&mut client), Ok(()));
}
