//! Text: case, parts, joining, comparison, replacement.

use super::number::Operand;
use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast;
use crate::env::Env;
use crate::error::Error;
use crate::pattern::{Regex as Machine, regex_fault};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;

#[derive(Debug)]
pub(crate) enum Text {
    Lower,
    Upper,
    Length,
    Bytes { offset: Operand, len: Option<Operand> },
    Part { words: bool, index: i64, delimiters: Box<[u8]>, count: usize },
    Concat { start: Box<[u8]>, variable: Option<VariableId>, end: Box<[u8]>, item: bool },
    RegSub { regex: Machine, template: Box<[u8]>, all: bool },
    TrimStart(Box<[u8]>),
    TrimEnd(Box<[u8]>),
    CutLine,
    Compare { variable: VariableId, equal: bool },
    Param { name: Box<[u8]>, delimiter: u8 },
}

fn made(text: Text) -> Result<Convert, Error> {
    Ok(Convert::Text(text))
}

fn part(args: &Args<'_, '_>, words: bool) -> Result<Convert, Error> {
    let index = args.int(0)?.unwrap_or(0);
    if index == 0 {
        return Err(args.expected(0, "a number from 1 on, or from -1 backwards,"));
    }
    if args.given(1).is_none() {
        return Err(args.expected(1, "one or more delimiters"));
    }
    let count = args.int_in(2, 0..=i64::from(u32::MAX), 1)? as usize;
    made(Text::Part { words, index, delimiters: args.boxed(1), count })
}

fn join(args: &mut Args<'_, '_>, item: bool) -> Result<Convert, Error> {
    let variable = if args.given(1).is_some() { Some(args.variable(1)?) } else { None };
    if item && variable.is_none() && args.given(2).is_none() {
        return Err(args.expected(1, "a variable, or a text behind it,"));
    }
    made(Text::Concat { start: args.boxed(0), variable, end: args.boxed(2), item })
}

macro_rules! rows {
    ($($name:literal, $args:expr, $required:literal, $takes:ident, $gives:ident, $help:literal,
        $make:expr;)*) => {
        &[$(row($name, $args, $required, Type::$takes, Type::$gives, $help, $make)),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "add_item", &[Str, Variable, Str], 2, Str, Str,
        "the text, and a delimiter, a variable and a text behind it where they are not \
            empty", |a| join(a, true);
    "bytes", &[IntOrVariable, IntOrVariable], 1, Bin, Bin, "the bytes from an offset on, of a length or \
        all", |a| {
        let offset = Operand::of(a, 0)?;
        let len = if a.given(1).is_some() { Some(Operand::of(a, 1)?) } else { None };
        if matches!(offset, Operand::Int(..0)) {
            return Err(a.expected(0, "an offset from 0 on"));
        }
        if matches!(len, Some(Operand::Int(..1))) {
            return Err(a.expected(1, "a length from 1 on"));
        }
        made(Text::Bytes { offset, len })
    };
    "concat", &[Str, Variable, Str], 0, Str, Str, "the text, and a text, a variable and a text behind it",
        |a| join(a, false);
    "cut_crlf", &[], 0, Str, Str, "the text up to the first end of a line", |_| made(Text::CutLine);
    "field", &[Int, Str, Int], 2, Str, Str, "a field between delimiters by its number, or several (0: all \
        further ones)",
        |a| part(a, false);
    "length", &[], 0, Str, Int, "the number of bytes", |_| made(Text::Length);
    "lower", &[], 0, Str, Str, "the text in lower case (ASCII)", |_| made(Text::Lower);
    "ltrim", &[Str], 1, Str, Str, "the text without these characters at its beginning",
        |a| made(Text::TrimStart(a.boxed(0)));
    "param", &[Str, Str], 1, Str, Str, "a parameter of a text of name=value pairs", |a| {
        let delimiter = match a.given(1) {
            None => b'&',
            Some([byte]) => *byte,
            Some([b'0', b'x', code @ ..]) => match crate::fetch::unhex(code).as_deref() {
                Some([byte]) => *byte,
                _ => return Err(a.expected(1, "one character, or its code such as 0x3b")),
            },
            Some(_) => return Err(a.expected(1, "one character, or its code such as 0x3b")),
        };
        made(Text::Param { name: a.boxed(0), delimiter })
    };
    "regsub", &[Regex, Str, Str], 2, Str, Str, "the text with what the regex matches replaced; flags g and \
        i", |a| {
        let flags = a.boxed(2);
        if let Some(at) = flags.iter().position(|flag| !b"gi".contains(flag)) {
            let mut error = a.expected(2, "the flags g and i");
            error.at += at;
            return Err(error);
        }
        if a.given(0).is_none() {
            return Err(a.expected(0, "a regular expression"));
        }
        let text = a.boxed(0);
        let regex = Machine::new(&text, flags.contains(&b'i'))
            .map_err(|why| a.error_in(0, regex_fault(&text), why))?;
        made(Text::RegSub { regex, template: a.boxed(1), all: flags.contains(&b'g') })
    };
    "rtrim", &[Str], 1, Str, Str, "the text without these characters at its end",
        |a| made(Text::TrimEnd(a.boxed(0)));
    "secure_memcmp", &[Variable], 1, Bin, Bool, "whether a variable has the same bytes, in the same time \
        either way", |a| {
        made(Text::Compare { variable: a.variable(0)?, equal: true })
    };
    "strcmp", &[Variable], 1, Str, Int, "below 0, 0 or above 0 as the text sorts before, with or behind a \
        variable's",
        |a| made(Text::Compare { variable: a.variable(0)?, equal: false });
    "upper", &[], 0, Str, Str, "the text in upper case (ASCII)", |_| made(Text::Upper);
    "word", &[Int, Str, Int], 2, Str, Str, "a word between runs of delimiters by its number, or several (0: \
        all further ones)",
        |a| part(a, true);
};

impl Text {
    pub(super) fn apply<'x>(
        &'x self,
        text: &'x [u8],
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        Some(match self {
            Self::Lower => Value::Str(mapped(text, scratch, |byte| byte.to_ascii_lowercase())?),
            Self::Upper => Value::Str(mapped(text, scratch, |byte| byte.to_ascii_uppercase())?),
            Self::Length => Value::Int(text.len() as i64),
            Self::Bytes { offset, len } => {
                let offset = usize::try_from(offset.value(env, scratch)?).ok()?;
                let rest = text.get(offset..).unwrap_or_default();
                let len = match len {
                    Some(len) => usize::try_from(len.value(env, scratch)?).ok()?,
                    None => rest.len(),
                };
                Value::Bin(&rest[..rest.len().min(len)])
            }
            Self::Part { words, index, delimiters, count } => {
                let is_delimiter = |byte: &u8| delimiters.contains(byte);
                Value::Str(if *words {
                    Some(word(text, *index, *count, is_delimiter)).filter(|word| !word.is_empty())?
                } else {
                    field(text, *index, *count, is_delimiter)?
                })
            }
            Self::Concat { start, variable, end, item } => {
                let value = match variable {
                    Some(id) => match env.variables.get(*id, env.reader, scratch) {
                        Some(value) => Some(cast::text(value, scratch)?),
                        None => None,
                    },
                    None => None,
                };
                let value = value.unwrap_or_default();
                // Write the delimiter only between two non-empty parts.
                let start = if *item && (text.is_empty() || value.is_empty() && end.is_empty()) {
                    b""
                } else {
                    &start[..]
                };
                Value::Str(
                    scratch
                        .build(|out| [text, start, value, end].iter().try_for_each(|part| out.put(part)))?,
                )
            }
            Self::RegSub { regex, template, all } => {
                Value::Str(regex.replace(text, template, *all, scratch)?)
            }
            Self::TrimStart(set) => {
                let start = text.iter().position(|byte| !set.contains(byte)).unwrap_or(text.len());
                Value::Str(&text[start..])
            }
            Self::TrimEnd(set) => {
                let end = text.iter().rposition(|byte| !set.contains(byte)).map_or(0, |at| at + 1);
                Value::Str(&text[..end])
            }
            Self::CutLine => Value::Str(&text[..memchr::memchr2(b'\r', b'\n', text).unwrap_or(text.len())]),
            Self::Compare { variable, equal } => {
                let value = env.variables.get(*variable, env.reader, scratch)?;
                if *equal {
                    let other = cast::cast(value, Type::Bin, scratch)?.bytes()?;
                    let differ = text.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
                    return Some(Value::Bool(text.len() == other.len() && differ == 0));
                }
                let other = cast::text(value, scratch)?;
                // Like memcmp: the difference of the first different bytes, or the sign of the difference in
                // length.
                let difference = text.iter().zip(other).find(|(a, b)| a != b).map_or_else(
                    || (text.len() as i64 - other.len() as i64).signum(),
                    |(a, b)| i64::from(*a) - i64::from(*b),
                );
                Value::Int(difference)
            }
            Self::Param { .. } if text.is_empty() => return None,
            Self::Param { name, delimiter } => {
                // There is no pair behind the last delimiter.
                let text = text.strip_suffix(&[*delimiter]).unwrap_or(text);
                let mut pairs = text.split(|byte| byte == delimiter);
                Value::Str(pairs.find_map(|pair| match memchr::memchr(b'=', pair) {
                    Some(equals) if pair[..equals] == **name => Some(&pair[equals + 1..]),
                    None if pair == &**name => Some(&pair[pair.len()..]),
                    _ => None,
                })?)
            }
        })
    }
}

fn mapped<'x>(text: &[u8], scratch: &mut Scratch<'x>, map: impl Fn(u8) -> u8) -> Option<&'x [u8]> {
    scratch.fill(|out| {
        let out = out.get_mut(..text.len())?;
        out.iter_mut().zip(text).for_each(|(to, from)| *to = map(*from));
        Some(text.len())
    })
}

/// Field `index` and the `count - 1` fields after it, or all if `count` is 0. A negative index counts from
/// the end. `None` if there is no such field.
fn field(text: &[u8], index: i64, count: usize, is_delimiter: impl Fn(&u8) -> bool) -> Option<&[u8]> {
    let mut skip = index.unsigned_abs() - 1;
    let mut left = count;
    if index > 0 {
        let mut start = 0;
        while skip > 0 {
            match text[start..].iter().position(&is_delimiter) {
                Some(at) => start += at + 1,
                None => return None,
            }
            skip -= 1;
        }
        let mut end = start;
        loop {
            match text[end..].iter().position(&is_delimiter) {
                Some(at) if left == 1 => return Some(&text[start..end + at]),
                Some(at) => end += at + 1,
                None => return Some(&text[start..]),
            }
            left = left.saturating_sub(1);
        }
    }
    let mut end = text.len();
    while skip > 0 {
        match text[..end].iter().rposition(&is_delimiter) {
            Some(at) => end = at,
            None => return None,
        }
        skip -= 1;
    }
    let mut start = end;
    loop {
        match text[..start].iter().rposition(&is_delimiter) {
            Some(at) if left == 1 => return Some(&text[at + 1..end]),
            Some(at) => start = at,
            None => return Some(&text[..end]),
        }
        left = left.saturating_sub(1);
    }
}

/// Like [`field`] for words, which are never empty. Returns an empty text if there is no such word. If there
/// are fewer than `count` words, the result extends to the end of the text.
fn word(text: &[u8], index: i64, count: usize, is_delimiter: impl Fn(&u8) -> bool) -> &[u8] {
    let mut skip = index.unsigned_abs() - 1;
    let mut left = count;
    if index > 0 {
        let mut at = 0;
        loop {
            // Move to the start of a word or to the end of the text.
            at += text[at..].iter().position(|byte| !is_delimiter(byte)).unwrap_or(text.len() - at);
            if skip == 0 || at == text.len() {
                break;
            }
            at += text[at..].iter().position(&is_delimiter).unwrap_or(text.len() - at);
            skip -= 1;
        }
        let start = at;
        loop {
            at += text[at..].iter().position(&is_delimiter).unwrap_or(text.len() - at);
            if left == 1 || at == text.len() {
                return &text[start..at];
            }
            left = left.saturating_sub(1);
            at += text[at..].iter().position(|byte| !is_delimiter(byte)).unwrap_or(text.len() - at);
        }
    }
    let mut at = text.len();
    loop {
        at = text[..at].iter().rposition(|byte| !is_delimiter(byte)).map_or(0, |last| last + 1);
        if skip == 0 || at == 0 {
            break;
        }
        at = text[..at].iter().rposition(&is_delimiter).map_or(0, |last| last + 1);
        skip -= 1;
    }
    let end = at;
    loop {
        at = text[..at].iter().rposition(&is_delimiter).map_or(0, |last| last + 1);
        if left == 1 || at == 0 {
            return &text[at..end];
        }
        left = left.saturating_sub(1);
        at = text[..at].iter().rposition(|byte| !is_delimiter(byte)).map_or(0, |last| last + 1);
    }
}
