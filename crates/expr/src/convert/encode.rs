//! Encodings: base64, hexadecimal digits, URLs, JSON strings, host and port.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::parse_int;
use crate::error::Error;
use crate::fetch::digit;
use crate::sample::{Type, Value};
use crate::scratch::{Scratch, Writer};

#[derive(Debug)]
pub(crate) enum Encode {
    /// Eight binary digits for each byte.
    Binary,
    Base64(Alphabet),
    Decode64(Alphabet),
    Hex,
    HexToInt,
    Chunked {
        decimal: Option<Endian>,
        separator: Box<[u8]>,
        size: usize,
        truncate: bool,
    },
    FromPercent {
        form: bool,
    },
    ToPercent,
    Json(JsonInput),
    HostOnly,
    PortOnly,
}

/// Byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endian {
    Big,
    Little,
}

/// Input encoding of `json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonInput {
    Ascii,
    Utf8 { silent: bool, permissive: bool },
}

/// A base64 alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alphabet {
    last: [u8; 2],
    padded: bool,
}

/// RFC 4648, section 4.
pub(crate) const STANDARD: Alphabet = Alphabet { last: *b"+/", padded: true };
/// RFC 4648, section 5, without padding.
pub(crate) const URL: Alphabet = Alphabet { last: *b"-_", padded: false };

fn made(encode: Encode) -> Result<Convert, Error> {
    Ok(Convert::Encode(encode))
}

fn chunked(args: &Args<'_, '_>, decimal: Option<Endian>) -> Result<Convert, Error> {
    let separator = args.boxed(0);
    let size = if decimal.is_some() { args.int_in(1, 1..=8, 1)? } else { args.int_in(1, 0..=1 << 20, 0)? };
    if decimal.is_none() && size == 0 && !separator.is_empty() {
        return Err(args.expected(1, "the number of bytes between separators, at least 1,"));
    }
    let truncate = args.int_in(2, 0..=1, 0)? == 1;
    made(Encode::Chunked { decimal, separator, size: size as usize, truncate })
}

macro_rules! rows {
    ($($name:literal, $args:expr, $required:literal, $takes:ident, $gives:ident, $help:literal,
        $make:expr;)*) => {
        &[$(row($name, $args, $required, Type::$takes, Type::$gives, $help, $make)),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "b64dec", &[], 0, Str, Bin, "the bytes that the base64 text stands \
        for", |_| made(Encode::Decode64(STANDARD));
    "base2", &[], 0, Bin, Str, "eight binary digits for each byte", |_| made(Encode::Binary);
    "base64", &[], 0, Bin, Str, "base64 of the bytes", |_| made(Encode::Base64(STANDARD));
    "be2dec", &[Str, Int, Int], 2, Bin, Str, "numbers of so many bytes each, the highest byte first, \
        separated",
        |a| chunked(a, Some(Endian::Big));
    "be2hex", &[Str, Int, Int], 0, Bin, Str, "hexadecimal digits in groups of so many bytes, separated",
        |a| chunked(a, None);
    "hex", &[], 0, Bin, Str, "two hexadecimal digits for each byte", |_| made(Encode::Hex);
    "hex2i", &[], 0, Str, Int, "the number that hexadecimal digits stand for",
        |_| made(Encode::HexToInt);
    "host_only", &[], 0, Str, Str, "a Host field's value without its port, in lower \
        case", |_| made(Encode::HostOnly);
    "json", &[Str], 0, Str, Str, "the text as the inside of a JSON string", |a| {
        let input = match a.given(0) {
            None | Some(b"ascii") => JsonInput::Ascii,
            Some(b"utf8") => JsonInput::Utf8 { silent: false, permissive: false },
            Some(b"utf8s") => JsonInput::Utf8 { silent: true, permissive: false },
            Some(b"utf8p") => JsonInput::Utf8 { silent: false, permissive: true },
            Some(b"utf8ps") => JsonInput::Utf8 { silent: true, permissive: true },
            Some(_) => return Err(a.expected(0, "ascii, utf8, utf8s, utf8p or utf8ps")),
        };
        made(Encode::Json(input))
    };
    "le2dec", &[Str, Int, Int], 2, Bin, Str, "numbers of so many bytes each, the lowest byte first, \
        separated",
        |a| chunked(a, Some(Endian::Little));
    "port_only", &[], 0, Str, Int, "the port in a Host field's value; 0 without \
        one", |_| made(Encode::PortOnly);
    "ub64dec", &[], 0, Str, Bin, "the bytes that the text in the URL alphabet of base64 stands for",
        |_| made(Encode::Decode64(URL));
    "ub64enc", &[], 0, Bin, Str, "the URL alphabet's base64 of the bytes, without padding",
        |_| made(Encode::Base64(URL));
    "url_dec", &[Int], 0, Str, Str, "the text with %XX replaced, and + behind a question mark, or everywhere \
        with 1",
        |a| made(Encode::FromPercent { form: a.int(0)?.unwrap_or(0) != 0 });
    "url_enc", &[Str], 0, Str, Str, "the text with all but unreserved characters as \
        %XX", |a| match a.given(0) {
        None | Some(b"query") => made(Encode::ToPercent),
        Some(_) => Err(a.expected(0, "query")),
    };
};

impl Encode {
    pub(super) fn apply<'x>(&self, bytes: &'x [u8], scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        Some(match self {
            Self::Binary => Value::Str(
                scratch
                    .build(|out| bytes.iter().try_for_each(|byte| out.print(format_args!("{byte:08b}"))))?,
            ),
            Self::Base64(alphabet) => Value::Str(scratch.build(|out| encode64(bytes, *alphabet, out))?),
            Self::Decode64(alphabet) => Value::Bin(scratch.fill(|out| decode64(bytes, *alphabet, out))?),
            Self::Hex => Value::Str(scratch.build(|out| put_hex(bytes, out))?),
            Self::HexToInt => Value::Int(hex_to_int(bytes)?),
            Self::Chunked { decimal, separator, size, truncate } => {
                let size = if *size == 0 { bytes.len().max(1) } else { *size };
                let whole = bytes.len() - bytes.len() % size;
                let used = if *truncate { &bytes[..whole] } else { bytes };
                Value::Str(scratch.build(|out| {
                    for (index, chunk) in used.chunks(size).enumerate() {
                        if index > 0 {
                            out.put(separator)?;
                        }
                        let add = |n: u64, byte: &u8| n << 8 | u64::from(*byte);
                        match decimal {
                            Some(Endian::Big) => out.print(format_args!("{}", chunk.iter().fold(0, add)))?,
                            Some(Endian::Little) => {
                                out.print(format_args!("{}", chunk.iter().rev().fold(0, add)))?;
                            }
                            None => put_hex(chunk, out)?,
                        }
                    }
                    Some(())
                })?)
            }
            Self::FromPercent { form } => Value::Str(scratch.build(|out| url_decode(bytes, *form, out))?),
            Self::ToPercent => Value::Str(scratch.build(|out| {
                for byte in bytes {
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
                        out.push(*byte)?;
                    } else {
                        out.print(format_args!("%{byte:02X}"))?;
                    }
                }
                Some(())
            })?),
            Self::Json(input) => Value::Str(scratch.build(|out| json(bytes, *input, out))?),
            Self::HostOnly => {
                let host = split_port(bytes).0;
                Value::Str(
                    scratch
                        .build(|out| host.iter().try_for_each(|byte| out.push(byte.to_ascii_lowercase())))?,
                )
            }
            Self::PortOnly => Value::Int(parse_int(split_port(bytes).1)),
        })
    }
}

/// Splits an authority into the host, with brackets if it has them, and the port, which may be empty.
pub(crate) fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let behind = memchr::memrchr(b']', authority).map_or(0, |at| at + 1);
    match memchr::memrchr(b':', &authority[behind..]) {
        Some(colon) => (&authority[..behind + colon], &authority[behind + colon + 1..]),
        None => (authority, b""),
    }
}

/// Writes two upper-case hexadecimal digits for each byte.
pub(crate) fn put_hex(bytes: &[u8], out: &mut Writer<'_>) -> Option<()> {
    bytes.iter().try_for_each(|byte| {
        let nibble = |n: u8| b"0123456789ABCDEF"[usize::from(n)];
        out.put(&[nibble(byte >> 4), nibble(byte & 15)])
    })
}

fn hex_to_int(text: &[u8]) -> Option<i64> {
    let n = text.iter().try_fold(0u64, |n, byte| Some(n << 4 | u64::from(digit(*byte)?)))?;
    Some(n as i64)
}

pub(crate) fn encode64(bytes: &[u8], alphabet: Alphabet, out: &mut Writer<'_>) -> Option<()> {
    let letter = |six: u32| match six as u8 & 63 {
        n @ 0..26 => b'A' + n,
        n @ 26..52 => b'a' + n - 26,
        n @ 52..62 => b'0' + n - 52,
        n => alphabet.last[usize::from(n - 62)],
    };
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let text = [letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), letter(bits)];
        out.put(&text[..=chunk.len()])?;
        if alphabet.padded {
            out.put(&b"=="[..3 - chunk.len()])?;
        }
    }
    Some(())
}

/// Decodes base64 into `out` and returns the length. `None` if the text is invalid or does not fit. Padding
/// is required if the alphabet uses it; each group of four characters may have some, as in HAProxy, so texts
/// may be joined.
pub(crate) fn decode64(text: &[u8], alphabet: Alphabet, out: &mut [u8]) -> Option<usize> {
    let rest = text.len() % 4;
    if rest == 1 || alphabet.padded && rest > 0 {
        return None;
    }
    let mut len = 0;
    for chunk in text.chunks(4) {
        let chunk = match chunk {
            [bare, b'=', b'=', b'='] if alphabet.padded => std::slice::from_ref(bare),
            [bare @ .., b'=', b'='] | [bare @ .., b'='] if alphabet.padded => bare,
            bare => bare,
        };
        let mut bits: u32 = 0;
        for byte in chunk {
            let six = match *byte {
                n @ b'A'..=b'Z' => n - b'A',
                n @ b'a'..=b'z' => n - b'a' + 26,
                n @ b'0'..=b'9' => n - b'0' + 52,
                n if n == alphabet.last[0] => 62,
                n if n == alphabet.last[1] => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * (4 - chunk.len());
        let bytes = &bits.to_be_bytes()[1..chunk.len()];
        out.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
    }
    Some(len)
}

fn url_decode(text: &[u8], form: bool, out: &mut Writer<'_>) -> Option<()> {
    let mut in_form = form;
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match *first {
            b'+' if in_form => out.push(b' ')?,
            b'%' => {
                let [high, low, tail @ ..] = tail else { return None };
                rest = tail;
                match digit(*high)? << 4 | digit(*low)? {
                    // As in HAProxy, a NUL byte is refused: it would end the text early.
                    0 => return None,
                    byte => out.push(byte)?,
                }
            }
            byte => {
                in_form |= byte == b'?';
                out.push(byte)?;
            }
        }
    }
    Some(())
}

fn json(text: &[u8], input: JsonInput, out: &mut Writer<'_>) -> Option<()> {
    let mut rest = text;
    while !rest.is_empty() {
        let (code, len) = match input {
            JsonInput::Ascii => (Some(u32::from(rest[0])), 1),
            JsonInput::Utf8 { permissive, .. } => utf8(rest, permissive),
        };
        rest = &rest[len.min(rest.len())..];
        match code {
            // A JSON escape has only four digits; 0xfffe and 0xffff are not characters.
            Some(code) if code < 0xfffe => put_json(code, out)?,
            _ if matches!(input, JsonInput::Utf8 { silent: true, .. }) => {}
            _ => return None,
        }
    }
    Some(())
}

/// Decodes the first character and returns its code and length; the code is `None` if the bytes are invalid.
/// `permissive` accepts overlong forms.
fn utf8(text: &[u8], permissive: bool) -> (Option<u32>, usize) {
    let (len, mask) = match text[0] {
        0..0x80 => return (Some(u32::from(text[0])), 1),
        0xc0..0xe0 => (2, 0x1f),
        0xe0..0xf0 => (3, 0x0f),
        0xf0..0xf8 => (4, 0x07),
        _ => return (None, 1),
    };
    let mut code = u32::from(text[0] & mask);
    for at in 1..len {
        match text.get(at) {
            Some(byte) if byte & 0xc0 == 0x80 => code = code << 6 | u32::from(byte & 0x3f),
            _ => return (None, at),
        }
    }
    let least = [0, 0, 0x80, 0x800, 0x1_0000][len];
    let valid = char::from_u32(code).is_some() && (permissive || code >= least);
    (valid.then_some(code), len)
}

fn put_json(code: u32, out: &mut Writer<'_>) -> Option<()> {
    match u8::try_from(code) {
        Ok(byte @ (b'"' | b'\\' | b'/')) => out.put(&[b'\\', byte]),
        Ok(0x08) => out.put(b"\\b"),
        Ok(0x0c) => out.put(b"\\f"),
        Ok(b'\n') => out.put(b"\\n"),
        Ok(b'\r') => out.put(b"\\r"),
        Ok(b'\t') => out.put(b"\\t"),
        Ok(byte @ 0x20..0x7f) => out.push(byte),
        _ => out.print(format_args!("\\u{code:04x}")),
    }
}
