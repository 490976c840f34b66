//! The choice of a server's address among those of its name.

use crate::Kind;
use std::net::IpAddr;

/// A network: an address and the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address in the network.
    pub address: IpAddr,
    /// Number of bits that its addresses have in common; at most 32 or 128.
    pub bits: u8,
}

impl Network {
    /// Parses `address` or `address/bits`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address.parse().ok()?, Some(bits.parse().ok()?)),
            None => (text.parse().ok()?, None),
        };
        let most = if matches!(address, IpAddr::V4(_)) { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    /// Returns whether the network contains the address.
    pub fn has(&self, address: IpAddr) -> bool {
        let (own, other, most): (u128, u128, u32) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.into(), other.into(), 128),
            _ => return false,
        };
        (own ^ other).checked_shr(most - u32::from(self.bits)).unwrap_or(0) == 0
    }
}

/// A server's preferences for its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPreference {
    /// Preferred family, which is also queried first.
    pub family: Kind,
    /// `resolve-net`
    pub networks: Vec<Network>,
    /// True if the server may share the address of another one.
    pub shares: bool,
}

/// Result of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChoice {
    /// The current address is the best.
    Stay,
    /// This address is the best.
    Go(IpAddr),
    /// No address is possible.
    None,
}

/// Chooses the best of `addresses`: one of the preferred family, then one in a preferred network, then one
/// that no other server has, then the current one, then the first. `others_have` returns whether another
/// server has an address.
pub fn choose(
    addresses: impl Iterator<Item = IpAddr>,
    wish: &AddressPreference,
    current: Option<IpAddr>,
    others_have: impl Fn(IpAddr) -> bool,
) -> AddressChoice {
    let mut best: Option<(u8, IpAddr)> = None;
    for address in addresses {
        let taken = others_have(address);
        if taken && !wish.shares {
            continue;
        }
        let preferred = address.is_ipv4() == (wish.family == Kind::A);
        let near = wish.networks.iter().any(|network| network.has(address));
        let score = u8::from(preferred) << 3
            | u8::from(near) << 2
            | u8::from(!taken) << 1
            | u8::from(current == Some(address));
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, address));
        }
    }
    match best {
        None => AddressChoice::None,
        Some((_, address)) if current == Some(address) => AddressChoice::Stay,
        Some((_, address)) => AddressChoice::Go(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_the_addresses_that_begin_like_them() {
        for (network, address, has) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            assert_eq!(
                Network::parse(network).unwrap().has(address.parse().unwrap()),
                has,
                "{network} {address}"
            );
        }
        for text in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_best_address_is_of_the_family_then_of_the_network_then_free_then_the_own() {
        let all =
            ["192.0.2.1", "2001:db8::1", "10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let networks = || vec![Network::parse("10.0.0.0/8").unwrap()];
        let go = |text: &str| AddressChoice::Go(text.parse().unwrap());
        let wish = |family, networks, shares| AddressPreference { family, networks, shares };
        for (wish, current, taken, expected) in [
            (wish(Kind::Aaaa, networks(), false), None, vec![], go("2001:db8::1")),
            (wish(Kind::A, networks(), false), None, vec![], go("10.0.0.1")),
            (wish(Kind::A, networks(), false), None, vec!["10.0.0.1"], go("10.0.0.2")),
            (wish(Kind::A, networks(), false), Some("10.0.0.2"), vec![], AddressChoice::Stay),
            (wish(Kind::A, vec![], false), Some("10.0.0.2"), vec![], AddressChoice::Stay),
            (wish(Kind::A, networks(), false), Some("192.0.2.1"), vec![], go("10.0.0.1")),
            (
                wish(Kind::A, networks(), false),
                Some("192.0.2.9"),
                vec!["10.0.0.1", "10.0.0.2"],
                go("192.0.2.1"),
            ),
            (wish(Kind::A, networks(), true), None, vec!["10.0.0.1", "10.0.0.2"], go("10.0.0.1")),
            (
                wish(Kind::A, networks(), false),
                None,
                vec!["192.0.2.1", "2001:db8::1", "10.0.0.1", "10.0.0.2"],
                AddressChoice::None,
            ),
        ] {
            let taken: Vec<IpAddr> = taken.iter().map(|text| text.parse().unwrap()).collect();
            let current = current.map(|text| text.parse().unwrap());
            let chosen = choose(all.into_iter(), &wish, current, |address| taken.contains(&address));
            assert_eq!(chosen, expected, "{wish:?} {current:?} {taken:?}");
        }
    }
}
