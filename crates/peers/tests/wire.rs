//! Messages survive a round trip, and any bytes cause at most an error.

use manylane_expr::{DataType, Type};
use manylane_peers::{
    Definition, Dictionary, MAX_BODY, Message, MessageError, Status, Update, hello, put_number, read_hello,
};
use manylane_stick::{Data, DataValue, server_key_text};
use proptest::prelude::*;

fn message(bytes: &[u8]) -> (Message<'_>, usize) {
    Message::read(bytes).expect("it is one").expect("it is whole")
}

/// The same bytes as HAProxy 3.2 sends between two processes.
#[test]
fn messages_of_haproxy_are_understood_and_written_as_it_does() {
    let definition =
        b"\x0a\x82\x18\x03\x04tarr\x04\x04\xf0\xf1\xfe\x6e\xf0\x97\x1c\x16\x03\x17\x02\x18\x02\xf0\xc4\x0d";
    let array = |kind, count, period| Data { kind, count, period };
    let whole = Message::Define(Definition {
        table: 3,
        name: b"tarr",
        key: Some(Type::Ipv4),
        key_bytes: 4,
        expire: 60_000,
        data: vec![
            array(DataType::Gpt, 3, 0),
            array(DataType::Gpc, 2, 0),
            array(DataType::GpcRate, 2, 30_000),
        ],
    });
    assert_eq!(message(definition), (whole.clone(), definition.len()));
    let mut written = Vec::new();
    whole.write(&mut written);
    assert_eq!(written, definition);
    let ack = b"\x0a\x84\x05\x06\x00\x00\x00\x01";
    assert_eq!(message(ack).0, Message::Ack { table: 6, update: 1 });
    let timed = b"\x0a\x85\x0d\x00\x00\x00\x01\x00\x00\xd7\xbb\x09\x09\x09\x09\x04";
    let update = Update { number: Some(1), expire: Some(0xd7bb), body: b"\x09\x09\x09\x09\x04" };
    assert_eq!(message(timed).0, Message::Update(update));
    let next = b"\x0a\x81\x05\x05\x06\x07\x0a\x01";
    let update = Update { number: None, expire: None, body: b"\x05\x06\x07\x0a\x01" };
    assert_eq!(message(next).0, Message::Update(update));
    assert_eq!(message(b"\x00\x04"), (Message::Heartbeat, 2));
}

/// A sender sends the name of a server once, and its number afterwards.
#[test]
fn names_of_servers_are_remembered_by_the_number_of_the_sender() {
    let data = |kind| Data { kind, count: 1, period: 0 };
    let definition = Definition {
        table: 1,
        name: b"t",
        key: Some(Type::Int),
        key_bytes: 4,
        expire: 0,
        data: vec![data(DataType::ServerKey), data(DataType::HttpFailCnt)],
    };
    let mut servers = Dictionary::default();
    let long = [&b"\xf4\x01\x05\xf1\x01"[..], &[b'x'; 257]].concat();
    for (name, text) in [
        (&b"\x00"[..], None),
        (b"\x01\x05", None),
        (b"\x05\x05\x03abc", Some("abc")),
        (b"\x04\x80\x02de", Some("de")),
        (b"\x01\x05", Some("abc")),
        (b"\x05\x05\x03fgh", Some("fgh")),
        (b"\x01\x05", Some("fgh")),
        (b"\x01\x80", Some("de")),
        (&long, None),
        (b"\x01\x05", None),
        (b"\x04\x05\x02\xff\xff", None),
    ] {
        let body = [b"\x00\x00\x00\x07", name, b"\x2a"].concat();
        let mut observed = Vec::new();
        let update = Update { number: None, expire: None, body: &body };
        update.read(&definition, &mut servers, |_, kept| observed.extend(kept)).expect("it is whole");
        assert_eq!(observed.pop().map(|(datum, _)| datum.data), Some(DataType::HttpFailCnt));
        let found = observed.pop().map(|(_, kept)| match kept {
            DataValue::Number(number) => server_key_text(number).expect("it has a number here"),
            DataValue::Rate(_) => panic!("it is no rate"),
        });
        assert_eq!(found, text);
    }
    // The sender's numbers are 1 to 128.
    for body in [&b"\x00\x00\x00\x07\x01\x81\x2a"[..], b"\x00\x00\x00\x07\x01\x00\x2a"] {
        let update = Update { number: None, expire: None, body };
        assert_eq!(update.read(&definition, &mut servers, |_, _| {}), Err(MessageError::Malformed));
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_before_it_has_come() {
    let mut bytes = vec![10, 128];
    put_number(MAX_BODY as u64 + 1, &mut bytes);
    assert_eq!(Message::read(&bytes), Err(MessageError::TooLong));
    let mut bytes = vec![10, 128];
    put_number(16_384, &mut bytes);
    assert_eq!(Message::read(&bytes), Ok(None));
}

/// Of a message that is not whole, the number of its bytes is read and nothing else: what its body cannot be
/// is found when the body is whole.
#[test]
fn a_body_is_read_when_it_is_whole() {
    let mut bytes = vec![10, 130]; // the definition of a table
    put_number(3_000, &mut bytes);
    let whole = bytes.len() + 3_000;
    bytes.resize(whole, 0xff);
    for came in 0..whole {
        assert_eq!(Message::read(&bytes[..came]), Ok(None), "{came}");
    }
    assert_eq!(Message::read(&bytes), Err(MessageError::Malformed));
}

#[test]
fn greetings_are_judged_line_by_line() {
    let whole = hello("one", "two", 7);
    assert_eq!(read_hello(whole.as_bytes(), "one"), Ok(Some(("two", whole.len()))));
    for end in 0..whole.len() {
        assert_eq!(read_hello(&whole.as_bytes()[..end], "one"), Ok(None), "{end}");
    }
    assert_eq!(read_hello(whole.as_bytes(), "three"), Err(Status::WrongLocal));
    assert_eq!(read_hello(b"HAProxyS 1.0\n", "one"), Err(Status::Version));
    assert_eq!(read_hello(b"GET / HTTP/1.1\n", "one"), Err(Status::Protocol));
    assert_eq!(read_hello(&[b'x'; 1023], "one"), Ok(None));
    assert_eq!(read_hello(&[b'x'; 1024], "one"), Err(Status::Protocol));
    assert_eq!(Status::read(b"200\nx"), Some((Some(Status::Succeeded), 4)));
    assert_eq!(Status::read(b"999\n"), Some((None, 4)));
    assert_eq!(Status::read(b"20"), None);
}

fn data() -> impl Strategy<Value = Vec<Data>> {
    let one = |kind: DataType| {
        (any::<bool>(), 1..=100_u32, 1..=1_u32 << 30).prop_map(move |(is_there, count, period)| {
            let count = if kind.is_array() { count } else { 1 };
            is_there.then_some(Data { kind, count, period: if kind.is_rate() { period } else { 0 } })
        })
    };
    DataType::ALL.map(one).to_vec().prop_map(|all| all.into_iter().flatten().collect())
}

fn key() -> impl Strategy<Value = Type> {
    prop_oneof![Just(Type::Int), Just(Type::Ipv4), Just(Type::Ipv6), Just(Type::Str), Just(Type::Bin)]
}

proptest! {
    #[test]
    fn numbers_come_back(number in any::<u64>(), shift in 0..64_u32) {
        let number = number >> shift;
        let mut bytes = vec![10, 131, 0];
        put_number(number, &mut bytes);
        bytes[2] = (bytes.len() - 3) as u8;
        prop_assert_eq!(message(&bytes), (Message::Switch(number), bytes.len()));
    }

    #[test]
    fn definitions_come_back(
        table in any::<u64>(), name in "[a-z/]{0,40}", key in key(), key_bytes in 0..2000_u64,
        expire in any::<u64>(), data in data(), rest in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let name = name.as_bytes();
        let whole = Message::Define(Definition { table, name, key: Some(key), key_bytes, expire, data });
        let mut bytes = Vec::new();
        whole.write(&mut bytes);
        let length = bytes.len();
        for end in 0..length {
            prop_assert_eq!(Message::read(&bytes[..end]), Ok(None));
        }
        bytes.extend(rest);
        prop_assert_eq!(message(&bytes), (whole, length));
    }

    #[test]
    fn updates_and_acknowledgements_come_back(
        number in any::<Option<u32>>(), expire in any::<Option<u32>>(), table in any::<u64>(),
        update in any::<u32>(), body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        for whole in [
            Message::Update(Update { number, expire, body: &body }),
            Message::Ack { table, update },
        ] {
            let mut bytes = Vec::new();
            whole.write(&mut bytes);
            prop_assert_eq!(message(&bytes), (whole, bytes.len()));
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some((_, used))) = Message::read(&bytes) {
            prop_assert!((2..=bytes.len()).contains(&used));
        }
        let _ = read_hello(&bytes, "one");
        let _ = Status::read(&bytes);
    }
}
