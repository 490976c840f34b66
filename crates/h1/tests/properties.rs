//! Properties of all messages: cuts make no difference, and a written message reads as the same one.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, Cluster};
use manylane_h1::{
    Body, BodyReader, BodyWriter, Error, From, Limits, Progress, Request, RequestInfo, RequestParser,
    Response, ResponseParser,
};
use manylane_http::{Head, Method};
use proptest::prelude::*;

fn push(chain: &mut Chain, bytes: &[u8]) {
    if !bytes.is_empty() {
        chain.push_back(Cluster::with(bytes).expect("memory").into_segment()).expect("room");
    }
}

/// Pieces of a connection's bytes: some likely, some odd.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => Just("GET / HTTP/1.1\r\nHost: a\r\n".to_owned()),
        4 => Just("POST /p?q HTTP/1.1\r\n".to_owned()),
        4 => Just("Content-Length: 5\r\n".to_owned()),
        4 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
        4 => Just("\r\n".to_owned()),
        4 => Just("\r\n5\r\nhello\r\n0\r\n\r\n".to_owned()),
        2 => Just("HTTP/1.1 200 OK\r\n".to_owned()),
        2 => Just("0\r\nX-Trailer: y\r\n\r\n".to_owned()),
        2 => Just("hello".to_owned()),
        2 => "[A-Za-z-]{1,12}: [ -~]{0,20}\r\n",
        1 => "[ -~\r\n\t\0]{1,6}",
    ];
    proptest::collection::vec(piece, 1..10).prop_map(|pieces| pieces.concat().into_bytes())
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..40, 1..60)
}

/// Result of reading a connection's bytes.
#[derive(Debug, Default, PartialEq)]
struct Story {
    heads: Vec<String>,
    data: Vec<u8>,
    error: Option<(u16, manylane_h1::Problem)>,
    rest: Vec<u8>,
}

enum Reading {
    Head,
    Body(Box<BodyReader>),
    Over,
}

/// Reads requests or responses, with their bodies, from pieces.
fn story<'a>(pieces: impl Iterator<Item = &'a [u8]>, requests: bool, keep: bool) -> Story {
    let limits = Limits { head: 200, fields: 8, ..Limits::default() };
    let from = if requests { From::Client } else { From::Server };
    let mut story = Story::default();
    let mut input = Chain::new();
    let mut reading = Reading::Head;
    let (mut requests_in, mut responses_in) = (RequestParser::new(limits), ResponseParser::new(limits));
    let request = RequestInfo { method: Method::Get, upgrade: false };
    for piece in pieces {
        push(&mut input, piece);
        loop {
            let refused = |story: &mut Story, error: Error| {
                story.error = Some((error.status, error.problem));
                Reading::Over
            };
            reading = match reading {
                Reading::Head => {
                    let parsed = if requests {
                        requests_in
                            .parse(&mut input)
                            .map(|r| r.map(|Request { head, body, .. }| (head, body)))
                    } else {
                        responses_in
                            .parse(&mut input, request)
                            .map(|r| r.map(|Response { head, body, .. }| (head, body)))
                    };
                    match parsed {
                        Ok(None) => {
                            reading = Reading::Head;
                            break;
                        }
                        Ok(Some((head, body))) => {
                            story.heads.push(format!("{head:?} {body:?}"));
                            Reading::Body(Box::new(BodyReader::new(body, from, limits)))
                        }
                        Err(error) => refused(&mut story, error),
                    }
                }
                Reading::Body(mut reader) => {
                    let mut data = Chain::new();
                    let progress = if keep {
                        reader.read_chunks(&mut input, &mut data)
                    } else {
                        reader.read(&mut input, &mut data)
                    };
                    story.data.extend(data.to_vec());
                    match progress {
                        Ok(Progress::More) => {
                            reading = Reading::Body(reader);
                            break;
                        }
                        Ok(Progress::Done(trailers)) => {
                            story.heads.extend(trailers.map(|trailers| format!("{trailers:?}")));
                            Reading::Head
                        }
                        Err(error) => refused(&mut story, error),
                    }
                }
                Reading::Over => {
                    reading = Reading::Over;
                    break;
                }
            };
        }
    }
    if !matches!(reading, Reading::Over) {
        story.rest = input.to_vec();
    }
    story
}

fn pieces<'a>(bytes: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, behind) = rest.split_at((*cuts.next()?).min(rest.len()));
        rest = behind;
        Some(piece)
    })
}

/// Compares two results. The begun empty line or the incomplete chunk size at the end may or may not be
/// consumed, depending on the cuts.
fn same(whole: &Story, cut: &Story) -> bool {
    whole.heads == cut.heads && whole.data == cut.data && whole.error.is_some() == cut.error.is_some()
}

/// Returns `usual`, or one in `share` of the cases in `PROPTEST_CASES`, which the long run sets.
fn cases(usual: u32, share: u32) -> u32 {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    requested.map_or(usual, |requested| requested.div_ceil(share))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(150, 4),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_of_the_bytes_tells_the_same_story(mut bytes in bytes(), cuts in cuts(), requests: bool) {
        // A wrong field is refused when its head is complete, or when the whole head comes at once.
        bytes.extend(b"\r\n\r\n");
        let whole = story(std::iter::once(&bytes[..]), requests, false);
        for cuts in [&cuts[..], &[1]] {
            let cut = story(pieces(&bytes, cuts), requests, false);
            // The data before an error may end differently, depending on the piece that has the error.
            if whole.error.is_some() {
                prop_assert_eq!(&whole.heads, &cut.heads);
                prop_assert!(cut.error.is_some(), "{:?} but {:?}", whole, cut);
            } else {
                prop_assert!(same(&whole, &cut), "{:?} but {:?}", whole, cut);
                prop_assert_eq!(&whole.rest, &cut.rest);
            }
        }
    }

    #[test]
    fn kept_chunks_are_the_same_bytes_but_for_extensions_however_they_are_cut(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 0..12),
        cuts in cuts(),
    ) {
        let (mut encoded, mut framed) = (Vec::new(), Vec::new());
        for (n, chunk) in chunks.iter().enumerate() {
            let extension = ["", ";a", ";b=c", " ;d"][n % 4];
            encoded.extend(format!("{:x}{extension}\r\n", chunk.len()).into_bytes());
            framed.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            for bytes in [&mut encoded, &mut framed] {
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
        }
        encoded.extend(b"00;last\r\nX: y\r\n\r\n");
        for keep in [true, false] {
            for cuts in [&cuts[..], &[1], &[usize::MAX]] {
                let mut reader = BodyReader::new(Body::Chunked, From::Server, Limits::default());
                let (mut input, mut out) = (Chain::new(), Chain::new());
                let mut trailers = None;
                for piece in pieces(&encoded, cuts) {
                    push(&mut input, piece);
                    let progress = if keep { reader.read_chunks(&mut input,
                        &mut out) } else { reader.read(&mut input, &mut out) };
                    if let Progress::Done(Some(head)) = progress.expect("valid") {
                        trailers = Some(head);
                    }
                }
                prop_assert!(reader.is_done() && input.is_empty());
                prop_assert!(trailers.is_some_and(|head| head.values("x").eq([b"y"])));
                prop_assert_eq!(reader.data(), chunks.concat().len() as u64);
                prop_assert_eq!(out.to_vec(), if keep { framed.clone() } else { chunks.concat() });
            }
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same(
        target in "/[a-z0-9/?=&%]{0,40}",
        fields in proptest::collection::vec(("[A-Za-z][A-Za-z0-9_-]{0,20}", "[!-~]{0,30}"), 0..30),
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
        chunked: bool,
        cuts in cuts(),
    ) {
        let framing = [&b"content-length"[..], b"transfer-encoding", b"connection", b"host", b"te"];
        let mut head = Head::request(b"POST", target.as_bytes(),
            manylane_http::Version::HTTP_11).expect("valid");
        head.add_field("host", b"a").expect("valid");
        for (name, value) in fields.iter().filter(|(name,
            _)| !framing.iter().any(|f| name.as_bytes().eq_ignore_ascii_case(f))) {
            head.add_field(name.as_str(), value.as_bytes()).expect("valid");
        }
        let all = parts.concat();
        let body = if chunked { Body::Chunked } else { Body::Length(all.len() as u64) };
        manylane_h1::set_body(&mut head, Body::None, body).expect("valid");
        let mut wire = Chain::new();
        manylane_h1::write_head(&mut head, &mut wire, None).expect("memory");
        let mut writer = BodyWriter::new(body);
        for part in &parts {
            let mut data = Chain::new();
            push(&mut data, part);
            writer.write(&mut data, &mut wire).expect("as promised");
        }
        writer.end(None, &mut wire).expect("as promised");
        let wire = wire.to_vec();

        let mut input = Chain::new();
        let mut parser = RequestParser::new(Limits::default());
        let mut got = None;
        let mut data = Chain::new();
        for piece in pieces(&wire, &cuts) {
            push(&mut input, piece);
            if got.is_none()
                && let Some(request) = parser.parse(&mut input).expect("valid")
            {
                let reader = BodyReader::new(request.body, From::Client, Limits::default());
                got = Some((request, reader));
            }
            if let Some((_, reader)) = &mut got {
                reader.read(&mut input, &mut data).expect("valid");
            }
        }
        let (request, reader) = got.expect("complete");
        prop_assert!(reader.is_done() && input.is_empty());
        prop_assert_eq!(data.to_vec(), all);
        prop_assert_eq!(format!("{:?}", request.head), format!("{head:?}"));
        prop_assert_eq!(request.body, body);
    }
}
