//! Networks; the longest matching mask wins.

use super::entry::Entry;
use super::hashed::Hashed;
use crate::cast::{parse_whole, v6_to_v4};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc; // std: entries are immutable, so models need not see it

/// A network: address and mask. An IPv4 mask need not be contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    V4(u32, u32),
    V6(u128, u128),
}

/// Parses `192.168.1/22`, `10.12`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`. Missing IPv4 octets are zeroes
/// before the last one.
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

/// Networks by mask, longest mask first: a look-up hashes the address once per mask in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    v4: Vec<(u32, Hashed<u32>)>,
    v6: Vec<(u128, Hashed<u128>)>,
}

impl Networks {
    pub(super) fn insert(&mut self, network: Network, entry: &Arc<Entry>) {
        match network {
            Network::V4(net, mask) => {
                insert(&mut self.v4, net, mask, entry, |mask| (mask.count_ones(), mask))
            }
            Network::V6(net, mask) => insert(&mut self.v6, net, mask, entry, |mask| mask),
        }
    }

    pub(super) fn remove(&mut self, network: Network, id: u64) {
        match network {
            Network::V4(net, mask) => remove(&mut self.v4, net, mask, id),
            Network::V6(net, mask) => remove(&mut self.v6, net, mask, id),
        }
    }

    /// The entry with the longest mask. An IPv4 address also matches in mapped form, an IPv6 address also as
    /// the IPv4 address in it.
    pub(super) fn find(&self, addr: IpAddr) -> Option<&Arc<Entry>> {
        match addr {
            IpAddr::V4(addr) => self.find_v4(addr).or_else(|| self.find_v6(addr.to_ipv6_mapped())),
            IpAddr::V6(addr) => self.find_v6(addr).or_else(|| self.find_v4(v6_to_v4(addr)?)),
        }
    }

    fn find_v4(&self, addr: Ipv4Addr) -> Option<&Arc<Entry>> {
        let bits = addr.to_bits();
        self.v4
            .iter()
            .find_map(|(mask, nets)| nets.find(nets.hash(&(bits & mask)), |leaf| leaf.key == bits & mask))
    }

    fn find_v6(&self, addr: Ipv6Addr) -> Option<&Arc<Entry>> {
        let bits = addr.to_bits();
        self.v6
            .iter()
            .find_map(|(mask, nets)| nets.find(nets.hash(&(bits & mask)), |leaf| leaf.key == bits & mask))
    }
}

fn insert<T: Copy + Ord + Hash, O: Ord>(
    tables: &mut Vec<(T, Hashed<T>)>,
    net: T,
    mask: T,
    entry: &Arc<Entry>,
    order: impl Fn(T) -> O,
) {
    let index = tables.binary_search_by(|(known, _)| order(mask).cmp(&order(*known)));
    let at = index.unwrap_or_else(|at| {
        tables.insert(at, (mask, Hashed::default()));
        at
    });
    let nets = &mut tables[at].1;
    nets.insert(nets.hash(&net), net, entry);
}

fn remove<T: Copy + Ord + Hash>(tables: &mut Vec<(T, Hashed<T>)>, net: T, mask: T, id: u64) {
    let Some(at) = tables.iter().position(|(known, _)| *known == mask) else { return };
    let nets = &mut tables[at].1;
    nets.remove(nets.hash(&net), id);
    if nets.is_empty() {
        tables.remove(at);
    }
}
