//! Entries of pattern lists and maps.

use super::hashed::Hashed;
use super::tree::Tree;
use std::hash::BuildHasher;
use std::sync::Arc; // std: entries are immutable, so models need not see it

/// A pattern, and its value in a map.
#[derive(Debug)]
pub struct Entry {
    /// Unique in the reference; never reused.
    pub(super) id: u64,
    /// Line in the file; 0 for an entry that was added later.
    pub(super) line: usize,
    pub(super) pattern: Box<[u8]>,
    pub(super) value: Box<[u8]>,
}

impl Entry {
    /// Number of the entry, unique in its reference and never reused. Entries are sorted by it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The value in a map; empty in a pattern list.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn bytes(&self) -> usize {
        self.pattern.len() + self.value.len()
    }

    #[cfg(test)]
    pub(super) fn numbered(id: u64) -> Self {
        Self { id, line: 0, pattern: Box::default(), value: Box::default() }
    }
}

/// An immutable version of the entries, sorted by number. A copy costs a reference count.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    by_id: Tree<u64, Arc<Entry>>,
    /// Size of patterns and values.
    bytes: usize,
}

impl Entries {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of patterns and values in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_id.iter().map(|(_, entry)| entry)
    }

    pub(super) fn iter_from(&self, id: &u64) -> impl Iterator<Item = (&u64, &Arc<Entry>)> {
        self.by_id.iter_from(id)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Arc<Entry>> {
        self.by_id.get(&id)
    }

    /// Inserts an entry, or replaces the one with the same number.
    pub(super) fn insert(&mut self, entry: Arc<Entry>) {
        self.remove_bytes(entry.id);
        self.bytes += entry.bytes();
        self.by_id.insert(entry.id, entry);
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.remove_bytes(id);
        self.by_id.remove(&id);
    }

    fn remove_bytes(&mut self, id: u64) {
        self.bytes -= self.get(id).map_or(0, |entry| entry.bytes());
    }
}

impl FromIterator<Arc<Entry>> for Entries {
    /// Collects entries that are in order.
    fn from_iter<T: IntoIterator<Item = Arc<Entry>>>(all: T) -> Self {
        let all: Vec<(u64, Arc<Entry>)> = all.into_iter().map(|entry| (entry.id, entry)).collect();
        let bytes = all.iter().map(|(_, entry)| entry.bytes()).sum();
        Self { by_id: Tree::from_sorted(all), bytes }
    }
}

impl Extend<Arc<Entry>> for Entries {
    fn extend<T: IntoIterator<Item = Arc<Entry>>>(&mut self, all: T) {
        all.into_iter().for_each(|entry| self.insert(entry));
    }
}

/// Index of entries by pattern as written. Changes use it to find their entries.
#[derive(Debug, Default)]
pub(super) struct ByPattern(Hashed<()>);

impl ByPattern {
    pub(super) fn new(entries: &Entries) -> Self {
        let all = entries.iter().map(|entry| ((), entry)).collect();
        Self(Hashed::of(all, |state, (), entry| state.hash_one(&*entry.pattern)))
    }

    /// All entries with this pattern, in order.
    pub(super) fn all(&self, pattern: &[u8]) -> impl Iterator<Item = &Arc<Entry>> {
        let all = self.0.all(self.0.hash(pattern)).map(|leaf| &leaf.entry);
        all.filter(move |entry| *entry.pattern == *pattern)
    }

    pub(super) fn insert(&mut self, entry: &Arc<Entry>) {
        self.0.insert(self.0.hash(&*entry.pattern), (), entry);
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.0.remove(self.0.hash(&*entry.pattern), entry.id);
    }
}
