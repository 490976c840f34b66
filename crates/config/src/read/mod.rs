//! Reads statements from sources: splits lines into words and runs directives such as `.if`.
//!
//! The caller takes statements one by one. In between it may change the environment and the name of the
//! section, which the next line sees.

mod blocks;

use crate::cond::Build;
use crate::diag::Diagnostics;
use crate::lex::{Budget, Environment, Scope, Word, split};
use crate::source::{FileId, Pos, Sources};
use blocks::Blocks;

/// An item of [`Reader::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The words of one line: at least one, and the first is not empty.
    Statement(Vec<Word>),
    /// The end of a file, which also ends its last section.
    EndOfFile(FileId),
}

/// Reads the statements of all sources in order.
#[derive(Debug)]
pub struct Reader<'a> {
    sources: &'a Sources,
    /// Values for the conditions of the next line.
    pub build: Build,
    files: std::vec::IntoIter<FileId>,
    /// The current file and the number of its last line that was read.
    now: Option<(FileId, u32)>,
    blocks: Blocks,
    budget: Budget,
    /// The environment of the next line.
    pub environment: Environment,
    /// Name of the section, or its kind if it has none, for `.SECTION`.
    pub section: Vec<u8>,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'a> Reader<'a> {
    /// A reader at the start of the first source.
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

    /// The next statement or end of file; `None` after the last file.
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
            let message = "the last line expects a line feed at its end, found none: was the file cut?";
            found.alert(start.at_column(line.len() as u32 + 1), message);
        }
        let (line, start) = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => {
                found.alert(start, "the file expects no byte order mark, found one: save it without");
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
        // Split the lines of skipped blocks too: quotes must match there as well, as in HAProxy.
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
            found.diag(first.pos(), "a line expects a keyword, found an empty word: the line is ignored");
            return None;
        }
        Some(words)
    }
}
