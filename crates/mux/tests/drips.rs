//! Incomplete header blocks, and data that no stream has forwarded yet, take memory in proportion to their
//! bytes, however frames and reads cut them. This test has a process of its own, because the pools' counts
//! are those of the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

use common::{cuts, received};
use manylane_buf::{CLUSTER_SIZES, Chain, MAX_CLUSTER};
use manylane_http::{Head, Known, Version};
use manylane_mux::h2::{Config, Incoming, Mux, Received, Stream};
use manylane_pool::used_bytes;
use manylane_sched::{Config as LaneConfig, Here, Lane, ThreadPoller, Time};
use proptest::prelude::*;
use std::task::{Context, Poll, Waker};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// What a client begins with, or a server without the preface: settings, and an acknowledgement.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

/// POST / with the authority `a`, and status 200.
const POST: &[u8] = b"\x83\x86\x84\x41\x01a";
const OK: &[u8] = b"\x88";

/// A message of the peer that never ends.
#[derive(Clone, Debug)]
enum Message {
    /// A header block in frames of these lengths.
    Block(Vec<usize>),
    /// A body in frames of these lengths, each with as much padding as the second number says.
    Body(Vec<(usize, u8)>),
    /// A body in one frame, of which so many bytes come.
    Part(usize),
}

/// Bytes of the peer.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    /// For each number of bytes, how many of them are kept when they were read: of a block or a body.
    kept: Vec<usize>,
}

impl Sent {
    fn frame(&mut self, kind: u8, length: usize, padding: u8) {
        let padded = padding > 0;
        let all = length + if padded { 1 + usize::from(padding) } else { 0 };
        let [_, a, b, c] = (all as u32).to_be_bytes();
        self.add(&[a, b, c, kind, if padded { PADDED } else { 0 }, 0, 0, 0, 1], false);
        if padded {
            self.add(&[padding], false);
        }
        self.add(&vec![b'x'; length], true);
        self.add(&vec![0; padding.into()], false);
    }

    fn add(&mut self, bytes: &[u8], kept: bool) {
        let mut so_far = self.kept.last().copied().unwrap_or_default();
        for byte in bytes {
            so_far += usize::from(kept);
            self.bytes.push(*byte);
            self.kept.push(so_far);
        }
    }
}

impl Message {
    fn sent(&self) -> Sent {
        let mut sent = Sent::default();
        match self {
            Self::Block(lengths) => {
                for (number, length) in lengths.iter().enumerate() {
                    sent.frame(if number == 0 { HEADERS } else { CONTINUATION }, *length, 0);
                }
            }
            Self::Body(lengths) => {
                lengths.iter().for_each(|(length, padding)| sent.frame(DATA, *length, *padding));
            }
            Self::Part(length) => {
                sent.add(&[0, 0x40, 0, DATA, 0, 0, 0, 0, 1], false);
                sent.add(&vec![b'x'; *length], true);
            }
        }
        sent
    }
}

/// Generates messages that the limits allow: 16 frames of a block, and a stream's window.
fn message() -> impl Strategy<Value = Message> {
    let small = || prop_oneof![4 => 1..4_usize, 2 => 1..100_usize, 1 => 1..1000_usize];
    let padding = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    prop_oneof![
        prop::collection::vec(small(), 1..16).prop_map(Message::Block),
        (1..15_000_usize).prop_map(|length| Message::Block(vec![length])),
        prop::collection::vec((small(), padding), 1..50).prop_map(Message::Body),
        (1..16_000_usize).prop_map(Message::Part),
    ]
}

/// One end of a connection, and the streams of which it knows.
struct End {
    mux: Mux,
    input: Chain,
    streams: Vec<(Stream, Option<Incoming>)>,
}

impl End {
    fn new(here: Here, client: bool) -> Self {
        let config = Config::default();
        let mux = if client { Mux::client(config, here) } else { Mux::server(config, here) };
        let mut end = Self { mux: mux.unwrap(), input: Chain::new(), streams: Vec::new() };
        if !client {
            end.take(&[PREFACE, SETTINGS].concat(), true);
            return end;
        }
        end.take(SETTINGS, true);
        let mut head = Head::request(b"GET", b"/", Version::HTTP_11).unwrap();
        head.add_field(Known::HOST, b"a").unwrap();
        let stream = end.mux.begin(&head, b"http", None, true).unwrap();
        end.streams.push((stream, None));
        end.write();
        end
    }

    /// Takes a piece of the peer's bytes, as a read brings it.
    fn take(&mut self, piece: &[u8], large: bool) {
        self.input.push_compact(received(piece, large)).unwrap();
        let Self { mux, input, streams } = self;
        mux.input(input, &mut |stream, incoming| streams.push((stream, Some(incoming)))).unwrap();
        self.write();
    }

    /// Drops the output, as if it was written.
    fn write(&mut self) {
        let mut out = Chain::new();
        while let Poll::Ready(done) = self.mux.poll_output(&context(), &mut out) {
            assert!(!done.unwrap(), "the connection goes on");
            out.clear();
            self.mux.set_unwritten(0);
        }
        self.mux.begin_turn(&context());
    }
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Feeds a message to one end in pieces of these lengths, and checks the used memory after each. With
/// `forwards`, the stream's task takes its data and keeps it, as a rule that waits for the body does.
fn bounded(
    here: Here,
    message: &Message,
    (client, forwards): (bool, bool),
    cuts: &[(usize, bool)],
) -> Result<(), TestCaseError> {
    let empty = used_bytes();
    let mut end = End::new(here, client);
    if !matches!(message, Message::Block(_)) {
        let block = if client { OK } else { POST };
        let head = [&[0, 0, block.len() as u8, HEADERS, END_HEADERS, 0, 0, 0, 1], block].concat();
        end.take(&head, true);
        prop_assert_eq!(end.streams.len(), 1);
        if client {
            prop_assert!(end.streams[0].0.poll_head(&context()).is_ready());
        }
    }
    let before = used_bytes();
    let sent = message.sent();
    let (mut rest, mut kept) = (&sent.bytes[..], Chain::new());
    for &(length, large) in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece;
        (piece, rest) = rest.split_at(length.min(rest.len()));
        end.take(piece, large);
        if let Some((stream, _)) = end.streams.first().filter(|_| forwards) {
            while let Poll::Ready(taken) = stream.poll_recv(&context(), &mut kept, 5_000) {
                prop_assert!(matches!(taken, Ok(Received::Data)), "{:?}", taken);
            }
        }
        let read = sent.bytes.len() - rest.len() - end.input.len();
        let waits = if read == 0 { 0 } else { sent.kept[read - 1] };
        prop_assert!(kept.is_empty() || kept.len() == waits, "{} bytes of data, not {}", kept.len(), waits);
        let held = end.input.len() + waits;
        let places = usize::from(!end.input.is_empty()) + usize::from(waits > 0);
        // The front of both was removed: of a large cluster the rest stays as it is, and what comes behind is
        // in a small one.
        let small = CLUSTER_SIZES[0] + 128;
        let bound = 2 * held + places.max(1) * (MAX_CLUSTER + 128 + small);
        let used = used_bytes().saturating_sub(before);
        prop_assert!(used <= bound, "{} bytes for {} in {} places", used, held, places);
    }
    drop((kept, end));
    prop_assert_eq!(used_bytes(), empty, "something is left");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Input that is not read yet is one place, and the block or the stream's data another.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
        message in message(),
        client: bool,
        forwards: bool,
        cuts in cuts(),
    ) {
        let mut lane = Lane::new(LaneConfig::new().clock(|| Time::ZERO)).expect("a thread without one");
        let here = lane.here();
        let test = async move { bounded(here, &message, (client, forwards), &cuts) };
        lane.block_on(&mut ThreadPoller::new(), test).expect("the lane goes on")?;
    }
}
