//! Events a period, over a period that slides: what the manual of HAProxy calls a rate.
//!
//! A rate is two words: the beginning of the period at work with its events, and the same beginning with the
//! events of the period before. Of the period before, only the part counts that is less than a period ago.
//!
//! 1. Events are added to the first word by compare-and-swap.
//! 2. A period ends under the shard's lock: the second word is written first, with the beginning of the next
//!    period, and then the first one is replaced. Whoever reads two beginnings sees a change half done, for
//!    which the first word's events are those of the period before.
//! 3. Beginnings are milliseconds of 32 bits, compared by their difference: rule 2 holds them apart by less
//!    than half of that, since an entry that is so old has a rate of 0 by any reading.

use crate::share::Period;
use manylane_sync::atomic::{AtomicU64, Ordering};

/// A beginning, and events.
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

/// What both words are for a new entry.
pub(crate) fn fresh(now: u64) -> u64 {
    Half { since: now as u32, events: 0 }.word()
}

/// How many periods have ended since then: 0, 1, or 2 for more.
fn ended(since: u32, period: u32, now: u32) -> u32 {
    let age = now.wrapping_sub(since);
    // A lane's clock may be a little behind that of the lane that began the period.
    if age < period || age > u32::MAX / 2 {
        0
    } else if age - period < period {
        1
    } else {
        2
    }
}

/// Adds `n` events. `lock` is held while a period ends.
pub(crate) fn add<G>(
    current: &AtomicU64,
    before: &AtomicU64,
    period: u32,
    now: u64,
    n: u32,
    lock: impl Fn() -> G,
) {
    let now = now as u32;
    let mut seen = current.load(Ordering::Relaxed);
    let mut guard = None;
    loop {
        let half = Half::of(seen);
        let next = match ended(half.since, period, now) {
            0 => Half { events: half.events.saturating_add(n), ..half },
            _ if guard.is_none() => {
                guard = Some(lock());
                seen = current.load(Ordering::Relaxed);
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
        // Pairs with the load of `read`: who sees this sees the other word, too.
        match current.compare_exchange_weak(seen, next.word(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
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
    // A single event would come and go as if there were none.
    if events == 0 && past <= 1 {
        return past;
    }
    let age = now.wrapping_sub(since);
    let left = if age > u32::MAX / 2 { period } else { period.saturating_sub(age) };
    let of_past = u64::from(past) * u64::from(left) / u64::from(period);
    u32::try_from(of_past + u64::from(events)).unwrap_or(u32::MAX)
}

/// So many events happened in the period that begins now: what an operator sets.
pub(crate) fn set(current: &AtomicU64, before: &AtomicU64, now: u64, events: u32) {
    before.store(fresh(now), Ordering::Relaxed);
    current.store(Half { since: now as u32, events }.word(), Ordering::Release);
}

/// The period at work.
pub(crate) fn period(current: &AtomicU64, before: &AtomicU64, now: u64) -> Period {
    let half = Half::of(current.load(Ordering::Acquire));
    let other = Half::of(before.load(Ordering::Acquire));
    let age = |since: u32| match (now as u32).wrapping_sub(since) {
        age if age > u32::MAX / 2 => 0, // a lane whose clock is a little ahead began it
        age => age,
    };
    if other.since == half.since {
        Period { age: age(half.since), events: half.events, before: other.events }
    } else {
        Period { age: age(other.since), events: 0, before: half.events } // rule 2
    }
}

/// It is as another process says. Under the shard's lock.
pub(crate) fn restore(current: &AtomicU64, before: &AtomicU64, period: u32, now: u64, told: Period) {
    // What is older than two periods is none, and rule 3 holds.
    let since = (now as u32).wrapping_sub(told.age.min(period.saturating_mul(2)));
    before.store(Half { since, events: told.before }.word(), Ordering::Release);
    current.store(Half { since, events: told.events }.word(), Ordering::Release);
}
