//! Input: handles frames one by one.

use super::streams::{Side, Waiting};
use super::{Connection, Role};
use crate::error::{ConnectionError, Fault, Problem, Reason};
use crate::event::Event;
use crate::frame::{
    self, END_HEADERS, END_STREAM, HEADER, Header, Kind, goaway, headers, ping, priority, priority_update,
    push_promise, rst_stream, settings, window_update,
};
use crate::glitch::Glitch;
use crate::head::{Collector, Expected};
use crate::limits::{DATA_PART, MAX_CONTINUATIONS, MAX_OUTPUT};
use crate::scratch;
use crate::stream_id::StreamId;
use crate::violation::At;
use manylane_buf::Chain;
use manylane_http::Method;
use std::time::Duration;

/// The bytes that a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Largest number of bytes of padding and priority in a HEADERS frame.
const AROUND_BLOCK: usize = 6 + 255;

/// Position in the input.
#[derive(Debug)]
pub(super) enum Reading {
    /// This many bytes of the preface came.
    Preface(usize),
    /// A frame begins.
    Frame,
    /// The data of a frame goes on; `stream` is `None` if no event reports it.
    Data { stream: Option<StreamId>, left: usize, padding: usize, end: bool },
    /// This many bytes are skipped.
    Skip(usize),
}

impl Reading {
    pub(super) fn begin(role: Role) -> Self {
        match role {
            Role::Client => Self::Frame,
            Role::Server => Self::Preface(0),
        }
    }
}

/// A header block that is not complete.
#[derive(Debug)]
pub(super) struct Block {
    stream: StreamId,
    bytes: Chain,
    end: bool,
    /// Number of frames behind the first.
    continuations: u32,
    depends_on_itself: bool,
}

impl Block {
    fn begin(header: &Header, payload: Chain) -> Result<Self, Problem> {
        let stream = header.of_stream()?;
        let headers = headers::Headers::read(header, payload)?;
        Ok(Self {
            stream,
            bytes: headers.block,
            end: header.has(END_STREAM),
            continuations: 0,
            depends_on_itself: headers.depends_on == Some(stream),
        })
    }

    /// Returns the block as a frame, for reports.
    fn at(&self) -> At<'_> {
        let flags = END_HEADERS | if self.end { END_STREAM } else { 0 };
        let (len, kind, stream) = (self.bytes.len(), Kind::Headers, self.stream);
        At::new(Header { len, kind, flags, stream }, &self.bytes)
    }
}

/// Treatment of a frame whose stream does not exist.
enum Absent {
    /// Ignore it: the peer sent it before it knew that the stream is gone.
    Ignored,
    Fault(Problem),
}

impl Connection {
    /// Reads frames from `input` until there are events for [`poll_event`](Self::poll_event) or until it
    /// needs more bytes. Returns true if there are events: take them all, and call it again. It removes from
    /// `input` what it reads. The rest is the beginning of a frame, or everything while the peer does not
    /// read ([`MAX_OUTPUT`]) or [the turn is over](Self::is_turn_over).
    ///
    /// # Errors
    /// [`ConnectionError`]: write the output that is left, and close.
    pub fn handle_input(&mut self, now: Duration, input: &mut Chain) -> Result<bool, ConnectionError> {
        loop {
            if self.event.is_some() || !self.refused.is_empty() {
                return Ok(true);
            }
            if let Some(failed) = self.failed {
                return Err(failed);
            }
            if self.out.len() >= MAX_OUTPUT || self.is_turn_over() {
                return Ok(false);
            }
            match self.step(now, input) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(problem) => self.fail(ConnectionError { problem, reason: problem.reason() }),
            }
        }
    }

    /// Handles one step of the input. Returns false if it needs more bytes.
    fn step(&mut self, now: Duration, input: &mut Chain) -> Result<bool, Problem> {
        match self.reading {
            Reading::Frame => self.frame(now, input),
            Reading::Data { stream, left, padding, end } => {
                self.data_goes_on(input, stream, left, padding, end)
            }
            Reading::Skip(left) => {
                let n = left.min(input.len());
                input.trim_front(n).map_err(|_| Problem::NoMemory)?;
                self.reading = if n == left { Reading::Frame } else { Reading::Skip(left - n) };
                Ok(n == left)
            }
            Reading::Preface(matched) => {
                let n = (PREFACE.len() - matched).min(input.len());
                if !input.starts_with(&PREFACE[matched..matched + n]) {
                    return Err(Problem::Preface);
                }
                input.trim_front(n).map_err(|_| Problem::NoMemory)?;
                let complete = matched + n == PREFACE.len();
                self.reading = if complete { Reading::Frame } else { Reading::Preface(matched + n) };
                Ok(complete)
            }
        }
    }

    fn frame(&mut self, now: Duration, input: &mut Chain) -> Result<bool, Problem> {
        let mut cursor = input.cursor();
        let Ok(bytes) = cursor.read_array::<HEADER>() else { return Ok(false) };
        let header = Header::read(bytes);
        let needed = match self.admit(&header) {
            Ok(needed) => needed,
            Err(problem) => return Err(self.blame(header.into(), problem)),
        };
        if cursor.remaining() < needed {
            return Ok(false);
        }
        input.trim_front(HEADER).map_err(|_| Problem::NoMemory)?;
        self.turn.frames += 1;
        if header.kind == Kind::Data {
            self.data(now, header, input).map_err(|problem| self.blame(header.into(), problem))?;
            self.counts.data += 1;
            return Ok(true);
        }
        self.count_frame(header.kind);
        let payload = input.split_to(needed)?;
        let rest = header.len - needed;
        self.reading = if rest > 0 { Reading::Skip(rest) } else { Reading::Frame };
        match header.kind {
            Kind::Headers => self.headers(now, &header, payload)?,
            Kind::Continuation => self.continuation(now, &header, payload)?,
            _ => self
                .other(now, &header, &payload)
                .map_err(|problem| self.blame(At::new(header, &payload), problem))?,
        }
        Ok(true)
    }

    /// Decides by its header whether to read a frame. Returns the number of payload bytes to wait for: a
    /// frame whose payload is not read as a whole needs fewer.
    #[inline(always)]
    fn admit(&self, header: &Header) -> Result<usize, Problem> {
        if !self.settled && (header.kind != Kind::Settings || header.has(frame::ACK)) {
            return Err(Problem::NoSettings);
        }
        if header.len > self.config.max_frame as usize {
            return Err(Problem::TooLargeFrame);
        }
        if let Some(block) = &self.block
            && (header.kind != Kind::Continuation || header.stream != block.stream)
        {
            return Err(Problem::Interrupted);
        }
        Ok(match header.kind {
            Kind::Data if frame::data::is_padded(header) => {
                if header.len == 0 {
                    return Err(Problem::FrameSize);
                }
                1
            }
            Kind::Data => 0,
            Kind::Unknown | Kind::PriorityUpdate | Kind::PushPromise => 0,
            Kind::Goaway => header.len.min(8),
            Kind::Headers | Kind::Continuation => {
                if header.len > self.config.block() + AROUND_BLOCK {
                    return Err(Problem::TooLargeBlock);
                }
                header.len
            }
            Kind::Settings => {
                settings::is_ack(header)?;
                header.len
            }
            Kind::Ping | Kind::RstStream | Kind::Priority | Kind::WindowUpdate => header.len.min(9),
        })
    }

    /// Handles a frame without data and without a part of a header block.
    #[inline(always)]
    fn other(&mut self, now: Duration, header: &Header, payload: &Chain) -> Result<(), Problem> {
        match header.kind {
            Kind::Data | Kind::Headers | Kind::Continuation => Ok(()),
            Kind::Priority => self.priority(now, header, payload),
            Kind::RstStream => self.rst_stream(now, header, payload),
            Kind::Settings => self.settings(now, header, payload),
            Kind::PushPromise => Err(push_promise::PROBLEM),
            Kind::Ping => {
                let (ack, bytes) = ping::read(header, payload)?;
                if ack { self.pong(now, bytes) } else { self.pinged(now, bytes) }
            }
            Kind::Goaway => {
                let (last, reason) = goaway::read(header, payload)?;
                self.cheap_frame(now)?;
                self.goaway(last, reason)
            }
            Kind::WindowUpdate => self.window_update(now, header, payload),
            Kind::PriorityUpdate => {
                priority_update::check(header, self.role)?;
                self.cheap_frame(now)
            }
            Kind::Unknown => self.cheap_frame(now),
        }
    }

    /// Counts a frame that came, of any kind but DATA.
    fn count_frame(&mut self, kind: Kind) {
        let count = match kind {
            Kind::Headers => &mut self.counts.headers,
            Kind::Settings => &mut self.counts.settings,
            Kind::RstStream => {
                self.turn.resets += 1;
                &mut self.counts.rst_stream
            }
            Kind::Goaway => &mut self.counts.goaway,
            _ => return,
        };
        *count += 1;
    }

    fn pinged(&mut self, now: Duration, payload: [u8; 8]) -> Result<(), Problem> {
        self.cheap_frame(now)?;
        self.answer(&ping::frame(true, payload))
    }

    /// Decides about a frame with data or a head whose stream does not exist.
    fn absent(&self, stream: StreamId) -> Absent {
        if self.is_beyond_goaway(stream) {
            return Absent::Ignored;
        }
        if self.is_idle(stream) {
            return Absent::Fault(Problem::IdleStream);
        }
        let may_be_late = self.role == Role::Client && self.has_forgotten;
        if may_be_late || self.remembered.contains(&stream) {
            Absent::Ignored
        } else {
            Absent::Fault(Problem::ClosedStream)
        }
    }

    /// Returns whether the stream has not begun.
    fn is_idle(&self, stream: StreamId) -> bool {
        match self.role {
            _ if !stream.is_of_client() => true,
            Role::Server => stream > self.last_peer,
            Role::Client => self.next_own.is_some_and(|next| stream >= next),
        }
    }

    // -- data

    /// Begins a DATA frame. If the frame is padded, the byte with the length of the padding is in `input`.
    fn data(&mut self, now: Duration, header: Header, input: &mut Chain) -> Result<(), Problem> {
        let stream = header.of_stream()?;
        let mut data = header.len;
        if frame::data::is_padded(&header) {
            let padding = input.cursor().read_u8().map_err(|_| Problem::FrameSize)?;
            data = frame::data::without_padding(header.len, padding)?;
            input.trim_front(1).map_err(|_| Problem::NoMemory)?;
        }
        if !self.receive_window.came(header.len) {
            return Err(Problem::ConnectionWindow);
        }
        let end = header.has(END_STREAM);
        // Padding is consumed as soon as its length is known.
        let around = header.len - data;
        let padding = around.saturating_sub(1);
        let admitted = match self.admit_data(now, stream, header.len, data, end) {
            Ok(admitted) => admitted,
            Err(fault) => {
                self.act_on(now, header.into(), fault)?;
                false
            }
        };
        self.give_back(around)?;
        if admitted && around > 0 {
            self.consume_of_stream(stream, around)?;
        }
        self.reading = Reading::Data { stream: admitted.then_some(stream), left: data, padding, end };
        Ok(())
    }

    /// Returns whether events report the frame's data.
    fn admit_data(
        &mut self,
        now: Duration,
        id: StreamId,
        frame: usize,
        data: usize,
        end: bool,
    ) -> Result<bool, Fault> {
        let Some(stream) = self.streams.get_mut(id) else {
            return match self.absent(id) {
                Absent::Fault(problem) => Err(problem.into()),
                Absent::Ignored => {
                    // Data that was under way when this client reset the stream is no attack.
                    if data > 0
                        && let Some(left) = self.late_bytes.checked_sub(frame as u32)
                    {
                        self.late_bytes = left;
                        return Ok(false);
                    }
                    self.late_frame(now)?;
                    Ok(false)
                }
            };
        };
        let fault = |problem| Err(Fault::Stream(problem));
        match stream.receive {
            Side::Head => return fault(Problem::DataBeforeHead),
            Side::Done => return fault(Problem::ClosedStream),
            Side::Body => {}
        }
        if !stream.receive_window.came(frame) {
            return fault(Problem::StreamWindow);
        }
        if let Some(promised) = &mut stream.promised {
            match promised.checked_sub(data as u64) {
                Some(left) if !end || left == 0 => *promised = left,
                _ => return fault(Problem::WrongLength),
            }
        }
        if data == 0 && !end {
            self.cheap_frame(now)?;
        }
        Ok(true)
    }

    /// Returns `n` bytes to a stream's window.
    fn consume_of_stream(&mut self, id: StreamId, n: usize) -> Result<(), Problem> {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.receive != Side::Done) else {
            return Ok(());
        };
        match stream.receive_window.consumed(n) {
            Some(more) => self.put(&window_update::frame(id, more)),
            None => Ok(()),
        }
    }

    /// Handles the part of a frame's data that is in `input`, if that is the rest or at least [`DATA_PART`]
    /// bytes.
    fn data_goes_on(
        &mut self,
        input: &mut Chain,
        stream: Option<StreamId>,
        left: usize,
        padding: usize,
        end: bool,
    ) -> Result<bool, Problem> {
        let n = left.min(input.len());
        if n < left.min(DATA_PART) {
            return Ok(false);
        }
        let data = input.split_to(n)?;
        let last = n == left;
        self.reading = match (last, padding) {
            (false, _) => Reading::Data { stream, left: left - n, padding, end },
            (true, 0) => Reading::Frame,
            (true, padding) => Reading::Skip(padding),
        };
        // The user may have reset the stream meanwhile.
        let Some(id) = stream.filter(|&id| self.streams.get(id).is_some()) else {
            self.give_back(n)?;
            return Ok(true);
        };
        let ends = last && end;
        let mut released = false;
        if let Some(stream) = self.streams.get_mut(id) {
            released = stream.released;
            if ends {
                stream.receive = Side::Done;
            }
            if !released {
                stream.unconsumed += n;
            }
        }
        if released {
            self.give_back(n)?;
            self.consume_of_stream(id, n)?;
        } else if n > 0 || ends {
            self.event = Some(Event::Data { stream: id, data, end: ends });
        }
        if ends {
            self.close_if_done(id)?;
        }
        Ok(true)
    }

    // -- heads

    fn headers(&mut self, now: Duration, header: &Header, payload: Chain) -> Result<(), Problem> {
        let block = match Block::begin(header, payload) {
            Ok(block) => block,
            Err(problem) => return Err(self.blame((*header).into(), problem)),
        };
        if header.has(END_HEADERS) {
            return self.block_is_complete(now, block);
        }
        self.block = Some(block);
        Ok(())
    }

    fn continuation(&mut self, now: Duration, header: &Header, payload: Chain) -> Result<(), Problem> {
        let Some(mut block) = self.block.take() else {
            return Err(self.blame(At::new(*header, &payload), Problem::StrayContinuation));
        };
        let ends = header.has(END_HEADERS);
        if let Err(problem) = self.block_goes_on(&mut block, payload, ends) {
            return Err(self.blame(block.at(), problem));
        }
        if ends {
            return self.block_is_complete(now, block);
        }
        self.block = Some(block);
        Ok(())
    }

    fn block_goes_on(&mut self, block: &mut Block, mut payload: Chain, ends: bool) -> Result<(), Problem> {
        block.continuations += 1;
        if block.continuations > MAX_CONTINUATIONS {
            return Err(Problem::ContinuationFlood);
        }
        if block.bytes.len() + payload.len() > self.config.block() {
            return Err(Problem::TooLargeBlock);
        }
        if (payload.is_empty() && !ends) || block.continuations > MAX_CONTINUATIONS / 4 {
            self.glitch(Glitch::Continuation)?;
        }
        // Compacted, because each small frame would hold a cluster.
        block.bytes.append_compact(&mut payload)?;
        Ok(())
    }

    /// Decodes a block, and lets `finish` build a head from it.
    fn decode<T>(
        &mut self,
        block: &Block,
        expected: Expected,
        finish: impl FnOnce(Collector<'_>) -> Result<T, Problem>,
    ) -> Result<Result<T, Problem>, Problem> {
        scratch::with(|scratch| {
            let mut copy = std::mem::take(&mut scratch.block);
            let result = (|| {
                let bytes = contiguous(&block.bytes, &mut copy);
                let (mut collector, strings) = Collector::new(expected, &self.config, scratch)?;
                self.decoder.decode(bytes, strings, |line| collector.take(line))?;
                Ok(finish(collector))
            })();
            scratch.block = copy;
            result
        })
    }

    /// Decodes a block whose fields are not wanted (rule 3).
    fn decode_unwanted(&mut self, block: &Block) -> Result<(), Problem> {
        scratch::with(|scratch| {
            let bytes = contiguous(&block.bytes, &mut scratch.block);
            Ok(self.decoder.decode(bytes, &mut scratch.strings, |_| {})?)
        })
    }

    fn block_is_complete(&mut self, now: Duration, block: Block) -> Result<(), Problem> {
        self.head(now, &block).map_err(|problem| self.blame(block.at(), problem))
    }

    fn head(&mut self, now: Duration, block: &Block) -> Result<(), Problem> {
        let id = block.stream;
        if !id.is_of_client() {
            return Err(Problem::WrongStream);
        }
        let Some(stream) = self.streams.get(id) else {
            if self.role == Role::Server && id > self.last_peer && !self.is_beyond_goaway(id) {
                return self.request(now, block);
            }
            let absent = self.absent(id);
            self.decode_unwanted(block)?;
            return match absent {
                Absent::Fault(problem) => Err(problem),
                Absent::Ignored => self.late_frame(now),
            };
        };
        let receive = stream.receive;
        if block.depends_on_itself || receive == Side::Done {
            self.decode_unwanted(block)?;
            let closed = receive == Side::Done;
            let problem = if closed { Problem::ClosedStream } else { Problem::OwnDependency };
            return self.stream_error(now, block.at(), problem);
        }
        match receive {
            Side::Head => self.response(now, block),
            _ => self.trailers(now, block),
        }
    }

    /// Handles the head of a request: the client begins a stream.
    fn request(&mut self, now: Duration, block: &Block) -> Result<(), Problem> {
        let (id, end) = (block.stream, block.end);
        self.last_peer = id;
        let full = self.open + self.unwritten_ends >= self.config.max_streams;
        if full || block.depends_on_itself {
            self.decode_unwanted(block)?;
            let problem = if full { Problem::TooManyStreams } else { Problem::OwnDependency };
            return self.stream_error(now, block.at(), problem);
        }
        let decoded = self.decode(block, Expected::Request, |fields| fields.request())?;
        let receive = if end { Side::Done } else { Side::Body };
        let mut stream = self.new_stream(receive, Side::Head);
        let event = match decoded {
            Ok(request) => {
                stream.head_request = request.head.method_kind() == Method::Head;
                stream.connect = request.head.method_kind() == Method::Connect || request.protocol.is_some();
                stream.promised = request.length.filter(|_| !stream.connect);
                if end && stream.promised.is_some_and(|length| length > 0) {
                    return self.stream_error(now, block.at(), Problem::WrongLength);
                }
                Event::Request { stream: id, request, end }
            }
            Err(Problem::TooLargeHead) => {
                self.glitch(Glitch::LargeHead)?;
                Event::TooLarge { stream: id, end }
            }
            Err(Problem::NoMemory) => return Err(Problem::NoMemory),
            Err(problem) => return self.stream_error(now, block.at(), problem),
        };
        self.streams.insert(id, stream)?;
        self.open += 1;
        self.event = Some(event);
        Ok(())
    }

    fn response(&mut self, now: Duration, block: &Block) -> Result<(), Problem> {
        let (id, end) = (block.stream, block.end);
        let response = match self.decode(block, Expected::Response, |fields| fields.response())? {
            Ok(response) => response,
            Err(Problem::NoMemory) => return Err(Problem::NoMemory),
            Err(problem) => return self.stream_error(now, block.at(), problem),
        };
        let status = response.head.status();
        if status < 200 {
            if end {
                return self.stream_error(now, block.at(), Problem::EndedInterim);
            }
            self.cheap_frame(now)?;
            self.event = Some(Event::Interim { stream: id, response });
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        stream.promised = match status {
            200..=299 if stream.connect => None,
            204 | 304 => Some(0),
            _ if stream.head_request => Some(0),
            _ => response.length,
        };
        if end && stream.promised.is_some_and(|length| length > 0) {
            return self.stream_error(now, block.at(), Problem::WrongLength);
        }
        stream.receive = if end { Side::Done } else { Side::Body };
        self.event = Some(Event::Response { stream: id, response, end });
        self.close_if_done(id)
    }

    fn trailers(&mut self, now: Duration, block: &Block) -> Result<(), Problem> {
        let id = block.stream;
        let trailers = match self.decode(block, Expected::Trailers, |fields| fields.trailers())? {
            Ok(_) if !block.end => Err(Problem::NotAtEnd),
            decoded => decoded,
        };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let short = stream.promised.is_some_and(|left| left > 0);
        match trailers {
            Ok(_) if short => self.stream_error(now, block.at(), Problem::WrongLength),
            Ok(trailers) => {
                stream.receive = Side::Done;
                if !stream.released {
                    self.event = Some(Event::Trailers { stream: id, trailers });
                }
                self.close_if_done(id)
            }
            Err(Problem::NoMemory) => Err(Problem::NoMemory),
            Err(problem) => self.stream_error(now, block.at(), problem),
        }
    }

    // -- other frames of a stream

    fn priority(&mut self, now: Duration, header: &Header, payload: &Chain) -> Result<(), Problem> {
        let problem = match priority::read(header, payload) {
            Ok(on) if on == header.stream => Problem::OwnDependency,
            Ok(_) => return self.cheap_frame(now),
            Err(problem) => problem,
        };
        // A stream that does not exist cannot be reset.
        if self.streams.get(header.stream).is_some() {
            return self.stream_error(now, At::new(*header, payload), problem);
        }
        Err(problem)
    }

    fn rst_stream(&mut self, now: Duration, header: &Header, payload: &Chain) -> Result<(), Problem> {
        let reason = rst_stream::read(header, payload)?;
        let stream = header.stream;
        // A stream that has ended, and is kept for its data, reports nothing more.
        if self.streams.get(stream).is_none_or(|stream| stream.ended) {
            let idle = self.is_idle(stream) && !self.is_beyond_goaway(stream);
            return if idle { Err(Problem::IdleStream) } else { self.late_frame(now) };
        }
        self.forget(stream, false)?;
        // A server that resets streams of this client is no attack.
        if self.role == Role::Server && reason != Reason::NO_ERROR {
            self.glitch(Glitch::Reset)?;
        }
        if self.role == Role::Server {
            self.count_reset(now)?;
        }
        self.event = Some(Event::Reset { stream, reason, problem: None });
        Ok(())
    }

    fn window_update(&mut self, now: Duration, header: &Header, payload: &Chain) -> Result<(), Problem> {
        let more = window_update::read(header, payload)?;
        let id = header.stream;
        self.cheap_frame(now)?;
        if id.is_connection() {
            if more == 0 {
                return Err(Problem::ZeroUpdate);
            }
            return self.send_window.change(i64::from(more));
        }
        let Some(stream) = self.streams.get_mut(id) else {
            let idle = self.is_idle(id) && !self.is_beyond_goaway(id);
            return if idle { Err(Problem::IdleStream) } else { Ok(()) };
        };
        if more == 0 {
            return self.stream_error(now, At::new(*header, payload), Problem::ZeroUpdate);
        }
        if let Err(problem) = stream.send_window.change(i64::from(more)) {
            return self.stream_error(now, At::new(*header, payload), problem);
        }
        self.window_has_opened(id);
        Ok(())
    }

    /// Queues the stream if it waits for window space and its window has room now.
    pub(super) fn window_has_opened(&mut self, id: StreamId) {
        let opened = self
            .streams
            .get(id)
            .is_some_and(|stream| stream.waiting == Waiting::Window && stream.send_window.room() > 0);
        if opened {
            self.queue(id);
        }
    }
}

/// Returns the bytes of a chain as one slice, copied if they are in several segments.
fn contiguous<'a>(chain: &'a Chain, copy: &'a mut Vec<u8>) -> &'a [u8] {
    match chain.front() {
        None => &[],
        Some(front) if chain.segment_count() == 1 => front,
        Some(_) => {
            copy.clear();
            chain.segments().for_each(|segment| copy.extend_from_slice(segment));
            copy
        }
    }
}
