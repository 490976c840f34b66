//! Where to listen, and where to connect to: the addresses of configuration files (section 11 of HAProxy's
//! configuration manual), and our own `local@`.
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
//! are taken apart before an address comes here.
//!
//! Known differences from HAProxy, each an error that says what to write instead: an IPv6 address without
//! brackets whose last group would be taken for a port by mistake (`::1`); dotted numbers that are no IPv4
//! address (`10.1`); names with characters that host names do not have; an offset of more than 65535; empty
//! paths.

mod nearest;
mod parse;
mod prefix;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Longest path of a unix socket that can be connected to, in bytes: what the system's address has room for.
pub const LONGEST_PATH: usize = 107;

/// Longest path of a unix socket that can be bound, in bytes. The listener is made under another name beside
/// it first, which is longer by these ten bytes.
pub const LONGEST_BOUND_PATH: usize = LONGEST_PATH - 10;

/// Longest name in the abstract namespace, in bytes: a path's room without the first byte.
pub const LONGEST_ABSTRACT: usize = LONGEST_PATH;

/// Longest host name, in bytes (RFC 1035, section 2.3.4).
pub const LONGEST_NAME: usize = 253;

/// One address of a configuration file, checked. [`fmt::Display`] writes it so that it reads back as the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The transport that the prefix forces; none leaves it to the statement.
    pub transport: Option<Transport>,
    /// Where.
    pub place: Location,
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A byte stream: TCP, or a stream socket.
    Stream,
    /// Messages: UDP, or a datagram socket.
    Datagram,
}

/// What an address points to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A host and its port.
    Ip {
        /// The host.
        host: Host,
        /// The port, or ports.
        port: Port,
    },
    /// A unix socket by its path, which may be relative.
    Unix(Box<str>),
    /// A unix socket in Linux's abstract namespace.
    Abstract {
        /// Its name, without the leading zero byte.
        name: Box<str>,
        /// `abns@`: zero bytes up to the end of the system's address are part of the name, as HAProxy has
        /// it. `abnsz@`: the name is as long as it looks, as most other programs have it.
        padded: bool,
    },
    /// A descriptor that was inherited, bound and perhaps listening.
    Descriptor(i32),
    /// A descriptor of a connected unix socket, over which connected sockets are passed.
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
    /// A name, to be resolved.
    Name {
        /// As it was written; letters, digits, `-`, `_` and dots.
        name: Box<str>,
        /// To addresses of this family only.
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

/// A port, or what stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// None was given, or 0: for a server, the port that the client connected to.
    Unset,
    /// This one; 1 to 65535.
    One(u16),
    /// Each of these: `1 <= low < high`.
    Range {
        /// The first.
        low: u16,
        /// The last, which belongs to the range.
        high: u16,
    },
    /// The port that the client connected to, and so many more; -65535 to 65535.
    Offset(i32),
}

impl Port {
    /// The ports to use, in order: one, all of a range; none where none was given, or an offset.
    pub fn iter(self) -> std::ops::RangeInclusive<u16> {
        match self {
            Self::One(port) => port..=port,
            Self::Range { low, high } => low..=high,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty one is meant")]
            Self::Unset | Self::Offset(_) => 1..=0,
        }
    }

    /// The port of a server for a client that connected to `client`; none when an offset leads out of 1 to
    /// 65535, or the port is a range.
    pub fn of_server(self, client: u16) -> Option<u16> {
        match self {
            Self::Unset => Some(client),
            Self::One(port) => Some(port),
            Self::Offset(offset) => u16::try_from(i32::from(client) + offset).ok().filter(|port| *port != 0),
            Self::Range { .. } => None,
        }
    }
}

/// What a statement takes for an address. Start from one of the constants.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The statement, for messages: `bind`.
    pub statement: &'static str,
    /// Which transports may be meant.
    pub transports: Transports,
    /// A port must be there, and not 0.
    pub port_needed: bool,
    /// `low-high` may stand for the port.
    pub port_range: bool,
    /// `+n` and `-n` may stand for the port.
    pub port_offset: bool,
    /// `unix@`, `abns@` and paths may be meant.
    pub unix: bool,
    /// `fd@` may be meant.
    pub descriptor: bool,
    /// `sockpair@` may be meant.
    pub socket_pair: bool,
    /// `local@` may be meant.
    pub local: bool,
    /// Names may stand for the host.
    pub names: bool,
    /// Longest path of a unix socket, in bytes.
    pub longest_path: usize,
}

/// The transports that a statement knows. The first is what an address without a forcing prefix means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transports {
    /// Streams only.
    Stream,
    /// Datagrams, or streams where the prefix says so.
    DatagramOrStream,
    /// Datagrams only.
    Datagram,
}

impl Transports {
    /// What an address means that forces none.
    pub fn default(self) -> Transport {
        match self {
            Self::Stream => Transport::Stream,
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
        names: true,
        longest_path: LONGEST_BOUND_PATH,
    };

    /// `dgram-bind`, in `log-forward` sections.
    pub const DGRAM_BIND: Self = Self {
        statement: "dgram-bind",
        transports: Transports::Datagram,
        socket_pair: false,
        local: false,
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
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `source` of a server, where ranges of ports are known.
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
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `log`: datagrams unless a prefix says otherwise.
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
        names: true,
        longest_path: LONGEST_PATH,
    };

    /// `nameserver`: an address and a port, since names cannot be resolved there.
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
    /// Reads `text` as `rules` allow.
    ///
    /// # Errors
    /// [`AddressError`]: the first thing that is wrong, from left to right.
    pub fn parse(text: &str, rules: &Rules) -> Result<Self, AddressError> {
        parse::address(text, rules)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Transport::{Datagram, Stream};
        let forced = match self.transport {
            None => "",
            Some(Stream) => "stream+",
            Some(Datagram) => "dgram+",
        };
        match &self.place {
            Location::Ip { host, port } => {
                let family = match host {
                    Host::Name { family, .. } => *family,
                    Host::V4(_) | Host::V6(_) => None, // it shows
                };
                f.write_str(match (self.transport, family) {
                    (None, None) => "",
                    (None, Some(Family::V4)) => "ipv4@",
                    (None, Some(Family::V6)) => "ipv6@",
                    (Some(Stream), None) => "tcp@",
                    (Some(Stream), Some(Family::V4)) => "tcp4@",
                    (Some(Stream), Some(Family::V6)) => "tcp6@",
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
                    Some(Stream) => "uxst@",
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

/// With its colon: `:80`, or nothing.
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

/// Why a text is no address: the place in it, what is wrong there, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    address: Box<str>,
    span: Range<usize>,
    wrong: Box<str>,
    remedy: Box<str>,
}

impl AddressError {
    /// The bytes of the text that are wrong; empty where something is missing.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is wrong, without the address and the position: `unknown prefix 'tpc@'`.
    pub fn wrong(&self) -> &str {
        &self.wrong
    }

    /// The same, with the address where it does not tell it: `a host name cannot have the character '!' in
    /// 'a!'`.
    pub fn wrong_in(&self) -> String {
        let address = format!("'{}'", Quoted(&self.address));
        if self.wrong.contains(&address) {
            self.wrong.to_string()
        } else {
            format!("{} in {address}", self.wrong)
        }
    }

    /// What to do about it: `did you mean 'tcp@'?`.
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

/// Text from outside, for a message: control characters are escaped, and what is very long is cut.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

/// Characters of a text that messages show.
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
