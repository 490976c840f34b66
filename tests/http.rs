//! HTTP mode, end to end (R-G1).

use crate::common;

use common::{
    DEFAULTS, Folder, Manylane, ONE_LANE, connect, fd, listener, listener_at, nobody, origin, read_all,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Reads a head; empty at the end of the connection.
fn head(reader: &mut impl BufRead) -> String {
    let mut text = String::new();
    loop {
        let before = text.len();
        if reader.read_line(&mut text).unwrap_or(0) == 0 {
            return String::new();
        }
        if &text[before..] == "\r\n" {
            return text;
        }
    }
}

/// Value of a field.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
}

/// Reads a message: its head, and its body without framing.
fn message(reader: &mut impl BufRead, bodyless: bool) -> (String, String) {
    let head = head(reader);
    let mut body = Vec::new();
    if bodyless {
    } else if let Some(length) = field(&head, "content-length") {
        body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut body).unwrap();
    } else if field(&head, "transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.split(';').next().unwrap().trim(), 16).unwrap();
            if size == 0 {
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                }
                break;
            }
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).unwrap();
            body.extend_from_slice(&chunk[..size]);
        }
    } else if head.starts_with("HTTP/1.") {
        reader.read_to_end(&mut body).unwrap();
    }
    (head, String::from_utf8_lossy(&body).into_owned())
}

fn ask(stream: &TcpStream, text: &str) -> (String, String) {
    let mut stream = stream;
    stream.write_all(text.as_bytes()).unwrap();
    // The response is read to its end, so the buffer loses nothing.
    message(&mut BufReader::new(stream), text.starts_with("HEAD "))
}

/// An origin that responds with the result of `answer`, which gets the request's head, its body and the
/// number of the connection.
fn serves(answer: impl Fn(&str, &str, usize) -> String + Send + Sync + 'static) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    origin(move |mut stream| {
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let (head, body) = message(&mut reader, false);
            if head.is_empty() {
                return;
            }
            let answer = answer(&head, &body, number);
            if stream.write_all(answer.as_bytes()).is_err()
                || !answer.contains("ength: ") && !answer.contains("hunked")
            {
                return; // ends with the connection
            }
        }
    })
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn http(more: &str, socket: &TcpListener, server: SocketAddr) -> Manylane {
    Manylane::start(&format!(
        "{DEFAULTS} mode http\n{more}\nlisten l\n bind {}\n server s {server}\n",
        fd(socket)
    ))
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn connections_are_kept_on_both_sides() {
    let (socket, address) = listener();
    let _program = http("", &socket, serves(|_, _, number| ok(&number.to_string())));
    let client = connect(address);
    let first = ask(&client, GET).1;
    for _ in 0..5 {
        assert_eq!(ask(&client, GET).1, first, "the server's connection was kept");
    }
}

#[test]
fn each_way_to_close_is_said_and_done() {
    for (option, kept, said) in [
        ("", true, None),
        (" option http-server-close", false, Some("close")),
        (" option httpclose", false, Some("close")),
    ] {
        let (socket, address) = listener();
        let server = serves(|head, _, number| {
            ok(&format!("{number} {}", field(head, "connection").unwrap_or("none")))
        });
        let _program = http(option, &socket, server);
        let client = connect(address);
        let (first, body) = ask(&client, GET);
        assert_eq!(body.split_once(' ').unwrap().1, said.unwrap_or("none"), "{option}");
        if option.contains("httpclose") {
            assert_eq!(field(&first, "connection"), Some("close"));
            assert_eq!((&client).read(&mut [0]).unwrap(), 0);
            continue;
        }
        let second = ask(&client, GET).1;
        assert_eq!(body == second, kept, "{option}");
    }
}

#[test]
fn bodies_of_every_framing_arrive_whole() {
    let (socket, address) = listener();
    let server = serves(|head, body, _| {
        let said = format!("{}:{}", body.len(), body.bytes().map(u32::from).sum::<u32>());
        match field(head, "x-framing").unwrap_or("") {
            "chunked" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
                    chunked\r\n\r\n3;x=y\r\n{}\r\n{:x}\r\n{}\r\n0\r\nx-sum: 1\r\n\r\n",
                &said[..3],
                said.len() - 3,
                &said[3..]
            ),
            "close" => format!("HTTP/1.1 200 OK\r\n\r\n{said}"),
            _ => ok(&said),
        }
    });
    for options in ["", " option splice-request\n option splice-response"] {
        let _program = http(options, &socket, server);
        for size in [0usize, 1, 70_000, 700_001] {
            let body = "x".repeat(size);
            let expected = format!("{size}:{}", size * 120);
            for framing in ["length", "chunked", "close"] {
                let by_length = format!(
                    "POST / HTTP/1.1\r\nHost: a\r\nX-Framing: {framing}\r\nContent-Length: \
                        {size}\r\n\r\n{body}"
                );
                let chunk = if size > 0 { format!("{size:x}\r\n{body}\r\n") } else { String::new() };
                let chunked = format!(
                    "POST / HTTP/1.1\r\nHost: a\r\nX-Framing: {framing}\r\nTransfer-Encoding: \
                        chunked\r\n\r\n{chunk}0\r\n\r\n"
                );
                for request in [by_length, chunked] {
                    assert_eq!(ask(&connect(address), &request).1, expected, "{framing} {size}");
                }
            }
        }
    }
}

#[test]
fn chunks_are_taken_off_for_clients_that_know_none() {
    let (socket, address) = listener();
    let server = serves(|_, _, _| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".into()
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let all = read_all(&mut client);
    assert!(all.ends_with("\r\n\r\nhello") && !all.to_lowercase().contains("transfer-encoding"), "{all}");
}

/// R-G1: HTTP/1.0 connections close by default, so the client is told.
#[test]
fn a_client_of_http_1_0_is_informed_that_its_connection_is_kept() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n http-request return status 200 if {{ path /own }}\n \
         http-request deny if {{ path /no }}\n server s {}\n",
        fd(&socket),
        serves(|_, _, _| ok("x"))
    ));
    let client = connect(address);
    for path in ["/", "/own", "/no", "/"] {
        let (head, _) = ask(&client, &format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert_eq!(field(&head, "connection"), Some("keep-alive"), "{path}: {head}");
    }
    let (head, _) = ask(&client, "GET / HTTP/1.0\r\n\r\n");
    assert_ne!(field(&head, "connection"), Some("keep-alive"), "{head}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (socket, address) = listener();
    let _program = http("", &socket, serves(|head, _, _| ok(head.split(' ').nth(1).unwrap())));
    let mut client = connect(address);
    let all: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.write_all(all.as_bytes()).unwrap();
    let mut reader = BufReader::new(client);
    for n in 0..20 {
        assert_eq!(message(&mut reader, false).1, format!("/{n}"));
    }
}

/// Requests that two parsers could read differently reach no server.
#[test]
fn ambiguous_requests_are_refused() {
    let (socket, address) = listener();
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let server = serves(move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        ok("reached")
    });
    let _program = http("option http-strict-framing", &socket, server);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n x: y\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = connect(address);
        client.write_all(request.as_bytes()).unwrap();
        let answer = read_all(&mut client);
        assert!(answer.starts_with("HTTP/1.1 4"), "{request:?}: {answer:?}");
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0);
}

#[test]
fn what_fails_is_answered_with_its_status() {
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let junk = origin(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n");
    });
    let gone = origin(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
    });
    for (more, server, status) in [
        (" timeout server 100ms", silent, 504),
        ("", junk, 502),
        ("", gone, 502),
        (" retries 0", nobody(), 503),
    ] {
        let (socket, address) = listener();
        let _program = http(more, &socket, server);
        let client = connect(address);
        let (head, _) = ask(&client, GET);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {head}");
    }
    let (socket, address) = listener();
    let _program = http(" timeout http-request 100ms", &socket, silent);
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(read_all(&mut client).starts_with("HTTP/1.1 408 "));
}

#[test]
fn an_error_file_replaces_the_programs_answer() {
    let folder = Folder::new();
    let file =
        folder.file("503.http", "HTTP/1.0 503 Gone fishing\nX-Own: yes\nConnection: close\n\nback soon\n");
    let (socket, address) = listener();
    let _program = http(&format!(" retries 0\n errorfile 503 {}", file.display()), &socket, nobody());
    let (head, body) = ask(&connect(address), GET);
    assert!(head.contains(" 503 Gone fishing\r\n") && field(&head, "x-own") == Some("yes"), "{head}");
    assert_eq!(body, "back soon\n");
}

/// R-G7
#[test]
fn the_clients_address_is_sent_but_for_networks_that_are_excepted() {
    for (option, expected) in [
        (" option forwardfor", Some("127.0.0.1")),
        (" option forwardfor except 127.0.0.0/8", None),
        (" option forwardfor except 10.0.0.0/8 except ::/0", Some("127.0.0.1")),
        (" option forwardfor header X-Client", None),
    ] {
        let (socket, address) = listener();
        let _program = http(option, &socket, serves(|head, _, _| ok(head)));
        let (_, observed) = ask(&connect(address), GET);
        assert_eq!(field(&observed, "x-forwarded-for"), expected, "{option}: {observed}");
        assert_eq!(field(&observed, "x-client").is_some(), option.contains("X-Client"));
    }
}

/// R-G7, for both ends of a connection and both families.
#[test]
fn addresses_of_either_family_are_sent_but_for_networks_that_are_excepted() {
    let cases = [
        ("127.0.0.1:0", "except 127.0.0.0/8", None),
        ("127.0.0.1:0", "except 10.0.0.0/8", Some("127.0.0.1")),
        ("127.0.0.1:0", "except ::/0", Some("127.0.0.1")),
        ("[::1]:0", "", Some("::1")),
        ("[::1]:0", "except ::1", None),
        ("[::1]:0", "except 2001:db8::/32", Some("::1")),
        ("[::1]:0", "except 127.0.0.0/8", Some("::1")),
        ("[::1]:0", "except 10.0.0.0/8 except ::/64", None),
    ];
    for (option, name) in [("forwardfor", "x-forwarded-for"), ("originalto", "x-original-to")] {
        for (at, except, expected) in cases {
            let (socket, address) = listener_at(at);
            let more = format!(" option {option} {except}");
            let _program = http(&more, &socket, serves(|head, _, _| ok(head)));
            let (_, received) = ask(&connect(address), GET);
            assert_eq!(field(&received, name), expected, "{at}, {more}: {received}");
        }
    }
}

#[test]
fn a_cookie_keeps_a_client_at_its_server() {
    let (socket, address) = listener();
    let (one, two) =
        (serves(|head, _, _| ok(&format!("one\n{head}"))), serves(|head, _, _| ok(&format!("two\n{head}"))));
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n cookie SRV insert indirect\n server s1 {one} cookie a\n \
            server s2 {two} cookie b\n",
        fd(&socket)
    ));
    let (head, first) = ask(&connect(address), GET);
    let name = if first.starts_with("one") { "a" } else { "b" };
    assert_eq!(field(&head, "set-cookie"), Some(&*format!("SRV={name}; path=/")));
    for _ in 0..4 {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: x=y; SRV={name}; z=1\r\n\r\n");
        let (head, body) = ask(&connect(address), &request);
        assert_eq!(body[..3], first[..3]);
        assert_eq!((field(&head, "set-cookie"), field(&body, "cookie")), (None, Some("x=y; z=1")));
    }
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let requested = head(&mut reader);
        assert_eq!(field(&requested, "upgrade"), Some("echo"));
        stream
            .write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst ")
            .unwrap();
        std::io::copy(&mut reader, &mut stream).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nsecond ")
        .unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let answer = head(&mut reader);
    assert!(answer.starts_with("HTTP/1.1 101 ") && field(&answer, "upgrade") == Some("echo"), "{answer}");
    client.write_all(b"third").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "first second third");
}

#[test]
fn a_server_may_answer_before_it_has_read_the_body() {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        head(&mut reader);
        stream
            .write_all(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
            .unwrap();
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    client.write_all(&[b'x'; 100_000]).unwrap();
    let (head, body) = message(&mut BufReader::new(client), false);
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert_eq!(body, "no");
}

#[test]
fn interim_responses_are_passed_on() {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        assert_eq!(field(&head(&mut reader), "expect"), Some("100-continue"));
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 5];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(ok(&String::from_utf8_lossy(&body)).as_bytes()).unwrap();
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    assert!(head(&mut reader).starts_with("HTTP/1.1 100 "));
    client.write_all(b"hello").unwrap();
    assert_eq!(message(&mut reader, false).1, "hello");
}

#[test]
fn a_kept_connection_that_the_server_closed_costs_no_request() {
    let (socket, address) = listener();
    // Closes each connection after its second request, without a response.
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for _ in 0..2 {
            if head(&mut reader).is_empty() {
                return;
            }
            stream.write_all(ok("fine").as_bytes()).unwrap();
        }
    });
    let _program = http("", &socket, server);
    let client = connect(address);
    for n in 0..20 {
        assert_eq!(ask(&client, GET).1, "fine", "request {n}");
    }
}

#[test]
fn requests_beyond_a_servers_maxconn_wait_their_turn() {
    let (socket, address) = listener();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at, peak) = (now.clone(), most.clone());
    let server = serves(move |_, _, _| {
        peak.fetch_max(at.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        manylane_tests::look_again();
        at.fetch_sub(1, Ordering::SeqCst);
        ok("x")
    });
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server} maxconn 2\n",
        fd(&socket)
    ));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(move || {
                let client = connect(address);
                (0..20).for_each(|_| assert_eq!(ask(&client, GET).1, "x"));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(most.load(Ordering::SeqCst) <= 2, "{}", most.load(Ordering::SeqCst));
}

#[test]
fn idle_clients_are_let_go_when_the_process_stops() {
    let (socket, address) = listener();
    let mut program = http("", &socket, serves(|_, _, _| ok("x")));
    let mut client = connect(address);
    ask(&client, GET);
    program.signal(nix::sys::signal::Signal::SIGUSR1);
    assert_eq!(read_all(&mut client), "");
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn requests_are_balanced_by_what_the_file_names() {
    for (balance, request) in [
        ("uri", "GET /same HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("url_param user", "GET /x?a=b&user=me HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("hdr(X-User)", "GET /x HTTP/1.1\r\nHost: a\r\nX-User: me\r\n\r\n"),
        ("source", GET),
    ] {
        let (socket, address) = listener();
        let servers: Vec<SocketAddr> =
            ["a", "b", "c", "d"].map(|name| serves(move |_, _, _| ok(name))).into();
        let lines: String =
            servers.iter().enumerate().map(|(n, server)| format!(" server s{n} {server}\n")).collect();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n balance {balance}\n{lines}",
            fd(&socket)
        ));
        let observed = Mutex::new(std::collections::BTreeSet::new());
        for _ in 0..8 {
            observed.lock().unwrap().insert(ask(&connect(address), request).1);
        }
        assert_eq!(observed.lock().unwrap().len(), 1, "{balance}");
    }
}

/// An origin that responds once with its name.
fn named_http(name: &'static str) -> SocketAddr {
    origin(move |stream| {
        let mut reader = BufReader::new(stream);
        if !head(&mut reader).is_empty() {
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}",
                name.len()
            );
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    })
}

/// R-G1: a cookie for a server without one is derived from a secret and the server's address.
#[test]
fn dynamic_cookies_keep_a_client_at_its_server() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n cookie SRV insert dynamic\n dynamic-cookie-key secret\n \
            server a {}\n \
         server b {}\n server own {} cookie own weight 0\n",
        fd(&socket),
        named_http("a"),
        named_http("b"),
        named_http("own")
    ));
    let ask = |cookie: &str| {
        let mut client = connect(address);
        write!(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{cookie}\r\n").unwrap();
        read_all(&mut client)
    };
    for _ in 0..4 {
        let first = ask("");
        let cookie = first
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("set-cookie: srv=").map(str::to_owned));
        let cookie = cookie.unwrap_or_else(|| panic!("no cookie in {first}"));
        let value = cookie.strip_suffix("; path=/").unwrap();
        assert!(value.len() == 16 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        let second = ask(&format!("Cookie: SRV={value}\r\n"));
        assert_eq!(second.lines().last(), first.lines().last(), "the same server");
        assert!(!second.to_lowercase().contains("set-cookie"), "{second}");
    }
    assert!(ask("Cookie: SRV=own\r\n").ends_with("own"));
}

/// One lane: while a password is hashed, another request that came later reaches the server first. Retried if
/// the lane did not run until the hash was ready.
#[test]
fn a_password_is_hashed_beside_the_lane() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < common::TIMEOUT {
        let (tell, receiver) = std::sync::mpsc::channel();
        let server = origin(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut first = String::new();
            reader.read_line(&mut first).unwrap();
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            tell.send(first).unwrap();
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        let (socket, address) = listener();
        let users =
            "userlist u\n user ann password $2b$10$abcdefghijklmnopqrstuu0uIewG7hXDJNtk3ib048WCtX.0JsFiS\n";
        let rule = " http-request deny if { path /slow } !{ http_auth(u) }\n";
        let _program = Manylane::start(&format!(
            "{ONE_LANE} mode http\n{users}listen l\n bind {}\n{rule} server s {server}\n",
            fd(&socket)
        ));
        let (mut slow, mut quick) = (connect(address), connect(address));
        slow.write_all(b"GET /slow HTTP/1.0\r\nAuthorization: Basic YW5uOkhlbGxvIHdvcmxkIQ==\r\n\r\n")
            .unwrap();
        quick.write_all(b"GET /quick HTTP/1.0\r\n\r\n").unwrap();
        let answers = [read_all(&mut quick), read_all(&mut slow)];
        assert!(answers.iter().all(|answer| answer.contains(" 200 ")), "{answers:?}");
        let order = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        if order[0].contains("/quick") {
            return;
        }
    }
    panic!("the request without a password always came behind the one with");
}

#[test]
fn hashed_passwords_are_refused_where_hashing_them_would_hold_up_a_lane() {
    let users = "userlist u\n user ann password $1$x$fwjfZtMwarkdetsjiQreU1\n";
    let rule = " tcp-request content reject if !{ http_auth(u) }\n";
    let config =
        format!("{DEFAULTS} mode tcp\n{users}listen l\n bind 127.0.0.1:80\n{rule} server s 127.0.0.1:81\n");
    let refused = common::check(&config, &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("'http_auth' is a keyword of HAProxy that this program refuses: in TCP mode"),
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(common::check(&config.replace("mode tcp", "mode http"), &[]).status.success());
}

#[test]
fn variables_that_do_not_fit_are_not_set() {
    for (limit, answer) in [
        ("txn-max-size 1000", "600--600"),
        ("sess-max-size 1400", "600-600-"),
        ("global-max-size 3000", "600-600-"), // each of two lanes has a half
        ("txn-max-size 0", "600-600-600"),
    ] {
        let (socket, address) = listener();
        let config = DEFAULTS.replace("global\n", &format!("global\n tune.vars.{limit}\n"));
        let set: String = ["txn.a", "txn.b", "sess.c"]
            .map(|name| format!(" http-request set-var({name}) req.hdr(x-long)\n"))
            .concat();
        let shown = "\"%[var(txn.a),length]-%[var(txn.b),length]-%[var(sess.c),length]\"";
        let _program = Manylane::start(&format!(
            "{config} mode http\nlisten l\n bind {}\n{set} http-request return status 200 content-type \
                text/plain lf-string {shown}\n",
            fd(&socket)
        ));
        let mut client = connect(address);
        write!(client, "GET / HTTP/1.0\r\nX-Long: {}\r\n\r\n", "x".repeat(600)).unwrap();
        let got = read_all(&mut client);
        assert!(got.ends_with(&format!("\r\n\r\n{answer}")), "{limit}: {got}");
    }
}

/// A server that responds before it has read the body gets the rest of it, and both connections stay open.
#[test]
fn a_body_goes_on_behind_an_answer_that_came_early() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        while !bytes.ends_with(b"ab") {
            match stream.read(&mut piece) {
                Ok(length) if length > 0 => bytes.extend(&piece[..length]),
                _ => return,
            }
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nearly").unwrap();
        let mut rest = [0; 8];
        stream.read_exact(&mut rest).unwrap();
        tell.send(rest).unwrap();
        let length = stream.read(&mut piece).unwrap();
        assert!(piece[..length].starts_with(b"GET / "));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext").unwrap();
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab").unwrap();
    let mut observed = Vec::new();
    while !observed.ends_with(b"early") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        observed.push(byte[0]);
    }
    client.write_all(b"cdefghij").unwrap();
    assert_eq!(&receiver.recv_timeout(common::TIMEOUT).unwrap(), b"cdefghij");
    assert_eq!(ask(&client, GET).1, "next");
}

/// A listener with a rule and a server.
fn ruled(rule: &str, socket: &TcpListener) -> Manylane {
    let server = serves(|_, _, _| ok("x"));
    let text = format!("{DEFAULTS} mode http\nlisten l\n bind {}\n {rule}\n server s {server}\n", fd(socket));
    Manylane::start(&text)
}

/// `silent-drop`: received data is acknowledged, so the client does not retransmit it to a closed socket,
/// which would send a reset.
#[test]
fn a_client_that_is_dropped_in_silence_hears_nothing() {
    if !nix::unistd::Uid::effective().is_root() {
        return println!("NOT SHOWN HERE: only root closes a connection in silence");
    }
    let (socket, address) = listener();
    let _program = ruled("http-request silent-drop if { path /no }", &socket);
    let mut client = connect(address);
    assert_eq!(ask(&client, GET).1, "x");
    client.write_all(GET.replace("GET /", "GET /no").as_bytes()).unwrap();
    // Longer than the first retransmission takes, which comes after 200 ms at least.
    client.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
}

/// `silent-drop rst-ttl`: a client within this number of hops gets the reset.
#[test]
fn a_client_within_the_hops_of_a_reset_hears_it() {
    for rule in [
        "tcp-request connection silent-drop rst-ttl 3",
        "tcp-request content silent-drop rst-ttl 3",
        "http-request silent-drop rst-ttl 3",
        "http-response silent-drop rst-ttl 3",
    ] {
        let (socket, address) = listener();
        let _program = ruled(rule, &socket);
        let mut client = connect(address);
        // The reset may have arrived already; it is reported once.
        let error = match client.write_all(GET.as_bytes()) {
            Ok(()) => client.read(&mut [0]).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{rule}: {error}");
    }
}

/// A server that reads to the end of the connection must not take a truncated request for a whole one, nor
/// wait for a client that is gone.
#[test]
fn a_server_is_reset_where_its_request_or_answer_is_not_whole() {
    let upload = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc";
    let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let begun = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    for (request, answer, how) in [
        (upload, "", "resets"),
        (upload, "", "closes"),
        (chunks, "", "resets"),
        (chunks, "", "closes"),
        (chunks, "", "sends no chunk"),
        (GET, begun, "resets"),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "stays"),
    ] {
        let (socket, address) = listener();
        let (tell, receiver) = mpsc::channel();
        let server = origin(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            head(&mut reader);
            stream.write_all(answer.as_bytes()).unwrap();
            tell.send(Ok(())).unwrap();
            tell.send(common::end_of(&mut stream)).unwrap();
        });
        let _program = http("", &socket, server);
        let mut client = connect(address);
        client.write_all(request.as_bytes()).unwrap();
        receiver.recv_timeout(common::TIMEOUT).unwrap().unwrap();
        if answer == begun {
            client.read_exact(&mut [0; 12]).unwrap(); // the request reached the server
        }
        match how {
            "resets" => common::reset(client),
            "closes" => drop(client),
            how => {
                if how == "sends no chunk" {
                    client.write_all(b"x").unwrap();
                }
                client.read_exact(&mut [0; 12]).unwrap(); // an error response
            }
        }
        let ended = receiver.recv_timeout(common::TIMEOUT).unwrap();
        assert_eq!(
            ended,
            Err(std::io::ErrorKind::ConnectionReset),
            "{request:?} {answer:?}, and the client {how}"
        );
    }
}

/// Data after the head belongs to no request and is unread when the connection closes; the response is longer
/// than the client's socket buffers.
#[test]
fn a_tunnel_that_is_refused_is_answered_whatever_the_client_sends() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let gone = Mutex::new(gone);
    let page = "no".repeat(80_000);
    let answer = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    let server = origin(move |mut stream| {
        head(&mut BufReader::new(stream.try_clone().unwrap()));
        tell.send("asked").unwrap();
        gone.lock().unwrap().recv().unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = common::end_of(&mut stream);
        tell.send("over").unwrap();
    });
    let _program = http("", &socket, server);
    let mut client = connect(address);
    client.write_all(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 100000\r\n\r\n").unwrap();
    assert_eq!(receiver.recv_timeout(common::TIMEOUT).unwrap(), "asked");
    client.write_all(&[b'x'; 100_000]).unwrap();
    go.send(()).unwrap();
    assert_eq!(receiver.recv_timeout(common::TIMEOUT).unwrap(), "over");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap(); // to its end, not to a reset
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with(&page));
}
