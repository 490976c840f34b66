//! Patience with both sides of a stream.
//!
//! Each direction is a *way* that is either waiting for bytes of its sender, or for its receiver to take some. A side's timer runs while
//! one of the two ways waits for that side, from the last moment on at which either way got on with it; with `option
//! independent-streams` each way has its own.
//!
//! One timer of the lane serves all that a task ever waits for. It is moved when it is looked at, which for a later deadline is one store, and
//! stays on the wheel between two waits: taking it off and putting it there again would cost more than a wake-up for nothing now and then.

use crate::termination::Cause;
use manylane_sched::{Here, Sleep, Time};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A task's timer, for one wait after another. It may wake the task for a wait that is over.
#[derive(Debug)]
pub(crate) struct Timer {
    here: Here,
    /// Borrowed while it is polled.
    sleep: RefCell<Sleep>,
}

impl Timer {
    /// Of no use for anything yet, and costs nothing.
    pub(crate) fn new(here: Here) -> Self {
        Self { here, sleep: RefCell::new(here.sleep_until(Time::MAX)) }
    }

    /// Ready when `deadline` has come; else the task is woken then.
    pub(crate) fn poll(&self, deadline: Time, context: &mut Context<'_>) -> Poll<()> {
        if deadline == Time::MAX {
            return Poll::Pending;
        }
        let mut sleep = self.sleep.borrow_mut();
        sleep.reset(deadline);
        Pin::new(&mut *sleep).poll(context)
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Whom a way waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Sender,
    Receiver,
    /// Inside of a splice, which does not tell for whom: for both.
    Both,
    /// For something else, or no more.
    Nobody,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) sender: Side,
    waits: Cell<Waits>,
    /// When this way last got on with its sender, and with its receiver.
    sent: Cell<Time>,
    taken: Cell<Time>,
    ended: Cell<bool>,
    bytes: Cell<u64>,
}

impl Way {
    fn new(sender: Side, now: Time) -> Self {
        Self {
            sender,
            waits: Cell::new(Waits::Sender),
            sent: Cell::new(now),
            taken: Cell::new(now),
            ended: Cell::new(false),
            bytes: Cell::new(0),
        }
    }

    pub(crate) fn receiver(&self) -> Side {
        match self.sender {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// From now on it waits for these.
    pub(crate) fn waits(&self, waits: Waits, now: Time) {
        self.waits.set(waits);
        if matches!(waits, Waits::Sender | Waits::Both) {
            self.sent.set(now);
        }
        if matches!(waits, Waits::Receiver | Waits::Both) {
            self.taken.set(now);
        }
    }

    /// Its receiver took so many bytes.
    pub(crate) fn took(&self, bytes: u64, now: Time) {
        self.taken.set(now);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Its sender has ended it.
    pub(crate) fn end(&self, now: Time) {
        self.waits(Waits::Nobody, now);
        self.sent.set(now);
        self.taken.set(now);
        self.ended.set(true);
    }

    fn is_waiting_for(&self, side: Side) -> bool {
        match self.waits.get() {
            Waits::Nobody => false,
            Waits::Both => true,
            Waits::Sender => self.sender == side,
            Waits::Receiver => self.sender != side,
        }
    }

    fn last(&self, side: Side) -> Time {
        if self.sender == side { self.sent.get() } else { self.taken.get() }
    }
}

/// Times without an event after which a side counts as gone; none waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    pub(crate) client: Option<Duration>,
    pub(crate) server: Option<Duration>,
    /// After one direction has ended.
    pub(crate) client_fin: Option<Duration>,
    pub(crate) server_fin: Option<Duration>,
    /// Each way has its own timer.
    pub(crate) independent: bool,
    /// The server owes nothing while the client is waited for: of requests with a body.
    pub(crate) in_turn: bool,
}

/// Both ways of a stream.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) patience: Patience,
    pub(crate) up: Way,
    pub(crate) down: Way,
}

impl Watch {
    pub(crate) fn new(patience: Patience, now: Time) -> Self {
        Self { patience, up: Way::new(Side::Client, now), down: Way::new(Side::Server, now) }
    }

    /// What `work` gives, unless a side is out of patience first. It is pinned by the caller, since to move it costs.
    pub(crate) async fn over<F: Future>(&self, timer: &Timer, mut work: Pin<&mut F>) -> Result<F::Output, Cause> {
        poll_fn(|context| {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            while let Some((deadline, cause)) = self.deadline() {
                if deadline <= timer.here.now() {
                    return Poll::Ready(Err(cause));
                }
                if timer.poll(deadline, context).is_pending() {
                    return Poll::Pending;
                }
            }
            Poll::Pending
        })
        .await
    }

    /// When the first side is out of patience, and what that means.
    fn deadline(&self) -> Option<(Time, Cause)> {
        let half = self.up.ended.get() || self.down.ended.get();
        let one = |side, cause, usual: Option<Duration>, fin: Option<Duration>| {
            let patience = if half { fin.or(usual) } else { usual }?;
            let ways = [&self.up, &self.down];
            let waiting = ways.iter().filter(|way| way.is_waiting_for(side));
            let last = if self.patience.independent {
                waiting.map(|way| way.last(side)).min()?
            } else {
                waiting.count().checked_sub(1)?;
                ways.iter().map(|way| way.last(side)).max()?
            };
            Some((last + patience, cause))
        };
        let patience = &self.patience;
        let client = one(Side::Client, Cause::ClientSilent, patience.client, patience.client_fin);
        let server = one(Side::Server, Cause::ServerSilent, patience.server, patience.server_fin);
        let server = server.filter(|_| !(patience.in_turn && self.up.is_waiting_for(Side::Client)));
        match (client, server) {
            (Some(client), Some(server)) => Some(if client.0 <= server.0 { client } else { server }),
            (client, server) => client.or(server),
        }
    }
}
