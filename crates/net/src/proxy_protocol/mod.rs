//! The PROXY protocol, versions 1 and 2: who a connection comes from, told in its first bytes by the proxy
//! before this one.
//!
//! After the public specification, *The PROXY protocol, versions 1 & 2*; section numbers in this module are
//! its. Bytes in, a header out, and the reverse: no sockets, no clock, no state. Whether a peer may speak it
//! is decided above, and so is how long to wait for it. What does not match exactly is refused (2.1, 2.2): a
//! header that is guessed would let anybody choose an address.
//!
//! Call [`parse`] with all bytes that came so far, until it is [`Parsed::Complete`]; the connection's own
//! bytes begin behind [`length`](Parsed::Complete::length).
//!
//! Stricter than the specification asks for: vectors must fill the header to its end, a checksum may be there
//! once, and a header is not longer than [`LONGEST_V2`].

mod tlv;
mod v1;
mod v2;

pub use tlv::{Ssl, Tlv, Tlvs, kind};
pub use v1::emit as emit_v1;
pub use v2::{Emit, emit as emit_v2, emit_fitting as emit_v2_fitting};

use crate::address::Transport;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Longest header of version 1, in bytes, its line end included (2.1).
pub const LONGEST_V1: usize = 107;

/// Shortest header of either version, in bytes: `PROXY UNKNOWN` and its line end.
const SHORTEST: usize = 15;

/// Longest header of version 2 that is read, in bytes. The protocol allows 65,551, which anybody could make
/// us keep for each connection before its client is known; addresses, names and identifiers of usual senders
/// take some hundreds.
pub const LONGEST_V2: usize = 4096;

/// Longest identifier of a connection, in bytes (2.2.5).
pub const LONGEST_UNIQUE_ID: usize = 128;

/// What the bytes so far are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The beginning of a header.
    Incomplete {
        /// It takes so many bytes in all, or more.
        at_least: usize,
    },
    /// A header, and perhaps what follows it.
    Complete {
        /// The header.
        header: Header<'a>,
        /// Its bytes.
        length: usize,
    },
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The version that it was written in.
    pub version: Version,
    /// Between whom the connection is; none leaves that as it looks: the sender's own connection (`LOCAL`),
    /// or one of a kind that it has no words for (`UNKNOWN`).
    pub ends: Option<Ends<'a>>,
    /// Whether the sender relays a connection; otherwise it is its own, a health check for instance.
    pub relayed: bool,
    /// What else it says; nothing in version 1.
    pub tlvs: Tlvs<'a>,
}

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Between whom a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends<'a> {
    /// Between addresses and ports of one family.
    Ip {
        /// How its bytes travel.
        transport: Transport,
        /// Who began it.
        source: SocketAddr,
        /// Whom it was begun with.
        destination: SocketAddr,
    },
    /// Between unix sockets, by the names as the system has them: at most 108 bytes, without the zeros at
    /// their end.
    Unix {
        /// How its bytes travel.
        transport: Transport,
        /// Who began it.
        source: &'a [u8],
        /// Whom it was begun with.
        destination: &'a [u8],
    },
}

impl Ends<'_> {
    /// A TCP connection. Where the families differ, both are told as IPv6.
    pub fn tcp(source: SocketAddr, destination: SocketAddr) -> Self {
        let (source, destination) = same_family(source, destination);
        Self::Ip { transport: Transport::Stream, source, destination }
    }
}

/// Both as they are, or both in IPv6.
fn same_family(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    if a.is_ipv4() == b.is_ipv4() {
        return (a, b);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(a), mapped(b))
}

/// Why bytes are no header. The connection must be closed: it is not known whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes begin like no header of either version.
    Signature,
    /// No line end in the first 107 bytes, or half of one.
    LineEnd,
    /// A line with other words than it should have.
    Line,
    /// A line of another protocol than TCP4, TCP6 or UNKNOWN.
    Protocol,
    /// Another version than 2 behind the signature of version 2.
    Version(u8),
    /// A command that is not defined.
    Command(u8),
    /// A family or a transport that is not defined, of a connection that is relayed.
    Family(u8),
    /// A length that leaves no room for the addresses.
    Length(u16),
    /// A length that is more than is read.
    Long(u16),
    /// A vector that is longer than the header, or of another length than its type has.
    Tlv(u8),
    /// The checksum is another one.
    Checksum,
    /// There is more than one checksum, and it is not known which of them counts.
    Checksums,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the PROXY protocol header is bad: ")?;
        match self {
            Self::Signature => {
                f.write_str("the connection does not begin with one; is 'send-proxy' missing at the sender?")
            }
            Self::LineEnd => write!(f, "its line does not end with CR and LF within {LONGEST_V1} bytes"),
            Self::Line => f.write_str(
                "its line expects 'PROXY', a protocol, two addresses and two ports, found other words",
            ),
            Self::Protocol => f.write_str("its line expects TCP4, TCP6 or UNKNOWN, found another word"),
            Self::Version(version) => write!(f, "it expects version 1 or 2, found {version}"),
            Self::Command(command) => write!(f, "it expects command 0 or 1, found {command}"),
            Self::Family(family) => {
                write!(f, "it expects a family and transport that are defined, found {family:#04x}")
            }
            Self::Length(length) => write!(f, "its length {length} does not fit its addresses"),
            Self::Long(length) => {
                write!(f, "it expects at most {} bytes, found {length}", LONGEST_V2 - v2::FIXED)
            }
            Self::Tlv(kind) => write!(f, "its vector of type {kind:#04x} has a length that does not fit"),
            Self::Checksum => f.write_str("its checksum does not fit its bytes"),
            Self::Checksums => f.write_str("it expects one checksum, found two"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Reads a header of either version from the beginning of `bytes`. At most [`LONGEST_V2`] of them are looked
/// at.
///
/// # Errors
/// [`HeaderError`], as soon as the bytes cannot become a header any more.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, HeaderError> {
    if bytes.is_empty() {
        Ok(Parsed::Incomplete { at_least: SHORTEST })
    } else if begins_alike(bytes, &v2::SIGNATURE) {
        v2::parse(bytes)
    } else if begins_alike(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else {
        Err(HeaderError::Signature)
    }
}

fn begins_alike(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests;
