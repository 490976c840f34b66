//! HPACK, the compression of header blocks (RFC 7541). Both halves of a connection's state are here: a
//! [`Decoder`] for what comes and an [`Encoder`] for what goes.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;

pub use decoder::Decoder;
pub use encoder::{Encoder, MAX_TABLE};

use std::fmt;

/// What a dynamic table may hold until settings say otherwise (RFC 9113, 6.5.2), in bytes.
pub const DEFAULT_TABLE: usize = 4096;

/// A field as the decoder found it; nothing of it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its name, pseudo-headers with their colon.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// No table on the way may keep it (RFC 7541, 7.1.3).
    pub never_indexed: bool,
}

/// Whether a field goes into the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It does, and is found there when it comes again.
    Incremental,
    /// It does not: its value hardly comes again.
    Without,
    /// It must not, here and at each further hop: its value is a secret that somebody could guess.
    Never,
}

/// Why a header block cannot be read. Both sides' tables may differ from here on, so it ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It ends within a field.
    Truncated,
    /// An integer does not end or does not fit.
    TooLarge,
    /// A string is not in the Huffman code.
    Huffman,
    /// No table has an entry with that number.
    Index,
    /// The table was made larger than the settings allow, or its size was changed more than twice.
    Update,
    /// The table's size was changed behind a field.
    LateUpdate,
    /// The table's size was not changed though the settings ask for it.
    MissingUpdate,
    /// It decodes to more than is read of one ([`Decoder::with_most`]).
    TooMuch,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a header block ends within a field",
            Self::TooLarge => "an integer of a header block does not end or is too large",
            Self::Huffman => "a string of a header block is not in the Huffman code",
            Self::Index => "a header block has the number of an entry that no table has",
            Self::Update => "a header block makes the table larger than the settings allow",
            Self::LateUpdate => "a header block changes the table's size behind a field",
            Self::MissingUpdate => "a header block does not make the table as small as the settings ask",
            Self::TooMuch => "a header block decodes to more than is read of one",
        })
    }
}

impl std::error::Error for Error {}
