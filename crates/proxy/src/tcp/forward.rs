//! Bytes in both directions, until both ends are done or one of them is silent for too long.
//!
//! Each direction is a *way* that is either waiting for bytes of its sender, or for its receiver to take some. A side's timer runs while
//! one of the two ways waits for that side, from the last moment on at which either way got on with it; with `option
//! independent-streams` each way has its own.
//!
//! One timer of the lane serves both sides. It is moved when it is looked at, which for a later deadline is one store.

use crate::termination::{Cause, Phase, Termination};
use manylane_buf::Chain;
use manylane_io::Io;
use manylane_net::{Connection, Expected, SplicePolicy, TransferError};
use manylane_sched::{Sleep, Time};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Whom a way waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForSender,
    ForReceiver,
    /// Inside of a splice, which does not tell for whom: for both.
    Splice,
    Done,
}

/// One direction.
#[derive(Debug)]
struct Way {
    sender: Side,
    waits: Cell<Waits>,
    /// When this way last got on with its sender, and with its receiver.
    sent: Cell<Time>,
    taken: Cell<Time>,
    bytes: Cell<u64>,
}

impl Way {
    fn new(sender: Side, now: Time) -> Self {
        Self {
            sender,
            waits: Cell::new(Waits::ForSender),
            sent: Cell::new(now),
            taken: Cell::new(now),
            bytes: Cell::new(0),
        }
    }

    fn waits_for(&self, side: Side) -> bool {
        match self.waits.get() {
            Waits::Done => false,
            Waits::Splice => true,
            Waits::ForSender => self.sender == side,
            Waits::ForReceiver => self.sender != side,
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
}

/// When each direction is spliced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Splicing {
    pub(crate) up: Option<SplicePolicy>,
    pub(crate) down: Option<SplicePolicy>,
}

/// Two connections that are joined.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    io: &'a Io,
    client: &'a Connection,
    server: &'a Connection,
    patience: Patience,
    up: Way,
    down: Way,
}

/// A way broke at one of its ends.
struct Broken(Side);

impl<'a> Pair<'a> {
    pub(crate) fn new(io: &'a Io, client: &'a Connection, server: &'a Connection, patience: Patience) -> Self {
        let now = io.here().now();
        Self { io, client, server, patience, up: Way::new(Side::Client, now), down: Way::new(Side::Server, now) }
    }

    /// Forwards until the end. `from_client` and `from_server` go first. `count` is told of bytes as they go: up, and down.
    pub(crate) async fn forward(
        &self,
        from_client: Chain,
        from_server: Chain,
        splicing: Splicing,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let count = &count;
        let mut up = pin!(self.way(&self.up, from_client, splicing.up, |n| count(n, 0)));
        let mut down = pin!(self.way(&self.down, from_server, splicing.down, |n| count(0, n)));
        let (mut up_ended, mut down_ended) = (false, false);
        let mut timer: Sleep = self.io.here().sleep_until(Time::MAX);
        poll_fn(|context| {
            if !up_ended && let Poll::Ready(outcome) = up.as_mut().poll(context) {
                up_ended = true;
                if let Err(broken) = outcome {
                    return Poll::Ready(left(broken));
                }
            }
            if !down_ended && let Poll::Ready(outcome) = down.as_mut().poll(context) {
                down_ended = true;
                if let Err(broken) = outcome {
                    return Poll::Ready(left(broken));
                }
            }
            if up_ended && down_ended {
                return Poll::Ready(Termination::NORMAL);
            }
            while let Some((deadline, cause)) = self.deadline() {
                if deadline > self.io.here().now() {
                    timer.reset(deadline);
                    if Pin::new(&mut timer).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                } else {
                    return Poll::Ready(Termination::new(cause, Phase::Data));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// When the first side is out of patience, and what that means.
    fn deadline(&self) -> Option<(Time, Cause)> {
        let half = self.up.waits.get() == Waits::Done || self.down.waits.get() == Waits::Done;
        let one = |side, cause, usual: Option<Duration>, fin: Option<Duration>| {
            let patience = if half { fin.or(usual) } else { usual }?;
            let ways = [&self.up, &self.down];
            let waiting = ways.iter().filter(|way| way.waits_for(side));
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
        match (client, server) {
            (Some(client), Some(server)) => Some(if client.0 <= server.0 { client } else { server }),
            (client, server) => client.or(server),
        }
    }

    async fn way(
        &self,
        way: &Way,
        mut chain: Chain,
        policy: Option<SplicePolicy>,
        count: impl Fn(u64),
    ) -> Result<(), Broken> {
        let (from, to, receiver) = match way.sender {
            Side::Client => (self.client, self.server, Side::Server),
            Side::Server => (self.server, self.client, Side::Client),
        };
        let here = self.io.here();
        let got_on = |n: u64| {
            way.taken.set(here.now());
            way.bytes.set(way.bytes.get() + n);
            count(n);
        };
        loop {
            if !chain.is_empty() {
                let n = chain.len() as u64;
                way.waits.set(Waits::ForReceiver);
                way.taken.set(here.now());
                to.send(&mut chain).await.map_err(|_: TransferError| Broken(receiver))?;
                got_on(n);
                way.sent.set(here.now()); // from here on it waits for its sender
            }
            way.waits.set(Waits::ForSender);
            let spliced = policy.and_then(|policy| {
                policy.streams(from, to, Expected::UntilEnd { forwarded: way.bytes.get() })
            });
            if let Some((from, to)) = spliced {
                let mut splicer = self.io.splicer();
                way.waits.set(Waits::Splice);
                loop {
                    match splicer.step(from, to, SPLICED_AT_ONCE).await {
                        Ok(0) => break,
                        Ok(n) => {
                            got_on(n as u64);
                            way.sent.set(here.now());
                        }
                        // What is still held was taken from the sender, so it is the receiver that failed.
                        Err(_) if splicer.held() > 0 => return Err(Broken(receiver)),
                        Err(_) => return Err(Broken(way.sender)),
                    }
                }
                break;
            }
            match from.recv().await {
                Ok(Some(segment)) => {
                    way.sent.set(here.now());
                    if chain.push_back(segment).is_err() {
                        return Err(Broken(receiver)); // no memory
                    }
                }
                Ok(None) => break,
                Err(_) => return Err(Broken(way.sender)),
            }
        }
        way.waits.set(Waits::Done);
        way.sent.set(here.now());
        // The other direction goes on; that this end is closed already is its own news.
        let _ = to.finish().await;
        Ok(())
    }
}

/// Bytes that one step of a splice moves at most.
const SPLICED_AT_ONCE: usize = 1 << 20;

fn left(Broken(side): Broken) -> Termination {
    let cause = match side {
        Side::Client => Cause::ClientLeft,
        Side::Server => Cause::ServerLeft,
    };
    Termination::new(cause, Phase::Data)
}
