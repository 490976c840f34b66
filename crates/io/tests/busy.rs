//! Drivers under lanes that never sleep (`Config::busy_poll`).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

mod common;

use common::*;
use manylane_io::Kind;
use manylane_sched::Config;
use std::future::poll_fn;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

fn busy() -> Config {
    Config::new().busy_poll(Duration::MAX)
}

on_both_drivers! {
    a_lane_that_never_sleeps_accepts_moves_bytes_and_is_informed_of_ends;
    a_lane_that_never_sleeps_looks_at_epoll_and_needs_no_call_to_look_at_a_ring;
}

fn a_lane_that_never_sleeps_accepts_moves_bytes_and_is_informed_of_ends(kind: Kind) {
    run_with(busy(), kind, |io| async move {
        let (client, server) = tcp_pair(&io).await;
        for n in 0..100_u8 {
            client.send(&mut chain(&[n])).await.unwrap();
            assert_eq!(*server.recv().await.unwrap().unwrap(), [n]);
            server.send(&mut chain(&[n])).await.unwrap();
            assert_eq!(*client.recv().await.unwrap().unwrap(), [n]);
        }
        // More than a round's share: the rest waits for a check of the kernel.
        const MUCH: usize = 4 << 20;
        let sent = vec![7; MUCH];
        spawn(&io, async move {
            client.send(&mut chain(&sent)).await.unwrap();
            client.close().await.unwrap();
        });
        let mut received = 0;
        while let Some(segment) = server.recv().await.unwrap() {
            received += segment.len();
        }
        assert_eq!(received, MUCH);
    });
}

/// `waits` counts system calls that check or wait. With io_uring, checking an empty ring takes no call.
fn a_lane_that_never_sleeps_looks_at_epoll_and_needs_no_call_to_look_at_a_ring(kind: Kind) {
    run_with(busy(), kind, |io| async move {
        // A thread that wakes each requester; meanwhile the lane polls busily.
        let (ask, receiver) = mpsc::channel::<Waker>();
        let wakes = std::thread::spawn(move || receiver.into_iter().for_each(Waker::wake));
        let woken = || {
            let (mut was_polled, ask) = (false, ask.clone());
            poll_fn(move |context| {
                if std::mem::replace(&mut was_polled, true) {
                    return Poll::Ready(());
                }
                ask.send(context.waker().clone()).unwrap();
                Poll::Pending
            })
        };
        woken().await; // the driver's initial operations are over
        let before = counted(&io).waits;
        for _ in 0..1000 {
            woken().await; // a lane checks its poller after 64 successful checks, too
        }
        let waits = counted(&io).waits - before;
        drop(ask);
        wakes.join().unwrap();
        match kind {
            Kind::IoUring => assert!(waits <= 5, "{waits} system calls"),
            Kind::Epoll => assert!(waits >= 5, "{waits} looks"),
        }
    });
}
