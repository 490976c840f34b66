//! Parses an unencrypted TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301, 3.1), for routing by name
//! in TCP mode, and tells the kind of a server's hello. A hello that spans several records counts as
//! incomplete.

use crate::sample::Value;
use crate::scratch::Scratch;

/// The value to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Kind,
    Version,
    ServerName,
    Alpn,
    Ciphers,
    KeyShareGroups,
    SignatureAlgorithms,
    SupportedGroups,
    /// Whether there is an extension of supported groups.
    HasGroups,
    /// The extension of RFC 5077: 0 if it is missing, 1 if it asks for a ticket, 2 if it has one.
    SessionTicket,
}

impl Part {
    /// The extension that contains it.
    fn extension(self) -> usize {
        match self {
            Self::ServerName => 0,
            Self::SupportedGroups | Self::HasGroups => 10,
            Self::SignatureAlgorithms => 13,
            Self::Alpn => 16,
            Self::SessionTicket => 35,
            Self::KeyShareGroups => 51,
            Self::Kind | Self::Version | Self::Ciphers => usize::MAX, // in no extension
        }
    }
}

/// Result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Value(Value<'a>),
    /// The value is not there; more bytes do not help.
    None,
    /// The hello is incomplete.
    Short,
}

/// Record type 22, handshake, and its message type.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Reads from the front of a byte slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.take(width)?.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)))
    }

    /// Reads a vector with a length of `width` bytes.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let len = self.number(width)?;
        self.take(len)
    }
}

/// Finds `part` in a ClientHello at the start of `bytes`.
pub(crate) fn read<'x>(bytes: &'x [u8], part: Part, scratch: &mut Scratch<'x>) -> Read<'x> {
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE) || bytes.get(1).is_some_and(|major| *major != 3) {
        return Read::None;
    }
    let mut record = Fields(bytes);
    let Some(body) = record.take(3).and_then(|_| record.vector(2)) else {
        return Read::Short;
    };
    let mut hello = Fields(body);
    let Some(kind) = hello.number(1) else { return Read::None };
    if part == Part::Kind {
        return hello.vector(3).map_or(Read::None, |_| Read::Value(Value::Int(kind as i64)));
    }
    if kind != usize::from(CLIENT_HELLO) {
        return Read::None;
    }
    inside(hello, part, scratch).map_or(Read::None, Read::Value)
}

fn inside<'a>(mut hello: Fields<'a>, part: Part, scratch: &mut Scratch<'a>) -> Option<Value<'a>> {
    let mut hello = Fields(hello.vector(3)?);
    let version = hello.number(2)?;
    if part == Part::Version {
        return Some(Value::Int(((version >> 8) << 16 | (version & 0xff)) as i64));
    }
    hello.take(32)?; // random
    hello.vector(1)?; // session id
    let ciphers = hello.vector(2)?;
    if part == Part::Ciphers {
        return Some(Value::Bin(ciphers));
    }
    hello.vector(1)?; // compression methods
    let mut extensions = Fields(hello.vector(2)?);
    let mut empty = true;
    loop {
        if extensions.0.is_empty() && !empty {
            return match part {
                Part::HasGroups => Some(Value::Bool(false)),
                Part::SessionTicket => Some(Value::Int(0)),
                _ => None,
            };
        }
        empty = false;
        let kind = extensions.number(2)?;
        let body = extensions.vector(2)?;
        if kind != part.extension() {
            continue;
        }
        match part {
            Part::HasGroups => return Some(Value::Bool(true)),
            Part::SessionTicket => return Some(Value::Int(if body.is_empty() { 1 } else { 2 })),
            _ => {}
        }
        let mut list = Fields(Fields(body).vector(2)?);
        return match part {
            Part::ServerName => loop {
                let kind = list.number(1)?;
                let name = list.vector(2)?;
                if kind == 0 {
                    break Some(Value::Str(name));
                }
            },
            // As in HAProxy, the first of the list alone.
            Part::Alpn => list.vector(1).map(Value::Str),
            Part::KeyShareGroups => scratch
                .build(|out| {
                    while let Some(group) = list.take(2) {
                        out.put(group)?;
                        list.vector(2)?; // its share
                    }
                    Some(())
                })
                .map(Value::Bin),
            _ => Some(Value::Bin(list.0)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Lane;

    /// A TLS 1.2 ClientHello with a server name, ALPN, and lists of capabilities.
    fn hello(name: &[u8]) -> Vec<u8> {
        let sized = |width: usize, body: &[u8]| [&body.len().to_be_bytes()[8 - width..], body].concat();
        let sni = sized(2, &[&[0][..], &sized(2, name)].concat());
        let alpn = sized(2, b"\x02h2\x08http/1.1");
        let groups = sized(2, &[0, 29, 0, 23]);
        let signatures = sized(2, &[4, 3, 8, 4]);
        let shares = sized(2, &[&[0, 29, 0, 2, 1, 2][..], &[0, 23, 0, 1, 9]].concat());
        let extensions = [
            &[0, 10][..],
            &sized(2, &groups),
            &[0, 13],
            &sized(2, &signatures),
            &[0, 0],
            &sized(2, &sni),
            &[0, 16],
            &sized(2, &alpn),
            &[0, 51],
            &sized(2, &shares),
        ]
        .concat();
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 19, 1], &[1, 0], &sized(2, &extensions)].concat();
        let handshake = [&[1][..], &sized(3, &body)].concat();
        [&[22, 3, 1][..], &sized(2, &handshake)].concat()
    }

    fn found(bytes: &[u8], part: Part, expected: &Read<'_>) {
        let mut lane = Lane::new();
        assert_eq!(read(bytes, part, &mut lane.scratch()), *expected, "{part:?}");
    }

    #[test]
    fn a_hello_tells_its_kind_version_name_and_protocols() {
        let bytes = hello(b"www.example.org");
        found(&bytes, Part::Kind, &Read::Value(Value::Int(1)));
        found(&bytes, Part::Version, &Read::Value(Value::Int(0x30003)));
        found(&bytes, Part::ServerName, &Read::Value(Value::Str(b"www.example.org")));
        found(&bytes, Part::Alpn, &Read::Value(Value::Str(b"h2")));
    }

    /// Item 35 of haproxy-today.
    #[test]
    fn a_hello_tells_its_lists_as_they_stand_there() {
        let bytes = hello(b"www.example.org");
        found(&bytes, Part::Ciphers, &Read::Value(Value::Bin(&[19, 1])));
        found(&bytes, Part::SupportedGroups, &Read::Value(Value::Bin(&[0, 29, 0, 23])));
        found(&bytes, Part::SignatureAlgorithms, &Read::Value(Value::Bin(&[4, 3, 8, 4])));
        found(&bytes, Part::KeyShareGroups, &Read::Value(Value::Bin(&[0, 29, 0, 23])));
    }

    #[test]
    fn a_hello_tells_whether_it_has_groups_and_a_ticket() {
        let bytes = hello(b"a.example");
        found(&bytes, Part::HasGroups, &Read::Value(Value::Bool(true)));
        found(&bytes, Part::SessionTicket, &Read::Value(Value::Int(0)));
        // The first extension, that of groups, becomes one of tickets.
        let mut bent = bytes;
        let at = bent.windows(4).position(|four| four == [0, 10, 0, 6]).unwrap();
        bent[at + 1] = 35;
        found(&bent, Part::HasGroups, &Read::Value(Value::Bool(false)));
        found(&bent, Part::SessionTicket, &Read::Value(Value::Int(2)));
    }

    #[test]
    fn a_hello_cut_anywhere_is_short_and_never_misread() {
        let bytes = hello(b"a.example");
        for cut in 0..bytes.len() {
            found(&bytes[..cut], Part::ServerName, &Read::Short);
        }
    }

    #[test]
    fn lengths_that_lie_find_nothing() {
        let bytes = hello(b"a.example");
        let mut lane = Lane::new();
        for at in 5..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bent = bytes.clone();
                bent[at] = value;
                for part in
                    [Part::ServerName, Part::Alpn, Part::Ciphers, Part::KeyShareGroups, Part::SessionTicket]
                {
                    let _ = read(&bent, part, &mut lane.scratch());
                }
            }
        }
        found(b"GET / HTTP/1.1\r\n", Part::Kind, &Read::None);
    }
}
