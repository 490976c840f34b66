//! Data of one client stays with that client, and each connection holds a limited amount of memory
//! (SECURITY.md, both tables).

use crate::common;

use bytes::Bytes;
use common::watch::{Syslog, ask as command, until};
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, origin, reset};
use h2::client::SendRequest;
use nix::poll::{PollFd, PollFlags};
use rustls::{ServerConfig, ServerConnection};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::time::{Duration, Instant};

/// Pseudorandom numbers from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    /// Returns the seed of `MANYLANE_SEED`, or a new one, and prints it.
    pub(crate) fn seed() -> u64 {
        let seed = std::env::var("MANYLANE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
        println!("MANYLANE_SEED={seed}");
        seed
    }

    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self((seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Reads the lines of a head; `None` if the connection ends before.
pub(crate) fn head(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if !reader.read_line(&mut line).is_ok_and(|n| n > 0) || !line.ends_with("\r\n") {
            return None;
        }
        if line == "\r\n" {
            return Some(lines);
        }
        lines.push(line.trim_end().to_owned());
    }
}

/// The path of a request.
pub(crate) fn path(request: &[String]) -> String {
    request[0].split(' ').nth(1).unwrap().to_owned()
}

fn answer(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// Reads a response: head and body; `None` if it is truncated.
fn response(reader: &mut impl BufRead) -> Option<(Vec<String>, String)> {
    let lines = head(reader)?;
    let length = lines
        .iter()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((lines, String::from_utf8(body).unwrap()))
}

fn get(client: &mut TcpStream, path: &str) -> Option<(Vec<String>, String)> {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).ok()?;
    response(&mut BufReader::new(client))
}

/// A server that sends data on idle connections: these are closed and get no request, and no client sees a
/// byte of the data.
#[test]
fn bytes_that_come_on_idle_connections_close_them_and_are_given_to_nobody() {
    strays_are_given_to_nobody(None, "");
}

/// The same over TLS.
#[test]
fn bytes_that_come_on_idle_connections_over_tls_close_them_and_are_given_to_nobody() {
    strays_are_given_to_nobody(Some(crate::drips::server_of_tls()), " ssl verify none");
}

/// A connection of a server, in clear or over TLS: one thread reads, and others may write meanwhile.
#[derive(Clone)]
struct Peer {
    stream: Arc<TcpStream>,
    tls: Option<Arc<Mutex<ServerConnection>>>,
}

impl Peer {
    /// Sends what TLS has to send.
    fn flush_tls(&self, tls: &mut ServerConnection) -> std::io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(&mut &*self.stream)?;
        }
        Ok(())
    }
}

impl Read for Peer {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let Some(tls) = &self.tls else { return (&*self.stream).read(room) };
        loop {
            match tls.lock().unwrap().reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            let mut bytes = [0; 4096];
            let length = (&*self.stream).read(&mut bytes)?;
            let mut came = &bytes[..length];
            if came.is_empty() {
                return Ok(0);
            }
            let mut tls = tls.lock().unwrap();
            while !came.is_empty() {
                tls.read_tls(&mut came)?;
                tls.process_new_packets().map_err(std::io::Error::other)?;
            }
            self.flush_tls(&mut tls)?;
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(tls) = &self.tls else { return (&*self.stream).write(bytes) };
        let mut tls = tls.lock().unwrap();
        let length = tls.writer().write(bytes)?;
        self.flush_tls(&mut tls)?;
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn strays_are_given_to_nobody(tls: Option<Arc<ServerConfig>>, ssl: &str) {
    const CLIENTS: u64 = 24;
    let seed = Dice::seed();
    let mut dice = Dice::new(seed, 0);
    // Open connections of the server, and whether stray data was sent on them.
    type Open = BTreeMap<usize, (Peer, Arc<AtomicBool>)>;
    let open: Arc<Mutex<Open>> = Arc::default();
    let misdirected = Arc::new(AtomicUsize::new(0));
    let (shared, wrong, next) = (open.clone(), misdirected.clone(), AtomicUsize::new(0));
    let server = origin(move |stream| {
        let number = next.fetch_add(1, Ordering::SeqCst);
        // Without this, stray data would wait for the acknowledgement in the next request, and arrive after
        // it.
        stream.set_nodelay(true).unwrap();
        let dirty = Arc::new(AtomicBool::new(false));
        let tls = tls.clone().map(|config| Arc::new(Mutex::new(ServerConnection::new(config).unwrap())));
        let mut peer = Peer { stream: Arc::new(stream), tls };
        let mut reader = BufReader::new(peer.clone());
        while let Some(request) = head(&mut reader) {
            // Not before: over TLS nothing can be sent on a connection whose handshake is under way.
            shared.lock().unwrap().entry(number).or_insert_with(|| (peer.clone(), dirty.clone()));
            wrong.fetch_add(usize::from(dirty.load(Ordering::SeqCst)), Ordering::SeqCst);
            if peer.write_all(answer(&path(&request)).as_bytes()).is_err() {
                break;
            }
        }
        shared.lock().unwrap().remove(&number);
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n http-reuse always\nlisten l\n bind {}\n server s {server}{ssl}\n",
        fd(&socket)
    ));
    // Requests hold it shared. A holder of the exclusive lock finds all connections idle.
    let quiet = Arc::new(RwLock::new(()));
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (quiet, over, count) = (quiet.clone(), over.clone(), count.clone());
            std::thread::spawn(move || {
                let mut client = connect(address);
                while !over.load(Ordering::SeqCst) {
                    let path = format!("/{number}-{}", count.fetch_add(1, Ordering::SeqCst));
                    let asking = quiet.read().unwrap();
                    let (lines, body) = get(&mut client, &path).expect("an answer is cut");
                    drop(asking);
                    assert_eq!((&*lines[0], body), ("HTTP/1.1 200 OK", path));
                    manylane_tests::look_again();
                }
            })
        })
        .collect();
    let strays = [
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen",
        "x",
        "\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 408 Late\r\n\r\n",
    ];
    let mut sent = 0;
    for round in 0..12 {
        until(|| !open.lock().unwrap().is_empty());
        let alone = quiet.write().unwrap();
        let mut dirty = Vec::new();
        for (&number, (stream, is_dirty)) in &mut *open.lock().unwrap() {
            if dirty.is_empty() || dice.below(2) == 0 {
                is_dirty.store(true, Ordering::SeqCst);
                let stray = strays[dice.below(strays.len() as u64) as usize];
                let _ = stream.write_all(stray.as_bytes()); // it may have been closed just now
                dirty.push(number);
            }
        }
        sent += dirty.len();
        // In turns: without requests the connections are closed all the same, or requests follow at once.
        if round % 2 == 0 {
            until(|| dirty.iter().all(|number| !open.lock().unwrap().contains_key(number)));
        }
        drop(alone);
        let before = count.load(Ordering::SeqCst);
        until(|| count.load(Ordering::SeqCst) > before + 200);
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    println!("{sent} connections were sent something, {} requests were served", count.load(Ordering::SeqCst));
    assert_eq!(misdirected.load(Ordering::SeqCst), 0, "requests went where something had come");
}

/// Bytes that arrived before a client's second request are not the response to it, in whatever order the
/// proxy reads them.
#[test]
fn what_was_there_before_a_request_is_no_answer_to_it() {
    let (tell, receiver) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = origin(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = head(&mut reader) {
            stream.write_all(answer(&path(&request)).as_bytes()).unwrap();
            // Stray data after the response, if the connection is still open.
            let _ = stream.write_all(answer("stolen").as_bytes());
            let _ = tell.lock().unwrap().send(());
        }
    });
    for reuse in ["safe", "always"] {
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "{ONE_LANE} mode http\n http-reuse {reuse}\nlisten l\n bind {}\n server s {server}\n",
            fd(&socket)
        ));
        let mut client = connect(address);
        for number in 0..50 {
            let path = format!("/{number}");
            let (_, body) = get(&mut client, &path).unwrap();
            receiver.recv_timeout(TIMEOUT).unwrap();
            assert_eq!(body, path);
        }
    }
}

/// Hundreds of clients with keep-alive connections; servers and clients close at random. Each complete
/// response belongs to its request.
#[test]
fn in_a_storm_each_answer_is_to_the_request_that_asked_for_it() {
    const CLIENTS: u64 = 200;
    const REQUESTS: u64 = 40;
    let seed = Dice::seed();
    let next = AtomicUsize::new(0);
    let server = origin(move |mut stream| {
        let mut dice = Dice::new(seed, 1_000_000 + next.fetch_add(1, Ordering::SeqCst) as u64);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = head(&mut reader) {
            let length = request
                .iter()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            // The response repeats its request in the head and, many times, in the body; it includes the
            // request's body.
            let named = format!("{} {}", path(&request), String::from_utf8(body).unwrap());
            let text = format!("{named}\n").repeat(1 + dice.below(400) as usize);
            let whole = match dice.below(2) {
                0 => format!(
                    "HTTP/1.1 200 OK\r\nX-Named: {named}\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                ),
                _ => {
                    let (one, two) = text.split_at(text.len() / 2);
                    let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
                    format!(
                        "HTTP/1.1 200 OK\r\nX-Named: {named}\r\nTransfer-Encoding: \
                            chunked\r\n\r\n{}{}0\r\n\r\n",
                        chunk(one),
                        chunk(two)
                    )
                }
            };
            let end = match dice.below(20) {
                0 => dice.below(whole.len() as u64) as usize,
                _ => whole.len(),
            };
            if stream.write_all(&whole.as_bytes()[..end]).is_err() {
                return;
            }
            match dice.below(30) {
                0 => return reset(stream),
                1 => return,
                _ if end < whole.len() => return,
                _ => {}
            }
        }
    });
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\n http-reuse always\n retries 2\n retry-on all-retryable-errors\nlisten l\n \
            bind {}\n server s {server} maxconn 60\n server t {server}\n",
        fd(&socket)
    );
    let mut program = Manylane::start(&config);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| std::thread::spawn(move || storms(address, Dice::new(seed, number), number, REQUESTS)))
        .collect();
    let whole: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    println!("{whole} of {} answers were whole and right", CLIENTS * REQUESTS);
    assert!(whole > CLIENTS * REQUESTS / 2, "{whole} only");
    assert!(program.runs());
}

/// One client of the storm; returns the number of complete responses.
pub(crate) fn storms(address: SocketAddr, mut dice: Dice, number: u64, requests: u64) -> u64 {
    let (mut client, mut whole, mut count) = (BufReader::new(connect(address)), 0, 0);
    while count < requests {
        let several = 1 + dice.below(3); // pipelined
        let requested: Vec<String> = (0..several)
            .map(|_| {
                count += 1;
                format!("/{number}-{count}")
            })
            .collect();
        let mut named = Vec::new();
        let mut out = String::new();
        for path in &requested {
            let body = if dice.below(3) == 0 { "b".repeat(dice.below(3000) as usize) } else { String::new() };
            let method = if body.is_empty() { "GET" } else { "POST" };
            out += &format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            named.push(format!("{path} {body}"));
        }
        let end = if dice.below(25) == 0 { dice.below(out.len() as u64) as usize } else { out.len() };
        let mut goes_on = client.get_mut().write_all(&out.as_bytes()[..end]).is_ok() && end == out.len();
        for named in &named {
            if !goes_on || dice.below(40) == 0 {
                goes_on = false; // closes, with responses under way
                break;
            }
            match storm_answer(&mut client, named) {
                Some((is_right, keeps)) => {
                    whole += u64::from(is_right);
                    goes_on = keeps;
                }
                None => goes_on = false,
            }
        }
        if !goes_on {
            let old = std::mem::replace(&mut client, BufReader::new(connect(address)));
            if dice.below(2) == 0 {
                reset(old.into_inner());
            }
        }
    }
    whole
}

/// Reads a response; whatever arrives must belong to the request `named`. Returns whether it is complete and
/// from a server, and whether the connection stays open.
fn storm_answer(client: &mut impl BufRead, named: &str) -> Option<(bool, bool)> {
    let lines = head(client)?;
    let field = |name: &str| {
        lines.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned))
    };
    let closes = field("connection: ").is_some_and(|value| value == "close");
    if lines[0] != "HTTP/1.1 200 OK" {
        assert!(["502", "503", "504", "500"].iter().any(|status| lines[0].contains(status)), "{}", lines[0]);
        let length = field("content-length: ").map_or(0, |value| value.parse().unwrap());
        client.read_exact(&mut vec![0; length]).ok()?;
        return Some((false, !closes));
    }
    assert_eq!(field("x-named: ").unwrap().trim_end(), named.trim_end());
    let mut body = Vec::new();
    if let Some(length) = field("content-length: ") {
        body.resize(length.parse().unwrap(), 0);
        client.read_exact(&mut body).ok()?;
    } else {
        loop {
            let mut line = String::new();
            client.read_line(&mut line).ok().filter(|&n| n > 2)?;
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let mut part = vec![0; size + 2];
            client.read_exact(&mut part).ok()?;
            body.extend_from_slice(&part[..size]);
            if size == 0 {
                break;
            }
        }
    }
    let body = String::from_utf8(body).unwrap();
    assert!(body.lines().all(|line| line == named), "an answer to another request than {named}");
    Some((true, !closes))
}

/// A busy connection whose server gets a new address serves no further request, since that would be for the
/// new address.
#[test]
fn a_connection_to_where_a_server_was_serves_nobody_who_asks_where_it_is() {
    let (tell, receiver) = mpsc::channel();
    let (go, going) = mpsc::channel::<()>();
    let ends = Mutex::new((tell, going));
    let old = origin(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while head(&mut reader).is_some() {
            let ends = ends.lock().unwrap();
            ends.0.send(()).unwrap();
            let _ = ends.1.recv(); // a second request would be a failure; do not block it
            stream.write_all(answer("old").as_bytes()).unwrap();
        }
    });
    let new = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while head(&mut reader).is_some() {
            stream.write_all(answer("new").as_bytes()).unwrap();
        }
    });
    let folder = Folder::new();
    let control = folder.0.join("control");
    let (socket, address) = listener();
    let config = DEFAULTS
        .replace("nbthread 2", &format!("nbthread 1\n stats socket {} level admin", control.display()));
    let _program = Manylane::start_ready(&format!(
        "{config} mode http\n http-reuse always\nlisten l\n bind {}\n server s {old}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap();
    let said = command(&control, &format!("set server l/s addr 127.0.0.1 port {}", new.port()));
    assert!(said.contains("port changed"), "{said}");
    go.send(()).unwrap();
    assert_eq!(response(&mut BufReader::new(&client)).unwrap().1, "old");
    drop(go);
    assert_eq!(get(&mut client, "/").expect("it went to where the server was").1, "new");
}

/// A request with every feature that stores something, and one after it that must not see any of that: on the
/// same connection, and on the next one of the lane, which reuses the memory. Each goes over HTTP/1 and
/// HTTP/2.
#[test]
fn nothing_of_a_request_is_left_for_the_next_one() {
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = head(&mut reader) {
            let secret =
                if path(&request) == "/secret" { "X-Out: secret\r\nSet-Cookie: c=secret\r\n" } else { "" };
            let observed = request.join("|");
            if stream
                .write_all(
                    format!(
                        "HTTP/1.1 200 OK\r\n{secret}Content-Length: {}\r\n\r\n{observed}",
                        observed.len()
                    )
                    .as_bytes(),
                )
                .is_err()
            {
                return;
            }
        }
    });
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let shown = "txn %[var(txn.v)] req %[var(req.v)] cap %[capture.req.hdr(0)] out %[capture.res.hdr(0)] \
        cookie %CC|%CS all %hr|%hs src %[src] id %ID uri %HU";
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\n http-reuse always\n log {} local0\nlisten l\n bind {}\n log-format \
            \"{shown}\"\n \
         capture request header X-In len 32\n capture response header X-Out len 32\n capture cookie c= len \
         32\n unique-id-format %[hdr(X-In)]\n \
         http-request capture hdr(X-In) len 32\n acl is_secret path /secret\n http-request set-header X-Seen \
         \"%[var(txn.v)]%[var(req.v)]%[var(res.v)]%[var(sess.v)]%[capture.req.hdr(0)]\"\n \
         http-request set-var(txn.v) hdr(X-In) if is_secret\n http-request set-var(req.v) hdr(X-In) if \
         is_secret\n http-response set-var(res.v) str(secret) if {{ var(txn.v) -m found }}\n \
         http-request set-src hdr(X-From) if is_secret\n http-request set-log-level alert if is_secret\n \
         http-request set-timeout server 7s if is_secret\n \
         http-request set-header X-Source %[src]\n\
         http-response set-header X-Timeout %[cur_server_timeout]\n http-response set-header X-Later \
         \"%[var(txn.v)]%[var(res.v)]%[capture.req.hdr(0)]%[capture.res.hdr(0)]\"\n server s {server}\n",
        syslog.address(),
        fd(&socket)
    ));
    let asks = |client: &mut TcpStream, path: &str, fields: &[(&str, &str)]| {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).unwrap();
        let (lines, body) = response(&mut BufReader::new(client)).unwrap();
        format!("{}|{body}", lines.join("|")).to_ascii_lowercase()
    };
    let fields = [("x-in", "secret"), ("cookie", "c=secret"), ("x-from", "192.0.2.77")];
    let check_next = |next: &str| {
        let line = syslog.wait("/next");
        for said in [next, &line] {
            assert!(!said.contains("secret") && !said.contains("192.0.2.77"), "{said}");
        }
        assert!(next.contains("x-source: 127.0.0.1") && next.contains("x-timeout: 30000"), "{next}");
        assert!(line.contains("<134>"), "its level is the usual one: {line}");
    };
    common::h2::block(async {
        let mut client = connect(address);
        let over_2 = common::h2::client(address).await;
        for round in 0..6 {
            let first = match round % 2 {
                0 => asks(&mut client, "/secret", &fields),
                _ => asks_over_2(&over_2, "/secret", &fields).await,
            };
            assert!(
                first.contains("x-source: 192.0.2.77")
                    && first.contains("x-timeout: 7000")
                    && first.contains("secretsecret"),
                "{first}"
            );
            let line = syslog.wait("/secret");
            assert!(line.contains("txn secret") && line.contains("192.0.2.77"), "{line}");
            let other_over_2 = common::h2::client(address).await;
            for client in [&mut client, &mut connect(address)] {
                check_next(&asks(client, "/next", &[]));
            }
            for client in [&over_2, &other_over_2] {
                check_next(&asks_over_2(client, "/next", &[]).await);
            }
        }
    });
}

/// A request over HTTP/2. Returns the fields and the body of its response, in lower case.
async fn asks_over_2(client: &SendRequest<Bytes>, path: &str, fields: &[(&str, &str)]) -> String {
    let request = http::Request::get(format!("http://a{path}"));
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut client = client.clone().ready().await.unwrap();
    let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    let mut text: String =
        head.headers.iter().map(|(name, value)| format!("{name}: {}|", value.to_str().unwrap())).collect();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text += std::str::from_utf8(&data).unwrap();
    }
    text.to_ascii_lowercase()
}

/// Clients that read nothing: endless responses, thousands of pipelined requests, endless 1xx responses. The
/// memory for each is limited.
#[test]
fn clients_that_do_not_read_make_us_hold_little() {
    const CLIENTS: usize = 20;
    /// Limit for each, in kilobytes: what is read at once, and with io_uring what is received and sent ahead;
    /// and 96 for what its tasks and partly filled clusters take.
    const MOST: usize = 64 + 128 + 16 + 96;
    /// The buffers into which io_uring receives, of two lanes.
    const RINGS: usize = 2 * 512;
    let (stalled, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (stalled.clone(), gone.clone());
    // Sends until nothing more is accepted. A partly accepted piece is continued: a new piece would not be a
    // chunk, and the program would rightly close.
    let pours = move |stream: &mut TcpStream, piece: &[u8]| {
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut at = 0;
        loop {
            match stream.write(&piece[at..]) {
                Ok(taken) => at = (at + taken) % piece.len(),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => panic!("the program closes: {error}"),
            }
        }
        counted.0.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read(&mut [0]); // until the program closes
        counted.1.fetch_add(1, Ordering::SeqCst);
    };
    let server = origin(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let Some(request) = head(&mut reader) else { return };
        match &*path(&request) {
            "/body" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n").unwrap();
                pours(&mut stream, &[b'x'; 16_384]);
            }
            "/chunks" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                // Chunks of the smallest size that is not merged with others.
                pours(&mut stream, &[&b"40\r\n"[..], &[b'x'; 64], b"\r\n"].concat().repeat(200));
            }
            "/interim" => pours(&mut stream, &b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(400)),
            _ => {
                let mut answers = stream.write_all(answer("warm").as_bytes());
                while answers.is_ok() && head(&mut reader).is_some() {
                    answers = stream.write_all(answer(&"x".repeat(16_000)).as_bytes());
                }
            }
        }
    });
    let (socket, address) = listener();
    let program = Manylane::start(&format!(
        "{} mode http\nlisten l\n bind {}\n server s {server}\n",
        common::measured(),
        fd(&socket)
    ));
    assert_eq!(get(&mut connect(address), "/warm").unwrap().1, "warm");
    let before = program.memory();
    for what in ["/body", "/chunks", "/interim"] {
        stalled.store(0, Ordering::SeqCst);
        gone.store(0, Ordering::SeqCst);
        let clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut client = connect(address);
                client.write_all(format!("GET {what} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
                client
            })
            .collect();
        until(|| stalled.load(Ordering::SeqCst) == CLIENTS);
        let now = program.memory();
        println!("{what}: {before} kB, and with {CLIENTS} clients that do not read {now} kB");
        assert!(now <= before + CLIENTS * MOST + RINGS, "{what}: {before} kB have become {now} kB");
        drop(clients);
        until(|| gone.load(Ordering::SeqCst) == CLIENTS); // otherwise their memory would count for others
    }
    let before = program.memory(); // includes what the lanes keep
    let mut clients: Vec<TcpStream> = (0..CLIENTS / 4).map(|_| connect(address)).collect();
    for client in &mut clients {
        client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let begin = Instant::now();
        let many = b"GET /many HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500);
        while client.write(&many).is_ok() {
            assert!(begin.elapsed() < TIMEOUT, "it takes requests without end whose answers nobody reads");
        }
    }
    let now = program.memory();
    println!("pipelined: {before} kB, and {now} kB");
    assert!(now <= before + CLIENTS / 4 * MOST + RINGS, "pipelined: {before} kB have become {now} kB");
}

/// Input that is no request: endless empty lines are refused, and take no memory.
#[test]
fn what_is_nothing_comes_to_an_end() {
    let (socket, address) = listener();
    let _program = Manylane::start(&format!("{DEFAULTS} mode http\nlisten l\n bind {}\n", fd(&socket)));
    let mut client = connect(address);
    let refused = (0..100_000).any(|_| client.write_all(&b"\r\n".repeat(100)).is_err());
    assert!(refused, "empty lines are taken without end");
    // 64 bytes are allowed.
    let mut client = connect(address);
    client.write_all(&[&b"\r\n".repeat(32)[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).unwrap();
    let (lines, _) = response(&mut BufReader::new(client)).unwrap();
    assert!(lines[0].starts_with("HTTP/1.1 503 "), "{}", lines[0]);
    let mut client = connect(address);
    client.write_all(&b"\r\n".repeat(33)).unwrap();
    let (lines, _) = response(&mut BufReader::new(client)).unwrap();
    assert!(lines[0].starts_with("HTTP/1.1 400 "), "{}", lines[0]);
}

/// After a refusal, 1 MiB of input is read, or what comes within two seconds.
///
/// The test sizes the receive buffer itself. Manylane sets `tune.rcvbuf.client` on an inherited socket when
/// it serves, and a connection that was established earlier has a buffer that grows with the sender, up to
/// `tcp_rmem`: by megabytes on a busy machine.
#[test]
fn who_was_refused_and_goes_on_sending_is_left() {
    const LINGERING: (usize, Duration) = (1 << 20, Duration::from_secs(2));
    const SMALL: usize = 32 << 10;
    // The kernel doubles the sizes of buffers, and a sender's last packet may begin below the limit.
    const KERNEL: usize = 2 * SMALL + 2 * SMALL + (64 << 10);
    // The last read may begin below the bound.
    const LAST_READ: usize = 16 << 10;
    const RECEIVED_AHEAD: usize = 128 << 10; // by io_uring
    const BESIDE: usize = KERNEL + LAST_READ + RECEIVED_AHEAD;
    let (socket, address) = listener();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SMALL).unwrap();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n http-request deny\n",
        fd(&socket)
    ));
    let refused = || {
        let mut client = connect(address);
        rustix::net::sockopt::set_socket_send_buffer_size(&client, SMALL).unwrap();
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n").unwrap();
        let (lines, _) = response(&mut BufReader::new(client.try_clone().unwrap())).unwrap();
        assert!(lines[0].contains("403"), "{}", lines[0]);
        client
    };
    let (mut client, mut sent) = (refused(), 0);
    while client.write_all(&[b'x'; 4096]).is_ok() {
        sent += 4096;
        assert!(sent <= LINGERING.0 + BESIDE, "what nobody needs is read without end");
    }
    // Unless the machine was so busy that the time ended it.
    println!("{sent} bytes were sent, at most {}", LINGERING.0 + BESIDE);
    let begin = Instant::now(); // this thread may be late where the refusal comes
    let mut client = refused();
    while client.write_all(b"x").is_ok() {
        assert!(begin.elapsed() < 5 * LINGERING.1, "what nobody needs is read for too long");
        // The rate of the bytes, unless the connection is reset before.
        let socket = PollFd::new(client.as_fd(), PollFlags::empty());
        nix::poll::poll(&mut [socket], 10u16).unwrap();
    }
    assert!(begin.elapsed() > LINGERING.1 - Duration::from_millis(200), "{:?}", begin.elapsed());
}

/// A connection that began with one client's PROXY header serves no other client, and no request that claims
/// another source.
#[test]
fn what_a_proxy_header_says_is_of_its_client_alone() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let server = origin(move |mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut greeting = String::new();
        reader.read_line(&mut greeting).unwrap();
        let who = greeting.split(' ').nth(2).unwrap_or("nobody").to_owned();
        while head(&mut reader).is_some() {
            if stream.write_all(answer(&who).as_bytes()).is_err() {
                return;
            }
        }
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\n http-reuse always\nlisten l\n bind {} accept-proxy\n http-request set-src \
            path,field(2,/) if {{ path_beg /192. }}\n server s {server} send-proxy\n",
        fd(&socket)
    ));
    let greeted = |who: &str| {
        let mut client = connect(address);
        client.write_all(format!("PROXY TCP4 {who} 192.0.2.200 1000 80\r\n").as_bytes()).unwrap();
        client
    };
    let (mut first, mut second) = (greeted("192.0.2.1"), greeted("192.0.2.2"));
    let got = [
        get(&mut first, "/").unwrap().1,
        get(&mut second, "/").unwrap().1,
        get(&mut first, "/192.0.2.3").unwrap().1,
        get(&mut second, "/").unwrap().1,
        get(&mut first, "/").unwrap().1,
        get(&mut first, "/192.0.2.4").unwrap().1,
    ];
    assert_eq!(got, ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.2", "192.0.2.1", "192.0.2.4"]);
    // The client's connection serves requests that claim the same source.
    assert_eq!(get(&mut first, "/192.0.2.4").unwrap().1, "192.0.2.4");
    assert_eq!(connections.load(Ordering::SeqCst), 5);
}

/// Data that rules store of a request for its log line and its servers is truncated: a unique id to 128
/// bytes, a capture to its configured length.
#[test]
fn what_is_kept_of_a_request_for_its_line_is_cut() {
    let (syslog, (socket, address)) = (Syslog::new(), listener());
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} len 4000 local0\nlisten l\n bind {}\n unique-id-format %[hdr(X-In)]\n \
         log-format \"id %ID cookie %CC all %hr end\"\n capture request header X-In len 32\n capture cookie \
         c len 8\n \
         http-request capture hdr(X-In) len 16\n http-request set-header X-Id %[unique-id]\n http-request \
         return status 200\n",
        syslog.address(),
        fd(&socket)
    ));
    let long = "x".repeat(5000);
    let mut client = connect(address);
    client
        .write_all(
            format!("GET / HTTP/1.1\r\nHost: a\r\nX-In: {long}\r\nCookie: c={long}\r\n\r\n").as_bytes(),
        )
        .unwrap();
    assert_eq!(response(&mut BufReader::new(client)).unwrap().0[0], "HTTP/1.1 200 OK");
    let x = |length| "x".repeat(length);
    let line = syslog.wait("id ");
    let expected = format!("id {} cookie c={} all {{{}|{}}} end", x(128), x(6), x(32), x(16));
    assert!(line.ends_with(&expected), "{line}");
}

/// `show errors` keeps the beginning of a large message, and only the last message.
#[test]
fn of_a_message_for_show_errors_the_beginning_is_kept() {
    const KEPT: usize = 16_384;
    let (folder, (socket, address)) = (Folder::new(), listener());
    let control = folder.0.join("control");
    let global = format!("nbthread 2\n tune.bufsize 65536\n stats socket {}", control.display());
    let _program = Manylane::start_ready(&format!(
        "{} mode http\nlisten l\n bind {}\n",
        DEFAULTS.replace("nbthread 2", &global),
        fd(&socket)
    ));
    for _ in 0..10 {
        let mut client = connect(address);
        let field = "~".repeat(50_000);
        client
            .write_all(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {field}\r\nb a d: 1\r\n\r\n").as_bytes())
            .unwrap();
        assert!(response(&mut BufReader::new(client)).unwrap().0[0].starts_with("HTTP/1.1 400 "));
    }
    let shown = command(&control, "show errors");
    let kept = shown.matches('~').count();
    assert!(KEPT - 100 < kept && kept <= KEPT, "{kept} of 50,000 bytes are kept");
}

/// A client in a tarpit that continues to send: the program reads a part, and the rest waits in the client's
/// system.
#[test]
fn a_client_in_a_tarpit_makes_us_hold_little() {
    // Kilobytes of each: 64 are held, and io_uring has received 128 ahead.
    for (driver, bytes) in [("epoll", 64), ("auto", 64 + 128)] {
        holds_little_in_a_tarpit(driver, bytes);
    }
}

/// `bytes` is the number of kilobytes that the program has of each client: they take twice as much memory at
/// most. The buffers of both sockets, which are as small as they can be, have at most 32 more.
fn holds_little_in_a_tarpit(driver: &str, bytes: usize) {
    const CLIENTS: usize = 20;
    const BUFFERS: usize = 32;
    let (socket, address) = listener();
    let config = common::measured().replace("nbthread 2", "nbthread 1\n tune.rcvbuf.client 4096");
    let config = format!(
        "{config} mode http\n timeout tarpit 60s\nlisten l\n bind {}\n http-request tarpit\n",
        fd(&socket)
    );
    let mut command = common::command();
    let (program, mut said) =
        Manylane::start_heard_as(&config, command.arg("-V").env("MANYLANE_DRIVER", driver));
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    let before = program.memory();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(address);
            rustix::net::sockopt::set_socket_send_buffer_size(&client, 4096).unwrap();
            client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n").unwrap();
            client
        })
        .collect();
    let sent: Vec<usize> = std::thread::scope(|scope| {
        let sending = clients.iter().map(|mut client| {
            scope.spawn(move || {
                let mut sent = 0;
                while sent < 4 << 20 && client.write_all(&[b'x'; 1000]).is_ok() {
                    sent += 1000;
                }
                sent
            })
        });
        sending.collect::<Vec<_>>().into_iter().map(|each| each.join().unwrap()).collect()
    });
    let now = program.memory();
    println!("{driver}: {sent:?} bytes; {before} kB, and {now} kB");
    assert!(sent.iter().all(|sent| *sent <= (bytes + BUFFERS) << 10), "{driver}: {sent:?} bytes are taken");
    assert!(now <= before + CLIENTS * 2 * bytes, "{driver}: {before} kB have become {now} kB");
}

/// A lane builds pages for a limited number of clients at a time; others get an error until a page is done.
#[test]
fn pages_that_nobody_reads_are_made_for_few() {
    const AT_ONCE: usize = 16;
    let (socket, address) = listener();
    let config = DEFAULTS.replace("nbthread 2", "nbthread 1\n tune.sndbuf.client 4096");
    let program = Manylane::start_ready(&format!(
        "{config} mode http\nlisten l\n bind {}\n stats uri /stats\nbackend b\n server-template s 3000 \
            127.0.0.1:9 disabled\n",
        fd(&socket)
    ));
    let asks = |what: &str| {
        let mut client = connect(address);
        client
            .write_all(format!("GET {what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
            .unwrap();
        BufReader::new(client)
    };
    let begins = |client: &mut BufReader<TcpStream>| head(client).unwrap()[0].clone();
    let before = program.memory();
    let mut readers: Vec<_> = (0..AT_ONCE).map(|_| asks("/stats")).collect();
    readers.iter_mut().for_each(|client| assert_eq!(begins(client), "HTTP/1.1 200 OK"));
    for _ in 0..3 {
        assert!(begins(&mut asks("/stats")).starts_with("HTTP/1.1 503 "));
    }
    println!("{before} kB, and {} kB", program.memory());
    // A client that has read its page, and one that has closed, make room.
    std::io::copy(&mut readers[0], &mut std::io::sink()).unwrap();
    drop(readers.pop());
    until(|| begins(&mut asks("/stats")) == "HTTP/1.1 200 OK");
}
