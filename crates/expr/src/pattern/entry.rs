//! The entries of a list of patterns or a map.

use super::hashed::Hashed;
use super::tree::Tree;
use std::hash::BuildHasher;
use std::sync::Arc; // an entry is written once, and only read from then on

/// A pattern, and what a map has for it.
#[derive(Debug)]
pub struct Entry {
    /// Tells it from all others of the reference, also from those that are gone.
    pub(super) id: u64,
    /// Of the file; 0 for what was added later.
    pub(super) line: usize,
    pub(super) pattern: Box<[u8]>,
    pub(super) value: Box<[u8]>,
}

impl Entry {
    /// Tells it from all others of the reference, also from those that are gone. Entries are in the order of
    /// these numbers.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// As it was written.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// What a map has for it; empty in a list of patterns.
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

/// Entries at one moment, in order. A copy costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    by_id: Tree<u64, Arc<Entry>>,
    /// Of patterns and values.
    bytes: usize,
}

impl Entries {
    /// How many.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of patterns and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_id.iter().map(|(_, entry)| entry)
    }

    pub(super) fn iter_from(&self, id: &u64) -> impl Iterator<Item = (&u64, &Arc<Entry>)> {
        self.by_id.iter_from(id)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Arc<Entry>> {
        self.by_id.get(&id)
    }

    /// Adds one, or puts it in the place of that with its number.
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
    /// Of entries in order.
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

/// Entries by their patterns, as these are written: how those are found that a change is about.
#[derive(Debug, Default)]
pub(super) struct ByPattern(Hashed<()>);

impl ByPattern {
    pub(super) fn new(entries: &Entries) -> Self {
        let all = entries.iter().map(|entry| ((), entry)).collect();
        Self(Hashed::of(all, |state, (), entry| state.hash_one(&*entry.pattern)))
    }

    /// All of that pattern, in order.
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
