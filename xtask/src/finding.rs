//! The result of a check, with its position.

use std::fmt;
use std::path::{Path, PathBuf};

/// A sentence about one position, with the remedy. Sorted by position.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace.
    file: PathBuf,
    position: Position,
    message: String,
}

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    /// For a finding about something that is missing in the file.
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    pub(crate) fn of(span: proc_macro2::Span) -> Self {
        let start = span.start();
        Self { line: start.line, column: start.column + 1 }
    }

    /// The position of a byte offset in `text`.
    pub(crate) fn at(text: &str, offset: usize) -> Self {
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl Finding {
    pub(crate) fn new(root: &Path, file: &Path, position: Position, message: String) -> Self {
        Self { file: file.strip_prefix(root).unwrap_or(file).to_owned(), position, message }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{}:{line}:{column}: {}", self.file.display(), self.message)
    }
}
