//! Reads bodies from bytes as they arrive.
//!
//! Data moves by reference, except for small chunks. The small chunks of one segment are copied into one
//! cluster, which is reserved once for all of them (R-G10): a segment for each would cost more than the copy,
//! here and in the system call that sends them.

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

/// Size of a chunk's data in one segment, in bytes, below which it is copied behind the previous data. Larger
/// data is passed on by reference.
const SMALL: usize = 1024;

/// Number of data bytes below which a chunk is tiny: its framing is a tenth of it or more. Tiny chunks that
/// come together are copied, which costs less than they would cost every later hop.
const TINY_CHUNK: usize = 64;

/// Longest line of a size, in bytes: digits and line end. Extensions are skipped as they come.
const LONGEST_LINE: usize = 16 + 2;

#[derive(Debug)]
enum State {
    /// This many bytes are left.
    Length(u64),
    Chunked(Chunks),
    Trailers(TrailerParser),
    /// All bytes that come.
    UntilEnd,
    Done,
    Failed,
}

/// State of a body after a read.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would ask the global allocator for room
pub enum Progress {
    /// More bytes are needed; or, for a tunnel or a body that ends with the connection, may come.
    More,
    /// The body is complete; the bytes left in the input belong to the next message. Has the trailers, if
    /// there is at least one.
    Done(Option<Head>),
}

/// Sender of the message, which decides on the status of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A client: 400 and 431.
    Client,
    /// A server: 502.
    Server,
}

/// Reads one body from a connection's bytes.
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    from: From,
    limits: Limits,
    /// Number of data bytes so far.
    data: u64,
    /// The first part that a strict reader refuses.
    relaxed: Option<Relaxed>,
}

impl BodyReader {
    /// Creates a reader at the beginning of a body.
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

    /// Returns, once, the first part of chunk sizes or trailers that a strict reader refuses.
    pub fn take_relaxed(&mut self) -> Option<Relaxed> {
        let mut relaxed = self.relaxed.take()?;
        if self.from == From::Server {
            relaxed.error.status = 502;
        }
        Some(relaxed)
    }

    /// Returns whether the whole body was read.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Returns the number of data bytes read so far.
    pub fn data(&self) -> u64 {
        self.data
    }

    /// Returns the number of bytes that may pass without being read, for a splice; `None` for no bound.
    pub fn passable(&self) -> Option<u64> {
        match &self.state {
            State::Length(left) => Some(*left),
            State::Chunked(chunks) => Some(chunks.left()),
            State::UntilEnd => None,
            State::Trailers(_) | State::Done | State::Failed => Some(0),
        }
    }

    /// Counts `n` bytes of data that passed without being read, at most [`passable`](Self::passable).
    ///
    /// # Panics
    /// If `n` is larger.
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

    /// Returns whether the next byte is the first of a chunk. Only there, the caller may switch between
    /// [`read`](Self::read) and [`read_chunks`](Self::read_chunks).
    #[inline]
    pub fn is_between_chunks(&self) -> bool {
        matches!(&self.state, State::Chunked(chunks) if chunks.is_between())
    }

    /// Returns whether `input` begins with a tiny chunk that another chunk of data follows, which are better
    /// passed on together. `input` begins [between chunks](Self::is_between_chunks).
    #[inline]
    pub fn sees_tiny_chunks(input: &Chain) -> bool {
        let Some(bytes) = input.front() else { return false };
        let Some((start, len)) = chunks::whole(bytes, 0) else { return false };
        len < TINY_CHUNK && bytes.get(start + len + 2).is_some_and(|next| *next != b'0')
    }

    /// Moves all data that is there from `input` to the end of `out`, without its framing.
    ///
    /// # Errors
    /// [`Error`]; the data before it is in `out`. The connection cannot be used any more.
    pub fn read(&mut self, input: &mut Chain, out: &mut Chain) -> Result<Progress, Error> {
        self.advance(input, out, false)
    }

    /// Does what [`read`](Self::read) does, but keeps the chunks of a chunked body: `out` gets them checked
    /// and unchanged, without their extensions. The last chunk and the trailers are left out;
    /// [`BodyWriter::end`](crate::BodyWriter::end) writes them. Nothing is copied. For bodies that go on in
    /// chunks and that nobody examines.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
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
                    // Servers may pad their sizes.
                    if let Some(at) = chunks.take_padding()
                        && self.from == From::Client
                        && self.relaxed.is_none()
                    {
                        let error = request_error((Problem::BadExtension, at));
                        let received = front.slice(0..front.len()).map_err(no_memory)?;
                        self.relaxed = Some(Relaxed { error, received });
                    }
                    if n == 0 {
                        // A size's line is cut: it has to be in one piece.
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

    /// Handles the end of the connection, which ends a body that has no other end.
    ///
    /// # Errors
    /// If the body is not complete. The status is 400 for a client that left during its request, or 502 for a
    /// server that left during its response.
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

/// Moves `n` bytes; `input` has at least as many.
fn move_bytes(input: &mut Chain, n: usize, out: &mut Chain) -> Result<(), Refusal> {
    if n == input.len() {
        return out.append_chain(input).map_err(no_memory);
    }
    let mut part = input.split_to(n).map_err(no_memory)?;
    out.append_chain(&mut part).map_err(no_memory)
}

/// Number of bytes read, and number of data bytes among them.
type Read = (usize, u64);

/// Reads one segment and passes its chunks on unchanged, without their extensions, which are for the next hop
/// only. It stops before the last chunk's line and before a size's line that is not complete. Of a line whose
/// extension is cut, it passes the size on and skips the rest when it comes.
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

/// Passes on the first `end` bytes of a segment without the extensions of its chunks. No size's line is cut
/// at `end`.
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

/// Appends pieces of one segment to a chain.
struct Joiner<'a> {
    front: &'a Segment,
    out: &'a mut Chain,
    /// Cluster with copied pieces that is not yet in the chain.
    joined: Option<Cluster>,
    /// Largest cluster to reserve for copies.
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
        // Room for all data that the segment can still have (R-G10). Behind a large piece, little is
        // expected.
        let room = (self.front.len() - at).min(self.reserve);
        match Cluster::alloc(room) {
            Ok(mut cluster) => {
                cluster.put(bytes);
                self.joined = Some(cluster);
            }
            Err(_) => self.failed = true,
        }
    }

    /// Passes a piece on by reference.
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

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    /// A reader looks again at the bytes that it leaves in the input: of chunks that drip, none, or the
    /// line of a size that is passed on when it is whole.
    #[test]
    fn each_byte_of_chunks_is_examined_once_but_a_short_line() {
        let chunk = format!("{:016x};{}\r\n{}\r\n", 100, "e".repeat(5_000), "x".repeat(100));
        for keeps in [false, true] {
            let mut reader = BodyReader::new(Body::Chunked, From::Client, Limits::default());
            let (mut input, mut out, mut most) = (Chain::new(), Chain::new(), 0);
            for byte in chunk.repeat(3).bytes() {
                input.append(&[byte]).expect("memory");
                let read = if keeps { BodyReader::read_chunks } else { BodyReader::read };
                assert!(matches!(read(&mut reader, &mut input, &mut out), Ok(Progress::More)));
                most = most.max(input.len());
            }
            assert_eq!((reader.data(), most), (300, if keeps { 16 } else { 0 }));
            const { assert!(16 < LONGEST_LINE) }
        }
    }
}
