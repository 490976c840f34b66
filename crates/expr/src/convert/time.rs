//! Formatting and reading of dates.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::parse_int;
use crate::clock::Civil;
use crate::env::Env;
use crate::error::Error;
use crate::fetch::Unit;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use std::ops::Range;

#[derive(Debug)]
pub(crate) enum Time {
    Format {
        format: Box<[u8]>,
        offset: i64,
        unit: Unit,
        local: bool,
    },
    Http {
        offset: i64,
        unit: Unit,
    },
    /// Reads a date of HTTP.
    Read,
}

fn format(args: &Args<'_, '_>, unit: Unit, local: bool) -> Result<Convert, Error> {
    Ok(Convert::Time(Time::Format { format: args.boxed(0), offset: args.int(1)?.unwrap_or(0), unit, local }))
}

macro_rules! rows {
    ($($name:literal, $help:literal, $make:expr;)*) => {
        &[
            row("date", &[], 0, Type::Str, Type::Int, "the seconds since 1970 of a date in an HTTP field",
                |_| Ok(Convert::Time(Time::Read))),
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
    "ms_ltime", "the date in milliseconds as a text of a strftime format in local time; %3N the fraction",
        |a| format(a, Unit::Millis, true);
    "ms_utime", "the date in milliseconds as a text of a strftime format in UTC; %3N the fraction",
        |a| format(a, Unit::Millis, false);
    "us_ltime", "the date in microseconds as a text of a strftime format in local time; %3N the fraction",
        |a| format(a, Unit::Micros, true);
    "us_utime", "the date in microseconds as a text of a strftime format in UTC; %3N the fraction",
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
        let (offset, unit) = match self {
            Self::Read => return http_date(value.bytes()?).map(Value::Int),
            Self::Format { offset, unit, .. } | Self::Http { offset, unit } => (*offset, *unit),
        };
        let Value::Int(n) = value else { return None };
        let moment = n.saturating_add(offset);
        let scale = unit.per_second();
        let (seconds, fraction) = (moment.div_euclid(scale), moment.rem_euclid(scale));
        let text = match self {
            Self::Read => return None,
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
                    // `%N`, which `Civil` does not know, has nine digits; `%3N` has three.
                    while unit != Unit::Seconds
                        && let Some((directive, digits)) = find_fraction(rest)
                    {
                        date.format(&rest[..directive.start], out)?;
                        if digits > 0 {
                            let nanos = fraction * (NANOS_PER_SECOND / scale);
                            let first = nanos / 10_i64.pow(9 - digits);
                            out.print(format_args!("{first:0width$}", width = digits as usize))?;
                        }
                        rest = &rest[directive.end..];
                    }
                    date.format(rest, out)
                })
            }
        };
        text.map(Value::Str)
    }
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The first `%N`, or `%` and a number and `N`, that is not part of `%%N`, and its number of digits.
fn find_fraction(format: &[u8]) -> Option<(Range<usize>, u32)> {
    let mut at = 0;
    while let Some(percent) = format.get(at..).and_then(|rest| memchr::memchr(b'%', rest)) {
        let start = at + percent;
        let behind = &format[start + 1..];
        let len = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if behind.get(len) == Some(&b'N') {
            let digits = if len == 0 { 9 } else { parse_int(&behind[..len]).min(9) };
            return Some((start..start + len + 2, digits as u32));
        }
        at = start + 2;
    }
    None
}

const DAYS: [(&[u8], &[u8]); 7] = [
    (b"Sun", b"Sunday"),
    (b"Mon", b"Monday"),
    (b"Tue", b"Tuesday"),
    (b"Wed", b"Wednesday"),
    (b"Thu", b"Thursday"),
    (b"Fri", b"Friday"),
    (b"Sat", b"Saturday"),
];

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Seconds since 1970 of a date in one of the three forms of RFC 9110, section 5.6.7. As in HAProxy, the day
/// of the week need not match the date, days and hours past the end of their month or day carry over, and
/// text after the date is ignored. Two-digit years are those from 1970 to 2069.
pub fn http_date(text: &[u8]) -> Option<i64> {
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |n, digit| digit.is_ascii_digit().then(|| n * 10 + i64::from(digit - b'0')))
    };
    let month = |name: &[u8]| MONTHS.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, n)| n);
    let clock = |text: &[u8]| match text {
        [h1, h2, b':', m1, m2, b':', s1, s2] => {
            Some(number(&[*h1, *h2])? * 3600 + number(&[*m1, *m2])? * 60 + number(&[*s1, *s2])?)
        }
        _ => None,
    };
    let (short, long) = DAYS.iter().find(|(short, _)| text.starts_with(short))?;
    let behind = |prefix: &[u8]| text.strip_prefix(prefix)?.strip_prefix(b", ");
    let (year, month, day, time) = if let Some(rest) = behind(short) {
        let [d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', rest @ ..] = rest else { return None };
        rest.get(8..)?.starts_with(b" GMT").then_some(())?;
        (number(&[*y1, *y2, *y3, *y4])?, month(&[*m1, *m2, *m3])?, number(&[*d1, *d2])?, clock(&rest[..8])?)
    } else if let Some(rest) = behind(long) {
        let [d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', rest @ ..] = rest else { return None };
        rest.get(8..)?.starts_with(b" GMT").then_some(())?;
        let year = number(&[*y1, *y2])?;
        let century = if year < 70 { 2000 } else { 1900 };
        (century + year, month(&[*m1, *m2, *m3])?, number(&[*d1, *d2])?, clock(&rest[..8])?)
    } else {
        let [b' ', m1, m2, m3, b' ', d1, d2, b' ', rest @ ..] = text.strip_prefix(*short)? else {
            return None;
        };
        let day = number(&[if *d1 == b' ' { b'0' } else { *d1 }, *d2])?;
        let [b' ', y1, y2, y3, y4, ..] = rest.get(8..)? else { return None };
        (number(&[*y1, *y2, *y3, *y4])?, month(&[*m1, *m2, *m3])?, day, clock(&rest[..8])?)
    };
    // Days since 1970-01-01, with years that begin in March (H. Hinnant's days_from_civil).
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + time)
}
