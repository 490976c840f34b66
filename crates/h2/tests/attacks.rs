//! Each bound on the work that a peer can cause: the largest allowed amount, and the one that ends the
//! connection.
#![cfg(not(any(loom, manylane_sim)))]

mod support;

use manylane_buf::Chain;
use manylane_h2::{
    CHEAP_BURST, CHEAP_PER_SECOND, Config, Connection, ConnectionError, Counts, DEFAULT_WINDOW, Event,
    Glitch, LATE_FRAMES, MAX_ANSWERS, MAX_CONTINUATIONS, MAX_KEPT, MAX_LATE_FRAMES, MAX_OUTPUT,
    MAX_REMEMBERED, OUTPUT_ROOM, PREFACE, Problem, RESET_BURST, RESETS_PER_SECOND, Reason, Violation,
};
use manylane_http::{Head, Version};
use std::time::Duration;
use support::*;

/// Feeds the bytes that `bytes` makes until the connection ends. Returns the number of calls and the problem.
fn until_it_ends(end: &mut End, mut bytes: impl FnMut(u32) -> Vec<u8>) -> (u32, Problem) {
    for n in 0..100_000 {
        if let Err(ConnectionError { problem, reason }) = end.feed(&bytes(n)) {
            let goaway = end.written().pop().expect("a GOAWAY");
            assert_eq!((goaway.kind, &goaway.payload[4..]), (GOAWAY, &reason.code().to_be_bytes()[..]));
            return (n, problem);
        }
        end.written();
    }
    panic!("it never ends");
}

#[test]
fn rapid_reset_ends_the_connection() {
    let mut end = End::server(Config::default());
    let flood = |n: u32| [get(2 * n + 1), frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes())].concat();
    assert_eq!(until_it_ends(&mut end, flood), (RESET_BURST, Problem::Resets));
    assert_eq!(end.connection.glitches().of(Glitch::Reset), RESET_BURST + 1);
    assert_eq!(end.connection.open_streams(), 0);
}

#[test]
fn a_client_that_resets_now_and_then_stays() {
    let mut end = End::server(Config::default());
    for n in 0..10 * RESET_BURST {
        end.now += Duration::from_secs(1) / RESETS_PER_SECOND;
        end.feed(&[get(2 * n + 1), frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes())].concat())
            .expect("allowed");
    }
}

#[test]
fn made_you_reset_ends_the_connection() {
    for fault in [
        |id: u32| frame(WINDOW_UPDATE, 0, id, &0u32.to_be_bytes()),
        |id: u32| frame(WINDOW_UPDATE, 0, id, &0x7fff_ffffu32.to_be_bytes()),
        |id: u32| frame(PRIORITY, 0, id, &[0, 0, 0, 1]),
        |id: u32| frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&[("X", "y")])),
        |id: u32| frame(DATA, END_STREAM, id, &[0; 7]),
    ] {
        let mut end = End::server(Config::default());
        let head = block(&[POST, &[("content-length", "5")]].concat());
        let flood = |n: u32| [frame(HEADERS, END_HEADERS, 2 * n + 1, &head), fault(2 * n + 1)].concat();
        assert_eq!(until_it_ends(&mut end, flood), (RESET_BURST, Problem::Resets));
    }
}

#[test]
fn a_header_block_without_end_ends_the_connection() {
    // Too many frames.
    let mut end = End::server(Config::default());
    end.feed(&frame(HEADERS, END_STREAM, 1, &block(GET))).expect("allowed");
    let (n, problem) = until_it_ends(&mut end, |_| frame(CONTINUATION, 0, 1, &[]));
    assert_eq!((n, problem), (MAX_CONTINUATIONS, Problem::ContinuationFlood));
    assert!(end.connection.glitches().of(Glitch::Continuation) >= MAX_CONTINUATIONS);
    // Too many bytes.
    let mut end = End::server(Config::default());
    end.feed(&frame(HEADERS, END_STREAM, 1, &block(GET))).expect("allowed");
    let (n, problem) = until_it_ends(&mut end, |_| frame(CONTINUATION, 0, 1, &[0x82; 16_000]));
    assert_eq!((n, problem), (1, Problem::TooLargeBlock));
    // As many as the largest head has, and one frame more; and a byte beyond that.
    let most = Config::default().head + 16_384;
    for (bytes, problem) in [(most, None), (most + 1, Some(Problem::TooLargeBlock))] {
        let mut end = End::server(Config::default());
        let first = block(GET);
        end.feed(&frame(HEADERS, END_STREAM, 1, &first)).expect("allowed");
        end.feed(&frame(CONTINUATION, 0, 1, &[0x82; 16_384])).expect("allowed");
        let last = frame(CONTINUATION, 0, 1, &vec![0x82; bytes - 16_384 - first.len()]);
        assert_eq!(end.feed(&last).err().map(|error| error.problem), problem, "{bytes}");
    }
}

#[test]
fn floods_of_cheap_frames_end_the_connection() {
    type Make = fn(u32) -> Vec<u8>;
    let floods: [(&str, Make); 8] = [
        ("PING", |_| frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", |n| frame(SETTINGS, 0, 0, &setting(4, n))),
        ("acknowledgements", |_| frame(SETTINGS, ACK, 0, &[])),
        ("PRIORITY", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", |_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())),
        ("DATA", |_| frame(DATA, 0, 1, &[])),
        ("padded DATA", |_| frame(DATA, PADDED, 1, &[0])),
        ("unknown", |_| frame(77, 0, 0, &[])),
    ];
    for (name, flood) in floods {
        let mut end = End::server(Config::default());
        end.one(&post(1));
        let (n, problem) = until_it_ends(&mut end, flood);
        assert_eq!((n, problem), (CHEAP_BURST, Problem::CheapFrames), "{name}");
        assert_eq!(end.connection.glitches().of(Glitch::CheapFrame), CHEAP_BURST / 2, "{name}");
    }
}

#[test]
fn interim_responses_without_end_end_the_connection() {
    let mut end = End::client(Config::default());
    let mut head = Head::request(b"GET", b"/", Version::HTTP_11).expect("a head");
    head.add_field("Host", b"a").expect("room");
    end.connection.send_request(&head, b"http", None, true).expect("it may begin");
    let interim = frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "103")]));
    assert_eq!(until_it_ends(&mut end, |_| interim.clone()), (CHEAP_BURST, Problem::CheapFrames));
}

#[test]
fn cheap_frames_at_a_rate_that_is_allowed_go_on() {
    let mut end = End::server(Config::default());
    for _ in 0..5 * CHEAP_BURST {
        end.now += Duration::from_secs(1) / CHEAP_PER_SECOND;
        end.feed(&frame(PING, 0, 0, &[0; 8])).expect("allowed");
        assert_eq!(end.written().len(), 1);
    }
    assert_eq!(end.connection.glitches().total(), 0);
}

#[test]
fn answers_that_nobody_reads_end_the_connection() {
    let mut end = End::server(Config::default());
    let mut pings = 0;
    let problem = loop {
        end.now += Duration::from_secs(1) / CHEAP_PER_SECOND;
        pings += 1;
        if let Err(error) = end.feed(&frame(PING, 0, 0, &[0; 8])) {
            break error.problem;
        }
    };
    assert_eq!((pings, problem), (MAX_ANSWERS / 17 + 1, Problem::UnreadAnswers));
    assert!(end.connection.output_len() <= MAX_ANSWERS + 17);
}

fn respond(connection: &mut Connection, event: &Event, body: usize) {
    let Event::Request { stream, .. } = event else { panic!("{event:?}") };
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    connection.send_response(*stream, &head, body == 0).expect("it is open");
    let mut data = Chain::new();
    data.append(&vec![0; body]).expect("memory");
    connection.send_data(Duration::ZERO, *stream, &mut data, true).ok();
}

#[test]
fn who_does_not_read_responses_gets_no_more_streams_than_allowed() {
    let mut end = End::server(Config { max_streams: 10, ..Config::default() });
    let mut refused = 0;
    for n in 0..30 {
        for event in end.feed(&get(2 * n + 1)).expect("allowed") {
            match event {
                Event::Refused { problem, .. } => {
                    assert_eq!(problem, Problem::TooManyStreams);
                    refused += 1;
                }
                event => respond(&mut end.connection, &event, 0),
            }
        }
    }
    // All were answered; streams whose end the client has not seen count as open.
    assert_eq!((end.connection.open_streams(), refused), (0, 20));
    end.written();
    assert!(matches!(end.one(&get(101)), Event::Request { .. }));
}

#[test]
fn output_is_bounded_and_input_waits_for_it() {
    let mut end = End::server(Config { max_streams: 100_000, ..Config::default() });
    end.feed(&frame(WINDOW_UPDATE, 0, 0, &0x7000_0000u32.to_be_bytes())).expect("allowed");
    let mut n = 0;
    loop {
        let events = end.feed(&get(2 * n + 1)).expect("allowed");
        let Some(event) = events.first() else { break };
        respond(&mut end.connection, event, 10_000);
        n += 1;
    }
    assert!(end.connection.output_len() >= MAX_OUTPUT && !end.input.is_empty());
    assert!(end.connection.output_len() < MAX_OUTPUT + 100);
    // Data stopped at its own bound; the bytes beyond it are heads.
    let data: usize = end.written().iter().filter(|f| f.kind == DATA).map(|f| f.payload.len() + 9).sum();
    assert!(data <= OUTPUT_ROOM, "{data}");
    assert!(!end.feed(&[]).expect("allowed").is_empty(), "it goes on when output was taken");
}

/// Of a large body three whole frames wait to be taken, and a fourth does not join them.
#[test]
fn data_that_nobody_reads_is_bounded() {
    const FRAME: usize = 9 + 16_384;
    assert_eq!(OUTPUT_ROOM, 3 * FRAME + 2048);
    let mut end = End::server(Config::default());
    end.feed(
        &[frame(SETTINGS, 0, 0, &setting(4, 1 << 30)), frame(WINDOW_UPDATE, 0, 0, &[0x40, 0, 0, 0])].concat(),
    )
    .expect("allowed");
    end.written();
    let event = end.one(&get(1));
    respond(&mut end.connection, &event, 100_000);
    let data: Vec<_> = end.written().iter().filter(|f| f.kind == DATA).map(|f| f.payload.len()).collect();
    assert_eq!(data, [16_384; 3]);
}

#[test]
fn a_bomb_of_headers_costs_no_more_than_its_bytes() {
    // An entry of nearly the whole table and 10 references to it: these are decoded and not stored. Of 12,000
    // references, which would make 48 MB, most are not even decoded.
    let mut end = End::server(Config::default());
    let value = "y".repeat(4_000);
    let mut bomb = Vec::new();
    let mut encoder = manylane_h2::hpack::Encoder::default();
    for (name, value) in GET {
        encoder.field(name.as_bytes(), value.as_bytes(), manylane_h2::hpack::Indexing::Without, &mut bomb);
    }
    bomb.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    bomb.extend_from_slice(value.as_bytes());
    let small = bomb.len();
    bomb.resize(small + 10, 0xbe);
    let event = end.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb));
    assert!(matches!(event, Event::TooLarge { .. }), "{event:?}");
    assert_eq!(end.connection.glitches().of(Glitch::LargeHead), 1);
    bomb.resize(small + 12_000, 0xbe);
    let mut end = End::server(Config::default());
    let error = end.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)).expect_err("a bomb");
    assert_eq!((error.problem, error.reason), (Problem::DecodedBlock, Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn tables_that_grow_and_shrink_beyond_the_rules_end_the_connection() {
    let mut end = End::server(Config::default());
    let block = [&[0x20, 0x20, 0x20][..], &block(GET)].concat();
    let error = end.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).expect_err("three changes");
    assert_eq!((error.problem, error.reason), (Problem::Compression, Reason::COMPRESSION_ERROR));
}

#[test]
fn more_settings_than_there_are_end_the_connection() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(77, 1).repeat(64))).expect("allowed");
    let error = end.feed(&frame(SETTINGS, 0, 0, &setting(77, 1).repeat(65))).expect_err("too many");
    assert_eq!(error.problem, Problem::TooManySettings);
}

#[test]
fn the_threshold_of_glitches_ends_the_connection() {
    let mut end = End::server(Config { glitches: 3, ..Config::default() });
    let bad = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &block(&[("X", "y")]));
    assert_eq!(until_it_ends(&mut end, bad), (2, Problem::Glitches));
}

#[test]
fn a_tolerant_connection_counts_glitches_and_goes_on_until_it_is_not() {
    let mut end = End::server(Config { glitches: 3, ..Config::default() });
    end.connection.set_tolerant(true);
    let bad = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &block(&[("X", "y")]));
    (0..5).for_each(|n| drop(end.feed(&bad(n)).expect("tolerated")));
    assert_eq!(end.connection.glitches().total(), 5);
    end.connection.set_tolerant(false);
    let error = end.feed(&bad(5)).expect_err("it is at the threshold");
    assert_eq!((error.problem, error.reason), (Problem::Glitches, Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn a_turn_has_so_many_frames_and_so_many_resets() {
    let mut end = End::server(Config { frames_at_once: 4, resets_at_once: 2, ..Config::default() });
    end.connection.begin_turn();
    let ping = frame(PING, 0, 0, &[1; 8]);
    end.feed(&ping.repeat(6)).expect("allowed");
    assert!(end.connection.is_turn_over());
    assert_eq!((end.written().len(), end.input.len()), (4, 2 * ping.len()));
    end.connection.begin_turn();
    end.feed(&[]).expect("allowed");
    assert_eq!((end.written().len(), end.input.len(), end.connection.is_turn_over()), (2, 0, false));

    end.connection.begin_turn();
    assert_eq!(end.feed(&[get(1), get(3), get(5)].concat()).expect("allowed").len(), 3);
    end.connection.begin_turn();
    let reset = |stream| frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
    let all = [reset(1), reset(3), reset(5)].concat();
    assert_eq!(end.feed(&all).expect("allowed").len(), 2);
    assert!(end.connection.is_turn_over());
    end.connection.begin_turn();
    assert_eq!(end.feed(&[]).expect("allowed").len(), 1);
}

#[test]
fn streams_that_the_peer_has_reset_count_as_resets_of_a_turn() {
    let mut end = End::server(Config { resets_at_once: 2, ..Config::default() });
    end.connection.begin_turn();
    let fault = |id| [get(id), frame(WINDOW_UPDATE, 0, id, &[0; 4])].concat();
    let events = end.feed(&[fault(1), fault(3), fault(5)].concat()).expect("allowed");
    let reset = |event: &&Event| matches!(event, Event::Reset { problem: Some(_), .. });
    assert_eq!((events.len(), events.iter().filter(reset).count()), (4, 2));
    assert!(end.connection.has_reset_enough() && end.connection.is_turn_over());
    end.connection.begin_turn();
    assert_eq!(end.feed(&[]).expect("allowed").len(), 2);
    assert!(end.input.is_empty() && !end.connection.has_reset_enough());
}

#[test]
fn the_last_frame_that_broke_a_rule_is_kept_until_it_is_taken() {
    let mut end = End::server(Config::default());
    let of = |end: &mut End| {
        let Violation { problem, frame, flags, stream, len, bytes } = *end.connection.take_violation()?;
        assert!(end.connection.take_violation().is_none());
        Some((problem, frame, flags, stream, len, bytes))
    };
    end.feed(&get(1)).expect("allowed");
    assert!(of(&mut end).is_none());
    // A header block in two frames is one; that of the other stream came before.
    let bad = block(&[("X", "y")]);
    let (first, second) = bad.split_at(3);
    let frames = [
        frame(HEADERS, END_STREAM | END_HEADERS, 3, &bad),
        frame(HEADERS, END_STREAM, 5, first),
        frame(CONTINUATION, END_HEADERS, 5, second),
    ];
    end.feed(&frames.concat()).expect("of streams");
    let kept = of(&mut end);
    assert_eq!(kept, Some((Problem::UpperCase, "HEADERS", 5, 5, bad.len(), bad.clone())));
    end.feed(&frame(DATA, END_STREAM, 1, b"abc")).expect("of a stream");
    assert_eq!(of(&mut end), Some((Problem::ClosedStream, "DATA", 1, 1, 3, vec![])));
    end.feed(&get(7)).expect("allowed");
    end.feed(&frame(WINDOW_UPDATE, 0, 7, &[0; 4])).expect("of a stream");
    assert_eq!(of(&mut end), Some((Problem::ZeroUpdate, "WINDOW_UPDATE", 0, 7, 4, vec![0; 4])));
    end.feed(&frame(PING, 9, 0, b"7 bytes")).expect_err("of the connection");
    assert_eq!(of(&mut end), Some((Problem::FrameSize, "PING", 9, 0, 7, b"7 bytes".to_vec())));

    // Of a frame that is refused by its header, nothing is read.
    let mut end = End::server(Config::default());
    end.feed(&frame(HEADERS, END_STREAM, 1, first)).expect("a part");
    end.feed(&frame(PING, 0, 0, &[1; 8])).expect_err("amid a header block");
    assert_eq!(of(&mut end), Some((Problem::Interrupted, "PING", 0, 0, 8, vec![])));
    // Only so much of a large one is kept.
    let mut end = End::server(Config { head: 3 * MAX_KEPT, ..Config::default() });
    let large = vec![0xff; MAX_KEPT];
    let frames = [frame(HEADERS, 0, 1, &large), frame(CONTINUATION, END_HEADERS, 1, &large)];
    end.feed(&frames.concat()).expect_err("it cannot be decompressed");
    let (problem, .., len, bytes) = of(&mut end).expect("kept");
    assert_eq!((problem, len, bytes.len()), (Problem::Compression, 2 * MAX_KEPT, MAX_KEPT));
}

#[test]
fn what_came_and_what_went_wrong_is_counted_once() {
    let mut end = End::fresh_server(Config::default());
    end.feed(PREFACE).expect("the preface");
    end.feed(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat()).expect("settings");
    let open = frame(HEADERS, END_HEADERS, 1, &block(GET));
    let bad = frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&[("X", "y")]));
    end.feed(&[open, frame(DATA, 0, 1, b"a"), frame(DATA, 0, 1, b"b"), bad].concat()).expect("allowed");
    end.feed(&frame(RST_STREAM, 0, 1, &8u32.to_be_bytes())).expect("allowed");
    let expected = Counts {
        headers: 2,
        data: 2,
        settings: 2,
        rst_stream: 1,
        stream_errors: 1,
        rst_stream_sent: 1,
        refused: 1,
        ..Counts::default()
    };
    assert_eq!(end.connection.take_counts(), expected);
    assert_eq!(end.connection.take_counts(), Counts::default());
    end.feed(&frame(GOAWAY, 0, 0, &[0; 8])).expect("allowed");
    end.feed(&frame(DATA, 0, 99, b"a")).expect_err("no such stream");
    let expected = Counts { goaway: 1, connection_errors: 1, goaway_sent: 1, ..Counts::default() };
    assert_eq!(end.connection.take_counts(), expected);
    // Streams that this side resets count for no glitch.
    let mut end = End::server(Config::default());
    end.connection.take_counts();
    end.connection.abort(Reason::SETTINGS_TIMEOUT);
    assert_eq!(end.connection.take_counts(), Counts::default());
}

#[test]
fn a_peer_that_opens_no_window_is_reported() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(4, 0))).expect("allowed");
    end.now = Duration::from_secs(5);
    let event = end.one(&get(1));
    let stream = began(&event);
    let head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    end.connection.send_response(stream, &head, false).expect("it is open");
    let mut data = Chain::new();
    data.append(b"hello").expect("memory");
    assert_eq!(end.connection.room(end.now, stream), 0);
    let sent = end.connection.send_data(end.now, stream, &mut data, true).expect("it is open");
    assert_eq!((sent.bytes, sent.all, end.connection.blocked_since(stream)), (0, false, Some(end.now)));
    end.feed(&frame(WINDOW_UPDATE, 0, 1, &5u32.to_be_bytes())).expect("allowed");
    assert_eq!(end.connection.next_writable(), Some(stream));
    assert!(end.connection.send_data(end.now, stream, &mut data, true).expect("it is open").all);
    assert_eq!(end.connection.blocked_since(stream), None);
}

#[test]
fn a_block_that_names_a_large_entry_again_and_again_is_not_decoded() {
    // One entry of 3,900 bytes, then fields of a byte or two that name it: the entry as it is, or its name
    // with an empty value, with and without adding to the table.
    for (first, repeated) in [(0x40, &b"\xbe"[..]), (0x40, b"\x7e\x00"), (0x40, b"\x0f\x2f\x00")] {
        let mut block = block(GET);
        block.extend_from_slice(&[first, 0x7f, 0xbd, 0x1d]);
        block.extend_from_slice(&[b'x'; 3_900]);
        block.extend_from_slice(&[1, b'y']);
        block.extend(repeated.repeat(100));
        let mut end = End::server(Config::default());
        let error = end.feed(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)).expect_err("too much");
        let wanted = (Problem::DecodedBlock, Reason::ENHANCE_YOUR_CALM);
        assert_eq!((error.problem, error.reason), wanted);
    }
    // A head that is a little too large gets an answer.
    let large = "x".repeat(4_000);
    let fields: Vec<(&str, &str)> = (0..5).map(|_| ("x-large", &*large)).collect();
    let mut end = End::server(Config::default());
    let bytes = block(&[GET, &fields].concat());
    let (head, rest) = bytes.split_at(16_000);
    let first = frame(HEADERS, END_STREAM, 1, head);
    let both = [first, frame(CONTINUATION, END_HEADERS, 1, rest)].concat();
    assert!(matches!(end.one(&both), Event::TooLarge { .. }));
}

/// Sends a request from `end`, which is the client.
fn ask(end: &mut End, whole: bool) -> manylane_h2::StreamId {
    let mut head = Head::request(b"POST", b"/", Version::HTTP_11).expect("a head");
    head.add_field("Host", b"a").expect("room");
    let stream = end.connection.send_request(&head, b"http", None, whole).expect("it may begin");
    end.written();
    stream
}

#[test]
fn data_of_a_stream_that_we_reset_is_no_attack() {
    let answer = frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "200")]));
    for data in [true, false] {
        let mut end = End::client(Config::default());
        let stream = ask(&mut end, true);
        end.feed(&answer).expect("allowed");
        end.connection.reset(stream, Reason::CANCEL).expect("it is open");
        if data {
            for _ in 0..5 * CHEAP_BURST {
                end.feed(&frame(DATA, 0, 1, b"x")).expect("it was on its way");
                end.written();
            }
            assert_eq!(end.connection.glitches().total(), 0);
            // Data that was dropped takes nothing from the connection's window.
            let most = [vec![0; 16_384], vec![0; 16_384], vec![0; 16_384]];
            for data in most {
                end.feed(&frame(DATA, 0, 1, &data)).expect("there is room");
                end.written();
            }
            // Nothing else was left of the stream's window.
            let left = DEFAULT_WINDOW - 5 * CHEAP_BURST - 3 * 16_384;
            let flood = |_| frame(DATA, 0, 1, &[0; 1000]);
            let most = left / 1000 + LATE_FRAMES + CHEAP_BURST;
            assert_eq!(until_it_ends(&mut end, flood), (most, Problem::CheapFrames));
        } else {
            let flood = |_| frame(DATA, 0, 1, &[]);
            assert_eq!(until_it_ends(&mut end, flood), (LATE_FRAMES + CHEAP_BURST, Problem::CheapFrames));
        }
    }
}

/// However many streams a client resets, no more data may be under way than the connection's window holds.
#[test]
fn data_that_is_expected_late_is_bounded() {
    let mut end = End::client(Config::default());
    for _ in 0..2 * MAX_REMEMBERED {
        let stream = ask(&mut end, true);
        end.connection.reset(stream, Reason::CANCEL).expect("it is open");
        end.written();
    }
    let flood = |_| frame(DATA, 0, 1, &[0; 1000]);
    let frames = 2 * MAX_REMEMBERED as u32 * LATE_FRAMES;
    let most = DEFAULT_WINDOW / 1000 + frames + CHEAP_BURST;
    assert_eq!(until_it_ends(&mut end, flood), (most, Problem::CheapFrames));
}

/// Other clients have streams on the same connection.
#[test]
fn what_comes_late_for_streams_that_we_reset_is_no_attack() {
    let head = block(&[(":status", "200")]);
    let mut end = End::client(Config::default());
    let ids = || (1..).step_by(2).take(2 * CHEAP_BURST as usize);
    for _ in ids() {
        let stream = ask(&mut end, true);
        end.connection.reset(stream, Reason::CANCEL).expect("it is open");
        end.written();
    }
    for id in ids() {
        let answer = [
            frame(HEADERS, END_HEADERS, id, &head),
            frame(DATA, END_STREAM, id, &[]),
            frame(RST_STREAM, 0, id, &8u32.to_be_bytes()),
        ];
        end.feed(&answer.concat()).expect("it was on its way");
        end.written();
    }
    assert_eq!(end.connection.glitches().total(), 0);
    let flood = |_| frame(RST_STREAM, 0, 1, &8u32.to_be_bytes());
    assert_eq!(until_it_ends(&mut end, flood), (CHEAP_BURST, Problem::CheapFrames));
}

#[test]
fn frames_that_are_expected_late_are_bounded() {
    let mut end = End::client(Config::default());
    for _ in 0..MAX_LATE_FRAMES / LATE_FRAMES + 10 {
        let stream = ask(&mut end, true);
        end.connection.reset(stream, Reason::CANCEL).expect("it is open");
        end.written();
    }
    let flood = |_| frame(RST_STREAM, 0, 1, &8u32.to_be_bytes());
    assert_eq!(until_it_ends(&mut end, flood), (MAX_LATE_FRAMES + CHEAP_BURST, Problem::CheapFrames));
}

#[test]
fn broken_responses_end_their_streams_alone() {
    let bad = block(&[(":status", "200"), ("connection", "close")]);
    let mut end = End::client(Config::default());
    let mut ids = (1..).step_by(2);
    for id in ids.by_ref().take(500) {
        let stream = ask(&mut end, true);
        let event = end.one(&frame(HEADERS, END_HEADERS | END_STREAM, id, &bad));
        assert!(matches!(event, Event::Reset { stream: own, problem: Some(_), .. } if own == stream));
        let reset = end.written();
        assert_eq!((reset[0].kind, reset[0].stream), (RST_STREAM, id));
    }
    // The connection goes on.
    let id = ids.next().expect("there are more");
    ask(&mut end, true);
    let good = frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&[(":status", "204")]));
    assert!(matches!(end.one(&good), Event::Response { .. }));
    // On a server's connection, broken requests count: only one client uses it.
    let mut end = End::server(Config::default());
    let bad = block(&[GET, &[("connection", "close")]].concat());
    let flood = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &bad);
    assert_eq!(until_it_ends(&mut end, flood), (RESET_BURST, Problem::Resets));
}

/// A server that announces each piece that it reads, however small, updates two windows.
#[test]
fn updates_of_windows_for_small_pieces_are_no_attack() {
    let mut end = End::client(Config::default());
    let stream = ask(&mut end, false);
    let one = 1u32.to_be_bytes();
    let updates = [frame(WINDOW_UPDATE, 0, 0, &one), frame(WINDOW_UPDATE, 0, 1, &one)].concat();
    for _ in 0..5 * CHEAP_BURST {
        let mut data = Chain::new();
        data.append(b"x").expect("memory");
        assert!(end.connection.send_data(end.now, stream, &mut data, false).expect("it is open").all);
        end.written();
        end.feed(&updates).expect("allowed");
    }
    assert_eq!(end.connection.glitches().total(), 0);
    // A third is one too many.
    let three = [updates, frame(WINDOW_UPDATE, 0, 0, &one)].concat();
    let mut problem = None;
    for _ in 0..5 * CHEAP_BURST {
        let mut data = Chain::new();
        data.append(b"x").expect("memory");
        end.connection.send_data(end.now, stream, &mut data, false).expect("it is open");
        end.written();
        if let Err(error) = end.feed(&three) {
            problem = Some(error.problem);
            break;
        }
    }
    assert_eq!(problem, Some(Problem::CheapFrames));
}
