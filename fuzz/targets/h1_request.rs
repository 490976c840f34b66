//! Requests: an accepted request reads back the same after writing, whole or cut, and has one framing for a
//! simple reference reader.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_buf::{Chain, Cluster};
use manylane_h1::{
    Body, Leniency, Limits, Persist, Request, RequestParser, restrict_te, set_connection, write_head,
};
use manylane_http::{Known, Version};

fn chain<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Chain {
    let mut chain = Chain::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        chain.push_back(Cluster::with(piece).expect("memory").into_segment()).expect("room");
    }
    chain
}

fn parse(bytes: &[u8], limits: Limits) -> Option<(Request, Chain)> {
    let mut input = chain(bytes.chunks(4000));
    RequestParser::new(limits).parse(&mut input).ok().flatten().map(|request| (request, input))
}

fuzz_target!(|data: &[u8]| {
    let [options, cut, relaxations, bytes @ ..] = data else { return };
    let limits = Limits {
        head: 1000,
        fields: 20,
        relaxed: options & 1 == 1,
        proxy_header: options & 2 == 2,
        lenient: Leniency::from_bits(u16::from(*relaxations) | u16::from(options & 28) << 6),
        ..Limits::default()
    };
    let whole = parse(bytes, limits);

    // In two pieces, one after the other.
    let cut = usize::from(*cut).min(bytes.len());
    let mut input = chain([&bytes[..cut]]);
    let mut parser = RequestParser::new(limits);
    let mut got = parser.parse(&mut input);
    if let Ok(None) = got {
        input.append_chain(&mut chain([&bytes[cut..]])).expect("room");
        got = parser.parse(&mut input);
        if let (Some((whole, rest)), Ok(Some(cut))) = (&whole, &got) {
            assert_eq!((format!("{:?}", whole.head), whole.body), (format!("{:?}", cut.head), cut.body));
            assert_eq!(*rest, input);
        } else {
            assert_eq!(whole.is_some(), matches!(got, Ok(Some(_))), "{got:?}");
        }
    }

    let Some((mut request, _)) = whole else { return };
    let head = &request.head;
    let lengths = head.count(Known::CONTENT_LENGTH);
    let codings = head.count(Known::TRANSFER_ENCODING);
    assert!(head.count(Known::HOST) <= 1);
    match request.body {
        Body::None => assert_eq!((lengths, codings), (0, 0)),
        Body::Length(length) => {
            assert_eq!((lengths, codings), (1, 0));
            let digits = head.value(Known::CONTENT_LENGTH).expect("counted");
            assert_eq!(std::str::from_utf8(digits).expect("digits").parse(), Ok(length));
        }
        Body::Chunked => {
            assert_eq!((lengths, codings), (0, 1));
            // An HTTP/1.0 message is forwarded as HTTP/1.1, and its connection closes.
            let old = head.version() < Version::HTTP_11;
            assert!(!old || limits.lenient.has(Leniency::OLD_CODING) && request.connection.close);
        }
        Body::UntilClose | Body::Tunnel => panic!("not in a request"),
    }
    for field in head.fields() {
        assert!(!field.name.is_empty() && !field.name.iter().any(|byte| b" \t\r\n:\0".contains(byte)));
        assert!(!field.value.iter().any(|byte| b"\r\n\0".contains(byte)));
        assert_eq!(field.known, Known::of(field.name));
    }

    // Forwarded, and parsed again. The parser takes `close` and `keep-alive` out of `Connection`.
    let shown = |head: &manylane_http::Head| {
        let fields = head.fields().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()));
        let mut fields: Vec<_> = fields.filter(|(name, _)| name != b"connection").collect();
        fields.sort();
        (head.method().to_vec(), head.target().to_vec(), fields)
    };
    let head = &mut request.head;
    if request.body == Body::Chunked && head.set_version(Version::HTTP_11).is_err() {
        return;
    }
    let edits = head.add_field("x-added", b"1").is_ok()
        && restrict_te(head).is_ok()
        && set_connection(
            head,
            request.connection,
            if options & 4 == 4 { Persist::KeepAlive } else { Persist::Close },
        )
        .is_ok();
    if !edits {
        return;
    }
    let mut out = Chain::new();
    write_head(head, &mut out, None).expect("memory");
    assert_eq!(out.len(), head.size());
    // Forwarded messages are strict, even if the input was not. An odd `Host` is forwarded unchanged.
    let odd = if limits.lenient.has(Leniency::HOSTS) { Leniency::HOSTS } else { Leniency::NONE };
    let roomy = Limits { head: 4000, fields: 40, lenient: odd, relaxed: false, ..limits };
    let (again, rest) = parse(&out.to_vec(), roomy).expect("we read what we write");
    assert!(rest.is_empty());
    assert_eq!(shown(&again.head), shown(head));
    assert_eq!(again.body, request.body);
    let persists = again.connection.persists(again.head.version());
    assert!(limits.proxy_header || persists == (options & 4 == 4));
});
