//! The timer of a task.

use manylane_sched::{Here, Sleep, Time};
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A task's timer for successive waits. It may wake the task for a wait that is over.
#[derive(Debug)]
pub struct Timer {
    /// The lane.
    pub here: Here,
    /// Borrowed while the timer is polled.
    sleep: RefCell<Sleep>,
}

impl Timer {
    /// Returns a timer that is not set; costs nothing.
    #[inline]
    pub fn new(here: Here) -> Self {
        Self { here, sleep: RefCell::new(here.sleep_until(Time::MAX)) }
    }

    /// Ready once `deadline` has passed; until then it wakes the task at the deadline.
    #[inline]
    pub fn poll(&self, deadline: Time, context: &mut Context<'_>) -> Poll<()> {
        if deadline == Time::MAX {
            return Poll::Pending;
        }
        let mut sleep = self.sleep.borrow_mut();
        sleep.reset(deadline);
        Pin::new(&mut *sleep).poll(context)
    }
}
