//! Timeouts with both sides of a stream.
//!
//! Each direction is a *way* that is either waiting for bytes of its sender, or for its receiver to take
//! some. A side's timer runs while one of the two ways waits for that side, from the last moment on at which
//! either way got on with it; with `option independent-streams` each way has its own.
//!
//! One timer of the lane serves all that a task ever waits for. It is moved when it is looked at, which for a
//! later deadline is one store, and stays on the wheel between two waits: taking it off and putting it there
//! again would cost more than a wake-up for nothing now and then.

use crate::server::ServerPermit;
use crate::termination::Cause;
use manylane_buf::Chain;
use manylane_io::READ_AT_ONCE;
use manylane_net::{Connection, TransferError};
use manylane_sched::{Here, Sleep, Time};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
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
    /// A filter, which has bytes go on later. Meanwhile neither side can get on with the stream.
    Filter,
    /// For something else, or no more.
    Nobody,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) sender: Side,
    waits: Cell<Waits>,
    /// Its sender owes nothing before it is [called](Self::called).
    excused: Cell<bool>,
    /// When this way last got on with its sender, and with its receiver.
    sent: Cell<Time>,
    taken: Cell<Time>,
    ended: Cell<bool>,
    bytes: Cell<u64>,
    /// Bytes that went at once since a send last had to wait, or [`READ_AT_ONCE`] to begin with.
    at_once: Cell<usize>,
}

impl Direction {
    fn new(sender: Side, now: Time) -> Self {
        Self {
            sender,
            waits: Cell::new(Waits::Sender),
            excused: Cell::new(false),
            sent: Cell::new(now),
            taken: Cell::new(now),
            ended: Cell::new(false),
            bytes: Cell::new(0),
            at_once: Cell::new(READ_AT_ONCE),
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

    /// Whether its sender waits for a word of the other side before it sends: `Expect: 100-continue`.
    pub(crate) fn excuse(&self, excused: bool) {
        self.excused.set(excused);
    }

    /// Its sender was asked to send, or did so unasked.
    pub(crate) fn called(&self, now: Time) {
        if self.excused.replace(false) {
            self.sent.set(now);
        }
    }

    /// Its receiver took so many bytes.
    pub(crate) fn took(&self, bytes: u64, now: Time) {
        self.taken.set(now);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Sends all of `chain` to its receiver. That it takes some of it counts as getting on, though the rest
    /// has to wait.
    ///
    /// # Errors
    /// What the connection says.
    pub(crate) async fn send(
        &self,
        here: Here,
        to: &Connection,
        chain: &mut Chain,
    ) -> Result<(), TransferError> {
        let bytes = chain.len();
        self.sends(here, to, bytes, pin!(to.send(chain))).await
    }

    /// The same, and the end of the direction with it.
    ///
    /// # Errors
    /// What the connection says.
    pub(crate) async fn send_last(
        &self,
        here: Here,
        to: &Connection,
        chain: &mut Chain,
    ) -> Result<(), TransferError> {
        let bytes = chain.len();
        self.sends(here, to, bytes, pin!(to.send_last(chain))).await
    }

    /// Waits until its receiver has taken all that was sent before.
    ///
    /// # Errors
    /// What the connection says.
    pub(crate) async fn flush(&self, here: Here, to: &Connection) -> Result<(), TransferError> {
        self.sends(here, to, 0, pin!(to.flush())).await
    }

    /// Waits for a send.
    #[inline]
    async fn sends<F: Future<Output = Result<(), TransferError>>>(
        &self,
        here: Here,
        to: &Connection,
        bytes: usize,
        mut sending: Pin<&mut F>,
    ) -> Result<(), TransferError> {
        self.waits(Waits::Receiver, here.now());
        let mut unsent = None;
        poll_fn(|context| {
            let outcome = sending.as_mut().poll(context);
            if outcome.is_pending() {
                let left = to.unsent();
                if unsent.is_some_and(|before| left < before) {
                    self.taken.set(here.now());
                }
                unsent = Some(left);
            }
            outcome
        })
        .await?;
        self.at_once.set(if unsent.is_some() { 0 } else { self.at_once.get().saturating_add(bytes) });
        self.took(bytes as u64, here.now());
        Ok(())
    }

    /// Bytes that are worth being read at once for its receiver: no more than it took without waiting. So
    /// what is held for one that is slow, and what it has to take in one go, stays small.
    pub(crate) fn room(&self) -> usize {
        self.at_once.get().min(READ_AT_ONCE)
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
            Waits::Filter | Waits::Nobody => false,
            Waits::Both => true,
            Waits::Sender => self.sender == side && !self.excused.get(),
            Waits::Receiver => self.sender != side,
        }
    }

    fn is_held(&self) -> bool {
        self.waits.get() == Waits::Filter
    }

    fn last(&self, side: Side) -> Time {
        if self.sender == side { self.sent.get() } else { self.taken.get() }
    }
}

/// Times without an event after which a side counts as gone; none waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
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
pub(crate) struct StreamTimeouts {
    pub(crate) timeouts: Timeouts,
    pub(crate) up: Direction,
    pub(crate) down: Direction,
}

impl StreamTimeouts {
    pub(crate) fn new(timeouts: Timeouts, now: Time) -> Self {
        Self { timeouts, up: Direction::new(Side::Client, now), down: Direction::new(Side::Server, now) }
    }

    /// For what the proxy itself sends to the client: only the client is waited for.
    pub(crate) fn for_client(client: Option<Duration>, now: Time) -> Self {
        let this = Self::new(Timeouts { client, ..Timeouts::default() }, now);
        this.up.waits(Waits::Nobody, now);
        this
    }

    /// What `work` gives, unless a side is out of patience first. It is pinned by the caller, since to move
    /// it costs.
    pub(crate) async fn in_time<F: Future>(
        &self,
        timer: &Timer,
        mut work: Pin<&mut F>,
    ) -> Result<F::Output, Cause> {
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_deadline(timer, context).map(Err),
        })
        .await
    }

    /// What `work` gives, unless a side is out of patience first, or somebody else ends the stream of
    /// `permit`. It is pinned by the caller, since to move it costs.
    pub(crate) async fn over<F: Future>(
        &self,
        timer: &Timer,
        permit: &ServerPermit,
        mut work: Pin<&mut F>,
    ) -> Result<F::Output, Cause> {
        poll_fn(|context| {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            if let Some(cause) = permit.ended(context) {
                return Poll::Ready(Err(cause));
            }
            self.poll_deadline(timer, context).map(Err)
        })
        .await
    }

    /// Ready when a side is out of patience; else the task is woken then.
    #[inline]
    fn poll_deadline(&self, timer: &Timer, context: &mut Context<'_>) -> Poll<Cause> {
        while let Some((deadline, cause)) = self.deadline() {
            if deadline <= timer.here.now() {
                return Poll::Ready(cause);
            }
            if timer.poll(deadline, context).is_pending() {
                break;
            }
        }
        Poll::Pending
    }

    /// When the first side is out of patience, and what that means.
    fn deadline(&self) -> Option<(Time, Cause)> {
        // A peer is silent because its bytes, or those that it answers, are held. Where each way has its own
        // timer, that of the other one goes on.
        if !self.timeouts.independent && (self.up.is_held() || self.down.is_held()) {
            return None;
        }
        let half = self.up.ended.get() || self.down.ended.get();
        let one = |side, cause, usual: Option<Duration>, fin: Option<Duration>| {
            let timeouts = if half { fin.or(usual) } else { usual }?;
            let ways = [&self.up, &self.down];
            let waiting = ways.iter().filter(|way| way.is_waiting_for(side));
            let last = if self.timeouts.independent {
                // A server that takes a request owes no answer yet, though its way has its own timer.
                let takes = side == Side::Server && self.timeouts.in_turn && self.down.bytes() == 0;
                let least = if takes { self.up.last(side) } else { Time::from_nanos(0) };
                waiting.map(|way| way.last(side).max(least)).min()?
            } else {
                waiting.count().checked_sub(1)?;
                ways.iter().map(|way| way.last(side)).max()?
            };
            Some((last + timeouts, cause))
        };
        let timeouts = &self.timeouts;
        let client = one(Side::Client, Cause::ClientSilent, timeouts.client, timeouts.client_fin);
        // A client that waits to be asked for its body need not be asked, and may send it unasked (RFC 9110,
        // 10.1.1): that it does not is no fault of the server, which waits for it, too.
        let excused = self.up.excused.get() && self.up.waits.get() == Waits::Sender;
        let cause = if excused { Cause::ClientSilent } else { Cause::ServerSilent };
        let server = one(Side::Server, cause, timeouts.server, timeouts.server_fin);
        let uploads = self.up.is_waiting_for(Side::Client) || self.up.is_held();
        let server = server.filter(|_| !(timeouts.in_turn && uploads));
        match (client, server) {
            (Some(client), Some(server)) => Some(if client.0 <= server.0 { client } else { server }),
            (client, server) => client.or(server),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use manylane_io::{Choice, Driver, Io, Kind};
    use manylane_sched::{Config, Lane};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Runs `body` on a lane with each driver that the kernel allows.
    fn on_both_drivers<F: Future<Output = ()> + 'static>(body: impl Fn(Io) -> F) {
        for kind in [Kind::Epoll, Kind::IoUring] {
            let mut lane = Lane::new(Config::new()).unwrap();
            match Driver::new(lane.here(), Choice::Only(kind)) {
                Ok(mut driver) => {
                    let work = body(driver.io());
                    lane.block_on(&mut driver, work).unwrap();
                }
                Err(error) => assert_eq!(kind, Kind::IoUring, "{error}"),
            }
        }
    }

    fn chain(bytes: usize) -> Chain {
        let mut chain = Chain::new();
        chain.append(&vec![7; bytes]).unwrap();
        chain
    }

    fn pair(io: &Io) -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Connection::Socket(io.stream(ours).unwrap()), theirs)
    }

    /// Reads until all that was sent is taken.
    async fn taken(here: Here, to: &Connection, theirs: &mut UnixStream) {
        let mut room = vec![0; 1 << 20];
        while theirs.read(&mut room).is_ok() || to.unsent() > 0 {
            here.yield_now().await;
        }
    }

    #[test]
    fn nobody_is_out_of_patience_while_a_filter_holds_bytes() {
        let (begun, later) = (Time::from_nanos(1 << 40), Time::from_nanos(1 << 41));
        let second = Some(Duration::from_secs(1));
        let timeouts = Timeouts { client: second, server: second, ..Timeouts::default() };
        let watch = StreamTimeouts::new(timeouts, begun);
        watch.up.waits(Waits::Filter, begun);
        assert_eq!(watch.deadline(), None, "the server answers what is held");
        watch.up.waits(Waits::Receiver, later);
        assert_eq!(watch.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        watch.up.waits(Waits::Sender, later);
        watch.down.waits(Waits::Filter, later);
        assert_eq!(watch.deadline(), None, "the client answers what is held");
        // Each way has its own timer, and the other one is not held.
        let watch = StreamTimeouts::new(Timeouts { independent: true, ..timeouts }, begun);
        watch.down.waits(Waits::Filter, later);
        assert_eq!(watch.deadline(), Some((begun + Duration::from_secs(1), Cause::ClientSilent)));
        // But a server owes no answer before it has the request.
        let watch = StreamTimeouts::new(Timeouts { independent: true, in_turn: true, ..timeouts }, begun);
        watch.up.waits(Waits::Filter, later);
        assert_eq!(watch.deadline(), None);
        // Nor while it takes the request, and it has its time for the answer from the last byte on.
        watch.up.waits(Waits::Receiver, later);
        assert_eq!(watch.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        watch.up.waits(Waits::Nobody, later);
        assert_eq!(watch.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        // It has begun to answer.
        watch.down.took(1, later);
        assert_eq!(watch.deadline(), Some((begun + Duration::from_secs(1), Cause::ServerSilent)));
    }

    #[test]
    fn a_receiver_that_takes_some_gets_on_though_the_rest_of_a_send_waits() {
        on_both_drivers(|io| async move {
            let here = io.here();
            let (to, mut theirs) = pair(&io);
            let way = Direction::new(Side::Server, here.now());
            let mut bulk = chain(8 << 20);
            let mut sending = pin!(way.send(here, &to, &mut bulk));
            let mut room = vec![0; 32 << 10];
            for _ in 0..3 {
                let before = way.last(Side::Client);
                while way.last(Side::Client) == before {
                    let _ = theirs.read(&mut room);
                    here.yield_now().await;
                    poll_fn(|context| {
                        assert!(
                            sending.as_mut().poll(context).is_pending(),
                            "8 MiB are too much for three goes"
                        );
                        Poll::Ready(())
                    })
                    .await;
                }
                assert!(way.last(Side::Client) > before && way.bytes() == 0);
            }
        });
    }

    #[test]
    fn as_much_is_read_at_once_as_went_at_once() {
        on_both_drivers(|io| async move {
            let here = io.here();
            let (to, mut theirs) = pair(&io);
            let way = Direction::new(Side::Server, here.now());
            assert_eq!(way.room(), READ_AT_ONCE, "nothing had to wait");
            let mut bulk = chain(1 << 20);
            {
                let mut sending = pin!(way.send(here, &to, &mut bulk));
                let mut room = vec![0; 32 << 10];
                poll_fn(|context| {
                    let outcome = sending.as_mut().poll(context);
                    if outcome.is_pending() {
                        let _ = theirs.read(&mut room);
                        context.waker().wake_by_ref();
                    }
                    outcome
                })
                .await
                .unwrap();
            }
            assert_eq!((way.room(), way.bytes()), (0, 1 << 20), "it had to wait");
            taken(here, &to, &mut theirs).await;
            for went in [1000, 17_000, READ_AT_ONCE] {
                way.send(here, &to, &mut chain(went - way.room())).await.unwrap();
                assert_eq!(way.room(), went);
                taken(here, &to, &mut theirs).await;
            }
            way.send(here, &to, &mut chain(1)).await.unwrap();
            assert_eq!(way.room(), READ_AT_ONCE, "and no more");
        });
    }
}
