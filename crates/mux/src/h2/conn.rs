//! An HTTP/2 connection over a transport: one task reads, writes, and keeps time.

use super::core::{Core, Incoming, Mux};
use super::error::ConnEnd;
use super::limits::{LEAVE_ANSWER, LINGER, LINGER_BYTES, READ};
use super::stream::Stream;
use manylane_buf::Chain;
use manylane_h2::{Config, Reason, Role, SendError};
use manylane_net::{Connection, TransferError};
use manylane_sched::{Here, Sleep, Time};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// Timeouts of a connection; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnTimeouts {
    /// Time for the first request, preface included: `timeout http-request`.
    pub first: Option<Duration>,
    /// Time for the next request while no stream is open: `timeout http-keep-alive`.
    pub idle: Option<Duration>,
    /// Time for the peer to accept more bytes: `timeout client`, `timeout server`.
    pub write: Option<Duration>,
    /// Time for the peer to acknowledge settings.
    pub settings: Option<Duration>,
    /// Time without a stream after which the peer gets a ping, and time for its answer: `idle-ping`.
    pub ping: Option<Duration>,
}

/// One HTTP/2 connection on its lane, with its transport. It is a cheap handle: clones share the connection.
/// It dereferences to [`Mux`], which has the operations on streams.
#[derive(Clone, Debug)]
pub struct Conn {
    mux: Mux,
    inner: Rc<Inner>,
}

/// A handle that does not keep the connection open: that closes once its last [`Conn`] is dropped.
#[derive(Clone, Debug)]
pub struct WeakConn {
    mux: Weak<Core>,
    inner: Weak<Inner>,
}

impl WeakConn {
    /// Returns a handle that keeps the connection open; `None` if the connection has closed.
    pub fn upgrade(&self) -> Option<Conn> {
        Some(Conn { mux: Mux(self.mux.upgrade()?), inner: self.inner.upgrade()? })
    }

    /// Like [`Mux::can_begin`]; false if the connection has closed.
    pub fn can_begin(&self) -> bool {
        self.upgrade().is_some_and(|conn| conn.can_begin())
    }
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// Bytes that came before this was created.
    received: RefCell<Chain>,
}

impl Conn {
    /// Creates the server's side, for a client of the proxy. `received` holds the bytes that arrived already,
    /// starting with the preface.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn server(
        connection: Connection,
        received: Chain,
        config: Config,
        here: Here,
    ) -> Result<Self, SendError> {
        Ok(Self::new(Mux::server(config, here)?, connection, received))
    }

    /// Creates the client's side, for a server of the proxy.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn client(connection: Connection, config: Config, here: Here) -> Result<Self, SendError> {
        Ok(Self::new(Mux::client(config, here)?, connection, Chain::new()))
    }

    /// Joins an existing `mux` with its transport. `received` holds the bytes that arrived after those that
    /// the mux has read.
    pub fn new(mux: Mux, connection: Connection, received: Chain) -> Self {
        Self { mux, inner: Rc::new(Inner { connection, received: RefCell::new(received) }) }
    }

    /// Returns a handle that does not keep the connection open.
    pub fn downgrade(&self) -> WeakConn {
        WeakConn { mux: Rc::downgrade(&self.mux.0), inner: Rc::downgrade(&self.inner) }
    }

    /// Returns the transport, for its addresses.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// Drives the connection until it is over: reads, writes, enforces the `timeouts`, and calls `begin` with
    /// each new request, which starts a task for it. Only one task may do so. If the future is dropped, all
    /// streams end.
    pub async fn run(&self, timeouts: &ConnTimeouts, begin: impl FnMut(Stream, Incoming)) -> ConnEnd {
        let ends = Ends(&self.mux);
        let sending = Cell::new(None);
        let mut clock = Clock::new(self.mux.here(), timeouts);
        let end = {
            let mut reading = pin!(Some(self.read(begin)));
            let mut writing = pin!(self.write(&sending));
            poll_fn(|context| {
                self.mux.begin_turn(context);
                if let Some(future) = reading.as_mut().as_pin_mut()
                    && let Poll::Ready(end) = future.poll(context)
                {
                    if !matches!(end, ConnEnd::Protocol(_)) {
                        return Poll::Ready(end);
                    }
                    reading.set(None);
                    self.mux.fail(end);
                }
                if let Poll::Ready(end) = writing.as_mut().poll(context) {
                    return Poll::Ready(end);
                }
                if sending.get().is_none() {
                    self.mux.set_unwritten(self.connection().unsent());
                }
                if self.mux.grant() {
                    context.waker().wake_by_ref();
                }
                clock.poll(self, &sending, context)
            })
            .await
        };
        let end = match end {
            // Nothing was left to do.
            ConnEnd::Closed | ConnEnd::Transport(_) if self.mux.is_done() => ConnEnd::Drained,
            _ => clock.end.unwrap_or(end),
        };
        self.mux.fail(end);
        let said =
            matches!(end, ConnEnd::Drained | ConnEnd::Idle | ConnEnd::NoRequest | ConnEnd::Protocol(_));
        if said && self.mux.role() == Role::Server {
            // The linger has a deadline.
            let _ = self.mux.here().timeout(LINGER, self.linger()).await;
        }
        drop(ends);
        end
    }

    async fn read(&self, mut begin: impl FnMut(Stream, Incoming)) -> ConnEnd {
        let mut input = self.inner.received.take();
        loop {
            if let Err(error) = self.mux.input(&mut input, &mut begin) {
                return ConnEnd::Protocol(error);
            }
            // Without input the next read ends the turn, or waits.
            if let Some(class) = self.mux.next_turn().filter(|_| !input.is_empty()) {
                self.mux.here().turn_in(class).await;
                continue;
            }
            if self.mux.is_stalled() {
                // The writer wakes this task when it takes output.
                poll_fn(|_| if self.mux.is_stalled() { Poll::Pending } else { Poll::Ready(()) }).await;
                continue;
            }
            match self.connection().recv_chain(&mut input, READ).await {
                Ok(true) => {}
                Ok(false) => return ConnEnd::Closed,
                Err(error) => return ConnEnd::Transport(error.kind()),
            }
        }
    }

    /// Writes until the last output is written. While a write waits, `sending` holds the time since when, and
    /// the number of bytes that are left.
    async fn write(&self, sending: &Cell<Option<(Time, usize)>>) -> ConnEnd {
        let connection = self.connection();
        let mut out = Chain::new();
        loop {
            let last = match poll_fn(|context| self.mux.poll_output(context, &mut out)).await {
                Ok(last) => last,
                Err(_) => return ConnEnd::Transport(std::io::ErrorKind::OutOfMemory),
            };
            sending.set(Some((self.mux.here().now(), usize::MAX)));
            let sent = if last { self.send_last(&mut out).await } else { connection.send(&mut out).await };
            sending.set(None);
            if let Err(error) = sent {
                return ConnEnd::Transport(error.kind());
            }
            if last {
                return self.mux.end();
            }
        }
    }

    async fn send_last(&self, out: &mut Chain) -> Result<(), TransferError> {
        if out.is_empty() { self.connection().finish().await } else { self.connection().send_last(out).await }
    }

    /// Reads what the peer still sends, until it has read our last bytes and closes.
    async fn linger(&self) {
        let mut read = 0;
        while read <= LINGER_BYTES
            && let Ok(Some(segment)) = self.connection().recv().await
        {
            read += segment.len();
        }
    }
}

impl Deref for Conn {
    type Target = Mux;

    fn deref(&self) -> &Mux {
        &self.mux
    }
}

/// Ends all streams when the task that drives their connection ends.
struct Ends<'a>(&'a Mux);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fail(ConnEnd::Dropped);
    }
}

/// Deadlines of a connection.
struct Clock<'a> {
    timeouts: &'a ConnTimeouts,
    sleep: Sleep,
    /// Reason, if a timer ended the connection.
    end: Option<ConnEnd>,
    /// Time when the connection was over: the rest may be written for [`LINGER`] from then on.
    closing: Option<Time>,
    /// Time of the last ping.
    pinged: Option<Time>,
}

impl<'a> Clock<'a> {
    fn new(here: Here, timeouts: &'a ConnTimeouts) -> Self {
        Self { timeouts, sleep: here.sleep_until(Time::MAX), end: None, closing: None, pinged: None }
    }

    /// Ends what is past its deadline, and sleeps until the next deadline. Ready if nothing more is to be
    /// written.
    fn poll(
        &mut self,
        conn: &Conn,
        sending: &Cell<Option<(Time, usize)>>,
        context: &mut Context<'_>,
    ) -> Poll<ConnEnd> {
        let mux = &conn.mux;
        let now = mux.here().now();
        loop {
            let mut next = Time::MAX;
            let mut has_passed = |since: Option<Time>, time: Option<Duration>| {
                let Some((since, time)) = since.zip(time) else { return false };
                let deadline = since + time;
                next = next.min(deadline);
                deadline <= now
            };
            let mut act = false;
            if let Some((since, left)) = sending.get() {
                // The deadline restarts when the peer accepts some bytes.
                let unsent = conn.connection().unsent();
                let since = if unsent < left { now } else { since };
                sending.set(Some((since, unsent.min(left))));
                if has_passed(Some(since), self.timeouts.write) {
                    return Poll::Ready(ConnEnd::WriteTimeout);
                }
            }
            if mux.is_over() {
                let since = *self.closing.get_or_insert(now);
                if has_passed(Some(since), Some(LINGER)) {
                    return Poll::Ready(mux.end());
                }
            } else {
                if has_passed(mux.settings_since(), self.timeouts.settings) {
                    mux.abort(Reason::SETTINGS_TIMEOUT);
                    act = true;
                }
                if has_passed(mux.leaves_since(), Some(LEAVE_ANSWER)) {
                    mux.shutdown();
                    act = true;
                }
                if let Some((since, begun)) = mux.idle_since()
                    && self.end.is_none()
                {
                    // The time counts from the peer's last sign of life.
                    let pinged = self.pinged.filter(|at| *at >= since);
                    if has_passed(Some(pinged.unwrap_or(since)), self.timeouts.ping) {
                        if pinged.is_some() && mux.is_pinged() {
                            return Poll::Ready(ConnEnd::NoAnswer);
                        }
                        self.pinged = Some(now);
                        mux.ping();
                        act = true;
                    }
                    let time = if begun { self.timeouts.idle } else { self.timeouts.first };
                    if has_passed(Some(since), time) {
                        self.end = Some(if begun { ConnEnd::Idle } else { ConnEnd::NoRequest });
                        mux.leave();
                        act = true;
                    }
                }
            }
            if act {
                // The output of these actions is sent now.
                context.waker().wake_by_ref();
                if !mux.is_over() {
                    continue;
                }
            }
            if self.sleep.deadline() != next {
                self.sleep.reset(next);
            }
            if next == Time::MAX || Pin::new(&mut self.sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
