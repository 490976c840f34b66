//! Addresses of configuration files to listen at and to connect to (section 11 of HAProxy's configuration
//! manual), and our own `local@`.
//!
//! ```text
//! address    [prefix "@"] place
//! prefix     ["stream+" | "dgram+"] family, or an alias such as "tcp4"
//! place      [host] [":" [port]]      families ip, ipv4, ipv6
//!            path | name | number     the others; a path that begins with '/' needs no prefix
//! host       "*" | v4 | v6 | "[" v6 "]" | name; nothing is "*"
//! port       number | low "-" high | ("+" | "-") number
//! ```
//!
//! The last colon begins the port, unless brackets follow it. Comma-separated lists and environment variables
//! are resolved before an address comes here.
//!
//! Known differences from HAProxy, each an error with a remedy: an IPv6 address without brackets whose last
//! group would be mistaken for a port (`::1`); dotted numbers that are no IPv4 address (`10.1`); names with
//! characters that host names do not have; an offset of more than 65535; empty paths.

mod nearest;
mod parse;
mod prefix;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Longest path of a unix socket to connect to, in bytes: the room in the system's address.
pub const LONGEST_PATH: usize = 107;

/// Longest path of a unix socket to listen at, in bytes. The listener is first bound to a temporary name
/// beside it, which is ten bytes longer.
pub const LONGEST_BOUND_PATH: usize = LONGEST_PATH - 10;

/// Longest name in the abstract namespace, in bytes: the room of a path without the first byte.
pub const LONGEST_ABSTRACT: usize = LONGEST_PATH;

/// Longest host name, in bytes (RFC 1035, section 2.3.4).
pub const LONGEST_NAME: usize = 253;

/// One checked address of a configuration file. [`fmt::Display`] writes it in a form that parses to the same
/// address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Transport that the prefix forces; `None` leaves it to the statement.
    pub transport: Option<Transport>,
    /// Location that the address refers to.
    pub location: Location,
}

/// Kind of transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A byte stream: TCP, or a stream socket.
    Stream,
    /// A byte stream over several paths: MPTCP (RFC 8684).
    Multipath,
    /// Messages: UDP, or a datagram socket.
    Datagram,
}

/// Location that an address refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A host and its port.
    Ip {
        /// The host.
        host: Host,
        /// Port or ports.
        port: Port,
    },
    /// Path of a unix socket; it may be relative.
    Unix(Box<str>),
    /// A unix socket in Linux's abstract namespace.
    Abstract {
        /// Name, without the leading zero byte.
        name: Box<str>,
        /// With `abns@`, zero bytes up to the end of the system's address belong to the name, as in HAProxy.
        /// With `abnsz@`, the name is as long as written, as in most other programs.
        padded: bool,
    },
    /// An inherited descriptor that is bound, and may be listening.
    Descriptor(i32),
    /// Descriptor of a connected unix socket, over which connected sockets are passed.
    SocketPair(i32),
    /// A socket inside of this process (R-A8).
    Local(Box<str>),
}

/// A host. `*` is `0.0.0.0`, and `ipv6@*` is `::`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// A name to be resolved.
    Name {
        /// As written: letters, digits, `-`, `_` and dots.
        name: Box<str>,
        /// Restricts the name to addresses of this family.
        family: Option<Family>,
    },
}

/// A family of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A port, or its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// No port, or 0: for a server, the port that the client connected to.
    Unset,
    /// One port: 1 to 65535.
    One(u16),
    /// A range of ports: `1 <= low < high`.
    Range {
        /// First port.
        low: u16,
        /// Last port, inclusive.
        high: u16,
    },
    /// Offset from the port that the client connected to: -65535 to 65535.
    Offset(i32),
}

impl Port {
    /// Returns the ports in order: one, or those of a range; none if there is no port, or an offset.
    pub fn iter(self) -> std::ops::RangeInclusive<u16> {
        match self {
            Self::One(port) => port..=port,
            Self::Range { low, high } => low..=high,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty one is meant")]
            Self::Unset | Self::Offset(_) => 1..=0,
        }
    }

    /// Returns the port of a server for a client that connected to `client`. Returns `None` if an offset
    /// leads out of 1 to 65535, or the port is a range.
    pub fn of_server(self, client: u16) -> Option<u16> {
        match self {
            Self::Unset => Some(client),
            Self::One(port) => Some(port),
            Self::Offset(offset) => u16::try_from(i32::from(client) + offset).ok().filter(|port| *port != 0),
            Self::Range { .. } => None,
        }
    }
}

/// Forms of addresses that a statement accepts. Start from one of the constants.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Name of the statement, for messages: `bind`.
    pub statement: &'static str,
    /// Transports that the statement accepts.
    pub transports: Transports,
    /// True if a port other than 0 is required.
    pub port_needed: bool,
    /// True if `low-high` may replace the port.
    pub port_range: bool,
    /// True if `+n` and `-n` may replace the port.
    pub port_offset: bool,
    /// True if `unix@`, `abns@` and paths are accepted.
    pub unix: bool,
    /// True if `fd@` is accepted.
    pub descriptor: bool,
    /// True if `sockpair@` is accepted.
    pub socket_pair: bool,
    /// True if `local@` is accepted.
    pub local: bool,
    /// True if `mptcp@` is accepted.
    pub multipath: bool,
    /// True if names may replace the host.
    pub names: bool,
    /// Longest path of a unix socket, in bytes.
    pub longest_path: usize,
}

/// Transports of a statement. The first one is the default for an address without a forcing prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transports {
    /// Streams only.
    Stream,
    /// Datagrams, or streams if the prefix forces them.
    DatagramOrStream,
    /// Streams, or datagrams if the prefix forces them.
    StreamOrDatagram,
    /// Datagrams only.
    Datagram,
}

impl Transports {
    /// Returns the default transport.
    pub fn default(self) -> Transport {
        match self {
            Self::Stream | Self::StreamOrDatagram => Transport::Stream,
            Self::DatagramOrStream | Self::Datagram => Transport::Datagram,
        }
    }
}

impl Rules {
    /// `bind`, in frontends and for the statistics socket.
    pub const BIND: Self = Self {
        statement: "bind",
        transports: Transports::Stream,
        port_needed: true,
        port_range: true,
        port_offset: false,
        unix: true,
        descriptor: true,
        socket_pair: true,
        local: true,
        multipath: true,
        names: true,
        longest_path: LONGEST_BOUND_PATH,
    };

    /// `dgram-bind`, in `log-forward` sections.
    pub const DGRAM_BIND: Self = Self {
        statement: "dgram-bind",
        transports: Transports::Datagram,
        socket_pair: false,
        local: false,
        multipath: false,
        ..Self::BIND
    };

    /// `server`.
    pub const SERVER: Self = Self {
        statement: "server",
        transports: Transports::Stream,
        port_needed: false,
        port_range: false,
        port_offset: true,
        unix: true,
        descriptor: false,
        socket_pair: true,
        local: true,
        multipath: false,
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `source` of a server, which may have ranges of ports.
    pub const SOURCE: Self = Self {
        statement: "source",
        transports: Transports::Stream,
        port_needed: false,
        port_range: true,
        port_offset: false,
        unix: false,
        descriptor: false,
        socket_pair: false,
        local: false,
        multipath: false,
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `log`: datagrams unless a prefix forces streams.
    pub const LOG: Self = Self {
        statement: "log",
        transports: Transports::DatagramOrStream,
        port_needed: false,
        port_range: false,
        port_offset: false,
        unix: true,
        descriptor: true,
        socket_pair: false,
        local: false,
        multipath: false,
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `nameserver`: an address and a port, because names cannot be resolved there.
    pub const NAMESERVER: Self = Self {
        statement: "nameserver",
        port_needed: true,
        unix: false,
        descriptor: false,
        names: false,
        ..Self::LOG
    };
}

impl Address {
    /// Parses `text` as `rules` allow.
    ///
    /// # Errors
    /// [`AddressError`]: the first error from left to right.
    pub fn parse(text: &str, rules: &Rules) -> Result<Self, AddressError> {
        parse::address(text, rules)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Transport::{Datagram, Multipath, Stream};
        let forced = match self.transport {
            None => "",
            Some(Stream | Multipath) => "stream+",
            Some(Datagram) => "dgram+",
        };
        match &self.location {
            Location::Ip { host, port } => {
                let family = match host {
                    Host::Name { family, .. } => *family,
                    Host::V4(_) | Host::V6(_) => None, // it is visible
                };
                f.write_str(match (self.transport, family) {
                    (None, None) => "",
                    (None, Some(Family::V4)) => "ipv4@",
                    (None, Some(Family::V6)) => "ipv6@",
                    (Some(Stream), None) => "tcp@",
                    (Some(Stream), Some(Family::V4)) => "tcp4@",
                    (Some(Stream), Some(Family::V6)) => "tcp6@",
                    (Some(Multipath), None) => "mptcp@",
                    (Some(Multipath), Some(Family::V4)) => "mptcp4@",
                    (Some(Multipath), Some(Family::V6)) => "mptcp6@",
                    (Some(Datagram), None) => "udp@",
                    (Some(Datagram), Some(Family::V4)) => "udp4@",
                    (Some(Datagram), Some(Family::V6)) => "udp6@",
                })?;
                write!(f, "{host}{port}")
            }
            Location::Unix(path) => {
                f.write_str(match self.transport {
                    None if path.starts_with('/') => "",
                    None => "unix@",
                    Some(Stream | Multipath) => "uxst@",
                    Some(Datagram) => "uxdg@",
                })?;
                f.write_str(path)
            }
            Location::Abstract { name, padded: true } => write!(f, "{forced}abns@{name}"),
            Location::Abstract { name, padded: false } => write!(f, "{forced}abnsz@{name}"),
            Location::Descriptor(number) => write!(f, "{forced}fd@{number}"),
            Location::SocketPair(number) => write!(f, "{forced}sockpair@{number}"),
            Location::Local(name) => write!(f, "local@{name}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.fmt(f),
            Self::V6(ip) => write!(f, "[{ip}]"),
            Self::Name { name, .. } => f.write_str(name),
        }
    }
}

/// Writes the port with its colon: `:80`, or nothing.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => Ok(()),
            Self::One(port) => write!(f, ":{port}"),
            Self::Range { low, high } => write!(f, ":{low}-{high}"),
            Self::Offset(offset) => write!(f, ":{offset:+}"),
        }
    }
}

/// Reason why a text is no address: the position, the error, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    address: Box<str>,
    span: Range<usize>,
    wrong: Box<str>,
    remedy: Box<str>,
}

impl AddressError {
    /// Returns the range of the wrong bytes; empty if something is missing.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns the error, with the address if the error does not contain it:
    /// `a host name cannot have the character '!' in 'a!'`.
    pub fn wrong_in(&self) -> String {
        let address = format!("'{}'", Quoted(&self.address));
        if self.wrong.contains(&address) {
            self.wrong.to_string()
        } else {
            format!("{} in {address}", self.wrong)
        }
    }

    /// Returns the remedy: `did you mean 'tcp@'?`.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.address.get(..self.span.start).map_or(0, |before| before.chars().count()) + 1;
        let (address, wrong, remedy) = (Quoted(&self.address), &self.wrong, &self.remedy);
        write!(f, "address '{address}', column {column}: {wrong}; {remedy}")
    }
}

impl std::error::Error for AddressError {}

/// Foreign text in a message: control characters are escaped, and a long text is cut.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

/// Number of characters that messages show.
const SHOWN: usize = 128;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(SHOWN) {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        if self.0.chars().nth(SHOWN).is_some() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
