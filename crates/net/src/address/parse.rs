//! Parses an address from left to right.

use super::nearest::nearest;
use super::prefix::{self, Kind, PREFIXES, Prefix};
use super::{
    Address, AddressError, Family, Host, LONGEST_ABSTRACT, LONGEST_NAME, Location, Port, Quoted, Rules,
    Transport, Transports,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

pub(super) fn address(text: &str, rules: &Rules) -> Result<Address, AddressError> {
    Parser { text, rules }.address()
}

struct Parser<'a> {
    text: &'a str,
    rules: &'a Rules,
}

type Parsed<T> = Result<T, AddressError>;

impl Parser<'_> {
    fn error(
        &self,
        span: Range<usize>,
        wrong: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> AddressError {
        AddressError { address: self.text.into(), span, wrong: wrong.into(), remedy: remedy.into() }
    }

    fn address(&self) -> Parsed<Address> {
        let text = self.text;
        if text.is_empty() {
            return Err(self.error(0..0, "it is empty", format!("write {}", self.example())));
        }
        if let Some(at) = text.find('\0') {
            return Err(self.error(at..at + 1, "there is a zero byte", "take it out"));
        }
        if text.starts_with('/') {
            return Ok(Address { transport: None, location: self.unix(0)? });
        }
        let Some(at) = text.find('@') else {
            let (transport, start) = self.forced()?;
            self.transport(transport, 0..start)?;
            let unix = text[start..].starts_with('/');
            return Ok(Address {
                transport,
                location: if unix { self.unix(start)? } else { self.ip(start, None)? },
            });
        };
        let (transport, prefix) = self.prefix(at)?;
        self.transport(transport, 0..at + 1)?;
        let start = at + 1;
        let location = match prefix.kind {
            Kind::Ip(family) => self.ip(start, family)?,
            Kind::Unix => self.unix(start)?,
            Kind::Abstract { padded } => self.abstract_name(start, padded)?,
            Kind::Descriptor => {
                self.known_here(self.rules.descriptor, prefix, start)?;
                Location::Descriptor(self.descriptor(start)?)
            }
            Kind::SocketPair => {
                self.known_here(self.rules.socket_pair, prefix, start)?;
                Location::SocketPair(self.descriptor(start)?)
            }
            Kind::Local => {
                self.known_here(self.rules.local, prefix, start)?;
                Location::Local(self.name(start, "a name", LONGEST_ABSTRACT)?)
            }
            Kind::Refused { remedy } => {
                return Err(self.error(0..start, format!("'{}@' is not supported", prefix.name), remedy));
            }
        };
        Ok(Address { transport, location })
    }

    /// Returns the transport that `stream+` or `dgram+` forces without a family prefix, and the start of the
    /// address.
    fn forced(&self) -> Parsed<(Option<Transport>, usize)> {
        match self.text.split_once('+') {
            Some(("stream", _)) => Ok((Some(Transport::Stream), "stream+".len())),
            Some(("dgram", _)) => Ok((Some(Transport::Datagram), "dgram+".len())),
            Some(("quic", _)) => Err(self.error(0..5, "'quic+' is not supported", "QUIC is not built yet")),
            _ => Ok((None, 0)),
        }
    }

    /// Returns an example of this statement's addresses.
    fn example(&self) -> &'static str {
        if self.rules.port_needed {
            "an address such as '192.0.2.1:80'"
        } else {
            "an address such as '192.0.2.1'"
        }
    }

    /// Parses the prefix before the `@` at `at`. Returns the forced transport and the prefix.
    fn prefix(&self, at: usize) -> Parsed<(Option<Transport>, &'static Prefix)> {
        let whole = &self.text[..at];
        let (forced, name) = match whole.split_once('+') {
            Some(("stream", name)) => (Some(Transport::Stream), name),
            Some(("dgram", name)) => (Some(Transport::Datagram), name),
            _ => (None, whole),
        };
        let Some(prefix) = prefix::find(name) else {
            let start = at - name.len();
            let known = || PREFIXES.iter().map(|prefix| prefix.name);
            let remedy = match nearest(name, known()) {
                Some(near) => format!("did you mean '{near}@'?"),
                None => {
                    let built = PREFIXES.iter().filter(|prefix| !matches!(prefix.kind, Kind::Refused { .. }));
                    let all: Vec<_> = built.map(|prefix| prefix.name).collect();
                    format!("the known ones are {}", all.join(", "))
                }
            };
            return Err(self.error(start..at + 1, format!("unknown prefix '{}@'", Quoted(name)), remedy));
        };
        if forced.is_some() && !prefix.plain {
            let (span, plus) = (0..at - name.len(), &whole[..at - name.len()]);
            let wrong = format!("'{plus}' cannot stand before '{name}@'");
            return Err(self.error(span, wrong, format!("leave '{plus}' out")));
        }
        Ok((forced.or(prefix.transport), prefix))
    }

    /// Checks that the statement has the transport that the prefix at `span` forces.
    fn transport(&self, transport: Option<Transport>, span: Range<usize>) -> Parsed<()> {
        let (wrong, remedy) = match (transport, self.rules.transports) {
            (Some(Transport::Datagram), Transports::Stream) => {
                ("datagrams", "a stream prefix such as 'tcp@'")
            }
            (Some(Transport::Multipath), _) if !self.rules.multipath => {
                ("multipath TCP", "another prefix such as 'tcp@'")
            }
            (Some(Transport::Stream), Transports::Datagram) => {
                ("streams", "a datagram prefix such as 'udp@'")
            }
            _ => return Ok(()),
        };
        let wrong = format!("'{}' does not take {wrong}", self.rules.statement);
        Err(self.error(span, wrong, format!("use {remedy}, or none")))
    }

    fn known_here(&self, known: bool, prefix: &Prefix, end: usize) -> Parsed<()> {
        if known {
            return Ok(());
        }
        let wrong = format!("'{}' does not take '{}@'", self.rules.statement, prefix.name);
        Err(self.error(0..end, wrong, format!("write {}", self.example())))
    }

    fn unix(&self, start: usize) -> Parsed<Location> {
        if !self.rules.unix {
            let wrong = format!("'{}' does not take unix sockets", self.rules.statement);
            return Err(self.error(0..self.text.len(), wrong, format!("write {}", self.example())));
        }
        Ok(Location::Unix(self.name(start, "a path", self.rules.longest_path)?))
    }

    fn abstract_name(&self, start: usize, padded: bool) -> Parsed<Location> {
        if !self.rules.unix {
            return self.unix(start);
        }
        Ok(Location::Abstract { name: self.name(start, "a name", LONGEST_ABSTRACT)?, padded })
    }

    /// Returns the rest of the text, which must not be empty or longer than `longest` bytes.
    fn name(&self, start: usize, what: &str, longest: usize) -> Parsed<Box<str>> {
        let name = &self.text[start..];
        if name.is_empty() {
            let wrong = format!("{what} is missing");
            return Err(self.error(start..start, wrong, format!("write {what} behind the '@'")));
        }
        if name.len() > longest {
            let wrong = format!("{what} of {} bytes is too long", name.len());
            let remedy = format!("choose one of at most {longest} bytes");
            return Err(self.error(start..self.text.len(), wrong, remedy));
        }
        Ok(name.into())
    }

    fn descriptor(&self, start: usize) -> Parsed<i32> {
        let number = &self.text[start..];
        let value = digits(number).and_then(|value| i32::try_from(value).ok());
        value.ok_or_else(|| {
            let wrong = if number.is_empty() {
                "the number of a descriptor is missing".into()
            } else {
                format!("'{}' is not the number of a descriptor", Quoted(number))
            };
            let remedy = format!("write one from 0 to {}", i32::MAX);
            self.error(start..self.text.len(), wrong, remedy)
        })
    }

    /// Parses `[host][:[port]]` from `start` on.
    fn ip(&self, start: usize, family: Option<Family>) -> Parsed<Location> {
        let text = &self.text[start..];
        // The last colon begins the port, unless it is inside of brackets.
        let colon = text.rfind([':', ']']).filter(|at| text.as_bytes()[*at] == b':');
        let end = start + colon.unwrap_or(text.len());
        // `::1:80` may mean `::1` and a port, and `1::` has a colon without a port. So a text that is a valid
        // host without its last group is read as HAProxy reads it.
        if colon.is_some()
            && let Ok(ip) = text.parse::<Ipv6Addr>()
            && self.text[start..end].parse::<Ipv6Addr>().is_err()
        {
            let remedy = if self.rules.port_needed {
                format!("write '[{ip}]:80', with your port")
            } else {
                format!("write '[{ip}]'")
            };
            return Err(self.error(
                start..self.text.len(),
                "an IPv6 address without a port needs brackets",
                remedy,
            ));
        }
        let host = self.host(start..end, family)?;
        let port = match colon {
            Some(_) => self.port(end + 1)?,
            None if self.rules.port_needed => return Err(self.no_port()),
            None => Port::Unset,
        };
        Ok(Location::Ip { host, port })
    }

    fn host(&self, span: Range<usize>, family: Option<Family>) -> Parsed<Host> {
        let text = &self.text[span.clone()];
        if text.is_empty() || text == "*" {
            return Ok(match family {
                Some(Family::V6) => Host::V6(Ipv6Addr::UNSPECIFIED),
                _ => Host::V4(Ipv4Addr::UNSPECIFIED),
            });
        }
        if text.contains('%') {
            let remedy = "leave it out, and name the device with 'interface'";
            return Err(self.error(span, "a zone (behind '%') is not supported", remedy));
        }
        let inner = if text.starts_with('[') || text.ends_with(']') {
            match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                Some(inner) => inner,
                None => return Err(self.error(span, "brackets do not match", "write '[' address ']'")),
            }
        } else {
            text
        };
        let bracketed = inner.len() < text.len();
        let wrong_family = |is: &str, other: &str| {
            let wrong = format!("'{text}' is an {is} address and the prefix asks for {other}");
            Err(self.error(span.clone(), wrong, "change one of them"))
        };
        if inner.contains(':') {
            return match (inner.parse(), family) {
                (Ok(_), Some(Family::V4)) => wrong_family("IPv6", "IPv4"),
                (Ok(ip), _) => Ok(Host::V6(ip)),
                (Err(_), _) if inner.contains("://") => {
                    let wrong = format!("'{}' is a URL, not an address", Quoted(inner));
                    Err(self.error(span, wrong, format!("write {}", self.example())))
                }
                (Err(_), _) => {
                    let wrong = format!("'{}' is not an IPv6 address", Quoted(inner));
                    Err(self.error(span, wrong, "write one such as '[2001:db8::1]'"))
                }
            };
        }
        if bracketed || inner.bytes().all(|c| c.is_ascii_digit() || c == b'.') {
            return match (inner.parse(), family) {
                (Ok(_), Some(Family::V6)) => wrong_family("IPv4", "IPv6"),
                (Ok(ip), _) => Ok(Host::V4(ip)),
                (Err(_), _) if self.rules.port_needed && text == self.text && digits(text).is_some() => {
                    let wrong = format!("'{text}' is an address without a port");
                    Err(self.error(span, wrong, format!("did you mean ':{text}'?")))
                }
                (Err(_), _) => {
                    let wrong = format!("'{}' is not an IP address", Quoted(inner));
                    Err(self.error(span, wrong, "write four numbers from 0 to 255, as in '192.0.2.1'"))
                }
            };
        }
        self.host_name(span, family)
    }

    fn host_name(&self, span: Range<usize>, family: Option<Family>) -> Parsed<Host> {
        let name = &self.text[span.clone()];
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some((at, c)) = name.char_indices().find(|(_, c)| !known(*c)) {
            let (start, end) = (span.start + at, span.start + at + c.len_utf8());
            let wrong = format!("a host name cannot have the character '{}'", Quoted(&self.text[start..end]));
            return Err(self.error(start..end, wrong, "use letters, digits, '-', '_' and dots"));
        }
        // A dot at the end names the root; no part follows it.
        let parts = name.strip_suffix('.').unwrap_or(name).split('.');
        if name.len() > LONGEST_NAME || parts.clone().any(|part| part.is_empty() || part.len() > 63) {
            let wrong = format!("'{}' is not a host name", Quoted(name));
            let remedy =
                format!("between dots there are 1 to 63 characters, and at most {LONGEST_NAME} in all");
            return Err(self.error(span, wrong, remedy));
        }
        if !self.rules.names {
            let wrong = format!("'{}' does not take host names", self.rules.statement);
            return Err(self.error(span, wrong, format!("write {}", self.example())));
        }
        Ok(Host::Name { name: name.into(), family })
    }

    fn no_port(&self) -> AddressError {
        let end = self.text.len();
        let wrong = format!("'{}' is an address without a port", Quoted(self.text));
        self.error(end..end, wrong, "add one from 1 to 65535, as in ':80'")
    }

    /// Parses the text behind the colon, from `start` on.
    fn port(&self, start: usize) -> Parsed<Port> {
        let text = &self.text[start..];
        let span = start..self.text.len();
        let number = |text: &str| digits(text).and_then(|value| u16::try_from(value).ok());
        let refused = |what: &str, remedy: &str| {
            let wrong = format!("'{}' does not take {what}", self.rules.statement);
            Err(self.error(span.clone(), wrong, remedy))
        };
        if text.is_empty() {
            return if self.rules.port_needed { Err(self.no_port()) } else { Ok(Port::Unset) };
        }
        if let Some(offset) = text.strip_prefix(['+', '-']) {
            let Some(offset) = number(offset).map(i32::from) else {
                let wrong = format!("'{}' is not an offset", Quoted(text));
                return Err(self.error(span, wrong, "write '+' or '-' and a number up to 65535"));
            };
            if !self.rules.port_offset {
                return refused("an offset for a port", "write the port's number");
            }
            return Ok(Port::Offset(if text.starts_with('-') { -offset } else { offset }));
        }
        if let Some((low, high)) = text.split_once('-') {
            let (Some(low @ 1..), Some(high @ 1..)) = (number(low), number(high)) else {
                let wrong = format!("'{}' is not a range of ports", Quoted(text));
                return Err(self.error(span, wrong, "write two numbers from 1 to 65535, as in ':80-85'"));
            };
            if low > high {
                let wrong = format!("the range {low}-{high} ends before it begins");
                return Err(self.error(span, wrong, format!("write ':{high}-{low}'")));
            }
            if low == high {
                return Ok(Port::One(low));
            }
            if !self.rules.port_range {
                return refused("a range of ports", "write one port");
            }
            return Ok(Port::Range { low, high });
        }
        match number(text) {
            Some(0) if self.rules.port_needed => {
                Err(self.error(span, "port 0 cannot be used here", "write a number from 1 to 65535"))
            }
            Some(0) => Ok(Port::Unset),
            Some(port) => Ok(Port::One(port)),
            None => {
                let wrong = format!("'{}' is not a port", Quoted(text));
                Err(self.error(span, wrong, "write a number from 1 to 65535"))
            }
        }
    }
}

/// Parses a number in decimal digits only; `None` if it does not fit.
fn digits(text: &str) -> Option<u32> {
    let all = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}
