//! Back-off for retry loops (R-E2).

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
