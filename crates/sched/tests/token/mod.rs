//! A poller for models, and a clock that only models advance.

use loom::sync::{Condvar, Mutex};
use manylane_sched::{Here, Poller, Time, Unpark};
use std::cell::Cell;
use std::io;
use std::time::Duration;

loom::thread_local! {
    /// Nanoseconds of the thread's own lane.
    static CLOCK: Cell<u64> = Cell::new(1);
}

/// The time of the calling lane.
pub(crate) fn clock() -> Time {
    Time::from_nanos(CLOCK.with(Cell::get))
}

/// A clock that advances at each reading.
#[allow(dead_code)] // not every model uses it
pub(crate) fn ticking_clock() -> Time {
    CLOCK.with(|clock| Time::from_nanos(clock.replace(clock.get() + 1)))
}

/// Sleeps until its token is set, as an `eventfd` does.
#[derive(Clone)]
pub(crate) struct Token(std::sync::Arc<(Mutex<bool>, Condvar)>);

impl Token {
    pub(crate) fn new() -> Self {
        Self(std::sync::Arc::new((Mutex::new(false), Condvar::new())))
    }
}

impl Unpark for Token {
    fn unpark(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }
}

impl Poller for Token {
    fn unparker(&self) -> std::sync::Arc<dyn Unpark> {
        std::sync::Arc::new(self.clone())
    }

    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> io::Result<()> {
        let mut set = self.0.0.lock().unwrap();
        match timeout {
            Some(Duration::ZERO) => {}
            // No other event comes, as far as this poller knows: the timeout passes.
            Some(_) => CLOCK.with(|clock| clock.set(clock.get() + timeout.unwrap().as_nanos() as u64)),
            None => {
                while !*set {
                    set = self.0.1.wait(set).unwrap();
                }
            }
        }
        *set = false;
        Ok(())
    }
}
