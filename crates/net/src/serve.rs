//! Passes connections from a listener to the lanes that serve them (R-F5).

use crate::connection::Incoming;
use crate::listen::{AcceptError, Acceptor};
use crate::loads::{AcceptingLane, Balance, LaneGuard};
use manylane_io::Io;
use manylane_sched::{Class, Remote, TaskKind};
use std::cell::RefCell;

thread_local! {
    /// Driver of this thread's lane, while it serves.
    static IO: RefCell<Option<Io>> = const { RefCell::new(None) };
}

/// While this exists, its lane serves connections that others give it.
#[derive(Debug)]
pub struct Serving {
    _presence: AcceptingLane,
}

impl Serving {
    /// Makes the lane of `io` serve. Once for each lane, before its first connection.
    pub fn new(io: &Io) -> Self {
        IO.set(Some(io.clone()));
        Self { _presence: AcceptingLane::new() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        IO.take();
    }
}

/// Serves connections on the lanes that a [`Balance`] chooses: on this lane in a task, on another one through
/// its inbox.
///
/// `serve` is called on the chosen lane, with that lane's driver. It holds the [`LaneGuard`] as long as it
/// has the connection.
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
    /// Creates a spread from the lane of `io` to those of `balance`, with tasks of the given kind and class.
    pub fn new(io: Io, balance: Balance, kind: &'static TaskKind, class: Class, serve: S) -> Self {
        Self { io, balance, kind, class, serve }
    }

    /// Accepts and passes on connections as long as the listener works. If the future is dropped, every
    /// accepted connection was passed on.
    pub async fn run(&self, acceptor: &Acceptor) -> AcceptError {
        loop {
            match acceptor.accept().await {
                Ok(incoming) => self.give(incoming),
                Err(error) => return error,
            }
        }
    }

    /// Lets a lane serve one connection. It is closed if there is no memory for its task.
    pub fn give(&self, incoming: Incoming) {
        let lane_guard = self.balance.guard_for(&incoming);
        let here = self.io.here();
        // Without memory, the connection is dropped with its task, and so is closed.
        let _ = if lane_guard.lane() == here.lane() {
            let task = (self.serve)(self.io.clone(), incoming, lane_guard);
            here.spawn(self.kind, self.class, task).map(|_| ())
        } else {
            let serve = self.serve.clone();
            Remote::new(lane_guard.lane()).spawn_with(self.kind, self.class, move |_| async move {
                // The lane may have stopped serving while the connection was in transit.
                let Some(io) = IO.with_borrow(Clone::clone) else { return };
                serve(io, incoming, lane_guard).await;
            })
        };
    }
}
