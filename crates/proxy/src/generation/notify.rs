//! Wakes a task that waits for its time, because something has happened. Rung from any lane, seldom.

use manylane_sync::{LockClass, Mutex};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

static NOTIFIES: LockClass = LockClass::new("notify of a check", LockClass::LEAF);

/// One for each task that waits.
#[derive(Debug)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rung: bool,
    waiter: Option<Waker>,
}

impl Default for Notify {
    fn default() -> Self {
        Self(Mutex::new(&NOTIFIES, State::default()))
    }
}

impl Notify {
    /// Who waits is woken; who does not yet, need not wait.
    pub fn ring(&self) {
        let waiter = {
            let mut state = self.0.lock();
            state.rung = true;
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits until it rings, or `time` is over. Whether it rang.
    pub(crate) async fn or(&self, time: impl Future<Output = ()>) -> bool {
        let mut time = pin!(time);
        poll_fn(|context| {
            let mut state = self.0.lock();
            if std::mem::take(&mut state.rung) {
                return Poll::Ready(true);
            }
            state.waiter = Some(context.waker().clone());
            drop(state);
            time.as_mut().poll(context).map(|()| false)
        })
        .await
    }
}
