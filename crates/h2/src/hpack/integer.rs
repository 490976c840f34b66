//! Integers with a prefix (RFC 7541, 5.1).

use super::Error;

/// Largest number of bytes behind a prefix. Five hold 35 bits, more than any accepted length or index;
/// further bytes could only be padding, of which a peer could send any amount.
const MAX_MORE: usize = 5;

/// Largest accepted value: no larger length, index or table size has a meaning here.
const MAX_VALUE: u64 = u32::MAX as u64;

/// Reads the integer that begins with the low `prefix` bits of the byte at `at`, and moves `at` behind it.
#[inline]
pub(crate) fn read(bytes: &[u8], at: &mut usize, prefix: u32) -> Result<usize, Error> {
    let mask = ((1u16 << prefix) - 1) as u8;
    let first = *bytes.get(*at).ok_or(Error::Truncated)? & mask;
    *at += 1;
    if first < mask { Ok(usize::from(first)) } else { read_more(bytes, at, u64::from(mask)) }
}

fn read_more(bytes: &[u8], at: &mut usize, mut value: u64) -> Result<usize, Error> {
    for n in 0..MAX_MORE {
        let byte = *bytes.get(*at).ok_or(Error::Truncated)?;
        *at += 1;
        value += u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return if value <= MAX_VALUE { Ok(value as usize) } else { Err(Error::TooLarge) };
        }
    }
    Err(Error::TooLarge)
}

/// Writes `value` with a prefix of `prefix` bits; `pattern` sets the other bits of the first byte.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, pattern: u8, prefix: u32, value: usize) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(prefix: u32, value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, 0, prefix, value);
        out
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541, C.1.
        assert_eq!(written(5, 10), [0b0_1010]);
        assert_eq!(written(5, 1337), [0b1_1111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(written(8, 42), [0b0010_1010]);
    }

    #[test]
    fn what_is_written_is_read() {
        for prefix in 1..=8 {
            for value in (0..2000).chain([16_383, 16_384, 65_535, 1 << 24, u32::MAX as usize]) {
                let (bytes, mut at) = (written(prefix, value), 0);
                assert_eq!(read(&bytes, &mut at, prefix), Ok(value));
                assert_eq!(at, bytes.len());
            }
        }
    }

    #[test]
    fn integers_that_do_not_end_or_do_not_fit_are_refused() {
        for (bytes, error) in [
            (&b""[..], Error::Truncated),
            (b"\x1f", Error::Truncated),
            (b"\x1f\x80\x80", Error::Truncated),
            (b"\x1f\x80\x80\x80\x80\x80\x00", Error::TooLarge),
            (b"\x1f\xff\xff\xff\xff\x7f", Error::TooLarge),
        ] {
            assert_eq!(read(bytes, &mut 0, 5), Err(error), "{}", bytes.escape_ascii());
        }
    }
}
