//! Back-off of a receiver from a stream in flow.
//!
//! A sender in full flow holds the buffer's lock, and the lines that come with it, half of the time. A
//! receiver that comes for each few messages collides with the sender: one waits for the other, and all lines
//! move for little data. If the receiver comes later it gets more data for the same moves. So each socket has
//! a *back-off*: how long the next receive by reference stays away.
//!
//! It rises only when a receive found the lock taken: never on one thread, and seldom if both sides take
//! turns. It falls when a receive found nothing, or so much that the sender would soon have to wait, and
//! slowly while no receive finds the lock taken.

use crate::rcv::Found;
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::relax;

/// Maximum number of relaxations: two to four microseconds, which is also the most that the back-off delays a
/// message.
const LONGEST: u32 = 512;

/// Number of relaxations of the first step.
const SHORTEST: u32 = 16;

/// Number of relaxations before the next receive.
pub(crate) struct Backoff(AtomicU32);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits for the back-off.
    #[inline]
    pub(crate) fn wait(&self) {
        let backoff = self.0.load(Ordering::Relaxed);
        (0..backoff).for_each(|_| relax());
    }

    /// Adapts the back-off after a receive.
    #[inline]
    pub(crate) fn learn(&self, found: Found, met_others: bool) {
        let backoff = self.0.load(Ordering::Relaxed);
        let next = after(backoff, found, met_others);
        if next != backoff {
            self.0.store(next, Ordering::Relaxed);
        }
    }
}

/// Returns the back-off after a receive.
#[inline]
fn after(backoff: u32, found: Found, met_others: bool) -> u32 {
    let next = match found {
        Found::Nothing | Found::Much => backoff / 2,
        Found::Some if met_others => (backoff * 2).clamp(SHORTEST, LONGEST),
        Found::Some => backoff - backoff / 4,
    };
    if next < SHORTEST { 0 } else { next }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    /// Returns the back-off after `times` equal receives.
    fn after_all(times: u32, backoff: u32, found: Found, met_others: bool) -> u32 {
        (0..times).fold(backoff, |backoff, _| after(backoff, found, met_others))
    }

    #[test]
    fn it_rises_while_a_busy_sender_is_met_and_has_a_limit() {
        assert_eq!(after(0, Found::Some, true), SHORTEST);
        assert_eq!(after_all(6, 0, Found::Some, true), LONGEST);
        assert_eq!(after_all(100, 0, Found::Some, true), LONGEST);
    }

    #[test]
    fn who_meets_nobody_is_not_delayed() {
        for found in [Found::Nothing, Found::Some, Found::Much] {
            assert_eq!(after(0, found, false), 0);
            assert_eq!(after_all(16, LONGEST, found, false), 0);
        }
    }

    #[test]
    fn it_ends_with_the_flow_and_before_the_sender_has_to_wait() {
        for found in [Found::Nothing, Found::Much] {
            assert_eq!(after_all(6, LONGEST, found, true), 0);
        }
    }
}
