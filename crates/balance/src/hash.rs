//! Hash functions of `hash-type`. They give the same numbers as HAProxy's, so that a fleet of both agrees.

use manylane_expr::hash;

/// A hash function of `hash-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFunction {
    /// The function of the database library sdbm: `h * 65599 + byte`.
    Sdbm,
    /// D. Bernstein's function: `h * 33 + byte`, from 5381.
    Djb2,
    /// Two words that are inverted, crossed and rotated by amounts that depend on the key.
    Wt6,
    /// The CRC of Ethernet and gzip.
    Crc32,
    /// The decimal number at the key's beginning.
    None,
}

impl HashFunction {
    /// Returns the function with this name in a configuration.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "sdbm" => Self::Sdbm,
            "djb2" => Self::Djb2,
            "wt6" => Self::Wt6,
            "crc32" => Self::Crc32,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// Returns the hash of `key`. Cost: about a nanosecond a byte.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u32 {
        match self {
            Self::Sdbm => hash::sdbm(key),
            Self::Djb2 => hash::djb2(key),
            Self::Wt6 => hash::wt6(key),
            Self::Crc32 => hash::crc32(key),
            Self::None => number(key),
        }
    }
}

fn number(key: &[u8]) -> u32 {
    let digits = key.iter().take_while(|b| b.is_ascii_digit());
    digits.fold(0, |n: u32, &b| n.wrapping_mul(10).wrapping_add((b - b'0').into()))
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn none_takes_the_number_at_the_beginning() {
        for (key, number) in [("17", 17), ("17abc", 17), ("abc", 0), ("", 0), ("4294967296", 0)] {
            assert_eq!(HashFunction::None.hash(key.as_bytes()), number, "{key}");
        }
    }
}
