//! The chunked coding (RFC 9112, 7.1), as a state machine over runs of bytes.
//!
//! ```text
//!        +--------------------------- CRLF -- Data end <---------+
//!        v                                                       |
//!   --> Size -- hex digits --> (Extension) -- CRLF --> n > 0: Data, n bytes
//!                                                   \-> n = 0: Last; trailers follow
//! ```
//!
//! It is strict: digits, then an optional extension, then CRLF. No space is allowed around the digits, except
//! before an extension's semicolon, and no bare line feed anywhere. Servers may pad their sizes with spaces,
//! as old ones do.

use crate::error::Problem;
use crate::lines::Refusal;

/// Largest extension of one chunk, in bytes: the size of HAProxy's buffer. Extensions are skipped as they
/// come and never kept; without a bound they would be bytes that no length counts.
const MAX_EXTENSION: u16 = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before or within the digits.
    Size { size: u64, digits: u8 },
    /// Behind the digits. `len` bytes of an extension were read; if `semicolon` is true they were blanks, and
    /// a semicolon must follow.
    Extension { size: u64, len: u16, semicolon: bool },
    /// Behind the carriage return of the size's line; `extended` if the line has an extension.
    SizeCr { size: u64, extended: bool },
    /// This many bytes of data are left; at least 1.
    Data(u64),
    /// Behind the data.
    DataEnd,
    /// Behind the carriage return that follows the data.
    DataCr,
    /// Behind the line of the last chunk.
    Last,
}

/// Position in a chunked body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    state: State,
    /// True if a size's line had more than digits.
    extended: bool,
    /// True if sizes may be padded.
    padded: bool,
    /// End of the line of a padded size, in the bytes that were read last.
    padding: Option<usize>,
}

impl Chunks {
    /// Begins a body. `padded` says whether its sizes may be padded with spaces.
    pub(crate) fn new(padded: bool) -> Self {
        Self { state: NEXT, extended: false, padded, padding: None }
    }
}

/// Returns the position behind the first line feed, or the end.
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

/// Returns start and length of the data of a chunk at `at` that is complete and in the usual form: up to
/// seven digits, no extension.
#[inline(always)] // its caller's closure should be inlined in the loop
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

/// Largest size of a tiny chunk with its framing, in bytes.
const TINY: usize = 8;

/// Number of equal tiny chunks after which the following ones are compared in blocks.
const ALIKE: usize = 8;

/// A tiny chunk: its position and layout.
#[derive(Clone, Copy)]
struct Tiny {
    begin: usize,
    /// Number of bytes in the size's line.
    line: usize,
    /// Number of bytes of data.
    len: usize,
}

/// Reads chunks from `at` on whose framing is equal, byte by byte, to that of `tiny`, which ends at `at`.
/// Returns the position of the first chunk that differs, or that is too close to the end. Tiny chunks come in
/// long runs of equal ones (R-G10), and this knows where the next one begins before it has read the current
/// one.
#[inline(always)] // one caller, whose closure should be inlined in the loop
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

/// Reads alike chunks in blocks of `N` bytes, a multiple of the stride: a few wide comparisons handle several
/// chunks.
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
    /// Reads `bytes` up to their end or behind the last chunk's line. Calls `data` with start and length of
    /// each piece of data. Returns the number of bytes read, and the start of the last size's line that
    /// begins in them.
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

    /// Goes back to the start of a size's line that was not read completely, unless an extension has begun in
    /// it. Returns whether it went back.
    pub(crate) fn rewind(&mut self) -> bool {
        let amid = matches!(self.state, State::Size { .. } | State::SizeCr { extended: false, .. });
        if amid {
            self.state = NEXT;
        }
        amid
    }

    /// Returns the size of the chunk whose line has an extension that is not complete.
    pub(crate) fn extending(&self) -> Option<u64> {
        match self.state {
            State::Extension { size, .. } | State::SizeCr { size, extended: true } => Some(size),
            _ => None,
        }
    }

    /// Reads an extension up to the end of its line. Returns the number of bytes read.
    pub(crate) fn read_extension(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let end = line_end(bytes);
        self.read(&bytes[..end], |_, _| {})?;
        Ok(end)
    }

    /// Returns whether the next byte is the first of a chunk.
    #[inline]
    pub(crate) fn is_between(&self) -> bool {
        self.state == NEXT
    }

    /// Skips `n` bytes of the current chunk's data, which has at least as many.
    pub(crate) fn pass(&mut self, n: u64) {
        if let State::Data(left) = self.state {
            self.state = if left == n { State::DataEnd } else { State::Data(left - n) };
        }
    }

    /// Returns whether an extension was read since the last call.
    pub(crate) fn saw_extension(&mut self) -> bool {
        std::mem::take(&mut self.extended)
    }

    /// Returns the end of the first padded size's line in the bytes read since the last call.
    pub(crate) fn take_padding(&mut self) -> Option<usize> {
        self.padding.take()
    }

    /// Returns whether the last chunk's line was read.
    pub(crate) fn is_last(&self) -> bool {
        self.state == State::Last
    }

    /// Returns the number of data bytes that the current chunk still lacks.
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

    /// Number of equal chunks: enough for a block.
    const RUN: usize = 20;

    type Story = (Vec<u8>, Result<bool, Problem>);

    /// Reads the bytes in pieces of `step`. Returns the data, and whether the last chunk was reached.
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

    /// Reading runs has the same result as reading single bytes, wherever and however a run is broken.
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
