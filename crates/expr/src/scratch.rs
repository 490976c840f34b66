//! Memory of a lane for evaluations: one fixed buffer, and the caches of regular expressions.
//!
//! A [`Lane`] lives as long as the generation of the configuration that it evaluates, so the caches end with
//! the expressions. A [`Scratch`] borrows it for one evaluation. Results take bytes from its free rest and
//! stay valid while the borrow lasts; then all bytes are free again. Nothing is allocated, except for the
//! cache of a regular expression at its first use on a lane.

use crate::clock::Second;
use crate::pattern::backtrack::{self, BacktrackRegex};
use manylane_sync::Arc;
use rand::Rng;
use rand::rngs::StdRng;
use regex_automata::meta;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{BuildHasherDefault, Hasher};

/// Size of the buffer in bytes, for all converters of an evaluation together. It is four times the default of
/// `tune.bufsize`, so a chain can write several values of the size of a buffer.
pub const SCRATCH_BYTES: usize = 64 * 1024;

/// Maximum number of regular expressions with a cache on a lane. When it is exceeded, all caches are dropped.
/// A flood of expressions that are added at run time then costs time, but no memory.
pub const MAX_MACHINES: usize = 4096;

/// State of one lane for evaluations.
#[derive(Debug)]
pub struct Lane {
    buffer: Box<[u8]>,
    tools: Tools,
}

/// State other than the buffer.
#[derive(Debug)]
pub(crate) struct Tools {
    machines: Machines,
    random: StdRng,
    pub(crate) second: Second,
}

impl Lane {
    /// Allocates the buffer, and seeds the random numbers from the system: those of two lanes, generations or
    /// processes have nothing in common, and earlier ones do not reveal later ones.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            tools: Tools {
                machines: Machines::default(),
                random: rand::make_rng(),
                second: Second::default(),
            },
        }
    }

    /// Borrows the whole buffer for one evaluation.
    pub fn scratch(&mut self) -> Scratch<'_> {
        Scratch { free: &mut self.buffer, tools: &mut self.tools }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

/// The free rest of a lane's buffer.
#[derive(Debug)]
pub struct Scratch<'a> {
    free: &'a mut [u8],
    tools: &'a mut Tools,
}

impl<'a> Scratch<'a> {
    /// Reborrows the memory. Bytes that are written through it are free again when it ends.
    pub fn reborrow(&mut self) -> Scratch<'_> {
        Scratch { free: self.free, tools: self.tools }
    }

    /// Lets `write` fill the free bytes from the start, and takes as many as it returns. `None` takes
    /// nothing.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<&'a [u8]> {
        let len = write(self.free)?;
        if len > self.free.len() {
            return None;
        }
        let (kept, rest) = std::mem::take(&mut self.free).split_at_mut(len);
        self.free = rest;
        Some(kept)
    }

    /// Lets `write` append to a writer, and takes the bytes. `None` if something did not fit.
    pub fn build(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Option<&'a [u8]> {
        self.fill(|free| {
            let mut writer = Writer::new(free);
            write(&mut writer)?;
            (!writer.is_full()).then_some(writer.len())
        })
    }

    /// Copies bytes into the scratch.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<&'a [u8]> {
        self.build(|writer| writer.put(bytes))
    }

    /// Writes formatted text into the scratch.
    pub fn print(&mut self, text: fmt::Arguments<'_>) -> Option<&'a [u8]> {
        self.build(|writer| writer.write_fmt(text).ok())
    }

    /// Takes the first `most` free bytes, or all if there are fewer, for a text that grows during other
    /// evaluations. Their content is arbitrary.
    pub fn take(&mut self, most: usize) -> &'a mut [u8] {
        let most = most.min(self.free.len());
        let (taken, rest) = std::mem::take(&mut self.free).split_at_mut(most);
        self.free = rest;
        taken
    }

    /// Takes the first half of the free bytes, for a text that grows during other evaluations.
    pub(crate) fn take_half(&mut self) -> &'a mut [u8] {
        self.take(self.free.len() / 2)
    }

    /// The lane's next random number. It needs no system call.
    pub fn random(&mut self) -> u64 {
        self.tools.random.next_u64()
    }

    /// The cache of the last formatted second.
    pub(crate) fn second(&mut self) -> &mut Second {
        &mut self.tools.second
    }

    pub(crate) fn machine(&mut self, regex: &Arc<meta::Regex>) -> &mut meta::Cache {
        let machines = &mut self.tools.machines;
        machines.room(address(regex));
        &mut machines.linear.entry(address(regex)).or_insert_with(|| (regex.clone(), regex.create_cache())).1
    }

    /// The lane's own machine of a backtracking expression, compiled at its first use.
    pub(crate) fn looking(&mut self, regex: &Arc<BacktrackRegex>) -> Option<&backtrack::Machine> {
        let machines = &mut self.tools.machines;
        machines.room(address(regex));
        machines.looking.entry(address(regex)).or_insert_with(|| (regex.clone(), regex.machine())).1.as_ref()
    }
}

/// Appends bytes to a bounded buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
    full: bool,
}

impl<'a> Writer<'a> {
    /// A writer that starts at the beginning of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, full: false }
    }

    /// The bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The bytes written, with the lifetime of the buffer; `None` if something did not fit.
    pub fn into_written(self) -> Option<&'a [u8]> {
        let Self { buffer, len, full } = self;
        (!full).then_some(&buffer[..len])
    }

    /// Number of bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if something did not fit.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Appends bytes. If not all fit, appends those that do and returns `None`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        // Most appended runs are short: avoid the call.
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
        let Some(slot) = self.buffer.get_mut(self.len) else {
            self.full = true;
            return None;
        };
        *slot = byte;
        self.len += 1;
        Some(())
    }

    /// Appends bytes, and calls `other` for those that are not `is_plain`. `is_plain` must be true for
    /// letters, digits, and the characters that [`usual`] accepts.
    #[inline]
    pub(crate) fn put_mapped(
        &mut self,
        bytes: &[u8],
        is_plain: impl Fn(u8) -> bool,
        other: impl Fn(u8, &mut Self) -> Option<()>,
    ) -> Option<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Skip eight bytes at a time, then find the byte that is not plain.
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

    /// Appends a number in decimal digits, padded with zeroes to `least` digits, at most 20.
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

/// True if all eight bytes are ASCII from `$` to `z` except `\\` and `]`, which no encoding changes. May be
/// false for others, too. The highest bit of a byte marks a mismatch; a borrow or carry leaves a byte only if
/// it is marked.
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

/// Caches of regular expressions, by the address of the expression. An entry keeps its expression alive.
#[derive(Debug, Default)]
struct Machines {
    linear: ByAddress<(Arc<meta::Regex>, meta::Cache)>,
    looking: ByAddress<(Arc<BacktrackRegex>, Option<backtrack::Machine>)>,
}

type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

impl Machines {
    /// Makes room for the expression at `address`, if it is new.
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

/// Hashes an address, whose low bits are zero.
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
    use std::collections::HashSet;

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

    /// A stream of numbers that begins later in another is the same stream.
    #[test]
    fn two_lanes_share_no_random_number() {
        let numbers = || -> HashSet<u64> {
            let mut lane = Lane::new();
            (0..1000).map(|_| lane.scratch().random()).collect()
        };
        let (one, other) = (numbers(), numbers());
        assert_eq!((one.len(), other.len()), (1000, 1000));
        assert!(one.is_disjoint(&other));
    }

    #[test]
    fn each_byte_of_eight_is_examined() {
        for byte in 0..=255u8 {
            for index in 0..8 {
                let mut eight = *b"aZ09/.-_";
                eight[index] = byte;
                let expected = matches!(byte, b'$'..=b'z') && !matches!(byte, b'\\' | b']');
                assert_eq!(usual(u64::from_le_bytes(eight)), expected, "{byte} at {index}");
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
