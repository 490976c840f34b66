//! Timeouts of both sides of a stream.
//!
//! Each direction either waits for bytes of its sender, or waits until its receiver takes some. The timer of
//! a side runs while a direction waits for that side, from the last progress of either direction with it.
//! With `option independent-streams` each direction has timers of its own.
//!
//! One timer of the lane serves all waits of a task. A poll moves the timer, which for a later deadline is
//! one store, and the timer stays on the wheel between waits: to remove and insert it would cost more than an
//! occasional useless wake-up.

use manylane_buf::Chain;
use manylane_io::READ_AT_ONCE;
use manylane_lanes::{Memory, ServerPermit, Timer};
use manylane_net::{Connection, TransferError};
use manylane_plan::Cause;
use manylane_plan::Side;
use manylane_plan::generation::{Backend, Frontend, TimeoutOf};
use manylane_sched::{Here, Time};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// The side that a direction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Sender,
    Receiver,
    /// Either side: a splice does not say which one.
    Both,
    /// A filter that delays bytes. Meanwhile neither side can make progress.
    Filter,
    /// Neither side, or the direction has ended.
    Nobody,
}

/// State of one direction.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) sender: Side,
    waits: Cell<Waits>,
    /// The sender has to send nothing before [`called`](Self::called).
    excused: Cell<bool>,
    /// When the direction last made progress with its sender, and with its receiver.
    sent: Cell<Time>,
    taken: Cell<Time>,
    ended: Cell<bool>,
    bytes: Cell<u64>,
    /// Number of bytes sent without a wait since the last send that had to wait; starts at [`READ_AT_ONCE`].
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

    /// Sets the side that the direction waits for.
    pub(crate) fn waits(&self, waits: Waits, now: Time) {
        self.waits.set(waits);
        if matches!(waits, Waits::Sender | Waits::Both) {
            self.sent.set(now);
        }
        if matches!(waits, Waits::Receiver | Waits::Both) {
            self.taken.set(now);
        }
    }

    /// Sets whether the sender waits for the other side before it sends: `Expect: 100-continue`.
    pub(crate) fn excuse(&self, excused: bool) {
        self.excused.set(excused);
    }

    /// Returns whether the sender still waits for the other side before it sends.
    pub(crate) fn is_excused(&self) -> bool {
        self.excused.get()
    }

    /// Ends the excuse: the sender was asked to send, or has sent unasked.
    pub(crate) fn called(&self, now: Time) {
        if self.excused.replace(false) {
            self.sent.set(now);
        }
    }

    /// Records that the receiver took `bytes` bytes.
    pub(crate) fn took(&self, bytes: u64, now: Time) {
        self.taken.set(now);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Sends all of `chain` to the receiver. Progress counts even if the receiver takes only a part at a
    /// time.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) async fn send(
        &self,
        here: Here,
        to: &Connection,
        chain: &mut Chain,
    ) -> Result<(), TransferError> {
        let bytes = chain.len();
        self.sends(here, to, bytes, pin!(to.send(chain))).await
    }

    /// Sends all of `chain` and the end of the direction.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) async fn send_last(
        &self,
        here: Here,
        to: &Connection,
        chain: &mut Chain,
    ) -> Result<(), TransferError> {
        let bytes = chain.len();
        self.sends(here, to, bytes, pin!(to.send_last(chain))).await
    }

    /// Waits until the receiver has taken everything that was sent before.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) async fn flush(&self, here: Here, to: &Connection) -> Result<(), TransferError> {
        self.sends(here, to, 0, pin!(to.flush())).await
    }

    /// Returns true if bytes that were sent in an earlier round of the lane are still here: the kernel does
    /// not take them, because the receiver does not read. Flush behind further bytes then, so that drips for
    /// such a receiver stay in the kernel and do not renew its time.
    pub(crate) fn is_stuck(&self, here: Here, to: &Connection) -> bool {
        to.unsent() > 0 && self.taken.get() < here.now()
    }

    /// Waits for a send, and records progress.
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

    /// Returns how many bytes to read at once for the receiver: no more than it last took without a wait. So
    /// the memory for a slow receiver, and the amount that it has to take in one timeout, stay small.
    pub(crate) fn room(&self) -> usize {
        self.at_once.get().min(READ_AT_ONCE)
    }

    /// Returns the number of bytes that the receiver has taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Records that the sender has ended the direction.
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

/// Timeouts of both sides; `None` waits without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
    pub(crate) client: Option<Duration>,
    pub(crate) server: Option<Duration>,
    /// Timeouts after one direction has ended.
    pub(crate) client_fin: Option<Duration>,
    pub(crate) server_fin: Option<Duration>,
    /// Each direction has timers of its own.
    pub(crate) independent: bool,
    /// The server's timer stands still while the client is to send: for requests with a body.
    pub(crate) in_turn: bool,
}

impl Timeouts {
    /// Returns the timeouts of a stream between two proxies, with those that rules have set.
    pub(crate) fn of(frontend: &Frontend, backend: &Backend, memory: &Memory) -> Self {
        Self {
            client: memory.timeout(TimeoutOf::Client).get().or(frontend.timeouts.client),
            server: memory.timeout(TimeoutOf::Server).get().or(backend.timeouts.server),
            client_fin: frontend.timeouts.client_fin,
            server_fin: backend.timeouts.server_fin,
            independent: frontend.common.independent || backend.common.independent,
            in_turn: true,
        }
    }

    /// Returns the timeouts of a tunnel, or of a stream in TCP mode: `timeout tunnel` takes precedence.
    pub(crate) fn of_tunnel(frontend: &Frontend, backend: &Backend, memory: &Memory) -> Self {
        let usual = Self::of(frontend, backend, memory);
        let tunnel = memory.timeout(TimeoutOf::Tunnel).get().or(backend.timeouts.tunnel);
        Self { client: tunnel.or(usual.client), server: tunnel.or(usual.server), in_turn: false, ..usual }
    }
}

/// State of both directions of a stream.
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

    /// Returns the state for data that the proxy itself sends: only the client has a timeout.
    pub(crate) fn for_client(client: Option<Duration>, now: Time) -> Self {
        let this = Self::new(Timeouts { client, ..Timeouts::default() }, now);
        this.up.waits(Waits::Nobody, now);
        this
    }

    /// Runs `work` until a timeout of either side expires. The caller pins `work`, since moving it costs.
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

    /// Runs `work` until a timeout of either side expires or something else ends the stream of `permit`. The
    /// caller pins `work`, since moving it costs.
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

    /// Ready with the cause when a timeout has expired; otherwise wakes the task when one does.
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

    /// Returns the first deadline and the cause of the termination.
    fn deadline(&self) -> Option<(Time, Cause)> {
        // A peer may be silent because a filter holds bytes, so no timer runs meanwhile. With independent
        // timers, the timer of the other direction continues.
        if !self.timeouts.independent && (self.up.is_held() || self.down.is_held()) {
            return None;
        }
        let half = self.up.ended.get() || self.down.ended.get();
        let one = |side, cause, usual: Option<Duration>, fin: Option<Duration>| {
            let timeouts = if half { fin.or(usual) } else { usual }?;
            let ways = [&self.up, &self.down];
            let waiting = ways.iter().filter(|direction| direction.is_waiting_for(side));
            let last = if self.timeouts.independent {
                // A server that still receives a request need not respond yet, although its direction has a
                // timer of its own.
                let takes = side == Side::Server && self.timeouts.in_turn && self.down.bytes() == 0;
                let least = if takes { self.up.last(side) } else { Time::from_nanos(0) };
                waiting.map(|direction| direction.last(side).max(least)).min()?
            } else {
                waiting.count().checked_sub(1)?;
                ways.iter().map(|direction| direction.last(side)).max()?
            };
            Some((last + timeouts, cause))
        };
        let timeouts = &self.timeouts;
        let client = one(Side::Client, Cause::ClientSilent, timeouts.client, timeouts.client_fin);
        // A client that waits for a 100 may also send its body unasked (RFC 9110, 10.1.1). If it does not,
        // that is not the fault of the server, which waits for the client, too.
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
    use manylane_io::{Driver, DriverChoice, Io, Kind};
    use manylane_sched::{Config, Lane};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Runs `body` on a lane with each driver that the kernel allows.
    fn on_both_drivers<F: Future<Output = ()> + 'static>(body: impl Fn(Io) -> F) {
        for kind in [Kind::Epoll, Kind::IoUring] {
            let mut lane = Lane::new(Config::new()).unwrap();
            match Driver::new(lane.here(), DriverChoice::Only(kind)) {
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

    /// Reads until everything that was sent was taken.
    async fn taken(here: Here, to: &Connection, theirs: &mut UnixStream) {
        let mut room = vec![0; 1 << 20];
        while theirs.read(&mut room).is_ok() || to.unsent() > 0 {
            here.yield_now().await;
        }
    }

    #[test]
    fn no_time_limit_ends_while_a_filter_holds_bytes() {
        let (begun, later) = (Time::from_nanos(1 << 40), Time::from_nanos(1 << 41));
        let second = Some(Duration::from_secs(1));
        let timeouts = Timeouts { client: second, server: second, ..Timeouts::default() };
        let stream = StreamTimeouts::new(timeouts, begun);
        stream.up.waits(Waits::Filter, begun);
        assert_eq!(stream.deadline(), None, "the server answers what is held");
        stream.up.waits(Waits::Receiver, later);
        assert_eq!(stream.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        stream.up.waits(Waits::Sender, later);
        stream.down.waits(Waits::Filter, later);
        assert_eq!(stream.deadline(), None, "the client answers what is held");
        // Each direction has a timer of its own, and the other one is not held.
        let stream = StreamTimeouts::new(Timeouts { independent: true, ..timeouts }, begun);
        stream.down.waits(Waits::Filter, later);
        assert_eq!(stream.deadline(), Some((begun + Duration::from_secs(1), Cause::ClientSilent)));
        // But a server need not respond before it has the request.
        let stream = StreamTimeouts::new(Timeouts { independent: true, in_turn: true, ..timeouts }, begun);
        stream.up.waits(Waits::Filter, later);
        assert_eq!(stream.deadline(), None);
        // Nor while it receives the request; its time for the response starts with the last byte.
        stream.up.waits(Waits::Receiver, later);
        assert_eq!(stream.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        stream.up.waits(Waits::Nobody, later);
        assert_eq!(stream.deadline(), Some((later + Duration::from_secs(1), Cause::ServerSilent)));
        // The server has begun to respond.
        stream.down.took(1, later);
        assert_eq!(stream.deadline(), Some((begun + Duration::from_secs(1), Cause::ServerSilent)));
    }

    #[test]
    fn a_receiver_that_takes_some_gets_on_though_the_rest_of_a_send_waits() {
        on_both_drivers(|io| async move {
            let here = io.here();
            let (to, mut theirs) = pair(&io);
            let direction = Direction::new(Side::Server, here.now());
            let mut bulk = chain(8 << 20);
            let mut sending = pin!(direction.send(here, &to, &mut bulk));
            let mut room = vec![0; 32 << 10];
            for _ in 0..3 {
                let before = direction.last(Side::Client);
                while direction.last(Side::Client) == before {
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
                assert!(direction.last(Side::Client) > before && direction.bytes() == 0);
            }
        });
    }

    #[test]
    fn as_much_is_read_at_once_as_went_at_once() {
        on_both_drivers(|io| async move {
            let here = io.here();
            let (to, mut theirs) = pair(&io);
            let direction = Direction::new(Side::Server, here.now());
            assert_eq!(direction.room(), READ_AT_ONCE, "nothing had to wait");
            let mut bulk = chain(1 << 20);
            {
                let mut sending = pin!(direction.send(here, &to, &mut bulk));
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
            assert_eq!((direction.room(), direction.bytes()), (0, 1 << 20), "it had to wait");
            taken(here, &to, &mut theirs).await;
            for went in [1000, 17_000, READ_AT_ONCE] {
                direction.send(here, &to, &mut chain(went - direction.room())).await.unwrap();
                assert_eq!(direction.room(), went);
                taken(here, &to, &mut theirs).await;
            }
            direction.send(here, &to, &mut chain(1)).await.unwrap();
            assert_eq!(direction.room(), READ_AT_ONCE, "and no more");
        });
    }
}
