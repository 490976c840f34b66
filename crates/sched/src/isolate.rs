//! Thread isolation: one lane runs while all others stand at a safe point. For dumps of what lanes otherwise
//! own (R-G3).
//!
//! # Protocol
//! 1. Each lane says in its own word whether it is [`RUNNING`] or [`HARMLESS`]: asleep in its poller, or
//!    stopped between two rounds.
//! 2. Who wants isolation counts itself into `wanted`, becomes harmless, waits for its turn (a lock), then
//!    until no lane runs.
//! 3. A lane that wants to run says so, and then looks at `wanted`; who asks counts itself, and then looks at
//!    the lanes. A full fence stands between in both. So either the lane sees that it is wanted and steps
//!    back, or the asker sees it run and waits.
//! 4. A lane looks at `wanted` between rounds too, by a plain load: it steps aside within one round.
//!
//! # Progress
//! Two askers cannot wait for each other: while one waits for its turn it is harmless. An asker waits for the
//! longest round. A sleeping lane is not woken.
//!
//! # Cost
//! A lane pays one load a round, of a line that only askers write, and one fence for each sleep.

use crate::home::{self, Home};
use manylane_sync::atomic::{AtomicU32, Ordering, fence};
use manylane_sync::{Backoff, CachePadded, LockClass, Mutex};

/// The lane has no owner.
pub(crate) const ABSENT: u32 = 0;
/// In a round, or about to begin one.
pub(crate) const RUNNING: u32 = 1;
/// Touches nothing that it shares with isolated code.
pub(crate) const HARMLESS: u32 = 2;

static TURN: LockClass = LockClass::new("thread isolation", 1);

struct Isolation {
    /// Askers that have not finished.
    wanted: CachePadded<AtomicU32>,
    turn: Mutex<()>,
}

impl Isolation {
    manylane_sync::const_fn! {
        fn new() -> Self { Self { wanted: CachePadded::new(AtomicU32::new(0)), turn: Mutex::new(&TURN, ()) } }
    }
}

#[cfg(not(loom))]
static ISOLATION: Isolation = Isolation::new();
#[cfg(loom)]
manylane_sync::lazy_static! {
    static ISOLATION: Isolation = Isolation::new();
}

/// Runs `work` while no lane but the calling one is in a round. From a lane (a task, or between rounds) or
/// from any other thread. Not from within `work`.
///
/// The calling lane must hold nothing that another asker's `work` may change, since that one may go first. A
/// lane must go on making rounds, sleep in [`Lane::park`](crate::Lane::park), or be dropped: one that is kept
/// and left alone blocks every asker.
///
/// Cost: waits for the longest round of all lanes.
///
/// ```
/// let sessions = manylane_sched::isolate(|| 3); // every other lane stands still meanwhile
/// assert_eq!(sessions, 3);
/// ```
pub fn isolate<R>(work: impl FnOnce() -> R) -> R {
    /// Lets the lanes go, whatever `work` does. Fields are dropped in this order: own turn first.
    struct LetGo(Option<&'static Home>);
    impl Drop for LetGo {
        fn drop(&mut self) {
            // Release: publishes what `work` did to the lanes that go on.
            ISOLATION.wanted.fetch_sub(1, Ordering::Release);
            if let Some(home) = self.0 {
                enter(home);
            }
        }
    }
    let own = home::here();
    ISOLATION.wanted.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst); // rule 3
    if let Some(home) = own {
        // Release: publishes what this lane did to another asker (rule 2). The fence does so too, but
        // ThreadSanitizer does not see it.
        home.published.state.store(HARMLESS, Ordering::Release);
    }
    let _let_go = LetGo(own);
    let _turn = ISOLATION.turn.lock(); // dropped first
    for (_, other) in home::all() {
        if own.is_some_and(|own| std::ptr::eq(own, other)) {
            continue;
        }
        let mut backoff = Backoff::new();
        // Acquire: pairs with the release with which the lane became harmless: what it did is visible to
        // `work`.
        while other.published.state.load(Ordering::Acquire) == RUNNING {
            backoff.wait();
        }
    }
    work()
}

/// Between two rounds: steps aside if someone asks (rule 4).
#[inline(always)]
pub(crate) fn safe_point(home: &Home) {
    if ISOLATION.wanted.load(Ordering::Relaxed) != 0 {
        step_aside(home);
    }
}

#[cold]
#[inline(never)]
fn step_aside(home: &Home) {
    leave(home);
    enter(home);
}

/// The lane sleeps from here on, or stands.
pub(crate) fn leave(home: &Home) {
    // Release: publishes what this lane did to the asker.
    home.published.state.store(HARMLESS, Ordering::Release);
}

/// The lane wants to run: returns when nobody asks (rule 3).
pub(crate) fn enter(home: &Home) {
    let mut backoff = Backoff::new();
    loop {
        home.published.state.store(RUNNING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release of the last asker: what its work did is visible to this lane.
        if ISOLATION.wanted.load(Ordering::Acquire) == 0 {
            return;
        }
        home.published.state.store(HARMLESS, Ordering::Release); // as in `isolate`
        // Sleeps while an asker works, instead of spinning.
        drop(ISOLATION.turn.lock());
        backoff.wait();
    }
}
