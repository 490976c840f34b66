//! Busy polling: an idle lane looks for work instead of sleeping.
//!
//! The protocol of the inbox stays the same. A check of the inbox is a plain load of a head that says
//! *awake*, so a pusher has no lane to wake. When its time is over the lane falls asleep as usual, by the
//! exchange that fails if something has come.
//!
//! A check of the inbox is a load of a line that stays with the lane until another lane writes it. A check of
//! the poller is a system call, and events from elsewhere wait for its end. So the lane checks the inbox many
//! times for each check of the poller.

use crate::isolate;
use crate::poller::Poller;
use crate::time::Time;
use crate::{Lane, Round};
use manylane_sync::relax;
use std::io;
use std::time::Duration;

/// Checks of the inbox for each check of the poller. With a processor's pause of about 45 ns after each they
/// take 3 µs; the system call takes 0.3 µs. That system call delays one in ten events from other lanes, and
/// events from outside wait for 2 µs on average.
#[cfg(not(loom))]
const INBOX_CHECKS: u32 = 64;
/// A model's clock does not advance by itself, and each check adds a point where threads may switch.
#[cfg(loom)]
const INBOX_CHECKS: u32 = 1;

/// Longest time between checks of the poller. Rounds that other lanes cause may follow each other without an
/// unsuccessful check between them; the lane checks the poller after this time all the same, for a thirtieth
/// of its time. The round that has just ended comes on top, since its end is not read from the clock.
const MAX_POLL_INTERVAL: Duration = Duration::from_micros(10);

/// When a busily polling lane next checks its poller.
pub(crate) struct PollSchedule {
    /// Number of checks of the inbox before that.
    left: u32,
    /// Time of the last check of the poller.
    last: Time,
}

impl PollSchedule {
    pub(crate) const fn new() -> Self {
        Self { left: 0, last: Time::ZERO }
    }
}

/// Result of looking for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The next round has work.
    Work,
    /// No work for the whole time.
    Nothing,
}

impl Lane {
    /// Looks for work for `time` after a round that left none. Steps aside for isolated work at each check of
    /// the poller.
    #[inline(never)]
    pub(crate) fn find_work<P: Poller + ?Sized>(
        &mut self,
        poller: &mut P,
        round: &Round,
        time: Duration,
    ) -> io::Result<Found> {
        let (home, here) = (self.home, self.here());
        let clock = home.settings.get().clock;
        if here.now().since(self.poll_schedule.last) >= MAX_POLL_INTERVAL || poller.has_work() {
            self.poll_schedule.left = 0;
        }
        let mut until = None;
        loop {
            while self.poll_schedule.left > 0 {
                self.poll_schedule.left -= 1; // decremented first, since a successful check counts, too
                if !home.inbox.is_empty_to_drain() {
                    return Ok(Found::Work);
                }
                relax();
            }
            isolate::safe_point(home);
            poller.poll(here, Some(Duration::ZERO))?;
            let now = clock();
            let came = home.queued() > 0;
            // After events from the poller more may follow: a lane whose work comes from outside checks the
            // poller after each round.
            self.poll_schedule = PollSchedule { left: if came { 0 } else { INBOX_CHECKS }, last: now };
            let due = round.next_timer.is_some_and(|at| at <= now);
            if came || due || home.local.stopping.get() {
                return Ok(Found::Work);
            }
            // Reads the clock only here, so the time begins with the first check of the poller. Other lanes
            // see this lane as asleep.
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
