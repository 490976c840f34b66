//! Measures the cost of heads and data: `cargo run --release -p manylane-h2 --example cost` prints
//! nanoseconds, the least of many short runs. With a case's name and a number of rounds it runs that case
//! alone, for instruction counts:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/cost request-16 20000
//! valgrind --tool=callgrind target/release/examples/cost request-16 40000  # less the first: 20,000 rounds
//! ```

use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event};
use manylane_http::{Head, Known, Version};
use std::hint::black_box;
use std::time::{Duration, Instant};

const NOW: Duration = Duration::ZERO;

/// Fields of a browser's request, about 1 KiB.
const FIELDS: [(&str, &str); 15] = [
    ("sec-ch-ua", "\"Chromium\";v=\"128\", \"Not;A=Brand\";v=\"24\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("upgrade-insecure-requests", "1"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 \
            Safari/537.36",
    ),
    (
        "accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
    ),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-user", "?1"),
    ("sec-fetch-dest", "document"),
    ("referer", "https://shop.example.com/catalogue/items?category=books&page=2"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
    ("priority", "u=0, i"),
    ("cookie", "session=8c1b3c6e5a1f4be0a5d5f1b0; theme=dark; consent=all; cart=12,93,41; ab=variant-7"),
];

/// Two ends that know each other's settings.
struct Pair {
    client: Connection,
    server: Connection,
    wire: Chain,
    request: Head,
    response: Head,
    body: Chain,
}

impl Pair {
    fn new(fields: usize, body: usize) -> Self {
        let config = Config { connection_window: 1 << 20, stream_window: 1 << 20, ..Config::default() };
        let mut request =
            Head::request(b"GET", b"/catalogue/items?page=3", Version::HTTP_11).expect("a head");
        request.add_field(Known::HOST, b"shop.example.com").expect("room");
        for (name, value) in FIELDS.iter().take(fields) {
            request.add_field(*name, value.as_bytes()).expect("room");
        }
        let mut response = Head::response(Version::HTTP_2, 200, None).expect("a head");
        response.add_field(Known::CONTENT_TYPE, b"text/html; charset=utf-8").expect("room");
        response.add_field(Known::SERVER, b"manylane").expect("room");
        let mut chain = Chain::new();
        for piece in vec![b'x'; body].chunks(16_384) {
            chain.push_back(Cluster::with(piece).expect("memory").into_segment()).expect("room");
        }
        let mut pair = Self {
            client: Connection::client(config, NOW).expect("memory"),
            server: Connection::server(config, NOW).expect("memory"),
            wire: Chain::new(),
            request,
            response,
            body: chain,
        };
        (0..3).for_each(|_| pair.round());
        pair
    }

    /// Runs a request and its response on both ends.
    fn round(&mut self) {
        let Self { client, server, wire, request, response, body } = self;
        client.send_request(request, b"https", None, true).expect("it may begin");
        client.poll_output(wire).expect("memory");
        let mut left = body.share().expect("memory");
        while server.handle_input(NOW, wire).expect("the rules are kept") {
            while let Some(event) = server.poll_event() {
                if let Event::Request { stream, request, .. } = event {
                    black_box(&request);
                    server.send_response(stream, response, left.is_empty()).expect("open");
                    if !left.is_empty() {
                        server.send_data(NOW, stream, &mut left, true).expect("open");
                    }
                }
            }
        }
        loop {
            server.poll_output(wire).expect("memory");
            while client.handle_input(NOW, wire).expect("the rules are kept") {
                while let Some(event) = client.poll_event() {
                    if let Event::Data { stream, data, .. } = event {
                        client.consume(stream, data.len()).expect("memory");
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            while let Some(stream) = server.next_writable() {
                server.send_data(NOW, stream, &mut left, true).expect("open");
            }
        }
    }
}

struct Case {
    name: &'static str,
    what: &'static str,
    pair: Pair,
}

fn cases() -> Vec<Case> {
    let case = |name, what, pair| Case { name, what, pair };
    vec![
        case("request-1", "request with Host alone and its response, both ends", Pair::new(0, 0)),
        case("request-16", "request with 16 fields and its response, both ends", Pair::new(15, 0)),
        case("data-1k", "the same with 1 KiB of data", Pair::new(15, 1_024)),
        case("data-64k", "the same with 64 KiB of data", Pair::new(15, 65_536)),
    ]
}

fn main() {
    println!("an idle connection: {} bytes and its tables", size_of::<Connection>());
    let mut arguments = std::env::args().skip(1);
    if let Some(name) = arguments.next() {
        let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(1_000);
        let mut found = cases().into_iter().filter(|case| case.name == name);
        let Some(mut case) = found.next() else { return eprintln!("no case is called {name}") };
        return (0..rounds).for_each(|_| case.pair.round());
    }
    for mut case in cases() {
        let mut least = f64::MAX;
        for _ in 0..200 {
            let began = Instant::now();
            (0..100).for_each(|_| case.pair.round());
            least = least.min(began.elapsed().as_nanos() as f64 / 100.0);
        }
        println!("{:12} {least:8.0} ns  {}", case.name, case.what);
    }
}
