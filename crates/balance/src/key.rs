//! What a request is balanced by: the part of it that `balance` names.

use std::net::IpAddr;

/// `balance source`: an address as a number. Words of the address in network order, joined by exclusive or, so that
/// neighbours differ.
pub fn source_key(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => u32::from(v4),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            (0..4).fold(0, |h, n| h ^ (bits >> (32 * n)) as u32)
        }
    }
}
