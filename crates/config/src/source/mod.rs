//! Configuration texts: files and folders of `-f`, and texts that a program supplies. Everything made from a
//! text keeps its position: file, line and column.

mod load;

pub use load::LoadError;

use crate::limits::{MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES};
use crate::table::KeywordContext;
use std::path::Path;

/// A file of one [`Sources`], ordered by the order of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

impl FileId {
    /// Index in the order of reading.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// For texts that do not belong to a [`Sources`].
    pub(crate) const ALONE: Self = Self(0);
}

/// A position in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// The file.
    pub file: FileId,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
}

/// A text with its name and line index.
#[derive(Debug)]
struct File {
    name: Vec<u8>,
    text: Vec<u8>,
    /// Offset of the first byte of each line.
    starts: Vec<u32>,
}

/// All texts of one run, in the order of reading.
///
/// Names and texts are bytes and need not be UTF-8.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
    bytes: usize,
    proxies: usize,
}

impl Sources {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text. Messages show `name`.
    ///
    /// # Errors
    /// If the number of files or bytes exceeds a limit of [`crate::limits`].
    pub fn add(&mut self, name: impl Into<Vec<u8>>, text: impl Into<Vec<u8>>) -> Result<FileId, LoadError> {
        let (name, text) = (name.into(), text.into());
        if self.files.len() >= MAX_FILES {
            return Err(LoadError::new(
                &name,
                format!("expected at most {MAX_FILES} files, found more; join some of them"),
            ));
        }
        if text.len() > MAX_FILE_BYTES {
            let reason = format!(
                "expected at most {MAX_FILE_BYTES} bytes, found more; split it and give -f several times"
            );
            return Err(LoadError::new(&name, reason));
        }
        if self.bytes + text.len() > MAX_TOTAL_BYTES {
            let reason = format!(
                "expected at most {MAX_TOTAL_BYTES} bytes in all files, found {}",
                self.bytes + text.len()
            );
            return Err(LoadError::new(&name, reason));
        }
        self.bytes += text.len();
        self.proxies += text.split(|&byte| byte == b'\n').filter(|line| begins_proxy(line)).count();
        let mut starts = vec![0];
        for (at, &byte) in text.iter().enumerate() {
            if byte == b'\n' && at + 1 < text.len() {
                starts.push(at as u32 + 1);
            }
        }
        self.files.push(File { name, text, starts });
        Ok(FileId(self.files.len() as u32 - 1))
    }

    /// Adds the file at `path`. For a folder, adds its files whose names end in `.cfg` and do not begin with
    /// a dot, sorted by the bytes of their names.
    ///
    /// # Errors
    /// If something cannot be read, is neither file nor folder, or exceeds a limit. Files before it stay
    /// added.
    pub fn load(&mut self, path: &Path) -> Result<Vec<FileId>, LoadError> {
        load::load(self, path)
    }

    /// Total size of all files in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of headers of proxies and `defaults` in all files, those in skipped `.if` blocks included.
    pub fn proxies(&self) -> usize {
        self.proxies
    }

    /// The files in the order of reading.
    pub fn files(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.len() as u32).map(FileId)
    }

    /// The name as given.
    pub fn name(&self, file: FileId) -> &[u8] {
        &self.file(file).name
    }

    /// Line `number` (from 1) without its line feed, and whether it had one. `None` past the last line.
    pub fn line(&self, file: FileId, number: u32) -> Option<(&[u8], bool)> {
        let file = self.file(file);
        let index = number.checked_sub(1)? as usize;
        if file.text.is_empty() {
            return None;
        }
        let start = *file.starts.get(index)? as usize;
        let end = file.starts.get(index + 1).map_or(file.text.len(), |&next| next as usize);
        let line = &file.text[start..end];
        Some(match line.strip_suffix(b"\n") {
            Some(line) => (line, true),
            None => (line, false),
        })
    }

    fn file(&self, file: FileId) -> &File {
        &self.files[file.0 as usize]
    }
}

/// True if a line is the header of a proxy or `defaults`.
fn begins_proxy(line: &[u8]) -> bool {
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
    word.and_then(KeywordContext::section).is_some_and(KeywordContext::is_proxy)
}

impl Pos {
    /// The same line with another column.
    pub fn at_column(self, column: u32) -> Self {
        Self { column, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_with_and_without_a_last_line_feed() {
        let mut sources = Sources::new();
        let with = sources.add("a", "one\n\nthree\n").unwrap();
        let without = sources.add("b", "one\ntwo").unwrap();
        let empty = sources.add("c", "").unwrap();
        assert_eq!(sources.line(with, 1), Some((&b"one"[..], true)));
        assert_eq!(sources.line(with, 2), Some((&b""[..], true)));
        assert_eq!(sources.line(with, 3), Some((&b"three"[..], true)));
        assert_eq!(sources.line(with, 4), None);
        assert_eq!(sources.line(with, 0), None);
        assert_eq!(sources.line(without, 2), Some((&b"two"[..], false)));
        assert_eq!(sources.line(empty, 1), None);
    }

    #[test]
    fn lines_that_begin_proxies_are_counted() {
        let mut sources = Sources::new();
        sources
            .add("a", "global\n maxconn 9\ndefaults\n\n  listen a\n\tbind :1\n#backend b\nbackends c")
            .unwrap();
        sources.add("b", "frontend\td\r\nbackend b from d").unwrap();
        assert_eq!(sources.proxies(), 4);
    }

    #[test]
    fn a_file_or_a_run_beyond_the_limits_is_refused_by_name() {
        let mut sources = Sources::new();
        let big = sources.add("big.cfg", vec![b'x'; MAX_FILE_BYTES + 1]).unwrap_err().to_string();
        assert!(big.contains("big.cfg") && big.contains("at most 16777216 bytes, found more"), "{big}");
        for name in ["a", "b"] {
            sources.add(name, vec![b'x'; MAX_FILE_BYTES]).unwrap();
        }
        let total = sources.add("e.cfg", "x").unwrap_err().to_string();
        assert!(total.contains("e.cfg") && total.contains("bytes in all files"), "{total}");
        let mut many = Sources::new();
        for _ in 0..MAX_FILES {
            many.add("n", "").unwrap();
        }
        assert!(many.add("one more", "").is_err());
    }
}
