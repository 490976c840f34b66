//! A lane's own free objects: a stack of pointers.
//!
//! The pointers are in an array and not linked through the objects, so that neither taking nor giving touches
//! the memory of an object.

use crate::object::{Batch, Object};
use std::mem::MaybeUninit;

/// Last in, first out, since what was freed last is most likely still in the core's own cache.
///
/// Invariant: the first `len` places are written, and `len <= slots.len()`.
pub(crate) struct Cache {
    len: usize,
    slots: Box<[MaybeUninit<Object>]>,
}

impl Cache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { len: 0, slots: Box::new_uninit_slice(capacity) }
    }

    /// The object that was freed last.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Object> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        // SAFETY: the invariant: it was in bounds and written.
        Some(unsafe { self.slots.get_unchecked(self.len).assume_init() })
    }

    /// Keeps `object`, if there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, object: Object) -> bool {
        if self.len >= self.slots.len() {
            return false;
        }
        // SAFETY: in bounds as just tested.
        unsafe { self.slots.get_unchecked_mut(self.len).write(object) };
        self.len += 1;
        true
    }

    /// Moves the `count` coldest objects (or all, if there are fewer) to `batch`.
    #[cold]
    pub(crate) fn spill(&mut self, count: usize, batch: &mut Batch) {
        let count = count.min(self.len);
        batch.fill(&self.slots[..count]);
        self.slots.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// Takes over the objects of `batch`; the cache must have room for them.
    #[cold]
    pub(crate) fn extend(&mut self, batch: &Batch) {
        self.slots[self.len..self.len + batch.len()].copy_from_slice(batch.raw());
        self.len += batch.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    fn object(n: usize) -> Object {
        Object(NonNull::without_provenance(std::num::NonZero::new(n).expect("not 0")))
    }

    #[test]
    fn the_coldest_are_spilled_and_the_hottest_popped() {
        let mut cache = Cache::new(4);
        assert!((1..=4).all(|n| cache.push(object(n))));
        assert!(!cache.push(object(5)));
        let mut batch = Batch::new();
        cache.spill(2, &mut batch);
        assert_eq!(batch.iter().map(|o| o.0.addr().get()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(cache.pop().map(|o| o.0.addr().get()), Some(4));
        cache.extend(&batch);
        let rest: Vec<_> = std::iter::from_fn(|| cache.pop()).map(|o| o.0.addr().get()).collect();
        assert_eq!(rest, [2, 1, 3]);
    }
}
