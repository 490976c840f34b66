//! Connections whose both ends are this crate's: concurrent streams, ends, and timeouts.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::Chain;
use manylane_http::Known;
use manylane_mux::h2::{
    Config, Conn, ConnEnd, ConnTimeouts, Incoming, MAX_INTERIM, Mux, Problem, Reason, Received, ResponseHead,
    SendError, Stream, StreamError,
};
use manylane_net::{Connection, LocalStream};
use manylane_sched::Here;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

const NONE: ConnTimeouts = ConnTimeouts { first: None, idle: None, write: None, settings: None, ping: None };

/// Returns the number in the path.
fn number(incoming: &Incoming) -> usize {
    let target = incoming.request.as_ref().unwrap().head.target();
    std::str::from_utf8(&target[1..]).unwrap().parse().unwrap()
}

/// Answers `/n` with `n` bytes.
async fn answer(mut stream: Stream, incoming: Incoming) {
    let n = number(&incoming);
    stream.send_head(&response(200), n == 0).unwrap();
    pump(&mut stream, n, n).await.unwrap();
}

/// Asks for `/n`, and checks the answer of `n` bytes.
async fn ask(conn: &Conn, n: usize) -> Result<(), StreamError> {
    let mut stream =
        conn.begin(&request(b"GET", &format!("/{n}")), b"http", None, true).map_err(StreamError::Send)?;
    let ResponseHead::Final { response, .. } = head(&mut stream).await? else { panic!("an interim one") };
    assert_eq!(response.head.status(), 200);
    let (data, _) = body(&mut stream).await?;
    assert!(data == pattern(n, n), "{n} bytes");
    Ok(())
}

#[test]
fn local_sockets_carry_it_as_well() {
    on_lane(|_| async {
        let (a, b) = manylane_local::Socket::pair(manylane_local::Kind::Stream);
        let [a, b] = [a, b].map(|socket| Connection::Local(LocalStream::new(socket)));
        let (_, end) = server(a, Config::default(), NONE, answer);
        let (conn, ours) = client(b, Config::default());
        for n in [0, 1, 300_000] {
            ask(&conn, n).await.unwrap();
        }
        conn.shutdown();
        until(|| end.get().is_some() && ours.get().is_some()).await;
        assert_eq!((end.get(), ours.get()), (Some(ConnEnd::Drained), Some(ConnEnd::Drained)));
    });
}

#[test]
fn a_server_that_resets_in_mid_stream_touches_no_other_stream() {
    on_lane(|io| async move {
        let (a, b) = pair(&io);
        let (_, end) = server(a, Config::default(), NONE, |mut stream, incoming| async move {
            if !number(&incoming).is_multiple_of(3) {
                return answer(stream, incoming).await;
            }
            stream.send_head(&response(200), false).unwrap();
            send(&mut stream, &mut chain(&[7; 20_000]), false).await.unwrap();
            stream.reset(Reason::INTERNAL_ERROR);
        });
        let (conn, _) = client(b, Config::default());
        let done = Rc::new(Cell::new(0));
        for n in 90_000..90_060 {
            let (conn, done) = (conn.clone(), done.clone());
            spawn(async move {
                let outcome = ask(&conn, n).await;
                let reset = StreamError::Reset(Reason::INTERNAL_ERROR);
                assert_eq!(outcome, if n.is_multiple_of(3) { Err(reset) } else { Ok(()) }, "{n}");
                done.set(done.get() + 1);
            });
        }
        until(|| done.get() == 60).await;
        assert_eq!((end.get(), conn.open_streams()), (None, 0));
    });
}

#[test]
fn a_thousand_open_streams_drain_without_loss() {
    on_lane(|io| async move {
        let (a, b) = pair(&io);
        let config = Config { max_streams: 1_000, ..Config::default() };
        let go = Rc::new(Cell::new(false));
        let may = go.clone();
        let (served, end) = server(a, config, NONE, move |mut stream, incoming| {
            let go = may.clone();
            async move {
                // Half of them have begun their answers.
                let n = number(&incoming);
                if n.is_multiple_of(2) {
                    stream.send_head(&response(200), false).unwrap();
                }
                until(|| go.get()).await;
                if !n.is_multiple_of(2) {
                    stream.send_head(&response(200), false).unwrap();
                }
                pump(&mut stream, n, n).await.unwrap();
            }
        });
        let (conn, ours) = client(b, config);
        let done = Rc::new(Cell::new(0));
        for n in 1_000..2_000 {
            let (conn, done) = (conn.clone(), done.clone());
            spawn(async move {
                ask(&conn, n).await.unwrap();
                done.set(done.get() + 1);
            });
        }
        until(|| served.open_streams() == 1_000).await;
        served.shutdown();
        until(|| conn.is_leaving()).await;
        assert!(matches!(conn.begin(&request(b"GET", "/1"), b"http", None, true), Err(SendError::NoStream)));
        go.set(true);
        until(|| end.get().is_some() && ours.get().is_some()).await;
        assert_eq!((done.get(), served.begun()), (1_000, 1_000));
        assert_eq!((end.get(), ours.get()), (Some(ConnEnd::Drained), Some(ConnEnd::Drained)));
    });
}

#[test]
fn streams_under_way_when_a_server_leaves_are_taken() {
    on_lane(|io| async move {
        let (a, b) = pair(&io);
        let (served, end) = server(a, Config::default(), NONE, answer);
        let (conn, _) = client(b, Config::default());
        ask(&conn, 1).await.unwrap();
        // Neither end knows the other's settings.
        let mut stream = conn.begin(&request(b"GET", "/5"), b"http", None, true).unwrap();
        served.shutdown();
        let (data, _) = body(&mut stream).await.unwrap();
        assert_eq!(data, pattern(5, 5));
        drop(stream);
        until(|| end.get().is_some()).await;
        assert_eq!((end.get(), served.begun()), (Some(ConnEnd::Drained), 2));
    });
}

/// Returns the result of `ask` for a request with `method` on a stream that `serve` handles.
fn outcome<F: Future<Output = ()> + 'static, R: Send + 'static, G: Future<Output = R>>(
    serve: impl Fn(Stream, Incoming) -> F + Send + 'static,
    method: &'static [u8],
    end: bool,
    then: impl FnOnce(Stream) -> G + Send + 'static,
) -> R {
    on_lane(move |io| async move {
        let (a, b) = pair(&io);
        let (served, _) = server(a, Config::default(), NONE, serve);
        let (conn, _) = client(b, Config::default());
        let stream = conn.begin(&request(method, "/"), b"http", None, end).unwrap();
        let outcome = then(stream).await;
        until(|| conn.open_streams() == 0 && served.open_streams() == 0).await;
        outcome
    })
}

#[test]
fn a_handle_that_is_dropped_resets_its_stream() {
    // The server drops its handle before it sends anything.
    let cancelled = outcome(
        |_, _| async {},
        b"GET",
        true,
        |mut stream| async move {
            let error = head(&mut stream).await.unwrap_err();
            (error, body(&mut stream).await.unwrap_err())
        },
    );
    assert_eq!(cancelled, (StreamError::Reset(Reason::CANCEL), StreamError::Reset(Reason::CANCEL)));
    // The server drops it in mid-response: the client gets the data before the reset.
    let short = outcome(
        |mut stream, _| async move {
            stream.send_head(&response(200), false).unwrap();
            send(&mut stream, &mut chain(b"abc"), false).await.unwrap();
        },
        b"GET",
        true,
        |mut stream| async move {
            head(&mut stream).await.unwrap();
            let mut data = Chain::new();
            let first = recv(&mut stream, &mut data).await;
            assert!(matches!(first, Ok(Received::Data)));
            (data.to_vec(), recv(&mut stream, &mut data).await.unwrap_err())
        },
    );
    assert_eq!(short, (b"abc".to_vec(), StreamError::Reset(Reason::CANCEL)));
    // The server drops it after a complete response, before the end of the request: the response stays.
    let complete = outcome(
        |mut stream, _| async move {
            stream.send_head(&response(200), false).unwrap();
            send(&mut stream, &mut chain(b"abc"), true).await.unwrap();
        },
        b"POST",
        false,
        |mut stream| async move {
            let gone = poll_fn(|context| stream.poll_gone(context)).await;
            head(&mut stream).await.unwrap();
            let more = send(&mut stream, &mut chain(b"x"), true).await.unwrap_err();
            (body(&mut stream).await.unwrap().0, more, gone)
        },
    );
    let no_error = StreamError::Reset(Reason::NO_ERROR);
    assert_eq!(complete, (b"abc".to_vec(), no_error, no_error));
    // The client drops its handle.
    let reported = std::sync::Arc::new(std::sync::Mutex::new(None));
    let (tell, heard) = (reported.clone(), reported.clone());
    outcome(
        move |stream, _| {
            let tell = tell.clone();
            async move { *tell.lock().unwrap() = Some(poll_fn(|context| stream.poll_gone(context)).await) }
        },
        b"POST",
        false,
        move |stream| async move {
            until(|| stream.mux().peer_max_streams() != u32::MAX).await; // the request was written
            drop(stream);
            until(|| heard.lock().unwrap().is_some()).await;
        },
    );
    assert_eq!(*reported.lock().unwrap(), Some(StreamError::Reset(Reason::CANCEL)));
}

#[test]
fn interim_responses_come_in_order_and_are_bounded() {
    let statuses = outcome(
        |stream, _| async move {
            for status in 102..102 + MAX_INTERIM as u16 + 2 {
                stream.send_interim(&response(status)).unwrap();
            }
            stream.send_head(&response(204), true).unwrap();
        },
        b"GET",
        true,
        |mut stream| async move {
            // All of them came before the first is taken.
            until(|| stream.mux().open_streams() == 0).await;
            let mut statuses = Vec::new();
            loop {
                match head(&mut stream).await.unwrap() {
                    ResponseHead::Interim(response) => statuses.push(response.head.status()),
                    ResponseHead::Final { response, end } => {
                        assert!(end);
                        statuses.push(response.head.status());
                        return statuses;
                    }
                }
            }
        },
    );
    let last = 104 + MAX_INTERIM as u16;
    assert_eq!(statuses, (last - MAX_INTERIM as u16 + 1..last).chain([204]).collect::<Vec<_>>());
}

#[test]
fn what_is_shorter_than_its_length_is_not_completed() {
    let outcome = outcome(
        |mut stream, _| async move {
            let mut head = response(200);
            head.add_field(Known::CONTENT_LENGTH, b"5").unwrap();
            stream.send_head(&head, false).unwrap();
            let error = send(&mut stream, &mut chain(b"abc"), true).await.unwrap_err();
            assert_eq!(error, StreamError::Send(SendError::WrongLength));
            stream.reset(Reason::INTERNAL_ERROR);
        },
        b"GET",
        true,
        |mut stream| async move { body(&mut stream).await.unwrap_err() },
    );
    assert_eq!(outcome, StreamError::Reset(Reason::INTERNAL_ERROR));
}

// -- a peer that is a script of bytes

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];

/// Type, flags, stream, payload.
type Frame = (u8, u8, u32, Vec<u8>);

/// Returns the frames that a server writes to a peer that sends `bytes`, until it closes.
fn exchange(config: Config, timeouts: ConnTimeouts, bytes: Vec<u8>) -> (Vec<Frame>, Option<ConnEnd>) {
    on_lane(move |io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let (_, end) = server(ours, config, timeouts, answer);
        let (sender, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.write_all(&bytes).unwrap();
            theirs.read_to_end(&mut all).unwrap();
            sender.send(all).unwrap();
        });
        until(|| end.get().is_some()).await;
        (frames(&all.recv().unwrap()), end.get())
    })
}

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let [a, b, c, kind, flags, d, e, f, g, rest @ ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        all.push((*kind, *flags, u32::from_be_bytes([*d, *e, *f, *g]), rest[..len].to_vec()));
        bytes = &rest[len..];
    }
    assert!(bytes.is_empty(), "whole frames");
    all
}

fn goaway(frames: &[Frame]) -> Option<u32> {
    let (.., payload) = frames.iter().rfind(|frame| frame.0 == 7)?;
    Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
}

const SOON: Option<Duration> = Some(Duration::from_millis(20));

/// Returns a request for `/3` on stream 1.
fn get() -> Vec<u8> {
    [&[0, 0, 8, 1, 5, 0, 0, 0, 1][..], &[0x82, 0x86, 0x41, 1, b'a', 0x44, 2], b"/3"].concat()
}

#[test]
fn time_ends_connections_with_a_reason() {
    let greeting = [PREFACE, &SETTINGS, &ACK].concat();
    // Nothing comes, or no request.
    for bytes in [vec![], greeting.clone()] {
        let (frames, end) = exchange(Config::default(), ConnTimeouts { first: SOON, ..NONE }, bytes);
        assert_eq!((goaway(&frames), end), (Some(0), Some(ConnEnd::NoRequest)));
    }
    // One request and no further.
    let mut get = get();
    get[2] = (get.len() - 9) as u8;
    let asks = [greeting, get].concat();
    let (frames, end) = exchange(Config::default(), ConnTimeouts { idle: SOON, ..NONE }, asks.clone());
    assert_eq!((goaway(&frames), end), (Some(0), Some(ConnEnd::Idle)));
    assert!(frames.iter().any(|frame| (frame.0, frame.2, &frame.3[..]) == (0, 1, &pattern(3, 3))));
    // Settings that are not acknowledged.
    let bytes = [PREFACE, &SETTINGS].concat();
    let (frames, end) = exchange(Config::default(), ConnTimeouts { settings: SOON, ..NONE }, bytes);
    assert_eq!(goaway(&frames), Some(Reason::SETTINGS_TIMEOUT.code()));
    let Some(ConnEnd::Protocol(error)) = end else { panic!("{end:?}") };
    assert_eq!(error.reason, Reason::SETTINGS_TIMEOUT);
}

#[test]
fn an_idle_peer_is_asked_whether_it_lives() {
    const ANSWERED: usize = 3;
    on_lane(|io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let timeouts = ConnTimeouts { ping: Some(Duration::from_millis(500)), ..NONE };
        let (_, end) = server(ours, Config::default(), timeouts, |_, _| async {});
        let (sender, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            theirs.write_all(&[PREFACE, &SETTINGS, &ACK].concat()).unwrap();
            let (mut pings, mut head) = (0, [0; 9]);
            // A peer that answers some pings does not answer the next.
            while theirs.read_exact(&mut head).is_ok() {
                let mut payload = vec![0; usize::from(head[2])];
                theirs.read_exact(&mut payload).unwrap();
                if head[3] == 6 {
                    pings += 1;
                    head[4] = 1;
                    if pings <= ANSWERED {
                        theirs.write_all(&[&head[..], &payload].concat()).unwrap();
                    }
                }
            }
            sender.send(pings).unwrap();
        });
        let pings = Cell::new(None);
        until(|| {
            pings.set(pings.get().or(all.try_recv().ok()));
            pings.get().is_some() && end.get().is_some()
        })
        .await;
        assert_eq!((end.get(), pings.get()), (Some(ConnEnd::NoAnswer), Some(ANSWERED + 1)));
    });
}

#[test]
fn pings_are_answered_and_oddities_end_the_connection_at_the_threshold() {
    let greeting = [PREFACE, &SETTINGS, &ACK].concat();
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"12345678"].concat();
    // Continuations without bytes.
    let begin = [0, 0, 0, 1, 1, 0, 0, 0, 1];
    let more = [0, 0, 0, 9, 0, 0, 0, 0, 1];
    let bytes = [greeting, ping, begin.to_vec(), more.repeat(4)].concat();
    let (frames, end) = exchange(Config { glitches: 3, ..Config::default() }, NONE, bytes);
    assert!(frames.contains(&(6, 1, 0, b"12345678".to_vec())));
    assert_eq!(goaway(&frames), Some(Reason::ENHANCE_YOUR_CALM.code()));
    let Some(ConnEnd::Protocol(error)) = end else { panic!("{end:?}") };
    assert_eq!(error.problem, Problem::Glitches);
}

#[test]
fn a_peer_that_takes_no_bytes_is_given_up() {
    on_lane(|io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let reported = Rc::new(RefCell::new(Vec::new()));
        let tell = reported.clone();
        let timeouts = ConnTimeouts { write: SOON, ..NONE };
        let (_, end) = server(ours, Config::default(), timeouts, move |mut stream, _| {
            let tell = tell.clone();
            async move {
                stream.send_head(&response(200), false).unwrap();
                let error = pump(&mut stream, 0, 1 << 24).await.unwrap_err();
                tell.borrow_mut().push(error);
            }
        });
        let mut get = get();
        get[2] = (get.len() - 9) as u8;
        // Its windows are large, but it reads nothing.
        let window = [&[0, 0, 6, 4, 0, 0, 0, 0, 0][..], &[0, 4, 0x7f, 0xff, 0xff, 0xff]].concat();
        let update = [&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &[0x7f, 0, 0, 0]].concat();
        theirs.write_all(&[PREFACE, &window, &ACK, &update, &get].concat()).unwrap();
        until(|| end.get().is_some() && !reported.borrow().is_empty()).await;
        assert_eq!(end.get(), Some(ConnEnd::WriteTimeout));
        assert_eq!(reported.borrow()[..], [StreamError::Connection(ConnEnd::WriteTimeout)]);
    });
}

#[test]
fn a_client_that_does_not_answer_the_goaway_is_not_waited_for() {
    on_lane(|io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let (conn, end) = server(ours, Config::default(), NONE, answer);
        theirs.write_all(&[PREFACE, &SETTINGS, &ACK].concat()).unwrap();
        until(|| conn.settings_since().is_none()).await;
        conn.shutdown();
        until(|| end.get().is_some()).await;
        assert_eq!(end.get(), Some(ConnEnd::Drained));
    });
}

#[test]
fn streams_hear_that_their_connection_is_gone() {
    on_lane(|io| async move {
        let (ours, theirs) = half_pair(&io);
        let (conn, end) = client(ours, Config::default());
        let mut stream = conn.begin(&request(b"POST", "/"), b"http", None, false).unwrap();
        drop(theirs);
        let error = head(&mut stream).await.unwrap_err();
        assert!(matches!(error, StreamError::Connection(_)), "{error:?}");
        assert_eq!(send(&mut stream, &mut chain(b"x"), false).await, Err(error));
        assert_eq!(poll_fn(|context| stream.poll_gone(context)).await, error);
        until(|| end.get().is_some()).await;
        assert!(!conn.can_begin() && conn.is_leaving());
        let begun = conn.begin(&request(b"POST", "/"), b"http", None, false);
        assert!(matches!(begun, Err(SendError::Failed)));
    });
}

/// One turn includes all that a poll reads, and the rest of the input is read without another wake-up.
#[test]
fn between_a_few_streams_that_are_reset_others_have_their_turn() {
    const AT_ONCE: usize = 4;
    const STREAMS: usize = 100;
    on_lane(|_| async move {
        let (a, b) = manylane_local::Socket::pair(manylane_local::Kind::Stream);
        let [a, b] = [a, b].map(|socket| Connection::Local(LocalStream::new(socket)));
        let pair = |n: usize| {
            let [.., high, low] = (2 * n + 1).to_be_bytes();
            let request = [&[0, 0, 6, 1, 5, 0, 0, high, low][..], b"\x82\x86\x84\x41\x01a"].concat();
            [&request[..], &[0, 0, 4, 3, 0, 0, 0, high, low, 0, 0, 0, 8]].concat()
        };
        let pairs = |range: std::ops::Range<usize>| range.flat_map(pair).collect::<Vec<u8>>();
        let first = [PREFACE, &SETTINGS, &ACK, &pairs(0..AT_ONCE - 1)].concat();
        b.send(&mut chain(&pairs(AT_ONCE - 1..STREAMS))).await.unwrap();

        let config = Config { resets_at_once: AT_ONCE as u32, ..Config::default() };
        let here = Here::current().unwrap();
        let conn = Conn::server(a, chain(&first), config, here).unwrap();
        let end = drive(&conn, NONE, |stream, _| async move { drop(stream) });
        let (mut most, mut before, mut polls) = (0, 0, 0);
        while conn.begun() < STREAMS as u64 {
            here.yield_now().await;
            polls += 1;
            most = most.max(conn.begun() - before);
            before = conn.begun();
        }
        assert_eq!(most, AT_ONCE as u64);
        // A round has one turn of the connection, and up to 40 of this task.
        assert!(polls > 10 * STREAMS / AT_ONCE, "{polls}");
        drop(b);
        until(|| end.get().is_some()).await;
        assert_eq!(end.get(), Some(ConnEnd::Closed));
    });
}

#[test]
fn a_request_of_http_1_goes_on_as_stream_1() {
    on_lane(|io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let here = Here::current().unwrap();
        let mut head = request(b"GET", "/5");
        head.add_field(Known::UPGRADE, b"h2c").unwrap();
        head.add_field(Known::CONNECTION, b"upgrade, http2-settings").unwrap();
        assert!(Mux::upgraded(Config::default(), here, &head).unwrap().is_none());
        head.add_field(Known::HTTP2_SETTINGS, b"AAQAAAAD").unwrap();
        let (mux, mut stream) = Mux::upgraded(Config::default(), here, &head).unwrap().unwrap();
        let conn = Conn::new(mux, ours, chain(PREFACE));
        let end = drive(&conn, NONE, answer);
        spawn(async move {
            assert!(stream.is_received());
            stream.send_head(&response(200), false).unwrap();
            pump(&mut stream, 5, 5).await.unwrap();
        });
        let (sender, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // The first window was that of the `HTTP2-Settings` field, and is 5 from here on; a GOAWAY of
            // ours ends it.
            let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0][..], &[0, 4, 0, 0, 0, 5]].concat();
            theirs.write_all(&[settings, ACK.to_vec()].concat()).unwrap();
            theirs.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            sender.send(all).unwrap();
        });
        until(|| end.get().is_some()).await;
        let all = all.recv().unwrap();
        let at = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        assert!(all.starts_with(b"HTTP/1.1 101 "));
        let frames = frames(&all[at + 4..]);
        let data: Vec<u8> = frames.iter().filter(|f| f.0 == 0).flat_map(|f| f.3.clone()).collect();
        assert_eq!((data, end.get()), (pattern(5, 5), Some(ConnEnd::Drained)));
    });
}

#[test]
fn streams_take_turns_and_bytes_are_not_copied() {
    use manylane_buf::{Cluster, Segment};
    use std::task::{Context, Waker};
    on_lane(|_| async {
        let context = Context::from_waker(Waker::noop());
        let here = Here::current().unwrap();
        let client = Mux::client(Config::default(), here).unwrap();
        let server = Mux::server(Config { connection_window: 1 << 20, ..Config::default() }, here).unwrap();
        // Carries the server's output to the client, and back.
        let carry = |from: &Mux, to: &Mux, began: &mut Vec<Stream>| {
            let mut wire = Chain::new();
            let _ = from.poll_output(&context, &mut wire);
            from.set_unwritten(0);
            let segments: Vec<Segment> = wire.segments().cloned().collect();
            to.input(&mut wire, &mut |stream, _| began.push(stream)).unwrap();
            segments
        };
        let mut served = Vec::new();
        carry(&server, &client, &mut served);
        let mut streams: Vec<_> =
            (0..8).map(|_| client.begin(&request(b"POST", "/"), b"http", None, false).unwrap()).collect();
        carry(&client, &server, &mut served);
        let cluster = || Cluster::with(&[7; 16_384]).unwrap().into_segment();
        // All have more data than there is room for.
        let clusters: Vec<Vec<Segment>> = (0..8).map(|_| (0..3).map(|_| cluster()).collect()).collect();
        let mut data: Vec<Chain> = Vec::new();
        for of in &clusters {
            let mut chain = Chain::new();
            of.iter().for_each(|segment| chain.push_back(segment.clone()).unwrap());
            data.push(chain);
        }
        let mut sent = Vec::new();
        while data.iter().any(|data| !data.is_empty()) {
            for (n, (stream, data)) in streams.iter_mut().zip(&mut data).enumerate() {
                let before = data.len();
                if before > 0 {
                    let _ = stream.poll_send(&context, data, false);
                }
                sent.push((n, before - data.len()));
            }
            let written = carry(&client, &server, &mut served);
            for segment in written.iter().filter(|segment| segment.len() == 16_384) {
                assert!(clusters.iter().flatten().any(|cluster| cluster.shares_with(segment)));
            }
            // The received data goes on unchanged, too.
            for stream in &mut served {
                let mut got = Chain::new();
                while stream.poll_recv(&context, &mut got, usize::MAX).is_ready() {}
                for segment in got.segments() {
                    assert!(clusters.iter().flatten().any(|cluster| cluster.shares_with(segment)));
                }
                stream.consume(got.len());
            }
            carry(&server, &client, &mut Vec::new());
            client.grant();
        }
        // The first stream took the room that there was. From then on each sends a frame at a time, and none
        // is left out.
        let frames: Vec<_> = sent.iter().filter(|(_, bytes)| *bytes > 0).collect();
        assert_eq!(frames[0], &(0, 3 * 16_384));
        let mut counts = [0; 8];
        for (n, bytes) in &frames[1..15] {
            assert_eq!(*bytes, 16_384);
            counts[*n] += 1;
            let all = &counts[1..];
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 2, "{frames:?}");
        }
        assert!(counts[1..].iter().all(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn a_peer_that_reads_no_answers_is_not_read_until_it_does() {
    on_lane(|io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let config = Config { max_streams: 1_000, ..Config::default() };
        let (conn, end) = server(ours, config, NONE, |stream, _| async move {
            let mut head = response(200);
            head.add_field("x-large", &[b'x'; 5_000]).unwrap(); // more than a table holds
            stream.send_head(&head, true).unwrap();
        });
        let mut next = 1u32;
        let mut requests = |count: u32| -> Vec<u8> {
            let mut all = Vec::new();
            for _ in 0..count {
                all.extend([0, 0, 6, 1, 5]);
                all.extend(next.to_be_bytes());
                all.extend([0x82, 0x86, 0x84, 0x41, 1, b'a']);
                next += 2;
            }
            all
        };
        theirs.write_all(&[PREFACE, &SETTINGS, &ACK].concat()).unwrap();
        // The first responses fill the socket, the next ones the output; then no more requests are read.
        let mut requested = 0;
        while !conn.is_stalled() {
            theirs.write_all(&requests(10)).unwrap();
            requested += 10;
            assert!(requested < 1_000, "what a socket holds, MAX_OUTPUT, and no more");
            until(|| conn.is_stalled() || conn.begun() == requested && conn.open_streams() == 0).await;
        }
        assert!(conn.begun() < requested);
        let reader = std::thread::spawn(move || {
            let (mut all, mut some) = (Vec::new(), [0; 60_000]);
            loop {
                match theirs.read(&mut some).unwrap() {
                    0 => return frames(&all),
                    n => all.extend(&some[..n]),
                }
            }
        });
        until(|| conn.begun() == requested && conn.open_streams() == 0).await;
        conn.shutdown();
        until(|| end.get().is_some()).await;
        let answers = reader.join().unwrap().iter().filter(|frame| frame.0 == 1).count();
        assert_eq!((answers as u64, end.get()), (requested, Some(ConnEnd::Drained)));
    });
}
