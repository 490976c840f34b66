//! A sorted set of prefixes. The longest prefix of a text is its predecessor in the order, or a prefix of
//! what the text and that predecessor have in common. So a search takes a few descents of the tree.

use super::entry::Entry;
use super::tree::Tree;
use std::cmp::Ordering;
use std::sync::Arc; // std: keys are immutable, so models need not see it

/// A set of keys, which also works for suffixes: [`Text`] reads texts in either direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefixes {
    tree: Tree<Key, Arc<Entry>>,
}

/// A normalized key and the number of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    bytes: Arc<[u8]>,
    id: u64,
}

impl Ord for Key {
    /// Of equal keys the first entry sorts last, where the search arrives.
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A text in the direction and case of the keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t> {
    pub(super) bytes: &'t [u8],
    pub(super) fold: bool,
    pub(super) backwards: bool,
}

impl Text<'_> {
    fn at(&self, index: usize) -> u8 {
        let byte = if self.backwards { self.bytes[self.bytes.len() - 1 - index] } else { self.bytes[index] };
        if self.fold { byte.to_ascii_lowercase() } else { byte }
    }

    /// Length of the common prefix of the text and the key.
    fn common(&self, key: &[u8]) -> usize {
        (0..key.len().min(self.bytes.len())).take_while(|&index| self.at(index) == key[index]).count()
    }
}

impl Prefixes {
    /// Builds a set of entries with their keys.
    pub(super) fn of(all: impl Iterator<Item = (Vec<u8>, Arc<Entry>)>) -> Self {
        let key =
            |(bytes, entry): (Vec<u8>, Arc<Entry>)| (Key { bytes: bytes.into(), id: entry.id() }, entry);
        let mut all: Vec<(Key, Arc<Entry>)> = all.map(key).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Self { tree: Tree::from_sorted(all) }
    }

    /// Inserts a normalized key: reversed or in lower case, as the texts are read. Replaces an entry with the
    /// same number and key.
    pub(super) fn insert(&mut self, key: Vec<u8>, entry: &Arc<Entry>) {
        self.tree.insert(Key { bytes: key.into(), id: entry.id() }, entry.clone());
    }

    pub(super) fn remove(&mut self, key: Vec<u8>, id: u64) {
        self.tree.remove(&Key { bytes: key.into(), id });
    }

    /// The keys that are prefixes of the text, longest first, with their lengths. Of equal keys only the
    /// first entry is returned.
    pub(super) fn all<'p>(&'p self, text: Text<'p>) -> impl Iterator<Item = (usize, &'p Arc<Entry>)> {
        // Only the first `end` bytes of the text matter: all longer prefixes were returned.
        let mut end = Some(text.bytes.len());
        std::iter::from_fn(move || {
            loop {
                let len = end?;
                let (key, entry) = self.tree.last_where(|key| {
                    let common = text.common(&key.bytes).min(len);
                    match (key.bytes.get(common), common < len) {
                        (None, _) => true,         // a prefix of the text, or the text
                        (Some(_), false) => false, // longer than the text
                        (Some(byte), true) => *byte < text.at(common),
                    }
                })?;
                let common = text.common(&key.bytes).min(len);
                if common == key.bytes.len() {
                    end = common.checked_sub(1);
                    return Some((common, entry));
                }
                // A longer prefix would sort between the key and the text, so none exists.
                end = Some(common);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_the_prefixes_are_found(keys in prop::collection::vec("[ab]{0,6}", 0..12),
            gone in prop::collection::vec("[ab]{0,6}", 0..4), text in "[abc]{0,8}", backwards: bool) {
            let turned = |key: &str| -> Vec<u8> {
                if backwards { key.bytes().rev().collect() } else { key.bytes().collect() }
            };
            let mut table = Prefixes::default();
            for (id, key) in (0..).zip(keys.iter().chain(&gone)) {
                table.insert(turned(key), &Arc::new(Entry::numbered(id)));
            }
            for (id, key) in (keys.len() as u64..).zip(&gone) {
                table.remove(turned(key), id);
            }
            let found = table.all(Text { bytes: text.as_bytes(), fold: false, backwards });
            let found: Vec<_> = found.map(|(len, entry)| (len, entry.id())).collect();
            let fits = |key: &str| if backwards { text.ends_with(key) } else { text.starts_with(key) };
            let mut expected: Vec<(usize, u64)> = Vec::new();
            for (i, key) in (0..).zip(&keys) {
                if fits(key) && !expected.iter().any(|(len, _)| *len == key.len()) {
                    expected.push((key.len(), i));
                }
            }
            expected.sort_by_key(|found| std::cmp::Reverse(found.0));
            prop_assert_eq!(found, expected);
        }
    }
}
