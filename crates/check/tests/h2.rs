//! HTTP checks over HTTP/2: the same verdicts as over HTTP/1, whatever the server does with the connection.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use manylane_buf::{Chain, Cluster};
use manylane_check::{
    CheckResult, Connect, Expect, HttpRequest, NextAction, NoExpressions, Pattern, Script, Status,
    StatusRanges, Step, http,
};
use manylane_h1::Leniency;
use manylane_h2::{Config, Connection, Event, Reason, StreamId};
use manylane_http::{Head, Version};
use std::time::Duration;

/// A request as a server received it.
#[derive(Debug, Default, PartialEq)]
struct Received {
    lines: Vec<String>,
    body: Vec<u8>,
}

/// Plays the server of a script, in pieces of `piece` bytes. `answer` gets each stream whose request is
/// complete; the connection closes when it returns false.
fn play(
    script: &Script,
    window: u32,
    piece: usize,
    answer: impl Fn(&mut Connection, StreamId) -> bool,
) -> (Vec<Received>, CheckResult) {
    let now = Duration::ZERO;
    let mut run = script.run(true);
    run.speak_h2();
    let mut all = Vec::new();
    let mut connected = None;
    let mut open = true;
    let mut coming = Vec::new();
    loop {
        let bytes = match run.ask(&mut NoExpressions) {
            NextAction::Connect(_) => {
                let config = Config { stream_window: window, ..Config::default() };
                connected = Some((Connection::server(config, now).unwrap(), Chain::new()));
                run.connected();
                continue;
            }
            NextAction::Send(bytes) => {
                run.sent();
                bytes.into_owned()
            }
            NextAction::Pass(bytes) => bytes,
            NextAction::Receive if coming.is_empty() => {
                assert!(!open, "nobody says anything any more");
                run.received(None);
                continue;
            }
            NextAction::Receive => {
                let now: Vec<u8> = coming.drain(..piece.min(coming.len())).collect();
                run.received(Some(Cluster::with(&now).unwrap().into_segment()));
                continue;
            }
            NextAction::Done(result) => return (all, result),
        };
        let (server, input) = connected.as_mut().unwrap();
        input.append(&bytes).unwrap();
        while server.handle_input(now, input).unwrap_or(false) {
            while let Some(event) = server.poll_event() {
                let complete = match event {
                    Event::Request { stream, request, end } => {
                        let head = &request.head;
                        let mut lines = vec![format!(
                            "{} {}",
                            String::from_utf8_lossy(head.method()),
                            String::from_utf8_lossy(head.target())
                        )];
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        lines.extend(head.fields().map(|f| format!("{}: {}", text(f.name), text(f.value))));
                        all.push(Received { lines, body: Vec::new() });
                        end.then_some(stream)
                    }
                    Event::Data { stream, data, end } => {
                        let received = all.last_mut().unwrap();
                        data.segments().for_each(|segment| received.body.extend_from_slice(segment));
                        server.consume(stream, data.len()).unwrap();
                        end.then_some(stream)
                    }
                    _ => None,
                };
                if let Some(stream) = complete {
                    open = answer(server, stream);
                }
            }
        }
        let mut out = Chain::new();
        server.poll_output(&mut out).unwrap();
        out.segments().for_each(|segment| coming.extend_from_slice(segment));
    }
}

fn respond(server: &mut Connection, stream: StreamId, status: u16, fields: &[(&str, &str)], body: &str) {
    let mut head = Head::response(Version::HTTP_2, status, None).unwrap();
    for (name, value) in fields {
        head.add_field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    server.send_response(stream, &head, body.is_empty()).unwrap();
    if !body.is_empty() {
        let mut data = Chain::new();
        data.append(body.as_bytes()).unwrap();
        assert!(server.send_data(Duration::ZERO, stream, &mut data, true).unwrap().all);
    }
}

/// Returns a request to the authority that the server checks for.
fn request(method: &str) -> HttpRequest {
    let mut request = HttpRequest { method: method.as_bytes().into(), ..HttpRequest::default() };
    request.add(b"host", b"a.example").unwrap();
    request
}

fn script(steps: Vec<Step>) -> Script {
    let mut all = vec![request("GET").step()];
    all.extend(steps);
    http::script(all, true, Leniency::NONE)
}

fn expect(pattern: Pattern) -> Step {
    Step::expect(Expect { comment: Some("why".into()), ..Expect::new(pattern, 2) })
}

fn bytes(text: &str) -> Pattern {
    Pattern::Bytes(text.as_bytes().into())
}

#[test]
fn answers_come_to_the_same_as_in_http_1() {
    type Answered = fn(&mut Connection, StreamId) -> bool;
    let usual = script(vec![]);
    let ok: Answered = |server, stream| {
        respond(server, stream, 200, &[("x-a", "b")], "all of it");
        true
    };
    let bad: Answered = |server, stream| {
        respond(server, stream, 503, &[], "");
        true
    };
    let gone: Answered = |server, stream| {
        respond(server, stream, 404, &[], "");
        true
    };
    let hinted: Answered = |server, stream| {
        server.send_interim(stream, &Head::response(Version::HTTP_2, 103, None).unwrap()).unwrap();
        respond(server, stream, 204, &[], "");
        true
    };
    let cut: Answered = |server, stream| {
        server.send_response(stream, &Head::response(Version::HTTP_2, 200, None).unwrap(), false).unwrap();
        server
            .send_data(
                Duration::ZERO,
                stream,
                &mut Chain::from(Cluster::with(b"be").unwrap().into_segment()),
                false,
            )
            .unwrap();
        server.reset(stream, Reason::INTERNAL_ERROR).unwrap();
        true
    };
    let reset: Answered = |server, stream| {
        server.reset(stream, Reason::REFUSED_STREAM).unwrap();
        true
    };
    let aborted: Answered = |server, _| {
        server.abort(Reason::INTERNAL_ERROR);
        false
    };
    let unlike = "TCPCHK did not match content(status codes) at step 2";
    let two = || Pattern::Status(StatusRanges::read(b"200").unwrap());
    for (script, answer, status, code, info) in [
        (&usual, ok, Status::L7Ok, Some(200), String::new()),
        (&usual, bad, Status::L7Sts, Some(503), unlike.into()),
        (&script(vec![expect(two())]), bad, Status::L7Sts, Some(503), format!("{unlike} comment: why")),
        (&usual, gone, Status::L7OkC, Some(404), String::new()),
        (&usual, hinted, Status::L7Ok, Some(204), String::new()),
        (&usual, reset, Status::SockErr, None, String::new()),
        (&usual, aborted, Status::SockErr, None, String::new()),
        (&script(vec![expect(bytes("of"))]), ok, Status::L7Ok, Some(200), String::new()),
        (
            &script(vec![expect(bytes("if"))]),
            ok,
            Status::L7Rsp,
            None,
            "HTTP content check did not match comment: why".into(),
        ),
        // The received part is examined.
        (&script(vec![expect(bytes("be"))]), cut, Status::L7Ok, Some(200), String::new()),
        (
            &script(vec![expect(bytes("begun"))]),
            cut,
            Status::L7Rsp,
            None,
            "HTTP content check did not match comment: why".into(),
        ),
    ] {
        for piece in [1, 7, usize::MAX] {
            let (received, result) = play(script, 65_535, piece, answer);
            assert_eq!(received[0].lines, ["GET /", "host: a.example"]);
            assert_eq!(result, CheckResult { status, code, info: info.clone().into() });
        }
    }
}

/// A body larger than the server's window is sent as that opens, while the run waits for the answer.
#[test]
fn a_body_is_sent_as_windows_open() {
    let body = "x".repeat(10_000);
    let mut request = request("POST");
    request.body = body.as_bytes().into();
    request.add(b"connection", b"keep-alive").unwrap();
    let script = http::script(vec![request.step()], false, Leniency::NONE);
    let (received, result) = play(&script, 100, usize::MAX, |server, stream| {
        respond(server, stream, 200, &[], "");
        true
    });
    assert_eq!(result.status, Status::L7Ok);
    assert_eq!(received[0].lines, ["POST /", "host: a.example", "content-length: 10000"]);
    assert_eq!(received[0].body, body.as_bytes());
}

/// `http-check connect`: such a connection uses the protocol of its `proto`, or HTTP/1.
#[test]
fn connections_speak_what_their_step_says() {
    let of_line = |http2, own| {
        let connect = Step::Connect(Connect { number: 1, http2, own, ..Connect::default() });
        let script = http::script(vec![connect, request("GET").step()], false, Leniency::NONE);
        let mut run = script.run(true);
        run.speak_h2();
        loop {
            match run.ask(&mut NoExpressions) {
                NextAction::Connect(_) => run.connected(),
                NextAction::Send(bytes) => break bytes.starts_with(b"PRI * HTTP/2.0"),
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(of_line(Some(true), false));
    assert!(of_line(None, true), "as the server's own");
    assert!(!of_line(None, false) && !of_line(Some(false), true));
}

/// Each request of a connection has a stream of its own.
#[test]
fn a_second_request_is_another_stream() {
    let status = || Pattern::Status(StatusRanges::usual());
    let script = http::script(
        vec![
            request("GET").step(),
            Step::expect(Expect::new(status(), 2)),
            request("DELETE").step(),
            Step::expect(Expect::new(status(), 4)),
        ],
        false,
        Leniency::NONE,
    );
    let (received, result) = play(&script, 65_535, usize::MAX, |server, stream| {
        respond(server, stream, 200, &[], "");
        true
    });
    assert_eq!(received.iter().map(|request| &*request.lines[0]).collect::<Vec<_>>(), ["GET /", "DELETE /"]);
    assert_eq!(result.status, Status::L7Ok);
}
