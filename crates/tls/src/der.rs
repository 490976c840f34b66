//! A DER reader, as far as OCSP responses and certificate signatures need it.

/// The rest of a sequence of values.
#[derive(Clone, Copy)]
pub(crate) struct Der<'a>(pub(crate) &'a [u8]);

/// A value.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The value with its tag and length.
    pub(crate) whole: &'a [u8],
}

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;

/// A constructed context-specific tag.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

impl<'a> Der<'a> {
    /// Reads the next value.
    pub(crate) fn next(&mut self) -> Option<Value<'a>> {
        let all = self.0;
        let ([tag, first], rest) = all.split_first_chunk()?;
        if tag & 0x1f == 0x1f {
            return None; // a tag of several bytes
        }
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Value { tag: *tag, content, whole: &all[..all.len() - rest.len()] })
    }

    /// Reads the next value, which must have this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<Value<'a>> {
        self.next().filter(|value| value.tag == tag)
    }

    /// Reads the next value if it has this tag.
    pub(crate) fn maybe(&mut self, tag: u8) -> Option<Value<'a>> {
        if self.0.first() == Some(&tag) { self.next() } else { None }
    }

    /// Enters the next value, which must have this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Value::inside)
    }
}

/// A value with its tag and length.
pub(crate) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let bytes = length.to_be_bytes();
    let shortest = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let header = match length {
        0..=0x7f => vec![tag, length as u8],
        _ => [&[tag, 0x80 | shortest.len() as u8], shortest].concat(),
    };
    [&header, content].concat()
}

impl<'a> Value<'a> {
    /// The values inside.
    pub(crate) fn inside(self) -> Der<'a> {
        Der(self.content)
    }
}

/// The parts of a signed value: a certificate or an OCSP response.
#[derive(Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub(crate) message: &'a [u8],
    /// The algorithm identifier, without tag and length.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    /// What follows the signature.
    pub(crate) rest: Der<'a>,
}

impl<'a> Signed<'a> {
    pub(crate) fn of(der: &'a [u8]) -> Option<Self> {
        let mut parts = Der(der).enter(SEQUENCE)?;
        let message = parts.take(SEQUENCE)?.whole;
        let algorithm = parts.take(SEQUENCE)?.content;
        let (unused, signature) = parts.take(BIT_STRING)?.content.split_first()?;
        (*unused == 0).then_some(Self { message, algorithm, signature, rest: parts })
    }
}
