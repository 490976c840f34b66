//! Written messages: connection fields, framing for old clients, tunnels, bodies of the wrong length.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::Chain;
use manylane_h1::{
    Body, BodyReader, BodyWriter, From, Limits, NamePolicy, Persist, Progress, RequestInfo, RequestParser,
    ResponseParser, WriteError, frame_for, has_close_option, restrict_names, restrict_te, set_body,
    set_connection, write_head,
};
use manylane_http::{Known, Method, Version};

fn chain(bytes: &str) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes.as_bytes()).expect("memory");
    chain
}

fn text(chain: &Chain) -> String {
    String::from_utf8(chain.to_vec()).expect("text")
}

/// Returns the fields of a request after its connection is set.
fn connection(version: &str, fields: &str, persist: Persist) -> String {
    let mut input = chain(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
    let mut request =
        RequestParser::new(Limits::default()).parse(&mut input).expect("valid").expect("complete");
    set_connection(&mut request.head, request.connection, persist).expect("room");
    let mut out = Chain::new();
    write_head(&mut request.head, &mut out, None).expect("memory");
    let out = text(&out);
    let (_, fields) = out.split_once("\r\n").expect("a first line");
    fields.strip_suffix("\r\n").expect("an empty line").replacen("Host: a\r\n", "", 1)
}

/// As in HAProxy, rules do not see `close` and `keep-alive` of a parsed head. They see its other options, and
/// one of the two that is there at the end was written by a rule.
#[test]
fn a_parsed_head_does_not_say_whether_the_connection_ends() {
    for (fields, left) in [
        ("Connection: close\r\n", None),
        ("Connection: Keep-Alive\r\nConnection: close\r\n", None),
        ("Connection: keep-alive, Upgrade\r\nUpgrade: x\r\n", Some("Upgrade")),
        ("Connection: close, X\r\nX: 1\r\n", None),
        ("Proxy-Connection: keep-alive\r\n", None),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut request = RequestParser::new(Limits::default()).parse(&mut chain(&text)).unwrap().unwrap();
        let said: Vec<_> = request.head.values(Known::CONNECTION).collect();
        assert_eq!(said, left.iter().map(|left| left.as_bytes()).collect::<Vec<_>>(), "{fields}");
        assert!(!has_close_option(&request.head), "{fields}");
        request.head.add_field(Known::CONNECTION, b"x, Close").unwrap();
        assert!(has_close_option(&request.head), "{fields}");
    }
}

#[test]
fn connection_says_what_is_meant_and_nothing_twice() {
    use Persist::{Close, KeepAlive, Upgrade};
    let table: &[(&str, &str, Persist, &str)] = &[
        ("1.1", "", KeepAlive, ""),
        ("1.1", "", Close, "connection: close\r\n"),
        ("1.0", "", KeepAlive, "connection: keep-alive\r\n"),
        ("1.0", "", Close, ""),
        ("1.1", "Connection: keep-alive\r\n", KeepAlive, ""),
        ("1.1", "Connection: close\r\n", KeepAlive, ""),
        ("1.1", "Connection: Close\r\n", Close, "connection: close\r\n"),
        ("1.1", "Connection: keep-alive\r\n", Close, "connection: close\r\n"),
        ("1.0", "Connection: keep-alive\r\n", KeepAlive, "connection: keep-alive\r\n"),
        ("1.0", "Connection: keep-alive\r\n", Close, ""),
        ("1.1", "Connection: keep-alive, X-Foo\r\n", KeepAlive, ""),
        ("1.1", "Connection: X\r\nConnection: close, , Y\r\n", Close, "connection: close\r\n"),
        ("1.1", "Connection: X, close\r\n", KeepAlive, ""),
        ("1.1", "Connection:\r\n", KeepAlive, ""),
        ("1.1", "Connection: close\r\nConnection: close\r\n", Close, "connection: close\r\n"),
        ("1.1", "Connection: upgrade\r\nUpgrade: x\r\n", Upgrade, "Connection: upgrade\r\nUpgrade: x\r\n"),
        (
            "1.1",
            "Connection: keep-alive, Upgrade\r\nUpgrade: x\r\n",
            Upgrade,
            "connection: Upgrade\r\nUpgrade: x\r\n",
        ),
        ("1.1", "Connection: upgrade\r\nUpgrade: x\r\n", KeepAlive, ""),
        ("1.1", "Connection: upgrade\r\nUpgrade: x\r\n", Close, "connection: close\r\n"),
        ("1.1", "Upgrade: x\r\n", Upgrade, ""),
        ("1.1", "Connection: upgrade\r\nUpgrade: h2c\r\n", Upgrade, ""),
        ("1.1", "Connection: upgrade\r\nUpgrade: x, H2C\r\n", Upgrade, ""),
        ("1.1", "Connection: upgrade\r\n", Upgrade, ""),
    ];
    for &(version, fields, persist, expected) in table {
        assert_eq!(connection(version, fields, persist), expected, "{version} {fields:?} {persist:?}");
    }
}

#[test]
fn te_keeps_trailers_only() {
    for (te, kept) in
        [("trailers", "trailers"), ("gzip", ""), ("gzip, trailers;q=1, Trailers", "trailers"), ("", "")]
    {
        let mut input = chain(&format!("GET / HTTP/1.1\r\nHost: a\r\nTE: {te}\r\n\r\n"));
        let mut request =
            RequestParser::new(Limits::default()).parse(&mut input).expect("valid").expect("complete");
        restrict_te(&mut request.head).expect("room");
        let got = request
            .head
            .value("te")
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default();
        assert_eq!(got, kept, "{te}");
    }
}

#[test]
fn odd_names_are_kept_removed_or_refused() {
    let parse = || {
        let mut input = chain("GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: a\r\nX-Fine: b\r\n\r\n");
        RequestParser::new(Limits::default()).parse(&mut input).expect("valid").expect("complete").head
    };
    let (mut kept, mut removed, mut refused) = (parse(), parse(), parse());
    assert!(restrict_names(&mut kept, NamePolicy::Preserve) && kept.fields().count() == 3);
    assert!(restrict_names(&mut removed, NamePolicy::Delete) && removed.fields().count() == 2);
    assert!(!restrict_names(&mut refused, NamePolicy::Reject));
    assert!(restrict_names(&mut removed, NamePolicy::Reject));
}

fn response(bytes: &str, method: Method) -> (manylane_h1::Response, Chain) {
    let mut input = chain(bytes);
    let request = RequestInfo { method, upgrade: false };
    (
        ResponseParser::new(Limits::default()).parse(&mut input, request).expect("valid").expect("complete"),
        input,
    )
}

#[test]
fn a_chunked_response_reaches_a_client_of_http_1_0_without_chunks() {
    let (mut response, mut input) = response(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
        Method::Get,
    );
    let (body, persist) = frame_for(response.body, Version::HTTP_10, Persist::KeepAlive);
    assert_eq!((body, persist), (Body::UntilClose, Persist::Close));
    set_body(&mut response.head, response.body, body).expect("room");
    set_connection(&mut response.head, response.connection, persist).expect("room");
    let (mut out, mut data) = (Chain::new(), Chain::new());
    write_head(&mut response.head, &mut out, None).expect("memory");
    let mut reader = BodyReader::new(response.body, From::Server, Limits::default());
    let Ok(Progress::Done(Some(mut trailers))) = reader.read(&mut input, &mut data) else {
        panic!("not complete")
    };
    let mut writer = BodyWriter::new(body);
    writer.write(&mut data, &mut out).expect("no bound");
    writer.end(Some(&mut trailers), &mut out).expect("nothing to write");
    assert_eq!(text(&out), "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok");
}

#[test]
fn a_body_gets_a_length_or_chunks_where_it_is_made_anew() {
    let (mut head, _) = response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Get);
    set_body(&mut head.head, head.body, Body::Chunked).expect("room");
    assert_eq!(
        (head.head.has("content-length"), head.head.value("transfer-encoding")),
        (false, Some(&b"chunked"[..]))
    );
    set_body(&mut head.head, Body::Chunked, Body::Length(1234567890)).expect("room");
    assert_eq!(
        (head.head.value("content-length"), head.head.has("transfer-encoding")),
        (Some(&b"1234567890"[..]), false)
    );

    let mut writer = BodyWriter::new(Body::Chunked);
    let mut out = Chain::new();
    for part in ["hello", "", &"x".repeat(300)] {
        writer.write(&mut chain(part), &mut out).expect("chunks");
    }
    writer.end(None, &mut out).expect("chunks");
    assert_eq!(text(&out), format!("5\r\nhello\r\n12c\r\n{}\r\n0\r\n\r\n", "x".repeat(300)));
}

#[test]
fn what_has_no_body_says_nothing_about_one() {
    let (mut none, rest) = response("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", Method::Get);
    set_body(&mut none.head, none.body, none.body).expect("room");
    assert_eq!(
        (none.body, none.head.has("content-length"), text(&rest)),
        (Body::None, false, "hello".to_owned())
    );
    let (mut tunnel, _) = response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Connect);
    set_body(&mut tunnel.head, tunnel.body, tunnel.body).expect("room");
    assert_eq!((tunnel.body, tunnel.head.has("content-length")), (Body::Tunnel, false));
    let (mut to_head, _) = response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Head);
    set_body(&mut to_head.head, to_head.body, to_head.body).expect("room");
    assert_eq!((to_head.body, to_head.head.has("content-length")), (Body::None, true));
}

#[test]
fn a_body_that_breaks_its_promise_is_refused() {
    let mut writer = BodyWriter::new(Body::Length(3));
    let mut out = Chain::new();
    assert_eq!(writer.write(&mut chain("abcd"), &mut out), Err(WriteError::Length));
    writer.write(&mut chain("ab"), &mut out).expect("fits");
    assert_eq!((writer.left(), writer.end(None, &mut out)), (Some(1), Err(WriteError::Length)));
    assert_eq!((writer.passed(2), writer.passed(1)), (Err(WriteError::Length), Ok(())));
    writer.end(None, &mut out).expect("complete");
    assert_eq!(text(&out), "ab");
    assert_eq!(BodyWriter::new(Body::None).write(&mut chain("a"), &mut out), Err(WriteError::Length));
    assert_eq!(BodyWriter::new(Body::Chunked).passed(1), Err(WriteError::Length));
}

#[test]
fn pipelined_requests_come_one_by_one() {
    let mut input = chain(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\r\nGET \
            /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /4",
    );
    let mut parser = RequestParser::new(Limits::default());
    for (path, data) in [("/1", ""), ("/2", "ab"), ("/3", "")] {
        let request = parser.parse(&mut input).expect("valid").expect("complete");
        assert_eq!(request.head.path(), Some(path.as_bytes()));
        let mut body = Chain::new();
        let mut reader = BodyReader::new(request.body, From::Client, Limits::default());
        assert!(matches!(reader.read(&mut input, &mut body), Ok(Progress::Done(None))));
        assert_eq!(text(&body), data);
    }
    assert!(parser.parse(&mut input).expect("valid").is_none());
    assert_eq!(text(&input), "GET /4");
}

#[test]
fn a_body_that_is_spliced_is_counted() {
    let mut reader = BodyReader::new(Body::Length(10), From::Server, Limits::default());
    let mut out = Chain::new();
    reader.read(&mut chain("abc"), &mut out).expect("valid");
    assert_eq!(reader.passable(), Some(7));
    reader.passed(6);
    assert!(!reader.is_done());
    reader.passed(1);
    assert_eq!((reader.is_done(), reader.data()), (true, 10));
    let mut chunked = BodyReader::new(Body::Chunked, From::Server, Limits::default());
    chunked.read(&mut chain("5\r\na"), &mut out).expect("valid");
    assert_eq!(chunked.passable(), Some(4));
    chunked.passed(4);
    assert!(matches!(chunked.read(&mut chain("\r\n0\r\n\r\n"), &mut out), Ok(Progress::Done(None))));
    assert_eq!(BodyReader::new(Body::Tunnel, From::Server, Limits::default()).passable(), None);
}

#[test]
fn an_end_of_the_connection_completes_only_what_has_no_other_end() {
    let mut until_close = BodyReader::new(Body::UntilClose, From::Server, Limits::default());
    assert!(until_close.end().is_ok() && until_close.is_done());
    for body in [Body::Length(1), Body::Chunked] {
        let error = BodyReader::new(body, From::Server, Limits::default()).end().expect_err("not complete");
        assert_eq!((error.status, error.problem), (502, manylane_h1::Problem::Early));
    }
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut input = chain(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 \
            OK\r\nContent-Length: 0\r\n\r\n",
    );
    let mut parser = ResponseParser::new(Limits::default());
    let request = RequestInfo { method: Method::Post, upgrade: false };
    let mut statuses = Vec::new();
    while let Some(response) = parser.parse(&mut input, request).expect("valid") {
        statuses.push((response.head.status(), response.is_interim()));
    }
    assert_eq!(statuses, [(100, true), (103, true), (200, false)]);
}

#[test]
fn persistence_follows_version_and_connection() {
    let persists = |version: &str, fields: &str| {
        let mut input = chain(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        let request =
            RequestParser::new(Limits::default()).parse(&mut input).expect("valid").expect("complete");
        request.connection.persists(request.head.version())
    };
    assert!(persists("1.1", "") && persists("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!persists("1.0", "") && !persists("1.1", "Connection: x, CLOSE\r\n"));
    assert!(!persists("1.0", "Connection: keep-alive, close\r\n"));
    let limits = Limits { proxy_header: true, ..Limits::default() };
    let mut input = chain(
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nProxy-Connection: close\r\n\r\n",
    );
    let request = RequestParser::new(limits).parse(&mut input).expect("valid").expect("complete");
    assert!(request.connection.close);
}

/// If `Proxy-Connection` is in force for the client, no option of its `Connection` reaches the server: on
/// `close`, the server would end a connection that the next request could use.
#[test]
fn proxy_connection_replaces_connection() {
    let limits = Limits { proxy_header: true, ..Limits::default() };
    for (version, fields, persist, written) in [
        (
            "1.0",
            "Connection: close\r\nProxy-Connection: keep-alive\r\n",
            Persist::KeepAlive,
            "Connection: keep-alive\r\n",
        ),
        (
            "1.1",
            "Connection: keep-alive\r\nProxy-Connection: close\r\n",
            Persist::Close,
            "Connection: close\r\n",
        ),
        ("1.1", "Connection: close\r\n", Persist::KeepAlive, ""),
        (
            "1.1",
            "Connection: close, upgrade\r\nUpgrade: x\r\nProxy-Connection: keep-alive\r\n",
            Persist::Upgrade,
            "Connection: upgrade\r\nUpgrade: x\r\n",
        ),
    ] {
        let bytes = format!("GET http://a/ HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let mut request =
            RequestParser::new(limits).parse(&mut chain(&bytes)).expect("valid").expect("complete");
        set_connection(&mut request.head, request.connection, persist).expect("room");
        let mut out = Chain::new();
        write_head(&mut request.head, &mut out, None).expect("memory");
        let all = format!("GET http://a/ HTTP/{version}\r\nHost: a\r\n{written}\r\n").to_ascii_lowercase();
        assert_eq!(text(&out).to_ascii_lowercase(), all, "{fields}");
    }
}

/// Returns a request as it is passed on, and whether its client's connection persists.
fn request_written(bytes: &str, limits: Limits) -> (String, bool) {
    let mut request = RequestParser::new(limits).parse(&mut chain(bytes)).expect("valid").expect("complete");
    let mut out = Chain::new();
    write_head(&mut request.head, &mut out, None).expect("memory");
    (text(&out), request.connection.persists(request.head.version()))
}

#[test]
fn the_version_is_this_programs_own() {
    let relaxed = Limits { relaxed: true, ..Limits::default() };
    for (version, own, limits) in [
        ("HTTP/1.0", "HTTP/1.0", Limits::default()),
        ("HTTP/1.1", "HTTP/1.1", Limits::default()),
        ("HTTP/1.2", "HTTP/1.1", Limits::default()),
        ("HTTP/1.9", "HTTP/1.1", Limits::default()),
        ("HTTP/1.10", "HTTP/1.1", relaxed),
        ("HTTP/01.00", "HTTP/1.0", relaxed),
        ("RTSP/1.0", "HTTP/1.0", relaxed),
        ("RTSP/2.0", "HTTP/1.1", relaxed),
    ] {
        let (written, _) = request_written(&format!("GET /a {version}\r\nHost: y\r\n\r\n"), limits);
        assert_eq!(written, format!("GET /a {own}\r\nHost: y\r\n\r\n"));
        for reason in [" OK", " ", ""] {
            let mut input = chain(&format!("{version} 200{reason}\r\nX: y\r\n\r\n"));
            let request = RequestInfo { method: Method::Get, upgrade: false };
            let mut response =
                ResponseParser::new(limits).parse(&mut input, request).expect("valid").expect("complete");
            let mut out = Chain::new();
            write_head(&mut response.head, &mut out, None).expect("memory");
            let reason = if version == own { reason } else { reason.trim_end() };
            let space = if reason.is_empty() { " " } else { "" };
            assert_eq!(text(&out), format!("{own} 200{reason}{space}\r\nX: y\r\n\r\n"), "{version}");
        }
    }
}

#[test]
fn framing_fields_of_what_has_no_body_go_no_further() {
    let (written, goes_on) =
        request_written("CONNECT a:1 HTTP/1.1\r\nContent-Length: 3\r\nHost: a:1\r\n\r\n", Limits::default());
    assert_eq!(written, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert!(!goes_on, "what follows is no request");
    for status in [103, 204] {
        let (mut head, rest) = response(
            &format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n0\r\n\r\n"),
            Method::Get,
        );
        assert!(!head.connection.persists(Version::HTTP_11), "what follows is no response");
        let mut out = Chain::new();
        write_head(&mut head.head, &mut out, None).expect("memory");
        assert_eq!(
            (text(&out), text(&rest)),
            (format!("HTTP/1.1 {status} X\r\nX: y\r\n\r\n"), "0\r\n\r\n".into())
        );
    }
}

#[test]
fn servers_may_pad_the_sizes_of_their_chunks() {
    let padded = "2 \t \r\nok\r\n00  \r\n\r\n";
    for step in 1..padded.len() {
        for (from, fine) in [(From::Server, true), (From::Client, false)] {
            let mut reader = BodyReader::new(Body::Chunked, from, Limits::default());
            let (mut input, mut out) = (Chain::new(), Chain::new());
            let mut outcome = Ok(Progress::More);
            for piece in padded.as_bytes().chunks(step) {
                input.append(piece).expect("memory");
                outcome = reader.read_chunks(&mut input, &mut out);
                if outcome.is_err() {
                    break;
                }
            }
            assert_eq!(matches!(outcome, Ok(Progress::Done(_))), fine, "in pieces of {step}");
            assert!(!fine || text(&out) == "2\r\nok\r\n", "in pieces of {step}");
        }
    }
}

#[test]
fn what_is_for_one_hop_ends_there() {
    let stays = "Content-Length: 0\r\nAuthorization: b\r\nCookie: c=d\r\n";
    let table = [
        ("Connection: X-Foo, close\r\nX-Foo: a\r\nx-foo: b\r\nX-Bar: c\r\n", "X-Bar: c\r\n"),
        ("Connection: X-Foo\r\nConnection: X-Bar\r\nX-Foo: a\r\nX-Bar: c\r\n", ""),
        ("Keep-Alive: 5\r\nProxy-Connection: close\r\nHTTP2-Settings: x\r\n", ""),
        ("Connection: Host, Content-Length, Authorization, Cookie, Connection\r\n", ""),
        ("Connection: TE\r\nTE: trailers, gzip\r\n", "te: trailers\r\nconnection: TE\r\n"),
        ("TE: trailers\r\n", "TE: trailers\r\nconnection: TE\r\n"),
        ("Connection: TE\r\nTE: gzip\r\n", ""),
    ];
    for (fields, expected) in table {
        let expected = format!("{stays}{expected}");
        assert_eq!(
            connection("1.1", &format!("{stays}{fields}"), Persist::KeepAlive),
            expected,
            "{fields:?}"
        );
    }
    let offer = "Connection: X, Upgrade\r\nUpgrade: a\r\nX: b\r\n";
    assert_eq!(connection("1.1", offer, Persist::Upgrade), "connection: Upgrade\r\nUpgrade: a\r\n");
    let request = RequestInfo { method: Method::Get, upgrade: false };
    let mut input = chain(
        "HTTP/1.1 200\r\nConnection: X, TE\r\nX: a\r\nTE: trailers\r\nKeep-Alive: b\r\nProxy-Connection: \
            c\r\nHTTP2-Settings: d\r\nContent-Length: 0\r\n\r\n",
    );
    let mut response =
        ResponseParser::new(Limits::default()).parse(&mut input, request).expect("valid").expect("complete");
    set_connection(&mut response.head, response.connection, Persist::KeepAlive).expect("room");
    let mut out = Chain::new();
    write_head(&mut response.head, &mut out, None).expect("memory");
    assert_eq!(
        text(&out),
        "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
        "with a blank though there is no reason"
    );
}

/// Passes a chunked body on as a proxy does: the data of tiny chunks that come together, and other chunks as
/// they came.
fn pass_on(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut reader = BodyReader::new(Body::Chunked, From::Client, Limits::default());
    let mut writer = BodyWriter::new(Body::Chunked);
    let (mut input, mut out, mut kept) = (Chain::new(), Chain::new(), false);
    for piece in pieces {
        input.append(&piece).expect("memory");
        if reader.is_between_chunks() {
            kept = !BodyReader::sees_tiny_chunks(&input);
        }
        let mut body = Chain::new();
        let progress = match kept {
            true => reader.read_chunks(&mut input, &mut body),
            false => reader.read(&mut input, &mut body),
        };
        match kept {
            true => writer.write_chunks(&mut body, &mut out).expect("chunks"),
            false => writer.write(&mut body, &mut out).expect("chunks"),
        }
        if let Progress::Done(mut trailers) = progress.expect("valid") {
            writer.end(trailers.as_mut(), &mut out).expect("chunks");
        }
    }
    assert!(reader.is_done() && input.is_empty());
    out.to_vec()
}

/// Returns the data of a chunked body.
fn data_of(framed: &[u8]) -> Vec<u8> {
    let mut reader = BodyReader::new(Body::Chunked, From::Client, Limits::default());
    let (mut input, mut out) = (Chain::new(), Chain::new());
    input.append(framed).expect("memory");
    assert!(matches!(reader.read(&mut input, &mut out), Ok(Progress::Done(_))) && input.is_empty());
    out.to_vec()
}

#[test]
fn tiny_chunks_that_are_there_together_go_on_as_one() {
    let tiny = format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(500));
    assert_eq!(
        pass_on([tiny.clone().into_bytes()].into_iter()),
        format!("1f4\r\n{}\r\n0\r\n\r\n", "x".repeat(500)).into_bytes()
    );
    // A single tiny chunk, and large ones, are passed on as they are.
    for as_it_came in ["5\r\nhello\r\n0\r\n\r\n", "40\r\n*\r\n40\r\n*\r\n0\r\n\r\n"] {
        let as_it_came = as_it_came.replace('*', &"y".repeat(64));
        assert_eq!(pass_on([as_it_came.clone().into_bytes()].into_iter()), as_it_came.into_bytes());
    }
    // The body is the same wherever it is cut, and in whatever order both ways of reading alternate.
    let large = format!("800\r\n{}\r\n", "z".repeat(2048));
    let mixed = format!("{}{large}{}{large}3;a=b\r\nabc\r\n0\r\n\r\n", &tiny[..300], &tiny[..120]);
    let data = data_of(mixed.as_bytes());
    for step in (1..50).chain([100, 301, 420, 2_300, 5_000]) {
        assert_eq!(data_of(&pass_on(mixed.as_bytes().chunks(step).map(<[u8]>::to_vec))), data, "{step}");
    }
}
