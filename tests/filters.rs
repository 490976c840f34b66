//! Filters: streams with a bandwidth limit take their time, and their data arrives unchanged.
//!
//! Times have only lower bounds, measured at the receiver, so a slow machine is no failure.

use crate::common;

use bytes::Bytes;
use common::h2::{block, client};
use common::watch::{ask as watch_ask, until};
use common::{DEFAULTS, Folder, Manylane, check, connect, descriptors, fd, listener, origin, reset};
use http::Request;
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SIZE: usize = 300_000;

/// Minimum time of `SIZE` bytes at 100,000 bytes a second, less the first grant.
const TIME: Duration = Duration::from_millis(2500);

/// A limit of 100,000 bytes a second for both directions.
const LIMITS: &str = " filter bwlim-in up default-limit 100000 default-period 1s\n filter bwlim-out down \
                      default-limit 10000 default-period 100ms min-size 2k\n";

/// A limit that no stream can wait for.
const NEVER: &str = " filter bwlim-out down default-limit 1 default-period 1h\n filter bwlim-in up \
                     default-limit 1 default-period 1h\n";

fn body() -> Vec<u8> {
    (0..SIZE).map(|n| (n % 251) as u8).collect()
}

/// Chunks of several sizes, and a trailer.
fn chunked(body: &[u8]) -> Vec<u8> {
    let (mut out, mut rest, mut size) = (Vec::new(), body, 1);
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at(size.min(rest.len()));
        out.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        out.extend([chunk, b"\r\n"].concat());
        (rest, size) = (more, size * 3 % 20_011);
    }
    out.extend(b"0\r\nx-sum: 1\r\n\r\n");
    out
}

/// Reads a head; empty at the end of the connection.
fn head(stream: &mut impl BufRead) -> String {
    let mut text = String::new();
    while stream.read_line(&mut text).is_ok_and(|n| n > 0) && !text.ends_with("\r\n\r\n") {}
    text
}

/// Reads a body with the framing of `head`, and its trailer if `head` announces one.
fn framed(stream: &mut impl BufRead, head: &str) -> Vec<u8> {
    let head = head.to_lowercase();
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked\r\n") {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            if size == 0 {
                let mut trailer = String::new();
                while stream.read_line(&mut trailer).unwrap() > 2 {}
                let announced = head.contains("trailer: x-sum\r\n");
                assert_eq!(trailer.to_lowercase(), if announced { "x-sum: 1\r\n\r\n" } else { "\r\n" });
                return body;
            }
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).unwrap();
            assert_eq!(chunk.split_off(size), b"\r\n");
            body.extend(chunk);
        }
    }
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => {
            body.resize(length.parse().unwrap(), 0);
            stream.read_exact(&mut body).unwrap();
        }
        None => drop(stream.read_to_end(&mut body).unwrap()),
    }
    body
}

/// A server that responds by the path: `/sized`, `/chunked` and `/until-close` get the large body, `/upgrade`
/// a tunnel. Any other request with the large body gets the number of milliseconds that the body took.
fn server() -> SocketAddr {
    origin(|stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        loop {
            let request = head(&mut stream);
            if request.is_empty() {
                return;
            }
            let begun = Instant::now();
            let (ok, body) = ("HTTP/1.1 200 OK\r\n", body());
            let answer = match request.split(' ').nth(1).unwrap() {
                "/sized" => [format!("{ok}Content-Length: {SIZE}\r\n\r\n").as_bytes(), &body].concat(),
                "/chunked" => [
                    format!("{ok}Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes(),
                    &chunked(&body),
                ]
                .concat(),
                "/until-close" => [format!("{ok}\r\n").as_bytes(), &body].concat(),
                "/upgrade" => {
                    let head =
                        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
                    out.write_all(head.as_bytes()).unwrap();
                    let mut came = vec![0; SIZE];
                    stream.read_exact(&mut came).unwrap();
                    assert_eq!(came, body);
                    let time = begun.elapsed().as_millis().to_string();
                    [format!("{time}\n").as_bytes(), &body].concat()
                }
                _ => {
                    let came = framed(&mut stream, &request);
                    let said =
                        if came == body { begun.elapsed().as_millis().to_string() } else { "other".into() };
                    format!("{ok}Content-Length: {}\r\n\r\n{said}", said.len()).into_bytes()
                }
            };
            if out.write_all(&answer).is_err() || request.contains(" /u") {
                return;
            }
        }
    })
}

/// Runs all concurrently.
fn together(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(std::thread::spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Duration of an upload, measured by the server.
fn took(said: &[u8]) -> Duration {
    let said = std::str::from_utf8(said).unwrap().trim();
    Duration::from_millis(said.parse().unwrap_or_else(|_| panic!("{said}")))
}

/// Sends a request over HTTP/1, with a body if it is not empty. Returns the body of the response.
fn ask(address: SocketAddr, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let stream = connect(address);
    let mut out = stream.try_clone().unwrap();
    let mut stream = BufReader::new(stream);
    let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
    out.write_all(&[&request, body].concat()).unwrap();
    let answer = head(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    framed(&mut stream, &answer)
}

/// Sends a request over HTTP/2, with a body if it is not empty. Returns the body of the response.
fn ask_h2(address: SocketAddr, path: &'static str, body: Vec<u8>) -> Vec<u8> {
    block(async {
        let mut client = client(address).await.ready().await.unwrap();
        let request = Request::post(format!("http://a{path}")).body(()).unwrap();
        let (response, mut upload) = client.send_request(request, body.is_empty()).unwrap();
        let mut rest = Bytes::from(body);
        let sending = tokio::task::spawn_local(async move {
            while !rest.is_empty() {
                upload.reserve_capacity(rest.len());
                let room = std::future::poll_fn(|context| upload.poll_capacity(context)).await;
                let piece = rest.split_to(room.unwrap().unwrap().min(rest.len()));
                upload.send_data(piece, rest.is_empty()).unwrap();
            }
        });
        let response = response.await.unwrap();
        sending.await.unwrap();
        let mut stream = response.into_body();
        let mut came = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece.unwrap();
            came.extend_from_slice(&piece);
            stream.flow_control().release_capacity(piece.len()).unwrap();
        }
        came
    })
}

/// A program whose first proxy has `limits` and `rules`, in HTTP mode. Its servers speak HTTP/1; those for
/// paths `/h2...` are a second proxy with HTTP/2 and without limits.
fn proxy(limits: &str, rules: &str) -> (Manylane, SocketAddr) {
    let ((first, address), (second, inner)) = (listener(), listener());
    let server = server();
    let program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n{limits}{rules} use_backend two if {{ req.hdr(x-to) h2 \
         }}\n default_backend one\nbackend one\n server s {server}\nbackend two\n server s {inner} proto \
         h2\nfrontend inner\n bind {} proto h2\n default_backend one\n",
        fd(&first),
        fd(&second)
    ));
    (program, address)
}

const BOTH: &str = " http-request set-bandwidth-limit up\n http-request set-bandwidth-limit down\n";

#[test]
fn bytes_to_clients_take_their_time_and_arrive_unchanged() {
    let (_program, address) = proxy(LIMITS, " http-request set-bandwidth-limit down\n");
    let h1 = |path: &'static str, fields: &'static str| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            let begun = Instant::now();
            assert!(ask(address, path, fields, b"") == body(), "{path}");
            assert!(begun.elapsed() >= TIME, "{path}{fields} took {:?}", begun.elapsed());
        })
    };
    let h2: Box<dyn FnOnce() + Send> = Box::new(move || {
        let begun = Instant::now();
        assert!(ask_h2(address, "/chunked", Vec::new()) == body());
        assert!(begun.elapsed() >= TIME, "HTTP/2 took {:?}", begun.elapsed());
    });
    together(vec![
        h1("/sized", ""),
        h1("/chunked", ""),
        h1("/until-close", ""),
        h1("/sized", "x-to: h2\r\n"),
        h1("/chunked", "x-to: h2\r\n"),
        h2,
    ]);
}

#[test]
fn bytes_from_clients_take_their_time_and_arrive_unchanged() {
    let (_program, address) = proxy(LIMITS, " http-request set-bandwidth-limit up\n");
    let h1 = |fields: &'static str, body: Vec<u8>| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            let time = took(&ask(address, "/upload", fields, &body));
            assert!(time >= TIME, "{fields} took {time:?}");
        })
    };
    let h2: Box<dyn FnOnce() + Send> = Box::new(move || {
        let time = took(&ask_h2(address, "/upload", body()));
        assert!(time >= TIME, "HTTP/2 took {time:?}");
    });
    together(vec![
        h1("Content-Length: 300000\r\n", body()),
        h1("Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n", chunked(&body())),
        h1("Content-Length: 300000\r\nExpect: 100-continue\r\nx-to: h2\r\n", body()),
        h1("Trailer: x-sum\r\nTransfer-Encoding: chunked\r\nx-to: h2\r\n", chunked(&body())),
        h2,
    ]);
}

/// Sends the large body; reads one line and the large body. Returns the times of the first and the last byte.
fn both_ways(mut stream: TcpStream, begun: Instant) -> (Duration, Duration) {
    let mut out = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || out.write_all(&body()).unwrap());
    let mut came = Vec::new();
    let mut byte = [0];
    while came.last() != Some(&b'\n') {
        stream.read_exact(&mut byte).unwrap();
        came.extend(byte);
    }
    let first = took(&came);
    let mut rest = vec![0; SIZE];
    stream.read_exact(&mut rest).unwrap();
    assert!(rest == body());
    sender.join().unwrap();
    (first, begun.elapsed())
}

#[test]
fn tunnels_and_connections_of_tcp_mode_are_limited_in_both_directions() {
    let (_program, address) = proxy(LIMITS, BOTH);
    let (tcp, plain) = listener();
    let server = origin(|mut stream| {
        let begun = Instant::now();
        let mut came = vec![0; SIZE];
        stream.read_exact(&mut came).unwrap();
        assert!(came == body());
        let time = format!("{}\n", begun.elapsed().as_millis());
        stream.write_all(&[time.as_bytes(), &body()].concat()).unwrap();
    });
    // The backend has the limits here, and nothing else prevents splicing.
    let _tcp = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\n option splice-auto\nfrontend f\n bind {}\n default_backend b\nbackend \
         b\n{LIMITS} tcp-request content set-bandwidth-limit up\n tcp-response content set-bandwidth-limit \
         down\n server s {server}\n",
        fd(&tcp)
    ));
    let tunnel: Box<dyn FnOnce() + Send> = Box::new(move || {
        let mut stream = connect(address);
        let request = b"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        let (first, whole) = both_ways(stream, Instant::now());
        assert!(first >= TIME && whole >= 2 * TIME, "a tunnel took {first:?}, {whole:?}");
    });
    let plain: Box<dyn FnOnce() + Send> = Box::new(move || {
        let begun = Instant::now();
        let (first, whole) = both_ways(connect(plain), begun);
        assert!(first >= TIME && whole >= 2 * TIME, "TCP took {first:?}, {whole:?}");
    });
    together(vec![tunnel, plain]);
}

#[test]
fn the_last_rule_says_the_limit_and_what_it_leaves_open_is_the_filters() {
    let rules = " http-request set-bandwidth-limit down limit 10m period 1s
 http-request set-bandwidth-limit down limit req.hdr(x-limit) period int(1000),mul(2) \
                 if { req.hdr(x-limit) -m found }
 http-request set-bandwidth-limit down if { req.hdr(x-usual) -m found }
 http-response set-bandwidth-limit down limit 100000 period 1s if { capture.req.uri /until-close }
";
    let (_program, address) = proxy(NEVER, rules);
    let slow = |path: &'static str, fields: &'static str| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            let begun = Instant::now();
            assert!(ask(address, path, fields, b"") == body());
            assert!(begun.elapsed() >= TIME, "{path} {fields} took {:?}", begun.elapsed());
        })
    };
    // No number above 0 in the field: the filter's own limit applies, which takes forever.
    let never = |fields: &'static str| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            let stream = connect(address);
            let mut out = stream.try_clone().unwrap();
            let mut stream = BufReader::new(stream);
            write!(out, "GET /sized HTTP/1.1\r\nHost: a\r\n{fields}\r\n").unwrap();
            assert!(head(&mut stream).starts_with("HTTP/1.1 200"));
            let mut first = [0];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(first[0], body()[0]);
            stream.get_ref().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let more = stream.read(&mut first).map_err(|error| error.kind());
            assert_eq!(more, Err(std::io::ErrorKind::WouldBlock), "{fields}");
        })
    };
    together(vec![
        Box::new(move || assert!(ask(address, "/sized", "", b"") == body())),
        slow("/sized", "x-limit: 200000\r\n"),
        slow("/until-close", ""),
        never("x-usual: 1\r\n"),
        never("x-limit: 0\r\nx-usual: 1\r\n"),
        never("x-limit: many\r\nx-usual: 1\r\n"),
    ]);
}

#[test]
fn a_stream_that_waits_holds_up_no_other_of_its_connection() {
    let rules = " http-request set-bandwidth-limit down if { path /sized }\n http-request \
                 set-bandwidth-limit up if { path /slow }\n";
    let (program, address) = proxy(NEVER, rules);
    block(async {
        let client = client(address).await;
        let ask = async |path: &str, end: bool| {
            let mut client = client.clone().ready().await.unwrap();
            let request = Request::post(format!("http://a{path}")).body(()).unwrap();
            client.send_request(request, end).unwrap()
        };
        // A download and an upload wait, with full windows.
        let (response, _) = ask("/sized", true).await;
        let mut waiting = response.await.unwrap().into_body();
        assert_eq!(waiting.data().await.unwrap().unwrap()[..], body()[..1]);
        let (_response, mut upload) = ask("/slow", false).await;
        upload.reserve_capacity(1000);
        std::future::poll_fn(|context| upload.poll_capacity(context)).await.unwrap().unwrap();
        upload.send_data(Bytes::from_static(&[0; 1000]), false).unwrap();
        let other = async || {
            let (response, _) = ask("/chunked", true).await;
            let mut stream = response.await.unwrap().into_body();
            let mut came = Vec::new();
            while let Some(piece) = stream.data().await {
                let piece = piece.unwrap();
                came.extend_from_slice(&piece);
                stream.flow_control().release_capacity(piece.len()).unwrap();
            }
            assert!(came == body());
        };
        for _ in 0..3 {
            other().await;
        }
        // The waiting streams are reset, and their servers are told.
        let before = descriptors(program.pid());
        upload.send_reset(h2::Reason::CANCEL);
        drop(waiting);
        other().await; // both servers were told before this
        until(|| descriptors(program.pid()) + 2 <= before);
    });
}

/// A piece of 16,384 bytes is sent at once, the rest after both timeouts would have fired.
#[test]
fn no_timeout_ends_a_stream_that_waits_for_its_limit() {
    const BYTES: usize = 20_000;
    let limit = |how: &str| {
        format!(" timeout client 3s\n filter bwlim-{how} slow default-limit 16384 default-period 7s\n")
    };
    let (http, web) = listener();
    let (tcp, plain) = listener();
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        head(&mut reader);
        reader.read_exact(&mut vec![0; BYTES]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let talker = origin(|mut stream| {
        stream.write_all(&[7; BYTES]).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let _program = Manylane::start(&format!(
        "{DEFAULTS} timeout server 3s\nfrontend h\n mode http\n bind {}\n{} http-request \
         set-bandwidth-limit slow\n default_backend h\nbackend h\n mode http\n server s {server}\n\
         frontend t\n mode tcp\n bind {}\n{} tcp-request content set-bandwidth-limit slow\n \
         default_backend t\nbackend t\n mode tcp\n server s {talker}\n",
        fd(&http),
        limit("in"),
        fd(&tcp),
        limit("out")
    ));
    let upload = move || {
        let length = format!("Content-Length: {BYTES}\r\n");
        assert_eq!(ask(web, "/", &length, &[7; BYTES]), b"ok");
    };
    let download = move || {
        let mut stream = connect(plain);
        let mut came = vec![0; BYTES];
        stream.read_exact(&mut came).unwrap();
        assert!(came == [7; BYTES]);
        stream.write_all(b"x").unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    };
    together(vec![Box::new(upload), Box::new(download)]);
}

/// Streams with one key share a limit in each direction, over both versions and on both lanes; streams with
/// another key are not delayed. Each stream holds the entry and counts its bytes in it.
#[test]
fn streams_of_a_key_share_their_limit_and_no_other_streams_wait_for_them() {
    let folder = Folder::new();
    let socket = folder.0.join("control");
    let (first, address) = listener();
    let server = server();
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend f\n bind {}\n filter \
         bwlim-out down limit 100000 key req.hdr(x-who) table t\n filter bwlim-in up limit 10000 key \
         req.hdr(x-who),lower table t min-size 2k\n http-request set-bandwidth-limit down\n http-request \
         set-bandwidth-limit down\n http-request set-bandwidth-limit up if {{ path /u }}\n default_backend \
         b\nbackend b\n server s {server}\nbackend t\n stick-table type string size 10 store \
         bytes_out_rate(1s),bytes_in_rate(100ms),bytes_out_cnt\n",
        socket.display(),
        fd(&first)
    ));
    let quick = "x-who: quick\r\ncontent-length: 0\r\n";
    assert!(ask(address, "/sized", "", b"") == body(), "who has no key is not limited");
    let begun = Instant::now();
    let (done, ended) = mpsc::channel();
    let slow = |path: &'static str, fields: &'static str| -> Box<dyn FnOnce() + Send> {
        let done = done.clone();
        Box::new(move || {
            assert!(ask(address, path, fields, b"") == body(), "{path}");
            let _ = done.send(begun.elapsed());
        })
    };
    let upload = body();
    let length: &'static str = Box::leak(format!("x-who: up\r\ncontent-length: {SIZE}\r\n").into());
    let ups = [upload.clone(), upload].map(|body| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            ask(address, "/u", length, &body);
            assert!(begun.elapsed() >= 2 * TIME, "two uploads took {:?}", begun.elapsed());
        })
    });
    let control = socket.clone();
    let looks: Box<dyn FnOnce() + Send> = Box::new(move || {
        until(|| watch_ask(&control, "show table t key slow").contains(" use=2 "));
        let (small, then) = (&b""[..], Instant::now());
        assert_eq!(ask(address, "/small", quick, small).len(), 5);
        assert!(then.elapsed() < TIME, "another key's streams have their own limit");
        assert!(watch_ask(&control, "clear table t key slow").contains("in use"));
    });
    let [one, other] = ups;
    let all = vec![slow("/sized", "x-who: slow\r\n"), slow("/chunked", "x-who: slow\r\n"), one, other, looks];
    together(all);
    let mut took = [ended.recv().unwrap(), ended.recv().unwrap()];
    took.sort();
    assert!(took[1] >= 2 * TIME, "both together took {took:?}");
    // The first stream sends the first grant; after that both have equal parts.
    assert!(took[0] >= took[1] * 3 / 5, "they have equal parts: {took:?}");
    until(|| watch_ask(&socket, "show table t key slow").contains(" use=0 "));
}

#[test]
fn a_client_that_leaves_is_not_waited_for() {
    let (_one, http) = proxy(NEVER, BOTH);
    let (socket, tcp) = listener();
    let server = origin(|mut stream| {
        let _ = stream.write_all(&body());
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let two = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\nfrontend f\n bind {}\n{NEVER} tcp-request content set-bandwidth-limit down\n \
         default_backend b\nbackend b\n server s {server}\n",
        fd(&socket)
    ));
    for (program, address) in [(&_one, http), (&two, tcp)] {
        let mut first = connect(address);
        let ask = |stream: &mut TcpStream| {
            let _ = stream.write_all(b"GET /sized HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut stream = BufReader::new(stream);
            if address == http {
                head(&mut stream);
            }
            let mut byte = [1];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte[0], 0);
        };
        ask(&mut first); // stays open
        let mut second = connect(address);
        ask(&mut second);
        let before = descriptors(program.pid());
        reset(second);
        until(|| descriptors(program.pid()) + 2 <= before); // client and server connection
    }
}

#[test]
fn a_soft_stop_lets_streams_that_wait_come_to_their_end() {
    let (mut program, address) = proxy(LIMITS, BOTH);
    let stream = connect(address);
    let mut out = stream.try_clone().unwrap();
    let mut stream = BufReader::new(stream);
    out.write_all(b"GET /sized HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begun = Instant::now();
    let answer = head(&mut stream);
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    program.signal(Signal::SIGUSR1);
    let rest = {
        let mut rest = vec![0; SIZE - first.len()];
        stream.read_exact(&mut rest).unwrap();
        rest
    };
    assert!([&first[..], &rest].concat() == body(), "{answer}");
    assert!(begun.elapsed() >= TIME);
    assert!(program.wait().success());
}

#[test]
fn a_request_that_is_sent_once_more_is_whole() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    // The first server reads a part of the body and closes.
    let first = origin(move |stream| {
        let mut stream = BufReader::new(stream);
        head(&mut stream);
        let mut part = vec![0; 3000];
        stream.read_exact(&mut part).unwrap();
        assert!(part == body()[..3000]);
        let _ = stream.get_ref().shutdown(Shutdown::Both);
        tell.send(()).unwrap();
    });
    let second = server();
    let _program = Manylane::start(&format!(
        "global\n tune.bufsize 400000\n{DEFAULTS} mode http\nlisten l\n bind {}\n balance first\n retry-on \
         empty-response conn-failure response-timeout\n retries 1\n option redispatch 1\n{LIMITS} \
         http-request set-bandwidth-limit up\n server one {first}\n server two {second}\n",
        fd(&socket)
    ));
    let said = ask(address, "/upload", "Content-Length: 300000\r\n", &body());
    receiver.recv().unwrap();
    took(&said);
}

#[test]
fn a_trace_tells_what_goes_on_and_pieces_of_random_size_arrive_unchanged() {
    let ((first, address), (second, quiet)) = (listener(), listener());
    let server = server();
    let (_program, mut said) = Manylane::start_heard(
        &format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n filter trace name HERE random-forwarding\n filter \
             trace hexdump\n server s {server}\nlisten quiet\n bind {}\n filter trace quiet hexdump \
             random-forwarding\n server s {server}\n",
            fd(&first),
            fd(&second)
        ),
        &[],
    );
    assert!(ask(quiet, "/chunked", "", b"") == body());
    for path in ["/sized", "/chunked", "/until-close"] {
        assert!(ask(quiet, path, "", b"") == body());
    }
    assert!(ask_h2(quiet, "/chunked", Vec::new()) == body());
    took(&ask_h2(quiet, "/upload", body()));
    assert_eq!(ask(address, "/upload", "Content-Length: 5\r\n", b"Hello"), b"other");
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("trace_stream_stop")) {
        lines.push(said.next().unwrap().unwrap());
    }
    let all = lines.join("\n");
    assert!(!all.contains("/quiet"), "{all}");
    for (what, line) in [
        ("begin", "[HERE/l              ] [strm "),
        ("default name", "[TRACE/l             ] [strm "),
        ("head", "trace_http_headers       : channel=REQUEST   \tPOST /upload"),
        ("field", "\tContent-Length: 5"),
        ("payload", "trace_http_payload       : channel=REQUEST    - len=5 - forward="),
        ("dump", "|H"),
        ("end", "trace_http_end           : channel=REQUEST"),
        ("status", "trace_http_headers       : channel=RESPONSE  \t200"),
        ("answer", "trace_http_payload       : channel=RESPONSE   - len=5 - forward="),
        ("answer's end", "trace_http_end           : channel=RESPONSE"),
    ] {
        assert!(all.contains(line), "{what}: {line}\n{all}");
    }
}

#[test]
fn what_is_wrong_with_filters_is_reported_in_one_sentence() {
    let limit = "filter bwlim-out a default-limit 1k default-period 1s";
    for (lines, reported) in [
        ("filter bwlim-out", "'filter bwlim-out' expects a name, found none"),
        ("filter bwlim-out a default-limit 1k", "'filter bwlim-out' expects 'default-period', found none"),
        ("filter bwlim-in a default-period 1s", "'filter bwlim-in' expects 'default-limit', found none"),
        (
            "filter bwlim-in a default-limit",
            "'filter bwlim-in' : 'default-limit' expects a value, found none",
        ),
        ("filter bwlim-in a default-limit 0 default-period 1s", "'default-limit' cannot be '0'"),
        ("filter bwlim-in a default-limit 5g default-period 1s", "'default-limit' cannot be '5g'"),
        ("filter bwlim-in a default-limit 1 default-period 0", "'default-period' expects at least 1ms"),
        ("filter bwlim-in a default-limit 1 default-period 1s min-size x", "'min-size' cannot be 'x'"),
        (
            "filter bwlim-in a default-limit 1 max-size 1",
            "'filter bwlim-in' expects default-limit, default-period, limit, key, table or min-size, found \
             'max-size'",
        ),
        (
            "filter bwlim-out a limit 1m key src table t",
            "filter 'a' expects the name of a proxy with a 'stick-table', found 't'",
        ),
        (
            "filter bwlim-out a limit 1m key src",
            "filter 'a' expects the name of a proxy with a 'stick-table', found 'l'",
        ),
        ("filter bwlim-out a limit 1m", "'filter bwlim-out' expects 'key', found none"),
        ("filter bwlim-out a key src", "'filter bwlim-out' expects 'limit', found none"),
        ("filter bwlim-out a limit 1m key", "'filter bwlim-out' : 'key' expects an expression, found none"),
        (
            "filter bwlim-out a key src limit 1m default-period 1s",
            "'key' is for a limit that streams share, 'default-period' for one of each stream; use one kind",
        ),
        (
            "stick-table type ip size 1 store bytes_in_rate(1s)\n filter bwlim-out a limit 1m key src",
            "filter 'a' expects a stick-table that stores 'bytes_out_rate', which 'l' does not",
        ),
        (
            "stick-table type ip size 1 store bytes_out_rate(1s)\n filter bwlim-out a limit 1m key src\n \
             http-request set-bandwidth-limit a limit 5",
            "expects nothing behind 'a', a filter whose limit streams share",
        ),
        (
            "stick-table type ip size 1 store bytes_out_rate(1s)\n filter bwlim-out a limit 1m key bool(1)\n \
             http-request set-bandwidth-limit a",
            "expects a key that can be converted to the table's type ipv4, found one of type bool",
        ),
        (
            &format!("{limit}\n filter bwlim-in a default-limit 1 default-period 1s"),
            "'filter bwlim-in' expects a name of its own, found 'a' again",
        ),
        ("filter compression", "'filter compression' is a keyword of HAProxy that this program refuses"),
        ("filter spoe engine x config y", "SPOE is not built yet"),
        ("filter nothing", "'filter' expects bwlim-in, bwlim-out or trace, found 'nothing'"),
        ("filter trace name", "'filter trace' : 'name' expects a value, found none"),
        ("filter trace hexdumps", "found 'hexdumps'; did you mean 'hexdump'?"),
        ("filter-sequence request a", "filters are asked in the order of their lines"),
        (
            "http-request set-bandwidth-limit a",
            "expects the name of a 'filter bwlim-in' or 'filter bwlim-out' line of the same proxy, found 'a'",
        ),
        (
            &format!("{limit}\n http-request set-bandwidth-limit a for 1s"),
            "expects limit or period, found 'for'",
        ),
        (
            &format!("{limit}\n http-request set-bandwidth-limit a limit 1e"),
            "expects a size behind 'limit': 'e' is not a unit of size",
        ),
        (
            &format!("{limit}\n http-request set-bandwidth-limit a limit"),
            "expects <filter> [limit <size>|<expression>] [period <time>|<expression>]",
        ),
        (
            &format!("{limit}\n http-request set-bandwidth-limit a period nothing"),
            "unknown fetch method 'nothing'",
        ),
        (
            &format!("{limit}\n http-after-response set-bandwidth-limit a"),
            "action 'set-bandwidth-limit' not allowed in 'http-after-response'",
        ),
    ] {
        let config = format!("{DEFAULTS} mode http\nlisten l\n bind 127.0.0.1:1\n {lines}\n");
        let output = check(&config, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reported), "{lines}\n{said}");
        let alerts = said.lines().filter(|line| line.contains("[ALERT]") && line.contains("parsing"));
        assert_eq!(alerts.count(), 1, "{lines}\n{said}");
    }
    let config = format!(
        "{DEFAULTS}defaults d\n mode http\n http-request set-bandwidth-limit a\nlisten l from d\n bind \
         127.0.0.1:1\n {limit}\n"
    );
    let said = String::from_utf8(check(&config, &[]).stderr).unwrap();
    assert!(said.contains("expects a proxy of its own, found a 'defaults' section"), "{said}");
}
