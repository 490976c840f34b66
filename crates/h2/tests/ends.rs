//! Two ends talk to each other over random cuts, windows and amounts: every byte arrives once and in order,
//! nothing is left over, and neither end waits for ever.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event, StreamId};
use manylane_http::{Head, Known, Version};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// Small random numbers from one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

fn byte(message: usize, at: usize) -> u8 {
    (message * 31 + at * 7 + at / 251) as u8
}

/// A body that is being sent.
struct Outgoing {
    message: usize,
    len: usize,
    given: usize,
    pending: Chain,
    trailers: bool,
}

/// One end, with what it sends and what it received.
struct Side {
    connection: Connection,
    input: Chain,
    wire: Chain,
    outgoing: BTreeMap<StreamId, Outgoing>,
    /// For each stream, the number of bytes that came and whether the end came; then the bytes to consume.
    incoming: HashMap<StreamId, (usize, bool)>,
    unconsumed: Vec<(StreamId, usize)>,
    /// Message that is expected on each stream.
    expected: HashMap<StreamId, usize>,
    complete: usize,
}

impl Side {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            input: Chain::new(),
            wire: Chain::new(),
            outgoing: BTreeMap::new(),
            incoming: HashMap::new(),
            unconsumed: Vec::new(),
            expected: HashMap::new(),
            complete: 0,
        }
    }

    /// Sends a part of a body.
    fn go_on(&mut self, stream: StreamId, dice: &mut Dice) {
        let Some(out) = self.outgoing.get_mut(&stream) else { return };
        let more = (1 + dice.roll(3_000)).min(out.len - out.given);
        let bytes: Vec<u8> = (out.given..out.given + more).map(|at| byte(out.message, at)).collect();
        out.pending.append(&bytes).expect("memory");
        out.given += more;
        let last = out.given == out.len;
        let before = out.pending.len();
        let end = last && !out.trailers;
        let sent = self.connection.send_data(NOW, stream, &mut out.pending, end).expect("it is open");
        assert_eq!(sent.bytes, before - out.pending.len());
        assert_eq!(sent.all, out.pending.is_empty());
        if sent.all && last {
            if out.trailers {
                let mut trailers = Head::trailers().expect("memory");
                trailers.add_field("x-len", out.len.to_string().as_bytes()).expect("room");
                self.connection.send_trailers(stream, &trailers).expect("it is open");
            }
            self.outgoing.remove(&stream);
        }
    }

    fn came(&mut self, stream: StreamId, data: &Chain, end: bool) {
        let (at, ended) = self.incoming.entry(stream).or_default();
        assert!(!*ended, "nothing behind the end");
        for &found in &data.to_vec() {
            assert_eq!(found, byte(self.expected[&stream], *at), "{stream:?} at {at}");
            *at += 1;
        }
        *ended = end;
        if !data.is_empty() {
            self.unconsumed.push((stream, data.len()));
        }
    }

    /// Moves some bytes to the other end's input.
    fn carry(&mut self, other: &mut Self, cut: usize, dice: &mut Dice) -> bool {
        if self.wire.is_empty() {
            self.connection.poll_output(&mut self.wire).expect("memory");
        }
        let n = (1 + dice.roll(cut)).min(self.wire.len());
        let part = self.wire.split_to(n).expect("there are so many");
        for segment in part.segments() {
            other.input.push_compact(Cluster::with(segment).expect("memory").into_segment()).expect("room");
        }
        n > 0
    }

    fn consume(&mut self, dice: &mut Dice) -> bool {
        if self.unconsumed.is_empty() {
            return false;
        }
        let at = dice.roll(self.unconsumed.len());
        let (stream, left) = &mut self.unconsumed[at];
        let n = (1 + dice.roll(*left)).min(*left);
        self.connection.consume(*stream, n).expect("memory");
        *left -= n;
        if *left == 0 {
            self.unconsumed.swap_remove(at);
        }
        true
    }
}

#[derive(Clone, Debug)]
struct Scene {
    seed: u64,
    cut: usize,
    windows: [u32; 2],
    max_streams: u32,
    messages: Vec<(usize, usize, bool)>,
}

fn window() -> impl Strategy<Value = u32> {
    prop_oneof![1 => 1u32..4, 1 => 4u32..200, 2 => 200u32..70_000, 1 => Just(1 << 20)]
}

fn scene() -> impl Strategy<Value = Scene> {
    let len = || prop_oneof![2 => Just(0usize), 2 => 1usize..50, 1 => 50usize..3_000];
    let messages = proptest::collection::vec((len(), len(), any::<bool>()), 1..12);
    let cut = prop_oneof![1 => 1usize..12, 4 => 12usize..3_000, 1 => Just(1 << 16)];
    (any::<u64>(), cut, [window(), window()], 1u32..8, messages).prop_map(
        |(seed, cut, windows, max_streams, messages)| Scene { seed, cut, windows, max_streams, messages },
    )
}

fn play(scene: &Scene) {
    let mut dice = Dice(scene.seed);
    let config =
        |window| Config { stream_window: window, max_streams: scene.max_streams, ..Config::default() };
    let mut client = Side::new(Connection::client(config(scene.windows[0]), NOW).expect("memory"));
    let mut server = Side::new(Connection::server(config(scene.windows[1]), NOW).expect("memory"));
    let (mut begun, mut settled, mut idle) = (0, false, 0);
    while client.complete < scene.messages.len()
        || !client.outgoing.is_empty()
        || !server.incoming.values().all(|(_, ended)| *ended)
    {
        let mut progress = false;
        if settled && begun < scene.messages.len() && client.connection.can_begin() {
            let (len, _, trailers) = scene.messages[begun];
            let mut head =
                Head::request(b"POST", format!("/{begun}").as_bytes(), Version::HTTP_11).expect("a head");
            head.add_field(Known::HOST, b"a").expect("room");
            head.add_field("x-number", begun.to_string().as_bytes()).expect("room");
            if dice.roll(2) == 0 {
                head.add_field(Known::CONTENT_LENGTH, len.to_string().as_bytes()).expect("room");
            }
            let end = len == 0 && !trailers;
            let stream = client.connection.send_request(&head, b"http", None, end).expect("it may begin");
            if !end {
                let out = Outgoing { message: begun, len, given: 0, pending: Chain::new(), trailers };
                client.outgoing.insert(stream, out);
            }
            client.expected.insert(stream, begun + 1000);
            begun += 1;
            progress = true;
        }
        for (side, is_server) in [(&mut client, false), (&mut server, true)] {
            let streams: Vec<StreamId> = side.outgoing.keys().copied().collect();
            for stream in streams {
                if side.outgoing[&stream].pending.is_empty() && dice.roll(3) == 0 {
                    side.go_on(stream, &mut dice);
                    progress = true;
                }
            }
            while side.connection.handle_input(NOW, &mut side.input).expect("both keep the rules") {
                while let Some(event) = side.connection.poll_event() {
                    progress = true;
                    happened(side, event, is_server, scene, &mut dice, &mut settled);
                }
            }
            while let Some(stream) = side.connection.next_writable() {
                progress = true;
                side.go_on(stream, &mut dice);
            }
            if dice.roll(2) == 0 {
                progress |= side.consume(&mut dice);
            }
        }
        progress |= client.carry(&mut server, scene.cut, &mut dice);
        progress |= server.carry(&mut client, scene.cut, &mut dice);
        idle = if progress { 0 } else { idle + 1 };
        assert!(idle < 2_000, "nobody moves: {} of {} complete", client.complete, scene.messages.len());
    }
    // Conservation: all that was sent arrived, and no stream is left.
    for side in [&mut client, &mut server] {
        while side.consume(&mut dice) {}
        assert!(side.outgoing.is_empty());
    }
    for _ in 0..1_000_000 {
        let moved =
            client.carry(&mut server, scene.cut, &mut dice) | server.carry(&mut client, scene.cut, &mut dice);
        for side in [&mut client, &mut server] {
            while side.connection.handle_input(NOW, &mut side.input).expect("both keep the rules") {
                while side.connection.poll_event().is_some() {}
            }
        }
        if !moved {
            break;
        }
    }
    for (side, offset) in [(&client, 1), (&server, 0)] {
        assert_eq!(side.connection.open_streams(), 0);
        assert!(side.input.is_empty() && side.incoming.values().all(|(_, ended)| *ended));
        for (stream, (bytes, _)) in &side.incoming {
            let message = side.expected[stream] % 1000;
            let (len, answer, _) = scene.messages[message];
            assert_eq!(*bytes, if offset == 1 { answer } else { len }, "{stream:?}");
        }
    }
}

fn happened(
    side: &mut Side,
    event: Event,
    is_server: bool,
    scene: &Scene,
    dice: &mut Dice,
    settled: &mut bool,
) {
    match event {
        Event::Settings => *settled |= !is_server,
        Event::Request { stream, request, end } => {
            let number = request.head.value("x-number").expect("it has one");
            let number: usize = std::str::from_utf8(number).expect("digits").parse().expect("a number");
            side.expected.insert(stream, number);
            let (_, answer, trailers) = scene.messages[number];
            side.incoming.insert(stream, (0, end));
            // The answer begins at once, or with the end of the request.
            if dice.roll(2) == 0 {
                let interim = Head::response(Version::HTTP_2, 103, None).expect("a head");
                side.connection.send_interim(stream, &interim).expect("it is open");
            }
            let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
            let last = answer == 0 && !trailers;
            side.connection.send_response(stream, &head, last).expect("it is open");
            if !last {
                let message = number + 1000;
                let out = Outgoing { message, len: answer, given: 0, pending: Chain::new(), trailers };
                side.outgoing.insert(stream, out);
            }
        }
        Event::Interim { .. } => {}
        Event::Response { stream, end, .. } => {
            side.incoming.insert(stream, (0, end));
            side.complete += usize::from(end);
        }
        Event::Data { stream, data, end } => {
            side.came(stream, &data, end);
            side.complete += usize::from(end);
        }
        Event::Trailers { stream, trailers } => {
            let got = side.incoming.get_mut(&stream).expect("it has begun");
            got.1 = true;
            assert_eq!(trailers.value("x-len"), Some(got.0.to_string().as_bytes()));
            side.complete += 1;
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_of_one_byte_carry_everything() {
    let messages = vec![(40, 60, true), (0, 33, false), (100, 0, true), (1, 1, false)];
    play(&Scene { seed: 1, cut: 5, windows: [1, 1], max_streams: 3, messages });
}

fn cases(usual: u32, long: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("MANYLANE_LONG").is_some() { long } else { usual })
}

proptest! {
    #![proptest_config(cases(48, 5_000))]

    #[test]
    fn every_byte_arrives_once_and_in_order(scene in scene()) {
        play(&scene);
    }
}
