//! Memory of a lane in which evaluations write what is not in a message: one fixed buffer, and the state of
//! the regular expressions' machines.
//!
//! A [`Lane`] belongs to one lane and lives as long as it. A [`Scratch`] is the lend of one evaluation: bytes
//! are cut off the free rest, so what was given out stays valid while the evaluation's results are used, and
//! all of it is free again when the lend ends. Nothing is allocated but the machines' states, once for each
//! expression and lane.

use crate::clock::Second;
use crate::pattern::looking::{self, Looking};
use manylane_sync::Arc;
use regex_automata::meta;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes that one evaluation may write, all its converters together. Four times the default `tune.bufsize`:
/// each of a chain of converters may write a value of the size of a message's buffer a few times before a
/// sample is missing for lack of room.
pub const SCRATCH_BYTES: usize = 64 * 1024;

/// States of regular expressions that a lane keeps. More than that, and all are dropped: a flood of
/// expressions that are added while the program runs costs time then, not memory.
pub const MAX_MACHINES: usize = 4096;

/// What one lane needs to evaluate programs.
#[derive(Debug)]
pub struct Lane {
    buffer: Box<[u8]>,
    tools: Tools,
}

/// What is not bytes.
#[derive(Debug)]
pub(crate) struct Tools {
    machines: Machines,
    random: u64,
    pub(crate) second: Second,
}

impl Lane {
    /// A lane's memory. `seed` starts its random numbers: they are for sampling, not for secrets.
    pub fn new(seed: u64) -> Self {
        Self {
            buffer: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            tools: Tools { machines: Machines::default(), random: seed, second: Second::default() },
        }
    }

    /// Lends all of it to one evaluation.
    pub fn scratch(&mut self) -> Scratch<'_> {
        Scratch { free: &mut self.buffer, tools: &mut self.tools }
    }

    /// Drops the states of regular expressions: to be called when a new generation of the configuration is in
    /// use.
    pub fn forget(&mut self) {
        self.tools.machines = Machines::default();
        self.tools.second = Second::default(); // it may have another time zone
    }
}

/// The free rest of a lane's buffer.
#[derive(Debug)]
pub struct Scratch<'a> {
    free: &'a mut [u8],
    tools: &'a mut Tools,
}

impl<'a> Scratch<'a> {
    /// The same memory for a shorter time: what is written through it is free again afterwards.
    pub fn reborrow(&mut self) -> Scratch<'_> {
        Scratch { free: self.free, tools: self.tools }
    }

    /// Bytes that are free.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Lets `write` fill the free bytes from the front; keeps as many as it says.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<&'a [u8]> {
        let len = write(self.free)?;
        if len > self.free.len() {
            return None;
        }
        let (kept, rest) = std::mem::take(&mut self.free).split_at_mut(len);
        self.free = rest;
        Some(kept)
    }

    /// A writer that keeps what was written when it is done.
    pub fn build(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Option<&'a [u8]> {
        self.fill(|free| {
            let mut writer = Writer::new(free);
            write(&mut writer)?;
            (!writer.is_full()).then_some(writer.len())
        })
    }

    /// A copy of the bytes.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<&'a [u8]> {
        self.build(|writer| writer.put(bytes))
    }

    /// Formatted text.
    pub fn print(&mut self, text: fmt::Arguments<'_>) -> Option<&'a [u8]> {
        self.build(|writer| writer.write_fmt(text).ok())
    }

    /// The first `most` of the free bytes, or all of them, for a text that grows while others are evaluated.
    /// They hold anything.
    pub fn take(&mut self, most: usize) -> &'a mut [u8] {
        let most = most.min(self.free.len());
        let (taken, rest) = std::mem::take(&mut self.free).split_at_mut(most);
        self.free = rest;
        taken
    }

    /// The first half of the free bytes, for a text that grows while others are evaluated.
    pub(crate) fn take_half(&mut self) -> &'a mut [u8] {
        self.take(self.free.len() / 2)
    }

    /// The next random number of the lane (SplitMix64 by Steele, Lea and Flood).
    pub fn random(&mut self) -> u64 {
        self.tools.random = self.tools.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.tools.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The text of a second's date, as lines have it.
    pub(crate) fn second(&mut self) -> &mut Second {
        &mut self.tools.second
    }

    pub(crate) fn machine(&mut self, regex: &Arc<meta::Regex>) -> &mut meta::Cache {
        let machines = &mut self.tools.machines;
        machines.room(address(regex));
        &mut machines.linear.entry(address(regex)).or_insert_with(|| (regex.clone(), regex.create_cache())).1
    }

    /// The lane's own machine of an expression that looks around: compiled at its first use.
    pub(crate) fn looking(&mut self, regex: &Arc<Looking>) -> Option<&looking::Machine> {
        let machines = &mut self.tools.machines;
        machines.room(address(regex));
        machines.looking.entry(address(regex)).or_insert_with(|| (regex.clone(), regex.machine())).1.as_ref()
    }
}

/// Bytes written one after another into a bounded buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
    full: bool,
}

impl<'a> Writer<'a> {
    /// Writes to `buffer` from its start.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, full: false }
    }

    /// What was written.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// What was written, for as long as the buffer lives; nothing when something did not fit.
    pub fn into_written(self) -> Option<&'a [u8]> {
        let Self { buffer, len, full } = self;
        (!full).then_some(&buffer[..len])
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Something did not fit.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Appends the bytes, or those of them that fit; nothing is returned when some did not.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        // Most of what a line is made of: no call is worth it.
        if bytes.len() <= 4 {
            for &byte in bytes {
                self.push(byte)?;
            }
            return Some(());
        }
        self.put_run(bytes)
    }

    fn put_run(&mut self, bytes: &[u8]) -> Option<()> {
        let kept = bytes.len().min(self.buffer.len() - self.len);
        self.buffer[self.len..self.len + kept].copy_from_slice(&bytes[..kept]);
        self.len += kept;
        self.full |= kept < bytes.len();
        (kept == bytes.len()).then_some(())
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) -> Option<()> {
        let Some(place) = self.buffer.get_mut(self.len) else {
            self.full = true;
            return None;
        };
        *place = byte;
        self.len += 1;
        Some(())
    }

    /// Appends the bytes, of which those that `is_plain` is false of are written by `other`. It must be true
    /// of letters, digits, and the signs that addresses of pages mostly have.
    #[inline]
    pub(crate) fn put_mapped(
        &mut self,
        bytes: &[u8],
        is_plain: impl Fn(u8) -> bool,
        other: impl Fn(u8, &mut Self) -> Option<()>,
    ) -> Option<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Eight at a time, then the one that stopped them.
            let mut plain = 0;
            while let Some(eight) = rest.get(plain..).and_then(<[u8]>::first_chunk::<8>)
                && usual(u64::from_le_bytes(*eight))
            {
                plain += 8;
            }
            plain += rest[plain..].iter().position(|&byte| !is_plain(byte)).unwrap_or(rest.len() - plain);
            self.put(&rest[..plain])?;
            let Some(&byte) = rest.get(plain) else { break };
            other(byte, self)?;
            rest = &rest[plain + 1..];
        }
        Some(())
    }

    /// Appends a number in decimal digits, with zeroes before it up to so many of them, at most 20.
    #[inline]
    pub fn put_number(&mut self, n: i64, least: usize) -> Option<()> {
        if let (0..=9, 0 | 1) = (n, least) {
            return self.push(b'0' + n as u8);
        }
        self.put_digits(n, least)
    }

    fn put_digits(&mut self, n: i64, least: usize) -> Option<()> {
        if let (10..=999, 0..=2) | (0..=999, 3) = (n, least) {
            let n = n as u32;
            let digits = [n / 100, n / 10 % 10, n % 10].map(|digit| b'0' + digit as u8);
            return self.put(if least < 3 && n < 100 { &digits[1..] } else { &digits });
        }
        let mut text = [b'0'; 21];
        let mut at = text.len();
        let mut left = n.unsigned_abs();
        while left > 0 {
            at -= 1;
            text[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        at = at.min(text.len() - least.clamp(1, 20));
        if n < 0 {
            at -= 1;
            text[at] = b'-';
        }
        self.put(&text[at..])
    }

    /// Appends formatted text.
    pub fn print(&mut self, text: fmt::Arguments<'_>) -> Option<()> {
        self.write_fmt(text).ok()
    }
}

/// Whether all eight bytes are ASCII from `$` to `z`, without `\\` and `]`: bytes that nobody writes
/// otherwise. It may be false of others that are, too. A byte is marked by its highest bit, and a borrow or
/// carry out of one only where that one is marked.
#[inline]
fn usual(eight: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |least: u8| eight.wrapping_sub(ONES * u64::from(least));
    let above = |most: u8| eight.wrapping_add(ONES * u64::from(0x7f - most));
    let zero = |x: u64| x.wrapping_sub(ONES) & !x;
    let is = |byte: u8| zero(eight ^ (ONES * u64::from(byte)));
    (below(b'$') | above(b'z') | eight | is(b'\\') | is(b']')) & (ONES << 7) == 0
}

impl Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes()).ok_or(fmt::Error)
    }
}

/// States of regular expressions by the address of the expression, which its entry keeps alive.
#[derive(Debug, Default)]
struct Machines {
    linear: ByAddress<(Arc<meta::Regex>, meta::Cache)>,
    looking: ByAddress<(Arc<Looking>, Option<looking::Machine>)>,
}

type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

impl Machines {
    /// Makes room for the one at `address`, if it is new.
    fn room(&mut self, address: usize) {
        let known = || self.linear.contains_key(&address) || self.looking.contains_key(&address);
        if self.linear.len() + self.looking.len() >= MAX_MACHINES && !known() {
            self.linear.clear();
            self.looking.clear();
        }
    }
}

fn address<T>(of: &Arc<T>) -> usize {
    std::ptr::from_ref::<T>(of) as usize
}

/// Spreads an address: its low bits are zeroes.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0.rotate_left(7) ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let wide = [1_000, 65_535, i64::MAX, i64::MIN, -1, -42];
        for n in (0..1_100).chain(wide) {
            for least in 0..6 {
                let mut buffer = [0; 32];
                let mut out = Writer::new(&mut buffer);
                assert_eq!(out.put_number(n, least), Some(()));
                let digits = n.unsigned_abs();
                let sign = if n < 0 { "-" } else { "" };
                assert_eq!(out.written(), format!("{sign}{digits:0least$}").as_bytes());
            }
        }
        let mut out = Writer::new(&mut []);
        assert_eq!((out.put_number(7, 1), out.put_number(77, 1), out.is_full()), (None, None, true));
    }

    #[test]
    fn each_byte_of_eight_is_looked_at() {
        for byte in 0..=255u8 {
            for place in 0..8 {
                let mut eight = *b"aZ09/.-_";
                eight[place] = byte;
                let expected = matches!(byte, b'$'..=b'z') && !matches!(byte, b'\\' | b']');
                assert_eq!(usual(u64::from_le_bytes(eight)), expected, "{byte} at {place}");
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_written_otherwise_wherever_it_stands() {
        let plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"';
        for text in
            [&b"GET /path/to/a/page?number=1\" HTTP/1.1"[..], b"\"", b"12345678\"", b"1234567\"\"9", b""]
        {
            let mut buffer = [0; 128];
            let mut out = Writer::new(&mut buffer);
            assert_eq!(out.put_mapped(text, plain, |_, out| out.put(b"#22")), Some(()));
            assert_eq!(
                String::from_utf8_lossy(out.written()),
                String::from_utf8_lossy(text).replace('"', "#22")
            );
        }
    }
}
