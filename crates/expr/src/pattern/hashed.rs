//! A persistent hash table of entries: a copy costs a reference count and shares its nodes.
//!
//! It is a trie over the bits of the hash, five at a time, that stores used slots only (P. Bagwell, *Ideal
//! Hash Trees*, 2001). The hash is keyed, so clients cannot choose keys that unbalance it. A look-up or a
//! change takes log32(length) steps.

use super::entry::Entry;
use super::tree::Tree;
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc; // std: nodes are immutable once shared, so models need not see it

/// Bits of the hash that select a slot of a branch.
const BITS: u32 = 5;

/// Entries by key; several entries may have the same key.
#[derive(Clone, Debug)]
pub(super) struct Hashed<K> {
    state: RandomState,
    root: Arc<Branch<K>>,
}

#[derive(Clone, Debug)]
struct Branch<K> {
    /// Bit set of the used slots.
    bitmap: u32,
    slots: Vec<Slot<K>>,
}

#[derive(Clone, Debug)]
enum Slot<K> {
    Branch(Arc<Branch<K>>),
    One(Leaf<K>),
    /// All entries with one hash, by number.
    Many(u64, Tree<u64, Leaf<K>>),
}

#[derive(Clone, Debug)]
pub(super) struct Leaf<K> {
    hash: u64,
    pub(super) key: K,
    pub(super) entry: Arc<Entry>,
}

impl<K> Slot<K> {
    fn hash(&self) -> Option<u64> {
        match self {
            Self::Branch(_) => None,
            Self::One(leaf) => Some(leaf.hash),
            Self::Many(hash, _) => Some(*hash),
        }
    }
}

impl<K> Branch<K> {
    const fn new() -> Self {
        Self { bitmap: 0, slots: Vec::new() }
    }

    /// The bit of a hash, and the index of its slot.
    fn slot_of(&self, hash: u64, shift: u32) -> (u32, usize) {
        let bit = 1 << ((hash >> shift) & ((1 << BITS) - 1));
        (bit, (self.bitmap & (bit - 1)).count_ones() as usize)
    }
}

/// Order of the slots: the lowest bits select in the root.
fn order(a: u64, b: u64) -> Ordering {
    let digit = |hash: u64| hash >> ((a ^ b).trailing_zeros() / BITS * BITS) & ((1 << BITS) - 1);
    if a == b { Ordering::Equal } else { digit(a).cmp(&digit(b)) }
}

impl<K: Clone> Branch<K> {
    /// Builds a branch from leaves that are sorted by [`order`] of their hashes, then by number.
    fn of(leaves: &[Leaf<K>], shift: u32) -> Self {
        super::work::steps(leaves.len());
        let mut branch = Self::new();
        let digit = |leaf: &Leaf<K>| (leaf.hash >> shift) & ((1 << BITS) - 1);
        let groups = leaves.chunk_by(|a, b| digit(a) == digit(b));
        branch.slots.reserve_exact(groups.clone().count());
        for group in groups {
            branch.bitmap |= branch.slot_of(group[0].hash, shift).0;
            branch.slots.push(match group {
                [only] => Slot::One(only.clone()),
                [first, .., last] if first.hash == last.hash => {
                    let all = group.iter().map(|leaf| (leaf.entry.id(), leaf.clone())).collect();
                    Slot::Many(first.hash, Tree::from_sorted(all))
                }
                _ => Slot::Branch(Arc::new(Self::of(group, shift + BITS))),
            });
        }
        branch
    }
}

impl<K: Clone> Default for Hashed<K> {
    fn default() -> Self {
        Self { state: RandomState::new(), root: Arc::new(Branch::new()) }
    }
}

impl<K: Clone> Hashed<K> {
    /// Builds a table from entries in order, with their keys; `hash` returns the hash of a key.
    pub(super) fn of(all: Vec<(K, &Arc<Entry>)>, hash: impl Fn(&RandomState, &K, &Entry) -> u64) -> Self {
        let state = RandomState::new();
        let leaf = |(key, entry): (K, &Arc<Entry>)| Leaf {
            hash: hash(&state, &key, entry),
            key,
            entry: entry.clone(),
        };
        let mut leaves: Vec<Leaf<K>> = all.into_iter().map(leaf).collect();
        leaves.sort_by(|a, b| order(a.hash, b.hash));
        let root = if leaves.is_empty() { Branch::new() } else { Branch::of(&leaves, 0) };
        Self { state, root: Arc::new(root) }
    }

    pub(super) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.state.hash_one(key)
    }

    /// The first entry with this hash for which `same` is true.
    pub(super) fn find(&self, hash: u64, same: impl Fn(&Leaf<K>) -> bool) -> Option<&Arc<Entry>> {
        self.all(hash).find(|leaf| same(leaf)).map(|leaf| &leaf.entry)
    }

    /// All leaves with this hash, in order.
    pub(super) fn all(&self, hash: u64) -> impl Iterator<Item = &Leaf<K>> {
        let (mut one, mut many) = (None, None);
        let mut branch = &*self.root;
        let mut shift = 0;
        loop {
            super::work::step();
            let (bit, at) = branch.slot_of(hash, shift);
            let slot = (branch.bitmap & bit != 0).then(|| &branch.slots[at]);
            match slot {
                Some(Slot::Branch(inner)) => branch = inner,
                Some(Slot::One(leaf)) if leaf.hash == hash => break one = Some(leaf),
                Some(Slot::Many(own, all)) if *own == hash => break many = Some(all.iter()),
                _ => break,
            }
            shift += BITS;
        }
        one.into_iter().chain(many.into_iter().flatten().map(|(_, leaf)| leaf))
    }

    /// Inserts an entry, or replaces the one with the same number.
    pub(super) fn insert(&mut self, hash: u64, key: K, entry: &Arc<Entry>) {
        insert(&mut self.root, 0, Leaf { hash, key, entry: entry.clone() });
    }

    pub(super) fn remove(&mut self, hash: u64, id: u64) {
        // Check first: removing a missing entry must not copy branches.
        if self.all(hash).any(|leaf| leaf.entry.id() == id) {
            remove(&mut self.root, 0, hash, id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.bitmap == 0
    }
}

fn insert<K: Clone>(branch: &mut Arc<Branch<K>>, shift: u32, leaf: Leaf<K>) {
    let branch = Arc::make_mut(branch);
    super::work::steps(branch.slots.len());
    let (bit, at) = branch.slot_of(leaf.hash, shift);
    if branch.bitmap & bit == 0 {
        branch.bitmap |= bit;
        branch.slots.insert(at, Slot::One(leaf));
        return;
    }
    let slot = &mut branch.slots[at];
    match slot {
        Slot::Branch(inner) => return insert(inner, shift + BITS, leaf),
        Slot::Many(hash, all) if *hash == leaf.hash => return all.insert(leaf.entry.id(), leaf),
        Slot::One(one) if one.hash == leaf.hash => {
            let mut all = Tree::default();
            if one.entry.id() != leaf.entry.id() {
                all.insert(one.entry.id(), one.clone());
                all.insert(leaf.entry.id(), leaf);
                *slot = Slot::Many(one.hash, all);
            } else {
                *one = leaf;
            }
            return;
        }
        Slot::One(_) | Slot::Many(..) => {}
    }
    // Different hashes differ in some digit, so the recursion ends.
    let Some(hash) = slot.hash() else { return };
    let mut inner = Branch::new();
    inner.bitmap = inner.slot_of(hash, shift + BITS).0;
    inner.slots.push(slot.clone());
    let mut inner = Arc::new(inner);
    insert(&mut inner, shift + BITS, leaf);
    *slot = Slot::Branch(inner);
}

/// Removes an entry that must exist.
fn remove<K: Clone>(branch: &mut Arc<Branch<K>>, shift: u32, hash: u64, id: u64) {
    let branch = Arc::make_mut(branch);
    super::work::steps(branch.slots.len());
    let (bit, at) = branch.slot_of(hash, shift);
    let is_empty = match &mut branch.slots[at] {
        Slot::One(_) => true,
        Slot::Many(_, all) => {
            all.remove(&id);
            all.len() == 0
        }
        Slot::Branch(inner) => {
            remove(inner, shift + BITS, hash, id);
            inner.slots.is_empty()
        }
    };
    if is_empty {
        branch.bitmap &= !bit;
        branch.slots.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Hashes that differ only in the last bits or only in the first, or are equal.
        #[test]
        fn entries_are_found_under_their_hash_and_copies_stay_as_they_are(
            steps in prop::collection::vec((0..6_u64, 0..3_u64, 0..6_u64, any::<bool>()), 0..150),
        ) {
            let mut table = Hashed::<()>::default();
            let mut set = BTreeSet::new();
            let mut copies = Vec::new();
            for (number, (low, high, id, adds)) in steps.into_iter().enumerate() {
                if number % 16 == 0 {
                    copies.push((table.clone(), set.clone()));
                }
                let hash = low | high << 62;
                if adds {
                    table.insert(hash, (), &Arc::new(Entry::numbered(id)));
                    set.insert((hash, id));
                } else {
                    table.remove(hash, id);
                    set.remove(&(hash, id));
                }
            }
            copies.push((table, set.clone()));
            let all: Vec<(u64, Arc<Entry>)> = set.iter().map(|(hash, id)| (*hash,
                Arc::new(Entry::numbered(*id)))).collect();
            let keyed = Hashed::of(all.iter().map(|(hash, entry)| (*hash, entry)).collect(), |_, hash,
                _| *hash);
            for (hash, entry) in &all {
                let found = keyed.all(*hash).filter(|leaf| leaf.key == *hash).map(|leaf| leaf.entry.id());
                prop_assert!(found.eq(set.range((*hash, 0)..=(*hash, u64::MAX)).map(|(_, id)| *id)), "{}",
                    entry.id());
            }
            for (table, set) in &copies {
                prop_assert_eq!(table.is_empty(), set.is_empty());
                for hash in (0..6).flat_map(|low| (0..3).map(move |high| low | high << 62)) {
                    let found: Vec<u64> = table.all(hash).map(|leaf| leaf.entry.id()).collect();
                    let expected: Vec<u64> = set.range((hash, 0)..=(hash, u64::MAX)).map(|(_,
                        id)| *id).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
