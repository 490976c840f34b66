//! How a thread waits that found a link held (R-E2).

use manylane_sync::relax;

/// Back-off for one operation: a long wait of a random number of relaxations, then a few tries that follow
/// each other closely, and again; after [`Wait::PATIENCE`] failures the processor is offered to another
/// thread each time. Who got what it waited for keeps it a moment longer ([`Wait::linger`]).
///
/// Why not [`manylane_sync::Backoff`]: a link is held for some 10 ns, so a failure nearly always means a
/// neighbour at work, who will be at work again at once.
/// - The long wait is a turn for the neighbour. A change of turns costs each side several transfers of lines
///   and some failures, so a turn must be long against them. Waits of 64 to 128 at first and up to 512 later,
///   as they were before, left both sides waiting for more than half of the time (61 ns an operation of two
///   threads, where it is 36 now).
/// - One try after a long wait meets the neighbour at work again, nine times in ten if that does nothing
///   else, and then the turn goes on without end (fairness 0.05 with two lanes on the virtual machine). The
///   tries that follow closely come between two of the neighbour's operations, since the first has taken the
///   line from it (fairness 0.95).
/// - Then two would be at work at once, whose lines travel at each operation, until one of them happens to
///   fail. The moment longer makes the neighbour fail now: it waits its long wait, and the turn has changed.
/// - A thread that offers its processor loses it to those who do not. Here that is done only when the holder
///   has likely lost its own.
/// - The jitter is random: if it were fixed by lane, one lane would always wait shorter than another.
#[derive(Debug)]
pub(crate) struct Wait {
    failures: u32,
}

#[cfg(not(loom))]
impl Wait {
    /// Most relaxations of a long wait, half of them at least: 6 to 12 microseconds where a `pause` takes 16
    /// ns, some 300 operations of the one who is at work.
    const LONG: u32 = 768;
    /// Tries to a long wait.
    const TRIES: u32 = 4;
    /// Most relaxations between tries that follow each other closely.
    const SHORT: u32 = 2;
    /// Relaxations that the winner keeps what it waited for: until a neighbour who works without a pause
    /// comes by.
    const MOMENT: u32 = 12;
    /// Failures after which the holder is taken to be off its processor: four rounds.
    const PATIENCE: u32 = 4 * Self::TRIES;
}

impl Wait {
    /// Has not waited yet.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { failures: 0 }
    }

    /// To be called by who holds all that it needs. After a wait: keeps it a moment longer, so that a
    /// neighbour at work fails and waits in turn. It waits for nobody, so rule 4 is kept.
    #[inline(always)]
    pub(crate) fn linger(&self) {
        #[cfg(not(loom))] // nothing but time
        if self.failures != 0 {
            Self::moment();
        }
    }

    #[cfg(not(loom))]
    #[cold]
    fn moment() {
        for _ in 0..Self::MOMENT {
            relax();
        }
    }

    /// Waits. The caller holds nothing (rule 4).
    #[cold]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        {
            self.failures += 1;
            if self.failures > 3 {
                // Two waiters that take turns for ever while the holder stands still are no schedule to
                // explore: finish this one fairly.
                manylane_sync::finish_fairly();
            }
            relax();
        }
        #[cfg(not(loom))]
        self.spin();
    }

    #[cfg(not(loom))]
    fn spin(&mut self) {
        let most = if self.failures.is_multiple_of(Self::TRIES) { Self::LONG } else { Self::SHORT };
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
            // Different on each thread, never zero. Not the lane's number: taking one can panic, and a wait
            // may be in a drop, where a panic would leave a dead element in the list.
            x = ((state.as_ptr().addr() >> 4) as u32).wrapping_mul(0x9E37_79B9) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}
