//! Bytes that wait in a descriptor's chains (received ahead, or not accepted yet) take memory in proportion
//! to their number, however they are cut. This test has a process of its own, because the pools' counts are
//! those of the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // the crate calls all of it
#[path = "../src/held.rs"]
mod held;

#[path = "../../h1/tests/common/mod.rs"]
mod common;

use common::{cuts, received};
use held::Held;
use manylane_buf::{CLUSTER_SIZES, Chain, MAX_CLUSTER};
use manylane_pool::used_bytes;
use proptest::prelude::*;

/// The object of a chain.
const CHAIN: usize = 128;

proptest! {
    /// A sender drips, and its receiver takes `taken` bytes after each piece, or nothing. What is left takes
    /// at most twice its number and a cluster. Of a cluster that was taken in part, the rest stays as it is,
    /// and what comes behind is in a small cluster, which is then there in addition.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
        all in 1..60_000_usize,
        cuts in cuts(),
        taken in prop_oneof![2 => Just(0_usize), 1 => 1..50_usize, 1 => 1..20_000_usize],
        apart: bool,
    ) {
        let before = used_bytes();
        let (mut waits, mut left) = (Held::new(), all);
        for &(length, large) in cuts.iter().cycle() {
            if left == 0 {
                break;
            }
            let length = length.min(left);
            left -= length;
            let mut piece = Chain::new();
            piece.push_back(received(&vec![b'x'; length], large)).unwrap();
            if apart {
                // What was sent before, and comes back because the socket did not accept it.
                let mut behind = Held::new();
                behind.append(&mut piece).unwrap();
                waits.append_held(behind).unwrap();
            } else {
                waits.append(&mut piece).unwrap();
            }
            drop(piece);
            let gone = taken.min(waits.len());
            if gone > 0 {
                waits.change(|chain| chain.trim_front(gone)).unwrap().unwrap();
            }
            let (held, used) = (waits.len(), used_bytes() - before);
            let small = usize::from(taken > 0) * (CLUSTER_SIZES[0] + 128);
            let bound = 2 * held + MAX_CLUSTER + 128 + small + CHAIN;
            prop_assert!(used <= bound, "{} bytes for {}", used, held);
        }
        drop(waits);
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
}
