//! Pausing and opening frontends at moments that a test from outside cannot reach.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::{ListenersBeside, Local, bind, bind_beside, listen_again};
use manylane_net::HandedOver;
use manylane_plan::Generation;
use manylane_plan::generation::FrontendGateState;
use manylane_runtime::{accept, set_gate};
use manylane_sched::{Config, Here, Lane};
use manylane_sync::Arc;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

mod common;

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A generation with one frontend that has `lines` and responds itself.
fn built(lines: &str) -> Generation {
    let text = format!(
        "defaults\n mode http\n timeout client 1h\nfrontend front\n{lines} http-request return content-type \
            text/plain string a\n"
    );
    common::built(text, 100)
}

/// Sends one request and reads until the connection ends.
fn ask(mut client: TcpStream) -> String {
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Yields to the lane until `is_so` returns true.
async fn until(here: Here, what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        here.yield_now().await;
    }
}

/// Sends one request on each connection, while the lane runs.
async fn answers(here: Here, clients: Vec<TcpStream>) -> Vec<String> {
    let (tell, receiver) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        let answers = clients.into_iter().map(ask).collect();
        let _ = tell.send(());
        answers
    });
    until(here, "all are answered", || receiver.try_recv() != Err(TryRecvError::Empty)).await;
    asking.join().unwrap()
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// During a reload the operator pauses and opens the sockets of both generations, new ones included.
#[test]
fn a_gate_is_that_of_both_generations_while_one_replaces_the_other() {
    // No other process uses this address, so the ports stay free.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let free = [0, 0].map(|port| TcpListener::bind((Ipv4Addr::new(127, 128 | a, b, c), port)).unwrap());
    let [first, second] = free.each_ref().map(|listener| listener.local_addr().unwrap());
    drop(free);
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, DriverChoice::Only(Kind::Epoll)).unwrap();
    let nobody = |_, _: &str| Err("nobody".into());
    let before = Arc::new(built(&format!(" bind {first}\n")));
    let bound = Arc::new(bind(&before, 1, nobody, &mut HandedOver::default()).unwrap());
    accept(&Local::install(driver.io(), before.clone(), || {}), &bound, &[lane.id()]).unwrap();
    let mut next = built(&format!(" bind {first}\n bind {second}\n"));
    let ListenersBeside { bound: fresh, .. } = bind_beside(&next, 1, nobody, (&before, &bound)).unwrap();
    next.inherit(&before, here.now());
    let (next, fresh) = (Arc::new(next), Arc::new(fresh));
    listen_again(&next, &fresh);
    accept(&Local::install(driver.io(), next, || {}), &fresh, &[lane.id()]).unwrap();
    let asking = async move {
        let front = &before.frontends[0];
        for _ in 0..2 {
            assert_eq!(set_gate(front, FrontendGateState::Paused), Ok(FrontendGateState::Open));
            assert_eq!([first, second].map(is_refused), [true, true]);
            here.yield_now().await; // the lane may look at it or not
            assert_eq!(set_gate(front, FrontendGateState::Open), Ok(FrontendGateState::Paused));
            let clients = [first, second].map(|address| TcpStream::connect(address).unwrap());
            let answers = answers(here, clients.into()).await;
            assert!(answers.iter().all(|answer| answer.ends_with("\r\n\r\na")), "{answers:?}");
        }
    };
    lane.block_on(&mut driver, asking).unwrap();
    Local::remove_all();
}

/// Number of connections in a listening socket's queue, as the system counts them.
fn waiting(listener: &TcpListener) -> u64 {
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("it is of IPv4") };
    let shown = format!("{:08X}:{:04X}", u32::from(*address.ip()).to_be(), address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let words = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let own = words.into_iter().find(|words| words[1] == shown && words[3] == "0A").unwrap();
    u64::from_str_radix(own[4].split(':').nth(1).unwrap(), 16).unwrap()
}

fn accepted_ahead(kind: Kind) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, DriverChoice::Only(kind)).unwrap();
    let inherited = listener.try_clone().unwrap().into_raw_fd(); // owned by the generation from here on
    let generation = Arc::new(built(&format!(" maxconn 1\n bind fd@{inherited} backlog 10\n")));
    let bound =
        Arc::new(bind(&generation, 1, |_, _| Err("nobody".into()), &mut HandedOver::default()).unwrap());
    accept(&Local::install(driver.io(), generation.clone(), || {}), &bound, &[lane.id()]).unwrap();
    let asking = async move {
        let front = &generation.frontends[0];
        let connections = || front.counts.read_cheap_one(|counts| &counts.connections);
        let mut clients = vec![TcpStream::connect(address).unwrap()];
        until(here, "the first is served", || connections() == 1).await;
        // One of these is accepted and waits for a permit; the driver may accept the others meanwhile.
        clients.extend((0..3).map(|_| TcpStream::connect(address).unwrap()));
        let ahead = if kind == Kind::IoUring { 0 } else { 2 };
        until(here, "the driver accepts", || waiting(&listener) == ahead).await;
        assert_eq!(set_gate(front, FrontendGateState::Paused), Ok(FrontendGateState::Open));
        assert_eq!(set_gate(front, FrontendGateState::Open), Ok(FrontendGateState::Paused));
        let answers = answers(here, clients).await;
        assert_eq!(answers.len(), 4);
        assert!(answers.iter().all(|answer| answer.ends_with("\r\n\r\na")), "{answers:?}");
    };
    lane.block_on(&mut driver, asking).unwrap();
    Local::remove_all();
}

/// Connections that the driver accepted ahead are served, even if no task accepted them before the gate
/// opened again.
#[test]
fn connections_that_were_accepted_ahead_are_served_when_a_gate_is_open_again() {
    accepted_ahead(Kind::Epoll);
    let refused = std::thread::spawn(|| {
        let lane = Lane::new(Config::new()).unwrap();
        Driver::new(lane.here(), DriverChoice::Only(Kind::IoUring)).err().map(|error| error.to_string())
    });
    match refused.join().unwrap() {
        Some(why) => eprintln!("NOT SHOWN HERE: {why}"),
        None => accepted_ahead(Kind::IoUring),
    }
}
