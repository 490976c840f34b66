//! What rules of TCP wait for, and answers to the program's own requests, take memory in proportion to their
//! bytes, however they are cut. These tests have a process of their own, because the pools' counts are those
//! of the process.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

#[allow(dead_code)] // the crate calls all of it
#[path = "../src/tcp/heads.rs"]
mod heads;

#[allow(dead_code)]
#[path = "../../runtime/src/http_answer.rs"]
mod http_answer;

use common::{cuts, received};
use heads::Heads;
use http_answer::AnswerReader;
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_expr::Direction;
use manylane_http::Method;
use manylane_pool::used_bytes;
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pools' counts are those of the process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        let _alone = alone();
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

/// An answer of an OCSP responder or an ACME authority that never ends.
#[derive(Clone, Debug)]
enum Answer {
    Head(usize),
    /// A head behind an interim response with a field of as many bytes as the first number says.
    Interim(usize, usize),
    Length(usize),
    /// A body that ends with its connection.
    UntilEnd(usize),
    /// Chunks with data of these lengths.
    Chunks(Vec<usize>),
    /// Trailers behind a chunk with as many bytes as the first number says.
    Trailers(usize, usize),
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let x = |length: &usize| "x".repeat(*length);
        let chunk = |length: &usize| format!("{length:x}\r\n{}\r\n", x(length));
        let rest = match self {
            Self::Head(length) => format!("X: {}", x(length)),
            Self::Interim(first, length) => {
                format!("X: {}\r\n\r\nHTTP/1.1 200 OK\r\nX: {}", x(first), x(length))
            }
            Self::Length(length) => format!("Content-Length: 100000\r\n\r\n{}", x(length)),
            Self::UntilEnd(length) => format!("\r\n{}", x(length)),
            Self::Chunks(all) => {
                let chunks: String = all.iter().map(chunk).collect();
                format!("Transfer-Encoding: chunked\r\n\r\n{chunks}")
            }
            Self::Trailers(data, length) => {
                format!("Transfer-Encoding: chunked\r\n\r\n{}0\r\nX: {}", chunk(data), x(length))
            }
        };
        let status = if matches!(self, Self::Interim(..)) { "103 Early Hints" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\n{rest}").into_bytes()
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (0..15_000_usize).prop_map(Answer::Head),
        (0..9_000_usize, 0..9_000_usize).prop_map(|(first, length)| Answer::Interim(first, length)),
        (0..30_000_usize).prop_map(Answer::Length),
        (0..30_000_usize).prop_map(Answer::UntilEnd),
        prop::collection::vec(prop_oneof![4 => 1..4_usize, 1 => 1..3000_usize], 1..100)
            .prop_map(Answer::Chunks),
        (1..3000_usize, 0..15_000_usize).prop_map(|(data, length)| Answer::Trailers(data, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A complete head, bytes that are not read yet, and the body are each in one place.
    #[test]
    fn what_waits_of_an_answer_takes_at_most_twice_its_bytes_and_a_cluster(
        answer in answer(),
        cuts in cuts(),
    ) {
        let _alone = alone();
        let before = used_bytes();
        let bytes = answer.bytes();
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |end| end + 4);
        let mut reader = AnswerReader::new(Method::Get, 1 << 20);
        let mut rest = &bytes[..];
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            let read = reader.read(received(piece, large));
            prop_assert!(matches!(read, Ok(None)), "it waits for its end: {:?}", read.err());
            let used = used_bytes() - before;
            let (heads, fields) = if reader.begun.is_some() { (head, FIELDS) } else { (0, 0) };
            let parts = [heads, reader.received.len(), reader.body.len()];
            let held: usize = parts.iter().sum();
            let places = parts.iter().filter(|part| **part > 0).count().max(1);
            let bound = 2 * held + places * (MAX_CLUSTER + 128) + fields;
            prop_assert!(used <= bound, "{} bytes for {:?}", used, parts);
        }
        drop(reader);
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
}
