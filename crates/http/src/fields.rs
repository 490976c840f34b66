//! Positions of a head's fields: ranges, in blocks from the lane's pools.
//!
//! The first [`FIRST`] fields are in one block. Only a head with more takes a directory and blocks of
//! [`MORE`] fields. So a usual head costs one allocation from the lane's cache, of a block with 480 bytes to
//! clear.

use crate::name::Known;
use manylane_pool::{AllocError, Pool, Pooled};

/// Number of fields in the first block.
const FIRST: usize = 40;
/// Number of fields in each further block.
const MORE: usize = 128;
/// Number of further blocks.
const BLOCKS: usize = 256;

/// Largest number of fields in one head: as many as `tune.http.maxhdr` can allow (32,767, the start line
/// included).
pub const MAX_FIELDS: usize = 32_766;

const _: () = assert!(FIRST + MORE * BLOCKS >= MAX_FIELDS);

/// The name or the whole line was written by an edit: offsets refer to the edits.
pub(crate) const EDITED: u8 = 1;
/// The field was removed.
pub(crate) const REMOVED: u8 = 2;
/// No compression table may keep the field's value.
pub(crate) const NEVER_INDEXED: u8 = 4;

/// One field: offsets into the original bytes or into the edits.
///
/// Invariant: `name <= name + name_len <= value <= value + value_len <= end`, and `end` is not behind the
/// bytes that the offsets refer to. The bytes from `name` to `end` are the field's line, with its line end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: u16,
    pub(crate) name_len: u16,
    pub(crate) value: u16,
    pub(crate) value_len: u16,
    pub(crate) end: u16,
    pub(crate) known: u8,
    pub(crate) flags: u8,
}

impl Entry {
    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

type First = [Entry; FIRST];
type More = [Entry; MORE];
type Directory = [Option<Pooled<More>>; BLOCKS];

struct Pools {
    first: Pool<First>,
    more: Pool<More>,
    directory: Pool<Directory>,
}

manylane_sync::lazy_static! {
    static POOLS: Pools = Pools {
        first: Pool::new("http fields").expect("the size is a constant below the bound"),
        more: Pool::new("http fields, more").expect("the size is a constant below the bound"),
        directory: Pool::new("http field blocks").expect("the size is a constant below the bound"),
    };
}

/// The fields of one head, in the order of the message.
///
/// A parser adds to it ([`push`](Self::push)) while it reads, and then makes a [`Head`](crate::Head) of it.
pub struct Fields {
    first: Pooled<First>,
    more: Option<Pooled<Directory>>,
    len: u16,
    /// One bit for each well-known name that was ever added.
    known: u64,
}

/// Reason why a field could not be added.
#[derive(Debug)]
pub enum PushError {
    /// There are [`MAX_FIELDS`] already.
    TooMany,
    /// The lane's pool has no memory.
    NoMemory,
}

impl From<AllocError> for PushError {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}

impl Fields {
    /// Creates an empty list.
    ///
    /// # Errors
    /// [`AllocError`] if the lane's pool has no memory.
    #[inline]
    pub fn new() -> Result<Self, AllocError> {
        Ok(Self {
            first: POOLS.first.alloc_with(|| [Entry::default(); FIRST])?,
            more: None,
            len: 0,
            known: 0,
        })
    }

    /// Adds a field of the bytes that are being parsed.
    ///
    /// # Errors
    /// [`PushError`]; nothing was added.
    ///
    /// # Panics
    /// In debug builds, if the offsets are not in ascending order.
    #[inline]
    pub fn push(&mut self, line: FieldLine) -> Result<(), PushError> {
        let FieldLine { name, name_len, value, value_len, end, known } = line;
        debug_assert!(name + name_len <= value && value + value_len <= end, "{line:?}");
        self.push_entry(Entry { name, name_len, value, value_len, end, known: known.number(), flags: 0 })
    }

    /// Marks the field that was added last as *never indexed*: its sender asks that no compression keeps its
    /// value, here and at each further hop (RFC 7541, 7.1.3).
    pub fn never_index_last(&mut self) {
        if let Some(last) = self.len().checked_sub(1).and_then(|last| self.get_mut(last)) {
            last.flags |= NEVER_INDEXED;
        }
    }

    #[inline]
    pub(crate) fn push_entry(&mut self, entry: Entry) -> Result<(), PushError> {
        let at = usize::from(self.len);
        match self.first.get_mut(at) {
            Some(slot) => *slot = entry,
            None => self.push_more(at, entry)?,
        }
        self.known |= 1 << entry.known;
        self.len += 1;
        Ok(())
    }

    #[cold]
    fn push_more(&mut self, at: usize, entry: Entry) -> Result<(), PushError> {
        if at >= MAX_FIELDS {
            return Err(PushError::TooMany);
        }
        if self.more.is_none() {
            self.more = Some(POOLS.directory.alloc_with(|| [const { None }; BLOCKS])?);
        }
        let at = at - FIRST;
        let Some(slot) = self.more.as_mut().and_then(|blocks| blocks.get_mut(at / MORE)) else {
            return Err(PushError::TooMany);
        };
        if slot.is_none() {
            *slot = Some(POOLS.more.alloc_with(|| [Entry::default(); MORE])?);
        }
        if let Some(block) = slot {
            block[at % MORE] = entry;
        }
        Ok(())
    }

    /// Returns the number of fields, removed ones included.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether no field was added.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns false if the head has no field of this well-known name; true if it may have one.
    #[inline]
    pub(crate) fn may_have(&self, known: Known) -> bool {
        self.known & known.bit() != 0
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<Entry> {
        if at >= self.len() {
            return None;
        }
        match self.first.get(at) {
            Some(&entry) => Some(entry),
            None => {
                let at = at - FIRST;
                self.more.as_ref()?.get(at / MORE)?.as_ref().map(|block| block[at % MORE])
            }
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        if at >= self.len() {
            return None;
        }
        if at < FIRST {
            return self.first.get_mut(at);
        }
        let at = at - FIRST;
        self.more.as_mut()?.get_mut(at / MORE)?.as_mut().map(|block| &mut block[at % MORE])
    }

    /// Returns the first field at or after `from` that has the name's number `known` and was not removed,
    /// with its position.
    #[inline]
    pub(crate) fn next_known(&self, mut from: usize, known: u8) -> Option<(usize, Entry)> {
        while let Some(entry) = self.get(from) {
            if entry.known == known && !entry.has(REMOVED) {
                return Some((from, entry));
            }
            from += 1;
        }
        None
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fields").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A field that a parser found: offsets from the head's first byte.
#[derive(Clone, Copy, Debug)]
pub struct FieldLine {
    /// Start of the name, and of the line.
    pub name: u16,
    /// Length of the name, in bytes.
    pub name_len: u16,
    /// Start of the value, behind spaces.
    pub value: u16,
    /// Length of the value, in bytes, without spaces at its end.
    pub value_len: u16,
    /// Start of the next line.
    pub end: u16,
    /// Number of the name.
    pub known: Known,
}
