//! `json_query`: the value at a path of a JSON text (RFC 8259).
//!
//! The parser stops after the value, so a text that is truncated after it still has a result. It builds no
//! tree; it skips other members. Of members with the same name the first one is used.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::Error;
use crate::sample::{Type, Value};
use crate::scratch::{Scratch, Writer};

#[derive(Debug)]
pub(crate) struct Query {
    path: Box<[Segment]>,
    /// True if numbers are requested as integers.
    int: bool,
}

/// A segment of a path.
#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Member(Box<[u8]>),
    Element(usize),
}

/// Maximum nesting depth, since each level is a recursive call. Deeper texts have no result.
const MAX_DEPTH: usize = 128;

/// The largest integer up to which a double represents all integers. Other readers of the text may round
/// larger ones.
const MAX_WHOLE: i64 = (1 << 53) - 1;

/// Parses `$.name[0].other`; `\.` is a dot in a name.
fn path(text: &[u8]) -> Option<Box<[Segment]>> {
    let mut rest = text.strip_prefix(b"$")?;
    let mut path = Vec::new();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'.' => {
                let mut name = Vec::new();
                loop {
                    match rest {
                        [b'\\', byte @ (b'.' | b'[' | b'\\'), tail @ ..] => {
                            name.push(*byte);
                            rest = tail;
                        }
                        [] | [b'.' | b'[', ..] => break,
                        [byte, tail @ ..] => {
                            name.push(*byte);
                            rest = tail;
                        }
                    }
                }
                if name.is_empty() {
                    return None;
                }
                path.push(Segment::Member(name.into()));
            }
            b'[' => {
                let end = rest.iter().position(|&byte| byte == b']')?;
                let digits = std::str::from_utf8(&rest[..end]).ok()?;
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                path.push(Segment::Element(digits.parse().ok()?));
                rest = &rest[end + 1..];
            }
            _ => return None,
        }
    }
    Some(path.into())
}

impl Query {
    /// Parses a path, and the word `int` behind it.
    pub(super) fn of(args: &Args<'_, '_>) -> Result<Self, Error> {
        let path = args.given(0).and_then(path);
        let path = path.ok_or_else(|| args.expected(0, "a path such as $.name or $.list[0].name"))?;
        let int = match args.given(1) {
            None => false,
            Some(b"int") => true,
            Some(_) => return Err(args.expected(1, "int")),
        };
        Ok(Self { path, int })
    }
}

pub(super) const ROWS: &[Row] = &[row(
    "json_query",
    &[Str, Str],
    1,
    Type::Str,
    Type::Any,
    "what stands at a path of the JSON text: a text, a number, a boolean, or an array as text; int has \
        numbers as whole ones",
    |args| Ok(Convert::Query(Query::of(args)?)),
)];

impl Query {
    pub(super) fn apply<'x>(&self, text: &'x [u8], scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        let mut reader = Reader { text, at: 0 };
        for segment in &self.path {
            reader.enter(segment, scratch)?;
        }
        reader.blanks();
        let start = reader.at;
        let first = *text.get(start)?;
        reader.skip(0)?;
        let token = text.get(start..reader.at)?;
        Some(match first {
            b'"' => {
                let inside = token.get(1..token.len() - 1)?;
                if memchr::memchr(b'\\', inside).is_none() {
                    return Some(Value::Str(inside));
                }
                Value::Str(scratch.build(|out| unescape(inside, &mut |part| out.put(part)))?)
            }
            b't' => Value::Bool(true),
            b'f' => Value::Bool(false),
            b'[' => Value::Str(token),
            b'-' | b'0'..=b'9' => {
                let text = std::str::from_utf8(token).ok()?;
                let number: f64 = text.parse().ok()?;
                if !self.int {
                    return Some(Value::Str(scratch.build(|out| put_double(number, out))?));
                }
                let n = text.parse().unwrap_or(number as i64);
                Value::Int(Some(n).filter(|n| (-MAX_WHOLE..=MAX_WHOLE).contains(n))?)
            }
            _ => return None,
        })
    }
}

/// A JSON text and the position of the parser.
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips blanks, then reads this byte.
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Moves to the value of a member or an element of the value at the current position.
    fn enter(&mut self, segment: &Segment, scratch: &mut Scratch<'_>) -> Option<()> {
        match segment {
            Segment::Member(name) => {
                self.byte(b'{')?;
                loop {
                    self.blanks();
                    let found = self.name(name, scratch)?;
                    self.byte(b':')?;
                    if found {
                        return Some(());
                    }
                    self.skip(0)?;
                    self.byte(b',')?;
                }
            }
            Segment::Element(index) => {
                self.byte(b'[')?;
                for _ in 0..*index {
                    self.skip(0)?;
                    self.byte(b',')?;
                }
                Some(())
            }
        }
    }

    /// Reads a member's name; true if it equals `name`.
    fn name(&mut self, name: &[u8], scratch: &mut Scratch<'_>) -> Option<bool> {
        let inside = self.string()?;
        if memchr::memchr(b'\\', inside).is_none() {
            return Some(inside == name);
        }
        let mut scratch = scratch.reborrow();
        Some(scratch.build(|out| unescape(inside, &mut |part| out.put(part)))? == name)
    }

    /// Reads a string; returns the text between its quotes.
    fn string(&mut self) -> Option<&'t [u8]> {
        (self.peek()? == b'"').then_some(())?;
        let start = self.at + 1;
        let mut at = start;
        loop {
            match *self.text.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                0..0x20 => return None,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        let inside = &self.text[start..at];
        unescape(inside, &mut |_| Some(()))?;
        Some(inside)
    }

    /// Skips a value at nesting depth `depth`.
    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.blanks();
        match self.peek()? {
            b'"' => self.string().map(drop),
            open @ (b'{' | b'[') => {
                let close = if open == b'{' { b'}' } else { b']' };
                self.at += 1;
                if self.byte(close).is_some() {
                    return Some(());
                }
                loop {
                    if open == b'{' {
                        self.blanks();
                        self.string()?;
                        self.byte(b':')?;
                    }
                    self.skip(depth + 1)?;
                    if self.byte(close).is_some() {
                        return Some(());
                    }
                    self.byte(b',')?;
                }
            }
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                let rest = &self.text[self.at..];
                let word =
                    [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word))?;
                self.at += word.len();
                Some(())
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        let sign = usize::from(self.peek() == Some(b'-'));
        self.at += sign;
        let leading_zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if leading_zero && digits > 1 {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    /// Reads at least one digit; returns their number.
    fn digits(&mut self) -> Option<usize> {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }
}

/// Passes the unescaped text to `put` in pieces. `None` for an invalid escape.
fn unescape(inside: &[u8], put: &mut dyn FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let mut rest = inside;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        put(&rest[..at])?;
        let [_, kind, tail @ ..] = &rest[at..] else { return None };
        rest = tail;
        let plain = match kind {
            b'"' | b'\\' | b'/' => *kind,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (high, tail) = unit(rest)?;
                rest = tail;
                let code = match high {
                    0xd800..0xdc00 => {
                        let (low, tail) = unit(rest.strip_prefix(b"\\u")?)?;
                        rest = tail;
                        0x1_0000 + ((high - 0xd800) << 10) + low.checked_sub(0xdc00).filter(|&n| n < 0x400)?
                    }
                    code => code,
                };
                put(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes())?;
                continue;
            }
            _ => return None,
        };
        put(&[plain])?;
    }
    put(rest)
}

/// Parses four hexadecimal digits; returns the number and the rest.
fn unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(4)?;
    let n = digits.iter().try_fold(0, |n, &byte| Some(n << 4 | u32::from(crate::fetch::digit(byte)?)))?;
    Some((n, rest))
}

/// Writes a number like C's `%g`: six significant digits, without trailing zeroes.
fn put_double(number: f64, out: &mut Writer<'_>) -> Option<()> {
    if !number.is_finite() {
        return out.put(if number > 0.0 { b"inf" } else { b"-inf" });
    }
    let mut buffer = [0; 32];
    let mut text = Writer::new(&mut buffer);
    text.print(format_args!("{number:.5e}"))?;
    let text = text.into_written()?;
    let e = memchr::memchr(b'e', text)?;
    let (mantissa, exponent) = (&text[..e], &text[e + 1..]);
    let exponent: i32 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    if !(-4..6).contains(&exponent) {
        out.put(without_zeroes(mantissa))?;
        let sign = if exponent < 0 { '-' } else { '+' };
        return out.print(format_args!("e{sign}{:02}", exponent.abs()));
    }
    let mut buffer = [0; 32];
    let mut text = Writer::new(&mut buffer);
    text.print(format_args!("{number:.*}", (5 - exponent) as usize))?;
    out.put(without_zeroes(text.into_written()?))
}

fn without_zeroes(text: &[u8]) -> &[u8] {
    if memchr::memchr(b'.', text).is_none() {
        return text;
    }
    let end = text.iter().rposition(|&byte| byte != b'0').map_or(0, |at| at + 1);
    text[..end].strip_suffix(b".").unwrap_or(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_c() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-12.5, "-12.5"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.5, "1e+06"),
            (0.0001, "0.0001"),
            (0.000_012_34, "1.234e-05"),
            (1e100, "1e+100"),
            (9.876_543_21, "9.87654"),
            (f64::INFINITY, "inf"),
        ] {
            let mut buffer = [0; 64];
            let mut out = Writer::new(&mut buffer);
            put_double(number, &mut out).expect("room");
            assert_eq!(String::from_utf8_lossy(out.written()), expected);
        }
    }

    #[test]
    fn paths_are_members_and_elements() {
        let member = |name: &str| Segment::Member(name.as_bytes().into());
        assert_eq!(path(b"$").as_deref(), Some(&[][..]));
        assert_eq!(path(b"$.a").as_deref(), Some(&[member("a")][..]));
        assert_eq!(
            path(br"$.a\.b[12].c").as_deref(),
            Some(&[member("a.b"), Segment::Element(12), member("c")][..])
        );
        for wrong in ["", "a", "$a", "$.", "$..a", "$[", "$[a]", "$[]", "$[-1]"] {
            assert_eq!(path(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
