//! Steps that look-ups and changes take, counted for tests: what a change costs is shown by these, and not by the clock.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A node, a slot or a pattern was looked at or made.
#[inline]
pub(super) fn step() {
    steps(1);
}

/// So many were.
#[inline]
pub(super) fn steps(_count: usize) {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + _count));
}

/// What `work` takes.
#[cfg(test)]
pub(super) fn counted(work: impl FnOnce()) -> usize {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}
