//! An incomplete head, body, chunk or trailer takes memory in proportion to its bytes, however it is cut.
//! This test has a process of its own, because the pools' counts are those of the process.
#![cfg(not(any(loom, manylane_sim)))]

mod common;

use common::{cuts, received};
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_h1::{Body, BodyReader, From, Limits, Progress, RequestInfo, RequestParser, ResponseParser};
use manylane_http::Method;
use manylane_pool::used_bytes;
use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A message that never ends.
#[derive(Clone, Debug)]
enum Message {
    Request(usize),
    Response(usize),
    Length(usize),
    /// Chunks with data of these lengths.
    Chunks(Vec<usize>),
    /// Trailers behind a chunk with as many bytes as the first number says.
    Trailers(usize, usize),
}

impl Message {
    /// Returns the bytes, and the framing if they are a body.
    fn made(&self) -> (Vec<u8>, Option<Body>) {
        let field = |length: &usize| format!("X: {}", "x".repeat(*length));
        match self {
            Self::Request(length) => (format!("GET / HTTP/1.1\r\nHost: a\r\n{}", field(length)).into(), None),
            Self::Response(length) => (format!("HTTP/1.1 200 OK\r\n{}", field(length)).into(), None),
            Self::Length(length) => (vec![b'x'; *length], Some(Body::Length(1 << 20))),
            Self::Chunks(all) => {
                let chunk = |length: &usize| format!("{length:x}\r\n{}\r\n", "x".repeat(*length));
                (all.iter().map(chunk).collect::<String>().into(), Some(Body::Chunked))
            }
            Self::Trailers(0, length) => (format!("0\r\n{}", field(length)).into(), Some(Body::Chunked)),
            Self::Trailers(data, length) => {
                let chunk = format!("{data:x}\r\n{}\r\n", "x".repeat(*data));
                (format!("{chunk}0\r\n{}", field(length)).into(), Some(Body::Chunked))
            }
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (0..15_000_usize).prop_map(Message::Request),
        (0..15_000_usize).prop_map(Message::Response),
        (1..16_000_usize).prop_map(Message::Length),
        prop::collection::vec(prop_oneof![4 => 1..4_usize, 1 => 1..3000_usize], 1..200)
            .prop_map(Message::Chunks),
        (prop_oneof![Just(0), 1..3000_usize], 0..15_000_usize)
            .prop_map(|(data, length)| Message::Trailers(data, length)),
    ]
}

/// Feeds a message in pieces of these lengths, and checks the used memory after each.
fn bounded(message: &Message, cuts: &[(usize, bool)]) -> Result<(), TestCaseError> {
    static ALONE: Mutex<()> = Mutex::new(()); // the pools' counts are those of the process
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = used_bytes();
    let (bytes, body) = message.made();
    let limits = Limits { head: 16_384, ..Limits::default() };
    let request = RequestInfo { method: Method::Get, upgrade: false };
    let (mut requests, mut responses) = (RequestParser::new(limits), ResponseParser::new(limits));
    let mut reader = body.map(|body| BodyReader::new(body, From::Client, limits));
    let (mut input, mut kept) = (Chain::new(), Chain::new());
    let mut rest = &bytes[..];
    for &(length, large) in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece;
        (piece, rest) = rest.split_at(length.min(rest.len()));
        input.push_compact(received(piece, large)).expect("memory");
        let goes_on = match (message, &mut reader) {
            (_, Some(reader)) => {
                let mut data = Chain::new();
                let progress = reader.read(&mut input, &mut data);
                kept.append_compact(&mut data).expect("memory");
                matches!(progress, Ok(Progress::More))
            }
            (Message::Request(_), _) => matches!(requests.parse(&mut input), Ok(None)),
            _ => matches!(responses.parse(&mut input, request), Ok(None)),
        };
        prop_assert!(goes_on, "it waits for its end");
        let held = input.len() + kept.len();
        let places = [&input, &kept].iter().filter(|chain| !chain.is_empty()).count();
        let used = used_bytes() - before;
        let bound = 2 * held + places * (MAX_CLUSTER + 128);
        prop_assert!(used <= bound, "{used} bytes for {held} in {places} places");
    }
    drop((input, kept, reader, requests, responses));
    prop_assert_eq!(used_bytes(), before, "something is left");
    Ok(())
}

proptest! {
    /// What a parser has read of a body and the caller keeps is one place, and trailers that it has not read
    /// are another: each takes at most twice its bytes and a cluster, with its header.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(message in message(), cuts in cuts()) {
        bounded(&message, &cuts)?;
    }
}

/// Two chunks in one large read, of which the first is kept: the second must not be copied into a large
/// cluster for lack of room in the first. A run of 20,000 cases found this.
#[test]
fn the_second_chunk_of_a_read_takes_no_large_cluster_more() {
    bounded(&Message::Chunks(vec![1024, 2049]), &[(3085, false)]).unwrap();
}
