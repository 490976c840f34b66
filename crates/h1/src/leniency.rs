//! Relaxations of the strict parser, and the strict form that a lenient parser gives to a head.
//!
//! A parser reads strictly first. Only if that fails, and its [`Limits`](crate::Limits) name relaxations, it
//! rewrites the head in the strict form and reads that. So a message goes on in one form however it came, and
//! relaxations cost nothing for peers that keep to the rules.

use crate::error::Error;
use manylane_buf::Segment;
use manylane_http::{Known, syntax};

/// A set of relaxations, each of which HAProxy has, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency(u16);

impl Leniency {
    /// No relaxation: the strict parser.
    pub const NONE: Self = Self(0);
    /// A line of a head or of trailers may end with a line feed alone. Lines of chunks may not.
    pub const LINE_FEED: Self = Self(1);
    /// Several blanks or tabs may stand between the parts of a first line.
    pub const BLANKS: Self = Self(1 << 1);
    /// Values and reasons may have control characters, NUL among them, but no carriage return. Each becomes a
    /// blank.
    pub const CONTROLS: Self = Self(1 << 2);
    /// A value may continue in the next line (obs-fold). The line end becomes blanks.
    pub const FOLDS: Self = Self(1 << 3);
    /// `Content-Length` may come several times, or as a list, if all are equal. One is left.
    pub const LENGTHS: Self = Self(1 << 4);
    /// `Content-Length` may stand beside `Transfer-Encoding: chunked`. The length is dropped, and the
    /// connection closes.
    pub const LENGTH_AND_CODING: Self = Self(1 << 5);
    /// A message of HTTP/1.0 may have chunks. Its connection closes. A response counts as one of HTTP/1.1. A
    /// request stays one of HTTP/1.0, because its client may not understand a response in chunks; the caller
    /// that sends it on makes it one of HTTP/1.1, because a server of HTTP/1.0 might not look for chunks.
    pub const OLD_CODING: Self = Self(1 << 6);
    /// Blanks may follow a chunk's size. Those of servers are always accepted.
    pub const CHUNK_BLANKS: Self = Self(1 << 7);
    /// `Host` may come several times, if all are equal; one is left. The text behind its colon need not be a
    /// port.
    pub const HOSTS: Self = Self(1 << 8);
    /// Names of fields may have odd bytes. Such a field is dropped, as by HAProxy 3.2.
    pub const NAMES: Self = Self(1 << 9);
    /// Paths of targets may have bytes above ASCII, and `#`. They are percent-encoded (RFC 3986, 2.1).
    pub const TARGETS: Self = Self(1 << 10);
    /// The relaxations that HAProxy has by default, without `option http-strict-framing`.
    pub const USUAL: Self = Self::LINE_FEED
        .with(Self::BLANKS)
        .with(Self::LENGTHS)
        .with(Self::LENGTH_AND_CODING)
        .with(Self::OLD_CODING)
        .with(Self::HOSTS);
    /// `Transfer-Encoding` of a response may be empty, which counts as none, or name `chunked` several times.
    /// One is left.
    pub const CODINGS: Self = Self(1 << 11);
    /// All relaxations: `option accept-unsafe-violations-in-http-request` and `-response`.
    pub const ALL: Self = Self((1 << 12) - 1);

    /// Creates a set from bits, in the order of the constants above: for random tests.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns whether the set contains all of `others`.
    pub fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether the set is empty.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the union with `others`.
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Record of a message that only a lenient parser accepts.
#[derive(Clone, Debug)]
pub struct Relaxed {
    /// The first reason for which a strict parser refuses the message.
    pub error: Error,
    /// The received bytes: the whole head; of a body, the part from the wrong line on that had come.
    pub received: Segment,
}

/// Kind of a head's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Request,
    Status,
    /// There is no first line: trailers.
    None,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns whether the field in this line frames the message. Such a field is read as it came; nothing in it
/// becomes a blank.
fn frames(line: &[u8]) -> bool {
    #[cfg(test)]
    tests::SCANNED.set(tests::SCANNED.get() + line.len());
    let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
    matches!(Known::of(&line[..colon]), Known::CONTENT_LENGTH | Known::TRANSFER_ENCODING)
}

/// Writes the lines of a head to `out`, which is empty, in the strict form as far as `lenient` allows. It
/// leaves the rest for the strict parser to refuse. Returns the offset in `head` of the byte that is at
/// `watched` in `out`.
pub(crate) fn rewrite(
    head: &[u8],
    first: First,
    lenient: Leniency,
    out: &mut Vec<u8>,
    watched: usize,
) -> usize {
    let mut origin = head.len();
    let mut at = 0;
    let mut line_start = 0; // start in `out` of the line that may be folded
    let mut dropped = false; // whether the line that may be folded is left out
    let mut framing = false; // whether that line frames the message: set at its start, however long it grows
    while at < head.len() {
        let end = head[at..].iter().position(|&byte| byte == b'\n').map_or(head.len(), |n| at + n);
        let next = (end + 1).min(head.len());
        let lone = end < head.len() && (end == at || head[end - 1] != b'\r');
        let text = &head[at..if lone || end == head.len() { end } else { end - 1 }];
        let ending = &head[at + text.len()..next];
        let before = out.len();
        let is_first = at == 0 && first != First::None;
        if is_first {
            first_line(text, first, lenient, out);
        } else {
            let folds = line_start > 0 || first == First::None && at > 0;
            let continues = text.first().is_some_and(|&byte| is_blank(byte));
            dropped = if continues { dropped && lenient.has(Leniency::FOLDS) } else { is_odd(text, lenient) };
            // The strict parser never sees a dropped line: one with a byte that it would refuse stays.
            dropped &= text.iter().all(|&byte| syntax::is_value_byte(plain(byte, lenient)));
            dropped &= !lone || lenient.has(Leniency::LINE_FEED);
            if dropped {
                at = next;
                continue;
            }
            if continues && folds && lenient.has(Leniency::FOLDS) && out.ends_with(b"\r\n") && !framing {
                out.truncate(before - 2);
                out.extend_from_slice(b"  ");
            } else {
                line_start = before;
                framing = frames(text);
            }
            field(text, lenient, framing, out);
        }
        if lone && lenient.has(Leniency::LINE_FEED) {
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(ending);
        }
        if origin == head.len() && out.len() > watched {
            origin = at + watched.saturating_sub(before).min(next - at - 1);
        }
        at = next;
    }
    origin
}

/// Returns whether the field in this line has a name that is dropped. The strict parser refuses it if its
/// name has blanks or controls, or could be taken for one that frames.
fn is_odd(line: &[u8], lenient: Leniency) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
    let name = &line[..colon];
    lenient.has(Leniency::NAMES)
        && colon > 0
        && !syntax::is_token(name)
        && name.iter().all(|&byte| byte > b' ' && byte != 0x7f)
        && !passes_for_framing(name)
}

/// Returns whether a reader that skips the odd bytes of a name, or takes them for blanks, would read a field
/// that frames the message or names its host. Such a name is never accepted: the sender may be such a reader.
#[cold]
fn passes_for_framing(name: &[u8]) -> bool {
    let framing = [Known::CONTENT_LENGTH, Known::TRANSFER_ENCODING, Known::HOST, Known::CONNECTION];
    let mut token = [0; 17]; // as long as the longest of them
    let mut len = 0;
    for &byte in name.iter().filter(|&&byte| syntax::is_token_byte(byte)) {
        let Some(slot) = token.get_mut(len) else { return false };
        *slot = byte;
        len += 1;
    }
    len < name.len() && framing.contains(&Known::of(&token[..len]))
}

/// Returns the byte, or a blank for a control character.
fn plain(byte: u8, lenient: Leniency) -> u8 {
    let control = (byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n')) || byte == 0x7f;
    if control && lenient.has(Leniency::CONTROLS) { b' ' } else { byte }
}

fn first_line(text: &[u8], first: First, lenient: Leniency, out: &mut Vec<u8>) {
    let encodes = first == First::Request && lenient.has(Leniency::TARGETS);
    if first == First::Request && !lenient.has(Leniency::BLANKS) && !encodes {
        out.extend_from_slice(text);
        return;
    }
    let mut slashes = None; // number of slashes up to the target's path
    // One blank is left between two parts. In a status line, everything behind the second blank is the
    // reason.
    let mut parts = 0;
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let reason = first == First::Status && parts == 2;
        if reason {
            out.extend(rest.iter().map(|&byte| plain(byte, lenient)));
            return;
        }
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        if blanks > 0 && blanks < rest.len() && !out.is_empty() && lenient.has(Leniency::BLANKS) {
            out.push(b' ');
            rest = &rest[blanks..];
            parts += 1;
        } else {
            if parts == 1 && encodes {
                let left = slashes.get_or_insert(if byte == b'/' { 1 } else { 3 });
                *left -= i32::from(byte == b'/' && *left > 0);
                if *left == 0 && (!byte.is_ascii() || byte == b'#') {
                    let digit = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
                    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
                    rest = after;
                    continue;
                }
            }
            out.push(byte);
            parts += usize::from(is_blank(byte));
            rest = after;
        }
    }
}

fn field(text: &[u8], lenient: Leniency, frames: bool, out: &mut Vec<u8>) {
    let fold = text.first().is_some_and(|&byte| is_blank(byte));
    let colon = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
    let name = if fold { 0 } else { colon };
    let lenient = if frames { Leniency::NONE } else { lenient };
    out.extend_from_slice(&text[..name]);
    out.extend(text[name..].iter().map(|&byte| plain(byte, lenient)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Number of bytes that `frames` has examined in this thread.
        pub(super) static SCANNED: Cell<usize> = const { Cell::new(0) };
    }

    /// `frames` examines each line once, and not again when lines are folded into it.
    #[test]
    fn many_folds_are_little_work() {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nX: y\n".to_vec();
        for _ in 0..5000 {
            head.extend_from_slice(b" \n");
        }
        head.extend_from_slice(b"\n");
        let mut out = Vec::new();
        SCANNED.set(0);
        rewrite(&head, First::Request, Leniency::ALL, &mut out, 0);
        assert!(out.ends_with(b" \r\n\r\n") && out.len() > 10_000, "{}", out.len());
        assert!(SCANNED.get() > 0 && SCANNED.get() <= head.len(), "{} of {}", SCANNED.get(), head.len());
    }
}
