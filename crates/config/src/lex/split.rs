//! Splits one line into words.

use super::variable::PSEUDO;
use super::{LexError, Scope, Word};
use crate::Shown;
use crate::guess;
use crate::limits::{MAX_EXPANDED_BYTES, MAX_EXPANSION_TOTAL, MAX_LINE_BYTES, MAX_WORDS};
use crate::source::Pos;

const UNMATCHED: &str = "unmatched quote: expected another one in the same line, found none";

/// Remaining bytes that variables can add in this run.
#[derive(Clone, Debug)]
pub struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: MAX_EXPANSION_TOTAL }
    }
}

/// Splits a line, without its line feed, into words. `start` is the position of its first byte.
///
/// # Errors
/// The first error in the line. None of its words are returned then.
pub fn split(line: &[u8], start: Pos, scope: &Scope<'_>, budget: &mut Budget) -> Result<Vec<Word>, LexError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(error(1, format!("line too long ({} bytes), the limit is {MAX_LINE_BYTES}", line.len())));
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Splitter { line, at: 0, start, scope, budget, words: Vec::new(), word: None, expanded: 0 }.run()
}

struct Splitter<'a> {
    line: &'a [u8],
    at: usize,
    start: Pos,
    scope: &'a Scope<'a>,
    budget: &'a mut Budget,
    words: Vec<Word>,
    /// The current word.
    word: Option<Word>,
    /// Bytes that variables added to this line.
    expanded: usize,
}

fn error(column: u32, message: impl Into<String>) -> LexError {
    LexError { column, message: message.into() }
}

impl Splitter<'_> {
    fn run(mut self) -> Result<Vec<Word>, LexError> {
        while let Some(&byte) = self.line.get(self.at) {
            match byte {
                b'#' => break,
                b'"' => self.weak_quotes()?,
                b'\'' => self.strong_quotes()?,
                b'\\' => self.escape(false)?,
                b'\r' => {
                    let rest = "carriage return inside of a line; what follows it would be lost";
                    return Err(error(self.column(), format!("{rest}, remove it or write \\r")));
                }
                b' ' | b'\t' | 0x0b | 0x0c => {
                    self.end_word()?;
                    self.at += 1;
                }
                byte => self.literal(byte)?,
            }
        }
        self.end_word()?;
        Ok(self.words)
    }

    /// Column of the current byte.
    fn column(&self) -> u32 {
        self.column_of(self.at)
    }

    fn column_of(&self, index: usize) -> u32 {
        self.start.column + index as u32
    }

    /// The current word, or a new one that begins at `index`.
    fn word(&mut self, index: usize) -> &mut Word {
        let pos = self.start.at_column(self.start.column + index as u32);
        self.word.get_or_insert_with(|| Word::plain(Vec::new(), pos))
    }

    /// Appends the current byte.
    fn literal(&mut self, byte: u8) -> Result<(), LexError> {
        if byte == 0 {
            return Err(self.nul());
        }
        let (at, column) = (self.at, self.column());
        self.word(at).push(byte, column, false);
        self.at += 1;
        Ok(())
    }

    fn nul(&self) -> LexError {
        error(self.column(), "a NUL byte cannot be part of a word, remove it")
    }

    fn end_word(&mut self) -> Result<(), LexError> {
        if let Some(word) = self.word.take() {
            if self.words.len() >= MAX_WORDS {
                let message = format!("too many words, the limit is {MAX_WORDS}, at <{}>", word.shown());
                return Err(error(word.pos().column, message));
            }
            self.words.push(word);
        }
        Ok(())
    }

    fn strong_quotes(&mut self) -> Result<(), LexError> {
        let open = self.at;
        self.word(open);
        self.at += 1;
        loop {
            match self.line.get(self.at) {
                None => return Err(error(self.column_of(open), UNMATCHED)),
                Some(b'\'') => break,
                Some(&byte) => self.literal(byte)?,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn weak_quotes(&mut self) -> Result<(), LexError> {
        let open = self.at;
        self.at += 1;
        // A pair of quotes makes a word even if it is empty, unless it contains only empty lists.
        let mut only_lists = false;
        loop {
            match self.line.get(self.at) {
                None => return Err(error(self.column_of(open), UNMATCHED)),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.word(open);
                    self.escape(true)?;
                }
                Some(b'$') => only_lists |= self.variable(open)?,
                Some(&byte) => {
                    self.word(open);
                    self.literal(byte)?;
                }
            }
        }
        self.at += 1;
        if !only_lists {
            self.word(open);
        }
        Ok(())
    }

    fn escape(&mut self, quoted: bool) -> Result<(), LexError> {
        let (at, column) = (self.at, self.column());
        let (byte, length) = match self.line.get(at + 1) {
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(b'x') => (self.hexadecimal()?, 4),
            Some(&byte @ (b' ' | b'\t' | b'#' | b'\\' | b'\'' | b'"')) => (byte, 2),
            Some(b'$') if quoted => (b'$', 2),
            _ => (b'\\', 1),
        };
        self.word(at).push(byte, column, false);
        self.at += length;
        Ok(())
    }

    fn hexadecimal(&self) -> Result<u8, LexError> {
        let digit = |index: usize| self.line.get(index).and_then(|&byte| (byte as char).to_digit(16));
        match (digit(self.at + 2), digit(self.at + 3)) {
            (Some(0), Some(0)) => Err(self.nul()),
            (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
            _ => Err(error(self.column(), "truncated or invalid hexadecimal sequence, \\x takes two digits")),
        }
    }

    /// Expands the variable at the current byte; `open` is the quote before it. True if it is a list.
    fn variable(&mut self, open: usize) -> Result<bool, LexError> {
        let dollar = self.at;
        let brace = self.line.get(dollar + 1) == Some(&b'{');
        let name_at = dollar + 1 + usize::from(brace);
        let rest = &self.line[name_at..];
        let length = rest
            .iter()
            .enumerate()
            .take_while(|&(index, &byte)| {
                byte.is_ascii_alphanumeric() || byte == b'_' || (index == 0 && byte == b'.')
            })
            .count();
        let name = &rest[..length];
        match name.first() {
            None | Some(b'0'..=b'9') => {
                let message =
                    "forbidden first character in the name of a variable; a dollar sign is written \\$";
                return Err(error(self.column_of(name_at), message));
            }
            Some(b'.') if !PSEUDO.iter().any(|known| known.as_bytes() == name) => {
                let guess = match guess(name, PSEUDO) {
                    none if none.is_empty() => format!(", there are {}", PSEUDO.join(", ")),
                    guess => guess,
                };
                let message = format!("unknown pseudo-variable '{}'{guess}", Shown(name));
                return Err(error(self.column_of(name_at), message));
            }
            _ => {}
        }
        let mut end = name_at + length;
        let mut list = false;
        let mut default = None;
        if brace {
            if self.line[end..].starts_with(b"[*]") {
                list = true;
                end += 3;
            }
            if self.line.get(end) == Some(&b'-') {
                let from = end + 1;
                end = from + self.line[from..].iter().take_while(|&&byte| byte != b'}').count();
                default = Some(from..end);
            }
            if self.line.get(end) != Some(&b'}') {
                let found = match self.line.get(end) {
                    Some(byte) => format!("'{}'", Shown(&[*byte])),
                    None => "the end of the line".into(),
                };
                let message = format!("'${{' expects '}}' behind the name of a variable, found {found}");
                return Err(error(self.column_of(dollar + 1), message));
            }
            end += 1;
        }
        let scope = self.scope;
        let line = self.line;
        let value = match (scope.lookup(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => (&line[default]).into(),
            (None, None) => (&b""[..]).into(),
        };
        self.spend(value.len(), dollar)?;
        if list {
            self.put_list(&value, open, dollar)?
        } else {
            self.put(&value, open, dollar)?
        }
        self.at = end;
        Ok(list)
    }

    fn spend(&mut self, bytes: usize, dollar: usize) -> Result<(), LexError> {
        self.expanded += bytes;
        if self.expanded > MAX_EXPANDED_BYTES {
            let message =
                format!("expected at most {MAX_EXPANDED_BYTES} bytes of variables in this line, found more");
            return Err(error(self.column_of(dollar), message));
        }
        match self.budget.left.checked_sub(bytes) {
            Some(left) => self.budget.left = left,
            None => {
                let message = format!(
                    "expected at most {MAX_EXPANSION_TOTAL} bytes of variables in all lines, found more"
                );
                return Err(error(self.column_of(dollar), message));
            }
        }
        Ok(())
    }

    fn put(&mut self, value: &[u8], open: usize, dollar: usize) -> Result<(), LexError> {
        let column = self.column_of(dollar);
        if value.contains(&0) {
            return Err(error(column, "a NUL byte cannot be part of a word, remove it from the variable"));
        }
        self.word(open).extend_fixed(value, column);
        Ok(())
    }

    /// Adds the parts of a list. White space at either end of the value ends the adjacent word.
    fn put_list(&mut self, value: &[u8], open: usize, dollar: usize) -> Result<(), LexError> {
        let mut parts = value.split(|byte| byte.is_ascii_whitespace() || *byte == 0x0b).peekable();
        let mut begin = open;
        while let Some(part) = parts.next() {
            if !part.is_empty() {
                self.put(part, begin, dollar)?;
            }
            if parts.peek().is_some() {
                self.end_word()?;
                begin = dollar;
            }
        }
        Ok(())
    }
}
