//! Types of map values.

use crate::cast::{parse_addr, parse_whole};
use crate::sample::Value;

/// Type of the values of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapValue {
    Str,
    Int,
    Ip,
    /// The values do not matter: the result is the pattern.
    Pattern,
}

impl MapValue {
    pub(crate) fn read(self, text: &[u8]) -> Option<Value<'_>> {
        match self {
            Self::Str | Self::Pattern => Some(Value::Str(text)),
            Self::Int => parse_whole(text).map(Value::Int),
            Self::Ip => parse_addr(text).map(Into::into),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Str | Self::Pattern => "a text",
            Self::Int => "a whole number",
            Self::Ip => "an address",
        }
    }
}
