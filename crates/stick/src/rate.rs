//! Events per period, over a sliding period: a rate in HAProxy's manual.
//!
//! A rate is two words: the start of the current period with its events, and the same start with the events
//! of the previous period. The part of the previous period that lies less than one period back counts, too.
//!
//! 1. Events are added to the first word by compare-and-swap.
//! 2. A period ends under the shard's lock: first the second word is written, with the start of the next
//!    period, and then the first one is replaced. A reader that finds two different starts sees a change half
//!    done; the first word's events are then those of the previous period.
//! 3. Starts are 32 bits of milliseconds, compared by their difference. A start of up to [`SKEW`] in the
//!    future is that of a lane whose clock is ahead. Differences wrap after 49 days: a rate without events
//!    for that long is read as if its last ones were recent.

use crate::share::Period;
use manylane_sync::atomic::{AtomicU64, Ordering};

/// How far a lane's clock may be ahead of another's, in milliseconds: clocks are read once a round.
const SKEW: u32 = 60_000;

/// Milliseconds from `since` to `now`, 0 for a start in the future.
fn age(since: u32, now: u32) -> u32 {
    let age = now.wrapping_sub(since);
    if age > u32::MAX - SKEW { 0 } else { age }
}

/// The start of a period, and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Half {
    since: u32,
    events: u32,
}

impl Half {
    fn of(word: u64) -> Self {
        Self { since: (word >> 32) as u32, events: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.since) << 32 | u64::from(self.events)
    }
}

/// The initial value of both words.
pub(crate) fn fresh(now: u64) -> u64 {
    Half { since: now as u32, events: 0 }.word()
}

/// The number of periods that have ended since `since`: 0, 1, or 2 for more.
fn ended(since: u32, period: u32, now: u32) -> u32 {
    let age = age(since, now);
    if age < period {
        0
    } else if age - period < period {
        1
    } else {
        2
    }
}

/// Adds `n` events. Calls `lock` to end a period.
pub(crate) fn add<G>(
    current: &AtomicU64,
    before: &AtomicU64,
    period: u32,
    now: u64,
    n: u32,
    lock: impl Fn() -> G,
) {
    let now = now as u32;
    let mut loaded = current.load(Ordering::Relaxed);
    let mut guard = None;
    loop {
        let half = Half::of(loaded);
        let next = match ended(half.since, period, now) {
            0 => Half { events: half.events.saturating_add(n), ..half },
            _ if guard.is_none() => {
                guard = Some(lock());
                loaded = current.load(Ordering::Relaxed);
                continue;
            }
            1 => {
                let since = half.since.wrapping_add(period);
                before.store(Half { since, ..half }.word(), Ordering::Release);
                Half { since, events: n }
            }
            _ => {
                before.store(Half { since: now, events: 0 }.word(), Ordering::Release);
                Half { since: now, events: n }
            }
        };
        // Release: pairs with the load in `read`; publishes the other word.
        match current.compare_exchange_weak(loaded, next.word(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => loaded = now,
        }
    }
}

/// Events in the period that ends now.
pub(crate) fn read(current: &AtomicU64, before: &AtomicU64, period: u32, now: u64) -> u32 {
    let now = now as u32;
    let half = Half::of(current.load(Ordering::Acquire));
    let other = Half::of(before.load(Ordering::Acquire));
    let (mut since, mut past, mut events) = (half.since, other.events, half.events);
    if other.since != half.since {
        (since, past, events) = (other.since, other.events, 0); // rule 2
    }
    match ended(since, period, now) {
        0 => {}
        1 => (since, past, events) = (since.wrapping_add(period), events, 0),
        _ => (past, events) = (0, 0),
    }
    // A single event is shown for a whole period; a fraction would round to 0.
    if events == 0 && past <= 1 {
        return past;
    }
    let left = period.saturating_sub(age(since, now));
    let of_past = u64::from(past) * u64::from(left) / u64::from(period);
    u32::try_from(of_past + u64::from(events)).unwrap_or(u32::MAX)
}

/// Sets `events` in the period that begins now, for an operator.
pub(crate) fn set(current: &AtomicU64, before: &AtomicU64, now: u64, events: u32) {
    before.store(fresh(now), Ordering::Relaxed);
    current.store(Half { since: now as u32, events }.word(), Ordering::Release);
}

/// The current period.
pub(crate) fn period(current: &AtomicU64, before: &AtomicU64, now: u64) -> Period {
    let half = Half::of(current.load(Ordering::Acquire));
    let other = Half::of(before.load(Ordering::Acquire));
    if other.since == half.since {
        Period { age: age(half.since, now as u32), events: half.events, before: other.events }
    } else {
        Period { age: age(other.since, now as u32), events: 0, before: half.events } // rule 2
    }
}

/// Sets what a peer has sent. Call under the shard's lock.
pub(crate) fn restore(current: &AtomicU64, before: &AtomicU64, period: u32, now: u64, shown: Period) {
    // Older periods count as two periods old, which keeps rule 3.
    let age = shown.age.min(period.saturating_mul(2)).min(u32::MAX - SKEW);
    let since = (now as u32).wrapping_sub(age);
    before.store(Half { since, events: shown.before }.word(), Ordering::Release);
    current.store(Half { since, events: shown.events }.word(), Ordering::Release);
}
