//! Receives that wait for clusters (R-D4). In a process of its own, since each test counts a lane's clusters.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::{Chain, clusters_here};
use manylane_io::{Kind, LARGE_READ, READ_AT_ONCE, SMALL_READ};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

on_both_drivers! {
    newcomers_wait_in_turn_until_the_lane_releases_clusters;
    a_connection_that_holds_something_takes_one_cluster_at_a_time;
    one_that_leaves_the_queue_lets_the_next_go_on;
}

fn newcomers_wait_in_turn_until_the_lane_releases_clusters(kind: Kind) {
    run(kind, |io| async move {
        io.set_most_clusters(2);
        let (served, held) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
        let mut clients = Vec::new();
        for number in 0..6 {
            let (client, server) = pair(&io);
            client.send(&mut chain(b"x")).await.unwrap();
            clients.push(client);
            let (served, held) = (served.clone(), held.clone());
            spawn(&io, async move {
                let segment = server.recv_within_limit().await.unwrap().unwrap();
                served.borrow_mut().push(number);
                held.borrow_mut().push(segment);
                assert!(server.recv().await.unwrap().is_none());
            });
        }
        until(&io, || served.borrow().len() == 2).await;
        for more in 3..=6 {
            rounds(&io, 3).await;
            assert_eq!((served.borrow().len(), clusters_here()), (more - 1, 2), "the others wait");
            held.borrow_mut().remove(0);
            until(&io, || served.borrow().len() == more).await;
        }
        assert_eq!(*served.borrow(), [0, 1, 2, 3, 4, 5]);
        held.borrow_mut().clear();
    });
}

fn a_connection_that_holds_something_takes_one_cluster_at_a_time(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = pair(&io);
        let sender = Rc::new(a);
        let sent = sender.clone();
        let bytes = 64 * READ_AT_ONCE;
        spawn(&io, async move {
            for _ in 0..bytes / LARGE_READ {
                sent.send(&mut chain(&[b'x'; LARGE_READ])).await.unwrap();
            }
        });
        io.set_most_clusters(1);
        let mut got = Chain::new();
        let (mut received, mut largest) = (0, 0);
        let _held = manylane_buf::Cluster::alloc(1).unwrap();
        while received < bytes {
            assert!(b.recv_chain(&mut got, READ_AT_ONCE).await.unwrap());
            received += got.len();
            largest = largest.max(got.len());
            got = Chain::new();
        }
        assert!(largest > SMALL_READ, "bulk is received as such");
        assert!(largest <= LARGE_READ, "{largest} bytes came at once");
    });
}

fn one_that_leaves_the_queue_lets_the_next_go_on(kind: Kind) {
    run(kind, |io| async move {
        io.set_most_clusters(1);
        let held = manylane_buf::Cluster::alloc(1).unwrap();
        let mut pairs = Vec::new();
        for _ in 0..3 {
            let (client, server) = pair(&io);
            client.send(&mut chain(b"x")).await.unwrap();
            pairs.push((client, Rc::new(server)));
        }
        let done = Rc::new(Cell::new(false));
        let last = pairs[2].1.clone();
        // The first is closed, and the second gives up, while they wait.
        let closed = pairs.remove(0).1;
        let mut first = Box::pin(closed.recv_within_limit());
        let mut second = Box::pin(pairs[0].1.recv_within_limit());
        for _ in 0..3 {
            assert!(poll_once(&mut first).await.is_none() && poll_once(&mut second).await.is_none());
            rounds(&io, 1).await;
        }
        let reported = done.clone();
        spawn(&io, async move {
            assert_eq!(*last.recv_within_limit().await.unwrap().unwrap(), *b"x");
            reported.set(true);
        });
        rounds(&io, 3).await;
        drop(first);
        drop(closed);
        drop(second);
        rounds(&io, 3).await;
        assert!(!done.get(), "the limit is reached");
        drop(held);
        until(&io, || done.get()).await;
    });
}

/// Returns the output of a future that is ready at once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
