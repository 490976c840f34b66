//! Splits lines into words.
//!
//! Unprotected white space separates words; an unprotected `#` ends the line. Outside of single quotes a
//! backslash protects the next byte. Inside of double quotes variables are expanded. The manual's chapter on
//! quoting has a table of all characters and contexts. Where it says nothing, these rules hold:
//!
//! 1. A backslash before a byte that needs no protection is kept, as is the byte: `\q` is two bytes. `\$`
//!    protects inside of double quotes; elsewhere a dollar sign has no meaning and both bytes are kept.
//! 2. There is no line continuation: a backslash at the end of a line is a backslash. A statement is one
//!    line.
//! 3. `""` is an empty word. A line whose first word is empty is ignored.
//! 4. The value of a variable is not parsed: quotes, spaces and dollar signs in it are plain bytes. Only
//!    `"${NAME[*]}"` splits the value at white space.
//! 5. A default (`"${NAME-text}"`) extends to the next closing brace, and all its bytes are plain.
//! 6. A carriage return is white space at the end of a line and an error elsewhere outside of quotes, where
//!    HAProxy silently drops the rest of the line. A NUL byte, raw or as `\x00`, is an error; HAProxy
//!    truncates the word or the line there.

mod args;
mod split;
mod variable;
mod word;

pub use args::{Argument, ArgumentError, Arguments, arguments};
pub use split::{Budget, split};
pub use variable::{Environment, InvalidVariable, Scope};
pub use word::Word;

/// Why a line cannot be split, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LexError {
    /// Column in bytes, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}
