//! Masks.

use super::{Convert, Row, row};
use crate::args::ArgKind::*;
use crate::cast::v6_to_v4;
use crate::sample::{Type, Value};
use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Address {
    Mask { v4: u32, v6: Option<u128> },
}

pub(super) const ROWS: &[Row] = &[row(
    "ipmask",
    &[Mask4, Mask6],
    1,
    Type::Addr,
    Type::Addr,
    "the address with the bits outside of the mask cleared; without an IPv6 mask IPv6 addresses have none",
    |args| {
        let v6 = if args.given(1).is_some() { Some(args.mask6(1)?) } else { None };
        Ok(Convert::Address(Address::Mask { v4: args.mask4(0)?, v6 }))
    },
)];

impl Address {
    pub(super) fn apply<'x>(self, value: Value<'x>) -> Option<Value<'x>> {
        let Self::Mask { v4, v6 } = self;
        let masked = |addr: Ipv4Addr| Value::Ipv4(Ipv4Addr::from_bits(addr.to_bits() & v4));
        Some(match value {
            Value::Ipv4(addr) => masked(addr),
            // An address in IPv6 form that contains an IPv4 address counts as that.
            Value::Ipv6(addr) => match v6_to_v4(addr) {
                Some(addr) => masked(addr),
                None => Value::Ipv6(Ipv6Addr::from_bits(addr.to_bits() & v6?)),
            },
            _ => return None,
        })
    }
}
