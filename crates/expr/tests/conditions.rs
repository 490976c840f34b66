//! ACLs and conditions.

mod common;
use common::{World, response};
use manylane_expr::*;

/// Conditions with their results, which the installed haproxy confirms.
const CONDITIONS: &[(&str, bool)] = &[
    ("TRUE", true),
    ("!TRUE", false),
    ("! ! TRUE", true),
    ("FALSE or TRUE", true),
    ("FALSE || FALSE", false),
    ("TRUE FALSE or TRUE", true),
    ("METH_GET", true),
    ("METH_POST", false),
    ("HTTP_URL_SLASH !HTTP_URL_STAR HTTP_1.1 LOCALHOST", true),
    ("{ src 127.0.0.0/8 }", true),
    ("{ src 10.0.0.0/8 127.1/8 }", true),
    ("{ src ::ffff:127.0.0.1 }", true),
    ("{ src ::1 2001:db8::/32 }", false),
    ("{ path /a/b }", true),
    ("{ path /A/B }", false),
    ("{ path -i /A/B }", true),
    ("{ path_beg /a /x }", true),
    ("{ path_beg -i /A/ }", true),
    ("{ path_end b }", true),
    ("{ path_end -i .gif /B }", true),
    ("{ path_dir a }", true),
    ("{ path_dir /a/b/ }", true),
    ("{ path_dir a/ }", true),
    ("{ path_sub /a/b c }", true),
    ("{ path_sub -i A/B }", true),
    ("{ path_len 4 }", true),
    ("{ path_len gt 4 }", false),
    ("{ path_len 2:4 }", true),
    ("{ path_reg ^/[a-z]/b$ }", true),
    ("{ path_reg -i ^/A }", true),
    ("{ str(a%0a),url_dec -m reg a$ }", true),
    ("{ str(a%0a),url_dec -m reg b$ ^a$ c(?!d) }", true),
    ("{ str(a%0a),url_dec -m reg b$ ^a\\z c }", false),
    ("{ str(a%0a%0a),url_dec -m reg a$ }", false),
    ("{ str(a%0ab),url_dec -m reg a$ }", false),
    ("{ str(a%0a),url_dec -m reg a(?!b)$ }", true),
    ("{ path -m beg /a }", true),
    ("{ path_beg -m end /b }", true),
    ("{ path,upper -m str /A/B }", true),
    ("{ path_beg,upper /A/B }", true),
    ("{ path_beg,upper /A }", false),
    ("{ path_beg,field(2,/) a }", true),
    ("{ path_beg,field(2,/) -m beg a }", true),
    ("{ path_end,regsub(/b,) /a }", true),
    ("{ url_dom b }", true),
    ("{ str(http://www1.dc-eu.example.com:80/blah) -m dom dc-eu.example }", true),
    ("{ str(http://www1.dc-eu.example.com:80/blah) -m dom :www1: }", true),
    ("{ str(http://www1.dc-eu.example.com:80/blah) -m dom eu }", false),
    ("{ hdr(a) two }", true),
    ("{ hdr(a) \"x,y\" }", true),
    ("{ hdr(a,1) two }", false),
    ("{ req.fhdr(a) -m beg one, }", true),
    ("{ hdr(a) -m found }", true),
    ("{ hdr(nothere) -m found }", false),
    ("{ req.hdr(e) -m found }", true),
    ("{ req.hdr_cnt(e) 1 }", true),
    ("{ req.hdr_cnt(g) 3 }", true),
    ("{ hdr(g,2) -m len 0 }", true),
    ("{ req.fhdr(e) -m found }", true),
    ("{ req.hdr_cnt(a) 5 }", true),
    ("{ req.hdr_cnt(a) gt 5 }", false),
    ("{ req.hdr_cnt(a) ge 5 lt 0 }", true),
    ("{ hdr_val(n) 10:20 }", true),
    ("{ hdr_ip(p) 1.2.3.0/24 }", true),
    ("{ cook(c) 4 }", true),
    ("{ cook(c) 5 }", false),
    ("{ cook_val(c) gt 5 }", true),
    ("{ urlp(x) 1 }", true),
    ("{ urlp_val(y) 2 }", true),
    ("{ int(5) -m int 1:9 }", true),
    ("{ int(5) -m str 5 }", true),
    ("{ int(0) -m bool }", false),
    ("{ bool(1) -m int 1 }", true),
    ("{ bin(48656c6c6f) -m bin 48656C6C6F }", true),
    ("{ str(1.2.3.4) -m ip 1.2.3.0/255.255.255.0 }", true),
    ("{ str(-i) -m str -- -i }", true),
    ("{ method GET HEAD }", true),
    ("{ always_false } || { always_true }", true),
    ("{ var(txn.none) -m found }", false),
    ("{ int(3) eq 3 4 }", true),
    ("{ int(3) le 2 3 }", true),
    ("{ int(-3) lt 0 }", true),
];

#[test]
fn conditions_hold_as_the_manual_says() {
    let mut world = World::with_fields();
    let mut wrong = Vec::new();
    for (condition, expected) in CONDITIONS {
        if world.truth(condition) != (if *expected { Truth::Pass } else { Truth::Fail }) {
            wrong.push(*condition);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// An answer that `judge` gives without some inputs is the one that all inputs would give.
#[test]
fn what_is_known_without_everything_is_true() {
    let mut world = World::with_fields();
    let (mut open, mut known) = (0, 0);
    for (condition, expected) in CONDITIONS {
        let words: Vec<&[u8]> = condition.split(' ').map(str::as_bytes).collect();
        let compiled = world
            .compiling(|compiler| Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler))
            .unwrap();
        let singles = Needs::ALL.iter().map(|(one, ..)| *one);
        let needs = compiled.needs(&|_| Needs::VARIABLE).of(Direction::Request);
        for absent in singles.chain([Needs::NONE, needs]) {
            let judged = world.with(|env, scratch| {
                compiled.judge(env, &mut scratch.reborrow(), absent, &|_| Needs::VARIABLE)
            });
            match judged {
                Ok(holds) => {
                    assert_eq!(holds, *expected, "{condition} without {absent}");
                    known += 1;
                }
                Err(missing) => {
                    assert!(!missing.is_none() && missing.and(absent) == missing, "{condition}: {missing}");
                    open += 1;
                }
            }
        }
        let judged = world
            .with(|env, scratch| compiled.judge(env, &mut scratch.reborrow(), Needs::NONE, &|_| Needs::NONE));
        assert_eq!(judged, Ok(*expected), "{condition}");
    }
    assert!(open > 0 && known > open, "{known} known, {open} open");
}

#[test]
fn one_part_of_a_condition_may_be_enough() {
    let mut world = World::with_fields();
    for (condition, expected) in [
        ("{ path /a/b } || { rand(9) 3 }", Ok(true)),
        ("{ rand(9) 3 } || { path /a/b }", Ok(true)),
        ("{ path /x } { rand(9) 3 }", Ok(false)),
        ("{ rand(9) 3 } { path /x }", Ok(false)),
        ("{ path /a/b } { rand(9) 3 }", Err(Needs::RANDOM)),
        ("{ path /a/b } !{ rand(9) 3 }", Err(Needs::RANDOM)),
        ("{ path /x } || { rand(9) 3 }", Err(Needs::RANDOM)),
        ("{ acl(TRUE) } { var(txn.r),add(1) 2 }", Err(Needs::VARIABLE)),
    ] {
        let words: Vec<&[u8]> = condition.split(' ').map(str::as_bytes).collect();
        let compiled = world
            .compiling(|compiler| Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler))
            .unwrap();
        let absent = Needs::RANDOM | Needs::VARIABLE;
        let judged = world
            .with(|env, scratch| compiled.judge(env, &mut scratch.reborrow(), absent, &|_| Needs::VARIABLE));
        assert_eq!(judged, expected, "{condition}");
    }
}

/// Runs the conditions in the installed program, which sets a header field for each.
#[test]
fn the_installed_haproxy_agrees_on_every_condition() {
    let lines: Vec<String> = CONDITIONS
        .iter()
        .enumerate()
        .map(|(n, (condition, _))| {
            let condition = condition.replace('"', "\\\"");
            format!("    http-request set-header x-{n} yes if {condition}\n")
        })
        .collect();
    let mut wrong = Vec::new();
    for (start, part) in (0..).step_by(30).zip(lines.chunks(30)) {
        let names: Vec<String> = (start..start + part.len()).map(|n| format!("x-{n}")).collect();
        let Some(answers) = common::haproxy::run(&part.concat(), &names) else { return };
        for (n, answer) in (start..).zip(answers) {
            if (answer == b"yes") != CONDITIONS[n].1 {
                wrong.push(CONDITIONS[n].0);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn named_acls_are_alternatives_and_may_be_used_before_and_after_others() {
    let mut world = World::with_fields();
    let condition = world.compiling(|compiler| {
        compiler.add_acl(b"two", &[b"path", b"/x"]).unwrap();
        compiler.add_acl(b"two", &[b"path", b"/a/b"]).unwrap();
        compiler.add_acl(b"no", &[b"always_false"]).unwrap();
        let condition = Condition::compile(true, &[b"two", b"!no"], EvalPoints::HTTP_REQUEST, compiler);
        // The condition holds the compiled ACL, so a further line would have no effect and is refused.
        let late = compiler.add_acl(b"two", &[b"path", b"/y"]).unwrap_err();
        assert!(late.message.contains("behind a condition that uses it"), "{}", late.message);
        condition.unwrap()
    });
    assert!(world.with(|env, scratch| !condition.holds(env, scratch)), "unless turns the answer");
}

/// Item 35 of haproxy-today.
#[test]
fn the_fetch_acl_asks_whether_named_acls_hold() {
    let mut world = World::with_fields();
    let mut compiled = Vec::new();
    world.compiling(|compiler| {
        compiler.add_acl(b"two", &[b"path", b"/x"]).unwrap();
        compiler.add_acl(b"two", &[b"path", b"/a/b"]).unwrap();
        compiler.add_acl(b"no", &[b"always_false"]).unwrap();
        compiler.add_acl(b"both", &[b"acl(two,!no)"]).unwrap();
        for (expression, expected) in [
            ("acl(two)", true),
            ("acl(!two)", false),
            ("acl(no)", false),
            ("acl(both)", true),
            ("acl(two,!no,METH_GET)", true),
            ("acl(two,no)", false),
            ("acl(two,METH_POST)", false),
        ] {
            let expression = Expression::compile(expression.as_bytes(), EvalPoints::HTTP_REQUEST, compiler);
            compiled.push((expression.unwrap(), expected));
        }
        let error = |text: &[u8], compiler: &mut Compiler<'_>| {
            Expression::compile(text, EvalPoints::HTTP_REQUEST, compiler).unwrap_err().message
        };
        assert!(error(b"acl(none)", compiler).contains("unknown ACL"), "{}", error(b"acl(none)", compiler));
        assert!(error(b"acl()", compiler).contains("unknown ACL"), "{}", error(b"acl()", compiler));
        // An ACL that uses itself accepts no further line.
        compiler.add_acl(b"self", &[b"always_false"]).unwrap();
        assert!(compiler.add_acl(b"self", &[b"acl(self)"]).is_err());
        // The depth of a chain is bounded.
        compiler.add_acl(b"d0", &[b"acl(two)"]).unwrap();
        let wrong = (1..30).find(|n| {
            let (name, inner) = (format!("d{n}"), format!("acl(d{})", n - 1));
            compiler.add_acl(name.as_bytes(), &[inner.as_bytes()]).is_err()
        });
        assert_eq!(wrong, Some(16));
    });
    for (n, (expression, expected)) in compiled.iter().enumerate() {
        let value = world.with(|env, scratch| expression.eval_int(env, scratch));
        assert_eq!(value, Some(i64::from(*expected)), "number {n}");
    }
}

/// A wrong line is reported once; uses of the ACL cause no further error.
#[test]
fn an_acl_whose_line_is_wrong_is_there() {
    let mut world = World::with_fields();
    world.compiling(|compiler| {
        assert!(compiler.add_acl(b"bad", &[b"pth", b"/x"]).is_err());
        let condition = Condition::compile(false, &[b"bad"], EvalPoints::HTTP_REQUEST, compiler);
        assert!(condition.is_ok() && compiler.take_warnings().is_empty());
    });
}

#[test]
fn a_condition_that_can_never_match_where_it_stands_is_a_warning() {
    let mut world = World::with_fields();
    world.compiling(|compiler| {
        Condition::compile(false, &[b"TRUE", b"{", b"path", b"/a", b"}"], EvalPoints::CONNECTION, compiler)
            .unwrap();
    });
    assert_eq!(world.warnings.len(), 1);
    assert!(world.warnings[0].message.contains("never matches"), "{}", world.warnings[0].message);
}

#[test]
fn what_has_not_been_received_makes_a_content_rule_wait() {
    let mut world = World::new();
    world.request = None;
    world.is_final = false;
    world.complete = false;
    let check = |world: &mut World, condition: &str, expected| {
        assert_eq!(world.truth(condition), expected, "{condition}");
    };
    check(&mut world, "{ req.len gt 3 }", Truth::Wait);
    check(&mut world, "!{ req.len gt 3 }", Truth::Wait);
    check(&mut world, "{ req.payload(0,3) -m bin 010203 }", Truth::Wait);
    check(&mut world, "WAIT_END", Truth::Wait);
    check(&mut world, "{ req.ssl_hello_type 1 }", Truth::Wait);
    check(&mut world, "{ req.payload(0,3) -m found } or TRUE", Truth::Pass);
    check(&mut world, "{ req.payload(0,3) -m found } FALSE", Truth::Fail);
    world.request_bytes.append(&[1, 2]).unwrap();
    check(&mut world, "{ req.payload(0,2) -m bin 0102 }", Truth::Pass);
    check(&mut world, "{ req.payload(0,2) -m bin 0103 }", Truth::Fail);
    check(&mut world, "{ req.payload(0,0) -m bin 0103 }", Truth::Wait);
    check(&mut world, "{ req.ssl_hello_type 1 }", Truth::Fail);
    world.is_final = true;
    check(&mut world, "{ req.len gt 3 }", Truth::Fail);
    check(&mut world, "!{ req.len gt 3 }", Truth::Pass);
    check(&mut world, "{ req.payload(0,3) -m found }", Truth::Fail);
    check(&mut world, "WAIT_END", Truth::Pass);
}

/// As the installed haproxy does; a version without a minor part has 0.
#[test]
fn versions_of_tls_are_compared_in_decimal_notation() {
    let mut world = World::new();
    world.request = None;
    let hello =
        [&b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03"[..], &[7; 32], b"\0\0\x02\x13\x01\x01\0\0\0"].concat();
    world.request_bytes.append(&hello).unwrap();
    for (condition, holds) in [
        ("{ req.ssl_ver 3.3 }", true),
        ("{ req_ssl_ver 3.1 3.3 }", true),
        ("{ req.ssl_ver 3.1:3.3 }", true),
        ("{ req.ssl_ver 3.1-3.2 }", false),
        ("{ req.ssl_ver 2: }", true),
        ("{ req.ssl_ver :3 }", false),
        ("{ req.ssl_ver 3 }", false),
        ("{ req.ssl_ver gt 3 }", true),
        ("{ req.ssl_ver gt 3.3 }", false),
        ("{ req.ssl_ver lt 3.4 }", true),
        ("{ req.ssl_ver lt 0 }", false),
        ("{ req.ssl_ver gt 3.1-3.3 }", true),
        ("{ req.ssl_ver -m int 196611 }", true),
        ("{ req.ssl_ver,add(1) 196612 }", true),
    ] {
        let expected = if holds { Truth::Pass } else { Truth::Fail };
        assert_eq!(world.truth(condition), expected, "{condition}");
    }
    // Lists of them, from a file or a line, have the same notation, and so do changes.
    world.names.files.insert(b"versions.lst".to_vec(), b"3.1\n2-3.0\n".to_vec());
    world.names.files.insert(b"numbers.lst".to_vec(), b"196611\n".to_vec());
    assert_eq!(world.truth("{ req.ssl_ver -f versions.lst }"), Truth::Fail);
    assert_eq!(world.truth("{ req.ssl_ver -m int -f numbers.lst }"), Truth::Pass);
    let list = world.references.get(b"versions.lst", false).unwrap();
    list.add_new(b"3.3", b"").unwrap();
    assert_eq!(world.truth("{ req.ssl_ver -f versions.lst }"), Truth::Pass);
    assert_eq!(list.remove(EntrySelector::Pattern(b"3.3")), 1);
    assert_eq!(world.truth("{ req.ssl_ver -f versions.lst }"), Truth::Fail);
    let refused = list.add_new(b"196611", b"").unwrap_err();
    assert!(refused.contains("expected a version such as 3.1 or a range"), "{refused}");
    assert_eq!(world.truth("{ req.ssl_ver gt 3.1 }"), Truth::Pass);
    let last = world.references.numbered().last().map(|(_, list)| list.entries(None)).unwrap();
    assert_eq!(last.iter().next().unwrap().pattern(), b"3.2:");
}

#[test]
fn files_of_patterns_are_shared_and_changed_while_they_are_read() {
    let mut world = World::with_fields();
    let list = b"# comment\n\n  /a/b  x\r\n/c\n \t# kept\n".to_vec();
    world.names.files.insert(b"paths.lst".to_vec(), list);
    world.names.files.insert(b"m.map".to_vec(), b"/a/b  first value \n/a  second\n/a/b third\n".to_vec());
    assert_eq!(world.truth("{ str(/c) -f paths.lst }"), Truth::Pass);
    assert_eq!(world.truth("{ str(/C) -f paths.lst }"), Truth::Fail);
    assert_eq!(world.truth("{ str(/C) -i -f paths.lst }"), Truth::Pass);
    assert_eq!(world.text("str('/a/b  x'),length").as_deref(), Some("7"));
    assert_eq!(world.text("path,map(m.map)").as_deref(), Some("first value"));
    assert_eq!(world.text("path,map_beg(m.map)").as_deref(), Some("first value"));
    assert_eq!(world.text("str(/a/),map_beg(m.map)").as_deref(), Some("second"));
    assert_eq!(world.text("str(x),map(m.map,none)").as_deref(), Some("none"));
    assert_eq!(world.text("str(x),map(m.map)"), None);
    assert!(
        world
            .refusal("path,map_str_int(m.map)")
            .1
            .contains("line 1 of 'm.map' expects a whole number as its value, found 'first value'")
    );
    assert_eq!(world.references.numbered().len(), 2);

    let map = world.references.get(b"m.map", true).unwrap();
    map.set(b"/a/b", b"new").unwrap();
    assert_eq!(world.text("path,map(m.map)").as_deref(), Some("new"));
    map.set(b"/n", b"added").unwrap();
    assert_eq!(world.text("str(/n),map(m.map)").as_deref(), Some("added"));
    assert_eq!(map.remove(EntrySelector::Pattern(b"/a/b")), 2);
    assert_eq!(world.text("path,map(m.map)"), None);
    let list = world.references.get(b"paths.lst", false).unwrap();
    list.add_new(b"/a/b", b"").unwrap();
    assert_eq!(world.truth("{ path -f paths.lst }"), Truth::Pass);
}

#[test]
fn a_version_that_is_prepared_replaces_all_entries_at_once() {
    let mut world = World::with_fields();
    world.names.files.insert(b"m.map".to_vec(), b"a 1\nb 2\n".to_vec());
    assert_eq!(world.text("str(a),map_str_int(m.map)").as_deref(), Some("1"));
    let map = world.references.get(b"m.map", true).unwrap();
    let pair = |key: &str, value: &str| (key.as_bytes().into(), value.as_bytes().into());
    assert_eq!(map.add_all(Some(1), vec![pair("c", "3")]), Err(NotAdded::Version(NoVersion::Future)));
    assert_eq!((map.prepare(), map.prepare()), (1, 2));
    map.add_all(Some(1), vec![pair("gone", "0")]).unwrap();
    let refused = map.add_all(Some(2), vec![pair("c", "3"), pair("d", "four")]);
    assert_eq!(refused, Err(NotAdded::Refused("the map expects a whole number, found 'four'".into())));
    assert_eq!(map.entries(Some(2)).len(), 0, "all or none");
    map.add_all(Some(2), vec![pair("c", "3"), pair("d", "4")]).unwrap();
    assert_eq!(world.text("str(c),map_str_int(m.map)"), None);
    assert_eq!(map.summary().entries, 5);
    assert_eq!(map.commit(3), Err(NotAdded::Version(NoVersion::Future)));
    map.commit(2).unwrap();
    assert_eq!(map.commit(1), Err(NotAdded::Version(NoVersion::Past)));
    assert_eq!(map.add_all(Some(1), vec![pair("e", "5")]), Err(NotAdded::Version(NoVersion::Past)));
    assert_eq!(world.text("str(c),map_str_int(m.map)").as_deref(), Some("3"));
    assert_eq!(world.text("str(a),map_str_int(m.map)"), None);
    assert_eq!((map.summary().version, map.summary().entries), (2, 2));
    let second = map.entries(None).iter().nth(1).unwrap().id();
    assert_eq!(map.replace(EntrySelector::Id(second), b"44"), Ok(1));
    assert!(map.replace(EntrySelector::Id(second), b"x").is_err());
    assert_eq!(world.text("str(d),map_str_int(m.map)").as_deref(), Some("44"));
    assert_eq!((map.remove(EntrySelector::Id(second)), map.remove(EntrySelector::Id(second))), (1, 0));
    map.clear(None);
    assert_eq!(world.text("str(c),map_str_int(m.map)"), None);
}

#[test]
fn patterns_of_a_line_have_numbers_and_are_changed_like_those_of_files() {
    let mut world = World::with_fields();
    world.names.files.insert(b"nets".to_vec(), b"10.0.0.0/8\n".to_vec());
    assert_eq!(world.truth("{ int(7) gt 7 }"), Truth::Fail);
    assert_eq!(world.truth("{ path -u 1 /none } or { src -f nets }"), Truth::Fail);
    let all: Vec<_> =
        world.references.numbered().into_iter().map(|(number, list)| (number, list.clone())).collect();
    assert_eq!(all.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(all[0].1.entries(None).iter().next().unwrap().pattern(), b"8:");
    assert_eq!(all[1].1.summary().users, ["acl 'path' an unknown line"]);
    assert_eq!(all[2].1.name(), Some(&b"nets"[..]));
    let words: Vec<&[u8]> = vec![b"{", b"path", b"-u", b"1", b"/other", b"}"];
    let error = world.compiling(|compiler| {
        Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler).unwrap_err()
    });
    assert!(error.message.contains("found 1, which another ACL has"), "{}", error.message);
}

#[test]
fn a_change_that_a_view_refuses_changes_nothing() {
    let mut world = World::with_fields();
    world.names.files.insert(b"nets".to_vec(), b"10.0.0.0/8\n".to_vec());
    assert_eq!(world.truth("{ src -f nets }"), Truth::Fail);
    let nets = world.references.get(b"nets", false).unwrap();
    assert!(
        nets.add_new(b"not an address", b"")
            .unwrap_err()
            .contains("expected an address or a network, found 'not an address'")
    );
    nets.add_new(b"127.0.0.0/8", b"").unwrap();
    assert_eq!(world.truth("{ src -f nets }"), Truth::Pass);
    world.names.files.insert(b"bad".to_vec(), b"10.0.0.0/8\n10.0.0.0/99\n".to_vec());
    let words: Vec<&[u8]> = vec![b"{", b"src", b"-f", b"bad", b"}"];
    let error = world.compiling(|compiler| {
        Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler).unwrap_err()
    });
    assert!(error.message.starts_with("line 2 of 'bad'"), "{}", error.message);
}

#[test]
fn maps_of_every_kind_find_their_value() {
    let mut world = World::with_fields();
    for (file, bytes) in [
        ("ip", "10.0.0.0/8 wide\n10.1.0.0/16 fine\n2001:db8::/32 six\n"),
        ("int", "5 five\n6:9 more\n"),
        ("end", ".example.org two\nexample.org one\n"),
        ("dom", "example a\n"),
        ("dir", "img a\n"),
        ("sub", "bc first\nab second\n"),
        ("reg", "^/(.)/(.) \\2\\1!\n"),
        ("addr", "x 1.2.3.4\n"),
    ] {
        world.names.files.insert(file.into(), bytes.into());
    }
    for (expression, expected) in [
        ("ipv4(10.1.2.3),map_ip(ip)", Some("fine")),
        ("ipv4(10.2.2.3),map_ip(ip)", Some("wide")),
        ("ipv6(2001:db8::1),map_ip(ip)", Some("six")),
        ("ipv6(::ffff:10.1.0.1),map_ip(ip)", Some("fine")),
        ("ipv4(1.1.1.1),map_ip(ip)", None),
        ("int(5),map_int(int)", Some("five")),
        ("int(8),map_int(int)", Some("more")),
        ("str(www.example.org),map_end(end)", Some("two")),
        ("str(www.example.com),map_dom(dom)", Some("a")),
        ("str(/x/img/y),map_dir(dir)", Some("a")),
        ("str(xabcx),map_sub(sub)", Some("first")),
        ("path,map_regm(reg)", Some("ba!")),
        ("path,map_reg(reg)", Some("\\\\2\\\\1!")),
        ("str(x),map_str_ip(addr),ipmask(8)", Some("1.0.0.0")),
        ("str(y),map_str_int(int,7),add(1)", Some("8")),
    ] {
        if expression.contains("map_str_int") {
            assert!(world.refusal(expression).1.contains("whole number"));
            continue;
        }
        assert_eq!(world.text(expression).as_deref(), expected, "{expression}");
    }
}

#[test]
fn conditions_on_responses_look_at_the_response() {
    let mut world = World::with_fields();
    world.direction = Direction::Response;
    world.response = Some(response(503, &[("x", "1")]));
    for (condition, expected) in [
        ("{ status 500:599 }", Truth::Pass),
        ("{ status 200 }", Truth::Fail),
        ("{ res.hdr(x) 1 }", Truth::Pass),
        ("{ shdr_beg(x) 1 }", Truth::Pass),
    ] {
        assert_eq!(world.truth(condition), expected, "{condition}");
    }
}

#[test]
fn a_list_has_a_file_or_may_have_one_or_is_only_a_name() {
    let mut world = World::with_fields();
    world.names.files.insert(b"there".to_vec(), b"/a/b one\n".to_vec());
    // All spellings of a file name the same list.
    for name in ["there", "file@there", "opt@there"] {
        assert_eq!(world.text(&format!("path,map({name})")).as_deref(), Some("one"));
    }
    assert_eq!(world.references.numbered().len(), 1);
    let list = |world: &World, name: &[u8]| world.references.get(name, true).unwrap();
    assert_eq!(list(&world, b"opt@there").name(), Some(&b"there"[..]));
    // These have no file and start empty.
    for name in ["opt@absent", "virt@there"] {
        assert_eq!(world.text(&format!("path,map({name})")), None);
        list(&world, name.as_bytes()).add_new(b"/a/b", b"two").unwrap();
        assert_eq!(world.text(&format!("path,map({name})")).as_deref(), Some("two"));
    }
    assert_eq!(list(&world, b"absent").name(), Some(&b"absent"[..]));
    assert_eq!(list(&world, b"virt@there").name(), Some(&b"virt@there"[..]));
    assert_eq!(world.text("path,map(there)").as_deref(), Some("one"));
    // A line that requires the file is refused, even if another line made it optional.
    for name in ["absent", "file@absent", "virt@", "opt@"] {
        let (_, message) = world.refusal(&format!("path,map({name})"));
        assert!(message.contains("cannot read"), "{name}: {message}");
    }
    assert_eq!(world.truth("{ path -f virt@paths }"), Truth::Fail);
    world.references.get(b"virt@paths", false).unwrap().add_new(b"/a/b", b"").unwrap();
    assert_eq!(world.truth("{ path -f virt@paths }"), Truth::Pass);
}
