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

/// `Some(true)` for a valid message; `Some(false)` or `None` otherwise.
fn is_valid(bytes: &[u8]) -> Option<bool> {
    let mut fields = Fields { bytes, at: 0 };
    let (tag, version, _) = fields.next()?;
    if tag != BEGIN || !VERSIONS.contains(&version) {
        return Some(false);
    }
    let (tag, length, begin) = fields.next()?;
    let length = usize::try_from(number(length)?).ok()?;
    if tag != LENGTH || fields.next()?.0 != KIND {
        return Some(false);
    }
    let end = begin.checked_add(length)?;
    let body = bytes.get(..end)?;
    if fields.at < end {
        fields.by_ref().find(|(_, _, at)| *at >= end)?;
    }
    let (tag, sum, _) = fields.next()?;
    let added = body.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    Some(fields.at == end + 7 && tag == SUM && sum.len() == 3 && number(sum)? == u32::from(added))
}

impl Fix {
    pub(super) fn apply<'x>(&self, bytes: &'x [u8]) -> Option<Value<'x>> {
        match self {
            Self::IsValid => Some(Value::Bool(is_valid(bytes).unwrap_or(false))),
            Self::TagValue(wanted) => {
                let mut fields = Fields { bytes, at: 0 };
                fields.find(|(tag, ..)| tag == wanted).map(|(_, value, _)| Value::Bin(value))
            }
        }
    }
}
