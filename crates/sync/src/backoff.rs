//! Back-off for retry loops (R-E2).

use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Tells the core that this is a spin loop (`pause` on x86, `isb`/`yield` on ARM). Takes 10 to 140 cycles.
#[inline]
pub fn relax() {
    #[cfg(not(any(loom, manylane_sim)))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(manylane_sim)]
    manylane_sim::relax();
}

/// Exponential back-off for one retry loop: 1, 2, 4 ... [`Backoff::LONGEST`] relaxations a step. After that
/// each step yields the processor to another thread.
///
/// The lane number jitters the number of relaxations, so that two lanes that collided once do not collide in
/// step again and again.
#[derive(Debug)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// Largest number of relaxations in one step without the jitter, which adds up to half: 2 to 3
    /// microseconds at 40 cycles each and 2.5 GHz.
    pub const LONGEST: u32 = 1 << Self::SPIN_STEPS;
    const SPIN_STEPS: u32 = 7;

    /// A back-off before its first wait.
    #[inline]
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits, longer with each call.
    #[cold]
    pub fn wait(&mut self) {
        if cfg!(loom) {
            self.step = Self::SPIN_STEPS; // one try is as good as many in a model, and this reaches the edge
            relax();
            return;
        }
        let rounds = 1 << self.step.min(Self::SPIN_STEPS);
        let jitter = (crate::lane::current().index() as u32).wrapping_mul(0x9E37_79B9) >> 16;
        for _ in 0..rounds + (jitter & (rounds >> 1)) {
            relax();
        }
        if self.step < Self::SPIN_STEPS {
            self.step += 1;
        } else {
            crate::thread::yield_now();
        }
    }

    /// True once [`wait`](Self::wait) yields to other threads. A caller that can park should then do so.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.step >= Self::SPIN_STEPS
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// An atomic that [`update`] can change.
pub trait Updatable {
    /// What it holds.
    type Value: Copy;
    #[doc(hidden)]
    fn load(&self, order: Ordering) -> Self::Value;
    #[doc(hidden)]
    fn exchange(&self, from: Self::Value, to: Self::Value, orders: [Ordering; 2]) -> Result<(), Self::Value>;
}

macro_rules! updatable {
    ($($atomic:ident: $value:ty),*) => {$(
        impl Updatable for $atomic {
            type Value = $value;
            #[inline]
            #[cfg_attr(manylane_sim, track_caller)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline]
            #[cfg_attr(manylane_sim, track_caller)]
            fn exchange(&self, from: $value, to: $value, [set, fetch]: [Ordering; 2]) -> Result<(), $value> {
                self.compare_exchange_weak(from, to, set, fetch).map(drop)
            }
        }
    )*};
}

updatable!(AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

/// Replaces the value of an atomic by that which `next` makes of it, as `fetch_update` of std does, and backs
/// off while other threads change it. The first failure only corrects the value that was read, so it is
/// repeated at once.
///
/// # Errors
/// Returns the current value if `next` returns `None` for it; nothing is changed.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub fn update<A: Updatable>(
    atomic: &A,
    set: Ordering,
    fetch: Ordering,
    mut next: impl FnMut(A::Value) -> Option<A::Value>,
) -> Result<A::Value, A::Value> {
    let mut found = atomic.load(fetch);
    let (mut failed, mut backoff) = (false, Backoff::new());
    loop {
        let Some(wanted) = next(found) else { return Err(found) };
        match atomic.exchange(found, wanted, [set, fetch]) {
            Ok(()) => return Ok(found),
            Err(now) => found = now,
        }
        if failed {
            backoff.wait();
            found = atomic.load(fetch); // it has changed during the wait, more likely than not
        }
        failed = true;
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_repeated_with_the_value_that_another_thread_left() {
        let word = AtomicU64::new(1);
        let mut found = Vec::new();
        let before = update(&word, Ordering::Relaxed, Ordering::Relaxed, |value| {
            found.push(value);
            if found.len() < 4 {
                word.store(value * 10, Ordering::Relaxed); // so that the exchange fails
            }
            Some(value + 1)
        });
        assert_eq!((before, found), (Ok(1000), vec![1, 10, 100, 1000]));
        assert_eq!(update(&word, Ordering::Relaxed, Ordering::Relaxed, |_| None), Err(1001));
    }
}
