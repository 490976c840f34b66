//! Random connects, sends, half closes, closes and resets between two lanes; at the end nothing is left.
//!
//! Six seconds for each driver; with `MANYLANE_LONG=1` ten minutes, and more than 10,000 connections, counted over the run: at most
//! 2 x 200 clients live at the same time. The seed is printed, and taken from `MANYLANE_SEED`.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use manylane_buf::Chain;
use manylane_io::{Choice, Driver, Io, Kind, Shutdown, Stream, tcp_listener, tcp_socket};
use manylane_sched::{Class, Config, Lane, Round, TaskKind, Time};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

static CLIENT: TaskKind = TaskKind::new("soak client");
static SERVER: TaskKind = TaskKind::new("soak server");

/// Clients of each lane that live at the same time.
const CLIENTS: usize = 200;
const LANES: usize = 2;

/// xorshift64*
#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed | 1)))
    }

    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

fn bytes(n: usize) -> Chain {
    let mut chain = Chain::new();
    chain.append(&vec![0x5a; n]).unwrap();
    chain
}

/// Echoes, or breaks off somewhere.
async fn serve(io: Io, stream: Stream, random: Random) {
    let most = random.below(40);
    for _ in 0..most {
        match io.here().timeout(Duration::from_millis(200), stream.recv()).await {
            Ok(Ok(Some(segment))) => {
                let mut chain = Chain::from(segment);
                let sent = stream.send(&mut chain);
                // Sometimes the task does not wait to the end.
                let _ = io.here().timeout(Duration::from_millis(random.below(50)), sent).await;
            }
            _ => break,
        }
    }
    part(stream, &random).await;
}

/// One of the ways in which a connection ends.
async fn part(stream: Stream, random: &Random) {
    match random.below(5) {
        0 => {
            let _ = stream.close().await;
        }
        1 => {
            let _ = stream.shutdown(Shutdown::Write).await;
        }
        2 => {
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)); // a reset
        }
        3 => {
            let _ = stream.shutdown(Shutdown::Both).await;
        }
        _ => {}
    }
}

async fn talk(io: Io, address: SocketAddr, random: Random, connections: Rc<Cell<u64>>) {
    let Ok(socket) = tcp_socket(&address) else { return };
    let connecting = io.connect(socket, address);
    let Ok(Ok(stream)) = io.here().timeout(Duration::from_millis(1 + random.below(300)), connecting).await
    else {
        return;
    };
    connections.set(connections.get() + 1);
    for _ in 0..random.below(20) {
        let size = [1, 100, 2048, 5000, 70_000][random.below(5) as usize];
        let mut chain = bytes(size);
        let wait = Duration::from_millis(1 + random.below(100));
        if !matches!(io.here().timeout(wait, stream.send(&mut chain)).await, Ok(Ok(()))) {
            break;
        }
        for _ in 0..random.below(4) {
            if !matches!(io.here().timeout(wait, stream.recv()).await, Ok(Ok(Some(_)))) {
                break;
            }
        }
    }
    part(stream, &random).await;
}

/// A lane with a listener and clients; how many connections it made.
fn lane(
    kind: Kind,
    seed: u64,
    ends: Instant,
    meet: &Barrier,
    addresses: &[SocketAddr],
    own: std::net::TcpListener,
) -> u64 {
    let mut lane = Lane::new(Config::new()).unwrap();
    let mut driver = Driver::new(lane.here(), Choice::Only(kind)).unwrap();
    let io = driver.io();
    let random = Random::new(seed);
    let connections = Rc::new(Cell::new(0));
    let listener = Rc::new(io.listener(own).unwrap());
    let (serving, chance) = (io.clone(), random.clone());
    let accepting = io
        .here()
        .spawn(&SERVER, Class::Normal, async move {
            while let Ok(accepted) = listener.accept().await {
                let stream = accepted.into_stream(&serving);
                let task = serve(serving.clone(), stream, chance.clone());
                let _ = serving.here().spawn(&SERVER, Class::Normal, task);
            }
        })
        .unwrap();
    let live = Rc::new(Cell::new(0));
    meet.wait();
    let mut clients_over = false;
    loop {
        while Instant::now() < ends && live.get() < CLIENTS {
            live.set(live.get() + 1);
            let address = addresses[random.below(LANES as u64) as usize];
            let (talking, live, connections) = (io.clone(), live.clone(), connections.clone());
            let chance = random.clone();
            let client = async move {
                talk(talking, address, chance, connections).await;
                live.set(live.get() - 1);
            };
            io.here().spawn(&CLIENT, Class::Normal, client).unwrap();
        }
        let round = lane.round(Time::now());
        if !clients_over && Instant::now() >= ends && live.get() == 0 {
            clients_over = true;
            // Servers of the other lane's clients may still be needed: only now nobody connects any more.
            meet.wait();
            io.here().abort(accepting);
        }
        if clients_over && io.open() == 0 && !round.more {
            break;
        }
        let wait = Round { more: true, ..round };
        lane.park(&mut driver, &wait).unwrap();
    }
    // The last closes of a ring go with the next look at the kernel.
    for _ in 0..3 {
        let round = lane.round(Time::now());
        lane.park(&mut driver, &Round { more: true, ..round }).unwrap();
        assert_eq!(round.next_timer, None, "a timer is left");
    }
    let report = manylane_sched::report().into_iter().find(|report| report.lane == lane.id()).unwrap();
    assert_eq!((report.live, report.run_queue()), (0, 0), "tasks are left");
    connections.get()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One test for both drivers, since it looks at the numbers of the whole process.
#[test]
fn after_random_connects_sends_closes_and_resets_nothing_is_left() {
    let long = std::env::var("MANYLANE_LONG").is_ok_and(|value| value == "1");
    let seed = std::env::var("MANYLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 0xfeed);
    println!("MANYLANE_SEED={seed}");
    let before = descriptors();
    for kind in Kind::ALL {
        if !common::available(kind) {
            continue;
        }
        let length = if long { Duration::from_secs(600) } else { Duration::from_secs(6) };
        let ends = Instant::now() + length;
        let meet = Barrier::new(LANES);
        let listeners: Vec<std::net::TcpListener> = (0..LANES)
            .map(|_| tcp_listener(&"127.0.0.1:0".parse().unwrap(), 512, false).unwrap().into())
            .collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let connections: u64 = std::thread::scope(|scope| {
            let lanes: Vec<_> = listeners
                .into_iter()
                .enumerate()
                .map(|(n, own)| {
                    let (meet, addresses) = (&meet, &addresses[..]);
                    scope.spawn(move || lane(kind, seed + n as u64, ends, meet, addresses, own))
                })
                .collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
        });
        println!("{kind}: {connections} connections");
        assert!(connections > if long { 10_000 } else { 500 }, "only {connections} connections");
        assert_eq!(descriptors(), before, "descriptors are left");
        for pool in manylane_pool::report() {
            assert_eq!(pool.used, 0, "{kind}: {pool}");
        }
        for report in manylane_io::report() {
            assert_eq!(report.open(), 0, "{kind}: {report:?}");
        }
    }
}
