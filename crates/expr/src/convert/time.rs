//! Formatting of dates.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::clock::Civil;
use crate::env::Env;
use crate::error::Error;
use crate::fetch::Unit;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;

#[derive(Debug)]
pub(crate) enum Time {
    Format { format: Box<[u8]>, offset: i64, unit: Unit, local: bool },
    Http { offset: i64, unit: Unit },
}

fn format(args: &Args<'_, '_>, unit: Unit, local: bool) -> Result<Convert, Error> {
    Ok(Convert::Time(Time::Format { format: args.boxed(0), offset: args.int(1)?.unwrap_or(0), unit, local }))
}

macro_rules! rows {
    ($($name:literal, $help:literal, $make:expr;)*) => {
        &[
            row("http_date", &[Int, Str], 0, Type::Int, Type::Str, "the date as HTTP fields have it", |args| {
                let (offset, unit) = (args.int(0)?.unwrap_or(0), Unit::of(args, 1)?);
                Ok(Convert::Time(Time::Http { offset, unit }))
            }),
            $(row($name, &[Str, Int], 1, Type::Int, Type::Str, $help, $make)),*
        ]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "ltime", "the date in seconds as a text of a strftime format in local \
        time", |a| format(a, Unit::Seconds, true);
    "ms_ltime", "the date in milliseconds as a text of a strftime format in local time; %N is the fraction",
        |a| format(a, Unit::Millis, true);
    "ms_utime", "the date in milliseconds as a text of a strftime format in UTC; %N is the fraction",
        |a| format(a, Unit::Millis, false);
    "us_ltime", "the date in microseconds as a text of a strftime format in local time; %N is the fraction",
        |a| format(a, Unit::Micros, true);
    "us_utime", "the date in microseconds as a text of a strftime format in UTC; %N is the fraction",
        |a| format(a, Unit::Micros, false);
    "utime", "the date in seconds as a text of a strftime format in UTC", |a| format(a, Unit::Seconds, false);
};

impl Time {
    pub(super) fn apply<'x>(
        &self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let Value::Int(n) = value else { return None };
        let (offset, unit) = match self {
            Self::Format { offset, unit, .. } | Self::Http { offset, unit } => (*offset, *unit),
        };
        let moment = n.saturating_add(offset);
        let scale = unit.per_second();
        let (seconds, fraction) = (moment.div_euclid(scale), moment.rem_euclid(scale));
        let text = match self {
            Self::Http { .. } => {
                let date = Civil::new(seconds, 0);
                scratch.build(|out| {
                    date.format(b"%a, %d %b %Y %H:%M:%S", out)?;
                    match unit {
                        Unit::Seconds => {}
                        Unit::Millis => out.print(format_args!(".{fraction:03}"))?,
                        Unit::Micros => out.print(format_args!(".{fraction:06}"))?,
                    }
                    out.put(b" GMT")
                })
            }
            Self::Format { format, local, .. } => {
                let date = Civil::new(seconds, if *local { env.zone.offset(seconds) } else { 0 });
                scratch.build(|out| {
                    let mut rest = &format[..];
                    // `%N`, which `Civil` does not know, has as many digits as the unit.
                    while unit != Unit::Seconds
                        && let Some(at) = find_fraction(rest)
                    {
                        date.format(&rest[..at], out)?;
                        match unit {
                            Unit::Millis => out.print(format_args!("{fraction:03}"))?,
                            _ => out.print(format_args!("{fraction:06}"))?,
                        }
                        rest = &rest[at + 2..];
                    }
                    date.format(rest, out)
                })
            }
        };
        text.map(Value::Str)
    }
}

/// Offset of the first `%N` that is not part of `%%N`.
fn find_fraction(format: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(percent) = format.get(at..).and_then(|rest| memchr::memchr(b'%', rest)) {
        let percent = at + percent;
        if format.get(percent + 1) == Some(&b'N') {
            return Some(percent);
        }
        at = percent + 2;
    }
    None
}
