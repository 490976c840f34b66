//! The PROXY protocol, versions 1 and 2: the proxy before this one sends the addresses of a connection in its
//! first bytes.
//!
//! It follows the public specification, *The PROXY protocol, versions 1 & 2*, whose section numbers this
//! module uses. It turns bytes into a header and the reverse, without sockets, clock or state. The caller
//! decides whether a peer may use the protocol, and how long to wait for a header. Anything that does not
//! match exactly is refused (2.1, 2.2): guessing would let anybody choose an address.
//!
//! Call [`parse`] with all bytes that came so far, until it is [`Parsed::Complete`]; the connection's own
//! bytes begin behind [`length`](Parsed::Complete::length).
//!
//! It is stricter than the specification: TLVs must fill the header to its end, there may be one checksum,
//! and a header is not longer than [`LONGEST_V2`].

mod tlv;
mod v1;
mod v2;

pub use tlv::{Ssl, Tlv, Tlvs, kind};
pub use v1::emit as emit_v1;
pub use v2::{HeaderContents, emit as emit_v2, emit_fitting as emit_v2_fitting};

use crate::address::Transport;
use manylane_buf::Chain;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Longest header of version 1, in bytes, with its line end (2.1).
pub const LONGEST_V1: usize = 107;

/// Shortest header of either version, in bytes: `PROXY UNKNOWN` and its line end.
const SHORTEST: usize = 15;

/// Longest header of version 2 that is accepted, in bytes. The protocol allows 65,551, which any unknown
/// client could make this program keep for each connection. Addresses, names and identifiers of usual senders
/// take some hundred bytes.
pub const LONGEST_V2: usize = 4096;

/// Longest identifier of a connection, in bytes (2.2.5).
pub const LONGEST_UNIQUE_ID: usize = 128;

/// Result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The beginning of a header.
    Incomplete {
        /// The whole header takes at least this many bytes.
        at_least: usize,
    },
    /// A header, and perhaps bytes behind it.
    Complete {
        /// The header.
        header: Header<'a>,
        /// Size of the header, in bytes.
        length: usize,
    },
}

/// Contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Version that the header was written in.
    pub version: Version,
    /// Both ends of the connection. `None` keeps the ends of the transport: it is the sender's own connection
    /// (`LOCAL`), or of a kind that the sender cannot describe (`UNKNOWN`).
    pub ends: Option<EndpointPair<'a>>,
    /// True if the sender relays a connection; false if the connection is its own, such as a health check.
    pub relayed: bool,
    /// Other data; none in version 1.
    pub tlvs: Tlvs<'a>,
}

/// Version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointPair<'a> {
    /// Addresses and ports of one family.
    Ip {
        /// Transport of the connection.
        transport: Transport,
        /// Address that began the connection.
        source: SocketAddr,
        /// Address that the connection was made to.
        destination: SocketAddr,
    },
    /// Unix sockets, by their names in the system: at most 108 bytes, without the zeros at their end.
    Unix {
        /// Transport of the connection.
        transport: Transport,
        /// Socket that began the connection.
        source: &'a [u8],
        /// Socket that the connection was made to.
        destination: &'a [u8],
    },
}

impl EndpointPair<'_> {
    /// Returns the ends of a TCP connection. If the families differ, both addresses become IPv6.
    pub fn tcp(source: SocketAddr, destination: SocketAddr) -> Self {
        let (source, destination) = same_family(source, destination);
        Self::Ip { transport: Transport::Stream, source, destination }
    }
}

/// Returns both addresses in one family: unchanged, or both as IPv6.
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

/// Reason why bytes are no header. Close the connection: its client is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes do not begin like a header of either version.
    Signature,
    /// There is no line end in the first 107 bytes, or only half of one.
    LineEnd,
    /// The line has wrong words.
    Line,
    /// The line names another protocol than TCP4, TCP6 or UNKNOWN.
    Protocol,
    /// Another version than 2 follows the signature of version 2.
    Version(u8),
    /// The command is not defined.
    Command(u8),
    /// The family or the transport of a relayed connection is not defined.
    Family(u8),
    /// The length leaves no room for the addresses.
    Length(u16),
    /// The length is larger than this module accepts.
    Long(u16),
    /// A TLV is longer than the header, or has another length than its type requires.
    Tlv(u8),
    /// The checksum is wrong.
    Checksum,
    /// There are several checksums, and it is unknown which of them counts.
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
            Self::Tlv(kind) => write!(f, "its TLV of type {kind:#04x} has a wrong length"),
            Self::Checksum => f.write_str("its checksum does not fit its bytes"),
            Self::Checksums => f.write_str("it expects one checksum, found two"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Returns the received bytes that a header may have, in one piece; they stay in the chain. Bytes behind them
/// may be more than fit into one piece.
///
/// # Errors
/// No memory.
pub fn beginning(received: &mut Chain) -> Result<&[u8], manylane_buf::Error> {
    received.pull_up(received.len().min(LONGEST_V2))
}

/// Parses a header of either version at the start of `bytes`. It examines at most [`LONGEST_V2`] bytes.
///
/// # Errors
/// [`HeaderError`], as soon as the bytes cannot become a header.
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
