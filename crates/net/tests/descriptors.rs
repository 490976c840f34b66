//! No descriptors left: accepting pauses, nothing is lost, and accepting goes on when there are some again.
//! This test has a process of its own, because the limit is the process's.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{endpoint, ip, on_lane};
use manylane_io::ACCEPT_PAUSE;
use manylane_net::{ListenOptions, Step, listen};
use manylane_sched::BlockingPool;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Returns the number of pauses of accepting.
fn pauses() -> u64 {
    manylane_io::report().iter().map(|report| report.pauses).sum()
}

/// Returns the number of rounds of all lanes.
fn rounds() -> u64 {
    manylane_sched::report().iter().map(|report| report.rounds).sum()
}

/// Takes all descriptors that are left.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn accepting_pauses_without_descriptors_and_loses_nothing() {
    limit(256);
    let bound = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap();
    let address = ip(bound.endpoint());
    on_lane(move |io| async move {
        let others = BlockingPool::new(1, 1);
        let acceptor = bound.acceptor(&io).unwrap();
        let mut clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut all = take_all();
        let error = listen(&endpoint("127.0.0.1:1"), &ListenOptions::default()).unwrap_err();
        assert_eq!(error.step(), Step::Open);
        assert_eq!(
            error.to_string(),
            "cannot listen on '127.0.0.1:0': the socket was not opened: Too many open files (os error 24); \
                raise the limit \
             of open files ('ulimit -n')"
        );
        let before = pauses();
        let waiting = std::cell::Cell::new(true);
        let here = io.here();
        let free = async {
            while pauses() == before {
                here.yield_now().await;
            }
            // Nothing spins: from here on the lane sleeps, except that it tries the listener when a pause has
            // ended.
            let (looked, began, observed) = (rounds(), Instant::now(), pauses());
            let paused = move || {
                while pauses() < observed + 3 {
                    std::thread::yield_now()
                }
            };
            others.run(paused).unwrap().await; // on another thread: this lane does nothing for it
            let most = began.elapsed().div_duration_f64(ACCEPT_PAUSE) as u64 + 2;
            assert!(pauses() - observed <= most, "{} pauses, of {most}", pauses() - observed);
            assert!(rounds() - looked <= 5 * most, "{} rounds in {most} pauses", rounds() - looked);
            assert!(waiting.get());
            all.clear();
        };
        let accepting = async {
            let mut served = Vec::new();
            for _ in 0..8 {
                served.push(acceptor.accept().await.unwrap().into_connection(&io));
            }
            waiting.set(false);
            served
        };
        let served = both(accepting, free).await;
        for (client, served) in clients.iter_mut().zip(&served) {
            served.send(&mut common::chain(b"x")).await.unwrap();
            served.flush().await.unwrap(); // the read occupies the lane, which may still have the byte
            client.write_all(b"y").unwrap();
            client.read_exact(&mut [0]).unwrap();
            assert_eq!(&*served.recv().await.unwrap().unwrap(), b"y");
        }
    });
}

/// Returns the output of `a`, while `b` runs beside it.
async fn both<A: Future, B: Future<Output = ()>>(a: A, b: B) -> A::Output {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let mut ended = false;
    std::future::poll_fn(move |context| {
        ended = ended || b.as_mut().poll(context).is_ready();
        a.as_mut().poll(context)
    })
    .await
}

/// Limits the number of descriptors to `most`.
fn limit(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: hard }).unwrap();
}
