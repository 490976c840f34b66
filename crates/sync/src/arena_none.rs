//! Stands for `arena` where there are no arenas: models and simulations keep all per-lane objects in a
//! [`PerLane`](crate::PerLane), whose accesses they see.

use std::alloc::Layout;
use std::ptr::NonNull;

pub(crate) fn lanes() -> usize {
    0
}

pub(crate) fn is_there(_: *mut u8) -> bool {
    false
}

pub(crate) fn is_own(_: *const u8) -> bool {
    false
}

/// An offset that is never assigned.
#[derive(Debug)]
pub(crate) struct ArenaOffset;

#[allow(clippy::unused_self)] // the same signatures as in `arena`
impl ArenaOffset {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn own(&self) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub(crate) fn of(&self, _: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(crate) fn assign(&self, _: Layout) {}

    pub(crate) fn release(&mut self, _: Layout) {}
}
