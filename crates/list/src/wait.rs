//! How a thread waits that found a link held (R-E2).

use manylane_sync::relax;

/// Back-off for one operation: a random number of relaxations, up to 16, 32, ... [`Wait::LONGEST`]; after
/// [`Wait::PATIENCE`] failures the processor is offered to another thread each time.
///
/// Why not [`manylane_sync::Backoff`]: a link is held for some 10 ns, so a failure nearly always means a
/// neighbour at work, who will be at work again at once. A thread that offers its processor then loses it to
/// those who do not, and starves; here that is done only when the holder has likely lost its own. And two
/// threads must not wait in step, nor one of them always shorter: the jitter is random, not fixed per lane.
#[derive(Debug)]
pub(crate) struct Wait {
    failures: u32,
}

impl Wait {
    /// Most relaxations of the first wait. While one thread waits the other works alone, with the lines in its
    /// cache; shorter waits move the lines more often than they are used.
    #[cfg(not(loom))]
    const FIRST: u32 = 16;
    /// Most relaxations of any wait: about 4 microseconds at 140 cycles each.
    #[cfg(not(loom))]
    const LONGEST: u32 = 64;
    /// Failures after which the holder is taken to be off its processor. Against a neighbour who works without
    /// a pause about every second try succeeds.
    #[cfg(not(loom))]
    const PATIENCE: u32 = 16;

    /// Has not waited yet.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { failures: 0 }
    }

    /// Waits, longer at each call. The caller holds nothing (rule 4).
    #[cold]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        {
            self.failures += 1;
            if self.failures > 3 {
                // Two waiters that take turns for ever while the holder stands still are no schedule to explore:
                // finish this one fairly.
                loom::skip_branch();
            }
            relax();
        }
        #[cfg(not(loom))]
        self.spin();
    }

    #[cfg(not(loom))]
    fn spin(&mut self) {
        let most = Self::LONGEST.min(Self::FIRST << self.failures.min(8));
        for _ in 0..most / 2 + random() % (most / 2 + 1) {
            relax();
        }
        self.failures += 1;
        if self.failures > Self::PATIENCE {
            manylane_sync::thread::yield_now();
        }
    }
}

/// On the virtual machine time is repeatable, and random enough.
#[cfg(manylane_sim)]
fn random() -> u32 {
    let now = manylane_sim::now().as_nanos() as u64;
    let lane = manylane_sync::lane::current().index() as u64;
    ((now ^ (lane << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32
}

/// The thread's next random number, by the xorshift of G. Marsaglia, *Xorshift RNGs* (2003).
#[cfg(not(any(loom, manylane_sim)))]
fn random() -> u32 {
    thread_local! {
        static STATE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            // Different on each lane, never zero.
            x = (manylane_sync::lane::current().index() as u32 + 1).wrapping_mul(0x9E37_79B9);
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}
