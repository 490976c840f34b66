//! Bodies out of bytes as they arrive.
//!
//! Data moves by reference, but for small chunks: those of one segment are copied into one cluster that is
//! reserved once for all of them (R-G10), since a segment each would cost more than the copy, here and in the
//! system call that sends them.

use crate::chunks::{self, Chunks};
use crate::error::{Error, Problem};
use crate::leniency::{Leniency, Relaxed};
use crate::limits::Limits;
use crate::lines::Refusal;
use crate::message::Body;
use crate::parse::{TrailerParser, request_error, response_error};
use crate::write::Digits;
use manylane_buf::{CLUSTER_SIZES, Chain, Cluster, MAX_CLUSTER, Segment};
use manylane_http::Head;

/// A chunk's data of fewer bytes in one segment is copied to what came before it, more is passed on by
/// reference.
const SMALL: usize = 1024;

/// Chunks with fewer bytes of data are tiny: their framing is a tenth of them and more. Those that are there
/// together are worth a copy, which is less than what they cost every hop behind.
const TINY_CHUNK: usize = 64;

/// No size's line is longer, in bytes: digits and line end; extensions are read over as they come.
const LONGEST_LINE: usize = 16 + 2;

#[derive(Debug)]
enum State {
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunks),
    Trailers(TrailerParser),
    /// All that comes.
    UntilEnd,
    Done,
    Failed,
}

/// What has become of a body.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would ask the global allocator for room
pub enum Progress {
    /// More bytes are needed, or there may be more: of a body that ends with the connection, and of a tunnel.
    More,
    /// It is complete; what the input still has belongs to the next message. The trailers, if there was at
    /// least one.
    Done(Option<Head>),
}

/// Whose message is read: decides about the status of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A client's: 400 and 431.
    Client,
    /// A server's: 502.
    Server,
}

/// Takes one body out of a connection's bytes.
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    from: From,
    limits: Limits,
    /// Bytes of data so far.
    data: u64,
    /// The first thing in it that a strict reader refuses.
    relaxed: Option<Relaxed>,
}

impl BodyReader {
    /// A reader at the beginning of a body.
    pub fn new(body: Body, from: From, limits: Limits) -> Self {
        let state = match body {
            Body::None | Body::Length(0) => State::Done,
            Body::Length(length) => State::Length(length),
            Body::Chunked => State::Chunked(Chunks::new(
                from == From::Server || limits.lenient.has(Leniency::CHUNK_BLANKS),
            )),
            Body::UntilClose | Body::Tunnel => State::UntilEnd,
        };
        Self { state, from, limits, data: 0, relaxed: None }
    }

    /// The first thing that a strict reader refuses, in chunks' sizes or trailers. Said once.
    pub fn take_relaxed(&mut self) -> Option<Relaxed> {
        let mut relaxed = self.relaxed.take()?;
        if self.from == From::Server {
            relaxed.error.status = 502;
        }
        Some(relaxed)
    }

    /// Whether the whole body was read.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Bytes of data that were read so far.
    pub fn data(&self) -> u64 {
        self.data
    }

    /// The most bytes that may follow before something has to be looked at: what may be spliced. None: no
    /// bound.
    pub fn passable(&self) -> Option<u64> {
        match &self.state {
            State::Length(left) => Some(*left),
            State::Chunked(chunks) => Some(chunks.left()),
            State::UntilEnd => None,
            State::Trailers(_) | State::Done | State::Failed => Some(0),
        }
    }

    /// `n` bytes of data went past the reader, at most [`passable`](Self::passable).
    ///
    /// # Panics
    /// When they are more.
    pub fn passed(&mut self, n: u64) {
        assert!(
            self.passable().is_none_or(|bound| n <= bound),
            "{n} bytes passed, more than the body allows"
        );
        self.data += n;
        match &mut self.state {
            State::Length(left) if *left == n => self.state = State::Done,
            State::Length(left) => *left -= n,
            State::Chunked(chunks) => chunks.pass(n),
            State::UntilEnd | State::Trailers(_) | State::Done | State::Failed => {}
        }
    }

    /// Whether the next byte is the first of a chunk: here, and nowhere else, may [`read`](Self::read) take
    /// turns with [`read_chunks`](Self::read_chunks).
    #[inline]
    pub fn is_between_chunks(&self) -> bool {
        matches!(&self.state, State::Chunked(chunks) if chunks.is_between())
    }

    /// Whether `input`, which begins [between chunks](Self::is_between_chunks), begins with a chunk that has
    /// few bytes and is not the last one of data: better passed on together with those behind it.
    #[inline]
    pub fn sees_tiny_chunks(input: &Chain) -> bool {
        let Some(bytes) = input.front() else { return false };
        let Some((start, len)) = chunks::whole(bytes, 0) else { return false };
        len < TINY_CHUNK && bytes.get(start + len + 2).is_some_and(|next| *next != b'0')
    }

    /// Moves data from `input` behind what `out` has, without its framing: all that is there.
    ///
    /// # Errors
    /// [`Error`]; what was read before it is in `out`. The connection cannot be used any more.
    pub fn read(&mut self, input: &mut Chain, out: &mut Chain) -> Result<Progress, Error> {
        self.advance(input, out, false)
    }

    /// As [`read`](Self::read), but a chunked body keeps its chunks: `out` gets them as they came but for
    /// extensions, checked, up to the line of the last chunk, which is left out as trailers are;
    /// [`BodyWriter::end`](crate::BodyWriter::end) writes those. Nothing is copied. For bodies that go on
    /// as chunks and are not looked at.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_chunks(&mut self, input: &mut Chain, out: &mut Chain) -> Result<Progress, Error> {
        self.advance(input, out, true)
    }

    fn advance(&mut self, input: &mut Chain, out: &mut Chain, keep_chunks: bool) -> Result<Progress, Error> {
        self.run(input, out, keep_chunks).map_err(|refusal| {
            self.state = State::Failed;
            match self.from {
                From::Client => request_error(refusal),
                From::Server => response_error(refusal),
            }
        })
    }

    fn run(&mut self, input: &mut Chain, out: &mut Chain, keep_chunks: bool) -> Result<Progress, Refusal> {
        loop {
            match &mut self.state {
                State::Done => return Ok(Progress::Done(None)),
                State::Failed => return Err((Problem::Early, 0)),
                State::UntilEnd => {
                    self.data += input.len() as u64;
                    out.append_chain(input).map_err(no_memory)?;
                    return Ok(Progress::More);
                }
                State::Length(left) => {
                    if input.is_empty() {
                        return Ok(Progress::More);
                    }
                    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    move_bytes(input, n, out)?;
                    self.data += n as u64;
                    *left -= n as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                }
                State::Chunked(chunks) => {
                    let Some(front) = input.front() else { return Ok(Progress::More) };
                    let (n, data) =
                        if keep_chunks { keep(chunks, front, out)? } else { join(chunks, front, out)? };
                    self.data += data;
                    if let Some(at) = chunks.take_padding()
                        && self.from == From::Client // those of servers are as they may be
                        && self.relaxed.is_none()
                    {
                        let error = request_error((Problem::BadExtension, at));
                        let received = front.slice(0..front.len()).map_err(no_memory)?;
                        self.relaxed = Some(Relaxed { error, received });
                    }
                    if n == 0 {
                        // A size's line that is cut: it has to lie in one piece.
                        if input.segment_count() == 1 {
                            return Ok(Progress::More);
                        }
                        let piece = (front.len() + LONGEST_LINE).min(input.len()).min(MAX_CLUSTER);
                        input.pull_up(piece).map_err(no_memory)?;
                        continue;
                    }
                    input.trim_front(n).map_err(|_| (Problem::NoMemory, 0))?;
                    if chunks.is_last() {
                        self.state = State::Trailers(TrailerParser::default());
                    }
                }
                State::Trailers(parser) => {
                    let Some(trailers) = parser.parse(input, &self.limits)? else {
                        return Ok(Progress::More);
                    };
                    self.relaxed = self.relaxed.take().or_else(|| parser.take_relaxed());
                    self.state = State::Done;
                    return Ok(Progress::Done(
                        Some(trailers).filter(|trailers| trailers.fields().next().is_some()),
                    ));
                }
            }
        }
    }

    /// The connection ended. That is the end of a body that has no other.
    ///
    /// # Errors
    /// When the body is not complete. The status is that of a client that went away amid its request, 400, or
    /// of a server that did so amid its response, 502.
    pub fn end(&mut self) -> Result<(), Error> {
        match self.state {
            State::Done | State::UntilEnd => {
                self.state = State::Done;
                Ok(())
            }
            _ => {
                self.state = State::Failed;
                let refusal = (Problem::Early, 0);
                Err(if self.from == From::Client { request_error(refusal) } else { response_error(refusal) })
            }
        }
    }
}

fn no_memory<E>(_: E) -> Refusal {
    (Problem::NoMemory, 0)
}

/// Moves `n` bytes, of which there are so many.
fn move_bytes(input: &mut Chain, n: usize, out: &mut Chain) -> Result<(), Refusal> {
    if n == input.len() {
        return out.append_chain(input).map_err(no_memory);
    }
    let mut part = input.split_to(n).map_err(no_memory)?;
    out.append_chain(&mut part).map_err(no_memory)
}

/// Bytes read, and bytes of data among them.
type Read = (usize, u64);

/// Reads one segment and passes the chunks on as they are but for extensions, which are for the next hop
/// only, up to the last size's line that is complete and not the last chunk's. Of a line whose extension is
/// cut the size is passed on, and the rest is read over when it comes.
fn keep(chunks: &mut Chunks, front: &Segment, out: &mut Chain) -> Result<Read, Refusal> {
    if chunks.extending().is_some() {
        let read = chunks.read_extension(front)?;
        chunks.saw_extension();
        return Ok((read, 0));
    }
    let before = *chunks;
    let mut data = 0;
    let (read, line) = chunks.read(front, |_, len| data += len as u64)?;
    let (last, cut) = (chunks.is_last(), chunks.extending());
    let keep = if chunks.rewind() || last || cut.is_some() { line } else { read };
    if chunks.saw_extension() {
        without_extensions(before, front, keep, out)?;
        if let Some(size) = cut.filter(|size| *size > 0) {
            out.append_together(&[Digits::default().hexadecimal(size), b"\r\n"], CLUSTER_SIZES[0])
                .map_err(no_memory)?;
        }
        return Ok((if last || cut.is_some() { read } else { keep }, data));
    }
    let kept = front.slice(0..keep).map_err(no_memory)?;
    out.push_back(kept).map_err(no_memory)?;
    Ok((if last { read } else { keep }, data))
}

/// Passes on the first `end` bytes of a segment, but for the extensions of its chunks. No size's line is cut
/// there.
#[cold]
fn without_extensions(
    mut chunks: Chunks,
    front: &Segment,
    end: usize,
    out: &mut Chain,
) -> Result<(), Refusal> {
    let mut joiner = Joiner { front, out, joined: None, reserve: MAX_CLUSTER, failed: false };
    // The line between two pieces of data, with the end of the first.
    let line = |joiner: &mut Joiner<'_>, from: usize, to: usize| {
        let starts = front[from..to].iter().position(|byte| matches!(byte, b';' | b' ' | b'\t'));
        match starts {
            None => joiner.add(from, to - from),
            Some(starts) => {
                joiner.add(from, starts);
                joiner.add(to - 2, 2);
            }
        }
    };
    let mut at = 0;
    let read = chunks.read(&front[..end], |start, len| {
        line(&mut joiner, at, start);
        joiner.add(start, len);
        at = start + len;
    });
    line(&mut joiner, at, end);
    joiner.flush();
    if joiner.failed {
        return Err((Problem::NoMemory, 0));
    }
    read.map(|_| ())
}

/// Reads one segment and passes its data on without the chunks: large pieces by reference, small ones copied
/// together.
fn join(chunks: &mut Chunks, front: &Segment, out: &mut Chain) -> Result<Read, Refusal> {
    let mut joiner = Joiner { front, out, joined: None, reserve: MAX_CLUSTER, failed: false };
    let mut data = 0;
    let read = chunks.read(front, |at, len| {
        data += len as u64;
        joiner.add(at, len);
    });
    joiner.flush();
    if joiner.failed {
        return Err((Problem::NoMemory, 0));
    }
    Ok((read?.0, data))
}

/// Puts pieces of one segment behind a chain.
struct Joiner<'a> {
    front: &'a Segment,
    out: &'a mut Chain,
    /// What was copied together and is not in the chain yet.
    joined: Option<Cluster>,
    /// Most room to take for what is copied.
    reserve: usize,
    failed: bool,
}

impl Joiner<'_> {
    #[inline]
    fn add(&mut self, at: usize, len: usize) {
        if len == 0 {
            return;
        }
        if len >= SMALL {
            self.pass(at, len);
            return;
        }
        let bytes = &self.front[at..at + len];
        if let Some(cluster) = &mut self.joined
            && cluster.spare_len() >= len
        {
            cluster.put(bytes);
            return;
        }
        self.flush();
        // Room for all data that the segment can still have (R-G10), but behind a large piece, where little
        // is to be expected.
        let room = (self.front.len() - at).min(self.reserve);
        match Cluster::alloc(room) {
            Ok(mut cluster) => {
                cluster.put(bytes);
                self.joined = Some(cluster);
            }
            Err(_) => self.failed = true,
        }
    }

    /// By reference.
    fn pass(&mut self, at: usize, len: usize) {
        self.flush();
        self.reserve = CLUSTER_SIZES[0];
        let passed = self.front.slice(at..at + len).is_ok_and(|piece| self.out.push_back(piece).is_ok());
        self.failed |= !passed;
    }

    fn flush(&mut self) {
        if let Some(cluster) = self.joined.take() {
            self.failed |= self.out.push_back(cluster.into_segment()).is_err();
        }
    }
}
