//! HPACK, the compression of header blocks (RFC 7541): a [`Decoder`] for received blocks, and an [`Encoder`]
//! for sent ones. A connection has one of each.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;

pub use decoder::Decoder;
pub use encoder::{Encoder, MAX_TABLE};

use std::fmt;

/// Size of a dynamic table until settings change it (RFC 9113, 6.5.2), in bytes.
pub const DEFAULT_TABLE: usize = 4096;

/// A decoded field, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Name; that of a pseudo-header has its colon.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// True if no table on the way may keep the field (RFC 7541, 7.1.3).
    pub never_indexed: bool,
}

/// Use of the dynamic table for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The field is added, so that a later block can refer to it.
    Incremental,
    /// The field is not added, because its value is unlikely to come again.
    Without,
    /// The field must not be added, here or at any further hop: its value is a secret that could be guessed.
    Never,
}

/// Reason why a header block cannot be decoded. The tables of both sides may differ from then on, so the
/// connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The block ends within a field.
    Truncated,
    /// An integer does not end or does not fit.
    TooLarge,
    /// A string is not valid Huffman code.
    Huffman,
    /// No table has an entry with that index.
    Index,
    /// The table was made larger than the settings allow, or its size was updated more than twice.
    Update,
    /// The table's size was updated behind a field.
    LateUpdate,
    /// The table's size was not updated although the settings require it.
    MissingUpdate,
    /// The decoded block exceeds the bound of [`Decoder::with_most`].
    TooMuch,
    /// Memory is short, so the table cannot grow with the peer's.
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a header block ends within a field",
            Self::TooLarge => "an integer of a header block does not end or is too large",
            Self::Huffman => "a string of a header block is not in the Huffman code",
            Self::Index => "a header block has an index that is in neither the static nor the dynamic table",
            Self::Update => "a header block makes the table larger than the settings allow",
            Self::LateUpdate => "a header block changes the table's size behind a field",
            Self::MissingUpdate => "a header block does not make the table as small as the settings ask",
            Self::TooMuch => "a header block decodes to more than the limit",
            Self::NoMemory => "there is no memory for the table",
        })
    }
}

impl std::error::Error for Error {}
