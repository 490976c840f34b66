//! Forwards a body from one connection to another: decodes and encodes its framing, moves large pieces by
//! reference, and splices bulk data.

use crate::filters::StreamFilters;
use crate::flow::{BodyEnd, Direction, EndFailed, H2End, SPLICED_AT_ONCE, Waits};
use manylane_buf::Chain;
use manylane_h1::{Body, BodyReader, BodyWriter, From, Limits, Progress, Relaxed};
use manylane_http::Head;
use manylane_io::Io;
use manylane_net::{Connection, Expected, SplicePolicy, TransferError};
use manylane_plan::invalid::Found;
use manylane_stats::Tally;
use std::cell::RefCell;
use std::time::Duration;

/// Reason why a body broke off.
#[derive(Debug)]
pub(super) enum Broken {
    /// The sender closed, or its connection failed.
    Sender,
    /// The receiver does not take the body.
    Receiver,
    /// The framing is invalid.
    Framing(Box<Found>),
    /// There is no memory.
    Memory,
}

impl Broken {
    /// Reason for a failed receive: lack of memory here is not the sender's fault.
    pub(super) fn sender(error: impl Into<EndFailed>) -> Self {
        if error.into().is_memory() { Self::Memory } else { Self::Sender }
    }

    /// Reason for a failed send: lack of memory here is not the receiver's fault.
    pub(super) fn receiver(error: impl Into<EndFailed>) -> Self {
        if error.into().is_memory() { Self::Memory } else { Self::Receiver }
    }
}

/// Decoder of a body's framing.
#[derive(Debug)]
enum Source {
    Http1(BodyReader),
    /// Data without a framing; the stream reports its end.
    Http2,
}

/// Encoder of a body's framing.
#[derive(Debug)]
enum Sink {
    Http1(BodyWriter),
    /// Data without a framing; the last frame ends the stream.
    Http2,
}

/// Most bytes that are received with one call to be dropped.
const DROPPED_AT_ONCE: usize = 65_536;

/// Most bytes of a response body that the proxy reads for nobody, so that the server's connection stays in
/// use behind it. A longer body costs more than a new connection, and may never end.
pub(super) const MOST_DROPPED: u64 = 1 << 20;

/// Longest time for that, because nobody watches the client meanwhile.
const DROPPING_TIME: Duration = Duration::from_secs(2);

/// One body while it is forwarded.
#[derive(Debug)]
pub(super) struct Pump {
    source: Source,
    sink: Sink,
    /// Framing of the body at a receiver of HTTP/1.
    framed: Body,
    /// The body arrives in chunks and leaves in chunks.
    chunks: bool,
    /// The received chunks are forwarded unchanged; otherwise their data goes into new chunks.
    kept: bool,
    drop_trailers: bool,
    done: bool,
    /// The receiver of HTTP/2 got the end of the stream with the head.
    ended: bool,
    /// The sender waits for a 100 before it sends the body (`Expect: 100-continue`), and no byte of the body
    /// has arrived.
    waits_for_continue: bool,
    /// Data was read ahead but not encoded for the receiver yet: it is in `data`, and the end with `trailers`
    /// if that was reached.
    ahead: bool,
    data: Chain,
    trailers: Option<Head>,
}

impl Source {
    /// Decodes the available data of `input` and appends it to `out`.
    fn read(&mut self, from: BodyEnd<'_>, input: &mut Chain, out: &mut Chain) -> Result<Progress, Broken> {
        match self {
            Self::Http1(reader) => {
                let progress = reader.read(input, out);
                let progress = progress.map_err(|error| Broken::Framing(Found::new(input, error)))?;
                // An incomplete line would keep the large read that its start is cut out of.
                input.gather().map_err(|_| Broken::Memory)?;
                Ok(progress)
            }
            Self::Http2 => {
                out.append_chain(input).map_err(|_| Broken::Memory)?;
                Ok(match from.h2().and_then(H2End::over) {
                    Some(trailers) => Progress::Done(trailers),
                    None => Progress::More,
                })
            }
        }
    }
}

impl Sink {
    /// Encodes all of `data` and appends it to `out`.
    fn write(&mut self, data: &mut Chain, out: &mut Chain) -> Result<(), Broken> {
        match self {
            Self::Http1(writer) => writer.write(data, out).map_err(|_| Broken::Memory),
            Self::Http2 => out.append_chain(data).map_err(|_| Broken::Memory),
        }
    }
}

/// The two ends of a transfer, and its options.
pub(super) struct Ends<'a> {
    pub(super) io: &'a Io,
    pub(super) direction: &'a Direction,
    pub(super) from: BodyEnd<'a>,
    pub(super) to: BodyEnd<'a>,
    pub(super) splice: Option<SplicePolicy>,
    /// Copy of the sent bytes, for a retry.
    pub(super) kept: Option<&'a Kept>,
    pub(super) passage: Passage<'a>,
    /// Filters that see the body before it is encoded for its receiver.
    pub(super) filters: Option<&'a StreamFilters<'a>>,
}

/// Counters of the bytes of a transfer, updated while they pass.
#[derive(Clone, Copy)]
pub(super) struct Passage<'a> {
    /// All received bytes.
    pub(super) received: &'a Tally,
    /// Spliced bytes, for the sender's side and for the receiver's.
    pub(super) spliced: [&'a Tally; 2],
}

/// Copy of the bytes sent of a body, for a retry at another server (`retry-on`). It holds all bytes, or none
/// once they exceed its room.
#[derive(Debug)]
pub(super) struct Kept {
    room: usize,
    sent: RefCell<Option<Chain>>,
}

impl Kept {
    /// Makes room for `room` bytes; a body known to be longer is not kept.
    pub(super) fn new(room: usize, body: Body) -> Self {
        let fits = !matches!(body, Body::Length(length) if length > room as u64);
        Self { room, sent: RefCell::new(fits.then(Chain::new)) }
    }

    /// Returns true if no bytes are kept: none were sent, or too many.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.borrow().as_ref().is_none_or(Chain::is_empty)
    }

    /// Returns true if the copy has all bytes that were sent.
    pub(super) fn is_whole(&self) -> bool {
        self.sent.borrow().is_some()
    }

    /// Appends all bytes of the copy to `out`.
    pub(super) fn again(&self, out: &mut Chain) -> Result<(), Broken> {
        let Some(sent) = &*self.sent.borrow() else { return Ok(()) };
        let mut copy = sent.share().map_err(|_| Broken::Memory)?;
        out.append_chain(&mut copy).map_err(|_| Broken::Memory)
    }

    /// Adds the bytes of `out` from position `new` on, which are about to be sent.
    fn keep(&self, out: &Chain, new: usize) {
        let mut sent = self.sent.borrow_mut();
        let Some(mut bytes) = sent.take() else { return };
        if bytes.len() + out.len() - new > self.room {
            return;
        }
        if out.copy_range(new..).and_then(|mut copy| bytes.append_compact(&mut copy)).is_ok() {
            *sent = Some(bytes);
        }
    }
}

/// Sends `out` as the end of a message. Calls `count` with the number of bytes once they are sent.
pub(super) async fn send(ends: &Ends<'_>, out: &mut Chain, count: impl Fn(u64)) -> Result<(), Broken> {
    let Ends { io, direction, to, .. } = *ends;
    let here = io.here();
    let n = out.len() as u64;
    if n > 0 {
        to.send(direction, here, out, true).await.map_err(Broken::receiver)?;
    }
    direction.waits(Waits::Nobody, here.now());
    count(n);
    Ok(())
}

/// Sends `out` as the last bytes of the connection.
pub(super) async fn send_last(
    ends: &Ends<'_>,
    connection: &Connection,
    out: &mut Chain,
    count: impl Fn(u64),
) -> Result<(), Broken> {
    let Ends { io, direction, .. } = *ends;
    let here = io.here();
    let n = out.len() as u64;
    direction.send_last(here, connection, out).await.map_err(Broken::receiver)?;
    direction.waits(Waits::Nobody, here.now());
    count(n);
    Ok(())
}

/// Waits until the kernel has taken everything that was sent.
pub(super) async fn flush(ends: &Ends<'_>, connection: &Connection) -> Result<(), Broken> {
    let here = ends.io.here();
    ends.direction.flush(here, connection).await.map_err(Broken::receiver)?;
    ends.direction.waits(Waits::Nobody, here.now());
    Ok(())
}

impl Pump {
    /// Creates the pump of a body that comes from `source`. In HTTP/1 the body has the framing `found` and is
    /// forwarded as `framed`; HTTP/2 has no such framing.
    pub(super) fn new(
        source: BodyEnd<'_>,
        found: Body,
        framed: Body,
        from: From,
        limits: Limits,
        drop_trailers: bool,
    ) -> Self {
        let (source, chunks) = match source {
            BodyEnd::Http1(_) => {
                (Source::Http1(BodyReader::new(found, from, limits)), found == Body::Chunked)
            }
            BodyEnd::Http2(_) => (Source::Http2, false),
        };
        let kept = chunks && framed == Body::Chunked;
        Self {
            source,
            sink: Sink::Http1(BodyWriter::new(framed)),
            framed,
            chunks: kept,
            kept,
            drop_trailers,
            done: matches!(found, Body::None | Body::Length(0)),
            ended: false,
            waits_for_continue: false,
            ahead: false,
            data: Chain::new(),
            trailers: None,
        }
    }

    /// Sends the body to a stream of HTTP/2, as data.
    pub(super) fn goes_to_stream(&mut self) {
        (self.sink, self.chunks, self.kept, self.ended) = (Sink::Http2, false, false, false);
    }

    /// Sends the body to a connection of HTTP/1, even if an earlier attempt sent it to a stream.
    pub(super) fn goes_to_connection(&mut self) {
        if let Sink::Http2 = self.sink {
            self.sink = Sink::Http1(BodyWriter::new(self.framed));
        }
    }

    /// Returns true if the body goes to a stream of HTTP/2.
    pub(super) fn is_for_stream(&self) -> bool {
        matches!(self.sink, Sink::Http2)
    }

    /// Returns true if only the end of the body remains, without trailers.
    pub(super) fn is_empty(&self) -> bool {
        self.done && self.data.is_empty() && self.trailers.is_none()
    }

    /// Notes that the head carried the end of the stream.
    pub(super) fn ends_with_head(&mut self) {
        self.ended = true;
    }

    /// Notes whether the sender waits for a 100 before it sends the body.
    pub(super) fn wait_for_continue(&mut self, waits: bool) {
        self.waits_for_continue = waits;
    }

    /// Returns true if the sender may omit the body: behind a final response it then sends its next request.
    pub(super) fn may_be_left_out(&self) -> bool {
        self.waits_for_continue && !self.done
    }

    /// Takes the violation in the body that strict parsing would refuse, if there was one. Later calls return
    /// `None`.
    pub(super) fn take_relaxed(&mut self) -> Option<Relaxed> {
        match &mut self.source {
            Source::Http1(reader) => reader.take_relaxed(),
            Source::Http2 => None,
        }
    }

    /// Removes the trailers.
    pub(super) fn drop_trailers(&mut self) {
        self.drop_trailers = true;
    }

    /// Changes the framing for the receiver. Nothing may have been sent yet.
    pub(super) fn reframe(&mut self, framed: Body) {
        if framed != self.framed {
            (self.framed, self.chunks, self.kept) = (framed, false, false);
            (self.sink, self.trailers) = (Sink::Http1(BodyWriter::new(framed)), None);
            self.ahead |= self.done;
        }
    }

    /// Reads the available bytes of `input` into [`data`](Self::data), for rules to see and to be sent later.
    ///
    /// # Errors
    /// The violation in the body.
    pub(super) fn read_ahead(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        self.read_data(from, input)?;
        self.data.gather().map_err(|_| Broken::Memory)?;
        if let Some(stream) = from.h2() {
            // The reader ahead bounds the data itself, so the stream may open its window again.
            stream.gone_on();
        }
        Ok(())
    }

    /// Like [`read_ahead`](Self::read_ahead), but does not open the flow-control window of the stream.
    fn read_data(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        if self.done || !self.is_readable(from, input) {
            return Ok(());
        }
        self.waits_for_continue = false;
        self.kept = false; // rules and filters need data, not chunks
        self.ahead = true;
        let mut data = Chain::new();
        let progress = self.source.read(from, input, &mut data)?;
        self.data.append_compact(&mut data).map_err(|_| Broken::Memory)?;
        if let Progress::Done(trailers) = progress {
            (self.trailers, self.done) = (trailers, true);
        }
        Ok(())
    }

    /// Returns true if there are bytes to read, or the end of a stream.
    fn is_readable(&self, from: BodyEnd<'_>, input: &Chain) -> bool {
        !input.is_empty() || from.h2().is_some_and(H2End::is_over)
    }

    /// Reads and drops the available bytes of the body in `input`.
    ///
    /// # Errors
    /// The violation in the body.
    pub(super) fn skip(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        if self.done || !self.is_readable(from, input) {
            return Ok(());
        }
        self.waits_for_continue = false;
        let progress = self.source.read(from, input, &mut Chain::new())?;
        self.done = matches!(progress, Progress::Done(_));
        Ok(())
    }

    /// Reads the body and drops it: its receiver must not get it. What follows stays in `input`. Returns
    /// false if [`MOST_DROPPED`] bytes were not all of it, or it took too long.
    pub(super) async fn drop_all(self, ends: &Ends<'_>, input: &mut Chain) -> Result<bool, Broken> {
        ends.io.here().timeout(DROPPING_TIME, self.drop_most(ends, input)).await.unwrap_or(Ok(false))
    }

    async fn drop_most(mut self, ends: &Ends<'_>, input: &mut Chain) -> Result<bool, Broken> {
        let Ends { io, direction, from, passage, .. } = *ends;
        let here = io.here();
        let mut received = 0;
        loop {
            // The receiver has the whole message already, so only the sender is at fault.
            self.skip(from, input).map_err(|_| Broken::Sender)?;
            if self.done || received > MOST_DROPPED {
                direction.waits(Waits::Nobody, here.now());
                return Ok(self.done);
            }
            direction.waits(Waits::Sender, here.now());
            let had = input.len();
            let more = from.receive(input, DROPPED_AT_ONCE).await;
            let new = (input.len() - had) as u64;
            passage.received.add(new);
            received += new;
            match more {
                Ok(true) => direction.called(here.now()),
                Ok(false) => return Err(Broken::Sender),
                Err(error) => return Err(Broken::sender(error)),
            }
        }
    }

    /// Number of bytes still to come, as far as the framing tells; `None` if only the end of the connection
    /// or stream shows it.
    pub(super) fn left(&self) -> Option<u64> {
        match &self.source {
            Source::Http1(reader) => reader.passable(),
            Source::Http2 => None,
        }
    }

    /// Encodes the data that was read ahead and appends it to `out`. Rules no longer see it.
    fn write_ahead(&mut self, out: &mut Chain) -> Result<(), Broken> {
        let mut data = std::mem::take(&mut self.data);
        self.sink.write(&mut data, out)?;
        if self.done {
            self.end_with_trailers(out)?;
        }
        Ok(())
    }

    /// Returns the data that was [read ahead](Self::read_ahead).
    pub(super) fn data(&self) -> &Chain {
        &self.data
    }

    /// Returns true if the whole body was read.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Decodes the available bytes of `input` and appends them, encoded, to `out`.
    fn step(&mut self, from: BodyEnd<'_>, input: &mut Chain, out: &mut Chain) -> Result<(), Broken> {
        if self.done {
            return Ok(());
        }
        self.waits_for_continue &= !self.is_readable(from, input);
        if self.chunks
            && let Source::Http1(reader) = &self.source
            && reader.is_between_chunks()
        {
            self.kept = !BodyReader::sees_tiny_chunks(input);
        }
        let progress = if self.kept
            && let (Source::Http1(reader), Sink::Http1(writer)) = (&mut self.source, &mut self.sink)
        {
            let mut chunks = Chain::new();
            let progress = reader
                .read_chunks(input, &mut chunks)
                .map_err(|error| Broken::Framing(Found::new(input, error)))?;
            input.gather().map_err(|_| Broken::Memory)?; // as behind `Source::read`
            writer.write_chunks(&mut chunks, out).map_err(|_| Broken::Memory)?;
            progress
        } else {
            let mut data = Chain::new();
            let progress = self.source.read(from, input, &mut data)?;
            self.sink.write(&mut data, out)?;
            progress
        };
        self.progressed(progress, out)
    }

    /// Like [`step`](Self::step), for a body that filters see: forwards as many bytes as the filters allow.
    /// If they allow none now and `out` has bytes, it returns, so that the caller sends those first;
    /// otherwise it waits.
    async fn step_filtered(
        &mut self,
        filters: &StreamFilters<'_>,
        (direction, from): (&Direction, BodyEnd<'_>),
        input: &mut Chain,
        out: &mut Chain,
    ) -> Result<(), Broken> {
        self.chunks = false; // filters see data, not chunks
        self.read_data(from, input)?;
        while !self.data.is_empty() {
            match filters.take(direction.sender, self.data.len()) {
                Ok(bytes) => {
                    let mut part = self.data.split_to(bytes).map_err(|_| Broken::Memory)?;
                    filters.forward(&part);
                    self.sink.write(&mut part, out)?;
                    break;
                }
                Err(_) if !out.is_empty() => return Ok(()),
                Err(then) => filters.wait(direction, then).await,
            }
        }
        if self.data.is_empty() && std::mem::take(&mut self.ahead) && self.done {
            self.end_with_trailers(out)?;
        }
        Ok(())
    }

    fn progressed(&mut self, progress: Progress, out: &mut Chain) -> Result<(), Broken> {
        if let Progress::Done(trailers) = progress {
            self.done = true;
            self.trailers = trailers;
            self.end_with_trailers(out)?;
        }
        Ok(())
    }

    /// Appends the end of the framing to `out`.
    fn end_with_trailers(&mut self, out: &mut Chain) -> Result<(), Broken> {
        if self.drop_trailers {
            self.trailers = None;
        }
        let Sink::Http1(writer) = &mut self.sink else { return Ok(()) };
        let mut trailers = self.trailers.take();
        writer.end(trailers.as_mut(), out).map_err(|_| Broken::Memory)
    }

    /// Sends `out` and then the body, until that is complete. `input` holds what was received before, and
    /// afterwards what follows the body. Calls `count` with the number of bytes once they are sent.
    pub(super) async fn run(
        &mut self,
        ends: &Ends<'_>,
        input: &mut Chain,
        out: &mut Chain,
        count: impl Fn(u64),
    ) -> Result<(), Broken> {
        let Ends { io, direction, from, to, splice, kept, passage, filters } = *ends;
        let here = io.here();
        let mut new = out.len(); // start of the bytes that were never sent
        if filters.is_none() && std::mem::take(&mut self.ahead) {
            self.write_ahead(out)?;
        }
        loop {
            match filters {
                None => self.step(from, input, out)?,
                Some(filters) => self.step_filtered(filters, (direction, from), input, out).await?,
            }
            let is_over = self.done && !self.ahead;
            if let Some(kept) = kept {
                kept.keep(out, std::mem::take(&mut new));
            }
            let is_stuck = to.is_stuck(direction, here);
            let ends_apart = is_over && !self.ended && matches!(self.sink, Sink::Http2);
            if !out.is_empty() || ends_apart {
                let n = out.len() as u64;
                let end = ends_apart && self.trailers.is_none();
                if n > 0 || end {
                    to.send(direction, here, out, end).await.map_err(Broken::receiver)?;
                    count(n);
                }
            }
            if is_stuck {
                to.flush(direction, here).await.map_err(Broken::receiver)?;
            }
            if self.ahead {
                continue; // the filters hold more data
            }
            if let Some(stream) = from.h2() {
                stream.gone_on();
            }
            if is_over {
                if let Some(filters) = filters {
                    filters.end(direction.sender);
                }
                if let Some(trailers) = &self.trailers
                    && let Some(stream) = to.h2()
                {
                    stream.send_trailers(trailers).map_err(Broken::receiver)?;
                }
                direction.waits(Waits::Nobody, here.now());
                return Ok(());
            }
            if input.is_empty()
                && kept.is_none_or(|kept| !kept.is_whole())
                && filters.is_none_or(|filters| !filters.works(direction.sender))
                && let Some(policy) = splice
                && self.splice(policy, ends, &count).await?
            {
                continue;
            }
            let room = to.room(direction, here).await.map_err(Broken::receiver)?;
            direction.waits(Waits::Sender, here.now());
            let had = input.len();
            let more = from.receive(input, room).await;
            passage.received.add((input.len() - had) as u64);
            match more {
                Ok(true) => direction.called(here.now()),
                Ok(false) if from.h2().is_some() => {} // the next step finds the end of the stream
                // Without the closing alert of TLS, an attacker could have cut a body that ends with its
                // connection.
                Ok(false) if self.ends_with_connection() && from.is_truncated() => {
                    return Err(Broken::Sender);
                }
                Ok(false) => self.end(out)?,
                Err(error) => return Err(Broken::sender(error)),
            }
        }
    }

    /// Returns true if the body ends with its connection. A tunnel does not count: it is not a body of a
    /// message.
    fn ends_with_connection(&self) -> bool {
        let unbounded = matches!(&self.source, Source::Http1(reader) if reader.passable().is_none());
        unbounded && self.framed != Body::Tunnel
    }

    /// Handles the sender's end of stream: the end of a body that has no other.
    fn end(&mut self, out: &mut Chain) -> Result<(), Broken> {
        if let Source::Http1(reader) = &mut self.source {
            reader.end().map_err(|_| Broken::Sender)?;
        }
        if let Sink::Http1(writer) = &mut self.sink {
            writer.end(None, out).map_err(|_| Broken::Memory)?;
        }
        self.done = true;
        Ok(())
    }

    /// Splices the bytes that may bypass the reader, if that pays. Returns true if any were spliced.
    async fn splice(
        &mut self,
        policy: SplicePolicy,
        ends: &Ends<'_>,
        count: impl Fn(u64),
    ) -> Result<bool, Broken> {
        let Ends { io, direction, from, to, passage, filters, .. } = *ends;
        let (Source::Http1(reader), Sink::Http1(writer)) = (&mut self.source, &mut self.sink) else {
            return Ok(false);
        };
        let bound = reader.passable();
        let expected = match bound {
            Some(bytes) => Expected::Bytes(bytes),
            None => Expected::UntilEnd { forwarded: direction.bytes() },
        };
        // No side uses chunks, or the chunks go on unchanged: then the rest of one may bypass the reader.
        let passes = self.kept || writer.left().is_some() || bound.is_none();
        let Some((from, to)) = from
            .whole()
            .zip(to.whole())
            .and_then(|(from, to)| policy.streams(from, to, expected))
            .filter(|_| passes && bound != Some(0))
        else {
            return Ok(false);
        };
        let here = io.here();
        let mut splicer = io.splicer();
        let mut left = bound.unwrap_or(u64::MAX);
        while left > 0 {
            if filters.is_some_and(|filters| filters.works(direction.sender)) {
                return Ok(false); // a rule for the response has started a filter
            }
            direction.waits(Waits::Both, here.now());
            let limit = usize::try_from(left).unwrap_or(usize::MAX).min(SPLICED_AT_ONCE);
            let n = match splicer.step(from, to, limit).await {
                Ok(n) => n as u64,
                Err(error) if splicer.held() > 0 => {
                    return Err(Broken::receiver(TransferError::Socket(error)));
                }
                Err(error) => return Err(Broken::sender(TransferError::Socket(error))),
            };
            if n == 0 {
                // The end of stream; the next read reports it again and decides what it means.
                return Ok(false);
            }
            passage.received.add(n);
            passage.spliced.into_iter().for_each(|tally| tally.add(n));
            reader.passed(n);
            if !self.kept {
                writer.passed(n).map_err(|_| Broken::Receiver)?;
            }
            direction.took(n, here.now());
            count(n);
            left -= n;
        }
        self.done = reader.is_done();
        Ok(true)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too

    use super::*;
    use crate::flow::{StreamTimeouts, Timeouts};
    use manylane_buf::{CLUSTER_SIZES, Cluster, MAX_CLUSTER, Segment};
    use manylane_io::{Driver, DriverChoice, Kind};
    use manylane_lanes::Timer;
    use manylane_plan::Cause;
    use manylane_sched::{Config, Lane, Time};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::Poll;

    /// A body that never ends.
    #[derive(Clone, Debug)]
    pub(in crate::http) struct Sent {
        pub(in crate::http) framing: Body,
        pub(in crate::http) bytes: Vec<u8>,
        /// Number of bytes of data.
        pub(in crate::http) data: usize,
    }

    /// Generates bodies with a length, and chunks with extensions before a part of the trailers.
    pub(in crate::http) fn sent() -> impl Strategy<Value = Sent> {
        let counted = (0..40_000_usize).prop_map(|data| Sent {
            framing: Body::Length(100_000),
            bytes: vec![b'x'; data],
            data,
        });
        let length = || prop_oneof![3 => 1..40_usize, 1 => 1..9_000_usize];
        let chunks = (prop::collection::vec((length(), length()), 1..12), 0..9_000_usize);
        let chunked = chunks.prop_map(|(chunks, trailer)| {
            let x = |length: usize| "x".repeat(length);
            let chunk =
                |&(data, extension): &(usize, usize)| format!("{data:x};{}\r\n{}\r\n", x(extension), x(data));
            let all: String = chunks.iter().map(chunk).collect();
            Sent {
                framing: Body::Chunked,
                bytes: format!("{all}0\r\nX: {}", x(trailer)).into_bytes(),
                data: chunks.iter().map(|(data, _)| data).sum(),
            }
        });
        prop_oneof![counted, chunked]
    }

    /// Generates the cuts of a message: into single bytes, or pieces up to the size of a read; repeated. Each
    /// comes with whether it is in a large cluster.
    pub(in crate::http) fn cuts() -> impl Strategy<Value = Vec<(usize, bool)>> {
        let length =
            prop_oneof![4 => Just(1_usize), 2 => 1..40_usize, 1 => 1..2049_usize, 1 => 1..16_385_usize];
        prop::collection::vec((length, any::<bool>()), 1..30)
    }

    /// Calls `each` with received bytes, one piece after another.
    pub(in crate::http) fn in_pieces(
        mut rest: &[u8],
        cuts: &[(usize, bool)],
        mut each: impl FnMut(Segment) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            let large = large || piece.len() > CLUSTER_SIZES[0];
            let mut cluster = Cluster::alloc(CLUSTER_SIZES[usize::from(large)]).unwrap();
            cluster.put(piece);
            each(cluster.into_segment())?;
        }
        Ok(())
    }

    /// Asserts that what waits in one place takes at most twice the memory of its bytes, and a cluster.
    pub(in crate::http) fn is_bounded(place: &str, chain: &Chain) -> Result<(), TestCaseError> {
        let (mut memory, mut before) = (0, None::<&Segment>);
        for segment in chain.segments() {
            if !before.is_some_and(|before| before.shares_with(segment)) {
                memory += segment.excess() + 2 * segment.len() as isize;
            }
            before = Some(segment);
        }
        let bound = 2 * chain.len() + MAX_CLUSTER + 128;
        prop_assert!(memory <= bound as isize, "{}: {} bytes for {}", place, memory, chain.len());
        Ok(())
    }

    /// Runs `test` with the end of a connection.
    pub(in crate::http) fn with_an_end(
        test: impl FnOnce(BodyEnd<'_>) -> Result<(), TestCaseError> + 'static,
    ) -> Result<(), TestCaseError> {
        let mut lane = Lane::new(Config::new()).unwrap();
        let mut driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let connection = Connection::Socket(driver.io().stream(ours).unwrap());
        lane.block_on(&mut driver, async move { test(BodyEnd::Http1(&connection)) }).unwrap()
    }

    thread_local! {
        /// The clock of a lane, in seconds.
        static NOW: Cell<u64> = const { Cell::new(1000) };
    }

    /// A client that drips, each time shortly before the server's timeout, does not renew that of a server
    /// which stopped reading.
    #[test]
    fn drips_do_not_renew_the_time_of_a_server_that_does_not_read() {
        const DRIPS: u64 = 8;
        for kind in [Kind::Epoll, Kind::IoUring] {
            let mut lane = Lane::new(Config::new().clock(|| Time::from_millis(NOW.get() * 1000))).unwrap();
            let mut driver = match Driver::new(lane.here(), DriverChoice::Only(kind)) {
                Ok(driver) => driver,
                Err(error) => {
                    assert_eq!(kind, Kind::IoUring, "{error}");
                    continue;
                }
            };
            let io = driver.io();
            let work = async move {
                let here = io.here();
                let ((from, mut client), (mut to, _server)) =
                    (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
                to.set_nonblocking(true).unwrap();
                for size in [4096, 1] {
                    while to.write(&vec![b'x'; size]).is_ok() {}
                }
                let [from, to] = [from, to].map(|end| Connection::Socket(io.stream(end).unwrap()));
                let server = Some(Duration::from_secs(30));
                let timeouts = StreamTimeouts::new(Timeouts { server, ..Timeouts::default() }, here.now());
                let (received, spliced) = (Tally::new(), Tally::new());
                let ends = Ends {
                    io: &io,
                    direction: &timeouts.up,
                    from: BodyEnd::Http1(&from),
                    to: BodyEnd::Http1(&to),
                    splice: None,
                    kept: None,
                    passage: Passage { received: &received, spliced: [&spliced; 2] },
                    filters: None,
                };
                let body = Body::Length(1000);
                let mut pump = Pump::new(ends.from, body, body, From::Client, Limits::default(), false);
                let (mut input, mut out) = (Chain::new(), Chain::new());
                let (timer, running) =
                    (Timer::new(here), pin!(pump.run(&ends, &mut input, &mut out, |_| ())));
                let mut running = pin!(timeouts.in_time(&timer, running));
                let mut dripping = pin!(async {
                    for drip in 1..=DRIPS {
                        client.write_all(b"x").unwrap();
                        for _ in 0..1000 {
                            if received.get() == drip {
                                break;
                            }
                            here.yield_now().await;
                        }
                        NOW.set(NOW.get() + 25);
                        here.yield_now().await;
                    }
                });
                poll_fn(|context| match running.as_mut().poll(context) {
                    Poll::Ready(ended) => Poll::Ready(ended.err()),
                    Poll::Pending => dripping.as_mut().poll(context).map(|()| None),
                })
                .await
            };
            let ended = lane.block_on(&mut driver, work).unwrap();
            assert_eq!(ended, Some(Cause::ServerSilent), "{kind:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A chunked body whose chunks go on unchanged. Its first byte ends the wait for a 100.
        #[test]
        fn what_waits_of_chunks_takes_at_most_twice_its_bytes_and_a_cluster(
            sent in sent().prop_filter("chunks", |sent| sent.framing == Body::Chunked),
            cuts in cuts(),
        ) {
            with_an_end(move |from| {
                let (chunked, limits) = (Body::Chunked, Limits::default());
                let mut pump = Pump::new(from, chunked, chunked, From::Client, limits, false);
                pump.wait_for_continue(true);
                let mut input = Chain::new();
                prop_assert!(pump.step(from, &mut input, &mut Chain::new()).is_ok());
                prop_assert!(pump.may_be_left_out());
                in_pieces(&sent.bytes, &cuts, |piece| {
                    input.push_compact(piece).unwrap();
                    prop_assert!(pump.step(from, &mut input, &mut Chain::new()).is_ok());
                    prop_assert!(!pump.may_be_left_out());
                    is_bounded("input", &input)
                })
            })?;
        }

        /// A body that is read ahead for rules (`option http-buffer-request`), and what is not read of it.
        #[test]
        fn what_waits_of_a_body_takes_at_most_twice_its_bytes_and_a_cluster(sent in sent(), cuts in cuts()) {
            with_an_end(move |from| {
                let limits = Limits::default();
                let mut pump = Pump::new(from, sent.framing, sent.framing, From::Client, limits, false);
                let mut input = Chain::new();
                in_pieces(&sent.bytes, &cuts, |piece| {
                    input.push_compact(piece).unwrap();
                    prop_assert!(pump.read_ahead(from, &mut input).is_ok());
                    is_bounded("input", &input)?;
                    is_bounded("data", pump.data())
                })?;
                prop_assert_eq!((pump.data().len(), pump.is_done()), (sent.data, false));
                Ok(())
            })?;
        }

        /// The copy of what was sent for a retry: all of it, or nothing of more than there is room for.
        #[test]
        fn what_is_kept_for_a_retry_takes_at_most_twice_its_bytes_and_a_cluster(
            bytes in prop_oneof![0..40_000_usize, 16_383..=16_386_usize],
            head in 0..300_usize,
            cuts in cuts(),
        ) {
            let kept = Kept::new(16_384, Body::Chunked);
            let (mut sent, mut new) = (0, head);
            in_pieces(&vec![b'x'; bytes], &cuts, |piece| {
                // The head goes out with the first piece.
                let mut out = Chain::new();
                out.append(&vec![b'h'; new]).unwrap();
                sent += piece.len();
                out.push_back(piece).unwrap();
                kept.keep(&out, std::mem::take(&mut new));
                drop(out);
                prop_assert_eq!(kept.is_whole(), sent <= 16_384);
                let mut copy = Chain::new();
                prop_assert!(kept.again(&mut copy).is_ok());
                prop_assert_eq!(copy.len(), if sent <= 16_384 { sent } else { 0 });
                is_bounded("copy", &copy)
            })?;
        }
    }
}
