//! Storms: many clients at once, ends that leave at random, and answers that name their request. That of
//! HTTP/1 on both sides is in `isolation.rs`. `MANYLANE_SEED` repeats a run as far as timing allows.

use crate::common;
use crate::isolation::{Dice, head, path, storms};

use common::h2::{block, client};
use common::{DEFAULTS, Manylane, connect, fd, listener, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers with what names the request, many times; or with a part of it, or not at all.
async fn answers(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
    mut dice: Dice,
) {
    let path = request.uri().path().to_owned();
    let (mut body, mut received) = (request.into_body(), Vec::new());
    while let Some(part) = body.data().await {
        let Ok(part) = part else { return };
        let _ = body.flow_control().release_capacity(part.len());
        received.extend_from_slice(&part);
    }
    if dice.below(20) == 0 {
        return respond.send_reset(h2::Reason::INTERNAL_ERROR);
    }
    let named = format!("{path} {}", String::from_utf8(received).unwrap());
    let text = format!("{named}\n").repeat(1 + dice.below(20) as usize);
    let head = http::Response::builder().header("x-named", named.trim_end());
    let head = head.header("content-length", text.len()).body(()).unwrap();
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    let end = if dice.below(20) == 0 { dice.below(text.len() as u64) as usize } else { text.len() };
    let _ = stream.send_data(bytes::Bytes::copy_from_slice(&text.as_bytes()[..end]), end == text.len());
    if end < text.len() {
        stream.send_reset(h2::Reason::CANCEL);
    }
}

/// A server of HTTP/2 whose connections end after some requests, with streams under way.
fn server_of_2(seed: u64) -> SocketAddr {
    common::h2::serve(move |stream, number| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        let mut dice = Dice::new(seed, 2_000_000 + number as u64);
        for _ in 0..20 + dice.below(300) {
            let Some(Ok((request, respond))) = connection.accept().await else { return };
            let dice = Dice::new(seed, dice.below(1 << 40));
            tokio::task::spawn_local(answers(request, respond, dice));
        }
    })
}

/// A server of HTTP/1 that does the same, one request at a time.
fn server_of_1(seed: u64) -> SocketAddr {
    let next = AtomicUsize::new(0);
    origin(move |stream| {
        let dice = Dice::new(seed, 1_000_000 + next.fetch_add(1, Ordering::SeqCst) as u64);
        serve_1(stream, dice);
    })
}

/// The same over TLS.
fn server_of_tls(seed: u64) -> SocketAddr {
    let (next, config) = (AtomicUsize::new(0), crate::drips::server_of_tls());
    origin(move |stream| {
        let dice = Dice::new(seed, 4_000_000 + next.fetch_add(1, Ordering::SeqCst) as u64);
        let tls = rustls::ServerConnection::new(config.clone()).unwrap();
        serve_1(rustls::StreamOwned::new(tls, stream), dice);
    })
}

fn serve_1(stream: impl Read + Write, mut dice: Dice) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = head(&mut reader) {
        let field = |name: &str| {
            let value = |line: &String| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned);
            request.iter().find_map(value)
        };
        let mut body = vec![0; field("content-length: ").map_or(0, |length| length.parse().unwrap())];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let named = format!("{} {}", path(&request), String::from_utf8(body).unwrap());
        let text = format!("{named}\n").repeat(1 + dice.below(20) as usize);
        let length = text.len();
        let whole = format!(
            "HTTP/1.1 200 OK\r\nX-Named: {}\r\nContent-Length: {length}\r\n\r\n{text}",
            named.trim_end()
        );
        let end = if dice.below(20) == 0 { dice.below(whole.len() as u64) as usize } else { whole.len() };
        if reader.get_mut().write_all(&whole.as_bytes()[..end]).is_err()
            || end < whole.len()
            || dice.below(30) == 0
        {
            return;
        }
    }
}

/// Whatever comes belongs to the request `named`. Returns whether it is whole and from a server.
async fn answer_of_2(response: h2::client::ResponseFuture, named: String) -> bool {
    let Ok(response) = response.await else { return false };
    if response.status() != 200 {
        assert!(response.status().is_server_error(), "{}", response.status());
        return false;
    }
    assert_eq!(response.headers()["x-named"], named.trim_end());
    let (mut body, mut text) = (response.into_body(), Vec::new());
    while let Some(part) = body.data().await {
        let Ok(part) = part else { return false };
        let _ = body.flow_control().release_capacity(part.len());
        text.extend_from_slice(&part);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().all(|line| line == named), "an answer to another request than {named}");
    true
}

/// One client; returns the number of requests and of whole responses.
async fn storms_over_2(address: SocketAddr, mut dice: Dice, number: u64) -> (u64, u64) {
    const FLIGHTS: u64 = 25;
    let (mut requested, mut whole) = (0, 0);
    let mut own = client(address).await;
    for flight in 0..FLIGHTS {
        let mut under_way = Vec::new();
        for n in 0..1 + dice.below(20) {
            let Ok(mut ready) = own.clone().ready().await else {
                own = client(address).await; // the program has ended the connection
                break;
            };
            let path = format!("/{number}-{flight}-{n}");
            let body = if dice.below(3) == 0 { "b".repeat(dice.below(3000) as usize) } else { String::new() };
            let method = if body.is_empty() { "GET" } else { "POST" };
            let request = http::Request::builder().method(method).uri(format!("http://a{path}"));
            let request = request.header("content-length", body.len()); // those servers do not know chunks
            let Ok((response, mut stream)) = ready.send_request(request.body(()).unwrap(), body.is_empty())
            else {
                break;
            };
            requested += 1;
            if !body.is_empty() {
                let _ = stream.send_data(body.clone().into(), true);
            }
            match dice.below(20) {
                0 => stream.send_reset(h2::Reason::CANCEL),
                // All at a time: those that are not read would take the connection's window.
                _ => {
                    under_way.push(tokio::task::spawn_local(answer_of_2(response, format!("{path} {body}"))))
                }
            }
        }
        for answer in under_way {
            whole += u64::from(answer.await.unwrap());
        }
        if dice.below(10) == 0 {
            own = client(address).await;
        }
    }
    (requested, whole)
}

/// Clients of HTTP/2 with many streams at a time, servers of HTTP/1 and HTTP/2 that break streams and
/// connections, and clients that reset streams: each response belongs to its request.
#[test]
fn over_http_2_each_answer_is_to_the_request_that_asked_for_it() {
    const CLIENTS: u64 = 12;
    let seed = Dice::seed();
    for (servers, protocol) in [
        ([server_of_1(seed), server_of_1(seed + 1)], ""),
        ([server_of_tls(seed), server_of_tls(seed + 1)], " ssl verify none"),
        ([server_of_2(seed), server_of_2(seed + 1)], " proto h2"),
    ] {
        let (socket, address) = listener();
        let [one, two] = servers;
        let mut program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n http-reuse always\n retries 2\n \
             retry-on all-retryable-errors\nlisten l\n \
             bind {} proto h2\n server s {one}{protocol}\n server t {two}{protocol}\n",
            fd(&socket)
        ));
        let client = |number| move || block(storms_over_2(address, Dice::new(seed, number), number));
        let clients: Vec<_> = (0..CLIENTS).map(|number| std::thread::spawn(client(number))).collect();
        let (requested, whole) = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .fold((0, 0), |(requested, whole), (more, right)| (requested + more, whole + right));
        println!("{whole} of {requested} answers were whole and right{protocol}");
        assert!(requested > 10 * CLIENTS && whole > requested / 2, "{whole} of {requested}");
        assert!(program.runs());
    }
}

/// Clients of HTTP/1 in a storm, with servers of HTTP/1 over TLS, and of HTTP/2, where they share
/// connections.
#[test]
fn over_tls_and_from_servers_of_http_2_each_answer_is_to_its_request() {
    const CLIENTS: u64 = 60;
    const REQUESTS: u64 = 40;
    let seed = Dice::seed();
    for (servers, words) in [
        ([server_of_tls(seed), server_of_tls(seed + 1)], " ssl verify none"),
        ([server_of_2(seed), server_of_2(seed + 1)], " proto h2"),
    ] {
        let (socket, address) = listener();
        let [one, two] = servers;
        let mut program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n http-reuse always\n retries 2\n \
             retry-on all-retryable-errors\nlisten l\n \
             bind {}\n server s {one}{words}\n server t {two}{words}\n",
            fd(&socket)
        ));
        let client = |number| move || storms(address, Dice::new(seed, number), number, REQUESTS);
        let clients: Vec<_> = (0..CLIENTS).map(|number| std::thread::spawn(client(number))).collect();
        let whole: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        println!("{whole} of {} answers were whole and right{words}", CLIENTS * REQUESTS);
        assert!(whole > CLIENTS * REQUESTS / 2, "{whole} only{words}");
        assert!(program.runs());
    }
}

/// A server that quits on purpose, without a word: after some responses it closes its connection, at once or
/// when the next request comes. No client sees an error: a request that met the end goes out once more, or
/// its client's connection ends so that the client repeats it, which it may not do with its first one.
#[test]
fn a_server_that_quits_on_purpose_costs_no_request() {
    const CLIENTS: u64 = 50;
    const REQUESTS: u64 = 100;
    let seed = Dice::seed();
    let next = AtomicUsize::new(0);
    let server = origin(move |mut stream| {
        let mut dice = Dice::new(seed, 3_000_000 + next.fetch_add(1, Ordering::SeqCst) as u64);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for _ in 0..1 + dice.below(40) {
            let Some(request) = head(&mut reader) else { return };
            let named = path(&request);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{named}", named.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        if dice.below(2) == 0 {
            let _ = reader.fill_buf(); // a request that is not read: the connection is reset
        }
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let asks = move |number: u64| {
        let (mut repeated, mut client, mut first) = (0, BufReader::new(connect(address)), true);
        for n in 0..REQUESTS {
            let path = format!("/{number}-{n}");
            loop {
                let sent = write!(client.get_mut(), "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
                let lines = sent.ok().and_then(|()| head(&mut client));
                if let Some(lines) = lines {
                    assert!(lines[0].contains(" 200 "), "{path}: {}", lines[0]);
                    let mut body = vec![0; path.len()];
                    client.read_exact(&mut body).unwrap();
                    assert_eq!(String::from_utf8(body).unwrap(), path);
                    first = false;
                    break;
                }
                assert!(!first, "{path}: the first request of a connection has no answer");
                (repeated, client, first) = (repeated + 1, BufReader::new(connect(address)), true);
            }
        }
        repeated
    };
    let clients: Vec<_> = (0..CLIENTS).map(|number| std::thread::spawn(move || asks(number))).collect();
    let repeated: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    println!("{repeated} of {} requests were repeated by their clients", CLIENTS * REQUESTS);
}
