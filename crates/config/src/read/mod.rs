//! From sources to statements: lines are split into words, and directives (`.if` and its like) are obeyed.
//!
//! Whoever reads statements pulls them one by one, and may change the environment and the section's name in
//! between: the next line sees the change.

mod blocks;

use crate::cond::Build;
use crate::diag::Diagnostics;
use crate::lex::{Budget, Environment, Scope, Word, split};
use crate::source::{FileId, Pos, Sources};
use blocks::Blocks;

/// What a reader gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A statement: one line's words, at least one, the first not empty.
    Statement(Vec<Word>),
    /// A file ended, and with it the section in it.
    EndOfFile(FileId),
}

/// Reads the statements of all sources in order.
#[derive(Debug)]
pub struct Reader<'a> {
    sources: &'a Sources,
    /// What the next line's conditions ask.
    pub build: Build,
    files: std::vec::IntoIter<FileId>,
    /// The file at work and the last line that was read of it.
    now: Option<(FileId, u32)>,
    blocks: Blocks,
    budget: Budget,
    /// The environment that the next line sees.
    pub environment: Environment,
    /// The name of the section, or its kind if it has none, for `.SECTION`.
    pub section: Vec<u8>,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'a> Reader<'a> {
    /// A reader at the beginning of the first source.
    pub fn new(sources: &'a Sources, build: &'a Build, environment: Environment) -> Self {
        Self {
            sources,
            build: *build,
            files: sources.files().collect::<Vec<_>>().into_iter(),
            now: None,
            blocks: Blocks::default(),
            budget: Budget::default(),
            environment,
            section: Vec::new(),
        }
    }

    /// The next statement or end of a file; `None` after the last file.
    pub fn next(&mut self, found: &mut Diagnostics) -> Option<Item> {
        loop {
            let (file, last) = match self.now {
                Some(now) => now,
                None => {
                    self.section.clear();
                    (self.files.next()?, 0)
                }
            };
            let number = last + 1;
            let Some((line, ended)) = self.sources.line(file, number) else {
                self.now = None;
                self.blocks.end_of_file(found);
                return Some(Item::EndOfFile(file));
            };
            self.now = Some((file, number));
            if let Some(words) = self.line(file, number, line, ended, found) {
                return Some(Item::Statement(words));
            }
        }
    }

    fn line(
        &mut self,
        file: FileId,
        number: u32,
        line: &[u8],
        ended: bool,
        found: &mut Diagnostics,
    ) -> Option<Vec<Word>> {
        let start = Pos { file, line: number, column: 1 };
        if !ended {
            let message = "missing line feed on last line, the file might have been truncated";
            found.alert(start.at_column(line.len() as u32 + 1), message);
        }
        let (line, start) = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => {
                found.alert(start, "byte order mark at the beginning of the file, save it without");
                (rest, start.at_column(BYTE_ORDER_MARK.len() as u32 + 1))
            }
            _ => (line, start),
        };
        let scope = Scope {
            environment: &self.environment,
            file: self.sources.name(file),
            line: number,
            section: &self.section,
        };
        // Lines of blocks that do not hold are split, too: quotes must match there as well, as in HAProxy.
        let words = match split(line, start, &scope, &mut self.budget) {
            Ok(words) => words,
            Err(error) => {
                found.alert(start.at_column(error.column), error.message);
                return None;
            }
        };
        let first = words.first()?;
        if first.bytes().starts_with(b".") {
            self.blocks.directive(&words, &self.environment, &self.build, found);
            return None;
        }
        if !self.blocks.hold() {
            return None;
        }
        if first.bytes().is_empty() {
            found.diag(first.pos(), "the first word is empty, so the line is no statement");
            return None;
        }
        Some(words)
    }
}
