//! Thread isolation: one lane runs while all others stand at a safe point. For dumps of state that other
//! lanes own (R-G3).
//!
//! # Protocol
//! 1. Each lane's own word says whether it is [`RUNNING`] or [`HARMLESS`]: asleep in its poller, or stopped
//!    between two rounds.
//! 2. A thread that requests isolation increments `wanted`, becomes harmless, waits for its turn (a lock),
//!    then until no lane runs.
//! 3. A lane that wants to run stores that, then reads `wanted`. A requester increments `wanted`, then reads
//!    the lanes' words. Both have a full fence between the two steps. So either the lane sees the request and
//!    steps back, or the requester sees the lane run and waits.
//! 4. A lane also reads `wanted` between rounds, by a plain load: it steps aside within one round.
//!
//! # Progress
//! Two requesters cannot wait for each other: a requester that waits for its turn is harmless. A requester
//! waits for the longest round. It does not wake a sleeping lane.
//!
//! # Cost
//! A lane pays one load a round, of a line that only requesters write, and one fence for each sleep.

use crate::home::{self, Home};
use manylane_sync::atomic::{AtomicU32, Ordering, fence};
use manylane_sync::{Backoff, CachePadded, LockClass, Mutex};

/// The lane has no owner.
pub(crate) const ABSENT: u32 = 0;
/// In a round, or about to begin one.
pub(crate) const RUNNING: u32 = 1;
/// Touches no state that it shares with isolated code.
pub(crate) const HARMLESS: u32 = 2;

static TURN: LockClass = LockClass::new("thread isolation", 1);

struct Isolation {
    /// Number of requesters that have not finished.
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

/// Runs `work` while no other lane is in a round. A lane (in a task, or between rounds) or any other thread
/// may call this, but not `work` itself.
///
/// The calling lane must hold nothing that another requester's `work` may change, since that one may go
/// first. A lane must go on making rounds, sleep in [`Lane::park`](crate::Lane::park), or be dropped: an idle
/// `Lane` value whose owner does none of these blocks every requester.
///
/// Cost: waits for the longest round of all lanes.
///
/// ```
/// let sessions = manylane_sched::isolate(|| 3); // every other lane stands still meanwhile
/// assert_eq!(sessions, 3);
/// ```
pub fn isolate<R>(work: impl FnOnce() -> R) -> R {
    /// Releases the lanes, even if `work` panics. Locals drop in reverse order: the turn first.
    struct LetGo(Option<&'static Home>);
    impl Drop for LetGo {
        fn drop(&mut self) {
            // Release: publishes the writes of `work` to the lanes that go on.
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
        // Release: publishes this lane's writes to another requester (rule 2). The fence does so, too, but
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
        // Acquire: pairs with the release with which the lane became harmless: `work` sees the lane's writes.
        while other.published.state.load(Ordering::Acquire) == RUNNING {
            backoff.wait();
        }
    }
    work()
}

/// Safe point between two rounds: steps aside for a requester (rule 4).
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

/// Marks the lane as harmless: it sleeps from here on, or stands still.
pub(crate) fn leave(home: &Home) {
    // Release: publishes this lane's writes to the requester.
    home.published.state.store(HARMLESS, Ordering::Release);
}

/// Marks the lane as running; returns once no request is pending (rule 3).
pub(crate) fn enter(home: &Home) {
    let mut backoff = Backoff::new();
    loop {
        home.published.state.store(RUNNING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release of the last requester: this lane sees the writes of its work.
        if ISOLATION.wanted.load(Ordering::Acquire) == 0 {
            return;
        }
        home.published.state.store(HARMLESS, Ordering::Release); // as in `isolate`
        // Sleeps while a requester works, instead of spinning.
        drop(ISOLATION.turn.lock());
        backoff.wait();
    }
}
