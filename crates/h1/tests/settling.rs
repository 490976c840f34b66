//! After rules have edited a head, its fields state the framing of its body.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_buf::Chain;
use manylane_h1::Persist;
use manylane_h1::{
    Body, Limits, Reader, RequestInfo, RequestParser, ResponseParser, frame_for, settle_request,
    settle_response,
};
use manylane_http::{Head, Known, Method, Version};

type Edit = fn(&mut Head);

fn nothing(_: &mut Head) {}

fn chain(bytes: &str) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes.as_bytes()).unwrap();
    chain
}

/// Returns the framing fields, in order.
fn framing(head: &Head) -> String {
    let fields =
        head.fields().filter(|field| field.is(Known::CONTENT_LENGTH) || field.is(Known::TRANSFER_ENCODING));
    let text = |field: manylane_http::Field<'_>| {
        let name = if field.is(Known::CONTENT_LENGTH) { "length" } else { "coding" };
        format!("{name} {}", String::from_utf8_lossy(field.value))
    };
    fields.map(text).collect::<Vec<_>>().join(", ")
}

fn no_length(head: &mut Head) {
    head.remove_fields(Known::CONTENT_LENGTH);
}

fn no_coding(head: &mut Head) {
    head.remove_fields(Known::TRANSFER_ENCODING);
}

fn length_9(head: &mut Head) {
    head.set_field(Known::CONTENT_LENGTH, b"9").unwrap();
}

fn length_3_twice(head: &mut Head) {
    head.set_field(Known::CONTENT_LENGTH, b"3, 3").unwrap();
}

fn length_0(head: &mut Head) {
    head.set_field(Known::CONTENT_LENGTH, b"0").unwrap();
}

fn length_empty(head: &mut Head) {
    head.set_field(Known::CONTENT_LENGTH, b"").unwrap();
}

fn length_9_added(head: &mut Head) {
    head.add_field(Known::CONTENT_LENGTH, b"9").unwrap();
}

fn length_word(head: &mut Head) {
    head.set_field(b"content-LENGTH", b"three").unwrap();
}

fn chunked(head: &mut Head) {
    head.set_field(Known::TRANSFER_ENCODING, b"chunked").unwrap();
}

fn gzip(head: &mut Head) {
    head.add_field(Known::TRANSFER_ENCODING, b"gzip").unwrap();
}

fn status_204(head: &mut Head) {
    head.set_status(204, None).unwrap();
}

fn status_304(head: &mut Head) {
    head.set_status(304, None).unwrap();
}

fn status_200(head: &mut Head) {
    head.set_status(200, None).unwrap();
}

#[test]
fn a_request_goes_on_with_its_own_body() {
    const LENGTH: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    const EMPTY: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    const OLD: &str = "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n";
    const CHUNKS: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    const NONE: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let cases: &[(&str, Edit, Option<Body>, &str)] = &[
        (LENGTH, no_length, Some(Body::Chunked), "coding chunked"),
        (LENGTH, length_word, None, "length three"),
        (LENGTH, length_empty, None, "length "),
        (LENGTH, length_9, None, "length 9"),
        (LENGTH, length_9_added, None, "length 3, length 9"),
        (LENGTH, length_3_twice, Some(Body::Length(3)), "length 3"),
        (LENGTH, chunked, Some(Body::Length(3)), "length 3"),
        (OLD, no_length, Some(Body::Length(3)), "length 3"),
        (EMPTY, no_length, Some(Body::None), ""),
        (EMPTY, length_9, None, "length 9"),
        (CHUNKS, no_coding, Some(Body::Chunked), "coding chunked"),
        (CHUNKS, length_9, Some(Body::Chunked), "coding chunked"),
        (CHUNKS, gzip, Some(Body::Chunked), "coding chunked"),
        (CHUNKS, length_word, None, "coding chunked, length three"),
        (NONE, length_9, None, "length 9"),
        (NONE, length_0, Some(Body::None), ""),
        (NONE, chunked, Some(Body::None), ""),
    ];
    for (n, (head, edit, body, fields)) in cases.iter().enumerate() {
        let mut request = RequestParser::new(Limits::default()).parse(&mut chain(head)).unwrap().unwrap();
        assert!(!request.head.is_reframed());
        edit(&mut request.head);
        assert!(request.head.is_reframed(), "case {n}");
        let settled = settle_request(&mut request.head, request.body).unwrap();
        assert_eq!((settled, &*framing(&request.head)), (*body, *fields), "case {n}");
    }
}

#[test]
fn a_response_goes_on_with_its_own_body_as_its_reader_takes_it() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    const NONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";
    const CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const OLD: &str = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n";
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n";
    let (new, old) = (Version::HTTP_11, Version::HTTP_10);
    let cases: &[(&str, Edit, Method, Version, Body, &str)] = &[
        (LENGTH, no_length, Method::Get, new, Body::Chunked, "coding chunked"),
        (LENGTH, no_length, Method::Get, old, Body::Length(3), "length 3"),
        (OLD, no_length, Method::Get, new, Body::Length(3), "length 3"),
        (LENGTH, no_length, Method::Head, new, Body::None, ""),
        (LENGTH, length_9, Method::Get, new, Body::Length(3), "length 3"),
        (LENGTH, length_9, Method::Head, new, Body::None, "length 9"),
        (LENGTH, length_9_added, Method::Get, new, Body::Length(3), "length 3"),
        (LENGTH, chunked, Method::Get, new, Body::Length(3), "length 3"),
        (LENGTH, chunked, Method::Head, new, Body::None, "length 3"),
        (LENGTH, length_word, Method::Head, new, Body::None, ""),
        (LENGTH, status_204, Method::Get, new, Body::None, ""),
        (LENGTH, status_304, Method::Get, new, Body::None, "length 3"),
        (CHUNKS, status_204, Method::Get, new, Body::None, ""),
        (CHUNKS, status_304, Method::Get, new, Body::None, "coding chunked"),
        (CHUNKS, no_coding, Method::Get, new, Body::Chunked, "coding chunked"),
        (CHUNKS, no_coding, Method::Get, old, Body::UntilClose, ""),
        (CHUNKS, gzip, Method::Get, new, Body::Chunked, "coding chunked"),
        (CHUNKS, length_9, Method::Get, new, Body::Chunked, "coding chunked"),
        (CLOSE, length_9, Method::Get, new, Body::UntilClose, ""),
        (NONE, status_200, Method::Get, new, Body::Chunked, "coding chunked"),
        (NONE, status_200, Method::Get, old, Body::Length(0), "length 0"),
        (NONE, status_200, Method::Head, new, Body::None, ""),
        (SWITCH, length_9, Method::Get, new, Body::Tunnel, ""),
        (SWITCH, status_204, Method::Get, new, Body::None, ""),
        // Nothing was edited, but the server got another method than the client's: HEAD, and GET.
        (LENGTH, nothing, Method::Head, new, Body::None, "length 3"),
    ];
    for (n, &(head, edit, method, version, body, fields)) in cases.iter().enumerate() {
        let request = RequestInfo { method: Method::Get, upgrade: true };
        let mut response =
            ResponseParser::new(Limits::default()).parse(&mut chain(head), request).unwrap().unwrap();
        edit(&mut response.head);
        let (framed, _) = frame_for(response.body, version, Persist::KeepAlive);
        let settled = settle_response(&mut response.head, framed, Reader { version, method }).unwrap();
        assert_eq!((settled, &*framing(&response.head)), (body, fields), "case {n}");
    }
}
