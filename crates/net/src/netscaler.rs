//! NetScaler's insertion of the client's address: a connection begins with copies of the client's IP and TCP
//! headers, behind a number that both sides have agreed on.
//!
//! It turns bytes into addresses, without sockets, clock or state. Releases from 10.5 on put the type 1 and
//! the length of the copies behind a first length, which this parser ignores; older ones have only one
//! length, that of the copies. The byte behind the first length tells the two forms apart: in the older one
//! it begins with the IP version, which is never 0.

use manylane_buf::Chain;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest copies that are accepted, in bytes. An IPv4 and a TCP header have up to 60 bytes each.
pub const LONGEST: usize = 256;

/// Bytes of the number and the length.
const FIXED: usize = 8;
/// Bytes before the copies, in the newer form.
const STANDARD: usize = 12;
/// `IPPROTO_TCP`
const TCP: u8 = 6;
const SHORTEST_TCP: usize = 20;
const SHORTEST_IPV4: usize = 20;
const IPV6: usize = 40;

/// Addresses of the client's connection to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's end.
    pub source: SocketAddr,
    /// The end that it connected to.
    pub destination: SocketAddr,
    /// Size of the header, in bytes; the connection's own bytes begin behind it.
    pub length: usize,
}

/// Reason why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The first bytes are not the number that both sides have agreed on.
    Magic,
    /// The header is not for TCP over IPv4 or IPv6, or its form is unknown.
    Protocol,
    /// The copies do not fit into their length, or are longer than [`LONGEST`].
    Length,
}

/// Returns the received bytes that a header may have, in one piece; they stay in the chain. Bytes behind them
/// may be more than fit into one piece.
///
/// # Errors
/// No memory.
pub fn beginning(received: &mut Chain) -> Result<&[u8], manylane_buf::Error> {
    received.pull_up(received.len().min(STANDARD + LONGEST))
}

/// Parses all bytes that came so far. Returns `None` while the header is incomplete.
///
/// # Errors
/// [`HeaderError`], as soon as the bytes cannot become a header.
pub fn parse(bytes: &[u8], magic: u32) -> Result<Option<Header>, HeaderError> {
    let received = bytes.len().min(4);
    if bytes[..received] != magic.to_be_bytes()[..received] {
        return Err(HeaderError::Magic);
    }
    let number = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (Some(length), Some(first)) = (number(4), bytes.get(FIXED)) else { return Ok(None) };
    let (start, length) = match first >> 4 {
        4 | 6 => (FIXED, length as usize),
        0 => match number(FIXED) {
            None => return Ok(None),
            Some(both) if both >> 16 == 1 => (STANDARD, (both & 0xffff) as usize),
            Some(_) => return Err(HeaderError::Protocol),
        },
        _ => return Err(HeaderError::Protocol),
    };
    if length > LONGEST {
        return Err(HeaderError::Length);
    }
    let Some(copies) = bytes.get(start..start + length) else { return Ok(None) };
    let (source, destination) = ends(copies)?;
    Ok(Some(Header { source, destination, length: start + length }))
}

/// Parses an IP header with a TCP header behind it.
fn ends(copies: &[u8]) -> Result<(SocketAddr, SocketAddr), HeaderError> {
    let version = copies.first().ok_or(HeaderError::Length)? >> 4;
    let length = if version == 6 { IPV6 } else { usize::from(copies[0] & 15) * 4 };
    let (ip, tcp) = copies.split_at_checked(length).ok_or(HeaderError::Length)?;
    if tcp.len() < SHORTEST_TCP || length < SHORTEST_IPV4 {
        return Err(HeaderError::Length);
    }
    let v4 = |at: usize| ip.get(at..)?.first_chunk::<4>().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes)));
    let v6 = |at: usize| ip.get(at..)?.first_chunk::<16>().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes)));
    let (protocol, source, destination) = match version {
        4 => (ip[9], v4(12), v4(16)),
        6 => (ip[6], v6(8), v6(24)),
        _ => return Err(HeaderError::Protocol),
    };
    if protocol != TCP {
        return Err(HeaderError::Protocol);
    }
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    match (source, destination) {
        (Some(source), Some(destination)) => {
            Ok((SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2))))
        }
        _ => Err(HeaderError::Length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: u32 = 12_345;

    fn ipv4(protocol: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45 + (options.len() / 4) as u8, 0, 0, 40, 0, 1, 0, 0, 64, protocol, 0, 0];
        bytes.extend([10, 1, 2, 3, 10, 9, 8, 7]);
        bytes.extend(options);
        bytes
    }

    fn ipv6() -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
        bytes.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes
    }

    fn header(standard: bool, copies: &[Vec<u8>]) -> Vec<u8> {
        let copies = [copies.concat(), vec![0x04, 0xd2, 0x01, 0xbb], vec![0; 16]].concat();
        let mut bytes = MAGIC.to_be_bytes().to_vec();
        let length = copies.len() as u32;
        bytes.extend((length + if standard { 12 } else { 0 }).to_be_bytes());
        if standard {
            bytes.extend([0, 1, 0, length as u8]);
        }
        bytes.extend(copies);
        bytes
    }

    #[test]
    fn both_forms_of_both_versions_give_the_clients_ends() {
        for standard in [false, true] {
            for (ip, source, destination) in [
                (ipv4(TCP, &[]), "10.1.2.3:1234", "10.9.8.7:443"),
                (ipv4(TCP, &[1; 8]), "10.1.2.3:1234", "10.9.8.7:443"),
                (ipv6(), "[2001:db8::1]:1234", "[2001:db8::2]:443"),
            ] {
                let bytes = header(standard, &[ip]);
                let length = bytes.len();
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                let expected = Header { source, destination, length };
                for end in 0..length {
                    assert_eq!(parse(&bytes[..end], MAGIC), Ok(None), "{end}");
                }
                assert_eq!(parse(&[&bytes[..], b"GET /"].concat(), MAGIC), Ok(Some(expected)));
            }
        }
    }

    #[test]
    fn copies_have_256_bytes_at_most() {
        for (standard, length_at) in [(false, 6), (true, 10)] {
            for (length, expected) in [(256_u16, Ok(None)), (257, Err(HeaderError::Length))] {
                let mut bytes = header(standard, &[ipv6()]);
                bytes[length_at..][..2].copy_from_slice(&length.to_be_bytes());
                assert_eq!(parse(&bytes, MAGIC), expected, "{standard} {length}");
            }
        }
    }

    #[test]
    fn what_is_no_such_header_is_refused() {
        let good = header(false, &[ipv4(TCP, &[])]);
        assert_eq!(parse(b"GE", MAGIC), Err(HeaderError::Magic));
        assert_eq!(parse(&good, MAGIC + 1), Err(HeaderError::Magic));
        assert_eq!(parse(&header(false, &[ipv4(17, &[])]), MAGIC), Err(HeaderError::Protocol));
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            parse(&bytes, MAGIC)
        };
        assert_eq!(with(FIXED, 0x55), Err(HeaderError::Protocol));
        assert_eq!(with(FIXED, 0x41), Err(HeaderError::Length), "an IP header of four bytes");
        assert_eq!(with(FIXED, 0x4f), Err(HeaderError::Length), "no TCP header behind it");
        assert_eq!(with(7, 39), Err(HeaderError::Length));
        assert_eq!(with(5, 1), Err(HeaderError::Length), "longer than the bound");
        assert_eq!(with(FIXED, 0), Err(HeaderError::Protocol), "a type that is not 1");
    }
}
