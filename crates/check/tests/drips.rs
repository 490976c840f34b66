//! An answer that is not complete takes memory in proportion to its bytes, however it is cut. This test has a
//! process of its own, because the pools' counts are those of the process.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

use common::{cuts, received};
use manylane_buf::MAX_CLUSTER;
use manylane_check::{Exchange, Expect, HttpRequest, NextAction, NoExpressions, Pattern, Script, Step, http};
use manylane_h1::Leniency;
use manylane_pool::used_bytes;
use proptest::prelude::*;

/// An answer that never ends.
#[derive(Clone, Debug)]
enum Answer {
    /// Of a server without HTTP.
    Bytes(usize),
    Head(usize),
    Length(usize),
    /// Chunks with data of these lengths.
    Chunks(Vec<usize>),
    Trailers(usize),
    /// A part of a HEADERS frame of HTTP/2.
    Headers(usize),
    /// A part of a DATA frame.
    Data(usize),
}

/// Empty SETTINGS, and an acknowledgement of the other ones.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let ok = |rest: String| format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
        let chunked = "Transfer-Encoding: chunked\r\n\r\n";
        match self {
            Self::Bytes(length) => vec![b'x'; *length],
            Self::Head(length) => ok(format!("X: {}", "x".repeat(*length))),
            Self::Length(length) => ok(format!("Content-Length: 100000\r\n\r\n{}", "x".repeat(*length))),
            Self::Chunks(all) => {
                let chunk = |length: &usize| format!("{length:x}\r\n{}\r\n", "x".repeat(*length));
                ok(format!("{chunked}{}", all.iter().map(chunk).collect::<String>()))
            }
            Self::Trailers(length) => ok(format!("{chunked}0\r\nX: {}", "x".repeat(*length))),
            // Frames of 8,192 bytes.
            Self::Headers(length) => {
                [SETTINGS, b"\0\x20\0\x01\0\0\0\0\x01", &vec![b'x'; *length][..]].concat()
            }
            Self::Data(length) => {
                let head = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
                [SETTINGS, head, b"\0\x20\0\0\0\0\0\0\x01", &vec![b'x'; *length][..]].concat()
            }
        }
    }

    /// A check that waits for a text that never comes.
    fn script(&self) -> Script {
        let never = Step::expect(Expect::new(Pattern::Bytes((*b"never").into()), 2));
        match self {
            Self::Bytes(_) => Script::new(vec![Step::send(*b"?"), never]),
            _ => {
                let request = HttpRequest { method: (*b"GET").into(), ..HttpRequest::default() };
                http::script(vec![request.step(), never], true, Leniency::NONE)
            }
        }
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (1..16_000_usize).prop_map(Answer::Bytes),
        (0..15_000_usize).prop_map(Answer::Head),
        (0..16_000_usize).prop_map(Answer::Length),
        prop::collection::vec(prop_oneof![4 => 1..4_usize, 1 => 1..1000_usize], 1..50)
            .prop_map(Answer::Chunks),
        (0..15_000_usize).prop_map(Answer::Trailers),
        (0..8_192_usize).prop_map(Answer::Headers),
        (0..8_192_usize).prop_map(Answer::Data),
    ]
}

/// Runs a check until it wants to receive. Returns false if it is over.
fn receives(run: &mut Exchange<'_>) -> bool {
    loop {
        match run.ask(&mut NoExpressions) {
            NextAction::Connect(_) => run.connected(),
            NextAction::Send(_) => run.sent(),
            NextAction::Pass(_) => {}
            NextAction::Receive => return true,
            NextAction::Done(_) => return false,
        }
    }
}

/// Positions of a head's fields, beside its bytes.
const FIELDS: usize = 512;

proptest! {
    /// Bytes without HTTP and of bodies are in plain memory, which counts, too. All others are in one chain.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(answer in answer(), cuts in cuts()) {
        let script = answer.script();
        let mut run = script.run(true);
        if matches!(answer, Answer::Headers(_) | Answer::Data(_)) {
            run.speak_h2();
        }
        prop_assert!(receives(&mut run), "the check waits for an answer");
        let before = used_bytes();
        let bytes = answer.bytes();
        let mut rest = &bytes[..];
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            run.received(Some(received(piece, large)));
            prop_assert!(receives(&mut run), "the check waits for the end");
            let held = bytes.len() - rest.len();
            let used = used_bytes() - before + run.plain_memory();
            let bound = 2 * held + MAX_CLUSTER + 128 + FIELDS;
            prop_assert!(used <= bound, "{} bytes for {}", used, held);
        }
        drop(run);
        prop_assert!(used_bytes() <= before, "something is left");
    }
}
