//! Bursts that the drivers receive as bulk, and drips that nobody reads, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::Chain;
use manylane_io::{Kind, MAX_UNREAD_EVENTS, READ_AT_ONCE, SMALL_READ};
use std::rc::Rc;

on_both_drivers! {
    bursts_that_end_in_a_short_read_are_received_as_bulk;
    drips_that_nobody_reads_are_there_for_who_reads;
}

/// Each burst is there at once, as a response is: pieces of the size of a first read, and a shorter last one.
fn bursts_that_end_in_a_short_read_are_received_as_bulk(kind: Kind) {
    const BURST: usize = 8 * SMALL_READ + 100;
    const TURNS: usize = 6;
    run(kind, |io| async move {
        let (a, b) = tcp_pair(&io).await;
        let bulk = pattern(BURST);
        let sent = bulk.clone();
        spawn(&io, async move {
            for _ in 0..TURNS {
                exactly(&a, 1).await;
                a.send(&mut chain(&sent)).await.unwrap();
            }
        });
        let mut largest = 0;
        for turn in 0..TURNS {
            b.send(&mut chain(b"?")).await.unwrap();
            let mut got = Chain::new();
            while got.len() < BURST {
                assert!(b.recv_chain(&mut got, READ_AT_ONCE).await.unwrap());
            }
            assert!(got.to_vec() == bulk, "turn {turn}");
            largest = got.segments().map(|segment| segment.len()).max().unwrap_or(0);
        }
        assert!(largest > SMALL_READ, "the last burst came in pieces of at most {largest} bytes");
    });
}

/// With epoll, a socket that nobody reads reports only so many bytes, and reports again when somebody waits.
fn drips_that_nobody_reads_are_there_for_who_reads(kind: Kind) {
    const DRIPS: usize = MAX_UNREAD_EVENTS as usize + 8;
    run(kind, |io| async move {
        // TCP may keep single bytes back until others are acknowledged.
        let (a, b) = pair(&io);
        let (other, reported) = tcp_pair(&io).await; // a read that finds all waits for the next event
        let a = Rc::new(a);
        for turn in 0..3 {
            // The reader waits first, and so the socket is registered.
            let sender = a.clone();
            spawn(&io, async move { sender.send(&mut chain(b"!")).await.unwrap() });
            assert_eq!(exactly(&b, 1).await, b"!");
            let before = counted(&io).controls;
            for _ in 0..DRIPS {
                a.send(&mut chain(b"x")).await.unwrap();
                // When this byte is reported, the other one is.
                other.send(&mut chain(b"y")).await.unwrap();
                assert_eq!(exactly(&reported, 1).await, b"y");
            }
            let controls = counted(&io).controls - before;
            // In the first turn the other socket is registered, too.
            let expected = if turn == 0 { 2 } else { 1 };
            assert_eq!(controls, if kind == Kind::Epoll { expected } else { 0 }, "turn {turn}");
            assert_eq!(exactly(&b, DRIPS).await, vec![b'x'; DRIPS]);
        }
        drop(a);
        assert_eq!(to_end(&b).await, b"");
    });
}
