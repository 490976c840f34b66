//! Reads heads from bytes as they arrive.
//!
//! A head that is there at once is parsed in one pass. Of a head that comes in pieces, only the new bytes are
//! scanned, for its end and for forbidden bytes; the whole head is parsed once its end came. So the cost is
//! linear however the bytes are cut. A head in several segments is then copied into one ([`Chain::pull_up`],
//! or a vector if it is larger than a cluster): about 60 ns and a cluster for each KiB.

use crate::error::{Error, Problem};
use crate::leniency::{self, First, Leniency, Relaxed};
use crate::limits::Limits;
use crate::lines::{self, Lines, Refusal};
use crate::message::{Body, Connection, FramingFields, RequestInfo, is_bodyless};
use crate::write::{Digits, end_hop, end_persistence};
use manylane_buf::{Chain, Cluster, External, MAX_CLUSTER, Segment, scan};
use manylane_http::{
    EditError, Fields, Head, Known, MAX_HEAD, Method, RequestLine, StatusLine, Target, Version,
};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Head of a request, and its findings about what follows.
#[derive(Debug)]
pub struct Request {
    /// The head. That of an HTTP/0.9 request has no fields, and is written as HTTP/1.0.
    pub head: Head,
    /// Framing of its body.
    pub body: Body,
    /// Options of its connection fields.
    pub connection: Connection,
    /// True if the client waits for `100 Continue` before it sends the body; only meaningful in HTTP/1.1 (RFC
    /// 9110, 10.1.1).
    pub continue_expected: bool,
    /// True if the client accepts trailers.
    pub te_trailers: bool,
}

impl Request {
    /// Gives up the request's offer of HTTP/2: removes its hop-by-hop fields from the head.
    ///
    /// # Errors
    /// [`EditError`]
    #[cold]
    pub fn end_offer(&mut self) -> Result<(), EditError> {
        self.connection.h2c = false;
        end_hop(&mut self.head, self.te_trailers)
    }
}

/// Head of a response, and its findings about what follows.
#[derive(Debug)]
pub struct Response {
    /// The head. After a status below 200, except 101, another response follows.
    pub head: Head,
    /// Framing of its body.
    pub body: Body,
    /// Options of its connection fields.
    pub connection: Connection,
}

impl Response {
    /// Returns whether the final response is still to come.
    pub fn is_interim(&self) -> bool {
        matches!(self.head.status(), 100 | 102..=199)
    }
}

/// Number of bytes of empty lines that are skipped before a message: some old clients and servers send one
/// behind a body.
const MAX_EMPTY: u16 = 64;

/// State of the scan of an incomplete head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Text,
    Cr,
    /// At the start of a line.
    Line,
    /// Behind a carriage return at the start of a line.
    LineCr,
}

/// Result of scanning new bytes.
enum Found {
    /// The head ends here.
    End(usize),
    /// The head does not end yet.
    More,
    /// A byte that no head may have is here.
    Wrong(usize),
    /// The first line ends here. Returned once.
    FirstLine(usize),
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// Number of bytes that were scanned.
    scanned: u32,
    state: ScanState,
    /// Number of bytes of empty lines that were skipped.
    empty: u16,
    /// True once the end of the first line was found.
    first_line: bool,
    /// Reason why the strict parser refused this head, which is now read leniently.
    refused: Option<Refusal>,
    /// Record of the last head that was read leniently.
    relaxed: Option<Relaxed>,
}

impl Progress {
    /// Scans the new bytes.
    fn scan(&mut self, input: &Chain) -> Found {
        let mut at = self.scanned as usize;
        let mut before = 0;
        for segment in input.segments() {
            let bytes = segment.as_slice();
            while at - before < bytes.len() {
                let here = at - before;
                (self.state, at) = match (self.state, bytes[here]) {
                    (ScanState::Text, _) => {
                        let next = scan::control(bytes, here);
                        match bytes.get(next) {
                            None => (ScanState::Text, before + next),
                            Some(b'\t') => (ScanState::Text, before + next + 1),
                            Some(b'\r') => (ScanState::Cr, before + next + 1),
                            Some(_) => return Found::Wrong(before + next),
                        }
                    }
                    (ScanState::Cr, b'\n') if !self.first_line => {
                        self.first_line = true;
                        self.state = ScanState::Line;
                        self.scanned = at as u32 + 1;
                        return Found::FirstLine(at + 1);
                    }
                    (ScanState::Cr, b'\n') => (ScanState::Line, at + 1),
                    (ScanState::Line, b'\r') => (ScanState::LineCr, at + 1),
                    (ScanState::Line, _) => (ScanState::Text, at),
                    (ScanState::LineCr, b'\n') => return Found::End(at + 1),
                    (ScanState::Cr | ScanState::LineCr, _) => return Found::Wrong(at),
                };
            }
            before += bytes.len();
        }
        self.scanned = at as u32;
        Found::More
    }
}

/// Returns the first `n` bytes in one piece; they stay in the chain.
fn contiguous(input: &mut Chain, n: usize) -> Result<&[u8], Refusal> {
    let no_memory = (Problem::NoMemory, 0);
    if n > MAX_CLUSTER && input.front().is_none_or(|front| front.len() < n) {
        let all = input.copy_range(..n).map_err(|_| no_memory)?.to_vec();
        let segment = External::from_vec(all).map_err(|_| no_memory)?;
        let mut rest = input.split_off(n).map_err(|_| no_memory)?;
        let mut joined = Chain::from(segment);
        joined.append_chain(&mut rest).map_err(|_| no_memory)?;
        *input = joined;
    }
    if n > MAX_CLUSTER {
        return Ok(input.front().and_then(|front| front.get(..n)).unwrap_or(&[]));
    }
    input.pull_up(n).map_err(|_| no_memory)
}

/// Takes the first `n` bytes out of the chain; they are in one segment.
#[inline]
fn take(input: &mut Chain, n: usize) -> Result<Segment, Refusal> {
    let whole = input.front().is_some_and(|front| front.len() == n);
    let segment =
        if whole { input.pop_front() } else { input.front().and_then(|front| front.slice(0..n).ok()) };
    if !whole {
        input.trim_front(n).map_err(|_| (Problem::NoMemory, 0))?;
    }
    segment.ok_or((Problem::NoMemory, 0))
}

impl Progress {
    /// Drops the empty lines before a message.
    #[cold]
    fn skip_empty(&mut self, input: &mut Chain, lenient: Leniency) -> Result<(), Refusal> {
        while self.scanned == 0 && matches!(input.cursor().peek(), Some(b'\r' | b'\n')) {
            if input.starts_with(b"\n") {
                if !lenient.has(Leniency::LINE_FEED) {
                    return Err((Problem::BareLf, 0));
                }
                self.empty += 2;
                if self.empty > MAX_EMPTY {
                    return Err((Problem::EmptyLine, 0));
                }
                input.trim_front(1).map_err(|_| (Problem::NoMemory, 0))?;
                continue;
            }
            if input.len() == 1 {
                return Ok(()); // the line feed is still to come; nothing is parsed before it
            }
            if !input.starts_with(b"\r\n") {
                return Err((Problem::BareCr, 0));
            }
            self.empty += 2;
            if self.empty > MAX_EMPTY {
                return Err((Problem::EmptyLine, 0));
            }
            input.trim_front(2).map_err(|_| (Problem::NoMemory, 0))?;
        }
        Ok(())
    }
}

/// Returns whether the version at the start of `text` may go on unchanged: it is one that this program
/// writes.
#[inline]
fn is_own(text: &[u8], version: Version) -> bool {
    text.strip_prefix(version.h1_name()).is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_digit))
}

thread_local! {
    /// Buffer of the lane in which heads are rewritten, so that a head needs no allocation of its own.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's buffer for rewritten heads, empty, borrowed until it is dropped. It keeps its memory, which
/// [`MAX_HEAD`] bounds: a head grows by one byte for each line.
struct Scratch(Vec<u8>);

impl Scratch {
    fn take() -> Self {
        Self(SCRATCH.take())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.clear();
        SCRATCH.set(std::mem::take(&mut self.0));
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// Returns a segment with these bytes, in a cluster if they fit.
fn segment_of(bytes: &[u8]) -> Result<Segment, Refusal> {
    let no_memory = (Problem::NoMemory, 0);
    if bytes.len() <= MAX_CLUSTER {
        return Ok(Cluster::with(bytes).map_err(|_| no_memory)?.into_segment());
    }
    External::from_vec(bytes.to_vec()).map_err(|_| no_memory)
}

/// The differences between requests, responses and trailers.
trait Message {
    type Parsed;
    const FIRST: First;
    fn lines(&self, bytes: &[u8], limits: &Limits) -> Lines<(Self::Parsed, usize)>;
}

impl Progress {
    /// Parses the head at the start of `input`, and returns it with its end. Parses strictly first, and
    /// leniently if the strict parser refuses it.
    #[inline]
    fn parse<M: Message>(
        &mut self,
        input: &mut Chain,
        limits: &Limits,
        message: &M,
    ) -> Lines<(M::Parsed, usize)> {
        if self.refused.is_none() {
            match self.parse_strictly(input, &limits.first(), message) {
                Err(refusal) if !limits.lenient.is_none() && refusal.0 != Problem::NoMemory => {
                    self.begin_leniently::<M>(refusal);
                }
                parsed => return parsed,
            }
        }
        self.parse_leniently(input, limits, message)
    }

    /// Starts over with a head that the strict parser refused.
    #[cold]
    fn begin_leniently<M: Message>(&mut self, refusal: Refusal) {
        self.refused = Some(refusal);
        self.scanned = 0;
        self.first_line = M::FIRST == First::None;
        self.state = if self.first_line { ScanState::Line } else { ScanState::Text };
    }

    #[cold]
    fn parse_leniently<M: Message>(
        &mut self,
        input: &mut Chain,
        limits: &Limits,
        message: &M,
    ) -> Lines<(M::Parsed, usize)> {
        let limit = limits.head.min(MAX_HEAD);
        loop {
            let (end, whole) = match self.scan_leniently(input) {
                Found::End(end) => (end, true),
                Found::FirstLine(end) => (end, false),
                Found::More | Found::Wrong(_) if input.len() < limit => return Ok(None),
                Found::More | Found::Wrong(_) => (limit + 1, true),
            };
            if end > limit {
                let problem = if self.first_line { Problem::TooLarge } else { Problem::TooLongTarget };
                return Err((problem, limit));
            }
            contiguous(input, end)?;
            let received = input.front().and_then(|front| front.slice(0..end).ok());
            let received = received.ok_or((Problem::NoMemory, 0))?;
            let mut head = Scratch::take();
            leniency::rewrite(&received, M::FIRST, limits.lenient, &mut head, usize::MAX);
            if head.len() > limit {
                return Err((Problem::TooLarge, limit));
            }
            match message.lines(&head, limits) {
                Ok(Some((parsed, length))) if length == head.len() => {
                    let mut joined = Chain::from(segment_of(&head)?);
                    input.trim_front(end).map_err(|_| (Problem::NoMemory, 0))?;
                    joined.append_chain(input).map_err(|_| (Problem::NoMemory, 0))?;
                    *input = joined;
                    let refused = self.refused.unwrap_or((Problem::Early, 0));
                    self.relaxed = Some(Relaxed { error: request_error(refused), received });
                    return Ok(Some((parsed, length)));
                }
                Err((problem, at)) => {
                    let origin = leniency::rewrite(&received, M::FIRST, limits.lenient, &mut Vec::new(), at);
                    return Err((problem, origin));
                }
                // The lines end elsewhere than the scan found: the strict parser's refusal holds.
                Ok(_) if whole => return Err(self.refused.unwrap_or((Problem::Early, 0))),
                Ok(_) => {}
            }
        }
    }

    /// Scans new bytes for the end of a head whose lines may end with line feeds alone.
    fn scan_leniently(&mut self, input: &Chain) -> Found {
        let mut before = 0;
        for segment in input.segments() {
            let bytes = segment.as_slice();
            let from = (self.scanned as usize).saturating_sub(before).min(bytes.len());
            for (n, &byte) in bytes.iter().enumerate().skip(from) {
                let end = before + n + 1;
                self.scanned = end as u32;
                self.state = match (self.state, byte) {
                    (ScanState::Line | ScanState::LineCr, b'\n') => return Found::End(end),
                    (_, b'\n') if !self.first_line => {
                        (self.first_line, self.state) = (true, ScanState::Line);
                        return Found::FirstLine(end);
                    }
                    (_, b'\n') => ScanState::Line,
                    (ScanState::Line, b'\r') => ScanState::LineCr,
                    _ => ScanState::Text,
                };
            }
            before += bytes.len();
        }
        Found::More
    }

    /// Does what [`parse`](Self::parse) does, without the relaxations that rewrite a head.
    #[inline]
    fn parse_strictly<M: Message>(
        &mut self,
        input: &mut Chain,
        limits: &Limits,
        message: &M,
    ) -> Lines<(M::Parsed, usize)> {
        let limit = limits.head.min(MAX_HEAD);
        if self.scanned == 0 && input.segment_count() == 1 {
            let bytes = input.front().map_or(&[][..], |front| front.as_slice());
            if let Some(done) = message.lines(&bytes[..bytes.len().min(limit)], limits)? {
                return Ok(Some(done));
            }
        }
        self.parse_slowly(input, limits, limit, message)
    }

    #[cold]
    fn parse_slowly<M: Message>(
        &mut self,
        input: &mut Chain,
        limits: &Limits,
        limit: usize,
        message: &M,
    ) -> Lines<(M::Parsed, usize)> {
        let mut found = self.scan(input);
        if let Found::FirstLine(end) = found {
            if end <= limit {
                // A wrong first line is refused early; and a request of HTTP/0.9 has nothing else.
                let line = contiguous(input, end)?;
                if let Some(done) = message.lines(line, limits)? {
                    return Ok(Some(done));
                }
            }
            found = self.scan(input);
        }
        let (n, wrong) = match found {
            Found::End(end) if end <= limit => (end, None),
            Found::Wrong(at) if at < limit => (input.len().min(limit), Some(at)),
            Found::More if input.len() < limit => return Ok(None),
            _ => (limit.min(input.len()), None),
        };
        let bytes = contiguous(input, n)?;
        if let Some(done) = message.lines(bytes, limits)? {
            return Ok(Some(done));
        }
        if let Some(at) = wrong {
            return Err((Problem::Control, at));
        }
        let in_first_line = scan::find(bytes, 0, b'\n') == bytes.len();
        Err((if in_first_line { Problem::TooLongTarget } else { Problem::TooLarge }, n))
    }
}

struct AnyRequest;

struct RequestHead {
    line: RequestLine,
    fields: Fields,
    framing: FramingFields,
    body: Body,
}

impl Message for AnyRequest {
    type Parsed = RequestHead;
    const FIRST: First = First::Request;

    #[inline]
    fn lines(&self, bytes: &[u8], limits: &Limits) -> Lines<(RequestHead, usize)> {
        let Some(line) = lines::request_line(bytes, limits)? else { return Ok(None) };
        let mut fields = Fields::new().map_err(|_| (Problem::NoMemory, 0))?;
        let mut framing = FramingFields::new(limits.lenient);
        if line.version == Version::HTTP_09 {
            let end = line.end;
            return Ok(Some((RequestHead { line, fields, framing, body: Body::None }, end)));
        }
        let see = |known: Known, value: &[u8], at| framing.see(known, value, at, Some(bytes));
        let Some(end) = lines::fields(bytes, line.end, limits, &mut fields, see)? else { return Ok(None) };
        let body = framing.request(bytes, &line, limits)?;
        Ok(Some((RequestHead { line, fields, framing, body }, end)))
    }
}

/// Reads requests from a connection's bytes, one after another. It consists of a few words and the limits,
/// and holds no memory except for a head that it read leniently.
#[derive(Clone, Debug)]
pub struct RequestParser {
    limits: Limits,
    progress: Progress,
}

impl RequestParser {
    /// Creates a parser at the beginning of a message.
    pub fn new(limits: Limits) -> Self {
        Self { limits, progress: Progress::default() }
    }

    /// Returns, once, the first reason for which a strict parser refuses the head that was taken last.
    pub fn take_relaxed(&mut self) -> Option<Relaxed> {
        self.progress.relaxed.take()
    }

    /// Takes the next head from the start of `input`. Returns `None` if it needs more bytes, which must then
    /// be appended to `input`. The bytes behind the head stay. Empty lines before it are dropped.
    ///
    /// # Errors
    /// [`Error`]. `input` then begins with the message, and the parser must not be used any more.
    #[inline]
    pub fn parse(&mut self, input: &mut Chain) -> Result<Option<Request>, Error> {
        if input.front().is_some_and(|front| matches!(front.first(), Some(b'\r' | b'\n'))) {
            self.progress.skip_empty(input, self.limits.lenient).map_err(request_error)?;
            if self.progress.scanned == 0 && input.starts_with(b"\r") {
                return Ok(None);
            }
        }
        if input.is_empty() {
            return Ok(None);
        }
        let parsed = self.progress.parse(input, &self.limits, &AnyRequest);
        let Some((RequestHead { line, fields, mut framing, body }, end)) = parsed.map_err(request_error)?
        else {
            return Ok(None);
        };
        let segment = take(input, end).map_err(request_error)?;
        self.progress = Progress { relaxed: self.progress.relaxed.take(), ..Progress::default() };
        let head = if line.version == Version::HTTP_09 {
            let target = &segment[line.target.clone()];
            Head::request(b"GET", target, Version::HTTP_09)
                .map_err(|_| request_error((Problem::NoMemory, 0)))?
        } else {
            let own = is_own(&segment[line.target.end + 1..line.end], line.version);
            let mut received = framing.host_of_target.then(|| segment.clone());
            let mut head = Head::parsed_request(segment, &line, fields, self.limits.room);
            if !own {
                head.renew_line().map_err(|error| request_error(not_edited(error)))?;
            }
            if let Some(body) = framing.restated() {
                restate(&mut head, &framing, body).map_err(|error| request_error(not_edited(error)))?;
            }
            if framing.several_hosts {
                head.keep_first(Known::HOST);
            }
            if framing.host_of_target {
                name_host(&mut head, line.kind).map_err(|error| {
                    let _ = received.take().map(|received| input.push_front(received));
                    request_error(not_edited(error))
                })?;
            }
            if line.kind == Method::Connect && framing.is_measured() {
                head.remove_fields(Known::CONTENT_LENGTH);
            }
            if line.kind == Method::Connect || head.target().first() != Some(&b'/') {
                head.normalize_target().map_err(|error| request_error(not_edited(error)))?;
            }
            if framing.hop_by_hop {
                // The offer does not count if `Proxy-Connection` is in force.
                framing.connection.h2c =
                    self.limits.h2c && framing.offers_h2c(body) && !framing.uses_proxy_connection;
                if !framing.connection.h2c {
                    end_hop(&mut head, framing.te_trailers)
                        .map_err(|_| request_error((Problem::NoMemory, 0)))?;
                }
            }
            let by_proxy = framing.uses_proxy_connection;
            if by_proxy || !framing.hop_by_hop && framing.connection.says_persistence() {
                end_persistence(&mut head, framing.connection.upgrade)
                    .map_err(|_| request_error((Problem::NoMemory, 0)))?;
            }
            head
        };
        let FramingFields { connection, continue_expected, te_trailers, .. } = framing;
        Ok(Some(Request { head, body, connection, continue_expected, te_trailers }))
    }
}

struct AnyResponse(RequestInfo);

struct ResponseHead {
    line: StatusLine,
    fields: Fields,
    framing: FramingFields,
    body: Body,
}

impl Message for AnyResponse {
    type Parsed = ResponseHead;
    const FIRST: First = First::Status;

    #[inline]
    fn lines(&self, bytes: &[u8], limits: &Limits) -> Lines<(ResponseHead, usize)> {
        let Some(mut line) = lines::status_line(bytes, limits)? else { return Ok(None) };
        let mut fields = Fields::new().map_err(|_| (Problem::NoMemory, 0))?;
        let mut framing = FramingFields::new(limits.lenient);
        let see = |known: Known, value: &[u8], at| framing.see(known, value, at, None);
        let Some(end) = lines::fields(bytes, line.end, limits, &mut fields, see)? else { return Ok(None) };
        let body = framing.response(line.version, line.status, self.0, limits.relaxed)?;
        if framing.is_coded() {
            line.version = Version::HTTP_11; // only leniency lets an older version have a coding
        }
        Ok(Some((ResponseHead { line, fields, framing, body }, end)))
    }
}

/// Reads responses from a connection's bytes, as [`RequestParser`] reads requests.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    limits: Limits,
    progress: Progress,
}

impl ResponseParser {
    /// Creates a parser at the beginning of a message.
    pub fn new(limits: Limits) -> Self {
        Self { limits, progress: Progress::default() }
    }

    /// Does what [`RequestParser::take_relaxed`] does.
    pub fn take_relaxed(&mut self) -> Option<Relaxed> {
        let mut relaxed = self.progress.relaxed.take()?;
        relaxed.error.status = 502;
        Some(relaxed)
    }

    /// Takes the next head from the start of `input`. Returns `None` if it needs more bytes. The framing of
    /// the response depends on its request, `request`.
    ///
    /// # Errors
    /// [`Error`] with status 502, or 500 without memory.
    #[inline]
    pub fn parse(&mut self, input: &mut Chain, request: RequestInfo) -> Result<Option<Response>, Error> {
        if input.front().is_some_and(|front| matches!(front.first(), Some(b'\r' | b'\n'))) {
            self.progress.skip_empty(input, self.limits.lenient).map_err(response_error)?;
            if self.progress.scanned == 0 && input.starts_with(b"\r") {
                return Ok(None);
            }
        }
        if input.is_empty() {
            return Ok(None);
        }
        let parsed = self.progress.parse(input, &self.limits, &AnyResponse(request));
        let Some((ResponseHead { line, fields, framing, body }, end)) = parsed.map_err(response_error)?
        else {
            return Ok(None);
        };
        let segment = take(input, end).map_err(response_error)?;
        self.progress = Progress { relaxed: self.progress.relaxed.take(), ..Progress::default() };
        // Without a reason, the blank behind the status may be missing; it is sent in any case.
        let blank = segment[line.reason.start - 1] == b' ';
        let own = blank && is_own(&segment, line.version);
        let mut head = Head::parsed_response(segment, &line, fields, self.limits.room);
        let mut connection = framing.connection;
        if let Some(body) = framing.restated() {
            restate(&mut head, &framing, body).map_err(|_| response_error((Problem::NoMemory, 0)))?;
        }
        if !own {
            head.renew_line().map_err(|_| response_error((Problem::NoMemory, 0)))?;
        }
        if framing.hop_by_hop {
            end_hop(&mut head, false).map_err(|_| response_error((Problem::NoMemory, 0)))?;
        } else if connection.says_persistence() {
            end_persistence(&mut head, connection.upgrade)
                .map_err(|_| response_error((Problem::NoMemory, 0)))?;
        }
        if body == Body::None && framing.is_coded() && is_bodyless(line.status) {
            // Some servers write the field, and may send a last chunk, too, which belongs to no message.
            head.remove_fields(Known::TRANSFER_ENCODING);
            connection.close = true;
        }
        Ok(Some(Response { head, body, connection }))
    }
}

/// Sets the fields of a leniently read head to its framing, once and plainly.
#[cold]
fn restate(head: &mut Head, framing: &FramingFields, body: Body) -> Result<(), EditError> {
    head.remove_fields(Known::CONTENT_LENGTH);
    if framing.coding_restated {
        head.remove_fields(Known::TRANSFER_ENCODING);
    }
    match body {
        Body::Length(length) => head.set_field(Known::CONTENT_LENGTH, Digits::default().of(length)),
        Body::Chunked if framing.coding_restated => head.set_field(Known::TRANSFER_ENCODING, b"chunked"),
        _ => Ok(()), // the coding is there
    }
}

/// Sets `Host` to the host of the target, or to nothing if the target has none (RFC 9112, 3.2 and 3.2.2).
#[cold]
fn name_host(head: &mut Head, method: Method) -> Result<(), EditError> {
    let authority = Target::of(head.target(), method).authority.unwrap_or(b"");
    let host = manylane_http::without_user(authority).to_owned();
    head.set_field(Known::HOST, &host)
}

/// Returns why a head could not be edited. What it needs besides its own bytes may not fit beside these.
#[cold]
fn not_edited(error: EditError) -> Refusal {
    (if error == EditError::Full { Problem::TooLarge } else { Problem::NoMemory }, 0)
}

#[cold]
pub(crate) fn request_error((problem, position): Refusal) -> Error {
    Error { status: problem.status(), position, problem }
}

#[cold]
pub(crate) fn response_error((problem, position): Refusal) -> Error {
    Error { status: if problem == Problem::NoMemory { 500 } else { 502 }, position, problem }
}

/// Reads the trailers of a chunked body at the start of `input`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrailerParser(Progress);

struct AnyTrailers;

impl Message for AnyTrailers {
    type Parsed = Fields;
    const FIRST: First = First::None;

    fn lines(&self, bytes: &[u8], limits: &Limits) -> Lines<(Fields, usize)> {
        let mut fields = Fields::new().map_err(|_| (Problem::NoMemory, 0))?;
        let see = |known: Known, _: &[u8], _| match known {
            Known::CONTENT_LENGTH
            | Known::TRANSFER_ENCODING
            | Known::HOST
            | Known::CONNECTION
            | Known::TRAILER => Err(Problem::BadTrailer),
            _ => Ok(()),
        };
        Ok(lines::fields(bytes, 0, limits, &mut fields, see)?.map(|end| (fields, end)))
    }
}

impl TrailerParser {
    /// Does what [`RequestParser::take_relaxed`] does.
    pub(crate) fn take_relaxed(&mut self) -> Option<Relaxed> {
        self.0.relaxed.take()
    }

    /// Takes the trailers from the start of `input`. Returns `None` if it needs more bytes.
    pub(crate) fn parse(&mut self, input: &mut Chain, limits: &Limits) -> Result<Option<Head>, Refusal> {
        if input.is_empty() {
            return Ok(None);
        }
        if self.0.scanned == 0 && self.0.refused.is_none() {
            self.0.state = ScanState::Line;
        }
        let parsed = self.0.parse(input, limits, &AnyTrailers).map_err(|(problem, at)| match problem {
            Problem::TooLarge | Problem::TooLongTarget => (Problem::TooLargeTrailers, at),
            _ => (problem, at),
        })?;
        let Some((fields, end)) = parsed else { return Ok(None) };
        let mut trailers = Head::parsed_trailers(take(input, end)?, fields, limits.room);
        for known in [Known::KEEP_ALIVE, Known::PROXY_CONNECTION, Known::TE, Known::UPGRADE] {
            trailers.remove_fields(known); // they are for this hop (RFC 9110, 7.6.1)
        }
        Ok(Some(trailers))
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::Leniency;

    /// Returns how many bytes were scanned, or `None` if no more are waited for.
    type Scanned<'a> = &'a mut dyn FnMut(&mut Chain) -> Option<u32>;

    /// A head that drips costs time by its length: when more bytes arrive, the scan goes on behind those that
    /// it has seen.
    #[test]
    fn each_byte_is_scanned_once() {
        let long = "x".repeat(5_000);
        for (first, lenient) in
            [("\r\n", Leniency::NONE), ("\n", Leniency::USUAL), ("\r\nX: a\u{1}\r\n", Leniency::ALL)]
        {
            let limits = Limits { lenient, ..Limits::default() };
            let (mut requests, mut responses) = (RequestParser::new(limits), ResponseParser::new(limits));
            let mut trailers = TrailerParser::default();
            let request = RequestInfo { method: Method::Get, upgrade: false };
            let mut parse: [(&str, Scanned<'_>); 3] = [
                ("GET / HTTP/1.1", &mut |input| {
                    matches!(requests.parse(input), Ok(None)).then_some(requests.progress.scanned)
                }),
                ("HTTP/1.1 200 OK", &mut |input| {
                    matches!(responses.parse(input, request), Ok(None)).then_some(responses.progress.scanned)
                }),
                ("Y: b", &mut |input| {
                    matches!(trailers.parse(input, &limits), Ok(None)).then_some(trailers.0.scanned)
                }),
            ];
            for (begin, scanned) in &mut parse {
                let mut input = Chain::new();
                for byte in format!("{begin}{first}X: {long}").bytes() {
                    input.append(&[byte]).expect("memory");
                    assert_eq!(scanned(&mut input), Some(input.len() as u32), "{begin:?} {first:?}");
                }
            }
        }
    }
}
