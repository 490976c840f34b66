//! 32-bit hash functions with the names of HAProxy's manual, for converters and for keys of load balancing
//! (`hash-type`).
//!
//! The results equal those of HAProxy, so a mixed fleet sends a key to the same server. Cost: about a
//! nanosecond per byte.

use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, Table};

static ETHERNET: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);
static ISCSI: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

/// CRC-32 of Ethernet, gzip and PNG.
pub fn crc32(bytes: &[u8]) -> u32 {
    ETHERNET.checksum(bytes)
}

/// CRC-32C of iSCSI (Castagnoli polynomial; RFC 4960, appendix B).
pub fn crc32c(bytes: &[u8]) -> u32 {
    ISCSI.checksum(bytes)
}

/// Bernstein's hash: times 33, plus the byte.
pub fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// Hash of the sdbm library: times 65599, plus the byte.
pub fn sdbm(bytes: &[u8]) -> u32 {
    sdbm_onto(0, bytes)
}

/// [`sdbm`] that continues an earlier hash.
pub fn sdbm_onto(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| hash.wrapping_mul(65_599).wrapping_add(u32::from(*byte)))
}

/// Two words that are inverted, exchanged and rotated by amounts that depend on the words.
pub fn wt6(bytes: &[u8]) -> u32 {
    let (mut left, mut right) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut first, mut second) = (6, 18);
    for &byte in bytes {
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

/// R. Jenkins' integer hash with six steps: each bit of the input changes about half of the bits of the
/// output.
#[inline]
pub fn mix(n: u32) -> u32 {
    let n = n.wrapping_add(0x7ed5_5d16).wrapping_add(n << 12);
    let n = (n ^ 0xc761_c23c) ^ (n >> 19);
    let n = n.wrapping_add(0x1656_67b1).wrapping_add(n << 5);
    let n = n.wrapping_add(0xd3a2_646c) ^ (n << 9);
    let n = n.wrapping_add(0xfd70_46c5).wrapping_add(n << 3);
    (n ^ 0xb55a_4f09) ^ (n >> 16)
}

/// `avalanche` of `hash-type`: [`mix`], then a multiplication that spreads adjacent values over a ring.
#[inline]
pub fn avalanche(n: u32) -> u32 {
    mix(n).wrapping_mul(3_221_225_473)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of the converters of HAProxy 3.2.26.
    #[test]
    fn hashes_are_those_of_haproxy() {
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
            let hashes = [sdbm, djb2, wt6, crc32].map(|function| function(key.as_bytes()));
            assert_eq!(hashes, plain, "{key}");
            assert_eq!([0, 1, 2].map(|n| avalanche(hashes[n])), mixed, "{key}");
        }
    }

    #[test]
    fn castagnoli_gives_the_usual_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
