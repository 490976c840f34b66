//! How soon a receiver comes back to a stream in flow.
//!
//! A sender in full flow has the buffer's lock half of the time, and the lines that come with it. A receiver
//! that comes for each few messages meets it there: one waits for the other, and all lines travel for little.
//! If it comes later it gets more at once, for the same travels. So each socket has a *back-off*: how long
//! the next receive by reference stays away.
//!
//! It rises only when a receive met somebody in the lock: never on one thread, and seldom where both sides
//! take turns. It falls when there was nothing, or so much that the sender would soon have to wait, and
//! slowly while nobody is met.

use crate::rcv::Found;
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::relax;

/// Relaxations, at most: two to four microseconds, and with that the most that a message waits because of the
/// back-off.
const LONGEST: u32 = 512;

/// The first step.
const SHORTEST: u32 = 16;

/// Relaxations before the next receive.
pub(crate) struct Backoff(AtomicU32);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Stays away for so long.
    #[inline]
    pub(crate) fn wait(&self) {
        let backoff = self.0.load(Ordering::Relaxed);
        (0..backoff).for_each(|_| relax());
    }

    /// Learns from a receive.
    #[inline]
    pub(crate) fn learn(&self, found: Found, met_others: bool) {
        let backoff = self.0.load(Ordering::Relaxed);
        let next = after(backoff, found, met_others);
        if next != backoff {
            self.0.store(next, Ordering::Relaxed);
        }
    }
}

/// The back-off after a receive.
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

    /// After a number of receives that are alike.
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
