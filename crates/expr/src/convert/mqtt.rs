//! MQTT, a protocol for messages between devices: parses the first packet of each side, in versions 3.1,
//! 3.1.1 and 5.0.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::error::Error;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mqtt {
    IsValid,
    Field(Packet, Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Connect,
    Connack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Flags,
    ProtocolName,
    ProtocolVersion,
    ClientIdentifier,
    WillTopic,
    WillPayload,
    Username,
    Password,
    KeepAlive,
    ReasonCode,
    Property(u8),
}

const OF_CONNECT: [(&str, Field); 9] = [
    ("flags", Field::Flags),
    ("protocol_name", Field::ProtocolName),
    ("protocol_version", Field::ProtocolVersion),
    ("client_identifier", Field::ClientIdentifier),
    ("will_topic", Field::WillTopic),
    ("will_payload", Field::WillPayload),
    ("username", Field::Username),
    ("password", Field::Password),
    ("keepalive", Field::KeepAlive),
];

const OF_CONNACK: [(&str, Field); 3] = [
    ("flags", Field::Flags),
    ("protocol_version", Field::ProtocolVersion),
    ("reason_code", Field::ReasonCode),
];

/// Encoding of a property's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Byte,
    Two,
    Four,
    Text,
    /// Two texts: a property that may repeat, and that rules cannot query.
    Pair,
}

/// Properties of version 5.0: number, encoding, and whether a client, its last will, or a server may have it.
const PROPERTIES: &[(u8, Kind, [bool; 3])] = &[
    (1, Kind::Byte, [false, true, false]),
    (2, Kind::Four, [false, true, false]),
    (3, Kind::Text, [false, true, false]),
    (8, Kind::Text, [false, true, false]),
    (9, Kind::Text, [false, true, false]),
    (17, Kind::Four, [true, false, true]),
    (18, Kind::Text, [false, false, true]),
    (19, Kind::Two, [false, false, true]),
    (21, Kind::Text, [true, false, true]),
    (22, Kind::Text, [true, false, true]),
    (23, Kind::Byte, [true, false, false]),
    (24, Kind::Four, [false, true, false]),
    (25, Kind::Byte, [true, false, false]),
    (26, Kind::Text, [false, false, true]),
    (28, Kind::Text, [false, false, true]),
    (31, Kind::Text, [false, false, true]),
    (33, Kind::Two, [true, false, true]),
    (34, Kind::Two, [true, false, true]),
    (36, Kind::Byte, [false, false, true]),
    (37, Kind::Byte, [false, false, true]),
    (38, Kind::Pair, [true, true, true]),
    (39, Kind::Four, [true, false, true]),
    (40, Kind::Byte, [false, false, true]),
    (41, Kind::Byte, [false, false, true]),
    (42, Kind::Byte, [false, false, true]),
];

/// Indexes of the flags in [`PROPERTIES`].
const OF_CLIENT: usize = 0;
const OF_WILL: usize = 1;
const OF_SERVER: usize = 2;

fn field(args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    let kind = args.boxed(0).to_ascii_lowercase();
    let packet = match &kind[..] {
        b"connect" | b"1" => Packet::Connect,
        b"connack" | b"2" => Packet::Connack,
        _ => return Err(args.expected(0, "the type of a packet, connect or connack,")),
    };
    let name = args.boxed(1).to_ascii_lowercase();
    let (fields, of): (&[_], &[usize]) = match packet {
        Packet::Connect => (&OF_CONNECT, &[OF_CLIENT, OF_WILL]),
        Packet::Connack => (&OF_CONNACK, &[OF_SERVER]),
    };
    let named = fields.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, field)| *field);
    let number: Option<u8> = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
    let property = || {
        let may = |(id, kind, whose): &&(u8, Kind, [bool; 3])| {
            Some(*id) == number && *kind != Kind::Pair && of.iter().any(|of| whose[*of])
        };
        PROPERTIES.iter().find(may).map(|(id, ..)| Field::Property(*id))
    };
    match named.or_else(property) {
        Some(field) => Ok(Convert::Mqtt(Mqtt::Field(packet, field))),
        None => Err(args.expected(1, "a field or the number of a property of such a packet")),
    }
}

pub(super) const ROWS: &[Row] = &[
    row("mqtt_is_valid", &[], 0, Type::Bin, Type::Bool, "whether the bytes are a packet of MQTT", |_| {
        Ok(Convert::Mqtt(Mqtt::IsValid))
    }),
    row(
        "mqtt_field_value",
        &[Str, Str],
        2,
        Type::Bin,
        Type::Str,
        "a field or property of a packet CONNECT or CONNACK of MQTT",
        field,
    ),
];

/// Reads from the front of a byte slice.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self, bytes: usize) -> Option<u32> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Reads a length of two bytes, and the text.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number(2)?;
        self.take(length as usize)
    }

    /// Reads a variable byte integer: one to four bytes with seven bits each, the lowest first.
    fn variable(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads and validates the properties. Only those of [`Kind::Pair`] may repeat.
    fn properties(&mut self, whose: usize) -> Option<Properties<'a>> {
        let length = self.variable()?;
        let all = self.take(length)?;
        let (mut rest, mut present) = (Bytes(all), 0_u64);
        while !rest.0.is_empty() {
            let id = rest.byte()?;
            let (_, kind, _) = PROPERTIES.iter().find(|(known, _, may)| *known == id && may[whose])?;
            if *kind != Kind::Pair && present & 1 << id > 0 {
                return None;
            }
            present |= 1 << id;
            rest.skip(*kind)?;
        }
        Some(Properties(all))
    }

    fn skip(&mut self, kind: Kind) -> Option<()> {
        match kind {
            Kind::Byte => self.take(1),
            Kind::Two => self.take(2),
            Kind::Four => self.take(4),
            Kind::Text => self.text(),
            Kind::Pair => self.text().and_then(|_| self.text()),
        }
        .map(|_| ())
    }
}

/// Validated properties.
#[derive(Clone, Copy, Default)]
struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    fn find(self, wanted: u8) -> Option<MqttValue<'a>> {
        let mut rest = Bytes(self.0);
        loop {
            let id = rest.byte()?;
            let (_, kind, _) = PROPERTIES.iter().find(|(known, ..)| *known == id)?;
            if id != wanted {
                rest.skip(*kind)?;
                continue;
            }
            return Some(match kind {
                Kind::Byte => MqttValue::Number(rest.number(1)?),
                Kind::Two => MqttValue::Number(rest.number(2)?),
                Kind::Four => MqttValue::Number(rest.number(4)?),
                Kind::Text => MqttValue::Text(rest.text()?),
                Kind::Pair => return None,
            });
        }
    }
}

/// Value of a field.
#[derive(Clone, Copy)]
enum MqttValue<'a> {
    Number(u32),
    Text(&'a [u8]),
}

/// A valid packet.
enum Read<'a> {
    Connect(Connect<'a>),
    Connack { flags: u8, reason: u8, version: u8, properties: Properties<'a> },
}

struct Connect<'a> {
    name: &'a [u8],
    version: u8,
    flags: u8,
    keep_alive: u32,
    properties: Properties<'a>,
    client: &'a [u8],
    will: Option<(Properties<'a>, &'a [u8], &'a [u8])>,
    username: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
}

fn read(bytes: &[u8]) -> Option<Read<'_>> {
    let mut all = Bytes(bytes);
    let first = all.byte()?;
    let length = all.variable()?;
    let mut rest = Bytes(all.take(length)?);
    let read = match first {
        0x10 => Read::Connect(connect(&mut rest)?),
        0x20 => {
            let (flags, reason) = (rest.byte()?, rest.byte()?);
            let is_new = !rest.0.is_empty();
            let properties = if is_new { rest.properties(OF_SERVER)? } else { Properties::default() };
            if flags > 1 {
                return None;
            }
            Read::Connack { flags, reason, version: if is_new { 5 } else { 4 }, properties }
        }
        _ => return None,
    };
    rest.0.is_empty().then_some(read)
}

fn connect<'a>(rest: &mut Bytes<'a>) -> Option<Connect<'a>> {
    let name = rest.text()?;
    let version = rest.byte()?;
    if !matches!(name, b"MQIsdp" | b"MQTT") || !(3..=5).contains(&version) {
        return None;
    }
    let flags = rest.byte()?;
    let keep_alive = rest.number(2)?;
    let has = |bit: u8| flags & bit > 0;
    // The reserved bit must be 0. Contradictions between the other flags are left to the server.
    if has(1) {
        return None;
    }
    let of = |rest: &mut Bytes<'a>, whose| match version {
        5 => rest.properties(whose),
        _ => Some(Properties::default()),
    };
    let properties = of(rest, OF_CLIENT)?;
    let client = rest.text()?;
    let will = match has(4) {
        true => Some((of(rest, OF_WILL)?, rest.text()?, rest.text()?)),
        false => None,
    };
    let username = if has(0x80) { Some(rest.text()?) } else { None };
    let password = if has(0x40) { Some(rest.text()?) } else { None };
    Some(Connect { name, version, flags, keep_alive, properties, client, will, username, password })
}

/// True for the first byte of a packet: its type, and the flags that this type has.
fn is_fixed_header(first: u8) -> bool {
    match (first >> 4, first & 0x0f) {
        (3, _) => true,
        (6 | 8 | 10, flags) => flags == 2,
        (1..=15, flags) => flags == 0,
        _ => false,
    }
}

/// True if the property has a numeric value.
fn is_number(id: u8) -> bool {
    let kind = PROPERTIES.iter().find(|(known, ..)| *known == id).map(|(_, kind, _)| *kind);
    matches!(kind, Some(Kind::Byte | Kind::Two | Kind::Four))
}

/// True if it is known whether the packet is valid: it is complete, or begins wrongly.
fn is_decided(bytes: &[u8]) -> bool {
    if let [first, _, ..] = bytes
        && !is_fixed_header(*first)
    {
        return true;
    }
    let mut rest = Bytes(bytes.get(1..).unwrap_or_default());
    match rest.variable() {
        Some(length) => rest.0.len() >= length,
        None => bytes.len() > 4, // a longer length is invalid
    }
}

impl Mqtt {
    pub(super) fn apply<'x>(self, bytes: &'x [u8], scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        let value = match (self, read(bytes)) {
            (Self::IsValid, read) => return is_decided(bytes).then_some(Value::Bool(read.is_some())),
            (Self::Field(Packet::Connect, field), Some(Read::Connect(connect))) => match field {
                Field::Flags => MqttValue::Number(connect.flags.into()),
                Field::ProtocolName => MqttValue::Text(connect.name),
                Field::ProtocolVersion => MqttValue::Number(connect.version.into()),
                Field::ClientIdentifier => MqttValue::Text(connect.client),
                Field::WillTopic => MqttValue::Text(connect.will?.1),
                Field::WillPayload => MqttValue::Text(connect.will?.2),
                Field::Username => MqttValue::Text(connect.username?),
                Field::Password => MqttValue::Text(connect.password?),
                Field::KeepAlive => MqttValue::Number(connect.keep_alive),
                Field::ReasonCode => return None,
                Field::Property(id) => connect.properties.find(id).or_else(|| connect.will?.0.find(id))?,
            },
            (
                Self::Field(Packet::Connack, field),
                Some(Read::Connack { flags, reason, version, properties }),
            ) => match field {
                Field::Flags => MqttValue::Number(flags.into()),
                Field::ProtocolVersion => MqttValue::Number(version.into()),
                Field::ReasonCode => MqttValue::Number(reason.into()),
                // A numeric property that a 5.0 server omits is 0, as in HAProxy.
                Field::Property(id) => properties
                    .find(id)
                    .or_else(|| (version == 5 && is_number(id)).then_some(MqttValue::Number(0)))?,
                _ => return None,
            },
            _ => return None,
        };
        Some(Value::Str(match value {
            MqttValue::Number(number) => scratch.print(format_args!("{number}"))?,
            MqttValue::Text(text) => text,
        }))
    }
}
