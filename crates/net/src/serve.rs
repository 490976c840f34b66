//! From a listener to the lanes that serve (R-F5).

use crate::connection::Incoming;
use crate::listen::{AcceptError, Acceptor};
use crate::loads::{Balance, LaneGuard, Presence};
use manylane_io::Io;
use manylane_sched::{Class, Remote, TaskKind};
use std::cell::RefCell;

thread_local! {
    /// The driver of this thread's lane, while it serves.
    static IO: RefCell<Option<Io>> = const { RefCell::new(None) };
}

/// While this is there, its lane serves connections that others give it.
#[derive(Debug)]
pub struct Serving {
    _presence: Presence,
}

impl Serving {
    /// The lane of `io` serves. Once for each lane, before its first connection.
    pub fn new(io: &Io) -> Self {
        IO.set(Some(io.clone()));
        Self { _presence: Presence::new() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        IO.take();
    }
}

/// Has connections served on the lanes that a [`Balance`] chooses: on this one by a task, on another by its
/// inbox.
///
/// `serve` is called on that lane, with that lane's driver. It holds the [`LaneGuard`] as long as it has the
/// connection.
#[derive(Debug)]
pub struct Spread<S> {
    io: Io,
    balance: Balance,
    kind: &'static TaskKind,
    class: Class,
    serve: S,
}

impl<S, F> Spread<S>
where
    S: Fn(Io, Incoming, LaneGuard) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    /// From the lane of `io` to those of `balance`, by tasks of the kind and the class that are given.
    pub fn new(io: Io, balance: Balance, kind: &'static TaskKind, class: Class, serve: S) -> Self {
        Self { io, balance, kind, class, serve }
    }

    /// Accepts and gives, as long as the listener is good. Dropped, it has accepted nothing that it did not
    /// give.
    pub async fn run(&self, acceptor: &Acceptor) -> AcceptError {
        loop {
            match acceptor.accept().await {
                Ok(incoming) => self.give(incoming),
                Err(error) => return error,
            }
        }
    }

    /// Has one connection served. It is closed if there is no memory for its task.
    pub fn give(&self, incoming: Incoming) {
        let lane_guard = self.balance.guard_for(&incoming);
        let here = self.io.here();
        // If there is no memory it is dropped with its task, and so is closed.
        let _ = if lane_guard.lane() == here.lane() {
            let task = (self.serve)(self.io.clone(), incoming, lane_guard);
            here.spawn(self.kind, self.class, task).map(|_| ())
        } else {
            let serve = self.serve.clone();
            Remote::new(lane_guard.lane()).spawn_with(self.kind, self.class, move |_| async move {
                // The lane may have stopped serving while this was on its way.
                let Some(io) = IO.with_borrow(Clone::clone) else { return };
                serve(io, incoming, lane_guard).await;
            })
        };
    }
}
