//! The `Forwarded` field of RFC 7239: parses values, and writes names of nodes.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::Error;
use crate::sample::{Type, Value};
use crate::scratch::{Scratch, Writer};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A parameter of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    For,
    By,
    Host,
    Proto,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Forwarded {
    IsValid,
    Field(Parameter),
    NameOfNode,
    PortOfNode,
    ToName,
    ToPort,
}

fn parameter(args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    let parameter = match args.bytes(0) {
        Some(b"for") => Parameter::For,
        Some(b"by") => Parameter::By,
        Some(b"host") => Parameter::Host,
        Some(b"proto") => Parameter::Proto,
        _ => return Err(args.expected(0, "one of for, by, host, proto")),
    };
    Ok(Convert::Forwarded(Forwarded::Field(parameter)))
}

pub(super) const ROWS: &[Row] = &[
    row(
        "rfc7239_field",
        &[Str],
        1,
        Type::Str,
        Type::Str,
        "the value of a parameter (for, by, host, proto) of a Forwarded field",
        parameter,
    ),
    row(
        "rfc7239_is_valid",
        &[],
        0,
        Type::Str,
        Type::Bool,
        "whether it is the value of a Forwarded field (RFC 7239)",
        |_| Ok(Convert::Forwarded(Forwarded::IsValid)),
    ),
    row(
        "rfc7239_n2nn",
        &[],
        0,
        Type::Str,
        Type::Any,
        "the name in a node of a Forwarded field: an address, 'unknown' or an obfuscated identifier",
        |_| Ok(Convert::Forwarded(Forwarded::NameOfNode)),
    ),
    row(
        "rfc7239_n2np",
        &[],
        0,
        Type::Str,
        Type::Any,
        "the port in a node of a Forwarded field: a number or an obfuscated identifier",
        |_| Ok(Convert::Forwarded(Forwarded::PortOfNode)),
    ),
    row(
        "rfc7239_nn",
        &[],
        0,
        Type::Any,
        Type::Str,
        "an address or a text as the name in a node of a Forwarded field",
        |_| Ok(Convert::Forwarded(Forwarded::ToName)),
    ),
    row(
        "rfc7239_np",
        &[],
        0,
        Type::Any,
        Type::Str,
        "a number or a text as the port in a node of a Forwarded field",
        |_| Ok(Convert::Forwarded(Forwarded::ToPort)),
    ),
];

impl Forwarded {
    pub(super) fn apply<'x>(self, value: Value<'x>, scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        match self {
            Self::IsValid => Some(Value::Bool(is_forwarded(value.bytes()?))),
            Self::Field(wanted) => field(value.bytes()?, wanted).map(Value::Str),
            Self::NameOfNode => Node::parse(value.bytes()?).map(|node| match node.name {
                Name::Address(ip) => ip.into(),
                Name::Text(text) => Value::Str(text),
            }),
            Self::PortOfNode => {
                Node::parse(value.bytes()?).and_then(|node| node.port).map(|port| match port {
                    Port::Number(port) => Value::Int(port.into()),
                    Port::Text(text) => Value::Str(text),
                })
            }
            Self::ToName => scratch.build(|out| put_name(value, out)).map(Value::Str),
            Self::ToPort => scratch.build(|out| put_port(value, out)).map(Value::Str),
        }
    }
}

/// Writes the name of a node from an address or a text: IPv6 addresses in brackets, texts as obfuscated
/// identifiers. `None` if a byte is invalid in identifiers.
fn put_name(value: Value<'_>, out: &mut Writer<'_>) -> Option<()> {
    match value {
        Value::Ipv4(ip) => out.print(format_args!("{ip}")),
        Value::Ipv6(ip) => out.print(format_args!("[{ip}]")),
        Value::Int(number) => out.print(format_args!("_{number}")),
        Value::Bool(truth) => out.print(format_args!("_{}", u8::from(truth))),
        value => match value.bytes()? {
            b"" => out.put(b"unknown"),
            text => put_identifier(text, out),
        },
    }
}

/// Writes a port: a number as 32 bits unsigned, a text as an obfuscated identifier.
fn put_port(value: Value<'_>, out: &mut Writer<'_>) -> Option<()> {
    match value {
        Value::Int(number) => out.put_number((number as u32).into(), 1),
        value => put_name(value, out).filter(|()| value.bytes() != Some(b"")),
    }
}

/// Writes an obfuscated identifier.
fn put_identifier(text: &[u8], out: &mut Writer<'_>) -> Option<()> {
    if text.is_empty() || !text.iter().all(|byte| is_identifying(*byte)) {
        return None;
    }
    out.push(b'_')?;
    out.put(text)
}

/// Writes the name of a node in a `Forwarded` field. Valid names are kept; other values are written as by
/// `put_name`.
pub fn put_node_name(value: Value<'_>, out: &mut Writer<'_>) -> Option<()> {
    match value.bytes() {
        Some(text) if matches!(name(text), Some((_, []))) => out.put(text),
        Some(b"") => None,
        _ => put_name(value, out),
    }
}

/// Writes the port of a node in a `Forwarded` field: a valid number, or an obfuscated identifier.
pub fn put_node_port(value: Value<'_>, out: &mut Writer<'_>) -> Option<()> {
    match value {
        Value::Int(number) if matches!(number, 1..=0xffff) => out.put_number(number, 1),
        Value::Int(number) => put_name(Value::Int(number), out),
        value => match value.bytes()? {
            text if port(text).is_some() => out.put(text),
            text => put_identifier(text, out),
        },
    }
}

fn is_identifying(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// True for a valid host of an element: a name, or an address in brackets, and an optional port.
pub fn is_host(text: &[u8]) -> bool {
    let rest = match text {
        [b'[', inside @ ..] => match memchr::memchr(b']', inside) {
            Some(end) if ipv6(&inside[..end]).is_some() => &inside[end + 1..],
            _ => return false,
        },
        _ => {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
            &text[text.iter().position(|byte| !is_name(byte)).unwrap_or(text.len())..]
        }
    };
    match rest {
        [] => !text.is_empty(),
        [b':', digits @ ..] => number(digits).is_some(),
        _ => false,
    }
}

#[derive(Clone, Copy)]
enum Name<'a> {
    Address(IpAddr),
    Text(&'a [u8]),
}

#[derive(Clone, Copy)]
enum Port<'a> {
    Number(u16),
    Text(&'a [u8]),
}

/// A node: a participant of the request.
struct Node<'a> {
    name: Name<'a>,
    port: Option<Port<'a>>,
    /// Text after the name that is not a port.
    rest: &'a [u8],
}

fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a decimal port.
fn number(text: &[u8]) -> Option<u16> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|port| *port > 0)
}

fn port(text: &[u8]) -> Option<Port<'_>> {
    match text {
        [b'_', _, ..] if text.iter().all(|byte| is_identifying(*byte)) => Some(Port::Text(text)),
        _ => number(text).map(Port::Number),
    }
}

/// Parses the name at the start of a text; returns it and the rest.
fn name(text: &[u8]) -> Option<(Name<'_>, &[u8])> {
    let split = |is_part: fn(u8) -> bool| {
        text.split_at(text.iter().position(|byte| !is_part(*byte)).unwrap_or(text.len()))
    };
    match text {
        [b'[', inside @ ..] => {
            let end = memchr::memchr(b']', inside)?;
            Some((Name::Address(ipv6(&inside[..end])?.into()), &inside[end + 1..]))
        }
        [b'_', ..] => {
            let (name, rest) = split(is_identifying);
            (name.len() > 1).then_some((Name::Text(name), rest))
        }
        _ => match text.strip_prefix(b"unknown") {
            Some(rest) => Some((Name::Text(&text[..text.len() - rest.len()]), rest)),
            None => {
                let (address, rest) = split(|byte| byte.is_ascii_digit() || byte == b'.');
                Some((Name::Address(ipv4(address)?.into()), rest))
            }
        },
    }
}

impl<'a> Node<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        match name(text)? {
            (name, [b':', digits @ ..]) => Some(Self { name, port: Some(port(digits)?), rest: b"" }),
            (name, rest) => Some(Self { name, port: None, rest }),
        }
    }
}

/// Iterates over the parameters of an element, with unquoted values. The last item is an error if the text is
/// invalid.
struct Parameters<'a> {
    rest: &'a [u8],
    /// One bit for each parameter that occurred.
    occurred: u8,
    is_over: bool,
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<(Parameter, &'a [u8]), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over || self.rest.is_empty() && self.occurred > 0 {
            return None;
        }
        let read = self.read();
        self.is_over = read.is_none();
        Some(read.ok_or(()))
    }
}

impl<'a> Parameters<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: text, occurred: 0, is_over: false }
    }

    fn read(&mut self) -> Option<(Parameter, &'a [u8])> {
        if self.occurred > 0 {
            self.rest = self.rest.strip_prefix(b";")?;
        }
        let equals = memchr::memchr(b'=', self.rest)?;
        let (name, value) = (&self.rest[..equals], &self.rest[equals + 1..]);
        let (parameter, bit) = match name {
            b"for" => (Parameter::For, 1),
            b"by" => (Parameter::By, 2),
            b"host" => (Parameter::Host, 4),
            b"proto" => (Parameter::Proto, 8),
            _ => return None,
        };
        // No parameter may repeat.
        if self.occurred & bit > 0 {
            return None;
        }
        self.occurred |= bit;
        let (value, rest, is_quoted) = match value {
            [b'"', inside @ ..] => {
                let end = memchr::memchr(b'"', inside)?;
                (&inside[..end], &inside[end + 1..], true)
            }
            value => {
                let (value, rest) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
                (value, rest, false)
            }
        };
        // Brackets and colons are not allowed in tokens, so such values need quotes.
        let is_written = is_quoted || !value.iter().any(|byte| b"[]:".contains(byte));
        let is_good = match parameter {
            Parameter::Proto => !is_quoted && (value == b"http" || value == b"https"),
            Parameter::Host => is_host(value),
            Parameter::For | Parameter::By => Node::parse(value).is_some_and(|node| node.rest.is_empty()),
        };
        self.rest = rest;
        (is_written && is_good).then_some((parameter, value))
    }
}

/// True if `text` is a valid value of a `Forwarded` field.
pub fn is_forwarded(text: &[u8]) -> bool {
    Parameters::new(text).all(|read| read.is_ok())
}

/// The value of a parameter; `None` if the text is invalid.
fn field(text: &[u8], wanted: Parameter) -> Option<&[u8]> {
    let mut found = None;
    for read in Parameters::new(text) {
        let (parameter, value) = read.ok()?;
        if parameter == wanted {
            found = Some(value);
        }
    }
    found
}
