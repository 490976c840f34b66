use super::*;
use proptest::prelude::*;

fn complete(bytes: &[u8]) -> (Header<'_>, usize) {
    match parse(bytes) {
        Ok(Parsed::Complete { header, length }) => (header, length),
        other => panic!("{other:?}"),
    }
}

fn tcp(source: &str, destination: &str) -> Option<EndpointPair<'static>> {
    Some(EndpointPair::tcp(source.parse().unwrap(), destination.parse().unwrap()))
}

#[test]
fn lines_of_the_specification_are_read() {
    let cases: [(&str, Option<EndpointPair<'_>>); 7] = [
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", tcp("192.168.0.1:56324", "192.168.0.11:443")),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            tcp("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        ("PROXY TCP6 2001:db8::1 ::1 0 443\r\n", tcp("[2001:db8::1]:0", "[::1]:443")),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                65535 65535\r\n",
            tcp(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN what ever \u{e9}\r\n", None),
        (
            "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                65535 65535\r\n",
            None,
        ),
    ];
    for (line, ends) in cases {
        let input = format!("{line}GET / HTTP/1.1\r\n");
        let (header, length) = complete(input.as_bytes());
        assert_eq!((header.ends, length, header.version), (ends, line.len(), Version::V1), "{line}");
    }
}

#[test]
fn lines_that_do_not_match_exactly_are_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)); // 108 bytes
    let cases: &[(&[u8], HeaderError)] = &[
        (b"GET / HTTP/1.1\r\n", HeaderError::Signature),
        (b"PROXYTCP4", HeaderError::Signature),
        (b"proxy TCP4 ", HeaderError::Signature),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", HeaderError::LineEnd),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\rx", HeaderError::LineEnd),
        (long.as_bytes(), HeaderError::LineEnd),
        (b"PROXY TCP5 1.2.3.4 5.6.7.8 1 2\r\n", HeaderError::Protocol),
        (b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n", HeaderError::Line),
        (b"PROXY TCP4 1.2.3.04 5.6.7.8 1 2\r\n", HeaderError::Line),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", HeaderError::Line),
        (b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", HeaderError::Line),
        (b"PROXY UNKNOWNX\r\n", HeaderError::Line),
        (b"PROXY \r\n", HeaderError::Protocol),
        (b"PROXY UDP4", HeaderError::Protocol),
        (b"PROXY TCP4 \xff 5.6.7.8 1 2\r\n", HeaderError::Line),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse(bytes), Err(*expected), "{}", bytes.escape_ascii());
    }
    assert_eq!(parse(b"P"), Ok(Parsed::Incomplete { at_least: 15 }));
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!(complete(longest.as_bytes()).1, 107);
}

/// A TCP connection over IPv4 with a host name, written by hand from section 2.2.
const V2: &[u8] = b"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A\x21\x11\x00\x12\
    \xC0\xA8\x00\x01\xC0\xA8\x00\x0B\xDC\x04\x01\xBB\x02\x00\x03a.b";

#[test]
fn binary_headers_are_read() {
    let input = [V2, b"GET"].concat();
    let (header, length) = complete(&input);
    assert_eq!((header.version, length, header.relayed), (Version::V2, V2.len(), true));
    assert_eq!(header.ends, tcp("192.168.0.1:56324", "192.168.0.11:443"));
    assert_eq!(header.tlvs.value_of(kind::AUTHORITY), Some(&b"a.b"[..]));
    assert_eq!(header.tlvs.value_of(kind::ALPN), None);

    // The sender's own connection: the whole block is skipped.
    let mut own = V2.to_vec();
    own[12] = 0x20;
    let (header, length) = complete(&own);
    assert_eq!((header.ends, header.relayed, header.tlvs, length), (None, false, Tlvs::default(), V2.len()));
}

/// Section 2.2: receivers must accept a `LOCAL` header and ignore the family with the rest of the block.
/// Newer senders than this module check the health of their servers with one.
#[test]
fn the_senders_own_connection_is_accepted_whatever_its_family() {
    for family in 0..=u8::MAX {
        for length in [0, 18] {
            let mut own = V2[..16 + usize::from(length)].to_vec();
            (own[12], own[13], own[15]) = (0x20, family, length);
            let (header, read) = complete(&own);
            assert_eq!((header.ends, header.relayed, read), (None, false, own.len()), "{family:#x}");
        }
    }
}

#[test]
fn binary_headers_with_undefined_or_impossible_parts_are_refused() {
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = V2.to_vec();
        for (at, byte) in changes {
            bytes[*at] = *byte;
        }
        parse(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(&[(0, 0)]), HeaderError::Signature);
    assert_eq!(with(&[(11, 0)]), HeaderError::Signature);
    assert_eq!(with(&[(12, 0x11)]), HeaderError::Version(1));
    assert_eq!(with(&[(12, 0x22)]), HeaderError::Command(2));
    assert_eq!(with(&[(13, 0x41)]), HeaderError::Family(0x41));
    assert_eq!(with(&[(13, 0x13)]), HeaderError::Family(0x13));
    assert_eq!(with(&[(13, 0x21)]), HeaderError::Length(18), "no room for IPv6");
    assert_eq!(with(&[(15, 11)]), HeaderError::Length(11), "no room for IPv4");
    assert_eq!(with(&[(14, 0x0f), (15, 0xf1)]), HeaderError::Long(0x0ff1), "4,097 bytes: more than is read");
    let longest = [&V2[..14], &[0x0f, 0xf0], &V2[16..]].concat();
    assert_eq!(parse(&longest), Ok(Parsed::Incomplete { at_least: 4096 }));
    assert_eq!(with(&[(30, 4)]), HeaderError::Tlv(2), "a vector that is longer than the header");
    assert_eq!(with(&[(15, 14)]), HeaderError::Tlv(2), "half a vector");
    assert_eq!(with(&[(28, kind::CRC32C)]), HeaderError::Tlv(3), "a checksum of three bytes");
    assert_eq!(with(&[(28, kind::SSL)]), HeaderError::Tlv(0x20), "no room for what it says of TLS");
}

#[test]
fn a_checksum_is_checked_and_may_be_there_once() {
    let ends = tcp("192.0.2.1:1", "192.0.2.2:2");
    let mut bytes = Vec::new();
    let tlvs = [Tlv { kind: kind::UNIQUE_ID, value: b"0123" }];
    emit_v2(&HeaderContents { ends, tlvs: &tlvs, checksum: true }, &mut bytes).unwrap();
    complete(&bytes);
    // Every change of one bit is found, from the addresses on.
    for bit in 16 * 8..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !matches!(parse(&changed), Ok(Parsed::Complete { header, .. })
                if header.tlvs.value_of(kind::CRC32C).is_some()),
            "bit {bit}"
        );
    }
    let sum = bytes[28..35].to_vec(); // behind the addresses
    bytes.extend(sum);
    bytes[15] += 7;
    let error = parse(&bytes).unwrap_err();
    assert_eq!(error, HeaderError::Checksums);
    assert_eq!(error.to_string(), "the PROXY protocol header is bad: it expects one checksum, found two");
}

#[test]
fn what_is_said_of_tls_is_read() {
    let within = b"\x03\0\0\0\x01\x21\0\x07TLSv1.3\x22\0\x03bob";
    let tlvs = [Tlv { kind: kind::SSL, value: within }];
    let mut bytes = Vec::new();
    emit_v2(
        &HeaderContents { ends: tcp("192.0.2.1:1", "192.0.2.2:2"), tlvs: &tlvs, checksum: false },
        &mut bytes,
    )
    .unwrap();
    let (header, _) = complete(&bytes);
    let ssl = header.tlvs.ssl().unwrap();
    assert_eq!((ssl.client, ssl.verify), (3, 1));
    assert_eq!(ssl.within.value_of(kind::SSL_VERSION), Some(&b"TLSv1.3"[..]));
    assert_eq!(ssl.within.value_of(kind::SSL_CN), Some(&b"bob"[..]));
}

#[test]
fn what_would_not_be_read_is_not_written() {
    let ends = tcp("192.0.2.1:1", "192.0.2.2:2");
    let mut bytes = b"before".to_vec();
    let mut refused = |kind, value: &[u8]| {
        emit_v2(&HeaderContents { ends, tlvs: &[Tlv { kind, value }], checksum: true }, &mut bytes)
            .unwrap_err()
    };
    assert_eq!(refused(kind::UNIQUE_ID, &[0; 129]), HeaderError::Tlv(5));
    assert_eq!(refused(kind::CRC32C, &[0; 4]), HeaderError::Tlv(3));
    assert_eq!(refused(kind::NOOP, &[0; 65_536]), HeaderError::Tlv(4));
    assert_eq!(refused(kind::NOOP, &[0; 5000]), HeaderError::Length(5022));
    assert_eq!(bytes, b"before");
}

#[test]
fn families_that_differ_are_reported_as_ipv6() {
    let ends = tcp("192.0.2.1:1", "[2001:db8::1]:2");
    let mut line = Vec::new();
    emit_v1(ends.as_ref(), &mut line);
    assert_eq!(line, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n");
    assert_eq!(complete(&line).0.ends, ends);
    line.clear();
    emit_v1(None, &mut line);
    assert_eq!(line, b"PROXY UNKNOWN\r\n");
}

fn any_ends() -> impl Strategy<Value = Option<EndpointPair<'static>>> {
    let v4 = any::<(u32, u16)>().prop_map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip.into()), port));
    let v6 = any::<(u128, u16)>().prop_map(|(ip, port)| SocketAddr::new(IpAddr::V6(ip.into()), port));
    let transport = prop_oneof![Just(Transport::Stream), Just(Transport::Datagram)];
    let pairs = prop_oneof![(v4.clone(), v4), (v6.clone(), v6)];
    let ip = (transport, pairs).prop_map(|(transport, (source, destination))| {
        Some(EndpointPair::Ip { transport, source, destination })
    });
    prop_oneof![1 => Just(None), 9 => ip]
}

fn any_tlvs() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let kind = any::<u8>().prop_filter("made elsewhere", |kind| !matches!(*kind, kind::CRC32C | kind::SSL));
    prop::collection::vec((kind, prop::collection::vec(any::<u8>(), 0..128)), 0..8)
}

/// Checks that every prefix of `bytes` parses as incomplete, and never asks for more than there is.
fn check_beginnings(bytes: &[u8]) -> Result<(), TestCaseError> {
    for cut in 0..bytes.len() {
        match parse(&bytes[..cut]) {
            Ok(Parsed::Incomplete { at_least }) => {
                prop_assert!(
                    at_least > cut && at_least <= bytes.len(),
                    "{at_least} at {cut} of {}",
                    bytes.len()
                );
            }
            other => prop_assert!(false, "{:?} at {} of {}", other, cut, bytes.len()),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn binary_headers_read_back_as_they_are_written(ends in any_ends(), tlvs in any_tlvs(), checksum: bool,
        rest: [u8; 4]) {
        let tlvs: Vec<_> = tlvs.iter().map(|(kind, value)| Tlv { kind: *kind, value }).collect();
        let expected = if ends.is_some() { &tlvs[..] } else { &[] };
        let mut bytes = Vec::new();
        let contents = HeaderContents { ends, tlvs: expected, checksum: checksum && ends.is_some() };
        emit_v2(&contents, &mut bytes).unwrap();
        check_beginnings(&bytes)?;
        let length = bytes.len();
        bytes.extend(rest);
        let (header, read) = complete(&bytes);
        prop_assert_eq!(read, length);
        prop_assert_eq!(header.ends, ends);
        prop_assert_eq!(header.relayed, ends.is_some());
        let found: Vec<_> = header.tlvs.filter(|tlv| tlv.kind != kind::CRC32C).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn unix_names_read_back(source in prop::collection::vec(1..=u8::MAX, 0..=108),
        destination in prop::collection::vec(1..=u8::MAX, 0..=108)) {
        let ends = Some(EndpointPair::Unix { transport: Transport::Stream, source: &source,
            destination: &destination });
        let mut bytes = Vec::new();
        emit_v2(&HeaderContents { ends, tlvs: &[], checksum: false }, &mut bytes).unwrap();
        prop_assert_eq!(complete(&bytes).0.ends, ends);
    }

    #[test]
    fn lines_read_back_as_they_are_written(ends in any_ends(), rest: [u8; 4]) {
        let ends = ends.filter(|ends| matches!(ends, EndpointPair::Ip { transport: Transport::Stream, .. }));
        let mut bytes = Vec::new();
        emit_v1(ends.as_ref(), &mut bytes);
        prop_assert!(bytes.len() <= LONGEST_V1);
        check_beginnings(&bytes)?;
        let length = bytes.len();
        bytes.extend(rest);
        let (header, read) = complete(&bytes);
        prop_assert_eq!((header.ends, read), (ends, length));
    }

    #[test]
    fn no_bytes_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|rest| [&v2::SIGNATURE[..], b"\x21\x11\0",
                &rest].concat()),
            "PROXY [A-Z0-9:. \r\n]{0,120}".prop_map(String::into_bytes),
        ]
    ) {
        if let Ok(Parsed::Complete { header, length }) = parse(&bytes) {
            prop_assert!(length <= bytes.len());
            prop_assert_eq!(header.tlvs.map(|tlv| 3 + tlv.value.len()).sum::<usize>() <= length, true);
        }
    }
}
