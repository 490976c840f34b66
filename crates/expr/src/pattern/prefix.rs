//! Prefixes in sorted order. The longest prefix of a text is the sorted predecessor of the text or one of the predecessor's own
//! prefixes, to which each entry keeps a link: a search costs one binary search and a short walk.

/// No entry.
const NONE: u32 = u32::MAX;

/// A set of keys. Keys and texts are read through a function, so that the same table works from the end of a text.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    key: Box<[u8]>,
    /// The longest other key that this one begins with.
    parent: u32,
    /// Which entry it is; of equal keys the first.
    order: u32,
}

/// A text in the table's reading direction and case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'t> {
    pub(crate) bytes: &'t [u8],
    pub(crate) fold: bool,
    pub(crate) backwards: bool,
}

impl Text<'_> {
    fn at(&self, index: usize) -> u8 {
        let byte = if self.backwards { self.bytes[self.bytes.len() - 1 - index] } else { self.bytes[index] };
        if self.fold { byte.to_ascii_lowercase() } else { byte }
    }

    /// Bytes that the text and the key have in common at the front.
    fn common(&self, key: &[u8]) -> usize {
        (0..key.len().min(self.bytes.len())).take_while(|&index| self.at(index) == key[index]).count()
    }
}

impl Prefixes {
    /// Of keys with their numbers, as they are compared: reversed or in lower case where the texts are.
    pub(crate) fn new(mut keys: Vec<(Box<[u8]>, u32)>) -> Self {
        keys.sort();
        keys.dedup_by(|later, first| later.0 == first.0);
        let mut nodes: Vec<Node> = Vec::with_capacity(keys.len());
        for (key, order) in keys {
            let mut parent = (nodes.len() as u32).wrapping_sub(1);
            while parent != NONE && !key.starts_with(&nodes[parent as usize].key) {
                parent = nodes[parent as usize].parent;
            }
            nodes.push(Node { key, parent, order });
        }
        Self { nodes }
    }

    /// The keys that the text begins with, longest first: length and number.
    pub(crate) fn all<'p>(&'p self, text: Text<'_>) -> impl Iterator<Item = (usize, u32)> + use<'p> {
        let behind = self.nodes.partition_point(|node| {
            let common = text.common(&node.key);
            match (node.key.get(common), common < text.bytes.len()) {
                (None, _) => true,         // a prefix of the text, or the text
                (Some(_), false) => false, // longer than the text
                (Some(byte), true) => *byte < text.at(common),
            }
        });
        let mut next = (behind as u32).wrapping_sub(1);
        let common = self.nodes.get(next as usize).map_or(0, |node| text.common(&node.key));
        std::iter::from_fn(move || {
            loop {
                let node = self.nodes.get(next as usize)?;
                next = node.parent;
                if node.key.len() <= common {
                    return Some((node.key.len(), node.order));
                }
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
        fn exactly_the_prefixes_are_found(keys in prop::collection::vec("[ab]{0,6}", 0..12), text in "[abc]{0,8}", backwards: bool) {
            let turned = |key: &str| if backwards { key.bytes().rev().collect() } else { key.bytes().collect::<Box<[u8]>>() };
            let table = Prefixes::new(keys.iter().enumerate().map(|(i, key)| (turned(key), i as u32)).collect());
            let found: Vec<_> = table.all(Text { bytes: text.as_bytes(), fold: false, backwards }).collect();
            let fits = |key: &str| if backwards { text.ends_with(key) } else { text.starts_with(key) };
            let mut expected: Vec<(usize, u32)> = Vec::new();
            for (i, key) in keys.iter().enumerate() {
                if fits(key) && !expected.iter().any(|(len, _)| *len == key.len()) {
                    expected.push((key.len(), i as u32));
                }
            }
            expected.sort_by_key(|found| std::cmp::Reverse(found.0));
            prop_assert_eq!(found, expected);
        }
    }
}
