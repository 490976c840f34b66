//! A server of a ring gets the ring's lines in order, sent by one task of the process.
//!
//! # Protocol
//! 1. The server is a reader of the ring. While it is away, lines wait in the ring. They are lost when the
//!    ring overwrites them.
//! 2. A part that was read is kept until the kernel has taken it. After a connection breaks, the next one
//!    begins with the first line that was not taken as a whole. Lines that the kernel took and the server did
//!    not read are lost with the connection, since the protocol has no acknowledgements. Within TLS, lines
//!    are taken in pieces of 16 KiB: those of the last piece may come twice.
//! 3. The first lane to [start](RingServer::start) the server runs its task, until it is
//!    [closed](RingServer::close) or the lane ends. Generations share a server of the same ring at the same
//!    address, so it continues where it was.

use crate::ring::{Ring, RingReader};
use crate::sender::RETRY;
use crate::stream_server::{FOR_EVER, connect, poll_closed};
use crate::target::{BadTarget, Counts, Delivery, Framing, Sink, Timeouts, lose};
use crate::tls::{LaneTls, TargetTls};
use manylane_buf::{Chain, Cluster, MAX_CLUSTER};
use manylane_io::Io;
use manylane_net::Connection;
use manylane_sched::{Class, Here, TaskKind};
use manylane_stats::CounterGroup;
use manylane_sync::{Arc, LockClass, Mutex};
use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

static SERVER: TaskKind = TaskKind::new("ring server");
static STATE: LockClass = LockClass::new("server of a ring", LockClass::LEAF);

/// A server to which a ring's lines are sent.
pub struct RingServer {
    ring: Arc<Ring>,
    delivery: Delivery,
    framing: Framing,
    counts: CounterGroup<Counts>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timeouts: Timeouts,
    /// TLS of the next connection.
    tls: Option<Arc<TargetTls>>,
    started: bool,
    closed: bool,
    /// Waker of the task, to be woken on close.
    waker: Option<Waker>,
}

/// Lines in the form in which they are sent.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    /// The end of each line.
    ends: Vec<usize>,
}

impl Part {
    /// Takes the next lines of the ring. Returns the number of lines before them that were overwritten.
    fn fill(&mut self, reader: &mut RingReader, framing: Framing) -> u64 {
        let Self { bytes, ends } = self;
        let read = reader.lines(|first, second| {
            if framing == Framing::OctetCount {
                let _ = write!(bytes, "{} ", first.len() + second.len()); // writing to a vector cannot fail
            }
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
            if framing == Framing::Lines {
                bytes.push(b'\n');
            }
            ends.push(bytes.len());
        });
        read.missed
    }

    /// Drops the lines that lie as a whole within the first `bytes`. Returns their number.
    fn drop_sent(&mut self, bytes: usize) -> usize {
        let whole = self.ends.partition_point(|end| *end <= bytes);
        if whole > 0 {
            let sent = self.ends[whole - 1];
            self.bytes.drain(..sent);
            self.ends.drain(..whole);
            self.ends.iter_mut().for_each(|end| *end -= sent);
        }
        whole
    }
}

impl RingServer {
    /// Creates a server at `sink`, which must be a stream.
    ///
    /// # Errors
    /// [`BadTarget`]
    pub fn new(ring: Arc<Ring>, sink: Sink, timeouts: Timeouts) -> Result<Self, BadTarget> {
        let (delivery, framing, tls) = sink.stream()?;
        let state = Mutex::new(&STATE, State { timeouts, tls, ..State::default() });
        Ok(Self { ring, delivery, framing, counts: CounterGroup::new(), state })
    }

    /// True if `other` is sent the lines of the same ring at the same address with the same framing.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_way = match (&self.delivery, &other.delivery) {
            (Delivery::Tcp(own), Delivery::Tcp(other)) => own == other,
            (Delivery::UnixStream(own), Delivery::UnixStream(other)) => own == other,
            _ => false,
        };
        same_way && self.framing == other.framing && self.ring.name() == other.ring.name()
    }

    /// Counters of the ring's lines.
    pub fn counts(&self) -> &CounterGroup<Counts> {
        &self.counts
    }

    fn timeouts(&self) -> Timeouts {
        self.state.lock().timeouts
    }

    fn tls(&self) -> Option<Arc<TargetTls>> {
        self.state.lock().tls.clone()
    }

    /// Takes over the timeouts and TLS of `other`, which is the same otherwise.
    pub fn follow(&self, other: &Self) {
        let (timeouts, tls) = (other.timeouts(), other.tls());
        let mut state = self.state.lock();
        state.timeouts = timeouts;
        let before = std::mem::replace(&mut state.tls, tls);
        drop(state);
        drop(before);
    }

    /// Starts the task on the calling lane, unless it runs already. It begins with the oldest line in the
    /// ring. Without `tls`, a server with TLS gets nothing.
    pub fn start(self: &Arc<Self>, here: Here, io: &Io, tls: Option<LaneTls>) {
        if std::mem::replace(&mut self.state.lock().started, true) {
            return;
        }
        let (own, io) = (self.clone(), io.clone());
        let task =
            async move {
                let mut sending = pin!(own.send_all(here, &io, tls.as_ref()));
                poll_fn(|context| {
                    if own.is_closed(context) { Poll::Ready(()) } else { sending.as_mut().poll(context) }
                })
                .await;
            };
        if here.spawn(&SERVER, Class::Normal, task).is_err() {
            self.state.lock().started = false; // the next lane or generation tries again
        }
    }

    /// Stops sending.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_closed(&self, context: &Context<'_>) -> bool {
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        let before = state.waker.replace(waker);
        let closed = state.closed;
        drop(state);
        drop(before);
        closed
    }

    async fn send_all(&self, here: Here, io: &Io, lane: Option<&LaneTls>) {
        let mut reader = self.ring.reader(false);
        let mut part = Part::default();
        let (mut stream, mut tls) = (None, None);
        loop {
            if part.ends.is_empty() {
                if !has_lines(&reader, stream.as_ref()).await {
                    stream = None;
                    continue;
                }
                lose(&self.counts, part.fill(&mut reader, self.framing));
            }
            let now = self.tls();
            let is_as_before = match (&tls, &now) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now) || now.fits_connections_of(before),
                (before, now) => before.is_none() && now.is_none(),
            };
            stream = stream.filter(|_| is_as_before);
            tls = now;
            let fresh = stream.is_none();
            if fresh {
                let time = self.timeouts().connect;
                stream = connect(&self.delivery, tls.as_deref(), lane, time, here, io).await;
            }
            let taken = match &stream {
                Some(stream) => self.send(&part, stream, here).await,
                None => Err(0),
            };
            let whole = part.drop_sent(taken.unwrap_or_else(|taken| taken));
            self.counts.own().sent.add(whole as u64);
            here.yield_now().await; // lines may arrive faster than they are sent
            if taken.is_err() {
                stream = None;
                if fresh {
                    here.sleep(RETRY).await;
                }
            }
        }
    }

    /// Returns the number of bytes of the part that the kernel took; with `Err`, before the connection
    /// failed.
    async fn send(&self, part: &Part, connection: &Connection, here: Here) -> Result<usize, usize> {
        let mut chain = Chain::new();
        // With TLS, for each piece: where its records end in the chain, and its own end in the part.
        let (mut ends, mut end) = (Vec::new(), 0);
        for piece in part.bytes.chunks(MAX_CLUSTER) {
            let cluster = Cluster::with(piece).map_err(|_| 0_usize)?;
            let mut own = Chain::from(cluster.into_segment());
            if let Some(tls) = connection.tls() {
                own = tls.encrypt(&mut own).map_err(|_| 0_usize)?;
            }
            chain.append_chain(&mut own).map_err(|_| 0_usize)?;
            end += piece.len();
            if connection.tls().is_some() {
                ends.push((chain.len(), end));
            }
        }
        let Some(stream) = connection.socket() else { return Err(0) };
        let (all, mut taken, mut handed) = (chain.len(), 0, false);
        let sending = poll_fn(|context| {
            if !handed {
                match stream.poll_send(Some(&mut chain), context) {
                    Poll::Ready(Ok(())) => handed = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        // After a failure, the driver no longer knows what it had.
                        taken = all.saturating_sub(stream.unsent() + chain.len());
                        return Poll::Pending;
                    }
                }
            }
            let flushed = stream.poll_send(None, context);
            taken = taken.max(if flushed.is_pending() { all.saturating_sub(stream.unsent()) } else { taken });
            flushed
        });
        let time = self.timeouts().server.unwrap_or(FOR_EVER);
        match here.timeout(time, sending).await {
            Ok(Ok(())) => Ok(part.bytes.len()),
            _ if connection.tls().is_none() => Err(taken),
            _ => Err(ends.iter().rev().find(|(records, _)| *records <= taken).map_or(0, |(_, end)| *end)),
        }
    }
}

/// Waits for lines. Returns false if the server has closed the connection.
async fn has_lines(reader: &RingReader, stream: Option<&Connection>) -> bool {
    poll_fn(|context| {
        if stream.is_some_and(|stream| poll_closed(stream, context).is_ready()) {
            return Poll::Ready(false);
        }
        reader.poll_lines(context).map(|()| true)
    })
    .await
}

impl fmt::Debug for RingServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingServer({:?} of {:?})", self.delivery, self.ring.name())
    }
}
