//! Once warm, a request and its response take nothing from the global allocator.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, Cluster};
use manylane_h1::{
    Body, BodyReader, BodyWriter, From, Limits, Persist, Progress, RequestInfo, RequestParser,
    ResponseParser, frame_for, restrict_te, set_body, set_connection, write_head,
};
use manylane_http::{Known, Method};
use std::hint::black_box;

/// Aborts the test program if it is called inside of [`assert_no_alloc::assert_no_alloc`].
#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

/// Runs `round` until the lane's pools are warm, and then asserts that it allocates nothing.
fn allocates_nothing_when_warm(mut round: impl FnMut()) {
    (0..10).for_each(|_| round());
    assert_no_alloc::assert_no_alloc(|| (0..40).for_each(|_| round()));
}

fn received(pieces: &[&[u8]]) -> Chain {
    let mut chain = Chain::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        chain.push_back(Cluster::with(piece).expect("memory").into_segment()).expect("room");
    }
    chain
}

const REQUEST: &[u8] = b"POST /a/b?c=d HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X\r\nX: y\r\nTE: \
    gzip\r\nCookie: a=b; c=d\r\n\
    Content-Length: 5\r\n\r\nhello";

#[test]
fn a_request_that_is_edited_and_forwarded_asks_for_nothing() {
    for cut in [REQUEST.len(), 30] {
        allocates_nothing_when_warm(|| {
            let mut input = received(&[&REQUEST[..cut], &REQUEST[cut..]]);
            let mut request =
                RequestParser::new(Limits::default()).parse(&mut input).expect("valid").expect("complete");
            let head = &mut request.head;
            head.add_field(Known::X_FORWARDED_FOR, b"192.0.2.1").expect("room");
            head.set_path(b"/other").expect("room");
            head.set_field("x-unusual", b"1").expect("room");
            restrict_te(head).expect("room");
            set_connection(head, request.connection, Persist::Close).expect("room");
            let mut out = Chain::new();
            write_head(head, &mut out, None).expect("memory");
            let mut reader = BodyReader::new(request.body, From::Client, Limits::default());
            let mut body = Chain::new();
            reader.read(&mut input, &mut body).expect("valid");
            BodyWriter::new(request.body).write(&mut body, &mut out).expect("as promised");
            assert!(reader.is_done() && input.is_empty());
            black_box(out);
        });
    }
}

#[test]
fn chunks_in_and_out_ask_for_nothing() {
    let small = "1\r\nx\r\n".repeat(2_700);
    allocates_nothing_when_warm(|| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut input =
            received(&[head, small.as_bytes(), b"400", b"\r\n", &[b'z'; 1024], b"\r\n0\r\nX-Sum: 1\r\n\r\n"]);
        let request = RequestInfo { method: Method::Get, upgrade: false };
        let mut response = ResponseParser::new(Limits::default())
            .parse(&mut input, request)
            .expect("valid")
            .expect("complete");
        let (body, persist) = frame_for(response.body, response.head.version(), Persist::KeepAlive);
        set_body(&mut response.head, response.body, body).expect("room");
        set_connection(&mut response.head, response.connection, persist).expect("room");
        let (mut out, mut data) = (Chain::new(), Chain::new());
        write_head(&mut response.head, &mut out, None).expect("memory");
        let mut reader = BodyReader::new(Body::Chunked, From::Server, Limits::default());
        let Ok(Progress::Done(mut trailers)) = reader.read(&mut input, &mut data) else {
            panic!("not complete")
        };
        // R-G10: the data of the small chunks is in one cluster.
        assert_eq!((data.len(), data.segment_count()), (2_700 + 1_024, 2));
        let mut writer = BodyWriter::new(body);
        writer.write(&mut data, &mut out).expect("chunks");
        writer.end(trailers.as_mut(), &mut out).expect("chunks");
        black_box(out);
    });
}
