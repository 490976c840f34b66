//! Waiting connections hold no cluster. In a process of its own, since the pools' numbers belong to the
//! process; so one test for both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{Io, Kind};
use std::cell::Cell;
use std::rc::Rc;

const PAIRS: usize = 500;

/// Number of clusters in use.
fn clusters() -> u64 {
    manylane_pool::report()
        .iter()
        .filter(|pool| pool.name.starts_with("cluster "))
        .map(|pool| pool.used)
        .sum()
}

/// Room for both ends of all pairs.
fn enough_descriptors() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let wanted = 2 * PAIRS as u64 + 100;
    hard.is_none_or(|hard| hard >= wanted)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: hard }).is_ok()
}

/// Makes all pairs wait, checks the clusters, and serves the pairs.
async fn wait(io: Io, before: u64) {
    // The first receive fills the ring.
    let (client, server) = pair(&io);
    client.send(&mut chain(b"x")).await.unwrap();
    assert_eq!(exactly(&server, 1).await, b"x");
    let at_the_start = clusters();
    match io.kind() {
        Kind::Epoll => assert_eq!(at_the_start, before, "epoll has no clusters of its own"),
        Kind::IoUring => assert!(at_the_start > before, "io_uring has a ring of them"),
    }
    let (waiting, served) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let mut clients = Vec::new();
    for _ in 0..PAIRS {
        let (client, server) = pair(&io);
        clients.push(client);
        let (waiting, served) = (waiting.clone(), served.clone());
        spawn(&io, async move {
            waiting.set(waiting.get() + 1);
            let byte = server.recv().await.unwrap().unwrap();
            assert_eq!(*byte, *b"x");
            served.set(served.get() + 1);
        });
    }
    until(&io, || waiting.get() == PAIRS).await;
    rounds(&io, 3).await; // each has requested bytes, and the driver has submitted that
    assert_eq!(clusters(), at_the_start, "{}: {PAIRS} wait for bytes", io.kind());
    for client in &clients {
        client.send(&mut chain(b"x")).await.unwrap();
    }
    until(&io, || served.get() == PAIRS).await;
}

/// A cluster is allocated when bytes are there: with epoll none before, with io_uring those of the driver's
/// own rings, regardless of the number of waiting connections.
#[test]
fn connections_that_wait_for_bytes_hold_no_cluster() {
    if !enough_descriptors() {
        not_shown("connections that wait", "the limit of open files is too low");
        return;
    }
    for kind in [Kind::Epoll, Kind::IoUring] {
        if available(kind) {
            let before = clusters();
            run(kind, |io| wait(io, before));
            assert_eq!(clusters(), before, "{kind}: none is left");
        }
    }
}
