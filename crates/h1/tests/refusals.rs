//! Refused messages, above all those that two parsers could understand differently, with the status and the
//! position of the error. One row a message; the text after `<-` in a row's name names the byte.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::Chain;
use manylane_h1::{
    Body, BodyReader, From, Leniency, Limits, Problem, Progress, RequestInfo, RequestParser, ResponseParser,
    is_websocket_key,
};
use manylane_http::Method;

fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes).expect("memory");
    chain
}

fn request(bytes: &[u8], limits: Limits) -> Result<Option<Body>, (u16, Problem, usize)> {
    let parsed = RequestParser::new(limits).parse(&mut chain(bytes));
    parsed.map(|request| request.map(|request| request.body)).map_err(|e| (e.status, e.problem, e.position))
}

const ASKED: RequestInfo = RequestInfo { method: Method::Get, upgrade: false };

fn response(bytes: &[u8], request: RequestInfo) -> Result<Option<Body>, (u16, Problem, usize)> {
    let parsed = ResponseParser::new(Limits::default()).parse(&mut chain(bytes), request);
    parsed
        .map(|response| response.map(|response| response.body))
        .map_err(|e| (e.status, e.problem, e.position))
}

/// Returns a head with a valid first line and `Host`; its fields begin at byte 25.
fn with(fields: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}
const FIELDS: usize = 25;

#[test]
fn requests_that_could_be_framed_differently_are_refused() {
    use Problem::*;
    let table: &[(&str, Problem, usize)] = &[
        // Two lengths.
        ("Content-Length: 1\r\nContent-Length: 1\r\n", TwoLengths, 35),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", TwoLengths, 35),
        ("content-length: 1\r\nX: y\r\nCONTENT-LENGTH: 0\r\n", TwoLengths, 41),
        ("Content-Length: 1, 1\r\n", BadLength, 16),
        ("Content-Length: +1\r\n", BadLength, 16),
        ("Content-Length: -1\r\n", BadLength, 16),
        ("Content-Length: 0x1\r\n", BadLength, 16),
        ("Content-Length: 1 1\r\n", BadLength, 16),
        ("Content-Length: 1.0\r\n", BadLength, 16),
        ("Content-Length: \r\n", BadLength, 16),
        ("Content-Length: 1\u{b2}\r\n", BadLength, 16),
        ("Content-Length: 9223372036854775808\r\n", BadLength, 16),
        ("Content-Length: 99999999999999999999999\r\n", BadLength, 16),
        // A length and a coding.
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", LengthAndCoding, 38),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", LengthAndCoding, 44),
        // Codings.
        ("Transfer-Encoding: chunked, chunked\r\n", BadCoding, 19),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", BadCoding, 47),
        ("Transfer-Encoding: chunked, gzip\r\n", BadCoding, 19),
        ("Transfer-Encoding: chunked;q=1\r\n", BadCoding, 19),
        ("Transfer-Encoding: \"chunked\"\r\n", BadCoding, 19),
        ("Transfer-Encoding: ch unked\r\n", BadCoding, 19),
        ("Transfer-Encoding: chunked,\r\n", BadCoding, 19),
        ("Transfer-Encoding: ,chunked\r\n", BadCoding, 19),
        ("Transfer-Encoding:\r\n", BadCoding, 18),
        ("Transfer-Encoding: xchunked\r\n", BadCoding, 19),
        ("Transfer-Encoding: identity\r\n", BadCoding, 19),
        ("Transfer-Encoding: gzip, chunked\r\n", OtherCoding, 19),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", OtherCoding, 44),
        // Line ends and names.
        ("X: a\nY: b\r\n", BareLf, 4),
        ("X: a\rY: b\r\n", BareCr, 4),
        ("X: a\r\r\n", BareCr, 4),
        ("\rX: a\r\n", BareCr, 0),
        ("\nX: a\r\n", BareLf, 0),
        ("X: a\r\n b\r\n", Folded, 6),
        ("X: a\r\n\tb: c\r\n", Folded, 6),
        (" X: a\r\n", Folded, 0),
        ("X: a\0b\r\n", Control, 4),
        ("X: a\u{1}b\r\n", Control, 4),
        ("X: a\u{7f}b\r\n", Control, 4),
        ("X : a\r\n", SpaceBeforeColon, 1),
        ("Transfer-Encoding : chunked\r\n", SpaceBeforeColon, 17),
        ("Content-Length\t: 1\r\n", SpaceBeforeColon, 14),
        ("X Y: a\r\n", BadName, 1),
        ("X\0Y: a\r\n", Control, 1),
        ("X\u{e4}: a\r\n", BadName, 1),
        ("\"X\": a\r\n", BadName, 0),
        ("X(: a\r\n", BadName, 1),
        (": a\r\n", EmptyName, 0),
        ("X\r\n", NoColon, 0),
        ("X\r\nY: a\r\n", NoColon, 0),
        ("X\nY: a\r\n", BareLf, 1),
        // Hosts.
        ("Host: a\r\n", TwoHosts, 6),
        ("HOST: b\r\n", TwoHosts, 6),
    ];
    for &(fields, problem, position) in table {
        let expected = Err((problem.status(), problem, FIELDS + position));
        assert_eq!(request(&with(fields), Limits::default()), expected, "{}", fields.escape_debug());
    }
}

#[test]
fn first_lines_that_are_not_exactly_so_are_refused() {
    use Problem::*;
    let table: &[(&str, Problem, usize)] = &[
        ("G\0T / HTTP/1.1", Control, 1),
        ("G(T / HTTP/1.1", BadMethod, 1),
        (" GET / HTTP/1.1", BadMethod, 0),
        ("GET", BadMethod, 3),
        ("GET  / HTTP/1.1", ExtraSpace, 4),
        ("GET /  HTTP/1.1", ExtraSpace, 6),
        ("GET / HTTP/1.1 ", BadVersion, 14),
        ("GET\t/ HTTP/1.1", Control, 3),
        ("GET /\tHTTP/1.1", Control, 5),
        ("GET /a\0 HTTP/1.1", Control, 6),
        ("GET /a#b HTTP/1.1", BadTarget, 6),
        ("GET /\u{e4} HTTP/1.1", BadTarget, 5),
        ("GET /", NoVersion, 5),
        ("GET / ", BadVersion, 6),
        ("GET / http/1.1", BadVersion, 6),
        ("GET / HTTP/1.10", BadVersion, 14),
        ("GET / HTTP/11", BadVersion, 12),
        ("GET / HTTP/1,1", BadVersion, 12),
        ("GET / HTTP/x.1", BadVersion, 11),
        ("GET / RTSP/1.0", BadVersion, 6),
        ("GET / HTTP/2.0", OtherVersion, 6),
        ("GET / HTTP/0.9", OtherVersion, 6),
        ("PRI * HTTP/2.0", Http2, 6),
        ("GET a HTTP/1.1", TargetForm, 4),
        ("GET * HTTP/1.1", TargetForm, 4),
        ("GET http:// HTTP/1.1", TargetForm, 4),
        ("GET http://u@/ HTTP/1.1", TargetForm, 4),
        ("GET http://a:b/ HTTP/1.1", TargetForm, 4),
        ("CONNECT / HTTP/1.1", TargetForm, 8),
        ("CONNECT a HTTP/1.1", TargetForm, 8),
        ("CONNECT a: HTTP/1.1", TargetForm, 8),
        ("CONNECT :443 HTTP/1.1", TargetForm, 8),
        ("CONNECT http://a:80/ HTTP/1.1", TargetForm, 8),
    ];
    for &(line, problem, position) in table {
        let bytes = format!("{line}\r\nX: y\r\n\r\n");
        let expected = Err((problem.status(), problem, position));
        assert_eq!(request(bytes.as_bytes(), Limits::default()), expected, "{}", line.escape_debug());
    }
    assert_eq!(request(b"GET / HTTP/1.1\nHost: a\n\n", Limits::default()), Err((400, BareLf, 14)));
    assert_eq!(request(b"\nGET / HTTP/1.1\r\n\r\n", Limits::default()), Err((400, BareLf, 0)));
}

#[test]
fn empty_lines_before_a_message_are_64_bytes_at_most() {
    for (lines, refused) in [(32, false), (33, true)] {
        let before = |message: &str| [&b"\r\n".repeat(lines)[..], message.as_bytes()].concat();
        let outcome = |body| if refused { Err((400, Problem::EmptyLine, 0)) } else { Ok(Some(body)) };
        let got = request(&before("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Limits::default());
        assert_eq!(got, outcome(Body::None), "{lines} lines");
        // One by one.
        let mut parser = RequestParser::new(Limits::default());
        let ended = (0..lines).find_map(|_| parser.parse(&mut chain(b"\r\n")).err());
        assert_eq!(ended.map(|error| error.problem), refused.then_some(Problem::EmptyLine), "{lines} lines");
        let got = response(&before("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"), ASKED);
        let expected = outcome(Body::Length(3)).map_err(|(_, problem, at)| (502, problem, at));
        assert_eq!(got, expected, "{lines} lines");
    }
}

#[test]
fn the_rest_of_what_a_request_may_not_be_is_refused() {
    use Problem::*;
    let table: &[(&str, u16, Problem)] = &[
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n", 400, OtherHost),
        ("GET http://a:81/ HTTP/1.1\r\nHost: a\r\n", 400, OtherHost),
        ("GET https://a:80/ HTTP/1.1\r\nHost: a\r\n", 400, OtherHost),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n", 400, OtherHost),
        ("CONNECT a:443 HTTP/1.1\r\nHost: b:443\r\n", 400, OtherHost),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:444\r\n", 400, OtherHost),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTransfer-Encoding: chunked\r\n", 400, BodyForbidden),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: a b\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: a,b\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: a:1:2\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n", 400, BadHost),
        ("GET / HTTP/1.1\r\nHost: [::1]a\r\n", 400, BadHost),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400, CodingBefore11),
        ("GET / HTTP/1.0\r\nContent-Length: 1\r\n", 413, OldPayload),
        ("HEAD / HTTP/1.0\r\nContent-Length: 1\r\n", 413, OldPayload),
        ("DELETE / HTTP/1.0\r\nContent-Length: 1\r\n", 413, OldPayload),
    ];
    for &(head, status, problem) in table {
        let got = request(format!("{head}\r\n").as_bytes(), Limits::default())
            .map_err(|(status, problem, _)| (status, problem));
        assert_eq!(got, Err((status, problem)), "{}", head.escape_debug());
    }
}

#[test]
fn what_is_odd_but_clear_is_accepted() {
    let table: &[(&str, Body)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\n", Body::None),
        ("GET / HTTP/1.0\r\n", Body::None),
        ("GET / HTTP/1.2\r\nHost: a\r\n", Body::None),
        ("GET / HTTP/1.1\r\nHost:\r\n", Body::None),
        ("\r\nGET / HTTP/1.1\r\nHost:a\r\n", Body::None),
        ("GET / HTTP/1.1\r\nHost: \t a:80 \t\r\nX:\r\n", Body::None),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\nX: \u{e4}\t\u{20ac}\r\n", Body::None),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n", Body::Length(7)),
        ("GET / HTTP/1.0\r\nContent-Length: 0\r\n", Body::Length(0)),
        ("POST / HTTP/1.0\r\nContent-Length: 5\r\n", Body::Length(5)),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n",
            Body::Length((1 << 63) - 1),
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING: \tChunked \r\n", Body::Chunked),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n", Body::None),
        ("GET http://a HTTP/1.1\r\nHost: A\r\n", Body::None),
        ("GET http://a:80/ HTTP/1.1\r\nHost: a\r\n", Body::None),
        ("GET http://a:/ HTTP/1.1\r\nHost: a:80\r\n", Body::None),
        ("GET https://a/ HTTP/1.1\r\nHost: a:443\r\n", Body::None),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\n", Body::None),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n", Body::None),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 3\r\n", Body::None),
        ("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n", Body::None),
        ("M-SEARCH / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n", Body::Length(1)),
    ];
    for &(head, body) in table {
        assert_eq!(
            request(format!("{head}\r\n").as_bytes(), Limits::default()),
            Ok(Some(body)),
            "{}",
            head.escape_debug()
        );
    }
}

#[test]
fn relaxing_allows_names_targets_and_versions_but_nothing_about_framing() {
    let odd = Leniency::NAMES.with(Leniency::TARGETS);
    let relaxed = Limits { relaxed: true, lenient: odd, ..Limits::default() };
    for head in [
        "GET /\"<>\u{e4}#a HTTP/1.1\r\nHost: a\r\n",
        "GET / RTSP/1.0\r\nHost: a\r\n",
        "GET / HTTP/1.15\r\nHost: a\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX(\u{e4})\": b\r\n",
    ] {
        assert!(
            request(format!("{head}\r\n").as_bytes(), Limits::default()).is_err(),
            "{}",
            head.escape_debug()
        );
        assert_eq!(
            request(format!("{head}\r\n").as_bytes(), relaxed),
            Ok(Some(Body::None)),
            "{}",
            head.escape_debug()
        );
    }
    for fields in [
        "X : a\r\n",
        "X Y: a\r\n",
        // A reader that skips odd bytes, or takes them for blanks, would frame the message by these.
        "Transfer-Encoding\u{a0}: chunked\r\n",
        "(Content-Length): 5\r\n",
        "Content\u{e4}-Length: 5\r\n",
        "Host\u{85}: b\r\n",
        "\"Connection: close\r\n",
        "X: a\r\n b\r\n",
        "X: a\nY: b\r\n",
        "X: a\0\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Host: b\r\n",
    ] {
        assert!(request(&with(fields), relaxed).is_err(), "{}", fields.escape_debug());
    }
}

#[test]
fn a_request_of_http_0_9_has_a_line_and_nothing_else() {
    let relaxed = Limits { relaxed: true, ..Limits::default() };
    for cut in 1..8 {
        let mut input = chain(&b"GET /a\r\n"[..cut]);
        let mut parser = RequestParser::new(relaxed);
        assert!(parser.parse(&mut input).expect("no error").is_none());
        input
            .push_back(manylane_buf::Cluster::with(&b"GET /a\r\n"[cut..]).expect("memory").into_segment())
            .expect("room");
        let mut head = parser.parse(&mut input).expect("no error").expect("complete").head;
        let mut out = Chain::new();
        head.emit(&mut out, None).expect("memory");
        assert_eq!(out, b"GET /a HTTP/1.0\r\n\r\n");
    }
    assert_eq!(request(b"POST /\r\n", relaxed), Err((400, Problem::NoVersion, 6)));
}

#[test]
fn responses_that_could_be_framed_differently_are_refused() {
    use Problem::*;
    let table: &[(&str, Problem)] = &[
        ("HTTP/1.1  200 OK\r\n", BadStatus),
        ("HTTP/1.1 20 OK\r\n", BadStatus),
        ("HTTP/1.1 2000 OK\r\n", BadStatus),
        ("HTTP/1.1 099 OK\r\n", BadStatus),
        ("HTTP/1.1 000 OK\r\n", BadStatus),
        ("HTTP/1.1 200\tOK\r\n", Control),
        ("HTTP/1.1 200-OK\r\n", BadReason),
        ("HTTP/1.1 200 O\0K\r\n", Control),
        ("HTTP/1.1 200 OK\n", BareLf),
        ("HTTP/2.0 200 OK\r\n", OtherVersion),
        ("ICY 200 OK\r\n", BadVersion),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n", UnaskedSwitch),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", LengthAndCoding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", CodingBefore11),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", BadCoding),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 1\r\nContent-Length: 2\r\n", TwoLengths),
        ("HTTP/1.1 200 OK\r\nX : y\r\n", SpaceBeforeColon),
        ("HTTP/1.1 200 OK\r\n folded: y\r\n", Folded),
    ];
    for &(head, problem) in table {
        let got = response(format!("{head}\r\n").as_bytes(), ASKED)
            .map_err(|(status, problem, _)| (status, problem));
        assert_eq!(got, Err((502, problem)), "{}", head.escape_debug());
    }
}

#[test]
fn a_response_is_framed_by_its_request_its_status_and_its_fields() {
    let get = ASKED;
    let head = RequestInfo { method: Method::Head, ..ASKED };
    let connect = RequestInfo { method: Method::Connect, ..ASKED };
    let upgrade = RequestInfo { upgrade: true, ..ASKED };
    let table: &[(&str, RequestInfo, Body)] = &[
        ("HTTP/1.1 200 OK\r\n", get, Body::UntilClose),
        ("HTTP/1.1 200 \r\n", get, Body::UntilClose),
        ("HTTP/1.1 200\r\n", get, Body::UntilClose),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", get, Body::Length(3)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n", get, Body::Length(3)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", get, Body::Chunked),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", head, Body::None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", head, Body::None),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n", get, Body::None),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n", get, Body::None),
        ("HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n", get, Body::None),
        ("HTTP/1.1 600 OK\r\nContent-Length: 3\r\n", get, Body::Length(3)),
        ("HTTP/1.1 999 OK\r\n", get, Body::UntilClose),
        ("\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n", get, Body::Length(3)),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n", get, Body::None),
        ("HTTP/1.1 100 Continue\r\n", get, Body::None),
        ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n", get, Body::None),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n", upgrade, Body::Tunnel),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", upgrade, Body::Length(3)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", connect, Body::Tunnel),
        ("HTTP/1.1 407 No\r\nContent-Length: 3\r\n", connect, Body::Length(3)),
    ];
    for &(message, request, body) in table {
        assert_eq!(
            response(format!("{message}\r\n").as_bytes(), request),
            Ok(Some(body)),
            "{}",
            message.escape_debug()
        );
    }
}

#[test]
fn heads_beyond_the_limits_get_the_status_that_says_which() {
    let limits = Limits { head: 200, fields: 5, ..Limits::default() };
    let long = "x".repeat(300);
    let table: &[(String, u16, Problem)] = &[
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414, Problem::TooLongTarget),
        (format!("GET /{long}"), 414, Problem::TooLongTarget),
        (long.clone(), 414, Problem::TooLongTarget),
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431, Problem::TooLarge),
        (format!("GET / HTTP/1.1\r\n{long}"), 431, Problem::TooLarge),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(5)), 431, Problem::TooManyFields),
    ];
    for (bytes, status, problem) in table {
        let got = request(bytes.as_bytes(), limits).map_err(|(status, problem, _)| (status, problem));
        assert_eq!(got, Err((*status, *problem)), "{bytes}");
    }
    assert_eq!(
        request(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(3)).as_bytes(), limits),
        Ok(Some(Body::None))
    );
    let exact = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(200 - 32));
    assert_eq!(exact.len(), 200);
    assert_eq!(request(exact.as_bytes(), limits), Ok(Some(Body::None)));
}

#[test]
fn a_head_larger_than_a_cluster_is_parsed_where_the_limits_allow_it() {
    let limits = Limits { head: 60_000, room: 65_000, fields: 2000, ..Limits::default() };
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\nrest", "X-Name: some value\r\n".repeat(1500));
    let mut input = chain(bytes.as_bytes());
    assert!(input.segment_count() > 1);
    let request = RequestParser::new(limits).parse(&mut input).expect("fine").expect("complete");
    assert_eq!(request.head.fields().count(), 1501);
    assert!(
        request.head.fields().skip(1).all(|field| field.name == b"X-Name" && field.value == b"some value")
    );
    assert_eq!(input, b"rest");
}

fn chunked(bytes: &[u8]) -> Result<Vec<u8>, (u16, Problem)> {
    let mut reader = BodyReader::new(Body::Chunked, From::Client, Limits::default());
    let mut out = Chain::new();
    match reader.read(&mut chain(bytes), &mut out) {
        Ok(Progress::Done(_)) => Ok(out.to_vec()),
        Ok(Progress::More) => reader.end().map(|()| out.to_vec()).map_err(|e| (e.status, e.problem)),
        Err(e) => Err((e.status, e.problem)),
    }
}

#[test]
fn chunks_that_could_be_read_differently_are_refused() {
    use Problem::*;
    let table: &[(&str, u16, Problem)] = &[
        ("\r\n", 400, BadChunkSize),
        ("x\r\n", 400, BadChunkSize),
        ("0x1\r\na\r\n0\r\n\r\n", 400, BadChunkSize),
        (" 1\r\na\r\n0\r\n\r\n", 400, BadChunkSize),
        ("+1\r\na\r\n0\r\n\r\n", 400, BadChunkSize),
        ("-1\r\na\r\n0\r\n\r\n", 400, BadChunkSize),
        (";a\r\n", 400, BadChunkSize),
        ("1 \r\na\r\n0\r\n\r\n", 400, BadExtension),
        ("1\t\r\na\r\n0\r\n\r\n", 400, BadExtension),
        ("1 1\r\na\r\n0\r\n\r\n", 400, BadExtension),
        ("1;a\u{1}\r\na\r\n", 400, BadExtension),
        ("1;a\u{7f}\r\na\r\n", 400, BadExtension),
        ("1;a\nx\r\n0\r\n\r\n", 400, BareLf),
        ("1\na\n0\n\n", 400, BareLf),
        ("1\ra\r\n0\r\n\r\n", 400, BareCr),
        ("1;\rx\r\n0\r\n\r\n", 400, BareCr),
        ("1\r\naa\r\n0\r\n\r\n", 400, BadChunkEnd),
        ("1\r\na\n0\r\n\r\n", 400, BadChunkEnd),
        ("1\r\na\rx0\r\n\r\n", 400, BadChunkEnd),
        ("1\r\na0\r\n\r\n", 400, BadChunkEnd),
        ("10000000000000000\r\n", 400, HugeChunk),
        ("8000000000000000\r\n", 400, HugeChunk),
        ("00000000000000001\r\na\r\n", 400, HugeChunk),
        ("0\r\nContent-Length: 1\r\n\r\n", 400, BadTrailer),
        ("0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, BadTrailer),
        ("0\r\nHost: a\r\n\r\n", 400, BadTrailer),
        ("0\r\nX : a\r\n\r\n", 400, SpaceBeforeColon),
        ("0\r\nX: a\n\r\n", 400, BareLf),
        ("0\r\n X: a\r\n\r\n", 400, Folded),
        ("1\r\na\r\n0\r\n\rx", 400, BareCr),
        ("5\r\nab", 400, Early),
        ("1\r\na\r\n0\r\n", 400, Early),
        ("", 400, Early),
    ];
    for &(bytes, status, problem) in table {
        assert_eq!(chunked(bytes.as_bytes()), Err((status, problem)), "{}", bytes.escape_debug());
    }
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(16_384));
    assert_eq!(chunked(long.as_bytes()), Err((400, BadExtension)));
    let trailers = format!("0\r\nX: {}\r\n\r\n", "x".repeat(16_000));
    assert_eq!(chunked(trailers.as_bytes()), Err((431, TooLargeTrailers)));
}

#[test]
fn chunks_that_are_odd_but_clear_are_read() {
    for (bytes, data) in [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("1;a=b;c=\"d\"\r\na\r\n0;x\r\n\r\n", "a"),
        ("1 ;a\r\na\r\n0\r\n\r\n", "a"),
        ("A\r\n0123456789\r\n00b\r\n\r\n\r\n\r\n\r\nabc\r\n0\r\n\r\n", "0123456789\r\n\r\n\r\n\r\nabc"),
        ("1\r\na\r\n0\r\nX: y\r\n\r\n", "a"),
    ] {
        assert_eq!(
            chunked(bytes.as_bytes()).map(|data| String::from_utf8(data).expect("text")),
            Ok(data.to_owned())
        );
    }
}

#[test]
fn handshakes_that_only_look_like_some_are_refused() {
    use Problem::*;
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n{fields}\r\n");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (fields, expected) in [
        (format!("Upgrade: websocket\r\n{key}"), Ok(true)),
        (format!("{key}Upgrade: foo, WebSocket\r\n"), Ok(true)),
        ("Upgrade: foo\r\n".to_owned(), Ok(true)),
        ("Upgrade: foo\r\nContent-Length: 0\r\n".to_owned(), Ok(true)),
        ("Upgrade: foo\r\nContent-Length: 1\r\n".to_owned(), Ok(true)),
        ("Upgrade: h2c\r\nContent-Length: 1\r\n".to_owned(), Ok(false)),
        ("Upgrade: websocket\r\nTransfer-Encoding: chunked\r\n".to_owned(), Ok(false)),
        ("Upgrade: websocket\r\n".to_owned(), Err(NoWebSocketKey)),
        ("Upgrade: x, websocket\r\nSec-WebSocket-Key:\r\n".to_owned(), Err(NoWebSocketKey)),
        (format!("Upgrade: websocket\r\n{}", key.replace("==", "=")), Err(NoWebSocketKey)),
        (format!("Upgrade: websocket\r\n{}", key.replace("dG", "d-")), Err(NoWebSocketKey)),
    ] {
        let parsed = RequestParser::new(Limits::default()).parse(&mut chain(head(&fields).as_bytes()));
        let got = parsed.map(|request| request.unwrap().connection.upgrade).map_err(|error| error.problem);
        assert_eq!(got, expected, "{fields:?}");
    }
    let relaxed = Limits { relaxed: true, ..Limits::default() };
    for odd in ["", "Sec-WebSocket-Key:\r\n", "Sec-WebSocket-Key: x\r\n"] {
        let odd = head(&format!("Upgrade: websocket\r\n{odd}"));
        let parsed = RequestParser::new(relaxed).parse(&mut chain(odd.as_bytes()));
        assert!(parsed.unwrap().unwrap().connection.upgrade, "{odd:?} with the option");
    }
    assert!(is_websocket_key(b"dGhlIHNhbXBsZSBub25jZQ==") && !is_websocket_key(b"dGhlIHNhbXBsZSBub25jZQ="));
    let upgrade = RequestInfo { upgrade: true, ..ASKED };
    let agreed = b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let parsed = ResponseParser::new(relaxed).parse(&mut chain(agreed), upgrade);
    assert_eq!(parsed.unwrap().unwrap().body, Body::Tunnel, "with the option");
    for (fields, expected) in [
        ("Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n", Ok(Some(Body::Tunnel))),
        ("Connection: upgrade\r\nUpgrade: foo\r\n", Ok(Some(Body::Tunnel))),
        ("Connection: upgrade\r\nUpgrade: websocket\r\n", Err(NoWebSocketAccept)),
        ("Upgrade: foo\r\n", Err(NoSwitch)),
    ] {
        let got = response(format!("HTTP/1.1 101 X\r\n{fields}\r\n").as_bytes(), upgrade);
        assert_eq!(got.map_err(|(_, problem, _)| problem), expected, "{fields:?}");
    }
}

#[test]
fn requests_from_http_1_1_on_have_a_host() {
    for line in ["GET / HTTP/1.1", "GET http://a/ HTTP/1.1", "CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1"] {
        let bytes = format!("{line}\r\nX: y\r\n\r\n");
        assert_eq!(request(bytes.as_bytes(), Limits::default()), Err((400, Problem::NoHost, 0)), "{line}");
        let relaxed = Limits { relaxed: true, ..Limits::default() };
        assert_eq!(request(bytes.as_bytes(), relaxed), Ok(Some(Body::None)), "{line}");
    }
    assert_eq!(request(b"GET / HTTP/1.0\r\n\r\n", Limits::default()), Ok(Some(Body::None)));
}

#[test]
fn an_address_without_a_path_has_the_root() {
    for (line, target) in [
        ("GET http://a", "http://a/"),
        ("GET http://a?b", "http://a?b"),
        ("GET http://a/b", "http://a/b"),
        ("OPTIONS http://a", "http://a"),
        ("CONNECT a:1", "a:1"),
    ] {
        let host = if line.starts_with("CONNECT") { "a:1" } else { "a" };
        let mut input = chain(format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let request =
            RequestParser::new(Limits::default()).parse(&mut input).expect("fine").expect("complete");
        assert_eq!(request.head.target(), target.as_bytes());
    }
}

#[test]
fn connection_names_few_fields() {
    let named = |n: usize| with(&format!("Connection: close{}\r\n", ", x".repeat(n)));
    assert_eq!(request(&named(64), Limits::default()), Ok(Some(Body::None)));
    assert_eq!(
        request(&named(65), Limits::default()).map_err(|(status, problem, _)| (status, problem)),
        Err((400, Problem::TooManyOptions))
    );
    let answer = |n: usize| {
        let head =
            format!("HTTP/1.1 200 OK\r\nConnection: close{}\r\nContent-Length: 0\r\n\r\n", ", x".repeat(n));
        response(head.as_bytes(), ASKED).map_err(|(_, problem, _)| problem)
    };
    assert_eq!(answer(64), Ok(Some(Body::Length(0))));
    assert_eq!(answer(65), Err(Problem::TooManyOptions));
}

/// Targets with a host, and `Host`, as recorded from a run of HAProxy 3.2; `None` stands for 400.
#[test]
fn targets_with_a_host_have_one_form() {
    type Row = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);
    let table: &[Row] = &[
        ("GET", "http://a", "a", Some(("http://a/", "a"))),
        ("GET", "http://a:80", "a", Some(("http://a/", "a"))),
        ("GET", "http://a:80/x", "a:80", Some(("http://a/x", "a"))),
        ("GET", "http://a:/x", "a", Some(("http://a/x", "a"))),
        ("GET", "https://a:443/", "a:443", Some(("https://a/", "a"))),
        ("GET", "http://u@a/x", "a", Some(("http://u@a/x", "a"))),
        ("GET", "http://u:p@a:80", "a", Some(("http://u:p@a/", "a"))),
        ("GET", "http://a?c=d", "a", Some(("http://a?c=d", "a"))),
        ("GET", "http://a:80?c=d", "a", Some(("http://a?c=d", "a"))),
        ("GET", "http://a:8080", "a:8080", Some(("http://a:8080/", "a:8080"))),
        ("GET", "http://a/x", "a:80", Some(("http://a/x", "a:80"))),
        ("GET", "http://a/x", "A:", Some(("http://a/x", "A:"))),
        ("GET", "http://a:8080/", "a", None),
        ("GET", "http://a/", "b", None),
        ("OPTIONS", "http://a", "a", Some(("http://a", "a"))),
        ("CONNECT", "a:443", "a", Some(("a:443", "a"))),
        ("CONNECT", "a:443", "a:443", Some(("a:443", "a"))),
        ("CONNECT", "a:80", "a:", Some(("a:80", "a:"))),
        ("CONNECT", "a:8443", "a:8443", Some(("a:8443", "a:8443"))),
        ("CONNECT", "a:8443", "a", None),
        ("CONNECT", "a:", "a", None),
    ];
    for &(method, target, host, expected) in table {
        let mut input = Chain::new();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        input.append(head.as_bytes()).expect("memory");
        let parsed = RequestParser::new(Limits::default()).parse(&mut input);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let found = match parsed {
            Ok(request) => {
                let head = request.expect("all of it is there").head;
                Some((text(head.target()), text(head.value(manylane_http::Known::HOST).expect("it has one"))))
            }
            Err(error) => {
                assert_eq!(error.status, 400);
                None
            }
        };
        let expected = expected.map(|(target, host)| (target.to_owned(), host.to_owned()));
        assert_eq!(found, expected, "{method} {target}, Host: {host}");
    }
}
