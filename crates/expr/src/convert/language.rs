//! `language`: which of some languages a client prefers (RFC 9110, section 12.5.4).

use super::{Convert, Row, row};
use crate::args::ArgKind::*;
use crate::fetch::Fixed;
use crate::sample::{Type, Value};

#[derive(Debug)]
pub(crate) struct Language {
    /// The languages to choose from.
    known: Box<[Box<[u8]>]>,
    default: Option<Fixed>,
}

pub(super) const ROWS: &[Row] = &[row(
    "language",
    &[Str, Str],
    1,
    Type::Str,
    Type::Str,
    "which of these languages, separated by semicolons, an Accept-Language field prefers, else the default",
    |args| {
        let known = args.boxed(0);
        let known =
            known.split(|byte| *byte == b';').filter(|name| !name.is_empty()).map(Into::into).collect();
        let default = args.given(1).map(|text| Fixed::Str(text.into()));
        Ok(Convert::Language(Language { known, default }))
    },
)];

/// Weight of a member without one, in thousandths.
const FULL: u32 = 1000;

/// Weight of a member from its parameters; one that is malformed has no effect.
fn weight(parameters: &[u8]) -> u32 {
    let Some(text) = parameters.trim_ascii().strip_prefix(b"q=") else { return FULL };
    let (whole, fraction) = match text {
        [whole @ b'0'..=b'1'] => (whole, &b""[..]),
        [whole @ b'0'..=b'1', b'.', fraction @ ..] => (whole, fraction),
        _ => return FULL,
    };
    let mut weight = u32::from(whole - b'0');
    for at in 0..3 {
        let digit = fraction.get(at).filter(|digit| digit.is_ascii_digit()).map_or(0, |digit| digit - b'0');
        weight = weight * 10 + u32::from(digit);
    }
    weight.min(FULL)
}

impl Language {
    pub(super) fn apply(&self, text: &[u8]) -> Option<Value<'_>> {
        let mut best: Option<(u32, &[u8])> = None;
        for member in text.split(|byte| *byte == b',') {
            let semicolon = memchr::memchr(b';', member);
            let (name, parameters) = match semicolon {
                Some(at) => (&member[..at], &member[at + 1..]),
                None => (member, &b""[..]),
            };
            let weight = weight(parameters);
            if weight <= best.map_or(0, |(most, _)| most) {
                continue;
            }
            let name = name.trim_ascii();
            // The first known language that equals the name, with or without subtags such as the region.
            let is_prefix = |known: &[u8]| matches!(name.strip_prefix(known), Some([] | [b'-', ..]));
            if let Some(known) = self.known.iter().find(|known| is_prefix(known)) {
                best = Some((weight, known));
            }
        }
        match best {
            Some((_, known)) => Some(Value::Str(known)),
            None => self.default.as_ref().map(Fixed::value),
        }
    }
}
