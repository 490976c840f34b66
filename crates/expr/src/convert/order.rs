//! Control characters, and reversal of texts.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::Error;
use crate::fetch::digit;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;

#[derive(Debug)]
pub(crate) enum Order {
    /// One bit per control character by code; bit 32 is for 0x7f.
    HasControl(u64),
    Reverse,
    ReverseDomain,
}

/// All control characters: 0x00 to 0x1f, and 0x7f.
const ANY: u64 = (1 << 33) - 1;
/// NUL, line feed and carriage return.
const HTTP: u64 = 1 | 1 << b'\n' | 1 << b'\r';

fn mask(args: &Args<'_, '_>) -> Result<u64, Error> {
    let number = |text: &[u8]| {
        let (digits, base) = match text {
            [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() => (digits, 16),
            digits => (digits, 10),
        };
        digits.iter().try_fold(0u64, |n, &byte| {
            let value = digit(byte).map(u64::from).filter(|&value| value < base)?;
            n.checked_mul(base)?.checked_add(value)
        })
    };
    match args.given(0) {
        None => Ok(ANY & !(1 << b'\t')),
        Some(b"any") => Ok(ANY),
        Some(b"http") => Ok(HTTP),
        Some(text) => number(text)
            .filter(|mask| mask & !ANY == 0)
            .ok_or_else(|| args.expected(0, "any, http, or a mask of the bits 0 to 32")),
    }
}

pub(super) const ROWS: &[Row] = &[
    row(
        "has_ctl",
        &[Str],
        0,
        Type::Bin,
        Type::Bool,
        "whether there is a control character, or one of a mask: bit 0 to 31 by its code, bit 32 for 0x7f; \
            any; http for NUL, LF and CR; all but the tab without one",
        |a| Ok(Convert::Order(Order::HasControl(mask(a)?))),
    ),
    row("reverse", &[], 0, Type::Str, Type::Str, "the text from its end to its beginning", |_| {
        Ok(Convert::Order(Order::Reverse))
    }),
    row(
        "reverse_dom",
        &[],
        0,
        Type::Str,
        Type::Str,
        "a domain's labels from the last to the first, without a final dot",
        |_| Ok(Convert::Order(Order::ReverseDomain)),
    ),
];

impl Order {
    pub(super) fn apply<'x>(&self, text: &[u8], scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        Some(match self {
            Self::HasControl(mask) => Value::Bool(text.iter().any(|&byte| match byte {
                0..0x20 => mask >> byte & 1 == 1,
                0x7f => mask >> 32 == 1,
                _ => false,
            })),
            Self::Reverse => Value::Str(scratch.fill(|out| {
                let out = out.get_mut(..text.len())?;
                out.iter_mut().zip(text.iter().rev()).for_each(|(to, from)| *to = *from);
                Some(text.len())
            })?),
            Self::ReverseDomain => {
                let domain = text.strip_suffix(b".").unwrap_or(text);
                Value::Str(scratch.build(|out| {
                    for (n, label) in domain.rsplit(|&byte| byte == b'.').enumerate() {
                        if label.is_empty() {
                            return None;
                        }
                        if n > 0 {
                            out.push(b'.')?;
                        }
                        out.put(label)?;
                    }
                    Some(())
                })?)
            }
        })
    }
}
