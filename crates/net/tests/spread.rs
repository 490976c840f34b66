//! Connections, from a listener to the lanes that serve them (R-F5).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{PIECE, PIECES, endpoint, ip, wait_for, within_a_minute};
use manylane_io::{Driver, Io};
use manylane_net::{Balance, ListenOptions, Serving, Spread, listen, load};
use manylane_sched::{Class, Config, Lane, Remote, TaskKind};
use manylane_sync::LaneId;
use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

static ACCEPT: TaskKind = TaskKind::new("accept");
static ECHO: TaskKind = TaskKind::new("echo");

/// A lane that serves, on a thread of its own. The thread, and so the lane's number, exists until this is
/// dropped: no other lane of this process gets the same number.
struct Serves {
    remote: Remote,
    stopped: Receiver<()>,
    /// Dropping this sender ends the thread.
    _stay: Sender<()>,
}

impl Serves {
    /// Starts the lane. `begin` runs on it before anything else, and must not wait for later events.
    fn new(begin: impl FnOnce(&Io) + Send + 'static) -> Self {
        let (tell, receiver) = mpsc::channel();
        let (tell_stopped, stopped) = mpsc::channel();
        let (stay, go) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lane = Lane::new(Config::new()).unwrap();
            let mut driver = Driver::from_environment(lane.here()).unwrap();
            let serving = Serving::new(&driver.io());
            begin(&driver.io());
            tell.send(lane.remote()).unwrap();
            lane.run(&mut driver).unwrap();
            drop(lane);
            drop(serving);
            let _ = tell_stopped.send(()); // the receiver is gone if the test failed
            let _ = go.recv(); // an error: nothing is ever sent
        });
        Self { remote: wait_for(&receiver, "the start of a lane"), stopped, _stay: stay }
    }

    fn lane(&self) -> LaneId {
        self.remote.lane()
    }

    /// Returns once the lane serves no more.
    fn stop(&self) {
        self.remote.stop().unwrap();
        wait_for(&self.stopped, "the end of a lane");
    }
}

/// Sends the number of the serving lane, then echoes.
async fn serve(io: Io, incoming: manylane_net::Incoming, lane_guard: manylane_net::LaneGuard) {
    assert_eq!(lane_guard.lane(), io.here().lane());
    let stream = incoming.into_connection(&io);
    let number = [io.here().lane().index() as u8];
    stream.send(&mut common::chain(&number)).await.unwrap();
    while let Ok(Some(bytes)) = stream.recv().await {
        if stream.send(&mut common::chain(&bytes)).await.is_err() {
            break;
        }
    }
    drop(lane_guard);
}

/// Returns a client and the lane that serves it.
fn client(address: SocketAddr) -> (TcpStream, LaneId) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PIECE)).unwrap();
    let mut number = [0];
    for _ in 0..PIECES {
        match client.read(&mut number) {
            Ok(1) => {
                client.set_read_timeout(None).unwrap();
                return (client, LaneId::new(number[0].into()).unwrap());
            }
            Ok(_) => panic!("the connection was closed, no lane served it"),
            Err(error) if error.kind() == WouldBlock => {}
            Err(error) => panic!("no lane served the connection: {error}"),
        }
    }
    panic!("no lane served the connection within a minute");
}

/// One lane accepts for all: one of the least loaded lanes serves each new connection, and in the end the
/// loads are zero.
#[test]
fn the_least_loaded_lane_serves_and_loads_go_back_to_zero() {
    within_a_minute(|| {
        let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
        let address = ip(bound.endpoint());
        let (second, third) = (Serves::new(|_| {}), Serves::new(|_| {}));
        let others = [second.lane(), third.lane()];
        let first = Serves::new(move |io| {
            let acceptor = bound.acceptor(io).unwrap();
            let lanes = Balance::new(others.into_iter().chain([io.here().lane()]));
            let spread = Spread::new(io.clone(), lanes, &ECHO, Class::Normal, serve);
            let accepting = async move {
                let _bound = bound;
                panic!("the listener failed: {}", spread.run(&acceptor).await);
            };
            io.here().spawn(&ACCEPT, Class::Normal, accepting).unwrap();
        });
        let lanes = [first.lane(), second.lane(), third.lane()];
        let mut clients: Vec<_> = (0..12).map(|_| client(address)).collect();
        for lane in lanes {
            let served = clients.iter().filter(|(_, by)| *by == lane).count();
            assert_eq!((served, load(lane)), (4, 4), "{lane}");
        }
        for (client, _) in &mut clients {
            client.write_all(b"hello").unwrap();
            let mut bytes = [0; 5];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
        }
        // When the connections of one lane end, the next ones go to it.
        for (mut client, _) in clients.extract_if(.., |(_, by)| *by == lanes[1]) {
            client.shutdown(std::net::Shutdown::Write).unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
        }
        while load(lanes[1]) > 0 {
            std::thread::yield_now(); // its lane guard is dropped right after the close
        }
        for _ in 0..3 {
            let (client, by) = client(address);
            assert_eq!(by, lanes[1]);
            clients.push((client, by));
        }
        drop(clients);
        for lane in [&first, &second, &third] {
            lane.stop();
        }
        for lane in lanes {
            assert_eq!(load(lane), 0, "{lane}");
        }
    });
}

#[test]
fn a_lane_that_stopped_serving_is_passed_over() {
    within_a_minute(|| {
        let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
        let address = ip(bound.endpoint());
        let gone = Serves::new(|_| {});
        gone.stop();
        let lanes = [gone.lane()];
        let stays = Serves::new(move |io| {
            let acceptor = bound.acceptor(io).unwrap();
            let lanes = Balance::new(lanes.into_iter().chain([io.here().lane()]));
            let spread = Spread::new(io.clone(), lanes, &ECHO, Class::Normal, serve);
            let accepting = async move {
                let _bound = bound;
                spread.run(&acceptor).await;
            };
            io.here().spawn(&ACCEPT, Class::Normal, accepting).unwrap();
        });
        assert_ne!(stays.lane(), gone.lane());
        // These connections stay, so that the other lane would be less loaded.
        let clients: Vec<_> = (0..8).map(|_| client(address)).collect();
        assert!(clients.iter().all(|(_, by)| *by == stays.lane()));
        assert_eq!((load(stays.lane()), load(gone.lane())), (8, 0));
        stays.stop();
    });
}

/// With io_uring the kernel accepts ahead; with epoll connections wait in the listener. In both cases each
/// connection is served once.
#[test]
fn no_connection_is_lost_when_a_lane_stops_accepting() {
    let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
    let address = ip(bound.endpoint());
    common::on_lane(move |io| async move {
        let spread = Spread::new(io.clone(), Balance::new([io.here().lane()]), &ECHO, Class::Normal, serve);
        let first = bound.acceptor(&io).unwrap();
        let clients: Vec<_> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
        spread.give(first.accept().await.unwrap());
        let ahead: Vec<_> = first.close().await.unwrap().collect();
        let left = clients.len() - 1 - ahead.len();
        ahead.into_iter().for_each(|incoming| spread.give(incoming));
        let second = bound.acceptor(&io).unwrap();
        for _ in 0..left {
            spread.give(second.accept().await.unwrap());
        }
        for mut client in clients {
            client.set_nonblocking(true).unwrap();
            let mut number = [0];
            loop {
                match client.read(&mut number) {
                    Err(error) if error.kind() == WouldBlock => io.here().yield_now().await,
                    read => break assert_eq!(read.unwrap(), 1, "closed without being served"),
                }
            }
            assert_eq!(usize::from(number[0]), io.here().lane().index());
        }
    });
}
