//! Looking for a byte in words of eight, or at sixteen at once, without `unsafe`.
//!
//! After the well-known test for a zero byte in a word (Lamport 1975; Warren, *Hacker's Delight*, 6-1). A borrow may mark
//! bytes above a byte that is marked rightly, so only the lowest mark counts: the first in memory.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word))
}

/// Marks at least the lowest byte of `x` that is zero, and none below.
#[inline]
fn zero(x: u64) -> u64 {
    x.wrapping_sub(ONES) & !x
}

/// Marks at least the lowest control character of `x`, and none below.
#[inline]
fn controls(x: u64) -> u64 {
    (x.wrapping_sub(ONES * 0x20) & !x | zero(x ^ (ONES * 0x7f))) & HIGH
}

/// The first control character, tab and delete included, at or after `at`; the end if there is none. About 1.5 instructions a byte.
#[inline]
pub(crate) fn control(bytes: &[u8], mut at: usize) -> usize {
    while let Some([a, b]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()).map(|two| {
        let x = u128::from_le_bytes(*two);
        [controls(x as u64), controls((x >> 64) as u64)]
    }) {
        if a | b != 0 {
            let (marks, from) = if a != 0 { (a, at) } else { (b, at + 8) };
            return from + marks.trailing_zeros() as usize / 8;
        }
        at += 16;
    }
    while at < bytes.len() && bytes[at] >= 0x20 && bytes[at] != 0x7f {
        at += 1;
    }
    at
}

/// The first `byte` at or after `at`; the end if there is none.
#[inline]
pub(crate) fn find(bytes: &[u8], mut at: usize, byte: u8) -> usize {
    while let Some(x) = word(bytes, at) {
        let marks = zero(x ^ (ONES * u64::from(byte))) & HIGH;
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < bytes.len() && bytes[at] != byte {
        at += 1;
    }
    at
}

/// Position of the next byte that is no letter, no digit and no hyphen, which are all that nearly all names of fields have.
#[inline]
pub(crate) fn name_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let named = first_other(block);
        at += named;
        if named < block.len() {
            return at;
        }
    }
    while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'-') {
        at += 1;
    }
    at
}

/// The first of sixteen bytes that is none of them; 16 if there is none. By itself, each byte asked without a branch, it is made thirty instructions for all of
/// them; as a part of something else it may be two hundred.
#[inline(never)]
fn first_other(block: &[u8; 16]) -> usize {
    let mut marks = [0; 16];
    for (mark, &byte) in marks.iter_mut().zip(block) {
        let letter = (byte | b' ').wrapping_sub(b'a') < 26;
        let other = !(letter | (byte.wrapping_sub(b'0') < 10) | (byte == b'-'));
        *mark = u8::from(other).wrapping_neg();
    }
    u128::from_le_bytes(marks).trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_found_at_each_place() {
        for len in 0..40 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = byte;
                    if let Some(next) = bytes.get_mut(at + 1) {
                        *next = b' '; // what a borrow would mark
                    }
                    let is_control = byte < 0x20 || byte == 0x7f;
                    assert_eq!(control(&bytes, 0), if is_control { at } else { len });
                    let from = at.saturating_sub(1);
                    assert_eq!(control(&bytes, from), if is_control { at } else { len });
                    let named = byte.is_ascii_alphanumeric() || byte == b'-';
                    let behind = if bytes.get(at + 1) == Some(&b' ') { at + 1 } else { len };
                    assert_eq!(name_end(&bytes, from), if named { behind } else { at });
                    if byte != b'x' && byte != b' ' {
                        assert_eq!(find(&bytes, 0, byte), at);
                        assert_eq!(find(&bytes, at + 1, byte), len);
                    }
                }
            }
        }
    }
}
