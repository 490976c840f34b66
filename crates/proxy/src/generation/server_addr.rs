//! Where a server is, which may change while it serves: by its name, or by an operator.
//!
//! # Protocol
//! 1. Whoever connects reads the place as it is published, without a lock, and keeps no reference to it while
//!    it waits.
//! 2. Changes are made under the lock of what reports read, and published there: the last one is what both
//!    show.
//! 3. `word` grows with each change, so that what was kept of the place before, idle connections, is told
//!    apart from what is of this one.

use super::server::ServerPlace;
use manylane_net::address::{Host, Location, Port};
use manylane_net::{Address, Endpoint};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::qsbr::{Published, Reader};
use manylane_sync::{LockClass, Mutex};
use std::net::IpAddr;

static SERVER_ADDRS: LockClass = LockClass::new("place of a server", LockClass::LEAF);

/// All that is known of where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// Where.
    pub place: ServerPlace,
    /// Its port, as the file, an operator or an SRV record has it.
    pub port: Port,
    /// Its name, unless it has none: an address in the file, or a service that has no server for it.
    pub name: Option<Box<str>>,
    /// It is not the name of the file.
    pub renamed: bool,
    /// An operator has said where: so it is until the answer of name servers is another one than `answer`.
    pub by_hand: bool,
    /// What tells the answer apart that was looked at last.
    pub answer: Option<u64>,
}

impl Whereabouts {
    /// Its IP address, if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.place {
            ServerPlace::At(Endpoint::Ip(address)) => Some(address.ip()),
            ServerPlace::OfClient(Address { place: Location::Ip { host, .. }, .. }) => match host {
                Host::V4(ip) => Some((*ip).into()),
                Host::V6(ip) => Some((*ip).into()),
                Host::Name { .. } => None,
            },
            _ => None,
        }
    }

    /// Where connections go, if that does not depend on the client.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.place {
            ServerPlace::At(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// Whether that answer leaves it where an operator has put it.
    pub(crate) fn stays_by_hand(&self, answer: u64) -> bool {
        self.by_hand && self.answer == Some(answer)
    }

    /// An answer says where it is from now on.
    pub(crate) fn heard(&mut self, answer: u64) {
        self.by_hand = false;
        self.answer = Some(answer);
    }

    /// It is at that address, at its port; nowhere without one.
    pub fn settle(&mut self, ip: Option<IpAddr>) {
        self.place = match (ip, self.port) {
            (None, _) => ServerPlace::Nowhere,
            (Some(ip), Port::One(port)) => ServerPlace::At(Endpoint::Ip((ip, port).into())),
            (Some(ip), port) => {
                let host = match ip {
                    IpAddr::V4(ip) => Host::V4(ip),
                    IpAddr::V6(ip) => Host::V6(ip),
                };
                ServerPlace::OfClient(Address { transport: None, place: Location::Ip { host, port } })
            }
        };
    }
}

/// The place of a server at work.
#[derive(Debug)]
pub struct ServerAddr {
    now: Published<ServerPlace>,
    /// [`OF_CLIENT`], and how often it has changed.
    word: AtomicU32,
    known: Mutex<Whereabouts>,
}

/// What lies beside the number of changes: where the server is depends on the client.
const OF_CLIENT: u32 = 1;

impl ServerAddr {
    /// As the file has it.
    pub fn new(known: Whereabouts) -> Self {
        let of_client = u32::from(matches!(known.place, ServerPlace::OfClient(_)));
        Self {
            now: Published::new(known.place.clone()),
            word: AtomicU32::new(of_client),
            known: Mutex::new(&SERVER_ADDRS, known),
        }
    }

    /// Where it is.
    #[inline]
    pub fn load<'r>(&'r self, reader: &'r Reader) -> &'r ServerPlace {
        self.now.load(reader)
    }

    // Relaxed: numbers by themselves. A connection that is made to the old place at the moment of a change is
    // as one that was made just before.

    /// Whether where it is depends on the client.
    #[inline]
    pub(crate) fn is_of_client(&self) -> bool {
        self.word.load(Ordering::Relaxed) & OF_CLIENT != 0
    }

    /// A number for the place: 0 for one that is there since the beginning, whoever the client is.
    #[inline]
    pub(crate) fn word(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    /// For reports.
    pub fn read(&self) -> Whereabouts {
        self.known.lock().clone()
    }

    /// Changes it. As it was.
    pub fn change(&self, to: impl FnOnce(&mut Whereabouts)) -> Whereabouts {
        let mut known = self.known.lock();
        let before = known.clone();
        to(&mut known);
        if known.place != before.place {
            let of_client = u32::from(matches!(known.place, ServerPlace::OfClient(_)));
            let changes = (self.word.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
            self.now.replace(known.place.clone()); // rule 2
            self.word.store(changes.max(1) << 1 | of_client, Ordering::Relaxed);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_published_with_its_change_and_has_another_number_then() {
        let mut known = Whereabouts {
            place: ServerPlace::Nowhere,
            port: Port::One(80),
            name: None,
            renamed: false,
            by_hand: false,
            answer: None,
        };
        known.settle(Some([192, 0, 2, 1].into()));
        let addr = ServerAddr::new(known);
        let reader = Reader::new();
        assert_eq!((addr.word(), addr.is_of_client()), (0, false));
        let before = addr.change(|known| known.settle(Some([192, 0, 2, 2].into())));
        assert_eq!(before.ip(), Some([192, 0, 2, 1].into()));
        assert_eq!(addr.load(&reader), &ServerPlace::At(Endpoint::Ip("192.0.2.2:80".parse().unwrap())));
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
        assert_eq!((addr.load(&reader), addr.is_of_client()), (&ServerPlace::Nowhere, false));
    }
}
