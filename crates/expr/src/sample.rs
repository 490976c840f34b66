//! Typed samples: what a fetch gives, what converters change and what patterns are matched against.

use std::fmt::{Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The type of a sample, or what a converter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false.
    Bool,
    /// Signed, 64 bits.
    Int,
    /// An address of either family.
    Addr,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// Text.
    Str,
    /// Bytes.
    Bin,
    /// An HTTP method.
    Method,
    /// Known when it is evaluated only.
    Any,
    /// Of a converter: what went in.
    Same,
}

impl Type {
    /// The word for it in signatures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Addr => "addr",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Str => "str",
            Self::Bin => "bin",
            Self::Method => "meth",
            Self::Any => "any",
            Self::Same => "same",
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A sample's value. It borrows from the [`Env`](crate::Env), the program or the [`Scratch`](crate::Scratch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// A number.
    Int(i64),
    /// An address.
    Ipv4(Ipv4Addr),
    /// An address.
    Ipv6(Ipv6Addr),
    /// Text in no particular encoding.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
    /// The name of a method.
    Method(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Its type.
    pub fn kind(&self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Ipv4(_) => Type::Ipv4,
            Self::Ipv6(_) => Type::Ipv6,
            Self::Str(_) => Type::Str,
            Self::Bin(_) => Type::Bin,
            Self::Method(_) => Type::Method,
        }
    }

    /// The bytes of text, data or a method.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The address.
    pub fn addr(&self) -> Option<IpAddr> {
        match *self {
            Self::Ipv4(addr) => Some(addr.into()),
            Self::Ipv6(addr) => Some(addr.into()),
            _ => None,
        }
    }
}

impl From<IpAddr> for Value<'_> {
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::Ipv4(addr),
            IpAddr::V6(addr) => Self::Ipv6(addr),
        }
    }
}

/// A sample: a value, and whether it may still be another one when more has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The value.
    pub value: Value<'a>,
    /// More bytes may give another value: content rules wait before they rely on its absence of a match.
    pub may_change: bool,
}

impl<'a> From<Value<'a>> for Sample<'a> {
    fn from(value: Value<'a>) -> Self {
        Self { value, may_change: false }
    }
}

/// Why there is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// There is none, and there will be none.
    Never,
    /// What it is taken from has not been received yet.
    NotYet,
}

/// A sample or the reason why there is none.
pub type Fetched<'a> = Result<Sample<'a>, Absent>;

/// Shorthand for a final value.
pub(crate) fn found(value: Value<'_>) -> Fetched<'_> {
    Ok(value.into())
}
