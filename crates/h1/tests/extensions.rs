//! Chunk extensions are for the next hop only, and are not passed on.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_buf::Chain;
use manylane_h1::{Body, BodyReader, From, Limits, Problem, Progress};

/// Passes on a body whose bytes come in pieces of `step`, and returns the result.
fn passed_on(body: &[u8], step: usize) -> Vec<u8> {
    let mut reader = BodyReader::new(Body::Chunked, From::Client, Limits::default());
    let (mut input, mut out) = (Chain::new(), Chain::new());
    for piece in body.chunks(step) {
        let mut more = Chain::new();
        more.append(piece).unwrap();
        input.append_chain(&mut more).unwrap();
        if let Progress::Done(_) = reader.read_chunks(&mut input, &mut out).unwrap() {
            return out.segments().flat_map(|segment| segment.as_slice().to_vec()).collect();
        }
    }
    panic!("the body did not end");
}

#[test]
fn chunks_go_on_without_their_extensions() {
    let long = "x".repeat(3000);
    let with = format!(
        "3;a=b\r\nabc\r\n2 ; c\r\nd;\r\n1\r\ne\r\nbb8;f=\"g\"\r\n{long}\r\n1;h\r\n;\r\n0;last\r\n\r\n"
    );
    let without = format!("3\r\nabc\r\n2\r\nd;\r\n1\r\ne\r\nbb8\r\n{long}\r\n1\r\n;\r\n");
    for step in 1..with.len() {
        let out = passed_on(with.as_bytes(), step);
        assert_eq!(String::from_utf8(out).unwrap(), without, "in pieces of {step}");
    }
}

/// An extension of 16,384 bytes passes, its semicolon included, and no longer one. HAProxy bounds it by its
/// buffer, of as many bytes.
#[test]
fn an_extension_has_a_bound() {
    for (length, passes) in [(16_384, true), (16_385, false)] {
        for from in [From::Client, From::Server] {
            for step in [1, 1000, usize::MAX] {
                let body = format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(length - 1)).into_bytes();
                let mut reader = BodyReader::new(Body::Chunked, from, Limits::default());
                let (mut input, mut out) = (Chain::new(), Chain::new());
                let mut outcome = Ok(false);
                for piece in body.chunks(step) {
                    input.append(piece).unwrap();
                    outcome = reader
                        .read(&mut input, &mut out)
                        .map(|progress| matches!(progress, Progress::Done(_)))
                        .map_err(|error| error.problem);
                    if outcome.is_err() {
                        break;
                    }
                }
                let expected = if passes { Ok(true) } else { Err(Problem::BadExtension) };
                assert_eq!(outcome, expected, "{length} bytes in pieces of {step}");
            }
        }
    }
}
