//! In steady state, a request on a keep-alive connection uses neither the global allocator nor a contended
//! lock, on every lane (R-B4, R-G2). The configuration has common features: a log, forwardfor, a cookie,
//! rules.
//!
//! A lane that allocates while requests are counted aborts the test program with a message.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::{BoundListener, Local, bind};
use manylane_net::HandedOver;
use manylane_plan::Generation;
use manylane_runtime::accept;
use manylane_sched::{Config, Lane, Remote, Time};
use manylane_sync::{Arc, LaneId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

mod common;

#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

const LANES: usize = 2;
const BODY: &[u8] = b"hello";
const GET: &[u8] = b"GET /path?x=1 HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test\r\nCookie: S=a\r\n\r\n";
const POST: &[u8] =
    b"POST /path HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

/// The same from lenient peers: bare line feeds, blanks, a control character; likewise from the server.
const LAX_GET: &[u8] = b"GET  /path?x=1 HTTP/1.1\nHost: example.org\nUser-Agent: te\x01st\nCookie: S=a\n\n";
const LAX_POST: &[u8] =
    b"POST /path HTTP/1.1\nHost: example.org\nTransfer-Encoding: chunked\n\n5 \r\nhello\r\n0\r\n\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";
const LAX_ANSWER: &[u8] = b"HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 5\n\nhello";

/// Two requests, and the server's response to them.
type Messages = ([&'static [u8]; 2], &'static [u8]);
const STRICT: Messages = ([GET, POST], ANSWER);
const LAX: Messages = ([LAX_GET, LAX_POST], LAX_ANSWER);

/// An origin that responds to each empty line after a head, and knows the bodies of this test.
fn origin(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let mut piece = [0; 4096];
                loop {
                    let n = stream.read(&mut piece).unwrap_or(0);
                    if n == 0 {
                        return;
                    }
                    bytes.extend_from_slice(&piece[..n]);
                    let end: &[u8] = if bytes.starts_with(b"POST") { b"0\r\n\r\n" } else { b"\r\n\r\n" };
                    if bytes.ends_with(end) {
                        bytes.clear();
                        stream.write_all(answer).unwrap();
                    }
                }
            });
        }
    });
    address
}

/// Sends one request and reads the response into `answer`.
fn ask(client: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) {
    client.write_all(request).unwrap();
    answer.clear();
    let mut piece = [0; 4096];
    while !answer.ends_with(BODY) {
        let n = client.read(&mut piece).unwrap();
        assert!(n > 0, "the connection ended: {}", String::from_utf8_lossy(answer));
        answer.extend_from_slice(&piece[..n]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(answer));
}

/// Runs one lane until the test ends.
fn lane(
    number: usize,
    ids: &(mpsc::Sender<LaneId>, mpsc::Receiver<Vec<LaneId>>),
    kind: Kind,
    (generation, bound): (Arc<Generation>, Arc<Vec<BoundListener>>),
    meeting: &Barrier,
) {
    let clock = || Time::ZERO + Duration::from_millis(CLOCK.load(Ordering::Relaxed));
    let mut lane = Lane::new(Config::new().clock(clock)).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, DriverChoice::Only(kind)).unwrap();
    ids.0.send(lane.id()).unwrap();
    let all = ids.1.recv().unwrap();
    let local = Local::install(driver.io(), generation, || {});
    accept(&local, &bound, &all).unwrap();
    meeting.wait();
    lane.run(&mut driver).unwrap();
    meeting.wait();
    assert_no_alloc::assert_no_alloc(|| lane.run(&mut driver).unwrap());
    println!("lane {number} has allocated nothing");
    meeting.wait();
    local.remove();
}

/// The time of all lanes in milliseconds, which goes on when a test says so.
static CLOCK: AtomicU64 = AtomicU64::new(1_000_000);

/// Lock waits are counted for the whole process.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn steady(kind: Kind, settings: &str, (requests, answer): Messages) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // On a busy machine a round may be late. A late lane measures its tasks, and allocates once for each
    // kind.
    manylane_sched::set_profiling(manylane_sched::Profiling::Off);
    let (server, log) = (origin(answer), UdpSocket::bind("127.0.0.1:0").unwrap());
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap();
    drop(front);
    let settings = settings.replace("LOG", &log.local_addr().unwrap().to_string());
    // On a slow machine this takes longer than the default keep-alive of idle connections; closing one may
    // allocate.
    let text = format!(
        "global\n nbthread {LANES}\ndefaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout \
            connect 5s\n\
         listen l\n bind {address}\n{settings}\n server s {server} cookie a pool-purge-delay 1h\n"
    );
    let generation = common::built(text, 1000);
    let bound =
        Arc::new(bind(&generation, LANES, |_, _| Err("nobody".into()), &mut HandedOver::default()).unwrap());
    let generation = Arc::new(generation);
    // All lanes and the test: before and after warm-up, and after the counted requests.
    let meeting = Barrier::new(LANES + 1);
    std::thread::scope(|scope| {
        let (tell, receiver) = mpsc::channel();
        let mut all = Vec::new();
        for number in 0..LANES {
            let (tell_all, all_ids) = mpsc::channel();
            all.push(tell_all);
            let (ids, of) = ((tell.clone(), all_ids), (generation.clone(), bound.clone()));
            let meeting = &meeting;
            scope.spawn(move || lane(number, &ids, kind, of, meeting));
        }
        let ids: Vec<LaneId> = (0..LANES).map(|_| receiver.recv().unwrap()).collect();
        all.iter().for_each(|lane| lane.send(ids.clone()).unwrap());
        let stop_all = || ids.iter().for_each(|lane| Remote::new(*lane).stop().unwrap());
        meeting.wait();
        let mut clients: Vec<TcpStream> =
            (0..4 * LANES).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut answer = Vec::new();
        let mut round = |count: usize| {
            for _ in 0..count {
                for client in &mut clients {
                    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    requests.iter().for_each(|request| ask(client, request, &mut answer));
                }
            }
        };
        round(40); // pools fill, connections are made
        stop_all();
        meeting.wait();
        let contended = || manylane_sync::lock::contention().iter().map(|class| class.times).sum::<u64>();
        let before = contended();
        // Meanwhile each lane checks its idle connections once a second, which must not allocate either.
        for _ in 0..22 {
            CLOCK.fetch_add(100, Ordering::Relaxed);
            round(10);
        }
        assert_eq!(contended() - before, 0, "a lock was waited for");
        stop_all();
        meeting.wait();
    });
}

/// Common features.
const MORE: &str = " log LOG local0\n option httplog\n option forwardfor\n cookie S insert indirect\n \
    http-request set-header X-Path %[path]\n \
    http-request deny if { path_beg /no }\n acl old hdr(user-agent) -m sub old\n use-server s if old";

/// For lenient peers: each violation is counted, but no message is stored until a command asks for it.
const RELAXED: &str =
    " option accept-unsafe-violations-in-http-request\n option accept-unsafe-violations-in-http-response";

#[test]
fn a_request_asks_nothing_of_the_global_allocator_with_epoll() {
    steady(Kind::Epoll, "", STRICT);
    steady(Kind::Epoll, MORE, STRICT);
    steady(Kind::Epoll, RELAXED, LAX);
}

#[test]
fn a_request_asks_nothing_of_the_global_allocator_with_io_uring() {
    let refused = std::thread::spawn(|| {
        let lane = Lane::new(Config::new()).unwrap();
        Driver::new(lane.here(), DriverChoice::Only(Kind::IoUring)).err().map(|error| error.to_string())
    });
    if let Some(why) = refused.join().unwrap() {
        eprintln!("NOT SHOWN HERE: {why}");
        return;
    }
    steady(Kind::IoUring, "", STRICT);
    steady(Kind::IoUring, MORE, STRICT);
    steady(Kind::IoUring, RELAXED, LAX);
}
