//! Frames built by hand, and an end that receives them.
#![allow(dead_code)]

use manylane_buf::{Chain, Cluster};
use manylane_h2::hpack::{Decoder, Encoder, Indexing};
use manylane_h2::{Config, Connection, ConnectionError, Event, PREFACE, StreamId};
use std::time::Duration;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn setting(number: u16, value: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Encodes a header block without any table.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::default();
    encoder.begin(&mut out);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Never, &mut out);
    }
    out
}

pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];

pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(GET))
}

pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(POST))
}

/// A frame that an end has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let [a, b, c, kind, flags, d, e, f, g, rest @ ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*d, *e, *f, *g]);
        all.push(Frame { kind: *kind, flags: *flags, stream, payload: rest[..len].to_vec() });
        bytes = &rest[len..];
    }
    assert!(bytes.is_empty(), "whole frames");
    all
}

/// One end, which receives hand-built frames.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) now: Duration,
    pub(crate) input: Chain,
    pub(crate) decoder: Decoder,
}

impl End {
    /// Creates a server that has received the preface and settings.
    pub(crate) fn server(config: Config) -> Self {
        let mut end = Self::fresh_server(config);
        end.feed(PREFACE).expect("the preface");
        end.feed(&frame(SETTINGS, 0, 0, &[])).expect("settings");
        end.feed(&frame(SETTINGS, ACK, 0, &[])).expect("an acknowledgement");
        end.written();
        end
    }

    pub(crate) fn fresh_server(config: Config) -> Self {
        let connection = Connection::server(config, Duration::ZERO).expect("memory");
        Self { connection, now: Duration::ZERO, input: Chain::new(), decoder: Decoder::new(4096) }
    }

    /// Creates a client that has received settings.
    pub(crate) fn client(config: Config) -> Self {
        let connection = Connection::client(config, Duration::ZERO).expect("memory");
        let mut end =
            Self { connection, now: Duration::ZERO, input: Chain::new(), decoder: Decoder::new(4096) };
        end.feed(&frame(SETTINGS, 0, 0, &[])).expect("settings");
        end.feed(&frame(SETTINGS, ACK, 0, &[])).expect("an acknowledgement");
        end.written();
        end
    }

    /// Feeds bytes to this end, and returns the events.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, ConnectionError> {
        if !bytes.is_empty() {
            for piece in bytes.chunks(16_384) {
                self.input.push_back(Cluster::with(piece).expect("memory").into_segment()).expect("room");
            }
        }
        let mut events = Vec::new();
        while self.connection.handle_input(self.now, &mut self.input)? {
            while let Some(event) = self.connection.poll_event() {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Feeds bytes to this end, and returns the only event.
    pub(crate) fn one(&mut self, bytes: &[u8]) -> Event {
        let mut events = self.feed(bytes).expect("no error of the connection");
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Returns the frames written since the last call.
    pub(crate) fn written(&mut self) -> Vec<Frame> {
        let mut out = Chain::new();
        self.connection.poll_output(&mut out).expect("memory");
        let bytes = out.to_vec();
        frames(bytes.strip_prefix(PREFACE).unwrap_or(&bytes))
    }

    /// Returns the fields of a header block that it has written.
    pub(crate) fn fields(&mut self, block: &[u8]) -> Vec<(String, String, bool)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        self.decoder
            .decode(block, &mut Vec::new(), |line| {
                fields.push((text(line.name), text(line.value), line.never_indexed));
            })
            .expect("a block");
        fields
    }
}

/// Returns the stream of a request event.
pub(crate) fn began(event: &Event) -> StreamId {
    match event {
        Event::Request { stream, .. } => *stream,
        other => panic!("{other:?}"),
    }
}
