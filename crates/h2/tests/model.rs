//! Random frames against a plain model of RFC 9113's states. However the bytes are cut, the result is the
//! same.
#![cfg(not(any(loom, manylane_sim)))]

mod support;

use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event, PREFACE, Reason, StreamId};
use manylane_http::{Head, Version};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;
use support::*;

/// An act on a server: a frame of its client, or a call of its user.
#[derive(Clone, Debug)]
enum Act {
    Headers { stream: u32, end: bool, bad: bool },
    Data { stream: u32, len: usize, end: bool },
    Reset { stream: u32 },
    Update { stream: u32, more: u32 },
    Priority { stream: u32, on: u32 },
    Ping,
    Respond { nth: usize, end: bool },
    ResetOurs { nth: usize },
}

fn stream() -> impl Strategy<Value = u32> {
    prop_oneof![12 => (0u32..6).prop_map(|n| 2 * n + 1), 1 => Just(0), 1 => Just(2)]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (stream(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(stream, end, bad)| Act::Headers { stream, end, bad }),
        6 => (stream(), 0usize..60, any::<bool>())
            .prop_map(|(stream, len, end)| Act::Data { stream, len, end }),
        2 => stream().prop_map(|stream| Act::Reset { stream }),
        2 => (stream(), prop_oneof![0u32..3, Just(0x7fff_ffff)])
            .prop_map(|(stream, more)| Act::Update { stream, more }),
        1 => (stream(), stream()).prop_map(|(stream, on)| Act::Priority { stream, on }),
        1 => Just(Act::Ping),
        4 => (0usize..6, any::<bool>()).prop_map(|(nth, end)| Act::Respond { nth, end }),
        1 => (0usize..6).prop_map(|nth| Act::ResetOurs { nth }),
    ]
}

/// State of a client's stream by RFC 9113, 5.1, as its server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Open,
    HalfClosedRemote,
    HalfClosedLocal,
    /// Late frames may still come.
    ClosedByUs,
    Closed,
}

/// Result of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fine,
    Reset(Reason),
    End(Reason),
}

use Outcome::{End as Ends, Fine, Reset as Resets};

#[derive(Default)]
struct Model {
    states: HashMap<u32, State>,
    last: u32,
    windows: HashMap<u32, i64>,
    connection_window: i64,
}

impl Model {
    fn state(&self, stream: u32) -> State {
        match self.states.get(&stream) {
            Some(&state) => state,
            None if stream % 2 == 1 && stream < self.last => State::Closed,
            None => State::Idle,
        }
    }

    fn remote_end(&mut self, stream: u32) {
        let next = match self.state(stream) {
            State::Open => State::HalfClosedRemote,
            _ => State::Closed,
        };
        self.states.insert(stream, next);
    }

    fn local_end(&mut self, stream: u32) {
        let next = match self.state(stream) {
            State::Open => State::HalfClosedLocal,
            _ => State::Closed,
        };
        self.states.insert(stream, next);
    }

    fn reset(&mut self, stream: u32, reason: Reason) -> Outcome {
        self.states.insert(stream, State::ClosedByUs);
        Resets(reason)
    }

    /// Returns the result of an act's frame.
    fn frame(&mut self, act: &Act) -> Outcome {
        match *act {
            Act::Headers { stream, end, bad } => match self.state(stream) {
                _ if stream % 2 == 0 => Ends(Reason::PROTOCOL_ERROR),
                State::Idle => {
                    self.last = stream;
                    if bad {
                        return self.reset(stream, Reason::PROTOCOL_ERROR);
                    }
                    self.states.insert(stream, if end { State::HalfClosedRemote } else { State::Open });
                    Fine
                }
                // Trailers may not have pseudo-headers.
                State::Open | State::HalfClosedLocal => self.reset(stream, Reason::PROTOCOL_ERROR),
                State::HalfClosedRemote => self.reset(stream, Reason::STREAM_CLOSED),
                State::ClosedByUs => Fine,
                State::Closed => Ends(Reason::STREAM_CLOSED),
            },
            Act::Data { stream, end, .. } => match self.state(stream) {
                _ if stream == 0 => Ends(Reason::PROTOCOL_ERROR),
                State::Idle => Ends(Reason::PROTOCOL_ERROR),
                State::Open | State::HalfClosedLocal => {
                    if end {
                        self.remote_end(stream);
                    }
                    Fine
                }
                State::HalfClosedRemote => self.reset(stream, Reason::STREAM_CLOSED),
                State::ClosedByUs => Fine,
                State::Closed => Ends(Reason::STREAM_CLOSED),
            },
            Act::Reset { stream } => match self.state(stream) {
                State::Idle => Ends(Reason::PROTOCOL_ERROR),
                State::ClosedByUs | State::Closed => Fine,
                _ => {
                    self.states.insert(stream, State::Closed);
                    Fine
                }
            },
            Act::Update { stream: 0, more } => {
                self.connection_window += i64::from(more);
                match more {
                    0 => Ends(Reason::PROTOCOL_ERROR),
                    _ if self.connection_window > 0x7fff_ffff => Ends(Reason::FLOW_CONTROL_ERROR),
                    _ => Fine,
                }
            }
            Act::Update { stream, more } => match self.state(stream) {
                State::Idle => Ends(Reason::PROTOCOL_ERROR),
                State::ClosedByUs | State::Closed => Fine,
                _ if more == 0 => self.reset(stream, Reason::PROTOCOL_ERROR),
                _ => {
                    let window = self.windows.entry(stream).or_insert(65_535);
                    *window += i64::from(more);
                    if *window > 0x7fff_ffff { self.reset(stream, Reason::FLOW_CONTROL_ERROR) } else { Fine }
                }
            },
            Act::Priority { stream, on } => match self.state(stream) {
                _ if stream == 0 => Ends(Reason::PROTOCOL_ERROR),
                _ if stream != on => Fine,
                State::Open | State::HalfClosedLocal | State::HalfClosedRemote => {
                    self.reset(stream, Reason::PROTOCOL_ERROR)
                }
                _ => Ends(Reason::PROTOCOL_ERROR),
            },
            Act::Ping | Act::Respond { .. } | Act::ResetOurs { .. } => Fine,
        }
    }
}

fn bytes(act: &Act) -> Vec<u8> {
    match *act {
        Act::Headers { stream, end, bad } => {
            let mut fields = POST.to_vec();
            if bad {
                fields.push(("X", "upper"));
            }
            frame(HEADERS, END_HEADERS | u8::from(end), stream, &block(&fields))
        }
        Act::Data { stream, len, end } => frame(DATA, u8::from(end), stream, &vec![b'd'; len]),
        Act::Reset { stream } => frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()),
        Act::Update { stream, more } => frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()),
        Act::Priority { stream, on } => frame(PRIORITY, 0, stream, &[&on.to_be_bytes()[..], &[7]].concat()),
        Act::Ping => frame(PING, 0, 0, &[1; 8]),
        Act::Respond { .. } | Act::ResetOurs { .. } => Vec::new(),
    }
}

/// Lets the user answer or reset the nth stream that an event reported.
fn user(end: &mut End, model: &mut Model, act: &Act, reported: &[StreamId]) {
    let (nth, last) = match *act {
        Act::Respond { nth, end } => (nth, Some(end)),
        Act::ResetOurs { nth } => (nth, None),
        _ => return,
    };
    let Some(&stream) = reported.get(nth) else { return };
    let state = model.state(stream.number());
    let alive = matches!(state, State::Open | State::HalfClosedRemote | State::HalfClosedLocal);
    let Some(last) = last else {
        end.connection.reset(stream, Reason::CANCEL).expect("memory");
        if alive {
            model.states.insert(stream.number(), State::ClosedByUs);
        }
        return;
    };
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    match end.connection.send_response(stream, &head, last) {
        Ok(()) => {
            assert!(matches!(state, State::Open | State::HalfClosedRemote), "{state:?}");
            if last {
                model.local_end(stream.number());
            }
        }
        // A second answer, or one for a stream that does not exist.
        Err(error) => assert!(
            matches!(error, manylane_h2::SendError::Order | manylane_h2::SendError::Closed),
            "{error:?} in {state:?}"
        ),
    }
}

/// Returns the events as text, with adjacent pieces of data joined.
fn tell(events: &[Event]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut data: Option<(StreamId, usize)> = None;
    for event in events {
        if let Event::Data { stream, data: piece, end } = event {
            let len = piece.len() + data.filter(|(before, _)| before == stream).map_or(0, |(_, len)| len);
            data = Some((*stream, len));
            if *end {
                all.push(format!("{stream:?} ends behind {len}"));
                data = None;
            }
            continue;
        }
        if let Some((stream, len)) = data.take() {
            all.push(format!("{stream:?} has {len}"));
        }
        all.push(format!("{event:?}"));
    }
    all.extend(data.map(|(stream, len)| format!("{stream:?} has {len}")));
    all
}

fn cut_story(bytes: &[u8], cuts: &[usize]) -> (Vec<String>, Option<String>, Vec<Frame>) {
    let mut connection = Connection::server(Config::default(), Duration::ZERO).expect("memory");
    let (mut input, mut events, mut out) = (Chain::new(), Vec::new(), Chain::new());
    let (mut rest, mut cuts) = (bytes, cuts.iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((*cuts.next().expect("it cycles")).clamp(1, rest.len()));
        rest = behind;
        input.push_compact(Cluster::with(piece).expect("memory").into_segment()).expect("room");
        loop {
            match connection.handle_input(Duration::ZERO, &mut input) {
                Ok(true) => events.extend(std::iter::from_fn(|| connection.poll_event())),
                Ok(false) => break,
                Err(error) => {
                    connection.poll_output(&mut out).expect("memory");
                    return (tell(&events), Some(error.to_string()), frames(&out.to_vec()));
                }
            }
        }
        connection.poll_output(&mut out).expect("memory");
    }
    (tell(&events), None, frames(&out.to_vec()))
}

fn cases(usual: u32, long: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("MANYLANE_LONG").is_some() { long } else { usual })
}

proptest! {
    #![proptest_config(cases(512, 20_000))]

    #[test]
    fn states_are_those_of_a_plain_model(acts in proptest::collection::vec(act(), 1..60)) {
        let mut end = End::server(Config::default());
        let mut model = Model { connection_window: 65_535, ..Model::default() };
        let mut reported = Vec::new();
        for act in &acts {
            user(&mut end, &mut model, act, &reported);
            let wanted = model.frame(act);
            let result = end.feed(&bytes(act));
            if let Ok(events) = &result {
                for event in events {
                    match event {
                        Event::Request { stream, .. } => reported.push(*stream),
                        Event::Data { stream, data, .. } => {
                            end.connection.consume(*stream, data.len()).expect("memory");
                        }
                        _ => {}
                    }
                }
            }
            let written = end.written();
            let ours = matches!(act, Act::ResetOurs { .. });
            let reset = written.iter().find(|frame| frame.kind == RST_STREAM && !ours);
            let code = |payload: &[u8]| {
                Reason::from_code(u32::from_be_bytes(payload.try_into().expect("four bytes")))
            };
            let found = match (&result, reset) {
                (Err(error), _) => {
                    let goaway = written.iter().rfind(|frame| frame.kind == GOAWAY).expect("it says so");
                    prop_assert_eq!(code(&goaway.payload[4..]), error.reason);
                    Ends(error.reason)
                }
                (Ok(_), Some(reset)) => Resets(code(&reset.payload)),
                (Ok(_), None) => Fine,
            };
            prop_assert_eq!(found, wanted, "{:?} of {:?}", act, acts);
            if result.is_err() {
                return Ok(());
            }
            let closed = |state: &&State| matches!(state, State::ClosedByUs | State::Closed);
            let open = model.states.values().filter(|state| !closed(state)).count();
            prop_assert_eq!(end.connection.open_streams() as usize, open);
        }
    }

    #[test]
    fn how_frames_are_cut_does_not_matter(
        acts in proptest::collection::vec(act(), 1..40),
        cuts in proptest::collection::vec(1usize..50, 1..20),
    ) {
        let mut all = [PREFACE, &frame(SETTINGS, 0, 0, &setting(3, 5))].concat();
        acts.iter().for_each(|act| all.extend(bytes(act)));
        let whole = cut_story(&all, &[16_000]);
        prop_assert_eq!(&cut_story(&all, &cuts), &whole);
        prop_assert_eq!(&cut_story(&all, &[1]), &whole);
    }
}
