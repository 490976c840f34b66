//! An HTTP/2 connection: turns input bytes into events, and messages into output bytes.
//!
//! [`receive`] handles the input, [`send`] the output, [`settle`] the settings and the end of a connection,
//! [`streams`] the states of streams, [`flow`] the windows.
//!
//! Rules:
//! 1. Only what the peer knows counts. Settings of this side are in force once the peer acknowledges them. A
//!    stream that this side ended counts as open until the caller has taken the frame with its end from the
//!    output.
//! 2. Each byte of a window is accounted for (`flow`). Padding, and bytes of streams that are reset, are
//!    consumed at once.
//! 3. A header block is decoded whatever becomes of its stream, and encoded in the order of the output.
//! 4. `out` only grows between two calls of [`Connection::poll_output`]; the answers to the peer in it are
//!    bounded.
//! 5. After a [`ConnectionError`] nothing is read, and nothing but its GOAWAY is written.

mod flow;
mod receive;
mod send;
mod settle;
mod streams;
mod upgrade;

pub use receive::PREFACE;
pub use send::Sent;
pub use streams::{KeyedHasher, StreamHashBuilder, StreamMap};

use crate::counts::Counts;
use crate::error::{ConnectionError, Fault, Problem, Reason, SendError};
use crate::event::Event;
use crate::frame::settings::MAX_WINDOW;
use crate::frame::{DEFAULT_MAX, goaway, rst_stream, window_update};
use crate::glitch::{Glitch, Glitches};
use crate::hpack;
use crate::limits::{
    Allowance, CHEAP_BURST, CHEAP_PER_SECOND, Config, DECODED_TIMES, DEFAULT_WINDOW, LATE_FRAMES,
    MAX_ANSWERS, MAX_LATE_FRAMES, MAX_REMEMBERED, RESET_BURST, RESETS_PER_SECOND,
};
use crate::stream_id::StreamId;
use crate::violation::{At, Violation};
use flow::{ReceiveWindow, SendWindow};
use manylane_buf::Chain;
use receive::{Block, Reading};
use send::QUANTUM;
use settle::Leaving;
use std::collections::VecDeque;
use std::time::Duration;
use streams::{Side, Stream, Streams, Waiting};

/// The end of a connection that this side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client, which begins streams.
    Client,
    /// The server, which answers them.
    Server,
}

/// Limits and features that the peer's settings announce.
#[derive(Clone, Copy, Debug)]
struct Peer {
    max_streams: u32,
    stream_window: u32,
    max_frame: usize,
    header_list: u32,
    connect_protocol: bool,
}

/// One HTTP/2 connection, as a client or as a server. It belongs to its lane.
pub struct Connection {
    role: Role,
    config: Config,
    peer: Peer,
    failed: Option<ConnectionError>,
    reading: Reading,
    /// The header block that is not complete.
    block: Option<Block>,
    /// True once the peer's first settings came.
    settled: bool,
    decoder: hpack::Decoder,
    encoder: hpack::Encoder,
    streams: Streams,
    /// Last stream that the peer began.
    last_peer: StreamId,
    /// Next stream that this side begins; `None` for a server, or once the numbers are used up.
    next_own: Option<StreamId>,
    /// Number of streams that are not closed (rule 1); the client began all of them.
    open: u32,
    /// Number of the peer's streams whose end is still in the output (rule 1).
    unwritten_ends: u32,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// The event that was read and not yet taken.
    event: Option<Event>,
    /// Queue of the streams that wait for their turn to send. Entries of streams that are gone or wait no
    /// longer are skipped.
    turns: VecDeque<StreamId>,
    /// Streams that a GOAWAY refused and no event has reported yet.
    refused: VecDeque<StreamId>,
    /// List of streams whose windows change together, empty between calls; kept for its memory.
    opened: Vec<StreamId>,
    /// Streams that this side reset lately, newest last.
    remembered: VecDeque<StreamId>,
    /// Number of frames that may still come for streams that this client reset.
    late: u32,
    /// Number of bytes that may still come for streams that this client reset: at most what the connection's
    /// window holds, which bounds what is under way.
    late_bytes: u32,
    /// Whether this side reset more streams than it remembers.
    has_forgotten: bool,
    out: Chain,
    /// Number of times that output was taken.
    outputs: u64,
    /// Number of bytes that were taken and are not yet written.
    unwritten: usize,
    /// Buffer in which small frames are written before they are split off: one cluster for many.
    small: Chain,
    /// Number of bytes of answers in `out` (rule 4).
    answers: usize,
    /// Time when settings were sent that are not yet acknowledged.
    settings_sent: Option<Duration>,
    /// Receive window of new streams that the peer knows (rule 1).
    stream_window: u32,
    leaving: Leaving,
    glitches: Glitches,
    /// True if glitches beyond the threshold do not end the connection now.
    tolerant: bool,
    resets: Allowance,
    cheap: Allowance,
    counts: Counts,
    /// The last rule that the peer broke and that was not taken.
    violation: Option<Box<Violation>>,
    turn: Turn,
}

/// Amount of input handled in this turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    frames: u32,
    /// Number of RST_STREAM frames, and of streams that were reset for the peer's faults.
    resets: u32,
}

/// Returns whether `count` is at its bound; 0 is no bound.
fn reached(count: u32, most: u32) -> bool {
    most > 0 && count >= most
}

impl Connection {
    /// Creates the client's end, and writes preface and settings.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn client(config: Config, now: Duration) -> Result<Self, SendError> {
        Self::new(Role::Client, config, now)
    }

    /// Creates the server's end, writes settings, and expects the preface.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn server(config: Config, now: Duration) -> Result<Self, SendError> {
        Self::new(Role::Server, config, now)
    }

    fn new(role: Role, config: Config, now: Duration) -> Result<Self, SendError> {
        let mut connection = Self::begin(role, config, now);
        connection.announce().map_err(|_| SendError::NoMemory)?;
        Ok(connection)
    }

    fn begin(role: Role, config: Config, now: Duration) -> Self {
        let config = config.clamped();
        let resets = RESET_BURST.max(config.max_streams.saturating_mul(2));
        Self {
            role,
            config,
            peer: Peer {
                max_streams: u32::MAX,
                stream_window: DEFAULT_WINDOW,
                max_frame: DEFAULT_MAX,
                header_list: u32::MAX,
                connect_protocol: false,
            },
            failed: None,
            reading: Reading::begin(role),
            block: None,
            settled: false,
            // The peer may use the old or the new size until it acknowledges ours.
            decoder: hpack::Decoder::new(hpack::DEFAULT_TABLE.max(config.table as usize))
                .with_most(DECODED_TIMES * config.header_list() as usize),
            encoder: hpack::Encoder::default(),
            streams: Streams::new(),
            last_peer: StreamId::CONNECTION,
            next_own: (role == Role::Client).then(|| StreamId::new(1)),
            open: 0,
            unwritten_ends: 0,
            send_window: SendWindow::new(DEFAULT_WINDOW),
            receive_window: ReceiveWindow::new(DEFAULT_WINDOW),
            event: None,
            turns: VecDeque::new(),
            refused: VecDeque::new(),
            opened: Vec::new(),
            remembered: VecDeque::new(),
            late: 0,
            late_bytes: 0,
            has_forgotten: false,
            out: Chain::new(),
            outputs: 0,
            unwritten: 0,
            small: Chain::new(),
            answers: 0,
            settings_sent: Some(now),
            stream_window: DEFAULT_WINDOW,
            leaving: Leaving::default(),
            glitches: Glitches::default(),
            tolerant: false,
            resets: Allowance::new(resets, RESETS_PER_SECOND, now),
            cheap: Allowance::new(CHEAP_BURST, CHEAP_PER_SECOND, now),
            counts: Counts::default(),
            violation: None,
            turn: Turn::default(),
        }
    }

    /// Returns which end of the connection this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the number of streams that are open or half-closed: `fc_nb_streams`, `bc_nb_streams`.
    pub fn open_streams(&self) -> u32 {
        self.open
    }

    /// Returns the number of concurrent streams that the peer allows.
    pub fn peer_max_streams(&self) -> u32 {
        self.peer.max_streams
    }

    /// Returns the number of concurrent streams that both sides allow: `fc_settings_streams_limit`,
    /// `bc_settings_streams_limit`.
    pub fn streams_limit(&self) -> u32 {
        match self.role {
            Role::Client => self.peer.max_streams.min(self.config.max_streams),
            Role::Server => self.config.max_streams,
        }
    }

    /// Returns whether the peer's first settings came.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Returns whether the peer accepts extended CONNECT (RFC 8441). It does not before its settings came.
    pub fn peer_takes_protocols(&self) -> bool {
        self.peer.connect_protocol
    }

    /// Returns the glitches of the peer so far.
    pub fn glitches(&self) -> &Glitches {
        &self.glitches
    }

    /// Sets whether glitches beyond [`Config::glitches`] are only counted. For callers that end connections
    /// for glitches only while the processor is busy.
    pub fn set_tolerant(&mut self, tolerant: bool) {
        self.tolerant = tolerant;
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Returns the last rule that the peer broke since the last call. [`Counts`] tell whether there is one.
    pub fn take_violation(&mut self) -> Option<Box<Violation>> {
        self.violation.take()
    }

    /// Returns whether this turn has handled as many frames or resets as it may ([`Config::frames_at_once`],
    /// [`Config::resets_at_once`]). The rest of the input stays until other connections had a turn and the
    /// caller calls [`begin_turn`](Self::begin_turn).
    pub fn is_turn_over(&self) -> bool {
        reached(self.turn.frames, self.config.frames_at_once) || self.has_reset_enough()
    }

    /// Returns whether this turn has handled as many resets as it may: then the work that others wait for
    /// should come first, since nobody waits for what was reset.
    pub fn has_reset_enough(&self) -> bool {
        reached(self.turn.resets, self.config.resets_at_once)
    }

    /// Begins another turn.
    pub fn begin_turn(&mut self) {
        self.turn = Turn::default();
    }

    /// Returns the time since which settings wait for their acknowledgement, for callers that end connections
    /// by time ([`Reason::SETTINGS_TIMEOUT`]).
    pub fn settings_unacknowledged_since(&self) -> Option<Duration> {
        self.settings_sent
    }

    /// Returns the time since which a window holds back data of a stream, for callers that end streams by
    /// time: a peer that opens no window holds the memory of the waiting data.
    pub fn blocked_since(&self, stream: StreamId) -> Option<Duration> {
        self.streams.get(stream)?.blocked
    }

    /// Returns the number of bytes that [`send_data`](Self::send_data) would take from a stream now. If it is
    /// 0, the stream waits from now on like one with data, and [`next_writable`](Self::next_writable) returns
    /// it when there is room. A caller without data asks this first, and reads no more than that.
    pub fn room(&mut self, now: Duration, id: StreamId) -> usize {
        let others = !self.turns.is_empty();
        let (all, frames) = (self.send_window.room(), self.output_room());
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.send != Side::Done) else {
            return 0;
        };
        let frames = if others { frames.min(usize::from(stream.has_turn)) } else { frames };
        let room = stream.send_window.room().min(all).min(frames * QUANTUM);
        if room == 0 {
            self.wait(now, id);
        } else {
            stream.blocked = None;
        }
        room
    }

    /// Returns whether the output has room for a head that others may follow, such as an interim response: no
    /// window bounds their number.
    pub fn has_output_room(&self) -> bool {
        self.output_room() > 0
    }

    /// Returns the error that has ended the connection, if any.
    pub fn error(&self) -> Option<ConnectionError> {
        self.failed
    }

    /// Returns the next event. Call it until it returns `None`; then there may be more input to handle. Act
    /// on each event before asking for the next.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.event.take() {
            return Some(event);
        }
        let stream = self.refused.pop_front()?;
        Some(Event::Reset { stream, reason: Reason::REFUSED_STREAM, problem: None })
    }

    /// Marks `n` bytes of [data](Event::Data) of a stream as consumed: the peer may send as many more.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn consume(&mut self, stream: StreamId, n: usize) -> Result<(), SendError> {
        self.sending(|this| {
            let Some(found) = this.streams.get_mut(stream) else { return Ok(()) };
            let n = n.min(found.unconsumed);
            found.unconsumed -= n;
            let more = if found.receive == Side::Done { None } else { found.receive_window.consumed(n) };
            if let Some(more) = more {
                this.put(&window_update::frame(stream, more))?;
            }
            this.give_back(n)?;
            this.close_if_done(stream)
        })
    }

    /// Marks the rest of the incoming data of a stream as unwanted. Data that events reported counts as
    /// consumed, and so does data that is still to come, which no event reports. Sending on the stream
    /// continues.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn release(&mut self, stream: StreamId) -> Result<(), SendError> {
        if let Some(found) = self.streams.get_mut(stream) {
            found.released = true;
        }
        self.consume(stream, usize::MAX)
    }

    /// Resets a stream. Does nothing if it has ended.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn reset(&mut self, stream: StreamId, reason: Reason) -> Result<(), SendError> {
        self.sending(|this| {
            if this.streams.get(stream).is_none() {
                return Ok(());
            }
            this.put(&rst_stream::frame(stream, reason))?;
            this.remember(stream);
            this.forget(stream, true)
        })
    }

    /// Ends the connection at once, for timeouts and other reasons of the caller.
    pub fn abort(&mut self, reason: Reason) {
        if self.failed.is_none() {
            self.fail(ConnectionError { problem: Problem::Aborted, reason });
        }
    }

    // -- helpers of all parts

    /// Runs `work`, which sends; if it fails, the connection fails.
    fn sending<R>(&mut self, work: impl FnOnce(&mut Self) -> Result<R, Problem>) -> Result<R, SendError> {
        if self.failed.is_some() {
            return Err(SendError::Failed);
        }
        work(self).map_err(|problem| {
            self.fail(ConnectionError { problem, reason: problem.reason() });
            if problem == Problem::NoMemory { SendError::NoMemory } else { SendError::Failed }
        })
    }

    /// Fails the connection (rule 5).
    fn fail(&mut self, error: ConnectionError) {
        self.failed = Some(error);
        let of_peer = u32::from(error.problem.is_of_peer());
        self.counts.connection_errors += of_peer;
        self.counts.goaway_sent += of_peer;
        // Without memory for the GOAWAY, the peer only sees the connection end.
        let _ = self.put(&goaway::frame(self.last_peer, error.reason));
    }

    /// Writes a small frame.
    fn put(&mut self, frame: &[u8]) -> Result<(), Problem> {
        send::put(&mut self.small, &mut self.out, &[frame])
    }

    /// Writes an answer to the peer (rule 4).
    fn answer(&mut self, frame: &[u8]) -> Result<(), Problem> {
        self.answers += frame.len();
        if self.answers > MAX_ANSWERS {
            return Err(Problem::UnreadAnswers);
        }
        self.put(frame)
    }

    fn glitch(&mut self, kind: Glitch) -> Result<(), Problem> {
        self.glitches.add(kind);
        let most = self.config.glitches;
        if most > 0 && self.glitches.total() >= most && !self.tolerant {
            Err(Problem::Glitches)
        } else {
            Ok(())
        }
    }

    /// Counts a frame that changes nothing.
    fn cheap_frame(&mut self, now: Duration) -> Result<(), Problem> {
        self.cheap.take(now).ok_or(Problem::CheapFrames)?;
        if self.cheap.is_low() { self.glitch(Glitch::CheapFrame) } else { Ok(()) }
    }

    /// Counts a frame for a stream that has ended.
    fn late_frame(&mut self, now: Duration) -> Result<(), Problem> {
        match self.late.checked_sub(1) {
            Some(left) => {
                self.late = left;
                Ok(())
            }
            None => self.cheap_frame(now),
        }
    }

    /// Counts a stream that was reset, by the peer or for its fault.
    fn count_reset(&mut self, now: Duration) -> Result<(), Problem> {
        self.resets.take(now).ok_or(Problem::Resets).map(|_| ())
    }

    /// Returns `n` bytes to the connection's window.
    fn give_back(&mut self, n: usize) -> Result<(), Problem> {
        match self.receive_window.consumed(n) {
            Some(more) => self.put(&window_update::frame(StreamId::CONNECTION, more)),
            None => Ok(()),
        }
    }

    /// Resets a stream for a rule that the peer broke; the connection goes on.
    fn stream_error(&mut self, now: Duration, at: At<'_>, problem: Problem) -> Result<(), Problem> {
        let stream = at.header.stream;
        self.blame(at, problem);
        self.counts.stream_errors += 1;
        self.answer(&rst_stream::frame(stream, problem.reason()))?;
        self.counts.rst_stream_sent += 1;
        self.turn.resets += 1;
        self.remember(stream);
        let known = self.streams.get(stream).is_some();
        if known {
            self.forget(stream, true)?;
        }
        let kind = if problem == Problem::TooManyStreams { Glitch::Refused } else { Glitch::StreamError };
        self.glitch(kind)?;
        // Many clients share a connection to a server: a broken response of one must not end the others'.
        if self.role == Role::Server {
            self.count_reset(now)?;
        }
        let reason = problem.reason();
        self.counts.refused += u32::from(!known);
        self.event = Some(if known {
            Event::Reset { stream, reason, problem: Some(problem) }
        } else {
            Event::Refused { stream, problem }
        });
        Ok(())
    }

    fn remember(&mut self, stream: StreamId) {
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.pop_front();
            self.has_forgotten = true;
        }
        self.remembered.push_back(stream);
        if self.role == Role::Client {
            self.late = (self.late + LATE_FRAMES).min(MAX_LATE_FRAMES);
        }
    }

    /// Removes a stream that was reset. With `by_us`, the peer learns of its end from the output.
    fn forget(&mut self, stream: StreamId, by_us: bool) -> Result<(), Problem> {
        let Some(gone) = self.streams.remove(stream) else { return Ok(()) };
        if !gone.ended {
            self.open -= 1;
            self.unwritten_ends += u32::from(by_us);
        }
        if by_us && self.role == Role::Client {
            let late = self.late_bytes.saturating_add(gone.receive_window.open());
            self.late_bytes = late.min(self.receive_window.size());
        }
        self.give_back(gone.unconsumed)
    }

    /// Removes a stream that both sides have ended. A client's stream stays until its data is consumed,
    /// because the user still holds that data. A server's stream goes at once: when its response is complete,
    /// nobody needs the rest of the request.
    fn close_if_done(&mut self, id: StreamId) -> Result<(), Problem> {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_closed()) else {
            return Ok(());
        };
        if !std::mem::replace(&mut stream.ended, true) {
            self.open -= 1;
            self.unwritten_ends += u32::from(stream.end_sent == Some(self.outputs));
        }
        if stream.unconsumed == 0 || self.role == Role::Server { self.forget(id, false) } else { Ok(()) }
    }

    /// Returns the next stream that waits and can send. Its turn is one frame while others wait. Call it
    /// after handling input and after taking output, at most as often as [`turns`](Self::turns) says at that
    /// moment: later streams would find no room.
    pub fn next_writable(&mut self) -> Option<StreamId> {
        if self.turns() == 0 {
            return None;
        }
        while let Some(id) = self.turns.pop_front() {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            stream.queued = false;
            if stream.waiting != Waiting::Turn {
                continue;
            }
            stream.waiting = Waiting::Nothing;
            stream.has_turn = true;
            return Some(id);
        }
        None
    }

    /// Returns the number of waiting streams that can send a frame now.
    pub fn turns(&self) -> usize {
        let none = self.turns.is_empty() || self.send_window.room() == 0;
        if none { 0 } else { self.output_room().min(self.turns.len()) }
    }

    /// Makes a stream wait for window space, or else for its turn.
    fn wait(&mut self, now: Duration, id: StreamId) {
        let all = self.send_window.room();
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.has_turn = false;
        let window = stream.send_window.room();
        if window.min(all) == 0 {
            stream.blocked.get_or_insert(now);
        }
        if window == 0 {
            stream.waiting = Waiting::Window;
        } else {
            self.queue(id);
        }
    }

    /// Queues a stream for its turn.
    fn queue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.waiting = Waiting::Turn;
        if std::mem::replace(&mut stream.queued, true) {
            return;
        }
        // Removes entries of streams that are gone, so that they do not pile up. A stream has at most one
        // entry.
        if self.turns.len() >= 2 * self.streams.len() + 16 {
            let streams = &self.streams;
            self.turns.retain(|&id| streams.get(id).is_some());
        }
        self.turns.push_back(id);
    }

    fn new_stream(&self, receive: Side, send: Side) -> Stream {
        Stream {
            receive,
            send,
            send_window: SendWindow::new(self.peer.stream_window.min(MAX_WINDOW)),
            receive_window: ReceiveWindow::new(self.stream_window),
            unconsumed: 0,
            promised: None,
            owed: None,
            head_request: false,
            connect: false,
            released: false,
            ended: false,
            end_sent: None,
            waiting: Waiting::Nothing,
            queued: false,
            has_turn: false,
            blocked: None,
        }
    }

    /// Handles a fault: resets the stream at fault, or returns the problem of the connection.
    fn act_on(&mut self, now: Duration, at: At<'_>, fault: Fault) -> Result<(), Problem> {
        match fault {
            Fault::Connection(problem) => Err(problem),
            Fault::Stream(problem) => self.stream_error(now, at, problem),
        }
    }

    /// Keeps what broke a rule, in place of what was kept before, and returns the problem.
    #[cold]
    fn blame(&mut self, at: At<'_>, problem: Problem) -> Problem {
        if problem.is_of_peer() {
            self.violation = Some(Box::new(at.violation(problem)));
        }
        problem
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("role", &self.role)
            .field("open", &self.open)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
