//! Typed samples: results of fetches and converters, and input of patterns.

use std::fmt::{Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type of a sample, or the type that a converter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An IPv4 or IPv6 address.
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
    /// Known at evaluation only.
    Any,
    /// For converters: the type of the input.
    Same,
}

impl Type {
    /// Its name in signatures.
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

/// A value. It borrows from the [`Env`](crate::Env), the program or the [`Scratch`](crate::Scratch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// A number.
    Int(i64),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// Text of unspecified encoding.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
    /// Name of an HTTP method.
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

    /// The bytes of a text, of binary data or of a method; `None` for other types.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The address; `None` for other types.
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

/// A value, and whether more data can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The value.
    pub value: Value<'a>,
    /// True if more bytes may give another value. A test that does not match then waits.
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
    /// There is none, and more data will not help.
    Never,
    /// The data has not been received yet.
    NotYet,
}

/// A sample, or the reason why there is none.
pub type FetchResult<'a> = Result<Sample<'a>, Absent>;

/// A final value as a result.
pub(crate) fn found(value: Value<'_>) -> FetchResult<'_> {
    Ok(value.into())
}
