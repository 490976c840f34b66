//! The streams of a connection, without IO: turns input bytes into wake-ups of waiting streams, and what
//! streams send into output bytes.
//!
//! Rules:
//! 1. An entry lives as long as its [`Stream`] handle. Events find streams in the table; handles find their
//!    entries by number.
//! 2. A caller that makes output wakes the driver, once until the driver takes the output.
//! 3. Streams that wait for room are woken in the order of their arrival, as many at a time as can send a
//!    frame. A stream that does not use its turn loses it. So no stream is woken without room, and none reads
//!    for a connection that cannot send.
//! 4. Each wake-up takes the waker out, so no waker is kept longer than needed.

use super::error::{ConnEnd, StreamError};
use super::limits::MAX_INTERIM;
use super::stream::{ResponseHead, Stream};
use manylane_buf::Chain;
use manylane_h2::{
    Config, Connection, ConnectionError, Counts, Event, MAX_OUTPUT, Reason, Request, Role, SendError,
    StreamId, StreamMap, Violation,
};
use manylane_http::Head;
use manylane_pool::{AllocError, Pool, Pooled};
use manylane_sched::{Class, Here, Time};
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A request that began.
#[derive(Debug)]
pub struct Incoming {
    /// The request, or `Err` if its head was too large: respond with 431.
    pub request: Result<Request, TooLarge>,
    /// True if nothing follows.
    pub end: bool,
}

/// The head is larger than the connection accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// State of a stream besides that of the protocol.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Heads of responses, oldest first.
    pub(crate) heads: Option<Pooled<QueuedHead>>,
    /// Data that arrived and was not taken.
    pub(crate) data: Chain,
    pub(crate) trailers: Option<Pooled<Head>>,
    /// True if the peer sent its end.
    pub(crate) end: bool,
    /// True if this side sent its end.
    pub(crate) sent_end: bool,
    pub(crate) over: Option<StreamError>,
    /// Wakers of the tasks that wait for heads and data, for room, and for the end.
    pub(crate) receiver: Option<Waker>,
    pub(crate) sender: Option<Waker>,
    pub(crate) watcher: Option<Waker>,
}

#[derive(Debug)]
pub(crate) struct QueuedHead {
    pub(crate) head: ResponseHead,
    pub(crate) next: Option<Pooled<QueuedHead>>,
}

/// Payload of the ping that tests whether an idle peer is alive.
const ALIVE: [u8; 8] = *b"there?!!";

manylane_sync::lazy_static! {
    static ENTRIES: Pool<Entry> = Pool::new("mux stream").expect("the size is a constant below the bound");
}
manylane_sync::lazy_static! {
    static HEADS: Pool<QueuedHead> = Pool::new("mux head").expect("the size is a constant below the bound");
}
manylane_sync::lazy_static! {
    static TRAILERS: Pool<Head> = Pool::new("mux trailers").expect("the size is a constant below the bound");
}

fn wake(waiter: &mut Option<Waker>) {
    if let Some(waker) = waiter.take() {
        waker.wake();
    }
}

/// Stores the waker of `context` in `waiter`.
pub(crate) fn park(waiter: &mut Option<Waker>, context: &Context<'_>) {
    match waiter {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *waiter = Some(context.waker().clone()),
    }
}

impl Entry {
    fn over(&mut self, error: StreamError) {
        self.over.get_or_insert(error);
        wake(&mut self.receiver);
        wake(&mut self.sender);
        wake(&mut self.watcher);
    }

    fn push_head(&mut self, head: ResponseHead) -> Result<(), AllocError> {
        let new = HEADS.alloc(QueuedHead { head, next: None })?;
        let mut count = 0;
        let mut last = &mut self.heads;
        while let Some(queued) = last {
            last = &mut queued.next;
            count += 1;
        }
        *last = Some(new);
        if count >= MAX_INTERIM {
            self.heads = self.heads.take().and_then(|mut oldest| oldest.next.take());
        }
        wake(&mut self.receiver);
        Ok(())
    }
}

pub(crate) struct State {
    pub(crate) h2: Connection,
    pub(crate) entries: StreamMap<Pooled<Entry>>,
    /// Waker of the task that has the socket.
    driver: Option<Waker>,
    /// True if that task waits for output.
    wants_output: bool,
    /// Number of output bytes that were taken and are not written.
    unwritten: usize,
    /// True if input is not handled because the peer does not read.
    stalled: bool,
    /// Reason why the connection is over.
    pub(crate) over: Option<ConnEnd>,
    /// Number of streams that began.
    begun: u64,
    /// Time since which there is no stream.
    idle_since: Option<Time>,
    /// Time when this side announced that it leaves.
    leaves_since: Option<Time>,
    /// Wakers of the tasks that wait for the peer's first settings.
    unsettled: Vec<Waker>,
    /// Streams that wait to send an interim response.
    pub(crate) interim: Vec<StreamId>,
    /// True while the ping to an idle peer waits for its answer.
    pinged: bool,
}

pub(crate) struct Core {
    pub(crate) here: Here,
    state: RefCell<State>,
}

/// The streams of one HTTP/2 connection, without its IO. It is a cheap handle: clones share the connection.
///
/// The driver passes in [input](Self::input) and takes [output](Self::poll_output). It calls
/// [`grant`](Self::grant) after each of them. [`Conn`](super::Conn) is such a driver with a socket.
#[derive(Clone)]
pub struct Mux(pub(crate) Rc<Core>);

impl Mux {
    /// Creates the server's side of a connection on the lane `here`.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn server(config: Config, here: Here) -> Result<Self, SendError> {
        Ok(Self::new(Connection::server(config, now(here))?, here))
    }

    /// Creates the client's side.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn client(config: Config, here: Here) -> Result<Self, SendError> {
        Ok(Self::new(Connection::client(config, now(here))?, here))
    }

    /// Creates the server's side of a connection whose first request came in HTTP/1 with `Upgrade: h2c`. The
    /// output begins with the response 101. The returned stream is the request, which is complete. Returns
    /// `None` if the request does not ask for the upgrade as the RFC requires: handle it as HTTP/1.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn upgraded(config: Config, here: Here, request: &Head) -> Result<Option<(Self, Stream)>, SendError> {
        let Some((h2, id)) = Connection::upgraded(config, now(here), request)? else { return Ok(None) };
        let entry = ENTRIES.alloc(Entry { end: true, ..Entry::default() });
        let mux = Self::new(h2, here);
        mux.state().add(id, entry.map_err(|_| SendError::NoMemory)?);
        let stream = Stream::new(mux.clone(), id);
        Ok(Some((mux, stream)))
    }

    fn new(h2: Connection, here: Here) -> Self {
        let state = State {
            h2,
            entries: StreamMap::default(),
            driver: None,
            wants_output: false,
            unwritten: 0,
            stalled: false,
            over: None,
            begun: 0,
            idle_since: Some(here.now()),
            leaves_since: None,
            unsettled: Vec::new(),
            interim: Vec::new(),
            pinged: false,
        };
        Self(Rc::new(Core { here, state: RefCell::new(state) }))
    }

    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.0.state.borrow_mut()
    }

    // -- for the driver

    /// Reads frames from `input`, wakes the streams that they are for, and calls `begin` with each new
    /// stream. The rest of `input` is the beginning of a frame, or everything while the peer does not read.
    ///
    /// # Errors
    /// [`ConnectionError`]: write the output that is left, and close.
    pub fn input(
        &self,
        input: &mut Chain,
        begin: &mut impl FnMut(Stream, Incoming),
    ) -> Result<(), ConnectionError> {
        let now = now(self.0.here);
        let mut state = self.state();
        while state.h2.handle_input(now, input)? {
            while let Some(event) = state.h2.poll_event() {
                let Some((id, incoming)) = state.happened(event) else { continue };
                drop(state);
                begin(Stream::new(self.clone(), id), incoming);
                state = self.state();
            }
        }
        state.stalled = state.h2.output_len() >= MAX_OUTPUT;
        Ok(())
    }

    /// Waits for output and appends it to `out`. Returns true with the last output. The output counts as
    /// waiting until [`set_unwritten`](Self::set_unwritten) says that it is written.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn poll_output(&self, context: &Context<'_>, out: &mut Chain) -> Poll<Result<bool, SendError>> {
        let mut state = self.state();
        let last = state.is_over();
        if state.h2.output_len() == 0 && !last {
            park(&mut state.driver, context);
            state.wants_output = true;
            return Poll::Pending;
        }
        let unwritten = state.unwritten + state.h2.output_len();
        state.unwritten = unwritten;
        state.h2.set_unwritten(unwritten);
        state.h2.poll_output(out)?;
        if std::mem::take(&mut state.stalled) {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(last))
    }

    /// Sets the number of taken output bytes that are not written yet.
    pub fn set_unwritten(&self, bytes: usize) {
        let mut state = self.state();
        state.unwritten = bytes;
        state.h2.set_unwritten(bytes);
    }

    /// Wakes streams that wait for room, as many as there is room for. Returns true if others still wait.
    /// Then call it again after the woken streams have run: woken earlier, the others would find no room and
    /// would queue up again.
    pub fn grant(&self) -> bool {
        let mut state = self.state();
        if state.h2.has_output_room() {
            let State { interim, entries, .. } = &mut *state;
            for id in interim.drain(..) {
                if let Some(entry) = entries.get_mut(&id) {
                    wake(&mut entry.sender);
                }
            }
        }
        for _ in 0..state.h2.turns() {
            let Some(id) = state.h2.next_writable() else { break };
            if let Some(entry) = state.entries.get_mut(&id) {
                wake(&mut entry.sender);
            }
        }
        state.h2.turns() > 0
    }

    /// Begins a turn of the task of `context`, the driver, which is woken when this side changes the
    /// connection. A poll of that task is one turn, however often it reads.
    pub fn begin_turn(&self, context: &Context<'_>) {
        let mut state = self.state();
        park(&mut state.driver, context);
        state.h2.begin_turn();
    }

    /// Returns the class in which the driver should have its next turn, if this turn has handled as much
    /// input as it may.
    ///
    /// Where streams were reset it is the heavy class: rounds run one such task each, look for what others
    /// sent, and serve that first. Otherwise one connection that resets streams would fill the lane's rounds.
    pub fn next_turn(&self) -> Option<Class> {
        let state = self.state();
        let class = if state.h2.has_reset_enough() { Class::Heavy } else { Class::Normal };
        state.h2.is_turn_over().then_some(class)
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&self) -> Counts {
        self.state().h2.take_counts()
    }

    /// Returns the last rule that the peer broke since the last call, if the counts say that it broke one.
    #[cold]
    pub fn take_violation(&self) -> Option<Box<Violation>> {
        self.state().h2.take_violation()
    }

    /// Sets whether glitches beyond the threshold are only counted and do not end the connection.
    pub fn set_tolerant(&self, tolerant: bool) {
        self.state().h2.set_tolerant(tolerant);
    }

    /// Returns whether input waits until output is taken.
    pub fn is_stalled(&self) -> bool {
        self.state().stalled
    }

    /// Ends the connection, and all of its streams with it.
    pub fn fail(&self, end: ConnEnd) {
        let mut state = self.state();
        state.over.get_or_insert(end);
        for entry in state.entries.values_mut() {
            if entry.over.is_none() && !(entry.end && entry.sent_end) {
                entry.over(StreamError::Connection(end));
            }
        }
        state.unsettled.drain(..).for_each(Waker::wake);
        state.kick();
    }

    /// Returns the time since which there is no stream, and whether there ever was one.
    pub fn idle_since(&self) -> Option<(Time, bool)> {
        let state = self.state();
        state.idle_since.map(|since| (since, state.begun > 0))
    }

    /// Returns the time since which settings wait for their acknowledgement.
    pub fn settings_since(&self) -> Option<Time> {
        self.state().h2.settings_unacknowledged_since().map(time)
    }

    /// Returns the time when this server announced that it leaves, until [`shutdown`](Self::shutdown) is
    /// called once more; `None` for a client.
    pub fn leaves_since(&self) -> Option<Time> {
        self.state().leaves_since
    }

    // -- for all callers

    /// Announces that no further streams are accepted. Streams under way go on; the connection ends after the
    /// last.
    pub fn shutdown(&self) {
        let mut state = self.state();
        state.leaves_since = match state.leaves_since {
            None if state.h2.role() == Role::Server => Some(self.0.here.now()),
            _ => None,
        };
        // Without memory, the connection has failed, which its driver sees.
        let _ = state.h2.shutdown();
        state.kick();
    }

    /// Ends the connection at once.
    pub fn abort(&self, reason: Reason) {
        let mut state = self.state();
        state.h2.abort(reason);
        state.kick();
    }

    /// Returns which end of the connection this is.
    pub fn role(&self) -> Role {
        self.state().h2.role()
    }

    /// Returns the number of open streams: `fc_nb_streams`, `bc_nb_streams`.
    pub fn open_streams(&self) -> usize {
        self.state().h2.open_streams() as usize
    }

    /// Returns whether a client may begin a stream now.
    pub fn can_begin(&self) -> bool {
        let state = self.state();
        state.over.is_none() && state.h2.can_begin()
    }

    /// Returns whether either side announced that it leaves, or the connection is over.
    pub fn is_leaving(&self) -> bool {
        let state = self.state();
        state.over.is_some() || state.h2.error().is_some() || state.h2.is_leaving()
    }

    /// Returns the number of concurrent streams that the peer allows.
    pub fn peer_max_streams(&self) -> u32 {
        self.state().h2.peer_max_streams()
    }

    /// Returns the number of concurrent streams that both sides allow: `fc_settings_streams_limit`,
    /// `bc_settings_streams_limit`.
    pub fn streams_limit(&self) -> u32 {
        self.state().h2.streams_limit()
    }

    /// Waits for the server's first settings, and returns whether it accepts extended CONNECT (RFC 8441).
    /// Returns false if the connection is over.
    pub fn poll_takes_protocols(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.h2.is_settled() || state.over.is_some() {
            return Poll::Ready(state.over.is_none() && state.h2.peer_takes_protocols());
        }
        if !state.unsettled.iter().any(|waker| waker.will_wake(context.waker())) {
            state.unsettled.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns the number of glitches of the peer so far: `fc_glitches`, `bc_glitches`.
    pub fn glitches(&self) -> u32 {
        self.state().h2.glitches().total()
    }

    /// Returns the number of streams that began on the connection.
    pub fn begun(&self) -> u64 {
        self.state().begun
    }

    /// Returns the lane.
    pub fn here(&self) -> Here {
        self.0.here
    }

    /// Begins a stream of a client with a request. `scheme` is `http` or `https`. `protocol` makes it an
    /// extended CONNECT (RFC 8441) in place of the head's method. `end` says that there is no data.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn begin(
        &self,
        head: &Head,
        scheme: &[u8],
        protocol: Option<&[u8]>,
        end: bool,
    ) -> Result<Stream, SendError> {
        let mut state = self.state();
        if state.over.is_some() {
            return Err(SendError::Failed);
        }
        let entry = ENTRIES.alloc(Entry { sent_end: end, ..Entry::default() });
        let entry = entry.map_err(|_| SendError::NoMemory)?;
        let id = state.h2.send_request(head, scheme, protocol, end)?;
        state.add(id, entry);
        state.kick();
        drop(state);
        Ok(Stream::new(self.clone(), id))
    }
}

/// Operations for a driver with a socket.
#[cfg(not(any(loom, manylane_sim)))]
impl Mux {
    /// Returns true if nothing will be written after the current output.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over()
    }

    /// Returns whether either side leaves and no stream is open, even if received data is not taken yet.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.h2.is_leaving() && state.h2.open_streams() == 0
    }

    /// Returns the reason why the connection is over.
    pub(crate) fn end(&self) -> ConnEnd {
        let state = self.state();
        match (state.over, state.h2.error()) {
            (Some(end), _) => end,
            (None, Some(error)) => ConnEnd::Protocol(error),
            (None, None) => ConnEnd::Drained,
        }
    }

    /// Sends a ping to test whether the peer is alive.
    pub(crate) fn ping(&self) {
        let mut state = self.state();
        // Without memory, the connection has failed, which its driver sees.
        let _ = state.h2.ping(ALIVE);
        state.pinged = true;
        state.kick();
    }

    /// Returns whether the peer has not answered that ping yet.
    pub(crate) fn is_pinged(&self) -> bool {
        self.state().pinged
    }

    /// Announces the end without waiting for streams under way: there was none for a long time.
    pub(crate) fn leave(&self) {
        self.shutdown();
        if self.leaves_since().is_some() {
            self.shutdown();
        }
    }
}

impl fmt::Debug for Mux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.state.try_borrow() {
            Ok(state) => f.debug_struct("Mux").field("h2", &state.h2).field("over", &state.over).finish(),
            Err(_) => f.write_str("Mux(in use)"),
        }
    }
}

impl State {
    /// Wakes the driver if there is output or the connection is over (rule 2).
    pub(crate) fn kick(&mut self) {
        if self.is_over() || (self.h2.output_len() > 0 && self.wants_output) {
            self.wants_output = false;
            wake(&mut self.driver);
        }
    }

    fn is_over(&self) -> bool {
        self.over.is_some() || self.h2.error().is_some() || self.h2.is_drained()
    }

    fn add(&mut self, id: StreamId, entry: Pooled<Entry>) {
        self.entries.insert(id, entry);
        self.begun += 1;
        self.idle_since = None;
    }

    /// Removes the entry of a dropped handle; its stream has ended at least on this side.
    pub(crate) fn remove(&mut self, id: StreamId, now: Time) {
        drop(self.entries.remove(&id));
        if self.entries.is_empty() {
            self.idle_since = Some(now);
            // The driver starts its idle timer.
            wake(&mut self.driver);
        }
        self.kick();
    }

    /// Handles an event: passes it to its stream, or returns a new stream.
    fn happened(&mut self, event: Event) -> Option<(StreamId, Incoming)> {
        match event {
            Event::Request { stream, request, end } => self.began(stream, Ok(request), end),
            Event::TooLarge { stream, end } => self.began(stream, Err(TooLarge), end),
            Event::Interim { stream, response } => {
                self.tell(stream, |entry| entry.push_head(ResponseHead::Interim(response)))
            }
            Event::Response { stream, response, end } => self.tell(stream, |entry| {
                entry.end = end;
                entry.push_head(ResponseHead::Final { response, end })
            }),
            Event::Data { stream, mut data, end } => self.tell(stream, |entry| {
                entry.data.append_compact(&mut data)?;
                entry.end = end;
                wake(&mut entry.receiver);
                Ok::<_, manylane_buf::Error>(())
            }),
            Event::Trailers { stream, trailers } => self.tell(stream, |entry| {
                entry.trailers = Some(TRAILERS.alloc(trailers)?);
                entry.end = true;
                wake(&mut entry.receiver);
                Ok::<_, AllocError>(())
            }),
            Event::Reset { stream, reason, problem } => {
                let error = match problem {
                    Some(problem) => StreamError::Broken(problem),
                    None if reason == Reason::REFUSED_STREAM && self.h2.role() == Role::Client => {
                        StreamError::Refused
                    }
                    None => StreamError::Reset(reason),
                };
                if let Some(entry) = self.entries.get_mut(&stream) {
                    entry.over(error);
                }
                None
            }
            Event::Settings => {
                self.unsettled.drain(..).for_each(Waker::wake);
                None
            }
            Event::Pong { payload } => {
                self.pinged &= payload != ALIVE;
                None
            }
            Event::Refused { .. } | Event::GoAway { .. } => None,
        }
    }

    fn began(
        &mut self,
        id: StreamId,
        request: Result<Request, TooLarge>,
        end: bool,
    ) -> Option<(StreamId, Incoming)> {
        match ENTRIES.alloc(Entry { end, ..Entry::default() }) {
            Ok(entry) => {
                self.add(id, entry);
                Some((id, Incoming { request, end }))
            }
            Err(_) => {
                // No task knows the stream. If the reset fails, so does the connection, which the driver
                // sees.
                let _ = self.h2.reset(id, Reason::REFUSED_STREAM);
                None
            }
        }
    }

    /// Passes something to a stream; without memory for it, the stream ends.
    fn tell<E>(
        &mut self,
        id: StreamId,
        give: impl FnOnce(&mut Entry) -> Result<(), E>,
    ) -> Option<(StreamId, Incoming)> {
        let entry = self.entries.get_mut(&id)?;
        if give(entry).is_err() {
            entry.over(StreamError::Memory);
            let _ = self.h2.reset(id, Reason::INTERNAL_ERROR);
        }
        None
    }
}

/// Returns the lane's time as a duration, as the protocol uses it.
pub(crate) fn now(here: Here) -> Duration {
    Duration::from_nanos(here.now().as_nanos())
}

/// Converts a duration that [`now`] returned to a time.
fn time(since: Duration) -> Time {
    Time::from_nanos(since.as_nanos() as u64)
}
