//! Busy polling: a lane that has nothing to do looks for work instead of sleeping.
//!
//! The protocol of the inbox stays as it is: looks are plain loads of a head that says *awake*, so whoever
//! pushes meanwhile has nobody to wake; and a lane whose time is over falls asleep as any other, by the
//! exchange that fails when something has come.
//!
//! A look at the inbox is a load of a line that stays with the lane until somebody writes it. A look at the
//! poller is a system call, and what arrives meanwhile waits for its end. So many of the one go with one of
//! the other.

use crate::isolate;
use crate::poller::Poller;
use crate::time::Time;
use crate::{Lane, Round};
use manylane_sync::relax;
use std::io;
use std::time::Duration;

/// Looks at the inbox for each look at the poller: with a processor's pause of about 45 ns after each, so
/// many take 3 µs, where the system call takes 0.3. What comes from another lane is held up by that in one
/// case of ten, what comes from outside waits for 2 µs on average.
#[cfg(not(loom))]
const LOOKS: u32 = 64;
/// A model's clock does not advance by itself, and each look is one more place to switch at.
#[cfg(loom)]
const LOOKS: u32 = 1;

/// Rounds that other lanes cause may follow on each other so fast that no look in vain is between them. The
/// poller is looked at after so long all the same: a thirtieth of the time goes there. The round that has
/// just ended comes on top, since its end is not read from the clock.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_micros(10);

/// When a lane that polls busily looks at its poller next.
pub(crate) struct Looks {
    /// Looks at the inbox until then.
    left: u32,
    /// When it was last.
    last: Time,
}

impl Looks {
    pub(crate) const fn new() -> Self {
        Self { left: 0, last: Time::ZERO }
    }
}

/// What a lane that looked around has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Something to do in the next round.
    Work,
    /// Nothing in all the time.
    Nothing,
}

impl Lane {
    /// Looks around for `time` after a round that has left nothing to do. It steps aside for isolated work at
    /// each look at the poller.
    #[inline(never)]
    pub(crate) fn look_around<P: Poller + ?Sized>(
        &mut self,
        poller: &mut P,
        round: &Round,
        time: Duration,
    ) -> io::Result<Found> {
        let (home, here) = (self.home, self.here());
        let clock = home.settings.get().clock;
        if here.now().since(self.looks.last) >= LOOK_AT_LEAST_EVERY || poller.has_work() {
            self.looks.left = 0;
        }
        let mut until = None;
        loop {
            while self.looks.left > 0 {
                self.looks.left -= 1; // before the look: one that finds something counts, too
                if !home.inbox.is_empty_to_drain() {
                    return Ok(Found::Work);
                }
                relax();
            }
            isolate::safe_point(home);
            poller.poll(here, Some(Duration::ZERO))?;
            let now = clock();
            let came = home.queued() > 0;
            // Where something has come from, more may: a lane whose work comes from outside looks there after
            // each round.
            self.looks = Looks { left: if came { 0 } else { LOOKS }, last: now };
            let due = round.next_timer.is_some_and(|at| at <= now);
            if came || due || home.local.stopping.get() {
                return Ok(Found::Work);
            }
            // The clock is read here only, so the time begins with the first look at the poller. For others
            // it is as good as asleep.
            let until = *until.get_or_insert_with(|| {
                home.falls_asleep(now);
                now + time
            });
            if until <= now {
                return Ok(Found::Nothing);
            }
        }
    }
}
