//! Futures that wait for a time.

use super::wheel::deadline_tick;
use crate::here::Here;
use crate::slot::NIL;
use crate::time::Time;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// A future that waits until a time. Created by [`Here::sleep`] and [`Here::sleep_until`].
///
/// It uses no timer before its first poll. Dropping it removes its timer from the wheel.
pub struct Sleep {
    here: Here,
    deadline: Time,
    /// Node on the wheel, from the first poll on.
    node: u32,
}

impl Sleep {
    pub(crate) fn new(here: Here, deadline: Time) -> Self {
        Self { here, deadline, node: NIL }
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Moves the deadline. Moving it later is one store: the timer notices when it would have fired. Moving
    /// it earlier changes its place on the wheel. A sleep that has ended waits again.
    #[inline]
    pub fn reset(&mut self, deadline: Time) {
        self.deadline = deadline;
        if self.node != NIL {
            self.here.home().wheel.postpone(self.node, deadline_tick(deadline));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    /// # Panics
    /// If there is no memory for one more timer on this lane.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.here.now() >= self.deadline {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let wheel = &self.here.home().wheel;
        if self.node != NIL && wheel.is_armed(self.node) {
            if !wheel.wakes(self.node, waker) {
                drop(wheel.set_waker(self.node, waker.clone()));
            }
            return Poll::Pending;
        }
        if self.node == NIL {
            let node = wheel.take_node().expect("the lane has memory for one more timer of 40 bytes");
            self.node = node;
        }
        // Cloned before the wheel is touched, since a foreign waker may call anything.
        self.here.home().wheel.arm(self.node, deadline_tick(self.deadline), waker.clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.node != NIL {
            drop(self.here.home().wheel.give_node(self.node));
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep(until {})", self.deadline)
    }
}

/// Error: the deadline came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time ran out before the operation was done")
    }
}

impl std::error::Error for Elapsed {}

impl Here {
    /// Waits for `duration` from the time of this round on. Precise to a millisecond; never too short.
    pub fn sleep(self, duration: Duration) -> Sleep {
        Sleep::new(self, self.now() + duration)
    }

    /// Waits until `deadline`.
    pub fn sleep_until(self, deadline: Time) -> Sleep {
        Sleep::new(self, deadline)
    }

    /// Resolves to the output of `future`, or to [`Elapsed`] if that takes longer than `duration`; the future
    /// is dropped then. If both happen in the same round, the future wins.
    ///
    /// # Errors
    /// [`Elapsed`].
    pub async fn timeout<F: Future>(self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut sleep = self.sleep(duration);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed))
        })
        .await
    }
}
