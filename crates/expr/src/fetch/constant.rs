//! Samples without traffic: constants, the clock, random numbers, variables, the process.

use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::{Env, Timestamp};
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::sample::{Absent, FetchResult, Type, Value, found};
use crate::scratch::Scratch;
use crate::variable::VariableId;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An owned value of a program.
#[derive(Debug)]
pub(crate) enum Fixed {
    Bool(bool),
    Int(i64),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    Str(Box<[u8]>),
    Bin(Box<[u8]>),
    Method(Box<[u8]>),
}

impl Fixed {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::Int(*n),
            Self::Ipv4(addr) => Value::Ipv4(*addr),
            Self::Ipv6(addr) => Value::Ipv6(*addr),
            Self::Str(bytes) => Value::Str(bytes),
            Self::Bin(bytes) => Value::Bin(bytes),
            Self::Method(bytes) => Value::Method(bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Constant {
    Value(Fixed),
    /// An environment variable that is not set.
    Nothing,
    Date {
        offset: i64,
        unit: Unit,
    },
    DateMicros,
    Rand(Option<u64>),
    Uuid(UuidVersion),
    Variable {
        id: VariableId,
        default: Option<Fixed>,
    },
    Hostname,
}

/// Version of a UUID (RFC 9562).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UuidVersion {
    /// Random bits.
    V4,
    /// The time in milliseconds, then random bits.
    V7,
}

/// Unit of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Millis,
    Micros,
}

impl Unit {
    /// Parses `s`, `ms` or `us`. As in HAProxy, an empty argument is none of them.
    pub(crate) fn of(args: &Args<'_, '_>, index: usize) -> Result<Self, Error> {
        match args.bytes(index) {
            None | Some(b"s") => Ok(Self::Seconds),
            Some(b"ms") => Ok(Self::Millis),
            Some(b"us") => Ok(Self::Micros),
            Some(_) => Err(args.expected(index, "s, ms or us")),
        }
    }

    /// Time since 1970 in this unit.
    pub(crate) fn of_date(self, date: Timestamp) -> i64 {
        let per_second = self.per_second();
        date.seconds * per_second + i64::from(date.micros) * per_second / 1_000_000
    }

    /// Number of units in a second.
    pub(crate) fn per_second(self) -> i64 {
        match self {
            Self::Seconds => 1,
            Self::Millis => 1000,
            Self::Micros => 1_000_000,
        }
    }
}

fn fixed(value: Fixed) -> Result<Fetch, Error> {
    Ok(Fetch::Constant(Constant::Value(value)))
}

fn made(constant: Constant) -> Result<Fetch, Error> {
    Ok(Fetch::Constant(constant))
}

pub(super) const ROWS: &[Row] = &[
    row("always_false", &[], 0, Type::Bool, EvalPoints::EVERYWHERE, "false", |_| fixed(Fixed::Bool(false))),
    row("quic_enabled", &[], 0, Type::Bool, EvalPoints::EVERYWHERE, "false: QUIC is not built", |_| {
        fixed(Fixed::Bool(false))
    }),
    row("always_true", &[], 0, Type::Bool, EvalPoints::EVERYWHERE, "true", |_| fixed(Fixed::Bool(true))),
    row(
        "bin",
        &[Str],
        1,
        Type::Bin,
        EvalPoints::EVERYWHERE,
        "the bytes that the hexadecimal digits give",
        |args| {
            let text = args.boxed(0);
            match unhex(&text) {
                Some(bytes) => fixed(Fixed::Bin(bytes.into())),
                None => Err(args.expected(0, "an even number of hexadecimal digits")),
            }
        },
    ),
    row("bool", &[Str], 1, Type::Bool, EvalPoints::EVERYWHERE, "the truth value", |args| {
        match &args.boxed(0).to_ascii_lowercase()[..] {
            b"true" | b"1" => fixed(Fixed::Bool(true)),
            b"false" | b"0" => fixed(Fixed::Bool(false)),
            _ => Err(args.expected(0, "true, false, 0 or 1")),
        }
    }),
    row(
        "date",
        &[Int, Str],
        0,
        Type::Int,
        EvalPoints::EVERYWHERE,
        "the time since 1970 in s, ms or us, moved by an offset of the same unit",
        |args| made(Constant::Date { offset: args.int(0)?.unwrap_or(0), unit: Unit::of(args, 1)? }),
    ),
    row(
        "date_us",
        &[],
        0,
        Type::Int,
        EvalPoints::EVERYWHERE,
        "the microseconds of the current second, 0 to 999999",
        |_| made(Constant::DateMicros),
    ),
    row(
        "env",
        &[Str],
        1,
        Type::Str,
        EvalPoints::EVERYWHERE,
        "a variable of the environment, read when the file is read",
        |args| match args.compiler.names.environment(&args.boxed(0)) {
            Some(value) => fixed(Fixed::Str(value.into())),
            None => made(Constant::Nothing),
        },
    ),
    row("hostname", &[], 0, Type::Str, EvalPoints::EVERYWHERE, "this machine's name", |_| {
        made(Constant::Hostname)
    }),
    row("int", &[Int], 1, Type::Int, EvalPoints::EVERYWHERE, "the number", |args| {
        let number = args.int(0)?;
        number.map_or_else(|| Err(args.expected(0, "a whole number")), |n| fixed(Fixed::Int(n)))
    }),
    row("ipv4", &[Ipv4], 1, Type::Ipv4, EvalPoints::EVERYWHERE, "the address", |args| {
        fixed(Fixed::Ipv4(args.ipv4(0)?))
    }),
    row("ipv6", &[Ipv6], 1, Type::Ipv6, EvalPoints::EVERYWHERE, "the address", |args| {
        fixed(Fixed::Ipv6(args.ipv6(0)?))
    }),
    row("meth", &[Str], 1, Type::Method, EvalPoints::EVERYWHERE, "the method of that name", |args| {
        fixed(Fixed::Method(args.boxed(0)))
    }),
    row("nbproc", &[], 0, Type::Int, EvalPoints::EVERYWHERE, "1: there is one process", |_| {
        fixed(Fixed::Int(1))
    }),
    row("proc", &[], 0, Type::Int, EvalPoints::EVERYWHERE, "1: there is one process", |_| {
        fixed(Fixed::Int(1))
    }),
    row(
        "rand",
        &[Int],
        0,
        Type::Int,
        EvalPoints::EVERYWHERE,
        "a random number from 0, below the given one or below 2^32",
        |args| {
            let range = args.int_in(0, 0..=i64::from(u32::MAX), 0)?;
            made(Constant::Rand((range > 0).then_some(range as u64)))
        },
    ),
    row("str", &[Str], 1, Type::Str, EvalPoints::EVERYWHERE, "the text", |args| {
        fixed(Fixed::Str(args.boxed(0)))
    }),
    row(
        "uuid",
        &[Int],
        0,
        Type::Str,
        EvalPoints::EVERYWHERE,
        "a UUID of version 4, or of the given one, 4 or 7",
        |args| match args.int(0)?.unwrap_or(4) {
            4 => made(Constant::Uuid(UuidVersion::V4)),
            7 => made(Constant::Uuid(UuidVersion::V7)),
            _ => Err(args.expected(0, "the version 4 or 7")),
        },
    ),
    row(
        "var",
        &[Variable, Str],
        1,
        Type::Any,
        EvalPoints::EVERYWHERE,
        "the value of a variable, or the default as text",
        |args| {
            let default = args.bytes(1).map(|text| Fixed::Str(text.into()));
            made(Constant::Variable { id: args.variable(0)?, default })
        },
    ),
];

/// Decodes an even number of hexadecimal digits.
pub(crate) fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks(2).map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?)).collect()
}

/// The value of a hexadecimal digit.
pub(crate) fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

impl Constant {
    pub(super) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        match self {
            Self::Value(fixed) => found(fixed.value()),
            Self::Nothing => Err(Absent::Never),
            Self::Date { offset, unit } => {
                let (now, scale) = ((env.now)(), unit.per_second());
                let part = i64::from(now.micros) / (1_000_000 / scale);
                found(Value::Int(
                    now.seconds.saturating_mul(scale).saturating_add(part).saturating_add(*offset),
                ))
            }
            Self::DateMicros => found(Value::Int(i64::from((env.now)().micros))),
            Self::Rand(range) => {
                let random = u64::from((scratch.random() >> 32) as u32);
                // The upper half of the product is uniform in the range, with a bias below 2^-32 (Lemire).
                found(Value::Int(match range {
                    Some(range) => (random * range) >> 32,
                    None => random,
                } as i64))
            }
            Self::Uuid(version) => {
                let (high, low) = (scratch.random(), scratch.random());
                let high = match version {
                    UuidVersion::V4 => (high & !0xf000) | 0x4000,
                    UuidVersion::V7 => {
                        let millis = Unit::Millis.of_date((env.now)()).cast_unsigned();
                        millis << 16 | 0x7000 | high & 0xfff
                    }
                };
                let low = (low & !(3 << 62)) | (2 << 62);
                scratch
                    .print(format_args!(
                        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                        high >> 32,
                        (high >> 16) & 0xffff,
                        high & 0xffff,
                        low >> 48,
                        low & 0xffff_ffff_ffff
                    ))
                    .map_or(Err(Absent::Never), |text| found(Value::Str(text)))
            }
            Self::Variable { id, default } => env
                .variables
                .get(*id, env.reader, scratch)
                .or_else(|| default.as_ref().filter(|_| env.variables.has(id.scope)).map(Fixed::value))
                .map_or(Err(Absent::Never), found),
            Self::Hostname => found(Value::Str(env.host.hostname())),
        }
    }
}
