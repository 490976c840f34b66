//! A slab for the driver's state of each descriptor. It grows by chunks, and entries never move.

/// Number of entries of a chunk. A chunk lives as long as the driver. It is larger than any task, so that the
/// allocator does not place it in a page of short-lived objects, which it would then keep in memory.
const CHUNK: usize = 512;

/// Key of an entry, which matches nothing once that entry is gone: place in the lower half, generation in the
/// upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Bound of generations: below 2^24, so that the highest byte of a key is free for other uses.
const GENERATIONS: u32 = 1 << 24;

enum State<T> {
    Free { next: u32 },
    Taken(T),
}

struct Entry<T> {
    generation: u32,
    state: State<T>,
}

const NIL: u32 = u32::MAX;

pub(crate) struct Slab<T> {
    chunks: Vec<Box<[Entry<T>]>>,
    free: u32,
    taken: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: NIL, taken: 0 }
    }

    /// Returns the number of taken entries.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        let entry = |index: usize| {
            let next = if index + 1 < CHUNK { (first + index + 1) as u32 } else { NIL };
            Entry { generation: 0, state: State::Free { next } }
        };
        self.chunks.push((0..CHUNK).map(entry).collect());
        self.free = first as u32;
    }

    #[inline]
    fn entry(&mut self, index: usize) -> Option<&mut Entry<T>> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Puts `value` into a free place. There are never 2^32 descriptors, so there is always a free number.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if self.free == NIL {
            self.grow();
        }
        let index = self.free;
        let entry = self.entry(index as usize).expect("the free list knows places that exist");
        let State::Free { next } = entry.state else { unreachable!("the free list knows free places") };
        entry.state = State::Taken(value);
        let key = Key::new(index, entry.generation);
        self.free = next;
        self.taken += 1;
        key
    }

    /// Returns the entry, if it still exists.
    #[inline]
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut T> {
        match self.entry(key.index()) {
            Some(Entry { generation, state: State::Taken(value) }) if *generation == key.generation() => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Removes the entry; its key matches nothing from here on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let free = self.free;
        let entry = self.entry(key.index())?;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        let State::Taken(value) = std::mem::replace(&mut entry.state, State::Free { next: free }) else {
            return None;
        };
        self.free = key.index() as u32;
        self.taken -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_nobody_after_its_entry_has_gone() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&mut "b"));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.get(Key::from_bits(999)), None);
    }

    #[test]
    fn entries_stay_where_they_are_while_the_slab_grows() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
        let at: Vec<_> = keys.iter().map(|&key| std::ptr::from_mut(slab.get(key).unwrap())).collect();
        keys.iter().step_by(2).for_each(|&key| _ = slab.remove(key));
        (0..2000).for_each(|n| _ = slab.insert(n));
        for (n, &key) in keys.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(slab.get(key).map(|value| (*value, std::ptr::from_mut(value))), Some((n, at[n])));
        }
        assert_eq!(slab.len(), 2500);
    }
}
