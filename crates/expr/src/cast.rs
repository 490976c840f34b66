//! Casts between types of samples.
//!
//! | from | bool | int | addr | ipv4 | ipv6 | str | bin | meth |
//! |---|---|---|---|---|---|---|---|---|
//! | bool | = | 0 or 1 | | | | digits | 8 bytes | |
//! | int | not 0 | = | low 32 bits | low 32 bits | mapped | digits | 8 bytes, big endian | |
//! | ipv4 | | its 32 bits | = | = | mapped | dotted | 4 bytes | |
//! | ipv6 | | | = | when mapped | = | shortest form | 16 bytes | |
//! | str | as int | leading digits, if not empty | parsed | parsed | parsed | = | = | = |
//! | bin | | | | | | up to a NUL | = | |
//! | meth | | | | | | = | = | = |

use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if values of type `from` can be cast to `to`. A cast from `Any` is checked at evaluation.
pub fn is_castable(from: Type, to: Type) -> bool {
    use Type::*;
    matches!(
        (from, to),
        (_, Any | Same)
            | (Any | Same | Str, _)
            | (Bool, Bool | Int | Str | Bin)
            | (Int, Bool | Int | Addr | Ipv4 | Ipv6 | Str | Bin)
            | (Ipv4, Int)
            | (Addr | Ipv4, Addr | Ipv4 | Ipv6 | Str | Bin)
            | (Ipv6, Addr | Ipv4 | Ipv6 | Str | Bin)
            | (Bin, Str | Bin)
            | (Method, Str | Bin | Method)
    )
}

/// Casts a value to `to`. `None` if this value cannot be cast, or if its text does not fit into the scratch.
///
/// Text and bytes are never copied. Only numbers and addresses are written to the scratch.
pub fn cast<'x>(value: Value<'x>, to: Type, scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
    use Value::*;
    Some(match (to, value) {
        (Type::Any | Type::Same, value) => value,
        (Type::Bool, Bool(_)) | (Type::Int, Int(_)) | (Type::Str, Str(_)) | (Type::Bin, Bin(_)) => value,
        (Type::Addr, Ipv4(_) | Ipv6(_)) | (Type::Ipv4, Ipv4(_)) | (Type::Ipv6, Ipv6(_)) => value,
        (Type::Method, Method(_)) => value,
        (Type::Bool, Int(n)) => Bool(n != 0),
        (Type::Bool | Type::Int, Str(b"")) => return None,
        (Type::Bool, Str(text)) => Bool(parse_int(text) != 0),
        (Type::Int, Bool(b)) => Int(i64::from(b)),
        (Type::Int, Ipv4(addr)) => Int(i64::from(addr.to_bits())),
        (Type::Int, Str(text)) => Int(parse_int(text)),
        (Type::Addr | Type::Ipv4, Int(n)) => Ipv4(Ipv4Addr::from_bits(n as u32)),
        (Type::Addr, Str(text)) => parse_addr(text)?.into(),
        (Type::Ipv4, Str(text)) => cast(parse_addr(text)?.into(), Type::Ipv4, scratch)?,
        (Type::Ipv4, Ipv6(addr)) => Ipv4(v6_to_v4(addr)?),
        (Type::Ipv6, Ipv4(addr)) => Ipv6(addr.to_ipv6_mapped()),
        (Type::Ipv6, Int(n)) => Ipv6(Ipv4Addr::from_bits(n as u32).to_ipv6_mapped()),
        (Type::Ipv6, Str(text)) => cast(parse_addr(text)?.into(), Type::Ipv6, scratch)?,
        // Text ends at the first NUL byte.
        (Type::Str, Bin(bytes)) => Str(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]),
        (Type::Str, Method(bytes)) => Str(bytes),
        (Type::Bin, Str(bytes) | Method(bytes)) => Bin(bytes),
        (Type::Method, Str(bytes)) => Method(bytes),
        (Type::Str, Bool(b)) => Str(if b { b"1" } else { b"0" }),
        (Type::Str, Int(n)) => Str(scratch.print(format_args!("{n}"))?),
        (Type::Str, Ipv4(addr)) => Str(scratch.print(format_args!("{addr}"))?),
        (Type::Str, Ipv6(addr)) => Str(scratch.print(format_args!("{addr}"))?),
        (Type::Bin, Bool(b)) => Bin(scratch.copy(&i64::from(b).to_be_bytes())?),
        (Type::Bin, Int(n)) => Bin(scratch.copy(&n.to_be_bytes())?),
        (Type::Bin, Ipv4(addr)) => Bin(scratch.copy(&addr.octets())?),
        (Type::Bin, Ipv6(addr)) => Bin(scratch.copy(&addr.octets())?),
        _ => return None,
    })
}

/// Casts a value to text and returns its bytes.
pub(crate) fn text<'x>(value: Value<'x>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
    cast(value, Type::Str, scratch)?.bytes()
}

/// Parses leading digits with an optional sign; 0 without digits. Saturates at the bounds of the type.
pub fn parse_int(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut n: i64 = 0;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        n = n.saturating_mul(10);
        n = if negative { n.saturating_sub(digit) } else { n.saturating_add(digit) };
    }
    n
}

/// Parses a text that is a decimal integer as a whole.
pub(crate) fn parse_whole(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses an IPv4 or IPv6 address.
pub(crate) fn parse_addr(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The IPv4 address in `::ffff:a.b.c.d`, `2002:AABB:CCDD::/48` or `::a.b.c.d`.
pub(crate) fn v6_to_v4(addr: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = addr.segments();
    if let Some(v4) = addr.to_ipv4_mapped() {
        return Some(v4);
    }
    if s[0] == 0x2002 && s[3..] == [0; 5] {
        return Some(Ipv4Addr::from_bits(u32::from(s[1]) << 16 | u32::from(s[2])));
    }
    (s[..6] == [0; 6]).then(|| Ipv4Addr::from_bits(u32::from(s[6]) << 16 | u32::from(s[7])))
}
