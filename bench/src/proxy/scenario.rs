//! Scenarios: traffic, and the configurations for it.

use super::load::{Message, Traffic};
use super::program::Kind;
use std::fmt::Write as _;

/// The unit of a scenario's figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Processor microseconds per request.
    Request,
    /// Processor seconds per gigabyte of bodies.
    Gigabyte,
    /// Bytes of memory per idle connection.
    Idle,
    /// Percent of a processor, while the program only checks servers.
    Checks,
    /// The p99 of latencies in microseconds, at a fixed rate.
    Latency,
}

/// The comparison for a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// Largest ratio to the best peer: over epoll, and over io_uring.
    Peers(f64, f64),
    /// Largest ratio to our own figure with the plainest configuration.
    Own(f64),
    /// Largest ratio of the additional cost, relative to the plainest configuration, to that of haproxy.
    Hop(f64),
    /// Largest share of a processor, in percent.
    Share(f64),
    /// No limit: the ratio to the best peer is shown.
    Shown,
}

/// Differences of a configuration from the plainest one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    pub(crate) tcp: bool,
    /// `balance`, and the number of servers; `None` for one server and the default.
    pub(crate) balance: Option<(&'static str, usize)>,
    /// `maxconn` of each server.
    pub(crate) permits: Option<u32>,
    /// `option httplog` to a syslog server.
    pub(crate) log: bool,
    /// A second proxy behind the first one in the same process.
    pub(crate) hop: bool,
    /// Number of servers that are checked every two seconds by connecting.
    pub(crate) checks: usize,
    /// `tune.maxaccept`.
    pub(crate) accepts: Option<u32>,
    /// `nbthread`; `None` for the usual number.
    pub(crate) lanes: Option<u32>,
    /// `tune.runqueue-depth`.
    pub(crate) depth: Option<u32>,
    /// Number of connected clients that have had an answer and send nothing more.
    pub(crate) beside: usize,
    /// `track-sc0 src` into a table of three rates, and a rule that denies by one of them.
    pub(crate) track: bool,
    /// A rule answers all requests itself.
    pub(crate) answers: bool,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) words: &'static str,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    pub(crate) shape: Shape,
    pub(crate) traffic: fn() -> Traffic,
    /// The contestants.
    pub(crate) kinds: &'static [Kind],
    /// Requests of a round.
    pub(crate) requests: u64,
}

const ALL: &[Kind] = &[Kind::Haproxy, Kind::Nginx, Kind::Epoll, Kind::Uring];
const NOT_NGINX: &[Kind] = &[Kind::Haproxy, Kind::Epoll, Kind::Uring];
/// The plainest configuration.
pub(crate) const PLAIN: Shape = Shape {
    tcp: false,
    balance: None,
    permits: None,
    log: false,
    hop: false,
    checks: 0,
    accepts: None,
    depth: None,
    lanes: None,
    beside: 0,
    track: false,
    answers: false,
};

/// Requests per second with a fixed rate.
pub(crate) const RATE: f64 = 8_000.0;

/// Number of idle connections.
pub(crate) const IDLE: usize = 10_000;

/// Number of checked servers.
pub(crate) const CHECKED: usize = 10_000;

/// In the order of the table.
pub(crate) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "keep-alive",
        words: "keep-alive, 1 KiB, 64 clients",
        unit: Unit::Request,
        target: Target::Peers(0.75, 0.55),
        shape: PLAIN,
        traffic: keep_alive,
        kinds: ALL,
        requests: 30_000,
    },
    Scenario {
        name: "connections",
        words: "a new client connection per request",
        unit: Unit::Request,
        target: Target::Peers(0.80, 0.70),
        shape: PLAIN,
        traffic: connections,
        kinds: ALL,
        requests: 12_000,
    },
    // R-F5: 4 accepted 336,000 connections per second, and 64 accepted 274,000: a factor of 1.23. Here, 64
    // may cost that much more.
    Scenario {
        name: "accepts",
        words: "new client connections with tune.maxaccept 64, beside 4",
        unit: Unit::Request,
        target: Target::Own(1.23),
        shape: Shape { accepts: Some(64), ..PLAIN },
        traffic: connections,
        kinds: NOT_NGINX,
        requests: 12_000,
    },
    // R-F4: 40 tasks a round made 722,000 requests per second, and 200 made 613,000: a factor of 1.18.
    Scenario {
        name: "depth",
        words: "keep-alive, 800 clients, with tune.runqueue-depth 200, beside 40",
        unit: Unit::Request,
        target: Target::Own(1.18),
        shape: Shape { depth: Some(200), ..PLAIN },
        traffic: many_clients,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "fields",
        words: "keep-alive, 16 request and 20 response header fields",
        unit: Unit::Request,
        target: Target::Peers(0.75, 0.75),
        shape: PLAIN,
        traffic: fields,
        kinds: ALL,
        requests: 30_000,
    },
    Scenario {
        name: "medium",
        words: "keep-alive, 16 KiB answers",
        unit: Unit::Request,
        target: Target::Shown,
        shape: PLAIN,
        traffic: medium,
        kinds: ALL,
        requests: 20_000,
    },
    Scenario {
        name: "large",
        words: "1 MiB answers",
        unit: Unit::Gigabyte,
        target: Target::Peers(0.80, 0.80),
        shape: PLAIN,
        traffic: large,
        kinds: ALL,
        requests: 1_000,
    },
    Scenario {
        name: "post",
        words: "POST 64 KiB",
        unit: Unit::Gigabyte,
        target: Target::Peers(0.85, 0.70),
        shape: PLAIN,
        traffic: post,
        kinds: ALL,
        requests: 10_000,
    },
    Scenario {
        name: "answers",
        words: "POST 100 bytes, answered by a rule, keep-alive",
        unit: Unit::Request,
        target: Target::Peers(1.0, 1.0),
        shape: Shape { answers: true, ..PLAIN },
        traffic: small_post,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "splice",
        words: "TCP mode with splice, 64 MiB up",
        unit: Unit::Gigabyte,
        target: Target::Peers(0.85, 0.85),
        shape: Shape { tcp: true, ..PLAIN },
        traffic: upload,
        kinds: NOT_NGINX,
        requests: 16,
    },
    Scenario {
        name: "chunks",
        words: "tiny chunks: 2,730 of one byte in 16 KiB",
        unit: Unit::Gigabyte,
        target: Target::Peers(0.50, 0.50),
        shape: PLAIN,
        traffic: chunks,
        kinds: ALL,
        requests: 2_000,
    },
    Scenario {
        name: "first-1",
        words: "balance first, 1 server with maxconn 64",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("first", 1)), permits: Some(64), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    // `first` fills a server before it uses the next one, so servers must be full at some time.
    Scenario {
        name: "first",
        words: "balance first, 8 servers with maxconn 16",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("first", 8)), permits: Some(16), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "first-500",
        words: "balance first, 500 servers with maxconn 16",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("first", 500)), permits: Some(16), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "leastconn-1",
        words: "balance leastconn, 1 server",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("leastconn", 1)), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "leastconn-500",
        words: "balance leastconn, 500 servers",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("leastconn", 500)), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    // 48 of the 64 clients wait at any time.
    Scenario {
        name: "queue",
        words: "maxconn queueing: 1 server with maxconn 16",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { balance: Some(("leastconn", 1)), permits: Some(16), ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "log",
        words: "httplog to a local syslog server",
        unit: Unit::Request,
        target: Target::Own(1.10),
        shape: Shape { log: true, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "track",
        words: "keep-alive with track-sc0 src, three rates and a deny rule, beside none",
        unit: Unit::Request,
        target: Target::Own(1.08),
        shape: Shape { track: true, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "hop",
        words: "one more hop inside the process: local@, in haproxy abns@",
        unit: Unit::Request,
        target: Target::Hop(0.25),
        shape: Shape { hop: true, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "idle",
        words: "idle keep-alive connections, 10,000",
        unit: Unit::Idle,
        target: Target::Peers(0.85, 0.85),
        shape: PLAIN,
        traffic: idle,
        kinds: ALL,
        requests: IDLE as u64,
    },
    Scenario {
        name: "beside-2200",
        words: "keep-alive, 64 clients beside 2,200 idle ones",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { beside: 2_200, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "beside-5000",
        words: "keep-alive, 64 clients beside 5,000 idle ones",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { beside: 5_000, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    Scenario {
        name: "beside-9000",
        words: "keep-alive, 64 clients beside 9,000 idle ones",
        unit: Unit::Request,
        target: Target::Own(1.05),
        shape: Shape { beside: 9_000, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: 30_000,
    },
    // One lane, which then does all of the work.
    Scenario {
        name: "checks",
        words: "10,000 servers checked every 2 s by connecting, % of a processor",
        unit: Unit::Checks,
        target: Target::Share(3.0),
        shape: Shape { checks: CHECKED, ..PLAIN },
        traffic: keep_alive,
        kinds: NOT_NGINX,
        requests: CHECKED as u64,
    },
    Scenario {
        name: "rate",
        words: "8,000 requests a second, p99",
        unit: Unit::Latency,
        target: Target::Peers(1.0, 1.0),
        shape: PLAIN,
        traffic: keep_alive,
        kinds: ALL,
        requests: 8_000,
    },
];

const REQUEST: &str = "GET /path/to/a/page?number=1 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: \
    load/1.0\r\nAccept: */*\r\n";

fn answered(response: Message, expected: u64) -> Traffic {
    let request = Message::new(format!("{REQUEST}\r\n"), 0);
    Traffic { request, response, expected, clients: 64, close: false }
}

fn response(fields: &str, body: u64) -> Message {
    let head = format!(
        "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT\r\nServer: origin\r\n\
         Content-Type: text/plain\r\nContent-Length: {body}\r\n{fields}\r\n"
    );
    Message::new(head, body)
}

fn keep_alive() -> Traffic {
    answered(response("", 1024), 1024)
}

fn many_clients() -> Traffic {
    Traffic { clients: 800, ..keep_alive() }
}

fn connections() -> Traffic {
    let request = Message::new(format!("{REQUEST}Connection: close\r\n\r\n"), 0);
    Traffic { request, close: true, ..keep_alive() }
}

fn fields() -> Traffic {
    let more = |n: usize, name: &str| {
        (0..n).fold(String::new(), |mut text, n| {
            let _ = write!(text, "X-{name}-{n}: a value of usual length, number {n}\r\n");
            text
        })
    };
    let request = Message::new(format!("{REQUEST}{}\r\n", more(13, "Request")), 0);
    Traffic { request, ..answered(response(&more(16, "Response"), 1024), 1024) }
}

fn medium() -> Traffic {
    answered(response("", 16 << 10), 16 << 10)
}

fn large() -> Traffic {
    Traffic { clients: 16, ..answered(response("", 1 << 20), 1 << 20) }
}

fn upload_of(body: u64, clients: usize) -> Traffic {
    let request = Message::new(
        format!("POST /a/place HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: {body}\r\n\r\n"),
        body,
    );
    Traffic { request, clients, ..answered(response("", 2), 2) }
}

fn small_post() -> Traffic {
    upload_of(100, 64)
}

fn post() -> Traffic {
    upload_of(64 << 10, 64)
}

fn upload() -> Traffic {
    upload_of(64 << 20, 8)
}

fn chunks() -> Traffic {
    let mut text = String::from("HTTP/1.1 200 OK\r\nServer: origin\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..CHUNKS {
        text.push_str("1\r\nx\r\n");
    }
    text.push_str("0\r\n\r\n");
    answered(Message::new(text, 0), CHUNKS)
}

/// Chunks of one byte in a response; with their framing, they have 16 KiB.
const CHUNKS: u64 = 2_730;

fn idle() -> Traffic {
    Traffic { clients: IDLE, ..keep_alive() }
}

impl Scenario {
    /// Bytes of a request that the unit counts.
    pub(crate) fn bytes(&self) -> u64 {
        let traffic = (self.traffic)();
        if self.name == "chunks" {
            traffic.response.bytes()
        } else {
            traffic.request.body() + traffic.response.body()
        }
    }

    /// The configuration of `kind`, which listens on `port`, with servers at the loopback's `origin`. `logs`
    /// is the syslog server's port, and `folder` that of the program's files.
    pub(crate) fn configuration(
        &self,
        kind: Kind,
        port: u16,
        origin: u16,
        logs: u16,
        folder: &str,
    ) -> String {
        match kind {
            Kind::Nginx => nginx(port, origin, folder),
            Kind::Haproxy => self.haproxy(port, origin, logs, "abns@manylane-bench"),
            Kind::Epoll | Kind::Uring => self.haproxy(port, origin, logs, "local@inner"),
        }
    }

    /// The configuration for haproxy and Manylane.
    fn haproxy(&self, port: u16, origin: u16, logs: u16, inner: &str) -> String {
        let Shape { tcp, balance, permits, log, hop, checks, accepts, depth, lanes, beside, track, answers } =
            self.shape;
        // Each connection may need two descriptors, and with splicing another two, which haproxy checks at
        // its start. A fifth of these is for idle connections (`tune.pool-low-fd-ratio`): with many servers,
        // a connection to each of them on both threads.
        let most = match self.unit {
            Unit::Idle => IDLE + 200,
            _ if beside > 0 => 9_100, // in all such rows, so that only the idle clients differ
            _ if balance.is_some() => 4_000,
            _ => 2_000,
        };
        let threads = lanes.unwrap_or(if self.unit == Unit::Checks { 1 } else { 2 });
        let mut text = format!("global\n    nbthread {threads}\n    maxconn {most}\n");
        if self.unit == Unit::Idle {
            // Two descriptors for each may exceed the limit of a process. Idle ones need one.
            text.push_str("    no strict-limits\n");
        }
        if let Some(accepts) = accepts {
            let _ = writeln!(text, "    tune.maxaccept {accepts}");
        }
        if let Some(depth) = depth {
            let _ = writeln!(text, "    tune.runqueue-depth {depth}");
        }
        if log {
            let _ = writeln!(text, "    log 127.0.0.1:{logs} local0");
        }
        text.push_str("\ndefaults\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n");
        text.push_str(match (tcp, log) {
            (true, _) => "    mode tcp\n    option splice-request\n    option splice-response\n",
            // As with nginx, a new client's first request may use an existing server connection.
            (false, true) => "    mode http\n    http-reuse always\n    log global\n    option httplog\n",
            (false, false) => "    mode http\n    http-reuse always\n",
        });
        let _ = writeln!(text, "\nfrontend outside\n    bind 127.0.0.1:{port}\n    default_backend servers");
        if track {
            text.push_str(
                "    stick-table type ip size 100k expire 60s store \
                 conn_rate(10s),http_req_rate(10s),http_err_rate(10s)\n    http-request track-sc0 src\n    \
                 http-request deny if { sc_http_req_rate(0) gt 100000000 }\n",
            );
        }
        if answers {
            text.push_str("    http-request return status 200 content-type text/plain string ok\n");
        }
        if hop {
            let _ = write!(
                text,
                "\nbackend servers\n    server inner {inner}\n\nfrontend inside\n    bind {inner}\n    \
                    default_backend innermost\n\
                 \nbackend innermost\n    server one 127.0.0.1:{origin}\n"
            );
            return text;
        }
        if self.unit == Unit::Checks {
            text.push_str("\nbackend servers\n    server one 127.0.0.1:1\n");
            let how = if checks > 0 { " check inter 2s" } else { "" };
            text.push_str("\nbackend checked\n");
            for n in 0..CHECKED {
                let _ = writeln!(text, "    server s{n} 127.1.{}.{}:{origin}{how}", n / 250, n % 250 + 1);
            }
            return text;
        }
        let (algorithm, servers) = balance.unwrap_or(("roundrobin", 1));
        let _ = writeln!(text, "\nbackend servers\n    balance {algorithm}");
        let most = permits.map(|maxconn| format!(" maxconn {maxconn}")).unwrap_or_default();
        for n in 0..servers {
            let _ = writeln!(text, "    server s{n} 127.0.{}.{}:{origin}{most}", n / 250, n % 250 + 1);
        }
        text
    }
}

fn nginx(port: u16, origin: u16, folder: &str) -> String {
    let mut temporary = String::new();
    for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(temporary, "    {what}_temp_path {folder}/{what};");
    }
    format!(
        "daemon off;\nworker_processes 2;\nworker_rlimit_nofile 20000;\npid \
            {folder}/nginx-{port}.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 9900; }}\n\
         http {{\n    access_log off;\n    keepalive_timeout 60s;\n    keepalive_requests 1000000000;\n    \
         client_max_body_size 0;\n{temporary}\
         \x20   upstream servers {{\n        server 127.0.0.1:{origin};\n        keepalive 64;\n        \
         keepalive_requests 1000000000;\n    }}\n\
         \x20   server {{\n        listen 127.0.0.1:{port} reuseport;\n        location / {{\n            \
         proxy_pass http://servers;\n\
         \x20           proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n            \
         proxy_request_buffering off;\n\
         \x20           proxy_max_temp_file_size 0;\n        }}\n    }}\n}}\n"
    )
}
