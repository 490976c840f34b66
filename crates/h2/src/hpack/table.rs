//! The dynamic table (RFC 7541, 2.3.2 and 4), in bounded memory.
//!
//! One vector holds the bytes of all entries, oldest first, so each name and value is one slice. Evicted
//! entries leave a gap at the front. When a new entry does not fit behind the others, the gap is closed. The
//! vector is half as large again as the table may be, so closing gaps moves each byte at most twice.

use std::collections::VecDeque;

/// Number of bytes that an entry counts in addition to its name and value (RFC 7541, 4.1).
pub(crate) const OVERHEAD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Offset of the name in the bytes; the value follows.
    at: u32,
    name: u32,
    value: u32,
}

/// Entries that a peer added, newest first.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Size as RFC 7541, 4.1 counts it.
    size: usize,
    most: usize,
}

impl Table {
    /// Creates an empty table that may grow to `most` bytes. It takes memory as it grows.
    pub(crate) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, most }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the size of all entries, as RFC 7541, 4.1 counts it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the largest size that the table may have.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns the entry that was added `age` entries ago.
    #[inline]
    pub(crate) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let Entry { at, name, value } = *self.entries.get(age)?;
        let line = self.bytes.get(at as usize..(at + name + value) as usize)?;
        Some(line.split_at(name as usize))
    }

    /// Changes the largest size, and evicts entries that do not fit.
    pub(crate) fn resize(&mut self, most: usize) {
        self.most = most;
        self.evict(0);
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Returns whether an entry with `len` bytes of name and value may be added: memory is not short, or the
    /// table needs none for it once it has evicted others, and neither does a list beside the table that has
    /// room for `beside` entries.
    pub(crate) fn has_memory(&self, len: usize, beside: usize) -> bool {
        manylane_pool::check_memory().is_ok() || self.fits(len, beside)
    }

    /// Returns whether [`insert`](Self::insert) of an entry needs no memory if it closes the gap.
    #[cold]
    pub(super) fn fits(&self, len: usize, beside: usize) -> bool {
        let size = len + OVERHEAD;
        if size > self.most {
            return true; // it is not kept
        }
        let (mut left, mut count) = (self.size, self.entries.len());
        for oldest in self.entries.iter().rev() {
            if left + size <= self.most {
                break;
            }
            left -= (oldest.name + oldest.value) as usize + OVERHEAD;
            count -= 1;
        }
        left - count * OVERHEAD + len <= self.bytes.capacity() && count < self.entries.capacity().min(beside)
    }

    /// Adds an entry, and evicts the oldest until it fits. An entry larger than the table empties it and is
    /// not kept (RFC 7541, 4.4). Ask [`has_memory`](Self::has_memory) first.
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.most {
            self.bytes.clear();
            return;
        }
        let len = name.len() + value.len();
        let end = self.bytes.len() + len;
        let grows = end > self.bytes.capacity(); // what `fits` relies on
        if end > self.most + self.most / 2 || grows && manylane_pool::check_memory().is_err() {
            self.close_gap();
        }
        let entry = Entry { at: self.bytes.len() as u32, name: name.len() as u32, value: value.len() as u32 };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_front(entry);
        self.size += size;
    }

    fn evict(&mut self, room: usize) {
        while self.size + room > self.most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= (oldest.name + oldest.value) as usize + OVERHEAD;
        }
    }

    fn close_gap(&mut self) {
        let gap = self.entries.back().map_or(self.bytes.len() as u32, |oldest| oldest.at);
        self.bytes.drain(..gap as usize);
        self.entries.iter_mut().for_each(|entry| entry.at -= gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_plain_list_holds_and_its_memory_is_bounded() {
        let mut table = Table::new(300);
        let mut plain: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
        let size = |plain: &VecDeque<(Vec<u8>, Vec<u8>)>| {
            plain.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD).sum::<usize>()
        };
        for n in 0..2_000usize {
            let (name, value) =
                (vec![b'a' + (n % 26) as u8; n % 40], vec![b'0' + (n % 10) as u8; n * 7 % 90]);
            if n % 97 == 0 {
                table.resize(100 + n % 300);
            }
            table.insert(&name, &value);
            plain.push_front((name, value));
            while size(&plain) > table.most() {
                plain.pop_back();
            }
            assert_eq!((table.len(), table.size()), (plain.len(), size(&plain)));
            for (age, (name, value)) in plain.iter().enumerate() {
                assert_eq!(table.get(age), Some((&name[..], &value[..])));
            }
            assert!(table.bytes.len() <= 400 + 200, "{} bytes", table.bytes.len());
        }
        table.insert(&[b'x'; 400], b"");
        assert_eq!((table.len(), table.size(), table.get(0)), (0, 0, None));
    }

    /// What the table says while memory is short: an entry needs none if it takes the place of others, or if
    /// it is larger than the table.
    #[test]
    fn entries_that_replace_others_need_no_memory() {
        const NONE: usize = usize::MAX; // no list beside the table
        let mut table = Table::new(300);
        assert!(!table.fits(10, NONE) && table.fits(300, NONE), "it has no memory yet");
        for _ in 0..20 {
            table.insert(&[b'x'; 68], b"");
        }
        assert_eq!(table.len(), 3);
        table.entries.shrink_to_fit();
        table.bytes.shrink_to_fit();
        assert!(table.bytes.capacity() - table.bytes.len() < 68 && table.fits(68, NONE));
        assert!(table.fits(68, 3) && !table.fits(68, 2), "the list beside it is full");
        table.resize(200);
        assert!(table.fits(168, NONE) && table.fits(169, NONE));
        table.resize(600);
        assert!(!table.fits(400, NONE), "not even without the others");
    }
}
