//! Networks: the longest mask that holds an address wins.

use crate::cast::{parse_whole, v6_to_v4};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network with its mask, which may have holes in IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    V4(u32, u32),
    V6(u128, u128),
}

/// Reads `192.168.1/22`, `10.12`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`. Missing octets of IPv4 are zeroes before the last.
pub(crate) fn parse(text: &[u8]) -> Option<Network> {
    let (address, mask) = match memchr::memchr(b'/', text) {
        Some(slash) => (&text[..slash], Some(&text[slash + 1..])),
        None => (text, None),
    };
    let address = std::str::from_utf8(address).ok()?;
    if address.contains(':') {
        let address: Ipv6Addr = address.parse().ok()?;
        let bits = mask.map_or(Some(128), parse_whole).filter(|bits| (0..=128).contains(bits))?;
        let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
        return Some(Network::V6(address.to_bits() & mask, mask));
    }
    let mut octets: Vec<u8> = address.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    if octets.is_empty() || octets.len() > 4 {
        return None;
    }
    while octets.len() < 4 {
        octets.insert(octets.len() - 1, 0);
    }
    // A single number is the last octet, as in the manual's abbreviations.
    let address = u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]);
    let mask = match mask {
        None => u32::MAX,
        Some(mask) => match parse_whole(mask) {
            Some(0) => 0,
            Some(bits @ 1..=32) => u32::MAX << (32 - bits),
            Some(_) => return None,
            None => std::str::from_utf8(mask).ok()?.parse::<Ipv4Addr>().ok()?.to_bits(),
        },
    };
    Some(Network::V4(address & mask, mask))
}

/// Networks by mask, the longest first: one hashed look-up for each mask that is in use.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    v4: Vec<(u32, HashMap<u32, u32>)>,
    v6: Vec<(u128, HashMap<u128, u32>)>,
}

impl Networks {
    pub(crate) fn new(networks: impl Iterator<Item = (Network, u32)>) -> Self {
        let mut all = Self::default();
        for (network, order) in networks {
            match network {
                Network::V4(net, mask) => {
                    slot(&mut all.v4, mask).entry(net).or_insert(order);
                }
                Network::V6(net, mask) => {
                    slot(&mut all.v6, mask).entry(net).or_insert(order);
                }
            }
        }
        all.v4.sort_by_key(|(mask, _)| std::cmp::Reverse((mask.count_ones(), *mask)));
        all.v6.sort_by_key(|(mask, _)| std::cmp::Reverse(*mask));
        all
    }

    /// The entry of the longest mask. An IPv4 address is looked for in mapped form as well, an IPv6 one that holds an IPv4 address as that.
    pub(crate) fn find(&self, addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(addr) => self.find_v4(addr).or_else(|| self.find_v6(addr.to_ipv6_mapped())),
            IpAddr::V6(addr) => self.find_v6(addr).or_else(|| self.find_v4(v6_to_v4(addr)?)),
        }
    }

    fn find_v4(&self, addr: Ipv4Addr) -> Option<u32> {
        let bits = addr.to_bits();
        self.v4.iter().find_map(|(mask, nets)| nets.get(&(bits & mask)).copied())
    }

    fn find_v6(&self, addr: Ipv6Addr) -> Option<u32> {
        let bits = addr.to_bits();
        self.v6.iter().find_map(|(mask, nets)| nets.get(&(bits & mask)).copied())
    }
}

fn slot<T: PartialEq + Copy>(tables: &mut Vec<(T, HashMap<T, u32>)>, mask: T) -> &mut HashMap<T, u32> {
    let at = tables.iter().position(|(known, _)| *known == mask).unwrap_or_else(|| {
        tables.push((mask, HashMap::new()));
        tables.len() - 1
    });
    &mut tables[at].1
}
