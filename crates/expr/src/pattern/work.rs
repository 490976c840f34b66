//! Counts the steps of look-ups and changes, so that tests can check costs without a clock.

use std::ops::{Deref, DerefMut};

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// Maximum while a lock was held.
    static HELD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A held lock. Tests count the steps under it.
pub(super) struct Held<G> {
    guard: G,
    #[cfg(test)]
    before: usize,
}

impl<G> Held<G> {
    pub(super) fn new(guard: G) -> Self {
        Self {
            guard,
            #[cfg(test)]
            before: STEPS.with(std::cell::Cell::get),
        }
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(test)]
impl<G> Drop for Held<G> {
    fn drop(&mut self) {
        let steps = STEPS.with(std::cell::Cell::get) - self.before;
        HELD.with(|held| held.set(held.get().max(steps)));
    }
}

/// Maximum number of steps that `work` takes under a lock.
#[cfg(test)]
pub(super) fn held(work: impl FnOnce()) -> usize {
    HELD.with(|held| held.set(0));
    work();
    HELD.with(std::cell::Cell::get)
}

/// Counts a node, slot or pattern that is visited or created.
#[inline]
pub(super) fn step() {
    steps(1);
}

/// Counts several steps.
#[inline]
pub(super) fn steps(_count: usize) {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + _count));
}

/// Number of steps that `work` takes.
#[cfg(test)]
pub(super) fn counted(work: impl FnOnce()) -> usize {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}
