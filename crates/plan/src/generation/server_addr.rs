//! Address of a server, which may change while the generation serves: by name resolution or by an operator.
//!
//! # Protocol
//! 1. A lane that connects reads the published address without a lock, and keeps no reference to it across a
//!    wait.
//! 2. Changes are made under the lock of the data that reports read, and published under that lock, so both
//!    show the last change.
//! 3. `word` changes with each change, so that idle connections to the former address can be recognized.

use super::server::ServerAddress;
use manylane_net::address::{Host, Location, Port};
use manylane_net::{Address, Endpoint};
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::qsbr::{Published, Reader};
use manylane_sync::{LockClass, Mutex};
use std::net::IpAddr;

static SERVER_ADDRS: LockClass = LockClass::new("address of a server", LockClass::LEAF);

/// Everything that is known about a server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddrState {
    /// The address.
    pub address: ServerAddress,
    /// The port from the configuration, an operator or an SRV record.
    pub port: Port,
    /// The host name. `None` for an address in the configuration, or a service without a member for the
    /// server.
    pub name: Option<Box<str>>,
    /// The name is not that of the configuration.
    pub renamed: bool,
    /// An operator has set the address; it holds until the name servers' answer differs from `answer`.
    pub set_by_operator: bool,
    /// Hash of the last answer of the name servers.
    pub answer: Option<u64>,
}

impl ServerAddrState {
    /// Returns the IP address, if there is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.address {
            ServerAddress::At(Endpoint::Ip(address)) => Some(address.ip()),
            ServerAddress::OfClient(Address { location: Location::Ip { host, .. }, .. }) => match host {
                Host::V4(ip) => Some((*ip).into()),
                Host::V6(ip) => Some((*ip).into()),
                Host::Name { .. } => None,
            },
            _ => None,
        }
    }

    /// Returns the endpoint of connections, if it does not depend on the client.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.address {
            ServerAddress::At(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// Returns true if an answer leaves the address that an operator has set.
    #[inline]
    pub fn keeps_operator_address(&self, answer: u64) -> bool {
        self.set_by_operator && self.answer == Some(answer)
    }

    /// Notes an answer that decides about the address from now on.
    pub fn heard(&mut self, answer: u64) {
        self.set_by_operator = false;
        self.answer = Some(answer);
    }

    /// Sets the IP address, with the known port; `None` leaves the server without an address.
    pub fn settle(&mut self, ip: Option<IpAddr>) {
        self.address = match (ip, self.port) {
            (None, _) => ServerAddress::Nowhere,
            (Some(ip), Port::One(port)) => ServerAddress::At(Endpoint::Ip((ip, port).into())),
            (Some(ip), port) => {
                let host = match ip {
                    IpAddr::V4(ip) => Host::V4(ip),
                    IpAddr::V6(ip) => Host::V6(ip),
                };
                ServerAddress::OfClient(Address { transport: None, location: Location::Ip { host, port } })
            }
        };
    }
}

/// Published address of a server.
#[derive(Debug)]
pub struct ServerAddr {
    now: Published<ServerAddress>,
    /// Number of changes, shifted left by one, and [`OF_CLIENT`].
    word: AtomicU32,
    /// Cached number of the address in stick tables, below the `word` of that address.
    key: AtomicU64,
    known: Mutex<ServerAddrState>,
}

/// Nothing is cached; no address has this number.
const NO_KEY: u64 = u64::MAX;

/// Flag in `word`: the address depends on the client.
const OF_CLIENT: u32 = 1;

impl ServerAddr {
    /// Returns the address of the configuration.
    pub fn new(known: ServerAddrState) -> Self {
        let of_client = u32::from(matches!(known.address, ServerAddress::OfClient(_)));
        Self {
            now: Published::new(known.address.clone()),
            word: AtomicU32::new(of_client),
            key: AtomicU64::new(NO_KEY),
            known: Mutex::new(&SERVER_ADDRS, known),
        }
    }

    /// Returns the current address.
    #[inline]
    pub fn load<'r>(&'r self, reader: &'r Reader) -> &'r ServerAddress {
        self.now.load(reader)
    }

    // Relaxed: no other data depends on these numbers. A connection to the old address during a change is
    // like one that was made just before it.

    /// Returns true if the address depends on the client.
    #[inline]
    pub fn is_of_client(&self) -> bool {
        self.word.load(Ordering::Relaxed) & OF_CLIENT != 0
    }

    /// Returns the word of the address: 0 for the first address, if it does not depend on the client.
    #[inline]
    pub fn word(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    /// Returns the number of the address in stick tables (`srvkey addr`); 0 without an address. Takes a lock
    /// after the address has changed.
    pub fn stick_key(&self) -> u32 {
        let word = self.word();
        let kept = self.key.load(Ordering::Relaxed);
        if kept != NO_KEY && (kept >> 32) as u32 == word {
            return kept as u32;
        }
        // If the address changes after `word` was read, the next call computes the number again.
        let text = match &self.read().address {
            // As HAProxy writes addresses: IPv6 without brackets.
            ServerAddress::At(Endpoint::Ip(address)) => Some(format!("{}:{}", address.ip(), address.port())),
            ServerAddress::At(endpoint) => Some(endpoint.to_string()),
            ServerAddress::OfClient(address) => Some(address.to_string()),
            ServerAddress::Nowhere => None,
        };
        let number = text.and_then(|text| manylane_stick::server_key(&text)).unwrap_or_default();
        self.key.store(u64::from(word) << 32 | u64::from(number), Ordering::Relaxed);
        number
    }

    /// Returns everything that is known about the address, for reports. Takes a lock.
    #[inline]
    pub fn read(&self) -> ServerAddrState {
        self.known.lock().clone()
    }

    /// Changes the address, and returns the former state.
    pub fn change(&self, to: impl FnOnce(&mut ServerAddrState)) -> ServerAddrState {
        let mut known = self.known.lock();
        let before = known.clone();
        to(&mut known);
        if known.address != before.address {
            let of_client = u32::from(matches!(known.address, ServerAddress::OfClient(_)));
            let changes = (self.word.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
            self.now.replace(known.address.clone()); // rule 2
            self.word.store(changes.max(1) << 1 | of_client, Ordering::Relaxed);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_published_with_its_change_and_has_another_number_then() {
        let mut known = ServerAddrState {
            address: ServerAddress::Nowhere,
            port: Port::One(80),
            name: None,
            renamed: false,
            set_by_operator: false,
            answer: None,
        };
        known.settle(Some([192, 0, 2, 1].into()));
        let addr = ServerAddr::new(known);
        let reader = Reader::new();
        assert_eq!((addr.word(), addr.is_of_client()), (0, false));
        let before = addr.change(|known| known.settle(Some([192, 0, 2, 2].into())));
        assert_eq!(before.ip(), Some([192, 0, 2, 1].into()));
        assert_eq!(addr.load(&reader), &ServerAddress::At(Endpoint::Ip("192.0.2.2:80".parse().unwrap())));
        let word = addr.word();
        assert_ne!(word, 0);
        addr.change(|known| known.name = Some("a.test".into()));
        assert_eq!(addr.word(), word, "it is still there");
        addr.change(|known| {
            known.port = Port::Unset;
            known.settle(Some([192, 0, 2, 2].into()));
        });
        assert!(
            addr.is_of_client() && addr.word() != word && addr.read().ip() == Some([192, 0, 2, 2].into())
        );
        addr.change(|known| known.settle(None));
        assert_eq!((addr.load(&reader), addr.is_of_client()), (&ServerAddress::Nowhere, false));
    }
}
