//! Bursts that the drivers receive as bulk, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::Chain;
use manylane_io::{Kind, READ_AT_ONCE, SMALL_READ};

on_both_drivers! {
    bursts_that_end_in_a_short_read_are_received_as_bulk;
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
