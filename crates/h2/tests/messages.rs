//! The rules of messages (RFC 9113, 8): tables of accepted and refused heads.
#![cfg(not(any(loom, manylane_sim)))]

mod support;

use manylane_buf::Chain;
use manylane_h2::{Config, Event, Problem, Reason, SendError};
use manylane_http::{Head, Known, Method, Version};
use std::time::Duration;
use support::*;

/// Sends a server a request with these fields, and returns its head as text, or the problem.
fn request(fields: &[(&str, &str)], config: Config) -> Result<String, Problem> {
    let mut end = End::server(config);
    match end.one(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields))) {
        Event::Request { mut request, end: true, .. } => {
            let mut out = Chain::new();
            request.head.emit(&mut out, None).expect("memory");
            let protocol =
                request.protocol.as_deref().map_or(String::new(), |p| p.escape_ascii().to_string());
            let scheme = String::from_utf8_lossy(request.scheme.as_bytes()).into_owned();
            assert_eq!(request.head.version(), Version::HTTP_2);
            Ok(format!("{scheme} {protocol}|{}", out.to_vec().escape_ascii()))
        }
        Event::Refused { problem, .. } => {
            let written = end.written();
            assert_eq!(written.len(), 1);
            assert_eq!((written[0].kind, written[0].stream), (RST_STREAM, 1));
            assert_eq!(written[0].payload, problem.reason().code().to_be_bytes());
            Err(problem)
        }
        other => panic!("{other:?}"),
    }
}

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    GET.iter().chain(more).copied().collect()
}

#[test]
fn requests_become_heads_in_the_form_of_http_1() {
    let config = Config { connect_protocol: true, ..Config::default() };
    for (fields, text) in [
        (GET.to_vec(), r"http |GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        // The order of pseudo-headers does not matter.
        (
            vec![
                (":authority", "a"),
                (":path", "/b?c"),
                (":scheme", "https"),
                (":method", "PUT"),
                ("x", "y"),
            ],
            r"https |PUT /b?c HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
        ),
        // The scheme's default port is removed; a `Host` that agrees with the authority, too.
        (
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "A:80"),
                ("host", "a"),
            ],
            r"http |GET / HTTP/1.1\r\nhost: A\r\n\r\n",
        ),
        // Without an authority, `Host` replaces it, and several equal ones count as one.
        (
            vec![(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "a:80"), ("host", "A")],
            r"http |GET / HTTP/1.1\r\nhost: a:80\r\n\r\n",
        ),
        (
            vec![(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "a")],
            r"http |OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
        ),
        (
            vec![(":method", "CONNECT"), (":authority", "a:8443")],
            r" |CONNECT a:8443 HTTP/1.1\r\nhost: a:8443\r\n\r\n",
        ),
        (
            vec![(":method", "CONNECT"), (":authority", "a:443"), ("host", "a")],
            r" |CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n",
        ),
        // An extended CONNECT becomes a GET with a protocol.
        (
            vec![
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":path", "/chat"),
                (":authority", "a"),
            ],
            r"https websocket|GET /chat HTTP/1.1\r\nhost: a\r\n\r\n",
        ),
        // Cookies are joined behind all fields.
        (
            with(&[("cookie", "a=1"), ("x", ""), ("cookie", "b=2"), ("cookie", "c=3")]),
            r"http |GET / HTTP/1.1\r\nhost: a\r\nx: \r\ncookie: a=1; b=2; c=3\r\n\r\n",
        ),
        (with(&[("te", "trailers")]), r"http |GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n"),
        // Equal lengths become one.
        (
            with(&[("content-length", "00"), ("content-length", "0, 0")]),
            r"http |GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        ),
        (with(&[("x", "a\tb")]), r"http |GET / HTTP/1.1\r\nhost: a\r\nx: a\tb\r\n\r\n"),
    ] {
        assert_eq!(request(&fields, config).as_deref(), Ok(text), "{fields:?}");
    }
}

#[test]
fn requests_that_break_the_rules_are_reset() {
    use Problem::*;
    let pseudo = |method: &'static str, scheme: &'static str, path: &'static str, authority: &'static str| {
        vec![(":method", method), (":scheme", scheme), (":path", path), (":authority", authority)]
    };
    let table: Vec<(Vec<(&str, &str)>, Problem)> = vec![
        (with(&[("X-Upper", "1")]), UpperCase),
        (with(&[("Host", "a")]), UpperCase),
        (with(&[("", "1")]), BadName),
        (with(&[("a b", "1")]), BadName),
        (with(&[("a:b", "1")]), BadName),
        (with(&[("a\r\n", "1")]), BadName),
        (with(&[("x\u{e4}", "1")]), BadName),
        (with(&[("x", "a\0b")]), BadValue),
        (with(&[("x", "a\rb")]), BadValue),
        (with(&[("x", "a\nb")]), BadValue),
        (with(&[("x", "a\x01b")]), BadValue),
        (with(&[("x", "\x7f")]), BadValue),
        (with(&[("x", " a")]), BadValue),
        (with(&[("x", "a\t")]), BadValue),
        (with(&[("connection", "close")]), ConnectionField),
        (with(&[("keep-alive", "1")]), ConnectionField),
        (with(&[("proxy-connection", "close")]), ConnectionField),
        (with(&[("transfer-encoding", "chunked")]), ConnectionField),
        (with(&[("upgrade", "h2c")]), ConnectionField),
        (with(&[("te", "trailers, gzip")]), BadTe),
        (with(&[("te", "")]), BadTe),
        (with(&[("x", "1"), (":path", "/")]), LatePseudo),
        (with(&[(":path", "/")]), TwicePseudo),
        (with(&[(":method", "GET")]), TwicePseudo),
        (with(&[(":unknown", "/")]), UnknownPseudo),
        (with(&[(":status", "200")]), UnknownPseudo),
        (with(&[(":", "200")]), UnknownPseudo),
        (GET[1..].to_vec(), MissingPseudo),
        (vec![GET[0], GET[2], GET[3]], MissingPseudo),
        (vec![GET[0], GET[1], GET[3]], MissingPseudo),
        (vec![], MissingPseudo),
        (pseudo("", "http", "/", "a"), BadMethod),
        (pseudo("G T", "http", "/", "a"), BadMethod),
        (pseudo("GET", "", "/", "a"), BadScheme),
        (pseudo("GET", "ht tp", "/", "a"), BadScheme),
        (pseudo("GET", "http://b", "/", "a"), BadScheme),
        (pseudo("GET", "http", "", "a"), BadPath),
        (pseudo("GET", "http", "*", "a"), BadPath),
        (pseudo("GET", "http", "a", "a"), BadPath),
        (pseudo("GET", "http", "http://b/", "a"), BadPath),
        (pseudo("GET", "http", "/a b", "a"), BadPath),
        (pseudo("GET", "http", "/a#b", "a"), BadPath),
        (pseudo("GET", "http", "/ HTTP/1.1\r\nx: y", "a"), BadPath),
        (pseudo("GET", "http", "/", ""), BadAuthority),
        (pseudo("GET", "http", "/", "user@a"), BadAuthority),
        (pseudo("GET", "http", "/", "a/b"), BadAuthority),
        (pseudo("GET", "http", "/", "a b"), BadAuthority),
        (GET[..3].to_vec(), NoHost),
        (with(&[("host", "b")]), OtherHost),
        (with(&[("host", "a:81")]), OtherHost),
        (with(&[("host", "a"), ("host", "b")]), OtherHost),
        (with(&[("host", "a,b")]), BadAuthority),
        (vec![GET[0], GET[1], GET[2], ("host", "a"), ("host", "b")], OtherHost),
        (vec![(":method", "CONNECT"), (":authority", "a")], ConnectTarget),
        (vec![(":method", "CONNECT")], ConnectTarget),
        (pseudo("CONNECT", "http", "/", "a:1"), ConnectTarget),
        (vec![(":method", "CONNECT"), (":authority", "a:8443"), ("host", "a")], OtherHost),
        // Extended CONNECT was not offered.
        (
            [&[(":protocol", "websocket")], &pseudo("CONNECT", "http", "/", "a")[..]].concat(),
            NoConnectProtocol,
        ),
        (with(&[(":protocol", "websocket")]), NoConnectProtocol),
        (with(&[("content-length", "")]), BadLength),
        (with(&[("content-length", "-1")]), BadLength),
        (with(&[("content-length", "1, 2")]), BadLength),
        (with(&[("content-length", "0"), ("content-length", "1")]), BadLength),
        (with(&[("content-length", "9223372036854775808")]), BadLength),
        (with(&[("content-length", "1")]), WrongLength),
    ];
    for (fields, problem) in table {
        assert_eq!(request(&fields, Config::default()), Err(problem), "{fields:?}");
    }
    // Even if extended CONNECT is offered, only its method may have a protocol.
    let config = Config { connect_protocol: true, ..Config::default() };
    assert_eq!(request(&with(&[(":protocol", "websocket")]), config), Err(NoConnectProtocol));
}

/// With the option, a path goes on as over HTTP/1: with `#` percent-encoded.
#[test]
fn a_fragment_passes_only_with_the_option() {
    let with = |path| {
        let others = GET.iter().filter(|(name, _)| *name != ":path").copied();
        others.chain([(":path", path)]).collect::<Vec<_>>()
    };
    for path in ["/#", "/a#b?c#d"] {
        assert_eq!(request(&with(path), Config::default()), Err(Problem::BadPath), "{path}");
        let text = request(&with(path), Config { fragments: true, ..Config::default() });
        let encoded = format!("http |GET {} HTTP/1.1", path.replace('#', "%23"));
        assert!(text.as_ref().is_ok_and(|text| text.starts_with(&encoded)), "{path}: {text:?}");
    }
    for path in ["/\u{e9}#", "#", "/ #"] {
        let config = Config { fragments: true, ..Config::default() };
        assert_eq!(request(&with(path), config), Err(Problem::BadPath), "{path}");
    }
}

/// A server that takes `Upgrade: h2c` would serve requests that no rule has seen.
#[test]
fn a_tunnel_does_not_carry_http_2() {
    let config = Config { connect_protocol: true, ..Config::default() };
    for protocol in ["h2c", "H2C", "h2"] {
        let fields = vec![(":method", "CONNECT"), (":protocol", protocol), GET[1], GET[2], GET[3]];
        assert_eq!(request(&fields, config), Err(Problem::UnknownPseudo), "{protocol}");
    }
}

#[test]
fn each_problem_has_a_sentence_and_a_code() {
    for problem in Problem::all() {
        assert!(!problem.sentence().is_empty() && problem.reason().name().is_some(), "{problem:?}");
        assert_eq!(problem.is_of_peer(), !matches!(problem, Problem::NoMemory | Problem::Aborted));
    }
    assert_eq!(Reason::from_code(77).to_string(), "error code 0x4d");
}

#[test]
fn data_has_the_length_that_was_promised() {
    let head = block(&[POST, &[("content-length", "5")]].concat());
    for (pieces, fine) in [
        (&[(5, true)][..], true),
        (&[(2, false), (3, true)], true),
        (&[(2, false), (3, false), (0, true)], true),
        (&[(6, true)], false),
        (&[(6, false)], false),
        (&[(4, true)], false),
        (&[(5, false), (1, true)], false),
    ] {
        let mut end = End::server(Config::default());
        end.one(&frame(HEADERS, END_HEADERS, 1, &head));
        let mut problem = None;
        for &(len, last) in pieces {
            for event in end.feed(&frame(DATA, u8::from(last), 1, &vec![b'x'; len])).expect("no error") {
                if let Event::Reset { problem: found, .. } = event {
                    problem = found;
                }
            }
        }
        assert_eq!(problem, (!fine).then_some(Problem::WrongLength), "{pieces:?}");
    }
    // Trailers come before all data.
    let mut end = End::server(Config::default());
    end.one(&frame(HEADERS, END_HEADERS, 1, &head));
    let event = end.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x", "y")])));
    assert!(matches!(event, Event::Reset { problem: Some(Problem::WrongLength), .. }), "{event:?}");
}

#[test]
fn trailers_end_a_message_and_must_not_reframe_it() {
    for (fields, flags, problem) in [
        (&[("x", "y")][..], END_STREAM, None),
        (&[("x", "y")], 0, Some(Problem::NotAtEnd)),
        (&[(":path", "/")], END_STREAM, Some(Problem::UnknownPseudo)),
        (&[("content-length", "1")], END_STREAM, Some(Problem::BadTrailer)),
        (&[("host", "b")], END_STREAM, Some(Problem::BadTrailer)),
        (&[("transfer-encoding", "chunked")], END_STREAM, Some(Problem::ConnectionField)),
        (&[("X", "y")], END_STREAM, Some(Problem::UpperCase)),
    ] {
        let mut end = End::server(Config::default());
        end.one(&post(1));
        match (end.one(&frame(HEADERS, END_HEADERS | flags, 1, &block(fields))), problem) {
            (Event::Trailers { trailers, .. }, None) => assert_eq!(trailers.value("x"), Some(&b"y"[..])),
            (Event::Reset { problem: found, .. }, Some(_)) => assert_eq!(found, problem, "{fields:?}"),
            (other, _) => panic!("{fields:?}: {other:?}"),
        }
    }
}

fn after_request(method: &[u8]) -> End {
    let mut end = End::client(Config::default());
    let mut head = Head::request(method, b"/", Version::HTTP_11).expect("a head");
    head.add_field(Known::HOST, b"a").expect("room");
    end.connection.send_request(&head, b"http", None, true).expect("it may begin");
    end.written();
    end
}

#[test]
fn responses_are_judged_as_requests_are() {
    for (fields, flags, problem) in [
        (&[(":status", "200"), ("x", "y")][..], END_STREAM, None),
        (&[(":status", "999")], END_STREAM, None),
        (&[(":status", "200"), ("content-length", "0")], END_STREAM, None),
        (&[], 0, Some(Problem::MissingPseudo)),
        (&[("x", "y")], 0, Some(Problem::MissingPseudo)),
        (&[(":status", "99")], 0, Some(Problem::BadStatus)),
        (&[(":status", "+20")], 0, Some(Problem::BadStatus)),
        (&[(":status", "0200")], 0, Some(Problem::BadStatus)),
        (&[(":status", "101")], 0, Some(Problem::BadStatus)),
        (&[(":status", "103")], END_STREAM, Some(Problem::EndedInterim)),
        (&[(":status", "200"), (":path", "/")], 0, Some(Problem::UnknownPseudo)),
        (&[(":status", "200"), ("connection", "close")], 0, Some(Problem::ConnectionField)),
        (&[(":status", "200"), ("content-length", "1")], END_STREAM, Some(Problem::WrongLength)),
    ] {
        let mut end = after_request(b"GET");
        match (end.one(&frame(HEADERS, END_HEADERS | flags, 1, &block(fields))), problem) {
            (Event::Response { .. }, None) => {}
            (Event::Reset { problem: found, .. }, Some(_)) => assert_eq!(found, problem, "{fields:?}"),
            (other, _) => panic!("{fields:?}: {other:?}"),
        }
    }
}

#[test]
fn responses_that_can_have_no_data_get_none() {
    for (method, status) in [("HEAD", "200"), ("GET", "204"), ("GET", "304")] {
        let mut end = after_request(method.as_bytes());
        let head = block(&[(":status", status), ("content-length", "5")]);
        let event = end.one(&frame(HEADERS, END_HEADERS, 1, &head));
        assert!(matches!(event, Event::Response { end: false, .. }));
        let event = end.one(&frame(DATA, END_STREAM, 1, b"hello"));
        assert!(matches!(event, Event::Reset { problem: Some(Problem::WrongLength), .. }), "{event:?}");
        // The length is that of the response to a GET.
        let mut end = after_request(method.as_bytes());
        let event = end.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
        assert!(matches!(event, Event::Response { end: true, .. }));
    }
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut end = after_request(b"GET");
    for status in ["100", "103"] {
        let event = end.one(&frame(HEADERS, END_HEADERS, 1, &block(&[(":status", status)])));
        let Event::Interim { response, .. } = event else { panic!("{event:?}") };
        assert_eq!(response.head.status().to_string(), status);
    }
    let event = end.one(&frame(DATA, 0, 1, b"x"));
    assert!(matches!(event, Event::Reset { problem: Some(Problem::DataBeforeHead), .. }), "{event:?}");
}

#[test]
fn what_is_never_indexed_stays_so_and_secrets_are() {
    let mut server = End::server(Config::default());
    let secret = [GET, &[("x-secret", "1")]].concat();
    // `block` writes all fields as never indexed.
    let event = server.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&secret)));
    let Event::Request { mut request, .. } = event else { panic!("{event:?}") };
    request.head.add_field("Authorization", b"Basic c2VjcmV0").expect("room");
    request.head.add_field("Cookie", b"a=1; b=a-cookie-that-nobody-can-guess").expect("room");
    request.head.add_field("X-Plain", b"1").expect("room");
    let mut client = End::client(Config::default());
    client.connection.send_request(&request.head, b"http", None, true).expect("it may begin");
    let written = client.written();
    let fields = client.fields(&written[0].payload);
    let found: Vec<_> =
        fields.iter().map(|(name, value, never)| (name.as_str(), value.as_str(), *never)).collect();
    assert_eq!(
        found,
        [
            (":method", "GET", false),
            (":scheme", "http", false),
            (":authority", "a", false),
            (":path", "/", false),
            ("x-secret", "1", true),
            ("authorization", "Basic c2VjcmV0", true),
            ("cookie", "a=1", true),
            ("cookie", "b=a-cookie-that-nobody-can-guess", false),
            ("x-plain", "1", false),
        ]
    );
}

/// Returns the fields that a client writes for a head of HTTP/1.
fn sent(method: &[u8], target: &[u8], fields: &[(&str, &str)], protocol: Option<&[u8]>) -> Vec<String> {
    let mut end = End::client(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(8, 1))).expect("settings");
    end.written();
    let mut head = Head::request(method, target, Version::HTTP_11).expect("a head");
    for (name, value) in fields {
        head.add_field(*name, value.as_bytes()).expect("room");
    }
    end.connection.send_request(&head, b"http", protocol, true).expect("it may begin");
    let written = end.written();
    end.fields(&written[0].payload).into_iter().map(|(name, value, _)| format!("{name}: {value}")).collect()
}

#[test]
fn heads_of_http_1_are_written_as_those_of_http_2() {
    assert_eq!(
        sent(
            b"GET",
            b"/a?b",
            &[
                ("Host", "h:81"),
                ("Connection", "keep-alive"),
                ("Keep-Alive", "1"),
                ("Proxy-Connection", "close"),
                ("Transfer-Encoding", "chunked"),
                ("Upgrade", "h2c"),
                ("HTTP2-Settings", "AAMAAABk"),
                ("TE", "gzip, Trailers"),
                ("X-Mixed-Case", "Y"),
            ],
            None
        ),
        [
            ":method: GET",
            ":scheme: http",
            ":authority: h:81",
            ":path: /a?b",
            "te: trailers",
            "x-mixed-case: Y"
        ]
    );
    assert_eq!(
        sent(b"GET", b"https://u@h/a?b", &[("Host", "h"), ("TE", "gzip")], None),
        [":method: GET", ":scheme: http", ":authority: h", ":path: /a?b"]
    );
    assert_eq!(
        sent(b"OPTIONS", b"http://h", &[("Host", "h")], None),
        [":method: OPTIONS", ":scheme: http", ":authority: h", ":path: *"]
    );
    assert_eq!(
        sent(b"GET", b"http://h?q", &[("Host", "h")], None),
        [":method: GET", ":scheme: http", ":authority: h", ":path: /?q"]
    );
    assert_eq!(sent(b"CONNECT", b"h:443", &[("Host", "h")], None), [":method: CONNECT", ":authority: h:443"]);
    assert_eq!(
        sent(b"GET", b"/chat", &[("Host", "h")], Some(b"websocket")),
        [":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: h", ":path: /chat"]
    );
}

#[test]
fn a_head_that_the_peer_does_not_take_is_not_sent() {
    let mut end = End::server(Config::default());
    end.feed(&frame(SETTINGS, 0, 0, &setting(6, 300))).expect("settings");
    let stream = began(&end.one(&get(1)));
    let mut head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    head.add_field("x", &[b'y'; 300]).expect("room");
    assert_eq!(end.connection.send_response(stream, &head, true), Err(SendError::TooLarge));
    assert_eq!(head.method_kind(), Method::Other);
    let small = Head::response(Version::HTTP_2, 502, None).expect("a head");
    end.connection.send_response(stream, &small, true).expect("it is open");
}

#[test]
fn a_head_larger_than_the_limit_is_reported_and_can_be_answered() {
    let config = Config { head: 500, fields: 10, ..Config::default() };
    for fields in [
        [GET, &[("x", &"y".repeat(500)[..])]].concat(),
        [GET, &[("x", "y"); 12]].concat(),
        [GET, &[("cookie", &"y".repeat(500)[..])]].concat(),
        vec![GET[0], GET[1], GET[3], (":path", &format!("/{}", "a".repeat(600))[..])].leak().to_vec(),
    ] {
        let mut end = End::server(config);
        let event = end.one(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields)));
        let Event::TooLarge { stream, end: true } = event else { panic!("{event:?}") };
        let head = Head::response(Version::HTTP_2, 431, None).expect("a head");
        end.connection.send_response(stream, &head, true).expect("it is open");
        assert_eq!(end.connection.open_streams(), 0);
        // The compression state has followed.
        end.one(&get(3));
    }
}

#[test]
fn large_heads_go_in_several_frames() {
    let config = Config { head: 65_000, room: 65_000, ..Config::default() };
    let long = "y".repeat(40_000);
    let mut end = End::server(config);
    let stream = began(&end.one(&get(1)));
    let mut head = Head::response(Version::HTTP_2, 200, None).expect("a head");
    for name in ["x-a", "x-b"] {
        head.add_field(name, &[b'!'; 16_000]).expect("room");
    }
    end.connection.send_response(stream, &head, true).expect("it is open");
    let written = end.written();
    let kinds: Vec<_> = written.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(kinds, [(HEADERS, END_STREAM), (CONTINUATION, END_HEADERS)]);
    let whole: Vec<u8> = written.iter().flat_map(|frame| frame.payload.clone()).collect();
    assert_eq!(end.fields(&whole).len(), 3);
    // And the other way round, with a head that no cluster can hold.
    let fields = [GET, &[("x", &long[..])]].concat();
    let all = block(&fields);
    let mut bytes = Vec::new();
    for (n, part) in all.chunks(9_000).enumerate() {
        let last = if (n + 1) * 9_000 >= all.len() { END_HEADERS } else { 0 };
        let (kind, flags) = if n == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
        bytes.extend(frame(kind, flags | last, 3, part));
    }
    let event = end.one(&bytes);
    let Event::Request { request, .. } = event else { panic!("{event:?}") };
    assert_eq!(request.head.value("x"), Some(long.as_bytes()));
}

#[test]
fn what_is_sent_is_as_long_as_its_head_says() {
    let sends = |method: &str, status, length: &[&str], data: &[u8], end| -> Result<(), SendError> {
        let mut server = End::server(Config::default());
        let fields = [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a")];
        let stream = began(&server.one(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields))));
        let mut head = Head::response(Version::HTTP_2, status, None).expect("a head");
        for length in length {
            head.add_field("content-length", length.as_bytes()).expect("room");
        }
        if data.is_empty() && end {
            return server.connection.send_response(stream, &head, true);
        }
        server.connection.send_response(stream, &head, false)?;
        for (at, byte) in data.iter().enumerate() {
            let mut piece = Chain::new();
            piece.append(&[*byte]).expect("memory");
            let end = end && at + 1 == data.len();
            server.connection.send_data(Duration::ZERO, stream, &mut piece, end)?;
        }
        if !end {
            server.connection.send_trailers(stream, &Head::trailers().expect("a head"))
        } else {
            Ok(())
        }
    };
    for end in [true, false] {
        assert_eq!(sends("GET", 200, &["3"], b"abc", end), Ok(()));
        assert_eq!(sends("GET", 200, &[], b"abc", end), Ok(()));
        assert_eq!(sends("GET", 200, &["3"], b"ab", end), Err(SendError::WrongLength));
        assert_eq!(sends("GET", 200, &["3"], b"abcd", end), Err(SendError::WrongLength));
        assert_eq!(sends("GET", 200, &["3"], b"", end), Err(SendError::WrongLength));
        assert_eq!(sends("HEAD", 200, &["3"], b"", end), Ok(()));
        assert_eq!(sends("HEAD", 200, &["3"], b"abc", end), Err(SendError::WrongLength));
        assert_eq!(sends("GET", 304, &["3"], b"", end), Ok(()));
        assert_eq!(sends("GET", 204, &[], b"a", end), Err(SendError::WrongLength));
        for length in [&["x"][..], &[""], &["3", "3"]] {
            assert!(matches!(sends("GET", 200, length, b"abc", end), Err(SendError::Invalid(_))));
        }
    }
    let mut client = End::client(Config::default());
    let mut head = Head::request(b"POST", b"/", Version::HTTP_11).expect("a head");
    head.add_field("content-length", b"3").expect("room");
    assert_eq!(client.connection.send_request(&head, b"http", None, true), Err(SendError::WrongLength));
    let stream = client.connection.send_request(&head, b"http", None, false).expect("allowed");
    let mut data = Chain::new();
    data.append(b"abcd").expect("memory");
    let sent = client.connection.send_data(Duration::ZERO, stream, &mut data, false);
    assert_eq!((sent, data.len()), (Err(SendError::WrongLength), 4));
}
