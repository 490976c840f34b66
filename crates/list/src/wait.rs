//! How a thread waits that found a link held (R-E2).

use manylane_sync::relax;

/// Back-off for one operation: a long wait of a random number of relaxations, from 64 to 128 at first and up to 512 later,
/// then a few tries that follow each other closely, and again; after [`Wait::PATIENCE`] failures the processor is
/// offered to another thread each time.
///
/// Why not [`manylane_sync::Backoff`]: a link is held for some 10 ns, so a failure nearly always means a
/// neighbour at work, who will be at work again at once.
/// - Waits that start short move the lines more often than they are used. The first wait is a turn for the neighbour.
/// - One try after a long wait meets the neighbour at work again, nine times in ten if that does nothing else, and then the
///   turn goes on without end (fairness 0.05 with two lanes on the virtual machine). The tries that follow closely come
///   between two of the neighbour's operations, since the first has taken the line from it (fairness 0.95).
/// - A thread that offers its processor loses it to those who do not. Here that is done only when the holder
///   has likely lost its own.
/// - The jitter is random: if it were fixed by lane, one lane would always wait shorter than another.
#[derive(Debug)]
pub(crate) struct Wait {
    failures: u32,
}

#[cfg(not(loom))]
impl Wait {
    /// Most relaxations of the first long wait: 0.5 to 5 microseconds by the machine's `pause`, some 30 to 300
    /// operations of the one who is at work.
    const FIRST: u32 = 128;
    /// Most relaxations of any wait: a crowd needs more, but an operation should not take a millisecond.
    const LONGEST: u32 = 512;
    /// Tries to a long wait.
    const TRIES: u32 = 4;
    /// Most relaxations between tries that follow each other closely.
    const SHORT: u32 = 2;
    /// Failures after which the holder is taken to be off its processor: eight rounds.
    const PATIENCE: u32 = 8 * Self::TRIES;
}

impl Wait {
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
                manylane_sync::finish_fairly();
            }
            relax();
        }
        #[cfg(not(loom))]
        self.spin();
    }

    #[cfg(not(loom))]
    fn spin(&mut self) {
        let most = if self.failures.is_multiple_of(Self::TRIES) {
            Self::LONGEST.min(Self::FIRST << (self.failures / Self::TRIES).min(8))
        } else {
            Self::SHORT
        };
        for _ in 0..most / 2 + random() % (most / 2 + 1) {
            relax();
        }
        // Wrapping: a wait may be in a drop, where a panic would leave a dead element in the list.
        self.failures = self.failures.wrapping_add(1);
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
            // Different on each thread, never zero. Not the lane's number: taking one can panic, and a wait may be in a
            // drop, where a panic would leave a dead element in the list.
            x = ((state.as_ptr().addr() >> 4) as u32).wrapping_mul(0x9E37_79B9) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}
