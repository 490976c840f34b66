//! A lane's own cache of free objects: a stack of pointers.
//!
//! The pointers are in an array, not linked through the objects, so neither allocating nor freeing touches
//! the memory of an object.

use crate::object::{Batch, Object};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A last-in-first-out cache: the object freed last is most likely still in the core's own cache.
///
/// The object freed last is in `last`, apart from the stack, for a lane that allocates and frees in turn. The
/// lane's counts show whether `last` is in use (see `inner::Hot`). That is a branch, which a core predicts;
/// the height of a stack is a number that each operation waits for its predecessor to store. For the same
/// reason `last` keeps its address when the object is allocated: if the same object comes back, nothing is
/// stored for which the next allocation would have to wait.
///
/// Invariant: the first `len` places of the stack are written, and `len <= room`; `stack` has `room` places.
/// While an object is apart, `last` is its address, whose provenance is exposed.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Cache {
    last: usize,
    len: u32,
    room: u32,
    stack: Option<NonNull<CacheSlot>>,
}

type CacheSlot = MaybeUninit<Object>;

// SAFETY: only the cache uses the stack.
unsafe impl Send for Cache {}

/// The places of a cache's stack. They live as long as the lane's part of the pool.
pub(crate) struct Stack(NonNull<[CacheSlot]>);

// SAFETY: only the cache that got it by `give_room` uses it.
unsafe impl Send for Stack {}
// SAFETY: as above.
unsafe impl Sync for Stack {}

impl Stack {
    /// Creates the stack of a cache for `capacity` objects, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(NonNull::from(Box::leak(Box::new_uninit_slice(capacity - 1))))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: it came from a box in `new`, and ends after the cache.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Cache {
    /// Gives the cache its stack, with room for more than one object. Called once, before the first push.
    pub(crate) fn give_room(&mut self, stack: &Stack) {
        debug_assert_eq!(self.room, 0);
        self.room = u32::try_from(stack.0.len()).expect("`MAX_CACHED` is less");
        self.stack = Some(stack.0.cast());
    }

    /// Returns all places of the stack.
    fn slots(&mut self) -> &mut [CacheSlot] {
        let Some(stack) = self.stack else { return &mut [] };
        // SAFETY: the invariant; `give_room` was given the stack for this cache alone.
        unsafe { std::slice::from_raw_parts_mut(stack.as_ptr(), self.room as usize) }
    }

    /// Returns the object apart. Legal only while there is one.
    #[inline(always)]
    pub(crate) fn last(&self) -> Object {
        debug_assert_ne!(self.last, 0);
        // SAFETY: the invariant: the address of an object is not 0.
        Object(unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(self.last)) })
    }

    /// True if `object`, which is not in the cache, was the last one apart. In that case none is apart now,
    /// and the object is apart again as soon as the counts say so.
    #[inline(always)]
    pub(crate) fn was_last(&self, object: Object) -> bool {
        self.last == object.0.as_ptr().expose_provenance()
    }

    /// Puts `object` apart. Legal only while none is.
    #[inline(always)]
    pub(crate) fn set_last(&mut self, object: Object) {
        self.last = object.0.as_ptr().expose_provenance();
    }

    /// Removes the top object of the stack.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Object> {
        let below = self.len.checked_sub(1)?;
        let stack = self.stack?;
        self.len = below;
        // SAFETY: the invariant: it is one of the stack's places, and was written.
        Some(unsafe { stack.add(below as usize).read().assume_init() })
    }

    /// Puts `object` apart, and the object that was apart on the stack. Returns false if the stack is full.
    /// Legal only while an object is apart.
    #[inline(always)]
    pub(crate) fn push(&mut self, object: Object) -> bool {
        if self.len >= self.room {
            return false;
        }
        let Some(stack) = self.stack else { return false };
        let last = self.last();
        // SAFETY: the invariant: it is one of the stack's places, as just tested.
        unsafe { stack.add(self.len as usize).write(MaybeUninit::new(last)) };
        self.len += 1;
        self.set_last(object);
        true
    }

    /// As [`push`](Self::push) on a full stack: moves the `count` coldest objects to `batch`.
    pub(crate) fn displace(&mut self, object: Object, count: usize, batch: &mut Batch) {
        if self.room == 0 {
            batch.push(self.last());
            self.set_last(object);
        } else {
            self.spill(count, batch);
            let kept = self.push(object);
            debug_assert!(kept, "at least one place was made");
        }
    }

    /// Moves the `count` coldest objects of the stack to `batch`, or all if there are fewer.
    pub(crate) fn spill(&mut self, count: usize, batch: &mut Batch) {
        let len = self.len as usize;
        let count = count.min(len);
        batch.fill(&self.slots()[..count]);
        self.slots().copy_within(count..len, 0);
        self.len -= count as u32;
    }

    /// Returns the number of objects on the stack.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Moves all objects of `batch` except the last into the cache, and returns the last. Only for an empty
    /// cache with enough room.
    pub(crate) fn unpack(&mut self, batch: &Batch) -> Option<Object> {
        let (last, rest) = batch.raw().split_last()?;
        self.slots()[..rest.len()].copy_from_slice(rest);
        self.len = rest.len() as u32;
        // SAFETY: the objects of a batch are written.
        Some(unsafe { last.assume_init() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: usize) -> Object {
        Object(NonNull::without_provenance(std::num::NonZero::new(n).expect("not 0")))
    }

    fn numbers(objects: impl Iterator<Item = Object>) -> Vec<usize> {
        objects.map(|object| object.0.addr().get()).collect()
    }

    /// Creates a cache for `capacity` objects with one apart, and its stack, which must be dropped after it.
    fn cache(capacity: usize) -> (Cache, Stack) {
        let (mut cache, stack) = (Cache::default(), Stack::new(capacity));
        cache.give_room(&stack);
        cache.set_last(object(1));
        (cache, stack)
    }

    /// Returns the object apart, then the stack from the top down.
    fn all(cache: &mut Cache) -> Vec<usize> {
        let last = cache.last();
        numbers(std::iter::once(last).chain(std::iter::from_fn(|| cache.pop())))
    }

    #[test]
    fn the_coldest_are_displaced_and_the_hottest_popped() {
        let (mut cache, _stack) = cache(4);
        assert!((2..=4).all(|n| cache.push(object(n))));
        assert!(!cache.push(object(5)));
        let mut batch = Batch::new();
        cache.displace(object(5), 2, &mut batch);
        assert_eq!(numbers(batch.iter()), [1, 2]);
        assert_eq!(all(&mut cache), [5, 4, 3]);
        assert_eq!(numbers(cache.unpack(&batch).into_iter()), [2]);
        assert_eq!(numbers(std::iter::from_fn(|| cache.pop())), [1]);
    }

    #[test]
    fn a_cache_for_one_object_keeps_the_last() {
        let (mut cache, _stack) = cache(1);
        assert!(!cache.push(object(2)));
        let mut batch = Batch::new();
        cache.displace(object(2), 1, &mut batch);
        assert_eq!(numbers(batch.iter()), [1]);
        assert_eq!(all(&mut cache), [2]);
    }
}
