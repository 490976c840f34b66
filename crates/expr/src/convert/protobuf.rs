//! Fields of Protocol Buffers messages, plain or in gRPC.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::{Error, none_of};
use crate::sample::{Type, Value};

#[derive(Debug)]
pub(crate) struct Message {
    path: Box<[u32]>,
    kind: Kind,
    /// True if each message has the five-byte header of gRPC.
    grpc: bool,
}

/// Type of a field. Text and untyped fields are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Bool,
    Int32,
    Int64,
    Uint32,
    Sint32,
    Sint64,
    Float,
    Fixed32,
    Sfixed32,
    Double,
    Fixed64,
}

/// Type names. `uint64` and `enum` share a variant with types that give the same number.
const KINDS: &[(&str, Kind)] = &[
    ("bool", Kind::Bool),
    ("double", Kind::Double),
    ("enum", Kind::Int32),
    ("fixed32", Kind::Fixed32),
    ("fixed64", Kind::Fixed64),
    ("float", Kind::Float),
    ("int32", Kind::Int32),
    ("int64", Kind::Int64),
    ("sfixed32", Kind::Sfixed32),
    ("sfixed64", Kind::Fixed64),
    ("sint32", Kind::Sint32),
    ("sint64", Kind::Sint64),
    ("uint32", Kind::Uint32),
    ("uint64", Kind::Int64),
];

/// Maximum length of a path such as `1.2.3`. Each level is a recursive call.
const MAX_DEPTH: usize = 16;

fn message(args: &Args<'_, '_>, grpc: bool) -> Result<Convert, Error> {
    let text = args.boxed(0);
    let number = |part: &[u8]| {
        let n: u32 = std::str::from_utf8(part).ok()?.parse().ok()?;
        (1..1 << 29).contains(&n).then_some(n)
    };
    let path: Option<Box<[u32]>> = text.split(|&byte| byte == b'.').map(number).collect();
    let path = path.filter(|path| path.len() <= MAX_DEPTH);
    let path =
        path.ok_or_else(|| args.expected(0, "the number of a field, or several with dots between them"))?;
    let kind = match args.given(1) {
        None => Kind::Raw,
        Some(name) => match KINDS.iter().find(|(known, _)| known.as_bytes() == name) {
            Some((_, kind)) => *kind,
            None => {
                let why = none_of("the type of a field", KINDS.iter().map(|(known, _)| *known), name);
                return Err(args.error(1, why));
            }
        },
    };
    Ok(Convert::Message(Message { path, kind, grpc }))
}

pub(super) const ROWS: &[Row] = &[
    row(
        "protobuf",
        &[Str, Str],
        1,
        Type::Bin,
        Type::Any,
        "a field of a Protocol Buffers message by its number, as its type says, or its bytes",
        |a| message(a, false),
    ),
    row("ungrpc", &[Str, Str], 1, Type::Bin, Type::Any, "the same of a field of gRPC's messages", |a| {
        message(a, true)
    }),
];

/// Reads fields from the front of a message.
struct Fields<'a>(&'a [u8]);

/// An encoded value.
enum Wire<'a> {
    Varint(u64, &'a [u8]),
    Eight(&'a [u8; 8]),
    Four(&'a [u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn varint(&mut self) -> Option<(u64, &'a [u8])> {
        let len = self.0.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
        let bytes = self.take(len)?;
        let n = bytes.iter().enumerate().fold(0, |n, (at, byte)| n | u64::from(byte & 0x7f) << (7 * at));
        Some((n, bytes))
    }

    /// The number and value of the next field; `None` at the end or for invalid bytes.
    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let (key, _) = self.varint()?;
        let value = match key & 7 {
            0 => {
                let (n, bytes) = self.varint()?;
                Wire::Varint(n, bytes)
            }
            1 => Wire::Eight(self.array()?),
            2 => {
                let (len, _) = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(len).ok()?)?)
            }
            5 => Wire::Four(self.array()?),
            _ => return None,
        };
        Some((u32::try_from(key >> 3).ok()?, value))
    }
}

impl Message {
    pub(super) fn apply<'x>(&self, bytes: &'x [u8]) -> Option<Value<'x>> {
        if !self.grpc {
            return self.within(bytes, &self.path);
        }
        let mut rest = Fields(bytes);
        loop {
            let compressed = rest.take(1)? != [0];
            let len = u32::from_be_bytes(*rest.array()?);
            let message = rest.take(usize::try_from(len).ok()?)?;
            if compressed {
                return None;
            }
            if let Some(value) = self.within(message, &self.path) {
                return Some(value);
            }
        }
    }

    /// The first field at the path.
    fn within<'x>(&self, message: &'x [u8], path: &[u32]) -> Option<Value<'x>> {
        let (first, inner) = path.split_first()?;
        let mut fields = Fields(message);
        while let Some((number, value)) = fields.field() {
            if number != *first {
                continue;
            }
            match value {
                value if inner.is_empty() => return self.value(value),
                Wire::Bytes(message) => {
                    if let Some(value) = self.within(message, inner) {
                        return Some(value);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn value<'x>(&self, value: Wire<'x>) -> Option<Value<'x>> {
        let zigzag = |n: u64| (n >> 1).cast_signed() ^ -(n & 1).cast_signed();
        Some(match (value, self.kind) {
            (Wire::Varint(_, bytes) | Wire::Bytes(bytes), Kind::Raw) => Value::Bin(bytes),
            (Wire::Eight(bytes), Kind::Raw) => Value::Bin(bytes),
            (Wire::Four(bytes), Kind::Raw) => Value::Bin(bytes),
            (Wire::Varint(n, _), Kind::Bool) => Value::Int(i64::from(n != 0)),
            (Wire::Varint(n, _), Kind::Int32) => Value::Int(i64::from(n as i32)),
            (Wire::Varint(n, _), Kind::Uint32) => Value::Int(i64::from(n as u32)),
            (Wire::Varint(n, _), Kind::Int64) => Value::Int(n.cast_signed()),
            (Wire::Varint(n, _), Kind::Sint32) => Value::Int(i64::from(zigzag(n) as i32)),
            (Wire::Varint(n, _), Kind::Sint64) => Value::Int(zigzag(n)),
            (Wire::Four(bytes), Kind::Float) => Value::Int(f32::from_le_bytes(*bytes) as i64),
            (Wire::Four(bytes), Kind::Fixed32) => Value::Int(u32::from_le_bytes(*bytes).into()),
            (Wire::Four(bytes), Kind::Sfixed32) => Value::Int(i32::from_le_bytes(*bytes).into()),
            (Wire::Eight(bytes), Kind::Double) => Value::Int(f64::from_le_bytes(*bytes) as i64),
            (Wire::Eight(bytes), Kind::Fixed64) => Value::Int(i64::from_le_bytes(*bytes)),
            _ => return None,
        })
    }
}
