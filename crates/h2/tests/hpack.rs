//! Compression: the examples of RFC 7541, refused blocks, and round trips of any list.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_h2::hpack::{Decoder, Encoder, Error, Indexing};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("hexadecimal") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

type Fields = Vec<(Vec<u8>, Vec<u8>, bool)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Error> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut Vec::new(), |line| {
        fields.push((line.name.to_vec(), line.value.to_vec(), line.never_indexed));
    })?;
    Ok(fields)
}

fn text(block: &Fields) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    block.iter().map(|(name, value, _)| format!("{}: {}", text(name), text(value))).collect()
}

/// Decodes the blocks of one connection, and compares the fields of each and the table's size behind it.
fn example(limit: usize, blocks: &[(&str, &[&str], usize)]) {
    let mut decoder = Decoder::new(limit);
    for (block, fields, size) in blocks {
        let found = decode(&mut decoder, &bytes(block)).expect("a block");
        assert_eq!(text(&found), *fields);
        assert_eq!(decoder.table_size(), *size, "{block}");
    }
}

#[test]
fn single_representations_are_read_c2() {
    example(
        4096,
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &["custom-key: custom-header"],
            55,
        )],
    );
    example(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)]);
    example(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)]);
    let secret = decode(&mut Decoder::new(4096), &bytes("1008 7061 7373 776f 7264 0673 6563 7265 74"));
    assert!(secret.expect("a block")[0].2, "never indexed");
    example(4096, &[("82", &[":method: GET"], 0)]);
}

const FIRST: &[&str] = &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
const SECOND: &[&str] =
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
const THIRD: &[&str] = &[
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
];

#[test]
fn requests_without_huffman_are_read_c3() {
    example(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST, 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND, 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD, 164),
        ],
    );
}

#[test]
fn requests_with_huffman_are_read_c4() {
    example(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST, 57),
            ("8286 84be 5886 a8eb 1064 9cbf", SECOND, 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD, 164),
        ],
    );
}

const RESPONSE_1: &[&str] = &[
    ":status: 302",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const RESPONSE_2: &[&str] = &[
    ":status: 307",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const RESPONSE_3: &[&str] = &[
    ":status: 200",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:22 GMT",
    "location: https://www.example.com",
    "content-encoding: gzip",
    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

#[test]
fn responses_without_huffman_evict_entries_c5() {
    example(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
                 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                RESPONSE_1,
                222,
            ),
            ("4803 3330 37c1 c0bf", RESPONSE_2, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 \
                 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 \
                 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                RESPONSE_3,
                215,
            ),
        ],
    );
}

#[test]
fn responses_with_huffman_evict_entries_c6() {
    example(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
                 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                RESPONSE_1,
                222,
            ),
            ("4883 640e ffc1 c0bf", RESPONSE_2, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
                 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
                 4ee5 b106 3d50 07",
                RESPONSE_3,
                215,
            ),
        ],
    );
}

#[test]
fn requests_are_written_as_the_rfc_writes_them_c4() {
    let mut encoder = Encoder::default();
    for (fields, block) in [
        (FIRST, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"),
        (SECOND, "8286 84be 5886 a8eb 1064 9cbf"),
        (THIRD, "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf"),
    ] {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for field in fields {
            let (name, value) = field.rsplit_once(": ").expect("a field");
            encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Incremental, &mut out);
        }
        assert_eq!(out, bytes(block));
    }
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    for (block, error) in [
        ("80", Error::Index),
        ("be", Error::Index),
        ("ff ffffffff ff", Error::TooLarge),
        ("40", Error::Truncated),
        ("4005 61", Error::Truncated),
        ("0401", Error::Truncated),
        ("0481 00", Error::Huffman),
        ("0484 ffffffff", Error::Huffman),
        ("3fe2 1f", Error::Update),     // 4,097
        ("20 20 20 82", Error::Update), // three changes
        ("82 20", Error::LateUpdate),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &bytes(block)), Err(error), "{block}");
    }
    // 4,096 is allowed, and so is shrinking and growing again.
    assert_eq!(
        text(&decode(&mut Decoder::new(4096), &bytes("20 3fe1 1f 82")).expect("a block")),
        [":method: GET"]
    );
}

#[test]
fn a_larger_table_has_to_be_requested() {
    let mut decoder = Decoder::new(10_000);
    let entry = |n: u8| [&[0x40, 1, n, 0x7f, 0xa9, 0x0f][..], &[b'v'; 2_088]].concat(); // 2,121 bytes each
    for n in 0..4 {
        decode(&mut decoder, &entry(n)).expect("a block");
    }
    assert_eq!(decoder.table_size(), 2_121);
    decode(&mut decoder, &[&[0x3f, 0xf1, 0x4d][..], &entry(4)].concat()).expect("10,000 bytes");
    decode(&mut decoder, &entry(5)).expect("a block");
    assert_eq!(decoder.table_size(), 3 * 2_121);
}

#[test]
fn a_smaller_table_that_was_acknowledged_is_owed() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &bytes("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"))
        .expect("a block");
    decoder.set_limit(40);
    assert_eq!(decode(&mut decoder, &bytes("be")), Err(Error::MissingUpdate));
    assert_eq!(decode(&mut decoder, &bytes("3f0b be")), Err(Error::Update)); // 42
    assert_eq!(decode(&mut decoder, &bytes("3f09 be")), Err(Error::Index)); // 40: the entry is gone
    assert_eq!(text(&decode(&mut decoder, &bytes("82")).expect("a block")), [":method: GET"]);
}

#[test]
fn a_changed_limit_is_sent_at_the_beginning_of_the_next_block() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
    let mut block = |limits: &[usize], decoder: &mut Decoder| {
        limits.iter().for_each(|&limit| encoder.set_limit(limit));
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.field(b"x-name", b"value", Indexing::Incremental, &mut out);
        assert_eq!(text(&decode(decoder, &out).expect("a block")), ["x-name: value"]);
        out
    };
    assert_eq!(block(&[], &mut decoder)[0], 0x40);
    assert_eq!(block(&[], &mut decoder), [0xbe]);
    // The table shrinks to 0 and grows again: the entry is gone on both sides.
    assert_eq!(block(&[0, 4096], &mut decoder)[..4], [0x20, 0x3f, 0xe1, 0x1f]);
    assert_eq!(block(&[], &mut decoder), [0xbe]);
    assert_eq!(block(&[0], &mut decoder)[0], 0x20);
    assert_eq!(decoder.table_size(), 0);
    // A limit above this side's maximum is not used.
    assert_eq!(block(&[1 << 20], &mut decoder)[..3], [0x3f, 0xe1, 0x1f]);
}

fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, u8)> {
    let name = prop_oneof![
        3 => prop::sample::select(vec!["cookie", ":path", "date", "x-a", ":status", "accept"])
            .prop_map(|name| name.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..60),
    ];
    let value = prop_oneof![
        3 => "[a-c]{0,3}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..600),
        1 => "[ -~]{0,200}".prop_map(String::into_bytes),
    ];
    (name, value, 0u8..3)
}

fn indexing(n: u8) -> Indexing {
    [Indexing::Incremental, Indexing::Without, Indexing::Never][usize::from(n)]
}

fn cases(usual: u32, long: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("MANYLANE_LONG").is_some() { long } else { usual })
}

proptest! {
    #![proptest_config(cases(256, 20_000))]

    /// Any lists round-trip, and both tables stay equal, whatever the limits do.
    #[test]
    fn any_lists_come_back(
        blocks in proptest::collection::vec(
            (proptest::collection::vec(field(), 0..20), proptest::option::of(0usize..5000)),
            1..12,
        )
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(5000));
        let mut limit = 4096;
        for (fields, change) in blocks {
            if let Some(to) = change {
                limit = to;
                encoder.set_limit(to);
            }
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value, how) in &fields {
                encoder.field(name, value, indexing(*how), &mut out);
            }
            let found = decode(&mut decoder, &out).expect("a block");
            let wanted: Fields = fields
                .iter()
                .map(|(name, value, how)| (name.clone(), value.clone(), indexing(*how) == Indexing::Never))
                .collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(decoder.table_size() <= limit);
        }
    }

    /// Any bytes are a block or an error, and the table keeps its bound.
    #[test]
    fn any_bytes_keep_the_bound(
        blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8)
    ) {
        let mut decoder = Decoder::new(300);
        for block in blocks {
            let mut fields = 0;
            let result = decoder.decode(&block, &mut Vec::new(), |_| fields += 1);
            prop_assert!(fields <= block.len() && decoder.table_size() <= 300);
            if result.is_err() {
                break;
            }
        }
    }
}
