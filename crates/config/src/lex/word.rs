//! A word with the source position of each byte.

use crate::Shown;
use crate::source::Pos;

/// A word, unquoted and expanded, with the source position of each byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    bytes: Vec<u8>,
    pos: Pos,
    /// Changes of the offset between bytes and columns; empty if the word was written as is.
    runs: Vec<Run>,
}

/// From the byte at `offset` on, columns count up from `column`, or are all `column` if `fixed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    offset: u32,
    column: u32,
    fixed: bool,
}

impl Word {
    /// A word without quotes, escapes and variables that begins at `pos`.
    pub fn plain(bytes: impl Into<Vec<u8>>, pos: Pos) -> Self {
        Self { bytes: bytes.into(), pos, runs: Vec::new() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes as text; `None` if they are not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// The word for messages, with harmful bytes escaped.
    pub fn shown(&self) -> Shown<'_> {
        Shown(&self.bytes)
    }

    /// The word up to `=`, for reports of unknown words: what follows may be a secret.
    pub fn shown_name(&self) -> Shown<'_> {
        let end = self.bytes.iter().position(|byte| *byte == b'=').unwrap_or(self.bytes.len());
        Shown(&self.bytes[..end])
    }

    /// Position of its first byte, opening quote included.
    pub fn pos(&self) -> Pos {
        self.pos
    }

    /// Position of the byte at `offset`. Past the end: the position after the last byte.
    pub fn pos_at(&self, offset: usize) -> Pos {
        let offset = offset.min(self.bytes.len()) as u32;
        // Binary search: a word of escapes has a run for each byte, and `join` looks up every byte.
        let before = self.runs.partition_point(|run| run.offset <= offset);
        let column = match before.checked_sub(1).map(|last| self.runs[last]) {
            Some(run) if run.fixed => run.column,
            Some(run) => run.column + (offset - run.offset),
            None => self.pos.column + offset,
        };
        self.pos.at_column(column)
    }

    /// Joins words by single spaces, for texts that extend to the end of the line. `at` is the position if
    /// there are none.
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

    /// A part of the word, with its positions.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let mut part = Self::plain(Vec::new(), self.pos_at(range.start));
        for offset in range {
            part.push(self.bytes[offset], self.pos_at(offset).column, false);
        }
        part
    }

    /// Appends the value of a variable that was written at `column`.
    pub(super) fn extend_fixed(&mut self, bytes: &[u8], column: u32) {
        if let [first, rest @ ..] = bytes {
            self.push(*first, column, true);
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Appends a byte that was written at `column`; `fixed` if it comes from a variable.
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
