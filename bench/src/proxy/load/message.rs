//! HTTP/1 messages of the load, and a reader that finds their ends and counts their bytes.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

/// Contents of bodies.
const SLAB: &[u8] = &[b'x'; 1 << 20];

/// A head (or a whole small message), followed by a body of some length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    head: Vec<u8>,
    body: u64,
}

impl Message {
    /// A message with a body of `body` bytes. `head` must be complete.
    pub(crate) fn new(head: impl Into<Vec<u8>>, body: u64) -> Self {
        Self { head: head.into(), body }
    }

    /// Length of the message, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.body
    }

    /// Length of the body, in bytes.
    pub(crate) fn body(&self) -> u64 {
        self.body
    }

    /// Sends as much as the socket takes, from `at` on, and advances `at`. Returns true if everything was
    /// sent.
    ///
    /// # Errors
    /// Errors of the socket, except that it is full.
    pub(crate) fn send(&self, mut socket: &TcpStream, at: &mut u64) -> io::Result<bool> {
        while *at < self.bytes() {
            let head = self.head.get(*at as usize..).unwrap_or_default();
            let body = (self.bytes() - (*at).max(self.head.len() as u64)).min(SLAB.len() as u64);
            let sent = if head.is_empty() {
                socket.write(&SLAB[..body as usize])
            } else {
                socket.write_vectored(&[IoSlice::new(head), IoSlice::new(&SLAB[..body as usize])])
            };
            match sent {
                Ok(sent) => *at += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The reader's position in a message.
#[derive(Debug, Default)]
enum At {
    #[default]
    Head,
    Length(u64),
    /// In the line with a chunk's size; the size so far.
    Size(u64),
    /// After the size, before the end of its line.
    SizeEnd(u64),
    Chunk(u64),
    /// After a chunk, before the next size.
    ChunkEnd,
    /// In the trailers: bytes of the line so far.
    Trailers(u64),
    Complete,
}

/// Reads one message after another.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    at: At,
    /// An incomplete head.
    held: Vec<u8>,
    /// The status of a response, or 0 for a request.
    status: u16,
    body: u64,
}

/// A message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// 0 for a request.
    pub(crate) status: u16,
    /// Bytes of the body, without chunk framing.
    pub(crate) body: u64,
}

/// Longest head; the load's own are shorter.
const LONGEST_HEAD: usize = 16 << 10;

impl Reader {
    /// Consumes bytes of `input`, up to the end of the message.
    ///
    /// # Errors
    /// A sentence if the input is not HTTP/1.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Result<Option<Read>, String> {
        loop {
            if matches!(self.at, At::Complete) {
                let read = Read { status: self.status, body: self.body };
                *self = Self::default();
                return Ok(Some(read));
            }
            if input.is_empty() {
                return Ok(None);
            }
            self.step(input)?;
        }
    }

    /// True within a message.
    #[cfg(test)]
    pub(crate) fn is_amid(&self) -> bool {
        !matches!(self.at, At::Head) || !self.held.is_empty()
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<(), String> {
        self.at = match self.at {
            At::Head => {
                let Some(head) = self.head(input)? else { return Ok(()) };
                head
            }
            At::Length(left) => match self.data(input, left) {
                0 => At::Complete,
                left => At::Length(left),
            },
            At::Chunk(left) => match self.data(input, left) {
                0 => At::ChunkEnd,
                left => At::Chunk(left),
            },
            At::Size(size) => match byte(input) {
                b'\n' if size == 0 => At::Trailers(0),
                b'\n' => At::Chunk(size),
                b'\r' | b';' => At::SizeEnd(size),
                digit => {
                    let digit = (digit as char).to_digit(16).ok_or("a chunk's size is no number")?;
                    At::Size(size << 4 | u64::from(digit))
                }
            },
            At::SizeEnd(size) => match byte(input) {
                b'\n' if size == 0 => At::Trailers(0),
                b'\n' => At::Chunk(size),
                _ => At::SizeEnd(size),
            },
            At::ChunkEnd => match byte(input) {
                b'\n' => At::Size(0),
                b'\r' => At::ChunkEnd,
                _ => return Err("a chunk is longer than its size".into()),
            },
            At::Trailers(line) => match byte(input) {
                b'\n' if line == 0 => At::Complete,
                b'\n' => At::Trailers(0),
                b'\r' => At::Trailers(line),
                _ => At::Trailers(line + 1),
            },
            At::Complete => At::Complete,
        };
        Ok(())
    }

    /// Counts bytes of a body with `left` remaining ones.
    fn data(&mut self, input: &mut &[u8], left: u64) -> u64 {
        let taken = left.min(input.len() as u64);
        *input = &input[taken as usize..];
        self.body += taken;
        left - taken
    }

    fn head(&mut self, input: &mut &[u8]) -> Result<Option<At>, String> {
        const END: &[u8] = b"\r\n\r\n";
        let find = |bytes: &[u8]| bytes.windows(4).position(|four| four == END).map(|at| at + 4);
        if self.held.is_empty()
            && let Some(end) = find(input)
        {
            let (head, rest) = input.split_at(end);
            *input = rest;
            return self.meaning(head).map(Some);
        }
        let before = self.held.len();
        self.held.extend_from_slice(input);
        let Some(end) = find(&self.held) else {
            *input = &[];
            let fits = self.held.len() <= LONGEST_HEAD;
            return if fits { Ok(None) } else { Err("a head has no end".into()) };
        };
        *input = &input[end - before..];
        let held = std::mem::take(&mut self.held);
        self.meaning(&held[..end]).map(Some)
    }

    /// The state after a head.
    fn meaning(&mut self, head: &[u8]) -> Result<At, String> {
        self.status = match head.strip_prefix(b"HTTP/1.1 ") {
            Some(rest) => rest.get(..3).and_then(number).ok_or("a response has no status")? as u16,
            None => 0,
        };
        let mut at = At::Complete;
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let value = line[colon + 1..].trim_ascii();
            if colon == 14 && line[..colon].eq_ignore_ascii_case(b"content-length") {
                let length = number(value).ok_or("a length is no number")?;
                at = if length == 0 { At::Complete } else { At::Length(length) };
            } else if colon == 17 && line[..colon].eq_ignore_ascii_case(b"transfer-encoding") {
                at = At::Size(0);
            }
        }
        Ok(at)
    }
}

fn byte(input: &mut &[u8]) -> u8 {
    let first = input[0]; // callers check that there is input
    *input = &input[1..];
    first
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of `bytes`, read in pieces of `piece`.
    fn read(bytes: &[u8], piece: usize) -> Vec<Read> {
        let mut reader = Reader::default();
        let mut messages = Vec::new();
        for mut piece in bytes.chunks(piece) {
            while let Some(read) = reader.take(&mut piece).expect("this is HTTP") {
                messages.push(read);
            }
        }
        assert!(!reader.is_amid());
        messages
    }

    #[test]
    fn messages_end_where_they_end_however_they_come() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello\
            HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nA;e=1\r\n0123456789\r\n0\r\nT: \
            1\r\n\r\n";
        let expected =
            [Read { status: 0, body: 0 }, Read { status: 200, body: 5 }, Read { status: 404, body: 11 }];
        for piece in 1..=bytes.len() {
            assert_eq!(read(bytes, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_not_http_is_refused() {
        let mut input: &[u8] = b"HTTP/1.1 OK\r\n\r\n";
        assert!(Reader::default().take(&mut input).is_err());
        let mut input: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n";
        assert!(Reader::default().take(&mut input).is_err());
    }
}
