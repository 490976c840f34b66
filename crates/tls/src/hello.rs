//! The parts of hellos that samples read: the lists in a client's hello (`tune.ssl.capture-buffer-size`), and
//! the random value and the session in a server's hello.

use manylane_buf::Chain;
use rustls::server::{Accepted, Acceptor};
use std::borrow::Cow;
use xxhash_rust::xxh64::xxh64;

/// Parts of a ClientHello with labels. A part that is missing, or that had no room, has no label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello(Vec<(&'static str, Box<[u8]>)>);

/// Type of a record with handshake messages, and of one that middleboxes expect before them.
pub(crate) const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;

/// Types of messages.
pub(crate) const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The random value of a ServerHello that asks for another ClientHello (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl ClientHello {
    /// `legacy_version`, two bytes.
    pub const VERSION: &str = "version";
    /// XXH64 of all cipher suites, eight bytes.
    pub const CIPHERS_HASH: &str = "hash of cipher suites";
    /// Cipher suites, two bytes each.
    pub const CIPHERS: &str = "cipher suites";
    /// Types of extensions, two bytes each.
    pub const EXTENSIONS: &str = "extensions";
    /// Named groups, two bytes each.
    pub const GROUPS: &str = "groups";
    /// Formats of points, one byte each.
    pub const POINT_FORMATS: &str = "point formats";
    /// Supported versions, two bytes each.
    pub const VERSIONS: &str = "versions";
    /// Signature algorithms, two bytes each.
    pub const SIGNATURES: &str = "signature algorithms";

    /// All parts with their labels.
    pub fn all(&self) -> &[(&'static str, Box<[u8]>)] {
        &self.0
    }

    /// Reads a ClientHello at the start of received records; at most `most` bytes of its lists are kept.
    /// `None` if it is not complete, or not a hello.
    pub(crate) fn read(records: &[u8], most: usize) -> Option<Self> {
        let message = message(records)?;
        let mut hello = Fields(&message);
        hello.take(4)?; // type and length
        let version = hello.take(2)?;
        hello.take(32)?; // random
        hello.vector(1)?; // session id
        let ciphers = hello.vector(2)?;
        hello.vector(1)?; // compression methods
        let mut extensions = Fields(hello.vector(2).unwrap_or_default());
        let (mut types, mut groups, mut formats, mut versions, mut signatures) =
            (Vec::new(), &[][..], &[][..], &[][..], &[][..]);
        while let Some(kind) = extensions.take(2) {
            let mut body = Fields(extensions.vector(2)?);
            types.extend_from_slice(kind);
            match kind {
                [0, 10] => groups = body.vector(2)?,
                [0, 11] => formats = body.vector(1)?,
                [0, 13] => signatures = body.vector(2)?,
                [0, 43] => versions = body.vector(1)?,
                _ => {}
            }
        }
        let hash = xxh64(ciphers, 0).to_be_bytes();
        let mut kept = vec![(Self::VERSION, version.into()), (Self::CIPHERS_HASH, Box::from(hash))];
        let mut room = most;
        // In HAProxy's order, which says what is cut when the room ends.
        for (label, list) in [
            (Self::CIPHERS, ciphers),
            (Self::EXTENSIONS, &types),
            (Self::GROUPS, groups),
            (Self::POINT_FORMATS, formats),
            (Self::VERSIONS, versions),
            (Self::SIGNATURES, signatures),
        ] {
            let list = &list[..list.len().min(room)];
            room -= list.len();
            if !list.is_empty() {
                kept.push((label, list.into()));
            }
        }
        Some(Self(kept))
    }
}

/// The first handshake message, a ClientHello, without the headers of records.
fn message(mut records: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut message = Cow::Borrowed(&[][..]);
    loop {
        let [HANDSHAKE, _, _, high, low, rest @ ..] = records else { return None };
        let (part, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        records = rest;
        if message.is_empty() {
            message = Cow::Borrowed(part);
        } else {
            message.to_mut().extend_from_slice(part);
        }
        if let [kind, a, b, c, ..] = *message {
            let len = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
            if kind != CLIENT_HELLO {
                return None;
            }
            if message.len() >= len {
                return Some(message);
            }
        }
    }
}

/// What is kept of a ServerHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerHello {
    pub(crate) random: [u8; 32],
    /// The session of TLS 1.2; TLS 1.3 has none, and the field is a copy of what the client sent.
    pub(crate) session: Box<[u8]>,
}

/// Reads a ServerHello at the start of records; it is sent in clear.
pub(crate) fn server_hello(mut records: &[u8]) -> Option<ServerHello> {
    loop {
        let [kind, _, _, high, low, rest @ ..] = records else { return None };
        match *kind {
            HANDSHAKE => {
                let [SERVER_HELLO, _, _, _, _, _, behind @ ..] = rest else { return None };
                let (random, behind) = behind.split_first_chunk::<32>()?;
                if *random != RETRY {
                    let session = Fields(behind).vector(1)?.into();
                    return Some(ServerHello { random: *random, session });
                }
            }
            CHANGE_CIPHER_SPEC => {}
            _ => return None,
        }
        records = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
    }
}

/// Reads from the front of a byte slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// Reads a vector with a length of `width` bytes.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let len = self.take(width)?.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
        self.take(len)
    }
}

/// Returns the hello in a client's bytes, if rustls finds it whole and good.
pub(crate) fn accepted(received: &Chain) -> Option<Accepted> {
    let mut acceptor = Acceptor::default();
    for segment in received.segments() {
        let mut bytes = segment.as_slice();
        while !bytes.is_empty() {
            acceptor.read_tls(&mut bytes).ok().filter(|taken| *taken > 0)?;
            // It makes room for a long hello when it has seen the beginning.
            if let Some(accepted) = acceptor.accept().ok()? {
                return Some(accepted);
            }
        }
    }
    None
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    fn sized(width: usize, body: &[u8]) -> Vec<u8> {
        [&body.len().to_be_bytes()[8 - width..], body].concat()
    }

    fn hello() -> Vec<u8> {
        let extensions = [
            [&[0, 11][..], &sized(2, &[2, 0, 1])].concat(),
            [&[0, 10][..], &sized(2, &sized(2, &[0, 29, 0, 23]))].concat(),
            [&[0, 13][..], &sized(2, &sized(2, &[4, 3]))].concat(),
            [&[0, 43][..], &sized(2, &sized(1, &[3, 4]))].concat(),
        ]
        .concat();
        let body =
            [&[3, 3][..], &[7; 32], &[0], &sized(2, &[0xc0, 0x2b, 0, 0xff]), &[1, 0], &sized(2, &extensions)]
                .concat();
        [&[1][..], &sized(3, &body)].concat()
    }

    fn record(part: &[u8]) -> Vec<u8> {
        [&[22, 3, 1][..], &sized(2, part)].concat()
    }

    fn part<'a>(hello: &'a ClientHello, label: &str) -> &'a [u8] {
        hello.all().iter().find(|(own, _)| *own == label).map_or(&[], |(_, part)| part)
    }

    #[test]
    fn the_lists_of_a_hello_are_kept_in_order_until_the_room_ends() {
        let records = record(&hello());
        let all = ClientHello::read(&records, 100).unwrap();
        assert_eq!(part(&all, ClientHello::VERSION), [3, 3]);
        assert_eq!(part(&all, ClientHello::CIPHERS), [0xc0, 0x2b, 0, 0xff]);
        assert_eq!(part(&all, ClientHello::EXTENSIONS), [0, 11, 0, 10, 0, 13, 0, 43]);
        assert_eq!(part(&all, ClientHello::GROUPS), [0, 29, 0, 23]);
        assert_eq!(part(&all, ClientHello::POINT_FORMATS), [0, 1]);
        assert_eq!(part(&all, ClientHello::SIGNATURES), [4, 3]);
        assert_eq!(part(&all, ClientHello::VERSIONS), [3, 4]);
        let lists =
            |hello: &ClientHello| hello.all().iter().skip(2).map(|(_, part)| part.len()).sum::<usize>();
        assert_eq!(lists(&all), 22);
        for most in 0..22 {
            assert_eq!(lists(&ClientHello::read(&records, most).unwrap()), most);
        }
        let some = ClientHello::read(&records, 14).unwrap();
        assert_eq!(part(&some, ClientHello::GROUPS), [0, 29]);
        assert_eq!(part(&some, ClientHello::POINT_FORMATS), []);
        assert_eq!(part(&some, ClientHello::CIPHERS_HASH), part(&all, ClientHello::CIPHERS_HASH));
    }

    #[test]
    fn a_hello_may_be_in_several_records_and_is_not_read_before_its_end() {
        let message = hello();
        let records: Vec<u8> = message.chunks(7).flat_map(record).collect();
        assert_eq!(ClientHello::read(&records, 100), ClientHello::read(&record(&message), 100));
        for cut in 0..records.len() {
            assert_eq!(ClientHello::read(&records[..cut], 100), None, "{cut}");
        }
        assert_eq!(ClientHello::read(b"GET / HTTP/1.1\r\n\r\n", 100), None);
    }

    #[test]
    fn the_random_value_is_that_of_the_hello_that_ends_the_search() {
        let hello =
            |random: &[u8; 32]| record(&[&[2, 0, 0, 42, 3, 3][..], random, &[2, 8, 9, 0, 0]].concat());
        let found = |random| Some(ServerHello { random: [random; 32], session: [8, 9].into() });
        assert_eq!(server_hello(&hello(&[5; 32])), found(5));
        let between = [20, 3, 3, 0, 1, 1];
        assert_eq!(server_hello(&[&hello(&RETRY)[..], &between].concat()), None);
        assert_eq!(server_hello(&[&between[..], &hello(&[6; 32])].concat()), found(6));
        assert_eq!(server_hello(&[21, 3, 3, 0, 2, 2, 40]), None);
    }
}
