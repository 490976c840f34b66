//! `tune.h2.*`, and what is reported about HTTP/2 connections: fetches, counters, log lines. The test writes
//! and reads single frames, which libraries would not send.

use crate::common;

use common::watch::log_lines;
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, check, connect, fd, listener, origin};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

const ENHANCE_YOUR_CALM: u32 = 11;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that is not indexed.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// A request for `path` with an additional field.
fn request(stream: u32, path: &str, (name, value): (&str, &str)) -> Vec<u8> {
    let block =
        [b"\x82\x86".to_vec(), field(":path", path), field(":authority", "a"), field(name, value)].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, path, ("a", "b"))
}

/// The head of a request for /post, whose body follows.
fn post(stream: u32) -> Vec<u8> {
    let block = [b"\x83\x86".to_vec(), field(":path", "/post"), field(":authority", "a")].concat();
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A request that is a stream error.
fn bad(stream: u32) -> Vec<u8> {
    request(stream, "/", ("Upper", "b"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    fn is(&self, kind: u8) -> bool {
        self.kind == kind && (kind != SETTINGS || self.flags & ACK == 0)
    }

    /// The last number of the frame: the code of a reset or GOAWAY, the increment of a WINDOW_UPDATE.
    pub(crate) fn number(&self) -> u32 {
        u32::from_be_bytes(*self.payload.last_chunk().unwrap())
    }

    fn settings(&self) -> HashMap<u16, u32> {
        let setting = |bytes: &[u8]| {
            (u16::from_be_bytes([bytes[0], bytes[1]]), u32::from_be_bytes(*bytes.last_chunk().unwrap()))
        };
        self.payload.chunks(6).map(setting).collect()
    }
}

/// One end of a connection, frame by frame.
pub(crate) struct Raw {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    /// A client that has sent its settings.
    pub(crate) fn client(address: SocketAddr) -> Self {
        let mut raw = Self { stream: connect(address), bytes: Vec::new() };
        raw.send(&[PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])]);
        raw
    }

    /// A server that has received the preface.
    pub(crate) fn server(mut stream: TcpStream, settings: &[u8]) -> Self {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).unwrap();
        assert_eq!(preface, PREFACE);
        let mut raw = Self { stream, bytes: Vec::new() };
        raw.send(&[frame(SETTINGS, 0, 0, settings)]);
        raw
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        self.stream.write_all(&frames.concat()).unwrap();
    }

    /// The next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, d, e, f, g, rest @ ..] = &*self.bytes
                && let len = u32::from_be_bytes([0, *a, *b, *c]) as usize
                && rest.len() >= len
            {
                let stream = u32::from_be_bytes([*d, *e, *f, *g]);
                let frame = Frame { kind: *kind, flags: *flags, stream, payload: rest[..len].to_vec() };
                self.bytes.drain(..9 + len);
                return Some(frame);
            }
            let mut part = [0; 4096];
            match self.stream.read(&mut part) {
                Ok(0) => return None,
                Ok(n) => self.bytes.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next frame of a type.
    fn of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("the connection ended");
            if frame.is(kind) {
                return frame;
            }
        }
    }

    /// The body of a stream.
    fn body(&mut self, stream: u32) -> String {
        let mut body = Vec::new();
        loop {
            let frame = self.of(DATA);
            assert_eq!(frame.stream, stream);
            body.extend_from_slice(&frame.payload);
            if frame.flags & END_STREAM != 0 {
                return String::from_utf8(body).unwrap();
            }
        }
    }

    /// Frames until the end.
    pub(crate) fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// Beginning of a rule by which the frontend responds.
const ANSWER: &str = " http-request return status 200 content-type a/b lf-string ";

/// The program with lines of `global`, `frontend f` and `backend b`, one lane, and a command socket.
struct Running {
    address: SocketAddr,
    cli: std::path::PathBuf,
    lines: mpsc::Receiver<String>,
    _program: Manylane,
    _folder: Folder,
}

fn start(global: &str, frontend: &str, backend: &str) -> Running {
    let (web, address) = listener();
    let folder = Folder::new();
    let cli = folder.0.join("cli");
    let (log, lines) = log_lines();
    let defaults = ONE_LANE;
    let program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n log {log} local0\n{global}{defaults} mode http\n log global\n \
         option httplog\nfrontend f\n bind {}\n{frontend} default_backend b\nbackend b\n{backend}",
        cli.display(),
        fd(&web)
    ));
    Running { address, cli, lines, _program: program, _folder: folder }
}

impl Running {
    /// Columns about HTTP/2 in a line of `show stat` that are not 0, and the corresponding ones of HTTP/1.
    fn columns(&self, of: (&str, &str)) -> HashMap<String, u64> {
        let mut socket = UnixStream::connect(&self.cli).unwrap();
        socket.write_all(b"show stat\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        let line = lines.find(|line| line.starts_with(&format!("{},{},", of.0, of.1))).unwrap();
        let columns = names.into_iter().zip(line.split(','));
        let wanted = columns.filter(|(name, _)| name.starts_with("h2") || name.starts_with("h1"));
        wanted
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok().filter(|n| *n > 0)?)))
            .filter(|(name, _)| !name.starts_with("h1_bytes"))
            .collect()
    }

    /// Waits for these columns: connections end at their own time.
    fn until_columns(&self, of: (&str, &str), expected: &[(&str, u64)]) {
        let expected: HashMap<String, u64> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let begun = std::time::Instant::now();
        loop {
            let found = self.columns(of);
            if found == expected {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "{found:#?} is not {expected:#?}");
            manylane_tests::look_again();
        }
    }

    fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).unwrap();
            if line.contains('"') {
                return line;
            }
        }
    }
}

#[test]
fn settings_are_sent_to_clients() {
    // The defaults.
    let running = start("", ANSWER_OK, SERVER);
    let mut client = Raw::client(running.address);
    let settings = client.of(SETTINGS).settings();
    for (setting, value) in [(1, 4096), (3, 100), (4, 65_535), (5, 16_384)] {
        assert_eq!(settings[&setting], value, "{setting}");
    }
    assert_eq!(client.of(WINDOW_UPDATE).number(), (1600 << 10) - 65_535);
    // A frame fills a buffer, but has at least the protocol's minimum.
    for (global, expected) in [(" tune.bufsize 32k\n", 32_768), (" tune.bufsize 8k\n", 16_384)] {
        let running = start(global, ANSWER_OK, SERVER);
        assert_eq!(Raw::client(running.address).of(SETTINGS).settings()[&5], expected);
    }

    // For both sides.
    let global = " tune.h2.initial-window-size 100000\n tune.h2.max-concurrent-streams 7\n \
                  tune.h2.max-frame-size 20000\n tune.h2.header-table-size 8192\n tune.h2.fe.rxbuf 1m\n";
    let running = start(global, ANSWER_OK, SERVER);
    let mut client = Raw::client(running.address);
    let settings = client.of(SETTINGS).settings();
    for (setting, value) in [(1, 8192), (3, 7), (4, 100_000), (5, 20_000)] {
        assert_eq!(settings[&setting], value, "{setting}");
    }
    assert_eq!(client.of(WINDOW_UPDATE).number(), (1 << 20) - 65_535);
    client.send(&[post(1), frame(DATA, END_STREAM, 1, &[b'x'; 20_000])]);
    assert_eq!(client.body(1), "ok");
    client.send(&[post(3), frame(DATA, END_STREAM, 3, &[b'x'; 20_001])]);
    assert_eq!(client.of(GOAWAY).number(), FRAME_SIZE_ERROR);

    // For clients only; the window of a connection does not shrink below its initial size.
    let global = format!(
        "{global} tune.h2.fe.initial-window-size 10000\n tune.h2.fe.max-concurrent-streams 3\n \
         tune.h2.be.initial-window-size 5\n tune.h2.be.max-concurrent-streams 6\n"
    )
    .replace("1m", "2k");
    let running = start(&global, ANSWER_OK, SERVER);
    let mut client = Raw::client(running.address);
    let settings = client.of(SETTINGS).settings();
    assert_eq!((settings[&3], settings[&4]), (3, 10_000));
    client.send(&[frame(SETTINGS, ACK, 0, &[]), get(1, "/")]);
    assert_eq!(client.body(1), "ok");
    // A fourth stream is refused while three are open.
    client.send(&[post(3), post(5), post(7), post(9)]);
    let reset = client.of(RST_STREAM);
    assert_eq!((reset.stream, reset.number()), (9, REFUSED_STREAM));
}

/// A server that gets no request.
const SERVER: &str = " server s 127.0.0.1:1\n";

const ANSWER_OK: &str = " http-request wait-for-body time 20s if { path /post }\n \
                         http-request return status 200 content-type a/b string ok\n";

#[test]
fn settings_are_sent_to_servers() {
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |stream| {
        // It allows two concurrent streams.
        let mut server = Raw::server(stream, &[0, 3, 0, 0, 0, 2]);
        let settings = server.of(SETTINGS).settings();
        let update = server.of(WINDOW_UPDATE).number();
        tell.send((settings, update)).unwrap();
        while let Some(frame) = server.next() {
            if frame.kind == HEADERS {
                server.send(&[self::frame(HEADERS, END_HEADERS | END_STREAM, frame.stream, b"\x89")]);
            }
        }
    });
    let global = " tune.h2.initial-window-size 100000\n tune.h2.be.initial-window-size 70000\n \
                  tune.h2.fe.initial-window-size 5\n tune.h2.header-table-size 5000\n \
                  tune.h2.be.rxbuf 70000\n tune.h2.be.max-concurrent-streams 6\n";
    let samples = " http-response return status 200 content-type a/b lf-string \"%[bc_http_major] \
                   %[bc_nb_streams] %[bc_settings_streams_limit] %[bc_glitches] %[bc_err] %[bc_err_str] \
                   [%[bc_err_name]] %[fc_http_major] %[res.ver]\"\n";
    let running = start(global, "", &format!("{samples} server s {server} proto h2\n"));
    let mut client = Raw::client(running.address);
    client.send(&[get(1, "/")]);
    // The server's response was complete: it has no stream any more.
    assert_eq!(client.body(1), "2 0 2 0 0 Success [] 2 2.0");
    let (settings, update) = receiver.recv_timeout(TIMEOUT).unwrap();
    for (setting, value) in [(1, 5000), (2, 0), (4, 70_000), (5, 16_384)] {
        assert_eq!(settings[&setting], value, "{setting}");
    }
    assert_eq!(update, 70_000 - 65_535);
}

#[test]
fn a_client_with_too_many_streams_in_all_is_asked_to_come_again() {
    let running = start(" tune.h2.fe.max-total-streams 3\n", ANSWER_OK, SERVER);
    let mut client = Raw::client(running.address);
    client.send(&[get(1, "/"), get(3, "/")]);
    assert_eq!((client.body(1), client.body(3)), ("ok".to_owned(), "ok".to_owned()));
    // No stream after the third is accepted, except those under way.
    client.send(&[get(5, "/"), get(7, "/")]);
    let goaway = client.of(GOAWAY);
    assert_eq!((goaway.number(), &goaway.payload[..4]), (0, &(u32::MAX >> 1).to_be_bytes()[..]));
    let ping = client.of(PING);
    assert_eq!((client.body(5), client.body(7)), ("ok".to_owned(), "ok".to_owned()));
    client.send(&[frame(PING, ACK, 0, &ping.payload)]);
    let goaway = client.of(GOAWAY);
    assert_eq!((goaway.number(), &goaway.payload[..4]), (0, &7u32.to_be_bytes()[..]));
    assert_eq!(client.rest(), []);
    let mut client = Raw::client(running.address);
    client.send(&[get(1, "/")]);
    assert_eq!(client.body(1), "ok");
}

#[test]
fn a_client_that_makes_too_many_glitches_is_ended() {
    let glitches = format!("{ANSWER}\"%[fc_glitches]\"\n");
    let running = start(" tune.h2.fe.glitches-threshold 3\n", &glitches, SERVER);
    let mut client = Raw::client(running.address);
    client.send(&[bad(1), get(3, "/"), bad(5)]);
    assert_eq!(client.of(RST_STREAM).stream, 1);
    assert_eq!(client.body(3), "2");
    client.send(&[bad(7), get(9, "/")]);
    let rest = client.rest();
    let last = rest.last().unwrap();
    assert!(last.kind == GOAWAY && last.number() == ENHANCE_YOUR_CALM, "{rest:?}");
    running.until_columns(
        ("f", "FRONTEND"),
        &[
            ("h1sess", 1),
            ("h2sess", 1),
            ("h2req", 1),
            ("h2_headers_rcvd", 4),
            ("h2_settings_rcvd", 1),
            ("h2_detected_conn_protocol_errors", 1),
            ("h2_detected_strm_protocol_errors", 3),
            ("h2_rst_stream_resp", 3),
            ("h2_goaway_resp", 1),
            ("h2_total_connections", 1),
            ("h2_backend_total_streams", 1),
            ("h1_total_connections", 1),
        ],
    );

    // Only while the CPU is overloaded.
    let global = " tune.h2.fe.glitches-threshold 3\n tune.glitches.kill.cpu-usage 100\n";
    let running = start(global, &glitches, SERVER);
    let mut client = Raw::client(running.address);
    client.send(&[(0..10).flat_map(|n| bad(2 * n + 1)).collect(), get(101, "/")]);
    assert_eq!(client.body(101), "10");
}

#[test]
fn a_server_that_makes_too_many_glitches_is_ended() {
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |stream| {
        let mut server = Raw::server(stream, &[]);
        let mut last = None;
        while let Some(frame) = server.next() {
            if frame.kind == HEADERS {
                // A response with an upper-case letter in a field name.
                let block = [b"\x88".to_vec(), field("Upper", "a")].concat();
                server.send(&[self::frame(HEADERS, END_HEADERS | END_STREAM, frame.stream, &block)]);
            }
            last = Some(frame);
        }
        tell.send(last.unwrap()).unwrap();
    });
    let global = " tune.h2.be.glitches-threshold 2\n";
    let running =
        start(global, "", &format!(" http-reuse always\n retries 0\n server s {server} proto h2\n"));
    let mut client = Raw::client(running.address);
    client.send(&[get(1, "/")]);
    assert!(client.body(1).contains("502 Bad Gateway"));
    // The same for a kept connection that fails during a request: a reset would say that the server did
    // nothing.
    client.send(&[get(3, "/")]);
    assert!(client.body(3).contains("502 Bad Gateway"));
    let last = receiver.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((last.kind, last.number()), (GOAWAY, ENHANCE_YOUR_CALM));
    running.until_columns(
        ("b", "BACKEND"),
        &[
            ("h2_headers_rcvd", 2),
            ("h2_settings_rcvd", 1),
            ("h2_detected_conn_protocol_errors", 1),
            ("h2_detected_strm_protocol_errors", 2),
            ("h2_rst_stream_resp", 2),
            ("h2_goaway_resp", 1),
            ("h2_total_connections", 1),
            ("h2_backend_total_streams", 2),
        ],
    );
}

#[test]
fn show_errors_has_the_last_frame_that_broke_a_rule() {
    let server = origin(|stream| {
        let mut server = Raw::server(stream, &[]);
        while let Some(frame) = server.next() {
            if frame.kind == HEADERS {
                let block = [b"\x88".to_vec(), field("Upper", "b")].concat();
                server.send(&[self::frame(HEADERS, END_HEADERS | END_STREAM, frame.stream, &block)]);
            }
        }
    });
    let running = start("", "", &format!(" retries 0\n server s {server} proto h2\n"));
    let shows = |parts: &[&str]| {
        let text = common::watch::ask(&running.cli, "show errors");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in {text}"));
    };
    let mut client = Raw::client(running.address);
    client.send(&[get(1, "/")]);
    assert!(client.body(1).contains("502 Bad Gateway"));
    shows(&[
        "Total events captured on [",
        "] : 1\n",
        "] backend b (#3): invalid response\n  frontend <NONE> (#-1), server s (#1), event #0\n  len 10, \
         frame HEADERS with flags 0x05 of stream 1: a field's name has letters in upper case\n",
        "  00000  \\x88\\x00\\x05Upper\\x01b\n",
    ]);
    // An error of a stream, and then one of the connection.
    client.send(&[bad(3)]);
    client.of(RST_STREAM);
    shows(&[
        "] frontend f (#2): invalid request\n  backend <NONE> (#-1), server <NONE> (#-1), event #0, src \
         127.0.0.1:",
        "frame HEADERS with flags 0x05 of stream 3: a field's name has letters in upper case\n",
        "Upper\\x01b\n",
    ]);
    client.send(&[frame(PING, 0, 0, b"7 bytes")]);
    client.rest();
    shows(&[
        "] : 3\n",
        "len 7, frame PING with flags 0x00 of stream 0: a frame has a size that its kind cannot have\n",
        "  00000  7 bytes\n",
    ]);
}

#[test]
fn frames_and_resets_of_one_turn_are_bounded_and_all_are_handled() {
    let global = " tune.h2.fe.max-frames-at-once 1\n tune.h2.be.max-frames-at-once 1\n \
                  tune.h2.fe.max-rst-at-once 1\n";
    let running = start(global, ANSWER_OK, SERVER);
    let mut client = Raw::client(running.address);
    let reset = |stream| frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
    let all = (0..20).flat_map(|n| [frame(PING, 0, 0, &[1; 8]), get(4 * n + 1, "/"), reset(4 * n + 1)]);
    let mut all: Vec<Vec<u8>> = all.collect();
    all.push(get(101, "/"));
    client.send(&all);
    let mut pings = 0;
    loop {
        let frame = client.next().unwrap();
        pings += usize::from(frame.is(PING));
        if frame.is(DATA) && frame.stream == 101 {
            break;
        }
    }
    assert_eq!(pings, 20);
    running.until_columns(
        ("f", "FRONTEND"),
        &[
            ("h1sess", 1),
            ("h2sess", 1),
            ("h2req", 21),
            ("h2_headers_rcvd", 21),
            ("h2_rst_stream_rcvd", 20),
            ("h2_settings_rcvd", 1),
            ("h2_open_connections", 1),
            ("h2_total_connections", 1),
            ("h2_backend_total_streams", 21),
            ("h1_total_connections", 1),
        ],
    );
}

#[test]
fn errors_without_a_request_are_logged_as_configured() {
    let provoke = |running: &Running| {
        let mut client = Raw::client(running.address);
        // Two invalid streams, a valid one, and a frame for an unknown stream, which ends the connection.
        client.send(&[bad(1), bad(3), get(5, "/")]);
        assert_eq!(client.body(5), "ok");
        client.send(&[frame(DATA, 0, 99, b"a")]);
        assert!(client.rest().iter().any(|frame| frame.is(GOAWAY)));
        // The last line.
        let mut client = Raw::client(running.address);
        client.send(&[get(1, "/last")]);
        assert_eq!(client.body(1), "ok");
    };
    for (global, expected) in [
        ("", 3),
        (" tune.h2.log-errors stream\n", 3),
        (" tune.h2.log-errors connection\n", 1),
        (" tune.h2.log-errors none\n", 0),
    ] {
        let running = start(global, ANSWER_OK, SERVER);
        provoke(&running);
        let (mut errors, mut requests) = (0, 0);
        loop {
            let line = running.line();
            match line.contains("<BADREQ>") {
                true => {
                    let wanted =
                        line.contains(" f f/<NOSRV> -1/-1/-1/-1/") && line.contains(" 0 0 - - PR-- ");
                    assert!(wanted, "{line}");
                    errors += 1;
                }
                false => requests += 1,
            }
            if line.contains("/last ") {
                break;
            }
        }
        assert_eq!((errors, requests), (expected, 2), "{global}");
    }
}

#[test]
fn samples_tell_of_the_clients_connection() {
    let samples = "\"%[fc_http_major] %[fc_nb_streams] %[fc_settings_streams_limit] [%[fc_glitches]] \
                   %[fc_err] %[fc_err_str] [%[fc_err_name]] %[req.ver] %HV\"\n";
    let frontend = format!(" http-request wait-for-body time 30s if {{ path /post }}\n{ANSWER}{samples}\n");
    let running = start(" tune.h2.fe.max-concurrent-streams 9\n", &frontend, SERVER);
    let mut client = Raw::client(running.address);
    client.send(&[post(1), bad(3), get(5, "/")]);
    assert_eq!(client.body(5), "2 2 9 [1] 0 Success [] 2.0 HTTP/2.0");
    let mut client = connect(running.address);
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("\r\n1 1 1 [] 0 Success [] 1.1 HTTP/1.1"), "{text}");
}

/// Streams that are reset before their turn reach no server (Rapid Reset).
#[test]
fn streams_that_are_reset_at_once_reach_no_server() {
    const STREAMS: u32 = 50;
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    let server = origin(move |_| {
        own.fetch_add(1, Ordering::SeqCst);
    });
    let running = start("", "", &format!(" server s {server}\n"));
    let mut client = Raw::client(running.address);
    let streams = (0..STREAMS).map(|n| 2 * n + 1);
    let both = |stream| [get(stream, "/"), frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat();
    client.send(&streams.map(both).collect::<Vec<_>>());
    for _ in 0..STREAMS {
        let line = running.line();
        assert!(line.contains(" CC-- "), "{line}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_without_the_header_that_is_expected_has_an_error() {
    let (web, address) = listener();
    let (log, lines) = log_lines();
    let _program = Manylane::start_ready(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {} accept-proxy\n log {log} local0\n \
         error-log-format \"%[fc_err] %[fc_err_name] %[fc_err_str]\"\n server s 127.0.0.1:1\n",
        fd(&web)
    ));
    connect(address).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let expected = "15 PRX_NOT_HDR Received something which does not look like a PROXY protocol header";
    loop {
        let line = lines.recv_timeout(TIMEOUT).unwrap();
        if line.contains("PRX_") {
            assert!(line.contains(expected), "{line}");
            return;
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for (line, wrong) in [
        ("tune.h2.fe.glitches-threshold -1", "it is negative"),
        ("tune.h2.be.initial-window-size 2147483648", "the range is 0 to 2147483647"),
        ("tune.h2.max-concurrent-streams 0", "the range is 1 to 2147483647"),
        ("tune.h2.header-table-size 4095", "the range is 4096 to 65536"),
        ("tune.h2.header-table-size 65537", "the range is 4096 to 65536"),
        ("tune.h2.max-frame-size 16383", "the range is 16384 to 16777215"),
        ("tune.h2.fe.rxbuf 4g", "the range is 0 to 2147483647"),
        ("tune.h2.log-errors some", "expects none|connection|stream"),
        ("tune.h2.zero-copy-fwd-send maybe", "expects on|off"),
        ("tune.glitches.kill.cpu-usage 101", "the range is 0 to 100"),
    ] {
        let output = check(&format!("global\n {line}\n{DEFAULTS}listen l\n bind :0\n server s :1\n"), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        let keyword = line.split(' ').next().unwrap();
        assert!(!output.status.success() && said.contains(keyword) && said.contains(wrong), "{line}: {said}");
    }
}
