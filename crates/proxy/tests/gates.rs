//! Frontends that an operator closes and opens, at moments that the program cannot be brought to from outside.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_io::{Choice, Driver, Kind};
use manylane_net::HandedOver;
use manylane_proxy::generation::{GateState, Wishes};
use manylane_proxy::{Beside, Generation, Local, accept, bind, bind_beside, listen_again, set_gate};
use manylane_sched::{Config, Here, Lane};
use manylane_sync::Arc;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A generation with one frontend, which has these lines and answers by itself.
fn built(lines: &str) -> Generation {
    let mut sources = Sources::new();
    let text = format!(
        "defaults\n mode http\n timeout client 1h\nfrontend front\n{lines} http-request return content-type text/plain string a\n"
    );
    sources.add("test.cfg", text).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let mut generation = Generation::build(&loaded.config, Wishes::default(), &mut loaded.found);
    assert_eq!(loaded.found.errors(), 0, "{:?}", loaded.found.found());
    generation.set_maxconn(100);
    generation
}

/// Asks once, and reads until the connection ends.
fn ask(mut client: TcpStream) -> String {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Has the lane go on until something is so.
async fn until(here: Here, what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        here.yield_now().await;
    }
}

/// Asks for all of these, one after another, while the lane goes on.
async fn asked(here: Here, clients: Vec<TcpStream>) -> Vec<String> {
    let (tell, told) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        let answers = clients.into_iter().map(ask).collect();
        let _ = tell.send(());
        answers
    });
    until(here, "all are answered", || told.try_recv() != Err(TryRecvError::Empty)).await;
    asking.join().unwrap()
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Between the steps of a reload the sockets of both generations are closed and opened, those that are new among them.
#[test]
fn a_gate_is_that_of_both_generations_while_one_replaces_the_other() {
    // No other process has this address, so that nobody takes the ports meanwhile.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let free = [0, 0].map(|port| TcpListener::bind((Ipv4Addr::new(127, 128 | a, b, c), port)).unwrap());
    let [first, second] = free.each_ref().map(|listener| listener.local_addr().unwrap());
    drop(free);
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, Choice::Only(Kind::Epoll)).unwrap();
    let nobody = |_, _: &str| Err("nobody".into());
    let before = Arc::new(built(&format!(" bind {first}\n")));
    let bound = Arc::new(bind(&before, 1, nobody, &mut HandedOver::default()).unwrap());
    accept(&Local::install(driver.io(), before.clone(), || {}), &bound, &[lane.id()]).unwrap();
    let mut next = built(&format!(" bind {first}\n bind {second}\n"));
    let Beside { bound: fresh, .. } = bind_beside(&next, 1, nobody, (&before, &bound)).unwrap();
    next.inherit(&before, here.now());
    let (next, fresh) = (Arc::new(next), Arc::new(fresh));
    listen_again(&next, &fresh);
    accept(&Local::install(driver.io(), next, || {}), &fresh, &[lane.id()]).unwrap();
    let asking = async move {
        let front = &before.frontends[0];
        for _ in 0..2 {
            assert_eq!(set_gate(front, GateState::Paused), Ok(GateState::Open));
            assert_eq!([first, second].map(is_refused), [true, true]);
            here.yield_now().await; // the lane may look at it or not
            assert_eq!(set_gate(front, GateState::Open), Ok(GateState::Paused));
            let clients = [first, second].map(|address| TcpStream::connect(address).unwrap());
            let answers = asked(here, clients.into()).await;
            assert!(answers.iter().all(|answer| answer.ends_with("\r\n\r\na")), "{answers:?}");
        }
    };
    lane.block_on(&mut driver, asking).unwrap();
    Local::remove_all();
}
