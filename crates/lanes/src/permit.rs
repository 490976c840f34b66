//! A stream's permit of a server.

use super::local::Local;
use super::timer::Timer;
use crate::scopes::Memory;
use crate::traffic::Parties;
use manylane_balance::{Index, Input, Key, NoPick, Priority, QueueState};
use manylane_http::Head;
use manylane_net::Packets;
use manylane_plan::Cause;
use manylane_plan::connect_timings::ConnectTimings;
use manylane_plan::generation::{Backend, SendHeader, Server};
use manylane_sched::Time;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Permit of a stream that a server serves. Dropping it releases the server.
#[derive(Debug)]
pub struct ServerPermit {
    local: Rc<Local>,
    backend: usize,
    index: Index,
    /// Entry of the stream in the lane's list; `None` if the stream has no client.
    entry: Option<u32>,
    since: Time,
    /// The stream has a connection to the server.
    reached: Cell<bool>,
}

/// Reason why a stream got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPermit {
    /// No server takes requests.
    NoServer,
    /// The time in a queue ran out, of this server or of the backend.
    Time(Option<Index>),
    /// Something else ended the stream.
    Ended(Cause),
}

/// Requirements of a stream for its server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Key for the balancing algorithm.
    pub key: Key<'a>,
    /// This server, whatever the algorithm says, unless its queue is full.
    pub server: Option<Index>,
    /// Priority in queues.
    pub priority: Priority,
    /// The server that has just failed.
    pub avoid: Option<Index>,
    /// A cookie or a rule chose `server`: the stream leaves it only when retries allow that.
    pub persistent: bool,
    /// Packet marks of the connection.
    pub packets: Packets,
    /// Entry of the stream in the lane's list.
    pub stream: Option<u32>,
    /// Head of the request, if there is one: for `usesrc hdr_ip`.
    pub head: Option<&'a Head>,
    /// Values of the backend's expressions for server names within TLS.
    pub names: &'a [Option<Box<str>>],
    /// Headers that connections to servers begin with before TLS.
    pub headers: Option<&'a HeadersBeforeTls>,
    /// Stores the TLS state of a server that was not reached, for samples.
    pub memory: Option<&'a Memory>,
    /// The request may be sent as early data of TLS.
    pub early: bool,
    /// The request offers WebSocket.
    pub websocket: bool,
    /// Time of `set-timeout queue`.
    pub queue_time: SetTime,
    /// Time of `set-timeout connect`.
    pub connect_time: SetTime,
}

/// Headers of the PROXY protocol that connections to servers begin with before TLS.
#[derive(Debug, Default)]
pub struct HeadersBeforeTls {
    /// For servers without fields of their own.
    pub alike: Vec<(SendHeader, Vec<u8>)>,
    /// For servers with such fields, by their numbers: these may read the server.
    pub own: Vec<(usize, Vec<u8>)>,
}

impl HeadersBeforeTls {
    /// Returns the header for a server; `None` if it could not be made.
    pub fn of(&self, server: &Server) -> Option<&[u8]> {
        let how = server.header?;
        let bytes = if server.tlvs.is_empty() {
            &self.alike.iter().find(|header| header.0 == how)?.1
        } else {
            &self.own.iter().find(|header| header.0 == server.index)?.1
        };
        Some(bytes)
    }
}

/// A timeout that a rule may have set for the stream. It takes four bytes, since each waiting stream has it.
#[derive(Clone, Copy, Debug)]
pub struct SetTime(u32);

impl Default for SetTime {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl SetTime {
    /// No rule has set the time: the configured one holds.
    const NONE: u32 = u32::MAX;

    /// Sets a time, up to 49 days; `None` leaves the configured one.
    #[inline]
    pub fn new(time: Option<Duration>) -> Self {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(Self::NONE - 1);
        Self(time.map_or(Self::NONE, millis))
    }

    /// Returns the time that was set, else the configured one.
    #[inline]
    pub fn or(self, configured: Option<Duration>) -> Option<Duration> {
        match self.0 {
            Self::NONE => configured,
            millis => Some(Duration::from_millis(millis.into())),
        }
    }
}

/// Number of picks that other lanes may win before a stream enters a queue.
const TRIES: u32 = 4;

impl ServerPermit {
    /// Takes a permit of the wanted server, or of one that the algorithm chooses, if one is free now.
    pub fn at_once(local: &Rc<Local>, backend: &Backend, wanted: &Wanted<'_>) -> Option<Self> {
        let balancer = &backend.balancer;
        let now = local.here().now();
        let index = match wanted.server {
            Some(index) => index,
            None => {
                balancer.pick(&local.reader(), &Input { now, key: wanted.key, avoid: wanted.avoid }).ok()?
            }
        };
        balancer.take(index, now).ok()?;
        Some(Self::taken(
            local,
            backend,
            index,
            wanted.server.is_none() && wanted.avoid != Some(index),
            wanted.stream,
        ))
    }

    /// Takes a permit of the wanted server, or of one that the algorithm chooses; if none is free, the stream
    /// waits in a queue.
    pub async fn enter(
        local: &Rc<Local>,
        backend: &Backend,
        wanted: &Wanted<'_>,
        timer: &Timer,
        timings: &mut ConnectTimings,
    ) -> Result<Self, NoPermit> {
        let balancer = &backend.balancer;
        let here = local.here();
        let by_key = balancer.algorithm().goes_by_key();
        let deadline =
            wanted.queue_time.or(backend.timeouts.queue).map_or(Time::MAX, |time| here.now() + time);
        let (mut server, mut avoid) = (wanted.server, wanted.avoid);
        let (mut tries, mut refused) = (0, false);
        loop {
            let now = here.now();
            let picked = match server {
                Some(index) => Ok(index),
                None => balancer.pick(&local.reader(), &Input { now, key: wanted.key, avoid }),
            };
            let waker = || poll_fn(|context| Poll::Ready(context.waker().clone()));
            let mut queue = None;
            let position = match picked {
                Err(NoPick::NoneUsable) => return Err(NoPermit::NoServer),
                Err(NoPick::AllFull) => balancer.enqueue_any(wanted.priority, now, waker().await),
                Ok(index) => {
                    if balancer.take(index, now).is_ok() {
                        let balanced = server.is_none() && wanted.avoid != Some(index);
                        return Ok(Self::taken(local, backend, index, balanced, wanted.stream));
                    }
                    tries += 1;
                    if server.is_none() && !by_key && tries < TRIES {
                        continue; // another lane was faster
                    }
                    match balancer.enqueue(index, wanted.priority, now, waker().await) {
                        Ok(position) => {
                            queue = Some(index);
                            let waiting = balancer.waiting(index).into();
                            backend.servers[index.get()].counts.own().peak_waiting.raise(waiting);
                            position
                        }
                        // The server's queue is full: try another server, once. If that queue is full, too,
                        // wait for the first free server: further tries might never end.
                        Err(_) if !refused => {
                            refused = true;
                            (server, avoid) = (None, Some(index));
                            continue;
                        }
                        Err(_) => balancer.enqueue_any(wanted.priority, now, waker().await),
                    }
                }
            };
            let before = if queue.is_some() { &mut timings.server_queue } else { &mut timings.backend_queue };
            let entered = balancer.served_from_queue(queue);
            let passed = || balancer.served_from_queue(queue).saturating_sub(entered);
            let in_queue = Waiting { before, passed };
            backend.counts.own().peak_waiting.raise(balancer.waiting_for_any());
            // One future for everything that may end the wait, on the timer that the stream has anyway: a
            // waiting request is polled once more for it, so its cost is the cost of waiting.
            let mut waiting = balancer.wait(position);
            let mut waits = false;
            let turn = poll_fn(|context| {
                // A waiter that has just entered is woken if its turn came meanwhile.
                if std::mem::replace(&mut waits, true)
                    && let Poll::Ready(turn) = Pin::new(&mut waiting).poll(context)
                {
                    return Poll::Ready(Ok(turn));
                }
                if let Some(cause) =
                    wanted.stream.and_then(|entry| local.streams.poll(entry, context.waker()))
                {
                    return Poll::Ready(Err(NoPermit::Ended(cause)));
                }
                timer.poll(deadline, context).map(|()| Err(NoPermit::Time(queue)))
            });
            let turn = turn.await?;
            match turn {
                QueueState::Granted(index, served) => {
                    in_queue.moves(served);
                    // a server that takes a stream from the backend's queue was not chosen by the algorithm
                    let balanced = server.is_none() && queue == Some(index);
                    return Ok(Self::taken(local, backend, index, balanced, wanted.stream));
                }
                QueueState::Elsewhere | QueueState::Waiting(_) => {
                    let passed = (in_queue.passed)();
                    in_queue.moves(passed);
                    server = None;
                }
            }
        }
    }

    /// Makes the permit of a stream that the server counts already. `balanced` says that the algorithm chose
    /// the server.
    fn taken(local: &Rc<Local>, backend: &Backend, index: Index, balanced: bool, entry: Option<u32>) -> Self {
        if let Some(entry) = entry {
            local.streams.has_server(entry, Some(backend.servers[index.get()].number));
        }
        let permit = Self {
            local: local.clone(),
            backend: backend.number,
            index,
            entry,
            since: local.here().now(),
            reached: Cell::new(false),
        };
        permit.parties().server_taken();
        if balanced {
            permit.parties().server_chosen();
        }
        permit
    }

    /// Returns whom events of the stream at the server concern.
    #[inline]
    pub fn parties(&self) -> Parties<'_> {
        let backend = self.backend();
        let server = Some(&*backend.servers[self.index.get()]);
        Parties { backend: Some(backend), server, ..Parties::new(&self.local.generation) }
    }

    /// Notes that the stream has a connection to the server.
    pub fn reached(&self, timings: &ConnectTimings) {
        self.reached.set(true);
        self.parties().server_reached(timings);
    }

    /// Returns the cause if something else has ended the stream. Otherwise its task is woken when that
    /// happens.
    #[inline]
    pub fn ended(&self, context: &Context<'_>) -> Option<Cause> {
        self.local.streams.poll(self.entry?, context.waker())
    }

    /// Runs `work`, unless something else ends the stream first.
    pub async fn unless_ended<W: Future>(&self, work: Pin<&mut W>) -> Result<W::Output, Cause> {
        self.local.streams.unless_ended(self.entry, work).await
    }

    /// Index of the server in its backend.
    #[inline]
    pub fn index(&self) -> Index {
        self.index
    }

    /// The server's backend.
    #[inline]
    pub fn backend(&self) -> &Backend {
        &self.local.generation.backends[self.backend]
    }

    /// The server.
    #[inline]
    pub fn server(&self) -> &Server {
        &self.backend().servers[self.index.get()]
    }
}

/// A stream in a queue. A stream that leaves before its turn, because its client left or its time is over,
/// counts itself, as the log line of a served stream does.
struct Waiting<'a, F: Fn() -> u64> {
    /// Number of requests served from such queues while the stream waited.
    before: &'a mut u64,
    passed: F,
}

impl<F: Fn() -> u64> Waiting<'_, F> {
    /// Ends the wait after `passed` other requests.
    fn moves(self, passed: u64) {
        *self.before += passed;
        std::mem::forget(self); // holds only borrows
    }
}

impl<F: Fn() -> u64> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        *self.before += (self.passed)() + 1;
    }
}

impl Drop for ServerPermit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.local.streams.has_server(entry, None);
        }
        if self.reached.get() {
            self.parties().server_left();
        }
        self.parties().server_released(self.local.here().now().since(self.since));
        self.backend().balancer.release(self.index);
    }
}
