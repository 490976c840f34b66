//! Targets that do not read: they cost the lane no rounds, and their waiting lines end with their generation.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{Io, Kind};
use manylane_logs::{Framing, LaneLogs, Sink, Target};
use manylane_sync::Arc;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};

/// Times that a lane waits for another thread. A task that is woken needlessly each time makes as many calls.
const ROUNDS: u64 = 1000;

/// This lane's write calls.
fn writes() -> u64 {
    let own = manylane_sync::lane::current();
    manylane_io::report().iter().find(|report| report.lane == own).unwrap().writes
}

/// Makes the lane wait for another thread repeatedly. Returns the write calls of its other tasks meanwhile.
async fn writes_of_others(io: &Io) -> u64 {
    let (own, others) = UnixDatagram::pair().unwrap();
    let echo = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let length = others.recv(&mut [0; 16]).unwrap();
            others.send(&[b'x'; 16][..length]).unwrap();
        }
    });
    let own = io.datagrams(own).unwrap();
    let (mut received, before) = (Vec::new(), writes());
    for _ in 0..ROUNDS {
        assert_eq!(own.send_pieces((b"x", &[1], 0), None).await.unwrap(), 1);
        own.recv_batch(&mut received).await.unwrap();
        received.clear();
    }
    let calls = writes() - before - ROUNDS;
    echo.join().unwrap();
    calls
}

/// A local socket with this path, either full or with room for one line.
fn full(path: &std::path::Path, has_room: bool) -> UnixDatagram {
    let server = UnixDatagram::bind(path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"filled", path).is_ok() {}
    if has_room {
        server.recv(&mut [0; 16]).unwrap();
    }
    server
}

fn target(sink: Sink) -> Arc<Target> {
    Arc::new(Target::new(spec(sink)).unwrap())
}

async fn lines_go_when_it_is_read(io: Io, logs: LaneLogs, target: Arc<Target>, server: UnixDatagram) {
    for n in 0..3 {
        logs.log(0, &line(format!("{n}").as_bytes()));
    }
    until(io.here(), &target, 1).await; // there was room for it
    let calls = writes_of_others(&io).await;
    assert!(calls < ROUNDS / 2, "{}: {calls} tries within {ROUNDS} rounds", io.kind());
    assert_eq!(counts(&target), (1, 0));
    server.set_nonblocking(true).unwrap();
    let (mut lines, mut bytes) = (VecDeque::new(), [0; 16]);
    while lines.len() < 3 {
        match server.recv(&mut bytes) {
            Ok(length) if bytes[..length] != *b"filled" => lines.push_back(bytes[..length].to_vec()),
            Ok(_) => {}
            Err(_) => io.here().yield_now().await,
        }
    }
    assert_eq!(lines, [b"<6>0\n", b"<6>1\n", b"<6>2\n"]);
    until(io.here(), &target, 3).await;
    assert_eq!(counts(&target), (3, 0));
}

#[test]
fn a_local_socket_that_is_full_is_waited_for_and_not_tried_again_and_again() {
    let folder = folder("full");
    for kind in drivers() {
        let path = folder.join(kind.to_string());
        let (server, target) = (full(&path, true), target(Sink::Unix(path)));
        on_driver(kind, [target.clone()], |io, logs| lines_go_when_it_is_read(io, logs, target, server));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The system holds what fits into the sockets' buffers; the program reads nothing.
#[test]
fn what_a_server_of_log_lines_sends_is_left_to_the_system() {
    for kind in drivers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = target(Sink::Tcp(listener.local_addr().unwrap(), Framing::Lines));
        on_driver(kind, [target.clone()], |io, logs| async move {
            logs.log(0, &line(b"a"));
            until(io.here(), &target, 1).await;
            let (mut server, _) = listener.accept().unwrap();
            server.set_nonblocking(true).unwrap();
            let mut fill = || while server.write(&[b'x'; 4096]).is_ok() {};
            fill();
            let reads = || {
                let own = manylane_sync::lane::current();
                manylane_io::report().iter().find(|report| report.lane == own).unwrap().reads
            };
            let before = reads();
            for n in 2..=100 {
                fill();
                logs.log(0, &line(b"a"));
                until(io.here(), &target, n).await;
            }
            assert_eq!(reads(), before, "{kind}");
        });
    }
}

/// A socket is replaced while the old one is still open and not read.
#[test]
fn a_socket_that_is_made_anew_gets_what_waits_for_the_one_before() {
    let folder = folder("anew");
    for kind in drivers() {
        let path = folder.join(kind.to_string());
        let (before, target) = (full(&path, false), target(Sink::Unix(path.clone())));
        on_driver(kind, [target.clone()], |io, logs| async move {
            logs.log(0, &line(b"waits"));
            while logs.waiting(0) > 0 {
                io.here().yield_now().await;
            }
            std::fs::remove_file(&path).unwrap();
            let server = UnixDatagram::bind(&path).unwrap();
            until(io.here(), &target, 1).await;
            assert_eq!(counts(&target), (1, 0));
            let mut bytes = [0; 16];
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *b"<6>waits\n");
            drop(before);
        });
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A restarted daemon has another socket, which gets the first line.
#[test]
fn a_daemon_that_is_restarted_gets_the_next_line() {
    let folder = folder("restarted");
    for kind in drivers() {
        let path = folder.join(kind.to_string());
        let (server, target) = (UnixDatagram::bind(&path).unwrap(), target(Sink::Unix(path.clone())));
        on_driver(kind, [target.clone()], |io, logs| async move {
            logs.log(0, &line(b"one"));
            until(io.here(), &target, 1).await;
            drop(server);
            std::fs::remove_file(&path).unwrap();
            let server = UnixDatagram::bind(&path).unwrap();
            logs.log(0, &line(b"two"));
            until(io.here(), &target, 2).await;
            assert_eq!(counts(&target), (2, 0));
            let mut bytes = [0; 16];
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *b"<6>two\n");
        });
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A socket connected to a closed port: the system reports each refused datagram.
#[test]
fn a_port_that_is_closed_loses_lines_by_count_and_no_rounds() {
    for kind in drivers() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Keeps the port from others; connected to itself, it refuses other senders.
        let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
        let nobody = deaf.local_addr().unwrap();
        deaf.connect(nobody).unwrap();
        socket.connect(nobody).unwrap();
        let targets = [target(Sink::Descriptor(socket.into())), target(Sink::Udp(nobody))];
        on_driver(kind, targets.clone(), |io, logs| async move {
            for n in 1..=100 {
                for (at, target) in targets.iter().enumerate() {
                    logs.log(at, &line(b"in vain"));
                    until(io.here(), target, n).await;
                }
            }
            let calls = writes_of_others(&io).await;
            assert!(calls < ROUNDS / 2, "{kind}: {calls} tries within {ROUNDS} rounds");
            let (sent, lost) = counts(&targets[0]);
            assert!(sent + lost == 100 && lost > 0, "{sent} sent, {lost} lost");
        });
    }
}

/// Targets of all kinds that are full.
struct Unread {
    targets: Vec<Arc<Target>>,
    /// Keep the targets open.
    ends: Vec<OwnedFd>,
}

impl Unread {
    fn new(folder: &std::path::Path, kind: Kind) -> Self {
        let path = |name| folder.join(format!("{kind}-{name}"));
        let local = full(&path("log"), false);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = UnixListener::bind(path("stream")).unwrap();
        let (reader, pipe) = std::io::pipe().unwrap();
        let (peer, own) = UnixDatagram::pair().unwrap();
        let sinks = [
            Sink::Unix(path("log")),
            Sink::Tcp(tcp.local_addr().unwrap(), Framing::Lines),
            Sink::UnixStream(path("stream"), Framing::Lines),
            Sink::Descriptor(pipe.into()),
            Sink::Descriptor(own.into()),
        ];
        let ends = vec![local.into(), tcp.into(), stream.into(), reader.into(), peer.into()];
        Self { targets: sinks.map(target).into(), ends }
    }
}

/// Logs until all targets are full, and ends.
async fn given_up(io: Io, logs: LaneLogs, targets: Vec<Arc<Target>>) {
    let text = [b'x'; 1000];
    let mut logged = 0;
    while targets.iter().any(|target| counts(target).1 == 0) {
        for at in 0..targets.len() {
            logs.log(at, &line(&text));
        }
        logged += 1;
        io.here().yield_now().await;
    }
    assert!(io.open() > 0);
    let calls = writes_of_others(&io).await;
    assert!(calls < ROUNDS / 2, "{}: {calls} tries within {ROUNDS} rounds", io.kind());
    drop(logs);
    while io.open() > 0 {
        io.here().yield_now().await;
    }
    for target in &targets {
        let (sent, lost) = counts(target);
        assert_eq!(sent + lost, logged, "{target:?}");
    }
}

#[test]
fn what_waits_for_targets_that_are_not_read_is_given_up_when_their_generation_has_ended() {
    let folder = folder("given-up");
    let threads: Vec<_> = drivers()
        .map(|kind| {
            let unread = Unread::new(&folder, kind);
            std::thread::spawn(move || {
                let targets = unread.targets.clone();
                on_driver(kind, targets.clone(), |io, logs| given_up(io, logs, targets));
                // Only this test holds them, and no job of the blocking pool.
                let Unread { targets, ends } = unread;
                assert!(targets.iter().all(|target| Arc::strong_count(target) == 1), "{kind}");
                drop(ends);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

/// A pipe that is not read holds no thread: the pool's only thread is free for others.
#[test]
fn a_pipe_that_is_full_leaves_the_blocking_pool_to_others_and_is_written_to_when_it_is_read() {
    use jiff::tz::TimeZone;
    use manylane_io::{Driver, DriverChoice};
    use manylane_sched::{BlockingPool, Config, Lane};
    let (mut reader, pipe) = std::io::pipe().unwrap();
    let mut filler = pipe.try_clone().unwrap();
    let target = target(Sink::Descriptor(pipe.into()));
    let mut lane = Lane::new(Config::new()).unwrap();
    let mut driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
    let pool = Arc::new(BlockingPool::new(1, 16));
    let io = driver.io();
    let logs = LaneLogs::new(lane.here(), io.clone(), pool.clone(), TimeZone::UTC, [target.clone()]);
    // By pages, so that it is full to the last byte.
    let capacity = rustix::pipe::fcntl_getpipe_size(&filler).unwrap();
    filler.write_all(&vec![b'f'; capacity]).unwrap();
    lane.block_on(&mut driver, async move {
        let long = vec![b'y'; 1021];
        for text in [&b"one"[..], b"two", &long] {
            logs.log(0, &line(text));
        }
        while logs.waiting(0) > 0 {
            io.here().yield_now().await;
        }
        for _ in 0..100 {
            pool.run(|| ()).unwrap().await; // after the lines' own job
        }
        assert_eq!(counts(&target), (0, 0));
        let mut bytes = vec![0; capacity];
        reader.read_exact(&mut bytes).unwrap();
        until(io.here(), &target, 3).await;
        assert_eq!(counts(&target), (3, 0));
        drop((logs, filler));
        let mut bytes = vec![0; 2 * 7 + 1024]; // with line ends
        reader.read_exact(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"<6>one\n<6>two\n<6>yyy") && bytes.ends_with(b"y\n"));
    })
    .unwrap();
}
