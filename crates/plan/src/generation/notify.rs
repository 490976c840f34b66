//! Wakes a task that sleeps until some time. Any lane may notify; this is rare.

use manylane_sync::{LockClass, Mutex};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

static NOTIFIES: LockClass = LockClass::new("notify of a check", LockClass::LEAF);

/// The wake-up of one task.
#[derive(Debug)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    notified: bool,
    waiter: Option<Waker>,
}

impl Default for Notify {
    fn default() -> Self {
        Self(Mutex::new(&NOTIFIES, State::default()))
    }
}

impl Notify {
    /// Wakes the task. If it does not wait yet, its next wait returns immediately.
    pub fn notify_one(&self) {
        let waiter = {
            let mut state = self.0.lock();
            state.notified = true;
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits for [`notify_one`](Self::notify_one), or for `time`. Returns true if it was notified.
    pub async fn or(&self, time: impl Future<Output = ()>) -> bool {
        let mut time = pin!(time);
        poll_fn(|context| {
            let mut state = self.0.lock();
            if std::mem::take(&mut state.notified) {
                return Poll::Ready(true);
            }
            state.waiter = Some(context.waker().clone());
            drop(state);
            time.as_mut().poll(context).map(|()| false)
        })
        .await
    }
}
