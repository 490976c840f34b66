//! Tests of bounds that SECURITY.md lists, on a lane whose clock goes on when a test says so: waits of
//! seconds take none, and end neither early nor late.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use crate::accept;
use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::{Local, THREADS, bind, hashing};
use manylane_net::HandedOver;
use manylane_plan::Generation;
use manylane_plan::generation::{Order, Question, StartOptions};
use manylane_resolve::Name;
use manylane_sched::{Config, Here, Lane, Time};
use manylane_sync::Arc;
use rustix::net::{AddressFamily, SocketType};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::IntoRawFd;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More rounds than a lane needs to act on what has come and on timers that are due.
const ROUNDS: usize = 200;

/// The lane's timers have this resolution.
const TICK: Duration = Duration::from_millis(5);

thread_local! {
    /// The time of this thread's lane.
    static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1000)) };
}

fn pass(time: Duration) {
    NOW.set(NOW.get() + time);
}

/// A listening socket of this test, and its word for a `bind` line. The generation owns the latter.
fn listener() -> (TcpListener, String) {
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let word = format!("fd@{}", own.try_clone().unwrap().into_raw_fd());
    (own, word)
}

/// Runs `test` on a lane that serves this configuration.
pub(crate) fn serving<F: Future<Output = ()> + 'static>(lines: &str, test: impl FnOnce(Rc<Local>) -> F) {
    let mut sources = Sources::new();
    sources.add("test.cfg", lines.to_owned()).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let mut generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    assert_eq!(loaded.found.errors(), 0, "{:?}", loaded.found.found());
    generation.set_maxconn(100);
    let clock = || Time::ZERO + NOW.get();
    let mut lane = Lane::new(Config::new().clock(clock)).unwrap();
    let mut driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
    let generation = Arc::new(generation);
    let nobody = |_, _: &str| Err("nobody".into());
    let bound = Arc::new(bind(&generation, 1, nobody, &mut HandedOver::default()).unwrap());
    let local = Local::install(driver.io(), generation, || {});
    accept(&local, &bound, &[lane.id()]).unwrap();
    lane.block_on(&mut driver, test(local)).unwrap();
    Local::remove_all();
}

/// Yields to the lane until `is_so` returns true.
async fn until(here: Here, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        here.yield_now().await;
    }
}

async fn rounds(here: Here) {
    for _ in 0..ROUNDS {
        here.yield_now().await;
    }
}

/// A client that never blocks the lane.
fn client(to: &TcpListener) -> TcpStream {
    let stream = TcpStream::connect(to.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// The next connection, which does not block either.
async fn accepts(here: Here, listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    until(here, "there is a connection", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    })
    .await;
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// What comes until the connection ends.
async fn ends(here: Here, mut client: &TcpStream) -> String {
    let mut came = Vec::new();
    until(here, "it ends", || match client.read_to_end(&mut came) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        ended => ended.is_ok() || panic!("{ended:?}"),
    })
    .await;
    String::from_utf8(came).unwrap()
}

/// Asserts that nothing comes until `time` has passed. Returns what comes then, until the connection ends.
async fn ends_after(here: Here, client: &TcpStream, time: Duration) -> String {
    let early = Duration::from_millis(1);
    rounds(here).await;
    pass(time - early);
    rounds(here).await;
    assert_eq!(client.peek(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    pass(early + TICK);
    ends(here, client).await
}

#[test]
fn a_request_waits_in_a_queue_for_timeout_queue() {
    let (front, bind) = listener();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "listen l\n mode http\n bind {bind}\n timeout client 1h\n timeout server 1h\n timeout connect 1h\n \
         timeout queue 7s\n server s {} maxconn 1\n",
        server.local_addr().unwrap()
    );
    serving(&config, |local| async move {
        let here = local.here();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let [mut first, mut second] = [client(&front), client(&front)];
        first.write_all(request).unwrap();
        let _accepted = accepts(here, &server).await;
        second.write_all(request).unwrap();
        let counts = &local.generation.frontends[0].counts;
        until(here, "the second request is there", || counts.read_cheap_one(|counts| &counts.requests) == 2)
            .await;
        let answer = ends_after(here, &second, Duration::from_secs(7)).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    });
}

/// Two threads hash, 256 passwords wait, and no request waits for longer than ten seconds.
#[test]
fn passwords_wait_for_ten_seconds_and_so_many_of_them() {
    assert_eq!(THREADS, 2);
    let (begins, begun) = mpsc::channel();
    let gates: Vec<_> = (0..2)
        .map(|_| {
            let ((gate, opens), begins) = (mpsc::channel::<()>(), begins.clone());
            drop(hashing().run(move || {
                begins.send(()).unwrap();
                let _ = opens.recv();
            }));
            begun.recv_timeout(TIMEOUT).unwrap();
            gate
        })
        .collect();
    (0..255).for_each(|_| drop(hashing().run(|| ()).unwrap()));
    let (front, bind) = listener();
    let config = format!(
        "userlist u\n user ann password $2b$10$abcdefghijklmnopqrstuu0uIewG7hXDJNtk3ib048WCtX.0JsFiS\n\
         listen l\n mode http\n bind {bind}\n timeout client 1h\n \
         http-request deny unless {{ http_auth(u) }}\n \
         http-request return status 200\n"
    );
    serving(&config, |local| async move {
        let here = local.here();
        const BODY: usize = 10_000;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YW5uOkhlbGxvIHdvcmxkIQ==\r\n\
             Content-Length: {BODY}\r\nConnection: close\r\n\r\n"
        );
        let counts = &local.generation.frontends[0].counts;
        let asks = async |number| {
            let mut client = client(&front);
            client.write_all(request.as_bytes()).unwrap();
            until(here, "it is there", || counts.read_cheap_one(|counts| &counts.requests) == number).await;
            client
        };
        let waits = asks(1).await;
        rounds(here).await;
        assert!(hashing().run(|| ()).is_err(), "256 wait");
        let refused = ends(here, &asks(2).await).await;
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        stays_unread(here, &waits, BODY).await;
        let answer = ends_after(here, &waits, Duration::from_secs(10)).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    });
    drop(gates);
}

/// 256 queries are under way for 100 ms each while others wait, and the 2,049th counts as unanswered.
#[test]
fn queries_of_rules_have_slots_and_a_bound() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&server, 1 << 20).unwrap(); // for a whole slice
    let address = server.local_addr().unwrap();
    let config = format!(
        "resolvers r\n nameserver n {address}\n resolve_retries 1\n timeout retry 1h\n timeout resolve 1h\n"
    );
    serving(&config, |local| async move {
        let here = local.here();
        for number in 0..2_049 {
            let name = Name::parse(&format!("n{number}.test")).unwrap();
            let question = Arc::new(Question::new(name, manylane_resolve::Kind::A));
            assert!(local.generation.resolvers[0].order(Order::Ask(question)));
        }
        let mut names = BTreeSet::new();
        let mut count = || {
            let mut query = [0; 512];
            while let Ok(length) = server.recv(&mut query) {
                names.insert(query[12..length].to_vec());
            }
            names.len()
        };
        for slice in 1..=8 {
            until(here, "a slice of queries", || count() == slice * 256).await;
            rounds(here).await;
            pass(Duration::from_millis(99));
            rounds(here).await;
            assert_eq!(count(), slice * 256, "slice {slice}");
            pass(Duration::from_millis(1) + TICK);
        }
        rounds(here).await;
        assert_eq!(count(), 2_048);
    });
}

#[test]
fn a_silent_name_server_takes_no_slots_of_the_others() {
    let [silent, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    other.set_nonblocking(true).unwrap();
    let [first, second] = [&silent, &other].map(|server| server.local_addr().unwrap());
    let config = format!(
        "resolvers r\n nameserver silent {first}\n nameserver other {second}\n resolve_retries 1\n \
         timeout retry 1h\n timeout resolve 1h\n"
    );
    serving(&config, |local| async move {
        let here = local.here();
        let asks = |number: usize| {
            let name = Name::parse(&format!("n{number}.test")).unwrap();
            let question = Arc::new(Question::new(name, manylane_resolve::Kind::A));
            assert!(local.generation.resolvers[0].order(Order::Ask(question)));
        };
        // The other one answers that there is no such name.
        let answers = || {
            let (mut query, mut count) = ([0; 512], 0);
            while let Ok((length, from)) = other.recv_from(&mut query) {
                query[2..4].copy_from_slice(&[0x81, 0x83]);
                other.send_to(&query[..length], from).unwrap();
                count += 1;
            }
            count
        };
        let mut answered = 0;
        for number in 0..300 {
            asks(number);
            until(here, "the other one is asked", || {
                answered += answers();
                answered > number
            })
            .await;
        }
    });
}

#[test]
fn a_peer_has_five_seconds_for_its_greeting() {
    let (front, bind) = listener();
    let config = format!("global\n localpeer own\npeers p\n bind {bind}\n server own\n");
    serving(&config, |local| async move {
        let here = local.here();
        let mut stranger = client(&front);
        stranger.write_all(b"HAProxyS 2.1\n").unwrap();
        assert_eq!(ends_after(here, &stranger, Duration::from_secs(5)).await, "");
    });
}

#[test]
fn a_responder_has_20_seconds_for_its_answer() {
    let responder = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its certificate names a responder, which is requested by way of this test.
    let certificate = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ocsp.pem");
    let (_front, bind) = listener();
    let config = format!(
        "global\n ocsp-update.httpproxy {}\ncrt-store\n load crt {certificate} ocsp-update on\n\
         listen l\n mode http\n timeout client 1h\n bind {bind} ssl crt {certificate}\n \
         http-request return status 200\n",
        responder.local_addr().unwrap()
    );
    serving(&config, |local| async move {
        let here = local.here();
        let mut stream = accepts(here, &responder).await;
        let mut request = Vec::new();
        until(here, "the request is there", || {
            let _ = stream.read_to_end(&mut request);
            request.ends_with(b"\r\n\r\n")
        })
        .await;
        assert_eq!(ends_after(here, &stream, Duration::from_secs(20)).await, "");
    });
}

/// Numbers of bytes that the socket from one address to another has to send, and that wait in it to be
/// received. `None` without such a connection.
fn queued(from: SocketAddr, to: SocketAddr) -> Option<(usize, usize)> {
    let [from, to] = [from, to].map(|address| {
        let SocketAddr::V4(address) = address else { panic!("it is of IPv4") };
        format!("{:08X}:{:04X}", u32::from(*address.ip()).to_be(), address.port())
    });
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    // Number, local address, remote address, state, bytes to send and to receive.
    let line = lines.find(|words| words[1] == from && words[2] == to && words[3] == "01")?;
    let (unsent, unread) = line[4].split_once(':').unwrap();
    let number = |hex| usize::from_str_radix(hex, 16).unwrap();
    Some((number(unsent), number(unread)))
}

/// True if the other end's system has acknowledged all that this socket has sent.
fn is_delivered(client: &TcpStream) -> bool {
    let queued = queued(client.local_addr().unwrap(), client.peer_addr().unwrap());
    queued.is_some_and(|(unsent, _)| unsent == 0)
}

/// Number of bytes that this socket has sent, and that the other end's program has not read.
fn unread(sender: &TcpStream) -> usize {
    let queued = queued(sender.peer_addr().unwrap(), sender.local_addr().unwrap());
    queued.expect("there is a connection").1
}

/// Sends so many bytes, and asserts that the lane reads none of them.
async fn stays_unread(here: Here, mut sender: &TcpStream, bytes: usize) {
    until(here, "what came before is read", || is_delivered(sender) && unread(sender) == 0).await;
    sender.write_all(&vec![b'x'; bytes]).unwrap();
    until(here, "it is delivered", || is_delivered(sender)).await;
    rounds(here).await;
    assert_eq!(unread(sender), bytes);
}

/// While rules pause, nothing is read of what comes: it stays in the system.
#[test]
fn what_comes_while_rules_pause_is_not_read() {
    const MORE: usize = 10_000;
    const PAUSE: Duration = Duration::from_secs(7);
    for list in ["http-request", "http-response"] {
        let (front, bind) = listener();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = format!(
            "listen l\n mode http\n bind {bind}\n timeout client 1h\n timeout server 1h\n \
             timeout connect 1h\n {list} pause 7s\n server s {}\n",
            server.local_addr().unwrap()
        );
        serving(&config, move |local| async move {
            let here = local.here();
            let mut client = client(&front);
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {MORE}\r\n\r\n");
            let body = if list == "http-request" {
                client.write_all(head.as_bytes()).unwrap();
                stays_unread(here, &client, MORE).await;
                client
            } else {
                client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                let mut requested = accepts(here, &server).await;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MORE}\r\n\r\n");
                requested.write_all(head.as_bytes()).unwrap();
                stays_unread(here, &client, MORE).await; // what is behind the request
                stays_unread(here, &requested, MORE).await;
                requested
            };
            pass(PAUSE - Duration::from_millis(1));
            rounds(here).await;
            assert_eq!(unread(&body), MORE);
            pass(Duration::from_millis(1) + TICK);
            until(here, "it is read behind the pause", || unread(&body) == 0).await;
        });
    }
}

/// The wait for a body ends with as many bytes of data as `tune.bufsize` says, of a response less
/// `tune.maxrewrite`. There it also ends with twice as many bytes and 16 KiB of data and framing.
#[test]
fn a_body_is_waited_for_up_to_a_bound() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let data = "x".repeat(100_000);
    let chunks = format!("1;{}\r\nx\r\n", "e".repeat(16_000)).repeat(4);
    for (rule, framing, body, most) in [
        ("http-request wait-for-body time 1h", "Content-Length: 100000", &data, 16_384),
        ("option http-buffer-request", "Content-Length: 100000", &data, 16_384),
        ("http-response wait-for-body time 1h", "Content-Length: 100000", &data, 15_360),
        ("http-response wait-for-body time 1h", "Transfer-Encoding: chunked", &chunks, 2 * 15_360 + 16_384),
    ] {
        let (front, bind) = listener();
        let config = format!(
            "listen l\n mode http\n bind {bind}\n timeout client 1h\n timeout server 1h\n \
             timeout connect 1h\n {rule}\n server s {}\n",
            server.local_addr().unwrap()
        );
        let server = server.try_clone().unwrap();
        let (less, last) = (body[..most - 1].to_owned(), body[most - 1..most].to_owned());
        let of_request = !rule.starts_with("http-response");
        serving(&config, move |local| async move {
            let here = local.here();
            let mut client = client(&front);
            let nothing = |stream: &TcpStream| {
                assert_eq!(stream.peek(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
            };
            if of_request {
                client
                    .write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes())
                    .unwrap();
                client.write_all(less.as_bytes()).unwrap();
                until(here, "it is read", || is_delivered(&client) && unread(&client) == 0).await;
                rounds(here).await;
                server.set_nonblocking(true).unwrap();
                assert!(server.accept().is_err(), "{most}: the server is requested too soon");
                client.write_all(last.as_bytes()).unwrap();
                drop(accepts(here, &server).await);
                return;
            }
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut requested = accepts(here, &server).await;
            requested.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{less}").as_bytes()).unwrap();
            until(here, "it is read", || is_delivered(&requested) && unread(&requested) == 0).await;
            rounds(here).await;
            nothing(&client);
            requested.write_all(last.as_bytes()).unwrap();
            until(here, "the response goes on", || client.peek(&mut [0]).is_ok()).await;
        });
    }
}

/// The input of two clients is there before the lane looks at either: the first has 16 requests served before
/// the second has its one.
#[test]
fn who_pipelines_has_sixteen_requests_in_a_row() {
    let (front, bind) = listener();
    let config = format!(
        "listen l\n mode http\n bind {bind}\n timeout client 1h\n \
         http-request return status 200 hdr x-number %rt\n"
    );
    serving(&config, |local| async move {
        let here = local.here();
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let [mut first, mut second] = [client(&front), client(&front)];
        let numbers = async |mut client: &TcpStream, count: usize| {
            let (mut came, mut piece) = (Vec::new(), [0; 4096]);
            until(here, "the answers are there", || {
                while let Ok(n) = client.read(&mut piece) {
                    came.extend_from_slice(&piece[..n]);
                }
                String::from_utf8_lossy(&came).matches("\r\n\r\n").count() == count
            })
            .await;
            let came = String::from_utf8(came).unwrap();
            let numbers = came.lines().filter_map(|line| line.strip_prefix("x-number: "));
            numbers.map(|number| number.parse().unwrap()).collect::<Vec<u64>>()
        };
        for client in [&mut first, &mut second] {
            client.write_all(request.as_bytes()).unwrap();
            numbers(client, 1).await;
        }
        rounds(here).await;
        first.write_all(request.repeat(40).as_bytes()).unwrap();
        second.write_all(request.as_bytes()).unwrap();
        let [all, one] = [numbers(&first, 40).await, numbers(&second, 1).await];
        let before = all.iter().filter(|number| **number < one[0]).count();
        assert_eq!(before, 16, "{all:?}, {one:?}");
    });
}

/// Where TCP mode reaches no server, 64 KiB of what the client has sent are read, so that it sees an end. One
/// that has sent more gets a reset. The last read may begin below the bound.
#[test]
fn of_what_a_client_without_a_server_has_sent_a_part_is_read() {
    // Bound by this test, so that nobody else listens there.
    let closed = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&closed, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let closed_at = SocketAddr::try_from(rustix::net::getsockname(&closed).unwrap()).unwrap();
    for (sent, end) in [(64 << 10, Ok(0)), (160 << 10, Err(ErrorKind::ConnectionReset))] {
        let (front, bind) = listener();
        // Of the listener, so that connections inherit it: the bytes must be there before the lane reads.
        rustix::net::sockopt::set_socket_recv_buffer_size(&front, 1 << 20).unwrap();
        let mut client = TcpStream::connect(front.local_addr().unwrap()).unwrap();
        client.write_all(&vec![b'x'; sent]).unwrap();
        let began = Instant::now();
        while !is_delivered(&client) {
            assert!(began.elapsed() < TIMEOUT, "{sent} bytes are delivered");
            std::thread::yield_now();
        }
        client.set_nonblocking(true).unwrap();
        let config = format!(
            "listen l\n mode tcp\n bind {bind}\n \
             timeout client 1h\n timeout server 1h\n timeout connect 1h\n retries 0\n server s {closed_at}\n"
        );
        serving(&config, |local| async move {
            let mut observed = Err(ErrorKind::WouldBlock);
            until(local.here(), "the connection ends", || {
                observed = client.read(&mut [0]).map_err(|error| error.kind());
                observed != Err(ErrorKind::WouldBlock)
            })
            .await;
            assert_eq!(observed, end, "{sent} bytes");
        });
    }
}
