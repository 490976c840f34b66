//! Header blocks into fields (RFC 7541, 3 and 6).

use super::table::{OVERHEAD, Table};
use super::{Error, Line, huffman, integer, static_table};

/// Changes of the table's size at the beginning of one block: RFC 7541, 4.2 has a use for two.
const MAX_UPDATES: usize = 2;

/// Reads the header blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// What the peer may make of the table: the largest `SETTINGS_HEADER_TABLE_SIZE` that is in force or on
    /// its way.
    limit: usize,
    /// The peer has acknowledged this limit, which is below the table's size: its next block has to begin
    /// with a change to at most that.
    owed: Option<usize>,
    /// Bytes that one block may decode to, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts them.
    most: usize,
}

impl Decoder {
    /// A decoder whose table may hold `limit` bytes. Where that is more than
    /// [`DEFAULT_TABLE`](super::DEFAULT_TABLE), with which each connection begins, the peer has to ask for
    /// it.
    pub fn new(limit: usize) -> Self {
        Self { table: Table::new(limit.min(super::DEFAULT_TABLE)), limit, owed: None, most: usize::MAX }
    }

    /// The same with a bound on what one block decodes to, counted as `SETTINGS_MAX_HEADER_LIST_SIZE` is: two
    /// bytes of a block can name an entry as large as the table.
    pub fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Another `SETTINGS_HEADER_TABLE_SIZE` is in force, since the peer has acknowledged it.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if limit < self.table.most() {
            self.owed = Some(self.owed.map_or(limit, |owed| owed.min(limit)));
        }
    }

    /// Bytes that the table holds, as RFC 7541, 4.1 counts them.
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// Reads one block and tells `sink` of each field. `strings` is where decoded strings stand meanwhile.
    ///
    /// The sink cannot stop it, since the table has to follow the whole block; what costs memory is for the
    /// sink to bound. [`with_most`](Self::with_most) bounds the work, the sink's included.
    ///
    /// # Errors
    /// [`Error`]: the connection cannot go on, since the table is not the peer's any more.
    pub fn decode(
        &mut self,
        block: &[u8],
        strings: &mut Vec<u8>,
        mut sink: impl FnMut(Line<'_>),
    ) -> Result<(), Error> {
        let mut at = self.updates(block)?;
        let mut left = self.most;
        let mut told = |line: Line<'_>| {
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
                    told(Line { name, value, never_indexed: false })?;
                }
                0x40..0x80 => self.literal(block, &mut at, 6, strings, true, &mut told)?,
                0x20..0x40 => return Err(Error::LateUpdate),
                0x00..0x20 => self.literal(block, &mut at, 4, strings, false, &mut told)?,
            }
        }
        Ok(())
    }

    /// Changes of the table's size, which stand at a block's beginning; where they end.
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
        told: &mut impl FnMut(Line<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let never_indexed = !keep && block.get(*at).is_some_and(|first| first & 0x10 != 0);
        let index = integer::read(block, at, prefix)?;
        strings.clear();
        if !keep && index > static_table::LEN {
            let (name, _) = self.entry(index)?;
            string(block, at, strings)?;
            return told(Line { name, value: strings, never_indexed });
        }
        // Names of the table are copied, since it changes.
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
        told(Line { name, value, never_indexed })?;
        if keep {
            self.table.insert(name, value);
        }
        Ok(())
    }
}

/// Reads a string (RFC 7541, 5.2) behind what `out` has.
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
