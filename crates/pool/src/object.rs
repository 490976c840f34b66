//! A free object, in the form in which the pool keeps it.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The memory of a free object: it belongs to the owner of this value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Object(pub(crate) NonNull<u8>);

// SAFETY: no reference points into the memory of a free object, so the object may change threads.
unsafe impl Send for Object {}

/// Number of objects that move between lanes together: enough that the cost of the move (about ten line
/// transfers) is small for each, few enough that a lane does not hoard.
pub(crate) const BATCH: usize = if cfg!(loom) { 2 } else { 32 };

/// Up to [`BATCH`] objects that move together.
pub(crate) struct Batch {
    objects: [MaybeUninit<Object>; BATCH],
    len: usize,
}

impl Batch {
    pub(crate) const fn new() -> Self {
        Self { objects: [MaybeUninit::uninit(); BATCH], len: 0 }
    }

    /// Copies the objects of `from`, whose owner must forget them.
    ///
    /// # Panics
    /// If there are more than [`BATCH`].
    pub(crate) fn fill(&mut self, from: &[MaybeUninit<Object>]) {
        self.objects[..from.len()].copy_from_slice(from);
        self.len = from.len();
    }

    pub(crate) fn push(&mut self, object: Object) {
        self.objects[self.len].write(object);
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the objects; all of them are written.
    pub(crate) fn raw(&self) -> &[MaybeUninit<Object>] {
        &self.objects[..self.len]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Object> {
        // SAFETY: `fill` and `push` wrote the first `len`.
        self.raw().iter().map(|object| unsafe { object.assume_init() })
    }
}
