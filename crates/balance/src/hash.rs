//! Hash functions of `hash-type`: they map a key to the same number as HAProxy's, so that a fleet of both agrees.

/// `hash-type`'s functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFunction {
    /// Of the database library sdbm: `h * 65599 + byte`.
    Sdbm,
    /// D. Bernstein's: `h * 33 + byte`, from 5381.
    Djb2,
    /// Two words that are inverted, crossed and rotated by amounts that depend on what was read.
    Wt6,
    /// The CRC of Ethernet and gzip.
    Crc32,
    /// The decimal number at the key's beginning, as it is.
    None,
}

impl HashFunction {
    /// The function with this name in a configuration.
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

    /// The hash of `key`. Cost: about a nanosecond a byte.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u32 {
        match self {
            Self::Sdbm => key.iter().fold(0, |h: u32, &b| h.wrapping_mul(65_599).wrapping_add(b.into())),
            Self::Djb2 => key.iter().fold(5381, |h: u32, &b| h.wrapping_mul(33).wrapping_add(b.into())),
            Self::Wt6 => wt6(key),
            Self::Crc32 => crc32(key),
            Self::None => number(key),
        }
    }
}

fn wt6(key: &[u8]) -> u32 {
    let (mut left, mut right) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut first, mut second) = (6, 18);
    for &byte in key {
        let byte = u32::from(byte);
        left = !(left ^ byte);
        right = !right.wrapping_add(byte);
        (left, right) = (right.rotate_left(first), left.rotate_left(second));
        let turns = ((left >> 16) ^ right) & 0xffff;
        first = turns & 0x1f;
        second = turns >> 11;
    }
    left ^ right
}

static CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
};

fn crc32(key: &[u8]) -> u32 {
    !key.iter().fold(!0, |crc: u32, &byte| CRC[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

fn number(key: &[u8]) -> u32 {
    let digits = key.iter().take_while(|b| b.is_ascii_digit());
    digits.fold(0, |n: u32, &b| n.wrapping_mul(10).wrapping_add((b - b'0').into()))
}

/// Mixes a number so that each bit of the outcome depends on each bit of it: R. Jenkins' integer hash of six steps, and a
/// multiplication that spreads neighbours over the ring.
#[inline]
pub fn avalanche(n: u32) -> u32 {
    let n = n.wrapping_add(0x7ed5_5d16).wrapping_add(n << 12);
    let n = (n ^ 0xc761_c23c) ^ (n >> 19);
    let n = n.wrapping_add(0x1656_67b1).wrapping_add(n << 5);
    let n = n.wrapping_add(0xd3a2_646c) ^ (n << 9);
    let n = n.wrapping_add(0xfd70_46c5).wrapping_add(n << 3);
    let n = (n ^ 0xb55a_4f09) ^ (n >> 16);
    n.wrapping_mul(3_221_225_473)
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    /// What HAProxy 2.6's converters of the same names give, as run.
    #[test]
    fn hashes_are_those_of_haproxy() {
        use HashFunction::{Crc32, Djb2, Sdbm, Wt6};
        for (key, plain, mixed) in [
            ("/", [47, 177_620, 1_886_637_733, 2_043_925_204], [2_118_074_832, 3_725_504_903, 2_250_254_464]),
            (
                "/a",
                [3_083_250, 5_861_557, 1_404_582_375, 1_768_979_292],
                [1_743_195_586, 3_623_408_593, 652_714_202],
            ),
            (
                "/some/longer/path/0123456789",
                [1_722_885_173, 2_197_853_238, 510_210_963, 286_150_639],
                [2_575_402_074, 2_953_968_023, 1_551_386_038],
            ),
        ] {
            let hashes = [Sdbm, Djb2, Wt6, Crc32].map(|function| function.hash(key.as_bytes()));
            assert_eq!(hashes, plain, "{key}");
            assert_eq!([0, 1, 2].map(|n| avalanche(hashes[n])), mixed, "{key}");
        }
    }

    #[test]
    fn none_takes_the_number_at_the_beginning() {
        for (key, number) in [("17", 17), ("17abc", 17), ("abc", 0), ("", 0), ("4294967296", 0)] {
            assert_eq!(HashFunction::None.hash(key.as_bytes()), number, "{key}");
        }
    }
}
