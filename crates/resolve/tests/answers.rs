//! Which bytes are the answer, and which records they contain.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::{Message, a, cname, srv};
use manylane_resolve::{
    Answer, AnswerError, Code, Families, Item, Kind, MOST_ALIASES, MOST_RECORDS, Name, query, read,
};

const ID: u16 = 0x1234;
const NAME: &str = "www.example.test";

fn own() -> Name {
    Name::parse(NAME).unwrap()
}

fn answer(message: &Message, kind: Kind) -> Result<Answer, AnswerError> {
    read(&message.bytes(), ID, &own(), kind, Families::BOTH)
}

fn addresses(answer: &Answer) -> Vec<String> {
    answer
        .items
        .iter()
        .map(|item| match item {
            Item::Address(address) => address.to_string(),
            Item::Service(service) => {
                let address = service.address.map_or("-".into(), |address| address.to_string());
                format!(
                    "{}:{} {} {} {address}",
                    service.target, service.port, service.weight, service.priority
                )
            }
        })
        .collect()
}

#[test]
fn a_query_asks_one_question_and_says_how_much_fits() {
    let bytes = query(ID, &own(), Kind::Aaaa, 1400);
    let mut expected = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    expected.extend(common::name(NAME));
    expected.extend([0, 28, 0, 1]);
    expected.extend([0, 0, 41, 0x05, 0x78, 0, 0, 0, 0, 0, 0]); // RFC 6891, 6.1.2
    assert_eq!(bytes, expected);
}

#[test]
fn addresses_are_those_of_the_name_that_was_requested_and_where_it_leads() {
    let found = |answers, kind| answer(&Message::to(ID, NAME, kind, answers), kind).unwrap();
    let plain = found(vec![a(NAME, "192.0.2.1"), a(NAME, "192.0.2.2"), a(NAME, "192.0.2.1")], Kind::A);
    assert_eq!((plain.code, addresses(&plain)), (Code::Found, vec!["192.0.2.1".into(), "192.0.2.2".into()]));
    let led = found(
        vec![
            a("c.test", "192.0.2.3"),
            cname("b.test", "c.test"),
            cname("WWW.Example.test", "b.test"),
            a(NAME, "192.0.2.9"),
        ],
        Kind::A,
    );
    assert_eq!((led.code, led.aliases, addresses(&led)), (Code::Found, true, vec!["192.0.2.3".into()]));
    // Records of other names, and of the other family.
    let others = found(vec![a("evil.test", "192.0.2.6"), a(NAME, "2001:db8::1")], Kind::A);
    assert_eq!((others.code, others.items.len()), (Code::NoRecord, 0));
    let nowhere = found(vec![cname(NAME, "b.test")], Kind::A);
    assert_eq!(nowhere.code, Code::NoAlias);
}

#[test]
fn names_that_lead_to_each_other_lead_nowhere() {
    let circle = vec![
        cname(NAME, "a.test"),
        cname("a.test", "b.test"),
        cname("b.test", NAME),
        a("c.test", "192.0.2.1"),
    ];
    assert_eq!(answer(&Message::to(ID, NAME, Kind::A, circle), Kind::A).unwrap().code, Code::NoAlias);
    // One name more than are followed.
    let mut chain = vec![cname(NAME, "n0.test")];
    chain.extend((0..MOST_ALIASES).map(|n| cname(&format!("n{n}.test"), &format!("n{}.test", n + 1))));
    chain.push(a(&format!("n{MOST_ALIASES}.test"), "192.0.2.1"));
    assert_eq!(answer(&Message::to(ID, NAME, Kind::A, chain.clone()), Kind::A).unwrap().code, Code::NoAlias);
    let shorter = Message::to(
        ID,
        NAME,
        Kind::A,
        [&chain[..MOST_ALIASES], &[a(&format!("n{}.test", MOST_ALIASES - 1), "192.0.2.1")]].concat(),
    );
    assert_eq!(answer(&shorter, Kind::A).unwrap().code, Code::Found);
}

#[test]
fn servers_of_a_service_have_the_addresses_that_stand_beside_them() {
    let mut message = Message::to(
        ID,
        NAME,
        Kind::Srv,
        vec![srv(NAME, 10, 80, "a.test"), srv(NAME, 20, 81, "B.test"), srv("other.test", 1, 1, "c.test")],
    );
    message.additional = vec![a("b.test", "2001:db8::b"), a("c.test", "192.0.2.3")];
    let found = answer(&message, Kind::Srv).unwrap();
    assert_eq!(addresses(&found), ["a.test:80 10 7 -", "b.test:81 20 7 2001:db8::b"]);
    message.additional.push(a("b.test", "192.0.2.2"));
    let ipv4 = Families { ipv4: true, ipv6: false };
    let found = read(&message.bytes(), ID, &own(), Kind::Srv, ipv4).unwrap();
    assert_eq!(addresses(&found), ["a.test:80 10 7 -", "b.test:81 20 7 192.0.2.2"]);
}

#[test]
fn answers_with_errors_say_which() {
    for (code, expected) in
        [(3, Code::NoName), (5, Code::Refused), (2, Code::Failed), (1, Code::Failed), (4, Code::Failed)]
    {
        let message = Message::to(ID, NAME, Kind::A, vec![a(NAME, "192.0.2.1")]).code(code);
        let found = answer(&message, Kind::A).unwrap();
        assert_eq!((found.code, found.items.len()), (expected, 0), "{code}");
    }
    let none = answer(&Message::to(ID, NAME, Kind::A, vec![]), Kind::A).unwrap();
    assert_eq!(none.code, Code::NoRecord);
    let cut = answer(
        &Message { flags: 0x8380, ..Message::to(ID, NAME, Kind::A, vec![a(NAME, "192.0.2.1")]) },
        Kind::A,
    )
    .unwrap();
    assert!(cut.truncated && cut.items.is_empty());
}

#[test]
fn what_answers_something_else_is_no_answer() {
    let good = Message::to(ID, NAME, Kind::A, vec![a(NAME, "192.0.2.1")]);
    let requested =
        |name: &str, kind, class| Message { question: (name.into(), kind, class), ..good.clone() };
    for (message, wrong) in [
        (Message { id: ID + 1, ..good.clone() }, AnswerError::Id),
        (Message { flags: 0x0100, ..good.clone() }, AnswerError::NotAnAnswer),
        (Message { flags: 0x8180 | 4 << 11, ..good.clone() }, AnswerError::NotAnAnswer), // a notification
        (requested("www.example.tesu", 1, 1), AnswerError::Question),
        (requested("www.example.test.x", 1, 1), AnswerError::Question),
        (requested(NAME, 28, 1), AnswerError::Question),
        (requested(NAME, 1, 3), AnswerError::Question),
    ] {
        assert_eq!(answer(&message, Kind::A), Err(wrong), "{:04x} {:?}", message.flags, message.question);
    }
    assert!(answer(&requested("WWW.EXAMPLE.TEST", 1, 1), Kind::A).is_ok());
}

#[test]
fn every_cut_of_an_answer_is_none() {
    let mut message =
        Message::to(ID, NAME, Kind::Srv, vec![srv(NAME, 10, 80, "a.test"), cname("x.test", "y.test")]);
    message.additional = vec![a("a.test", "192.0.2.1")];
    let bytes = message.bytes();
    for end in 0..bytes.len() {
        let wrong = read(&bytes[..end], ID, &own(), Kind::Srv, Families::BOTH).unwrap_err();
        assert!(wrong == AnswerError::Garbage, "{end} {wrong:?}");
    }
}

#[test]
fn names_that_point_at_themselves_are_garbage() {
    let good = Message::to(ID, NAME, Kind::A, vec![]).bytes();
    for (what, pointer) in
        [("itself", good.len()), ("what follows", good.len() + 20), ("the end of all", 0x3fff)]
    {
        let mut bytes = good.clone();
        bytes[7] = 1; // an answer
        bytes.extend((0xc000 | pointer as u16).to_be_bytes());
        bytes.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        assert_eq!(read(&bytes, ID, &own(), Kind::A, Families::BOTH), Err(AnswerError::Garbage), "{what}");
    }
    // Two pointers that point at each other.
    let mut bytes = good.clone();
    bytes[7] = 2;
    let (first, second) = (good.len() as u16, good.len() as u16 + 16);
    for pointer in [second, first] {
        bytes.extend((0xc000 | pointer).to_be_bytes());
        bytes.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    }
    assert_eq!(read(&bytes, ID, &own(), Kind::A, Families::BOTH), Err(AnswerError::Garbage));
}

#[test]
fn an_answer_of_very_many_records_is_kept_in_part_and_one_that_only_says_so_is_garbage() {
    let good = Message::to(ID, NAME, Kind::A, vec![]).bytes();
    let with = |count: u16, there: u32| {
        let mut bytes = good.clone();
        bytes[6..8].copy_from_slice(&count.to_be_bytes());
        for number in 0..there {
            bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]); // the name of the question
            bytes.extend((number | 0x0a00_0000).to_be_bytes());
        }
        bytes
    };
    let most = (65_535 - good.len() as u32) / 16;
    let all = read(&with(most as u16, most), ID, &own(), Kind::A, Families::BOTH).unwrap();
    assert_eq!(all.items.len(), MOST_RECORDS.min(most as usize));
    for (count, there) in [(10_000, 0), (65_535, most), (2, 1)] {
        assert_eq!(
            read(&with(count, there), ID, &own(), Kind::A, Families::BOTH),
            Err(AnswerError::Garbage),
            "{count} {there}"
        );
    }
    assert_eq!(
        read(&with(10_000, 10_000), ID, &own(), Kind::A, Families::BOTH),
        Err(AnswerError::Garbage),
        "more than a message has"
    );
}
