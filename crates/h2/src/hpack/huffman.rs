//! The Huffman code of HPACK (RFC 7541, 5.2 and appendix B).
//!
//! The code is canonical: codes of equal length follow each other in the order of their symbols, and longer
//! codes come behind shorter ones. So this file has only the lengths of appendix B, from which the compiler
//! computes the tables. A look-up of [`NEAR`] bits finds nearly all symbols of real fields. Longer codes are
//! found by their length and the first code of that length.

use super::Error;

/// Number of symbols: the bytes, and the end-of-string symbol.
const SYMBOLS: usize = 257;

/// End-of-string symbol, which no string may contain.
const EOS: u16 = 256;

/// Length of the longest code, in bits.
const LONGEST: usize = 30;

/// Length of each symbol's code, in bits.
// Twenty in each line, so that the length of symbol n is found by eye.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Symbols in the order of their codes; for each length, the position of its first symbol and its first code.
struct Canonical {
    symbols: [u16; SYMBOLS],
    begins: [u16; LONGEST + 2],
    first: [u32; LONGEST + 2],
    codes: [u32; SYMBOLS],
}

const CANONICAL: Canonical = {
    let mut all = Canonical {
        symbols: [0; SYMBOLS],
        begins: [0; LONGEST + 2],
        first: [0; LONGEST + 2],
        codes: [0; SYMBOLS],
    };
    let (mut code, mut n, mut len) = (0u32, 0, 1);
    while len <= LONGEST {
        code <<= 1;
        all.begins[len] = n as u16;
        all.first[len] = code;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == len {
                all.symbols[n] = symbol as u16;
                all.codes[symbol] = code;
                code += 1;
                n += 1;
            }
            symbol += 1;
        }
        len += 1;
    }
    assert!(n == SYMBOLS && code == 1 << LONGEST, "the code is complete");
    all.begins[LONGEST + 1] = n as u16;
    all
};

static CODES: [u32; SYMBOLS] = CANONICAL.codes;
static LENGTH: [u8; SYMBOLS] = LENGTHS;
static SYMBOL: [u16; SYMBOLS] = CANONICAL.symbols;
static BEGINS: [u16; LONGEST + 2] = CANONICAL.begins;
static FIRST: [u32; LONGEST + 2] = CANONICAL.first;

/// Number of bits in one look-up: the codes of letters, digits and usual punctuation are not longer.
const NEAR: usize = 10;

/// Symbol and code length for the next [`NEAR`] bits; length 0 if the code is longer.
static SHORT: [(u8, u8); 1 << NEAR] = {
    let mut table = [(0, 0); 1 << NEAR];
    let mut symbol = 0;
    while symbol < 256 {
        let len = LENGTHS[symbol] as usize;
        if len <= NEAR {
            let from = (CANONICAL.codes[symbol] as usize) << (NEAR - len);
            let mut n = 0;
            while n < 1 << (NEAR - len) {
                table[from + n] = (symbol as u8, len as u8);
                n += 1;
            }
        }
        symbol += 1;
    }
    table
};

/// Decodes `coded` and appends the result to `out`.
///
/// # Errors
/// [`Error::Huffman`] if it contains the end-of-string symbol, or if its padding is anything but up to seven
/// one bits.
pub(crate) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    // The next bits are at the top; `have` is their number.
    let (mut bits, mut have) = (0u64, 0usize);
    let mut rest = coded;
    loop {
        if have <= 32
            && let [a, b, c, d, behind @ ..] = rest
        {
            bits |= u64::from(u32::from_be_bytes([*a, *b, *c, *d])) << (32 - have);
            have += 32;
            rest = behind;
        }
        while have <= 56
            && let [byte, behind @ ..] = rest
        {
            bits |= u64::from(*byte) << (56 - have);
            have += 8;
            rest = behind;
        }
        // Missing bits at the end are set to one. They begin the end-of-string code, so the look-up finds no
        // symbol.
        let near = if have >= NEAR { bits } else { bits | (u64::MAX >> have) };
        let (symbol, len) = SHORT[(near >> (64 - NEAR)) as usize];
        let len = usize::from(len);
        if len != 0 && len <= have {
            out.push(symbol);
            bits <<= len;
            have -= len;
            continue;
        }
        if have < 8 && rest.is_empty() {
            // Only padding may be left: fewer than eight bits, all of them one.
            return if bits == !(u64::MAX >> have) || have == 0 { Ok(()) } else { Err(Error::Huffman) };
        }
        let (symbol, len) = far(bits, have).ok_or(Error::Huffman)?;
        out.push(symbol);
        bits <<= len;
        have -= len;
    }
}

/// Returns the symbol of a code longer than [`NEAR`] bits, and the code's length. Returns `None` for the
/// end-of-string symbol, and if the bits end before the code does.
#[cold]
fn far(bits: u64, have: usize) -> Option<(u8, usize)> {
    for len in NEAR + 1..=LONGEST.min(have) {
        let code = (bits >> (64 - len)) as u32;
        let count = u32::from(BEGINS[len + 1] - BEGINS[len]);
        let nth = code.wrapping_sub(FIRST[len]);
        if nth < count {
            let symbol = SYMBOL[usize::from(BEGINS[len]) + nth as usize];
            return (symbol != EOS).then_some((symbol as u8, len));
        }
    }
    None
}

/// Returns the number of bytes of `plain` after encoding.
#[inline]
pub(crate) fn encoded_len(plain: &[u8]) -> usize {
    let bits = plain.iter().map(|&byte| usize::from(LENGTH[usize::from(byte)])).sum::<usize>();
    bits.div_ceil(8)
}

/// Encodes `plain` and appends the result to `out`.
pub(crate) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut have) = (0u64, 0u32);
    for &byte in plain {
        let len = u32::from(LENGTH[usize::from(byte)]);
        bits = bits << len | u64::from(CODES[usize::from(byte)]);
        have += len;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | (0xff >> have));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn some_codes_of_the_appendix() {
        for (symbol, code, len) in [
            (0usize, 0x1ff8u32, 13u8),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b'<'), 0x7ffc, 15),
            (127, 0xffffffc, 28),
            (128, 0xfffe6, 20),
            (249, 0xffffffe, 28),
            (255, 0x3ffffee, 26),
            (256, 0x3fffffff, 30),
        ] {
            assert_eq!((CODES[symbol], LENGTH[symbol]), (code, len), "symbol {symbol}");
        }
    }

    #[test]
    fn every_symbol_and_every_pair_comes_back() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let plain = [a, b, a];
                let mut coded = Vec::new();
                encode(&plain, &mut coded);
                assert_eq!(coded.len(), encoded_len(&plain));
                assert_eq!(decoded(&coded).as_deref(), Ok(&plain[..]));
            }
        }
    }

    #[test]
    fn padding_is_at_most_seven_ones() {
        assert_eq!(decoded(b""), Ok(vec![]));
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        for bad in [
            &[0xff][..],    // eight ones
            &[0b0000_0110], // not ones
            &[0b0000_0000],
            &[0b0000_0111, 0xff],      // a whole byte of padding
            &[0xff, 0xff, 0xff, 0xff], // the end-of-string symbol
            &[0xff, 0xff, 0xff, 0xfc],
            &[0xff, 0xf8], // half of a code
        ] {
            assert_eq!(decoded(bad), Err(Error::Huffman), "{bad:x?}");
        }
    }
}
