//! FIX, a protocol of stock exchanges. A field is `tag=value` and a byte 0x01.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::Error;
use crate::sample::{Type, Value};

#[derive(Debug)]
pub(crate) enum Fix {
    IsValid,
    TagValue(u32),
}

/// Tags with names.
const TAGS: &[(&str, u32)] = &[
    ("BeginString", BEGIN),
    ("BodyLength", LENGTH),
    ("CheckSum", SUM),
    ("MsgType", KIND),
    ("SenderCompID", 49),
    ("TargetCompID", 56),
];

const BEGIN: u32 = 8;
const LENGTH: u32 = 9;
const SUM: u32 = 10;
const KIND: u32 = 35;

/// Values of `BeginString`, by version.
const VERSIONS: &[&[u8]] = &[b"FIX.4.0", b"FIX.4.1", b"FIX.4.2", b"FIX.4.3", b"FIX.4.4", b"FIXT.1.1"];

fn tag(args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    let text = args.boxed(0);
    let named =
        TAGS.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(&text)).map(|(_, tag)| *tag);
    let tag = named.or_else(|| number(&text)).filter(|&tag| tag > 0);
    let tag =
        tag.ok_or_else(|| args.expected(0, "a tag's number, or the name of one such as SenderCompID"))?;
    Ok(Convert::Fix(Fix::TagValue(tag)))
}

pub(super) const ROWS: &[Row] = &[
    row("fix_is_valid", &[], 0, Type::Bin, Type::Bool, "whether the bytes are a message of FIX", |_| {
        Ok(Convert::Fix(Fix::IsValid))
    }),
    row(
        "fix_tag_value",
        &[Str],
        1,
        Type::Bin,
        Type::Bin,
        "the value of a tag of a message of FIX, by its number or name",
        tag,
    ),
];

/// Parses a text that has only digits.
fn number(text: &[u8]) -> Option<u32> {
    text.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

/// Iterates over the fields of a message: tag, value and end offset. Ends at the first invalid field.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, &'a [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let line = &rest[..memchr::memchr(0x01, rest)?];
        let equals = memchr::memchr(b'=', line)?;
        let (tag, value) = (number(&line[..equals])?, &line[equals + 1..]);
        if equals == 0 || value.is_empty() {
            return None;
        }
        self.at += line.len() + 1;
        Some((tag, value, self.at))
    }
}

/// Length of the shortest message: `BeginString`, `BodyLength`, `MsgType` and `CheckSum`.
const MIN_MESSAGE: usize = 26;

/// True if the bytes begin with a valid message. `None` if they may be the beginning of one.
fn is_valid(bytes: &[u8]) -> Option<bool> {
    if bytes.len() < MIN_MESSAGE {
        return None;
    }
    match checked(bytes) {
        Ok(valid) => Some(valid),
        Err(Missing::ToCome) => None,
        Err(Missing::Malformed) => Some(false),
    }
}

/// Why there is no next field.
enum Missing {
    /// Its end may not have arrived.
    ToCome,
    Malformed,
}

fn checked(bytes: &[u8]) -> Result<bool, Missing> {
    let mut fields = Fields { bytes, at: 0 };
    let mut next = || {
        let is_whole = memchr::memchr(0x01, &bytes[fields.at..]).is_some();
        fields.next().ok_or(if is_whole { Missing::Malformed } else { Missing::ToCome })
    };
    let (tag, version, _) = next()?;
    if tag != BEGIN || !VERSIONS.contains(&version) {
        return Ok(false);
    }
    let (tag, length, begin) = next()?;
    let Some(length) = number(length).filter(|_| tag == LENGTH) else { return Ok(false) };
    let until = begin as u64 + u64::from(length);
    let (tag, _, mut end) = next()?;
    if tag != KIND {
        return Ok(false);
    }
    let sum = loop {
        match next()? {
            (SUM, sum, _) => break sum,
            (.., at) if (end as u64) < until && at as u64 > until => return Ok(false),
            (.., at) => end = at,
        }
    };
    let added = bytes[..end].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    Ok(end as u64 == until && sum.len() == 3 && number(sum) == Some(added.into()))
}

impl Fix {
    pub(super) fn apply<'x>(&self, bytes: &'x [u8]) -> Option<Value<'x>> {
        match self {
            Self::IsValid => is_valid(bytes).map(Value::Bool),
            Self::TagValue(wanted) => {
                let mut fields = Fields { bytes, at: 0 };
                fields.find(|(tag, ..)| tag == wanted).map(|(_, value, _)| Value::Bin(value))
            }
        }
    }
}
