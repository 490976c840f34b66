//! Searches contiguous bytes for a byte of a kind, sixteen bytes at a time.
//!
//! A kind is a function that returns a bit for each of sixteen bytes: set if the byte is of the kind. On
//! x86-64 it uses SSE2, which each such processor has; elsewhere it tests the bytes one by one without a
//! branch, which compilers vectorise. A rest of fewer than sixteen bytes at the end is tested together with
//! the bytes before it, whose bits do not count. Only an input of fewer than sixteen bytes in all is a
//! special case.

/// Number of bytes that are tested together.
const WIDE: usize = 16;

type Block = [u8; WIDE];

/// Returns the position of the first `byte` at or after `at`, or the end if there is none.
#[inline]
pub fn find(bytes: &[u8], at: usize, byte: u8) -> usize {
    first(bytes, at, |block| kinds::equal(block, byte))
}

/// Returns the position of the first control character, tab and delete included, at or after `at`, or the
/// end.
#[inline]
pub fn control(bytes: &[u8], at: usize) -> usize {
    first(bytes, at, kinds::controls)
}

/// Returns the position of the first byte at or after `at` that is no letter, digit or hyphen, or the end.
/// Nearly all names of fields consist of those.
#[inline]
pub fn name_end(bytes: &[u8], at: usize) -> usize {
    first(bytes, at, kinds::not_of_names)
}

/// Returns the position of the first byte at or after `at` that ends an HTTP target or may not be in one, or
/// the end: a control character, a space, `#`, or a byte above 0x7e. RFC 3986 excludes some others
/// (`"<>\\^{|}` and the grave accent), which clients send all the same.
#[inline]
pub fn target_end(bytes: &[u8], at: usize) -> usize {
    first(bytes, at, kinds::not_of_targets)
}

/// Returns the position of the first byte of a kind at or after `at`.
#[inline(always)]
fn first(bytes: &[u8], mut at: usize, kind: impl Fn(&Block) -> u32) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let marks = kind(block);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize;
        }
        at += WIDE;
    }
    if at >= bytes.len() {
        return bytes.len();
    }
    let marks = match bytes.last_chunk() {
        Some(block) => kind(block) >> (at + WIDE - bytes.len()),
        None => few(&bytes[at..], kind),
    };
    if marks != 0 { at + marks.trailing_zeros() as usize } else { bytes.len() }
}

/// Returns the bits of fewer than sixteen bytes.
#[cold]
fn few(rest: &[u8], kind: impl Fn(&Block) -> u32) -> u32 {
    let mut block = [0; WIDE];
    block[..rest.len()].copy_from_slice(rest);
    kind(&block) & ((1 << rest.len()) - 1)
}

#[cfg(target_arch = "x86_64")]
mod kinds {
    use super::Block;
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8, _mm_sub_epi8,
    };

    // The functions below use SSE2 only, which is a part of x86-64.

    #[inline(always)]
    fn load(block: &Block) -> __m128i {
        // SAFETY: SSE2. The load reads the sixteen bytes of the block, at any alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn all(byte: u8) -> __m128i {
        // SAFETY: SSE2.
        unsafe { _mm_set1_epi8(byte as i8) }
    }

    /// Marks the bytes that are equal.
    #[inline(always)]
    fn same(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2.
        unsafe { _mm_cmpeq_epi8(a, b) }
    }

    /// Marks the bytes of `x` that are at most `most`.
    #[inline(always)]
    fn at_most(x: __m128i, most: u8) -> __m128i {
        // SAFETY: SSE2.
        same(unsafe { _mm_min_epu8(x, all(most)) }, x)
    }

    #[inline(always)]
    fn less(x: __m128i, byte: u8) -> __m128i {
        // SAFETY: SSE2.
        unsafe { _mm_sub_epi8(x, all(byte)) }
    }

    #[inline(always)]
    fn either(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2.
        unsafe { _mm_or_si128(a, b) }
    }

    /// Returns a bit for each byte.
    #[inline(always)]
    fn bits(marks: __m128i) -> u32 {
        // SAFETY: SSE2.
        unsafe { _mm_movemask_epi8(marks) as u32 }
    }

    #[inline(always)]
    pub(super) fn equal(block: &Block, byte: u8) -> u32 {
        bits(same(load(block), all(byte)))
    }

    #[inline(always)]
    pub(super) fn controls(block: &Block) -> u32 {
        let x = load(block);
        bits(either(at_most(x, 0x1f), same(x, all(0x7f))))
    }

    #[inline(always)]
    pub(super) fn not_of_names(block: &Block) -> u32 {
        let x = load(block);
        let letters = at_most(less(either(x, all(b' ')), b'a'), 25);
        let digits = at_most(less(x, b'0'), 9);
        bits(either(either(letters, digits), same(x, all(b'-')))) ^ 0xffff
    }

    #[inline(always)]
    pub(super) fn not_of_targets(block: &Block) -> u32 {
        let x = load(block);
        let printed = at_most(less(x, 0x21), 0x5d); // 0x21 to 0x7e, the printable ones
        bits(printed) ^ 0xffff | bits(same(x, all(b'#')))
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
#[cfg_attr(target_arch = "x86_64", allow(dead_code))] // only a test uses it there
mod plain {
    use super::Block;

    #[inline(always)]
    fn bits(block: &Block, is: impl Fn(u8) -> bool) -> u32 {
        block.iter().enumerate().fold(0, |bits, (n, &byte)| bits | u32::from(is(byte)) << n)
    }

    #[inline]
    pub(super) fn equal(block: &Block, byte: u8) -> u32 {
        bits(block, |other| other == byte)
    }

    #[inline]
    pub(super) fn controls(block: &Block) -> u32 {
        bits(block, |byte| byte < 0x20 || byte == 0x7f)
    }

    #[inline]
    pub(super) fn not_of_names(block: &Block) -> u32 {
        bits(block, |byte| !(byte.is_ascii_alphanumeric() || byte == b'-'))
    }

    #[inline]
    pub(super) fn not_of_targets(block: &Block) -> u32 {
        bits(block, |byte| !(0x21..0x7f).contains(&byte) || byte == b'#')
    }
}

#[cfg(not(target_arch = "x86_64"))]
use plain as kinds;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_found_at_each_offset() {
        for len in 0..40 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = byte;
                    if let Some(next) = bytes.get_mut(at + 1) {
                        *next = b' ';
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

    #[test]
    fn what_stands_before_the_offset_does_not_count() {
        for len in 0..40 {
            let bytes = vec![b'\n'; len];
            for at in 0..=len + 1 {
                let end = at.min(len);
                assert_eq!(
                    (find(&bytes, at, b'\n'), control(&bytes, at), name_end(&bytes, at)),
                    (end, end, end)
                );
                assert_eq!(find(&bytes, at, b':'), len);
            }
        }
    }

    #[test]
    fn the_wide_and_the_plain_ones_mark_the_same() {
        for first in 0..=255u8 {
            let block: Block = std::array::from_fn(|n| first.wrapping_add(n as u8 * 17));
            assert_eq!(kinds::equal(&block, first), plain::equal(&block, first));
            assert_eq!(kinds::controls(&block), plain::controls(&block));
            assert_eq!(kinds::not_of_names(&block), plain::not_of_names(&block));
            assert_eq!(kinds::not_of_targets(&block), plain::not_of_targets(&block));
        }
    }
}
