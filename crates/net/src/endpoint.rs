//! One exact address to listen at or to connect to: no name, no range, no offset.

use crate::address::{Address, Family, Host, LONGEST_ABSTRACT, Location, Port};
use crate::error::{Refused, Step};
use manylane_io::Errno;
use manylane_io::socket::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// An exact address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
    /// Name of a unix socket in the abstract namespace, as the system has it, with padding.
    Abstract(Box<[u8]>),
    /// An inherited descriptor.
    Descriptor(i32),
    /// An inherited descriptor, over which connected sockets are passed.
    SocketPair(i32),
    /// A socket inside of this process (R-A8).
    Local(Box<str>),
}

/// Reason why an address cannot become endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAnEndpoint {
    /// The host's name has to be resolved first.
    Name(Box<str>),
    /// The name has no address.
    Unknown {
        /// The name.
        name: Box<str>,
        /// The resolver's error.
        reason: Box<str>,
    },
    /// The offset from the port that the client connected to leads to no valid port.
    Port {
        /// Port that the client connected to.
        client: u16,
        /// The offset.
        port: Port,
    },
}

impl fmt::Display for NotAnEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "the host name '{name}' was not resolved; resolve it first"),
            Self::Unknown { name, reason } => {
                write!(
                    f,
                    "the host name '{name}' has no address: {reason}; check the name, or write an address"
                )
            }
            Self::Port { client, port } => write!(
                f,
                "a client's port {client} and the server's '{port}' make no port from 1 to 65535; write the \
                    server's port"
            ),
        }
    }
}

impl std::error::Error for NotAnEndpoint {}

impl Address {
    /// Replaces the host's name by its first address of the required family. It calls the system's resolver,
    /// which may take seconds: for start-up, or a thread that may block.
    ///
    /// # Errors
    /// [`NotAnEndpoint::Unknown`].
    pub fn resolve(&self) -> Result<Self, NotAnEndpoint> {
        let Location::Ip { host: Host::Name { name, family }, port } = &self.location else {
            return Ok(self.clone());
        };
        let unknown = |reason: &str| NotAnEndpoint::Unknown { name: name.clone(), reason: reason.into() };
        let found = (&**name, 0).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?;
        let fits = |ip: &IpAddr| match family {
            None => true,
            Some(Family::V4) => ip.is_ipv4(),
            Some(Family::V6) => ip.is_ipv6(),
        };
        let host = match found.map(|found| found.ip()).find(fits) {
            Some(IpAddr::V4(ip)) => Host::V4(ip),
            Some(IpAddr::V6(ip)) => Host::V6(ip),
            None => return Err(unknown("it has none of the family that is asked for")),
        };
        Ok(Self { transport: self.transport, location: Location::Ip { host, port: *port } })
    }

    /// Returns the endpoints to listen at, one for each port; none without a port.
    ///
    /// # Errors
    /// [`NotAnEndpoint::Name`].
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, NotAnEndpoint> {
        let one = match &self.location {
            Location::Ip { host, port } => {
                let ip = known(host)?;
                let all = port.iter().map(|port| Endpoint::Ip(SocketAddr::new(ip, port)));
                return Ok(all.collect());
            }
            Location::Unix(path) => Endpoint::Unix(Path::new(&**path).to_owned()),
            Location::Abstract { name, padded } => {
                let mut name = name.as_bytes().to_vec();
                if *padded {
                    name.resize(LONGEST_ABSTRACT.max(name.len()), 0);
                }
                Endpoint::Abstract(name.into())
            }
            Location::Descriptor(number) => Endpoint::Descriptor(*number),
            Location::SocketPair(number) => Endpoint::SocketPair(*number),
            Location::Local(name) => Endpoint::Local(name.clone()),
        };
        Ok(vec![one])
    }

    /// Returns the endpoint of a server, for a client that connected to `client`: its host or port is used
    /// where the address has none.
    ///
    /// # Errors
    /// [`NotAnEndpoint`].
    pub fn of_server(&self, client: SocketAddr) -> Result<Endpoint, NotAnEndpoint> {
        let Location::Ip { host, port } = &self.location else {
            return self.endpoints().map(|mut one| one.swap_remove(0));
        };
        let number = port.of_server(client.port());
        let number = number.ok_or(NotAnEndpoint::Port { client: client.port(), port: *port });
        let mut server = client; // not only the IP address: a link-local one has its device with it
        match known(host)? {
            ip if ip.is_unspecified() => server.set_port(number?),
            ip => server = SocketAddr::new(ip, number?),
        }
        Ok(Endpoint::Ip(server))
    }
}

fn known(host: &Host) -> Result<IpAddr, NotAnEndpoint> {
    match host {
        Host::V4(ip) => Ok((*ip).into()),
        Host::V6(ip) => Ok((*ip).into()),
        Host::Name { name, .. } => Err(NotAnEndpoint::Name(name.clone())),
    }
}

impl Endpoint {
    /// Returns its family and address in the system's form; `None` if it is no address of the system.
    pub(crate) fn system(&self) -> Result<Option<(AddressFamily, SocketAddrAny)>, Refused> {
        Ok(Some(match self {
            Self::Ip(address @ SocketAddr::V4(_)) => (AddressFamily::INET, (*address).into()),
            Self::Ip(address @ SocketAddr::V6(_)) => (AddressFamily::INET6, (*address).into()),
            Self::Unix(path) => (AddressFamily::UNIX, unix_address(path)?),
            Self::Abstract(name) => {
                let address = SocketAddrUnix::new_abstract_name(name).map_err(|errno| (Step::Bind, errno))?;
                (AddressFamily::UNIX, address.into())
            }
            Self::Descriptor(_) | Self::SocketPair(_) | Self::Local(_) => return Ok(None),
        }))
    }

    /// Converts a socket's own address from the system's form.
    pub(crate) fn from_system(address: &SocketAddrAny) -> Option<Self> {
        if let Ok(ip) = SocketAddr::try_from(address.clone()) {
            return Some(Self::Ip(ip));
        }
        let unix = SocketAddrUnix::try_from(address.clone()).ok()?;
        if let Some(name) = unix.abstract_name() {
            return Some(Self::Abstract(name.into()));
        }
        use std::os::unix::ffi::OsStrExt;
        let path = unix.path_bytes()?;
        Some(Self::Unix(Path::new(std::ffi::OsStr::from_bytes(path)).to_owned()))
    }
}

pub(crate) fn unix_address(path: &Path) -> Result<SocketAddrAny, Refused> {
    let address = SocketAddrUnix::new(path).map_err(|errno| (Step::Bind, errno))?;
    if path.as_os_str().is_empty() {
        return Err((Step::Bind, Errno::INVAL)); // the system would choose a name
    }
    Ok(address.into())
}

/// Writes the endpoint as an address of a configuration file.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) if path.is_absolute() => path.display().fmt(f),
            Self::Unix(path) => write!(f, "unix@{}", path.display()),
            Self::Abstract(name) => {
                let padded = name.len() == LONGEST_ABSTRACT;
                let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let prefix = if padded { "abns" } else { "abnsz" };
                write!(f, "{prefix}@{}", String::from_utf8_lossy(&name[..end]))
            }
            Self::Descriptor(number) => write!(f, "fd@{number}"),
            Self::SocketPair(number) => write!(f, "sockpair@{number}"),
            Self::Local(name) => write!(f, "local@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Rules;

    fn endpoints(text: &str) -> Vec<String> {
        let address = Address::parse(text, &Rules::BIND).unwrap();
        address.endpoints().unwrap().iter().map(Endpoint::to_string).collect()
    }

    #[test]
    fn a_range_is_one_endpoint_for_each_port() {
        assert_eq!(endpoints("[::1]:80-82"), ["[::1]:80", "[::1]:81", "[::1]:82"]);
        assert_eq!(endpoints(":65535"), ["0.0.0.0:65535"]);
        for text in ["/run/a", "unix@a", "abns@a", "abnsz@a", "fd@3", "sockpair@4", "local@x"] {
            assert_eq!(endpoints(text), [text]);
        }
    }

    #[test]
    fn a_servers_endpoint_takes_from_the_client_what_it_does_not_say() {
        let client = "192.0.2.9:8000".parse().unwrap();
        let of = |text| Address::parse(text, &Rules::SERVER).unwrap().of_server(client);
        for (text, expected) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("192.0.2.1", "192.0.2.1:8000"),
            ("192.0.2.1:-1", "192.0.2.1:7999"),
            ("*:80", "192.0.2.9:80"),
            ("/run/x", "/run/x"),
        ] {
            assert_eq!(of(text).unwrap().to_string(), expected, "{text}");
        }
        // A link-local address means nothing without its device.
        let server = Address::parse("*:80", &Rules::SERVER).unwrap();
        let link_local = "[fe80::1%7]:8000".parse().unwrap();
        assert_eq!(server.of_server(link_local), Ok(Endpoint::Ip("[fe80::1%7]:80".parse().unwrap())));
        assert_eq!(
            of("192.0.2.1:-8000").unwrap_err().to_string(),
            "a client's port 8000 and the server's ':-8000' make no port from 1 to 65535; write the server's \
                port"
        );
        assert_eq!(
            of("name:80").unwrap_err().to_string(),
            "the host name 'name' was not resolved; resolve it first"
        );
    }

    #[test]
    fn names_are_resolved_to_the_family_that_is_requested() {
        let resolve =
            |text| Address::parse(text, &Rules::BIND).unwrap().resolve().map(|address| address.to_string());
        assert_eq!(resolve("ipv4@localhost:80").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(resolve("192.0.2.1:80").as_deref(), Ok("192.0.2.1:80"));
        // The resolver refuses this name without asking any server.
        let host = Host::Name { name: "a\0b".into(), family: None };
        let bad = Address { transport: None, location: Location::Ip { host, port: Port::Unset } };
        let error = bad.resolve().unwrap_err().to_string();
        assert!(
            error.contains(" has no address: ") && error.ends_with("; check the name, or write an address"),
            "{error}"
        );
    }
}
