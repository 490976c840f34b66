//! Fetches and converters, one line each: what HAProxy 3.2 gives for them was tried with the installed
//! program (`tests/differential.rs` tries it again).

mod common;
use common::{World, request, response};

/// Expressions of the text that `tests/differential.rs` gives to haproxy as well.
const CASES: &str = include_str!("cases.txt");

#[test]
fn every_case_gives_the_value_beside_it() {
    let mut world = World::new();
    world.request = Some(request(
        "GET",
        "/a/b?x=1&y=2",
        &[
            ("host", "127.0.0.1:18099"),
            ("a", "one, two ,three"),
            ("a", "\"x,y\", four"),
            ("n", "12abc"),
            ("p", "1.2.3.4:80"),
            ("s", "::1"),
            ("cookie", "c=1; d=\"23\"; c=4"),
            ("cookie", "c=9"),
            ("authorization", "Basic dXNlcjpwYTpzcw=="),
        ],
    ));
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
fn facts_of_proxies_and_servers_come_from_the_host() {
    let mut world = World::new();
    world.server.backend = Some(manylane_expr::ProxyFacts { id: 5, name: b"b", default_backend: b"" });
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
        ("http_auth(users)", "0"),
    ] {
        assert_eq!(world.text(expression).as_deref(), Some(expected), "{expression}");
    }
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
