//! A body from one connection to the other: framing taken off and put on, large pieces by reference, bulk by
//! splicing.

use crate::filters::Filters;
use crate::flow::{BodyEnd, Direction, EndFailed, H2End, SPLICED_AT_ONCE, Waits};
use crate::invalid::Found;
use manylane_buf::Chain;
use manylane_h1::{Body, BodyReader, BodyWriter, From, Limits, Progress, Relaxed};
use manylane_http::Head;
use manylane_io::Io;
use manylane_net::{Connection, Expected, SplicePolicy, TransferError};
use manylane_stats::Tally;
use std::cell::RefCell;

/// Why a body did not get to its end.
#[derive(Debug)]
pub(super) enum Broken {
    /// Its sender closed, or its connection failed.
    Sender,
    /// Its receiver does not take it.
    Receiver,
    /// Its framing is wrong.
    Framing(Box<Found>),
    /// There is no memory.
    Memory,
}

impl Broken {
    /// Receiving from the sender failed; not by its fault where there is no memory for what it sends.
    pub(super) fn sender(error: impl Into<EndFailed>) -> Self {
        if error.into().is_memory() { Self::Memory } else { Self::Sender }
    }

    /// The same of sending to the receiver.
    pub(super) fn receiver(error: impl Into<EndFailed>) -> Self {
        if error.into().is_memory() { Self::Memory } else { Self::Receiver }
    }
}

/// Where a body comes from: takes its framing off.
#[derive(Debug)]
enum Source {
    Http1(BodyReader),
    /// Data comes as it is, and its end is told.
    Http2,
}

/// Where a body goes to: puts a framing around it.
#[derive(Debug)]
enum Sink {
    Http1(BodyWriter),
    /// Data goes as it is, and its end is told.
    Http2,
}

/// One body on its way.
#[derive(Debug)]
pub(super) struct Pump {
    source: Source,
    sink: Sink,
    /// How it is framed where it is.
    framed: Body,
    /// Chunks go on as chunks.
    chunks: bool,
    /// They go on as they came; else their data does, as new ones.
    kept: bool,
    drop_trailers: bool,
    done: bool,
    /// The receiver was told so.
    ended: bool,
    /// The sender waits for a 100 before it sends the body (`Expect: 100-continue`), and nothing of the body
    /// has come.
    waits_for_continue: bool,
    /// Something was read ahead and is not framed for the receiver yet: `data`, and the end with `trailers`
    /// if that was reached.
    ahead: bool,
    data: Chain,
    trailers: Option<Head>,
}

impl Source {
    /// Moves the data that is there from `input` behind `out`.
    fn read(&mut self, from: BodyEnd<'_>, input: &mut Chain, out: &mut Chain) -> Result<Progress, Broken> {
        match self {
            Self::Http1(reader) => {
                reader.read(input, out).map_err(|error| Broken::Framing(Found::new(input, error)))
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
    /// Moves all of `data` behind `out`, framed.
    fn write(&mut self, data: &mut Chain, out: &mut Chain) -> Result<(), Broken> {
        match self {
            Self::Http1(writer) => writer.write(data, out).map_err(|_| Broken::Memory),
            Self::Http2 => out.append_chain(data).map_err(|_| Broken::Memory),
        }
    }
}

/// The ends of a way, and what goes over it.
pub(super) struct Ends<'a> {
    pub(super) io: &'a Io,
    pub(super) way: &'a Direction,
    pub(super) from: BodyEnd<'a>,
    pub(super) to: BodyEnd<'a>,
    pub(super) splice: Option<SplicePolicy>,
    /// Keeps what is sent.
    pub(super) kept: Option<&'a Kept>,
    pub(super) passage: Passage<'a>,
    /// What sees the body before it is framed for its receiver.
    pub(super) filters: Option<&'a Filters<'a>>,
}

/// Who counts what comes over a way, as it comes.
#[derive(Clone, Copy)]
pub(super) struct Passage<'a> {
    /// All of it.
    pub(super) received: &'a Tally,
    /// What is spliced, for the sender's side and the receiver's.
    pub(super) spliced: [&'a Tally; 2],
}

/// What was sent of a body, for sending it once more to another receiver (`retry-on`): all of it, or nothing
/// when it is too much.
#[derive(Debug)]
pub(super) struct Kept {
    room: usize,
    sent: RefCell<Option<Chain>>,
}

impl Kept {
    /// Room for so many bytes, of a body like this.
    pub(super) fn new(room: usize, body: Body) -> Self {
        let fits = !matches!(body, Body::Length(length) if length > room as u64);
        Self { room, sent: RefCell::new(fits.then(Chain::new)) }
    }

    /// Whether nothing was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.borrow().as_ref().is_none_or(Chain::is_empty)
    }

    /// Whether all that was sent is here.
    pub(super) fn is_whole(&self) -> bool {
        self.sent.borrow().is_some()
    }

    /// Puts all that was sent behind `out`.
    pub(super) fn again(&self, out: &mut Chain) -> Result<(), Broken> {
        let Some(sent) = &*self.sent.borrow() else { return Ok(()) };
        let mut copy = sent.share().map_err(|_| Broken::Memory)?;
        out.append_chain(&mut copy).map_err(|_| Broken::Memory)
    }

    /// Keeps what `out` has from `new` on, and is about to be sent.
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

/// Sends `out`, behind which nothing comes. `count` is told of bytes as they go.
pub(super) async fn send(ends: &Ends<'_>, out: &mut Chain, count: impl Fn(u64)) -> Result<(), Broken> {
    let Ends { io, way, to, .. } = *ends;
    let here = io.here();
    let n = out.len() as u64;
    if n > 0 {
        to.send(way, here, out, true).await.map_err(Broken::receiver)?;
    }
    way.waits(Waits::Nobody, here.now());
    count(n);
    Ok(())
}

/// Sends `out`, behind which the connection is closed.
pub(super) async fn send_last(
    ends: &Ends<'_>,
    connection: &Connection,
    out: &mut Chain,
    count: impl Fn(u64),
) -> Result<(), Broken> {
    let Ends { io, way, .. } = *ends;
    let here = io.here();
    let n = out.len() as u64;
    way.send_last(here, connection, out).await.map_err(Broken::receiver)?;
    way.waits(Waits::Nobody, here.now());
    count(n);
    Ok(())
}

/// Waits until all that was sent is the system's.
pub(super) async fn flush(ends: &Ends<'_>, connection: &Connection) -> Result<(), Broken> {
    let here = ends.io.here();
    ends.way.flush(here, connection).await.map_err(Broken::receiver)?;
    ends.way.waits(Waits::Nobody, here.now());
    Ok(())
}

impl Pump {
    /// For a body that comes from there, is framed as `found` if it is, and goes on as `framed` where it is.
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

    /// It goes to a stream, as data.
    pub(super) fn goes_to_stream(&mut self) {
        (self.sink, self.chunks, self.kept, self.ended) = (Sink::Http2, false, false, false);
    }

    /// It goes to a connection of HTTP/1, though it went to a stream before.
    pub(super) fn goes_to_connection(&mut self) {
        if let Sink::Http2 = self.sink {
            self.sink = Sink::Http1(BodyWriter::new(self.framed));
        }
    }

    /// Whether it goes to a stream.
    pub(super) fn is_for_stream(&self) -> bool {
        matches!(self.sink, Sink::Http2)
    }

    /// Whether there is nothing but an end.
    pub(super) fn is_empty(&self) -> bool {
        self.done && self.data.is_empty() && self.trailers.is_none()
    }

    /// Its end was sent with the head.
    pub(super) fn ends_with_head(&mut self) {
        self.ended = true;
    }

    /// Notes that the sender waits for a 100 before it sends the body, or that it was sent one.
    pub(super) fn wait_for_continue(&mut self, waits: bool) {
        self.waits_for_continue = waits;
    }

    /// Whether the sender may leave the body out: behind a final response it then sends its next request.
    pub(super) fn may_be_left_out(&self) -> bool {
        self.waits_for_continue && !self.done
    }

    /// What a strict reader refuses in what was read. Said once.
    pub(super) fn take_relaxed(&mut self) -> Option<Relaxed> {
        match &mut self.source {
            Source::Http1(reader) => reader.take_relaxed(),
            Source::Http2 => None,
        }
    }

    /// Trailers go no further.
    pub(super) fn drop_trailers(&mut self) {
        self.drop_trailers = true;
    }

    /// From here on it goes on as `framed`. Nothing was sent yet.
    pub(super) fn reframe(&mut self, framed: Body) {
        if framed != self.framed {
            (self.framed, self.chunks, self.kept) = (framed, false, false);
            (self.sink, self.trailers) = (Sink::Http1(BodyWriter::new(framed)), None);
            self.ahead |= self.done;
        }
    }

    /// Takes what is there from `input`, to be looked at and to be sent later.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(super) fn read_ahead(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        self.read_data(from, input)?;
        if let Some(stream) = from.h2() {
            stream.gone_on(); // it is bounded by who reads ahead
        }
        Ok(())
    }

    /// The same, of which the sender is not told yet.
    fn read_data(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        if self.done || !self.has_news(from, input) {
            return Ok(());
        }
        self.waits_for_continue = false;
        self.kept = false; // data are wanted, not chunks
        self.ahead = true;
        let mut data = Chain::new();
        let progress = self.source.read(from, input, &mut data)?;
        self.data.append_compact(&mut data).map_err(|_| Broken::Memory)?;
        if let Progress::Done(trailers) = progress {
            (self.trailers, self.done) = (trailers, true);
        }
        Ok(())
    }

    /// Whether there is something to read.
    fn has_news(&self, from: BodyEnd<'_>, input: &Chain) -> bool {
        !input.is_empty() || from.h2().is_some_and(H2End::is_over)
    }

    /// Drops what is there of it from `input`: nobody wants it.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(super) fn skip(&mut self, from: BodyEnd<'_>, input: &mut Chain) -> Result<(), Broken> {
        if self.done || !self.has_news(from, input) {
            return Ok(());
        }
        self.waits_for_continue = false;
        let progress = self.source.read(from, input, &mut Chain::new())?;
        self.done = matches!(progress, Progress::Done(_));
        Ok(())
    }

    /// Bytes that are still to come, as far as the framing has told; none where only the end tells.
    pub(super) fn left(&self) -> Option<u64> {
        match &self.source {
            Source::Http1(reader) => reader.passable(),
            Source::Http2 => None,
        }
    }

    /// Puts what was read ahead behind `out`, framed. Nobody looks at it any more.
    fn write_ahead(&mut self, out: &mut Chain) -> Result<(), Broken> {
        let mut data = std::mem::take(&mut self.data);
        self.sink.write(&mut data, out)?;
        if self.done {
            self.end_with_trailers(out)?;
        }
        Ok(())
    }

    /// The data that were [read ahead](Self::read_ahead).
    pub(super) fn data(&self) -> &Chain {
        &self.data
    }

    /// Whether all of it was read.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Moves what is there from `input` to `out`.
    fn step(&mut self, from: BodyEnd<'_>, input: &mut Chain, out: &mut Chain) -> Result<(), Broken> {
        if self.done {
            return Ok(());
        }
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

    /// [`step`](Self::step) of a body that filters see: of what was read, as much as they have go on. Where
    /// that is nothing for now, `out` goes first.
    async fn step_filtered(
        &mut self,
        filters: &Filters<'_>,
        (way, from): (&Direction, BodyEnd<'_>),
        input: &mut Chain,
        out: &mut Chain,
    ) -> Result<(), Broken> {
        self.chunks = false; // filters see data
        self.read_data(from, input)?;
        while !self.data.is_empty() {
            match filters.take(way.sender, self.data.len()) {
                Ok(bytes) => {
                    let mut part = self.data.split_to(bytes).map_err(|_| Broken::Memory)?;
                    filters.forward(&part);
                    self.sink.write(&mut part, out)?;
                    break;
                }
                Err(_) if !out.is_empty() => return Ok(()),
                Err(then) => filters.wait(way, then).await,
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

    /// Puts the end of the framing behind `out`.
    fn end_with_trailers(&mut self, out: &mut Chain) -> Result<(), Broken> {
        if self.drop_trailers {
            self.trailers = None;
        }
        let Sink::Http1(writer) = &mut self.sink else { return Ok(()) };
        let mut trailers = self.trailers.take();
        writer.end(trailers.as_mut(), out).map_err(|_| Broken::Memory)
    }

    /// Sends `out`, and behind it the body, until that is complete. `input` has what was received already,
    /// and what follows the body afterwards. `count` is told of bytes as they go.
    pub(super) async fn run(
        &mut self,
        ends: &Ends<'_>,
        input: &mut Chain,
        out: &mut Chain,
        count: impl Fn(u64),
    ) -> Result<(), Broken> {
        let Ends { io, way, from, to, splice, kept, passage, filters } = *ends;
        let here = io.here();
        let mut new = out.len(); // where begins what was never sent
        if filters.is_none() && std::mem::take(&mut self.ahead) {
            self.write_ahead(out)?;
        }
        loop {
            match filters {
                None => self.step(from, input, out)?,
                Some(filters) => self.step_filtered(filters, (way, from), input, out).await?,
            }
            let is_over = self.done && !self.ahead;
            if let Some(kept) = kept {
                kept.keep(out, std::mem::take(&mut new));
            }
            let ends_apart = is_over && !self.ended && matches!(self.sink, Sink::Http2);
            if !out.is_empty() || ends_apart {
                let n = out.len() as u64;
                let end = ends_apart && self.trailers.is_none();
                if n > 0 || end {
                    to.send(way, here, out, end).await.map_err(Broken::receiver)?;
                    count(n);
                }
            }
            if self.ahead {
                continue; // filters have more of it
            }
            if let Some(stream) = from.h2() {
                stream.gone_on();
            }
            if is_over {
                if let Some(filters) = filters {
                    filters.end(way.sender);
                }
                if let Some(trailers) = &self.trailers
                    && let Some(stream) = to.h2()
                {
                    stream.send_trailers(trailers).map_err(Broken::receiver)?;
                }
                way.waits(Waits::Nobody, here.now());
                return Ok(());
            }
            if input.is_empty()
                && kept.is_none_or(|kept| !kept.is_whole())
                && filters.is_none_or(|filters| !filters.works(way.sender))
                && let Some(policy) = splice
                && self.splice(policy, ends, &count).await?
            {
                continue;
            }
            let room = to.room(way, here).await.map_err(Broken::receiver)?;
            way.waits(Waits::Sender, here.now());
            let had = input.len();
            let more = from.receive(input, room).await;
            passage.received.add((input.len() - had) as u64);
            match more {
                Ok(true) => way.called(here.now()),
                Ok(false) if from.h2().is_some() => {} // which the next step finds
                // Whoever sits between could have cut a body whose end nothing else tells.
                Ok(false) if self.ends_with_connection() && from.is_truncated() => {
                    return Err(Broken::Sender);
                }
                Ok(false) => self.end(out)?,
                Err(error) => return Err(Broken::sender(error)),
            }
        }
    }

    /// Whether it is a message's body whose end is the sender's; a tunnel has no message.
    fn ends_with_connection(&self) -> bool {
        let unbounded = matches!(&self.source, Source::Http1(reader) if reader.passable().is_none());
        unbounded && self.framed != Body::Tunnel
    }

    /// The sender has closed: the end of a body that has no other.
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

    /// Splices what may go past the reader, if that is worth it; whether anything was.
    async fn splice(
        &mut self,
        policy: SplicePolicy,
        ends: &Ends<'_>,
        count: impl Fn(u64),
    ) -> Result<bool, Broken> {
        let Ends { io, way, from, to, passage, filters, .. } = *ends;
        let (Source::Http1(reader), Sink::Http1(writer)) = (&mut self.source, &mut self.sink) else {
            return Ok(false);
        };
        let bound = reader.passable();
        let expected = match bound {
            Some(bytes) => Expected::Bytes(bytes),
            None => Expected::UntilEnd { forwarded: way.bytes() },
        };
        let whole = writer.left().is_some() || bound.is_none(); // no chunks on either side
        let Some((from, to)) = from
            .whole()
            .zip(to.whole())
            .and_then(|(from, to)| policy.streams(from, to, expected))
            .filter(|_| whole && !self.kept && bound != Some(0))
        else {
            return Ok(false);
        };
        let here = io.here();
        let mut splicer = io.splicer();
        let mut left = bound.unwrap_or(u64::MAX);
        while left > 0 {
            if filters.is_some_and(|filters| filters.works(way.sender)) {
                return Ok(false); // a rule for the response has put one to work
            }
            way.waits(Waits::Both, here.now());
            let limit = usize::try_from(left).unwrap_or(usize::MAX).min(SPLICED_AT_ONCE);
            let n = match splicer.step(from, to, limit).await {
                Ok(n) => n as u64,
                Err(error) if splicer.held() > 0 => {
                    return Err(Broken::receiver(TransferError::Socket(error)));
                }
                Err(error) => return Err(Broken::sender(TransferError::Socket(error))),
            };
            if n == 0 {
                return Ok(false); // the end: reading tells it once more, and what it means is decided there
            }
            passage.received.add(n);
            passage.spliced.into_iter().for_each(|tally| tally.add(n));
            reader.passed(n);
            writer.passed(n).map_err(|_| Broken::Receiver)?;
            way.took(n, here.now());
            count(n);
            left -= n;
        }
        self.done = reader.is_done();
        Ok(true)
    }
}
