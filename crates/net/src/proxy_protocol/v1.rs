//! Version 1: a line of text (2.1).

use super::{
    EndpointPair, Header, HeaderError, LONGEST_V1, Parsed, SHORTEST, Tlvs, Version, begins_alike, same_family,
};
use crate::address::Transport;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// Protocols that a line may name.
const PROTOCOLS: [&[u8]; 3] = [b"TCP4 ", b"TCP6 ", b"UNKNOWN"];

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, HeaderError> {
    let received = &bytes[..bytes.len().min(LONGEST_V1)];
    let line = received.strip_prefix(SIGNATURE).unwrap_or_default();
    if !PROTOCOLS.iter().any(|protocol| begins_alike(line, protocol)) {
        return Err(HeaderError::Protocol);
    }
    let Some(end) = received.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        let most = LONGEST_V1 - 2; // CR and LF have to follow
        return if received.len() > most { Err(HeaderError::LineEnd) } else { Ok(incomplete(bytes)) };
    };
    match received[end..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if received.len() < LONGEST_V1 => return Ok(incomplete(bytes)),
        _ => return Err(HeaderError::LineEnd),
    }
    let line = received[..end].strip_prefix(SIGNATURE).ok_or(HeaderError::Line)?;
    let ends = ends(line).ok_or(HeaderError::Line)?;
    let header = Header { version: Version::V1, ends, relayed: true, tlvs: Tlvs::default() };
    Ok(Parsed::Complete { header, length: end + 2 })
}

fn incomplete(bytes: &[u8]) -> Parsed<'_> {
    Parsed::Incomplete { at_least: (bytes.len() + 1).max(SHORTEST) }
}

/// Parses the text behind "PROXY ". Returns `None` if it is wrong, `Some(None)` for `UNKNOWN`.
fn ends(line: &[u8]) -> Option<Option<EndpointPair<'static>>> {
    let line =
        std::str::from_utf8(line).ok().or_else(|| line.starts_with(b"UNKNOWN ").then_some("UNKNOWN"))?;
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Some(None); // the rest of the line means nothing
    }
    let mut words = line.split(' ');
    let ip: fn(&str) -> Option<IpAddr> = match words.next()? {
        "TCP4" => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |word| word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return None,
    };
    let (source, destination) = (ip(words.next()?)?, ip(words.next()?)?);
    let (from, to) = (port(words.next()?)?, port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
    Some(Some(EndpointPair::Ip { transport: Transport::Stream, source, destination }))
}

/// Parses digits without a leading zero.
fn port(word: &str) -> Option<u16> {
    let plain = word == "0" || !word.starts_with('0') && word.bytes().all(|c| c.is_ascii_digit());
    plain.then(|| word.parse().ok()).flatten()
}

/// Appends a header of version 1 to `into`, at most [`LONGEST_V1`] bytes. Send it with or before the
/// connection's first bytes. Anything but a TCP connection between IP addresses becomes `UNKNOWN`, which some
/// servers refuse.
pub fn emit(ends: Option<&EndpointPair<'_>>, into: &mut Vec<u8>) {
    let written = match ends {
        Some(&EndpointPair::Ip { transport: Transport::Stream, source, destination }) => {
            let (source, destination) = same_family(source, destination);
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.port(), destination.port());
            write!(into, "PROXY {family} {} {} {from} {to}\r\n", source.ip(), destination.ip())
        }
        _ => into.write_all(b"PROXY UNKNOWN\r\n"),
    };
    written.expect("a vector takes all bytes");
}
