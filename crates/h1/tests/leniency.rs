//! Messages that only a lenient parser accepts; its rewritten form means the same to the strict parser.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::Chain;
use manylane_h1::{
    Body, BodyReader, BodyWriter, From, Leniency, Limits, Problem, Progress, RequestInfo, RequestParser,
    ResponseParser,
};
use manylane_http::Method;
use proptest::prelude::*;

const ASKED: RequestInfo = RequestInfo { method: Method::Get, upgrade: false };

fn lenient(lenient: Leniency) -> Limits {
    Limits { lenient, ..Limits::default() }
}

/// The limits of `option accept-unsafe-violations-in-http-request` and `-response`.
fn unsafe_option() -> Limits {
    Limits { relaxed: true, ..lenient(Leniency::ALL) }
}

/// A message as it is passed on, whether its connection persists, and the first relaxation that it needed.
#[derive(Debug, PartialEq)]
struct Passed {
    written: Vec<u8>,
    closes: bool,
    relaxed: Option<(Problem, usize)>,
    rest: usize,
}

/// Reads one message in pieces of `step` bytes, and writes it. A refusal includes the error's position.
fn pass(bytes: &[u8], from: From, limits: Limits, step: usize) -> Result<Option<Passed>, (Problem, usize)> {
    let mut input = Chain::new();
    let mut pieces = bytes.chunks(step);
    let (mut requests, mut responses) = (RequestParser::new(limits), ResponseParser::new(limits));
    let (mut head, body, closes) = loop {
        let Some(piece) = pieces.next() else { return Ok(None) };
        input.append(piece).expect("memory");
        let parsed = match from {
            From::Client => requests
                .parse(&mut input)
                .map(|request| request.map(|request| (request.head, request.body, request.connection))),
            From::Server => responses
                .parse(&mut input, ASKED)
                .map(|response| response.map(|response| (response.head, response.body, response.connection))),
        };
        if let Some((head, body, said)) = parsed.map_err(|error| (error.problem, error.position))? {
            break (head, body, said.close);
        }
    };
    let relaxed = match from {
        From::Client => requests.take_relaxed(),
        From::Server => responses.take_relaxed(),
    };
    if let Some(relaxed) = &relaxed {
        let there = bytes.windows(relaxed.received.len()).any(|window| window == &*relaxed.received);
        assert!(there, "{relaxed:?}");
    }
    let (mut out, mut data) = (Chain::new(), Chain::new());
    head.emit(&mut out, None).expect("memory");
    let mut reader = BodyReader::new(body, from, limits);
    let mut writer = BodyWriter::new(body);
    let mut trailers = loop {
        match reader.read(&mut input, &mut data).map_err(|error| (error.problem, error.position))? {
            Progress::Done(trailers) => break trailers,
            Progress::More => match pieces.next() {
                Some(piece) => input.append(piece).expect("memory"),
                None if body == Body::UntilClose => break None,
                None => return Ok(None),
            },
        }
    };
    let relaxed = relaxed.or_else(|| reader.take_relaxed()).map(|it| (it.error.problem, it.error.position));
    writer.write(&mut data, &mut out).expect("a body of this length");
    writer.end(trailers.as_mut(), &mut out).expect("a whole body");
    let rest = input.len() + pieces.map(<[u8]>::len).sum::<usize>();
    Ok(Some(Passed { written: out.to_vec(), closes, relaxed, rest }))
}

/// Each relaxation: a message that needs it, its rewritten form, and the strict parser's problem. Each was
/// tried with HAProxy 3.2, which accepts all of them with its option, but writes control characters as they
/// came.
#[test]
fn each_relaxation_lets_its_own_pass_and_writes_the_strict_form() {
    use Leniency as L;
    use Problem::*;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let get_x = "GET / HTTP/1.1\r\nHost: a\r\nX: a b\r\n\r\n";
    let coded = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let requests: &[(&str, L, Problem, &str, bool)] = &[
        ("GET / HTTP/1.1\nHost: a\n\n", L::LINE_FEED, BareLf, get, false),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", L::LINE_FEED, BareLf, get, false),
        ("GET / HTTP/1.1\nHost: a\r\n\n", L::LINE_FEED, BareLf, get, false),
        ("GET   /\t HTTP/1.1\r\nHost: a\r\n\r\n", L::BLANKS, ExtraSpace, get, false),
        ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", L::BLANKS, Control, get, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n", L::CONTROLS, Control, get_x, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", L::CONTROLS, Control, get_x, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{7f}b\r\n\r\n", L::CONTROLS, Control, get_x, false),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            L::FOLDS,
            Folded,
            "GET / HTTP/1.1\r\nHost: a\r\nX: a   b\r\n\r\n",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 01\r\n\r\na",
            L::LENGTHS,
            TwoLengths,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\na",
            L::LENGTHS,
            BadLength,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: \
                chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::LENGTH_AND_CODING,
            LengthAndCoding,
            coded,
            true,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1  \r\na\r\n0\t\r\n\r\n",
            L::CHUNK_BLANKS,
            BadExtension,
            coded,
            false,
        ),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::OLD_CODING,
            CodingBefore11,
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nHost: \r\n\r\n1\r\na\r\n0\r\n\r\n",
            true,
        ),
        (
            "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: \
                chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::OLD_CODING,
            CodingBefore11,
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            true,
        ),
    ];
    let hosts: &[(&str, L, Problem, &str, bool)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a b\r\nHost: a\r\n\r\n", L::HOSTS, TwoHosts, get_x, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\nHost: a\r\n\r\n", L::HOSTS, TwoHosts, get, false),
    ];
    let odd: &[(&str, L, Problem, &str, bool)] = &[
        ("GET / HTTP/1.1\r\nX(: a\r\nHost: a\r\n\r\n", L::NAMES, BadName, get, false),
        ("GET / HTTP/1.1\r\nHost: a\r\n\u{e9}\"/: a\r\nX: a b\r\n\r\n", L::NAMES, BadName, get_x, false),
        (
            "GET /a\u{e9}#?\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
            L::TARGETS,
            BadTarget,
            "GET /a%C3%A9%23?%C3%A9 HTTP/1.1\r\nHost: a\r\n\r\n",
            false,
        ),
        (
            "GET http://a/#\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
            L::TARGETS,
            BadTarget,
            "GET http://a/%23%C3%A9 HTTP/1.1\r\nHost: a\r\n\r\n",
            false,
        ),
    ];
    let requests = &[requests, hosts, odd].concat()[..];
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let responses: &[(&str, L, Problem, &str, bool)] = &[
        ("HTTP/1.1 200 OK\nContent-Length: 1\n\na", L::LINE_FEED, BareLf, ok, false),
        ("HTTP/1.1  200\t OK\r\nContent-Length: 1\r\n\r\na", L::BLANKS, BadStatus, ok, false),
        (
            "HTTP/1.1 200 O\u{1}K\r\nContent-Length: 1\r\n\r\na",
            L::CONTROLS,
            Control,
            "HTTP/1.1 200 O K\r\nContent-Length: 1\r\n\r\na",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nX: a\u{1}\0b\r\nContent-Length: 1\r\n\r\na",
            L::CONTROLS,
            Control,
            "HTTP/1.1 200 OK\r\nX: a  b\r\nContent-Length: 1\r\n\r\na",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na",
            L::FOLDS,
            Folded,
            "HTTP/1.1 200 OK\r\nX: a   b\r\nContent-Length: 1\r\n\r\na",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            L::LENGTHS,
            TwoLengths,
            ok,
            false,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1,1\r\n\r\na", L::LENGTHS, BadLength, ok, false),
        ("HTTP/1.1 200 OK\r\nX[]: b\r\nContent-Length: 1\r\n\r\na", L::NAMES, BadName, ok, false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n{X}: y\r\n\r\n",
            L::NAMES,
            BadName,
            chunks,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::LENGTH_AND_CODING,
            LengthAndCoding,
            chunks,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::CODINGS,
            BadCoding,
            chunks,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\nTransfer-Encoding: ,chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::CODINGS,
            BadCoding,
            chunks,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\nContent-Length: 1\r\n\r\na",
            L::CODINGS,
            BadCoding,
            ok,
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            L::OLD_CODING,
            CodingBefore11,
            chunks,
            true,
        ),
    ];
    for (from, table) in [(From::Client, requests), (From::Server, responses)] {
        for &(message, leniency, problem, written, closes) in table {
            let shown = message.escape_debug();
            let refused = pass(message.as_bytes(), from, Limits::default(), message.len());
            let Err(refused) = refused else { panic!("{shown}: the strict parser takes it: {refused:?}") };
            assert_eq!(refused.0, problem, "{shown}");
            let usual = Leniency::USUAL.has(leniency).then_some(Leniency::USUAL);
            for set in [leniency, Leniency::ALL].into_iter().chain(usual) {
                for step in [1, 2, 3, 7, message.len()] {
                    let passed = pass(message.as_bytes(), from, lenient(set), step);
                    let Ok(Some(passed)) = passed else { panic!("{shown} by {step}: {passed:?}") };
                    // a field that is set again has a plain name
                    let same = passed.written.eq_ignore_ascii_case(written.as_bytes());
                    assert!(same, "{shown} by {step}: {}", passed.written.escape_ascii());
                    assert_eq!((passed.closes, passed.rest), (closes, 0), "{shown} by {step}");
                    let (relaxed, _) =
                        passed.relaxed.unwrap_or_else(|| panic!("{shown}: no violation is noted"));
                    assert_eq!(relaxed, problem, "{shown} by {step}");
                }
            }
        }
    }
}

/// With the option, a fold goes where its field goes; versions become 1.0 or 1.1; and a request of 1.1 has
/// the `Host` of its target, or an empty one (RFC 9112, 3.2 and 3.2.2).
#[test]
fn what_the_unsafe_option_lets_pass_is_written_in_the_strict_form() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    let requests = [
        ("GET / HTTP/1.1\r\nHost: a\r\nX(: y\r\n z\r\n\t z\n\r\n", get),
        ("GET / HTTP/1.1\r\nX(: y\r\n z\r\nHost: a\r\n\r\n", get),
        ("GET / HTTP/1.1\r\nX(: y\r\n z\r\nX/: y\r\n z\r\nHost: a\r\n\r\n", get),
        ("GET / RTSP/1.1\r\nHost: a\r\n\r\n", get),
        ("GET / RTSP/1.0\r\nHost: a\r\n\r\n", old),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", get),
        ("GET / HTTP/0.8\r\nHost: a\r\n\r\n", old),
        ("GET /\r\n", "GET / HTTP/1.0\r\n\r\n"),
        ("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: \r\n\r\n"),
        ("OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: \r\n\r\n"),
        ("GET http://b/ HTTP/1.1\r\n\r\n", "GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n"),
        (
            "GET http://b:81/ HTTP/1.1\r\nX: y\r\nHost: a\r\n\r\n",
            "GET http://b:81/ HTTP/1.1\r\nX: y\r\nHost: b:81\r\n\r\n",
        ),
        ("CONNECT b:1 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\n\r\n"),
    ];
    let responses = [
        ("RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("HTTP/3.0 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
    ];
    for (from, table) in [(From::Client, &requests[..]), (From::Server, &responses[..])] {
        for &(message, written) in table {
            for step in [1, 4, message.len()] {
                let passed = pass(message.as_bytes(), from, unsafe_option(), step);
                let Ok(Some(passed)) = passed else { panic!("{message:?} by {step}: {passed:?}") };
                let same = passed.written.eq_ignore_ascii_case(written.as_bytes());
                assert!(same, "{message:?}: {}", passed.written.escape_ascii());
                let again = pass(written.as_bytes(), from, Limits::default(), written.len());
                assert!(
                    matches!(again, Ok(Some(Passed { relaxed: None, .. }))) || written.contains("1.0\r\n\r")
                );
            }
        }
    }
    // Bytes of a host are not encoded, and a name that only looks odd to one reader is refused.
    for message in [
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://\u{e9}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a#/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT \u{e9}:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\u{e9}: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX( : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\u{1}(: b\r\n\r\n",
    ] {
        let refused = pass(message.as_bytes(), From::Client, unsafe_option(), message.len());
        assert!(refused.is_err(), "{message:?}: {refused:?}");
    }
}

/// A target's long host is written into `Host` only if the head has room for it.
#[test]
fn a_head_without_room_for_the_host_of_its_target_is_too_large() {
    for (len, fits) in [(400, true), (700, false)] {
        let message = format!("GET http://{}/ HTTP/1.1\r\nHost: a\r\n\r\n", "b".repeat(len));
        let mut input = Chain::new();
        input.append(message.as_bytes()).expect("memory");
        let parsed = RequestParser::new(Limits { room: 1024, ..unsafe_option() }).parse(&mut input);
        match parsed {
            Ok(Some(_)) => assert!(fits),
            refused => {
                let refused = refused.map_err(|error| (error.problem, error.status)).map(drop);
                assert!(!fits && refused == Err((Problem::TooLarge, 431)), "{refused:?}");
                assert_eq!(input.to_vec(), message.as_bytes(), "it can be shown");
            }
        }
    }
}

/// A length with leading zeros needs no relaxation, but another reader might take it for an octal number. It
/// goes on without them, as from HAProxy.
#[test]
fn a_length_goes_on_without_zeros_before_it() {
    for (said, written) in [("003", "3"), ("03", "3"), ("3", "3")] {
        let post =
            |length: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nabc");
        let ok = |length: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc");
        for (from, message, expected) in
            [(From::Client, post(said), post(written)), (From::Server, ok(said), ok(written))]
        {
            for limits in [Limits::default(), lenient(Leniency::USUAL)] {
                let passed = pass(message.as_bytes(), from, limits, message.len());
                let Ok(Some(passed)) = passed else { panic!("{message}: {passed:?}") };
                let same = passed.written.eq_ignore_ascii_case(expected.as_bytes());
                assert!(same, "{said}: {}", passed.written.escape_ascii());
                assert_eq!(passed.relaxed, None, "{said}");
            }
        }
    }
    let zero = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let passed = pass(zero.as_bytes(), From::Client, Limits::default(), zero.len());
    assert_eq!(passed.unwrap().unwrap().written, zero.as_bytes());
}

/// Messages that HAProxy refuses even with its option, and messages that two readers would frame differently,
/// are refused with all relaxations.
#[test]
fn what_stays_ambiguous_is_refused_with_all_relaxations() {
    use Problem::*;
    let requests: &[(&str, Problem)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", TwoHosts),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: A\r\n\r\n", TwoHosts),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", BadVersion),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", BadMethod),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\r\n\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(: a\rb\r\n\r\n", BadName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(: a\rContent-Length: 5\r\n\r\n", BadName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(: a\r\n b\rc\r\n\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(: a\r\r\n\r\n", BadName),
        ("GET / HTTP/1.1\nHost : a\n\n", SpaceBeforeColon),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", TwoLengths),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\na", TwoLengths),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,\u{1}\r\n\r\na", Control),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \u{1}1\r\n\r\na", Control),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", BadCoding),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\u{1}chunked\r\n\r\n0\r\n\r\n", Control),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", BadCoding),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n",
            BadChunkSize,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", BareLf),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n", BadChunkEnd),
    ];
    for &(message, problem) in requests {
        for step in [1, 5, message.len()] {
            let passed = pass(message.as_bytes(), From::Client, lenient(Leniency::ALL), step);
            let refused = passed.map_err(|(problem, _)| problem);
            assert_eq!(refused, Err(problem), "{} by {step}", message.escape_debug());
        }
    }
}

/// Odd text in a `Host` beside a name and a port (item 17 of haproxy-today) goes on as it came.
#[test]
fn an_odd_host_passes_unless_it_could_be_two() {
    for (host, passes) in [
        ("a:b", true),
        (":8443example.org", true),
        ("a:1:2", true),
        ("a:123456", true),
        ("a\"b", true),
        ("a<b>", true),
        ("[::1]:x", true),
        ("a,b", false),
        ("a b", false),
        ("a\u{7f}", false),
        ("a\u{e9}", false),
        ("a#b", false),
        ("a/b", false),
        ("a?b", false),
        ("u@a", false),
        ("a\\b", false),
        ("a[b", false),
        ("a]b", false),
        ("[::1", false),
        ("[::1]a", false),
        ("[::1]:[", false),
        ("[]", false),
    ] {
        let message = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        for (limits, passes) in [(lenient(Leniency::USUAL), passes), (Limits::default(), false)] {
            let passed = pass(message.as_bytes(), From::Client, limits, message.len());
            match passed {
                Ok(Some(passed)) => {
                    assert!(passes && passed.written == message.as_bytes(), "{host}: {passed:?}")
                }
                refused => assert!(!passes && refused.is_err(), "{host}: {refused:?}"),
            }
        }
    }
}

/// Positions refer to the message as it came.
#[test]
fn an_error_behind_something_relaxed_is_where_it_was_received() {
    let message = b"GET  /  HTTP/1.1\nHost: a\nX Y: b\n\n";
    let refused = pass(message, From::Client, lenient(Leniency::ALL), message.len());
    assert_eq!(refused, Err((Problem::BadName, 26)));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => Just("GET / HTTP/1.1\r\nHost: a\r\n"),
        3 => Just("POST  /p \tHTTP/1.1\nHost: a\r\n"),
        3 => Just("HTTP/1.1  200 O\u{1}K\n"),
        3 => Just("HTTP/1.0 200 OK\r\n"),
        3 => Just("Content-Length: 5\r\n"),
        2 => Just("Content-Length: 5, 05\n"),
        4 => Just("Transfer-Encoding: chunked\r\n"),
        2 => Just("X: a\u{1}b\n c\r\n"),
        2 => Just("X(\u{e9}: a\r\n"),
        1 => Just("X(: a\rb\r\n"),
        1 => Just("GET /\u{e9}# RTSP/1.7\r\nHost: a\r\n"),
        3 => Just("\r\n"),
        3 => Just("\n"),
        3 => Just("\r\n5 \r\nhello\r\n0\r\n"),
        2 => Just("hello"),
        1 => Just("\r"),
        1 => Just(" "),
        1 => Just(":"),
        1 => Just("\0"),
    ];
    proptest::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    /// If a lenient parser accepts a message, a strict parser reads the rewritten form and writes it
    /// unchanged; cuts make no difference.
    #[test]
    fn what_passes_is_strict_and_the_same(
        begin in prop_oneof![
            Just("POST / HTTP/1.1\nHost: a\r\n"),
            Just("POST http://b/ HTTP/1.1\nHost: a\r\n"),
            Just("HTTP/1.0 200 OK\n"),
            Just("ICY/3.1 200\r\n"),
            Just(""),
        ],
        bytes in bytes(),
        step in 1_usize..20,
    ) {
        let bytes = [begin.as_bytes(), &bytes].concat();
        for from in [From::Client, From::Server] {
            let passed = pass(&bytes, from, unsafe_option(), bytes.len());
            let cut = pass(&bytes, from, unsafe_option(), step);
            if let (Ok(Some(passed)), Ok(Some(cut))) = (&passed, &cut) {
                prop_assert_eq!(&passed.written, &cut.written);
            } else {
                prop_assert_eq!(passed.is_ok(), cut.is_ok());
            }
            let Ok(Some(passed)) = passed else { continue };
            let again = pass(&passed.written, from, Limits::default(), passed.written.len());
            let Ok(Some(again)) = again else { panic!("{}: {again:?}", passed.written.escape_ascii()) };
            prop_assert_eq!(again.relaxed, None);
            prop_assert_eq!(again.rest, 0);
            prop_assert_eq!(again.written, passed.written);
        }
    }
}
