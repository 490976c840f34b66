//! From lines to words.
//!
//! Words are split at unprotected white space; an unprotected `#` ends the line. Outside of single quotes a
//! backslash protects the byte after it; inside of double quotes variables are put in. What every context
//! does with each character is the table in the manual's chapter on quoting; these are the places where the
//! manual is silent:
//!
//! 1. A backslash before a byte that needs no protection stays, and so does that byte: `\q` is two bytes.
//!    `\$` protects inside of double quotes; elsewhere a dollar sign means nothing and both bytes stay.
//! 2. There is no continuation: a backslash at the end of a line is a backslash. A statement is one line.
//! 3. `""` is a word, an empty one. A line whose first word is empty is no statement.
//! 4. The text of a variable is not read again: quotes, spaces and dollar signs in it are plain bytes. Only
//!    `"${NAME[*]}"` splits the text at its white space.
//! 5. A default text (`"${NAME-text}"`) goes up to the next closing brace, and no byte of it is special.
//! 6. A carriage return is white space at the end of a line, and an error elsewhere outside of quotes, where
//!    HAProxy would drop the rest of the line without a word. A NUL byte, raw or as `\x00`, is an error:
//!    HAProxy would cut the word or the line there.

mod args;
mod split;
mod variable;
mod word;

pub use args::{Argument, ArgumentError, Arguments, arguments};
pub use split::{Budget, split};
pub use variable::{Environment, InvalidVariable, Scope};
pub use word::Word;

/// Why a line could not be split, and in which column (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LexError {
    /// The column in bytes, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}
