//! A persistent ordered map: a copy costs a reference count, and a change copies only the nodes on the path
//! to its position.
//!
//! It is an AVL tree (G. Adelson-Velsky and E. Landis, 1962), made persistent by path copying (J. Driscoll,
//! N. Sarnak, D. Sleator and R. Tarjan, *Making Data Structures Persistent*, 1989). A node that is not shared
//! is changed in place, so filling a tree copies nothing.
//!
//! A look-up or a change takes at most 1.44 log2(length) steps.

use std::cmp::Ordering;
use std::sync::Arc; // std: nodes are immutable once shared, so models need not see it

/// Maximum depth, for 2^32 nodes.
const MOST_DEPTH: usize = 48;

/// A map in the order of its keys.
#[derive(Clone, Debug)]
pub(crate) struct Tree<K, V> {
    root: Link<K, V>,
    len: usize,
}

type Link<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone, Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    height: u8,
    left: Link<K, V>,
    right: Link<K, V>,
}

impl<K, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Tree<K, V> {
    /// Builds a tree from distinct keys in order.
    pub(crate) fn from_sorted(mut all: Vec<(K, V)>) -> Self {
        let len = all.len();
        Self { root: sorted(&mut all.drain(..), len), len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let mut link = &self.root;
        while let Some(node) = link {
            super::work::step();
            link = match key.cmp(&node.key) {
                Ordering::Less => &node.left,
                Ordering::Greater => &node.right,
                Ordering::Equal => return Some(&node.value),
            };
        }
        None
    }

    /// The last entry for whose key `holds` is true. `holds` must be true for a prefix of the keys and false
    /// for the rest.
    pub(crate) fn last_where(&self, mut holds: impl FnMut(&K) -> bool) -> Option<(&K, &V)> {
        let mut link = &self.root;
        let mut last = None;
        while let Some(node) = link {
            super::work::step();
            link = if holds(&node.key) {
                last = Some((&node.key, &node.value));
                &node.right
            } else {
                &node.left
            };
        }
        last
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.len += usize::from(insert(&mut self.root, key, value));
    }

    /// Removes a key. False if it does not exist.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        // Check first: removing a missing key must not copy nodes.
        let is_there = self.get(key).is_some();
        if is_there {
            remove(&mut self.root, key);
            self.len -= 1;
        }
        is_there
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { path: [None; MOST_DEPTH], depth: 0 };
        iter.descend(&self.root);
        iter
    }

    /// Iterates from `key` on.
    pub(crate) fn iter_from(&self, key: &K) -> Iter<'_, K, V> {
        let mut iter = Iter { path: [None; MOST_DEPTH], depth: 0 };
        let mut link = &self.root;
        while let Some(node) = link {
            super::work::step();
            link = if node.key < *key {
                &node.right
            } else {
                iter.push(node);
                &node.left
            };
        }
        iter
    }
}

/// Iterates in order without allocating.
#[derive(Debug)]
pub(crate) struct Iter<'t, K, V> {
    /// Nodes to visit, the next one last, each before its right subtree.
    path: [Option<&'t Node<K, V>>; MOST_DEPTH],
    depth: usize,
}

impl<'t, K, V> Iter<'t, K, V> {
    fn push(&mut self, node: &'t Node<K, V>) {
        self.path[self.depth] = Some(node);
        self.depth += 1;
    }

    fn descend(&mut self, mut link: &'t Link<K, V>) {
        while let Some(node) = link {
            self.push(node);
            link = &node.left;
        }
    }
}

impl<'t, K, V> Iterator for Iter<'t, K, V> {
    type Item = (&'t K, &'t V);

    fn next(&mut self) -> Option<Self::Item> {
        super::work::step();
        self.depth = self.depth.checked_sub(1)?;
        let node = self.path[self.depth].take()?;
        self.descend(&node.right);
        Some((&node.key, &node.value))
    }
}

fn height<K, V>(link: &Link<K, V>) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

/// Builds a tree from the next `len` entries.
fn sorted<K, V>(all: &mut impl Iterator<Item = (K, V)>, len: usize) -> Link<K, V> {
    super::work::step();
    let before = len.checked_sub(1)? / 2;
    let left = sorted(all, before);
    let (key, value) = all.next()?;
    let right = sorted(all, len - 1 - before);
    let height = height(&left).max(height(&right)) + 1;
    Some(Arc::new(Node { key, value, height, left, right }))
}

/// Inserts or replaces. True if the key is new.
fn insert<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V) -> bool {
    super::work::step();
    let Some(shared) = link else {
        *link = Some(Arc::new(Node { key, value, height: 1, left: None, right: None }));
        return true;
    };
    let node = Arc::make_mut(shared);
    let is_new = match key.cmp(&node.key) {
        Ordering::Less => insert(&mut node.left, key, value),
        Ordering::Greater => insert(&mut node.right, key, value),
        Ordering::Equal => {
            node.value = value;
            false
        }
    };
    if is_new {
        balance(shared);
    }
    is_new
}

fn remove<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: &K) {
    super::work::step();
    let Some(shared) = link else { return };
    let node = Arc::make_mut(shared);
    match key.cmp(&node.key) {
        Ordering::Less => remove(&mut node.left, key),
        Ordering::Greater => remove(&mut node.right, key),
        Ordering::Equal => match (node.left.take(), node.right.take()) {
            (None, child) | (child, None) => {
                *link = child;
                return;
            }
            (left, mut right) => {
                if let Some((key, value)) = take_first(&mut right) {
                    (node.key, node.value) = (key, value);
                }
                (node.left, node.right) = (left, right);
            }
        },
    }
    balance(shared);
}

fn take_first<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    super::work::step();
    let shared = link.as_mut()?;
    let node = Arc::make_mut(shared);
    if node.left.is_some() {
        let first = take_first(&mut node.left);
        balance(shared);
        return first;
    }
    let first = (node.key.clone(), node.value.clone());
    *link = node.right.take();
    Some(first)
}

/// Rotates a node whose subtrees differ in height by two.
fn balance<K: Clone, V: Clone>(shared: &mut Arc<Node<K, V>>) {
    let node = Arc::make_mut(shared);
    let (left, right) = (height(&node.left), height(&node.right));
    if left > right + 1 {
        if let Some(child) = &mut node.left
            && height(&child.right) > height(&child.left)
        {
            turn_left(child);
        }
        turn_right(shared);
    } else if right > left + 1 {
        if let Some(child) = &mut node.right
            && height(&child.left) > height(&child.right)
        {
            turn_right(child);
        }
        turn_left(shared);
    } else {
        node.height = left.max(right) + 1;
    }
}

/// Rotates right: the left child takes the place of the node.
fn turn_right<K: Clone, V: Clone>(shared: &mut Arc<Node<K, V>>) {
    let node = Arc::make_mut(shared);
    let Some(mut child) = node.left.take() else { return };
    let up = Arc::make_mut(&mut child);
    node.left = up.right.take();
    node.height = height(&node.left).max(height(&node.right)) + 1;
    std::mem::swap(shared, &mut child);
    let node = Arc::make_mut(shared);
    node.right = Some(child);
    node.height = height(&node.left).max(height(&node.right)) + 1;
}

/// Rotates left: the right child takes the place of the node.
fn turn_left<K: Clone, V: Clone>(shared: &mut Arc<Node<K, V>>) {
    let node = Arc::make_mut(shared);
    let Some(mut child) = node.right.take() else { return };
    let up = Arc::make_mut(&mut child);
    node.right = up.left.take();
    node.height = height(&node.left).max(height(&node.right)) + 1;
    std::mem::swap(shared, &mut child);
    let node = Arc::make_mut(shared);
    node.left = Some(child);
    node.height = height(&node.left).max(height(&node.right)) + 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The height of a tree, after checking balance and stored heights.
    fn checked(link: &Link<u8, u32>) -> u8 {
        let Some(node) = link else { return 0 };
        let (left, right) = (checked(&node.left), checked(&node.right));
        assert!(left.abs_diff(right) <= 1);
        assert_eq!(node.height, left.max(right) + 1);
        node.height
    }

    proptest! {
        #[test]
        fn a_tree_is_an_ordered_map_and_its_copies_stay_as_they_are(
            steps in prop::collection::vec((any::<u8>(), any::<bool>()), 0..200),
            from: u8,
        ) {
            let mut tree = Tree::default();
            let mut map = BTreeMap::new();
            let mut copies = Vec::new();
            for (number, (key, adds)) in (0..).zip(steps) {
                if number % 16 == 0 {
                    copies.push((tree.clone(), map.clone()));
                }
                if adds {
                    tree.insert(key, number);
                    map.insert(key, number);
                } else {
                    prop_assert_eq!(tree.remove(&key), map.remove(&key).is_some());
                }
            }
            copies.push((tree, map.clone()));
            copies.push((Tree::from_sorted(map.clone().into_iter().collect()), map));
            for (tree, map) in &copies {
                checked(&tree.root);
                prop_assert_eq!(tree.len(), map.len());
                prop_assert!(tree.iter().eq(map.iter()));
                prop_assert!(tree.iter_from(&from).eq(map.range(from..)));
                prop_assert_eq!(tree.get(&from), map.get(&from));
                prop_assert_eq!(tree.last_where(|key| *key <= from), map.range(..=from).next_back());
            }
        }
    }
}
