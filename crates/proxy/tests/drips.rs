//! What rules of TCP wait for takes memory in proportion to its bytes, however it is cut. This test has a
//! process of its own, because the pools' counts are those of the process.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

#[allow(dead_code)] // the crate calls all of it
#[path = "../src/tcp/heads.rs"]
mod heads;

use common::{cuts, received};
use heads::Heads;
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_expr::Direction;
use manylane_pool::used_bytes;
use proptest::prelude::*;

/// Positions of a head's fields, beside its bytes.
const FIELDS: usize = 512;

proptest! {
    /// Rules see a head as soon as it is complete, and may then wait for more: it is then a second place.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
        response: bool,
        line in prop_oneof![1..40_usize, 1..9_000_usize],
        field in prop_oneof![1..40_usize, 1..9_000_usize],
        body in prop_oneof![Just(0_usize), 1..9_000_usize],
        empty in 0..3_usize,
        cuts in cuts(),
    ) {
        let before = used_bytes();
        let (side, first) = match response {
            true => (Direction::Response, format!("HTTP/1.1 200 {}", "x".repeat(line))),
            false => {
                let empty = "\r\n".repeat(empty);
                (Direction::Request, format!("{empty}GET /{} HTTP/1.1", "x".repeat(line)))
            }
        };
        let head = format!("{first}\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(field));
        let bytes = head.clone() + &"x".repeat(body);
        let (mut waits, mut heads) = (Chain::new(), Heads::new(side));
        let mut rest = bytes.as_bytes();
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            waits.push_compact(received(piece, large)).expect("memory");
            heads.parse(&waits);
            prop_assert_eq!(heads.head.is_some(), waits.len() >= head.len() && head.len() <= 16_384 - 1024);
            let used = used_bytes() - before;
            let (mut bytes, mut places, mut fields) = (waits.len(), 1, 0);
            if heads.head.is_some() {
                (bytes, places, fields) = (bytes + head.len(), 2, FIELDS);
            }
            let bound = 2 * bytes + places * (MAX_CLUSTER + 128) + fields;
            prop_assert!(used <= bound, "{} bytes for {} in {} places", used, bytes, places);
        }
        drop((waits, heads));
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
}
