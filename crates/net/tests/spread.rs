//! Connections, from a listener to the lanes that serve them (R-F5).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{endpoint, ip};
use manylane_io::{Driver, Io};
use manylane_net::{Balance, ListenOptions, Serving, Spread, listen, load};
use manylane_sched::{Class, Config, Lane, TaskKind};
use manylane_sync::LaneId;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

static ACCEPT: TaskKind = TaskKind::new("accept");
static ECHO: TaskKind = TaskKind::new("echo");

/// A lane on a thread of its own, until its `Remote` is stopped. `begin` runs there.
fn lane_thread(
    begin: impl FnOnce(&Io) + Send + 'static,
) -> (manylane_sched::Remote, std::thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).unwrap();
        let mut driver = Driver::from_environment(lane.here()).unwrap();
        let serving = Serving::new(&driver.io());
        begin(&driver.io());
        tell.send(lane.remote()).unwrap();
        lane.run(&mut driver).unwrap();
        drop(lane);
        drop(serving);
    });
    (told.recv().unwrap(), thread)
}

/// Says which lane serves, then gives back what comes.
async fn serve(io: Io, incoming: manylane_net::Incoming, seat: manylane_net::Seat) {
    assert_eq!(seat.lane(), io.here().lane());
    let stream = incoming.into_connection(&io);
    let number = [io.here().lane().index() as u8];
    stream.send(&mut common::chain(&number)).await.unwrap();
    while let Ok(Some(bytes)) = stream.recv().await {
        if stream.send(&mut common::chain(&bytes)).await.is_err() {
            break;
        }
    }
    drop(seat);
}

/// A client, and the lane that serves it.
fn client(address: SocketAddr) -> (TcpStream, LaneId) {
    let mut client = TcpStream::connect(address).unwrap();
    let mut number = [0];
    client.read_exact(&mut number).unwrap();
    (client, LaneId::new(number[0].into()).unwrap())
}

/// One lane accepts for all: each new connection is served by one of the least loaded lanes, and the loads are zero in the end.
#[test]
fn the_least_loaded_lane_serves_and_loads_go_back_to_zero() {
    let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
    let address = ip(bound.endpoint());
    let (second, second_thread) = lane_thread(|_| {});
    let (third, third_thread) = lane_thread(|_| {});
    let others = [second.lane(), third.lane()];
    let (first, first_thread) = lane_thread(move |io| {
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
    // When those of one lane end, the next ones come to it.
    for (mut client, _) in clients.extract_if(.., |(_, by)| *by == lanes[1]) {
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    }
    while load(lanes[1]) > 0 {
        std::thread::yield_now(); // its seat is given up right after the close
    }
    for _ in 0..3 {
        let (client, by) = client(address);
        assert_eq!(by, lanes[1]);
        clients.push((client, by));
    }
    drop(clients);
    for remote in [first, second, third] {
        remote.stop().unwrap();
    }
    for thread in [first_thread, second_thread, third_thread] {
        thread.join().unwrap();
    }
    for lane in lanes {
        assert_eq!(load(lane), 0, "{lane}");
    }
}

#[test]
fn a_lane_that_stopped_serving_is_passed_over() {
    let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
    let address = ip(bound.endpoint());
    let (gone, gone_thread) = lane_thread(|_| {});
    gone.stop().unwrap();
    gone_thread.join().unwrap();
    let (remote, thread) = lane_thread(move |io| {
        let acceptor = bound.acceptor(io).unwrap();
        let lanes = Balance::new([gone.lane(), io.here().lane()]);
        let spread = Spread::new(io.clone(), lanes, &ECHO, Class::Normal, serve);
        let accepting = async move {
            let _bound = bound;
            spread.run(&acceptor).await;
        };
        io.here().spawn(&ACCEPT, Class::Normal, accepting).unwrap();
    });
    for _ in 0..8 {
        let (_client, by) = client(address);
        assert_eq!(by, remote.lane());
    }
    remote.stop().unwrap();
    thread.join().unwrap();
}

/// With io_uring the kernel accepts ahead; with epoll connections wait in the listener. Either way each is served once.
#[test]
fn no_connection_is_lost_when_a_lane_stops_accepting() {
    let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
    let address = ip(bound.endpoint());
    common::on_lane(move |io| async move {
        let spread = Spread::new(io.clone(), Balance::new([io.here().lane()]), &ECHO, Class::Normal, serve);
        let first = bound.acceptor(&io).unwrap();
        let clients: Vec<_> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
        spread.give(first.accept().await.unwrap());
        let ahead = first.close().await.unwrap();
        let left = clients.len() - 1 - ahead.len();
        ahead.into_iter().for_each(|incoming| spread.give(incoming));
        let second = bound.acceptor(&io).unwrap();
        for _ in 0..left {
            spread.give(second.accept().await.unwrap());
        }
        for mut client in clients {
            client.set_nonblocking(true).unwrap();
            let mut number = [0];
            while client.read(&mut number).is_err() {
                io.here().yield_now().await;
            }
            assert_eq!(usize::from(number[0]), io.here().lane().index());
        }
    });
}
