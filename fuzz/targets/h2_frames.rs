//! Frames of a client or a server in any cut, and a user that responds, consumes, resets and shuts down.
//! There is no panic, the cut makes no difference, windows and limits are respected, and the output consists
//! of whole frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event, MAX_OUTPUT, PREFACE, Reason, Role};
use manylane_http::{Head, Known, Version};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// Header blocks that often decode to valid heads.
const BLOCKS: [&[u8]; 6] = [
    b"\x82\x86\x84\x41\x01a",
    b"\x83\x86\x84\x41\x01a\x5c\x015",
    b"\x83\x87\x85\x01\x01b\x40\x01x\x01y",
    b"\x88",
    b"\x48\x03103",
    b"\x40\x01x\x01y",
];

/// Builds frames from the fuzzer's bytes: four bytes select each frame, so that most are nearly valid.
fn frames(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let [kind, flags, stream, len, behind @ ..] = rest {
        let (raw, behind) = behind.split_at(usize::from(len % 32).min(behind.len()));
        rest = behind;
        let payload = match kind % 12 {
            1 | 9 if len & 0x80 == 0 => BLOCKS[usize::from(*len) % BLOCKS.len()],
            _ => raw,
        };
        let kind = kind % 18;
        all.extend_from_slice(&[0, 0, payload.len() as u8, kind, *flags]);
        all.extend_from_slice(&[0, 0, 0, if matches!(kind, 4 | 6 | 7) { 0 } else { stream % 16 }]);
        all.extend_from_slice(payload);
    }
    all
}

fn begin(role: Role, config: Config) -> Connection {
    let mut connection = match role {
        Role::Client => Connection::client(config, NOW),
        Role::Server => Connection::server(config, NOW),
    }
    .expect("memory");
    if role == Role::Client {
        let mut head = Head::request(b"GET", b"/", Version::HTTP_11).expect("a head");
        head.add_field(Known::HOST, b"a").expect("room");
        for end in [true, false, false] {
            connection.send_request(&head, b"http", None, end).expect("it may begin");
        }
    }
    connection
}

/// Returns the events as text, with data joined, and the output.
fn play(role: Role, bytes: &[u8], step: usize, user: u8) -> (String, Option<String>, Vec<u8>) {
    let mut connection =
        begin(role, Config { max_streams: 5, connect_protocol: user & 1 != 0, ..Config::default() });
    let (mut input, mut out, mut wire) = (Chain::new(), Chain::new(), Vec::new());
    let (mut story, mut error) = (String::new(), None);
    'all: for piece in bytes.chunks(step) {
        input.push_compact(Cluster::with(piece).expect("memory").into_segment()).expect("room");
        loop {
            match connection.handle_input(NOW, &mut input) {
                Ok(false) => break,
                Err(failed) => {
                    error = Some(failed.to_string());
                    break 'all;
                }
                Ok(true) => {}
            }
            while let Some(event) = connection.poll_event() {
                let stream = match &event {
                    Event::Data { stream, data, end } => {
                        story.push_str(&"d".repeat(data.len()));
                        if *end {
                            story.push_str(&format!("end {stream};"));
                        }
                        connection.consume(*stream, data.len()).ok();
                        end.then_some(*stream)
                    }
                    event => {
                        story.push_str(&format!("{event:?};"));
                        match event {
                            Event::Request { stream, end, .. } | Event::TooLarge { stream, end } => {
                                end.then_some(*stream)
                            }
                            Event::Trailers { stream, .. } => Some(*stream),
                            _ => None,
                        }
                    }
                };
                let Some(stream) = stream else { continue };
                if user & 2 != 0 && stream.number() % 4 == 3 {
                    connection.reset(stream, Reason::CANCEL).ok();
                } else if role == Role::Server {
                    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
                    let mut data = Chain::new();
                    data.append(b"hello").expect("memory");
                    connection.send_response(stream, &head, false).ok();
                    connection.send_data(NOW, stream, &mut data, true).ok();
                }
                if user & 4 != 0 && stream.number() > 8 {
                    connection.shutdown().ok();
                }
            }
            while let Some(stream) = connection.next_writable() {
                story.push_str(&format!("writable {stream};"));
            }
            // The result depends on what the peer has received, so output is taken at the same points for any
            // cut.
            assert!(connection.output_len() < 2 * MAX_OUTPUT);
            connection.poll_output(&mut out).expect("memory");
            wire.extend(out.to_vec());
            out.clear();
        }
    }
    connection.poll_output(&mut out).expect("memory");
    wire.extend(out.to_vec());
    (story, error, wire)
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, user, step, bytes @ ..] = bytes else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let mut all = if role == Role::Server && choice & 2 == 0 { PREFACE.to_vec() } else { Vec::new() };
    if choice & 4 == 0 {
        all.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    }
    // Nearly valid frames, or plain bytes.
    if choice & 8 == 0 {
        all.extend(frames(bytes))
    } else {
        all.extend_from_slice(bytes)
    }
    let whole = play(role, &all, 16_000, *user);
    let cut = play(role, &all, usize::from(*step) + 1, *user);
    // A user that acts in between sees the same, since events come in the order of frames.
    assert_eq!(whole.1, cut.1);
    assert_eq!(whole.0, cut.0);
    let mut rest = whole.2.strip_prefix(PREFACE).unwrap_or(&whole.2);
    while let [a, b, c, _, _, _, _, _, _, behind @ ..] = rest {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        assert!(len <= 16_384);
        rest = behind.get(len..).expect("a whole frame");
    }
    assert!(rest.is_empty());
});
