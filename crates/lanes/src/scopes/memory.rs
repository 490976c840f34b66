//! State that a request leaves for later rules, for its forwarding and for the log: its first line, captures,
//! and settings of rules.
//!
//! Each request borrows a memory of its lane. Texts keep their buffers, so in steady state nothing is
//! allocated.

use super::{Limits, Links};
use manylane_buf::{Cluster, Segment};
use manylane_expr::{Direction, RequestLine, Timestamp};
use manylane_http::{Head, Known, List, Version};
use manylane_logs::Level;
use manylane_net::Packets;
use manylane_plan::generation::{Captures, TimeoutOf};
use manylane_tls::Info;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Most bytes of a unique id, as in HAProxy.
pub const LONGEST_ID: usize = 128;

/// Level of a request's log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// The level that the outcome decides.
    #[default]
    Usual,
    /// This level.
    Set(Level),
    /// No log line.
    Silent,
}

/// Texts by slot. A new text for a slot overwrites the old one if it fits there.
#[derive(Debug, Default)]
pub struct Texts {
    bytes: Vec<u8>,
    /// Start and length of each text.
    slots: Vec<Option<(usize, usize)>>,
}

impl Texts {
    /// Returns the text of a slot, if there is one.
    pub fn get(&self, slot: usize) -> Option<&[u8]> {
        let (start, length) = (*self.slots.get(slot)?)?;
        self.bytes.get(start..start + length)
    }

    /// Replaces the text of a slot.
    pub fn set(&mut self, slot: usize, text: &[u8]) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let start = match self.slots[slot] {
            Some((start, length)) if text.len() <= length => {
                self.bytes[start..start + text.len()].copy_from_slice(text);
                start
            }
            // While memory is short, a text that needs a larger buffer is not stored.
            _ if self.bytes.capacity() - self.bytes.len() < text.len()
                && manylane_pool::check_memory().is_err() =>
            {
                self.slots[slot] = None;
                return;
            }
            _ => {
                self.bytes.extend_from_slice(text);
                self.bytes.len() - text.len()
            }
        };
        self.slots[slot] = Some((start, text.len()));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    /// Memory that the texts may take without a new allocation, in bytes.
    fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A request's first line as received, with the lengths of method and target.
#[derive(Debug)]
struct Line {
    bytes: Segment,
    method: usize,
    target: usize,
    version: Version,
    /// Most bytes of the line for the log and for captures.
    most: usize,
}

/// Returns whether `word` is the first one of `line`.
fn is_first(line: &[u8], word: &[u8]) -> bool {
    line.strip_prefix(word).is_some_and(|rest| matches!(rest.first(), Some(b' ' | b'\r')))
}

/// Texts of a stream other than captures in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamText {
    /// `capture cookie` in the request.
    RequestCookie,
    /// `capture cookie` in the response.
    ResponseCookie,
    /// Result of `unique-id-format`.
    UniqueId,
}

/// The captures of a stream for expressions.
#[derive(Debug)]
pub struct CapturesOf<'a> {
    /// Sizes and fields of the frontend's capture slots.
    pub slots: &'a Captures,
    /// What was captured.
    pub memory: &'a Memory,
}

impl CapturesOf<'_> {
    fn of(&self, direction: Direction) -> (&[usize], &RefCell<Texts>) {
        match direction {
            Direction::Request => (&self.slots.request, &self.memory.request),
            Direction::Response => (&self.slots.response, &self.memory.answer),
        }
    }
}

impl manylane_expr::Captures for CapturesOf<'_> {
    fn slots(&self, direction: Direction) -> usize {
        self.of(direction).0.len()
    }

    fn read(&self, direction: Direction, slot: usize, work: &mut dyn FnMut(Option<&[u8]>)) {
        work(self.of(direction).1.borrow().get(slot));
    }

    fn store(&self, direction: Direction, slot: usize, text: &[u8]) -> bool {
        let (lengths, texts) = self.of(direction);
        let Some(&most) = lengths.get(slot) else { return false };
        texts.borrow_mut().set(slot, &text[..text.len().min(most)]);
        true
    }
}

/// State that the current request has left.
#[derive(Debug, Default)]
pub struct Memory {
    line: RefCell<Option<Line>>,
    /// Version and status of the response.
    pub response: Cell<Option<(Version, u16)>>,
    /// Status of the server's response before rules changed it; 0 without one.
    pub server_status: Cell<u16>,
    /// Captures by the frontend's request slots. Expressions may store some, so no evaluation borrows them
    /// for long.
    request: RefCell<Texts>,
    /// Captures by the frontend's response slots, likewise.
    answer: RefCell<Texts>,
    /// Texts that no expression stores, by [`StreamText`].
    pub texts: RefCell<Texts>,
    /// When the request began.
    pub begun: Cell<Timestamp>,
    /// Number that no other request of the process has.
    pub number: Cell<u64>,
    /// Value of `set-log-level`.
    pub log_level: Cell<LogLevel>,
    /// Values of `set-timeout`.
    timeouts: [Cell<Option<Duration>>; TimeoutOf::ALL.len()],
    /// Value of `set-priority-class`.
    pub priority_class: Cell<i16>,
    /// Value of `set-priority-offset`, in milliseconds.
    pub priority_offset: Cell<i32>,
    /// Value of `set-retries`.
    pub retries: Cell<Option<u32>>,
    /// Set by `disable-l7-retry`.
    pub no_repetition: Cell<bool>,
    /// Value of `set-src` and `set-src-port`.
    pub source: Cell<Option<SocketAddr>>,
    /// Value of `set-dst` and `set-dst-port`.
    pub destination: Cell<Option<SocketAddr>>,
    /// The last rule that ended its list, as an index of the generation's line numbers.
    pub last_rule: Cell<Option<u32>>,
    /// Local and remote address of the server connection, if the configuration reads them.
    pub link: Cell<(Option<SocketAddr>, Option<SocketAddr>)>,
    /// State of the client's and the server's connection; the server's only if the configuration reads it.
    pub links: Links,
    /// Result of the TLS handshake with the server, if the configuration reads it.
    pub server_tls: RefCell<Option<Rc<Info>>>,
    /// The server connection speaks HTTP/2.
    pub server_h2: Cell<bool>,
    /// Whether the server's connection has served a request before.
    pub server_reused: Cell<bool>,
    /// The request has had a connection to a server, which may have processed it.
    pub reached_server: Cell<bool>,
    /// Values of `set-fc-mark` and `set-fc-tos`, until they are applied to the connection.
    pub client_packets: Cell<Packets>,
    /// Values of `set-bc-mark` and `set-bc-tos`.
    pub server_packets: Cell<Packets>,
    /// Values of `set-bandwidth-limit`.
    pub limits: Limits,
}

/// Returns the version in the form of log lines and captures.
pub fn digits(version: Version) -> &'static [u8] {
    match version {
        version if version < Version::HTTP_11 => b"1.0",
        version if version < Version::HTTP_2 => b"1.1",
        version if version < Version::HTTP_3 => b"2.0",
        _ => b"3.0",
    }
}

impl Memory {
    /// Resets the memory for the next request. The pattern names each field, so that a new field cannot be
    /// forgotten: without it, this does not compile.
    #[inline]
    pub(crate) fn clear(&self) {
        let Self {
            line,
            response,
            server_status,
            request,
            answer,
            texts,
            begun,
            number,
            log_level,
            timeouts,
            priority_class,
            priority_offset,
            retries,
            no_repetition,
            source,
            destination,
            last_rule,
            link,
            links,
            server_tls,
            server_h2,
            server_reused,
            reached_server,
            client_packets,
            server_packets,
            limits,
        } = self;
        line.take();
        response.take();
        server_status.take();
        request.borrow_mut().clear();
        answer.borrow_mut().clear();
        texts.borrow_mut().clear();
        begun.take();
        number.take();
        log_level.take();
        for timeout in timeouts {
            timeout.take();
        }
        priority_class.take();
        priority_offset.take();
        retries.take();
        no_repetition.take();
        source.take();
        destination.take();
        last_rule.take();
        link.take();
        links.clear();
        server_tls.take();
        server_h2.take();
        server_reused.take();
        reached_server.take();
        client_packets.take();
        server_packets.take();
        limits.clear();
    }

    /// Bytes that the buffers of all texts have.
    pub(super) fn capacity(&self) -> usize {
        [&self.request, &self.answer, &self.texts].iter().map(|texts| texts.borrow().capacity()).sum()
    }

    /// Returns the timeout that a rule has set.
    pub fn timeout(&self, of: TimeoutOf) -> &Cell<Option<Duration>> {
        &self.timeouts[of as usize]
    }

    /// Drops the server settings of the frontend's rules, because the request goes to another proxy.
    pub fn leave_frontend(&self) {
        for of in [TimeoutOf::Connect, TimeoutOf::Queue, TimeoutOf::Server, TimeoutOf::Tunnel] {
            self.timeout(of).take();
        }
        self.retries.take();
    }

    /// Forgets the first line, because the input did not count as a request.
    pub fn forget(&self) {
        self.line.take();
    }

    /// Stores the first line of a request that was not edited yet; the log and captures get at most `most`
    /// bytes of it. If the parser has changed an absolute target, the line has the target of the head.
    pub fn remember(&self, head: &Head, most: usize) {
        let (method, target) = (head.method().len(), head.target());
        let line = head.original().map(|original| Line {
            bytes: original.clone(),
            method,
            target: target.len(),
            version: head.version(),
            most,
        });
        let is_other = |line: &Line| !line.bytes.get(method + 1..).is_some_and(|rest| is_first(rest, target));
        if !target.starts_with(b"/") && line.as_ref().is_some_and(is_other) {
            return self.remember_whole(head, b"", most);
        }
        self.line.replace(line);
    }

    /// Makes the first line of a request from its head and stores it, for requests that were not received
    /// with such a line. Over HTTP/2 the target becomes a full URI with `scheme`, except that of a tunnel.
    /// Without memory no line is stored.
    pub fn remember_whole(&self, head: &Head, scheme: &[u8], most: usize) {
        let (method, target) = (head.method(), head.target());
        let before: [&[u8]; 3] = match head.host() {
            Some(host) if !scheme.is_empty() && target.starts_with(b"/") => [scheme, b"://", host],
            _ => [b"", b"", b""],
        };
        let version = digits(head.version());
        let parts = [method, b" ", before[0], before[1], before[2], target, b" HTTP/", version, b"\r\n"];
        let length = parts.iter().map(|part| part.len()).sum();
        let line = Cluster::alloc(length).ok().filter(|cluster| cluster.spare_len() >= length);
        let line = line.map(|mut cluster| {
            for part in parts {
                cluster.put(part);
            }
            Line {
                bytes: cluster.into_segment(),
                method: method.len(),
                target: before.iter().map(|part| part.len()).sum::<usize>() + target.len(),
                version: head.version(),
                most,
            }
        });
        self.line.replace(line);
    }

    /// Calls `work` with the request's first line, or `None` if there is none.
    pub fn with_line<R>(&self, work: impl FnOnce(Option<RequestLine<'_>>) -> R) -> R {
        let line = self.line.borrow();
        work(line.as_ref().and_then(|Line { bytes, method, target, version, most }| {
            let end = method + 1 + target;
            // The version as received, if it has the form digit, dot, digit.
            let said = match bytes.get(end + 1..end + 10) {
                Some([b'H', b'T', b'T', b'P', b'/', version @ .., b'\r']) if version.len() == 3 => version,
                _ => digits(*version),
            };
            Some(RequestLine {
                method: bytes.get(..*method)?,
                target: bytes.get(method + 1..end)?,
                version: said,
                most: *most,
            })
        }))
    }

    /// Stores the frontend's captures of a request.
    pub fn capture_request(&self, captures: &Captures, head: &Head) {
        capture_fields(&self.request, &captures.request, &captures.request_fields, head);
        if let Some((name, most)) = &captures.cookie {
            let pairs = head.values(Known::COOKIE).flat_map(|value| List::separated_by(value, b';'));
            self.capture_cookie(StreamText::RequestCookie, name, *most, pairs);
        }
    }

    /// Captures the first cookie whose name begins with `name`.
    fn capture_cookie<'h>(
        &self,
        text: StreamText,
        name: &[u8],
        most: usize,
        mut pairs: impl Iterator<Item = &'h [u8]>,
    ) {
        if let Some(pair) = pairs.find(|pair| pair.trim_ascii().starts_with(name)) {
            let pair = pair.trim_ascii();
            self.texts.borrow_mut().set(text as usize, &pair[..pair.len().min(most)]);
        }
    }

    /// Stores the frontend's captures of a server's response.
    pub fn capture_response(&self, captures: &Captures, head: &Head) {
        capture_fields(&self.answer, &captures.response, &captures.response_fields, head);
        if let Some((name, most)) = &captures.cookie {
            let pairs =
                head.values(Known::SET_COOKIE).filter_map(|value| value.split(|&byte| byte == b';').next());
            self.capture_cookie(StreamText::ResponseCookie, name, *most, pairs);
        }
    }
}

/// Captures fields. The last of several equal fields wins.
fn capture_fields(texts: &RefCell<Texts>, lengths: &[usize], fields: &[(Box<[u8]>, usize)], head: &Head) {
    for (name, slot) in fields {
        for value in head.values(&**name) {
            let kept = value.len().min(lengths[*slot]);
            texts.borrow_mut().set(*slot, &value[..kept]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_set_anew_replaces_the_one_before_and_no_other() {
        let mut texts = Texts::default();
        texts.set(1, b"one");
        texts.set(0, b"zero");
        texts.set(1, b"longer than one");
        texts.set(0, b"0");
        assert_eq!(texts.get(0), Some(&b"0"[..]));
        assert_eq!(texts.get(1), Some(&b"longer than one"[..]));
        assert_eq!(texts.get(2), None);
        texts.clear();
        assert_eq!((texts.get(0), texts.get(1)), (None, None));
    }

    #[test]
    fn captured_fields_are_cut_and_the_last_one_stays() {
        let mut head = Head::request(b"GET", b"/", Version::HTTP_11).unwrap();
        for (name, value) in
            [("x-a", &b"first"[..]), ("x-b", b"b"), ("X-A", b"second"), ("cookie", b"a=1; ID=abcdef; IDX=2")]
        {
            head.add_field(name.as_bytes(), value).unwrap();
        }
        let captures = Captures {
            request: vec![4, 9],
            request_fields: vec![(b"x-a"[..].into(), 0), (b"x-c"[..].into(), 1)],
            cookie: Some((b"ID"[..].into(), 6)),
            ..Captures::default()
        };
        let memory = Memory::default();
        memory.capture_request(&captures, &head);
        let texts = memory.request.borrow();
        assert_eq!(texts.get(0), Some(&b"seco"[..]));
        assert_eq!(texts.get(1), None);
        assert_eq!(memory.texts.borrow().get(StreamText::RequestCookie as usize), Some(&b"ID=abc"[..]));
    }
}
