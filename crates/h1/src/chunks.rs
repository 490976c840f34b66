//! The chunked coding (RFC 9112, 7.1), as a machine over runs of bytes.
//!
//! ```text
//!        +--------------------------- CRLF -- Data end <---------+
//!        v                                                       |
//!   --> Size -- hex digits --> (Extension) -- CRLF --> n > 0: Data, n bytes
//!                                                   \-> n = 0: Last; trailers follow
//! ```
//!
//! Strict: digits, then an optional extension, then CRLF. No space before or behind the digits but before an
//! extension's semicolon, no bare line feed anywhere. Servers may pad their sizes with spaces, as old ones
//! do.

use crate::error::Problem;
use crate::lines::Refusal;

/// Longest extension of one chunk, in bytes: what HAProxy's buffer takes. They are read over as they come,
/// never kept; without a bound they would be bytes that no length counts.
const MAX_EXTENSION: u16 = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before and amid the digits.
    Size { size: u64, digits: u8 },
    /// Behind the digits: so many bytes of an extension were seen, the last a space where `semicolon` must
    /// follow.
    Extension { size: u64, len: u16, semicolon: bool },
    /// Behind the carriage return of the size's line, which has an extension.
    SizeCr { size: u64, extended: bool },
    /// So many bytes of data are left; more than 0.
    Data(u64),
    /// Behind the data.
    DataEnd,
    /// Behind the carriage return that follows the data.
    DataCr,
    /// Behind the line of the last chunk.
    Last,
}

/// Where in a chunked body the next byte is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    state: State,
    /// Something beside digits was seen in the line of a size.
    extended: bool,
    /// Sizes may be padded.
    padded: bool,
    /// Where the line of a padded size ends in what was read last.
    padding: Option<usize>,
}

impl Chunks {
    /// At the beginning of a body, whose sizes may be `padded` with spaces.
    pub(crate) fn new(padded: bool) -> Self {
        Self { state: NEXT, extended: false, padded, padding: None }
    }
}

/// Behind the first line feed, or the end.
fn line_end(bytes: &[u8]) -> usize {
    let end = manylane_buf::scan::find(bytes, 0, b'\n');
    (end + 1).min(bytes.len())
}

const NEXT: State = State::Size { size: 0, digits: 0 };

#[inline]
fn hex(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    if digit < 10 {
        return Some(u64::from(digit));
    }
    let letter = (byte | 0x20).wrapping_sub(b'a');
    (letter < 6).then_some(u64::from(letter) + 10)
}

/// Data and length of a chunk that is whole at `at`, in the usual form: up to seven digits, no extension.
#[inline(always)] // the closure of its caller should be part of its loop
pub(crate) fn whole(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    let mut size = hex(*rest.first()?)? as usize;
    let mut digits = 1;
    while let Some(digit) = hex(*rest.get(digits)?) {
        if digits == 7 {
            return None;
        }
        size = size << 4 | digit as usize;
        digits += 1;
    }
    let [b'\r', b'\n', data @ ..] = &rest[digits..] else { return None };
    let [b'\r', b'\n', ..] = data.get(size..)? else { return None };
    (size > 0).then_some((at + digits + 2, size))
}

/// Bytes of framing and data of a tiny chunk at most.
const TINY: usize = 8;

/// Tiny chunks that are alike, before those that follow are compared in blocks.
const ALIKE: usize = 8;

/// A tiny chunk: where it begins, and how it is laid out.
#[derive(Clone, Copy)]
struct Tiny {
    begin: usize,
    /// Bytes of its size's line.
    line: usize,
    /// Bytes of data.
    len: usize,
}

/// Reads over chunks from `at` on that are framed, byte by byte, as `tiny`, which ends there: where the first
/// is that is not, or does not lie so far before the end. Tiny chunks come in long runs of equal ones
/// (R-G10), and where the next begins is known here before this one was looked at.
#[inline(always)] // one caller, and the closure in it should be part of its loop
fn alike(bytes: &[u8], mut at: usize, tiny: Tiny, mut data: impl FnMut(usize, usize)) -> usize {
    let Tiny { begin, line, len } = tiny;
    let stride = at - begin;
    let word = |at: usize| bytes.get(at..at + TINY)?.try_into().ok().map(u64::from_le_bytes);
    let low = |bytes: usize| u64::MAX.checked_shr(64 - 8 * bytes as u32).unwrap_or(0);
    let framing = low(stride) & !(low(len) << (8 * line));
    let Some(first) = word(begin) else { return at };
    for _ in 0..ALIKE {
        if word(at).is_none_or(|word| (word ^ first) & framing != 0) {
            return at;
        }
        data(at + line, len);
        at += stride;
    }
    match stride {
        6 => blocks::<48>(bytes, at, tiny, stride, data),
        7 => blocks::<56>(bytes, at, tiny, stride, data),
        8 => blocks::<64>(bytes, at, tiny, stride, data),
        _ => at,
    }
}

/// The same in blocks of `N` bytes, a multiple of the stride: a few wide comparisons for several chunks.
#[inline(always)] // as above
fn blocks<const N: usize>(
    bytes: &[u8],
    mut at: usize,
    Tiny { begin, line, len }: Tiny,
    stride: usize,
    mut data: impl FnMut(usize, usize),
) -> usize {
    let (mut framing, mut expected) = ([0; N], [0; N]);
    for n in (0..N).filter(|n| !(line..line + len).contains(&(n % stride))) {
        framing[n] = u8::MAX;
        expected[n] = bytes[begin + n % stride];
    }
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        if (0..N).fold(0, |differs, n| differs | (block[n] & framing[n]) ^ expected[n]) != 0 {
            break;
        }
        (at..at + N).step_by(stride).for_each(|chunk| data(chunk + line, len));
        at += N;
    }
    at
}

impl Chunks {
    /// Reads over `bytes` until they end or the last chunk's line does, and hands the data to `data`, piece
    /// by piece: where it begins and how long it is. How many bytes were read, and where the last size's
    /// line that was begun in them begins.
    #[inline]
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(usize, usize),
    ) -> Result<(usize, usize), Refusal> {
        let mut at = 0;
        let mut line = 0;
        let mut state = self.state;
        loop {
            if state == NEXT {
                while let Some((start, len)) = whole(bytes, at) {
                    data(start, len);
                    let before = at;
                    at = start + len + 2;
                    if at - before <= TINY {
                        at = alike(bytes, at, Tiny { begin: before, line: start - before, len }, &mut data);
                    }
                    line = at;
                }
            }
            let Some(&byte) = bytes.get(at) else { break };
            state = match state {
                State::Size { size, digits } => match hex(byte) {
                    Some(_) if digits > 15 || size >> 59 != 0 => return Err((Problem::HugeChunk, at)),
                    Some(digit) => State::Size { size: size << 4 | digit, digits: digits + 1 },
                    None if digits == 0 => return Err((Problem::BadChunkSize, at)),
                    None => match byte {
                        b'\r' => State::SizeCr { size, extended: false },
                        b';' | b' ' | b'\t' => {
                            self.extended = true;
                            State::Extension { size, len: 1, semicolon: byte != b';' }
                        }
                        b'\n' => return Err((Problem::BareLf, at)),
                        _ => return Err((Problem::BadChunkSize, at)),
                    },
                },
                State::Extension { size, len, semicolon } => match byte {
                    b'\r' if !semicolon || self.padded => {
                        if semicolon {
                            self.padding = self.padding.or(Some(at));
                        }
                        State::SizeCr { size, extended: true }
                    }
                    b'\n' => return Err((Problem::BareLf, at)),
                    _ if len == MAX_EXTENSION => return Err((Problem::BadExtension, at)),
                    b';' => State::Extension { size, len: len + 1, semicolon: false },
                    b' ' | b'\t' => State::Extension { size, len: len + 1, semicolon },
                    0x21..=0x7e if !semicolon => State::Extension { size, len: len + 1, semicolon },
                    _ => return Err((Problem::BadExtension, at)),
                },
                State::SizeCr { size, .. } => match (byte, size) {
                    (b'\n', 0) => {
                        self.state = State::Last;
                        return Ok((at + 1, line));
                    }
                    (b'\n', size) => State::Data(size),
                    _ => return Err((Problem::BareCr, at - usize::from(at > 0))),
                },
                State::Data(left) => {
                    let here = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    data(at, here);
                    at += here;
                    state =
                        if here as u64 == left { State::DataEnd } else { State::Data(left - here as u64) };
                    continue;
                }
                State::DataEnd if byte == b'\r' => State::DataCr,
                State::DataCr if byte == b'\n' => {
                    line = at + 1;
                    NEXT
                }
                State::DataEnd | State::DataCr => return Err((Problem::BadChunkEnd, at)),
                State::Last => break,
            };
            at += 1;
        }
        self.state = state;
        Ok((at, line))
    }

    /// Goes back to the start of a size's line of which not all was read, but for one that an extension has
    /// begun in. Whether there was one.
    pub(crate) fn rewind(&mut self) -> bool {
        let amid = matches!(self.state, State::Size { .. } | State::SizeCr { extended: false, .. });
        if amid {
            self.state = NEXT;
        }
        amid
    }

    /// The size of the chunk in whose line an extension has begun that is not over.
    pub(crate) fn extending(&self) -> Option<u64> {
        match self.state {
            State::Extension { size, .. } | State::SizeCr { size, extended: true } => Some(size),
            _ => None,
        }
    }

    /// Reads over an extension, up to its line's end. How many bytes that were.
    pub(crate) fn read_extension(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let end = line_end(bytes);
        self.read(&bytes[..end], |_, _| {})?;
        Ok(end)
    }

    /// Whether the next byte is the first of a chunk.
    #[inline]
    pub(crate) fn is_between(&self) -> bool {
        self.state == NEXT
    }

    /// `n` bytes of the present chunk's data went past; there are so many.
    pub(crate) fn pass(&mut self, n: u64) {
        if let State::Data(left) = self.state {
            self.state = if left == n { State::DataEnd } else { State::Data(left - n) };
        }
    }

    /// Whether an extension was seen since this was asked.
    pub(crate) fn saw_extension(&mut self) -> bool {
        std::mem::take(&mut self.extended)
    }

    /// Where the first padded size's line ends in what was read since this was asked.
    pub(crate) fn take_padding(&mut self) -> Option<usize> {
        self.padding.take()
    }

    /// Whether the last chunk's line was read.
    pub(crate) fn is_last(&self) -> bool {
        self.state == State::Last
    }

    /// Bytes of the present chunk's data that are still to come.
    pub(crate) fn left(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for a block.
    const RUN: usize = 20;

    type Story = (Vec<u8>, Result<bool, Problem>);

    /// The data, and whether all was well up to the last chunk; read `step` bytes at a time.
    fn story(bytes: &[u8], step: usize) -> Story {
        let (mut chunks, mut data) = (Chunks::new(false), Vec::new());
        for part in bytes.chunks(step) {
            match chunks.read(part, |at, len| data.extend_from_slice(&part[at..at + len])) {
                Err((problem, _)) => return (data, Err(problem)),
                Ok((read, _)) => assert!(read == part.len() || chunks.is_last()),
            }
        }
        (data, Ok(chunks.is_last()))
    }

    /// What is read in runs is what is read byte by byte, wherever a run is broken and with whatever.
    #[test]
    fn runs_of_equal_chunks_are_read_as_single_bytes_are() {
        for (line, data) in
            [("1", "x"), ("01", "x"), ("001", "x"), ("2", "xy"), ("3", "xyz"), ("4", "wxyz"), ("0003", "xyz")]
        {
            let run = format!("{line}\r\n{data}\r\n").repeat(RUN) + "0\r\n";
            assert_eq!(story(run.as_bytes(), run.len()), (data.repeat(RUN).into_bytes(), Ok(true)));
            for at in 0..run.len() {
                for byte in *b"\r\n01fgx; " {
                    let mut broken = run.clone().into_bytes();
                    broken[at] = byte;
                    let text = String::from_utf8_lossy(&broken);
                    assert_eq!(story(&broken, broken.len()), story(&broken, 1), "{text:?}");
                }
            }
        }
    }
}
