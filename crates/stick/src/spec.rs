//! The specification of a table, and the layout of its entries.

use manylane_expr::{DataType, Type};
use std::num::NonZeroU32;

/// Largest size of a table: an entry's number and its date share a word in the order of expiry.
pub const MAX_SIZE: u32 = (1 << 28) - (1 << 16);

/// A kind of data that entries keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The kind.
    pub kind: DataType,
    /// The number of elements; 1 unless it is an array.
    pub count: u32,
    /// The period of a rate, in milliseconds; 0 for other data.
    pub period: u32,
}

impl Data {
    /// Words in an entry: a rate takes two for each element.
    fn words(&self) -> usize {
        self.count as usize * if self.kind.is_rate() { 2 } else { 1 }
    }
}

/// The specification of a table. A table is kept across generations if its specification is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The type of keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
    /// Bytes of a text or of data to keep; longer keys are cut.
    pub key_bytes: usize,
    /// Most entries.
    pub size: u32,
    /// Milliseconds after the last use; 0: entries do not expire.
    pub expire: u64,
    /// A full table refuses new keys instead of dropping its oldest entries.
    pub nopurge: bool,
    /// Data of an entry, in the order of [`DataType`], each kind once.
    pub data: Vec<Data>,
    /// Number of bytes that byte rates count as one event, so that a period may have 2^32 times as many.
    pub bytes_factor: NonZeroU32,
    /// Entries have turns in each direction: see [`Entry::reserve`](crate::Entry::reserve).
    pub turns: bool,
}

/// Positions of words in an entry.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) key_words: usize,
    /// The first word of each kind that is kept.
    offsets: [Option<u16>; DataType::ALL.len()],
    /// The items of [`Spec::data`], by kind.
    kept: [Data; DataType::ALL.len()],
    /// [`Spec::bytes_factor`]
    bytes_factor: NonZeroU32,
    /// The first of two words for turns, if the table has turns.
    pub(crate) turns: Option<usize>,
    pub(crate) words: usize,
}

/// Words before the key: state, date, link.
pub(crate) const HEADER: usize = 3;

impl Layout {
    pub(crate) fn new(spec: &Spec) -> Self {
        let key_words = match spec.key {
            Type::Ipv6 => 2,
            Type::Str | Type::Bin => spec.key_bytes.div_ceil(8).max(1),
            _ => 1,
        };
        let none = Data { kind: DataType::ServerId, count: 0, period: 0 };
        let mut layout = Self {
            key_words,
            offsets: [None; DataType::ALL.len()],
            kept: [none; DataType::ALL.len()],
            bytes_factor: spec.bytes_factor,
            turns: None,
            words: HEADER + key_words,
        };
        for data in &spec.data {
            layout.offsets[data.kind as usize] = u16::try_from(layout.words).ok();
            layout.kept[data.kind as usize] = *data;
            layout.words += data.words();
        }
        if spec.turns {
            layout.turns = Some(layout.words);
            layout.words += 2;
        }
        layout
    }

    /// Returns the number of bytes of an event of a rate; `None` for 1.
    #[inline]
    pub(crate) fn bytes_each(&self, kind: DataType) -> Option<NonZeroU32> {
        let of_bytes = matches!(kind, DataType::BytesInRate | DataType::BytesOutRate);
        Some(self.bytes_factor).filter(|factor| of_bytes && factor.get() > 1)
    }

    /// The first word of an element, and the kind's period; `None` if it is not kept.
    #[inline]
    pub(crate) fn find(&self, kind: DataType, index: u32) -> Option<(usize, u32)> {
        let first = usize::from(self.offsets[kind as usize]?);
        let data = &self.kept[kind as usize];
        let each = if kind.is_rate() { 2 } else { 1 };
        (index < data.count).then(|| (first + index as usize * each, data.period))
    }
}
