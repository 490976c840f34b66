//! Writes values of log formats as JSON (RFC 8259) or CBOR (RFC 8949).

use crate::cast::{cast, parse_int};
use crate::convert::encode::put_hex;
use crate::sample::{Type, Value};
use crate::scratch::{Scratch, Writer};

/// The encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// `+json`; `utf8` keeps UTF-8 as it is.
    Json { utf8: bool },
    /// `+cbor`; `raw` writes bytes instead of hexadecimal digits.
    Cbor { raw: bool },
}

/// Type in `%(name:type)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemType {
    Text,
    Number,
    Bool,
    /// Written as it is: the text is encoded already.
    Raw,
}

impl ItemType {
    pub(super) const NAMES: [&str; 4] = ["sint", "str", "bool", "raw"];

    pub(super) fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b"str" => Some(Self::Text),
            b"sint" => Some(Self::Number),
            b"bool" => Some(Self::Bool),
            b"raw" => Some(Self::Raw),
            _ => None,
        }
    }
}

/// A value to encode.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item<'a> {
    /// There is no such value.
    Null,
    /// A text that is missing.
    Missing,
    Bool(bool),
    Number(i64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// An encoded value.
    Raw(&'a [u8]),
}

impl<'x> Item<'x> {
    /// Converts a sample; `binary` allows bytes that are not text.
    pub(super) fn of(value: Option<Value<'x>>, binary: bool, scratch: &mut Scratch<'x>) -> Self {
        match value {
            None => Self::Missing,
            Some(Value::Bool(truth)) => Self::Bool(truth),
            Some(Value::Int(number)) => Self::Number(number),
            Some(Value::Bin(bytes)) if binary => Self::Bytes(bytes),
            Some(value) => match cast(value, Type::Str, scratch).and_then(|text| text.bytes()) {
                None | Some(b"") => Self::Missing,
                Some(text) => Self::Text(text),
            },
        }
    }

    /// Converts the value to the type of its name.
    pub(super) fn as_type(self, kind: Option<ItemType>, scratch: &mut Scratch<'x>) -> Self {
        match (kind, self) {
            (Some(ItemType::Text), Self::Bool(truth)) => Self::Text(if truth { b"1" } else { b"0" }),
            (Some(ItemType::Text), Self::Number(number)) => {
                scratch.print(format_args!("{number}")).map_or(Self::Missing, Self::Text)
            }
            (Some(ItemType::Number), Self::Bool(truth)) => Self::Number(truth.into()),
            (Some(ItemType::Number), Self::Text(text) | Self::Bytes(text)) => Self::Number(parse_int(text)),
            (Some(ItemType::Bool), Self::Number(number)) => Self::Bool(number != 0),
            (Some(ItemType::Bool), Self::Text(text) | Self::Bytes(text)) => Self::Bool(parse_int(text) != 0),
            (Some(ItemType::Raw), Self::Text(text) | Self::Bytes(text)) => Self::Raw(text),
            (Some(ItemType::Raw), Self::Missing) => Self::Null,
            (_, item) => item,
        }
    }
}

impl Encoding {
    /// Writes the start of a map.
    pub(super) fn open(self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => out.push(b'{'),
            Self::Cbor { raw } => put_cbor(raw, &[0xbf], out), // a map of unknown size
        }
    }

    /// Writes the end of a map.
    pub(super) fn close(self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => out.push(b'}'),
            Self::Cbor { raw } => put_cbor(raw, &[0xff], out),
        }
    }

    /// Writes the name of an entry.
    pub(super) fn put_name(self, name: &[u8], is_first: bool, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => {
                if !is_first {
                    out.put(b", ")?;
                }
                self.put(Item::Text(name), out)?;
                out.put(b": ")
            }
            Self::Cbor { .. } => self.put(Item::Text(name), out),
        }
    }

    pub(super) fn put(self, item: Item<'_>, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { utf8 } => match item {
                Item::Null => out.put(b"null"),
                Item::Missing => out.put(b"\"\""),
                Item::Bool(truth) => out.put(if truth { b"true" } else { b"false" }),
                Item::Number(number) => out.put_number(number, 1),
                Item::Text(text) | Item::Bytes(text) => {
                    out.push(b'"')?;
                    put_json(text, utf8, out)?;
                    out.push(b'"')
                }
                // No byte of it may end the line.
                Item::Raw(text) => {
                    out.put_mapped(text, |byte| !byte.is_ascii_control(), |_, out| out.push(b' '))
                }
            },
            Self::Cbor { raw } => match item {
                Item::Null | Item::Missing => put_cbor(raw, &[0xf6], out),
                Item::Bool(truth) => put_cbor(raw, &[0xf4 | u8::from(truth)], out),
                Item::Number(number) if number < 0 => put_head(raw, 1, !(number as u64), out),
                Item::Number(number) => put_head(raw, 0, number as u64, out),
                Item::Text(text) => {
                    put_head(raw, 3, text.len() as u64, out)?;
                    put_cbor(raw, text, out)
                }
                Item::Raw(text) => out.put(text),
                // A byte string of indefinite length with one chunk, as in HAProxy.
                Item::Bytes(bytes) => {
                    put_cbor(raw, &[0x5f], out)?;
                    put_head(raw, 2, bytes.len() as u64, out)?;
                    put_cbor(raw, bytes, out)?;
                    put_cbor(raw, &[0xff], out)
                }
            },
        }
    }

    /// Writes the start of a list.
    pub(super) fn open_list(self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => out.push(b'['),
            Self::Cbor { raw } => put_cbor(raw, &[0x9f], out),
        }
    }

    /// Writes the separator of a list.
    pub(super) fn next_of_list(self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => out.put(b", "),
            Self::Cbor { .. } => Some(()),
        }
    }

    /// Writes the end of a list.
    pub(super) fn close_list(self, out: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Json { .. } => out.push(b']'),
            Self::Cbor { raw } => put_cbor(raw, &[0xff], out),
        }
    }
}

/// Writes a CBOR head, a major type and a number, in the shortest form.
fn put_head(raw: bool, kind: u8, number: u64, out: &mut Writer<'_>) -> Option<()> {
    let bytes = number.to_be_bytes();
    let (short, from) = match number {
        0..24 => return put_cbor(raw, &[kind << 5 | number as u8], out),
        24..0x100 => (24, 7),
        0x100..0x1_0000 => (25, 6),
        0x1_0000..0x1_0000_0000 => (26, 4),
        _ => (27, 0),
    };
    put_cbor(raw, &[kind << 5 | short], out)?;
    put_cbor(raw, &bytes[from..], out)
}

fn put_cbor(raw: bool, bytes: &[u8], out: &mut Writer<'_>) -> Option<()> {
    if raw { out.put(bytes) } else { put_hex(bytes, out) }
}

/// Writes the contents of a JSON string. Bytes other than printable ASCII are escaped; with `utf8` only
/// invalid UTF-8 and control characters are.
fn put_json(text: &[u8], utf8: bool, out: &mut Writer<'_>) -> Option<()> {
    if !utf8 {
        return put_bytes(text, out);
    }
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\u{20}'..='\u{7f}' | '\0'..='\u{1f}' => put_bytes(&[c as u8], out)?,
                '\u{80}'..='\u{9f}' => out.print(format_args!("\\u{:04X}", u32::from(c)))?,
                c => out.put(c.encode_utf8(&mut [0; 4]).as_bytes())?,
            }
        }
        put_bytes(chunk.invalid(), out)?;
    }
    Some(())
}

fn put_bytes(text: &[u8], out: &mut Writer<'_>) -> Option<()> {
    out.put_mapped(
        text,
        |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'),
        |byte, out| match byte {
            b'"' | b'\\' => out.put(&[b'\\', byte]),
            b'\n' => out.put(b"\\n"),
            b'\r' => out.put(b"\\r"),
            b'\t' => out.put(b"\\t"),
            0x08 => out.put(b"\\b"),
            0x0c => out.put(b"\\f"),
            byte => out.print(format_args!("\\u{byte:04X}")),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(encoding: Encoding, item: Item<'_>) -> Vec<u8> {
        let mut bytes = [0; 256];
        let mut out = Writer::new(&mut bytes);
        encoding.put(item, &mut out).unwrap();
        out.written().to_vec()
    }

    #[test]
    fn numbers_of_cbor_are_those_of_the_rfc() {
        // RFC 8949, appendix A.
        for (number, hex) in [
            (0, "00"),
            (23, "17"),
            (24, "1818"),
            (100, "1864"),
            (1000, "1903E8"),
            (1_000_000, "1A000F4240"),
            (1_000_000_000_000, "1B000000E8D4A51000"),
            (-1, "20"),
            (-100, "3863"),
            (-1000, "3903E7"),
            (i64::MIN, "3B7FFFFFFFFFFFFFFF"),
        ] {
            let text = written(Encoding::Cbor { raw: false }, Item::Number(number));
            assert_eq!(String::from_utf8_lossy(&text).to_uppercase(), hex, "{number}");
        }
        assert_eq!(written(Encoding::Cbor { raw: true }, Item::Text(b"IETF")), b"\x64IETF");
        assert_eq!(written(Encoding::Cbor { raw: true }, Item::Bytes(b"\x01\0")), b"\x5f\x42\x01\0\xff");
    }

    #[test]
    fn strings_of_json_are_read_back_by_another_reader() {
        for text in ["", "a\"b\\c", "\n\r\t\u{8}\u{c}\u{1}\u{7f}", "Grüße \u{85} \u{1f600}"] {
            let json = written(Encoding::Json { utf8: true }, Item::Text(text.as_bytes()));
            let back: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(back, text);
            let json = written(Encoding::Json { utf8: false }, Item::Text(text.as_bytes()));
            assert!(json.is_ascii());
            let back: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(back, text.bytes().map(char::from).collect::<String>());
        }
        let json = written(Encoding::Json { utf8: true }, Item::Text(b"a\xffb"));
        assert_eq!(json, b"\"a\\u00FFb\"");
    }
}
