//! Writes heads and bodies as bytes.

use crate::message::{Body, Connection};
use manylane_buf::{Chain, Segment};
use manylane_http::{CaseTable, EditError, Head, Known, List, Version};

/// Future of the connection after a message, as the sender states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// The sender keeps the connection open.
    KeepAlive,
    /// The sender closes the connection.
    Close,
    /// The sender makes the connection a tunnel, or offers to: `Connection: upgrade` stays.
    Upgrade,
}

/// Removes the hop-by-hop fields (RFC 9110, 7.6.1) from a head as received, before the program writes fields
/// of its own. `Connection` keeps `upgrade`. A request's `TE` keeps `trailers` if it `takes_trailers`.
#[cold]
pub(crate) fn end_hop(head: &mut Head, takes_trailers: bool) -> Result<(), EditError> {
    head.remove_hop_by_hop();
    if takes_trailers {
        restrict_te(head)?;
    } else {
        head.remove_fields(Known::TE);
    }
    end_persistence(head, true)
}

/// Removes `close` and `keep-alive` from `Connection`, and `upgrade` unless it `keeps_upgrade`.
/// [`Connection`] records what the sender said, and the next hop gets options of its own. So rules see
/// neither, as in HAProxy; one of the two that is there later was written by a rule.
#[inline(never)]
pub(crate) fn end_persistence(head: &mut Head, keeps_upgrade: bool) -> Result<(), EditError> {
    let mut members = Members::default();
    if keeps_upgrade {
        members.keep(head, b"upgrade");
    }
    members.write(head)
}

/// Returns whether a rule has written `close` into `Connection` of a parsed head.
pub fn has_close_option(head: &Head) -> bool {
    head.has(Known::CONNECTION)
        && head.list_values(Known::CONNECTION).any(|member| member.eq_ignore_ascii_case(b"close"))
}

/// Sets `Connection` of a head to `persist`. `upgrade` stays only with [`Persist::Upgrade`]; without it,
/// `Upgrade` is removed, too. `TE` is named if there is one. `found` is what the parser found in the head.
///
/// # Errors
/// [`EditError`]
pub fn set_connection(head: &mut Head, found: Connection, persist: Persist) -> Result<(), EditError> {
    let by_version = head.version() >= Version::HTTP_11;
    let (want_close, want_keep_alive) = match persist {
        Persist::KeepAlive => (false, !by_version),
        Persist::Close => (by_version, false),
        Persist::Upgrade => (false, false),
    };
    let keep_upgrade = found.upgrade && persist == Persist::Upgrade;
    if !keep_upgrade && head.has(Known::UPGRADE) {
        head.remove_fields(Known::UPGRADE);
    }
    let te = head.has(Known::TE);
    if !want_close && !want_keep_alive && !keep_upgrade && !te && !head.has(Known::CONNECTION) {
        return Ok(());
    }
    let mut members = Members::default();
    if keep_upgrade {
        members.keep(head, b"upgrade");
    }
    if te {
        members.add(b"TE");
    }
    if want_close {
        members.add(b"close");
    }
    if want_keep_alive {
        members.add(b"keep-alive");
    }
    members.write(head)
}

/// The options that `Connection` may have, each at most once.
#[derive(Default)]
struct Members {
    bytes: [u8; 32],
    len: usize,
}

impl Members {
    fn add(&mut self, member: &[u8]) {
        let separator: &[u8] = if self.len == 0 { b"" } else { b", " };
        for part in [separator, member] {
            if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
                room.copy_from_slice(part);
                self.len += part.len();
            }
        }
    }

    /// Adds an option of the head, spelled as it is there.
    fn keep(&mut self, head: &Head, word: &[u8]) {
        if let Some(member) =
            head.list_values(Known::CONNECTION).find(|member| member.eq_ignore_ascii_case(word))
        {
            self.add(member);
        }
    }

    fn write(&self, head: &mut Head) -> Result<(), EditError> {
        if self.len == 0 {
            head.remove_fields(Known::CONNECTION);
            return Ok(());
        }
        let value = &self.bytes[..self.len];
        match head.find(Known::CONNECTION, None) {
            // The field stays where it is, for rules that read all fields.
            Some(first) => {
                head.keep_first(Known::CONNECTION);
                if head.field(first).is_some_and(|field| field.value == value) {
                    return Ok(());
                }
                head.replace_value(first, value)
            }
            None => head.add_field(Known::CONNECTION, value),
        }
    }
}

/// Sets the fields of `head` to the framing `body`; the parser found the framing `found`. If both are equal,
/// it only removes fields that the message may not have: framing fields of a 1xx, a 204 or a tunnel.
///
/// # Errors
/// [`EditError`]
pub fn set_body(head: &mut Head, found: Body, body: Body) -> Result<(), EditError> {
    let no_body = matches!(head.status(), 100..=199 | 204);
    if no_body || body == Body::Tunnel {
        head.remove_fields(Known::CONTENT_LENGTH);
        head.remove_fields(Known::TRANSFER_ENCODING);
        return Ok(());
    }
    if found == body {
        return Ok(());
    }
    match body {
        Body::Chunked => {
            head.remove_fields(Known::CONTENT_LENGTH);
            head.set_field(Known::TRANSFER_ENCODING, b"chunked")
        }
        Body::Length(length) => {
            head.remove_fields(Known::TRANSFER_ENCODING);
            let mut digits = Digits::default();
            head.set_field(Known::CONTENT_LENGTH, digits.of(length))
        }
        Body::None | Body::UntilClose | Body::Tunnel => {
            head.remove_fields(Known::CONTENT_LENGTH);
            head.remove_fields(Known::TRANSFER_ENCODING);
            Ok(())
        }
    }
}

/// Returns the framing of a response's body towards a client, and whether the connection can persist: only
/// HTTP/1.1 has chunks, and a body without framing ends with the connection.
pub fn frame_for(body: Body, client: Version, persist: Persist) -> (Body, Persist) {
    match body {
        Body::Chunked if client < Version::HTTP_11 => (Body::UntilClose, Persist::Close),
        Body::UntilClose => (Body::UntilClose, Persist::Close),
        Body::Tunnel => (body, Persist::Upgrade),
        Body::None | Body::Length(_) | Body::Chunked => (body, persist),
    }
}

/// Reduces `TE` of a request to `trailers`: other members do not concern further hops.
///
/// # Errors
/// [`EditError`]
pub fn restrict_te(head: &mut Head) -> Result<(), EditError> {
    if !head.has(Known::TE) {
        return Ok(());
    }
    let trailers =
        head.values(Known::TE).flat_map(List::new).any(|member| member.eq_ignore_ascii_case(b"trailers"));
    if !trailers {
        head.remove_fields(Known::TE);
        return Ok(());
    }
    if head.values(Known::TE).eq([b"trailers"]) { Ok(()) } else { head.set_field(Known::TE, b"trailers") }
}

/// Argument of `http-restrict-req-hdr-names`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamePolicy {
    /// Passes all names.
    #[default]
    Preserve,
    /// Removes fields whose names have anything but letters, digits and hyphens.
    Delete,
    /// Refuses a request with such a field, with 403.
    Reject,
}

/// Applies `http-restrict-req-hdr-names` to a request. Returns false if it must be refused with 403.
pub fn restrict_names(head: &mut Head, policy: NamePolicy) -> bool {
    let plain = |name: &[u8]| name.iter().all(|&byte| manylane_http::syntax::is_plain_name_byte(byte));
    match policy {
        NamePolicy::Preserve => true,
        NamePolicy::Delete => {
            head.remove_where(|field| field.known == Known::OTHER && !plain(field.name));
            true
        }
        NamePolicy::Reject => head.fields().all(|field| field.known != Known::OTHER || plain(field.name)),
    }
}

/// Appends a head to `out`.
///
/// # Errors
/// Those of [`Head::emit`].
pub fn write_head(head: &mut Head, out: &mut Chain, case: Option<&CaseTable>) -> Result<(), EditError> {
    head.emit(out, case)
}

/// Buffer for a number in decimal or hexadecimal digits, without an allocation.
#[derive(Default)]
pub(crate) struct Digits([u8; 20]);

impl Digits {
    pub(crate) fn of(&mut self, number: u64) -> &[u8] {
        self.write(number, 10)
    }

    pub(crate) fn hexadecimal(&mut self, number: u64) -> &[u8] {
        self.write(number, 16)
    }

    fn write(&mut self, mut number: u64, base: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

/// Reason why a body could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The lane's pools have no memory.
    NoMemory,
    /// There is more or less data than the length that the head promised. The connection must end.
    Length,
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "no memory for a body's framing",
            Self::Length => "the body does not have the length that its head promised",
        })
    }
}

impl std::error::Error for WriteError {}

/// Writes one body: adds framing to data, which moves by reference.
#[derive(Debug)]
pub struct BodyWriter {
    body: Body,
    /// Number of bytes of [`Body::Length`] that are still to come.
    left: u64,
    /// True if the line end of the last chunk's data is still to come: it is written with the next chunk's
    /// size.
    open: bool,
    /// Buffer for sizes: one cluster for some hundred chunks.
    sizes: Chain,
}

impl BodyWriter {
    /// Creates a writer at the beginning of a body that is framed as `body`.
    pub fn new(body: Body) -> Self {
        let left = if let Body::Length(length) = body { length } else { 0 };
        Self { body, left, open: false, sizes: Chain::new() }
    }

    /// Moves all of `data` to the end of `out`, as one chunk if the body is chunked. Without data it writes
    /// no chunk.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was moved.
    pub fn write(&mut self, data: &mut Chain, out: &mut Chain) -> Result<(), WriteError> {
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        match self.body {
            Body::None => return Err(WriteError::Length),
            Body::Length(_) => self.left = self.left.checked_sub(len).ok_or(WriteError::Length)?,
            Body::Chunked => {
                let line = self.size_line(len)?;
                out.push_back(line).map_err(|_| WriteError::NoMemory)?;
                self.open = true;
            }
            Body::UntilClose | Body::Tunnel => {}
        }
        out.append_chain(data).map_err(|_| WriteError::NoMemory)
    }

    fn size_line(&mut self, len: u64) -> Result<Segment, WriteError> {
        let mut digits = Digits::default();
        let before: &[u8] = if self.open { b"\r\n" } else { b"" };
        let size = digits.hexadecimal(len);
        let n = before.len() + size.len() + 2;
        // The cluster has room behind the sizes that were sent, and only this lane fills it.
        self.sizes.append_together(&[before, size, b"\r\n"], 2048).map_err(|_| WriteError::NoMemory)?;
        let last = self.sizes.pop_back().ok_or(WriteError::NoMemory)?;
        let line = last.slice(last.len() - n..last.len()).map_err(|_| WriteError::NoMemory)?;
        self.sizes.clear();
        self.sizes.push_back(last).map_err(|_| WriteError::NoMemory)?;
        Ok(line)
    }

    /// Moves chunks with framing ([`BodyReader::read_chunks`](crate::BodyReader::read_chunks)) to the end of
    /// `out`.
    ///
    /// # Errors
    /// [`WriteError::NoMemory`]; [`WriteError::Length`] if the body is not chunked.
    pub fn write_chunks(&mut self, chunks: &mut Chain, out: &mut Chain) -> Result<(), WriteError> {
        if self.body != Body::Chunked {
            return Err(WriteError::Length);
        }
        if std::mem::take(&mut self.open) {
            out.append(b"\r\n").map_err(|_| WriteError::NoMemory)?;
        }
        out.append_chain(chunks).map_err(|_| WriteError::NoMemory)
    }

    /// Writes the end of the body: the last chunk and `trailers` if it is chunked. Trailers of other bodies
    /// are dropped.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn end(&mut self, trailers: Option<&mut Head>, out: &mut Chain) -> Result<(), WriteError> {
        if self.left != 0 {
            return Err(WriteError::Length);
        }
        if self.body != Body::Chunked {
            return Ok(());
        }
        let line: &[u8] = if self.open { b"\r\n0\r\n" } else { b"0\r\n" };
        self.open = false;
        out.append(line).map_err(|_| WriteError::NoMemory)?;
        match trailers {
            Some(trailers) => trailers.emit(out, None).map_err(|_| WriteError::NoMemory),
            None => out.append(b"\r\n").map_err(|_| WriteError::NoMemory),
        }
    }

    /// Returns the number of data bytes that the length still allows; `None` without a length.
    pub fn left(&self) -> Option<u64> {
        matches!(self.body, Body::Length(_)).then_some(self.left)
    }

    /// Counts `n` bytes of data that passed the writer, for example in a splice. Not for chunked bodies.
    ///
    /// # Errors
    /// [`WriteError::Length`]
    pub fn passed(&mut self, n: u64) -> Result<(), WriteError> {
        match self.body {
            Body::Length(_) => self.left = self.left.checked_sub(n).ok_or(WriteError::Length)?,
            Body::UntilClose | Body::Tunnel => {}
            Body::None | Body::Chunked => return Err(WriteError::Length),
        }
        Ok(())
    }
}
