//! Log formats.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::World;
use manylane_expr::*;

fn logging() -> World {
    let mut world = World::new();
    world.direction = Direction::Response;
    world.server = ServerInfo {
        backend: Some(ProxyInfo { id: 2, name: b"b", default_backend: b"" }),
        server: Some((1, b"s1")),
        source: Some("127.0.0.1:50000".parse().unwrap()),
        destination: Some("10.0.0.1:80".parse().unwrap()),
        ..ServerInfo::default()
    };
    world.log = Some(LogInfo {
        request_date: Timestamp { seconds: 1_500_000_001, micros: 7_000 },
        request: 3,
        queue: 1,
        connect: 2,
        response: 5,
        active: 12,
        total: 30,
        bytes_read: 1234,
        status: 200,
        frontend_connections: 3,
        backend_connections: 2,
        server_connections: 1,
        ..LogInfo::default()
    });
    world
}

#[test]
fn the_lines_of_options_are_those_of_the_manual() {
    let mut world = logging();
    assert_eq!(
        world.format(HTTP_LOG, Use::Log),
        "127.0.0.1:40000 [14/Jul/2017:02:40:01.007] f b/s1 3/1/2/5/12 200 1234 - - ---- 42/3/2/1/0 0/0 \
         \"GET /a/b?x=1&y=2 HTTP/1.1\""
    );
    assert_eq!(
        world.format(TCP_LOG, Use::Log),
        "127.0.0.1:40000 [14/Jul/2017:02:40:00.123] f b/s1 1/2/30 1234 -- 42/3/2/1/0 0/0"
    );
    assert_eq!(
        world.format(CLF_LOG, Use::Log),
        "127.0.0.1 - - [14/Jul/2017:02:40:01 +0000] \"GET /a/b?x=1&y=2 HTTP/1.1\" 200 1234 \"\" \"\" 40000 \
            123 \
         \"f\" \"b\" \"s1\" 3 1 2 5 12 ---- 42 3 2 1 0 0 0 \"\" \"\" "
    );
    assert_eq!(
        world.format(PLAIN_TCP_LOG, Use::Log),
        "Connect from 127.0.0.1:40000 to 127.0.0.1:18099 (f/TCP)"
    );
}

#[test]
fn captures_stand_between_braces_and_their_marks_are_encoded() {
    let mut world = logging();
    world.captures.set(Direction::Request, &[Some("a|b\""), None, Some("c\n")]);
    assert_eq!(world.format("x %hr %hs y", Use::Log), "x {a#7Cb#22||c#0A} y");
    assert_eq!(world.format("%{+Q}hr%{+Q}hs.", Use::Log), "\"{a#7Cb#22||c#0A}\".");
    world.captures.set(Direction::Response, &[Some("a]\\\"")]);
    let expected = r#"{a]\#22} {a\]\\#22} "{a\]\\#22}" a\]\\#22"#;
    let written = world.format("%hs %{+E}hs %{+E,+Q}hs %{+E}hsl", Use::Log); // the helper doubles backslashes
    assert_eq!(written.replace(r"\\", r"\"), expected);
    world.captures.set(Direction::Response, &[]);
    assert_eq!(world.format("%hrl", Use::Log), "a#7Cb#22 - c#0A");
    assert_eq!(world.format("%{+Q}hrl", Use::Log), "\"a#7Cb#22\" \"\" \"c#0A\"");
    assert_eq!(world.format("%[capture.req.hdr(0)]", Use::Log), "a|b\"");
    assert_eq!(world.format("%[capture.req.hdr(2)]", Use::Log), "c#0A");
    assert_eq!(world.format("%[capture.req.hdr(2)]", Use::Header), "c%0A");
    assert_eq!(world.format("%[capture.req.hdr(1)]", Use::Log), "-");
    assert_eq!(world.format("%[capture.req.hdr(1)]", Use::Header), "");
}

#[test]
fn a_captured_text_goes_on_whole_and_shows_at_once() {
    let mut world = World::new();
    world.captures.set(Direction::Request, &[None, Some("old")]);
    world.captures.set(Direction::Response, &[None]);
    let cases = [
        ("str(0123456789ab),capture-req(0),upper", Some("0123456789AB")),
        ("capture.req.hdr(0)", Some("012345678")),
        // The expression keeps the old text of the slot that its converter overwrites.
        ("capture.req.hdr(1),concat(er),capture-req(1)", Some("older")),
        ("capture.req.hdr(1),capture-res(0)", Some("older")),
        ("capture.res.hdr(0)", Some("older")),
        ("str(x),capture-req(2)", None),
        ("str(x),capture-res(1)", None),
        ("str(x),capture-req(-1)", None),
    ];
    for (expression, expected) in cases {
        assert_eq!(world.text(expression).as_deref(), expected, "{expression}");
    }
    assert_eq!(
        world.format("%[str(a),capture-req(0)]%[capture.req.hdr(0)]%[str(b),capture-req(0)]%hr", Use::Text),
        "aab{b|older}"
    );
}

#[test]
fn flags_quote_escape_and_give_hexadecimal_digits() {
    let mut world = logging();
    assert_eq!(world.format("%{+X}ci:%{+X}cp", Use::Log), "7F000001:9C40");
    assert_eq!(world.format("%{+X}o%Ts %{-X}Ts", Use::Log), "59682F00 1500000000");
    assert_eq!(world.format("%{+E}[str('a]b')]", Use::Log), "a\\\\]b");
    assert_eq!(world.format("%(client)ci %(n:sint)[int(1)]", Use::Log), "127.0.0.1 1");
    assert_eq!(world.format("%{+Q}s", Use::Log), "\"s1\"");
}

#[test]
fn the_number_of_a_request_has_32_bits() {
    let mut world = logging();
    world.log.as_mut().unwrap().request_count = (1 << 32) + 0x1f;
    assert_eq!(world.format("%rt %{+X}rt %[txn.id32]", Use::Log), "31 001F 31");
}

/// The log line of the installed haproxy for a request without a response.
#[test]
fn what_is_missing_is_a_dash_in_log_lines() {
    let mut world = World::new();
    world.stream.request_line = Some(RequestLine { method: b"GET", target: b"/x", version: b"1.1", most: 0 });
    world.log = Some(LogInfo { request: 0, ..LogInfo::default() });
    assert_eq!(
        world.format(
            "%ci %{+Q}[var(txn.no)] %[var(txn.no)] %ID %si %sp %bi %bp %CC %Tq %Td %HQ %fi",
            Use::Log
        ),
        "127.0.0.1 \"\" - - - - - - - 0 -1 127.0.0.1"
    );
    assert_eq!(world.format("  a  %hr %hs  z", Use::Log), "a z");
}

#[test]
fn totals_of_a_line_that_is_written_early_have_a_plus() {
    let mut world = logging();
    world.log.as_mut().unwrap().partial = true;
    world.log.as_mut().unwrap().redispatched = true;
    world.log.as_mut().unwrap().retries = 2;
    assert_eq!(world.format("%Ta %Tt %B %rc %Tr", Use::Log), "+12 +30 +1234 +2 5");
}

#[test]
fn a_line_that_does_not_fit_is_cut_and_says_so() {
    let mut world = logging();
    let format = world
        .compiling(|compiler| Format::compile(HTTP_LOG.as_bytes(), Use::Log, EvalPoints::LOG, compiler))
        .unwrap();
    world.with(|env, scratch| {
        let mut buffer = [0; 20];
        let mut out = Writer::new(&mut buffer);
        format.write(env, scratch, &mut out);
        assert!(out.is_full());
        assert!(out.written().starts_with(b"127.0.0.1:40000 ["));
    });
}

#[test]
fn variables_live_in_their_scopes_and_all_types_come_back() {
    let mut world = World::new();
    world.variable_names.resolve(b"proc.v").unwrap();
    for (value, kind) in [
        ("int(-5)", Type::Int),
        ("bool(true)", Type::Bool),
        ("str(abc)", Type::Str),
        ("bin(00ff)", Type::Bin),
        ("ipv4(1.2.3.4)", Type::Ipv4),
        ("ipv6(::1)", Type::Ipv6),
        ("method", Type::Method),
    ] {
        for scope in ["sess", "txn", "proc"] {
            let set = world.compiled(&format!("{value},set-var({scope}.v)"));
            let get = world.compiled(&format!("var({scope}.v)"));
            world.process.get_or_insert_with(|| ProcessVariables::new(&world.variable_names));
            world.with(|env, scratch| {
                let mut scratch = scratch.reborrow();
                let put = set.eval(env, &mut scratch).unwrap().value;
                assert_eq!(put.kind(), kind);
                assert_eq!(get.eval(env, &mut scratch).unwrap().value, put, "{value} in {scope}");
            });
        }
        assert!(world.text("int(1),unset-var(txn.v)").is_some());
        assert_eq!(world.text("var(txn.v)"), None);
        assert_eq!(world.text("var(txn.v,none)").as_deref(), Some("none"));
    }
    // Variables of a scope that does not exist cannot be set or read; as in HAProxy, who tries has no value.
    assert_eq!(world.text("int(1),set-var(res.v)"), None);
    assert_eq!(world.text("var(res.v)"), None);
}

#[test]
fn variables_are_set_under_conditions() {
    let mut world = World::new();
    for (expression, expected) in [
        ("str(a),set-var(txn.c,ifexists)", None),
        ("str(b),set-var(txn.c,ifnotexists)", Some("b")),
        ("str(c),set-var(txn.c,ifnotexists)", Some("b")),
        ("str(),set-var(txn.c,ifnotempty)", Some("b")),
        ("str(d),set-var(txn.c,ifnotempty,ifset)", Some("d")),
        ("int(5),set-var(txn.c)", Some("5")),
        ("int(4),set-var(txn.c,ifgt)", Some("4")),
        ("int(5),set-var(txn.c,ifgt)", Some("4")),
        ("int(5),set-var(txn.c,iflt)", Some("5")),
    ] {
        world.text(expression);
        assert_eq!(world.text("var(txn.c)").as_deref(), expected, "{expression}");
    }
    assert!(world.refusal("str(a),set-var(txn.c,ifexist)").1.contains("did you mean 'ifexists'?"));
}

#[test]
fn a_map_of_json_has_all_that_have_names() {
    let mut world = logging();
    let text = world.format(
        "%{+json}o lost %ci %(line)r %(n:sint)[str(12a)] %(yes:bool)[int(5)] %(as-text:str)[int(7)] \
         %(none)CC",
        Use::Log,
    );
    let map: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "line": "GET /a/b?x=1&y=2 HTTP/1.1", "n": 12, "yes": true, "as-text": "7", "none": ""
    });
    assert_eq!(map, expected);
}

#[test]
fn one_item_may_be_json_among_others() {
    let mut world = logging();
    assert_eq!(
        world.format("a %{+json}[str('x\"y')] %(:str){+json}[int(1)] %{+cbor}[int(1000)]", Use::Text),
        // The helper doubles backslashes.
        "a \"x\\\\\"y\" \"1\" 1903E8"
    );
}
