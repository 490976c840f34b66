//! What a request leaves behind for later rules, for its forwarding and for the log: its first line, what was
//! captured of it, what rules set.
//!
//! One of a session, used again by request after request: texts keep their memory, so in steady state nothing
//! is allocated.

use super::Links;
use crate::flow::Limits;
use crate::generation::{Captures, TimeoutOf};
use manylane_buf::{Cluster, Segment};
use manylane_expr::{RequestLine, Timestamp};
use manylane_http::{Head, Known, List, Version};
use manylane_logs::Level;
use manylane_net::Packets;
use manylane_tls::Info;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a unique id at most, as in HAProxy.
pub(crate) const LONGEST_ID: usize = 128;

/// How important a request's line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// As it turns out.
    #[default]
    Usual,
    /// This.
    Set(Level),
    /// There is no line.
    Silent,
}

/// Texts by number. A text that is set anew takes the place of the one before if it fits there.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    /// Where each begins, and its length.
    slots: Vec<Option<(usize, usize)>>,
}

impl Texts {
    pub(crate) fn get(&self, slot: usize) -> Option<&[u8]> {
        let (start, length) = (*self.slots.get(slot)?)?;
        self.bytes.get(start..start + length)
    }

    pub(crate) fn set(&mut self, slot: usize, text: &[u8]) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let start = match self.slots[slot] {
            Some((start, length)) if text.len() <= length => {
                self.bytes[start..start + text.len()].copy_from_slice(text);
                start
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
}

/// A request's first line as it came: its bytes, and how long method and target are.
#[derive(Debug)]
struct Line {
    bytes: Segment,
    method: usize,
    target: usize,
    version: Version,
    /// Bytes of it that the log and captures get.
    most: usize,
}

/// What the request at work has left behind.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    line: RefCell<Option<Line>>,
    /// Version and status of the response.
    pub(crate) response: Cell<Option<(Version, u16)>>,
    /// By the frontend's slots for requests; behind them the cookie, and behind that the unique id.
    pub(crate) request: RefCell<Texts>,
    /// By the frontend's slots for responses; behind them the cookie.
    pub(crate) answer: RefCell<Texts>,
    /// When it began.
    pub(crate) begun: Cell<Timestamp>,
    /// A number that no other request of the process has.
    pub(crate) number: Cell<u64>,
    /// `set-log-level`
    pub(crate) log_level: Cell<LogLevel>,
    /// `set-timeout`
    timeouts: [Cell<Option<Duration>>; TimeoutOf::ALL.len()],
    /// `set-priority-class`
    pub(crate) priority_class: Cell<i16>,
    /// `set-priority-offset`, milliseconds.
    pub(crate) priority_offset: Cell<i32>,
    /// `set-retries`
    pub(crate) retries: Cell<Option<u32>>,
    /// `disable-l7-retry`
    pub(crate) no_repetition: Cell<bool>,
    /// `set-src`, `set-src-port`
    pub(crate) source: Cell<Option<SocketAddr>>,
    /// `set-dst`, `set-dst-port`
    pub(crate) destination: Cell<Option<SocketAddr>>,
    /// The last rule that ended its list: a number of the generation's lines.
    pub(crate) last_rule: Cell<Option<u32>>,
    /// The ends of the connection to the server, ours and its, where the configuration looks at them.
    pub(crate) link: Cell<(Option<SocketAddr>, Option<SocketAddr>)>,
    /// Both connections, of which the server's is looked at where the configuration does so.
    pub(crate) links: Links,
    /// What TLS of the connection to the server has agreed on, likewise.
    pub(crate) server_tls: RefCell<Option<Rc<Info>>>,
    /// HTTP/2 is spoken to the server.
    pub(crate) server_h2: Cell<bool>,
    /// There is a connection to a server for the request: it may have been done.
    pub(crate) asked: Cell<bool>,
    /// `set-fc-mark`, `set-fc-tos`: until the connection is told.
    pub(crate) client_packets: Cell<Packets>,
    /// `set-bc-mark`, `set-bc-tos`
    pub(crate) server_packets: Cell<Packets>,
    /// `set-bandwidth-limit`
    pub(crate) limits: Limits,
}

/// The version as log lines and captures have it.
pub(crate) fn digits(version: Version) -> &'static [u8] {
    match version {
        version if version < Version::HTTP_11 => b"1.0",
        version if version < Version::HTTP_2 => b"1.1",
        version if version < Version::HTTP_3 => b"2.0",
        _ => b"3.0",
    }
}

impl Memory {
    /// The next request begins. Each field is named, so that none can be forgotten: without one this does not
    /// compile.
    pub(crate) fn clear(&self) {
        let Self {
            line,
            response,
            request,
            answer,
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
            asked,
            client_packets,
            server_packets,
            limits,
        } = self;
        line.take();
        response.take();
        request.borrow_mut().clear();
        answer.borrow_mut().clear();
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
        asked.take();
        client_packets.take();
        server_packets.take();
        limits.clear();
    }

    /// The time that a rule has set.
    pub(crate) fn timeout(&self, of: TimeoutOf) -> &Cell<Option<Duration>> {
        &self.timeouts[of as usize]
    }

    /// Another proxy's servers are chosen: what rules of the frontend have said of servers is not about
    /// those.
    pub(crate) fn leave_frontend(&self) {
        for of in [TimeoutOf::Connect, TimeoutOf::Queue, TimeoutOf::Server, TimeoutOf::Tunnel] {
            self.timeout(of).take();
        }
        self.retries.take();
    }

    /// The first line was no request's.
    pub(crate) fn forget(&self) {
        self.line.take();
    }

    /// Remembers the first line of a request that was not edited yet: of it so many bytes at `most`.
    pub(crate) fn remember(&self, head: &Head, most: usize) {
        let line = head.original().map(|original| Line {
            bytes: original.clone(),
            method: head.method().len(),
            target: head.target().len(),
            version: head.version(),
            most,
        });
        self.line.replace(line);
    }

    /// The same of a request that came by HTTP/2, which has no such line: its address is whole, with
    /// `scheme`, which none has that asks for a tunnel. Without memory there is none.
    pub(crate) fn remember_whole(&self, head: &Head, scheme: &[u8], most: usize) {
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

    /// What is done with the request's first line; `None` when there is none.
    pub(crate) fn with_line<R>(&self, work: impl FnOnce(Option<RequestLine<'_>>) -> R) -> R {
        let line = self.line.borrow();
        work(line.as_ref().and_then(|Line { bytes, method, target, version, most }| {
            let end = method + 1 + target;
            // As it came, where that is one digit and another.
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

    /// Keeps what the frontend captures of a request.
    pub(crate) fn capture_request(&self, captures: &Captures, head: &Head) {
        capture_fields(&self.request, &captures.request, &captures.request_fields, head);
        if let Some((name, most)) = &captures.cookie {
            let pairs = head.values(Known::COOKIE).flat_map(|value| List::separated_by(value, b';'));
            capture_cookie(&self.request, captures.request.len(), name, *most, pairs);
        }
    }

    /// Keeps what the frontend captures of a server's response.
    pub(crate) fn capture_response(&self, captures: &Captures, head: &Head) {
        capture_fields(&self.answer, &captures.response, &captures.response_fields, head);
        if let Some((name, most)) = &captures.cookie {
            let pairs =
                head.values(Known::SET_COOKIE).filter_map(|value| value.split(|&byte| byte == b';').next());
            capture_cookie(&self.answer, captures.response.len(), name, *most, pairs);
        }
    }
}

/// Of a field that comes more than once the last one stays.
fn capture_fields(texts: &RefCell<Texts>, lengths: &[usize], fields: &[(Box<[u8]>, usize)], head: &Head) {
    for (name, slot) in fields {
        for value in head.values(&**name) {
            let kept = value.len().min(lengths[*slot]);
            texts.borrow_mut().set(*slot, &value[..kept]);
        }
    }
}

/// The first cookie that begins with `name`.
fn capture_cookie<'h>(
    texts: &RefCell<Texts>,
    slot: usize,
    name: &[u8],
    most: usize,
    mut pairs: impl Iterator<Item = &'h [u8]>,
) {
    if let Some(pair) = pairs.find(|pair| pair.trim_ascii().starts_with(name)) {
        let pair = pair.trim_ascii();
        texts.borrow_mut().set(slot, &pair[..pair.len().min(most)]);
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
        assert_eq!(texts.get(2), Some(&b"ID=abc"[..]));
    }
}
