//! The connection: its beginning, settings, windows, pings, and its end.
#![cfg(not(any(loom, manylane_sim)))]

mod support;

use manylane_buf::{Chain, Cluster};
use manylane_h2::hpack::Decoder;
use manylane_h2::{Config, Connection, DATA_PART, Event, PREFACE, Problem, Reason, SendError};
use manylane_http::{Head, Known, Version};
use std::time::Duration;
use support::*;

#[test]
fn a_server_announces_itself_and_expects_the_preface() {
    let mut end = End::fresh_server(Config { connection_window: 100_000, ..Config::default() });
    let written = end.written();
    assert_eq!((written[0].kind, written[0].flags, written[0].payload.len()), (SETTINGS, 0, 5 * 6));
    assert_eq!((written[1].kind, written[1].stream), (WINDOW_UPDATE, 0));
    assert_eq!(written[1].payload, (100_000u32 - 65_535).to_be_bytes());
    for bad in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"] {
        let error = End::fresh_server(Config::default()).feed(bad).expect_err("no preface");
        assert_eq!(error.problem, Problem::Preface);
    }
    let mut end = End::fresh_server(Config::default());
    assert!(end.feed(&PREFACE[..20]).expect("so far").is_empty());
    let error = end.feed(&[&PREFACE[20..], &frame(PING, 0, 0, &[0; 8])].concat()).expect_err("no settings");
    assert_eq!(error.problem, Problem::NoSettings);
}

#[test]
fn a_client_announces_itself_and_takes_no_pushes() {
    let mut end = End::client(Config::default());
    let push = [&2u32.to_be_bytes()[..], &block(GET)].concat();
    assert_eq!(
        end.feed(&frame(PUSH_PROMISE, END_HEADERS, 1, &push)).expect_err("off").problem,
        Problem::Push
    );
    let mut end = End::client(Config::default());
    assert_eq!(
        end.feed(&frame(SETTINGS, 0, 0, &setting(2, 1))).expect_err("off").problem,
        Problem::BadSetting
    );
}

/// Frames that break the rules for either role. `head` is a header block that begins a message on stream 1.
fn broken_frames(head: &[u8]) -> Vec<(Vec<u8>, Problem)> {
    use Problem::*;
    let open = || frame(HEADERS, END_HEADERS, 1, head);
    vec![
        (frame(DATA, 0, 0, b"x"), NoStream),
        (frame(DATA, 0, 3, b"x"), IdleStream),
        (frame(DATA, 0, 2, b"x"), IdleStream),
        ([open(), frame(DATA, PADDED, 1, &[5, 0, 0])].concat(), Padding),
        ([open(), frame(DATA, PADDED, 1, &[])].concat(), FrameSize),
        (frame(HEADERS, END_HEADERS, 0, head), NoStream),
        (frame(HEADERS, END_HEADERS, 2, head), WrongStream),
        (frame(HEADERS, END_HEADERS | PADDED, 1, &[9, 0x82]), Padding),
        (frame(HEADERS, END_HEADERS | PADDED, 1, &[]), FrameSize),
        (frame(HEADERS, END_HEADERS | 0x20, 1, &[0, 0]), FrameSize),
        ([frame(HEADERS, 0, 1, head), frame(PING, 0, 0, &[0; 8])].concat(), Interrupted),
        ([frame(HEADERS, 0, 1, head), frame(CONTINUATION, 4, 3, &[])].concat(), Interrupted),
        (frame(CONTINUATION, END_HEADERS, 1, head), StrayContinuation),
        (frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff]), Compression),
        (frame(PRIORITY, 0, 0, &[0; 5]), NoStream),
        (frame(RST_STREAM, 0, 0, &[0; 4]), NoStream),
        (frame(RST_STREAM, 0, 3, &[0; 4]), IdleStream),
        ([open(), frame(RST_STREAM, 0, 1, &[0; 3])].concat(), FrameSize),
        (frame(SETTINGS, 0, 1, &[]), StreamNotAllowed),
        (frame(SETTINGS, 0, 0, &[0; 5]), FrameSize),
        (frame(SETTINGS, ACK, 0, &setting(1, 1)), FrameSize),
        (frame(SETTINGS, 0, 0, &setting(2, 2)), BadSetting),
        (frame(SETTINGS, 0, 0, &setting(4, 1 << 31)), WindowSetting),
        (frame(SETTINGS, 0, 0, &setting(5, 16_383)), BadSetting),
        (frame(SETTINGS, 0, 0, &setting(5, 1 << 24)), BadSetting),
        (frame(SETTINGS, 0, 0, &setting(8, 2)), BadSetting),
        (frame(SETTINGS, 0, 0, &[setting(8, 1), setting(8, 0)].concat()), ConnectSwitch),
        (frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4]), Push),
        (frame(PING, 0, 1, &[0; 8]), StreamNotAllowed),
        (frame(PING, 0, 0, &[0; 7]), FrameSize),
        (frame(PING, 0, 0, &[0; 9]), FrameSize),
        (frame(GOAWAY, 0, 1, &[0; 8]), StreamNotAllowed),
        (frame(GOAWAY, 0, 0, &[0; 7]), FrameSize),
        (
            [frame(GOAWAY, 0, 0, &[0; 8]), frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])].concat(),
            GoawayRaised,
        ),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), ZeroUpdate),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 5]), FrameSize),
        (frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), IdleStream),
        (frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()), WindowOverflow),
        (vec![0, 0x40, 1, DATA, 0, 0, 0, 0, 1], TooLargeFrame),
        (vec![0, 0x40, 1, 77, 0, 0, 0, 0, 1], TooLargeFrame),
    ]
}

/// Feeds frames that end the connection with `problem`, of which the last frame to the peer tells.
fn expect_end(mut end: End, bytes: &[u8], problem: Problem) {
    let found = end.feed(bytes).err().map(|error| error.problem);
    assert_eq!(found, Some(problem), "{bytes:x?}");
    let last = end.written().pop().expect("a GOAWAY");
    assert_eq!(
        (last.kind, &last.payload[4..8]),
        (GOAWAY, &problem.reason().code().to_be_bytes()[..]),
        "{problem:?}"
    );
}

#[test]
fn frames_of_clients_that_break_the_rules_end_the_connection() {
    use Problem::*;
    let mut rows = broken_frames(&block(POST));
    rows.extend([
        (frame(DATA, 0, 1, b"x"), IdleStream),
        (frame(RST_STREAM, 0, 1, &[0; 4]), IdleStream),
        (frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), IdleStream),
        ([get(3), get(1)].concat(), ClosedStream),
        (frame(0x10, 0, 1, &[0; 4]), StreamNotAllowed),
        (frame(0x10, 0, 0, &[0; 3]), FrameSize),
    ]);
    for (bytes, problem) in rows {
        expect_end(End::server(Config::default()), &bytes, problem);
    }
}

#[test]
fn frames_of_servers_that_break_the_rules_end_the_connection() {
    use Problem::*;
    let head = block(&[(":status", "200")]);
    let mut rows = broken_frames(&head);
    rows.extend([
        (frame(HEADERS, END_HEADERS, 3, &head), IdleStream),
        (frame(SETTINGS, 0, 0, &setting(2, 1)), BadSetting),
        (frame(0x10, 0, 0, &[0, 0, 0, 1, b'u']), PriorityUpdateFromServer),
    ]);
    for (bytes, problem) in rows {
        let mut end = End::client(Config::default());
        end.connection.send_request(&request(), b"http", None, false).expect("it may begin");
        expect_end(end, &bytes, problem);
    }
    let mut fresh = Connection::client(Config::default(), Duration::ZERO).expect("memory");
    let mut ping: Chain = Cluster::with(&frame(PING, 0, 0, &[0; 8])).expect("memory").into_segment().into();
    let error = fresh.handle_input(Duration::ZERO, &mut ping).expect_err("no settings");
    assert_eq!(error.problem, NoSettings);
}

#[test]
fn what_is_ignored_changes_nothing() {
    let mut end = End::server(Config::default());
    let all = [
        frame(77, 0xff, 9, &[1; 300]),
        frame(PRIORITY, 0, 5, &[0, 0, 0, 1, 7]),
        frame(0x10, 0, 0, &[0, 0, 0, 1, b'u']),
        frame(SETTINGS, ACK, 0, &[]),
        // HEADERS with padding and priority.
        frame(
            HEADERS,
            END_STREAM | END_HEADERS | PADDED | 0x20,
            1,
            &[&[3, 0, 0, 0, 9, 7], &block(GET)[..], &[0; 3]].concat(),
        ),
    ];
    let events = end.feed(&all.concat()).expect("allowed");
    assert!(matches!(events[..], [Event::Request { end: true, .. }]), "{events:?}");
    assert!(end.written().is_empty());
}

#[test]
fn frames_for_a_stream_that_we_reset_are_ignored_but_counted() {
    let mut end = End::server(Config::default());
    let stream = began(&end.one(&post(1)));
    end.connection.reset(stream, Reason::CANCEL).expect("memory");
    // More than half of the connection's window, so it is returned.
    let data = frame(DATA, 0, 1, &[0; 16_000]).repeat(3);
    assert!(end.feed(&data).expect("allowed").is_empty());
    // The compression state goes on.
    assert!(
        end.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x", "y")])))
            .expect("allowed")
            .is_empty()
    );
    let kinds: Vec<_> = end.written().iter().map(|frame| (frame.kind, frame.stream)).collect();
    assert_eq!(kinds, [(RST_STREAM, 1), (WINDOW_UPDATE, 0)]);
    // A stream that its client has ended is treated differently.
    let mut end = End::server(Config::default());
    end.one(&post(1));
    end.one(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(end.feed(&frame(DATA, 0, 1, &[])).expect_err("closed").problem, Problem::ClosedStream);
}

#[test]
fn more_data_than_a_window_allows_is_an_error() {
    let config = Config { stream_window: 10, ..Config::default() };
    let mut end = End::server(config);
    end.one(&post(1));
    end.one(&frame(DATA, 0, 1, &[0; 10]));
    let event = end.one(&frame(DATA, 0, 1, &[0]));
    assert!(matches!(event, Event::Reset { problem: Some(Problem::StreamWindow), .. }), "{event:?}");
    // Padding counts, and is returned at once.
    let mut end = End::server(config);
    end.one(&post(1));
    for _ in 0..5 {
        let event = end.one(&frame(DATA, PADDED, 1, &[3, b'x', 0, 0, 0]));
        let Event::Data { stream, data, .. } = event else { panic!("{event:?}") };
        assert_eq!(data, b"x");
        end.connection.consume(stream, 1).expect("memory");
    }
    let updates: u32 = end
        .written()
        .iter()
        .filter(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 1))
        .map(|frame| u32::from_be_bytes(frame.payload[..].try_into().expect("four")))
        .sum();
    assert_eq!(updates, 25);
}

/// Feeds a stream `bytes` of data, in the largest frames. Returns the last event.
fn fill(end: &mut End, stream: u32, bytes: usize) -> Option<Event> {
    let data = vec![0; bytes];
    let frames: Vec<u8> = data.chunks(16_384).flat_map(|piece| frame(DATA, 0, stream, piece)).collect();
    end.feed(&frames).expect("the connection's window allows it").pop()
}

#[test]
fn windows_hold_to_the_byte_what_they_say() {
    // Without `tune.h2.*`: 65,535 bytes of a stream, and 1,600 KiB of a connection.
    const CONNECTION: usize = 1_600 << 10;
    let config = Config { connection_window: CONNECTION as u32, ..Config::default() };
    let mut end = End::server(config);
    end.one(&post(1));
    assert!(matches!(fill(&mut end, 1, 65_535), Some(Event::Data { .. })));
    let event = fill(&mut end, 1, 1);
    assert!(matches!(event, Some(Event::Reset { problem: Some(Problem::StreamWindow), .. })), "{event:?}");

    for (connection_window, bytes) in [(config.connection_window, CONNECTION), (0, 65_535)] {
        let mut end = End::server(Config { stream_window: 65_000, connection_window, ..config });
        let mut left = bytes;
        for number in 0.. {
            let (stream, piece) = (2 * number + 1, left.min(65_000));
            end.one(&post(stream));
            assert!(matches!(fill(&mut end, stream, piece), Some(Event::Data { .. })));
            left -= piece;
            if left == 0 {
                let error = end.feed(&frame(DATA, 0, stream, &[0])).expect_err("one byte too much");
                let wanted = (Problem::ConnectionWindow, Reason::FLOW_CONTROL_ERROR);
                assert_eq!((error.problem, error.reason), wanted, "{bytes}");
                break;
            }
        }
    }
}

#[test]
fn data_of_an_incomplete_frame_come_in_parts() {
    const WHOLE: usize = 2 * DATA_PART + 100;
    let mut end = End::server(Config::default());
    end.one(&post(1));
    let sent = frame(DATA, 0, 1, &[7; WHOLE]);
    let parts: Vec<_> = sent
        .iter()
        .enumerate()
        .flat_map(|(at, byte)| end.feed(&[*byte]).expect("allowed").into_iter().map(move |event| (at, event)))
        .map(|(at, event)| {
            let Event::Data { data, .. } = event else { panic!("{event:?}") };
            (at + 1 - (sent.len() - WHOLE), data.len())
        })
        .collect();
    assert_eq!(parts, [(DATA_PART, DATA_PART), (2 * DATA_PART, DATA_PART), (WHOLE, 100)]);
}

#[test]
fn windows_are_announced_when_half_of_them_is_consumed() {
    let mut end = End::server(Config::default());
    let stream = began(&end.one(&post(1)));
    end.feed(&frame(DATA, 0, 1, &[0; 16_384]).repeat(3)).expect("allowed");
    end.connection.consume(stream, 32_766).expect("memory");
    assert!(end.written().is_empty());
    end.connection.consume(stream, 1).expect("memory");
    let updates: Vec<_> =
        end.written().into_iter().map(|frame| (frame.kind, frame.stream, frame.payload)).collect();
    let more = 32_767u32.to_be_bytes().to_vec();
    assert_eq!(updates, [(WINDOW_UPDATE, 1, more.clone()), (WINDOW_UPDATE, 0, more)]);
}

#[test]
fn a_released_stream_tells_of_nothing_and_holds_no_window() {
    let mut end = End::server(Config { stream_window: 20_000, ..Config::default() });
    let stream = began(&end.one(&post(1)));
    end.one(&frame(DATA, 0, 1, &[0; 5_000]));
    end.connection.release(stream).expect("memory");
    for _ in 0..20 {
        assert!(end.feed(&frame(DATA, 0, 1, &[0; 10_000])).expect("allowed").is_empty());
        assert!(end.written().iter().any(|frame| frame.stream == 1));
    }
    assert!(end.feed(&frame(DATA, END_STREAM, 1, &[])).expect("allowed").is_empty());
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.connection.send_response(stream, &head, true).expect("it is open");
    assert_eq!(end.connection.open_streams(), 0);
}

fn answered(end: &mut End, id: u32, body: usize) -> Chain {
    let stream = began(&end.one(&get(id)));
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.connection.send_response(stream, &head, false).expect("it is open");
    let mut data = Chain::new();
    data.append(&vec![0; body]).expect("memory");
    end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("it is open");
    data
}

#[test]
fn a_window_that_settings_made_negative_sends_nothing_until_it_is_positive() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 100))).expect("allowed");
    let mut data = answered(&mut end, 1, 150);
    assert_eq!(data.len(), 50);
    // The window changes from 0 by -60, then by +60, then by +2.
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 40))).expect("allowed");
    assert!(end.feed(&frame(WINDOW_UPDATE, 0, 1, &60u32.to_be_bytes())).expect("allowed").is_empty());
    assert_eq!(end.connection.next_writable(), None);
    end.feed(&frame(WINDOW_UPDATE, 0, 1, &2u32.to_be_bytes())).expect("allowed");
    let stream = end.connection.next_writable().expect("its window is open");
    assert_eq!(end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("open").bytes, 2);
    // Settings can open a window, too.
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 1_000))).expect("allowed");
    assert_eq!(end.connection.next_writable(), Some(stream));
    assert!(end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("open").all);
    // Settings can also overflow a window.
    let mut end = End::server(Config::default());
    end.one(&post(1));
    end.feed(&frame(WINDOW_UPDATE, 0, 1, &0x7fff_0000u32.to_be_bytes())).expect("allowed");
    let error = end.feed(&frame(SETTINGS, 0, 0, &setting(4, 70_000))).expect_err("too large");
    assert_eq!(error.problem, Problem::WindowOverflow);
}

#[test]
fn streams_that_wait_for_the_connection_take_turns() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 1 << 30))).expect("allowed");
    let mut left: Vec<Chain> = [1, 3, 5].map(|id| answered(&mut end, id, 200_000)).into();
    end.written();
    let mut order = Vec::new();
    for _ in 0..6 {
        let update = frame(WINDOW_UPDATE, 0, 0, &16_384u32.to_be_bytes());
        end.feed(&update).expect("allowed");
        while let Some(stream) = end.connection.next_writable() {
            let data = &mut left[stream.number() as usize / 2];
            end.connection.send_data(Duration::ZERO, stream, data, true).expect("it is open");
            order.push(stream.number());
        }
        end.written();
    }
    assert_eq!(order[..6], [1, 3, 5, 1, 3, 5]);
}

#[test]
fn small_answers_of_many_streams_are_one_segment() {
    let mut end = End::server(Config::default());
    for n in 0..20 {
        assert!(answered(&mut end, 2 * n + 1, 30).is_empty());
    }
    let mut out = Chain::new();
    end.connection.poll_output(&mut out).expect("memory");
    let kinds: Vec<_> = frames(&out.to_vec()).iter().map(|frame| frame.kind).collect();
    assert_eq!((kinds, out.segment_count()), ([HEADERS, DATA].repeat(20), 1));
}

#[test]
fn pings_are_answered_and_answers_are_reported() {
    let mut end = End::server(Config::default());
    assert!(end.feed(&frame(PING, 0, 0, b"12345678")).expect("allowed").is_empty());
    let written = end.written();
    assert_eq!((written[0].kind, written[0].flags, &written[0].payload[..]), (PING, ACK, &b"12345678"[..]));
    end.connection.ping(*b"abcdefgh").expect("memory");
    assert_eq!((end.written()[0].kind, end.written().len()), (PING, 0));
    let event = end.one(&frame(PING, ACK, 0, b"abcdefgh"));
    assert!(matches!(event, Event::Pong { payload } if payload == *b"abcdefgh"), "{event:?}");
}

#[test]
fn a_server_leaves_in_two_steps_and_takes_what_is_under_way() {
    let mut end = End::server(Config::default());
    let first = began(&end.one(&get(1)));
    end.connection.shutdown().expect("memory");
    let written = end.written();
    assert_eq!((written[0].kind, &written[0].payload[..4]), (GOAWAY, &0x7fff_ffffu32.to_be_bytes()[..]));
    assert_eq!(written[1].kind, PING);
    // The stream was under way.
    let second = began(&end.one(&get(3)));
    assert!(end.feed(&frame(PING, ACK, 0, &written[1].payload)).expect("allowed").is_empty());
    let written = end.written();
    assert_eq!((written[0].kind, &written[0].payload[..4]), (GOAWAY, &3u32.to_be_bytes()[..]));
    // Later streams are refused without an error; the compression state follows.
    let late = [post(5), frame(DATA, 0, 5, b"x"), frame(RST_STREAM, 0, 5, &[0; 4])];
    assert!(end.feed(&late.concat()).expect("allowed").is_empty());
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    assert!(!end.connection.is_drained() && end.connection.is_leaving());
    for stream in [first, second] {
        end.connection.send_response(stream, &head, true).expect("it is open");
    }
    assert!(end.connection.is_drained());
    // Without an answer, a second call has the same effect.
    let mut end = End::server(Config::default());
    end.connection.shutdown().expect("memory");
    assert!(!end.connection.is_drained());
    end.connection.shutdown().expect("memory");
    assert!(end.connection.is_drained());
    assert_eq!(end.written().iter().filter(|frame| frame.kind == GOAWAY).count(), 2);
}

fn request() -> Head {
    let mut head = Head::request(b"GET", b"/", Version::HTTP_11).expect("a head");
    head.add_field(Known::HOST, b"a").expect("room");
    head
}

#[test]
fn a_client_learns_which_streams_a_leaving_server_has_not_taken() {
    let mut end = End::client(Config::default());
    for _ in 0..3 {
        end.connection.send_request(&request(), b"http", None, true).expect("it may begin");
    }
    let events = end
        .feed(&frame(GOAWAY, 0, 0, &[&1u32.to_be_bytes()[..], &[0; 4], b"see you"].concat()))
        .expect("allowed");
    let reported: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::GoAway { last, reason } => format!("away {last} {reason}"),
            Event::Reset { stream, reason, problem: None } => format!("{stream} {reason}"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reported, ["away 1 NO_ERROR", "3 REFUSED_STREAM", "5 REFUSED_STREAM"]);
    assert!(!end.connection.can_begin());
    assert_eq!(end.connection.send_request(&request(), b"http", None, true), Err(SendError::NoStream));
    end.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[(":status", "200")])));
    assert!(end.connection.is_drained());
}

#[test]
fn a_response_that_is_complete_is_not_reset_any_more() {
    let mut end = End::client(Config::default());
    end.connection.send_request(&request(), b"http", None, true).expect("it may begin");
    end.one(&frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "200")])));
    let event = end.one(&frame(DATA, END_STREAM, 1, &[0; 16_000]));
    let Event::Data { stream, data, end: true } = event else { panic!("{event:?}") };
    // Data that the user still holds counts against the connection's window.
    assert!(end.feed(&frame(RST_STREAM, 0, 1, &[0; 4])).expect("allowed").is_empty());
    assert_eq!(end.connection.open_streams(), 0);
    end.connection.shutdown().expect("memory");
    assert!(!end.connection.is_drained());
    end.connection.consume(stream, data.len()).expect("memory");
    assert!(end.connection.is_drained());
}

#[test]
fn a_client_begins_no_more_streams_than_either_side_allows() {
    let mut end = End::client(Config { max_streams: 3, ..Config::default() });
    let begin = |end: &mut End| end.connection.send_request(&request(), b"http", None, true).is_ok();
    assert_eq!([(); 4].map(|()| begin(&mut end)), [true, true, true, false]);
    end.feed(&frame(SETTINGS, 0, 0, &setting(3, 2))).expect("allowed");
    let answer = |id| frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&[(":status", "200")]));
    end.one(&answer(1));
    assert!(!begin(&mut end));
    end.one(&answer(3));
    assert!(begin(&mut end) && !begin(&mut end));
    assert_eq!((end.connection.open_streams(), end.connection.peer_max_streams()), (2, 2));
}

#[test]
fn a_server_refuses_streams_beyond_its_bound() {
    for (config, most) in [(Config { max_streams: 2, ..Config::default() }, 2), (Config::default(), 100)] {
        let mut end = End::server(config);
        for number in 0..most {
            assert!(matches!(end.one(&post(2 * number + 1)), Event::Request { .. }));
        }
        let event = end.one(&post(2 * most + 1));
        assert!(matches!(event, Event::Refused { problem: Problem::TooManyStreams, .. }), "{event:?}");
        assert_eq!(end.written()[0].payload, Reason::REFUSED_STREAM.code().to_be_bytes());
        end.one(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        assert!(matches!(end.one(&post(2 * most + 3)), Event::Request { .. }));
    }
}

#[test]
fn a_stream_whose_end_the_client_has_seen_does_not_count() {
    let mut end = End::server(Config { max_streams: 1, ..Config::default() });
    let stream = began(&end.one(&post(1)));
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.connection.send_response(stream, &head, true).expect("it is open");
    end.written();
    // The client has seen the end. Other waiting output makes no difference.
    let next = [frame(PING, 0, 0, &[0; 8]), frame(DATA, END_STREAM, 1, &[]), get(3)];
    let events = end.feed(&next.concat()).expect("allowed");
    assert!(matches!(events[..], [Event::Data { .. }, Event::Request { .. }]), "{events:?}");
}

#[test]
fn settings_of_ours_hold_when_they_are_acknowledged() {
    let mut end = End::fresh_server(Config { stream_window: 10, table: 0, ..Config::default() });
    end.now = Duration::from_secs(3);
    end.feed(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).expect("allowed");
    assert_eq!(end.connection.settings_unacknowledged_since(), Some(Duration::ZERO));
    // The client has not seen the server's settings: its window is the default one.
    end.one(&post(1));
    end.one(&frame(DATA, 0, 1, &[0; 1_000]));
    end.feed(&frame(SETTINGS, ACK, 0, &[])).expect("allowed");
    assert_eq!(end.connection.settings_unacknowledged_since(), None);
    let event = end.one(&frame(DATA, 0, 1, &[0]));
    assert!(matches!(event, Event::Reset { problem: Some(Problem::StreamWindow), .. }), "{event:?}");
    // The client has to empty its table, too.
    let error = end.feed(&get(3)).expect_err("no change of the table");
    assert_eq!(error.problem, Problem::Compression);
}

#[test]
fn an_aborted_connection_says_why_and_does_nothing_more() {
    let mut end = End::server(Config::default());
    let stream = began(&end.one(&get(1)));
    end.connection.abort(Reason::SETTINGS_TIMEOUT);
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    assert_eq!(end.connection.send_response(stream, &head, true), Err(SendError::Failed));
    assert_eq!(end.feed(&get(3)).expect_err("over").reason, Reason::SETTINGS_TIMEOUT);
    let written = end.written();
    assert_eq!((written.len(), written[0].kind), (1, GOAWAY));
    assert_eq!(written[0].payload, [1u32.to_be_bytes(), 4u32.to_be_bytes()].concat());
}

/// Creates a request of HTTP/1 that asks for an upgrade to HTTP/2.
fn asks_for_h2c(method: &[u8], fields: &[(&str, &str)]) -> Head {
    let mut head = Head::request(method, b"/", Version::HTTP_11).expect("a head");
    for (name, value) in fields {
        head.add_field(*name, value.as_bytes()).expect("room");
    }
    head
}

const UPGRADE: [(&str, &str); 3] =
    [("Upgrade", "h2c"), ("Connection", "Upgrade, HTTP2-Settings"), ("HTTP2-Settings", "AAQAAAAD")];

#[test]
fn a_request_of_http_1_becomes_stream_1() {
    let head = asks_for_h2c(b"GET", &UPGRADE);
    let upgraded = Connection::upgraded(Config::default(), Duration::ZERO, &head).expect("memory");
    let (connection, stream) = upgraded.expect("it asks as it has to");
    let mut end = End { connection, now: Duration::ZERO, input: Chain::new(), decoder: Decoder::new(4096) };
    let mut out = Chain::new();
    end.connection.poll_output(&mut out).expect("memory");
    let out = out.to_vec();
    let behind = out.strip_prefix(
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n".as_slice(),
    );
    assert_eq!(frames(behind.expect("the response comes first"))[0].kind, SETTINGS);
    // Its window is that of the `HTTP2-Settings` field.
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.connection.send_response(stream, &head, false).expect("it is open");
    let mut data = Chain::new();
    data.append(b"hello").expect("memory");
    let sent = end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("it is open");
    assert_eq!((stream.number(), sent.bytes, sent.all), (1, 3, false));
    end.feed(PREFACE).expect("the preface");
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 4))).expect("settings");
    assert_eq!(end.connection.next_writable(), Some(stream));
    end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("it is open");
    end.feed(&frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes())).expect("it is open");
    assert_eq!(end.connection.next_writable(), Some(stream));
    end.connection.send_data(Duration::ZERO, stream, &mut data, true).expect("it is open");
    assert_eq!(end.connection.open_streams(), 0);
    assert_eq!(began(&end.one(&get(3))).number(), 3);
    // No more data may come on the ended stream.
    let error = end.feed(&frame(DATA, 0, 1, b"x")).expect_err("its sender has ended it");
    assert_eq!(error.problem, Problem::ClosedStream);
}

#[test]
fn a_request_that_does_not_ask_as_it_has_to_is_not_upgraded() {
    let [upgrade, connection, settings] = UPGRADE;
    for fields in [
        &[connection, settings][..],
        &[upgrade, settings],
        &[upgrade, connection],
        &[("Upgrade", "h2"), connection, settings],
        &[upgrade, ("Connection", "Upgrade"), settings],
        &[upgrade, connection, settings, settings],
        &[upgrade, connection, ("HTTP2-Settings", "AAQAAAA")],
        &[upgrade, connection, ("HTTP2-Settings", "AAQAAAA=")],
        &[upgrade, connection, ("HTTP2-Settings", "AAT_____")],
    ] {
        let head = asks_for_h2c(b"GET", fields);
        let upgraded = Connection::upgraded(Config::default(), Duration::ZERO, &head).expect("memory");
        assert!(upgraded.is_none(), "{fields:?}");
    }
}

#[test]
fn a_smaller_window_of_streams_holds_when_it_is_acknowledged() {
    let mut end = End::fresh_server(Config { stream_window: 10, ..Config::default() });
    end.feed(PREFACE).expect("the preface");
    end.feed(&frame(SETTINGS, 0, 0, &[])).expect("settings");
    end.written();
    let stream = began(&end.one(&post(1)));
    let data = |id, len| frame(DATA, 0, id, &vec![0; len]);
    end.one(&data(1, 1_000)); // the peer does not know the setting yet
    end.one(&frame(SETTINGS, ACK, 0, &[]).into_iter().chain(post(3)).collect::<Vec<_>>());
    // The window of the first stream is at -990 bytes.
    end.connection.consume(stream, 1_000).expect("it is open");
    assert!(end.written().iter().all(|frame| frame.kind == WINDOW_UPDATE));
    let event = end.one(&data(3, 11));
    let Event::Reset { problem, .. } = event else { panic!("{event:?}") };
    assert_eq!(problem, Some(Problem::StreamWindow));
}

#[test]
fn the_smallest_table_of_a_frame_of_settings_is_signalled() {
    let mut end = End::server(Config::default());
    let sizes = [setting(1, 100), setting(1, 0), setting(1, 4_096)].concat();
    end.feed(&frame(SETTINGS, 0, 0, &sizes)).expect("allowed");
    end.one(&get(1));
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.written();
    end.connection.send_response(end_stream(), &head, true).expect("it is open");
    // 0, then 4,096: 0x3f 0xe1 0x1f.
    assert!(end.written()[0].payload.starts_with(&[0x20, 0x3f, 0xe1, 0x1f]));
}

#[test]
fn a_stream_whose_window_opens_and_closes_waits_once() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 1 << 20))).expect("allowed");
    // It waits for the connection's window.
    let mut data = answered(&mut end, 1, 100_000);
    for _ in 0..100 {
        end.feed(&frame(SETTINGS, 0, 0, &setting(4, 0))).expect("allowed");
        end.connection.send_data(end.now, end_stream(), &mut data, true).expect("it is open");
        end.feed(&frame(SETTINGS, 0, 0, &setting(4, 1 << 20))).expect("allowed");
        end.written();
    }
    end.feed(&frame(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes())).expect("allowed");
    assert_eq!(end.connection.turns(), 1);
}

/// Returns the first stream.
fn end_stream() -> manylane_h2::StreamId {
    began(&End::server(Config::default()).one(&get(1)))
}
