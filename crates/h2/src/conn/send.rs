//! Output: writes heads and data as frames.

use super::Connection;
use super::streams::{Side, Waiting};
use crate::error::{Problem, SendError};
use crate::frame::{self, END_HEADERS, END_STREAM, HEADER, continuation, data, headers};
use crate::head;
use crate::hpack::Encoder;
use crate::limits::{OUTPUT_ROOM, UPDATES_EARNED};
use crate::scratch;
use crate::stream_id::StreamId;
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_http::{Head, Known, Method, syntax};
use std::time::Duration;

/// Smallest cluster for frames that are written here.
const SMALL: usize = 2048;

/// Largest part of a header block in one frame: with its header it fits into a cluster.
const MAX_PART: usize = MAX_CLUSTER - HEADER;

/// Largest amount of data, in bytes, that is always copied behind the previous frame. Otherwise streams that
/// send little would fill the output with segments of a few bytes, each holding a cluster.
const COPIED: usize = 512;

/// Largest payload of a DATA frame: one turn of a stream while others wait.
pub(super) const QUANTUM: usize = frame::DEFAULT_MAX;

/// Result of [`Connection::send_data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of bytes that were taken.
    pub bytes: usize,
    /// True if all bytes were taken, and the end if it was asked for. If false, [`Connection::next_writable`]
    /// returns the stream when it can go on.
    pub all: bool,
}

impl Connection {
    /// Begins a stream with a request. `scheme` is that of its target, `http` or `https`, whatever an
    /// absolute target says. `protocol` makes it an extended CONNECT (RFC 8441) in place of the head's
    /// method. `end` says that there is no data.
    ///
    /// The head's fields are sent, except those that belong to connections of HTTP/1. Names are written in
    /// lower case, and `Host` as the authority. Cookies are sent one by one, so that the compression finds
    /// each of them again.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send_request(
        &mut self,
        head: &Head,
        scheme: &[u8],
        protocol: Option<&[u8]>,
        end: bool,
    ) -> Result<StreamId, SendError> {
        let Some(id) = self.next_own.filter(|_| self.can_begin()) else { return Err(SendError::NoStream) };
        if protocol.is_some() && !self.peer.connect_protocol {
            return Err(SendError::Invalid("the server does not take extended CONNECT"));
        }
        self.check_size(head)?;
        let connect = head.method_kind() == Method::Connect || protocol.is_some();
        let owed = length(head)?.filter(|_| !connect);
        check_end(owed, end)?;
        self.send_head(id, end, |sent| head::request(sent, head, scheme, protocol, true))?;
        let mut stream = self.new_stream(Side::Head, if end { Side::Done } else { Side::Body });
        stream.head_request = head.method_kind() == Method::Head;
        stream.connect = connect;
        stream.owed = owed;
        self.sending(|this| {
            this.streams.insert(id, stream)?;
            Ok(())
        })?;
        self.open += 1;
        self.next_own = id.next();
        Ok(id)
    }

    /// Answers a stream with its final response. `end` says that there is no data.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send_response(&mut self, stream: StreamId, head: &Head, end: bool) -> Result<(), SendError> {
        self.check_side(stream, Side::Head)?;
        self.check_size(head)?;
        if head.status() < 200 {
            return Err(SendError::Invalid("an interim response is not the last one"));
        }
        let said = length(head)?;
        let owed = self.streams.get(stream).and_then(|stream| match head.status() {
            200..=299 if stream.connect => None,
            204 | 304 => Some(0),
            _ if stream.head_request => Some(0),
            _ => said,
        });
        check_end(owed, end)?;
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.owed = owed;
        }
        self.send_head(stream, end, |sent| {
            head::response(sent, head);
            Ok(())
        })?;
        self.has_sent(stream, end)
    }

    /// Sends an interim response, such as 100 or 103.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send_interim(&mut self, stream: StreamId, head: &Head) -> Result<(), SendError> {
        self.check_side(stream, Side::Head)?;
        self.check_size(head)?;
        if head.status() >= 200 || head.status() == 101 {
            return Err(SendError::Invalid("the status is not that of an interim response of HTTP/2"));
        }
        self.send_head(stream, false, |sent| {
            head::response(sent, head);
            Ok(())
        })
    }

    /// Ends the sending direction of a stream with trailers. All data was taken before.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send_trailers(&mut self, stream: StreamId, head: &Head) -> Result<(), SendError> {
        self.check_side(stream, Side::Body)?;
        self.check_size(head)?;
        check_end(self.streams.get(stream).and_then(|stream| stream.owed), true)?;
        self.send_head(stream, true, |sent| {
            head::trailers(sent, head);
            Ok(())
        })?;
        self.has_sent(stream, true)
    }

    /// Takes as much of `data` as windows and output have room for: by reference, except for small pieces
    /// while output waits for the peer. With `end`, it ends the sending direction of the stream once all data
    /// is taken. The rest stays in `data`: the stream waits, and [`next_writable`](Self::next_writable)
    /// returns it when the caller may call this again. While others wait, a stream sends one frame a call, so
    /// that all get their turn.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn send_data(
        &mut self,
        now: Duration,
        stream: StreamId,
        data: &mut Chain,
        end: bool,
    ) -> Result<Sent, SendError> {
        self.check_side(stream, Side::Body)?;
        if let Some(owed) = self.streams.get(stream).and_then(|stream| stream.owed) {
            let left = data.len() as u64;
            if left > owed || (end && left < owed) {
                return Err(SendError::WrongLength);
            }
        }
        let sent = self.sending(|this| this.take_data(now, stream, data, end))?;
        if let Some(owed) = self.streams.get_mut(stream).and_then(|stream| stream.owed.as_mut()) {
            *owed -= sent.bytes as u64;
        }
        if sent.all && end {
            self.has_sent(stream, true)?;
        }
        Ok(sent)
    }

    fn take_data(
        &mut self,
        now: Duration,
        id: StreamId,
        data: &mut Chain,
        end: bool,
    ) -> Result<Sent, Problem> {
        let others = !self.turns.is_empty();
        let mut bytes = 0;
        loop {
            let room = self.output_room();
            let Some(stream) = self.streams.get_mut(id) else { return Ok(Sent { bytes, all: false }) };
            if data.is_empty() && !(end && bytes == 0) {
                (stream.has_turn, stream.waiting, stream.blocked) = (false, Waiting::Nothing, None);
                return Ok(Sent { bytes, all: true });
            }
            // Streams that wait go first; an end without data needs no window.
            let its_turn = !others || (stream.has_turn && bytes == 0);
            let window = stream.send_window.room();
            let open = window.min(self.send_window.room());
            let n = open.min(data.len()).min(self.peer.max_frame).min(QUANTUM);
            if !data.is_empty() && (n == 0 || room == 0 || !its_turn) {
                self.wait(now, id);
                return Ok(Sent { bytes, all: false });
            }
            stream.blocked = None;
            stream.waiting = Waiting::Nothing;
            stream.send_window.sent(n);
            let last = end && n == data.len();
            let before = data::before(n, last, id);
            if n <= COPIED {
                let bytes = data.pull_up(n)?;
                put(&mut self.small, &mut self.out, &[&before, bytes])?;
                data.trim_front(n).map_err(|_| Problem::NoMemory)?;
            } else {
                put(&mut self.small, &mut self.out, &[&before])?;
                let mut part = data.split_to(n)?;
                if self.unwritten == 0 {
                    self.out.append_chain(&mut part)?;
                } else {
                    self.append_waiting(part)?;
                }
            }
            self.send_window.sent(n);
            self.cheap.earn(2 + n as u32 / UPDATES_EARNED);
            bytes += n;
            if last {
                return Ok(Sent { bytes, all: true });
            }
        }
    }

    /// Appends data to output that waits for the peer. Copies segments that fill less than half of their
    /// cluster, so that the memory of the output is at most twice its bytes and a cluster.
    fn append_waiting(&mut self, mut data: Chain) -> Result<(), Problem> {
        while let Some(segment) = data.pop_front() {
            if segment.is_sparse() {
                put_copy(&mut self.small, &mut self.out, &segment)?;
            } else {
                self.out.push_back(segment).map_err(|refused| Problem::from(refused.error))?;
            }
        }
        Ok(())
    }

    /// Appends all output to `out`. Call it when the output of the last call is written, or report the rest
    /// with [`set_unwritten`](Self::set_unwritten), so that the waiting output is bounded.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]; the output is still here then.
    pub fn poll_output(&mut self, out: &mut Chain) -> Result<(), SendError> {
        out.append_chain(&mut self.out).map_err(|_| SendError::NoMemory)?;
        self.small_is_idle();
        (self.answers, self.unwritten_ends) = (0, 0);
        self.outputs += 1;
        Ok(())
    }

    /// Returns the number of bytes of output that wait to be taken.
    pub fn output_len(&self) -> usize {
        self.out.len()
    }

    /// Sets the number of output bytes that were taken and are not yet written. They count as waiting output
    /// until the next call: the socket that holds them is full.
    pub fn set_unwritten(&mut self, bytes: usize) {
        self.unwritten = bytes;
        self.small_is_idle();
    }

    /// Drops the cluster of small frames if the output is written or no stream is open. While output waits
    /// for the peer, it holds the cluster anyway.
    fn small_is_idle(&mut self) {
        if self.out.is_empty() && (self.unwritten == 0 || self.open == 0) {
            self.small.clear();
        }
    }

    /// Returns the number of whole DATA frames that the output has room for. The last bytes of a frame that
    /// is not written hold as much memory as the whole frame.
    pub(super) fn output_room(&self) -> usize {
        const FRAME: usize = HEADER + QUANTUM;
        OUTPUT_ROOM.saturating_sub(self.out.len() + self.unwritten.next_multiple_of(FRAME)) / FRAME
    }

    fn check_side(&self, stream: StreamId, side: Side) -> Result<(), SendError> {
        if self.failed.is_some() {
            return Err(SendError::Failed);
        }
        match self.streams.get(stream) {
            None => Err(SendError::Closed),
            Some(stream) if stream.send == Side::Done => Err(SendError::Closed),
            Some(stream) if stream.send == side => Ok(()),
            Some(_) => Err(SendError::Order),
        }
    }

    fn check_size(&self, head: &Head) -> Result<(), SendError> {
        let most = self.peer.header_list as usize;
        // Each field line takes at least five bytes, so most heads need no exact count.
        let bound = head.size() + head::FIELD * (head.size() / 5 + 4);
        if bound <= most || head::list_size(head) <= most { Ok(()) } else { Err(SendError::TooLarge) }
    }

    /// Encodes a head and writes its frames.
    fn send_head(
        &mut self,
        stream: StreamId,
        end: bool,
        encode: impl FnOnce(head::Sent<'_>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if self.failed.is_some() {
            return Err(SendError::Failed);
        }
        scratch::with(|scratch| {
            let encoder: &mut Encoder = &mut self.encoder;
            encode(head::Sent::new(encoder, &mut scratch.block, &mut scratch.strings))?;
            self.sending(|this| this.write_block(stream, &scratch.block, end))
        })
    }

    fn write_block(&mut self, stream: StreamId, block: &[u8], end: bool) -> Result<(), Problem> {
        let most = self.peer.max_frame.min(MAX_PART);
        let (first, mut rest) = block.split_at(block.len().min(most));
        let flags = |flags: u8, rest: &[u8]| flags | if rest.is_empty() { END_HEADERS } else { 0 };
        let first_flags = flags(if end { END_STREAM } else { 0 }, rest);
        let before = frame::header(first.len(), headers::KIND, first_flags, stream);
        put(&mut self.small, &mut self.out, &[&before, first])?;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(most));
            let before = frame::header(part.len(), continuation::KIND, flags(0, behind), stream);
            put(&mut self.small, &mut self.out, &[&before, part])?;
            rest = behind;
        }
        Ok(())
    }

    /// Updates a stream after its head or its end was written.
    fn has_sent(&mut self, id: StreamId, end: bool) -> Result<(), SendError> {
        self.sending(|this| {
            let outputs = this.outputs;
            if let Some(stream) = this.streams.get_mut(id) {
                stream.send = if end { Side::Done } else { Side::Body };
                if end {
                    (stream.waiting, stream.has_turn, stream.blocked) = (Waiting::Nothing, false, None);
                    stream.end_sent = Some(outputs);
                }
            }
            this.close_if_done(id)
        })
    }
}

/// Returns the `Content-Length` of a head.
fn length(head: &Head) -> Result<Option<u64>, SendError> {
    let mut said = None;
    for value in head.values(Known::CONTENT_LENGTH) {
        let length = syntax::decimal(value).filter(|_| said.is_none());
        said = Some(length.ok_or(SendError::Invalid("Content-Length is not one number"))?);
    }
    Ok(said)
}

/// Checks that the data sent so far may end here.
fn check_end(owed: Option<u64>, end: bool) -> Result<(), SendError> {
    if end && owed.is_some_and(|owed| owed > 0) { Err(SendError::WrongLength) } else { Ok(()) }
}

/// Writes `parts` into a cluster that small frames share, and appends them to `out`.
pub(super) fn put(small: &mut Chain, out: &mut Chain, parts: &[&[u8]]) -> Result<(), Problem> {
    let n = parts.iter().map(|part| part.len()).sum::<usize>();
    small.append_together(parts, SMALL)?;
    let last = small.pop_back().ok_or(Problem::NoMemory)?;
    let frame = last.slice(last.len() - n..last.len()).map_err(|_| Problem::NoMemory)?;
    small.clear();
    small.push_back(last).map_err(|refused| Problem::from(refused.error))?;
    out.push_back(frame).map_err(|refused| Problem::from(refused.error))
}

/// Writes a copy of `bytes` into clusters that small frames share, without a gap, and appends it to `out`.
fn put_copy(small: &mut Chain, out: &mut Chain, bytes: &[u8]) -> Result<(), Problem> {
    let before = small.len();
    small.append(bytes)?;
    out.append_chain(&mut small.copy_range(before..)?)?;
    while small.segment_count() > 1 {
        small.pop_front();
    }
    Ok(())
}
