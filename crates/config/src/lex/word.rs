//! A word, and where each of its bytes was written.

use crate::Shown;
use crate::source::Pos;

/// A word after quotes, escapes and variables, with the place of each of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    bytes: Vec<u8>,
    pos: Pos,
    /// Where the columns of the following bytes start; empty when every byte was written as it is.
    runs: Vec<Run>,
}

/// Bytes of a word from `offset` on were written at `column` and following, or, when `fixed`, all at
/// `column`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    offset: u32,
    column: u32,
    fixed: bool,
}

impl Word {
    /// A word that was written as it is, from `pos` on.
    pub fn plain(bytes: impl Into<Vec<u8>>, pos: Pos) -> Self {
        Self { bytes: bytes.into(), pos, runs: Vec::new() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes as text, if they are UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// For messages.
    pub fn shown(&self) -> Shown<'_> {
        Shown(&self.bytes)
    }

    /// Where the word begins, opening quote included.
    pub fn pos(&self) -> Pos {
        self.pos
    }

    /// Where the byte at `offset` was written; past the end, the place after the last byte.
    pub fn pos_at(&self, offset: usize) -> Pos {
        let offset = offset.min(self.bytes.len()) as u32;
        // By halves: a line of escapes has a run for each, and whoever joins words asks for each byte.
        let before = self.runs.partition_point(|run| run.offset <= offset);
        let column = match before.checked_sub(1).map(|last| self.runs[last]) {
            Some(run) if run.fixed => run.column,
            Some(run) => run.column + (offset - run.offset),
            None => self.pos.column + offset,
        };
        self.pos.at_column(column)
    }

    /// The words' bytes joined by single spaces, as one word: for texts that go to the end of the line.
    pub fn join(words: &[Word], at: Pos) -> Self {
        let mut joined = Self::plain(Vec::new(), words.first().map_or(at, Word::pos));
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                joined.push(b' ', word.pos.column.saturating_sub(1), false);
            }
            for (offset, &byte) in word.bytes.iter().enumerate() {
                joined.push(byte, word.pos_at(offset).column, false);
            }
        }
        joined
    }

    /// A part of the word, with its places.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let mut part = Self::plain(Vec::new(), self.pos_at(range.start));
        for offset in range {
            part.push(self.bytes[offset], self.pos_at(offset).column, false);
        }
        part
    }

    /// Appends bytes of a variable that was written at `column`.
    pub(super) fn extend_fixed(&mut self, bytes: &[u8], column: u32) {
        if let [first, rest @ ..] = bytes {
            self.push(*first, column, true);
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Appends a byte that was written at `column`. `fixed` bytes come from a variable.
    pub(super) fn push(&mut self, byte: u8, column: u32, fixed: bool) {
        let offset = self.bytes.len() as u32;
        let expected = match self.runs.last() {
            Some(run) if run.fixed => (run.column, true),
            Some(run) => (run.column + (offset - run.offset), false),
            None => (self.pos.column + offset, false),
        };
        if expected != (column, fixed) {
            self.runs.push(Run { offset, column, fixed });
        }
        self.bytes.push(byte);
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.bytes == other.as_bytes()
    }
}
