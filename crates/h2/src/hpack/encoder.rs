//! Encodes fields into header blocks (RFC 7541, 6).

use super::table::{OVERHEAD, Table};
use super::{Indexing, huffman, integer, static_table};
use std::collections::VecDeque;

/// Largest size of this side's table, in bytes, whatever the peer allows. A search looks at each entry, and
/// there are at most 128 of them.
pub const MAX_TABLE: usize = 4096;

/// Encoder of the header blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Two hashes of each entry, newest first: of its name, and of name and value.
    hashes: VecDeque<(u32, u32)>,
    /// Set if the table's size changed since the last block, to the smallest size meanwhile. The next block
    /// signals that size, and then the current one.
    changed: Option<usize>,
}

impl Default for Encoder {
    /// Creates an encoder with the table that each peer allows until its settings change it.
    fn default() -> Self {
        Self { table: Table::new(super::DEFAULT_TABLE), hashes: VecDeque::new(), changed: None }
    }
}

impl Encoder {
    /// Sets the peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn set_limit(&mut self, limit: usize) {
        let most = limit.min(MAX_TABLE);
        if most == self.table.most() {
            return;
        }
        self.table.resize(most);
        self.hashes.truncate(self.table.len());
        self.changed = Some(self.changed.map_or(most, |least| least.min(most)));
    }

    /// Begins a block and appends its size updates to `out`.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(least) = self.changed.take() {
            let now = self.table.most();
            if least < now {
                integer::write(out, 0x20, 5, least);
            }
            integer::write(out, 0x20, 5, now);
        }
    }

    /// Adds a field to the block. The name is in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let (static_name, static_whole) = static_table::find(name, value);
        if indexing == Indexing::Never {
            return literal(0x10, 4, static_name, name, value, out);
        }
        if static_whole != 0 {
            return integer::write(out, 0x80, 7, static_whole);
        }
        let name_hash = hash(0, name);
        let whole_hash = hash(name_hash, value);
        if let Some(age) = self.find_whole(whole_hash, name, value) {
            return integer::write(out, 0x80, 7, static_table::LEN + 1 + age);
        }
        let index = match static_name {
            0 => self.find_name(name_hash, name).map_or(0, |age| static_table::LEN + 1 + age),
            index => index,
        };
        // An entry that takes most of the table would evict entries that are used again.
        let len = name.len() + value.len();
        let fits = len + OVERHEAD <= self.table.most() * 3 / 4;
        if indexing == Indexing::Without || !fits || !self.table.has_memory(len, self.hashes.capacity()) {
            return literal(0, 4, index, name, value, out);
        }
        literal(0x40, 6, index, name, value, out);
        self.table.insert(name, value);
        self.hashes.truncate(self.table.len() - 1); // first, so that a full list does not grow
        self.hashes.push_front((name_hash, whole_hash));
    }

    fn find_whole(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let same = |age: &usize| self.table.get(*age) == Some((name, value));
        let ages = self.hashes.iter().enumerate().filter(|(_, hashes)| hashes.1 == hash);
        ages.map(|(age, _)| age).find(same)
    }

    fn find_name(&self, hash: u32, name: &[u8]) -> Option<usize> {
        let same = |age: &usize| self.table.get(*age).is_some_and(|(known, _)| known == name);
        let ages = self.hashes.iter().enumerate().filter(|(_, hashes)| hashes.0 == hash);
        ages.map(|(age, _)| age).find(same)
    }
}

fn literal(pattern: u8, prefix: u32, index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    integer::write(out, pattern, prefix, index);
    if index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Writes the shorter of the two forms.
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(bytes);
    if coded < bytes.len() {
        integer::write(out, 0x80, 7, coded);
        huffman::encode(bytes, out);
    } else {
        integer::write(out, 0, 7, bytes.len());
        out.extend_from_slice(bytes);
    }
}

/// Multiplies and folds eight bytes at a time. A collision costs one comparison, because matches are
/// compared.
fn hash(seed: u32, bytes: &[u8]) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = u64::from(seed) ^ bytes.len() as u64;
    let mut mix = |word: u64| state = (state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|&word| mix(u64::from_le_bytes(word)));
    // The last eight bytes are mixed in again if there are so many, so no byte is handled alone.
    match bytes.last_chunk::<8>() {
        Some(&last) => mix(u64::from_le_bytes(last)),
        None => mix(rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))),
    }
    (state >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of hashes grows only if there is memory: an entry that replaces another one needs none.
    #[test]
    fn hashes_have_memory_as_the_entries_do() {
        const LEN: usize = 70; // so that the table has room for more entries than it may have
        const SIZE: usize = LEN + OVERHEAD;
        const FULL: usize = MAX_TABLE / SIZE;
        let mut encoder = Encoder::default();
        let add = |encoder: &mut Encoder, n: usize| {
            let value = format!("{n:0width$}", width = LEN - 1);
            encoder.field(b"x", value.as_bytes(), Indexing::Incremental, &mut Vec::new());
        };
        (0..FULL).for_each(|n| add(&mut encoder, n));
        encoder.hashes.shrink_to_fit();
        let room = encoder.hashes.capacity();
        assert_eq!((room, encoder.table.len()), (FULL, FULL));
        encoder.table.resize(MAX_TABLE + SIZE);
        assert!(encoder.table.fits(LEN, usize::MAX) && !encoder.table.fits(LEN, room), "one more than fits");
        encoder.table.resize(MAX_TABLE);
        for n in FULL..10 * FULL {
            assert!(encoder.table.fits(LEN, room), "it takes the place of another one");
            add(&mut encoder, n);
            assert_eq!((encoder.hashes.capacity(), encoder.hashes.len()), (room, FULL));
        }
    }
}
