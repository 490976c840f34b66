//! What a table is to be, and where in an entry its data are.

use manylane_expr::{DataType, Type};

/// Entries of a table at most: an entry's number and its date are one word in the order of expiry.
pub const MAX_SIZE: u32 = (1 << 28) - (1 << 16);

/// One kind of data that entries keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// What.
    pub kind: DataType,
    /// How many of them: 1, unless it is an array.
    pub count: u32,
    /// Milliseconds that a rate is over; 0 for what is none.
    pub period: u32,
}

impl Data {
    /// Words in an entry: a rate has two.
    fn words(&self) -> usize {
        self.count as usize * if self.kind.is_rate() { 2 } else { 1 }
    }
}

/// What a table is to be. Tables of two generations are the same when these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The type of keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
    /// Bytes of a text or of data that are kept; longer ones are cut.
    pub key_bytes: usize,
    /// Entries at most.
    pub size: u32,
    /// Milliseconds that an entry stays without being used; 0: for good.
    pub expire: u64,
    /// A full table takes no new key, in place of giving up its oldest.
    pub nopurge: bool,
    /// What entries keep, in the order of [`DataType`], each once.
    pub data: Vec<Data>,
    /// Streams of an entry have turns in each direction: see [`Entry::reserve`](crate::Entry::reserve).
    pub turns: bool,
}

/// Where the words of an entry are.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) key_words: usize,
    /// By kind: its first word, if it is kept.
    offsets: [Option<u16>; DataType::ALL.len()],
    /// In [`Spec::data`], by kind.
    kept: [Data; DataType::ALL.len()],
    /// The first of two words for turns, if there are any.
    pub(crate) turns: Option<usize>,
    pub(crate) words: usize,
}

/// Words of an entry before its key: state, date, link.
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

    /// The first word of a kind's element, and the kind's period; nothing where it is not kept.
    #[inline]
    pub(crate) fn find(&self, kind: DataType, index: u32) -> Option<(usize, u32)> {
        let first = usize::from(self.offsets[kind as usize]?);
        let data = &self.kept[kind as usize];
        let each = if kind.is_rate() { 2 } else { 1 };
        (index < data.count).then(|| (first + index as usize * each, data.period))
    }
}
