//! Converters: functions from sample to sample. One table holds their names and signatures; they are compiled
//! to an enum.

mod address;
mod cipher;
pub(crate) mod encode;
mod fix;
mod forwarded;
pub use forwarded::{is_forwarded, is_host, put_node_name, put_node_port};
pub(crate) mod hash;
mod jwt;
mod language;
mod map;
mod misc;
pub use misc::SetConditions;
mod mqtt;
mod needs;
mod number;
mod order;
mod protobuf;
mod query;
mod stick;
mod text;
mod time;
pub use time::http_date;
mod unbuilt;
mod when;

use crate::args::{ArgKind, Args};
use crate::env::Env;
use crate::error::Error;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use std::sync::LazyLock;

/// A converter: name, signature, constructor.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [ArgKind],
    pub(crate) required: usize,
    pub(crate) takes: Type,
    pub(crate) gives: Type,
    pub(crate) help: &'static str,
    pub(crate) make: Make,
}

/// How to compile a converter.
#[derive(Clone, Copy)]
pub(crate) enum Make {
    Built(fn(&mut Args<'_, '_>) -> Result<Convert, Error>),
    Refused(&'static str),
}

impl Row {
    pub(crate) fn refused(&self) -> Option<&'static str> {
        match self.make {
            Make::Built(_) => None,
            Make::Refused(reason) => Some(reason),
        }
    }
}

/// A row of a converter that is built.
const fn row(
    name: &'static str,
    args: &'static [ArgKind],
    required: usize,
    takes: Type,
    gives: Type,
    help: &'static str,
    make: fn(&mut Args<'_, '_>) -> Result<Convert, Error>,
) -> Row {
    Row { name, args, required, takes, gives, help, make: Make::Built(make) }
}

/// All rows, sorted by name.
pub(crate) fn table() -> &'static [Row] {
    static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let mut rows: Vec<Row> = [
            number::ROWS,
            text::ROWS,
            hash::ROWS,
            encode::ROWS,
            time::ROWS,
            map::ROWS,
            map::KEYS,
            cipher::ROWS,
            jwt::ROWS,
            language::ROWS,
            when::ROWS,
            address::ROWS,
            misc::ROWS,
            mqtt::ROWS,
            fix::ROWS,
            forwarded::ROWS,
            order::ROWS,
            protobuf::ROWS,
            query::ROWS,
            stick::NUMBERS,
            stick::ROWS,
        ]
        .concat();
        rows.extend(unbuilt::rows());
        rows.sort_by_key(|row| row.name);
        rows
    });
    &TABLE
}

/// The row with this name.
pub(crate) fn find(name: &[u8]) -> Option<&'static Row> {
    let table = table();
    table.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok().map(|at| &table[at])
}

/// A compiled converter.
#[derive(Debug)]
pub(crate) enum Convert {
    Number(number::Arithmetic),
    Text(text::Text),
    Hash(hash::Hash),
    Encode(encode::Encode),
    Time(time::Time),
    Map(map::Map),
    Address(address::Address),
    Misc(misc::Misc),
    Fix(fix::Fix),
    Mqtt(mqtt::Mqtt),
    Forwarded(forwarded::Forwarded),
    Message(protobuf::Message),
    Order(order::Order),
    Query(query::Query),
    Stick(stick::InTable),
    Cipher(Box<cipher::Cipher>),
    TokenPart(jwt::Part),
    Verify(Box<jwt::Verify>),
    Language(language::Language),
    When(when::Conditional),
}

impl Convert {
    /// Nesting depth of ACLs.
    pub(crate) fn acl_depth(&self) -> usize {
        match self {
            Self::When(when) => when.depth(),
            _ => 0,
        }
    }

    /// Converts a value; `None` if it has no result. `value` has the type that the row accepts.
    pub(crate) fn apply<'x>(
        &'x self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        match self {
            Self::Number(arithmetic) => arithmetic.apply(value, env, scratch),
            Self::Text(text) => text.apply(value.bytes()?, env, scratch),
            Self::Hash(hash) => hash.apply(value.bytes()?, env, scratch),
            Self::Encode(encode) => encode.apply(value.bytes()?, scratch),
            Self::Time(time) => time.apply(value, env, scratch),
            Self::Map(map) => map.apply(value, env, scratch),
            Self::Address(address) => address.apply(value),
            Self::Misc(misc) => misc.apply(value, env, scratch),
            Self::Mqtt(mqtt) => mqtt.apply(value.bytes()?, scratch),
            Self::Fix(fix) => fix.apply(value.bytes()?),
            Self::Forwarded(forwarded) => forwarded.apply(value, scratch),
            Self::Message(message) => message.apply(value.bytes()?),
            Self::Order(order) => order.apply(value.bytes()?, scratch),
            Self::Query(query) => query.apply(value.bytes()?, scratch),
            Self::Stick(table) => table.apply(value, env, scratch),
            Self::Cipher(cipher) => cipher.apply(value.bytes()?, env, scratch),
            Self::TokenPart(part) => part.apply(value.bytes()?, scratch),
            Self::Verify(verify) => verify.apply(value.bytes()?, env, scratch).map(Value::Int),
            Self::Language(language) => language.apply(value.bytes()?),
            Self::When(when) => when.holds(env, scratch).then_some(value),
        }
    }
}
