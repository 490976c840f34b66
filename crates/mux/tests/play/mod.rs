//! Plays random frames beside the protocol alone; and both ends of a connection with random operations on
//! their streams, beside a model that knows what was sent. The property tests and the fuzz target share it.
//!
//! [`run`] panics when a byte is lost, made up or out of order, when an end comes early or not at all, when a
//! stream reports a reset that neither end made, and when a waiter is never woken.

use manylane_buf::Chain;
use manylane_h2::{Connection, Event, StreamId};
use manylane_http::{Head, Known, Version};
use manylane_mux::h2::{Config, Mux, Reason, Received, ResponseHead, Stream, StreamError};
use manylane_sched::{Config as LaneConfig, Lane, ThreadPoller, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Largest number of resets in a run: more would be an attack.
const MOST_RESETS: u32 = 80;
/// Largest number of streams in a run.
const MOST_STREAMS: u32 = 60;
/// Largest number of bytes sent on a stream in one operation.
const MOST_SENT: usize = 30_000;

/// Record of what a run has reached, so that a test can check that its inputs are useful.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) streams: u32,
    pub(crate) complete: u32,
    pub(crate) resets: u32,
    pub(crate) bytes: usize,
    pub(crate) waits: u32,
}

/// Waker that records its wake-ups.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One direction of a stream, from sender to receiver.
#[derive(Default)]
struct Flow {
    head: bool,
    /// Bytes that were given to be sent, and are not taken yet.
    pending: Chain,
    given: usize,
    /// True if the last byte was given and taken.
    ends: bool,
    ended: bool,
    received: usize,
    complete: bool,
    sender: Arc<Flag>,
    receiver: Arc<Flag>,
}

/// A stream: its handles at the client and at the server, and both of its directions.
#[derive(Default)]
struct Both {
    handles: [Option<Stream>; 2],
    flows: [Flow; 2],
    /// True if one of them was reset, or a handle was dropped early.
    spoiled: bool,
}

struct Play<'a> {
    bytes: &'a [u8],
    ends: [Mux; 2],
    /// Bytes on their way to the server, and to the client.
    wires: [Chain; 2],
    streams: BTreeMap<u32, Both>,
    driver: Arc<Flag>,
    /// True if a window is small.
    narrow: bool,
    reached: Reached,
}

fn byte(id: u32, flow: usize, at: usize) -> u8 {
    (id as usize * 31 + flow * 101 + at * 7) as u8
}

/// Plays `bytes`.
///
/// # Panics
/// If the ends break a rule in the list at the top of this module.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut lane = Lane::new(LaneConfig::new().clock(|| Time::ZERO)).expect("a thread without one");
    let here = lane.here();
    let [client, server, bytes @ ..] = bytes else { return Reached::default() };
    let config = |choice: u8| Config {
        stream_window: [1, 400, 5_000, 65_535, 1 << 20][usize::from(choice) % 5],
        max_streams: [3, 100][usize::from(choice / 5) % 2],
        ..Config::default()
    };
    let bytes = bytes.to_vec();
    let (client, server) = (config(*client), config(*server));
    lane.block_on(&mut ThreadPoller::new(), async move {
        let ends = [Mux::client(client, here).expect("memory"), Mux::server(server, here).expect("memory")];
        let mut play = Play {
            bytes: &bytes,
            ends,
            wires: Default::default(),
            streams: BTreeMap::new(),
            driver: Arc::default(),
            narrow: client.stream_window.min(server.stream_window) < 1_000,
            reached: Reached::default(),
        };
        while !play.bytes.is_empty() {
            play.step();
        }
        play.settle();
        play.reached
    })
    .expect("the lane goes on")
}

impl Play<'_> {
    fn take(&mut self) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first)
    }

    fn step(&mut self) {
        let operation = self.take();
        let number = self.take();
        let id = match self.streams.len() {
            0 => 0,
            len => *self.streams.keys().nth(number % len).expect("so many are there"),
        };
        let (end, much) = (number / 16 % 2, self.take());
        match operation % 12 {
            0 | 1 => self.begin(much % 3 == 0),
            2 => {
                self.carry(number % 2, 1 + much * 5);
            }
            3 => {
                self.carry_both(usize::MAX);
            }
            4 | 5 => self.give(id, end, much * much % MOST_SENT, much % 5 == 0),
            6 | 7 => {
                self.receive(id, end, 1 + much * 50);
            }
            8 => self.answer(id, much % 4 == 0),
            9 if self.reached.resets < MOST_RESETS => self.reset(id, end, much % 2 == 0),
            10 => self.give(id, end, MOST_SENT, false),
            11 if number == 7 => self.ends[end].shutdown(),
            _ => {
                self.carry_both(200);
            }
        }
    }

    fn begin(&mut self, end: bool) {
        if !self.ends[0].can_begin() || self.reached.streams >= MOST_STREAMS {
            return;
        }
        let mut head = Head::request(b"POST", b"/", Version::HTTP_11).expect("a head");
        head.add_field(Known::HOST, b"a").expect("room");
        let stream = self.ends[0].begin(&head, b"http", None, end).expect("it may begin");
        let mut both = Both::default();
        (both.flows[0].head, both.flows[0].ends, both.flows[0].ended) = (true, end, end);
        let id = stream.id();
        both.handles[0] = Some(stream);
        self.streams.insert(id, both);
        self.reached.streams += 1;
    }

    /// Moves bytes from one end to the other: to the server if `to` is 0. Returns whether any moved.
    fn carry(&mut self, to: usize, most: usize) -> bool {
        let waker = Waker::from(self.driver.clone());
        let context = Context::from_waker(&waker);
        let (from, to_end) = (&self.ends[to], &self.ends[1 - to]);
        if let Poll::Ready(last) = from.poll_output(&context, &mut self.wires[to]) {
            let _ = last.expect("memory");
        }
        let n = most.min(self.wires[to].len());
        let mut part = self.wires[to].split_to(n).expect("so many are there");
        let streams = &mut self.streams;
        // The rest of a frame waits with the input of a real connection; here it goes back.
        let handled = to_end.input(&mut part, &mut |stream: Stream, incoming| {
            incoming.request.expect("a small head");
            let both = streams.get_mut(&stream.id()).expect("the client began it");
            both.handles[1] = Some(stream);
        });
        handled.expect("both keep the rules");
        let moved = n > part.len();
        part.append_chain(&mut self.wires[to]).expect("memory");
        self.wires[to] = part;
        from.set_unwritten(self.wires[to].len());
        while from.grant() {}
        while to_end.grant() {}
        moved
    }

    fn carry_both(&mut self, most: usize) -> bool {
        (0..2).fold(false, |moved, end| moved | self.carry(end, most))
    }

    /// Gives an end more data to send on a stream.
    fn give(&mut self, id: u32, end: usize, len: usize, last: bool) {
        let Some(both) = self.streams.get_mut(&id) else { return };
        let flow = &mut both.flows[end];
        if flow.ends || !flow.head || both.handles[end].is_none() {
            return;
        }
        // With windows of one byte, each byte takes a frame of its own.
        let len = if self.narrow { len.min(50) } else { len };
        let bytes: Vec<u8> = (flow.given..flow.given + len).map(|at| byte(id, end, at)).collect();
        flow.pending.append(&bytes).expect("memory");
        (flow.given, flow.ends) = (flow.given + len, last);
        self.send(id, end);
    }

    /// Sends waiting data, at first as much as there is room for. Returns whether anything happened.
    fn send(&mut self, id: u32, end: usize) -> bool {
        let Some(both) = self.streams.get_mut(&id) else { return false };
        let (flow, spoiled) = (&mut both.flows[end], both.spoiled);
        let Some(stream) = both.handles[end].as_mut().filter(|_| flow.head && !flow.ended) else {
            return false;
        };
        let before = flow.pending.len();
        if before == 0 && !flow.ends {
            return false;
        }
        let waker = Waker::from(flow.sender.clone());
        let context = Context::from_waker(&waker);
        flow.sender.0.store(false, Ordering::Relaxed);
        match stream.poll_send(&context, &mut flow.pending, flow.ends) {
            Poll::Ready(Ok(())) => {
                assert!(flow.pending.is_empty());
                flow.ended = flow.ends;
            }
            Poll::Ready(Err(error)) => {
                assert!(spoiled || error == StreamError::Refused, "{id}: {error:?}");
                both.handles[end] = None;
                both.spoiled = true;
            }
            Poll::Pending => self.reached.waits += 1,
        }
        let sent = before - self.streams[&id].flows[end].pending.len();
        self.reached.bytes += sent;
        sent > 0
    }

    /// Answers a stream at the server.
    fn answer(&mut self, id: u32, end: bool) {
        let Some(both) = self.streams.get_mut(&id) else { return };
        let flow = &mut both.flows[1];
        let Some(stream) = both.handles[1].as_mut().filter(|_| !flow.head) else { return };
        let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
        match stream.send_head(&head, end) {
            Ok(()) => (flow.head, flow.ends, flow.ended) = (true, end, end),
            Err(error) => {
                assert!(both.spoiled, "{id}: {error:?}");
                both.handles[1] = None;
            }
        }
    }

    /// Takes at most `most` bytes of received data at an end. Returns whether anything happened.
    fn receive(&mut self, id: u32, end: usize, most: usize) -> bool {
        let Some(both) = self.streams.get_mut(&id) else { return false };
        let (other, spoiled) = (1 - end, both.spoiled);
        let flow = &mut both.flows[other];
        let Some(stream) = both.handles[end].as_mut().filter(|_| !flow.complete) else { return false };
        let waker = Waker::from(flow.receiver.clone());
        let context = Context::from_waker(&waker);
        flow.receiver.0.store(false, Ordering::Relaxed);
        let mut data = Chain::new();
        let outcome = match stream.poll_head(&context) {
            Poll::Ready(Ok(ResponseHead::Final { .. })) => return true,
            Poll::Ready(Ok(ResponseHead::Interim(_))) => panic!("there is none"),
            // A server has no head to wait for.
            _ => stream.poll_recv(&context, &mut data, most),
        };
        match outcome {
            Poll::Ready(Ok(Received::Data)) => {
                let bytes = data.to_vec();
                assert!(!bytes.is_empty() && bytes.len() <= most);
                let wanted = (flow.received..).map(|at| byte(id, other, at));
                assert!(bytes.iter().copied().eq(wanted.take(bytes.len())), "{id}: what was sent");
                flow.received += bytes.len();
                assert!(flow.received <= flow.given);
                stream.consume(bytes.len());
            }
            Poll::Ready(Ok(Received::End)) => {
                assert!(flow.ends && flow.received == flow.given, "{id}: the end comes behind all");
                flow.complete = true;
                self.reached.complete += 1;
            }
            Poll::Ready(Ok(Received::Trailers(_))) => panic!("there are none"),
            Poll::Ready(Err(error)) => {
                assert!(spoiled || error == StreamError::Refused, "{id}: {error:?}");
                both.handles[end] = None;
                both.spoiled = true;
            }
            Poll::Pending => {
                self.reached.waits += 1;
                return false;
            }
        }
        true
    }

    fn reset(&mut self, id: u32, end: usize, drops: bool) {
        let Some(both) = self.streams.get_mut(&id) else { return };
        let Some(stream) = both.handles[end].as_mut() else { return };
        self.reached.resets += 1;
        both.spoiled = true;
        if !drops {
            stream.reset(Reason::INTERNAL_ERROR);
        }
        both.handles[end] = None;
    }

    /// Continues with all streams until none can go on. After the first pass, only woken streams are polled.
    fn settle(&mut self) {
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            self.answer(id, false);
        }
        let mut first = true;
        loop {
            let mut moved = self.carry_both(usize::MAX);
            for id in self.streams.keys().copied().collect::<Vec<_>>() {
                for end in 0..2 {
                    // Both ends end what they send.
                    if first || !self.streams[&id].flows[end].ends {
                        self.answer(id, false);
                        self.give(id, end, 0, true);
                    }
                    let flow = |play: &Self| {
                        let flow = &play.streams[&id].flows;
                        let woken = |flag: &Flag| first || flag.0.load(Ordering::Relaxed);
                        (woken(&flow[end].sender), woken(&flow[1 - end].receiver))
                    };
                    while flow(self).0 && self.send(id, end) {
                        moved = true;
                    }
                    while flow(self).1 && self.receive_all(id, end) {
                        moved = true;
                    }
                }
            }
            if !moved && !first {
                break;
            }
            first = false;
        }
        for (id, both) in &self.streams {
            if both.spoiled {
                continue;
            }
            for flow in &both.flows {
                assert!(flow.complete && flow.received == flow.given, "{id}: all of it came");
            }
        }
        self.streams.clear();
        while self.carry_both(usize::MAX) {}
        for end in &self.ends {
            assert_eq!(end.open_streams(), 0);
        }
    }

    /// Takes all data that is there; whatever it waits for then wakes it.
    fn receive_all(&mut self, id: u32, end: usize) -> bool {
        let mut any = false;
        while self.receive(id, end, usize::MAX) {
            any = true;
        }
        any
    }
}

/// Header blocks that make valid heads often enough.
const BLOCKS: [&[u8]; 5] = [
    b"\x82\x86\x84\x41\x01a",
    b"\x83\x86\x84\x41\x01a\x5c\x015",
    b"\x83\x87\x85\x01\x01b\x40\x01x\x01y",
    b"\x88",
    b"\x40\x01x\x01y",
];

/// Returns frames of a client from random bytes. Four bytes describe each frame, so that most frames are
/// nearly valid.
fn nearly_valid(bytes: &[u8]) -> Vec<u8> {
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let (mut rest, mut next) = (bytes, 1u8);
    while let [kind, flags, stream, len, behind @ ..] = rest {
        let (raw, behind) = behind.split_at(usize::from(len % 32).min(behind.len()));
        rest = behind;
        // Mostly heads that begin streams, and data for them; sometimes anything.
        let wild = kind & 0xf0 == 0xf0;
        let kind = if wild { kind % 12 } else { [1, 0, 0, 0, 1, 0, 3, 8][usize::from(kind % 8)] };
        let begins = next == 1 || kind == 1 && stream % 4 > 0;
        let kind = if begins { 1 } else { kind };
        let flags = match kind {
            _ if wild => *flags,
            1 => flags & 1 | 4,
            _ => u8::from(flags & 7 == 7),
        };
        // One of the last eight streams that began.
        let of = if begins { next } else { next.saturating_sub(2 + 2 * (stream % 8)).max(1) };
        next = if begins && next < 0xf0 { next + 2 } else { next };
        let update = [0, 0, len / 8, 1];
        let payload = match kind {
            1 | 9 => BLOCKS[usize::from(*len) % BLOCKS.len()],
            3 | 8 if !wild => &update,
            _ => raw,
        };
        all.extend_from_slice(&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, of]);
        all.extend_from_slice(payload);
    }
    all
}

/// Result of a stream: its data, whether it was complete, and why it ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamOutcome {
    data: Vec<u8>,
    end: bool,
    error: Option<StreamError>,
}

/// Lets a server read random frames in pieces of `step` bytes, and the protocol alone beside it, whose events
/// say what the streams must receive. Returns the number of streams that began, and of bytes that came on
/// them.
///
/// # Panics
/// If the streams receive anything else.
pub(crate) fn frames(bytes: &[u8], step: usize) -> (usize, usize) {
    let mut lane = Lane::new(LaneConfig::new().clock(|| Time::ZERO)).expect("a thread without one");
    let here = lane.here();
    let wire = nearly_valid(bytes);
    lane.block_on(&mut ThreadPoller::new(), async move {
        let config = Config { max_streams: 5, ..Config::default() };
        let mux = Mux::server(config, here).expect("memory");
        let context = Context::from_waker(Waker::noop());
        let mut plain = Connection::server(config, Duration::ZERO).expect("memory");
        let mut inputs = [Chain::new(), Chain::new()];
        let mut handles: BTreeMap<u32, Stream> = BTreeMap::new();
        let (mut found, mut wanted) =
            (BTreeMap::<u32, StreamOutcome>::new(), BTreeMap::<u32, StreamOutcome>::new());
        for piece in wire.chunks(step.max(1)) {
            for input in &mut inputs {
                input.append(piece).expect("memory");
            }
            let outcome = mux.input(&mut inputs[0], &mut |stream: Stream, incoming| {
                found.insert(stream.id(), StreamOutcome { end: incoming.end, ..StreamOutcome::default() });
                handles.insert(stream.id(), stream);
            });
            for (id, stream) in &mut handles {
                let stream_outcome = found.get_mut(id).expect("it began");
                let mut data = Chain::new();
                loop {
                    match stream.poll_recv(&context, &mut data, 7) {
                        Poll::Ready(Ok(Received::End)) => break stream_outcome.end = true,
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => break stream_outcome.error = Some(error),
                        Poll::Pending => break,
                    }
                }
                stream.consume(data.len());
                stream_outcome.data.extend(data.to_vec());
            }
            let (mut consumed, mut failed) = (Vec::new(), None);
            loop {
                match plain.handle_input(Duration::ZERO, &mut inputs[1]) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => break failed = Some(error),
                }
                while let Some(event) = plain.poll_event() {
                    match event {
                        Event::Request { stream, end, .. } | Event::TooLarge { stream, end } => {
                            of(&mut wanted, stream).end = end;
                        }
                        Event::Data { stream, data, end } => {
                            consumed.push((stream, data.len()));
                            of(&mut wanted, stream).data.extend(data.to_vec());
                            of(&mut wanted, stream).end = end;
                        }
                        Event::Trailers { stream, .. } => of(&mut wanted, stream).end = true,
                        Event::Reset { stream, reason, problem } if !of(&mut wanted, stream).end => {
                            let reset = StreamError::Reset(reason);
                            of(&mut wanted, stream).error = Some(problem.map_or(reset, StreamError::Broken));
                        }
                        _ => {}
                    }
                }
            }
            assert_eq!((outcome.err(), &found), (failed, &wanted));
            if failed.is_some() {
                break;
            }
            for (stream, n) in consumed {
                plain.consume(stream, n).expect("memory");
            }
            let mut out = Chain::new();
            if let Poll::Ready(last) = mux.poll_output(&context, &mut out) {
                last.expect("memory");
            }
            mux.set_unwritten(0);
            plain.poll_output(&mut Chain::new()).expect("memory");
        }
        (found.len(), found.values().map(|one| one.data.len()).sum())
    })
    .expect("the lane goes on")
}

fn of(outcome: &mut BTreeMap<u32, StreamOutcome>, stream: StreamId) -> &mut StreamOutcome {
    outcome.entry(stream.number()).or_default()
}
