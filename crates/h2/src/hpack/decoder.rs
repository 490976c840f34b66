//! Decodes header blocks into fields (RFC 7541, 3 and 6).

use super::table::{OVERHEAD, Table};
use super::{Error, Line, huffman, integer, static_table};

/// Largest number of table-size updates at the start of a block: RFC 7541, 4.2 has a use for two.
const MAX_UPDATES: usize = 2;

/// Decoder of the header blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// Largest table size that the peer may choose: the largest `SETTINGS_HEADER_TABLE_SIZE` that is in force
    /// or on its way.
    limit: usize,
    /// A limit that the peer acknowledged and that is below the table's size: its next block has to begin
    /// with an update to at most this size.
    owed: Option<usize>,
    /// Largest decoded size of one block, in bytes, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts them.
    most: usize,
}

impl Decoder {
    /// Creates a decoder whose table may hold `limit` bytes. Each connection begins with at most
    /// [`DEFAULT_TABLE`](super::DEFAULT_TABLE); the peer has to ask for more.
    pub fn new(limit: usize) -> Self {
        Self { table: Table::new(limit.min(super::DEFAULT_TABLE)), limit, owed: None, most: usize::MAX }
    }

    /// Sets a bound on the decoded size of one block, counted like `SETTINGS_MAX_HEADER_LIST_SIZE`: two bytes
    /// of a block can name an entry as large as the table.
    pub fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Puts another `SETTINGS_HEADER_TABLE_SIZE` into force, which the peer has acknowledged.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if limit < self.table.most() {
            self.owed = Some(self.owed.map_or(limit, |owed| owed.min(limit)));
        }
    }

    /// Returns the number of bytes in the table, as RFC 7541, 4.1 counts them.
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// Decodes one block and calls `sink` with each field. `strings` is a buffer for decoded strings.
    ///
    /// The sink cannot stop it, because the table must follow the whole block. The sink bounds the memory
    /// that it uses; [`with_most`](Self::with_most) bounds the work, including that of the sink.
    ///
    /// # Errors
    /// [`Error`]: the connection cannot go on, because the table differs from the peer's.
    pub fn decode(
        &mut self,
        block: &[u8],
        strings: &mut Vec<u8>,
        mut sink: impl FnMut(Line<'_>),
    ) -> Result<(), Error> {
        let mut at = self.updates(block)?;
        let mut left = self.most;
        let mut emit = |line: Line<'_>| {
            let size = line.name.len() + line.value.len() + OVERHEAD;
            left = left.checked_sub(size).ok_or(Error::TooMuch)?;
            sink(line);
            Ok(())
        };
        while let Some(&first) = block.get(at) {
            match first {
                0x80.. => {
                    let index = integer::read(block, &mut at, 7)?;
                    let (name, value) = self.entry(index)?;
                    emit(Line { name, value, never_indexed: false })?;
                }
                0x40..0x80 => self.literal(block, &mut at, 6, strings, true, &mut emit)?,
                0x20..0x40 => return Err(Error::LateUpdate),
                0x00..0x20 => self.literal(block, &mut at, 4, strings, false, &mut emit)?,
            }
        }
        Ok(())
    }

    /// Applies the table-size updates at the start of a block, and returns where they end.
    #[inline]
    fn updates(&mut self, block: &[u8]) -> Result<usize, Error> {
        let (mut at, mut count) = (0, 0);
        while let Some(0x20..0x40) = block.get(at) {
            let size = integer::read(block, &mut at, 5)?;
            count += 1;
            if size > self.limit || count > MAX_UPDATES {
                return Err(Error::Update);
            }
            if self.owed.is_some_and(|owed| size <= owed) {
                self.owed = None;
            }
            self.table.resize(size);
        }
        if self.owed.is_some() { Err(Error::MissingUpdate) } else { Ok(at) }
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Error> {
        match static_table::get(index) {
            Some(entry) => Ok(entry),
            None => index
                .checked_sub(static_table::LEN + 1)
                .and_then(|age| self.table.get(age))
                .ok_or(Error::Index),
        }
    }

    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        prefix: u32,
        strings: &mut Vec<u8>,
        keep: bool,
        emit: &mut impl FnMut(Line<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let never_indexed = !keep && block.get(*at).is_some_and(|first| first & 0x10 != 0);
        let index = integer::read(block, at, prefix)?;
        strings.clear();
        if !keep && index > static_table::LEN {
            let (name, _) = self.entry(index)?;
            string(block, at, strings)?;
            return emit(Line { name, value: strings, never_indexed });
        }
        // Names from the dynamic table are copied, because the insertion below changes it.
        let fixed = match static_table::get(index) {
            Some((name, _)) => Some(name),
            None if index == 0 => {
                string(block, at, strings)?;
                None
            }
            None => {
                let (name, _) = self.entry(index)?;
                strings.extend_from_slice(name);
                None
            }
        };
        let split = strings.len();
        string(block, at, strings)?;
        let (own, value) = strings.split_at(split);
        let name = fixed.unwrap_or(own);
        emit(Line { name, value, never_indexed })?;
        if keep {
            if !self.table.has_memory(name.len() + value.len(), usize::MAX) {
                return Err(Error::NoMemory);
            }
            self.table.insert(name, value);
        }
        Ok(())
    }
}

/// Appends a string (RFC 7541, 5.2) to `out`.
#[inline]
fn string(block: &[u8], at: &mut usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let coded = block.get(*at).ok_or(Error::Truncated)? & 0x80 != 0;
    let len = integer::read(block, at, 7)?;
    let bytes = block.get(*at..*at + len).ok_or(Error::Truncated)?;
    *at += len;
    if coded {
        huffman::decode(bytes, out)
    } else {
        out.extend_from_slice(bytes);
        Ok(())
    }
}
