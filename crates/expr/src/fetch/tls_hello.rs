//! What a TLS ClientHello says before anything is decrypted (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301, 3.1):
//! for routing by name in TCP mode. Read only, bounded by the bytes that are here; a hello in several records
//! is taken as incomplete.

use crate::sample::Value;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Kind,
    Version,
    ServerName,
    Alpn,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Value(Value<'a>),
    /// Not there, and no further byte will change that.
    None,
    /// The hello has not been received as a whole.
    Short,
}

/// Record type 22: handshake.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// Takes fields off the front of bytes.
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

    /// Bytes whose length stands before them in `width` bytes.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let len = self.number(width)?;
        self.take(len)
    }
}

/// Looks for `part` at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8], part: Part) -> Read<'_> {
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
        return Read::Value(Value::Int(kind as i64));
    }
    if kind != usize::from(CLIENT_HELLO) {
        return Read::None;
    }
    inside(hello, part).map_or(Read::None, Read::Value)
}

fn inside<'a>(mut hello: Fields<'a>, part: Part) -> Option<Value<'a>> {
    let mut hello = Fields(hello.vector(3)?);
    let version = hello.number(2)?;
    if part == Part::Version {
        return Some(Value::Int(((version >> 8) << 16 | (version & 0xff)) as i64));
    }
    hello.take(32)?; // random
    hello.vector(1)?; // session id
    hello.vector(2)?; // cipher suites
    hello.vector(1)?; // compression methods
    let mut extensions = Fields(hello.vector(2)?);
    let wanted = if part == Part::ServerName { SERVER_NAME } else { ALPN };
    loop {
        let kind = extensions.number(2)?;
        let body = extensions.vector(2)?;
        if kind != usize::from(wanted) {
            continue;
        }
        let mut list = Fields(Fields(body).vector(2)?);
        if part == Part::Alpn {
            // The list as it stands: each name behind its length.
            return Some(Value::Str(list.0));
        }
        loop {
            let kind = list.number(1)?;
            let name = list.vector(2)?;
            if kind == 0 {
                return Some(Value::Str(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello of TLS 1.2's form with a server name and ALPN.
    fn hello(name: &[u8]) -> Vec<u8> {
        let sized = |width: usize, body: &[u8]| [&body.len().to_be_bytes()[8 - width..], body].concat();
        let sni = sized(2, &[&[0][..], &sized(2, name)].concat());
        let alpn = sized(2, b"\x02h2\x08http/1.1");
        let extensions =
            [&[0, 10, 0, 1, 9][..], &[0, 0], &sized(2, &sni), &[0, 16], &sized(2, &alpn)].concat();
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 19, 1], &[1, 0], &sized(2, &extensions)].concat();
        let handshake = [&[1][..], &sized(3, &body)].concat();
        [&[22, 3, 1][..], &sized(2, &handshake)].concat()
    }

    #[test]
    fn a_hello_tells_its_kind_version_name_and_protocols() {
        let bytes = hello(b"www.example.org");
        assert_eq!(read(&bytes, Part::Kind), Read::Value(Value::Int(1)));
        assert_eq!(read(&bytes, Part::Version), Read::Value(Value::Int(0x30003)));
        assert_eq!(read(&bytes, Part::ServerName), Read::Value(Value::Str(b"www.example.org")));
        assert_eq!(read(&bytes, Part::Alpn), Read::Value(Value::Str(b"\x02h2\x08http/1.1")));
    }

    #[test]
    fn a_hello_cut_anywhere_is_short_and_never_misread() {
        let bytes = hello(b"a.example");
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], Part::ServerName), Read::Short, "cut at {cut}");
        }
    }

    #[test]
    fn lengths_that_lie_find_nothing() {
        let bytes = hello(b"a.example");
        for at in 5..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bent = bytes.clone();
                bent[at] = value;
                let _ = read(&bent, Part::ServerName);
                let _ = read(&bent, Part::Alpn);
            }
        }
        assert_eq!(read(b"GET / HTTP/1.1\r\n", Part::Kind), Read::None);
    }
}
