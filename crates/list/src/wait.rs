//! Back-off of a thread that found a link held (R-E2).

use manylane_sync::relax;

/// Back-off for one operation: a long wait of a random number of relaxations, then a few tries in close
/// succession, and so on. After [`Wait::YIELD_AFTER`] failures the thread also yields its processor at each
/// wait. A thread that succeeds after a wait keeps its links a moment longer ([`Wait::linger`]).
///
/// Why not [`manylane_sync::Backoff`]: a thread holds a link for some 10 ns, so a failure nearly always means
/// that a neighbour is at work there and will be again at once.
/// - The long wait gives the neighbour a turn. A change of turns costs each side several line transfers and
///   some failures, so a turn must be long in comparison. Earlier waits, of 64 to 128 relaxations at first
///   and up to 512 later, left both sides waiting for more than half of the time (61 ns an operation of two
///   threads; 36 ns now).
/// - A single try after a long wait meets the neighbour at work again nine times in ten, if the neighbour
///   does nothing else, and then the turn never ends (fairness 0.05 with two lanes on the virtual machine).
///   The tries in close succession come between two of the neighbour's operations, since the first try has
///   taken the line away from it (fairness 0.95).
/// - After that both sides would be at work at once, and their lines would travel at each operation, until
///   one of them happens to fail. The moment longer makes the neighbour fail now: it waits its long wait, and
///   the turn changes.
/// - A thread that yields its processor loses it to threads that do not. So the thread yields only if the
///   holder has likely lost its own processor.
/// - The jitter is random. If the lane number fixed it, one lane would always wait shorter than another.
#[derive(Debug)]
pub(crate) struct Wait {
    failures: u32,
}

#[cfg(not(loom))]
impl Wait {
    /// Most relaxations of a long wait; half of that is the least. 6 to 12 microseconds where a `pause` takes
    /// 16 ns, some 300 operations of the neighbour.
    const LONG: u32 = 768;
    /// Number of tries for each long wait.
    const TRIES: u32 = 4;
    /// Most relaxations between tries in close succession.
    const SHORT: u32 = 2;
    /// Relaxations for which the winner keeps its links: long enough for a neighbour at work to fail once.
    const LINGER: u32 = 12;
    /// Failures after which the holder has likely lost its processor: four rounds.
    const YIELD_AFTER: u32 = 4 * Self::TRIES;
}

impl Wait {
    /// A wait that has not begun.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { failures: 0 }
    }

    /// Called by a thread that holds all links that it needs. After a wait it keeps them a moment longer, so
    /// that a neighbour at work fails and waits in turn. This waits for no thread, so rule 4 holds.
    #[inline(always)]
    pub(crate) fn linger(&self) {
        #[cfg(not(loom))] // it only takes time
        if self.failures != 0 {
            Self::keep_links();
        }
    }

    #[cfg(not(loom))]
    #[cold]
    fn keep_links() {
        for _ in 0..Self::LINGER {
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
                // explore: finish this execution by fair turns.
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
        if self.failures > Self::YIELD_AFTER {
            manylane_sync::thread::yield_now();
        }
    }
}

/// Random number of the virtual machine: its time repeats between runs, and is random enough.
#[cfg(manylane_sim)]
fn random() -> u32 {
    let now = manylane_sim::now().as_nanos() as u64;
    let lane = manylane_sync::lane::current().index() as u64;
    ((now ^ (lane << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32
}

/// Returns the thread's next random number, by the xorshift of G. Marsaglia, *Xorshift RNGs* (2003).
#[cfg(not(any(loom, manylane_sim)))]
fn random() -> u32 {
    thread_local! {
        static STATE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            // Different on each thread, never zero. Not the lane's number: taking one can panic, and this
            // wait may be in a drop, where a panic would leave a dead element in the list.
            x = ((state.as_ptr().addr() >> 4) as u32).wrapping_mul(0x9E37_79B9) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}
