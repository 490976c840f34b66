//! Encodes and decodes messages.
//!
//! A message has a class and a type. If the type is 128 or more, a length and a body follow. Numbers have a
//! variable length (see [`put_number`]).

use crate::dictionary::Dictionary;
use manylane_expr::{DataType, Datum, Type, Value};
use manylane_stick::{Data, DataValue, Period};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest body, in bytes: HAProxy's default `tune.bufsize`, which bounds what it sends. An incomplete
/// message is buffered.
pub const MAX_BODY: usize = 16_384;
/// Bytes before a body: class, type, length.
const MAX_HEAD: usize = 2 + MAX_NUMBER;
/// Longest number, in bytes: 4 bits in the first, 7 in each further one.
const MAX_NUMBER: usize = 10;
/// Most elements of an array, as in HAProxy.
const MAX_ELEMENTS: u64 = 100;
/// The longest period of a rate in a table, in milliseconds.
const LONGEST_PERIOD: u64 = 1 << 30;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// It cannot be decoded.
    Malformed,
    /// It is longer than [`MAX_BODY`].
    TooLong,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Requests all entries of all tables.
    ResyncRequest,
    /// All entries were sent, and the sender has everything that others had.
    ResyncFinished,
    /// All entries were sent, but the sender lacks entries of others.
    ResyncPartial,
    /// Confirms the end of a resynchronisation.
    ResyncConfirm,
    /// Shows that the sender is alive.
    Heartbeat,
    /// The sender could not decode a message.
    ProtocolError,
    /// The sender got a message that is too long for it.
    SizeError,
    /// Defines a table; updates that follow are of this table.
    Define(Definition<'a>),
    /// Updates that follow are of the table that was defined with this number.
    Switch(u64),
    /// Acknowledges an update.
    Ack {
        /// The number in the table's definition.
        table: u64,
        /// The number of the update.
        update: u32,
    },
    /// An entry.
    Update(Update<'a>),
    /// A message of an unknown class or type.
    Unknown,
}

/// Definition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    /// The sender's number for the table.
    pub table: u64,
    /// The table's name.
    pub name: &'a [u8],
    /// The type of the keys; `None` if it is unknown here.
    pub key: Option<Type>,
    /// Length of a key, in bytes.
    pub key_bytes: u64,
    /// Milliseconds until an entry expires.
    pub expire: u64,
    /// The data of an entry, in the order in which they are sent.
    pub data: Vec<Data>,
}

/// An update of an entry. Reading the body requires the table's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// The update's number; `None` for the last one plus one.
    pub number: Option<u32>,
    /// Milliseconds until the entry expires; `None` for the table's default.
    pub expire: Option<u32>,
    /// Key and data.
    pub body: &'a [u8],
}

const CONTROL: u8 = 0;
const ERROR: u8 = 1;
const TABLE: u8 = 10;

const WITH_BODY: u8 = 128;
const UPDATE: u8 = 128;
const UPDATE_NEXT: u8 = 129;
const DEFINE: u8 = 130;
const SWITCH: u8 = 131;
const ACK: u8 = 132;
const UPDATE_TIMED: u8 = 133;
const UPDATE_NEXT_TIMED: u8 = 134;

/// Appends a number. Below 240 it takes one byte. Otherwise the first byte has its lowest 4 bits, and each
/// further byte 7 bits of the rest, less the values that fewer bytes can express.
pub fn put_number(number: u64, out: &mut Vec<u8>) {
    let Some(mut rest) = number.checked_sub(0xf0) else { return out.push(number as u8) };
    out.push(number as u8 | 0xf0);
    rest >>= 4;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest = (rest - 0x80) >> 7;
    }
    out.push(rest as u8);
}

/// The rest of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MessageError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        self.take(N)?.try_into().map_err(|_| MessageError::Malformed)
    }

    fn number(&mut self) -> Result<u64, MessageError> {
        let [first] = self.array()?;
        let (mut number, mut shift) = (u128::from(first), 4);
        if first < 0xf0 {
            return Ok(first.into());
        }
        for _ in 1..MAX_NUMBER {
            let [byte] = self.array()?;
            number += u128::from(byte) << shift;
            shift += 7;
            if byte < 0x80 {
                return u64::try_from(number).map_err(|_| MessageError::Malformed);
            }
        }
        Err(MessageError::Malformed)
    }

    fn word(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A length and that many bytes.
    fn counted(&mut self) -> Result<&'a [u8], MessageError> {
        let length = usize::try_from(self.number()?).map_err(|_| MessageError::Malformed)?;
        self.take(length)
    }
}

impl<'a> Message<'a> {
    /// Reads the first message in `bytes`, and returns it with its length. `None` if it is incomplete.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, MessageError> {
        let [class, kind, rest @ ..] = bytes else { return Ok(None) };
        let (class, kind) = (*class, *kind);
        if kind < WITH_BODY {
            return Ok(Some((Self::short(class, kind), 2)));
        }
        let mut reader = Reader(rest);
        let length = match reader.number() {
            Ok(length) if length > MAX_BODY as u64 => return Err(MessageError::TooLong),
            Ok(length) => length as usize,
            Err(_) if bytes.len() < MAX_HEAD => return Ok(None),
            Err(wrong) => return Err(wrong),
        };
        let Ok(body) = reader.take(length) else { return Ok(None) };
        let used = bytes.len() - reader.0.len();
        Ok(Some((if class == TABLE { Self::of_table(kind, body)? } else { Self::Unknown }, used)))
    }

    fn short(class: u8, kind: u8) -> Self {
        match (class, kind) {
            (CONTROL, 0) => Self::ResyncRequest,
            (CONTROL, 1) => Self::ResyncFinished,
            (CONTROL, 2) => Self::ResyncPartial,
            (CONTROL, 3) => Self::ResyncConfirm,
            (CONTROL, 4) => Self::Heartbeat,
            (ERROR, 0) => Self::ProtocolError,
            (ERROR, 1) => Self::SizeError,
            _ => Self::Unknown,
        }
    }

    fn of_table(kind: u8, body: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(body);
        Ok(match kind {
            UPDATE | UPDATE_NEXT | UPDATE_TIMED | UPDATE_NEXT_TIMED => {
                let numbered = matches!(kind, UPDATE | UPDATE_TIMED);
                let timed = matches!(kind, UPDATE_TIMED | UPDATE_NEXT_TIMED);
                let number = if numbered { Some(reader.word()?) } else { None };
                let expire = if timed { Some(reader.word()?) } else { None };
                Self::Update(Update { number, expire, body: reader.0 })
            }
            DEFINE => Self::Define(Definition::read(reader)?),
            SWITCH => Self::Switch(reader.number()?),
            ACK => Self::Ack { table: reader.number()?, update: reader.word()? },
            _ => Self::Unknown,
        })
    }

    /// Appends the message to `out`; an unknown one writes nothing.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, body) = match self {
            Self::ResyncRequest => return out.extend([CONTROL, 0]),
            Self::ResyncFinished => return out.extend([CONTROL, 1]),
            Self::ResyncPartial => return out.extend([CONTROL, 2]),
            Self::ResyncConfirm => return out.extend([CONTROL, 3]),
            Self::Heartbeat => return out.extend([CONTROL, 4]),
            Self::ProtocolError => return out.extend([ERROR, 0]),
            Self::SizeError => return out.extend([ERROR, 1]),
            Self::Unknown => return,
            Self::Define(definition) => (DEFINE, definition.body()),
            Self::Switch(table) => {
                let mut body = Vec::new();
                put_number(*table, &mut body);
                (SWITCH, body)
            }
            Self::Ack { table, update } => {
                let mut body = Vec::new();
                put_number(*table, &mut body);
                body.extend(update.to_be_bytes());
                (ACK, body)
            }
            Self::Update(Update { number, expire, body }) => {
                let mut whole = Vec::new();
                whole.extend(number.iter().flat_map(|number| number.to_be_bytes()));
                whole.extend(expire.iter().flat_map(|expire| expire.to_be_bytes()));
                whole.extend_from_slice(body);
                let kind = match (number.is_some(), expire.is_some()) {
                    (true, true) => UPDATE_TIMED,
                    (true, false) => UPDATE,
                    (false, true) => UPDATE_NEXT_TIMED,
                    (false, false) => UPDATE_NEXT,
                };
                (kind, whole)
            }
        };
        out.extend([TABLE, kind]);
        put_number(body.len() as u64, out);
        out.extend_from_slice(&body);
    }
}

/// The protocol's numbers for types of keys.
const KEYS: [(u64, Type); 5] =
    [(2, Type::Int), (4, Type::Ipv4), (5, Type::Ipv6), (6, Type::Str), (7, Type::Bin)];

impl<'a> Definition<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Self, MessageError> {
        let (table, name) = (reader.number()?, reader.counted()?);
        let (key, key_bytes) = (reader.number()?, reader.number()?);
        let key = KEYS.iter().find(|(number, _)| *number == key).map(|(_, key)| *key);
        let (kinds, expire) = (reader.number()?, reader.number()?);
        let kept = DataType::ALL.into_iter().enumerate().filter(|(bit, _)| kinds >> bit & 1 == 1);
        let mut data: Vec<Data> = kept.map(|(_, kind)| Data { kind, count: 1, period: 0 }).collect();
        // Arguments of types follow, by type. Unknown types come last.
        while !reader.0.is_empty() {
            let number = reader.number()?;
            let Some(kind) = usize::try_from(number).ok().and_then(|number| DataType::ALL.get(number)) else {
                break;
            };
            let own = data.iter_mut().find(|data| data.kind == *kind).ok_or(MessageError::Malformed)?;
            if kind.is_array() {
                let count = Some(reader.number()?).filter(|count| (1..=MAX_ELEMENTS).contains(count));
                own.count = count.ok_or(MessageError::Malformed)? as u32;
            }
            if kind.is_rate() {
                own.period = reader.number()?.min(LONGEST_PERIOD) as u32;
            }
        }
        Ok(Self { table, name, key, key_bytes, expire, data })
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(self.table, &mut out);
        put_number(self.name.len() as u64, &mut out);
        out.extend_from_slice(self.name);
        let key = KEYS.iter().find(|(_, key)| Some(*key) == self.key).map_or(0, |(number, _)| *number);
        put_number(key, &mut out);
        put_number(self.key_bytes, &mut out);
        put_number(self.data.iter().fold(0, |bits, data| bits | 1 << data.kind as u64), &mut out);
        put_number(self.expire, &mut out);
        for data in self.data.iter().filter(|data| data.kind.is_array() || data.kind.is_rate()) {
            put_number(data.kind as u64, &mut out);
            if data.kind.is_array() {
                put_number(data.count.into(), &mut out);
            }
            if data.kind.is_rate() {
                put_number(data.period.into(), &mut out);
            }
        }
        out
    }
}

impl<'a> Update<'a> {
    /// Reads the key, then passes the data to `each`, according to the table's definition. `servers` has the
    /// sender's texts of `server_key`; an entry without one, or one that is not kept, passes none.
    ///
    /// # Errors
    /// [`MessageError::Malformed`]; `each` may have been called before.
    pub fn read(
        &self,
        definition: &Definition<'_>,
        servers: &mut Dictionary,
        mut each: impl FnMut(Value<'a>, Option<(Datum, DataValue)>),
    ) -> Result<(), MessageError> {
        let mut reader = Reader(self.body);
        let key = match definition.key {
            Some(Type::Int) => Value::Int(reader.word()?.into()),
            Some(Type::Ipv4) => Value::Ipv4(Ipv4Addr::from(reader.array::<4>()?)),
            Some(Type::Ipv6) => Value::Ipv6(Ipv6Addr::from(reader.array::<16>()?)),
            Some(Type::Str) => Value::Str(reader.counted()?),
            Some(Type::Bin) => {
                let bytes = usize::try_from(definition.key_bytes).map_err(|_| MessageError::Malformed)?;
                Value::Bin(reader.take(bytes)?)
            }
            _ => return Err(MessageError::Malformed),
        };
        each(key, None);
        for data in &definition.data {
            for index in 0..data.count {
                let kept = if data.kind.is_rate() {
                    let [age, events, before] = [reader.number()?, reader.number()?, reader.number()?];
                    let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
                    let [age, events, before] = [age, events, before].map(bounded);
                    DataValue::Rate(Period { age, events, before })
                } else if data.kind == DataType::ServerKey {
                    match read_server(&mut reader, servers)? {
                        0 => continue,
                        key => DataValue::Number(key),
                    }
                } else {
                    DataValue::Number(reader.number()?)
                };
                each(key, Some((Datum { data: data.kind, index }, kept)));
            }
        }
        Ok(())
    }
}

/// Reads the name of a server: a length, the sender's number and, the first time, the text. 0 if there is
/// none, or none that is kept.
fn read_server(reader: &mut Reader<'_>, servers: &mut Dictionary) -> Result<u64, MessageError> {
    let mut reader = Reader(reader.counted()?);
    if reader.0.is_empty() {
        return Ok(0);
    }
    let number = reader.number()?;
    let text = if reader.0.is_empty() { None } else { Some(reader.counted()?) };
    servers.receive(number, text).ok_or(MessageError::Malformed)
}

/// Writes the name of a server.
pub(crate) fn put_server(key: u64, servers: &mut Dictionary, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    if let Some((number, text)) = servers.send(key) {
        put_number(number, &mut body);
        if let Some(text) = text {
            put_number(text.len() as u64, &mut body);
            body.extend_from_slice(text.as_bytes());
        }
    }
    put_number(body.len() as u64, out);
    out.extend_from_slice(&body);
}

/// Writes a key in the format of its type.
pub(crate) fn put_key(key: Value<'_>, out: &mut Vec<u8>) {
    match key {
        Value::Ipv4(address) => out.extend(address.octets()),
        Value::Ipv6(address) => out.extend(address.octets()),
        Value::Str(text) => {
            put_number(text.len() as u64, out);
            out.extend_from_slice(text);
        }
        Value::Bin(data) => out.extend_from_slice(data),
        Value::Int(number) => out.extend((number as u32).to_be_bytes()),
        Value::Bool(_) | Value::Method(_) => {} // not types of keys
    }
}

/// Writes the value of a datum.
pub(crate) fn put_kept(kept: DataValue, out: &mut Vec<u8>) {
    match kept {
        DataValue::Number(number) => put_number(number, out),
        DataValue::Rate(Period { age, events, before }) => {
            [age, events, before].into_iter().for_each(|number| put_number(number.into(), out));
        }
    }
}
