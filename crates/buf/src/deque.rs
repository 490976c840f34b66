//! A double-ended queue of segments: a few inside the value, more in a ring block from the lane's pool.
//!
//! Rules:
//! 1. The slots are an array of `capacity` (a power of two): `inline` while `block` is null, otherwise the
//!    block, whose size class [`RING_SIZES`] gives. Slots `head .. head + count`, modulo `capacity`, hold
//!    segments; the others hold nothing.
//! 2. `capacity` grows only in [`reserve`](Deque::reserve), the only operation that can fail: it first
//!    allocates the new block, then moves the segments. Pushes after a successful `reserve` cannot fail.
//! 3. A queue that runs empty frees its block, so that an idle chain holds no memory.
//!
//! Cost: push and pop O(1) at both ends; growth moves 24 bytes a segment and quadruples the room.

use crate::error::Error;
use crate::segment::Segment;
use crate::store::{MAX_SEGMENTS, RING_SIZES, store};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Number of segments without a block: a head, a body and two edits between them.
const INLINE: usize = 4;
const _: () = assert!(INLINE.is_power_of_two() && INLINE < RING_SIZES[0]);

pub(crate) struct Deque {
    inline: [MaybeUninit<Segment>; INLINE],
    block: Option<NonNull<Segment>>,
    capacity: u32,
    head: u32,
    count: u32,
}

impl Deque {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            inline: [const { MaybeUninit::uninit() }; INLINE],
            block: None,
            capacity: INLINE as u32,
            head: 0,
            count: 0,
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    #[inline]
    fn slots(&self) -> *const Segment {
        match self.block {
            Some(block) => block.as_ptr(),
            None => self.inline.as_ptr().cast(),
        }
    }

    #[inline]
    fn slots_mut(&mut self) -> *mut Segment {
        match self.block {
            Some(block) => block.as_ptr(),
            None => self.inline.as_mut_ptr().cast(),
        }
    }

    /// Returns the slot of segment number `index`; legal up to `capacity`.
    #[inline]
    fn slot(&self, index: usize) -> usize {
        (self.head as usize + index) & (self.capacity as usize - 1)
    }

    /// Makes room for `more` segments. On failure nothing has changed.
    #[inline]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let needed = self.count as usize + more;
        if needed <= self.capacity as usize { Ok(()) } else { self.grow(needed) }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, needed: usize) -> Result<(), Error> {
        let Some(class) = RING_SIZES.iter().position(|&size| needed <= size) else {
            return Err(Error::TooManySegments { limit: MAX_SEGMENTS });
        };
        let block = store().rings[class].alloc()?.into_raw().cast::<Segment>();
        debug_assert!(block.is_aligned(), "the pool aligns its blocks");
        let (first, second) = self.as_slices();
        // SAFETY: the block is new and has room for `needed` segments, at least as many as there are; they
        // move bitwise, and rule 1 forgets the old slots.
        unsafe {
            block.as_ptr().copy_from_nonoverlapping(first.as_ptr(), first.len());
            block.as_ptr().add(first.len()).copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
        self.free_block();
        self.block = Some(block);
        self.capacity = RING_SIZES[class] as u32;
        self.head = 0;
        Ok(())
    }

    /// Frees a block that was [reserved](Self::reserve) for segments that do not come: rule 3.
    #[cold]
    pub(crate) fn free_unused(&mut self) {
        if self.count == 0 {
            self.free_block();
        }
    }

    /// Frees the block, if there is one. Its segments have moved or are gone.
    #[inline]
    fn free_block(&mut self) {
        if self.block.is_some() {
            self.free_ring();
        }
    }

    // Few chains have a block, and all of them ask when they run empty and when they end.
    #[cold]
    #[inline(never)]
    fn free_ring(&mut self) {
        if let Some(block) = self.block.take() {
            let class = RING_SIZES
                .iter()
                .position(|&size| size == self.capacity as usize)
                .expect("rule 1: a block has the capacity of its class");
            // SAFETY: it came from this pool (`grow`), and `take` forgot it.
            unsafe { store().rings[class].free_raw(block.cast()) };
            self.capacity = INLINE as u32;
            self.head = 0;
        }
    }

    /// # Panics
    /// If there is no room: the caller must have reserved it.
    #[inline]
    pub(crate) fn push_back(&mut self, segment: Segment) {
        assert!(self.count < self.capacity, "rule 2: reserve before push");
        let slot = self.slot(self.count as usize);
        // SAFETY: rule 1: the slot is in the array, and empty.
        unsafe { self.slots_mut().add(slot).write(segment) };
        self.count += 1;
    }

    /// # Panics
    /// As [`push_back`](Self::push_back).
    #[inline]
    pub(crate) fn push_front(&mut self, segment: Segment) {
        assert!(self.count < self.capacity, "rule 2: reserve before push");
        self.head = self.slot(self.capacity as usize - 1) as u32;
        let slot = self.head as usize;
        // SAFETY: rule 1: the slot is in the array, and empty.
        unsafe { self.slots_mut().add(slot).write(segment) };
        self.count += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Segment> {
        if self.count == 0 {
            return None;
        }
        let slot = self.head as usize;
        self.head = self.slot(1) as u32;
        self.count -= 1;
        // SAFETY: rule 1: it held a segment, which moves out.
        let segment = unsafe { self.slots().add(slot).read() };
        if self.count == 0 {
            self.free_block(); // rule 3
        }
        Some(segment)
    }

    #[inline]
    pub(crate) fn pop_back(&mut self) -> Option<Segment> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        let slot = self.slot(self.count as usize);
        // SAFETY: rule 1: it held a segment, which moves out.
        let segment = unsafe { self.slots().add(slot).read() };
        if self.count == 0 {
            self.free_block(); // rule 3
        }
        Some(segment)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Segment> {
        if index >= self.count() {
            return None;
        }
        // SAFETY: rule 1: it holds a segment.
        Some(unsafe { &*self.slots().add(self.slot(index)) })
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Segment> {
        if index >= self.count() {
            return None;
        }
        let slot = self.slot(index);
        // SAFETY: rule 1: it holds a segment.
        Some(unsafe { &mut *self.slots_mut().add(slot) })
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Segment> {
        self.get(0)
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Segment> {
        self.get_mut(0)
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&Segment> {
        self.get(self.count().wrapping_sub(1))
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut Segment> {
        self.get_mut(self.count().wrapping_sub(1))
    }

    /// Returns all segments in order: those up to the end of the array, then those from its start.
    #[inline]
    pub(crate) fn as_slices(&self) -> (&[Segment], &[Segment]) {
        let (head, count) = (self.head as usize, self.count as usize);
        let first = count.min(self.capacity as usize - head);
        // SAFETY: rule 1: these slots hold segments.
        unsafe {
            (
                std::slice::from_raw_parts(self.slots().add(head), first),
                std::slice::from_raw_parts(self.slots(), count - first),
            )
        }
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        let (head, count) = (self.head as usize, self.count as usize);
        let first = count.min(self.capacity as usize - head);
        let slots = self.slots_mut();
        // SAFETY: rule 1: these slots hold segments; the two runs do not overlap.
        let (first, second) = unsafe {
            (
                std::slice::from_raw_parts_mut(slots.add(head), first),
                std::slice::from_raw_parts_mut(slots, count - first),
            )
        };
        first.iter_mut().chain(second)
    }
}

impl Drop for Deque {
    #[inline]
    fn drop(&mut self) {
        /// Drops the rest, also after the owner of foreign bytes has panicked.
        struct Remaining<'a>(&'a mut Deque);
        impl Drop for Remaining<'_> {
            #[inline]
            fn drop(&mut self) {
                while self.0.pop_front().is_some() {}
                self.0.free_block(); // for a block that was reserved and never used
            }
        }
        if self.count == 0 && self.block.is_none() {
            return; // most chains end empty
        }
        let rest = Remaining(self);
        while rest.0.pop_front().is_some() {}
    }
}
