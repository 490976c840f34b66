//! Errors of compilation, with their positions.

use crate::nearest::guess;
use crate::show::Shown;
use std::fmt::{Display, Formatter};

/// An error: one sentence about one position in the compiled words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Index of the word; 0 if there is only one.
    pub word: usize,
    /// Byte offset in the word, at most its length.
    pub at: usize,
    /// What is wrong and how to correct it.
    pub message: String,
}

impl Error {
    /// An error at the byte `at` of the only word.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { word: 0, at, message: message.into() }
    }

    /// The same error in word `word`.
    #[must_use]
    pub fn in_word(self, word: usize) -> Self {
        Self { word, ..self }
    }

    /// The same error in a longer text, in which the compiled part begins at `offset`.
    #[must_use]
    pub fn shifted(self, offset: usize) -> Self {
        Self { at: self.at + offset, ..self }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The text from `at` on for a message: `'word'`, or `none`.
pub(crate) fn found_at(text: &[u8], at: usize) -> String {
    match text.get(at..) {
        None | Some([]) => "none".to_owned(),
        Some(rest) => format!("'{}'", Shown(rest)),
    }
}

/// Most words that a message lists: those of `-m`.
pub const LISTED: usize = 13;

/// `a, b or c`; of more than [`LISTED`] words their number and the first three.
pub fn choice(known: &[&str]) -> String {
    if known.len() > LISTED {
        return format!("one of {} values such as {}", known.len(), choice(&known[..3]));
    }
    match known {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => known.concat(),
    }
}

/// `'what' expects a, b or c, found 'word'`, with a suggestion.
pub fn none_of<'a>(what: &str, known: impl IntoIterator<Item = &'a str>, word: &[u8]) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    format!("'{what}' expects {}, found '{}'{}", choice(&known), Shown(word), guess(word, known))
}

/// Examples of [`unknown`] for fetches.
pub(crate) const FETCHES: &str = "'src' or 'req.hdr(host)'";

/// `unknown KIND 'word'`, with a suggestion; if nothing is near, with the examples `such`.
pub(crate) fn unknown<'a>(
    kind: &str,
    word: &[u8],
    known: impl IntoIterator<Item = &'a str>,
    such: &str,
) -> String {
    let rest = match guess(word, known) {
        none if none.is_empty() => format!("; one such as {such} is expected"),
        guess => guess,
    };
    format!("unknown {kind} '{}'{rest}", Shown(word))
}
