//! Edits of heads against a model: a vector of pairs. Each head is written after every few edits, and a
//! reader as simple as possible reads the result.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, External, Segment};
use manylane_http::{
    CaseTable, CaseTableError, EditError, FieldLine, Fields, Head, Kind, Known, MAX_FIELDS, MAX_OPTIONS,
    Method, PushError, RequestLine, StatusLine, Version,
};
use proptest::prelude::*;

type Pairs = Vec<(String, String)>;

fn segment(bytes: &[u8]) -> Segment {
    match manylane_buf::Cluster::with(bytes) {
        Ok(cluster) => cluster.into_segment(),
        Err(_) => External::from_vec(bytes.to_vec()).expect("memory"),
    }
}

/// Returns a head as a parser makes it, with odd but legal spaces, and bytes of a body behind it in the same
/// segment.
fn parsed(kind: Kind, pairs: &[(String, String)], room: usize) -> Head {
    let mut text = match kind {
        Kind::Request => "GET /p?q HTTP/1.1\r\n".to_owned(),
        Kind::Response => "HTTP/1.1 200 OK\r\n".to_owned(),
        Kind::Trailers => String::new(),
    };
    let end = text.len();
    let mut fields = Fields::new().expect("memory");
    for (n, (name, value)) in pairs.iter().enumerate() {
        let at = text.len();
        let (before, behind) = [(" ", ""), ("", " \t"), ("  ", "")][n % 3];
        text.push_str(&format!("{name}:{before}{value}{behind}\r\n"));
        fields
            .push(FieldLine {
                name: at as u16,
                name_len: name.len() as u16,
                value: (at + name.len() + 1 + before.len()) as u16,
                value_len: value.len() as u16,
                end: text.len() as u16,
                known: Known::of(name.as_bytes()),
            })
            .expect("room");
    }
    text.push_str("\r\n");
    let mut all = segment(format!("{text}the body").as_bytes());
    let original = all.split_to(text.len()).expect("within");
    match kind {
        Kind::Request => {
            let line =
                RequestLine { kind: Method::Get, method: 0..3, target: 4..8, version: Version::HTTP_11, end };
            Head::parsed_request(original, &line, fields, room)
        }
        Kind::Response => Head::parsed_response(
            original,
            &StatusLine { version: Version::HTTP_11, status: 200, reason: 13..15, end },
            fields,
            room,
        ),
        Kind::Trailers => Head::parsed_trailers(original, fields, room),
    }
}

fn written(head: &mut Head) -> String {
    let mut out = Chain::new();
    out.append(b"before").expect("memory");
    head.emit(&mut out, None).expect("memory");
    let text = String::from_utf8(out.to_vec()).expect("text");
    text.strip_prefix("before").expect("it was there").to_owned()
}

/// Returns first line and fields of a written head.
fn read(text: &str) -> (String, Pairs) {
    let text = text
        .strip_suffix("\r\n\r\n")
        .or_else(|| (text == "\r\n").then_some(""))
        .expect("an empty line at the end");
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let pair = |line: &str| {
        let (name, value) = line.split_once(':').expect("a colon");
        (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
    };
    (first, lines.map(pair).collect())
}

#[test]
fn a_head_of_edits_alone_is_written() {
    let mut head = Head::request(b"GET", b"/a?b=c", Version::HTTP_11).expect("valid");
    head.add_field(Known::HOST, b"example").expect("valid");
    head.add_field("X-List", b"a, b").expect("valid");
    head.set_path(b"/new").expect("valid");
    head.remove_fields("x-list");
    assert_eq!(written(&mut head), "GET /new?b=c HTTP/1.1\r\nhost: example\r\n\r\n");
    assert_eq!(head.size(), written(&mut head).len());
    let mut trailers = Head::trailers().expect("memory");
    trailers.add_field("X-Sum", b"1").expect("valid");
    assert_eq!(written(&mut trailers), "X-Sum: 1\r\n\r\n");
    assert_eq!(trailers.size(), 12);
}

#[test]
fn an_unchanged_head_is_its_original_and_is_not_copied() {
    let pairs = [("Host".to_owned(), "a".to_owned()), ("X".to_owned(), "y".to_owned())];
    let mut head = parsed(Kind::Request, &pairs, 16_384);
    let mut out = Chain::new();
    head.emit(&mut out, None).expect("memory");
    assert_eq!(out, b"GET /p?q HTTP/1.1\r\nHost: a\r\nX:y \t\r\n\r\n");
    assert!(
        out.front().is_some_and(|front| head.original().is_some_and(|original| front.shares_with(original)))
    );
}

#[test]
fn few_edits_leave_the_rest_uncopied() {
    let pairs: Vec<_> = (0..10).map(|n| (format!("X-{n}"), "y".repeat(40))).collect();
    let mut head = parsed(Kind::Request, &pairs, 16_384);
    head.remove_fields("X-4");
    head.add_field("X-Added", b"1").expect("valid");
    let mut out = Chain::new();
    head.emit(&mut out, None).expect("memory");
    let original = head.original().expect("it was parsed");
    let shared: Vec<_> = out.segments().map(|segment| segment.shares_with(original)).collect();
    // before and behind the removed field, and the added field with the empty line
    assert_eq!(shared, [true, true, false]);
}

#[test]
fn parts_of_the_target_are_replaced_alone() {
    let edit = |target: &[u8], edit: &dyn Fn(&mut Head) -> Result<(), EditError>| {
        let mut head = Head::request(b"OPTIONS", target, Version::HTTP_11).expect("valid");
        edit(&mut head).map(|()| {
            assert_eq!(head.size(), written(&mut head).len());
            String::from_utf8(head.target().to_vec()).expect("text")
        })
    };
    let path = |target: &[u8], new: &'static [u8]| edit(target, &|head| head.set_path(new)).ok();
    let pathq = |target: &[u8], new: &'static [u8]| edit(target, &|head| head.set_pathq(new)).ok();
    let query = |target: &[u8], new: &'static [u8]| edit(target, &|head| head.set_query(new)).ok();
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(path(b"/a?b", b"/c"), is("/c?b"));
    assert_eq!(path(b"http://h/a?b", b"/c"), is("http://h/c?b"));
    assert_eq!(path(b"http://h", b"/c"), is("http://h/c"));
    assert_eq!(path(b"*", b"/c"), is("/c"));
    assert_eq!(path(b"/a", b""), None);
    assert_eq!(path(b"/a", b"/ b"), None);
    assert_eq!(path(b"/a", b"/b\r\nX: y"), None);
    assert_eq!(pathq(b"/a?b", b"/c"), is("/c"));
    assert_eq!(pathq(b"http://h/a?b", b"/c?d"), is("http://h/c?d"));
    assert_eq!(query(b"/a?b", b"c"), is("/a?c"));
    assert_eq!(query(b"/a?b", b""), is("/a?"));
    assert_eq!(query(b"/a", b"c"), is("/a?c"));
    assert_eq!(query(b"/a", b""), is("/a"));
    assert_eq!(query(b"*", b"c"), None);
}

#[test]
fn an_absolute_target_and_host_never_differ() {
    let mut head = Head::request(b"GET", b"http://a/x", Version::HTTP_11).expect("valid");
    head.add_field(Known::HOST, b"a").expect("valid");
    head.set_field(Known::HOST, b"b:8").expect("valid");
    assert_eq!((head.target(), head.value(Known::HOST)), (&b"http://b:8/x"[..], Some(&b"b:8"[..])));
    head.set_uri(b"http://c/y").expect("valid");
    assert_eq!((head.target(), head.value(Known::HOST)), (&b"http://c/y"[..], Some(&b"c"[..])));
    let id = head.find(Known::HOST, None).expect("there is one");
    head.replace_value(id, b"d").expect("valid");
    assert_eq!((head.target(), head.value(Known::HOST)), (&b"http://d/y"[..], Some(&b"d"[..])));
    assert_eq!(head.host(), Some(&b"d"[..]));
}

#[test]
fn an_edit_that_would_end_a_line_is_refused_and_changes_nothing() {
    let mut head = parsed(Kind::Response, &[("X".to_owned(), "y".to_owned())], 16_384);
    let before = written(&mut head);
    for result in [
        head.add_field("X", b"a\r\nY: b"),
        head.add_field("X", b"a\nb"),
        head.add_field("X", b"a\0"),
        head.add_field("X:", b"a"),
        head.add_field("X Y", b"a"),
        head.add_field("", b"a"),
        head.set_field("X", b"\r"),
        head.set_status(200, Some(b"a\r\nb")),
        head.set_status(99, None),
        head.set_status(1000, None),
        head.set_method(b"A B"),
        head.set_uri(b"/ a"),
        head.set_uri(b""),
    ] {
        assert!(matches!(result, Err(EditError::Invalid(_))), "{result:?}");
    }
    assert_eq!(written(&mut head), before);
}

/// Only members of `Connection` that may name a field count towards the limit of [`MAX_OPTIONS`].
#[test]
fn fields_that_connection_names_are_removed_whatever_else_it_has() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for first in [",".repeat(14_000), " , \t".repeat(2_000), "close, Keep-Alive, UPGRADE,".repeat(100)] {
        let pairs = [
            pair("Connection", &first),
            pair("X-Named", "1"),
            pair("Connection", &format!("{first} x-named, Host, early-data")),
            pair("X-Other", "2"),
            pair("Keep-Alive", "3"),
            pair("Host", "a"),
            pair("Early-Data", "1"),
        ];
        let mut head = parsed(Kind::Request, &pairs, 65_000);
        head.remove_hop_by_hop();
        let left: Vec<_> = read(&written(&mut head)).1.into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["Connection", "Connection", "X-Other", "Host", "Early-Data"], "{:.9}", first);
    }
    let names: Vec<_> = (0..MAX_OPTIONS + 1).map(|n| format!("x-{n}")).collect();
    let mut pairs: Vec<_> = names.iter().map(|name| pair(name, "")).collect();
    pairs.push(pair("Connection", &format!("close,,{}", names.join(", close, , "))));
    let mut head = parsed(Kind::Request, &pairs, 65_000);
    head.remove_hop_by_hop();
    let left: Vec<_> = read(&written(&mut head)).1.into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, [&*format!("x-{MAX_OPTIONS}"), "Connection"]);
}

#[test]
fn a_joined_value_is_that_of_one_part() {
    let value = |parts: [&[u8]; 6]| {
        let mut head = Head::response(Version::HTTP_11, 302, None).expect("memory");
        head.add_joined(Known::LOCATION, parts)?;
        let mut whole = Head::response(Version::HTTP_11, 302, None).expect("memory");
        whole.add_field(Known::LOCATION, &parts.concat())?;
        assert_eq!(head.value(Known::LOCATION), whole.value(Known::LOCATION));
        let (line, pairs) = read(&written(&mut head));
        assert_eq!((line, pairs.len()), ("HTTP/1.1 302 Found".to_owned(), 1));
        Ok::<_, EditError>(pairs[0].1.clone())
    };
    assert_eq!(value([b"https", b"://", b"a", b"/b", b"?", b"c"]).unwrap(), "https://a/b?c");
    assert_eq!(value([b"", b"", b" \t", b"/ b", b"", b"c \t"]).unwrap().trim(), "/ bc");
    assert_eq!(value([b"", b"", b"", b"", b"", b""]).unwrap(), "");
    assert!(value([b" ", b"\t", b"", b" ", b"", b" "]).unwrap().trim().is_empty());
    assert!(matches!(value([b"a", b"", b"\r\nb: c", b"", b"", b""]), Err(EditError::Invalid(_))));
    let mut head = Head::response(Version::HTTP_11, 302, None).expect("memory");
    let length: [&[u8]; 6] = [b"1", b"2", b"", b"", b"", b""];
    assert!(matches!(head.add_joined(Known::CONTENT_LENGTH, length), Err(EditError::Invalid(_))));
    let long = vec![b'a'; usize::from(u16::MAX)];
    assert!(matches!(
        head.add_joined(Known::LOCATION, [&long, b"", b"", b"", b"", b""]),
        Err(EditError::Full)
    ));
}

#[test]
fn a_head_never_takes_more_than_its_room() {
    let mut head = parsed(Kind::Request, &[("X".to_owned(), "y".to_owned())], 100);
    assert_eq!(head.add_field("Y", &[b'y'; 100]), Err(EditError::Full));
    assert_eq!(head.set_uri(&[b'/'; 100]), Err(EditError::Full));
    assert_eq!(written(&mut head).len(), 27);
    head.add_field("Y", &[b'y'; 68]).expect("100 bytes exactly");
    assert_eq!((head.size(), written(&mut head).len()), (100, 100));
    assert_eq!(head.add_field("Z", b""), Err(EditError::Full));
    head.set_field("Y", &[b'z'; 68]).expect("the old one goes");
    head.remove_fields("X");
    head.add_field("Z", b"").expect("there is room again");
    assert_eq!(head.size(), written(&mut head).len());
}

#[test]
fn names_are_spelled_as_the_table_says() {
    let mut case = CaseTable::default();
    case.insert(b"content-length", b"Content-Length").expect("valid");
    case.insert(b"x-foo", b"X-FOO").expect("valid");
    assert_eq!(case.insert(b"x-foo", b"x-FOO"), Err(CaseTableError::Twice));
    assert_eq!(case.insert(b"content-length", b"content-length"), Err(CaseTableError::Twice));
    assert_eq!(case.insert(b"X-Bar", b"X-BAR"), Err(CaseTableError::NotLowerCase));
    assert_eq!(case.insert(b"x-bar", b"X-BAZ"), Err(CaseTableError::NotTheSame));
    assert_eq!(case.insert(b"x bar", b"X BAR"), Err(CaseTableError::NotAToken));
    let pair = |name: &str| (name.to_owned(), "1".to_owned());
    let mut head = parsed(Kind::Response, &[pair("content-length"), pair("X-Other"), pair("x-Foo")], 16_384);
    let mut out = Chain::new();
    head.emit(&mut out, Some(&case)).expect("memory");
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-Other:1 \t\r\nX-FOO:  1\r\n\r\n");
}

#[test]
fn hundreds_of_fields_are_read_and_edited() {
    let pairs: Pairs = (0..1000).map(|n| (format!("X-{}", n % 50), n.to_string())).collect();
    let mut head = parsed(Kind::Request, &pairs, 60_000);
    assert_eq!(head.fields().count(), 1000);
    assert_eq!(head.count("x-7"), 20);
    assert_eq!(head.remove_fields("X-7"), 20);
    assert_eq!(head.remove_where(|field| field.value.ends_with(b"0")), 100);
    head.add_field("X-New", b"1").expect("room");
    let expected = pairs.iter().filter(|(name, value)| name != "X-7" && !value.ends_with('0')).count() + 1;
    let (_, fields) = read(&written(&mut head));
    assert_eq!(fields.len(), expected);
    assert_eq!(head.size(), written(&mut head).len());
}

#[test]
fn a_field_that_is_never_indexed_stays_so_when_its_value_is_replaced() {
    let text = b"X-A: 1\r\nX-B: 2\r\n\r\n";
    let mut fields = Fields::new().expect("memory");
    for at in [0u16, 8] {
        let known = Known::OTHER;
        let line = FieldLine { name: at, name_len: 3, value: at + 5, value_len: 1, end: at + 8, known };
        fields.push(line).expect("room");
    }
    fields.never_index_last();
    let mut head = Head::parsed_trailers(segment(text), fields, 1_000);
    let marks = |head: &Head| head.fields().map(|field| field.never_indexed).collect::<Vec<_>>();
    assert_eq!(marks(&head), [false, true]);
    for name in ["x-a", "x-b"] {
        let id = head.find(name, None).expect("there");
        head.replace_value(id, b"3").expect("room");
    }
    assert_eq!(marks(&head), [false, true]);
    head.set_field("x-b", b"4").expect("room");
    assert_eq!(marks(&head), [false, false]);
}

#[derive(Clone, Debug)]
enum Edit {
    Add(usize, String),
    Set(usize, String),
    Remove(usize),
    RemoveValue(String),
    ReplaceFirst(usize, String),
    ReplaceSecond(usize, String),
    Line(String),
    Write,
}

#[test]
fn a_head_has_32_766_fields_at_most() {
    let mut fields = Fields::new().expect("memory");
    let line = FieldLine { name: 0, name_len: 1, value: 2, value_len: 0, end: 4, known: Known::of(b"a") };
    for _ in 0..32_766 {
        fields.push(line).expect("room");
    }
    assert!(matches!(fields.push(line), Err(PushError::TooMany)));
    assert_eq!(fields.len(), MAX_FIELDS);
}

const NAMES: [&str; 8] = ["Cookie", "X-Foo", "x-foo", "Accept", "ACCEPT", "X-Bar-Baz", "Connection", "Via"];

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let name = 0..NAMES.len();
    let value = "[ -~]{0,30}".prop_map(|value| value.trim_matches([' ', '\t']).to_owned());
    proptest::collection::vec(
        prop_oneof![
            (name.clone(), value.clone()).prop_map(|(n, v)| Edit::Add(n, v)),
            (name.clone(), value.clone()).prop_map(|(n, v)| Edit::Set(n, v)),
            name.clone().prop_map(Edit::Remove),
            value.clone().prop_map(Edit::RemoveValue),
            (name.clone(), value.clone()).prop_map(|(n, v)| Edit::ReplaceFirst(n, v)),
            (name, value).prop_map(|(n, v)| Edit::ReplaceSecond(n, v)),
            "[a-z]{1,40}".prop_map(Edit::Line),
            Just(Edit::Write),
        ],
        0..40,
    )
}

/// Returns `usual`, or one in `share` of the cases in `PROPTEST_CASES`, which the long run sets.
fn cases(usual: u32, share: u32) -> u32 {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    requested.map_or(usual, |requested| requested.div_ceil(share))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(200, 4),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn edits_do_what_they_do_to_a_vector_of_pairs(
        kind in prop_oneof![Just(Kind::Request), Just(Kind::Response), Just(Kind::Trailers)],
        start in proptest::collection::vec((0..NAMES.len(), "[!-~]([ -~]{0,20}[!-~])?"), 0..12),
        edits in edits(),
    ) {
        let mut model: Pairs = start.into_iter().map(|(n, value)| (NAMES[n].to_owned(), value)).collect();
        let mut head = parsed(kind, &model, 65_535);
        let mut first = ["GET /p?q HTTP/1.1", "HTTP/1.1 200 OK", ""][kind as usize].to_owned();
        for edit in edits.into_iter().chain([Edit::Write]) {
            let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
            match edit {
                Edit::Add(n, value) => {
                    head.add_field(NAMES[n], value.as_bytes()).expect("valid");
                    model.push((NAMES[n].to_owned(), value));
                }
                Edit::Set(n, value) => {
                    head.set_field(NAMES[n], value.as_bytes()).expect("valid");
                    model.retain(|(name, _)| !same(name, NAMES[n]));
                    model.push((NAMES[n].to_owned(), value));
                }
                Edit::Remove(n) => {
                    let before = model.len();
                    model.retain(|(name, _)| !same(name, NAMES[n]));
                    prop_assert_eq!(head.remove_fields(NAMES[n]), before - model.len());
                }
                Edit::RemoveValue(value) => {
                    let first = value.as_bytes().first().copied();
                    let before = model.len();
                    model.retain(|(_, value)| value.as_bytes().first().copied() != first);
                    let removed = head.remove_where(|field| field.value.first().copied() == first);
                    prop_assert_eq!(removed, before - model.len());
                }
                Edit::ReplaceFirst(n, value) => {
                    if let Some(id) = head.find(NAMES[n], None) {
                        head.replace_value(id, value.as_bytes()).expect("valid");
                        let pair = model.iter_mut().find(|(name, _)| same(name, NAMES[n])).expect("it was \
                            found");
                        // A well-known name is written in lower case.
                        *pair = (pair.0.clone(), value);
                    } else {
                        prop_assert!(!model.iter().any(|(name, _)| same(name, NAMES[n])));
                    }
                }
                Edit::ReplaceSecond(n, value) => {
                    let second = head.find(NAMES[n], None).and_then(|id| head.find(NAMES[n], Some(id)));
                    let pair = model.iter_mut().filter(|(name, _)| same(name, NAMES[n])).nth(1);
                    prop_assert_eq!(second.is_some(), pair.is_some());
                    if let (Some(id), Some(pair)) = (second, pair) {
                        head.replace_value(id, value.as_bytes()).expect("valid");
                        pair.1 = value;
                    }
                }
                Edit::Line(word) => match kind {
                    Kind::Request => {
                        head.set_path(format!("/{word}").as_bytes()).expect("valid");
                        first = format!("GET /{word}?q HTTP/1.1");
                    }
                    Kind::Response => {
                        head.set_status(404, Some(word.as_bytes())).expect("valid");
                        first = format!("HTTP/1.1 404 {word}");
                    }
                    Kind::Trailers => {}
                },
                Edit::Write => {
                    let text = written(&mut head);
                    prop_assert_eq!(text.len(), head.size());
                    let (line, mut pairs) = read(&if kind == Kind::Trailers { format!("\r\n\
                        {text}") } else { text });
                    prop_assert_eq!(&line, &first);
                    // A well-known name may be written in lower case.
                    let lower = |pairs: &mut Pairs| pairs.iter_mut().for_each(|(name,
                        _)| name.make_ascii_lowercase());
                    let mut expected = model.clone();
                    lower(&mut pairs);
                    lower(&mut expected);
                    prop_assert_eq!(&pairs, &expected);
                    let shown: Pairs = head
                        .fields()
                        .map(|field| (String::from_utf8_lossy(field.name).to_ascii_lowercase(),
                            String::from_utf8_lossy(field.value).into_owned()))
                        .collect();
                    prop_assert_eq!(&shown, &expected);
                    for name in NAMES {
                        let values: Vec<_> =
                            head.values(name).map(|v| String::from_utf8_lossy(v).into_owned()).collect();
                        let of_model: Vec<_> = model.iter().filter(|(n, _)| same(n, name)).map(|(_,
                            value)| value.clone()).collect();
                        prop_assert_eq!(values, of_model);
                    }
                }
            }
        }
    }
}
