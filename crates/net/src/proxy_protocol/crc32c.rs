//! CRC32C (Castagnoli), as RFC 4960 has it in appendix B: reflected, with polynomial 0x1EDC6F41.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

/// The checksum of all `parts`, one after another.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    /// RFC 3720, section B.4, and the usual check value.
    #[test]
    fn known_answers() {
        assert_eq!(super::checksum(&[b"123456789"]), 0xe306_9283);
        assert_eq!(super::checksum(&[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(super::checksum(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(super::checksum(&[&[0xff; 32]]), 0x62a8_ab43);
    }
}
