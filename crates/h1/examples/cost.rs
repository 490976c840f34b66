//! Measures the cost of heads and chunks: `cargo run --release -p manylane-h1 --example cost` prints
//! nanoseconds, the least of many short runs. With a case's name and a number of rounds it runs that case
//! alone, for instruction counts:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/cost request-16 20000
//! valgrind --tool=callgrind target/release/examples/cost request-16 40000      # the difference is 20,000
//! rounds
//! ```
//!
//! The figures are not for comparing machines: `httparse`, measured beside it, is the reference.

use manylane_buf::{Chain, Cluster, Segment};
use manylane_h1::{
    Body, BodyReader, From, Limits, Persist, RequestInfo, RequestParser, ResponseParser, set_body,
    set_connection, write_head,
};
use manylane_http::{Known, Method};
use std::hint::black_box;
use std::time::Instant;

/// A request of a load generator: 5 fields.
const REQUEST_5: &str = "GET /static/images/logo.png?v=12 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: \
    curl/8.5.0\r\nAccept: */*\r\n\
    X-Request-Id: 6f1d0c52\r\nConnection: keep-alive\r\n\r\n";

/// A request of a browser: 16 fields, about 1 KiB.
const REQUEST_16: &str = "GET /catalogue/items?category=books&sort=price&page=3 HTTP/1.1\r\nHost: \
    shop.example.com\r\n\
    Connection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"128\", \
    \"Not;A=Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 \
    Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: \
    document\r\n\
    Referer: https://shop.example.com/catalogue/items?category=books&page=2\r\nAccept-Encoding: gzip, \
    deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=8c1b3c6e5a1f4be0a5d5f1b0; theme=dark; consent=all; cart=12,93,41; ab=variant-7; \
    seen=2026-11-20T10:00:00Z\r\n\r\n";

/// A response with 20 fields.
const RESPONSE_20: &str = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 07:00:00 \
    GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
    Content-Length: 1024\r\nConnection: keep-alive\r\nKeep-Alive: timeout=75\r\nLast-Modified: Fri, 20 Nov \
    2026 12:00:00 GMT\r\n\
    ETag: \"655b1c40-400\"\r\nAccept-Ranges: bytes\r\nCache-Control: public, max-age=3600\r\nExpires: Sat, \
    21 Nov 2026 08:00:00 GMT\r\n\
    Vary: Accept-Encoding\r\nX-Frame-Options: DENY\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: \
    same-origin\r\n\
    Strict-Transport-Security: max-age=31536000; includeSubDomains\r\nContent-Security-Policy: default-src \
    'self'\r\n\
    Set-Cookie: session=8c1b3c6e5a1f4be0a5d5f1b0; Path=/; HttpOnly; Secure\r\nX-Request-Id: \
    6f1d0c52-1e4a\r\nVia: 1.1 edge\r\n\r\n";

/// Number of chunks of one byte in a segment of 16 KiB (R-G10).
const CHUNKS: usize = 2_700;

const ASKED: RequestInfo = RequestInfo { method: Method::Get, upgrade: false };

fn segment(bytes: &[u8]) -> Segment {
    Cluster::with(bytes).expect("memory").into_segment()
}

struct Case {
    name: &'static str,
    per: &'static str,
    /// Number of things done in one round.
    things: usize,
    run: Box<dyn FnMut()>,
}

fn case(name: &'static str, per: &'static str, things: usize, run: impl FnMut() + 'static) -> Case {
    Case { name, per, things, run: Box::new(run) }
}

fn request(name: &'static str, text: &'static str) -> Case {
    let received = segment(text.as_bytes());
    case(name, "head", 1, move || {
        let mut input = Chain::from(received.clone());
        let mut parser = RequestParser::new(Limits::default());
        black_box(parser.parse(&mut input).expect("valid"));
    })
}

fn httparse_request(name: &'static str, text: &'static str) -> Case {
    case(name, "head", 1, move || {
        let mut fields = [httparse::EMPTY_HEADER; 40];
        let mut request = httparse::Request::new(&mut fields);
        black_box(request.parse(black_box(text.as_bytes())).expect("valid"));
        black_box(&request);
    })
}

fn cases() -> Vec<Case> {
    let response = segment(RESPONSE_20.as_bytes());
    let forwarded = segment(RESPONSE_20.as_bytes());
    let edited = segment(REQUEST_16.as_bytes());
    let chunks = segment("1\r\nx\r\n".repeat(CHUNKS).as_bytes());
    let chunks_kept = chunks.clone();
    vec![
        case("empty", "round", 1, || {
            black_box(());
        }),
        request("request-5", REQUEST_5),
        httparse_request("httparse-5", REQUEST_5),
        request("request-16", REQUEST_16),
        httparse_request("httparse-16", REQUEST_16),
        case("response-20", "head", 1, move || {
            let mut input = Chain::from(response.clone());
            black_box(ResponseParser::new(Limits::default()).parse(&mut input, ASKED).expect("valid"));
        }),
        case("httparse-response-20", "head", 1, || {
            let mut fields = [httparse::EMPTY_HEADER; 40];
            let mut response = httparse::Response::new(&mut fields);
            black_box(response.parse(black_box(RESPONSE_20.as_bytes())).expect("valid"));
            black_box(&response);
        }),
        case("request-16-forwarded", "head", 1, move || {
            let mut input = Chain::from(edited.clone());
            let parsed = RequestParser::new(Limits::default()).parse(&mut input).expect("valid");
            let mut request = parsed.expect("complete");
            set_connection(&mut request.head, request.connection, Persist::KeepAlive).expect("room");
            request.head.add_field(Known::X_FORWARDED_FOR, b"192.0.2.7").expect("room");
            let mut out = Chain::new();
            write_head(&mut request.head, &mut out, None).expect("memory");
            black_box(&out);
        }),
        case("response-20-forwarded", "head", 1, move || {
            let mut input = Chain::from(forwarded.clone());
            let parsed = ResponseParser::new(Limits::default()).parse(&mut input, ASKED).expect("valid");
            let mut response = parsed.expect("complete");
            set_body(&mut response.head, response.body, response.body).expect("room");
            set_connection(&mut response.head, response.connection, Persist::KeepAlive).expect("room");
            let mut out = Chain::new();
            write_head(&mut response.head, &mut out, None).expect("memory");
            black_box(&out);
        }),
        case("lookup-known", "lookup", 1, {
            let mut input = Chain::from(segment(REQUEST_16.as_bytes()));
            let head = RequestParser::new(Limits::default())
                .parse(&mut input)
                .expect("valid")
                .expect("complete")
                .head;
            move || {
                black_box(head.value(Known::COOKIE));
            }
        }),
        case("chunks-joined", "chunk", CHUNKS, move || {
            let mut input = Chain::from(chunks.clone());
            let mut out = Chain::new();
            let mut reader = BodyReader::new(Body::Chunked, From::Server, Limits::default());
            reader.read(&mut input, &mut out).expect("valid");
            assert_eq!((out.len(), out.segment_count()), (CHUNKS, 1)); // one reservation
        }),
        case("chunks-kept", "chunk", CHUNKS, move || {
            let mut input = Chain::from(chunks_kept.clone());
            let mut out = Chain::new();
            let mut reader = BodyReader::new(Body::Chunked, From::Server, Limits::default());
            reader.read_chunks(&mut input, &mut out).expect("valid");
            assert_eq!(out.segment_count(), 1); // and no copy at all
        }),
    ]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next().filter(|name| !name.starts_with("--"));
    let rounds: Option<usize> = arguments.next().and_then(|rounds| rounds.parse().ok());
    for mut case in cases() {
        match (&named, rounds) {
            (Some(name), _) if name != case.name => {}
            (Some(_), Some(rounds)) => (0..rounds).for_each(|_| (case.run)()),
            _ => {
                let rounds = (20_000 / case.things).max(20);
                let least = (0..200)
                    .map(|_| {
                        let start = Instant::now();
                        (0..rounds).for_each(|_| (case.run)());
                        start.elapsed().as_secs_f64() * 1e9 / (rounds * case.things) as f64
                    })
                    .fold(f64::INFINITY, f64::min);
                println!("{:22} {least:8.1} ns/{}", case.name, case.per);
            }
        }
    }
}
