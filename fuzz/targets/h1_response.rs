//! Responses: an accepted response reads back the same after writing, for each kind of request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_buf::{Chain, Cluster};
use manylane_h1::{
    Body, Leniency, Limits, Persist, RequestInfo, Response, ResponseParser, frame_for, set_body,
    set_connection, write_head,
};
use manylane_http::{Known, Method, Version};

fn parse(bytes: &[u8], limits: Limits, request: RequestInfo) -> Option<Response> {
    let mut input = Chain::new();
    for piece in bytes.chunks(4000) {
        input.push_back(Cluster::with(piece).expect("memory").into_segment()).expect("room");
    }
    ResponseParser::new(limits).parse(&mut input, request).ok().flatten()
}

fuzz_target!(|data: &[u8]| {
    let [options, relaxations, bytes @ ..] = data else { return };
    let lenient = Leniency::from_bits(u16::from(*relaxations));
    let limits = Limits { head: 1000, fields: 20, relaxed: options & 1 == 1, lenient, ..Limits::default() };
    let method = [Method::Get, Method::Head, Method::Connect, Method::Post][usize::from(options >> 1 & 3)];
    let request = RequestInfo { method, upgrade: options & 8 == 8 };
    let Some(mut response) = parse(bytes, limits, request) else { return };
    let client = if options & 16 == 16 { Version::HTTP_10 } else { Version::HTTP_11 };
    let (body, persist) = frame_for(response.body, client, Persist::KeepAlive);
    let head = &mut response.head;
    if set_body(head, response.body, body).is_err()
        || set_connection(head, response.connection, persist).is_err()
    {
        return;
    }
    let mut out = Chain::new();
    write_head(head, &mut out, None).expect("memory");
    // Forwarded messages are strict, even if the input was not.
    let strict = Limits { head: 4000, fields: 40, lenient: Leniency::NONE, ..limits };
    let again = parse(&out.to_vec(), strict, request).expect("we read what we write");
    assert_eq!((again.head.status(), again.head.reason()), (head.status(), head.reason()));
    assert_eq!(again.body, body);
    assert!(again.head.count(Known::CONTENT_LENGTH) + again.head.count(Known::TRANSFER_ENCODING) <= 1);
    // A body that ends with the connection cannot leave the connection open.
    assert!(body != Body::UntilClose || !again.connection.persists(again.head.version()));
});
