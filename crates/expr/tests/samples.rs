//! Fetches and converters, one per line, with the results of HAProxy 3.2 (`tests/haproxy.rs` confirms
//! them).

mod common;
use common::{World, request, response};

/// Expressions with their results, also used by `tests/haproxy.rs`.
const CASES: &str = include_str!("cases.txt");

#[test]
fn every_case_gives_the_value_beside_it() {
    let mut world = World::with_fields();
    let setup = ["int(5),set-var(txn.i)", "str(abc),set-var(txn.s)"];
    for line in setup {
        world.text(line);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (expression, expected) = line.split_once(" => ").unwrap_or_else(|| panic!("no value: {line}"));
        let given = world.text(expression).unwrap_or_else(|| "ABSENT".to_owned());
        if given != expected {
            wrong.push(format!("{expression} gives {given}, not {expected}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count}");
}

/// The time of a UUID of version 7 is that of `World`.
#[test]
fn uuids_have_their_version_and_variant_and_random_bits() {
    let mut world = World::new();
    for (expression, begin, version) in
        [("uuid", "", '4'), ("uuid(4)", "", '4'), ("uuid(7)", "015d3ef7-987b-", '7')]
    {
        let [one, other] = [(); 2].map(|()| world.text(expression).unwrap());
        assert_ne!(one[15..], other[15..], "{expression}");
        for uuid in [one, other] {
            let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid.starts_with(begin) && uuid[14..].starts_with(version), "{uuid}");
            assert!(uuid[19..].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        }
    }
}

/// R-G11: a converter never writes to the bytes of its input. An empty input is extended in a copy, and the
/// fields beside it do not change.
#[test]
fn an_empty_sample_is_changed_in_a_copy_and_nothing_beside_it() {
    let mut world = World::new();
    let fields = [("host", "A"), ("before", "BEFORE"), ("empty", ""), ("after", "AFTER")];
    world.request = Some(request("GET", "/?x=&y=Y", &fields));
    for source in ["req.hdr(empty)", "url_param(x)", "str()"] {
        for (converters, expected) in [
            ("lower", ""),
            ("upper", ""),
            ("lower,concat(ABC)", "ABC"),
            ("url_dec", ""),
            ("regsub(^,X)", "X"),
            ("bytes(0,9)", ""),
            ("bytes(1)", ""),
            ("field(1,_)", ""),
            ("ltrim(A)", ""),
            ("rtrim(A)", ""),
            ("length", "0"),
            ("base64", ""),
            ("hex", ""),
            ("json", ""),
        ] {
            let expression = format!("{source},{converters}");
            assert_eq!(world.text(&expression).as_deref(), Some(expected), "{expression}");
            for (name, value) in fields {
                assert_eq!(world.text(&format!("req.hdr({name})")).as_deref(), Some(value), "{expression}");
            }
        }
    }
}

/// HAProxy 3.2 does not have these converters and fetches, so `cases.txt` cannot list them. Items 29 to
/// 33 and 35 of haproxy-today.
#[test]
fn converters_of_later_versions_give_the_value_beside_them() {
    let mut world = World::new();
    world.request = Some(request("GET", "/", &[("cookie", "a=1; b=2"), ("cookie", "c=3"), ("x", "y")]));
    let cases = [
        ("str(a=1;b=2),param(b,0x3b)", Some("2")),
        ("bin(6109),has_ctl", Some("0")),
        ("bin(6101),has_ctl", Some("1")),
        ("bin(617f),has_ctl", Some("1")),
        ("bin(6109),has_ctl(any)", Some("1")),
        ("bin(6101),has_ctl(http)", Some("0")),
        ("bin(6100),has_ctl(http)", Some("1")),
        ("bin(610d),has_ctl(http)", Some("1")),
        ("bin(610a),has_ctl(http)", Some("1")),
        ("bin(6102),has_ctl(4)", Some("1")),
        ("bin(6102),has_ctl(0x4)", Some("1")),
        ("bin(6103),has_ctl(4)", Some("0")),
        ("bin(617f),has_ctl(0x100000000)", Some("1")),
        ("bin(61e9),has_ctl(any)", Some("0")),
        ("str(),has_ctl", Some("0")),
        ("str(abc),reverse", Some("cba")),
        ("str(),reverse", Some("")),
        ("str(Www.Example.org),reverse_dom", Some("org.Example.Www")),
        ("str(www.example.org.),reverse_dom", Some("org.example.www")),
        ("str(a),reverse_dom", Some("a")),
        ("str(),reverse_dom", None),
        ("str(.),reverse_dom", None),
        ("str(.a),reverse_dom", None),
        ("str(a..b),reverse_dom", None),
        ("str(a..),reverse_dom", None),
        ("bin(01020304050607),le2dec(:,2)", Some("513:1027:1541:7")),
        ("bin(01020304050607),le2dec(:,2,1)", Some("513:1027:1541")),
        ("bin(0100000000000080),le2dec(:,8)", Some("9223372036854775809")),
        ("req.cook_names", Some("a,b,c")),
        ("req.cook_names(/)", Some("a/b/c")),
    ];
    for (expression, expected) in cases {
        assert_eq!(world.text(expression).as_deref(), expected, "{expression}");
    }
    for wrong in
        ["has_ctl(x)", "has_ctl(0x200000000)", "has_ctl(-1)", "has_ctl(0x)", "param(a,0x3)", "le2dec(:,9)"]
    {
        world.refusal(&format!("str(a),{wrong}"));
    }
    world.direction = manylane_expr::Direction::Response;
    world.response = Some(response(200, &[("set-cookie", "a=1; path=/; b=2"), ("set-cookie", "c=3")]));
    assert_eq!(world.text("res.cook_names").as_deref(), Some("a,c"));
    // Cookies without an equals sign, and attributes, have no names.
    world.direction = manylane_expr::Direction::Request;
    world.request = Some(request("GET", "/", &[("cookie", "$Version=1; a=1; b; $Path=x; c = 3; e=")]));
    assert_eq!(world.text("req.cook_names").as_deref(), Some("a,c,e"));
    world.direction = manylane_expr::Direction::Response;
    world.response = Some(response(200, &[("set-cookie", "b; z=3"), ("set-cookie", "c=1; path=/")]));
    assert_eq!(world.text("res.cook_names").as_deref(), Some("z,c"));
}

#[test]
fn samples_of_responses_are_taken_from_the_response() {
    let mut world = World::new();
    world.direction = manylane_expr::Direction::Response;
    world.response = Some(response(
        404,
        &[
            ("x", "1, 2"),
            ("x", "3"),
            ("set-cookie", "a=1; path=/; b=2"),
            ("set-cookie", "b=4"),
            ("ip", "10.0.0.1"),
        ],
    ));
    for (expression, expected) in [
        ("status", Some("404")),
        ("txn.status", Some("404")),
        ("res.ver", Some("1.1")),
        ("res.hdr(x)", Some("3")),
        ("hdr(x,1)", Some("1")),
        ("res.fhdr(x,1)", Some("1, 2")),
        ("res.hdr_cnt(x)", Some("3")),
        ("res.fhdr_cnt(x)", Some("2")),
        ("res.hdr_ip(ip)", Some("10.0.0.1")),
        ("shdr_val(x)", Some("3")),
        ("res.cook(b)", Some("4")),
        ("scook(a)", Some("1")),
        ("cookie(b)", Some("4")),
        ("res.cook_cnt", Some("2")),
        ("res.hdr_names", Some("x,x,set-cookie,set-cookie,ip")),
        ("res.hdr(none)", None),
    ] {
        assert_eq!(world.text(expression).as_deref(), expected, "{expression}");
    }
}

#[test]
fn samples_of_proxies_and_servers_come_from_the_host() {
    let mut world = World::new();
    world.server.backend = Some(manylane_expr::ProxyInfo { id: 5, name: b"b", default_backend: b"" });
    world.server.server = Some((9, b"s1"));
    for (expression, expected) in [
        ("nbsrv(b)", "3"),
        ("str(b),nbsrv", "3"),
        ("srv_is_up(b/s1)", "1"),
        ("str(b/s1),srv_queue", "11"),
        ("be_conn(b)", "42"),
        ("fe_conn", "42"),
        ("fe_conn(f)", "42"),
        ("be_id", "5"),
        ("be_name", "b"),
        ("srv_id", "9"),
        ("srv_name", "s1"),
        ("fe_name", "f"),
        ("stopping", "0"),
        ("ssl_fc,iif(https,http)", "http"),
    ] {
        assert_eq!(world.text(expression).as_deref(), Some(expected), "{expression}");
    }
    assert_eq!(world.text("http_auth(users)"), None, "without credentials");
    assert_eq!(world.refusal("nbsrv(nowhere)").0, 6);
    assert!(world.refusal("nbsrv").1.contains("the section here is none"));
    assert!(world.refusal("srv_conn(b/s2)").1.contains("expects <backend>/<server>"));
}

#[test]
fn credentials_are_read_from_the_field_authorization() {
    let mut world = World::new();
    world.request = Some(request("GET", "/", &[("authorization", "Basic dXNlcjpwYTpzcw==")]));
    assert_eq!(world.text("http_auth(users)").as_deref(), Some("1"));
    assert_eq!(world.text("http_auth_pass").as_deref(), Some("pa:ss"));
    world.request =
        Some(request("GET", "/", &[("authorization", "Bearer abc.def"), ("x-token", "Bearer t")]));
    assert_eq!(world.text("http_auth_bearer").as_deref(), Some("abc.def"));
    assert_eq!(world.text("http_auth_bearer(x-token)").as_deref(), Some("t"));
    assert_eq!(world.text("http_auth_user"), None);
}

#[test]
fn targets_in_absolute_form_have_address_and_port() {
    let mut world = World::new();
    world.request = Some(request("GET", "http://10.1.2.3:81/p?q", &[("host", "10.1.2.3:81")]));
    assert_eq!(world.text("url_ip").as_deref(), Some("10.1.2.3"));
    assert_eq!(world.text("url_port").as_deref(), Some("81"));
    assert_eq!(world.text("path").as_deref(), Some("/p"));
    assert_eq!(world.text("pathq").as_deref(), Some("/p?q"));
    world.request = Some(request("OPTIONS", "*", &[("host", "h")]));
    assert_eq!(world.text("path"), None);
    assert_eq!(world.text("url").as_deref(), Some("*"));
}

#[test]
fn samples_tell_of_the_servers_connection() {
    let mut world = World::new();
    for (sample, expected) in [
        ("bc_glitches", "3"),
        ("bc_nb_streams", "2"),
        ("bc_settings_streams_limit", "100"),
        ("bs.id", "5"),
        ("bs.aborted", "1"),
        ("bs.rst_code", "8"),
        ("bc_err", "47"),
        ("bc_err_name", "NAME"),
        ("bc_err_str", "It is broken"),
    ] {
        assert_eq!(world.text(sample).as_deref(), Some(expected), "{sample}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Item 62 of haproxy-today.
#[test]
fn messages_of_fix_are_checked_and_read() {
    let message = |begin: &str, body: &str| {
        let body = body.replace('|', "\x01");
        let text = format!("{begin}\x019={}\x01{body}", body.len());
        let sum = text.bytes().fold(0_u8, |sum, byte| sum.wrapping_add(byte));
        format!("{text}10={sum:03}\x01").into_bytes()
    };
    let good = message("8=FIX.4.4", "35=A|49=CLIENT|56=SERVER|34=1|");
    let mut world = World::new();
    let mut valid = |bytes: &[u8]| world.text(&format!("bin({}),fix_is_valid", hex(bytes)));
    assert_eq!(valid(&good).as_deref(), Some("1"));
    let two = [&good[..], b"8=FIX"].concat();
    assert_eq!(valid(&two).as_deref(), Some("1"), "what follows is another message");
    assert_eq!(valid(&message("8=FIXT.1.1", "35=A|")).as_deref(), Some("1"));
    for wrong in ["35=A|49=|", "35=A|x=1|", "49=C|35=A|", "35=A|49"] {
        assert_eq!(valid(&message("8=FIX.4.4", wrong)).as_deref(), Some("0"), "{wrong}");
    }
    assert_eq!(valid(&message("8=FIX.9.9", "35=A|")).as_deref(), Some("0"));
    for at in 0..good.len() {
        let mut bent = good.clone();
        bent[at] ^= 4;
        // With its last byte or the tag of its checksum changed, the message has no end: more may come.
        let is_open = at == good.len() - 1 || good[at..].starts_with(b"0=") || good[at..].starts_with(b"10=");
        assert_eq!(valid(&bent).as_deref(), Some("0").filter(|_| !is_open), "changed at {at}");
        assert_eq!(valid(&good[..at]), None, "cut at {at}");
    }
    for (tag, value) in [
        ("35", Some("A")),
        ("MsgType", Some("A")),
        ("SenderCompID", Some("CLIENT")),
        ("sendercompid", Some("CLIENT")),
        ("77", None),
    ] {
        let given = world.text(&format!("bin({}),fix_tag_value({tag})", hex(&good)));
        assert_eq!(given.as_deref(), value, "{tag}");
    }
    for wrong in ["0", "x", "-1", ""] {
        world.refusal(&format!("bin(00),fix_tag_value({wrong})"));
    }
}

/// A field of an inner message is searched only in that message. Item 62 of haproxy-today.
#[test]
fn fields_of_protobuf_are_found_within_their_messages() {
    // 1: { 1: 150, 3: "inner" }, 2: "outer", 4: -3 (zigzag), 5: 1.5 as a float, 6: -2.5 as a double,
    // 1: { 2: "x" }
    let message = [
        &[0x0a, 10, 0x08, 0x96, 0x01, 0x1a, 5][..],
        b"inner",
        &[0x12, 5],
        b"outer",
        &[0x20, 5, 0x2d],
        &1.5_f32.to_le_bytes(),
        &[0x31],
        &(-2.5_f64).to_le_bytes(),
        &[0x0a, 3, 0x12, 1],
        b"x",
    ]
    .concat();
    let grpc = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
    let mut world = World::new();
    for (arguments, expected) in [
        ("1.1,int32", Some("150")),
        ("1.1,uint64", Some("150")),
        ("1.1", Some("\\x96\\x01")),
        ("1.3", Some("inner")),
        ("1.2", Some("x")),
        ("2", Some("outer")),
        ("2.1", None),
        ("3", None),
        ("4,sint32", Some("-3")),
        ("4,sint64", Some("-3")),
        ("4,bool", Some("1")),
        ("5,float", Some("1")),
        ("6,double", Some("-2")),
        ("6,bool", None),
    ] {
        let requested = [("protobuf", &message), ("ungrpc", &grpc)];
        for (name, bytes) in requested {
            let given = world.text(&format!("bin({}),{name}({arguments})", hex(bytes)));
            assert_eq!(given.as_deref(), expected, "{name}({arguments})");
        }
    }
    for cut in 0..message.len() {
        world.text(&format!("bin({}),protobuf(9)", hex(&message[..cut])));
    }
    let compressed = [&[1][..], &grpc[1..]].concat();
    assert_eq!(world.text(&format!("bin({}),ungrpc(2)", hex(&compressed))), None);
    for wrong in ["0", "1.", "x", "1,string", "1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1"] {
        world.refusal(&format!("bin(00),protobuf({wrong})"));
    }
}

/// A token names its own algorithm. It must not thereby avoid the check of its signature (RFC 8725, 2.1 and
/// 3.1).
#[test]
fn a_token_does_not_choose_how_a_public_key_is_used() {
    let mut world = World::new();
    world.names.files.insert(b"rsa.pem".into(), include_bytes!("rsa.pem").into());
    const RS256: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzI1NiJ9.eyJpc3MiOiJtZSIsInN1YiI6ImEgYiIsIm4iOjEyLjUsImFyciI6WzEsIngiXSwiaSI6N30.PRskNn1Ah8mJEkTPfV89rnqWMQMRjjcdOkzz3qWgHFwWfN0QBDRUi5QEUCOCXgtfzEroeW08dOl8yiHi1o60QttyIOkKQRjGmvPEACT6SsxQu3iVWaJNDjp_yTJVcBh_vdlHCK-T7yuLaVS2_j-dXARvhRfFgSGqTWu4c8agz5l7DqeV9L-0-o9n9VD8DGjR-56dWvdVrEFhIpxo0XQZtTb9qybQZhRuz4xNaWCRC9kqkYurbThrFI8EsK2XPgXNZyY2XNTLmpzU_WhpZYZVpaOAV_cEsIq6hR9dtBKbHT29jDd_BWydTnIZ9ST5cDIOFGz03LgMts-RbqtVkx4PCg";
    // One token is signed with the path as the secret; the other is not signed.
    const HS256: &str = "eyJhbGciOiAiSFMyNTYifQ.eyJzdWIiOiJtZSJ9.EsdFZ7ObS0Loz-oPFx_xLqB5luOcxpSm-rrJnDvPRVs";
    const NONE: &str = "eyJhbGciOiAibm9uZSJ9.eyJzdWIiOiJtZSJ9.";
    for (name, token, by_variable, by_name) in
        [("RS256", RS256, "1", "1"), ("HS256", HS256, "0", "1"), ("none", NONE, "0", "1")]
    {
        world.text(&format!("str({name}),set-var(txn.alg)"));
        let mut verified = |algorithm: &str, key: &str| {
            world.text(&format!("str({token}),jwt_verify({algorithm},{key})")).unwrap()
        };
        assert_eq!(verified("txn.alg", "rsa.pem"), by_variable, "{name}");
        // An algorithm in the configuration is the choice of its author.
        assert_eq!(verified(name, "rsa.pem"), by_name, "{name}");
    }
    // With a secret instead of a file, a variable may select `none`.
    world.text("str(none),set-var(txn.alg)");
    assert_eq!(world.text(&format!("str({NONE}),jwt_verify(txn.alg,secret)")).as_deref(), Some("1"));
}

/// A client that has the search give up does not get a text past it that should have been changed.
#[test]
fn a_text_that_a_search_gives_up_on_is_not_passed_on_unchanged() {
    let mut world = World::new();
    for (length, expected) in [(20, Some("a<".repeat(20) + "b.")), (1_500, None)] {
        let text = "a<".repeat(length) + "b<";
        world.request = Some(request("GET", "/", &[("x", &text)]));
        assert_eq!(world.text("req.hdr(x),regsub('(?<!a)<',.,g)"), expected, "{length}");
    }
}
